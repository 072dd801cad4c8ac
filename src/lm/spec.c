/* spec.c: drafts of what comes next: by a smaller model, or by looking where the latest tokens stood before. In:
 * every token so far.  Out: tokens that may follow. They are checked by the model itself, so a bad draft costs time
 * only. */
#include "lm/generate_int.h"

enum { DRAFT_TOKENS = 4 };

size_t draft_most(const lm_draft *o)
{
    return (size_t)MIN(o->tokens > 0 ? o->tokens : DRAFT_TOKENS, LM_EACH_TOKENS - 1);
}
bool draft_on(const lm_draft *o) { return o->model || o->lookup > 0; }

an_status draft_check(const lm_draft *o, const lm_session *s, diag *d)
{
    if (o->lookup < 0 || o->tokens < 0)
        return diag_fail(d, AN_USAGE, NOWHERE, "%s is %d, wanted 0 or more", o->lookup < 0 ? "lookup" : "draft-tokens",
                         o->lookup < 0 ? o->lookup : o->tokens);
    if (o->model && lm_session_config(o->model)->vocab != lm_session_config(s)->vocab)
        return diag_fail(d, AN_INPUT, NOWHERE, "the draft model has a vocabulary of %lld, the model one of %lld",
                         (long long)lm_session_config(o->model)->vocab, (long long)lm_session_config(s)->vocab);
    return AN_OK;
}

/* What followed the latest place where the last `n` tokens, or fewer, stood before. */
static size_t look_up(const uint32_t *ids, size_t n, size_t longest, size_t most, uint32_t *to)
{
    for (size_t len = MIN(longest, n ? n - 1 : 0); len > 0; len--)
        for (size_t at = n - len; at-- > 0;) {
            if (memcmp(ids + at, ids + n - len, len * sizeof *ids)) continue;
            size_t count = MIN(most, n - at - len);
            memcpy(to, ids + at + len, count * sizeof *to);
            return count;
        }
    return 0;
}

static an_status by_model(lm_session *s, const uint32_t *ids, size_t n, size_t most, uint32_t *to, size_t *count,
                          diag *d)
{
    const float *logits;
    size_t vocab = (size_t)lm_session_config(s)->vocab;
    *count = 0;
    /* the draft model sees less: it has nothing to say any more */
    if (n + most > (size_t)lm_session_context(s)) return AN_OK;
    TRY(lm_session_sync(s, ids, n, &logits, d));
    for (;;) {
        uint32_t best = 0;
        for (size_t i = 1; i < vocab; i++)
            if (logits[i] > logits[best]) best = (uint32_t)i;
        to[(*count)++] = best;
        if (*count == most) return AN_OK;
        TRY(lm_session_feed(s, &best, 1, &logits, d));
    }
}

an_status draft_make(const lm_draft *o, const uint32_t *ids, size_t n, size_t most, uint32_t *to, size_t *count,
                     diag *d)
{
    *count = 0;
    if (!most) return AN_OK;
    if (o->model) return by_model(o->model, ids, n, most, to, count, d);
    *count = look_up(ids, n, (size_t)MAX(o->lookup, 0), most, to);
    return AN_OK;
}
