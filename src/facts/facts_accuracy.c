/* facts_accuracy.c: how far results are from the mathematics: activation tables, convolutions, sums in another
 * order, long products. In: rows with a published error.  Out: the error of ours, on data the row's note describes. */
#include <stdlib.h>

#include "facts/facts_int.h"
#include "mil/mil.h"

/* ---- activation tables ---- */

static double f_sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double f_gelu(double x) { return 0.5 * x * erfc(-x / sqrt(2)); }
static double f_sin(double x) { return sin(x); }
static double f_cos(double x) { return cos(x); }
static double f_atan(double x) { return atan(x); }
static double f_tanh(double x) { return tanh(x); }

static const struct {
    const char *name, *expr;
    double (*exact)(double);
} functions[] = {
    { "sigmoid", "sigmoid(x = x)", f_sigmoid },
    { "tanh", "tanh(x = x)", f_tanh },
    { "gelu", "gelu(x = x, mode = string(\"EXACT\"))", f_gelu },
    { "sin", "sin(x = x)", f_sin },
    { "cos", "cos(x = x)", f_cos },
    { "atan", "atan(x = x)", f_atan },
};

enum { ALL = 65536 };

/* Worst distance of a function from its exact value: over every fp16 in lo .. hi, or over `even` evenly spaced real
 * numbers, which the input rounds. */
static an_status worst_error(fx *f, const char *chip, size_t fn, double lo, double hi, int even, double *worst,
                             double *where)
{
    double *x = fx_take(f, ALL);
    fx_val y = { .name = "y" };
    if (!x) return diag_nomem(f->d);
    for (int i = 0; i < ALL; i++) {
        x[i] = even ? lo + (hi - lo) * (i % even) / (even - 1) : f16_to_f64((uint16_t)i);
        if (!(x[i] >= lo && x[i] <= hi)) x[i] = lo;
    }
    const char *text = fx_text(f, FX_T("1, 1, 256, 256") " x", "y", FX_T("1, 1, 256, 256") " y = %s[name = string(\"y\")];", functions[fn].expr);
    TRY(fx_once(f, chip, text, NULL, &(fx_val){ "x", x, ALL }, 1, &y, 1));
    *worst = 0;
    for (int i = 0; i < ALL; i++) {
        double e = fabs(y.x[i] - functions[fn].exact(x[i]));
        if (!(e <= *worst)) *worst = e, *where = x[i];
    }
    return AN_OK;
}

static size_t function_named(const char *name, size_t n)
{
    size_t i = 0;
    while (i + 1 < COUNT(functions) && (strlen(functions[i].name) != n || strncmp(functions[i].name, name, n))) i++;
    return i;
}

/* text: function; args: published worst error to four decimals. The published sweep is not known: every fp16, and
 * 256 to 65536 even points of three ranges. One of them has to give the figure. */
an_status fact_table_error(fx *f)
{
    static const double range[] = { 4, 8, 16 };
    size_t fn = function_named(f->row->text, strlen(f->row->text));
    double least = INF, most = 0;
    int n = 0, good = 0;
    for (size_t k = 0; k < COUNT(range); k++)
        for (int even = 256; even <= 2 * ALL; even *= 2) {
            double worst, at;
            bool all = even > ALL; /* the last of a range: every fp16 in it */
            TRY(worst_error(f, fx_chip(f, 0), fn, -range[k], range[k], all ? 0 : even, &worst, &at));
            least = MIN(least, worst), most = MAX(most, worst);
            n++, good += fabs(worst - fx_arg(f, 0)) <= 0.00005;
        }
    return fx_verdict(f, good > 0, "%.4f in %d of %d sweeps, which give %.4f to %.4f", fx_arg(f, 0), good, n, least,
                      most);
}

/* text: functions, one per chip of the row, those with a ? shown and not judged; args: least and greatest worst
 * error, then lo, hi per function, around its seam */
an_status fact_seams(fx *f)
{
    strbuf b = { 0 };
    bool ok = true, whole = true;
    const char *p = f->row->text;
    for (int i = 0; *p; i++) {
        size_t n = strcspn(p, " "), name = strcspn(p, "? ");
        double worst, at = 0;
        bool judged = name == n;
        an_status st = worst_error(f, fx_chip(f, i), function_named(p, name), fx_arg(f, 2 + 2 * i),
                                   fx_arg(f, 3 + 2 * i), 0, &worst, &at);
        if (st) return sb_free(&b), st;
        ok = ok && (!judged || (worst >= fx_arg(f, 0) && worst <= fx_arg(f, 1)));
        whole = whole && judged;
        sb_printf(&b, "%s%.*s %.3f at %.3g", i ? ", " : "", (int)name, p, worst, at);
        p += n + strspn(p + n, " ");
    }
    an_status st = b.oom ? diag_nomem(f->d) : ok && !whole ? fx_skip(f, "%s", b.at) : fx_verdict(f, ok, "%s", b.at);
    sb_free(&b);
    return st;
}

/* text: expression of x; args: published value to six decimals at 0 */
an_status fact_at_zero(fx *f)
{
    const char *text = fx_text(f, FX_T("1, 1, 1, 4") " x", "y", FX_T("1, 1, 1, 4") " y = %s[name = string(\"y\")];", f->row->text);
    fx_val y = { .name = "y" };
    TRY(fx_once(f, fx_chip(f, 0), text, NULL, &(fx_val){ "x", fx_take(f, 4), 4 }, 1, &y, 1));
    return fx_verdict(f, fabs(y.x[0] - fx_arg(f, 0)) <= 0.0000005, "%.6f", y.x[0]);
}

/* ---- convolutions with stored weights ---- */

enum { CIN = 64, COUT = 64, SIDE = 16, AREA = SIDE * SIDE };

typedef struct {
    double *x, *w;         /* fp16 input, real weight */
    double *dense, *int8;  /* results */
    double *exact;         /* of x and w in double */
    double *rounded;       /* of x and w as fp16, in double */
} conv_data;

static const char CONV_ARGS[] = "pad_type = string(\"valid\"), strides = tensor<int32, [2]>([1, 1]), pad = tensor<int32, [4]>([0, 0, 0, 0]), dilations = tensor<int32, [2]>([1, 1]), groups = int32(1)";

/* The same 1x1 layer with fp16 weights and with int8 weights and one scale per output channel. */
static an_status stored_convs(fx *f, const char *chip, int seed, conv_data *c)
{
    uint16_t *dense = TAKE(&f->mem, uint16_t, CIN * COUT), *scale = TAKE(&f->mem, uint16_t, COUT);
    int8_t *q = TAKE(&f->mem, int8_t, CIN * COUT);
    rng r = { .s = 64 + 1000 * (uint64_t)seed };
    c->x = fx_normal(f, CIN * AREA, 63 + 1000 * (uint64_t)seed, 1), c->w = fx_take(f, CIN * COUT),
    c->exact = fx_take(f, COUT * AREA), c->rounded = fx_take(f, COUT * AREA);
    if (!dense || !scale || !q || !c->x || !c->w || !c->exact || !c->rounded) return diag_nomem(f->d);
    for (int i = 0; i < CIN * AREA; i++) c->x[i] = MAX(c->x[i], 0);
    for (int o = 0; o < COUT; o++) {
        double most = 0;
        for (int i = 0; i < CIN; i++) {
            double w = rng_normal(&r) / 8;
            c->w[o * CIN + i] = w;
            dense[o * CIN + i] = f16_from_f64(w);
            most = MAX(most, fabs(w));
        }
        scale[o] = f16_from_f64(most / 127);
        for (int i = 0; i < CIN; i++)
            dtype_store(DT_I8, q, o * CIN + i, MIN(MAX(c->w[o * CIN + i] / f16_to_f64(scale[o]), -127), 127));
        for (int p = 0; p < AREA; p++)
            for (int i = 0; i < CIN; i++) {
                c->exact[o * AREA + p] += c->w[o * CIN + i] * c->x[i * AREA + p];
                c->rounded[o * AREA + p] += f16_to_f64(dense[o * CIN + i]) * c->x[i * AREA + p];
            }
    }
    blob_writer b = { 0 };
    uint64_t at_dense, at_q, at_scale;
    an_status st = blob_add(&b, DT_F16, dense, CIN * COUT * 2, &at_dense, f->d);
    if (!st) st = blob_add(&b, DT_I8, q, CIN * COUT, &at_q, f->d);
    if (!st) st = blob_add(&b, DT_F16, scale, COUT * 2, &at_scale, f->d);
    if (!st) st = blob_finish(&b, f->d);
    const char *text = st ? NULL : fx_text(f, FX_T("1, 64, 16, 16") " x", "y, z",
        "tensor<fp16, [64, 64, 1, 1]> w = const()[name = string(\"w\"), val = tensor<fp16, [64, 64, 1, 1]>(BLOBFILE(path = string(\"@model_path/w.bin\"), offset = uint64(%llu)))];\n"
        "tensor<fp16, [64, 64, 1, 1]> v = constexpr_affine_dequantize()[axis = int32(0), name = string(\"v\"), quantized_data = tensor<int8, [64, 64, 1, 1]>(BLOBFILE(path = string(\"@model_path/w.bin\"), offset = uint64(%llu))), "
        "scale = tensor<fp16, [64]>(BLOBFILE(path = string(\"@model_path/w.bin\"), offset = uint64(%llu))), zero_point = int8(0)];\n"
        FX_T("1, 64, 16, 16") " y = conv(x = x, weight = w, %s)[name = string(\"y\")];\n" FX_T("1, 64, 16, 16") " z = conv(x = x, weight = v, %s)[name = string(\"z\")];",
        (unsigned long long)at_dense, (unsigned long long)at_q, (unsigned long long)at_scale, CONV_ARGS, CONV_ARGS);
    fx_val out[2] = { { .name = "y" }, { .name = "z" } };
    if (!st) st = fx_once(f, chip, text, &b.bytes, &(fx_val){ "x", c->x, CIN * AREA }, 1, out, 2);
    sb_free(&b.bytes);
    c->dense = out[0].x, c->int8 = out[1].x;
    return st;
}

enum { SEEDS = 8 }; /* of data: what is judged holds for seeds 1 .. SEEDS */

an_status fact_int8_cosine(fx *f)
{
    double least = 1;
    for (int seed = 1; seed <= SEEDS; seed++) {
        conv_data c = { 0 };
        TRY(stored_convs(f, fx_chip(f, 0), seed, &c));
        least = MIN(least, fx_cosine(c.int8, c.dense, COUT * AREA));
    }
    return fx_verdict(f, least >= 0.9999, "%.6f or more over %d seeds", least, SEEDS);
}

/* args: 1 for int8, 0 for fp16; least and greatest relative error that the published digits stand for */
an_status fact_conv_error(fx *f)
{
    double least = INF, most = 0;
    for (int seed = 1; seed <= SEEDS; seed++) {
        conv_data c = { 0 };
        TRY(stored_convs(f, fx_chip(f, 0), seed, &c));
        double e = fx_arg(f, 0) != 0 ? fx_relative(c.int8, c.exact, COUT * AREA)
                                     : fx_relative(c.dense, c.rounded, COUT * AREA);
        least = MIN(least, e), most = MAX(most, e);
    }
    return fx_verdict(f, least >= fx_arg(f, 1) && most <= fx_arg(f, 2), "%.3f to %.3f percent over %d seeds",
                      100 * least, 100 * most, SEEDS);
}

/* ---- the order of two additions ---- */

typedef struct {
    /* of elements that differ; mean distance in ulp of the largest number at hand; largest difference */
    double share, ulps, most;
} association;

static an_status associate(fx *f, int seed, double scale, association *out)
{
    enum { N = ALL };
    const char *params = FX_T("1, 1, 256, 256") " a, " FX_T("1, 1, 256, 256") " b, " FX_T("1, 1, 256, 256") " c";
    const char *text = fx_text(f, params, "l, r",
                               FX_T("1, 1, 256, 256") " ab = add(x = a, y = b)[name = string(\"ab\")];\n" FX_T("1, 1, 256, 256") " l = add(x = ab, y = c)[name = string(\"l\")];\n"
                               FX_T("1, 1, 256, 256") " bc = add(x = b, y = c)[name = string(\"bc\")];\n" FX_T("1, 1, 256, 256") " r = add(x = a, y = bc)[name = string(\"r\")];");
    uint64_t s = 661 + 1000 * (uint64_t)seed;
    fx_val in[3] = { { "a", fx_normal(f, N, s, scale), N },
                     { "b", fx_normal(f, N, s + 1, scale), N },
                     { "c", fx_normal(f, N, s + 2, scale), N } };
    fx_val y[2] = { { .name = "l" }, { .name = "r" } };
    TRY(fx_once(f, fx_chip(f, 0), text, NULL, in, 3, y, 2));
    double differ = 0;
    *out = (association){ 0 };
    for (int i = 0; i < N; i++) {
        double e = fabs(y[0].x[i] - y[1].x[i]);
        if (e == 0) continue;
        differ++;
        out->most = MAX(out->most, e);
        double largest = MAX(MAX(fabs(in[0].x[i]), fabs(in[1].x[i])), MAX(fabs(in[2].x[i]), fabs(y[0].x[i])));
        out->ulps += e / ldexp(1, MAX(ilogb(largest), -14) - 10);
    }
    out->ulps /= MAX(differ, 1);
    out->share = differ / N;
    return AN_OK;
}

/* args: share of elements that differ, its tolerance, for every seed; largest difference, to two digits, which must
 * be among those of the seeds; deviation of the data. */
an_status fact_association(fx *f)
{
    double least = 1, most = 0, ulps = 0, largest[2] = { INF, 0 };
    bool ok = true;
    for (int seed = 1; seed <= SEEDS; seed++) {
        association a;
        TRY(associate(f, seed, fx_arg(f, 3), &a));
        least = MIN(least, a.share), most = MAX(most, a.share), ulps += a.ulps / SEEDS;
        largest[0] = MIN(largest[0], a.most), largest[1] = MAX(largest[1], a.most);
    }
    ok = fabs(least - fx_arg(f, 0)) <= fx_arg(f, 1) && fabs(most - fx_arg(f, 0)) <= fx_arg(f, 1) &&
         largest[0] <= fx_arg(f, 2) + 5e-5 && largest[1] >= fx_arg(f, 2) - 5e-5;
    return fx_verdict(
        f, ok, "%.1f to %.1f percent of elements, mean %.2f ulp of the largest operand, max %.2g to %.2g over %d seeds",
        100 * least, 100 * most, ulps, largest[0], largest[1], SEEDS);
}

/* ---- long products: reported, not judged ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* args: terms …. Rows of normal data against the sum in double, by four measures: all results together, the worst
 * one against the largest result, the median of each against itself, and the greatest of those. None is known to be
 * the published one. */
an_status fact_deep_product(fx *f)
{
    enum { M = 64, N = 64 };
    strbuf b = { 0 };
    an_status st = AN_OK;
    for (int t = 0; t < f->row->n_arg && !st; t++) {
        int64_t k = (int64_t)fx_arg(f, t);
        char params[160];
        snprintf(params, sizeof params, "tensor<fp16, [%d, %lld]> x, tensor<fp16, [%lld, %d]> w", M, (long long)k, (long long)k, N);
        const char *text = fx_text(f, params, "y", "tensor<fp16, [%d, %d]> y = matmul(x = x, y = w, transpose_x = bool(false), transpose_y = bool(false))[name = string(\"y\")];", M, N);
        double *x = fx_normal(f, M * k, 731, 1), *w = fx_normal(f, k * N, 732, 1), *want = fx_take(f, M * N),
               *each = fx_take(f, M * N), largest = 0, worst = 0;
        fx_val y = { .name = "y" };
        if (!x || !w || !want || !each) st = diag_nomem(f->d);
        for (int64_t r = 0; !st && r < M; r++)
            for (int64_t i = 0; i < k; i++)
                for (int64_t j = 0; j < N; j++) want[r * N + j] += x[r * k + i] * w[i * N + j];
        if (!st)
            st = fx_once(f, fx_chip(f, 0), text, NULL, (fx_val[]){ { "x", x, M * k }, { "w", w, k * N } }, 2, &y, 1);
        for (int j = 0; !st && j < M * N; j++) {
            double e = fabs(y.x[j] - want[j]);
            worst = MAX(worst, e), largest = MAX(largest, fabs(want[j]));
            each[j] = e / fabs(want[j]);
        }
        if (st) break;
        qsort(each, M * N, sizeof *each, by_value);
        sb_printf(&b, "%s%lld terms: %.1e Euclidean, %.1e of the largest; of each %.1e median, %.1e greatest",
                  t ? "; " : "", (long long)k, fx_relative(y.x, want, M * N), worst / largest, each[M * N / 2],
                  each[M * N - 1]);
    }
    if (!st) st = b.oom ? diag_nomem(f->d) : fx_skip(f, "%s", b.at);
    sb_free(&b);
    return st;
}
