/* gemv_gfni.c: panels of nibbles on 16 lanes: the high ones of all bytes, as small numbers, in one step; else as
 * gemv_vnni.c. */
#if defined(__x86_64__)
#include "kernel/vec_avx512.inc"

static inline vi d_dot(vi c, vi u, vi x) { return _mm512_dpbusd_epi32(c, u, x); }

/* Row i of the bits, highest byte first: which bits of the byte make bit i of the result; here bit i + 4, and none
 * of the upper four. */
#define HIGH_NIBBLE _mm512_set1_epi64(0x1020408000000000)
#define PANEL_ODD
static inline vi d_high(vi v) { return _mm512_gf2p8affine_epi64_epi8(v, HIGH_NIBBLE, 0); }

#define PANEL_ROWS_FN gemv_panel_rows_gfni
#include "kernel/gemv_panel.inc"
#else
typedef int gemv_gfni_other_architecture;
#endif
