/* convert_vocab.c: the vocabulary that goes along with a model. In: a tokenizer, or the GGUF file the model came
 * from.  Out: the tokenizer.* values of a GGUF file, so that it needs no other beside it, or the files of a folder. */
#include <stdarg.h>

#include "base/plain.h"
#include "lm/convert_int.h"
#include "lm/generate.h"

void conversion_loses(conversion *v, const char *fmt, ...)
{
    size_t n = strlen(v->done.lost);
    va_list ap;
    if (n && n + 3 < sizeof v->done.lost) memcpy(v->done.lost + n, "; ", 3), n += 2;
    va_start(ap, fmt);
    plain_vprintf(v->done.lost + n, sizeof v->done.lost - n, fmt, ap);
    va_end(ap);
}

void conversion_loses_sampling(conversion *v, const char *kind)
{
    const lm_sampling s = lm_suggested(&v->m->gen);
    if (s.temperature != 0 || (s.repetition != 0 && s.repetition != 1))
        conversion_loses(v, "%s file cannot say how the model asks to be sampled (do_sample, temperature and the like)",
                         kind);
}

static an_status put_id(gguf_out *w, const char *key, int64_t id, diag *d)
{
    return id >= 0 ? gguf_put_u32(w, key, (uint32_t)id, d) : AN_OK;
}

/* Ids that end a text have three names there. */
static an_status put_ends(conversion *v, gguf_out *w, int64_t eos, diag *d)
{
    static const char *const keys[] = { "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                        "tokenizer.ggml.eom_token_id" };
    const lm_generation *g = &v->m->gen;
    if (!g->n_eos) return put_id(w, keys[0], eos, d);
    for (int i = 0; i < g->n_eos && i < (int)COUNT(keys); i++) TRY(put_id(w, keys[i], g->eos[i], d));
    if (g->n_eos > (int)COUNT(keys))
        conversion_loses(v, "of %d tokens that end a text GGUF can name %zu", g->n_eos, COUNT(keys));
    return AN_OK;
}

/* Files of folders have one behind the end of the vocabulary; a GGUF file names none then. */
static an_status put_pad(conversion *v, gguf_out *w, int64_t id, size_t n, diag *d)
{
    if (id < (int64_t)n) return put_id(w, "tokenizer.ggml.padding_token_id", id, d);
    conversion_loses(v, "the id of padding, %lld, which is behind the end of the vocabulary", (long long)id);
    return AN_OK;
}

static an_status put_text(gguf_out *w, const char *key, const char *s, diag *d)
{
    return s ? gguf_put_text(w, key, s, strlen(s), d) : AN_OK;
}

static an_status put_flag(gguf_out *w, const char *key, int x, diag *d)
{
    return x >= 0 ? gguf_put_bool(w, key, x != 0, d) : AN_OK;
}

static an_status put_list(gguf_out *w, const char *key, const tok_str *s, size_t n, arena *mem, diag *d)
{
    gguf_str *list = TAKE(mem, gguf_str, n + 1);
    if (!list) return diag_nomem(d);
    for (size_t i = 0; i < n; i++) list[i] = (gguf_str){ s[i].at, s[i].n };
    return gguf_put_texts(w, key, list, n, d);
}

static an_status put_vocab(conversion *v, gguf_out *w, const tok_vocab *t, arena *mem, diag *d)
{
    const lm_generation *g = &v->m->gen;
    TRY(put_text(w, "tokenizer.ggml.model", t->model, d));
    TRY(put_text(w, "tokenizer.ggml.pre", t->pre, d));
    TRY(put_list(w, "tokenizer.ggml.tokens", t->token, t->n, mem, d));
    if (t->score) TRY(gguf_put_array(w, "tokenizer.ggml.scores", GGUF_F32, t->score, t->n, d));
    if (t->type) TRY(gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, t->type, t->n, d));
    if (t->n_merges) TRY(put_list(w, "tokenizer.ggml.merges", t->merge, t->n_merges, mem, d));
    TRY(put_id(w, "tokenizer.ggml.bos_token_id", g->bos >= 0 ? g->bos : t->bos, d));
    TRY(put_ends(v, w, t->eos, d));
    TRY(put_id(w, "tokenizer.ggml.unknown_token_id", t->unk, d));
    TRY(put_pad(v, w, g->pad >= 0 ? g->pad : t->pad, t->n, d));
    TRY(put_flag(w, "tokenizer.ggml.add_bos_token", t->add_bos, d));
    TRY(put_flag(w, "tokenizer.ggml.add_eos_token", t->add_eos, d));
    TRY(put_flag(w, "tokenizer.ggml.add_space_prefix", t->add_space_prefix, d));
    if (t->remove_extra_whitespaces) TRY(gguf_put_bool(w, "tokenizer.ggml.remove_extra_whitespaces", true, d));
    if (t->n_charsmap)
        TRY(gguf_put_array(w, "tokenizer.ggml.precompiled_charsmap", GGUF_U8, t->charsmap, t->n_charsmap, d));
    return put_text(w, "tokenizer.chat_template", t->chat_template, d);
}

/* As they are. */
static an_status copy_vocab(conversion *v, gguf_out *w, diag *d)
{
    const gguf *from = v->m->gg;
    for (size_t i = 0; i < gguf_value_count(from); i++) {
        const gguf_value *x = gguf_value_at(from, i);
        if (strncmp(x->key, "tokenizer.", 10)) continue;
        TRY(gguf_put_value(w, x, d));
        if (!strcmp(x->key, "tokenizer.ggml.tokens")) v->done.vocabulary = true;
    }
    return AN_OK;
}

static an_status ids_alone(conversion *v, gguf_out *w, diag *d)
{
    TRY(put_id(w, "tokenizer.ggml.bos_token_id", v->m->gen.bos, d));
    return put_ends(v, w, -1, d);
}

/* The tokenizer as such a vocabulary. `there` false: it cannot be one and need not be; done.lost says why. */
static an_status vocab_of(conversion *v, size_t rows, arena *mem, tok_vocab *t, bool *there, diag *d)
{
    const char *lost = "";
    diag why = { 0 };
    an_status st = tok_to_vocab(v->o.vocab, rows, mem, t, &lost, &why);
    if (!st && t->n > (uint64_t)v->m->c.vocab)
        st = diag_fail(&why, AN_INPUT, NOWHERE, "%.150s: the tokenizer has %zu entries, the embedding %lld rows",
                       v->m->path, t->n, (long long)v->m->c.vocab);
    *there = !st;
    if (!st && *lost) conversion_loses(v, "with the vocabulary that goes along %s", lost);
    if (st != AN_INPUT || !v->o.vocab_if_fits) return st ? diag_fail(d, st, NOWHERE, "%s", why.msg) : AN_OK;
    conversion_loses(v, "no vocabulary goes along: %.160s", why.msg);
    return AN_OK;
}

an_status convert_vocab(conversion *v, gguf_out *w, diag *d)
{
    if (!v->o.vocab) return v->m->gg ? copy_vocab(v, w, d) : ids_alone(v, w, d);
    arena mem = { 0 };
    tok_vocab t;
    bool there;
    an_status st = vocab_of(v, (size_t)v->m->c.vocab, &mem, &t, &there, d);
    if (!st) st = there ? put_vocab(v, w, &t, &mem, d) : ids_alone(v, w, d);
    v->done.vocabulary = !st && there;
    arena_free(&mem);
    return st;
}

an_status convert_vocab_files(conversion *v, diag *d)
{
    arena mem = { 0 };
    strbuf file = { 0 }, config = { 0 };
    tok_vocab t;
    bool there;
    an_status st = vocab_of(v, 0, &mem, &t, &there, d);
    if (!st && there) {
        const char *name = tok_vocab_file(&t, &file);
        tok_vocab_config(&t, &config);
        st = file.oom || config.oom ? diag_nomem(d) : write_in(v->out, name, file.at, file.n, d);
        if (!st) st = write_in(v->out, "tokenizer_config.json", config.at, config.n, d);
        v->done.vocabulary = !st;
    }
    sb_free(&file);
    sb_free(&config);
    arena_free(&mem);
    return st;
}
