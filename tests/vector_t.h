/* vector_t.h: what the tests of vector.h share: odd numbers, equal bits, every instruction set of this machine. */
#ifndef VECTOR_T_H
#define VECTOR_T_H

#include <math.h>

#include "kernel/vector.h"
#include "t.h"

static rng R;
static inline float number(void)
{
    static const float odd[] = { 0,        -0.0f,     1,    -1,   INFINITY, -INFINITY, NAN, 65504,
                                 0x1p-24f, 0x1p-149f, 2049, 0.5f, -2.5f,    31,        32,  -16 };
    return rng_below(&R, 8) == 0 ? odd[rng_below(&R, COUNT(odd))] : (float)rng_range(&R, -20, 20);
}

static inline bool same(float a, float b) { return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b)); }

static inline void each_row(void (*f)(const vec_kernels *v, const vec_kernels *plain))
{
    const vec_kernels *plain = vec_pick(0);
    for (size_t i = 0; vec_row(i); i++)
        if (!(vec_row(i)->need & ~isa_cpu())) f(vec_row(i), plain);
}

static const struct {
    const char *name;
    int ulp;
} fns[VF_COUNT] = {
#define VEC_FN(id, operands, params, ulp, what) [VF_##id] = { #id, ulp },
#include "kernel/vector.def"
#undef VEC_FN
};

#endif
