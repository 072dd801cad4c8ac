/* learn.c: a byte-level BPE vocabulary from a corpus, written as tokenizer.json. Words are counted once; then the
 * most frequent pair of neighbours is merged until the vocabulary is full, pairs of equal count in the order of
 * their ids. Only the words that hold a merged pair are looked at again. Same corpus, same bytes. */
#include <stdlib.h>

#include "text/text_int.h"

enum { MAX_WORD = 512 }; /* longer pieces are counted in parts: a merge never needs more, and work stays linear */

typedef struct {
    const unsigned char *at;
    uint32_t n;      /* 0: empty slot */
    uint32_t first;  /* symbols: where they begin, how many are left */
    uint32_t len;
    uint64_t count;
} word;

typedef struct {
    uint64_t key;      /* left << 32 | right */
    uint64_t count;
    uint32_t *words;   /* that hold the pair, or held it */
    uint32_t n, cap;
    bool used;
} pair;

typedef struct {
    uint64_t count, key;
} best;

typedef struct {
    word *word;
    size_t n_words, cap_words;
    uint32_t *sym;
    pair *pair;
    size_t n_pairs, cap_pairs;
    best *heap;
    size_t n_heap, cap_heap;
    arena mem;
    str_map seen;         /* text of a token -> id */
    tok_str *text;        /* of each token */
    uint32_t n_tokens;
    struct { uint32_t left, right; } *merge;
    size_t n_merges, cap_merges;
    bool oom;
} learner;

static void learner_free(learner *l)
{
    for (size_t i = 0; i < l->cap_pairs; i++) free(l->pair[i].words);
    free(l->word), free(l->sym), free(l->pair), free(l->heap), free(l->text), free(l->merge);
    arena_free(&l->mem);
}

/* ---- counting words ---- */

static word *word_slot(word *table, size_t cap, const unsigned char *s, size_t n)
{
    size_t i = (size_t)hash_bytes(s, n, 1) & (cap - 1);
    while (table[i].n && (table[i].n != n || memcmp(table[i].at, s, n))) i = (i + 1) & (cap - 1);
    return &table[i];
}

static bool grow_words(learner *l)
{
    size_t cap = MAX(l->cap_words * 2, (size_t)4096);
    word *w = calloc(cap, sizeof *w);
    if (!w) return false;
    for (size_t i = 0; i < l->cap_words; i++)
        if (l->word[i].n) *word_slot(w, cap, l->word[i].at, l->word[i].n) = l->word[i];
    free(l->word);
    l->word = w;
    l->cap_words = cap;
    return true;
}

static an_status count_piece(void *user, const unsigned char *s, size_t n, diag *d)
{
    learner *l = user;
    for (size_t i = 0, len; i < n; i += len) {
        len = MIN(n - i, (size_t)MAX_WORD);
        if ((l->n_words + 1) * 2 > l->cap_words && !grow_words(l)) return diag_nomem(d);
        word *w = word_slot(l->word, l->cap_words, s + i, len);
        if (!w->n) *w = (word){ .at = s + i, .n = (uint32_t)len }, l->n_words++;
        w->count++;
    }
    return AN_OK;
}

/* Where in the corpus a word first stood gives an order that does not depend on the table. */
static int by_place(const void *p, const void *q)
{
    const word *a = p, *b = q;
    return (a->at > b->at) - (a->at < b->at);
}

/* ---- pairs ---- */

static size_t pair_at(const pair *p, size_t cap, uint64_t key)
{
    size_t i = (size_t)((key * 0x9e3779b97f4a7c15u) >> 32) & (cap - 1);
    while (p[i].used && p[i].key != key) i = (i + 1) & (cap - 1);
    return i;
}

static pair *pair_get(learner *l, uint64_t key)
{
    if ((l->n_pairs + 1) * 2 > l->cap_pairs) {
        size_t cap = MAX(l->cap_pairs * 2, (size_t)1 << 14);
        pair *p = calloc(cap, sizeof *p);
        if (!p) return l->oom = true, NULL;
        for (size_t i = 0; i < l->cap_pairs; i++)
            if (l->pair[i].used) p[pair_at(p, cap, l->pair[i].key)] = l->pair[i];
        free(l->pair);
        l->pair = p;
        l->cap_pairs = cap;
    }
    pair *p = &l->pair[pair_at(l->pair, l->cap_pairs, key)];
    if (!p->used) *p = (pair){ .key = key, .used = true }, l->n_pairs++;
    return p;
}

static void pair_add(learner *l, uint32_t a, uint32_t b, uint64_t count, uint32_t w)
{
    pair *p = pair_get(l, (uint64_t)a << 32 | b);
    if (!p) return;
    p->count += count;
    if (p->n && p->words[p->n - 1] == w) return;
    if (p->n == p->cap) {
        uint32_t cap = p->cap ? p->cap * 2 : 4, *x = realloc(p->words, cap * sizeof *x);
        if (!x) {
            l->oom = true;
            return;
        }
        p->words = x;
        p->cap = cap;
    }
    p->words[p->n++] = w;
}

static bool better(best a, best b) { return a.count != b.count ? a.count > b.count : a.key < b.key; }

static void heap_put(learner *l, best x)
{
    if (x.count < 2) return;
    if (l->n_heap == l->cap_heap) {
        size_t cap = MAX(l->cap_heap * 2, (size_t)4096);
        best *h = realloc(l->heap, cap * sizeof *h);
        if (!h) {
            l->oom = true;
            return;
        }
        l->heap = h;
        l->cap_heap = cap;
    }
    size_t i = l->n_heap++;
    for (; i && better(x, l->heap[(i - 1) / 2]); i = (i - 1) / 2) l->heap[i] = l->heap[(i - 1) / 2];
    l->heap[i] = x;
}

static best heap_take(learner *l)
{
    best top = l->heap[0], x = l->heap[--l->n_heap];
    size_t i = 0;
    for (size_t k; (k = 2 * i + 1) < l->n_heap; i = k) {
        if (k + 1 < l->n_heap && better(l->heap[k + 1], l->heap[k])) k++;
        if (!better(l->heap[k], x)) break;
        l->heap[i] = l->heap[k];
    }
    l->heap[i] = x;
    return top;
}

/* ---- merging ---- */

static uint32_t token_id(learner *l, const char *s, size_t n)
{
    uint32_t id;
    if (str_map_get(&l->seen, s, n, &id)) return id; /* "ab"+"c" after "a"+"bc": one token, two merges */
    char *copy = arena_strn(&l->mem, s, n);
    if (!copy || !str_map_put(&l->mem, &l->seen, copy, n, l->n_tokens)) return l->oom = true, 0;
    l->text[l->n_tokens] = (tok_str){ copy, n };
    return l->n_tokens++;
}

static void merge_word(learner *l, uint32_t wi, uint32_t a, uint32_t b, uint32_t c)
{
    word *w = &l->word[wi];
    uint32_t *s = l->sym + w->first, k = 0;
    bool just = false; /* the symbol before is a c made a moment ago: what stood between was taken off then */
    for (uint32_t i = 0; i < w->len; i++) {
        if (i + 1 >= w->len || s[i] != a || s[i + 1] != b) {
            s[k++] = s[i];
            just = false;
            continue;
        }
        if (k) {
            pair *p = just ? NULL : pair_get(l, (uint64_t)s[k - 1] << 32 | a);
            if (p) p->count -= MIN(p->count, w->count);
            pair_add(l, s[k - 1], c, w->count, wi);
        }
        if (i + 2 < w->len) {
            pair *p = pair_get(l, (uint64_t)b << 32 | s[i + 2]);
            if (p) p->count -= MIN(p->count, w->count);
            /* a pair of two c's is counted when the second is made */
            bool again = i + 3 < w->len && s[i + 2] == a && s[i + 3] == b;
            if (!again) pair_add(l, c, s[i + 2], w->count, wi);
        }
        s[k++] = c;
        just = true;
        i++;
    }
    w->len = k;
}

static void learn_merges(learner *l, uint32_t want)
{
    while (l->n_tokens < want && l->n_heap && !l->oom) {
        best x = heap_take(l);
        pair *p = &l->pair[pair_at(l->pair, l->cap_pairs, x.key)];
        if (p->count != x.count) { /* it lost some since it was put: back in its place */
            x.count = p->count;
            heap_put(l, x);
            continue;
        }
        uint32_t a = (uint32_t)(x.key >> 32), b = (uint32_t)x.key;
        char joined[2 * MAX_WORD];
        size_t na = l->text[a].n, nb = l->text[b].n;
        memcpy(joined, l->text[a].at, na);
        memcpy(joined + na, l->text[b].at, nb);
        uint32_t c = token_id(l, joined, na + nb), *words = p->words, n = p->n;
        p->words = NULL, p->n = p->cap = 0, p->count = 0;
        if (l->n_merges == l->cap_merges) {
            size_t cap = MAX(l->cap_merges * 2, (size_t)4096);
            void *m = realloc(l->merge, cap * sizeof *l->merge);
            if (!m) l->oom = true;
            else l->merge = m, l->cap_merges = cap;
        }
        if (!l->oom) l->merge[l->n_merges].left = a, l->merge[l->n_merges++].right = b;
        for (uint32_t i = 0; i < n && !l->oom; i++) merge_word(l, words[i], a, b, c);
        /* What the merge made: every pair with c, found in the words it touched. */
        for (uint32_t i = 0; i < n && !l->oom; i++) {
            const word *w = &l->word[words[i]];
            const uint32_t *s = l->sym + w->first;
            for (uint32_t k = 0; k + 1 < w->len; k++) {
                if (s[k] != c && s[k + 1] != c) continue;
                pair *q = pair_get(l, (uint64_t)s[k] << 32 | s[k + 1]);
                if (q && q->count) heap_put(l, (best){ q->count, q->key });
            }
        }
        free(words);
    }
}

static an_status start(learner *l, const tok_train_options *o, diag *d)
{
    size_t total = 0, k = 0;
    for (size_t i = 0; i < l->cap_words; i++) /* words to the front, in the order of the corpus */
        if (l->word[i].n) l->word[k++] = l->word[i], total += l->word[k - 1].n;
    if (k) qsort(l->word, k, sizeof *l->word, by_place);
    l->text = calloc((size_t)o->vocab + 1, sizeof *l->text);
    l->sym = malloc((total + 1) * sizeof *l->sym);
    if (!l->text || !l->sym || total > UINT32_MAX) return diag_nomem(d);
    uint32_t id_of[256];
    /* ids of bytes in the order of their printable characters, as GPT-2 has them */
    for (uint32_t cp = 0; cp < 0x144; cp++) {
        int b = char_to_byte(cp);
        char one = (char)b;
        if (b >= 0) id_of[b] = token_id(l, &one, 1);
    }
    for (size_t i = 0, at = 0; i < k; i++) {
        word *w = &l->word[i];
        w->first = (uint32_t)at, w->len = w->n;
        for (uint32_t j = 0; j < w->n; j++) l->sym[at++] = id_of[w->at[j]];
        for (uint32_t j = 0; j + 1 < w->n; j++)
            pair_add(l, l->sym[w->first + j], l->sym[w->first + j + 1], w->count, (uint32_t)i);
    }
    for (size_t i = 0; i < l->cap_pairs; i++)
        if (l->pair[i].used) heap_put(l, (best){ l->pair[i].count, l->pair[i].key });
    return l->oom ? diag_nomem(d) : AN_OK;
}

/* ---- writing ---- */

static bool spell_bytes(arena *mem, tok_str s, tok_str *out)
{
    unsigned char *p = arena_take(mem, 2 * s.n + 1, 1, 1);
    size_t n = 0;
    if (!p) return false;
    for (size_t i = 0; i < s.n; i++) n += utf8_put(p + n, byte_to_char((unsigned char)s.at[i]));
    *out = (tok_str){ (const char *)p, n };
    return true;
}

/* What was learnt as a vocabulary, and that as a file. */
static an_status put_json(const learner *l, const tok_train_options *o, const split_step *split, strbuf *b, diag *d)
{
    arena mem = { 0 };
    size_t n = l->n_tokens + o->n_special;
    tok_str *spelt = TAKE(&mem, tok_str, n), *merge = TAKE(&mem, tok_str, l->n_merges + 1);
    int32_t *type = TAKE(&mem, int32_t, n);
    bool ok = spelt && merge && type;
    for (size_t i = 0; i < n && ok; i++) {
        type[i] = i < l->n_tokens ? TOK_NORMAL : TOK_CONTROL;
        if (i < l->n_tokens) ok = spell_bytes(&mem, l->text[i], &spelt[i]);
        else spelt[i] = (tok_str){ o->special[i - l->n_tokens], strlen(o->special[i - l->n_tokens]) };
    }
    for (size_t i = 0; i < l->n_merges && ok; i++) {
        tok_str x = spelt[l->merge[i].left], y = spelt[l->merge[i].right];
        char *p = arena_printf(&mem, "%.*s %.*s", (int)x.n, x.at, (int)y.n, y.at);
        ok = p != NULL;
        if (ok) merge[i] = (tok_str){ p, x.n + y.n + 1 };
    }
    tok_vocab v = { .model = "gpt2", .n = n, .token = spelt, .type = type, .n_merges = l->n_merges, .merge = merge,
                    .bos = -1, .eos = -1, .unk = -1, .pad = -1 };
    /* the first one stands between documents, so a text begins behind one */
    if (o->n_special) v.bos = (int64_t)l->n_tokens, v.add_bos = 1;
    if (ok) vocab_json(b, &v, &(struct pre_row){ .split = { split->name } });
    arena_free(&mem);
    return ok && !b->oom ? AN_OK : diag_nomem(d);
}

an_status tok_train(const char *corpus, size_t n, const tok_train_options *options, strbuf *json, diag *d)
{
    static const char *const usual[] = { "<|endoftext|>" };
    tok_train_options o = *options;
    if (!o.special) o.special = usual, o.n_special = 1;
    split_step split;
    if (!split_named(o.split ? o.split : "gpt2", &split))
        return diag_fail(d, AN_USAGE, NOWHERE,
                         "no way to cut text is called \"%.40s\"; gpt2, llama3, qwen2 and qwen35 are", o.split);
    if (o.vocab < 256 + o.n_special || o.vocab > MAX_VOCAB)
        return diag_fail(d, AN_USAGE, NOWHERE,
                         "a vocabulary of %u; from %zu (bytes and special tokens) to %d can be made", o.vocab,
                         256 + o.n_special, MAX_VOCAB);
    learner l = { 0 };
    split_scratch x;
    an_status st = split_scratch_init(&x, d);
    if (!st) st = split_text(&x, &split, 1, (const unsigned char *)corpus, n, count_piece, &l, d);
    split_scratch_free(&x);
    if (!st) st = start(&l, &o, d);
    if (!st) learn_merges(&l, o.vocab - (uint32_t)o.n_special);
    if (!st) st = l.oom ? diag_nomem(d) : put_json(&l, &o, &split, json, d);
    learner_free(&l);
    return st;
}
