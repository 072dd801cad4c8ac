/* encode.c: layers to tasks, as the compilers fill the registers.
 * In: layers (shapes, slots, kernel streams).  Out: tasks, linked.
 *
 * One task is one layer. Sources and results are buffers in memory; each task moves its tensor through the
 * scratchpad once, laid out [row][channel][W]. The settings that only tune (shape fields of Cfg, cache hints) keep
 * to values seen in files. A register that no line here sets is 0. */
#include "hwx/hwx_int.h"

enum { BANK_BYTES = 16, BANKS = 64, MAX_W = 0x7fff, MAX_C = 0x1ffff };

typedef struct {
    hwx_task *t;
    const hwx_layer *l;
    const hwx_style *style;
    bool planar, first;
    uint32_t engines;
    int64_t cout, hout, wout;
    bool failed;
    hwx_field bad;
    uint64_t bad_value;
} task_maker;

/* The first value that does not fit is the one reported. */
static void put_at(task_maker *m, hwx_field f, unsigned i, uint64_t v)
{
    if (m->failed || hwx_put(m->t, f, i, v)) return;
    m->failed = true, m->bad = f, m->bad_value = v;
}
static void put(task_maker *m, hwx_field f, uint64_t v) { put_at(m, f, 0, v); }
/* A word that is documented as a whole. */
static void put_word(task_maker *m, uint32_t addr, uint32_t v)
{
    const uint32_t *w = hwx_word(m->t, addr);
    if (w) *(uint32_t *)(uintptr_t)w = v; /* the task is our own */
}

static uint32_t log2_up(uint64_t x)
{
    uint32_t n = 0;
    while ((uint64_t)1 << n < x) n++;
    return n;
}

/* ---- the records of a task ---- */

static an_status make_records(arena *a, task_maker *m, diag *d)
{
    bool compact = m->style->compact && !m->l->streams;
    struct {
        uint32_t addr, n;
    } part[8];
    size_t n = 0;
    for (size_t i = 1; i < n_hwx_groups; i++) { /* all but the header, in the order of the file */
        part[n].addr = hwx_group_rows[i].addr, part[n++].n = hwx_group_rows[i].n;
        if (i != 1 || !compact) continue;
        part[n - 1].n = 18; /* modes and channel switches; then the further streams */
        part[n].addr = hwx_bits_rows[HWX_F_STREAM_CONFIG].addr, part[n++].n = 12;
    }
    m->t->rec = TAKE(a, hwx_regs, n);
    if (!m->t->rec) return diag_nomem(d);
    for (size_t i = 0; i < n; i++) {
        uint32_t *w = TAKE(a, uint32_t, part[i].n);
        if (!w) return diag_nomem(d);
        m->t->rec[m->t->n_rec++] = (hwx_regs){ .addr = part[i].addr, .n = part[i].n, .word = w };
    }
    return AN_OK;
}

/* ---- groups ---- */

static void put_header(task_maker *m)
{
    const hwx_layer *l = m->l;
    put_word(m, HWX_HEAD + 24, 0x30009800); /* both ends in memory; SPL, TSR and TSE as in every such task */
    put(m, HWX_F_RBASE0, (uint64_t)l->src), put(m, HWX_F_RBE0, 1);
    if (l->kind == HWX_PLANAR && l->two) put(m, HWX_F_RBASE1, (uint64_t)l->src2), put(m, HWX_F_RBE1, 1);
    put(m, HWX_F_WBASE, (uint64_t)l->dst), put(m, HWX_F_WBE, 1);
    put(m, HWX_F_ENE, m->planar ? 0 : 1 + log2_up(m->engines));
    if (l->streams) put(m, HWX_F_KBASE0, HWX_SLOT_KERNEL), put(m, HWX_F_KBE0, 1);
}

static void put_kernel(task_maker *m)
{
    const hwx_streams *s = m->l->streams;
    if (m->planar && !m->style->off) return;
    if (s) put(m, HWX_F_KERNEL_MODE, 0x40);
    for (unsigned i = 0; i < HWX_ENGINES; i++) {
        bool on = s && s->bytes[i];
        put_at(m, HWX_F_COEFF_HINT, i, 2);
        if (on) put_at(m, HWX_F_COEFF_EN, i, 1), put_at(m, HWX_F_COEFF_BASE, i, s->at[i]);
        if (hwx_word(m->t, hwx_bits_rows[HWX_F_COEFF_SIZE].addr))
            put_at(m, HWX_F_COEFF_SIZE, i, on ? s->bytes[i] : 0x40);
    }
    for (unsigned i = 0; i < 4; i++) {
        put_at(m, HWX_F_STREAM_CONFIG, i, 0x80);
        if (m->style->off) put_at(m, HWX_F_STREAM_SIZE, i, 0x40);
    }
}

/* Seen: convolutions at widths 1 to 8, 16, 62 and 64; pass-through at 1, 77 and 1600. */
static void put_shape_fields(task_maker *m)
{
    static const struct {
        bool conv;
        int64_t up_to;
        uint8_t pref, min, max, small;
    } row[] = { { true, 8, 4, 4, 4, 1 },   { true, 16, 0, 0, 3, 0 },   { true, INT64_MAX, 0, 0, 1, 0 },
                { false, 32, 1, 1, 1, 0 }, { false, 512, 1, 0, 1, 0 }, { false, INT64_MAX, 1, 1, 1, 0 } };
    size_t i = 0;
    while (row[i].conv != (m->l->kind == HWX_CONV) || m->l->w > row[i].up_to) i++;
    put(m, HWX_F_SH_PREF, row[i].pref), put(m, HWX_F_SH_MIN, row[i].min), put(m, HWX_F_SH_MAX, row[i].max),
        put(m, HWX_F_SMALL_SOURCE, row[i].small);
}

static an_status put_common(task_maker *m, diag *d)
{
    const hwx_layer *l = m->l;
    bool conv = l->kind == HWX_CONV, reduce = l->kind == HWX_REDUCE;
    int64_t rows = reduce ? 1 : l->h; /* a reduction takes each row as a group */
    uint32_t word;
    hwx_geometry g = { .kw = 1, .kh = 1, .sx = 1, .sy = 1 };
    if (conv) g = l->conv, g.ocg = l->streams->ocg;
    TRY(hwx_conv_word(HWX_H13, &g, &word, d));
    put(m, HWX_F_WIN, (uint64_t)l->w), put(m, HWX_F_HIN, (uint64_t)rows), put(m, HWX_F_DIN, 1);
    put(m, HWX_F_WOUT, (uint64_t)(reduce ? l->w : m->wout)), put(m, HWX_F_HOUT, (uint64_t)(reduce ? 1 : m->hout)),
        put(m, HWX_F_DOUT, 1);
    put(m, HWX_F_IN_FMT, 2), put(m, HWX_F_OUT_FMT, 2);
    if (l->kind == HWX_PLANAR && l->two) put(m, HWX_F_IN_FMT2, 2);
    put(m, HWX_F_CIN, (uint64_t)(reduce ? 1 : l->c)), put(m, HWX_F_COUT, (uint64_t)(reduce ? 1 : m->cout));
    put_word(m, hwx_bits_rows[HWX_F_KW].addr, word);
    put(m, HWX_F_DEPTH_CFG, 0x2041);
    put(m, HWX_F_NUM_GROUPS, reduce ? (uint64_t)(l->c * l->h) : 1), put(m, HWX_F_UNICAST_CIN, 1),
        put(m, HWX_F_UNICAST_EN, l->kind == HWX_PASS);
    put(m, HWX_F_TILE_HEIGHT, reduce ? 1 : (uint64_t)m->hout);
    put(m, HWX_F_CFG_LOW, 1);
    if (m->planar) {
        put(m, HWX_F_PATCH_W, MIN(MAX(4, log2_up((uint64_t)l->w)), 9)),
            put(m, HWX_F_PATCH_H, reduce ? 0 : MIN(log2_up((uint64_t)l->h), 5));
        put(m, HWX_F_PE_KIND, reduce ? 5 : l->two ? 3 : 2);
        if (l->kind == HWX_PLANAR && l->two) put(m, HWX_F_CFG_LOW, 3);
        return AN_OK;
    }
    put_shape_fields(m);
    put(m, HWX_F_ACTIVE_NE, log2_up(m->engines));
    put(m, HWX_F_ACC_DOUBLE, !(conv && m->engines == HWX_ENGINES));
    put(m, HWX_F_TASK_NID, 1);
    return AN_OK;
}

static void put_strides(task_maker *m, hwx_field f, uint64_t row, uint64_t plane, uint64_t depth, uint64_t group)
{
    put_at(m, f, 0, row), put_at(m, f, 1, plane), put_at(m, f, 2, depth), put_at(m, f, 3, group);
}

static void put_source(task_maker *m)
{
    const hwx_layer *l = m->l;
    hwx_tensor t = hwx_tensor_of("", HWX_INPUT, l->c, l->h, l->w);
    bool two = l->kind == HWX_PLANAR && l->two;
    uint64_t group = m->style->group ? t.batch : 0;
    put_word(m, 0x13800, 0x33881), put_word(m, 0x13804, two ? 0x33880 : 0x8880);
    if (l->kind == HWX_REDUCE) put_strides(m, HWX_F_SRC_STRIDE, t.batch, t.batch, t.batch, t.row);
    else put_strides(m, HWX_F_SRC_STRIDE, t.row, t.plane, t.batch, group);
    if (two) put_strides(m, HWX_F_SRC2_STRIDE, t.row, t.plane, t.batch, group);
    put_word(m, 0x13838, 0x1002031), put_word(m, 0x1383c, two ? 0x2030 : 0);
    put(m, HWX_F_SRC_PAD, m->planar && !m->style->off ? 0 : 0x100);
}

/* Rows of many narrow channels fall on the same banks; the compilers skew them. */
static uint64_t row_bytes(uint64_t c, uint64_t channel, uint64_t skew)
{
    return c * channel + (c * channel % (BANKS * BANK_BYTES) == 0 && channel <= 2 * BANK_BYTES ? skew : 0);
}

static void put_l2(task_maker *m)
{
    const hwx_layer *l = m->l;
    bool conv = l->kind == HWX_CONV, two = l->kind == HWX_PLANAR && l->two;
    uint64_t h = l->kind == HWX_REDUCE ? 1 : (uint64_t)l->h, c = l->kind == HWX_REDUCE ? 1 : (uint64_t)l->c;
    uint64_t cs = ROUND_UP((uint64_t)l->w * 2, (uint64_t)BANK_BYTES), rs = row_bytes(c, cs, conv ? 0x30 : m->planar ? 0x20 : 0), end = h * rs;
    uint32_t alias = m->first ? 0x500000 : 0;
    if (l->kind == HWX_REDUCE && l->op == HWX_GREATEST) put(m, HWX_F_PADDING_MODE, 1);
    put_word(m, 0x4804, 0x172 | alias | (two ? 1u << 24 : 0));
    put_strides(m, HWX_F_SOURCE_STRIDE, cs, rs, c * cs, c * cs);
    if (two) { /* a few banks away from where the first starts */
        uint64_t base = end;
        while (base / BANK_BYTES % BANKS < 4) base += BANK_BYTES;
        put(m, HWX_F_SOURCE2_BASE, base);
        put_strides(m, HWX_F_SOURCE2_STRIDE, cs, rs, c * cs, c * cs);
        end = base + h * rs;
    }
    put_word(m, 0x4830, 0x172 | alias | (conv ? 0 : 8));
    put(m, HWX_F_RESULT_BASE, end);
    if (!conv) return;
    uint64_t ocs = ROUND_UP((uint64_t)m->wout * 2, (uint64_t)BANK_BYTES), all = (uint64_t)m->cout * ocs;
    put_strides(m, HWX_F_RESULT_STRIDE, ocs, row_bytes((uint64_t)m->cout, ocs, 0x20), all, all);
}

static uint32_t float_bits(double x)
{
    float f = (float)x;
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static void put_engines(task_maker *m)
{
    const hwx_layer *l = m->l;
    enum { ONE = 0x3c00 };
    if (m->planar) {
        if (m->style->off) put_word(m, 0xc800, 0x80), put_word(m, 0xc804, 0x100000);
        if (l->kind == HWX_REDUCE) put(m, HWX_F_PE_REDUCE, l->op == HWX_GREATEST ? 2 : 0);
        else if (l->two)
            put(m, HWX_F_PE_TWO, 1), put(m, HWX_F_PE_OP, l->op == HWX_SUB ? HWX_ADD : (uint64_t)l->op),
                put(m, HWX_F_PE_NEGATE, l->op == HWX_SUB);
        else put(m, HWX_F_PE_ABS, l->absolute), put(m, HWX_F_PE_BIAS, l->offset);
        bool scaled = l->kind == HWX_PLANAR && !l->two && l->scale;
        put(m, HWX_F_PE_SCALE, scaled ? l->scale : ONE), put(m, HWX_F_PE_PRE_SCALE, ONE);
        put(m, HWX_F_PE_FINAL, float_bits(l->kind == HWX_REDUCE && l->op == HWX_MEAN ? 1.0 / (double)l->w : 1));
        return;
    }
    bool conv = l->kind == HWX_CONV, newer = m->style->off;
    put(m, HWX_F_KERNEL_FMT, conv || newer ? 2 : 0), put(m, HWX_F_PALETTE_BITS, 8);
    put(m, HWX_F_OP_MODE, conv ? 0 : 4), put(m, HWX_F_NO_KERNEL, !conv), put(m, HWX_F_BIAS_MODE, conv && l->bias);
    put(m, HWX_F_BINARY_POINT, conv || newer ? 28 : 0), put(m, HWX_F_NONLINEAR, (uint64_t)l->nonlinear),
        put(m, HWX_F_MAC_ONE, 1);
    put(m, HWX_F_POST_SCALE, ONE);
}

static void put_result(task_maker *m)
{
    const hwx_layer *l = m->l;
    int64_t w = l->kind == HWX_REDUCE ? 1 : m->wout;
    hwx_tensor t = hwx_tensor_of("", HWX_OUTPUT, l->dst_channels ? l->dst_channels : m->cout, m->hout, w);
    put(m, HWX_F_DST_EN, 1),
        put(m, HWX_F_DST_HINT, l->dst == HWX_SLOT_SCRATCH0 || l->dst == HWX_SLOT_SCRATCH1 ? 15 : 3),
        put(m, HWX_F_DST_BFR, l->kind != HWX_CONV);
    put(m, HWX_F_DST_BASE, l->dst_base);
    put_strides(m, HWX_F_DST_STRIDE, t.row, t.plane, t.batch, m->style->group ? t.batch : 0);
    put_word(m, 0x17818, l->keep_padding ? 0x1002031 : 0x1302031);
}

/* ---- layers ---- */

static an_status check_layer(const hwx_layer *l, size_t i, diag *d)
{
    const struct {
        const char *what;
        int64_t v, lo, hi;
    } range[] = { { "channels", l->c, 1, MAX_C }, { "height", l->h, 1, MAX_W }, { "width", l->w, 1, MAX_W }, { "source slot", l->src, 0, HWX_SLOTS - 1 }, { "second source slot", l->two ? l->src2 : 0, 0, HWX_SLOTS - 1 },
                  { "result slot", l->dst, 0, HWX_SLOTS - 1 }, { "channels of the result's tensor", l->dst_channels, 0, MAX_C }, { "activation", l->nonlinear, HWX_LINEAR, HWX_TABLE },
                  { "operation", l->op, 0, l->kind == HWX_REDUCE ? HWX_GREATEST : HWX_SUB } };
    for (size_t k = 0; k < COUNT(range); k++)
        if (range[k].v < range[k].lo || range[k].v > range[k].hi)
            return diag_fail(d, AN_INPUT, NOWHERE, "layer %zu: %s %lld, wanted %lld to %lld", i, range[k].what,
                             (long long)range[k].v, (long long)range[k].lo, (long long)range[k].hi);
    if (l->kind == HWX_CONV &&
        (l->cout < 1 || l->cout > MAX_C || l->hout < 1 || l->hout > MAX_W || l->wout < 1 || l->wout > MAX_W))
        return diag_fail(d, AN_INPUT, NOWHERE, "layer %zu: result of %lld by %lld by %lld", i, (long long)l->cout,
                         (long long)l->hout, (long long)l->wout);
    if (l->kind == HWX_CONV && !l->streams)
        return diag_fail(d, AN_INPUT, NOWHERE, "layer %zu: a convolution without kernel streams", i);
    if (l->kind == HWX_CONV && l->nonlinear == HWX_TABLE)
        return diag_fail(d, AN_UNSUPPORTED, NOWHERE, "layer %zu: how weights and a table share a stream is not known",
                         i);
    if ((l->kind == HWX_PASS && (l->nonlinear == HWX_TABLE) != (l->streams != NULL)) ||
        ((l->kind == HWX_PLANAR || l->kind == HWX_REDUCE) && l->streams))
        return diag_fail(d, AN_INPUT, NOWHERE, "layer %zu: kernel streams go with convolutions and tables", i);
    return AN_OK;
}

static an_status make_task(arena *a, const hwx_style *style, const hwx_layer *l, size_t i, hwx_task *t, diag *d)
{
    TRY(check_layer(l, i, d));
    task_maker m = { .t = t, .l = l, .style = style, .planar = l->kind == HWX_PLANAR || l->kind == HWX_REDUCE,
                     .first = !i, .cout = l->c, .hout = l->h, .wout = l->w };
    if (l->kind == HWX_CONV) m.cout = l->cout, m.hout = l->hout, m.wout = l->wout;
    m.engines = 1u << log2_up((uint64_t)MIN(m.cout, HWX_ENGINES));
    *t = (hwx_task){ 0 };
    TRY(make_records(a, &m, d));
    put_header(&m);
    put_kernel(&m);
    TRY(put_common(&m, d));
    put_source(&m);
    put_l2(&m);
    put_engines(&m);
    put_result(&m);
    if (m.failed)
        return diag_fail(d, AN_UNSUPPORTED, NOWHERE, "layer %zu: %s 0x%llx does not fit its register", i,
                         hwx_field_name(m.bad), (unsigned long long)m.bad_value);
    return AN_OK;
}

an_status hwx_encode(arena *a, const hwx_form *form, const hwx_layer *layer, size_t n, hwx_task **out, diag *d)
{
    const hwx_style *s = hwx_style_of(form);
    hwx_task *t = TAKE(a, hwx_task, n);
    if (!t) return diag_nomem(d);
    for (size_t i = 0; i < n; i++) TRY(make_task(a, s, &layer[i], i, &t[i], d));
    TRY(hwx_tasks_link(t, n, d));
    for (size_t i = 0; i < n; i++) {
        bool last = i + 1 == n;
        uint32_t debug = n == 1 ? s->debug_one : last ? s->debug_last : i ? s->debug_middle : s->debug_first;
        if (!hwx_put(&t[i], HWX_F_LOG_EVENTS, 0, last ? s->log_last : s->log_other) ||
            !hwx_put(&t[i], HWX_F_DEBUG_EVENTS, 0, debug))
            return diag_fail(d, AN_BUG, NOWHERE, "an event mask does not fit");
    }
    *out = t;
    return AN_OK;
}
