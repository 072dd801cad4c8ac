/* prop_codegen.c: a compiled program computes what its graph means.
 *   - one statement of every row of the op table, and random graphs in fp32, on the plain processor's rules: the reference
 *     executor agrees with the evaluator. Tolerance 3e-5 of max(1, |value|): a few roundings of fp32 (6e-8) through sums of
 *     some hundred terms and functions with slopes up to some tens; both levels, and each with memory reused and not.
 *   - random fp16 graphs on every chip's rules: levels, memory plan and resident binding change no byte. */
#include "codegen_t.h"
#include "every_op.h"
#include "prop/randgraph.h"

static const char start[] = "graph \"every op\"\n"
                            "x = input fp32[1, 8, 4, 4]\n"
                            "m = input fp32[4, 4]\n"
                            "ix = input int32[3]\n"
                            "i2 = input int32[4, 4]\n"
                            "bo = input bool[4, 4]\n"
                            "cx = input fp32[1, 2, 2, 2]\n"
                            "boxes = input fp32[3, 4]\n"
                            "mat = input fp32[1, 6]\n"
                            "ch = const fp32[8] {0.5, 1, 2, 3, 0.1, 4, 0.25, 0.75}\n"
                            "w1 = const fp32[4, 8, 1, 1] all 0.25\n"
                            "wt = input fp32[8, 2, 2, 2]\n"
                            "w2 = input fp32[5, 4]\n";

static const double tolerance = 3e-5;

/* Values each operand can take: positive where logarithms look, indices inside, boxes inside the plane. */
static void every_input(const graph *g, rng *r, tensor64 *in, arena *mem)
{
    for (size_t i = 0; i < g->inputs.n; i++) {
        const value *v = graph_value(g, g->inputs.at[i]);
        int64_t n;
        in[i].type = v->type;
        assert_true(shape_elems(&v->type.sh, &n));
        in[i].x = TAKE(mem, double, (size_t)n);
        for (int64_t k = 0; k < n; k++) {
            double u = rng_range(r, 0.05, 2);
            if (!strcmp(v->name, "ix")) u = k == 1 ? -1 : 0;
            else if (!strcmp(v->name, "i2")) u = k % 4 == 1 || k % 4 == 2 ? (double)(k * 7 / 4 % 4) : 0;
            else if (!strcmp(v->name, "bo")) u = k % 4 <= k / 4 || k % 3 == 0;
            else if (!strcmp(v->name, "m")) u = rng_range(r, -2, 2);
            else if (!strcmp(v->name, "cx")) u = rng_range(r, -1, 4);
            else if (!strcmp(v->name, "boxes")) u = k % 4 < 2 ? rng_range(r, 0, 1) : rng_range(r, 1, 3);
            else if (!strcmp(v->name, "mat")) u = rng_range(r, -0.5, 1);
            in[i].x[k] = dtype_round(v->type.dt, u);
        }
    }
}

static void agrees(const graph *g, const tensor64 *in, const char *what)
{
    arena mem = { 0 };
    diag d = { 0 };
    tensor64 *want = TAKE(&mem, tensor64, g->outputs.n);
    if (graph_eval(g, in, want, &mem, &d)) fail_msg("%s: eval: %s", what, d.msg);
    for (int level = 0; level < 2; level++) {
        program *p = cgt_compile(g, &(codegen_options){ .level = level });
        void **out = cgt_outputs(p, &mem);
        cgt_run(p, cgt_inputs(p, g, in, &mem), out, true);
        cgt_close(p, out, g, want, tolerance, what);
        program *q = cgt_compile(g, &(codegen_options){ .level = level, .no_reuse = true });
        void **apart = cgt_outputs(q, &mem);
        assert_true(p->scratch_bytes <= q->scratch_bytes);
        cgt_run(q, cgt_inputs(q, g, in, &mem), apart, true);
        cgt_same_bytes(p, out, q, apart, what);
        program_free(p);
        program_free(q);
    }
    arena_free(&mem);
}

static void every_row(void **state)
{
    (void)state;
    uint64_t seed = test_seed("every op compiled");
    bool seen[OP_COUNT] = { false };
    strbuf all = { 0 };
    sb_puts(&all, start);
    for (size_t i = 0; i < COUNT(every_op); i++) sb_printf(&all, "%s\n", every_op[i]);
    for (char *p = all.at; (p = strstr(p, "fp16")); p += 4) memcpy(p, "fp32", 4);
    for (size_t i = 0; i < COUNT(every_op); i++) {
        char names[80], *p = names, what[120];
        size_t n = strcspn(every_op[i], "=");
        /* judged by what joins its results */
        if (strstr(every_op[i], "= const ") || strstr(every_op[i], "sparse_blockwise")) continue;
        snprintf(names, sizeof names, "%.*s", (int)n, every_op[i]);
        snprintf(what, sizeof what, "%s", every_op[i]);
        strbuf text = { 0 };
        sb_printf(&text, "%sreturn ", all.at);
        int k = 0;
        for (char *w = strtok(p, " ,"); w; w = strtok(NULL, " ,"), k++)
            sb_printf(&text, "%sout%d=%s", k ? ", " : "", k, w);
        sb_puts(&text, "\n");
        graph *g = cgt_parse(text.at);
        arena mem = { 0 };
        rng r = { seed + i };
        tensor64 *in = TAKE(&mem, tensor64, g->inputs.n);
        every_input(g, &r, in, &mem);
        agrees(g, in, what);
        seen[graph_maker(g, g->outputs.at[0].v)->op] = true;
        if (strstr(every_op[i], "sparse_to_dense")) seen[OP_CX_SPARSE_BLOCK] = true;
        arena_free(&mem);
        graph_free(g);
        sb_free(&text);
    }
    sb_free(&all);
    for (int i = 0; i < OP_COUNT; i++)
        if (!seen[i] && i != OP_INPUT && i != OP_CONST && i != OP_OPAQUE)
            fail_msg("%s was not compiled", op_get((op_id)i)->mil);
}

/* Forms the one statement per row does not show. */
static void other_forms(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "conv(a, w) {pad_type=\"same\", strides=[2], groups=2} | a fp32[2, 4, 7] | w fp32[6, 2, 3] ",
        "conv(a, w, b) {pad_type=\"custom\", pad=[1, 0, 2, 1, 0, 1], strides=[2, 1, 1], dilations=[1, 2, 1]} | a fp32[2, 3, 5, 6, 4] | w fp32[4, 3, 2, 2, 3] | b fp32[4]",
        "conv(a, w) {groups=2, pad_type=\"same_lower\"} | a fp32[1, 4, 3, 4, 4] | w fp32[6, 2, 2, 3, 2]",
        "conv_transpose(a, w, b) {strides=[2]} | a fp32[1, 4, 5] | w fp32[4, 3, 3] | b fp32[3]",
        "conv_transpose(a, w) {groups=2, pad_type=\"custom\", pad=[1, 0, 0, 1]} | a fp32[1, 4, 5, 4] | w fp32[4, 3, 3, 2]",
        "conv_transpose(a, w) {strides=[2, 2], pad_type=\"custom\", pad=[1, 1, 0, 1], output_shape=[1, 2, 6, 7]} | a fp32[1, 2, 3, 3] | w fp32[2, 2, 3, 3]",
        "conv_transpose(a, w, b) {strides=[3, 3], pad_type=\"same\", output_shape=[1, 2, 7, 8]} | a fp32[1, 2, 3, 3] | w fp32[2, 2, 2, 5] | b fp32[2]",
        "conv_transpose(a, w) {strides=[1, 2, 2], pad_type=\"same\"} | a fp32[1, 2, 3, 3, 2] | w fp32[2, 3, 2, 3, 2]",
        "avg_pool(a) {kernel_sizes=[2, 3, 2], strides=[2, 1, 2], pad_type=\"custom\", pad=[1, 0, 1, 1, 0, 0]} | a fp32[1, 2, 4, 5, 4]",
        "max_pool(a) {kernel_sizes=[3], strides=[2], ceil_mode=true} | a fp32[1, 2, 8]",
        "ne_pool(a) {mode=\"l1\", kernel_sizes=[2, 2], pad_type=\"same\"} | a fp32[1, 2, 5, 4]",
        "linear(a, w, b) | a fp32[2, 3, 4] | w fp32[5, 4] | b fp32[5]",
        "linear(a, w) | a fp32[4] | w fp32[5, 4]",
        "matmul(a, w) | a fp32[4] | w fp32[4]",
        "matmul(a, w) | a fp32[4] | w fp32[3, 4, 2]",
        "matmul(a, w) {transpose_x=true} | a fp32[3, 4, 5] | w fp32[4]",
        "matmul(a, w) {transpose_x=true, transpose_y=true} | a fp32[1, 3, 4, 5] | w fp32[2, 1, 6, 4]",
        "matmul(a, w) {transpose_x=true} | a fp32[1, 1, 4, 5] | w fp32[4, 6]",
        "einsum(a, w) {equation=\"nchw,nwhu->nchu\"} | a fp32[2, 3, 4, 5] | w fp32[2, 5, 4, 6]",
        "einsum(a, w) {equation=\"bhqd,bhkd->bhqk\"} | a fp32[2, 3, 4, 5] | w fp32[2, 3, 6, 5]",
        "einsum(a, w) {equation=\"ab,cb->ca\"} | a fp32[3, 4] | w fp32[5, 4]",
        "einsum(a, w) {equation=\"abc,cd->dab\"} | a fp32[3, 4, 2] | w fp32[2, 5]",
        "einsum(a, w) {equation=\"abc,bd->ad\"} | a fp32[3, 4, 2] | w fp32[4, 5]",
        "einsum(a, w) {equation=\"ab,cd->acbd\"} | a fp32[3, 4] | w fp32[2, 5]",
        "einsum(a, w) {equation=\"abc,cab->bca\"} | a fp32[3, 4, 2] | w fp32[2, 3, 4]",
        "einsum(a, w) {equation=\"ab,b->ba\"} | a fp32[3, 4] | w fp32[4]",
        "einsum(a, w) {equation=\"a,bc->b\"} | a fp32[3] | w fp32[4, 5]",
        "einsum(a, w) {equation=\"abc,ad->d\"} | a fp32[3, 4, 2] | w fp32[3, 5]",
        "scaled_dot_product_attention(a, w, b) | a fp32[2, 3, 4, 5] | w fp32[2, 1, 6, 5] | b fp32[1, 3, 6, 7]",
        "scaled_dot_product_attention(a, w, b, q) | a fp32[2, 3, 4, 5] | w fp32[2, 3, 6, 5] | b fp32[2, 3, 6, 7] | q fp32[4, 6]",
        "batch_norm(a, w, b) | a fp32[2, 3] | w fp32[3] | b fp32[3]",
        "instance_norm(a) | a fp32[2, 3, 5]",
        "layer_norm(a, w) {axes=[1, 3]} | a fp32[2, 3, 2, 4] | w fp32[3, 4]",
        "l2_norm(a) | a fp32[2, 2, 3, 2, 4]",
        "reduce_sum(a) {axes=[0, 2]} | a fp32[2, 3, 4]",
        "reduce_mean(a) {axes=[1], keep_dims=true} | a fp32[2, 3, 4]",
        "slice_by_index(a) {begin=[-1, 0, 3], end=[0, 2, 0], stride=[-1, 1, -2], end_mask=[true, false, true]} | a fp32[3, 4, 5]",
        "slice_by_index(a) {begin=[1, 2, -2], end=[0, 4, 0], squeeze_mask=[true, false, true]} | a fp32[3, 4, 5]",
        "slice_update(a, w) {begin=[0, 1], end=[3, 5], stride=[2, 2]} | a fp32[3, 6] | w fp32[2, 2]",
        "pad(a) {pad=[1, 0, 2, 3], mode=\"replicate\"} | a fp32[2, 3, 4]",
        "pad(a) {pad=[1, 2, 2, 1], mode=\"symmetric\"} | a fp32[2, 3, 4]",
        "pad(a) {pad=[1, 2, 0, 1], constant_val=-3.5} | a fp32[2, 3, 4]",
        "tile(a) {reps=[2, 1, 3]} | a fp32[2, 3, 4]",
        "tile(a) {reps=[2, 2, 2, 2, 2]} | a fp32[2, 2, 2, 2, 2]",
        "transpose(a) {perm=[-1, 0, 2, 1]} | a fp32[2, 3, 4, 5]",
        "concat(a, w) {axis=1} | a fp32[2, 3, 4] | w fp32[2, 1, 4]",
        "stack(a, w) {axis=0} | a fp32[2, 3] | w fp32[2, 3]",
        "space_to_batch(a) {block_shape=[2, 3], paddings=[1, 1, 2, 0]} | a fp32[2, 3, 4, 4]",
        "batch_to_space(a) {block_shape=[2, 3], crops=[1, 0, 2, 1]} | a fp32[12, 3, 3, 2]",
        "space_to_batch(a) {block_shape=[4], paddings=[5, 0]} | a fp32[1, 2, 3]",
        "resize(a) {shape=[3, 5, 7]} | a fp32[1, 2, 4, 4]",
        "resize(a) {shape=[3, 5, 7], mode=\"NEAREST_NEIGHBOR\"} | a fp32[1, 2, 4, 4]",
        "resize(a) {shape=[4, 3, 4], sampling_mode=\"OFFSET_CORNERS\"} | a fp32[1, 2, 4, 4]",
        "resize(a) {shape=[3, 7], sampling_mode=\"ALIGN_CORNERS\"} | a fp32[1, 2, 4, 4]",
        "resize(a) {shape=[9], sampling_mode=\"UNALIGN_CORNERS\"} | a fp32[1, 2, 4, 4]",
        "crop_resize(a, w) {target_height=2, target_width=3, normalized_coordinates=true} | a fp32[2, 2, 4, 4] | w fp32[3, 1, 4, 1, 1]",
        "topk(a) {k=-1, axis=0, ascending=true} | a fp32[5, 2]",
        "cumsum(a) {axis=1, exclusive=true} | a fp32[2, 5]",
        "reshape_like(a, w) {begins=[0], ends=[2], end_masks=[false]} | a fp32[2, 6] | w fp32[3, 4]",
        "add(a, w) | a fp32[2, 1, 4] | w fp32[3, 1]",
    };
    uint64_t seed = test_seed("other forms");
    for (size_t i = 0; i < COUNT(rows); i++) {
        char line[512];
        snprintf(line, sizeof line, "%s", rows[i]);
        strbuf text = { 0 };
        sb_puts(&text, "graph \"form\"\n");
        char *op = strtok(line, "|");
        for (char *v = strtok(NULL, "|"); v; v = strtok(NULL, "|")) {
            char name[8], type[40];
            if (sscanf(v, " %7s %39[^\n]", name, type) != 2) fail_msg("row %zu: %s", i, v);
            sb_printf(&text, "%s = input %s\n", name, type);
        }
        sb_printf(&text, "%s = %s\nreturn y\n", strstr(op, "topk(") ? "y, z" : "y", op);
        graph *g = cgt_parse(text.at);
        arena mem = { 0 };
        rng r = { seed + i };
        tensor64 *in = TAKE(&mem, tensor64, g->inputs.n);
        every_input(g, &r, in, &mem);
        agrees(g, in, rows[i]);
        arena_free(&mem);
        graph_free(g);
        sb_free(&text);
    }
}

/* A random graph whose constants are all short enough to be printed, so that it can be written in fp32. */
static void random_graphs(void **state)
{
    (void)state;
    uint64_t seed = test_seed("random graphs compiled");
    for (int i = 0; i < 150; i++) {
        rng r = { seed + (uint64_t)i * 7919 };
        graph *g = rg_graph(&r, &(rg_options){ .n_ops = 6 + i % 30, .smooth = true, .fused = i % 2 == 0 });
        assert_non_null(g);
        strbuf b = { 0 };
        graph_print(g, &b);
        if (!strstr(b.at, " hex ")) {
            graph *w = cgt_widened(g);
            arena mem = { 0 };
            char what[64];
            tensor64 *in = rg_inputs(w, &r, &mem);
            snprintf(what, sizeof what, "graph %d", i);
            agrees(w, in, what);
            arena_free(&mem);
            graph_free(w);
        }
        sb_free(&b);
        graph_free(g);
    }
}

/* What makes it faster changes nothing on a device that rounds each pass. */
static void soft_bytes(void **state)
{
    (void)state;
    static const char *const chips[] = { "m1", "m3", "m5" };
    uint64_t seed = test_seed("levels on soft");
    for (int i = 0; i < 90; i++) {
        rng r = { seed + (uint64_t)i * 104729 };
        graph *g = rg_graph(&r, &(rg_options){ .n_ops = 8 + i % 30, .fused = true });
        assert_non_null(g);
        numerics num;
        assert_true(codegen_numerics(chip_find(chips[i % 3]), &num));
        const codegen_options ways[] = { { .num = &num, .no_reuse = true },
                                         { .num = &num, .level = 1 },
                                         { .num = &num, .level = 1, .resident = true } };
        arena mem = { 0 };
        tensor64 *in = rg_inputs(g, &r, &mem);
        program *p[3];
        void **out[3];
        for (int k = 0; k < 3; k++) {
            char what[80];
            snprintf(what, sizeof what, "graph %d on %s, way %d", i, chips[i % 3], k);
            p[k] = cgt_compile(g, &ways[k]);
            out[k] = cgt_outputs(p[k], &mem);
            cgt_run(p[k], cgt_inputs(p[k], g, in, &mem), out[k], true);
            if (k) cgt_same_bytes(p[0], out[0], p[k], out[k], what);
        }
        for (int k = 0; k < 3; k++) program_free(p[k]);
        arena_free(&mem);
        graph_free(g);
    }
}

/* A batch has the same bits on a chip whatever number of them a program takes: blocks of a model, constants spelled
 * in several ways. */
static void batches_alike(void **state)
{
    (void)state;
    enum { H = 3, M = 5, K = 24, N = H * M * K, MOST = 3 };
    static const char *const chips[] = { "m1", "m3", "m5" };
    static const char *const blocks[] = {
        "s = matmul(x, x) {transpose_y=true}\nt = mul(s, a)\np = softmax(t)\ny = matmul(p, x)\n",
        "s = matmul(x, x) {transpose_y=true}\nt = mul(s, a)\nh = add(t, heads)\np = softmax(h)\ny = matmul(p, x)\n",
        "l = matmul(x, w)\nm = mul(l, g1)\nb = add(m, g4)\ny = silu(b)\n",
        "l = linear(x, w)\nm = mul(l, g4)\nb = add(m, g1)\ny = tanh(b)\n",
        "q = matmul(w, x) {transpose_y=true}\nm = mul(q, rows)\ny = transpose(m) {perm=[0, 1, 3, 2]}\n",
        "c = conv(x, k)\nm = mul(c, heads)\nb = add(m, heads)\ny = sigmoid(b)\n",
        "c = conv_transpose(x, k)\nm = mul(c, heads)\ny = layer_norm(m) {axes=[3]}\n",
    };
    static uint16_t x[MOST * N], out[MOST][MOST * N];
    rng r = { test_seed("batches") };
    for (int i = 0; i < MOST * N; i++) x[i] = f16_from_f64(rng_range(&r, -2, 2));
    for (size_t c = 0; c < COUNT(chips); c++)
        for (size_t k = 0; k < COUNT(blocks); k++)
            for (int batches = 1; batches <= MOST; batches++) {
                char text[1200];
                numerics num;
                assert_true(codegen_numerics(chip_find(chips[c]), &num));
                snprintf(text, sizeof text,
                         "graph \"block\"\nx = input fp16[%d, 3, 5, 24]\na = const fp16[1] all 0.21\nheads = const fp16[1, 3, 1, 1] {0.3, -0.7, 1.1}\nw = const fp16[24, 24] all 0.37\n"
                         "g1 = const fp16[24] all 0.61\ng4 = const fp16[1, 1, 1, 24] all -0.83\nrows = const fp16[1, 1, 24, 1] all 0.61\nk = const fp16[3, 3, 1, 1] all 0.37\n%sreturn y\n",
                         batches, blocks[k]);
                graph *g = cgt_parse(text);
                program *p = cgt_compile(g, &(codegen_options){ .num = &num, .level = 1 });
                cgt_run(p, (const void *const[]){ x }, (void *const[]){ out[batches - 1] }, false);
                if (memcmp(out[0], out[batches - 1], sizeof *x * N))
                    fail_msg("%s, %d batches: the first is another one than alone\n%s", chips[c], batches, text);
                program_free(p);
                graph_free(g);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(batches_alike), cmocka_unit_test(every_row),
                                        cmocka_unit_test(other_forms), cmocka_unit_test(random_graphs),
                                        cmocka_unit_test(soft_bytes) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
