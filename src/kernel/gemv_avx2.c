/* gemv_avx2.c: few columns on 8 lanes; a table of sixteen is two registers, chosen by the fourth bit. */
#if defined(__x86_64__)
#include "kernel/vec_avx2.inc"

typedef struct {
    vf low, high;
} vt;
static inline vt vt_load(const float *p) { return (vt){ v_ld(p), v_ld(p + 8) }; }
static inline vf v_look(vt t, vi i)
{
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(t.low, i), _mm256_permutevar8x32_ps(t.high, i),
                            v_ofbits(i_shl(i, 28)));
}
static inline vf v_pick(vf v, vi i) { return _mm256_permutevar8x32_ps(v, i); }
static inline float v_sum(vf v)
{
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps(x, x, 1)));
}
static inline vf v_ld_u8(const void *p, int n) { return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(ldn_bytes(p, n))); }
static inline vi d_even(vi v, vi f) { return i_and(i_xor(v, f), i_set1(0x0f0f0f0f)); }
static inline vi d_odd(vi v, vi f) { return d_even(_mm256_srli_epi16(v, 4), f); }
static inline vi d_dot(vi c, vi u, vi x)
{
    return i_add(c, _mm256_madd_epi16(_mm256_maddubs_epi16(u, x), _mm256_set1_epi16(1)));
}

#define GEMV_ROWS gemv_rows_avx2
#define GEMV_SCORES gemv_scores_avx2
#define GEMV_MIX gemv_mix_avx2
#define GEMV_DIGITS gemv_digits_avx2
#include "kernel/gemv.inc"
#else
typedef int gemv_avx2_other_architecture;
#endif
