/* eval_image.c: sampling between the pixels: the resize family, crop_resize, resample, affine.
 * In: an eval_ctx.  Out: one result. The last two axes are height and width.
 *
 * Where to sample is one question (a grid point per output place), how to read there another (two neighbours
 * weighted by distance, or the nearest one). Grid points lie in the interval [a, b] they are taken from. */
#include <math.h>

#include "base/plane.h"
#include "graph/eval_int.h"

static const char *const grid_words[] = { "DEFAULT", "STRICT_ALIGN_CORNERS", "ALIGN_CORNERS", "OFFSET_CORNERS",
                                          "UNALIGN_CORNERS" };

/* ---- resize: one axis at a time ---- */

static void resize_axis(const double *x, double *y, axis_view v, int64_t n, grid_kind grid, bool nearest)
{
    for (int64_t o = 0; o < v.outer; o++)
        for (int64_t i = 0; i < n; i++, y += v.inner) {
            if (nearest) {
                memcpy(y, x + (o * v.n + grid_nearest(v.n, i, n, grid)) * v.inner, (size_t)v.inner * sizeof *y);
                continue;
            }
            double p = grid_point(0, (double)(v.n - 1), i, n, grid), f = floor(p), t = p - f;
            int64_t lo = (int64_t)f, hi = MIN(lo + 1, v.n - 1);
            const double *l = x + (o * v.n + lo) * v.inner, *h = x + (o * v.n + hi) * v.inner;
            /* By weights, and on a pixel that pixel alone: an infinite neighbour is not read, an infinite pixel
             * stays one. */
            for (int64_t j = 0; j < v.inner; j++) y[j] = t > 0 ? l[j] * (1 - t) + h[j] * t : l[j];
        }
}

an_status eval_resize(eval_ctx *c)
{
    static const char *const modes[] = { "LINEAR", "NEAREST_NEIGHBOR" };
    const shape *o = &c->out[0].type.sh;
    int grid = GRID_DEFAULT, nearest = c->op == OP_RESIZE_NEAREST || c->op == OP_UPSAMPLE_NEAREST;
    if (c->op == OP_RESIZE) TRY(at_mode(c, A_MODE, modes, COUNT(modes), &nearest));
    if (c->op == OP_RESIZE || c->op == OP_RESIZE_BILINEAR)
        TRY(at_mode(c, A_SAMPLING_MODE, grid_words, COUNT(grid_words), &grid));
    if (c->op == OP_UPSAMPLE_BILINEAR) grid = at_bool(c, A_ALIGN_CORNERS) ? GRID_STRICT_ALIGN : GRID_UNALIGN;
    arena_mark m = arena_save(c->mem);
    shape s = c->in[0].type.sh;
    const double *x = c->in[0].x;
    /* Height and width are always sampled (OFFSET_CORNERS moves points even at equal size), other axes when they
     * change. */
    for (int i = 0; i < s.rank; i++) {
        if (i < s.rank - 2 && s.d[i] == o->d[i]) continue;
        axis_view v = view_axis(&s, i);
        double *y = t64_scratch(c, v.outer * o->d[i] * v.inner);
        if (!y) return diag_nomem(c->d);
        resize_axis(x, y, v, o->d[i], (grid_kind)grid, nearest);
        s.d[i] = o->d[i], x = y;
    }
    memcpy(c->out[0].x, x, (size_t)t64_elems(&c->out[0]) * sizeof *x);
    arena_back(c->mem, m);
    return AN_OK;
}

/* ---- crop_resize ---- */

/* Points outside the image take padding_value. Boxes of four cut image box_indices[i] (or image i), boxes of five
 * start with the image's number; the rank-5 form of four cuts every image. */
an_status eval_crop_resize(eval_ctx *c)
{
    static const char *const modes[] = { "CORNERS_HEIGHT_FIRST", "CORNERS_WIDTH_FIRST", "CENTER_SIZE_HEIGHT_FIRST",
                                         "CENTER_SIZE_WIDTH_FIRST" };
    const shape *x = &c->in[0].type.sh, *b = &c->in[1].type.sh, *o = &c->out[0].type.sh;
    int grid, mode;
    TRY(at_mode(c, A_SAMPLING_MODE, grid_words, COUNT(grid_words), &grid));
    TRY(at_mode(c, A_BOX_COORDINATE_MODE, modes, COUNT(modes), &mode));
    /* images per box */
    int64_t n = b->d[0], coords = b->rank == 2 ? b->d[1] : b->d[2], each = o->rank == 5 ? o->d[1] : 1;
    int64_t ch = x->d[1], h = x->d[2], w = x->d[3], th = o->d[o->rank - 2], tw = o->d[o->rank - 1];
    bool numbered = coords == 5, norm = at_bool(c, A_NORMALIZED_COORDINATES);
    if (numbered && each != 1)
        return eval_fail(c, "boxes name one image each, but the result has %lld per box", (long long)each);
    double scale = at_float(c, A_SPATIAL_SCALE), fill = at_float(c, A_PADDING_VALUE), *y = c->out[0].x;
    plane_sampler s = { .h = h, .w = w, .edge = EDGE_BORDER };
    for (int64_t i = 0; i < n; i++) {
        const double *q = c->in[1].x + i * coords;
        plane_box r = plane_read_box(q + numbered, (box_kind)mode, scale * (norm ? (double)(h - 1) : 1),
                                     scale * (norm ? (double)(w - 1) : 1));
        for (int64_t e = 0; e < each; e++) {
            int64_t image;
            double which = numbered ? q[0] : o->rank == 5 ? (double)e : has(c, 2) ? c->in[2].x[i] : (double)i;
            TRY(index_in(c, which, x->d[0], &image));
            for (int64_t k = 0; k < ch; k++)
                for (int64_t u = 0; u < th; u++)
                    for (int64_t v = 0; v < tw; v++) {
                        double py = grid_point(r.y0, r.y1, u, th, (grid_kind)grid),
                               px = grid_point(r.x0, r.x1, v, tw, (grid_kind)grid);
                        bool inside = py >= 0 && py <= (double)(h - 1) && px >= 0 && px <= (double)(w - 1);
                        *y++ = inside ? plane_sample(&s, c->in[0].x + (image * ch + k) * h * w, py, px) : fill;
                    }
        }
    }
    return AN_OK;
}

/* ---- resample and affine ---- */

static an_status read_sampler(const eval_ctx *c, plane_sampler *s, coord_kind *coords, bool *align)
{
    static const char *const how[] = { "bilinear", "nearest" }, *const edges[] = { "constant", "border", "reflection",
                                                                                   "symmetric" };
    static const char *const spaces[] = { "unnormalized", "normalized_minus_one_to_one", "normalized_zero_to_one" };
    int nearest, edge, space;
    TRY(at_mode(c, A_SAMPLING_MODE, how, COUNT(how), &nearest));
    TRY(at_mode(c, A_PADDING_MODE, edges, COUNT(edges), &edge));
    TRY(at_mode(c, A_COORDINATES_MODE, spaces, COUNT(spaces), &space));
    s->nearest = nearest, s->edge = (edge_kind)edge, *coords = (coord_kind)space;
    s->fill = at_float(c, A_PADDING_VALUE);
    s->h = c->in[0].type.sh.d[2], s->w = c->in[0].type.sh.d[3];
    *align = at_bool(c, A_ALIGN_CORNERS);
    return AN_OK;
}

an_status eval_resample(eval_ctx *c) /* coordinates (N, H', W', 2), each an (x, y) */
{
    const shape *x = &c->in[0].type.sh, *o = &c->out[0].type.sh;
    plane_sampler s = { 0 };
    coord_kind coords;
    bool align;
    TRY(read_sampler(c, &s, &coords, &align));
    int64_t places = o->d[2] * o->d[3];
    double *y = c->out[0].x;
    for (int64_t b = 0; b < x->d[0]; b++)
        for (int64_t k = 0; k < x->d[1]; k++)
            for (int64_t i = 0; i < places; i++) {
                const double *p = c->in[1].x + (b * places + i) * 2;
                *y++ =
                    plane_sample(&s, c->in[0].x + (b * x->d[1] + k) * s.h * s.w,
                                 coord_to_pixels(p[1], s.h, coords, align), coord_to_pixels(p[0], s.w, coords, align));
            }
    return AN_OK;
}

/* x' = a0 x + a1 y + a2, y' = b0 x + b1 y + b2, in the chosen coordinates on both sides */
an_status eval_affine(eval_ctx *c)
{
    const shape *x = &c->in[0].type.sh, *o = &c->out[0].type.sh;
    plane_sampler s = { 0 };
    coord_kind coords;
    bool align;
    TRY(read_sampler(c, &s, &coords, &align));
    double *y = c->out[0].x;
    for (int64_t b = 0; b < x->d[0]; b++) {
        const double *t = c->in[1].x + (c->in[1].type.sh.d[0] == 1 ? 0 : b * 6);
        for (int64_t k = 0; k < x->d[1]; k++)
            for (int64_t i = 0; i < o->d[2]; i++)
                for (int64_t j = 0; j < o->d[3]; j++) {
                    double px = coord_from_pixels(j, o->d[3], coords, align),
                           py = coord_from_pixels(i, o->d[2], coords, align);
                    double qx = t[0] * px + t[1] * py + t[2], qy = t[3] * px + t[4] * py + t[5];
                    *y++ =
                        plane_sample(&s, c->in[0].x + (b * x->d[1] + k) * s.h * s.w,
                                     coord_to_pixels(qy, s.h, coords, align), coord_to_pixels(qx, s.w, coords, align));
                }
    }
    return AN_OK;
}
