/* facts_numerics.c: the accumulator, the output port, exempt paths, width slices, special values.
 * In: rows whose arguments are operands and the published answer.  Out: what a small program makes of them. */
#include "facts/facts_int.h"

/* ---- sums by a product with ones ---- */

static an_status sum_on(fx *f, const char *chip, double *x, int64_t n, double *sum)
{
    char params[160];
    snprintf(params, sizeof params, "tensor<fp16, [1, %lld]> x, tensor<fp16, [%lld, 1]> w", (long long)n, (long long)n);
    const char *text = fx_text(f, params, "y", FX_T("1, 1") " y = matmul(x = x, y = w, transpose_x = bool(false), transpose_y = bool(false))[name = string(\"y\")];");
    fx_val y = { .name = "y" };
    TRY(fx_once(f, chip, text, NULL, (fx_val[]){ { "x", x, n }, { "w", fx_fill(f, n, 1), n } }, 2, &y, 1));
    *sum = y.x[0];
    return AN_OK;
}

/* first, then `count` ones; want */
an_status fact_sum_ones(fx *f)
{
    int64_t n = (int64_t)fx_arg(f, 1) + 1;
    double *x = fx_fill(f, n, 1), got;
    if (!x) return diag_nomem(f->d);
    x[0] = fx_arg(f, 0);
    TRY(sum_on(f, fx_chip(f, 0), x, n, &got));
    return fx_verdict(f, fx_same(got, fx_arg(f, 2)), "%.9g", got);
}

static double *triples(fx *f, double big, int count, int order)
{
    double *x = fx_take(f, 3 * count);
    for (int i = 0; x && i < count; i++) {
        x[3 * i] = big;
        x[3 * i + 1 + order] = -big;
        x[3 * i + 2 - order] = 1;
    }
    return x;
}

/* B, how many triples, want */
an_status fact_triples(fx *f)
{
    int count = (int)fx_arg(f, 1);
    double got;
    TRY(sum_on(f, fx_chip(f, 0), triples(f, fx_arg(f, 0), count, 0), 3 * count, &got));
    return fx_verdict(f, fx_same(got, fx_arg(f, 2)), "%.9g", got);
}

/* every B: (B, -B, 1) and (B, 1, -B) */
an_status fact_triple_orders(fx *f)
{
    int same = 0;
    double a, b;
    for (int i = 0; i < f->row->n_arg; i++) {
        TRY(sum_on(f, fx_chip(f, 0), triples(f, fx_arg(f, i), 16, 0), 48, &a));
        TRY(sum_on(f, fx_chip(f, 0), triples(f, fx_arg(f, i), 16, 1), 48, &b));
        same += fx_same(a, b);
    }
    return fx_verdict(f, same == f->row->n_arg, "%d of %d identical", same, f->row->n_arg);
}

/* terms, and the sum wanted: groups of (a, b, want) */
an_status fact_pair_sums(fx *f)
{
    int good = 0, n = f->row->n_arg / 3;
    double got = 0;
    strbuf b = { 0 };
    for (int i = 0; i < n; i++) {
        double x[2] = { fx_arg(f, 3 * i), fx_arg(f, 3 * i + 1) };
        an_status st = sum_on(f, fx_chip(f, 0), x, 2, &got);
        if (st) return sb_free(&b), st;
        good += fx_same(got, fx_arg(f, 3 * i + 2));
        sb_printf(&b, "%s%.9g", i ? ", " : "", got);
    }
    an_status st = b.oom ? diag_nomem(f->d) : fx_verdict(f, good == n, "%s", b.at);
    sb_free(&b);
    return st;
}

/* Whole tiles of four lanes moved about a long sum that has large values in it. */
an_status fact_tile_order(fx *f)
{
    /* more pairs would pass the port's ceiling in some order */
    enum { N = 1024, LARGE = 8192, CEILING = 32768, ORDERS = 64, PAIRS = (CEILING - 1 - N) / LARGE };
    rng r = { .s = 1 };
    double *x = fx_fill(f, N, 1), first = 0, got;
    if (!x) return diag_nomem(f->d);
    int same = 0;
    for (int i = 0; i < 2 * PAIRS; i++) x[N / (2 * PAIRS) / 4 * 4 * i + i % 4] = i % 2 ? -LARGE : LARGE;
    for (int o = 0; o < ORDERS; o++) {
        TRY(sum_on(f, fx_chip(f, 0), x, N, &got));
        if (!o) first = got;
        same += fx_same(got, first);
        for (int i = N / 4 - 1; i > 0; i--) { /* the next order */
            double t[4];
            size_t j = (size_t)rng_below(&r, (uint64_t)i + 1);
            memcpy(t, x + 4 * i, sizeof t);
            memcpy(x + 4 * i, x + 4 * j, sizeof t);
            memcpy(x + 4 * j, t, sizeof t);
        }
    }
    return fx_verdict(f, same == ORDERS, "%.9g in %d of %d orders", first, same, (int)ORDERS);
}

/* ---- the output port ---- */

typedef enum { BY_LINEAR, BY_MATMUL, BY_CONV } mac_form;

/* k terms x[i]*w[i] as a linear layer with a constant weight, a product, or a 1x1 convolution. */
static an_status mac_on(fx *f, const char *chip, mac_form form, double *x, double *w, int k, double *got)
{
    char params[160], weight[200];
    const char *text;
    fx_val y = { .name = "y" }, in[2] = { { "x", x, k }, { "w", w, k } };
    snprintf(weight, sizeof weight, "%s", fx_list(f, w, k));
    switch (form) {
    case BY_LINEAR:
        snprintf(params, sizeof params, "tensor<fp16, [1, %d]> x", k);
        text = fx_text(f, params, "y", "tensor<fp16, [1, %d]> w = const()[name = string(\"w\"), val = tensor<fp16, [1, %d]>([%s])];\n" FX_T("1, 1") " y = linear(x = x, weight = w)[name = string(\"y\")];", k, k, weight);
        break;
    case BY_MATMUL:
        snprintf(params, sizeof params, "tensor<fp16, [1, %d]> x, tensor<fp16, [%d, 1]> w", k, k);
        text = fx_text(f, params, "y", FX_T("1, 1") " y = matmul(x = x, y = w, transpose_x = bool(false), transpose_y = bool(false))[name = string(\"y\")];");
        break;
    case BY_CONV:
    default:
        snprintf(params, sizeof params, "tensor<fp16, [1, %d, 1, 1]> x", k);
        text = fx_text(f, params, "y",
                       "tensor<fp16, [1, %d, 1, 1]> w = const()[name = string(\"w\"), val = tensor<fp16, [1, %d, 1, 1]>([%s])];\n" FX_T("1, 1, 1, 1")
                       " y = conv(x = x, weight = w, pad_type = string(\"valid\"), strides = tensor<int32, [2]>([1, 1]), pad = tensor<int32, [4]>([0, 0, 0, 0]), "
                       "dilations = tensor<int32, [2]>([1, 1]), groups = int32(1))[name = string(\"y\")];",
                       k, k, weight);
        break;
    }
    TRY(fx_once(f, chip, text, NULL, in, form == BY_MATMUL ? 2 : 1, &y, 1));
    *got = y.x[0];
    return AN_OK;
}

/* x, w, want: one tap through a linear layer */
an_status fact_linear_port(fx *f)
{
    double got, x = fx_arg(f, 0), w = fx_arg(f, 1);
    TRY(mac_on(f, fx_chip(f, 0), BY_LINEAR, &x, &w, 1, &got));
    return fx_verdict(f, fx_same(got, fx_arg(f, 2)), "%.9g", got);
}

an_status fact_port_forms(fx *f)
{
    static const struct {
        mac_form form;
        int k;
        double x[2], w[2], want;
    } cases[] = {
        { BY_LINEAR, 1, { 32752 }, { 1 }, 32752 },        { BY_LINEAR, 1, { 16384 }, { 2 }, (double)INFINITY },
        { BY_MATMUL, 1, { 32752 }, { 1 }, 32752 },        { BY_MATMUL, 1, { 16384 }, { 2 }, (double)INFINITY },
        { BY_LINEAR, 2, { 16384, 16368 }, { 1, 1 }, 32752 }, { BY_LINEAR, 2, { 16384, 16384 }, { 1, 1 }, (double)INFINITY },
        { BY_MATMUL, 2, { 16384, 16368 }, { 1, 1 }, 32752 }, { BY_MATMUL, 2, { -16384, -16384 }, { 1, 1 }, -(double)INFINITY },
        { BY_CONV, 2, { 16384, 16368 }, { 1, 1 }, 32752 }, { BY_CONV, 2, { 16384, 16384 }, { 1, 1 }, (double)INFINITY },
    };
    int good = 0;
    for (size_t i = 0; i < COUNT(cases); i++) {
        double x[2] = { cases[i].x[0], cases[i].x[1] }, w[2] = { cases[i].w[0], cases[i].w[1] }, got;
        TRY(mac_on(f, fx_chip(f, 0), cases[i].form, x, w, cases[i].k, &got));
        good += fx_same(got, cases[i].want);
    }
    return fx_verdict(f, good == (int)COUNT(cases), "%d of %d: 32752 passes, 32768 does not", good, (int)COUNT(cases));
}

/* A partial sum past the ceiling, inside one tile and between tiles, cancelled later; also by a tile that reaches the
 * other end itself. */
an_status fact_partial(fx *f)
{
    static const struct {
        mac_form form;
        int k;
        double x[12];
    } cases[] = {
        { BY_MATMUL, 3, { 30000, 30000, -30000 } },
        { BY_MATMUL, 9, { 30000, 0, 0, 0, 30000, 0, 0, 0, -30000 } },
        { BY_MATMUL, 12, { 10000, 10000, 10000, 10000, -10000, -10000, -10000, -10000, 5 } },
        { BY_LINEAR, 8, { 10000, 10000, 10000, 10000, -10000, -10000, -10000, -10000 } },
        { BY_CONV, 3, { 30000, 30000, -30000 } },
    };
    int good = 0;
    for (size_t i = 0; i < COUNT(cases); i++) {
        double x[12], ones[12], got;
        for (int k = 0; k < 12; k++) x[k] = cases[i].x[k], ones[k] = 1;
        TRY(mac_on(f, fx_chip(f, 0), cases[i].form, x, ones, cases[i].k, &got));
        good += got == INF;
    }
    return fx_verdict(f, good == (int)COUNT(cases),
                      "inf in %d of %d: within a tile, between tiles, by a tile past the other end, in a conv", good,
                      (int)COUNT(cases));
}

/* value, want: 1x1 convolution of one channel by 1 */
an_status fact_conv_single(fx *f)
{
    double x = fx_arg(f, 0), w = 1, got;
    TRY(mac_on(f, fx_chip(f, 0), BY_CONV, &x, &w, 1, &got));
    return fx_verdict(f, fx_same(got, fx_arg(f, 1)), "%.9g", got);
}

/* pairs summed by reduce_sum: (a, b, want) … */
an_status fact_reduce_pairs(fx *f)
{
    const char *text = fx_text(f, FX_T("1, 1, 1, 2") " x", "y", FX_T("1, 1, 1, 1") " y = reduce_sum(x = x, axes = tensor<int32, [1]>([3]), keep_dims = bool(true))[name = string(\"y\")];");
    double got[16];
    int n = f->row->n_arg / 3, good = 0;
    for (int i = 0; i < n; i++) {
        double x[2] = { fx_arg(f, 3 * i), fx_arg(f, 3 * i + 1) };
        fx_val y = { .name = "y" };
        TRY(fx_once(f, fx_chip(f, 0), text, NULL, &(fx_val){ "x", x, 2 }, 1, &y, 1));
        got[i] = y.x[0];
        good += fx_same(got[i], fx_arg(f, 3 * i + 2));
    }
    return fx_verdict(f, good == n, "%s", fx_list(f, got, n));
}

/* ---- one expression of one value ---- */

/* text: expressions of x, separated by ';', each on a tensor filled with one value. args: (value, want) for each;
 * when there is one pair and several expressions, all of them take it. */
an_status fact_values(fx *f)
{
    enum { N = 4 };
    strbuf b = { 0 };
    int pairs = f->row->n_arg / 2, k = 0, good = 0, total = 0, exprs = 1;
    for (const char *p = f->row->text; *p; p++) exprs += *p == ';';
    for (int i = 0; i < MAX(pairs, exprs); i++) {
        const char *p = f->row->text;
        for (int e = 0; e < (exprs == 1 ? 0 : i); e++) p += strcspn(p, ";") + 1;
        k = pairs == 1 ? 0 : i;
        const char *text = fx_text(f, FX_T("1, 1, 1, 4") " x", "y", FX_T("1, 1, 1, 4") " y = %.*s[name = string(\"y\")];", (int)strcspn(p, ";"), p);
        fx_val y = { .name = "y" };
        an_status st =
            fx_once(f, fx_chip(f, 0), text, NULL, &(fx_val){ "x", fx_fill(f, N, fx_arg(f, 2 * k)), N }, 1, &y, 1);
        if (st) return sb_free(&b), st;
        bool ok = true;
        for (int j = 0; j < N; j++) ok = ok && fx_same(y.x[j], fx_arg(f, 2 * k + 1));
        good += ok;
        total++;
        sb_printf(&b, "%s%.9g", i ? ", " : "", y.x[0]);
    }
    an_status st = b.oom ? diag_nomem(f->d) : fx_verdict(f, good == total, "%s", b.at);
    sb_free(&b);
    return st;
}

/* text: an expression of x; args: n inputs, then n wanted outputs */
an_status fact_vector(fx *f)
{
    int n = f->row->n_arg / 2;
    char params[80];
    snprintf(params, sizeof params, "tensor<fp16, [1, %d]> x", n);
    const char *text = fx_text(f, params, "y", "tensor<fp16, [1, %d]> y = %s[name = string(\"y\")];", n, f->row->text);
    double *x = fx_take(f, n);
    fx_val y = { .name = "y" };
    if (!x) return diag_nomem(f->d);
    memcpy(x, f->row->arg, (size_t)n * sizeof *x);
    TRY(fx_once(f, fx_chip(f, 0), text, NULL, &(fx_val){ "x", x, n }, 1, &y, 1));
    bool ok = true;
    for (int i = 0; i < n; i++) ok = ok && fx_same(y.x[i], fx_arg(f, n + i));
    return fx_verdict(f, ok, "%s", fx_list(f, y.x, n));
}

/* text: statements that make y of x, [1, 8]; args: 1 when NaN and +inf must answer alike, 0 when they must differ */
an_status fact_nan_or_inf(fx *f)
{
    enum { N = 8 };
    double a[N] = { 1, (double)NAN, 2, 3, -1, 0.5, 4, -2 }, b[N];
    memcpy(b, a, sizeof a);
    b[1] = INF;
    const char *text = fx_text(f, FX_T("1, 8") " x", "y", "%s", f->row->text);
    fx_val ya = { .name = "y" }, yb = { .name = "y" };
    TRY(fx_once(f, fx_chip(f, 0), text, NULL, &(fx_val){ "x", a, N }, 1, &ya, 1));
    TRY(fx_once(f, fx_chip(f, 0), text, NULL, &(fx_val){ "x", b, N }, 1, &yb, 1));
    bool same = !memcmp(ya.x, yb.x, N * sizeof(double));
    return fx_verdict(f, same == (fx_arg(f, 0) != 0), "%s: NaN gives %s, inf gives %s",
                      same ? "identical" : "different", fx_list(f, ya.x, 4), fx_list(f, yb.x, 4));
}

/* ---- width slices ---- */

/* One axis cut from `begin` on, filled with a value. */
static an_status slice_on(fx *f, const char *chip, int axis, int begin, double value, double *got)
{
    const char *text = fx_text(f, FX_T("2, 2, 2, 64") " x", "y",
                               "tensor<fp16, [%d, %d, %d, %d]> y = slice_by_size(x = x, begin = tensor<int32, [4]>([%d, %d, %d, %d]), size = tensor<int32, [4]>([%d, %d, %d, %d]))[name = string(\"y\")];",
                               axis == 0 ? 1 : 2, axis == 1 ? 1 : 2, axis == 2 ? 1 : 2, axis == 3 ? 32 : 64, axis == 0 ? begin : 0, axis == 1 ? begin : 0,
                               axis == 2 ? begin : 0, axis == 3 ? begin : 0, axis == 0 ? 1 : 2, axis == 1 ? 1 : 2, axis == 2 ? 1 : 2, axis == 3 ? 32 : 64);
    fx_val y = { .name = "y" };
    TRY(fx_once(f, chip, text, NULL, &(fx_val){ "x", fx_fill(f, 512, value), 512 }, 1, &y, 1));
    *got = y.x[0];
    for (int64_t i = 1; i < y.n; i++)
        if (!fx_same(y.x[i], *got)) *got = (double)NAN;
    return AN_OK;
}

/* (axis, begin, value, want) …, on every chip of the row */
an_status fact_slices(fx *f)
{
    double got[32];
    int n = f->row->n_arg / 4, k = 0, good = 0;
    const char *chip;
    for (int c = 0; (chip = fx_chip(f, c)); c++)
        for (int i = 0; i < n; i++, k++) {
            TRY(slice_on(f, chip, (int)fx_arg(f, 4 * i), (int)fx_arg(f, 4 * i + 1), fx_arg(f, 4 * i + 2), &got[k]));
            good += fx_same(got[k], fx_arg(f, 4 * i + 3));
        }
    return fx_verdict(f, k && good == k, "%s", fx_list(f, got, k));
}

/* ---- subnormal numbers in the accumulator ---- */

/* args: want of 2^-24 + 2^-20 by a product with ones; want of 4096 products 2^-15 * 2^-15 (NAN: not asked), each
 * below any fp16 */
an_status fact_subnormals(fx *f)
{
    enum { TERMS = 4096 };
    double x[2] = { 0x1p-24, 0x1p-20 }, sum, want = fx_arg(f, 1);
    TRY(sum_on(f, fx_chip(f, 0), x, 2, &sum));
    bool ok = fx_same(sum, fx_arg(f, 0));
    if (isnan(want)) return fx_verdict(f, ok, "%g", sum);
    fx_val y = { .name = "y" };
    const char *text = fx_text(f, FX_T("1, 4096") " x", "y", FX_T("1, 1") " y = matmul(x = x, y = x, transpose_x = bool(false), transpose_y = bool(true))[name = string(\"y\")];");
    TRY(fx_once(f, fx_chip(f, 0), text, NULL, &(fx_val){ "x", fx_fill(f, TERMS, 0x1p-15), TERMS }, 1, &y, 1));
    return fx_verdict(f, ok && fx_same(y.x[0], want), "sum %g, products %g", sum, y.x[0]);
}

/* ---- no NaN anywhere ---- */

an_status fact_no_nan(fx *f)
{
    enum { SIDE = 256, N = SIDE * SIDE };
    static const char *const expr[] = {
        "add(x = x, y = z)", "sub(x = x, y = z)", "mul(x = x, y = z)", "real_div(x = x, y = z)", "maximum(x = x, y = z)", "minimum(x = x, y = z)",
        "relu(x = x)", "sigmoid(x = x)", "tanh(x = x)", "erf(x = x)", "exp(x = x)", "exp2(x = x)", "log(x = x, epsilon = fp16(0))", "sqrt(x = x)",
        "rsqrt(x = x, epsilon = fp16(0))", "inverse(x = x, epsilon = fp16(0))", "square(x = x)", "abs(x = x)", "silu(x = x)", "gelu(x = x, mode = string(\"EXACT\"))",
        "softplus(x = x)", "softsign(x = x)", "elu(x = x, alpha = fp16(1))", "atan(x = x)", "softmax(x = x, axis = int32(3))",
        "matmul(x = x, y = z, transpose_x = bool(false), transpose_y = bool(false))",
        "layer_norm(x = x, axes = tensor<int32, [1]>([3]), epsilon = fp16(1e-5))", "cumsum(x = x, axis = int32(3), exclusive = bool(false), reverse = bool(false))",
    };
    double *x = fx_take(f, N), *z = fx_take(f, N);
    if (!x || !z) return diag_nomem(f->d);
    /* every pattern, twice */
    for (int i = 0; i < N; i++) x[i] = f16_to_f64((uint16_t)i), z[i] = f16_to_f64((uint16_t)(i * 40503u + 12345u));
    int64_t bad = 0, seen = 0;
    for (size_t e = 0; e < COUNT(expr); e++) {
        bool two = strstr(expr[e], "= z") != NULL;
        const char *text = fx_text(f, two ? FX_T("1, 1, 256, 256") " x, " FX_T("1, 1, 256, 256") " z" : FX_T("1, 1, 256, 256") " x", "y",
                                   FX_T("1, 1, 256, 256") " y = %s[name = string(\"y\")];", expr[e]);
        fx_val y = { .name = "y" };
        arena_mark m = arena_save(&f->mem);
        TRY(fx_once(f, fx_chip(f, 0), text, NULL, (fx_val[]){ { "x", x, N }, { "z", z, N } }, two ? 2 : 1, &y, 1));
        for (int64_t i = 0; i < y.n; i++) bad += isnan(y.x[i]);
        seen += y.n;
        arena_back(&f->mem, m);
    }
    return fx_verdict(f, bad == 0, "%lld NaN among %lld results of %d operations", (long long)bad, (long long)seen,
                      (int)COUNT(expr));
}

/* args: the last finite argument of exp and the first infinite one */
an_status fact_exp_edge(fx *f)
{
    const char *text = fx_text(f, FX_T("1, 1, 1, 2") " x", "y", FX_T("1, 1, 1, 2") " y = exp(x = x)[name = string(\"y\")];");
    double x[2] = { fx_arg(f, 0), fx_arg(f, 1) };
    fx_val y = { .name = "y" };
    TRY(fx_once(f, fx_chip(f, 0), text, NULL, &(fx_val){ "x", x, 2 }, 1, &y, 1));
    return fx_verdict(f, isfinite(y.x[0]) && y.x[1] == INF, "%.9g, %.9g", y.x[0], y.x[1]);
}
