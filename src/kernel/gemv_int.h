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
} gemv_columns;

/* Rows i0..i1, n columns: y[i, j]. */
typedef void gemv_rows(const gemv_weight *w, const gemv_columns *x, int64_t n, int64_t i0, int64_t i1, float *y, int64_t ldy);

struct gemv_kernel {
    const char *name;
    uint32_t need;
    int width; /* lanes */
    gemv_rows *rows;
};

#define GEMV(id, need, width) gemv_rows gemv_rows_##id;
#include "kernel/gemv.def"
#undef GEMV

#endif
