/* Value ranges: rows with the interval wanted, and the property that no evaluated element leaves its interval.
 * Also the view the rule tables get of a graph, which carries the ranges. */
#include <math.h>

#include "every_op.h"
#include "graph/graph.h"
#include "t.h"

static graph *read_or_fail(const char *text)
{
    graph *g;
    diag d = { 0 };
    if (graph_parse(text, strlen(text), &g, &d)) fail_msg("line %u col %u: %s\n%s", d.at.line, d.at.col, d.msg, text);
    return g;
}

/* u lies anywhere, x in [-3, 5], p in [0.5, 2], n in [-4, -1]; y is what the row defines. */
static const char before[] =
    "u = input fp16[2, 4]\nx = clip(u) {alpha=-3.0, beta=5.0}\np = clip(u) {alpha=0.5, beta=2.0}\n"
    "n = clip(u) {alpha=-4.0, beta=-1.0}\nk = input int32[3]\nb = input bool[2, 4]\n"
    "x4 = reshape(x) {shape=[1, 2, 2, 2]}\n";

static void rows(void **state)
{
    (void)state;
    const struct {
        const char *text;
        double lo, hi;
    } row[] = {
        { "y = relu(u)", 0, INFINITY },
        { "y = relu6(u)", 0, 6 },
        { "y = add(x, n)", -7, 4 },
        { "y = sub(x, n)", -2, 9 },
        { "y = mul(x, n)", -20, 12 },
        { "y = mul(x, x)", 0, 25 },
        { "y = mul(u, u)", 0, INFINITY },
        { "y = real_div(x, p)", -6, 10 },
        { "y = real_div(p, x)", -INFINITY, INFINITY },
        { "y = real_div(p, n)", -2, -0.125 },
        { "y = floor_div(x, p)", -7, 10 },
        { "y = maximum(x, n)", -3, 5 },
        { "y = minimum(x, n)", -4, -1 },
        { "y = abs(x)", 0, 5 },
        { "y = abs(n)", 1, 4 },
        { "y = square(n)", 1, 16 },
        { "y = sqrt(p)", sqrt(0.5), sqrt(2) },
        { "y = sqrt(u)", 0, INFINITY },
        { "y = rsqrt(p) {epsilon=0.0}", sqrt(0.5), sqrt(2) },
        { "y = inverse(p) {epsilon=0.0}", 0.5, 2 },
        { "y = log(p) {epsilon=0.0}", log(0.5), log(2) },
        { "y = pow(p, p)", 0.25, 4 },
        { "c = const fp16[] {2}\ny = pow(x, c)", 0, 25 },
        { "c = const fp16[] {3}\ny = pow(x, c)", -27, 125 },
        { "y = pow(x, p)", -INFINITY, INFINITY },
        { "y = sigmoid(u)", 0, 1 },
        { "y = tanh(p)", tanh(0.5), tanh(2) },
        { "y = erf(u)", -1, 1 },
        { "y = exp(n)", exp(-4), exp(-1) },
        { "y = exp2(n)", 1.0 / 16, 0.5 },
        { "y = softmax(u)", 0, 1 },
        { "y = softplus(u)", 0, INFINITY },
        { "y = softsign(u)", -1, 1 },
        { "y = sin(u)", -1, 1 },
        { "y = cos(u)", -1, 1 },
        { "y = silu(u)", -0.278464542761, INFINITY },
        { "y = silu(p)", 0.5 / (1 + exp(-0.5)), 2 / (1 + exp(-2)) },
        { "y = gelu(p)", 0.25, 2 },
        { "y = gelu(u)", -0.1701, INFINITY },
        { "y = leaky_relu(x) {alpha=0.5}", -1.5, 5 },
        { "y = leaky_relu(n) {alpha=-1.0}", 1, 4 },
        { "y = clamped_relu(x) {alpha=0.5, beta=2.0}", -1.5, 2 },
        { "y = thresholded_relu(x) {alpha=1.0}", 0, 5 },
        { "y = thresholded_relu(n) {alpha=1.0}", 0, 0 },
        { "y = threshold(x) {alpha=1.0}", 1, 5 },
        { "y = linear_activation(x) {alpha=-2.0, beta=1.0}", -9, 7 },
        { "y = elu(x)", expm1(-3), 5 },
        { "y = sigmoid_hard(x)", 0, 1 },
        { "y = scaled_tanh(u) {alpha=3.0, beta=2.0}", -3, 3 },
        { "y = sign(n)", -1, -1 },
        { "y = ceil(p)", 1, 2 },
        { "y = floor(p)", 0, 2 },
        { "y = less(x, u)", 0, 1 },
        { "y = logical_not(b)", 0, 1 },
        { "y = select(b, n, p)", -4, 2 },
        { "y = reduce_sum(x)", -24, 40 },
        { "y = reduce_sum(x) {axes=[1]}", -12, 20 },
        { "y = reduce_mean(x)", -3, 5 },
        { "y = reduce_max(x)", -3, 5 },
        { "y = reduce_sum_square(n)", 8, 128 },
        { "y = reduce_l1_norm(n) {axes=[0]}", 2, 8 },
        { "y = reduce_l2_norm(n)", sqrt(8), sqrt(128) },
        { "y = reduce_log_sum(p)", log(4), log(16) },
        { "y = reduce_log_sum_exp(x)", -3 + log(8), 5 + log(8) },
        { "y = reduce_argmax(x)", 0, 3 },
        { "y = argsort(x) {axis=0}", 0, 1 },
        { "w, y = topk(x) {k=2}", 0, 3 },
        { "y = cumsum(x) {axis=1}", -12, 20 },
        { "y = cumsum(n) {axis=1, exclusive=true}", -16, 0 },
        { "y = concat(n, p) {axis=0}", -4, 2 },
        { "y = stack(n, p) {axis=0}", -4, 2 },
        { "y = pad(p) {pad=[1, 1]}", 0, 2 },
        { "y = pad(p) {pad=[1, 1], mode=\"replicate\"}", 0.5, 2 },
        { "y = transpose(p) {perm=[1, 0]}", 0.5, 2 },
        { "y = slice_update(p, n) {begin=[0, 0], end=[2, 4]}", -4, 2 },
        { "y = fill() {shape=[3], value=2.5}", 2.5, 2.5 },
        { "y = fill() {shape=[3], value=2.5, dtype=\"int32\"}", 2, 2 },
        { "y = random_uniform() {shape=[3], low=-2.0, high=3.0}", -2, 3 },
        { "y = cast(x) {dtype=\"int8\"}", -3, 5 },
        { "y = cast(u) {dtype=\"int8\"}", -128, 127 },
        { "y = cast(u) {dtype=\"bool\"}", 0, 1 },
        { "y = cast(u) {dtype=\"fp32\"}", -INFINITY, INFINITY },
        { "y = identity(k)", -2147483648.0, 2147483647.0 },
        { "y = layer_norm(u) {axes=[1]}", -sqrt(3), sqrt(3) },
        { "y = l2_norm(p)", 0, 1 },
        { "y = instance_norm(x4)", -sqrt(3), sqrt(3) },
        { "m = const fp16[2] {1, 2}\nv = const fp16[2] {4, 1}\ny = batch_norm(x4, m, v) {epsilon=0.0}", -5, 4 },
        { "y = matmul(x, p) {transpose_y=true}", -24, 40 },
        { "y = scaled_dot_product_attention(x, x, p)", 0.5, 2 },
        { "y = einsum(p, n) {equation=\"ij,kj->ik\"}", -32, -2 },
        { "w = const fp16[2, 4] {1, -1, 0, 2, 0, 0, 0, -1}\ny = linear(x, w)", -14, 18 },
        { "w = const fp16[2, 4] {1, -1, 0, 2, 0, 0, 0, -1}\nd = const fp16[2] {1, 1}\ny = linear(x, w, d)", -13, 19 },
        { "w = const fp16[2, 4] {1, -1, 0, 2, 0, 0, 0, -1}\ny = linear(u, w)", -INFINITY, INFINITY },
        { "w = const fp16[4, 2] {1, 0, -1, 0, 0, 0, 2, -1}\ny = matmul(x, w)", -14, 18 },
        { "w = const fp16[2, 4] {1, -1, 0, 2, 0, 0, 0, -1}\ny = matmul(w, x) {transpose_y=true}", -14, 18 },
        { "w = const fp32[1, 2, 1, 1] {1, -2}\nx32 = cast(x4) {dtype=\"fp32\"}\ny = conv(x32, w)", -13, 11 },
        { "w = const fp16[1, 2, 1, 1] {1, 2}\np4 = reshape(p) {shape=[1, 2, 2, 2]}\ny = conv(p4, w)", 1.5, 6 },
        { "w = const fp16[1, 2, 2, 2] {1, 1, 1, 1, 1, 1, 1, 1}\np4 = reshape(p) {shape=[1, 2, 2, 2]}\n"
          "y = conv(p4, w) {pad_type=\"same\"}", 0, 16 },
        { "y = max_pool(x4) {kernel_sizes=[2, 2]}", -3, 5 },
        { "y = avg_pool(x4) {kernel_sizes=[2, 2]}", -3, 5 },
        { "p4 = reshape(p) {shape=[1, 2, 2, 2]}\ny = avg_pool(p4) {kernel_sizes=[2, 2], pad_type=\"same\"}", 0, 2 },
        { "y = l2_pool(x4) {kernel_sizes=[2, 2]}", 0, 10 },
        { "y = const fp16[3] {-1, 7, 2}", -1, 7 },
        { "y = const fp16[3] hex 007e003c003c", -INFINITY, INFINITY }, /* a NaN */
        { "y = const fp16[3] hex 00fe003c003c", -INFINITY, INFINITY },
        { "y = const fp16[2] hex 00fc003c", -INFINITY, 1 },
        { "y = const fp16[8] unknown", -INFINITY, INFINITY },
        { "y = const int8[8] unknown", -128, 127 },
        { "y = const int32[2] {5, 6}", 5, 6 },
        { "q = const int8[2, 2] {1, -2, 3, 4}\ns = const fp16[] {0.5}\nz = const int8[] {1}\ny = constexpr_affine_dequantize(q, s, z)", -1.5, 1.5 },
        { "q = const uint8[1] {228}\nt = const fp16[4] {-1, 2, 5, 3}\ny = constexpr_lut_to_dense(q, t) {shape=[4]}", -1, 5 },
        { "v = const fp16[1] {3}\nm = const uint8[1] {1}\ny = constexpr_sparse_to_dense(v, m) {shape=[4]}", 0, 3 },
        { "s = const fp16[] {0.5}\ny = quantize(x, s) {output_dtype=\"int8\"}", -128, 127 },
        { "y = resize_bilinear(x4) {target_size_height=5, target_size_width=5}", -3, 5 },
        { "y = read_state(x)", -INFINITY, INFINITY },
        { "y = write_state(u, x)", -3, 5 },
        { "y = opaque \"f\"(x) -> fp16[2]", -INFINITY, INFINITY },
        { "y = opaque \"f\"(x) -> bool[2]", 0, 1 },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        strbuf t = { 0 };
        sb_printf(&t, "%s%s\nreturn y\n", before, row[i].text);
        graph *g = read_or_fail(t.at);
        vrange *r = calloc(g->values.n, sizeof *r);
        assert_non_null(r);
        graph_ranges(g, r);
        vrange y = r[graph_find(g, "y").i];
        double slack = 1e-6; /* of the ends; outwards only */
        bool lo_ok = y.lo == row[i].lo || (y.lo < row[i].lo && row[i].lo - y.lo <= slack * (1 + fabs(row[i].lo)));
        bool hi_ok = y.hi == row[i].hi || (y.hi > row[i].hi && y.hi - row[i].hi <= slack * (1 + fabs(row[i].hi)));
        if (!lo_ok || !hi_ok)
            fail_msg("%s: [%.17g, %.17g], wanted [%.17g, %.17g]", row[i].text, y.lo, y.hi, row[i].lo, row[i].hi);
        free(r);
        graph_free(g);
        sb_free(&t);
    }
}

/* Weights long enough for the vector loops, against sums done one by one; every kind of fp16 number among them. */
static void long_sums(void **state)
{
    (void)state;
    rng r = { test_seed("long_sums") };
    enum { K = 37, N = 300 };
    static uint16_t w[K * N];
    for (int round = 0; round < 6; round++) {
        bool lines = round % 2, odd = round >= 4; /* odd: one infinity or NaN somewhere */
        for (int i = 0; i < K * N; i++)
            w[i] = (uint16_t)(rng_next(&r) & 0xbfff) & (uint16_t)(rng_below(&r, 4) ? 0xffff : 0x83ff);
        if (odd) w[rng_below(&r, K * N)] = round == 4 ? 0xfc00 : 0x7e01;
        graph *g = graph_new("t", 0);
        val u = graph_input(g, "u", TTYPE(DT_F16, 2, K)), x = GA(g, CLIP, VALS(u), AT_F(ALPHA, -2), AT_F(BETA, 3));
        val c = graph_const(g, "w", lines ? TTYPE(DT_F16, N, K) : TTYPE(DT_F16, K, N), w);
        val y = lines ? G(g, LINEAR, x, c) : G(g, MATMUL, x, c);
        graph_output(g, "y", y);
        diag d = { 0 };
        assert_ok(graph_finish(g, &d), d);
        double lo = INFINITY, hi = -INFINITY, least = INFINITY, most = -INFINITY;
        for (int j = 0; j < N; j++) {
            double plus = 0, minus = 0;
            for (int k = 0; k < K; k++) {
                double v = f16_to_f64(w[lines ? j * K + k : k * N + j]);
                if (v > 0) plus += v;
                else minus += v;
                least = fmin(least, v), most = fmax(most, v);
            }
            lo = fmin(lo, -2 * plus + 3 * minus), hi = fmax(hi, 3 * plus - 2 * minus);
        }
        vrange ranges[8];
        assert_true(g->values.n <= COUNT(ranges));
        graph_ranges(g, ranges);
        if (odd) assert_true(ranges[y.i].lo == -INFINITY && ranges[y.i].hi == INFINITY);
        else
            assert_true(ranges[y.i].lo <= lo && ranges[y.i].lo >= lo * (1 + 1e-8) && ranges[y.i].hi >= hi &&
                        ranges[y.i].hi <= hi * (1 + 1e-8));
        if (!odd) assert_true(ranges[c.i].lo == least && ranges[c.i].hi == most);
        graph_free(g);
    }
}

/* ---- the property ---- */

static double draw(rng *r, const value *v, int64_t i)
{
    static const double special[] = { 0, -0.0, 1, -1, 65504, -65504, 6e-8, 0.5 };
    if (v->type.dt == DT_BOOL) return (double)rng_below(r, 2);
    /* valid indices */
    if (dtype_is_int(v->type.dt)) return !strcmp(v->name, "i2") && i % 4 % 3 ? (double)rng_below(r, 4) : 0;
    if (rng_below(r, 8) == 0) return special[rng_below(r, COUNT(special))];
    return rng_normal(r) * pow(10, rng_range(r, -3, 3));
}

static void hold_or_fail(graph *g, rng *r)
{
    arena mem = { 0 };
    diag d = { 0 };
    vrange *ranges = TAKE(&mem, vrange, g->values.n);
    tensor64 *in = TAKE(&mem, tensor64, g->inputs.n), *out = TAKE(&mem, tensor64, g->outputs.n);
    assert_true(ranges && in && out);
    graph_ranges(g, ranges);
    for (size_t k = 0; k < g->inputs.n; k++) {
        const value *v = graph_value(g, g->inputs.at[k]);
        int64_t n;
        assert_true(shape_elems(&v->type.sh, &n));
        in[k].type = v->type;
        in[k].x = TAKE(&mem, double, (size_t)n);
        assert_non_null(in[k].x);
        for (int64_t i = 0; i < n; i++) in[k].x[i] = draw(r, v, i);
    }
    assert_ok(graph_eval(g, in, out, &mem, &d), d);
    for (size_t k = 0; k < g->outputs.n; k++) {
        val v = g->outputs.at[k].v;
        int64_t n;
        assert_true(shape_elems(&out[k].type.sh, &n));
        for (int64_t i = 0; i < n; i++)
            if (out[k].x[i] < ranges[v.i].lo || out[k].x[i] > ranges[v.i].hi) {
                strbuf b = { 0 };
                graph_print(g, &b);
                fail_msg("%s (%s): element %lld is %.17g, outside [%.17g, %.17g]\n%s", graph_value(g, v)->name,
                         graph_maker(g, v)->mil, (long long)i, out[k].x[i], ranges[v.i].lo, ranges[v.i].hi, b.at);
            }
    }
    arena_free(&mem);
}

static void return_everything(graph *g)
{
    for (uint32_t i = 1; i < g->values.n; i++)
        if (g->values.at[i].type.dt != DT_STRING) graph_output(g, g->values.at[i].name, (val){ i });
}

/* Every op, on operands held to several intervals. */
static void every_op_holds(void **state)
{
    (void)state;
    rng r = { test_seed("every_op_holds") };
    static const char *const held[] = { "alpha=-3.0, beta=5.0", "alpha=0.5, beta=2.0", "alpha=-4.0, beta=-1.0", "alpha=0.0, beta=1.0",
                                        "alpha=-inf, beta=inf", "alpha=0.0, beta=inf", "alpha=-2.0, beta=0.0", "alpha=1.5, beta=1.5" };
    static const struct {
        const char *name, *shape;
    } start[] = {
        { "x", "[1, 8, 4, 4]" }, { "m", "[4, 4]" }, { "boxes", "[3, 4]" }, { "cx", "[1, 2, 2, 2]" }, { "mat", "[1, 6]" }
    };
    for (int round = 0; round < 64; round++) {
        strbuf t = { 0 };
        for (size_t i = 0; i < COUNT(start); i++)
            sb_printf(&t, "%s_in = input fp16%s\n%s = clip(%s_in) {%s}\n", start[i].name, start[i].shape, start[i].name,
                      start[i].name, held[((size_t)round + i * (size_t)(round / 8)) % COUNT(held)]);
        sb_puts(&t, "ix = input int32[3]\ni2 = input int32[4, 4]\nbo = input bool[4, 4]\n"
                    "ch = const fp16[8] {0.5, 1, 2, 3, 0.1, 10, 0, 6e-08}\n"
                    "w1 = const fp16[4, 8, 1, 1] hex ");
        for (int i = 0; i < 32; i++) {
            unsigned h = f16_from_f64(rng_normal(&r));
            sb_printf(&t, "%02x%02x", h & 255, h >> 8);
        }
        sb_puts(&t, "\nwt = const fp16[8, 2, 2, 2] all -0.25\nw2 = const fp16[5, 4] all 3\n");
        for (size_t i = 0; i < COUNT(every_op); i++) sb_printf(&t, "%s\n", every_op[i]);
        sb_puts(&t, "return x\n");
        graph *g = read_or_fail(t.at);
        g->outputs.n = 0;
        return_everything(g);
        bool seen[OP_COUNT] = { false };
        for (size_t i = 1; i < g->nodes.n; i++) seen[g->nodes.at[i].op] = true;
        for (int i = 0; i < OP_COUNT; i++)
            if (!seen[i] && i != OP_OPAQUE) fail_msg("%s has no example", op_get((op_id)i)->mil);
        hold_or_fail(g, &r);
        graph_free(g);
        sb_free(&t);
    }
}

/* Chains of ops picked at random, so that intervals of every kind meet every rule. */
static void random_chains_hold(void **state)
{
    (void)state;
    rng r = { test_seed("random_chains_hold") };
    static const op_id unary[] = {
        OP_ABS,      OP_SQUARE,      OP_SQRT,
        OP_RSQRT,    OP_INVERSE,     OP_RELU,
        OP_RELU6,    OP_LEAKY_RELU,  OP_THRESHOLDED_RELU,
        OP_ELU,      OP_SIGMOID,     OP_SIGMOID_HARD,
        OP_TANH,     OP_SCALED_TANH, OP_GELU,
        OP_SILU,     OP_SOFTMAX,     OP_SOFTPLUS,
        OP_SOFTSIGN, OP_ERF,         OP_EXP,
        OP_EXP2,     OP_LOG,         OP_SIGN,
        OP_CEIL,     OP_FLOOR,       OP_ROUND,
        OP_SIN,      OP_COS,         OP_ATAN,
        OP_CUMSUM,   OP_LAYER_NORM,  OP_L2_NORM,
        OP_REVERSE,
    };
    static const op_id reductions[] = { OP_REDUCE_SUM,     OP_REDUCE_MEAN,       OP_REDUCE_MAX,
                                        OP_REDUCE_MIN,     OP_REDUCE_SUM_SQUARE, OP_REDUCE_L1_NORM,
                                        OP_REDUCE_L2_NORM, OP_REDUCE_LOG_SUM,    OP_REDUCE_LOG_SUM_EXP };
    static const op_id binary[] = { OP_ADD, OP_SUB,     OP_MUL,     OP_REAL_DIV, OP_FLOOR_DIV,
                                    OP_POW, OP_MAXIMUM, OP_MINIMUM, OP_MATMUL };
    for (int round = 0; round < 300; round++) {
        graph *g = graph_new("chain", 0);
        val v[64];
        int n = 0;
        v[n++] = graph_input(g, NULL, TTYPE(DT_F16, 4, 4));
        double w[16];
        for (int i = 0; i < 16; i++) w[i] = rng_normal(&r) * 2;
        v[n++] = graph_const_f64(g, NULL, TTYPE(DT_F16, 4, 4), w);
        v[n++] = graph_scalar(g, DT_F16, floor(rng_range(&r, -3, 4)));
        v[n++] =
            GA(g, CLIP, VALS(v[0]), AT_F(ALPHA, floor(rng_range(&r, -4, 1))), AT_F(BETA, floor(rng_range(&r, 1, 5))));
        while (n < 30) {
            val a = v[rng_below(&r, (uint64_t)n)], b = v[rng_below(&r, (uint64_t)n)];
            bool flat = graph_type(g, a)->sh.rank == 2, both = flat && graph_type(g, b)->sh.rank == 2;
            uint64_t pick = rng_below(&r, 10);
            if (pick < 5 && flat) v[n] = graph_op(g, unary[rng_below(&r, COUNT(unary))], &a, 1, NULL, 0);
            else if (pick < 6 && flat)
                v[n] = graph_op(g, reductions[rng_below(&r, COUNT(reductions))], &a, 1,
                                (const attr[]){ AT_IS(AXES, 1), AT_B(KEEP_DIMS, true) }, 2);
            else {
                op_id op = binary[rng_below(&r, COUNT(binary))];
                if (op == OP_MATMUL && (!both || graph_type(g, a)->sh.d[1] != graph_type(g, b)->sh.d[0])) continue;
                v[n] = graph_op(g, op, (const val[]){ a, b }, 2, NULL, 0);
            }
            n++;
        }
        return_everything(g);
        diag d = { 0 };
        assert_ok(graph_finish(g, &d), d);
        hold_or_fail(g, &r);
        graph_free(g);
    }
}

/* ---- the view ---- */

static const op_inst *inst_of(const graph *g, const op_inst *all, const char *name)
{
    val v = graph_find(g, name);
    assert_true(v.i != 0);
    return &all[graph_value(g, v)->node];
}

static void view(void **state)
{
    (void)state;
    graph *g = read_or_fail("x = input fp16[4, 4]\n"
                            "q = const int8[4, 4] all 3\ns = const fp16[] {0.5}\nz = const int8[] {1}\n"
                            "w = constexpr_affine_dequantize(q, s, z)\n"
                            "w2 = add(w, w)\n"
                            "a, b = split(x) {num_splits=2, axis=1}\n"
                            "y = linear(x, w) !inline\n"
                            "r = add(y, y)\n"
                            "return r, b\n");
    arena mem = { 0 };
    diag d = { 0 };
    op_inst *all;
    assert_ok(graph_insts(g, &mem, &all, &d), d);
    const op_inst *y = inst_of(g, all, "y"), *r = inst_of(g, all, "r"), *w = inst_of(g, all, "w"),
                  *s = inst_of(g, all, "a");
    assert_int_equal(y->op, OP_LINEAR);
    assert_string_equal(y->name, "y");
    assert_string_equal(y->mil, "linear");
    assert_int_equal(y->at.line, 8);
    assert_int_equal(y->n_in, 3);
    assert_int_equal(y->flags, INST_INLINE_ARG);
    assert_true(y->in[0].present && y->in[0].is_input && !y->in[0].is_const && !y->in[0].data);
    assert_int_equal(y->in[0].n_uses, 2);
    assert_true(y->in[1].is_const && !y->in[1].is_input && !y->in[1].data);
    assert_int_equal(y->in[1].from, OP_CX_AFFINE);
    assert_true(fabs(y->in[1].range.lo - 1) < 1e-6 && fabs(y->in[1].range.hi - 1) < 1e-6);
    assert_false(y->in[2].present);
    assert_int_equal(y->out[0].dt, DT_F16);
    assert_false(y->out_is_output[0]);
    assert_true(w->in[0].is_const && w->in[0].data && w->in[0].type.dt == DT_I8);
    assert_true(r->in[0].value == r->in[1].value && r->in[0].n_uses == 2);
    assert_true(r->out_is_output[0]);
    assert_int_equal(s->n_out, 2);
    assert_true(!s->out_is_output[0] && s->out_is_output[1]);
    assert_int_equal(s->out[1].sh.d[1], 2);
    assert_int_equal(s->n_attr, 2);
    /* arithmetic on constants is not a compile-time form until it is folded */
    const op_inst *w2 = inst_of(g, all, "w2");
    assert_true(w2->in[0].is_const);
    assert_int_equal(all[0].n_in, 0);
    arena_free(&mem);

    for (size_t limit = 1; limit < 6000; limit += 97) { /* out of memory anywhere: said so, nothing lost */
        arena small = { .limit = limit };
        diag e = { 0 };
        an_status st = graph_insts(g, &small, &all, &e);
        assert_true(st == AN_OK || st == AN_NOMEM);
        arena_free(&small);
    }
    graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows),
        cmocka_unit_test(long_sums),
        cmocka_unit_test(every_op_holds),
        cmocka_unit_test(random_chains_hold),
        cmocka_unit_test(view),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
