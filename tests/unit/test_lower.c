/* test_lower.c: MIL to graph and back: what is accepted, what is refused and where, weight files, the canonical
 * text. */
#include <sys/stat.h>
#include <unistd.h>

#include "codegen/codegen.h"
#include "lower_t.h"

#define HEAD "program(1.3)\n[buildInfo = dict<string, string>({{\"coremlc-version\", \"3520.4.1\"}})]\n{\n"
#define MAIN HEAD "func main<ios18>"
#define END(out) "} -> (" out ");\n}\n"
#define X4 "tensor<fp16, [1, 4, 1, 8]>"

static const char scaled_sum[] = HEAD
    "    func main<ios18>(tensor<fp16, [1, 4, 1, 64]> a, tensor<fp16, [1, 4, 1, 64]> b) {\n"
    "        fp16 k = const()[name = string(\"k\"), val = fp16(0x1p+1)];\n"
    "        tensor<fp16, [1, 4, 1, 64]> s = add(x = a, y = b)[name = string(\"s\")];\n"
    "        tensor<fp16, [1, 4, 1, 64]> y = mul(x = s, y = k)[name = string(\"y\")];\n"
    "    } -> (y);\n}\n";

static const char conv_relu[] = HEAD
    "    func main<ios18>(tensor<fp16, [1, 16, 32, 32]> img) {\n"
    "        string pt = const()[name = string(\"pt\"), val = string(\"custom\")];\n"
    "        tensor<int32, [2]> st = const()[name = string(\"st\"), val = tensor<int32, [2]>([1, 1])];\n"
    "        tensor<int32, [4]> pd = const()[name = string(\"pd\"), val = tensor<int32, [4]>([1, 1, 1, 1])];\n"
    "        tensor<int32, [2]> dl = const()[name = string(\"dl\"), val = tensor<int32, [2]>([1, 1])];\n"
    "        int32 gr = const()[name = string(\"gr\"), val = int32(1)];\n"
    "        tensor<fp16, [32, 16, 3, 3]> w = const()[name = string(\"w\"), val = tensor<fp16, [32, 16, 3, 3]>(BLOBFILE(path = string(\"@model_path/weights/weight.bin\"), offset = uint64(64)))];\n"
    "        tensor<fp16, [1, 32, 32, 32]> c = conv(dilations = dl, groups = gr, pad = pd, pad_type = pt, strides = st, weight = w, x = img)[name = string(\"c\")];\n"
    "        tensor<fp16, [1, 32, 32, 32]> r = relu(x = c)[name = string(\"r\")];\n"
    "    } -> (r);\n}\n";

/* The old dialect: every scalar is a rank-0 tensor. */
static const char old_dialect[] =
    "program(1.0)\n[buildInfo = dict<tensor<string, []>, tensor<string, []>>({{\"coremlc-version\", \"3505.4.1\"}})]\n{\n"
    "    func main<ios16>(tensor<fp16, [1, 8, 1, 32]> x) {\n"
    "        tensor<int32, []> ax = const()[name = tensor<string, []>(\"ax\"), val = tensor<int32, []>(-1)];\n"
    "        tensor<fp16, []> k = const()[name = tensor<string, []>(\"k\"), val = tensor<fp16, []>(0.5)];\n"
    "        tensor<fp16, [1, 8, 1, 32]> s = softmax(axis = ax, x = x)[name = tensor<string, []>(\"s\")];\n"
    "        tensor<fp16, [1, 8, 1, 32]> y = mul(x = s, y = k)[name = tensor<string, []>(\"y\")];\n"
    "    } -> (y);\n}\n";

/* One operation of each family the existing projects use. */
static const char families_consts[] = MAIN
    "(tensor<fp16, [1, 64, 1, 32]> a) {\n"
    "string pad_kind = const()[name=string(\"pad_kind\"), val=string(\"valid\")];\n"
    "int32 one_i = const()[name=string(\"one_i\"), val=int32(1)];\n"
    "int32 last = const()[name=string(\"last\"), val=int32(-1)];\n"
    "bool no = const()[name=string(\"no\"), val=bool(false)];\n"
    "bool yes = const()[name=string(\"yes\"), val=bool(true)];\n"
    "fp16 eps = const()[name=string(\"eps\"), val=fp16(0x1p-12)];\n"
    "fp16 inv96 = const()[name=string(\"inv96\"), val=fp16(0.0104)];\n"
    "fp16 minus_half = const()[name=string(\"minus_half\"), val=fp16(-0.5)];\n"
    "fp16 scale = const()[name=string(\"scale\"), val=fp16(0.17)];\n"
    "fp16 qs = const()[name=string(\"qs\"), val=fp16(0.03)];\n"
    "string i8name = const()[name=string(\"i8name\"), val=string(\"int8\")];\n"
    "tensor<int32, [1]> ax1 = const()[name=string(\"ax1\"), val=tensor<int32, [1]>([1])];\n"
    "tensor<int32, [2]> k11 = const()[name=string(\"k11\"), val=tensor<int32, [2]>([1,1])];\n"
    "tensor<int32, [4]> k0000 = const()[name=string(\"k0000\"), val=tensor<int32, [4]>([0,0,0,0])];\n"
    "tensor<int32, [4]> half_ch = const()[name=string(\"half_ch\"), val=tensor<int32, [4]>([1,48,1,32])];\n"
    "tensor<int32, [4]> k0_48 = const()[name=string(\"k0_48\"), val=tensor<int32, [4]>([0,48,0,0])];\n"
    "tensor<int32, [4]> k_end = const()[name=string(\"k_end\"), val=tensor<int32, [4]>([1,96,1,32])];\n"
    "tensor<int32, [4]> to_heads = const()[name=string(\"to_heads\"), val=tensor<int32, [4]>([1,3,32,32])];\n"
    "tensor<int32, [4]> to_flat = const()[name=string(\"to_flat\"), val=tensor<int32, [4]>([1,96,1,32])];\n"
    "tensor<int32, [4]> swap = const()[name=string(\"swap\"), val=tensor<int32, [4]>([0,1,3,2])];\n"
    "tensor<fp16, [96,64,1,1]> W = const()[name=string(\"W\"), val=tensor<fp16, [96,64,1,1]>(BLOBFILE(path=string(\"@model_path/weights/w.bin\"), offset=uint64(64)))];\n"
    "tensor<fp16, [1,96,1,1]> bias = const()[name=string(\"bias\"), val=tensor<fp16, [1,96,1,1]>(BLOBFILE(path=string(\"@model_path/weights/b.bin\"), offset=uint64(64)))];\n"
    "tensor<fp16, [1,1,32,32]> causal = const()[name=string(\"causal\"), val=tensor<fp16, [1,1,32,32]>(BLOBFILE(path=string(\"@model_path/weights/m.bin\"), offset=uint64(64)))];\n"
    "";
static const char families_ops[] =
    "tensor<fp16, [1,96,1,32]> c0 = conv(dilations=k11, groups=one_i, pad=k0000, pad_type=pad_kind, strides=k11, weight=W, x=a)[name=string(\"c0\")];\n"
    "tensor<fp16, [1,96,1,32]> c1 = add(x=c0, y=bias)[name=string(\"c1\")];\n"
    "tensor<fp16, [1,96,1,32]> s0 = mul(x=c1, y=c1)[name=string(\"s0\")];\n"
    "tensor<fp16, [1,1,1,32]>  s1 = reduce_sum(x=s0, axes=ax1, keep_dims=yes)[name=string(\"s1\")];\n"
    "tensor<fp16, [1,1,1,32]>  s2 = mul(x=s1, y=inv96)[name=string(\"s2\")];\n"
    "tensor<fp16, [1,1,1,32]>  s3 = add(x=s2, y=eps)[name=string(\"s3\")];\n"
    "tensor<fp16, [1,1,1,32]>  s4 = pow(x=s3, y=minus_half)[name=string(\"s4\")];\n"
    "tensor<fp16, [1,96,1,32]> s5 = mul(x=c1, y=s4)[name=string(\"s5\")];\n"
    "tensor<fp16, [1,3,32,32]> h0 = reshape(shape=to_heads, x=s5)[name=string(\"h0\")];\n"
    "tensor<fp16, [1,3,32,32]> h1 = transpose(perm=swap, x=h0)[name=string(\"h1\")];\n"
    "tensor<fp16, [1,3,32,32]> p0 = matmul(transpose_x=no, transpose_y=yes, x=h1, y=h1)[name=string(\"p0\")];\n"
    "tensor<fp16, [1,3,32,32]> p1 = mul(x=p0, y=scale)[name=string(\"p1\")];\n"
    "tensor<fp16, [1,3,32,32]> p2 = add(x=p1, y=causal)[name=string(\"p2\")];\n"
    "tensor<fp16, [1,3,32,32]> p3 = softmax(axis=last, x=p2)[name=string(\"p3\")];\n"
    "tensor<fp16, [1,3,32,32]> p4 = matmul(transpose_x=no, transpose_y=no, x=p3, y=h1)[name=string(\"p4\")];\n"
    "tensor<fp16, [1,3,32,32]> p5 = transpose(perm=swap, x=p4)[name=string(\"p5\")];\n"
    "tensor<fp16, [1,96,1,32]> p6 = reshape(shape=to_flat, x=p5)[name=string(\"p6\")];\n"
    "tensor<fp16, [1,48,1,32]> t0 = slice_by_size(x=p6, begin=k0000, size=half_ch)[name=string(\"t0\")];\n"
    "tensor<fp16, [1,48,1,32]> t1 = slice_by_index(begin=k0_48, end=k_end, x=p6)[name=string(\"t1\")];\n"
    "tensor<fp16, [1,96,1,32]> t2 = concat(axis=one_i, interleave=no, values=(t0,t1))[name=string(\"t2\")];\n"
    "tensor<int8, [1,96,1,32]> t3 = quantize(input=t2, output_dtype=i8name, scale=qs)[name=string(\"t3\")];\n"
    "tensor<fp16, [1,96,1,32]> t4 = dequantize(input=t3, scale=qs)[name=string(\"t4\")];\n"
    "tensor<fp16, [64,96,1,1]> V = constexpr_affine_dequantize()[axis=int32(0), name=string(\"V\"), quantized_data=tensor<int8,[64,96,1,1]>(BLOBFILE(path=string(\"@model_path/weights/v.bin\"), offset=uint64(64))), scale=fp16(0x1p-3), zero_point=int8(0)];\n"
    "tensor<fp16, [1,64,1,32]> c2 = conv(dilations=k11, groups=one_i, pad=k0000, pad_type=pad_kind, strides=k11, weight=V, x=t4)[name=string(\"c2\")];\n"
    END("c2, t2");

static const char *families(void) /* in two parts: a string literal has a length limit */
{
    static char text[sizeof families_consts + sizeof families_ops];
    snprintf(text, sizeof text, "%s%s", families_consts, families_ops);
    return text;
}

static mil_module *parse(const char *text)
{
    diag d = { 0 };
    mil_module *m = NULL;
    if (mil_parse(text, strlen(text), 0, &m, &d)) fail_msg("%u:%u: %s", d.at.line, d.at.col, d.msg);
    return m;
}

static graph *lower(const char *text, const lower_in *opt)
{
    diag d = { 0 };
    graph *g = NULL;
    mil_module *m = parse(text);
    if (lower_from_mil(m, opt, &g, &d)) fail_msg("%u:%u: %s", d.at.line, d.at.col, d.msg);
    mil_free(m); /* the graph must not need it */
    return g;
}

static char *print(const mil_module *m)
{
    strbuf b = { 0 };
    mil_print(m, &b);
    assert_false(b.oom);
    return b.at;
}

static void reads_and_writes_back(const char *text, mil_dialect dialect)
{
    diag d = { 0 };
    graph *g = lower(text, NULL);
    blob_writer w = { 0 };
    mil_module *m;
    assert_ok(lower_to_mil(g, &(lower_out){ .dialect = dialect }, &m, &w, &d), d);
    char *first = print(m);
    mil_module *again = parse(first);
    char *second = print(again);
    assert_string_equal(first, second);
    strbuf why = { 0 };
    if (!mil_same(m, again, &why)) fail_msg("%s", why.at);
    graph *g2 = lower(first, NULL);
    assert_int_equal(g2->outputs.n, g->outputs.n);
    for (size_t i = 0; i < g->outputs.n; i++) {
        assert_string_equal(g->outputs.at[i].name, g2->outputs.at[i].name);
        assert_true(shape_eq(&graph_type(g, g->outputs.at[i].v)->sh, &graph_type(g2, g2->outputs.at[i].v)->sh));
    }
    sb_free(&why);
    sb_free(&w.bytes);
    free(first);
    free(second);
    mil_free(m);
    mil_free(again);
    graph_free(g);
    graph_free(g2);
}

static void examples_round_trip(void **state)
{
    (void)state;
    const char *const all[] = { scaled_sum, conv_relu, old_dialect, families() };
    for (size_t i = 0; i < COUNT(all); i++) {
        reads_and_writes_back(all[i], DIALECT_IOS18);
        reads_and_writes_back(all[i], DIALECT_IOS16);
    }
}

/* ---- what becomes of a statement ---- */

static const node *find_node(const graph *g, const char *name)
{
    val v = graph_find(g, name);
    if (!v.i) fail_msg("no value named %s", name);
    return graph_maker(g, v);
}

static void statements_become_nodes(void **state)
{
    (void)state;
    static const struct {
        const char *body; /* y is looked at */
        op_id op;
        unsigned flags;
        int n_in;
    } rows[] = {
        { X4 " y = add(x = a, y = b);\n", OP_ADD, 0, 2 },
        { X4 " y = add(y = b, x = a);\n", OP_ADD, 0, 2 },
        { X4 " y = mul(x = a, y = fp16(2));\n", OP_MUL, INST_INLINE_ARG, 2 },
        { X4 " y = mul(x = a, y = fp32(2));\n", OP_MUL, INST_INLINE_ARG, 2 }, /* takes its neighbour's type */
        { X4 " y = softmax(axis = int32(-1), x = a);\n", OP_SOFTMAX, INST_INLINE_ARG, 1 },
        { "int32 k = const()[val = int32(1)]; tensor<fp16, [1, 1, 1, 8]> y = reduce_sum(axes = k, keep_dims = bool(true), x = a);\n", OP_REDUCE_SUM, INST_INLINE_ARG, 1 },
        { "tensor<int32, [1]> k = const()[val = tensor<int32, [1]>([1])]; " X4 " y = softmax(axis = k, x = a);\n", OP_SOFTMAX, 0, 1 },
        { "tensor<bool, [1, 4, 1, 8]> c = greater(x = a, y = b); " X4 " y = select(a = a, b = b, cond = c);\n", OP_SELECT, 0, 3 },
        { X4 " y = mod(x = a, y = b);\n", OP_OPAQUE, 0, 2 },
        { X4 " y = neg(x = a);\n", OP_OPAQUE, 0, 1 },
        { "tensor<int32, [4]> s = shape(x = a); " X4 " y = reshape(shape = s, x = a);\n", OP_OPAQUE, INST_DYNAMIC_ATTR, 2 },
        { "tensor<int32, [1]> k = const()[val = tensor<int32, [1]>([4])]; tensor<fp16, [4]> y = fill(shape = k, value = fp16(1));\n", OP_FILL, INST_INLINE_ARG, 0 },
        { "tensor<int32, [1]> k = const()[val = tensor<int32, [1]>([4])]; tensor<int32, [4]> y = fill(shape = k, value = int32(1));\n", OP_FILL, INST_INLINE_ARG, 0 },
        { "string s = const()[val = string(\"int32\")]; tensor<int32, [1, 4, 1]> y = reduce_argmax(x = a, output_dtype = s);\n", OP_REDUCE_ARGMAX, 0, 1 },
        { "string s = const()[val = string(\"uint16\")]; tensor<uint16, [1, 4, 1]> y = reduce_argmax(x = a, output_dtype = s);\n", OP_OPAQUE, 0, 1 },
        { "fp16 k = const()[val = fp16(-1)]; bool c = const()[val = bool(true)]; " X4 " y = cond(pred = c) true_branch () { " X4 " t = mul(x = a, y = k); } -> (t), false_branch () { " X4 " f = add(x = a, y = k); } -> (f);\n", OP_OPAQUE, 0, 0 },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        strbuf b = { 0 };
        sb_printf(&b, MAIN "(" X4 " a, " X4 " b) {\n%s" END("y"), rows[i].body);
        graph *g = lower(b.at, NULL);
        const node *n = find_node(g, "y");
        if (n->op != rows[i].op || n->flags != rows[i].flags || n->n_in != rows[i].n_in)
            fail_msg("%s: op %s flags %u operands %d", rows[i].body, n->mil, n->flags, n->n_in);
        assert_int_equal(n->at.line, 5);
        graph_free(g);
        sb_free(&b);
    }
}

static void several_results_keep_their_names(void **state)
{
    (void)state;
    graph *g = lower(MAIN "(tensor<fp16, [1, 6, 1, 8]> a) {\n"
                          "int32 n = const()[val = int32(3)]; int32 ax = const()[val = int32(1)];\n"
                          "tensor<fp16, [1, 2, 1, 8]> p, tensor<fp16, [1, 2, 1, 8]> q, tensor<fp16, [1, 2, 1, 8]> p_1 = split(axis = ax, num_splits = n, x = a);\n"
                          "tensor<fp16, [1, 2, 1, 8]> y = add(x = q, y = p_1);\n" END("y, q"),
                     NULL);
    const node *y = find_node(g, "y");
    assert_int_equal(find_node(g, "p")->op, OP_SPLIT);
    assert_int_equal(y->in[0].i, find_node(g, "p")->out.i + 1);
    assert_int_equal(y->in[1].i, find_node(g, "p")->out.i + 2);
    assert_string_equal(graph_value(g, y->in[1])->name, "p_1");
    assert_int_equal(g->outputs.at[1].v.i, y->in[0].i);
    graph_free(g);
}

static void states_are_inputs(void **state)
{
    (void)state;
    const char *text =
        MAIN "(state<" X4 "> kv, " X4 " a) {\n" X4 " old = read_state(input = kv)[name = string(\"old\")];\n" X4
             " new = add(x = old, y = a)[name = string(\"new\")];\n"
             "write_state(data = new, input = kv)[name = string(\"w\")];\n" X4
             " back = coreml_update_state(state = kv, value = old)[name = string(\"back\")];\n" END("back");
    graph *g = lower(text, NULL);
    assert_int_equal(find_node(g, "old")->op, OP_READ_STATE);
    assert_int_equal(find_node(g, "back")->op, OP_WRITE_STATE);
    size_t writes = 0;
    for (size_t i = 1; i < g->nodes.n; i++) writes += g->nodes.at[i].op == OP_WRITE_STATE;
    assert_int_equal(writes, 2);
    graph_free(g);
    reads_and_writes_back(text, DIALECT_IOS18);
}

/* A read finds what was last written before it; before the first write, what the run began with. */
static void states_in_order(void **state)
{
    const char *text =
        MAIN "(state<" X4 "> kv, " X4 " a) {\n" X4 " b = read_state(input = kv)[name = string(\"b\")];\n" X4
             " c = add(x = b, y = a)[name = string(\"c\")];\n"
             "write_state(data = c, input = kv)[name = string(\"w\")];\n" X4
             " e = read_state(input = kv)[name = string(\"e\")];\n" X4
             " f = mul(x = e, y = e)[name = string(\"f\")];\n" X4
             " v = coreml_update_state(state = kv, value = f)[name = string(\"v\")];\n" X4
             " h = read_state(input = kv)[name = string(\"h\")];\n" X4
             " i = sub(x = h, y = b)[name = string(\"i\")];\n" END("i");
    enum { ELEMENTS = 4 * 8 };
    graph *g = lower(text, NULL);
    arena mem = { 0 };
    diag d = { 0 };
    tensor64 in[2], out;
    double kv[ELEMENTS], a[ELEMENTS];
    (void)state;
    for (int k = 0; k < ELEMENTS; k++) kv[k] = k - 9, a[k] = 3 - 2 * k;
    for (int k = 0; k < 2; k++)
        in[k] = (tensor64){ .type = *graph_type(g, g->inputs.at[k]),
                            .x = !strcmp(graph_value(g, g->inputs.at[k])->name, "kv") ? kv : a };
    assert_int_equal(graph_eval(g, in, &out, &mem, &d), AN_OK);
    for (int k = 0; k < ELEMENTS; k++) assert_true(out.x[k] == (kv[k] + a[k]) * (kv[k] + a[k]) - kv[k]);
    assert_int_equal(find_node(g, "b")->op, OP_READ_STATE);
    assert_int_equal(find_node(g, "h")->in[0].i, find_node(g, "v")->out.i);
    arena_free(&mem);
    graph_free(g);
    reads_and_writes_back(text, DIALECT_IOS18);
}

static void program_bytes(const graph *g, strbuf *to)
{
    diag d = { 0 };
    program *p;
    assert_ok(codegen_program(g, &(codegen_options){ .level = 1, .key = 1 }, &p, &d), d);
    for (size_t i = 0; i < p->insns.n; i++) p->insns.at[i].line = 0; /* where they come from is another text */
    assert_ok(program_encode(p, to, &d), d);
    program_free(p);
}

/* A graph may use a state as the tensor it holds. MIL reads it first: what the run began with, also behind a write. */
static void states_are_read_first(void **state)
{
    (void)state;
    diag d = { 0 };
    graph *g = graph_new("main", 0);
    const ttype t = TTYPE(DT_F16, 1, 4, 1, 8);
    val kv = graph_input(g, "kv", t), a = graph_input(g, "a", t), s = graph_input(g, "s", t);
    val sum = graph_op_named(g, "sum", OP_ADD, VALS(kv, a), NULL, 0);
    val kept = graph_op_named(g, "kept", OP_WRITE_STATE, VALS(kv, sum), NULL, 0);
    graph_op_named(g, "swap", OP_WRITE_STATE, VALS(s, kv), NULL, 0);
    val was = graph_op_named(g, "was", OP_READ_STATE, VALS(s), NULL, 0);
    graph_output(g, "y", graph_op_named(g, "y", OP_SUB, VALS(kept, kv), NULL, 0));
    graph_output(g, "old", s);
    graph_output(g, "z", graph_op_named(g, "z", OP_MUL, VALS(was, s), NULL, 0));
    assert_ok(graph_finish(g, &d), d);
    mil_module *m;
    assert_ok(lower_to_mil(g, NULL, &m, NULL, &d), d);
    states_are_read_and_updated(m, "t");
    char *text = print(m);
    const char *body = strstr(text, "    func");
    assert_non_null(body);
    assert_string_equal(body,
        "    func main<ios18>(state<" X4 "> kv, " X4 " a, state<" X4 "> s) {\n"
        "        " X4 " kv_read = read_state(input = kv)[name = string(\"kv_read\")];\n"
        "        " X4 " sum = add(x = kv_read, y = a)[name = string(\"sum\")];\n"
        "        " X4 " kept = coreml_update_state(state = kv, value = sum)[name = string(\"kept\")];\n"
        "        " X4 " was = read_state(input = s)[name = string(\"was\")];\n"
        "        " X4 " swap = coreml_update_state(state = s, value = kv_read)[name = string(\"swap\")];\n"
        "        " X4 " y = sub(x = kept, y = kv_read)[name = string(\"y\")];\n"
        "        " X4 " z = mul(x = was, y = was)[name = string(\"z\")];\n"
        "        " X4 " old = identity(x = was)[name = string(\"old\")];\n"
        "    } -> (y, old, z);\n}\n");
    reads_and_writes_back(text, DIALECT_IOS18);
    /* the same program */
    strbuf one = { 0 }, other = { 0 };
    graph *back = lower(text, NULL);
    program_bytes(g, &one), program_bytes(back, &other);
    assert_int_equal(one.n, other.n);
    assert_memory_equal(one.at, other.at, one.n);
    sb_free(&one), sb_free(&other), free(text), mil_free(m), graph_free(back), graph_free(g);
}

/* ---- refusals: what is said and where ---- */

static const struct {
    const char *body, *rule, *says;
    unsigned line, col;
    an_status st;
} wrong[] = {
    { X4 " y = add(x = a, z = b);\n", "argument", "add has no argument z; it takes x, y", 5, 43, AN_INPUT },
    { X4 " y = add(x = a);\n", "argument", "add needs the argument y", 5, 32, AN_INPUT },
    { "tensor<fp16, [1, 8]> y = add(x = a, y = b);\n", "type", "y is declared fp16[1, 8] but add yields fp16[1, 4, 1, 8]", 5, 22, AN_INPUT },
    { "tensor<fp32, [1, 4, 1, 8]> y = add(x = a, y = b);\n", "type", "y is declared fp32", 5, 28, AN_INPUT },
    { X4 " y = softmax(axis = fp16(1), x = a);\n", "argument", "softmax: argument axis wants one integer, got fp16", 5, 47, AN_INPUT },
    { "tensor<int32, [2]> k = const()[val = tensor<int32, [2]>([1, 2])]; " X4 " y = softmax(axis = k, x = a);\n", "argument", "wants one integer, got int32[2]", 5, 113, AN_INPUT },
    { X4 " y = softmax(axis = int32(7), x = a);\n", "type", "softmax", 5, 32, AN_INPUT },
    { "fp16 k = const()[val = fp32(1)]; " X4 " y = mul(x = a, y = k);\n", "type", "k is declared fp16 but its value is fp32", 5, 6, AN_INPUT },
    { X4 " y = add(x = (a, b), y = b);\n", "argument", "argument x wants one value, got 2", 5, 36, AN_INPUT },
    { X4 " y, " X4 " z = add(x = a, y = b);\n", "type", "add yields 1 results, 2 are declared", 5, 62, AN_INPUT },
    { "tensor<fp32, [1, 4, 1, 8]> c = const()[val = tensor<fp32, [1, 4, 1, 8]>(BLOBFILE(path = string(\"@model_path/w.bin\"), offset = uint64(0)))]; " X4 " y = add(x = a, y = b);\n", "weights", "first record is at 64", 5, 46, AN_INPUT },
    { X4 " y = const()[name = string(\"y\")];\n", "argument", "const needs one result", 5, 32, AN_INPUT },
    { "dict<string, string> k = const()[val = dict<string, string>({{\"a\", \"b\"}})]; " X4 " y = softmax(axis = k, x = a);\n", "argument", "value of another kind", 5, 0, AN_INPUT },
};

static void refusals_name_thing_and_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(wrong); i++) {
        strbuf b = { 0 };
        sb_printf(&b, MAIN "(" X4 " a, " X4 " b) {\n%s" END("y"), wrong[i].body);
        mil_module *m = parse(b.at);
        diag d = { 0 };
        graph *g = NULL;
        assert_int_equal(lower_from_mil(m, NULL, &g, &d), wrong[i].st);
        assert_null(g);
        if (!strstr(d.msg, wrong[i].says) || d.at.line != wrong[i].line || (wrong[i].col && d.at.col != wrong[i].col))
            fail_msg("%s: %u:%u: %s", wrong[i].body, d.at.line, d.at.col, d.msg);
        /* lenient: the same complaint as an issue, and a graph */
        lower_issues issues = { 0 };
        arena mem = { 0 };
        diag d2 = { 0 };
        assert_ok(lower_from_mil(m, &(lower_in){ .issues = &issues, .mem = &mem }, &g, &d2), d2);
        assert_non_null(g);
        assert_true(issues.n >= 1);
        assert_string_equal(issues.at[0].msg, d.msg);
        assert_string_equal(issues.at[0].rule, wrong[i].rule);
        arena_free(&mem);
        graph_free(g);
        mil_free(m);
        sb_free(&b);
    }
}

static void several_problems_in_one_reading(void **state)
{
    (void)state;
    mil_module *m = parse(MAIN "(" X4 " a, pixel_buffer<bgra, [1, 2], 64> img) {\n"
                               "tensor<fp16, [9]> p = relu(x = a);\n" /* 5: type */
                               X4 " q = add(x = a, w = a);\n"          /* 6: argument, and y is missing */
                               X4 " r = mul(x = q, y = a);\n"          /* fine: no echo of q */
                               "tensor<fp16, [9]> s = sqrt(x = p);\n"  /* fine: p is what it says it is */
                               X4 " t = concat(axis = int32(9), values = (r, r));\n" /* 9 */
                               X4 " u = pixel_buffer_to_tensor(input = img);\n"
                               END("r, r, s"));
    lower_issues is = { 0 };
    arena mem = { 0 };
    diag d = { 0 };
    graph *g = NULL;
    assert_ok(lower_from_mil(m, &(lower_in){ .issues = &is, .mem = &mem }, &g, &d), d);
    static const struct {
        unsigned line;
        const char *rule;
        an_status st;
    } want[] = { { 4, "type", AN_UNSUPPORTED }, { 5, "type", AN_INPUT }, { 6, "argument", AN_INPUT },
                 { 6, "argument", AN_INPUT },   { 9, "type", AN_INPUT }, { 11, "name", AN_INPUT } };
    for (size_t i = 0; i < is.n; i++)
        if (i >= COUNT(want) || is.at[i].at.line != want[i].line || strcmp(is.at[i].rule, want[i].rule) ||
            is.at[i].st != want[i].st)
            fail_msg("issue %zu: line %u %s: %s", i, is.at[i].at.line, is.at[i].rule, is.at[i].msg);
    assert_int_equal(is.n, COUNT(want));
    arena_free(&mem);
    graph_free(g);
    mil_free(m);
}

/* A flood of bad statements ends in a bounded list that still holds errors. */
static void issues_are_bounded(void **state)
{
    (void)state;
    strbuf b = { 0 };
    sb_puts(&b, MAIN "(" X4 " a) {\n");
    for (int i = 0; i < 5000; i++)
        sb_printf(&b, X4 " v%d = relu(x = a)[name = string(\"l\"), odd = int32(1)];\n" X4 " w%d = relu(q = a);\n", i,
                  i);
    sb_puts(&b, END("v0"));
    mil_module *m = parse(b.at);
    lower_issues is = { 0 };
    arena mem = { 0 };
    diag d = { 0 };
    graph *g = NULL;
    assert_ok(lower_from_mil(m, &(lower_in){ .issues = &is, .mem = &mem }, &g, &d), d);
    size_t errors = 0;
    for (size_t i = 0; i < is.n; i++) errors += is.at[i].st == AN_INPUT;
    assert_in_range(is.n, 50, 201);
    assert_true(errors > 20);
    assert_null(g); /* reading stopped */
    arena_free(&mem);
    graph_free(g);
    mil_free(m);
    sb_free(&b);
}

/* ---- weight files ---- */

static void write_file(const char *dir, const char *name, const void *p, size_t n)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    diag d = { 0 };
    assert_ok(file_write(path, p, n, &d), d);
}

static void weight_references(void **state)
{
    (void)state;
    char dir[] = "/tmp/anneal-lower-XXXXXX", path[300], text[1200];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/weights", dir);
    diag d = { 0 };
    assert_ok(dir_make(path, &d), d);
    uint16_t half[32];
    for (int i = 0; i < 32; i++) half[i] = f16_from_f64(i * 0.25);
    blob_writer w = { 0 };
    uint64_t off;
    assert_ok(blob_add(&w, DT_F16, half, sizeof half, &off, &d), d);
    assert_int_equal(off, 64);
    assert_ok(blob_add(&w, DT_F16, half, sizeof half, &off, &d), d);
    assert_ok(blob_finish(&w, &d), d);
    write_file(dir, "weights/w.bin", w.bytes.at, w.bytes.n);
    write_file(dir, "weights/short.bin", w.bytes.at, 150);
    write_file(dir, "weights/junk.bin",
               "not a weight file at all, and long enough to hold a header of sixty-four bytes.", 79);

    const struct {
        const char *path;
        unsigned offset;
        bool need, ok, data;
        unsigned flags;
        const char *says;
    } rows[] = {
        { "@model_path/weights/w.bin", 64, true, true, true, 0, "" },
        { "@model_path/weights/./../weights/w.bin", 64, true, true, true, 0, "" },
        { "weights/w.bin", (unsigned)off, true, true, true, 0, "" },
        { "@model_path/weights/none.bin", 64, false, true, false, 0, "" },
        { "@model_path/weights/none.bin", 64, true, false, false, 0, "is not there" },
        { "@model_path/weights/none.bin", 128, false, true, false, INST_BLOB_DATA_OFFSET, "" },
        { "@model_path/weights/w.bin", 128, false, false, false, INST_BLOB_DATA_OFFSET, "points at the data" },
        { "@model_path/weights/w.bin", 256, false, false, false, INST_BLOB_DATA_OFFSET, "points at the data" },
        { "@model_path/weights/w.bin", 320, false, false, false, 0, "offset 320" },
        { "@model_path/weights/short.bin", 64, false, false, false, 0, "short.bin" },
        { "@model_path/weights/junk.bin", 64, false, false, false, 0, "junk.bin" },
        { "@model_path/weights", 64, false, false, false, 0, "not a regular file" },
        { "@model_path/../w.bin", 64, false, false, false, 0, "leaves the model folder" },
        { "@model_path/weights/../../etc/passwd", 64, false, false, false, 0, "leaves the model folder" },
        { "/etc/passwd", 64, false, false, false, 0, "leaves the model folder" },
        { "@model_pathweights/w.bin", 64, false, false, false, 0, "leaves the model folder" },
        { "", 64, false, false, false, 0, "leaves the model folder" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        snprintf(text, sizeof text,
                 MAIN "(" X4 " a) {\n" X4 " k = const()[val = " X4
                      "(BLOBFILE(path = string(\"%s\"), offset = uint64(%u)))];\n" X4
                      " y = add(x = a, y = k);\n" END("y"),
                 rows[i].path, rows[i].offset);
        mil_module *m = parse(text);
        lower_weights *files = lower_weights_open(dir);
        assert_non_null(files);
        graph *g = NULL;
        diag e = { 0 };
        an_status st = lower_from_mil(m, &(lower_in){ .weights = files, .need_weights = rows[i].need }, &g, &e);
        if ((st == AN_OK) != rows[i].ok || (st && st != AN_INPUT))
            fail_msg("%s@%u: %d %s", rows[i].path, rows[i].offset, st, e.msg);
        if (st) {
            if (!strstr(e.msg, rows[i].says) || e.at.line != 5)
                fail_msg("%s@%u: %u:%u %s", rows[i].path, rows[i].offset, e.at.line, e.at.col, e.msg);
            lower_issues is = { 0 };
            arena mem = { 0 };
            diag e2 = { 0 };
            assert_ok(lower_from_mil(
                          m, &(lower_in){ .weights = files, .need_weights = rows[i].need, .issues = &is, .mem = &mem },
                          &g, &e2),
                      e2);
            assert_int_equal(is.n, 1);
            assert_string_equal(is.at[0].rule, "weights");
            arena_free(&mem);
        }
        const node *k = find_node(g, "k");
        assert_int_equal(k->flags, rows[i].flags);
        assert_true((k->cst->data != NULL) == rows[i].data);
        mil_free(m);
        if (rows[i].data) assert_true(graph_const_at(k, graph_type(g, k->out), 5) == 1.25);
        graph_free(g);
        lower_weights_close(files);
    }
    sb_free(&w.bytes);
    snprintf(path, sizeof path, "rm -rf '%s'", dir);
    assert_int_equal(system(path), 0);
}

/* ---- writing ---- */

static void canonical_text(void **state)
{
    (void)state;
    graph *g = graph_new("t", 0);
    val x = graph_input(g, "x", TTYPE(DT_F16, 1, 2, 1, 4));
    float big[20] = { 1 };
    val w = graph_const_f64(g, "weird name", TTYPE(DT_F16, 2, 2, 1, 1), (double[]){ 1, 2, 3, 4 });
    val w2 = graph_const_f64(g, "again", TTYPE(DT_F16, 2, 2, 1, 1), (double[]){ 1, 2, 3, 4 });
    val b = graph_const(g, "big", TTYPE(DT_F32, 20), big);
    val b2 = graph_const(g, "big2", TTYPE(DT_F32, 1, 20), big);
    val c = graph_op_named(g, "c", OP_CONV, VALS(x, w), NULL, 0);
    val dead = G(g, EXP, c);
    val c2 = graph_op_named(g, "tensor", OP_CONV, VALS(c, w2), NULL, 0);
    val r = GA(g, REDUCE_SUM, VALS(c2), AT_IS(AXES, 1), AT_B(KEEP_DIMS, true));
    val s = G(g, MUL, c2, r);
    val o = G(g, ADD, b, b2);
    (void)dead;
    graph_output(g, "out", s);
    graph_output(g, "copy", s);
    graph_output(g, "same", x);
    graph_output(g, "o", o);
    graph_output(g, "k", w);
    diag d = { 0 };
    assert_ok(graph_finish(g, &d), d);
    blob_writer bw = { 0 };
    mil_module *m;
    assert_ok(lower_to_mil(g, NULL, &m, &bw, &d), d);
    assert_int_equal(bw.count, 1); /* equal bytes, one record */
    char *text = print(m);
    assert_string_equal(text,
        "program(1.3)\n"
        "[buildInfo = dict<string, string>({{\"coremlc-component-MIL\", \"3510.2.1\"}, {\"coremlc-version\", \"3505.4.1\"}, {\"coremltools-component-milinternal\", \"\"}, {\"coremltools-version\", \"9.0\"}})]\n"
        "{\n"
        "    func main<ios18>(tensor<fp16, [1, 2, 1, 4]> x) {\n"
        "        tensor<int32, [2]> l_1_1 = const()[name = string(\"l_1_1\"), val = tensor<int32, [2]>([1, 1])];\n"
        "        string s_valid = const()[name = string(\"s_valid\"), val = string(\"valid\")];\n"
        "        tensor<int32, [4]> l_0_0_0_0 = const()[name = string(\"l_0_0_0_0\"), val = tensor<int32, [4]>([0, 0, 0, 0])];\n"
        "        int32 i_1 = const()[name = string(\"i_1\"), val = int32(1)];\n"
        "        tensor<fp16, [2, 2, 1, 1]> weird_name = const()[name = string(\"weird_name\"), val = tensor<fp16, [2, 2, 1, 1]>([1.0, 2.0, 3.0, 4.0])];\n"
        "        tensor<fp16, [1, 2, 1, 4]> c = conv(dilations = l_1_1, groups = i_1, pad = l_0_0_0_0, pad_type = s_valid, strides = l_1_1, weight = weird_name, x = x)[name = string(\"c\")];\n"
        "        tensor<fp16, [1, 2, 1, 4]> tensor_ = conv(dilations = l_1_1, groups = i_1, pad = l_0_0_0_0, pad_type = s_valid, strides = l_1_1, weight = weird_name, x = c)[name = string(\"tensor_\")];\n"
        "        tensor<int32, [1]> l_1 = const()[name = string(\"l_1\"), val = tensor<int32, [1]>([1])];\n"
        "        bool yes = const()[name = string(\"yes\"), val = bool(true)];\n"
        "        tensor<fp16, [1, 1, 1, 4]> reduce_sum_1 = reduce_sum(axes = l_1, keep_dims = yes, x = tensor_)[name = string(\"reduce_sum_1\")];\n"
        "        tensor<fp16, [1, 2, 1, 4]> out = mul(x = tensor_, y = reduce_sum_1)[name = string(\"out\")];\n"
        "        tensor<fp32, [20]> big = const()[name = string(\"big\"), val = tensor<fp32, [20]>(BLOBFILE(path = string(\"@model_path/weights/weight.bin\"), offset = uint64(64)))];\n"
        "        tensor<fp32, [1, 20]> big2 = const()[name = string(\"big2\"), val = tensor<fp32, [1, 20]>(BLOBFILE(path = string(\"@model_path/weights/weight.bin\"), offset = uint64(64)))];\n"
        "        tensor<fp32, [1, 20]> o = add(x = big, y = big2)[name = string(\"o\")];\n"
        "        tensor<fp16, [1, 2, 1, 4]> copy = identity(x = out)[name = string(\"copy\")];\n"
        "        tensor<fp16, [1, 2, 1, 4]> same = identity(x = x)[name = string(\"same\")];\n"
        "        tensor<fp16, [2, 2, 1, 1]> k = identity(x = weird_name)[name = string(\"k\")];\n"
        "    } -> (out, copy, same, o, k);\n"
        "}\n");
    free(text);
    mil_free(m);
    sb_free(&bw.bytes);
    assert_ok(lower_to_mil(g, &(lower_out){ .dialect = DIALECT_IOS16, .inline_all = true }, &m, NULL, &d), d);
    text = print(m);
    static const char *const pieces[] = { "program(1.0)\n[buildInfo = dict<tensor<string, []>, tensor<string, []>>({{\"coremlc-version\", \"3505.4.1\"}})]\n",
                                          "func main<ios16>(", "tensor<string, []> s_valid = const()[name = tensor<string, []>(\"s_valid\"), val = tensor<string, []>(\"valid\")];",
                                          "tensor<bool, []> yes = const()[name = tensor<string, []>(\"yes\"), val = tensor<bool, []>(true)];" };
    for (size_t i = 0; i < COUNT(pieces); i++)
        if (!strstr(text, pieces[i])) fail_msg("missing: %s\nin:\n%s", pieces[i], text);
    assert_null(strstr(text, "BLOBFILE"));
    free(text);
    mil_free(m);
    graph_free(g);
}

/* A message about the written text can then name the place in the one it came from. */
static void statements_keep_their_places(void **state)
{
    (void)state;
    diag d = { 0 };
    mil_module *from = NULL, *to = NULL;
    graph *g = NULL;
    blob_writer w = { 0 };
    assert_ok(mil_parse(scaled_sum, sizeof scaled_sum - 1, 0, &from, &d), d);
    assert_ok(lower_from_mil(from, NULL, &g, &d), d);
    assert_ok(lower_to_mil(g, NULL, &to, &w, &d), d);
    const mil_block *f = mil_main(to);
    static const struct {
        const char *name;
        unsigned line;
    } rows[] = { { "s", 6 }, { "k", 5 }, { "y", 7 } }; /* in the order they are written */
    assert_int_equal(f->n_op, COUNT(rows));
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_string_equal(f->op[i].out[0].name, rows[i].name);
        assert_int_equal(f->op[i].at.line, rows[i].line);
    }
    assert_true(f->in[0].at.line == 4 && f->in[1].at.line == 4 && f->in[0].at.col < f->in[1].at.col);
    assert_int_equal(f->out[0].at.line, 7);
    sb_free(&w.bytes);
    mil_free(from);
    mil_free(to);
    graph_free(g);
}

static void what_cannot_be_written(void **state)
{
    (void)state;
    static const struct {
        int kind;
        an_status st;
        const char *says;
    } rows[] = {
        { 0, AN_UNSUPPORTED, "lstm" },
        { 1, AN_UNSUPPORTED, "neither content nor a weight file" },
        { 2, AN_INPUT, "\"a b\" of t is not a MIL identifier" },
        { 3, AN_INPUT, "two ports named x" },
        { 4, AN_UNSUPPORTED, "32 bits" },
        { 5, AN_INPUT, "returns nothing" },
        { 6, AN_INPUT, "two ports named x" }, /* what the state holds is a tensor, and would need a name of its own */
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        graph *g = graph_new("t", 0);
        ttype t = TTYPE(DT_F16, 1, 4);
        val x = graph_input(g, "x", t), y = x;
        if (rows[i].kind == 0) y = graph_opaque(g, NULL, "lstm", &x, 1, &t, 1);
        if (rows[i].kind == 1) y = G(g, ADD, x, graph_const_view(g, "c", t, NULL));
        if (rows[i].kind == 4) y = GA(g, SLICE_BY_INDEX, VALS(x), AT_IS(BEGIN, 0, 0), AT_IS(END, 1, INT64_C(1) << 34));
        if (rows[i].kind == 6) G(g, WRITE_STATE, x, x);
        const char *out = rows[i].kind == 2 ? "a b" : rows[i].kind == 3 || rows[i].kind == 6 ? "x" : "y";
        if (rows[i].kind != 5) graph_output(g, out, rows[i].kind == 3 ? G(g, EXP, x) : y);
        mil_module *m;
        diag d = { 0 };
        an_status st = lower_to_mil(g, NULL, &m, NULL, &d);
        if (st != rows[i].st || !strstr(d.msg, rows[i].says)) fail_msg("%zu: %d %s", i, st, d.msg);
        assert_null(m);
        graph_free(g);
    }
}

/* The text of g; so many constants went to the weight file. */
static char *print_with_records(const graph *g, size_t records)
{
    diag d = { 0 };
    blob_writer w = { 0 };
    mil_module *m;
    assert_ok(lower_to_mil(g, NULL, &m, &w, &d), d);
    char *text = print(m);
    assert_int_equal(w.count, records);
    mil_free(m);
    sb_free(&w.bytes);
    return text;
}

/* A constant without content keeps its reference, and its file is never written over. */
static void references_are_kept(void **state)
{
    (void)state;
    graph *g = graph_new("t", 0);
    val x = graph_input(g, "x", TTYPE(DT_F16, 1, 64));
    val k = graph_const_blob(g, "k", TTYPE(DT_F16, 1, 64), "@model_path/weights/weight.bin", 320, NULL);
    val f = graph_fill_const(g, "f", TTYPE(DT_F16, 1, 64), 0.5);
    graph_output(g, "y", G(g, MUL, G(g, ADD, x, k), f));
    char *text = print_with_records(g, 0);
    assert_non_null(strstr(text, "weight.bin\"), offset = uint64(320)"));
    assert_null(strstr(text, "uint64(64)"));
    free(text);
    graph_free(g);
}

/* A small constant is spelled in the text, unless it came from a file: there it can be replaced. */
static void small_records_stay_apart(void **state)
{
    (void)state;
    static const _Alignas(8) uint16_t half[4] = { 0x3800, 0x3800, 0x3800, 0x3800 };
    graph *g = graph_new("t", 0);
    val x = graph_input(g, "x", TTYPE(DT_F16, 1, 4));
    val k = graph_const_blob(g, "k", TTYPE(DT_F16, 1, 4), "@model_path/other.bin", 64, half);
    val f = graph_fill_const(g, "f", TTYPE(DT_F16, 1, 4), 2);
    graph_output(g, "y", G(g, MUL, G(g, ADD, x, k), f));
    char *text = print_with_records(g, 1);
    assert_non_null(strstr(text, "> k = const()[name = string(\"k\"), val = tensor<fp16, [1, 4]>(BLOBFILE(path = string(\"@model_path/weights/weight.bin\"), offset = uint64(64)))]"));
    assert_non_null(strstr(text, "val = tensor<fp16, [1, 4]>([2.0, 2.0, 2.0, 2.0])"));
    free(text);
    graph_free(g);
}

/* Out of memory at any byte gives no memory, not a crash, not a half graph. */
/* Bytes that spell where a record is are not the record. */
static void places_and_bytes(void **state)
{
    (void)state;
    static const char place[] = "@model_path/weights/weight.bin@64";
    enum { N = sizeof place - 1 };
    diag d = { 0 };
    graph *g = graph_new("places", 0), *back = NULL;
    const ttype type = { DT_I8, SHAPE(N) };
    val a = graph_const_view(g, "a", type, place),
        b = graph_const_blob(g, "b", type, "@model_path/weights/weight.bin", 64, NULL);
    graph_output(g, "y", G(g, ADD, a, b));
    assert_ok(graph_finish(g, &d), d);
    mil_module *m;
    assert_ok(lower_to_mil(g, &(lower_out){ .inline_all = true }, &m, NULL, &d), d);
    assert_ok(lower_from_mil(m, &(lower_in){ .weights = NULL }, &back, &d), d);
    const node *sum = graph_maker(back, back->outputs.at[0].v), *x = graph_maker(back, sum->in[0]),
               *y = graph_maker(back, sum->in[1]);
    assert_true(x->op == OP_CONST && x->cst->data && !memcmp(x->cst->data, place, N));
    assert_true(y->op == OP_CONST && y->cst->blob_path && y->cst->blob_offset == 64);
    graph_free(back);
    mil_free(m);
    graph_free(g);
}

static void memory_runs_out(void **state)
{
    (void)state;
    mil_module *m = parse(families());
    size_t refused = 0;
    for (size_t limit = 64; limit < 200000; limit += limit / 16 + 97) {
        graph *g = NULL;
        diag d = { 0 };
        an_status st = lower_from_mil(m, &(lower_in){ .limit = limit }, &g, &d);
        assert_true(st == AN_OK || st == AN_NOMEM);
        assert_true((st == AN_OK) == (g != NULL));
        refused += st == AN_NOMEM;
        graph_free(g);
    }
    assert_true(refused > 3);
    mil_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(examples_round_trip),
        cmocka_unit_test(statements_become_nodes),
        cmocka_unit_test(several_results_keep_their_names),
        cmocka_unit_test(states_are_inputs),
        cmocka_unit_test(states_in_order),
        cmocka_unit_test(states_are_read_first),
        cmocka_unit_test(refusals_name_thing_and_place),
        cmocka_unit_test(several_problems_in_one_reading),
        cmocka_unit_test(issues_are_bounded),
        cmocka_unit_test(weight_references),
        cmocka_unit_test(canonical_text), cmocka_unit_test(statements_keep_their_places),
        cmocka_unit_test(what_cannot_be_written),
        cmocka_unit_test(references_are_kept),
        cmocka_unit_test(small_records_stay_apart),
        cmocka_unit_test(places_and_bytes),
        cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
