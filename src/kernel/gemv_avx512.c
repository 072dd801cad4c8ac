/* gemv_avx512.c: few columns on 16 lanes; a table of sixteen is one register. */
#if defined(__x86_64__)
#include "kernel/vec_avx512.inc"

#include "kernel/gemv_avx512.inc"

static inline vi d_dot(vi c, vi u, vi x)
{
    return i_add(c, _mm512_madd_epi16(_mm512_maddubs_epi16(u, x), _mm512_set1_epi16(1)));
}

#define PANEL_ROWS_FN gemv_panel_rows_avx512
#define PANEL_X_FN gemv_panel_x_avx512
#include "kernel/gemv_panel.inc"

#define GEMV_ROWS gemv_rows_avx512
#define GEMV_SCORES gemv_scores_avx512
#define GEMV_MIX gemv_mix_avx512
#define GEMV_DIGITS gemv_digits_avx512
#include "kernel/gemv.inc"
#else
typedef int gemv_avx512_other_architecture;
#endif
