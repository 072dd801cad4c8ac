/* ckpt.h: checkpoints of a language-model run: folders that are whole or not there.
 *
 *   DIR/step-00000040/   model.safetensors, config.json …   the model as Hugging Face keeps it: `generate` and Python open it
 *                        active.u32                          the tokens that were trained, when not all are (lm_shape.h)
 *                        tokenizer.json …                    the files of the run's tokenizer, when it has one (lm_tok.h)
 *                        state.safetensors                   weights, moments, counters, loss scale: what goes on bit for bit
 *                        train.json                          step, data position, seed, options, versions, size and checksum of the rest and of itself
 *   DIR/latest           the name of the newest
 *   DIR/.lock            locked by the process that trains into DIR, for as long as it lives
 *
 * A checkpoint is written under another name, synced, and renamed; then `latest` is replaced, then old ones go. A
 * process that dies at any moment leaves at worst a folder .tmp-* or a checkpoint too many, which the next save or
 * --resume removes. Opening checks every file against train.json and falls back to the one before, saying so.
 * Version 1 had no checksum of train.json and a digest of a few ids, version 2 no exact settings, version 3 a digest
 * of the data that some changes left as it was, version 4 one of files and not of ids, and such checksums of the
 * files: they open, with what they lack not looked at. */
#ifndef TRAIN_CKPT_H
#define TRAIN_CKPT_H

#include "train/lm_shape.h"

typedef struct {
    int version;              /* of the file it was read from */
    int64_t step;             /* updates tried so far */
    /* the last of them that changed the weights: below step while updates are being skipped */
    int64_t applied;
    corpus_pos pos;           /* of the training data */
    uint64_t data_digest;     /* corpus_digest */
    uint64_t seed;
    double validation;        /* share of the data kept back */
    double smooth;            /* smoothed loss; NAN: none yet */
    /* the loss on text kept back is due after this step, and was not found yet when this was saved */
    bool owed;
    /* what must be the same for the run to go on: model, batch, pipeline's state form, schedule … */
    char setting[600];
    char exact[500];          /* the same to the last bit, and what has no place in a sentence */
    char exact4[500];         /* of this run: as versions 3 and 4 say it */
    /* instruction sets its sums were made with, where another one gives other bits; "": any gives the same, or a file of
     * before says nothing */
    char sums[120];
} ckpt_note;

typedef struct {
    const char *name;         /* in the folder */
    const void *at;
    size_t n;
} ckpt_file;

typedef struct {
    const char *dir;
    int keep;                 /* newest that stay; 0: 2 */
    const ckpt_file *tokenizer; /* what a folder has of one */
    size_t n_tokenizer;
    const lm_generation *generation;
    pool *pool;
} ckpt_options;

typedef struct {
    int fd;                   /* of the lock; -1: none, or a file system without locks */
    bool made;                /* the lock was not there */
    size_t was;               /* what of the name was there: dir_unmake */
    const char *dir;
} ckpt_hold;

/* Is there a folder that can be written, or can one be made, and does no other process train into it? Asked before
 * the first update: later it costs what was learned. The name stays the caller's until ckpt_leave, which a failure
 * has done. */
an_status ckpt_enter(const char *dir, ckpt_hold *h, diag *d) MUST_CHECK;
/* zeroed but for fd -1: allowed. Where no checkpoint was saved, nothing stays that ckpt_enter made */
void ckpt_leave(ckpt_hold *h);
/* On failure the checkpoints that were there stay as they were. Ones of later steps, which could not be gone on
 * from, are neither counted among those that stay nor removed. Of a row of skipped updates the newest stays beside
 * those that were there before it began. AN_MISMATCH: a weight or moment is not finite. */
an_status ckpt_save(const ckpt_options *o, pipeline *p, const lm_shape *s, const ckpt_note *note, diag *d) MUST_CHECK;
/* The newest intact checkpoint of a folder of checkpoints. warn (may be NULL) is told of damaged ones.
 * AN_INPUT: there is none. The path lives in *mem. */
an_status ckpt_find(const char *dir, arena *mem, const char **path, void (*warn)(void *user, const char *line),
                    void *user, diag *d) MUST_CHECK;
/* Has DIR a checkpoint, intact or not? A folder that cannot be listed is an error: taken for an empty one, a run
 * would begin anew in it. */
an_status ckpt_any(const char *dir, bool *any, diag *d) MUST_CHECK;
an_status ckpt_is_one(const char *path, bool *is, diag *d) MUST_CHECK; /* a checkpoint, and no folder of them */
/* What a process that died behind its last rename had still to do, of the checkpoint at path, which ckpt_find gave,
 * and its note: `latest` names it, and old ones go. */
an_status ckpt_settle(const char *dir, const char *path, int keep, const ckpt_note *note, diag *d) MUST_CHECK;
/* State and note of the checkpoint at `path`, which ckpt_find gave. AN_INPUT when setting, exact, seed, validation
 * or data of *note are not the file's: both are in the message, and nothing was read into the pipeline. */
an_status ckpt_load(const char *path, pipeline *p, ckpt_note *note, diag *d) MUST_CHECK;

#endif
