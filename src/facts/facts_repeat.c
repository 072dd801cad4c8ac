/* facts_repeat.c: what must not change a byte: running again, another level of optimisation, company in the batch,
 * another process, another chip; and how much another chip may change. In: seeded data.  Out: counts of identical
 * results. */
#include "codegen/codegen.h"
#include "facts/facts_int.h"
#include "target/target.h"

/* ---- one program, many runs ---- */

typedef struct {
    const char *params, *body, *result;
    int64_t n; /* elements of x */
    double scale;
} sample;

#define CONV3 "pad_type = string(\"same\"), strides = tensor<int32, [2]>([1, 1]), pad = tensor<int32, [4]>([0, 0, 0, 0]), dilations = tensor<int32, [2]>([1, 1]), groups = int32(1)"
static const sample samples[] = {
    { FX_T("16, 64") " x", FX_T("16, 16") " y = matmul(x = x, y = x, transpose_x = bool(false), transpose_y = bool(true))[name = string(\"y\")];", "y", 1024, 1 },
    { FX_T("1, 4, 8, 8") " x",
      "tensor<fp16, [2, 4, 1, 1]> v = const()[name = string(\"v\"), val = tensor<fp16, [2, 4, 1, 1]>([0.5, -0.25, 1, 0.125, 0.75, -1, 0.375, 2])];\n"
      "tensor<fp16, [1, 2, 3, 3]> w = const()[name = string(\"w\"), val = tensor<fp16, [1, 2, 3, 3]>([1, 2, 1, 0.5, -3, 0.5, 1, 2, 1, -1, 0, 1, -2, 0, 2, -1, 0, 1])];\n"
      FX_T("1, 2, 8, 8") " c = conv(x = x, weight = v, " CONV3 ")[name = string(\"c\")];\n" FX_T("1, 2, 8, 8") " r = relu(x = c)[name = string(\"r\")];\n"
      FX_T("1, 1, 8, 8") " y = conv(x = r, weight = w, " CONV3 ")[name = string(\"y\")];", "y", 256, 1 },
    { FX_T("1, 1, 2, 8192") " x", FX_T("1, 1, 2, 1") " y = reduce_sum(x = x, axes = tensor<int32, [1]>([3]), keep_dims = bool(true))[name = string(\"y\")];", "y", 16384, 1 },
    { FX_T("16, 64") " x", FX_T("16, 64") " y = softmax(x = x, axis = int32(1))[name = string(\"y\")];", "y", 1024, 2 },
    { FX_T("1, 1, 16, 512") " x", FX_T("1, 1, 16, 1") " y = reduce_mean(x = x, axes = tensor<int32, [1]>([3]), keep_dims = bool(true))[name = string(\"y\")];", "y", 8192, 1 },
    { FX_T("64, 256") " x", FX_T("64, 64") " y = matmul(x = x, y = x, transpose_x = bool(false), transpose_y = bool(true))[name = string(\"y\")];", "y", 16384, 1 },
    { FX_T("128, 64") " x", FX_T("128, 64") " e = exp(x = x)[name = string(\"e\")];\n" FX_T("128, 64") " t = tanh(x = x)[name = string(\"t\")];\n" FX_T("128, 64") " y = mul(x = e, y = t)[name = string(\"y\")];", "y", 8192, 1 },
};

/* args: runs, then numbers of samples */
an_status fact_reruns(fx *f)
{
    int runs = (int)fx_arg(f, 0), changed = 0;
    for (int k = 1; k < f->row->n_arg; k++) {
        const sample *s = &samples[(int)fx_arg(f, k)];
        fx_prog g;
        double *first = NULL, *y;
        int64_t n;
        TRY(fx_open(f, &g, fx_chip(f, 0), fx_text(f, s->params, s->result, "%s", s->body), NULL));
        an_status st = fx_set(f, &g, "x", fx_normal(f, s->n, 68, s->scale), s->n);
        for (int i = 0; !st && i < runs; i++) {
            st = fx_go(f, &g);
            if (!st) st = fx_get(f, &g, "y", &y, &n);
            if (!st && !first) first = y;
            if (!st) changed += memcmp(first, y, (size_t)n * sizeof *y) != 0;
        }
        fx_close(&g);
        TRY(st);
    }
    return fx_verdict(f, changed == 0, "%d of %d runs changed", changed, runs * (f->row->n_arg - 1));
}

/* ---- levels of optimisation ---- */

static an_status run_level(fx *f, const mil_module *m, const numerics *num, const char *target, int level,
                           const void *in, strbuf *out)
{
    program *p = NULL;
    image *im = NULL;
    unsigned char *y = NULL;
    codegen_options o = { .num = num, .target = target, .level = level };
    an_status st = codegen_mil(m, NULL, &o, &p, f->d);
    if (!st) st = image_load(&im, p, NULL, &(image_options){ 0 }, f->d);
    if (!st && !(y = arena_take(&f->mem, (size_t)p->outputs.at[0].bytes, 1, 64))) st = diag_nomem(f->d);
    if (!st) st = image_run(im, &in, (void *const *)&y, f->d);
    if (!st) sb_putn(out, (const char *)y, (size_t)p->outputs.at[0].bytes);
    image_free(im);
    program_free(p);
    return st;
}

/* One sample compiled at levels 0 and 1. */
static an_status levels_agree(fx *f, const sample *s, bool *same)
{
    const chip *c = chip_find(fx_chip(f, 0));
    numerics num;
    mil_module *m = NULL;
    const char *text = fx_text(f, s->params, s->result, "%s", s->body);
    double *x = fx_normal(f, s->n, 70, s->scale);
    uint16_t *in = TAKE(&f->mem, uint16_t, (size_t)s->n);
    if (!text || !x || !in) return diag_nomem(f->d);
    if (!c || !codegen_numerics(c, &num)) return diag_fail(f->d, AN_BUG, NOWHERE, "no profile");
    for (int64_t i = 0; i < s->n; i++) in[i] = f16_from_f64(x[i]);
    TRY(mil_parse(text, strlen(text), 0, &m, f->d));
    strbuf a = { 0 }, b = { 0 };
    an_status st = run_level(f, m, &num, chip_name(c), 0, in, &a);
    if (!st) st = run_level(f, m, &num, chip_name(c), 1, in, &b);
    if (!st && (a.oom || b.oom)) st = diag_nomem(f->d);
    *same = !st && a.n == b.n && !memcmp(a.at, b.at, a.n);
    sb_free(&a);
    sb_free(&b);
    mil_free(m);
    return st;
}

an_status fact_levels(fx *f)
{
    static const sample big = { FX_T("1024, 1024") " x",
                                FX_T("128, 1024") " a = slice_by_size(x = x, begin = tensor<int32, [2]>([0, 0]), size = tensor<int32, [2]>([128, 1024]))[name = string(\"a\")];\n"
                                FX_T("128, 1024") " y = matmul(x = a, y = x, transpose_x = bool(false), transpose_y = bool(false))[name = string(\"y\")];", "y", 1024 * 1024, 0.2 };
    int good = 0, total = 0;
    bool same;
    for (size_t i = 0; i < COUNT(samples); i++, total++) {
        TRY(levels_agree(f, &samples[i], &same));
        good += same;
    }
    TRY(levels_agree(f, &big, &same));
    return fx_verdict(f, good == total && same, "%d of %d programs identical, [128,1024]@[1024,1024] %s", good, total,
                      same ? "identical" : "different");
}

/* ---- company in the batch ---- */

/* Rows of k through a product by w [k, k] and a softmax: y of `rows` rows that start at row `from` of x. */
static an_status batch_on(fx *f, const double *x, const double *w, int64_t k, int64_t from, int64_t rows, double **y)
{
    char params[160];
    snprintf(params, sizeof params, "tensor<fp16, [%lld, %lld]> x, tensor<fp16, [%lld, %lld]> w", (long long)rows, (long long)k, (long long)k, (long long)k);
    const char *text = fx_text(f, params, "y",
                               "tensor<fp16, [%lld, %lld]> m = matmul(x = x, y = w, transpose_x = bool(false), transpose_y = bool(false))[name = string(\"m\")];\n"
                               "tensor<fp16, [%lld, %lld]> y = softmax(x = m, axis = int32(1))[name = string(\"y\")];", (long long)rows, (long long)k, (long long)rows, (long long)k);
    double *part = fx_take(f, rows * k), *wide = fx_take(f, k * k);
    if (!part || !wide) return diag_nomem(f->d);
    memcpy(part, x + from * k, (size_t)(rows * k) * sizeof *part);
    memcpy(wide, w, (size_t)(k * k) * sizeof *wide);
    fx_val out = { .name = "y" };
    TRY(fx_once(f, fx_chip(f, 0), text, NULL, (fx_val[]){ { "x", part, rows * k }, { "w", wide, k * k } }, 2, &out, 1));
    *y = out.x;
    return AN_OK;
}

an_status fact_batch_position(fx *f)
{
    enum { ROWS = 16, K = 96 };
    double *x = fx_normal(f, ROWS * K, 71, 1), *w = fx_normal(f, K * K, 72, 0.2), *all, *one;
    int same = 0;
    if (!x || !w) return diag_nomem(f->d);
    TRY(batch_on(f, x, w, K, 0, ROWS, &all));
    for (int i = 0; i < ROWS; i++) {
        TRY(batch_on(f, x, w, K, i, 1, &one));
        same += !memcmp(one, all + i * K, K * sizeof *one);
    }
    return fx_verdict(f, same == ROWS, "%d of %d positions identical", same, (int)ROWS);
}

/* args: batch sizes */
an_status fact_batch_sizes(fx *f)
{
    enum { K = 64, MOST = 128 };
    double *x = fx_normal(f, MOST * K, 73, 1), *w = fx_normal(f, K * K, 74, 0.2), *first = NULL, *y;
    int same = 0;
    if (!x || !w) return diag_nomem(f->d);
    for (int i = 0; i < f->row->n_arg; i++) {
        TRY(batch_on(f, x, w, K, 0, (int64_t)fx_arg(f, i), &y));
        if (!first) first = y;
        same += !memcmp(first, y, K * sizeof *y);
    }
    return fx_verdict(f, same == f->row->n_arg, "%d of %d sizes identical", same, f->row->n_arg);
}

/* A dot product written two ways. */
an_status fact_dot_forms(fx *f)
{
    enum { ROWS = 64, K = 256 };
    const char *text = fx_text(f, FX_T("64, 1, 256") " a, " FX_T("64, 1, 256") " b", "m, s",
                               FX_T("64, 1, 1") " m = matmul(x = a, y = b, transpose_x = bool(false), transpose_y = bool(true))[name = string(\"m\")];\n"
                               FX_T("64, 1, 256") " p = mul(x = a, y = b)[name = string(\"p\")];\n"
                               FX_T("64, 1, 1") " s = reduce_sum(x = p, axes = tensor<int32, [1]>([2]), keep_dims = bool(true))[name = string(\"s\")];");
    fx_val out[2] = { { .name = "m" }, { .name = "s" } };
    TRY(fx_once(f, fx_chip(f, 0), text, NULL,
                (fx_val[]){ { "a", fx_normal(f, ROWS * K, 671, 1), ROWS * K },
                            { "b", fx_normal(f, ROWS * K, 672, 1), ROWS * K } },
                2, out, 2));
    int same = 0;
    for (int i = 0; i < ROWS; i++) same += fx_same(out[0].x[i], out[1].x[i]);
    return fx_verdict(f, same == ROWS, "%d of %d identical", same, (int)ROWS);
}

/* ---- processes at once ---- */

enum { CLIENT_K = 32 };
typedef struct {
    int right;
    double worst;
    uint64_t bits; /* of all answers */
} client;

/* A process with its own device and its own data, every answer compared with the sum in double. */
static an_status client_rounds(fx *f, int i, void *result)
{
    fx_prog g;
    client *c = result;
    rng r = { .s = 810 + (uint64_t)i };
    const char *text = fx_text(f, FX_T("1, 32") " x, " FX_T("32, 32") " w", "y", FX_T("1, 32") " y = matmul(x = x, y = w, transpose_x = bool(false), transpose_y = bool(false))[name = string(\"y\")];");
    double *w = fx_uniform(f, CLIENT_K * CLIENT_K, 81, 0, 1), *x = fx_take(f, CLIENT_K), *y;
    int64_t n;
    *c = (client){ 0 };
    if (!w || !x) return diag_nomem(f->d);
    TRY(fx_open(f, &g, fx_chip(f, 0), text, NULL));
    an_status st = fx_set(f, &g, "w", w, CLIENT_K * CLIENT_K);
    fx_meet(f);
    for (int k = 0; !st && k < (int)fx_arg(f, 1); k++) {
        arena_mark m = arena_save(&f->mem);
        double wrong = 0, all = 0;
        for (int j = 0; j < CLIENT_K; j++) x[j] = dtype_round(DT_F16, rng_unit(&r));
        st = fx_set(f, &g, "x", x, CLIENT_K);
        if (!st) st = fx_go(f, &g);
        if (!st) st = fx_get(f, &g, "y", &y, &n);
        if (st) break;
        for (int j = 0; j < CLIENT_K; j++) {
            double want = 0;
            for (int l = 0; l < CLIENT_K; l++) want += x[l] * w[l * CLIENT_K + j];
            wrong += (y[j] - want) * (y[j] - want);
            all += want * want;
        }
        c->worst = MAX(c->worst, sqrt(wrong / all));
        c->right += wrong <= 1e-6 * all;
        c->bits = hash_bytes(y, (size_t)n * sizeof *y, c->bits);
        arena_back(&f->mem, m);
    }
    fx_close(&g);
    return st;
}

/* args: processes, rounds, largest relative error. What they answered at once is what this process answers to the
 * same data alone. */
an_status fact_clients(fx *f)
{
    client c[FX_PROCESSES], alone;
    int n = (int)fx_arg(f, 0), right = 0, same = 0;
    double worst = 0;
    TRY(fx_fork(f, n, client_rounds, c, sizeof *c));
    for (int i = 0; i < n; i++) {
        TRY(client_rounds(f, i, &alone));
        right += c[i].right, same += c[i].bits == alone.bits;
        worst = MAX(worst, c[i].worst);
    }
    int all = n * (int)fx_arg(f, 1);
    return fx_verdict(f, right == all && same == n && worst <= fx_arg(f, 2),
                      "%d/%d correct, max relative error %.4f; %d of %d processes have the bits of one alone", right,
                      all, worst, same, n);
}

/* ---- two chips ---- */

/* what may differ between generations: width slice, square after a sum, route of a reduction, tiling */
static const sample axes[] = {
    { FX_T("1, 1, 8, 128") " x", FX_T("1, 1, 8, 64") " y = slice_by_size(x = x, begin = tensor<int32, [4]>([0, 0, 0, 64]), size = tensor<int32, [4]>([1, 1, 8, 64]))[name = string(\"y\")];", "y", 1024, 3000 },
    { FX_T("1, 1, 16, 64") " x", FX_T("1, 1, 16, 1") " s = reduce_sum(x = x, axes = tensor<int32, [1]>([3]), keep_dims = bool(true))[name = string(\"s\")];\n" FX_T("1, 1, 16, 1") " y = square(x = s)[name = string(\"y\")];", "y", 1024, 1 },
    { FX_T("1, 1, 8, 384") " x", FX_T("1, 1, 8, 1") " y = reduce_mean(x = x, axes = tensor<int32, [1]>([3]), keep_dims = bool(true))[name = string(\"y\")];", "y", 3072, 1 },
    { FX_T("16, 512") " x", FX_T("16, 16") " y = matmul(x = x, y = x, transpose_x = bool(false), transpose_y = bool(true))[name = string(\"y\")];", "y", 8192, 0.5 },
};

static an_status on_both(fx *f, const sample *s, double *x, fx_val *a, fx_val *b)
{
    const char *text = fx_text(f, s->params, s->result, "%s", s->body);
    *a = *b = (fx_val){ .name = "y" };
    TRY(fx_once(f, fx_chip(f, 0), text, NULL, &(fx_val){ "x", x, s->n }, 1, a, 1));
    return fx_once(f, fx_chip(f, 1), text, NULL, &(fx_val){ "x", x, s->n }, 1, b, 1);
}

an_status fact_chips_equal(fx *f)
{
    int same = 0;
    for (size_t i = 0; i < COUNT(axes); i++) {
        fx_val a, b;
        TRY(on_both(f, &axes[i], fx_normal(f, axes[i].n, 82 + i, axes[i].scale), &a, &b));
        same += !memcmp(a.x, b.x, (size_t)a.n * sizeof *a.x);
    }
    return fx_verdict(f, same == (int)COUNT(axes), "%d of %d axes bit for bit equal", same, (int)COUNT(axes));
}

static const sample plain[] = { /* terms of both signs */
    { FX_T("16, 64") " x", FX_T("16, 16") " y = matmul(x = x, y = x, transpose_x = bool(false), transpose_y = bool(true))[name = string(\"y\")];", "y", 1024, 1 },
    { FX_T("8, 1024") " x", FX_T("8, 8") " y = matmul(x = x, y = x, transpose_x = bool(false), transpose_y = bool(true))[name = string(\"y\")];", "y", 8192, 1 },
    { FX_T("1, 2, 8, 8") " x",
      "tensor<fp16, [1, 2, 3, 3]> w = const()[name = string(\"w\"), val = tensor<fp16, [1, 2, 3, 3]>([0.1, 0.2, 0.1, 0.5, 0.3, 0.5, 0.1, 0.2, 0.1, 0.7, 0, 0.1, 0.2, 0, 0.2, 0.1, 0, 0.9])];\n"
      FX_T("1, 1, 8, 8") " y = conv(x = x, weight = w, " CONV3 ")[name = string(\"y\")];", "y", 128, 1 },
    { FX_T("1, 1, 8, 512") " x", FX_T("1, 1, 8, 1") " y = reduce_sum(x = x, axes = tensor<int32, [1]>([3]), keep_dims = bool(true))[name = string(\"y\")];", "y", 4096, 1 },
    { FX_T("1, 1, 8, 512") " x", FX_T("1, 1, 8, 1") " y = reduce_mean(x = x, axes = tensor<int32, [1]>([3]), keep_dims = bool(true))[name = string(\"y\")];", "y", 4096, 1 },
    { FX_T("16, 64") " x", FX_T("16, 64") " y = softmax(x = x, axis = int32(1))[name = string(\"y\")];", "y", 1024, 4 },
    { FX_T("16, 64") " x", FX_T("16, 64") " y = layer_norm(x = x, axes = tensor<int32, [1]>([1]), epsilon = fp16(0.0001))[name = string(\"y\")];", "y", 1024, 4 },
    { FX_T("16, 64") " x", FX_T("16, 64") " y = exp(x = x)[name = string(\"y\")];", "y", 1024, 4 },
    { FX_T("16, 64") " x", FX_T("16, 64") " y = gelu(x = x, mode = string(\"EXACT\"))[name = string(\"y\")];", "y", 1024, 4 },
    { FX_T("16, 64") " x", FX_T("16, 64") " y = add(x = x, y = fp16(0.3))[name = string(\"y\")];", "y", 1024, 4 },
};

an_status fact_chips_near(fx *f)
{
    double most = 0;
    for (size_t i = 0; i < COUNT(plain); i++) {
        fx_val a, b;
        TRY(on_both(f, &plain[i], fx_uniform(f, plain[i].n, 830 + i, -plain[i].scale, plain[i].scale), &a, &b));
        for (int64_t k = 0; k < a.n; k++) most = MAX(most, fx_ulps(a.x[k], b.x[k]));
    }
    return fx_verdict(f, most <= 1, "at most %g ulp over %d operations", most, (int)COUNT(plain));
}
