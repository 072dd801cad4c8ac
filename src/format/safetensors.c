/* safetensors.c: reading the format of safetensors.h.
 *
 *   0     u64 little-endian: length of the header
 *   8     {"name": {"dtype": "F16", "shape": [2, 3], "data_offsets": [begin, end]}, …, "__metadata__": {"key": "text"}} and blanks
 *   8+len the data; offsets count from here, and the tensors cover it exactly: no overlap, no hole, nothing behind */
#include <stdlib.h>

#include "base/str.h"
#include "format/json.h"
#include "format/safetensors.h"
#include "format/safetensors_int.h"

static const struct {
    const char *name;
    dtype dt;
} types[] = {
    { "F64", DT_F64 }, { "F32", DT_F32 }, { "F16", DT_F16 }, { "BF16", DT_BF16 }, { "I64", DT_I64 }, { "I32", DT_I32 },
    { "I16", DT_I16 }, { "I8", DT_I8 },   { "U64", DT_U64 }, { "U32", DT_U32 },   { "U16", DT_U16 }, { "U8", DT_U8 },
    { "BOOL", DT_BOOL }, { "F8_E4M3", DT_E4M3 }, { "F8_E5M2", DT_E5M2 },
};

const char *safetensors_dtype(dtype dt)
{
    for (size_t i = 0; i < COUNT(types); i++)
        if (types[i].dt == dt) return types[i].name;
    return NULL;
}

typedef struct {
    const char *key, *value;
} meta;

struct safetensors {
    arena mem; /* names, tensors, the map */
    VEC(file_bytes) maps;
    VEC(safetensor) all;
    VEC(meta) metas;
    str_map by_name;
};

/* Where a header is being read, for messages. */
typedef struct {
    const char *file;
    const unsigned char *data; /* first byte behind the header */
    size_t n_data;
    safetensors *to;
    diag *d;
} shard;

#define BAD(s, ...) diag_fail((s)->d, AN_INPUT, NOWHERE, __VA_ARGS__)

static an_status read_int(const shard *s, const char *name, const char *field, const json_t *j, int64_t *out)
{
    if (!json_is_integer(j))
        return BAD(s, "%.120s: tensor \"%.80s\": %s holds something that is not an integer", s->file, name, field);
    *out = json_integer_value(j);
    if (*out >= 0) return AN_OK;
    return BAD(s, "%.120s: tensor \"%.80s\": %s holds %lld, wanted 0 or more", s->file, name, field, (long long)*out);
}

static an_status read_shape(const shard *s, safetensor *t, const json_t *shape)
{
    if (!json_is_array(shape)) return BAD(s, "%.120s: tensor \"%.80s\" has no shape array", s->file, t->name);
    size_t n = json_array_size(shape);
    if (n > SAFETENSORS_MAX_RANK)
        return BAD(s, "%.120s: tensor \"%.80s\" has %zu axes; %d are the most", s->file, t->name, n,
                   SAFETENSORS_MAX_RANK);
    bool empty = false;
    for (size_t i = 0; i < n; i++) {
        TRY(read_int(s, t->name, "shape", json_array_get(shape, i), &t->dim[i]));
        empty |= !t->dim[i];
    }
    t->rank = (int)n;
    t->count = empty ? 0 : 1;
    for (size_t i = 0; i < n && !empty; i++)
        if (!mul_i64(t->count, t->dim[i], &t->count))
            return BAD(s, "%.120s: tensor \"%.80s\" has more than 2^63 elements", s->file, t->name);
    return AN_OK;
}

static an_status read_tensor(const shard *s, const char *name, const json_t *j)
{
    safetensor t = { .name = name, .file = s->file };
    const char *word = json_string_value(json_object_get(j, "dtype"));
    const json_t *range = json_object_get(j, "data_offsets");
    if (!json_is_object(j) || !word) return BAD(s, "%.120s: tensor \"%.80s\" has no dtype", s->file, name);
    if (json_object_size(j) != 3)
        return BAD(s, "%.120s: tensor \"%.80s\" has %zu fields; dtype, shape and data_offsets are wanted", s->file,
                   name, json_object_size(j));
    for (size_t i = 0; i < COUNT(types); i++)
        if (!strcmp(types[i].name, word)) t.dt = types[i].dt;
    if (!t.dt) return BAD(s, "%.120s: tensor \"%.80s\" has dtype \"%.20s\", which is not known", s->file, name, word);
    TRY(read_shape(s, &t, json_object_get(j, "shape")));
    if (json_array_size(range) != 2)
        return BAD(s, "%.120s: tensor \"%.80s\": data_offsets are not two numbers", s->file, name);
    int64_t begin, end;
    TRY(read_int(s, name, "data_offsets", json_array_get(range, 0), &begin));
    TRY(read_int(s, name, "data_offsets", json_array_get(range, 1), &end));
    if (begin > end || (uint64_t)end > s->n_data)
        return BAD(s, "%.120s: tensor \"%.80s\" lies at bytes %lld to %lld of %zu bytes of data", s->file, name,
                   (long long)begin, (long long)end, s->n_data);
    if (!dtype_bytes(t.dt, t.count, &t.bytes) || t.bytes != (size_t)(end - begin))
        return BAD(s, "%.120s: tensor \"%.80s\": %lld elements of %s do not fill its %lld bytes", s->file, name,
                   (long long)t.count, word, (long long)(end - begin));
    t.data = s->data + begin;
    return VEC_PUSH(&s->to->mem, &s->to->all, t) ? AN_OK : diag_nomem(s->d);
}

static an_status read_metadata(const shard *s, const json_t *j)
{
    if (!json_is_object(j)) return BAD(s, "%.120s: __metadata__ is not an object", s->file);
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)j, key, v)
    {
        if (!json_is_string(v)) return BAD(s, "%.120s: __metadata__ key \"%.80s\" is not a text", s->file, key);
        meta m = { arena_str(&s->to->mem, key), arena_str(&s->to->mem, json_string_value(v)) };
        if (!m.key || !m.value || !VEC_PUSH(&s->to->mem, &s->to->metas, m)) return diag_nomem(s->d);
    }
    return AN_OK;
}

static int by_place(const void *a, const void *b)
{
    const safetensor *x = a, *y = b;
    uintptr_t p = (uintptr_t)x->data, q = (uintptr_t)y->data;
    if (p != q) return p < q ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* In the order of their bytes each tensor starts where the one before it ends, and the last ends with the file. */
static an_status check_cover(const shard *s, safetensor *t, size_t n)
{
    if (n) qsort(t, n, sizeof *t, by_place);
    size_t at = 0;
    /* bytes of two tensors first: a tensor moved onto another leaves a hole as well */
    for (int holes = 0; holes < 2; holes++) {
        at = 0;
        for (size_t i = 0; i < n; i++) {
            size_t begin = (size_t)((const unsigned char *)t[i].data - s->data);
            if (begin < at)
                return BAD(
                    s, "%.100s: tensors \"%.70s\" and \"%.70s\" overlap: one ends at byte %zu, the other begins at %zu",
                    s->file, t[i - 1].name, t[i].name, at, begin);
            if (holes && begin > at)
                return BAD(s, "%.120s: bytes %zu to %zu before tensor \"%.80s\" belong to no tensor", s->file, at,
                           begin, t[i].name);
            at = begin + t[i].bytes;
        }
    }
    if (at == s->n_data) return AN_OK;
    return BAD(s, "%.120s: its tensors end at byte %zu of %zu bytes of data", s->file, at, s->n_data);
}

static an_status read_header(const shard *s, const json_t *top)
{
    safetensors *f = s->to;
    size_t first = f->all.n;
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)top, key, v)
    {
        if (!strcmp(key, "__metadata__")) {
            if (!first) TRY(read_metadata(s, v));
            continue;
        }
        char *name = arena_str(&f->mem, key);
        if (!name) return diag_nomem(s->d);
        TRY(read_tensor(s, name, v));
    }
    TRY(check_cover(s, f->all.n ? f->all.at + first : NULL, f->all.n - first));
    if (f->all.n > UINT32_MAX) return BAD(s, "%.120s: too many tensors", s->file);
    for (size_t i = first; i < f->all.n; i++) {
        const char *name = f->all.at[i].name;
        uint32_t other;
        if (str_map_get(&f->by_name, name, strlen(name), &other))
            return BAD(s, "tensor \"%.80s\" is in two shards: %.120s and %.120s", name, f->all.at[other].file, s->file);
        if (!str_map_put(&f->mem, &f->by_name, name, strlen(name), (uint32_t)i)) return diag_nomem(s->d);
    }
    return AN_OK;
}

static an_status add_image(safetensors *f, const char *file, const unsigned char *p, size_t n, diag *d)
{
    uint64_t len = 0;
    if (n < 8)
        return diag_fail(d, AN_INPUT, NOWHERE,
                         "%.200s: not a safetensors file: %zu bytes, and the header's length alone takes 8", file, n);
    for (int i = 7; i >= 0; i--) len = len << 8 | p[i];
    if (len > n - 8 || len > SAFETENSORS_MAX_HEADER)
        return diag_fail(
            d, AN_INPUT, NOWHERE,
            "%.200s: not a safetensors file, or cut: its header says %llu bytes; the file has %zu more, and %d are the most read",
            file, (unsigned long long)len, n - 8, SAFETENSORS_MAX_HEADER);
    char what[240];
    snprintf(what, sizeof what, "%.200s: safetensors header", file);
    json_t *top;
    TRY(json_text(p + 8, (size_t)len, what, &top, d));
    shard s = { .file = arena_str(&f->mem, file), .data = p + 8 + len, .n_data = n - 8 - (size_t)len, .to = f, .d = d };
    an_status st = s.file ? read_header(&s, top) : diag_nomem(d);
    json_decref(top);
    return st;
}

static an_status add_file(safetensors *f, const char *path, diag *d)
{
    file_bytes map;
    TRY(file_map(path, &map, d));
    if (!VEC_PUSH(&f->mem, &f->maps, map)) {
        file_drop(&map);
        return diag_nomem(d);
    }
    return add_image(f, path, map.at, map.n, d);
}

/* ---- a model in several files ---- */

/* Shards lie beside the index: a name with a slash could point anywhere. */
static an_status shard_path(safetensors *f, const char *index, const char *name, const char **out, diag *d)
{
    if (!name[0] || strchr(name, '/') || strchr(name, '\\') || !strcmp(name, ".."))
        return diag_fail(d, AN_INPUT, NOWHERE, "%.200s: shard \"%.80s\" is not the name of a file beside it", index,
                         name);
    const char *cut = strrchr(index, '/');
    *out = arena_printf(&f->mem, "%.*s%s", cut ? (int)(cut - index + 1) : 0, index, name);
    return *out ? AN_OK : diag_nomem(d);
}

static an_status read_index(safetensors *f, const char *index, const json_t *top, diag *d)
{
    json_t *map = json_object_get(top, "weight_map"), *v;
    if (!json_is_object(map) || !json_object_size(map))
        return diag_fail(d, AN_INPUT, NOWHERE, "%.200s: no weight_map with tensors in it", index);
    /* metadata.total_size is not compared: published models carry wrong ones */
    str_map seen = { 0 };
    const char *name;
    json_object_foreach(map, name, v)
    {
        const char *file = json_string_value(v), *path;
        if (!file)
            return diag_fail(d, AN_INPUT, NOWHERE, "%.200s: tensor \"%.80s\": its shard is not a name", index, name);
        uint32_t k;
        if (str_map_get(&seen, file, strlen(file), &k)) continue;
        if (!str_map_put(&f->mem, &seen, file, strlen(file), 0)) return diag_nomem(d);
        TRY(shard_path(f, index, file, &path, d));
        TRY(add_file(f, path, d));
    }
    json_object_foreach(map, name, v)
    {
        const safetensor *t = safetensors_find(f, name);
        const char *path;
        TRY(shard_path(f, index, json_string_value(v), &path, d));
        if (!t || strcmp(t->file, path))
            return diag_fail(d, AN_INPUT, NOWHERE,
                             "%.150s: tensor \"%.80s\" is not in %.120s, where the index says it is", index, name,
                             path);
    }
    if (json_object_size(map) == f->all.n) return AN_OK;
    for (size_t i = 0; i < f->all.n; i++)
        if (!json_object_get(map, f->all.at[i].name))
            return diag_fail(d, AN_INPUT, NOWHERE,
                             "%.150s: %.120s holds tensor \"%.80s\", which the index does not list", index,
                             f->all.at[i].file, f->all.at[i].name);
    return AN_OK;
}

static an_status add_index(safetensors *f, const char *path, diag *d)
{
    json_t *top;
    TRY(json_file(path, &top, d));
    an_status st = read_index(f, path, top, d);
    json_decref(top);
    return st;
}

/* ---- the front door ---- */

static an_status settle(an_status st, safetensors *f, safetensors **out)
{
    if (st) safetensors_close(f);
    else *out = f;
    return st;
}

an_status safetensors_open(const char *path, safetensors **out, diag *d)
{
    *out = NULL;
    safetensors *f = calloc(1, sizeof *f);
    if (!f) return diag_nomem(d);
    size_t n = strlen(path);
    bool index = n > 5 && !strcmp(path + n - 5, ".json");
    return settle(index ? add_index(f, path, d) : add_file(f, path, d), f, out);
}

an_status safetensors_view(const void *bytes, size_t n, const char *file, safetensors **out, diag *d)
{
    *out = NULL;
    safetensors *f = calloc(1, sizeof *f);
    if (!f) return diag_nomem(d);
    return settle(add_image(f, file, bytes, n, d), f, out);
}

void safetensors_close(safetensors *f)
{
    if (!f) return;
    for (size_t i = 0; i < f->maps.n; i++) file_drop(&f->maps.at[i]);
    arena_free(&f->mem);
    free(f);
}

size_t safetensors_count(const safetensors *f) { return f->all.n; }
const safetensor *safetensors_at(const safetensors *f, size_t i) { return i < f->all.n ? &f->all.at[i] : NULL; }

const safetensor *safetensors_find(const safetensors *f, const char *name)
{
    uint32_t i;
    return str_map_get(&f->by_name, name, strlen(name), &i) ? &f->all.at[i] : NULL;
}

const char *safetensors_meta(const safetensors *f, const char *key)
{
    for (size_t i = 0; i < f->metas.n; i++)
        if (!strcmp(f->metas.at[i].key, key)) return f->metas.at[i].value;
    return NULL;
}

uint64_t safetensors_meta_sum(const safetensors *f, const char *but)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < f->metas.n; i++)
        if (strcmp(f->metas.at[i].key, but)) sum += meta_hash(f->metas.at[i].key, f->metas.at[i].value);
    return sum;
}
