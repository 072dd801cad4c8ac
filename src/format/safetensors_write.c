/* safetensors_write.c: tensors declared, laid out, and put into a file a piece at a time. Wider elements come first,
 * so that every tensor is aligned to its element when the data are (some readers insist); the header is padded with
 * blanks to 64 bytes. Within one width tensors keep the order they were declared in. */
#include <errno.h>
#include <stdlib.h>

#include "base/str.h"
#include "format/json.h"
#include "format/safetensors.h"
#include "format/safetensors_int.h"
#include "format/slot.h"

typedef struct {
    file_slot in;
    dtype dt;
    int rank;
    int64_t dim[SAFETENSORS_MAX_RANK];
} slot;

struct safetensors_out {
    arena mem;
    file_out file;
    VEC(slot) slots;
    str_map names;
    strbuf meta; /* the members of __metadata__ */
    uint64_t meta_sum;
    bool sealed; /* the header is written: nothing more can be declared */
};

enum { ALIGN = 64 };

an_status safetensors_create(const char *path, safetensors_out **out, diag *d)
{
    *out = NULL;
    safetensors_out *w = calloc(1, sizeof *w);
    if (!w) return diag_nomem(d);
    w->file.fd = -1;
    an_status st = file_begin(path, &w->file, d);
    if (st) safetensors_abandon(w);
    else *out = w;
    return st;
}

void safetensors_abandon(safetensors_out *w)
{
    if (!w) return;
    file_abandon(&w->file);
    sb_free(&w->meta);
    arena_free(&w->mem);
    free(w);
}

/* A second definition of a name would make a file that readers refuse. */
static an_status claim(safetensors_out *w, const char *kind, const char *name, const char **own, diag *d)
{
    if (w->sealed)
        return diag_fail(d, AN_BUG, NOWHERE, "safetensors %s \"%.100s\" comes after the first bytes", kind, name);
    errno = 0;
    json_t *text = json_string(name); /* NULL: not UTF-8, which JSON cannot spell */
    if (!text && errno == ENOMEM) return diag_nomem(d);
    if (!text) return diag_fail(d, AN_INPUT, NOWHERE, "safetensors %s \"%.100s\" is not UTF-8", kind, name);
    json_decref(text);
    char *key = arena_printf(&w->mem, "%s %s", kind, name);
    if (!key) return diag_nomem(d);
    uint32_t was;
    if (str_map_get(&w->names, key, strlen(key), &was))
        return diag_fail(d, AN_INPUT, NOWHERE, "safetensors %s \"%.100s\" is given twice", kind, name);
    if (!str_map_put(&w->mem, &w->names, key, strlen(key), 1)) return diag_nomem(d);
    *own = key + strlen(kind) + 1;
    return AN_OK;
}

an_status safetensors_put_meta(safetensors_out *w, const char *key, const char *value, diag *d)
{
    const char *own;
    TRY(claim(w, "metadata", key, &own, d));
    if (w->meta.n) sb_putc(&w->meta, ',');
    sb_json(&w->meta, key, strlen(key));
    sb_putc(&w->meta, ':');
    sb_json(&w->meta, value, strlen(value));
    w->meta_sum += meta_hash(key, value);
    return w->meta.oom ? diag_nomem(d) : AN_OK;
}

uint64_t safetensors_put_sum(const safetensors_out *w) { return w->meta_sum; }

an_status safetensors_declare(safetensors_out *w, const char *name, dtype dt, int rank, const int64_t *dim,
                              size_t *index, diag *d)
{
    slot s = { .dt = dt, .rank = rank };
    if (!safetensors_dtype(dt))
        return diag_fail(d, AN_INPUT, NOWHERE, "safetensors has no element type for %s (tensor \"%.100s\")",
                         dtype_name(dt), name);
    if (rank < 0 || rank > SAFETENSORS_MAX_RANK)
        return diag_fail(d, AN_INPUT, NOWHERE, "tensor \"%.100s\" has %d axes; safetensors files here have at most %d",
                         name, rank, SAFETENSORS_MAX_RANK);
    if (!strcmp(name, "__metadata__")) return diag_fail(d, AN_INPUT, NOWHERE, "no tensor can be called __metadata__");
    int64_t count = 1;
    for (int i = 0; i < rank; i++) {
        if (dim[i] < 0 || !mul_i64(count, dim[i], &count))
            return diag_fail(d, AN_INPUT, NOWHERE, "shape of tensor \"%.100s\" is out of range", name);
        s.dim[i] = dim[i];
    }
    if (!dtype_bytes(dt, count, &s.in.bytes))
        return diag_fail(d, AN_INPUT, NOWHERE, "tensor \"%.100s\" is too large", name);
    TRY(claim(w, "tensor", name, &s.in.name, d));
    if (index) *index = w->slots.n;
    return VEC_PUSH(&w->mem, &w->slots, s) ? AN_OK : diag_nomem(d);
}

static void put_entry(strbuf *h, const slot *s)
{
    sb_puts(h, h->n > 1 ? "," : "");
    sb_json(h, s->in.name, strlen(s->in.name));
    sb_printf(h, ":{\"dtype\":\"%s\",\"shape\":[", safetensors_dtype(s->dt));
    for (int i = 0; i < s->rank; i++) sb_printf(h, "%s%lld", i ? "," : "", (long long)s->dim[i]);
    sb_printf(h, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)s->in.at,
              (unsigned long long)(s->in.at + s->in.bytes));
}

/* Lay out the data and write the header in front of it. */
static an_status seal(safetensors_out *w, diag *d)
{
    strbuf h = { 0 };
    uint64_t at = 0;
    sb_putc(&h, '{');
    if (w->meta.n) sb_printf(&h, "\"__metadata__\":{%s}", w->meta.at);
    for (int bits = 64; bits; bits /= 2)
        for (size_t i = 0; i < w->slots.n; i++) {
            slot *s = &w->slots.at[i];
            if (dtype_bits(s->dt) != bits) continue;
            if (s->in.bytes > INT64_MAX - at) {
                sb_free(&h);
                return diag_fail(d, AN_INPUT, NOWHERE, "safetensors file would pass 2^63 bytes");
            }
            s->in.at = at;
            at += s->in.bytes;
            put_entry(&h, s);
        }
    sb_putc(&h, '}');
    while (!h.oom && (8 + h.n) % ALIGN) sb_putc(&h, ' ');
    an_status st = h.oom ? diag_nomem(d) : AN_OK;
    if (!st && h.n > SAFETENSORS_MAX_HEADER)
        st = diag_fail(d, AN_INPUT, NOWHERE, "safetensors header of %zu bytes is larger than %d", h.n,
                       SAFETENSORS_MAX_HEADER);
    unsigned char len[8];
    for (int i = 0; i < 8; i++) len[i] = (unsigned char)((uint64_t)h.n >> 8 * i);
    if (!st) st = file_put(&w->file, 0, len, 8, d);
    if (!st) st = file_put(&w->file, 8, h.at, h.n, d);
    for (size_t i = 0; i < w->slots.n; i++) w->slots.at[i].in.at += 8 + h.n;
    w->sealed = true;
    sb_free(&h);
    return st;
}

an_status safetensors_put(safetensors_out *w, size_t index, const void *p, size_t n, diag *d)
{
    if (!w->sealed) TRY(seal(w, d));
    if (index >= w->slots.n) return diag_fail(d, AN_BUG, NOWHERE, "safetensors tensor %zu of %zu", index, w->slots.n);
    return slot_put(&w->file, &w->slots.at[index].in, p, n, d);
}

an_status safetensors_finish(safetensors_out *w, diag *d)
{
    an_status st = w->sealed ? AN_OK : seal(w, d);
    for (size_t i = 0; i < w->slots.n && !st; i++) st = slot_is_full(&w->slots.at[i].in, d);
    if (!st) st = file_finish(&w->file, d);
    safetensors_abandon(w);
    return st;
}
