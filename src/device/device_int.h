/* device_int.h: what the files of device/ share.
 *
 *   device.c   opening, limits, errors, programs, reloading     queue.c    requests, judging of bindings, one dispatch at a time
 *   surface.c  buffers and their layouts                        weights.c  the records a program was compiled with
 *   host.c     text to program to image: what soft and cpu share  soft.c cpu.c null.c  what tells the devices apart
 *   cache.c    compiled programs on disk and in memory          run.c      one program, once
 *   fault.c    engines that misbehave, for tests                 ports.c    is a kept program one of this text?
 *   ledger.c   compiles and loads of a process                   fits.c     tensors no machine holds
 *
 * Locks: dev->build serialises compile, load, unload, reload and free; dev->mu guards everything else and is never
 * held while a program is built or runs. build is taken first. */
#ifndef DEVICE_DEVICE_INT_H
#define DEVICE_DEVICE_INT_H

#include <pthread.h>

#include "device/device.h"
#include "engine/engine.h"
#include "lower/lower.h"
#include "mil/mil.h"
#include "target/target.h"

/* ---- what a kind of device supplies ---- */
typedef struct {
    const char *name, *what;
    const char *arg;  /* what follows the colon, for messages; NULL: nothing does */
    bool computes, plain;
    /* why it cannot be opened here; NULL: it can */
    const char *(*absent)(void);
    an_status (*open)(device *dev, const char *arg, diag *d);              /* name, limits, arithmetic */
    void (*close)(device *dev);                                            /* may be NULL */
    an_status (*build)(dev_program *p, const dev_source *src, diag *d);    /* from text; sets the ports */
    an_status (*adopt)(dev_program *p, const void *bytes, size_t n, const dev_weights *w, diag *d);
    an_status (*load)(dev_program *p, diag *d);
    void (*unload)(dev_program *p);
    /* old weights stay when it fails */
    an_status (*reload)(dev_program *p, const dev_weights *w, bool *changed, diag *d);
    an_status (*run)(dev_program *p, const void *const *in, void *const *out, diag *d);
    uint64_t (*digest)(const dev_program *p);                              /* of the constants in use */
    /* loaded: are they those of the weights it was given last? */
    an_status (*holds)(dev_program *p, bool *holds, diag *d);
    void (*drop)(dev_program *p);                                          /* what build or adopt made */
} device_class;
extern const device_class device_soft, device_cpu, device_null;

/* ---- handles ---- */
typedef struct baked baked; /* weights.c */

typedef struct {
    uint64_t compiled;        /* that count against the budget */
    uint64_t loaded;          /* now */
    uint64_t failed_ns;       /* when the last compile failed; 0: it did not */
} ledger;

struct device {
    const device_class *cls;
    char name[40];
    const chip *chip;         /* soft */
    numerics num;
    device_limits lim;
    device_options opt;
    pool *pool;
    pthread_mutex_t mu, build;
    pthread_cond_t changed;   /* a dispatch ended, one was queued, or the device closes */
    pthread_t worker;
    bool has_worker, stop, busy;
    dev_request *head, *tail; /* submitted, not started */
    dev_program *programs;
    dev_surface *surfaces;
    dev_request *requests;
    ledger own, *ledger;      /* the latter is the former, or the process's */
    engine_error err;
    device_stats st;
    pack_store *packs;        /* host devices: packed weights that programs share */
};

struct dev_program {
    device *dev;
    dev_program *prev, *next;
    arena mem;                /* ports */
    dev_port *port[2];
    size_t n_port[2];
    program *prog;            /* host devices */
    image *im;
    baked *weights;
    baked *spare;             /* of the reload before the last: its memory serves the next one */
    uint64_t image_bytes;
    uint32_t stats_mask;
    int refs;                 /* the caller's, and one per request */
    int64_t outstanding;      /* requests submitted and not waited for */
    int64_t queued;           /* requests submitted and not finished */
    uint64_t digest;          /* of its constants, as the last proven reload left them */
    bool loaded, changing, counted, from_cache, dead, digest_known, final;
};

struct dev_surface {
    device *dev;
    dev_surface *prev, *next;
    unsigned char *at;
    void *block;              /* what at lies in */
    uint64_t bytes, window;   /* asked for; taken from the device window */
    int refs;                 /* the caller's, and one per binding */
    int64_t queued;           /* submitted, unfinished dispatches that use it */
    bool locked, read_only;
};

typedef enum { REQ_IDLE, REQ_QUEUED, REQ_RUNNING, REQ_DONE } req_state;
struct dev_request {
    device *dev;
    dev_request *prev, *next;
    dev_request *after;       /* in the queue */
    dev_program *p;
    dev_surface **bound[2];   /* per port; NULL: not bound */
    void **at[2];             /* per port: what the engine sees */
    unsigned char **stage[2]; /* per port, where rows are padded: its packed form. Else NULL */
    req_state state;
    diag result;
    arena mem;
};

/* Doubly linked lists of handles. */
#define LIST_ADD(head, x) ((x)->prev = NULL, (x)->next = (head), (head) ? (void)((head)->prev = (x)) : (void)0, (head) = (x))
#define LIST_CUT(head, x)                                                                                             \
    ((x)->prev ? (void)((x)->prev->next = (x)->next) : (void)((head) = (x)->next), (x)->next ? (void)((x)->next->prev = (x)->prev) : (void)0)

/* ---- device.c ---- */
typedef enum {
#define DEV_ERROR(id, outcome, domain, code, status, text) ERR_##id,
#include "device/errors.def"
#undef DEV_ERROR
    ERR_COUNT
} dev_error;
/* The engine's words and a sentence of ours, in dev->err and in d. Call without dev->mu. */
an_status dev_refuse(device *dev, dev_error e, loc at, diag *d, const char *fmt, ...) PRINTF_LIKE(5, 6);
/* A failure of a lower layer in the engine's words e, with its own outcome and place; AN_NOMEM and AN_BUG stay as
 * they are. */
an_status dev_refuse_as(device *dev, dev_error e, const diag *why, diag *d);
void program_unref(dev_program *p); /* dev->mu held */
bool dev_fault(device *dev, const char *where); /* a test wants this step to fail */
/* every attempt; refused: the budget is spent, and there is no end */
an_status dev_compile_begin(dev_program *p, diag *d);
void dev_compile_end(dev_program *p, double ms, bool ok);
void dev_lost(dev_program *p); /* a reload left it unloaded */
/* A loaded program takes `more` bytes for good: counted, or AN_UNSUPPORTED where the device does not address them. */
an_status dev_grow(dev_program *p, uint64_t more, diag *d) MUST_CHECK;
void dev_count_image(dev_program *p, uint64_t bytes); /* what the image of a loaded program holds now */
/* dev->mu held: are so many left of limit window_bytes? *held: what is taken */
bool dev_fits(const device *dev, uint64_t bytes, uint64_t *held);

/* ---- fault.c ---- */
bool dev_spoil(device *dev, const char *what); /* a test wants this to go wrong as an engine would */
void spoil_output(dev_request *r);
void spoil_panels(dev_program *p); /* loaded, host devices */

/* ---- surface.c ---- */
void dev_copy(pool *p, void *to, const void *from, size_t n); /* all threads share what is long */
void surface_ref(dev_surface *s);   /* dev->mu held */
void surface_unref(dev_surface *s); /* dev->mu held */
uint64_t surface_need(const device *dev, const dev_port *p); /* bytes a port takes in a surface; UINT64_MAX: too many */

/* ---- queue.c ---- */
void queue_stop(device *dev); /* finishes what is queued */
void queue_quiet(dev_program *p); /* dev->mu held: returns when no dispatch of p is queued or running */
bool queue_step(device *dev); /* dev->mu held: runs the next dispatch, false when there is none to take */
void request_drop(dev_request *r); /* dev->mu held, not queued */

/* ---- host.c ---- */
an_status host_open(device *dev, diag *d);
void host_close(device *dev);
an_status host_build(dev_program *p, const dev_source *src, diag *d);
an_status host_adopt(dev_program *p, const void *bytes, size_t n, const dev_weights *w, diag *d);
an_status host_load(dev_program *p, diag *d);
void host_unload(dev_program *p);
an_status host_reload(dev_program *p, const dev_weights *w, bool *changed, diag *d);
an_status host_run(dev_program *p, const void *const *in, void *const *out, diag *d);
uint64_t host_digest(const dev_program *p);
an_status host_holds(dev_program *p, bool *holds, diag *d);
void host_drop(dev_program *p);
/* All entries of a device_class but the opening one. */
#define HOST_ENTRIES                                                                                                  \
    .close = host_close, .build = host_build, .adopt = host_adopt, .load = host_load, .unload = host_unload,          \
    .reload = host_reload, .run = host_run, .digest = host_digest, .holds = host_holds, .drop = host_drop
an_status soft_judge(device *dev, const dev_source *src, diag *d); /* the chip's rules; soft.c */
/* Those of them that look at what weights hold, of the weights a program gets: where they were not to be seen when
 * it was compiled, and of others later. */
an_status soft_accepts(const device *dev, const program *g, const weight_source *w, diag *d) MUST_CHECK;

/* ---- fits.c ---- */
an_status graph_fits(const graph *g, diag *d) MUST_CHECK;

/* ---- ledger.c ---- */
ledger *ledger_of_process(const chip *c); /* NULL: it has none */
bool ledger_take_compile(device *dev, uint64_t *seen); /* false: *seen are all there may be */
void ledger_give_compile(device *dev);
bool ledger_take_load(device *dev, uint64_t *seen);
void ledger_give_load(device *dev);
uint64_t ledger_compiled(device *dev);
bool ledger_unpaced(device *dev); /* sooner after a failure than the pace allows */
void ledger_outcome(device *dev, bool ok); /* of a compile */

/* ---- ports.c ---- */
bool ports_match(const program *g, const mil_module *m);

/* ---- weights.c ---- */
an_status weights_open(const dev_weights *w, lower_weights **out, diag *d) MUST_CHECK;
/* Copies of the records p refers to, or views when w is stable; takes files over (also when it fails). spare (may be
 * NULL): an earlier one of the same program, whose memory is used first: fresh pages cost several times the copy. */
an_status baked_make(device *dev, const program *p, const dev_weights *w, lower_weights *files, baked *spare,
                     baked **out, diag *d) MUST_CHECK;
void baked_free(baked *b); /* NULL is fine */
bool baked_same(const baked *a, const baked *b);
weight_source baked_source(baked *b);
const void *baked_owner(const baked *b); /* who hands them out; NULL otherwise */
bool baked_handed(const baked *b); /* the caller hands records out: dev_weights.record */
/* What a text and its weights are, for the cache. Records that cannot be read are left to the compiler to complain
 * about: false then. */
bool weights_identity(const mil_module *m, lower_weights *files, dev_key *key);
/* of the records g reads; never 0 */
an_status weights_checksum(const program *g, lower_weights *files, uint64_t *sum, diag *d) MUST_CHECK;
/* every record g reads is one that m names, of that type and size */
bool weights_named(const program *g, const mil_module *m);

static inline dev_key key_mix(dev_key k, const void *p, size_t n)
{
    return (dev_key){ { hash_many(p, n, k.word[0]), hash_many(p, n, k.word[1] ^ 0x517cc1b727220a95u) } };
}

#endif
