/* generate.c: a prompt continued token by token, until something ends it.
 * In: token ids and what ends the text.  Out: tokens as they are decided, with their text.
 *
 * Drafts. With the last token still to be fed, up to seven guesses are fed behind it in one run; each row of logits
 * then decides the next token by the same sampler, and goes on while the guess was that token. What was fed beyond
 * the first wrong guess is forgotten.
 *
 * Stop texts. A token is given out once its bytes cannot be the beginning of a stop text; the others wait. */
#include <stdlib.h>

#include "lm/generate_int.h"

static const char *const stop_names[] = { "length", "eos", "stop", "context", "caller" };
const char *lm_stop_name(lm_stop s) { return stop_names[s]; }

typedef struct {
    uint32_t id;
    size_t end; /* of its bytes in the waiting text */
    double logprob;
} waiting;

typedef struct {
    lm_session *s;
    const tokenizer *t;
    const lm_generate_options *o;
    lm_generated *out;
    lm_sampler *sampler;
    tok_ids ids;      /* prompt and what came after */
    tok_stream stream;
    strbuf text;      /* not given out yet */
    waiting *wait;
    size_t n_wait, cap_wait, given, max;
    int64_t bos, eos;
    bool over;
} run;

/* ---- giving tokens out ---- */

static bool push(run *r, waiting w)
{
    if (r->n_wait == r->cap_wait) {
        size_t cap = r->cap_wait ? 2 * r->cap_wait : 16;
        waiting *p = realloc(r->wait, cap * sizeof *p);
        if (!p) return false;
        r->wait = p, r->cap_wait = cap;
    }
    r->wait[r->n_wait++] = w;
    return true;
}

/* Tokens whose bytes end by `safe`. */
static void give(run *r, size_t safe)
{
    size_t from = 0, k = 0;
    for (; k < r->n_wait && r->wait[k].end <= safe && !(r->over && r->out->why == LM_STOP_CALLER); k++) {
        lm_token t = { .id = r->wait[k].id,
                       .index = r->given++,
                       .text = r->text.at ? r->text.at + from : "",
                       .n_text = r->wait[k].end - from,
                       .logprob = r->wait[k].logprob };
        from = r->wait[k].end;
        if (r->o->on_token && !r->o->on_token(r->o->user, &t)) r->over = true, r->out->why = LM_STOP_CALLER;
    }
    if (!k) return;
    memmove(r->wait, r->wait + k, (r->n_wait - k) * sizeof *r->wait);
    r->n_wait -= k;
    for (size_t i = 0; i < r->n_wait; i++) r->wait[i].end -= from;
    if (r->text.at) memmove(r->text.at, r->text.at + from, r->text.n - from);
    r->text.n -= from;
}

/* The first stop text in what waits; SIZE_MAX: none. */
static size_t find_stop(const run *r)
{
    size_t best = SIZE_MAX;
    for (size_t k = 0; k < r->o->n_stop; k++) {
        size_t n = strlen(r->o->stop[k]);
        for (size_t i = 0; n && i + n <= r->text.n && i < best; i++)
            if (!memcmp(r->text.at + i, r->o->stop[k], n)) best = i;
    }
    return best;
}

/* Where a stop text could begin that is not whole yet. */
static size_t safe_end(const run *r)
{
    for (size_t i = 0; i < r->text.n; i++)
        for (size_t k = 0; k < r->o->n_stop; k++) {
            size_t n = strlen(r->o->stop[k]), left = r->text.n - i;
            if (left < n && !memcmp(r->text.at + i, r->o->stop[k], left)) return i;
        }
    return r->text.n;
}

static void finish_text(run *r, lm_stop why)
{
    r->over = true, r->out->why = why;
}

/* One decided token: an end, or text. */
static an_status take(run *r, uint32_t id, double logprob, diag *d)
{
    bool ends = (int64_t)id == r->bos || (int64_t)id == r->eos;
    for (size_t i = 0; i < r->o->n_end; i++) ends |= r->o->end[i] == id;
    if (ends) {
        finish_text(r, LM_STOP_EOS);
        return AN_OK;
    }
    if (!tok_ids_push(&r->ids, id)) return diag_nomem(d);
    r->out->new_tokens++;
    if (r->t) TRY(tok_stream_put(r->t, &r->stream, id, 0, &r->text, d));
    if (r->text.oom || !push(r, (waiting){ id, r->text.n, logprob })) return diag_nomem(d);
    size_t at = r->o->n_stop ? find_stop(r) : SIZE_MAX;
    if (at != SIZE_MAX) { /* the text ends there, in the middle of a token perhaps */
        r->text.n = at;
        while (r->n_wait && (r->n_wait > 1 ? r->wait[r->n_wait - 2].end : 0) >= at) r->n_wait--, r->out->new_tokens--;
        if (r->n_wait) r->wait[r->n_wait - 1].end = at;
        finish_text(r, LM_STOP_STRING);
        return AN_OK;
    }
    give(r, r->o->n_stop ? safe_end(r) : r->text.n);
    if (!r->over && r->out->new_tokens >= r->max) finish_text(r, LM_STOP_LENGTH);
    return AN_OK;
}

/* ---- deciding tokens ---- */

static an_status decide(run *r, const float *logits, uint32_t *id, diag *d)
{
    TRY(lm_sample(r->sampler, logits, r->ids.at, r->ids.n, id, NULL, d));
    /* among all rows, as eval has it: also those that are never chosen */
    return take(r, *id, lm_logprob(logits, (size_t)lm_session_config(r->s)->vocab, *id), d);
}

static an_status plain_step(run *r, diag *d)
{
    const float *logits;
    uint32_t id = r->ids.at[r->ids.n - 1];
    TRY(lm_session_feed(r->s, &id, 1, &logits, d));
    return decide(r, logits, &id, d);
}

typedef struct {
    run *r;
    const uint32_t *guess;
    size_t n_guess, right;
    bool wrong;
    diag d;
} checking;

static void check_row(void *user, size_t i, const float *logits)
{
    checking *c = user;
    uint32_t id = 0;
    if (c->wrong || c->d.st || c->r->over) return;
    if (decide(c->r, logits, &id, &c->d)) return;
    if (i < c->n_guess && id == c->guess[i] && !c->r->over) c->right++;
    else c->wrong = true;
}

static an_status draft_step(run *r, diag *d)
{
    uint32_t fed[LM_EACH_TOKENS];
    /* the last token is not in the cache yet */
    size_t have = r->ids.n - 1, room = (size_t)lm_session_context(r->s) - r->ids.n, n = 0;
    /* a run decides one more than it guesses */
    size_t most = MIN(MIN(draft_most(&r->o->draft), room), r->max - r->out->new_tokens - 1);
    fed[0] = r->ids.at[r->ids.n - 1];
    if (most) TRY(draft_make(&r->o->draft, r->ids.at, r->ids.n, most, fed + 1, &n, d));
    if (!n) return plain_step(r, d);
    checking c = { .r = r, .guess = fed + 1, .n_guess = n };
    TRY(lm_session_feed_each(r->s, fed, n + 1, check_row, &c, d));
    if (c.d.st) return *d = c.d, d->st;
    r->out->drafted += n, r->out->accepted += c.right;
    lm_session_cut(r->s, have + 1 + c.right);
    return AN_OK;
}

/* The stream as it stands behind the prompt. */
static an_status read_prompt(run *r, const uint32_t *ids, size_t n, diag *d)
{
    strbuf shown = { 0 };
    an_status st = AN_OK;
    for (size_t i = 0; i < n && !st && r->t && !r->o->new_text; i++)
        st = tok_stream_put(r->t, &r->stream, ids[i], 0, &shown, d);
    r->stream.n_held = 0;
    sb_free(&shown);
    return st;
}

static an_status run_all(run *r, const uint32_t *ids, size_t n, diag *d)
{
    const float *logits;
    uint32_t id;
    lm_session_stats before, after;
    uint64_t t0 = clock_ns();
    lm_session_get_stats(r->s, &before);
    TRY(lm_session_sync(r->s, ids, n, &logits, d));
    lm_session_get_stats(r->s, &after);
    r->out->reused = (size_t)(after.reused - before.reused);
    uint64_t t1 = clock_ns();
    r->out->prompt_ms = (double)(t1 - t0) / 1e6;
    if (!r->max) finish_text(r, LM_STOP_LENGTH);
    else TRY(decide(r, logits, &id, d));
    while (!r->over) {
        if (r->ids.n > (size_t)lm_session_context(r->s)) finish_text(r, LM_STOP_CONTEXT);
        else if (draft_on(&r->o->draft)) TRY(draft_step(r, d));
        else TRY(plain_step(r, d));
    }
    if (r->t && r->n_wait && r->out->why != LM_STOP_STRING) { /* bytes of a character that never became whole */
        tok_stream_end(&r->stream, &r->text);
        r->wait[r->n_wait - 1].end = r->text.n;
    }
    give(r, SIZE_MAX);
    r->out->decode_ms = (double)(clock_ns() - t1) / 1e6;
    return r->text.oom ? diag_nomem(d) : AN_OK;
}

an_status lm_generate(lm_session *s, const tokenizer *t, const uint32_t *ids, size_t n, const lm_generate_options *o,
                      lm_generated *out, diag *d)
{
    *out = (lm_generated){ .prompt_tokens = n };
    run r = { .s = s, .t = t, .o = o, .out = out, .bos = -1, .eos = -1 };
    size_t choice = (size_t)lm_session_config(s)->vocab;
    if (t) {
        tok_info info;
        tok_get(t, &info);
        r.bos = info.bos, r.eos = info.eos;
        size_t all = choice;
        /* rows behind the last token spell nothing: of them only those that end a text may be chosen */
        choice = MIN(all, (size_t)info.n);
        for (size_t i = 0; i < o->n_end; i++) choice = MIN(all, MAX(choice, (size_t)o->end[i] + 1));
    }
    if (o->n_stop && !t) return diag_fail(d, AN_USAGE, NOWHERE, "stop texts need a tokenizer");
    if (o->max_tokens < -1)
        return diag_fail(d, AN_USAGE, NOWHERE, "max-tokens is %lld, wanted 0 or more, or -1", (long long)o->max_tokens);
    r.max = o->max_tokens < 0 ? SIZE_MAX : (size_t)o->max_tokens;
    TRY(draft_check(&o->draft, s, d));
    an_status st = lm_sampler_new(&o->sampling, choice, &r.sampler, d);
    for (size_t i = 0; i < n && !st; i++)
        if (!tok_ids_push(&r.ids, ids[i])) st = diag_nomem(d);
    if (!st) st = read_prompt(&r, ids, n, d);
    if (!st) st = run_all(&r, ids, n, d);
    lm_sampler_free(r.sampler);
    tok_ids_free(&r.ids);
    sb_free(&r.text);
    free(r.wait);
    return st;
}
