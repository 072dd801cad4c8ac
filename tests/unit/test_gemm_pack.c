/* test_gemm_pack.c: operands packed ahead, by every row of gemm.def this CPU can run: the same bytes however they
 * lie, products by them and by the beginning of them, and the weights of an attention packed as they are made. */
#include <math.h>

#include "gemm_t.h"
#include "kernel/gemm_plan_int.h"

/* Whatever way a matrix lies in memory, and whether the packed one goes past the caches: the same bytes. */
static void packed_bytes(void **state)
{
    (void)state;
    static const struct {
        int64_t m, k;
    } sizes[] = { { 79, 200 }, { 14, 32 }, { 15, 33 }, { 13, 64 }, { 1, 31 }, { 300, 2500 } };
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
                    for (int64_t col = 0; col < k; col++)
                        dtype_store(a.type, b.at, row * b.row + col * b.col, at(&a, row, col));
                size_t bytes;
                diag d = { 0 };
                assert_true(gemm_pack_a_bytes(g, m, k, &bytes));
                void *rows = pack(g, NULL, m, k, &a), *columns = pack(g, pl, m, k, &b), *past = aligned(bytes);
                memset(past, 0xff, ROUND_UP(bytes, 64));
                assert_ok(gemm_pack_a_past(g, pl, m, k, (gemm_view){ a.at, a.type, a.row, a.col }, past, &d), d);
                if (memcmp(rows, columns, bytes))
                    fail_msg("%s: %lld x %lld %s: other bytes of columns", gemm_name(g), (long long)m, (long long)k,
                             dtype_name(a.type));
                if (memcmp(rows, past, bytes))
                    fail_msg("%s: %lld x %lld %s: other bytes past the caches", gemm_name(g), (long long)m,
                             (long long)k, dtype_name(a.type));
                free(rows), free(columns), free(past), free(a.at), free(b.at);
            }
    }
    pool_free(pl);
}

/* Element by element where gemm_int.h says, rounded once, zeros behind the last; from every type, however it lies. */
static void places(const gemm_kernel *g, rng *r, bool is_a, dtype t, int64_t lanes, int64_t k, int layout)
{
    packed_layout l;
    diag d = { 0 };
    assert_true(pack_layout(g, is_a, lanes, k, &l));
    const dtype as = l.pk == PK_F32 ? DT_F32 : l.pk == PK_I8 ? DT_I8 : math_type(g->math);
    const bool widened = l.pk == PK_F32_OF_F16 || l.pk == PK_F32_OF_BF16;
    matrix x = matrix_make(r, t, is_a ? lanes : k, is_a ? k : lanes, layout);
    const gemm_view v = { x.at, x.type, x.row, x.col };
    unsigned char *out = aligned(l.bytes);
    memset(out, 0xff, l.bytes);
    assert_ok(is_a ? gemm_pack_a(g, NULL, lanes, k, v, out, &d) : gemm_pack_b(g, NULL, lanes, k, v, out, &d), d);
    for (int64_t lane = 0; lane < l.panels * l.width; lane++)
        for (int64_t i = 0; i < l.k_pad; i++) {
            const int64_t n = (i / l.kr * l.width + lane % l.width) * l.kr + i % l.kr;
            const double have = dtype_load(widened ? DT_F32 : as, out + lane / l.width * l.panel_bytes, n);
            double want = 0;
            if (lane < lanes && i < k) want = dtype_round(as, is_a ? at(&x, lane, i) : at(&x, i, lane));
            if (have != want)
                fail_msg("%s: %c of %s, %lld by %lld, layout %d: lane %lld, k %lld is %g, %g wanted", gemm_name(g),
                         is_a ? 'A' : 'B', dtype_name(t), (long long)lanes, (long long)k, layout, (long long)lane,
                         (long long)i, have, want);
        }
    free(out), free(x.at);
}

static void packed_places(void **state)
{
    (void)state;
    static const dtype types[] = { DT_F32, DT_F16, DT_BF16 };
    static const int64_t some_k[] = { 1, 3, 8, 15, 16, 17, 31, 40, 64, 100, 136, 600 };
    rng r = { test_seed("gemm packed places") };
    const uint32_t isa = have();
    for (size_t i = 0; gemm_row(i); i++) {
        const gemm_kernel *g = gemm_row(i);
        const bool i8 = gemm_math_of(g) == GEMM_I8;
        if ((gemm_need(g) & ~isa) || (i8 && g->a_pk != PK_I8)) continue;
        for (size_t k = 0; k < COUNT(some_k); k++)
            for (int layout = 0; layout < 3; layout++)
                for (size_t t = 0; t < (i8 ? 1 : COUNT(types)); t++)
                    for (int64_t more = -1; more < 2; more++) {
                        places(g, &r, true, i8 ? DT_I8 : types[t], 2 * g->mr + more, some_k[k], layout);
                        if (!i8) places(g, &r, false, types[t], 2 * g->nr + more, some_k[k], layout);
                    }
    }
}

/* An A packed with more k: the product over its beginning has the bits of one packed with that k alone, whatever
 * follows. */
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
            if (memcmp(c[0], c[1], sizeof c[0]))
                fail_msg("%s: %lld columns: the beginning of a longer A gives other bits", gemm_name(g), (long long)n);
        }
        assert_int_equal(gemm_can_begin(g, K, MORE), !i8);
        assert_false(gemm_can_begin(g, MORE, K));
        assert_true(gemm_can_begin(g, MORE, MORE));
        free(whole), free(alone), free(a.at), free(b.at);
    }
}

/* Both operands packed ahead: the bits of the ordinary product, also of the beginning of a longer B, and of fewer of
 * its columns. */
static void both_packed(void **state)
{
    (void)state;
    static const struct {
        int64_t m, n, k, more_n, more_k;
    } sizes[] = { { 64, 256, 64, 0, 0 }, { 64, 64, 192, 0, 320 },  { 37, 45, 70, 19, 0 },
                  { 1, 3, 5, 0, 0 },     { 33, 100, 1664, 0, 64 }, { 20, 7, 1601, 40, 0 } };
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
                gemm_call call = { .kernel = g,
                                   .m = m,
                                   .n = n,
                                   .k = k,
                                   .a = pa,
                                   .b = vb,
                                   .c = c,
                                   .c_type = how ? DT_BF16 : DT_F32,
                                   .ldc = n,
                                   .epi = { .scale = how ? scale : NULL } };
                run(&call, 0);
                call.b_packed = pb, call.b_k = bk, call.c = c + m * n;
                assert_true(gemm_packed_scratch_bytes(g, n, k, &call.scratch_bytes));
                call.scratch = malloc(call.scratch_bytes);
                assert_non_null(call.scratch);
                assert_ok(gemm_run(&call, &d), d);
                if (memcmp(c, c + m * n, c_bytes))
                    fail_msg("%s: %lld x %lld x %lld: other bits when both are packed", gemm_name(g), (long long)m,
                             (long long)n, (long long)k);
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

/* exp(scale (x - most)), packed: what gemm_pack_b makes of exact ones, to a unit in the last place of bf16; their
 * sums. Nothing for minus infinity, a NaN for a NaN. */
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
            if (abs((int)got[at] - (int)want[at]) > (want[at] < 0x100 ? 0x100 : 1))
                fail_msg("%s: element %zu is %04x, %04x wanted", gemm_name(g), at, (unsigned)got[at],
                         (unsigned)want[at]); /* near the smallest number it may be none */
        for (int c = 0; has && c < N; c++)
            if (!(fabs((double)sum[c] - c - (double)total[c]) <= 1e-5 * (c + (double)total[c])))
                fail_msg("%s: column %d adds up to %g, %g wanted", gemm_name(g), c, (double)sum[c] - c,
                         (double)total[c]);
        for (int c = 0; !has && c < N; c++) assert_true(sum[c] == (float)c);
        x[5 * N + 7] = NAN;
        assert_true(gemm_pack_weights(g, N, K, x, most, scale, sum, got) == has);
        assert_true(!has || isnan(sum[7]));
        assert_false(gemm_pack_weights(g, N - 1, K, x, most, scale, sum, got));
        free(x), free(true_w), free(got), free(want);
    }
}

/* A k of which no cache near a thread keeps one panel of B: packed and multiplied slab by slab, the same bits as when
 * all is packed ahead, however B lies, on any number of threads, and with something to do at the end. */
static void long_k(void **state)
{
    (void)state;
    enum { M = 31 };
    rng r = { test_seed("gemm long k") };
    pool *pools[3] = { 0 };
    diag d = { 0 };
    for (int t = 1; t < 3; t++) assert_ok(pool_make(&pools[t], t + 1, &d), d);
    for (size_t i = 0; gemm_row(i); i++) {
        const gemm_kernel *g = gemm_row(i);
        if ((gemm_need(g) & ~have()) || gemm_math_of(g) == GEMM_I8) continue;
        const int64_t n = 4 * g->nr + (int64_t)(i % 2), k = (int64_t)cpu_l2_bytes() * 9 / 8 / (g->nr * pk_bytes(g->b_pk)) + 77;
        size_t bytes;
        plan p;
        for (int t = 1; t <= 3; t++) {
            assert_true(plan_make(g, M, n, k, t, A_PACKED, true, &p));
            if (g->fast) continue;
            if (g->expand) assert_true(p.slabs == 1 && p.cut_bits == 0);
            else assert_true(p.slabs > 1 && p.b.panel_bytes <= (int64_t)cpu_l2_bytes()); /* not all of k */
        }
        matrix a = matrix_make(&r, DT_F32, M, k, 0);
        float *want = must(malloc(sizeof *want * M * (size_t)n)), *c = must(malloc(sizeof *c * M * (size_t)n)), bias[M];
        for (int m = 0; m < M; m++) bias[m] = (float)rng_normal(&r);
        void *pa = pack(g, NULL, M, k, &a), *pb;
        for (int layout = 0; layout < 2; layout++) {
            matrix b = matrix_make(&r, DT_F32, k, n, layout);
            assert_true(gemm_pack_b_bytes(g, n, k, &bytes));
            pb = aligned(bytes);
            assert_ok(gemm_pack_b(g, NULL, n, k, (gemm_view){ b.at, b.type, b.row, b.col }, pb, &d), d);
            gemm_call call = { .kernel = g, .m = M, .n = n, .k = k, .a = pa, .b = { b.at, b.type, b.row, b.col },
                               .c = want, .c_type = DT_F32, .ldc = n, .epi = { .bias = layout ? bias : NULL } };
            gemm_call near = call;
            near.b_packed = pb;
            assert_true(gemm_packed_scratch_bytes(g, n, k, &near.scratch_bytes));
            near.scratch = must(malloc(near.scratch_bytes));
            assert_ok(gemm_run(&near, &d), d);
            for (int t = 0; t < 3; t++) {
                memset(c, 0xff, sizeof *c * M * (size_t)n);
                call.c = c, call.pool = pools[t];
                run(&call, 0);
                if (memcmp(c, want, sizeof *c * M * (size_t)n))
                    fail_msg("%s: %d x %lld x %lld on %d threads: other bits slab by slab", gemm_name(g), M,
                             (long long)n, (long long)k, t + 1);
            }
            free(near.scratch), free(pb), free(b.at);
        }
        free(pa), free(a.at), free(want), free(c);
    }
    for (int t = 1; t < 3; t++) pool_free(pools[t]);
}

/* An A that is packed in passing, by a B of which the second cache keeps half: two threads take columns of their own,
 * in one stripe, and pack A no more often than one thread does in two. */
static void columns_of_their_own(void **state)
{
    (void)state;
    enum { K = 128 };
    for (size_t i = 0; gemm_row(i); i++) {
        const gemm_kernel *g = gemm_row(i);
        const int64_t half = (int64_t)cpu_l2_bytes() / 2, n = half * 3 / 2 / (K * pk_bytes(g->b_pk)) / g->nr * g->nr;
        plan one, two;
        if (g->fast || gemm_math_of(g) == GEMM_I8) continue;
        assert_true(plan_make(g, n, n, K, 1, A_RUNS, false, &one) && plan_make(g, n, n, K, 2, A_RUNS, false, &two));
        assert_true(one.stripes == 2 && two.stripes == 1 && two.by_columns);
        assert_true(plan_make(g, n, n / 2, K, 2, A_RUNS, false, &two));
        assert_false(two.by_columns); /* A would be packed twice as often */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_bytes),
        cmocka_unit_test(packed_places),
        cmocka_unit_test(beginning_of_packed),
        cmocka_unit_test(both_packed),
        cmocka_unit_test(packed_weights),
        cmocka_unit_test(long_k),
        cmocka_unit_test(columns_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
