/* gemv_avx512.c: few columns on 16 lanes; a table of sixteen is one register. */
#if defined(__x86_64__)
#include "kernel/vec_avx512.inc"

typedef vf vt;
static inline vt vt_load(const float *p) { return v_ld(p); }
static inline vf v_look(vt t, vi i) { return _mm512_permutexvar_ps(i, t); }
static inline vf v_pick(vf v, vi i) { return _mm512_permutexvar_ps(i, v); }
static inline float v_sum(vf v) { return _mm512_reduce_add_ps(v); }
static inline vf v_ld_u8(const void *p, int n) { return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(MASK_N(n), p))); }

#define GEMV_ROWS gemv_rows_avx512
#include "kernel/gemv.inc"
#else
typedef int gemv_avx512_other_architecture;
#endif
