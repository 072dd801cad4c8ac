/* prop_lower.c: a graph written as MIL, printed, parsed and read back computes the same numbers, in both dialects, with
 * constants in the text and with constants in a weight file; printing what was parsed gives the same bytes.
 * Shown for one node of every row of the op table, and for random graphs. */
#include <math.h>
#include <unistd.h>

#include "lower_t.h"

/* ---- the property ---- */

typedef struct {
    char dir[40];
} place;

static void fill_inputs(const graph *g, rng *r, tensor64 *in, arena *mem)
{
    for (size_t i = 0; i < g->inputs.n; i++) {
        in[i].type = *graph_type(g, g->inputs.at[i]);
        int64_t n;
        assert_true(shape_elems(&in[i].type.sh, &n));
        in[i].x = TAKE(mem, double, (size_t)n);
        for (int64_t k = 0; k < n; k++)
            in[i].x[k] = dtype_is_float(in[i].type.dt) ? dtype_round(in[i].type.dt, rng_range(r, -2, 2))
                                                       : (double)rng_below(r, 2);
    }
}

static void same_numbers(const graph *a, const graph *b, uint64_t seed, const char *what)
{
    arena mem = { 0 };
    rng r = { seed };
    assert_int_equal(a->inputs.n, b->inputs.n);
    assert_int_equal(a->outputs.n, b->outputs.n);
    tensor64 *in = TAKE(&mem, tensor64, a->inputs.n), *ya = TAKE(&mem, tensor64, a->outputs.n),
             *yb = TAKE(&mem, tensor64, b->outputs.n);
    fill_inputs(a, &r, in, &mem);
    diag d = { 0 };
    assert_ok(graph_eval(a, in, ya, &mem, &d), d);
    assert_ok(graph_eval(b, in, yb, &mem, &d), d);
    for (size_t i = 0; i < a->outputs.n; i++) {
        assert_string_equal(a->outputs.at[i].name, b->outputs.at[i].name);
        assert_true(ya[i].type.dt == yb[i].type.dt && shape_eq(&ya[i].type.sh, &yb[i].type.sh));
        int64_t n;
        assert_true(shape_elems(&ya[i].type.sh, &n));
        for (int64_t k = 0; k < n; k++)
            if (ya[i].x[k] != yb[i].x[k] && !(isnan(ya[i].x[k]) && isnan(yb[i].x[k])))
                fail_msg("%s: output %s[%lld]: %.17g was %.17g", what, a->outputs.at[i].name, (long long)k, yb[i].x[k],
                         ya[i].x[k]);
    }
    arena_free(&mem);
}

static void keeps_meaning(const graph *g, const place *at, mil_dialect dialect, bool in_file, uint64_t seed,
                          const char *what)
{
    lower_weights *files;
    graph *back = lower_and_back(g, at->dir, dialect, in_file, what, &files);
    same_numbers(g, back, seed, what);
    graph_free(back);
    lower_weights_close(files);
}

static void keeps_meaning_everywhere(const graph *g, const place *at, uint64_t seed, const char *what)
{
    for (int k = 0; k < 4; k++) keeps_meaning(g, at, k & 1 ? DIALECT_IOS16 : DIALECT_IOS18, k & 2, seed, what);
}

/* ---- one node of every row ---- */

#define X "x = input fp16[1, 4, 6, 8]\n"
static const struct {
    op_id op;
    const char *text;
} rows[] = {
    { OP_CONV, X "w = const fp16[6, 2, 3, 3] all 0.25\nb = const fp16[6] {1, 2, 3, 4, 5, 6}\ny = conv(x, w, b) {strides=[2, 1], pad_type=\"custom\", pad=[1, 0, 2, 1], groups=2}" },
    { OP_CONV, X "w = const fp16[3, 4, 1, 1] all 0.25\ny = conv(x, w)" },
    { OP_CONV_TRANSPOSE, X "w = const fp16[4, 2, 3, 3] all 0.5\ny = conv_transpose(x, w) {strides=[2, 2]}" },
    { OP_NE_CONV, X "w = const fp16[3, 4, 1, 1] all 0.25\ny = ne_conv(x, w)" },
    { OP_LINEAR, X "w = const fp16[3, 8] all 0.5\nb = const fp16[3] {1, 2, 3}\ny = linear(x, w, b)" },
    { OP_MATMUL, X "z = input fp16[1, 4, 5, 8]\ny = matmul(x, z) {transpose_y=true}" },
    { OP_NE_MATMUL, X "z = input fp16[1, 4, 8, 2]\ny = ne_matmul(x, z)" },
    { OP_EINSUM, X "z = input fp16[1, 8, 6, 3]\ny = einsum(x, z) {equation=\"nchw,nwhu->nchu\"}" },
    { OP_SDPA, X "k = input fp16[1, 4, 5, 8]\nv = input fp16[1, 4, 5, 3]\nm = input fp16[1, 1, 6, 5]\ny = scaled_dot_product_attention(x, k, v, m)" },
    { OP_AVG_POOL, X "y = avg_pool(x) {kernel_sizes=[2, 3], strides=[2, 1], pad_type=\"custom\", pad=[0, 0, 1, 1], exclude_padding_from_average=true}" },
    { OP_MAX_POOL, X "y = max_pool(x) {kernel_sizes=[2, 2]}" },
    { OP_L2_POOL, X "y = l2_pool(x) {kernel_sizes=[2, 2], strides=[2, 2]}" },
    { OP_NE_POOL, X "y = ne_pool(x) {mode=\"max\", kernel_sizes=[2, 2]}" },
    { OP_PE_POOL, X "y = pe_pool(x) {kernel_sizes=[2, 2]}" },
    { OP_PE_ELEMENTWISE, X "z = input fp16[1, 4, 1, 8]\ny = pe_elementwise(x, z) {mode=\"mul\"}" },
    { OP_BATCH_NORM, X "m = const fp16[4] {0, 1, 2, 3}\nv = const fp16[4] {1, 2, 3, 4}\ng = const fp16[4] {1, 0.5, 1, 1}\nb = const fp16[4] {0, 0, 1, 1}\ny = batch_norm(x, m, v, g, b) {epsilon=0.0625}" },
    { OP_LAYER_NORM, X "g = const fp16[8] all 0.5\ny = layer_norm(x, g) {axes=[3], epsilon=0.0625}" },
    { OP_INSTANCE_NORM, X "y = instance_norm(x) {epsilon=0.0625}" },
    { OP_L2_NORM, X "y = l2_norm(x) {epsilon=0.0625}" },
    { OP_LOCAL_RESPONSE_NORM, X "y = local_response_norm(x) {size=3, alpha=0.5, beta=0.75, k=2}" },
    { OP_ADD, X "z = input fp16[4, 1, 8]\ny = add(x, z)" },
    { OP_SUB, X "c = const fp16[] {0.5}\ny = sub(c, x)" },
    { OP_MUL, X "y = mul(x, x)" },
    { OP_REAL_DIV, X "y = real_div(x, x)" },
    { OP_FLOOR_DIV, X "c = const fp16[] {0.5}\ny = floor_div(x, c)" },
    { OP_POW, X "c = const fp16[] {2}\ny = pow(x, c)" },
    { OP_MAXIMUM, X "c = const fp16[1] {0.5}\ny = maximum(x, c)" },
    { OP_MINIMUM, X "c = const fp16[1] {0.5}\ny = minimum(x, c)" },
    { OP_ABS, X "y = abs(x)" },
    { OP_SQUARE, X "y = square(x)" },
    { OP_SQRT, X "y = sqrt(x)" },
    { OP_RSQRT, X "y = rsqrt(x) {epsilon=4}" },
    { OP_RSQRT, X "y = rsqrt(x)" },
    /* 2^-27: fp16 has no such number, the text says fp32 */
    { OP_RSQRT, X "y = rsqrt(x) {epsilon=7.450580596923828e-09}" },
    { OP_INVERSE, X "y = inverse(x) {epsilon=0.5}" },
    { OP_CUMSUM, X "y = cumsum(x) {axis=2, exclusive=true, reverse=true}" },
    { OP_EQUAL, X "y = equal(x, x)" },
    { OP_NOT_EQUAL, X "y = not_equal(x, x)" },
    { OP_GREATER, X "c = const fp16[] {0}\ny = greater(x, c)" },
    { OP_GREATER_EQUAL, X "c = const fp16[] {0}\ny = greater_equal(x, c)" },
    { OP_LESS, X "c = const fp16[] {0}\ny = less(x, c)" },
    { OP_LESS_EQUAL, X "c = const fp16[] {0}\ny = less_equal(x, c)" },
    { OP_LOGICAL_NOT, "x = input bool[4]\ny = logical_not(x)" },
    { OP_SELECT, X "c = input bool[1, 4, 6, 8]\nz = const fp16[1, 4, 6, 8] all 3\ny = select(c, x, z)" },
    { OP_RELU, X "y = relu(x)" },
    { OP_RELU6, X "y = relu6(x)" },
    { OP_LEAKY_RELU, X "y = leaky_relu(x) {alpha=0.25}" },
    { OP_PRELU, X "a = const fp16[4] {1, 2, 3, 4}\ny = prelu(x, a)" },
    { OP_CLAMPED_RELU, X "y = clamped_relu(x) {alpha=0.5, beta=1}" },
    { OP_THRESHOLDED_RELU, X "y = thresholded_relu(x) {alpha=0.5}" },
    { OP_THRESHOLD, X "y = threshold(x) {alpha=0.5}" },
    { OP_CLIP, X "y = clip(x) {alpha=-0.5, beta=1}" },
    { OP_LINEAR_ACTIVATION, X "y = linear_activation(x) {alpha=2, beta=-1}" },
    { OP_ELU, X "y = elu(x) {alpha=2}" },
    { OP_SIGMOID, X "y = sigmoid(x)" },
    { OP_SIGMOID_HARD, X "y = sigmoid_hard(x) {alpha=0.25, beta=0.5}" },
    { OP_TANH, X "y = tanh(x)" },
    { OP_SCALED_TANH, X "y = scaled_tanh(x) {alpha=2, beta=0.5}" },
    { OP_GELU, X "y = gelu(x) {mode=\"TANH_APPROXIMATION\"}" },
    { OP_GELU, X "y = gelu(x)" },
    { OP_SILU, X "y = silu(x)" },
    { OP_SOFTMAX, X "y = softmax(x) {axis=1}" },
    { OP_SOFTPLUS, X "y = softplus(x)" },
    { OP_SOFTPLUS_PARAMETRIC, X "a = const fp16[4] {1, 2, 3, 4}\nb = const fp16[4] {1, 1, 2, 2}\ny = softplus_parametric(x, a, b)" },
    { OP_SOFTSIGN, X "y = softsign(x)" },
    { OP_ERF, X "y = erf(x)" },
    { OP_EXP, X "y = exp(x)" },
    { OP_EXP2, X "y = exp2(x)" },
    { OP_LOG, X "y = log(x)" },
    { OP_LOG, X "y = log(x) {epsilon=4}" },
    { OP_SIGN, X "y = sign(x)" },
    { OP_CEIL, X "y = ceil(x)" },
    { OP_FLOOR, X "y = floor(x)" },
    { OP_ROUND, X "y = round(x)" },
    { OP_SIN, X "y = sin(x)" },
    { OP_COS, X "y = cos(x)" },
    { OP_ATAN, X "y = atan(x)" },
    { OP_REDUCE_SUM, X "y = reduce_sum(x) {axes=[1, -1], keep_dims=true}" },
    { OP_REDUCE_SUM, X "y = reduce_sum(x)" },
    { OP_REDUCE_MEAN, X "y = reduce_mean(x) {axes=[2]}" },
    { OP_REDUCE_MAX, X "y = reduce_max(x) {axes=[2]}" },
    { OP_REDUCE_MIN, X "y = reduce_min(x) {axes=[2]}" },
    { OP_REDUCE_SUM_SQUARE, X "y = reduce_sum_square(x) {axes=[2]}" },
    { OP_REDUCE_L1_NORM, X "y = reduce_l1_norm(x) {axes=[2]}" },
    { OP_REDUCE_L2_NORM, X "y = reduce_l2_norm(x) {axes=[2]}" },
    { OP_REDUCE_LOG_SUM, X "y = reduce_log_sum(x) {axes=[2]}" },
    { OP_REDUCE_LOG_SUM_EXP, X "y = reduce_log_sum_exp(x) {axes=[2]}" },
    { OP_REDUCE_ARGMAX, X "y = reduce_argmax(x) {axis=1, keep_dims=true}" },
    { OP_REDUCE_ARGMIN, X "y = reduce_argmin(x)" },
    { OP_IDENTITY, X "y = identity(x)" },
    { OP_RESHAPE, X "y = reshape(x) {shape=[2, -1, 8]}" },
    { OP_RESHAPE_LIKE, X "a = input fp16[4, 3]\nb = input fp16[1, 16]\ny = reshape_like(x, a, b) {begins=[0, 1], ends=[2, 2], end_masks=[false, true]}" },
    { OP_EXPAND_DIMS, X "y = expand_dims(x) {axes=[0]}" },
    { OP_SQUEEZE, X "y = squeeze(x)" },
    { OP_SQUEEZE, X "y = squeeze(x) {axes=[0]}" },
    { OP_FLATTEN2D, X "y = flatten2d(x) {axis=2}" },
    { OP_TRANSPOSE, X "y = transpose(x) {perm=[0, 3, 1, 2]}" },
    { OP_CONCAT, X "z = input fp16[1, 4, 6, 8]\ny = concat(x, z, x) {axis=1, interleave=true}" },
    { OP_SPLIT, X "y, z, u = split(x) {split_sizes=[1, 2, 1], axis=1}\nreturn u, z, y" },
    { OP_STACK, X "y = stack(x, x) {axis=0}" },
    { OP_PAD, X "y = pad(x) {pad=[1, 2, 0, 3], constant_val=0.5}" },
    { OP_PAD, "x = input int32[4]\ny = pad(x) {pad=[1, 2], constant_val=7}" },
    { OP_PAD, X "y = pad(x) {pad=[1, 2, 0, 3], mode=\"reflect\"}" },
    { OP_SLICE_BY_SIZE, X "y = slice_by_size(x) {begin=[0, 1, 0, 2], size=[1, 2, 6, -1]}" },
    { OP_SLICE_BY_INDEX, X "y = slice_by_index(x) {begin=[0, 1, 0, 0], end=[1, 3, 0, 7], stride=[1, 1, 2, 3], end_mask=[false, false, true, false], squeeze_mask=[true, false, false, false]}" },
    { OP_SLICE_UPDATE, X "u = input fp16[1, 2, 6, 8]\ny = slice_update(x, u) {begin=[0, 1, 0, 0], end=[1, 3, 6, 8]}" },
    { OP_REVERSE, X "y = reverse(x) {axes=[1, 3]}" },
    { OP_TILE, X "y = tile(x) {reps=[1, 2, 1, 3]}" },
    { OP_GATHER, X "i = const int32[3] {3, 0, 1}\ny = gather(x, i) {axis=1}" },
    { OP_SCATTER, X "i = const int32[3] {3, 0, 1}\nu = gather(x, i) {axis=1}\ny = scatter(x, i, u) {axis=1, mode=\"update\"}" },
    { OP_GATHER_ALONG_AXIS, X "i = const int32[1, 4, 1, 8] all 3\ny = gather_along_axis(x, i) {axis=2}" },
    { OP_GATHER_ND, X "i = const int32[2, 2] {0, 3, 0, 1}\ny = gather_nd(x, i)" },
    { OP_DEPTH_TO_SPACE, X "y = depth_to_space(x) {block_size=2}" },
    { OP_SPACE_TO_DEPTH, X "y = space_to_depth(x) {block_size=2}" },
    { OP_PIXEL_SHUFFLE, X "y = pixel_shuffle(x) {upscale_factor=2}" },
    { OP_PIXEL_UNSHUFFLE, X "y = pixel_unshuffle(x) {downscale_factor=2}" },
    { OP_SPACE_TO_BATCH, X "y = space_to_batch(x) {block_shape=[2, 2], paddings=[1, 1, 0, 2]}" },
    { OP_BATCH_TO_SPACE, "x = input fp16[4, 2, 3, 3]\ny = batch_to_space(x) {block_shape=[2, 2], crops=[1, 0, 0, 1]}" },
    { OP_FILL, "y = fill() {shape=[2, 3], value=0.5}" },
    { OP_FILL, "y = fill() {shape=[2, 3], value=3, dtype=\"int32\"}" },
    { OP_FILL_LIKE, X "y = fill_like(x) {value=0.5}" },
    { OP_CROP, X "y = crop(x) {crop_height=[1, 2], crop_width=[0, 3]}" },
    { OP_RESIZE, X "y = resize(x) {shape=[3, 16], mode=\"NEAREST_NEIGHBOR\"}" },
    { OP_RESIZE_BILINEAR, X "y = resize_bilinear(x) {target_size_height=12, target_size_width=4}" },
    { OP_RESIZE_NEAREST, X "y = resize_nearest_neighbor(x) {target_size_height=12, target_size_width=4}" },
    { OP_UPSAMPLE_BILINEAR, X "y = upsample_bilinear(x) {scale_factor_height=2, scale_factor_width=1.5, align_corners=false}" },
    { OP_UPSAMPLE_NEAREST, X "y = upsample_nearest_neighbor(x) {scale_factor_height=2, scale_factor_width=2}" },
    { OP_CROP_RESIZE, X "b = const fp16[2, 4] {0, 0, 3, 3, 1, 1, 5, 7}\ni = const int32[2] {0, 0}\ny = crop_resize(x, b, i) {target_height=2, target_width=3, spatial_scale=0.5, padding_value=2}" },
    { OP_RESAMPLE, X "c = const fp16[1, 2, 2, 2] {0, 0, 1, 1, 2.5, 3, 7, 5}\ny = resample(x, c) {padding_value=1, align_corners=false}" },
    { OP_AFFINE, X "m = const fp16[1, 6] {1, 0, 0.5, 0, 1, 0}\ny = affine(x, m) {output_height=3, output_width=4}" },
    { OP_TOPK, X "y, i = topk(x) {k=3, axis=2, ascending=true}\nreturn y, i" },
    { OP_ARGSORT, X "y = argsort(x) {axis=1}" },
    { OP_RANDOM_UNIFORM, "y = random_uniform() {shape=[2, 3], low=-1, high=2, seed=7}" },
    { OP_CAST, X "y = cast(x) {dtype=\"int32\"}" },
    { OP_QUANTIZE, X "s = const fp16[4] {0.5, 0.25, 1, 2}\nz = const int8[4] {0, 1, 2, 3}\ny = quantize(x, s, z) {axis=1, output_dtype=\"int8\"}" },
    { OP_DEQUANTIZE, "x = input int8[2, 4]\ns = const fp16[] {0.5}\ny = dequantize(x, s)" },
    { OP_CX_AFFINE, X "q = const int8[3, 4, 1, 1] {1, -2, 3, 4, 5, -6, 7, 8, 9, 10, 11, -12}\ns = const fp16[3] {0.5, 0.25, 1}\nz = const int8[] {1}\nw = constexpr_affine_dequantize(q, s, z)\ny = conv(x, w)" },
    { OP_CX_LUT, X "q = const uint8[6] {16, 50, 84, 118, 152, 186}\nl = const fp16[16] {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}\nw = constexpr_lut_to_dense(q, l) {shape=[3, 4, 1, 1]}\ny = conv(x, w)" },
    { OP_CX_LUT, X "q = const uint2[3, 4, 1, 1] {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3}\nl = const fp16[1, 1, 1, 1, 4, 1] {0.5, 1, 2, 4}\nw = constexpr_lut_to_dense(q, l)\ny = conv(x, w)" },
    { OP_CX_SPARSE, X "v = const fp16[3] {7, 8, 9}\nm = const uint8[2] {13, 0}\nw = constexpr_sparse_to_dense(v, m) {shape=[3, 4, 1, 1]}\ny = conv(x, w)" },
    { OP_CX_SPARSE, X "v = const fp16[3] {7, 8, 9}\nm = const uint1[3, 4, 1, 1] {1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0}\nw = constexpr_sparse_to_dense(v, m)\ny = conv(x, w)" },
    { OP_CX_BLOCK, X "q = const int4[3, 4, 1, 1] {1, -2, 3, 4, 5, -6, 7, -8, 1, 2, 3, 4}\ns = const fp16[3, 2, 1, 1] {1, 2, 3, 4, 5, 6}\nw = constexpr_blockwise_shift_scale(q, s)\ny = conv(x, w)" },
    { OP_CX_SPARSE_BLOCK, X "m = const uint1[3, 4, 1, 1] {1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0}\nq = const int8[3] {1, 2, 3}\ns = const fp16[3, 1, 1, 1] {0.5, 1, 2}\n"
                          "mm, vv = constexpr_sparse_blockwise_shift_scale(m, q, s)\nw = constexpr_sparse_to_dense(vv, mm)\ny = conv(x, w)" },
    { OP_READ_STATE, X "r = read_state(x)\ny = exp(r)" },
    { OP_WRITE_STATE, X "z = input fp16[1, 4, 6, 8]\ny = write_state(x, z)" },
    { OP_READ_STATE, X "z = input fp16[1, 4, 6, 8]\nw = write_state(x, z)\nr = read_state(x)\ny = sub(r, w)" },
    { OP_READ_STATE, X "z = input fp16[1, 4, 6, 8]\nv = write_state(x, z)\nr = read_state(x)\ns = mul(r, v)\nw = write_state(z, s)\nt = read_state(z)\nu = write_state(x, t)\ny = sub(u, w)" },
    /* states that are used as the tensors they hold: before a write, behind it, beside a read, in it, in a list */
    { OP_READ_STATE, X "r = read_state(x)\nt = mul(r, x)\ny = sub(t, x)" },
    { OP_WRITE_STATE, X "z = input fp16[1, 4, 6, 8]\nv = write_state(x, z)\ny = sub(v, x)" },
    { OP_WRITE_STATE, X "z = input fp16[1, 4, 6, 8]\nt = mul(x, z)\nv = write_state(x, t)\nr = read_state(x)\nu = mul(r, x)\ny = sub(u, v)" },
    { OP_WRITE_STATE, X "z = input fp16[1, 4, 6, 8]\nv = write_state(x, x)\nw = write_state(x, z)\nu = concat(x, w, x, v) {axis=1}\ny = abs(u)" },
    { OP_WRITE_STATE, X "z = input fp16[1, 4, 6, 8]\nx_read = exp(z)\nv = write_state(x, x_read)\nw = write_state(z, x)\nt = sub(w, v)\ny = sub(t, z)" },
    /* what is only computed is no state */
    { OP_WRITE_STATE, X "z = input fp16[1, 4, 6, 8]\nt = exp(x)\nv = write_state(t, z)\nr = read_state(t)\ns = sub(r, v)\ny = sub(s, x)" },
};

static graph *graph_of_row(size_t i)
{
    strbuf b = { 0 };
    diag d = { 0 };
    graph *g = NULL;
    sb_printf(&b, "graph \"row\"\n%s\n%s", rows[i].text, strstr(rows[i].text, "return ") ? "" : "return y\n");
    if (graph_parse(b.at, b.n, &g, &d))
        fail_msg("%s: %u:%u: %s\n%s", op_get(rows[i].op)->mil, d.at.line, d.at.col, d.msg, b.at);
    sb_free(&b);
    return g;
}

static void every_op_keeps_its_meaning(void **state)
{
    uint64_t seed = test_seed("every_op_keeps_its_meaning");
    bool covered[OP_COUNT] = { [OP_INPUT] = true, [OP_CONST] = true, [OP_OPAQUE] = true };
    for (size_t i = 0; i < COUNT(rows); i++) {
        graph *g = graph_of_row(i);
        bool there = false;
        for (size_t k = 1; k < g->nodes.n; k++) there |= g->nodes.at[k].op == rows[i].op;
        if (!there) fail_msg("row %zu has no %s", i, op_get(rows[i].op)->mil);
        covered[rows[i].op] = true;
        keeps_meaning_everywhere(g, *state, seed + i, rows[i].text);
        graph_free(g);
    }
    for (int op = 0; op < OP_COUNT; op++)
        if (!covered[op]) fail_msg("no sample for %s", op_get((op_id)op)->mil);
}

/* ---- random graphs ---- */

static val pick(graph *g, rng *r, const val *pool, size_t n, dtype dt)
{
    for (int tries = 0; tries < 64; tries++) {
        val v = pool[rng_below(r, n)];
        if (graph_type(g, v)->dt == dt) return v;
    }
    return pool[0];
}

static val random_const(graph *g, rng *r, ttype t)
{
    double x[256];
    int64_t n;
    if (!shape_elems(&t.sh, &n) || n > 256) return graph_fill_const(g, NULL, t, rng_range(r, -1, 1));
    for (int64_t i = 0; i < n; i++) x[i] = rng_below(r, 3) ? rng_range(r, -1, 1) : (double)rng_below(r, 2);
    return graph_const_f64(g, NULL, t, x);
}

/* Everything is [1, C, H, W] with small extents, so that most pairs of ops fit each other. */
static val random_node(graph *g, rng *r, const val *pool, size_t n)
{
    static const op_id unary[] = { OP_ABS, OP_SQUARE,   OP_RELU, OP_SIGMOID, OP_TANH,  OP_GELU,    OP_SILU,
                                   OP_EXP, OP_SOFTSIGN, OP_ERF,  OP_SIN,     OP_FLOOR, OP_IDENTITY };
    static const op_id binary[] = { OP_ADD, OP_SUB, OP_MUL, OP_MAXIMUM, OP_MINIMUM };
    static const op_id reduce[] = { OP_REDUCE_SUM, OP_REDUCE_MEAN, OP_REDUCE_MAX, OP_REDUCE_MIN, OP_REDUCE_L2_NORM };
    val x = pick(g, r, pool, n, DT_F16);
    ttype t = *graph_type(g, x);
    int64_t c = t.sh.d[1], h = t.sh.d[2], w = t.sh.d[3];
    switch (rng_below(r, 14)) {
    case 0: return graph_op(g, unary[rng_below(r, COUNT(unary))], &x, 1, NULL, 0);
    case 1:
        return graph_op(g, binary[rng_below(r, COUNT(binary))], VALS(x, random_const(g, r, TTYPE(DT_F16, 1, c, 1, 1))),
                        NULL, 0);
    case 2:
        return graph_op(g, binary[rng_below(r, COUNT(binary))], VALS(graph_scalar(g, DT_F16, rng_range(r, -1, 1)), x),
                        NULL, 0);
    case 3: return graph_op(g, binary[rng_below(r, COUNT(binary))], VALS(x, x), NULL, 0);
    case 4:
        return graph_op(g, reduce[rng_below(r, COUNT(reduce))], &x, 1,
                        (attr[]){ AT_IS(AXES, (int64_t)rng_below(r, 4)), AT_B(KEEP_DIMS, true) }, 2);
    case 5: return GA(g, SOFTMAX, VALS(x), AT_I(AXIS, (int64_t)rng_below(r, 4) - 4));
    case 6: return GA(g, TRANSPOSE, VALS(x), AT_IS(PERM, 0, 1, 3, 2));
    case 7: return GA(g, RESHAPE, VALS(x), AT_IS(SHAPE, 1, w, c, h));
    case 8:
        return GA(g, CONCAT, VALS(x, x), AT_I(AXIS, 1 + (int64_t)rng_below(r, 3)), AT_B(INTERLEAVE, rng_below(r, 2)));
    case 9:
        return GA(g, SLICE_BY_SIZE, VALS(x), AT_IS(BEGIN, 0, c / 2, 0, w / 2), AT_IS(SIZE, 1, c - c / 2, h, w - w / 2));
    case 10: {
        int64_t out = 1 + (int64_t)rng_below(r, 5);
        return graph_op(g, OP_CONV, VALS(x, random_const(g, r, TTYPE(DT_F16, out, c, 1, 1))), NULL, 0);
    }
    case 11: return GA(g, MATMUL, VALS(x, x), AT_B(TRANSPOSE_Y, true));
    case 12: {
        val m = G(g, GREATER, x, graph_scalar(g, DT_F16, 0));
        return G(g, SELECT, m, x, random_const(g, r, TTYPE(DT_F16, 1, c, h, w)));
    }
    default: return GA(g, CAST, VALS(GA(g, CAST, VALS(x), AT_S(DTYPE, "fp32"))), AT_S(DTYPE, "fp16"));
    }
}

static graph *random_graph(rng *r)
{
    graph *g = graph_new("random", 0);
    val pool[64];
    size_t n = 0;
    size_t n_in = 1 + rng_below(r, 3), n_nodes = 3 + rng_below(r, 20);
    for (size_t i = 0; i < n_in; i++) {
        char name[32];
        snprintf(name, sizeof name, "in%zu", i);
        pool[n++] = graph_input(
            g, name,
            TTYPE(DT_F16, 1, 1 + (int64_t)rng_below(r, 4), 1 + (int64_t)rng_below(r, 4), 1 + (int64_t)rng_below(r, 4)));
    }
    for (size_t i = 0; i < n_nodes && !g->err.st; i++) {
        val v = random_node(g, r, pool, n);
        int64_t elems;
        if (v.i && shape_elems(&graph_type(g, v)->sh, &elems) && elems <= 4096) pool[n++] = v;
    }
    size_t n_out = 1 + rng_below(r, 3);
    for (size_t i = 0; i < n_out; i++) { /* inputs, constants and one value twice may all be returned */
        char name[32];
        snprintf(name, sizeof name, "out%zu", i);
        graph_output(g, name, pool[rng_below(r, 4) ? n - 1 - rng_below(r, MIN(n, 4)) : rng_below(r, n)]);
    }
    diag d = { 0 };
    assert_ok(graph_finish(g, &d), d);
    return g;
}

static void random_graphs_keep_their_meaning(void **state)
{
    uint64_t seed = test_seed("random_graphs_keep_their_meaning");
    for (uint64_t i = 0; i < 120; i++) {
        rng r = { seed * 1000003 + i };
        graph *g = random_graph(&r);
        char what[40];
        snprintf(what, sizeof what, "graph %llu", (unsigned long long)i);
        keeps_meaning_everywhere(g, *state, seed + i, what);
        graph_free(g);
    }
}

static int make_place(void **state)
{
    static place p = { "/tmp/anneal-prop-XXXXXX" };
    char path[80];
    diag d = { 0 };
    if (!mkdtemp(p.dir)) return -1;
    snprintf(path, sizeof path, "%s/weights", p.dir);
    *state = &p;
    return dir_make(path, &d) ? -1 : 0;
}

static int drop_place(void **state)
{
    char cmd[80];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", ((place *)*state)->dir);
    return system(cmd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_keeps_its_meaning),
        cmocka_unit_test(random_graphs_keep_their_meaning),
    };
    return cmocka_run_group_tests(tests, make_place, drop_place);
}
