/* gguf.c: reading GGUF.
 *
 *   0   "GGUF", u32 version (2, 3), u64 tensors, u64 values
 *   ..  values: string key, u32 type, value;   string = u64 length, bytes;   array = u32 type, u64 count, items
 *   ..  tensors: string name, u32 rank, u64 dims (fastest first), u32 type, u64 offset in the data
 *   ..  zeros up to general.alignment (32 when absent), then the data
 *
 * All little-endian. A count is believed only as far as the bytes behind it could hold that many items. */
#include <stdlib.h>

#include "format/gguf.h"

enum { MAX_NAME = 256, MAX_NEST = 4, LEAST_VALUE = 13, LEAST_TENSOR = 24 };

struct gguf {
    arena mem;
    file_bytes map; /* empty for a view */
    const char *file;
    uint32_t version;
    uint64_t align;
    VEC(gguf_value) values;
    VEC(gguf_tensor) tensors;
    str_map by_key, by_name;
};

static const struct {
    const char *name;
    int bytes; /* 0: not a number */
} types[GGUF_TYPES] = {
    [GGUF_U8] = { "uint8", 1 },   [GGUF_I8] = { "int8", 1 },     [GGUF_U16] = { "uint16", 2 },   [GGUF_I16] = { "int16", 2 },
    [GGUF_U32] = { "uint32", 4 }, [GGUF_I32] = { "int32", 4 },   [GGUF_F32] = { "float32", 4 },  [GGUF_BOOL] = { "bool", 1 },
    [GGUF_STRING] = { "string", 0 }, [GGUF_ARRAY] = { "array", 0 }, [GGUF_U64] = { "uint64", 8 }, [GGUF_I64] = { "int64", 8 },
    [GGUF_F64] = { "float64", 8 },
};

const char *gguf_type_name(gguf_type t) { return (unsigned)t < GGUF_TYPES ? types[t].name : "unknown"; }

/* ---- bytes, never past the end ---- */

typedef struct {
    const unsigned char *p, *end, *start;
    gguf *f;
    diag *d;
} scan;

#define BAD(c, ...) diag_fail((c)->d, AN_INPUT, NOWHERE, __VA_ARGS__)

static an_status cut(scan *c, const char *what)
{
    return BAD(c, "%.150s: ends at byte %zu inside %.100s", c->f->file, (size_t)(c->end - c->start), what);
}

static uint64_t get_le(const unsigned char *p, int n)
{
    uint64_t v = 0;
    for (int i = n; i-- > 0;) v = v << 8 | p[i];
    return v;
}

static an_status read_uint(scan *c, int bytes, const char *what, uint64_t *out)
{
    *out = 0;
    if (c->end - c->p < bytes) return cut(c, what);
    *out = get_le(c->p, bytes);
    c->p += bytes;
    return AN_OK;
}

static an_status read_str(scan *c, const char *what, gguf_str *out)
{
    uint64_t n;
    TRY(read_uint(c, 8, what, &n));
    if (n > (uint64_t)(c->end - c->p))
        return BAD(c, "%.150s: %.80s says it is %llu bytes long; %zu are left", c->f->file, what, (unsigned long long)n,
                   (size_t)(c->end - c->p));
    *out = (gguf_str){ (const char *)c->p, (size_t)n };
    c->p += n;
    return AN_OK;
}

/* A key or a tensor's name: short, without control characters, so that it can be a C string and stand in a message. */
static an_status read_name(scan *c, const char *what, const char **out)
{
    gguf_str s;
    TRY(read_str(c, what, &s));
    if (!s.n || s.n > MAX_NAME)
        return BAD(c, "%.150s: %s of %zu bytes, wanted 1 to %d", c->f->file, what, s.n, MAX_NAME);
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.at[i] < 32 || s.at[i] == 127)
            return BAD(c, "%.150s: %s holds byte 0x%02x", c->f->file, what, (unsigned char)s.at[i]);
    *out = arena_strn(&c->f->mem, s.at, s.n);
    return *out ? AN_OK : diag_nomem(c->d);
}

/* ---- values ---- */

static double number_at(gguf_type t, const unsigned char *p)
{
    uint64_t v = get_le(p, types[t].bytes);
    if (t == GGUF_F32) {
        uint32_t bits = (uint32_t)v;
        float x;
        memcpy(&x, &bits, 4);
        return (double)x;
    }
    if (t == GGUF_F64) {
        double x;
        memcpy(&x, &v, 8);
        return x;
    }
    int sh = 64 - 8 * types[t].bytes;
    if (t == GGUF_I8 || t == GGUF_I16 || t == GGUF_I32 || t == GGUF_I64) return (double)((int64_t)(v << sh) >> sh);
    return (double)v;
}

static an_status read_type(scan *c, const char *key, gguf_type *t)
{
    uint64_t v;
    TRY(read_uint(c, 4, key, &v));
    if (v >= GGUF_TYPES)
        return BAD(c, "%.150s: \"%.80s\" has value type %llu; 0 to %d are known", c->f->file, key,
                   (unsigned long long)v, GGUF_TYPES - 1);
    *t = (gguf_type)v;
    return AN_OK;
}

static an_status read_array(scan *c, gguf_value *v, int nest)
{
    TRY(read_type(c, v->key, &v->of));
    TRY(read_uint(c, 8, v->key, &v->n));
    uint64_t least = types[v->of].bytes ? (uint64_t)types[v->of].bytes : v->of == GGUF_STRING ? 8 : 12;
    if (v->n > (uint64_t)(c->end - c->p) / least)
        return BAD(c, "%.150s: \"%.80s\" says it has %llu items of %s; %zu bytes are left", c->f->file, v->key,
                   (unsigned long long)v->n, gguf_type_name(v->of), (size_t)(c->end - c->p));
    if (v->of == GGUF_ARRAY) {
        if (nest == MAX_NEST)
            return BAD(c, "%.150s: \"%.80s\" holds arrays nested deeper than %d", c->f->file, v->key, MAX_NEST);
        for (uint64_t i = 0; i < v->n; i++) {
            gguf_value inner = { .key = v->key, .type = GGUF_ARRAY };
            arena_mark m = arena_save(&c->f->mem);
            TRY(read_array(c, &inner, nest + 1));
            arena_back(&c->f->mem, m);
        }
        return AN_OK;
    }
    if (v->of != GGUF_STRING) {
        v->raw = c->p;
        c->p += v->n * least;
        return AN_OK;
    }
    gguf_str *s = TAKE(&c->f->mem, gguf_str, (size_t)v->n + 1);
    if (!s) return diag_nomem(c->d);
    for (uint64_t i = 0; i < v->n; i++) TRY(read_str(c, v->key, &s[i]));
    v->strs = s;
    return AN_OK;
}

static an_status read_value(scan *c)
{
    gguf *f = c->f;
    gguf_value v = { 0 };
    TRY(read_name(c, "a key", &v.key));
    TRY(read_type(c, v.key, &v.type));
    int bytes = types[v.type].bytes;
    if (v.type == GGUF_ARRAY) TRY(read_array(c, &v, 1));
    else if (v.type == GGUF_STRING) TRY(read_str(c, v.key, &v.s));
    else {
        if (c->end - c->p < bytes) return cut(c, v.key);
        v.u = get_le(c->p, bytes);
        v.i = (int64_t)(v.u << (64 - 8 * bytes)) >> (64 - 8 * bytes);
        v.f = v.type == GGUF_F32 || v.type == GGUF_F64 ? number_at(v.type, c->p) : 0;
        if (v.type == GGUF_BOOL && v.u > 1)
            return BAD(c, "%.150s: \"%.80s\" is a bool of value %llu", f->file, v.key, (unsigned long long)v.u);
        c->p += bytes;
    }
    uint32_t was;
    if (str_map_get(&f->by_key, v.key, strlen(v.key), &was))
        return BAD(c, "%.150s: key \"%.80s\" is there twice", f->file, v.key);
    if (!str_map_put(&f->mem, &f->by_key, v.key, strlen(v.key), (uint32_t)f->values.n) ||
        !VEC_PUSH(&f->mem, &f->values, v))
        return diag_nomem(c->d);
    return AN_OK;
}

/* ---- tensors ---- */

static an_status read_tensor(scan *c, uint64_t *offset)
{
    gguf *f = c->f;
    gguf_tensor t = { 0 };
    uint64_t rank, code;
    TRY(read_name(c, "a tensor's name", &t.name));
    TRY(read_uint(c, 4, t.name, &rank));
    if (rank > GGUF_MAX_RANK)
        return BAD(c, "%.150s: tensor \"%.80s\" has %llu axes; %d are the most", f->file, t.name,
                   (unsigned long long)rank, GGUF_MAX_RANK);
    t.rank = (int)rank;
    t.count = 1;
    for (int i = t.rank - 1; i >= 0; i--) {
        uint64_t dim;
        TRY(read_uint(c, 8, t.name, &dim));
        if (dim > INT64_MAX) return BAD(c, "%.150s: tensor \"%.80s\" has a dimension past 2^63", f->file, t.name);
        t.dim[i] = (int64_t)dim;
    }
    for (int i = 0; i < t.rank; i++)
        if (!mul_i64(t.count, t.dim[i], &t.count))
            return BAD(c, "%.150s: tensor \"%.80s\" has more than 2^63 elements", f->file, t.name);
    TRY(read_uint(c, 4, t.name, &code));
    TRY(read_uint(c, 8, t.name, offset));
    t.type = block_by_code((uint32_t)code);
    if (!t.type)
        return BAD(c, "%.150s: tensor \"%.80s\" has element type %llu, which is not known", f->file, t.name,
                   (unsigned long long)code);
    int64_t fastest = t.rank ? t.dim[t.rank - 1] : 1;
    if (fastest % t.type->elems || !block_bytes(t.type, t.count, &t.bytes))
        return BAD(c, "%.150s: tensor \"%.80s\" has rows of %lld elements; %s comes in blocks of %d", f->file, t.name,
                   (long long)fastest, t.type->name, t.type->elems);
    if (*offset % f->align)
        return BAD(c, "%.150s: tensor \"%.80s\" lies at offset %llu, not a multiple of %llu", f->file, t.name,
                   (unsigned long long)*offset, (unsigned long long)f->align);
    uint32_t was;
    if (str_map_get(&f->by_name, t.name, strlen(t.name), &was))
        return BAD(c, "%.150s: tensor \"%.80s\" is there twice", f->file, t.name);
    if (!str_map_put(&f->mem, &f->by_name, t.name, strlen(t.name), (uint32_t)f->tensors.n) ||
        !VEC_PUSH(&f->mem, &f->tensors, t))
        return diag_nomem(c->d);
    return AN_OK;
}

typedef struct {
    uint64_t at;
    size_t tensor;
} place;

static int by_offset(const void *a, const void *b)
{
    const place *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return x->tensor < y->tensor ? -1 : x->tensor > y->tensor;
}

/* Every tensor inside the data, none inside another. Padding between them is allowed. */
static an_status place_tensors(scan *c, const place *offsets, const unsigned char *data, size_t n_data)
{
    gguf *f = c->f;
    size_t n = f->tensors.n;
    place *order = TAKE(&f->mem, place, n + 1);
    if (!order) return diag_nomem(c->d);
    memcpy(order, offsets, n * sizeof *order);
    if (n) qsort(order, n, sizeof *order, by_offset);
    uint64_t end = 0;
    const char *before = "";
    for (size_t i = 0; i < n; i++) {
        gguf_tensor *t = &f->tensors.at[order[i].tensor];
        uint64_t at = order[i].at;
        if (at > n_data || t->bytes > n_data - at)
            return BAD(c, "%.150s: tensor \"%.80s\" takes %zu bytes from offset %llu of %zu bytes of data", f->file,
                       t->name, t->bytes, (unsigned long long)at, n_data);
        if (at < end && t->bytes)
            return BAD(c, "%.120s: tensors \"%.80s\" and \"%.80s\" overlap: one ends at %llu, the other begins at %llu",
                       f->file, before, t->name, (unsigned long long)end, (unsigned long long)at);
        t->data = data + at;
        if (t->bytes) end = at + t->bytes, before = t->name;
    }
    return AN_OK;
}

/* ---- the whole ---- */

static an_status read_alignment(scan *c)
{
    gguf *f = c->f;
    const gguf_value *v = gguf_get(f, "general.alignment");
    int64_t a = 32;
    if (v && (!gguf_int(f, "general.alignment", &a) || a < 1 || a > 1 << 20 || (a & (a - 1))))
        return BAD(c, "%.150s: general.alignment is %lld (%s), wanted a power of two", f->file, (long long)a,
                   gguf_type_name(v->type));
    f->align = (uint64_t)a;
    return AN_OK;
}

static an_status read_all(scan *c)
{
    gguf *f = c->f;
    uint64_t magic, version, n_tensors, n_values;
    TRY(read_uint(c, 4, "its magic", &magic));
    if (magic != 0x46554747)
        return BAD(c, "%.200s: not a GGUF file: it begins with 0x%08llx, wanted \"GGUF\"", f->file,
                   (unsigned long long)magic);
    TRY(read_uint(c, 4, "its version", &version));
    if (version != 2 && version != 3)
        return BAD(c, "%.200s: GGUF version %llu%s; 2 and 3 are known", f->file, (unsigned long long)version,
                   version == 0x02000000 || version == 0x03000000 ? " (big-endian)" : "");
    f->version = (uint32_t)version;
    TRY(read_uint(c, 8, "the number of tensors", &n_tensors));
    TRY(read_uint(c, 8, "the number of values", &n_values));
    uint64_t left = (uint64_t)(c->end - c->p);
    if (n_values > left / LEAST_VALUE || n_tensors > left / LEAST_TENSOR || n_values > UINT32_MAX ||
        n_tensors > UINT32_MAX)
        return BAD(c, "%.150s: says it holds %llu values and %llu tensors; %llu bytes follow", f->file,
                   (unsigned long long)n_values, (unsigned long long)n_tensors, (unsigned long long)left);
    for (uint64_t i = 0; i < n_values; i++) TRY(read_value(c));
    TRY(read_alignment(c));
    place *offsets = TAKE(&f->mem, place, (size_t)n_tensors + 1);
    if (!offsets) return diag_nomem(c->d);
    for (uint64_t i = 0; i < n_tensors; i++) {
        offsets[i].tensor = (size_t)i;
        TRY(read_tensor(c, &offsets[i].at));
    }
    size_t head = (size_t)(c->p - c->start), pad = (size_t)((f->align - head % f->align) % f->align);
    if (!n_tensors) return AN_OK; /* a vocabulary alone may end with its values */
    if ((size_t)(c->end - c->p) < pad) return cut(c, "the padding before its data");
    return place_tensors(c, offsets, c->p + pad, (size_t)(c->end - c->p) - pad);
}

static an_status open_bytes(gguf *f, const char *file, const unsigned char *p, size_t n, diag *d)
{
    f->file = arena_str(&f->mem, file);
    if (!f->file) return diag_nomem(d);
    scan c = { .p = p, .start = p, .end = p + n, .f = f, .d = d };
    return read_all(&c);
}

an_status gguf_view(const void *bytes, size_t n, const char *file, gguf **out, diag *d)
{
    *out = NULL;
    gguf *f = calloc(1, sizeof *f);
    if (!f) return diag_nomem(d);
    an_status st = open_bytes(f, file, bytes, n, d);
    if (st) gguf_close(f);
    else *out = f;
    return st;
}

an_status gguf_open(const char *path, gguf **out, diag *d)
{
    *out = NULL;
    gguf *f = calloc(1, sizeof *f);
    if (!f) return diag_nomem(d);
    an_status st = file_map(path, &f->map, d);
    if (!st) st = open_bytes(f, path, f->map.at, f->map.n, d);
    if (st) gguf_close(f);
    else *out = f;
    return st;
}

void gguf_close(gguf *f)
{
    if (!f) return;
    file_drop(&f->map);
    arena_free(&f->mem);
    free(f);
}

/* ---- looking ---- */

const char *gguf_file(const gguf *f) { return f->file; }
uint32_t gguf_version(const gguf *f) { return f->version; }
size_t gguf_value_count(const gguf *f) { return f->values.n; }
const gguf_value *gguf_value_at(const gguf *f, size_t i) { return i < f->values.n ? &f->values.at[i] : NULL; }

const gguf_value *gguf_get(const gguf *f, const char *key)
{
    uint32_t i;
    return str_map_get(&f->by_key, key, strlen(key), &i) ? &f->values.at[i] : NULL;
}

bool gguf_int(const gguf *f, const char *key, int64_t *out)
{
    const gguf_value *v = gguf_get(f, key);
    if (!v) return false;
    switch (v->type) {
    case GGUF_U8:
    case GGUF_U16:
    case GGUF_U32:
    case GGUF_U64:
        if (v->u > INT64_MAX) return false;
        *out = (int64_t)v->u;
        return true;
    case GGUF_I8:
    case GGUF_I16:
    case GGUF_I32:
    case GGUF_I64: *out = v->i; return true;
    default: return false;
    }
}

bool gguf_number(const gguf *f, const char *key, double *out)
{
    const gguf_value *v = gguf_get(f, key);
    int64_t i;
    if (v && (v->type == GGUF_F32 || v->type == GGUF_F64)) return *out = v->f, true;
    if (!gguf_int(f, key, &i)) return false;
    *out = (double)i;
    return true;
}

bool gguf_text(const gguf *f, const char *key, gguf_str *out)
{
    const gguf_value *v = gguf_get(f, key);
    if (!v || v->type != GGUF_STRING) return false;
    *out = v->s;
    return true;
}

bool gguf_item(const gguf_value *a, uint64_t i, double *out)
{
    if (a->type != GGUF_ARRAY || !a->raw || i >= a->n) return false;
    *out = number_at(a->of, a->raw + i * (uint64_t)types[a->of].bytes);
    return true;
}

size_t gguf_tensor_count(const gguf *f) { return f->tensors.n; }
const gguf_tensor *gguf_tensor_at(const gguf *f, size_t i) { return i < f->tensors.n ? &f->tensors.at[i] : NULL; }

const gguf_tensor *gguf_find(const gguf *f, const char *name)
{
    uint32_t i;
    return str_map_get(&f->by_name, name, strlen(name), &i) ? &f->tensors.at[i] : NULL;
}
