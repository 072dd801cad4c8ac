/* select_norm.c: operations that look along axes: norms, softmax, reductions, running sums, sorting; and resampling. */
#include "codegen/codegen_int.h"

static int result(cg *c, int k) { return cg_tensor(c, cg_dt(c, cg_out_type(c, k)->dt), &cg_out_type(c, k)->sh); }

static int list_axes(const bool *on, int rank, int64_t *out)
{
    int n = 0;
    for (int i = 0; i < rank; i++)
        if (on[i]) out[n++] = i;
    return n;
}

/* ---- reductions ---- */

static int reduce(cg *c, int x, dtype dt, const shape *o, const bool *on, red_kind kind)
{
    if (c->err.st || x < 0) return NONE;
    int64_t axes[MAX_RANK];
    int n = list_axes(on, cg_sh(c, x)->rank, axes);
    shape keep = *cg_sh(c, x); /* with ones: the form every reader agrees on */
    for (int i = 0; i < n; i++) keep.d[axes[i]] = 1;
    int y = cg_tensor(c, dt, &keep);
    ins *k = cg_ins(c, IN_REDUCE, y, OPS(x));
    cg_is(c, k, axes, n);
    cg_i(c, k, kind);
    return cg_view(c, y, o);
}

static void select_reduce(cg *c, red_kind kind)
{
    bool on[MAX_RANK];
    int x = cg_in(c, 0);
    const ttype *o = cg_out_type(c, 0);
    if (!cg_axes(c, A_AXES, cg_in_type(c, 0)->sh.rank, on)) return;
    dtype dt = cg_dt(c, o->dt);
    if (kind == RED_SUM_SQUARE && c->soft) { /* two passes: the squares are rounded */
        x = cg_ew(c, dt, &cg_in_type(c, 0)->sh, FN_SQUARE, &x, 1, NULL);
        kind = RED_SUM;
    }
    cg_set(c, 0, reduce(c, x, dt, &o->sh, on, kind));
}

void select_reduce_sum(cg *c) { select_reduce(c, RED_SUM); }
void select_reduce_mean(cg *c) { select_reduce(c, RED_MEAN); }
void select_reduce_max(cg *c) { select_reduce(c, RED_MAX); }
void select_reduce_min(cg *c) { select_reduce(c, RED_MIN); }
void select_reduce_sum_square(cg *c) { select_reduce(c, RED_SUM_SQUARE); }
void select_reduce_l1_norm(cg *c) { select_reduce(c, RED_L1); }
void select_reduce_l2_norm(cg *c) { select_reduce(c, RED_L2); }
void select_reduce_log_sum(cg *c) { select_reduce(c, RED_LOG_SUM); }
void select_reduce_log_sum_exp(cg *c) { select_reduce(c, RED_LOG_SUM_EXP); }

static void arg(cg *c, bool least)
{
    int axis;
    if (!cg_axis(c, A_AXIS, cg_in_type(c, 0)->sh.rank, &axis)) return;
    shape keep = cg_in_type(c, 0)->sh;
    keep.d[axis] = 1;
    int y = cg_tensor(c, cg_out_type(c, 0)->dt, &keep);
    ins *n = cg_ins(c, IN_ARG, y, OPS(cg_in(c, 0)));
    cg_i(c, n, axis);
    cg_i(c, n, least);
    cg_set(c, 0, y);
}

void select_reduce_argmax(cg *c) { arg(c, false); }
void select_reduce_argmin(cg *c) { arg(c, true); }

/* ---- lines ---- */

void select_softmax(cg *c)
{
    int axis, y = result(c, 0);
    if (!cg_axis(c, A_AXIS, cg_in_type(c, 0)->sh.rank, &axis)) return;
    cg_i(c, cg_ins(c, IN_SOFTMAX, y, OPS(cg_in(c, 0))), axis);
    cg_set(c, 0, y);
}

void select_cumsum(cg *c)
{
    int axis, y = result(c, 0);
    if (!cg_axis(c, A_AXIS, cg_in_type(c, 0)->sh.rank, &axis)) return;
    ins *n = cg_ins(c, IN_CUMSUM, y, OPS(cg_in(c, 0)));
    cg_i(c, n, axis);
    cg_i(c, n, at_bool(c, A_EXCLUSIVE));
    cg_i(c, n, at_bool(c, A_REVERSE));
    cg_set(c, 0, y);
}

static void sort(cg *c, int values, int indices, int64_t count)
{
    int axis;
    if (!cg_axis(c, A_AXIS, cg_in_type(c, 0)->sh.rank, &axis)) return;
    ins *n = cg_ins(c, IN_SORT, values >= 0 ? values : indices, OPS(cg_in(c, 0)));
    if (!n) return;
    n->n_y = 2, n->y[0] = values, n->y[1] = indices;
    if (values >= 0 && indices >= 0) c->t.at[indices].n_def++;
    cg_i(c, n, axis);
    cg_i(c, n, at_bool(c, A_ASCENDING));
    cg_i(c, n, count);
    if (values >= 0) cg_set(c, 0, values);
    if (indices >= 0) cg_set(c, values >= 0, indices);
}

void select_topk(cg *c) /* sort=false leaves the order open, so sorted is right for it too */
{
    int axis;
    if (!cg_axis(c, A_AXIS, cg_in_type(c, 0)->sh.rank, &axis)) return;
    sort(c, result(c, 0), c->at->n_out > 1 ? result(c, 1) : NONE, cg_out_type(c, 0)->sh.d[axis]);
}

void select_argsort(cg *c)
{
    int axis;
    if (!cg_axis(c, A_AXIS, cg_in_type(c, 0)->sh.rank, &axis)) return;
    sort(c, NONE, result(c, 0), cg_in_type(c, 0)->sh.d[axis]);
}

/* ---- norms ---- */

static void norm(cg *c, int x, int gain, int bias, const bool *on, norm_kind kind)
{
    if (c->err.st) return;
    int64_t axes[MAX_RANK];
    int n = list_axes(on, cg_sh(c, x)->rank, axes);
    shape s = *cg_sh(c, x);
    int y = cg_tensor(c, cg_dt(c, cg_out_type(c, 0)->dt), &s);
    ins *k = cg_ins(c, IN_NORM, y, OPS(x, gain, bias));
    cg_is(c, k, axes, n);
    cg_i(c, k, kind);
    cg_f(k, at_float(c, A_EPSILON));
    cg_set(c, 0, y);
}

void select_layer_norm(cg *c) /* gamma and beta have the extents of the normalised axes */
{
    bool on[MAX_RANK];
    int x = cg_in(c, 0), gain = cg_in(c, 1), bias = cg_in(c, 2);
    if (!cg_axes(c, A_AXES, cg_in_type(c, 0)->sh.rank, on)) return;
    shape s = cg_in_type(c, 0)->sh;
    for (int i = 0; i < s.rank; i++)
        if (!on[i]) s.d[i] = 1;
    norm(c, x, gain < 0 ? NONE : cg_view(c, gain, &s), bias < 0 ? NONE : cg_view(c, bias, &s), on, NORM_LAYER);
}

void select_instance_norm(cg *c)
{
    shape s = cg_in_type(c, 0)->sh;
    if (s.rank == 2) s.d[s.rank++] = 1; /* one place per channel */
    bool on[MAX_RANK];
    for (int i = 0; i < s.rank; i++) on[i] = i >= 2;
    int gain = have(c, 1) ? cg_channel(c, cg_in(c, 1), s.rank) : NONE,
        bias = have(c, 2) ? cg_channel(c, cg_in(c, 2), s.rank) : NONE;
    norm(c, cg_view(c, cg_in(c, 0), &s), gain, bias, on, NORM_LAYER);
}

void select_l2_norm(cg *c) /* over the last three axes */
{
    bool on[MAX_RANK];
    int rank = cg_in_type(c, 0)->sh.rank;
    for (int i = 0; i < rank; i++) on[i] = i >= rank - 3;
    norm(c, cg_in(c, 0), NONE, NONE, on, NORM_L2);
}

/* y = x*s + t with s = gamma / sqrt(var + eps) and t = beta - mean*s, per channel, as the engine's gain and offset
 * take it. s and t are made from the parameters unrounded and rounded once, as a compiler folding them would. */
void select_batch_norm(cg *c)
{
    const shape *o = &cg_out_type(c, 0)->sh;
    dtype dt = cg_dt(c, cg_out_type(c, 0)->dt), wide = cg_wide(dt);
    int mean = cg_in(c, 1), var = cg_in(c, 2), gamma = cg_in(c, 3), beta = cg_in(c, 4);
    double eps[2] = { at_float(c, A_EPSILON), 0 }, minus[2] = { -1, 0 };
    if (c->err.st) return;
    shape ch = SHAPE(cg_elems(cg_sh(c, mean)));
    int st[2];
    for (int k = 0; k < 2; k++) {
        st[k] = cg_tensor(c, dt, &ch);
        ins *n = cg_ins(c, IN_EW, st[k], NULL, 0);
        int v = cg_ext(c, n, var), g = cg_ext(c, n, gamma), m = k ? cg_ext(c, n, mean) : NONE,
            b = k ? cg_ext(c, n, beta) : NONE;
        if (!n) return;
        int at = n->n_ext; /* number of the next step's result */
        cg_step(c, n, FN_RSQRT, v, NONE, NONE, eps, k || g >= 0 ? wide : dt);
        if (g >= 0) cg_step(c, n, FN_MUL, at, g, NONE, NULL, k ? wide : dt), at++;
        if (k) cg_step(c, n, FN_MUL, at, m, NONE, NULL, wide), at++;
        if (k && b >= 0) cg_step(c, n, FN_SUB, b, at, NONE, NULL, dt);
        else if (k) cg_step(c, n, FN_AFFINE, at, NONE, NONE, minus, dt);
    }
    int s = cg_channel(c, st[0], o->rank), t = cg_channel(c, st[1], o->rank), y = cg_tensor(c, dt, o);
    ins *n = cg_ins(c, IN_EW, y, NULL, 0);
    int x = cg_ext(c, n, cg_in(c, 0)), a = cg_ext(c, n, s), b = cg_ext(c, n, t);
    cg_step(c, n, FN_MUL, x, a, NONE, NULL, wide);
    cg_step(c, n, FN_ADD, n ? n->n_ext : NONE, b, NONE, NULL, dt);
    cg_set(c, 0, y);
}

void select_local_response_norm(cg *c)
{
    int y = result(c, 0);
    ins *n = cg_ins(c, IN_LRN, y, OPS(cg_in(c, 0)));
    cg_i(c, n, at_int(c, A_SIZE));
    cg_f(n, at_float(c, A_ALPHA));
    cg_f(n, at_float(c, A_BETA));
    cg_f(n, at_float(c, A_K));
    cg_set(c, 0, y);
}

/* ---- resampling ---- */

static const char *const grid_words[] = { [GRID_DEFAULT] = "DEFAULT",
                                          [GRID_STRICT_ALIGN] = "STRICT_ALIGN_CORNERS",
                                          [GRID_ALIGN] = "ALIGN_CORNERS",
                                          [GRID_OFFSET] = "OFFSET_CORNERS",
                                          [GRID_UNALIGN] = "UNALIGN_CORNERS" };

static int resize(cg *c, int x, const shape *o, bool linear, int grid)
{
    if (c->err.st || x < 0) return NONE;
    int y = cg_tensor(c, c->t.at[x].dt, o);
    ins *n = cg_ins(c, IN_RESIZE, y, OPS(x));
    cg_i(c, n, linear);
    cg_i(c, n, grid);
    return y;
}

/* An axis that is neither height nor width: brought to the height, with a width of one beside it, and taken back. */
static int resize_axis(cg *c, int x, int axis, int64_t n, bool linear, int grid)
{
    if (c->err.st || x < 0) return NONE;
    shape s = *cg_sh(c, x), o = s;
    int64_t outer = cg_prod(s.d, 0, axis), inner = cg_prod(s.d, axis + 1, s.rank);
    o.d[axis] = n;
    int t = cg_permute(c, cg_view(c, x, SH(outer, s.d[axis], inner)), (const int[]){ 0, 2, 1 });
    t = resize(c, cg_view(c, t, SH(outer, inner, s.d[axis], 1)), SH(outer, inner, n, 1), linear, grid);
    return cg_view(c, cg_permute(c, cg_view(c, t, SH(outer, inner, n)), (const int[]){ 0, 2, 1 }), &o);
}

void select_resize(cg *c)
{
    static const char *const modes[] = { "LINEAR", "NEAREST_NEIGHBOR" };
    op_id op = c->at->op;
    const shape *o = &cg_out_type(c, 0)->sh;
    int grid = GRID_DEFAULT, nearest = op == OP_RESIZE_NEAREST || op == OP_UPSAMPLE_NEAREST, x = cg_in(c, 0);
    if (op == OP_RESIZE && !cg_word(c, A_MODE, modes, COUNT(modes), &nearest)) return;
    if ((op == OP_RESIZE || op == OP_RESIZE_BILINEAR) &&
        !cg_word(c, A_SAMPLING_MODE, grid_words, COUNT(grid_words), &grid))
        return;
    if (op == OP_UPSAMPLE_BILINEAR) grid = at_bool(c, A_ALIGN_CORNERS) ? GRID_STRICT_ALIGN : GRID_UNALIGN;
    for (int i = 0; i < o->rank - 2; i++)
        if (cg_in_type(c, 0)->sh.d[i] != o->d[i]) x = resize_axis(c, x, i, o->d[i], !nearest, grid);
    if (o->rank >= 2) {
        cg_set(c, 0, resize(c, x, o, !nearest, grid));
        return;
    }
    if (o->rank == 1) {
        cg_set(c, 0, resize_axis(c, x, 0, o->d[0], !nearest, grid));
        return;
    }
    cg_set(c, 0, x);
}

/* Every form of boxes becomes [N, 4] with the image's number beside it. */
void select_crop_resize(cg *c)
{
    static const char *const modes[] = { "CORNERS_HEIGHT_FIRST", "CORNERS_WIDTH_FIRST", "CENTER_SIZE_HEIGHT_FIRST",
                                         "CENTER_SIZE_WIDTH_FIRST" };
    const shape *o = &cg_out_type(c, 0)->sh, *b = &cg_in_type(c, 1)->sh;
    int grid, mode, boxes = cg_in(c, 1), which;
    if (!cg_word(c, A_SAMPLING_MODE, grid_words, COUNT(grid_words), &grid) ||
        !cg_word(c, A_BOX_COORDINATE_MODE, modes, COUNT(modes), &mode))
        return;
    int64_t n = b->d[0], coords = b->rank == 2 ? b->d[1] : b->d[2], each = o->rank == 5 ? o->d[1] : 1,
            one[2] = { 4, 1 };
    if (coords == 5 && each != 1) {
        cg_fail(c, AN_INPUT, "boxes name one image each, but the result has %lld per box", (long long)each);
        return;
    }
    if (c->err.st) return;
    dtype dt = c->t.at[boxes].dt;
    if (coords == 5) {
        int first = cg_tensor(c, dt, SH(n)), rest = cg_tensor(c, dt, SH(n, 4));
        cg_move(c, first, boxes, 1, &n, 0, (const int64_t[]){ 1 }, 0, (const int64_t[]){ 5 }, false);
        cg_move(c, rest, boxes, 2, (const int64_t[]){ n, 4 }, 0, one, 1, (const int64_t[]){ 5, 1 }, false);
        which = cg_cast(c, first, DT_I32);
        boxes = rest;
    } else if (each > 1) {
        int all = cg_tensor(c, dt, SH(n * each, 4));
        cg_move(c, all, boxes, 3, (const int64_t[]){ n, each, 4 }, 0, (const int64_t[]){ 4 * each, 4, 1 }, 0,
                (const int64_t[]){ 4, 0, 1 }, false);
        which = cg_iota(c, n * each, each);
        boxes = all;
    } else {
        which = have(c, 2) ? cg_in(c, 2) : cg_iota(c, n, o->rank == 5 ? 1 : n);
        boxes = cg_view(c, boxes, SH(n, 4));
    }
    int y = cg_tensor(c, cg_dt(c, cg_out_type(c, 0)->dt),
                      SH(n * each, o->d[o->rank - 3], o->d[o->rank - 2], o->d[o->rank - 1]));
    ins *k = cg_ins(c, IN_CROP_RESIZE, y, OPS(cg_in(c, 0), boxes, which));
    cg_i(c, k, 1);
    cg_i(c, k, grid);
    cg_i(c, k, at_bool(c, A_NORMALIZED_COORDINATES));
    cg_i(c, k, mode);
    cg_f(k, at_float(c, A_SPATIAL_SCALE));
    cg_f(k, at_float(c, A_PADDING_VALUE));
    cg_set(c, 0, y);
}

static void sample(cg *c, insn_id op)
{
    static const char *const how[] = { "bilinear", "nearest" }, *const edges[] = { "constant", "border", "reflection",
                                                                                   "symmetric" };
    static const char *const spaces[] = { "unnormalized", "normalized_minus_one_to_one", "normalized_zero_to_one" };
    int nearest, edge, coords, y = result(c, 0);
    if (!cg_word(c, A_SAMPLING_MODE, how, COUNT(how), &nearest) ||
        !cg_word(c, A_PADDING_MODE, edges, COUNT(edges), &edge) ||
        !cg_word(c, A_COORDINATES_MODE, spaces, COUNT(spaces), &coords))
        return;
    ins *n = cg_ins(c, op, y, OPS(cg_in(c, 0), cg_in(c, 1)));
    cg_i(c, n, !nearest);
    cg_i(c, n, edge);
    cg_i(c, n, coords);
    cg_i(c, n, at_bool(c, A_ALIGN_CORNERS));
    cg_f(n, at_float(c, A_PADDING_VALUE));
    cg_set(c, 0, y);
}

void select_resample(cg *c) { sample(c, IN_RESAMPLE); }
void select_affine(cg *c) { sample(c, IN_WARP); }
