/* plane.h: reading a plane of numbers between its points: where the points of a grid lie, and what stands at a point.
 * Both meanings of the resize family (the graph's and the engine's) ask here, in double precision. */
#ifndef BASE_PLANE_H
#define BASE_PLANE_H

#include "base/base.h"

typedef enum { GRID_DEFAULT, GRID_STRICT_ALIGN, GRID_ALIGN, GRID_OFFSET, GRID_UNALIGN, GRID_COUNT } grid_kind;
/* beyond the plane */
typedef enum { EDGE_CONSTANT, EDGE_BORDER, EDGE_REFLECTION, EDGE_SYMMETRIC, EDGE_COUNT } edge_kind;
/* pixels, -1 .. 1, 0 .. 1 */
typedef enum { COORD_PIXELS, COORD_MINUS_ONE, COORD_ZERO, COORD_COUNT } coord_kind;
/* which number comes first */
typedef enum { BOX_CORNERS_HW, BOX_CORNERS_WH, BOX_CENTRE_HW, BOX_CENTRE_WH, BOX_COUNT } box_kind;

/* Point i of n over the pixels a .. b, b - a + 1 of them; a > b reads the interval backwards. */
double grid_point(double a, double b, int64_t i, int64_t n, grid_kind grid);
/* The pixel nearest to point i of n over a line of `size`. */
int64_t grid_nearest(int64_t size, int64_t i, int64_t n, grid_kind grid);

typedef struct {
    int64_t h, w;
    edge_kind edge;
    double fill; /* what stands beyond a constant edge */
    bool nearest;
} plane_sampler;
double plane_sample(const plane_sampler *s, const double *plane, double y, double x); /* NAN at a point that is none */

/* The same in two steps, for points read in many planes: what stands at a point is the sum, in this order, of weight
 * times pixel. */
typedef struct {
    int n;         /* 0: the point is none */
    int64_t at[4]; /* in the plane; -1: the fill value */
    double weight[4];
} plane_taps;
void plane_find(const plane_sampler *s, double y, double x, plane_taps *t);

typedef struct {
    double y0, x0, y1, x1;
} plane_box;
plane_box plane_read_box(const double *four, box_kind kind, double scale_y, double scale_x);

/* A coordinate of an axis with n pixels, in pixels, and back. align: the ends of the range are the centres of the
 * corner pixels, otherwise their outer edges; a single aligned pixel sits mid-range. */
double coord_to_pixels(double v, int64_t n, coord_kind kind, bool align);
double coord_from_pixels(int64_t i, int64_t n, coord_kind kind, bool align);

#endif
