/* corpus.c: samples from a shard or a text, shuffled by seed and epoch without a table: a permutation of 0 … n-1 that can be entered at
 * any place, so that a run resumes at the exact sample from two numbers. */
#include <stdlib.h>

#include "base/io.h"
#include "text/shard.h"
#include "text/story.h"

struct corpus {
    shard *shard;   /* or */
    tok_ids ids;    /* a text, tokenised */
    const char *path;
    char *path_copy;
    uint64_t n_tokens, n_train, n_validation;
    int64_t seq;
    uint64_t seed;
    bool in_order;
    uint64_t digest;
};

/* ---- the order ---- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Where sample i stands in the order of an epoch: a Feistel network on the least even number of bits that hold n, walked until it lands
 * below n. Fewer than four steps on average. */
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
    return AN_OK;
}

static an_status load(corpus *c, const corpus_options *o, diag *d)
{
    tok_info info = { 0 };
    if (o->tok) tok_get(o->tok, &info);
    uint32_t vocab = o->vocab ? o->vocab : info.n;
    bool builtin = !strcmp(c->path, "builtin:stories");
    if (!builtin && shard_is(c->path)) {
        TRY(shard_open(c->path, vocab, &c->shard, d));
        c->n_tokens = shard_count(c->shard);
        return AN_OK;
    }
    if (!o->tok) return diag_fail(d, AN_INPUT, NOWHERE, "%s is text, and there is no tokenizer to read it with", c->path);
    if (vocab < info.n) return diag_fail(d, AN_INPUT, NOWHERE, "the tokenizer has %u tokens, the model %u", info.n, vocab);
    if (builtin) {
        strbuf b = { 0 };
        story_corpus(&b, o->stories ? o->stories : 6000, o->seed);
        an_status st = b.oom ? diag_nomem(d) : load_text(c, b.at ? b.at : "", b.n, o, DOCS_ENDOFTEXT, d);
        sb_free(&b);
        return st;
    }
    file_bytes f = { 0 };
    TRY(file_map(c->path, &f, d));
    an_status st = load_text(c, (const char *)f.at, f.n, o, o->docs, d);
    file_drop(&f);
    return st;
}

static an_status open_corpus(corpus *c, const char *path, const corpus_options *o, diag *d)
{
    if (o->seq < 1 || o->seq > (int64_t)1 << 30) return diag_fail(d, AN_INPUT, NOWHERE, "windows of %lld ids; 1 to 2^30 can be cut", (long long)o->seq);
    if (!(o->validation >= 0 && o->validation <= 0.9)) return diag_fail(d, AN_INPUT, NOWHERE, "a validation share of %g; 0 to 0.9 is wanted", o->validation);
    if (!(c->path_copy = malloc(strlen(path) + 1))) return diag_nomem(d);
    memcpy(c->path_copy, path, strlen(path) + 1);
    c->path = c->path_copy;
    c->seq = o->seq, c->seed = o->seed, c->in_order = o->in_order;
    TRY(load(c, o, d));
    uint64_t n = c->n_tokens ? (c->n_tokens - 1) / (uint64_t)o->seq : 0;
    if (!n) return diag_fail(d, AN_INPUT, NOWHERE, "%s: %llu ids; one sample takes %lld", path, (unsigned long long)c->n_tokens, (long long)o->seq + 1);
    c->n_validation = (uint64_t)((double)n * o->validation);
    if (o->validation > 0 && !c->n_validation && n > 1) c->n_validation = 1;
    c->n_train = n - c->n_validation;
    /* A digest of a few ids from all over, and of everything that decides the order. */
    uint64_t h = hash_bytes(&c->n_tokens, sizeof c->n_tokens, c->seed), parts[] = { (uint64_t)c->seq, c->n_train, c->in_order };
    h = hash_bytes(parts, sizeof parts, h);
    for (uint64_t k = 0; k < 64; k++) {
        uint64_t i = (c->n_tokens - 1) / 63 * k;
        int32_t id = 0;
        if (i >= c->n_tokens) break;
        if (c->shard) TRY(shard_read(c->shard, i, 1, &id, d));
        else id = (int32_t)c->ids.at[i];
        h = hash_bytes(&id, sizeof id, h);
    }
    c->digest = h;
    return AN_OK;
}

an_status corpus_open(const char *path, const corpus_options *o, corpus **out, diag *d)
{
    corpus *c = *out = calloc(1, sizeof *c);
    if (!c) return diag_nomem(d);
    an_status st = open_corpus(c, path, o, d);
    if (st) corpus_close(c), *out = NULL;
    return st;
}

void corpus_close(corpus *c)
{
    if (!c) return;
    shard_close(c->shard);
    tok_ids_free(&c->ids);
    free(c->path_copy);
    free(c);
}

uint64_t corpus_samples(const corpus *c, corpus_split split) { return split == CORPUS_TRAIN ? c->n_train : c->n_validation; }
uint64_t corpus_tokens(const corpus *c) { return c->n_tokens; }
uint64_t corpus_digest(const corpus *c) { return c->digest; }

an_status corpus_batch(const corpus *c, corpus_split split, int64_t b, corpus_pos *pos, int32_t *ids, diag *d)
{
    uint64_t n = corpus_samples(c, split), width = (uint64_t)c->seq + 1;
    if (!n) return diag_fail(d, AN_INPUT, NOWHERE, "%s: no samples for %s", c->path, split == CORPUS_TRAIN ? "training" : "validation");
    if (pos->sample > n) return diag_fail(d, AN_INPUT, NOWHERE, "%s: sample %llu of %llu", c->path, (unsigned long long)pos->sample, (unsigned long long)n);
    corpus_pos p = *pos;
    for (int64_t k = 0; k < b; k++) {
        if (p.sample == n) p.epoch++, p.sample = 0;
        uint64_t i = p.sample++;
        if (split == CORPUS_VALIDATION) i += c->n_train;
        else if (!c->in_order) i = place(i, n, mix(c->seed ^ mix(p.epoch + 1)));
        uint64_t from = i * (uint64_t)c->seq;
        int32_t *to = ids + (uint64_t)k * width;
        if (c->shard) TRY(shard_read(c->shard, from, width, to, d));
        else
            for (uint64_t j = 0; j < width; j++) to[j] = (int32_t)c->ids.at[from + j];
    }
    *pos = p;
    return AN_OK;
}
