/* rng.c: splitmix64. State is one word, so it is trivially saved and restored. */
#include <math.h>

#include "base/rng.h"

static const uint64_t STEP = 0x9e3779b97f4a7c15u;

void rng_skip(rng *r, uint64_t n) { r->s += n * STEP; }

uint64_t rng_next(rng *r)
{
    uint64_t z = (r->s += STEP);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t rng_below(rng *r, uint64_t n) { return rng_next(r) % n; }
double rng_unit(rng *r) { return (double)(rng_next(r) >> 11) * 0x1p-53; }
double rng_range(rng *r, double lo, double hi) { return lo + (hi - lo) * rng_unit(r); }

double rng_normal(rng *r)
{
    double u = 1.0 - rng_unit(r), v = rng_unit(r);
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}
