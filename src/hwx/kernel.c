/* kernel.c: weights in the order the 16 engines stream them, and back; activation tables.
 * In: w[cout][cin][kh][kw] in float16.  Out: one stream per engine, each padded to 64 bytes, one after the other.
 *
 * Output channels are taken in chunks of 16 L: L is the largest power of two that leaves every engine something (at
 * most 32 for an input of 8 by 8 pixels or less, else 16; 16 for the matrices of newer compilers' products). In a
 * chunk engine e owns L neighbouring channels, and its stream holds a row of L values for each weight: first the
 * biases, then w[.][0][0][0], w[.][0][0][1] … Counts above 16 that 16 does not divide were not seen in files. */
#include "hwx/hwx_int.h"

enum { STREAM_ALIGN = 64 };

typedef struct {
    int64_t first, lanes; /* channel of engine 0; channels of each engine */
} chunk;

static int64_t lanes_at(const hwx_weights *s, int64_t first)
{
    int64_t cap = s->hin <= 8 && s->win <= 8 && !s->product ? 32 : 16, lanes = 1;
    while (2 * lanes <= cap && 2 * lanes * HWX_ENGINES <= s->cout - first) lanes *= 2;
    return lanes;
}

static bool next_chunk(const hwx_weights *s, chunk *c)
{
    int64_t first = c->first + c->lanes * HWX_ENGINES;
    *c = (chunk){ .first = first, .lanes = first < s->cout ? lanes_at(s, first) : 0 };
    return first < s->cout;
}

static const chunk BEFORE = { .first = 0, .lanes = 0 };

static an_status plan(const hwx_weights *s, uint64_t base, hwx_streams *st, int64_t *rows, uint64_t *total, diag *d)
{
    const int64_t lim = 1 << 17; /* 17 bits of channels */
    if (s->cout < 1 || s->cin < 1 || s->kh < 1 || s->kw < 1 || s->hin < 1 || s->win < 1 || s->cout > lim ||
        s->cin > lim || s->kh > 64 || s->kw > 64)
        return diag_fail(d, AN_INPUT, NOWHERE, "weights [%lld, %lld, %lld, %lld] for an input of %lld by %lld",
                         (long long)s->cout, (long long)s->cin, (long long)s->kh, (long long)s->kw, (long long)s->hin,
                         (long long)s->win);
    *rows = s->cin * s->kh * s->kw + s->bias;
    *st = (hwx_streams){ .engines = 1 };
    uint64_t at = base;
    for (unsigned e = 0; e < HWX_ENGINES; e++) {
        uint64_t bytes = 0;
        for (chunk c = BEFORE; next_chunk(s, &c);) {
            if (c.first + (int64_t)e * c.lanes < s->cout) bytes += (uint64_t)(*rows * c.lanes) * 2;
            if (!e && !c.first)
                while (c.lanes >> st->ocg > 1) st->ocg++;
        }
        if (!bytes) continue;
        bytes = ROUND_UP(bytes, (uint64_t)STREAM_ALIGN);
        if (at + bytes > INT32_MAX) return diag_fail(d, AN_INPUT, NOWHERE, "weights of more than 2 GiB");
        st->at[e] = (uint32_t)at, st->bytes[e] = (uint32_t)bytes;
        st->n_used++;
        at += bytes;
    }
    while (st->engines < st->n_used) st->engines *= 2;
    *total = at - base;
    return AN_OK;
}

/* Every weight and where it stands: halfword `at` of its engine's stream. The one loop both directions share. */
typedef void visit(void *user, unsigned engine, uint64_t at, int64_t channel, int64_t row);
static void walk(const hwx_weights *s, int64_t rows, visit *v, void *user)
{
    for (unsigned e = 0; e < HWX_ENGINES; e++) {
        uint64_t at = 0;
        for (chunk c = BEFORE; next_chunk(s, &c);) {
            int64_t own = c.first + (int64_t)e * c.lanes;
            if (own >= s->cout) continue;
            for (int64_t r = 0; r < rows; r++)
                for (int64_t l = 0; l < c.lanes; l++, at++)
                    if (own + l < s->cout) v(user, e, at, own + l, r);
        }
    }
}

typedef struct {
    const hwx_weights *s;
    const hwx_streams *st;
    int64_t rows;
    const uint16_t *w, *bias;
    uint16_t *w_out, *bias_out;
    unsigned char *out;
    const unsigned char *in;
} packing;

static void put_one(void *user, unsigned engine, uint64_t at, int64_t channel, int64_t row)
{
    packing *p = user;
    int64_t weights = p->rows - p->s->bias;
    uint16_t v = p->s->bias && !row ? p->bias[channel] : p->w[channel * weights + row - p->s->bias];
    le_put(p->out + (p->st->at[engine] - p->st->at[0]) + 2 * at, 2, v);
}

static void get_one(void *user, unsigned engine, uint64_t at, int64_t channel, int64_t row)
{
    packing *p = user;
    int64_t weights = p->rows - p->s->bias;
    uint16_t v = (uint16_t)le_get(p->in + p->st->at[engine] + 2 * at, 2);
    if (p->s->bias && !row) p->bias_out[channel] = v;
    else p->w_out[channel * weights + row - p->s->bias] = v;
}

an_status hwx_pack(const hwx_weights *s, const uint16_t *w, const uint16_t *bias, strbuf *out, hwx_streams *st, diag *d)
{
    static const char zero[STREAM_ALIGN];
    packing p = { .s = s, .st = st, .w = w, .bias = bias };
    uint64_t total;
    size_t base = out->n;
    TRY(plan(s, base, st, &p.rows, &total, d));
    for (uint64_t k = 0; k < total && !out->oom; k += sizeof zero) sb_putn(out, zero, sizeof zero);
    if (out->oom) return diag_nomem(d);
    p.out = (unsigned char *)out->at + base;
    walk(s, p.rows, put_one, &p);
    return AN_OK;
}

an_status hwx_unpack(const hwx_weights *s, const unsigned char *kernel, size_t n, const hwx_streams *st, uint16_t *w,
                     uint16_t *bias, diag *d)
{
    hwx_streams want;
    packing p = { .s = s, .st = st, .w_out = w, .bias_out = bias, .in = kernel };
    uint64_t total;
    TRY(plan(s, 0, &want, &p.rows, &total, d));
    for (unsigned e = 0; e < HWX_ENGINES; e++) {
        if (st->bytes[e] < want.bytes[e])
            return diag_fail(d, AN_INPUT, NOWHERE, "engine %u: a kernel stream of %u bytes, wanted %u", e, st->bytes[e],
                             want.bytes[e]);
        if (st->at[e] > n || want.bytes[e] > n - st->at[e])
            return diag_fail(d, AN_INPUT, NOWHERE, "engine %u: kernel bytes 0x%x + 0x%x, but there are 0x%zx", e,
                             st->at[e], want.bytes[e], n);
    }
    walk(s, p.rows, get_one, &p);
    return AN_OK;
}

/* ---- tables ---- */

void hwx_table_put(const uint16_t w[HWX_TABLE_WORDS], strbuf *out)
{
    unsigned char b[HWX_TABLE_BYTES] = { 0 };
    for (int i = 0; i < HWX_TABLE_WORDS; i++) le_put(b + 2 * i, 2, w[i]);
    sb_putn(out, (const char *)b, sizeof b);
}

void hwx_table_streams(uint32_t engines, uint32_t at, hwx_streams *st)
{
    *st = (hwx_streams){ .engines = engines, .n_used = engines };
    for (uint32_t e = 0; e < engines && e < HWX_ENGINES; e++) st->at[e] = at, st->bytes[e] = HWX_TABLE_BYTES;
}
