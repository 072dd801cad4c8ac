/* test_numerics.c: the chips' arithmetic, one published behaviour per check, straight on reference instructions. */
#include "engine_t.h"

static const double INF = (double)INFINITY;
#define SAME(got, want)                                                                                               \
    do {                                                                                                              \
        double got_ = (got), want_ = (want);                                                                          \
        if (!(got_ == want_ && signbit(got_) == signbit(want_))) fail_msg("%s: got %.9g, wanted %.9g", #got, got_, want_); \
    } while (0)
#define NEAR(got, want, tol)                                                                                          \
    do {                                                                                                              \
        double got_ = (got), want_ = (want);                                                                          \
        if (!(fabs(got_ - want_) <= (tol))) fail_msg("%s: got %.9g, wanted %.9g", #got, got_, want_);                 \
    } while (0)

static double *filled(int64_t n, double x)
{
    double *v = malloc((size_t)n * sizeof *v);
    assert_non_null(v);
    for (int64_t i = 0; i < n; i++) v[i] = x;
    return v;
}

static double sum_by_matmul(const numerics *num, const double *x, int64_t n)
{
    double *ones = filled(n, 1), r = run_dot(num, x, ones, n);
    free(ones);
    return r;
}

/* ---- the accumulator ---- */

static void accumulates(void **s)
{
    (void)s;
    double *x = filled(16000, 1);
    SAME(sum_by_matmul(&NUM_M1, x, 16000), 16000);
    x[0] = 4096;
    SAME(sum_by_matmul(&NUM_M1, x, 1025), 5116);
    x[0] = 8192;
    SAME(sum_by_matmul(&NUM_M1, x, 17), 8208);
    x[0] = 2048;
    SAME(sum_by_matmul(&NUM_M1, x, 2), 2048); /* a tie goes to even, */
    SAME(sum_by_matmul(&NUM_M5, x, 2), 2050); /* or up */
    free(x);
    SAME(sum_by_matmul(&NUM_M1, VALUES(16000, -16000, 1), 3), 1);
    SAME(sum_by_matmul(&NUM_M1, VALUES(1024, 1024, 0.5), 3), 2048);
    SAME(sum_by_matmul(&NUM_M1, VALUES(1024, 1026, 1), 3), 2052); /* 2051 */
}

static void triples_survive(void **s)
{
    (void)s;
    static const struct {
        double big, survivors;
    } rows[] = { { 1024, 16 }, { 3000, 16 }, { 4000, 16 }, { 4090, 16 },
                 { 4096, 4 },  { 8000, 4 },  { 16000, 4 }, { 30000, 4 } };
    for (size_t r = 0; r < COUNT(rows); r++)
        for (int order = 0; order < 2; order++) {
            double x[48];
            for (int i = 0; i < 16; i++) {
                x[3 * i] = rows[r].big;
                x[3 * i + 1 + order] = -rows[r].big;
                x[3 * i + 2 - order] = 1;
            }
            SAME(sum_by_matmul(&NUM_M1, x, 48), rows[r].survivors);
        }
}

/* The vector form of the window, C = 1.5 * 2^(e + 12), q(a) + q(b) = (a + C) + (b - C) in fp32, is the definition. */
static float window_vector(float a, float b)
{
    float large = fabsf(a) > fabsf(b) ? fabsf(a) : fabsf(b);
    if (large == 0) return 0;
    volatile float c = ldexpf(1.5f, ilogbf(large) + 12), qa = a + c, qb = b - c;
    return qa + qb;
}

static void window_is_two_additions(void **s)
{
    (void)s;
    rng r = { .s = test_seed("window") };
    for (int n = 0; n < 200000; n++) {
        double p[4];
        float t = 0;
        for (int i = 0; i < 4; i++) {
            double a = dtype_round(DT_F16, rng_normal(&r) * ldexp(1, (int)rng_below(&r, 20) - 12));
            double b = rng_below(&r, 3) ? dtype_round(DT_F16, rng_normal(&r)) : 1;
            p[i] = rng_below(&r, 8) ? a * b : 0;
            t = window_vector(t, (float)p[i]);
        }
        numerics no_ceiling = NUM_M1;
        no_ceiling.port_partial = 0;
        double want = num_tile(&no_ceiling, p, 4);
        if ((double)t != want)
            fail_msg("%.17g %.17g %.17g %.17g: %.17g, wanted %.17g", p[0], p[1], p[2], p[3], (double)t, want);
    }
    /* what no chip lets in; a program's numerics may be any */
    const numerics plain = { .window_bits = 12 };
    static const double no[][4] = { { NAN, 1, 1, 1 }, { 1, 1, 1, NAN }, { INFINITY, -INFINITY, 1, 1 } };
    for (size_t i = 0; i < COUNT(no); i++) assert_true(isnan(num_tile(&plain, no[i], 4)));
    assert_true(num_tile(&plain, (double[]){ 1, INFINITY, 1, 1 }, 4) == (double)INFINITY);
}

static void wide_sums_are_plain(void **s)
{
    (void)s;
    numerics m4 = NUM_M1;
    m4.window_bits = 0, m4.port_ceiling = 0, m4.port_partial = 0;
    double x[6] = { 4096, -4096, 1, 0.5, 3e-5, 7 };
    SAME(sum_by_matmul(&m4, x, 6), dtype_round(DT_F16, 8.5 + 3e-5));
    double p[2] = { 4096, 0.25 };
    SAME(num_tile(&m4, p, 2), 4096.25);
}

/* ---- the output port ---- */

static double conv1x1(const numerics *num, int64_t cin, const double *x, const double *w)
{
    prog g;
    prog_open(&g, num);
    int64_t tx = prog_in(&g, DT_F16, DIMS(1, cin, 1, 1), x), tw = prog_in(&g, DT_F16, DIMS(1, cin, 1, 1), w),
            y = prog_out(&g, DT_F16, DIMS(1, 1, 1, 1));
    prog_insn(&g, IN_CONV, INTS(y, tx, tw, 0), INTS(2, 1, 1, 4, 0, 0, 0, 0, 2, 1, 1, 1, 0), REALS(0));
    prog_run(&g, true);
    double r = g.out[0][0];
    prog_close(&g);
    return r;
}

static void port_has_a_ceiling(void **s)
{
    (void)s;
    SAME(run_dot(&NUM_M1, VALUES(32752), VALUES(1), 1), 32752);
    SAME(run_dot(&NUM_M1, VALUES(16384), VALUES(2), 1), INF);
    SAME(run_dot(&NUM_M1, VALUES(-16384), VALUES(2), 1), -INF);
    SAME(run_dot(&NUM_M1, VALUES(16384, 16368), VALUES(1, 1), 2), 32752);
    SAME(run_dot(&NUM_M1, VALUES(16384, 16384), VALUES(1, 1), 2), INF);
    SAME(conv1x1(&NUM_M1, 2, VALUES(16384, 16368), VALUES(1, 1)), 32752);
    SAME(conv1x1(&NUM_M1, 2, VALUES(16384, 16384), VALUES(1, 1)), INF);
    SAME(conv1x1(&NUM_M1, 1, VALUES(60000), VALUES(1)), 60000);
    SAME(run_dot(&NUM_M1, VALUES(30000, 30000, -30000), VALUES(1, 1, 1), 3), INF); /* inside a tile */
    /* between tiles */
    SAME(run_dot(&NUM_M1, VALUES(30000, 0, 0, 0, 30000, 0, 0, 0, -30000), VALUES(1, 1, 1, 1, 1, 1, 1, 1, 1), 9), INF);
    SAME(run_dot(&numerics_cpu, VALUES(30000, 30000, -30000), VALUES(1, 1, 1), 3), dtype_round(DT_F16, 30000));
}

/* The first sum of finite numbers that reaches the ceiling decides, also where what cancels it reaches the other end;
 * infinities of operands cancel as infinities do. */
static void what_is_past_the_ceiling_stays(void **s)
{
    (void)s;
    static const struct {
        double x[12], want;
    } rows[] = {
        { { 10000, 10000, 10000, 10000, -10000, -10000, -10000, -10000, 5 }, (double)INFINITY },
        { { 10000, 10000, 10000, 10000, -10000, -10000, -10000, -10000, -10000, -10000, -10000, -10000 }, (double)INFINITY },
        { { -20000, -20000, 30000, 10000, 20000, 20000 }, -(double)INFINITY },
        { { 20000, 20000, -(double)INFINITY, 5 }, (double)INFINITY },
        { { (double)INFINITY, 0, 0, 0, -10000, -10000, -10000, -10000 }, (double)INFINITY },
        { { (double)INFINITY, -(double)INFINITY, 5 }, 5 },
        { { (double)INFINITY, 0, 0, 0, -(double)INFINITY, 0, 0, 0, 5 }, 5 },
    };
    static const double ones[12] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };
    for (size_t i = 0; i < COUNT(rows); i++) SAME(run_dot(&NUM_M1, rows[i].x, ones, 12), rows[i].want);
    double tile[4] = { 20000, 20000, -30000, -30000 };
    SAME(num_tile(&NUM_M1, tile, 4), INF);
}

static void epilogue_rounds_twice(void **s)
{
    (void)s;
    /* acc 1.0, bias 2^-11: 1 + 2^-11 is a tie and rounds to 1 before the doubling; unrounded it would give 2 + 2^-10
     * -> 2 */
    prog g;
    const numerics *nums[] = { &NUM_M1, &NUM_M5, &numerics_cpu };
    static const double want[] = { 1.0, 1.001953125, 1.0009765625 }; /* to even, away from 0, once */
    for (int k = 0; k < 3; k++) {
        prog_open(&g, nums[k]);
        int64_t x = prog_in(&g, DT_F16, DIMS(1, 1), VALUES(1)), w = prog_in(&g, DT_F16, DIMS(1, 1), VALUES(1));
        int64_t b = prog_in(&g, DT_F16, DIMS(1, 1), VALUES(0x1p-11)), y = prog_out(&g, DT_F16, DIMS(1, 1));
        prog_insn(&g, IN_MATMUL, INTS(y, x, w, 1, b),
                  INTS(0, 0, 12, FN_ADD, 0, 1, -1, 0, DT_F16, FN_ADD, 2, 1, -1, 0, DT_F16), REALS(0));
        prog_run(&g, true);
        SAME(g.out[0][0], want[k]);
        prog_close(&g);
    }
}

/* What a bias lifts to the ceiling is infinite, though the accumulator was below it. */
static void epilogue_has_a_ceiling(void **s)
{
    (void)s;
    static const struct {
        double bias, want;
    } rows[] = { { 2752, 32752 }, { 2768, (double)INFINITY }, { -62768, -(double)INFINITY }, { -60000, -30000 } };
    for (size_t k = 0; k < COUNT(rows); k++) {
        prog g;
        prog_open(&g, &NUM_M1);
        int64_t x = prog_in(&g, DT_F16, DIMS(1, 1), VALUES(30000)), w = prog_in(&g, DT_F16, DIMS(1, 1), VALUES(1));
        int64_t b = prog_in(&g, DT_F16, DIMS(1, 1), &rows[k].bias), y = prog_out(&g, DT_F16, DIMS(1, 1));
        prog_insn(&g, IN_MATMUL, INTS(y, x, w, 1, b), INTS(0, 0, 6, FN_ADD, 0, 1, -1, 0, DT_F16), REALS(0));
        prog_run(&g, true);
        SAME(g.out[0][0], rows[k].want);
        prog_close(&g);
    }
}

/* ---- exempt paths ---- */

static double reduced(const numerics *num, red_kind kind, const double *x, int64_t n)
{
    prog g;
    prog_open(&g, num);
    int64_t tx = prog_in(&g, DT_F16, DIMS(n), x), y = prog_out(&g, DT_F16, DIMS(1));
    prog_insn(&g, IN_REDUCE, INTS(y, tx), INTS(1, 0, kind), NO_REALS);
    prog_run(&g, true);
    double r = g.out[0][0];
    prog_close(&g);
    return r;
}

static void limits_of_other_paths(void **s)
{
    (void)s;
    SAME(reduced(&NUM_M1, RED_SUM, VALUES(32752, 32752), 2), 65504);
    SAME(reduced(&NUM_M1, RED_SUM, VALUES(32752, 32768), 2), INF);
    /* 2030.63 is 2031 before the 0.5625 comes to it: squares are rounded, then summed, on every chip */
    SAME(reduced(&NUM_M1, RED_SUM_SQUARE, VALUES(45.0625, 0.75), 2), 2032);
    SAME(reduced(&NUM_M5, RED_SUM_SQUARE, VALUES(45.0625, 0.75), 2), 2032);
    SAME(reduced(&numerics_cpu, RED_SUM_SQUARE, VALUES(45.0625, 0.75), 2), 2031);
    SAME(run_fn(&NUM_M1, FN_MUL, VALUES(32752, 2), NULL), 65504);
    SAME(run_fn(&NUM_M1, FN_MUL, VALUES(32768, 2), NULL), INF);
    SAME(run_fn(&NUM_M1, FN_SQUARE, VALUES(256), NULL), INF);
    assert_true(run_fn(&NUM_M1, FN_SQUARE, VALUES(255.875), NULL) < 65505);
    SAME(run_fn(&NUM_M1, FN_EXP, VALUES(11.09375), NULL), INF);
    assert_true(run_fn(&NUM_M1, FN_EXP, VALUES(11.0859375), NULL) < 65505);
}

static double width_slice(const numerics *num, double x, int64_t offset)
{
    prog g;
    prog_open(&g, num);
    double v[2] = { x, x };
    int64_t tx = prog_in(&g, DT_F16, DIMS(1, 2), v), y = prog_out(&g, DT_F16, DIMS(1, 1));
    prog_insn(&g, IN_MOVE, INTS(y, tx), INTS(1, 1, 0, 1, 1, offset, 1, 1, offset != 0), NO_REALS);
    prog_run(&g, true);
    double r = g.out[0][0];
    prog_close(&g);
    return r;
}

static void width_slices_saturate(void **s)
{
    (void)s;
    SAME(width_slice(&NUM_M1, 4094, 1), 4094);
    SAME(width_slice(&NUM_M1, 4095, 1), INF);
    SAME(width_slice(&NUM_M1, 4096, 1), INF);
    SAME(width_slice(&NUM_M1, -4100, 1), -INF);
    SAME(width_slice(&NUM_M1, 60000, 0), 60000);
    SAME(width_slice(&NUM_M5, 4096, 1), 4096);
}

/* ---- NaN, infinity, zero, subnormal ---- */

static void special_values(void **s)
{
    (void)s;
    static const double none[2] = { 0 };
    const numerics *m1 = &NUM_M1;
    double nan = (double)NAN;
    SAME(run_fn(m1, FN_ADD, VALUES(nan, 0), NULL), INF);
    SAME(run_fn(m1, FN_RELU, VALUES(nan), NULL), INF);
    SAME(run_fn(m1, FN_SIGMOID, VALUES(nan), NULL), 1);
    SAME(run_fn(m1, FN_TANH, VALUES(nan), NULL), 1);
    SAME(run_fn(m1, FN_ERF, VALUES(nan), NULL), 1);
    SAME(run_fn(m1, FN_EXP, VALUES(nan), NULL), INF);
    SAME(run_fn(m1, FN_MAX, VALUES(nan, 1), NULL), INF);
    SAME(run_fn(m1, FN_SUB, VALUES(INF, INF), NULL), 0);
    SAME(run_fn(m1, FN_MUL, VALUES(0, INF), NULL), 0);
    SAME(run_fn(m1, FN_SQRT, VALUES(-1), NULL), 0);
    SAME(run_fn(m1, FN_RSQRT, VALUES(-1), none), 0);
    SAME(run_fn(m1, FN_LOG, VALUES(-1), none), 0);
    SAME(run_fn(m1, FN_ADD, VALUES(0x1p-24, 0), NULL), 0x1p-24);
    SAME(run_fn(m1, FN_MUL, VALUES(0x1p-24, 1), NULL), 0x1p-24);
    SAME(run_fn(m1, FN_INV, VALUES(-0.0), none), INF);
    SAME(run_fn(m1, FN_RSQRT, VALUES(-0.0), none), INF);
    SAME(run_fn(m1, FN_SQRT, VALUES(-0.0), NULL), 0);
    SAME(run_fn(m1, FN_ADD, VALUES(-0.0, 0), NULL), 0);
    SAME(run_fn(m1, FN_SOFTPLUS, VALUES(INF), NULL), 0);
    SAME(run_fn(m1, FN_SOFTSIGN, VALUES(INF), NULL), 0);
    SAME(run_fn(m1, FN_LOG, VALUES(0), VALUES(1e-45)), -45440);
    SAME(sum_by_matmul(m1, VALUES(0x1p-24, 0x1p-20), 2), 0);
    SAME(sum_by_matmul(m1, VALUES(0x1p-14, -0x1p-14, 0x1p-14), 3), 0x1p-14); /* the least that is no subnormal */
    SAME(run_dot(m1, VALUES(0x1p-7), VALUES(0x1p-7), 1), 0x1p-14);
    SAME(run_dot(m1, VALUES(0x1p-8), VALUES(0x1p-7), 1), 0);
    SAME(sum_by_matmul(&NUM_M5, VALUES(0x1p-24, 0x1p-20), 2), 0x1p-24 + 0x1p-20);
    SAME(run_dot(&NUM_M5, VALUES(0x1p-15), VALUES(0x1p-9), 1), 0x1p-24);
    SAME(run_dot(m1, VALUES(INF, 1), VALUES(0, 3), 2), 3); /* 0 * inf counts as 0 among the products */
    SAME(run_dot(m1, VALUES(nan, 1), VALUES(1, 3), 2), INF);
    assert_true(isnan(run_fn(&numerics_cpu, FN_SUB, VALUES(INF, INF), NULL)));
    SAME(run_fn(&numerics_cpu, FN_DIV, VALUES(1, -0.0), NULL), -INF);
    SAME(run_fn(m1, FN_DIV, VALUES(1, -0.0), NULL), INF);
}

/* Every function and every class of operand: a chip never answers NaN or -0. */
static void never_nan(void **s)
{
    (void)s;
    static const double x[] = {
        0, -0.0, 1, -1, 0.3, -7.5, 1000, -65504, 0x1p-24, -0x1p-15, (double)INFINITY, -(double)INFINITY, (double)NAN
    };
    static const double par[2] = { 0.5, 2 };
    const numerics *nums[] = { &NUM_M1, &NUM_M5 };
    for (int k = 0; k < 2; k++)
        for (int f = 0; f < FN_COUNT; f++)
            for (size_t i = 0; i < COUNT(x); i++)
                for (size_t j = 0; j < (fn_operands((fn_id)f) > 1 ? COUNT(x) : 1); j++) {
                    double v[3] = { x[i], x[j], x[(i + j) % COUNT(x)] };
                    double y = num_fn(nums[k], (fn_id)f, v, par, DT_F16);
                    if (isnan(y) || (y == 0 && signbit(y)))
                        fail_msg("%s(%g, %g, %g) is %g", fn_name((fn_id)f), v[0], v[1], v[2], y);
                    if (dtype_round(DT_F16, y) != y)
                        fail_msg("%s(%g, %g) is %.9g, not an fp16", fn_name((fn_id)f), v[0], v[1], y);
                }
}

/* ---- softmax and norms ---- */

static void run_line(const numerics *num, insn_id op, const double *x, int64_t n, norm_kind kind, double *y)
{
    prog g;
    prog_open(&g, num);
    int64_t tx = prog_in(&g, DT_F16, DIMS(1, n), x), ty = prog_out(&g, DT_F16, DIMS(1, n));
    if (op == IN_SOFTMAX) prog_insn(&g, op, INTS(ty, tx), INTS(1), NO_REALS);
    else prog_insn(&g, op, INTS(ty, tx, -1, -1), INTS(1, 1, kind), REALS(1e-5));
    prog_run(&g, true);
    memcpy(y, g.out[0], (size_t)n * sizeof *y);
    prog_close(&g);
}

static void lines(void **s)
{
    (void)s;
    double y[4], z[4];
    run_line(&NUM_M1, IN_SOFTMAX, VALUES(1000, 1, 2, 3), 4, 0, y);
    for (int i = 0; i < 4; i++) SAME(y[i], i == 0);
    run_line(&NUM_M1, IN_SOFTMAX, VALUES(7, 7, 7, 7), 4, 0, y);
    for (int i = 0; i < 4; i++) SAME(y[i], 0.25);
    run_line(&NUM_M1, IN_SOFTMAX, VALUES(1, (double)NAN, 2, 3), 4, 0, y);
    for (int i = 0; i < 4; i++) SAME(y[i], i == 1);
    run_line(&NUM_M1, IN_NORM, VALUES(1, (double)NAN, 2, 3), 4, NORM_RMS, y);
    run_line(&NUM_M1, IN_NORM, VALUES(1, INF, 2, 3), 4, NORM_RMS, z);
    assert_memory_equal(y, z, sizeof y);
    run_line(&NUM_M1, IN_NORM, VALUES(1, (double)NAN, 2, 3), 4, NORM_LAYER, y);
    run_line(&NUM_M1, IN_NORM, VALUES(1, INF, 2, 3), 4, NORM_LAYER, z);
    assert_memory_not_equal(y, z, sizeof y);
    for (int i = 0; i < 4; i++) assert_true(isfinite(y[i]) && isfinite(z[i]));
    NEAR(y[1], sqrt(3), 0.01); /* one large value among four */
}

/* ---- tables ---- */

static double worst(fn_id f, double lo, double hi, double (*exact)(double))
{
    double w = 0;
    static const double none[2] = { 0 };
    for (uint32_t h = 0; h < 0x10000; h++) {
        double x = f16_to_f64((uint16_t)h);
        if (!(x >= lo && x <= hi)) continue;
        double e = fabs(num_fn(&NUM_M1, f, &x, none, DT_F16) - exact(x));
        w = e > w ? e : w;
    }
    return w;
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double gelu(double x) { return 0.5 * x * erfc(-x / sqrt(2)); }
static double silu(double x) { return x * sigmoid(x); }
static double softplus(double x) { return log1p(exp(-fabs(x))) + (x > 0 ? x : 0); }
static double softsign(double x) { return x / (1 + fabs(x)); }

static void table_errors(void **s)
{
    (void)s;
    NEAR(worst(FN_SIGMOID, -100, 100, sigmoid), 0.0034, 0.00006);
    NEAR(worst(FN_TANH, -100, 100, tanh), 0.0017, 0.00006);
    NEAR(worst(FN_GELU, -4.4, 4, gelu), 0.0059, 0.0003); /* 0.00616: at the knot 0.25, which is fitted */
    NEAR(run_fn(&NUM_M1, FN_GELU, VALUES(0), NULL), -0.000543, 5e-7);
    NEAR(run_fn(&NUM_M1, FN_SILU, VALUES(0), NULL), -0.001259, 5e-7);
    double seam[3] = { worst(FN_SIN, -3.25, 3.25, sin), worst(FN_COS, -3.25, 3.25, cos),
                       worst(FN_ATAN, -70000, 70000, atan) };
    for (int i = 0; i < 3; i++) assert_true(seam[i] >= 0.04 && seam[i] <= 0.12);
    assert_true(worst(FN_SIN, -3, 3, sin) < 0.003);
    assert_true(worst(FN_ERF, -100, 100, erf) < 0.0025);
    assert_true(worst(FN_SILU, -20, 8, silu) < 0.016);
    assert_true(worst(FN_SOFTPLUS, -65504, 8, softplus) < 0.009);
    assert_true(worst(FN_SOFTSIGN, -65504, 65504, softsign) < 0.004);
    assert_true(worst(FN_EXP2, -14, 0, exp2) < 0.001);
}

/* Relative errors of the tables that carry an exponent. */
static void scaled_tables(void **s)
{
    (void)s;
    static const double none[2] = { 0 };
    for (uint32_t h = 0x0400; h < 0x7bff; h += 7) { /* positive normals */
        double x = f16_to_f64((uint16_t)h);
        NEAR(num_fn(&NUM_M1, FN_SQRT, &x, none, DT_F16) / sqrt(x), 1, 0.0015);
        if (x < 16000 && x > 1e-4) NEAR(num_fn(&NUM_M1, FN_INV, &x, none, DT_F16) * x, 1, 0.0015);
        NEAR(num_fn(&NUM_M1, FN_RSQRT, &x, none, DT_F16) * sqrt(x), 1, 0.003);
        NEAR(num_fn(&NUM_M1, FN_LOG, &x, none, DT_F16), log(x), 0.002 + 0.0011 * fabs(log(x)));
        double neg = -x;
        SAME(num_fn(&NUM_M1, FN_SIGN, &neg, none, DT_F16), -1);
        if (x < 16000 && x > 1e-4)
            SAME(num_fn(&NUM_M1, FN_INV, &neg, none, DT_F16), -num_fn(&NUM_M1, FN_INV, &x, none, DT_F16));
    }
}

/* ---- rounding of single values ---- */

static void rounding(void **s)
{
    (void)s;
    SAME(num_round(&NUM_M1, DT_F16, 2049), 2048);
    SAME(num_round(&NUM_M1, DT_F16, 65519.99), 65504);
    SAME(num_round(&NUM_M1, DT_F16, 65520), INF);
    SAME(num_round(&NUM_M1, DT_F16, -0x1p-26), 0);
    SAME(num_round(&numerics_cpu, DT_F16, -0x1p-26), -0.0);
    SAME(num_round(&numerics_cpu, DT_I32, -2.7), -2);
    SAME(num_round(&numerics_cpu, DT_I8, 300), 127);
    SAME(num_round(&numerics_cpu, DT_BOOL, -0.1), 1);
    SAME(num_round(&numerics_cpu, DT_I32, (double)NAN), 0);
    SAME(num_round(&numerics_cpu, DT_U8, -3), 0);
    SAME(num_round(&NUM_M1, DT_F16, (double)NAN), 0);
    SAME(num_round(&numerics_cpu, DT_F16, 1 + 0x1p-11 + 0x1p-40), 1 + 0x1p-10); /* once, not to fp32 first */
    SAME(num_round(&numerics_cpu, DT_F16, 1 + 0x1p-11), 1);
    rng r = { .s = test_seed("rounding") };
    for (int i = 0; i < 100000; i++) { /* the fast conversion is the obvious one */
        double x = (double)(float)(rng_normal(&r) * ldexp(1, (int)rng_below(&r, 44) - 26));
        SAME(num_round(&numerics_cpu, DT_F16, x), dtype_round(DT_F16, x));
    }
}

/* Functions at ties, edges and numbers that are none: on the processor, where nothing comes in between. */
static void functions_at_points(void **s)
{
    (void)s;
    static const double nan_ = (double)NAN;
    const struct {
        fn_id f;
        double x, y, p, want; /* y: the second operand; p: both parameters */
    } rows[] = {
        { FN_ROUND, 0.5, 0, 0, 0 },           { FN_ROUND, 1.5, 0, 0, 2 },           { FN_ROUND, 2.5, 0, 0, 2 },          { FN_ROUND, -2.5, 0, 0, -2 },
        { FN_SIGN, 0, 0, 0, 0 },              { FN_SIGN, -0.0, 0, 0, -0.0 },        { FN_SIGN, nan_, 0, 0, nan_ },       { FN_MAX, nan_, 1, 0, nan_ },
        { FN_MAX, 1, nan_, 0, nan_ },         { FN_MIN, nan_, 1, 0, nan_ },         { FN_MIN, 1, nan_, 0, nan_ },        { FN_RELU, nan_, 0, 0, nan_ },
        { FN_CLIP, nan_, 0, 1, nan_ },        { FN_LEAKY_RELU, nan_, 0, 2, nan_ },  { FN_PRELU, nan_, 2, 0, nan_ },      { FN_PRELU, 0, -2, 0, -0.0 },
        { FN_THRESHOLDED_RELU, 1, 0, 1, 1 },  { FN_THRESHOLDED_RELU, 0.5, 0, 1, 0 }, { FN_THRESHOLD, 0.5, 0, 1, 1 },     { FN_SELECT, 0, 3, 0, 0 },
        { FN_SELECT, nan_, 3, 0, 3 },         { FN_EQ, nan_, nan_, 0, 0 },          { FN_NE, nan_, nan_, 0, 1 },         { FN_LE, 2, 2, 0, 1 },
        { FN_LT, 2, 2, 0, 0 },                { FN_GE, 2, 2, 0, 1 },                { FN_GT, 2, 2, 0, 0 },               { FN_NOT, nan_, 0, 0, 0 },
        { FN_FLOOR_DIV, -7, 2, 0, -4 },       { FN_SQRT, -0.0, 0, 0, -0.0 },        { FN_ABS, -0.0, 0, 0, 0 },           { FN_ELU, -1e-12, 0, 1, -1e-12 },
        { FN_FLOOR_DIV, 16777213, 1.75, 0, 9586979 }, /* of the quotient in fp32; exactly it is 9586978.86 */
        /* 1 + tanh(u) has three digits left, and none */
        { FN_GELU_TANH, -7, 0, 0, -2.315442262072549e-15 }, { FN_GELU_TANH, -8, 0, 0, -3.107782937501111e-21 },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        const double v[3] = { rows[i].x, rows[i].y, 0 }, p[2] = { rows[i].p, rows[i].p },
                     want = (double)(float)rows[i].want;
        const double got = num_fn(&numerics_cpu, rows[i].f, v, p, DT_F32);
        if (!(isnan(want) ? isnan(got) : got == want && signbit(got) == signbit(want)))
            fail_msg("row %zu: %g, wanted %g", i, got, want);
    }
    /* whole numbers are divided exactly */
    SAME(num_fn(&numerics_cpu, FN_FLOOR_DIV, VALUES(2147483647, 2147483646), NULL, DT_I32), 1);
    SAME(num_fn(&numerics_cpu, FN_FLOOR_DIV, VALUES(2147483645, 2147483646), NULL, DT_I32), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accumulates),          cmocka_unit_test(triples_survive),       cmocka_unit_test(window_is_two_additions),
        cmocka_unit_test(wide_sums_are_plain),  cmocka_unit_test(port_has_a_ceiling),    cmocka_unit_test(what_is_past_the_ceiling_stays),    cmocka_unit_test(epilogue_rounds_twice), cmocka_unit_test(epilogue_has_a_ceiling),
        cmocka_unit_test(limits_of_other_paths), cmocka_unit_test(width_slices_saturate), cmocka_unit_test(special_values),
        cmocka_unit_test(never_nan),            cmocka_unit_test(lines),                 cmocka_unit_test(table_errors),
        cmocka_unit_test(scaled_tables),        cmocka_unit_test(rounding),              cmocka_unit_test(functions_at_points),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
