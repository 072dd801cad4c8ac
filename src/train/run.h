/* run.h: a network of model/net.h trained on a data set of train/digits.h, from the first minibatch to the last
 * accuracy. In: names and numbers.  Out: log lines, accuracies, a checkpoint. The same options and seed give the
 * same bits on every run, also when it was interrupted at a checkpoint and resumed. */
#ifndef TRAIN_RUN_H
#define TRAIN_RUN_H

#include "train/train.h"

typedef struct {            /* zero means the network's own default */
    const char *model;      /* a row of model/nets.def */
    const char *data;       /* as train_data_open takes it; NULL: the built-in data of the network's task */
    const char *engine;
    const char *pipeline;   /* NULL or "resident" */
    device_options device;
    int64_t steps, batch, seq;
    double lr, lr_end;      /* lr_end: what is left of lr at the end, a fraction; -1: nothing */
    const char *schedule;   /* NULL: cosine */
    int64_t warmup;         /* -1: none */
    const char *optimizer;
    double decay;           /* -1: none */
    double clip;
    int accum;
    /* 0 with dynamic_scale unset: 1 on plain devices; the network's on chips, and dynamic when squares are kept */
    double loss_scale;
    bool dynamic_scale;
    train_state_form state;
    uint64_t seed;
    int64_t every;          /* steps between accuracies; 0: 50, -1: none before the end */
    int64_t test;           /* test samples of those accuracies; 0: 1000 */
    int64_t final_test;     /* of the last one; 0: all, -1: none */
    /* checkpoint files. A file goes on under the settings it was written with, or not at all */
    const char *save, *resume;
    int64_t stop_after;     /* updates of this call; 0: all that are left */
    /* everything is set up, the first update follows. Not AN_OK: it ends here with that */
    an_status (*on_start)(void *user);
    void (*on_log)(void *user, const char *json);                   /* a line per update, without a newline */
    void (*on_accuracy)(void *user, int64_t step, double accuracy); /* every `every` steps, step 0 included */
    void (*warn)(void *user, const char *line);
    int (*stop)(void *user); /* asked after every update: true ends the run there, with a checkpoint */
    void *user;
} train_run_options;

enum { TRAIN_RUN_TRACE = 256 };

typedef struct {
    char model[24], data[160], engine[40], optimizer[16];
    int64_t steps, batch;
    int64_t first, done;                 /* updates tried before this call and at its end */
    bool stopped;                        /* by stop_after or stop, before the last one */
    int64_t n_train, n_test;
    double loss;                         /* of the last update that counted; NAN: none did */
    struct {
        int64_t step;
        double accuracy;
    } trace[TRAIN_RUN_TRACE];            /* the first ones */
    int n_trace;
    double final_accuracy;               /* over final_n samples; NAN: not asked for */
    int64_t final_n;
    uint64_t digest;                     /* of every weight's bits at the end; 0: there was no end */
    double seconds;                      /* of the steps, accuracies not counted */
    train_stats stats;
} train_run_result;

/* AN_USAGE: an unknown name, a number that cannot be or would have no effect, a checkpoint past the last step;
 * AN_INPUT: data that is not fit, a checkpoint of another run, one that cannot be written (found before the first
 * update; later a warning, and at the end an error if the last one was not); AN_MISMATCH: it diverged. stats: filled
 * also when it diverged. */
an_status train_run(const train_run_options *o, train_run_result *out, strbuf *stats_line, diag *d) MUST_CHECK;

#endif
