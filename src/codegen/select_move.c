/* select_move.c: operations that only move elements. Reshapes are views; nearly everything else is a strided copy,
 * and the strides are the whole story. Gathering has instructions of its own, padding by mirrors is a list of places
 * per axis. */
#include "codegen/codegen_int.h"

void select_identity(cg *c) { cg_set(c, 0, cg_in(c, 0)); } /* reshapes too: row-major order is the same */

static int result(cg *c, int k) { return cg_tensor(c, cg_dt(c, cg_out_type(c, k)->dt), &cg_out_type(c, k)->sh); }

/* The result in row-major order from a strided box of operand 0. */
static void copy_box(cg *c, int k, int rank, const int64_t *d, int64_t base, const int64_t *stride, bool width_offset)
{
    int x = cg_in(c, 0), y = result(c, k);
    int64_t own[2 * MAX_RANK], p = 1;
    for (int i = rank - 1; i >= 0; i--) own[i] = p, p *= d[i];
    cg_move(c, y, x, rank, d, 0, own, base, stride, width_offset);
    cg_set(c, k, y);
}

void select_transpose(cg *c)
{
    int rank = cg_in_type(c, 0)->sh.rank, perm[MAX_RANK];
    int64_t list[MAX_RANK];
    if (rank && !cg_list(c, A_PERM, rank, list)) return;
    for (int i = 0; i < rank; i++)
        if (!axis_norm(list[i], rank, &perm[i])) {
            cg_fail(c, AN_INPUT, "perm has %lld, outside rank %d", (long long)list[i], rank);
            return;
        }
    cg_set(c, 0, cg_permute(c, cg_in(c, 0), perm));
}

void select_reverse(cg *c)
{
    const shape *x = &cg_in_type(c, 0)->sh;
    bool on[MAX_RANK];
    int64_t st[MAX_RANK], base = 0;
    if (!cg_axes(c, A_AXES, x->rank, on)) return;
    shape_strides(x, st);
    for (int i = 0; i < x->rank; i++)
        if (on[i]) base += (x->d[i] - 1) * st[i], st[i] = -st[i];
    copy_box(c, 0, x->rank, x->d, base, st, false);
}

/* ---- joining and cutting ---- */

void select_concat(cg *c)
{
    const shape *o = &cg_out_type(c, 0)->sh;
    int axis, y = result(c, 0);
    if (!cg_axis(c, A_AXIS, o->rank, &axis)) return;
    bool interleave = at_bool(c, A_INTERLEAVE);
    int64_t so[MAX_RANK], st[MAX_RANK], to[MAX_RANK], at = 0;
    shape_strides(o, so);
    for (int k = 0; k < c->at->n_in; k++) {
        const shape *s = &cg_in_type(c, k)->sh;
        shape_strides(s, st);
        memcpy(to, so, sizeof to);
        if (interleave) to[axis] *= c->at->n_in; /* slices are dealt out in turn */
        cg_move(c, y, cg_in(c, k), s->rank, s->d, (interleave ? k : at) * so[axis], to, 0, st, false);
        at += s->d[axis];
    }
    cg_set(c, 0, y);
}

void select_stack(cg *c)
{
    const shape *o = &cg_out_type(c, 0)->sh;
    int axis, y = result(c, 0);
    if (!cg_axis(c, A_AXIS, o->rank, &axis)) return;
    int64_t inner = cg_prod(o->d, axis + 1, o->rank), d[2] = { cg_prod(o->d, 0, axis), inner };
    int64_t to[2] = { o->d[axis] * inner, 1 }, from[2] = { inner, 1 };
    for (int k = 0; k < c->at->n_in; k++) cg_move(c, y, cg_in(c, k), 2, d, k * inner, to, 0, from, false);
    cg_set(c, 0, y);
}

void select_split(cg *c)
{
    const shape *x = &cg_in_type(c, 0)->sh;
    int axis;
    if (!cg_axis(c, A_AXIS, x->rank, &axis)) return;
    int64_t inner = cg_prod(x->d, axis + 1, x->rank), outer = cg_prod(x->d, 0, axis), at = 0;
    for (int k = 0; k < c->at->n_out; k++) {
        int64_t n = cg_out_type(c, k)->sh.d[axis], d[2] = { outer, n * inner }, from[2] = { x->d[axis] * inner, 1 };
        copy_box(c, k, 2, d, at * inner, from, axis == x->rank - 1 && at);
        at += n;
    }
}

void select_tile(cg *c) /* every axis seen as (rep, extent): rep does not move in x */
{
    shape x = cg_in_type(c, 0)->sh, o = cg_out_type(c, 0)->sh, s = x;
    int64_t d[2 * MAX_RANK], st[2 * MAX_RANK], own[MAX_RANK];
    int n = 0;
    shape_strides(&x, own);
    for (int i = 0; i < x.rank; i++) {
        if (o.d[i] != x.d[i]) d[n] = o.d[i] / x.d[i], st[n++] = 0;
        if (x.d[i] != 1) d[n] = x.d[i], st[n++] = own[i];
    }
    if (n <= ENGINE_MAX_RANK) {
        copy_box(c, 0, n, d, 0, st, false);
        return;
    }
    int t = cg_in(c, 0); /* too many axes for one copy: an axis at a time */
    for (int i = 0; i < x.rank; i++) {
        int64_t rep = o.d[i] / x.d[i], row = cg_prod(s.d, i, s.rank), box[3] = { cg_prod(s.d, 0, i), rep, row };
        int64_t to[3] = { rep * row, row, 1 }, from[3] = { row, 0, 1 };
        if (rep == 1) continue;
        s.d[i] = o.d[i];
        int y = cg_tensor(c, c->err.st ? DT_F16 : c->t.at[t].dt, &s);
        cg_move(c, y, t, 3, box, 0, to, 0, from, false);
        t = y;
    }
    cg_set(c, 0, t);
}

/* ---- slices: begin, stride and count of each axis ---- */

typedef struct {
    int64_t base, d[MAX_RANK], stride[MAX_RANK]; /* in elements of x */
    bool width_offset;
} slice;

static int64_t clamp(int64_t x, int64_t lo, int64_t hi) { return x < lo ? lo : x > hi ? hi : x; }

/* Negative places count from the end, places past an end are cut to it, an open end reaches the last element in the
 * direction of the stride. */
static bool slice_by_index(cg *c, const shape *x, slice *s)
{
    int64_t begin[MAX_RANK], end[MAX_RANK], by[MAX_RANK], open_b[MAX_RANK], open_e[MAX_RANK], one[MAX_RANK],
        st[MAX_RANK];
    int r = x->rank;
    if (!cg_list(c, A_BEGIN, r, begin) || !cg_list(c, A_END, r, end) || !cg_list(c, A_STRIDE, r, by) ||
        !cg_list(c, A_BEGIN_MASK, r, open_b) || !cg_list(c, A_END_MASK, r, open_e) ||
        !cg_list(c, A_SQUEEZE_MASK, r, one))
        return false;
    shape_strides(x, st);
    for (int i = 0; i < r; i++) {
        int64_t n = x->d[i], k = by[i], lo = k > 0 ? 0 : -1, hi = k > 0 ? n : n - 1;
        if (k == 0) return cg_fail(c, AN_INPUT, "stride of axis %d is 0", i), false;
        int64_t b = begin[i] < 0 ? MAX(begin[i], -n - 1) + n : begin[i],
                e = end[i] < 0 ? MAX(end[i], -n - 1) + n : end[i];
        if (one[i]) { /* a plain index: the axis goes */
            if (open_b[i]) b = k > 0 ? 0 : n - 1;
            if (b < 0 || b >= n)
                return cg_fail(c, AN_INPUT, "index %lld is outside an extent of %lld", (long long)begin[i],
                               (long long)n),
                       false;
            s->base += b * st[i], s->d[i] = 1, s->stride[i] = 0;
        } else {
            b = open_b[i] ? (k > 0 ? lo : hi) : clamp(b, lo, hi);
            e = open_e[i] ? (k > 0 ? hi : lo) : clamp(e, lo, hi);
            s->d[i] = MAX((int64_t)0, k > 0 ? (e - b + (k - 1)) / k : (b - e + (-k - 1)) / -k);
            s->base += s->d[i] ? b * st[i] : 0;
            s->stride[i] = s->d[i] > 1 ? k * st[i] : 0;
        }
        if (i == r - 1) s->width_offset = !open_b[i] && b != 0;
    }
    return true;
}

static bool slice_by_size(cg *c, const shape *x, slice *s)
{
    int64_t begin[MAX_RANK], size[MAX_RANK], st[MAX_RANK];
    if (!cg_list(c, A_BEGIN, x->rank, begin) || !cg_list(c, A_SIZE, x->rank, size)) return false;
    shape_strides(x, st);
    for (int i = 0; i < x->rank; i++) {
        int64_t b = begin[i] < 0 ? begin[i] + x->d[i] : begin[i], n = size[i] == -1 ? x->d[i] - b : size[i];
        s->base += b * st[i], s->d[i] = n, s->stride[i] = st[i];
        if (i == x->rank - 1) s->width_offset = b != 0;
    }
    return true;
}

void select_slice(cg *c)
{
    const shape *x = &cg_in_type(c, 0)->sh;
    slice s = { 0 };
    if (c->at->op == OP_SLICE_BY_SIZE ? slice_by_size(c, x, &s) : slice_by_index(c, x, &s))
        copy_box(c, 0, x->rank, s.d, s.base, s.stride, s.width_offset);
}

void select_slice_update(cg *c)
{
    const shape *x = &cg_in_type(c, 0)->sh;
    slice s = { 0 };
    if (!slice_by_index(c, x, &s)) return;
    int y = cg_copy(c, cg_in(c, 0));
    int64_t own[MAX_RANK], p = 1;
    /* the update without its squeezed axes has the same order */
    for (int i = x->rank - 1; i >= 0; i--) own[i] = p, p *= s.d[i];
    cg_move(c, y, cg_in(c, 1), x->rank, s.d, s.base, s.stride, 0, own, false);
    cg_set(c, 0, y);
}

void select_crop(cg *c)
{
    const shape *x = &cg_in_type(c, 0)->sh, *o = &cg_out_type(c, 0)->sh;
    int64_t h[2], w[2], st[MAX_RANK];
    if (!cg_list(c, A_CROP_HEIGHT, 2, h) || !cg_list(c, A_CROP_WIDTH, 2, w)) return;
    shape_strides(x, st);
    copy_box(c, 0, o->rank, o->d, h[0] * st[x->rank - 2] + w[0] * st[x->rank - 1], st, w[0] != 0);
}

/* ---- padding ---- */

enum { PAD_CONSTANT, PAD_REFLECT, PAD_REPLICATE, PAD_SYMMETRIC };

static int64_t pad_source(int64_t p, int64_t n, int mode) /* the element of 0 .. n-1 that stands at place p */
{
    if (p >= 0 && p < n) return p;
    if (mode == PAD_REPLICATE) return p < 0 ? 0 : n - 1;
    int64_t period = mode == PAD_SYMMETRIC ? 2 * n : MAX((int64_t)1, 2 * n - 2); /* reflect does not repeat the edge */
    p = (p % period + period) % period;
    if (p < n) return p;
    return mode == PAD_SYMMETRIC ? period - 1 - p : period - p;
}

static int pick_axis(cg *c, int t, int axis, int64_t before, int64_t count, int mode)
{
    if (c->err.st || t < 0) return NONE;
    shape s = *cg_sh(c, t);
    int64_t n = s.d[axis];
    s.d[axis] = count;
    int y = cg_tensor(c, c->t.at[t].dt, &s);
    ins *k = cg_ins(c, IN_PICK, y, OPS(t));
    cg_i(c, k, axis);
    cg_i(c, k, count);
    for (int64_t j = 0; j < count; j++) cg_i(c, k, pad_source(j - before, n, mode));
    return y;
}

void select_pad(cg *c)
{
    static const char *const modes[] = { "constant", "reflect", "replicate", "symmetric" };
    const shape *x = &cg_in_type(c, 0)->sh, *o = &cg_out_type(c, 0)->sh;
    const attr *a = at_get(c, A_PAD);
    int mode;
    if (!cg_word(c, A_MODE, modes, COUNT(modes), &mode)) return;
    int64_t before[MAX_RANK] = { 0 };
    /* pairs of the last axes */
    for (int i = 0; a && i + 1 < a->n; i += 2) before[x->rank - a->n / 2 + i / 2] = a->u.is[i];
    if (mode != PAD_CONSTANT) {
        int t = cg_in(c, 0);
        for (int i = 0; i < x->rank; i++)
            if (before[i] || o->d[i] != x->d[i]) t = pick_axis(c, t, i, before[i], o->d[i], mode);
        cg_set(c, 0, t);
        return;
    }
    int y = result(c, 0);
    int64_t sx[MAX_RANK], so[MAX_RANK], d[MAX_RANK], ys = 0, xs = 0;
    shape_strides(x, sx);
    shape_strides(o, so);
    for (int i = 0; i < x->rank; i++) { /* a negative pad cuts */
        int64_t from = MAX((int64_t)0, -before[i]), to = MAX((int64_t)0, before[i]);
        d[i] = MAX((int64_t)0, MIN(x->d[i] - from, o->d[i] - to));
        xs += from * sx[i], ys += to * so[i];
    }
    if (!shape_eq(x, o)) cg_fill(c, y, at_float(c, A_CONSTANT_VAL));
    cg_move(c, y, cg_in(c, 0), x->rank, d, ys, so, xs, sx, false);
    cg_set(c, 0, y);
}

/* ---- gathering ---- */

void select_gather(cg *c)
{
    int axis, y = result(c, 0);
    if (!cg_axis(c, A_AXIS, cg_in_type(c, 0)->sh.rank, &axis)) return;
    ins *n = cg_ins(c, IN_GATHER, y, OPS(cg_in(c, 0), cg_in(c, 1)));
    cg_i(c, n, axis);
    cg_i(c, n, at_int(c, A_BATCH_DIMS));
    cg_set(c, 0, y);
}

/* Rows that were turned only to be put down here: the tensor they were turned from. NONE: they were not. */
static int turned_rows(const cg *c, int axis)
{
    const node *m = graph_maker(c->g, c->at->in[2]);
    if (c->soft || !c->o.level || !m || m->op != OP_TRANSPOSE) return NONE;
    const ttype *t = graph_type(c->g, m->out);
    const attr *perm = attr_get(m->attrs, m->n_attr, A_PERM);
    const int rank = t->sh.rank, bits = dtype_bits(t->dt);
    if (rank < 2 || axis != rank - 2 || !perm || perm->n != rank || (bits != 16 && bits != 32) ||
        t->sh.d[rank - 2] < 2 || t->sh.d[rank - 1] < 2)
        return NONE;
    for (int i = 0; i < rank; i++) {
        int from;
        if (!axis_norm(perm->u.is[i], rank, &from) || from != (i < rank - 2 ? i : 2 * rank - 3 - i)) return NONE;
    }
    return c->of[m->in[0].i];
}

/* Into a copy: when the data is a port that is written back to itself, the copy is onto itself and costs nothing. */
void select_scatter(cg *c)
{
    static const char *const modes[] = { "add", "update" };
    int axis, mode;
    if (!cg_axis(c, A_AXIS, cg_in_type(c, 0)->sh.rank, &axis) || !cg_word(c, A_MODE, modes, COUNT(modes), &mode))
        return;
    const bool narrow = dtype_bits(cg_out_type(c, 0)->dt) < 8; /* several to a byte: as whole numbers meanwhile */
    int ix = cg_in(c, 1), from = mode == 1 && !narrow ? turned_rows(c, axis) : NONE, u = from >= 0 ? from : cg_in(c, 2),
        x = cg_in(c, 0);
    if (narrow) x = cg_cast(c, x, DT_I32), u = cg_cast(c, u, DT_I32);
    int y = cg_copy(c, x);
    ins *n = cg_ins(c, IN_SCATTER, y, OPS(ix, u));
    cg_i(c, n, axis);
    cg_i(c, n, mode == 0);
    cg_i(c, n, from >= 0);
    cg_set(c, 0, y);
}

void select_gather_along_axis(cg *c)
{
    int axis, y = result(c, 0);
    if (!cg_axis(c, A_AXIS, cg_in_type(c, 0)->sh.rank, &axis)) return;
    cg_i(c, cg_ins(c, IN_GATHER_ALONG, y, OPS(cg_in(c, 0), cg_in(c, 1))), axis);
    cg_set(c, 0, y);
}

void select_gather_nd(cg *c)
{
    int y = result(c, 0);
    cg_i(c, cg_ins(c, IN_GATHER_ND, y, OPS(cg_in(c, 0), cg_in(c, 1))), at_int(c, A_BATCH_DIMS));
    cg_set(c, 0, y);
}

/* ---- rearrangements ----
 * A block of b x b pixels against b*b channels. depth_to_space counts the block first: channel = (i*b + j)*C + c.
 * pixel_shuffle counts it last: channel = c*b*b + i*b + j. The other two are their inverses. */

static void blocks(cg *c, int64_t b, bool to_space, bool block_first)
{
    /* the side with b*b times the channels */
    const shape *deep = to_space ? &cg_in_type(c, 0)->sh : &cg_out_type(c, 0)->sh;
    int64_t n = deep->d[0], ch = deep->d[1] / (b * b), h = deep->d[2], w = deep->d[3], hw = h * w;
    int64_t d[6] = { n, ch, h, b, w, b }; /* n, c, y, i, x, j: the order of the wide side */
    int64_t wide[6] = { ch * hw * b * b, hw * b * b, w * b * b, w * b, b, 1 };
    int64_t narrow[6] = { ch * b * b * hw, hw, w, b * ch * hw, 1, ch * hw };
    if (!block_first) narrow[1] = b * b * hw, narrow[3] = b * hw, narrow[5] = hw;
    int y = result(c, 0);
    cg_move(c, y, cg_in(c, 0), 6, d, 0, to_space ? wide : narrow, 0, to_space ? narrow : wide, false);
    cg_set(c, 0, y);
}

void select_depth_to_space(cg *c) { blocks(c, at_int(c, A_BLOCK_SIZE), true, true); }
void select_space_to_depth(cg *c) { blocks(c, at_int(c, A_BLOCK_SIZE), false, true); }
void select_pixel_shuffle(cg *c) { blocks(c, at_int(c, A_UPSCALE_FACTOR), true, false); }
void select_pixel_unshuffle(cg *c) { blocks(c, at_int(c, A_DOWNSCALE_FACTOR), false, false); }

/* Spatial place p of the wide side (padding counted) is place p % b of the block at p / b; the batch counts block
 * places before images. One copy per block place, over the part of it that exists. */
static void batch_space(cg *c, bool to_batch)
{
    const shape *wide = to_batch ? &cg_in_type(c, 0)->sh : &cg_out_type(c, 0)->sh,
                *deep = to_batch ? &cg_out_type(c, 0)->sh : &cg_in_type(c, 0)->sh;
    int m = wide->rank - 2, y = result(c, 0);
    int64_t block[MAX_RANK], edge[2 * MAX_RANK], sw[MAX_RANK], sd[MAX_RANK], idx[MAX_RANK] = { 0 }, places = 1;
    if (!cg_list(c, A_BLOCK_SHAPE, m, block) || !cg_list(c, to_batch ? A_PADDINGS : A_CROPS, 2 * m, edge)) return;
    shape_strides(wide, sw);
    shape_strides(deep, sd);
    bool padded = false;
    for (int k = 0; k < m; k++) places *= block[k], padded = padded || (to_batch && (edge[2 * k] || edge[2 * k + 1]));
    if (padded) cg_fill(c, y, 0);
    for (int64_t p = 0; p < places && !c->err.st; p++) {
        int64_t d[MAX_RANK] = { wide->d[0], wide->d[1] }, stw[MAX_RANK] = { sw[0], sw[1] },
                std[MAX_RANK] = { sd[0], sd[1] };
        int64_t at_w = 0, at_d = p * wide->d[0] * sd[0];
        bool any = true;
        for (int k = 0; k < m; k++) { /* block q holds wide place q*block + idx - edge */
            int64_t off = idx[k] - edge[2 * k], first = off < 0 ? (-off + block[k] - 1) / block[k] : 0;
            int64_t last = MIN(deep->d[k + 2] - 1, (wide->d[k + 2] - 1 - off) / block[k]);
            if (wide->d[k + 2] - 1 - off < 0 || last < first) any = false;
            d[k + 2] = last - first + 1;
            at_w += (first * block[k] + off) * sw[k + 2], at_d += first * sd[k + 2];
            stw[k + 2] = block[k] * sw[k + 2], std[k + 2] = sd[k + 2];
        }
        if (any && to_batch) cg_move(c, y, cg_in(c, 0), wide->rank, d, at_d, std, at_w, stw, false);
        else if (any) cg_move(c, y, cg_in(c, 0), wide->rank, d, at_w, stw, at_d, std, false);
        for (int k = m - 1; k >= 0; k--) {
            if (++idx[k] < block[k]) break;
            idx[k] = 0;
        }
    }
    cg_set(c, 0, y);
}

void select_space_to_batch(cg *c) { batch_space(c, true); }
void select_batch_to_space(cg *c) { batch_space(c, false); }
