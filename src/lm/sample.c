/* sample.c: one token from logits.
 * In: logits of a vocabulary, the tokens before.  Out: an id, and the log of the model's own probability of it.
 *
 * Order: repetition penalty, temperature, top-k, top-p, min-p, then one number from the generator. Sums are in
 * double. Ties are broken by the smaller id, so that the order of candidates never depends on how they were sorted. */
#include <math.h>
#include <stdlib.h>

#include "lm/generate.h"

typedef struct {
    float x; /* logit, then weight */
    uint32_t id;
} candidate;

struct lm_sampler {
    lm_sampling o;
    size_t n;
    rng r;
    candidate *c;
    float *x;      /* logits after the penalty */
    uint32_t *mark; /* when each token was last penalised, so that one seen twice is penalised once */
    uint32_t round;
};

static an_status bad(diag *d, const char *name, double got, const char *want)
{
    return diag_fail(d, AN_USAGE, NOWHERE, "%s is %g, wanted %s", name, got, want);
}

an_status lm_sampling_check(const lm_sampling *o, diag *d)
{
    if (!(o->temperature >= 0 && o->temperature <= 100)) return bad(d, "temperature", o->temperature, "0 to 100");
    if (o->top_k < 0) return bad(d, "top-k", (double)o->top_k, "0 or more");
    if (!(o->top_p >= 0 && o->top_p <= 1)) return bad(d, "top-p", o->top_p, "0 to 1");
    if (!(o->min_p >= 0 && o->min_p <= 1)) return bad(d, "min-p", o->min_p, "0 to 1");
    if (!(o->repetition >= 0 && o->repetition <= 100)) return bad(d, "repetition-penalty", o->repetition, "0 to 100");
    return AN_OK;
}

an_status lm_sampler_new(const lm_sampling *o, size_t vocab, lm_sampler **out, diag *d)
{
    *out = NULL;
    TRY(lm_sampling_check(o, d));
    lm_sampler *s = calloc(1, sizeof *s);
    if (!s) return diag_nomem(d);
    *s = (lm_sampler){ .o = *o,
                       .n = vocab,
                       .r = { o->seed },
                       .c = calloc(vocab, sizeof *s->c),
                       .x = calloc(vocab, sizeof *s->x),
                       .mark = calloc(vocab, sizeof *s->mark) };
    if (!s->c || !s->x || !s->mark) {
        lm_sampler_free(s);
        return diag_nomem(d);
    }
    rng_next(&s->r); /* seeds next to each other begin far apart */
    *out = s;
    return AN_OK;
}

void lm_sampler_free(lm_sampler *s)
{
    if (!s) return;
    free(s->c);
    free(s->x);
    free(s->mark);
    free(s);
}

static size_t largest(const float *x, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

double lm_logprob(const float *logits, size_t n, uint32_t id)
{
    double top = (double)logits[largest(logits, n)], sum = 0;
    for (size_t i = 0; i < n; i++) sum += exp((double)logits[i] - top);
    return (double)logits[id] - top - log(sum);
}

static void penalise(lm_sampler *s, const uint32_t *seen, size_t n)
{
    float by = (float)s->o.repetition;
    if (!(by > 0) || by == 1) return;
    s->round++;
    for (size_t i = 0; i < n; i++) {
        uint32_t k = seen[i];
        if (k >= s->n || s->mark[k] == s->round) continue;
        s->mark[k] = s->round;
        s->x[k] = s->x[k] > 0 ? s->x[k] / by : s->x[k] * by;
    }
}

static int before(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    return x->x > y->x ? -1 : x->x < y->x ? 1 : (x->id > y->id) - (x->id < y->id);
}

/* The k first of c in order; the others behind in any. A heap of k keeps it linear for a large vocabulary. */
static void sift(candidate *h, size_t n, size_t i) /* the last of the order on top */
{
    for (;;) {
        size_t worst = i, l = 2 * i + 1;
        for (size_t k = l; k < n && k <= l + 1; k++)
            if (before(&h[k], &h[worst]) > 0) worst = k;
        if (worst == i) return;
        candidate t = h[i];
        h[i] = h[worst], h[worst] = t;
        i = worst;
    }
}

static void first_k(candidate *c, size_t n, size_t k)
{
    if (k < n) {
        for (size_t i = k / 2; i-- > 0;) sift(c, k, i);
        for (size_t i = k; i < n; i++)
            if (before(&c[i], &c[0]) < 0) {
                c[0] = c[i];
                sift(c, k, 0);
            }
    }
    qsort(c, MIN(k, n), sizeof *c, before);
}

/* The fewest of n candidates, in order, whose weights reach the share of all of them. */
static size_t reach(const candidate *c, size_t n, double share, double sum)
{
    double part = 0;
    for (size_t i = 0; i < n; i++)
        if ((part += (double)c[i].x) >= share * sum) return i + 1;
    return n;
}

/* Candidates that the cuts leave, with weights relative to the largest; returns their number. Each cut sees what the
 * one before it left. */
static size_t cut(lm_sampler *s)
{
    const lm_sampling *o = &s->o;
    const bool nucleus = o->top_p > 0 && o->top_p < 1;
    size_t n = 0, left = 0;
    double top = (double)s->x[largest(s->x, s->n)], sum = 0;
    for (size_t i = 0; i < s->n; i++) /* below this a weight is nothing beside one */
        if ((double)s->x[i] >= top - o->temperature * 60) s->c[n++] = (candidate){ s->x[i], (uint32_t)i };
    size_t keep = o->top_k > 0 ? MIN((size_t)o->top_k, n) : n;
    if (keep < n || nucleus) first_k(s->c, n, keep);
    n = keep;
    for (size_t i = 0; i < n; i++) sum += (double)(s->c[i].x = (float)exp(((double)s->c[i].x - top) / o->temperature));
    if (nucleus) n = reach(s->c, n, o->top_p, sum);
    if (!(o->min_p > 0)) return n;
    for (size_t i = 0; i < n; i++)
        if ((double)s->x[s->c[i].id] >= top + o->temperature * log(o->min_p)) s->c[left++] = s->c[i];
    return left;
}

an_status lm_sample(lm_sampler *s, const float *logits, const uint32_t *seen, size_t n_seen, uint32_t *id,
                    double *logprob, diag *d)
{
    for (size_t i = 0; i < s->n; i++)
        if (isnan(logits[i]) || logits[i] == INFINITY) /* -infinity: an id that may not be answered */
            return diag_fail(d, AN_INPUT, NOWHERE,
                             "logit %zu is %s: the weights hold one, or a value passed the range of their type", i,
                             isnan(logits[i]) ? "not a number" : "infinite");
    double u = rng_unit(&s->r);
    memcpy(s->x, logits, s->n * sizeof *s->x);
    penalise(s, seen, n_seen);
    if (s->o.temperature == 0) *id = (uint32_t)largest(s->x, s->n);
    else {
        size_t n = cut(s), k = 0;
        double sum = 0, at = 0;
        for (size_t i = 0; i < n; i++) sum += (double)s->c[i].x;
        for (k = 0; k + 1 < n && (at += (double)s->c[k].x) <= u * sum; k++) {}
        *id = s->c[k].id;
    }
    if (logprob) *logprob = lm_logprob(logits, s->n, *id);
    return AN_OK;
}
