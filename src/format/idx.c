/* idx.c: the idx format.
 *
 *   0   0, 0, u8 element type (table below), u8 number of axes
 *   4   one big-endian u32 per axis
 *   ..  the elements, big-endian, last axis fastest, nothing behind them */
#include <stdlib.h>
#include <zlib.h>

#include "base/str.h"
#include "format/idx.h"

enum { MAGIC = 4, MAX_HEADER = MAGIC + 4 * IDX_MAX_RANK };

static const struct {
    unsigned char code;
    dtype dt;
} types[] = {
    { 0x08, DT_U8 }, { 0x09, DT_I8 }, { 0x0b, DT_I16 }, { 0x0c, DT_I32 }, { 0x0d, DT_F32 }, { 0x0e, DT_F64 },
};

static uint64_t big_endian(const unsigned char *p, int n)
{
    uint64_t v = 0;
    for (int i = 0; i < n; i++) v = v << 8 | p[i];
    return v;
}

/* The header, from at least MAX_HEADER bytes or all there are. Sets everything but data. */
static an_status read_header(const unsigned char *p, size_t n, idx_array *a, diag *d)
{
    if (n < MAGIC) return diag_fail(d, AN_INPUT, NOWHERE, "ends after %zu bytes, inside the 4 of its magic number", n);
    if (p[0] || p[1])
        return diag_fail(d, AN_INPUT, NOWHERE,
                         "not an idx file: its magic number is 0x%02x%02x%02x%02x, wanted 0x0000 and a type", p[0],
                         p[1], p[2], p[3]);
    for (size_t i = 0; i < COUNT(types); i++)
        if (types[i].code == p[2]) a->dt = types[i].dt;
    if (!a->dt)
        return diag_fail(d, AN_INPUT, NOWHERE, "idx element type 0x%02x at offset 2 is not one of 08 09 0b 0c 0d 0e",
                         p[2]);
    a->rank = p[3];
    if (a->rank < 1 || a->rank > IDX_MAX_RANK)
        return diag_fail(d, AN_INPUT, NOWHERE, "idx array of %d axes at offset 3, wanted 1 to %d", a->rank,
                         IDX_MAX_RANK);
    a->at = MAGIC + 4 * (size_t)a->rank;
    if (n < a->at)
        return diag_fail(d, AN_INPUT, NOWHERE, "ends at offset %zu, inside its header of %zu bytes", n, a->at);
    a->count = 1;
    bool fits = true, empty = false;
    for (int i = 0; i < a->rank; i++) {
        a->dim[i] = (int64_t)big_endian(p + MAGIC + 4 * i, 4);
        if (!a->dim[i]) empty = true;
    }
    for (int i = 0; i < a->rank && !empty; i++) fits = fits && mul_i64(a->count, a->dim[i], &a->count);
    if (empty) a->count = 0;
    if (!fits || !dtype_bytes(a->dt, a->count, &a->bytes) || a->bytes > IDX_MAX_BYTES - MAX_HEADER) {
        char dims[64];
        for (int i = 0, k = 0; i < a->rank; i++)
            k += snprintf(dims + k, sizeof dims - (size_t)k, "%s%lld", i ? " x " : "", (long long)a->dim[i]);
        return diag_fail(d, AN_INPUT, NOWHERE, "idx array of %s elements is past the limit of %zu bytes", dims,
                         IDX_MAX_BYTES);
    }
    return AN_OK;
}

/* Which part of the array the file ends in, counted from 0 along the first axis: ", inside image 1 of 200". */
static void sb_place(strbuf *b, const idx_array *a, size_t n)
{
    static const char *const kind[IDX_MAX_RANK + 1] = { "", "element", "row", "image", "entry" };
    size_t each = a->dim[0] ? a->bytes / (size_t)a->dim[0] : 0, into = n - MIN(n, a->at);
    if (each && into < a->bytes)
        sb_printf(b, ", %s %s %zu of %lld", into % each ? "inside" : "before", kind[a->rank], into / each,
                  (long long)a->dim[0]);
}

static an_status size_wrong(const idx_array *a, size_t n, diag *d)
{
    strbuf b = { 0 };
    if (n > a->at + a->bytes)
        return diag_fail(d, AN_INPUT, NOWHERE, "goes on behind offset %zu, where its %lld elements end",
                         a->at + a->bytes, (long long)a->count);
    sb_place(&b, a, n);
    diag_fail(d, AN_INPUT, NOWHERE, "ends at offset %zu, wanted %zu%s", n, a->at + a->bytes, b.at ? b.at : "");
    return sb_free(&b), d->st;
}

an_status idx_view(const void *bytes, size_t n, idx_array *out, diag *d)
{
    idx_array a = { 0 };
    *out = a;
    TRY(read_header(bytes, n, &a, d));
    if (n != a.at + a.bytes) return size_wrong(&a, n, d);
    a.data = (const unsigned char *)bytes + a.at;
    *out = a;
    return AN_OK;
}

/* ---- gzip ---- */

bool idx_is_gzip(const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    return n >= 2 && p[0] == 0x1f && p[1] == 0x8b;
}

typedef struct {
    unsigned char *at;
    size_t n, cap;
} bytes_out;

/* Room grows with what has come out, not with what the header promises. */
static an_status more_room(bytes_out *b, size_t most, diag *d)
{
    size_t cap = MIN(b->cap ? 2 * b->cap : (size_t)1 << 16, most);
    unsigned char *at = realloc(b->at, cap);
    if (!at) return diag_nomem(d);
    b->at = at, b->cap = cap;
    return AN_OK;
}

/* a: the header, when it is known: where the bytes that came out end. */
static an_status bad_gzip(const z_stream *z, int rc, const bytes_out *b, const idx_array *a, diag *d)
{
    strbuf place = { 0 };
    if (a) sb_place(&place, a, b->n);
    if (rc == Z_OK || rc == Z_BUF_ERROR)
        diag_fail(d, AN_INPUT, NOWHERE, "gzip stream is cut short at offset %lu%s", z->total_in,
                  place.at ? place.at : "");
    else
        diag_fail(d, AN_INPUT, NOWHERE, "bad gzip data near offset %lu%s (%s)", z->total_in, place.at ? place.at : "",
                  z->msg ? z->msg : "no reason given");
    return sb_free(&place), d->st;
}

/* Inflates into b until the stream ends or a byte more than the array has come. */
static an_status unpack(z_stream *z, bytes_out *b, idx_array *a, diag *d)
{
    size_t most = IDX_MAX_BYTES;
    bool known = false;
    for (;;) {
        if (b->n == b->cap) TRY(more_room(b, most, d));
        size_t room = MIN(b->cap - b->n, (size_t)1 << 30);
        z->next_out = b->at + b->n, z->avail_out = (uInt)room;
        size_t left = z->avail_in;
        int rc = inflate(z, Z_NO_FLUSH);
        size_t got = room - z->avail_out;
        b->n += got;
        if (!known && b->n >= MAX_HEADER) {
            TRY(read_header(b->at, b->n, a, d));
            known = true, most = a->at + a->bytes + 1;
        }
        if (known && b->n >= most) return size_wrong(a, b->n, d);
        if (rc == Z_STREAM_END) {
            if (!z->avail_in) return AN_OK;
            if (!idx_is_gzip(z->next_in, z->avail_in))
                return diag_fail(d, AN_INPUT, NOWHERE, "%u bytes behind the gzip stream, at offset %lu", z->avail_in,
                                 z->total_in);
            uLong before = z->total_in;
            if (inflateReset(z) != Z_OK) return diag_fail(d, AN_BUG, NOWHERE, "zlib cannot start again");
            z->total_in = before; /* offsets in messages count from the file's start */
            continue;
        }
        if (rc == Z_MEM_ERROR) return diag_nomem(d);
        bool cut = !got && !z->avail_in && left == z->avail_in;
        if ((rc != Z_OK && rc != Z_BUF_ERROR) || cut) return bad_gzip(z, rc, b, known ? a : NULL, d);
    }
}

an_status idx_unzip(const void *bytes, size_t n, unsigned char **out, size_t *n_out, diag *d)
{
    *out = NULL, *n_out = 0;
    if (n > IDX_MAX_BYTES)
        return diag_fail(d, AN_INPUT, NOWHERE, "gzip file of %zu bytes is past the limit of %zu", n, IDX_MAX_BYTES);
    z_stream z = { 0 };
    bytes_out b = { 0 };
    idx_array a = { 0 };
    if (inflateInit2(&z, 15 + 16) != Z_OK) return diag_nomem(d);
    z.next_in = (z_const Bytef *)(uintptr_t)bytes, z.avail_in = (uInt)n;
    an_status st = unpack(&z, &b, &a, d);
    inflateEnd(&z);
    if (st) {
        free(b.at);
        return st;
    }
    *out = b.at, *n_out = b.n;
    return AN_OK;
}

/* ---- files ---- */

static an_status open_into(idx_file *f, diag *d)
{
    const unsigned char *p = f->file.at;
    size_t n = f->file.n;
    if (!n) return diag_fail(d, AN_INPUT, NOWHERE, "empty file");
    if (idx_is_gzip(p, n)) {
        TRY(idx_unzip(p, n, &f->own, &n, d));
        p = f->own;
    }
    return idx_view(p, n, &f->array, d);
}

an_status idx_open(const char *path, idx_file *out, diag *d)
{
    *out = (idx_file){ 0 };
    TRY(file_map(path, &out->file, d));
    diag why = { 0 };
    an_status st = open_into(out, &why);
    if (st) {
        idx_close(out);
        return diag_fail(d, st, NOWHERE, "%.200s: %s", path, why.msg);
    }
    return AN_OK;
}

void idx_close(idx_file *f)
{
    free(f->own);
    file_drop(&f->file);
    *f = (idx_file){ 0 };
}

double idx_load(const idx_array *a, int64_t i)
{
    int size = dtype_bits(a->dt) / 8;
    uint64_t v = big_endian(a->data + (size_t)i * (size_t)size, size);
    uint8_t b1 = (uint8_t)v;
    uint16_t b2 = (uint16_t)v;
    uint32_t b4 = (uint32_t)v;
    return dtype_load(a->dt, size == 1 ? (void *)&b1 : size == 2 ? (void *)&b2 : size == 4 ? (void *)&b4 : (void *)&v, 0);
}
