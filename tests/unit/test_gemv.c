/* test_gemv.c: every row of gemv.def this CPU can run, every form of weight, against sums in double precision; the
 * same bits for any thread count and whatever the other columns. The bound is the one kernel/gemv.h states. */
#include <math.h>

#include "t.h"

#include "kernel/gemv.h"

typedef struct {
    gemv_weight w;
    void *data, *scale;
    float *row_scale, *row_shift, *table, *shift;
    double *value, *bound; /* [m, k]: exact; magnitude that roundings are measured in */
} weight;

static void *must(size_t n)
{
    void *p = calloc(n ? n : 1, 1); /* exact: overruns are seen by ASan */
    assert_non_null(p);
    return p;
}

/* numbers: nibbles stand for DT_U4 or DT_I4; DT_NONE: for values of a table. */
static weight weight_make(rng *r, gemv_form f, int64_t m, int64_t k, int64_t block, dtype scale_type, bool shifted,
                          dtype numbers)
{
    static const int bits[GEMV_FORMS] = { 16, 16, 8, 8, 4 };
    static const dtype types[GEMV_FORMS] = { DT_F16, DT_BF16, DT_I8, DT_U8, DT_U4 };
    weight x = { .w = { .form = f, .m = m, .k = k, .row_bytes = k * bits[f] / 8, .block = block,
                        .scale_type = scale_type, .table_rows = 1 } };
    size_t n = (size_t)(m * k);
    x.value = must(n * sizeof(double)), x.bound = must(n * sizeof(double));
    x.w.w = x.data = must((size_t)(m * x.w.row_bytes));
    for (size_t i = 0; i < n; i++)
        dtype_store(types[f], x.data, (int64_t)i,
                    f == GEMV_NIBBLE ? (double)rng_below(r, 16)
                    : f == GEMV_U8   ? (double)rng_below(r, 256)
                    : f == GEMV_I8   ? (double)rng_below(r, 256) - 128
                                     : rng_normal(r));
    if ((f == GEMV_I8 || f == GEMV_U8) && !block) {
        x.w.row_scale = x.row_scale = must((size_t)m * 4);
        if (shifted) x.w.row_shift = x.row_shift = must((size_t)m * 4);
        for (int64_t i = 0; i < m; i++) {
            x.row_scale[i] = (float)rng_range(r, 0.001, 0.1);
            if (shifted) x.row_shift[i] = (float)rng_normal(r);
        }
    }
    if (f == GEMV_NIBBLE) {
        x.w.table_rows = numbers ? m : 1 + (int64_t)rng_below(r, (uint64_t)m);
        int64_t tables = (m + x.w.table_rows - 1) / x.w.table_rows;
        x.w.table = x.table = must((size_t)tables * 64);
        for (int64_t i = 0; i < tables * 16; i++) {
            unsigned char code = (unsigned char)(i % 16);
            x.table[i] = (float)(numbers ? dtype_load(numbers, &code, 0) : rng_normal(r));
        }
    }
    if (block) {
        int64_t scales = m * (k / block);
        size_t bytes;
        assert_true(dtype_bytes(scale_type, scales, &bytes));
        x.w.scale = x.scale = must(bytes);
        for (int64_t i = 0; i < scales; i++) dtype_store(scale_type, x.scale, i, rng_range(r, 0.1, 2));
        if (shifted) {
            x.w.shift = x.shift = must((size_t)scales * 4);
            for (int64_t i = 0; i < scales; i++) x.shift[i] = (float)rng_normal(r);
        }
    }
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < k; j++) {
            double q = dtype_load(types[f], x.data, i * k + j), v = q, extra = 0;
            if (x.row_scale) v = q * (double)x.row_scale[i];
            if (x.row_shift) extra = (double)x.row_shift[i];
            if (f == GEMV_NIBBLE) v = (double)x.table[i / x.w.table_rows * 16 + (int64_t)q];
            if (block) v *= dtype_load(scale_type, x.scale, i * (k / block) + j / block);
            if (x.shift) extra = (double)x.shift[i * (k / block) + j / block];
            x.value[i * k + j] = v + extra, x.bound[i * k + j] = fabs(v) + fabs(extra);
        }
    return x;
}

/* The same weight in the panels this kernel has for it; NULL: it has none. */
static void *panels_of(const gemv_kernel *g, pool *p, const weight *x, gemv_weight *w)
{
    size_t bytes;
    *w = x->w;
    if (!gemv_panel_bytes(g, w, &bytes)) return NULL;
    void *to = aligned_alloc(64, bytes);
    assert_non_null(to);
    gemv_panel_fill(p, w, to);
    w->panels = to, w->w = w->scale = NULL; /* not looked at */
    return to;
}

static void weight_free(weight *x)
{
    free(x->data), free(x->scale), free(x->row_scale), free(x->row_shift), free(x->table), free(x->shift),
        free(x->value), free(x->bound);
}

static void run(const gemv_kernel *g, pool *p, const gemv_weight *w, int64_t n, gemm_view x, float *y, int64_t ldy)
{
    diag d = { 0 };
    size_t bytes;
    assert_true(gemv_scratch_bytes(g, n, w->k, &bytes));
    void *scratch = must(bytes);
    assert_ok(gemv_run(&(gemv_call){ .kernel = g, .pool = p, .part = { { w, y } }, .parts = 1, .n = n, .x = x,
                                     .ldy = ldy, .scratch = scratch, .scratch_bytes = bytes }, &d), d);
    free(scratch);
}

static uint32_t have(void)
{
    diag d = { 0 };
    uint32_t isa;
    assert_ok(isa_have(&isa, &d), d);
    return isa;
}

static const struct {
    gemv_form f;
    int64_t block;
    dtype scale;
    bool shifted;
    dtype numbers;
} forms[] = {
    { GEMV_F16, 0, DT_F32, false, DT_NONE },     { GEMV_BF16, 0, DT_F32, false, DT_NONE },   { GEMV_I8, 0, DT_F32, false, DT_NONE },
    { GEMV_I8, 0, DT_F32, true, DT_NONE },       { GEMV_U8, 0, DT_F32, true, DT_NONE },      { GEMV_NIBBLE, 0, DT_F32, false, DT_NONE },
    { GEMV_NIBBLE, 8, DT_F32, true, DT_NONE },   { GEMV_NIBBLE, 16, DT_F16, true, DT_NONE }, { GEMV_NIBBLE, 32, DT_F16, false, DT_NONE },
    { GEMV_NIBBLE, 64, DT_F32, true, DT_NONE },  { GEMV_NIBBLE, 128, DT_F16, true, DT_NONE }, { GEMV_NIBBLE, 256, DT_F32, false, DT_NONE },
    { GEMV_I8, 16, DT_F16, false, DT_NONE },     { GEMV_I8, 64, DT_F32, false, DT_NONE },    { GEMV_U8, 48, DT_F16, false, DT_NONE },
    { GEMV_NIBBLE, 8, DT_F16, false, DT_I4 },    { GEMV_NIBBLE, 32, DT_F16, false, DT_I4 },  { GEMV_NIBBLE, 32, DT_F32, true, DT_U4 },
    { GEMV_NIBBLE, 64, DT_F16, true, DT_I4 },    { GEMV_NIBBLE, 128, DT_F32, false, DT_U4 }, { GEMV_NIBBLE, 256, DT_F16, true, DT_I4 },
    { GEMV_NIBBLE, 0, DT_F32, false, DT_I4 },    { GEMV_NIBBLE, 32, DT_F16, false, DT_U4 },
};

/* Of the `each` elements of a column that row belongs to. */
static double largest_of(int64_t each, dtype t, const void *x, gemm_view v, int64_t k, int64_t row, int64_t col)
{
    double most = 0;
    for (int64_t i = row / each * each; i < MIN(k, row / each * each + each); i++)
        most = MAX(most, fabs(dtype_load(t, x, i * v.row + col * v.col)));
    return most;
}

typedef struct {
    const gemv_kernel *g;
    pool *two;
    size_t f;
    const gemv_weight *w;
    int64_t n, ldy;
    gemm_view x;
    const double *want, *mag, *unit; /* [m, n]: exact; magnitude; of x's digits */
} checked;

/* Within the bound; the same bits from two threads, and from a column alone. */
static void check(const checked *c)
{
    const int64_t m = c->w->m, k = c->w->k, n = c->n, column = n - 1;
    const char *name = gemv_name(c->g), *form = c->w->panels ? "in panels" : "as stored";
    float *y = must((size_t)(m * c->ldy) * 4), *again = must((size_t)(m * c->ldy) * 4), *alone = must((size_t)m * 4);
    run(c->g, NULL, c->w, n, c->x, y, c->ldy);
    run(c->g, c->two, c->w, n, c->x, again, c->ldy);
    for (int64_t a = 0; a < m; a++)
        for (int64_t b = 0; b < n; b++) {
            double got = (double)y[a * c->ldy + b], want = c->want[a * n + b],
                   most = (double)(k + 12) * 0x1p-24 * c->mag[a * n + b] + c->unit[a * n + b] + 1e-37;
            if (!(fabs(got - want) <= most))
                fail_msg("gemv_%s form %d %s block %d, %dx%dx%d at (%d, %d): %.9g, wanted %.9g within %g", name,
                         (int)forms[c->f].f, form, (int)forms[c->f].block, (int)m, (int)n, (int)k, (int)a, (int)b, got,
                         want, most);
            if (memcmp(&y[a * c->ldy + b], &again[a * c->ldy + b], 4))
                fail_msg("gemv_%s %s: two threads give other bits", name, form);
        }
    gemm_view one = c->x;
    one.at = (const char *)one.at + column * one.col * (one.type == DT_F32 ? 4 : 2);
    run(c->g, NULL, c->w, 1, one, alone, 1);
    for (int64_t a = 0; a < m; a++)
        if (memcmp(&alone[a], &y[a * c->ldy + column], 4))
            fail_msg("gemv_%s form %d %s: column %d alone gives other bits", name, (int)forms[c->f].f, form,
                     (int)column);
    free(y), free(again), free(alone);
}

static void each_row_against_double(void **state)
{
    (void)state;
    int panels = 0;
    rng r = { test_seed("gemv") };
    uint32_t isa = have();
    pool *two;
    diag d = { 0 };
    assert_ok(pool_make(&two, 2, &d), d);
    for (int round = 0; round < 3; round++)
        for (size_t f = 0; f < COUNT(forms); f++) {
            int64_t m = 1 + (int64_t)rng_below(&r, 80), k = 1 + (int64_t)rng_below(&r, 300),
                    n = 1 + (int64_t)rng_below(&r, GEMV_COLUMNS);
            if (forms[f].f == GEMV_NIBBLE || forms[f].block) k = ROUND_UP(k, MAX(forms[f].block, GEMV_K_STEP));
            weight w =
                weight_make(&r, forms[f].f, m, k, forms[f].block, forms[f].scale, forms[f].shifted, forms[f].numbers);
            dtype xt = rng_below(&r, 2) ? DT_F32 : DT_F16;
            bool by_rows = rng_below(&r, 2) != 0;
            gemm_view x = { .type = xt, .row = by_rows ? n : 1, .col = by_rows ? 1 : k };
            void *xm = must((size_t)(k * n) * 4);
            x.at = xm;
            for (int64_t i = 0; i < k * n; i++) dtype_store(xt, xm, i, rng_normal(&r) * (rng_below(&r, 9) ? 1 : 64));
            int64_t ldy = n + (int64_t)rng_below(&r, 3);
            double *want = must((size_t)(m * n) * sizeof(double)), *mag = must((size_t)(m * n) * sizeof(double)),
                   *unit = must((size_t)(m * n) * sizeof(double));
            for (int64_t b = 0; b < n; b++) {
                double most = 0;
                for (int64_t c = 0, each = w.row_scale ? k : forms[f].block == 32 ? 32 : 8; c < k; c++) {
                    double v = dtype_load(xt, xm, c * x.row + b * x.col);
                    if (c % each == 0) most = largest_of(each, xt, xm, x, k, c, b);
                    for (int64_t a = 0; a < m; a++) {
                        want[a * n + b] += w.value[a * k + c] * v, mag[a * n + b] += w.bound[a * k + c] * fabs(v);
                        if (forms[f].numbers && forms[f].block) unit[a * n + b] += 0x1p-15 * w.bound[a * k + c] * most;
                        if (w.row_scale)
                            unit[a * n + b] +=
                                0x1p-21 * fabs(w.value[a * k + c] - (w.row_shift ? (double)w.row_shift[a] : 0)) * most;
                    }
                }
            }
            for (size_t i = 0; gemv_row(i); i++) {
                const gemv_kernel *g = gemv_row(i);
                if (gemv_need(g) & ~isa) continue;
                checked c = { .g = g, .two = two, .f = f, .w = &w.w, .n = n, .x = x, .ldy = ldy, .want = want,
                              .mag = mag, .unit = unit };
                check(&c);
                gemv_weight turned;
                void *mem = panels_of(g, two, &w, &turned);
                if (mem) c.w = &turned, check(&c), panels++;
                free(mem);
            }
            free(want), free(mag), free(unit), free(xm);
            weight_free(&w);
        }
    pool_free(two);
    for (int b = 0; isa_name(b); b++) /* not on every processor */
        if ((isa >> b & 1) && (!strcmp(isa_name(b), "avx512") || !strcmp(isa_name(b), "dot"))) assert_true(panels > 0);
}

/* Digits: zeros, tiny numbers, and columns that are not finite beside ones that are. */
static void odd_columns_of(gemv_form f, bool panels)
{
    enum { M = 9, K = 64, N = 3 };
    rng r = { test_seed("gemv odd") };
    weight w = weight_make(&r, f, M, K, f == GEMV_NIBBLE ? 32 : 0, DT_F16, false, f == GEMV_NIBBLE ? DT_I4 : DT_NONE);
    float x[N][K], y[M * N], alone[M];
    for (int i = 0; i < K; i++)
        x[0][i] = (float)rng_normal(&r), x[1][i] = 0, x[2][i] = i < 8 ? 0x1p-120f : i < 16 ? 0x1p-90f : 0;
    for (size_t i = 0; gemv_row(i); i++) {
        const gemv_kernel *g = gemv_row(i);
        if (gemv_need(g) & ~have()) continue;
        gemv_weight as = w.w;
        void *mem = panels ? panels_of(g, NULL, &w, &as) : NULL;
        if (panels && !mem) continue;
        gemm_view v = { .at = x, .type = DT_F32, .row = 1, .col = K };
        run(g, NULL, &as, N, v, y, N);
        for (int a = 0; a < M; a++) {
            double want = 0;
            for (int k = 0; k < 16; k++) want += w.value[a * K + k] * (double)x[2][k];
            assert_true(y[a * N + 1] == 0.0f);
            assert_true(fabs((double)y[a * N + 2] - want) <= 0x1p-90);
        }
        float keep = x[1][5];
        x[1][5] = INFINITY;
        run(g, NULL, &as, 1, v, alone, 1);
        run(g, NULL, &as, N, v, y, N);
        for (int a = 0; a < M; a++) {
            double q = w.value[a * K + 5];
            if (memcmp(&y[a * N], &alone[a], 4))
                fail_msg("gemv_%s: an infinity in another column changes the first", gemv_name(g));
            if (q == 0 ? !isnan(y[a * N + 1]) : y[a * N + 1] != (q > 0 ? INFINITY : -INFINITY))
                fail_msg("gemv_%s: infinity times %g gives %g", gemv_name(g), q, (double)y[a * N + 1]);
        }
        x[1][5] = keep;
        free(mem);
    }
    weight_free(&w);
}

static void odd_columns(void **state)
{
    (void)state;
    odd_columns_of(GEMV_NIBBLE, false);
    odd_columns_of(GEMV_NIBBLE, true);
    odd_columns_of(GEMV_I8, false);
    odd_columns_of(GEMV_U8, false);
}

/* Infinities of both signs and NaN of both: whichever of them a sum keeps, it is one NaN, with any number of
 * threads. */
static void same_nan(void **state)
{
    enum { M = 90, K = 61, N = 3 };
    rng r = { test_seed("gemv NaN") };
    pool *many;
    diag d = { 0 };
    (void)state;
    assert_ok(pool_make(&many, 5, &d), d);
    for (int round = 0; round < 20; round++) {
        const gemv_form f = round % 2 ? GEMV_BF16 : GEMV_F16;
        weight w = weight_make(&r, f, M, K, 0, DT_F16, false, DT_NONE);
        const float odd[] = { INFINITY, -INFINITY, NAN, -NAN };
        float x[N][K], y[M * N], again[M * N];
        for (int i = 0; i < N * K; i++)
            x[i / K][i % K] = rng_below(&r, 15) ? (float)rng_normal(&r) : odd[rng_below(&r, COUNT(odd))];
        for (size_t i = 0; gemv_row(i); i++) {
            if (gemv_need(gemv_row(i)) & ~have()) continue;
            const gemm_view v = { .at = x, .type = DT_F32, .row = 1, .col = K };
            run(gemv_row(i), NULL, &w.w, N, v, y, N);
            run(gemv_row(i), many, &w.w, N, v, again, N);
            if (memcmp(y, again, sizeof y))
                fail_msg("gemv_%s form %d: five threads give another NaN", gemv_name(gemv_row(i)), (int)f);
        }
        weight_free(&w);
    }
    pool_free(many);
}

/* An infinity, or numbers near the end of fp32: what the sum of products is, whatever sums of codes would be. */
static void past_the_end(void **state)
{
    enum { M = 37, K = 256, N = 4 };
    rng r = { test_seed("gemv past the end") };
    static const float odd[N] = { INFINITY, -INFINITY, 3e38f, NAN };
    (void)state;
    for (size_t k = 0; k < COUNT(forms); k++) {
        if (forms[k].f == GEMV_F16 || forms[k].f == GEMV_BF16 || (forms[k].block && K % forms[k].block)) continue;
        weight w = weight_make(&r, forms[k].f, M, K, forms[k].block, forms[k].scale, forms[k].shifted, forms[k].numbers);
        float x[N][K], y[M * N];
        for (int i = 0; i < N * K; i++) x[i / K][i % K] = (float)rng_normal(&r);
        for (int j = 0; j < N; j++) x[j][rng_below(&r, K)] = odd[j];
        for (size_t i = 0; gemv_row(i); i++) {
            if (gemv_need(gemv_row(i)) & ~have()) continue;
            run(gemv_row(i), NULL, &w.w, N, (gemm_view){ .at = x, .type = DT_F32, .row = 1, .col = K }, y, N);
            for (int a = 0; a < M * N; a++) {
                double want = 0;
                for (int l = 0; l < K; l++) want += w.value[a / N * K + l] * (double)x[a % N][l];
                const bool same = isnan(want)             ? isnan(y[a])
                                  : fabs(want) > 3.41e38 ? y[a] == (want > 0 ? INFINITY : -INFINITY)
                                  : fabs(want) > 3.39e38 || fabs((double)y[a] - want) <= 1e-4 * fabs(want) + 1e34;
                if (!same) fail_msg("gemv_%s form %zu, row %d, column of %g: %g, wanted %g", gemv_name(gemv_row(i)), k, a / N, (double)odd[a % N], (double)y[a], want);
            }
        }
        weight_free(&w);
    }
}

/* The largest bytes and digits there are, along a row longer than any model has: integers must not run over. */
static void extremes(void **state)
{
    (void)state;
    enum { K = 600037 };
    static const gemv_form forms_of[] = { GEMV_I8, GEMV_U8 };
    unsigned char *q = must(K);
    float *x = must(K * 4), scale = 0.5f, y;
    for (size_t f = 0; f < COUNT(forms_of); f++)
        for (int side = 0; side < 3; side++) {
            bool is_signed = forms_of[f] == GEMV_I8;
            int value = is_signed ? (side ? -128 : 127) : (side ? 255 : 0);
            memset(q, value & 0xff, K);
            for (int i = 0; i < K; i++) x[i] = i % 3 || side == 2 ? 3.0f : -2.999f * (float)side;
            double want = 0;
            for (int i = 0; i < K; i++) want += 0.5 * value * (double)x[i];
            gemv_weight w = { .form = forms_of[f], .m = 1, .k = K, .w = q, .row_bytes = K, .row_scale = &scale };
            for (size_t i = 0; gemv_row(i); i++) {
                if (gemv_need(gemv_row(i)) & ~have()) continue;
                run(gemv_row(i), NULL, &w, 1, (gemm_view){ .at = x, .type = DT_F32, .row = 1, .col = 1 }, &y, 1);
                if (!(fabs((double)y - want) <= 0.5 * 255 * 3.0 * K * ((K + 12) * 0x1p-24 + 0x1p-21)))
                    fail_msg("gemv_%s form %d: %.9g, wanted %.9g", gemv_name(gemv_row(i)), (int)forms_of[f], (double)y,
                             want);
            }
        }
    free(q), free(x);
}

/* The same of nibbles in panels, whose sums are made in the bits of fp32: each block at either end of what it can be,
 * one row in each direction. */
static void extremes_of_panels(void **state)
{
    (void)state;
    enum { M = 2, K = 4096 };
    static const dtype numbers[] = { DT_I4, DT_U4 };
    unsigned char q[M * K / 2];
    uint16_t scale[M * K / 32];
    float x[K], table[16], y[M];
    for (size_t i = 0; i < COUNT(scale); i++) scale[i] = 0x3800; /* a half */
    for (size_t t = 0; t < COUNT(numbers); t++)
        for (int code = 0; code < 16; code++) {
            unsigned char all = (unsigned char)(code * 17), other = (unsigned char)(code % 8 * 17);
            memset(q, all, K / 2), memset(q + K / 2, other, K / 2);
            for (int i = 0; i < K; i++) x[i] = i / 32 % 3 ? 3.0f : -3.0f;
            for (unsigned char i = 0; i < 16; i++) table[i] = (float)dtype_load(numbers[t], &i, 0);
            gemv_weight w = { .form = GEMV_NIBBLE, .m = M, .k = K, .w = q, .row_bytes = K / 2, .table = table,
                              .table_rows = M, .block = 32, .scale_type = DT_F16, .scale = scale };
            double sum = 0;
            for (int i = 0; i < K; i++) sum += 0.5 * (double)x[i];
            for (size_t i = 0; gemv_row(i); i++) {
                weight as = { .w = w };
                gemv_weight turned;
                void *mem = gemv_need(gemv_row(i)) & ~have() ? NULL : panels_of(gemv_row(i), NULL, &as, &turned);
                if (!mem) continue;
                run(gemv_row(i), NULL, &turned, 1, (gemm_view){ .at = x, .type = DT_F32, .row = 1, .col = 1 }, y, 1);
                for (int a = 0; a < M; a++) {
                    const double value = (double)table[a ? code % 8 : code];
                    if (!(fabs((double)y[a] - value * sum) <= fabs(value) * 1.5 * K * 0x1p-15))
                        fail_msg("gemv_%s in panels of %g: %.9g, wanted %.9g", gemv_name(gemv_row(i)), value,
                                 (double)y[a], value * sum);
                }
                free(mem);
            }
        }
}

static void one_query(void **state)
{
    (void)state;
    static const dtype types[] = { DT_F32, DT_F16, DT_BF16 };
    rng r = { test_seed("gemv query") };
    for (int round = 0; round < 40; round++) {
        dtype t = types[round % 3];
        int64_t rows = 1 + (int64_t)rng_below(&r, 70), cols = 1 + (int64_t)rng_below(&r, 140), size = dtype_bits(t) / 8;
        void *lines = must((size_t)(rows * cols * size));
        float *x = must((size_t)MAX(rows, cols) * 4), *y = must((size_t)MAX(rows, cols) * 4);
        for (int64_t i = 0; i < rows * cols; i++) dtype_store(t, lines, i, rng_normal(&r));
        for (int64_t i = 0; i < MAX(rows, cols); i++) x[i] = (float)rng_normal(&r);
        for (size_t i = 0; gemv_row(i); i++) {
            const gemv_kernel *g = gemv_row(i);
            if (gemv_need(g) & ~have()) continue;
            for (int mix = 0; mix < 2; mix++) {
                (mix ? gemv_mix : gemv_scores)(g, t, lines, rows, cols, x, y, lines);
                for (int64_t a = 0; a < (mix ? cols : rows); a++) {
                    double want = 0, mag = 0;
                    for (int64_t b = 0; b < (mix ? rows : cols); b++) {
                        double p = dtype_load(t, lines, mix ? b * cols + a : a * cols + b) * (double)x[b];
                        want += p, mag += fabs(p);
                    }
                    if (!(fabs((double)y[a] - want) <= (double)(MAX(rows, cols) + 12) * 0x1p-24 * mag + 1e-37))
                        fail_msg("gemv_%s %s of %s, %dx%d at %d: %.9g, wanted %.9g", gemv_name(g),
                                 mix ? "mix" : "scores", dtype_name(t), (int)rows, (int)cols, (int)a, (double)y[a],
                                 want);
                }
            }
        }
        free(lines), free(x), free(y);
    }
}

static void refusals(void **state)
{
    (void)state;
    const gemv_kernel *g = gemv_pick(0);
    float one[128] = { 0 }, y[8], scratch[4096];
    gemv_weight w = { .form = GEMV_F16, .m = 1, .k = 1, .w = one, .row_bytes = 2 };
    gemv_call ok = { .kernel = g, .part = { { &w, y } }, .parts = 1, .n = 1, .x = { one, DT_F32, 1, 1 }, .ldy = 1,
                     .scratch = scratch, .scratch_bytes = sizeof scratch };
    diag d = { 0 };
    assert_ok(gemv_run(&ok, &d), d);
    gemv_call bad = ok;
    bad.n = 9;
    assert_int_equal(gemv_run(&bad, &d), AN_BUG);
    assert_non_null(strstr(d.msg, "9 columns"));
    d = (diag){ 0 }, bad = ok, bad.x.type = DT_I8;
    assert_int_equal(gemv_run(&bad, &d), AN_UNSUPPORTED);
    gemv_weight other = w;
    other.form = GEMV_BF16;
    d = (diag){ 0 }, bad = ok, bad.parts = 2, bad.part[1] = (gemv_part){ &other, y };
    assert_int_equal(gemv_run(&bad, &d), AN_BUG);
    d = (diag){ 0 }, bad = ok, bad.parts = GEMV_PARTS + 1;
    assert_int_equal(gemv_run(&bad, &d), AN_BUG);
    d = (diag){ 0 }, bad = ok, bad.scratch_bytes = 16;
    assert_int_equal(gemv_run(&bad, &d), AN_BUG);
    gemv_weight q = { .form = GEMV_NIBBLE, .m = 1, .k = 48, .w = one, .row_bytes = 24, .table = one, .table_rows = 1,
                      .block = 24, .scale = one, .scale_type = DT_F32 };
    d = (diag){ 0 }, bad = ok, bad.part[0].w = &q;
    assert_int_equal(gemv_run(&bad, &d), AN_BUG);
    assert_non_null(strstr(d.msg, "blocks of 24"));
    assert_true(gemv_block_fits(GEMV_NIBBLE, 32) && gemv_block_fits(GEMV_NIBBLE, 384) &&
                !gemv_block_fits(GEMV_NIBBLE, 0) && !gemv_block_fits(GEMV_NIBBLE, 48));
    assert_true(gemv_block_fits(GEMV_I8, 48) && !gemv_block_fits(GEMV_I8, 8) && !gemv_block_fits(GEMV_F16, 32));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(each_row_against_double),
                                        cmocka_unit_test(odd_columns),
                                        cmocka_unit_test(same_nan), cmocka_unit_test(past_the_end),
                                        cmocka_unit_test(extremes), cmocka_unit_test(extremes_of_panels),
                                        cmocka_unit_test(one_query),
                                        cmocka_unit_test(refusals) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
