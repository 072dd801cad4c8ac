/* vector_avx2.c: the loops of vector.h for avx2. */
#if defined(__x86_64__)
#include "kernel/vec_avx2.inc"

#include <math.h>

#include "kernel/more_avx2.inc"

#include "kernel/vector.inc"

VECTOR_TABLE(vector_avx2, "avx2", ISA_AVX2);
#else
typedef int vector_avx2_other_architecture;
#endif
