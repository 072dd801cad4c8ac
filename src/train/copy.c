/* copy.c: the user's graph again, node by node, as the front of a program that trains it. In: a graph, the values
 * wanted of it.  Out: the same nodes in another graph, inputs as ports, floats in the device's type. A port has a
 * name of ours (any name may stand in the user's graph, few are legal in every text); the value behind it keeps the
 * user's name, so messages speak of what the user wrote. */
#include <stdlib.h>

#include "train/train_int.h"

an_status copy_begin(copy *c, const graph *from, const char *title, dtype floats, diag *d)
{
    *c = (copy){
        .from = from, .floats = floats, .d = d, .g = graph_new(title, 0), .map = calloc(from->values.n + 1, sizeof(val))
    };
    if (c->g && c->map) return AN_OK;
    copy_end(c);
    return diag_nomem(d);
}

void copy_end(copy *c)
{
    graph_free(c->g);
    free(c->map);
    *c = (copy){ 0 };
}

/* What a float of that type becomes. */
static dtype copy_dt(const copy *c, dtype dt) { return c->floats != DT_NONE && dtype_is_float(dt) ? c->floats : dt; }

val copy_input(copy *c, val v, const char *name, dtype as)
{
    const value *from = graph_value(c->from, v);
    ttype t = from->type;
    dtype own = copy_dt(c, t.dt);
    t.dt = as;
    val p = graph_input(c->g, name, t);
    if (own == as) c->map[v.i] = graph_op_named(c->g, from->name, OP_IDENTITY, &p, 1, NULL, 0);
    else c->map[v.i] = graph_op_named(c->g, from->name, OP_CAST, &p, 1, &AT_S(DTYPE, dtype_name(own)), 1);
    return p;
}

void copy_need(const graph *g, const val *root, size_t n, bool *need)
{
    for (size_t i = 0; i < n; i++) need[root[i].i] = true;
    for (size_t i = g->nodes.n; i-- > 1;) {
        const node *k = &g->nodes.at[i];
        bool on = false;
        for (int j = 0; j < k->n_out && !on; j++) on = need[k->out.i + (uint32_t)j];
        for (int j = 0; j < k->n_in && on; j++) need[k->in[j].i] = true;
    }
}

static val copy_const(copy *c, const node *n)
{
    ttype t = *graph_type(c->from, n->out), as = t;
    as.dt = copy_dt(c, t.dt);
    if (t.dt == DT_STRING) return graph_const_str(c->g, n->name, n->cst->str);
    if (!n->cst->data) {
        graph_fail(c->g, AN_INPUT, "constant %s has no content: its weight file %s was not read", n->name,
                   n->cst->blob_path ? n->cst->blob_path : "");
        return NO_VAL;
    }
    if (as.dt == t.dt) return graph_const_view(c->g, n->name, t, n->cst->data);
    int64_t count;
    double *x = shape_elems(&t.sh, &count) ? malloc((size_t)MAX(count, 1) * sizeof *x) : NULL;
    if (!x) {
        graph_fail(c->g, AN_NOMEM, "out of memory");
        return NO_VAL;
    }
    for (int64_t i = 0; i < count; i++) x[i] = dtype_load(t.dt, n->cst->data, i);
    val v = graph_const_f64(c->g, n->name, as, x);
    free(x);
    return v;
}

/* Attributes that name an element type follow it. */
static attr retyped(const copy *c, attr a)
{
    if (a.id != A_DTYPE || a.kind != ATTR_STR) return a;
    dtype dt = dtype_from_name(a.u.s, strlen(a.u.s));
    if (dt != DT_NONE) a.u.s = dtype_name(copy_dt(c, dt));
    return a;
}

static void copy_node(copy *c, const node *n)
{
    val in[64], *ins = in, out = NO_VAL;
    attr at[OP_MAX_ATTRS];
    if ((size_t)n->n_in > COUNT(in) && !(ins = TAKE(&c->g->mem, val, (size_t)n->n_in))) {
        graph_fail(c->g, AN_NOMEM, "out of memory");
        return;
    }
    for (int k = 0; k < n->n_in; k++) ins[k] = c->map[n->in[k].i];
    for (int k = 0; k < n->n_attr; k++) at[k] = retyped(c, n->attrs[k]);
    c->g->here = n->at;
    if (c->instead && n->n_out == 1 && (out = c->instead(c, n, c->user)).i) {
        c->map[n->out.i] = out;
        return;
    }
    switch (n->op) {
    case OP_INPUT: return; /* given by the caller, or not needed */
    case OP_CONST: out = copy_const(c, n); break;
    case OP_READ_STATE:
    case OP_WRITE_STATE:
        graph_fail(c->g, AN_UNSUPPORTED, "%s %s: a graph that is trained cannot have states of its own", n->mil,
                   n->name);
        return;
    case OP_OPAQUE:
        graph_fail(c->g, AN_UNSUPPORTED, "%s %s is not in the operation table, so it cannot be trained through", n->mil,
                   n->name);
        return;
    default: out = graph_op_named(c->g, n->name, n->op, ins, n->n_in, at, n->n_attr);
    }
    for (int k = 0; k < n->n_out && out.i; k++) {
        c->map[n->out.i + (uint32_t)k] = graph_out(out, k);
        if (k) graph_rename(c->g, graph_out(out, k), graph_value(c->from, graph_out(n->out, k))->name);
    }
}

an_status copy_nodes(copy *c, const val *root, size_t n)
{
    bool *need = calloc(c->from->values.n + 1, sizeof *need);
    if (!need) return diag_nomem(c->d);
    copy_need(c->from, root, n, need);
    for (size_t i = 1; i < c->from->nodes.n && !c->g->err.st; i++) {
        const node *k = &c->from->nodes.at[i];
        bool on = false;
        for (int j = 0; j < k->n_out && !on; j++) on = need[k->out.i + (uint32_t)j];
        if (on) copy_node(c, k);
    }
    free(need);
    c->g->here = NOWHERE;
    if (c->g->err.st) return diag_fail(c->d, c->g->err.st, c->g->err.at, "%s", c->g->err.msg);
    return AN_OK;
}
