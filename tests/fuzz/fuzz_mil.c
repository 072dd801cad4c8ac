/* fuzz_mil: any bytes through the MIL reader. What parses must print, parse again to the same module and print the same
 * bytes; what does not must give a shown error. */
#include "fuzz_t.h"
#include "mil/mil.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    diag d = { 0 };
    mil_module *m = NULL, *again = NULL;
    an_status st = mil_parse((const char *)data, n, 0, &m, &d);
    need((st == AN_OK) == (m != NULL));
    if (st) {
        need(st == AN_INPUT && d.msg[0] && d.at.line && d.at.off <= n);
        strbuf b = { 0 };
        mil_show_error(&b, "f", (const char *)data, n, d.at, d.msg);
        need(b.n < sizeof d.msg + 700);
        sb_free(&b);
        return 0;
    }
    strbuf one = { 0 }, two = { 0 };
    mil_print(m, &one);
    /* printing expands text as terse as can be, so the second reading gets room of its own */
    st = mil_parse(one.at, one.n, 64 * one.n + (1 << 20), &again, &d);
    need(st == AN_OK && mil_same(m, again, NULL) && mil_same(again, m, NULL));
    mil_print(again, &two);
    need(one.n == two.n && !memcmp(one.at, two.at, one.n));
    (void)mil_main(m);
    sb_free(&one);
    sb_free(&two);
    mil_free(m);
    mil_free(again);
    return 0;
}
