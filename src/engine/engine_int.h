/* engine_int.h: what the files of the engine share. Private to engine/.
 *
 *   isa.c       the fields of an instruction, by name       check*.c   a program that passes cannot make ref or exec go astray
 *   numerics.c  every rounding and every scalar function    tables.c   the 33-knot activation tables
 *   ref*.c      ref_<word>(run_ctx, insn): the meaning      exec*.c    exec_<word>: the same, fast
 *   image.c     memory, constants, the loop over instructions
 *
 * A checked instruction needs no further checks at run time but of values: indices into tensors and integer
 * division. */
#ifndef ENGINE_ENGINE_INT_H
#define ENGINE_ENGINE_INT_H

#include "engine/engine.h"

/* ---- isa.c: fields ---- */
typedef enum { FIELD_T, FIELD_T_OPT, FIELD_T_LIST, FIELD_I, FIELD_I_LIST, FIELD_F, FIELD_F_LIST } field_kind;
enum { FIELD_NAME = 16, ISA_MAX_FIELDS = 12, MOVE_MAX_RANK = 16 };
typedef struct {
    char name[FIELD_NAME];
    field_kind kind;
} insn_field;
int isa_fields(insn_id op, insn_field *out); /* at most ISA_MAX_FIELDS, in encoding order; returns how many */
const char *insn_name(insn_id op);
const char *insn_what(insn_id op);
int insn_outputs(insn_id op); /* how many of the leading tensor fields are written; the others are read */

/* The tensors a checked instruction reads, or those it writes, one after the other; f[field] has the name. */
typedef struct {
    const int64_t *t;
    int field, n_fields, outputs;
    int64_t left;
    insn_field f[ISA_MAX_FIELDS];
} insn_walk;
void insn_walk_begin(insn_walk *w, const insn *in);
bool insn_walk_next(insn_walk *w, bool written, int64_t *tensor); /* false: past the last */

/* Fields of a checked instruction by name. Asking for a name the row lacks is a bug and stops the program. */
int64_t insn_t(const insn *in, const char *name);                        /* tensor number; -1: none */
const int64_t *insn_ts(const insn *in, const char *name, int64_t *n);
int64_t insn_i(const insn *in, const char *name);
const int64_t *insn_is(const insn *in, const char *name, int64_t *n);
double insn_f(const insn *in, const char *name);
const double *insn_fs(const insn *in, const char *name, int64_t *n);

/* ---- shapes ---- */
int64_t dims_product(const int64_t *d, int from, int to); /* of a checked tensor: cannot overflow */
static inline int64_t et_elems(const etensor *t) { return dims_product(t->dim, 0, t->rank); }
bool et_bytes(const etensor *t, uint64_t *bytes) MUST_CHECK; /* false: overflow */
void et_strides(const etensor *t, int64_t *stride);                              /* row-major, in elements */
/* walked as a shape of that rank: 0 where it repeats */
void et_broadcast_strides(const etensor *in, int rank, int64_t *stride);
bool et_broadcasts(const etensor *in, const int64_t *d, int rank);
typedef struct {
    int64_t outer, n, inner;
} axis_view; /* x seen as outer x n x inner around an axis */
axis_view et_axis(const etensor *t, int64_t axis);

/* ---- print.c: what messages and listings call things ---- */
typedef struct {
    char text[200]; /* "fp16[2,3]": a name, and ENGINE_MAX_RANK extents of any size */
} type_text;
type_text type_show(dtype dt, const int64_t *dim, int rank);
const char *const_kind_name(const_kind k);

/* ---- a chain: steps of CHAIN_STEP integers ---- */
typedef struct {
    const int64_t *step; /* n_steps x CHAIN_STEP */
    int64_t n_steps, n_inputs, n_params;
    const double *param;
} chain;
chain insn_chain(const insn *in, int64_t n_inputs); /* from `steps` and `params` */
/* Results of ew and ews: tensor and step (-1: the input, of a chain without steps) of each; returns how many. */
int insn_results(const insn *in, int64_t tensor[CHAIN_MOST_RESULTS], int64_t step[CHAIN_MOST_RESULTS]);
enum { STEP_FN, STEP_A, STEP_B, STEP_C, STEP_PARAM, STEP_TYPE };
/* value: n_inputs entries, then room for n_steps results. The result is the last one; without steps, input 0.
 * port: the chain stands behind a multiply-accumulate pass. Fails on integer division by zero. */
an_status chain_run(const numerics *num, const chain *ch, bool port, double *value, double *result, diag *d) MUST_CHECK;

/* ---- numerics.c, beyond engine.h ---- */
/* an operand as an instruction sees it: NaN and -0 by the rules */
double num_in(const numerics *n, dtype t, double x);
double num_valid(const numerics *n, double x);         /* a result: NaN becomes +0 where the rules say so */
double num_fn_port(const numerics *n, fn_id f, const double *operand, const double *param, dtype result);
/* at the output of a multiply-accumulate pass; ceiling not applied */
double num_round_port(const numerics *n, dtype t, double x);
double num_ceiling(const numerics *n, double x);             /* the output port's ceiling */
/* an operand of a product: fp16 on a chip, subnormals by the rules */
float num_flush(const numerics *n, double x);
float num_wide_add(const numerics *n, float acc, float x);   /* one fp32 addition, invalid by the rules */
/* One multiply-accumulate pass over `count` pairs in ascending order, up to and not including the epilogue. ceiling:
 * the instruction has an output-port ceiling. Operands as num_flush gives them. */
float num_dot(const numerics *n, const float *a, const float *b, int64_t count, bool ceiling);
float f16_to_f32(uint16_t h);
uint16_t f16_from_f32(float x); /* nearest even */

/* ---- tables.c ---- */
enum { TABLE_WORDS = 43, TABLE_X_LO = 0, TABLE_X_HI, TABLE_Y_LO, TABLE_Y_HI, TABLE_KNOT, TABLE_LO = 37, TABLE_HI = 39,
       TABLE_SHIFT = 41, TABLE_MODE = 42, TABLE_SEGMENTS = 32, TABLE_NO_KNOTS = 0x40 };
typedef enum {
    TAB_none,
#define TABLE(name, ...) TAB_##name,
#define COMPOSED(name) TAB_##name,
#include "engine/tables.def"
#undef TABLE
#undef COMPOSED
    TAB_COUNT
} table_id;
table_id fn_table(fn_id f);                  /* TAB_none: computed */
const char *table_name(table_id t);
const uint16_t *table_words(table_id t);     /* NULL: none, or composed */
/* f by its table or tables, in fp32: rounded to `result` between passes, not at the end. fn_table(f) is not
 * TAB_none. */
float table_fn(const numerics *n, fn_id f, const float *x, const float *param, dtype result);
#define LOG2_E 0x3dc5 /* the scale before exp2 that makes exp, and the one behind log2 that makes log */
#define LN_2 0x398c

/* ---- loading and running ---- */
typedef struct run_ctx {
    const program *p;
    const numerics *num;
    pool *pool;
    unsigned char *const *mem; /* per tensor */
    arena *tmp;                /* emptied after every instruction */
    void *state;               /* what prepare made for this instruction, or NULL */
    void *work;                /* image.work_bytes, 64-byte aligned, shared by all instructions */
    int fast_math;
} run_ctx;
typedef an_status insn_fn(const run_ctx *c, const insn *in, diag *d);

static inline const etensor *ctx_tensor(const run_ctx *c, int64_t t) { return &c->p->tensors.at[t]; }
static inline void *ctx_mem(const run_ctx *c, int64_t t) { return c->mem[t]; }

/* The fast form of an instruction. prepare runs once at load, when the constants are in place (im->mem of a constant
 * tensor is set, of a port it is NULL): it takes state from im->prepared and raises im->work_bytes as needed. repack
 * runs at reload. */
typedef struct {
    insn_fn *run;
    an_status (*prepare)(image *im, const insn *in, void **state, diag *d);
    an_status (*repack)(image *im, const insn *in, void *state, diag *d);
} exec_entry;
const exec_entry *exec_entry_of(insn_id op);   /* exec.c */
bool exec_flushes(const image *im);            /* are subnormal results of its runs zero? */
insn_fn *ref_entry_of(insn_id op);             /* ref.c */

typedef struct {
    size_t insn;
    unsigned char *at;
    size_t bytes;
} panel;

struct image {
    const program *p;
    image_options opt;
    unsigned char **mem;       /* per tensor; ports are bound at run */
    unsigned char **const_at;  /* per manifest entry: its elements in the tensor's type */
    struct {
        const unsigned char *at[4];
    } * stored; /* per manifest entry: its sources, read by an instruction as they are; at[0] NULL: by none */
    /* per manifest entry: memory of our own for it, or NULL when the source is used in place */
    unsigned char **const_own;
    void **state;              /* per instruction */
    unsigned char *scratch, *work;
    unsigned char **view;      /* per input port: where this run reads it */
    int64_t *in_place;         /* per input port: the output that begins as its copy, -1: none */
    /* per input: the elementwise chain that reads it last; per output: the one that makes it; -1 */
    int64_t *last_chain, *chain_of;
    unsigned char **shadow;    /* per input port: copy taken when an output shares its memory; NULL until needed */
    size_t work_bytes;
    uint64_t own_bytes;        /* constants, scratch, work, shadows */
    VEC(void *) blocks;        /* scratch and work lie in them */
    arena mem_image;           /* the arrays above */
    arena prepared;            /* what prepare took */
    struct exec_env *exec;     /* exec.c: kernels chosen for this CPU; NULL before the first prepare */
    arena tmp;
    bool broken;               /* a reload failed half way */
    /* Constants whose source wants to hear when they are packed (weight_source.done) are loaded when an instruction
     * asks for them, and let go after the last one that has packed them for itself. */
    bool lazy;
    const weight_source *source; /* while loading */
    int64_t packed_now;          /* the tensor that the instruction being prepared has packed; -1: none */
    VEC(uint32_t) shared;        /* entries of opt.packs this image holds */
    size_t preparing;            /* instruction */
    /* what is packed or made of constants and its own, in the order of their instructions */
    VEC(panel) panels;
};
void *engine_alloc(uint64_t bytes); /* 64-byte aligned, zeroed, free() frees it; NULL: no memory */

/* weights.c: constant k of the manifest, from its sources. */
an_status const_load(image *im, const weight_source *w, size_t k, diag *d) MUST_CHECK;
an_status const_sources(const image *im, const weight_source *w, size_t k, const unsigned char *at[4], diag *d)
    MUST_CHECK;
/* image.c: its elements are in im->mem; not a constant: nothing */
an_status const_ready(image *im, int64_t tensor, diag *d) MUST_CHECK;

void const_done(image *im, size_t k); /* image.c: lazy: its sources are not read again */

/* packs.c: memory for a packed constant. *fresh: it has to be filled. */
typedef struct {
    int64_t tensor;
    const char *form; /* of the kernel that reads it */
    int64_t m, k, row, col, packs;
    bool turned;      /* in another order than the constant's own */
} pack_key;
an_status pack_take(image *im, const pack_key *key, size_t bytes, unsigned char **at, bool *fresh, diag *d) MUST_CHECK;
/* Memory of the instruction being prepared that its repack writes whole, from constants alone: who proves a reload
 * looks at it. NULL, and no bytes, are fine. */
an_status panel_note(image *im, void *at, size_t bytes, diag *d) MUST_CHECK;
void packs_lock(pack_store *s); /* NULL is fine */
void packs_unlock(pack_store *s);
void packs_drop(image *im); /* what it holds; locks */

/* ---- ref.c: what the reference instructions share ---- */
#define INSN(id, name, fields, ref, exec, what) insn_fn ref_##ref;
#include "engine/isa.def"
#undef INSN

double *ref_take(const run_ctx *c, int64_t n, diag *d);                  /* NULL: no memory, said in d */
double *ref_load(const run_ctx *c, int64_t tensor, diag *d);             /* all of it, each element through num_in */
double *ref_load_raw(const run_ctx *c, int64_t tensor, diag *d);         /* as stored */
void ref_store(const run_ctx *c, int64_t tensor, int64_t i, double x);   /* num_round to the tensor's type */
an_status ref_index(const run_ctx *c, const insn *in, double v, int64_t extent, int64_t *out, diag *d) MUST_CHECK;
typedef struct {
    int64_t first, end; /* keys first .. end - 1 */
} keys_seen;
/* by a row of attend_at at this position; window 0: none */
keys_seen ref_sees(double pos, int64_t keys, int64_t window);
/* quantize, or dequantize, one number; not stored yet */
double ref_affine(bool to_int, double x, double scale, double zero);
bool next_index(const int64_t *d, int rank, int64_t *idx);               /* row-major odometer; false: wrapped around */

/* ---- check.c ---- */
an_status check_insn(const program *p, size_t index, diag *d) MUST_CHECK; /* check_insn.c: operands and shapes */

#endif
