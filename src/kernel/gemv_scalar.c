/* gemv_scalar.c: few columns in plain C for any CPU. */
#include "kernel/vec_scalar.inc"

typedef const float *vt;
static inline vt vt_load(const float *p) { return p; }
static inline vf v_look(vt t, vi i) { return t[i & 15]; }
static inline vf v_pick(vf v, vi i)
{
    (void)i; /* the only lane */
    return v;
}
static inline float v_sum(vf v) { return v; }
static inline vf v_ld_u8(const void *p, int n) { return n > 0 ? (vf) * (const uint8_t *)p : 0.0f; }

#define GEMV_ROWS gemv_rows_scalar
#define GEMV_SCORES gemv_scores_scalar
#define GEMV_MIX gemv_mix_scalar
#include "kernel/gemv.inc"
