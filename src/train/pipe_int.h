/* pipe_int.h: what every way of training implements. pipe.c checks options and forwards; each way is a table of
 * functions. */
#ifndef TRAIN_PIPE_INT_H
#define TRAIN_PIPE_INT_H

#include "model/decoder.h"
#include "target/target.h"
#include "train/pipe.h"

typedef struct {
    void *(*make)(pipeline *p, diag *d); /* NULL: d says why */
    void (*drop)(void *way);
    an_status (*step)(void *way, const int32_t *tokens, double lr, train_report *r, bool *again, diag *d);
    an_status (*loss)(void *way, const int32_t *tokens, double *loss, diag *d);
    size_t (*states)(const void *way);
    void (*state_at)(const void *way, size_t i, train_state_info *out);
    an_status (*write)(void *way, const char *name, dtype dt, const void *data, diag *d);
    an_status (*read)(void *way, const char *name, dtype dt, void *data, diag *d);
    an_status (*save)(void *way, const char *path, const train_note *note, size_t n_note, diag *d);
    an_status (*load)(void *way, const char *path, train_note *note, size_t n_note, arena *mem, diag *d);
    void (*stats)(void *way, pipe_stats *out);
} pipe_ops;

struct pipeline {
    pipe_kind kind;
    pipe_options o;       /* config points to c */
    model_config c;
    int64_t B, T;
    const pipe_ops *ops;
    void *way;
    pipeline *probe;      /* resident: where gradients are looked at; NULL until somebody does */
    train_verdict last;   /* resident: of the last step */
    /* resident: the last minibatch that ran and did not count; the others of its group are not run. NULL: none did */
    int32_t *suspect;
};

const chip *pipe_chip(const pipeline *p); /* pipe.c: whose rules the device has; NULL: none */

/* pipe_look.c */
void pipe_count(pipe_bad *b, const float *x, int64_t n);
/* pipe_host.c */
an_status host_look(void *way, const int32_t *tokens, double loss_scale, pipe_seen *out, diag *d) MUST_CHECK;
/* a minibatch with a rate of 0 */
an_status resident_at(void *way, const int32_t *tokens, double loss_scale, train_report *out, diag *d) MUST_CHECK;
/* pipe_resident.c: as train_spoilt */
an_status resident_spoilt(void *way, bool sums, train_state_info *out, diag *d) MUST_CHECK;

extern const pipe_ops pipe_resident, pipe_host; /* host: delta, dynamic, restart */

/* A token id as the chip's inputs take it, and the inputs of both kinds. tokens: [B, T + 1]. */
typedef struct {
    int32_t *in, *out;                       /* [B, T]: what is read, what is to be predicted */
    float *in_hi, *in_lo, *out_hi, *out_lo;  /* the same as digits to the base MODEL_ID_BASE */
} pipe_tokens;
an_status pipe_tokens_make(pipe_tokens *t, const pipeline *p, diag *d) MUST_CHECK;
void pipe_tokens_free(pipe_tokens *t);
void pipe_tokens_take(pipe_tokens *t, const pipeline *p, const int32_t *tokens);

/* Weight decay applies to matrices, not to norms and biases. */
static inline bool pipe_decays(const model_weight *w) { return w->type.sh.d[0] > 1 && w->type.sh.d[1] > 1; }

#endif
