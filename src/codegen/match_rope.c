/* match_rope.c: rotary positions written as slices, products and a concat.
 * In: a concat about to be selected.  Out: true when it was selected as one turn of pairs of channels.
 *
 *   p [n, pairs, 2, S], or [n, 2, pairs, S] with halves; a and b its two slices along the axis of 2; cos and sin likewise, of which
 *   the first slice is read.  concat(a cos - b sin, b cos + a sin), or with the other signs.
 *
 * The instruction rounds as the chain of these steps does, so that it makes no difference who else reads the pieces. */
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
    if (m->op != OP_MUL || !one_of_two(c, m->in[0], axis, x) || !one_of_two(c, m->in[1], axis, &t) || t.which) return false;
    *table = t.of;
    return true;
}

/* The four products of a concat's two operands: straight[0] is a cos, across[0] b sin, straight[1] b cos, across[1] a sin. */
static bool read_turn(const cg *c, const node *m, int axis, val *x, val *co, val *si, bool *back)
{
    const node *sum[2];
    piece straight[2], across[2];
    val with[2], by[2];
    for (int k = 0; k < 2; k++) {
        sum[k] = graph_maker(c->g, m->in[k]);
        if (sum[k]->op != OP_ADD && sum[k]->op != OP_SUB) return false;
        if (!read_product(c, sum[k]->in[0], axis, &straight[k], &with[k]) || !read_product(c, sum[k]->in[1], axis, &across[k], &by[k])) return false;
        if (straight[k].which != k || across[k].which != 1 - k) return false;
        if (straight[k].of.i != straight[0].of.i || across[k].of.i != straight[0].of.i || with[k].i != with[0].i || by[k].i != by[0].i) return false;
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
    if (m->n_in != 2 || o->rank != 4 || at_bool(c, A_INTERLEAVE) || !axis_norm(at_int(c, A_AXIS), o->rank, &axis) || (axis != 1 && axis != 2)) return false;
    if (!read_turn(c, m, axis, &x, &co, &si, &back) || !shape_eq(&graph_type(c->g, x)->sh, o)) return false;
    const int64_t channels = o->d[1] * o->d[2], n = o->d[3];
    const int from = c->of[x.i], tables[2] = { c->of[co.i], c->of[si.i] };
    for (int k = 0; k < 2; k++) {
        const shape *t = cg_sh(c, tables[k]);
        if (t->rank != 4 || t->d[0] != 1 || t->d[1] != o->d[1] || t->d[2] != o->d[2] || t->d[3] != n || c->t.at[tables[k]].dt != c->t.at[from].dt) return false;
    }
    if (!dtype_is_float(c->t.at[from].dt) || c->t.at[from].dt != cg_dt(c, cg_out_type(c, 0)->dt)) return false;
    int y = cg_tensor(c, c->t.at[from].dt, SH(o->d[0], channels, n));
    ins *k = cg_ins(c, IN_ROPE, y, OPS(cg_view(c, from, SH(o->d[0], channels, n)), cg_view(c, tables[0], SH(channels, n)), cg_view(c, tables[1], SH(channels, n))));
    cg_i(c, k, axis == 1);
    cg_i(c, k, back);
    cg_set(c, 0, y);
    return true;
}
