/* Every rule: a program that breaks it, one that does not, and (where a rule is about some chips) a chip that stays
 * silent. */
#include "opcase.h"

static const struct {
    const char *rule, *chip, *bad, *good, *quiet; /* quiet: a chip on which `bad` is fine */
} cases[] = {
    /* front end */
    { "rank", "m1", "relu [1,1,1,1,1,2] > [1,1,1,1,1,2]", "relu [1,1,1,1,2] > [1,1,1,1,2]", NULL },
    /* a table of a palette has two axes more than the weight; any other constant counts as what reads it does */
    { "rank", "m1", "squeeze c[1,1,1,1,1,2] > [2]", "constexpr_lut_to_dense cuint4[8,8,1,1] c[1,1,1,1,16,1] > [8,8,1,1]", NULL },
    { "zero-extent", "m1", "relu [0,8] > [0,8]", "relu [1,8] > [1,8]", NULL },
    { "symbolic-shape", "m1", "input > [1,?,64]", "input > [1,8,64]", NULL },
    { "symbolic-shape", "m5", "input > [1,?,64]", "relu [1,?,64] > [1,?,64]", NULL }, /* said once, where it enters */
    { "max-dimension", "m1", "relu [1,8,1,16385] > [1,8,1,16385]", "relu [1,8,1,16384] > [1,8,1,16384]", "m4" },
    { "max-dimension", "m1", "relu [1,1,32000] > [1,1,32000]", "relu [1,32000,1,256] > [1,32000,1,256]", "m4" },
    { "max-dimension", "m4", "relu [1,8,65537,1] > [1,8,65537,1]", "relu [1,8,65536,1] > [1,8,65536,1]", NULL },
    { "max-channels", "m1", "relu [1,65537,1,1] > [1,65537,1,1]", "conv [1,16385,1,32] c[64,16385,1,1] > [1,64,1,32]", NULL },
    { "input-dtype", "m1", "in x int32[1,8]", "in x [1,8]", NULL },
    { "input-dtype", "m5", "in x bf16[1,8]", "in x uint8[1,8]", NULL },
    { "input-dtype", "m4", "in x int8[1,8]", "in x fp32[1,8]", NULL },
    { "input-fp32-refused", "m1", "in x fp32[1,8]", "in x [1,8]", "m2" },
    { "input-fp32", "m4", "in x fp32[1,8]", "in x [1,8]", NULL },
    { "output-bf16", "m1", "out y bf16[1,8]", "out y [1,8]", NULL },
    { "output-dtype", "m1", "out y fp32[1,8]", "out y [1,8]", NULL },
    { "uint8-arithmetic", "m1", "add [1,8] iuint8[1,8] > [1,8]", "dequantize iuint8[1,8] c[1] > [1,8]", NULL },
    { "fp32-arithmetic", "m1", "mul fp32[1,8] fp32[1,8] > fp32[1,8]", "cast [1,8] > fp32[1,8] | dtype=fp32", NULL },
    /* which operations exist */
    { "op-unsupported", "m1", "sin [1,8] > [1,8]", "atan [1,8] > [1,8]", "m3" },
    { "op-unsupported", "m2", "cos [1,8] > [1,8]", "topk [1,8] > [1,5] int32[1,5] | k=5", "m3" },
    { "op-unsupported", "m1", "topk [1,8] > [1,5] int32[1,5] | k=5", "reduce_argmax [1,8] > int32[1] | axis=1", "m2" },
    { "op-unsupported", "m5", "reduce_prod [1,8] > [1]", "reduce_sum [1,8] > [1] | axes=1", NULL },
    { "op-unsupported", "m5", "non_maximum_suppression [1,8] > [1,8]", "slice_by_index [1,8] > [1,4] | begin=0,0 end=1,4", NULL },
    { "op-unsupported", "m4", "read_state [1,8] > [1,8]", "identity [1,8] > [1,8]", NULL },
    { "op-unsupported", "m1", "pixel_buffer_to_tensor [1,8] > [1,8]", "resize [1,8,8,8] > [1,8,16,16] | shape=16,16", NULL },
    { "op-fallback", "m1", "resize_bilinear [1,8,8,8] > [1,8,16,16]", "relu [1,8] > [1,8]", "m2" },
    { "op-unknown", "m1", "neg [1,8] > [1,8]", "mul [1,8] c[] > [1,8]", NULL },
    { "cumsum-path", "m1", "cumsum [1,8] > [1,8]", "relu [1,8] > [1,8]", NULL },
    { "cast-missing", "m1", "cast fp32[1,8] > [1,8] | dtype=fp16", "relu [1,8] > [1,8]", "m4" },
    { "cast-int32", "m1", "cast [1,8] > int32[1,8] | dtype=int32", "cast [1,8] > fp32[1,8] | dtype=fp32", "m2" },
    { "cast-int32-unmeasured", "m2", "cast [1,8] > int32[1,8] | dtype=int32", "cast [1,8] > bool[1,8] | dtype=bool", "m1" },
    /* convolution */
    { "conv-rank", "m1", "conv [1,8,32] c[8,8,1] > [1,8,32]", "conv [1,8,1,32] c[8,8,1,1] > [1,8,1,32]", NULL },
    { "conv-3d", "m5", "conv [1,8,4,4,4] c[8,8,3,3,3] > [1,8,2,2,2]", "conv [1,8,4,4] c[8,8,3,3] > [1,8,2,2]", NULL },
    { "conv-kernel-width", "m1", "conv [1,8,32,32] c[8,8,3,16] > [1,8,30,17]", "conv [1,8,32,32] c[8,8,16,3] > [1,8,17,30]", "m2" },
    { "conv-kernel-width", "m1", "conv [1,8,32,32] c[8,8,3,16]=constexpr_affine_dequantize > [1,8,30,17]", "conv [1,8,32,32] c[8,8,3,15]=constexpr_affine_dequantize > [1,8,30,18]", NULL },
    { "conv-kernel-width-fp16", "m1", "conv [1,8,32,32] c[8,8,1,14] > [1,8,32,19]", "conv [1,8,32,32] c[8,8,1,13] > [1,8,32,20]", "m2" },
    { "conv-kernel-width-fp16", "m4", "conv [1,8,32,32] c[8,8,1,17] > [1,8,32,16]", "conv [1,8,32,32] c[8,8,1,16] > [1,8,32,17]", NULL },
    { "conv-kernel-height", "m1", "conv [1,8,64,32] c[8,8,30,1] > [1,8,35,32]", "conv [1,8,64,32] c[8,8,29,1] > [1,8,36,32]", "m2" },
    { "conv-kernel-large", "m1", "conv [1,8,32,32] c[8,8,1,9] > [1,8,32,24]", "conv [1,8,32,32] c[8,8,1,8] > [1,8,32,25]", NULL },
    { "conv-groups", "m1", "conv [1,8,4,4] c[9,2,1,1] > [1,9,4,4] | groups=3", "conv [1,8,4,4] c[8,4,1,1] > [1,8,4,4] | groups=2", NULL },
    { "conv-kernel-room", "m1", "conv [1,8,2,32] c[8,8,3,3] > [1,8,1,30]", "conv [1,8,2,32] c[8,8,3,3] > [1,8,2,32] | pad_type=custom pad=1,1,1,1", NULL },
    { "conv-dilation", "m1", "conv [1,8,64,64] c[8,8,3,3] > [1,8,44,44] | dilations=9,9", "conv [1,8,64,64] c[8,8,3,3] > [1,8,48,48] | dilations=8,8", NULL },
    { "conv-padding", "m1", "conv [1,8,64,64] c[8,8,3,3] > [1,8,64,64] | pad_type=custom pad=17,17,1,1", "conv [1,8,64,64] c[8,8,3,3] > [1,8,64,64] | pad_type=custom pad=16,16,1,1", NULL },
    { "deconv-stride", "m1", "conv_transpose [1,8,4,4] c[8,8,2,2] > [1,8,13,13] | strides=4,4", "conv_transpose [1,8,4,4] c[8,8,2,2] > [1,8,8,8] | strides=2,2", NULL },
    { "conv-int-weight", "m1", "conv [1,8,1,32] cint8[8,8,1,1] > [1,8,1,32]", "conv [1,8,1,32] c[8,8,1,1]=constexpr_affine_dequantize > [1,8,1,32]", NULL },
    { "weight-fp32", "m1", "conv [1,8,1,32] cfp32[8,8,1,1] > [1,8,1,32]", "conv [1,8,1,32] c[8,8,1,1] > [1,8,1,32]", NULL },
    { "conv-dynamic-weight-batch", "m1", "conv [2,8,1,32] i[8,8,1,1] > [2,8,1,32]", "conv [64,8,1,32] c[8,8,1,1] > [64,8,1,32]", NULL },
    { "conv-dynamic-weight-m3", "m3", "conv [1,8,1,32] i[8,8,1,1] > [1,8,1,32]", "conv [1,8,1,32] c[8,8,1,1] > [1,8,1,32]", "m1" },
    { "conv-dynamic-weight", "m1", "conv [1,8,1,32] i[8,8,1,1] > [1,8,1,32]", "conv [1,8,1,32] c[8,8,1,1] > [1,8,1,32]", NULL },
    /* matrix product, attention */
    { "matmul-rank", "m1", "matmul [1,1,2,4,4] [1,1,2,4,4] > [1,1,2,4,4]", "matmul [1,2,4,4] [1,2,4,4] > [1,2,4,4]", NULL },
    { "linear-rank", "m1", "linear [1,1,1,4,8] c[8,8] > [1,1,1,4,8]", "linear [1,1,4,8] c[8,8] > [1,1,4,8]", NULL },
    { "matmul-kmem", "m4", "matmul [1,1,4,32769] [1,1,32769,4] > [1,1,4,4]", "matmul [1,1,4,32768] [1,1,32768,4] > [1,1,4,4]", NULL },
    { "sdpa-kv-shape", "m1", "scaled_dot_product_attention [1,2,4,8] [1,2,4,8] [1,2,4,16] > [1,2,4,16]", "scaled_dot_product_attention [1,2,4,8] [1,2,4,8] [1,2,4,8] > [1,2,4,8]", NULL },
    { "sdpa-mask-type", "m1", "scaled_dot_product_attention [1,2,4,8] [1,2,4,8] [1,2,4,8] bool[1,1,4,4] > [1,2,4,8]", "scaled_dot_product_attention [1,2,4,8] [1,2,4,8] [1,2,4,8] [1,1,4,4] > [1,2,4,8]", NULL },
    { "sdpa-mask", "m4", "scaled_dot_product_attention [1,2,4,8] [1,2,4,8] [1,2,4,8] [1,1,4,4] > [1,2,4,8]", "scaled_dot_product_attention [1,2,4,8] [1,2,4,8] [1,2,4,8] - > [1,2,4,8]", NULL },
    /* pooling, reductions */
    { "pool-window", "m1", "max_pool [1,8,4,4] > [1,8,1,1] | kernel_sizes=5,5", "max_pool [1,8,4,4] > [1,8,1,1] | kernel_sizes=4,4", NULL },
    { "pool-padding", "m1", "avg_pool [1,8,8,8] > [1,8,11,11] | kernel_sizes=2,2 pad_type=custom pad=2,2,2,2", "avg_pool [1,8,8,8] > [1,8,9,9] | kernel_sizes=2,2 pad_type=custom pad=1,1,1,1", NULL },
    { "pool-window-table", "m1", "avg_pool [1,8,64,64] > [1,8,35,35] | kernel_sizes=30,30", "avg_pool [1,8,64,64] > [1,8,36,36] | kernel_sizes=29,29", "m2" },
    { "argmax-axis", "m1", "reduce_argmax [1,2049,1,4] > int32[1,1,4] | axis=1", "reduce_argmax [1,2048,1,4] > int32[1,1,4] | axis=1", NULL },
    { "argmax-whole", "m1", "reduce_argmax [64] > int32[] | axis=0", "reduce_argmax [1,64] > int32[1] | axis=1", "m3" },
    { "lrn-channels", "m1", "local_response_norm [1,16,8,8] > [1,16,8,8] | size=5", "local_response_norm [1,15,8,8] > [1,15,8,8] | size=5", "m2" },
    { "topk-k", "m5", "topk [1,8] > [1,3] int32[1,3] | k=3", "topk [1,8] > [1,5] int32[1,5] | k=5", NULL },
    { "prelu-rank", "m1", "prelu [1,8] c[8] > [1,8]", "prelu [1,8,4] c[8] > [1,8,4]", NULL },
    /* movement */
    { "transpose-first-axis", "m1", "transpose [2,1,8,4,4] > [1,2,8,4,4] | perm=1,0,2,3,4", "transpose [2,1,8,4,4] > [2,8,1,4,4] | perm=0,2,1,3,4", NULL },
    { "transpose-extent", "m1", "transpose [1,1,20000,4] > [1,1,4,20000] | perm=0,1,3,2", "transpose [1,1,16384,4] > [1,1,4,16384] | perm=0,1,3,2", "m4" },
    { "concat-inputs", "m1", "concat [1,8] > [1,8] | axis=1", "concat [1,8] [1,8] > [1,16] | axis=1", NULL },
    { "concat-axis", "m1", "concat [1,8] [1,8] > [1,16] | axis=-1", "concat [1,8] [1,8] > [1,16] | axis=1", NULL },
    { "concat-shapes", "m1", "concat [1,8,2] [1,8,3] > [1,16,3] | axis=1", "concat [1,8,3] [1,9,3] > [1,17,3] | axis=1", NULL },
    { "concat", "m4", "concat [1,8] [1,8] > [1,16] | axis=1", "add [1,8] [1,8] > [1,8]", NULL },
    { "pad-channel", "m1", "pad [1,8,4,4] > [1,10,4,4] | pad=1,1,0,0,0,0", "pad [1,8,4,4] > [1,8,6,6] | pad=1,1,1,1", NULL },
    { "pad-mode", "m1", "pad [1,8,4,4] > [1,8,6,6] | pad=1,1,1,1 mode=reflect", "pad [1,8,4,4] > [1,8,6,6] | pad=1,1,1,1 mode=constant", "m2" },
    { "slice-dynamic-unrun", "m2", "slice_by_size [1,8] > [1,4] | size=1,4 ! dyn", "slice_by_size [1,8] > [1,4] | begin=0,0 size=1,4", "m1" },
    { "slice-dynamic", "m1", "slice_by_size [1,8] > [1,4] | size=1,4 ! dyn", "slice_by_size [1,8] > [1,4] | begin=0,0 size=1,4", "m2" },
    { "reshape-rank", "m1", "reshape [1,2,2,2,2,2] > [2,16] | shape=2,16", "reshape [2,2,2,2,2] > [2,16] | shape=2,16", NULL },
    { "shuffle-factor", "m1", "pixel_shuffle [1,50,4,4] > [1,2,20,20] | upscale_factor=5", "pixel_shuffle [1,64,4,4] > [1,1,32,32] | upscale_factor=8", NULL },
    { "shuffle-channels", "m1", "pixel_shuffle [1,6,4,4] > [1,1,8,8] | upscale_factor=2", "pixel_shuffle [1,8,4,4] > [1,2,8,8] | upscale_factor=2", NULL },
    { "block-factor", "m1", "space_to_batch [1,8,10,10] > [25,8,2,2] | block_shape=5,5", "space_to_batch [1,8,12,12] > [36,8,2,2] | block_shape=6,6", NULL },
    { "block-batch", "m1", "batch_to_space [6,8,2,2] > [1,8,4,4] | block_shape=2,2", "batch_to_space [4,8,2,2] > [1,8,4,4] | block_shape=2,2", NULL },
    { "tile-factor", "m1", "tile [1,8] > [5,8] | reps=5,1", "tile [1,8] > [6,8] | reps=6,1", NULL },
    { "tile-poison", "m3", "tile [1,8] > [2,8] | reps=2,1", "add [1,8] [2,8] > [2,8]", "m4" },
    { "broadcast-depth", "m1", "add [1,2,8,4,4] [1,1,8,4,4] > [1,2,8,4,4]", "add [1,2,8,4,4] [1,2,1,4,4] > [1,2,8,4,4]", "m2" },
    { "gather-envelope", "m1", "gather [1,8,4,4] int32[5] > [1,5,4,4] | axis=1", "gather [1,8,4,4] cint32[5] > [1,5,4,4] | axis=1", "m2" },
    /* types, weights, image */
    { "e4m3", "m5", "quantize [1,8] c[1] > fp8e4m3fn[1,8] | output_dtype=fp8e4m3fn", "quantize [1,8] c[1] > int8[1,8] | output_dtype=int8", "h18" },
    { "e4m3-zero-point", "h18", "quantize [1,8] c[1] cint8[1] > fp8e4m3fn[1,8] | output_dtype=fp8e4m3fn", "quantize [1,8] c[1] cint8[1] > int8[1,8] | output_dtype=int8", NULL },
    { "palette-width", "m5", "constexpr_lut_to_dense cuint2[8,8] c[1,1,4,1] > [8,8]", "constexpr_lut_to_dense cuint4[8,8] c[1,1,16,1] > [8,8]", NULL },
    { "palette-width-h13", "m1", "constexpr_lut_to_dense cuint6[8,8] c[1,1,64,1] > [8,8]", "constexpr_lut_to_dense cuint8[32] c[16] > [8,8] | shape=8,8", "m2" },
    { "palette-vector", "m1", "constexpr_lut_to_dense cuint4[8,8] c[1,1,16,3] > [8,24]", "constexpr_lut_to_dense cuint4[8,8] c[1,1,16,4] > [8,32]", NULL },
    { "zero-point", "m1", "constexpr_affine_dequantize cint8[8,8] c[8] cint8[8]@-3:5 > [8,8]", "constexpr_affine_dequantize cint8[8,8] c[8] cint8[8]@0:0 > [8,8]", "m2" },
    { "int8-folds", "m1", "constexpr_affine_dequantize cint8[8,8] c[8] cint8[8]@0:0 > [8,8]", "constexpr_lut_to_dense cuint8[32] c[16] > [8,8]", "m2" },
    { "blockwise-folds", "m2", "constexpr_blockwise_shift_scale cint8[8,8] c[8,1] > [8,8]", "constexpr_lut_to_dense cuint8[32] c[16] > [8,8]", "m3" },
    { "sparse-dense", "m1", "constexpr_sparse_to_dense c[60] cuint1[10,10] > [10,10]", "constexpr_sparse_to_dense c[40] cuint1[10,10] > [10,10]", NULL },
    { "weight-stream-gate", "m2", "conv [1,8,8,8] c[8,8,1,1]=constexpr_affine_dequantize > [1,8,4,4] | strides=2,2", "conv [1,8,8,8] c[8,8,1,1]=constexpr_affine_dequantize > [1,8,8,8]", NULL },
    { "kernel-memory", "m1", "conv [1,4096,1,32] c[4096,4096,1,1] > [1,4096,1,32]", "conv [1,2048,1,32] c[2048,2048,1,1] > [1,2048,1,32]", NULL },
    { "resample-coordinates", "m2", "resample [1,8,4,4] [1,4,4,3] > [1,8,4,4]", "resample [1,8,4,4] [1,4,4,2] > [1,8,4,4]", NULL },
    { "affine-matrix", "m2", "affine [1,8,4,4] [1,5] > [1,8,4,4] | output_height=4 output_width=4", "affine [1,8,4,4] [1,6] > [1,8,4,4] | output_height=4 output_width=4", NULL },
    { "random-range", "m3", "random_uniform > [1,8] | shape=1,8 low=1 high=1", "random_uniform > [1,8] | shape=1,8 low=0 high=1", NULL },
    /* disputed */
    { "gelu", "m4", "gelu [1,8] > [1,8]", "tanh [1,8] > [1,8]", NULL },
    { "conv-bias", "m4", "conv [1,8,1,32] c[8,8,1,1] c[8] > [1,8,1,32]", "conv [1,8,1,32] c[8,8,1,1] - > [1,8,1,32]", NULL },
    { "conv-wide-input", "m4", "conv [1,32000,1,32] c[8,32000,1,1] > [1,8,1,32]", "conv [1,16000,1,32] c[8,16000,1,1] > [1,8,1,32]", NULL },
    { "conv-wide-output", "m4", "conv [1,8,1,32] c[32000,8,1,1] > [1,32000,1,32]", "conv [1,8,1,32] c[16000,8,1,1] > [1,16000,1,32]", NULL },
    { "matmul-constant", "m1", "matmul [1,1,4,8] c[1,1,8,8] > [1,1,4,8]", "matmul [1,1,4,8] [1,1,8,8] > [1,1,4,8]", NULL },
    /* hazards */
    { "blob-offset", "m1", "const > [8,8] ! blob", "const > [8,8]", NULL },
    { "inline-arguments", "m1", "matmul [1,1,4,8] [1,1,8,8] > [1,1,4,8] ! inline", "matmul [1,1,4,8] [1,1,8,8] > [1,1,4,8]", NULL },
    { "width-slice", "m1", "slice_by_size [1,8,1,64] > [1,8,1,32] | begin=0,0,0,32 size=1,8,1,32", "slice_by_size [1,8,1,64] > [1,8,1,32] | begin=0,0,0,0 size=1,8,1,32", "m3" },
    { "width-slice", "m2", "slice_by_index [1,8,1,64]@-5000:10 > [1,8,1,32] | begin=0,0,0,32 end=1,8,1,64", "slice_by_index [1,8,1,64]@-4094:10 > [1,8,1,32] | begin=0,0,0,32 end=1,8,1,64", "m5" },
    { "width-slice", "m1", "split [1,8,1,64] > [1,8,1,32] [1,8,1,32] | axis=-1 num_splits=2", "split [1,8,1,64] > [1,4,1,64] [1,4,1,64] | axis=1 num_splits=2", NULL },
    { "width-slice", "m1", "crop [1,8,4,8] > [1,8,4,4] | crop_height=0,0 crop_width=2,2", "crop [1,8,4,8] > [1,8,2,8] | crop_height=1,1 crop_width=0,0", NULL },
    { "output-port", "m1", "matmul [1,1,4,1024]@0:8 [1,1,1024,4]@-4:4 > [1,1,4,4]", "matmul [1,1,4,1024]@0:8 [1,1,1024,4]@-3:3 > [1,1,4,4]", NULL },
    { "output-port", "m1", "linear [1,1]@0:60000 c[1,1]@1:1 > [1,1]", "conv [1,1,1,32]@0:60000 c[1,1,1,1]@1:1 > [1,1,1,32]", NULL },
    { "output-port", "m1", "linear [1,4]@0:1 c[1,4]@1:1 c[1]@0:32764 > [1,1]", "linear [1,4]@0:1 c[1,4]@1:1 c[1]@0:32000 > [1,1]", NULL },
    { "output-port", "m1", "scaled_dot_product_attention [1,1,8,64]@-32:32 [1,1,8,64]@-16:16 [1,1,8,64] > [1,1,8,64]",
      "scaled_dot_product_attention [1,1,8,64]@-32:32 [1,1,8,64]@-15:15 [1,1,8,64] > [1,1,8,64]", NULL },
    /* a product written as multiply and sum; a reduction when the multiplication is read elsewhere or along one factor alone */
    { "output-port", "m1", "mul [1,256]@0:200 [1,256]@0:1 > [1,256]#7 ; reduce_sum [1,256]@0:200=mul#7 > [1,1] | axes=1",
      "mul [1,256]@0:200 [1,256]@0:1 > [1,256]#7 ; reduce_sum [1,256]@0:200=mul#7*2 > [1,1] | axes=1", NULL },
    { "output-port", "m1", "mul [1,8,4] [8,4] > [1,8,4]#7 ; reduce_sum [1,8,4]@-9000:1=mul#7 > [1,8] | axes=-1",
      "mul [1,8,4] [8,1] > [1,8,4]#7 ; reduce_sum [1,8,4]@-9000:1=mul#7 > [1,8] | axes=-1", NULL },
    { "output-port", "m1", "mul [1,8]#1 [1,8]#2 > [1,8]#7 ; reduce_sum [1,8]@0:8000=mul#7 > [1]", "mul [1,8]#1 [1,8]#1 > [1,8]#7 ; reduce_sum [1,8]@0:8000=mul#7 > [1]", NULL },
    /* gain, offset, activation */
    { "output-port-step", "m1", "linear [1,4] c[1,4] > [1,1]#3 ; mul [1,1]=linear#3 c[] > [1,1]@0:40000", "linear [1,4] c[1,4] > [1,1]#3 ; mul [1,1]=linear#3*2 c[] > [1,1]@0:40000", NULL },
    { "output-port-step", "m5", "matmul [1,4] [4,1] > [1,1]#3 ; mul c[] [1,1]=matmul#3 > [1,1]#4 ; sub [1,1]=mul#4 c[1] > [1,1]#5 ; exp [1,1]=sub#5 > [1,1]@0:32768",
      "matmul [1,4] [4,1] > [1,1]#3 ; sub c[1] [1,1]=matmul#3 > [1,1]#4 ; exp [1,1]=sub#4 > [1,1]@0:32768", NULL },
    { "output-port-step", "m1", "mul [1,8] [1,8] > [1,8]#7 ; reduce_sum [1,8]=mul#7 > [1]#8 ; add [1]=reduce_sum#8 c[] > [1]@-40000:0",
      "conv [1,1,1,32] c[1,1,1,1] > [1,1,1,32]#3 ; add [1,1,1,32]=conv#3 c[] > [1,1,1,32]@-40000:0", NULL },
    { "output-port-step", "m1", "conv [1,2,1,32] c[4,2,1,1] > [1,4,1,32]#3 ; add [1,4,1,32]=conv#3 c[1,4,1,1] > [1,4,1,32]@-40000:0",
      "conv [1,2,1,32] c[4,2,1,1] > [1,4,1,32]#3 ; add [1,4,1,32]=conv#3 c[1,4,1,32] > [1,4,1,32]@-40000:0", NULL },
    { "output-port-step", "m1", "matmul c[6,4] [4,8] > [6,8]#3 ; add [6,8]=matmul#3 c[6,1] > [6,8]@-40000:0",
      "matmul c[6,4] [4,8] > [6,8]#3 ; add [6,8]=matmul#3 c[8] > [6,8]@-40000:0", NULL },
    { "output-port-step", "m1", "matmul [6,4] [4,8] > [6,8]#3 ; add [6,8]=matmul#3 c[8] > [6,8]@-40000:0",
      "matmul [6,4] [4,8] > [6,8]#3 ; add [6,8]=matmul#3 c[6,1] > [6,8]@-40000:0", NULL },
    { "output-port-step", "m1", "linear [1,4] c[1,4] > [1,1]#3 ; add [1,1]=linear#3 c[] > [1,1]@0:40000", "linear [1,4] c[1,4] > [1,1]#3 ; add [1,1]=linear#3 c[] > [1,1]#4 ; mul [1,1]=add#4 c[] > [1,1]@0:40000", NULL },
    /* unknown: no noise */
    { "output-port", "m1", "matmul [1,1,4,64]@0:60000 [1,1,64,4]@-1:1 > [1,1,4,4]", "matmul [1,1,4,64] [1,1,64,4] > [1,1,4,4]", NULL },
    { "mask-floor", "m1", "add [1,1,4,4] c[1,1,4,4]@-65504:0 > [1,1,4,4]", "add [1,1,4,4] c[1,1,4,4]@-10000:0 > [1,1,4,4]", NULL },
    { "mask-floor", "m1", "sub [1,1,4,4] c[1,1,4,4]@0:65504 > [1,1,4,4]", "add [1,1,4,4] c[1,1,4,4] > [1,1,4,4]", NULL },
    { "eps-zero", "m5", "add [1,8] c[]@1e-9:1e-9 > [1,8]", "add [1,8] c[]@0:0 > [1,8]", NULL },
    { "eps-zero", "m1", "rsqrt [1,8] > [1,8] | epsilon=1e-12", "rsqrt [1,8] > [1,8]", NULL },
    { "eps-subnormal", "m1", "add [1,8] c[]@1e-5:1e-5 > [1,8]", "add [1,8] c[]@1e-4:1e-4 > [1,8]", "m5" },
    { "eps-subnormal", "m4", "layer_norm [1,8] > [1,8] | epsilon=1e-5", "layer_norm [1,8] > [1,8] | epsilon=0.001", "m5" },
    { "eps-subnormal", "m1", "maximum [1,8] c[]@1e-6:1e-6 > [1,8]", "maximum [1,8] c[8]@1e-6:3 > [1,8]", NULL },
    { "eps-subnormal-kept", "m5", "add [1,8] c[]@1e-5:1e-5 > [1,8]", "add [1,8] c[]@1:1 > [1,8]", "m4" },
    { "sum-of-squares", "m1", "reduce_sum [1,768,1,32]@0:inf=square > [1,1,1,32] | axes=1", "reduce_mean [1,768,1,32]@0:inf=square > [1,1,1,32] | axes=1", NULL },
    { "sum-of-squares", "m1", "reduce_sum_square [1,768,1,32] > [1,1,1,32] | axes=1", "reduce_sum_square [1,768,1,32]@-9:9 > [1,1,1,32] | axes=1", NULL },
    { "sum-of-squares", "m1", "reduce_sum [1,768,1,32]@0:inf=mul > [1,1,1,32] | axes=1", "reduce_sum [1,768,1,32]=mul > [1,1,1,32] | axes=1", NULL },
    { "square-overflow", "m1", "square [1,8]@0:256 > [1,8]", "square [1,8]@0:255 > [1,8]", NULL },
    { "square-overflow", "m1", "mul [1,8]@-300:0#3 [1,8]@-300:0#3 > [1,8]", "mul [1,8]@-300:0#3 [1,8]@-300:0#4 > [1,8]", NULL },
    { "sum-overflow", "m1", "reduce_sum [1,8]@0:9000 > [1] | axes=1", "reduce_sum [1,8]@0:8000 > [1] | axes=1", NULL },
    { "long-sum", "m1", "reduce_sum [1,4096] > [1] | axes=1", "reduce_sum [1,4095] > [1] | axes=1", NULL },
    { "exp-overflow", "m1", "exp [1,8]@0:12 > [1,8]", "exp [1,8]@0:11 > [1,8]", NULL },
    { "negative-root", "m1", "sqrt [1,8]@-1:1 > [1,8]", "sqrt [1,8]@0:1 > [1,8]", NULL },
    { "nan-test", "m1", "not_equal [1,8]#7 [1,8]#7 > bool[1,8]", "not_equal [1,8]#7 [1,8]#8 > bool[1,8]", NULL },
    { "deep-sum", "m1", "linear [1,4096] c[8,4096] > [1,8]", "linear [1,4095] c[8,4095] > [1,8]", NULL },
    { "fan-in", "m1", "concat [1,1] [1,1] [1,1] [1,1] [1,1] [1,1] [1,1] [1,1] [1,1] [1,1] [1,1] [1,1] > [1,12] | axis=1", "concat [1,1] [1,1] > [1,2] | axis=1", NULL },
    { "dead-output", "m1", "input > [1,8] ! ret", "input > [1,8]", NULL },
    /* surfaces */
    { "surface-minimum", "m1", "in x [1,64,1,32]", "in x [1,768,1,32]", NULL },
    { "surface-minimum", "m4", "out y [1,64,1,32]", "out y [1,768,1,32]", NULL },
    { "input-width", "m3", "in x [1,4096,1,16]", "in x [1,4096,1,32] ; out y [1,4096,1,16]", NULL },
    { "input-sizes", "m4", "in a [1,64,1,32] ; in b [1,96,1,32]", "in a [1,64,1,32] ; in b [1,32,1,64]", NULL },
    { "output-sizes", "m4", "out a [1,64,1,32] ; out b [1,96,1,32]", "out a [1,64,1,32]", NULL },
    { "packed-surface", "m4", "in a [1,64,1,32] ; in b [1,96,1,32]", "in a [1,64,1,32] ; in b [1,64,1,32]", NULL },
    { "input-order", "m4", "in x [1,8] ; in lora_A [1,8]", "in a [1,8] ; in b [1,8]", NULL },
    { "output-order", "m4", "out q32 [1,8] ; out k32 [1,8]", "out k32 [1,8] ; out q32 [1,8]", NULL },
    { "row-padding", "m1", "in x [1,8,1,77]", "in x [1,8,1,80]", NULL },
    { "working-set", "m1", "live=2097153", "live=2097152", "m5" },
    { "working-set", "m5", "live=5000000", "live=4900000", NULL },
    /* the program */
    { "baked-weights", "m1", "conv [1,8,1,32] c[8,8,1,1] > [1,8,1,32]", "conv [1,8,1,32] i[8,8,1,1] > [1,8,1,32]", NULL },
    { "empty-weights", "m4", "text ; relu [1,8] > [1,8]", "text ; const > [8,8,1,1]", NULL },
    { "output-port-unknown", "m1", "mul [1,8] [1,8] > [1,8]#7 ; reduce_sum [1,8]=mul#7 > [1]", "mul [1,8] [1,8] > [1,8]#7 ; reduce_sum [1,8]=mul#7*2 > [1]", NULL },
    { "output-port-unknown", "m1", "matmul [1,1,4,64] [1,1,64,4] > [1,1,4,4]", "matmul [1,1,4,64]@0:1 [1,1,64,4]@0:1 > [1,1,4,4]", NULL },
    { "functions", "m1", "funcs=2", "funcs=1", NULL },
    { "compile-budget", "m1", "funcs=120", "funcs=99", NULL },
    { "coremlc-version", "m1", "noversion", "text", NULL },
    { "dialect", "m1", "version=1.3 ; opset=ios18", "version=1.0 ; opset=ios16", "m4" },
};

static size_t count_rule(const char *chip_word, const char *line, const char *rule)
{
    opcase c;
    findings f = { 0 };
    diag d = { 0 };
    size_t n = 0;
    const chip *t = chip_find(chip_word);
    assert_non_null(t);
    opcase_read(&c, line);
    assert_ok(rules_check(t, &c.view, &c.mem, &f, &d), d);
    for (size_t i = 0; i < f.n; i++) {
        assert_non_null(f.at[i].message);
        assert_null(strstr(f.at[i].message, "{seen}"));
        assert_true(*f.at[i].message && *f.at[i].fix && *f.at[i].evidence);
        n += !strcmp(f.at[i].rule, rule);
    }
    opcase_free(&c);
    return n;
}

static void test_every_rule(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        if (!count_rule(cases[i].chip, cases[i].bad, cases[i].rule))
            fail_msg("%s on %s does not fire for: %s", cases[i].rule, cases[i].chip, cases[i].bad);
        if (count_rule(cases[i].chip, cases[i].good, cases[i].rule))
            fail_msg("%s on %s fires for: %s", cases[i].rule, cases[i].chip, cases[i].good);
        if (cases[i].quiet && count_rule(cases[i].quiet, cases[i].bad, cases[i].rule))
            fail_msg("%s fires on %s for: %s", cases[i].rule, cases[i].quiet, cases[i].bad);
    }
}

/* rule_fires and rules_check_op see the same rows as rules_check. */
static void test_one_op(void **state)
{
    (void)state;
    size_t agreed = 0;
    for (size_t i = 0; i < COUNT(cases); i++) {
        opcase c;
        findings f = { 0 };
        diag d = { 0 };
        const chip *t = chip_find(cases[i].chip);
        opcase_read(&c, cases[i].bad);
        for (size_t k = 1; k < c.ops.n; k++) {
            bool seen = false, fires = rule_fires(cases[i].rule, t, &c.ops.at[k]);
            f.n = 0;
            assert_ok(rules_check_op(t, &c.ops.at[k], &c.mem, &f, &d), d);
            for (size_t j = 0; j < f.n; j++) seen |= !strcmp(f.at[j].rule, cases[i].rule);
            if (seen != fires) fail_msg("%s: rule_fires and rules_check_op differ", cases[i].rule);
            agreed += fires;
        }
        opcase_free(&c);
    }
    assert_true(agreed > 80);
}

static bool is_route(const char *json, const char *id)
{
    char key[80];
    snprintf(key, sizeof key, "{\"id\":\"%s\",\"tests\":\"the route", id);
    return strstr(json, key) != NULL;
}

static void test_no_rule_without_a_case(void **state)
{
    (void)state;
    strbuf b = { 0 };
    rules_print(&b, "json");
    size_t routes = 0;
    for (size_t i = 0; i < rule_count(); i++) {
        bool have = false;
        for (size_t k = 0; k < COUNT(cases); k++) have |= !strcmp(cases[k].rule, rule_id_at(i));
        for (size_t k = 0; k < i; k++) assert_string_not_equal(rule_id_at(i), rule_id_at(k));
        if (is_route(b.at, rule_id_at(i))) routes++;
        else if (!have) fail_msg("rule %s has no case", rule_id_at(i));
    }
    for (size_t k = 0; k < COUNT(cases); k++) {
        bool have = false;
        for (size_t i = 0; i < rule_count(); i++) have |= !strcmp(cases[k].rule, rule_id_at(i));
        if (!have) fail_msg("case for %s, which is no rule", cases[k].rule);
    }
    assert_int_equal(routes, 10);
    sb_free(&b);
}

/* Every row of the constraint catalogue and every compile-legality row is cited by some table. */
static void test_evidence(void **state)
{
    (void)state;
    strbuf b = { 0 };
    rules_print(&b, "json");
    gates_print(&b, "json");
    chip_print(&b, "json");
    char want[24];
    for (int n = 1; n <= 20; n++) {
        bool found = false;
        snprintf(want, sizeof want, "catalogue %d", n);
        for (const char *p = b.at; (p = strstr(p, want)); p += 4) found |= !isdigit((unsigned char)p[strlen(want)]);
        if (!found) fail_msg("no row cites %s", want);
    }
    for (int n = 1; n <= 48; n++) {
        bool found = false;
        snprintf(want, sizeof want, " C%d", n);
        for (const char *p = b.at; (p = strstr(p, want)); p += 2) found |= !isdigit((unsigned char)p[strlen(want)]);
        if (!found) fail_msg("no row cites facts 4.3%s", want);
    }
    sb_free(&b);
}

static void test_legalizers(void **state)
{
    (void)state;
    static const char *const names[] = { "gelu",           "conv_bias",       "matmul_conv", "causal_mask",
                                         "uniform_ports",  "sort_ports",      "pad_surface", "split_dim",
                                         "chunk_channels", "depth_broadcast", "none" };
    bool used[COUNT(names)] = { false };
    for (size_t i = 0; i < rule_count(); i++) {
        bool known = false;
        for (size_t k = 0; k < COUNT(names); k++)
            if (!strcmp(rule_legalizer_at(i), names[k])) known = used[k] = true;
        if (!known) fail_msg("%s names the unknown rewrite %s", rule_id_at(i), rule_legalizer_at(i));
    }
    for (size_t k = 0; k < COUNT(names); k++)
        if (!used[k]) fail_msg("no rule names %s", names[k]);
}

static const char clean[] = "in x [1,64,32,32] ; out y [1,64,32,32] ; input > [1,64,32,32] ; const > [64,64,3,3] ;"
                            "conv i[1,64,32,32] c[64,64,3,3] > [1,64,32,32] | pad_type=custom pad=1,1,1,1 strides=1,1 dilations=1,1 groups=1 ;"
                            "relu [1,64,32,32]=conv > [1,64,32,32] ; live=262144 ; text";

static void test_clean_program(void **state)
{
    (void)state;
    for (size_t i = 0; i < chip_count(); i++) {
        opcase c;
        findings f = { 0 };
        diag d = { 0 };
        opcase_read(&c, clean);
        assert_ok(rules_check(chip_at(i), &c.view, &c.mem, &f, &d), d);
        for (size_t k = 0; k < f.n; k++)
            if (f.at[k].sev != SEV_NOTE) fail_msg("%s on %s: %s", f.at[k].rule, chip_name(chip_at(i)), f.at[k].message);
        opcase_free(&c);
    }
}

static void test_messages(void **state)
{
    (void)state;
    static const struct {
        const char *chip, *line, *rule, *message;
    } want[] = {
        { "m1", "relu [1,1,1,1,1,2] > [1,1,1,1,1,2]", "rank", "tensor rank 6 exceeds the ANE maximum of 5" },
        { "m1", "relu [1,8,16385,1] > [1,8,16385,1]", "max-dimension", "the height of a rank-4 result is 16385: exceeds ANE family 2's max dimension 16384" },
        { "m1", "conv [1,8,4,4] c[9,2,1,1] > [1,9,4,4] | groups=3", "conv-groups",
          "input/output channels should be divisible by num group: KernelChannels (2) != InputChannels (8) / Group (3)" },
        { "m1", "in q int32[1,8]", "input-dtype", "input q is int32: dtype must be 'fp16' or 'uint8'" },
        { "m1", "sin [1,8] > [1,8]", "op-unsupported", "sin is not available to MIL programs on m1: it begins with family 4 (H15)" },
        { "m1", "reduce_sum [1,768,1,32]=square > [1,1,1,32] | axes=1", "sum-of-squares",
          "a sum of 768 squares overflows fp16 (65504) once the rms of its input passes 9.24" },
        { "m1", "pixel_shuffle [1,50,4,4] > [1,2,20,20] | upscale_factor=5", "shuffle-factor", "block factor 5: must be one of 1, 2, 3, 4, 8" },
    };
    for (size_t i = 0; i < COUNT(want); i++) {
        opcase c;
        findings f = { 0 };
        diag d = { 0 };
        opcase_read(&c, want[i].line);
        assert_ok(rules_check(chip_find(want[i].chip), &c.view, &c.mem, &f, &d), d);
        const char *got = NULL;
        for (size_t k = 0; k < f.n; k++)
            if (!strcmp(f.at[k].rule, want[i].rule)) got = f.at[k].message;
        assert_non_null(got);
        assert_string_equal(got, want[i].message);
        opcase_free(&c);
    }
}

/* mul(x, x) is seen as a square through the identity of its operands, mul(x, y) is not. */
static void test_square_by_identity(void **state)
{
    (void)state;
    const char *same =
        "mul [1,768,1,32]#1 [1,768,1,32]#1 > [1,768,1,32]#2 ; reduce_sum [1,768,1,32]=mul#2 > [1,1,1,32] | axes=1";
    const char *other =
        "mul [1,768,1,32]#1 [1,768,1,32]#5 > [1,768,1,32]#2 ; reduce_sum [1,768,1,32]=mul#2 > [1,1,1,32] | axes=1";
    assert_int_equal(count_rule("m1", same, "sum-of-squares"), 1);
    assert_int_equal(count_rule("m1", other, "sum-of-squares"), 0);
}

static void test_no_memory(void **state)
{
    (void)state;
    opcase c;
    opcase_read(&c, clean);
    bool ok = false;
    for (size_t limit = 1; !ok && limit < 1u << 20; limit += 97) {
        arena a = { .limit = limit };
        findings f = { 0 };
        diag d = { 0 };
        an_status st = rules_check(chip_find("m1"), &c.view, &a, &f, &d);
        assert_true(st == AN_OK || st == AN_NOMEM);
        ok = st == AN_OK;
        arena_free(&a);
    }
    assert_true(ok);
    opcase_free(&c);
}

/* Whatever an operation looks like, rules and costs answer and nothing is read out of bounds (the sanitizer build
 * watches). */
static void test_odd_operations(void **state)
{
    (void)state;
    rng r = { test_seed("odd operations") };
    static const int64_t dims[] = { -1, 0, 1, 2, 3, 7, 16, 32000, 70000, INT64_C(1) << 40 };
    static const dtype types[] = { DT_F16, DT_F32, DT_BF16, DT_U8, DT_I8, DT_I32, DT_U4, DT_BOOL };
    for (int n = 0; n < 20000; n++) {
        op_id op = (op_id)rng_below(&r, OP_COUNT);
        const op_info *info = op_get(op);
        operand in[8] = { { .present = false } };
        ttype out[3];
        bool ret[3] = { true, false, true };
        attr at[OP_MAX_ATTRS];
        int64_t list[OP_MAX_ATTRS][6];
        op_inst o = { .op = op,
                      .mil = info->mil,
                      .name = "v",
                      .n_in = (int)rng_below(&r, 8),
                      .n_out = (int)rng_below(&r, 4),
                      .in = in,
                      .out = out,
                      .out_is_output = ret,
                      .attrs = at,
                      .flags = (unsigned)rng_below(&r, 8) };
        for (int i = 0; i < o.n_in + o.n_out; i++) {
            ttype t = { .dt = types[rng_below(&r, COUNT(types))], .sh.rank = (int)rng_below(&r, MAX_RANK + 1) };
            for (int k = 0; k < t.sh.rank; k++) t.sh.d[k] = dims[rng_below(&r, COUNT(dims))];
            if (i >= o.n_in) out[i - o.n_in] = t;
            else
                in[i] = (operand){ .type = t,
                                   .present = rng_below(&r, 5) != 0,
                                   .is_const = rng_below(&r, 2),
                                   .is_input = rng_below(&r, 2),
                                   .range = { -INFINITY, rng_below(&r, 2) ? 3 : INFINITY },
                                   .from = (op_id)rng_below(&r, OP_COUNT),
                                   .value = (uint32_t)rng_below(&r, 3),
                                   .n_uses = 1 };
        }
        for (int i = 0; i < info->n_attr; i++) {
            if (rng_below(&r, 3) == 0) continue;
            attr a = { .id = info->attr[i].id, .kind = info->attr[i].kind };
            if (a.kind == ATTR_STR) a.u.s = rng_below(&r, 2) ? "custom" : "valid";
            else if (a.kind == ATTR_FLOAT) a.u.f = rng_range(&r, -1, 1);
            else if (a.kind == ATTR_INTS || a.kind == ATTR_BOOLS) {
                a.n = (int)rng_below(&r, 7);
                for (int k = 0; k < a.n; k++) list[i][k] = (int64_t)rng_below(&r, 40) - 4;
                a.u.is = list[i];
            } else a.u.i = (int64_t)rng_below(&r, 40) - 4;
            at[o.n_attr++] = a;
        }
        arena mem = { 0 };
        findings f = { 0 };
        diag d = { 0 };
        const chip *c = chip_at(rng_below(&r, chip_count()));
        op_inst prog[2] = { { .op = OP_INPUT }, o };
        prog_view v = { .ops = prog, .n_ops = 2 };
        assert_ok(rules_check(c, &v, &mem, &f, &d), d);
        op_cost k = cost_op(c, &o);
        prog_cost p = cost_program(c, &v);
        if (!(k.flops >= 0) || !(k.bytes >= 0) || !isfinite(p.latency_us) || p.latency_us < 0)
            fail_msg("%s: cost is not a number", info->mil);
        arena_free(&mem);
    }
}

static void test_print(void **state)
{
    (void)state;
    for (int k = 0; k < 3; k++) {
        static const char *const format[] = { "text", "json", "markdown" };
        strbuf b = { 0 };
        rules_print(&b, format[k]);
        assert_false(b.oom);
        for (size_t i = 0; i < rule_count(); i++) assert_non_null(strstr(b.at, rule_id_at(i)));
        if (k == 1) {
            size_t lines = 0;
            for (const char *p = b.at; *p; p = strchr(p, '\n') + 1) {
                lines++;
                for (const char *const *w =
                         (const char *const[]){ "\"id\":", "\"tests\":", "\"verdict\":", "\"targets\":", "\"message\":",
                                                "\"fix\":", "\"evidence\":", "\"dispute\":", "\"legalizer\":", NULL };
                     *w; w++)
                    assert_non_null(strstr(p, *w));
            }
            assert_int_equal(lines, rule_count());
        }
        sb_free(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_rule),
        cmocka_unit_test(test_one_op),
        cmocka_unit_test(test_no_rule_without_a_case),
        cmocka_unit_test(test_evidence),
        cmocka_unit_test(test_legalizers),
        cmocka_unit_test(test_clean_program),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_square_by_identity),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_odd_operations),
        cmocka_unit_test(test_print),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
