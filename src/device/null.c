/* null.c: accepts every program and computes nothing, which times everything else. It reads text, or the bytes of a
 * program compiled for any device, far enough to know the ports, so binding, sizes and queueing are the real ones;
 * weights are never opened. */
#include <stdlib.h>

#include "device/device_int.h"

static an_status null_open(device *dev, const char *arg, diag *d)
{
    (void)dev, (void)arg, (void)d;
    return AN_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const dev_port *)a)->name, ((const dev_port *)b)->name);
}

static an_status take_port(dev_program *p, dev_side side, size_t i, const char *name, const ttype *t, diag *d)
{
    size_t bytes;
    dev_port *q = &p->port[side][i];
    if (!shape_bytes(t, &bytes))
        return diag_fail(d, AN_UNSUPPORTED, NOWHERE, "%s has an extent that is not known, or is too large", name);
    *q = (dev_port){ .name = arena_str(&p->mem, name), .dt = t->dt, .rank = t->sh.rank, .bytes = bytes };
    memcpy(q->dim, t->sh.d, (size_t)t->sh.rank * sizeof *q->dim);
    return q->name ? AN_OK : diag_nomem(d);
}

/* A state that is written comes out under its own name, as from the devices that compute. */
static bool is_written_state(const graph *g, val input)
{
    for (size_t i = 1; i < g->nodes.n; i++)
        if (g->nodes.at[i].op == OP_WRITE_STATE && g->nodes.at[i].in[0].i == input.i) return true;
    return false;
}

static an_status take_ports(dev_program *p, const graph *g, diag *d)
{
    size_t room[2] = { g->inputs.n, g->outputs.n + g->inputs.n };
    for (int side = 0; side < 2; side++) {
        size_t n = 0;
        p->port[side] = dev_fault(p->dev, "ports") ? NULL : TAKE(&p->mem, dev_port, room[side]);
        if (!p->port[side]) return diag_nomem(d);
        for (size_t i = 0; i < g->outputs.n && side == DEV_OUTPUT; i++)
            TRY(take_port(p, DEV_OUTPUT, n++, g->outputs.at[i].name, graph_type(g, g->outputs.at[i].v), d));
        for (size_t i = 0; i < g->inputs.n; i++) {
            val v = g->inputs.at[i];
            if (side == DEV_INPUT || is_written_state(g, v))
                TRY(take_port(p, (dev_side)side, n++, graph_value(g, v)->name, graph_type(g, v), d));
        }
        if (n) qsort(p->port[side], n, sizeof *p->port[side], by_name);
        p->n_port[side] = n;
    }
    return AN_OK;
}

static an_status null_build(dev_program *p, const dev_source *src, diag *d)
{
    mil_module *m = NULL;
    graph *g = NULL;
    diag why = { 0 };
    TRY(dev_compile_begin(p, d));
    uint64_t t0 = clock_ns();
    if (dev_fault(p->dev, "parse")) diag_nomem(&why);
    else if (!mil_parse(src->text, src->n_text, 0, &m, &why) && !lower_from_mil(m, NULL, &g, &why) &&
             !graph_fits(g, &why) && take_ports(p, g, &why)) { /* why says it */
    }
    graph_free(g);
    mil_free(m);
    dev_compile_end(p, (double)(clock_ns() - t0) / 1e6, !why.st);
    return why.st ? dev_refuse_as(p->dev, why.st == AN_INPUT ? ERR_BAD_MIL : ERR_COMPILE, &why, d) : AN_OK;
}

static an_status adopt_ports(dev_program *p, dev_side side, const program *g, const eport *from, size_t n, diag *d)
{
    dev_port *to = p->port[side] = dev_fault(p->dev, "ports") ? NULL : TAKE(&p->mem, dev_port, n);
    if (!to) return diag_nomem(d);
    for (size_t i = 0; i < n; i++) {
        const etensor *t = &g->tensors.at[from[i].tensor];
        to[i] = (dev_port){
            .name = arena_str(&p->mem, from[i].name), .dt = t->dt, .rank = t->rank, .bytes = from[i].bytes
        };
        memcpy(to[i].dim, t->dim, (size_t)t->rank * sizeof *t->dim);
        if (!to[i].name) return diag_nomem(d);
    }
    p->n_port[side] = n;
    return AN_OK;
}

static an_status null_adopt(dev_program *p, const void *bytes, size_t n, const dev_weights *w, diag *d)
{
    program *g;
    diag why = { 0 };
    (void)w;
    if (dev_fault(p->dev, "decode")) return diag_nomem(d);
    if (program_decode(bytes, n, &g, &why)) return dev_refuse_as(p->dev, ERR_IMAGE, &why, d);
    an_status st = adopt_ports(p, DEV_INPUT, g, g->inputs.at, g->inputs.n, d);
    if (!st) st = adopt_ports(p, DEV_OUTPUT, g, g->outputs.at, g->outputs.n, d);
    p->final = g->final;
    program_free(g);
    return st;
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
    (void)in, (void)d;
    for (size_t k = 0; k < p->n_port[DEV_OUTPUT]; k++) { /* no element has them: zero on every device */
        const dev_port *q = &p->port[DEV_OUTPUT][k];
        int64_t n = 1;
        for (int i = 0; i < q->rank; i++) n *= q->dim[i];
        dtype_clear_rest(q->dt, out[k], n);
    }
    return AN_OK;
}

static uint64_t null_digest(const dev_program *p)
{
    (void)p;
    return 0;
}

static an_status null_holds(dev_program *p, bool *holds, diag *d)
{
    (void)p, (void)d;
    *holds = true;
    return AN_OK;
}

const device_class device_null = {
    .name = "null",
    .what = "accepts everything and computes nothing: times the host",
    .plain = true,
    .open = null_open,
    .build = null_build,
    .adopt = null_adopt,
    .load = null_load,
    .unload = nothing,
    .reload = null_reload,
    .run = null_run,
    .digest = null_digest,
    .holds = null_holds,
    .drop = nothing,
};
