/* ref_image.c: sampling between the pixels: resize, crop_resize, resample, warp.
 * In: a run_ctx and a checked instruction.  Out: one result. The last two axes are height and width.
 *
 * Where to sample is one question (a grid point per output place), how to read there another (two neighbours weighted by
 * distance, or the nearest). There is no fast form: places and weights are doubles, a result is rounded when stored. */
#include <math.h>

#include "engine/engine_int.h"

/* Point i of n over the pixels a .. b, b - a + 1 of them; a > b reads the interval backwards. */
static double grid_point(double a, double b, int64_t i, int64_t n, grid_kind grid)
{
    double dir = b < a ? -1 : 1, span = fabs(b - a), step, from = 0;
    switch (grid) {
    case GRID_STRICT_ALIGN: step = n > 1 ? span / (double)(n - 1) : 0; break;
    case GRID_ALIGN: step = n > 1 ? span / (double)(n - 1) : 0, from = n > 1 ? 0 : span / 2; break;
    case GRID_OFFSET: step = MAX(1.0, span) / (double)n, from = step / 2; break;
    case GRID_UNALIGN: step = (span + 1) / (double)n, from = step / 2 - 0.5; break;
    default: step = (span + 1) / (double)n; break;
    }
    return a + dir * MIN(MAX(from + (double)i * step, 0.0), span);
}

/* ---- resize: rows first, then columns ---- */

typedef struct {
    int64_t lo, hi;
    double part; /* of hi */
} between;

/* Nearest: the default grid takes the pixel at or before the point, the others the closest one, halves upwards. */
static between resize_place(int64_t size, int64_t i, int64_t n, grid_kind grid, bool linear)
{
    double p = grid_point(0, (double)(size - 1), i, n, grid), f = floor(p);
    if (linear) return (between){ (int64_t)f, MIN((int64_t)f + 1, size - 1), p - f };
    int64_t at = grid == GRID_DEFAULT ? i * size / n : (int64_t)floor(p + 0.5); /* exact in integers */
    at = MIN(at, size - 1);
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

/* ---- reading a plane at a point ---- */

enum { EDGE_CONSTANT, EDGE_BORDER, EDGE_REFLECTION, EDGE_SYMMETRIC };
typedef struct {
    int64_t h, w;
    int edge;
    double fill;
    bool linear;
} sampler;

static int64_t fold(int64_t p, int64_t n, int edge) /* the pixel that stands at p; -1: the fill value */
{
    if (p >= 0 && p < n) return p;
    if (edge == EDGE_CONSTANT) return -1;
    if (edge == EDGE_BORDER || n == 1) return p < 0 ? 0 : n - 1;
    int64_t period = edge == EDGE_SYMMETRIC ? 2 * n : 2 * n - 2;
    p = (p % period + period) % period;
    if (p < n) return p;
    return edge == EDGE_SYMMETRIC ? period - 1 - p : period - p;
}

static double pixel(const sampler *s, const double *plane, int64_t y, int64_t x)
{
    int64_t py = fold(y, s->h, s->edge), px = fold(x, s->w, s->edge);
    return py < 0 || px < 0 ? s->fill : plane[py * s->w + px];
}

static double sample(const sampler *s, const double *plane, double y, double x)
{
    if (isnan(x) || isnan(y)) return (double)NAN;
    if (s->edge == EDGE_BORDER) y = MIN(MAX(y, 0.0), (double)(s->h - 1)), x = MIN(MAX(x, 0.0), (double)(s->w - 1));
    double far = 4e15; /* beyond this a double has no fraction and soon no integer: call it padding */
    if (!(fabs(y) < far && fabs(x) < far)) return s->fill;
    if (!s->linear) return pixel(s, plane, (int64_t)nearbyint(y), (int64_t)nearbyint(x));
    double fy = floor(y), fx = floor(x), ty = y - fy, tx = x - fx;
    int64_t iy = (int64_t)fy, ix = (int64_t)fx;
    double v = (1 - ty) * (1 - tx) * pixel(s, plane, iy, ix);
    if (tx > 0) v += (1 - ty) * tx * pixel(s, plane, iy, ix + 1);
    if (ty > 0) v += ty * (1 - tx) * pixel(s, plane, iy + 1, ix);
    if (tx > 0 && ty > 0) v += ty * tx * pixel(s, plane, iy + 1, ix + 1);
    return v;
}

/* ---- crop_resize ---- */

typedef struct {
    double y0, x0, y1, x1;
} box;

/* corner: 0 corners height first, 1 corners width first, 2 centre and size height first, 3 centre and size width first. */
static box read_box(const double *b, int64_t corner, double sy, double sx)
{
    bool width_first = corner == 1 || corner == 3;
    double y0 = b[width_first], x0 = b[!width_first], y1 = b[2 + width_first], x1 = b[2 + !width_first];
    box r = { y0, x0, y1, x1 };
    if (corner >= 2) r = (box){ y0 - y1 / 2, x0 - x1 / 2, y0 + y1 / 2, x0 + x1 / 2 };
    return (box){ r.y0 * sy, r.x0 * sx, r.y1 * sy, r.x1 * sx };
}

/* Points outside the image take the fill value. Boxes of four cut image box_of[i] (or image i), boxes of five start with the
 * image's number; a result of rank 5 cuts every image with every box of four. */
an_status ref_crop_resize(const run_ctx *c, const insn *in, diag *d)
{
    int64_t y = insn_t(in, "y"), of_t = insn_t(in, "box_of"), to = 0;
    const etensor *x_t = ctx_tensor(c, insn_t(in, "x")), *b_t = ctx_tensor(c, insn_t(in, "boxes")), *y_t = ctx_tensor(c, y);
    double *x = ref_load(c, insn_t(in, "x"), d), *boxes = ref_load(c, insn_t(in, "boxes"), d), *of = of_t < 0 ? NULL : ref_load(c, of_t, d);
    if (!x || !boxes || (of_t >= 0 && !of)) return d->st;
    int64_t n = b_t->dim[0], coords = et_elems(b_t) / n, each = y_t->rank == 5 ? y_t->dim[1] : 1;
    int64_t ch = x_t->dim[1], h = x_t->dim[2], w = x_t->dim[3], th = y_t->dim[y_t->rank - 2], tw = y_t->dim[y_t->rank - 1];
    bool numbered = coords == 5, norm = insn_i(in, "normalized");
    double scale = insn_f(in, "scale"), fill = insn_f(in, "fill");
    grid_kind grid = (grid_kind)insn_i(in, "grid");
    sampler s = { .h = h, .w = w, .edge = EDGE_BORDER, .linear = insn_i(in, "linear") };
    for (int64_t i = 0; i < n; i++) {
        const double *q = boxes + i * coords;
        box r = read_box(q + numbered, insn_i(in, "corner"), scale * (norm ? (double)(h - 1) : 1), scale * (norm ? (double)(w - 1) : 1));
        for (int64_t e = 0; e < each; e++) {
            int64_t image_at;
            double which = numbered ? q[0] : y_t->rank == 5 ? (double)e : of ? of[i] : (double)i;
            TRY(ref_index(c, in, which, x_t->dim[0], &image_at, d));
            for (int64_t k = 0; k < ch; k++)
                for (int64_t u = 0; u < th; u++)
                    for (int64_t v = 0; v < tw; v++) {
                        double py = grid_point(r.y0, r.y1, u, th, grid), px = grid_point(r.x0, r.x1, v, tw, grid);
                        bool inside = py >= 0 && py <= (double)(h - 1) && px >= 0 && px <= (double)(w - 1);
                        ref_store(c, y, to++, inside ? sample(&s, x + (image_at * ch + k) * h * w, py, px) : fill);
                    }
        }
    }
    return AN_OK;
}

/* ---- resample and warp ---- */

enum { COORD_PIXELS, COORD_MINUS_ONE, COORD_ZERO };

/* A coordinate of an axis with n pixels, in pixels. align: the ends of the range are the centres of the corner pixels,
 * otherwise their outer edges. */
static double to_pixels(double v, int64_t n, int64_t mode, bool align)
{
    if (mode == COORD_PIXELS) return v;
    double unit = mode == COORD_MINUS_ONE ? (v + 1) / 2 : v; /* 0 .. 1 */
    return align ? unit * (double)(n - 1) : unit * (double)n - 0.5;
}

static double from_pixels(int64_t i, int64_t n, int64_t mode, bool align) /* the inverse; a single aligned pixel sits mid-range */
{
    if (mode == COORD_PIXELS) return (double)i;
    double unit = !align ? ((double)i + 0.5) / (double)n : n > 1 ? (double)i / (double)(n - 1) : 0.5;
    return mode == COORD_MINUS_ONE ? 2 * unit - 1 : unit;
}

static sampler sampler_of(const run_ctx *c, const insn *in)
{
    const etensor *t = ctx_tensor(c, insn_t(in, "x"));
    return (sampler){ .h = t->dim[2], .w = t->dim[3], .edge = (int)insn_i(in, "pad"), .fill = insn_f(in, "fill"), .linear = insn_i(in, "linear") };
}

an_status ref_resample(const run_ctx *c, const insn *in, diag *d) /* coords (N, H', W', 2), each an (x, y) */
{
    int64_t y = insn_t(in, "y"), mode = insn_i(in, "coords_mode"), to = 0;
    const etensor *t = ctx_tensor(c, y);
    sampler s = sampler_of(c, in);
    bool align = insn_i(in, "align");
    double *x = ref_load(c, insn_t(in, "x"), d), *at = ref_load(c, insn_t(in, "coords"), d);
    if (!x || !at) return d->st;
    int64_t places = t->dim[2] * t->dim[3];
    for (int64_t b = 0; b < t->dim[0]; b++)
        for (int64_t k = 0; k < t->dim[1]; k++)
            for (int64_t i = 0; i < places; i++) {
                const double *p = at + (b * places + i) * 2;
                ref_store(c, y, to++, sample(&s, x + (b * t->dim[1] + k) * s.h * s.w, to_pixels(p[1], s.h, mode, align), to_pixels(p[0], s.w, mode, align)));
            }
    return AN_OK;
}

an_status ref_warp(const run_ctx *c, const insn *in, diag *d) /* x' = a0 x + a1 y + a2, y' = b0 x + b1 y + b2, chosen coordinates on both sides */
{
    int64_t y = insn_t(in, "y"), mode = insn_i(in, "coords_mode"), to = 0;
    const etensor *t = ctx_tensor(c, y);
    sampler s = sampler_of(c, in);
    bool align = insn_i(in, "align"), shared = et_elems(ctx_tensor(c, insn_t(in, "matrix"))) == 6;
    double *x = ref_load(c, insn_t(in, "x"), d), *matrix = ref_load(c, insn_t(in, "matrix"), d);
    if (!x || !matrix) return d->st;
    for (int64_t b = 0; b < t->dim[0]; b++) {
        const double *m = matrix + (shared ? 0 : b * 6);
        for (int64_t k = 0; k < t->dim[1]; k++)
            for (int64_t i = 0; i < t->dim[2]; i++)
                for (int64_t j = 0; j < t->dim[3]; j++) {
                    double px = from_pixels(j, t->dim[3], mode, align), py = from_pixels(i, t->dim[2], mode, align);
                    double qx = m[0] * px + m[1] * py + m[2], qy = m[3] * px + m[4] * py + m[5];
                    ref_store(c, y, to++, sample(&s, x + (b * t->dim[1] + k) * s.h * s.w, to_pixels(qy, s.h, mode, align), to_pixels(qx, s.w, mode, align)));
                }
    }
    return AN_OK;
}
