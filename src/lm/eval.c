/* eval.c: how well a model predicts a text.
 * In: token ids.  Out: the number of predictions and the sum of their -log p, in nats. */
#include <math.h>

#include "lm/generate_int.h"

typedef struct {
    const uint32_t *next; /* what follows each token fed */
    size_t n, vocab;
    size_t bad;           /* the first token fed whose logits give no probability; SIZE_MAX: none */
    lm_score *sum;
} scoring;

static void score(void *user, size_t i, const float *logits)
{
    scoring *c = user;
    if (i >= c->n) return;
    double p = lm_logprob(logits, c->vocab, c->next[i]);
    if (!isfinite(p)) c->bad = MIN(c->bad, i);
    c->sum->nats -= p;
    c->sum->tokens++;
}

an_status lm_eval(lm_session *s, const uint32_t *ids, size_t n, void (*progress)(void *user, const lm_score *so_far),
                  void *user, lm_score *out, diag *d)
{
    size_t window = (size_t)lm_session_context(s);
    const unsigned char *may = lm_active(s->m);
    *out = (lm_score){ 0 };
    if (n < 2)
        return diag_fail(d, AN_INPUT, NOWHERE, "%zu token%s to predict from; at least 2 are wanted", n,
                         n == 1 ? "" : "s");
    for (size_t at = 0; at + 1 < n;) {
        size_t fed = MIN(window, n - 1 - at);
        scoring c = {
            .next = ids + at + 1, .n = fed, .vocab = (size_t)lm_session_config(s)->vocab, .bad = SIZE_MAX, .sum = out
        };
        for (size_t i = 0; i < fed; i++)
            if (c.next[i] >= c.vocab)
                return diag_fail(d, AN_INPUT, NOWHERE, "token %zu is %u, the model's vocabulary has %zu entries",
                                 at + 1 + i, c.next[i], c.vocab);
        for (size_t i = 0; may && i < fed; i++)
            if (!may[c.next[i]])
                return diag_fail(
                    d, AN_INPUT, NOWHERE,
                    "token %zu is %u, which did not occur in what this model was trained on: it was trained to choose among other tokens",
                    at + 1 + i, c.next[i]);
        lm_session_cut(s, 0);
        TRY(lm_session_feed_each(s, ids + at, fed, score, &c, d));
        if (c.bad != SIZE_MAX)
            return diag_fail(
                d, AN_INPUT, NOWHERE,
                "the logits behind token %zu, %u, are no numbers: the weights hold such, or a value passed the range of their type",
                at + c.bad, ids[at + c.bad]);
        at += fed;
        if (progress) progress(user, out);
    }
    return AN_OK;
}
