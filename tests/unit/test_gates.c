/* Which operation is there on which chip: every operation of the table has a row, and the rows say what was
 * published. */
#include "opcase.h"

static void test_every_op_has_a_row(void **state)
{
    (void)state;
    for (int i = 0; i < OP_COUNT; i++) {
        if (i == OP_INPUT || i == OP_OPAQUE) continue;
        const char *mil = op_get((op_id)i)->mil;
        for (size_t k = 0; k < chip_count(); k++)
            if (gate_of(mil, chip_at(k), NULL) == GATE_UNKNOWN) fail_msg("%s has no row", mil);
    }
}

/* Every name of the published vocabulary, by class. */
static const char *const vocabulary[] = {
    "conv conv_transpose linear linear_activation matmul ne_matmul einsum ne_conv avg_pool max_pool l2_pool ne_pool pe_pool pe_elementwise "
    "scaled_dot_product_attention pe_goc ne_bypass",
    "batch_norm layer_norm instance_norm l2_norm local_response_norm",
    "abs add sub mul real_div floor_div pow square sqrt rsqrt inverse maximum minimum cumsum mod",
    "equal not_equal greater greater_equal less less_equal logical_not select logical_and logical_or logical_xor",
    "relu relu6 leaky_relu prelu clamped_relu thresholded_relu threshold clip elu sigmoid sigmoid_hard tanh scaled_tanh gelu silu softmax "
    "softplus softplus_parametric softsign erf exp exp2 log sign ceil floor round",
    "reduce_sum reduce_mean reduce_max reduce_min reduce_sum_square reduce_l1_norm reduce_l2_norm reduce_log_sum reduce_log_sum_exp "
    "reduce_argmax reduce_argmin reduce_prod",
    "reshape reshape_like expand_dims squeeze flatten2d transpose concat split stack pad slice_by_size slice_update reverse tile gather "
    "gather_along_axis depth_to_space space_to_depth pixel_shuffle pixel_unshuffle space_to_batch batch_to_space identity fill fill_like crop "
    "slice_by_index range_1d gather_nd reverse_sequence scatter scatter_along_axis scatter_nd band_part non_zero one_hot shape sliding_windows",
    "resize resize_bilinear resize_nearest_neighbor upsample_bilinear upsample_nearest_neighbor crop_resize resample affine "
    "pixel_buffer_to_tensor tensor_to_pixel_buffer gamma degamma",
    "cast quantize dequantize constexpr_lut_to_dense constexpr_sparse_to_dense const constexpr_affine_dequantize constexpr_lut_to_sparse "
    "constexpr_blockwise_shift_scale constexpr_sparse_blockwise_shift_scale constexpr_cast",
    "read_state write_state tensor_buffer_to_tensor tensor_to_tensor_buffer circular_buffer_to_tensor tensor_to_circular_buffer cond "
    "while_loop call gru lstm rnn",
    "atan sin cos tan asin acos atanh asinh acosh sinh cosh cross_product cost_volume matrix_decomposition",
    "non_maximum_suppression random_uniform topk argsort random_bernoulli random_categorical random_normal list_gather list_length list_read "
    "list_scatter list_write make_list",
};

static void test_vocabulary(void **state)
{
    (void)state;
    size_t n = 0;
    for (size_t i = 0; i < COUNT(vocabulary); i++) {
        for (const char *p = vocabulary[i]; *p; n++) {
            char word[64];
            size_t len = strcspn(p, " ");
            snprintf(word, sizeof word, "%.*s", (int)len, p);
            const char *fix = NULL;
            gate g = gate_of(word, chip_find("m1"), &fix);
            if (g == GATE_UNKNOWN) fail_msg("%s has no row", word);
            op_id op;
            if (g == GATE_NONE && !*fix) fail_msg("%s is refused and nothing is offered instead", word);
            if (g == GATE_NATIVE && !op_find(word, len, &op))
                fail_msg("%s is native and missing from the op table", word);
            p += len + strspn(p + len, " ");
        }
    }
    strbuf b = { 0 };
    size_t lines = 0;
    gates_print(&b, "json");
    for (const char *p = b.at; (p = strchr(p, '\n')); p++) lines++;
    assert_int_equal(lines, n); /* no row that the vocabulary does not have */
    sb_free(&b);
    gates_print(&b, "markdown");
    assert_non_null(strstr(b.at, "| sin | none | none | native |"));
    sb_free(&b);
    gates_print(&b, "text");
    assert_false(b.oom);
    sb_free(&b);
}

static void test_families(void **state)
{
    (void)state;
    static const struct {
        const char *mil;
        gate m1, m2, m3, m5;
    } want[] = {
        { "conv", GATE_NATIVE, GATE_NATIVE, GATE_NATIVE, GATE_NATIVE },
        { "sin", GATE_NONE, GATE_NONE, GATE_NATIVE, GATE_NATIVE },
        { "topk", GATE_NONE, GATE_NATIVE, GATE_NATIVE, GATE_NATIVE },
        { "argsort", GATE_NONE, GATE_NATIVE, GATE_NATIVE, GATE_NATIVE },
        { "crop_resize", GATE_NONE, GATE_NATIVE, GATE_NATIVE, GATE_NATIVE },
        { "resize", GATE_BRIDGE, GATE_NATIVE, GATE_NATIVE, GATE_NATIVE },
        { "gather_nd", GATE_BRIDGE, GATE_NATIVE, GATE_NATIVE, GATE_NATIVE },
        { "reduce_argmin", GATE_BRIDGE, GATE_BRIDGE, GATE_NATIVE, GATE_NATIVE },
        { "random_uniform", GATE_BRIDGE, GATE_BRIDGE, GATE_NATIVE, GATE_NATIVE },
        { "constexpr_blockwise_shift_scale", GATE_BRIDGE, GATE_BRIDGE, GATE_NATIVE, GATE_NATIVE },
        { "reduce_prod", GATE_NONE, GATE_NONE, GATE_NONE, GATE_NONE },
        { "read_state", GATE_NONE, GATE_NONE, GATE_NONE, GATE_NONE },
        { "while_loop", GATE_BRIDGE, GATE_BRIDGE, GATE_BRIDGE, GATE_BRIDGE },
        { "neg", GATE_UNKNOWN, GATE_UNKNOWN, GATE_UNKNOWN, GATE_UNKNOWN },
    };
    for (size_t i = 0; i < COUNT(want); i++) {
        assert_int_equal(gate_of(want[i].mil, chip_find("m1"), NULL), want[i].m1);
        assert_int_equal(gate_of(want[i].mil, chip_find("m2"), NULL), want[i].m2);
        assert_int_equal(gate_of(want[i].mil, chip_find("m3"), NULL), want[i].m3);
        assert_int_equal(gate_of(want[i].mil, chip_find("m5"), NULL), want[i].m5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_every_op_has_a_row), cmocka_unit_test(test_vocabulary),
                                        cmocka_unit_test(test_families) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
