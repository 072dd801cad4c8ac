/* gemm_dot.c: int8 on SDOT by lane, four k a step. Sums are exact. */
#if defined(__aarch64__)
#include "kernel/gemm_a64.inc"

#define A64_UNIT(c, b, a, lane) "sdot v" #c ".4s, v" #b ".16b, v" #a ".4b[" #lane "]\n"
A64_TILE(tile_i8_8x12_dot, EACH_ROW, LOAD_ROW, STORE_ROW, UNIT_STEP, ROWS_FIRST, UNIT_PAIR, 4, 1, 48, tile_i8_8x12_dot_pairs)
#else
typedef int gemm_dot_other_architecture;
#endif
