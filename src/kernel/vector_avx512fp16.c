/* vector_avx512fp16.c: the loops of vector.h for AVX-512 with fp16 arithmetic. */
#if defined(__AVX512FP16__)
#include "kernel/vec_avx512.inc"

#include <math.h>

#include "kernel/more_avx512.inc"

#include "kernel/halves_avx512.inc"

/* Sapphire Rapids takes a fifth less for two rows of fp16 exps; of what memory gives no faster, one. */
#define V_TURN_ROWS(t, how) ((t) == DT_F16 && (how) == LOOK_EXPS ? 2 : 1)

#include "kernel/vector.inc"

VECTOR_TABLE(vector_avx512fp16, "avx512fp16", ISA_AVX512FP16 | ISA_AVX512);
#elif defined(__x86_64__)
#include "kernel/vector_int.h"

/* This compiler does not know the instructions: a row that wants what no processor has. */
const vec_kernels vector_avx512fp16 = { .name = "avx512fp16", .need = UINT32_MAX };
#else
typedef int vector_avx512fp16_other_architecture;
#endif
