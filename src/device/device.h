/* device.h: every engine behind one interface.
 *
 *     device *dev; dev_program *p; dev_surface *x, *y; dev_request *r;
 *     device_open(&dev, "soft:m1", NULL, &d);
 *     device_compile(dev, &(dev_source){ .text = mil, .n_text = n, .weights.model_dir = "model" }, &p, &d);
 *     dev_program_load(p, &d);
 *     dev_surface_new(dev, 49152, &x, &d); ...                     what a surface must be: dev_program_surface_bytes
 *     dev_request_new(p, &r, &d);
 *     dev_request_bind(r, DEV_INPUT, "x", x, &d); ...
 *     dev_surface_write(x, data, bytes, &d); device_run(r, DEV_QOS, &d); dev_surface_read(y, data, bytes, &d);
 *
 * A device string selects one: soft:<chip> (m1 … m5, h13 …) behaves as that chip is measured to behave, limits and
 * errors included; cpu is the same executor without them; null accepts everything and computes nothing, which times
 * the host.
 *
 * Weights are baked: compiling takes a copy of the records the text refers to, and only dev_program_reload changes
 * them. Dispatches run one at a time, in the order in which they were submitted, on the thread that waits or on the
 * device's own. A dispatch reads its inputs as they were before it; its outputs land after. So one surface bound as
 * an output and as an input is state that stays on the device. Handles may be used from several threads; one request
 * or one surface from one thread at a time.
 *
 * Failures come back in diag; where the real system has words for them, device_error gives domain, code and text as
 * well. */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include "base/arena.h"
#include "base/dtype.h"
#include "base/pool.h"
#include "base/str.h"

typedef struct device device;
typedef struct dev_program dev_program;
typedef struct dev_surface dev_surface;
typedef struct dev_request dev_request;
typedef struct dev_cache dev_cache;

enum { DEV_MAX_RANK = 8, DEV_QOS = 21 /* what real callers pass; no effect was ever measured */ };

/* ---- opening ---- */
typedef struct {
#define DEV_LIMIT(field, soft, plain, what, evidence) int64_t field;
#include "device/limits.def"
#undef DEV_LIMIT
} device_limits;

typedef struct {
    const char *name; /* a row of limits.def */
    int64_t value;
} device_limit;

typedef struct {               /* zero means default */
    int threads;               /* 0: AN_THREADS, or else the CPUs */
    pool *pool;                /* share this one instead */
    bool reference;            /* the engine's slow meaning instead of the fast one */
    int fast_math;             /* cpu: engine.h image_options */
    const device_limit *limit; /* instead of the profile's */
    size_t n_limit;
    /* soft: compiles and loaded programs are counted for the whole process, all devices of one chip together. A
     * device with a limit of its own for them (compiles, reclaim, loaded), or with this set, counts for itself, as
     * if in a process of its own */
    bool own_budget;
    dev_cache *cache;          /* compiled programs; NULL: none. Must outlive the device */
    const char *maker;         /* tests: programs are kept as those of another compiler than this one (codegen_maker) */
    bool (*fault)(void *user, const char *where); /* tests: true makes that step fail for want of memory */
    void *user;
    /* tests: an engine that misbehaves. true at "compile" or "dispatch": it answers with an error; at "output": a
     * NaN in the first result; at "reload": the old weights stay in use and nothing is said; at "panel": what is
     * packed of the new ones is not right */
    bool (*spoil)(void *spoiler, const char *what);
    void *spoiler;
} device_options;

/* name NULL or "": the best one present. AN_USAGE: no such device; AN_UNSUPPORTED: not on this machine. */
an_status device_open(device **out, const char *name, const device_options *o, diag *d) MUST_CHECK;
void device_close(device *dev); /* NULL is fine. Frees what is left of programs and surfaces: their handles are dead */
const char *device_name(const device *dev); /* "soft:m1" */
const device_limits *device_get_limits(const device *dev);
pool *device_pool(const device *dev);       /* the threads it works with; NULL: the caller's alone */
bool device_computes(const device *dev);    /* false: outputs are never written */
bool device_is_plain(const device *dev);    /* no chip's rules */
/* operands to bf16, but for the shortest: one that is rounded already gives the same bits */
bool device_rounds_products(const device *dev);
void device_limits_print(strbuf *b, const char *format); /* the table: "text", "json", "markdown" */

typedef struct {
    const char *name;    /* as in a device string; "soft:<chip>" */
    const char *what;
    const char *why_not; /* NULL: present */
} device_info;
bool device_list(size_t i, device_info *out); /* best first; false: no more */
bool device_known(const char *name);          /* could be opened on some machine */
/* has a chip's limits: those of cpu and null are all "none". name as for device_open */
bool device_limited(const char *name);

/* What the engine itself said about the last call on dev that it refused. */
typedef struct {
    const char *domain; /* NULL: nothing yet */
    int code;
    uint32_t status;    /* 0x1d, or the kernel's 0xe00002… */
    char text[400];     /* its words, then what was expected */
} engine_error;
void device_error(device *dev, engine_error *out);

typedef struct {
    uint64_t compiles, cache_hits, cache_bad;
    /* attempts that made no program; attempts sooner after one than limit pace_ms */
    uint64_t compile_failures, unpaced;
    /* what counts against limit compiles now; of the whole process where devices share it */
    uint64_t budget_used;
    uint64_t loads, unloads, reloads;
    uint64_t dispatches, failed;
    uint64_t bytes_to_device, bytes_from_device; /* through surfaces, by the host */
    uint64_t surface_bytes, image_bytes;         /* held now */
    uint64_t programs, loaded, surfaces, requests; /* alive now */
    double compile_ms, load_ms, run_ms;
} device_stats;
void device_get_stats(device *dev, device_stats *out);

/* ---- programs ---- */
typedef struct {
    const char *path; /* as the text's BLOBFILE writes it: "@model_path/weights/weight.bin" */
    const void *bytes; /* the whole file */
    size_t n;
} dev_blob;
typedef struct {             /* zero: no weights */
    const dev_blob *blob;    /* looked at first */
    size_t n_blob;
    const char *model_dir;   /* what @model_path stands for; NULL: no folder */
    /* the caller keeps bytes and files unchanged until the program is freed or reloaded: no copy is made */
    bool stable;
    /* Instead of all that: the caller hands out records when the program is loaded, `bytes` bytes of type dt that
     * stay as they are until `done` of the same record (once it is packed and not looked at again; NULL: never
     * called) or until the program is freed. Compiling does not look at them, so a compiled program serves any
     * weights of its shapes; such a program cannot be reloaded. */
    an_status (*record)(void *user, const char *path, uint64_t offset, dtype dt, uint64_t bytes, const void **at,
                        diag *d);
    void (*done)(void *user, const char *path, uint64_t offset);
    void *user;
} dev_weights;
typedef struct {
    const char *text;
    size_t n_text;
    const char *file;        /* name in messages; NULL: "<text>" */
    dev_weights weights;
    /* performance counters asked for. No device has any: the program is made, and not loaded unless limits say stats */
    uint32_t stats_mask;
    /* cpu: attention and norms are not joined into operations that round less often because nobody else reads their
     * pieces: the same values have the same bits whatever else a program computes. Chips never join them */
    bool separate;
    /* the weights are never replaced: what they hold may decide how the program is made, and a reload is refused */
    bool final;
} dev_source;

typedef struct {
    const char *name;
    dtype dt;
    int rank;
    int64_t dim[DEV_MAX_RANK];
    uint64_t bytes; /* packed */
} dev_port;
typedef enum { DEV_INPUT, DEV_OUTPUT } dev_side;

an_status device_compile(device *dev, const dev_source *src, dev_program **out, diag *d) MUST_CHECK;
/* Program bytes made elsewhere (or dev_program_bytes of before). A chip refuses them unless limits say open_images.
 * Those of a final program take the weights it was made for and no others, now or later. */
an_status device_adopt(device *dev, const void *bytes, size_t n, const dev_weights *w, dev_program **out, diag *d)
    MUST_CHECK;
/* NULL is fine; waits for its dispatches. Requests of it can no longer be submitted */
void dev_program_free(dev_program *p);
an_status dev_program_load(dev_program *p, diag *d) MUST_CHECK;
an_status dev_program_unload(dev_program *p, diag *d) MUST_CHECK;
bool dev_program_loaded(const dev_program *p);
bool dev_program_from_cache(const dev_program *p);
/* AN_UNSUPPORTED: the device has none */
an_status dev_program_bytes(const dev_program *p, strbuf *out, diag *d) MUST_CHECK;

/* What proves that new weights are in use. weights_*: checksum of the constants the loaded program holds; output_*:
 * of what it answers to a fixed input, state ports included. */
typedef struct {
    /* set by the caller: a device that can show the constants it holds proves the change by them, without a dispatch;
     * output_* stay 0 */
    bool constants_only;
    uint64_t weights_before, weights_after, output_before, output_after;
    /* some record differs from the one in use before; what rounding swallows changes neither constants nor answers */
    bool source_changed;
} dev_canary;
/* New content for the same records: no parsing, no planning. On failure the old weights stay in use. A record that
 * the program was compiled around (an attribute the text keeps in a weight file) is no weight: other content of it
 * is AN_INPUT, here and when program bytes are loaded. With a canary (may be NULL) the change is proven: AN_BUG when
 * the loaded constants are not those of the new records, or what is packed of them for the kernels is not theirs. It
 * costs two dispatches; if the second one fails, or memory for the proof, the new weights are in use and unproven;
 * with constants_only it costs a checksum of them, making once more those that are not records as they lie, and
 * packing once more, all at the speed of memory. */
an_status dev_program_reload(dev_program *p, const dev_weights *w, dev_canary *canary, diag *d) MUST_CHECK;

/* Ports in binding order: sorted by name, whatever the text's order. */
size_t dev_program_ports(const dev_program *p, dev_side side, const dev_port **out);
/* NULL: none; index may be NULL */
const dev_port *dev_program_port(const dev_program *p, dev_side side, const char *name, size_t *index);
/* A surface size that any port of this side may be bound to. */
uint64_t dev_program_surface_bytes(const dev_program *p, dev_side side);

/* ---- surfaces: flat byte buffers ---- */
an_status dev_surface_new(device *dev, uint64_t bytes, dev_surface **out, diag *d) MUST_CHECK; /* zeroed */
void dev_surface_free(dev_surface *s); /* NULL is fine; requests that bind it keep it alive */
uint64_t dev_surface_bytes(const dev_surface *s);
/* Waits for the dispatches that use it. Locks do not nest, and a locked surface cannot be submitted. */
an_status dev_surface_lock(dev_surface *s, bool read_only, void **at, diag *d) MUST_CHECK;
an_status dev_surface_unlock(dev_surface *s, diag *d) MUST_CHECK;
/* lock, copy to byte 0, unlock */
an_status dev_surface_write(dev_surface *s, const void *data, size_t n, diag *d) MUST_CHECK;
an_status dev_surface_read(dev_surface *s, void *data, size_t n, diag *d) MUST_CHECK;

/* Where element [n][c][h][w] … of a tensor lies in a surface: byte steps per axis, all rows at multiples of
 * row_bytes (0: packed); *bytes is what it takes. false: overflow. */
bool dev_surface_steps(const dev_port *p, int64_t row_bytes, int64_t *step, uint64_t *bytes) MUST_CHECK;
void dev_surface_pack(const dev_port *p, int64_t row_bytes, const void *rows, void *packed);
void dev_surface_unpack(const dev_port *p, int64_t row_bytes, const void *packed, void *rows);

/* ---- requests: bindings that can be run again and again ---- */
an_status dev_request_new(dev_program *p, dev_request **out, diag *d) MUST_CHECK;
void dev_request_free(dev_request *r); /* NULL is fine; waits if it is submitted */
an_status dev_request_bind(dev_request *r, dev_side side, const char *name, dev_surface *s, diag *d) MUST_CHECK;
/* sorted index */
an_status dev_request_bind_at(dev_request *r, dev_side side, size_t index, dev_surface *s, diag *d) MUST_CHECK;
/* Bindings are judged here, as the engine judges them. The outcome of the run comes from device_wait. */
an_status device_submit(dev_request *r, int qos, diag *d) MUST_CHECK;
an_status device_wait(dev_request *r, diag *d) MUST_CHECK;
an_status device_run(dev_request *r, int qos, diag *d) MUST_CHECK; /* both */

/* ---- one program, once ---- */
typedef struct {
    const char *name;
    dtype dt;
    int rank;
    int64_t dim[DEV_MAX_RANK];
    const void *data; /* packed, any alignment */
} dev_tensor;
typedef VEC(dev_tensor) dev_tensors;
typedef struct {
    const dev_tensor *in;
    size_t n_in;
    const char *const *want; /* names of the results asked for; all when n_want is 0 */
    size_t n_want;
    /* inputs that are not given get numbers from -1 to 1, by their name and the seed; those that hold no floats, 0 */
    bool fill;
    uint64_t seed;
} dev_once;
/* Compile (or adopt, when the text is program bytes), bind, run. Inputs are converted to the declared types where no
 * value is lost but by rounding floats; an input that is a state (an output has its name) may be left out and starts
 * at zero, unless it is filled. Results come as fp16, fp32 or int32 in *out, in the order asked for, and live in
 * *mem. said may be NULL. */
an_status device_run_once(const char *name, const device_options *o, const dev_source *src, const dev_once *x,
                          arena *mem, dev_tensors *out, engine_error *said, diag *d) MUST_CHECK;

/* ---- compiled programs, kept ---- */
typedef struct {
    uint64_t word[2];
} dev_key;
typedef struct {              /* zero means default */
    const char *dir;          /* NULL: $ANNEAL_CACHE, else $XDG_CACHE_HOME/anneal, else ~/.cache/anneal */
    bool memory_only;
    uint64_t max_disk_bytes;  /* 0: $ANNEAL_CACHE_BYTES, else 1 GiB. The least recently used go first */
    uint64_t max_memory_bytes; /* 0: 64 MiB */
} dev_cache_options;
typedef struct {
    uint64_t memory_hits, disk_hits, misses, writes, bad, evicted;
} dev_cache_stats;
/* A folder that cannot be made or written is no failure: the cache then lives in memory, what the folder has is used
 * where it can be read, and why says so (d->st stays AN_OK). AN_INPUT: ANNEAL_CACHE_BYTES is needed and is no size. */
an_status dev_cache_open(dev_cache **out, const dev_cache_options *o, diag *d) MUST_CHECK;
void dev_cache_close(dev_cache *c); /* NULL is fine */
const char *dev_cache_dir(const dev_cache *c); /* NULL: memory only */
/* The bytes stored under the key, appended to *out; false: none, or not intact (then it is counted, and removed where
 * it can be). */
bool dev_cache_get(dev_cache *c, dev_key key, strbuf *out);
void dev_cache_put(dev_cache *c, dev_key key, const void *bytes, size_t n); /* best effort */
void dev_cache_drop(dev_cache *c, dev_key key); /* what was stored turned out to be bad */
void dev_cache_get_stats(dev_cache *c, dev_cache_stats *out);
typedef struct {
    char *dir;                /* for free(); NULL: the environment names none, and programs are kept in memory */
    char why_not[120];        /* it cannot be written; "": it can, or can be made */
    uint64_t programs, bytes; /* in it now */
    uint64_t max_bytes;       /* that they may come to */
} dev_cache_info;
/* The folder that dev_cache_open takes without options, as it is; nothing is made or removed. AN_INPUT as there,
 * max_bytes is 0 then. */
an_status dev_cache_look(dev_cache_info *out, diag *d) MUST_CHECK;

#endif
