/* load_json.c: tokenizer.json, and the pair vocab.json (encoder.json) + merges.txt (vocab.bpe).
 * The model is read here; the sections around it in load_parts.c. */
#include <math.h>
#include <stdlib.h>

#include "format/json.h"
#include "text/text_int.h"

/* A few bytes of text ("{},") cost a parser hundreds of bytes, so the text is counted before it is parsed. */
enum { MOST_BYTES = 1 << 26, MOST_GROUPS = 3 << 19, MOST_VALUES = 6 << 20 };

json_t *js_load(const tokenizer *t, const char *what, const void *p, size_t n, diag *d)
{
    const char *s = p;
    size_t groups = 0, values = 0;
    for (size_t i = 0; i < n; i++) groups += s[i] == '{' || s[i] == '[', values += s[i] == ',';
    if (n > MOST_BYTES || groups > MOST_GROUPS || values > MOST_VALUES) {
        tok_bad(d, t, "%s: %zu bytes, %zu lists and objects, %zu values; at most %d, %d and %d are taken", what, n,
                groups, values, MOST_BYTES, MOST_GROUPS, MOST_VALUES);
        return NULL;
    }
    json_error_t e;
    /* Numbers as reals: files hold integers past 2^63, and ids are exact in a double. */
    bool oom;
    json_t *j = json_parse(p, n, JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL, &e, &oom);
    if (oom) diag_nomem(d);
    if (!j) tok_bad(d, t, "%s: line %d, column %d: %.150s", what, e.line, e.column, e.text);
    return j;
}

const char *js_text(const json_t *j, size_t *n)
{
    *n = json_is_string(j) ? json_string_length(j) : 0;
    return json_is_string(j) ? json_string_value(j) : NULL;
}

/* A whole number from 0 to most, or -1. */
static int64_t whole(const json_t *j, int64_t most)
{
    double x = json_is_number(j) ? json_number_value(j) : -1;
    return x >= 0 && x <= (double)most && x == floor(x) ? (int64_t)x : -1;
}

static an_status bad_list(const tokenizer *t, const char *what, const json_scan *s, diag *d)
{
    return tok_bad(d, t, "%s: not understood at byte %zu of the file", what, s->at);
}

/* Ids of the vocabulary (which may be absent) and of the added tokens: how many there are. */
static an_status count_ids(const tokenizer *t, const json_scan *vocab, const json_t *added, size_t *n_out, diag *d)
{
    json_t *v;
    size_t n = 0, i;
    if (vocab) {
        json_scan s = *vocab;
        strbuf hold = { 0 };
        tok_str text;
        double id;
        while (!d->st && next_token(&s, &hold, &text, &id)) {
            if (id < 0 || id >= MAX_VOCAB)
                tok_bad(d, t, "the id of \"%.*s\" is no whole number from 0 to %d", (int)MIN(text.n, (size_t)40),
                        text.at, MAX_VOCAB - 1);
            else n = MAX(n, (size_t)id + 1);
        }
        if (hold.oom) diag_nomem(d);
        sb_free(&hold);
        if (d->st) return d->st;
        if (s.bad) return bad_list(t, "model.vocab", &s, d);
    }
    json_array_foreach(added, i, v) {
        int64_t id = whole(json_object_get(v, "id"), MAX_VOCAB - 1);
        size_t len;
        if (id < 0 || !js_text(json_object_get(v, "content"), &len))
            return tok_bad(d, t, "added_tokens[%zu] wants an id from 0 to %d and a content", i, MAX_VOCAB - 1);
        n = MAX(n, (size_t)id + 1);
    }
    *n_out = n;
    return AN_OK;
}

static an_status put_vocab(tokenizer *t, json_scan s, bool byte_level, bool marks, bool bytes, diag *d)
{
    strbuf hold = { 0 };
    tok_str text;
    double x;
    while (!d->st && next_token(&s, &hold, &text, &x)) { /* count_ids has been through it */
        size_t id = (size_t)x;
        unsigned char b;
        if (t->tok[id].type != TOK_UNUSED)
            tok_bad(d, t, "\"%.*s\" and another token have the id %zu", (int)MIN(text.n, (size_t)40), text.at, id);
        else if (tok_put(t, id, text.at, text.n, bytes && byte_token(text.at, text.n, &b) ? TOK_BYTE : TOK_NORMAL, 0,
                         byte_level, marks, d))
            break;
    }
    if (hold.oom) diag_nomem(d);
    sb_free(&hold);
    return d->st;
}

static an_status put_added(tokenizer *t, const json_t *added, diag *d)
{
    size_t i, n;
    json_t *v;
    if (!(t->flags = TAKE(&t->mem, added_flags, t->n))) return diag_nomem(d);
    json_array_foreach(added, i, v) {
        size_t id = (size_t)json_number_value(json_object_get(v, "id"));
        const char *s = js_text(json_object_get(v, "content"), &n);
        float score = t->tok[id].score;
        TRY(tok_put(t, id, s, n, json_is_true(json_object_get(v, "special")) ? TOK_CONTROL : TOK_USER, score, false,
                    false, d));
        added_flags f = { json_is_true(json_object_get(v, "lstrip")), json_is_true(json_object_get(v, "rstrip")),
                          json_is_true(json_object_get(v, "single_word")) };
        t->flags[id] = f;
        t->any_flags |= f.lstrip || f.rstrip || f.single_word;
    }
    return AN_OK;
}

static an_status put_merges(tokenizer *t, json_scan s, bool byte_level, bool marks, diag *d)
{
    strbuf hold[2] = { { 0 }, { 0 } };
    tok_str l, r;
    size_t n = 0;
    json_scan count = s;
    while (next_merge(&count, hold, &l, &r)) n++;
    if (hold[0].oom || hold[1].oom) diag_nomem(d);
    if (count.bad) bad_list(t, "model.merges", &count, d);
    if (!d->st && tok_room_pairs(t, n, d)) { /* d says why */ }
    for (size_t i = 0; !d->st && next_merge(&s, hold, &l, &r); i++) {
        if (!r.at) tok_bad(d, t, "model.merges[%zu] is neither \"left right\" nor [left, right]", i);
        else if (tok_merge(t, i, l.at, l.n, r.at, r.n, byte_level, marks, d)) break;
    }
    if (hold[0].oom || hold[1].oom) diag_nomem(d);
    sb_free(&hold[0]);
    sb_free(&hold[1]);
    return d->st;
}

/* A token named by a string; NO_ID for null, AN_INPUT when it is not there. */
static an_status named(const tokenizer *t, const json_t *j, const char *what, int64_t *id, diag *d)
{
    size_t n;
    const char *s = js_text(j, &n);
    if (!s) return AN_OK;
    if ((*id = tok_find(t, s, n)) < 0)
        return tok_bad(d, t, "%s is \"%.40s\", which the vocabulary does not hold", what, s);
    return AN_OK;
}

static an_status read_bpe(tokenizer *t, const json_t *root, const json_t *model, const json_scan *vocab,
                          const json_scan *merges, const json_style *s, diag *d)
{
    const json_t *added = json_object_get(root, "added_tokens"), *dropout = json_object_get(model, "dropout");
    static const char *const affixes[] = { "continuing_subword_prefix", "end_of_word_suffix" };
    for (size_t i = 0; i < COUNT(affixes); i++)
        if (json_string_length(json_object_get(model, affixes[i])))
            return tok_bad(d, t, "model.%s is not supported", affixes[i]);
    if (json_is_number(dropout) && json_number_value(dropout) > 0)
        return tok_bad(d, t, "model.dropout is not supported");
    if (!vocab->p) return tok_bad(d, t, "model.vocab is no object, or model.merges no list");
    size_t n = 0;
    bool bytes = json_is_true(json_object_get(model, "byte_fallback"));
    TRY(count_ids(t, vocab, added, &n, d));
    TRY(tok_size(t, n, d));
    t->model = s->byte_level ? MODEL_BYTE_BPE : MODEL_CHAR_BPE;
    t->byte_fallback = bytes;
    t->fuse_unk = json_is_true(json_object_get(model, "fuse_unk"));
    t->ignore_merges = json_is_true(json_object_get(model, "ignore_merges"));
    TRY(put_vocab(t, *vocab, s->byte_level, s->marks, bytes, d));
    TRY(tok_index(t, d)); /* before the added tokens: a merge may make one */
    TRY(put_merges(t, *merges, s->byte_level, s->marks, d));
    TRY(put_added(t, added, d));
    return named(t, json_object_get(model, "unk_token"), "model.unk_token", &t->unk, d);
}

static an_status read_unigram(tokenizer *t, const json_t *root, const json_t *model, const json_style *s, diag *d)
{
    const json_t *vocab = json_object_get(model, "vocab"), *added = json_object_get(root, "added_tokens");
    json_t *v;
    size_t i, n = 0, len;
    if (!json_is_array(vocab)) return tok_bad(d, t, "model.vocab of a Unigram model is no list");
    if (s->byte_level) return tok_bad(d, t, "a Unigram model with ByteLevel is not supported");
    TRY(count_ids(t, NULL, added, &n, d));
    TRY(tok_size(t, MAX(n, json_array_size(vocab)), d));
    t->model = MODEL_UNIGRAM;
    t->byte_fallback = json_is_true(json_object_get(model, "byte_fallback"));
    t->fuse_unk = true;
    t->unk = whole(json_object_get(model, "unk_id"), (int64_t)json_array_size(vocab) - 1);
    json_array_foreach(vocab, i, v) {
        const char *piece = js_text(json_array_get(v, 0), &len);
        const json_t *score = json_array_get(v, 1);
        unsigned char b;
        if (!piece || !json_is_number(score)) return tok_bad(d, t, "model.vocab[%zu] is no [piece, score]", i);
        tok_type type = (int64_t)i == t->unk                             ? TOK_UNKNOWN
                        : t->byte_fallback && byte_token(piece, len, &b) ? TOK_BYTE
                                                                         : TOK_NORMAL;
        TRY(tok_put(t, i, piece, len, type, (float)json_number_value(score), false, s->marks, d));
    }
    TRY(put_added(t, added, d));
    return tok_index(t, d);
}

/* What the decoder replaces, done once to every token. */
static an_status replace_out(tokenizer *t, const json_style *s, diag *d)
{
    for (size_t k = 0; k < s->n_replaced; k++) {
        norm_step step = { .kind = NORM_REPLACE };
        step.from.at = js_text(json_object_get(json_object_get(s->replaced[k], "pattern"), "String"), &step.from.n);
        step.to.at = js_text(json_object_get(s->replaced[k], "content"), &step.to.n);
        strbuf b = { 0 };
        for (uint32_t i = 0; i < t->n && !b.oom; i++) {
            token *x = &t->tok[i];
            if (x->type != TOK_NORMAL || !x->out.n) continue;
            if (norm_run(&step, NULL, (const unsigned char *)x->out.at, x->out.n, &b, d)) break;
            if (b.n == x->out.n && !memcmp(b.at, x->out.at, b.n)) continue;
            char *copy = arena_strn(&t->mem, b.at, b.n);
            if (!copy) b.oom = true;
            else x->out = (tok_str){ copy, b.n };
        }
        bool oom = b.oom;
        sb_free(&b);
        if (oom) return diag_nomem(d);
    }
    return d->st;
}

static an_status read_root(tokenizer *t, const json_t *root, const json_scan *vocab, const json_scan *merges, diag *d)
{
    const json_t *model = json_object_get(root, "model");
    const char *type = json_string_value(json_object_get(model, "type"));
    json_style s = { 0 };
    if (!json_is_object(model)) return tok_bad(d, t, "no tokenizer.json: it has no model");
    if (!type) type = json_object_get(model, "merges") ? "BPE" : "(none)"; /* old files do not say */
    TRY(parts_style(t, root, &s, d));
    if (!strcmp(type, "BPE")) TRY(read_bpe(t, root, model, vocab, merges, &s, d));
    else if (!strcmp(type, "Unigram")) TRY(read_unigram(t, root, model, &s, d));
    else return tok_bad(d, t, "model type \"%.40s\" is not supported; BPE and Unigram are", type);
    TRY(parts_read(t, root, &s, d));
    TRY(replace_out(t, &s, d));
    return parts_post(t, root, d);
}

an_status read_json(tokenizer *t, const void *p, size_t n, diag *d)
{
    json_scan vocab, merges;
    strbuf rest = { 0 };
    bool lifted = lift_lists(p, n, &vocab, &merges, &rest);
    json_t *root =
        rest.oom ? (diag_nomem(d), NULL) : js_load(t, "tokenizer.json", lifted ? rest.at : p, lifted ? rest.n : n, d);
    an_status st = root ? read_root(t, root, &vocab, &merges, d) : d->st;
    json_decref(root);
    sb_free(&rest);
    return st;
}

/* ---- the pair ---- */

static an_status text_merges(tokenizer *t, const char *p, size_t n, diag *d)
{
    size_t lines = 0, rank = 0;
    for (size_t i = 0; i < n; i++) lines += p[i] == '\n';
    TRY(tok_room_pairs(t, lines + 1, d));
    for (size_t i = 0, end; i < n; i = end + 1) {
        const char *nl = memchr(p + i, '\n', n - i);
        end = nl ? (size_t)(nl - p) : n;
        size_t len = end - i;
        if (len && p[i + len - 1] == '\r') len--;
        if (!len || (!rank && len >= 8 && !memcmp(p + i, "#version", 8))) continue;
        const char *gap = len > 1 ? memchr(p + i + 1, ' ', len - 1) : NULL;
        if (!gap)
            return tok_bad(d, t, "merge %zu is \"%.*s\"; \"left right\" is wanted", rank, (int)MIN(len, (size_t)40),
                           p + i);
        size_t left = (size_t)(gap - p) - i;
        TRY(tok_merge(t, rank++, p + i, left, gap + 1, len - left - 1, true, false, d));
    }
    return AN_OK;
}

an_status read_pair(tokenizer *t, const void *vocab, size_t n_vocab, const void *merges, size_t n_merges, diag *d)
{
    size_t n = 0;
    static const char *const special[] = { "<|endoftext|>", "<unk>", "<s>", "</s>", "<pad>" };
    split_step gpt2;
    const json_scan s = { .p = vocab, .n = n_vocab };
    TRY(count_ids(t, &s, NULL, &n, d));
    TRY(tok_size(t, n, d));
    t->model = MODEL_BYTE_BPE;
    TRY(put_vocab(t, s, true, false, false, d));
    TRY(tok_index(t, d));
    TRY(text_merges(t, merges, n_merges, d));
    for (size_t i = 0; i < COUNT(special); i++) {
        int32_t id = piece_id(t, (const unsigned char *)special[i], strlen(special[i]));
        if (id < 0) continue;
        t->tok[id].type = TOK_CONTROL;
        if (i == 1) t->unk = id;
    }
    return split_named("gpt2", &gpt2) ? add_split(t, gpt2, d) : AN_BUG;
}
