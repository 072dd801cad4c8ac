/* train_int.h: what the files of train/ share.
 *
 *   copy.c     the user's graph again, with parameters as state          optim.c    updates as graph nodes, and the host's share of them
 *   step.c     which states and numbers there are; the three programs    resident.c surfaces, requests, one dispatch per minibatch
 *   scale.c    loss scale, what counts as overflow                       state.c    reading, writing, saving, restoring
 *   schedule.c learning rates                                          rounded.c  weights in bf16 for products that round them
 *   bounds.c   how large the state may be */
#ifndef TRAIN_TRAIN_INT_H
#define TRAIN_TRAIN_INT_H

#include "kernel/vector.h"
#include "target/target.h"
#include "train/train.h"

/* ---- rows of ctl ---- */
typedef enum {
#define CTL(id, what) CTL_##id,
#include "train/ctl.def"
#undef CTL
    CTL_COUNT
} ctl_id;

typedef struct {
    int row[CTL_COUNT]; /* -1: nobody reads it */
    int n;
} ctl_layout;

/* ---- states ---- */
enum { MAX_SLOTS = 2, PORT_NAME = 64 };

typedef enum { STATE_W, STATE_W_LO, STATE_SLOT, STATE_SLOT_LO, STATE_ACC, STATE_STEP, STATE_STEP_HI } state_kind;
/* surfaces that change places together; STILL: frozen */
typedef enum { GROUP_MAIN, GROUP_ACC, GROUP_STILL, GROUP_COUNT } state_group;

typedef struct {
    const char *name;      /* in checkpoints */
    state_kind kind;
    state_group group;
    int param;             /* -1: a counter */
    int slot;
    ttype type;
    char in[PORT_NAME], out[PORT_NAME]; /* ports */
    size_t bytes;
    dev_surface *s[2];
} state;

typedef struct {
    const char *name;
    val v;                 /* in the user's graph */
    bool decay, frozen;
    ttype type;            /* as the user declared it */
    int64_t n;             /* numbers */
    int w, w_lo, slot[MAX_SLOTS], slot_lo[MAX_SLOTS], acc; /* states; -1: none */
    struct {
        bool on, stale;    /* stale: the host wrote the weight */
        char in[PORT_NAME], out[PORT_NAME];
        dev_surface *s;
    } copy;                /* the weight in bf16 (rounded.c) */
} param;

typedef struct {
    const char *name;      /* in the user's graph */
    val v;
    ttype type;            /* of the port */
    char port[PORT_NAME];
    size_t bytes;
    dev_surface *s;
    bool set;
} batch_input;

typedef struct {
    const char *name;
    val v;
    ttype type;            /* of the port */
    char port[PORT_NAME];
    dev_surface *s;
} fetched;

/* ---- programs ---- */
typedef enum { PROG_STEP, PROG_ACC, PROG_EVAL, PROG_COUNT } prog_kind;

typedef struct {
    char *text;            /* MIL */
    strbuf blob;           /* its constants */
    dev_program *p;
    dev_request *r[2][2][2]; /* by the sides of the groups of states */
} prog;

/* Where a row of gradients of 0 has led (scale.c). REST: to no scale at which they are not, and so back to the one
 * it began at. */
enum { SEARCH_NONE, SEARCH_DOWN, SEARCH_BACK, SEARCH_UP, SEARCH_REST };

/* What the loss scale went through. Snapshots hold its bytes: no field leaves a gap. */
typedef struct {
    double scale, largest; /* largest: it may grow to */
    double applied;        /* S of the last update; 0: none yet */
    int64_t good;          /* updates since the scale changed */
    int64_t skipped_row;   /* skipped since one was taken over */
    int64_t zero_row;      /* with gradients of 0 everywhere in a row */
    int64_t search;        /* SEARCH_* */
    double from;           /* the scale a search goes back to: where it began, or where it found something */
} scaler;

typedef struct {
    train_optimizer kind;
    double mu, beta1, beta2, eps, decay, clip;
    int slots;
    bool decoupled;
} optim;

/* What no weight and no first moment is larger than (bounds.c). */
typedef struct {
    double w, m;
    bool known, exact;     /* exact: the state was looked through after the last update */
} bounds;

struct trainer {
    arena mem;
    device *dev;
    bool own_dev;
    bool keeps;            /* values are computed again in the backward pass */
    /* one surface per weight and moment, written over by the step that counts; the program itself decides whether it
     * does */
    bool in_place;
    const chip *chip;      /* NULL: a plain device */
    train_options o;       /* pointers in it are the caller's and dead after open, but for warn and user */
    optim opt;
    int accum;
    train_state_form form;
    dtype state_dt;        /* of weights and moments */
    dtype floats;          /* type the graph's floats become; DT_NONE: they stay */
    dtype ctl_dt;
    VEC(param) params;
    VEC(state) states;
    VEC(batch_input) inputs;
    VEC(fetched) fetch;
    int step_lo, step_hi;  /* states; step_hi -1 when one number is enough */
    int64_t n_numbers;
    double peak_limit;     /* largest gradient whose moments are finite */
    ctl_layout ctl;
    dev_surface *ctl_s, *loss_s, *peak_s, *power_s, *extent_s;
    prog prog[PROG_COUNT];
    int side[GROUP_COUNT]; /* where the current states are */
    scaler scale;
    bounds most;           /* of state that is written in place */
    int at;                /* minibatch of the group at hand */
    train_verdict group;   /* why the group at hand is spoilt; FINE: it is not */
    double group_loss;     /* of the minibatch that did it */
    uint64_t steps, skipped, zeros, minibatches, ran, dispatches;
    bool said_nothing;     /* a warning of gradients of 0 went out */
    bool evaluated;        /* fetched values are there */
    uint64_t bytes_in, bytes_out; /* of the last minibatch */
    uint64_t sent, got;           /* of the one at hand so far */
    uint64_t mark_in, mark_out;   /* the device's counts when what is being moved began to be */
    const vec_kernels *vec;
    unsigned char *stage;         /* one tensor on its way to or from a surface */
    size_t stage_bytes;
    /* runs what the step program is for, in pieces; NULL: the program itself */
    an_status (*step_instead)(void *user, diag *d);
    void *instead_user;
    /* the last minibatch at another loss scale, with nothing taken over; NULL: none is compiled */
    an_status (*look)(void *user, double scale, train_verdict *out, diag *d);
    void *look_user;
};

#define PORT_CTL "ctl"
#define PORT_LOSS "train_loss"
#define PORT_PEAK "train_peak" /* fp16: the largest gradient */
#define PORT_EXTENT                                                                                                    \
    "train_extent" /* fp16: the largest number of the state this step would leave. fp32: a bound of what it moves by */
#define PORT_POWER "train_power" /* fp32: sum of squares. fp16: mean square of gradient / peak */

/* The low half is worth 1/2048 of its number: hi's unit is at least 2^-11 of hi, so lo has hi's own range. */
#define LOW_UNIT 2048.0

static inline bool stays(const trainer *t, const state *s) { return t->in_place && s->group == GROUP_MAIN; }
static inline bool is_half(const trainer *t) { return t->state_dt == DT_F16; }
static inline bool is_pair(const trainer *t) { return t->form == TRAIN_HALVES; }

/* ---- copy.c ---- */
typedef struct copy copy;
struct copy {
    const graph *from;
    graph *g;
    val *map;      /* per value of from */
    dtype floats;  /* DT_NONE: as declared */
    /* may be NULL: what stands for a node's one result; NO_VAL: the node itself */
    val (*instead)(copy *c, const node *n, void *user);
    void *user;
    diag *d;
};
an_status copy_begin(copy *c, const graph *from, const char *title, dtype floats, diag *d) MUST_CHECK;
void copy_end(copy *c); /* frees what is left of it, the graph too unless it was taken */
/* Input `v` of the user's graph as the port `name` of type `as`; its value keeps the user's name and the copy's
 * type. Returns the port. */
val copy_input(copy *c, val v, const char *name, dtype as);
/* Everything the roots need. Inputs not given by copy_input are an error. */
an_status copy_nodes(copy *c, const val *root, size_t n) MUST_CHECK;
/* need[value]: the roots depend on it. */
void copy_need(const graph *g, const val *root, size_t n, bool *need);

/* ---- optim.c ---- */
an_status optim_take(trainer *t, diag *d) MUST_CHECK;      /* options to t->opt, checked */
bool optim_reads(const trainer *t, ctl_id c);              /* in the step program */
typedef struct {
    graph *g;
    const trainer *t;
    val ctl[CTL_COUNT];    /* [1] each */
} optim_graph;
typedef struct {
    val w, w_lo, slot[MAX_SLOTS], slot_lo[MAX_SLOTS]; /* in: ports; out: what they become */
} optim_vals;
/* Size of all gradients together: peak and power as declared above, and the factor each gradient is multiplied by
 * (NO_VAL: 1). */
void optim_norm(optim_graph *b, const val *grad, int n, val *peak, val *power, val *factor);
/* The larger of *most (NO_VAL: none yet) and every magnitude of x; x may be NO_VAL. */
void optim_extent(optim_graph *b, val x, val *most);
/* fp32: what nothing that the gradient makes of the state is larger than, and then some: infinite where a weight or
 * moment might be. factor: as of optim_norm. */
val optim_reach(optim_graph *b, val power, val factor);
void optim_update(optim_graph *b, const optim_vals *in, val grad, val factor, bool decay, optim_vals *out);
/* The rows of ctl for an update with this learning rate. S: see ctl.def. step counts from 1. */
void optim_ctl(const trainer *t, double lr, double S, uint64_t step, double *row);
/* what the host read, as the plain gradient's norm */
double optim_norm_of(const trainer *t, double peak, double power, double S);

/* ---- step.c ---- */
an_status step_plan(trainer *t, const graph *g, diag *d) MUST_CHECK;  /* parameters, states, inputs, ctl */
an_status step_build(trainer *t, const graph *g, prog_kind k, diag *d) MUST_CHECK; /* text and constants */

/* ---- scale.c ---- */
void scale_start(trainer *t);
/* peak and extent as of their ports; 0 where there is none. */
train_verdict scale_verdict(const trainer *t, double loss, double peak, double power, double extent);
/* An update was taken over (FINE), or was not; may change the scale. loss: of the minibatch it failed at.
 * AN_MISMATCH: too many skipped, or a fixed scale at which nothing is learnt. */
an_status scale_after(trainer *t, train_verdict v, double loss, diag *d) MUST_CHECK;
/* The report of a minibatch whose gradient is 0 everywhere, with another verdict where infinities are behind it. */
an_status scale_look_behind(trainer *t, train_report *r, diag *d) MUST_CHECK;

/* ---- resident.c ---- */
an_status surface_put(trainer *t, dev_surface *s, const ttype *type, dtype dt, const void *data, bool finite,
                      const char *what, diag *d) MUST_CHECK;
an_status surface_get(trainer *t, dev_surface *s, const ttype *type, dtype dt, void *data, diag *d) MUST_CHECK;
/* what a port of its programs is bound to now */
dev_surface *train_surface(trainer *t, dev_side side, const char *name);
dev_surface *state_now(const trainer *t, const state *s);
unsigned char *stage_room(trainer *t, size_t bytes); /* NULL: no memory */

/* ---- bounds.c ---- */
/* Whether decay and moments leave the state finite at this rate; what the gradient does is the program's to say. */
an_status bounds_hold(trainer *t, double lr, double S, bool *hold, diag *d) MUST_CHECK;
/* an update was taken over; reach: as its program told */
void bounds_follow(trainer *t, double lr, double grad_norm, double reach);
void bounds_forget(trainer *t);                                            /* the host wrote a state */

/* ---- rounded.c ---- */
void rounded_plan(trainer *t, const graph *g);            /* which parameters have a copy; g: the user's */
/* per value, NO_VAL: itself: what products of the graph read for it */
void rounded_read(graph *g, const val *instead);
void rounded_stale(trainer *t, int param);                /* its weight was written by the host; -1: all were */
an_status rounded_refresh(trainer *t, diag *d) MUST_CHECK; /* those that are stale, from their weights */

#endif
