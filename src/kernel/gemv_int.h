/* gemv_int.h: what the driver hands to a kernel of few columns. */
#ifndef KERNEL_GEMV_INT_H
#define KERNEL_GEMV_INT_H

#include "kernel/gemv.h"

/* A column of x, prepared: k padded with zeros to a multiple of pad. Nibbles that are not in panels want, in each
 * run of 8 · width, element 8·d + s at s · width + d, so that shifting a vector of words by four brings up the
 * neighbours; lane_sum then holds the sums of eight. */
typedef struct {
    const float *x;        /* per column: x_stride apart */
    int64_t x_stride;
    int64_t lane_stride;   /* of what is there once for eight elements */
    const float *lane_sum; /* per column: lane_stride apart; NIBBLE with shift */
    const float *sum;      /* per column; I8 and U8 */
    /* By digits, else NULL. NIBBLE: in each run of 8 · width, lane d stands for elements 8·d .. 8·d + 7: high digits
     * of the even ones (four bytes a lane), of the odd ones, then their low digits; panels: gemv_panel.inc. I8 and
     * U8: in each run of 4 · width, high digits in the order of x, middle ones, low ones. */
    const int8_t *digits;
    int64_t digit_stride;  /* from column to column, bytes */
    /* lane_stride apart. NIBBLE: what a lane's sum (panels: a block's) begins with, since nibbles are taken as 0 to 15;
     * else what the sums of each digit, `width` lanes each, begin with where bytes are taken with the other sign */
    const int32_t *start;
    /* lane_stride apart: what a unit of the digits is, NIBBLE: of each lane, panels: of each block */
    const float *step;
    bool zero;             /* nibbles are -8 to 7 */
} gemv_columns;

/* Two digits of seven bits and a sign: x to 2^-15 of the largest of its eight. */
enum { DIGIT_BITS = 7 };
#define DIGIT_MOST (127 * 128 + 63.0f)
#define DIGIT_TINY 0x1p-100f /* eight numbers below it are zero */
/* Bytes: three digits, x to 2^-21 of the largest of its column. */
enum { BYTE_DIGITS = 3, BYTE_LANE_K = 1 << 16 /* products of 255 and 127 that an int32 lane holds */ };
#define BYTE_MOST (127 * 16384 + 63 * 128 + 63.0f)

/* Panels of nibbles (gemv_panel.c). */
enum { PANEL_ROWS = 32, PANEL_BLOCK = 32, PANEL_SCALES = PANEL_ROWS * PANEL_BLOCK / 2,
       PANEL_BYTES = PANEL_SCALES + 2 * PANEL_ROWS };
bool gemv_numbers(const gemv_weight *w, bool *zero); /* nibbles are 0 to 15, or -8 to 7: zero */

/* Rows i0..i1, n columns: y[i, j]. */
typedef void gemv_rows(const gemv_weight *w, const gemv_columns *x, int64_t n, int64_t i0, int64_t i1, float *y,
                       int64_t ldy);

gemv_rows gemv_panel_plain; /* of columns that are not finite */

typedef void gemv_digits(const float *x, int64_t n, bool zero, int8_t *digits, int32_t *start, float *step);
/* one column */
typedef void gemv_bytes(const float *x, int64_t n, float largest, int8_t *digits, int32_t *start, float *step);
typedef void gemv_lines(dtype t, const void *lines, int64_t rows, int64_t cols, const float *x, float *y,
                        const void *then);

struct gemv_kernel {
    const char *name;
    uint32_t need;
    int width; /* lanes */
    gemv_rows *rows;
    gemv_lines *scores, *mix;
    gemv_digits *digits; /* NULL: products of nibbles in fp32 only */
    gemv_bytes *bytes;   /* the same for bytes */
    gemv_digits *panel;  /* x for panels, which panel_rows multiplies; or NULL */
    gemv_rows *panel_rows;
};

#define GEMV(id, like, need, width, digits, bytes, panel, panel_rows)                                                  \
    gemv_rows gemv_rows_##like;                                                                                        \
    gemv_lines gemv_scores_##like, gemv_mix_##like;
#include "kernel/gemv.def"
#undef GEMV
#if defined(__x86_64__)
gemv_digits gemv_digits_vnni, gemv_digits_avx512, gemv_digits_avx2;
gemv_bytes gemv_bytes_vnni;
gemv_digits gemv_panel_x_vnni, gemv_panel_x_avx512;
gemv_rows gemv_panel_rows_gfni, gemv_panel_rows_vnni, gemv_panel_rows_avx512;
#elif defined(__aarch64__)
gemv_digits gemv_digits_dot;
gemv_bytes gemv_bytes_i8mm, gemv_bytes_dot;
gemv_digits gemv_panel_x_dot;
gemv_rows gemv_panel_rows_dot;
#endif

#endif
