/* gemm_neon.c: baseline aarch64: vector code, the fp32 tile (FMLA by lane, two k a step) and an int8 tile that
 * multiplies 16-bit values, for CPUs without SDOT. */
#if defined(__aarch64__)
#include "kernel/vec_neon.inc"

#include <math.h>

#include "kernel/more_neon.inc"

#define FEW_BY_LANES
#define VEC_RIGHTWARD true /* gemm_a64.inc */
#include "kernel/gemm_vec.inc"
#include "kernel/gemm_a64.inc"

GEMM_VEC_TABLE(vec_neon);

#define A64_UNIT(c, b, a, lane) "fmla v" #c ".4s, v" #b ".4s, v" #a ".s[" #lane "]\n"
A64_FN(tile_f32_as_it_lies, 3, EACH_ROW, LOAD_ROW, STORE_ROW, UNIT_STEP, 1, 1) /* rows of B far apart */
A64_TILE(tile_f32_8x12_neon, EACH_ROW, LOAD_ROW, STORE_ROW, UNIT_STEP, ROWS_FIRST, UNIT_PAIR, 1, 1, 48, t->b_step != 48 ? tile_f32_as_it_lies : tile_f32_8x12_neon_pairs)

#define A64_HALF(c, b, a, lane) "smlal v" #c ".4s, v" #b ".4h, v" #a ".h[" #lane "]\n"
#define A64_HALF2(c, b, a, lane) "smlal2 v" #c ".4s, v" #b ".8h, v" #a ".h[" #lane "]\n"
A64_TILE(tile_i8_8x12_neon, EACH_ROW, LOAD_ROW, STORE_ROW, HALF_STEP, ROWS_FIRST, HALF_PAIR, 2, 2, 48, tile_i8_8x12_neon_pairs)
#else
typedef int gemm_neon_other_architecture;
#endif
