/* blob.c: weight files. The only place that knows their bytes.
 *
 *   0   u32 number of blobs, u32 version 2, 56 zero bytes
 *   64  record: u32 0xDEADBEEF, u32 type code, u64 size in bytes, u64 absolute offset of the data, zero up to 64 bytes
 *   128 data; the next record starts at the next multiple of 64
 *
 * A BLOBFILE reference names the record, never the data. Reading is strict about the sentinel, alignment and bounds,
 * and lenient where files that run in practice are sloppy:
 *   - the header's count may be smaller than the number of records (writers that append leave it at 1), never larger;
 *   - a record whose data offset is 0 was left half filled: its data stands right behind it, and since such records carry
 *     wrong type codes and sizes too, the MIL type decides both when the caller knows it;
 *   - a record whose size is 0 holds what the MIL type needs;
 *   - a file may start with a record instead of a header; it then has exactly one, and only offset 0 names it.
 * Writing is always the conforming form. */
#include "mil/mil.h"

enum { ALIGN = 64, VERSION = 2, AT_TYPE = 4, AT_SIZE = 8, AT_DATA = 16 };
static const uint32_t SENTINEL = 0xDEADBEEF;

static uint64_t get_le(const unsigned char *p, int bytes)
{
    uint64_t v = 0;
    for (int i = bytes; i-- > 0;) v = v << 8 | p[i];
    return v;
}

static void put_le(unsigned char *p, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++, v >>= 8) p[i] = (unsigned char)v;
}

static bool sentinel_at(const blob_file *f, uint64_t off)
{
    return f->file.n >= ALIGN && off <= f->file.n - ALIGN && get_le(f->file.at + off, 4) == SENTINEL;
}

static bool headerless(const blob_file *f) { return sentinel_at(f, 0); }

/* ---- reading ---- */

static an_status check_header(blob_file *f, const char *name, diag *d)
{
    const char *sep = *name ? ": " : "";
    if (f->file.n < ALIGN)
        return diag_fail(d, AN_INPUT, NOWHERE, "%s%sweight file is %zu bytes long; its header alone is %d", name, sep,
                         f->file.n, ALIGN);
    f->count = 1;
    if (headerless(f)) return AN_OK;
    uint32_t version = (uint32_t)get_le(f->file.at + 4, 4);
    if (version != VERSION)
        return diag_fail(d, AN_INPUT, NOWHERE,
                         "%s%sweight file has version %u; version %d is wanted (not a weight file?)", name, sep,
                         version, VERSION);
    f->count = (uint32_t)get_le(f->file.at, 4);
    if (f->count > f->file.n / ALIGN)
        return diag_fail(d, AN_INPUT, NOWHERE, "%s%sheader counts %u blobs; %zu bytes hold at most %zu", name, sep,
                         f->count, f->file.n, f->file.n / ALIGN);
    return AN_OK;
}

an_status blob_open(const char *path, blob_file *f, diag *d)
{
    *f = (blob_file){ 0 };
    TRY(file_map(path, &f->file, d));
    an_status st = check_header(f, path, d);
    if (st) blob_close(f);
    return st;
}

an_status blob_view(const void *p, size_t n, blob_file *f, diag *d)
{
    *f = (blob_file){ .file = { .at = (unsigned char *)(uintptr_t)p, .n = n }, .borrowed = true };
    an_status st = check_header(f, "", d);
    if (st) blob_close(f);
    return st;
}

void blob_close(blob_file *f)
{
    if (!f->borrowed) file_drop(&f->file);
    *f = (blob_file){ 0 };
}

/* Why there is no record at `offset`: the usual slips have their own words. */
static an_status no_record(const blob_file *f, uint64_t offset, diag *d)
{
    unsigned long long off = offset;
    if (headerless(f))
        return diag_fail(
            d, AN_INPUT, NOWHERE,
            "offset %llu: the file starts with a record where its header belongs; only offset 0 names that record",
            off);
    if (offset == 0) return diag_fail(d, AN_INPUT, NOWHERE, "offset 0 is the file header; the first record is at 64");
    if (offset >= ALIGN && sentinel_at(f, offset - ALIGN))
        return diag_fail(d, AN_INPUT, NOWHERE,
                         "offset %llu points at the data, not at its metadata record: a BLOBFILE offset names the record, here %llu", off, off - ALIGN);
    if (offset % ALIGN)
        return diag_fail(d, AN_INPUT, NOWHERE, "offset %llu is not a multiple of %d, as a record's is", off, ALIGN);
    if (f->file.n < ALIGN || offset > f->file.n - ALIGN)
        return diag_fail(d, AN_INPUT, NOWHERE, "offset %llu: a record of %d bytes does not fit the file of %zu", off,
                         ALIGN, f->file.n);
    return diag_fail(d, AN_INPUT, NOWHERE, "offset %llu: no record there: found 0x%08x where 0x%08x is wanted", off,
                     (unsigned)get_le(f->file.at + offset, 4), (unsigned)SENTINEL);
}

/* Where the data of a record of unknown size ends: at the next thing that looks like a record, or with the file. */
static uint64_t end_of_unsized(const blob_file *f, uint64_t data)
{
    for (uint64_t at = ROUND_UP(data, ALIGN); at <= f->file.n && f->file.n - at >= ALIGN; at += ALIGN)
        if (sentinel_at(f, at) && dtype_from_blob_code((uint32_t)get_le(f->file.at + at + AT_TYPE, 4)) != DT_NONE)
            return at;
    return f->file.n;
}

an_status blob_at(const blob_file *f, uint64_t offset, dtype want, uint64_t want_bytes, blob_entry *e, diag *d)
{
    *e = (blob_entry){ 0 };
    unsigned long long off = offset;
    bool bare = headerless(f);
    if (offset % ALIGN || (offset == 0) != bare || !sentinel_at(f, offset)) return no_record(f, offset, d);
    const unsigned char *r = f->file.at + offset;
    uint32_t code = (uint32_t)get_le(r + AT_TYPE, 4);
    uint64_t size = get_le(r + AT_SIZE, 8), data = get_le(r + AT_DATA, 8);
    bool sloppy = data == 0;
    dtype dt = dtype_from_blob_code(code);
    if (sloppy && want != DT_NONE) dt = want;
    if (dt == DT_NONE)
        return diag_fail(d, AN_INPUT, NOWHERE, "record at %llu has type code %u; known are 1 to 17", off, code);
    if (want != DT_NONE && dt != want)
        return diag_fail(d, AN_INPUT, NOWHERE, "record at %llu holds %s (code %u); %s is wanted", off, dtype_name(dt),
                         code, dtype_name(want));
    if (sloppy) data = offset + ALIGN;
    if (data < ALIGN || data > f->file.n)
        return diag_fail(d, AN_INPUT, NOWHERE,
                         "record at %llu puts its data at %llu; the file's data lies between %d and %zu", off,
                         (unsigned long long)data, ALIGN, f->file.n);
    if (want_bytes && (sloppy || !size)) size = want_bytes;
    else if (sloppy && !size) size = end_of_unsized(f, data) - data;
    if (want_bytes && size != want_bytes)
        return diag_fail(d, AN_INPUT, NOWHERE, "record at %llu holds %llu bytes; the type needs %llu", off,
                         (unsigned long long)size, (unsigned long long)want_bytes);
    if (size > f->file.n - data)
        return diag_fail(d, AN_INPUT, NOWHERE, "record at %llu needs %llu bytes from %llu on; the file ends at %zu",
                         off, (unsigned long long)size, (unsigned long long)data, f->file.n);
    *e = (blob_entry){ .dt = dt, .record = offset, .data = data, .bytes = size };
    return AN_OK;
}

static uint64_t behind(const blob_entry *e)
{
    uint64_t end = MAX(e->record + ALIGN, e->data + e->bytes); /* always past the record, so a walk ends */
    return ROUND_UP(end, ALIGN);
}

an_status blob_next(const blob_file *f, uint64_t *offset, blob_entry *e, bool *more, diag *d)
{
    *more = false;
    *e = (blob_entry){ 0 };
    uint64_t at = *offset ? *offset : headerless(f) ? 0 : ALIGN;
    if ((*offset && headerless(f)) || !sentinel_at(f, at)) { /* the end: were there as many as the header says? */
        uint32_t seen = 0;
        uint64_t k = headerless(f) ? 0 : ALIGN;
        for (blob_entry x; seen < f->count && sentinel_at(f, k); seen++) {
            TRY(blob_at(f, k, DT_NONE, 0, &x, d));
            k = behind(&x);
        }
        if (seen < f->count)
            return diag_fail(d, AN_INPUT, NOWHERE, "header counts %u blobs; %u are there, and nothing at offset %llu",
                             f->count, seen, (unsigned long long)k);
        return AN_OK;
    }
    TRY(blob_at(f, at, DT_NONE, 0, e, d));
    *offset = behind(e);
    *more = true;
    return AN_OK;
}

/* ---- writing ---- */

static void zeros(strbuf *b, size_t to)
{
    static const char none[ALIGN] = { 0 };
    while (b->n < to && !b->oom) sb_putn(b, none, MIN(to - b->n, sizeof none));
}

an_status blob_add(blob_writer *w, dtype dt, const void *p, size_t n, uint64_t *offset, diag *d)
{
    *offset = 0;
    uint32_t code = dtype_blob_code(dt);
    if (!code) return diag_fail(d, AN_INPUT, NOWHERE, "a weight file cannot hold %s", dtype_name(dt));
    if (w->count == UINT32_MAX)
        return diag_fail(d, AN_INPUT, NOWHERE, "a weight file counts its blobs in 32 bits, and all are taken");
    if (!w->bytes.n) zeros(&w->bytes, ALIGN);
    zeros(&w->bytes, ROUND_UP(w->bytes.n, (size_t)ALIGN));
    uint64_t at = w->bytes.n;
    unsigned char r[ALIGN] = { 0 };
    put_le(r, SENTINEL, 4);
    put_le(r + AT_TYPE, code, 4);
    put_le(r + AT_SIZE, n, 8);
    put_le(r + AT_DATA, at + ALIGN, 8);
    sb_putn(&w->bytes, (const char *)r, sizeof r);
    sb_putn(&w->bytes, p, n);
    if (w->bytes.oom) return diag_nomem(d);
    w->count++;
    *offset = at;
    return AN_OK;
}

an_status blob_finish(blob_writer *w, diag *d)
{
    if (!w->bytes.n) zeros(&w->bytes, ALIGN);
    if (w->bytes.oom) return diag_nomem(d);
    put_le((unsigned char *)w->bytes.at, w->count, 4);
    put_le((unsigned char *)w->bytes.at + 4, VERSION, 4);
    return AN_OK;
}
