/* lm_run.h: a language model trained on text, from the first batch to the last checkpoint.
 * In: names and numbers.  Out: a report per update, losses on text kept back, samples, checkpoints.
 *
 * The same options and seed give the same bits, straight through or in pieces: everything the next update depends on
 * is in a checkpoint, and a skipped update uses up its data and its learning rate. */
#ifndef TRAIN_LM_RUN_H
#define TRAIN_LM_RUN_H

#include "lm/lm.h"
#include "text/shard.h"
#include "train/pipe.h"

typedef struct {
    int64_t step, steps;  /* updates tried, this one included */
    double loss, smooth;  /* mean of the update's minibatches; smoothed over about 20 */
    double lr, grad_norm, loss_scale;
    uint64_t skipped;     /* updates, so far */
    uint64_t zeros;       /* updates so far whose gradient was 0 everywhere: nothing was applied */
    bool applied;
    int64_t tokens;       /* of this update */
    double ms, data_ms;   /* of the whole update; of getting its tokens */
    /* what the lanes of the pipeline say: the first two overlap, the last is the device's thread waiting for the
     * host's */
    double device_ms, host_ms, wait_ms;
} lm_progress;

typedef struct {             /* zero means default */
    const char *model;       /* preset, config.json, or a model to continue (lm_open); NULL: "tiny" */
    /* for text (lm_tokenizer_open); NULL: a trained model's own (lm_tokenizer_of); for a seed's, on the stories,
     * theirs */
    const char *tokenizer;
    const char *data;        /* shards, text files (data_find), "builtin:stories"; NULL: the stories */
    /* where documents of text end; anything but DOCS_AUTO is refused with ids and stories, which have their own */
    docs_rule docs;
    const char *engine;      /* NULL: the best one present */
    const char *pipeline;
    device_options device;
    int64_t steps;           /* 0: 300 */
    int64_t batch, seq;      /* 0: 8, the config's */
    int accum;
    double lr, lr_end;       /* 0: 3e-3 below a million numbers … 3e-4 above a hundred million; 0.1; lr_end -1: 0 */
    const char *schedule;    /* NULL: cosine */
    int64_t warmup;          /* 0: 20, or a tenth of the steps if that is less; -1: none */
    double decay, clip;      /* 0: 0.1 and 1; -1: none */
    const char *optimizer;   /* NULL: adamw */
    double loss_scale;
    bool dynamic_scale;
    train_state_form state;
    uint64_t seed;
    double validation;       /* share of the data kept back; 0: 0.02, -1: none */
    /* updates between losses on its first 64 windows, or all of fewer; 0: none but the last. AN_USAGE: nothing is kept
     * back */
    int64_t eval_every;
    int64_t sample_every;    /* updates between samples; 0: none but the last; -1: none */
    int64_t sample_tokens;   /* 0: 80. Anything about samples but -1 is refused where there is no tokenizer */
    const char *prompt;      /* of samples; NULL: the beginning of a text. AN_USAGE: too long for one */
    const char *save;        /* folder of checkpoints; NULL: none */
    int64_t save_every;      /* updates; 0: 100 */
    int keep;
    double residual;         /* residual branches are multiplied by it; 0: 1; -1: 1/sqrt(2 layers) */
    double softcap;          /* logits become softcap * tanh(logits / softcap); 0: as the model says */
    bool zero_init;          /* the matrices that end residual branches start at 0 */
    bool compact_vocab;      /* train rows of tokens that occur in the data, and choose among those */
    /* activations of a layer are computed again instead of being held: less memory, same bits. Tried by itself, with a
     * warning, where there is no memory for the first update without it */
    bool recompute;
    int64_t stats_every;     /* updates between norms of weights and gradients (on_note); 0: none */
    bool resume;             /* go on from the newest checkpoint in save. Without it a folder that has one is refused */
    bool must_resume;        /* and there must be one: where there is none, the run does not begin */
    void (*on_progress)(void *user, const lm_progress *p);
    void (*on_eval)(void *user, int64_t step, double loss); /* one that is not finite is a note and a warning instead */
    /* whether on_eval was called with the loss of an update before this process, which then is not looked for again;
     * NULL: what a checkpoint cannot say is not known */
    bool (*is_told)(void *user, int64_t step);
    void (*on_sample)(void *user, int64_t step, const char *text, size_t n);
    /* JSON: "kind":"nonfinite" for an update that was, "zero" for one without a gradient, "statistics" every
     * stats_every, "validation" for a loss on text kept back that is not finite */
    void (*on_note)(void *user, const char *line);
    void (*on_event)(void *user, const pipe_event *e);
    /* asked between updates: true ends the run as if it were whole, with a checkpoint. Asked as well while text kept
     * back is looked at and a sample is written: the checkpoint is then written at once, and they are finished */
    bool (*stop)(void *user);
    void (*warn)(void *user, const char *line);
    void *user;
} lm_run_options;

typedef struct {
    char model[64], data[160], engine[40], pipeline[16], optimizer[16];
    int64_t steps, done, batch, seq, vocab, parameters; /* vocab, parameters: of what is trained */
    uint64_t tokens, validation_samples;
    double loss, smooth, validation; /* NAN: none */
    bool stopped, again;             /* asked to stop; the process must start itself anew to go on (restart) */
    uint64_t digest;                 /* of every state's bits at the end; 0: it did not come to that */
    double seconds;
    pipe_stats stats;
} lm_run_result;

/* AN_MISMATCH: it diverged; the newest checkpoint is from before the row of skipped updates it ended with. Or the
 * last update left a weight that is not finite. What cannot be saved is a warning until the end, and then AN_INPUT. */
an_status lm_run(const lm_run_options *o, lm_run_result *out, diag *d) MUST_CHECK;

#endif
