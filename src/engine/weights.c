/* weights.c: constants of a program from their sources: dense as they are, compressed forms reconstructed. In: an
 * image, one entry of its manifest, where weight files come from.  Out: im->const_at[k], elements of the tensor's
 * type.
 *
 * A dense source of the right type and alignment is used in place; everything else is written to memory of our own,
 * once per load. Reconstruction rounds to nearest even, whatever the device: it happens before the arithmetic. Here
 * is what every form means, element by element; the common ones go through weights_runs.c, except in reference
 * images. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "engine/weights_int.h"

/* ---- bytes of a source ---- */

static uint64_t get_le(const unsigned char *p, int bytes)
{
    uint64_t v = 0;
    for (int i = bytes; i-- > 0;) v = v << 8 | p[i];
    return v;
}

/* The data of a conforming record in a whole file. Sloppy ones are the business of whoever offers `record`. */
static an_status from_file(const weight_source *w, const const_source *s, const unsigned char **at, diag *d)
{
    enum { RECORD = 64, AT_SIZE = 8, AT_DATA = 16 };
    const unsigned char *file;
    size_t n;
    TRY(w->file(w->user, s->path, &file, &n, d));
    if (n < RECORD || s->offset > n - RECORD || get_le(file + s->offset, 4) != 0xDEADBEEF)
        return diag_fail(d, AN_INPUT, NOWHERE, "%.120s: no weight record at byte %" PRIu64 " of %zu", s->path,
                         s->offset, n);
    uint64_t size = get_le(file + s->offset + AT_SIZE, 8), data = get_le(file + s->offset + AT_DATA, 8);
    if (size != s->bytes || data > n || s->bytes > n - data)
        return diag_fail(d, AN_INPUT, NOWHERE,
                         "%.120s: the record at byte %" PRIu64 " has %" PRIu64 " bytes at %" PRIu64 ", wanted %" PRIu64
                         " inside %zu",
                         s->path, s->offset, size, data, s->bytes, n);
    *at = file + data;
    return AN_OK;
}

static an_status source_bytes(const program *p, const weight_source *w, const const_source *s, const unsigned char **at,
                              diag *d)
{
    *at = NULL;
    if (!s->path) *at = p->data + s->offset;
    else if (w && w->record) TRY(w->record(w->user, s->path, s->offset, s->dt, s->bytes, at, d));
    else if (w && w->file) TRY(from_file(w, s, at, d));
    else
        return diag_fail(d, AN_INPUT, NOWHERE, "%.120s: the program needs this weight file and none was given",
                         s->path);
    return *at ? AN_OK
               : diag_fail(d, AN_BUG, NOWHERE, "%.120s: the record at byte %" PRIu64 " has no bytes",
                           s->path ? s->path : "the program", s->offset);
}

/* ---- forms ---- */

typedef const_build build;

static double load(const build *b, int src, int64_t i) { return dtype_load(b->c->src[src].dt, b->at[src], i); }
static int64_t elems(const const_source *s) { return dims_product(s->dim, 0, s->rank); }

/* Weights are mostly fp16: skip the general conversion there. */
static void store(const build *b, int64_t i, double x)
{
    float f = (float)x;
    if (b->t->dt == DT_F16 && (double)f == x) {
        uint16_t h = f16_from_f32(f);
        memcpy(b->to + 2 * i, &h, 2);
    } else dtype_store(b->t->dt, b->to, i, x);
}

static an_status build_dense(const build *b)
{
    int64_t n = et_elems(b->t);
    if (b->c->src[0].dt == DT_F32 && b->t->dt == DT_F16) {
        for (int64_t i = 0; i < n; i++) {
            float f;
            memcpy(&f, b->at[0] + 4 * i, 4);
            uint16_t h = f16_from_f32(f);
            memcpy(b->to + 2 * i, &h, 2);
        }
    } else if (b->c->src[0].dt == b->t->dt) memcpy(b->to, b->at[0], (size_t)b->c->src[0].bytes);
    else
        for (int64_t i = 0; i < n; i++) store(b, i, load(b, 0, i));
    return AN_OK;
}

bool mask_is_causal(dtype t, const void *mask, int64_t rows)
{
    const unsigned char *p = mask;
    const size_t each = (size_t)dtype_bits(t) / 8;
    const bool boolean = t == DT_BOOL;
    if (rows < 1 || each * 8 != (size_t)dtype_bits(t) || dtype_load(t, p, 0) != (boolean ? 1 : 0)) return false;
    if (rows > 1 && !(dtype_load(t, p, 1) <= (boolean ? 0 : SCORE_NEVER))) return false;
    for (int64_t i = 0; i < rows; i++) { /* every row as the first: neighbours alike but at the diagonal */
        const size_t kept = (size_t)(i + 1), rest = (size_t)rows - kept;
        const unsigned char *row = p + (size_t)i * (size_t)rows * each, *behind = row + kept * each;
        if (memcmp(row, p, each) || memcmp(row, row + each, (kept - 1) * each)) return false;
        if (rest && (memcmp(behind, p + each, each) || memcmp(behind, behind + each, (rest - 1) * each))) return false;
    }
    return true;
}

static double dequantized(double q, double scale, double zero) { return (double)(float)(scale * (q - zero)); }

static an_status build_affine(const build *b)
{
    const const_entry *c = b->c;
    bool many_scales = elems(&c->src[1]) > 1, many_zeros = c->n_src > 2 && elems(&c->src[2]) > 1;
    axis_view v = many_scales || many_zeros ? et_axis(b->t, c->axis) : (axis_view){ 1, 1, et_elems(b->t) };
    int64_t i = 0;
    for (int64_t o = 0; o < v.outer; o++)
        for (int64_t k = 0; k < v.n; k++) {
            double scale = load(b, 1, many_scales ? k : 0), zero = c->n_src > 2 ? load(b, 2, many_zeros ? k : 0) : 0;
            for (int64_t j = 0; j < v.inner; j++, i++) store(b, i, dequantized(load(b, 0, i), scale, zero));
        }
    return AN_OK;
}

/* Element i of bytes that hold `bits` bits per element, low bits first. */
static int64_t packed_at(const unsigned char *p, int64_t i, int bits)
{
    int64_t v = 0;
    for (int k = 0; k < bits; k++) {
        int64_t at = i * bits + k;
        v |= (int64_t)((p[at / 8] >> (at % 8)) & 1) << k;
    }
    return v;
}

/* All values of an index of one byte or less, in the tensor's type: a lookup per element instead of a conversion. */
typedef struct {
    unsigned char at[256][8];
    size_t unit;
} lookup;

static void lookup_set(const build *b, lookup *l, unsigned i, double x) { dtype_store(b->t->dt, l->at[i], 0, x); }

static an_status build_lut_packed(const build *b) /* bytes of indices into one table of 2^bits values */
{
    int64_t entries = elems(&b->c->src[1]);
    int bits = 0;
    while ((int64_t)1 << bits < entries) bits++;
    int64_t n = et_elems(b->t), i = 0;
    if (bits <= 8 && 8 % bits == 0 && dtype_bits(b->t->dt) >= 8) { /* whole bytes of indices, by lookup */
        lookup l = { .unit = (size_t)dtype_bits(b->t->dt) / 8 };
        int per = 8 / bits;
        for (unsigned q = 0; q < (unsigned)entries; q++) lookup_set(b, &l, q, load(b, 1, q));
        for (; i + per <= n; i += per)
            for (int k = 0; k < per; k++)
                memcpy(b->to + (size_t)(i + k) * l.unit, l.at[(b->at[0][i / per] >> (k * bits)) & ((1 << bits) - 1)],
                       l.unit);
    }
    for (; i < n; i++) store(b, i, load(b, 1, packed_at(b->at[0], i, bits)));
    return AN_OK;
}

/* A constant in messages: by the record it is made of, or by its number. */
typedef struct {
    char text[160];
} const_name;

static const_name name_of(const build *b, int src)
{
    const_name s;
    const const_source *from = &b->c->src[src];
    if (from->path) snprintf(s.text, sizeof s.text, "%.120s, record at byte %" PRIu64, from->path, from->offset);
    else snprintf(s.text, sizeof s.text, "constant %zu", b->k);
    return s;
}

static an_status no_entry(const build *b, int64_t at, double index, int64_t entries)
{
    return diag_fail(b->d, AN_INPUT, NOWHERE, "%s: index %g at element %" PRId64 ", its table has %" PRId64 " entries",
                     name_of(b, 0).text, index, at, entries);
}

/* table (blocks per axis..., entries, vector): each block of indices has its own table, an entry is laid out along
 * the axis. */
static an_status build_lut_blocks(const build *b)
{
    const const_source *ix = &b->c->src[0], *lut = &b->c->src[1];
    int k = ix->rank;
    int64_t entries = lut->dim[k], vector = lut->dim[k + 1], axis = b->c->axis, idx[ENGINE_MAX_RANK] = { 0 };
    for (int64_t i = 0, n = et_elems(b->t); i < n; i++, next_index(b->t->dim, k, idx)) {
        int64_t from = 0, table = 0, part = axis < 0 ? 0 : idx[axis] % vector;
        for (int a = 0; a < k; a++) {
            int64_t p = a == axis ? idx[a] / vector : idx[a];
            from = from * ix->dim[a] + p;
            table = table * lut->dim[a] + p / (ix->dim[a] / lut->dim[a]);
        }
        double entry = load(b, 0, from);
        if (!(entry >= 0 && entry < (double)entries)) return no_entry(b, from, entry, entries);
        store(b, i, load(b, 1, (table * entries + (int64_t)entry) * vector + part));
    }
    return AN_OK;
}

static an_status values_differ(const build *b, int64_t kept)
{
    return diag_fail(b->d, AN_INPUT, NOWHERE, "%s: its mask has %" PRId64 " bits set, there are %" PRId64 " values",
                     name_of(b, 1).text, kept, elems(&b->c->src[0]));
}

static an_status build_sparse(const build *b) /* the next value where the mask is set, else zero */
{
    int64_t have = elems(&b->c->src[0]), used = 0;
    for (int64_t i = 0, n = et_elems(b->t); i < n; i++) {
        bool set = packed_at(b->at[1], i, 1) != 0;
        if (set && used < have) store(b, i, load(b, 0, used));
        else store(b, i, 0);
        used += set;
    }
    return used == have ? AN_OK : values_differ(b, used);
}

static an_status build_block(const build *b) /* scale and offset repeat over boxes of the data */
{
    const const_source *q = &b->c->src[0], *s = &b->c->src[1];
    int64_t idx[ENGINE_MAX_RANK] = { 0 };
    for (int64_t i = 0, n = et_elems(b->t); i < n; i++, next_index(q->dim, q->rank, idx)) {
        int64_t at = 0;
        for (int a = 0; a < q->rank; a++) at = at * s->dim[a] + idx[a] / (q->dim[a] / s->dim[a]);
        store(b, i, dequantized(load(b, 0, i), load(b, 1, at), b->c->n_src > 2 ? load(b, 2, at) : 0));
    }
    return AN_OK;
}

static an_status build_sparse_block(const build *b) /* the next kept value, scaled by its place's block */
{
    const const_source *s = &b->c->src[2];
    int64_t have = elems(&b->c->src[0]), used = 0, idx[ENGINE_MAX_RANK] = { 0 };
    for (int64_t i = 0, n = et_elems(b->t); i < n; i++, next_index(b->t->dim, b->t->rank, idx)) {
        bool set = packed_at(b->at[1], i, 1) != 0;
        int64_t at = 0;
        for (int a = 0; a < b->t->rank; a++) at = at * s->dim[a] + idx[a] / (b->t->dim[a] / s->dim[a]);
        if (set && used < have)
            store(b, i, dequantized(load(b, 0, used), load(b, 2, at), b->c->n_src > 3 ? load(b, 3, at) : 0));
        else store(b, i, 0);
        used += set;
    }
    return used == have ? AN_OK : values_differ(b, used);
}

/* ---- what cannot be made ---- */

static bool by_blocks(const const_entry *c) { return c->kind == CK_LUT && c->src[1].rank == c->src[0].rank + 2; }

/* Every index has an entry. */
static an_status indices_fit(const build *b)
{
    const const_source *ix = &b->c->src[0];
    const int64_t entries = b->c->src[1].dim[ix->rank];
    if (dtype_class(ix->dt) == KIND_UINT && dtype_bits(ix->dt) <= 32 && entries >= (int64_t)1 << dtype_bits(ix->dt))
        return AN_OK;
    for (int64_t i = 0, n = elems(ix); i < n; i++) {
        double entry = load(b, 0, i);
        if (!(entry >= 0 && entry < (double)entries)) return no_entry(b, i, entry, entries);
    }
    return AN_OK;
}

/* There is a value for every place that the mask keeps, and none more. */
static an_status values_fit(const build *b)
{
    int64_t n = et_elems(b->t), kept = 0;
    for (int64_t i = 0; i < n / 8; i++)
        for (unsigned m = b->at[1][i]; m; m &= m - 1) kept++;
    for (int64_t i = n / 8 * 8; i < n; i++) kept += packed_at(b->at[1], i, 1);
    return kept == elems(&b->c->src[0]) ? AN_OK : values_differ(b, kept);
}

an_status program_makes(const program *p, const weight_source *w, diag *d)
{
    for (size_t k = 0; k < p->consts.n; k++) {
        build b = { .c = &p->consts.at[k], .t = &p->tensors.at[p->consts.at[k].tensor], .k = k, .d = d };
        const bool sparse = b.c->kind == CK_SPARSE || b.c->kind == CK_SPARSE_BLOCK;
        if (!sparse && !by_blocks(b.c)) continue;
        for (int i = 0; i < b.c->n_src; i++) TRY(source_bytes(p, w, &b.c->src[i], &b.at[i], d));
        TRY(sparse ? values_fit(&b) : indices_fit(&b));
    }
    return AN_OK;
}

an_status const_sources(const image *im, const weight_source *w, size_t k, const unsigned char *at[4], diag *d)
{
    const const_entry *c = &im->p->consts.at[k];
    for (int i = 0; i < c->n_src; i++) TRY(source_bytes(im->p, w, &c->src[i], &at[i], d));
    return AN_OK;
}

/* ---- what may not change ---- */

static const char *place_of(const const_source *s) { return s->path ? s->path : "the program"; }

static an_status expect_causal(const program *p, const const_entry *c, const unsigned char *now, diag *d)
{
    const etensor *t = &p->tensors.at[c->tensor];
    const const_source *s = &c->src[0];
    if (mask_is_causal(s->dt, now, t->dim[t->rank - 1])) return AN_OK;
    return diag_fail(
        d, AN_INPUT, NOWHERE,
        "%.120s: the mask at byte %" PRIu64
        " was causal when the program was compiled, and attention leaves out what such a one hides; this one is another: compile again",
        place_of(s), s->offset);
}

static bool same_number(double a, double b) { return a == b ? !signbit(a) == !signbit(b) : isnan(a) && isnan(b); }

static an_status expect_same(const program *p, const const_entry *c, const unsigned char *now, diag *d)
{
    const const_source *s = &c->src[0];
    const unsigned char *was = p->data + c->src[1].offset;
    int64_t i = 0, n = elems(s);
    while (i < n && same_number(dtype_load(s->dt, was, i), dtype_load(s->dt, now, i))) i++;
    if (i == n) return AN_OK;
    return diag_fail(d, AN_INPUT, NOWHERE,
                     "%.120s: the record at byte %" PRIu64
                     " is part of the program, not one of its weights: element %" PRId64
                     " was %.9g when it was compiled and is %.9g; compile again",
                     place_of(s), s->offset, i, dtype_load(s->dt, was, i), dtype_load(s->dt, now, i));
}

an_status program_accepts(const program *p, const weight_source *w, diag *d)
{
    for (size_t k = 0; k < p->consts.n; k++) {
        const const_entry *c = &p->consts.at[k];
        const unsigned char *now;
        if (c->kind != CK_CAUSAL && c->kind != CK_FIXED) continue;
        TRY(source_bytes(p, w, &c->src[0], &now, d));
        const an_status st = c->kind == CK_CAUSAL ? expect_causal(p, c, now, d) : expect_same(p, c, now, d);
        if (c->src[0].path && w->done) w->done(w->user, c->src[0].path, c->src[0].offset);
        TRY(st);
    }
    return AN_OK;
}

/* ---- loading ---- */

an_status const_begin(const image *im, const weight_source *w, size_t k, const_build *b, diag *d)
{
    *b = (const_build){ .c = &im->p->consts.at[k], .k = k, .d = d };
    b->t = &im->p->tensors.at[b->c->tensor];
    return const_sources(im, w, k, b->at, d);
}

bool const_in_place(const const_build *b)
{
    const size_t unit = (size_t)MAX(1, dtype_bits(b->t->dt) / 8);
    const bool dense = b->c->kind == CK_DENSE || b->c->kind == CK_CAUSAL || b->c->kind == CK_FIXED;
    return dense && b->c->src[0].dt == b->t->dt && (uintptr_t)b->at[0] % unit == 0;
}

an_status const_make(image *im, const const_build *b)
{
    bool done;
    TRY(const_runs(im, b, &done, b->d));
    if (done) return AN_OK;
    switch (b->c->kind) {
    case CK_DENSE:
    case CK_CAUSAL:
    case CK_FIXED: return build_dense(b);
    case CK_AFFINE: return build_affine(b);
    case CK_LUT: return by_blocks(b->c) ? build_lut_blocks(b) : build_lut_packed(b);
    case CK_SPARSE: return build_sparse(b);
    case CK_BLOCK: return build_block(b);
    case CK_SPARSE_BLOCK: return build_sparse_block(b);
    case CK_COUNT: break;
    }
    return diag_fail(b->d, AN_BUG, NOWHERE, "constant %zu has no kind", b->k);
}

an_status const_load(image *im, const weight_source *w, size_t k, diag *d)
{
    const_build b;
    TRY(const_begin(im, w, k, &b, d));
    if (const_in_place(&b)) {
        /* never written: the check refuses results in constants */
        im->const_at[k] = (unsigned char *)(uintptr_t)b.at[0];
        return AN_OK;
    }
    if (!im->const_own[k]) {
        uint64_t bytes;
        if (!et_bytes(b.t, &bytes) || !(im->const_own[k] = engine_alloc(bytes))) return diag_nomem(d);
        im->own_bytes += bytes;
    }
    im->const_at[k] = b.to = im->const_own[k];
    return const_make(im, &b);
}
