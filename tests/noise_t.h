/* noise_t.h: how far rounding alone takes a graph's results from the exact ones. Every result is one of the two
 * numbers of its type around the exact one, at random: up to twice as far as the nearest. Numbers the type holds
 * stay as they are, so what copies or compares them is exact. What multiplies and adds up sees its operands less
 * exactly: a chip rounds each product to fp16, a processor may round operands to bf16. Where such runs end far from
 * the exact result, terms cancel or a corner is nearer than the rounding: there a result says nothing about the
 * formula. */
#ifndef TESTS_NOISE_T_H
#define TESTS_NOISE_T_H

#include <math.h>

#include "grad_t.h"

/* One of the two numbers with so many bits around x. */
static inline double nudged(rng *r, double x, int bits, int least)
{
    int e;
    if (x == 0 || !isfinite(x)) return x;
    frexp(x, &e);
    double unit = ldexp(1, MAX(e, least) - bits), q = x / unit;
    return (rng_below(r, 2) ? floor(q) : ceil(q)) * unit;
}

static inline double nudged_to(rng *r, dtype t, double x)
{
    switch (t) {
    case DT_F16: return nudged(r, x, 11, -13);
    case DT_BF16: return nudged(r, x, 8, -125);
    case DT_F32: return nudged(r, x, 24, -125);
    default: return x;
    }
}

static inline bool adds_up(op_id op, bool products_only)
{
    switch (op) {
    case OP_CONV:
    case OP_CONV_TRANSPOSE:
    case OP_NE_CONV:
    case OP_LINEAR:
    case OP_MATMUL:
    case OP_NE_MATMUL:
    case OP_EINSUM:
    case OP_SDPA: return true;
    case OP_REDUCE_SUM:
    case OP_REDUCE_MEAN:
    case OP_REDUCE_SUM_SQUARE:
    case OP_CUMSUM:
    case OP_AVG_POOL: return !products_only;
    default: return false;
    }
}

/* A chip's table is straight between knots h = 1/2 apart: off by up to h^2/8 of the largest curvature
 * (docs/numerics.md). Those that are sums' terms. */
static inline double table_error(op_id op)
{
    switch (op) {
    case OP_SIGMOID: return 0.0034;  /* as published: 0.0030 of curvature and rounding */
    case OP_SOFTPLUS: return 0.0078; /* the curvature is 1/4 */
    default: return 0;
    }
}

/* One run. bf16: operands of products are off by up to half a unit of that, sums are not; otherwise each operand of
 * either is off by as much as a product's rounding to fp16. */
static inline void noisy_eval(const graph *g, const tensor64 *in, tensor64 *out, bool bf16, rng *r, arena *mem)
{
    tensor64 *v = TAKE(mem, tensor64, g->values.n);
    diag d = { 0 };
    assert_non_null(v);
    for (size_t i = 0; i < g->inputs.n; i++) v[g->inputs.at[i].i] = in[i];
    for (size_t i = 1; i < g->nodes.n; i++) {
        const node *n = &g->nodes.at[i];
        tensor64 *a = TAKE(mem, tensor64, (size_t)n->n_in + 1), *y = &v[n->out.i];
        if (n->op == OP_INPUT) continue;
        assert_non_null(a);
        for (int k = 0; k < n->n_out; k++) y[k].type = *graph_type(g, graph_out(n->out, k));
        if (n->op == OP_CONST) {
            y->x = TAKE(mem, double, (size_t)elems(&y->type) + 1);
            assert_non_null(y->x);
            for (int64_t k = 0; k < elems(&y->type); k++) y->x[k] = graph_const_at(n, &y->type, k);
            continue;
        }
        for (int k = 0; k < n->n_in; k++) {
            a[k] = v[n->in[k].i];
            if (!n->in[k].i || !dtype_is_float(a[k].type.dt) || !adds_up(n->op, bf16)) continue;
            double *x = TAKE(mem, double, (size_t)elems(&a[k].type) + 1);
            assert_non_null(x);
            for (int64_t j = 0; j < elems(&a[k].type); j++)
                x[j] = bf16 ? (a[k].x[j] + nudged_to(r, DT_BF16, a[k].x[j])) / 2
                            : a[k].x[j] * (1 + (rng_below(r, 2) ? 0x1p-11 : -0x1p-11));
            a[k].x = x;
        }
        double table = bf16 ? 0 : table_error(n->op);
        assert_ok(graph_eval_op(n->op, n->attrs, n->n_attr, a, n->n_in, y, n->n_out, mem, &d), d);
        for (int k = 0; k < n->n_out; k++)
            for (int64_t j = 0; j < elems(&y[k].type); j++)
                y[k].x[j] = nudged_to(r, y[k].type.dt, y[k].x[j] + (rng_below(r, 2) ? table : -table));
    }
    for (size_t i = 0; i < g->outputs.n; i++) out[i] = v[g->outputs.at[i].v.i];
}

/* The largest distance of outputs in `runs` runs from what they should be, as a part of each one's size; one of 0
 * has none. */
static inline double noise_of(const graph *g, const tensor64 *in, const tensor64 *want, bool bf16, int runs, rng *r)
{
    double worst = 0;
    for (int q = 0; q < runs; q++) {
        arena mem = { 0 };
        tensor64 out[8];
        assert_true(g->outputs.n <= 8);
        noisy_eval(g, in, out, bf16, r, &mem);
        for (size_t i = 0; i < g->outputs.n; i++) {
            double off = 0, size = 0;
            for (int64_t k = 0; k < elems(&want[i].type); k++)
                off += (out[i].x[k] - want[i].x[k]) * (out[i].x[k] - want[i].x[k]), size += want[i].x[k] * want[i].x[k];
            if (size > 0) worst = fmax(worst, sqrt(off / size));
        }
        arena_free(&mem);
    }
    return worst;
}

#endif
