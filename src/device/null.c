/* null.c: accepts every program and computes nothing, which times everything else. It reads the text far enough to know the
 * ports, so binding, sizes and queueing are the real ones; weights are never opened. */
#include <stdlib.h>

#include "device/device_int.h"

static an_status null_open(device *dev, const char *arg, diag *d)
{
    (void)dev, (void)arg, (void)d;
    return AN_OK;
}

static int by_name(const void *a, const void *b) { return strcmp(((const dev_port *)a)->name, ((const dev_port *)b)->name); }

static an_status take_port(dev_program *p, dev_side side, size_t i, const char *name, const ttype *t, diag *d)
{
    size_t bytes;
    dev_port *q = &p->port[side][i];
    if (!shape_bytes(t, &bytes)) return diag_fail(d, AN_UNSUPPORTED, NOWHERE, "%s has an extent that is not known, or is too large", name);
    *q = (dev_port){ .name = arena_str(&p->mem, name), .dt = t->dt, .rank = t->sh.rank, .bytes = bytes };
    memcpy(q->dim, t->sh.d, (size_t)t->sh.rank * sizeof *q->dim);
    return q->name ? AN_OK : diag_nomem(d);
}

static an_status take_ports(dev_program *p, const graph *g, diag *d)
{
    size_t n[2] = { g->inputs.n, g->outputs.n };
    for (int side = 0; side < 2; side++) {
        p->port[side] = dev_fault(p->dev, "ports") ? NULL : TAKE(&p->mem, dev_port, n[side]);
        if (!p->port[side]) return diag_nomem(d);
        for (size_t i = 0; i < n[side]; i++) {
            val v = side == DEV_INPUT ? g->inputs.at[i] : g->outputs.at[i].v;
            TRY(take_port(p, (dev_side)side, i, side == DEV_INPUT ? graph_value(g, v)->name : g->outputs.at[i].name, graph_type(g, v), d));
        }
        if (n[side]) qsort(p->port[side], n[side], sizeof *p->port[side], by_name);
        p->n_port[side] = n[side];
    }
    return AN_OK;
}

static an_status null_build(dev_program *p, const dev_source *src, diag *d)
{
    mil_module *m = NULL;
    graph *g = NULL;
    diag why = { 0 };
    TRY(dev_budget(p->dev, d));
    uint64_t t0 = clock_ns();
    if (dev_fault(p->dev, "parse")) diag_nomem(&why);
    else if (!mil_parse(src->text, src->n_text, 0, &m, &why) && !lower_from_mil(m, NULL, &g, &why) && take_ports(p, g, &why)) { /* why says it */ }
    graph_free(g);
    mil_free(m);
    dev_compiled(p, (double)(clock_ns() - t0) / 1e6, !why.st);
    return why.st ? dev_refuse_as(p->dev, why.st == AN_INPUT ? ERR_BAD_MIL : ERR_COMPILE, &why, d) : AN_OK;
}

static an_status null_load(dev_program *p, diag *d)
{
    return dev_fault(p->dev, "image") ? diag_nomem(d) : AN_OK;
}

static void nothing(dev_program *p) { (void)p; }

static an_status null_reload(dev_program *p, const dev_weights *w, bool *changed, diag *d)
{
    (void)w;
    if (changed) *changed = false;
    return dev_fault(p->dev, "reload") ? diag_nomem(d) : AN_OK;
}

static an_status null_run(dev_program *p, const void *const *in, void *const *out, diag *d)
{
    (void)p, (void)in, (void)out, (void)d;
    return AN_OK;
}

static uint64_t null_digest(const dev_program *p)
{
    (void)p;
    return 0;
}

const device_class device_null = {
    .name = "null",
    .what = "accepts everything and computes nothing: times the host",
    .plain = true,
    .open = null_open,
    .build = null_build,
    .load = null_load,
    .unload = nothing,
    .reload = null_reload,
    .run = null_run,
    .digest = null_digest,
    .drop = nothing,
};
