/* bench_gemm.c: matrix products at the shapes of a Stories110M training step. */
#include <math.h>
#include <stdlib.h>

#include "bench/bench_int.h"

typedef enum { FORWARD, DX, DW } form; /* W x; W^T dy; dy x^T */
static const struct {
    form f;
    int64_t m, n, k;
} cases[] = {
    { FORWARD, 768, 256, 768 }, { FORWARD, 2048, 256, 768 }, { FORWARD, 768, 256, 2048 }, { FORWARD, 32000, 256, 768 }, { FORWARD, 768, 1024, 768 },
    { FORWARD, 2048, 1024, 768 }, { DX, 768, 256, 768 }, { DX, 768, 256, 2048 }, { DW, 768, 768, 256 }, { DW, 2048, 768, 256 },
};
static const char *const form_names[] = { "Wx", "dX", "dW" };

typedef struct {
    gemm_call call;
    float *a, *b, *c;
    void *mem;
    gemm_view av, bv;
} product;

static an_status run(void *user, diag *d) { return gemm_run(&((product *)user)->call, d); }

/* Some elements against double: rounding of k products and sums, in units of the largest term. */
static an_status check(const product *p, const char *what, double tol, diag *d)
{
    const gemm_call *c = &p->call;
    for (int s = 0; s < 64; s++) {
        int64_t i = s * 7919 % c->m, j = s * 104729 % c->n;
        double want = 0;
        for (int64_t k = 0; k < c->k; k++) want += (double)p->a[i * p->av.row + k * p->av.col] * (double)p->b[k * p->bv.row + j * p->bv.col];
        double got = (double)p->c[i * c->ldc + j];
        if (!(fabs(got - want) <= tol * sqrt((double)c->k)))
            return diag_fail(d, AN_MISMATCH, NOWHERE, "bench gemm %s: element (%lld, %lld) is %.9g, wanted %.9g", what, (long long)i, (long long)j, got, want);
    }
    return AN_OK;
}

static an_status one(bench *b, gemm_math math, size_t k)
{
    int64_t m = cases[k].m, n = cases[k].n, kk = cases[k].k;
    form f = cases[k].f;
    const gemm_kernel *g = gemm_pick(math, b->isa);
    product p = { 0 };
    size_t na, ns;
    rng r = { 1 };
    int threads = pool_threads(b->pool);
    if (!gemm_pack_a_bytes(g, m, kk, &na) || !gemm_scratch_bytes(g, m, n, kk, threads, &ns)) return diag_nomem(b->d);
    char *packed = aligned_alloc(64, ROUND_UP(na, (size_t)64)), *scratch = aligned_alloc(64, ROUND_UP(ns, (size_t)64));
    p.a = malloc((size_t)(m * kk) * 4), p.b = malloc((size_t)(kk * n) * 4), p.c = malloc((size_t)(m * n) * 4);
    an_status st = packed && scratch && p.a && p.b && p.c ? AN_OK : diag_nomem(b->d);
    for (int64_t i = 0; !st && i < m * kk; i++) p.a[i] = (float)f16_to_f64(f16_from_f64(rng_range(&r, -1, 1)));
    for (int64_t i = 0; !st && i < kk * n; i++) p.b[i] = (float)f16_to_f64(f16_from_f64(rng_range(&r, -1, 1)));
    p.av = (gemm_view){ .at = p.a, .type = DT_F32, .row = f == DX ? 1 : kk, .col = f == DX ? m : 1 };
    p.bv = (gemm_view){ .at = p.b, .type = DT_F32, .row = f == DW ? 1 : n, .col = f == DW ? kk : 1 };
    p.call = (gemm_call){ .kernel = g, .pool = b->pool, .m = m, .n = n, .k = kk, .a = packed, .b = p.bv, .c = p.c, .c_type = DT_F32, .ldc = n, .scratch = scratch, .scratch_bytes = ns };
    char what[64];
    snprintf(what, sizeof what, "%s %s %lldx%lldx%lld", gemm_math_name(math), form_names[f], (long long)m, (long long)n, (long long)kk);
    timing t;
    if (!st) st = gemm_pack_a(g, b->pool, m, kk, p.av, packed, b->d);
    if (!st) st = run(&p, b->d);
    if (!st) st = check(&p, what, math == GEMM_BF16 ? 4e-3 : 2e-6 * sqrt((double)kk), b->d);
    if (!st) st = bench_time(b, run, &p, &t);
    if (!st) bench_row(b, "gemm", what, t, 2.0 * (double)m * (double)n * (double)kk, "GFLOP/s", bench_peak(b, math), gemm_name(g));
    free(packed), free(scratch), free(p.a), free(p.b), free(p.c);
    return st;
}

an_status bench_gemm(bench *b)
{
    static const gemm_math maths[] = { GEMM_F16, GEMM_F32, GEMM_BF16 };
    for (size_t i = 0; i < COUNT(maths); i++)
        for (size_t k = 0; k < COUNT(cases); k++) TRY(one(b, maths[i], k));
    return AN_OK;
}
