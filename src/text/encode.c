/* encode.c: a text to ids: special tokens cut out, stretches between normalised, cut, and each piece merged or found
 * in the cache. */
#include <stdlib.h>

#include "text/text_int.h"

/* Pieces of up to 16 bytes that gave up to 5 ids, two places for each hash. */
enum { KEY_BYTES = 16, CACHED_IDS = 5, CACHE = 1 << 15 };
typedef struct {
    uint64_t key[2];
    uint32_t id[CACHED_IDS];
    uint8_t n, n_ids; /* n 0: empty */
} cached;

struct tok_encoder {
    const tokenizer *t;
    split_scratch split;
    merge_scratch merge;
    strbuf text[2]; /* normalised text, back and forth */
    cached *cache;
    tok_ids *out;
    tok_cuts *cuts; /* tok_cut: ends of pieces are wanted, not ids */
    const unsigned char *base;
};

void tok_ids_free(tok_ids *v)
{
    free(v->at);
    *v = (tok_ids){ 0 };
}

void tok_cuts_free(tok_cuts *v)
{
    free(v->at);
    *v = (tok_cuts){ 0 };
}

static bool room_ids(tok_ids *v, size_t more)
{
    if (v->cap - v->n >= more) return true;
    size_t cap = MAX(v->cap * 2, v->n + MAX(more, (size_t)64));
    uint32_t *p = cap < SIZE_MAX / sizeof *p ? realloc(v->at, cap * sizeof *p) : NULL;
    if (!p) return false;
    v->at = p;
    v->cap = cap;
    return true;
}

bool tok_ids_push(tok_ids *v, uint32_t id)
{
    if (!room_ids(v, 1)) return false;
    v->at[v->n++] = id;
    return true;
}

an_status tok_encoder_new(const tokenizer *t, tok_encoder **out, diag *d)
{
    tok_encoder *e = *out = calloc(1, sizeof *e);
    if (!e) return diag_nomem(d);
    e->t = t;
    e->cache = calloc(CACHE, sizeof *e->cache);
    an_status st = e->cache ? split_scratch_init(&e->split, d) : diag_nomem(d);
    if (!st) return AN_OK;
    tok_encoder_free(e);
    *out = NULL;
    return st;
}

void tok_encoder_free(tok_encoder *e)
{
    if (!e) return;
    split_scratch_free(&e->split);
    merge_free(&e->merge);
    sb_free(&e->text[0]);
    sb_free(&e->text[1]);
    free(e->cache);
    free(e);
}

/* ---- pieces ---- */

static an_status piece_uncached(tok_encoder *e, const unsigned char *s, size_t n, diag *d)
{
    const tokenizer *t = e->t;
    if (t->ignore_merges) {
        int32_t id = piece_id(t, s, n);
        if (id >= 0) return tok_ids_push(e->out, (uint32_t)id) ? AN_OK : diag_nomem(d);
    }
    return t->model == MODEL_UNIGRAM ? unigram_piece(t, &e->merge, s, n, e->out, d)
                                     : merge_piece(t, &e->merge, s, n, e->out, d);
}

static an_status put_piece(void *user, const unsigned char *s, size_t n, diag *d)
{
    tok_encoder *e = user;
    if (e->cuts) {
        tok_cuts *v = e->cuts;
        if (v->n == v->cap) {
            size_t cap = MAX(v->cap * 2, (size_t)64), *p = realloc(v->at, cap * sizeof *p);
            if (!p) return diag_nomem(d);
            v->at = p;
            v->cap = cap;
        }
        v->at[v->n++] = (size_t)(s - e->base) + n;
        return AN_OK;
    }
    if (n > KEY_BYTES) return piece_uncached(e, s, n, d);
    uint64_t key[2] = { 0, 0 };
    memcpy(key, s, n);
    uint64_t h = (key[0] ^ (key[1] * 0x9fb21c651e98df25u) ^ n) * 0x9e3779b97f4a7c15u;
    cached *pair = &e->cache[(h >> 40) & (CACHE - 2)];
    for (int way = 0; way < 2; way++) {
        const cached *c = &pair[way];
        if (c->key[0] != key[0] || c->key[1] != key[1] || c->n != n) continue;
        if (!room_ids(e->out, CACHED_IDS)) return diag_nomem(d);
        memcpy(e->out->at + e->out->n, c->id, sizeof c->id); /* all of them: a fixed size is two moves */
        e->out->n += c->n_ids;
        return AN_OK;
    }
    size_t from = e->out->n;
    TRY(piece_uncached(e, s, n, d));
    size_t got = e->out->n - from;
    if (got > CACHED_IDS) return AN_OK;
    pair[1] = pair[0]; /* the older of the two goes */
    pair[0] = (cached){ .key = { key[0], key[1] }, .n = (uint8_t)n, .n_ids = (uint8_t)got };
    memcpy(pair[0].id, e->out->at + from, got * sizeof *e->out->at);
    return AN_OK;
}

/* A piece may be cut between characters that no token holds side by side: then each part is merged on its own,
 * mostly a word, and found in the cache. Only a run of unknown characters may be cut in two, and is put together
 * again. */
static an_status put_parts(void *user, const unsigned char *s, size_t n, diag *d)
{
    tok_encoder *e = user;
    const tokenizer *t = e->t;
    bool fuse = t->fuse_unk && !t->byte_fallback;
    size_t from = 0;
    for (size_t i = 1; i <= n; i++) {
        if (i < n && (t->joins[s[i - 1]][s[i]] || (s[i] & 0xc0) == 0x80)) continue;
        size_t had = e->out->n;
        TRY(put_piece(e, s + from, i - from, d));
        if (fuse && from && e->out->n > had && e->out->at[had] == (uint32_t)t->unk &&
            e->out->at[had - 1] == (uint32_t)t->unk) {
            memmove(e->out->at + had, e->out->at + had + 1, (e->out->n - had - 1) * sizeof *e->out->at);
            e->out->n--;
        }
        from = i;
    }
    return AN_OK;
}

/* ---- stretches between special tokens ---- */

/* start: of the text, or behind a token that begins it anew. */
static an_status put_stretch(tok_encoder *e, const unsigned char *s, size_t n, bool start, bool first, diag *d)
{
    const tokenizer *t = e->t;
    int which = 0;
    for (size_t i = 0; i < t->n_norm; i++, which = !which) {
        TRY(norm_run(&t->norm[i], &e->split, s, n, &e->text[which], d));
        s = (const unsigned char *)(e->text[which].at ? e->text[which].at : ""), n = e->text[which].n;
    }
    if (!n) return AN_OK;
    if (((t->prefix == PREFIX_ALWAYS && start) || (t->prefix == PREFIX_FIRST && first)) &&
        !(t->prefix_unless_space && s[0] == ' ')) {
        strbuf *b = &e->text[which];
        b->n = 0;
        sb_putc(b, ' ');
        sb_putn(b, (const char *)s, n);
        if (b->oom) return diag_nomem(d);
        s = (const unsigned char *)b->at, n = b->n;
    }
    e->base = s;
    return split_text(&e->split, t->split, t->n_split, s, n, t->joins && !e->cuts ? put_parts : put_piece, e, d);
}

/* ---- special tokens ---- */

static bool is_word_at(tok_encoder *e, const unsigned char *s, size_t n, size_t i)
{
    uint32_t cp;
    return i < n && utf8_read(s + i, n - i, &cp) && class_of(&e->split.cls, cp) & IS_WORD;
}

static bool is_word_before(tok_encoder *e, const unsigned char *s, size_t i)
{
    size_t at = i;
    while (at && i - at < 4 && (s[at - 1] & 0xc0) == 0x80) at--;
    return at && is_word_at(e, s, i, at - 1);
}

static bool is_blank(unsigned char c) { return c == ' ' || (c >= 9 && c <= 13); }

static an_status encode_text(tok_encoder *e, const unsigned char *s, size_t n, const trie *specials, diag *d)
{
    const tokenizer *t = e->t;
    size_t from = 0;
    bool first = true, start = true, none = specials->n_nodes <= 1;
    for (size_t i = 0; i < n && !none;) {
        while (i < n && !specials->starts[s[i]]) i++;
        if (i == n) break;
        size_t len = 0;
        int32_t id = trie_longest(specials, s + i, n - i, &len);
        added_flags f = id >= 0 && t->any_flags ? t->flags[id] : (added_flags){ 0 };
        if (id < 0 || (f.single_word && (is_word_before(e, s, i) || is_word_at(e, s, n, i + len)))) {
            i++;
            continue;
        }
        size_t end = i, next = i + len;
        while (f.lstrip && end > from && is_blank(s[end - 1])) end--;
        while (f.rstrip && next < n && is_blank(s[next])) next++;
        bool user = t->tok[id].type == TOK_USER && !t->prefix_after_user;
        if (end > from) TRY(put_stretch(e, s + from, end - from, start, first, d));
        else if (start && user && t->prefix != PREFIX_NONE)
            TRY(put_stretch(e, (const unsigned char *)" ", 1, false, false, d)); /* the space stands alone */
        if (!e->cuts && !tok_ids_push(e->out, (uint32_t)id)) return diag_nomem(d);
        first = false;
        start = !user;
        from = i = next;
    }
    return from < n ? put_stretch(e, s + from, n - from, start, first, d) : AN_OK;
}

an_status tok_encode(tok_encoder *e, const char *text, size_t n, unsigned flags, tok_ids *out, diag *d)
{
    const tokenizer *t = e->t;
    e->out = out;
    e->cuts = NULL;
    if (n > INT32_MAX)
        return diag_fail(d, AN_INPUT, NOWHERE, "a text of %zu bytes; at most 2^31-1 are taken at once", n);
    size_t good = flags & TOK_UTF8 ? utf8_span((const unsigned char *)text, n) : n;
    if (good < n)
        return diag_fail(d, AN_INPUT, NOWHERE,
                         "the text is not UTF-8: byte %zu is 0x%02x, where a character should begin", good,
                         (unsigned char)text[good]);
    if (flags & TOK_BOS && t->bos < 0) return tok_bad(d, t, "BOS was asked for, and this vocabulary has none");
    if (flags & TOK_EOS && t->eos < 0) return tok_bad(d, t, "EOS was asked for, and this vocabulary has none");
    if (flags & TOK_BOS && !tok_ids_push(out, (uint32_t)t->bos)) return diag_nomem(d);
    TRY(encode_text(e, (const unsigned char *)text, n, &t->added[!!(flags & TOK_SPECIAL)], d));
    if (flags & TOK_EOS && !tok_ids_push(out, (uint32_t)t->eos)) return diag_nomem(d);
    return AN_OK;
}

an_status tok_cut(tok_encoder *e, const char *text, size_t n, tok_cuts *out, diag *d)
{
    e->cuts = out;
    static const trie none = { 0 };
    an_status st = encode_text(e, (const unsigned char *)text, n, &none, d);
    e->cuts = NULL;
    return st;
}
