/* gemm_vnni.c: the int8 tile on vpdpbusd, four k per unit. The instruction wants one unsigned operand: B is stored +
 * 128, and 128 times A's row sums are taken off in the epilogue. Sums are exact. */
#if defined(__x86_64__)
#define TILE tile_i8_14x32_vnni
#define TILE_KR 4
#define MAC(c, u, b) _mm512_dpbusd_epi32(c, b, u)
#include "kernel/gemm_i8_avx512.inc"

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
