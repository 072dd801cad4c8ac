/* gemm_scalar.c: plain C for any CPU: the vector code on one lane, and two small tiles. */
#include "kernel/vec_scalar.inc"
#include "kernel/gemm_vec.inc"

GEMM_VEC_TABLE(vec_scalar);

#define SCALAR_TILE(name, T, S)                                                                                       \
    void name(int64_t k, const void *a, const void *b, void *acc, int rows, int cols, bool first)                     \
    {                                                                                                                 \
        const T *pa = a, *pb = b;                                                                                     \
        S *c = acc;                                                                                                   \
        (void)rows;                                                                                                   \
        (void)cols;                                                                                                   \
        S s[16] = { 0 };                                                                                              \
        if (!first) memcpy(s, c, sizeof s);                                                                           \
        for (int64_t i = 0; i < k; i++, pa += 4, pb += 4)                                                             \
            for (int r = 0; r < 4; r++)                                                                               \
                for (int j = 0; j < 4; j++) s[4 * r + j] += (S)pa[r] * (S)pb[j];                                      \
        memcpy(c, s, sizeof s);                                                                                       \
    }

SCALAR_TILE(tile_f32_4x4_scalar, float, float)
SCALAR_TILE(tile_i8_4x4_scalar, int8_t, int32_t)
