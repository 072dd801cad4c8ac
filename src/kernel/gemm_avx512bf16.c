/* gemm_avx512bf16.c: AVX-512 vector code that rounds to bf16 in one instruction, and the bf16 tile on vdpbf16ps: as
 * the fp32 tile, but a unit is a pair of k. Both take denormals for zero. */
#if defined(__x86_64__)
#include "kernel/vec_avx512.inc"

#define VEC_HAS_BF16 1
#define VEC_ROUNDS_BF16 1
static inline vi v_to_bf16(vf x) { return _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(x)); }
static inline vi v_to_bf16_pair(vf low, vf high)
{
    const vi turn = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5,
                                     20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(turn, (__m512i)_mm512_cvtne2ps_pbh(high, low));
}
/* Two rows of bf16 as they are, a line each, zipped: what the products take for zero may stay. */
static inline void bf16_zip(void *to, const void *even, const void *odd)
{
    const vi low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37, 5,
                                    36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const vi a = _mm512_loadu_si512(even), b = _mm512_loadu_si512(odd),
             high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    _mm512_storeu_si512(to, _mm512_permutex2var_epi16(a, low, b));
    _mm512_storeu_si512((char *)to + 64, _mm512_permutex2var_epi16(a, high, b));
}
static inline vi v_bf16_run(vf low, vf high) { return (__m512i)_mm512_cvtne2ps_pbh(high, low); }

#include <math.h>

#include "kernel/more_avx512.inc"

#define VEC_RIGHTWARD true /* gemm_tile.inc, gemm_amx.c */
#include "kernel/gemm_vec.inc"

GEMM_VEC_TABLE(vec_avx512bf16);

#define TILE tile_bf16_14x32_avx512bf16
#define TILE_KR 2
#define TILE_MR 14
#define TILE_ROWS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13)
#define TILE_VB 64
#define ACC __m512
#define ACC_ZERO _mm512_setzero_ps()
#define ACC_LD(p) _mm512_loadu_ps(p)
#define ACC_ST(p, x) _mm512_storeu_ps(p, x)
#define UNIT __m512i
#define UNIT_BC(p) _mm512_set1_epi32(*(const int32_t *)(const void *)(p))
#define BVEC __m512i
#define BVEC_LD(p) _mm512_loadu_si512(p)
#define MAC(c, u, b) _mm512_dpbf16_ps(c, (__m512bh)(u), (__m512bh)(b))
#include "kernel/gemm_tile.inc"
#else
typedef int gemm_avx512bf16_other_architecture;
#endif
