/* convert.c: models between file formats, as the public header has it. */
#include "api/api_int.h"
#include "base/io.h"
#include "lm/lm.h"

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), k = strlen(tail);
    return n >= k && !strcmp(s + n - k, tail);
}

/* What a name says about the file to write; a name without a known ending is a folder. */
static const char *by_name(const char *out)
{
    return ends_with(out, ".safetensors") ? "safetensors"
           : ends_with(out, ".gguf")      ? "gguf"
           : ends_with(out, ".bin")       ? "llama2c"
                                          : "hf";
}

static an_status read_options(const char *out, const an_convert_options *o, lm_convert_options *c, const char **to,
                              diag *d)
{
    static const struct {
        const char *name;
        dtype dt;
    } types[] = { { "f32", DT_F32 }, { "f16", DT_F16 }, { "bf16", DT_BF16 } };
    *to = o->to ? o->to : by_name(out);
    if (!lm_target_find(*to, &c->to))
        return diag_fail(d, AN_USAGE, NOWHERE,
                         "unknown kind of file \"%.40s\"; safetensors, hf, gguf, llama2c and npy are known", *to);
    for (size_t i = 0; o->dtype && i < COUNT(types); i++)
        if (!strcmp(types[i].name, o->dtype)) c->dt = types[i].dt;
    if (o->dtype && !c->dt)
        return diag_fail(d, AN_USAGE, NOWHERE, "unknown type \"%.40s\"; f32, f16 and bf16 are known", o->dtype);
    if (o->version < 0) return diag_fail(d, AN_USAGE, NOWHERE, "version is %d, wanted 0 or more", o->version);
    if (o->version && c->to != LM_TO_LLAMA2C)
        return diag_fail(d, AN_USAGE, NOWHERE, "%s files have no version to choose", *to);
    if (o->tokenizer && c->to != LM_TO_GGUF && c->to != LM_TO_HF)
        return diag_fail(d, AN_USAGE, NOWHERE,
                         "%s files have no vocabulary beside them: a tokenizer goes into gguf and hf alone", *to);
    c->quantize = o->quantize;
    c->version = o->version - 1;
    c->shard = o->shard_bytes;
    return AN_OK;
}

/* ---- the vocabulary that goes along ---- */

/* The one named, or one that is in the model's folder or beside its file: that one only if it is the model's by its
 * size. *lost: why one that is there does not go along. */
static an_status find_vocab(const lm_model *m, const char *named, lm_convert_options *c, tokenizer **out, diag *lost,
                            diag *d)
{
    char folder[1024];
    diag why = { 0 };
    path_info i;
    const char *path = lm_path(m);
    int64_t rows = lm_config(m)->vocab;
    *out = NULL;
    if (named) {
        TRY(lm_tokenizer_open(named, out, d));
        tok_info info;
        tok_get(*out, &info);
        c->vocab = *out;
        if (lm_vocab_fits(*out, rows)) return AN_OK;
        return diag_fail(d, AN_INPUT, NOWHERE, "%.120s: the tokenizer %.120s has %lld entries, the embedding %lld rows",
                         path, named, (long long)info.n, (long long)rows);
    }
    bool folder_out = c->to == LM_TO_HF;
    /* its own goes along as it is */
    if ((c->to != LM_TO_GGUF && !folder_out) || lm_origin_of(m) == (folder_out ? LM_FROM_HF : LM_FROM_GGUF) ||
        !path_look(path, &i))
        return AN_OK;
    bool inside = i.folder || lm_origin_of(m) == LM_FROM_GGUF;
    if (!path_folder(path, folder, sizeof folder)) return AN_OK; /* the result says that it has none */
    if (lm_tokenizer_open(inside ? path : folder, out, &why)) {
        if (tok_in(inside ? path : folder)) *lost = why;
        return why.st == AN_NOMEM ? diag_nomem(d) : AN_OK;
    }
    if (!lm_vocab_fits(*out, rows)) return AN_OK;
    c->vocab = *out;
    c->vocab_if_fits = true;
    return AN_OK;
}

an_status an_convert(const char *model, const char *out, const an_convert_options *o, an_converted *done, an_error *e)
{
    diag d = { 0 }, lost = { 0 };
    lm_model *m = NULL;
    pool *threads = NULL;
    tokenizer *vocab = NULL;
    lm_convert_options c = { 0 };
    lm_converted r = { 0 };
    an_convert_options none = { 0 };
    const char *to = NULL;
    if (!o) o = &none;
    *done = (an_converted){ 0 };
    an_status st = read_options(out, o, &c, &to, &d);
    if (!st) st = pool_make(&threads, o->threads, &d);
    c.threads = threads;
    if (!st) st = lm_open(model, &(lm_options){ .seed = o->seed, .threads = threads }, &m, &d);
    if (!st) st = find_vocab(m, o->tokenizer, &c, &vocab, &lost, &d);
    if (!st) st = lm_convert(m, out, &c, &r, &d);
    if (!st) {
        *done = (an_converted){ .tensors = r.tensors,
                                .bytes_in = r.bytes_in,
                                .bytes_out = r.bytes_out,
                                .worst = r.worst,
                                .shards = r.shards,
                                .vocabulary = r.vocabulary };
        if (lost.st)
            snprintf(done->lost, sizeof done->lost, "the vocabulary, which cannot be opened: %.150s%s%.30s", lost.msg,
                     r.lost[0] ? "; " : "", r.lost);
        else snprintf(done->lost, sizeof done->lost, "%s", r.lost);
        snprintf(done->from, sizeof done->from, "%s", lm_origin_name(lm_origin_of(m)));
        snprintf(done->family, sizeof done->family, "%s", lm_family(m));
        snprintf(done->to, sizeof done->to, "%s", to);
    }
    tok_close(vocab);
    lm_close(m);
    pool_free(threads);
    return st ? api_error(e, &d) : AN_OK;
}
