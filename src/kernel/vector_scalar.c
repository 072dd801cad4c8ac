/* vector_scalar.c: the loops of vector.h in plain C, for any CPU. */
#include "kernel/vec_scalar.inc"

#include <math.h>

#include "kernel/more_scalar.inc"

#include "kernel/vector.inc"

VECTOR_TABLE(vector_scalar, "scalar", 0);
