/* bench.c: the public face of bench/. */
#include "api/api_int.h"
#include "bench/bench.h"

an_status an_bench(char **text, const char *name, int runs, an_format f, an_error *e)
{
    strbuf b = { 0 };
    diag d = { 0 };
    if (runs < 0 || runs > BENCH_RUNS)
        diag_fail(&d, AN_USAGE, NOWHERE, "%d timed runs; 1 to %d, or 0 for as many as it takes", runs, BENCH_RUNS);
    else if (bench_run(name, api_format(f), runs, &b, &d)) { /* d says why; the lines before it are kept */ }
    *text = api_take(&b);
    if (!*text) diag_nomem(&d);
    return d.st ? api_error(e, &d) : AN_OK;
}

char *an_bench_list(an_format f)
{
    strbuf b = { 0 };
    bench_list(&b, api_format(f));
    return api_take(&b);
}
