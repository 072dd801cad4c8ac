/* vector_avx512.c: the loops of vector.h for avx512. */
#if defined(__x86_64__)
#include "kernel/vec_avx512.inc"

#include <math.h>

#include "kernel/more_avx512.inc"

#include "kernel/vector.inc"

VECTOR_TABLE(vector_avx512, "avx512", ISA_AVX512);
#else
typedef int vector_avx512_other_architecture;
#endif
