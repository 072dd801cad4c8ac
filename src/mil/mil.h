/* mil.h: MIL text as a typed module in memory, its reader and its one printer; and weight blobs, their one reader
 * and writer. A module keeps what was written (names, argument order, scalar spelling), so print(parse(text)) loses
 * nothing but white space and comments, and text printed here parses and prints back byte for byte. Everything hangs
 * off one arena. Hostile text is normal: depth, counts and memory are bounded, and every failure is AN_INPUT with
 * the line and column in d->at. */
#ifndef MIL_MIL_H
#define MIL_MIL_H

#include "base/arena.h"
#include "base/dtype.h"
#include "base/io.h"
#include "base/str.h"

enum { MIL_MAX_RANK = 8, MIL_MAX_DEPTH = 32 };

/* ---- types ---- */
typedef enum { MT_TENSOR, MT_DICT, MT_LIST, MT_TUPLE, MT_STATE, MT_OTHER } mil_type_kind;
typedef struct mil_type {
    mil_type_kind kind;
    dtype dt;                /* MT_TENSOR */
    bool bare;               /* a scalar spelled fp16, not tensor<fp16, []> */
    int rank;                /* a list<T, n> keeps its length as rank 1 */
    int64_t dim[MIL_MAX_RANK]; /* -1: "?" or a symbol */
    const char *sym[MIL_MAX_RANK]; /* the symbol as written ("?", "n"), for dims that are -1 */
    int n_sub;
    struct mil_type **sub;   /* dict: key, value; list, state: element; tuple: each */
    const char *text;        /* MT_OTHER (pixel_buffer<…> and the like): kept as written */
} mil_type;

/* ---- literals ---- */
typedef enum { ML_DATA, ML_STRINGS, ML_BLOB, ML_DICT, ML_LIST } mil_lit_kind;
typedef struct mil_lit {
    mil_lit_kind kind;
    mil_type *type;
    loc at;
    int64_t n;               /* elements (DATA, STRINGS), pairs (DICT), items (LIST) */
    void *data;              /* DATA: packed in type->dt */
    const char **str;        /* STRINGS: unescaped */
    const char *blob_path;   /* BLOB */
    uint64_t blob_offset;
    bool blob_bare;          /* BLOB: spelled path = string("…"), offset = uint64(…), not tensor<string, []>("…") */
    struct mil_lit **item;   /* LIST: n items; DICT: 2n, key then value */
} mil_lit;

/* ---- operations ---- */
typedef struct {
    const char *ref;         /* a value's name, or NULL and then: */
    mil_lit *lit;
    loc at;
} mil_arg_item;
typedef struct {
    const char *name;
    loc at;
    bool tuple;              /* written (a, b, c) */
    int n;
    mil_arg_item *item;
} mil_arg;
typedef struct {
    const char *name;
    loc at;
    mil_lit *lit;
} mil_attr;
typedef struct {
    mil_type *type;
    const char *name;
    loc at;
} mil_var;
struct mil_block;
typedef struct {
    loc at;                  /* of the operation's name */
    const char *op;
    int n_out, n_arg, n_attr, n_block;
    bool parens;             /* results written (T a, T b) = … */
    mil_var *out;
    mil_arg *arg;
    mil_attr *attr;          /* [name = …, val = …] */
    struct mil_block *block; /* nested bodies of cond, while_loop */
} mil_op;
typedef struct mil_block {
    const char *name;        /* functions and named blocks */
    loc at;
    const char *opset;       /* func NAME<opset>; NULL for nested blocks */
    int n_in, n_attr;
    mil_var *in;
    mil_attr *attr;
    size_t n_op;
    mil_op *op;
    int n_out;
    mil_arg_item *out;       /* names after -> */
    loc out_at;
} mil_block;
typedef struct {
    arena mem;
    const char *version;     /* "1.3" as written */
    int n_attr;
    mil_attr *attr;          /* buildInfo and friends */
    size_t n_func;
    mil_block *func;
    const char *text;        /* borrowed source, for carets; NULL when built in memory */
    size_t n_text;
} mil_module;

/* text need not be NUL-terminated and must outlive the module if carets are wanted. limit: arena bytes, 0 for a default
 * proportional to n. Checks names: every reference defined earlier, no duplicates, results exist. */
an_status mil_parse(const char *text, size_t n, size_t limit, mil_module **out, diag *d) MUST_CHECK;
void mil_free(mil_module *m);
void mil_print(const mil_module *m, strbuf *b);
bool mil_same(const mil_module *a, const mil_module *b, strbuf *why); /* meaning, not places */
const mil_block *mil_main(const mil_module *m);                       /* "main", else the only function, else NULL */
/* "file:line:col: message", the source line and a caret under it; tabs kept, long lines cut round the place. */
void mil_show_error(strbuf *b, const char *file, const char *text, size_t n, loc at, const char *msg);

/* ---- building in memory (lower/ uses these; results live in m->mem; NULL means no memory) ---- */
mil_module *mil_module_new(const char *version);
mil_type *mil_type_tensor(mil_module *m, dtype dt, int rank, const int64_t *dim, bool bare);
mil_lit *mil_lit_data(mil_module *m, mil_type *t, const void *packed);  /* copies */
mil_lit *mil_lit_str(mil_module *m, bool bare, const char *s);
mil_lit *mil_lit_blob(mil_module *m, mil_type *t, const char *path, uint64_t offset);

/* ---- weight blobs (facts 6.4) ---- */
typedef struct {
    dtype dt;
    uint64_t record;   /* offset of the 64-byte metadata: what a BLOBFILE reference names */
    uint64_t data;     /* offset of the bytes */
    uint64_t bytes;
} blob_entry;
typedef struct {
    file_bytes file;
    uint32_t count;    /* as the header says; a file that starts with a record instead of a header counts as 1 */
    bool borrowed;     /* blob_view: closing leaves the bytes alone */
} blob_file;
an_status blob_open(const char *path, blob_file *f, diag *d) MUST_CHECK;            /* header checked */
an_status blob_view(const void *p, size_t n, blob_file *f, diag *d) MUST_CHECK;     /* borrowed bytes */
void blob_close(blob_file *f);
/* Record at `offset`: sentinel, type, size and data offset checked against the file. want_bytes: what the MIL type
 * needs (0: unknown). Records whose size or data offset is 0 are read as community writers mean them: data right
 * behind. */
an_status blob_at(const blob_file *f, uint64_t offset, dtype want, uint64_t want_bytes, blob_entry *e, diag *d)
    MUST_CHECK;
/* walk; start at 0 */
an_status blob_next(const blob_file *f, uint64_t *offset, blob_entry *e, bool *more, diag *d) MUST_CHECK;

typedef struct {
    strbuf bytes;      /* the file so far; sb_free when done */
    uint32_t count;
} blob_writer;
/* Adds a record; *offset is what the BLOBFILE reference must say (64 for the first). */
an_status blob_add(blob_writer *w, dtype dt, const void *p, size_t n, uint64_t *offset, diag *d) MUST_CHECK;
an_status blob_finish(blob_writer *w, diag *d) MUST_CHECK; /* header written; w->bytes is the file */

#endif
