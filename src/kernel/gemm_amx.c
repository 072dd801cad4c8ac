/* gemm_amx.c: bf16 and int8 on AMX tiles: two tiles of A by two of B give four 16 x 16 blocks of sums. One tile row
 * is 64 bytes: 32 bf16 or 64 int8 of k for A; for B, 16 columns of a k group. */
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
    } cfg = { .palette = 1,
              .row_bytes = { 64, 64, 64, 64, 64, 64, 64, 64 },
              .rows = { 16, 16, 16, 16, 16, 16, 16, 16 } };
    _tile_loadconfig(&cfg);
}

void amx_end(void) { _tile_release(); }

enum { STEP = 2048, ROW = 128 /* bytes of a row of 32 sums, and of a k group of 32 columns */ };

/* A's rows are lines, one behind the other where they were packed, or as they lie, a_row apart. B passes by from the
 * second cache while a panel of A stays in the first: B's loads carry the streaming hint, without which they push A
 * out and run at half the rate of that cache. A step is 64 lines of operands; as many lines ahead are asked for as
 * the job's steps add up to. A short piece of A leaves room for its successor beside it in the first cache; a long
 * one does not, and is asked into the second. */
enum { SHORT = 32 << 10 };

static inline void to_first(const char *at, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += 64) _mm_prefetch(at + i, _MM_HINT_T0);
}

static inline void to_second(const char *at, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += 64) _mm_prefetch(at + i, _MM_HINT_T1);
}

#define AMX_TILE(name, per_step, kr, dot)                                                                             \
    static void name##_one(const tile_job *t)                                                                         \
    {                                                                                                                 \
        const char *a = t->a, *b = t->b, *near0 = t->ahead[0].at, *near1 = t->ahead[1].at, *c = t->from;              \
        const int64_t far0 = t->ahead[0].step * (per_step / kr), far1 = t->ahead[1].step * (per_step / kr);           \
        const int64_t row = t->a_row ? t->a_row : 64, a_step = t->a_row ? 64 : STEP;                                  \
        const bool is_short = !t->far && t->k / per_step * STEP <= SHORT;                                             \
        if (!c) {                                                                                                     \
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
        for (int64_t i = 0; i < t->k; i += per_step) {                                                                \
            _tile_stream_loadd(6, b, ROW);                                                                            \
            _tile_loadd(4, a, row);                                                                                   \
            dot(0, 4, 6);                                                                                             \
            _tile_stream_loadd(7, b + 64, ROW);                                                                       \
            dot(1, 4, 7);                                                                                             \
            _tile_loadd(5, a + 16 * row, row);                                                                        \
            dot(2, 5, 6);                                                                                             \
            dot(3, 5, 7);                                                                                             \
            for (int64_t r = i * 32 / t->k; t->c && r < (i + per_step) * 32 / t->k; r++) {                            \
                _mm_prefetch(t->c + r * t->c_ld, _MM_HINT_ET0);                                                        \
                if (t->c_wide > 64) _mm_prefetch(t->c + r * t->c_ld + 64, _MM_HINT_ET0);                               \
                if (t->beside) _mm_prefetch(t->beside + r * t->beside_ld, _MM_HINT_T0);                                \
            }                                                                                                         \
            if (is_short) to_first(near0, far0);                                                                      \
            else to_second(near0, far0);                                                                              \
            to_second(near1, far1);                                                                                   \
            near0 += far0;                                                                                            \
            near1 += far1;                                                                                            \
            a += a_step;                                                                                              \
            b += STEP;                                                                                                \
        }                                                                                                             \
        char *to = t->to;                                                                                             \
        const int64_t ld = t->to_ld;                                                                                  \
        _tile_stored(0, to, ld);                                                                                      \
        _tile_stored(1, to + 64, ld);                                                                                 \
        _tile_stored(2, to + 16 * ld, ld);                                                                            \
        _tile_stored(3, to + 16 * ld + 64, ld);                                                                       \
    }                                                                                                                 \
    void name(const tile_job *t)                                                                                      \
    {                                                                                                                 \
        tile_job next = *t;                                                                                           \
        for (int64_t left = t->right.tiles;; left--) {                                                                \
            name##_one(&next);                                                                                        \
            if (!left) return;                                                                                        \
            tile_go_right(&next, 32, 32 * ROW, t->k / (kr));                                                          \
        }                                                                                                             \
    }

AMX_TILE(tile_bf16_32x32_amx, 32, 2, _tile_dpbf16ps)
AMX_TILE(tile_i8_32x32_amx, 64, 4, _tile_dpbssd)
#else
typedef int gemm_amx_other_architecture;
#endif
