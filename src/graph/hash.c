/* hash.c: what a node computes, as a number. In: nodes.  Out: hashes; equal nodes have equal ones. */
#include "graph/graph.h"

enum { EDGE = 256 }; /* bytes of a constant that are hashed at either end */

bool graph_may_share(op_id op)
{
    return op != OP_INPUT && op != OP_OPAQUE && op != OP_RANDOM_UNIFORM && op != OP_READ_STATE && !op_has_effect(op);
}

/* maximum and minimum are not here: of +0 and -0 either may win. */
bool graph_commutes(op_id op) { return op == OP_ADD || op == OP_MUL || op == OP_EQUAL || op == OP_NOT_EQUAL; }

bool graph_const_bytes(const graph *g, const node *n, size_t *bytes)
{
    const ttype *t = graph_type(g, n->out);
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

static uint64_t hash_const(const graph *g, const node *n, uint64_t h)
{
    size_t bytes;
    if (graph_const_bytes(g, n, &bytes)) {
        const unsigned char *p = n->cst->data;
        h = hash_bytes(p, MIN(bytes, (size_t)EDGE), h);
        return hash_bytes(p + bytes - MIN(bytes, (size_t)EDGE), MIN(bytes, (size_t)EDGE), h);
    }
    if (n->cst->str) return hash_bytes(n->cst->str, strlen(n->cst->str), h);
    if (n->cst->blob_path) h = hash_bytes(n->cst->blob_path, strlen(n->cst->blob_path), h);
    return hash_bytes(&n->cst->blob_offset, sizeof n->cst->blob_offset, h);
}

uint64_t graph_hash_node(const graph *g, const node *n, const uint64_t *number)
{
    const ttype *t = graph_type(g, n->out);
    uint64_t h = hash_bytes(&n->op, sizeof n->op, (uint64_t)t->dt);
    h = hash_bytes(t->sh.d, (size_t)t->sh.rank * sizeof t->sh.d[0], h);
    if (n->op == OP_CONST) return hash_const(g, n, h);
    for (int k = 0; k < n->n_in; k++) {
        const val other = graph_commutes(n->op) ? n->in[1 - k] : n->in[k];
        const uint64_t a = number ? number[n->in[k].i] : n->in[k].i, b = number ? number[other.i] : other.i,
                       first = k ? MAX(a, b) : MIN(a, b), it = graph_commutes(n->op) ? first : a;
        h = hash_bytes(&it, sizeof it, h);
    }
    for (int k = 0; k < n->n_attr; k++) h = hash_attr(&n->attrs[k], h);
    return h;
}

void graph_numbers(const graph *g, uint64_t *number)
{
    number[0] = 0;
    for (size_t i = 1; i < g->nodes.n; i++) {
        const node *n = &g->nodes.at[i];
        const uint64_t h = graph_may_share(n->op) ? graph_hash_node(g, n, number) : hash_bytes(&i, sizeof i, 0);
        for (int k = 0; k < n->n_out; k++) number[n->out.i + (uint32_t)k] = hash_bytes(&k, sizeof k, h);
    }
}
