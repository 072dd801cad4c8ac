/* host_ways.c: how new weights get into the programs: reloaded in place, written as inputs, or compiled in.
 * In: programs that hold the weights of the last sync, books that moved on.  Out: programs that hold those of the books.
 * A sync that failed halfway leaves the pipe stale: the next one starts over, and the books never depend on it. */
#include <stdlib.h>

#include "train/pipe_host.h"

/* Programs with weights of their own in them: what a round of recompiling costs. */
static int64_t baked(const host *h)
{
    int64_t n = 0;
    for (size_t i = 0; i < h->progs.n; i++) n += h->progs.at[i].same == (int)i && h->progs.at[i].c.n > 0;
    return n;
}

static an_status compile_missing(host *h, host_prog *g, diag *d)
{
    bool own = g->same == (int)(g - h->progs.at);
    if (own && !g->p) TRY(prog_compile(h, g, d));
    return prog_bind(h, g, d);
}

/* ---- restart: compile again ---- */

static an_status recompile(host *h, host_prog *g, diag *d)
{
    TRY(prog_fill(h, g, d));
    if (g->same == (int)(g - h->progs.at) && (g->c.n || !g->p)) TRY(prog_compile(h, g, d));
    return prog_bind(h, g, d);
}

static an_status restart_sync(host *h, diag *d)
{
    for (size_t i = 0; i < h->progs.n; i++) TRY(recompile(h, &h->progs.at[i], d));
    return AN_OK;
}

static bool restart_spent(const host *h)
{
    const device_limits *lim = device_get_limits(h->p->o.dev);
    device_stats s;
    if (!lim->compiles) return false;
    device_get_stats(h->p->o.dev, &s);
    /* where freeing gives a compile back, the round before the next one does */
    int64_t used = lim->reclaim ? (int64_t)s.programs - baked(h) : (int64_t)s.budget_used;
    return used + baked(h) > lim->compiles;
}

const host_way host_restart = { .sync = restart_sync, .spent = restart_spent };

/* ---- delta: reload, and see that it took ---- */

static an_status reload(host *h, host_prog *g, dev_blob *blob, diag *d)
{
    dev_weights w = prog_weights(g, blob);
    dev_canary canary = { .constants_only = true };
    uint64_t t0 = clock_ns();
    an_status st = dev_program_reload(g->p, &w, &canary, d);
    host_event(h, "device", "reload", g->id.layer, t0);
    if (!st && canary.source_changed && canary.weights_after == canary.weights_before)
        st = diag_fail(d, AN_BUG, NOWHERE, "the constants in use are the old ones");
    if (st) return st;
    h->canaries++, h->reloads++;
    return AN_OK;
}

static an_status delta_sync(host *h, diag *d)
{
    for (size_t i = 0; i < h->progs.n; i++) {
        host_prog *g = &h->progs.at[i];
        if (!g->p || !g->c.n) {
            TRY(prog_fill(h, g, d));
            TRY(compile_missing(h, g, d));
            continue;
        }
        dev_blob *blob = calloc(g->c.n + 1, sizeof *blob);
        if (!blob) return diag_nomem(d);
        diag why = { 0 };
        an_status st = prog_fill(h, g, &why);
        if (!st) st = reload(h, g, blob, &why);
        free(blob);
        if (st == AN_NOMEM) return diag_nomem(d);
        if (!st) continue;
        host_warn(h, "%s: %s; %s does not honour reloads: programs are compiled again instead", g->name, why.msg, device_name(h->p->o.dev));
        h->way = &host_restart;
        h->put_off = restart_spent(h);
        return h->put_off ? AN_OK : restart_sync(h, d);
    }
    return AN_OK;
}

static bool never(const host *h)
{
    (void)h;
    return false;
}

const host_way host_delta = { .sync = delta_sync, .spent = never };

/* ---- dynamic: inputs ---- */

static an_status dynamic_sync(host *h, diag *d)
{
    for (size_t i = 0; i < h->progs.n; i++) {
        TRY(compile_missing(h, &h->progs.at[i], d));
        TRY(prog_fill(h, &h->progs.at[i], d));
    }
    return AN_OK;
}

const host_way host_dynamic = { .open = true, .sync = dynamic_sync, .spent = never };
