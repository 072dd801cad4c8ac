/* run_int.h: what the loop of a run (run.c) and its checkpoint file (run_file.c) share. */
#ifndef TRAIN_RUN_INT_H
#define TRAIN_RUN_INT_H

#include "model/net.h"
#include "train/digits.h"
#include "train/run.h"

typedef struct {
    const train_run_options *o;
    train_run_result *out;
    const net_spec *spec;
    device *dev;
    net net;
    train_data data;
    uint64_t data_digest; /* of what is trained on; 0: there is no checkpoint that would want it */
    train_batches batches;
    trainer *t;
    train_schedule schedule;
    train_optimizer optimizer;
    double decay, loss_scale; /* loss_scale 0: dynamic */
    int64_t accum;
    int64_t done;      /* updates tried so far, those before a checkpoint included */
    int64_t saved;     /* the last of them that is in the file; -1: none */
    diag unsaved;      /* why the last save failed */
    bool unlogged;     /* there was no memory for a line */
    float *x, *y, *logits;
    double smooth;     /* loss of the last updates, the older the less */
    uint64_t data_ns;  /* of the last update: making its minibatches */
    diag *d;
} run;

/* Can the file be written? Asked before the first update: later it costs what was learned. */
an_status run_try_save(run *r) MUST_CHECK;
/* A save that fails is no reason to lose the run: it is a warning, and r->unsaved. */
void run_save(run *r);
/* State, place in the data and r->done of the file. AN_INPUT: a file of another run, or damaged; AN_USAGE: it is
 * past the last step. */
an_status run_resume(run *r) MUST_CHECK;

#endif
