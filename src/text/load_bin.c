/* load_bin.c: llama2.c's tokenizer.bin, and vocabularies as GGUF has them.
 *
 *   tokenizer.bin: int32 longest token, then for each token: float32 score, int32 bytes, the bytes; little-endian, to the end of the file.
 *   Ids 0 <unk>, 1 BOS, 2 EOS, 3 … 258 the bytes; a space is a space. */
#include <stdlib.h>

#include "text/text_int.h"

static uint32_t le32(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static an_status next_record(const tokenizer *t, const unsigned char *b, size_t n, size_t *at, size_t id, size_t *len,
                             diag *d)
{
    if (n - *at < 8)
        return tok_bad(d, t, "token %zu at byte %zu is cut short: %zu bytes left, 8 wanted", id, *at, n - *at);
    *len = le32(b + *at + 4);
    if (*len > n - *at - 8)
        return tok_bad(d, t, "token %zu at byte %zu says %zu bytes, %zu are left", id, *at, *len, n - *at - 8);
    *at += 8 + *len;
    return AN_OK;
}

an_status read_bin(tokenizer *t, const void *p, size_t n, diag *d)
{
    const unsigned char *b = p;
    size_t count = 0, len;
    if (n < 4) return tok_bad(d, t, "%zu bytes are no tokenizer.bin", n);
    for (size_t at = 4; at < n; count++) TRY(next_record(t, b, n, &at, count, &len, d));
    if (count < 259) return tok_bad(d, t, "%zu tokens; a tokenizer.bin has <unk>, BOS, EOS and 256 bytes first", count);
    TRY(tok_size(t, count, d));
    t->model = MODEL_SPM_BPE;
    t->byte_fallback = true;
    t->unk = 0, t->bos = 1, t->eos = 2;
    t->add_bos = true;
    t->prefix = t->strip = PREFIX_ALWAYS;
    for (size_t at = 4, id = 0; id < count; id++) {
        const unsigned char *rec = b + at;
        TRY(next_record(t, b, n, &at, id, &len, d));
        const char *s = (const char *)rec + 8;
        uint32_t bits = le32(rec);
        float score;
        memcpy(&score, &bits, 4);
        unsigned char byte;
        tok_type type = id == 0 ? TOK_UNKNOWN : id <= 2 ? TOK_CONTROL : id < 259 ? TOK_BYTE : TOK_NORMAL;
        if (type == TOK_BYTE && (!byte_token(s, len, &byte) || byte != id - 3))
            return tok_bad(d, t, "token %zu is \"%.*s\"; <0x%02X> is wanted there", id, (int)MIN(len, (size_t)20), s,
                           (unsigned)(id - 3));
        if (type == TOK_CONTROL) { /* written with a line end on both sides */
            while (len && *s == '\n') s++, len--;
            while (len && s[len - 1] == '\n') len--;
        }
        TRY(tok_is_utf8(t, id, s, len, d));
        TRY(tok_put(t, id, s, len, type, score, false, false, d));
    }
    return tok_index(t, d);
}

/* ---- GGUF ---- */

static an_status vocab_merges(tokenizer *t, const tok_vocab *v, diag *d)
{
    TRY(tok_room_pairs(t, v->n_merges, d));
    for (size_t i = 0; i < v->n_merges; i++) {
        const char *s = v->merge[i].at, *gap = v->merge[i].n > 1 ? memchr(s + 1, ' ', v->merge[i].n - 1) : NULL;
        if (!gap)
            return tok_bad(d, t, "merge %zu is \"%.*s\"; \"left right\" is wanted", i,
                           (int)MIN(v->merge[i].n, (size_t)40), s);
        size_t nl = (size_t)(gap - s);
        TRY(tok_merge(t, i, s, nl, gap + 1, v->merge[i].n - nl - 1, true, false, d));
    }
    return AN_OK;
}

/* What a token is. A file without types tells it by the ids it names, and bytes by how they are written. */
static int32_t type_at(const tok_vocab *v, size_t i, bool bpe)
{
    unsigned char b;
    if (v->type) return v->type[i];
    if ((int64_t)i == v->unk) return TOK_UNKNOWN;
    if ((int64_t)i == v->bos || (int64_t)i == v->eos || (int64_t)i == v->pad) return TOK_CONTROL;
    return !bpe && byte_token(v->token[i].at, v->token[i].n, &b) ? TOK_BYTE : TOK_NORMAL;
}

/* All bytes have a token, or none has: then what is not known is the token for that. */
static an_status take_bytes(tokenizer *t, const bool *bytes, diag *d)
{
    int n = 0;
    for (int b = 0; b < 256; b++) n += bytes[b];
    t->byte_fallback = n == 256;
    if (n == 0 || n == 256 || t->model == MODEL_BYTE_BPE) return AN_OK;
    return tok_bad(d, t, "%d of 256 bytes have a token <0xNN>; all or none are wanted", n);
}

static an_status read_vocab(tokenizer *t, const tok_vocab *v, diag *d)
{
    bool bpe = !strcmp(v->model, "gpt2"), spm = !strcmp(v->model, "llama"), unigram = !strcmp(v->model, "t5");
    if (!bpe && !spm && !unigram)
        return tok_bad(d, t, "tokenizer.ggml.model is \"%.40s\"; gpt2, llama and t5 are supported", v->model);
    if (!bpe && !v->score) return tok_bad(d, t, "a %s vocabulary without tokenizer.ggml.scores", v->model);
    TRY(tok_size(t, v->n, d));
    t->model = bpe ? MODEL_BYTE_BPE : spm ? MODEL_SPM_BPE : MODEL_UNIGRAM;
    bool bytes[256] = { false };
    int64_t unk = v->unk;
    for (size_t i = 0; i < v->n; i++) {
        int32_t type = type_at(v, i, bpe);
        unsigned char b;
        if (type < TOK_NORMAL || type > TOK_BYTE) type = type == 0 ? TOK_UNUSED : -1;
        if (type < 0) return tok_bad(d, t, "token %zu has type %d; 0 to 6 are known", i, v->type[i]);
        if (type == TOK_BYTE && byte_token(v->token[i].at, v->token[i].n, &b)) bytes[b] = true;
        if (type == TOK_UNKNOWN && unk < 0) unk = (int64_t)i;
        TRY(tok_is_utf8(t, i, v->token[i].at, v->token[i].n, d));
        TRY(tok_put(t, i, v->token[i].at, v->token[i].n, (tok_type)type, v->score ? v->score[i] : 0, bpe, !bpe, d));
    }
    TRY(take_bytes(t, bytes, d));
    t->fuse_unk = !bpe; /* as SentencePiece does, whose vocabularies both are */
    t->bos = v->bos, t->eos = v->eos, t->unk = unk, t->pad = v->pad;
    t->add_bos = v->add_bos >= 0 ? v->add_bos != 0 : spm;
    t->add_eos = v->add_eos >= 0 ? v->add_eos != 0 : unigram;
    TRY(tok_index(t, d));
    if (bpe) {
        const struct pre_row *pre = pre_find(v->pre ? v->pre : "gpt-2");
        if (!pre) return tok_bad(d, t, "tokenizer.ggml.pre is \"%.40s\", which is not supported", v->pre);
        for (size_t i = 0; i < COUNT(pre->split) && pre->split[i]; i++) {
            const char *regex = split_pattern(pre->split[i]);
            TRY(add_pattern(t, regex, strlen(regex), CUT_ISOLATED, false, d));
        }
        t->ignore_merges = pre->ignore_merges;
        if (v->add_space_prefix == 1) t->prefix = PREFIX_ALWAYS, t->prefix_unless_space = true;
        TRY(vocab_merges(t, v, d));
    } else {
        norm_step map;
        if (v->n_charsmap) {
            TRY(norm_charsmap(&t->mem, &map, v->charsmap, v->n_charsmap, d));
            TRY(add_norm(t, map, d));
        }
        if (v->remove_extra_whitespaces) TRY(add_norm(t, (norm_step){ .kind = NORM_SQUEEZE }, d));
        if (v->add_space_prefix != 0) t->prefix = t->strip = PREFIX_ALWAYS;
    }
    if (v->chat_template && !(t->chat_template = arena_str(&t->mem, v->chat_template))) return diag_nomem(d);
    return AN_OK;
}

an_status tok_from_vocab(const char *name, const tok_vocab *v, tokenizer **out, diag *d)
{
    tokenizer *t = *out = tok_new(name, d);
    if (!t) return d->st;
    an_status st = read_vocab(t, v, d);
    if (!st) st = tok_finish(t, d);
    if (st) tok_close(t), *out = NULL;
    return st;
}
