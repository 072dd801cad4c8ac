/* ref_image.c: sampling between the pixels: resize, crop_resize, resample, warp.
 * In: a run_ctx and a checked instruction.  Out: one result. The last two axes are height and width.
 *
 * Where to sample is one question (a grid point per output place), how to read there another (two neighbours
 * weighted by distance, or the nearest). Places and weights are doubles, a result is rounded when stored. */
#include <math.h>

#include "engine/engine_int.h"

/* ---- resize: rows first, then columns ---- */

typedef struct {
    int64_t lo, hi;
    double part; /* of hi */
} between;

static between resize_place(int64_t size, int64_t i, int64_t n, grid_kind grid, bool linear)
{
    if (linear) {
        double p = grid_point(0, (double)(size - 1), i, n, grid), f = floor(p);
        return (between){ (int64_t)f, MIN((int64_t)f + 1, size - 1), p - f };
    }
    int64_t at = grid_nearest(size, i, n, grid);
    return (between){ at, at, 0 };
}

an_status ref_resize(const run_ctx *c, const insn *in, diag *d)
{
    int64_t y = insn_t(in, "y"), to = 0;
    const etensor *tx = ctx_tensor(c, insn_t(in, "x")), *ty = ctx_tensor(c, y);
    int64_t planes = dims_product(tx->dim, 0, tx->rank - 2), h = tx->dim[tx->rank - 2], w = tx->dim[tx->rank - 1];
    int64_t oh = ty->dim[ty->rank - 2], ow = ty->dim[ty->rank - 1];
    bool linear = insn_i(in, "linear");
    grid_kind grid = (grid_kind)insn_i(in, "grid");
    double *x = ref_load(c, insn_t(in, "x"), d);
    if (!x) return d->st;
    for (int64_t p = 0; p < planes; p++)
        for (int64_t i = 0; i < oh; i++)
            for (int64_t j = 0; j < ow; j++) {
                between r = resize_place(h, i, oh, grid, linear), q = resize_place(w, j, ow, grid, linear);
                const double *lo = x + (p * h + r.lo) * w, *hi = x + (p * h + r.hi) * w;
                double left = lo[q.lo], right = lo[q.hi];
                if (r.part > 0) left += (hi[q.lo] - left) * r.part, right += (hi[q.hi] - right) * r.part;
                ref_store(c, y, to++, q.part > 0 ? left + (right - left) * q.part : left);
            }
    return AN_OK;
}

/* ---- crop_resize ---- */

/* Points outside the image take the fill value. Boxes of four cut image box_of[i] (or image i), boxes of five start
 * with the image's number; a result of rank 5 cuts every image with every box of four. */
an_status ref_crop_resize(const run_ctx *c, const insn *in, diag *d)
{
    int64_t y = insn_t(in, "y"), of_t = insn_t(in, "box_of"), to = 0;
    const etensor *x_t = ctx_tensor(c, insn_t(in, "x")), *b_t = ctx_tensor(c, insn_t(in, "boxes")),
                  *y_t = ctx_tensor(c, y);
    double *x = ref_load(c, insn_t(in, "x"), d), *boxes = ref_load(c, insn_t(in, "boxes"), d),
           *of = of_t < 0 ? NULL : ref_load(c, of_t, d);
    if (!x || !boxes || (of_t >= 0 && !of)) return d->st;
    int64_t n = b_t->dim[0], coords = et_elems(b_t) / n, each = y_t->rank == 5 ? y_t->dim[1] : 1;
    int64_t ch = x_t->dim[1], h = x_t->dim[2], w = x_t->dim[3], th = y_t->dim[y_t->rank - 2],
            tw = y_t->dim[y_t->rank - 1];
    bool numbered = coords == 5, norm = insn_i(in, "normalized");
    double scale = insn_f(in, "scale"), fill = insn_f(in, "fill");
    grid_kind grid = (grid_kind)insn_i(in, "grid");
    plane_sampler s = { .h = h, .w = w, .edge = EDGE_BORDER, .nearest = !insn_i(in, "linear") };
    for (int64_t i = 0; i < n; i++) {
        const double *q = boxes + i * coords;
        plane_box r = plane_read_box(q + numbered, (box_kind)insn_i(in, "corner"), scale * (norm ? (double)(h - 1) : 1),
                                     scale * (norm ? (double)(w - 1) : 1));
        for (int64_t e = 0; e < each; e++) {
            int64_t image_at;
            double which = numbered ? q[0] : y_t->rank == 5 ? (double)e : of ? of[i] : (double)i;
            TRY(ref_index(c, in, which, x_t->dim[0], &image_at, d));
            for (int64_t k = 0; k < ch; k++)
                for (int64_t u = 0; u < th; u++)
                    for (int64_t v = 0; v < tw; v++) {
                        double py = grid_point(r.y0, r.y1, u, th, grid), px = grid_point(r.x0, r.x1, v, tw, grid);
                        bool inside = py >= 0 && py <= (double)(h - 1) && px >= 0 && px <= (double)(w - 1);
                        ref_store(c, y, to++,
                                  inside ? plane_sample(&s, x + (image_at * ch + k) * h * w, py, px) : fill);
                    }
        }
    }
    return AN_OK;
}

/* ---- resample and warp ---- */

static plane_sampler sampler_of(const run_ctx *c, const insn *in)
{
    const etensor *t = ctx_tensor(c, insn_t(in, "x"));
    return (plane_sampler){ .h = t->dim[2],
                            .w = t->dim[3],
                            .edge = (edge_kind)insn_i(in, "pad"),
                            .fill = insn_f(in, "fill"),
                            .nearest = !insn_i(in, "linear") };
}

an_status ref_resample(const run_ctx *c, const insn *in, diag *d) /* coords (N, H', W', 2), each an (x, y) */
{
    int64_t y = insn_t(in, "y"), to = 0;
    coord_kind mode = (coord_kind)insn_i(in, "coords_mode");
    const etensor *t = ctx_tensor(c, y);
    plane_sampler s = sampler_of(c, in);
    bool align = insn_i(in, "align");
    double *x = ref_load(c, insn_t(in, "x"), d), *at = ref_load(c, insn_t(in, "coords"), d);
    if (!x || !at) return d->st;
    int64_t places = t->dim[2] * t->dim[3];
    for (int64_t b = 0; b < t->dim[0]; b++)
        for (int64_t k = 0; k < t->dim[1]; k++)
            for (int64_t i = 0; i < places; i++) {
                const double *p = at + (b * places + i) * 2;
                ref_store(c, y, to++,
                          plane_sample(&s, x + (b * t->dim[1] + k) * s.h * s.w, coord_to_pixels(p[1], s.h, mode, align),
                                       coord_to_pixels(p[0], s.w, mode, align)));
            }
    return AN_OK;
}

/* x' = a0 x + a1 y + a2, y' = b0 x + b1 y + b2, chosen coordinates on both sides */
an_status ref_warp(const run_ctx *c, const insn *in, diag *d)
{
    int64_t y = insn_t(in, "y"), to = 0;
    coord_kind mode = (coord_kind)insn_i(in, "coords_mode");
    const etensor *t = ctx_tensor(c, y);
    plane_sampler s = sampler_of(c, in);
    bool align = insn_i(in, "align"), shared = et_elems(ctx_tensor(c, insn_t(in, "matrix"))) == 6;
    double *x = ref_load(c, insn_t(in, "x"), d), *matrix = ref_load(c, insn_t(in, "matrix"), d);
    if (!x || !matrix) return d->st;
    for (int64_t b = 0; b < t->dim[0]; b++) {
        const double *m = matrix + (shared ? 0 : b * 6);
        for (int64_t k = 0; k < t->dim[1]; k++)
            for (int64_t i = 0; i < t->dim[2]; i++)
                for (int64_t j = 0; j < t->dim[3]; j++) {
                    double px = coord_from_pixels(j, t->dim[3], mode, align),
                           py = coord_from_pixels(i, t->dim[2], mode, align);
                    double qx = m[0] * px + m[1] * py + m[2], qy = m[3] * px + m[4] * py + m[5];
                    ref_store(c, y, to++,
                              plane_sample(&s, x + (b * t->dim[1] + k) * s.h * s.w,
                                           coord_to_pixels(qy, s.h, mode, align),
                                           coord_to_pixels(qx, s.w, mode, align)));
                }
    }
    return AN_OK;
}
