/* pipe_host.h: what the files of the host-driven pipelines share: delta, dynamic and restart.
 *
 *   pipe_host.c   a minibatch from tokens to update; the pipe's functions     host_pass.c   one sequence up and down the layers
 *   host_prog.c   programs: text, weights, surfaces, dispatch                 host_grad.c   weight gradients from the taps
 *   host_ways.c   the three ways weights get into programs                    host_queue.c  the host's work, beside the device's
 *   host_pack.c   weights and activations in one input, for devices that take no more
 *   host_update.c the update layer by layer
 *   host_books.c  fp32 weights, moments, update, scale and files: a trainer whose gradients come from here
 *
 * The device runs the fused kernels of model/ (MODEL_SET_FUSED), one sequence at a time. Activations pass through
 * the host, which keeps them as fp32 and makes weight gradients of them on a thread of its own while the device goes
 * on with the next layer. Then the same thread updates layer by layer and makes the weights ready, program by
 * program in the order in which they run: while the device is at one layer the next one's are updated, rounded,
 * turned and packed. A program is reloaded or compiled when it is run. Jobs run in the order in which they were
 * pushed, each adds to gradients no other job of its time touches: results do not depend on who was faster. */
#ifndef TRAIN_PIPE_HOST_H
#define TRAIN_PIPE_HOST_H

#include <pthread.h>

#include "kernel/vector.h"
#include "train/pipe_int.h"
#include "train/train_int.h"

/* ---- host_queue.c ---- */
typedef struct host_queue host_queue;
typedef void host_job(void *user, int64_t arg);
an_status host_queue_make(host_queue **out, diag *d) MUST_CHECK;
void host_queue_free(host_queue *q); /* finishes what is left; NULL is fine */
/* a ticket from 1 on; without a thread it runs here and now */
uint64_t host_queue_push(host_queue *q, host_job *fn, void *user, int64_t arg);
/* returns when that job is done, and all before it; whether it had to wait */
bool host_queue_reach(host_queue *q, uint64_t ticket);
bool host_queue_drain(host_queue *q); /* returns when every job is done */
bool host_queue_wait(host_queue *q, int left); /* returns when at most `left` of them are not; whether it had to wait */

/* ---- programs ---- */
/* as it is; rows and columns exchanged; one run of numbers */
typedef enum { PLACE_ROWS, PLACE_TURNED, PLACE_RUN } host_form;
typedef struct {         /* of a weight in a packed input: rows from the top, cols columns from `at` on */
    int64_t rows, cols, at;
    host_form form;
} host_place;

typedef struct {
    model_weight w;
    host_place place;    /* packed */
    char port[40];       /* as an input of an open program */
    char path[80];       /* as a constant's file */
    int param;           /* of the model, whole and untransposed */
    strbuf file;         /* baked: blob with one record */
    uint64_t at;         /* where its data begins */
    dev_surface *s;      /* open */
} host_const;

typedef struct {         /* surfaces all layers of a kernel share */
    model_port in_port[MODEL_MAX_PORTS], out_port[MODEL_MAX_PORTS];
    dev_surface *in[MODEL_MAX_PORTS], *out[MODEL_MAX_PORTS];
    int n_in, n_out;
    bool made;
} host_io;

typedef struct {
    model_program id;
    char name[40];       /* "l03_fwd_ffn" */
    char *text;
    strbuf blob;         /* constants that are no weights */
    VEC(host_const) c;
    int same;            /* index of the program whose compiled form it shares: its own when it has one */
    dev_program *p;      /* its own; NULL: shared, or not compiled */
    dev_request *r;
    bool stale;          /* it has not taken the weights of the books */
    uint64_t filled;     /* ticket of the job that makes them ready */
    an_status unfit;     /* what became of it */
    int64_t high, wide;  /* packed: its input is [1, high, 1, wide] */
    dev_surface *packed;
    float *out[MODEL_MAX_PORTS]; /* what it answered last, [channels, T] */
} host_prog;

/* ---- how weights get in ---- */
typedef struct host host;
typedef struct host_update host_update;
typedef struct {
    dev_program *p;
    dev_request *r[2];   /* by the side gradients are accumulated on */
    bool due;            /* the step counts, and this was not pushed yet */
} host_shard;
typedef struct {
    bool open;           /* weights are inputs */
    /* g computes with the weights that are ready for it, or fails; h->put_off: only in a new process */
    an_status (*take)(host *h, host_prog *g, diag *d);
    bool (*spent)(const host *h);        /* the device will not take the weights of another update */
} host_way;
extern const host_way host_delta, host_dynamic, host_restart;

struct host {
    pipeline *p;
    model_config c;      /* the kernels': seq is T, loss_scale the one compiled in */
    const host_way *way;
    const chip *chip;    /* NULL: a plain device */
    const vec_kernels *vk;
    const gemm_kernel *gk;
    arena mem;
    /* books */
    device *cpu;
    trainer *t;
    VEC(model_weight) weight;
    int *param_at;       /* [MW_COUNT][layers + 1]: index of a weight; layer -1 is column 0 */
    float **grad;        /* per weight while a minibatch runs: its gradient, times loss scale times batch */
    bool locked;
    host_update *update;
    uint64_t embedded;   /* ticket of the job that updates the tables */
    _Atomic bool broken; /* a shard failed: the books are neither before nor behind their update */
    /* device */
    VEC(host_prog) progs;
    int *prog_at;        /* [MK_COUNT][layers] */
    host_io io[MK_COUNT];
    bool packed;         /* open programs have one input: pack_wanted */
    float *turned;       /* packed: a weight on its way */
    bool stale;          /* the books moved on: prog_sync before the next dispatch */
    bool put_off;        /* no compiles were left: only a new process can go on */
    /* one sequence */
    const int32_t *ids, *targets;
    float *x0, *digit[2], *seed; /* embedded input; target digits; [T] */
    /* recompute: the stream as it enters each layer, and behind the last; NULL: every tap has a buffer of its own */
    float **kept;
    float *stage;        /* one weight on its way to a program */
    unsigned char *pack[2]; /* one port where rows of surfaces are padded: the device's thread's, the worker's */
    host_queue *queue;
    pthread_mutex_t look_up; /* held from books_weight to books_done: tables are read by both threads */
    const int32_t *tokens;   /* of the minibatch */
    /* tickets of the jobs that are the last to read what the next sequence writes over, on its way up and on its way
     * down */
    uint64_t read[2];
    void *scratch;       /* of matrix products; the worker's */
    size_t scratch_bytes;
    float *alpha;        /* max(D, Q) times the residual's factor; NULL: 1 */
    float *rstd, *mean;  /* [T], the worker's */
    diag job;            /* the first job that failed */
    char bad[96];        /* the first tensor of the minibatch that is not finite; "" none */
    char first[96];      /* the same of the update: the minibatches of a group behind a bad one are not run */
    pipe_bad count;      /* numbers of its programs' results that are not */
    bool any_gradient;   /* one of its gradients has a number that is not 0 */
    bool to_the_end;     /* looking: go on behind what is not finite */
    double look_scale;   /* looking: the loss scale; 0: the books' */
    uint64_t dispatches, canaries, reloads, restarts_wanted, buffer_bytes;
};

static inline int weight_index(const host *h, model_weight_id id, int layer)
{
    return h->param_at[(int64_t)id * (h->c.n_layers + 1) + layer + 1];
}
static inline host_prog *prog_of(host *h, model_kind k, int layer)
{
    return &h->progs.at[h->prog_at[(int64_t)k * h->c.n_layers + layer]];
}
void host_event(const host *h, const char *lane, const char *what, int layer, uint64_t begin);
void host_warn(const host *h, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* ---- host_prog.c ---- */
an_status prog_plan(host *h, diag *d) MUST_CHECK;               /* every program's text and weights; activations */
void prog_drop(host *h);
/* with the weights of the books; replaces the one there is */
an_status prog_compile(host *h, host_prog *g, diag *d) MUST_CHECK;
an_status prog_bind(host *h, host_prog *g, diag *d) MUST_CHECK;    /* surfaces and the request, where there are none */
an_status prog_sync(host *h, diag *d) MUST_CHECK;  /* jobs for the weights of every program, where the books moved on */
dev_weights prog_weights(const host_prog *g, dev_blob *blob);   /* blob holds c.n + 1 */
/* in: one per input port, [channels, T]. Results are in g->out. A dispatch that fails is tried once more. */
an_status prog_run(host *h, model_kind k, int layer, const float *const *in, diag *d) MUST_CHECK;
float *prog_tap(host *h, model_kind k, int layer, const char *name); /* of the last run; ports in parts: their first */

/* ---- host_pack.c ---- */
#define HOST_PACKED "i00_packed"
an_status pack_wanted(host *h, const graph *open, diag *d)
    MUST_CHECK; /* sets h->packed when limits or rules ask for it */
an_status pack_plan(host *h, host_prog *g, diag *d) MUST_CHECK;
/* *out borrows the constants of open */
an_status pack_program(host *h, host_prog *g, const graph *open, graph **out, diag *d) MUST_CHECK;
an_status pack_activations(host *h, host_prog *g, dev_program *p, const float *const *in, diag *d) MUST_CHECK;
an_status pack_weight(host *h, host_prog *g, dev_program *p, const host_const *c, const float *x, int64_t n, diag *d)
    MUST_CHECK;

/* ---- host_pass.c ---- */
/* Recompute: layers whose taps are at hand at once. One is worked on by the device, the gradients of the one above
 * are made meanwhile, from what the one above that handed down. */
enum { HOST_SETS = 2, HOST_HANDED = 3 };
/* [T + 1]; sum over positions */
an_status pass_forward(host *h, const int32_t *tokens, double *loss, diag *d) MUST_CHECK;
/* of the minibatch; jobs are pushed, not waited for */
an_status pass_backward(host *h, int64_t sequence, diag *d) MUST_CHECK;
double pass_embed_scale(const host *h);               /* of rows on their way in */
float *pass_input(host *h, int layer);                /* x as it enters a layer; n_layers: the head */

/* ---- host_grad.c: jobs ---- */
void grad_head(void *host, int64_t unused);
void grad_layer(void *host, int64_t layer);
void grad_embed(void *host, int64_t sequence);

/* ---- host_update.c: after books_open ---- */
an_status update_open(host *h, diag *d) MUST_CHECK;
void update_close(host *h);
void update_due(host *h);             /* the step that was measured counts */
void update_push(host *h, int layer); /* its shard, where that is due; -1: what is outside the layers */

/* ---- host_books.c ---- */
an_status books_open(host *h, diag *d) MUST_CHECK;
void books_close(host *h);
an_status books_weight(host *h, int weight, const float **at, diag *d) MUST_CHECK; /* locked until books_done */
an_status books_done(host *h, int weight, diag *d) MUST_CHECK;
an_status books_lock(host *h, diag *d) MUST_CHECK;   /* gradients at hand and 0 */
an_status books_unlock(host *h, diag *d) MUST_CHECK;
double books_scale(const host *h);                   /* the loss scale of the next minibatch */
/* Gradients as they lie, `unit` times too large in value: the trainer's step. */
an_status books_step(host *h, double loss, double unit, double lr, train_report *r, diag *d) MUST_CHECK;

#endif
