/* session_int.h: a session's parts: its programs and what is bound to them. Private to lm/. */
#ifndef LM_SESSION_INT_H
#define LM_SESSION_INT_H

#include "lm/session.h"
#include "model/decoder.h"
#include "text/text.h"

enum { LM_EACH_TOKENS = 8,    /* of a program that gives the logits of every token */
       LM_FILL_TOKENS = 32 }; /* whose columns of the input are made at a time */

typedef struct {
    dev_program *p;
    dev_request *r;
    int layer0, layer1;
} step_part;

/* The model for T tokens at a time, as one device program or several runs of layers. Surfaces an input does not
 * exist for are NULL. */
typedef struct step_program {
    struct step_program *next;
    int64_t T;
    bool each;                  /* logits of every token, not of one */
    int n_parts;
    step_part *part;            /* (n_layers at most) */
    dev_surface *x, *rope_cos, *rope_sin, *pos, *mask, *place, *pick;
    dev_surface **hidden;       /* between parts */
    dev_surface *logits[NN_MAX_PARTS];
    int n_logits;
    dtype logits_dt;
} step_program;

/* Where the bytes of one weight record come from. */
typedef enum { RECORD_DENSE, RECORD_Q, RECORD_AUX } record_kind;
typedef struct {
    model_weight_id id;
    int layer;
    int64_t row0, rows, cols;
    record_kind kind;
    lm_form form;
} weight_record;

struct lm_session {
    lm_model *m;
    device *dev;
    bool own_device, chip;
    dev_cache *cache;
    model_config c;           /* dt is that of the device's tensors */
    int64_t C, bucket_max;
    uint64_t uniform;         /* bytes of every surface where the device wants one size; 0: each its own */
    dev_surface **kv;         /* k00, v00, k01, v01, … */
    step_program *programs;
    tok_ids ids;              /* what the cache holds */
    double *rope_step, rope_scale;
    /* cosines of a pair at positions 0 .. C - 1, then its sines, then the next pair's; NULL: no rotation */
    char *rope;
    int64_t rope_known;       /* positions that are there */
    /* for each thread of the model's: a row, a position's, and some tokens' rows in the type of x */
    float *rows;
    float *logits;            /* LM_EACH_TOKENS rows of the vocabulary */
    uint64_t cache_bytes;
    char remark[360];
    lm_session_stats st;
    str_map records;          /* path -> index of record */
    VEC(weight_record) record;
    diag weight_err;          /* why the source of weights said no */
    arena mem;
};

/* The program for T tokens; built when it is not there yet. */
an_status step_get(lm_session *s, int64_t T, bool each, step_program **out, diag *d) MUST_CHECK;
void step_free_all(lm_session *s);

#endif
