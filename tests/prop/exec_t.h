/* exec_t.h: what the programs that hold the fast form of instructions against the obvious one share: devices, random
 * operands, and the comparison on every instruction set of this machine with one and two threads. */
#ifndef EXEC_T_H
#define EXEC_T_H

#include "codegen/codegen.h"
#include "engine_t.h"
#include "kernel/kernel.h"

static numerics chip_m1, chip_m4, chip_m5; /* of codegen/profile.def, by open_pools */
static const numerics chip_odd = { .round_each = 1, .window_bits = 9, .port_ceiling = 1000, .port_partial = 1,
                                   .mac_tie_away = 1, .nan_to_inf = 1, .invalid_zero = 1, .plain_zero = 1,
                                   .tables = 0 };
static const struct {
    const char *name;
    const numerics *num;
} devices[] = {
    { "cpu", &numerics_cpu }, { "m1", &chip_m1 }, { "m4", &chip_m4 }, { "m5", &chip_m5 }, { "odd", &chip_odd }
};

static pool *pools[2];
static rng R;

static inline int64_t upto(int64_t lo, int64_t hi) { return lo + (int64_t)rng_below(&R, (uint64_t)(hi - lo + 1)); }
static inline bool chance(int percent) { return rng_below(&R, 100) < (uint64_t)percent; }
static inline dtype any_float(void) { return chance(70) ? DT_F16 : chance(70) ? DT_F32 : DT_BF16; }

/* ---- values ---- */

typedef enum { TAME, WILD } mood;

static inline double number(mood m, double scale)
{
    static const double wild[] = { 0,        -0.0,    INFINITY, -INFINITY, NAN,   65504, -65504, 0x1p-24,
                                   -0x1p-24, 0x1p-15, 2049,     2051,      32768, 32752, -32768, 4094,
                                   4096,     0.5,     1,        -1,        16,    -16 };
    if (m == WILD && chance(6)) return wild[rng_below(&R, COUNT(wild))];
    double x = rng_range(&R, -1, 1) * scale;
    if (m == WILD && chance(10)) x = ldexp(x, (int)upto(-20, 12));
    return x;
}

static inline double *numbers(int64_t n, mood m, double scale)
{
    double *x = calloc((size_t)MAX(n, 1), sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) x[i] = number(m, scale);
    return x;
}

static inline int64_t input(prog *g, dtype dt, const int64_t *dim, int rank, mood m, double scale)
{
    int64_t n = 1;
    for (int i = 0; i < rank; i++) n *= dim[i];
    double *x = numbers(n, m, scale);
    if (dt == DT_BOOL)
        for (int64_t i = 0; i < n; i++) x[i] = chance(50);
    int64_t t = prog_in(g, dt, dim, rank, x);
    free(x);
    return t;
}

static inline int64_t constant(prog *g, dtype dt, const int64_t *dim, int rank, mood m, double scale)
{
    int64_t t = prog_tensor(g, dt, SPACE_CONST, (uint32_t)g->p->consts.n, dim, rank), n = prog_elems(g, t);
    size_t bytes, at = (size_t)ROUND_UP(g->p->n_data, 64u);
    assert_true(dtype_bytes(dt, n, &bytes));
    const_entry e = { .kind = CK_DENSE,
                      .tensor = (uint32_t)t,
                      .n_src = 1,
                      .src = { { .offset = at, .dt = dt, .rank = rank, .bytes = bytes } } };
    memcpy(e.src[0].dim, dim, sizeof *dim * (size_t)rank);
    unsigned char *data = arena_take(&g->p->mem, at + bytes, 1, 64);
    assert_true(data && VEC_PUSH(&g->p->mem, &g->p->consts, e));
    if (g->p->n_data) memcpy(data, g->p->data, (size_t)g->p->n_data);
    for (int64_t i = 0; i < n; i++) dtype_store(dt, data + at, i, number(m, scale));
    g->p->data = data, g->p->n_data = at + bytes;
    return t;
}

static inline int64_t either(prog *g, bool fixed, dtype dt, const int64_t *dim, int rank, mood m, double scale)
{
    return fixed ? constant(g, dt, dim, rank, m, scale) : input(g, dt, dim, rank, m, scale);
}

/* ---- comparing ---- */

static inline void show(const prog *g, const char *what, const char *isa, int threads, size_t which, int64_t i,
                        double got, double want)
{
    strbuf b = { 0 };
    program_print(g->p, &b);
    fail_msg("%s, AN_ISA=%s, %d threads: output %zu element %lld is %.9g, wanted %.9g\n%s", what, isa, threads, which,
             (long long)i, got, want, b.at);
}

/* tol 0: the same bits. Otherwise |got - want| <= tol * max(least, |want|), plus one step of the type. */
static inline bool close_to(dtype t, double got, double want, double tol, double least)
{
    if (got == want || (isnan(got) && isnan(want))) return true;
    if (tol == 0 || isnan(got) || isnan(want)) return false;
    double step = t == DT_F16 ? 0x1p-10 : t == DT_BF16 ? 0x1p-7 : 0x1p-23;
    if (isinf(got) || isinf(want)) return fabs(isinf(got) ? want : got) > 65000 && got * want > 0;
    return fabs(got - want) <= (tol + step) * fmax(least, fabs(want));
}

typedef struct {
    double tol, least; /* of close_to */
    double norm;       /* instead: the norm of the errors, by that of what is wanted and one for each element */
    int math;          /* FAST_* */
} closeness;

static inline void compare_port(const prog *g, const char *what, const char *isa, int threads, size_t k,
                                const double *want, closeness c)
{
    const etensor *t = &g->p->tensors.at[g->p->outputs.at[k].tensor];
    double errors = 0, all = 0;
    for (int64_t i = 0; i < g->n_out[k]; i++) {
        double got = dtype_load(t->dt, g->out_bytes[k], i);
        bool bits = c.tol != 0 || isnan(got) || signbit(got) == signbit(want[i]);
        errors += (got - want[i]) * (got - want[i]), all += want[i] * want[i] + 1;
        if (c.norm == 0 && (!bits || !close_to(t->dt, got, want[i], c.tol, c.least)))
            show(g, what, isa, threads, k, i, got, want[i]);
    }
    if (c.norm != 0 && !(sqrt(errors) <= c.norm * sqrt(all)))
        show(g, what, isa, threads, k, -1, sqrt(errors), c.norm * sqrt(all));
}

static inline void compare_as(prog *g, const char *what, closeness c)
{
    static const char *const isas[] = { "scalar", "avx2", "avx512", "neon", "" }; /* the last: all there is */
    static size_t turn;
    double *want[PROG_PORTS] = { 0 };
    /* what is not written shows */
    for (size_t k = 0; k < g->p->outputs.n; k++) memset(g->out_bytes[k], 0x7f, (size_t)g->p->outputs.at[k].bytes);
    prog_run(g, true);
    for (size_t k = 0; k < g->p->outputs.n; k++) want[k] = g->out[k], g->out[k] = NULL;
    for (size_t a = 0; a < COUNT(isas); a++) {
        uint32_t have;
        diag d = { 0 };
        assert_int_equal(setenv("AN_ISA", isas[a], 1), 0);
        if (isa_have(&have, &d)) continue; /* of the other architecture */
        turn++;
        for (size_t p = 0; p < COUNT(pools); p++) {
            if (isas[a][0] && p == turn % 2) continue; /* one of the two, in turn */
            image *im = NULL;
            image_options o = { .pool = pools[p], .fast_math = c.math };
            for (size_t k = 0; k < g->p->outputs.n; k++)
                memset(g->out_bytes[k], 0x7f, (size_t)g->p->outputs.at[k].bytes);
            assert_ok(image_load(&im, g->p, NULL, &o, &d), d);
            for (int run = 0; run < (isas[a][0] ? 1 : 2); run++) /* once more with all that the first left behind */
                assert_ok(image_run(im, (const void *const *)g->in, (void *const *)g->out_bytes, &d), d);
            image_free(im);
            for (size_t k = 0; k < g->p->outputs.n; k++)
                compare_port(g, what, isas[a], pool_threads(pools[p]), k, want[k], c);
        }
    }
    unsetenv("AN_ISA");
    for (int k = 0; k < PROG_PORTS; k++) free(want[k]);
}

static inline void compare(prog *g, const char *what, double tol, double least)
{
    compare_as(g, what, (closeness){ .tol = tol, .least = least });
}

static inline bool take_profile(const char *name, numerics *num)
{
    const chip *c = chip_find(name);
    return c && codegen_numerics(c, num);
}

static inline int open_pools(void **state)
{
    (void)state;
    diag d = { 0 };
    if (!take_profile("m1", &chip_m1) || !take_profile("m4", &chip_m4) || !take_profile("m5", &chip_m5)) return 1;
    R.s = test_seed("exec");
    return pool_make(&pools[0], 1, &d) || pool_make(&pools[1], 2, &d);
}

static inline int close_pools(void **state)
{
    (void)state;
    pool_free(pools[0]), pool_free(pools[1]);
    return 0;
}

/* Results on one thread and on two: the same bits. */
static inline void same_on_threads(prog *g, const char *what)
{
    for (size_t k = 0; k < g->p->outputs.n; k++) {
        unsigned char *first = NULL;
        const size_t n = (size_t)g->p->outputs.at[k].bytes;
        for (size_t p = 0; p < COUNT(pools); p++) {
            diag d = { 0 };
            image *im = NULL;
            image_options o = { .pool = pools[p] };
            assert_ok(image_load(&im, g->p, NULL, &o, &d), d);
            assert_ok(image_run(im, (const void *const *)g->in, (void *const *)g->out_bytes, &d), d);
            image_free(im);
            if (first && memcmp(first, g->out_bytes[k], n))
                fail_msg("%s: other bits on %d threads", what, pool_threads(pools[p]));
            if (!first && (first = malloc(n))) memcpy(first, g->out_bytes[k], n);
            assert_non_null(first);
        }
        free(first);
    }
}

#endif
