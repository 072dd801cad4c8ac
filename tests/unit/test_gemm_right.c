/* test_gemm_right.c: tiles that are done by one call, one to the right of the other: the bits of each column panel
 * alone, and nothing is read past what is packed. */
#define _DEFAULT_SOURCE 1 /* MAP_ANONYMOUS */
#include <sys/mman.h>
#include <unistd.h>

#include "gemm_t.h"

enum { ALONE = 12, MOST_C = 40 * 400 }; /* columns of a panel of some kernels, a part of one of others */

typedef struct {
    const char *what;
    dtype c_type;
    gemm_act act;
    bool scale, bias, residual, accumulate, squares;
} ending;
static const ending endings[] = {
    { "plain", DT_F32, ACT_NONE, false, false, false, false, false },
    { "scaled", DT_F32, ACT_NONE, true, false, false, false, false },
    { "squares", DT_F32, ACT_NONE, false, false, false, false, true },
    { "residual", DT_F32, ACT_NONE, false, false, true, false, false },
    { "accumulate, squares", DT_F32, ACT_NONE, false, false, false, true, true },
    { "silu to bf16", DT_BF16, ACT_SILU, true, true, false, false, false },
    { "fp16", DT_F16, ACT_NONE, false, true, true, false, false },
};

static int64_t c_bytes(dtype t) { return t == DT_F32 ? 4 : 2; }

/* k of an odd number of steps, of one and several blocks; whole panels or not. */
static void each_panel_alone(void **state)
{
    (void)state;
    static const struct {
        int64_t m, n, k, gap;
    } sizes[] = { { 16, 96, 8, 0 }, { 27, 131, 40, 5 }, { 8, 265, 23, 0 }, { 9, 60, 2051, 3 }, { 16, 132, 256, 1 } };
    static float scale[40], bias[40], addend[2 * MOST_C];
    rng r = { test_seed("gemm right") };
    pool *pools[2] = { NULL };
    diag d = { 0 };
    assert_ok(pool_make(&pools[1], 2, &d), d);
    for (size_t i = 0; i < COUNT(scale); i++) scale[i] = (float)rng_range(&r, -2, 2), bias[i] = (float)rng_normal(&r);
    for (size_t i = 0; gemm_row(i / COUNT(sizes)); i++) {
        const gemm_kernel *g = gemm_row(i / COUNT(sizes));
        const int64_t m = sizes[i % COUNT(sizes)].m, n = sizes[i % COUNT(sizes)].n, k = sizes[i % COUNT(sizes)].k,
                      ldc = n + sizes[i % COUNT(sizes)].gap;
        const bool i8 = gemm_math_of(g) == GEMM_I8;
        if (gemm_need(g) & ~have()) continue;
        matrix a = matrix_make(&r, i8 ? DT_I8 : DT_F32, m, k, (int)(i % 2)),
               b = matrix_make(&r, DT_F32, k, n, (int)(i / 2 % 2));
        void *pa = pack(g, NULL, m, k, &a);
        for (size_t e = 0; e < COUNT(endings) * 2; e++) {
            const ending *end = &endings[e / 2];
            const int64_t cb = c_bytes(end->c_type);
            if (e % 2 && gemm_by_parts(g, m, k)) continue; /* whose sums are in parts */
            static float want[MOST_C], got[MOST_C], squares[2][MOST_C];
            for (int64_t x = 0; x < MOST_C; x++) dtype_store(end->c_type, addend, x, rng_normal(&r));
            memcpy(want, addend, (size_t)(m * ldc * cb)), memcpy(got, addend, (size_t)(m * ldc * cb));
            gemm_call call = { .kernel = g, .pool = pools[e % 2], .m = m, .n = n, .k = k, .a = e % 2 ? NULL : pa,
                               .a_view = { a.at, a.type, a.row, a.col }, .b = { b.at, b.type, b.row, b.col }, .c = got,
                               .c_type = end->c_type, .ldc = ldc, .squares = end->squares ? squares[0] : NULL,
                               .epi = { .act = end->act, .scale = end->scale ? scale : NULL,
                                        .bias = end->bias ? bias : NULL, .accumulate = end->accumulate,
                                        .residual = end->residual ? addend : NULL, .ld_residual = ldc } };
            run(&call, 0);
            for (int64_t j = 0; j < n; j += ALONE) {
                gemm_call part = call;
                part.a = pa, part.pool = NULL, part.n = MIN(ALONE, n - j), part.squares = NULL;
                part.b.at = (const float *)b.at + j * b.col;
                part.c = (char *)want + j * cb;
                if (end->residual) part.epi.residual = (const char *)addend + j * cb;
                run(&part, 0);
            }
            if (memcmp(want, got, (size_t)(m * ldc * cb)))
                fail_msg("%s, %s: %lld x %lld x %lld has other bits than its panels alone", gemm_name(g), end->what,
                         (long long)m, (long long)n, (long long)k);
            if (!end->squares) continue;
            double sum = 0, all = 0;
            for (int64_t t = 0; t < gemm_tiles(g, m, n); t++) sum += (double)squares[0][t];
            for (int64_t x = 0; x < m * ldc; x++) all += x % ldc < n ? (double)got[x] * (double)got[x] : 0;
            if (!(sum > all * 0.999 && sum < all * 1.001))
                fail_msg("%s: squares of tiles are %g, not %g", gemm_name(g), sum, all);
        }
        free(pa), free(a.at), free(b.at);
    }
    pool_free(pools[1]);
}

/* Memory whose end is the end of what can be read. */
typedef struct {
    char *all, *at;
    size_t bytes;
} fenced;

static fenced fenced_copy(const void *from, size_t n)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), room = ROUND_UP(n, page);
    fenced f = { .bytes = room + page };
    f.all = mmap(NULL, f.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true((void *)f.all != MAP_FAILED);
    assert_int_equal(mprotect(f.all + room, page, PROT_NONE), 0);
    f.at = f.all + room - n;
    memcpy(f.at, from, n);
    return f;
}

static void nothing_past_the_panels(void **state)
{
    (void)state;
    enum { M = 32, N = 96, MOST_K = 128 };
    static float want[M * N], got[M * N];
    rng r = { test_seed("gemm fence") };
    diag d = { 0 };
    for (size_t i = 0; gemm_row(i); i++)
        for (int64_t k = 32; k <= MOST_K; k += 32) {
            const gemm_kernel *g = gemm_row(i);
            const bool i8 = gemm_math_of(g) == GEMM_I8;
            if (gemm_need(g) & ~have()) continue;
            matrix a = matrix_make(&r, i8 ? DT_I8 : DT_F32, M, k, 0), b = matrix_make(&r, DT_F32, k, N, 0);
            size_t na, nb;
            void *pa = pack(g, NULL, M, k, &a);
            assert_true(gemm_pack_a_bytes(g, M, k, &na));
            fenced fa = fenced_copy(pa, na);
            gemm_call call = { .kernel = g, .m = M, .n = N, .k = k, .a = pa, .b = { b.at, b.type, b.row, b.col },
                               .c = want, .c_type = DT_F32, .ldc = N };
            run(&call, 0);
            call.a = fa.at, call.c = got;
            run(&call, 0);
            assert_memory_equal(want, got, sizeof want);
            if (!i8) { /* nobody packs B ahead for int8 */
                assert_true(gemm_pack_b_bytes(g, N, k, &nb));
                void *pb = aligned(nb);
                assert_ok(gemm_pack_b(g, NULL, N, k, call.b, pb, &d), d);
                fenced fb = fenced_copy(pb, nb);
                memset(got, 0, sizeof got);
                call.b_packed = fb.at;
                assert_true(gemm_packed_scratch_bytes(g, N, k, &call.scratch_bytes));
                call.scratch = must(malloc(call.scratch_bytes));
                assert_ok(gemm_run(&call, &d), d);
                assert_memory_equal(want, got, sizeof want);
                free(call.scratch), free(pb), munmap(fb.all, fb.bytes);
            }
            free(pa), free(a.at), free(b.at), munmap(fa.all, fa.bytes);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_panel_alone),
        cmocka_unit_test(nothing_past_the_panels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
