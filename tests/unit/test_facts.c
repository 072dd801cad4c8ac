/* test_facts.c: every published row, and the page that prints them. */
#include "facts/facts.h"
#include "t.h"

/* A row either gives the published answer or says why nothing here can. */
static void every_row(void **s)
{
    (void)s;
    size_t n[FACT_STATUSES] = { 0 }, bad = 0;
    for (size_t i = 0; i < facts_count(); i++) {
        fact_result r;
        diag d = { 0 };
        assert_ok(facts_run(i, &r, &d), d);
        n[r.status]++;
        if (r.status == FACT_FAIL) {
            print_message("%s: %s: published %s, got %s\n", r.id, r.setup, r.expected, r.got);
            bad++;
        }
        if ((r.status == FACT_NOT_MODELLED || r.status == FACT_OFF) && !*r.why) fail_msg("%s does not say why", r.id);
        if (r.status == FACT_OFF && !strchr(r.got, '%')) fail_msg("%s does not say by how much", r.id);
        if (r.status == FACT_PASS && !*r.got) fail_msg("%s passes without a value", r.id);
    }
    print_message("%zu rows: %zu pass, %zu fail, %zu off, %zu not modelled\n", facts_count(), n[FACT_PASS],
                  n[FACT_FAIL], n[FACT_OFF], n[FACT_NOT_MODELLED]);
    if (bad) fail_msg("%zu rows fail", bad);
}

/* The table is whole: so many rows of each family, every id once. */
static void table_is_whole(void **s)
{
    (void)s;
    static const struct {
        char family;
        int rows;
    } want[] = {
        { 'N', 86 }, { 'R', 4 }, { 'C', 48 }, { 'W', 20 }, { 'P', 61 }, { 'E', 18 }, { 'F', 15 }, { 'T', 14 }
    };
    size_t i = 0;
    for (size_t k = 0; k < sizeof want / sizeof *want; k++)
        for (int n = 1; n <= want[k].rows; n++, i++) {
            char id[16];
            snprintf(id, sizeof id, "%c%d", want[k].family, n);
            assert_true(i < facts_count());
            assert_string_equal(facts_id(i), id);
        }
    assert_int_equal(i, facts_count());
}

static char *print(const char *format, const char *only, facts_total *t)
{
    strbuf b = { 0 };
    diag d = { 0 };
    assert_ok(facts_print(&b, format, only, t, &d), d);
    assert_non_null(b.at);
    return b.at;
}

static void prints(void **s)
{
    (void)s;
    facts_total t;
    char *text = print("json", "N1", &t); /* N1 and not N10 */
    assert_string_equal(text, "{\"id\":\"N1\",\"target\":\"m1\",\"setup\":\"sum of 16000 ones (matmul against ones)\",\"expected\":\"16000 exactly\",\"got\":\"16000\","
                              "\"status\":\"pass\",\"why\":\"\"}\n{\"kind\":\"total\",\"rows\":1,\"pass\":1,\"fail\":0,\"not_modelled\":0,\"outside_fidelity\":0}\n");
    free(text);
    text = print("json", "P26", &t); /* the contract has three words: this one passes by reporting the model's error */
    assert_non_null(strstr(text, "\"status\":\"pass\",\"why\":\""));
    assert_non_null(strstr(text, ",\"error_percent\":-78."));
    assert_non_null(strstr(
        text,
        ",\"fidelity_percent\":31,\"within_fidelity\":false}\n{\"kind\":\"total\",\"rows\":1,\"pass\":1,\"fail\":0,\"not_modelled\":0,\"outside_fidelity\":1}\n"));
    assert_int_equal(t.n[FACT_OFF], 1);
    free(text);
    text = print("json", "P10", &t);
    assert_non_null(strstr(text, ",\"fidelity_percent\":17,\"within_fidelity\":true}\n"));
    free(text);
    text = print("text", "R", &t);
    assert_non_null(strstr(text, "4 rows: 4 pass, 0 fail, 0 off, 0 not modelled\n"));
    assert_int_equal(t.n[FACT_PASS], 4);
    free(text);
    text = print("markdown", "E1", &t);
    assert_non_null(strstr(
        text,
        "| E1 | m1 | idle | ~0 mW |  | not modelled | an engine that runs nothing: the model's power is that of programs |\n"));
    free(text);
    text = print("json", "X", &t);
    assert_string_equal(
        text, "{\"kind\":\"total\",\"rows\":0,\"pass\":0,\"fail\":0,\"not_modelled\":0,\"outside_fidelity\":0}\n");
    free(text);
}

/* What a row states is what was tried: every kind of it has left its word. */
static void rows_try_what_they_state(void **s)
{
    (void)s;
    static const struct {
        const char *id;
        fact_status status;
        const char *word;
    } want[] = {
        { "N57", FACT_PASS, "0.0034 in " },
        { "N62", FACT_NOT_MODELLED, "atan 0.00" }, /* near pi, not wherever it is worst */
        { "N81", FACT_PASS, "3 of 3 processes have the bits of one alone" },
        { "N85", FACT_PASS, "|A - LL'|" },
        { "N85", FACT_PASS, "|A - LU|" },
        { "N86", FACT_PASS, "eigen, condition 100, 10 sweeps" },
        { "N86", FACT_PASS, "singular, condition 10, 6 sweeps" },
        { "C11", FACT_PASS, "Expected tensor<fp16,[1,8]>; got tensor<fp16,[0,8]>" },
        { "C14", FACT_PASS, "0 accepted, 4 refused" },
        { "C36", FACT_PASS, "run-time position" },
        { "C47", FACT_PASS, "Cannot decompose layer on this architecture" },
        { "P55", FACT_PASS, "in 3 processes, 60 still loaded" },
    };
    for (size_t k = 0; k < sizeof want / sizeof *want; k++) {
        size_t i = 0;
        fact_result r;
        diag d = { 0 };
        while (i < facts_count() && strcmp(facts_id(i), want[k].id)) i++;
        assert_true(i < facts_count());
        assert_ok(facts_run(i, &r, &d), d);
        if (r.status != want[k].status || !strstr(r.got, want[k].word))
            fail_msg("%s: %s: %s", r.id, fact_status_name(r.status), r.got);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_is_whole),
        cmocka_unit_test(every_row),
        cmocka_unit_test(prints),
        cmocka_unit_test(rows_try_what_they_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
