/* vocab.c: the tokenizer of a model, wherever it is: the one place where a GGUF file's vocabulary becomes one.
 * In: a path, or a model.  Out: a tokenizer from text/. */
#include "base/io.h"
#include "lm/lm.h"
#include "text/story.h"

/* ---- GGUF ---- */

static an_status bad(const char *path, diag *d, const char *key, const char *want)
{
    return diag_fail(d, AN_INPUT, NOWHERE, "%s: %s is %s", path, key, want);
}

static int64_t id_of(const gguf *g, const char *key)
{
    int64_t id;
    return gguf_int(g, key, &id) ? id : -1;
}

static int flag_of(const gguf *g, const char *key)
{
    const gguf_value *v = gguf_get(g, key);
    return v && v->type == GGUF_BOOL ? v->u != 0 : -1;
}

/* A string of the file with a NUL behind it, in mem; NULL: absent. */
static const char *text_of(const gguf *g, const char *key, arena *mem, diag *d)
{
    gguf_str s;
    if (!gguf_text(g, key, &s)) return NULL;
    const char *p = arena_strn(mem, s.at, s.n);
    if (!p) diag_nomem(d);
    return p;
}

static an_status texts_of(const gguf *g, const char *path, const char *key, arena *mem, const tok_str **out, size_t *n,
                          diag *d)
{
    const gguf_value *v = gguf_get(g, key);
    *n = 0;
    if (!v) return AN_OK;
    if (v->type != GGUF_ARRAY || (v->of != GGUF_STRING && v->n)) return bad(path, d, key, "no array of strings");
    tok_str *s = TAKE(mem, tok_str, (size_t)v->n + 1);
    if (!s) return diag_nomem(d);
    for (size_t i = 0; i < v->n; i++) s[i] = (tok_str){ v->strs[i].at, v->strs[i].n };
    *out = s;
    *n = (size_t)v->n;
    return AN_OK;
}

/* An array of numbers, as many as there are tokens. */
static an_status numbers_of(const gguf *g, const char *path, const char *key, size_t n, arena *mem, double **out,
                            diag *d)
{
    const gguf_value *v = gguf_get(g, key);
    *out = NULL;
    if (!v) return AN_OK;
    if (v->type != GGUF_ARRAY || v->of == GGUF_STRING || v->n != n)
        return diag_fail(d, AN_INPUT, NOWHERE, "%s: %s has %llu entries; %zu numbers, one for each token, are wanted",
                         path, key, (unsigned long long)v->n, n);
    double *x = TAKE(mem, double, n + 1);
    if (!x) return diag_nomem(d);
    for (size_t i = 0; i < n; i++)
        if (!gguf_item(v, i, &x[i])) return bad(path, d, key, "no array of numbers");
    *out = x;
    return AN_OK;
}

static an_status fill_vocab(const gguf *g, const char *path, arena *mem, tok_vocab *v, diag *d)
{
    double *score, *type;
    const gguf_value *map = gguf_get(g, "tokenizer.ggml.precompiled_charsmap");
    *v = (tok_vocab){ .model = text_of(g, "tokenizer.ggml.model", mem, d),
                      .pre = text_of(g, "tokenizer.ggml.pre", mem, d),
                      .bos = id_of(g, "tokenizer.ggml.bos_token_id"),
                      .eos = id_of(g, "tokenizer.ggml.eos_token_id"),
                      .unk = id_of(g, "tokenizer.ggml.unknown_token_id"),
                      .pad = id_of(g, "tokenizer.ggml.padding_token_id"),
                      .add_bos = flag_of(g, "tokenizer.ggml.add_bos_token"),
                      .add_eos = flag_of(g, "tokenizer.ggml.add_eos_token"),
                      .add_space_prefix = flag_of(g, "tokenizer.ggml.add_space_prefix"),
                      .remove_extra_whitespaces = flag_of(g, "tokenizer.ggml.remove_extra_whitespaces") == 1,
                      .chat_template = text_of(g, "tokenizer.chat_template", mem, d) };
    if (d->st) return d->st;
    if (!v->model) return bad(path, d, "tokenizer.ggml.model", "missing: the file has no vocabulary");
    TRY(texts_of(g, path, "tokenizer.ggml.tokens", mem, &v->token, &v->n, d));
    TRY(texts_of(g, path, "tokenizer.ggml.merges", mem, &v->merge, &v->n_merges, d));
    if (!v->n) return bad(path, d, "tokenizer.ggml.tokens", "missing or empty");
    TRY(numbers_of(g, path, "tokenizer.ggml.scores", v->n, mem, &score, d));
    TRY(numbers_of(g, path, "tokenizer.ggml.token_type", v->n, mem, &type, d));
    float *f = score ? TAKE(mem, float, v->n) : NULL;
    int32_t *k = type ? TAKE(mem, int32_t, v->n) : NULL;
    if ((score && !f) || (type && !k)) return diag_nomem(d);
    for (size_t i = 0; i < v->n; i++) {
        if (score) f[i] = (float)score[i];
        if (type) k[i] = type[i] >= INT32_MIN && type[i] <= INT32_MAX ? (int32_t)type[i] : -1;
    }
    v->score = f, v->type = k;
    if (map) {
        if (map->type != GGUF_ARRAY || !map->raw || (map->of != GGUF_U8 && map->of != GGUF_I8))
            return bad(path, d, "tokenizer.ggml.precompiled_charsmap", "no array of bytes");
        v->charsmap = map->raw, v->n_charsmap = (size_t)map->n;
    }
    return AN_OK;
}

static an_status open_gguf(const char *path, tokenizer **out, diag *d)
{
    gguf *g;
    arena mem = { 0 };
    tok_vocab v;
    TRY(gguf_open(path, &g, d));
    an_status st = fill_vocab(g, path, &mem, &v, d);
    if (!st) st = tok_from_vocab(path, &v, out, d);
    arena_free(&mem);
    gguf_close(g);
    return st;
}

/* What cannot be opened is left for a reader to say. */
static an_status is_gguf(const char *path, bool *is, diag *d)
{
    char head[4];
    size_t n;
    diag why = { 0 };
    *is = false;
    if (file_head(path, head, sizeof head, &n, &why)) return why.st == AN_NOMEM ? diag_nomem(d) : AN_OK;
    *is = n == sizeof head && !memcmp(head, "GGUF", 4);
    return AN_OK;
}

an_status lm_tokenizer_open(const char *path, tokenizer **out, diag *d)
{
    *out = NULL;
    if (!strcmp(path, "builtin:stories")) return story_tokenizer(0, out, d);
    bool gguf_file;
    TRY(is_gguf(path, &gguf_file, d));
    return gguf_file ? open_gguf(path, out, d) : tok_open(path, out, d);
}

/* ---- a model's own ---- */

bool lm_vocab_fits(const tokenizer *t, int64_t rows)
{
    enum { MOST_PADDING = 1024 };
    tok_info info;
    tok_get(t, &info);
    int64_t n = (int64_t)info.n;
    return n <= rows && rows - n <= MOST_PADDING && rows - n < MAX(n, 2);
}

static an_status open_beside(const char *path, tokenizer **out, diag *d)
{
    char folder[1024];
    if (!path_folder(path, folder, sizeof folder))
        return diag_fail(d, AN_INPUT, NOWHERE, "%.100s…: the path is too long", path);
    diag why = { 0 };
    if (!lm_tokenizer_open(folder, out, &why)) return AN_OK;
    return diag_fail(d, why.st, NOWHERE, "%.120s: no tokenizer was named, and none is beside it (%.160s)", path,
                     why.msg);
}

/* What is in the model is its own whatever its size, since a run may train a few rows of a long embedding; what lies
 * beside it may be any model's. */
an_status lm_tokenizer_of(const lm_model *m, tokenizer **out, diag *d)
{
    const char *path = lm_path(m);
    path_info i;
    tok_info info;
    int64_t rows = lm_config(m)->vocab;
    bool inside = lm_origin_of(m) == LM_FROM_GGUF || (path_look(path, &i) && i.folder);
    *out = NULL;
    TRY(inside ? lm_tokenizer_open(path, out, d) : open_beside(path, out, d));
    tok_get(*out, &info);
    if (inside ? (int64_t)info.n <= rows : lm_vocab_fits(*out, rows)) return AN_OK;
    tok_close(*out);
    *out = NULL;
    return diag_fail(d, AN_INPUT, NOWHERE, "%.120s: the tokenizer %s it has %u entries, the embedding %lld rows", path,
                     inside ? "in" : "beside", info.n, (long long)rows);
}
