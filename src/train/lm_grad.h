/* lm_grad.h: the gradients of a language model's loss by its tensors, as a file.
 * In: a model, token ids.  Out: the loss; a safetensors file that looks like the model's own.
 *
 * They come from what training dispatches, read where it adds them up, so what is written is what an update would
 * use: the program of `resident`, or the programs of a pipeline that cuts the vocabulary where the device has no
 * axis that long. */
#ifndef TRAIN_LM_GRAD_H
#define TRAIN_LM_GRAD_H

#include "lm/lm.h"
#include "train/pipe.h"

typedef struct {
    const char *model;      /* lm_open */
    const char *engine;     /* NULL: the best one present */
    device_options device;
    const int32_t *tokens;  /* [batch, seq + 1] */
    const char *named;      /* what they are called in messages, as their file; NULL: the ids */
    int64_t batch, seq;
    const char *out;
} lm_grad_options;

typedef struct {
    double loss;            /* mean over batch * seq, in nats */
    int64_t tokens;         /* batch * seq */
    double scale;           /* the loss scale they were computed with */
} lm_grad_result;

/* AN_MISMATCH: not finite whatever the loss scale. */
an_status lm_grad(const lm_grad_options *o, lm_grad_result *out, diag *d) MUST_CHECK;

#endif
