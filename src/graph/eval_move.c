/* eval_move.c: operations that only move elements: reshape, transpose, joining and cutting, padding, gathering,
 * rearrangements between channels, batch and space.
 * In: an eval_ctx.  Out: its results. Nearly all of them are one strided copy; the strides are the whole story. */
#include "graph/eval_int.h"

an_status eval_identity(eval_ctx *c) /* reshapes too: row-major order is the same */
{
    memcpy(c->out[0].x, c->in[0].x, (size_t)t64_elems(&c->out[0]) * sizeof(double));
    return AN_OK;
}

an_status eval_write_state(eval_ctx *c) /* the state's new content */
{
    memcpy(c->out[0].x, c->in[1].x, (size_t)t64_elems(&c->out[0]) * sizeof(double));
    return AN_OK;
}

/* Result in row-major order from a strided view of operand 0. */
static an_status copy_view(eval_ctx *c, const int64_t *d, int rank, int64_t base, const int64_t *stride)
{
    shape s = shape_of(d, rank);
    int64_t own[MAX_RANK];
    shape_strides(&s, own);
    copy_box(d, rank, c->out[0].x, 0, own, c->in[0].x, base, stride);
    return AN_OK;
}

an_status eval_transpose(eval_ctx *c)
{
    const shape *x = &c->in[0].type.sh, *o = &c->out[0].type.sh;
    int64_t perm[MAX_RANK], own[MAX_RANK], st[MAX_RANK];
    if (x->rank) TRY(at_ints(c, A_PERM, x->rank, perm));
    shape_strides(x, own);
    for (int i = 0; i < x->rank; i++) {
        int ax;
        if (!axis_norm(perm[i], x->rank, &ax))
            return eval_fail(c, "perm has %lld, outside rank %d", (long long)perm[i], x->rank);
        st[i] = own[ax];
    }
    return copy_view(c, o->d, o->rank, 0, st);
}

an_status eval_reverse(eval_ctx *c)
{
    const shape *x = &c->in[0].type.sh;
    bool on[MAX_RANK];
    int64_t st[MAX_RANK], base = 0;
    TRY(at_axes(c, A_AXES, x->rank, on));
    shape_strides(x, st);
    for (int i = 0; i < x->rank; i++)
        if (on[i]) base += (x->d[i] - 1) * st[i], st[i] = -st[i];
    return copy_view(c, x->d, x->rank, base, st);
}

/* ---- joining and cutting ---- */

an_status eval_concat(eval_ctx *c)
{
    const shape *o = &c->out[0].type.sh;
    int axis;
    TRY(at_axis(c, A_AXIS, o->rank, &axis));
    bool interleave = at_bool(c, A_INTERLEAVE);
    int64_t so[MAX_RANK], st[MAX_RANK], at = 0;
    shape_strides(o, so);
    for (int k = 0; k < c->n_in; k++) {
        const shape *s = &c->in[k].type.sh;
        int64_t to[MAX_RANK];
        shape_strides(s, st);
        memcpy(to, so, sizeof to);
        if (interleave) to[axis] *= c->n_in; /* slices are dealt out in turn */
        copy_box(s->d, s->rank, c->out[0].x, (interleave ? k : at) * so[axis], to, c->in[k].x, 0, st);
        at += s->d[axis];
    }
    return AN_OK;
}

an_status eval_stack(eval_ctx *c)
{
    const shape *o = &c->out[0].type.sh;
    int axis;
    TRY(at_axis(c, A_AXIS, o->rank, &axis));
    axis_view v = view_axis(o, axis);
    for (int k = 0; k < c->n_in; k++)
        for (int64_t b = 0; b < v.outer; b++)
            memcpy(c->out[0].x + (b * v.n + k) * v.inner, c->in[k].x + b * v.inner, (size_t)v.inner * sizeof(double));
    return AN_OK;
}

an_status eval_split(eval_ctx *c)
{
    const shape *x = &c->in[0].type.sh;
    int axis;
    TRY(at_axis(c, A_AXIS, x->rank, &axis));
    axis_view v = view_axis(x, axis);
    int64_t at = 0;
    for (int k = 0; k < c->n_out; k++) {
        int64_t n = c->out[k].type.sh.d[axis];
        for (int64_t b = 0; b < v.outer; b++)
            memcpy(c->out[k].x + b * n * v.inner, c->in[0].x + (b * v.n + at) * v.inner,
                   (size_t)(n * v.inner) * sizeof(double));
        at += n;
    }
    return AN_OK;
}

an_status eval_tile(eval_ctx *c) /* every axis seen as (rep, extent): rep does not move in x */
{
    const shape *x = &c->in[0].type.sh, *o = &c->out[0].type.sh;
    int64_t n = t64_elems(&c->out[0]), own[MAX_RANK], idx[MAX_RANK] = { 0 };
    shape_strides(x, own);
    for (int64_t i = 0; i < n; i++) {
        int64_t from = 0;
        for (int k = 0; k < x->rank; k++) from += idx[k] % x->d[k] * own[k];
        c->out[0].x[i] = c->in[0].x[from];
        for (int k = o->rank - 1; k >= 0; k--) {
            if (++idx[k] < o->d[k]) break;
            idx[k] = 0;
        }
    }
    return AN_OK;
}

/* ---- slices: begin, stride and count of each axis ---- */

typedef struct {
    int64_t base, d[MAX_RANK], stride[MAX_RANK]; /* in elements of x */
} slice;

static int64_t clamp(int64_t x, int64_t lo, int64_t hi) { return x < lo ? lo : x > hi ? hi : x; }

/* As in numpy: negative places count from the end, places past an end are cut to it, an open end reaches the last
 * element in the direction of the stride. */
static an_status slice_by_index(const eval_ctx *c, const shape *x, slice *s)
{
    int64_t begin[MAX_RANK], end[MAX_RANK], step[MAX_RANK], open_b[MAX_RANK], open_e[MAX_RANK], one[MAX_RANK],
        st[MAX_RANK];
    TRY(at_ints(c, A_BEGIN, x->rank, begin));
    TRY(at_ints(c, A_END, x->rank, end));
    TRY(at_ints(c, A_STRIDE, x->rank, step));
    TRY(at_ints(c, A_BEGIN_MASK, x->rank, open_b));
    TRY(at_ints(c, A_END_MASK, x->rank, open_e));
    TRY(at_ints(c, A_SQUEEZE_MASK, x->rank, one));
    shape_strides(x, st);
    for (int i = 0; i < x->rank; i++) {
        int64_t n = x->d[i], k = step[i], lo = k > 0 ? 0 : -1, hi = k > 0 ? n : n - 1;
        if (k == 0) return eval_fail(c, "stride of axis %d is 0", i);
        int64_t b = begin[i] < 0 ? MAX(begin[i], -n - 1) + n : begin[i],
                e = end[i] < 0 ? MAX(end[i], -n - 1) + n : end[i];
        if (one[i]) { /* a plain index: the axis goes */
            if (open_b[i]) b = k > 0 ? 0 : n - 1;
            if (b < 0 || b >= n)
                return eval_fail(c, "index %lld is outside an extent of %lld", (long long)begin[i], (long long)n);
            s->base += b * st[i], s->d[i] = 1, s->stride[i] = 0;
            continue;
        }
        b = open_b[i] ? (k > 0 ? lo : hi) : clamp(b, lo, hi);
        e = open_e[i] ? (k > 0 ? hi : lo) : clamp(e, lo, hi);
        s->d[i] = MAX((int64_t)0, k > 0 ? (e - b + (k - 1)) / k : (b - e + (-k - 1)) / -k);
        s->base += s->d[i] ? b * st[i] : 0;
        s->stride[i] = s->d[i] > 1 ? k * st[i] : 0;
    }
    return AN_OK;
}

static an_status slice_by_size(const eval_ctx *c, const shape *x, slice *s)
{
    int64_t begin[MAX_RANK], size[MAX_RANK], st[MAX_RANK];
    TRY(at_ints(c, A_BEGIN, x->rank, begin));
    TRY(at_ints(c, A_SIZE, x->rank, size));
    shape_strides(x, st);
    for (int i = 0; i < x->rank; i++) {
        int64_t b = begin[i] < 0 ? begin[i] + x->d[i] : begin[i], n = size[i] == -1 ? x->d[i] - b : size[i];
        if (b < 0 || n < 0 || b > x->d[i] || n > x->d[i] - b)
            return eval_fail(c, "begin %lld size %lld is outside an extent of %lld", (long long)begin[i],
                             (long long)size[i], (long long)x->d[i]);
        s->base += b * st[i], s->d[i] = n, s->stride[i] = st[i];
    }
    return AN_OK;
}

an_status eval_slice(eval_ctx *c)
{
    const shape *x = &c->in[0].type.sh;
    slice s = { 0 };
    if (c->op == OP_SLICE_BY_SIZE) TRY(slice_by_size(c, x, &s));
    else TRY(slice_by_index(c, x, &s));
    return copy_view(c, s.d, x->rank, s.base, s.stride);
}

an_status eval_slice_update(eval_ctx *c)
{
    const shape *x = &c->in[0].type.sh;
    slice s = { 0 };
    TRY(slice_by_index(c, x, &s));
    TRY(eval_identity(c));
    shape part = shape_of(s.d, x->rank); /* the update without its squeezed axes has the same row-major order */
    int64_t own[MAX_RANK];
    shape_strides(&part, own);
    copy_box(s.d, x->rank, c->out[0].x, s.base, s.stride, c->in[1].x, 0, own);
    return AN_OK;
}

an_status eval_crop(eval_ctx *c)
{
    const shape *x = &c->in[0].type.sh, *o = &c->out[0].type.sh;
    int64_t h[2], w[2], st[MAX_RANK];
    TRY(at_ints(c, A_CROP_HEIGHT, 2, h));
    TRY(at_ints(c, A_CROP_WIDTH, 2, w));
    shape_strides(x, st);
    return copy_view(c, o->d, o->rank, h[0] * st[x->rank - 2] + w[0] * st[x->rank - 1], st);
}

/* ---- padding ---- */

enum { PAD_CONSTANT, PAD_REFLECT, PAD_REPLICATE, PAD_SYMMETRIC };

/* The element of 0 .. n-1 that stands at place p outside it; -1: the constant. */
static int64_t pad_source(int64_t p, int64_t n, int mode)
{
    if (p >= 0 && p < n) return p;
    if (mode == PAD_CONSTANT) return -1;
    if (mode == PAD_REPLICATE) return p < 0 ? 0 : n - 1;
    int64_t period = mode == PAD_SYMMETRIC ? 2 * n : MAX((int64_t)1, 2 * n - 2); /* reflect does not repeat the edge */
    p = (p % period + period) % period;
    if (p < n) return p;
    return mode == PAD_SYMMETRIC ? period - 1 - p : period - p;
}

an_status eval_pad(eval_ctx *c)
{
    static const char *const modes[] = { "constant", "reflect", "replicate", "symmetric" };
    const shape *x = &c->in[0].type.sh, *o = &c->out[0].type.sh;
    const attr *a = at_get(c, A_PAD);
    int mode;
    TRY(at_mode(c, A_MODE, modes, COUNT(modes), &mode));
    double fill = at_float(c, A_CONSTANT_VAL);
    int64_t before[MAX_RANK] = { 0 }, own[MAX_RANK], idx[MAX_RANK] = { 0 };
    /* pairs of the last axes */
    for (int i = 0; a && i + 1 < a->n; i += 2) before[x->rank - a->n / 2 + i / 2] = a->u.is[i];
    shape_strides(x, own);
    for (int64_t i = 0, n = t64_elems(&c->out[0]); i < n; i++) {
        int64_t from = 0;
        for (int k = 0; from >= 0 && k < x->rank; k++) {
            int64_t p = pad_source(idx[k] - before[k], x->d[k], mode);
            from = p < 0 ? -1 : from + p * own[k];
        }
        c->out[0].x[i] = from < 0 ? fill : c->in[0].x[from];
        for (int k = o->rank - 1; k >= 0; k--) {
            if (++idx[k] < o->d[k]) break;
            idx[k] = 0;
        }
    }
    return AN_OK;
}

/* ---- gathering: indices may be negative, never out of range ---- */

/* x (batch, before, axis, after), indices (batch, places), result (batch, before, places, after). */
an_status eval_gather(eval_ctx *c)
{
    const shape *x = &c->in[0].type.sh, *ix = &c->in[1].type.sh;
    int axis, b = (int)at_int(c, A_BATCH_DIMS);
    TRY(at_axis(c, A_AXIS, x->rank, &axis));
    if (b < 0 || b > axis || b > ix->rank)
        return eval_fail(c, "batch_dims %d is outside 0 .. %d", b, MIN(axis, ix->rank));
    int64_t batch = dims_prod(x->d, 0, b), before = dims_prod(x->d, b, axis), n = x->d[axis];
    int64_t after = dims_prod(x->d, axis + 1, x->rank), places = dims_prod(ix->d, b, ix->rank);
    double *y = c->out[0].x;
    for (int64_t i = 0; i < batch; i++)
        for (int64_t j = 0; j < before; j++)
            for (int64_t p = 0; p < places; p++, y += after) {
                int64_t k;
                TRY(index_in(c, c->in[1].x[i * places + p], n, &k));
                memcpy(y, c->in[0].x + ((i * before + j) * n + k) * after, (size_t)after * sizeof *y);
            }
    return AN_OK;
}

/* data (before, axis, after), indices (places), updates (before, places, after); later places win, or add up. */
an_status eval_scatter(eval_ctx *c)
{
    const shape *x = &c->in[0].type.sh, *ix = &c->in[1].type.sh;
    static const char *const modes[] = { "add", "update" };
    int axis, mode;
    TRY(at_axis(c, A_AXIS, x->rank, &axis));
    TRY(at_mode(c, A_MODE, modes, COUNT(modes), &mode));
    TRY(eval_identity(c));
    axis_view v = view_axis(x, axis);
    int64_t places = dims_prod(ix->d, 0, ix->rank);
    const double *u = c->in[2].x;
    for (int64_t i = 0; i < v.outer; i++)
        for (int64_t p = 0; p < places; p++, u += v.inner) {
            int64_t k;
            TRY(index_in(c, c->in[1].x[p], v.n, &k));
            double *y = c->out[0].x + (i * v.n + k) * v.inner;
            for (int64_t j = 0; j < v.inner; j++) y[j] = mode ? u[j] : y[j] + u[j];
        }
    return AN_OK;
}

an_status eval_gather_along_axis(eval_ctx *c) /* result[i][j][k] = x[i][indices[i][j][k]][k] */
{
    const shape *x = &c->in[0].type.sh;
    int axis;
    TRY(at_axis(c, A_AXIS, x->rank, &axis));
    axis_view v = view_axis(x, axis);
    int64_t m = c->in[1].type.sh.d[axis], at = 0;
    for (int64_t i = 0; i < v.outer; i++)
        for (int64_t j = 0; j < m; j++)
            for (int64_t k = 0; k < v.inner; k++, at++) {
                int64_t from;
                TRY(index_in(c, c->in[1].x[at], v.n, &from));
                c->out[0].x[at] = c->in[0].x[(i * v.n + from) * v.inner + k];
            }
    return AN_OK;
}

/* indices (batch, places, K): each row picks x[batch, i_0, ..., i_K-1] and everything behind it. */
an_status eval_gather_nd(eval_ctx *c)
{
    const shape *x = &c->in[0].type.sh, *ix = &c->in[1].type.sh;
    int b = (int)at_int(c, A_BATCH_DIMS), k = (int)ix->d[ix->rank - 1];
    if (b < 0 || b >= ix->rank || b + k > x->rank)
        return eval_fail(c, "batch_dims %d and %d indices do not fit rank %d", b, k, x->rank);
    int64_t batch = dims_prod(x->d, 0, b), places = dims_prod(ix->d, b, ix->rank - 1),
            after = dims_prod(x->d, b + k, x->rank);
    const double *row = c->in[1].x;
    double *y = c->out[0].x;
    for (int64_t i = 0; i < batch; i++)
        for (int64_t p = 0; p < places; p++, row += k, y += after) {
            int64_t from = i;
            for (int j = 0; j < k; j++) {
                int64_t at;
                TRY(index_in(c, row[j], x->d[b + j], &at));
                from = from * x->d[b + j] + at;
            }
            memcpy(y, c->in[0].x + from * after, (size_t)after * sizeof *y);
        }
    return AN_OK;
}

/* ---- rearrangements ----
 * A block of b x b pixels against b*b channels. depth_to_space counts the block first: channel = (i*b + j)*C + c.
 * pixel_shuffle counts it last: channel = c*b*b + i*b + j. The other two are their inverses. */

static an_status blocks(eval_ctx *c, int64_t b, bool to_space, bool block_first)
{
    const shape *deep = to_space ? &c->in[0].type.sh : &c->out[0].type.sh; /* the side with b*b times the channels */
    int64_t n = deep->d[0], ch = deep->d[1] / (b * b), h = deep->d[2], w = deep->d[3], hw = h * w;
    int64_t d[6] = { n, ch, h, b, w, b }; /* n, c, y, i, x, j: the order of the wide side */
    int64_t wide[6] = { ch * hw * b * b, hw * b * b, w * b * b, w * b, b, 1 };
    int64_t narrow[6] = { ch * b * b * hw, hw, w, b * ch * hw, 1, ch * hw };
    if (!block_first) narrow[1] = b * b * hw, narrow[3] = b * hw, narrow[5] = hw;
    if (to_space) copy_box(d, 6, c->out[0].x, 0, wide, c->in[0].x, 0, narrow);
    else copy_box(d, 6, c->out[0].x, 0, narrow, c->in[0].x, 0, wide);
    return AN_OK;
}

an_status eval_depth_to_space(eval_ctx *c) { return blocks(c, at_int(c, A_BLOCK_SIZE), true, true); }
an_status eval_space_to_depth(eval_ctx *c) { return blocks(c, at_int(c, A_BLOCK_SIZE), false, true); }
an_status eval_pixel_shuffle(eval_ctx *c) { return blocks(c, at_int(c, A_UPSCALE_FACTOR), true, false); }
an_status eval_pixel_unshuffle(eval_ctx *c) { return blocks(c, at_int(c, A_DOWNSCALE_FACTOR), false, false); }

/* Spatial place p of the wide side is block place p % b at p / b; the batch counts block places before images:
 * batch' = (place in block) * N + n. Places in the padding are zero; cropped ones are dropped. */
static an_status batch_space(eval_ctx *c, bool to_batch)
{
    const shape *wide = to_batch ? &c->in[0].type.sh : &c->out[0].type.sh,
                *deep = to_batch ? &c->out[0].type.sh : &c->in[0].type.sh;
    int m = wide->rank - 2;
    int64_t block[MAX_RANK], edge[2 * MAX_RANK], idx[MAX_RANK] = { 0 };
    TRY(at_ints(c, A_BLOCK_SHAPE, m, block));
    TRY(at_ints(c, to_batch ? A_PADDINGS : A_CROPS, 2 * m, edge));
    for (int64_t i = 0, n = dims_prod(wide->d, 0, wide->rank); i < n; i++) {
        int64_t within = 0, at = 0;
        for (int k = 0; k < m; k++) {
            int64_t p = idx[k + 2] + edge[2 * k]; /* place in the padded or uncropped extent */
            within = within * block[k] + p % block[k];
            at = at * deep->d[k + 2] + p / block[k];
        }
        int64_t plane = (within * wide->d[0] + idx[0]) * wide->d[1] + idx[1];
        int64_t j = plane * dims_prod(deep->d, 2, deep->rank) + at;
        if (to_batch) c->out[0].x[j] = c->in[0].x[i];
        else c->out[0].x[i] = c->in[0].x[j];
        for (int k = wide->rank - 1; k >= 0; k--) {
            if (++idx[k] < wide->d[k]) break;
            idx[k] = 0;
        }
    }
    return AN_OK;
}

an_status eval_space_to_batch(eval_ctx *c) { return batch_space(c, true); }
an_status eval_batch_to_space(eval_ctx *c) { return batch_space(c, false); }
