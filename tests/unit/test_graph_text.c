/* Graph text: reading, printing, comparing, drawing; one example of every op of the table; and text nobody should
 * write. */
#include "every_op.h"
#include "graph/graph.h"
#include "t.h"

/* The values every_op.h starts from, in all the forms a constant has, and what is outside the op table. */
static const char *const start[] = {
    "graph \"every op\"",
    "x = input fp16[1, 8, 4, 4]",
    "i3 = input fp16[2, 8, 6]",
    "m = input fp16[4, 4]",
    "f = input fp32[2, 3]",
    "ix = input int32[3]",
    "i2 = input int32[4, 4]",
    "bo = input bool[4, 4]",
    "cx = input fp16[1, 2, 2, 2]",
    "boxes = input fp16[3, 4]",
    "mat = input fp16[1, 6]",
    "ch = const fp16[8] {0.5, 1, -2, 3, 0.1, 65504, -0, 6e-08}",
    "w1 = const fp16[4, 8, 1, 1] all 0.25",
    "wt = const fp16[8, 2, 2, 2] unknown",
    "w2 = const fp16[5, 4] blob \"@model_path/weights/weight.bin\" 64",
    "word = const string \"a \\\"quoted\\\"\\n\\\\ \\x01 caf\xc3\xa9\"",
    "op1, op2 = opaque \"future_op\"(x, _, m) {axis=3, axes=[1, 2], mode=\"new\", alpha=0.5, keep_dims=true, end_masks=[true, false]} -> fp16[2], int32[]",
};

static const char *const finish[] = {
    "\"odd name\" = add(m, m) !inline !dynamic",
    "\"return\" = relu(\"odd name\")",
    "return \"return\", sum=e1, \"a b\"=li",
};

static graph *read_or_fail(const char *text, size_t n)
{
    graph *g;
    diag d = { 0 };
    if (graph_parse(text, n, &g, &d)) fail_msg("line %u col %u: %s", d.at.line, d.at.col, d.msg);
    return g;
}

static void same_or_fail(const graph *a, const graph *b)
{
    strbuf why = { 0 };
    if (!graph_same(a, b, &why)) fail_msg("graphs differ: %s", why.at);
    assert_int_equal(why.n, 0);
    sb_free(&why);
}

static strbuf joined(void)
{
    strbuf b = { 0 };
    for (size_t i = 0; i < COUNT(start); i++) sb_printf(&b, "%s\n", start[i]);
    for (size_t i = 0; i < COUNT(every_op); i++) sb_printf(&b, "%s\n", every_op[i]);
    for (size_t i = 0; i < COUNT(finish); i++) sb_printf(&b, "%s\n", finish[i]);
    assert_false(b.oom);
    return b;
}

static void round_trip(void **state)
{
    (void)state;
    strbuf text = joined();
    graph *g = read_or_fail(text.at, text.n), *again;
    bool seen[OP_COUNT] = { false };
    for (size_t i = 1; i < g->nodes.n; i++) seen[g->nodes.at[i].op] = true;
    for (int i = 0; i < OP_COUNT; i++)
        if (!seen[i]) fail_msg("%s has no example", op_get((op_id)i)->mil);
    strbuf b = { 0 }, c = { 0 };
    graph_print(g, &b);
    again = read_or_fail(b.at, b.n);
    same_or_fail(g, again);
    graph_print(again, &c);
    assert_string_equal(b.at, c.at);
    sb_free(&b);
    sb_free(&c);
    graph_free(again);
    graph_free(g);
    sb_free(&text);
}

/* What is printed, to the letter. */
static void printed(void **state)
{
    (void)state;
    static const char text[] = "graph \"main\"\n"
                               "x = input fp16[?, 8, 1, 4]\n"
                               "c = const fp16[2] {1, 0.3333}\n"
                               "u = const uint4[3] {15, 0, 7}\n"
                               "z = const fp32[4, 5] all -0.1\n"
                               "h = const fp16[17] hex 000001000200030004000500060007000800090010001100120013001400150016fc\n"
                               "b = const bool[2] {1, 0}\n"
                               "s = const string \"hi\"\n"
                               "y = reduce_sum(x) {axes=[1], keep_dims=true}\n"
                               "p, q = split(y) {num_splits=2, axis=3}\n"
                               "return y, left=p\n";
    graph *g = read_or_fail(text, strlen(text));
    strbuf b = { 0 };
    graph_print(g, &b);
    assert_string_equal(b.at, text);
    sb_free(&b);
    graph_free(g);
}

static void builder_names_and_order(void **state)
{
    (void)state;
    graph *g = graph_new("t", 0);
    val y = graph_input(g, "y", TTYPE(DT_F16, 4)), x = graph_input(g, "x", TTYPE(DT_F16, 4));
    float nan_bits[2] = { 0 };
    memcpy(nan_bits, (uint32_t[]){ 0x7fc00001u, 0x80000000u }, 8);
    graph_const(g, "n", TTYPE(DT_F32, 2), nan_bits);
    graph_const(g, "big", TTYPE(DT_I64, 1), (int64_t[]){ INT64_MAX - 1 });
    graph_const(g, "loose", TTYPE(DT_U1, 3), (uint8_t[]){ 0xff }); /* bits past the third are set */
    val s = graph_op_named(g, "s", OP_SPLIT, &x, 1, (const attr[]){ AT_I(NUM_SPLITS, 2), AT_I(AXIS, 0) }, 2);
    graph_rename(g, s, "a");
    graph_rename(g, graph_out(s, 1), "b");
    val later = graph_op_named(g, "a_1", OP_ADD, (const val[]){ y, x }, 2, NULL, 0);
    graph_output(g, "a_1", later);
    graph_output(g, "out", graph_out(s, 1));
    val swap = g->inputs.at[0];
    g->inputs.at[0] = g->inputs.at[1];
    g->inputs.at[1] = swap;
    diag d = { 0 };
    assert_ok(graph_finish(g, &d), d);
    strbuf b = { 0 };
    graph_print(g, &b);
    assert_non_null(strstr(b.at, "inputs x, y\n"));
    graph *again = read_or_fail(b.at, b.n);
    same_or_fail(g, again);
    sb_free(&b);
    graph_free(again);
    graph_free(g);
}

static void differences(void **state)
{
    (void)state;
    static const char base[] =
        "graph \"a\"\nx = input fp16[4]\nc = const fp16[4] {1, 2, 3, 4}\nb = const fp16[4] blob \"w\" 64\n"
        "y = softmax(x) {axis=0}\nz = add(y, c)\nreturn z\n";
    static const struct {
        const char *from, *to, *why;
    } rows[] = {
        { "graph \"a\"", "graph \"b\"", "titles" },
        { "x = input fp16[4]", "x = input fp16[4]\nx2 = input fp16[4]", "named c and x2" },
        { "{1, 2, 3, 4}", "{1, 2, 3, 5}", "c: data differs" },
        { "{1, 2, 3, 4}", "unknown", "only one has its data" },
        { "blob \"w\" 64", "blob \"w\" 128", "blob references differ" },
        { "softmax(x) {axis=0}", "relu(x)", "operation is softmax and relu" },
        { "{axis=0}", "", "y: 1 attributes and 0" },
        { "add(y, c)", "add(c, y)", "operand 0 is y and c" },
        { "add(y, c)", "add(y, c) !inline", "flags" },
        { "c = const fp16[4] {1, 2, 3, 4}", "c = const fp16[1] {1}", "type is fp16[4] and fp16[1]" },
        { "return z", "return y", "output 0" },
        { "return z", "return z, y", "1 outputs and 2" },
        { "return z", "k = relu(z)\nreturn z", "5 nodes and 6" },
    };
    graph *a = read_or_fail(base, strlen(base));
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[1024];
        const char *at = strstr(base, rows[i].from);
        assert_non_null(at);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - base), base, rows[i].to, at + strlen(rows[i].from));
        graph *b = read_or_fail(text, strlen(text));
        strbuf why = { 0 };
        if (graph_same(a, b, &why)) fail_msg("row %zu: not told apart", i);
        if (!strstr(why.at, rows[i].why)) fail_msg("row %zu: \"%s\" lacks \"%s\"", i, why.at, rows[i].why);
        assert_false(graph_same(b, a, NULL));
        sb_free(&why);
        graph_free(b);
    }
    graph_free(a);
}

static void drawn(void **state)
{
    (void)state;
    strbuf text = joined();
    graph *g = read_or_fail(text.at, text.n);
    strbuf b = { 0 };
    graph_dot(g, &b);
    assert_non_null(strstr(b.at, "digraph \"every op\" {"));
    assert_non_null(strstr(b.at, "fp16[1, 8, 4, 4]"));
    assert_non_null(strstr(b.at, "0.25 everywhere"));
    assert_non_null(strstr(b.at, "headlabel=\"weight\""));
    assert_non_null(strstr(b.at, "taillabel=\"1\""));
    assert_non_null(strstr(b.at, "output\\na b"));
    int depth = 0; /* quotes are balanced on every line */
    for (size_t i = 0; i < b.n; i++) {
        if (b.at[i] == '\\') i++;
        else if (b.at[i] == '"') depth ^= 1;
        else if (b.at[i] == '\n') assert_int_equal(depth, 0);
    }
    sb_free(&b);
    graph_free(g);
    sb_free(&text);
}

static void bad_text(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        unsigned line, col; /* 0: not checked */
        const char *why;
    } rows[] = {
        { "", 0, 0, "returns nothing" },
        { "x = input fp16[1]\n", 0, 0, "returns nothing" },
        { "x = input fp16[1]\nreturn y\n", 2, 7, "y is not defined" },
        { "x = input fp16[1]\nreturn x x\n", 2, 10, "end of the line" },
        { "x = input fp16[1]\nreturn x, x\n", 2, 0, "two outputs" },
        { "x = input fp16[1]\nreturn _\n", 2, 0, "not defined" },
        { "x = input fp16[1]\nreturn a=_\n", 2, 0, "found _" },
        { "x = input fp16[1]\nreturn x\nreturn x\n", 3, 1, "follow return" },
        { "x = input fp16[1]\nx = relu(x)\nreturn x\n", 2, 0, "already used" },
        { "x = input fp16[1]\ny = relu(z)\nreturn x\n", 2, 10, "z is not defined" },
        { "x = input fp16[1]\ny = relu(y)\nreturn x\n", 2, 10, "y is not defined" },
        { "x = input fp16[1]\ny = rely(x)\nreturn x\n", 2, 5, "no operation rely" },
        { "x = input fp16[1]\ny = input(x)\n", 2, 0, "tensor type" },
        { "x = input fp16[1]\ny = relu(x, x)\n", 2, 0, "at most 1" },
        { "x = input fp16[1]\ny = add(x)\n", 2, 0, "missing" },
        { "x = input fp16[1]\ny = add(x, _)\n", 2, 0, "missing" },
        { "x = input fp16[1]\ny = relu(x\n", 3, 1, "wanted ')', found the end of the text" },
        { "x = input fp16[1]\ny = relu x\n", 2, 10, "wanted '(', found 'x'" },
        { "x = input fp16[1]\ny = relu(x) {alpha=1}\n", 2, 0, "no attribute alpha" },
        { "x = input fp16[1]\ny = relu(x) {beth=1}\n", 2, 0, "attribute beth" },
        { "x = input fp16[1]\ny = softmax(x) {axis=1.5}\n", 2, 0, "wrong kind" },
        { "x = input fp16[1]\ny = softmax(x) {axis=0, axis=0}\n", 2, 0, "twice" },
        { "x = input fp16[1]\ny = softmax(x) {axis=99999999999999999999}\n", 2, 0, "too large" },
        { "x = input fp16[1]\ny = softmax(x) {axis=--1}\n", 2, 0, "not a number" },
        { "x = input fp16[1]\ny = softmax(x) {axis=-}\n", 2, 0, "not a number" },
        { "x = input fp16[1]\ny = clip(x) {alpha=1e999, beta=1.0}\n", 2, 0, "too large" },
        { "x = input fp16[1]\ny = clip(x) {alpha=nan, beta=1.0}\n", 2, 0, "not a number" },
        { "x = input fp16[1]\ny = clip(x) {alpha=0x10, beta=1.0}\n", 2, 0, "not a number" },
        { "x = input fp16[1]\ny = reduce_sum(x) {axes=[0, true]}\n", 2, 0, "mixes" },
        { "x = input fp16[1]\ny = reduce_sum(x) {axes=[0.5]}\n", 2, 0, "integers" },
        { "x = input fp16[1]\ny = reduce_sum(x) {axes=[0\n", 0, 0, "wanted ']'" },
        { "x = input fp16[1]\ny, z = relu(x)\n", 2, 0, "2 names for the 1 results" },
        { "x = input fp16[4]\ny = split(x) {num_splits=2, axis=0}\n", 2, 0, "1 names for the 2 results" },
        { "x = input fp16[2]\ny, x = split(x) {num_splits=2, axis=0}\n", 2, 0, "already used" },
        { "x = input fp17[1]\n", 1, 11, "tensor type" },
        { "x = input string[1]\n", 1, 0, "tensor type" },
        { "x = input fp16[-1]\n", 1, 0, "extent" },
        { "x = input fp16[1.5]\n", 1, 0, "extent" },
        { "x = input fp16[1, 1, 1, 1, 1, 1, 1, 1, 1]\n", 1, 0, "more than 8" },
        { "x = input fp16\n", 1, 15, "wanted '['" },
        { "c = const fp16[2] {1}\nreturn c\n", 1, 0, "wanted ','" },
        { "c = const fp16[2] {1, 2, 3}\n", 1, 0, "wanted '}'" },
        { "c = const uint8[1] {256}\n", 1, 0, "does not fit uint8" },
        { "c = const int8[1] {1.5}\n", 1, 0, "does not fit int8" },
        { "c = const int64[1] {9007199254740993}\n", 1, 0, "does not fit" },
        { "c = const fp16[2] hex 003c\n", 1, 0, "wants 2 elements" },
        { "c = const fp16[2] hex 003c003                 \n", 1, 0, "found 3" },
        { "c = const fp16[1] hex 003c00\n", 1, 0, "past the 2 bytes" },
        { "c = const fp16[1099511627776] {1}\n", 1, 0, "more than the text" },
        { "c = const fp16[1099511627776] hex 00\n", 1, 0, "more than the text" },
        { "c = const fp64[4611686018427387904, 4611686018427387904] unknown\n", 1, 0, "overflows" },
        { "c = const fp16[?] unknown\n", 1, 0, "unknown" },
        { "c = const fp16[1] maybe\n", 1, 0, "wanted {elements}" },
        { "c = const fp16[1] blob w 64\n", 1, 0, "wanted '\"'" },
        { "c = const fp16[1] blob \"w\" -1\n", 1, 0, "a number" },
        { "c = const fp16[1] blob \"w\" 99999999999999999999\n", 1, 0, "too large" },
        { "c = const string \"abc\n", 1, 0, "closing quote" },
        { "c = const string \"a\\q\"\n", 1, 0, "an escape" },
        { "c = const string \"a\\x00\"\n", 1, 0, "not 0" },
        { "c = const string \"a\\x0", 1, 0, "hex digits" },
        { "c = const string \"a\\", 1, 0, "escape" },
        { "\"\" = input fp16[1]\n", 1, 0, "empty" },
        { "1x = input fp16[1]\n", 1, 1, "wanted a name, found '1'" },
        { "= input fp16[1]\n", 1, 1, "wanted a name, found '='" },
        { "x input fp16[1]\n", 1, 3, "wanted '='" },
        { "x = input fp16[1] !later\n", 1, 0, "inline" },
        { "x = opaque \"f\"()\n", 1, 0, "wanted '-'" },
        { "x = opaque \"f\"() -> \n", 0, 0, "tensor type" },
        { "x = opaque f() -> fp16[1]\n", 1, 0, "wanted '\"'" },
        { "x = input fp16[1]\ngraph \"late\"\n", 2, 0, "come first" },
        { "x = input fp16[1]\ninputs x, x\n", 2, 0, "each input once" },
        { "x = input fp16[1]\ny = relu(x)\ninputs y\n", 3, 0, "each input once" },
        { "x = input fp16[1]\ny = input fp16[1]\ninputs y\n", 3, 0, "there are 2" },
        { "\x01\n", 1, 1, "byte 0x01" },
        { "x\xff = input fp16[1]\n", 1, 2, "byte 0xff" },
        { "x = input fp16[1]; y = relu(x)\n", 1, 18, "end of the line" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        diag d = { 0 };
        graph *g;
        size_t n = strlen(rows[i].text);
        char *exact = malloc(n ? n : 1); /* no NUL behind it: reading past the end is seen by the sanitizer */
        assert_non_null(exact);
        memcpy(exact, rows[i].text, n);
        an_status st = graph_parse(exact, n, &g, &d);
        if (st != AN_INPUT || g) fail_msg("row %zu: status %d: %s", i, (int)st, rows[i].text);
        if (!strstr(d.msg, rows[i].why)) fail_msg("row %zu: \"%s\" lacks \"%s\"", i, d.msg, rows[i].why);
        if (rows[i].line && d.at.line != rows[i].line)
            fail_msg("row %zu: line %u, wanted %u: %s", i, d.at.line, rows[i].line, d.msg);
        if (rows[i].col && d.at.col != rows[i].col)
            fail_msg("row %zu: col %u, wanted %u: %s", i, d.at.col, rows[i].col, d.msg);
        free(exact);
    }
    diag d = { 0 };
    graph *g;
    assert_int_equal(graph_parse("x = input fp16[1]\0\n", 19, &g, &d), AN_INPUT);
    assert_int_equal(d.at.col, 18);
}

/* Every prefix, and single bytes changed: an answer or AN_INPUT (or AN_NOMEM for sizes), never anything else. */
static void damaged_text(void **state)
{
    (void)state;
    rng r = { test_seed("damaged_text") };
    strbuf text = joined();
    size_t n = text.n;
    for (int i = 0; i < 1500; i++) {
        size_t len = rng_below(&r, 2) ? rng_below(&r, n) : n;
        char *copy = malloc(len ? len : 1);
        assert_non_null(copy);
        memcpy(copy, text.at, len);
        for (uint64_t k = rng_below(&r, 4); k > 0 && len; k--) copy[rng_below(&r, len)] = (char)rng_below(&r, 256);
        graph *g;
        diag d = { 0 };
        an_status st = graph_parse(copy, len, &g, &d);
        if (st != AN_OK && st != AN_INPUT && st != AN_NOMEM) fail_msg("status %d: %s", (int)st, d.msg);
        assert_true((st == AN_OK) == (g != NULL));
        graph_free(g);
        free(copy);
    }
    sb_free(&text);
}

static void long_text(void **state)
{
    (void)state;
    enum { N = 2000000 };
    char *text = malloc(N);
    assert_non_null(text);
    static const char *const fills[] = { "(",           "\"", "a,", "x = ", "[[", "{", "\\", "#", "a=input fp16[1]\n",
                                         "return a=x,", "9" };
    for (size_t i = 0; i < COUNT(fills); i++) {
        size_t len = strlen(fills[i]);
        for (size_t k = 0; k < N; k++) text[k] = fills[i][k % len];
        graph *g;
        diag d = { 0 };
        assert_int_equal(graph_parse(text, N, &g, &d), AN_INPUT);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip), cmocka_unit_test(printed),  cmocka_unit_test(builder_names_and_order),
        cmocka_unit_test(differences), cmocka_unit_test(drawn),   cmocka_unit_test(bad_text),
        cmocka_unit_test(damaged_text), cmocka_unit_test(long_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
