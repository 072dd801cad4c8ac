/* prop_wild.c: graphs over every row of the op table, in the types, shapes and attributes of wildgraph.h.
 *   - written as text and as MIL, in both dialects, with constants in the text and in a weight file, they mean the same;
 *   - clean-up keeps every bit, of ordinary numbers and of infinities, NaN, zeros with a sign and subnormal numbers;
 *   - the plain processor computes what the evaluator says, by the reference, on each instruction set, and the same bits on one, two and
 *     three threads; on chips every level, plan and instruction set gives the same bytes, of ordinary numbers and of odd ones;
 *   - the gradient of a sum of results is their slope along a direction.
 *
 * What a value may be off by is found, not stated: the graph is evaluated again with every element moved by up to
 * four roundings of its type, and eight times the farthest result is allowed. An integer, or a step, that such a
 * move changes is not compared. */
#include <unistd.h>

#include "codegen_t.h"
#include "kernel/kernel.h"
#include "lower_t.h"
#include "pass/pass.h"
#include "prop/randgraph.h"
#include "prop/wildgraph.h"

#include "grad_t.h"

enum { N_TEXT = 400, N_CPU = 240, N_CHIP = 120, N_GRAD = 800, SHAKES = 8, MOST_OUT = 8 };

static pool *pools[3];

/* ---- what is right ---- */

typedef struct {
    wg s;
    arena mem;
    tensor64 want[MOST_OUT], moved[SHAKES][MOST_OUT];
} sample;

static double rounding(dtype t) { return t == DT_F16 ? 0x1p-11 : t == DT_BF16 ? 0x1p-8 : 0x1p-24; }

/* The graph with every float moved by up to four roundings; the first time rounded, as running it operation by
 * operation does. */
static void shake(sample *p, int time, rng *r)
{
    const graph *g = p->s.g;
    tensor64 *v = TAKE(&p->mem, tensor64, g->values.n);
    diag d = { 0 };
    size_t at = 0;
    assert_non_null(v);
    for (size_t i = 1; i < g->nodes.n; i++) {
        const node *n = &g->nodes.at[i];
        tensor64 ops[16] = { 0 }, *o = &v[n->out.i];
        for (int k = 0; k < n->n_out; k++) o[k].type = *graph_type(g, graph_out(n->out, k));
        for (int k = 0; k < n->n_in; k++) ops[k] = v[n->in[k].i];
        if (n->op == OP_INPUT) o->x = p->s.in[at++].x;
        else if (n->op != OP_CONST)
            assert_ok(graph_eval_op(n->op, n->attrs, n->n_attr, ops, n->n_in, o, n->n_out, &p->mem, &d), d);
        for (int k = 0; k < n->n_out; k++) {
            int64_t e = wg_count(&o[k].type.sh);
            double *x = TAKE(&p->mem, double, (size_t)e + 1);
            dtype t = o[k].type.dt;
            assert_non_null(x);
            for (int64_t j = 0; j < e; j++) {
                x[j] = n->op == OP_CONST ? dtype_load(t, n->cst->data, j) : o[k].x[j];
                if (dtype_is_float(t)) x[j] *= 1 + 4 * rounding(t) * rng_range(r, -1, 1);
                if (time == 0) x[j] = dtype_round(t, x[j]);
            }
            o[k].x = x;
        }
    }
    for (size_t k = 0; k < g->outputs.n; k++) p->moved[time][k] = v[g->outputs.at[k].v.i];
}

static bool sample_open(sample *p, uint64_t seed, const wg_options *o)
{
    *p = (sample){ 0 };
    wg_open(&p->s, seed, o);
    return p->s.g->outputs.n > 0;
}

static void sample_close(sample *p)
{
    wg_close(&p->s);
    arena_free(&p->mem);
}

static void find_truth(sample *p)
{
    diag d = { 0 };
    rng r = { p->s.r.s ^ 77 };
    assert_ok(graph_eval(p->s.g, p->s.in, p->want, &p->mem, &d), d);
    for (int k = 0; k < SHAKES; k++) shake(p, k, &r);
}

static void give_up(const sample *p, const char *what, const char *name, int64_t at, double got, double want)
{
    strbuf b = { 0 };
    graph_print(p->s.g, &b);
    print_message("%s\n", b.at);
    fail_msg("%s: %s[%lld] is %.9g, wanted %.9g", what, name, (long long)at, got, want);
}

static void right(const sample *p, const program *prog, void *const *out, const char *what)
{
    for (size_t i = 0; i < prog->outputs.n; i++)
        for (size_t k = 0; k < p->s.g->outputs.n; k++) {
            if (strcmp(prog->outputs.at[i].name, p->s.g->outputs.at[k].name)) continue;
            dtype t = p->want[k].type.dt;
            for (int64_t j = 0; j < wg_count(&p->want[k].type.sh); j++) {
                double want = p->want[k].x[j], got = dtype_load(t, out[i], j), far = 0;
                for (int q = 0; q < SHAKES; q++) far = fmax(far, fabs(p->moved[q][k].x[j] - want));
                bool ok = dtype_is_float(t)
                              ? fabs(got - want) <= 8 * far + 16 * rounding(t) * fmax(fabs(want), 1e-3) + 1e-7
                              : far > 0 || got == want;
                if (!ok) give_up(p, what, prog->outputs.at[i].name, j, got, want);
            }
        }
}

static const char *of_seed(char *what, size_t n, const char *kind, uint64_t seed)
{
    snprintf(what, n, "%s, wild graph %llu", kind, (unsigned long long)seed);
    return what;
}

static wg_options some(uint64_t i, bool large)
{
    static const dtype f[] = { DT_F32, DT_F16, DT_F16, DT_F32, DT_BF16 };
    return (wg_options){ .n_ops = 1 + (int)(i % (large ? 3 : 7)),
                         .f = f[i % COUNT(f)],
                         .mixed = i % 3 == 0,
                         .large = large,
                         .most = large ? 2000 : 0 };
}

/* ---- odd numbers ---- */

static tensor64 *odd_inputs(sample *p)
{
    static const double odd[] = { 0,       -0.0,     INFINITY, -INFINITY, NAN,   65504,  -65504,
                                  0x1p-24, -0x1p-24, 0x1p-15,  2049,      32768, -32768, 4094,
                                  4096,    1,        -1,       16,        1e38,  -1e-38, 1e-42 };
    tensor64 *in = TAKE(&p->mem, tensor64, p->s.g->inputs.n + 1);
    assert_non_null(in);
    for (size_t i = 0; i < p->s.g->inputs.n; i++) {
        in[i] = p->s.in[i];
        dtype t = in[i].type.dt;
        int64_t n = wg_count(&in[i].type.sh);
        if (!dtype_is_float(t)) continue;
        in[i].x = TAKE(&p->mem, double, (size_t)n + 1);
        assert_non_null(in[i].x);
        for (int64_t k = 0; k < n; k++)
            in[i].x[k] =
                wg_chance(&p->s, 12) ? dtype_round(t, odd[wg_upto(&p->s, 0, COUNT(odd) - 1)]) : p->s.in[i].x[k];
    }
    return in;
}

/* ---- text ---- */

static void same_meaning(const sample *p, const graph *back, const char *what)
{
    arena mem = { 0 };
    diag d = { 0 };
    tensor64 y[MOST_OUT];
    if (graph_eval(back, p->s.in, y, &mem, &d)) fail_msg("%s: %s", what, d.msg);
    for (size_t k = 0; k < p->s.g->outputs.n; k++) {
        assert_true(y[k].type.dt == p->want[k].type.dt && shape_eq(&y[k].type.sh, &p->want[k].type.sh));
        /* an epsilon left out is written in the type of its operand, and rounded to it */
        for (int64_t j = 0; j < wg_count(&y[k].type.sh); j++) {
            double got = y[k].x[j], want = p->want[k].x[j], far = fabs(p->moved[0][k].x[j] - want);
            if (!(fabs(got - want) <= 4 * far + 1e-6 * (1 + fabs(want))))
                give_up(p, what, p->s.g->outputs.at[k].name, j, got, want);
        }
    }
    arena_free(&mem);
}

static void as_mil(const sample *p, const char *dir, int way, const char *what)
{
    lower_weights *files;
    graph *back = lower_and_back(p->s.g, dir, way & 1 ? DIALECT_IOS16 : DIALECT_IOS18, way & 2, what, &files);
    same_meaning(p, back, what);
    graph_free(back);
    lower_weights_close(files);
}

static void keeps_bits(sample *p, const graph *h, const tensor64 *in, const char *what)
{
    tensor64 a[MOST_OUT], b[MOST_OUT];
    diag d = { 0 };
    if (rg_eval(p->s.g, in, a, RG_ROUND_ALL, &p->mem, &d)) return; /* odd numbers led to a place outside */
    if (rg_eval(h, in, b, RG_ROUND_ALL, &p->mem, &d)) fail_msg("%s: %s", what, d.msg);
    for (size_t k = 0; k < p->s.g->outputs.n; k++)
        for (int64_t j = 0; j < wg_count(&a[k].type.sh); j++) {
            double x = a[k].x[j], y = b[k].x[j];
            if (!(isnan(x) && isnan(y)) && !(x == y && signbit(x) == signbit(y)))
                give_up(p, what, p->s.g->outputs.at[k].name, j, y, x);
        }
}

static void texts_and_passes(void **state)
{
    (void)state;
    uint64_t seed = test_seed("wild graphs as text and behind passes");
    char dir[] = "/tmp/prop_wild_XXXXXX", below[40], path[64];
    diag none = { 0 };
    assert_non_null(mkdtemp(dir));
    snprintf(below, sizeof below, "%s/weights", dir);
    assert_ok(dir_make(below, &none), none);
    for (uint64_t i = 0; i < N_TEXT; i++) {
        sample p;
        char what[80];
        wg_options o = some(i, false);
        if (sample_open(&p, seed + i, &o)) {
            find_truth(&p);
            strbuf text = { 0 }, why = { 0 };
            graph *h = NULL;
            diag d = { 0 };
            graph_print(p.s.g, &text);
            assert_ok(graph_parse(text.at, text.n, &h, &d), d);
            if (!graph_same(p.s.g, h, &why)) fail_msg("%s: %s", of_seed(what, sizeof what, "text", seed + i), why.at);
            as_mil(&p, dir, (int)(i % 4), of_seed(what, sizeof what, "MIL", seed + i));
            pass_stats st;
            assert_ok(pass_run(h, NULL, &st, &d), d);
            keeps_bits(&p, h, p.s.in, of_seed(what, sizeof what, "clean-up", seed + i));
            keeps_bits(&p, h, odd_inputs(&p), of_seed(what, sizeof what, "clean-up of odd numbers", seed + i));
            graph_free(h);
            sb_free(&text), sb_free(&why);
        }
        sample_close(&p);
    }
    snprintf(path, sizeof path, "%s/weight.bin", below);
    unlink(path); /* of the last graph, where it had one */
    assert_int_equal(rmdir(below), 0);
    assert_int_equal(rmdir(dir), 0);
}

/* ---- programs ---- */

static const char *const isas[] = { "scalar", "avx2", "avx512", "neon", "" };

static bool runs(const program *p, const void *const *in, void *const *out, pool *threads, bool reference)
{
    image *im = NULL;
    diag d = { 0 };
    assert_ok(image_load(&im, p, NULL, &(image_options){ .pool = threads, .reference = reference }, &d), d);
    /* what is not written shows */
    for (size_t k = 0; k < p->outputs.n; k++) memset(out[k], 0xa5, (size_t)p->outputs.at[k].bytes);
    an_status st = image_run(im, in, out, &d);
    image_free(im);
    if (st && !strstr(d.msg, "outside an extent")) fail_msg("%s", d.msg); /* a place that odd numbers made */
    return !st;
}

static void same_bits(const sample *p, const program *q, void *const *a, void *const *b, const char *what)
{
    for (size_t k = 0; k < q->outputs.n; k++) {
        if (!memcmp(a[k], b[k], (size_t)q->outputs.at[k].bytes)) continue;
        const etensor *t = &q->tensors.at[q->outputs.at[k].tensor];
        int64_t j = 0;
        while (dtype_load(t->dt, a[k], j) == dtype_load(t->dt, b[k], j)) j++;
        give_up(p, what, q->outputs.at[k].name, j, dtype_load(t->dt, b[k], j), dtype_load(t->dt, a[k], j));
    }
}

/* want NULL: right is what the evaluator says, else these bytes. */
static void on_every_isa(sample *p, const program *q, const tensor64 *in, void *const *want, bool exact,
                         const char *what)
{
    const void **x = cgt_inputs(q, p->s.g, in, &p->mem);
    void **one = cgt_outputs(q, &p->mem), **more = cgt_outputs(q, &p->mem);
    for (size_t a = 0; a < COUNT(isas); a++) {
        uint32_t have;
        diag d = { 0 };
        char name[120];
        assert_int_equal(setenv("AN_ISA", isas[a], 1), 0);
        if (isa_have(&have, &d)) continue; /* of the other architecture */
        snprintf(name, sizeof name, "%s, AN_ISA=%s", what, isas[a]);
        if (!runs(q, x, one, pools[0], false)) continue;
        if (want) same_bits(p, q, want, one, name);
        else if (exact) right(p, q, one, name);
        if (isas[a][0]) continue;
        for (size_t t = 1; t < COUNT(pools); t++) {
            snprintf(name, sizeof name, "%s, %zu threads", what, t + 1);
            if (runs(q, x, more, pools[t], false)) same_bits(p, q, one, more, name);
        }
    }
    unsetenv("AN_ISA");
}

static void on_the_processor(void **state)
{
    (void)state;
    uint64_t seed = test_seed("wild graphs on the plain processor") + 1000;
    for (uint64_t i = 0; i < N_CPU; i++) {
        sample p;
        char what[80];
        wg_options o = some(i, i % 8 == 7);
        if (sample_open(&p, seed + i, &o)) {
            find_truth(&p);
            of_seed(what, sizeof what, "cpu", seed + i);
            program *q = cgt_compile(p.s.g, &(codegen_options){ .level = (int)(i / 2 % 2) });
            void **out = cgt_outputs(q, &p.mem);
            if (runs(q, cgt_inputs(q, p.s.g, p.s.in, &p.mem), out, NULL, true)) right(&p, q, out, what);
            on_every_isa(&p, q, p.s.in, NULL, true, what);
            on_every_isa(&p, q, odd_inputs(&p), NULL, false, of_seed(what, sizeof what, "cpu, odd numbers", seed + i));
            program_free(q);
        }
        sample_close(&p);
    }
}

static void on_chips(void **state)
{
    (void)state;
    static const char *const chips[] = { "m1", "m3", "m5" };
    uint64_t seed = test_seed("wild graphs on chips") + 2000;
    for (uint64_t i = 0; i < N_CHIP; i++) {
        sample p;
        char what[80];
        wg_options o = some(i, i % 10 == 9);
        numerics num;
        assert_true(codegen_numerics(chip_find(chips[i % 3]), &num));
        if (sample_open(&p, seed + i, &o)) {
            program *slow = cgt_compile(p.s.g, &(codegen_options){ .num = &num, .no_reuse = true }),
                    *fast = cgt_compile(p.s.g, &(codegen_options){ .num = &num, .level = 1 });
            for (int odd = 0; odd < 2; odd++) {
                const tensor64 *in = odd ? odd_inputs(&p) : p.s.in;
                void **a = cgt_outputs(slow, &p.mem);
                of_seed(what, sizeof what, odd ? "chip, odd numbers" : "chip", seed + i);
                if (runs(slow, cgt_inputs(slow, p.s.g, in, &p.mem), a, NULL, true))
                    on_every_isa(&p, fast, in, a, false, what);
            }
            program_free(slow), program_free(fast);
        }
        sample_close(&p);
    }
}

/* ---- gradients ---- */

static double at_distance(const graph *f, const sample *p, tensor64 *moved, double *const *way, double h)
{
    double y;
    for (size_t i = 0; i < f->inputs.n; i++)
        for (int64_t k = 0; k < elems(&moved[i].type); k++)
            moved[i].x[k] = p->s.in[i].x[k] + (way[i] ? h * way[i][k] : 0);
    return loss_value(f, moved, &y);
}

/* 1: compared, 0: nothing to compare, -1: a corner inside the step. */
static int slope(sample *p, uint64_t seed)
{
    graph *g = p->s.g;
    rng r = { seed };
    val loss = NO_VAL, wrt[WG_MOST_INPUTS] = { NO_VAL }, dx[WG_MOST_INPUTS] = { NO_VAL };
    tensor64 moved[WG_MOST_INPUTS], out[WG_MOST_INPUTS];
    double *way[WG_MOST_INPUTS] = { NULL }, dot = 0, size = 1e-6;
    size_t which[WG_MOST_INPUTS] = { 0 };
    int n = 0;
    diag d = { 0 };
    for (size_t i = 0; i < g->outputs.n; i++) {
        val v = g->outputs.at[i].v;
        if (!dtype_is_float(graph_type(g, v)->dt)) continue;
        v = weighed(g, &r, v);
        loss = loss.i ? G(g, ADD, loss, v) : v;
    }
    for (size_t i = 0; i < g->inputs.n; i++) {
        int64_t e = elems(&p->s.in[i].type);
        moved[i] = (tensor64){ p->s.in[i].type, TAKE(&p->mem, double, (size_t)e + 1) };
        if (!dtype_is_float(p->s.in[i].type.dt)) continue;
        which[n] = i, wrt[n++] = g->inputs.at[i];
        way[i] = TAKE(&p->mem, double, (size_t)e + 1);
        /* off the ties */
        for (int64_t k = 0; k < e; k++) way[i][k] = rng_range(&r, -1, 1), p->s.in[i].x[k] += rng_range(&r, -1e-3, 1e-3);
    }
    if (!loss.i || !n) return 0;
    graph f = *g;
    port only = { "loss", loss };
    f.outputs.at = &only, f.outputs.n = 1;
    an_status st = grad_build(g, loss, wrt, n, dx, &(grad_options){ .zeros_when_unreached = true }, &d);
    if (st == AN_UNSUPPORTED) return 0;
    assert_ok(st, d);
    g->outputs.n = 0;
    for (int i = 0; i < n; i++) {
        char name[24];
        snprintf(name, sizeof name, "gradient%d", i);
        graph_output(g, name, dx[i]);
    }
    assert_ok(graph_finish(g, &d), d);
    assert_ok(graph_eval(g, p->s.in, out, &p->mem, &d), d);
    for (int i = 0; i < n; i++)
        for (int64_t k = 0; k < elems(&p->s.in[which[i]].type); k++)
            dot += out[i].x[k] * way[which[i]][k], size += fabs(out[i].x[k] * way[which[i]][k]);
    double h = 4e-6, s[2], mid = at_distance(&f, p, moved, way, 0);
    for (int k = 0; k < 2; k++)
        s[k] = (at_distance(&f, p, moved, way, h / (1 << k)) - at_distance(&f, p, moved, way, -h / (1 << k))) /
               (2 * h / (1 << k));
    double noise = 1e-15 * fabs(mid) / h + 1e-6 * size;
    if (fabs(s[1] - dot) <= 10 * noise) return 1;
    double right_hand = (at_distance(&f, p, moved, way, h) - mid) / h,
           left_hand = (mid - at_distance(&f, p, moved, way, -h)) / h;
    if (!isfinite(size) || fabs(s[0] - s[1]) > 5 * noise ||
        fabs(right_hand - left_hand) > 1e-3 * (fabs(right_hand) + fabs(left_hand)))
        return -1;
    strbuf b = { 0 };
    graph_print(&f, &b);
    print_message("%s\n", b.at);
    fail_msg("wild graph %llu: slope %.12g, gradient gives %.12g of size %.3g", (unsigned long long)seed, s[1], dot,
             size);
    return 0;
}

static void gradients(void **state)
{
    (void)state;
    uint64_t seed = test_seed("gradients of wild graphs") + 3000;
    int count[3] = { 0 };
    for (uint64_t i = 0; i < N_GRAD; i++) {
        sample p;
        if (sample_open(&p, seed + i, &(wg_options){ .n_ops = 1 + (int)(i % 6), .f = DT_F64, .smooth = true }))
            count[1 + slope(&p, seed + i)]++;
        sample_close(&p);
    }
    print_message("    %d compared, %d without a gradient, %d through a corner\n", count[2], count[1], count[0]);
    assert_true(count[2] > N_GRAD * 3 / 4 && count[0] < N_GRAD / 20);
}

static int open_pools(void **state)
{
    (void)state;
    diag d = { 0 };
    for (int i = 0; i < (int)COUNT(pools); i++)
        if (pool_make(&pools[i], i + 1, &d)) return 1;
    return 0;
}

static int close_pools(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(pools); i++) pool_free(pools[i]);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(texts_and_passes), cmocka_unit_test(on_the_processor),
                                        cmocka_unit_test(on_chips), cmocka_unit_test(gradients) };
    return cmocka_run_group_tests(tests, open_pools, close_pools);
}
