/* vector_int.h: the tables the objects of vector.h define, one per instruction set. */
#ifndef KERNEL_VECTOR_INT_H
#define KERNEL_VECTOR_INT_H

#include "kernel/vector.h"

extern const vec_kernels vector_scalar;
#if defined(__x86_64__)
extern const vec_kernels vector_avx2, vector_avx512, vector_avx512fp16;
#elif defined(__aarch64__)
extern const vec_kernels vector_neon, vector_fp16, vector_bf16;
#endif

#endif
