/* identity.c: operations that give back their operand. Each row says when; a row without a question needs only that the
 * result has the operand's type (a reshape to the same shape, a cast to the same type). */
#include "pass/pass_int.h"

static bool yes(const graph *g, const node *n) { return (void)g, (void)n, true; }

static bool perm_is_identity(const graph *g, const node *n)
{
    int64_t p[MAX_RANK];
    int rank = in_type(g, n, 0)->sh.rank;
    if (!node_list(n, A_PERM, rank, p)) return false;
    for (int k = 0; k < rank; k++)
        if ((p[k] < 0 ? p[k] + rank : p[k]) != k) return false;
    return true;
}

/* Same extent with steps of one takes everything; a step of -1 would too, backwards. */
static bool steps_are_one(const graph *g, const node *n)
{
    int64_t s[MAX_RANK];
    int rank = in_type(g, n, 0)->sh.rank;
    if (!node_list(n, A_STRIDE, rank, s)) return false;
    for (int k = 0; k < rank; k++)
        if (s[k] != 1) return false;
    return true;
}

static bool list_is(const node *n, attr_id id, int64_t want)
{
    const attr *a = attr_get(n->attrs, n->n_attr, id);
    for (int k = 0; a && k < a->n; k++)
        if (a->u.is[k] != want) return false;
    return true; /* an absent list is its default, which is this value in every row that asks */
}

static bool pads_nothing(const graph *g, const node *n) { return (void)g, list_is(n, A_PAD, 0); }
static bool repeats_once(const graph *g, const node *n) { return (void)g, list_is(n, A_REPS, 1); }
static bool crops_nothing(const graph *g, const node *n)
{
    return (void)g, list_is(n, A_CROP_HEIGHT, 0) && list_is(n, A_CROP_WIDTH, 0);
}
static bool one_operand(const graph *g, const node *n) { return (void)g, n->n_in == 1; }
static bool one_result(const graph *g, const node *n) { return (void)g, n->n_out == 1; }
static bool window_of_one(const graph *g, const node *n)
{
    return (void)g, list_is(n, A_KERNEL_SIZES, 1) && list_is(n, A_STRIDES, 1) && list_is(n, A_PAD, 0);
}

/* Every axis the op works along has one element. */
static bool axes_are_single(const graph *g, const node *n)
{
    const shape *sh = &in_type(g, n, 0)->sh;
    const attr *a = attr_get(n->attrs, n->n_attr, A_AXES);
    for (int k = 0; k < (a ? a->n : sh->rank); k++) {
        int axis = k;
        if (a && !axis_norm(a->u.is[k], sh->rank, &axis)) return false;
        if (sh->d[axis] != 1) return false;
    }
    return true;
}

static const struct {
    op_id op;
    bool (*when)(const graph *g, const node *n);
} rows[] = {
    { OP_IDENTITY, yes },
    { OP_CAST, yes },
    { OP_RESHAPE, yes },
    { OP_RESHAPE_LIKE, yes },
    { OP_EXPAND_DIMS, yes },
    { OP_SQUEEZE, yes },
    { OP_FLATTEN2D, yes },
    { OP_SLICE_BY_SIZE, yes },
    { OP_DEPTH_TO_SPACE, yes }, /* a factor above one changes the shape of any tensor that has elements */
    { OP_SPACE_TO_DEPTH, yes },
    { OP_PIXEL_SHUFFLE, yes },
    { OP_PIXEL_UNSHUFFLE, yes },
    { OP_TRANSPOSE, perm_is_identity },
    { OP_SLICE_BY_INDEX, steps_are_one },
    { OP_PAD, pads_nothing },
    { OP_TILE, repeats_once },
    { OP_CROP, crops_nothing },
    { OP_CONCAT, one_operand },
    { OP_SPLIT, one_result },
    { OP_REVERSE, axes_are_single },
    { OP_REDUCE_MAX, axes_are_single }, /* sums and averages of one element are 0 + x, which is not x when x is -0 */
    { OP_REDUCE_MIN, axes_are_single },
    { OP_MAX_POOL, window_of_one },
};

static an_status visit(sweep *s, uint32_t i, diag *d)
{
    (void)d;
    const node *n = &s->g->nodes.at[i];
    for (size_t r = 0; r < COUNT(rows); r++) {
        if (rows[r].op != n->op) continue;
        int64_t elems;
        if (shape_elems(&out_type(s->g, n)->sh, &elems) && elems > 0 &&
            ttype_eq(in_type(s->g, n, 0), out_type(s->g, n)) && rows[r].when(s->g, n))
            sweep_forward(s, n->out, n->in[0]);
    }
    return AN_OK;
}

an_status pass_identity(graph *g, pass_ctx *c, diag *d) { return sweep_run(g, c, visit, NULL, d); }
