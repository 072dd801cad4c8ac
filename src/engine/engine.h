/* engine.h: the software engine. It is hardware: it sees program bytes, weight bytes and buffers, never a graph or a
 * text.
 *
 *   program   what codegen writes: tensors, instructions, ports, a manifest of constants, the numerics it was compiled for.
 *             Position-independent, the same bytes on every machine, checksummed; a file of them is hostile until decoded.
 *   image     a program loaded here: constants reconstructed and packed for this CPU's kernels, instructions prepared.
 *   run       one dispatch of an image against bound buffers. Two runs of one image do not overlap.
 *
 * ref.c gives every instruction its slow and obvious meaning; exec.c is the fast one. Both round where `numerics`
 * says, and agree bit for bit when it says round_each (soft:*), within the bounds of docs/numerics.md otherwise
 * (cpu). */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "base/arena.h"
#include "base/dtype.h"
#include "base/plane.h"
#include "base/pool.h"
#include "base/str.h"

/* ---- vocabulary ---- */

typedef struct {
#define NUM(field, cpu, what) double field;
#include "engine/numerics.def"
#undef NUM
} numerics;
extern const numerics numerics_cpu;
/* The first row in which they differ, and its two values; NULL: they are the same. */
const char *numerics_differ(const numerics *a, const numerics *b, double *of_a, double *of_b);

typedef enum {
#define INSN(id, name, fields, ref, exec, what) IN_##id,
#include "engine/isa.def"
#undef INSN
    IN_COUNT
} insn_id;
bool insn_is_product(insn_id op); /* a convolution or a matrix product, with whatever rides behind it */

typedef enum {
#define FN(id, name, operands, params, table) FN_##id,
#include "engine/fns.def"
#undef FN
    FN_COUNT
} fn_id;

typedef enum { RED_SUM, RED_MEAN, RED_MAX, RED_MIN, RED_SUM_SQUARE, RED_L1, RED_L2, RED_LOG_SUM, RED_LOG_SUM_EXP,
               RED_COUNT } red_kind;
typedef enum { NORM_LAYER, NORM_RMS, NORM_L2, NORM_COUNT } norm_kind; /* L2: x / sqrt(sum + eps) */
typedef enum { POOL_AVG, POOL_MAX, POOL_MIN, POOL_L2, POOL_L1, POOL_COUNT } pool_kind;

enum { ENGINE_MAX_RANK = 8, CHAIN_STEP = 6, CHAIN_MOST_RESULTS = 4 };

typedef enum { SPACE_SCRATCH, SPACE_INPUT, SPACE_OUTPUT, SPACE_CONST } space;
typedef struct {
    dtype dt;
    space where;
    uint32_t slot;    /* INPUT, OUTPUT: port number; CONST: manifest entry */
    /* bytes from the start of the scratch block, the port's buffer or the constant: several tensors may view one */
    uint64_t offset;
    int rank;
    int64_t dim[ENGINE_MAX_RANK];
} etensor;

/* one decoded instruction; t, i and f hold the fields of their kind in table order, lists as length + items */
typedef struct {
    insn_id op;
    uint32_t n_t, n_i, n_f;
    const int64_t *t; /* tensor numbers; -1: none. A t* field is its length, then numbers */
    const int64_t *i;
    const double *f;
    uint32_t line;    /* of the MIL statement it came from, for messages and profiles; 0 unknown */
} insn;

typedef struct {
    const char *name;
    uint32_t tensor;
    uint64_t bytes;   /* packed */
} eport;

/* A constant: dense bytes, or a compressed form the loader reconstructs. Each source is inline in the program or a
 * record of a weight file, so weights can be replaced without compiling. */
typedef enum { CK_DENSE, CK_AFFINE, CK_LUT, CK_SPARSE, CK_BLOCK, CK_SPARSE_BLOCK, CK_CAUSAL, CK_FIXED,
               CK_COUNT } const_kind;
typedef struct {
    const char *path; /* NULL: inline */
    uint64_t offset;  /* of the metadata record in the file; inline: in the program's data section */
    dtype dt;
    int rank;
    int64_t dim[ENGINE_MAX_RANK];
    uint64_t bytes;
} const_source;
typedef struct {
    const_kind kind;
    uint32_t tensor;
    /* DENSE: data. AFFINE: q, scale, zero. LUT: indices, table. SPARSE: values, mask. BLOCK: q, scale[, offset].
     * SPARSE_BLOCK: q of the kept places, mask, scale[, offset], blocks counted in the dense tensor. CAUSAL: data of a
     * mask that instructions take for causal without reading it: what is loaded has to be one. FIXED: data that fields
     * of instructions were made from, and what it was then, inline: what is loaded has to be the same */
    int n_src;
    const_source src[4];
    int64_t axis;     /* AFFINE: channel axis; LUT: vector axis or -1 */
} const_entry;

typedef struct program {
    arena mem;        /* holds all of it once decoded */
    numerics num;
    const char *target; /* "cpu", "m1" … */
    const char *title;
    uint64_t scratch_bytes;
    uint64_t key;     /* content: what it was compiled from */
    bool final;       /* what its weights held decided how it was made: no others serve it */
    uint64_t weights; /* final: checksum of the records it reads; 0: they were not looked at */
    VEC(etensor) tensors;
    VEC(insn) insns;
    VEC(eport) inputs, outputs; /* in binding order: sorted by name */
    VEC(const_entry) consts;
    const unsigned char *data; /* inline constants */
    uint64_t n_data;
} program;

/* ---- container ---- */
enum { PROGRAM_VERSION = 18 };
/* The most bytes a tensor, the scratch memory, and all a program holds together may take: 1 TiB, more than a machine
 * of this kind has. Whoever asks for more gives bad input; less than that and not to be had is a lack of memory. */
#define ENGINE_MOST_BYTES ((uint64_t)1 << 40)
bool program_is(const void *bytes, size_t n); /* they begin as one does */
an_status program_encode(const program *p, strbuf *out, diag *d) MUST_CHECK;
/* Bytes are copied. Everything is checked: checksum, version, counts, tensor numbers, shapes, sizes, chains, ports. */
an_status program_decode(const void *bytes, size_t n, program **out, diag *d) MUST_CHECK;
an_status program_check(const program *p, diag *d) MUST_CHECK; /* what decode checks of a program in memory */
/* its part about ENGINE_MOST_BYTES, for a program whose numbers are in range */
an_status program_fits(const program *p, diag *d) MUST_CHECK;
program *program_new(const char *title, const char *target, const numerics *num); /* empty; NULL: no memory */
void program_free(program *p); /* NULL is fine */
void program_print(const program *p, strbuf *b); /* disassembly */
void isa_print(strbuf *b, const char *format);   /* the instruction table: "text", "json", "markdown" */
enum { SCORE_NEVER = -10000 }; /* a score this far below the others has no weight in any of our types */
/* Is it rows x rows of 0 or true up to the diagonal, and behind it of one value that leaves a score no weight? */
bool mask_is_causal(dtype t, const void *mask, int64_t rows);
const char *fn_name(fn_id f);
int fn_operands(fn_id f);
int fn_params(fn_id f);

/* ---- loading and running ---- */
/* Where the bytes of weight files come from, borrowed until the image is freed or reloaded. `record` hands out the
 * data of the record at `offset`, whose size and type the caller has compared with what the program wants; `file`,
 * used when there is no `record`, the whole file, of which only conforming records are then read. */
typedef struct {
    an_status (*file)(void *user, const char *path, const unsigned char **at, size_t *n, diag *d);
    void *user;
    an_status (*record)(void *user, const char *path, uint64_t offset, dtype type, uint64_t bytes,
                        const unsigned char **at, diag *d);
    /* NULL, or told when the bytes of a record are packed and will not be read again. Such an image cannot be
     * reloaded. */
    void (*done)(void *user, const char *path, uint64_t offset);
} weight_source;

/* Packed constants that several images share: programs of one model for other lengths of text. Packed once, freed
 * with the last image that uses them. One store may serve images of several threads. */
typedef struct pack_store pack_store;
pack_store *pack_store_new(void); /* NULL: no memory */
void pack_store_free(pack_store *s); /* NULL is fine; after the images */

/* FAST_BF16: operands of products rounded to bf16, fp32 sums. FAST_INT8: a constant weight stored as int8 with
 * scales by row times the other operand quantised to int8 by its columns (tokens), sums exact: within max|x| / 254 ·
 * sum|w| of the exact product; all other products as FAST_BF16. Few columns of a compressed weight multiply in fp32
 * whatever this says: reading the weight is all they wait for. */
enum { FAST_NONE, FAST_BF16, FAST_INT8, FAST_COUNT };

/* Weights may be replaced, what the program was compiled around may not: AN_INPUT names a record of CAUSAL or FIXED
 * that is not what it was. Loading and reloading begin with this. w may be NULL. */
an_status program_accepts(const program *p, const weight_source *w, diag *d) MUST_CHECK;
/* Compressed weights that no constant can be made of, AN_INPUT when an image is loaded, without loading one: a mask
 * that keeps more or fewer places than there are values, an index that its table has no entry for. */
an_status program_makes(const program *p, const weight_source *w, diag *d) MUST_CHECK;

typedef struct image image;
typedef struct {
    bool reference; /* run ref.c instead of exec.c */
    pool *pool;     /* NULL: this thread */
    int fast_math;  /* cpu only, FAST_*: what is multiplied; anything else is refused */
    pack_store *packs;      /* NULL: every image packs for itself. With it such constants cannot be reloaded */
    const void *pack_owner; /* whose records they are: the same path of another owner is another constant */
} image_options;
/* p must outlive it */
an_status image_load(image **out, const program *p, const weight_source *w, const image_options *o, diag *d) MUST_CHECK;
an_status image_reload(image *im, const weight_source *w, diag *d) MUST_CHECK; /* constants again, packing only */
/* by port number; bits of an output's last byte that no element has are zero */
an_status image_run(image *im, const void *const *inputs, void *const *outputs, diag *d) MUST_CHECK;
uint64_t image_bytes(const image *im); /* memory it holds */
/* what a run with these would add to it, for good: room for copies of inputs */
uint64_t image_grows(const image *im, const void *const *inputs, void *const *outputs);
uint64_t image_digest(const image *im); /* checksum of the constants as it holds them */
/* Are its constants, and what is packed of them for the kernels, what w gives, to the bit? Constants cost nothing
 * where the bytes of w are in use as they are; others are made once more, and compared. Packing is done once more,
 * over what is there, with a checksum before and after: a panel that was not right is then, and the answer is no.
 * Between runs, with weights that stay as those it was loaded with do. */
an_status image_holds(image *im, const weight_source *w, bool *holds, diag *d) MUST_CHECK;
/* the i-th packed constant, for who spoils one; false: no more */
bool image_panel(const image *im, size_t i, void **at, size_t *bytes);
void image_free(image *im);

/* ---- scalar arithmetic, for tests and docs ---- */
double num_fn(const numerics *n, fn_id f, const double *operand, const double *param, dtype result);
double num_round(const numerics *n, dtype t, double x);       /* at a store */
double num_tile(const numerics *n, const double *product, int count); /* up to four products through the window */

#endif
