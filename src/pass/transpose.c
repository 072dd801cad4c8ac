/* transpose.c: transposes that undo each other or only move axes of one element. Two transposes in a row become one
 * with the composed permutation. A chain of transposes and of reshapes that only add or drop axes of one element is
 * a permutation of the longer axes; where that permutation is the identity the elements never moved in memory, and
 * the chain becomes one reshape (or nothing). The chains come from writing matrix products on [1, C, 1, S] tensors:
 * reshape, transpose, product, transpose, reshape. */
#include "pass/pass_int.h"

enum { MAX_CHAIN = 8 }; /* longer ones are met link by link in later rounds */

/* Axes with more than one element, in order. */
static int long_axes(const shape *sh, int *axis)
{
    int n = 0;
    for (int k = 0; k < sh->rank; k++)
        if (sh->d[k] != 1) axis[n++] = k;
    return n;
}

/* order[k]: which long axis of n's operand is the k-th long axis of the value where the walk began. */
static bool step_back(const graph *g, const node *n, int *order, int n_long)
{
    const shape *from = &in_type(g, n, 0)->sh, *to = &out_type(g, n)->sh;
    int a[MAX_RANK], b[MAX_RANK], perm[MAX_RANK];
    if (!shape_known(from) || long_axes(from, a) != n_long || long_axes(to, b) != n_long) return false;
    if (op_is_reshape(n->op)) {
        for (int k = 0; k < n_long; k++)
            if (from->d[a[k]] != to->d[b[k]]) return false;
        return true;
    }
    if (n->op != OP_TRANSPOSE || !perm_of(g, n, perm)) return false;
    for (int k = 0; k < n_long; k++) {
        int src = perm[b[order[k]]], at = 0;
        while (a[at] != src) at++; /* stops: a permutation takes long axes to long axes */
        order[k] = at;
    }
    return true;
}

static an_status visit(sweep *s, uint32_t i, diag *d)
{
    graph *g = s->g;
    const node *n = &g->nodes.at[i];
    if (n->op != OP_TRANSPOSE || !has_elements(&out_type(g, n)->sh)) return AN_OK;
    int axis[MAX_RANK], order[MAX_RANK], n_long = long_axes(&out_type(g, n)->sh, axis);
    for (int k = 0; k < n_long; k++) order[k] = k;
    val best = NO_VAL, v = n->out;
    for (int links = 0; links < MAX_CHAIN; links++) {
        const node *m = graph_maker(g, v);
        if ((m->op != OP_TRANSPOSE && !op_is_reshape(m->op)) || !step_back(g, m, order, n_long)) break;
        v = m->in[0];
        bool unmoved = true;
        for (int k = 0; k < n_long; k++) unmoved = unmoved && order[k] == k;
        if (unmoved) best = v;
    }
    const ttype *t = out_type(g, n);
    if (best.i) {
        if (sweep_forward(s, n->out, best)) return AN_OK;
        return sweep_set_unary(s, i, OP_RESHAPE, best, A_SHAPE, t->sh.d, t->sh.rank, d);
    }
    const node *m = graph_maker(g, n->in[0]);
    int outer[MAX_RANK], inner[MAX_RANK];
    if (m->op != OP_TRANSPOSE || !perm_of(g, n, outer) || !perm_of(g, m, inner)) return AN_OK;
    int64_t both[MAX_RANK];
    for (int k = 0; k < t->sh.rank; k++) both[k] = inner[outer[k]];
    return sweep_set_unary(s, i, OP_TRANSPOSE, m->in[0], A_PERM, both, t->sh.rank, d);
}

an_status pass_transpose(graph *g, pass_ctx *c, diag *d) { return sweep_run(g, c, visit, NULL, d); }
