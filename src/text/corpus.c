/* corpus.c: samples from shards or text, shuffled by seed and epoch without a table: a permutation of 0 … n-1 that
 * can be entered at any place, so that a run resumes at the exact sample from two numbers. */
#include <stdlib.h>

#include "base/io.h"
#include "text/shard.h"
#include "text/story.h"

struct corpus {
    arena mem;      /* names, tables */
    shard **shard;  /* in order; or */
    uint64_t *from; /* the first id of each, and the end */
    size_t n_shards;
    tok_ids ids;    /* text, tokenised */
    const char *path;
    uint64_t n_tokens, n_train, n_validation;
    int64_t seq;
    uint64_t seed;
    bool in_order, undivided;
    uint64_t digest;
};

/* ---- the order ---- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Where sample i stands in the order of an epoch: a Feistel network on the least even number of bits that hold n,
 * walked until it lands below n. Fewer than four steps on average. */
static uint64_t place(uint64_t i, uint64_t n, uint64_t key)
{
    int half = 1;
    while ((uint64_t)1 << (2 * half) < n) half++;
    uint64_t mask = ((uint64_t)1 << half) - 1;
    do {
        uint64_t l = i >> half, r = i & mask;
        for (uint64_t round = 0; round < 6; round++) {
            uint64_t t = l ^ (mix(r + key + round * 0x9e3779b97f4a7c15u) & mask);
            l = r, r = t;
        }
        i = l << half | r;
    } while (i >= n);
    return i;
}

/* ---- opening ---- */

static an_status load_text(corpus *c, const char *s, size_t n, const corpus_options *o, docs_rule rule, diag *d)
{
    docs_count count;
    TRY(docs_encode(o->tok, s, n, rule, o->pool, &c->ids, &count, d));
    c->n_tokens = c->ids.n;
    c->undivided |= count.undivided;
    return AN_OK;
}

static an_status load_file(corpus *c, const char *path, const corpus_options *o, diag *d)
{
    file_bytes f = { 0 };
    TRY(file_map(path, &f, d));
    an_status st = load_text(c, (const char *)f.at, f.n, o, o->docs, d);
    file_drop(&f);
    return st;
}

static an_status load_stories(corpus *c, const corpus_options *o, diag *d)
{
    strbuf b = { 0 };
    story_corpus(&b, o->stories ? o->stories : 6000, o->seed);
    an_status st = b.oom ? diag_nomem(d) : load_text(c, b.at ? b.at : "", b.n, o, DOCS_ENDOFTEXT, d);
    sb_free(&b);
    return st;
}

static an_status load_shards(corpus *c, const data_files *f, uint32_t vocab, diag *d)
{
    c->shard = TAKE(&c->mem, shard *, f->n);
    c->from = TAKE(&c->mem, uint64_t, f->n + 1);
    if (!c->shard || !c->from) return diag_nomem(d);
    for (size_t i = 0; i < f->n; i++) {
        TRY(shard_open(f->path[i], vocab, &c->shard[i], d));
        c->n_shards = i + 1;
        c->from[i + 1] = c->n_tokens += shard_count(c->shard[i]);
    }
    return AN_OK;
}

static an_status load(corpus *c, const corpus_options *o, diag *d)
{
    tok_info info = { 0 };
    data_files f = { 0 };
    if (o->tok) tok_get(o->tok, &info);
    uint32_t vocab = o->vocab ? o->vocab : info.n;
    bool builtin = !strcmp(c->path, "builtin:stories");
    if (!builtin) TRY(data_find(c->path, &c->mem, &f, d));
    if (f.shards) return load_shards(c, &f, vocab, d);
    if (!o->tok)
        return diag_fail(d, AN_INPUT, NOWHERE, "%s is text, and there is no tokenizer to read it with", c->path);
    if (vocab < info.n)
        return diag_fail(d, AN_INPUT, NOWHERE, "the tokenizer has %u tokens, the model %u", info.n, vocab);
    if (builtin) return load_stories(c, o, d);
    for (size_t i = 0; i < f.n; i++) TRY(load_file(c, f.path[i], o, d));
    return AN_OK;
}

/* ---- reading ---- */

static an_status read_ids(const corpus *c, uint64_t from, uint64_t n, int32_t *to, diag *d)
{
    if (!c->n_shards) {
        for (uint64_t j = 0; j < n; j++) to[j] = (int32_t)c->ids.at[from + j];
        return AN_OK;
    }
    size_t k = 0, end = c->n_shards; /* the last shard that begins at or before it */
    while (end - k > 1) {
        size_t middle = (k + end) / 2;
        if (c->from[middle] <= from) k = middle;
        else end = middle;
    }
    for (; n; k++) { /* a sample may run on into the next */
        uint64_t here = MIN(n, c->from[k + 1] - from);
        TRY(shard_read(c->shard[k], from - c->from[k], here, to, d));
        from += here, to += here, n -= here;
    }
    return AN_OK;
}

/* ---- a digest of everything: in parts, in parallel, the same for any number of threads, and for the same ids in
 * whatever files ---- */

enum { PART = 1 << 18, TEAM = 16 }; /* ids of a part; parts at a time */

typedef struct {
    const corpus *c;
    uint64_t from;
    uint64_t hash[TEAM];
    diag d[TEAM];
} hashing;

static void hash_part(void *user, int64_t i, int thread)
{
    hashing *h = user;
    uint64_t from = h->from + (uint64_t)i * PART, n = MIN(h->c->n_tokens - from, (uint64_t)PART);
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    (void)thread;
    if (!ids) diag_nomem(&h->d[i]);
    else if (!read_ids(h->c, from, n, ids, &h->d[i])) h->hash[i] = hash_many(ids, (size_t)n * sizeof *ids, 0);
    free(ids);
}

static an_status find_digest(corpus *c, pool *p, diag *d)
{
    uint64_t parts[] = { c->n_tokens, (uint64_t)c->seq, c->n_train, c->in_order };
    hashing *h = malloc(sizeof *h);
    if (!h) return diag_nomem(d);
    c->digest = hash_bytes(parts, sizeof parts, c->seed);
    for (uint64_t from = 0; from < c->n_tokens && !d->st; from += (uint64_t)TEAM * PART) {
        int64_t n = (int64_t)MIN((c->n_tokens - from + PART - 1) / PART, (uint64_t)TEAM);
        *h = (hashing){ .c = c, .from = from };
        pool_run(p, hash_part, h, n);
        for (int64_t i = 0; i < n && !d->st; i++)
            if (h->d[i].st) diag_fail(d, h->d[i].st, NOWHERE, "%s", h->d[i].msg);
        c->digest = hash_bytes(h->hash, (size_t)n * sizeof *h->hash, c->digest);
    }
    free(h);
    return d->st;
}

static an_status open_corpus(corpus *c, const char *name, const corpus_options *o, diag *d)
{
    if (o->seq < 1 || o->seq > (int64_t)1 << 30)
        return diag_fail(d, AN_INPUT, NOWHERE, "windows of %lld ids; 1 to 2^30 can be cut", (long long)o->seq);
    if (!(o->validation >= 0 && o->validation <= 0.9))
        return diag_fail(d, AN_INPUT, NOWHERE, "a validation share of %g; 0 to 0.9 is wanted", o->validation);
    if (!(c->path = arena_str(&c->mem, name))) return diag_nomem(d);
    c->seq = o->seq, c->seed = o->seed, c->in_order = o->in_order;
    TRY(load(c, o, d));
    uint64_t n = c->n_tokens ? (c->n_tokens - 1) / (uint64_t)o->seq : 0;
    if (!n)
        return diag_fail(d, AN_INPUT, NOWHERE, "%s: %llu ids; one sample takes %lld", name,
                         (unsigned long long)c->n_tokens, (long long)o->seq + 1);
    c->n_validation = (uint64_t)((double)n * o->validation);
    if (o->validation > 0 && !c->n_validation && n > 1) c->n_validation = 1;
    c->n_train = n - c->n_validation;
    return find_digest(c, o->pool, d);
}

an_status corpus_open(const char *name, const corpus_options *o, corpus **out, diag *d)
{
    corpus *c = *out = calloc(1, sizeof *c);
    if (!c) return diag_nomem(d);
    an_status st = open_corpus(c, name, o, d);
    if (st) corpus_close(c), *out = NULL;
    return st;
}

void corpus_close(corpus *c)
{
    if (!c) return;
    for (size_t i = 0; i < c->n_shards; i++) shard_close(c->shard[i]);
    tok_ids_free(&c->ids);
    arena_free(&c->mem);
    free(c);
}

uint64_t corpus_samples(const corpus *c, corpus_split split)
{
    return split == CORPUS_TRAIN ? c->n_train : c->n_validation;
}
uint64_t corpus_tokens(const corpus *c) { return c->n_tokens; }
bool corpus_undivided(const corpus *c) { return c->undivided; }
uint64_t corpus_digest(const corpus *c) { return c->digest; }

an_status corpus_batch(const corpus *c, corpus_split split, int64_t b, corpus_pos *pos, int32_t *ids, diag *d)
{
    uint64_t n = corpus_samples(c, split), width = (uint64_t)c->seq + 1;
    if (!n)
        return diag_fail(d, AN_INPUT, NOWHERE, "%s: no samples for %s", c->path,
                         split == CORPUS_TRAIN ? "training" : "validation");
    if (pos->sample > n)
        return diag_fail(d, AN_INPUT, NOWHERE, "%s: sample %llu of %llu", c->path, (unsigned long long)pos->sample,
                         (unsigned long long)n);
    corpus_pos p = *pos;
    for (int64_t k = 0; k < b; k++) {
        if (p.sample == n) p.epoch++, p.sample = 0;
        uint64_t i = p.sample++;
        if (split == CORPUS_VALIDATION) i += c->n_train;
        else if (!c->in_order) i = place(i, n, mix(c->seed ^ mix(p.epoch + 1)));
        uint64_t from = i * (uint64_t)c->seq;
        TRY(read_ids(c, from, width, ids + (uint64_t)k * width, d));
    }
    *pos = p;
    return AN_OK;
}
