/* order.h: the one order of sorting operations: stable, and NaN counts as larger than everything.
 * Both meanings of sort (the graph's and the engine's) ask here. */
#ifndef BASE_ORDER_H
#define BASE_ORDER_H

#include "base/base.h"

typedef struct {
    double value;
    int64_t place; /* lower ones come first among equals, whichever way values are sorted */
} ordered;
void order_line(ordered *line, int64_t n, bool ascending);

#endif
