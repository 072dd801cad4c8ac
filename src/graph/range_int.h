/* range_int.h: intervals, and what the elements of a constant prove. Private to range*.c. */
#ifndef GRAPH_RANGE_INT_H
#define GRAPH_RANGE_INT_H

#include <math.h>

#include "graph/graph.h"

static inline vrange span(double lo, double hi) { return (vrange){ lo, hi }; }
static inline vrange anything(void) { return span(-INFINITY, INFINITY); }
static inline vrange hull(vrange a, vrange b) { return span(fmin(a.lo, b.lo), fmax(a.hi, b.hi)); }
static inline vrange with_zero(vrange a) { return span(fmin(a.lo, 0), fmax(a.hi, 0)); }
static inline bool is_anything(vrange a) { return a.lo == -INFINITY && a.hi == INFINITY; }

/* A product of ends. Zero times infinity is 0 here: an end at infinity stands for arbitrarily large numbers. */
static inline double end_mul(double a, double b) { return a == 0 || b == 0 ? 0 : a * b; }

vrange range_const(const graph *g, const node *n); /* of an OP_CONST: its smallest and largest element */

/* Sums of products with a constant seen as outer x n x inner, over n: the interval that holds the sum for every
 * (outer, inner) when the other factors lie in x. */
vrange range_dot(const node *n, const ttype *t, int64_t outer, int64_t len, int64_t inner, vrange x);

#endif
