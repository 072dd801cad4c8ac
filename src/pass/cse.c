/* cse.c: operations that compute the same thing are computed once. Two nodes are equal when op, attributes, operands
 * and result types are; constants when type and bytes are. The builder keeps attributes in table order with defaults
 * left out, so equal meaning is equal lists. Port names are untouched. */
#include "pass/pass_int.h"

typedef struct {
    uint32_t *slot; /* node index, 0: empty */
    uint64_t *hash;
    size_t cap;
} table;

static bool same_const(const graph *g, const node *a, const node *b)
{
    const const_data *x = a->cst, *y = b->cst;
    size_t bytes;
    if (x->data && y->data)
        return graph_const_bytes(g, a, &bytes) && (x->data == y->data || !memcmp(x->data, y->data, bytes));
    if (x->data || y->data) return false;
    if (x->str || y->str) return x->str && y->str && !strcmp(x->str, y->str);
    return x->blob_path && y->blob_path && x->blob_offset == y->blob_offset && !strcmp(x->blob_path, y->blob_path);
}

static bool same_node(const graph *g, const node *a, const node *b)
{
    if (a->op != b->op || a->n_in != b->n_in || a->n_out != b->n_out || a->n_attr != b->n_attr || a->flags != b->flags)
        return false;
    if (!ttype_eq(out_type(g, a), out_type(g, b))) return false;
    if (a->op == OP_CONST) return same_const(g, a, b);
    bool swapped = graph_commutes(a->op) && a->in[0].i == b->in[1].i && a->in[1].i == b->in[0].i;
    for (int k = 0; k < a->n_in; k++)
        if (a->in[k].i != b->in[k].i && !swapped) return false;
    for (int k = 0; k < a->n_attr; k++)
        if (!attr_eq(&a->attrs[k], &b->attrs[k])) return false;
    return true;
}

static an_status visit(sweep *s, uint32_t i, diag *d)
{
    (void)d;
    const graph *g = s->g;
    const node *n = &g->nodes.at[i];
    table *t = s->user;
    if (!graph_may_share(n->op)) return AN_OK;
    uint64_t h = graph_hash_node(g, n, NULL);
    size_t at = (size_t)h & (t->cap - 1);
    for (; t->slot[at]; at = (at + 1) & (t->cap - 1)) {
        const node *m = &g->nodes.at[t->slot[at]];
        if (t->hash[at] != h || !same_node(g, m, n)) continue;
        for (int k = 0; k < n->n_out; k++) sweep_forward(s, graph_out(n->out, k), graph_out(m->out, k));
        return AN_OK;
    }
    t->slot[at] = i;
    t->hash[at] = h;
    return AN_OK;
}

an_status pass_cse(graph *g, pass_ctx *c, diag *d)
{
    table t = { .cap = 16 };
    while (t.cap < g->nodes.n * 2) t.cap *= 2;
    t.slot = TAKE(&c->scratch, uint32_t, t.cap);
    t.hash = TAKE(&c->scratch, uint64_t, t.cap);
    if (!t.slot || !t.hash) return diag_nomem(d);
    return sweep_run(g, c, visit, &t, d);
}
