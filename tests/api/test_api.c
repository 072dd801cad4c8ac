/* api: the public header alone, as a program outside the tree uses it. */
#include "t.h"

#include <anneal.h>

#define HEADER "program(1.3)\n[buildInfo = dict<string, string>({{\"coremlc-version\", \"3505.4.1\"}})]\n{\n"
static const char sine[] = HEADER "    func main<ios18>(tensor<fp16, [1, 64, 1, 512]> x) {\n"
                                  "        tensor<fp16, [1, 64, 1, 512]> y = sin(x = x)[name = string(\"y\")];\n    } -> (y);\n}\n";

static void a_report_says_who_refuses(void **state)
{
    (void)state;
    an_error e = { 0 };
    an_report *r;
    assert_int_equal(an_check_mil(&r, sine, sizeof sine - 1, NULL, &e), AN_OK);
    assert_int_equal(an_report_status(r), AN_UNSUPPORTED);
    int refused = 0;
    for (size_t i = 0; i < an_report_findings(r); i++) {
        an_finding f;
        an_report_finding(r, i, &f);
        if (strcmp(f.severity, "error")) continue;
        refused++;
        assert_true(!strcmp(f.target, "m1") || !strcmp(f.target, "m2"));
        assert_string_equal(f.op, "sin");
        assert_int_equal(f.line, 5);
        assert_true(*f.message && *f.fix && *f.evidence);
    }
    assert_int_equal(refused, 2);
    assert_int_equal(an_report_costs(r), 5);
    an_cost c;
    an_report_cost(r, 0, &c);
    assert_string_equal(c.target, "m1");
    assert_true(c.latency_us > 0 && c.bytes > 0);
    an_report_free(r);
    assert_int_equal(an_check_mil(&r, sine, sizeof sine - 1, &(an_check_options){ .targets = "m1,m77" }, &e), AN_USAGE);
    assert_null(r);
    assert_non_null(strstr(e.message, "m77"));
}

static void bad_text_is_a_report_too(void **state)
{
    (void)state;
    an_error e = { 0 };
    an_report *r;
    assert_int_equal(an_check_mil(&r, sine, sizeof sine - 20, NULL, &e), AN_OK);
    assert_int_equal(an_report_status(r), AN_INPUT);
    an_finding f;
    assert_true(an_report_findings(r) > 0);
    an_report_finding(r, 0, &f);
    assert_string_equal(f.rule, "syntax");
    assert_true(f.line >= 1 && f.column >= 1);
    an_report_free(r);
}

static void programs_go_through_passes_to_text_and_back(void **state)
{
    (void)state;
    an_error e = { 0 };
    static const char *const models[] = { "stories260k", "tiny", "gpt2" };
    for (size_t m = 0; m < 3; m++) {
        size_t n = an_training_programs(models[m]);
        assert_true(n > 4);
        for (size_t k = 0; k < n; k += 3) {
            an_program *p, *again;
            assert_int_equal(an_program_from_training(&p, models[m], k, &e), AN_OK);
            assert_int_equal(an_program_optimize(p, &(an_pass_options){ .target = "m1" }, &e), AN_OK);
            char *mil = an_program_text(p, "mil", &e);
            if (!mil) fail_msg("%s: %s", an_program_name(p), e.message);
            an_report *r;
            assert_int_equal(an_check_mil(&r, mil, strlen(mil), &(an_check_options){ .targets = "m1,m4" }, &e), AN_OK);
            if (an_report_status(r)) fail_msg("%s: %s", an_program_name(p), an_report_text(r, AN_TEXT));
            an_report_free(r);
            assert_int_equal(an_program_from_mil(&again, mil, strlen(mil), NULL, &e), AN_OK);
            char *twice = an_program_text(again, "mil", &e);
            assert_string_equal(mil, twice); /* printing what was read gives the same bytes */
            an_free(mil);
            an_free(twice);
            an_program_free(p);
            an_program_free(again);
        }
        an_program *none;
        assert_int_equal(an_program_from_training(&none, models[m], n, &e), AN_INPUT);
        assert_null(none);
    }
}

static void graph_text_round_trips(void **state)
{
    (void)state;
    an_error e = { 0 };
    an_program *p, *q;
    assert_int_equal(
        an_program_from_kernel(&p, &(an_kernel_options){ .model = "tiny", .kernel = "fwd_attn", .layer = 1 }, &e),
        AN_OK);
    char *a = an_program_text(p, "graph", &e);
    assert_int_equal(an_program_from_graph(&q, a, strlen(a), &e), AN_OK);
    char *b = an_program_text(q, "graph", &e);
    assert_string_equal(a, b);
    an_free(a);
    an_free(b);
    char *dot = an_program_text(q, "dot", &e);
    assert_non_null(strstr(dot, "digraph"));
    an_free(dot);
    assert_null(an_program_text(q, "exe", &e));
    assert_int_equal(e.status, AN_USAGE);
    an_program_free(p);
    an_program_free(q);
}

static void count_dump(void *user, const char *pass, const char *text)
{
    assert_true(*pass && *text);
    ++*(int *)user;
}

static void wrong_words_are_named(void **state)
{
    (void)state;
    an_error e = { 0 };
    an_program *p;
    assert_int_equal(an_program_from_kernel(&p, &(an_kernel_options){ .model = "nope", .kernel = "fwd_attn" }, &e),
                     AN_USAGE);
    assert_non_null(strstr(e.message, "nope"));
    assert_int_equal(an_program_from_kernel(&p, &(an_kernel_options){ .model = "tiny", .kernel = "nope" }, &e),
                     AN_USAGE);
    assert_int_equal(an_program_from_mil(&p, "junk", 4, NULL, &e), AN_INPUT);
    assert_int_equal(e.line, 1);
    assert_null(an_table("nope", AN_TEXT));
    assert_null(an_probe("nope"));
    assert_int_equal(an_program_from_mil(&p, sine, sizeof sine - 1, NULL, &e), AN_OK);
    assert_int_equal(an_program_optimize(p, &(an_pass_options){ .target = "m77" }, &e), AN_USAGE);
    assert_int_equal(an_program_optimize(p, &(an_pass_options){ .dump_after = "nope", .on_dump = count_dump }, &e),
                     AN_USAGE);
    int dumps = 0;
    assert_int_equal(
        an_program_optimize(p, &(an_pass_options){ .dump_after = "all", .on_dump = count_dump, .user = &dumps }, &e),
        AN_OK);
    assert_true(dumps > 0);
    size_t n;
    assert_null(an_program_weights(p, &n));
    an_program_free(p);
    an_program_free(NULL);
    an_report_free(NULL);
}

static void arrays_that_cannot_be_say_which_extent(void **state)
{
    (void)state;
    an_error e = { 0 };
    an_array *a;
    assert_int_equal(an_array_new(&a, "x", "fp32", 2, (const int64_t[]){ 4, -3 }, NULL, &e), AN_INPUT);
    assert_string_equal(e.message, "array x: extent -3 of dimension 1; 0 or more is wanted");
    assert_int_equal(an_array_new(&a, "x", "fp32", 2, (const int64_t[]){ INT64_MAX, 3 }, NULL, &e), AN_INPUT);
    assert_string_equal(e.message, "array x: extent 3 of dimension 1 makes it larger than can be counted");
    assert_null(a);
    an_lm_gradients g; /* an array that can be, and is no ids */
    assert_int_equal(an_array_new(&a, "ids", "int32", 2, (const int64_t[]){ 2, 1 }, (const int32_t[]){ 1, 2 }, &e), AN_OK);
    assert_int_equal(an_lm_grad("tiny", "cpu", 1, a, "/tmp/none.safetensors", &g, &e), AN_INPUT);
    assert_non_null(strstr(e.message, "ids: the ids are int32 [2, 1]; int32 [B, T + 1]"));
    an_array_free(a);
}

static void no_list_of_wanted_results_means_all(void **state)
{
    (void)state;
    an_error e = { 0 };
    an_array *out[2];
    size_t n = 2;
    an_run_options o = { .engine = "soft:m4", .fill = 1, .n_want = 7 };
    if (an_run_mil(out, &n, sine, sizeof sine - 1, NULL, 0, &o, &e)) fail_msg("%s", e.message);
    assert_int_equal(n, 1);
    an_array_free(out[0]);
    n = 2, o.engine = "soft:m1"; /* which has no sine */
    assert_int_equal(an_run_mil(out, &n, sine, sizeof sine - 1, NULL, 0, &o, &e), AN_UNSUPPORTED);
    assert_true(!n && !out[0] && !out[1]);
}

static void weights_are_said_to_be_where_they_can_be_read(void **state)
{
    (void)state;
    an_error e = { 0 };
    an_program *p, *again;
    static const uint16_t w[32 * 32];
    assert_int_equal(an_program_new(&p, "p", &e), AN_OK);
    an_value x = an_input(p, "x", "fp16", 2, (const int64_t[]){ 1, 32 });
    an_value c = an_constant(p, "w", "fp16", 2, (const int64_t[]){ 32, 32 }, w);
    an_output(p, "y", an_op(p, "y", "matmul", (an_value[]){ x, c }, 2, NULL));
    assert_int_equal(an_program_finish(p, &e), AN_OK);
    static const char *const out[] = { "", ".", "../w.bin", "a/../../w.bin" };
    assert_int_equal(an_program_weight_file(p, "a\"b/w.bin", &e), AN_OK);
    for (size_t i = 0; i < sizeof out / sizeof *out; i++) {
        assert_int_equal(an_program_weight_file(p, out[i], &e), AN_INPUT);
        assert_non_null(strstr(e.message, "below the model folder"));
    }
    char *mil = an_program_text(p, "mil", &e);
    assert_non_null(strstr(mil, "@model_path/a\\\"b/w.bin"));
    assert_int_equal(an_program_from_mil(&again, mil, strlen(mil), &(an_read_options){ .model_dir = "/tmp" }, &e), AN_OK);
    an_free(mil), an_program_free(p), an_program_free(again);
}

/* A conversation that cannot be begun does not end the one before. */
static void a_wrong_form_leaves_the_conversation(void **state)
{
    (void)state;
    an_error e = { 0 };
    an_lm *m;
    an_generated first, second;
    an_generate_options o = { .max_tokens = 1 };
    an_lm_options lo = { .model = "stories1m", .tokenizer = "builtin:stories", .engine = "cpu", .threads = 1, .no_cache = 1 };
    assert_int_equal(an_lm_open(&m, &lo, &e), AN_OK);
    assert_int_equal(an_lm_chat_begin(m, "plain", "be kind", &e), AN_OK);
    assert_int_equal(an_lm_chat(m, "hello", 5, &o, &first, &e), AN_OK);
    assert_int_equal(an_lm_chat_begin(m, "nope", NULL, &e), AN_INPUT);
    assert_string_equal(an_lm_chat_form(m), "plain");
    assert_int_equal(an_lm_chat(m, "hello", 5, &o, &second, &e), AN_OK);
    assert_true(second.prompt_tokens > first.prompt_tokens);
    an_lm_close(m);
}

static void a_mistaken_program_is_not_checked(void **state)
{
    (void)state;
    an_error e = { 0 };
    an_program *p;
    an_report *r;
    assert_int_equal(an_program_new(&p, "p", &e), AN_OK);
    an_value x = an_input(p, "x", "fp16", 1, (const int64_t[]){ 4 });
    an_output(p, "y", an_op(p, "y", "relu", &x, 1, NULL));
    an_output(p, "z", an_op(p, "z", "frobnicate", &x, 1, NULL));
    assert_int_equal(an_program_check(&r, p, NULL, &e), AN_INPUT);
    assert_null(r);
    assert_non_null(strstr(e.message, "frobnicate"));
    an_program_free(p);
}

static void every_table_prints_in_every_format(void **state)
{
    (void)state;
    static const char *const tables[] = { "ops",    "targets",   "rules",  "gates",   "passes", "kernels",
                                          "models", "published", "probes", "devices", "limits", "isa" };
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        for (an_format f = AN_TEXT; f <= AN_MARKDOWN; f++) {
            char *s = an_table(tables[i], f);
            assert_true(s && strlen(s) > 100);
            if (f == AN_JSON)
                for (const char *p = s; *p; p = strchr(p, '\n') + 1) assert_int_equal(*p, '{');
            an_free(s);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_report_says_who_refuses),   cmocka_unit_test(bad_text_is_a_report_too),
        cmocka_unit_test(programs_go_through_passes_to_text_and_back), cmocka_unit_test(graph_text_round_trips),
        cmocka_unit_test(wrong_words_are_named),       cmocka_unit_test(every_table_prints_in_every_format),
        cmocka_unit_test(no_list_of_wanted_results_means_all), cmocka_unit_test(a_mistaken_program_is_not_checked),
        cmocka_unit_test(weights_are_said_to_be_where_they_can_be_read), cmocka_unit_test(a_wrong_form_leaves_the_conversation),
        cmocka_unit_test(arrays_that_cannot_be_say_which_extent),
    };
    return cmocka_run_group_tests_name("api", tests, NULL, NULL);
}
