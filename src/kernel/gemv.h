/* gemv.h: few columns times a large weight that stays as it is stored: token-by-token decoding. The weight is read
 * once, at memory speed, and widened to fp32 in registers; kernel.h's product would first write it out packed.
 *
 *     y[i,j] = sum over k of W[i,k] · x[k,j]         x as fp32, fp32 fused multiply-adds (scalar row: rounded product, then sum)
 *
 * Order of summation, the same for every thread count and whatever the other columns: lane l of `width` adds its k =
 * l, l + width, ... ascending (nibbles: k in groups of eight per lane; blocks: their sums, scaled, in turn), then
 * lanes are added in halves. So with s = ceil(k/width) an element is within (s + 12) · 2^-24 · sum|W·x| of the exact
 * sum over the weights as defined below.
 *
 * Nibbles that are numbers (a table of 0 to 15 or of -8 to 7, one for all rows) with a scale per block meet x by
 * digits, where a kernel has them: x in units of 2^-14 of the largest of each eight (in panels: of each block), sums
 * of integers, exact. Then an element may be off by another 2^-15 · sum over them of (largest |x|) · (sum|W|), and
 * those whose largest is below 2^-100 count as zero. Bytes with a scale per row likewise, where a kernel can: x in
 * units of 2^-20 of the largest of its column, off by another 2^-21 · (largest |x|) · (sum|W|). Columns with an
 * infinity or NaN go the other way, and a sum of codes that is not finite is made again, product by product (not of
 * panels).
 *
 * What a weight is, exactly: the stored number; int8: row_scale · q + row_shift, or its block's scale · q; nibbles:
 * the table's value, times its block's scale, plus its block's shift. Scales are applied to sums in fp32: an element
 * of W is never rounded to fp16. */
#ifndef KERNEL_GEMV_H
#define KERNEL_GEMV_H

#include "kernel/kernel.h"

typedef enum { GEMV_F16, GEMV_BF16, GEMV_I8, GEMV_U8, GEMV_NIBBLE, GEMV_FORMS } gemv_form;
enum { GEMV_COLUMNS = 8, GEMV_K_STEP = 8 /* nibbles: k is a multiple of it */ };

typedef struct {
    gemv_form form;
    int64_t m, k;
    const void *w;     /* k contiguous; nibbles: two to a byte, the low one first */
    int64_t row_bytes; /* from one row to the next */
    const float *row_scale, *row_shift; /* I8, U8: per row; NULL: 1, 0 */
    const float *table;                 /* NIBBLE: 16 finite values per table */
    int64_t table_rows;                 /* rows that share a table */
    int64_t block;                      /* elements of a row per scale: gemv_block_fits; 0: no such scales */
    dtype scale_type;                   /* F32 F16 */
    const void *scale;                  /* [m, k / block] */
    const float *shift;                 /* NIBBLE: [m, k / block], or NULL */
    const void *panels;                 /* the same weight from gemv_panel_fill, read instead of w and scale; or NULL */
} gemv_weight;

typedef struct gemv_kernel gemv_kernel;
const gemv_kernel *gemv_pick(uint32_t isa); /* never NULL */
const gemv_kernel *gemv_row(size_t i);      /* NULL past the last row of gemv.def */
const char *gemv_name(const gemv_kernel *g);
uint32_t gemv_need(const gemv_kernel *g);
bool gemv_block_fits(gemv_form f, int64_t block); /* NIBBLE: 8 16 32 64 and multiples of 128; I8 U8: multiples of 16 */

/* Several weights can meet the same x in one call: prepared once, their rows shared out among the threads as those
 * of one. */
enum { GEMV_PARTS = 4 };
typedef struct {
    const gemv_weight *w;
    float *y; /* [m, n], rows of ldy */
} gemv_part;
bool gemv_alike(const gemv_weight *a, const gemv_weight *b); /* x is prepared for one as for the other */

typedef struct {
    const gemv_kernel *kernel;
    pool *pool; /* NULL: this thread */
    gemv_part part[GEMV_PARTS];
    int parts;
    int64_t n;   /* 1 .. GEMV_COLUMNS */
    gemm_view x; /* [k, n]: F32 F16 BF16 */
    int64_t ldy;
    void *scratch;
    size_t scratch_bytes;
} gemv_call;

/* Nibbles that are numbers, in blocks of 32 with fp16 scales and no shift, are read faster turned ahead of use.
 * false: this kernel has none for the weight, or it is something else. to: 64-byte aligned, all of it is written;
 * w->w and w->scale are then free to go. */
bool gemv_panel_bytes(const gemv_kernel *g, const gemv_weight *w, size_t *bytes) MUST_CHECK;
void gemv_panel_fill(pool *threads, const gemv_weight *w, void *to);

bool gemv_scratch_bytes(const gemv_kernel *g, int64_t n, int64_t k, size_t *bytes) MUST_CHECK; /* false: it overflows */
an_status gemv_run(const gemv_call *c, diag *d) MUST_CHECK;

/* One query of attention, on this thread; k and v lie row by row, F32 F16 BF16, and are widened to fp32. then:
 * memory that is read next, which is asked for in passing, as much as is read here; it need not be anything. y[i] =
 * sum over j of k[i,j] · q[j], in the order of the product above. */
void gemv_scores(const gemv_kernel *g, dtype t, const void *k, int64_t rows, int64_t inner, const float *q, float *y,
                 const void *then);
/* y[j] = sum over i of p[i] · v[i,j], rows ascending, fused multiply-adds from 0 (scalar row: rounded product, then
 * sum). */
void gemv_mix(const gemv_kernel *g, dtype t, const void *v, int64_t rows, int64_t cols, const float *p, float *y,
              const void *then);

#endif
