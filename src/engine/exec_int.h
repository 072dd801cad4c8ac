/* exec_int.h: what the fast instructions share. Private to engine/.
 *
 * prepare reads an instruction's fields once and leaves a state; without one (a type or a set of numerics switches
 * the fast form does not know) run hands over to the reference. Two kinds of numerics are known: the plain processor
 * (no switch set) and a chip (round_each, nan_to_inf, invalid_zero and plain_zero set, the others as they please):
 * on a chip no value is ever NaN or -0 once it has been loaded or rounded, which is what lets whole vectors be
 * treated alike. */
#ifndef ENGINE_EXEC_INT_H
#define ENGINE_EXEC_INT_H

#include "engine/engine_int.h"
#include "kernel/vector.h"

typedef struct exec_env {
    const vec_kernels *v;
    uint32_t isa;
    int threads;
    int64_t l2; /* bytes of second-level cache */
    bool many_weights; /* more than the second caches hold: each comes from memory when it is used */
    /* the whole program's memory is within a few times the second caches: what an instruction reads is in them or in
     * the next */
    bool near;
    bool fast; /* the numerics are one of the two kinds */
    bool chip;
    const vec_table *tables[TAB_COUNT]; /* those used so far */
} exec_env;
an_status exec_open(image *im, exec_env **out, diag *d) MUST_CHECK; /* the same one for the whole image */
void exec_need_work(image *im, size_t bytes);
const vec_table *exec_table(image *im, table_id t, diag *d); /* NULL: no memory */

enum { EXEC_BLOCK = 1024 }; /* elements worked on at a time: some buffers of fp32 fit the first cache */

/* A result of so many bytes is gone from the caches before it is read again: write it past them. */
static inline bool exec_streams(const exec_env *e, int64_t bytes) { return bytes >= 8 * e->l2; }

bool exec_loads(dtype t); /* fp32 holds every value of it, and the vector kernels read it */
bool exec_stores(dtype t);
static inline int64_t exec_size(dtype t) { return dtype_bits(t) / 8; }

/* A tensor walked along the elements of a result it broadcasts to. */
typedef struct {
    int64_t tensor;
    dtype t;
    int rank; /* of the shape below: adjacent axes that behave alike are joined. 0: one element */
    int64_t dim[ENGINE_MAX_RANK], stride[ENGINE_MAX_RANK];
    bool same; /* element i of it belongs to element i of the result */
    bool idle; /* a chain's: no step reads it, but as what a result was */
} exec_walk;
exec_walk exec_walk_of(const program *p, int64_t tensor, const etensor *result);
/* n elements from place `at` of the result on, as an instruction sees them (num_in). */
void exec_read(const exec_env *e, const exec_walk *w, const void *mem, int64_t at, float *to, int64_t n);

/* They are all the same element: its value. */
bool exec_one_value(const exec_env *e, const exec_walk *w, const void *mem, int64_t at, int64_t n, float *value);

#if defined(__GNUC__)
#define EXEC_PREFETCH(p) __builtin_prefetch((p), 0, 3)
#define EXEC_PREFETCH_W(p) __builtin_prefetch((p), 1, 3)
#else
#define EXEC_PREFETCH(p) ((void)(p))
#define EXEC_PREFETCH_W(p) ((void)(p))
#endif
enum { EXEC_LINE = 64 }; /* bytes between two requests for memory ahead of its use */

/* ---- exec_chain.c: a chain as calls of vector kernels ---- */
typedef struct exec_chain exec_chain;
/* *out stays NULL when the chain needs the reference. port: input 0 is the accumulator. */
an_status exec_chain_make(image *im, const insn *in, const char *list, int64_t y, bool port, bool ceiling,
                          exec_chain **out, diag *d) MUST_CHECK;
size_t exec_chain_bytes(const exec_chain *ch); /* scratch of one thread */
/* Elements at .. at + n of y, n <= EXEC_BLOCK; acc: the sums of a multiply-accumulate pass, NULL without one. */
void exec_chain_block(const exec_chain *ch, const run_ctx *c, const float *acc, int64_t at, int64_t n, void *scratch);
/* A thread's share of a chain without an accumulator: any n. */
void exec_chain_span(const exec_chain *ch, const run_ctx *c, int64_t at, int64_t n, void *scratch);

/* Splits n elements into tasks of whole blocks; fn(user, first, count, thread). */
typedef void exec_span_fn(void *user, int64_t first, int64_t count, int thread);
void exec_spans(pool *p, int64_t n, int64_t least, exec_span_fn *fn, void *user);

/* ---- the entries of isa.def's exec column ---- */
#define INSN(id, name, fields, ref, exec, what) extern const exec_entry exec_##exec;
#include "engine/isa.def"
#undef INSN

#endif
