/* bench.c: the public face of bench/. */
#include "api/api_int.h"
#include "bench/bench.h"

an_status an_bench(char **text, const char *name, an_format f, an_error *e)
{
    strbuf b = { 0 };
    diag d = { 0 };
    if (bench_run(name, f == AN_JSON, &b, &d)) { /* d says why; the lines before it are kept */ }
    *text = api_take(&b);
    if (!*text) diag_nomem(&d);
    return d.st ? api_error(e, &d) : AN_OK;
}

char *an_bench_list(an_format f)
{
    strbuf b = { 0 };
    bench_list(&b, f == AN_JSON);
    return api_take(&b);
}
