/* legal_mask.c: attention masks the engine honours. The fused attention op ignores its mask, silently, so it is
 * written out: softmax(q k^T / sqrt(E) + mask) v. The scale goes on q: the product then stays further below the
 * output port's ceiling. A boolean mask selects, a float one is added.
 *
 * A mask of -65504 or -inf turns the sum into -inf in fp16; -1e4 hides a position as well (exp(-1e4) is 0 in any
 * type here) and stays finite, so constant masks are cut there. The two agree unless a row hides every position:
 * then -inf has no answer, and the row attends to its largest sums among those cut alike. Where a boolean mask
 * selects, nothing is added: the end of fp16, which no score can reach since products end at half of it. */
#include <math.h>

#include "pass/pass_int.h"

static const double hidden = -1e4, lowest = -65504; /* exact in fp16 */

static bool takes_mask(op_id op) { return op == OP_SDPA || op == OP_ADD; }

static bool is_float_const(const graph *g, val v)
{
    return v.i && graph_const_of(g, v) && dtype_is_float(graph_type(g, v)->dt);
}

static bool reaches_below(const graph *g, val v, double limit)
{
    const node *c = graph_const_of(g, v);
    const ttype *t = graph_type(g, v);
    int64_t n;
    if (!shape_elems(&t->sh, &n)) return false;
    for (int64_t i = 0; i < n; i++)
        if (graph_const_at(c, t, i) < limit) return true;
    return false;
}

/* Cutting a mask keeps the meaning only where a softmax follows and nothing else looks at the sum. */
static bool only_softmax_reads(const graph *g, val v)
{
    size_t n_uses = 0, n_soft = 0;
    for (size_t i = 1; i < g->nodes.n; i++)
        for (int k = 0; k < g->nodes.at[i].n_in; k++)
            if (g->nodes.at[i].in[k].i == v.i) n_uses++, n_soft += g->nodes.at[i].op == OP_SOFTMAX;
    for (size_t o = 0; o < g->outputs.n; o++) n_uses += g->outputs.at[o].v.i == v.i;
    return n_uses && n_uses == n_soft;
}

/* Which operand of an add is the mask to cut; -1: none. */
static int mask_operand(const graph *g, const node *n)
{
    for (int k = 0; k < 2; k++)
        if (is_float_const(g, n->in[k]) && reaches_below(g, n->in[k], hidden)) return k;
    return -1;
}

static bool can_mask(legal *l, const node *n)
{
    if (n->op == OP_SDPA) return true;
    return mask_operand(&l->was, n) >= 0 && only_softmax_reads(&l->was, n->out);
}

/* A constant of g with nothing below `hidden`; the constant itself when it is so already. */
static val cut(graph *g, val mask)
{
    if (!mask.i || !reaches_below(g, mask, hidden)) return mask;
    const node *c = graph_const_of(g, mask);
    ttype t = *graph_type(g, mask);
    size_t bytes;
    int64_t n;
    if (!shape_elems(&t.sh, &n) || !shape_bytes(&t, &bytes))
        return graph_fail(g, AN_BUG, "mask %s has no size", c->name), NO_VAL;
    void *p = arena_take(&g->mem, bytes, 1, 64);
    if (!p) return graph_fail(g, AN_NOMEM, "out of memory"), NO_VAL;
    for (int64_t i = 0; i < n; i++) {
        double x = graph_const_at(c, &t, i);
        dtype_store(t.dt, p, i, x < hidden ? hidden : x);
    }
    return graph_const_view(g, NULL, t, p);
}

static val build_add(legal *l, const node *n)
{
    graph *g = l->g;
    int at = mask_operand(&l->was, n);
    val in[2] = { legal_in(l, n, 0), legal_in(l, n, 1) };
    in[at] = cut(g, in[at]);
    return graph_op_named(g, n->name, OP_ADD, in, 2, NULL, 0);
}

static val build(legal *l, const node *n)
{
    if (n->op == OP_ADD) return build_add(l, n);
    graph *g = l->g;
    val q = legal_in(l, n, 0), k = legal_in(l, n, 1), v = legal_in(l, n, 2), mask = legal_in(l, n, 3);
    if (!q.i) return NO_VAL;
    const ttype *t = graph_type(g, q);
    dtype dt = t->dt;
    double scale = 1 / sqrt((double)t->sh.d[t->sh.rank - 1]);
    val score = GA(g, MATMUL, VALS(G(g, MUL, q, graph_scalar(g, dt, scale)), k), AT_B(TRANSPOSE_Y, true));
    if (mask.i && graph_type(g, mask)->dt == DT_BOOL) score = G(g, SELECT, mask, score, graph_scalar(g, dt, lowest));
    else if (mask.i) score = G(g, ADD, score, is_float_const(g, mask) ? cut(g, mask) : mask);
    val p = GA(g, SOFTMAX, VALS(score), AT_I(AXIS, -1));
    return graph_op_named(g, n->name, OP_MATMUL, VALS(p, v), NULL, 0);
}

an_status pass_causal_mask(graph *g, pass_ctx *c, diag *d)
{
    static const legalizer row = { "causal_mask", takes_mask, can_mask, build };
    return legal_run(g, c, &row, d);
}
