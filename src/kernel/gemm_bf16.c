/* gemm_bf16.c: bf16 on BFMMLA, four k a step: the products of a pair of k are added to each other, then to the sum. */
#if defined(__aarch64__)
#include "kernel/gemm_a64.inc"

#define A64_MMLA(c, a, b) "bfmmla v" #c ".4s, v" #a ".8h, v" #b ".8h\n"
A64_TILE(tile_bf16_8x12_bf16, EACH_PAIR, LOAD_PAIR, STORE_PAIR, MMLA_STEP, 4, 1)
#else
typedef int gemm_bf16_other_architecture;
#endif
