/* legal_matmul.c: a product with a constant matrix becomes a 1x1 convolution on [1, K, 1, S], which the engine runs
 * about three times as fast as the matmul.
 *
 *   x @ W      x [.., S, K], W [K, N]   rows of x are columns of the image: batch axes join S
 *   linear     x [.., S, K], W [N, K]   the same with W transposed
 *   W @ y      W [N, K], y [.., K, S]   y is the image; batch axes must be 1
 * transpose flags swap the axes of their operand. The image is made by a reshape and a transpose and taken apart the
 * same way; where the neighbours did the same, the transpose pass cancels both.
 *
 * The weight must be a constant [N, K, 1, 1]: with its bytes known here it is transposed now if need be; a weight
 * known only by its file reference is taken when it lies as [N, K] already, for then the bytes stay. Not rewritten
 * where the target would refuse the convolution. */
#include "pass/pass_int.h"

typedef struct {
    int w_at, x_at;    /* operand positions */
    bool w_swap;       /* weight lies as [K, N] */
    bool x_is_image;   /* activation lies as [.., K, S]: no transpose needed, no batch allowed */
    bool out_is_image; /* result is [.., N, S] */
    int64_t k, n, s;   /* s: batch axes joined */
} plan;

static bool takes(op_id op) { return op == OP_MATMUL || op == OP_LINEAR; }

/* A matrix: every axis but the last two has one element. */
static bool is_matrix(const shape *sh)
{
    if (sh->rank < 2) return false;
    for (int k = 0; k < sh->rank - 2; k++)
        if (sh->d[k] != 1) return false;
    return true;
}

static bool plan_for(const graph *g, const node *n, plan *p)
{
    bool tx = false, ty = true; /* linear is x @ W^T */
    if (n->op == OP_MATMUL) {
        tx = attr_bool(n->op, n->attrs, n->n_attr, A_TRANSPOSE_X);
        ty = attr_bool(n->op, n->attrs, n->n_attr, A_TRANSPOSE_Y);
    } else if (n->in[2].i)
        return false; /* the bias goes first, as an add */
    bool c0 = graph_maker(g, n->in[0])->op == OP_CONST, c1 = graph_maker(g, n->in[1])->op == OP_CONST;
    if (c0 == c1) return false;
    *p = c1 ? (plan){ .w_at = 1, .x_at = 0, .w_swap = !ty, .x_is_image = tx }
            : (plan){ .w_at = 0, .x_at = 1, .w_swap = tx, .x_is_image = !ty, .out_is_image = true };
    const shape *w = &in_type(g, n, p->w_at)->sh, *x = &in_type(g, n, p->x_at)->sh, *o = &out_type(g, n)->sh;
    if (!is_matrix(w) || x->rank < 2 || !shape_known(x) || !shape_known(o)) return false;
    /* Joining batch axes keeps rows of x together only when S is not the last axis, in the operand and in the
     * result. */
    if ((p->x_is_image || p->out_is_image) && !is_matrix(x)) return false;
    int64_t a = w->d[w->rank - 2], b = w->d[w->rank - 1], elems;
    p->n = p->w_swap ? b : a;
    p->k = p->w_swap ? a : b;
    if (!shape_elems(x, &elems) || elems == 0) return false;
    p->s = elems / p->k;
    return graph_const_of(g, n->in[p->w_at]) || !p->w_swap;
}

static bool can(legal *l, const node *n)
{
    plan p;
    if (!plan_for(&l->was, n, &p)) return false;
    dtype t = out_type(&l->was, n)->dt;
    operand in[3] = {
        { .type = TTYPE(t, 1, p.k, 1, p.s), .present = true, .range = { -1, 1 }, .from = OP_RESHAPE, .n_uses = 1, .value = n->in[p.x_at].i },
        { .type = TTYPE(t, p.n, p.k, 1, 1), .present = true, .is_const = true, .range = { -1, 1 }, .from = OP_CONST, .n_uses = 1,
          .value = n->in[p.w_at].i },
    };
    ttype out = TTYPE(t, 1, p.n, 1, p.s);
    bool is_out = false, refused;
    op_inst conv = { .op = OP_CONV, .mil = op_get(OP_CONV)->mil, .name = n->name, .at = n->at, .n_in = 3, .n_out = 1,
                     .in = in, .out = &out, .out_is_output = &is_out };
    return !is_refused(l->chip, &conv, l->mem, &refused, l->d) && !refused;
}

static val build(legal *l, const node *n)
{
    graph *g = l->g;
    plan p;
    if (!plan_for(&l->was, n, &p)) return graph_fail(g, AN_BUG, "matmul_conv: no plan for %s", n->name), NO_VAL;
    val x = legal_in(l, n, p.x_at), w = legal_in(l, n, p.w_at);
    w = p.w_swap ? const_transposed(g, const_reshaped(g, w, SHAPE(p.k, p.n, 1, 1)), (const int[]){ 1, 0, 2, 3 })
                 : const_reshaped(g, w, SHAPE(p.n, p.k, 1, 1));
    val image;
    if (p.x_is_image) image = GA(g, RESHAPE, VALS(x), AT_IS(SHAPE, 1, p.k, 1, p.s));
    else {
        val rows = GA(g, RESHAPE, VALS(x), AT_IS(SHAPE, 1, 1, p.s, p.k));
        image = GA(g, TRANSPOSE, VALS(rows), AT_IS(PERM, 0, 3, 1, 2));
    }
    val y = GA(g, CONV, VALS(image, w, NO_VAL), AT_S(PAD_TYPE, "valid"));
    if (!p.out_is_image) y = GA(g, TRANSPOSE, VALS(y), AT_IS(PERM, 0, 2, 3, 1));
    const shape *o = &out_type(&l->was, n)->sh;
    const attr shape_attr = AT_LIST(SHAPE, o->d, o->rank);
    return graph_op_named(g, n->name, OP_RESHAPE, VALS(y), &shape_attr, 1);
}

an_status pass_matmul_conv(graph *g, pass_ctx *c, diag *d)
{
    static const legalizer row = { "matmul_conv", takes, can, build };
    return legal_run(g, c, &row, d);
}
