/* bench_gemm.c: matrix products at the shapes of a Stories110M training step, and products with few columns.
 * In: nothing but this CPU.  Out: rows, each with what bounds it, measured in the same seconds.
 *
 * A product is compared with its kernel's rate with operands in L1. Where its operands and result cannot come from
 * that near, a second row compares it with the slower of that rate and the bytes it must move (packed A, B as it is
 * given, C read and written) over the rate at which as many bytes are read again and again. One row of each kernel
 * has nothing to pack: what of its rate in L1 the other caches let through when B comes from the second and C goes
 * to the third. Of a machine with AMX the best vector kernels of bf16 and int8 have rows, too. OpenBLAS and BLIS
 * sgemm run in turn with ours when they can be loaded; their share is that of our best. */
#include <math.h>
#include <stdlib.h>

#include "base/big.h"
#include "bench/bench_int.h"
#include "kernel/gemv.h"

typedef enum { FORWARD, DX, DW } form; /* W x; W^T dy; dy x^T, whose left operand is packed while the clock runs */
typedef struct {
    form f;
    int64_t m, n, k;
} gemm_case;
static const gemm_case cases[] = {
    { FORWARD, 768, 256, 768 },  { FORWARD, 2048, 256, 768 },  { FORWARD, 768, 256, 2048 },  { FORWARD, 32000, 256, 768 },
    { FORWARD, 768, 1024, 768 }, { FORWARD, 2048, 1024, 768 }, { FORWARD, 768, 1024, 2048 }, { FORWARD, 32000, 1024, 768 },
    { DX, 768, 256, 768 },       { DX, 768, 256, 2048 },       { DX, 2048, 256, 768 },       { DX, 768, 256, 32000 },
    { DX, 768, 1024, 768 },      { DX, 768, 1024, 2048 },      { DX, 2048, 1024, 768 },      { DX, 768, 1024, 32000 },
    { DW, 768, 768, 256 },       { DW, 2048, 768, 256 },       { DW, 768, 2048, 256 },       { DW, 32000, 768, 256 },
    { DW, 768, 768, 1024 },      { DW, 2048, 768, 1024 },      { DW, 768, 2048, 1024 },      { DW, 32000, 768, 1024 },
};
static const char *const form_names[] = { "Wx", "dX", "dW" };
enum { FRESH_K = 512 /* an A used once is packed in passing up to here */ };

typedef struct {
    gemm_call call;
    void *a, *packed, *scratch;
    float *b, *c;
    gemm_view av;
    bool pack_each; /* A is packed at each run */
    size_t packed_bytes;
} product;

typedef struct {
    blas_sgemm *sgemm;
    const product *p;
} peer;

static an_status run(void *user, diag *d)
{
    product *p = user;
    if (p->pack_each) TRY(gemm_pack_a(p->call.kernel, p->call.pool, p->call.m, p->call.k, p->av, p->packed, d));
    return gemm_run(&p->call, d);
}

static an_status run_peer(void *user, diag *d)
{
    const peer *x = user;
    const product *p = x->p;
    const gemm_call *c = &p->call;
    (void)d;
    bool ta = p->av.col != 1, tb = c->b.col != 1;
    x->sgemm(BLAS_ROW_MAJOR, ta ? BLAS_TRANS : BLAS_PLAIN, tb ? BLAS_TRANS : BLAS_PLAIN, (int)c->m, (int)c->n,
             (int)c->k, 1, p->a, (int)(ta ? p->av.col : p->av.row), p->b, (int)(tb ? c->b.col : c->b.row), 0, p->c,
             (int)c->ldc);
    return AN_OK;
}

/* Some elements against double: rounding of operands, products and sums, in units of the terms' magnitudes. */
static an_status check(const product *p, const char *what, double tol, diag *d)
{
    const gemm_call *c = &p->call;
    for (int s = 0; s < 64; s++) {
        int64_t i = s * 7919 % c->m, j = s * 104729 % c->n;
        double want = 0, mag = 0;
        for (int64_t k = 0; k < c->k; k++) {
            double t =
                dtype_load(p->av.type, p->a, i * p->av.row + k * p->av.col) * (double)p->b[k * c->b.row + j * c->b.col];
            want += t, mag += fabs(t);
        }
        double got = (double)p->c[i * c->ldc + j];
        if (!(fabs(got - want) <= tol * mag))
            return diag_fail(d, AN_MISMATCH, NOWHERE, "bench %s: element (%lld, %lld) is %.9g, wanted %.9g", what,
                             (long long)i, (long long)j, got, want);
    }
    return AN_OK;
}

static double tolerance(const gemm_kernel *g, int64_t k)
{
    return gemm_math_of(g) == GEMM_I8 || gemm_math_of(g) == GEMM_BF16 ? 0x1p-7 : 2e-6 * sqrt((double)k);
}

static void *take(size_t n) { return big_alloc(64, n); }

static void product_free(product *p) { free(p->packed), free(p->scratch), free(p->a), free(p->b), free(p->c); }

/* Is A packed at each run? */
static bool packs_each(gemm_case s) { return s.f == DW && s.k > FRESH_K; }

static an_status product_make(bench *b, const gemm_kernel *g, gemm_case s, product *p)
{
    if (packs_each(s)) g = gemm_once(g, s.m, s.n, s.k);
    const gemm_math math = gemm_math_of(g);
    const int64_t m = s.m, n = s.n, k = s.k;
    const form f = s.f;
    size_t ns;
    rng r = { 1 };
    *p = (product){ .pack_each = false };
    if (!gemm_pack_a_bytes(g, m, k, &p->packed_bytes) || !gemm_scratch_bytes(g, m, n, k, pool_threads(b->pool), &ns))
        return diag_nomem(b->d);
    p->packed = take(p->packed_bytes), p->scratch = take(ns), p->a = take((size_t)(m * k) * 4),
    p->b = take((size_t)(k * n) * 4), p->c = take((size_t)(m * n) * 4);
    if (!p->packed || !p->scratch || !p->a || !p->b || !p->c) return diag_nomem(b->d);
    dtype at = math == GEMM_I8 ? DT_I8 : DT_F32;
    float noise[4093]; /* drawing each number would take longer than the bench */
    for (size_t x = 0; x < COUNT(noise); x++) noise[x] = (float)f16_to_f64(f16_from_f64(rng_range(&r, -1, 1)));
    for (int64_t x = 0; x < m * k; x++)
        if (at == DT_I8) ((int8_t *)p->a)[x] = (int8_t)(127 * noise[x % 4093]);
        else ((float *)p->a)[x] = noise[x % 4093];
    for (int64_t x = 0; x < k * n; x++) p->b[x] = noise[x * 7 % 4093];
    p->av = (gemm_view){ .at = p->a, .type = at, .row = f == DX ? 1 : k, .col = f == DX ? m : 1 };
    gemm_view bv = { .at = p->b, .type = DT_F32, .row = f == DW ? 1 : n, .col = f == DW ? k : 1 };
    p->pack_each = packs_each(s);
    const bool fresh = f == DW && !p->pack_each;
    p->call = (gemm_call){ .kernel = g, .pool = b->pool, .m = m, .n = n, .k = k, .a = fresh ? NULL : p->packed,
                           .a_view = p->av, .b = bv, .c = p->c, .c_type = DT_F32, .ldc = n, .scratch = p->scratch,
                           .scratch_bytes = ns };
    return gemm_pack_a(g, b->pool, m, k, p->av, p->packed, b->d);
}

/* The kernel in L1, and reading as many bytes as the product must move. */
typedef struct {
    peak_meter *kernel, *bytes;
    double per_byte; /* operations */
} gemm_bounds;

static double near_rate(void *user) { return peak_rate(((gemm_bounds *)user)->kernel); }

static double roof_rate(void *user)
{
    gemm_bounds *x = user;
    double roof = x->per_byte * peak_rate(x->bytes), near = peak_rate(x->kernel);
    return MIN(roof, near);
}

static an_status one(bench *b, const gemm_kernel *g, const char *by, size_t i)
{
    const gemm_math math = gemm_math_of(g);
    product p;
    timing alone, roofed, t[1 + BLAS_MOST];
    bench_fn *fn[1 + BLAS_MOST] = { run };
    void *user[1 + BLAS_MOST] = { &p };
    peer peers[BLAS_MOST];
    const char *names[1 + BLAS_MOST] = { NULL };
    int n = 1, threads = pool_threads(b->pool);
    char what[64], other[80];
    snprintf(what, sizeof what, "%s %s %lldx%lldx%lld%s%s", gemm_math_name(math), form_names[cases[i].f],
             (long long)cases[i].m, (long long)cases[i].n, (long long)cases[i].k, *by ? ", " : "", by);
    an_status st = product_make(b, g, cases[i], &p);
    if (!st) st = run(&p, b->d);
    if (!st) st = check(&p, what, tolerance(g, cases[i].k), b->d);
    for (size_t l = 0; math == GEMM_F32 && l < BLAS_MOST; l++) {
        peers[l] = (peer){ .sgemm = bench_blas(l, threads, b->isa, &names[n]), .p = &p };
        if (peers[l].sgemm) fn[n] = run_peer, user[n++] = &peers[l];
    }
    double ops = 2.0 * (double)cases[i].m * (double)cases[i].n * (double)cases[i].k;
    double bytes =
        (double)p.packed_bytes + 4.0 * (double)(cases[i].k * cases[i].n) + 8.0 * (double)(cases[i].m * cases[i].n);
    gemm_bounds at = { .kernel = peak_gemm(g, b->pool, threads),
                       .bytes = peak_read(b->pool, threads, (size_t)bytes),
                       .per_byte = ops / bytes };
    if (!st && (!at.kernel || !at.bytes)) st = diag_nomem(b->d);
    pool_enter(b->pool);
    if (!st) st = bench_beside(b, run, &p, (ruler){ near_rate, &at }, &alone);
    bool is_roofed = !st && at.per_byte * peak_rate(at.bytes) < alone.limit;
    if (is_roofed) st = bench_beside(b, run, &p, (ruler){ roof_rate, &at }, &roofed);
    /* apart: their threads go on spinning after a call, which slows a bound */
    if (!st && n > 1) st = bench_race(b, n, fn, user, NULL, t);
    pool_leave(b->pool);
    const char *unit = math == GEMM_I8 ? "Gop/s" : "GFLOP/s";
    if (!st) {
        bench_row(b, "gemm", what, gemm_name(p.call.kernel), alone, ops, unit, alone.limit, gemm_name(g));
        snprintf(other, sizeof other, "%s, memory", what);
        if (is_roofed)
            bench_row(b, "gemm", other, gemm_name(p.call.kernel), roofed, ops, unit, roofed.limit,
                      "its bytes at the rate they can be read");
        for (int l = 1; l < n; l++) {
            snprintf(other, sizeof other, "%s, %s", what, names[l]);
            t[l].could = ops * 1e-9 * t[l].longer;
            bench_row(b, "gemm", other, names[l], t[l], ops, unit, ops / t[0].least * 1e-9, "ours in turns with it");
        }
    }
    peak_free(at.kernel);
    peak_free(at.bytes);
    product_free(&p);
    return st;
}

/* B once packed is there at every later run, all of it at once. */
static an_status packed_already(bench *b, const gemm_kernel *g)
{
    static const gemm_case s = { FORWARD, 2048, 512, 512 };
    const gemm_math math = gemm_math_of(g);
    product p;
    timing t;
    char what[64];
    snprintf(what, sizeof what, "%s %lldx%lldx%lld, packed already", gemm_math_name(math), (long long)s.m,
             (long long)s.n, (long long)s.k);
    gemm_bounds at = { .kernel = peak_gemm(g, b->pool, pool_threads(b->pool)) };
    an_status st = product_make(b, g, s, &p);
    if (!st && !at.kernel) st = diag_nomem(b->d);
    pool_enter(b->pool);
    if (!st) st = run(&p, b->d);
    p.call.same_b = true;
    if (!st) st = bench_beside(b, run, &p, (ruler){ near_rate, &at }, &t);
    if (!st) st = check(&p, what, tolerance(g, s.k), b->d);
    pool_leave(b->pool);
    if (!st)
        bench_row(b, "gemm", what, gemm_name(g), t, 2.0 * (double)s.m * (double)s.n * (double)s.k,
                  math == GEMM_I8 ? "Gop/s" : "GFLOP/s", t.limit, gemm_name(g));
    peak_free(at.kernel);
    product_free(&p);
    return st;
}

#if defined(__x86_64__)
enum { TILES = ISA_AMX };
#else
enum { TILES = ISA_NONE };
#endif

/* Where a machine has tiles, which others of its kind have not, the vector kernel they would use is shown as well,
 * at 256 columns. */
static const struct {
    gemm_math math;
    bool vectors; /* no tiles */
} maths[] = { { GEMM_F16, false }, { GEMM_F32, false }, { GEMM_BF16, false },
              { GEMM_I8, false },  { GEMM_BF16, true }, { GEMM_I8, true } };

an_status bench_gemm(bench *b)
{
    enum { COLUMNS = 256 };
    for (size_t i = 0; i < COUNT(maths); i++) {
        const gemm_kernel *best = gemm_pick(maths[i].math, b->isa),
                          *g = maths[i].vectors ? gemm_pick(maths[i].math, b->isa & ~(uint32_t)TILES) : best;
        if (maths[i].vectors && g == best) continue;                      /* it has rows already */
        const char *by = g == best ? "" : strrchr(gemm_name(g), '_') + 1; /* math_tile_isa */
        if (g == best) TRY(packed_already(b, g));
        for (size_t k = 0; k < COUNT(cases); k++)
            if (g == best || (cases[k].f == DW ? cases[k].k : cases[k].n) == COLUMNS) TRY(one(b, g, by, k));
    }
    return AN_OK;
}

/* ---- few columns ---- */

enum { VEC_M = 11008, VEC_K = 4096, VEC_BLOCK = 32 };
static const struct {
    const char *name;
    gemv_form form; /* GEMV_FORMS: a packed product */
    gemm_math math;
    double bytes; /* per weight */
    int64_t block;
} vec_forms[] = {
    { "fp32", GEMV_FORMS, GEMM_F32, 4, 0 }, { "fp16", GEMV_FORMS, GEMM_F16, 2, 0 },        { "bf16", GEMV_BF16, GEMM_F32, 2, 0 },
    { "int8", GEMV_I8, GEMM_F32, 1, 0 },    { "4-bit palette", GEMV_NIBBLE, GEMM_F32, 0.5, 0 }, { "int4 blocks of 32", GEMV_NIBBLE, GEMM_F32, 0.5 + 2.0 / VEC_BLOCK, VEC_BLOCK },
};

typedef struct {
    gemv_weight w;
    gemv_call vec;
    gemm_call mat;
    bool packed;
} few;

static an_status run_few(void *user, diag *d)
{
    few *f = user;
    return f->packed ? gemm_run(&f->mat, d) : gemv_run(&f->vec, d);
}

static an_status one_few(bench *b, size_t i, int64_t n, void *weight, void *scale, float *rows, float *x, float *y)
{
    few f = { .packed = vec_forms[i].form == GEMV_FORMS };
    const gemm_kernel *g = gemm_pick(vec_forms[i].math, b->isa);
    const gemv_kernel *v = gemv_pick(b->isa);
    static const float palette[16] = { -8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7 },
                       numbers[16] = { 0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1 };
    size_t ns, nv, np;
    if (!gemm_scratch_bytes(g, VEC_M, n, VEC_K, pool_threads(b->pool), &ns) || !gemv_scratch_bytes(v, n, VEC_K, &nv))
        return diag_nomem(b->d);
    void *scratch = take(MAX(ns, nv));
    if (!scratch) return diag_nomem(b->d);
    gemm_view xv = { .at = x, .type = vec_forms[i].math == GEMM_F16 ? DT_F16 : DT_F32, .row = n, .col = 1 };
    double bytes = vec_forms[i].bytes * VEC_M * VEC_K;
    f.w = (gemv_weight){ .form = vec_forms[i].form, .m = VEC_M, .k = VEC_K, .w = weight,
                         .row_bytes = (int64_t)(VEC_K * (vec_forms[i].block ? 0.5 : vec_forms[i].bytes)),
                         .row_scale = rows, .table = vec_forms[i].block ? numbers : palette, .table_rows = VEC_M,
                         .block = vec_forms[i].block, .scale_type = DT_F16, .scale = scale };
    void *panels = NULL; /* as a weight that is loaded has them */
    if (gemv_panel_bytes(v, &f.w, &np)) {
        if (!(f.w.panels = panels = take(np))) return free(scratch), diag_nomem(b->d);
        gemv_panel_fill(b->pool, &f.w, panels);
    }
    f.vec = (gemv_call){ .kernel = v, .pool = b->pool, .part = { { &f.w, y } }, .parts = 1, .n = n, .x = xv, .ldy = n,
                         .scratch = scratch, .scratch_bytes = MAX(ns, nv) };
    f.mat = (gemm_call){ .kernel = g, .pool = b->pool, .m = VEC_M, .n = n, .k = VEC_K, .a = weight, .b = xv, .c = y,
                         .c_type = DT_F32, .ldc = n, .scratch = scratch, .scratch_bytes = MAX(ns, nv) };
    char what[64];
    timing t;
    snprintf(what, sizeof what, "%s %dx%lldx%d", vec_forms[i].name, VEC_M, (long long)n, VEC_K);
    peak_meter *bytes_read = peak_read(b->pool, pool_threads(b->pool), (size_t)bytes);
    an_status st = bytes_read ? AN_OK : diag_nomem(b->d);
    pool_enter(b->pool);
    if (!st) st = bench_beside(b, run_few, &f, (ruler){ bound_peak, bytes_read }, &t);
    pool_leave(b->pool);
    if (!st)
        bench_row(b, "gemv", what, f.packed ? gemm_name(g) : gemv_name(v), t, bytes, "GB/s", t.limit,
                  "reading as many bytes");
    peak_free(bytes_read);
    free(panels), free(scratch);
    return st;
}

an_status bench_gemv(bench *b)
{
    static const int64_t columns[] = { 1, 4, 8 };
    size_t most = 0, na;
    for (size_t i = 0; i < COUNT(vec_forms); i++)
        if (vec_forms[i].form == GEMV_FORMS &&
            gemm_pack_a_bytes(gemm_pick(vec_forms[i].math, b->isa), VEC_M, VEC_K, &na))
            most = MAX(most, na);
    void *weight = take(most), *scale = take((size_t)VEC_M * VEC_K / VEC_BLOCK * 2);
    float *rows = take(VEC_M * sizeof(float)), *x = take((size_t)VEC_K * GEMV_COLUMNS * sizeof(float)),
          *y = take((size_t)VEC_M * GEMV_COLUMNS * sizeof(float));
    an_status st = weight && scale && rows && x && y ? AN_OK : diag_nomem(b->d);
    if (!st)
        memset(weight, 0, most), memset(scale, 0, (size_t)VEC_M * VEC_K / VEC_BLOCK * 2),
            memset(rows, 0, VEC_M * sizeof(float)), memset(x, 0, (size_t)VEC_K * GEMV_COLUMNS * sizeof(float));
    for (size_t i = 0; i < COUNT(vec_forms) && !st; i++)
        for (size_t k = 0; k < COUNT(columns) && !st; k++) st = one_few(b, i, columns[k], weight, scale, rows, x, y);
    free(weight), free(scale), free(rows), free(x), free(y);
    return st;
}
