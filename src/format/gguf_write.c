/* gguf_write.c: values and tensors declared, then the tensors' bytes a piece at a time, in any order of tensors. */
#include <stdlib.h>

#include "format/gguf.h"
#include "format/slot.h"

enum { ALIGN = 32 };

struct gguf_out {
    arena mem;
    file_out file;
    strbuf values, infos; /* as they will stand in the file */
    uint64_t n_values;
    VEC(file_slot) slots;
    str_map names;
    uint64_t data_bytes;
    bool sealed;
};

static void put_le(strbuf *b, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++) sb_putc(b, (char)(v >> 8 * i & 255));
}

static void put_str(strbuf *b, const char *s, size_t n)
{
    put_le(b, n, 8);
    sb_putn(b, s, n);
}

an_status gguf_create(const char *path, gguf_out **out, diag *d)
{
    *out = NULL;
    gguf_out *w = calloc(1, sizeof *w);
    if (!w) return diag_nomem(d);
    w->file.fd = -1;
    an_status st = file_begin(path, &w->file, d);
    if (st) gguf_abandon(w);
    else *out = w;
    return st;
}

void gguf_abandon(gguf_out *w)
{
    if (!w) return;
    file_abandon(&w->file);
    sb_free(&w->values);
    sb_free(&w->infos);
    arena_free(&w->mem);
    free(w);
}

static an_status claim(gguf_out *w, const char *kind, const char *name, diag *d)
{
    if (w->sealed) return diag_fail(d, AN_BUG, NOWHERE, "GGUF %s \"%.100s\" comes after the first bytes", kind, name);
    char *key = arena_printf(&w->mem, "%s %s", kind, name);
    if (!key) return diag_nomem(d);
    uint32_t was;
    if (str_map_get(&w->names, key, strlen(key), &was))
        return diag_fail(d, AN_INPUT, NOWHERE, "GGUF %s \"%.100s\" is given twice", kind, name);
    return str_map_put(&w->mem, &w->names, key, strlen(key), 1) ? AN_OK : diag_nomem(d);
}

static an_status key_of(gguf_out *w, const char *key, gguf_type t, diag *d)
{
    TRY(claim(w, "key", key, d));
    put_str(&w->values, key, strlen(key));
    put_le(&w->values, (uint64_t)t, 4);
    w->n_values++;
    return AN_OK;
}

static an_status done(const gguf_out *w, diag *d) { return w->values.oom || w->infos.oom ? diag_nomem(d) : AN_OK; }

an_status gguf_put_text(gguf_out *w, const char *key, const char *s, size_t n, diag *d)
{
    TRY(key_of(w, key, GGUF_STRING, d));
    put_str(&w->values, s, n);
    return done(w, d);
}

an_status gguf_put_u32(gguf_out *w, const char *key, uint32_t x, diag *d)
{
    TRY(key_of(w, key, GGUF_U32, d));
    put_le(&w->values, x, 4);
    return done(w, d);
}

an_status gguf_put_f32(gguf_out *w, const char *key, float x, diag *d)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    TRY(key_of(w, key, GGUF_F32, d));
    put_le(&w->values, bits, 4);
    return done(w, d);
}

an_status gguf_put_bool(gguf_out *w, const char *key, bool x, diag *d)
{
    TRY(key_of(w, key, GGUF_BOOL, d));
    put_le(&w->values, x, 1);
    return done(w, d);
}

an_status gguf_put_texts(gguf_out *w, const char *key, const gguf_str *s, size_t n, diag *d)
{
    TRY(key_of(w, key, GGUF_ARRAY, d));
    put_le(&w->values, GGUF_STRING, 4);
    put_le(&w->values, n, 8);
    for (size_t i = 0; i < n; i++) put_str(&w->values, s[i].at, s[i].n);
    return done(w, d);
}

static size_t unit_of(gguf_type t)
{
    switch (t) {
    case GGUF_U8:
    case GGUF_I8:
    case GGUF_BOOL: return 1;
    case GGUF_U16:
    case GGUF_I16: return 2;
    case GGUF_U32:
    case GGUF_I32:
    case GGUF_F32: return 4;
    case GGUF_U64:
    case GGUF_I64:
    case GGUF_F64: return 8;
    default: return 0;
    }
}

an_status gguf_put_array(gguf_out *w, const char *key, gguf_type of, const void *packed, size_t n, diag *d)
{
    size_t bytes;
    if (!unit_of(of) || !mul_size(n, unit_of(of), &bytes))
        return diag_fail(d, AN_BUG, NOWHERE, "GGUF array \"%.100s\" of %s", key, gguf_type_name(of));
    TRY(key_of(w, key, GGUF_ARRAY, d));
    put_le(&w->values, (uint64_t)of, 4);
    put_le(&w->values, n, 8);
    sb_putn(&w->values, packed, bytes);
    return done(w, d);
}

an_status gguf_put_value(gguf_out *w, const gguf_value *v, diag *d)
{
    if (v->type == GGUF_STRING) return gguf_put_text(w, v->key, v->s.at, v->s.n, d);
    if (v->type == GGUF_ARRAY && v->strs) return gguf_put_texts(w, v->key, v->strs, (size_t)v->n, d);
    if (v->type == GGUF_ARRAY && v->raw) return gguf_put_array(w, v->key, v->of, v->raw, (size_t)v->n, d);
    if (v->type == GGUF_ARRAY)
        return diag_fail(d, AN_INPUT, NOWHERE, "key \"%.100s\" is an array of arrays, which is not written", v->key);
    TRY(key_of(w, v->key, v->type, d));
    uint64_t bits = v->u;
    put_le(&w->values, bits, (int)unit_of(v->type));
    return done(w, d);
}

an_status gguf_declare(gguf_out *w, const char *name, const block_format *type, int rank, const int64_t *dim,
                       size_t *index, diag *d)
{
    file_slot s = { .at = w->data_bytes };
    int64_t count = 1;
    if (rank < 1 || rank > GGUF_MAX_RANK)
        return diag_fail(d, AN_INPUT, NOWHERE, "tensor \"%.100s\" has %d axes; GGUF has 1 to %d", name, rank,
                         GGUF_MAX_RANK);
    for (int i = 0; i < rank; i++)
        if (dim[i] < 0 || !mul_i64(count, dim[i], &count))
            return diag_fail(d, AN_INPUT, NOWHERE, "shape of tensor \"%.100s\" is out of range", name);
    if (dim[rank - 1] % type->elems || !block_bytes(type, count, &s.bytes))
        return diag_fail(d, AN_INPUT, NOWHERE, "tensor \"%.100s\" has rows of %lld elements; %s comes in blocks of %d",
                         name, (long long)dim[rank - 1], type->name, type->elems);
    TRY(claim(w, "tensor", name, d));
    s.name = arena_str(&w->mem, name);
    if (!s.name) return diag_nomem(d);
    put_str(&w->infos, name, strlen(name));
    put_le(&w->infos, (uint64_t)rank, 4);
    for (int i = rank - 1; i >= 0; i--) put_le(&w->infos, (uint64_t)dim[i], 8);
    put_le(&w->infos, type->code, 4);
    put_le(&w->infos, s.at, 8);
    if (s.bytes > INT64_MAX - ALIGN - w->data_bytes)
        return diag_fail(d, AN_INPUT, NOWHERE, "GGUF file would pass 2^63 bytes");
    w->data_bytes += ROUND_UP((uint64_t)s.bytes, ALIGN);
    if (index) *index = w->slots.n;
    if (!VEC_PUSH(&w->mem, &w->slots, s)) return diag_nomem(d);
    return done(w, d);
}

static an_status seal(gguf_out *w, diag *d)
{
    strbuf h = { 0 };
    sb_puts(&h, "GGUF");
    put_le(&h, 3, 4);
    put_le(&h, w->slots.n, 8);
    put_le(&h, w->n_values, 8);
    if (w->values.n) sb_putn(&h, w->values.at, w->values.n);
    if (w->infos.n) sb_putn(&h, w->infos.at, w->infos.n);
    while (!h.oom && h.n % ALIGN) sb_putc(&h, 0);
    an_status st = h.oom ? diag_nomem(d) : file_put(&w->file, 0, h.at, h.n, d);
    for (size_t i = 0; i < w->slots.n; i++) w->slots.at[i].at += h.n;
    /* the file has its full length even when the last tensor ends before the alignment */
    if (!st && w->data_bytes) st = file_put(&w->file, h.n + w->data_bytes - 1, "", 1, d);
    w->sealed = true;
    sb_free(&h);
    return st;
}

an_status gguf_put(gguf_out *w, size_t index, const void *p, size_t n, diag *d)
{
    if (!w->sealed) TRY(seal(w, d));
    if (index >= w->slots.n) return diag_fail(d, AN_BUG, NOWHERE, "GGUF tensor %zu of %zu", index, w->slots.n);
    return slot_put(&w->file, &w->slots.at[index], p, n, d);
}

an_status gguf_finish(gguf_out *w, diag *d)
{
    an_status st = w->sealed ? AN_OK : seal(w, d);
    for (size_t i = 0; i < w->slots.n && !st; i++) st = slot_is_full(&w->slots.at[i], d);
    if (!st) st = file_finish(&w->file, d);
    gguf_abandon(w);
    return st;
}
