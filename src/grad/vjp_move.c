/* vjp_move.c: gradients of operations that only move elements: each element's gradient goes back where the element
 * came from, zeros go where none came from, and copies add up. In: an adj.  Out: its dx. */
#include "grad/grad_int.h"

void vjp_identity(adj *c) { c->dx[0] = c->dy[0]; }

void vjp_state_write(adj *c) { c->dx[1] = c->dy[0]; } /* what it held before is gone */

void vjp_reshape(adj *c) /* every op that keeps row-major order */
{
    shape x = shape_at(c, c->n.in[0]);
    bool scalar = shape_at(c, c->dy[0]).rank == 0; /* the same number everywhere stays that */
    c->dx[0] = scalar ? c->dy[0] : reshaped(c, dy_full(c), &x);
}

void vjp_transpose(adj *c)
{
    int64_t perm[MAX_RANK], back[MAX_RANK] = { 0 };
    int rank = c->y.rank, axis;
    if (rank == 0 || shape_at(c, c->dy[0]).rank == 0) {
        c->dx[0] = c->dy[0];
        return;
    }
    if (!at_l(c, A_PERM, rank, perm)) return;
    for (int i = 0; i < rank; i++)
        if (axis_norm(perm[i], rank, &axis)) back[axis] = i;
    c->dx[0] = GA(c->g, TRANSPOSE, VALS(dy_full(c)), AT_LIST(PERM, back, rank));
}

void vjp_reverse(adj *c)
{
    int64_t list[MAX_RANK];
    unsigned set = at_axes(c, A_AXES, c->y.rank);
    int n = 0;
    for (int i = 0; i < c->y.rank; i++)
        if (set & 1u << i) list[n++] = i;
    c->dx[0] = n ? GA(c->g, REVERSE, VALS(dy_full(c)), AT_LIST(AXES, list, n)) : c->dy[0];
}

/* ---- joining and cutting ---- */

static const int64_t ones[MAX_RANK] = { 1, 1, 1, 1, 1, 1, 1, 1 };

void vjp_concat(adj *c)
{
    val dy = dy_full(c);
    int axis = at_axis(c, A_AXIS, c->y.rank);
    bool dealt = at_b(c, A_INTERLEAVE); /* slices of the operands in turn */
    int64_t at = 0;
    for (int k = 0; k < c->n.n_in; k++) {
        shape x = shape_at(c, c->n.in[k]);
        int64_t begin[MAX_RANK] = { 0 }, step[MAX_RANK];
        memcpy(step, ones, sizeof step);
        begin[axis] = dealt ? k : at;
        if (dealt) step[axis] = c->n.n_in;
        if (wanted(c, k)) c->dx[k] = cut_axes(c, dy, begin, step, x.d);
        at += x.d[axis];
    }
}

void vjp_split(adj *c) /* parts nobody used give zeros */
{
    val *part = TAKE(c->tmp, val, (size_t)c->n.n_out);
    if (!part) {
        graph_fail(c->g, AN_NOMEM, "out of memory");
        return;
    }
    for (int k = 0; k < c->n.n_out; k++) {
        ttype t = *graph_type(c->g, graph_out(c->n.out, k));
        part[k] = c->dy[k].i ? full(c, c->dy[k], &t.sh) : graph_fill_const(c->g, NULL, t, 0);
    }
    const attr at = AT_I(AXIS, at_axis(c, A_AXIS, c->y.rank));
    c->dx[0] = c->n.n_out == 1 ? part[0] : graph_op(c->g, OP_CONCAT, part, c->n.n_out, &at, 1);
}

void vjp_stack(adj *c)
{
    val dy = dy_full(c);
    int axis = at_axis(c, A_AXIS, c->y.rank);
    for (int k = 0; k < c->n.n_in; k++) {
        if (!wanted(c, k)) continue;
        shape x = shape_at(c, c->n.in[k]), part = c->y;
        int64_t begin[MAX_RANK] = { 0 };
        part.d[axis] = 1, begin[axis] = k;
        c->dx[k] = reshaped(c, cut_axes(c, dy, begin, ones, part.d), &x);
    }
}

void vjp_tile(adj *c) /* one axis at a time, seen as (copies, what is copied) */
{
    shape x = shape_at(c, c->n.in[0]), now = c->y;
    int64_t reps[MAX_RANK];
    if (x.rank && !at_l(c, A_REPS, x.rank, reps)) return;
    val d = dy_full(c);
    for (int i = 0; i < x.rank; i++) {
        if (reps[i] == 1) continue;
        shape apart = SHAPE(prod(now.d, 0, i), reps[i], x.d[i] * prod(now.d, i + 1, now.rank));
        now.d[i] = x.d[i];
        d = reshaped(c, sum_axes(c, reshaped(c, d, &apart), 1u << 1), &now);
    }
    c->dx[0] = d;
}

/* ---- slices ---- */

typedef struct { /* per axis of x: places begin, begin + step, ...; step may be negative */
    int64_t begin[MAX_RANK], step[MAX_RANK], count[MAX_RANK];
} cut;

static int64_t clamp(int64_t v, int64_t lo, int64_t hi) { return v < lo ? lo : v > hi ? hi : v; }

static bool read_by_index(adj *c, const shape *x, cut *s)
{
    int64_t end[MAX_RANK], open_b[MAX_RANK], open_e[MAX_RANK], single[MAX_RANK];
    if (!at_l(c, A_BEGIN, x->rank, s->begin) || !at_l(c, A_END, x->rank, end) || !at_l(c, A_STRIDE, x->rank, s->step) ||
        !at_l(c, A_BEGIN_MASK, x->rank, open_b) || !at_l(c, A_END_MASK, x->rank, open_e) ||
        !at_l(c, A_SQUEEZE_MASK, x->rank, single))
        return false;
    for (int i = 0; i < x->rank; i++) {
        int64_t n = x->d[i], k = s->step[i], b = s->begin[i], e = end[i], lo = k > 0 ? 0 : -1, hi = k > 0 ? n : n - 1;
        b = b < 0 ? MAX(b, -n - 1) + n : b, e = e < 0 ? MAX(e, -n - 1) + n : e;
        b = open_b[i] ? (k > 0 ? lo : hi) : clamp(b, lo, hi);
        e = open_e[i] ? (k > 0 ? hi : lo) : clamp(e, lo, hi);
        s->begin[i] = b;
        s->count[i] = single[i] ? 1 : k > 0 ? (e - b + k - 1) / k : (b - e - k - 1) / -k;
    }
    return true;
}

static bool read_by_size(adj *c, const shape *x, cut *s)
{
    if (!at_l(c, A_BEGIN, x->rank, s->begin) || !at_l(c, A_SIZE, x->rank, s->count)) return false;
    for (int i = 0; i < x->rank; i++) {
        s->step[i] = 1;
        if (s->count[i] == -1) s->count[i] = x->d[i] - s->begin[i];
    }
    return true;
}

/* k - 1 zeros behind every element of an axis: a new axis of 1, padded, folded in. */
static val spread(adj *c, val v, int axis, int64_t k)
{
    if (c->g->err.st) return NO_VAL;
    shape s = shape_at(c, v), o = s, apart = SHAPE(prod(s.d, 0, axis), s.d[axis], 1, prod(s.d, axis + 1, s.rank));
    o.d[axis] *= k;
    return reshaped(c, pad_axis(c, reshaped(c, v, &apart), 2, 0, k - 1), &o);
}

/* v holds the places of a cut, one per element, squeezed axes included: put them back into zeros of x's shape. */
static val uncut(adj *c, val v, const shape *x, const cut *s)
{
    int64_t back[MAX_RANK], pad[2 * MAX_RANK] = { 0 };
    int n_back = 0;
    shape now = shape_of(s->count, x->rank);
    v = reshaped(c, v, &now);
    for (int i = 0; i < x->rank; i++)
        if (s->step[i] < 0 && s->count[i] > 1) back[n_back++] = i;
    if (n_back) v = GA(c->g, REVERSE, VALS(v), AT_LIST(AXES, back, n_back));
    for (int i = 0; i < x->rank; i++) {
        int64_t k = s->step[i] < 0 ? -s->step[i] : s->step[i], n = s->count[i];
        int64_t first = s->step[i] < 0 ? s->begin[i] + (n - 1) * s->step[i] : s->begin[i];
        if (k > 1 && n > 1) {
            v = spread(c, v, i, k);
            now.d[i] = n * k;
            int64_t none[MAX_RANK] = { 0 }, room = x->d[i] - first;
            if (now.d[i] > room) { /* the zeros behind the last one may stand past the end */
                now.d[i] = room;
                v = cut_axes(c, v, none, ones, now.d);
            }
        }
        int64_t after = x->d[i] - first - now.d[i];
        if (i < x->rank - 2) v = pad_axis(c, v, i, first, after);
        else pad[2 * i] = first, pad[2 * i + 1] = after;
        now.d[i] = i < x->rank - 2 ? x->d[i] : now.d[i];
    }
    int from = MAX(0, x->rank - 2), some = 0;
    for (int i = 2 * from; i < 2 * x->rank; i++) some |= pad[i] != 0;
    return some ? GA(c->g, PAD, VALS(v), AT_LIST(PAD, pad + 2 * from, 2 * (x->rank - from))) : v;
}

void vjp_slice(adj *c)
{
    shape x = shape_at(c, c->n.in[0]);
    cut s = { 0 };
    if (c->n.op == OP_SLICE_BY_SIZE ? read_by_size(c, &x, &s) : read_by_index(c, &x, &s))
        c->dx[0] = uncut(c, dy_full(c), &x, &s);
}

void vjp_crop(adj *c)
{
    shape x = shape_at(c, c->n.in[0]);
    int64_t h[2], w[2];
    cut s = { 0 };
    if (!at_l(c, A_CROP_HEIGHT, 2, h) || !at_l(c, A_CROP_WIDTH, 2, w)) return;
    for (int i = 0; i < x.rank; i++) s.step[i] = 1, s.count[i] = c->y.d[i];
    s.begin[x.rank - 2] = h[0], s.begin[x.rank - 1] = w[0];
    c->dx[0] = uncut(c, dy_full(c), &x, &s);
}

/* x keeps what the update did not replace; the update is read at its places. */
void vjp_slice_update(adj *c)
{
    shape x = shape_at(c, c->n.in[0]);
    cut s = { 0 };
    if (!read_by_index(c, &x, &s)) return;
    if (wanted(c, 1)) {
        const attr_id same[] = { A_BEGIN, A_END, A_STRIDE, A_BEGIN_MASK, A_END_MASK, A_SQUEEZE_MASK };
        attr at[COUNT(same)];
        int n = 0;
        for (size_t i = 0; i < COUNT(same); i++)
            if (at_p(c, same[i])) at[n++] = *at_p(c, same[i]);
        val dy = dy_full(c);
        c->dx[1] = graph_op(c->g, OP_SLICE_BY_INDEX, &dy, 1, at, n);
    }
    if (!wanted(c, 0)) return;
    shape part = shape_of(s.count, x.rank);
    /* of constants: folded before it runs */
    val hole = uncut(c, graph_fill_const(c->g, NULL, typed(c, part), 1), &x, &s);
    c->dx[0] = mul(c, c->dy[0], one_minus(c, hole));
}

/* ---- rearrangements: each has its inverse in the table ---- */

void vjp_rearrange(adj *c)
{
    val dy = dy_full(c);
    const attr *block = at_p(c, A_BLOCK_SHAPE);
    switch (c->n.op) {
    case OP_DEPTH_TO_SPACE:
        c->dx[0] = GA(c->g, SPACE_TO_DEPTH, VALS(dy), AT_I(BLOCK_SIZE, at_i(c, A_BLOCK_SIZE)));
        break;
    case OP_SPACE_TO_DEPTH:
        c->dx[0] = GA(c->g, DEPTH_TO_SPACE, VALS(dy), AT_I(BLOCK_SIZE, at_i(c, A_BLOCK_SIZE)));
        break;
    case OP_PIXEL_SHUFFLE:
        c->dx[0] = GA(c->g, PIXEL_UNSHUFFLE, VALS(dy), AT_I(DOWNSCALE_FACTOR, at_i(c, A_UPSCALE_FACTOR)));
        break;
    case OP_PIXEL_UNSHUFFLE:
        c->dx[0] = GA(c->g, PIXEL_SHUFFLE, VALS(dy), AT_I(UPSCALE_FACTOR, at_i(c, A_DOWNSCALE_FACTOR)));
        break;
    case OP_SPACE_TO_BATCH: { /* what was padded is cropped, and the other way round */
        const attr *e = at_p(c, A_PADDINGS);
        c->dx[0] = GA(c->g, BATCH_TO_SPACE, VALS(dy), AT_LIST(BLOCK_SHAPE, block->u.is, block->n),
                      AT_LIST(CROPS, e->u.is, e->n));
        break;
    }
    case OP_BATCH_TO_SPACE: {
        const attr *e = at_p(c, A_CROPS);
        c->dx[0] = GA(c->g, SPACE_TO_BATCH, VALS(dy), AT_LIST(BLOCK_SHAPE, block->u.is, block->n),
                      AT_LIST(PADDINGS, e->u.is, e->n));
        break;
    }
    default: broken(c, "not a rearrangement"); break;
    }
}
