/* prop_exec.c: the fast form of every instruction against its obvious one, on random small programs: the same bits on chips, within
 * stated bounds on the plain processor, for each instruction set this machine has and for one and two threads. */
#include "exec_t.h"

/* ---- chains ---- */

enum { STEP_FN, STEP_A, STEP_PARAM = 4, STEP_TYPE }; /* integers of a step */

static bool is_exact(fn_id f) /* in fp32, on the plain processor */
{
    switch (f) {
    case FN_POW: case FN_ROOT_DIV: case FN_RSQRT: case FN_LOG: case FN_EXP: case FN_EXP2: case FN_ERF: case FN_SIN: case FN_COS: case FN_ATAN: case FN_ELU: case FN_SIGMOID:
    case FN_TANH: case FN_SCALED_TANH: case FN_GELU: case FN_GELU_TANH: case FN_GELU_SIGMOID: case FN_SILU: case FN_SOFTPLUS: case FN_SOFTPLUS_PAR:
    case FN_SOFTSIGN: return false;
    default: return true;
    }
}

typedef struct {
    int64_t steps[1 + 8 * CHAIN_STEP];
    double params[1 + 16];
    bool exact;
} links;

static void random_links(links *l, int n_inputs, int n_steps, bool all_exact)
{
    int at = 0;
    l->steps[0] = n_steps * CHAIN_STEP, l->params[0] = 0, l->exact = true;
    for (int k = 0; k < n_steps; k++) {
        fn_id f;
        do f = (fn_id)rng_below(&R, FN_COUNT);
        while (!is_exact(f) && (all_exact || k + 1 < n_steps));
        if (!is_exact(f)) l->exact = false;
        int64_t *s = l->steps + 1 + k * CHAIN_STEP;
        s[STEP_FN] = f;
        for (int j = 0; j < 3; j++) s[STEP_A + j] = j < fn_operands(f) ? (chance(50) ? n_inputs + k - 1 : upto(0, n_inputs + k - 1)) : -1;
        for (int j = 0; j < 3; j++)
            if (j < fn_operands(f) && s[STEP_A + j] < 0) s[STEP_A + j] = 0;
        s[STEP_PARAM] = fn_params(f) ? at : -1;
        for (int j = 0; j < fn_params(f); j++) l->params[1 + at++] = chance(90) ? number(TAME, 2) : 0;
        bool boolean = f >= FN_EQ && f <= FN_NOT && chance(50);
        s[STEP_TYPE] = boolean ? DT_BOOL : any_float();
    }
    l->params[0] = at;
}

static uint32_t n_of(const links *l) { return 1 + (uint32_t)l->steps[0]; }
static uint32_t m_of(const links *l) { return 1 + (uint32_t)l->params[0]; }

static int random_dims(int64_t *d, int64_t most)
{
    int rank = (int)upto(1, 4);
    for (int i = 0; i < rank; i++) d[i] = chance(20) ? 1 : upto(1, i == rank - 1 ? most : 5);
    return rank;
}

static int broadcast_dims(const int64_t *y, int rank, int64_t *d) /* something that broadcasts to y */
{
    int r = chance(50) ? rank : (int)upto(0, rank);
    for (int i = 0; i < r; i++) d[i] = chance(30) ? 1 : y[rank - r + i];
    return r;
}

static void test_ew(void **state)
{
    (void)state;
    for (int round = 0; round < 400; round++) {
        size_t dev = rng_below(&R, COUNT(devices));
        bool cpu = devices[dev].num == &numerics_cpu;
        prog g;
        links l;
        prog_open(&g, devices[dev].num);
        int64_t y[ENGINE_MAX_RANK], d[ENGINE_MAX_RANK], t[12];
        int rank = random_dims(y, chance(10) ? 1500 : 40), n = (int)upto(1, 4);
        random_links(&l, n, (int)upto(0, 5), false);
        t[1] = n;
        for (int k = 0; k < n; k++) {
            int r = broadcast_dims(y, rank, d);
            static const dtype types[] = { DT_F16, DT_F16, DT_F32, DT_BF16, DT_BOOL, DT_I8, DT_U8, DT_I16 };
            t[2 + k] = input(&g, types[rng_below(&R, COUNT(types))], d, r, cpu && !l.exact ? TAME : WILD, 8);
        }
        t[0] = prog_out(&g, chance(10) ? DT_BOOL : any_float(), y, rank);
        prog_insn(&g, IN_EW, t, 2 + (uint32_t)n, l.steps, n_of(&l), l.params, m_of(&l));
        compare(&g, devices[dev].name, cpu && !l.exact ? 2e-6 : 0, 1e-3);
        prog_close(&g);
    }
}

/* Rows of whole tiles, more of them than are taken at a time, with operands that change from row to row, or later, or never. */
static void test_tile_rows(void **state)
{
    (void)state;
    for (int round = 0; round < 60; round++) {
        prog g;
        links l;
        prog_open(&g, &numerics_cpu);
        l.steps[0] = 4 * CHAIN_STEP, l.params[0] = 0;
        const int64_t y[] = { 2, upto(60, 70), 256 * upto(1, 2) };
        const int64_t forms[][3] = { { 1, y[1], 1 }, { 2, y[1], 1 }, { 1, 1, y[2] }, { 2, 1, 1 }, { 1, y[1], y[2] } };
        dtype t = chance(50) ? DT_F16 : DT_F32;
        int64_t ts[] = { 0, 5, input(&g, t, y, 3, TAME, 8), 0, 0, 0, 0 };
        for (int k = 0; k < 4; k++) { /* one operand after the other */
            static const fn_id fns[] = { FN_ADD, FN_MUL, FN_SUB, FN_ADD, FN_MUL, FN_SUB, FN_MAX };
            int64_t *step = l.steps + 1 + k * CHAIN_STEP;
            ts[3 + k] = input(&g, t, forms[rng_below(&R, COUNT(forms))], 3, TAME, 8);
            for (int j = 0; j < CHAIN_STEP; j++) step[j] = -1;
            step[STEP_FN] = fns[rng_below(&R, COUNT(fns))], step[STEP_A] = k ? 5 + k - 1 : 0, step[STEP_A + 1] = 1 + k, step[STEP_TYPE] = t;
        }
        ts[0] = prog_out(&g, t, y, 3);
        prog_insn(&g, IN_EW, ts, (uint32_t)COUNT(ts), l.steps, n_of(&l), l.params, m_of(&l));
        compare(&g, "cpu", 0, 1e-3);
        prog_close(&g);
    }
}

/* A chain with several results. */
static void test_ews(void **state)
{
    (void)state;
    for (int round = 0; round < 200; round++) {
        size_t dev = rng_below(&R, COUNT(devices));
        bool cpu = devices[dev].num == &numerics_cpu;
        prog g;
        links l;
        prog_open(&g, devices[dev].num);
        int64_t y[ENGINE_MAX_RANK], d[ENGINE_MAX_RANK], t[16] = { -1, -1, -1, -1 }, fields[80];
        int rank = random_dims(y, chance(20) ? 1500 : 40), n = (int)upto(1, 4), steps = (int)upto(2, 6), more = (int)upto(1, MIN(steps - 1, CHAIN_MOST_RESULTS - 1));
        random_links(&l, n, steps, false);
        t[4] = n;
        for (int k = 0; k < n; k++) {
            int r = broadcast_dims(y, rank, d);
            t[5 + k] = input(&g, chance(50) ? DT_F16 : DT_F32, d, r, cpu && !l.exact ? TAME : WILD, 8);
        }
        for (int k = 0; k <= more; k++) t[k] = prog_out(&g, chance(10) ? DT_BOOL : any_float(), y, rank);
        fields[0] = more;
        for (int k = 0; k < more; k++) fields[1 + k] = steps - 2 - k; /* any but the last, each once */
        memcpy(fields + 1 + more, l.steps, n_of(&l) * sizeof *fields);
        prog_insn(&g, IN_EWS, t, 5 + (uint32_t)n, fields, 1 + (uint32_t)more + n_of(&l), l.params, m_of(&l));
        compare(&g, devices[dev].name, cpu && !l.exact ? 2e-6 : 0, 1e-3);
        prog_close(&g);
    }
}

/* An optimiser's shape: results that become something new, or stay what they were, as one number says; products that are only added. */
static void test_choice(void **state)
{
    (void)state;
    for (int round = 0; round < 120; round++) {
        size_t dev = chance(50) ? 0 : rng_below(&R, COUNT(devices)); /* no chip makes the choice once */
        prog g;
        prog_open(&g, devices[dev].num);
        int64_t d[2] = { upto(1, 4), upto(1, chance(50) ? 1500 : 40) };
        dtype t = chance(70) ? DT_F32 : DT_F16, wide = chance(50) ? t : DT_F32;
        const int64_t row[2] = { 1, d[1] };
        int64_t w = input(&g, t, chance(20) ? row : d, 2, WILD, 8), m = input(&g, t, d, 2, WILD, 8), grad = input(&g, DT_F32, d, 2, WILD, 8), k = input(&g, DT_F32, DIMS(1), TAME, 2);
        double yes = chance(50), other = chance(80) ? yes : 1 - yes;
        dtype flag = chance(70) ? DT_BOOL : DT_F32;
        int64_t c = chance(80) ? prog_in(&g, flag, DIMS(1), &yes) : input(&g, DT_BOOL, d, 2, TAME, 1), e = chance(80) ? c : prog_in(&g, flag, DIMS(1), &other);
        int64_t y = prog_out(&g, t, d, 2), y2 = prog_out(&g, wide, d, 2);
        enum { W, M, GRAD, K, C, E, S };
#define STEP(f, a, b, c_) FN_##f, a, b, c_, -1, DT_F32
        prog_insn(&g, IN_EWS, INTS(y, y2, -1, -1, 6, w, m, grad, k, c, e),
                  INTS(1, 5, 7 * CHAIN_STEP, STEP(MUL, GRAD, K, -1), STEP(MUL, K, M, -1), STEP(ADD, S + 1, GRAD, -1), STEP(SUB, W, S, -1), STEP(SUB, S + 2, S + 3, -1),
                       STEP(SELECT, C, S + 4, W), STEP(SELECT, e == c ? C : E, S + 2, M)), REALS(0)); /* one choice where it is one operand */
#undef STEP
        compare(&g, devices[dev].name, 0, 0);
        prog_close(&g);
    }
}

/* Sums, products and quotients of some operands and some numbers, each read more than once: what a tape joins, swaps and keeps. */
static void test_arithmetic(void **state)
{
    (void)state;
    static const fn_id fns[] = { FN_ADD, FN_ADD, FN_SUB, FN_SUB, FN_MUL, FN_MUL, FN_MUL, FN_DIV };
    for (int round = 0; round < 1500; round++) {
        prog g;
        links l;
        prog_open(&g, &numerics_cpu);
        int64_t n = upto(1, 300), steps = upto(2, 8), ts[] = { 0, 4, 0, 0, 0, 0 };
        for (int k = 0; k < 4; k++) ts[2 + k] = input(&g, chance(80) ? DT_F32 : DT_F16, k < 2 ? &n : &(int64_t){ 1 }, 1, TAME, 4);
        l.steps[0] = steps * CHAIN_STEP, l.params[0] = 0;
        for (int64_t k = 0; k < steps; k++) {
            int64_t *s = l.steps + 1 + k * CHAIN_STEP;
            for (int j = 0; j < CHAIN_STEP; j++) s[j] = -1;
            s[STEP_FN] = fns[rng_below(&R, COUNT(fns))], s[STEP_TYPE] = DT_F32;
            for (int j = 0; j < 2; j++) s[STEP_A + j] = k && chance(45) ? 4 + upto(MAX(0, k - 3), k - 1) : upto(0, 4 + k - 1);
        }
        ts[0] = prog_out(&g, DT_F32, &n, 1);
        prog_insn(&g, IN_EW, ts, (uint32_t)COUNT(ts), l.steps, n_of(&l), l.params, m_of(&l));
        compare(&g, "arithmetic", 0, 0);
        prog_close(&g);
    }
}

/* An update by Adam is one act of a tape; what only looks like one is not. */
static void test_adam(void **state)
{
    (void)state;
    enum { W, M, V, G, OTHER, KEEP, TAKE, EPS, S, FULL = 5, INPUTS = S }; /* operands, then steps */
    static const struct {
        const char *what;
        int gradient, moment, square; /* what is squared, and what is divided by the root of what */
    } rows[] = { { "adam", G, S + 2, S + 6 }, { "squares of another gradient", OTHER, S + 2, S + 6 }, { "the moment as it was", G, M, S + 6 }, { "the squares as they were", G, S + 2, V } };
    for (size_t i = 0; i < COUNT(rows); i++)
        for (int64_t n = 1; n < 3000; n = 7 * n + 40)
            for (int turned = 0; turned < 2; turned++) {
                prog g;
                prog_open(&g, &numerics_cpu);
                int64_t ts[5 + INPUTS] = { 0, 0, 0, -1, INPUTS };
                for (int k = 0; k < INPUTS; k++) {
                    double *x = numbers(n, TAME, 1);
                    for (int64_t j = 0; j < n; j++) x[j] = k == V || k >= FULL ? fabs(x[j]) + 0.1 : x[j];
                    ts[5 + k] = prog_in(&g, DT_F32, k < FULL ? &n : &(int64_t){ 1 }, 1, x);
                    free(x);
                }
                for (int k = 0; k < 3; k++) ts[k] = prog_out(&g, DT_F32, &n, 1);
#define STEP(f, a, b, c) FN_##f, a, b, c, -1, DT_F32
                prog_insn(&g, IN_EWS, ts, (uint32_t)COUNT(ts),
                          INTS(2, turned ? 2 : 6, turned ? 6 : 2, 10 * CHAIN_STEP, STEP(MUL, M, KEEP, -1), STEP(MUL, G, TAKE, -1), STEP(ADD, S, S + 1, -1), STEP(MUL, rows[i].gradient, rows[i].gradient, -1),
                               STEP(MUL, S + 3, TAKE, -1), STEP(MUL, V, KEEP, -1), STEP(ADD, S + 4, S + 5, -1), STEP(ROOT_DIV, rows[i].moment, rows[i].square, EPS), STEP(MUL, S + 7, TAKE, -1), STEP(SUB, W, S + 8, -1)), REALS(0));
#undef STEP
                compare(&g, rows[i].what, 2e-6, 1);
                prog_close(&g);
            }
}

/* A truth is told from what has not been rounded: fp32 has no such numbers. */
static void test_truth(void **state)
{
    (void)state;
    static const struct {
        fn_id f;
        double x, z;
    } rows[] = { { FN_SQUARE, 1e-30, 0 }, { FN_EXP, -200, 0 }, { FN_DIV, 1e-30, 1e30 }, { FN_SIGMOID, -200, 0 }, { FN_SQUARE, 0, 0 } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        prog g;
        prog_open(&g, &numerics_cpu);
        const bool two = fn_operands(rows[i].f) > 1;
        int64_t x = prog_in(&g, DT_F32, DIMS(1), &rows[i].x), z = prog_in(&g, DT_F32, DIMS(1), &rows[i].z), y = prog_out(&g, DT_BOOL, DIMS(1));
        prog_insn(&g, IN_EW, INTS(y, 2, x, z), INTS(CHAIN_STEP, rows[i].f, 0, two ? 1 : -1, -1, -1, DT_BOOL), REALS(0));
        compare(&g, fn_name(rows[i].f), 0, 0);
        prog_close(&g);
    }
}

/* Quicker forms for what becomes 16 bits: not where a difference shows their error, and not for one of two results that must agree. */
static void test_half_forms(void **state)
{
    (void)state;
    enum { N = 3000 };
    prog g;
    prog_open(&g, &numerics_cpu);
    int64_t x = input(&g, DT_F32, DIMS(N), TAME, 1e-2), one = prog_in(&g, DT_F32, DIMS(1), VALUES(1));
    int64_t less = prog_out(&g, DT_F16, DIMS(N)), alone = prog_out(&g, DT_F16, DIMS(N)), wide = prog_out(&g, DT_F32, DIMS(N)), beside = prog_out(&g, DT_F16, DIMS(N));
    prog_insn(&g, IN_EW, INTS(less, 2, x, one), INTS(2 * CHAIN_STEP, FN_EXP, 0, -1, -1, -1, DT_F16, FN_SUB, 2, 1, -1, -1, DT_F16), REALS(0));
    prog_insn(&g, IN_EW, INTS(alone, 1, x), INTS(CHAIN_STEP, FN_EXP, 0, -1, -1, -1, DT_F32), REALS(0));
    prog_insn(&g, IN_EWS, INTS(wide, beside, -1, -1, 1, x), INTS(1, 0, 2 * CHAIN_STEP, FN_EXP, 0, -1, -1, -1, DT_F32, FN_COPY, 1, -1, -1, -1, DT_F32), REALS(0));
    compare(&g, "half forms", 2e-6, 1e-3);
    prog_run(&g, false);
    assert_memory_equal(g.out_bytes[1], g.out_bytes[3], N * sizeof(uint16_t));
    prog_close(&g);
}

/* Results so large that they are written past the caches, at the beginning of a line of it and elsewhere. */
static void test_past(void **state)
{
    (void)state;
    enum { N = 32 << 20, LINE = 64 }; /* bytes: more than eight times any second cache at hand */
    const int64_t floats = N / (int64_t)sizeof(float), bools = N;
    for (int off = 0; off < 2; off++) {
        prog g;
        image *im = NULL;
        diag d = { 0 };
        prog_open(&g, &numerics_cpu);
        int64_t x = prog_in(&g, DT_F32, DIMS(floats), NULL), b = prog_in(&g, DT_BOOL, DIMS(bools), NULL), y = prog_out(&g, DT_F32, DIMS(floats)), z = prog_out(&g, DT_BOOL, DIMS(bools));
        prog_insn(&g, IN_EW, INTS(y, 1, x), INTS(2 * CHAIN_STEP, FN_SQUARE, 0, -1, -1, -1, DT_F32, FN_ADD, 1, 0, -1, -1, DT_F32), REALS(0));
        prog_insn(&g, IN_EW, INTS(z, 1, b), INTS(CHAIN_STEP, FN_NOT, 0, -1, -1, -1, DT_BOOL), REALS(0));
        unsigned char *mem = aligned_alloc(LINE, 2 * (N + LINE));
        assert_non_null(mem);
        float *to = (float *)(void *)(mem + off * (int)sizeof(float)), *from = (float *)(void *)g.in[0];
        bool *truths = (bool *)(mem + N + LINE + off);
        for (int64_t i = 0; i < floats; i++) from[i] = (float)(i % 1000);
        for (int64_t i = 0; i < bools; i++) g.in[1][i] = i % 3 == 0;
        assert_ok(image_load(&im, g.p, NULL, &(image_options){ .pool = pools[1] }, &d), d);
        assert_ok(image_run(im, (const void *const *)g.in, (void *const[]){ to, truths }, &d), d);
        for (int64_t i = 0; i < floats; i++)
            if (to[i] != from[i] * from[i] + from[i]) fail_msg("element %lld is %g", (long long)i, (double)to[i]);
        for (int64_t i = 0; i < bools; i++)
            if (truths[i] != (i % 3 != 0)) fail_msg("truth %lld is %d", (long long)i, truths[i]);
        image_free(im);
        free(mem);
        prog_close(&g);
    }
}

/* Every function alone, over all of fp16 on a chip. */
static void test_functions(void **state)
{
    (void)state;
    enum { ALL = 1 << 16 };
    double *x = calloc(ALL, sizeof *x);
    assert_non_null(x);
    for (size_t dev = 0; dev < COUNT(devices); dev++)
        for (fn_id f = 0; f < FN_COUNT; f++) {
            if (devices[dev].num == &chip_m4) continue; /* chains are as on m5 */
            bool cpu = devices[dev].num == &numerics_cpu, loose = cpu && !is_exact(f);
            int64_t n = devices[dev].num != &chip_m1 || fn_operands(f) > 1 ? 3000 : ALL;
            prog g;
            prog_open(&g, devices[dev].num);
            int64_t t[8] = { 0, fn_operands(f) }, step[7] = { CHAIN_STEP, (int64_t)f, -1, -1, -1, 0, DT_F16 };
            double p[3] = { fn_params(f), 0.25, 3 };
            for (int j = 0; j < fn_operands(f); j++) {
                for (int64_t i = 0; i < n; i++) x[i] = n == ALL ? f16_to_f64((uint16_t)i) : number(loose ? TAME : WILD, 12);
                t[2 + j] = prog_in(&g, DT_F16, DIMS(n), x), step[2 + j] = j;
            }
            t[0] = prog_out(&g, cpu ? DT_F32 : DT_F16, DIMS(n));
            prog_insn(&g, IN_EW, t, 2 + (uint32_t)fn_operands(f), step, 7, p, 1 + (uint32_t)fn_params(f));
            compare(&g, fn_name(f), loose ? 2e-6 : 0, 1e-3);
            prog_close(&g);
        }
    free(x);
}

/* The logarithm of nothing: what the epsilon says, be it as small as the default one, which no sum of normal numbers holds. */
static void test_log_of_zero(void **state)
{
    (void)state;
    static const double eps[] = { 1e-45, 0, 0.25, 0x1p-126 };
    for (size_t e = 0; e < COUNT(eps); e++)
        for (int64_t n = 1; n < 2000; n = 3 * n + 2) {
            double x[2000];
            for (int64_t i = 0; i < n; i++) x[i] = i % 3 == 1 ? 0 : i % 3 == 2 && eps[e] >= 0x1p-126 ? -eps[e] : rng_range(&R, 0, 4);
            prog g;
            prog_open(&g, &numerics_cpu);
            int64_t tx = prog_in(&g, DT_F32, DIMS(n), x), y = prog_out(&g, DT_F32, DIMS(n)), z = prog_out(&g, DT_F16, DIMS(n));
            prog_insn(&g, IN_EW, INTS(y, 1, tx), INTS(CHAIN_STEP, FN_LOG, 0, -1, -1, 0, DT_F32), REALS(1, eps[e]));
            /* weighed by what it is the logarithm of, as an entropy is */
            prog_insn(&g, IN_EW, INTS(z, 1, tx), INTS(2 * CHAIN_STEP, FN_LOG, 0, -1, -1, 0, DT_F16, FN_MUL, 0, 1, -1, -1, DT_F16), REALS(1, eps[e]));
            compare(&g, "log of zero", 2e-6, 1e-3);
            prog_close(&g);
        }
}

static void test_cast_fill(void **state)
{
    (void)state;
    static const dtype types[] = { DT_F16, DT_F32, DT_BF16, DT_BOOL, DT_I8, DT_U8, DT_I16, DT_U16, DT_I32, DT_I64, DT_U4, DT_F64, DT_E4M3 };
    for (int round = 0; round < 200; round++) {
        size_t dev = rng_below(&R, COUNT(devices));
        prog g;
        prog_open(&g, devices[dev].num);
        int64_t n = upto(1, 3000), x = input(&g, types[rng_below(&R, COUNT(types))], DIMS(n), WILD, 300);
        int64_t y = prog_out(&g, types[rng_below(&R, COUNT(types))], DIMS(1, n)), z = prog_out(&g, types[rng_below(&R, COUNT(types))], DIMS(n));
        prog_insn(&g, IN_CAST, INTS(y, x), NO_INTS, NO_REALS);
        prog_insn(&g, IN_FILL, INTS(z), NO_INTS, REALS(number(WILD, 100)));
        compare(&g, devices[dev].name, 0, 0);
        prog_close(&g);
    }
}

/* ---- products ---- */

typedef struct {
    const numerics *num;
    const char *name;
    mood m;
    double scale, tol, least;
    dtype t;
} setting;

/* On the plain processor sums are compared with room for another order of rounding: 2^-24 per addition of terms below scale^2. */
static setting random_setting(int64_t k)
{
    size_t dev = rng_below(&R, COUNT(devices));
    bool cpu = devices[dev].num == &numerics_cpu;
    setting s = { .num = devices[dev].num, .name = devices[dev].name, .m = !cpu && chance(30) ? WILD : TAME, .t = chance(60) ? DT_F16 : any_float() };
    s.scale = chance(25) ? 60 : chance(50) ? 4 : 1;
    s.tol = cpu ? 4e-7 * (double)k : 0, s.least = s.scale * s.scale;
    return s;
}

/* An epilogue for a result y: half of the time what the matrix kernel can do by itself. */
static int64_t random_epilogue(prog *g, const setting *s, links *l, int64_t *t, const int64_t *y, int rank, int channel)
{
    int64_t n = 0;
    int at = 0;
    if (chance(40)) {
        int64_t d[ENGINE_MAX_RANK];
        n = upto(0, 2);
        for (int64_t k = 0; k < n; k++) {
            int r = broadcast_dims(y, rank, d);
            t[k] = input(g, s->t, d, r, s->m, 2);
        }
        random_links(l, (int)n + 1, (int)upto(0, 4), true);
        for (int64_t k = 0; k < l->steps[0]; k += CHAIN_STEP) { /* steps are not continuous: on the plain processor they would magnify the tolerance */
            fn_id f = (fn_id)l->steps[1 + k];
            if (s->tol != 0 && !(f <= FN_SUB || f == FN_MAX || f == FN_MIN || f == FN_ABS || f == FN_RELU || f == FN_CLIP)) {
                l->steps[0] = k;
                break;
            }
            if (s->tol != 0) l->steps[1 + k + STEP_TYPE] = DT_F32;
        }
        return n;
    }
    l->params[0] = 0;
    int64_t chan[ENGINE_MAX_RANK];
    for (int i = 0; i < rank; i++) chan[i] = i == channel ? y[i] : 1;
    struct {
        fn_id f;
        int kind; /* 0 none, 1 per channel, 2 whole */
    } want[4] = { { FN_MUL, 1 }, { FN_ADD, 1 }, { chance(50) ? FN_RELU : s->tol != 0 ? FN_TANH : FN_SILU, 0 }, { FN_ADD, 2 } };
    for (int k = 0; k < 4; k++) {
        if (chance(50)) continue;
        if (want[k].kind) t[n++] = input(g, s->t, want[k].kind == 1 ? chan : y, rank, s->m, 2);
        int64_t *q = l->steps + 1 + at * CHAIN_STEP;
        q[STEP_FN] = want[k].f, q[STEP_A] = at ? -2 : 0, q[STEP_A + 1] = want[k].kind ? n : -1, q[STEP_A + 2] = -1, q[STEP_PARAM] = -1;
        q[STEP_TYPE] = s->tol != 0 ? DT_F32 : s->t;
        at++;
    }
    for (int k = 1; k < at; k++) l->steps[1 + k * CHAIN_STEP + STEP_A] = 1 + n + k - 1;
    l->steps[0] = at * CHAIN_STEP;
    return n;
}

static void test_matmul(void **state)
{
    (void)state;
    for (int round = 0; round < 250; round++) {
        int64_t m = upto(1, chance(20) ? 70 : 20), n = upto(1, chance(20) ? 70 : 20), k = upto(1, chance(10) ? 500 : 40), tx = chance(50), tz = chance(50);
        setting s = random_setting(k);
        prog g;
        links l;
        prog_open(&g, s.num);
        int64_t y[4], x[4], z[4], t[8], fields[80] = { tx, tz };
        int rank = (int)upto(2, 4), lead = rank - 2, rx = rank, rz = rank;
        for (int i = 0; i < lead; i++) y[i] = upto(1, 4), x[i] = chance(80) ? y[i] : 1, z[i] = chance(60) ? y[i] : 1;
        y[lead] = m, y[lead + 1] = n;
        x[lead + (tx ? 1 : 0)] = m, x[lead + (tx ? 0 : 1)] = k, z[lead + (tz ? 1 : 0)] = k, z[lead + (tz ? 0 : 1)] = n;
        if (chance(40)) z[0] = z[lead], z[1] = z[lead + 1], rz = 2;
        t[0] = 0;
        t[1] = either(&g, chance(30), s.t, x, rx, s.m, s.scale), t[2] = either(&g, chance(40), chance(90) ? s.t : any_float(), z, rz, s.m, s.scale);
        t[3] = random_epilogue(&g, &s, &l, t + 4, y, rank, chance(50) ? rank - 1 : rank - 2);
        t[0] = prog_out(&g, chance(80) ? s.t : any_float(), y, rank);
        memcpy(fields + 2, l.steps, n_of(&l) * sizeof *fields);
        prog_insn(&g, IN_MATMUL, t, 4 + (uint32_t)t[3], fields, 2 + n_of(&l), l.params, m_of(&l));
        compare(&g, s.name, s.tol, s.least);
        prog_close(&g);
    }
}

/* A sum of squares is as far off as its terms, 2 y times their error each; where y is small beside its operands, that counts by the number
 * of terms. The same bits for one and two threads. */
static void test_squares(void **state)
{
    (void)state;
    for (int round = 0; round < 120; round++) {
        int64_t m = upto(1, chance(50) ? 90 : 20), n = upto(1, chance(50) ? 150 : 20), k = upto(1, chance(10) ? 500 : 40), tx = chance(50), tz = chance(50), stack = chance(70) ? 1 : upto(2, 4);
        setting s = random_setting(k);
        prog g;
        links l;
        prog_open(&g, s.num);
        int64_t y[3] = { stack, m, n }, x[3] = { stack, tx ? k : m, tx ? m : k }, z[3] = { chance(50) ? stack : 1, tz ? n : k, tz ? k : n }, t[10], fields[80] = { tx, tz };
        t[2] = either(&g, chance(20), s.t, x, 3, s.m, s.scale), t[3] = either(&g, chance(20), s.t, z, 3, s.m, s.scale);
        t[4] = chance(50) ? 0 : random_epilogue(&g, &s, &l, t + 5, y, 3, chance(50) ? 2 : 1);
        if (!t[4]) l.steps[0] = 0, l.params[0] = 0;
        t[0] = prog_out(&g, DT_F32, y, 3), t[1] = prog_out(&g, DT_F32, DIMS(1));
        memcpy(fields + 2, l.steps, n_of(&l) * sizeof *fields);
        prog_insn(&g, IN_MATMUL_SQUARES, t, 5 + (uint32_t)t[4], fields, 2 + n_of(&l), l.params, m_of(&l));
        const double count = (double)(stack * m * n);
        compare(&g, s.name, s.tol == 0 ? 0 : 8 * s.tol + count * 1.2e-7, count * s.least * s.least);
        image *im = NULL;
        diag d = { 0 };
        float sum[2];
        for (int p = 0; p < 2; p++) {
            assert_ok(image_load(&im, g.p, NULL, &(image_options){ .pool = pools[p] }, &d), d);
            assert_ok(image_run(im, (const void *const *)g.in, (void *const *)g.out_bytes, &d), d);
            memcpy(&sum[p], g.out_bytes[1], sizeof *sum);
            image_free(im);
        }
        assert_memory_equal(&sum[0], &sum[1], sizeof *sum);
        prog_close(&g);
    }
}

static void test_conv(void **state)
{
    (void)state;
    for (int round = 0; round < 250; round++) {
        bool back = chance(30);
        int n = (int)upto(1, 3), rank = n + 2;
        int64_t groups = chance(70) ? 1 : upto(2, 3), ci = upto(1, chance(20) ? 40 : 6), co = upto(1, chance(20) ? 30 : 6), x[5], w[5], y[5], k = ci;
        int64_t stride[3], pad[6], dil[3], fields[120], at = 0, t[8];
        x[0] = y[0] = upto(1, 2), x[1] = ci * groups, y[1] = co * groups;
        w[0] = back ? ci * groups : co * groups, w[1] = back ? co : ci;
        bool plain = chance(40);
        for (int i = 0; i < n; i++) {
            int64_t wide = upto(1, n == 1 ? 90 : 12);
            w[2 + i] = plain ? 1 : upto(1, 3), stride[i] = plain ? 1 : upto(1, 2), dil[i] = plain ? 1 : upto(1, 2);
            pad[2 * i] = plain ? 0 : upto(0, 2), pad[2 * i + 1] = plain ? 0 : upto(0, 2);
            int64_t reach = (w[2 + i] - 1) * dil[i] + 1;
            wide = MAX(wide, reach);
            int64_t narrow = (wide + pad[2 * i] + pad[2 * i + 1] - reach) / stride[i] + 1;
            x[2 + i] = back ? narrow : wide, y[2 + i] = back ? wide : narrow;
            k *= w[2 + i];
        }
        setting s = random_setting(k);
        prog g;
        links l;
        prog_open(&g, s.num);
        t[1] = input(&g, s.t, x, rank, s.m, s.scale), t[2] = either(&g, back || chance(70), s.t, w, rank, s.m, s.scale);
        t[3] = random_epilogue(&g, &s, &l, t + 4, y, rank, 1);
        t[0] = prog_out(&g, chance(80) ? s.t : any_float(), y, rank);
        fields[at++] = n;
        for (int i = 0; i < n; i++) fields[at++] = stride[i];
        fields[at++] = 2 * n;
        for (int i = 0; i < 2 * n; i++) fields[at++] = pad[i];
        fields[at++] = n;
        for (int i = 0; i < n; i++) fields[at++] = dil[i];
        fields[at++] = groups;
        memcpy(fields + at, l.steps, n_of(&l) * sizeof *fields);
        prog_insn(&g, back ? IN_CONV_T : IN_CONV, t, 4 + (uint32_t)t[3], fields, (uint32_t)at + n_of(&l), l.params, m_of(&l));
        compare(&g, s.name, s.tol, s.least);
        prog_close(&g);
    }
}

/* ---- along axes ---- */

static int random_axes(const int64_t *d, int rank, int64_t *axes) /* mostly a run of them */
{
    int n = 0, first = (int)upto(0, rank - 1), last = (int)upto(first, rank - 1);
    (void)d;
    for (int i = 0; i < rank; i++)
        if (chance(10) ? chance(50) : i >= first && i <= last) axes[n++] = i;
    return n;
}

static void lines_dims(int64_t *d, int rank)
{
    for (int i = 0; i < rank; i++) d[i] = chance(15) ? 1 : upto(1, chance(10) ? 150 : 9);
    if (chance(5)) d[rank - 1] = upto(1000, 2500);
}

static void test_lines(void **state)
{
    (void)state;
    for (int round = 0; round < 500; round++) {
        int rank = (int)upto(1, 4), what = (int)upto(0, 2);
        int64_t d[4], axes[4], y[4], fields[8], ny = 1, n = 1;
        lines_dims(d, rank);
        int na = random_axes(d, rank, axes);
        for (int i = 0; i < na; i++) n *= d[axes[i]];
        setting s = random_setting(n);
        prog g;
        prog_open(&g, s.num);
        bool cpu = s.tol != 0;
        int64_t x = input(&g, chance(95) ? s.t : DT_I8, d, rank, cpu ? TAME : s.m, s.scale), t;
        dtype out = chance(80) ? s.t : any_float();
        fields[0] = na;
        memcpy(fields + 1, axes, sizeof axes);
        if (what == 0) {
            t = prog_out(&g, out, d, rank);
            prog_insn(&g, IN_SOFTMAX, INTS(t, x), INTS(na ? axes[0] : 0), NO_REALS);
            compare(&g, s.name, cpu ? 1e-5 : 0, 1e-4);
        } else if (what == 1) {
            int64_t par[2] = { -1, -1 }, p[4];
            for (int k = 0; k < 2; k++) {
                if (chance(40)) continue;
                int r = broadcast_dims(d, rank, p);
                par[k] = either(&g, chance(50), s.t, p, r, s.m, 2);
            }
            t = prog_out(&g, out, d, rank);
            fields[1 + na] = upto(0, NORM_COUNT - 1);
            prog_insn(&g, IN_NORM, INTS(t, x, par[0], par[1]), fields, 2 + (uint32_t)na, REALS(chance(50) ? 1e-5 : 1e-2));
            compare(&g, s.name, cpu ? 1e-4 : 0, 1);
        } else {
            int kept = 0;
            for (int i = 0, on = 0; i < rank; i++) {
                if (on < na && axes[on] == i) on++;
                else y[kept++] = d[i], ny *= d[i];
            }
            if (!kept) y[kept++] = 1;
            t = prog_out(&g, out, y, kept);
            fields[1 + na] = upto(0, RED_COUNT - 1);
            prog_insn(&g, IN_REDUCE, INTS(t, x), fields, 2 + (uint32_t)na, NO_REALS);
            compare(&g, s.name, cpu ? MAX(s.tol, 1e-5) : 0, s.least);
        }
        prog_close(&g);
    }
}

/* Sums of products both ways, with and without factors: near the reference, and the same bits for any number of threads. */
static void test_sums(void **state)
{
    (void)state;
    for (int round = 0; round < 80; round++) {
        const size_t dev = chance(80) ? 0 : rng_below(&R, COUNT(devices));
        const int64_t n = upto(1, chance(30) ? 200 : 20), m = upto(1, chance(30) ? 300 : 40);
        const dtype t = chance(80) ? DT_F32 : any_float();
        const int want = upto(1, 3); /* columns, rows, both */
        prog g;
        prog_open(&g, devices[dev].num);
        const int64_t a = input(&g, t, DIMS(n, m), TAME, 1), b = input(&g, t, DIMS(n, m), TAME, 1), by[2] = { chance(50) ? input(&g, t, DIMS(n), TAME, 1) : -1, chance(50) ? input(&g, t, DIMS(m), TAME, 1) : -1 };
        const int64_t cols = want & 1 ? prog_out(&g, DT_F32, DIMS(m)) : -1, rows = want & 2 ? prog_out(&g, DT_F32, DIMS(n)) : -1;
        prog_insn(&g, IN_SUMS, INTS(cols, rows, a, b, by[0], by[1]), NULL, 0, NO_REALS);
        compare(&g, devices[dev].name, devices[dev].num == &numerics_cpu ? 1e-6 * (double)MAX(n, m) : 0, 1);
        same_on_threads(&g, "sums");
        prog_close(&g);
    }
}

/* Lines so long that threads share one, in one run or in one of every batch: near the reference, and the same bits for any number
 * of threads. */
static void test_long_lines(void **state)
{
    static const struct {
        int64_t d[3];
        int n_axes;
        int64_t axes[2];
    } rows[] = { { { 1, 1, 70001 }, 1, { 2 } }, { { 3, 2, 17003 }, 2, { 0, 2 } }, { { 40, 5, 33 }, 2, { 0, 2 } } };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++)
        for (int kind = 0; kind < RED_COUNT; kind++)
            for (size_t dev = 0; dev < COUNT(devices); dev++) {
                bool cpu = devices[dev].num == &numerics_cpu;
                int64_t n = 1, keep = rows[i].n_axes == 1 ? 1 : rows[i].d[1], fields[8] = { rows[i].n_axes };
                for (int k = 0; k < rows[i].n_axes; k++) fields[1 + k] = rows[i].axes[k], n *= rows[i].d[rows[i].axes[k]];
                fields[1 + rows[i].n_axes] = kind;
                prog g;
                prog_open(&g, devices[dev].num);
                int64_t x = input(&g, DT_F16, rows[i].d, 3, TAME, 1);
                prog_insn(&g, IN_REDUCE, INTS(prog_out(&g, DT_F32, &keep, 1), x), fields, 2 + (uint32_t)rows[i].n_axes, NO_REALS);
                compare(&g, devices[dev].name, cpu ? 4e-7 * (double)n : 0, 1);
                unsigned char bytes[COUNT(pools)][64] = { { 0 } };
                for (size_t p = 0; p < COUNT(pools); p++) {
                    image *im = NULL;
                    diag d = { 0 };
                    void *out = bytes[p];
                    assert_ok(image_load(&im, g.p, NULL, &(image_options){ .pool = pools[p] }, &d), d);
                    assert_ok(image_run(im, (const void *const *)g.in, &out, &d), d);
                    image_free(im);
                    assert_memory_equal(bytes[0], bytes[p], sizeof bytes[0]);
                }
                prog_close(&g);
            }
}

/* Softmax and norms of many lines, side by side or behind each other, on the plain processor: near the reference, and the same bits
 * for any number of threads. */
static void test_many_lines(void **state)
{
    enum { KINDS = 1 + NORM_COUNT };
    static const struct {
        int64_t d[3], axis;
    } rows[] = { { { 1, 70, 300 }, 2 }, { { 3, 37, 1024 }, 2 }, { { 1, 5, 4099 }, 2 }, { { 1, 130, 64 }, 2 }, { { 2, 97, 640 }, 1 }, { { 9, 40, 130 }, 1 }, { { 1, 700, 1000 }, 1 }, { { 1, 1100, 1030 }, 1 }, { { 2, 3, 64 }, 1 }, { { 4, 2100, 70 }, 1 } };
    static const dtype types[] = { DT_F16, DT_F32 };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++)
        for (int k = 0; k < 4 * KINDS; k++) {
            const int kind = k / 4 - 1;
            const dtype tx = types[k % 2], ty = types[k / 2 % 2];
            const int64_t *d = rows[i].d, n = d[0] * d[1] * d[2], par[] = { d[1], 1 };
            if (n > 1 << 19 && tx != ty) continue; /* the reference takes its time */
            prog g;
            prog_open(&g, &numerics_cpu);
            int64_t x = input(&g, tx, d, 3, TAME, 2), y;
            if (kind < 0) y = prog_out(&g, ty, d, 3), prog_insn(&g, IN_SOFTMAX, INTS(y, x), INTS(rows[i].axis), NO_REALS);
            else {
                int64_t gain = rows[i].axis == 1 ? either(&g, true, tx, par, 2, TAME, 2) : -1;
                y = prog_out(&g, ty, d, 3);
                prog_insn(&g, IN_NORM, INTS(y, x, gain, -1), INTS(1, rows[i].axis, kind), REALS(1e-5));
            }
            compare(&g, kind < 0 ? "softmax" : "norm", tx == DT_F16 || ty == DT_F16 ? 1e-3 : 1e-5, kind < 0 ? 1e-3 : 1);
            size_t bytes = (size_t)n * (size_t)dtype_bits(ty) / 8;
            unsigned char *got[COUNT(pools)];
            for (size_t p = 0; p < COUNT(pools); p++) {
                image *im = NULL;
                diag e = { 0 };
                void *out = got[p] = malloc(bytes);
                assert_non_null(out);
                assert_ok(image_load(&im, g.p, NULL, &(image_options){ .pool = pools[p] }, &e), e);
                assert_ok(image_run(im, (const void *const *)g.in, &out, &e), e);
                image_free(im);
                assert_memory_equal(got[0], got[p], bytes);
            }
            for (size_t p = 0; p < COUNT(pools); p++) free(got[p]);
            prog_close(&g);
        }
}

/* Products of one value, one after the other: what the first packed serves the others, unless the value changes in between. */
static void test_siblings(void **state)
{
    (void)state;
    for (int round = 0; round < 80; round++) {
        const bool long_sums = round < 4; /* too long for A to be packed in passing */
        int64_t m = upto(1, 60), k = long_sums ? 2100 : upto(1, 200), n = upto(1, chance(30) ? 6 : chance(30) && !long_sums ? 400 : 60);
        const bool group = round % 8 == 4; /* more than are summed at once */
        if (group) n = 2;
        setting s = random_setting(k);
        if (chance(50)) s.num = &numerics_cpu, s.name = "cpu", s.m = TAME, s.t = DT_F32, s.tol = 4e-7 * (double)k;
        prog g;
        prog_open(&g, s.num);
        bool changes = !group && chance(20), behind = chance(40);
        int64_t x = input(&g, s.t, DIMS(k, n), TAME, s.scale), z = changes ? prog_scratch(&g, s.t, DIMS(k, n)) : x;
        for (int i = 0, many = group ? 6 : (int)upto(3, 6); i < many; i++) {
            if (changes) prog_insn(&g, IN_EW, INTS(z, 1, x), INTS(CHAIN_STEP, i == 1 ? FN_ABS : FN_RELU, 0, -1, -1, -1, s.t), REALS(0));
            bool turned = !group && chance(15);
            int64_t seen = z, deep = !turned && !group && chance(15) ? upto(1, k) : k, high = chance(70) ? m : upto(1, 60);
            if (turned || deep < k) { /* the same memory read sideways, or the beginning of it */
                seen = prog_tensor(&g, s.t, g.p->tensors.at[z].where, g.p->tensors.at[z].slot, turned ? (const int64_t[]){ n, k } : (const int64_t[]){ deep, n }, 2);
                g.p->tensors.at[seen].offset = g.p->tensors.at[z].offset;
            }
            int64_t a = either(&g, group || (long_sums ? i % 2 : chance(80)), s.t, DIMS(high, deep), TAME, s.scale), y = prog_out(&g, DT_F32, DIMS(high, n));
            if (g.p->tensors.at[a].where == SPACE_CONST && chance(20)) { /* it only moves rows, or all but one */
                const int64_t none = chance(30) ? upto(0, high - 1) : -1;
                unsigned char *at = (unsigned char *)(uintptr_t)g.p->data + g.p->consts.at[g.p->tensors.at[a].slot].src[0].offset;
                for (int64_t j = 0; j < high * deep; j++) dtype_store(s.t, at, j, j / deep != none && j % deep == j / deep * 3 % deep ? 1 : 0);
            }
            prog_insn(&g, IN_MATMUL, INTS(y, a, seen, 0), INTS(0, turned, behind ? CHAIN_STEP : 0, FN_ABS, 0, -1, -1, -1, DT_F32), REALS(0));
            if (!behind) g.p->insns.at[g.p->insns.n - 1].n_i = 3;
        }
        compare(&g, s.name, s.tol, s.least);
        prog_close(&g);
    }
}

/* Two convolutions of one value with as many places, one of which steps over some and pads. */
static void test_conv_siblings(void **state)
{
    (void)state;
    for (int turned = 0; turned < 2; turned++) {
        prog g;
        prog_open(&g, &numerics_cpu);
        int64_t x = input(&g, DT_F32, DIMS(1, 8, 1, 3), TAME, 1);
        for (int i = 0; i < 2; i++) {
            const int64_t by = i == turned ? 2 : 1, pad = by - 1;
            int64_t w = constant(&g, DT_F32, DIMS(6, 8, 1, 1), TAME, 1), y = prog_out(&g, DT_F32, DIMS(1, 6, 1, 3));
            prog_insn(&g, IN_CONV, INTS(y, x, w, 0), INTS(2, 1, by, 4, 0, 0, pad, pad, 2, 1, 1, 1, 0), REALS(0));
        }
        int64_t w = constant(&g, DT_F32, DIMS(6, 8, 1, 1), TAME, 1), y = prog_out(&g, DT_F32, DIMS(1, 6, 1, 4)); /* padded behind alone */
        prog_insn(&g, IN_CONV, INTS(y, x, w, 0), INTS(2, 1, 1, 4, 0, 0, 0, 1, 2, 1, 1, 1, 0), REALS(0));
        compare(&g, "siblings that step", 1e-5, 1);
        prog_close(&g);
    }
}

/* Stacks of constants: more than are looked through for one that is there already, and such as only move rows, each its own way. */
static void test_stacks(void **state)
{
    (void)state;
    static const int64_t counts[] = { 1, 2, 130 };
    for (size_t way = 0; way < 12 * COUNT(devices); way++) {
        const int64_t stacks = counts[way / 2 % 3], side = 6, wide = 100;
        const bool turned = way % 2, many = stacks > 2;
        const size_t dev = way / 12;
        const dtype t = way / 6 % 2 ? DT_F32 : DT_F16;
        prog g;
        prog_open(&g, devices[dev].num);
        int64_t a = constant(&g, DT_F32, DIMS(stacks, side, side), TAME, 1), y = turned ? prog_out(&g, DT_F32, DIMS(stacks, wide, side)) : prog_out(&g, DT_F32, DIMS(stacks, side, wide));
        for (int64_t i = 0; !many && i < stacks * side * side; i++) {
            const int64_t stack = i / side / side, row = i / side % side;
            dtype_store(DT_F32, (unsigned char *)(uintptr_t)g.p->data, i, (row + stack) % side != i % side ? 0 : row % 2 ? -1 : 1);
        }
        int64_t b = turned ? input(&g, t, DIMS(stacks, wide, side), TAME, 1) : input(&g, t, DIMS(stacks, side, wide), TAME, 1);
        prog_insn(&g, IN_MATMUL, INTS(y, turned ? b : a, turned ? a : b, 0), INTS(0, 0, CHAIN_STEP, FN_ABS, 0, -1, -1, -1, DT_F32), REALS(0));
        compare(&g, devices[dev].name, dev ? 0 : 1e-6, 1);
        prog_close(&g);
    }
}

/* Constants that change under a loaded image: those that are laid out anew, and a matrix that moved rows and then does not. */
static void test_reload(void **state)
{
    (void)state;
    enum { SIDE = 6, WIDE = 100, TURNS = 3 };
    prog g;
    image *im = NULL;
    diag d = { 0 };
    prog_open(&g, &numerics_cpu);
    int64_t w = constant(&g, DT_F32, DIMS(4, SIDE, 1, 3), TAME, 1), a = constant(&g, DT_F32, DIMS(SIDE, SIDE), TAME, 1);
    int64_t x = input(&g, DT_F32, DIMS(1, 4, 1, 10), TAME, 1), z = input(&g, DT_F32, DIMS(SIDE, WIDE), TAME, 1), y = prog_out(&g, DT_F32, DIMS(1, SIDE, 1, 12)), y2 = prog_out(&g, DT_F32, DIMS(SIDE, WIDE));
    prog_insn(&g, IN_CONV_T, INTS(y, x, w, 0), INTS(2, 1, 1, 4, 0, 0, 0, 0, 2, 1, 1, 1, 0), REALS(0));
    prog_insn(&g, IN_MATMUL, INTS(y2, a, z, 0), INTS(0, 0, CHAIN_STEP, FN_ABS, 0, -1, -1, -1, DT_F32), REALS(0));
    for (int turn = 0; turn <= TURNS; turn++) {
        float *ws = (float *)(uintptr_t)(g.p->data + g.p->consts.at[0].src[0].offset), *as = (float *)(uintptr_t)(g.p->data + g.p->consts.at[1].src[0].offset);
        for (int i = 0; i < 4 * SIDE * 3; i++) ws[i] = (float)number(TAME, 1);
        for (int i = 0; i < SIDE * SIDE; i++) as[i] = turn == 2 ? (float)number(TAME, 1) : (i / SIDE + turn) % SIDE == i % SIDE ? 1 : 0;
        if (turn) assert_ok(image_reload(im, NULL, &d), d);
        else assert_ok(image_load(&im, g.p, NULL, &(image_options){ .pool = pools[0] }, &d), d);
        prog_run(&g, true);
        double *want[2] = { g.out[0], g.out[1] };
        assert_ok(image_run(im, (const void *const *)g.in, (void *const *)g.out_bytes, &d), d);
        for (size_t k = 0; k < 2; k++) compare_port(&g, "reloaded", "", 1, k, want[k], (closeness){ .tol = 1e-5, .least = 1 });
    }
    image_free(im);
    prog_close(&g);
}

/* What the matrix kernel does behind a product, and what only looks like it: in another order, twice, or of something else. */
static void test_behind(void **state)
{
    (void)state;
    enum { SUM, U, Q, C, S, STEPS = 3, OPERANDS = 3 }; /* the product, two of its shape, one per channel, steps */
    static const struct {
        fn_id f;
        int a, b;
    } rows[][STEPS] = {
        { { FN_MUL, SUM, C }, { FN_ADD, S, C }, { FN_RELU, S + 1, -1 } }, { { FN_ADD, SUM, C }, { FN_RELU, S, -1 }, { FN_ADD, U, S + 1 } }, { { FN_SILU, U, -1 }, { FN_MUL, SUM, S }, { FN_ADD, S + 1, Q } },
        { { FN_RELU, SUM, -1 }, { FN_TANH, S, -1 } },  { { FN_TANH, SUM, -1 }, { FN_RELU, S, -1 } },   { { FN_RELU, U, -1 }, { FN_ADD, SUM, S } },       { { FN_RELU, U, -1 }, { FN_ADD, S, Q } },
        { { FN_ADD, SUM, U }, { FN_RELU, S, -1 } },    { { FN_ADD, SUM, U }, { FN_ADD, S, Q } },       { { FN_ADD, SUM, C }, { FN_MUL, S, C } },         { { FN_RELU, SUM, -1 }, { FN_ADD, S, C } },
        { { FN_ADD, SUM, U }, { FN_ADD, S, C } },      { { FN_ADD, SUM, C }, { FN_ADD, S, C } },       { { FN_MUL, SUM, C }, { FN_MUL, S, C } },         { { FN_SILU, U, -1 }, { FN_RELU, SUM, -1 } },
        { { FN_RELU, SUM, -1 }, { FN_ADD, S, SUM } },  { { FN_MUL, SUM, U }, { FN_RELU, S, -1 } },     { { FN_SILU, U, -1 }, { FN_ADD, SUM, S } },
        { { FN_ADD, SUM, U }, { FN_SILU, Q, -1 }, { FN_MUL, S, S + 1 } },   { { FN_SILU, U, -1 }, { FN_MUL, SUM, S }, { FN_RELU, S + 1, -1 } }, { { FN_SILU, U, -1 }, { FN_MUL, SUM, S }, { FN_MUL, S + 1, S } },
        { { FN_SILU, U, -1 }, { FN_MUL, SUM, S }, { FN_ADD, S + 1, C } },   { { FN_SILU, U, -1 }, { FN_SILU, Q, -1 }, { FN_MUL, SUM, S + 1 } }, { { FN_RELU, SUM, -1 }, { FN_SILU, U, -1 }, { FN_MUL, S, S + 1 } },
    };
    static const dtype types[] = { DT_F32, DT_F16, DT_BF16 };
    for (size_t i = 0; i < COUNT(rows); i++)
        for (int way = 0; way < 6; way++) {
            const dtype t = types[way / 2];
            const bool conv = way % 2;
            const int64_t k = 7, high = 5, wide = 33, y[] = { 1, high, 1, wide }, c[] = { 1, high, 1, 1 };
            const int from = conv ? 0 : 2; /* a product's shape is the last two axes, and one number for all of its rows */
            prog g;
            links l;
            prog_open(&g, &numerics_cpu);
            int64_t out = prog_out(&g, t, conv ? y : (const int64_t[]){ high, wide }, 4 - from), ts[4 + OPERANDS] = { out };
            ts[1] = conv ? input(&g, t, DIMS(1, k, 1, wide), TAME, 1) : input(&g, t, DIMS(high, k), TAME, 1);
            ts[2] = conv ? input(&g, t, DIMS(high, k, 1, 1), TAME, 1) : input(&g, t, DIMS(k, wide), TAME, 1);
            ts[3] = OPERANDS;
            for (int j = 0; j < 2; j++) ts[4 + j] = input(&g, t, conv ? y : (const int64_t[]){ high, wide }, 4 - from, TAME, 2);
            ts[4 + 2] = input(&g, t, conv ? c : (const int64_t[]){ 1, 1 }, 4 - from, TAME, 2);
            int n = 0;
            for (; n < STEPS && (n == 0 || rows[i][n].f); n++) {
                int64_t *step = l.steps + 1 + n * CHAIN_STEP;
                for (int j = 0; j < CHAIN_STEP; j++) step[j] = -1;
                step[STEP_FN] = rows[i][n].f, step[STEP_A] = rows[i][n].a, step[STEP_A + 1] = rows[i][n].b, step[STEP_TYPE] = DT_F32;
            }
            l.steps[0] = n * CHAIN_STEP, l.params[0] = 0;
            int64_t fields[64] = { 2, 1, 1, 4, 0, 0, 0, 0, 2, 1, 1, 1 };
            uint32_t at = 12; /* strides, pads, dilations, groups */
            if (!conv) at = 2, fields[0] = fields[1] = 0;
            memcpy(fields + at, l.steps, n_of(&l) * sizeof *fields);
            char what[32];
            snprintf(what, sizeof what, "row %zu, way %d", i, way);
            prog_insn(&g, conv ? IN_CONV : IN_MATMUL, ts, (uint32_t)COUNT(ts), fields, at + n_of(&l), l.params, m_of(&l));
            compare(&g, what, 1e-5, 4);
            prog_close(&g);
        }
}

/* Softmax of so much that it is written past the caches, in rows that end inside a line of it. */
static void test_past_lines(void **state)
{
    (void)state;
    enum { HIGH = 2050, WIDE = 4101 };
    for (int64_t axis = 0; axis < 2; axis++) {
        prog g;
        image *im = NULL;
        diag d = { 0 };
        prog_open(&g, &numerics_cpu);
        int64_t x = prog_in(&g, DT_F32, DIMS(HIGH, WIDE), NULL), y = prog_out(&g, DT_F32, DIMS(HIGH, WIDE));
        float *in = (float *)(void *)g.in[0];
        for (int64_t i = 0; i < HIGH * WIDE; i++) in[i] = (float)(i % 11);
        prog_insn(&g, IN_SOFTMAX, INTS(y, x), INTS(axis), NO_REALS);
        float *out = aligned_alloc(64, ROUND_UP(HIGH * WIDE * sizeof *out, (size_t)64));
        assert_non_null(out);
        assert_ok(image_load(&im, g.p, NULL, &(image_options){ .pool = pools[1] }, &d), d);
        assert_ok(image_run(im, (const void *const *)g.in, (void *const[]){ out }, &d), d);
        const int64_t lines = axis ? HIGH : WIDE, n = axis ? WIDE : HIGH, step = axis ? 1 : WIDE, apart = axis ? WIDE : 1;
        for (int64_t l = 0; l < lines; l++) {
            double sum = 0;
            for (int64_t i = 0; i < n; i++) sum += (double)out[l * apart + i * step];
            if (!(fabs(sum - 1) < 1e-4)) fail_msg("axis %d: line %lld sums to %g", (int)axis, (long long)l, sum);
        }
        image_free(im);
        free(out);
        prog_close(&g);
    }
}

/* Sums of exponentials along the axes each way takes, of lines that hold no number too. */
static void test_log_sum_exp(void **state)
{
    (void)state;
    static const struct {
        int64_t d[3], n_axes, axes[2];
    } rows[] = { { { 3, 4, 5 }, 2, { 0, 2 } }, { { 3, 4, 70 }, 2, { 0, 2 } }, { { 1, 6, 20 }, 1, { 1 } }, { { 1, 20, 6 }, 1, { 2 } }, { { 2, 20, 60 }, 1, { 2 } }, { { 2, 6, 100 }, 2, { 0, 1 } } };
    static const double odd[] = { -INFINITY, INFINITY, NAN };
    for (size_t i = 0; i < COUNT(rows); i++)
        for (int way = 0; way < 8; way++) {
            const int64_t *d = rows[i].d;
            const dtype t = way % 2 ? DT_F16 : DT_F32;
            int64_t y[3] = { d[0], d[1], d[2] }, fields[] = { rows[i].n_axes, rows[i].axes[0], rows[i].axes[1], RED_LOG_SUM_EXP };
            for (int64_t k = 0; k < rows[i].n_axes; k++) y[rows[i].axes[k]] = 1;
            if (rows[i].n_axes == 1) fields[2] = RED_LOG_SUM_EXP;
            prog g;
            prog_open(&g, &numerics_cpu);
            int64_t x = input(&g, t, d, 3, TAME, 4);
            for (int64_t at = 0; way / 2 && at < d[0] * d[1] * d[2]; at++) { /* the first line is nothing else, the second has one */
                int64_t idx[3] = { at / d[2] / d[1], at / d[2] % d[1], at % d[2] }, line = 0, place = 0;
                for (int a = 0; a < 3; a++) *(y[a] == 1 ? &place : &line) += idx[a];
                if (!line || (line == 1 && !place)) dtype_store(t, g.in[0], at, odd[way / 2 - 1]);
            }
            int64_t out = prog_out(&g, t, y, 3);
            prog_insn(&g, IN_REDUCE, INTS(out, x), fields, 2 + (uint32_t)rows[i].n_axes, NO_REALS);
            compare(&g, "log_sum_exp", 1e-5, 1);
            prog_close(&g);
        }
}

/* Gains of every shape, where as many lines stand side by side as each has elements. */
static void test_gains(void **state)
{
    (void)state;
    static const int64_t d[] = { 4, 4, 4 }, gains[][3] = { { 4, 1, 1 }, { 1, 4, 1 }, { 1, 1, 4 }, { 4, 4, 1 }, { 4, 1, 4 }, { 1, 4, 4 }, { 4, 4, 4 }, { 1, 1, 1 } };
    for (size_t i = 0; i < COUNT(gains); i++)
        for (int64_t way = 0; way < 3 * NORM_COUNT; way++) {
            prog g;
            prog_open(&g, &numerics_cpu);
            int64_t x = input(&g, DT_F32, d, 3, TAME, 2), gain = input(&g, DT_F32, gains[i], 3, TAME, 2), y = prog_out(&g, DT_F32, d, 3);
            prog_insn(&g, IN_NORM, INTS(y, x, gain, -1), INTS(1, way % 3, way / 3), REALS(1e-5));
            compare(&g, "gain", 1e-5, 1);
            prog_close(&g);
        }
}

/* ---- moving ---- */

/* Steps that lay a box out densely in a random order of axes, with gaps and turned round now and then; its span and start. */
static int64_t random_steps(const int64_t *d, int n, bool repeats, int64_t *step, int64_t *start)
{
    int order[6];
    int64_t span = 1;
    *start = 0;
    for (int i = 0; i < n; i++) order[i] = i;
    for (int i = n - 1; i > 0 && chance(80); i--) {
        int j = (int)upto(0, i), t = order[i];
        order[i] = order[j], order[j] = t;
    }
    for (int i = n - 1; i >= 0; i--) {
        int a = order[i];
        step[a] = span;
        span *= d[a] + (chance(20) ? upto(1, 3) : 0);
    }
    span += upto(0, 3);
    for (int i = 1; i < n; i++)
        if (repeats && chance(10)) step[i] = MIN(step[i], step[i - 1]);
    for (int i = 0; i < n; i++) {
        if (repeats && chance(10)) step[i] = 0;
        else if (chance(10)) *start += (d[i] - 1) * step[i], step[i] = -step[i];
    }
    return span;
}

static void test_move(void **state)
{
    (void)state;
    static const dtype types[] = { DT_F16, DT_F16, DT_F16, DT_F32, DT_BF16, DT_BOOL, DT_I8, DT_I16, DT_I32, DT_I64, DT_U4 };
    for (int round = 0; round < 400; round++) {
        size_t dev = rng_below(&R, COUNT(devices));
        prog g;
        prog_open(&g, devices[dev].num);
        int64_t d[4], ys[4], xs[4], y0, x0, fields[24], at = 0;
        int n = (int)upto(1, 4);
        dtype t = types[rng_below(&R, COUNT(types))];
        for (int i = 0; i < n; i++) d[i] = chance(10) ? 1 : upto(1, chance(15) ? 60 : 7);
        int64_t ny = random_steps(d, n, chance(20), ys, &y0), nx = random_steps(d, n, true, xs, &x0);
        int64_t x = input(&g, t, DIMS(nx), WILD, 5000), y = prog_out(&g, t, DIMS(ny));
        fields[at++] = n;
        for (int i = 0; i < n; i++) fields[at++] = d[i];
        fields[at++] = y0, fields[at++] = n;
        for (int i = 0; i < n; i++) fields[at++] = ys[i];
        fields[at++] = x0, fields[at++] = n;
        for (int i = 0; i < n; i++) fields[at++] = xs[i];
        fields[at++] = chance(30);
        prog_insn(&g, IN_MOVE, INTS(y, x), fields, (uint32_t)at, NO_REALS);
        compare(&g, devices[dev].name, 0, 0);
        prog_close(&g);
    }
}

/* Elements that are written more than once hold what came last, in the order of the axes. */
static void test_written_twice(void **state)
{
    (void)state;
    static const struct {
        int64_t size[2], y[2], x[2];
    } rows[] = { { { 9, 3 }, { 2, 2 }, { 2, 20 } }, { { 4, 5 }, { 1, 3 }, { 5, 1 } }, { { 4, 5 }, { 1, 2 }, { 5, 1 } }, { { 3, 8 }, { 1, 1 }, { 1, 3 } } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        prog g;
        prog_open(&g, &numerics_cpu);
        int64_t x = input(&g, DT_F32, DIMS(64), TAME, 1), y = prog_out(&g, DT_F32, DIMS(32));
        prog_insn(&g, IN_MOVE, INTS(y, x), INTS(2, rows[i].size[0], rows[i].size[1], 0, 2, rows[i].y[0], rows[i].y[1], 0, 2, rows[i].x[0], rows[i].x[1], 0), NO_REALS);
        compare(&g, "written twice", 0, 0);
        prog_close(&g);
    }
}

static void test_gather(void **state)
{
    (void)state;
    for (int round = 0; round < 150; round++) {
        size_t dev = rng_below(&R, COUNT(devices));
        prog g;
        prog_open(&g, devices[dev].num);
        int rank = (int)upto(1, 4), axis = (int)upto(0, rank - 1), batch = (int)upto(0, axis);
        int64_t x[4], ix[4], y[6], places = upto(1, 6), n = places, total = 1;
        int ni = 0, ny = 0;
        for (int i = 0; i < rank; i++) x[i] = upto(1, 9);
        for (int i = 0; i < batch; i++) ix[ni++] = x[i], n *= x[i];
        ix[ni++] = places;
        for (int i = 0; i < rank; i++) y[ny++] = i == axis ? places : x[i], total *= y[ny - 1];
        double *v = calloc((size_t)n, sizeof *v);
        assert_non_null(v);
        for (int64_t i = 0; i < n; i++) v[i] = (double)upto(-x[axis], x[axis] - 1);
        int64_t tx = input(&g, chance(70) ? DT_F16 : DT_F32, x, rank, WILD, 100), ti = prog_in(&g, chance(50) ? DT_I32 : DT_F16, ix, ni, v);
        int64_t ty = prog_out(&g, g.p->tensors.at[tx].dt, y, ny);
        prog_insn(&g, IN_GATHER, INTS(ty, tx, ti), INTS(axis, batch), NO_REALS);
        compare(&g, devices[dev].name, 0, 0);
        free(v);
        prog_close(&g);
    }
}

/* Rows by number: compiled in, by tuples, written by number. */
static void test_rows(void **state)
{
    (void)state;
    static const dtype types[] = { DT_F16, DT_F16, DT_F32, DT_BF16, DT_I8, DT_I32, DT_BOOL };
    for (int round = 0; round < 250; round++) {
        size_t dev = rng_below(&R, COUNT(devices));
        prog g;
        prog_open(&g, devices[dev].num);
        int64_t outer = upto(1, 5), n = upto(1, 9), inner = chance(40) ? 1 : upto(1, chance(20) ? 300 : 12), places = upto(1, 12), fields[20], k = upto(1, 3);
        dtype t = types[rng_below(&R, COUNT(types))];
        double index[64];
        switch (rng_below(&R, 3)) {
        case 0: { /* pick */
            int64_t x = input(&g, t, DIMS(outer, n, inner), WILD, 100);
            fields[0] = 1, fields[1] = places;
            for (int64_t i = 0; i < places; i++) fields[2 + i] = upto(0, n - 1);
            prog_insn(&g, IN_PICK, INTS(prog_out(&g, t, DIMS(outer, places, inner)), x), fields, 2 + (uint32_t)places, NO_REALS);
            break;
        }
        case 1: { /* gather_nd: x (outer, n, 3, inner), with and without outer as batch */
            int64_t batch = k == 3 ? 0 : upto(0, 1), lead = batch ? outer : 1, x = input(&g, t, DIMS(outer, n, 3, inner), WILD, 100);
            const int64_t dims[4] = { outer, n, 3, inner };
            for (int64_t i = 0; i < lead * places * k; i++) index[i % 64] = 0;
            places = MIN(places, 64 / (lead * k));
            for (int64_t i = 0; i < lead * places * k; i++) index[i] = (double)upto(-dims[batch + i % k], dims[batch + i % k] - 1);
            int64_t ix = batch ? prog_in(&g, DT_I32, DIMS(outer, places, k), index) : prog_in(&g, DT_I32, DIMS(places, k), index), d[6];
            int rank = 0;
            if (batch) d[rank++] = outer;
            d[rank++] = places;
            for (int64_t i = batch + k; i < 4; i++) d[rank++] = dims[i];
            prog_insn(&g, IN_GATHER_ND, INTS(prog_out(&g, t, d, rank), x, ix), INTS(batch), NO_REALS);
            break;
        }
        default: { /* scatter into a copy */
            const bool add = chance(50), turned = chance(40);
            if (add && (t == DT_BOOL || t == DT_I8 || t == DT_I32)) t = DT_F16;
            for (int64_t i = 0; i < places; i++) index[i] = (double)upto(-n, n - 1);
            int64_t run = upto(0, 2 * n); /* some beside each other, as the positions of a text are */
            for (int64_t i = 1; i < places && run < n; i++) index[i] = (double)(((int64_t)index[i - 1] + n + 1) % n);
            int64_t x = input(&g, t, DIMS(outer, n, inner), WILD, 100), u = turned ? input(&g, t, DIMS(outer, inner, places), WILD, 100) : input(&g, t, DIMS(outer, places, inner), WILD, 100);
            int64_t ix = prog_in(&g, DT_I32, DIMS(places), index), y = prog_out(&g, t, DIMS(outer, n, inner));
            prog_insn(&g, IN_MOVE, INTS(y, x), INTS(1, outer * n * inner, 0, 1, 1, 0, 1, 1, 0), NO_REALS);
            prog_insn(&g, IN_SCATTER, INTS(y, ix, u), INTS(1, add, turned), NO_REALS);
        }
        }
        compare(&g, devices[dev].name, 0, 0);
        prog_close(&g);
    }
}

static void test_affine(void **state)
{
    (void)state;
    static const dtype ints[] = { DT_I8, DT_U8, DT_I8, DT_U8, DT_I16, DT_I32, DT_U4 };
    for (int round = 0; round < 250; round++) {
        size_t dev = rng_below(&R, COUNT(devices));
        prog g;
        prog_open(&g, devices[dev].num);
        int64_t outer = upto(1, 4), n = upto(1, chance(20) ? 1500 : 9), inner = chance(40) ? 1 : upto(1, 40), many = chance(60), zero = -1;
        bool to_int = chance(50);
        dtype q = ints[rng_below(&R, COUNT(ints))], f = any_float(), from = to_int ? f : q, to = to_int ? q : f;
        int64_t x = input(&g, from, DIMS(outer, n, inner), WILD, to_int ? 40 : 200), scale = input(&g, f, DIMS(many ? n : 1), chance(20) ? WILD : TAME, 0.5);
        if (chance(60)) zero = input(&g, chance(90) ? (q == DT_U8 ? DT_U8 : DT_I8) : DT_I32, DIMS(many && chance(80) ? n : 1), TAME, 100);
        prog_insn(&g, to_int ? IN_QUANT : IN_DEQUANT, INTS(prog_out(&g, to, DIMS(outer, n, inner)), x, scale, zero), INTS(many ? 1 : -1), NO_REALS);
        compare(&g, devices[dev].name, 0, 0);
        prog_close(&g);
    }
}

static void test_planes(void **state)
{
    (void)state;
    for (int round = 0; round < 250; round++) {
        size_t dev = rng_below(&R, COUNT(devices));
        prog g;
        prog_open(&g, devices[dev].num);
        int64_t images = upto(1, 3), ch = upto(1, 4), h = upto(1, 9), w = upto(1, 9), oh = upto(1, 12), ow = upto(1, 12), linear = chance(60);
        dtype t = chance(90) ? any_float() : DT_I8, out = any_float();
        int64_t x = input(&g, t, DIMS(images, ch, h, w), chance(30) ? WILD : TAME, 50), grid = upto(0, GRID_COUNT - 1), y;
        double fill = number(TAME, 5);
        switch (rng_below(&R, 4)) {
        case 0: prog_insn(&g, IN_RESIZE, INTS(prog_out(&g, out, DIMS(images, ch, oh, ow)), x), INTS(linear, grid), NO_REALS); break;
        case 1: {
            int64_t n = upto(1, 4), form = upto(0, 2), of = -1, boxes;
            double *b = numbers(n * 5, TAME, 3), which[4];
            for (int64_t i = 0; i < n; i++) which[i] = (double)upto(0, images - 1);
            for (int64_t i = 0; form == 1 && i < n; i++) b[i * 5] = which[i];
            boxes = prog_in(&g, DT_F32, DIMS(n, form == 1 ? 5 : 4), b);
            free(b);
            if (form == 0) of = prog_in(&g, DT_I32, DIMS(n), which);
            y = form == 2 ? prog_out(&g, out, DIMS(n, images, ch, oh, ow)) : prog_out(&g, out, DIMS(n, ch, oh, ow));
            prog_insn(&g, IN_CROP_RESIZE, INTS(y, x, boxes, of), INTS(linear, grid, chance(30), upto(0, BOX_COUNT - 1)), REALS(1, fill));
            break;
        }
        case 2: {
            int64_t coords = input(&g, DT_F32, DIMS(images, oh, ow, 2), chance(20) ? WILD : TAME, chance(50) ? 1.5 : 10);
            prog_insn(&g, IN_RESAMPLE, INTS(prog_out(&g, out, DIMS(images, ch, oh, ow)), x, coords), INTS(linear, upto(0, EDGE_COUNT - 1), upto(0, COORD_COUNT - 1), chance(50)), REALS(fill));
            break;
        }
        default: {
            int64_t matrix = input(&g, DT_F32, DIMS(chance(50) ? 1 : images, 6), TAME, 1.5);
            prog_insn(&g, IN_WARP, INTS(prog_out(&g, out, DIMS(images, ch, oh, ow)), x, matrix), INTS(linear, upto(0, EDGE_COUNT - 1), upto(0, COORD_COUNT - 1), chance(50)), REALS(fill));
        }
        }
        compare(&g, devices[dev].name, 0, 0);
        prog_close(&g);
    }
}

/* Neighbouring channels, random numbers, sums of products that are no matrix product. */
static void test_odds(void **state)
{
    (void)state;
    for (int round = 0; round < 200; round++) {
        size_t dev = rng_below(&R, COUNT(devices));
        prog g;
        prog_open(&g, devices[dev].num);
        int64_t a = upto(1, 4), b = upto(1, 9), e = upto(1, chance(20) ? 600 : 12);
        dtype t = any_float();
        switch (rng_below(&R, 3)) {
        case 0: {
            int64_t x = input(&g, t, DIMS(a, b, e), chance(30) ? WILD : TAME, 4);
            prog_insn(&g, IN_LRN, INTS(prog_out(&g, any_float(), DIMS(a, b, e)), x), INTS(upto(1, 6)), REALS(0.5, 0.75, 2));
            break;
        }
        case 1: prog_insn(&g, IN_RANDOM, INTS(prog_out(&g, chance(80) ? t : DT_I8, DIMS(a * 3000, b))), INTS(chance(30) ? -1 : upto(0, 99)), REALS(-3, 7)); break;
        default: { /* x [a, b, e] and z [b, a]: labels 0, 1, 2 */
            static const int64_t forms[][12] = { { 3, 2, 0, 1, 3, 0, 1, 2, 2, 1, 0 }, { 1, 1, 3, 0, 1, 2, 2, 1, 0 }, { 2, 0, 1, 3, 0, 1, 2, 2, 1, 0 }, { 1, 2, 3, 0, 1, 2, 2, 1, 0 } };
            static const uint32_t lengths[] = { 11, 9, 10, 9 };
            size_t f = rng_below(&R, COUNT(forms));
            int64_t x = input(&g, t, DIMS(a, b, e), chance(30) ? WILD : TAME, 4), z = input(&g, t, DIMS(b, a), chance(30) ? WILD : TAME, 4);
            int64_t y = f == 0 ? prog_out(&g, t, DIMS(e, a, b)) : f == 1 ? prog_out(&g, t, DIMS(b)) : f == 2 ? prog_out(&g, t, DIMS(a, b)) : prog_out(&g, t, DIMS(e));
            prog_insn(&g, IN_EINSUM, INTS(y, x, z), forms[f], lengths[f], NO_REALS);
        }
        }
        compare(&g, devices[dev].name, 0, 0);
        prog_close(&g);
    }
}

/* ---- windows ---- */

static void test_pool(void **state)
{
    (void)state;
    for (int round = 0; round < 200; round++) {
        int n = (int)upto(1, 3), rank = n + 2;
        int64_t x[5], y[5], k[3], stride[3], pad[6], fields[32], at = 0;
        setting s = random_setting(27);
        prog g;
        prog_open(&g, s.num);
        x[0] = y[0] = upto(1, 2), x[1] = y[1] = upto(1, 5);
        for (int i = 0; i < n; i++) {
            int64_t wide = upto(1, n == 1 ? 70 : 14), most = chance(20) ? wide + 6 : 2; /* some windows reach over both ends at once */
            stride[i] = upto(1, chance(10) ? 9 : 3), pad[2 * i] = upto(0, most), pad[2 * i + 1] = upto(0, most);
            k[i] = upto(1, most > 2 ? wide + pad[2 * i] + pad[2 * i + 1] : 4);
            x[2 + i] = most > 2 ? wide : MAX(k[i], wide);
            y[2 + i] = (x[2 + i] + pad[2 * i] + pad[2 * i + 1] - k[i]) / stride[i] + 1 + chance(15);
        }
        fields[at++] = n;
        for (int i = 0; i < n; i++) fields[at++] = k[i];
        fields[at++] = n;
        for (int i = 0; i < n; i++) fields[at++] = stride[i];
        fields[at++] = 2 * n;
        for (int i = 0; i < 2 * n; i++) fields[at++] = pad[i];
        fields[at++] = upto(0, POOL_COUNT - 1), fields[at++] = chance(50);
        int64_t tx = input(&g, s.t, x, rank, s.m, s.scale), ty = prog_out(&g, chance(80) ? s.t : any_float(), y, rank);
        prog_insn(&g, IN_POOL, INTS(ty, tx), fields, (uint32_t)at, NO_REALS);
        compare(&g, s.name, s.tol, s.least);
        prog_close(&g);
    }
}

/* Places, and by place: the same results everywhere, NaN and ties among them. */
static void test_index(void **state)
{
    (void)state;
    static const dtype places[] = { DT_I32, DT_U16, DT_F32 };
    for (int round = 0; round < 200; round++) {
        size_t dev = rng_below(&R, COUNT(devices));
        prog g;
        prog_open(&g, devices[dev].num);
        int64_t outer = upto(1, 4), n = upto(1, chance(10) ? 2500 : 30), inner = chance(50) ? 1 : upto(1, chance(10) ? 600 : 20), flag = chance(50), back = chance(50);
        if (inner > 20) n = MIN(n, 40);
        dtype t = chance(20) ? DT_I8 : any_float(), tp = places[rng_below(&R, COUNT(places))];
        int64_t x = input(&g, t, DIMS(outer, n, inner), WILD, chance(30) ? 2 : 100), count = upto(1, chance(50) ? n : MIN(n, 5));
        for (int i = 0; i < 3 && t != DT_I8 && chance(50); i++) dtype_store(t, g.in[0], upto(0, outer * n * inner - 1), NAN);
        switch (rng_below(&R, 4)) {
        case 0: prog_insn(&g, IN_ARG, INTS(prog_out(&g, tp, DIMS(outer, inner)), x), INTS(1, flag), NO_REALS); break;
        case 1: prog_insn(&g, IN_CUMSUM, INTS(prog_out(&g, any_float(), DIMS(outer, n, inner)), x), INTS(1, flag, back), NO_REALS); break;
        case 2: {
            int64_t v = chance(80) ? prog_out(&g, t, DIMS(outer, count, inner)) : -1, i = v < 0 || chance(80) ? prog_out(&g, tp, DIMS(outer, count, inner)) : -1;
            prog_insn(&g, IN_SORT, INTS(v, i, x), INTS(1, flag, count), NO_REALS);
            break;
        }
        default: {
            double *ix = numbers(outer * count * inner, TAME, 1);
            for (int64_t i = 0; i < outer * count * inner; i++) ix[i] = (double)upto(-n, n - 1);
            int64_t at = prog_in(&g, DT_I32, DIMS(outer, count, inner), ix);
            free(ix);
            prog_insn(&g, IN_GATHER_ALONG, INTS(prog_out(&g, t, DIMS(outer, count, inner)), x, at), INTS(1), NO_REALS);
        }
        }
        compare(&g, devices[dev].name, 0, 0);
        prog_close(&g);
    }
}

/* An index outside is refused by the fast form as by the obvious one. */
static void test_outside(void **state)
{
    (void)state;
    static const insn_id ops[] = { IN_GATHER, IN_GATHER_ALONG, IN_GATHER_ND, IN_SCATTER };
    static const double index[] = { -4, -3, 2, 3 };
    for (size_t i = 0; i < COUNT(ops); i++)
        for (size_t k = 0; k < COUNT(index); k++)
            for (int reference = 0; reference < 2; reference++) {
                prog g;
                prog_open(&g, &numerics_cpu);
                const bool scatter = ops[i] == IN_SCATTER;
                int64_t x = prog_in(&g, DT_F32, DIMS(3), VALUES(1, 2, 3)), ix = ops[i] == IN_GATHER_ND ? prog_in(&g, DT_I32, DIMS(1, 1), &index[k]) : prog_in(&g, DT_I32, DIMS(1), &index[k]);
                int64_t one = prog_in(&g, DT_F32, DIMS(1), VALUES(1)), y = scatter ? prog_out(&g, DT_F32, DIMS(3)) : prog_out(&g, DT_F32, DIMS(1));
                if (scatter) prog_insn(&g, IN_MOVE, INTS(y, x), INTS(1, 3, 0, 1, 1, 0, 1, 1, 0), NO_REALS), prog_insn(&g, IN_SCATTER, INTS(y, ix, one), INTS(0, 0, 0), NO_REALS);
                else prog_insn(&g, ops[i], INTS(y, x, ix), (const int64_t[]){ 0, 0 }, ops[i] == IN_GATHER ? 2 : 1, NO_REALS);
                assert_int_equal(prog_try(&g, reference), k == 0 || k == 3 ? AN_INPUT : AN_OK);
                prog_close(&g);
            }
}

/* ---- binding ---- */

/* An output over an input, or over a part of it: what is read is what the input was. */
static void test_bound_over(void **state)
{
    (void)state;
    enum { N = 3000, PART = 1000, COPY, TURN, AFTER_FILL, STEP, WIDER, NARROWER_TWICE, FIRST_ROW, PART_FIRST, F = (int)sizeof(float) };
    static const struct {
        int what;
        int in, out; /* bytes from where both begin */
    } rows[] = { { COPY, 0, 0 }, { COPY, 0, F }, { TURN, 0, 0 }, { AFTER_FILL, 0, 0 }, { STEP, 0, 0 }, { STEP, 0, F }, { STEP, F, 0 }, { STEP, 0, (N - 1) * F }, { WIDER, 0, 0 }, { NARROWER_TWICE, 0, 0 }, { FIRST_ROW, 0, 0 },
                 { PART_FIRST, 0, (2 * N - PART) * F }, { PART_FIRST, PART * F / 2, 0 } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        prog g;
        image *im = NULL;
        diag d = { 0 };
        prog_open(&g, &numerics_cpu);
        const int what = rows[i].what;
        const int64_t whole[] = { 2, N }, row[] = { N };
        const bool twice = what == NARROWER_TWICE;
        int64_t x = twice ? input(&g, DT_F32, row, 1, TAME, 1) : input(&g, what == WIDER ? DT_F16 : DT_F32, whole, 2, TAME, 1), z = input(&g, DT_F32, DIMS(PART), TAME, 1);
        int64_t y = what == PART_FIRST ? prog_out(&g, DT_F32, DIMS(PART)) : prog_out(&g, twice ? DT_F16 : DT_F32, whole, 2), first = prog_tensor(&g, DT_F32, SPACE_INPUT, 0, row, 1);
        if (what == AFTER_FILL) prog_insn(&g, IN_FILL, INTS(y), NO_INTS, REALS(5));
        if (what == COPY || what == AFTER_FILL) prog_insn(&g, IN_MOVE, INTS(y, x), INTS(1, 2 * N, 0, 1, 1, 0, 1, 1, 0), NO_REALS);
        else if (what == TURN) prog_insn(&g, IN_MOVE, INTS(y, x), INTS(2, N, 2, 0, 2, 2, 1, 0, 2, 1, N, 0), NO_REALS);
        else if (what == PART_FIRST) { /* and all of x only then */
            prog_insn(&g, IN_EW, INTS(y, 1, z), INTS(CHAIN_STEP, FN_ABS, 0, -1, -1, -1, DT_F32), REALS(0));
            prog_insn(&g, IN_EW, INTS(prog_out(&g, DT_F32, whole, 2), 1, x), INTS(CHAIN_STEP, FN_ABS, 0, -1, -1, -1, DT_F32), REALS(0));
        } else prog_insn(&g, IN_EW, INTS(y, 2, x, what == FIRST_ROW ? first : x), INTS(CHAIN_STEP, FN_ADD, 0, 1, -1, -1, DT_F32), REALS(0));
        prog_run(&g, true);
        unsigned char *mem = calloc(5 * N, F);
        assert_non_null(mem);
        memcpy(mem + rows[i].in, g.in[0], (size_t)g.p->inputs.at[0].bytes);
        assert_ok(image_load(&im, g.p, NULL, NULL, &d), d);
        assert_ok(image_run(im, (const void *const[]){ mem + rows[i].in, g.in[1] }, (void *const[]){ mem + rows[i].out, g.out_bytes[1] }, &d), d);
        image_free(im);
        for (size_t k = 0; k < g.p->outputs.n; k++)
            for (int64_t j = 0; j < g.n_out[k]; j++) {
                const double got = dtype_load(g.p->tensors.at[g.p->outputs.at[k].tensor].dt, k ? g.out_bytes[k] : mem + rows[i].out, j);
                if (got != g.out[k][j]) fail_msg("row %zu: output %zu element %lld is %g, wanted %g", i, k, (long long)j, got, g.out[k][j]);
            }
        free(mem);
        prog_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_functions),
        cmocka_unit_test(test_ew), cmocka_unit_test(test_tile_rows), cmocka_unit_test(test_ews), cmocka_unit_test(test_choice), cmocka_unit_test(test_arithmetic), cmocka_unit_test(test_adam), cmocka_unit_test(test_truth), cmocka_unit_test(test_half_forms), cmocka_unit_test(test_past), cmocka_unit_test(test_index),
        cmocka_unit_test(test_cast_fill), cmocka_unit_test(test_log_of_zero),
        cmocka_unit_test(test_matmul),
        cmocka_unit_test(test_squares),
        cmocka_unit_test(test_siblings), cmocka_unit_test(test_conv_siblings), cmocka_unit_test(test_stacks), cmocka_unit_test(test_reload),
        cmocka_unit_test(test_behind),
        cmocka_unit_test(test_conv),
        cmocka_unit_test(test_lines), cmocka_unit_test(test_sums), cmocka_unit_test(test_long_lines), cmocka_unit_test(test_many_lines), cmocka_unit_test(test_past_lines), cmocka_unit_test(test_log_sum_exp), cmocka_unit_test(test_gains),
        cmocka_unit_test(test_move), cmocka_unit_test(test_written_twice),
        cmocka_unit_test(test_gather),
        cmocka_unit_test(test_rows), cmocka_unit_test(test_outside),
        cmocka_unit_test(test_affine),
        cmocka_unit_test(test_planes),
        cmocka_unit_test(test_odds),
        cmocka_unit_test(test_pool), cmocka_unit_test(test_bound_over),
    };
    return cmocka_run_group_tests(tests, open_pools, close_pools);
}
