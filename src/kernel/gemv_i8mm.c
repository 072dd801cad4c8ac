/* gemv_i8mm.c: few columns on 4 lanes; bytes by SMMLA, two rows times two of the digits of x in one step, or USMMLA for
 * bytes without a sign; all else as gemv_dot.c.
 *
 * A run of sixteen k of a column: eight high digits, eight middle ones; the same of the other eight k; sixteen low ones,
 * which meet those of the next column. Two rows are zipped to pairs of eight k once for all columns. Sums of a digit are
 * integers along the whole row, as often as they hold them. */
#if defined(__aarch64__)
#include "kernel/vec_neon.inc"

#include "kernel/gemm_int.h"
#include "kernel/gemv_int.h"

#define ALWAYS static inline __attribute__((always_inline))

enum {
    RUN = 16,               /* k of a vector of bytes */
    X_RUN = BYTE_DIGITS * RUN,
    STREAMS = 4,            /* rows, a quarter of the task apart */
    MOST = 4,               /* columns at a time */
    MOST_RUNS = 1 << 12,    /* of k: 255 * 127 as often fits an int32 */
    FAR = 1024              /* bytes asked for ahead of use */
};

/* Two rows, or the low digits of two columns, by eights: the first of both, the last of both. */
typedef struct {
    int8x16_t first, last;
} eights;

ALWAYS eights eights_of(int8x16_t a, int8x16_t b)
{
    const int64x2_t x = vreinterpretq_s64_s8(a), y = vreinterpretq_s64_s8(b);
    return (eights){ vreinterpretq_s8_s64(vzip1q_s64(x, y)), vreinterpretq_s8_s64(vzip2q_s64(x, y)) };
}

/* Sums: (row, digit of x), (row, the other), then those of the second row. */
ALWAYS int32x4_t times(const bool sign, int32x4_t c, eights w, eights x)
{
    if (sign) return vmmlaq_s32(vmmlaq_s32(c, w.first, x.first), w.last, x.last);
    c = vusmmlaq_s32(c, vreinterpretq_u8_s8(w.first), x.first);
    return vusmmlaq_s32(c, vreinterpretq_u8_s8(w.last), x.last);
}

typedef struct {
    int32x4_t high[STREAMS / 2][MOST];    /* of a pair of rows: high and middle digits of a column */
    int32x4_t low[STREAMS / 2][MOST / 2]; /* low digits of two columns */
} sums;

/* One run of 2 · pairs rows and its columns; one column has another's low digits beside it, which are not looked at. */
ALWAYS void one_run(const bool sign, const int pairs, const int cols, const int8x16_t *w, const int8_t *x,
                    int64_t stride, sums *s)
{
    eights row[STREAMS / 2];
    for (int r = 0; r < pairs; r++) row[r] = eights_of(w[2 * r], w[2 * r + 1]);
    for (int c = 0; c < cols; c++) {
        const int8_t *at = x + c * stride;
        const eights high = { vld1q_s8(at), vld1q_s8(at + RUN) };
        for (int r = 0; r < pairs; r++) s->high[r][c] = times(sign, s->high[r][c], row[r], high);
        if (c % 2) continue;
        const int8x16_t here = vld1q_s8(at + 2 * RUN);
        const eights low = eights_of(here, c + 1 < cols ? vld1q_s8(at + stride + 2 * RUN) : here);
        for (int r = 0; r < pairs; r++) s->low[r][c / 2] = times(sign, s->low[r][c / 2], row[r], low);
    }
}

/* Rows at p[0 .. 2 · pairs), columns from j on: sum[row][column], in units of the step. */
ALWAYS void dots(const bool sign, const int pairs, const int cols, const char *const *p, int64_t k, int64_t ahead,
                 const int8_t *x, int64_t stride, float (*sum)[MOST])
{
    const float base = 1 << DIGIT_BITS;
    for (int r = 0; r < 2 * pairs; r++)
        for (int c = 0; c < cols; c++) sum[r][c] = 0;
    for (int64_t i = 0; i < k;) {
        const int64_t end = MIN(k, i + MOST_RUNS * RUN), whole = i + (end - i) / RUN * RUN;
        sums s;
        int8x16_t w[STREAMS];
        for (int r = 0; r < pairs; r++) {
            for (int c = 0; c < MOST; c++) s.high[r][c] = vdupq_n_s32(0);
            for (int c = 0; c < MOST / 2; c++) s.low[r][c] = vdupq_n_s32(0);
        }
        for (; i < whole; i += RUN) {
            if (i % 64 == 0)
                for (int r = 0; r < 2 * pairs; r++) PREFETCH_NEAR(p[r] + i + ahead);
            for (int r = 0; r < 2 * pairs; r++) w[r] = vld1q_s8((const int8_t *)p[r] + i);
            one_run(sign, pairs, cols, w, x + i * BYTE_DIGITS, stride, &s);
        }
        if (i < end) {
            for (int r = 0; r < 2 * pairs; r++) {
                int8_t rest[RUN] = { 0 };
                memcpy(rest, p[r] + i, (size_t)(end - i));
                w[r] = vld1q_s8(rest);
            }
            one_run(sign, pairs, cols, w, x + i * BYTE_DIGITS, stride, &s);
            i = end;
        }
        for (int r = 0; r < 2 * pairs; r++)
            for (int c = 0; c < cols; c++) {
                int32_t high[4], low[4];
                vst1q_s32(high, s.high[r / 2][c]), vst1q_s32(low, s.low[r / 2][c / 2]);
                const float upper = (float)high[r % 2 * 2] * base + (float)high[r % 2 * 2 + 1];
                sum[r][c] += upper * base + (float)low[r % 2 * 2 + c % 2];
            }
    }
}

/* Rows i, i + apart, ...; a row alone is its own neighbour. */
ALWAYS void some(const bool sign, const int pairs, const int cols, const gemv_weight *w, const gemv_columns *x,
                 int64_t i, int64_t apart, int64_t ahead, int64_t j, float *y, int64_t ldy)
{
    const char *p[STREAMS];
    float sum[STREAMS][MOST];
    for (int r = 0; r < 2 * pairs; r++) p[r] = (const char *)w->w + (i + r * apart) * w->row_bytes;
    dots(sign, pairs, cols, p, w->k, ahead, x->digits + j * x->digit_stride, x->digit_stride, sum);
    for (int r = 0; r < (apart ? 2 * pairs : 1); r++)
        for (int c = 0; c < cols; c++) {
            const int64_t row = i + r * apart;
            const float v = sum[r][c] * x->step[(j + c) * x->lane_stride];
            y[row * ldy + j + c] = v * (w->row_scale ? w->row_scale[row] : 1.0f) +
                                   (w->row_shift ? w->row_shift[row] * x->sum[j + c] : 0.0f);
        }
}

ALWAYS void columns(const bool sign, const int pairs, const gemv_weight *w, const gemv_columns *x, int64_t n, int64_t i,
                    int64_t apart, int64_t ahead, float *y, int64_t ldy)
{
    int64_t j = 0;
    for (; j + 4 <= n; j += 4) some(sign, pairs, 4, w, x, i, apart, ahead, j, y, ldy);
    if (j + 2 <= n) {
        some(sign, pairs, 2, w, x, i, apart, ahead, j, y, ldy);
        j += 2;
    }
    if (j < n) some(sign, pairs, 1, w, x, i, apart, ahead, j, y, ldy);
}

ALWAYS void rows_as(const bool sign, const gemv_weight *w, const gemv_columns *x, int64_t n, int64_t i0, int64_t i1,
                    float *y, int64_t ldy)
{
    const int64_t apart = (i1 - i0) / STREAMS, end = i0 + apart, last = end - FAR / MAX(w->row_bytes, 1);
    /* where a stream's lines end those of another begin, and the next task's are asked for instead */
    for (int64_t i = i0; i < end; i++)
        columns(sign, STREAMS / 2, w, x, n, i, apart, FAR + (i < last ? 0 : (i1 - end) * w->row_bytes), y, ldy);
    for (int64_t i = i0 + apart * STREAMS; i < i1; i++) columns(sign, 1, w, x, n, i, 0, FAR, y, ldy);
}

void gemv_rows_i8mm(const gemv_weight *w, const gemv_columns *x, int64_t n, int64_t i0, int64_t i1, float *y,
                    int64_t ldy)
{
    if (x->digits && w->form == GEMV_I8) rows_as(true, w, x, n, i0, i1, y, ldy);
    else if (x->digits && w->form == GEMV_U8) rows_as(false, w, x, n, i0, i1, y, ldy);
    else gemv_rows_dot(w, x, n, i0, i1, y, ldy);
}

/* The digits of gemv_bytes_dot, high and middle ones by eights. */
void gemv_bytes_i8mm(const float *x, int64_t n, float largest, int8_t *digits, int32_t *start, float *step)
{
    gemv_bytes_dot(x, n, largest, digits, start, step);
    for (int64_t i = 0; i < n; i += RUN, digits += X_RUN) {
        const eights both = eights_of(vld1q_s8(digits), vld1q_s8(digits + RUN));
        vst1q_s8(digits, both.first), vst1q_s8(digits + RUN, both.last);
    }
}

void gemv_scores_i8mm(dtype t, const void *lines, int64_t rows, int64_t cols, const float *x, float *y,
                      const void *then)
{
    gemv_scores_dot(t, lines, rows, cols, x, y, then);
}

void gemv_mix_i8mm(dtype t, const void *lines, int64_t rows, int64_t cols, const float *x, float *y, const void *then)
{
    gemv_mix_dot(t, lines, rows, cols, x, y, then);
}
#else
typedef int gemv_i8mm_other_architecture;
#endif
