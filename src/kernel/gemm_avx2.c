/* gemm_avx2.c: AVX2 + FMA + F16C vector code, the fp32 tile (6 x 16: 12 sums, 2 of B, 1 of A) and the int8 tile, which
 * multiplies 16-bit pairs: vpmaddubsw would saturate. */
#if defined(__x86_64__)
#include "kernel/vec_avx2.inc"

#include <math.h>

#include "kernel/more_avx2.inc"

#define VEC_RIGHTWARD true /* gemm_tile.inc */
#include "kernel/gemm_vec.inc"

GEMM_VEC_TABLE(vec_avx2);

#define TILE tile_f32_6x16_avx2
#define TILE_KR 1
#define TILE_MR 6
#define TILE_ROWS(X) X(0) X(1) X(2) X(3) X(4) X(5)
#define TILE_VB 32
#define ACC __m256
#define ACC_ZERO _mm256_setzero_ps()
#define ACC_LD(p) _mm256_loadu_ps((const float *)(const void *)(p))
#define ACC_ST(p, x) _mm256_storeu_ps((float *)(void *)(p), x)
#define UNIT __m256
#define UNIT_BC(p) _mm256_broadcast_ss((const float *)(const void *)(p))
#define BVEC __m256
#define BVEC_LD(p) _mm256_loadu_ps((const float *)(const void *)(p))
#define MAC(c, u, b) _mm256_fmadd_ps(u, b, c)
#include "kernel/gemm_tile.inc"

#define TILE tile_i8_6x16_avx2
#define TILE_KR 2
#define TILE_MR 6
#define TILE_ROWS(X) X(0) X(1) X(2) X(3) X(4) X(5)
#define TILE_VB 32
#define ACC __m256i
#define ACC_ZERO _mm256_setzero_si256()
#define ACC_LD(p) _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define ACC_ST(p, x) _mm256_storeu_si256((__m256i *)(void *)(p), x)
#define UNIT __m256i
#define UNIT_BC(p) _mm256_set1_epi32(*(const int32_t *)(const void *)(p))
#define BVEC __m256i
#define BVEC_LD(p) _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define MAC(c, u, b) _mm256_add_epi32(c, _mm256_madd_epi16(u, b))
#define REAL __m256
#define REAL_LD(p) _mm256_loadu_ps((const float *)(const void *)(p))
#define REAL_ST(p, x) _mm256_storeu_ps((float *)(void *)(p), x)
#define REAL_BC(x) _mm256_set1_ps(x)
#define REAL_TIMES(x, by) _mm256_fmadd_ps(x, by, _mm256_setzero_ps())
#define ACC_BC(x) _mm256_set1_epi32(x)
#define ACC_ADD(a, b) _mm256_add_epi32(a, b)
#define ACC_AS_REAL(c, by) _mm256_mul_ps(_mm256_cvtepi32_ps(c), by)
#include "kernel/gemm_tile.inc"
#else
typedef int gemm_avx2_other_architecture;
#endif
