/* vector.c: the rows of vector.h, best first. */
#include "kernel/vector_int.h"

static const vec_kernels *const rows[] = {
#if defined(__x86_64__)
    &vector_avx512fp16, &vector_avx512, &vector_avx2,
#elif defined(__aarch64__)
    &vector_bf16, &vector_fp16, &vector_neon,
#endif
    &vector_scalar,
};

const vec_kernels *vec_row(size_t i) { return i < COUNT(rows) ? rows[i] : NULL; }

const vec_kernels *vec_pick(uint32_t isa)
{
    size_t i = 0;
    while (rows[i]->need & ~isa) i++; /* stops: the scalar row needs nothing */
    return rows[i];
}
