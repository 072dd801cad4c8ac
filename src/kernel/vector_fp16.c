/* vector_fp16.c: the loops of vector.h for NEON with fp16 arithmetic and FMLAL. */
#if defined(__aarch64__)
#include "kernel/vec_neon.inc"

#include <math.h>

#include "kernel/more_neon.inc"

#include "kernel/lines_neon.inc"

#include "kernel/halves_neon.inc"

#include "kernel/vector.inc"

VECTOR_TABLE(vector_fp16, "fp16", ISA_FP16);
#else
typedef int vector_fp16_other_architecture;
#endif
