/* facts.c: the public face of facts/. */
#include "api/api_int.h"
#include "facts/facts.h"

an_status an_facts(char **text, an_facts_total *total, an_format f, const char *only, an_error *e)
{
    strbuf b = { 0 };
    diag d = { 0 };
    facts_total t = { 0 };
    *text = NULL;
    if (!facts_print(&b, api_format(f), only, &t, &d)) {
        *total = (an_facts_total){
            .pass = t.n[FACT_PASS], .fail = t.n[FACT_FAIL], .not_modelled = t.n[FACT_NOT_MODELLED], .off = t.n[FACT_OFF]
        };
        *text = api_take(&b);
        if (!*text) diag_nomem(&d);
    } else sb_free(&b);
    return d.st ? api_error(e, &d) : AN_OK;
}
