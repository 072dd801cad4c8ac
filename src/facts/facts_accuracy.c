/* facts_accuracy.c: how far results are from the mathematics: activation tables, convolutions, sums in another order, long products.
 * In: rows with a published error.  Out: the error of ours, on data the row's note describes. */
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

/* Worst distance of a function from its exact value: over every fp16 in lo .. hi, or over `even` evenly spaced real numbers, which the
 * input rounds. */
static an_status worst_error(fx *f, const char *chip, size_t fn, double lo, double hi, int even, double *worst, double *where)
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

/* text: function; args: published worst error to four decimals, lo, hi, number of even points */
an_status fact_table_error(fx *f)
{
    double worst, at = 0, all, all_at = 0;
    size_t fn = function_named(f->row->text, strlen(f->row->text));
    TRY(worst_error(f, fx_chip(f, 0), fn, fx_arg(f, 1), fx_arg(f, 2), (int)fx_arg(f, 3), &worst, &at));
    TRY(worst_error(f, fx_chip(f, 0), fn, fx_arg(f, 1), fx_arg(f, 2), 0, &all, &all_at));
    return fx_verdict(f, fabs(worst - fx_arg(f, 0)) <= 0.00005, "%.4f at %.3f (over every fp16 %.4f at %.3f)", worst, at, all, all_at);
}

/* text: functions, one per chip of the row; args: least and greatest worst error, then lo, hi per function */
an_status fact_seams(fx *f)
{
    strbuf b = { 0 };
    bool ok = true;
    const char *p = f->row->text;
    for (int i = 0; *p; i++) {
        size_t n = strcspn(p, " ");
        double worst, at = 0;
        an_status st = worst_error(f, fx_chip(f, i), function_named(p, n), fx_arg(f, 2 + 2 * i), fx_arg(f, 3 + 2 * i), 0, &worst, &at);
        if (st) return sb_free(&b), st;
        ok = ok && worst >= fx_arg(f, 0) && worst <= fx_arg(f, 1);
        sb_printf(&b, "%s%.*s %.3f at %.3g", i ? ", " : "", (int)n, p, worst, at);
        p += n + strspn(p + n, " ");
    }
    an_status st = b.oom ? diag_nomem(f->d) : fx_verdict(f, ok, "%s", b.at);
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
static an_status stored_convs(fx *f, const char *chip, conv_data *c)
{
    uint16_t *dense = TAKE(&f->mem, uint16_t, CIN * COUT), *scale = TAKE(&f->mem, uint16_t, COUT);
    int8_t *q = TAKE(&f->mem, int8_t, CIN * COUT);
    rng r = { .s = 64 };
    c->x = fx_normal(f, CIN * AREA, 63, 1), c->w = fx_take(f, CIN * COUT), c->exact = fx_take(f, COUT * AREA), c->rounded = fx_take(f, COUT * AREA);
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
        for (int i = 0; i < CIN; i++) dtype_store(DT_I8, q, o * CIN + i, MIN(MAX(c->w[o * CIN + i] / f16_to_f64(scale[o]), -127), 127));
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

an_status fact_int8_cosine(fx *f)
{
    conv_data c = { 0 };
    TRY(stored_convs(f, fx_chip(f, 0), &c));
    double cosine = fx_cosine(c.int8, c.dense, COUT * AREA);
    return fx_verdict(f, cosine >= 0.9999, "%.6f", cosine);
}

/* args: 1 for int8, 0 for fp16; least and greatest relative error that the published digits stand for */
an_status fact_conv_error(fx *f)
{
    conv_data c = { 0 };
    TRY(stored_convs(f, fx_chip(f, 0), &c));
    double e = fx_arg(f, 0) != 0 ? fx_relative(c.int8, c.exact, COUT * AREA) : fx_relative(c.dense, c.rounded, COUT * AREA);
    return fx_verdict(f, e >= fx_arg(f, 1) && e <= fx_arg(f, 2), "%.2f percent", 100 * e);
}

/* ---- the order of two additions ---- */

/* args: share of elements that differ, its tolerance, largest difference */
an_status fact_association(fx *f)
{
    enum { N = ALL };
    const char *params = FX_T("1, 1, 256, 256") " a, " FX_T("1, 1, 256, 256") " b, " FX_T("1, 1, 256, 256") " c";
    const char *text = fx_text(f, params, "l, r",
                               FX_T("1, 1, 256, 256") " ab = add(x = a, y = b)[name = string(\"ab\")];\n" FX_T("1, 1, 256, 256") " l = add(x = ab, y = c)[name = string(\"l\")];\n"
                               FX_T("1, 1, 256, 256") " bc = add(x = b, y = c)[name = string(\"bc\")];\n" FX_T("1, 1, 256, 256") " r = add(x = a, y = bc)[name = string(\"r\")];");
    double scale = fx_arg(f, 3);
    fx_val in[3] = { { "a", fx_normal(f, N, 661, scale), N }, { "b", fx_normal(f, N, 662, scale), N }, { "c", fx_normal(f, N, 663, scale), N } };
    fx_val out[2] = { { .name = "l" }, { .name = "r" } };
    TRY(fx_once(f, fx_chip(f, 0), text, NULL, in, 3, out, 2));
    double most = 0, differ = 0, ulps = 0;
    for (int i = 0; i < N; i++) {
        double e = fabs(out[0].x[i] - out[1].x[i]);
        if (e == 0) continue;
        differ++;
        most = MAX(most, e);
        double largest = MAX(MAX(fabs(in[0].x[i]), fabs(in[1].x[i])), MAX(fabs(in[2].x[i]), fabs(out[0].x[i])));
        ulps += e / ldexp(1, MAX(ilogb(largest), -14) - 10);
    }
    double share = differ / N;
    return fx_verdict(f, fabs(share - fx_arg(f, 0)) <= fx_arg(f, 1) && most <= fx_arg(f, 2), "%.1f percent of elements, mean %.2f ulp of the largest operand, max %.2g", 100 * share,
                      ulps / MAX(differ, 1), most);
}

/* ---- long products: reported, not judged ---- */

/* args: terms, columns. Rows of normal data against the sum in double. */
an_status fact_deep_product(fx *f)
{
    int64_t k = (int64_t)fx_arg(f, 0), n = (int64_t)fx_arg(f, 1);
    char params[160];
    snprintf(params, sizeof params, "tensor<fp16, [1, %lld]> x, tensor<fp16, [%lld, %lld]> w", (long long)k, (long long)k, (long long)n);
    const char *text = fx_text(f, params, "y", "tensor<fp16, [1, %lld]> y = matmul(x = x, y = w, transpose_x = bool(false), transpose_y = bool(false))[name = string(\"y\")];", (long long)n);
    double *x = fx_normal(f, k, 731, 1), *w = fx_normal(f, k * n, 732, 1), *want = fx_take(f, n);
    fx_val y = { .name = "y" };
    if (!x || !w || !want) return diag_nomem(f->d);
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j < n; j++) want[j] += x[i] * w[i * n + j];
    TRY(fx_once(f, fx_chip(f, 0), text, NULL, (fx_val[]){ { "x", x, k }, { "w", w, k * n } }, 2, &y, 1));
    return fx_skip(f, "relative error %.1e at %lld terms", fx_relative(y.x, want, n), (long long)k);
}
