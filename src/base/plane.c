/* plane.c: grids, edges, boxes and coordinates; plane.h says what each is. */
#include <math.h>

#include "base/plane.h"

double grid_point(double a, double b, int64_t i, int64_t n, grid_kind grid)
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

int64_t grid_nearest(int64_t size, int64_t i, int64_t n, grid_kind grid)
{
    /* The default grid takes the pixel at or before the point: exact in integers, where the product of doubles may
     * fall just below a pixel. The others take the closest one, halves upwards. */
    int64_t at =
        grid == GRID_DEFAULT ? i * size / n : (int64_t)floor(grid_point(0, (double)(size - 1), i, n, grid) + 0.5);
    return MIN(at, size - 1);
}

static int64_t fold(int64_t p, int64_t n, edge_kind edge) /* the pixel that stands at p; -1: the fill value */
{
    if (p >= 0 && p < n) return p;
    if (edge == EDGE_CONSTANT) return -1;
    if (edge == EDGE_BORDER || n == 1) return p < 0 ? 0 : n - 1;
    int64_t period = edge == EDGE_SYMMETRIC ? 2 * n : 2 * n - 2;
    p = (p % period + period) % period;
    if (p < n) return p;
    return edge == EDGE_SYMMETRIC ? period - 1 - p : period - p;
}

static int64_t pixel(const plane_sampler *s, int64_t y, int64_t x)
{
    int64_t py = fold(y, s->h, s->edge), px = fold(x, s->w, s->edge);
    return py < 0 || px < 0 ? -1 : py * s->w + px;
}

void plane_find(const plane_sampler *s, double y, double x, plane_taps *t)
{
    double far = 4e15; /* beyond this a double has no fraction and soon no integer: call it padding */
    t->n = 0;
    if (isnan(x) || isnan(y)) return;
    if (s->edge == EDGE_BORDER) y = MIN(MAX(y, 0.0), (double)(s->h - 1)), x = MIN(MAX(x, 0.0), (double)(s->w - 1));
    t->n = 1, t->weight[0] = 1;
    if (!(fabs(y) < far && fabs(x) < far)) {
        t->at[0] = -1;
        return;
    }
    if (s->nearest) {
        t->at[0] = pixel(s, (int64_t)nearbyint(y), (int64_t)nearbyint(x));
        return;
    }
    double fy = floor(y), fx = floor(x), ty = y - fy, tx = x - fx;
    int64_t iy = (int64_t)fy, ix = (int64_t)fx;
    t->at[0] = pixel(s, iy, ix), t->weight[0] = (1 - ty) * (1 - tx);
    if (tx > 0) t->at[t->n] = pixel(s, iy, ix + 1), t->weight[t->n++] = (1 - ty) * tx;
    if (ty > 0) t->at[t->n] = pixel(s, iy + 1, ix), t->weight[t->n++] = ty * (1 - tx);
    if (tx > 0 && ty > 0) t->at[t->n] = pixel(s, iy + 1, ix + 1), t->weight[t->n++] = ty * tx;
}

double plane_sample(const plane_sampler *s, const double *plane, double y, double x)
{
    plane_taps t;
    plane_find(s, y, x, &t);
    double v = t.n ? 0 : (double)NAN;
    for (int i = 0; i < t.n; i++) {
        double one = t.weight[i] * (t.at[i] < 0 ? s->fill : plane[t.at[i]]);
        v = i ? v + one : one;
    }
    return v;
}

plane_box plane_read_box(const double *b, box_kind kind, double sy, double sx)
{
    bool width_first = kind == BOX_CORNERS_WH || kind == BOX_CENTRE_WH;
    double y0 = b[width_first], x0 = b[!width_first], y1 = b[2 + width_first], x1 = b[2 + !width_first];
    plane_box r = { y0, x0, y1, x1 };
    if (kind >= BOX_CENTRE_HW) r = (plane_box){ y0 - y1 / 2, x0 - x1 / 2, y0 + y1 / 2, x0 + x1 / 2 };
    return (plane_box){ r.y0 * sy, r.x0 * sx, r.y1 * sy, r.x1 * sx };
}

double coord_to_pixels(double v, int64_t n, coord_kind kind, bool align)
{
    if (kind == COORD_PIXELS) return v;
    double unit = kind == COORD_MINUS_ONE ? (v + 1) / 2 : v; /* 0 .. 1 */
    return align ? unit * (double)(n - 1) : unit * (double)n - 0.5;
}

double coord_from_pixels(int64_t i, int64_t n, coord_kind kind, bool align)
{
    if (kind == COORD_PIXELS) return (double)i;
    double unit = !align ? ((double)i + 0.5) / (double)n : n > 1 ? (double)i / (double)(n - 1) : 0.5;
    return kind == COORD_MINUS_ONE ? 2 * unit - 1 : unit;
}
