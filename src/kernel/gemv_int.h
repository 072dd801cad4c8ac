/* gemv_int.h: what the driver hands to a kernel of few columns. */
#ifndef KERNEL_GEMV_INT_H
#define KERNEL_GEMV_INT_H

#include "kernel/gemv.h"

/* A column of x, prepared: k padded with zeros to a multiple of pad. Nibbles want, in each run of 8 · width, element 8·d + s at
 * s · width + d, so that shifting a vector of words by four brings up the neighbours; lane_sum then holds the sums of eight. */
typedef struct {
    const float *x;        /* per column: x_stride apart */
    int64_t x_stride;
    const float *lane_sum; /* per column: x_stride / 8 apart; NIBBLE with shift */
    const float *sum;      /* per column; I8 and U8 */
    /* NIBBLE by digits, else NULL. In each run of 8 · width, lane d stands for elements 8·d .. 8·d + 7: high digits of the even ones
     * (four bytes a lane), of the odd ones, then their low digits. */
    const int8_t *digits;  /* per column: 2 · x_stride apart */
    const int32_t *start;  /* per lane: what sums begin with, since nibbles are taken as 0 to 15; x_stride / 8 apart */
    const float *step;     /* per lane: what a unit of its digits is */
    bool zero;             /* nibbles are -8 to 7 */
} gemv_columns;

/* Two digits of seven bits and a sign: x to 2^-15 of the largest of its eight. */
enum { DIGIT_BITS = 7 };
#define DIGIT_MOST (127 * 128 + 63.0f)
#define DIGIT_TINY 0x1p-100f /* eight numbers below it are zero */

/* Rows i0..i1, n columns: y[i, j]. */
typedef void gemv_rows(const gemv_weight *w, const gemv_columns *x, int64_t n, int64_t i0, int64_t i1, float *y, int64_t ldy);

typedef void gemv_digits(const float *x, int64_t n, bool zero, int8_t *digits, int32_t *start, float *step);
typedef void gemv_lines(dtype t, const void *lines, int64_t rows, int64_t cols, const float *x, float *y);

struct gemv_kernel {
    const char *name;
    uint32_t need;
    int width; /* lanes */
    gemv_rows *rows;
    gemv_lines *scores, *mix;
    gemv_digits *digits; /* NULL: products in fp32 only */
};

#define GEMV(id, need, width, digits) gemv_rows gemv_rows_##id; gemv_lines gemv_scores_##id, gemv_mix_##id;
#include "kernel/gemv.def"
#undef GEMV
#if defined(__x86_64__)
gemv_digits gemv_digits_vnni, gemv_digits_avx512, gemv_digits_avx2;
#elif defined(__aarch64__)
gemv_digits gemv_digits_dot;
#endif

#endif
