/* gemm_avx512.c: AVX-512 vector code and the fp32 tile, 14 rows of two 16-lane vectors: 28 sums, 2 of B, 1 of A. Each step
 * takes 16 loads for 28 multiply-adds, so two FMA ports stay busy while B comes from L2. */
#if defined(__x86_64__)
#include "kernel/vec_avx512.inc"

#include <math.h>

#include "kernel/more_avx512.inc"

#define VEC_HAS_HALVES 1
static inline vi halves_order(int n) /* of the first n lanes: the low halves, then the high ones */
{
    int16_t at[32];
    for (int i = 0; i < 32; i++) at[i] = (int16_t)(i < n ? 2 * i : 2 * (i - n) + 1);
    return i_ld(at);
}
static inline void i_st_halves(void *p, vi v, vi order, int n) { _mm512_mask_storeu_epi16(p, (__mmask32)(((uint64_t)1 << (2 * n)) - 1), _mm512_permutexvar_epi16(order, v)); }

#include "kernel/gemm_vec.inc"

GEMM_VEC_TABLE(vec_avx512);

#define TILE tile_f32_14x32_avx512
#define TILE_KR 1
#define TILE_MR 14
#define TILE_ROWS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13)
#define TILE_VB 64
#define ACC __m512
#define ACC_ZERO _mm512_setzero_ps()
#define ACC_LD(p) _mm512_loadu_ps(p)
#define ACC_ST(p, x) _mm512_storeu_ps(p, x)
#define UNIT __m512
#define UNIT_BC(p) _mm512_set1_ps(*(const float *)(const void *)(p))
#define BVEC __m512
#define BVEC_LD(p) _mm512_loadu_ps(p)
#define MAC(c, u, b) _mm512_fmadd_ps(u, b, c)
#include "kernel/gemm_tile.inc"
#else
typedef int gemm_avx512_other_architecture;
#endif
