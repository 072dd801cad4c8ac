/* generate.h: text from a session: sampling, stopping, drafts, chat templates, perplexity.
 *
 * Reproducible: the same model, device, prompt and options give the same tokens. Every token takes one number from
 * the generator, whether it is greedy or not and whether a draft was right or not, so drafts change the time and
 * nothing else. */
#ifndef LM_GENERATE_H
#define LM_GENERATE_H

#include "base/rng.h"
#include "lm/session.h"
#include "text/text.h"

/* ---- one token from logits ---- */
typedef struct {        /* zero means greedy */
    double temperature; /* 0: the largest logit, the first among equals */
    int64_t top_k;      /* the k largest; 0: all */
    double top_p;       /* the fewest whose probabilities reach p; 0 or 1: all */
    double min_p;       /* those with at least min_p times the largest probability; 0: all */
    double repetition;  /* logits of tokens seen are divided (if positive) or multiplied by it; 0 or 1: no */
    uint64_t seed;
} lm_sampling;

lm_sampling lm_suggested(const lm_generation *g); /* what a model's files ask for; greedy where they say nothing */

typedef struct lm_sampler lm_sampler;
/* AN_USAGE names the option, its value and what is wanted. */
an_status lm_sampling_check(const lm_sampling *o, diag *d) MUST_CHECK;
an_status lm_sampler_new(const lm_sampling *o, size_t vocab, lm_sampler **out, diag *d) MUST_CHECK;
void lm_sampler_free(lm_sampler *s); /* NULL is fine */
/* seen: tokens before this one, for the repetition penalty. *logprob (may be NULL): log of the model's own
 * probability of the token, before penalty, temperature and cuts. AN_INPUT: a logit that is not a number. */
an_status lm_sample(lm_sampler *s, const float *logits, const uint32_t *seen, size_t n_seen, uint32_t *id,
                    double *logprob, diag *d) MUST_CHECK;
double lm_logprob(const float *logits, size_t n, uint32_t id); /* log softmax, in double */

/* ---- drafts: tokens that are probably next, checked several at a time ---- */
typedef struct {
    lm_session *model;  /* a smaller model of the same vocabulary; NULL: none */
    int lookup;         /* or: what followed the last occurrence of the latest 1 to `lookup` tokens; 0: no */
    int tokens;         /* most of a draft; 0: 4 */
} lm_draft;

/* ---- generation ---- */
typedef struct {
    uint32_t id;
    size_t index;      /* 0: the first new one */
    /* bytes it adds to the text; may end before its last character does, which then comes with a later one */
    const char *text;
    size_t n_text;
    double logprob;
} lm_token;

typedef enum { LM_STOP_LENGTH, LM_STOP_EOS, LM_STOP_STRING, LM_STOP_CONTEXT, LM_STOP_CALLER } lm_stop;
const char *lm_stop_name(lm_stop s); /* "length", "eos", "stop", "context", "caller" */

typedef struct {                  /* zero means default */
    lm_sampling sampling;
    int64_t max_tokens;           /* new ones; 0: none; -1: to the end of the context */
    const char *const *stop;      /* texts that end it; they are not part of the result */
    size_t n_stop;
    const uint32_t *end;          /* token ids that end it, as EOS does */
    size_t n_end;
    lm_draft draft;
    /* what comes is a text of its own, an answer: a space that only marks its beginning is left out. Otherwise it goes
     * on where the prompt ends */
    bool new_text;
    /* in order, as soon as no stop text can begin in it; false: stop */
    bool (*on_token)(void *user, const lm_token *t);
    void *user;
} lm_generate_options;

typedef struct {
    size_t prompt_tokens, new_tokens;   /* new_tokens: without the token that ended it */
    size_t reused;                      /* of the prompt, found in the cache */
    size_t drafted, accepted;
    double prompt_ms, decode_ms;
    lm_stop why;
} lm_generated;

/* Continues ids. t may be NULL: no text then, and no stop texts. BOS and EOS of the tokenizer end it. A prompt that
 * does not fit the context is AN_INPUT with both numbers. */
an_status lm_generate(lm_session *s, const tokenizer *t, const uint32_t *ids, size_t n, const lm_generate_options *o,
                      lm_generated *out, diag *d) MUST_CHECK;

/* ---- chat ---- */
typedef enum { CHAT_PLAIN, CHAT_CHATML, CHAT_LLAMA2, CHAT_LLAMA3, CHAT_MISTRAL, CHAT_GEMMA, CHAT_KINDS } lm_chat;
const char *lm_chat_name(lm_chat c);
/* template: Jinja text of the model, or one of the names above; NULL: plain. AN_INPUT: a template that is none of
 * the known ones. */
an_status lm_chat_find(const char *template, lm_chat *out, diag *d) MUST_CHECK;

typedef enum { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT } lm_role;
typedef struct {
    lm_role role;
    const char *text;
    size_t n;
} lm_message;
/* Messages as tokens, ready for the assistant's next words. Control tokens come from the template alone, never from
 * a message. */
an_status lm_chat_encode(lm_chat c, const char *template, const tokenizer *t, tok_encoder *e, const lm_message *m,
                         size_t n, tok_ids *out, diag *d) MUST_CHECK;
/* The token that ends an assistant's turn besides EOS; -1: none. */
int64_t lm_chat_end(lm_chat c, const tokenizer *t);

/* ---- perplexity ---- */
typedef struct {
    size_t tokens;   /* predictions */
    double nats;     /* their sum of -log p */
} lm_score;
/* Windows of the session's context, back to back, each token predicted once: the last token of a window begins the
 * next. */
an_status lm_eval(lm_session *s, const uint32_t *ids, size_t n, void (*progress)(void *user, const lm_score *so_far),
                  void *user, lm_score *out, diag *d) MUST_CHECK;

#endif
