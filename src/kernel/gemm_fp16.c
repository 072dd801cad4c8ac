/* gemm_fp16.c: fp16 operands, exact products, fp32 sums: FMLAL and FMLAL2 by lane, two k a step; few columns. */
#if defined(__aarch64__)
#include "kernel/vec_neon.inc"

#include "kernel/gemm_a64.inc"

#define ALWAYS static inline __attribute__((always_inline))
#define FEW_FP16
#include "kernel/gemm_few_neon.inc"

void few_f16_fp16(const few_job *j) { few_n(j, PK_F16); }

#define A64_HALF(c, b, a, lane) "fmlal v" #c ".4s, v" #b ".4h, v" #a ".h[" #lane "]\n"
#define A64_HALF2(c, b, a, lane) "fmlal2 v" #c ".4s, v" #b ".4h, v" #a ".h[" #lane "]\n"
A64_TILE(tile_f16_8x12_fp16, EACH_ROW, LOAD_ROW, STORE_ROW, HALF_STEP, ROWS_FIRST, HALF_PAIR, 2, 2, 48, tile_f16_8x12_fp16_pairs)
#else
typedef int gemm_fp16_other_architecture;
#endif
