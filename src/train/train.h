/* train.h: training as one program per step on a device.
 *
 *     trainer *t;
 *     train_param p[] = { { .name = "w", .decay = true }, { .name = "b" } };
 *     train_open(&t, g, &(train_options){ .engine = "soft:m1", .loss = loss, .param = p, .n_param = 2, .optimizer = "adam" }, &d);
 *     train_write(t, "w", DT_F32, w0, &d); ...
 *     for (;;) { train_put(t, "x", DT_F32, x, &d); ... train_step(t, lr, &r, &d); }
 *     train_read(t, "w", DT_F32, w, &d);
 *
 * The user's graph (inputs, parameters among them, a loss) is copied; loss, gradients and the optimizer's update
 * become one program. Weights, moments and the step count stay on the device. On a chip every state has two
 * surfaces: a dispatch reads one and writes the other, and the two change places when the step counts. In fp32 a
 * state has one, written over in place, and the program keeps the old number where loss or gradients are not finite.
 * Either way such a step leaves every bit of the state as it was; only the loss scale moves. Per step the host sends
 * the minibatch and a short row of numbers (learning rate first), and reads the loss and the size of the gradients.
 *
 * Numbers. On a chip everything is fp16: moments and gradients stay multiplied by the loss scale, and the learning
 * rate the host sends absorbs it. On `cpu` the tensors keep the graph's types, and weights and moments are fp32
 * whatever the graph computes in. TRAIN_HALVES keeps each weight and second moment as two fp16 numbers hi + lo/2048:
 * updates below hi's last bit add up in lo.
 *
 * The same graph, data and options give the same bits on every run. */
#ifndef TRAIN_TRAIN_H
#define TRAIN_TRAIN_H

#include "device/device.h"
#include "grad/grad.h"
#include "graph/graph.h"

typedef struct trainer trainer;

typedef enum {
#define OPTIM(id, name, slots, moment1, moment2, decoupled, lr, what) OPTIM_##id,
#include "train/optim.def"
#undef OPTIM
    OPTIM_COUNT
} train_optimizer;

typedef enum {
    TRAIN_STATE_DEFAULT, /* fp16 on chips, fp32 elsewhere */
    TRAIN_F16,
    TRAIN_HALVES,        /* fp16 pairs */
    TRAIN_F32,
} train_state_form;

typedef enum {
    TRAIN_COPIES_DEFAULT, /* where weights are too many to stay in the caches */
    TRAIN_COPIES_NEVER,
    TRAIN_COPIES_ALWAYS,
} train_copies;

typedef struct {
    const char *name; /* of a graph input */
    bool decay;       /* weight decay applies: matrices, not norms and biases */
} train_param;

typedef struct {
    const char *name; /* how train_fetch calls it */
    val v;            /* of the user's graph */
} train_fetched;

enum { TRAIN_MAX_FETCH = 16 };

typedef struct {               /* zero means default */
    const char *engine;        /* device string; NULL: the best one present */
    device *dev;               /* or an open device, which must outlive the trainer */
    device_options device;     /* used when the trainer opens the device itself (threads, fast_math, cache …) */
    val loss;                  /* one float of the graph */
    const train_param *param;
    size_t n_param;
    const train_fetched *fetch; /* values train_eval computes, from the weights as they are */
    size_t n_fetch;
    const char *optimizer;     /* a row of optim.def; NULL: "sgd" */
    double momentum;           /* 0: 0.9 */
    double beta1, beta2, eps;  /* 0: 0.9, 0.999, 1e-8 */
    double decay;              /* weight decay: AdamW's decoupled, in the gradient for the others. 0: none */
    double clip;               /* largest norm of all gradients together; 0: none */
    int accum;                 /* minibatches per update; 0: 1 */
    train_state_form state;
    grad_conv_form conv_weight;
    /* 0: 1024 on chips, 1 elsewhere; AN_INPUT: no number of the loss's type, or of what it is sent in */
    double loss_scale;
    /* halve it after a step that overflowed, double it after grow_after good ones; where gradients are 0, look for one
     * where they are not */
    bool dynamic_scale;
    int grow_after;            /* 0: 200 */
    /* updates that end the training where none between them counts: skipped ones; those without a gradient, at a fixed
     * scale; 0: 32 */
    int max_skipped;
    /* n_keep values of the graph in the order in which they are made: what lies between them is computed again in the
     * backward pass instead of being held for it (grad.h). Same bits, less memory, more work */
    const val *keep;
    size_t n_keep;
    /* where products round weights to bf16: may they read copies that are rounded already? Same bits, two bytes more
     * per weight */
    train_copies copies;
    /* a parameter that does not reach the loss is a warning and stays as it is, not an error */
    bool freeze_unreached;
    int level;                 /* of the passes: 0 default (all), -1 legalisation only */
    void (*warn)(void *user, const char *line); /* may be NULL */
    void *user;
} train_options;

/* Why a step was not taken over. NOTHING: on a chip the gradient is 0 everywhere: infinities that cancelled, numbers
 * too small for fp16, or no more to learn. CANCELLED: the same, and somebody who could look found the infinities. */
typedef enum { VERDICT_FINE, VERDICT_LOSS, VERDICT_GRADIENT, VERDICT_SQUARE, VERDICT_NOTHING, VERDICT_STATE,
               VERDICT_CANCELLED } train_verdict;
const char *train_verdict_text(train_verdict v); /* what is not finite: "the loss" …; of NOTHING "no gradient" */

/* What one call of train_step did. */
typedef struct {
    double loss;       /* of this minibatch, not scaled; not finite when the dispatch overflowed */
    double grad_norm;  /* of the update's gradient, not scaled, before clipping; NAN while accumulating */
    double lr, loss_scale;
    bool finite;       /* and not 0 everywhere on a chip */
    train_verdict verdict; /* finite: FINE */
    bool applied;      /* the weights moved. false: accumulating, skipped, or without a gradient */
    bool put_off;      /* pipelines: nothing was done, and the same minibatch is wanted again in a new process */
    uint64_t step;     /* updates so far */
    uint64_t skipped;  /* updates that were skipped so far: something was not finite */
    uint64_t zeros;    /* updates so far whose gradient was 0 everywhere: nothing was applied */
} train_report;

typedef struct {
    uint64_t steps, skipped, zeros, minibatches;
    /* minibatches that were dispatched since it was opened: not the rest of a group that had overflowed */
    uint64_t ran;
    uint64_t dispatches;                         /* of this trainer's step programs */
    uint64_t host_bytes_in, host_bytes_out;      /* per minibatch, as the device counted them in the last one */
    uint64_t state_bytes;                        /* resident numbers: one copy */
    size_t n_params, n_states;
    int64_t n_numbers;                           /* trained */
    double loss_scale;
    double compile_ms;
} train_stats;

/* g is read, never changed, and may be freed afterwards. On return every weight is 0: train_write sets them.
 *   AN_INPUT  the loss is not one float; a parameter is no float input, or does not reach the loss (the message names it);
 *             an option out of range
 *   AN_USAGE  an unknown optimizer; products in bf16 (device.fast_math) on a device with its own arithmetic
 *   AN_UNSUPPORTED  an operation without gradient, or one the device does not take */
an_status train_open(trainer **out, const graph *g, const train_options *o, diag *d) MUST_CHECK;
void train_close(trainer *t); /* NULL is fine */
const char *train_optimizer_name(const trainer *t);
/* MIL text of the step program, borrowed until train_close. */
const char *train_program_text(const trainer *t);

/* Data of a batch input by the name it has in the user's graph, in any float or int type; it stays until it is put
 * again. Numbers that are not finite are refused with their index: on a chip they would come out as something else. */
an_status train_put(trainer *t, const char *name, dtype dt, const void *data, diag *d) MUST_CHECK;
/* One minibatch: accumulates, or updates when it is the last of a group. lr is the plain learning rate. AN_MISMATCH:
 * max_skipped updates were not finite, and none between them was taken over: gradients of 0 may lie there.
 * Or as many in a row were without a gradient at a fixed loss scale and a loss that is not 0. */
an_status train_step(trainer *t, double lr, train_report *r, diag *d) MUST_CHECK;
/* The fetched values for the batch inputs as they are. Inputs the fetched values do not need may stay unset. */
an_status train_eval(trainer *t, diag *d) MUST_CHECK;
/* Of the last train_eval; AN_INPUT before the first. */
an_status train_fetch(trainer *t, const char *name, dtype dt, void *data, diag *d) MUST_CHECK;
void train_get_stats(trainer *t, train_stats *out);
void train_print_stats(trainer *t, strbuf *b, const char *format); /* "text" or "json": one line */

/* ---- state ---- */
typedef struct {
    const char *name; /* "w", "w.lo", "w.m", "w.v", "w.acc", "train.step" …: unique, stable */
    const char *param; /* the parameter it belongs to; NULL for counters */
    ttype type;
} train_state_info;
size_t train_state_count(const trainer *t);
void train_state_at(const trainer *t, size_t i, train_state_info *out);
/* A parameter or any other state, converted. For a parameter in two halves, writing sets both and reading gives
 * their sum. */
an_status train_write(trainer *t, const char *name, dtype dt, const void *data, diag *d) MUST_CHECK;
an_status train_read(trainer *t, const char *name, dtype dt, void *data, diag *d) MUST_CHECK;
/* After a step that was not taken over: the first state it would have left with a number that is not finite; sums: the
 * first sum of gradients. Name NULL: none, or what it wrote is not to be seen (cpu, which keeps the old numbers by a
 * selection). */
an_status train_spoilt(trainer *t, bool sums, train_state_info *out, diag *d) MUST_CHECK;

/* Everything a run needs to go on bit for bit: every state, counters, the loss scale and its history. extra: the
 * caller's own "key", "value" pairs (data position, seed …), NULL-terminated keys; NULL: none. The file is
 * safetensors: Python opens it. */
typedef struct {
    const char *key, *value;
} train_note;
/* Between updates: in the middle of a group of minibatches saving, loading and a snapshot are AN_INPUT. */
an_status train_save(trainer *t, const char *path, const train_note *note, size_t n_note, diag *d) MUST_CHECK;
/* Names, shapes and types must be this trainer's; on failure nothing has changed. notes: filled for the keys given
 * (value lives in *mem; NULL when the file has none). */
an_status train_load(trainer *t, const char *path, train_note *note, size_t n_note, arena *mem, diag *d) MUST_CHECK;
/* What would be saved, for who compares; equal for equal states of equal trainers. */
an_status train_snapshot(trainer *t, strbuf *out, diag *d) MUST_CHECK;

/* ---- learning rates over a run ---- */
typedef enum {
#define SCHEDULE(id, name, what) SCHEDULE_##id,
#include "train/schedule.def"
#undef SCHEDULE
    SCHEDULE_COUNT
} train_schedule_kind;
typedef struct {
    train_schedule_kind kind;
    double lr, lr_end;      /* peak, and the fraction of it that is left at the end */
    int64_t warmup, steps;
} train_schedule;
double train_schedule_lr(const train_schedule *s, int64_t step); /* of update number `step`, from 0 */
/* NULL: cosine; AN_USAGE lists those that are known */
an_status train_schedule_find(const char *name, train_schedule_kind *out, diag *d) MUST_CHECK;
/* what was asked to be left of the rate; 0: nothing was asked for, below: nothing is to be left. AN_USAGE: it is no
 * fraction, or the rate never falls */
an_status train_schedule_end(train_schedule_kind kind, double end, diag *d) MUST_CHECK;
/* of a warm-up that lasts as long as the run: the rate never falls, or does not get to its peak */
void train_schedule_warn(const train_schedule *s, void (*warn)(void *user, const char *line), void *user);
bool train_optimizer_find(const char *name, train_optimizer *out);
double train_optimizer_lr(train_optimizer k); /* a rate to start from */
const char *train_schedule_at(size_t i);

#endif
