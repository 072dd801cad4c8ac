/* prop_attend.c: the fast forms of attention against the obvious ones, on random small programs, as prop_exec.c does
 * it. */
#include "exec_t.h"

static void test_attend(void **state)
{
    (void)state;
    for (int round = 0; round < 90; round++) {
        size_t dev = chance(85) ? 0 : rng_below(&R, COUNT(devices));
        prog g;
        prog_open(&g, devices[dev].num);
        int64_t heads = upto(1, 3), rows = upto(1, chance(40) ? 150 : 20), keys = upto(1, chance(20) ? 150 : 20),
                inner = upto(1, 40), cols = upto(1, 40);
        bool causal = chance(50);
        if (chance(50)) keys = rows;
        dtype t = any_float();
        int64_t q = input(&g, t, DIMS(heads, rows, inner), TAME, 1),
                k = input(&g, t, DIMS(chance(70) ? heads : 1, keys, inner), TAME, 1);
        int64_t v = input(&g, t, DIMS(heads, keys, cols), TAME, 1), mask = -1;
        bool odd = dev == 0 && causal && keys == rows && chance(40); /* only the last row sees the last key */
        if (odd) dtype_store(t, g.in[2], heads * keys * cols - 1, chance(50) ? NAN : INFINITY);
        if (!odd && chance(40)) mask = input(&g, t, DIMS(rows, keys), TAME, 3);
        else if (!odd && chance(30)) mask = input(&g, DT_BOOL, DIMS(heads, 1, keys), TAME, 1);
        int64_t y = prog_out(&g, chance(80) ? t : any_float(), DIMS(heads, rows, cols));
        /* the largest score is the least then */
        bool minus = dev == 0 && t != DT_BF16 && chance(mask < 0 && rows >= 32 ? 50 : 10);
        prog_insn(&g, IN_ATTEND, INTS(y, q, k, v, mask), INTS(causal), REALS(minus ? -10 : 1 / sqrt((double)inner)));
        compare(&g, devices[dev].name, dev ? 0 : t == DT_BF16 ? 0x1p-9 : minus ? 1e-4 : 1e-5, 1);
        prog_close(&g);
    }
}

/* Queries with positions: as those of a text, one after the other, or any; what no query sees may hold no number.
 * bf16 programs multiply bf16 numbers: a weight is off by 2^-9 of itself, so a result by that of the largest value,
 * beside one step of its type. */
static void test_attend_at(void **state)
{
    (void)state;
    for (int round = 0; round < 120; round++) {
        prog g;
        prog_open(&g, devices[0].num);
        int64_t heads = upto(1, 3), rows = upto(1, chance(60) ? 150 : 20), keys = rows + upto(0, chance(60) ? 300 : 20),
                inner = upto(1, 70), cols = upto(1, 70);
        int64_t window = chance(40) ? upto(1, keys) : 0, start = upto(0, keys - rows), least = keys - 1, most = 0;
        bool text = chance(70);
        /* all of them are in it, or all but one */
        if (text && window && chance(50)) window = MAX(1, start + rows - upto(0, 1));
        bool turned = chance(50);
        dtype t = round % 2 ? DT_BF16 : any_float(), ty = chance(80) ? t : any_float();
        int64_t q = turned ? input(&g, t, DIMS(heads, inner, rows), TAME, 1)
                           : input(&g, t, DIMS(heads, rows, inner), TAME, 1),
                k = input(&g, t, DIMS(heads, keys, inner), TAME, 1), v = input(&g, t, DIMS(heads, keys, cols), TAME, 1);
        double *at = numbers(rows, TAME, 1);
        for (int64_t i = 0; i < rows; i++) {
            int64_t p = text ? start + i : upto(chance(20) ? -3 : 0, keys - 1 + (chance(20) ? window + 3 : 0)),
                    lo = window ? MAX(p + 1 - window, 0) : 0, hi = MIN(p, keys - 1);
            if (lo > hi) lo = 0, hi = keys - 1; /* a row that would see none sees all */
            at[i] = (double)p;
            least = MIN(least, lo), most = MAX(most, hi);
        }
        int64_t pos = prog_in(&g, DT_I32, DIMS(rows), at);
        free(at);
        for (int64_t h = 0; h < heads; h++)
            for (int64_t l = 0; l < keys; l++)
                if (l < least || l > most)
                    dtype_store(t, g.in[2], (h * keys + l) * cols + upto(0, cols - 1), chance(50) ? NAN : INFINITY),
                        dtype_store(t, g.in[1], (h * keys + l) * inner, NAN);
        prog_insn(&g, IN_ATTEND_AT,
                  INTS(turned ? prog_out(&g, ty, DIMS(heads, cols, rows)) : prog_out(&g, ty, DIMS(heads, rows, cols)),
                       q, k, v, pos),
                  INTS(window, turned), REALS(chance(50) ? 1 : 1 / sqrt((double)inner)));
        compare(&g, "attend_at", t == DT_BF16 && ty == DT_BF16 ? 0x1p-9 : 1e-5, 1);
        same_on_threads(&g, "attend_at");
        prog_close(&g);
    }
}

/* Pairs of channels, turned either way: the reference's bits. */
static void test_rope(void **state)
{
    (void)state;
    for (int round = 0; round < 120; round++) {
        const size_t dev = chance(70) ? 0 : rng_below(&R, COUNT(devices));
        prog g;
        prog_open(&g, devices[dev].num);
        const int64_t stacks = upto(1, 4), pairs = upto(1, chance(50) ? 40 : 4),
                      period = chance(30) ? 1 : upto(1, chance(30) ? 300 : 20),
                      n = period * (chance(60) ? 1 : upto(2, 4));
        const bool half = chance(50), wide = chance(40); /* tables of fp32, as training has them */
        const dtype t = wide ? chance(50) ? DT_F32 : DT_BF16 : any_float(),
                    ty = wide         ? chance(50) ? DT_F32 : DT_BF16
                         : chance(85) ? t
                                      : any_float(),
                    tt = wide         ? DT_F32
                         : chance(85) ? t
                                      : any_float();
        const int64_t x = input(&g, t, DIMS(stacks, 2 * pairs, n), TAME, 2),
                      co = input(&g, tt, DIMS(2 * pairs, period), TAME, 1),
                      si = input(&g, tt, DIMS(2 * pairs, period), TAME, 1);
        prog_insn(&g, IN_ROPE, INTS(prog_out(&g, ty, DIMS(stacks, 2 * pairs, n)), x, co, si), INTS(half, chance(50)),
                  REALS(chance(50) ? 1 : (double)0.3f));
        compare(&g, devices[dev].name, 0, 0);
        same_on_threads(&g, "rope");
        prog_close(&g);
    }
}

/* An attention that is trained: its sizes, most often on the plain processor in fp32. */
typedef struct {
    size_t dev;
    int64_t heads, keys, rows, inner, cols;
    int64_t apart; /* sequences beside each other; 0: a matrix is one piece */
    bool causal;
    bool narrow; /* products of bf16: some operands and results are of that type, too */
    dtype t;
} trained;

static trained random_trained(void)
{
    trained a = { .dev = chance(90) ? 0 : rng_below(&R, COUNT(devices)),
                  .heads = upto(1, 3),
                  .keys = upto(1, chance(30) ? 300 : 20),
                  .rows = upto(1, chance(20) ? 150 : 20),
                  .inner = upto(1, 40),
                  .cols = upto(1, 40),
                  .causal = chance(60),
                  .t = chance(85) ? DT_F32 : any_float() };
    if (a.causal) a.rows = a.keys * upto(1, 2);
    if (chance(50)) a.apart = upto(1, 3);
    a.narrow = a.dev == 0 && a.t == DT_F32 && chance(40);
    return a;
}

/* Of products of bf16 each operand is off by 2^-9 of it at most, and so are weights that are rounded before they are
 * multiplied. */
static closeness how_close(const trained *a, double tol, double least)
{
    return a->narrow ? (closeness){ .norm = 0x1p-7, .math = FAST_BF16 }
                     : (closeness){ .tol = a->dev ? 0 : tol, .least = least };
}

static dtype type_of(const trained *a) { return a->narrow && chance(50) ? DT_BF16 : a->t; }

/* Now and then, an element that is not finite. */
static void spoil(prog *g, dtype t, int which, int64_t at, double x)
{
    if (chance(30)) dtype_store(t, g->in[which], at, x);
}

/* An operand or a result of high x wide for every head and sequence. */
static int64_t stacked(prog *g, const trained *a, int64_t high, int64_t wide, bool out)
{
    const dtype t = type_of(a);
    const int64_t plain[] = { a->heads, high, wide }, apart[] = { a->heads, high, a->apart, wide },
                  *dim = a->apart ? apart : plain;
    return out ? prog_out(g, t, dim, a->apart ? 4 : 3) : input(g, t, dim, a->apart ? 4 : 3, TAME, 1);
}

static void test_attend_back(void **state)
{
    (void)state;
    for (int round = 0; round < 60; round++) {
        const trained a = random_trained();
        const int64_t heads = a.heads * (a.apart ? a.apart : 1), keys = a.keys, rows = a.rows, inner = a.inner,
                      cols = a.cols;
        const bool causal = a.causal;
        const dtype t = type_of(&a); /* of the weights */
        const size_t dev = a.dev;
        prog g;
        prog_open(&g, devices[dev].num);
        int64_t dq = stacked(&g, &a, inner, rows, true), dk = stacked(&g, &a, inner, keys, true),
                dv = stacked(&g, &a, cols, keys, true);
        int64_t p = input(&g, t, DIMS(heads, rows, keys), TAME, 1), q = stacked(&g, &a, inner, rows, false),
                k = stacked(&g, &a, inner, keys, false);
        int64_t v = stacked(&g, &a, cols, keys, false), dy = stacked(&g, &a, cols, rows, false);
        for (int64_t i = 0; causal && i < heads * rows; i++) /* as the period says */
            for (int64_t j = i % rows % keys + 1; j < keys; j++) dtype_store(t, g.in[0], i * keys + j, 0);
        if (dev == 0 && !a.narrow && causal) { /* what only the last row sees, and what only the first key is seen by */
            spoil(&g, a.t, 2, heads * inner * keys - 1, NAN);
            spoil(&g, a.t, 3, heads * cols * keys - 1, INFINITY);
            spoil(&g, a.t, 1, 0, INFINITY);
            spoil(&g, a.t, 4, 0, NAN);
        }
        prog_insn(&g, IN_ATTEND_BACK, INTS(dq, dk, dv, p, q, k, v, dy), INTS(causal ? keys : 0, a.apart), NO_REALS);
        compare_as(&g, devices[dev].name, how_close(&a, 1e-5, 8 * (double)(keys + rows)));
        prog_close(&g);
    }
}

static void test_attend_keep(void **state)
{
    (void)state;
    for (int round = 0; round < 60; round++) {
        const trained a = random_trained();
        const int64_t heads = a.heads * (a.apart ? a.apart : 1), keys = a.keys, rows = a.rows, inner = a.inner,
                      cols = a.cols;
        const bool causal = a.causal;
        const dtype t = type_of(&a);
        const size_t dev = a.dev;
        prog g;
        prog_open(&g, devices[dev].num);
        int64_t y = stacked(&g, &a, cols, rows, true), p = prog_out(&g, t, DIMS(heads, rows, keys));
        int64_t q = stacked(&g, &a, inner, rows, false), k = stacked(&g, &a, inner, keys, false),
                v = stacked(&g, &a, cols, keys, false);
        if (dev == 0 && !a.narrow && causal) { /* only the last row of the last head and sequence sees the last key */
            spoil(&g, a.t, 1, heads * inner * keys - 1, NAN);
            spoil(&g, a.t, 2, heads * cols * keys - 1, INFINITY);
        }
        prog_insn(&g, IN_ATTEND_KEEP, INTS(y, p, q, k, v), INTS(causal ? keys : 0, a.apart), NO_REALS);
        compare_as(&g, devices[dev].name, how_close(&a, 2e-5, 1));
        prog_close(&g);
    }
}

/* Scores never lie in memory as a whole: what attention over a long text takes is a small part of them. */
static void test_no_whole_scores(void **state)
{
    (void)state;
    enum { HEADS = 12, TOKENS = 1024, WIDE = 64, PART = 16 };
    static const dtype types[] = { DT_F32, DT_F16, DT_BF16 };
    for (int i = 0; i < 6; i++) {
        const dtype t = types[i / 2];
        const bool causal = i % 2;
        prog g;
        prog_open(&g, devices[0].num);
        int64_t q = input(&g, t, DIMS(HEADS, TOKENS, WIDE), TAME, 1), k = input(&g, t, DIMS(HEADS, TOKENS, WIDE), TAME, 1),
                v = input(&g, t, DIMS(HEADS, TOKENS, WIDE), TAME, 1);
        prog_insn(&g, IN_ATTEND, INTS(prog_out(&g, t, DIMS(HEADS, TOKENS, WIDE)), q, k, v, -1), INTS(causal), REALS(0.125));
        for (size_t p = 0; p < COUNT(pools); p++) {
            diag d = { 0 };
            image *im = NULL;
            image_options o = { .pool = pools[p] };
            assert_ok(image_load(&im, g.p, NULL, &o, &d), d);
            assert_ok(image_run(im, (const void *const *)g.in, (void *const *)g.out_bytes, &d), d);
            const uint64_t held = image_bytes(im) + g.p->scratch_bytes,
                           scores = (uint64_t)HEADS * TOKENS * TOKENS * sizeof(float);
            if (held > scores / PART)
                fail_msg("%s on %d threads: %llu bytes, the scores are %llu", dtype_name(t), pool_threads(pools[p]),
                         (unsigned long long)held, (unsigned long long)scores);
            image_free(im);
        }
        prog_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attend),
        cmocka_unit_test(test_no_whole_scores),
        cmocka_unit_test(test_attend_at),
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_attend_back),
        cmocka_unit_test(test_attend_keep),
    };
    return cmocka_run_group_tests(tests, open_pools, close_pools);
}
