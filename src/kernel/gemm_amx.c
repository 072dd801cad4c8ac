/* gemm_amx.c: bf16 and int8 on AMX tiles: two tiles of A by two of B give four 16 x 16 blocks of sums. One tile row is 64
 * bytes: 32 bf16 or 64 int8 of k for A; for B, 16 columns of a k group. */
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernel/gemm_int.h"

/* Tiles 0..3 sums, 4 5 A, 6 7 B; all 16 rows of 64 bytes. */
void amx_begin(void)
{
    static const struct { /* why static: gcc's builtin tells the optimiser about the first eight bytes only */
        uint8_t palette, start_row, zero[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } cfg = { .palette = 1, .row_bytes = { 64, 64, 64, 64, 64, 64, 64, 64 }, .rows = { 16, 16, 16, 16, 16, 16, 16, 16 } };
    _tile_loadconfig(&cfg);
}

void amx_end(void) { _tile_release(); }

enum { A_STEP = 2048, B_STEP = 2048, ROW = 128 /* bytes of a row of 32 sums, and of a k group of 32 columns */ };

#define AMX_TILE(name, per_step, dot)                                                                                 \
    void name(int64_t k, const void *a, const void *b, void *acc, int rows, int cols, bool first)                     \
    {                                                                                                                 \
        const char *pa = a, *pb = b;                                                                                  \
        char *c = acc;                                                                                                \
        (void)rows;                                                                                                   \
        (void)cols;                                                                                                   \
        if (first) {                                                                                                  \
            _tile_zero(0);                                                                                            \
            _tile_zero(1);                                                                                            \
            _tile_zero(2);                                                                                            \
            _tile_zero(3);                                                                                            \
        } else {                                                                                                      \
            _tile_loadd(0, c, ROW);                                                                                   \
            _tile_loadd(1, c + 64, ROW);                                                                              \
            _tile_loadd(2, c + 16 * ROW, ROW);                                                                        \
            _tile_loadd(3, c + 16 * ROW + 64, ROW);                                                                   \
        }                                                                                                             \
        for (int64_t i = 0; i < k; i += per_step) {                                                                   \
            _tile_loadd(6, pb, ROW);                                                                                  \
            _tile_loadd(4, pa, 64);                                                                                   \
            dot(0, 4, 6);                                                                                             \
            _tile_loadd(7, pb + 64, ROW);                                                                             \
            dot(1, 4, 7);                                                                                             \
            _tile_loadd(5, pa + 1024, 64);                                                                            \
            dot(2, 5, 6);                                                                                             \
            dot(3, 5, 7);                                                                                             \
            pa += A_STEP;                                                                                             \
            pb += B_STEP;                                                                                             \
        }                                                                                                             \
        _tile_stored(0, c, ROW);                                                                                      \
        _tile_stored(1, c + 64, ROW);                                                                                 \
        _tile_stored(2, c + 16 * ROW, ROW);                                                                           \
        _tile_stored(3, c + 16 * ROW + 64, ROW);                                                                      \
    }

AMX_TILE(tile_bf16_32x32_amx, 32, _tile_dpbf16ps)
AMX_TILE(tile_i8_32x32_amx, 64, _tile_dpbssd)
#else
typedef int gemm_amx_other_architecture;
#endif
