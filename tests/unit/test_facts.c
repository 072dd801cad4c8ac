/* test_facts.c: every published row, and the page that prints them. */
#include "facts/facts.h"
#include "t.h"

/* A row either gives the published answer or says why nothing here can. */
static void every_row(void **s)
{
    (void)s;
    size_t n[3] = { 0 }, bad = 0;
    for (size_t i = 0; i < facts_count(); i++) {
        fact_result r;
        diag d = { 0 };
        assert_ok(facts_run(i, &r, &d), d);
        n[r.status]++;
        if (r.status == FACT_FAIL) {
            print_message("%s: %s: published %s, got %s\n", r.id, r.setup, r.expected, r.got);
            bad++;
        }
        if (r.status == FACT_NOT_MODELLED && !*r.why) fail_msg("%s does not say why", r.id);
        if (r.status == FACT_PASS && !*r.got) fail_msg("%s passes without a value", r.id);
    }
    print_message("%zu rows: %zu pass, %zu fail, %zu not modelled\n", facts_count(), n[FACT_PASS], n[FACT_FAIL], n[FACT_NOT_MODELLED]);
    if (bad) fail_msg("%zu rows fail", bad);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
