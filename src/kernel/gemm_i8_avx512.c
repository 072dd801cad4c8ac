/* gemm_i8_avx512.c: the int8 tile of AVX-512 without VNNI: 16-bit pairs, a multiplication and an addition for 32
 * products, which is what fp32 takes for as many. vpmaddubsw would do 64 in three steps, but saturates. 28 sums, 2 of
 * B, 1 of A, 1 of products. Sums are exact. */
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernel/gemm_int.h"

#define TILE tile_i8_14x32_avx512
#define TILE_KR 2
#define TILE_MR 14
#define TILE_ROWS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13)
#define TILE_VB 64
#define ACC __m512i
#define ACC_ZERO _mm512_setzero_si512()
#define ACC_LD(p) _mm512_loadu_si512(p)
#define ACC_ST(p, x) _mm512_storeu_si512(p, x)
#define UNIT __m512i
#define UNIT_BC(p) _mm512_set1_epi32(*(const int32_t *)(const void *)(p))
#define BVEC __m512i
#define BVEC_LD(p) _mm512_loadu_si512(p)
#define MAC(c, u, b) _mm512_add_epi32(c, _mm512_madd_epi16(u, b))
#define REAL __m512
#define REAL_LD(p) _mm512_loadu_ps(p)
#define REAL_ST(p, x) _mm512_storeu_ps(p, x)
#define REAL_BC(x)    _mm512_set1_ps(x)
#define ACC_BC(x)     _mm512_set1_epi32(x)
#define ACC_AS_REAL(c, fix, by, scale)                                                                                 \
    _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(c, fix)), by), scale, _mm512_setzero_ps())
#include "kernel/gemm_tile.inc"
#else
typedef int gemm_i8_avx512_other_architecture;
#endif
