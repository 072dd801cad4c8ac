/* gemv_dot.c: few columns on 4 lanes; four products of bytes in one step. */
#if defined(__aarch64__)
#include "kernel/vec_neon.inc"

#include "kernel/gemv_neon.inc"

static inline vi d_even(vi v, vi f) { return i_and(i_xor(v, f), i_set1(0x0f0f0f0f)); }
static inline vi d_odd(vi v, vi f) { return vreinterpretq_s32_u8(vshrq_n_u8(vreinterpretq_u8_s32(i_xor(v, f)), 4)); }
static inline vi d_dot(vi c, vi u, vi x) { return vdotq_s32(c, vreinterpretq_s8_s32(u), vreinterpretq_s8_s32(x)); }

#define B_UNSIGNED 0
static inline vi b_dot(vi c, vi w, vi x) { return vdotq_s32(c, vreinterpretq_s8_s32(w), vreinterpretq_s8_s32(x)); }
static inline vi b_ldn(const void *p, int n)
{
    int8_t all[16] = { 0 };
    memcpy(all, p, (size_t)n);
    return vreinterpretq_s32_s8(vld1q_s8(all));
}

#define PANEL_ROWS_FN gemv_panel_rows_dot
#define PANEL_X_FN gemv_panel_x_dot
#include "kernel/gemv_panel_neon.inc"

#define GEMV_BYTES gemv_bytes_dot
#define GEMV_ROWS gemv_rows_dot
#define GEMV_SCORES gemv_scores_dot
#define GEMV_MIX gemv_mix_dot
#define GEMV_DIGITS gemv_digits_dot
#include "kernel/gemv.inc"
#else
typedef int gemv_dot_other_architecture;
#endif
