/* test_gemm_bits.c: every row of gemm.def this CPU can run gives one set of bits: for any thread count, whatever
 * else is in the matrix, and whichever way the driver takes for a shape or for how its operands lie. */
#include <math.h>

#include "gemm_t.h"

/* The same bits for every pool, for one column alone, and for one row alone; with an activation, and with scales
 * only, which a tile may apply to whole tiles itself. */
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
        gemm_call call = { .kernel = g, .m = M, .n = N, .k = K, .b = { b.at, b.type, b.row, b.col }, .c_type = DT_F32,
                           .ldc = N, .epi = epi };
        for (int t = 0; t < 4; t++) {
            void *pa = pack(g, pools[t], M, K, &a);
            call.a = pa;
            call.pool = pools[t];
            call.c = c[t];
            run(&call, 0);
            if (memcmp(c[t], c[0], sizeof c[0]))
                fail_msg("%s: %d threads give other bits", gemm_name(g), pool_threads(pools[t]));
            if (t == 2) {
                gemm_call fresh = call;
                fresh.a = NULL;
                fresh.a_view = (gemm_view){ a.at, a.type, a.row, a.col };
                run(&fresh, 0);
                if (memcmp(c[t], c[0], sizeof c[0]))
                    fail_msg("%s: packing inside the call gives other bits", gemm_name(g));
            }
            if (t == 3) {
                call.n = 1;
                call.ldc = 1;
                call.c = col;
                call.b.at = (const float *)b.at + 40 * b.col;
                run(&call, 0);
                for (int m = 0; m < M; m++)
                    if (memcmp(&col[m], &c[0][m * N + 40], 4))
                        fail_msg("%s: column 40 alone gives other bits", gemm_name(g));
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

/* A packed for one product takes more memory, and gives the bits of the one that stays; one too large, one that few
 * columns pass by, and one that is not widened stay what they are. */
static void packed_once(void **state)
{
    (void)state;
    rng r = { test_seed("gemm once") };
    enum { M = 131, N = 97, K = 1201, FEW = 2, HUGE_M = 1 << 20 };
    static float want[M * N], got[M * N];
    int found = 0;
    for (size_t i = 0; gemm_row(i); i++) {
        const gemm_kernel *g = gemm_row(i), *once = gemm_once(g, M, N, K);
        size_t stays, passes;
        if (gemm_need(g) & ~have()) continue;
        assert_ptr_equal(gemm_once(g, HUGE_M, N, K), g);
        if (gemm_few(g, FEW)) assert_ptr_equal(gemm_once(g, M, FEW, K), g);
        if (once == g) continue;
        found++;
        assert_int_equal(gemm_math_of(once), gemm_math_of(g));
        assert_int_equal(gemm_need(once), gemm_need(g));
        assert_ptr_equal(gemm_once(once, M, N, K), once);
        assert_ptr_not_equal(gemm_pick(gemm_math_of(g), have()), once);
        assert_true(gemm_pack_a_bytes(g, M, K, &stays));
        assert_true(gemm_pack_a_bytes(once, M, K, &passes));
        assert_true(passes > stays);
        matrix a = matrix_make(&r, DT_F32, M, K, 0), b = matrix_make(&r, DT_F32, K, N, 0);
        gemm_call call = { .kernel = g, .m = M, .n = N, .k = K, .a = pack(g, NULL, M, K, &a), .c = want,
                           .b = { b.at, b.type, b.row, b.col }, .c_type = DT_F32, .ldc = N };
        gemm_call wide = call;
        wide.kernel = once, wide.a = pack(once, NULL, M, K, &a), wide.c = got;
        run(&call, 0), run(&wide, 0);
        if (memcmp(want, got, sizeof want)) fail_msg("%s gives other bits than %s", gemm_name(once), gemm_name(g));
        free((void *)(uintptr_t)call.a), free((void *)(uintptr_t)wide.a), free(a.at), free(b.at);
    }
#if defined(__x86_64__)
    if (have() & ISA_AVX2) assert_true(found >= 2); /* fp16 and bf16 */
#endif
}

/* Columns of a vector or less, by an A as it lies: the bits of the packed A, for every pool, also after a product
 * that packed B. */
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
                matrix a = matrix_make(&r, DT_F32, turned ? kk : m, turned ? m : kk, 0),
                       b = matrix_make(&r, DT_F32, kk, n, 0);
                if (turned) {
                    int64_t row = a.row;
                    a.row = a.col, a.col = row;
                }
                void *pa = pack(g, NULL, m, kk, &a);
                gemm_call call = { .kernel = g, .m = m, .n = n, .k = kk, .a = pa, .b = { b.at, b.type, b.row, b.col },
                                   .c = want, .c_type = DT_F32, .ldc = n };
                run(&call, 0);
                call.a = NULL, call.a_view = (gemm_view){ a.at, a.type, a.row, a.col }, call.c = got;
                for (int pooled = 0; pooled < 2; pooled++) {
                    call.pool = pooled ? three : NULL;
                    memset(got, 0, sizeof got);
                    run(&call, 0);
                    if (memcmp(got, want, (size_t)(m * n) * 4))
                        fail_msg("%s: %lld x %lld x %lld%s with %d threads gives other bits", gemm_name(g),
                                 (long long)m, (long long)n, (long long)kk, turned ? " turned" : "",
                                 pool_threads(call.pool));
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
                    if (got[q] != 2 * want[q])
                        fail_msg("%s: element %lld is %.9g, wanted twice %.9g", gemm_name(g), (long long)q,
                                 (double)got[q], (double)want[q]);
                free(call.scratch), free(pa), free(a.at), free(b.at);
            }
    }
    pool_free(three);
}

/* int8 by a B whose columns lie one behind the other, packed while it is multiplied for the first time: the bits an
 * A packed ahead gives, for every pool. */
static void first_pass(void **state)
{
    (void)state;
    static const struct {
        int64_t m, n, k;
    } cases[] = { { 500, 192, 256 }, { 115, 96, 100 },   { 700, 64, 67 },
                  { 40, 480, 128 },  { 1000, 1536, 64 }, { 300, 70, 256 } };
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
            gemm_call call = { .kernel = g,
                               .m = M,
                               .n = N,
                               .k = K,
                               .a = pa,
                               .a_view = { a.at, a.type, a.row, a.col },
                               .b = { b.at, b.type, 1, K },
                               .c = c,
                               .c_type = DT_F32,
                               .ldc = N };
            run(&call, 0);
            call.a = NULL, call.c = c + M * N;
            for (int t = 0; t < 4; t++) {
                call.pool = pools[t];
                memset(call.c, 0xff, sizeof *c * (size_t)(M * N));
                run(&call, 4 * (size_t)(t % 2));
                if (memcmp(call.c, c, sizeof *c * (size_t)(M * N)))
                    fail_msg("%s %lldx%lldx%lld: packed in passing by %d threads gives other bits", gemm_name(g),
                             (long long)M, (long long)N, (long long)K, pool_threads(pools[t]));
            }
            free(pa);
            free(c);
            free(a.at);
            free(b.at);
        }
    }
    for (int t = 1; t < 4; t++) pool_free(pools[t]);
}

/* NaN of both signs: whichever of them a sum keeps, results are the same bits on one thread and on eight, which cut
 * the rows otherwise. */
static void few_columns_of_nan(void **state)
{
    (void)state;
    enum { M = 300, K = 700, N = 3 };
    rng r = { test_seed("few columns of NaN") };
    uint32_t isa = have();
    diag d = { 0 };
    pool *pl;
    assert_ok(pool_make(&pl, 8, &d), d);
    for (size_t i = 0; gemm_row(i); i++) {
        const gemm_kernel *g = gemm_row(i);
        if ((gemm_need(g) & ~isa) || !gemm_few(g, N)) continue;
        matrix a = matrix_make(&r, DT_F32, M, K, 0), b = matrix_make(&r, DT_F32, K, N, 0);
        static const float odd[] = { NAN, -NAN, INFINITY, -INFINITY };
        static float one[M * N], many[M * N];
        for (int k = 0; k < M * K; k++)
            if (!rng_below(&r, 300)) dtype_store(DT_F32, a.at, k, (double)odd[rng_below(&r, COUNT(odd))]);
        for (int64_t m = 20; m <= M; m += 28)
            for (int64_t n = 1; n <= N; n++) {
                gemm_call c = { .kernel = g, .m = m, .n = n, .k = K, .b = { b.at, b.type, b.row, b.col }, .c = one,
                                .c_type = DT_F32, .ldc = n };
                void *pa = pack(g, NULL, m, K, &a);
                c.a = pa;
                run(&c, 0);
                c.pool = pl, c.c = many;
                run(&c, 0);
                if (memcmp(one, many, (size_t)(m * n) * sizeof *one))
                    fail_msg("%s: %lld x %lld: eight threads give another NaN", gemm_name(g), (long long)m, (long long)n);
                free(pa);
            }
        free(a.at);
        free(b.at);
    }
    pool_free(pl);
}

/* Few columns of one or several packed A in one region, any number of panels left over: the bits each has alone
 * among many columns. */
static void few_columns(void **state)
{
    (void)state;
    enum { M = 331, WIDE = 40, K = 130 };
    static const int64_t columns[] = { 1, 2, 3, 4, 5, 6, 7, 8 }, depths[] = { K, 37, 1 };
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
            gemm_call all = { .kernel = g, .pool = pl, .m = M, .n = WIDE, .k = depths[k],
                              .b = { b.at, b.type, b.row, b.col }, .c = wide, .c_type = DT_F32, .ldc = WIDE };
            void *pa = pack(g, pl, M, depths[k], &a);
            all.a = pa;
            run(&all, 0);
            for (size_t c = 0; c < COUNT(columns); c++)
                for (int64_t m = 1; m <= M; m += m < 20 ? 1 : 1 + (int64_t)rng_below(&r, 9)) {
                    const int64_t n = columns[c], rows[GEMM_MORE + 1] = { m, m % 5 ? M - m : 0, m / 2, MIN(2 * m, M) };
                    gemm_call few = all;
                    few.pool = m % 2 ? pl : NULL, few.m = m, few.n = n, few.c = got[0], few.ldc = n,
                    few.n_more = (int)(m % (GEMM_MORE + 1));
                    for (int p = 0; p < few.n_more; p++) few.more[p] = (gemm_more){ pa, rows[p + 1], got[p + 1] };
                    memset(got, 0xff, sizeof got);
                    run(&few, 0);
                    for (int p = 0; p <= few.n_more; p++) {
                        for (int64_t y = 0; y < rows[p] * n; y++)
                            if (memcmp(&got[p][y], &wide[y / n * WIDE + y % n], 4))
                                fail_msg(
                                    "%s: %lld columns, k %lld: operand %d, element %lld of %lld rows is %g, among many %g",
                                    gemm_name(g), (long long)n, (long long)depths[k], p, (long long)y,
                                    (long long)rows[p], (double)got[p][y], (double)wide[y / n * WIDE + y % n]);
                        /* nothing past the end */
                        for (int64_t y = rows[p] * n; y < M * 8; y++) assert_true(isnan(got[p][y]));
                    }
                }
            gemm_call bad = all;
            size_t bytes;
            assert_true(gemm_scratch_bytes(g, M, WIDE, K, 2, &bytes));
            bad.scratch = must(malloc(bytes)), bad.scratch_bytes = bytes, bad.n_more = 1,
            bad.more[0] = (gemm_more){ pa, M, got[0] };
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

/* Columns side by side are looked at some rows at a time, several panels together; runs of k panel by panel. The
 * same scales, wherever the largest of a column is, or what is no number. */
static void int8_side_by_side(void **state)
{
    (void)state;
    enum { M = 40, K = 333, N = 301 };
    rng r = { test_seed("gemm int8 side by side") };
    pool *two = NULL;
    diag d = { 0 };
    assert_ok(pool_make(&two, 2, &d), d);
    float *b = must(malloc(sizeof(float) * K * N)), *turned = must(malloc(sizeof(float) * K * N)),
          *c = must(malloc(sizeof(float) * 2 * M * N));
    for (int i = 0; i < K * N; i++) b[i] = (float)rng_normal(&r);
    for (int n = 0; n < N; n++)
        b[(n * 7 % K) * N + n] = n % 10 == 3 ? NAN : n % 10 == 6 ? -INFINITY : n % 10 == 8 ? 0 : n % 2 ? 30 : -40;
    for (int n = 0; n < N; n++)
        for (int k = 0; k < K; k++) turned[n * K + k] = n % 10 == 8 ? b[k * N + n] *= 1e-36f : b[k * N + n];
    for (size_t i = 0; gemm_row(i); i++) {
        const gemm_kernel *g = gemm_row(i);
        if (gemm_math_of(g) != GEMM_I8 || (gemm_need(g) & ~have())) continue;
        matrix a = matrix_make(&r, DT_I8, M, K, 0);
        void *pa = pack(g, NULL, M, K, &a);
        for (int t = 0; t < 2; t++) {
            gemm_call call = { .kernel = g, .pool = t ? two : NULL, .m = M, .n = N, .k = K, .a = pa,
                               .b = { b, DT_F32, N, 1 }, .c = c, .c_type = DT_F32, .ldc = N };
            run(&call, 0);
            call.b = (gemm_view){ turned, DT_F32, 1, K }, call.c = c + M * N;
            run(&call, 0);
            if (memcmp(c, c + M * N, sizeof(float) * M * N))
                fail_msg("%s: %d threads: other bits where columns lie side by side", gemm_name(g), t + 1);
            assert_true(c[3] != c[3] && c[6] != c[6] && c[8] == 0 && c[0] == c[0]);
        }
        free(pa), free(a.at);
    }
    free(b), free(turned), free(c);
    pool_free(two);
}

/* Sums of the largest products there are, signs alike and not, an odd k and a part of a tile: of every row the bits of
 * the scalar one. */
static void int8_extremes(void **state)
{
    (void)state;
    static const struct { int64_t m, n, k; } sizes[] = { { 1, 1, 1 }, { 31, 45, 7 }, { 45, 70, 769 }, { 33, 33, 4099 }, { 15, 17, 65535 } };
    static const int8_t most[] = { -128, -128, -128, 127, -127, -1, 0, 1 };
    rng r = { test_seed("gemm int8 extremes") };
    for (size_t s = 0; s < COUNT(sizes) * 2; s++) {
        const int64_t m = sizes[s / 2].m, n = sizes[s / 2].n, k = sizes[s / 2].k;
        int8_t *a = must(malloc((size_t)(m * k)));
        float *b = must(malloc((size_t)(k * n) * sizeof *b)), *c = must(malloc((size_t)(2 * m * n) * sizeof *c)),
              *scale = must(malloc((size_t)m * sizeof *scale));
        for (int64_t i = 0; i < m * k; i++) a[i] = i < k ? -128 : most[rng_below(&r, COUNT(most))];
        for (int64_t i = 0; i < k * n; i++) b[i] = s % 2 || rng_below(&r, 2) ? 3.0f : -3.0f;
        for (int64_t i = 0; i < m; i++) scale[i] = (float)rng_normal(&r);
        const matrix am = { .type = DT_I8, .row = k, .col = 1, .at = a };
        for (size_t i = 0; gemm_row(i); i++) {
            const gemm_kernel *rows[2] = { gemm_pick(GEMM_I8, ISA_NONE), gemm_row(i) };
            if (gemm_math_of(rows[1]) != GEMM_I8 || (gemm_need(rows[1]) & ~have())) continue;
            for (int g = 0; g < 2; g++) {
                void *pa = pack(rows[g], NULL, m, k, &am);
                run(&(gemm_call){ .kernel = rows[g], .m = m, .n = n, .k = k, .a = pa, .b = { b, DT_F32, n, 1 },
                                  .c = c + g * m * n, .c_type = DT_F32, .ldc = n, .epi = { .scale = scale } },
                    0);
                free(pa);
            }
            if (memcmp(c, c + m * n, (size_t)(m * n) * sizeof *c))
                fail_msg("%s: %lld x %lld x %lld: not the bits of the scalar kernel", gemm_name(rows[1]), (long long)m,
                         (long long)n, (long long)k);
        }
        free(a), free(b), free(c), free(scale);
    }
}

/* A in the kernel's own type, which some tiles read where it lies: the bits of a packed one, whatever its rows'
 * distance, alignment and number; what lies between rows is not looked at. */
static void as_it_lies(void **state)
{
    (void)state;
    static const struct { int64_t m, n, k, gap; } sizes[] = { { 128, 40, 768, 0 }, { 134, 33, 768, 0 }, { 160, 64, 1600, 0 }, { 140, 500, 256, 0 }, { 128, 64, 960, 64 }, { 128, 64, 128, 32 },
                                                              /* more rows than are shared out by k */
                                                              { 128, 32, 704, 1 }, { 128, 32, 1024, 0 }, { 129, 32, 2048, 0 }, { 128, 32, 70, 0 } };
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
            const int64_t m = sizes[s / 4].m, n = sizes[s / 4].n, k = sizes[s / 4].k, row = k + sizes[s / 4].gap,
                          size = type == DT_F32 ? 4
                                 : i8           ? 1
                                                : 2;
            char *memory = aligned((size_t)(m * row * size) + 64), *at = memory + (s % 2 ? size : 0);
            for (int64_t e = 0; e < m * row; e++)
                dtype_store(type, at, e, i8 ? (double)rng_below(&r, 256) - 128 : e % row < k ? rng_normal(&r) : NAN);
            matrix a = { .type = type, .at = at, .row = row, .col = 1 }, b = matrix_make(&r, DT_F32, k, n, 0);
            float *c = must(malloc((size_t)(2 * m * n) * sizeof *c));
            void *pa = pack(g, NULL, m, k, &a);
            gemm_call call = { .kernel = g, .pool = pools[s / 2 % 2], .m = m, .n = n, .k = k, .a = pa,
                               .b = { b.at, b.type, b.row, b.col }, .c = c, .c_type = DT_F32, .ldc = n };
            run(&call, 0);
            call.a = NULL, call.a_view = (gemm_view){ at, type, row, 1 }, call.c = c + m * n;
            run(&call, 0);
            if (memcmp(c, c + m * n, (size_t)(m * n) * sizeof *c))
                fail_msg("%s: %lld x %lld x %lld, rows %lld apart: other bits than packed ahead", gemm_name(g),
                         (long long)m, (long long)n, (long long)k, (long long)row);
            free(memory), free(b.at), free(c), free(pa);
        }
    }
    pool_free(pools[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_do_not_depend_on_company),
        cmocka_unit_test(packed_once),
        cmocka_unit_test(thin_columns),
        cmocka_unit_test(first_pass),
        cmocka_unit_test(few_columns), cmocka_unit_test(few_columns_of_nan),
        cmocka_unit_test(int8_side_by_side),
        cmocka_unit_test(int8_extremes),
        cmocka_unit_test(as_it_lies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
