/* catalogue: for every row of the published constraint catalogue that shows in a program, a text that breaks it, the
 * rule that must say so, and a text with the fix, which must be accepted. Rows about the route (9, 11, 15) are in
 * the table and cannot be seen in a program; row 11 is a reminder that fires without a fix. Every probe must name a
 * rule that exists. */
#include "t.h"

#include <anneal.h>

#define HEAD "program(1.3)\n[buildInfo = dict<string, string>({{\"coremlc-version\", \"3505.4.1\"}})]\n{\n"
#define IO "tensor<fp16, [1, 96, 1, 512]>"
#define FUNC "    func main<ios18>(" IO " x) {\n"
#define END(results) "    } -> (" results ");\n}\n"
#define OP(type, name, rhs) "        " type " " name " = " rhs "[name = string(\"" name "\")];\n"
#define CONST(type, name, value) "        " type " " name " = const()[name = string(\"" name "\"), val = " value "];\n"
#define CONV_CONSTS                                                                                                   \
    CONST("string", "pt", "string(\"valid\")")                                                                        \
    CONST("tensor<int32, [2]>", "one", "tensor<int32, [2]>([1, 1])")                                                  \
    CONST("tensor<int32, [4]>", "zero", "tensor<int32, [4]>([0, 0, 0, 0])") CONST("int32", "g", "int32(1)")
#define CONV(w, more)                                                                                                  \
    "conv(" more "dilations = one, groups = g, pad = zero, pad_type = pt, strides = one, weight = " w ", x = x)"
#define WEIGHT(type, name, off)                                                                                        \
    CONST(type, name, type "(BLOBFILE(path = string(\"@model_path/weights/weight.bin\"), offset = uint64(" off ")))")

static const struct {
    int row;
    const char *rule, *severity, *bad, *good; /* good NULL: the row is a reminder, or its fix is another route */
} rows[] = {
    { 1, "concat", "warning",
      HEAD "    func main<ios18>(" IO " a, " IO " b) {\n" CONST("int32", "ax", "int32(1)")
          CONST("bool", "no", "bool(false)")
              OP("tensor<fp16, [1, 192, 1, 512]>", "y", "concat(axis = ax, interleave = no, values = (a, b))") END("y"),
      HEAD "    func main<ios18>(" IO " a, " IO " b) {\n" OP(IO, "y0", "relu(x = a)") OP(IO, "y1", "relu(x = b)")
          END("y0, y1") },
    { 2, "output-sizes", "warning",
      HEAD FUNC CONST("tensor<int32, [1]>", "ax", "tensor<int32, [1]>([1])") CONST("bool", "yes", "bool(true)") OP(IO, "a", "relu(x = x)")
          OP("tensor<fp16, [1, 1, 1, 512]>", "b", "reduce_max(axes = ax, keep_dims = yes, x = x)") END("a, b"),
      HEAD FUNC CONST("tensor<int32, [1]>", "ax", "tensor<int32, [1]>([1])") CONST("bool", "yes", "bool(true)") OP(IO, "a", "relu(x = x)")
          OP("tensor<fp16, [1, 1, 1, 512]>", "m", "reduce_max(axes = ax, keep_dims = yes, x = x)") OP(IO, "b", "sub(x = x, y = m)") END("a, b") },
    { 3, "output-order", "warning", HEAD FUNC OP(IO, "b", "relu(x = x)") OP(IO, "a", "abs(x = x)") END("b, a"),
      HEAD FUNC OP(IO, "b", "relu(x = x)") OP(IO, "a", "abs(x = x)") END("a, b") },
    { 4, "surface-minimum", "warning",
      HEAD "    func main<ios18>(tensor<fp16, [1, 96, 1, 32]> x) {\n" OP("tensor<fp16, [1, 96, 1, 32]>", "y", "relu(x = x)") END("y"),
      HEAD FUNC OP(IO, "y", "relu(x = x)") END("y") },
    { 6, "sdpa-mask", "warning",
      HEAD "    func main<ios18>(tensor<fp16, [1, 4, 256, 64]> a_q, tensor<fp16, [1, 4, 256, 64]> b_k, tensor<fp16, [1, 4, 256, 64]> c_v, "
           "tensor<fp16, [1, 1, 256, 256]> d_mask) {\n"
           OP("tensor<fp16, [1, 4, 256, 64]>", "y", "scaled_dot_product_attention(query = a_q, key = b_k, value = c_v, attn_mask = d_mask)") END("y"),
      HEAD "    func main<ios18>(tensor<fp16, [1, 4, 256, 64]> a_q, tensor<fp16, [1, 4, 256, 64]> b_k, tensor<fp16, [1, 4, 256, 64]> c_v, "
           "tensor<fp16, [1, 1, 256, 256]> d_mask) {\n"
           CONST("bool", "no", "bool(false)") CONST("bool", "yes", "bool(true)") CONST("fp16", "k", "fp16(0.125)") CONST("int32", "ax", "int32(-1)")
           OP("tensor<fp16, [1, 4, 256, 256]>", "s", "matmul(transpose_x = no, transpose_y = yes, x = a_q, y = b_k)")
           OP("tensor<fp16, [1, 4, 256, 256]>", "t", "mul(x = s, y = k)") OP("tensor<fp16, [1, 4, 256, 256]>", "u", "add(x = t, y = d_mask)")
           OP("tensor<fp16, [1, 4, 256, 256]>", "p", "softmax(axis = ax, x = u)")
           OP("tensor<fp16, [1, 4, 256, 64]>", "y", "matmul(transpose_x = no, transpose_y = no, x = p, y = c_v)") END("y") },
    { 7, "baked-weights", "note",
      HEAD FUNC CONV_CONSTS WEIGHT("tensor<fp16, [96, 96, 1, 1]>", "w", "64") OP(IO, "y", CONV("w", "")) END("y"),
      HEAD "    func main<ios18>(" IO " x, tensor<fp16, [1, 1, 96, 512]> y_w) {\n" CONST("bool", "no", "bool(false)") CONST("bool", "yes", "bool(true)")
           CONST("tensor<int32, [4]>", "sh", "tensor<int32, [4]>([1, 1, 96, 512])")
           OP("tensor<fp16, [1, 1, 96, 512]>", "r", "reshape(shape = sh, x = x)")
           OP("tensor<fp16, [1, 1, 512, 512]>", "y", "matmul(transpose_x = yes, transpose_y = no, x = r, y = y_w)") END("y") },
    { 10, "gelu", "warning", HEAD FUNC CONST("string", "m", "string(\"EXACT\")") OP(IO, "y", "gelu(mode = m, x = x)") END("y"),
      HEAD FUNC CONST("fp16", "k", "fp16(0.7979)") CONST("fp16", "h", "fp16(0.5)") CONST("fp16", "one", "fp16(1.0)") CONST("fp16", "c", "fp16(0.0447)")
          OP(IO, "a", "mul(x = x, y = x)") OP(IO, "b", "mul(x = a, y = x)") OP(IO, "d", "mul(x = b, y = c)") OP(IO, "e", "add(x = d, y = x)")
          OP(IO, "f", "mul(x = e, y = k)") OP(IO, "i", "tanh(x = f)") OP(IO, "j", "add(x = i, y = one)") OP(IO, "l", "mul(x = j, y = h)")
          OP(IO, "y", "mul(x = l, y = x)") END("y") },
    { 12, "inline-arguments", "warning",
      HEAD "    func main<ios18>(tensor<fp16, [1, 4, 256, 64]> x) {\n"
           OP("tensor<fp16, [1, 4, 256, 256]>", "y", "matmul(transpose_x = bool(false), transpose_y = bool(true), x = x, y = x)") END("y"),
      HEAD "    func main<ios18>(tensor<fp16, [1, 4, 256, 64]> x) {\n" CONST("bool", "no", "bool(false)") CONST("bool", "yes", "bool(true)")
           OP("tensor<fp16, [1, 4, 256, 256]>", "y", "matmul(transpose_x = no, transpose_y = yes, x = x, y = x)") END("y") },
    { 13, "conv-bias", "warning",
      HEAD FUNC CONV_CONSTS WEIGHT("tensor<fp16, [96, 96, 1, 1]>", "w", "64") WEIGHT("tensor<fp16, [96]>", "b", "18560") OP(IO, "y", CONV("w", "bias = b, ")) END("y"),
      HEAD FUNC CONV_CONSTS WEIGHT("tensor<fp16, [96, 96, 1, 1]>", "w", "64") WEIGHT("tensor<fp16, [1, 96, 1, 1]>", "b", "18560") OP(IO, "c", CONV("w", ""))
          OP(IO, "y", "add(x = c, y = b)") END("y") },
    { 14, "dead-output", "warning", HEAD FUNC OP(IO, "y", "relu(x = x)") END("x"), HEAD FUNC OP(IO, "y", "relu(x = x)") END("y") },
    { 16, "conv-wide-output", "warning",
      HEAD FUNC CONV_CONSTS WEIGHT("tensor<fp16, [32000, 96, 1, 1]>", "w", "64") OP("tensor<fp16, [1, 32000, 1, 512]>", "y", CONV("w", "")) END("y"),
      HEAD FUNC CONV_CONSTS WEIGHT("tensor<fp16, [16000, 96, 1, 1]>", "w", "64") WEIGHT("tensor<fp16, [16000, 96, 1, 1]>", "v", "3072192")
          OP("tensor<fp16, [1, 16000, 1, 512]>", "y0", CONV("w", "")) OP("tensor<fp16, [1, 16000, 1, 512]>", "y1", CONV("v", "")) END("y0, y1") },
    { 17, "matmul-constant", "note",
      HEAD "    func main<ios18>(tensor<fp16, [1, 1, 512, 96]> x) {\n" CONST("bool", "no", "bool(false)") WEIGHT("tensor<fp16, [1, 1, 96, 96]>", "w", "64")
           OP("tensor<fp16, [1, 1, 512, 96]>", "y", "matmul(transpose_x = no, transpose_y = no, x = x, y = w)") END("y"),
      HEAD FUNC CONV_CONSTS WEIGHT("tensor<fp16, [96, 96, 1, 1]>", "w", "64") OP(IO, "y", CONV("w", "")) END("y") },
    { 18, "input-sizes", "warning",
      HEAD "    func main<ios18>(" IO " a, tensor<fp16, [1, 1, 96, 256]> b) {\n" OP(IO, "y", "relu(x = a)") OP("tensor<fp16, [1, 1, 96, 256]>", "z", "relu(x = b)") END("y, z"),
      HEAD "    func main<ios18>(" IO " a, " IO " b) {\n" OP(IO, "y", "relu(x = a)") OP(IO, "z", "relu(x = b)") END("y, z") },
    { 19, "input-order", "warning", HEAD "    func main<ios18>(" IO " b, " IO " a) {\n" OP(IO, "y", "sub(x = b, y = a)") END("y"),
      HEAD "    func main<ios18>(" IO " a, " IO " b) {\n" OP(IO, "y", "sub(x = a, y = b)") END("y") },
    { 20, "packed-surface", "note",
      HEAD "    func main<ios18>(" IO " a, tensor<fp16, [1, 1, 96, 256]> b) {\n" OP(IO, "y", "relu(x = a)") OP("tensor<fp16, [1, 1, 96, 256]>", "z", "relu(x = b)") END("y, z"),
      HEAD "    func main<ios18>(" IO " a, " IO " b) {\n" OP(IO, "y", "relu(x = a)") OP(IO, "z", "relu(x = b)") END("y, z") },
    { 11, "empty-weights", "note", HEAD FUNC OP(IO, "y", "relu(x = x)") END("y"), NULL },
};

static an_report *check(const char *text, const char *dir)
{
    an_report *r;
    an_error e = { 0 };
    if (an_check_mil(&r, text, strlen(text), &(an_check_options){ .model_dir = dir }, &e)) fail_msg("%s", e.message);
    return r;
}

static int count(const an_report *r, const char *rule, const char *severity)
{
    int n = 0;
    for (size_t i = 0; i < an_report_findings(r); i++) {
        an_finding f;
        an_report_finding(r, i, &f);
        n += !strcmp(f.rule, rule) && (!severity || !strcmp(f.severity, severity)) && f.line > 0 && *f.fix &&
             *f.evidence;
    }
    return n;
}

static void each_violation_is_found_and_its_fix_accepted(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        an_report *r = check(rows[i].bad, NULL);
        if (!count(r, rows[i].rule, rows[i].severity))
            fail_msg("row %d: %s not found in\n%s", rows[i].row, rows[i].rule, rows[i].bad);
        an_report_free(r);
        if (!rows[i].good) continue;
        r = check(rows[i].good, NULL);
        if (count(r, rows[i].rule, NULL))
            fail_msg("row %d: %s still there in\n%s", rows[i].row, rows[i].rule, rows[i].good);
        if (an_report_status(r)) fail_msg("row %d: the fix is refused:\n%s", rows[i].row, an_report_text(r, AN_TEXT));
        an_report_free(r);
    }
}

/* Row 8 needs a real file: a reference to 128 points at the data, 64 at the record. */
static void a_reference_to_the_data_is_an_error(void **state)
{
    (void)state;
    char dir[] = "/tmp/anneal-test-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "mkdir %s/weights", dir);
    assert_int_equal(system(path), 0);
    snprintf(path, sizeof path, "%s/weights/weight.bin", dir);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    unsigned char head[128] = { 1, 0, 0, 0, 2 };
    const uint32_t record[6] = { 0xDEADBEEF, 1, 96 * 96 * 2, 0, 128, 0 };
    memcpy(head + 64, record, sizeof record);
    fwrite(head, 1, sizeof head, f);
    for (int i = 0; i < 96 * 96 * 2; i++) fputc(0, f);
    assert_int_equal(fclose(f), 0);
    an_report *r = check(HEAD FUNC CONV_CONSTS WEIGHT("tensor<fp16, [96, 96, 1, 1]>", "w", "128") OP(IO, "y", CONV("w", "")) END("y"), dir);
    assert_true(count(r, "blob-offset", "error") > 0);
    assert_int_not_equal(an_report_status(r), AN_OK);
    an_report_free(r);
    r = check(HEAD FUNC CONV_CONSTS WEIGHT("tensor<fp16, [96, 96, 1, 1]>", "w", "64") OP(IO, "y", CONV("w", "")) END("y"), dir);
    assert_int_equal(an_report_status(r), AN_OK);
    an_report_free(r);
    char cmd[64];
    snprintf(cmd, sizeof cmd, "rm -r %s", dir);
    assert_int_equal(system(cmd), 0);
}

/* Row 5: more than the compile budget of one process. */
static void many_functions_pass_the_budget(void **state)
{
    (void)state;
    char *text = malloc(64000);
    size_t n = (size_t)sprintf(text, "%s", HEAD);
    for (int i = 0; i < 120; i++)
        n += (size_t)sprintf(text + n,
                             "    func f%d<ios18>(" IO " x) {\n        " IO
                             " y = relu(x = x)[name = string(\"y\")];\n    } -> (y);\n",
                             i);
    n += (size_t)sprintf(text + n, "    func main<ios18>(" IO " x) {\n        " IO
                                   " y = relu(x = x)[name = string(\"y\")];\n    } -> (y);\n}\n");
    an_report *r = check(text, NULL);
    assert_true(count(r, "compile-budget", "warning") > 0);
    an_report_free(r);
    free(text);
}

static void the_table_has_all_twenty_rows(void **state)
{
    (void)state;
    char *json = an_table("rules", AN_JSON);
    for (int i = 1; i <= 20; i++) {
        char want[32], alt[32];
        snprintf(want, sizeof want, "catalogue %d;", i);
        snprintf(alt, sizeof alt, "catalogue %d\"", i);
        if (!strstr(json, want) && !strstr(json, alt)) fail_msg("no rule cites catalogue row %d", i);
    }
    char *probes = an_table("probes", AN_JSON);
    for (const char *p = probes; (p = strstr(p, "\"rule\":\"")); p++) {
        char id[64], want[80];
        assert_int_equal(sscanf(p, "\"rule\":\"%60[^\"]", id), 1);
        snprintf(want, sizeof want, "\"id\":\"%s\"", id);
        if (!strstr(json, want)) fail_msg("a probe names rule %s, which does not exist", id);
    }
    an_free(json);
    an_free(probes);
}

/* What fires on its own probe: the claim is about that rule. */
static void each_probe_fires_its_rule(void **state)
{
    (void)state;
    char *probes = an_table("probes", AN_JSON);
    for (const char *p = probes; (p = strstr(p, "{\"probe\":\"")); p++) {
        char name[64], id[64];
        assert_int_equal(sscanf(p, "{\"probe\":\"%60[^\"]", name), 1);
        assert_int_equal(sscanf(strstr(p, "\"rule\":\""), "\"rule\":\"%60[^\"]", id), 1);
        an_report *r = check(an_probe(name), NULL);
        if (!count(r, id, NULL)) fail_msg("probe %s does not fire %s", name, id);
        an_report_free(r);
    }
    an_free(probes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_violation_is_found_and_its_fix_accepted),
        cmocka_unit_test(a_reference_to_the_data_is_an_error),
        cmocka_unit_test(many_functions_pass_the_budget),
        cmocka_unit_test(the_table_has_all_twenty_rows),
        cmocka_unit_test(each_probe_fires_its_rule),
    };
    return cmocka_run_group_tests_name("catalogue", tests, NULL, NULL);
}
