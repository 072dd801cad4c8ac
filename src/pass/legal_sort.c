/* legal_sort.c: port names whose sorted order is the declared order. Surfaces bind in the sorted order of the names,
 * whatever the declared order. Only a side that is out of order is renamed (to i00_x, i01_y … or o00_x …), and all
 * of it, so that the numbers read in order. */
#include "pass/ports_int.h"

static bool in_order(const port_slot *s, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (strcmp(s[i - 1].name, s[i].name) >= 0) return false;
    return true;
}

static const char *fresh_name(graph *g, char side, size_t i, size_t n, const char *old)
{
    for (int k = 0;; k++) {
        arena_mark m = arena_save(&g->mem);
        const char *s = k ? arena_printf(&g->mem, "%c%0*zu_%s_%d", side, n > 100 ? 4 : 2, i, old, k)
                          : arena_printf(&g->mem, "%c%0*zu_%s", side, n > 100 ? 4 : 2, i, old);
        if (!s || !graph_find(g, s).i) return s;
        arena_back(&g->mem, m);
    }
}

an_status pass_sort_ports(graph *g, pass_ctx *c, diag *d)
{
    port_plan *p = c->plan;
    ports_found f;
    TRY(ports_fire(c->o->target, p, "sort_ports", &c->scratch, &f, d));
    if (!f.n) return AN_OK;
    bool in = !in_order(p->in, p->n_in), out = !in_order(p->out, p->n_out);
    for (size_t k = 0; in && k < p->n_in; k++) {
        const char *s = fresh_name(g, 'i', k, p->n_in, p->in[k].name);
        if (!s) return diag_nomem(d);
        graph_rename(g, g->inputs.at[k], s);
        p->in[k].name = s;
        c->n_changes++;
    }
    for (size_t k = 0; out && k < p->n_out; k++) {
        const char *s = fresh_name(g, 'o', k, p->n_out, p->out[k].name);
        if (!s) return diag_nomem(d);
        g->outputs.at[k].name = p->out[k].name = s;
        c->n_changes++;
    }
    if (c->n_changes) p->changed = true;
    return AN_OK;
}
