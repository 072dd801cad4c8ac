/* legal_depth.c: broadcasts along depth, the second axis of five, for a chip that has none. An operand that is 1
 * deep is repeated first, by a product with ones. There two of the axes behind depth are one, so that four are left,
 * and depth stands where channels do. A product with 1 changes no bit. */
#include "pass/pass_int.h"

enum { RANK = 5, DEPTH = 1 };

static bool takes(op_id op) { return !strcmp(op_get(op)->shape_rule, "broadcast"); }

static shape in_five(const shape *s)
{
    shape o = { .rank = RANK };
    for (int i = 0; i < RANK; i++) o.d[i] = i < RANK - s->rank ? 1 : s->d[i - (RANK - s->rank)];
    return o;
}

static bool can(legal *l, const node *n)
{
    bool known = has_elements(&out_type(&l->was, n)->sh) && out_type(&l->was, n)->sh.rank == RANK;
    for (int k = 0; k < n->n_in; k++)
        known = known && has_elements(&in_type(&l->was, n, k)->sh) && dtype_is_float(in_type(&l->was, n, k)->dt);
    return known;
}

static val reshaped(graph *g, val v, const shape *s)
{
    if (!v.i || shape_eq(&graph_type(g, v)->sh, s)) return v;
    return GA(g, RESHAPE, VALS(v), AT_LIST(SHAPE, s->d, s->rank));
}

static val repeated(graph *g, val v, int64_t depth)
{
    if (!v.i) return NO_VAL;
    ttype t = *graph_type(g, v);
    shape s = in_five(&t.sh), deep = s;
    int64_t n;
    if (s.d[DEPTH] == depth || (shape_elems(&s, &n) && n == 1)) return v;
    deep.d[DEPTH] = depth;
    const bool first = s.d[2] <= s.d[4]; /* the shorter of the two axes that can come of it */
    const shape flat = SHAPE(s.d[0], 1, first ? s.d[2] * s.d[3] : s.d[2], first ? s.d[4] : s.d[3] * s.d[4]);
    val ones = graph_fill_const(g, NULL, TTYPE(t.dt, 1, depth, 1, 1), 1);
    return reshaped(g, G(g, MUL, reshaped(g, v, &flat), ones), &deep);
}

static val build(legal *l, const node *n)
{
    graph *g = l->g;
    int64_t depth = l->rw.values[n->out.i].type.sh.d[DEPTH];
    return graph_op_named(g, n->name, n->op,
                          VALS(repeated(g, legal_in(l, n, 0), depth), repeated(g, legal_in(l, n, 1), depth)), n->attrs,
                          n->n_attr);
}

an_status pass_depth_broadcast(graph *g, pass_ctx *c, diag *d)
{
    static const legalizer row = { "depth_broadcast", takes, can, build };
    return legal_run(g, c, &row, d);
}
