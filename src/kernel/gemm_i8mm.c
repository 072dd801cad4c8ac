/* gemm_i8mm.c: int8 on SMMLA, eight k a step. Sums are exact, and a whole tile of them becomes fp32 before it leaves the
 * registers. */
#if defined(__aarch64__)
#include "kernel/gemm_a64.inc"

#define A64_MMLA(c, a, b) "smmla v" #c ".4s, v" #a ".16b, v" #b ".16b\n"
A64_PAIRS(tile_i8_real, EACH_PAIR, LOAD_PAIR, STORE_REAL, MMLA_STEP, MMLA_FIRST, MMLA_PAIR, 8, 1, 96)
A64_PAIRS(tile_i8_scaled, EACH_PAIR, LOAD_PAIR, STORE_SCALED, MMLA_STEP, MMLA_FIRST, MMLA_PAIR, 8, 1, 96)
A64_TILE(tile_i8_8x12_i8mm, EACH_PAIR, LOAD_PAIR, STORE_PAIR, MMLA_STEP, MMLA_FIRST, MMLA_PAIR, 8, 1, 96, !t->col_scale ? tile_i8_8x12_i8mm_pairs : t->row_scale ? tile_i8_scaled : tile_i8_real)
#else
typedef int gemm_i8mm_other_architecture;
#endif
