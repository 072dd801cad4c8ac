/* quant.c: matrices in the engine's own compressed forms.
 *   int8      codes -127..127; one scale for each row: largest magnitude / 127
 *   int4      codes -8..7; one scale for each block of a row, chosen so that the element of the largest magnitude becomes -8:
 *             the far end of the range is used whatever its sign
 *   palette4  sixteen values for the whole tensor, placed by Lloyd's iteration over a histogram; codes by nearest value
 * Scales and values are rounded to the type they are kept in before codes are chosen, so that codes are nearest for
 * what is kept. A scale rounded down so far that its last code falls short of the largest value by more than half a
 * step, as below fp16's normal numbers, is the next one up: a coarser step costs less than a cut. */
#include <math.h>

#include "lm/lm_int.h"

enum { BLOCK_WANTED = 32, BLOCK_LEAST = 16, BLOCK_MOST = 64, ROUNDS = 32 };

int64_t quant_block(lm_form form, int64_t cols)
{
    if (form != LM_INT4 || cols % BLOCK_WANTED == 0) return form == LM_INT4 ? BLOCK_WANTED : cols;
    for (int64_t b = BLOCK_MOST; b >= BLOCK_LEAST; b--)
        if (cols % b == 0) return b;
    return cols; /* no good divisor: one scale for the row */
}

/* To the nearest whole number, ties to even: adding 1.5 * 2^23 leaves it in the low bits. |x| is below 2^22. */
static int nearest(float x)
{
    float big = x + 12582912.0f;
    int32_t bits;
    memcpy(&bits, &big, 4);
    return (int)(bits - 0x4b400000);
}

static float clamped(float x, float lo, float hi) { return x < lo ? lo : x > hi ? hi : x; }

static double kept_scale(dtype dt, double exact, int last_code)
{
    double s = dtype_round(dt, exact);
    if (last_code * (fabs(exact) - fabs(s)) <= fabs(s) / 2) return s;
    return s + copysign(dt == DT_F16 ? 0x1p-24 : 0x1p-149, exact); /* only where neighbours are that far apart */
}

bool quant_row(lm_form form, const quant_shape *q, const float *x, void *codes, int64_t first, void *scales,
               int64_t first_scale)
{
    for (int64_t b = 0; b * q->block < q->cols; b++) {
        const float *y = x + b * q->block;
        float least = 0, most = 0, odd = 0;
        for (int64_t i = 0; i < q->block; i++) {
            least = y[i] < least ? y[i] : least;
            most = y[i] > most ? y[i] : most;
            odd += y[i] * 0; /* NaN once a value is not finite */
        }
        double peak = most > -least ? (double)most : (double)least;
        double scale =
            form == LM_INT8 ? kept_scale(q->scale_dt, fabs(peak) / 127, 127) : kept_scale(q->scale_dt, peak / -8, 8);
        if (odd != 0 || !isfinite(scale)) return false;
        dtype_store(q->scale_dt, scales, first_scale + b, scale);
        float inv = scale != 0 ? (float)(1 / scale) : 0;
        int64_t at = first + b * q->block, i = 0;
        if (!isfinite(inv)) inv = 0; /* a scale so small that its inverse overflows: the block is all zeros */
        if (form == LM_INT8) {
            int8_t *to = (int8_t *)codes + at;
            for (; i < q->block; i++) to[i] = (int8_t)nearest(clamped(y[i] * inv, -127, 127));
            continue;
        }
        unsigned char *to = codes;
        for (; i < q->block && ((at + i) % 2 || i + 1 == q->block); i++)
            dtype_store(DT_I4, codes, at + i, nearest(clamped(y[i] * inv, -8, 7)));
        for (; i + 1 < q->block; i += 2) {
            int lo = nearest(clamped(y[i] * inv, -8, 7)), hi = nearest(clamped(y[i + 1] * inv, -8, 7));
            to[(at + i) / 2] = (unsigned char)((lo & 15) | (hi & 15) << 4);
        }
        for (; i < q->block; i++) dtype_store(DT_I4, codes, at + i, nearest(clamped(y[i] * inv, -8, 7)));
    }
    return true;
}

/* ---- palettes ---- */

static int bin_of(const palette *p, double x)
{
    if (!(p->hi > p->lo)) return 0;
    double t = (x - p->lo) / (p->hi - p->lo) * PALETTE_BINS;
    return t <= 0 ? 0 : t >= PALETTE_BINS ? PALETTE_BINS - 1 : (int)t;
}

void palette_count(palette *p, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) p->count[bin_of(p, (double)x[i])]++;
}

static double bin_middle(const palette *p, int i) { return p->lo + (p->hi - p->lo) * ((double)i + 0.5) / PALETTE_BINS; }

void palette_settle(palette *p, dtype dt)
{
    /* start where the error of many levels would be least: their density goes as the cube root of the values' */
    double level[16], total = 0, run = 0;
    for (int i = 0; i < PALETTE_BINS; i++) total += cbrt((double)p->count[i]);
    for (int i = 0, k = 0; i < PALETTE_BINS && k < 16; i++) {
        run += cbrt((double)p->count[i]);
        while (k < 16 && run >= total * ((double)k + 0.5) / 16) level[k++] = bin_middle(p, i);
        if (i == PALETTE_BINS - 1)
            while (k < 16) level[k++] = bin_middle(p, i);
    }
    for (int round = 0; round < ROUNDS; round++) {
        double sum[16] = { 0 }, n[16] = { 0 };
        for (int i = 0, k = 0; i < PALETTE_BINS; i++) {
            double x = bin_middle(p, i);
            while (k < 15 && fabs(level[k + 1] - x) <= fabs(level[k] - x)) k++;
            sum[k] += x * (double)p->count[i];
            n[k] += (double)p->count[i];
        }
        for (int k = 0; k < 16; k++)
            if (n[k] > 0) level[k] = sum[k] / n[k];
    }
    for (int k = 0; k < 16; k++) p->value[k] = (float)dtype_round(dt, level[k]);
}

int palette_find(const palette *p, float x)
{
    int lo = 0, hi = 15; /* values ascend */
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if ((double)x - (double)p->value[mid] <= (double)p->value[mid + 1] - (double)x) hi = mid;
        else lo = mid + 1;
    }
    return lo;
}
