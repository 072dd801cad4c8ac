/* grad_rows.h: one case or more for every operation that has a gradient, as graph text in fp64; and how to read
 * them. */
#ifndef TESTS_GRAD_ROWS_H
#define TESTS_GRAD_ROWS_H

#include "grad_t.h"

/* ---- one row per case: statements in graph text ("; " ends one), results to differentiate are named y... ---- */
typedef struct {
    double lo, hi; /* of the inputs; 0, 0 means -2 .. 2 */
    const char *text;
} grad_row;

#define X "x = input fp64[2, 3, 4]; "
#define IMG "x = input fp64[2, 4, 5, 6]; "
static const grad_row grad_rows[] = {
    /* arithmetic, broadcasting in every position */
    { 0, 0, X "b = input fp64[3, 1]; y = add(x, b)" },
    { 0, 0, "x = input fp64[4]; b = input fp64[2, 3, 1]; y = sub(x, b)" },
    { 0, 0, X "b = input fp64[2, 1, 4]; y = mul(x, b)" },
    { 0, 0, X "y = mul(x, x)" },
    { 0, 0, "x = input fp64[]; b = input fp64[2, 3]; y = mul(x, b)" },
    { 0.5, 2, X "b = input fp64[4]; y = real_div(x, b)" },
    { 0.5, 2, X "b = input fp64[1, 3, 1]; y = pow(x, b)" },
    { 0, 0, X "b = const fp64[] {2}; y = pow(x, b)" },
    { 0, 0, X "b = const fp64[] {3}; y = pow(x, b)" },
    { 0, 0, X "b = input fp64[3, 4]; y = maximum(x, b)" },
    { 0, 0, X "b = input fp64[3, 4]; y = minimum(x, b)" },
    { 0, 0, X "y = maximum(x, x)" },
    { 0.5, 2, X "b = input fp64[4]; y1 = pe_elementwise(x, b) {mode=\"add\"}; y2 = pe_elementwise(x, b) {mode=\"sub\"}; y3 = pe_elementwise(x, b) {mode=\"mul\"}; "
              "y4 = pe_elementwise(x, b) {mode=\"max\"}; y5 = pe_elementwise(x, b) {mode=\"min\"}; y6 = pe_elementwise(x, b) {mode=\"pow\"}; y7 = pe_elementwise(x, b) {mode=\"div\"}" },
    { 0, 0, X "y = abs(x)" },
    { 0, 0, X "y = square(x)" },
    { 0.2, 3, X "y = sqrt(x)" },
    { 0.2, 3, X "y = rsqrt(x) {epsilon=0.25}" },
    { 0.2, 3, X "y = inverse(x) {epsilon=0.5}" },
    { 0, 0, X "y = cumsum(x) {axis=1}" },
    { 0, 0, X "y = cumsum(x) {axis=2, exclusive=true, reverse=true}" },
    { 0, 0, X "b = input fp64[3, 4]; z = const fp64[] {0.3}; c = greater(x, z); y = select(c, x, b)" },
    { 0, 0, X "b = input fp64[1, 1, 4]; z = const fp64[3, 1] {0.1, -0.2, 0.4}; c = less(b, z); y = select(c, b, x)" },
    /* activations */
    { 0, 0, X "y = relu(x)" },
    { -2, 9, X "y = relu6(x)" },
    { 0, 0, X "y = leaky_relu(x) {alpha=0.2}" },
    { 0, 0, X "a = input fp64[3]; y = prelu(x, a)" },
    /* the clamp is met on both sides */
    { 0, 0, X "y1 = clamped_relu(x) {alpha=0.3, beta=1.1}; y2 = clamped_relu(x) {alpha=-0.8, beta=1.1}" },
    { 0, 0, X "y = thresholded_relu(x) {alpha=0.7}" },
    { 0, 0, X "y = threshold(x) {alpha=-0.6}" },
    { 0, 0, X "y = clip(x) {alpha=-0.9, beta=1.2}" },
    { 0, 0, X "y = clip(x) {alpha=-inf, beta=0.5}" },
    { 0, 0, X "y = linear_activation(x) {alpha=-1.5, beta=2.0}" },
    { 0, 0, X "y = elu(x) {alpha=0.7}" },
    { 0, 0, X "y = sigmoid(x)" },
    { -4, 4, X "y = sigmoid_hard(x) {alpha=0.3, beta=0.4}" },
    { 0, 0, X "y = tanh(x)" },
    { 0, 0, X "y = scaled_tanh(x) {alpha=1.7, beta=0.6}" },
    { -4, 4, X "y1 = gelu(x); y2 = gelu(x) {mode=\"TANH_APPROXIMATION\"}; y3 = gelu(x) {mode=\"SIGMOID_APPROXIMATION\"}" },
    { -4, 4, X "y = silu(x)" },
    { 0, 0, X "y1 = softmax(x); y2 = softmax(x) {axis=1}" },
    { -4, 4, X "y = softplus(x)" },
    { 0, 0, X "a = input fp64[3]; b = input fp64[3]; y = softplus_parametric(x, a, b)" },
    { 0, 0, X "y = softsign(x)" },
    { 0, 0, X "y = erf(x)" },
    { 0, 0, X "y1 = exp(x); y2 = exp2(x)" },
    { 0.2, 3, X "y1 = log(x); y2 = log(x) {epsilon=0.5}" },
    /* a chip's sines are off by 0.05 at pi, so the slope of one is at pi / 2 */
    { -1.4, 1.4, X "y1 = sin(x); y2 = cos(x); y3 = atan(x)" },
    /* hard swish */
    { -5, 5, X "three = const fp64[] {3}; sixth = const fp64[] {0.16666666666666666}; a = add(x, three); c = clip(a) {alpha=0.0, beta=6.0}; p = mul(x, c); y = mul(p, sixth)" },
    /* reductions: no axes, some, all, kept and not */
    { 0, 0, X "y1 = reduce_sum(x); y2 = reduce_sum(x) {axes=[1]}; y3 = reduce_sum(x) {axes=[-1, 0], keep_dims=true}" },
    { 0, 0, X "y1 = reduce_mean(x); y2 = reduce_mean(x) {axes=[0, 2]}; y3 = reduce_mean(x) {axes=[1], keep_dims=true}" },
    { 0, 0, X "y1 = reduce_max(x); y2 = reduce_max(x) {axes=[1]}; y3 = reduce_max(x) {axes=[-1, 0], keep_dims=true}" },
    { 0, 0, X "y1 = reduce_min(x); y2 = reduce_min(x) {axes=[2]}; y3 = reduce_min(x) {axes=[1, 0], keep_dims=true}" },
    { 0, 0, X "y1 = reduce_sum_square(x); y2 = reduce_sum_square(x) {axes=[1]}" },
    { 0, 0, X "y1 = reduce_l1_norm(x); y2 = reduce_l1_norm(x) {axes=[1], keep_dims=true}" },
    { 0, 0, X "y1 = reduce_l2_norm(x); y2 = reduce_l2_norm(x) {axes=[2]}" },
    { 0.2, 3, X "y1 = reduce_log_sum(x); y2 = reduce_log_sum(x) {axes=[0, 1]}" },
    { 0, 0, X "y1 = reduce_log_sum_exp(x); y2 = reduce_log_sum_exp(x) {axes=[1]}" },
    /* norms */
    { 0, 0, X "g = input fp64[4]; b = input fp64[4]; y1 = layer_norm(x, g, b) {axes=[2], epsilon=0.1}; y2 = layer_norm(x)" },
    { 0, 0, X "g = input fp64[2, 4]; b = input fp64[2, 4]; y = layer_norm(x, g, b) {axes=[0, -1]}" },
    { 0, 0, X "g = input fp64[3]; b = input fp64[3]; y1 = instance_norm(x, g, b) {epsilon=0.1}; y2 = instance_norm(x)" },
    /* one number an instance: nothing is left of it, and of the parameters beta alone is seen */
    { 0, 0, "x = input fp64[2, 3]; g = input fp64[3]; b = input fp64[3]; y = instance_norm(x, g, b)" },
    { 0.3, 2, IMG "m = input fp64[4]; v = input fp64[4]; g = input fp64[4]; b = input fp64[4]; y1 = batch_norm(x, m, v, g, b) {epsilon=0.1}; y2 = batch_norm(x, m, v)" },
    { 0, 0, "x = input fp64[2, 2, 2, 3]; y = l2_norm(x) {epsilon=0.1}" },
    { 0, 0, IMG "y1 = local_response_norm(x) {size=3, alpha=0.5}; y2 = local_response_norm(x) {size=2, alpha=0.7, beta=0.5, k=2.0}; y3 = local_response_norm(x) {size=3, alpha=-0.3, k=3.0}" },
    /* rms norm */
    { 0, 0, "x = input fp64[1, 6, 1, 5]; g = input fp64[1, 6, 1, 1]; q = square(x); m = reduce_mean(q) {axes=[1], keep_dims=true}; r = rsqrt(m) {epsilon=0.1}; n = mul(x, r); y = mul(n, g)" },
    /* group norm */
    { 0, 0, IMG "s = reshape(x) {shape=[2, 2, 60]}; n = layer_norm(s) {axes=[2], epsilon=0.1}; y = reshape(n) {shape=[2, 4, 5, 6]}" },
    /* products */
    { 0, 0, "x = input fp64[2, 3]; w = input fp64[3, 4]; y = matmul(x, w)" },
    { 0, 0, "x = input fp64[3, 2]; w = input fp64[4, 3]; y = matmul(x, w) {transpose_x=true, transpose_y=true}" },
    { 0, 0, "x = input fp64[5, 3, 2]; w = input fp64[3, 4]; y = matmul(x, w) {transpose_x=true}" },
    { 0, 0, "x = input fp64[5, 2, 3]; w = input fp64[4, 3]; y = matmul(x, w) {transpose_y=true}" },
    { 0, 0, "x = input fp64[2, 1, 2, 3]; w = input fp64[4, 3, 2]; y = matmul(x, w)" },
    { 0, 0, "x = input fp64[4, 2, 3]; w = input fp64[2, 1, 3, 2]; y = matmul(x, w)" },
    { 0, 0, "x = input fp64[3]; w = input fp64[2, 3, 4]; y1 = matmul(x, w); v = input fp64[4]; y2 = matmul(w, v); y3 = matmul(x, x)" },
    { 0, 0, "x = input fp64[2, 3]; y = matmul(x, x) {transpose_y=true}" },
    { 0, 0, "x = input fp64[2, 3]; w = input fp64[3, 4]; y = ne_matmul(x, w)" },
    { 0, 0, X "w = input fp64[5, 4]; b = input fp64[5]; y1 = linear(x, w, b); y2 = linear(x, w)" },
    { 0, 0, "x = input fp64[4]; w = input fp64[5, 4]; b = input fp64[5]; y = linear(x, w, b)" },
    { 0, 0, "x = input fp64[2, 3, 4, 5]; w = input fp64[2, 5, 4, 2]; y = einsum(x, w) {equation=\"nchw,nwhu->nchu\"}" },
    { 0, 0, "x = input fp64[2, 3]; w = input fp64[3, 4]; y1 = einsum(x, w) {equation=\"ab,bc->ca\"}; y2 = einsum(x, w) {equation=\"ab,cd->db\"}; y3 = einsum(x, w) {equation=\"ab,bc->\"}" },
    { 0, 0, "q = input fp64[2, 3, 4]; k = input fp64[2, 5, 4]; v = input fp64[2, 5, 6]; m = input fp64[3, 5]; y1 = scaled_dot_product_attention(q, k, v, m); y2 = scaled_dot_product_attention(q, k, v)" },
    { 0, 0, "q = input fp64[2, 2, 3, 4]; k = input fp64[1, 2, 3, 4]; v = input fp64[2, 1, 3, 2]; b = const bool[3, 3] {1, 0, 0, 1, 1, 0, 1, 1, 1}; y = scaled_dot_product_attention(q, k, v, b)" },
    /* one key */
    { 0, 0, "q = input fp64[2, 3, 4]; k = input fp64[2, 1, 4]; v = input fp64[2, 1, 6]; y = scaled_dot_product_attention(q, k, v)" },
    /* one query, of one number */
    { 0, 0, "q = input fp64[2, 1, 1]; k = input fp64[2, 3, 1]; v = input fp64[2, 3, 1]; m = input fp64[1, 3]; y = scaled_dot_product_attention(q, k, v, m)" },
    /* windows */
    { 0, 0, "x = input fp64[2, 3, 4, 5]; w = input fp64[2, 3, 1, 1]; b = input fp64[2]; y = conv(x, w, b)" },
    { 0, 0, "x = input fp64[2, 2, 5, 6]; w = input fp64[3, 2, 3, 2]; y = conv(x, w)" },
    { 0, 0, "x = input fp64[2, 2, 5, 6]; w = input fp64[3, 2, 3, 3]; y = conv(x, w) {pad_type=\"same\"}" },
    { 0, 0, "x = input fp64[1, 2, 6, 7]; w = input fp64[2, 2, 3, 2]; y = conv(x, w) {strides=[2, 3], pad_type=\"same_lower\"}" },
    { 0, 0, "x = input fp64[2, 2, 7, 8]; w = input fp64[3, 2, 3, 2]; y = conv(x, w) {strides=[2, 3], pad_type=\"custom\", pad=[1, 0, 2, 1]}" },
    { 0, 0, "x = input fp64[1, 2, 7, 8]; w = input fp64[3, 2, 3, 2]; y = conv(x, w) {dilations=[2, 3], pad_type=\"custom\", pad=[3, 1, 0, 4]}" },
    { 0, 0, "x = input fp64[2, 4, 5, 5]; w = input fp64[6, 2, 2, 3]; b = input fp64[6]; y = conv(x, w, b) {groups=2, strides=[2, 1]}" },
    { 0, 0, "x = input fp64[2, 4, 4, 4]; w = input fp64[4, 1, 3, 3]; y = conv(x, w) {groups=4, pad_type=\"same\"}" },
    { 0, 0, "x = input fp64[2, 2, 9]; w = input fp64[3, 2, 3]; y = conv(x, w) {strides=[2], pad_type=\"custom\", pad=[4, 5]}" },
    { 0, 0, "x = input fp64[1, 2, 3, 4, 3]; w = input fp64[2, 2, 2, 2, 2]; y = conv(x, w) {pad_type=\"custom\", pad=[1, 0, 0, 1, 0, 0]}" },
    /* the one window lies in the padding */
    { 0, 0, "x = input fp64[1, 2, 2, 3]; w = input fp64[3, 2, 1, 2]; b = input fp64[3]; y = conv(x, w, b) {strides=[5, 1], pad_type=\"custom\", pad=[3, 0, 0, 0]}" },
    { 0, 0, "x = input fp64[1, 2, 4, 5]; w = input fp64[3, 2, 2, 3]; y = ne_conv(x, w)" },
    { 0, 0, "x = input fp64[2, 2, 3, 4]; w = input fp64[2, 3, 3, 2]; b = input fp64[3]; y = conv_transpose(x, w, b) {strides=[2, 2]}" },
    { 0, 0, "x = input fp64[1, 4, 3, 3]; w = input fp64[4, 2, 3, 3]; y = conv_transpose(x, w) {groups=2, pad_type=\"custom\", pad=[1, 0, 2, 1]}" },
    { 0, 0, "x = input fp64[1, 2, 3, 3]; w = input fp64[2, 2, 2, 2]; y = conv_transpose(x, w) {strides=[3, 2], pad_type=\"same\", dilations=[1, 2]}" },
    { 0, 0, "x = input fp64[1, 2, 3, 3]; w = input fp64[2, 2, 3, 3]; y = conv_transpose(x, w) {strides=[2, 2], pad_type=\"custom\", pad=[1, 1, 0, 1], output_shape=[1, 2, 6, 7]}" },
    { 0, 0, IMG "y1 = avg_pool(x) {kernel_sizes=[2, 3], strides=[2, 2]}; y2 = avg_pool(x) {kernel_sizes=[5, 6]}" },
    { 0, 0, IMG "y1 = avg_pool(x) {kernel_sizes=[3, 3], strides=[2, 2], pad_type=\"custom\", pad=[1, 1, 1, 0], exclude_padding_from_average=true}; "
            "y2 = avg_pool(x) {kernel_sizes=[3, 2], strides=[2, 2], pad_type=\"same\"}; y3 = avg_pool(x) {kernel_sizes=[2, 4], strides=[2, 3], ceil_mode=true}" },
    { 0, 0, "x = input fp64[2, 3, 4, 6]; y1 = max_pool(x) {kernel_sizes=[2, 2], strides=[2, 2]}; y2 = max_pool(x) {kernel_sizes=[3, 3], strides=[2, 1], pad_type=\"same\"}" },
    /* side by side, but beginning in the padding */
    { 0, 0, "x = input fp64[1, 2, 6, 6]; y = max_pool(x) {kernel_sizes=[3, 3], strides=[3, 3], pad_type=\"custom\", pad=[1, 0, 1, 0]}" },
    { -3, -1, IMG "y1 = max_pool(x) {kernel_sizes=[3, 2], strides=[2, 2], pad_type=\"custom\", pad=[1, 1, 0, 1]}; y2 = max_pool(x) {kernel_sizes=[2, 2], strides=[2, 2], ceil_mode=true}" },
    { 0, 0, "x = input fp64[2, 3, 7]; y1 = max_pool(x) {kernel_sizes=[3], strides=[2]}; y2 = avg_pool(x) {kernel_sizes=[3], strides=[2]}" },
    { 0, 0, "x = input fp64[1, 2, 4, 4, 6]; y1 = max_pool(x) {kernel_sizes=[2, 2, 3], strides=[2, 2, 3]}; y2 = max_pool(x) {kernel_sizes=[3, 2, 2], strides=[2, 1, 2], pad_type=\"same\"}" },
    { 0, 0, "x = input fp64[2, 1, 5, 4, 4]; y1 = avg_pool(x) {kernel_sizes=[3, 2, 2], strides=[2, 2, 1]}; y2 = avg_pool(x) {kernel_sizes=[3, 3, 2], strides=[2, 2, 2], pad_type=\"custom\", pad=[1, 0, 1, 1, 0, 1], "
            "exclude_padding_from_average=true}; y3 = l2_pool(x) {kernel_sizes=[2, 2, 2]}" },
    /* windows that lie in the padding */
    { 0, 0, "x = input fp64[1, 1, 2, 3, 3]; y1 = avg_pool(x) {kernel_sizes=[1, 2, 2], pad_type=\"custom\", pad=[1, 0, 2, 0, 0, 2], exclude_padding_from_average=true}; "
            "y2 = l2_pool(x) {kernel_sizes=[1, 2, 2], pad_type=\"custom\", pad=[1, 0, 2, 0, 0, 2]}" },
    { 0, 0, "x = input fp64[2, 3, 7]; y1 = max_pool(x) {kernel_sizes=[3], strides=[2], pad_type=\"custom\", pad=[2, 1]}; y2 = avg_pool(x) {kernel_sizes=[3], strides=[2], pad_type=\"custom\", pad=[2, 1]}" },
    { 0, 0, IMG "y1 = l2_pool(x) {kernel_sizes=[2, 3]}; y2 = l2_pool(x) {kernel_sizes=[3, 3], strides=[2, 2], pad_type=\"same\"}" },
    { 0, 0, IMG "y1 = ne_pool(x) {kernel_sizes=[2, 2]}; y2 = ne_pool(x) {mode=\"max\", kernel_sizes=[2, 3]}; y3 = ne_pool(x) {mode=\"l2\", kernel_sizes=[2, 2]}; y4 = ne_pool(x) {kernel_sizes=[3, 3], pad_type=\"same\"}" },
    { 0, 0, IMG "y1 = pe_pool(x) {mode=\"min\", kernel_sizes=[2, 2], strides=[2, 2]}; y2 = pe_pool(x) {mode=\"l1\", kernel_sizes=[2, 3]}" },
    /* movement */
    { 0, 0, X "y1 = identity(x); y2 = read_state(x); y3 = reshape(x) {shape=[4, -1]}; y4 = expand_dims(x) {axes=[0, -1]}; y5 = flatten2d(x) {axis=2}" },
    { 0, 0, X "b = input fp64[2, 3, 4]; r = read_state(x); m = mul(r, b); w = write_state(x, m); y1 = mul(w, b); y2 = mul(r, w)" },
    { 0, 0, X "r = input fp64[6, 4]; y1 = reshape_like(x, r) {begins=[0], ends=[2], end_masks=[false]}; y2 = mul(r, r)" },
    { 0, 0, "x = input fp64[1, 3, 1, 2]; y1 = squeeze(x); y2 = squeeze(x) {axes=[2]}" },
    { 0, 0, X "y = transpose(x) {perm=[2, 0, -2]}" },
    { 0, 0, X "b = input fp64[2, 1, 4]; y1 = concat(x, b, x) {axis=1}; y2 = concat(x, x) {axis=2, interleave=true}" },
    { 0, 0, X "y1, y2 = split(x) {num_splits=2, axis=2}; u, y3, v = split(x) {split_sizes=[1, 1, 1], axis=1}" },
    { 0, 0, X "b = input fp64[2, 3, 4]; y1 = stack(x, b, x) {axis=1}; y2 = stack(x, b) {axis=-1}" },
    { 0, 0, X "y1 = pad(x) {pad=[1, 2]}; y2 = pad(x) {pad=[1, 0, 2, 3, 0, 1], constant_val=0.5}" },
    { 0, 0, X "y1 = pad(x) {pad=[1, 2, 3, 1], mode=\"reflect\"}; y2 = pad(x) {pad=[2, 1, 0, 4], mode=\"symmetric\"}; y3 = pad(x) {pad=[5, 1], mode=\"replicate\"}" },
    { 0, 0, IMG "y1 = slice_by_size(x) {begin=[1, 0, 2, 3], size=[1, 3, -1, 2]}; y2 = crop(x) {crop_height=[1, 2], crop_width=[0, 3]}; y3 = crop(x) {crop_height=[0, 1], crop_width=[2, 1]}" },
    { 0, 0, IMG "y1 = slice_by_index(x) {begin=[0, 1, 0, 1], end=[2, 4, 5, 6], stride=[1, 2, 3, 2]}; "
            "y2 = slice_by_index(x) {begin=[0, -1, 4, 5], end=[0, 0, 0, -7], stride=[1, -2, -1, -2], begin_mask=[true, false, true, false], end_mask=[true, false, false, false]}; "
            "y3 = slice_by_index(x) {begin=[1, -2, 0, 0], end=[0, 0, 0, 3], squeeze_mask=[true, true, false, false], end_mask=[false, false, true, false]}" },
    { 0, 0, IMG "u = input fp64[2, 2, 5, 3]; y = slice_update(x, u) {begin=[0, 1, 0, 0], end=[0, 3, 0, 6], stride=[1, 1, 1, 2], begin_mask=[true, false, true, true], end_mask=[true, false, true, false]}" },
    { 0, 0, X "y1 = reverse(x); y2 = reverse(x) {axes=[1]}" },
    { 0, 0, X "y = tile(x) {reps=[2, 1, 3]}" },
    { 0, 0, "x = input fp64[4, 3]; i = const int32[5] {0, 3, 0, 1, 3}; y1 = gather(x, i); j = const int32[2, 2] {0, -1, 2, 1}; y2 = gather(x, j) {axis=1}" },
    { 0, 0, "x = input fp64[2, 3, 4, 2]; i = const int32[2, 3] {0, 3, -1, 1, 1, 2}; y = gather(x, i) {axis=2, batch_dims=1}" },
    /* beside a gradient that is one number for all */
    { 0, 0, "x = input fp64[4, 3]; i = const int32[2] {0, 3}; y1 = gather(x, i); r = reduce_sum(x); y2 = tanh(r)" },
    { 0, 0, "x = input fp64[4, 3]; i = const uint8[2] {3, 1}; y = gather(x, i)" },
    /* more places than the index has numbers */
    { 0, 0, "x = input fp64[300, 1]; i = const uint8[3] {255, 43, 44}; y = gather(x, i)" },
    { 0, 0, "x = input fp64[200, 1]; i = const int8[3] {-1, 127, -128}; y = gather(x, i)" },
    { 0, 0, "x = input fp64[2, 4, 3]; u = input fp64[2, 5, 3]; i = const int32[5] {0, 3, 0, -1, 2}; y = scatter(x, i, u) {axis=1}" },
    { 0, 0, "x = input fp64[2, 4, 3]; u = input fp64[2, 2, 2, 3]; i = const int32[2, 2] {0, 3, 0, 2}; y = scatter(x, i, u) {axis=1, mode=\"update\"}" },
    { 0, 0, "x = input fp64[2, 4, 3]; i = const int32[2, 2, 3] {0, 3, 1, 1, -1, 1, 2, 0, 2, 3, 3, 2}; y = gather_along_axis(x, i) {axis=1}" },
    { 0, 0, "x = input fp64[2, 4, 3]; i = const int32[2, 1, 3] {0, 3, -1, 1, -4, 2}; y = gather_along_axis(x, i) {axis=1}" },
    { 0, 0, "x = input fp64[3, 4, 2]; i = const int32[3, 2] {0, 1, 2, -1, 0, 1}; y1 = gather_nd(x, i); j = const int32[3, 2, 1] {0, 1, 2, 3, 0, 0}; y2 = gather_nd(x, j) {batch_dims=1}" },
    { 0, 0, "x = input fp64[2, 8, 2, 4]; y1 = depth_to_space(x) {block_size=2}; y2 = space_to_depth(x) {block_size=2}; y3 = pixel_shuffle(x) {upscale_factor=2}; y4 = pixel_unshuffle(x) {downscale_factor=2}" },
    { 0, 0, "x = input fp64[4, 2, 3, 4]; y1 = space_to_batch(x) {block_shape=[2, 3], paddings=[1, 0, 1, 1]}; y2 = batch_to_space(x) {block_shape=[2, 2], crops=[1, 0, 0, 3]}" },
    /* images */
    { 0, 0, "x = input fp64[1, 2, 3, 4]; y1 = resize(x) {shape=[5, 7]}; y2 = resize(x) {shape=[2, 6], sampling_mode=\"ALIGN_CORNERS\"}; y3 = resize(x) {shape=[6, 3], mode=\"NEAREST_NEIGHBOR\"}; y4 = resize(x) {shape=[3, 3, 0], sampling_mode=\"OFFSET_CORNERS\"}" },
    { 0, 0, "x = input fp64[1, 2, 3, 4]; y1 = resize_bilinear(x) {target_size_height=5, target_size_width=2, sampling_mode=\"UNALIGN_CORNERS\"}; y2 = resize_nearest_neighbor(x) {target_size_height=2, target_size_width=9}" },
    { 0, 0, "x = input fp64[1, 2, 3, 4]; y1 = upsample_bilinear(x) {scale_factor_height=2.0, scale_factor_width=1.5}; y2 = upsample_bilinear(x) {scale_factor_width=3.0, align_corners=false}; y3 = upsample_nearest_neighbor(x) {scale_factor_height=2.0, scale_factor_width=2.0}" },
    { 0, 0, "x = input fp64[1, 2, 3, 4]; y1 = upsample_bilinear(x) {scale_factor_height=2.0, align_corners=true}; y2 = upsample_bilinear(x) {scale_factor_height=2.0, align_corners=false}" },
    /* sorting, types */
    { 0, 0, X "y1, i = topk(x) {k=2, axis=1}; y2 = topk(x) {k=3, ascending=true, return_indices=false}" },
    { 0, 0, X "h = cast(x) {dtype=\"fp32\"}; s = square(h); y = cast(s) {dtype=\"fp64\"}" },
    /* losses */
    { 0, 0, "x = input fp64[3, 5]; t = const fp64[3, 5] {0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1}; l = reduce_log_sum_exp(x) {axes=[1], keep_dims=true}; y1 = sub(x, l); p = mul(x, t); y2 = sub(l, p)" },
};

/* ---- reading ---- */

static inline graph *grad_parse(const char *text)
{
    strbuf b = { 0 };
    diag d = { 0 };
    graph *g = NULL;
    sb_puts(&b, "graph \"t\"\n");
    int first = (int)strcspn(text, " ");
    const char *name = text;
    for (; *text; text++) sb_putc(&b, *text == ';' ? '\n' : *text);
    sb_printf(&b, "\nreturn unused=%.*s\n", first, name); /* a text must return something */
    assert_false(b.oom);
    if (graph_parse(b.at, b.n, &g, &d)) fail_msg("%s\nline %u: %s", b.at, d.at.line, d.msg);
    sb_free(&b);
    g->outputs.n = 0;
    return g;
}

static inline bool grad_is_result(const char *name)
{
    return name[0] == 'y' && (!name[1] || (name[1] >= '1' && name[1] <= '9' && !name[2]));
}

/* Sum over the results of their weighed sums; without r, of their plain sums, whose gradient is one number for all
 * elements. */
static inline val grad_total(graph *g, rng *r)
{
    val sum = NO_VAL;
    const char *dt = dtype_name(graph_type(g, g->inputs.at[0])->dt);
    for (uint32_t i = 1, n = (uint32_t)g->values.n; i < n; i++) {
        if (!grad_is_result(g->values.at[i].name)) continue;
        val v = { i };
        dtype t = g->values.at[i].type.dt;
        if (!dtype_is_float(t)) v = GA(g, CAST, VALS(v), AT_S(DTYPE, dt));
        v = r ? weighed(g, r, v) : G(g, REDUCE_SUM, v);
        sum = sum.i ? G(g, ADD, sum, v) : v;
    }
    return sum;
}

#endif
