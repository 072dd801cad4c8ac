/* range_const.c: intervals read out of constants. Weights are most of a model's bytes and nearly all fp16, so that
 * type has its own loops; every other type goes element by element. A NaN anywhere means nothing is known. */
#include "graph/range_int.h"

/* fp16 bits to a signed key that orders like the number, and back: a negative number has all bits but the sign
 * flipped. */
static int16_t order_key(uint16_t h)
{
    int16_t k;
    uint16_t flipped = (uint16_t)(h ^ (h >> 15) * 0x7fffu);
    memcpy(&k, &flipped, sizeof k);
    return k;
}

/* loops over so many neighbours at once have a fixed length, which compilers turn into vector code */
enum { LANES = 16 };

static double key_value(int16_t k) { return f16_to_f64((uint16_t)order_key((uint16_t)k)); }

static vrange scan_f16(const uint16_t *p, int64_t n)
{
    int16_t lo[LANES], hi[LANES], least = INT16_MAX, most = INT16_MIN;
    for (int j = 0; j < LANES; j++) lo[j] = INT16_MAX, hi[j] = INT16_MIN;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            int16_t k = order_key(p[i + j]);
            lo[j] = k < lo[j] ? k : lo[j];
            hi[j] = k > hi[j] ? k : hi[j];
        }
    for (; i < n; i++) {
        int16_t k = order_key(p[i]);
        least = MIN(least, k);
        most = MAX(most, k);
    }
    for (int j = 0; j < LANES; j++) least = MIN(least, lo[j]), most = MAX(most, hi[j]);
    /* NaN has the largest magnitudes, so it shows at the ends. */
    double a = key_value(least), b = key_value(most);
    return isnan(a) || isnan(b) ? anything() : span(a, b);
}

static bool aligned_f16(const ttype *t, const void *p) { return t->dt == DT_F16 && ((uintptr_t)p & 1) == 0; }

vrange range_const(const graph *g, const node *n)
{
    const ttype *t = graph_type(g, n->out);
    const void *p = n->cst->data;
    int64_t count;
    if (!p || !shape_elems(&t->sh, &count)) return anything();
    if (count == 0) return span(0, 0);
    if (aligned_f16(t, p)) return scan_f16(p, count);
    vrange r = span(INFINITY, -INFINITY);
    for (int64_t i = 0; i < count; i++) {
        double x = dtype_load(t->dt, p, i);
        if (isnan(x)) return anything();
        r = hull(r, span(x, x));
    }
    return r;
}

/* ---- sums of products ---- */

enum { COLUMNS = 256 };

typedef struct {
    double plus[COLUMNS], minus[COLUMNS]; /* sums of the positive and of the negative weights, column by column */
    bool finite;
} sums;

/* Right for finite numbers. The exponent's bias moves from 15 to 127; a subnormal gets a leading one, taken away again.
 * A multiplication by 2^112 would be shorter, but processors trip over subnormal operands. */
static float half_value(uint16_t h)
{
    uint32_t subnormal = (h & 0x7c00) == 0;
    uint32_t bits = ((uint32_t)(h & 0x7fff) << 13) + ((112 + subnormal) << 23);
    float f;
    memcpy(&f, &bits, sizeof f);
    f -= (float)(int32_t)subnormal * 0x1p-14f;
    return f * (float)(1 - 2 * (h >> 15));
}

/* The part of w on one side of zero, exactly and without a branch: signs of weights cannot be predicted. */
static double above(double w) { return 0.5 * (fabs(w) + w); }
static double below(double w) { return 0.5 * (w - fabs(w)); }

static void add_one(sums *s, int64_t column, double w)
{
    s->plus[column] += above(w);
    s->minus[column] += below(w);
    s->finite = s->finite && isfinite(w);
}

/* fp16 bits, or-ed over many: bit 15 of the result tells that one was infinite or NaN. */
static uint16_t spill(uint16_t h) { return (uint16_t)((h & 0x7fff) + 0x0400); }

/* n neighbouring elements, each added to its own column. */
static void add_columns(sums *s, const ttype *t, const void *p, int64_t from, int64_t n)
{
    int64_t i = 0;
    if (aligned_f16(t, p)) {
        const uint16_t *h = (const uint16_t *)p + from;
        uint16_t top = 0;
        for (; i + LANES <= n; i += LANES) {
            double w[LANES];
            for (int j = 0; j < LANES; j++) w[j] = (double)half_value(h[i + j]);
            for (int j = 0; j < LANES; j++) s->plus[i + j] += above(w[j]);
            for (int j = 0; j < LANES; j++) s->minus[i + j] += below(w[j]);
            for (int j = 0; j < LANES; j++) top |= spill(h[i + j]);
        }
        s->finite = s->finite && !(top & 0x8000);
    }
    for (; i < n; i++) add_one(s, i, dtype_load(t->dt, p, from + i));
}

/* n neighbouring elements, all added to column 0. */
static void add_line(sums *s, const ttype *t, const void *p, int64_t from, int64_t n)
{
    int64_t i = 0;
    if (aligned_f16(t, p)) {
        const uint16_t *h = (const uint16_t *)p + from;
        double plus[LANES] = { 0 }, minus[LANES] = { 0 };
        uint16_t top = 0;
        for (; i + LANES <= n; i += LANES) {
            double w[LANES];
            for (int j = 0; j < LANES; j++) w[j] = (double)half_value(h[i + j]);
            for (int j = 0; j < LANES; j++) plus[j] += above(w[j]);
            for (int j = 0; j < LANES; j++) minus[j] += below(w[j]);
            for (int j = 0; j < LANES; j++) top |= spill(h[i + j]);
        }
        for (int j = 0; j < LANES; j++) s->plus[0] += plus[j], s->minus[0] += minus[j];
        s->finite = s->finite && !(top & 0x8000);
    }
    for (; i < n; i++) add_one(s, 0, dtype_load(t->dt, p, from + i));
}

vrange range_dot(const node *n, const ttype *t, int64_t outer, int64_t len, int64_t inner, vrange x)
{
    if (is_anything(x)) return x;
    vrange r = span(INFINITY, -INFINITY);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t at = 0; at < inner; at += COLUMNS) {
            sums s = { .finite = true };
            int64_t columns = MIN((int64_t)COLUMNS, inner - at);
            if (inner == 1) add_line(&s, t, n->cst->data, o * len, len);
            for (int64_t k = 0; k < len && inner > 1; k++)
                add_columns(&s, t, n->cst->data, (o * len + k) * inner + at, columns);
            if (!s.finite) return anything();
            for (int64_t j = 0; j < columns; j++)
                r = hull(r, span(end_mul(s.plus[j], x.lo) + end_mul(s.minus[j], x.hi),
                                 end_mul(s.plus[j], x.hi) + end_mul(s.minus[j], x.lo)));
        }
    return isnan(r.lo) || isnan(r.hi) ? anything() : r;
}
