/* prop_exec.c: the fast form of every instruction against its obvious one, on random small programs: the same bits
 * on chips, within stated bounds on the plain processor, for each instruction set this machine has and for one and
 * two threads. */
#include "exec_links.h"

/* ---- chains ---- */

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
        compare(&g, devices[dev].name, cpu && (!l.exact || may_fuse(&g, &l)) ? 2e-6 : 0, 1e-3);
        prog_close(&g);
    }
}

/* Rows of whole tiles, more of them than are taken at a time, with operands that change from row to row, or later,
 * or never. */
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
            step[STEP_FN] = fns[rng_below(&R, COUNT(fns))], step[STEP_A] = k ? 5 + k - 1 : 0, step[STEP_A + 1] = 1 + k,
            step[STEP_TYPE] = t;
        }
        ts[0] = prog_out(&g, t, y, 3);
        prog_insn(&g, IN_EW, ts, (uint32_t)COUNT(ts), l.steps, n_of(&l), l.params, m_of(&l));
        compare(&g, "cpu", may_fuse(&g, &l) ? 2e-6 : 0, 1e-3);
        prog_close(&g);
    }
}

/* Chains of fp16 alone, short enough that many round once at most, of numbers that overflow and that sink below the
 * smallest one: what can be done in fp16 arithmetic gives the bits of fp32. */
static void test_halves(void **state)
{
    (void)state;
    static const fn_id fns[] = { FN_ADD,  FN_ADD,    FN_SUB,       FN_MUL,   FN_MUL,  FN_DIV,  FN_MAX,  FN_MIN,
                                 FN_ABS,  FN_RELU,   FN_RELU6,     FN_SQRT,  FN_SIGN, FN_CLIP, FN_COPY, FN_SELECT,
                                 FN_GT,   FN_NOT,    FN_THRESHOLD, FN_FLOOR, FN_CLIP, FN_EQ,   FN_SQUARE, FN_PRELU,
                                 FN_LEAKY_RELU, FN_AFFINE, FN_THRESHOLDED_RELU };
    static const double bounds[] = { 0, -0.0, 1e-9, -1e-9, 1, -1, 0.1, 6, 0.25, 1e6, -0.5 };
    enum { OPERANDS = 4 };
    for (int round = 0; round < 900; round++) {
        prog g;
        links l;
        prog_open(&g, &numerics_cpu);
        const int64_t steps = upto(1, 4), y[] = { upto(1, 5), upto(1, 3), chance(20) ? upto(1, 20) : upto(16, 300) },
                      forms[][3] = { { y[0], y[1], y[2] }, { 1, y[1], 1 }, { 1, 1, 1 }, { 1, 1, y[2] } };
        int64_t ts[2 + OPERANDS] = { 0, OPERANDS };
        for (int k = 0; k < OPERANDS; k++)
            ts[2 + k] = input(&g, DT_F16, forms[k < 2 ? 0 : upto(0, (int64_t)COUNT(forms) - 1)], 3, WILD, 4);
        l.steps[0] = steps * CHAIN_STEP, l.params[0] = 0;
        for (int64_t k = 0; k < steps; k++) {
            int64_t *s = l.steps + 1 + k * CHAIN_STEP, n = (int64_t)l.params[0];
            const fn_id f = fns[rng_below(&R, COUNT(fns))];
            for (int j = 0; j < CHAIN_STEP; j++) s[j] = -1;
            s[STEP_FN] = f, s[STEP_TYPE] = DT_F16, s[STEP_PARAM] = fn_params(f) ? n : -1;
            for (int j = 0; j < fn_operands(f); j++)
                s[STEP_A + j] = k && chance(60) ? OPERANDS + k - 1 : upto(0, OPERANDS + k - 1);
            for (int j = 0; j < fn_params(f); j++) l.params[1 + n++] = bounds[rng_below(&R, COUNT(bounds))];
            l.params[0] = (double)n;
        }
        ts[0] = prog_out(&g, DT_F16, y, 3);
        prog_insn(&g, IN_EW, ts, (uint32_t)COUNT(ts), l.steps, n_of(&l), l.params, m_of(&l));
        compare(&g, "halves", may_fuse(&g, &l) ? 2e-6 : 0, 1e-3);
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
        int rank = random_dims(y, chance(20) ? 1500 : 40), n = (int)upto(1, 4), steps = (int)upto(2, 6),
            more = (int)upto(1, MIN(steps - 1, CHAIN_MOST_RESULTS - 1));
        random_links(&l, n, steps, false);
        t[4] = n;
        for (int k = 0; k < n; k++) {
            int r = broadcast_dims(y, rank, d);
            t[5 + k] = input(&g, chance(50) ? DT_F16 : DT_F32, d, r, cpu && !l.exact ? TAME : WILD, 8);
        }
        /* whether a bound holds 0 decides no truth */
        for (int k = 0; k <= more; k++)
            t[k] = prog_out(&g, chance(10) && (!cpu || l.exact) ? DT_BOOL : any_float(), y, rank);
        fields[0] = more;
        for (int k = 0; k < more; k++) fields[1 + k] = steps - 2 - k; /* any but the last, each once */
        memcpy(fields + 1 + more, l.steps, n_of(&l) * sizeof *fields);
        prog_insn(&g, IN_EWS, t, 5 + (uint32_t)n, fields, 1 + (uint32_t)more + n_of(&l), l.params, m_of(&l));
        compare(&g, devices[dev].name, cpu && (!l.exact || may_fuse(&g, &l)) ? 2e-6 : 0, 1e-3);
        prog_close(&g);
    }
}

/* An optimiser's shape: results that become something new, or stay what they were, as one number says; products that
 * are only added. */
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
        int64_t w = input(&g, t, chance(20) ? row : d, 2, WILD, 8), m = input(&g, t, d, 2, WILD, 8),
                grad = input(&g, DT_F32, d, 2, WILD, 8), k = input(&g, DT_F32, DIMS(1), TAME, 2);
        double yes = chance(50), other = chance(80) ? yes : 1 - yes;
        dtype flag = chance(70) ? DT_BOOL : DT_F32;
        int64_t c = chance(80) ? prog_in(&g, flag, DIMS(1), &yes) : input(&g, DT_BOOL, d, 2, TAME, 1),
                e = chance(80) ? c : prog_in(&g, flag, DIMS(1), &other);
        int64_t y = prog_out(&g, t, d, 2), y2 = prog_out(&g, wide, d, 2);
        enum { W, M, GRAD, K, C, E, S };
#define STEP(f, a, b, c_) FN_##f, a, b, c_, -1, DT_F32
        prog_insn(&g, IN_EWS, INTS(y, y2, -1, -1, 6, w, m, grad, k, c, e),
                  INTS(1, 5, 7 * CHAIN_STEP, STEP(MUL, GRAD, K, -1), STEP(MUL, K, M, -1), STEP(ADD, S + 1, GRAD, -1),
                       STEP(SUB, W, S, -1), STEP(SUB, S + 2, S + 3, -1),
                       /* one choice where it is one operand */
                       STEP(SELECT, C, S + 4, W), STEP(SELECT, e == c ? C : E, S + 2, M)), REALS(0));
#undef STEP
        compare(&g, devices[dev].name, 0, 0);
        prog_close(&g);
    }
}

/* Sums, products and quotients of some operands and some numbers, each read more than once: what a tape joins, swaps
 * and keeps. */
static void test_arithmetic(void **state)
{
    (void)state;
    static const fn_id fns[] = { FN_ADD, FN_ADD, FN_SUB, FN_SUB, FN_MUL, FN_MUL, FN_MUL, FN_DIV };
    for (int round = 0; round < 1500; round++) {
        prog g;
        links l;
        prog_open(&g, &numerics_cpu);
        int64_t n = upto(1, 300), steps = upto(2, 8), ts[] = { 0, 4, 0, 0, 0, 0 };
        for (int k = 0; k < 4; k++)
            ts[2 + k] = input(&g, chance(80) ? DT_F32 : DT_F16, k < 2 ? &n : &(int64_t){ 1 }, 1, TAME, 4);
        l.steps[0] = steps * CHAIN_STEP, l.params[0] = 0;
        for (int64_t k = 0; k < steps; k++) {
            int64_t *s = l.steps + 1 + k * CHAIN_STEP;
            for (int j = 0; j < CHAIN_STEP; j++) s[j] = -1;
            s[STEP_FN] = fns[rng_below(&R, COUNT(fns))], s[STEP_TYPE] = DT_F32;
            for (int j = 0; j < 2; j++)
                s[STEP_A + j] = k && chance(45) ? 4 + upto(MAX(0, k - 3), k - 1) : upto(0, 4 + k - 1);
        }
        ts[0] = prog_out(&g, DT_F32, &n, 1);
        prog_insn(&g, IN_EW, ts, (uint32_t)COUNT(ts), l.steps, n_of(&l), l.params, m_of(&l));
        compare(&g, "arithmetic", 0, 0);
        prog_close(&g);
    }
}

/* An update by Adam is a function of its own, not a tape; what only looks like one is a tape. */
static void test_adam(void **state)
{
    (void)state;
    enum { W, M, V, G, OTHER, KEEP, TAKE, EPS, S, FULL = 5, INPUTS = S }; /* operands, then steps */
    static const struct {
        const char *what;
        int gradient, moment, square; /* what is squared, and what is divided by the root of what */
    } rows[] = { { "adam", G, S + 2, S + 6 },
                 { "squares of another gradient", OTHER, S + 2, S + 6 },
                 { "the moment as it was", G, M, S + 6 },
                 { "the squares as they were", G, S + 2, V } };
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
                          INTS(2, turned ? 2 : 6, turned ? 6 : 2, 10 * CHAIN_STEP, STEP(MUL, M, KEEP, -1),
                               STEP(MUL, G, TAKE, -1), STEP(ADD, S, S + 1, -1),
                               STEP(MUL, rows[i].gradient, rows[i].gradient, -1), STEP(MUL, S + 3, TAKE, -1),
                               STEP(MUL, V, KEEP, -1), STEP(ADD, S + 4, S + 5, -1),
                               STEP(ROOT_DIV, rows[i].moment, rows[i].square, EPS), STEP(MUL, S + 7, TAKE, -1),
                               STEP(SUB, W, S + 8, -1)),
                          REALS(0));
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
    } rows[] = { { FN_SQUARE, 1e-30, 0 },
                 { FN_EXP, -200, 0 },
                 { FN_DIV, 1e-30, 1e30 },
                 { FN_SIGMOID, -200, 0 },
                 { FN_SQUARE, 0, 0 } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        prog g;
        prog_open(&g, &numerics_cpu);
        const bool two = fn_operands(rows[i].f) > 1;
        int64_t x = prog_in(&g, DT_F32, DIMS(1), &rows[i].x), z = prog_in(&g, DT_F32, DIMS(1), &rows[i].z),
                y = prog_out(&g, DT_BOOL, DIMS(1));
        prog_insn(&g, IN_EW, INTS(y, 2, x, z), INTS(CHAIN_STEP, rows[i].f, 0, two ? 1 : -1, -1, -1, DT_BOOL), REALS(0));
        compare(&g, fn_name(rows[i].f), 0, 0);
        prog_close(&g);
    }
}

/* Quicker forms for what becomes 16 bits: not where a difference shows their error, and not for one of two results
 * that must agree. */
static void test_half_forms(void **state)
{
    (void)state;
    enum { N = 3000 };
    prog g;
    prog_open(&g, &numerics_cpu);
    int64_t x = input(&g, DT_F32, DIMS(N), TAME, 1e-2), one = prog_in(&g, DT_F32, DIMS(1), VALUES(1));
    int64_t less = prog_out(&g, DT_F16, DIMS(N)), alone = prog_out(&g, DT_F16, DIMS(N)),
            wide = prog_out(&g, DT_F32, DIMS(N)), beside = prog_out(&g, DT_F16, DIMS(N));
    prog_insn(&g, IN_EW, INTS(less, 2, x, one),
              INTS(2 * CHAIN_STEP, FN_EXP, 0, -1, -1, -1, DT_F16, FN_SUB, 2, 1, -1, -1, DT_F16), REALS(0));
    prog_insn(&g, IN_EW, INTS(alone, 1, x), INTS(CHAIN_STEP, FN_EXP, 0, -1, -1, -1, DT_F32), REALS(0));
    prog_insn(&g, IN_EWS, INTS(wide, beside, -1, -1, 1, x),
              INTS(1, 0, 2 * CHAIN_STEP, FN_EXP, 0, -1, -1, -1, DT_F32, FN_COPY, 1, -1, -1, -1, DT_F32), REALS(0));
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
        int64_t x = prog_in(&g, DT_F32, DIMS(floats), NULL), b = prog_in(&g, DT_BOOL, DIMS(bools), NULL),
                y = prog_out(&g, DT_F32, DIMS(floats)), z = prog_out(&g, DT_BOOL, DIMS(bools));
        prog_insn(&g, IN_EW, INTS(y, 1, x),
                  INTS(2 * CHAIN_STEP, FN_SQUARE, 0, -1, -1, -1, DT_F32, FN_ADD, 1, 0, -1, -1, DT_F32), REALS(0));
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
                for (int64_t i = 0; i < n; i++)
                    x[i] = n == ALL ? f16_to_f64((uint16_t)i) : number(loose ? TAME : WILD, 12);
                t[2 + j] = prog_in(&g, DT_F16, DIMS(n), x), step[2 + j] = j;
            }
            t[0] = prog_out(&g, cpu ? DT_F32 : DT_F16, DIMS(n));
            prog_insn(&g, IN_EW, t, 2 + (uint32_t)fn_operands(f), step, 7, p, 1 + (uint32_t)fn_params(f));
            compare(&g, fn_name(f), loose ? 2e-6 : 0, 1e-3);
            prog_close(&g);
        }
    free(x);
}

/* The logarithm of nothing: what the epsilon says, be it as small as the default one, which no sum of normal numbers
 * holds. */
static void test_log_of_zero(void **state)
{
    (void)state;
    static const double eps[] = { 1e-45, 0, 0.25, 0x1p-126 };
    for (size_t e = 0; e < COUNT(eps); e++)
        for (int64_t n = 1; n < 2000; n = 3 * n + 2) {
            double x[2000];
            for (int64_t i = 0; i < n; i++)
                x[i] = i % 3 == 1 ? 0 : i % 3 == 2 && eps[e] >= 0x1p-126 ? -eps[e] : rng_range(&R, 0, 4);
            prog g;
            prog_open(&g, &numerics_cpu);
            int64_t tx = prog_in(&g, DT_F32, DIMS(n), x), y = prog_out(&g, DT_F32, DIMS(n)),
                    z = prog_out(&g, DT_F16, DIMS(n));
            prog_insn(&g, IN_EW, INTS(y, 1, tx), INTS(CHAIN_STEP, FN_LOG, 0, -1, -1, 0, DT_F32), REALS(1, eps[e]));
            /* weighed by what it is the logarithm of, as an entropy is */
            prog_insn(&g, IN_EW, INTS(z, 1, tx),
                      INTS(2 * CHAIN_STEP, FN_LOG, 0, -1, -1, 0, DT_F16, FN_MUL, 0, 1, -1, -1, DT_F16),
                      REALS(1, eps[e]));
            compare(&g, "log of zero", 2e-6, 1e-3);
            prog_close(&g);
        }
}

static void test_cast_fill(void **state)
{
    (void)state;
    static const dtype types[] = { DT_F16, DT_F32, DT_BF16, DT_BOOL, DT_I8,  DT_U8,  DT_I16,
                                   DT_U16, DT_I32, DT_I64,  DT_U4,   DT_F64, DT_E4M3 };
    for (int round = 0; round < 200; round++) {
        size_t dev = rng_below(&R, COUNT(devices));
        prog g;
        prog_open(&g, devices[dev].num);
        int64_t n = upto(1, 3000), x = input(&g, types[rng_below(&R, COUNT(types))], DIMS(n), WILD, 300);
        int64_t y = prog_out(&g, types[rng_below(&R, COUNT(types))], DIMS(1, n)),
                z = prog_out(&g, types[rng_below(&R, COUNT(types))], DIMS(n));
        prog_insn(&g, IN_CAST, INTS(y, x), NO_INTS, NO_REALS);
        prog_insn(&g, IN_FILL, INTS(z), NO_INTS, REALS(number(WILD, 100)));
        compare(&g, devices[dev].name, 0, 0);
        prog_close(&g);
    }
}

/* ---- moving ---- */

/* Steps that lay a box out densely in a random order of axes, with gaps and turned round now and then; its span and
 * start. */
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
    static const dtype types[] = { DT_F16, DT_F16, DT_F16, DT_F32, DT_BF16, DT_BOOL,
                                   DT_I8,  DT_I16, DT_I32, DT_I64, DT_U4 };
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
    } rows[] = { { { 9, 3 }, { 2, 2 }, { 2, 20 } },
                 { { 4, 5 }, { 1, 3 }, { 5, 1 } },
                 { { 4, 5 }, { 1, 2 }, { 5, 1 } },
                 { { 3, 8 }, { 1, 1 }, { 1, 3 } } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        prog g;
        prog_open(&g, &numerics_cpu);
        int64_t x = input(&g, DT_F32, DIMS(64), TAME, 1), y = prog_out(&g, DT_F32, DIMS(32));
        prog_insn(&g, IN_MOVE, INTS(y, x),
                  INTS(2, rows[i].size[0], rows[i].size[1], 0, 2, rows[i].y[0], rows[i].y[1], 0, 2, rows[i].x[0],
                       rows[i].x[1], 0),
                  NO_REALS);
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
        int64_t tx = input(&g, chance(70) ? DT_F16 : DT_F32, x, rank, WILD, 100),
                ti = prog_in(&g, chance(50) ? DT_I32 : DT_F16, ix, ni, v);
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
        int64_t outer = upto(1, 5), n = upto(1, 9), inner = chance(40) ? 1 : upto(1, chance(20) ? 300 : 12),
                places = upto(1, 12), fields[20], k = upto(1, 3);
        dtype t = types[rng_below(&R, COUNT(types))];
        double index[64];
        switch (rng_below(&R, 3)) {
        case 0: { /* pick */
            int64_t x = input(&g, t, DIMS(outer, n, inner), WILD, 100);
            fields[0] = 1, fields[1] = places;
            for (int64_t i = 0; i < places; i++) fields[2 + i] = upto(0, n - 1);
            prog_insn(&g, IN_PICK, INTS(prog_out(&g, t, DIMS(outer, places, inner)), x), fields, 2 + (uint32_t)places,
                      NO_REALS);
            break;
        }
        case 1: { /* gather_nd: x (outer, n, 3, inner), with and without outer as batch */
            int64_t batch = k == 3 ? 0 : upto(0, 1), lead = batch ? outer : 1,
                    x = input(&g, t, DIMS(outer, n, 3, inner), WILD, 100);
            const int64_t dims[4] = { outer, n, 3, inner };
            for (int64_t i = 0; i < lead * places * k; i++) index[i % 64] = 0;
            places = MIN(places, 64 / (lead * k));
            for (int64_t i = 0; i < lead * places * k; i++)
                index[i] = (double)upto(-dims[batch + i % k], dims[batch + i % k] - 1);
            int64_t ix = batch ? prog_in(&g, DT_I32, DIMS(outer, places, k), index)
                               : prog_in(&g, DT_I32, DIMS(places, k), index),
                    d[6];
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
            int64_t x = input(&g, t, DIMS(outer, n, inner), WILD, 100),
                    u = turned ? input(&g, t, DIMS(outer, inner, places), WILD, 100)
                               : input(&g, t, DIMS(outer, places, inner), WILD, 100);
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
        int64_t outer = upto(1, 4), n = upto(1, chance(20) ? 1500 : 9), inner = chance(40) ? 1 : upto(1, 40),
                many = chance(60), zero = -1;
        bool to_int = chance(50);
        dtype q = ints[rng_below(&R, COUNT(ints))], f = any_float(), from = to_int ? f : q, to = to_int ? q : f;
        int64_t x = input(&g, from, DIMS(outer, n, inner), WILD, to_int ? 40 : 200),
                scale = input(&g, f, DIMS(many ? n : 1), chance(20) ? WILD : TAME, 0.5);
        if (chance(60))
            zero = input(&g, chance(90) ? (q == DT_U8 ? DT_U8 : DT_I8) : DT_I32, DIMS(many && chance(80) ? n : 1), TAME,
                         100);
        prog_insn(&g, to_int ? IN_QUANT : IN_DEQUANT, INTS(prog_out(&g, to, DIMS(outer, n, inner)), x, scale, zero),
                  INTS(many ? 1 : -1), NO_REALS);
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
        int64_t images = upto(1, 3), ch = upto(1, 4), h = upto(1, 9), w = upto(1, 9), oh = upto(1, 12),
                ow = upto(1, 12), linear = chance(60);
        dtype t = chance(90) ? any_float() : DT_I8, out = any_float();
        int64_t x = input(&g, t, DIMS(images, ch, h, w), chance(30) ? WILD : TAME, 50), grid = upto(0, GRID_COUNT - 1),
                y;
        double fill = number(TAME, 5);
        switch (rng_below(&R, 4)) {
        case 0:
            prog_insn(&g, IN_RESIZE, INTS(prog_out(&g, out, DIMS(images, ch, oh, ow)), x), INTS(linear, grid),
                      NO_REALS);
            break;
        case 1: {
            int64_t n = upto(1, 4), form = upto(0, 2), of = -1, boxes;
            double *b = numbers(n * 5, TAME, 3), which[4];
            for (int64_t i = 0; i < n; i++) which[i] = (double)upto(0, images - 1);
            for (int64_t i = 0; form == 1 && i < n; i++) b[i * 5] = which[i];
            boxes = prog_in(&g, DT_F32, DIMS(n, form == 1 ? 5 : 4), b);
            free(b);
            if (form == 0) of = prog_in(&g, DT_I32, DIMS(n), which);
            y = form == 2 ? prog_out(&g, out, DIMS(n, images, ch, oh, ow)) : prog_out(&g, out, DIMS(n, ch, oh, ow));
            prog_insn(&g, IN_CROP_RESIZE, INTS(y, x, boxes, of), INTS(linear, grid, chance(30), upto(0, BOX_COUNT - 1)),
                      REALS(1, fill));
            break;
        }
        case 2: {
            int64_t coords =
                input(&g, DT_F32, DIMS(images, oh, ow, 2), chance(20) ? WILD : TAME, chance(50) ? 1.5 : 10);
            prog_insn(&g, IN_RESAMPLE, INTS(prog_out(&g, out, DIMS(images, ch, oh, ow)), x, coords),
                      INTS(linear, upto(0, EDGE_COUNT - 1), upto(0, COORD_COUNT - 1), chance(50)), REALS(fill));
            break;
        }
        default: {
            int64_t matrix = input(&g, DT_F32, DIMS(chance(50) ? 1 : images, 6), TAME, 1.5);
            prog_insn(&g, IN_WARP, INTS(prog_out(&g, out, DIMS(images, ch, oh, ow)), x, matrix),
                      INTS(linear, upto(0, EDGE_COUNT - 1), upto(0, COORD_COUNT - 1), chance(50)), REALS(fill));
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
            prog_insn(&g, IN_LRN, INTS(prog_out(&g, any_float(), DIMS(a, b, e)), x), INTS(upto(1, 6)),
                      REALS(0.5, 0.75, 2));
            break;
        }
        case 1:
            prog_insn(&g, IN_RANDOM, INTS(prog_out(&g, chance(80) ? t : DT_I8, DIMS(a * 3000, b))),
                      INTS(chance(30) ? -1 : upto(0, 99)), REALS(-3, 7));
            break;
        default: { /* x [a, b, e] and z [b, a]: labels 0, 1, 2 */
            static const int64_t forms[][12] = { { 3, 2, 0, 1, 3, 0, 1, 2, 2, 1, 0 },
                                                 { 1, 1, 3, 0, 1, 2, 2, 1, 0 },
                                                 { 2, 0, 1, 3, 0, 1, 2, 2, 1, 0 },
                                                 { 1, 2, 3, 0, 1, 2, 2, 1, 0 } };
            static const uint32_t lengths[] = { 11, 9, 10, 9 };
            size_t f = rng_below(&R, COUNT(forms));
            int64_t x = input(&g, t, DIMS(a, b, e), chance(30) ? WILD : TAME, 4),
                    z = input(&g, t, DIMS(b, a), chance(30) ? WILD : TAME, 4);
            int64_t y = f == 0   ? prog_out(&g, t, DIMS(e, a, b))
                        : f == 1 ? prog_out(&g, t, DIMS(b))
                        : f == 2 ? prog_out(&g, t, DIMS(a, b))
                                 : prog_out(&g, t, DIMS(e));
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
            /* some windows reach over both ends at once */
            int64_t wide = upto(1, n == 1 ? 70 : 14), most = chance(20) ? wide + 6 : 2;
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

/* Lines longer than are read at a time, from both ends; whole numbers, so that sums are exact. */
static void test_long_sums(void **state)
{
    (void)state;
    static const int64_t lengths[] = { 1023, 1025, 2500 };
    for (size_t way = 0; way < 4 * COUNT(lengths); way++) {
        const int64_t n = lengths[way / 4];
        prog g;
        prog_open(&g, &numerics_cpu);
        double *v = numbers(3 * n, TAME, 8);
        for (int64_t i = 0; i < 3 * n; i++) v[i] = nearbyint(v[i]);
        int64_t x = prog_in(&g, DT_F32, DIMS(3, n), v), y = prog_out(&g, DT_F32, DIMS(3, n));
        prog_insn(&g, IN_CUMSUM, INTS(y, x), INTS(1, way & 1, way >> 1 & 1), NO_REALS);
        compare(&g, "long sums", 0, 0);
        free(v);
        prog_close(&g);
    }
}

/* State that is moved onto itself stays as it is, but for what a chip makes of what it moves. */
static void test_onto_itself(void **state)
{
    (void)state;
    static const uint16_t in[] = { 0x3c00, 0x7e01, 0xfc00, 0x8000, 1, 0xfe00, 0x6c00, 0x7bff };
    enum { N = COUNT(in) };
    for (size_t dev = 0; dev < COUNT(devices); dev++) {
        prog g;
        image *im = NULL;
        diag d = { 0 };
        uint16_t apart[N], memory[N];
        prog_open(&g, devices[dev].num);
        int64_t x = prog_in(&g, DT_F16, DIMS(N), NULL), y = prog_out(&g, DT_F16, DIMS(N));
        prog_insn(&g, IN_MOVE, INTS(y, x), INTS(1, N, 0, 1, 1, 0, 1, 1, 0), NO_REALS);
        assert_ok(image_load(&im, g.p, NULL, &(image_options){ .pool = NULL }, &d), d);
        memcpy(memory, in, sizeof in);
        assert_ok(image_run(im, (const void *const[]){ in }, (void *const[]){ apart }, &d), d);
        assert_ok(image_run(im, (const void *const[]){ memory }, (void *const[]){ memory }, &d), d);
        assert_memory_equal(memory, apart, sizeof memory);
        assert_int_equal(memory[1], devices[dev].num == &numerics_cpu ? 0x7e01 : 0x7c00);
        image_free(im);
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
        int64_t outer = upto(1, 4), n = upto(1, chance(10) ? 2500 : 30),
                inner = chance(50) ? 1 : upto(1, chance(10) ? 600 : 20), flag = chance(50), back = chance(50);
        if (inner > 20) n = MIN(n, 40);
        dtype t = chance(20) ? DT_I8 : any_float(), tp = places[rng_below(&R, COUNT(places))];
        int64_t x = input(&g, t, DIMS(outer, n, inner), WILD, chance(30) ? 2 : 100),
                count = upto(1, chance(50) ? n : MIN(n, 5));
        for (int i = 0; i < 3 && t != DT_I8 && chance(50); i++)
            dtype_store(t, g.in[0], upto(0, outer * n * inner - 1), NAN);
        switch (rng_below(&R, 4)) {
        case 0: prog_insn(&g, IN_ARG, INTS(prog_out(&g, tp, DIMS(outer, inner)), x), INTS(1, flag), NO_REALS); break;
        case 1:
            prog_insn(&g, IN_CUMSUM, INTS(prog_out(&g, any_float(), DIMS(outer, n, inner)), x), INTS(1, flag, back),
                      NO_REALS);
            break;
        case 2: {
            int64_t v = chance(80) ? prog_out(&g, t, DIMS(outer, count, inner)) : -1,
                    i = v < 0 || chance(80) ? prog_out(&g, tp, DIMS(outer, count, inner)) : -1;
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
                int64_t x = prog_in(&g, DT_F32, DIMS(3), VALUES(1, 2, 3)),
                        ix = ops[i] == IN_GATHER_ND ? prog_in(&g, DT_I32, DIMS(1, 1), &index[k])
                                                    : prog_in(&g, DT_I32, DIMS(1), &index[k]);
                int64_t one = prog_in(&g, DT_F32, DIMS(1), VALUES(1)),
                        y = scatter ? prog_out(&g, DT_F32, DIMS(3)) : prog_out(&g, DT_F32, DIMS(1));
                if (scatter)
                    prog_insn(&g, IN_MOVE, INTS(y, x), INTS(1, 3, 0, 1, 1, 0, 1, 1, 0), NO_REALS),
                        prog_insn(&g, IN_SCATTER, INTS(y, ix, one), INTS(0, 0, 0), NO_REALS);
                else
                    prog_insn(&g, ops[i], INTS(y, x, ix), (const int64_t[]){ 0, 0 }, ops[i] == IN_GATHER ? 2 : 1,
                              NO_REALS);
                assert_int_equal(prog_try(&g, reference), k == 0 || k == 3 ? AN_INPUT : AN_OK);
                prog_close(&g);
            }
}

/* ---- binding ---- */

/* An output over an input, or over a part of it: what is read is what the input was. */
static void test_bound_over(void **state)
{
    (void)state;
    enum { N = 3000, PART = 1000, COPY, TURN, AFTER_FILL, STEP, WIDER, NARROWER_TWICE, FIRST_ROW, PART_FIRST,
           F = (int)sizeof(float) };
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
        int64_t x = twice ? input(&g, DT_F32, row, 1, TAME, 1)
                          : input(&g, what == WIDER ? DT_F16 : DT_F32, whole, 2, TAME, 1),
                z = input(&g, DT_F32, DIMS(PART), TAME, 1);
        int64_t y = what == PART_FIRST ? prog_out(&g, DT_F32, DIMS(PART))
                                       : prog_out(&g, twice ? DT_F16 : DT_F32, whole, 2),
                first = prog_tensor(&g, DT_F32, SPACE_INPUT, 0, row, 1);
        if (what == AFTER_FILL) prog_insn(&g, IN_FILL, INTS(y), NO_INTS, REALS(5));
        if (what == COPY || what == AFTER_FILL)
            prog_insn(&g, IN_MOVE, INTS(y, x), INTS(1, 2 * N, 0, 1, 1, 0, 1, 1, 0), NO_REALS);
        else if (what == TURN) prog_insn(&g, IN_MOVE, INTS(y, x), INTS(2, N, 2, 0, 2, 2, 1, 0, 2, 1, N, 0), NO_REALS);
        else if (what == PART_FIRST) { /* and all of x only then */
            prog_insn(&g, IN_EW, INTS(y, 1, z), INTS(CHAIN_STEP, FN_ABS, 0, -1, -1, -1, DT_F32), REALS(0));
            prog_insn(&g, IN_EW, INTS(prog_out(&g, DT_F32, whole, 2), 1, x),
                      INTS(CHAIN_STEP, FN_ABS, 0, -1, -1, -1, DT_F32), REALS(0));
        } else
            prog_insn(&g, IN_EW, INTS(y, 2, x, what == FIRST_ROW ? first : x),
                      INTS(CHAIN_STEP, FN_ADD, 0, 1, -1, -1, DT_F32), REALS(0));
        prog_run(&g, true);
        unsigned char *mem = calloc(5 * N, F);
        assert_non_null(mem);
        memcpy(mem + rows[i].in, g.in[0], (size_t)g.p->inputs.at[0].bytes);
        assert_ok(image_load(&im, g.p, NULL, NULL, &d), d);
        assert_ok(image_run(im, (const void *const[]){ mem + rows[i].in, g.in[1] },
                            (void *const[]){ mem + rows[i].out, g.out_bytes[1] }, &d),
                  d);
        image_free(im);
        for (size_t k = 0; k < g.p->outputs.n; k++)
            for (int64_t j = 0; j < g.n_out[k]; j++) {
                const double got = dtype_load(g.p->tensors.at[g.p->outputs.at[k].tensor].dt,
                                              k ? g.out_bytes[k] : mem + rows[i].out, j);
                if (got != g.out[k][j])
                    fail_msg("row %zu: output %zu element %lld is %g, wanted %g", i, k, (long long)j, got, g.out[k][j]);
            }
        free(mem);
        prog_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_functions),   cmocka_unit_test(test_ew),         cmocka_unit_test(test_tile_rows),
        cmocka_unit_test(test_halves),
        cmocka_unit_test(test_ews),         cmocka_unit_test(test_choice),     cmocka_unit_test(test_arithmetic),
        cmocka_unit_test(test_adam),        cmocka_unit_test(test_truth),      cmocka_unit_test(test_half_forms),
        cmocka_unit_test(test_past),        cmocka_unit_test(test_index), cmocka_unit_test(test_long_sums), cmocka_unit_test(test_onto_itself),      cmocka_unit_test(test_cast_fill),
        cmocka_unit_test(test_log_of_zero), cmocka_unit_test(test_move),       cmocka_unit_test(test_written_twice),
        cmocka_unit_test(test_gather),      cmocka_unit_test(test_rows),       cmocka_unit_test(test_outside),
        cmocka_unit_test(test_affine),      cmocka_unit_test(test_planes),     cmocka_unit_test(test_odds),
        cmocka_unit_test(test_pool),        cmocka_unit_test(test_bound_over),
    };
    return cmocka_run_group_tests(tests, open_pools, close_pools);
}
