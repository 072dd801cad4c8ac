/* match_rope.c: rotary positions, as people write them.
 * In: a node about to be selected.  Out: true when it was selected as one turn of pairs of channels.
 *
 *   slices     p [n, pairs, 2, S], or [n, 2, pairs, S] with halves; a and b its two slices along the axis of 2; cos and sin likewise, of
 *              which the first slice is read.  concat(a cos - b sin, b cos + a sin), or with the other signs.
 *   a matrix   x cos + (T x) sin, where T, a constant, makes (-b, a) of each pair (a, b); that with a minus; its gradient,
 *              x cos + T' (x sin); and each times a number, before or after.
 *
 * The instruction rounds as the chain of these steps does, so that it makes no difference who else reads the pieces;
 * but for a number before the turn, which it multiplies by last. */
#include "codegen/codegen_int.h"

typedef struct {
    val of;   /* what is cut */
    int64_t which;
} piece;

/* v is one of the two slices of something along `axis`. */
static bool one_of_two(const cg *c, val v, int axis, piece *p)
{
    const node *m = graph_maker(c->g, v);
    if (m->op != OP_SLICE_BY_SIZE) return false;
    const shape *s = &graph_type(c->g, m->in[0])->sh, *o = &graph_type(c->g, v)->sh;
    const attr *begin = attr_get(m->attrs, m->n_attr, A_BEGIN);
    if (!begin || begin->n != s->rank || o->rank != s->rank || s->d[axis] != 2 || o->d[axis] != 1) return false;
    for (int i = 0; i < s->rank; i++)
        if (i != axis && s->d[i] != o->d[i]) return false;
    *p = (piece){ m->in[0], begin->u.is[axis] };
    return p->which == 0 || p->which == 1;
}

/* v = one slice of x times the first of a table, or the other way round. */
static bool read_product(const cg *c, val v, int axis, piece *x, val *table)
{
    const node *m = graph_maker(c->g, v);
    piece t;
    if (m->op != OP_MUL || !one_of_two(c, m->in[0], axis, x) || !one_of_two(c, m->in[1], axis, &t) || t.which)
        return false;
    *table = t.of;
    return true;
}

/* The four products of a concat's two operands: straight[0] is a cos, across[0] b sin, straight[1] b cos, across[1]
 * a sin. */
static bool read_turn(const cg *c, const node *m, int axis, val *x, val *co, val *si, bool *back)
{
    const node *sum[2];
    piece straight[2], across[2];
    val with[2], by[2];
    for (int k = 0; k < 2; k++) {
        sum[k] = graph_maker(c->g, m->in[k]);
        if (sum[k]->op != OP_ADD && sum[k]->op != OP_SUB) return false;
        if (!read_product(c, sum[k]->in[0], axis, &straight[k], &with[k]) ||
            !read_product(c, sum[k]->in[1], axis, &across[k], &by[k]))
            return false;
        if (straight[k].which != k || across[k].which != 1 - k) return false;
        if (straight[k].of.i != straight[0].of.i || across[k].of.i != straight[0].of.i || with[k].i != with[0].i ||
            by[k].i != by[0].i)
            return false;
    }
    *x = straight[0].of, *co = with[0], *si = by[0], *back = sum[0]->op == OP_ADD;
    return sum[0]->op != sum[1]->op;
}

bool match_rope(cg *c)
{
    const node *m = c->at;
    const shape *o = &cg_out_type(c, 0)->sh;
    int axis;
    val x, co, si;
    bool back;
    if (m->n_in != 2 || o->rank != 4 || at_bool(c, A_INTERLEAVE) || !axis_norm(at_int(c, A_AXIS), o->rank, &axis) ||
        (axis != 1 && axis != 2))
        return false;
    if (!read_turn(c, m, axis, &x, &co, &si, &back) || !shape_eq(&graph_type(c->g, x)->sh, o)) return false;
    const int64_t channels = o->d[1] * o->d[2], n = o->d[3];
    const int from = c->of[x.i], tables[2] = { c->of[co.i], c->of[si.i] };
    for (int k = 0; k < 2; k++) {
        const shape *t = cg_sh(c, tables[k]);
        if (t->rank != 4 || t->d[0] != 1 || t->d[1] != o->d[1] || t->d[2] != o->d[2] || t->d[3] != n ||
            c->t.at[tables[k]].dt != c->t.at[from].dt)
            return false;
    }
    if (!dtype_is_float(c->t.at[from].dt) || c->t.at[from].dt != cg_dt(c, cg_out_type(c, 0)->dt)) return false;
    int y = cg_tensor(c, c->t.at[from].dt, SH(o->d[0], channels, n));
    ins *k = cg_ins(c, IN_ROPE, y,
                    OPS(cg_view(c, from, SH(o->d[0], channels, n)), cg_view(c, tables[0], SH(channels, n)),
                        cg_view(c, tables[1], SH(channels, n))));
    cg_i(c, k, axis == 1);
    cg_i(c, k, back);
    cg_f(k, 1);
    cg_set(c, 0, y);
    return true;
}

/* ---- by a matrix ---- */

typedef struct {
    val x, cos, sin;
    double scale;
    bool half, back;
} turned;

static const node *made_by(const cg *c, val v, op_id op)
{
    const node *m = v.i ? graph_maker(c->g, v) : NULL;
    return m && m->op == op ? m : NULL;
}

/* The numbers of an fp32 constant that stay what they are: of the text itself, or of a file that is not replaced. */
static const float *numbers_of(const cg *c, val v)
{
    const node *m = made_by(c, v, OP_CONST);
    return m && m->cst && m->cst->data && (!m->cst->blob_path || c->o.final || c->o.inline_consts) &&
                   graph_type(c->g, v)->dt == DT_F32
               ? m->cst->data
               : NULL;
}

static int64_t first_of_pair(int64_t pair, bool half) { return half ? pair : 2 * pair; }
static int64_t second_of_pair(int64_t pair, bool half, int64_t channels)
{
    return half ? pair + channels / 2 : 2 * pair + 1;
}

static bool is_turn(const cg *c, val w, int64_t channels, bool half)
{
    const float *t = numbers_of(c, w);
    const shape *s = &graph_type(c->g, w)->sh;
    int64_t others = 0;
    if (!t || channels % 2 || s->rank != 4 || s->d[0] != channels || s->d[1] != channels || s->d[2] != 1 ||
        s->d[3] != 1)
        return false;
    for (int64_t i = 0; i < channels * channels; i++) others += t[i] != 0;
    for (int64_t i = 0; i < channels / 2; i++) {
        const int64_t a = first_of_pair(i, half), b = second_of_pair(i, half, channels);
        if (t[a * channels + b] != -1 || t[b * channels + a] != 1) return false;
    }
    return others == channels;
}

/* v is a table [1, channels, 1, period] for x, the same for both channels of a pair. */
static bool is_table(const cg *c, val v, const shape *x, bool half)
{
    const float *t = numbers_of(c, v);
    const shape *s = &graph_type(c->g, v)->sh;
    if (!t || s->rank != 4 || s->d[0] != 1 || s->d[1] != x->d[1] || s->d[2] != 1 || s->d[3] != x->d[3]) return false;
    for (int64_t i = 0; i < x->d[1] / 2; i++)
        if (memcmp(t + first_of_pair(i, half) * x->d[3], t + second_of_pair(i, half, x->d[1]) * x->d[3],
                   sizeof *t * (size_t)x->d[3]))
            return false;
    return true;
}

/* v = x times a table of it. */
static bool by_table(const cg *c, val v, const shape *sh, bool half, val *x, val *table)
{
    const node *m = made_by(c, v, OP_MUL);
    for (int k = 0; m && k < 2; k++)
        if (is_table(c, m->in[k], sh, half)) return *table = m->in[k], *x = m->in[1 - k], true;
    return false;
}

/* v = T x, or T' x with `op` the other one. Step by step and of the same shape: then nothing is padded or left out
 * either. */
static bool by_matrix(const cg *c, val v, op_id op, const shape *sh, bool half, val *x)
{
    const node *m = made_by(c, v, op);
    int64_t stride[2];
    if (!m || (m->n_in > 2 && m->in[2].i) || attr_int(m->op, m->attrs, m->n_attr, A_GROUPS) != 1 ||
        !is_turn(c, m->in[1], sh->d[1], half))
        return false;
    if (!attr_list(m->op, m->attrs, m->n_attr, A_STRIDES, 2, stride) || stride[0] != 1 || stride[1] != 1) return false;
    *x = m->in[0];
    return shape_eq(&graph_type(c->g, *x)->sh, sh);
}

static bool read_matrix_turn(const cg *c, const node *m, turned *t)
{
    const shape *sh = &graph_type(c->g, m->out)->sh;
    val x, between;
    if ((m->op != OP_ADD && m->op != OP_SUB) || sh->rank != 4 || graph_type(c->g, m->out)->dt != DT_F32) return false;
    for (int k = 0; k < (m->op == OP_SUB ? 1 : 2); k++)
        for (int half = 0; half < 2; half++) {
            if (!by_table(c, m->in[k], sh, half, &t->x, &t->cos)) continue;
            t->half = half, t->scale = 1;
            const bool there =
                by_table(c, m->in[1 - k], sh, half, &between, &t->sin) && by_matrix(c, between, OP_CONV, sh, half, &x);
            const bool from = !there && by_matrix(c, m->in[1 - k], OP_CONV_TRANSPOSE, sh, half, &between) &&
                              by_table(c, between, sh, half, &x, &t->sin);
            t->back = from != (m->op == OP_SUB);
            if ((there || from) && x.i == t->x.i && shape_eq(&graph_type(c->g, x)->sh, sh)) return true;
        }
    return false;
}

/* v, seen through views, is a number times *of. */
static bool scaled(const cg *c, val v, double *by, val *of)
{
    const node *m = made_by(c, cg_through_views(c, v), OP_MUL);
    for (int k = 0; m && k < 2; k++)
        if (cg_number(c, m->in[k], by)) return *of = m->in[1 - k], true;
    return false;
}

bool match_turn(cg *c)
{
    turned t;
    double by = 1;
    val inner;
    if (!read_matrix_turn(c, c->at, &t)) {
        if (!scaled(c, c->at->out, &by, &inner) || c->n_uses[inner.i] != 1) return false;
        if (!read_matrix_turn(c, graph_maker(c->g, cg_through_views(c, inner)), &t)) return false;
        t.scale = by;
    }
    const shape sh = graph_type(c->g, t.x)->sh;
    if (cg_elems(&cg_out_type(c, 0)->sh) != cg_elems(&sh)) return false; /* repeated by what it is multiplied by */
    if (scaled(c, t.x, &by, &inner) && cg_elems(&graph_type(c->g, inner)->sh) == cg_elems(&sh))
        t.x = inner, t.scale *= by;
    const int64_t channels = sh.d[1], n = sh.d[2] * sh.d[3];
    if (c->t.at[c->of[t.x.i]].dt != DT_F32) return false;
    int y = cg_tensor(c, DT_F32, SH(sh.d[0], channels, n));
    ins *k = cg_ins(c, IN_ROPE, y,
                    OPS(cg_view(c, c->of[t.x.i], SH(sh.d[0], channels, n)),
                        cg_view(c, c->of[t.cos.i], SH(channels, sh.d[3])),
                        cg_view(c, c->of[t.sin.i], SH(channels, sh.d[3]))));
    cg_i(c, k, t.half);
    cg_i(c, k, t.back);
    cg_f(k, t.scale);
    cg_set(c, 0, y);
    return true;
}
