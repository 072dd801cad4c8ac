/* Gradients: every rule against central differences, one table; what has no gradient says so; options; the
 * preflight. */
#include "grad_rows.h"
#include "grad_t.h"

/* Every row that has no gradient: x must reach the loss through it, and the error must name the op. `first`: what is
 * named where the op itself is never the first to stop a gradient. */
static const struct {
    const char *op, *text, *first;
} refused[] = {
    { "opaque", X "y = opaque \"future_op\"(x) -> fp64[2]", "future_op" },
    { "floor_div", X "y = floor_div(x, x)", NULL },
    { "equal", X "y = equal(x, x)", NULL },
    { "not_equal", X "y = not_equal(x, x)", NULL },
    { "greater", X "y = greater(x, x)", NULL },
    { "greater_equal", X "y = greater_equal(x, x)", NULL },
    { "less", X "y = less(x, x)", NULL },
    { "less_equal", X "y = less_equal(x, x)", NULL },
    { "logical_not", X "c = less(x, x); y = logical_not(c)", "less" },
    { "sign", X "y = sign(x)", NULL },
    { "ceil", X "y = ceil(x)", NULL },
    { "floor", X "y = floor(x)", NULL },
    { "round", X "y = round(x)", NULL },
    { "reduce_argmax", X "y = reduce_argmax(x)", NULL },
    { "reduce_argmin", X "y = reduce_argmin(x)", NULL },
    { "fill_like", X "y = fill_like(x)", NULL },
    { "crop_resize", "x = input fp64[1, 2, 4, 4]; b = const fp64[1, 4] {0, 0, 2, 2}; y = crop_resize(x, b) {target_height=2, target_width=2}", NULL },
    { "resample", "x = input fp64[1, 2, 4, 4]; p = const fp64[1, 1, 1, 2] {0, 0}; y = resample(x, p)", NULL },
    { "affine", "x = input fp64[1, 2, 4, 4]; p = const fp64[1, 6] {1, 0, 0, 0, 1, 0}; y = affine(x, p) {output_height=2, output_width=2}", NULL },
    { "argsort", X "y = argsort(x)", NULL },
    { "topk", X "u, i = topk(x) {k=2, axis=1}; y = cast(i) {dtype=\"fp64\"}", "topk u" },
    { "cast", X "i = cast(x) {dtype=\"int32\"}; y = cast(i) {dtype=\"fp64\"}", NULL },
    { "quantize", X "s = const fp64[] {0.5}; y = quantize(x, s) {output_dtype=\"int8\"}", NULL },
    { "dequantize", "x = input fp64[]; q = const int8[2] {1, 2}; y = dequantize(q, x)", NULL },
    { "constexpr_affine_dequantize", "x = input fp64[]; q = const int8[2] {1, 2}; z = const int8[] {0}; y = constexpr_affine_dequantize(q, x, z)", NULL },
    { "constexpr_lut_to_dense", "x = input fp64[4]; i = const uint8[1] {27}; y = constexpr_lut_to_dense(i, x) {shape=[2, 2]}", NULL },
    { "constexpr_sparse_to_dense", "x = input fp64[2]; m = const uint1[2, 2] {1, 0, 0, 1}; y = constexpr_sparse_to_dense(x, m)", NULL },
    { "constexpr_blockwise_shift_scale", "x = input fp64[3, 1]; q = const int4[3, 3] all 1; y = constexpr_blockwise_shift_scale(q, x)", NULL },
    { "constexpr_sparse_blockwise_shift_scale", "x = input fp64[1, 2]; m = const uint1[2, 2] {1, 0, 0, 1}; q = const int8[2] {4, 5}; u, y = constexpr_sparse_blockwise_shift_scale(m, q, x)", NULL },
    { "write_state", X "z = const fp64[2, 3, 4] all 0.5; y = write_state(x, z)", NULL }, /* what x held is gone */
    /* beside a path that has a gradient: numbers that come back as floats without one */
    { "cast", X "i = cast(x) {dtype=\"int32\"}; f = cast(i) {dtype=\"fp64\"}; y = mul(x, f)", "cast i" },
    { "cast", X "i = cast(x) {dtype=\"int32\"}; j = add(i, i); f = cast(j) {dtype=\"fp64\"}; k = cast(f) {dtype=\"int8\"}; q = cast(k) {dtype=\"fp64\"}; y = mul(x, q)", "cast i" },
    { "reduce_argmax", X "i = reduce_argmax(x) {axis=1, keep_dims=true}; f = cast(i) {dtype=\"fp64\"}; y = mul(x, f)", "reduce_argmax i" },
    { "argsort", X "i = argsort(x); f = cast(i) {dtype=\"fp64\"}; y = mul(x, f)", "argsort i" },
    { "topk", X "u, i = topk(x) {k=2, axis=1}; f = cast(i) {dtype=\"fp64\"}; y = mul(u, f)", "topk u" },
    { "quantize", X "s = const fp64[] {0.5}; i = quantize(x, s) {output_dtype=\"int8\"}; f = dequantize(i, s); y = mul(x, f)", "quantize i" },
};

/* What chooses is no path: a condition, a mask made of one, indices. */
static const char *const choosing[] = {
    X "z = const fp64[] {0.3}; c = greater(x, z); f = cast(c) {dtype=\"fp64\"}; y = mul(x, f)",
    X "i = cast(x) {dtype=\"int32\"}; z = const int32[] {0}; c = greater(i, z); y = select(c, x, x)",
    X "i = argsort(x) {axis=1}; y = gather_along_axis(x, i) {axis=1}",
    "x = input fp64[4, 3]; r = reduce_argmax(x) {axis=0}; y = gather(x, r)",
    X "i = cast(x) {dtype=\"int32\"}; f = cast(i) {dtype=\"fp64\"}; z = fill_like(f) {value=2.0}; y = mul(x, z)",
};

static tensor64 *inputs(const graph *g, rng *r, arena *mem, double lo, double hi)
{
    tensor64 *in = TAKE(mem, tensor64, g->inputs.n + 1);
    assert_non_null(in);
    for (size_t i = 0; i < g->inputs.n; i++) {
        in[i].type = *graph_type(g, g->inputs.at[i]);
        in[i].x = spaced(mem, r, elems(&in[i].type), lo, hi);
    }
    return in;
}

static void run_row(const grad_row *w, rng *r, bool plain_sum, const grad_options *o)
{
    graph *g = grad_parse(w->text);
    arena mem = { 0 };
    val loss = grad_total(g, plain_sum ? NULL : r);
    bool plain = w->lo == 0 && w->hi == 0;
    tensor64 *in = inputs(g, r, &mem, plain ? -2 : w->lo, plain ? 2 : w->hi);
    check_gradients(g, loss, in, o, w->text);
    arena_free(&mem);
    graph_free(g);
}

/* ---- tests ---- */

static void every_rule_matches_differences(void **state)
{
    (void)state;
    rng r = { test_seed("gradient rules") };
    for (size_t i = 0; i < COUNT(grad_rows); i++)
        run_row(&grad_rows[i], &r, false, NULL), run_row(&grad_rows[i], &r, true, NULL);
}

static void every_op_is_covered(void **state)
{
    (void)state;
    bool seen[OP_COUNT] = { false }, no[OP_COUNT] = { false };
    for (size_t i = 0; i < COUNT(grad_rows); i++) {
        graph *g = grad_parse(grad_rows[i].text);
        for (size_t k = 1; k < g->nodes.n; k++) seen[g->nodes.at[k].op] = true;
        graph_free(g);
    }
    for (size_t i = 0; i < COUNT(refused); i++) {
        op_id op;
        assert_true(op_find(refused[i].op, strlen(refused[i].op), &op) || !strcmp(refused[i].op, "opaque"));
        no[strcmp(refused[i].op, "opaque") ? op : OP_OPAQUE] = true;
    }
    for (int op = 0; op < OP_COUNT; op++) {
        const op_info *o = op_get((op_id)op);
        bool none = !strcmp(o->vjp_rule, "none");
        assert_int_equal(grad_exists((op_id)op), !none);
        if (!none && !seen[op]) fail_msg("%s has the gradient rule %s and no row tests it", o->mil, o->vjp_rule);
        if (none && o->n_in && !no[op]) fail_msg("%s has no gradient and no row says so", o->mil);
    }
}

static void what_has_no_gradient_says_so(void **state)
{
    (void)state;
    rng r = { 1 };
    for (size_t i = 0; i < COUNT(refused); i++) {
        graph *g = grad_parse(refused[i].text);
        val loss = grad_total(g, &r), x = g->inputs.at[0], dx;
        size_t before = g->nodes.n;
        diag d = { 0 };
        an_status st = grad_build(g, loss, &x, 1, &dx, &(grad_options){ .zeros_when_unreached = true }, &d);
        if (st != AN_UNSUPPORTED) fail_msg("%s: status %d, %s", refused[i].op, (int)st, d.msg);
        const char *name = refused[i].first ? refused[i].first : refused[i].op;
        if (strncmp(d.msg, name, strlen(name))) fail_msg("%s: the message is \"%s\"", name, d.msg);
        assert_int_equal(g->nodes.n, before);
        assert_int_equal(g->err.st, AN_OK);
        if (!refused[i].first && !strstr(d.msg, " y ") && !strstr(d.msg, " y:") && strcmp(refused[i].op, "cast") &&
            strcmp(refused[i].op, "constexpr_sparse_blockwise_shift_scale"))
            fail_msg("%s: \"%s\" does not name the value", name, d.msg);
        graph_free(g);
    }
}

static void what_chooses_is_no_path(void **state)
{
    (void)state;
    rng r = { 1 };
    for (size_t i = 0; i < COUNT(choosing); i++) {
        graph *g = grad_parse(choosing[i]);
        val loss = grad_total(g, &r), x = g->inputs.at[0], dx;
        diag d = { 0 };
        if (grad_build(g, loss, &x, 1, &dx, NULL, &d)) fail_msg("%s: %s", choosing[i], d.msg);
        graph_free(g);
    }
}

/* Words that pick a meaning: one that is none is refused where types are inferred, with those that are; and by the
 * rule, should it ever see one. Walks every case, so an operation that gets such an attribute cannot forget to check
 * it. */
static void modes_that_are_none(void **state)
{
    (void)state;
    static const attr_id words[] = { A_MODE, A_PAD_TYPE, A_SAMPLING_MODE };
    rng r = { 1 };
    int seen = 0;
    bool scatter = false;
    for (size_t i = 0; i < COUNT(grad_rows); i++) {
        graph *g = grad_parse(grad_rows[i].text);
        for (size_t k = 1; k < g->nodes.n; k++)
            for (size_t q = 0; q < COUNT(words); q++) {
                node *n = &g->nodes.at[k];
                if (!op_attr_spec(n->op, words[q])) continue;
                ttype in[8] = { 0 }, out[8];
                attr at[OP_MAX_ATTRS];
                int n_at = 0, n_out;
                diag d = { 0 };
                for (int j = 0; j < n->n_attr; j++)
                    if (n->attrs[j].id != words[q]) at[n_at++] = n->attrs[j];
                at[n_at++] = (attr){ .id = words[q], .kind = ATTR_STR, .u.s = "banana" };
                for (int j = 0; j < n->n_in; j++) in[j] = *graph_type(g, n->in[j]);
                an_status st = graph_infer(n->op, in, n->n_in, at, n_at, out, &n_out, 8, &d);
                if (st != AN_INPUT || !strstr(d.msg, "\"banana\", wanted one of"))
                    fail_msg("%s: %s \"banana\" gives %d, \"%s\"", n->mil, attr_name(words[q]), (int)st, d.msg);
                seen++, scatter = scatter || n->op == OP_SCATTER;
                graph *h = grad_parse(grad_rows[i].text);
                h->nodes.at[k].attrs = at, h->nodes.at[k].n_attr = n_at; /* behind the builder's back */
                val loss = grad_total(h, &r), dx[8] = { NO_VAL };
                if (!grad_build(h, loss, h->inputs.at, (int)h->inputs.n, dx, NULL, &d))
                    fail_msg("%s: the rule takes %s \"banana\"", n->mil, attr_name(words[q]));
                graph_free(h);
            }
        graph_free(g);
    }
    assert_true(scatter && seen > 40);
}

static void the_place_is_the_operations(void **state)
{
    (void)state;
    graph *g = graph_new("t", 0);
    g->here = (loc){ 3, 5, 40 };
    val x = graph_input(g, "x", TTYPE(DT_F64, 2)), dx;
    g->here = (loc){ 7, 1, 90 };
    val f = graph_op_named(g, "steps", OP_FLOOR, &x, 1, NULL, 0);
    g->here = (loc){ 8, 1, 99 };
    val loss = G(g, REDUCE_SUM, f);
    diag d = { 0 };
    assert_int_equal(grad_build(g, loss, &x, 1, &dx, NULL, &d), AN_UNSUPPORTED);
    assert_int_equal(d.at.line, 7);
    assert_non_null(strstr(d.msg, "floor steps"));
    graph_free(g);
}

static void bad_arguments(void **state)
{
    (void)state;
    graph *g = grad_parse(
        X
        "i = input int32[2]; z = input fp64[2]; y = relu(x); s = reduce_sum(y); one = reduce_sum(y) {keep_dims=true}; k = reduce_argmax(z)");
    val x = graph_find(g, "x"), s = graph_find(g, "s"), dx[2] = { NO_VAL, NO_VAL };
    static const struct {
        const char *loss, *wrt, *seed, *says;
    } bad[] = {
        { "y", "x", NULL, "the loss y is [2, 3, 4], wanted one element" },
        { "k", "x", NULL, "the loss k is int32" },
        { "s", "i", NULL, "i is int32" },
        { "s", "z", NULL, "z does not reach the loss s" },
        { "s", "nothing", NULL, "is not a value" },
        { "nothing", "x", NULL, "the loss is not a value" },
        { "s", "x", "z", "the seed z must be one element" },
    };
    size_t before = g->nodes.n;
    for (size_t i = 0; i < COUNT(bad); i++) {
        val loss = graph_find(g, bad[i].loss), w = graph_find(g, bad[i].wrt);
        grad_options o = { .seed = bad[i].seed ? graph_find(g, bad[i].seed) : NO_VAL };
        diag d = { 0 };
        assert_int_equal(grad_build(g, loss, &w, 1, dx, &o, &d), AN_INPUT);
        if (!strstr(d.msg, bad[i].says)) fail_msg("\"%s\" does not say \"%s\"", d.msg, bad[i].says);
        assert_int_equal(g->nodes.n, before);
    }
    static const double scales[] = { -8, (double)INFINITY, (double)-INFINITY, (double)NAN };
    for (size_t i = 0; i < COUNT(scales); i++) {
        diag d = { 0 };
        assert_int_equal(grad_build(g, s, &x, 1, dx, &(grad_options){ .loss_scale = scales[i] }, &d), AN_USAGE);
        assert_non_null(strstr(d.msg, "wanted a finite number above 0"));
        assert_int_equal(g->nodes.n, before);
    }
    /* zeros on request, and who was reached */
    bool reached[2] = { false, true };
    grad_info info = { .reached = reached };
    const val both[] = { x, graph_find(g, "z") };
    diag d = { 0 };
    double zero = 1;
    assert_ok(grad_build(g, s, both, 2, dx, &(grad_options){ .zeros_when_unreached = true, .info = &info }, &d), d);
    assert_true(reached[0] && !reached[1]);
    assert_true(graph_const_scalar(g, dx[1], &zero) && zero == 0);
    assert_int_equal(info.first_node, before);
    /* one element of any rank will do */
    val one = graph_find(g, "one");
    assert_ok(grad_build(g, one, &x, 1, dx, NULL, &d), d);
    graph_free(g);
}

static void sticky_errors_come_back(void **state)
{
    (void)state;
    graph *g = graph_new("t", 0);
    val x = graph_input(g, "x", TTYPE(DT_F64, 2)), loss = G(g, REDUCE_SUM, x), dx;
    graph_fail(g, AN_INPUT, "broken before");
    diag d = { 0 };
    assert_int_equal(grad_build(g, loss, &x, 1, &dx, NULL, &d), AN_INPUT);
    assert_string_equal(d.msg, "broken before");
    graph_free(g);
}

/* Memory may run out anywhere: OK or NOMEM, nothing else, nothing leaked. */
static void memory_runs_out_cleanly(void **state)
{
    (void)state;
    bool ok = false;
    for (size_t limit = 2000; !ok && limit < 2000000; limit += limit / 3) {
        graph *g = graph_new("t", limit);
        if (!g) continue;
        val x = graph_input(g, "x", TTYPE(DT_F64, 1, 2, 5, 5)), w = graph_input(g, "w", TTYPE(DT_F64, 3, 2, 3, 3));
        val y = G(g, CONV, x, w), p = GA(g, MAX_POOL, VALS(y), AT_IS(KERNEL_SIZES, 2, 2)), loss = G(g, REDUCE_MEAN, p),
            dx[2] = { NO_VAL, NO_VAL };
        diag d = { 0 };
        const val wrt[] = { x, w };
        an_status st = g->err.st ? g->err.st : grad_build(g, loss, wrt, 2, dx, NULL, &d);
        if (st && st != AN_NOMEM) fail_msg("limit %zu: status %d, %s", limit, (int)st, d.msg);
        ok = !st;
        graph_free(g);
    }
    assert_true(ok);
}

static void seeds_scale_the_gradient(void **state)
{
    (void)state;
    graph *g = grad_parse("x = input fp64[2]; k = input fp64[1]; q = square(x); s = reduce_sum(q)");
    val x = graph_find(g, "x"), s = graph_find(g, "s"), a, b;
    diag d = { 0 };
    assert_ok(grad_build(g, s, &x, 1, &a, &(grad_options){ .loss_scale = 1024 }, &d), d);
    assert_ok(grad_build(g, s, &x, 1, &b, &(grad_options){ .seed = graph_find(g, "k") }, &d), d);
    graph_output(g, "a", a), graph_output(g, "b", b);
    double xs[] = { 1.5, -2 }, ks[] = { 8 };
    tensor64 in[] = { { TTYPE(DT_F64, 2), xs }, { TTYPE(DT_F64, 1), ks } }, out[2];
    arena mem = { 0 };
    assert_ok(graph_eval(g, in, out, &mem, &d), d);
    for (int i = 0; i < 2; i++) {
        assert_true(out[0].x[i] == 1024 * 2 * xs[i]);
        assert_true(out[1].x[i] == 8 * 2 * xs[i]);
    }
    arena_free(&mem);
    graph_free(g);
}

/* 65536 is no fp16 number, but 65536 / 64 is: only what the mean leaves of the scale is in the graph. */
static void large_loss_scales(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double each; /* expected gradient; 0: refused */
    } cases[] = {
        { "x = input fp16[64]; s = reduce_mean(x)", 1024 },
        { "x = input fp16[1, 64, 1, 1]; m = reduce_mean(x) {axes=[1], keep_dims=true}; s = reshape(m) {shape=[1]}", 1024 },
        { "x = input fp16[64]; t = reduce_sum(x); k = const fp16[] {64}; s = real_div(t, k)", 1024 },
        { "x = input fp16[64]; t = reduce_sum(x); k = const fp16[] {0.015625}; s = mul(t, k)", 1024 },
        { "x = input fp16[64]; r = input fp16[64]; p = mul(x, r); s = reduce_sum(p)", 0 },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        graph *g = grad_parse(cases[i].text);
        val x = graph_find(g, "x"), dx = NO_VAL;
        diag d = { 0 };
        double got = 0;
        an_status st = grad_build(g, graph_find(g, "s"), &x, 1, &dx, &(grad_options){ .loss_scale = 65536 }, &d);
        assert_int_equal(st, cases[i].each == 0 ? AN_INPUT : AN_OK);
        if (st) assert_non_null(strstr(d.msg, "65536"));
        else {
            graph_output(g, "dx", dx);
            tensor64 in = { *graph_type(g, x), NULL }, out;
            arena mem = { 0 };
            in.x = TAKE(&mem, double, 64);
            assert_ok(graph_eval(g, &in, &out, &mem, &d), d);
            for (int k = 0; k < 64; k++) got = fmax(got, fabs(out.x[k] - cases[i].each));
            assert_true(got == 0);
            arena_free(&mem);
        }
        graph_free(g);
    }
}

/* A computed value may be differentiated by, together with what it is computed from. */
static void gradients_of_computed_values(void **state)
{
    (void)state;
    graph *g = grad_parse("x = input fp64[3]; h = exp(x); q = mul(h, x); s = reduce_sum(q)");
    const val wrt[] = { graph_find(g, "h"), graph_find(g, "x"), graph_find(g, "s") };
    val dx[3];
    diag d = { 0 };
    assert_ok(grad_build(g, graph_find(g, "s"), wrt, 3, dx, NULL, &d), d);
    for (int i = 0; i < 3; i++) graph_output(g, (const char *[]){ "dh", "dx", "ds" }[i], dx[i]);
    double xs[] = { 0.5, -1, 2 };
    tensor64 in = { TTYPE(DT_F64, 3), xs }, out[3];
    arena mem = { 0 };
    assert_ok(graph_eval(g, &in, out, &mem, &d), d);
    for (int i = 0; i < 3; i++) {
        assert_true(fabs(out[0].x[i] - xs[i]) < 1e-12);
        assert_true(fabs(out[1].x[i] - exp(xs[i]) * (1 + xs[i])) < 1e-12);
    }
    assert_true(out[2].x[0] == 1);
    arena_free(&mem);
    graph_free(g);
}

/* What differences cannot see: the slope at a kink, which is a choice, and at 0 where a formula would divide by it. */
#define AT4 "x = input fp64[4]; "
static const struct {
    const char *text;
    double x[4], want[4];
} points[] = {
    { AT4 "y = relu(x)", { 0, -0.0, 1, -1 }, { 0, 0, 1, 0 } },
    { AT4 "y = relu6(x)", { 0, 6, 5, 7 }, { 0, 0, 1, 0 } },
    { AT4 "y = clip(x) {alpha=-1.0, beta=1.0}", { -1, 1, -1.5, 1.5 }, { 1, 1, 0, 0 } },
    { AT4 "y = threshold(x) {alpha=0.5}", { 0.5, 0.75, 0.25, -1 }, { 0, 1, 0, 0 } },
    { AT4 "y = thresholded_relu(x) {alpha=0.5}", { 0.5, 0.75, 0.25, -1 }, { 1, 1, 0, 0 } },
    { AT4 "y = leaky_relu(x) {alpha=0.25}", { 0, 1, -1, 2 }, { 0.25, 1, 0.25, 1 } },
    { AT4 "y = elu(x) {alpha=0.25}", { 0, 1, 2, 3 }, { 0.25, 1, 1, 1 } },
    { "x = input fp64[1, 4]; a = const fp64[4] {0.25, 0.5, 2, 3}; y = prelu(x, a)", { 0, 1, 0, -1 }, { 0.25, 1, 2, 3 } },
    { AT4 "y = abs(x)", { 0, -0.0, 1, -1 }, { 0, 0, 1, -1 } },
    { AT4 "b = const fp64[4] {1, 2, 1, 2}; y = maximum(x, b)", { 1, 2, 2, 1 }, { 1, 1, 1, 0 } },
    { AT4 "b = const fp64[4] {1, 2, 1, 2}; y = minimum(x, b)", { 1, 2, 2, 1 }, { 1, 1, 0, 1 } },
    { AT4 "b = const fp64[4] {0, 0, 2, 2}; y = pow(b, x)", { 2, 1, 1, 2 }, { 0, 0, 1.3862943611198906, 2.7725887222397811 } },
    { "x = input fp64[1, 4]; y = reduce_l2_norm(x) {axes=[1]}", { 0 }, { 0 } },
    { "x = input fp64[1, 1, 2, 2]; y = l2_pool(x) {kernel_sizes=[2, 2]}", { 0 }, { 0 } },
    { "x = input fp64[1, 1, 2, 2]; p = l2_pool(x) {kernel_sizes=[2, 2]}; k = const fp64[] {1e100}; y = mul(p, k)", { 0 }, { 0 } },
    /* numbers whose powers are none */
    { AT4 "y = gelu(x)", { 1e200, -1e200, INFINITY, -INFINITY }, { 1, 0, 1, 0 } },
    { AT4 "y = gelu(x) {mode=\"TANH_APPROXIMATION\"}", { 1e200, -1e200, INFINITY, -INFINITY }, { 1, 0, 1, 0 } },
    { AT4 "y = gelu(x) {mode=\"SIGMOID_APPROXIMATION\"}", { 1e200, -1e200, INFINITY, -INFINITY }, { 1, 0, 1, 0 } },
    { AT4 "y = silu(x)", { 1e200, -1e200, INFINITY, -INFINITY }, { 1, 0, 1, 0 } },
    { AT4 "k = const fp64[] {1e300}; a = atan(x); y = mul(a, k)", { 1e200, -1e160, 0, 1 }, { 1e-100, 1e-20, 1e300, 5e299 } },
};

static void slopes_at_points(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(points); i++) {
        graph *g = grad_parse(points[i].text);
        val x = g->inputs.at[0], s = G(g, REDUCE_SUM, graph_find(g, "y")), dx = NO_VAL;
        diag d = { 0 };
        if (grad_build(g, s, &x, 1, &dx, NULL, &d)) fail_msg("%s: %s", points[i].text, d.msg);
        graph_output(g, "dx", dx);
        double xs[4];
        memcpy(xs, points[i].x, sizeof xs);
        tensor64 in = { *graph_type(g, x), xs }, out;
        arena mem = { 0 };
        assert_ok(graph_eval(g, &in, &out, &mem, &d), d);
        for (int k = 0; k < 4; k++)
            if (!(fabs(out.x[k] - points[i].want[k]) <= 0x1p-9 * fabs(points[i].want[k])))
                fail_msg("%s: the slope at %g is %g, wanted %g", points[i].text, xs[k], out.x[k], points[i].want[k]);
        arena_free(&mem);
        graph_free(g);
    }
}

/* More places than 16 bits have numbers for: each use of a row is in that row's gradient and in no other. */
static void indices_wider_than_their_type(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t rows, used[3];
    } cases[] = {
        { "x = input fp64[40000, 1]; i = const int16[3] {-1, 32767, -32768}; y = gather(x, i)", 40000, { 39999, 32767, 7232 } },
        { "x = input fp64[70000, 1]; i = const uint16[3] {65535, 4464, 4463}; y = gather(x, i)", 70000, { 65535, 4464, 4463 } },
    };
    for (size_t i = 0; i < 2 * COUNT(cases); i++) {
        graph *g = grad_parse(cases[i / 2].text);
        val x = g->inputs.at[0], s = G(g, REDUCE_SUM, graph_find(g, "y")), dx = NO_VAL;
        diag d = { 0 };
        arena mem = { 0 };
        assert_ok(grad_build(g, s, &x, 1, &dx, &(grad_options){ .scatter = i % 2 }, &d), d);
        graph_output(g, "dx", dx);
        double *xs = TAKE(&mem, double, (size_t)cases[i / 2].rows);
        assert_non_null(xs);
        tensor64 in = { *graph_type(g, x), xs }, out;
        assert_ok(graph_eval(g, &in, &out, &mem, &d), d);
        for (int64_t k = 0; k < cases[i / 2].rows; k++) {
            const int64_t *used = cases[i / 2].used;
            double want = (double)((k == used[0]) + (k == used[1]) + (k == used[2]));
            if (out.x[k] != want) fail_msg("%s: row %lld has %g", cases[i / 2].text, (long long)k, out.x[k]);
        }
        arena_free(&mem);
        graph_free(g);
    }
}

/* The slope of x^y at x = 0: 0 where y is 0, whatever way the exponent comes; 1 at 1, 0 above, infinite between. */
static void powers_of_zero(void **state)
{
    (void)state;
    static const char *const texts[] = { "x = input fp64[5]; e = const fp64[5] {0, 1, 2, 3, 0.5}; y = pow(x, e)", "x = input fp64[5]; e = input fp64[5]; y = pow(x, e)",
                                         "x = input fp64[5]; e = input fp64[5]; y = pe_elementwise(x, e) {mode=\"pow\"}" };
    double zero[5] = { 0 }, power[5] = { 0, 1, 2, 3, 0.5 };
    const double want[5] = { 0, 1, 0, 0, (double)INFINITY };
    for (size_t i = 0; i < COUNT(texts); i++) {
        graph *g = grad_parse(texts[i]);
        val loss = grad_total(g, NULL), dx;
        diag d = { 0 };
        arena mem = { 0 };
        tensor64 out[1], in[2] = { { TTYPE(DT_F64, 5), zero }, { TTYPE(DT_F64, 5), power } };
        assert_ok(grad_build(g, loss, g->inputs.at, 1, &dx, NULL, &d), d);
        graph_output(g, "dx", dx);
        assert_ok(graph_finish(g, &d), d);
        assert_ok(graph_eval(g, in, out, &mem, &d), d);
        for (int k = 0; k < 5; k++)
            if (out[0].x[k] != want[k])
                fail_msg("%s: the slope of 0^%g is %g, wanted %g", texts[i], power[k], out[0].x[k], want[k]);
        arena_free(&mem);
        graph_free(g);
    }
}

/* Equal maxima: the shares add up to the whole. */
static void ties_share(void **state)
{
    (void)state;
    static const struct {
        const char *op;
        double x; /* of every element; 0 is what padding looks like */
    } cases[] = { { "y = reduce_max(x)", 3 }, { "y = reduce_min(x)", 3 }, { "y = max_pool(x) {kernel_sizes=[4, 4], strides=[4, 4]}", 3 },
                  { "y = max_pool(x) {kernel_sizes=[3, 3], strides=[1, 1]}", 3 }, { "y = max_pool(x) {kernel_sizes=[3, 3], pad_type=\"same\"}", 0 },
                  { "y = max_pool(x) {kernel_sizes=[3, 3], strides=[2, 2], ceil_mode=true}", 0 } };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char text[200];
        snprintf(text, sizeof text, "x = input fp64[1, 1, 4, 4]; %s; s = reduce_sum(y)", cases[i].op);
        graph *g = grad_parse(text);
        val x = graph_find(g, "x"), dx;
        diag d = { 0 };
        assert_ok(grad_build(g, graph_find(g, "s"), &x, 1, &dx, NULL, &d), d);
        graph_output(g, "d", dx), graph_output(g, "y", graph_find(g, "y"));
        double xs[16];
        for (int k = 0; k < 16; k++) xs[k] = cases[i].x;
        tensor64 in = { TTYPE(DT_F64, 1, 1, 4, 4), xs }, out[2];
        arena mem = { 0 };
        assert_ok(graph_eval(g, &in, out, &mem, &d), d);
        double sum = 0, want = (double)elems(&out[1].type);
        for (int k = 0; k < 16; k++) sum += out[0].x[k];
        if (!(fabs(sum - want) < 1e-12)) fail_msg("%s: the shares add up to %g, wanted %g", cases[i].op, sum, want);
        arena_free(&mem);
        graph_free(g);
    }
}

/* Keys a mask does not admit, or adds -inf to, get nothing however low the admitted scores are, here -12000 and
 * less; a row that admits none gives nothing, and no NaN. */
static void masked_keys_get_nothing(void **state)
{
    (void)state;
    static const char *const types[] = { "fp64", "fp32", "fp16" };
    static const char *const masks[] = { "b = const bool[3, 2] {1, 0, 0, 0, 1, 0}; ",
                                         "b = const %s[3, 2] {0, -inf, -inf, -inf, 0, -inf}; ",
                                         "a = const %s[3, 2] {0, -inf, -inf, -inf, 0, -inf}; b = identity(a); " };
    for (size_t i = 0; i < COUNT(types) * COUNT(masks); i++) {
        char text[400], mask[100];
        const char *t = types[i % COUNT(types)];
        snprintf(mask, sizeof mask, masks[i / COUNT(types)], t);
        snprintf(text, sizeof text, "q = input %s[1, 3, 4]; k = input %s[1, 2, 4]; v = input %s[1, 2, 4]; %s"
                 "y = scaled_dot_product_attention(q, k, v, b); s = reduce_sum(y)", t, t, t, mask);
        graph *g = grad_parse(text);
        val dx[3] = { NO_VAL };
        diag d = { 0 };
        arena mem = { 0 };
        assert_ok(grad_build(g, graph_find(g, "s"), g->inputs.at, 3, dx, NULL, &d), d);
        for (int k = 0; k < 3; k++) graph_output(g, (const char *[]){ "dq", "dk", "dv" }[k], dx[k]);
        double q[12], kv[8];
        for (int k = 0; k < 12; k++) q[k] = 60 + k;
        for (int k = 0; k < 8; k++) kv[k] = -100 - 3 * k;
        tensor64 in[3] = { { *graph_type(g, g->inputs.at[0]), q },
                           { *graph_type(g, g->inputs.at[1]), kv },
                           { *graph_type(g, g->inputs.at[2]), kv } },
                 out[3];
        assert_ok(graph_eval(g, in, out, &mem, &d), d);
        for (int k = 0; k < 12; k++) assert_true(out[0].x[k] == 0);
        for (int k = 0; k < 8; k++) assert_true(out[1].x[k] == 0 && out[2].x[k] == (k < 4 ? 2 : 0));
        arena_free(&mem);
        graph_free(g);
    }
}

/* ---- the weight gradient of a convolution ---- */

static const char *const convs[] = {
    "x = input fp64[2, 4, 6, 7]; w = input fp64[4, 2, 3, 2]; y = conv(x, w) {groups=2, pad_type=\"same\"}",
    "x = input fp64[2, 2, 6, 7]; w = input fp64[3, 2, 3, 2]; y = conv(x, w) {strides=[2, 2], dilations=[1, 2], pad_type=\"custom\", pad=[0, 2, 1, 1]}",
    "x = input fp64[2, 2, 5, 5]; w = input fp64[3, 2, 1, 1]; y = conv(x, w)",
    "x = input fp64[1, 2, 3, 4]; w = input fp64[2, 2, 2, 3]; y = conv_transpose(x, w) {strides=[2, 1]}",
};

static int width_cuts(const graph *g, uint32_t from)
{
    int n = 0;
    for (size_t i = from; i < g->nodes.n; i++) {
        const node *s = &g->nodes.at[i];
        if (s->op != OP_SLICE_BY_SIZE && s->op != OP_SLICE_BY_INDEX) continue;
        int64_t begin[MAX_RANK];
        int rank = graph_type(g, s->in[0])->sh.rank;
        assert_true(attr_list(s->op, s->attrs, s->n_attr, A_BEGIN, rank, begin));
        n += begin[rank - 1] != 0;
    }
    return n;
}

static void conv_weight_forms_agree(void **state)
{
    (void)state;
    rng r = { test_seed("weight gradient forms") };
    for (size_t i = 0; i < COUNT(convs); i++)
        for (int form = GRAD_CONV_PATCHES; form <= GRAD_CONV_NO_WIDTH_OFFSET; form++) {
            grad_info info = { 0 };
            run_row(&(grad_row){ 0, 0, convs[i] }, &r, false,
                    &(grad_options){ .conv_weight = (grad_conv_form)form, .info = &info });
            graph *g = grad_parse(convs[i]);
            val loss = grad_total(g, &r), w = graph_find(g, "w"), dw;
            diag d = { 0 };
            assert_ok(grad_build(g, loss, &w, 1, &dw,
                                 &(grad_options){ .conv_weight = (grad_conv_form)form, .info = &info }, &d),
                      d);
            bool pointwise = i == 2;
            assert_int_equal(width_cuts(g, info.first_node) > 0, form != GRAD_CONV_NO_WIDTH_OFFSET && !pointwise);
            graph_free(g);
        }
}

/* ---- preflight ---- */

static graph *typed_conv(dtype t, grad_conv_form form, double loss_scale, grad_info *info)
{
    graph *g = graph_new("t", 0);
    val x = graph_input(g, "x", TTYPE(t, 1, 1, 1, 6)), w = graph_input(g, "w", TTYPE(t, 2, 1, 1, 3)), dw;
    val loss = G(g, REDUCE_SUM, G(g, SQUARE, G(g, CONV, x, w)));
    diag d = { 0 };
    assert_ok(grad_build(g, loss, &w, 1, &dw,
                         &(grad_options){ .conv_weight = form, .loss_scale = loss_scale, .info = info }, &d),
              d);
    graph_output(g, "dw", dw);
    assert_ok(graph_finish(g, &d), d);
    return g;
}

static graph *small_conv(grad_conv_form form, double loss_scale, grad_info *info)
{
    return typed_conv(DT_F16, form, loss_scale, info);
}

static size_t preflight(const graph *g, const grad_info *info, double scale, const tensor64 *in, arena *mem,
                        grad_hazard **h)
{
    size_t n;
    diag d = { 0 };
    assert_ok(grad_preflight(g, info, scale, in, mem, h, &n, &d), d);
    return n;
}

static void preflight_names_the_safe_scale(void **state)
{
    (void)state;
    double xs[] = { 1, 2, 3, 4, 5, 6 }, ws[] = { 1, 1, 1, 0.5, 0.25, 0 };
    tensor64 in[] = { { TTYPE(DT_F16, 1, 1, 1, 6), xs }, { TTYPE(DT_F16, 2, 1, 1, 3), ws } };
    arena mem = { 0 };
    grad_hazard *h;
    grad_info info = { 0 };
    graph *g = small_conv(GRAD_CONV_PATCHES, 1024, &info);
    /* nothing is known about inputs: every cut with an offset is named, without a number */
    size_t n = preflight(g, &info, 1024, NULL, &mem, &h);
    assert_int_equal(n, width_cuts(g, 1));
    assert_true(n > 0 && isinf(h[0].largest) && h[0].scales && h[0].safe_scale == 0);
    /* with a sample: the gradient at the output is 2 y * scale, at most 2 * 15 * 1024 */
    n = preflight(g, &info, 1024, in, &mem, &h);
    assert_true(n > 0 && h[0].scales);
    assert_true(h[0].largest == 2 * 15 * 1024.0);
    double safe = h[0].safe_scale;
    /* less what a chip's roundings may add */
    assert_true(safe < GRAD_WIDTH_LIMIT / 30 && safe > 0.99 * GRAD_WIDTH_LIMIT / 30);
    assert_non_null(graph_find(g, h[0].name).i ? h[0].name : NULL);
    for (size_t i = 0; i < n; i++) assert_int_equal(g->nodes.at[h[i].of].op, OP_CONV);
    /* numbers of every input that reaches a slice, and of no other */
    diag d = { 0 };
    double *kept = in[1].x;
    in[1].x = NULL;
    assert_int_equal(grad_preflight(g, &info, 1024, in, &mem, &h, &n, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "there is no sample of the input w"));
    in[1].x = kept;
    graph_free(g);
    /* at the safe scale it is quiet, a little above it is not */
    double used = floor(safe * 8) / 8; /* the next fp16 below: 136.46 itself is none, and would be 136.5 */
    g = small_conv(GRAD_CONV_PATCHES, used, &info);
    assert_true(graph_const_at(graph_const_of(g, info.seed[0]), graph_type(g, info.seed[0]), 0) == used && used < safe);
    assert_int_equal(preflight(g, &info, used, in, &mem, &h), 0);
    graph_free(g);
    g = small_conv(GRAD_CONV_PATCHES, safe * 1.01, &info);
    assert_true(preflight(g, &info, safe * 1.01, in, &mem, &h) > 0);
    graph_free(g);
    /* cuts of the input carry no loss scale; without width offsets there is nothing to name */
    g = small_conv(GRAD_CONV_INPUT_PATCHES, 32768, &info);
    assert_int_equal(preflight(g, &info, 32768, in, &mem, &h), 0);
    xs[5] = 5000;
    n = preflight(g, &info, 32768, in, &mem, &h);
    assert_true(n > 0 && !h[0].scales && isinf(h[0].safe_scale) && h[0].largest == 5000);
    graph_free(g);
    g = small_conv(GRAD_CONV_NO_WIDTH_OFFSET, 32768, &info);
    assert_int_equal(preflight(g, &info, 32768, NULL, &mem, &h), 0);
    graph_free(g);
    arena_free(&mem);
}

/* A chip computes in fp16 whatever the type says: the same slices, numbers and scales. */
static void preflight_of_other_types(void **state)
{
    (void)state;
    static const dtype types[] = { DT_F16, DT_F32, DT_F64 };
    double xs[] = { 1, 2, 3, 4, 5, 6 }, ws[] = { 1, 1, 1, 0.5, 0.25, 0 };
    for (size_t i = 0; i < COUNT(types); i++) {
        tensor64 in[] = { { TTYPE(types[i], 1, 1, 1, 6), xs }, { TTYPE(types[i], 2, 1, 1, 3), ws } };
        arena mem = { 0 };
        grad_hazard *h;
        grad_info info = { 0 };
        graph *g = typed_conv(types[i], GRAD_CONV_PATCHES, 1024, &info);
        assert_int_equal(preflight(g, &info, 1024, NULL, &mem, &h), width_cuts(g, 1));
        assert_true(preflight(g, &info, 1024, in, &mem, &h) > 0);
        assert_true(h[0].scales && h[0].largest == 2 * 15 * 1024.0 && h[0].safe_scale < GRAD_WIDTH_LIMIT / 30 &&
                    h[0].safe_scale > 0.99 * GRAD_WIDTH_LIMIT / 30);
        arena_free(&mem);
        graph_free(g);
    }
}

/* Which operations read their operand at an offset of the width, and how large it can be. */
static void preflight_knows_width_offsets(void **state)
{
    (void)state;
#define WIDE "x = input fp16[1, 2, 4, 8]; "
    static const struct {
        const char *text;
        double largest; /* 0: nothing is named */
    } cases[] = {
        { WIDE "y = slice_by_size(x) {begin=[0, 0, 0, 1], size=[1, 2, 4, 2]}", INFINITY },
        { WIDE "y = slice_by_size(x) {begin=[0, 1, 1, 0], size=[1, 1, 3, 2]}", 0 },
        { WIDE "y = slice_by_index(x) {begin=[0, 0, 0, 2], end=[1, 2, 4, 8]}", INFINITY },
        { WIDE "y = slice_by_index(x) {begin=[0, 1, 2, 0], end=[1, 2, 4, 8]}", 0 },
        { WIDE "y = slice_by_index(x) {begin=[0, 0, 0, 2], end=[1, 2, 4, 8], begin_mask=[false, false, false, true]}", 0 },
        { WIDE "y = slice_by_index(x) {begin=[0, 0, 0, 0], end=[1, 2, 4, 0], stride=[1, 1, 1, -1], begin_mask=[true, true, true, true], end_mask=[true, true, true, true]}", INFINITY },
        { "x = input fp16[1, 2, 4, 1]; y = slice_by_index(x) {begin=[0, 0, 0, 0], end=[1, 2, 4, 0], stride=[1, 1, 1, -1], begin_mask=[true, true, true, true], end_mask=[true, true, true, true]}", 0 },
        { WIDE "y = crop(x) {crop_height=[0, 1], crop_width=[1, 0]}", INFINITY },
        { WIDE "y = crop(x) {crop_height=[1, 1], crop_width=[0, 1]}", 0 },
        { WIDE "y, z = split(x) {num_splits=2, axis=-1}", INFINITY },
        { WIDE "y, z = split(x) {num_splits=2, axis=2}", 0 },
        { WIDE "y = split(x) {num_splits=1, axis=3}", 0 },
        { "x = input int32[8]; y = slice_by_size(x) {begin=[1], size=[2]}", 0 },
        { WIDE "k = const fp16[4] {1, 2, 9000, 4}; y = slice_by_size(k) {begin=[1], size=[2]}", 0 },
        { WIDE "c = clip(x) {alpha=-5000.0, beta=10.0}; y = slice_by_size(c) {begin=[0, 0, 0, 1], size=[1, 2, 4, 2]}", 5000 },
        { WIDE "c = clip(x) {alpha=-4094.0, beta=4094.0}; y = slice_by_size(c) {begin=[0, 0, 0, 1], size=[1, 2, 4, 2]}", 0 },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        graph *g = grad_parse(cases[i].text);
        arena mem = { 0 };
        grad_hazard *h;
        size_t n = preflight(g, NULL, 1, NULL, &mem, &h);
        if (n != (cases[i].largest != 0)) fail_msg("%s: %zu are named", cases[i].text, n);
        if (n && h[0].largest != cases[i].largest) fail_msg("%s: it can be %g", cases[i].text, h[0].largest);
        if (n) assert_true(!h[0].scales && isinf(h[0].safe_scale));
        arena_free(&mem);
        graph_free(g);
    }
    /* a sample that is no number may be anything */
    graph *g = grad_parse(WIDE "y = slice_by_size(x) {begin=[0, 0, 0, 1], size=[1, 2, 4, 2]}");
    arena mem = { 0 };
    grad_hazard *h;
    double x[64] = { 1, (double)NAN, 2 };
    tensor64 in = { *graph_type(g, g->inputs.at[0]), x };
    assert_int_equal(preflight(g, NULL, 1, &in, &mem, &h), 1);
    assert_true(isinf(h[0].largest));
    x[1] = 4094;
    assert_int_equal(preflight(g, NULL, 1, &in, &mem, &h), 0);
    graph_free(g);
    /* what does not reach a slice needs none */
    g = grad_parse(WIDE "z = input fp16[2]; q = relu(z); y = slice_by_size(x) {begin=[0, 0, 0, 1], size=[1, 2, 4, 2]}");
    tensor64 both[] = { in, { *graph_type(g, g->inputs.at[1]), NULL } };
    assert_int_equal(preflight(g, NULL, 1, both, &mem, &h), 0);
    arena_free(&mem);
    graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rule_matches_differences), cmocka_unit_test(every_op_is_covered),
        cmocka_unit_test(what_has_no_gradient_says_so),   cmocka_unit_test(what_chooses_is_no_path), cmocka_unit_test(the_place_is_the_operations),
        cmocka_unit_test(bad_arguments),                  cmocka_unit_test(sticky_errors_come_back),
        cmocka_unit_test(memory_runs_out_cleanly),        cmocka_unit_test(seeds_scale_the_gradient),
        cmocka_unit_test(large_loss_scales),              cmocka_unit_test(modes_that_are_none),
        cmocka_unit_test(gradients_of_computed_values),   cmocka_unit_test(slopes_at_points), cmocka_unit_test(indices_wider_than_their_type), cmocka_unit_test(powers_of_zero), cmocka_unit_test(ties_share), cmocka_unit_test(masked_keys_get_nothing),
        cmocka_unit_test(conv_weight_forms_agree),        cmocka_unit_test(preflight_names_the_safe_scale),
        cmocka_unit_test(preflight_of_other_types), cmocka_unit_test(preflight_knows_width_offsets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
