/* eval_weight.c: element types and where values come from: cast, quantize, compile-time weight forms, fill, random.
 * In: an eval_ctx.  Out: its results. Integer results are truncated and clamped by the driver, so a cast is a copy. */
#include <math.h>

#include "base/rng.h"
#include "graph/eval_int.h"

an_status eval_cast(eval_ctx *c) { return eval_identity(c); }

an_status eval_fill(eval_ctx *c)
{
    double v = at_float(c, A_VALUE);
    for (int64_t i = 0, n = t64_elems(&c->out[0]); i < n; i++) c->out[0].x[i] = v;
    return AN_OK;
}

/* The stream is fixed by the seed alone; the default seed -1 ("any") is seed 0 here, so runs repeat. */
an_status eval_random_uniform(eval_ctx *c)
{
    int64_t seed = at_int(c, A_SEED);
    rng r = { .s = seed == -1 ? 0 : (uint64_t)seed };
    double lo = at_float(c, A_LOW), hi = at_float(c, A_HIGH);
    for (int64_t i = 0, n = t64_elems(&c->out[0]); i < n; i++) c->out[0].x[i] = rng_range(&r, lo, hi);
    return AN_OK;
}

/* ---- scale and zero point: one for all, or one per place on an axis ---- */

typedef double (*affine_fn)(double x, double scale, double zero);
static double quantized(double x, double scale, double zero) { return nearbyint(x / scale) + zero; } /* half to even */
static double dequantized(double q, double scale, double zero) { return scale * (q - zero); }

static an_status affine(eval_ctx *c, affine_fn f)
{
    const tensor64 *x = &c->in[0];
    axis_view v = { 1, 1, t64_elems(x) };
    int64_t n_scale = t64_elems(&c->in[1]), n_zero = has(c, 2) ? t64_elems(&c->in[2]) : 1, i = 0;
    if (n_scale > 1 || n_zero > 1) {
        int axis;
        TRY(at_axis(c, A_AXIS, x->type.sh.rank, &axis));
        v = view_axis(&x->type.sh, axis);
    }
    for (int64_t o = 0; o < v.outer; o++)
        for (int64_t k = 0; k < v.n; k++) {
            double scale = param_at(&c->in[1], n_scale, k), zero = has(c, 2) ? param_at(&c->in[2], n_zero, k) : 0;
            for (int64_t j = 0; j < v.inner; j++, i++) c->out[0].x[i] = f(x->x[i], scale, zero);
        }
    return AN_OK;
}

an_status eval_quantize(eval_ctx *c) { return affine(c, quantized); }
an_status eval_dequantize(eval_ctx *c) { return affine(c, dequantized); }
an_status eval_cx_affine(eval_ctx *c) { return affine(c, dequantized); }

/* ---- tables ---- */

/* Element i of a row of bytes that holds `bits` bits per element, low bits first. */
static int64_t packed_at(const double *bytes, int64_t i, int bits)
{
    int64_t v = 0;
    for (int b = 0; b < bits; b++) {
        int64_t at = i * bits + b;
        v |= (((int64_t)bytes[at / 8] >> (at % 8)) & 1) << b;
    }
    return v;
}

static an_status lut_packed(eval_ctx *c) /* bytes of indices into one table of 2^bits values */
{
    int64_t entries = t64_elems(&c->in[1]), n = t64_elems(&c->out[0]);
    int bits = 0;
    while ((int64_t)1 << bits < entries) bits++;
    if ((int64_t)1 << bits != entries)
        return eval_fail(c, "lut has %lld entries, expected a power of two", (long long)entries);
    if (t64_elems(&c->in[0]) < (n * bits + 7) / 8)
        return eval_fail(c, "indices has %lld bytes, %lld elements of %d bits need %lld",
                         (long long)t64_elems(&c->in[0]), (long long)n, bits, (long long)((n * bits + 7) / 8));
    for (int64_t i = 0; i < n; i++) c->out[0].x[i] = c->in[1].x[packed_at(c->in[0].x, i, bits)];
    return AN_OK;
}

/* lut (tables per axis..., entries, vector): each block of indices has its own table, and an entry of `vector`
 * values is laid out along vector_axis. */
static an_status lut_blocks(eval_ctx *c)
{
    const shape *ix = &c->in[0].type.sh, *lut = &c->in[1].type.sh, *o = &c->out[0].type.sh;
    int k = ix->rank, axis = -1;
    int64_t entries = lut->d[k], vector = lut->d[k + 1], own[MAX_RANK], idx[MAX_RANK] = { 0 };
    if (at_get(c, A_VECTOR_AXIS)) TRY(at_axis(c, A_VECTOR_AXIS, k, &axis));
    shape_strides(ix, own);
    for (int64_t i = 0, n = t64_elems(&c->out[0]); i < n; i++) {
        int64_t from = 0, table = 0, part = axis < 0 ? 0 : idx[axis] % vector, entry;
        for (int a = 0; a < k; a++) {
            int64_t p = a == axis ? idx[a] / vector : idx[a];
            from += p * own[a];
            table = table * lut->d[a] + p / (ix->d[a] / lut->d[a]);
        }
        TRY(index_in(c, c->in[0].x[from], entries, &entry));
        c->out[0].x[i] = c->in[1].x[(table * entries + entry) * vector + part];
        for (int a = k - 1; a >= 0; a--) {
            if (++idx[a] < o->d[a]) break;
            idx[a] = 0;
        }
    }
    return AN_OK;
}

an_status eval_cx_lut(eval_ctx *c) { return at_get(c, A_SHAPE) ? lut_packed(c) : lut_blocks(c); }

/* ---- sparse: a mask and the values where it is set ---- */

an_status eval_cx_sparse(eval_ctx *c)
{
    bool packed = at_get(c, A_SHAPE) != NULL;
    int64_t n = t64_elems(&c->out[0]), have = t64_elems(&c->in[0]), used = 0;
    if (packed && t64_elems(&c->in[1]) < (n + 7) / 8)
        return eval_fail(c, "mask has %lld bytes, %lld elements need %lld", (long long)t64_elems(&c->in[1]),
                         (long long)n, (long long)((n + 7) / 8));
    for (int64_t i = 0; i < n; i++) {
        bool set = packed ? packed_at(c->in[1].x, i, 1) != 0 : c->in[1].x[i] != 0;
        if (set && used < have) c->out[0].x[i] = c->in[0].x[used];
        used += set;
    }
    if (used != have)
        return eval_fail(c, "mask has %lld bits set, nonzero_data has %lld values", (long long)used, (long long)have);
    return AN_OK;
}

/* ---- blocks: scale and offset repeat over boxes of the data ---- */

/* Offset into scale of the element at idx. */
static int64_t block_of(const shape *x, const shape *s, const int64_t *idx)
{
    int64_t at = 0;
    for (int a = 0; a < x->rank; a++) at = at * s->d[a] + idx[a] / (x->d[a] / s->d[a]);
    return at;
}

static void next(const shape *x, int64_t *idx)
{
    for (int a = x->rank - 1; a >= 0; a--) {
        if (++idx[a] < x->d[a]) return;
        idx[a] = 0;
    }
}

an_status eval_cx_block(eval_ctx *c) /* scale * (data - offset) */
{
    const shape *x = &c->in[0].type.sh, *s = &c->in[1].type.sh;
    int64_t idx[MAX_RANK] = { 0 };
    for (int64_t i = 0, n = t64_elems(&c->out[0]); i < n; i++, next(x, idx)) {
        int64_t b = block_of(x, s, idx);
        c->out[0].x[i] = dequantized(c->in[0].x[i], c->in[1].x[b], has(c, 2) ? c->in[2].x[b] : 0);
    }
    return AN_OK;
}

an_status eval_cx_sparse_block(eval_ctx *c) /* results: the mask as it came, and the kept values scaled */
{
    const shape *x = &c->in[0].type.sh, *s = &c->in[2].type.sh;
    int64_t idx[MAX_RANK] = { 0 }, have = t64_elems(&c->in[1]), used = 0;
    for (int64_t i = 0, n = t64_elems(&c->in[0]); i < n; i++, next(x, idx)) {
        c->out[0].x[i] = c->in[0].x[i];
        if (c->in[0].x[i] == 0) continue;
        int64_t b = block_of(x, s, idx);
        if (used < have)
            c->out[1].x[used] = dequantized(c->in[1].x[used], c->in[2].x[b], has(c, 3) ? c->in[3].x[b] : 0);
        used++;
    }
    if (used != have)
        return eval_fail(c, "data_mask has %lld bits set, nonzero_data has %lld values", (long long)used,
                         (long long)have);
    return AN_OK;
}
