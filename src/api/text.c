/* text.c: the public face of text/. */
#include <stdlib.h>

#include "api/api_int.h"
#include "base/io.h"
#include "base/pool.h"
#include "lm/lm.h"
#include "text/shard.h"
#include "text/story.h"
#include "text/text.h"

struct an_tokenizer {
    tokenizer *t;
    tok_encoder *e;
};

/* ---- tokenizers ---- */

an_status an_tokenizer_open(an_tokenizer **out, const char *path, an_error *e)
{
    diag d = { 0 };
    an_tokenizer *t = *out = calloc(1, sizeof *t);
    if (!t) return diag_nomem(&d), api_error(e, &d);
    if (!lm_tokenizer_open(path, &t->t, &d) && !tok_encoder_new(t->t, &t->e, &d)) return AN_OK;
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

an_status an_decode(const an_tokenizer *t, const uint32_t *ids, size_t n, int flags, char **bytes, size_t *n_bytes,
                    an_error *e)
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

an_status an_tokenizer_train(char **json, size_t *n_json, const void *text, size_t n, uint32_t vocab, const char *split,
                             an_error *e)
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

static an_status encode_files(const tokenizer *t, const char *name, docs_rule rule, pool *p, tok_ids *ids,
                              an_prepare_result *r, diag *d)
{
    arena mem = { 0 };
    data_files files;
    path_info at;
    if (path_look(name, &at) && at.folder)
        return diag_fail(d, AN_INPUT, NOWHERE, "%s is a folder; text is wanted: name its files, with commas between",
                         name);
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
    if (o->documents && !docs_find(o->documents, &rule))
        return diag_fail(d, AN_USAGE, NOWHERE, "documents \"%.40s\": auto, whole, endoftext, blank or lines",
                         o->documents);
    if (o->n_validation && !o->validation)
        return diag_fail(d, AN_USAGE, NOWHERE, "%llu ids for validation, and no file for them",
                         (unsigned long long)o->n_validation);
    if (o->validation && path_same(o->out, o->validation))
        return diag_fail(d, AN_USAGE, NOWHERE,
                         "%s and %s are one file: ids for training and for validation go into two", o->out,
                         o->validation);
    pool *p = NULL;
    TRY(pool_make(&p, o->threads, d));
    an_status st = encode_files(t->t, o->data, rule, p, ids, r, d);
    pool_free(p);
    TRY(st);
    if (!ids->n) return diag_fail(d, AN_INPUT, NOWHERE, "%s: there is no token in it", o->data);
    r->tokens = ids->n;
    if (o->validation) {
        if (o->n_validation >= ids->n)
            return diag_fail(d, AN_INPUT, NOWHERE, "%s: %llu ids for validation of %zu", o->data,
                             (unsigned long long)o->n_validation, ids->n);
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
