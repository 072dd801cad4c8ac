/* text.c: the public face of text/, and the one place where a GGUF file's vocabulary becomes a tokenizer. */
#include <stdlib.h>

#include "api/api_int.h"
#include "base/io.h"
#include "base/pool.h"
#include "format/gguf.h"
#include "text/shard.h"
#include "text/story.h"
#include "text/text.h"

struct an_tokenizer {
    tokenizer *t;
    tok_encoder *e;
};

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

static an_status texts_of(const gguf *g, const char *path, const char *key, arena *mem, const tok_str **out, size_t *n, diag *d)
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
static an_status numbers_of(const gguf *g, const char *path, const char *key, size_t n, arena *mem, double **out, diag *d)
{
    const gguf_value *v = gguf_get(g, key);
    *out = NULL;
    if (!v) return AN_OK;
    if (v->type != GGUF_ARRAY || v->of == GGUF_STRING || v->n != n)
        return diag_fail(d, AN_INPUT, NOWHERE, "%s: %s has %llu entries; %zu numbers, one for each token, are wanted", path, key, (unsigned long long)v->n, n);
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
    *v = (tok_vocab){ .model = text_of(g, "tokenizer.ggml.model", mem, d), .pre = text_of(g, "tokenizer.ggml.pre", mem, d),
                      .bos = id_of(g, "tokenizer.ggml.bos_token_id"), .eos = id_of(g, "tokenizer.ggml.eos_token_id"),
                      .unk = id_of(g, "tokenizer.ggml.unknown_token_id"), .pad = id_of(g, "tokenizer.ggml.padding_token_id"),
                      .add_bos = flag_of(g, "tokenizer.ggml.add_bos_token"), .add_eos = flag_of(g, "tokenizer.ggml.add_eos_token"),
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
        if (map->type != GGUF_ARRAY || !map->raw || (map->of != GGUF_U8 && map->of != GGUF_I8)) return bad(path, d, "tokenizer.ggml.precompiled_charsmap", "no array of bytes");
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

static bool is_gguf(const char *path)
{
    char head[4] = "";
    FILE *f = fopen(path, "rb");
    if (!f) return false;
    size_t n = fread(head, 1, sizeof head, f);
    fclose(f);
    return n == sizeof head && !memcmp(head, "GGUF", 4);
}

an_status api_tokenizer_open(const char *path, tokenizer **out, diag *d)
{
    *out = NULL;
    if (!strcmp(path, "builtin:stories")) return story_tokenizer(0, out, d);
    return is_gguf(path) ? open_gguf(path, out, d) : tok_open(path, out, d);
}

/* ---- tokenizers ---- */

an_status an_tokenizer_open(an_tokenizer **out, const char *path, an_error *e)
{
    diag d = { 0 };
    an_tokenizer *t = *out = calloc(1, sizeof *t);
    if (!t) return diag_nomem(&d), api_error(e, &d);
    if (!api_tokenizer_open(path, &t->t, &d) && !tok_encoder_new(t->t, &t->e, &d)) return AN_OK;
    an_tokenizer_free(t);
    *out = NULL;
    return api_error(e, &d);
}

void an_tokenizer_free(an_tokenizer *t)
{
    if (!t) return;
    tok_encoder_free(t->e);
    tok_close(t->t);
    free(t);
}

void an_tokenizer_get(const an_tokenizer *t, an_tokenizer_info *o)
{
    tok_info i;
    tok_get(t->t, &i);
    *o = (an_tokenizer_info){ .model = i.model, .split = i.split, .n = i.n, .n_special = i.n_special, .bos = i.bos, .eos = i.eos, .unk = i.unk, .pad = i.pad,
                              .add_bos = i.add_bos, .add_eos = i.add_eos, .byte_fallback = i.byte_fallback, .chat_template = i.chat_template };
}

an_status an_encode(an_tokenizer *t, const void *text, size_t n, int flags, uint32_t **ids, size_t *n_ids, an_error *e)
{
    diag d = { 0 };
    tok_ids v = { 0 };
    *ids = NULL;
    *n_ids = 0;
    if (tok_encode(t->e, text, n, (unsigned)flags, &v, &d)) {
        tok_ids_free(&v);
        return api_error(e, &d);
    }
    if (!v.at && !(v.at = malloc(sizeof *v.at))) return diag_nomem(&d), api_error(e, &d);
    *ids = v.at;
    *n_ids = v.n;
    return AN_OK;
}

an_status an_decode(const an_tokenizer *t, const uint32_t *ids, size_t n, int flags, char **bytes, size_t *n_bytes, an_error *e)
{
    diag d = { 0 };
    strbuf b = { 0 };
    *bytes = NULL;
    *n_bytes = 0;
    sb_puts(&b, "");
    if (tok_decode(t->t, ids, n, (unsigned)flags, &b, &d)) {
        sb_free(&b);
        return api_error(e, &d);
    }
    *n_bytes = b.n;
    *bytes = api_take(&b);
    return *bytes ? AN_OK : (diag_nomem(&d), api_error(e, &d));
}

an_status an_tokenizer_train(char **json, size_t *n_json, const void *text, size_t n, uint32_t vocab, const char *split, an_error *e)
{
    diag d = { 0 };
    strbuf b = { 0 };
    *json = NULL;
    *n_json = 0;
    if (tok_train(text, n, &(tok_train_options){ .vocab = vocab, .split = split }, &b, &d)) {
        sb_free(&b);
        return api_error(e, &d);
    }
    *n_json = b.n;
    *json = api_take(&b);
    return *json ? AN_OK : (diag_nomem(&d), api_error(e, &d));
}

/* ---- data ---- */

static an_status encode_files(const tokenizer *t, const char *name, docs_rule rule, pool *p, tok_ids *ids, an_prepare_result *r, diag *d)
{
    arena mem = { 0 };
    data_files files;
    an_status st = data_find(name, &mem, &files, d);
    if (!st && files.shards) st = diag_fail(d, AN_INPUT, NOWHERE, "%s: it is token ids already; text is wanted", name);
    for (size_t i = 0; !st && i < files.n; i++) {
        file_bytes f = { 0 };
        docs_count count = { 0 };
        if ((st = file_map(files.path[i], &f, d))) break;
        st = docs_encode(t, (const char *)f.at, f.n, rule, p, ids, &count, d);
        file_drop(&f);
        r->bytes += count.bytes, r->documents += count.documents, r->undivided |= count.undivided;
    }
    arena_free(&mem);
    return st;
}

static an_status prepare(an_tokenizer *t, const an_prepare_options *o, an_prepare_result *r, tok_ids *ids, diag *d)
{
    docs_rule rule = DOCS_AUTO;
    if (o->documents && !docs_find(o->documents, &rule)) return diag_fail(d, AN_USAGE, NOWHERE, "documents \"%.40s\": auto, whole, endoftext, blank or lines", o->documents);
    if (o->n_validation && !o->validation) return diag_fail(d, AN_USAGE, NOWHERE, "%llu ids for validation, and no file for them", (unsigned long long)o->n_validation);
    pool *p = NULL;
    TRY(pool_make(&p, o->threads, d));
    an_status st = encode_files(t->t, o->data, rule, p, ids, r, d);
    pool_free(p);
    TRY(st);
    if (!ids->n) return diag_fail(d, AN_INPUT, NOWHERE, "%s: there is no token in it", o->data);
    r->tokens = ids->n;
    if (o->validation) {
        if (o->n_validation >= ids->n) return diag_fail(d, AN_INPUT, NOWHERE, "%s: %llu ids for validation of %zu", o->data, (unsigned long long)o->n_validation, ids->n);
        r->validation_tokens = o->n_validation;
        r->tokens -= o->n_validation;
        TRY(shard_write(o->validation, ids->at, (size_t)o->n_validation, d));
    }
    return shard_write(o->out, ids->at + r->validation_tokens, (size_t)r->tokens, d);
}

an_status an_data_prepare(an_tokenizer *t, const an_prepare_options *o, an_prepare_result *r, an_error *e)
{
    diag d = { 0 };
    tok_ids ids = { 0 };
    *r = (an_prepare_result){ 0 };
    if (prepare(t, o, r, &ids, &d)) { /* d says why */ }
    tok_ids_free(&ids);
    return d.st ? api_error(e, &d) : AN_OK;
}

int an_is_token_file(const char *path) { return shard_is(path); }

char *an_story(uint64_t seed, uint64_t index, an_error *e)
{
    strbuf b = { 0 };
    story_put(&b, seed, index);
    char *text = api_take(&b);
    diag d = { 0 };
    if (!text) diag_nomem(&d), api_error(e, &d);
    return text;
}
