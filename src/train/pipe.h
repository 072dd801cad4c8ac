/* pipe.h: a language model being trained, whichever way its weights get onto the device.
 *
 *     pipeline *p;
 *     pipe_open(&p, &(pipe_options){ .pipeline = "delta", .dev = dev, .config = c, .batch = 1, .seq = 64, .train.optimizer = "adamw" }, &d);
 *     pipe_write(p, "l00_wq", DT_F32, w, &d); ...
 *     for (;;) pipe_step(p, tokens, lr, &report, &again, &d);
 *     pipe_read(p, "l00_wq", DT_F32, w, &d);
 *
 * Every way gives the same losses within the tolerance docs/training.md states: they differ in what is a program's
 * constant, input or state, never in the maths. Weights are named as decoder.h names its parameters ("embed",
 * "l00_wq", "norm_f"); what belongs to one ("l00_wq.m", "l00_wq.v") and the counters ("train.step") follow train.h,
 * so a checkpoint of one way opens in another of the same state form. */
#ifndef TRAIN_PIPE_H
#define TRAIN_PIPE_H

#include "model/model.h"
#include "train/train.h"

typedef struct pipeline pipeline;

typedef enum {
#define PIPE(id, name, what) PIPE_##id,
#include "train/pipes.def"
#undef PIPE
    PIPE_COUNT
} pipe_kind;
const char *pipe_name(pipe_kind k);
bool pipe_find(const char *name, pipe_kind *out); /* NULL: resident */

/* One thing that was done: for profiles. Times from clock_ns. lane: "device"; "host", the thread that works beside
 * it; "main", the thread that drives both, whose "wait" is for the host. */
typedef struct {
    const char *lane, *what;
    int layer; /* -1: none */
    uint64_t begin, end;
} pipe_event;

typedef struct {             /* zero means default */
    const char *pipeline;    /* NULL: "resident" */
    device *dev;             /* must outlive the pipeline */
    pool *pool;              /* for the host's work; NULL: the calling thread */
    const model_config *config; /* copied */
    int64_t batch, seq;      /* of a minibatch; seq 0: the config's */
    /* optimizer, momentum, betas, eps, decay, clip, accum, state, loss_scale, dynamic_scale …; graph, parameters and
     * device in it are ignored. State of the ways the host drives is fp32 on every device: two halves are no better and
     * mean the same, fp16 alone is refused */
    train_options train;
    /* a layer's activations are computed again in the backward pass: the same bits in less memory */
    bool recompute;
    void (*on_event)(void *user, const pipe_event *e); /* may be NULL; from the thread that did it */
    void *user;
} pipe_options;

/* AN_USAGE: no such pipeline. AN_UNSUPPORTED: the device cannot hold this model this way. Weights start at 0. */
an_status pipe_open(pipeline **out, const pipe_options *o, diag *d) MUST_CHECK;
void pipe_close(pipeline *p); /* NULL is fine */
pipe_kind pipe_kind_of(const pipeline *p);
/* one axis of the device holds it; else resident refuses the model */
bool pipe_whole_vocabulary(device *dev, const model_config *c);

/* tokens: [batch, seq + 1]; position t predicts token t + 1. One minibatch; the last of a group of train.accum
 * updates. AN_MISMATCH: it cannot recover; the message names the first tensor that went bad where that is known.
 * restart: r->applied may come with *again set: the state must be saved and the process started anew before the next
 * step; so may r->put_off, where a device that took no reload has no compiles left for this one. */
an_status pipe_step(pipeline *p, const int32_t *tokens, double lr, train_report *r, bool *again, diag *d) MUST_CHECK;
/* Mean loss in nats with the weights as they are; nothing moves. Not finite: pipe_inspect of the same tokens names the
 * first tensor that was not. */
an_status pipe_loss(pipeline *p, const int32_t *tokens, double *loss, diag *d) MUST_CHECK;

/* ---- looking ---- */
typedef struct {
    uint64_t nan, pos, neg; /* numbers that are not finite, by kind */
} pipe_bad;
typedef struct {
    pipe_bad activations, gradients, weights; /* activations: of every program's results, up and down the layers */
    /* the first tensor that is not finite: "x of l01_fwd_ffn", "the weight l00_wq", "the gradient of embed"; "": all
     * are finite */
    char first[96];
    char unknown[200];           /* why gradients could not be looked at; "": they were */
    double loss_scale;
    /* of a kind of weight, over all layers; NAN: the model has none, or it is not known */
    double weight_norm[MW_COUNT], grad_norm[MW_COUNT];
} pipe_seen;
/* Weights as they are and the gradients of this minibatch at this loss scale, a forward and a backward pass on the
 * side. Between two calls of pipe_step, and nothing moves. What the last step or loss itself found is counted as well:
 * a fault need not come a second time. */
an_status pipe_inspect(pipeline *p, const int32_t *tokens, double loss_scale, pipe_seen *out, diag *d) MUST_CHECK;
an_status pipe_weights_finite(pipeline *p, diag *d) MUST_CHECK; /* AN_MISMATCH: no, so no update ever will be */
/* Lines for a log, without their end. */
void pipe_bad_json(strbuf *b, int64_t step, double loss, const pipe_seen *s);
/* the gradient is 0 everywhere, and all is finite */
void pipe_zero_json(strbuf *b, int64_t step, double loss, double loss_scale);
void pipe_norms_json(strbuf *b, int64_t step, const pipe_seen *s);

/* "l00_wq", "embed": how states call a weight of the model. */
void pipe_weight_name(model_weight_id id, int layer, char *buf, size_t n);

/* ---- state: everything a run needs to go on bit for bit ---- */
size_t pipe_state_count(const pipeline *p);
void pipe_state_at(const pipeline *p, size_t i, train_state_info *out);
an_status pipe_write(pipeline *p, const char *name, dtype dt, const void *data, diag *d) MUST_CHECK;
an_status pipe_read(pipeline *p, const char *name, dtype dt, void *data, diag *d) MUST_CHECK;
/* As train_save and train_load: one safetensors file, the caller's notes in its metadata. */
an_status pipe_save(pipeline *p, const char *path, const train_note *note, size_t n_note, diag *d) MUST_CHECK;
an_status pipe_load(pipeline *p, const char *path, train_note *note, size_t n_note, arena *mem, diag *d) MUST_CHECK;

typedef struct {
    train_stats train;
    uint64_t compiles, reloads, restarts_wanted, canaries, dispatches;
    uint64_t bytes; /* memory of the pipe itself: weights, moments, activations */
    bool packed;    /* dynamic: one input per program, weights beside activations */
    /* of these, what a minibatch is worked out in: activations and what programs need beside their ports */
    uint64_t work_bytes;
} pipe_stats;
void pipe_get_stats(pipeline *p, pipe_stats *out);

#endif
