/* infer_image.c: shapes of rearrangements between channels, batch and space, and of resampling. */
#include <math.h>

#include "graph/infer_int.h"

static an_status divide(infer *c, int k, int64_t x, int64_t by, int64_t *out)
{
    if (x < 0) return *out = DIM_UNKNOWN, AN_OK;
    if (by < 1 || x % by)
        return infer_fail(c, "x is %s: extent %lld of dimension %d is not a multiple of %lld", show_type(&c->in[0]).s,
                          (long long)x, k, (long long)by);
    *out = x / by;
    return AN_OK;
}

/* Channels become f x f pixels, or the other way round. x is [N, C, H, W]. */
static an_status channels_space(infer *c, attr_id factor, bool to_space)
{
    TRY(need_rank(c, 0, 4, 4));
    shape o = *sh(c, 0);
    int64_t f = get_int(c, factor), ff;
    TRY(dim_mul(c, f, f, &ff));
    if (to_space) TRY(divide(c, 1, o.d[1], ff, &o.d[1]));
    else TRY(dim_mul(c, o.d[1], ff, &o.d[1]));
    for (int i = 2; i < 4; i++)
        if (to_space) TRY(dim_mul(c, o.d[i], f, &o.d[i]));
        else TRY(divide(c, i, o.d[i], f, &o.d[i]));
    return put_shape(c, &o);
}

an_status infer_depth_to_space(infer *c) { return channels_space(c, A_BLOCK_SIZE, true); }
an_status infer_space_to_depth(infer *c) { return channels_space(c, A_BLOCK_SIZE, false); }
an_status infer_pixel_shuffle(infer *c) { return channels_space(c, A_UPSCALE_FACTOR, true); }
an_status infer_pixel_unshuffle(infer *c) { return channels_space(c, A_DOWNSCALE_FACTOR, false); }

/* x [N, C, spatial...]: blocks of the spatial dimensions move to or from the batch. */
static an_status batch_space(infer *c, bool to_batch)
{
    shape o = *sh(c, 0);
    TRY(need_rank(c, 0, 3, MAX_RANK));
    int m = o.rank - 2;
    int64_t block[MAX_RANK], edge[2 * MAX_RANK], n = 1;
    TRY(get_list(c, A_BLOCK_SHAPE, m, block));
    TRY(get_list(c, to_batch ? A_PADDINGS : A_CROPS, 2 * m, edge));
    for (int i = 0; i < m; i++) {
        int64_t *d = &o.d[2 + i], sides = edge[2 * i] + edge[2 * i + 1];
        TRY(dim_mul(c, n, block[i], &n));
        if (to_batch) {
            if (*d >= 0) *d += sides;
            TRY(divide(c, 2 + i, *d, block[i], d));
        } else {
            TRY(dim_mul(c, *d, block[i], d));
            if (*d >= 0 && sides >= *d)
                return infer_fail(c, "crops of %lld leave nothing of spatial dimension %d with extent %lld",
                                  (long long)sides, i, (long long)*d);
            if (*d >= 0) *d -= sides;
        }
    }
    if (to_batch) TRY(dim_mul(c, o.d[0], n, &o.d[0]));
    else TRY(divide(c, 0, o.d[0], n, &o.d[0]));
    return put_shape(c, &o);
}

an_status infer_space_to_batch(infer *c) { return batch_space(c, true); }
an_status infer_batch_to_space(infer *c) { return batch_space(c, false); }

/* ---- resampling: the last two dimensions are height and width ---- */

static an_status put_hw(infer *c, int64_t h, int64_t w)
{
    shape o = *sh(c, 0);
    TRY(need_rank(c, 0, 3, MAX_RANK));
    o.d[o.rank - 2] = h;
    o.d[o.rank - 1] = w;
    return put_shape(c, &o);
}

an_status infer_resize(infer *c) /* shape: the last extents; 0 keeps x's */
{
    shape o = *sh(c, 0);
    int n;
    int64_t want[MAX_RANK];
    TRY(get_some(c, A_SHAPE, MAX(o.rank, 1), &n, want));
    TRY(need_min(c, A_SHAPE, want, n, 0));
    if (n > o.rank) return infer_fail(c, "shape has %d entries, x is %s", n, show_type(&c->in[0]).s);
    for (int i = 0; i < n; i++)
        if (want[i]) o.d[o.rank - n + i] = want[i];
    return put_shape(c, &o);
}

an_status infer_resize_to(infer *c)
{
    return put_hw(c, get_int(c, A_TARGET_SIZE_HEIGHT), get_int(c, A_TARGET_SIZE_WIDTH));
}

static an_status scaled(infer *c, int64_t x, attr_id a, int64_t *out)
{
    double f = get_float(c, a);
    if (!(f > 0) || !isfinite(f)) return infer_fail(c, "%s is %g, wanted a positive number", attr_name(a), f);
    if (x < 0) return *out = DIM_UNKNOWN, AN_OK;
    double y = floor((double)x * f);
    if (y < 1 || y > (double)EXTENT_MAX)
        return infer_fail(c, "%s %g takes extent %lld to %g", attr_name(a), f, (long long)x, y);
    *out = (int64_t)y;
    return AN_OK;
}

an_status infer_upsample(infer *c)
{
    int64_t h, w;
    const shape *x = sh(c, 0);
    TRY(need_rank(c, 0, 3, MAX_RANK));
    TRY(scaled(c, x->d[x->rank - 2], A_SCALE_FACTOR_HEIGHT, &h));
    TRY(scaled(c, x->d[x->rank - 1], A_SCALE_FACTOR_WIDTH, &w));
    return put_hw(c, h, w);
}

/* Boxes are [N, 4] (or [N, 5], the image's number first), or the older [N, 1, 4 or 5, 1, 1] that crops every image. */
an_status infer_crop_resize(infer *c)
{
    TRY(need_rank(c, 0, 4, 4));
    const shape *x = sh(c, 0), *b = sh(c, 1);
    int64_t h = get_int(c, A_TARGET_HEIGHT), w = get_int(c, A_TARGET_WIDTH);
    bool flat = b->rank == 2, old = b->rank == 5 && b->d[1] == 1 && b->d[3] == 1 && b->d[4] == 1;
    int64_t coords = flat ? b->d[1] : old ? b->d[2] : 0;
    if (coords != 4 && coords != 5)
        return infer_fail(c, "boxes is %s, wanted [N, 4], [N, 5], [N, 1, 4, 1, 1] or [N, 1, 5, 1, 1]",
                          show_type(&c->in[1]).s);
    if (has(c, 2)) {
        if (!flat || coords != 4)
            return infer_fail(c, "box_indices is given but boxes is %s, wanted [N, 4]", show_type(&c->in[1]).s);
        TRY(need_vector(c, 2, b->d[0], "boxes"));
    } else if (flat && coords == 4 && x->d[0] >= 0 && b->d[0] > x->d[0]) {
        return infer_fail(c, "boxes is %s without box_indices, but x is %s: box i is cut from image i",
                          show_type(&c->in[1]).s, show_type(&c->in[0]).s);
    }
    shape o = flat ? SHAPE(b->d[0], x->d[1], h, w) : SHAPE(b->d[0], x->d[0], x->d[1], h, w);
    return put_shape(c, &o);
}

an_status infer_resample(infer *c) /* coordinates [N, H, W, 2] */
{
    TRY(need_rank(c, 0, 4, 4));
    TRY(need_rank(c, 1, 4, 4));
    const shape *x = sh(c, 0), *p = sh(c, 1);
    if (!dim_agree(x->d[0], p->d[0]) || !dim_agree(p->d[3], 2))
        return infer_fail(c, "coordinates is %s, wanted [%lld, height, width, 2]", show_type(&c->in[1]).s,
                          (long long)x->d[0]);
    shape o = SHAPE(dim_known(x->d[0], p->d[0]), x->d[1], p->d[1], p->d[2]);
    return put_shape(c, &o);
}

an_status infer_affine(infer *c) /* transform_matrix [N or 1, 6] */
{
    TRY(need_rank(c, 0, 4, 4));
    TRY(need_rank(c, 1, 2, 2));
    const shape *x = sh(c, 0), *m = sh(c, 1);
    if ((m->d[0] != 1 && !dim_agree(m->d[0], x->d[0])) || !dim_agree(m->d[1], 6))
        return infer_fail(c, "transform_matrix is %s, wanted [%lld, 6] or [1, 6]", show_type(&c->in[1]).s,
                          (long long)x->d[0]);
    return put_hw(c, get_int(c, A_OUTPUT_HEIGHT), get_int(c, A_OUTPUT_WIDTH));
}
