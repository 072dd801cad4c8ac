/* cse.c: operations that compute the same thing are computed once. Two nodes are equal when op, attributes, operands
 * and result types are; constants when type and bytes are. The builder keeps attributes in table order with defaults
 * left out, so equal meaning is equal lists. Port names are untouched. */
#include "pass/pass_int.h"

typedef struct {
    uint32_t *slot; /* node index, 0: empty */
    uint64_t *hash;
    size_t cap;
} table;

enum { EDGE = 256 }; /* bytes of a constant that are hashed at either end; equality compares all of them */

static bool may_merge(op_id op)
{
    return op != OP_INPUT && op != OP_OPAQUE && op != OP_RANDOM_UNIFORM && op != OP_READ_STATE && !op_has_effect(op);
}

/* Operands may be swapped without a bit changing. maximum and minimum are not here: of +0 and -0 either may win. */
static bool commutes(op_id op) { return op == OP_ADD || op == OP_MUL || op == OP_EQUAL || op == OP_NOT_EQUAL; }

static bool const_bytes(const graph *g, const node *n, size_t *bytes)
{
    const ttype *t = out_type(g, n);
    return n->cst->data && t->dt != DT_STRING && shape_bytes(t, bytes);
}

static uint64_t hash_attr(const attr *a, uint64_t h)
{
    h = hash_bytes(&a->id, sizeof a->id, h);
    switch (a->kind) {
    case ATTR_STR: return hash_bytes(a->u.s, strlen(a->u.s), h);
    case ATTR_FLOAT: return hash_bytes(&a->u.f, sizeof a->u.f, h);
    case ATTR_INTS:
    case ATTR_BOOLS: return hash_bytes(a->u.is, (size_t)a->n * sizeof *a->u.is, h);
    default: return hash_bytes(&a->u.i, sizeof a->u.i, h);
    }
}

static uint64_t hash_node(const graph *g, const node *n)
{
    const ttype *t = out_type(g, n);
    uint64_t h = hash_bytes(&n->op, sizeof n->op, (uint64_t)t->dt);
    h = hash_bytes(t->sh.d, (size_t)t->sh.rank * sizeof t->sh.d[0], h);
    if (n->op == OP_CONST) {
        size_t bytes;
        if (const_bytes(g, n, &bytes)) {
            const unsigned char *p = n->cst->data;
            h = hash_bytes(p, MIN(bytes, (size_t)EDGE), h);
            return hash_bytes(p + bytes - MIN(bytes, (size_t)EDGE), MIN(bytes, (size_t)EDGE), h);
        }
        if (n->cst->str) return hash_bytes(n->cst->str, strlen(n->cst->str), h);
        if (n->cst->blob_path) h = hash_bytes(n->cst->blob_path, strlen(n->cst->blob_path), h);
        return hash_bytes(&n->cst->blob_offset, sizeof n->cst->blob_offset, h);
    }
    if (commutes(n->op)) {
        uint32_t pair[2] = { MIN(n->in[0].i, n->in[1].i), MAX(n->in[0].i, n->in[1].i) };
        h = hash_bytes(pair, sizeof pair, h);
    } else
        h = hash_bytes(n->in, (size_t)n->n_in * sizeof *n->in, h);
    for (int k = 0; k < n->n_attr; k++) h = hash_attr(&n->attrs[k], h);
    return h;
}

static bool same_const(const graph *g, const node *a, const node *b)
{
    const const_data *x = a->cst, *y = b->cst;
    size_t bytes;
    if (x->data && y->data)
        return const_bytes(g, a, &bytes) && (x->data == y->data || !memcmp(x->data, y->data, bytes));
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
    bool swapped = commutes(a->op) && a->in[0].i == b->in[1].i && a->in[1].i == b->in[0].i;
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
    if (!may_merge(n->op)) return AN_OK;
    uint64_t h = hash_node(g, n);
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
