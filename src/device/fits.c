/* fits.c: no machine of this kind holds that. A text whose tensors take more is bad input, and is told so by name
 * before anything is compiled or taken. */
#include "device/device_int.h"

static an_status too_large(const graph *g, const value *v, diag *d)
{
    char say[300];
    size_t bytes, n;
    strbuf type = { 0 };
    sb_ttype(&type, &v->type);
    n = (size_t)snprintf(say, sizeof say, "%.80s is %.120s", v->name, type.oom ? "a tensor" : type.at);
    if (shape_bytes(&v->type, &bytes))
        snprintf(say + n, sizeof say - n, " and takes %llu bytes", (unsigned long long)bytes);
    sb_free(&type);
    return diag_fail(d, AN_INPUT, g->nodes.at[v->node].at, "%s, more than the 1 TiB (%llu bytes) that can be had", say,
                     (unsigned long long)ENGINE_MOST_BYTES);
}

an_status graph_fits(const graph *g, diag *d)
{
    for (size_t i = 1; i < g->values.n; i++) {
        const value *v = &g->values.at[i];
        size_t bytes;
        /* codegen has its own words for those */
        if (v->type.dt == DT_NONE || v->type.dt == DT_STRING || !shape_known(&v->type.sh)) continue;
        if (!shape_bytes(&v->type, &bytes) || bytes > ENGINE_MOST_BYTES) return too_large(g, v, d);
    }
    return AN_OK;
}
