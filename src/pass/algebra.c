/* algebra.c: clean-up that gives the same bits in every arithmetic, fp16 with its signed zeros, infinities and NaNs
 * included. Therefore no x * 0, no x - x, no reassociation, and x + 0 only where x cannot be -0: (-0) + 0 is +0. */
#include "pass/pass_int.h"

/* What the table's `lhs op c` rows need of the constant; the other operand is the result. */
typedef struct {
    op_id op;
    double c;
    bool either_side; /* the constant may also stand on the left */
    enum { ANY_TYPE, FLOAT_ONLY, INT_ONLY } type;
} neutral;

static const neutral neutrals[] = {
    { OP_ADD, -0.0, true, FLOAT_ONLY },
    { OP_ADD, 0.0, true, INT_ONLY },
    { OP_SUB, 0.0, false, ANY_TYPE },
    { OP_MUL, 1.0, true, ANY_TYPE },
    { OP_REAL_DIV, 1.0, false, ANY_TYPE },
    { OP_FLOOR_DIV, 1.0, false, INT_ONLY },
    { OP_POW, 1.0, false, ANY_TYPE },
};

static bool type_fits(const neutral *r, dtype t)
{
    return r->type == ANY_TYPE || (r->type == FLOAT_ONLY) == dtype_is_float(t);
}

/* Results that are never -0, so that adding +0 changes nothing. */
static bool never_minus_zero(const graph *g, val v)
{
    const node *n = graph_maker(g, v);
    switch (n->op) {
    case OP_ABS:
    case OP_SQUARE:
    case OP_EXP:
    case OP_EXP2:
    case OP_SIGMOID:
    case OP_SOFTMAX: return true;
    case OP_ADD: return const_is(g, n->in[0], 0.0) || const_is(g, n->in[1], 0.0);
    default: return false;
    }
}

static val drop_neutral(const graph *g, const node *n)
{
    for (size_t r = 0; r < COUNT(neutrals); r++) {
        const neutral *x = &neutrals[r];
        if (x->op != n->op || !type_fits(x, out_type(g, n)->dt)) continue;
        if (const_is(g, n->in[1], x->c)) return n->in[0];
        if (x->either_side && const_is(g, n->in[0], x->c)) return n->in[1];
    }
    if (n->op == OP_ADD)
        for (int k = 0; k < 2; k++)
            if (never_minus_zero(g, n->in[k]) && const_is(g, n->in[1 - k], 0.0)) return n->in[k];
    return NO_VAL;
}

/* v is -1 * x: its x. */
static val negated(const graph *g, val v)
{
    const node *n = graph_maker(g, v);
    for (int k = 0; n->op == OP_MUL && k < 2; k++)
        if (const_is(g, n->in[1 - k], -1.0) && ttype_eq(in_type(g, n, k), out_type(g, n))) return n->in[k];
    return NO_VAL;
}

static bool makes_integers(op_id op) { return op == OP_CEIL || op == OP_FLOOR || op == OP_ROUND; }

/* f(f(x)) == f(x). */
static bool is_idempotent_pair(const node *outer, const node *inner)
{
    switch (outer->op) {
    case OP_RELU:
    case OP_RELU6:
    case OP_ABS:
    case OP_SIGN: return inner->op == outer->op;
    case OP_CEIL:
    case OP_FLOOR:
    case OP_ROUND: return makes_integers(inner->op);
    case OP_CLIP:
        return inner->op == OP_CLIP && outer->n_attr == inner->n_attr && attr_eq(&outer->attrs[0], &inner->attrs[0]) &&
               attr_eq(&outer->attrs[1], &inner->attrs[1]);
    default: return false;
    }
}

static val choose(const graph *g, const node *n)
{
    double c;
    if (n->in[1].i == n->in[2].i) return n->in[1];
    if (graph_const_scalar(g, n->in[0], &c)) return n->in[c != 0 ? 1 : 2];
    return NO_VAL;
}

static bool slice_begin(const graph *g, const node *n, int64_t *begin)
{
    int rank = in_type(g, n, 0)->sh.rank;
    if (n->op != OP_SLICE_BY_SIZE || !node_list(n, A_BEGIN, rank, begin)) return false;
    for (int k = 0; k < rank; k++)
        if (begin[k] < 0) return false;
    return true;
}

/* A slice that is exactly one operand of a concat. */
static val slice_of_concat(const graph *g, const node *n)
{
    const node *m = graph_maker(g, n->in[0]);
    int64_t begin[MAX_RANK];
    int axis, rank = out_type(g, n)->sh.rank;
    if (m->op != OP_CONCAT || attr_bool(m->op, m->attrs, m->n_attr, A_INTERLEAVE) || !slice_begin(g, n, begin) ||
        !axis_norm(attr_int(m->op, m->attrs, m->n_attr, A_AXIS), rank, &axis))
        return NO_VAL;
    for (int k = 0; k < rank; k++)
        if (k != axis && begin[k]) return NO_VAL;
    int64_t at = 0;
    for (int k = 0; k < m->n_in; k++) {
        if (at == begin[axis] && ttype_eq(in_type(g, m, k), out_type(g, n))) return m->in[k];
        at += in_type(g, m, k)->sh.d[axis];
    }
    return NO_VAL;
}

static an_status slice_of_slice(sweep *s, uint32_t i, diag *d)
{
    graph *g = s->g;
    node *n = &g->nodes.at[i];
    const node *m = graph_maker(g, n->in[0]);
    int64_t a[MAX_RANK], b[MAX_RANK];
    int rank = out_type(g, n)->sh.rank;
    if (!slice_begin(g, n, a) || !slice_begin(g, m, b) || !shape_known(&out_type(g, n)->sh)) return AN_OK;
    attr *at = TAKE(&g->mem, attr, 2);
    int64_t *lists = TAKE(&g->mem, int64_t, (size_t)rank * 2);
    if (!at || !lists) return diag_nomem(d);
    for (int k = 0; k < rank; k++) lists[k] = a[k] + b[k], lists[rank + k] = out_type(g, n)->sh.d[k];
    at[0] = (attr){ .id = A_BEGIN, .kind = ATTR_INTS, .n = rank, .u.is = lists };
    at[1] = (attr){ .id = A_SIZE, .kind = ATTR_INTS, .n = rank, .u.is = lists + rank };
    n->attrs = at;
    n->n_attr = 2;
    n->in[0] = m->in[0];
    s->c->n_changes++;
    return AN_OK;
}

static an_status visit(sweep *s, uint32_t i, diag *d)
{
    graph *g = s->g;
    node *n = &g->nodes.at[i];
    val same = NO_VAL, x;
    switch (n->op) {
    case OP_ADD:
    case OP_SUB:
    case OP_REAL_DIV:
    case OP_FLOOR_DIV:
    case OP_POW: same = drop_neutral(g, n); break;
    case OP_MUL:
        same = drop_neutral(g, n);
        if (!same.i && (x = negated(g, n->out)).i) same = negated(g, x); /* -(-x) */
        break;
    case OP_MAXIMUM:
    case OP_MINIMUM:
        if (n->in[0].i == n->in[1].i) same = n->in[0];
        break;
    case OP_SELECT: same = choose(g, n); break;
    case OP_LOGICAL_NOT: {
        const node *m = graph_maker(g, n->in[0]);
        if (m->op == OP_LOGICAL_NOT && out_type(g, n)->dt == DT_BOOL) same = m->in[0];
        break;
    }
    case OP_ABS:
    case OP_SQUARE: /* both forget the sign */
        if ((x = negated(g, n->in[0])).i) n->in[0] = x, s->c->n_changes++;
        if (n->op == OP_SQUARE) break;
        /* fall through */
    case OP_RELU:
    case OP_RELU6:
    case OP_SIGN:
    case OP_CEIL:
    case OP_FLOOR:
    case OP_ROUND:
    case OP_CLIP:
        if (is_idempotent_pair(n, graph_maker(g, n->in[0]))) same = n->in[0];
        break;
    case OP_SLICE_BY_SIZE:
        same = slice_of_concat(g, n);
        if (!same.i && graph_maker(g, n->in[0])->op == OP_SLICE_BY_SIZE) return slice_of_slice(s, i, d);
        break;
    case OP_RESHAPE:
    case OP_EXPAND_DIMS:
    case OP_SQUEEZE:
    case OP_FLATTEN2D:
        if (op_is_reshape(graph_maker(g, n->in[0])->op) && has_elements(&out_type(g, n)->sh)) {
            /* The shape is spelled out: a 0 or -1 in the old list would read the wrong tensor now. */
            x = graph_maker(g, n->in[0])->in[0];
            return sweep_set_unary(s, i, OP_RESHAPE, x, A_SHAPE, out_type(g, n)->sh.d, out_type(g, n)->sh.rank, d);
        }
        break;
    default: break;
    }
    if (same.i) sweep_forward(s, n->out, same);
    return AN_OK;
}

an_status pass_algebra(graph *g, pass_ctx *c, diag *d) { return sweep_run(g, c, visit, NULL, d); }
