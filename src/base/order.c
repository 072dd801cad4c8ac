/* order.c: sorting a line of numbers that remember their places. */
#include <math.h>
#include <stdlib.h>

#include "base/order.h"

static int by_value(double a, double b)
{
    if (isnan(a) || isnan(b)) return isnan(a) - isnan(b);
    return (a > b) - (a < b);
}

static int rising(const void *pa, const void *pb)
{
    const ordered *a = pa, *b = pb;
    int o = by_value(a->value, b->value);
    return o ? o : (a->place > b->place) - (a->place < b->place);
}

static int falling(const void *pa, const void *pb)
{
    const ordered *a = pa, *b = pb;
    int o = by_value(b->value, a->value);
    return o ? o : (a->place > b->place) - (a->place < b->place);
}

void order_line(ordered *line, int64_t n, bool ascending)
{
    qsort(line, (size_t)n, sizeof *line, ascending ? rising : falling);
}
