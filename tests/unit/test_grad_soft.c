/* Gradients as devices compute them: every rule's case, compiled and run in fp16 with the arithmetic of m1 and m4
 * and in fp32 on cpu with products of bf16, against the gradient of the same case built in fp64, which test_grad
 * compares with differences. A rule that is right in fp64 only is found here. The loss is linear in the results, so
 * the gradient is the rule's own and nothing else; a cosine knows no factor, so its size is compared too. */
#include "codegen_t.h"
#include "grad_rows.h"
#include "noise_t.h"
#include "pass/pass.h"

/* The case in fp16 or fp32. */
static graph *narrow_row(const char *text, dtype dt)
{
    size_t n = strlen(text);
    char *t = malloc(n + 1);
    assert_non_null(t);
    memcpy(t, text, n + 1);
    for (char *p = t; (p = strstr(p, "fp64")); p += 4) memcpy(p, dtype_name(dt), 4);
    for (char *p = t; (p = strstr(p, "\"fp32\"")); p += 6) memcpy(p + 1, dtype_name(dt), 4);
    graph *g = grad_parse(t);
    free(t);
    return g;
}

/* The case in fp64, with constants that dt holds too: whatever is left between the two is the device's arithmetic. */
static graph *wide_row(const char *text, dtype dt, rng *r, val *loss)
{
    graph *g = grad_parse(text);
    *loss = grad_total(g, r);
    for (size_t i = 1; i < g->nodes.n; i++) {
        const node *n = &g->nodes.at[i];
        const ttype *t = graph_type(g, n->out);
        if (n->op != OP_CONST || t->dt != DT_F64) continue;
        double *x = TAKE(&g->mem, double, (size_t)elems(t));
        assert_non_null(x);
        for (int64_t k = 0; k < elems(t); k++) x[k] = dtype_round(dt, dtype_load(DT_F64, n->cst->data, k));
        n->cst->data = x;
    }
    return g;
}

typedef struct {
    double ab, aa, bb;
} angle;

static void angle_add(angle *s, const double *want, dtype t, const void *got, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double a = want[i], b = dtype_load(t, got, i);
        s->ab += a * b, s->aa += a * a, s->bb += b * b;
    }
}

static double cosine(const angle *s) { return s->aa == 0 && s->bb == 0 ? 1 : s->ab / sqrt(s->aa * s->bb); }
static double size_ratio(const angle *s) { return s->aa == 0 && s->bb == 0 ? 1 : sqrt(s->bb / s->aa); }

/* How far a gradient may be off, as a part of its size: along itself, and across, which is the square of it less of
 * a cosine. Where it may be more than 1 %, the chip's arithmetic is why. */
static double size_off(const char *text)
{
    static const struct {
        const char *op;
        double off;
    } more[] = {
        /* the parameters' gradients are sums of eight terms, each with the chip's sigmoid, which is off by up to
         * 0.0034: 2 % where it is 0.17 */
        { "softplus_parametric(", 0.03 },
    };
    for (size_t i = 0; i < COUNT(more); i++)
        if (strstr(text, more[i].op)) return more[i].off;
    return 0.01;
}

/* Gradients of the loss by every input, as outputs g0, g1 … */
static void differentiate(graph *g, val loss, const grad_options *o, const char *what)
{
    val dx[8] = { NO_VAL };
    diag d = { 0 };
    assert_in_range(g->inputs.n, 1, 8);
    if (grad_build(g, loss, g->inputs.at, (int)g->inputs.n, dx, o, &d)) fail_msg("%s: %s", what, d.msg);
    for (size_t i = 0; i < g->inputs.n; i++) {
        char name[24];
        snprintf(name, sizeof name, "g%zu", i);
        graph_output(g, name, dx[i]);
    }
    if (graph_finish(g, &d)) fail_msg("%s: %s", what, d.msg);
}

typedef struct {
    const char *name; /* a chip, or cpu with products of bf16 */
    dtype dt;
    double cosine; /* at least */
} arithmetic;

static const arithmetic m1 = { "m1", DT_F16, 0.9999 }, m4 = { "m4", DT_F16, 0.9999 };
/* 8 bits of each factor: off by 0.004 at most, in all directions */
static const arithmetic bf16 = { "cpu", DT_F32, 0.9999 };

/* One case at one point. */
typedef struct {
    graph *g;              /* narrow, with the gradients as outputs */
    tensor64 in[8], want[8];
    arena mem;
} point;

static void point_open(point *t, const grad_row *w, double loss_scale, rng *r, const arithmetic *on)
{
    rng same = *r;
    val loss, wide_loss;
    graph *g = narrow_row(w->text, on->dt), *wide = wide_row(w->text, on->dt, &same, &wide_loss);
    diag d = { 0 };
    bool plain = w->lo == 0 && w->hi == 0;
    tensor64 wide_in[8];
    *t = (point){ .g = g };
    loss = grad_total(g, r);
    differentiate(g, loss, &(grad_options){ .loss_scale = loss_scale, .scatter = on->dt != DT_F16 }, w->text);
    differentiate(wide, wide_loss, &(grad_options){ .loss_scale = loss_scale }, w->text);
    for (size_t i = 0; i < g->inputs.n; i++) {
        t->in[i].type = *graph_type(g, g->inputs.at[i]);
        t->in[i].x = spaced(&t->mem, r, elems(&t->in[i].type), plain ? -2 : w->lo, plain ? 2 : w->hi);
        for (int64_t k = 0; k < elems(&t->in[i].type); k++) t->in[i].x[k] = dtype_round(on->dt, t->in[i].x[k]);
        wide_in[i] = (tensor64){ *graph_type(wide, wide->inputs.at[i]), t->in[i].x };
    }
    if (graph_eval(wide, wide_in, t->want, &t->mem, &d)) fail_msg("%s: %s", w->text, d.msg);
    graph_free(wide);
}

static void point_close(point *t)
{
    arena_free(&t->mem);
    graph_free(t->g);
}

static void compare(const grad_row *w, const point *t, const arithmetic *on)
{
    numerics num;
    const chip *ch = chip_find(on->name);
    if (ch) assert_true(codegen_numerics(ch, &num));
    arena mem = { 0 };
    program *p =
        cgt_compile(t->g, &(codegen_options){ .num = ch ? &num : NULL, .target = on->name, .level = 1, .bf16 = !ch });
    const void **xin = cgt_inputs(p, t->g, t->in, &mem);
    void **xout = cgt_outputs(p, &mem);
    cgt_run_with(p, xin, xout, &(image_options){ .fast_math = ch ? FAST_NONE : FAST_BF16 });
    for (size_t i = 0; i < p->outputs.n; i++) {
        const char *name = p->outputs.at[i].name; /* g and the input's number; a state that was written has its own */
        if (name[0] != 'g') continue;
        const int k = name[1] - '0';
        angle one = { 0 };
        angle_add(&one, t->want[k].x, on->dt, xout[i], elems(&t->want[k].type));
        const char *by = graph_value(t->g, t->g->inputs.at[k])->name;
        const double off = size_off(w->text);
        if (!(cosine(&one) >= fmin(on->cosine, 1 - off * off / 2)))
            fail_msg("%s on %s: the gradient by %s has cosine %.6f", w->text, on->name, by, cosine(&one));
        if (!(fabs(size_ratio(&one) - 1) <= off))
            fail_msg("%s on %s: the gradient by %s is %.5f of its size", w->text, on->name, by, size_ratio(&one));
    }
    program_free(p);
    arena_free(&mem);
}

/* Where roundings twice as coarse as the type's are off by more than is allowed, the point is none, and another is
 * drawn: the gradient is small beside what it is the sum of, or a corner is met. A rule that cancels by itself finds
 * no point. */
static void run_on(const grad_row *w, double loss_scale, rng *r, const arithmetic *on)
{
    enum { POINTS = 16, RUNS = 8 };
    for (int tried = 0;; tried++) {
        point t;
        if (tried == POINTS)
            fail_msg("%s on %s: rounding alone spoils the gradient at %d points out of %d", w->text, on->name, POINTS,
                     POINTS);
        point_open(&t, w, loss_scale, r, on);
        int runs = elems(&t.in[0].type) > 10000 ? 1 : RUNS; /* so many numbers have every rounding in one */
        bool says = noise_of(t.g, t.in, t.want, on->dt == DT_F32, runs, r) <= size_off(w->text);
        if (says) compare(w, &t, on);
        point_close(&t);
        if (says) return;
    }
}

static void all_rows(const arithmetic *on)
{
    rng r = { test_seed(on->name) };
    for (size_t i = 0; i < COUNT(grad_rows); i++) run_on(&grad_rows[i], 1, &r, on);
}

static void every_rule_on_m1(void **state) { (void)state, all_rows(&m1); }
static void every_rule_on_m4(void **state) { (void)state, all_rows(&m4); }
static void every_rule_in_bf16(void **state) { (void)state, all_rows(&bf16); }

/* A result is found again in its window whatever its size: past what a product of the chip gives (32768) and past
 * what a slice with a width offset gives on m1 (4094). */
static void extremes_of_any_size(void **state)
{
    (void)state;
    static const grad_row rows[] = {
        { -60000, 60000, "x = input fp64[2, 3, 4, 6]; y1 = max_pool(x) {kernel_sizes=[2, 2], strides=[2, 2]}; y2 = pe_pool(x) {mode=\"min\", kernel_sizes=[4, 3], strides=[4, 3]}" },
        { -60000, 60000, IMG "y1 = max_pool(x) {kernel_sizes=[3, 3], strides=[2, 2], pad_type=\"same\"}; y2 = max_pool(x) {kernel_sizes=[2, 2], strides=[1, 2], ceil_mode=true}" },
        { -60000, 60000, "x = input fp64[2, 3, 8]; y1 = max_pool(x) {kernel_sizes=[4], strides=[4]}; y2 = max_pool(x) {kernel_sizes=[3], strides=[2]}" },
        { -60000, 60000, X "b = input fp64[3, 4]; y1 = reduce_max(x) {axes=[1]}; y2 = reduce_min(x); y3 = maximum(x, b); y4 = topk(x) {k=2, axis=1, return_indices=false}" },
    };
    rng r = { test_seed("large extremes") };
    for (size_t i = 0; i < COUNT(rows); i++)
        run_on(&rows[i], 1, &r, &m1), run_on(&rows[i], 1, &r, &m4), run_on(&rows[i], 1, &r, &bf16);
}

/* Admitted scores of -12000, below what a mask that is added has. */
static void masked_keys_get_nothing(void **state)
{
    (void)state;
    static const grad_row row = {
        0, 0,
        "v = input fp64[1, 2, 4]; q = const fp64[1, 3, 4] all 60; k = const fp64[1, 2, 4] all -100; b = const bool[3, 2] {1, 0, 1, 0, 1, 0}; "
        "y = scaled_dot_product_attention(q, k, v, b)"
    };
    rng r = { test_seed("masked keys") };
    run_on(&row, 1, &r, &m1), run_on(&row, 1, &r, &m4), run_on(&row, 1, &r, &bf16);
}

/* Shares of a sum whose logarithm fp16 holds to 1/32, or 1/16: they are found as exactly as those of small numbers. */
static void shares_of_large_logits(void **state)
{
    (void)state;
    static const grad_row rows[] = {
        { 20, 24, "x = input fp64[6, 10]; y = reduce_log_sum_exp(x) {axes=[1]}" },
        { -104, -100, "x = input fp64[6, 10]; y = reduce_log_sum_exp(x) {axes=[1], keep_dims=true}" },
        { 200, 204, "x = input fp64[4, 3, 5]; y = reduce_log_sum_exp(x) {axes=[0, 2]}" },
    };
    rng r = { test_seed("large logits") };
    for (size_t i = 0; i < COUNT(rows); i++) run_on(&rows[i], 1, &r, &m1), run_on(&rows[i], 1, &r, &m4);
}

/* Counts above 16384 are divided and multiplied by in two steps, since fp16 ends at 65504, below the 80000 here; the
 * scale keeps quotients normal numbers and products in range. A count's factor is in the size alone. */
static void large_counts(void **state)
{
    (void)state;
    static const struct {
        grad_row row;
        double loss_scale;
    } rows[] = {
        { { 0, 0, "x = input fp64[2, 20000]; b = input fp64[2, 1]; s = add(x, b); y = reduce_mean(s) {axes=[1]}" }, 1024 },
        { { 0, 0, "x = input fp64[2, 80000]; b = input fp64[2, 1]; s = add(x, b); y = reduce_mean(s) {axes=[1], keep_dims=true}" }, 4096 },
        { { 0, 0, "b = input fp64[2, 1]; x = const fp64[2, 80000] all 0.5; s = add(x, b); y = reduce_sum(s) {axes=[1]}" }, 0x1p-5 },
        { { 0, 0, "x = input fp64[2, 20000]; y = layer_norm(x) {axes=[1], epsilon=0.1}" }, 1 },
    };
    rng r = { test_seed("large counts") };
    for (size_t i = 0; i < COUNT(rows); i++)
        for (int k = 0; k < 2; k++) run_on(&rows[i].row, rows[i].loss_scale, &r, k ? &m4 : &m1);
}

/* What is added up on the way to a mean ends at 65504 in fp16, the mean does not; and where the numbers are far from
 * 0 the mean's own rounding is not left in what is taken from it. */
static void sums_out_of_range(void **state)
{
    (void)state;
    static const struct {
        grad_row row;
        double loss_scale;
    } rows[] = {
        { { 98, 102, "x = input fp64[1, 768, 1, 2]; y = layer_norm(x) {axes=[1], epsilon=0.1}" }, 1 },
        /* a gradient that does not add up to 0, which is what an error of the mean is multiplied by */
        { { 98, 102, "x = input fp64[1, 768, 1, 2]; n = layer_norm(x) {axes=[1], epsilon=0.1}; q = square(n); c = mul(q, n); y = reduce_mean(c) {axes=[1]}" }, 1024 },
        { { -102, -98, "x = input fp64[1, 2, 24, 32]; y = instance_norm(x) {epsilon=0.1}" }, 1 },
        { { -2, 2, "x = input fp64[1, 768, 1, 2]; g = input fp64[768]; y = layer_norm(x, g) {axes=[1], epsilon=0.1}" }, 1024 },
        { { 0.5, 2, "x = input fp64[1, 32, 64, 64]; y = l2_norm(x)" }, 1024 },
        { { 98, 102, "x = input fp64[1, 768, 1, 2]; y = reduce_log_sum(x) {axes=[1]}" }, 1024 },
    };
    rng r = { test_seed("sums out of range") };
    for (size_t i = 0; i < COUNT(rows); i++)
        for (int k = 0; k < 2; k++) run_on(&rows[i].row, rows[i].loss_scale, &r, k ? &m4 : &m1);
}

/* Where powers of what the forward pass gave leave fp16 although the gradient does not: it is multiplied step by
 * step. */
static void slopes_out_of_range(void **state)
{
    (void)state;
    static const struct {
        grad_row row;
        double loss_scale;
    } rows[] = {
        { { 300, 1000, X "y = softsign(x)" }, 1024 },
        { { 300, 1000, X "y1 = atan(x); n = const fp64[] {-1}; m = mul(x, n); y2 = atan(m)" }, 1024 },
        { { 400, 500, IMG "y = local_response_norm(x) {size=3, alpha=0.001}" }, 64 },
        { { 0x1p-11, 0x1p-9, IMG "y1 = l2_pool(x) {kernel_sizes=[2, 2]}; y2 = l2_pool(x) {kernel_sizes=[3, 3], strides=[2, 2], pad_type=\"same\"}" }, 1024 },
        { { 0x1p-10, 0x1p-9, X "y = reduce_l2_norm(x) {axes=[1]}" }, 1024 },
        { { 0x1p-10, 0x1p-9, X "y = inverse(x) {epsilon=0.0}" }, 0x1p-7 },
        { { 0x1p-14, 0x1p-12, X "y = rsqrt(x) {epsilon=0.0}" }, 0x1p-8 },
    };
    rng r = { test_seed("slopes out of range") };
    for (size_t i = 0; i < COUNT(rows); i++)
        for (int k = 0; k < 2; k++) run_on(&rows[i].row, rows[i].loss_scale, &r, k ? &m4 : &m1);
}

/* What a chip takes forwards it takes backwards: no operation of the gradient breaks a rule where the case itself
 * breaks none. */
static void legal_on(const char *name)
{
    rng r = { 1 };
    const chip *ch = chip_find(name);
    int legal = 0;
    for (size_t i = 0; i < COUNT(grad_rows); i++) {
        graph *g = narrow_row(grad_rows[i].text, DT_F16);
        arena mem = { 0 };
        diag d = { 0 };
        op_inst *ops;
        grad_info info = { 0 };
        val loss = grad_total(g, &r), dx[8] = { NO_VAL };
        assert_ok(grad_build(g, loss, g->inputs.at, (int)g->inputs.n, dx, &(grad_options){ .info = &info }, &d), d);
        assert_ok(graph_insts(g, &mem, &ops, &d), d);
        bool ok = true;
        for (size_t k = 1; k < g->nodes.n && ok; k++) {
            findings f = { 0 };
            assert_ok(rules_check_op(ch, &ops[k], &mem, &f, &d), d);
            for (size_t q = 0; q < f.n && ok; q++) {
                if (f.at[q].sev != SEV_ERROR) continue;
                if (k >= info.first_node)
                    fail_msg("%s on %s\n%s: %s", grad_rows[i].text, name, f.at[q].rule, f.at[q].message);
                ok = false;
            }
        }
        legal += ok;
        arena_free(&mem);
        graph_free(g);
    }
    assert_true(legal > 80); /* not because nothing was legal */
}

static void gradients_are_legal_where_the_case_is(void **state)
{
    (void)state;
    static const char *const chips[] = { "m1", "m2", "m3", "m4", "m5" };
    for (size_t i = 0; i < COUNT(chips); i++) legal_on(chips[i]);
}

/* Five axes, and a look along the second of them, depth: m1 takes that forwards, and has no broadcast along it to
 * bring the gradient back with. The passes that make a step fit the chip find another way. */
static void back_along_depth(void **state)
{
    (void)state;
#define DEEP "x = input fp64[2, 3, 2, 4, 5]; "
    static const grad_row rows[] = {
        { 0, 0, DEEP "y1 = reduce_sum(x) {axes=[1]}; y2 = reduce_mean(x) {axes=[1, 2]}; y3 = reduce_sum_square(x) {axes=[1, 3, 4], keep_dims=true}" },
        { 0, 0, DEEP "y1 = reduce_max(x) {axes=[1]}; y2 = reduce_min(x) {axes=[-4, -1], keep_dims=true}" },
        { 0, 0, DEEP "y1 = reduce_l1_norm(x) {axes=[1]}; y2 = reduce_l2_norm(x) {axes=[0, 1]}" },
        { 0.2, 3, DEEP "y = reduce_log_sum(x) {axes=[1]}" },
        { 0, 0, DEEP "y1 = reduce_log_sum_exp(x) {axes=[1]}; y2 = softmax(x) {axis=1}" },
        { 0, 0, DEEP "g = input fp64[3, 5]; b = input fp64[3, 5]; y1 = layer_norm(x, g, b) {axes=[1, 4], epsilon=0.1}; h = input fp64[5]; y2 = layer_norm(x, h) {axes=[4], epsilon=0.1}" },
    };
#undef DEEP
    rng r = { test_seed("along depth") };
    const chip *ch = chip_find("m1");
    for (size_t i = 0; i < COUNT(rows); i++) {
        point t;
        arena mem = { 0 };
        diag d = { 0 };
        op_inst *ops;
        point_open(&t, &rows[i], 1, &r, &m1);
        assert_ok(pass_run(t.g, &(pass_options){ .target = ch, .level = 1 }, NULL, &d), d);
        assert_ok(graph_insts(t.g, &mem, &ops, &d), d);
        for (size_t k = 1; k < t.g->nodes.n; k++) {
            findings f = { 0 };
            assert_ok(rules_check_op(ch, &ops[k], &mem, &f, &d), d);
            for (size_t q = 0; q < f.n; q++)
                if (f.at[q].sev == SEV_ERROR) fail_msg("%s\n%s: %s", rows[i].text, f.at[q].rule, f.at[q].message);
        }
        compare(&rows[i], &t, &m1);
        arena_free(&mem);
        point_close(&t);
    }
}

/* ---- the saturating weight gradient ---- A 1x3 convolution of two places and 18 channels whose output gradient is
 * scale * y^2, with data for which the published counts come out (the facts rows use the same): what is cut carries
 * the loss scale, and m1 cannot cut above 4094 at a width offset. */

enum { CH = 18, PLACES = 2, TAPS = 3, DATA_SEED = 3235 };

typedef struct {
    graph *g;
    grad_info info;
    tensor64 in[4];
    double x[PLACES], w[CH * TAPS], scale[1];
} sweep;

static void sweep_open(sweep *s, double in_scale, double loss_scale, grad_conv_form form)
{
    ttype xt = TTYPE(DT_F16, 1, 1, 1, PLACES), wt = TTYPE(DT_F16, CH, 1, 1, TAPS), st = TTYPE(DT_F16, 1);
    rng r = { .s = DATA_SEED };
    for (int i = 0; i < PLACES; i++) s->x[i] = in_scale / 16;
    for (int i = 0; i < CH * TAPS; i++) {
        double u = rng_unit(&r);
        s->w[i] = dtype_round(DT_F16, 9 + 18 * u * u);
    }
    s->scale[0] = loss_scale;
    s->in[0] = (tensor64){ xt, s->x }, s->in[1] = s->in[2] = (tensor64){ wt, s->w },
    s->in[3] = (tensor64){ st, s->scale };
    graph *g = s->g = graph_new("sweep", 0);
    assert_non_null(g);
    val x = graph_input(g, "x", xt), w = graph_input(g, "w", wt), w2 = graph_input(g, "w2", wt),
        scale = graph_input(g, "scale", st), dw = NO_VAL;
    const attr same[] = { AT_S(PAD_TYPE, "same") };
    const val a[] = { x, w }, b[] = { x, w2 };
    /* w2 holds the same numbers and is not differentiated by: the gradient at the output is y^2 */
    val loss = G(g, REDUCE_SUM,
                 G(g, MUL, graph_op(g, OP_CONV, a, 2, same, 1), G(g, SQUARE, graph_op(g, OP_CONV, b, 2, same, 1))));
    diag d = { 0 };
    assert_ok(
        grad_build(g, loss, &w, 1, &dw, &(grad_options){ .seed = scale, .conv_weight = form, .info = &s->info }, &d),
        d);
    graph_output(g, "dw", dw);
    assert_ok(graph_finish(g, &d), d);
}

static int infinities_on(const sweep *s, const char *chip_name)
{
    numerics num;
    arena mem = { 0 };
    assert_true(codegen_numerics(chip_find(chip_name), &num));
    program *p = cgt_compile(s->g, &(codegen_options){ .num = &num, .target = chip_name, .level = 1 });
    const void **in = cgt_inputs(p, s->g, s->in, &mem);
    void **out = cgt_outputs(p, &mem);
    cgt_run(p, in, out, false);
    int n = 0;
    for (int i = 0; i < CH * TAPS; i++) n += isinf(dtype_load(DT_F16, out[0], i)) != 0;
    program_free(p);
    arena_free(&mem);
    return n;
}

static void loss_scale_sweep(void **state)
{
    (void)state;
    static const struct {
        double in_scale, loss_scale;
        int infinities; /* published, on m1 */
    } published[] = { { 1, 256, 0 }, { 1, 384, 0 }, { 1, 512, 1 }, { 1, 768, 3 }, { 1, 1024, 8 }, { 4, 256, 36 } };
    for (size_t i = 0; i < COUNT(published); i++) {
        sweep s = { 0 };
        arena mem = { 0 };
        diag d = { 0 };
        grad_hazard *h;
        size_t n;
        sweep_open(&s, published[i].in_scale, published[i].loss_scale, GRAD_CONV_PATCHES);
        assert_int_equal(infinities_on(&s, "m1"), published[i].infinities);
        assert_int_equal(infinities_on(&s, "m2"), published[i].infinities);
        assert_int_equal(infinities_on(&s, "m5"), 0);
        /* the preflight says so before anything runs, and which scale would do */
        assert_ok(grad_preflight(s.g, &s.info, published[i].loss_scale, s.in, &mem, &h, &n, &d), d);
        assert_int_equal(n > 0, published[i].infinities > 0);
        for (size_t k = 0; k < n; k++) {
            assert_true(h[k].scales && h[k].safe_scale < published[i].loss_scale);
            if (published[i].in_scale == 1) assert_true(h[k].safe_scale >= 384);
        }
        graph_free(s.g);
        /* both other forms keep it finite */
        for (int form = GRAD_CONV_INPUT_PATCHES; form <= GRAD_CONV_NO_WIDTH_OFFSET; form++) {
            sweep_open(&s, published[i].in_scale, published[i].loss_scale, (grad_conv_form)form);
            assert_int_equal(infinities_on(&s, "m1"), 0);
            graph_free(s.g);
        }
        arena_free(&mem);
    }
}

/* The scale that is called safe is: on the chip, with its roundings, and not only where they are left out. A
 * hundredth more is not. */
static void the_safe_scale_is_safe(void **state)
{
    (void)state;
    rng r = { test_seed("safe scales") };
    int named = 0;
    for (int i = 0; i < 60; i++) {
        rng same = { rng_next(&r) };
        double safe = INFINITY;
        for (int k = 0; k < 3; k++) {
            sweep s = { 0 };
            arena mem = { 0 };
            diag d = { 0 };
            grad_hazard *h;
            size_t n;
            rng data = same;
            double scale = dtype_round(DT_F16, k == 0 ? 1024 : k == 1 ? safe : 1.02 * safe);
            sweep_open(&s, 1, scale, GRAD_CONV_PATCHES);
            for (int q = 0; q < CH * TAPS; q++) s.w[q] = dtype_round(DT_F16, rng_range(&data, 9, 27));
            for (int q = 0; q < PLACES; q++) s.x[q] = dtype_round(DT_F16, rng_range(&data, 0.03, 0.1));
            assert_ok(grad_preflight(s.g, &s.info, scale, s.in, &mem, &h, &n, &d), d);
            for (size_t q = 0; q < n && k == 0; q++) safe = fmin(safe, h[q].safe_scale);
            if (k && (infinities_on(&s, "m1") > 0) != (k == 2))
                fail_msg("a loss scale of %g, where up to %g is safe", scale, safe);
            arena_free(&mem);
            graph_free(s.g);
            if (safe == INFINITY) break;
            named += k == 0;
        }
    }
    assert_true(named > 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_rule_on_m1),
                                        cmocka_unit_test(every_rule_on_m4),
                                        cmocka_unit_test(every_rule_in_bf16),
                                        cmocka_unit_test(extremes_of_any_size),
                                        cmocka_unit_test(masked_keys_get_nothing),
                                        cmocka_unit_test(shares_of_large_logits),
                                        cmocka_unit_test(large_counts),
                                        cmocka_unit_test(slopes_out_of_range),
                                        cmocka_unit_test(sums_out_of_range),
                                        cmocka_unit_test(gradients_are_legal_where_the_case_is),
                                        cmocka_unit_test(back_along_depth),
                                        cmocka_unit_test(loss_scale_sweep),
                                        cmocka_unit_test(the_safe_scale_is_safe) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
