/* gemm_i8_avx512.c: the int8 tile of AVX-512 without VNNI: 16-bit pairs, a multiplication and an addition for 32
 * products, which is what fp32 takes for as many. vpmaddubsw would do 64 in three steps, but saturates. 28 sums, 2 of
 * B, 1 of A, 1 of products. Sums are exact. */
#if defined(__x86_64__)
#define TILE tile_i8_14x32_avx512
#define TILE_KR 2
#define MAC(c, u, b) _mm512_add_epi32(c, _mm512_madd_epi16(u, b))
#include "kernel/gemm_i8_avx512.inc"
#else
typedef int gemm_i8_avx512_other_architecture;
#endif
