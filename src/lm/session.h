/* session.h: a model on a device: tokens in, logits out.
 *
 *     lm_session *s;
 *     lm_session_open(m, &(lm_session_options){ .engine = "cpu" }, &s, d);
 *     lm_session_sync(s, prompt, n, &logits, d);              the prompt, less what the session has already seen
 *     lm_session_feed(s, &next, 1, &logits, d); ...           token by token
 *     lm_session_close(s);
 *
 * The key/value cache is resident: each step writes its own rows in place. A run of tokens is cut into the program
 * sizes there are (one token, then buckets of 32 to 1024); a program is built when it is first needed and kept, in
 * the process and, compiled, on disk. On a chip the whole model is one program where the chip takes it, else as few
 * runs of layers as it forces. A session is used by one thread at a time; the model must outlive it. */
#ifndef LM_SESSION_H
#define LM_SESSION_H

#include "device/device.h"
#include "lm/lm.h"

typedef struct lm_session lm_session;

enum { LM_CONTEXT = 4096, LM_BUCKET_MIN = 32, LM_BUCKET_MAX = 1024 };

typedef struct {           /* zero means default */
    const char *engine;    /* a device string; NULL: the best one present */
    device *dev;           /* or a device of the caller's, which must outlive the session */
    int threads;           /* 0: as the device decides */
    int64_t context;       /* positions of the cache; 0: the model's, at most LM_CONTEXT */
    int64_t bucket_max;    /* largest program for prompts; 0: LM_BUCKET_MAX */
    /* of compiled programs; AN_INPUT when it cannot be one. NULL: where device.h puts them, or in memory */
    const char *cache_dir;
    bool no_cache;         /* compile every time */
} lm_session_options;

/* AN_UNSUPPORTED: the device refuses a single layer; its words are in the message. */
an_status lm_session_open(lm_model *m, const lm_session_options *o, lm_session **out, diag *d) MUST_CHECK;
void lm_session_close(lm_session *s); /* NULL is fine */

const model_config *lm_session_config(const lm_session *s);
int64_t lm_session_context(const lm_session *s);                 /* positions the cache holds */
device *lm_session_device(const lm_session *s);
const char *lm_session_remark(const lm_session *s); /* what did not go as usual when it was opened; "": nothing */

/* Forget everything from position n on. */
void lm_session_cut(lm_session *s, size_t n);
/* Append n tokens; logits of the last one, one for each entry of the vocabulary, valid until the next call.
 * AN_INPUT: an id past the vocabulary, or more positions than the cache holds: the message has both numbers. Nothing
 * is appended then. */
an_status lm_session_feed(lm_session *s, const uint32_t *ids, size_t n, const float **logits, diag *d) MUST_CHECK;
/* The same with the logits of every token: each(user, i, logits of ids[i]), in order. */
typedef void lm_each_fn(void *user, size_t i, const float *logits);
an_status lm_session_feed_each(lm_session *s, const uint32_t *ids, size_t n, lm_each_fn *each, void *user, diag *d)
    MUST_CHECK;
/* Make the cache hold exactly these n >= 1 tokens, computing only what follows the longest common beginning. */
an_status lm_session_sync(lm_session *s, const uint32_t *ids, size_t n, const float **logits, diag *d) MUST_CHECK;

typedef struct {
    uint64_t reused;                       /* tokens that sync found in the cache */
    uint64_t computed, steps;              /* tokens, and dispatches of whole models */
    uint64_t programs, parts;              /* built so far; parts: device programs */
    uint64_t compiles, cache_hits;         /* of the device */
    uint64_t weight_bytes, cache_bytes;    /* as the device holds them */
    double build_ms;                       /* text, compiling, loading */
    uint64_t cache_bad; /* compiled programs in the cache that were damaged, or somebody else's, and were made again */
} lm_session_stats;
void lm_session_get_stats(const lm_session *s, lm_session_stats *out);

#endif
