/* gemm_bf16.c: vector code that rounds to bf16 in one instruction, and bf16 on BFMMLA, four k a step: the products of a
 * pair of k are added to each other, then to the sum. */
#if defined(__aarch64__)
#include "kernel/vec_neon.inc"

#define VEC_ROUNDS_BF16 1
static inline vi v_to_bf16(vf x)
{
    return vreinterpretq_s32_u32(vmovl_u16(vreinterpret_u16_bf16(vcvt_bf16_f32(x))));
}
static inline vi v_to_bf16_pair(vf low, vf high)
{
    return vreinterpretq_s32_u16(vzip1q_u16(vreinterpretq_u16_bf16(vcvtq_low_bf16_f32(low)),
                                            vreinterpretq_u16_bf16(vcvtq_low_bf16_f32(high))));
}
static inline vi v_bf16_run(vf low, vf high)
{
    return vreinterpretq_s32_bf16(vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(low), high));
}

#include <math.h>

#include "kernel/more_neon.inc"

#define FEW_BY_LANES
#define VEC_RIGHTWARD true /* gemm_a64.inc */
#include "kernel/gemm_vec.inc"
#include "kernel/gemm_a64.inc"

GEMM_VEC_TABLE(vec_bf16);

#define A64_MMLA(c, a, b) "bfmmla v" #c ".4s, v" #a ".8h, v" #b ".8h\n"
A64_TILE(tile_bf16_8x12_bf16, EACH_PAIR, LOAD_PAIR, STORE_PAIR, MMLA_STEP, MMLA_FIRST, MMLA_PAIR, 4, 1, 96, tile_bf16_8x12_bf16_pairs)
#else
typedef int gemm_bf16_other_architecture;
#endif
