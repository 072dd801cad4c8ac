/* test_gemm.c: every row of gemm.def this CPU can run, against sums in double precision: odd sizes, all layouts and
 * types, every epilogue; and what is refused.
 *
 * Bound on an element of C, with s = sum |a b| of the operands as packed (rounded to the row's type): fp32 sums of k
 * terms in any order differ from the exact one by at most 2 (k + 2) 2^-24 s (the 2: vdpbf16ps and AMX round products
 * as well; they also drop denormals, 1e-37 in all). int8 sums are exact, three fp32 roundings follow. The epilogue
 * adds 2^-22 of its terms, an activation at most 1.13 times the error before it plus 8 ulp, an fp16 result half an
 * fp16 ulp. */
#include <math.h>

#include "gemm_t.h"

enum { GUARD = 16 };

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
    bool scale, bias, col_bias, gate, pass, residual, accumulate;
    gemm_act act;
    bool fresh; /* A is packed inside the call */
} problem;

/* The operands as the kernel sees them: A as m x k, B transposed to n x k, and for int8 the scale of each column of
 * B. */
typedef struct {
    double *a, *b, *b_scale;
} exact;

static exact exact_make(const problem *p, const matrix *a, const matrix *b)
{
    exact e = { must(malloc(sizeof(double) * (size_t)(p->m * p->k))),
                must(malloc(sizeof(double) * (size_t)(p->n * p->k))), must(malloc(sizeof(double) * (size_t)p->n)) };
    dtype t = math_type(gemm_math_of(p->g));
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t k = 0; k < p->k; k++) e.a[i * p->k + k] = dtype_round(t, at(a, i, k));
    for (int64_t j = 0; j < p->n; j++) {
        float most = 0;
        for (int64_t k = 0; k < p->k; k++) most = fmaxf(most, (float)fabs(at(b, k, j)));
        e.b_scale[j] = gemm_math_of(p->g) == GEMM_I8 ? (double)(most / 127.0f) : 1;
        for (int64_t k = 0; k < p->k; k++) {
            double x = at(b, k, j);
            e.b[j * p->k + k] =
                gemm_math_of(p->g) == GEMM_I8 ? nearbyint((double)((float)x * (127.0f / most))) : dtype_round(t, x);
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
    snprintf(
        out, n,
        "%s m=%lld n=%lld k=%lld A %s/%d B %s/%d C %s scale %d bias %d col_bias %d gate %d pass %d residual %d accumulate %d act %d fresh %d",
        gemm_name(p->g), (long long)p->m, (long long)p->n, (long long)p->k, dtype_name(p->at), p->al, dtype_name(p->bt),
        p->bl, dtype_name(p->ct), p->scale, p->bias, p->col_bias, p->gate, p->pass, p->residual,
        p->accumulate, (int)p->act, p->fresh);
}

static void check_problem(const problem *p, rng *r, pool *pl)
{
    char what[240];
    describe(what, sizeof what, p);
    matrix a = matrix_make(r, p->at, p->m, p->k, p->al), b = matrix_make(r, p->bt, p->k, p->n, p->bl);
    int64_t ldc = p->n + (int64_t)rng_below(r, 4), ldr = p->n + (int64_t)rng_below(r, 4),
            ldg = p->n + (int64_t)rng_below(r, 4);
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
    char *pass = must(malloc((size_t)(p->m * ldg) * cb));
    for (int64_t i = 0; i < p->m * ldg; i++) dtype_store(p->ct, pass, i, rng_normal(r));
    dtype_store(p->ct, pass, 0, NAN); /* is above nothing */
    float *scale = must(malloc(4 * (size_t)p->m)), *bias = must(malloc(4 * (size_t)p->m)),
          *cols = must(malloc(4 * (size_t)p->n)), above = (float)rng_range(r, -0.5, 0.5);
    for (int64_t j = 0; j < p->n; j++) cols[j] = (float)rng_normal(r);
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
        .epi = { .scale = p->scale ? scale : NULL,
                 .bias = p->bias ? bias : NULL,
                 .col_bias = p->col_bias ? cols : NULL,
                 .pass = { p->pass ? pass : NULL, ldg, above, 0.25f },
                 .residual = p->residual ? res : NULL,
                 .ld_residual = ldr,
                 .gate = p->gate ? gate : NULL,
                 .ld_gate = ldg,
                 .act = p->act,
                 .accumulate = p->accumulate },
    };
    run(&call, rng_below(r, 2) * 4);
    exact e = exact_make(p, &a, &b);
    for (int i = 0; i < GUARD; i++)
        if (cbuf[i] != 0x5a || cbuf[GUARD + cn * cb + (size_t)i] != 0x5a) fail_msg("%s: wrote outside C", what);
    for (int64_t i = 0; i < p->m; i++) {
        for (int64_t j = p->n; j < ldc; j++)
            if (dtype_load(p->ct, c, i * ldc + j) != old[i * ldc + j])
                fail_msg("%s: wrote past column n in row %lld", what, (long long)i);
        for (int64_t j = 0; j < p->n; j++) {
            double sum, mag;
            exact_dot(p, &e, i, j, &sum, &mag);
            double s = p->scale ? (double)scale[i] : 1, b1 = p->bias ? (double)bias[i] : 0,
                   b2 = p->col_bias ? (double)cols[j] : 0, o = b1 + b2;
            double err = fabs(s) * mag * 2 * (double)(p->k + 2) * 0x1p-24 + 1e-37 * (double)p->k;
            if (gemm_math_of(p->g) == GEMM_I8) err = fabs(s) * mag * 0x1p-21;
            err += (fabs(s * mag) + fabs(b1) + fabs(b2)) * 0x1p-22;
            double v = act_exact(p->act, s * sum + o);
            if (p->act != ACT_NONE) err = 1.13 * err + fabs(v) * 0x1p-20 + 4e-7;
            if (p->act > ACT_RELU && p->act != ACT_TANH && p->ct != DT_F32 && !p->residual && !p->accumulate)
                err += fabs(v) * 7e-5;
            if (p->gate) {
                double by = act_exact(ACT_SILU, dtype_load(p->ct, gate, i * ldg + j));
                v *= by;
                err = err * fabs(by) + fabs(v) * (p->ct != DT_F32 && !p->residual && !p->accumulate ? 7.1e-5 : 0x1p-19);
            }
            if (p->pass && !(dtype_load(p->ct, pass, i * ldg + j) > (double)above)) v = 0.25, err = 0;
            double add = p->residual ? dtype_load(p->ct, res, i * ldr + j) : 0,
                   was = p->accumulate ? old[i * ldc + j] : 0;
            err += (fabs(v) + fabs(add) + fabs(was)) * 0x1p-22;
            v += add + was;
            if (p->ct == DT_F16) {
                if (fabs(v) > 65000) continue;
                err += fabs(v) * 0x1p-11 + 0x1p-24;
            }
            if (p->ct == DT_BF16) err += fabs(v) * 0x1p-8 + 0x1p-126;
            double got = dtype_load(p->ct, c, i * ldc + j);
            if (!(fabs(got - v) <= err))
                fail_msg("%s: C[%lld,%lld] is %.9g, exact %.9g, bound %.3g", what, (long long)i, (long long)j, got, v,
                         err);
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
    free(pass);
    free(cols);
    free(old);
    free(cbuf);
    free(a.at);
    free(b.at);
}

static void each_row_against_double(void **state)
{
    (void)state;
    static const dtype a_types[] = { DT_F32, DT_F16, DT_BF16, DT_I8 }, b_types[] = { DT_F32, DT_F16, DT_BF16 },
                       c_types[] = { DT_F32, DT_F16, DT_BF16 };
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
            p.col_bias = rng_below(&r, 3) == 0, p.pass = rng_below(&r, 4) == 0;
            if (n % 3 == 0) /* a layer's features, and the way back */
                p.scale = p.bias = p.gate = p.residual = p.accumulate = false, p.pass = !p.col_bias,
                p.act = p.pass ? ACT_NONE : p.act > ACT_RELU ? ACT_RELU : p.act;
            if (p.at == DT_I8 && !p.scale) p.scale = p.ct == DT_F16 || p.act;
            check_problem(&p, &r, n % 2 ? pl : NULL);
        }
        for (int n = 0; n < 3; n++) { /* several blocks of k, several tasks */
            problem p = { .g = g, .m = 45 + 19 * n, .n = 35 + 23 * n, .k = 600 + 431 * n, .at = i8 ? DT_I8 : DT_F32,
                          .bt = DT_F32, .ct = DT_F32, .al = n % 2, .bl = n % 3, .accumulate = n == 2, .fresh = n == 1 };
            check_problem(&p, &r, pl);
        }
        problem wide = {
            .g = g, .m = 3, .n = 5001, .k = 66, .at = i8 ? DT_I8 : DT_F32, .bt = DT_F32, .ct = DT_F32, .bias = true
        };
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
        gemm_call call = { .kernel = g, .m = 2, .n = 3, .a = pa, .b = { &b, DT_F32, 3, 1 }, .c = c, .c_type = DT_F32,
                           .ldc = 3, .epi = { .bias = bias } };
        run(&call, 0);
        for (int k = 0; k < 6; k++) assert_true(c[k] == bias[k / 3]);
        call.m = 0;
        run(&call, 0);
        free(pa);
    }
}

/* Few rows by a B whose rows are rows of memory: read where it lies, k in parts, or both; the same bits for every
 * pool. */
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
            problem p = { .g = g, .m = M, .n = N, .k = K, .at = DT_F32, .bt = DT_F32, .ct = DT_F32, .al = cases[k].a_as,
                          .bias = k % 2, .col_bias = k % 4 < 2, .pass = k % 5 == 4, .fresh = !cases[k].packed, .act = k % 3 ? ACT_NONE : ACT_RELU };
            for (int t = 0; t < 3; t++) check_problem(&p, &r, pools[t]);
            matrix a = matrix_make(&r, DT_F32, M, K, cases[k].a_as), b = matrix_make(&r, DT_F32, K, N, 0);
            float *c = must(malloc(3 * sizeof *c * (size_t)(M * N)));
            gemm_call call = { .kernel = g,
                               .m = M,
                               .n = N,
                               .k = K,
                               .a_view = { a.at, a.type, a.row, a.col },
                               .b = { b.at, b.type, b.row, b.col },
                               .c_type = DT_F32,
                               .ldc = N };
            for (int t = 0; t < 3; t++) {
                call.pool = pools[t];
                call.c = c + t * M * N;
                run(&call, 0);
                if (memcmp(call.c, c, sizeof *c * (size_t)(M * N)))
                    fail_msg("%s %lldx%lldx%lld: %d threads give other bits", gemm_name(g), (long long)M, (long long)N,
                             (long long)K, pool_threads(pools[t]));
            }
            free(c);
            free(a.at);
            free(b.at);
        }
    }
    for (int t = 1; t < 3; t++) pool_free(pools[t]);
}

/* Few columns, or a short k: rows of A as they lie. No scratch, and the bits of tiles, which an A packed ahead goes
 * through. */
static void thin_and_short(void **state)
{
    (void)state;
    static const struct {
        int64_t m, n, k;
        int bl;      /* how B lies; thin products want its rows side by side */
        int more;    /* 0: sums, 1: a bias along columns, 2: its relu, 3: a pass, 4: several, to fp16 */
    } cases[] = { { 64, 10, 128, 0, 0 }, { 64, 10, 128, 0, 1 }, { 131, 11, 67, 0, 1 }, { 64, 128, 10, 1, 0 },
                  { 64, 128, 10, 1, 3 }, { 64, 128, 10, 0, 2 }, { 5, 33, 1, 2, 1 },    { 70, 31, 16, 1, 4 },
                  { 131, 203, 13, 2, 4 }, { 131, 203, 13, 1, 3 }, { 17, 65, 3, 0, 0 } };
    rng r = { test_seed("thin and short") };
    diag d = { 0 };
    pool *two;
    assert_ok(pool_make(&two, 2, &d), d);
    for (size_t i = 0; gemm_row(i); i++) {
        const gemm_kernel *g = gemm_row(i);
        if ((gemm_need(g) & ~have()) || gemm_math_of(g) != GEMM_F32) continue;
        for (size_t k = 0; k < 3 * COUNT(cases); k++) {
            const int64_t M = cases[k / 3].m, N = cases[k / 3].n, K = cases[k / 3].k;
            const int more = cases[k / 3].more;
            if (!(K > 16 ? gemm_thin(g, N) : gemm_short(g, M, N, K))) continue; /* a kernel of other vectors */
            matrix a = matrix_make(&r, DT_F32, M, K, (int)(k % 3)), b = matrix_make(&r, DT_F32, K, N, cases[k / 3].bl),
                   beside = matrix_make(&r, more == 4 ? DT_F16 : DT_F32, M, N, 0),
                   cols = matrix_make(&r, DT_F32, 1, N, 0), rows = matrix_make(&r, DT_F32, 1, M, 0);
            float *c = must(calloc((size_t)(2 * M * N), sizeof *c));
            void *packed = pack(g, NULL, M, K, &a);
            gemm_call call = { .kernel = g, .m = M, .n = N, .k = K, .a_view = { a.at, a.type, a.row, a.col },
                               .b = { b.at, b.type, b.row, b.col }, .c = c,
                               .c_type = more == 4 ? DT_F16 : DT_F32, .ldc = N,
                               .epi = { .col_bias = more == 1 || more == 2 ? cols.at : NULL,
                                        .bias = more == 4 ? rows.at : NULL,
                                        .pass = { more == 3 ? beside.at : NULL, beside.row, 0.1f, -2 },
                                        .residual = more == 4 ? beside.at : NULL, .ld_residual = beside.row,
                                        .act = more == 2 ? ACT_RELU : more == 4 ? ACT_SILU : ACT_NONE },
                               .pool = k % 2 ? two : NULL };
            assert_ok(gemm_run(&call, &d), d);
            call.c = c + M * N, call.a = packed;
            run(&call, 0);
            if (memcmp(c, call.c, (size_t)(M * N * (more == 4 ? 2 : 4))))
                fail_msg("%s %lldx%lldx%lld, B %d, %d more: not the bits of tiles", gemm_name(g), (long long)M,
                         (long long)N, (long long)K, cases[k / 3].bl, more);
            free(c), free(packed), free(a.at), free(b.at), free(beside.at), free(cols.at), free(rows.at);
        }
    }
    const gemm_kernel *g = gemm_pick(GEMM_F32, have());
    assert_false(gemm_short(g, 64, 128, 17));
    assert_false(gemm_short(g, 4096, 4096, 10)); /* tiles ask for its lines */
    pool_free(two);
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
    for (int i = 0; i < N; i++)
        x[i] = (float)(i < 3000   ? rng_range(&r, -12, 12)
                       : i < 3500 ? rng_range(&r, -85, 85)
                                  : rng_range(&r, -1e-3, 1e-3));
    x[0] = 0, x[1] = -0.0f, x[2] = INFINITY, x[3] = -INFINITY, x[4] = NAN, x[5] = 1e30f, x[6] = -1e30f, x[7] = 88.5f,
    x[8] = -88.5f;
    for (size_t i = 0; gemm_row(i); i++) {
        const gemm_kernel *g = gemm_row(i);
        if (gemm_math_of(g) != GEMM_F32 || (gemm_need(g) & ~isa)) continue;
        float one = 1;
        matrix a = { DT_F32, 1, 1, 1, &one };
        void *pa = pack(g, NULL, 1, 1, &a);
        for (gemm_act act = ACT_RELU; act < ACT_COUNT; act++) {
            gemm_call call = { .kernel = g, .m = 1, .n = N, .k = 1, .a = pa, .b = { x, DT_F32, N, 1 }, .c = y,
                               .c_type = DT_F32, .ldc = N, .epi = { .act = act } };
            run(&call, 0);
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
                if (!(fabs(got - want) <= allowed))
                    fail_msg("%s act %d: f(%.9g) = %.9g, exact %.9g", gemm_name(g), (int)act, (double)x[j], got, want);
            }
        }
        free(pa);
    }
}

/* One product of relu_of_no_sign, without relu and with it. signs: is what relu gets -0 for sure? */
static void one_of_no_sign(gemm_call *call, bool signs, const char *what)
{
    for (int relu = 0; relu < 2; relu++) {
        call->epi.act = relu ? ACT_RELU : ACT_NONE;
        run(call, 0);
        for (int64_t e = 0; e < call->m * call->n; e++) {
            const double v = dtype_load(call->c_type, call->c, e);
            if (v != 0 || (relu ? signbit(v) : signs && !signbit(v)))
                fail_msg("%s %lldx%lldx%lld, %s, to %s, %s: element %lld is %g", gemm_name(call->kernel),
                         (long long)call->m, (long long)call->n, (long long)call->k, what, dtype_name(call->c_type),
                         relu ? "relu" : "as it is", (long long)e, v);
        }
    }
}

/* relu leaves no -0, whatever made one: a scale and a bias of rows, or sums too small for fp32 and a bias of columns;
 * nor does a residual of -0 then. All types of C, whole tiles and parts of them, k in one piece, in steps and in parts,
 * few columns. */
static void relu_of_no_sign(void **state)
{
    (void)state;
    static const struct {
        int64_t m, n, k;
    } sizes[] = { { 28, 64, 10 }, { 28, 64, 40 }, { 31, 71, 40 }, { 9, 40, 2100 }, { 28, 3, 33 }, { 28, 1, 33 } };
    static const dtype c_types[] = { DT_F32, DT_F16, DT_BF16 };
    static const char *const ways[] = { "a scale and a bias of rows", "a bias of columns", "a residual" };
    enum { SCALED, FEATURE, ADDED, WAYS, MOST_N = 71, MOST_M = 31, MOST_K = 2100 };
    static float minus[MOST_M], nought[MOST_N], a[MOST_M * MOST_K], b[MOST_K * MOST_N], c[MOST_M * MOST_N];
    static int8_t zeros[MOST_M * MOST_K];
    static unsigned char residual[MOST_M * MOST_N * sizeof(float)];
    for (int i = 0; i < MOST_M; i++) minus[i] = -1;
    for (int i = 0; i < MOST_N; i++) nought[i] = -0.0f;
    for (int way = 0; way < WAYS; way++) {
        const bool tiny = way == FEATURE;
        for (int i = 0; i < MOST_M * MOST_K; i++) a[i] = tiny ? 0x1p-80f : 0;
        for (int i = 0; i < MOST_K * MOST_N; i++) b[i] = tiny ? -0x1p-80f : 1;
        for (size_t i = 0; gemm_row(i); i++) {
            const gemm_kernel *g = gemm_row(i);
            if (gemm_need(g) & ~have()) continue;
            const bool i8 = gemm_math_of(g) == GEMM_I8;
            for (size_t s = 0; s < COUNT(sizes) * COUNT(c_types); s++) {
                const int64_t m = sizes[s / 3].m, n = sizes[s / 3].n, k = sizes[s / 3].k;
                const matrix am = { .type = i8 ? DT_I8 : DT_F32, .row = k, .col = 1, .at = i8 ? (void *)zeros : a };
                for (int64_t e = 0; e < m * n; e++) dtype_store(c_types[s % 3], residual, e, -0.0);
                void *pa = pack(g, NULL, m, k, &am);
                gemm_call call = { .kernel = g, .m = m, .n = n, .k = k, .a = pa,
                                   .a_view = { am.at, am.type, am.row, am.col }, .b = { b, DT_F32, n, 1 }, .c = c,
                                   .c_type = c_types[s % 3], .ldc = n,
                                   .epi = { .scale = tiny ? NULL : minus, .bias = tiny ? NULL : nought,
                                            .col_bias = tiny ? nought : NULL,
                                            .residual = way == ADDED ? residual : NULL, .ld_residual = n } };
                one_of_no_sign(&call, !tiny, ways[way]);
                call.a = NULL;
                one_of_no_sign(&call, !tiny, ways[way]);
                free(pa);
            }
        }
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
        float b[5][4] = { { 1, 0, 2, INFINITY }, { 2, 0, NAN, 1 }, { 3, 0, 1, 1 }, { -4, 0, 1, 1 }, { 0, 0, 1, 1 } },
              c[4];
        matrix a = { DT_I8, 5, 1, 5, w };
        void *pa = pack(g, NULL, 1, 5, &a);
        gemm_call call = {
            .kernel = g, .m = 1, .n = 4, .k = 5, .a = pa, .b = { b, DT_F32, 4, 1 }, .c = c, .c_type = DT_F32, .ldc = 4
        };
        run(&call, 0);
        assert_true(fabs(c[0] - (1 - 256 + 381 - 20)) < 9);
        assert_true(c[1] == 0);
        assert_true(c[2] != c[2]);
        assert_true(c[3] != c[3]);
        free(pa);
    }
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
    gemm_call call = { .kernel = f, .m = 1, .n = 1, .k = 1, .a = pa, .b = { x, DT_F32, 1, 1 }, .c = x, .c_type = DT_F32,
                       .ldc = 1, .scratch = x, .scratch_bytes = sizeof x };
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
        cmocka_unit_test(each_row_against_double),
        cmocka_unit_test(empty_shapes),
        cmocka_unit_test(few_rows),
        cmocka_unit_test(thin_and_short),
        cmocka_unit_test(activations),
        cmocka_unit_test(relu_of_no_sign),
        cmocka_unit_test(int8_keeps_nan),
        cmocka_unit_test(refusals),
        cmocka_unit_test(isa_override),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
