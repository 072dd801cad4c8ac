/* llama2c.c: llama2.c's model files.
 *
 *   version 0   i32 x 7: dim hidden layers heads kv_heads vocab seq; vocab is negative when the classifier is its own tensor.
 *               Then fp32: the tensors of order[0], with two rotary tables (seq x head width / 2 each, not used) before the classifier.
 *   version 1   u32 "ak42", i32 version, the seven numbers, u8 classifier shared, zeros up to 256. fp32: order[1].
 *   version 2   the same with i32 group size behind the u8. Norms in fp32; each matrix as int8, then fp32 scales.
 *
 * A tensor of every layer stands layer by layer at its place in the order. */
#include <math.h>
#include <stdlib.h>

#include "base/arena.h"
#include "format/llama2c.h"

enum { HEADER0 = 28, HEADER = 256, MAGIC = 0x616b3432, ROPE = L2C_COUNT, END = L2C_COUNT + 1 };
enum { AT_SHARED = 36, AT_GROUP = 37 };

static const int order[2][L2C_COUNT + 2] = {
    { L2C_EMBED, L2C_NORM1, L2C_WQ, L2C_WK, L2C_WV, L2C_WO, L2C_NORM2, L2C_W1, L2C_W2, L2C_W3, L2C_NORM_F, ROPE, L2C_HEAD, END },
    { L2C_NORM1, L2C_NORM2, L2C_NORM_F, L2C_EMBED, L2C_WQ, L2C_WK, L2C_WV, L2C_WO, L2C_W1, L2C_W2, L2C_W3, L2C_HEAD, END },
};

/* rows and cols by letter: D width, H hidden, K key/value width, V vocabulary, 1 */
static const struct {
    const char *name;
    char rows, cols;
    bool layers;
} tensors[L2C_COUNT] = {
    [L2C_EMBED] = { "embed", 'V', 'D', false },   [L2C_NORM1] = { "norm1", 'D', '1', true }, [L2C_WQ] = { "wq", 'D', 'D', true },
    [L2C_WK] = { "wk", 'K', 'D', true },          [L2C_WV] = { "wv", 'K', 'D', true },       [L2C_WO] = { "wo", 'D', 'D', true },
    [L2C_NORM2] = { "norm2", 'D', '1', true },    [L2C_W1] = { "w1", 'H', 'D', true },       [L2C_W2] = { "w2", 'D', 'H', true },
    [L2C_W3] = { "w3", 'H', 'D', true },          [L2C_NORM_F] = { "norm_f", 'D', '1', false }, [L2C_HEAD] = { "head", 'V', 'D', false },
};

const char *llama2c_name(llama2c_id id) { return tensors[id].name; }

static int64_t by_letter(const llama2c_shape *s, char c)
{
    switch (c) {
    case 'D': return s->dim;
    case 'H': return s->hidden;
    case 'K': return s->dim / s->heads * s->kv_heads;
    case 'V': return s->vocab;
    default: return 1;
    }
}

static bool has(const llama2c_shape *s, int id)
{
    return !(id == L2C_HEAD && s->shared) && (id != ROPE || s->version == 0);
}

/* Bytes of one tensor (one layer's), elements and scales. Sizes were bounded by check_shape, so nothing overflows. */
static size_t size_of(const llama2c_shape *s, int id, size_t *scales)
{
    *scales = 0;
    if (id == ROPE) return (size_t)(s->seq * (s->dim / s->heads / 2) * 2) * 4;
    size_t n = (size_t)(by_letter(s, tensors[id].rows) * by_letter(s, tensors[id].cols));
    if (s->version < 2 || tensors[id].cols == '1') return n * 4;
    *scales = n / (size_t)s->group * 4;
    return n;
}

/* Where a tensor of a layer begins; id END: the size of the file. */
static size_t place_of(const llama2c_shape *s, int id, int64_t layer)
{
    size_t at = s->version ? HEADER : HEADER0;
    for (const int *o = order[s->version > 0]; *o != END; o++) {
        if (!has(s, *o)) continue;
        size_t scales, n = size_of(s, *o, &scales) + scales;
        bool layers = *o != ROPE && tensors[*o].layers;
        if (*o == id) return at + n * (size_t)(layers ? layer : 0);
        at += n * (size_t)(layers ? s->layers : 1);
    }
    return at;
}

/* The header's numbers, each in a range that makes every product below 2^63. */
static an_status check_shape(const llama2c_shape *s, const char *file, diag *d)
{
    const struct {
        const char *name;
        int64_t x, hi;
    } rows[] = { { "dim", s->dim, 1 << 16 },          { "hidden_dim", s->hidden, 1 << 18 }, { "n_layers", s->layers, 1 << 10 },
                 { "n_heads", s->heads, 1 << 10 },    { "n_kv_heads", s->kv_heads, 1 << 10 }, { "vocab_size", s->vocab, 1 << 21 },
                 { "max_seq_len", s->seq, 1 << 24 } };
    for (size_t i = 0; i < COUNT(rows); i++)
        if (rows[i].x < 1 || rows[i].x > rows[i].hi)
            return diag_fail(d, AN_INPUT, NOWHERE, "%.150s: not a llama2.c file: %s is %lld, wanted 1 to %lld", file,
                             rows[i].name, (long long)rows[i].x, (long long)rows[i].hi);
    if (s->dim % s->heads || s->heads % s->kv_heads)
        return diag_fail(d, AN_INPUT, NOWHERE,
                         "%.150s: dim %lld, n_heads %lld, n_kv_heads %lld: each must divide the one before it", file,
                         (long long)s->dim, (long long)s->heads, (long long)s->kv_heads);
    if (s->version < 2) return AN_OK;
    if (s->group < 1 || s->group > 1 << 16)
        return diag_fail(d, AN_INPUT, NOWHERE, "%.150s: group size is %lld, wanted 1 to 65536", file,
                         (long long)s->group);
    for (int i = 0; i < L2C_COUNT; i++) {
        int64_t n = by_letter(s, tensors[i].rows) * by_letter(s, tensors[i].cols);
        if (tensors[i].cols != '1' && n % s->group)
            return diag_fail(d, AN_INPUT, NOWHERE,
                             "%.150s: %s has %lld elements, not a multiple of the group size %lld", file,
                             tensors[i].name, (long long)n, (long long)s->group);
    }
    return AN_OK;
}

/* ---- reading ---- */

static int64_t int_at(const unsigned char *p)
{
    return (int32_t)((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
}

an_status llama2c_view(const void *bytes, size_t n, const char *file, llama2c *out, diag *d)
{
    *out = (llama2c){ 0 };
    const unsigned char *p = bytes;
    llama2c_shape s = { 0 };
    size_t at = 0;
    if (n < HEADER0)
        return diag_fail(d, AN_INPUT, NOWHERE, "%.200s: not a llama2.c file: %zu bytes, and the header takes %d", file,
                         n, HEADER0);
    if ((uint32_t)int_at(p) == MAGIC) {
        s.version = (int)int_at(p + 4);
        if (s.version != 1 && s.version != 2)
            return diag_fail(d, AN_INPUT, NOWHERE, "%.200s: llama2.c version %d; 1 and 2 are known", file, s.version);
        if (n < HEADER)
            return diag_fail(d, AN_INPUT, NOWHERE, "%.200s: %zu bytes, and the header takes %d", file, n, HEADER);
        at = 8;
    }
    s.dim = int_at(p + at);
    s.hidden = int_at(p + at + 4);
    s.layers = int_at(p + at + 8);
    s.heads = int_at(p + at + 12);
    s.kv_heads = int_at(p + at + 16);
    s.vocab = int_at(p + at + 20);
    s.seq = int_at(p + at + 24);
    if (s.version) {
        if (p[AT_SHARED] > 1)
            return diag_fail(d, AN_INPUT, NOWHERE, "%.200s: shared classifier is %u, wanted 0 or 1", file,
                             p[AT_SHARED]);
        s.shared = p[AT_SHARED];
        if (s.version == 2) s.group = int_at(p + AT_GROUP);
    } else {
        s.shared = s.vocab > 0;
        s.vocab = s.vocab < 0 ? -s.vocab : s.vocab;
    }
    TRY(check_shape(&s, file, d));
    size_t want = place_of(&s, END, 0);
    if (want != n)
        return diag_fail(d, AN_INPUT, NOWHERE,
                         "%.150s: a llama2.c file of dim %lld, %lld layers and %lld tokens takes %zu bytes; it has %zu",
                         file, (long long)s.dim, (long long)s.layers, (long long)s.vocab, want, n);
    *out = (llama2c){ .shape = s, .at = p };
    return AN_OK;
}

an_status llama2c_open(const char *path, llama2c *out, diag *d)
{
    *out = (llama2c){ 0 };
    file_bytes map;
    TRY(file_map(path, &map, d));
    an_status st = llama2c_view(map.at, map.n, path, out, d);
    if (st) file_drop(&map);
    else out->map = map;
    return st;
}

void llama2c_close(llama2c *f)
{
    file_drop(&f->map);
    *f = (llama2c){ 0 };
}

bool llama2c_get(const llama2c *f, llama2c_id id, int64_t layer, llama2c_tensor *out)
{
    const llama2c_shape *s = &f->shape;
    if ((unsigned)id >= L2C_COUNT || !has(s, (int)id)) return false;
    if (tensors[id].layers ? layer < 0 || layer >= s->layers : layer > 0) return false;
    llama2c_tensor t = { .rows = by_letter(s, tensors[id].rows), .cols = by_letter(s, tensors[id].cols) };
    t.bytes = size_of(s, (int)id, &t.scale_bytes);
    t.data = f->at + place_of(s, (int)id, layer);
    t.scales = t.scale_bytes ? t.data + t.bytes : NULL;
    *out = t;
    return true;
}

/* ---- writing ---- */

struct llama2c_out {
    llama2c_shape s;
    file_out file;
    size_t *put[L2C_COUNT]; /* bytes written of each tensor, by layer */
    arena mem;
};

static void put_int(unsigned char *p, int64_t v)
{
    for (int i = 0; i < 4; i++) p[i] = (unsigned char)((uint64_t)v >> 8 * i);
}

static an_status put_header(llama2c_out *w, diag *d)
{
    const llama2c_shape *s = &w->s;
    unsigned char h[HEADER] = { 0 };
    const int64_t field[7] = { s->dim,   s->hidden,   s->layers,
                               s->heads, s->kv_heads, s->version == 0 && !s->shared ? -s->vocab : s->vocab,
                               s->seq };
    size_t at = 0;
    if (s->version) {
        put_int(h, MAGIC);
        put_int(h + 4, s->version);
        h[AT_SHARED] = s->shared;
        if (s->version == 2) put_int(h + AT_GROUP, s->group);
        at = 8;
    }
    for (int i = 0; i < 7; i++) put_int(h + at + 4 * (size_t)i, field[i]);
    return file_put(&w->file, 0, h, s->version ? HEADER : HEADER0, d);
}

an_status llama2c_create(const char *path, const llama2c_shape *s, llama2c_out **out, diag *d)
{
    *out = NULL;
    TRY(check_shape(s, path, d));
    llama2c_out *w = calloc(1, sizeof *w);
    if (!w) return diag_nomem(d);
    w->file.fd = -1;
    w->s = *s;
    an_status st = AN_OK;
    for (int i = 0; i < L2C_COUNT && !st; i++) {
        w->put[i] = TAKE(&w->mem, size_t, (size_t)s->layers);
        if (!w->put[i]) st = diag_nomem(d);
    }
    if (!st) st = file_begin(path, &w->file, d);
    if (!st) st = put_header(w, d);
    if (st) llama2c_abandon(w);
    else *out = w;
    return st;
}

an_status llama2c_put(llama2c_out *w, llama2c_id id, int64_t layer, const void *p, size_t n, diag *d)
{
    const llama2c_shape *s = &w->s;
    if ((unsigned)id >= L2C_COUNT || !has(s, (int)id) || layer < 0 || layer >= (tensors[id].layers ? s->layers : 1))
        return diag_fail(d, AN_BUG, NOWHERE, "llama2.c file has no tensor %d of layer %lld", (int)id, (long long)layer);
    size_t scales, all = size_of(s, (int)id, &scales) + scales, *put = &w->put[id][layer];
    if (n > all - *put)
        return diag_fail(d, AN_BUG, NOWHERE, "tensor %s is given %zu bytes past its %zu", tensors[id].name,
                         n - (all - *put), all);
    TRY(file_put(&w->file, place_of(s, (int)id, layer) + *put, p, n, d));
    *put += n;
    return AN_OK;
}

/* The tables readers skip: cos and sin of position / 10000^(2i / head width), computed in fp32 as the original did. */
static an_status put_rope(llama2c_out *w, diag *d)
{
    int64_t half = w->s.dim / w->s.heads / 2, hd = w->s.dim / w->s.heads;
    if (!half) return AN_OK;
    float *row = malloc((size_t)half * sizeof *row);
    if (!row) return diag_nomem(d);
    an_status st = AN_OK;
    uint64_t at = place_of(&w->s, ROPE, 0);
    for (int part = 0; part < 2; part++)
        for (int64_t t = 0; t < w->s.seq && !st; t++, at += (uint64_t)half * 4) {
            for (int64_t i = 0; i < half; i++) {
                float freq = 1.0f / powf(10000.0f, (float)(2 * i) / (float)hd), angle = (float)t * freq;
                row[i] = part ? sinf(angle) : cosf(angle);
            }
            st = file_put(&w->file, at, row, (size_t)half * 4, d);
        }
    free(row);
    return st;
}

an_status llama2c_finish(llama2c_out *w, diag *d)
{
    an_status st = AN_OK;
    for (int i = 0; i < L2C_COUNT && !st; i++)
        for (int64_t l = 0; l < (tensors[i].layers ? w->s.layers : 1) && has(&w->s, i) && !st; l++) {
            size_t scales, all = size_of(&w->s, i, &scales) + scales;
            if (w->put[i][l] != all)
                st = diag_fail(d, AN_BUG, NOWHERE, "tensor %s of layer %lld got %zu of its %zu bytes", tensors[i].name,
                               (long long)l, w->put[i][l], all);
        }
    if (!st && w->s.version == 0) st = put_rope(w, d);
    if (!st) st = file_finish(&w->file, d);
    llama2c_abandon(w);
    return st;
}

void llama2c_abandon(llama2c_out *w)
{
    if (!w) return;
    file_abandon(&w->file);
    arena_free(&w->mem);
    free(w);
}
