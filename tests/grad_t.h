/* grad_t.h: a graph's gradients against central differences of the evaluator.
 *
 * Everything is fp64, so constants of the backward pass are exact and the evaluator rounds nothing. With a step of
 * 1e-5 the difference quotient is off by h^2 f'''/6 (about 1e-10 at these sizes) and by the loss's own rounding over
 * h (1e-15 * |L| / 1e-5): both below 1e-7 of the largest gradient, while a wrong factor or a lost term is off by
 * parts in ten. GRAD_TOL leaves a decade. */
#ifndef TESTS_GRAD_T_H
#define TESTS_GRAD_T_H

#include <math.h>

#include "t.h"

#include "grad/grad.h"

#define GRAD_STEP 1e-5
#define GRAD_TOL 1e-6

static inline int64_t elems(const ttype *t)
{
    int64_t n = 0;
    assert_true(shape_elems(&t->sh, &n));
    return n;
}

/* Different numbers in lo .. hi, none within (hi - lo) / (4 n) of another: no ties, and kinks are met only by bad
 * luck. */
static inline double *spaced(arena *mem, rng *r, int64_t n, double lo, double hi)
{
    double *x = TAKE(mem, double, (size_t)(n ? n : 1));
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) x[i] = lo + (hi - lo) * ((double)i + rng_range(r, 0.25, 0.75)) / (double)n;
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t j = (int64_t)rng_below(r, (uint64_t)i + 1);
        double t = x[i];
        x[i] = x[j], x[j] = t;
    }
    return x;
}

/* sum(v * random weights): the loss whose gradient by v is the weights. */
static inline val weighed(graph *g, rng *r, val v)
{
    arena mem = { 0 };
    ttype t = *graph_type(g, v);
    double *w = TAKE(&mem, double, (size_t)elems(&t));
    assert_non_null(w);
    for (int64_t i = 0; i < elems(&t); i++) w[i] = rng_range(r, 0.25, 1.5) * (rng_below(r, 2) ? 1 : -1);
    val k = graph_const_f64(g, NULL, t, w);
    arena_free(&mem);
    return G(g, REDUCE_SUM, G(g, MUL, v, k));
}

/* outputs[0] of g at `in`, as one number. */
static inline double loss_value(const graph *g, const tensor64 *in, double *out0)
{
    arena mem = { 0 };
    diag d = { 0 };
    tensor64 out[64];
    assert_true(g->outputs.n <= 64);
    assert_ok(graph_eval(g, in, out, &mem, &d), d);
    *out0 = out[0].x[0];
    arena_free(&mem);
    return *out0;
}

/* g: its first output is the loss. Compares the gradient by input k, in got, with differences of the loss. Where a
 * corner lies within the step, the slopes on its two sides are what it must lie between. */
static inline void agrees(const graph *g, tensor64 *in, size_t k, const double *got, const char *what)
{
    int64_t n = elems(&in[k].type);
    double big = 0, worst = 0, mid, *x = in[k].x;
    int64_t at = 0;
    loss_value(g, in, &mid);
    for (int64_t i = 0; i < n; i++) big = fmax(big, fabs(got[i]));
    for (int64_t i = 0; i < n; i++) {
        double keep = x[i], hi, lo;
        x[i] = keep + GRAD_STEP, loss_value(g, in, &hi);
        x[i] = keep - GRAD_STEP, loss_value(g, in, &lo);
        x[i] = keep;
        double want = (hi - lo) / (2 * GRAD_STEP), left = (mid - lo) / GRAD_STEP, right = (hi - mid) / GRAD_STEP,
               size = fmax(big, 1e-2);
        /* curvature is h f'': below that */
        if (fabs(right - left) > 1e-3 * size) want = fmin(fmax(got[i], fmin(left, right)), fmax(left, right));
        double off = fabs(want - got[i]) / size;
        if (!(off <= worst)) worst = off, at = i;
    }
    if (!(worst <= GRAD_TOL))
        fail_msg("%s: gradient by %s is off by %.3g of its size at element %lld (%.10g)", what,
                 graph_value(g, g->inputs.at[k])->name, worst, (long long)at, got[at]);
}

/* Differentiates the loss by every float input, and checks all of it. loss becomes output 0 and the gradients
 * follow. */
static inline void check_gradients(graph *g, val loss, tensor64 *in, const grad_options *o, const char *what)
{
    val wrt[32] = { NO_VAL }, dx[32] = { NO_VAL };
    size_t which[32] = { 0 };
    int n = 0;
    diag d = { 0 };
    graph f = *g; /* the forward graph alone: its arrays stay valid as the builder leaves old blocks in place */
    for (size_t i = 0; i < g->inputs.n; i++)
        if (dtype_is_float(graph_type(g, g->inputs.at[i])->dt)) which[n] = i, wrt[n++] = g->inputs.at[i];
    if (grad_build(g, loss, wrt, n, dx, o, &d)) fail_msg("%s: %s", what, d.msg);
    port only = { "loss", loss };
    f.outputs.at = &only, f.outputs.n = 1;
    arena mem = { 0 };
    tensor64 out[33];
    graph_output(g, "loss", loss);
    for (int i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "grad%d", i);
        graph_output(g, name, dx[i]);
        const ttype *a = graph_type(g, wrt[i]), *b = graph_type(g, dx[i]);
        if (a->dt != b->dt || !shape_eq(&a->sh, &b->sh))
            fail_msg("%s: the gradient by input %d has another type", what, i);
    }
    if (graph_finish(g, &d)) fail_msg("%s: %s", what, d.msg);
    if (graph_eval(g, in, out, &mem, &d)) fail_msg("%s: %s", what, d.msg);
    for (int i = 0; i < n; i++) agrees(&f, in, which[i], out[1 + i].x, what);
    arena_free(&mem);
}

#endif
