/* vector_bf16.c: the loops of vector.h for NEON with fp16 arithmetic that rounds to bf16 in one instruction: the same
 * bits as vector_fp16.c. */
#if defined(__aarch64__)
#include "kernel/vec_neon.inc"

#include <math.h>

#include "kernel/more_neon.inc"

#include "kernel/lines_neon.inc"

#include "kernel/halves_neon.inc"

#define V_HIGH_BF16(x) v_bits(vcvt_f32_bf16(vcvt_bf16_f32(x)))
#define V_STN_BF16(p, x, n) stn_bytes((p), vreinterpret_u8_bf16(vcvt_bf16_f32(x)), 2 * (n))
#define STORE_BF16_PAIR(p, a, b) store_bf16_pair((p), (a), (b))
#define STREAM_BF16_PAIR(p, a, b) store_bf16_pair((p), (a), (b))
static inline void store_bf16_pair(void *p, vf a, vf b)
{
    vst1q_u8(p, vreinterpretq_u8_bf16(vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(a), b)));
}

#include "kernel/vector.inc"

VECTOR_TABLE(vector_bf16, "bf16", ISA_FP16 | ISA_BF16);
#else
typedef int vector_bf16_other_architecture;
#endif
