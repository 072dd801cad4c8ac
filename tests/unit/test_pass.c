/* test_pass.c: each rewrite on the smallest graph that shows it, and on one next to it that must stay. */
#include "prop/portplan.h"

/* ---- clean-up: text in, text out; NULL: unchanged ---- */

#define X "graph \"t\"\nx = input fp16[1, 4, 1, 6]\n"
#define XY X "y = input fp16[1, 4, 1, 6]\n"

static const struct {
    const char *what, *pass, *in, *want;
} rows[] = {
    /* identity */
    { "identity", "identity", X "a = relu(x)\nb = identity(a)\nc = tanh(b)\nreturn c=c\n", X "a = relu(x)\nc = tanh(a)\nreturn c=c\n" },
    { "same-type cast", "identity", X "b = cast(x) {dtype=\"fp16\"}\nc = tanh(b)\nreturn c=c\n", X "c = tanh(x)\nreturn c=c\n" },
    { "cast that converts", "identity", X "b = cast(x) {dtype=\"fp32\"}\nc = tanh(b)\nreturn c=c\n", NULL },
    { "same-shape reshape", "identity", X "b = reshape(x) {shape=[1, 4, 1, 6]}\nc = tanh(b)\nreturn c=c\n", X "c = tanh(x)\nreturn c=c\n" },
    { "other shape", "identity", X "b = reshape(x) {shape=[1, 6, 1, 4]}\nc = tanh(b)\nreturn c=c\n", NULL },
    { "identity transpose", "identity", X "b = transpose(x) {perm=[0, 1, 2, 3]}\nc = tanh(b)\nreturn c=c\n", X "c = tanh(x)\nreturn c=c\n" },
    { "axes from the back", "identity", X "b = transpose(x) {perm=[-4, -3, -2, -1]}\nc = tanh(b)\nreturn c=c\n", X "c = tanh(x)\nreturn c=c\n" },
    { "square transpose", "identity", "graph \"t\"\nx = input fp16[4, 4]\nb = transpose(x) {perm=[1, 0]}\nc = tanh(b)\nreturn c=c\n", NULL },
    { "slice of everything", "identity", X "b = slice_by_size(x) {begin=[0, 0, 0, 0], size=[1, 4, 1, 6]}\nc = tanh(b)\nreturn c=c\n", X "c = tanh(x)\nreturn c=c\n" },
    { "slice backwards", "identity", X "b = slice_by_index(x) {begin=[0, 0, 0, 0], end=[0, 0, 0, 0], stride=[1, 1, 1, -1], begin_mask=[true, true, true, true], end_mask=[true, true, true, true]}\nc = tanh(b)\nreturn c=c\n", NULL },
    { "pad by nothing", "identity", X "b = pad(x) {pad=[0, 0, 0, 0]}\nc = tanh(b)\nreturn c=c\n", X "c = tanh(x)\nreturn c=c\n" },
    { "concat of one", "identity", X "b = concat(x) {axis=1}\nc = tanh(b)\nreturn c=c\n", X "c = tanh(x)\nreturn c=c\n" },
    { "reverse of one", "identity", X "b = reverse(x) {axes=[2]}\nc = tanh(b)\nreturn c=c\n", X "c = tanh(x)\nreturn c=c\n" },
    { "reverse", "identity", X "b = reverse(x) {axes=[3]}\nc = tanh(b)\nreturn c=c\n", NULL },
    { "sum of one is 0 + x", "identity", X "b = reduce_sum(x) {axes=[2], keep_dims=true}\nc = tanh(b)\nreturn c=c\n", NULL },
    { "largest of one", "identity", X "b = reduce_max(x) {axes=[2], keep_dims=true}\nc = tanh(b)\nreturn c=c\n", X "c = tanh(x)\nreturn c=c\n" },
    { "window of one", "identity", X "b = max_pool(x) {kernel_sizes=[1, 1]}\nc = tanh(b)\nreturn c=c\n", X "c = tanh(x)\nreturn c=c\n" },
    { "window of three", "identity", X "b = max_pool(x) {kernel_sizes=[1, 3], pad_type=\"same\"}\nc = tanh(b)\nreturn c=c\n", NULL },
    { "an output stays computed", "identity", X "b = identity(x)\nreturn b=b\n", NULL },
    { "one output moves there", "identity", X "a = relu(x)\nb = identity(a)\nc = identity(a)\nreturn b=b, c=c\n", X "a = relu(x)\nc = identity(a)\nreturn b=a, c=c\n" },
    { "a constant is no output", "identity", X "k = const fp16[2] {1, 2}\nb = identity(k)\nreturn b=b, x=x\n", NULL },
    { "two outputs stay two", "identity", X "a = relu(x)\nb = identity(a)\nreturn a=a, b=b\n", NULL },
    { "an output moves to its source", "identity", X "a = relu(x)\nb = identity(a)\nreturn b=b\n", X "a = relu(x)\nreturn b=a\n" },
    /* cast */
    { "fp16 through fp32", "cast", X "a = cast(x) {dtype=\"fp32\"}\nb = cast(a) {dtype=\"fp16\"}\nc = tanh(b)\nreturn c=c\n", X "c = tanh(x)\nreturn c=c\n" },
    { "fp32 through fp16", "cast", "graph \"t\"\nx = input fp32[1, 4]\na = cast(x) {dtype=\"fp16\"}\nb = cast(a) {dtype=\"fp32\"}\nc = tanh(b)\nreturn c=c\n", NULL },
    { "int8 through fp16 to fp32", "cast", "graph \"t\"\nx = input int8[4]\na = cast(x) {dtype=\"fp16\"}\nb = cast(a) {dtype=\"fp32\"}\nc = tanh(b)\nreturn c=c\n", "graph \"t\"\nx = input int8[4]\nb = cast(x) {dtype=\"fp32\"}\nc = tanh(b)\nreturn c=c\n" },
    { "int32 through fp16", "cast", "graph \"t\"\nx = input int32[4]\na = cast(x) {dtype=\"fp16\"}\nb = cast(a) {dtype=\"fp32\"}\nc = tanh(b)\nreturn c=c\n", NULL },
    { "fp16 through int32", "cast", X "a = cast(x) {dtype=\"int32\"}\nb = cast(a) {dtype=\"fp16\"}\nc = tanh(b)\nreturn c=c\n", NULL },
    { "int8 through fp16 and back", "cast", "graph \"t\"\nx = input int8[4]\n" "a = cast(x) {dtype=\"fp16\"}\nb = cast(a) {dtype=\"int8\"}\nc = abs(b)\nreturn c=c\n", "graph \"t\"\nx = input int8[4]\n" "c = abs(x)\nreturn c=c\n" },
    { "int16 through fp16", "cast", "graph \"t\"\nx = input int16[4]\n" "a = cast(x) {dtype=\"fp16\"}\nb = cast(a) {dtype=\"fp32\"}\nc = abs(b)\nreturn c=c\n", NULL },
    { "int16 through fp32", "cast", "graph \"t\"\nx = input int16[4]\n" "a = cast(x) {dtype=\"fp32\"}\nb = cast(a) {dtype=\"fp16\"}\nc = abs(b)\nreturn c=c\n", "graph \"t\"\nx = input int16[4]\n" "b = cast(x) {dtype=\"fp16\"}\nc = abs(b)\nreturn c=c\n" },
    { "int8 through uint8", "cast", "graph \"t\"\nx = input int8[4]\n" "a = cast(x) {dtype=\"uint8\"}\nb = cast(a) {dtype=\"fp32\"}\nc = abs(b)\nreturn c=c\n", NULL },
    { "uint8 through int8", "cast", "graph \"t\"\nx = input uint8[4]\n" "a = cast(x) {dtype=\"int8\"}\nb = cast(a) {dtype=\"fp32\"}\nc = abs(b)\nreturn c=c\n", NULL },
    { "uint8 through int16", "cast", "graph \"t\"\nx = input uint8[4]\n" "a = cast(x) {dtype=\"int16\"}\nb = cast(a) {dtype=\"fp32\"}\nc = abs(b)\nreturn c=c\n", "graph \"t\"\nx = input uint8[4]\n" "b = cast(x) {dtype=\"fp32\"}\nc = abs(b)\nreturn c=c\n" },
    { "int32 through fp32", "cast", "graph \"t\"\nx = input int32[4]\n" "a = cast(x) {dtype=\"fp32\"}\nb = cast(a) {dtype=\"int32\"}\nc = abs(b)\nreturn c=c\n", NULL },
    { "int8 through bool", "cast", "graph \"t\"\nx = input int8[4]\n" "a = cast(x) {dtype=\"bool\"}\nb = cast(a) {dtype=\"fp16\"}\nc = abs(b)\nreturn c=c\n", NULL },
    { "fp16 through bf16", "cast", "graph \"t\"\nx = input fp16[4]\n" "a = cast(x) {dtype=\"bf16\"}\nb = cast(a) {dtype=\"fp32\"}\nc = abs(b)\nreturn c=c\n", NULL },
    { "bf16 through fp16", "cast", "graph \"t\"\nx = input bf16[4]\n" "a = cast(x) {dtype=\"fp16\"}\nb = cast(a) {dtype=\"fp32\"}\nc = abs(b)\nreturn c=c\n", NULL },
    { "bf16 through fp32", "cast", "graph \"t\"\nx = input bf16[4]\n" "a = cast(x) {dtype=\"fp32\"}\nb = cast(a) {dtype=\"bf16\"}\nc = abs(b)\nreturn c=c\n", "graph \"t\"\nx = input bf16[4]\n" "c = abs(x)\nreturn c=c\n" },
    /* transpose */
    { "transposes that cancel", "transpose", X "a = transpose(x) {perm=[0, 3, 1, 2]}\nb = transpose(a) {perm=[0, 2, 3, 1]}\nc = tanh(b)\nreturn c=c\n", X "c = tanh(x)\nreturn c=c\n" },
    { "transposes composed", "transpose", "graph \"t\"\nx = input fp16[2, 3, 4, 5]\na = transpose(x) {perm=[1, 0, 2, 3]}\nb = transpose(a) {perm=[0, 2, 3, 1]}\nreturn b=b\n", "graph \"t\"\nx = input fp16[2, 3, 4, 5]\nb = transpose(x) {perm=[1, 2, 3, 0]}\nreturn b=b\n" },
    { "only axes of one move", "transpose", X "a = transpose(x) {perm=[2, 1, 0, 3]}\nb = transpose(a) {perm=[0, 2, 1, 3]}\nc = tanh(b)\nreturn c=c\n", X "b = reshape(x) {shape=[1, 1, 4, 6]}\nc = tanh(b)\nreturn c=c\n" },
    { "chain through a reshape", "transpose", X "r = reshape(x) {shape=[4, 6]}\na = transpose(r) {perm=[1, 0]}\nq = reshape(a) {shape=[1, 1, 6, 4]}\nb = transpose(q) {perm=[0, 3, 1, 2]}\nc = tanh(b)\nreturn c=c\n", X "c = tanh(x)\nreturn c=c\n" },
    { "reshape that mixes axes", "transpose", X "a = transpose(x) {perm=[0, 3, 2, 1]}\nr = reshape(a) {shape=[1, 4, 1, 6]}\nb = transpose(r) {perm=[0, 3, 2, 1]}\nreturn b=b\n", NULL },
    /* algebra */
    { "x * 1", "algebra", X "k = const fp16[] {1}\na = mul(x, k)\nc = tanh(a)\nreturn c=c\n", X "c = tanh(x)\nreturn c=c\n" },
    { "1 * x", "algebra", X "k = const fp16[1, 4, 1, 1] {1, 1, 1, 1}\na = mul(k, x)\nc = tanh(a)\nreturn c=c\n", X "c = tanh(x)\nreturn c=c\n" },
    { "x * 1 that broadcasts", "algebra", "graph \"t\"\nx = input fp16[1, 4, 1, 1]\nk = const fp16[1, 1, 1, 2] {1, 1}\na = mul(x, k)\nc = tanh(a)\nreturn c=c\n", NULL },
    { "x * 0", "algebra", X "k = const fp16[] {0}\na = mul(x, k)\nc = tanh(a)\nreturn c=c\n", NULL },
    { "x + -0", "algebra", X "k = const fp16[] {-0}\na = add(x, k)\nc = tanh(a)\nreturn c=c\n", X "c = tanh(x)\nreturn c=c\n" },
    { "x + 0 loses -0", "algebra", X "k = const fp16[] {0}\na = add(x, k)\nc = tanh(a)\nreturn c=c\n", NULL },
    { "|x| + 0", "algebra", X "k = const fp16[] {0}\nb = abs(x)\na = add(b, k)\nc = tanh(a)\nreturn c=c\n", X "b = abs(x)\nc = tanh(b)\nreturn c=c\n" },
    { "tanh(x) + 0 loses -0", "algebra", X "k = const fp16[] {0}\nb = tanh(x)\na = add(b, k)\nc = tanh(a)\nreturn c=c\n", NULL },
    { "x + y + 0 loses -0", "algebra", XY "k = const fp16[] {0}\nb = add(x, y)\na = add(b, k)\nc = tanh(a)\nreturn c=c\n", NULL },
    { "x + 0 + 0", "algebra", X "k = const fp16[] {0}\nb = add(x, k)\na = add(b, k)\nc = tanh(a)\nreturn c=c\n", X "k = const fp16[] {0}\nb = add(x, k)\nc = tanh(b)\nreturn c=c\n" },
    { "x - 0", "algebra", X "k = const fp16[] {0}\na = sub(x, k)\nc = tanh(a)\nreturn c=c\n", X "c = tanh(x)\nreturn c=c\n" },
    { "0 - x", "algebra", X "k = const fp16[] {0}\na = sub(k, x)\nc = tanh(a)\nreturn c=c\n", NULL },
    { "x - -0", "algebra", X "k = const fp16[] {-0}\na = sub(x, k)\nc = tanh(a)\nreturn c=c\n", NULL },
    { "x / 1", "algebra", X "k = const fp16[] {1}\na = real_div(x, k)\nc = tanh(a)\nreturn c=c\n", X "c = tanh(x)\nreturn c=c\n" },
    { "1 / x", "algebra", X "k = const fp16[] {1}\na = real_div(k, x)\nc = tanh(a)\nreturn c=c\n", NULL },
    { "pow 1", "algebra", X "k = const fp16[] {1}\na = pow(x, k)\nc = tanh(a)\nreturn c=c\n", X "c = tanh(x)\nreturn c=c\n" },
    { "1 to the x", "algebra", X "k = const fp16[] {1}\na = pow(k, x)\nc = tanh(a)\nreturn c=c\n", NULL },
    { "floor of x / 1", "algebra", X "k = const fp16[] {1}\na = floor_div(x, k)\nc = tanh(a)\nreturn c=c\n", NULL },
    { "integers / 1", "algebra", "graph \"t\"\nx = input int32[4]\n" "k = const int32[] {1}\na = floor_div(x, k)\nc = abs(a)\nreturn c=c\n", "graph \"t\"\nx = input int32[4]\n" "c = abs(x)\nreturn c=c\n" },
    { "integers + 0", "algebra", "graph \"t\"\nx = input int32[4]\n" "k = const int32[] {0}\na = add(k, x)\nc = abs(a)\nreturn c=c\n", "graph \"t\"\nx = input int32[4]\n" "c = abs(x)\nreturn c=c\n" },
    { "relu relu", "algebra", X "a = relu(x)\nb = relu(a)\nc = tanh(b)\nreturn c=c\n", X "a = relu(x)\nc = tanh(a)\nreturn c=c\n" },
    { "tanh tanh", "algebra", X "a = tanh(x)\nb = tanh(a)\nreturn b=b\n", NULL },
    { "round ceil", "algebra", X "b = ceil(x)\na = round(b)\nc = tanh(a)\nreturn c=c\n", X "b = ceil(x)\nc = tanh(b)\nreturn c=c\n" },
    { "round of no integer", "algebra", X "b = abs(x)\na = round(b)\nc = tanh(a)\nreturn c=c\n", NULL },
    { "clip clip", "algebra", X "b = clip(x) {alpha=-1.0, beta=2.0}\na = clip(b) {alpha=-1.0, beta=2.0}\nc = tanh(a)\nreturn c=c\n", X "b = clip(x) {alpha=-1.0, beta=2.0}\nc = tanh(b)\nreturn c=c\n" },
    { "clip lower", "algebra", X "b = clip(x) {alpha=-1.0, beta=2.0}\na = clip(b) {alpha=-1.0, beta=1.0}\nc = tanh(a)\nreturn c=c\n", NULL },
    { "square square", "algebra", X "b = square(x)\na = square(b)\nc = tanh(a)\nreturn c=c\n", NULL },
    { "max(x, x)", "algebra", X "a = maximum(x, x)\nc = tanh(a)\nreturn c=c\n", X "c = tanh(x)\nreturn c=c\n" },
    { "max(x, y)", "algebra", XY "a = maximum(x, y)\nc = tanh(a)\nreturn c=c\n", NULL },
    { "x - x", "algebra", X "a = sub(x, x)\nc = tanh(a)\nreturn c=c\n", NULL },
    { "select of one", "algebra", XY "p = less(x, y)\na = select(p, x, x)\nc = tanh(a)\nreturn c=c\n", XY "c = tanh(x)\nreturn c=c\n" },
    { "select by true", "algebra", XY "p = const bool[] {1}\na = select(p, x, y)\nc = tanh(a)\nreturn c=c\n", XY "c = tanh(x)\nreturn c=c\n" },
    { "select by false", "algebra", XY "p = const bool[] {0}\na = select(p, x, y)\nc = tanh(a)\nreturn c=c\n", XY "c = tanh(y)\nreturn c=c\n" },
    { "-(-x)", "algebra", X "k = const fp16[] {-1}\na = mul(x, k)\nb = mul(k, a)\nc = tanh(b)\nreturn c=c\n", X "c = tanh(x)\nreturn c=c\n" },
    { "|-x|", "algebra", X "k = const fp16[] {-1}\nb = mul(x, k)\na = abs(b)\nc = tanh(a)\nreturn c=c\n", X "a = abs(x)\nc = tanh(a)\nreturn c=c\n" },
    { "square of -x", "algebra", X "k = const fp16[] {-1}\nb = mul(x, k)\na = square(b)\nc = tanh(a)\nreturn c=c\n", X "a = square(x)\nc = tanh(a)\nreturn c=c\n" },
    { "reshape of reshape", "algebra", X "a = reshape(x) {shape=[4, 6]}\nb = reshape(a) {shape=[0, 2, -1]}\nc = tanh(b)\nreturn c=c\n", X "b = reshape(x) {shape=[4, 2, 3]}\nc = tanh(b)\nreturn c=c\n" },
    { "slice of slice", "algebra", X "a = slice_by_size(x) {begin=[0, 1, 0, 2], size=[1, 3, 1, 4]}\nb = slice_by_size(a) {begin=[0, 1, 0, 1], size=[1, 1, 1, 2]}\nreturn b=b\n", X "b = slice_by_size(x) {begin=[0, 2, 0, 3], size=[1, 1, 1, 2]}\nreturn b=b\n" },
    { "slice of concat", "algebra", XY "a = concat(x, y) {axis=1}\nb = slice_by_size(a) {begin=[0, 4, 0, 0], size=[1, 4, 1, 6]}\nc = tanh(b)\nreturn c=c\n", XY "c = tanh(y)\nreturn c=c\n" },
    { "slice across a concat", "algebra", XY "a = concat(x, y) {axis=1}\nb = slice_by_size(a) {begin=[0, 2, 0, 0], size=[1, 4, 1, 6]}\nc = tanh(b)\nreturn c=c\n", NULL },
    { "slice of a dealt concat", "algebra", XY "a = concat(x, y) {axis=1, interleave=true}\nb = slice_by_size(a) {begin=[0, 4, 0, 0], size=[1, 4, 1, 6]}\nc = tanh(b)\nreturn c=c\n", NULL },
    { "(a + b) + c stays", "algebra", XY "a = add(x, y)\nb = add(a, x)\nreturn b=b\n", NULL },
    /* fold: each step in fp16: 2049 is 2048 there, so the sum is 2049 - 1 = 2047, not 2048 */
    { "folding rounds each step", "fold", X "k = const fp16[] {2048}\none = const fp16[] {1}\na = add(k, one)\nb = sub(a, one)\nc = add(x, b)\nreturn c=c\n", X "b = const fp16[] {2047}\nc = add(x, b)\nreturn c=c\n" },
    { "what is returned is computed", "fold", X "k = const fp16[] {2}\na = add(k, k)\nreturn a=a, x=x\n", NULL },
    { "infinities are the engine's", "fold", X "k = const fp16[] {60000}\na = add(k, k)\nc = add(x, a)\nreturn c=c\n", NULL },
    { "growth", "fold", X "k = const fp16[1, 1] {2}\na = tile(k) {reps=[256, 256]}\nc = reduce_max(a) {axes=[0, 1]}\nd = add(x, c)\nreturn d=d\n", NULL },
    { "compressed weights stay", "fold", X "q = const int8[4, 1] {1, 2, 3, 4}\ns = const fp16[] {0.5}\nz = const int8[] {0}\nw = constexpr_affine_dequantize(q, s, z)\nr = reshape(w) {shape=[1, 4, 1, 1]}\nc = mul(x, r)\nreturn c=c\n", NULL },
    /* cse */
    { "computed once", "cse", XY "a = add(x, y)\nb = add(y, x)\nc = mul(a, b)\nreturn c=c\n", XY "a = add(x, y)\nc = mul(a, a)\nreturn c=c\n" },
    { "other order", "cse", XY "a = sub(x, y)\nb = sub(y, x)\nc = mul(a, b)\nreturn c=c\n", NULL },
    { "max either way keeps its zero", "cse", XY "a = maximum(x, y)\nb = maximum(y, x)\nc = mul(a, b)\nreturn c=c\n", NULL },
    { "other attributes", "cse", X "a = reduce_sum(x) {axes=[1], keep_dims=true}\nb = reduce_sum(x) {axes=[3], keep_dims=true}\nc = mul(a, b)\nreturn c=c\n", NULL },
    { "constants by bytes", "cse", X "k = const fp16[1, 4, 1, 1] {1, 2, 3, 4}\nl = const fp16[1, 4, 1, 1] {1, 2, 3, 4}\na = mul(x, k)\nc = add(a, l)\nreturn c=c\n", X "k = const fp16[1, 4, 1, 1] {1, 2, 3, 4}\na = mul(x, k)\nc = add(a, k)\nreturn c=c\n" },
    { "same bytes, other shape", "cse", X "k = const fp16[1, 4, 1, 1] {1, 1, 1, 1}\nl = const fp16[1, 1, 4, 1] {1, 1, 1, 1}\na = mul(x, k)\nc = add(a, l)\nreturn c=c\n", NULL },
    { "0 and -0", "cse", X "k = const fp16[] {0}\nl = const fp16[] {-0}\na = add(x, k)\nc = add(a, l)\nreturn c=c\n", NULL },
    { "two outputs", "cse", X "a = tanh(x)\nb = tanh(x)\nreturn a=a, b=b\n", NULL },
    { "a state read again", "cse", XY "a = read_state(x)\nw = write_state(x, y)\nb = read_state(x)\nc = sub(a, b)\nd = mul(c, w)\nreturn d=d\n", NULL },
    { "a state written again", "cse", XY "z = relu(y)\na = write_state(x, y)\nb = write_state(x, z)\nc = write_state(x, y)\nd = add(a, b)\ne = mul(d, c)\nreturn e=e\n", NULL },
    { "random numbers", "cse", X "a = random_uniform() {shape=[1, 4, 1, 6]}\nb = random_uniform() {shape=[1, 4, 1, 6]}\nc = sub(a, b)\nd = add(c, x)\nreturn d=d\n", NULL },
    /* dce */
    { "dead code", "dce", XY "a = tanh(x)\nb = exp(a)\nc = relu(x)\nreturn c=c\n", XY "c = relu(x)\nreturn c=c\n" },
};

static graph *read(const char *text)
{
    graph *g = NULL;
    diag d = { 0 };
    if (graph_parse(text, strlen(text), &g, &d)) fail_msg("%s in\n%s", d.msg, text);
    return g;
}

static void clean_up_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        graph *g = read(rows[i].in), *want = read(rows[i].want ? rows[i].want : rows[i].in);
        diag d = { 0 };
        bool changed;
        strbuf why = { 0 }, text = { 0 };
        assert_ok(pass_run_one(g, rows[i].pass, NULL, NULL, &changed, &d), d);
        if (changed == !rows[i].want)
            fail_msg("%s: %s %s the graph", rows[i].what, rows[i].pass, changed ? "changed" : "did not change");
        if (changed) assert_ok(pass_run_one(g, "dce", NULL, NULL, NULL, &d), d);
        graph_print(g, &text);
        if (!graph_same(g, want, &why))
            fail_msg("%s (%s): %s\n%s", rows[i].what, rows[i].pass, why.at ? why.at : "", text.at);
        assert_ok(pass_run_one(g, rows[i].pass, NULL, NULL, &changed, &d), d);
        if (changed) fail_msg("%s: %s is not idempotent here", rows[i].what, rows[i].pass);
        sb_free(&why);
        sb_free(&text);
        graph_free(g);
        graph_free(want);
    }
}

/* Only the ends of a long constant are hashed: all of it decides. */
static void long_constants_are_compared_whole(void **state)
{
    (void)state;
    enum { N = 1000 };
    static const int at[] = { 0, N / 2, N - 1, -1 }; /* where the second differs */
    for (size_t i = 0; i < COUNT(at); i++) {
        graph *g = graph_new("t", 0);
        double a[N], b[N];
        for (int k = 0; k < N; k++) a[k] = b[k] = k;
        if (at[i] >= 0) b[at[i]] = -1;
        ttype t = TTYPE(DT_F16, N);
        val x = graph_input(g, "x", t);
        graph_output(g, "y", G(g, MUL, G(g, ADD, x, graph_const_f64(g, NULL, t, a)), graph_const_f64(g, NULL, t, b)));
        diag d = { 0 };
        bool changed;
        assert_ok(graph_finish(g, &d), d);
        assert_ok(pass_run_one(g, "cse", NULL, NULL, &changed, &d), d);
        if (changed != (at[i] < 0)) fail_msg("constants that differ at %d are %s", at[i], changed ? "one" : "two");
        graph_free(g);
    }
}

/* ---- legalisation: what must be gone, what must be there, and the same results ---- */

static size_t count(const graph *g, op_id op)
{
    size_t n = 0;
    for (size_t i = 1; i < g->nodes.n; i++) n += g->nodes.at[i].op == op;
    return n;
}

static int64_t longest(const graph *g)
{
    int64_t most = 0;
    for (size_t v = 1; v < g->values.n; v++) {
        if (graph_maker(g, (val){ (uint32_t)v })->op == OP_CONST) continue;
        for (int k = 0; k < g->values.at[v].type.sh.rank; k++) most = MAX(most, g->values.at[v].type.sh.d[k]);
    }
    return most;
}

static pass_options on(const char *chip_, bool ports)
{
    const chip *c = chip_find(chip_);
    assert_non_null(c);
    return (pass_options){ .target = c, .level = 1, .ports = ports };
}

/* Run the pass (or, pass NULL, everything) on b, and compare with a: the same graph as it was. Returns b's plan. */
static port_plan run_and_compare(graph *a, graph *b, const char *pass, const pass_options *o, double tolerance,
                                 bool want_change)
{
    arena mem = { 0 };
    diag d = { 0 };
    pass_stats st = { 0 };
    rng r = { 7 };
    bool changed = true;
    tensor64 *in = rg_inputs(a, &r, &mem), *want = TAKE(&mem, tensor64, a->outputs.n),
             *got = TAKE(&mem, tensor64, a->outputs.n);
    const char *in_names[16], *out_names[16];
    for (size_t i = 0; i < a->inputs.n; i++) in_names[i] = graph_value(a, a->inputs.at[i])->name;
    for (size_t i = 0; i < a->outputs.n; i++) out_names[i] = a->outputs.at[i].name;
    if (pass) assert_ok(pass_run_one(b, pass, o, &st, &changed, &d), d);
    else assert_ok(pass_run(b, o, &st, &d), d);
    if (pass) assert_int_equal(changed, want_change);
    assert_ok(rg_eval(a, in, want, RG_ROUND_CONST, &mem, &d), d);
    assert_ok(pp_eval(b, &st.ports, in, in_names, a->inputs.n, got, out_names, a->outputs.n, RG_ROUND_CONST, &mem, &d),
              d);
    for (size_t i = 0; i < a->outputs.n; i++) {
        int64_t n;
        double scale = 1;
        assert_true(shape_elems(&want[i].type.sh, &n));
        for (int64_t k = 0; k < n; k++) scale = fmax(scale, fabs(want[i].x[k]));
        for (int64_t k = 0; k < n; k++)
            if (!(fabs(want[i].x[k] - got[i].x[k]) <= tolerance * scale))
                fail_msg("%s: %s[%lld] is %.17g, was %.17g", pass ? pass : "all", out_names[i], (long long)k,
                         got[i].x[k], want[i].x[k]);
    }
    arena_free(&mem);
    return st.ports;
}

static void both(graph **a, graph **b, void (*build)(graph *))
{
    diag d = { 0 };
    for (int k = 0; k < 2; k++) {
        graph *g = graph_new("t", 0);
        assert_non_null(g);
        build(g);
        assert_ok(graph_finish(g, &d), d);
        *(k ? b : a) = g;
    }
}

/* One operand of two is 1 deep, in any place of any width; the bits are those of the broadcast. */
static void depth_becomes_channels(void **state)
{
    (void)state;
    static const char *const uses[] = {
        "b = input fp16[2, 1, 3, 4, 2]\ny = sub(b, x)", "b = input fp16[3, 1, 1]\ny = mul(x, b)", "b = input fp16[2, 1, 1, 4, 1]\ny = maximum(x, b)",
        "b = input fp16[2]\ny = add(b, x)", "b = input fp16[1, 1, 3, 1, 2]\nq = greater(x, b)\ny = select(q, x, x)", "c = input fp16[1, 1, 3, 1, 2]\nb = input fp16[1, 5, 1, 4, 1]\ny = pe_elementwise(b, c) {mode=\"min\"}",
    };
    for (size_t i = 0; i < COUNT(uses); i++) {
        char text[300];
        snprintf(text, sizeof text, "graph \"t\"\nx = input fp16[2, 5, 3, 4, 2]\n%s\nreturn y=y\n", uses[i]);
        graph *a = read(text), *b = read(text), *c = read(text);
        pass_options o = on("m1", false), later = on("m2", false);
        run_and_compare(a, b, "depth_broadcast", &o, 0, true);
        const node *n = graph_maker(b, graph_find(b, i == 4 ? "q" : "y"));
        for (int k = 0; k < 2; k++)
            assert_true(graph_type(b, n->in[k])->sh.rank == 5 && graph_type(b, n->in[k])->sh.d[1] == 5);
        run_and_compare(a, c, "depth_broadcast", &later, 0, false);
        graph_free(a), graph_free(b), graph_free(c);
    }
}

static void gelu_becomes_arithmetic(void **state)
{
    (void)state;
    /* Tolerances against gelu itself: constants rounded to fp16 (2^-12 relative) times |x| <= 2 here; the tanh form
     * is 4.8e-4 off. */
    static const struct {
        const char *mode;
        op_id has;
        double tolerance;
    } forms[] = { { "EXACT", OP_ERF, 1e-3 },
                  { "TANH_APPROXIMATION", OP_TANH, 1e-3 },
                  { "SIGMOID_APPROXIMATION", OP_SIGMOID, 1e-3 } };
    for (size_t i = 0; i < COUNT(forms); i++) {
        char text[200];
        snprintf(text, sizeof text, X "y = gelu(x) {mode=\"%s\"}\nreturn y=y\n", forms[i].mode);
        graph *a = read(text), *b = read(text);
        pass_options o = on("m4", false);
        run_and_compare(a, b, "gelu", &o, forms[i].tolerance, true);
        assert_int_equal(count(b, OP_GELU), 0);
        assert_int_equal(count(b, forms[i].has), 1);
        assert_int_equal(count(b, OP_POW), 0);
        assert_non_null(graph_maker(b, graph_find(b, "y"))); /* the result keeps its name */
        graph_free(a);
        graph_free(b);
    }
    graph *a = read(X "y = silu(x)\nreturn y=y\n"), *b = read(X "y = silu(x)\nreturn y=y\n");
    pass_options o = on("m4", false);
    run_and_compare(a, b, "gelu", &o, 0, false);
    graph_free(a);
    graph_free(b);
}

/* How far the tanh form is from the exact one, which the documentation states. */
static void gelu_tanh_error(void **state)
{
    (void)state;
    double worst = 0;
    for (double x = -8; x <= 8; x += 1.0 / 1024) {
        double exact = 0.5 * x * erfc(-x * sqrt(0.5)),
               form = 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
        worst = fmax(worst, fabs(exact - form));
    }
    assert_true(worst > 4e-4 && worst < 4.8e-4);
}

static void conv_bias_becomes_add(void **state)
{
    (void)state;
    const char *with = X
        "w = const fp16[3, 4, 1, 1] {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}\nb = const fp16[3] {0.5, -1, 2}\ny = conv(x, w, b)\nreturn y=y\n";
    const char *without =
        X "w = const fp16[3, 4, 1, 1] {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}\ny = conv(x, w)\nreturn y=y\n";
    pass_options o = on("m4", false);
    graph *a = read(with), *b = read(with);
    run_and_compare(a, b, "conv_bias", &o, 1e-12, true);
    assert_int_equal(count(b, OP_ADD), 1);
    assert_int_equal(graph_maker(b, graph_find(b, "y"))->op, OP_ADD);
    assert_int_equal(count(b, OP_RESHAPE), 0); /* the constant itself has the new shape */
    graph_free(a);
    graph_free(b);
    a = read(without), b = read(without);
    run_and_compare(a, b, "conv_bias", &o, 0, false);
    graph_free(a);
    graph_free(b);
}

static void matmul_becomes_conv(void **state)
{
    (void)state;
    static const struct {
        const char *x, *w, *args;
        bool swap, rewritten;
    } forms[] = {
        { "[5, 4]", "[4, 3]", "", false, true },
        { "[5, 4]", "[3, 4]", " {transpose_y=true}", false, true },
        { "[4, 5]", "[4, 3]", " {transpose_x=true}", false, true },
        { "[4, 5]", "[3, 4]", " {transpose_x=true, transpose_y=true}", false, true },
        { "[2, 5, 4]", "[4, 3]", "", false, true },                     /* batch joins the rows */
        { "[2, 4, 5]", "[4, 3]", " {transpose_x=true}", false, false }, /* and cannot here */
        { "[4, 5]", "[3, 4]", "", true, true },                         /* W @ x */
        { "[5, 4]", "[3, 4]", " {transpose_y=true}", true, true },
        { "[1, 1, 4, 5]", "[4, 3]", " {transpose_x=true}", true, true },
        { "[2, 4, 5]", "[3, 4]", "", true, false },
        { "[2, 5, 4]", "[2, 4, 3]", "", false, false }, /* a batch of weights */
    };
    for (size_t i = 0; i < COUNT(forms); i++) {
        char text[600], values[300] = "";
        int n = !strcmp(forms[i].w, "[2, 4, 3]") ? 24 : 12;
        for (int k = 0; k < n; k++)
            snprintf(values + strlen(values), sizeof values - strlen(values), "%s%d", k ? ", " : "", k - 5);
        snprintf(text, sizeof text,
                 "graph \"t\"\nx = input fp16%s\nw = const fp16%s {%s}\ny = matmul(%s)%s\nreturn y=y\n", forms[i].x,
                 forms[i].w, values, forms[i].swap ? "w, x" : "x, w", forms[i].args);
        graph *a = read(text), *b = read(text);
        pass_options o = on("m1", false);
        run_and_compare(a, b, "matmul_conv", &o, 1e-12, forms[i].rewritten);
        assert_int_equal(count(b, OP_CONV), forms[i].rewritten);
        graph_free(a);
        graph_free(b);
    }
}

/* On [1, C, 1, S] the movements around the product vanish: reshape, transpose, product, transpose, reshape is one
 * conv. */
static void product_on_channels_is_one_conv(void **state)
{
    (void)state;
    const char *text = X "r = reshape(x) {shape=[1, 1, 4, 6]}\nt = transpose(r) {perm=[0, 1, 3, 2]}\n"
                         "w = const fp16[1, 1, 4, 2] {1, 2, 3, 4, 5, 6, 7, 8}\nm = matmul(t, w)\n"
                         "u = transpose(m) {perm=[0, 1, 3, 2]}\ny = reshape(u) {shape=[1, 2, 1, 6]}\nreturn y=y\n";
    graph *a = read(text), *b = read(text);
    pass_options o = on("m1", false);
    run_and_compare(a, b, NULL, &o, 1e-12, true);
    assert_int_equal(count(b, OP_CONV), 1);
    assert_int_equal(b->nodes.n - 1, 3); /* input, weight, conv */
    graph_free(a);
    graph_free(b);
}

/* A weight known only by its file reference is used where it lies as [out, in], and left alone where bytes would
 * have to move. */
static void unknown_weights(void **state)
{
    (void)state;
    for (int ty = 0; ty < 2; ty++) {
        graph *g = graph_new("t", 0);
        diag d = { 0 };
        bool changed;
        val x = graph_input(g, "x", TTYPE(DT_F16, 5, 4));
        val w = graph_const_blob(g, "w", ty ? TTYPE(DT_F16, 3, 4) : TTYPE(DT_F16, 4, 3), "@model_path/w.bin", 64, NULL);
        graph_output(g, "y", GA(g, MATMUL, VALS(x, w), AT_B(TRANSPOSE_Y, ty)));
        pass_options o = on("m1", false);
        assert_ok(pass_run_one(g, "matmul_conv", &o, NULL, &changed, &d), d);
        assert_int_equal(changed, ty);
        assert_ok(pass_run_one(g, "fold", &o, NULL, &changed, &d), d);
        assert_false(changed);
        graph_free(g);
    }
}

static void attention_mask_is_added_in_the_open(void **state)
{
    (void)state;
    const char *head =
        "graph \"t\"\nq = input fp16[1, 2, 3, 4]\nk = input fp16[1, 2, 3, 4]\nv = input fp16[1, 2, 3, 4]\n";
    static const char *const masks[] = {
        "m = const fp16[1, 1, 3, 3] {0, -65504, -65504, 0, 0, -65504, 0, 0, 0}\n",
        "m = const fp16[1, 1, 3, 3] {0, -inf, -inf, 0, 0, -inf, 0, 0, 0}\n",
        "m = const fp16[1, 1, 3, 3] {0, -10000, -10000, 0, 0, -10000, 0, 0, 0}\n",
        "m = const bool[1, 1, 3, 3] {1, 0, 0, 1, 1, 0, 1, 1, 1}\n",
    };
    for (size_t i = 0; i < COUNT(masks); i++) {
        char text[600];
        snprintf(text, sizeof text, "%s%sy = scaled_dot_product_attention(q, k, v, m)\nreturn y=y\n", head, masks[i]);
        graph *a = read(text), *b = read(text);
        pass_options o = on("m3", false);
        run_and_compare(a, b, "causal_mask", &o, 1e-12, true); /* 1/sqrt(4) is exact in fp16 */
        assert_int_equal(count(b, OP_SDPA), 0);
        assert_int_equal(count(b, OP_SOFTMAX), 1);
        for (size_t k = 1; k < b->nodes.n; k++) { /* nothing below -1e4 is left in use */
            const node *n = &b->nodes.at[k];
            for (int j = 0; n->op == OP_ADD && j < 2; j++) {
                const node *c = graph_const_of(b, n->in[j]);
                for (int64_t e = 0; c && e < 9; e++) assert_true(graph_const_at(c, graph_type(b, n->in[j]), e) >= -1e4);
            }
        }
        graph_free(a);
        graph_free(b);
    }
    graph *g = read("graph \"t\"\nq = input fp16[1, 2, 3, 4]\ny = scaled_dot_product_attention(q, q, q)\nreturn y=y\n");
    diag d = { 0 };
    bool changed;
    pass_options o = on("m3", false);
    assert_ok(pass_run_one(g, "causal_mask", &o, NULL, &changed, &d), d);
    assert_false(changed); /* without a mask nothing is ignored */
    graph_free(g);
    /* a boolean mask hides whatever the admitted scores are, here -12000 */
    static const char low[] = "graph \"t\"\nv = input fp16[1, 2, 3, 4]\nq = const fp16[1, 2, 3, 4] all 60\nk = const fp16[1, 2, 3, 4] all -100\n"
                              "m = const bool[3, 3] {1, 0, 0, 1, 1, 0, 1, 1, 1}\ny = scaled_dot_product_attention(q, k, v, m)\nreturn y=y\n";
    graph *a = read(low), *b = read(low);
    run_and_compare(a, b, "causal_mask", &o, 1e-2, true); /* a third in fp16 */
    graph_free(a);
    graph_free(b);
}

/* An additive mask of -65504 is cut to -1e4 where only a softmax reads the sum, and nowhere else; -500 stays
 * far above it. */
static void mask_constants_are_cut(void **state)
{
    (void)state;
    static const struct {
        const char *tail;
        bool cut;
    } forms[] = {
        { "p = softmax(s)\nreturn p=p\n", true },
        { "p = softmax(s)\nreturn p=p, s=s\n", false },
        { "p = tanh(s)\nreturn p=p\n", false },
    };
    for (size_t i = 0; i < COUNT(forms); i++) {
        char text[400];
        snprintf(
            text, sizeof text,
            "graph \"t\"\nx = input fp16[1, 1, 2, 2]\nm = const fp16[1, 1, 2, 2] {-500, -65504, 0, 0}\ns = add(x, m)\n%s",
            forms[i].tail);
        graph *a = read(text), *b = read(text);
        pass_options o = on("m4", false);
        run_and_compare(a, b, "causal_mask", &o, 1e-12, forms[i].cut);
        graph_free(a);
        graph_free(b);
    }
}

/* ---- sizes ---- */

static double step(int64_t i) { return (double)((i * 37) % 17 - 8) / 16; }

static val weight(graph *g, ttype t)
{
    int64_t n;
    assert_true(shape_elems(&t.sh, &n));
    double *x = malloc(sizeof(double) * (size_t)n);
    for (int64_t i = 0; i < n; i++) x[i] = step(i);
    val v = graph_const_f64(g, NULL, t, x);
    free(x);
    return v;
}

static void wide_classifier(graph *g) /* more words than a conv takes, softmax over them */
{
    val x = graph_input(g, "x", TTYPE(DT_F16, 1, 2, 1, 2));
    val y = G(g, CONV, x, weight(g, TTYPE(DT_F16, 33000, 2, 1, 1)), weight(g, TTYPE(DT_F16, 33000)));
    graph_output(g, "p", GA(g, SOFTMAX, VALS(y), AT_I(AXIS, 1)));
}

static void wide_backward(graph *g)
{
    val x = graph_input(g, "x", TTYPE(DT_F16, 1, 33000, 1, 2));
    graph_output(g, "y", G(g, CONV, x, weight(g, TTYPE(DT_F16, 2, 33000, 1, 1)), weight(g, TTYPE(DT_F16, 2))));
}

static void narrow_conv(graph *g)
{
    val x = graph_input(g, "x", TTYPE(DT_F16, 1, 2, 1, 2));
    graph_output(g, "y", G(g, CONV, x, weight(g, TTYPE(DT_F16, 16000, 2, 1, 1)), NO_VAL));
}

static void channels_are_chunked(void **state)
{
    (void)state;
    graph *a, *b;
    pass_options o = on("m1", false);
    both(&a, &b, wide_classifier);
    run_and_compare(a, b, "chunk_channels", &o, 1e-12, true);
    assert_int_equal(count(b, OP_CONV), 2);
    assert_int_equal(count(b, OP_CONCAT), 1);
    graph_free(a), graph_free(b);
    both(&a, &b, wide_backward);
    run_and_compare(a, b, "chunk_channels", &o, 1e-12, true);
    assert_int_equal(count(b, OP_CONV), 2);
    assert_int_equal(count(b, OP_ADD), 1);
    graph_free(a), graph_free(b);
    both(&a, &b, narrow_conv);
    run_and_compare(a, b, "chunk_channels", &o, 0, false);
    graph_free(a), graph_free(b);
}

static void long_elementwise(graph *g)
{
    val x = graph_input(g, "x", TTYPE(DT_F16, 1, 2, 1, 20000)), y = graph_input(g, "y", TTYPE(DT_F16, 1, 2, 1, 1));
    val c = weight(g, TTYPE(DT_F16, 1, 1, 1, 20000));
    val z = G(g, RELU, G(g, ADD, G(g, MUL, x, y), c));
    graph_output(g, "z", z);
    graph_output(g, "s", GA(g, REDUCE_MAX, VALS(z), AT_IS(AXES, 3), AT_B(KEEP_DIMS, true)));
    graph_output(g, "m", GA(g, REDUCE_SUM, VALS(z), AT_IS(AXES, 1), AT_B(KEEP_DIMS, true)));
}

static void long_product(graph *g) /* long columns, then contracted again */
{
    val x = graph_input(g, "x", TTYPE(DT_F16, 1, 1, 3, 4));
    val y = G(g, MATMUL, x, weight(g, TTYPE(DT_F16, 4, 17000)));
    val p = GA(g, SOFTMAX, VALS(y), AT_I(AXIS, -1));
    val t = GA(g, TRANSPOSE, VALS(G(g, TANH, y)), AT_IS(PERM, 0, 1, 3, 2));
    graph_output(g, "y", G(g, MATMUL, p, t));
    graph_output(g, "c", GA(g, SLICE_BY_SIZE, VALS(y), AT_IS(BEGIN, 0, 0, 1, 16000), AT_IS(SIZE, 1, 1, 2, 900)));
}

static void long_moves(graph *g)
{
    val x = graph_input(g, "x", TTYPE(DT_F16, 1, 9000, 2)); /* short enough, its concat is not */
    val y = GA(g, CONCAT, VALS(x, G(g, TANH, x)), AT_I(AXIS, 1));
    val r = GA(g, RESHAPE, VALS(y), AT_IS(SHAPE, 1, 1, 18000, 2));
    val p = GA(g, PAD, VALS(r), AT_IS(PAD, 0, 3));
    graph_output(g, "y", GA(g, REDUCE_MIN, VALS(p), AT_IS(AXES, 2)));
    graph_output(g, "z", GA(g, TRANSPOSE, VALS(p), AT_IS(PERM, 0, 2, 1, 3))); /* on the channel axis it may be long */
}

static void long_axes_are_split(void **state)
{
    (void)state;
    graph *a, *b;
    pass_options m1 = on("m1", true), m4 = on("m4", true), closed = on("m1", false);
    both(&a, &b, long_elementwise);
    run_and_compare(a, b, "split_dim", &m4, 0, false); /* 65536 there */
    port_plan p = run_and_compare(a, b, "split_dim", &m1, 1e-12, true);
    assert_int_equal(p.n_in, 3);  /* x in two */
    assert_int_equal(p.n_out, 5); /* z and m in two */
    assert_int_equal(p.in[1].at[3], p.in[0].part.d[3]);
    assert_true(p.changed);
    assert_true(longest(b) <= 16384);
    graph_free(a), graph_free(b);

    both(&a, &b, long_product);
    run_and_compare(a, b, "split_dim", &closed, 1e-12, true); /* no port is long: allowed without ports */
    assert_true(longest(b) <= 16384);
    graph_free(a), graph_free(b);

    both(&a, &b, long_moves);
    run_and_compare(a, b, "split_dim", &closed, 1e-12, true);
    assert_int_equal(longest(b), 18000); /* z alone, by its channels */
    graph_free(a), graph_free(b);
}

static void long_gather(graph *g)
{
    val x = graph_input(g, "x", TTYPE(DT_F16, 4, 2)), ix = graph_fill_const(g, NULL, TTYPE(DT_I32, 20000), 1);
    graph_output(g, "y", GA(g, REDUCE_MAX, VALS(GA(g, GATHER, VALS(x, ix), AT_I(AXIS, 0))), AT_IS(AXES, 0)));
}

static void what_cannot_be_split_says_so(void **state)
{
    (void)state;
    static const struct {
        void (*build)(graph *);
        const char *says[3];
    } cases[] = {
        { long_elementwise, { "x (input)", "20000", "16384" } }, /* a port, and ports may not change */
        { long_gather, { "gather", "20000", "16384" } },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        graph *g = graph_new("t", 0);
        diag d = { 0 };
        pass_options o = on("m1", false);
        cases[i].build(g);
        assert_int_equal(pass_run_one(g, "split_dim", &o, NULL, NULL, &d), AN_UNSUPPORTED);
        for (int k = 0; k < 3; k++)
            if (!strstr(d.msg, cases[i].says[k])) fail_msg("\"%s\" does not say %s", d.msg, cases[i].says[k]);
        graph_free(g);
    }
}

/* ---- ports ---- */

static void odd_ports(graph *g)
{
    val b = graph_input(g, "b", TTYPE(DT_F16, 1, 64, 1, 5)), a = graph_input(g, "a", TTYPE(DT_F16, 1, 1, 1, 5));
    val c = graph_input(g, "c", TTYPE(DT_F16, 1, 96, 1, 512));
    val s = G(g, ADD, b, a);
    graph_output(g, "z", G(g, TANH, s));
    graph_output(g, "y", G(g, RELU, c));
}

static void ports_are_padded_and_named(void **state)
{
    (void)state;
    graph *a, *b;
    pass_options o = on("m4", true);
    size_t bytes, first;
    both(&a, &b, odd_ports);
    port_plan p = run_and_compare(a, b, "pad_surface", &o, 0, true);
    for (size_t i = 0; i < p.n_in; i++) {
        assert_true(shape_bytes(&p.in[i].type, &bytes));
        assert_true(bytes >= 49152);
        assert_int_equal(p.in[i].type.sh.d[3] % 16, 0);
        assert_true(shape_eq(&p.in[i].part, &p.in[i].orig_type.sh));
    }
    assert_int_equal(p.in[2].type.sh.d[3], 512); /* large enough already */
    graph_free(a), graph_free(b);

    both(&a, &b, odd_ports);
    p = run_and_compare(a, b, "uniform_ports", &o, 0, true);
    assert_true(p.in_uniform && p.out_uniform);
    assert_true(shape_bytes(&p.in[0].type, &first));
    for (size_t i = 0; i < p.n_in; i++) {
        assert_true(shape_bytes(&p.in[i].type, &bytes));
        assert_int_equal(bytes, first);
    }
    assert_int_equal(p.in_bytes, first);
    graph_free(a), graph_free(b);

    both(&a, &b, odd_ports);
    p = run_and_compare(a, b, "sort_ports", &o, 0, true);
    assert_string_equal(p.in[0].name, "i00_b");
    assert_string_equal(p.in[0].orig_name, "b");
    assert_string_equal(p.out[1].name, "o01_y");
    graph_free(a), graph_free(b);

    both(&a, &b, odd_ports);
    p = run_and_compare(a, b, NULL, &o, 0, true);
    assert_true(p.in_uniform && p.out_uniform && p.changed);
    graph_free(a), graph_free(b);

    pass_options closed = on("m4", false);
    both(&a, &b, odd_ports);
    p = run_and_compare(a, b, NULL, &closed, 0, true);
    assert_false(p.changed);
    assert_string_equal(p.in[0].name, "b");
    graph_free(a), graph_free(b);
}

static void odd_outputs(graph *g) /* no width or height makes these equal: channels must grow */
{
    val x = graph_input(g, "x", TTYPE(DT_F16, 1, 13, 1, 32)), y = graph_input(g, "y", TTYPE(DT_F16, 1, 11, 1, 32));
    graph_output(g, "a", G(g, TANH, x));
    graph_output(g, "b", G(g, TANH, y));
}

static void channels_grow_where_nothing_else_can(void **state)
{
    (void)state;
    graph *a, *b;
    pass_options o = on("m4", true);
    both(&a, &b, odd_outputs);
    port_plan p = run_and_compare(a, b, "uniform_ports", &o, 0, true);
    assert_true(p.in_uniform && p.out_uniform);
    assert_int_equal(p.out[1].type.sh.d[1], 13);
    assert_int_equal(p.out_bytes, 13 * 32 * 2);
    graph_free(a), graph_free(b);
}

static void sorted_names_stay(void **state)
{
    (void)state;
    graph *g =
        read("graph \"t\"\na = input fp16[1, 96, 1, 512]\nb = input fp16[1, 96, 1, 512]\nc = add(a, b)\nreturn c=c\n");
    diag d = { 0 };
    pass_options o = on("m4", true);
    for (size_t i = 0; i < pass_count(); i++) {
        bool changed;
        assert_ok(pass_run_one(g, pass_name_at(i), &o, NULL, &changed, &d), d);
        if (changed) fail_msg("%s changed a program that needs nothing", pass_name_at(i));
    }
    graph_free(g);
}

/* ---- the table ---- */

static void every_rewrite_a_rule_names_exists(void **state)
{
    (void)state;
    for (size_t r = 0; r < rule_count(); r++) {
        bool known = !strcmp(rule_legalizer_at(r), "none");
        for (size_t i = 0; i < pass_count(); i++)
            known = known || (pass_needs_target(i) && !strcmp(rule_legalizer_at(r), pass_name_at(i)));
        if (!known) fail_msg("rule %s names %s, which no pass is", rule_id_at(r), rule_legalizer_at(r));
    }
    for (size_t i = 0; i < pass_count(); i++) {
        bool named = !pass_needs_target(i);
        for (size_t r = 0; r < rule_count(); r++) named = named || !strcmp(rule_legalizer_at(r), pass_name_at(i));
        if (!named) fail_msg("no rule names %s", pass_name_at(i));
        assert_true(strlen(pass_summary_at(i)) > 0);
    }
}

typedef struct {
    size_t n;
    char last[32];
} dumps;

static void note_dump(void *user, const char *pass, const graph *g)
{
    dumps *s = user;
    (void)g;
    s->n++;
    snprintf(s->last, sizeof s->last, "%s", pass);
}

static void levels_dumps_and_bad_names(void **state)
{
    (void)state;
    const char *text = X "b = reshape(x) {shape=[1, 4, 1, 6]}\ndead = exp(x)\nc = tanh(b)\nreturn c=c\n";
    graph *g = read(text);
    diag d = { 0 };
    pass_stats st;
    dumps s = { 0 };
    pass_options o = { .level = 0, .dump_after = "dce", .dump = note_dump, .user = &s };
    assert_ok(pass_run(g, &o, &st, &d), d);
    assert_int_equal(count(g, OP_RESHAPE), 1); /* level 0 leaves it */
    assert_int_equal(count(g, OP_EXP), 0);
    assert_int_equal(s.n, 2); /* once changing, once not */
    assert_string_equal(s.last, "dce");
    assert_int_equal(st.nodes_before, 4);
    assert_int_equal(st.nodes_after, 3);
    assert_ok(pass_run(g, NULL, &st, &d), d);
    assert_int_equal(count(g, OP_RESHAPE), 0);
    assert_true(st.fixpoint);
    assert_int_equal(pass_run_one(g, "fuse", NULL, NULL, NULL, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "fuse"));
    graph_free(g);
}

/* Out of memory at any byte: only OK or NOMEM, and nothing leaks. */
static void memory_runs_out(void **state)
{
    (void)state;
    const char *text = X "k = const fp16[] {1}\na = mul(x, k)\nr = reshape(a) {shape=[1, 1, 4, 6]}\nt = transpose(r) {perm=[0, 1, 3, 2]}\n"
                         "w = const fp16[4, 2] {1, 2, 3, 4, 5, 6, 7, 8}\nm = matmul(t, w)\ny = gelu(m)\ndead = exp(x)\nreturn y=y\n";
    size_t n_nomem = 0;
    for (size_t extra = 0;; extra += 97) {
        graph *g = read(text);
        diag d = { 0 };
        pass_options o = on("m1", true);
        g->mem.limit = g->mem.used + extra;
        an_status st = pass_run(g, &o, NULL, &d);
        graph_free(g);
        if (st != AN_OK && st != AN_NOMEM) fail_msg("%zu bytes: status %d: %s", extra, (int)st, d.msg);
        if (st == AN_OK) break;
        n_nomem++;
    }
    assert_true(n_nomem > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clean_up_rows), cmocka_unit_test(long_constants_are_compared_whole),
        cmocka_unit_test(depth_becomes_channels), cmocka_unit_test(gelu_becomes_arithmetic),
        cmocka_unit_test(gelu_tanh_error),
        cmocka_unit_test(conv_bias_becomes_add),
        cmocka_unit_test(matmul_becomes_conv),
        cmocka_unit_test(product_on_channels_is_one_conv),
        cmocka_unit_test(unknown_weights),
        cmocka_unit_test(attention_mask_is_added_in_the_open),
        cmocka_unit_test(mask_constants_are_cut),
        cmocka_unit_test(channels_are_chunked),
        cmocka_unit_test(long_axes_are_split),
        cmocka_unit_test(what_cannot_be_split_says_so),
        cmocka_unit_test(ports_are_padded_and_named),
        cmocka_unit_test(channels_grow_where_nothing_else_can),
        cmocka_unit_test(sorted_names_stay),
        cmocka_unit_test(every_rewrite_a_rule_names_exists),
        cmocka_unit_test(levels_dumps_and_bad_names),
        cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
