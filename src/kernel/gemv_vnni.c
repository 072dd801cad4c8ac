/* gemv_vnni.c: few columns on 16 lanes; four products of bytes in one step. */
#if defined(__x86_64__)
#include "kernel/vec_avx512.inc"

#include "kernel/gemv_avx512.inc"

static inline vi d_dot(vi c, vi u, vi x) { return _mm512_dpbusd_epi32(c, u, x); }

#define B_UNSIGNED 1
static inline vi b_dot(vi c, vi w, vi x) { return _mm512_dpbusd_epi32(c, w, x); }
static inline vi b_ldn(const void *p, int n) { return _mm512_maskz_loadu_epi8(((__mmask64)1 << n) - 1, p); }

#define PANEL_ROWS_FN gemv_panel_rows_vnni
#define PANEL_X_FN gemv_panel_x_vnni
#include "kernel/gemv_panel.inc"

#define GEMV_BYTES gemv_bytes_vnni
#define GEMV_ROWS gemv_rows_vnni
#define GEMV_SCORES gemv_scores_vnni
#define GEMV_MIX gemv_mix_vnni
#define GEMV_DIGITS gemv_digits_vnni
#include "kernel/gemv.inc"
#else
typedef int gemv_vnni_other_architecture;
#endif
