/* facts_state.c: state that stays on the device: one surface bound as an output and as the next input.
 * In: rows of steps.  Out: what the surface holds after each. */
#include "facts/facts_int.h"

/* Binds the output's surface to the input as well. */
static an_status tie(fx *f, fx_prog *g, const char *in, const char *out)
{
    size_t i, k;
    if (!dev_program_port(g->p, DEV_INPUT, in, &i) || !dev_program_port(g->p, DEV_OUTPUT, out, &k))
        return diag_fail(f->d, AN_BUG, NOWHERE, "no port %s or %s", in, out);
    return dev_request_bind(g->r, DEV_INPUT, in, g->s[DEV_OUTPUT][k], f->d);
}

static const char COUNTER[] = FX_T("1, 32, 1, 1024") " s = add(x = x, y = fp16(1))[name = string(\"s\")];";

/* args: wanted values, one per dispatch */
an_status fact_accumulator(fx *f)
{
    fx_prog g;
    double got[16], *s;
    int64_t n;
    int good = 0;
    TRY(fx_open(f, &g, fx_chip(f, 0), fx_text(f, FX_T("1, 32, 1, 1024") " x", "s", "%s", COUNTER), NULL));
    an_status st = tie(f, &g, "x", "s");
    for (int i = 0; !st && i < f->row->n_arg; i++) {
        st = fx_go(f, &g);
        if (!st) st = fx_get(f, &g, "s", &s, &n);
        if (st) break;
        got[i] = s[0];
        for (int64_t k = 1; k < n; k++)
            if (s[k] != s[0]) got[i] = (double)NAN;
        good += fx_same(got[i], fx_arg(f, i));
    }
    fx_close(&g);
    TRY(st);
    return fx_verdict(f, good == f->row->n_arg, "%s", fx_list(f, got, f->row->n_arg));
}

/* args: steps, then the wanted cache */
an_status fact_ring_cache(fx *f)
{
    enum { SLOTS = 6 };
    fx_prog g;
    double onehot[SLOTS], value[SLOTS], *s = NULL;
    int64_t n = 0;
    const char *text = fx_text(f, FX_T("1, 1, 1, 6") " cache, " FX_T("1, 1, 1, 6") " mask, " FX_T("1, 1, 1, 6") " value", "next",
                               FX_T("1, 1, 1, 6") " keep = sub(x = fp16(1), y = mask)[name = string(\"keep\")];\n" FX_T("1, 1, 1, 6") " old = mul(x = cache, y = keep)[name = string(\"old\")];\n"
                               FX_T("1, 1, 1, 6") " new = mul(x = value, y = mask)[name = string(\"new\")];\n" FX_T("1, 1, 1, 6") " next = add(x = old, y = new)[name = string(\"next\")];");
    TRY(fx_open(f, &g, fx_chip(f, 0), text, NULL));
    an_status st = tie(f, &g, "cache", "next");
    for (int t = 0; !st && t < (int)fx_arg(f, 0); t++) {
        for (int i = 0; i < SLOTS; i++) onehot[i] = i == t, value[i] = (t + 1) * 10;
        st = fx_set(f, &g, "mask", onehot, SLOTS);
        if (!st) st = fx_set(f, &g, "value", value, SLOTS);
        if (!st) st = fx_go(f, &g);
    }
    if (!st) st = fx_get(f, &g, "next", &s, &n);
    fx_close(&g);
    TRY(st);
    bool ok = true;
    for (int i = 0; i < SLOTS; i++) ok = ok && fx_same(s[i], fx_arg(f, 1 + i));
    return fx_verdict(f, ok, "%s", fx_list(f, s, n));
}

/* args: steps. Every step submitted at once, against one after the other. */
an_status fact_many_steps(fx *f)
{
    enum { MOST = 64 };
    int steps = (int)fx_arg(f, 0);
    double end[2] = { 0 }, *s;
    int64_t n;
    uint64_t dispatches[2] = { 0 };
    for (int way = 0; way < 2; way++) {
        fx_prog g;
        dev_request *r[MOST] = { NULL };
        device_stats stats;
        TRY(fx_open(f, &g, fx_chip(f, 0), fx_text(f, FX_T("1, 32, 1, 1024") " x", "s", "%s", COUNTER), NULL));
        an_status st = tie(f, &g, "x", "s");
        for (int i = 0; !st && !way && i < steps; i++) st = fx_go(f, &g);
        for (int i = 0; !st && way && i < steps; i++) {
            st = dev_request_new(g.p, &r[i], f->d);
            if (!st) st = dev_request_bind_at(r[i], DEV_INPUT, 0, g.s[DEV_OUTPUT][0], f->d);
            if (!st) st = dev_request_bind_at(r[i], DEV_OUTPUT, 0, g.s[DEV_OUTPUT][0], f->d);
        }
        for (int i = 0; !st && way && i < steps; i++) st = device_submit(r[i], DEV_QOS, f->d);
        for (int i = 0; !st && way && i < steps; i++) st = device_wait(r[i], f->d);
        if (!st) st = fx_get(f, &g, "s", &s, &n);
        if (!st) end[way] = s[0];
        device_get_stats(g.dev, &stats);
        dispatches[way] = stats.dispatches;
        fx_close(&g);
        TRY(st);
    }
    bool ok = end[0] == steps && end[1] == steps && dispatches[0] == dispatches[1];
    return fx_verdict(f, ok, "state %g after %llu dispatches one by one, %g after %llu submitted at once", end[0],
                      (unsigned long long)dispatches[0], end[1], (unsigned long long)dispatches[1]);
}
