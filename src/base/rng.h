/* rng.h: one small generator for tests, initial weights and built-in data; the seed alone fixes the stream. */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include "base/base.h"

typedef struct {
    uint64_t s;
} rng;

uint64_t rng_next(rng *r);
void rng_skip(rng *r, uint64_t n);                 /* as n calls of rng_next */
uint64_t rng_below(rng *r, uint64_t n);            /* 0 .. n-1, unbiased enough for tests: n << 2^64 */
double rng_unit(rng *r);                           /* [0, 1) */
double rng_range(rng *r, double lo, double hi);
double rng_normal(rng *r);

#endif
