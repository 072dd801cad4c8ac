/* test_check.c: reports: what is found, where, at what severity, how it is printed, and what hostile text does. */
#include <unistd.h>

#include "check/check.h"
#include "t.h"

#define HEAD "program(1.3)\n[buildInfo = dict<string, string>({{\"coremlc-version\", \"3520.4.1\"}})]\n{\n"
#define MAIN HEAD "func main<ios18>"
#define END(out) "} -> (" out ");\n}\n"
#define BIG "tensor<fp16, [1, 256, 1, 128]>" /* 64 KB: past every minimum */
#define CONSTS "bool no = const()[name=string(\"no\"), val=bool(false)]; int32 ax1 = const()[name=string(\"ax1\"), val=int32(1)];\n"
#define CONV "tensor<int32, [2]> k11 = const()[name=string(\"k11\"), val=tensor<int32, [2]>([1,1])]; " \
             "tensor<int32, [4]> k0 = const()[name=string(\"k0\"), val=tensor<int32, [4]>([0,0,0,0])]; " \
             "string pt = const()[name=string(\"pt\"), val=string(\"valid\")]; int32 g1 = const()[name=string(\"g1\"), val=int32(1)];\n"
#define WEIGHT(off) "tensor<fp16, [256,256,1,1]> W = const()[name=string(\"W\"), val=tensor<fp16, [256,256,1,1]>(BLOBFILE(path=string(\"@model_path/weights/w.bin\"), offset=uint64(" off ")))];\n"

static check_report *check(const char *text, const char *target)
{
    diag d = { 0 };
    check_report *r = NULL;
    const chip *c = target ? chip_find(target) : NULL;
    check_options o = { .file = "p.mil", .target = &c, .n_target = target ? 1 : 0 };
    assert_ok(check_text(text, strlen(text), &o, &r, &d), d);
    assert_non_null(r);
    return r;
}

static const finding *find(const check_report *r, const char *rule)
{
    for (size_t i = 0; i < r->found.n; i++)
        if (!strcmp(r->found.at[i].rule, rule)) return &r->found.at[i];
    return NULL;
}

static char *print(const check_report *r, const char *format)
{
    strbuf b = { 0 };
    check_print(r, format, &b);
    assert_false(b.oom);
    if (!b.at) sb_puts(&b, "");
    return b.at;
}

static const char clean[] = MAIN "(" BIG " a, " BIG " b) {\n" BIG " s = add(x = a, y = b)[name = string(\"s\")];\n"
                                 "fp16 k = const()[name = string(\"k\"), val = fp16(0x1p-1)];\n" BIG " y = mul(x = s, y = k)[name = string(\"y\")];\n" END("y");

static void a_clean_program_has_costs_and_no_errors(void **state)
{
    (void)state;
    check_report *r = check(clean, NULL);
    for (size_t i = 0; i < r->found.n; i++)
        if (r->found.at[i].sev == SEV_ERROR) fail_msg("%s: %s", r->found.at[i].rule, r->found.at[i].message);
    assert_int_equal(r->status, AN_OK);
    assert_int_equal(r->n_errors, 0);
    assert_int_equal(r->costs.n, 5);
    assert_int_equal(r->ops.n, 2);
    for (size_t i = 0; i < r->costs.n; i++) {
        assert_true(r->costs.at[i].total.latency_us > 0);
        assert_true(r->costs.at[i].total.bytes > 0);
    }
    check_free(r);
}

/* ---- what is found ---- */

static void rules_speak_at_their_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *target, *rule; /* rule NULL: no error at all */
        severity sev;
        unsigned line;
        an_status st;
    } rows[] = {
        { clean, "m4", NULL, SEV_NOTE, 0, AN_OK },
        /* the constraint catalogue, as far as a text can show it */
        { MAIN "(" BIG " a, " BIG " b) {\n" CONSTS "tensor<fp16, [1, 512, 1, 128]> y = concat(axis = ax1, interleave = no, values = (a, b));\n" END("y"), "m4", "concat", SEV_WARNING, 6, AN_OK },
        { MAIN "(" BIG " a) {\ntensor<fp16, [1, 512, 1, 128]> y = tile(x = a, reps = tensor<int32, [4]>([1, 2, 1, 1]));\n" BIG " z = relu(x = a);\n" END("y, z"), "m4", "output-sizes", SEV_WARNING, 0, AN_OK },
        { MAIN "(" BIG " a) {\n" BIG " z = relu(x = a);\n" BIG " b = tanh(x = a);\n" END("z, b"), "m4", "output-order", SEV_WARNING, 0, AN_OK },
        { MAIN "(" BIG " z, " BIG " b) {\n" BIG " y = add(x = z, y = b);\n" END("y"), "m4", "input-order", SEV_WARNING, 0, AN_OK },
        { MAIN "(" BIG " a, tensor<fp16, [1, 256, 1, 1]> b) {\n" BIG " y = add(x = a, y = b);\n" END("y"), "m4", "input-sizes", SEV_WARNING, 0, AN_OK },
        { MAIN "(tensor<fp16, [1, 16, 1, 32]> a) {\ntensor<fp16, [1, 16, 1, 32]> y = relu(x = a);\n" END("y"), "m4", "surface-minimum", SEV_WARNING, 0, AN_OK },
        { MAIN "(" BIG " a) {\n" CONV WEIGHT("128") BIG " y = conv(dilations=k11, groups=g1, pad=k0, pad_type=pt, strides=k11, weight=W, x=a);\n" END("y"), "m4", "blob-offset", SEV_ERROR, 6, AN_UNSUPPORTED },
        { MAIN "(" BIG " a) {\n" CONV WEIGHT("64") BIG " y = conv(dilations=k11, groups=g1, pad=k0, pad_type=pt, strides=k11, weight=W, x=a);\n" END("y"), "m4", NULL, SEV_NOTE, 0, AN_OK },
        { MAIN "(" BIG " a) {\nstring m = const()[name=string(\"m\"), val=string(\"EXACT\")];\n" BIG " y = gelu(mode = m, x = a);\n" END("y"), "m4", "gelu", SEV_WARNING, 6, AN_OK },
        { MAIN "(" BIG " a) {\n" BIG " y = softmax(axis = int32(1), x = a);\n" END("y"), "m4", "inline-arguments", SEV_WARNING, 5, AN_OK },
        { MAIN "(" BIG " a) {\n" CONV WEIGHT("64") "tensor<fp16, [256]> b = const()[name=string(\"b\"), val=tensor<fp16, [256]>(BLOBFILE(path=string(\"@model_path/weights/b.bin\"), offset=uint64(64)))];\n"
          BIG " y = conv(bias=b, dilations=k11, groups=g1, pad=k0, pad_type=pt, strides=k11, weight=W, x=a);\n" END("y"), "m4", "conv-bias", SEV_WARNING, 8, AN_OK },
        /* compile legality */
        { MAIN "(tensor<fp16, [1, 1, 1, 2, 256, 128]> a) {\ntensor<fp16, [1, 1, 1, 2, 256, 128]> y = relu(x = a);\n" END("y"), "m1", "rank", SEV_ERROR, 0, AN_UNSUPPORTED },
        { MAIN "(tensor<int32, [1, 256, 1, 128]> a) {\ntensor<int32, [1, 256, 1, 128]> y = add(x = a, y = a);\n" END("y"), "m1", "input-dtype", SEV_ERROR, 4, AN_UNSUPPORTED },
        { MAIN "(" BIG " a) {\n" BIG " y = sin(x = a);\n" END("y"), "m1", "op-unsupported", SEV_ERROR, 5, AN_UNSUPPORTED },
        { MAIN "(" BIG " a) {\n" BIG " y = sin(x = a);\n" END("y"), "m4", NULL, SEV_NOTE, 0, AN_OK },
        { MAIN "(" BIG " a) {\n" BIG " y = frobnicate(x = a);\n" END("y"), "m5", "op-unknown", SEV_ERROR, 5, AN_UNSUPPORTED },
        { MAIN "(tensor<fp16, [1, ?, 64]> a) {\ntensor<fp16, [1, ?, 64]> y = relu(x = a);\n" END("y"), "m1", "symbolic-shape", SEV_ERROR, 0, AN_UNSUPPORTED },
        { MAIN "(" BIG " a, tensor<int32, [4]> at) {\n" BIG " y = slice_by_size(begin = at, size = tensor<int32, [4]>([1, 256, 1, 128]), x = a);\n" END("y"), "m1", "slice-dynamic", SEV_ERROR, 5, AN_UNSUPPORTED },
        /* inference and a rule refuse the same thing: the chip's refusal, not bad text */
        { MAIN "(tensor<fp16, [1, 8, 32, 128]> a) {\n" CONV "int32 g3 = const()[name=string(\"g3\"), val=int32(3)];\n"
          "tensor<fp16, [6,2,1,1]> W = const()[name=string(\"W\"), val=tensor<fp16, [6,2,1,1]>([1,1,1,1,1,1,1,1,1,1,1,1])];\n"
          "tensor<fp16, [1, 6, 32, 128]> y = conv(dilations=k11, groups=g3, pad=k0, pad_type=pt, strides=k11, weight=W, x=a);\n" END("y"), "m1", "conv-groups", SEV_ERROR, 8, AN_UNSUPPORTED },
        /* the header */
        { "program(1.3)\n{\nfunc main<ios18>(" BIG " a) {\n" BIG " y = relu(x = a);\n" END("y"), "m4", "coremlc-version", SEV_WARNING, 0, AN_OK },
        /* bad text */
        { "program(1.3)\n{\nfunc main<ios18>(" BIG " a) {\n" BIG " y = relu(x = b);\n" END("y"), "m4", "syntax", SEV_ERROR, 4, AN_INPUT },
        { MAIN "(" BIG " a) {\ntensor<fp16, [3]> y = relu(x = a);\n" END("y"), "m4", "type", SEV_ERROR, 5, AN_INPUT },
        { MAIN "(" BIG " a) {\n" BIG " y = relu(z = a);\n" END("y"), "m4", "argument", SEV_ERROR, 5, AN_INPUT },
        { MAIN "(" BIG " a) {\n" BIG " y = relu(x = a);\n" END("y, y"), "m4", "name", SEV_ERROR, 6, AN_INPUT },
        { "", "m4", "syntax", SEV_ERROR, 1, AN_INPUT },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        check_report *r = check(rows[i].text, rows[i].target);
        const finding *f = rows[i].rule ? find(r, rows[i].rule) : NULL;
        char *text = print(r, "text");
        if (r->status != rows[i].st) fail_msg("row %zu: status %d, wanted %d\n%s", i, r->status, rows[i].st, text);
        if (rows[i].rule && !f) fail_msg("row %zu: %s did not speak\n%s", i, rows[i].rule, text);
        if (f && (f->sev != rows[i].sev || !f->at.line || (rows[i].line && f->at.line != rows[i].line)))
            fail_msg("row %zu: %s on line %u\n%s", i, severity_name(f->sev), f->at.line, text);
        assert_true((r->status == AN_OK) == (r->n_errors == 0));
        free(text);
        check_free(r);
    }
}

static void several_problems_are_all_listed(void **state)
{
    (void)state;
    check_report *r = check(MAIN "(" BIG " a) {\ntensor<fp16, [3]> p = relu(x = a);\n" BIG " q = relu(z = a);\n" BIG " s = frobnicate(x = a);\n" END("s"), NULL);
    assert_int_equal(r->status, AN_INPUT);
    assert_int_equal(find(r, "type")->at.line, 5);
    assert_int_equal(find(r, "argument")->at.line, 6);
    assert_int_equal(find(r, "op-unknown")->at.line, 7);
    assert_null(find(r, "type")->target);
    assert_non_null(find(r, "op-unknown")->target);
    assert_int_equal(r->costs.n, 0); /* half understood: no cost */
    check_free(r);
}

/* ---- printing ---- */

static size_t count(const char *s, const char *piece)
{
    size_t n = 0;
    for (; (s = strstr(s, piece)); s += strlen(piece)) n++;
    return n;
}

/* A read behind a write is a node that copies, and stays a read of the text. */
static void reads_are_named_behind_writes(void **state)
{
    (void)state;
    check_report *r = check(MAIN "(state<" BIG "> kv, " BIG " a) {\nwrite_state(input = kv, data = a);\n" BIG
                                 " y = read_state(input = kv);\n" END("y"), "m4");
    const finding *f = NULL;
    for (size_t i = 0; i < r->found.n; i++)
        if (!strcmp(r->found.at[i].rule, "op-unsupported") && r->found.at[i].at.line == 6) f = &r->found.at[i];
    assert_non_null(f);
    assert_non_null(strstr(f->message, "read_state is not available"));
    assert_string_equal(r->ops.at[1].op, "read_state");
    check_free(r);
}

static void json_has_the_documented_keys(void **state)
{
    (void)state;
    check_report *r =
        check(MAIN "(" BIG " a) {\n" BIG " y = frobnicate(x = a)[name = string(\"quo\\\"te\")];\n" END("y"), NULL);
    char *text = print(r, "json");
    size_t lines = 0, costs = 0, unknown = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), lines++) {
        assert_int_equal(line[0], '{');
        assert_int_equal(line[strlen(line) - 1], '}');
        bool cost = !strncmp(line, "{\"kind\":\"cost\",\"target\":\"m", 26);
        static const char *const finding_keys[] = { "{\"rule\":\"", ",\"severity\":\"", ",\"op\":\"",
                                                    ",\"line\":",   ",\"col\":",        ",\"message\":\"",
                                                    ",\"fix\":\"",  ",\"evidence\":\"", ",\"target\":\"" };
        static const char *const cost_keys[] = { ",\"latency_us\":", ",\"bound\":\"", ",\"flops\":", ",\"bytes\":" };
        for (size_t k = 0; !cost && k < COUNT(finding_keys); k++)
            if (!strstr(line, finding_keys[k])) fail_msg("%s not in %s", finding_keys[k], line);
        for (size_t k = 0; cost && k < COUNT(cost_keys); k++)
            if (!strstr(line, cost_keys[k])) fail_msg("%s not in %s", cost_keys[k], line);
        costs += cost;
        unknown += strstr(line, "\"op-unknown\"") != NULL;
    }
    assert_int_equal(costs, 5);
    assert_int_equal(unknown, 5); /* one object per target */
    free(text);
    check_free(r);
}

static void text_merges_targets_and_points(void **state)
{
    (void)state;
    check_report *r = check(MAIN "(" BIG " a) {\n" BIG " y = frobnicate(x = a);\n" END("y"), NULL);
    char *text = print(r, "text");
    assert_int_equal(count(text, "[op-unknown] (all targets)"), 1);
    assert_non_null(strstr(text, "p.mil:5:36: error: "));
    assert_non_null(strstr(text, "y = frobnicate(x = a);\n                                   ^\n"));
    assert_non_null(strstr(text, "  fix: "));
    assert_non_null(strstr(text, "  why: "));
    assert_int_equal(count(text, "\nm"), 5); /* the table of costs */
    free(text);
    check_free(r);
    r = check(MAIN "(" BIG " a) {\n" BIG " y = sin(x = a);\n" END("y"), NULL);
    text = print(r, "text");
    assert_non_null(strstr(text, "[op-unsupported] (m1"));
    free(text);
    text = print(r, "markdown");
    assert_non_null(strstr(text, "| error | `op-unsupported` | m1"));
    free(text);
    strbuf b = { 0 };
    check_print_ops(r, "text", &b);
    check_print_ops(r, "json", &b);
    check_print_ops(r, "markdown", &b);
    assert_int_equal(count(b.at, "\"kind\":\"op_cost\""), 5);
    sb_free(&b);
    check_free(r);
    r = check("program(1.3)\n{ oops", NULL);
    text = print(r, "text");
    assert_non_null(strstr(text, "p.mil:2:3: error: "));
    assert_non_null(strstr(text, "{ oops\n  ^\n"));
    free(text);
    text = print(r, "json");
    assert_non_null(
        strstr(text, "{\"rule\":\"syntax\",\"severity\":\"error\",\"op\":\"\",\"line\":2,\"col\":3,\"message\":\""));
    assert_null(strstr(text, "cost"));
    free(text);
    check_free(r);
}

static void errors_only_keeps_counts_and_status(void **state)
{
    (void)state;
    const char *text = MAIN "(tensor<fp16, [1, 16, 1, 32]> a) {\ntensor<fp16, [1, 16, 1, 32]> y = sin(x = a);\n" END("y");
    diag d = { 0 };
    check_report *r;
    assert_ok(check_text(text, strlen(text), &(check_options){ .errors_only = true }, &r, &d), d);
    assert_true(r->found.n > 0 && r->n_warnings > 0);
    for (size_t i = 0; i < r->found.n; i++) assert_int_equal(r->found.at[i].sev, SEV_ERROR);
    assert_int_equal(r->status, AN_UNSUPPORTED);
    check_free(r);
}

/* ---- graphs ---- */

static void graphs_are_checked_too(void **state)
{
    (void)state;
    graph *g = graph_new("t", 0);
    val x = graph_input(g, "x", TTYPE(DT_F16, 1, 256, 1, 128));
    graph_output(g, "y", G(g, SIN, G(g, ADD, x, x)));
    diag d = { 0 };
    check_report *r;
    const chip *m1 = chip_find("m1"), *m4 = chip_find("m4");
    assert_ok(check_graph(g, &(check_options){ .target = &m1, .n_target = 1 }, &r, &d), d);
    assert_int_equal(r->status, AN_UNSUPPORTED);
    assert_non_null(find(r, "op-unsupported"));
    check_free(r);
    assert_ok(check_graph(g, &(check_options){ .target = &m4, .n_target = 1 }, &r, &d), d);
    assert_int_equal(r->status, AN_OK);
    assert_null(find(r, "coremlc-version")); /* text rules are about text */
    /* x + x beside its result, then two more of the same size: never more than two at once */
    assert_true(r->costs.at[0].total.working_set <= 2.0 * 2 * 256 * 128);
    graph_free(g); /* the report keeps nothing of it */
    char *text = print(r, "text");
    assert_non_null(strstr(text, "t: "));
    free(text);
    check_free(r);
}

/* ---- hostile text ---- */

static void any_prefix_and_any_flipped_byte(void **state)
{
    (void)state;
    uint64_t seed = test_seed("any_prefix_and_any_flipped_byte");
    rng r = { seed };
    static const char base[] = MAIN "(" BIG " a) {\n" CONV WEIGHT("64")
        BIG " c = conv(dilations=k11, groups=g1, pad=k0, pad_type=pt, strides=k11, weight=W, x=a);\n"
        "tensor<int32, [4]> p = const()[name=string(\"p\"), val=tensor<int32, [4]>([0, 1, 3, 2])];\n"
        "tensor<fp16, [1, 256, 128, 1]> t = transpose(perm = p, x = c);\n" END("t");
    const chip *m1 = chip_find("m1");
    check_options o = { .target = &m1, .n_target = 1 };
    char *text = malloc(sizeof base);
    size_t bad = 0;
    for (size_t k = 0; k < 1500; k++) {
        size_t n = sizeof base - 1;
        memcpy(text, base, sizeof base);
        if (k < 500) n = k * (sizeof base - 2) / 500;
        else
            for (uint64_t flips = 1 + rng_below(&r, 3); flips; flips--) {
                size_t at = rng_below(&r, n);
                text[at] = rng_below(&r, 2) ? (char)rng_below(&r, 256) : "0123456789-?,()[]<>= \n"[rng_below(&r, 22)];
            }
        check_report *rep = NULL;
        diag d = { 0 };
        assert_ok(check_text(text, n, &o, &rep, &d), d);
        assert_true(rep->status == AN_OK || rep->status == AN_INPUT || rep->status == AN_UNSUPPORTED);
        assert_true((rep->status != AN_OK) == (rep->n_errors > 0));
        bad += rep->status == AN_INPUT;
        if (k < 500) assert_int_equal(rep->status, AN_INPUT);
        strbuf b = { 0 };
        check_print(rep, k & 1 ? "text" : "json", &b);
        sb_free(&b);
        check_free(rep);
    }
    assert_true(bad > 600);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_clean_program_has_costs_and_no_errors),
        cmocka_unit_test(rules_speak_at_their_place),
        cmocka_unit_test(several_problems_are_all_listed),
        cmocka_unit_test(reads_are_named_behind_writes),
        cmocka_unit_test(json_has_the_documented_keys),
        cmocka_unit_test(text_merges_targets_and_points),
        cmocka_unit_test(errors_only_keeps_counts_and_status),
        cmocka_unit_test(graphs_are_checked_too),
        cmocka_unit_test(any_prefix_and_any_flipped_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
