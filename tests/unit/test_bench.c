/* test_bench.c: the table of benchmarks: names, an unknown one, and short runs in each form of output. */
#include "bench/bench.h"
#include "t.h"

static void test_list(void **state)
{
    (void)state;
    strbuf b = { 0 };
    bench_list(&b, "text");
    assert_non_null(strstr(b.at, "gemm"));
    assert_non_null(strstr(b.at, "attention"));
    sb_free(&b);
}

static void test_unknown(void **state)
{
    (void)state;
    strbuf b = { 0 };
    diag d = { 0 };
    assert_int_equal(bench_run("nothing", "text", 0, &b, &d), AN_USAGE);
    assert_non_null(strstr(d.msg, "nothing"));
    assert_non_null(strstr(d.msg, "softmax"));
    sb_free(&b);
}

static void test_run(void **state)
{
    (void)state;
    for (int json = 0; json < 2; json++) {
        strbuf b = { 0 };
        diag d = { 0 };
        assert_ok(bench_run("dispatch", json ? "json" : "text", 3, &b, &d), d);
        assert_non_null(strstr(b.at, json ? "\"bench\":\"dispatch\"" : "dispatch "));
        assert_int_equal(b.at[b.n - 1], '\n');
        if (json) assert_non_null(strstr(b.at, "\"of_bound\":"));
        static const char *const rows_of[] = { "compile fwd_attn on cpu", "compile and load fwd_ffn on soft:m4",
                                               "reload stories110m layer, fp16 weights",
                                               "reload stories110m layer, through a device" };
        for (size_t i = 0; i < sizeof rows_of / sizeof *rows_of; i++) assert_non_null(strstr(b.at, rows_of[i]));
        if (json) assert_non_null(strstr(b.at, "\"isa\":\"f16_")); /* the kernel that ran, not that of fp32 */
        sb_free(&b);
    }
}

/* As many runs as were asked for; a table with a row per case. */
static void test_markdown(void **state)
{
    (void)state;
    strbuf b = { 0 };
    diag d = { 0 };
    assert_ok(bench_run("parse", "markdown", 2, &b, &d), d);
    assert_non_null(strstr(b.at, "## parse\n\nThe same MIL text"));
    assert_non_null(strstr(b.at, "|---|"));
    assert_non_null(strstr(b.at, "\n| the same MIL text into graphs | `scalar` | "));
    sb_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_list), cmocka_unit_test(test_unknown),
                                        cmocka_unit_test(test_run), cmocka_unit_test(test_markdown) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
