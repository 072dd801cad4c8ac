/* host_ways.c: how new weights get into a program: reloaded in place, written as inputs, or compiled in.
 * In: a program that is about to run, its weights in its blobs or surfaces.  Out: a program that computes with them.
 * One that failed stays stale: the next run of it starts over, and the books never depend on it. */
#include <stdlib.h>

#include "train/pipe_host.h"

/* Programs with weights of their own in them: what a round of recompiling costs. */
static int64_t baked(const host *h)
{
    int64_t n = 0;
    for (size_t i = 0; i < h->progs.n; i++) n += h->progs.at[i].same == (int)i && h->progs.at[i].c.n > 0;
    return n;
}

/* The program whose compiled form this one uses. */
static host_prog *owner(host *h, const host_prog *g) { return &h->progs.at[g->same]; }

/* ---- restart: compile again ---- */

static an_status restart_take(host *h, host_prog *g, diag *d)
{
    host_prog *own = owner(h, g);
    if (g == own ? g->c.n || !g->p : !own->p) TRY(prog_compile(h, own, d));
    return prog_bind(h, g, d);
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

const host_way host_restart = { .take = restart_take, .spent = restart_spent };

/* ---- delta: reload, and see that it took ---- */

static an_status reload(host *h, host_prog *g, dev_blob *blob, diag *d)
{
    dev_weights w = prog_weights(g, blob);
    dev_canary canary = { .constants_only = true };
    uint64_t t0 = clock_ns();
    an_status st = dev_program_reload(g->p, &w, &canary, d);
    host_event(h, "device", "reload", g->id.layer, t0);
    if (st) return st;
    h->canaries++, h->reloads++;
    return AN_OK;
}

static an_status delta_take(host *h, host_prog *g, diag *d)
{
    if (!g->p || !g->c.n) return restart_take(h, g, d);
    dev_blob *blob = calloc(g->c.n + 1, sizeof *blob);
    if (!blob) return diag_nomem(d);
    diag why = { 0 };
    an_status st = reload(h, g, blob, &why);
    free(blob);
    if (st == AN_NOMEM) return diag_nomem(d);
    if (!st) return AN_OK;
    host_warn(h, "%s: %s; %s does not honour reloads: programs are compiled again instead", g->name, why.msg,
              device_name(h->p->o.dev));
    h->way = &host_restart;
    h->put_off = restart_spent(h);
    if (!h->put_off) return restart_take(h, g, d);
    return diag_fail(d, AN_UNSUPPORTED, NOWHERE,
                     "%s took no reload and compiles no more in this process: save, and go on in a new one",
                     device_name(h->p->o.dev));
}

static bool never(const host *h)
{
    (void)h;
    return false;
}

const host_way host_delta = { .take = delta_take, .spent = never };

/* ---- dynamic: inputs ---- */

static an_status dynamic_take(host *h, host_prog *g, diag *d)
{
    (void)h, (void)g, (void)d; /* what is written into its surfaces is all there is */
    return AN_OK;
}

const host_way host_dynamic = { .open = true, .take = dynamic_take, .spent = never };
