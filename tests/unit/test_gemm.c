/* test_gemm.c: every row of gemm.def this CPU can run, against sums in double precision: odd sizes, all layouts and types,
 * every epilogue; the same bits for any thread count and whatever else is in the matrix.
 *
 * Bound on an element of C, with s = sum |a b| of the operands as packed (rounded to the row's type): fp32 sums of k terms in
 * any order differ from the exact one by at most 2 (k + 2) 2^-24 s (the 2: vdpbf16ps and AMX round products as well; they
 * also drop denormals, 1e-37 in all). int8 sums are exact, three fp32 roundings follow. The epilogue adds 2^-22 of its
 * terms, an activation at most 1.13 times the error before it plus 8 ulp, an fp16 result half an fp16 ulp. */
#include <float.h>
#include <math.h>

#include "t.h"

#include "kernel/kernel.h"

enum { GUARD = 16 };

typedef struct {
    dtype type;
    int64_t row, col;
    size_t n; /* elements allocated */
    void *at;
} matrix;

static void *must(void *p)
{
    assert_non_null(p);
    return p;
}

static void *aligned(size_t n) { return must(aligned_alloc(64, ROUND_UP(n, 64))); }

/* layout 0: row-major, 1: column-major, 2: both strides larger than one. Exact allocation: overruns are seen by ASan. */
static matrix matrix_make(rng *r, dtype t, int64_t rows, int64_t cols, int layout)
{
    matrix m = { .type = t };
    int64_t gap = (int64_t)rng_below(r, 3);
    m.row = layout == 0 ? cols + gap : layout == 1 ? 1 : 2 * cols + 3;
    m.col = layout == 0 ? 1 : layout == 1 ? rows + gap : 2;
    m.n = (size_t)((rows - 1) * m.row + (cols - 1) * m.col + 1);
    size_t bytes;
    assert_true(dtype_bytes(t, (int64_t)m.n, &bytes));
    m.at = must(malloc(bytes));
    for (size_t i = 0; i < m.n; i++)
        dtype_store(t, m.at, (int64_t)i, t == DT_I8 ? (double)rng_below(r, 256) - 128 : rng_normal(r));
    return m;
}

static double at(const matrix *m, int64_t i, int64_t j) { return dtype_load(m->type, m->at, i * m->row + j * m->col); }

static double act_exact(gemm_act a, double x)
{
    switch (a) {
    case ACT_RELU: return x > 0 || x != x ? x : 0;
    case ACT_SILU: return x < -800 ? 0 : x / (1 + exp(-x));
    case ACT_SIGMOID: return 1 / (1 + exp(-x));
    case ACT_TANH: return tanh(x);
    case ACT_GELU_TANH: {
        double t = 2 * 0.79788456080286535588 * (x + 0.044715 * x * x * x);
        return t < -700 ? 0 : x / (1 + exp(-t));
    }
    default: return x;
    }
}

typedef struct {
    const gemm_kernel *g;
    int64_t m, n, k;
    dtype at, bt, ct;
    int al, bl; /* layouts */
    bool scale, bias, gate, residual, accumulate;
    gemm_act act;
    bool fresh; /* A is packed inside the call */
} problem;

static dtype math_type(gemm_math m) { return m == GEMM_F16 ? DT_F16 : m == GEMM_BF16 ? DT_BF16 : DT_F32; }

/* The operands as the kernel sees them: A as m x k, B transposed to n x k, and for int8 the scale of each column of B. */
typedef struct {
    double *a, *b, *b_scale;
} exact;

static exact exact_make(const problem *p, const matrix *a, const matrix *b)
{
    exact e = { must(malloc(sizeof(double) * (size_t)(p->m * p->k))), must(malloc(sizeof(double) * (size_t)(p->n * p->k))),
                must(malloc(sizeof(double) * (size_t)p->n)) };
    dtype t = math_type(gemm_math_of(p->g));
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t k = 0; k < p->k; k++) e.a[i * p->k + k] = dtype_round(t, at(a, i, k));
    for (int64_t j = 0; j < p->n; j++) {
        float most = 0;
        for (int64_t k = 0; k < p->k; k++) most = fmaxf(most, (float)fabs(at(b, k, j)));
        e.b_scale[j] = gemm_math_of(p->g) == GEMM_I8 ? (double)(most / 127.0f) : 1;
        for (int64_t k = 0; k < p->k; k++) {
            double x = at(b, k, j);
            e.b[j * p->k + k] = gemm_math_of(p->g) == GEMM_I8 ? nearbyint((double)((float)x * (127.0f / most))) : dtype_round(t, x);
        }
    }
    return e;
}

/* The exact product and the sum of magnitudes of one element; an int8 sum is exact, so its magnitude is its own. */
static void exact_dot(const problem *p, const exact *e, int64_t i, int64_t j, double *sum, double *mag)
{
    const double *a = e->a + i * p->k, *b = e->b + j * p->k;
    double s = 0, g = 0;
    for (int64_t k = 0; k < p->k; k++) {
        double x = a[k] * b[k];
        s += x;
        g += fabs(x);
    }
    *sum = s * e->b_scale[j];
    *mag = gemm_math_of(p->g) == GEMM_I8 ? fabs(*sum) : g;
}

static void describe(char *out, size_t n, const problem *p)
{
    snprintf(out, n, "%s m=%lld n=%lld k=%lld A %s/%d B %s/%d C %s scale %d bias %d gate %d residual %d accumulate %d act %d fresh %d", gemm_name(p->g),
             (long long)p->m, (long long)p->n, (long long)p->k, dtype_name(p->at), p->al, dtype_name(p->bt), p->bl,
             dtype_name(p->ct), p->scale, p->bias, p->gate, p->residual, p->accumulate, (int)p->act, p->fresh);
}

static void *pack(const gemm_kernel *g, pool *pl, int64_t m, int64_t k, const matrix *a)
{
    size_t n;
    diag d = { 0 };
    assert_true(gemm_pack_a_bytes(g, m, k, &n));
    void *out = aligned(n);
    memset(out, 0xff, ROUND_UP(n, 64)); /* padding must be written, not inherited */
    assert_ok(gemm_pack_a(g, pl, m, k, (gemm_view){ a->at, a->type, a->row, a->col }, out, &d), d);
    return out;
}

static void run(const gemm_call *call, size_t skew)
{
    gemm_call c = *call;
    diag d = { 0 };
    assert_true(gemm_scratch_bytes(c.kernel, c.m, c.n, c.k, pool_threads(c.pool), &c.scratch_bytes));
    char *s = must(malloc(c.scratch_bytes + skew));
    memset(s, 0xff, c.scratch_bytes + skew);
    c.scratch = s + skew;
    assert_ok(gemm_run(&c, &d), d);
    free(s);
}

static void check_problem(const problem *p, rng *r, pool *pl)
{
    char what[240];
    describe(what, sizeof what, p);
    matrix a = matrix_make(r, p->at, p->m, p->k, p->al), b = matrix_make(r, p->bt, p->k, p->n, p->bl);
    int64_t ldc = p->n + (int64_t)rng_below(r, 4), ldr = p->n + (int64_t)rng_below(r, 4), ldg = p->n + (int64_t)rng_below(r, 4);
    size_t cb = p->ct == DT_F32 ? 4 : 2, cn = (size_t)(p->m * ldc);
    char *cbuf = must(malloc(cn * cb + 2 * GUARD)), *c = cbuf + GUARD;
    memset(cbuf, 0x5a, cn * cb + 2 * GUARD);
    double *old = must(malloc((cn + 1) * sizeof *old));
    for (size_t i = 0; i < cn; i++) {
        if (p->accumulate) dtype_store(p->ct, c, (int64_t)i, rng_normal(r));
        old[i] = dtype_load(p->ct, c, (int64_t)i);
    }
    char *res = must(malloc((size_t)(p->m * ldr) * cb));
    for (int64_t i = 0; i < p->m * ldr; i++) dtype_store(p->ct, res, i, rng_normal(r));
    char *gate = must(malloc((size_t)(p->m * ldg) * cb));
    for (int64_t i = 0; i < p->m * ldg; i++) dtype_store(p->ct, gate, i, rng_normal(r));
    float *scale = must(malloc(4 * (size_t)p->m)), *bias = must(malloc(4 * (size_t)p->m));
    for (int64_t i = 0; i < p->m; i++) {
        scale[i] = (float)rng_range(r, -0.2, 0.2);
        bias[i] = (float)rng_normal(r);
    }
    void *pa = pack(p->g, pl, p->m, p->k, &a);
    gemm_call call = {
        .kernel = p->g,
        .pool = pl,
        .m = p->m,
        .n = p->n,
        .k = p->k,
        .a = p->fresh ? NULL : pa,
        .a_view = { a.at, a.type, a.row, a.col },
        .b = { b.at, b.type, b.row, b.col },
        .c = c,
        .c_type = p->ct,
        .ldc = ldc,
        .epi = { .scale = p->scale ? scale : NULL, .bias = p->bias ? bias : NULL, .residual = p->residual ? res : NULL, .ld_residual = ldr,
                 .gate = p->gate ? gate : NULL, .ld_gate = ldg, .act = p->act, .accumulate = p->accumulate },
    };
    run(&call, rng_below(r, 2) * 4);
    exact e = exact_make(p, &a, &b);
    for (int i = 0; i < GUARD; i++)
        if (cbuf[i] != 0x5a || cbuf[GUARD + cn * cb + (size_t)i] != 0x5a) fail_msg("%s: wrote outside C", what);
    for (int64_t i = 0; i < p->m; i++) {
        for (int64_t j = p->n; j < ldc; j++)
            if (dtype_load(p->ct, c, i * ldc + j) != old[i * ldc + j]) fail_msg("%s: wrote past column n in row %lld", what, (long long)i);
        for (int64_t j = 0; j < p->n; j++) {
            double sum, mag;
            exact_dot(p, &e, i, j, &sum, &mag);
            double s = p->scale ? (double)scale[i] : 1, o = p->bias ? (double)bias[i] : 0;
            double err = fabs(s) * mag * 2 * (double)(p->k + 2) * 0x1p-24 + 1e-37 * (double)p->k;
            if (gemm_math_of(p->g) == GEMM_I8) err = fabs(s) * mag * 0x1p-21;
            err += (fabs(s * mag) + fabs(o)) * 0x1p-22;
            double v = act_exact(p->act, s * sum + o);
            if (p->act != ACT_NONE) err = 1.13 * err + fabs(v) * 0x1p-20 + 4e-7;
            if (p->act > ACT_RELU && p->act != ACT_TANH && p->ct != DT_F32 && !p->residual && !p->accumulate) err += fabs(v) * 7e-5;
            if (p->gate) {
                double by = act_exact(ACT_SILU, dtype_load(p->ct, gate, i * ldg + j));
                v *= by;
                err = err * fabs(by) + fabs(v) * (p->ct != DT_F32 && !p->residual && !p->accumulate ? 7.1e-5 : 0x1p-19);
            }
            double add = p->residual ? dtype_load(p->ct, res, i * ldr + j) : 0, was = p->accumulate ? old[i * ldc + j] : 0;
            err += (fabs(v) + fabs(add) + fabs(was)) * 0x1p-22;
            v += add + was;
            if (p->ct == DT_F16) {
                if (fabs(v) > 65000) continue;
                err += fabs(v) * 0x1p-11 + 0x1p-24;
            }
            if (p->ct == DT_BF16) err += fabs(v) * 0x1p-8 + 0x1p-126;
            double got = dtype_load(p->ct, c, i * ldc + j);
            if (!(fabs(got - v) <= err))
                fail_msg("%s: C[%lld,%lld] is %.9g, exact %.9g, bound %.3g", what, (long long)i, (long long)j, got, v, err);
        }
    }
    free(e.a);
    free(e.b);
    free(e.b_scale);
    free(pa);
    free(scale);
    free(bias);
    free(res);
    free(gate);
    free(old);
    free(cbuf);
    free(a.at);
    free(b.at);
}

static uint32_t have(void)
{
    uint32_t isa;
    diag d = { 0 };
    assert_ok(isa_have(&isa, &d), d);
    return isa;
}

static void each_row_against_double(void **state)
{
    (void)state;
    static const dtype a_types[] = { DT_F32, DT_F16, DT_BF16, DT_I8 }, b_types[] = { DT_F32, DT_F16, DT_BF16 }, c_types[] = { DT_F32, DT_F16, DT_BF16 };
    static const int64_t edges[] = { 1, 2, 3, 5, 6, 7, 13, 14, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65 };
    rng r = { test_seed("gemm rows") };
    uint32_t isa = have();
    diag d = { 0 };
    pool *pl;
    assert_ok(pool_make(&pl, 2, &d), d);
    for (size_t i = 0; gemm_row(i); i++) {
        const gemm_kernel *g = gemm_row(i);
        if (gemm_need(g) & ~isa) {
            print_message("  %s: this CPU (or AN_ISA) lacks it, skipped\n", gemm_name(g));
            continue;
        }
        bool i8 = gemm_math_of(g) == GEMM_I8;
        for (int n = 0; n < 216; n++) { /* every combination of the type, layout and epilogue columns comes up */
            problem p = {
                .g = g,
                .m = n % 5 ? 1 + (int64_t)rng_below(&r, 40) : edges[rng_below(&r, COUNT(edges))],
                .n = n % 5 ? 1 + (int64_t)rng_below(&r, 40) : edges[rng_below(&r, COUNT(edges))],
                .k = n % 7 ? 1 + (int64_t)rng_below(&r, 40) : edges[rng_below(&r, COUNT(edges))],
                .at = i8 ? DT_I8 : a_types[n % 4],
                .bt = b_types[n / 4 % 3],
                .ct = c_types[n / 12 % 3],
                .al = n % 3,
                .bl = n / 3 % 3,
                .scale = rng_below(&r, 2),
                .bias = rng_below(&r, 2),
                .gate = rng_below(&r, 3) == 0,
                .residual = rng_below(&r, 3) == 0,
                .accumulate = rng_below(&r, 3) == 0,
                .act = (gemm_act)(n % 2 ? rng_below(&r, ACT_COUNT) : ACT_NONE),
                .fresh = rng_below(&r, 3) == 0,
            };
            if (p.at == DT_I8 && !p.scale) p.scale = p.ct == DT_F16 || p.act;
            check_problem(&p, &r, n % 2 ? pl : NULL);
        }
        for (int n = 0; n < 3; n++) { /* several blocks of k, several tasks */
            problem p = { .g = g, .m = 45 + 19 * n, .n = 35 + 23 * n, .k = 600 + 431 * n, .at = i8 ? DT_I8 : DT_F32, .bt = DT_F32,
                          .ct = DT_F32, .al = n % 2, .bl = n % 3, .accumulate = n == 2, .fresh = n == 1 };
            check_problem(&p, &r, pl);
        }
        problem wide = { .g = g, .m = 3, .n = 5001, .k = 66, .at = i8 ? DT_I8 : DT_F32, .bt = DT_F32, .ct = DT_F32, .bias = true };
        check_problem(&wide, &r, pl); /* several stripes of B, the last one short */
        print_message("  %s: ok\n", gemm_name(g));
    }
    pool_free(pl);
}

/* k = 0 is a sum of nothing, not nothing to do. */
static void empty_shapes(void **state)
{
    (void)state;
    uint32_t isa = have();
    for (size_t i = 0; gemm_row(i); i++) {
        const gemm_kernel *g = gemm_row(i);
        if (gemm_need(g) & ~isa) continue;
        float bias[2] = { 1.5f, -2 }, c[6] = { 9, 9, 9, 9, 9, 9 }, b = 0;
        int8_t a = 0;
        size_t n;
        diag d = { 0 };
        assert_true(gemm_pack_a_bytes(g, 2, 0, &n));
        void *pa = aligned(n);
        assert_ok(gemm_pack_a(g, NULL, 2, 0, (gemm_view){ &a, DT_I8, 1, 1 }, pa, &d), d);
        gemm_call call = { .kernel = g, .m = 2, .n = 3, .a = pa, .b = { &b, DT_F32, 3, 1 }, .c = c, .c_type = DT_F32, .ldc = 3,
                           .epi = { .bias = bias } };
        run(&call, 0);
        for (int k = 0; k < 6; k++) assert_true(c[k] == bias[k / 3]);
        call.m = 0;
        run(&call, 0);
        free(pa);
    }
}

/* The same bits for every pool, for one column alone, and for one row alone; with an activation, and with scales only, which a tile may
 * apply to whole tiles itself. */
static void bits_do_not_depend_on_company(void **state)
{
    (void)state;
    rng r = { test_seed("gemm bits") };
    uint32_t isa = have();
    enum { M = 115, N = 83, K = 611 };
    static float c[4][M * N], col[M], row[N], scale[M];
    diag d = { 0 };
    pool *pools[4] = { NULL };
    for (int t = 1; t < 4; t++) assert_ok(pool_make(&pools[t], 2 * t - 1 + (t == 1), &d), d); /* 2, 3, 5 threads */
    for (int m = 0; m < M; m++) scale[m] = (float)rng_range(&r, -2, 2);
    for (size_t i = 0; gemm_row(i / 2); i++) {
        const gemm_kernel *g = gemm_row(i / 2);
        const gemm_epilogue epi = { .act = i % 2 ? ACT_NONE : ACT_SILU, .scale = i % 2 ? scale : NULL };
        if (gemm_need(g) & ~isa) continue;
        bool i8 = gemm_math_of(g) == GEMM_I8;
        matrix a = matrix_make(&r, i8 ? DT_I8 : DT_F32, M, K, 0), b = matrix_make(&r, DT_F32, K, N, 0);
        gemm_call call = { .kernel = g, .m = M, .n = N, .k = K, .b = { b.at, b.type, b.row, b.col }, .c_type = DT_F32, .ldc = N,
                           .epi = epi };
        for (int t = 0; t < 4; t++) {
            void *pa = pack(g, pools[t], M, K, &a);
            call.a = pa;
            call.pool = pools[t];
            call.c = c[t];
            run(&call, 0);
            if (memcmp(c[t], c[0], sizeof c[0])) fail_msg("%s: %d threads give other bits", gemm_name(g), pool_threads(pools[t]));
            if (t == 2) {
                gemm_call fresh = call;
                fresh.a = NULL;
                fresh.a_view = (gemm_view){ a.at, a.type, a.row, a.col };
                run(&fresh, 0);
                if (memcmp(c[t], c[0], sizeof c[0])) fail_msg("%s: packing inside the call gives other bits", gemm_name(g));
            }
            if (t == 3) {
                call.n = 1;
                call.ldc = 1;
                call.c = col;
                call.b.at = (const float *)b.at + 40 * b.col;
                run(&call, 0);
                for (int m = 0; m < M; m++)
                    if (memcmp(&col[m], &c[0][m * N + 40], 4)) fail_msg("%s: column 40 alone gives other bits", gemm_name(g));
            }
            free(pa);
        }
        matrix one = a;
        one.at = (char *)a.at + 33 * a.row * (i8 ? 1 : 4);
        void *pa = pack(g, NULL, 1, K, &one);
        gemm_call alone = { .kernel = g, .m = 1, .n = N, .k = K, .a = pa, .b = { b.at, b.type, b.row, b.col }, .c = row,
                            .c_type = DT_F32, .ldc = N, .epi = epi };
        if (epi.scale) alone.epi.scale += 33;
        run(&alone, 0);
        if (memcmp(row, &c[0][33 * N], sizeof row)) fail_msg("%s: row 33 alone gives other bits", gemm_name(g));
        free(pa);
        free(a.at);
        free(b.at);
    }
    for (int t = 1; t < 4; t++) pool_free(pools[t]);
}

/* Columns of a vector or less, by an A as it lies: the bits of the packed A, for every pool, also after a product that packed B. */
static void thin_columns(void **state)
{
    (void)state;
    rng r = { test_seed("gemm thin") };
    enum { MOST = 200 };
    static const struct {
        int64_t m, n, k;
    } shapes[] = { { 64, 10, 128 }, { 128, 10, 64 }, { 150, 16, 1 }, { 129, 7, 33 }, { 200, 1, 12 }, { 127, 3, 70 } };
    static float want[MOST * 16], got[MOST * 16];
    pool *three;
    diag d = { 0 };
    assert_ok(pool_make(&three, 3, &d), d);
    for (size_t i = 0; gemm_row(i); i++) {
        const gemm_kernel *g = gemm_row(i);
        if (gemm_need(g) & ~have() || gemm_math_of(g) != GEMM_F32) continue;
        assert_false(gemm_thin(g, 0) || gemm_thin(g, 17));
        for (size_t k = 0; k < COUNT(shapes); k++)
            for (int turned = 0; turned < 2; turned++) {
                const int64_t m = shapes[k].m, n = shapes[k].n, kk = shapes[k].k;
                if (gemm_by_parts(g, m, kk)) continue; /* whose sums are in parts */
                matrix a = matrix_make(&r, DT_F32, turned ? kk : m, turned ? m : kk, 0), b = matrix_make(&r, DT_F32, kk, n, 0);
                if (turned) {
                    int64_t row = a.row;
                    a.row = a.col, a.col = row;
                }
                void *pa = pack(g, NULL, m, kk, &a);
                gemm_call call = { .kernel = g, .m = m, .n = n, .k = kk, .a = pa, .b = { b.at, b.type, b.row, b.col }, .c = want, .c_type = DT_F32, .ldc = n };
                run(&call, 0);
                call.a = NULL, call.a_view = (gemm_view){ a.at, a.type, a.row, a.col }, call.c = got;
                for (int pooled = 0; pooled < 2; pooled++) {
                    call.pool = pooled ? three : NULL;
                    memset(got, 0, sizeof got);
                    run(&call, 0);
                    if (memcmp(got, want, (size_t)(m * n) * 4))
                        fail_msg("%s: %lld x %lld x %lld%s with %d threads gives other bits", gemm_name(g), (long long)m, (long long)n, (long long)kk, turned ? " turned" : "", pool_threads(call.pool));
                }
                size_t bytes;
                assert_true(gemm_scratch_bytes(g, m, n, kk, 1, &bytes));
                call.scratch = aligned(bytes), call.scratch_bytes = bytes, call.pool = NULL;
                assert_ok(gemm_run(&call, &d), d); /* packs nothing, so the next one packs what is said to be there */
                float two[MOST];
                for (int q = 0; q < MOST; q++) two[q] = 2;
                call.same_b = true, call.epi.scale = two;
                assert_ok(gemm_run(&call, &d), d);
                for (int64_t q = 0; q < m * n; q++)
                    if (got[q] != 2 * want[q]) fail_msg("%s: element %lld is %.9g, wanted twice %.9g", gemm_name(g), (long long)q, (double)got[q], (double)want[q]);
                free(call.scratch), free(pa), free(a.at), free(b.at);
            }
    }
    pool_free(three);
}

/* Few rows by a B whose rows are rows of memory: read where it lies, k in parts, or both; the same bits for every pool. */
static void few_rows(void **state)
{
    (void)state;
    static const struct {
        int64_t m, n, k;
        bool packed; /* A is */
        int a_as;    /* how A lies: 1 with its rows side by side */
    } cases[] = { { 20, 96, 80, false, 0 }, { 64, 96, 256, false, 0 }, { 64, 96, 784, false, 0 }, { 33, 70, 611, false, 0 }, { 1, 96, 1024, false, 0 }, { 50, 96, 422, true, 0 },
                  { 112, 192, 448, false, 0 }, { 113, 70, 4131, false, 1 }, { 300, 70, 1600, false, 1 }, { 150, 40, 200, false, 1 } };
    rng r = { test_seed("few rows") };
    uint32_t isa = have();
    diag d = { 0 };
    pool *pools[3] = { NULL };
    for (int t = 1; t < 3; t++) assert_ok(pool_make(&pools[t], 2 * t, &d), d);
    for (size_t i = 0; gemm_row(i); i++) {
        const gemm_kernel *g = gemm_row(i);
        if ((gemm_need(g) & ~isa) || gemm_math_of(g) == GEMM_I8) continue;
        for (size_t k = 0; k < COUNT(cases); k++) {
            const int64_t M = cases[k].m, N = cases[k].n, K = cases[k].k;
            problem p = { .g = g, .m = M, .n = N, .k = K, .at = DT_F32, .bt = DT_F32, .ct = DT_F32, .al = cases[k].a_as, .bias = k % 2, .fresh = !cases[k].packed, .act = k % 3 ? ACT_NONE : ACT_RELU };
            for (int t = 0; t < 3; t++) check_problem(&p, &r, pools[t]);
            matrix a = matrix_make(&r, DT_F32, M, K, cases[k].a_as), b = matrix_make(&r, DT_F32, K, N, 0);
            float *c = must(malloc(3 * sizeof *c * (size_t)(M * N)));
            gemm_call call = { .kernel = g, .m = M, .n = N, .k = K, .a_view = { a.at, a.type, a.row, a.col }, .b = { b.at, b.type, b.row, b.col }, .c_type = DT_F32, .ldc = N };
            for (int t = 0; t < 3; t++) {
                call.pool = pools[t];
                call.c = c + t * M * N;
                run(&call, 0);
                if (memcmp(call.c, c, sizeof *c * (size_t)(M * N))) fail_msg("%s %lldx%lldx%lld: %d threads give other bits", gemm_name(g), (long long)M, (long long)N, (long long)K, pool_threads(pools[t]));
            }
            free(c);
            free(a.at);
            free(b.at);
        }
    }
    for (int t = 1; t < 3; t++) pool_free(pools[t]);
}

/* int8 by a B whose columns lie one behind the other, packed while it is multiplied for the first time: the bits an A packed ahead gives, for every pool. */
static void first_pass(void **state)
{
    (void)state;
    static const struct {
        int64_t m, n, k;
    } cases[] = { { 500, 192, 256 }, { 115, 96, 100 }, { 700, 64, 67 }, { 40, 480, 128 }, { 1000, 1536, 64 }, { 300, 70, 256 } };
    rng r = { test_seed("first pass") };
    uint32_t isa = have();
    diag d = { 0 };
    pool *pools[4] = { NULL };
    for (int t = 1; t < 4; t++) assert_ok(pool_make(&pools[t], 1 + t, &d), d);
    for (size_t i = 0; gemm_row(i); i++) {
        const gemm_kernel *g = gemm_row(i);
        if ((gemm_need(g) & ~isa) || gemm_math_of(g) != GEMM_I8) continue;
        for (size_t k = 0; k < COUNT(cases); k++) {
            const int64_t M = cases[k].m, N = cases[k].n, K = cases[k].k;
            matrix a = matrix_make(&r, DT_I8, M, K, 0), b = matrix_make(&r, DT_F32, K, N, 1);
            float *c = must(malloc(2 * sizeof *c * (size_t)(M * N)));
            void *pa = pack(g, NULL, M, K, &a);
            gemm_call call = { .kernel = g, .m = M, .n = N, .k = K, .a = pa, .a_view = { a.at, a.type, a.row, a.col }, .b = { b.at, b.type, 1, K }, .c = c, .c_type = DT_F32, .ldc = N };
            run(&call, 0);
            call.a = NULL, call.c = c + M * N;
            for (int t = 0; t < 4; t++) {
                call.pool = pools[t];
                memset(call.c, 0xff, sizeof *c * (size_t)(M * N));
                run(&call, 4 * (size_t)(t % 2));
                if (memcmp(call.c, c, sizeof *c * (size_t)(M * N))) fail_msg("%s %lldx%lldx%lld: packed in passing by %d threads gives other bits", gemm_name(g), (long long)M, (long long)N, (long long)K, pool_threads(pools[t]));
            }
            free(pa);
            free(c);
            free(a.at);
            free(b.at);
        }
    }
    for (int t = 1; t < 4; t++) pool_free(pools[t]);
}

/* Few columns of one or several packed A in one region, any number of panels left over: the bits each has alone among many columns. */
static void few_columns(void **state)
{
    (void)state;
    enum { M = 331, WIDE = 40, K = 130 };
    static const int64_t columns[] = { 1, 2, 3, 5, 8 }, depths[] = { K, 37, 1 };
    static float wide[M * WIDE], got[GEMM_MORE + 1][M * 8];
    rng r = { test_seed("few columns") };
    uint32_t isa = have();
    diag d = { 0 };
    pool *pl;
    assert_ok(pool_make(&pl, 2, &d), d);
    for (size_t i = 0; gemm_row(i); i++) {
        const gemm_kernel *g = gemm_row(i);
        if ((gemm_need(g) & ~isa) || !gemm_few(g, 1)) continue;
        matrix a = matrix_make(&r, DT_F32, M, K, 0), b = matrix_make(&r, DT_F32, K, WIDE, 0);
        for (size_t k = 0; k < COUNT(depths); k++) {
            gemm_call all = { .kernel = g, .pool = pl, .m = M, .n = WIDE, .k = depths[k], .b = { b.at, b.type, b.row, b.col }, .c = wide, .c_type = DT_F32, .ldc = WIDE };
            void *pa = pack(g, pl, M, depths[k], &a);
            all.a = pa;
            run(&all, 0);
            for (size_t c = 0; c < COUNT(columns); c++)
                for (int64_t m = 1; m <= M; m += m < 20 ? 1 : 1 + (int64_t)rng_below(&r, 9)) {
                    const int64_t n = columns[c], rows[GEMM_MORE + 1] = { m, m % 5 ? M - m : 0, m / 2, MIN(2 * m, M) };
                    gemm_call few = all;
                    few.pool = m % 2 ? pl : NULL, few.m = m, few.n = n, few.c = got[0], few.ldc = n, few.n_more = (int)(m % (GEMM_MORE + 1));
                    for (int p = 0; p < few.n_more; p++) few.more[p] = (gemm_more){ pa, rows[p + 1], got[p + 1] };
                    memset(got, 0xff, sizeof got);
                    run(&few, 0);
                    for (int p = 0; p <= few.n_more; p++) {
                        for (int64_t y = 0; y < rows[p] * n; y++)
                            if (memcmp(&got[p][y], &wide[y / n * WIDE + y % n], 4))
                                fail_msg("%s: %lld columns, k %lld: operand %d, element %lld of %lld rows is %g, among many %g", gemm_name(g), (long long)n, (long long)depths[k], p,
                                         (long long)y, (long long)rows[p], (double)got[p][y], (double)wide[y / n * WIDE + y % n]);
                        for (int64_t y = rows[p] * n; y < M * 8; y++) assert_true(isnan(got[p][y])); /* nothing past the end */
                    }
                }
            gemm_call bad = all;
            size_t bytes;
            assert_true(gemm_scratch_bytes(g, M, WIDE, K, 2, &bytes));
            bad.scratch = must(malloc(bytes)), bad.scratch_bytes = bytes, bad.n_more = 1, bad.more[0] = (gemm_more){ pa, M, got[0] };
            assert_int_equal(gemm_run(&bad, &d), AN_BUG); /* many columns */
            d = (diag){ 0 }, bad.n = 1, bad.n_more = GEMM_MORE + 1;
            assert_int_equal(gemm_run(&bad, &d), AN_BUG);
            d = (diag){ 0 };
            free(bad.scratch);
            free(pa);
        }
        free(a.at);
        free(b.at);
    }
    pool_free(pl);
}

static double ulp(double x)
{
    int e;
    frexp(x, &e);
    return ldexp(1, MAX(e - 24, -149));
}

/* One by one products: C is the activation of B. Accuracy as kernel.h states it. */
static void activations(void **state)
{
    (void)state;
    enum { N = 4096 };
    static float x[N], y[N];
    rng r = { test_seed("activations") };
    uint32_t isa = have();
    for (int i = 0; i < N; i++) x[i] = (float)(i < 3000 ? rng_range(&r, -12, 12) : i < 3500 ? rng_range(&r, -85, 85) : rng_range(&r, -1e-3, 1e-3));
    x[0] = 0, x[1] = -0.0f, x[2] = INFINITY, x[3] = -INFINITY, x[4] = NAN, x[5] = 1e30f, x[6] = -1e30f, x[7] = 88.5f, x[8] = -88.5f;
    for (size_t i = 0; gemm_row(i); i++) {
        const gemm_kernel *g = gemm_row(i);
        if (gemm_math_of(g) != GEMM_F32 || (gemm_need(g) & ~isa)) continue;
        float one = 1;
        matrix a = { DT_F32, 1, 1, 1, &one };
        void *pa = pack(g, NULL, 1, 1, &a);
        for (gemm_act act = ACT_RELU; act < ACT_COUNT; act++) {
            gemm_call call = { .kernel = g, .m = 1, .n = N, .k = 1, .a = pa, .b = { x, DT_F32, N, 1 }, .c = y, .c_type = DT_F32,
                               .ldc = N, .epi = { .act = act } };
            run(&call, 0);
            double worst = 0;
            for (int j = 0; j < N; j++) {
                double want = act_exact(act, (double)x[j]), got = (double)y[j];
                if (x[j] != x[j]) {
                    assert_true(got != got);
                    continue;
                }
                if (isinf(want)) {
                    assert_true(got == want);
                    continue;
                }
                double allowed = (act == ACT_SILU ? 5 : act == ACT_GELU_TANH ? 6 : 4) * ulp(want) + 4e-37;
                if (act == ACT_GELU_TANH && x[j] < -1) allowed = fabs((double)x[j]) * 4e-7;
                if (act == ACT_SILU && x[j] < -80) allowed = 1e-35; /* where e^-x nears the end of the range */
                worst = fmax(worst, fabs(got - want) / ulp(want));
                if (!(fabs(got - want) <= allowed))
                    fail_msg("%s act %d: f(%.9g) = %.9g, exact %.9g", gemm_name(g), (int)act, (double)x[j], got, want);
            }
        }
        free(pa);
    }
}

/* A NaN in an int8 product's column makes that column NaN and no other; a column of zeros is zeros. */
static void int8_keeps_nan(void **state)
{
    (void)state;
    uint32_t isa = have();
    for (size_t i = 0; gemm_row(i); i++) {
        const gemm_kernel *g = gemm_row(i);
        if (gemm_math_of(g) != GEMM_I8 || (gemm_need(g) & ~isa)) continue;
        int8_t w[5] = { 1, -128, 127, 5, 9 };
        float b[5][4] = { { 1, 0, 2, INFINITY }, { 2, 0, NAN, 1 }, { 3, 0, 1, 1 }, { -4, 0, 1, 1 }, { 0, 0, 1, 1 } }, c[4];
        matrix a = { DT_I8, 5, 1, 5, w };
        void *pa = pack(g, NULL, 1, 5, &a);
        gemm_call call = { .kernel = g, .m = 1, .n = 4, .k = 5, .a = pa, .b = { b, DT_F32, 4, 1 }, .c = c, .c_type = DT_F32, .ldc = 4 };
        run(&call, 0);
        assert_true(fabs(c[0] - (1 - 256 + 381 - 20)) < 9);
        assert_true(c[1] == 0);
        assert_true(c[2] != c[2]);
        assert_true(c[3] != c[3]);
        free(pa);
    }
}

/* Columns side by side are looked at some rows at a time, several panels together; runs of k panel by panel. The same scales, wherever the
 * largest of a column is, or what is no number. */
static void int8_side_by_side(void **state)
{
    (void)state;
    enum { M = 40, K = 333, N = 301 };
    rng r = { test_seed("gemm int8 side by side") };
    pool *two = NULL;
    diag d = { 0 };
    assert_ok(pool_make(&two, 2, &d), d);
    float *b = must(malloc(sizeof(float) * K * N)), *turned = must(malloc(sizeof(float) * K * N)), *c = must(malloc(sizeof(float) * 2 * M * N));
    for (int i = 0; i < K * N; i++) b[i] = (float)rng_normal(&r);
    for (int n = 0; n < N; n++) b[(n * 7 % K) * N + n] = n % 10 == 3 ? NAN : n % 10 == 6 ? -INFINITY : n % 10 == 8 ? 0 : n % 2 ? 30 : -40;
    for (int n = 0; n < N; n++)
        for (int k = 0; k < K; k++) turned[n * K + k] = n % 10 == 8 ? b[k * N + n] *= 1e-36f : b[k * N + n];
    for (size_t i = 0; gemm_row(i); i++) {
        const gemm_kernel *g = gemm_row(i);
        if (gemm_math_of(g) != GEMM_I8 || (gemm_need(g) & ~have())) continue;
        matrix a = matrix_make(&r, DT_I8, M, K, 0);
        void *pa = pack(g, NULL, M, K, &a);
        for (int t = 0; t < 2; t++) {
            gemm_call call = { .kernel = g, .pool = t ? two : NULL, .m = M, .n = N, .k = K, .a = pa, .b = { b, DT_F32, N, 1 }, .c = c, .c_type = DT_F32, .ldc = N };
            run(&call, 0);
            call.b = (gemm_view){ turned, DT_F32, 1, K }, call.c = c + M * N;
            run(&call, 0);
            if (memcmp(c, c + M * N, sizeof(float) * M * N)) fail_msg("%s: %d threads: other bits where columns lie side by side", gemm_name(g), t + 1);
            assert_true(c[3] != c[3] && c[6] != c[6] && c[8] == 0 && c[0] == c[0]);
        }
        free(pa), free(a.at);
    }
    free(b), free(turned), free(c);
    pool_free(two);
}

/* An A packed with more k: the product over its beginning has the bits of one packed with that k alone, whatever follows. */
static void beginning_of_packed(void **state)
{
    (void)state;
    enum { M = 37, K = 128, MORE = 300, N = 40, FEW = 3 };
    rng r = { test_seed("gemm beginning") };
    uint32_t isa = have();
    for (size_t i = 0; gemm_row(i); i++) {
        const gemm_kernel *g = gemm_row(i);
        if (gemm_need(g) & ~isa) continue;
        bool i8 = gemm_math_of(g) == GEMM_I8;
        matrix a = matrix_make(&r, i8 ? DT_I8 : DT_F32, M, MORE, 0), b = matrix_make(&r, DT_F32, K, N, 0);
        for (int64_t row = 0; !i8 && row < M; row++) ((float *)a.at)[row * a.row + K] = NAN;
        void *whole = pack(g, NULL, M, MORE, &a), *alone = pack(g, NULL, M, K, &a);
        for (int64_t n = FEW; n <= N; n += N - FEW) {
            float c[2][M * N];
            memset(c, 0, sizeof c);
            for (int t = 0; t < 2; t++) {
                gemm_call call = { .kernel = g, .m = M, .n = n, .k = K, .a = t ? whole : alone, .a_k = t ? MORE : 0,
                                   .b = { b.at, b.type, b.row, b.col }, .c = c[t], .c_type = DT_F32, .ldc = N };
                diag d = { 0 };
                if (!t || gemm_can_begin(g, K, MORE)) run(&call, 0);
                else {
                    char room[64];
                    call.scratch = room;
                    assert_int_equal(gemm_run(&call, &d), AN_BUG);
                    memcpy(c[1], c[0], sizeof c[0]);
                }
            }
            if (memcmp(c[0], c[1], sizeof c[0])) fail_msg("%s: %lld columns: the beginning of a longer A gives other bits", gemm_name(g), (long long)n);
        }
        assert_int_equal(gemm_can_begin(g, K, MORE), !i8);
        assert_false(gemm_can_begin(g, MORE, K));
        assert_true(gemm_can_begin(g, MORE, MORE));
        free(whole), free(alone), free(a.at), free(b.at);
    }
}

/* A in the kernel's own type, which some tiles read where it lies: the bits of a packed one, whatever its rows' distance, alignment and
 * number; what lies between rows is not looked at. */
static void as_it_lies(void **state)
{
    (void)state;
    static const struct { int64_t m, n, k, gap; } sizes[] = { { 128, 40, 768, 0 }, { 134, 33, 768, 0 }, { 160, 64, 1600, 0 }, { 140, 500, 256, 0 }, { 128, 64, 960, 64 }, { 128, 64, 128, 32 },
                                                              { 128, 32, 704, 1 }, { 128, 32, 1024, 0 }, { 129, 32, 2048, 0 }, { 128, 32, 70, 0 } }; /* more rows than are shared out by k */
    rng r = { test_seed("gemm as it lies") };
    pool *pools[2] = { 0 };
    diag d = { 0 };
    assert_ok(pool_make(&pools[1], 2, &d), d);
    for (size_t i = 0; gemm_row(i); i++) {
        const gemm_kernel *g = gemm_row(i);
        if (gemm_need(g) & ~have()) continue;
        const bool i8 = gemm_math_of(g) == GEMM_I8;
        const dtype type = i8 ? DT_I8 : math_type(gemm_math_of(g));
        for (size_t s = 0; s < COUNT(sizes) * 4; s++) {
            const int64_t m = sizes[s / 4].m, n = sizes[s / 4].n, k = sizes[s / 4].k, row = k + sizes[s / 4].gap, size = type == DT_F32 ? 4 : i8 ? 1 : 2;
            char *memory = aligned((size_t)(m * row * size) + 64), *at = memory + (s % 2 ? size : 0);
            for (int64_t e = 0; e < m * row; e++) dtype_store(type, at, e, i8 ? (double)rng_below(&r, 256) - 128 : e % row < k ? rng_normal(&r) : NAN);
            matrix a = { .type = type, .at = at, .row = row, .col = 1 }, b = matrix_make(&r, DT_F32, k, n, 0);
            float *c = must(malloc((size_t)(2 * m * n) * sizeof *c));
            void *pa = pack(g, NULL, m, k, &a);
            gemm_call call = { .kernel = g, .pool = pools[s / 2 % 2], .m = m, .n = n, .k = k, .a = pa, .b = { b.at, b.type, b.row, b.col }, .c = c, .c_type = DT_F32, .ldc = n };
            run(&call, 0);
            call.a = NULL, call.a_view = (gemm_view){ at, type, row, 1 }, call.c = c + m * n;
            run(&call, 0);
            if (memcmp(c, c + m * n, (size_t)(m * n) * sizeof *c))
                fail_msg("%s: %lld x %lld x %lld, rows %lld apart: other bits than packed ahead", gemm_name(g), (long long)m, (long long)n, (long long)k, (long long)row);
            free(memory), free(b.at), free(c), free(pa);
        }
    }
    pool_free(pools[1]);
}

/* Both operands packed ahead: the bits of the ordinary product, also of the beginning of a longer B, and of fewer of its columns. */
static void both_packed(void **state)
{
    (void)state;
    static const struct { int64_t m, n, k, more_n, more_k; } sizes[] = { { 64, 256, 64, 0, 0 }, { 64, 64, 192, 0, 320 }, { 37, 45, 70, 19, 0 }, { 1, 3, 5, 0, 0 }, { 33, 100, 1664, 0, 64 }, { 20, 7, 1601, 40, 0 } };
    rng r = { test_seed("gemm both packed") };
    uint32_t isa = have();
    for (size_t i = 0; gemm_row(i); i++) {
        const gemm_kernel *g = gemm_row(i);
        if (gemm_need(g) & ~isa) continue;
        for (size_t s = 0; s < COUNT(sizes); s++) {
            int64_t m = sizes[s].m, n = sizes[s].n, k = sizes[s].k, bn = n + sizes[s].more_n, bk = k + sizes[s].more_k;
            bool i8 = gemm_math_of(g) == GEMM_I8;
            matrix a = matrix_make(&r, i8 ? DT_I8 : DT_F32, m, k, 0), b = matrix_make(&r, DT_F32, bk, bn, 0);
            size_t bytes, c_bytes = (size_t)(m * n) * 4;
            diag d = { 0 };
            assert_true(gemm_pack_b_bytes(g, bn, bk, &bytes));
            void *pa = pack(g, NULL, m, k, &a), *pb = aligned_alloc(64, ROUND_UP(bytes, (size_t)64));
            gemm_view vb = { b.at, b.type, b.row, b.col };
            float *c = malloc(2 * c_bytes), *scale = malloc((size_t)m * sizeof *scale);
            assert_true(pb && c && scale);
            for (int64_t l = 0; l < m; l++) scale[l] = 0.5f + (float)l;
            if (bk > k)
                for (int64_t l = 0; l < bn; l++) ((float *)b.at)[k * b.row + l * b.col] = NAN;
            assert_int_equal(gemm_pack_b(g, NULL, bn, bk, vb, pb, &d), i8 ? AN_UNSUPPORTED : AN_OK);
            for (int how = 0; how < 2 && !i8; how++) { /* as it comes, scaled to bf16 */
                memset(c, 0, 2 * c_bytes);
                gemm_call call = { .kernel = g, .m = m, .n = n, .k = k, .a = pa, .b = vb, .c = c, .c_type = how ? DT_BF16 : DT_F32, .ldc = n, .epi = { .scale = how ? scale : NULL } };
                run(&call, 0);
                call.b_packed = pb, call.b_k = bk, call.c = c + m * n;
                assert_true(gemm_packed_scratch_bytes(g, n, k, &call.scratch_bytes));
                call.scratch = malloc(call.scratch_bytes);
                assert_non_null(call.scratch);
                assert_ok(gemm_run(&call, &d), d);
                if (memcmp(c, c + m * n, c_bytes)) fail_msg("%s: %lld x %lld x %lld: other bits when both are packed", gemm_name(g), (long long)m, (long long)n, (long long)k);
                diag e = { 0 }, f = { 0 };
                call.scratch_bytes -= 65;
                assert_int_equal(gemm_run(&call, &e), AN_BUG);
                call.scratch_bytes += 65, call.a = NULL, call.a_view = (gemm_view){ a.at, a.type, a.row, a.col };
                assert_int_equal(gemm_run(&call, &f), AN_BUG);
                free(call.scratch);
            }
            free(pa), free(pb), free(c), free(scale), free(a.at), free(b.at);
        }
    }
}

/* exp(scale (x - most)), packed: what gemm_pack_b makes of exact ones, to a unit in the last place of bf16; their sums. Nothing for minus
 * infinity, a NaN for a NaN. */
static void packed_weights(void **state)
{
    (void)state;
    enum { N = 64, K = 96 };
    const float scale = 0.125f;
    rng r = { test_seed("gemm packed weights") };
    uint32_t isa = have();
    for (size_t i = 0; gemm_row(i); i++) {
        const gemm_kernel *g = gemm_row(i);
        size_t bytes;
        diag d = { 0 };
        if (gemm_math_of(g) != GEMM_BF16 || (gemm_need(g) & ~isa)) continue;
        assert_true(gemm_pack_b_bytes(g, N, K, &bytes));
        float *x = aligned(N * K * sizeof *x), *true_w = aligned(N * K * sizeof *x), most[N], sum[N], total[N] = { 0 };
        uint16_t *got = aligned(bytes), *want = aligned(bytes);
        for (int c = 0; c < N; c++) {
            most[c] = (float)(100 * rng_normal(&r)), sum[c] = (float)c;
            for (int k = 0; k < K; k++) {
                float *at = &x[k * N + c];
                *at = k == c % K ? most[c] : rng_below(&r, 6) ? most[c] - (float)rng_range(&r, 0, 1000) : -INFINITY;
                const double e = exp((double)scale * ((double)*at - (double)most[c]));
                true_w[k * N + c] = e < 0x1p-126 ? 0 : (float)e, total[c] += true_w[k * N + c];
            }
        }
        const bool has = gemm_pack_weights(g, N, K, x, most, scale, sum, got);
        assert_ok(gemm_pack_b(g, NULL, N, K, (gemm_view){ true_w, DT_F32, N, 1 }, want, &d), d);
        for (size_t at = 0; has && at < bytes / 2; at++)
            if (abs((int)got[at] - (int)want[at]) > (want[at] < 0x100 ? 0x100 : 1)) fail_msg("%s: element %zu is %04x, %04x wanted", gemm_name(g), at, (unsigned)got[at], (unsigned)want[at]); /* near the smallest number it may be none */
        for (int c = 0; has && c < N; c++)
            if (!(fabs((double)sum[c] - c - (double)total[c]) <= 1e-5 * (c + (double)total[c]))) fail_msg("%s: column %d adds up to %g, %g wanted", gemm_name(g), c, (double)sum[c] - c, (double)total[c]);
        for (int c = 0; !has && c < N; c++) assert_true(sum[c] == (float)c);
        x[5 * N + 7] = NAN;
        assert_true(gemm_pack_weights(g, N, K, x, most, scale, sum, got) == has);
        assert_true(!has || isnan(sum[7]));
        assert_false(gemm_pack_weights(g, N - 1, K, x, most, scale, sum, got));
        free(x), free(true_w), free(got), free(want);
    }
}

/* Whatever way a matrix lies in memory, and whether the packed one goes past the caches: the same bytes. */
static void packed_bytes(void **state)
{
    (void)state;
    static const struct { int64_t m, k; } sizes[] = { { 79, 200 }, { 14, 32 }, { 15, 33 }, { 13, 64 }, { 1, 31 }, { 300, 2500 } };
    static const dtype types[] = { DT_F32, DT_F16, DT_BF16 };
    rng r = { test_seed("gemm packed bytes") };
    uint32_t isa = have();
    pool *pl;
    diag none = { 0 };
    assert_ok(pool_make(&pl, 3, &none), none);
    for (size_t i = 0; gemm_row(i); i++) {
        const gemm_kernel *g = gemm_row(i);
        const bool i8 = gemm_math_of(g) == GEMM_I8;
        if (gemm_need(g) & ~isa) continue;
        for (size_t s = 0; s < COUNT(sizes); s++)
            for (size_t t = 0; t < (i8 ? 1 : COUNT(types)); t++) {
                const int64_t m = sizes[s].m, k = sizes[s].k;
                matrix a = matrix_make(&r, i8 ? DT_I8 : types[t], m, k, 0), b = matrix_make(&r, a.type, m, k, 1);
                for (int64_t row = 0; row < m; row++)
                    for (int64_t col = 0; col < k; col++) dtype_store(a.type, b.at, row * b.row + col * b.col, at(&a, row, col));
                size_t bytes;
                diag d = { 0 };
                assert_true(gemm_pack_a_bytes(g, m, k, &bytes));
                void *rows = pack(g, NULL, m, k, &a), *columns = pack(g, pl, m, k, &b), *past = aligned(bytes);
                memset(past, 0xff, ROUND_UP(bytes, 64));
                assert_ok(gemm_pack_a_past(g, pl, m, k, (gemm_view){ a.at, a.type, a.row, a.col }, past, &d), d);
                if (memcmp(rows, columns, bytes)) fail_msg("%s: %lld x %lld %s: other bytes of columns", gemm_name(g), (long long)m, (long long)k, dtype_name(a.type));
                if (memcmp(rows, past, bytes)) fail_msg("%s: %lld x %lld %s: other bytes past the caches", gemm_name(g), (long long)m, (long long)k, dtype_name(a.type));
                free(rows), free(columns), free(past), free(a.at), free(b.at);
            }
    }
    pool_free(pl);
}

static void refusals(void **state)
{
    (void)state;
    const gemm_kernel *f = gemm_pick(GEMM_F32, 0), *q = gemm_pick(GEMM_I8, 0);
    size_t n;
    assert_false(gemm_pack_a_bytes(f, -1, 4, &n));
    assert_false(gemm_pack_a_bytes(f, INT64_MAX, 4, &n));
    assert_false(gemm_pack_a_bytes(f, INT32_MAX, INT32_MAX, &n) && n < 1u << 31);
    assert_false(gemm_pack_a_bytes(q, 1, 65537, &n));
    float x[4] = { 0 };
    void *pa = aligned(256);
    diag d = { 0 };
    assert_int_equal(gemm_pack_a(q, NULL, 1, 1, (gemm_view){ x, DT_F32, 1, 1 }, pa, &d), AN_UNSUPPORTED);
    assert_non_null(strstr(d.msg, "fp32"));
    diag e = { 0 };
    gemm_call call = { .kernel = f, .m = 1, .n = 1, .k = 1, .a = pa, .b = { x, DT_F32, 1, 1 }, .c = x, .c_type = DT_F32, .ldc = 1,
                       .scratch = x, .scratch_bytes = sizeof x };
    assert_int_equal(gemm_run(&call, &e), AN_BUG);
    assert_non_null(strstr(e.msg, "scratch"));
    diag h = { 0 };
    call.b.type = DT_I8;
    assert_int_equal(gemm_run(&call, &h), AN_UNSUPPORTED);
    call.b.type = DT_F32;
    call.a = NULL;
    diag u = { 0 };
    assert_int_equal(gemm_run(&call, &u), AN_UNSUPPORTED);
    assert_non_null(strstr(u.msg, "the left operand cannot be"));
    free(pa);
}

static void isa_override(void **state)
{
    (void)state;
    const char *was = getenv("AN_ISA");
    char keep[32] = "";
    if (was) snprintf(keep, sizeof keep, "%s", was);
    uint32_t isa;
    diag d = { 0 };
    setenv("AN_ISA", "scalar", 1);
    assert_ok(isa_have(&isa, &d), d);
    assert_int_equal(isa, 0);
    for (gemm_math m = 0; m < GEMM_MATHS; m++) assert_non_null(strstr(gemm_name(gemm_pick(m, isa)), "_scalar"));
    setenv("AN_ISA", "abacus", 1);
    assert_int_equal(isa_have(&isa, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "abacus"));
    for (int i = 0; isa_name(i); i++) {
        diag e = { 0 };
        setenv("AN_ISA", isa_name(i), 1);
        assert_ok(isa_have(&isa, &e), e);
        assert_int_equal(isa & ~((2u << i) - 1), 0);
    }
    if (was) setenv("AN_ISA", keep, 1);
    else unsetenv("AN_ISA");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_row_against_double), cmocka_unit_test(empty_shapes),
        cmocka_unit_test(bits_do_not_depend_on_company),
        cmocka_unit_test(few_rows), cmocka_unit_test(first_pass), cmocka_unit_test(few_columns), cmocka_unit_test(thin_columns), cmocka_unit_test(activations),
        cmocka_unit_test(int8_keeps_nan), cmocka_unit_test(int8_side_by_side), cmocka_unit_test(refusals), cmocka_unit_test(beginning_of_packed), cmocka_unit_test(as_it_lies), cmocka_unit_test(both_packed), cmocka_unit_test(packed_weights), cmocka_unit_test(packed_bytes), cmocka_unit_test(isa_override),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
