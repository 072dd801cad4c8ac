/* decoder.h: a whole decoder as one graph: for training, for a prompt, for the next token.
 * In: a configuration and which use.  Out: one graph made of the blocks the per-layer programs are made of.
 *
 * Letters as in model.h, and B sequences, T positions of a run, C positions of the key/value cache.
 *
 * DECODER_TRAIN: tokens in, mean cross-entropy out.
 *   tokens, targets   int32 [B, T]; or with `chip`, where integers are no inputs, tok_hi tok_lo tgt_hi tgt_lo [1, 1, 1, B*T]:
 *                     the digits id / 1024 and id % 1024 in the tensors' own type
 *   loss              [1, 1, 1, 1]: the mean over B*T of -log p(target), in nats
 *   Positions are 0 .. T-1 in every sequence; sequences do not see each other. The loss is differentiable by grad_build with
 *   respect to every parameter.
 *
 * DECODER_STEP: T tokens at given positions, reading and extending the cache.
 *   x                 [1, D, 1, T]: embedding rows (plus learned positions): the table stays in its file, the host reads T rows
 *   rope_cos rope_sin [1, HD, 1, T] with a rotation: model_rope_run of each channel, by model_rope_channels
 *   pos               int32 [T]: where each token's key and value go in the cache; it sees the positions up to its own.
 *                     With `chip` instead: mask [1, 1, T, C], 0 or -1e4 added to the scores, and place [1, 1, C, T], 1 where token
 *                     t is stored at position c: decoder_mask and decoder_place fill them
 *   pick              int32 [1] with `last_only` and T > 1: which token's logits are wanted; behind the last layer's keys and values
 *                     only that one is computed. With `chip` [1, 1, T, 1] instead: 1 at that token, 0 elsewhere
 *   kNN, vNN          [1, NKV, C, HD] per layer; kNN_new, vNN_new are the results. Bound to one surface it is state in place:
 *                     without `chip` only the rows of this run are written
 *   logits            [1, V, 1, T or 1]; with `chip` logits0, logits1, … in parts below the channel limit
 *   A chip that refuses the whole takes it in runs of layers: x in, and `y` [1, D, 1, T] out of every run but the
 * last. */
#ifndef MODEL_DECODER_H
#define MODEL_DECODER_H

#include "model/model.h"

typedef enum { DECODER_TRAIN, DECODER_STEP } decoder_use;

typedef struct {        /* zero means default */
    decoder_use use;
    bool chip;          /* only what a chip takes */
    bool param_inputs;  /* parameters are program inputs instead of constants, in the order of model_weights */
    int64_t batch;      /* TRAIN: B; 0 means 1 */
    int64_t seq;        /* T; 0: the config's */
    int64_t cache;      /* STEP: C; 0: the config's context */
    bool last_only;     /* STEP: logits of one token of the run */
    /* STEP: layers layer0 .. layer1 - 1 alone; both 0: all of them. The head belongs to the last one */
    int layer0, layer1;
} decoder_options;

typedef struct {
    graph *g; /* the caller frees it; what follows lives in it */
    val loss;                 /* TRAIN; the graph's output "loss" too */
    val logits[NN_MAX_PARTS]; /* [1, Vi, 1, S] */
    int n_logits;
    const model_weight *weight; /* TRAIN: every tensor of the model, whole: model_weights(c) */
    val *param;                 /* TRAIN: its value in the graph; NO_VAL where only parts of it are constants */
    size_t n_param;
    val *layer_in;              /* TRAIN: the stream as it enters each layer, and behind the last: n_layers + 1 */
} decoder;

/* src NULL: constants are references without bytes; it is not asked for parameters that are inputs. */
an_status decoder_build(const model_config *c, const decoder_options *o, const model_source *src, decoder *out, diag *d)
    MUST_CHECK;

/* ---- what the host sends ---- */
/* Rope inputs: the two channels of pair i, which share their angle; what stands there at positions first .. first +
 * n - 1. step and scale: of that pair, model_rope_steps. */
void model_rope_channels(const model_config *c, int64_t i, int64_t *a, int64_t *b);
void model_rope_run(double step, double scale, int64_t first, int64_t n, dtype dt, void *cos_to, void *sin_to);
void decoder_mask(const model_config *c, const int32_t *pos, int64_t T, int64_t C, dtype dt, void *to);
void decoder_place(const int32_t *pos, int64_t T, int64_t C, dtype dt, void *to);

#endif
