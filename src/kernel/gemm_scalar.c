/* gemm_scalar.c: plain C for any CPU: the vector code on one lane, and two small tiles. */
#include "kernel/vec_scalar.inc"

#include <math.h>

#include "kernel/more_scalar.inc"

#include "kernel/gemm_vec.inc"

GEMM_VEC_TABLE(vec_scalar);

#define SCALAR_TILE(name, T, S)                                                                                       \
    void name(const tile_job *t)                                                                                      \
    {                                                                                                                 \
        const T *a = (const void *)t->a, *b = (const void *)t->b;                                                     \
        S s[4][4] = { { 0 } };                                                                                        \
        if (t->from) memcpy(s, t->from, sizeof s);                                                                    \
        for (int64_t i = 0; i < t->k; i++, a += 4, b += t->b_step / (int64_t)sizeof(T))                                                            \
            for (int r = 0; r < 4; r++)                                                                               \
                for (int j = 0; j < 4; j++) s[r][j] += (S)a[r] * (S)b[j];                                             \
        for (int r = 0; r < t->rows; r++) memcpy(t->to + r * t->to_ld, s[r], sizeof s[r]);                            \
    }

SCALAR_TILE(tile_f32_4x4_scalar, float, float)
SCALAR_TILE(tile_i8_4x4_scalar, int8_t, int32_t)
