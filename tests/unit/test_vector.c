/* test_vector.c: the loops of vector.h: every instruction set against plain C at odd sizes, and the contracts of the
 * single kernels. */
#include <float.h>
#include <math.h>

#include "vector_t.h"

enum { MOST = 150 };
static const int64_t sizes[] = { 1, 2, 3, 7, 15, 16, 17, 31, 33, 64, 65, 127, 149 };

/* Exact functions give the same bits, and nothing past n is touched; the others stay within their stated error of
 * each other. */
static void functions(const vec_kernels *v, const vec_kernels *plain)
{
    float a[MOST], b[MOST], c[MOST], x[MOST + 1], y[MOST], p[2] = { 0.75f, 3 };
    for (int f = 0; f < VF_COUNT; f++)
        for (size_t s = 0; s < COUNT(sizes); s++) {
            int64_t n = sizes[s];
            for (int64_t i = 0; i < n; i++) a[i] = number(), b[i] = number(), c[i] = number();
            x[n] = 12345;
            v->fn[f](x, a, b, c, p, n);
            plain->fn[f](y, a, b, c, p, n);
            assert_true(x[n] == 12345);
            for (int64_t i = 0; i < n; i++) {
                bool ok = fns[f].ulp == 0
                              ? same(x[i], y[i])
                              : same(x[i], y[i]) || fabsf(x[i] - y[i]) <= (float)(2 * fns[f].ulp) * 0x1p-23f *
                                                                                  fmaxf(fabsf(y[i]), 1e-30f) +
                                                                              1e-6f * fabsf(a[i]);
                if (!ok)
                    fail_msg("%s %s: element %lld of %lld of (%.9g, %.9g, %.9g) is %.9g, plain C says %.9g", v->name,
                             fns[f].name, (long long)i, (long long)n, (double)a[i], (double)b[i], (double)c[i],
                             (double)x[i], (double)y[i]);
            }
        }
}

static void test_functions(void **state)
{
    (void)state;
    each_row(functions);
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double silu(double x) { return x * sigmoid(x); }
static double gelu_sigmoid(double x) { return x * sigmoid(1.702 * x); }
static double gelu_tanh(double x) { return x * sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x)); }

/* Against the C library, in units of the last place where the table says so. */
static void accuracy(const vec_kernels *v, const vec_kernels *plain)
{
    static const struct {
        vec_fn f;
        double (*exact)(double);
        double lo, hi;
    } rows[] = { { VF_EXP, exp, -87, 88 }, { VF_EXP2, exp2, -125, 127 }, { VF_LOG, log, 1e-6, 1e6 }, { VF_TANH, tanh, -9, 9 }, { VF_ERF, erf, -4, 4 },
                 { VF_SIGMOID, sigmoid, -80, 30 }, { VF_SILU, silu, -60, 30 }, { VF_EXP_HALF, exp, -87, 88 },
                 { VF_SIGMOID_HALF, sigmoid, -80, 30 }, { VF_SILU_HALF, silu, -60, 30 }, { VF_GELU_SIGMOID_HALF, gelu_sigmoid, -40, 20 }, { VF_GELU_TANH_HALF, gelu_tanh, -6, 20 } };
    (void)plain;
    for (size_t r = 0; r < COUNT(rows); r++)
        for (int k = 0; k < 4000; k++) {
            float x = (float)rng_range(&R, rows[r].lo, rows[r].hi), y, zero[2] = { 0 };
            v->fn[rows[r].f](&y, &x, NULL, NULL, zero, 1);
            double want = rows[r].exact((double)x), ulp = ldexp(1, ilogb(want) - 23);
            if (!(fabs((double)y - want) <= (fns[rows[r].f].ulp + 2) * ulp + 1e-7 * (rows[r].f == VF_LOG)))
                fail_msg("%s %s(%.9g) is %.9g, wanted %.9g", v->name, fns[rows[r].f].name, (double)x, (double)y, want);
        }
}

/* A moment over the root of another: ordinary sizes, roots of nothing, and what no approximation can do. */
static void root_div(const vec_kernels *v, const vec_kernels *plain)
{
    enum { N = 48 };
    static const float odd[] = { 0, -0.0f, INFINITY, NAN, -1, 0x1p-149f, 0x1p-127f, 0x1p-126f, 0x1.fffffep127f, 1e-8f };
    float x[N], y[N], z[N], got[N];
    (void)plain;
    /* by turns: nothing odd, some roots of 0, some of everything; all lanes take the same way */
    for (int round = 0; round < 600; round++) {
        for (int i = 0; i < N; i++) {
            x[i] = (float)(rng_range(&R, -1, 1) * ldexp(1, (int)rng_below(&R, 80) - 40)),
            y[i] = (float)ldexp(rng_range(&R, 1, 2), (int)rng_below(&R, 160) - 100);
            z[i] = (float)ldexp(rng_range(&R, 1, 2), (int)rng_below(&R, 60) - 40);
            if (round % 3 && i % 5 == 0) y[i] = round % 3 == 1 ? 0 : odd[rng_below(&R, COUNT(odd))];
            if (round % 3 == 2 && i % 7 == 0) x[i] = odd[rng_below(&R, COUNT(odd))];
            if (round % 3 == 2 && i % 11 == 0) z[i] = odd[rng_below(&R, COUNT(odd))];
        }
        v->fn[VF_ROOT_DIV](got, x, y, z, NULL, N);
        for (int i = 0; i < N; i++) {
            float want = x[i] / (sqrtf(y[i]) + z[i]);
            double ulp = isfinite(want) ? ldexp(1, (want == 0 ? -126 : MAX(ilogb((double)want), -126)) - 23) : 0;
            if (!same(got[i], want) && !(fabs((double)got[i] - (double)want) <= fns[VF_ROOT_DIV].ulp * ulp))
                fail_msg("%s %.9g / (sqrt(%.9g) + %.9g) is %.9g, wanted %.9g", v->name, (double)x[i], (double)y[i],
                         (double)z[i], (double)got[i], (double)want);
        }
    }
}

static void test_accuracy(void **state)
{
    (void)state;
    each_row(root_div);
    each_row(accuracy);
}

static void conversions(const vec_kernels *v, const vec_kernels *plain)
{
    static const dtype loads[] = { DT_F32, DT_F16, DT_BF16, DT_BOOL, DT_I8, DT_U8, DT_I16, DT_U16 },
                       stores[] = { DT_F32, DT_F16, DT_BF16, DT_BOOL };
    static const int hows[] = { 0,
                                VR_F16,
                                VR_BF16,
                                VR_CHIP,
                                VR_F16 | VR_CHIP,
                                VR_F16 | VR_CHIP | VR_AWAY,
                                VR_BF16 | VR_CHIP | VR_AWAY,
                                VR_BOOL,
                                VR_BOOL | VR_CHIP };
    unsigned char raw[4 * MOST], out[4 * MOST + 4], want[4 * MOST];
    float x[MOST], y[MOST];
    for (size_t s = 0; s < COUNT(sizes); s++) {
        int64_t n = sizes[s];
        for (size_t t = 0; t < COUNT(loads); t++) {
            for (size_t i = 0; i < sizeof raw; i++) raw[i] = (unsigned char)rng_next(&R);
            v->load(x, loads[t], raw, n);
            for (int64_t i = 0; i < n; i++) assert_true(same(x[i], (float)dtype_load(loads[t], raw, i)));
        }
        for (size_t t = 0; t < COUNT(stores); t++) {
            for (int64_t i = 0; i < n; i++) x[i] = number();
            memset(out, 0xa5, sizeof out);
            v->store(out, stores[t], x, n);
            for (int64_t i = 0; i < n; i++) {
                dtype_store(stores[t], want, 0, (double)x[i]);
                double g = dtype_load(stores[t], out, i), w = dtype_load(stores[t], want, 0);
                assert_true(g == w || (isnan(g) && isnan(w)));
            }
            assert_int_equal(out[n * dtype_bits(stores[t]) / 8], 0xa5);
        }
        for (size_t h = 0; h < COUNT(hows); h++) {
            for (int64_t i = 0; i < n; i++)
                x[i] = y[i] = rng_below(&R, 4) ? number() : (float)rng_below(&R, 5000) + 0.5f;
            v->round(x, hows[h], n);
            plain->round(y, hows[h], n);
            for (int64_t i = 0; i < n; i++) assert_true(same(x[i], y[i]));
        }
    }
    float tie[] = { 2049, -2049, 2051, 0x1p-25f, 65520 };
    v->round(tie, VR_F16 | VR_CHIP | VR_AWAY, COUNT(tie));
    assert_true(tie[0] == 2050 && tie[1] == -2050 && tie[2] == 2052 && tie[3] == 0x1p-24f && isinf(tie[4]));
}

static void test_conversions(void **state)
{
    (void)state;
    each_row(conversions);
}

static void statistics(const vec_kernels *v, const vec_kernels *plain)
{
    static const vec_stat stats[] = { STAT_SUM, STAT_SQUARES, STAT_ABS, STAT_MAX, STAT_MIN };
    static float x[40 * MOST], kept[40 * MOST];
    float a[MOST], b[MOST], mean[MOST];
    for (size_t s = 0; s < COUNT(sizes); s++)
        for (size_t k = 0; k < COUNT(stats); k++)
            for (int chip = 0; chip < 2; chip++) {
                int64_t n = sizes[s], rows = 1 + (int64_t)rng_below(&R, 20);
                for (int64_t i = 0; i < rows * n; i++) x[i] = number();
                for (int64_t i = 0; i < n; i++) a[i] = b[i] = mean[i] = (float)rng_range(&R, -1, 1);
                v->columns(a, stats[k], chip, x, rows, n, mean, n);
                plain->columns(b, stats[k], chip, x, rows, n, mean, n);
                for (int64_t i = 0; i < n; i++) assert_true(same(a[i], b[i]));
                rows = MIN(rows, v->width);
                for (int64_t i = 0; i < rows; i++) a[i] = b[i] = 0;
                v->rows(a, stats[k], chip, x, rows, n, mean, n);
                for (int64_t i = 0; i < rows; i++) plain->rows(b + i, stats[k], chip, x + i * n, 1, n, mean + i, n);
                for (int64_t i = 0; i < rows; i++) assert_true(same(a[i], b[i]));
                rows = 1 + (int64_t)rng_below(&R, 20);
                for (int64_t i = 0; i < n; i++) a[i] = b[i] = 0;
                v->down(a, DT_F32, x, stats[k], rows, 4 * n, n);
                plain->columns(b, stats[k], false, x, rows, n, NULL, n);
                for (int64_t i = 0; i < n; i++) assert_true(same(a[i], b[i]));
                for (int64_t i = 0; i < n; i++) x[i] = (float)rng_range(&R, -3, 3);
                float g = v->along(DT_F32, x, stats[k], 0, 0, n), w = plain->along(DT_F32, x, stats[k], 0, 0, n);
                assert_true(fabsf(g - w) <= 1e-5f * fmaxf(1, fabsf(w)) * (float)n);
            }
    for (size_t s = 0; s < COUNT(sizes); s++) {
        int64_t n = sizes[s];
        double sum = 0;
        float base = s % 2 ? 1000 : 0;
        for (int64_t i = 0; i < n; i++) x[i] = base + (float)rng_range(&R, -30, 0);
        float got = v->exps(a, DT_F32, x, base, n, 0);
        for (int64_t i = 0; i < n; i++) {
            double want = exp((double)x[i] - (double)base);
            assert_true(fabs((double)a[i] - want) <= want * 0x1p-23 * (4 + (double)base - (double)x[i]));
            sum += want;
        }
        assert_true(fabs((double)got - sum) <= 1e-5 * sum);
    }
    /* from fp16: powers of two against a whole one; what is tiny may be nothing */
    for (size_t s = 0; s < COUNT(sizes); s++) {
        static uint16_t raw[MOST];
        int64_t n = sizes[s];
        float most = s % 2 ? 60000 : 3, base = rintf(most * 1.44269504f);
        double sum = 0;
        for (int64_t i = 0; i < n; i++) x[i] = most - (float)rng_range(&R, 0, s % 3 ? 20 : 2000);
        v->store(raw, DT_F16, x, n), v->load(x, DT_F16, raw, n);
        float got = v->exps_half(a, raw, most, n, 0);
        for (int64_t i = 0; i < n; i++) {
            double want = exp2((double)x[i] * (double)1.44269504f - (double)base);
            assert_true(fabs((double)a[i] - want) <= want * 1e-4 + 0x1p-63);
            sum += want;
        }
        assert_true(fabs((double)got - sum) <= 1e-4 * sum + (double)n * 0x1p-63);
    }
    /* columns: the same exps and sums, in place too */
    enum { ROWS_ = 19 };
    static uint16_t half[ROWS_ * MOST];
    for (size_t s = 0; s < COUNT(sizes); s++) {
        int64_t n = sizes[s];
        float most[MOST], sum[MOST] = { 0 }, top[MOST];
        for (int64_t i = 0; i < ROWS_ * n; i++) x[i] = (float)rng_range(&R, -9, 9);
        v->store(half, DT_F16, x, ROWS_ * n), v->load(x, DT_F16, half, ROWS_ * n);
        for (int64_t i = 0; i < n; i++) most[i] = top[i] = -INFINITY;
        v->down(most, DT_F16, half, STAT_MOST, ROWS_, 2 * n, n);
        v->down(top, DT_F16, half, STAT_MAX, ROWS_, 2 * n, n);
        memcpy(kept, x, (size_t)(ROWS_ * n) * sizeof *x);
        v->exps_down(kept, DT_F32, kept, most, 0.25f, sum, ROWS_, 4 * n, n);
        for (int64_t i = 0; i < n; i++) {
            double all_ = 0;
            for (int64_t r = 0; r < ROWS_; r++) {
                double want = exp(0.25 * ((double)x[r * n + i] - (double)most[i]));
                assert_true(x[r * n + i] <= most[i] && most[i] == top[i] &&
                            fabs((double)kept[r * n + i] - want) <= want * 0x1p-23 * 22);
                all_ += want;
            }
            assert_true(fabs((double)sum[i] - all_) <= 1e-5 * all_);
        }
    }
    float nan[] = { 1, NAN, 3 }, all[] = { -INFINITY, -INFINITY };
    assert_true(isnan(v->along(DT_F32, nan, STAT_MAX, 0, -INFINITY, 3)) && isinf(v->largest(nan, 3)) &&
                v->along(DT_F32, all, STAT_MAX, 0, -INFINITY, 2) == -INFINITY);
}

static bool near(double got, double want, double tol) { return fabs(got - want) <= tol * fmax(1, fabs(want)); }

/* Every mixture of mean, gain and offset, each pair of types, past the caches or not; nothing around a row is
 * touched. With squares of the next row in the same loop: the same bits. Gains that are fp16 may be given as such: one
 * rounding then, too. */
static void gains(const vec_kernels *v, const vec_kernels *plain)
{
    enum { R_ = 5, PITCH = 160 };
    static _Alignas(VEC_LINE) unsigned char out[4 * R_ * PITCH], raw[4 * R_ * PITCH], once[4 * R_ * PITCH];
    float x[R_ * PITCH], col[2][PITCH], row[2][PITCH], back[PITCH];
    uint16_t gain_f16[PITCH], high[PITCH], low[PITCH];
    for (int mix = 0; mix < 128; mix++)
        for (size_t s = 0; s < COUNT(sizes); s++) {
            dtype tx = mix & 64 ? DT_BF16 : mix & 1 ? DT_F16 : DT_F32, ty = mix & 64 ? DT_BF16 : mix & 2 ? DT_F16 : DT_F32;
            int64_t n = sizes[s], sy = dtype_bits(ty) / 8;
            double tol = ty == DT_BF16 ? 0x1p-8 : ty == DT_F16 ? 1e-3 : 1e-6;
            for (int i = 0; i < R_ * PITCH; i++) x[i] = (float)rng_range(&R, -4, 4);
            for (int i = 0; i < PITCH; i++)
                col[0][i] = (float)rng_range(&R, -1, 1), col[1][i] = (float)rng_range(&R, 0.5, 2),
                row[0][i] = (float)rng_range(&R, -2, 2), row[1][i] = (float)rng_range(&R, -2, 2);
            v->store(raw, tx, x, R_ * PITCH), v->load(x, tx, raw, R_ * PITCH);
            v->store(gain_f16, DT_F16, row[0], PITCH), v->load(row[0], DT_F16, gain_f16, PITCH);
            bool mean = mix & 4, gain = mix & 8, bias = mix & 16;
            vec_affine p = { .gain = gain ? row[0] : NULL,
                             .bias = bias ? row[1] : NULL,
                             .mean_1 = mean ? 0.75f : 0,
                             .scale_1 = (float[]){ 1.5f, 0.7182818f, 0.002f, 0.0007f }[s % 4],
                             .stream = mix & 32,
                             .gain_f16 = gain && s % 3 ? gain_f16 : NULL };
            memset(out, 0xa5, sizeof out);
            v->affine(out, ty, raw, tx, &p, n);
            v->fence();
            assert_int_equal(out[n * sy], 0xa5);
            v->load(back, ty, out, n);
            for (int64_t i = 0; i < n; i++) {
                const double want = ((double)x[i] - (double)p.mean_1) * (double)p.scale_1 * (gain ? (double)row[0][i] : 1) +
                                    (bias ? (double)row[1][i] : 0);
                assert_true(near((double)back[i], want, tol));
                if (ty == DT_F16 && !mean && !bias)
                    assert_true(fabs((double)back[i] - want) <= 0x1.008p-11 * fabs(want) + 0x1p-23);
            }
            memcpy(once, out, sizeof once);
            memset(out, 0xa5, sizeof out);
            const float *next = (const float *)(const void *)(raw + PITCH * dtype_bits(tx) / 8),
                        less = mean ? -0.125f : 0;
            const float squares = v->affine_next(out, ty, raw, tx, &p, next, less, n);
            v->fence();
            assert_memory_equal(out, once, sizeof once);
            assert_true(same(squares, v->along(tx, next, STAT_SQUARES, less, 0, n)));
            p.mean = mean ? col[0] : NULL, p.scale = col[1];
            const bool halves = v->parts && tx == DT_F16 && ty == DT_F16 && !mean && !bias && s % 3;
            if (halves) {
                assert_int_equal(v->parts(high, low, col[1], PITCH), PITCH);
                p.scale_f16[0] = high, p.scale_f16[1] = low;
            }
            memset(out, 0xa5, sizeof out);
            v->affine_rows(out, ty, PITCH, raw, tx, PITCH, &p, R_, n);
            v->fence();
            for (int r = 0; r < R_; r++) {
                assert_int_equal(out[(r * PITCH + n) * sy], 0xa5);
                v->load(back, ty, out + r * PITCH * sy, n);
                for (int64_t i = 0; i < n; i++) {
                    const double want = ((double)x[r * PITCH + i] - (mean ? (double)col[0][i] : 0)) *
                                            (double)col[1][i] * (gain ? (double)row[0][r] : 1) +
                                        (bias ? (double)row[1][r] : 0);
                    assert_true(near((double)back[i], want, tol));
                    if (halves) assert_true(fabs((double)back[i] - want) <= 0x1.008p-11 * fabs(want) + 0x1p-23);
                }
            }
            v->store(raw, ty, x, n);
            memset(out, 0xa5, sizeof out);
            v->stream(out + (mix % 7) * sy, ty, x, n);
            v->fence();
            assert_memory_equal(out + (mix % 7) * sy, raw, (size_t)(n * sy));
            assert_int_equal(out[(n + mix % 7) * sy], 0xa5);
        }
    (void)plain;
}

/* Scales as two fp16, where they can be: their sum is within 2^-22 of them, and both are 0 elsewhere. */
static void halved(const vec_kernels *v, const vec_kernels *plain)
{
    static const float x[] = { 1,       0.1f, 0x1p-10f, 1000.3f, 0x1p14f, /* and what cannot */
                               0x1p15f, 0,    0x1p-11f, 1e-30f,  -1,      INFINITY, NAN };
    enum { FIT = 5 };
    uint16_t parts[2][COUNT(x)];
    float back[2][COUNT(x)];
    (void)plain;
    if (!v->parts) return;
    assert_int_equal(v->parts(parts[0], parts[1], x, COUNT(x)), FIT);
    for (int k = 0; k < 2; k++) v->load(back[k], DT_F16, parts[k], COUNT(x));
    for (size_t i = 0; i < COUNT(x); i++) {
        if (i >= FIT) assert_true(parts[0][i] == 0 && parts[1][i] == 0);
        else
            assert_true(back[0][i] != 0 && fabs((double)back[0][i] + (double)back[1][i] - (double)x[i]) <=
                                               0x1p-22 * (double)x[i] + 0x1p-25);
    }
}

static void soft_columns(const vec_kernels *v, float *base, float *sum, dtype t, const unsigned char *x, int64_t rows,
                         int64_t ld, int64_t n, bool half)
{
    v->soft_begin(base, sum, n, half);
    for (int64_t r = 0; r < rows; r += 2 * VEC_BAND)
        v->soft_look(base, sum, t, x + r * ld, MIN(2 * VEC_BAND, rows - r), ld, n, half);
    v->soft_end(base, sum, n, half);
}

/* The same with exps that are kept, band by band; twice, so that a second softmax takes the place of the first one's
 * exps. */
static void soft_kept(const vec_kernels *v, void *y, const void *x, dtype t, int64_t rows, int64_t pitch, int64_t n,
                      bool stream)
{
    enum { BANDS = 4, WIDE = 160 };
    static _Alignas(VEC_LINE) float keep[BANDS * (VEC_BAND + 1) * WIDE];
    static float base[2][WIDE], sum[2][WIDE];
    const int64_t ldx = dtype_bits(t) / 8 * pitch, ldy = ldx;
    assert_true(rows <= BANDS * VEC_BAND && n <= WIDE);
    for (int turn = 0; turn < 3; turn++) {
        const int now = turn % 2, before = 1 - now;
        if (turn < 2) v->soft_begin(base[now], sum[now], n, t == DT_F16);
        for (int64_t r = 0; r < rows; r += VEC_BAND) {
            vec_soft p = { .ldx = ldx, .ldy = ldy, .stream = stream, .keep = keep + r / VEC_BAND * VEC_KEPT(v, n) };
            if (turn < 2) p.x = (const char *)x + r * ldx, p.base = base[now], p.sum = sum[now];
            if (turn > 0) p.y = (char *)y + r * ldy, p.last = base[before], p.scale = sum[before];
            v->soft_band(&p, t, (int)MIN(VEC_BAND, rows - r), n);
        }
        if (turn < 2) v->soft_end(base[now], sum[now], n, t == DT_F16);
    }
    v->fence();
}

/* Either way; kept: where the processor has it, of one type. */
static void soft_down(const vec_kernels *v, bool kept, void *y, dtype ty, const void *x, dtype t, int64_t rows,
                      int64_t pitch, int64_t n, bool stream)
{
    float base[160], sum[160];
    const bool half = t == DT_F16 && ty == DT_F16;
    assert_true(n <= (int64_t)COUNT(base));
    if (kept) {
        soft_kept(v, y, x, t, rows, pitch, n, stream);
        return;
    }
    soft_columns(v, base, sum, t, x, rows, pitch * dtype_bits(t) / 8, n, half);
    const vec_affine p = { .mean = base, .scale = sum, .stream = stream };
    v->soft_rows(y, ty, pitch, x, t, pitch, &p, rows, n, half);
    v->fence();
}

/* A column has the same bits alone as beside others, some of which move what they are taken against. */
static void soft_alone(const vec_kernels *v, bool kept, const void *x, dtype t, int64_t rows, int64_t pitch, int64_t n)
{
    static _Alignas(VEC_LINE) unsigned char all[4 * 21 * 160], one[4 * 21 * 160];
    const size_t size = (size_t)dtype_bits(t) / 8;
    soft_down(v, kept, all, t, x, t, rows, pitch, n, false);
    for (int64_t i = 0; i < n; i++) {
        soft_down(v, kept, one, t, (const char *)x + (size_t)i * size, t, rows, pitch, 1, false);
        for (int64_t r = 0; r < rows; r++)
            if (memcmp(all + (size_t)(r * pitch + i) * size, one + (size_t)(r * pitch) * size, size))
                fail_msg("%s: softmax of column %lld depends on those beside it", v->name, (long long)i);
    }
}

static void soft_matches(const vec_kernels *v, const unsigned char *y, dtype ty, const float *x, int64_t rows,
                         int64_t pitch, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double top = -INFINITY, all = 0;
        for (int64_t r = 0; r < rows; r++) top = fmax(top, (double)x[r * pitch + i]);
        for (int64_t r = 0; r < rows; r++) all += exp((double)x[r * pitch + i] - top);
        for (int64_t r = 0; r < rows; r++) {
            double got = dtype_load(ty, y, r * pitch + i), want = exp((double)x[r * pitch + i] - top) / all;
            if (!(fabs(got - want) <= (ty == DT_F16 ? 6.5e-4 * want + 0x1p-25 : 8e-6 * want + 1e-30)))
                fail_msg("%s: softmax of row %lld of %lld, column %lld is %.9g, not %.9g", v->name, (long long)r,
                         (long long)rows, (long long)i, got, want);
        }
    }
    for (int64_t r = 0; r < rows; r++) assert_int_equal(y[(r * pitch + n) * dtype_bits(ty) / 8], 0xa5);
}

/* Softmax and moments down columns in one look, against double precision; nothing past a row is touched. */
static void looks(const vec_kernels *v, const vec_kernels *plain)
{
    enum { ROWS = 21, PITCH = 160 };
    static _Alignas(VEC_LINE) unsigned char raw[4 * ROWS * PITCH], out[4 * ROWS * PITCH];
    static float x[ROWS * PITCH], odd_x[ROWS * PITCH];
    float sum[PITCH], mean[PITCH], squares[PITCH];
    (void)plain;
    for (int mix = 0; mix < 32; mix++)
        for (size_t s = 0; s < COUNT(sizes); s++) {
            dtype t = mix & 1 ? DT_F16 : mix & 16 ? DT_BF16 : DT_F32, ty = mix & 2 ? DT_F16 : DT_F32;
            int64_t n = sizes[s], rows = mix & 4 ? ROWS : 1 + (int64_t)rng_below(&R, ROWS), size = dtype_bits(t) / 8;
            for (int i = 0; i < ROWS * PITCH; i++) x[i] = (float)rng_range(&R, -4, 4) + (mix & 8 ? 300.0f : 0);
            /* a whole band without a value */
            for (int r = 0; r < VEC_BAND && rows > VEC_BAND; r++) x[r * PITCH] = -INFINITY;
            /* and bands far above others */
            for (int64_t r = VEC_BAND; mix & 4 && t != DT_BF16 && r < rows; r++)
                x[r * PITCH + 1] += 40.0f * (float)(r / VEC_BAND);
            /* or a little, and then so far that nothing is left of them */
            for (int64_t r = 0; mix & 4 && t != DT_BF16 && r < rows; r++)
                x[r * PITCH + 2] = (float[]){ 0, 8.5f, 26 }[r / VEC_BAND] + (mix & 8 ? 300.0f : 0);
            v->store(raw, t, x, ROWS * PITCH), v->load(x, t, raw, ROWS * PITCH);
            const bool stream = mix & 8, keeps = v->soft_band && t == ty;
            for (int kept_ = 0; t != DT_BF16 && kept_ <= keeps; kept_++) {
                v->store(raw, t, x, ROWS * PITCH);
                memset(out, 0xa5, sizeof out);
                soft_down(v, kept_, out, ty, raw, t, rows, PITCH, n, stream);
                soft_matches(v, out, ty, x, rows, PITCH, n);
                if (t == ty) soft_alone(v, kept_, raw, t, rows, PITCH, n);
                memcpy(odd_x, x, sizeof x);
                for (int odd = 0; odd < 3; odd++) { /* nothing to divide by, a NaN, an infinity: none has a value */
                    for (int r = 0; r < ROWS; r++) odd_x[r * PITCH] = odd ? 1 : -INFINITY;
                    if (odd) odd_x[(rows - 1) * PITCH] = odd == 1 ? NAN : INFINITY;
                    v->store(raw, t, odd_x, ROWS * PITCH);
                    soft_down(v, kept_, out, ty, raw, t, rows, PITCH, n, stream);
                    for (int64_t r = 0; r < rows; r++)
                        assert_true(isnan(dtype_load(ty, out, r * PITCH)) &&
                                    (n == 1 || dtype_load(ty, out, r * PITCH + 1) >= 0));
                }
                /* values all the same, however small */
                for (int r = 0; r < ROWS; r++) odd_x[r * PITCH] = t == DT_F16 ? -65504 : -FLT_MAX;
                v->store(raw, t, odd_x, ROWS * PITCH);
                soft_down(v, kept_, out, ty, raw, t, rows, PITCH, n, stream);
                soft_matches(v, out, ty, odd_x, rows, PITCH, n);
            }
            for (int r = 0; r < ROWS; r++) x[r * PITCH] = 1;
            v->store(raw, t, x, ROWS * PITCH);
            v->fill(mean, 0, n), v->fill(squares, 0, n);
            for (int64_t r = 0; r < rows; r += 2 * VEC_BAND)
                v->moments(mean, squares, t, raw + r * PITCH * size, r, MIN(2 * VEC_BAND, rows - r), PITCH * size, n);
            v->fill(sum, 0, n);
            v->down(sum, t, raw, STAT_SQUARES, rows, PITCH * size, n);
            for (int64_t i = 0; i < n; i++) {
                double m = 0, q = 0, all = 0;
                for (int64_t r = 0; r < rows; r++)
                    m += (double)x[r * PITCH + i] / (double)rows,
                        all += (double)x[r * PITCH + i] * (double)x[r * PITCH + i];
                for (int64_t r = 0; r < rows; r++) q += ((double)x[r * PITCH + i] - m) * ((double)x[r * PITCH + i] - m);
                assert_true(near((double)mean[i], m, 1e-6) && near((double)squares[i], q, 1e-4) &&
                            near((double)sum[i], all, 1e-5));
            }
            double along = 0, squared = 0;
            for (int64_t i = 0; i < n; i++)
                along += (double)x[i], squared += ((double)x[i] - 0.5) * ((double)x[i] - 0.5);
            assert_true(near((double)v->along(t, raw, STAT_SUM, 0, 0, n), along, 1e-4) &&
                        near((double)v->along(t, raw, STAT_SQUARES, 0.5f, 0, n), squared, 1e-4));
        }
}

/* Lines at three steps in one call: the bits of the steps by themselves. The largest of fp16 lines, also when all
 * are negative. */
static void threes(const vec_kernels *v, const vec_kernels *plain)
{
    enum { ROOM = 640 };
    static _Alignas(VEC_LINE) unsigned char raw[2][ROOM], out[2][ROOM];
    float x[MOST], e[2][MOST], done[MOST];
    for (int mix = 0; mix < 16; mix++)
        for (size_t s = 0; s < COUNT(sizes); s++) {
            dtype tx = mix & 1 ? DT_F16 : DT_F32, ty = mix & 2 ? DT_F16 : DT_F32;
            const bool half = tx == DT_F16 && ty == DT_F16;
            int64_t n = sizes[s], sy = dtype_bits(ty) / 8;
            for (int k = 0; k < 2; k++) {
                for (int64_t i = 0; i < n; i++) x[i] = (float)rng_range(&R, -9, mix & 4 ? -1 : 9);
                if (mix & 4 && rng_below(&R, 3) == 0) x[rng_below(&R, (uint32_t)n)] = -0.0f;
                if (rng_below(&R, 4) == 0) x[rng_below(&R, (uint32_t)n)] = -INFINITY;
                v->store(raw[k], tx, x, n);
            }
            for (int64_t i = 0; i < n; i++) done[i] = (float)rng_range(&R, 0, 1);
            const float most = v->along(tx, raw[0], STAT_MOST, 0, -INFINITY, n),
                        next = v->along(tx, raw[1], STAT_MOST, 0, -INFINITY, n);
            assert_true(same(next, plain->along(tx, raw[1], STAT_MOST, 0, -INFINITY, n)) || next == 0);
            const float sum = half ? v->exps_half(e[0], raw[0], most, n, 0) : v->exps(e[0], tx, raw[0], most, n, 0);
            memset(out, 0xa5, sizeof out);
            v->affine(out[0], ty, done, DT_F32, &(vec_affine){ .scale_1 = 0.375f, .stream = mix & 8 }, n);
            vec_three p = { .y = out[1], .done = done, .scale = 0.375f, .x = raw[0], .e = e[1], .next = raw[1],
                            .most = most, .stream = mix & 8 };
            v->soft_three(&p, ty, tx, n);
            v->fence();
            assert_memory_equal(out[0], out[1], (size_t)(n * sy + 4));
            assert_memory_equal(e[0], e[1], (size_t)n * sizeof(float));
            assert_true(same(p.sum, sum) && p.most == next);
        }
}

/* A band written while another is looked at: the bits of the two by themselves. Columns are few or many; a band is the
 * first or a later one; some are far above those before them. */
static void turns(const vec_kernels *v, const vec_kernels *plain)
{
    enum { LONG = 2048 + 3 * 64, ALL = LONG * VEC_BAND, SIZE = 4 };
    static _Alignas(VEC_LINE) unsigned char x[SIZE * ALL], done[SIZE * ALL], y[2][SIZE * ALL];
    static float raw[ALL], stat[2][3][LONG], mean[LONG], scale[LONG], gain[VEC_BAND], bias[VEC_BAND];
    static float part[2][LONG];
    static uint16_t high[LONG], low[LONG], few[VEC_BAND];
    (void)plain;
    for (int way = 0; way < 128; way++) {
        const dtype t = way & 1 ? DT_F16 : DT_F32;
        const vec_look how = way & 2 ? LOOK_EXPS : way & 4 ? LOOK_MOMENTS : LOOK_SQUARES;
        const int64_t n = way & 16 ? LONG : 128, ld = n * dtype_bits(t) / 8, all = n * VEC_BAND,
                      before = way & 32 ? 0 : 3 * VEC_BAND;
        for (int64_t i = 0; i < all; i++) raw[i] = (float)rng_range(&R, -4, 4) + (i % n == n / 2 ? 60 : 0);
        v->store(x, t, raw, all);
        for (int64_t i = 0; i < all; i++) raw[i] = (float)rng_range(&R, -4, 4);
        v->store(done, t, raw, all);
        for (int64_t i = 0; i < n; i++)
            stat[0][0][i] = 1, mean[i] = how == LOOK_EXPS ? 4 : (float)rng_range(&R, -1, 1),
            stat[0][1][i] = mean[i], stat[0][2][i] = scale[i] = (float)rng_range(&R, 0.5, 2);
        memcpy(stat[1], stat[0], sizeof stat[0]);
        for (int r = 0; r < VEC_BAND; r++) gain[r] = (float)rng_range(&R, -2, 2), bias[r] = (float)rng_range(&R, -2, 2);
        vec_affine by = { .mean = how == LOOK_SQUARES ? NULL : mean, .scale = scale, .stream = true };
        if (how != LOOK_EXPS && way & 8) by.gain = gain, by.bias = how == LOOK_MOMENTS ? bias : NULL;
        if (way & 64 && v->parts && t == DT_F16 && how == LOOK_SQUARES) {
            assert_int_equal(v->parts(high, low, scale, n), n);
            by.scale_f16[0] = high, by.scale_f16[1] = low;
            v->store(few, DT_F16, gain, VEC_BAND), v->load(gain, DT_F16, few, VEC_BAND);
        }
        const vec_turns p = { .x = x, .base = stat[0][0], .mean = stat[0][1], .sum = stat[0][2], .part = { part[0], part[1] },
                              .before = before, .done = done, .y = y[0], .by = by, .ld = ld };
        v->turns(&p, t, how, n);
        if (how == LOOK_EXPS) {
            v->soft_look(stat[1][0], stat[1][2], t, x, VEC_BAND, ld, n, t == DT_F16);
            v->soft_rows(y[1], t, n, done, t, n, &by, VEC_BAND, n, t == DT_F16);
        } else {
            if (how == LOOK_MOMENTS) v->moments(stat[1][1], stat[1][2], t, x, before, VEC_BAND, ld, n);
            else v->down(stat[1][2], t, x, STAT_SQUARES, VEC_BAND, ld, n);
            v->affine_rows(y[1], t, n, done, t, n, &by, VEC_BAND, n);
        }
        v->fence();
        assert_memory_equal(stat[0], stat[1], sizeof stat[0]);
        assert_memory_equal(y[0], y[1], (size_t)(ld * VEC_BAND));
    }
}

static void test_turns(void **state)
{
    (void)state;
    each_row(turns);
}

static void test_threes(void **state)
{
    (void)state;
    each_row(threes);
}

static void test_looks(void **state)
{
    (void)state;
    each_row(looks);
}

static void test_gains(void **state)
{
    (void)state;
    each_row(gains), each_row(halved);
}

static void test_statistics(void **state)
{
    (void)state;
    each_row(statistics);
}

static void moving(const vec_kernels *v, const vec_kernels *plain)
{
    static uint16_t x[70 * 70], y[70 * 70], m[MOST], k[MOST];
    static float f[70 * 70], g[70 * 70];
    for (int round = 0; round < 40; round++) {
        int64_t rows = 1 + (int64_t)rng_below(&R, 40), cols = 1 + (int64_t)rng_below(&R, 40),
                ldx = rows + (int64_t)rng_below(&R, 5), ldy = cols + (int64_t)rng_below(&R, 5);
        for (int i = 0; i < 70 * 70; i++) x[i] = (uint16_t)rng_next(&R), y[i] = 0xa5a5, f[i] = (float)i, g[i] = -1;
        v->transpose(y, ldy, x, ldx, rows, cols, 2);
        v->transpose(g, ldy, f, ldx, rows, cols, 4);
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < ldy; j++) {
                assert_int_equal(y[i * ldy + j], j < cols ? x[j * ldx + i] : i * ldy + j < rows * ldy ? 0xa5a5 : 0);
                assert_true(g[i * ldy + j] == (j < cols ? f[j * ldx + i] : -1.0f));
            }
        int64_t n = 1 + (int64_t)rng_below(&R, MOST - 1);
        for (int64_t i = 0; i < n; i++) m[i] = k[i] = (uint16_t)rng_next(&R);
        v->moved_f16(m, 0x6c00, n); /* 4096 */
        bool nan = false, small = false;
        for (int64_t i = 0; i < n; i++) {
            int mag = k[i] & 0x7fff, want = mag > 0x7c00 ? 0x7c00 : mag > 0x6c00 ? (k[i] & 0x8000) | 0x7c00 : k[i];
            assert_int_equal(m[i], want);
            nan = nan || mag > 0x7c00, small = small || (mag && mag < 0x400);
        }
        assert_int_equal(v->plain_f16(k, false, n), !nan);
        assert_int_equal(v->plain_f16(k, true, n), !nan && !small);
    }
    (void)plain;
}

static void test_moving(void **state)
{
    (void)state;
    each_row(moving);
}

/* One addition at a time in double, as vector.h words it. */
static double window_add(double a, double b, int bits)
{
    double large = fmax(fabs(a), fabs(b));
    if (large == 0 || isinf(large)) return a + b;
    double unit = ldexp(1, ilogb(large) - bits + 1);
    return nearbyint(a / unit) * unit + nearbyint(b / unit) * unit;
}

static double valid(double x) { return isnan(x) ? 0 : x; }

/* The first finite sum that reaches the ceiling decides. */
static void reach(double x, double ceiling, double *past)
{
    if (*past == 0 && !isinf(x) && fabs(x) >= ceiling) *past = copysign((double)INFINITY, x);
}

/* Of one size, of all sizes that fp16 has, or with so few bits that ties are frequent. */
static float window_operand(int kind)
{
    double x = rng_below(&R, 9) ? rng_range(&R, -8, 8) : 0;
    if (kind == 1) x = ldexp(x, (int)rng_below(&R, 37) - 24);
    if (kind == 2) x = ldexp(nearbyint(x), (int)rng_below(&R, 7) - 3);
    return (float)f16_to_f64(f16_from_f64(x));
}

static void window(const vec_kernels *v, const vec_kernels *plain)
{
    enum { K = 24 };
    static float a[K * WINDOW_ROWS], b[K * 64], c[WINDOW_ROWS * 64];
    int reached = 0;
    (void)plain;
    for (int round = 0; round < 200; round++) {
        bool full = round % 2;
        double ceiling = full && round % 4 == 1 ? 100 : (double)INFINITY;
        int kind = full ? 0 : round / 2 % 3;
        for (int i = 0; i < K * WINDOW_ROWS; i++)
            a[i] = full && rng_below(&R, 60) == 0 ? INFINITY : window_operand(kind);
        for (int i = 0; i < K * v->window_cols; i++) b[i] = window_operand(kind);
        for (int i = 0; i < WINDOW_ROWS * 64; i++) c[i] = -77;
        int rows = round % 5 ? WINDOW_ROWS : 1 + (int)rng_below(&R, WINDOW_ROWS),
            cols = round % 5 ? v->window_cols : 1 + (int)rng_below(&R, (uint64_t)v->window_cols);
        int bits = round % 3 ? 12 : 4 + (int)rng_below(&R, 17);
        v->window(&(window_job){ .a = a, .b = b, .k = K, .bits = bits, .full = full, .ceiling = (float)ceiling, .c = c,
                                 .ldc = v->window_cols, .rows = rows, .cols = cols });
        for (int r = 0; r < WINDOW_ROWS; r++)
            for (int j = 0; j < v->window_cols; j++) {
                float acc = 0;
                double past = 0;
                for (int k = 0; k < K; k += 4) {
                    double t = 0;
                    for (int l = k; l < k + 4; l++) {
                        t = valid(window_add(
                            t, valid((double)(a[l * WINDOW_ROWS + r] * b[l * v->window_cols + j])), bits));
                        if (!isinf(acc)) reach(t, ceiling, &past);
                    }
                    acc = (float)valid((double)(acc + (float)t));
                    reach((double)acc, ceiling, &past);
                }
                if (r >= rows || j >= cols) past = 0, acc = -77;
                if (past != 0) acc = (float)past, reached += past > 0 ? 1 : 0x10000;
                if (c[r * v->window_cols + j] != acc || signbit(c[r * v->window_cols + j]) != signbit(acc))
                    fail_msg("%s: row %d column %d with %d bits is %.9g, wanted %.9g", v->name, r, j, bits,
                             (double)c[r * v->window_cols + j], (double)acc);
            }
    }
    assert_true((reached & 0xffff) > 20 && reached >> 16 > 20);
}

static void test_window(void **state)
{
    (void)state;
    each_row(window);
}

static int seed(void **state)
{
    (void)state;
    R.s = test_seed("test_vector");
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_functions),  cmocka_unit_test(test_accuracy), cmocka_unit_test(test_conversions),
        cmocka_unit_test(test_statistics), cmocka_unit_test(test_gains),    cmocka_unit_test(test_looks),
        cmocka_unit_test(test_threes), cmocka_unit_test(test_turns),     cmocka_unit_test(test_moving),
        cmocka_unit_test(test_window),
    };
    return cmocka_run_group_tests(tests, seed, NULL);
}
