/* vocab.c: the tables of a tokenizer: pieces by text, merges by pair, and what is derived from them once all tokens
 * are known. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

#include "base/plain.h"
#include "text/text_int.h"

tokenizer *tok_new(const char *name, diag *d)
{
    tokenizer *t = calloc(1, sizeof *t);
    if (!t) return diag_nomem(d), NULL;
    t->bos = t->eos = t->unk = t->pad = NO_ID;
    for (int b = 0; b < 256; b++) t->byte_id[b] = NO_ID;
    if (!(t->name = arena_str(&t->mem, name))) {
        tok_close(t);
        return diag_nomem(d), NULL;
    }
    return t;
}

void tok_close(tokenizer *t)
{
    if (!t) return;
    for (size_t i = 0; i < t->n_split; i++) split_free_code(t->split[i].code);
    for (size_t i = 0; i < t->n_norm; i++) split_free_code(t->norm[i].code);
    free(t->pairs);
    arena_free(&t->mem);
    free(t);
}

an_status tok_bad(diag *d, const tokenizer *t, const char *fmt, ...)
{
    char msg[300];
    va_list ap;
    va_start(ap, fmt);
    plain_vprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    return diag_fail(d, AN_INPUT, NOWHERE, "%.90s: %s", t->name, msg);
}

an_status tok_size(tokenizer *t, size_t n, diag *d)
{
    if (!n || n > MAX_VOCAB) return tok_bad(d, t, "a vocabulary of %zu tokens; 1 to %d are taken", n, MAX_VOCAB);
    t->tok = TAKE(&t->mem, token, n);
    if (!t->tok) return diag_nomem(d);
    t->n = (uint32_t)n;
    for (size_t i = 0; i < n; i++) t->tok[i].type = TOK_UNUSED, t->tok[i].piece.at = t->tok[i].out.at = "";
    return AN_OK;
}

bool byte_token(const char *s, size_t n, unsigned char *b)
{
    unsigned v = 0;
    if (n != 6 || memcmp(s, "<0x", 3) || s[5] != '>') return false;
    for (int i = 3; i < 5; i++) {
        char c = s[i];
        int x = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                       : -1;
        if (x < 0) return false;
        v = v * 16 + (unsigned)x;
    }
    *b = (unsigned char)v;
    return true;
}

/* Into a buffer of n + 1 bytes: neither spelling grows. Byte-level text with a character outside the 256 is kept as
 * it is. */
static size_t spell(char *to, const char *s, size_t n, bool byte_level, bool marks)
{
    size_t k = 0;
    if (byte_level) {
        for (size_t i = 0, len; i < n; i += len) {
            uint32_t cp;
            int b = (len = utf8_read((const unsigned char *)s + i, n - i, &cp)) ? char_to_byte(cp) : -1;
            if (b < 0) return memcpy(to, s, n), n;
            to[k++] = (char)b;
        }
        return k;
    }
    for (size_t i = 0; i < n;) {
        if (marks && n - i >= 3 && !memcmp(s + i, SPACE_MARK, 3)) to[k++] = ' ', i += 3;
        else to[k++] = s[i++];
    }
    return k;
}

bool tok_piece(tokenizer *t, const char *s, size_t n, bool byte_level, bool marks, tok_str *out)
{
    char *p = n < SIZE_MAX ? arena_take(&t->mem, n + 1, 1, 1) : NULL;
    if (!p) return false;
    *out = (tok_str){ p, spell(p, s, n, byte_level, marks) };
    return true;
}

/* ---- pieces ---- */

static size_t slot_of(const tokenizer *t, const char *s, size_t n)
{
    size_t i = (size_t)hash_bytes(s, n, 0) & (t->n_slots - 1);
    while (t->slots[i]) {
        const tok_str *p = &t->tok[t->slots[i] - 1].piece;
        if (p->n == n && !memcmp(p->at, s, n)) break;
        i = (i + 1) & (t->n_slots - 1);
    }
    return i;
}

int32_t piece_id(const tokenizer *t, const unsigned char *s, size_t n)
{
    if (!n || n > t->max_piece) return NO_ID;
    return (int32_t)t->slots[slot_of(t, (const char *)s, n)] - 1;
}

an_status tok_index(tokenizer *t, diag *d)
{
    t->n_slots = 16;
    while (t->n_slots < (size_t)t->n * 2) t->n_slots *= 2;
    t->slots = TAKE(&t->mem, uint32_t, t->n_slots);
    if (!t->slots) return diag_nomem(d);
    for (uint32_t id = 0; id < t->n; id++) {
        const token *k = &t->tok[id];
        if (k->type == TOK_BYTE && k->out.n == 1) {
            int32_t *b = &t->byte_id[(unsigned char)k->out.at[0]];
            if (*b == NO_ID) *b = (int32_t)id;
        }
        if (k->type != TOK_NORMAL || !k->piece.n) continue;
        size_t i = slot_of(t, k->piece.at, k->piece.n);
        if (!t->slots[i]) t->slots[i] = id + 1; /* the first of equal pieces */
        t->max_piece = MAX(t->max_piece, k->piece.n);
        if (t->model == MODEL_BYTE_BPE && k->piece.n == 1 && t->byte_id[(unsigned char)k->piece.at[0]] == NO_ID)
            t->byte_id[(unsigned char)k->piece.at[0]] = (int32_t)id;
    }
    return AN_OK;
}

/* ---- merges ---- */

static size_t pair_slot(const tokenizer *t, uint64_t key)
{
    uint64_t h = key * 0x9e3779b97f4a7c15u;
    size_t i = (size_t)(h >> 32) & (t->cap_pairs - 1); /* the upper half depends on both ids */
    while (t->pairs[i].rank != NO_RANK && t->pairs[i].key != key) i = (i + 1) & (t->cap_pairs - 1);
    return i;
}

an_status tok_room_pairs(tokenizer *t, size_t n, diag *d)
{
    if (n > (size_t)MAX_VOCAB * 2) return tok_bad(d, t, "%zu merges; at most %d are taken", n, MAX_VOCAB * 2);
    t->cap_pairs = 16;
    while (t->cap_pairs < n * 2) t->cap_pairs *= 2;
    t->pairs = malloc(t->cap_pairs * sizeof *t->pairs);
    if (!t->pairs) return diag_nomem(d);
    for (size_t i = 0; i < t->cap_pairs; i++) t->pairs[i].rank = NO_RANK;
    return AN_OK;
}

bool pair_find(const tokenizer *t, uint32_t left, uint32_t right, uint32_t *rank, uint32_t *to)
{
    size_t i = pair_slot(t, (uint64_t)left << 32 | right);
    *rank = t->pairs[i].rank;
    *to = t->pairs[i].to;
    return *rank != NO_RANK;
}

an_status tok_merge(tokenizer *t, size_t rank, const char *l, size_t nl, const char *r, size_t nr, bool byte_level,
                    bool marks, diag *d)
{
    char small[256], *buf = nl + nr + 2 <= sizeof small ? small : malloc(nl + nr + 2);
    if (!buf) return diag_nomem(d);
    size_t a = spell(buf, l, nl, byte_level, marks), b = spell(buf + a, r, nr, byte_level, marks);
    int32_t left = piece_id(t, (unsigned char *)buf, a), right = piece_id(t, (unsigned char *)buf + a, b),
            to = piece_id(t, (unsigned char *)buf, a + b);
    if (buf != small) free(buf);
    if (left < 0 || right < 0)
        return tok_bad(d, t, "merge %zu uses \"%.*s\", which the vocabulary does not hold", rank,
                       (int)MIN(left < 0 ? nl : nr, (size_t)40), left < 0 ? l : r);
    if (to < 0)
        return tok_bad(d, t, "merge %zu gives \"%.*s%.*s\", which the vocabulary does not hold", rank,
                       (int)MIN(nl, (size_t)40), l, (int)MIN(nr, (size_t)40), r);
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t i = pair_slot(t, key);
    if (t->pairs[i].rank == NO_RANK) t->n_pairs++;
    else return AN_OK; /* the first of equal merges is the one that counts */
    t->pairs[i].key = key, t->pairs[i].rank = (uint32_t)rank, t->pairs[i].to = (uint32_t)to;
    return AN_OK;
}

/* ---- derived ---- */

typedef struct {
    float score;
    uint32_t id;
} scored;

static int by_score(const void *p, const void *q)
{
    const scored *a = p, *b = q;
    if (a->score != b->score) return a->score > b->score ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

static an_status rank_scores(tokenizer *t, diag *d)
{
    scored *s = malloc(t->n * sizeof *s);
    t->prio = TAKE(&t->mem, uint32_t, t->n);
    if (!s || !t->prio) {
        free(s);
        return diag_nomem(d);
    }
    for (uint32_t i = 0; i < t->n; i++) s[i] = (scored){ t->tok[i].score, i };
    qsort(s, t->n, sizeof *s, by_score);
    for (uint32_t i = 0, rank = 0; i < t->n; i++) {
        if (i && s[i].score < s[i - 1].score) rank = i;
        t->prio[s[i].id] = rank;
    }
    free(s);
    return AN_OK;
}

static an_status make_tries(tokenizer *t, diag *d)
{
    trie_item *items = malloc(((size_t)t->n + 1) * sizeof *items);
    if (!items) return diag_nomem(d);
    an_status st = AN_OK;
    for (int with = 0; with < 2 && !st; with++) {
        size_t n = 0;
        for (uint32_t i = 0; i < t->n; i++) {
            const token *k = &t->tok[i];
            bool in = k->type == TOK_USER || (with && (k->type == TOK_CONTROL || k->type == TOK_UNKNOWN));
            if (!in || !k->out.n) continue;
            if (k->out.n > MAX_ADDED_BYTES) {
                st = tok_bad(d, t, "special token %u is %zu bytes long; at most %d are taken", i, k->out.n,
                             MAX_ADDED_BYTES);
                break;
            }
            items[n++] = (trie_item){ k->out, (int32_t)i };
        }
        if (!st) st = trie_build(&t->mem, &t->added[with], items, n, d);
    }
    if (!st && t->model == MODEL_UNIGRAM) {
        size_t n = 0;
        double least = 0;
        for (uint32_t i = 0; i < t->n; i++) {
            if (t->tok[i].type != TOK_NORMAL || !t->tok[i].piece.n) continue;
            items[n++] = (trie_item){ t->tok[i].piece, (int32_t)i };
            least = n == 1 ? (double)t->tok[i].score : fmin(least, (double)t->tok[i].score);
        }
        t->unk_score = least - 10; /* SentencePiece's penalty */
        st = trie_build(&t->mem, &t->pieces, items, n, d);
    }
    free(items);
    return st;
}

an_status tok_finish(tokenizer *t, diag *d)
{
    for (uint32_t i = 0; i < t->n; i++)
        if (!isfinite(t->tok[i].score)) return tok_bad(d, t, "token %u has a score that is not finite", i);
    /* bounds the work for each byte of a text */
    for (uint32_t i = 0; i < t->n && (t->model == MODEL_UNIGRAM || t->model == MODEL_SPM_BPE); i++)
        if (t->tok[i].type == TOK_NORMAL && t->tok[i].piece.n > MAX_SPM_BYTES)
            return tok_bad(d, t, "piece %u is %zu bytes long; at most %d are taken", i, t->tok[i].piece.n,
                           MAX_SPM_BYTES);
    int64_t *ids[] = { &t->bos, &t->eos, &t->unk, &t->pad };
    static const char *const names[] = { "BOS", "EOS", "unknown", "padding" };
    for (size_t i = 0; i < COUNT(ids); i++)
        if (*ids[i] < NO_ID || *ids[i] >= (int64_t)t->n)
            return tok_bad(d, t, "the %s token is %lld, the vocabulary has %u", names[i], (long long)*ids[i], t->n);
    if (t->model == MODEL_SPM_BPE) TRY(rank_scores(t, d));
    TRY(make_tries(t, d));
    if (!t->pairs) TRY(tok_room_pairs(t, 0, d));
    bool all = true;
    for (int b = 0; b < 256; b++) all &= t->byte_id[b] != NO_ID;
    if (t->model == MODEL_BYTE_BPE) t->byte_fallback = all;
    else if (t->byte_fallback && !all)
        return tok_bad(d, t, "falls back to bytes, and not every byte has a token <0xNN>");
    /* With ignore_merges a whole piece is looked up first, so a piece must stay whole. Byte-level pieces are words
     * already. */
    if (t->ignore_merges || t->model == MODEL_BYTE_BPE) return AN_OK;
    if (!(t->joins = arena_take(&t->mem, 256, sizeof *t->joins, 1))) return diag_nomem(d);
    for (uint32_t i = 0; i < t->n; i++)
        for (size_t k = 1; k < t->tok[i].piece.n && t->tok[i].type == TOK_NORMAL; k++)
            t->joins[(unsigned char)t->tok[i].piece.at[k - 1]][(unsigned char)t->tok[i].piece.at[k]] = true;
    return AN_OK;
}

an_status tok_is_utf8(const tokenizer *t, size_t id, const char *s, size_t n, diag *d)
{
    size_t good = utf8_span((const unsigned char *)s, n);
    return good == n ? AN_OK
                     : tok_bad(d, t, "token %zu is not UTF-8: byte %zu of %zu is 0x%02x", id, good, n,
                               (unsigned char)s[good]);
}

an_status tok_put(tokenizer *t, size_t id, const char *s, size_t n, tok_type type, float score, bool byte_level,
                  bool marks, diag *d)
{
    token *k = &t->tok[id];
    unsigned char b;
    /* SentencePiece spells these with its mark, too */
    bool plain = type == TOK_NORMAL || type == TOK_UNUSED, user = type == TOK_USER;
    k->type = (uint8_t)type;
    k->score = score;
    if (!tok_piece(t, s, n, byte_level && plain, marks && (plain || user), &k->piece)) return diag_nomem(d);
    k->out = k->piece;
    if (type != TOK_BYTE) return AN_OK;
    if (!byte_token(s, n, &b))
        return tok_bad(d, t, "token %zu \"%.*s\" is said to be a byte; \"<0xNN>\" is wanted", id,
                       (int)MIN(n, (size_t)40), s);
    char *one = arena_strn(&t->mem, (const char *)&b, 1);
    if (!one) return diag_nomem(d);
    k->out = (tok_str){ one, 1 };
    return AN_OK;
}

an_status add_split(tokenizer *t, split_step step, diag *d)
{
    if (t->n_split == MAX_STEPS) {
        split_free_code(step.code);
        return tok_bad(d, t, "cuts text in more than %d steps", MAX_STEPS);
    }
    t->split[t->n_split++] = step;
    return AN_OK;
}

an_status add_pattern(tokenizer *t, const char *regex, size_t n, cut_behavior b, bool invert, diag *d)
{
    split_step known = { 0 };
    if (b == CUT_ISOLATED && !invert && split_known(regex, n, &known)) return add_split(t, known, d);
    split_step s = { .kind = SPLIT_REGEX, .behavior = b, .invert = invert, .name = known.name };
    TRY(split_compile(regex, n, &s.code, d));
    return add_split(t, s, d);
}

an_status add_norm(tokenizer *t, norm_step step, diag *d)
{
    if (t->n_norm == MAX_STEPS) {
        split_free_code(step.code);
        return tok_bad(d, t, "normalises text in more than %d steps", MAX_STEPS);
    }
    t->norm[t->n_norm++] = step;
    return AN_OK;
}

void guess_ids(tokenizer *t, bool guess_bos, bool guess_eos)
{
    static const char *const bos[] = { "<s>", "<|begin_of_text|>", "<bos>", "<|endoftext|>" };
    static const char *const eos[] = { "</s>", "<|end_of_text|>", "<eos>", "<|endoftext|>" };
    for (size_t i = 0; i < COUNT(bos) && t->bos < 0 && guess_bos; i++) t->bos = tok_find(t, bos[i], strlen(bos[i]));
    for (size_t i = 0; i < COUNT(eos) && t->eos < 0 && guess_eos; i++) t->eos = tok_find(t, eos[i], strlen(eos[i]));
}

/* ---- looking ---- */

void tok_get(const tokenizer *t, tok_info *o)
{
    static const char *const models[] = { "byte-level BPE", "BPE", "SentencePiece BPE", "SentencePiece unigram" };
    *o = (tok_info){ .model = models[t->model],
                     .n = t->n,
                     .bos = t->bos,
                     .eos = t->eos,
                     .unk = t->unk,
                     .pad = t->pad,
                     .add_bos = t->add_bos,
                     .add_eos = t->add_eos,
                     .byte_fallback = t->byte_fallback,
                     .chat_template = t->chat_template,
                     .split = "none" };
    if (t->n_split) o->split = t->split[t->n_split - 1].name ? t->split[t->n_split - 1].name : "regex";
    for (uint32_t i = 0; i < t->n; i++) o->n_special += t->tok[i].type == TOK_CONTROL || t->tok[i].type == TOK_USER;
}

tok_str tok_text(const tokenizer *t, uint32_t id) { return id < t->n ? t->tok[id].out : (tok_str){ NULL, 0 }; }
tok_type tok_type_of(const tokenizer *t, uint32_t id) { return id < t->n ? (tok_type)t->tok[id].type : TOK_UNUSED; }

int64_t tok_find(const tokenizer *t, const char *s, size_t n)
{
    for (uint32_t i = 0; i < t->n; i++) /* special tokens are few, and asked for once */
        if (t->tok[i].type != TOK_NORMAL && t->tok[i].type != TOK_UNUSED && t->tok[i].out.n == n &&
            !memcmp(t->tok[i].out.at, s, n))
            return i;
    return t->slots ? piece_id(t, (const unsigned char *)s, n) : NO_ID;
}
