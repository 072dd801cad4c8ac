/* ports.c: has a program the ports that a text declares? In: a program from the cache, the module it is said to be
 * compiled from.  Out: yes or no, names, types and extents compared.
 *
 * Callers size and fill surfaces by what their text declares. An entry that is a good program, but of another text,
 * is not to be believed. */
#include <stdlib.h>

#include "device/device_int.h"

static const eport *find_port(const eport *at, size_t n, const char *name)
{
    size_t low = 0, high = n; /* ports are sorted by name */
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int order = strcmp(at[mid].name, name);
        if (!order) return &at[mid];
        if (order < 0) low = mid + 1;
        else high = mid;
    }
    return NULL;
}

/* An extent the text leaves open is whatever was inferred. */
static bool has_type(const program *g, const eport *p, const mil_type *t)
{
    const etensor *e = &g->tensors.at[p->tensor];
    if (t->kind == MT_STATE && t->n_sub == 1) t = t->sub[0];
    if (t->kind != MT_TENSOR || t->dt != e->dt || t->rank != e->rank) return false;
    for (int i = 0; i < t->rank; i++)
        if (t->dim[i] >= 0 && t->dim[i] != e->dim[i]) return false;
    return true;
}

/* The state a statement writes, by name; NULL: it writes none. */
static const char *written_state(const mil_op *op)
{
    static const struct {
        const char *op, *arg;
    } rows[] = { { "write_state", "input" }, { "coreml_update_state", "state" } };
    for (size_t k = 0; k < COUNT(rows); k++)
        for (int i = 0; i < op->n_arg && !strcmp(op->op, rows[k].op); i++)
            if (!strcmp(op->arg[i].name, rows[k].arg) && op->arg[i].n == 1) return op->arg[i].item[0].ref;
    return NULL;
}

static const mil_var *find_input(const mil_block *f, const char *name)
{
    for (int i = 0; i < f->n_in; i++)
        if (!strcmp(f->in[i].name, name)) return &f->in[i];
    return NULL;
}

static bool inputs_match(const program *g, const mil_block *f)
{
    if (g->inputs.n != (size_t)f->n_in) return false;
    for (int i = 0; i < f->n_in; i++) {
        const eport *p = find_port(g->inputs.at, g->inputs.n, f->in[i].name);
        if (!p || !has_type(g, p, f->in[i].type)) return false;
    }
    return true;
}

/* Which ports the text returns or writes as state. false: one of them is missing. */
static bool mark_wanted(const program *g, const mil_block *f, bool *wanted)
{
    for (int i = 0; i < f->n_out; i++) {
        const eport *p = f->out[i].ref ? find_port(g->outputs.at, g->outputs.n, f->out[i].ref) : NULL;
        if (!p) return false;
        wanted[p - g->outputs.at] = true;
    }
    for (size_t i = 0; i < f->n_op; i++) {
        const char *state = written_state(&f->op[i]);
        if (!state || !find_input(f, state)) continue;
        const eport *p = find_port(g->outputs.at, g->outputs.n, state);
        if (!p) return false;
        wanted[p - g->outputs.at] = true;
    }
    return true;
}

static bool vars_match(const program *g, const mil_var *v, int n, const bool *wanted, size_t *seen)
{
    for (int i = 0; i < n; i++) {
        const eport *p = find_port(g->outputs.at, g->outputs.n, v[i].name);
        if (!p) continue;
        if (!wanted[p - g->outputs.at] || !has_type(g, p, v[i].type)) return false;
        ++*seen;
    }
    return true;
}

/* Names are defined once in a text, so every port is seen once: as a parameter or as a statement's result. */
static bool outputs_match(const program *g, const mil_block *f)
{
    size_t n = g->outputs.n, seen = 0;
    bool *wanted = calloc(n + 1, sizeof *wanted);
    bool ok = wanted && mark_wanted(g, f, wanted) && vars_match(g, f->in, f->n_in, wanted, &seen);
    for (size_t i = 0; ok && i < f->n_op; i++) ok = vars_match(g, f->op[i].out, f->op[i].n_out, wanted, &seen);
    free(wanted);
    return ok && seen == n;
}

bool ports_match(const program *g, const mil_module *m)
{
    const mil_block *f = mil_main(m);
    return f && inputs_match(g, f) && outputs_match(g, f);
}
