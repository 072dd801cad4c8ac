/* gemm_avx512.c: AVX-512 vector code and the fp32 tile, 14 rows of two 16-lane vectors: 28 sums, 2 of B, 1 of A.
 * Each step takes 16 loads for 28 multiply-adds, so two FMA ports stay busy while B comes from L2. */
#if defined(__x86_64__)
#include "kernel/vec_avx512.inc"

#include <math.h>
#include <stdalign.h>
#include <stdbool.h>

#include "kernel/more_avx512.inc"

/* fp16, 32 of k of each of 14 lanes to 32 rows of 14. Pairs of k are turned as four-byte units, the quarters of a
 * vector put together as they are loaded; what turning leaves of a pair are two rows, which follow each other: 56
 * bytes. Eight of those are seven lines. */
#define VEC_HAS_HALVES 1
enum { HALVES = 14 };

/* Units 4q to 4q + 3 of every lane: vector i has unit i, lanes in order, low halves first. */
static inline __attribute__((always_inline)) void halves_quarter(const char *p, int64_t step, int lanes, vi order,
                                                                 __mmask32 there, vi *out)
{
#define AT(l) _mm_loadu_si128((const __m128i *)(const void *)(p + ((l) < lanes ? (l) : lanes - 1) * step))
    vi v[4];
    for (int i = 0; i < 4; i++) {
        v[i] = _mm512_inserti32x4(_mm512_inserti32x4(_mm512_castsi128_si512(AT(i)), AT(i + 4), 1), AT(i + 8), 2);
        if (i + 12 < HALVES) v[i] = _mm512_inserti32x4(v[i], AT(i + 12), 3);
    }
#undef AT
    const vi a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
    const vi c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
    const vi turned[4] = { _mm512_unpacklo_epi64(a, c), _mm512_unpackhi_epi64(a, c), _mm512_unpacklo_epi64(b, d),
                           _mm512_unpackhi_epi64(b, d) };
    for (int i = 0; i < 4; i++) out[i] = _mm512_maskz_permutexvar_epi16(there, order, turned[i]);
}

static inline __attribute__((always_inline)) void halves_turn(char *to, const char *p, int64_t step, int lanes,
                                                              bool past)
{
    alignas(64) static const int16_t order[32] = { 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26,
                                                   1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27 };
    enum { WORDS = 2 * HALVES * 2 / 8 }; /* of eight bytes, in a row of two */
    const vi in_order = i_ld(order), count = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
    const uint32_t half = (1u << lanes) - 1;
    const __mmask32 there = half | half << HALVES; /* lanes that are not there are zero */
    for (int part = 0; part < 2; part++, to += 7 * 64, p += 32) {
        vi r[8];
        halves_quarter(p, step, lanes, in_order, there, r);
        halves_quarter(p + 16, step, lanes, in_order, there, r + 4);
        for (int i = 0; i < WORDS; i++) { /* what is left of row i, then of the next */
            const vi from = _mm512_add_epi64(count, _mm512_set1_epi64(i));
            const vi at = _mm512_mask_add_epi64(from, _mm512_cmpge_epi64_mask(from, _mm512_set1_epi64(WORDS)), from,
                                                _mm512_set1_epi64(8 - WORDS));
            const vi line = _mm512_permutex2var_epi64(r[i], at, r[i + 1]);
            if (past) _mm512_stream_si512((void *)(to + 64 * i), line);
            else _mm512_store_si512(to + 64 * i, line);
        }
    }
}

#define VEC_RIGHTWARD true /* gemm_tile.inc, gemm_amx.c */
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
