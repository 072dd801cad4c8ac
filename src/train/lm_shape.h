/* lm_shape.h: a model as a run trains it, beside the same model as files have it. In: a configuration and what the
 * run asked for.  Out: the pipeline's configuration, and weights and ids from one form to the other.
 *
 *   residual   branches are multiplied by a number where they join the stream. Files have it inside the matrices (and biases) that end a branch, or the gains of the norm behind them (Gemma 2),
 *              so any program that knows the family computes the same function; here they are divided by it: the function does not change,
 *              the size of an update does
 *   softcap    logits pass through cap * tanh(logits / cap); config.json says so
 *   compact    rows of ids that occur in the data, in ascending order, are the vocabulary. In files all rows are there; those of
 *              other ids as they were, and active.u32 names the trained ones
 *   zero       matrices that end a branch, or the gains of the norm behind them, start at 0: every layer begins as the
 * identity */
#ifndef TRAIN_LM_SHAPE_H
#define TRAIN_LM_SHAPE_H

#include "lm/lm.h"
#include "text/shard.h"
#include "train/pipe.h"

typedef struct {          /* zero means default */
    double residual;      /* 0: 1; -1: 1/sqrt(2 layers) */
    double softcap;       /* 0: the model's */
    bool zero, compact;
} lm_shape_options;

typedef struct {
    model_config file, c; /* as files have it; as the pipeline trains it */
    /* the caller's: where weights start, and where rows that are not trained stay. May be NULL without compact */
    lm_model *start;
    uint32_t *ids;        /* compact: the id of each row; NULL: all ids are rows */
    size_t n_ids;
    int32_t *row_of;      /* compact: by id; -1: not trained */
    bool zero;
    arena mem;
} lm_shape;

/* AN_USAGE: an option this model cannot take. Ids come later, when the data is open. */
an_status lm_shape_make(lm_shape *s, lm_model *start, const lm_shape_options *o, diag *d) MUST_CHECK;
void lm_shape_free(lm_shape *s);
/* compact: reads every sample once and cuts the vocabulary down to what occurs. */
an_status lm_shape_compact(lm_shape *s, const corpus *data, int64_t seq, diag *d) MUST_CHECK;
an_status lm_shape_active(lm_shape *s, diag *d) MUST_CHECK; /* to what the start answers with (lm_active) */
void lm_shape_rows(const lm_shape *s, int32_t *ids, size_t n); /* ids to rows, in place */

/* of the start's rows that are not trained; 0: all are. hash4: as checkpoints of version 4 have it */
an_status lm_shape_rest(const lm_shape *s, uint64_t *hash, uint64_t *hash4, diag *d) MUST_CHECK;
an_status lm_shape_put(const lm_shape *s, pipeline *p, diag *d) MUST_CHECK; /* the start's weights into the pipeline */
/* The pipeline's weights as a model: copied now. */
an_status lm_shape_model(const lm_shape *s, pipeline *p, const lm_generation *g, const lm_options *o, lm_model **out,
                         diag *d) MUST_CHECK;

#endif
