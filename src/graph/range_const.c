/* range_const.c: intervals read out of constants. Weights are most of a model's bytes and nearly all fp16, so that type has
 * its own loops; every other type goes element by element. A NaN anywhere means nothing is known. */
#include "graph/range_int.h"

/* fp16 bits to a key that orders like the number: -0 and +0 are neighbours. */
static uint16_t order_key(uint16_t h) { return h & 0x8000 ? (uint16_t)~h : (uint16_t)(h | 0x8000); }
static uint16_t key_bits(uint16_t k) { return k & 0x8000 ? (uint16_t)(k & 0x7fff) : (uint16_t)~k; }

static vrange scan_f16(const uint16_t *p, int64_t n)
{
    uint16_t lo = UINT16_MAX, hi = 0;
    for (int64_t i = 0; i < n; i++) {
        uint16_t k = order_key(p[i]);
        lo = MIN(lo, k);
        hi = MAX(hi, k);
    }
    /* NaN has the largest magnitudes, so it shows at the ends. */
    double a = f16_to_f64(key_bits(lo)), b = f16_to_f64(key_bits(hi));
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

enum { LANES = 256 };

typedef struct {
    double plus[LANES], minus[LANES]; /* sums of the positive and of the negative weights, lane by lane */
    bool finite;
} sums;

static double half_value(uint16_t h) /* finite only */
{
    uint32_t bits = (uint32_t)(h & 0x7fff) << 13;
    float f;
    memcpy(&f, &bits, sizeof f);
    f *= 0x1p112f; /* the exponent's bias moves from 15 to 127; subnormals come out right too */
    return h & 0x8000 ? -(double)f : (double)f;
}

static void add_row(sums *s, const ttype *t, const void *p, int64_t from, int64_t n)
{
    const uint16_t *h = p;
    bool fast = aligned_f16(t, p);
    for (int64_t j = 0; j < n; j++) {
        double w = fast ? half_value(h[from + j]) : dtype_load(t->dt, p, from + j);
        s->finite = s->finite && (fast ? (h[from + j] & 0x7c00) != 0x7c00 : isfinite(w));
        s->plus[j] += w > 0 ? w : 0;
        s->minus[j] += w < 0 ? w : 0;
    }
}

vrange range_dot(const node *n, const ttype *t, int64_t outer, int64_t len, int64_t inner, vrange x)
{
    if (is_anything(x)) return x;
    vrange r = span(INFINITY, -INFINITY);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t at = 0; at < inner; at += LANES) {
            sums s = { .finite = true };
            int64_t lanes = MIN((int64_t)LANES, inner - at);
            for (int64_t k = 0; k < len; k++) add_row(&s, t, n->cst->data, (o * len + k) * inner + at, lanes);
            if (!s.finite) return anything();
            for (int64_t j = 0; j < lanes; j++)
                r = hull(r, span(end_mul(s.plus[j], x.lo) + end_mul(s.minus[j], x.hi), end_mul(s.plus[j], x.hi) + end_mul(s.minus[j], x.lo)));
        }
    return isnan(r.lo) || isnan(r.hi) ? anything() : r;
}
