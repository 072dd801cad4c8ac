/* gemv_neon.c: few columns on 4 lanes; a table of sixteen is four registers of bytes. */
#if defined(__aarch64__)
#include "kernel/vec_neon.inc"

typedef uint8x16x4_t vt;
static inline vt vt_load(const float *p) { return (vt){ { vld1q_u8((const void *)p), vld1q_u8((const void *)(p + 4)), vld1q_u8((const void *)(p + 8)), vld1q_u8((const void *)(p + 12)) } }; }
/* Byte b of value i is at 4 i + b. */
static inline uint8x16_t byte_places(vi i)
{
    uint32x4_t at = vmulq_n_u32(vreinterpretq_u32_s32(i), 0x04040404u);
    return vreinterpretq_u8_u32(vaddq_u32(at, vdupq_n_u32(0x03020100u)));
}
static inline vf v_look(vt t, vi i) { return vreinterpretq_f32_u8(vqtbl4q_u8(t, byte_places(i_and(i, i_set1(15))))); }
static inline vf v_pick(vf v, vi i) { return vreinterpretq_f32_u8(vqtbl1q_u8(vreinterpretq_u8_f32(v), byte_places(i))); }
static inline float v_sum(vf v)
{
    float32x2_t x = vadd_f32(vget_low_f32(v), vget_high_f32(v));
    return vget_lane_f32(x, 0) + vget_lane_f32(x, 1);
}
static inline vf v_ld_u8(const void *p, int n) { return vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(ldn_bytes(p, n))))); }

#define GEMV_ROWS gemv_rows_neon
#include "kernel/gemv.inc"
#else
typedef int gemv_neon_other_architecture;
#endif
