/* shard.c: token files, read by mapping and written whole. */
#include <stdlib.h>

#include "base/io.h"
#include "text/shard.h"

/* llm.c: header of 256 int32. */
enum { HEADER = 1024, MAGIC16 = 20240520, MAGIC32 = 20240801 };
static const struct {
    uint32_t magic, version;
    int bytes;
} forms[] = { { MAGIC16, 1, 2 }, { MAGIC32, 7, 4 } };

struct shard {
    file_bytes file;
    int fd;         /* of the same file: is it still as long? */
    char *path;
    const unsigned char *ids;
    uint64_t n;
    int bytes;
    uint32_t vocab;
};

static uint32_t le32(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static uint32_t id_at(const shard *s, uint64_t i)
{
    const unsigned char *p = s->ids + i * (uint64_t)s->bytes;
    return s->bytes == 2 ? p[0] | (uint32_t)p[1] << 8 : le32(p);
}

static bool ends(const char *path, const char *tail)
{
    size_t n = strlen(path), k = strlen(tail);
    return n >= k && !strcmp(path + n - k, tail);
}

static int named_bytes(const char *path) { return ends(path, ".u16") ? 2 : ends(path, ".u32") ? 4 : 0; }

static int header_form(const unsigned char *p, size_t n)
{
    for (int i = 0; i < (int)COUNT(forms) && n >= 4; i++)
        if (le32(p) == forms[i].magic) return i;
    return -1;
}

an_status shard_look(const char *path, bool *is, diag *d)
{
    unsigned char head[4];
    if ((*is = named_bytes(path))) return AN_OK;
    size_t n;
    TRY(file_head(path, head, sizeof head, &n, d));
    *is = header_form(head, n) >= 0;
    return AN_OK;
}

bool shard_is(const char *path)
{
    diag none = { 0 };
    bool is;
    return !shard_look(path, &is, &none) && is;
}

static an_status read_header(shard *s, int form, diag *d)
{
    const unsigned char *p = s->file.at;
    if (s->file.n < HEADER)
        return diag_fail(d, AN_INPUT, NOWHERE, "%s: llm.c's header has %d bytes, the file %zu", s->path, HEADER,
                         s->file.n);
    uint32_t version = le32(p + 4), count = le32(p + 8);
    s->bytes = forms[form].bytes;
    if (version != forms[form].version)
        return diag_fail(d, AN_INPUT, NOWHERE, "%s: version %u of magic %u; %u is known", s->path, version,
                         forms[form].magic, forms[form].version);
    if ((s->file.n - HEADER) / (size_t)s->bytes != count || (s->file.n - HEADER) % (size_t)s->bytes)
        return diag_fail(d, AN_INPUT, NOWHERE,
                         "%s: the header says %u ids, %zu bytes follow: %u ids of %d bytes are wanted", s->path, count,
                         s->file.n - HEADER, count, s->bytes);
    s->ids = p + HEADER;
    s->n = count;
    return AN_OK;
}

static bool fits(const shard *s, uint32_t id) { return id <= INT32_MAX && (!s->vocab || id < s->vocab); }

static an_status check_id(const shard *s, uint64_t i, uint32_t id, diag *d)
{
    if (s->vocab && id >= s->vocab)
        return diag_fail(d, AN_INPUT, NOWHERE, "%s: id %u at index %llu, the vocabulary has %u", s->path, id,
                         (unsigned long long)i, s->vocab);
    if (id > INT32_MAX)
        return diag_fail(d, AN_INPUT, NOWHERE, "%s: id %u at index %llu is past 2^31", s->path, id,
                         (unsigned long long)i);
    return AN_OK;
}

static an_status open_shard(shard *s, const char *path, diag *d)
{
    if (!(s->path = malloc(strlen(path) + 1))) return diag_nomem(d);
    memcpy(s->path, path, strlen(path) + 1);
    TRY(file_map_held(path, &s->file, &s->fd, d));
    int form = header_form(s->file.at, s->file.n);
    s->bytes = named_bytes(path);
    if (s->bytes) {
        s->ids = s->file.at;
        s->n = s->file.n / (size_t)s->bytes;
        if (s->file.n % (size_t)s->bytes)
            return diag_fail(d, AN_INPUT, NOWHERE, "%s: %zu bytes are no whole number of %d-byte ids", path, s->file.n,
                             s->bytes);
    } else if (form >= 0) TRY(read_header(s, form, d));
    else
        return diag_fail(d, AN_INPUT, NOWHERE,
                         "%s: no token file: neither named .u16 or .u32 nor with llm.c's magic (%d, %d)", path, MAGIC16,
                         MAGIC32);
    for (uint64_t i = 0, most = MIN(s->n, (uint64_t)1 << 26); i < most; i++) {
        uint32_t id = id_at(s, i);
        if (!fits(s, id)) return check_id(s, i, id, d);
    }
    return AN_OK;
}

an_status shard_open(const char *path, uint32_t vocab, shard **out, diag *d)
{
    shard *s = *out = calloc(1, sizeof *s);
    if (!s) return diag_nomem(d);
    s->vocab = vocab, s->fd = -1;
    an_status st = open_shard(s, path, d);
    if (st) shard_close(s), *out = NULL;
    return st;
}

void shard_close(shard *s)
{
    if (!s) return;
    file_drop(&s->file);
    file_let_go(s->fd);
    free(s->path);
    free(s);
}

uint64_t shard_count(const shard *s) { return s->n; }
int shard_bytes(const shard *s) { return s->bytes; }
const void *shard_view(const shard *s) { return s->ids; }

static an_status check_length(const shard *s, diag *d)
{
    size_t now;
    if (file_holds(s->fd, s->file.n, &now)) return AN_OK;
    return diag_fail(d, AN_INPUT, NOWHERE,
                     "%s: it was cut while it was being read: %zu bytes when it was opened, %zu now", s->path,
                     s->file.n, now);
}

an_status shard_read(const shard *s, uint64_t from, uint64_t n, int32_t *ids, diag *d)
{
    if (from > s->n || n > s->n - from)
        return diag_fail(d, AN_INPUT, NOWHERE, "%s: ids %llu to %llu, the file has %llu", s->path,
                         (unsigned long long)from, (unsigned long long)(from + n), (unsigned long long)s->n);
    TRY(check_length(s, d));
    /* Only the largest is looked at, and each to find it: all ids of a corpus are read for its digest. */
    const unsigned char *p = s->ids + from * (uint64_t)s->bytes;
    uint32_t most = 0, id;
    if (s->bytes == 2)
        for (uint64_t i = 0; i < n; i++, p += 2)
            id = p[0] | (uint32_t)p[1] << 8, most = MAX(most, id), ids[i] = (int32_t)id;
    else
        for (uint64_t i = 0; i < n; i++, p += 4) id = le32(p), most = MAX(most, id), ids[i] = (int32_t)id;
    if (fits(s, most)) return AN_OK;
    for (uint64_t i = 0; i < n; i++) TRY(check_id(s, from + i, id_at(s, from + i), d));
    return AN_OK;
}

/* ---- writing ---- */

static void put32(unsigned char *p, uint32_t v)
{
    for (int i = 0; i < 4; i++) p[i] = (unsigned char)(v >> (8 * i));
}

an_status shard_write(const char *path, const uint32_t *ids, size_t n, diag *d)
{
    int bytes = named_bytes(path);
    bool header = !bytes;
    uint32_t most = 0;
    for (size_t i = 0; i < n; i++) most = MAX(most, ids[i]);
    if (header && !ends(path, ".bin"))
        return diag_fail(d, AN_USAGE, NOWHERE, "%s: a token file is named .u16, .u32 or .bin (llm.c's form)", path);
    if (header && n > INT32_MAX)
        return diag_fail(d, AN_INPUT, NOWHERE,
                         "%s: llm.c's header counts to 2^31-1 ids, there are %zu; .u16 and .u32 take more", path, n);
    if (header) bytes = most > 0xffff ? 4 : 2;
    if (bytes == 2 && most > 0xffff)
        return diag_fail(d, AN_INPUT, NOWHERE, "%s: id %u does not fit in 16 bits; name the file .u32", path, most);
    size_t head = header ? HEADER : 0, size;
    if (!mul_size(n, (size_t)bytes, &size) || size > SIZE_MAX - HEADER) return diag_nomem(d);
    unsigned char *p = calloc(1, head + size + 1);
    if (!p) return diag_nomem(d);
    if (header) {
        put32(p, forms[bytes == 4].magic);
        put32(p + 4, forms[bytes == 4].version);
        put32(p + 8, (uint32_t)n);
    }
    for (size_t i = 0; i < n; i++) {
        unsigned char *to = p + head + i * (size_t)bytes;
        if (bytes == 4) put32(to, ids[i]);
        else to[0] = (unsigned char)ids[i], to[1] = (unsigned char)(ids[i] >> 8);
    }
    an_status st = file_write(path, p, head + size, d);
    free(p);
    return st;
}
