/* gemm_vnni.c: the int8 tile on vpdpbusd, four k per unit. The instruction wants one unsigned operand: B is stored +
 * 128, and 128 times A's row sums are taken off in the epilogue. Sums are exact. */
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernel/gemm_int.h"

#define TILE tile_i8_14x32_vnni
#define TILE_KR 4
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
#define MAC(c, u, b) _mm512_dpbusd_epi32(c, b, u)
#define REAL __m512
#define REAL_LD(p) _mm512_loadu_ps(p)
#define REAL_ST(p, x) _mm512_storeu_ps(p, x)
#define REAL_BC(x)    _mm512_set1_ps(x)
#define ACC_BC(x)     _mm512_set1_epi32(x)
#define ACC_AS_REAL(c, fix, by, scale)                                                                                 \
    _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(c, fix)), by), scale, _mm512_setzero_ps())
#include "kernel/gemm_tile.inc"

void row_sum_14_vnni(int64_t k, const void *panel, int32_t *out)
{
    const __mmask16 rows = 0x3fff;
    const __m512i ones = _mm512_set1_epi8(1);
    const char *p = panel;
    /* one would wait for itself */
    __m512i s[4] = { _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512() };
    int64_t u = 0;
    for (; u + 4 <= k / 4; u += 4)
        for (int i = 0; i < 4; i++)
            s[i] = _mm512_dpbusd_epi32(s[i], ones, _mm512_maskz_loadu_epi32(rows, p + (u + i) * 56));
    for (; u < k / 4; u++) s[0] = _mm512_dpbusd_epi32(s[0], ones, _mm512_maskz_loadu_epi32(rows, p + u * 56));
    _mm512_mask_storeu_epi32(out, rows, _mm512_add_epi32(_mm512_add_epi32(s[0], s[1]), _mm512_add_epi32(s[2], s[3])));
}
#else
typedef int gemm_vnni_other_architecture;
#endif
