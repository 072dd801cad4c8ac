/* eval_image.c: sampling between the pixels: the resize family, crop_resize, resample, affine.
 * In: an eval_ctx.  Out: one result. The last two axes are height and width.
 *
 * Where to sample is one question (a grid point per output place), how to read there another (two neighbours weighted by
 * distance, or the nearest one). Grid points lie in the interval [a, b] they are taken from. */
#include <math.h>

#include "graph/eval_int.h"

enum { GRID_DEFAULT, GRID_STRICT, GRID_ALIGN, GRID_OFFSET, GRID_UNALIGN };
static const char *const grid_words[] = { "DEFAULT", "STRICT_ALIGN_CORNERS", "ALIGN_CORNERS", "OFFSET_CORNERS", "UNALIGN_CORNERS" };

/* Point i of n over the pixels a .. b, b - a + 1 of them; a > b reads the interval backwards. */
static double grid_point(double a, double b, int64_t i, int64_t n, int mode)
{
    double dir = b < a ? -1 : 1, span = fabs(b - a), step, from = 0;
    switch (mode) {
    case GRID_STRICT: step = n > 1 ? span / (double)(n - 1) : 0; break;
    case GRID_ALIGN: step = n > 1 ? span / (double)(n - 1) : 0, from = n > 1 ? 0 : span / 2; break;
    case GRID_OFFSET: step = MAX(1.0, span) / (double)n, from = step / 2; break;
    case GRID_UNALIGN: step = (span + 1) / (double)n, from = step / 2 - 0.5; break;
    default: step = (span + 1) / (double)n; break;
    }
    return a + dir * MIN(MAX(from + (double)i * step, 0.0), span);
}

/* ---- resize: one axis at a time ---- */

/* Nearest: DEFAULT takes the pixel at or before the point, the other grids the closest one, halves upwards. */
static void resize_axis(const double *x, double *y, axis_view v, int64_t n, int grid, bool nearest)
{
    for (int64_t o = 0; o < v.outer; o++)
        for (int64_t i = 0; i < n; i++, y += v.inner) {
            double p = grid_point(0, (double)(v.n - 1), i, n, grid), f = floor(p);
            if (nearest) {
                /* i * size / n is exact in integers where the product of doubles may fall just below a pixel */
                int64_t at = grid == GRID_DEFAULT ? i * v.n / n : (int64_t)floor(p + 0.5);
                memcpy(y, x + (o * v.n + MIN(at, v.n - 1)) * v.inner, (size_t)v.inner * sizeof *y);
                continue;
            }
            int64_t lo = (int64_t)f, hi = MIN(lo + 1, v.n - 1);
            const double *l = x + (o * v.n + lo) * v.inner, *h = x + (o * v.n + hi) * v.inner;
            for (int64_t j = 0; j < v.inner; j++) y[j] = l[j] + (h[j] - l[j]) * (p - f);
        }
}

an_status eval_resize(eval_ctx *c)
{
    static const char *const modes[] = { "LINEAR", "NEAREST_NEIGHBOR" };
    const shape *o = &c->out[0].type.sh;
    int grid = GRID_DEFAULT, nearest = c->op == OP_RESIZE_NEAREST || c->op == OP_UPSAMPLE_NEAREST;
    if (c->op == OP_RESIZE) TRY(at_mode(c, A_MODE, modes, COUNT(modes), &nearest));
    if (c->op == OP_RESIZE || c->op == OP_RESIZE_BILINEAR) TRY(at_mode(c, A_SAMPLING_MODE, grid_words, COUNT(grid_words), &grid));
    if (c->op == OP_UPSAMPLE_BILINEAR) grid = at_bool(c, A_ALIGN_CORNERS) ? GRID_STRICT : GRID_UNALIGN;
    arena_mark m = arena_save(c->mem);
    shape s = c->in[0].type.sh;
    const double *x = c->in[0].x;
    /* Height and width are always sampled (OFFSET_CORNERS moves points even at equal size), other axes when they change. */
    for (int i = 0; i < s.rank; i++) {
        if (i < s.rank - 2 && s.d[i] == o->d[i]) continue;
        axis_view v = view_axis(&s, i);
        double *y = t64_scratch(c, v.outer * o->d[i] * v.inner);
        if (!y) return diag_nomem(c->d);
        resize_axis(x, y, v, o->d[i], grid, nearest);
        s.d[i] = o->d[i], x = y;
    }
    memcpy(c->out[0].x, x, (size_t)t64_elems(&c->out[0]) * sizeof *x);
    arena_back(c->mem, m);
    return AN_OK;
}

/* ---- reading a plane at a point ---- */

enum { EDGE_CONSTANT, EDGE_BORDER, EDGE_REFLECTION, EDGE_SYMMETRIC };
typedef struct {
    int64_t h, w;
    int edge;
    double fill;
    bool nearest;
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
    if (isnan(x) || isnan(y)) return NAN;
    if (s->edge == EDGE_BORDER) y = MIN(MAX(y, 0.0), (double)(s->h - 1)), x = MIN(MAX(x, 0.0), (double)(s->w - 1));
    double far = 4e15; /* beyond this a double has no fraction and soon no integer: call it padding */
    if (!(fabs(y) < far && fabs(x) < far)) return s->fill;
    if (s->nearest) return pixel(s, plane, (int64_t)nearbyint(y), (int64_t)nearbyint(x));
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

static box read_box(const double *b, int mode, double sy, double sx)
{
    bool width_first = mode == 1 || mode == 3;
    double y0 = b[width_first], x0 = b[!width_first], y1 = b[2 + width_first], x1 = b[2 + !width_first];
    box r = { y0, x0, y1, x1 };
    if (mode >= 2) r = (box){ y0 - y1 / 2, x0 - x1 / 2, y0 + y1 / 2, x0 + x1 / 2 }; /* centre and size */
    return (box){ r.y0 * sy, r.x0 * sx, r.y1 * sy, r.x1 * sx };
}

/* Points outside the image take padding_value. Boxes of four cut image box_indices[i] (or image i), boxes of five start with
 * the image's number; the rank-5 form of four cuts every image. */
an_status eval_crop_resize(eval_ctx *c)
{
    static const char *const modes[] = { "CORNERS_HEIGHT_FIRST", "CORNERS_WIDTH_FIRST", "CENTER_SIZE_HEIGHT_FIRST", "CENTER_SIZE_WIDTH_FIRST" };
    const shape *x = &c->in[0].type.sh, *b = &c->in[1].type.sh, *o = &c->out[0].type.sh;
    int grid, mode;
    TRY(at_mode(c, A_SAMPLING_MODE, grid_words, COUNT(grid_words), &grid));
    TRY(at_mode(c, A_BOX_COORDINATE_MODE, modes, COUNT(modes), &mode));
    int64_t n = b->d[0], coords = b->rank == 2 ? b->d[1] : b->d[2], each = o->rank == 5 ? o->d[1] : 1; /* images per box */
    int64_t ch = x->d[1], h = x->d[2], w = x->d[3], th = o->d[o->rank - 2], tw = o->d[o->rank - 1];
    bool numbered = coords == 5, norm = at_bool(c, A_NORMALIZED_COORDINATES);
    if (numbered && each != 1) return eval_fail(c, "boxes name one image each, but the result has %lld per box", (long long)each);
    double scale = at_float(c, A_SPATIAL_SCALE), fill = at_float(c, A_PADDING_VALUE), *y = c->out[0].x;
    sampler s = { .h = h, .w = w, .edge = EDGE_BORDER };
    for (int64_t i = 0; i < n; i++) {
        const double *q = c->in[1].x + i * coords;
        box r = read_box(q + numbered, mode, scale * (norm ? (double)(h - 1) : 1), scale * (norm ? (double)(w - 1) : 1));
        for (int64_t e = 0; e < each; e++) {
            int64_t image;
            double which = numbered ? q[0] : o->rank == 5 ? (double)e : has(c, 2) ? c->in[2].x[i] : (double)i;
            TRY(index_in(c, which, x->d[0], &image));
            for (int64_t k = 0; k < ch; k++)
                for (int64_t u = 0; u < th; u++)
                    for (int64_t v = 0; v < tw; v++) {
                        double py = grid_point(r.y0, r.y1, u, th, grid), px = grid_point(r.x0, r.x1, v, tw, grid);
                        bool inside = py >= 0 && py <= (double)(h - 1) && px >= 0 && px <= (double)(w - 1);
                        *y++ = inside ? sample(&s, c->in[0].x + (image * ch + k) * h * w, py, px) : fill;
                    }
        }
    }
    return AN_OK;
}

/* ---- resample and affine ---- */

enum { COORD_PIXELS, COORD_MINUS_ONE, COORD_ZERO };

/* A coordinate of an axis with n pixels, in pixels. align: the ends of the range are the centres of the corner pixels,
 * otherwise their outer edges. */
static double to_pixels(double v, int64_t n, int mode, bool align)
{
    if (mode == COORD_PIXELS) return v;
    double unit = mode == COORD_MINUS_ONE ? (v + 1) / 2 : v; /* 0 .. 1 */
    return align ? unit * (double)(n - 1) : unit * (double)n - 0.5;
}

static double from_pixels(int64_t i, int64_t n, int mode, bool align) /* the inverse; a single aligned pixel sits mid-range */
{
    if (mode == COORD_PIXELS) return (double)i;
    double unit = !align ? ((double)i + 0.5) / (double)n : n > 1 ? (double)i / (double)(n - 1) : 0.5;
    return mode == COORD_MINUS_ONE ? 2 * unit - 1 : unit;
}

static an_status read_sampler(const eval_ctx *c, sampler *s, int *coords, bool *align)
{
    static const char *const how[] = { "bilinear", "nearest" }, *const edges[] = { "constant", "border", "reflection", "symmetric" };
    static const char *const spaces[] = { "unnormalized", "normalized_minus_one_to_one", "normalized_zero_to_one" };
    int nearest;
    TRY(at_mode(c, A_SAMPLING_MODE, how, COUNT(how), &nearest));
    TRY(at_mode(c, A_PADDING_MODE, edges, COUNT(edges), &s->edge));
    TRY(at_mode(c, A_COORDINATES_MODE, spaces, COUNT(spaces), coords));
    s->nearest = nearest;
    s->fill = at_float(c, A_PADDING_VALUE);
    s->h = c->in[0].type.sh.d[2], s->w = c->in[0].type.sh.d[3];
    *align = at_bool(c, A_ALIGN_CORNERS);
    return AN_OK;
}

an_status eval_resample(eval_ctx *c) /* coordinates (N, H', W', 2), each an (x, y) */
{
    const shape *x = &c->in[0].type.sh, *o = &c->out[0].type.sh;
    sampler s = { 0 };
    int coords;
    bool align;
    TRY(read_sampler(c, &s, &coords, &align));
    int64_t places = o->d[2] * o->d[3];
    double *y = c->out[0].x;
    for (int64_t b = 0; b < x->d[0]; b++)
        for (int64_t k = 0; k < x->d[1]; k++)
            for (int64_t i = 0; i < places; i++) {
                const double *p = c->in[1].x + (b * places + i) * 2;
                *y++ = sample(&s, c->in[0].x + (b * x->d[1] + k) * s.h * s.w, to_pixels(p[1], s.h, coords, align),
                              to_pixels(p[0], s.w, coords, align));
            }
    return AN_OK;
}

an_status eval_affine(eval_ctx *c) /* x' = a0 x + a1 y + a2, y' = b0 x + b1 y + b2, in the chosen coordinates on both sides */
{
    const shape *x = &c->in[0].type.sh, *o = &c->out[0].type.sh;
    sampler s = { 0 };
    int coords;
    bool align;
    TRY(read_sampler(c, &s, &coords, &align));
    double *y = c->out[0].x;
    for (int64_t b = 0; b < x->d[0]; b++) {
        const double *t = c->in[1].x + (c->in[1].type.sh.d[0] == 1 ? 0 : b * 6);
        for (int64_t k = 0; k < x->d[1]; k++)
            for (int64_t i = 0; i < o->d[2]; i++)
                for (int64_t j = 0; j < o->d[3]; j++) {
                    double px = from_pixels(j, o->d[3], coords, align), py = from_pixels(i, o->d[2], coords, align);
                    double qx = t[0] * px + t[1] * py + t[2], qy = t[3] * px + t[4] * py + t[5];
                    *y++ = sample(&s, c->in[0].x + (b * x->d[1] + k) * s.h * s.w, to_pixels(qy, s.h, coords, align),
                                  to_pixels(qx, s.w, coords, align));
                }
    }
    return AN_OK;
}
