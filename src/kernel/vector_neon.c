/* vector_neon.c: the loops of vector.h for neon. */
#if defined(__aarch64__)
#include "kernel/vec_neon.inc"

#include <math.h>

#include "kernel/more_neon.inc"

#include "kernel/lines_neon.inc"

#include "kernel/vector.inc"

VECTOR_TABLE(vector_neon, "neon", ISA_NEON);
#else
typedef int vector_neon_other_architecture;
#endif
