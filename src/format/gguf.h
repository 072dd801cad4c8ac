/* gguf.h: GGUF versions 2 and 3: metadata, tensor descriptions, tensor bytes. Layouts of the tensors' elements:
 * format/blocks.h.
 *
 * Reading maps the file and checks all of it before anything is given out: counts and lengths against the bytes that
 * are there, value types, duplicate keys and names, UTF-8 of keys, tensor types, whole blocks, alignment, ranges
 * that overlap or pass the end. Writing is atomic and streams like safetensors.h; always version 3. */
#ifndef FORMAT_GGUF_H
#define FORMAT_GGUF_H

#include "base/io.h"
#include "base/str.h"
#include "format/blocks.h"

/* The numbers are the file's. */
typedef enum {
    GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL, GGUF_STRING, GGUF_ARRAY, GGUF_U64, GGUF_I64, GGUF_F64,
    GGUF_TYPES
} gguf_type;

typedef struct {
    const char *at; /* not NUL-terminated */
    size_t n;
} gguf_str;

typedef struct {
    const char *key;
    gguf_type type;
    /* by type: */
    uint64_t u;          /* unsigned types, BOOL */
    int64_t i;           /* signed types */
    double f;            /* F32, F64 */
    gguf_str s;          /* STRING */
    gguf_type of;        /* ARRAY: of what */
    uint64_t n;          /* ARRAY: how many */
    const gguf_str *strs; /* ARRAY of STRING */
    /* ARRAY of numbers: packed, unaligned; NULL for an array of arrays, which is checked and not kept */
    const unsigned char *raw;
} gguf_value;

enum { GGUF_MAX_RANK = 4 };
typedef struct {
    const char *name;
    const block_format *type;
    int rank;
    int64_t dim[GGUF_MAX_RANK]; /* slowest first: (rows, cols); the file has them the other way round */
    int64_t count;
    size_t bytes;
    const void *data; /* inside the map, aligned to general.alignment */
} gguf_tensor;

typedef struct gguf gguf;
an_status gguf_open(const char *path, gguf **out, diag *d) MUST_CHECK;
/* borrowed until gguf_close */
an_status gguf_view(const void *bytes, size_t n, const char *file, gguf **out, diag *d) MUST_CHECK;
void gguf_close(gguf *f); /* NULL is fine */
const char *gguf_file(const gguf *f);
uint32_t gguf_version(const gguf *f);

size_t gguf_value_count(const gguf *f);
const gguf_value *gguf_value_at(const gguf *f, size_t i);
const gguf_value *gguf_get(const gguf *f, const char *key); /* NULL: absent */
/* False: absent, or not such a value (a whole number of any width; a number of any type; a text). */
bool gguf_int(const gguf *f, const char *key, int64_t *out);
bool gguf_number(const gguf *f, const char *key, double *out);
bool gguf_text(const gguf *f, const char *key, gguf_str *out);
bool gguf_item(const gguf_value *array, uint64_t i, double *out); /* of an array of numbers */
const char *gguf_type_name(gguf_type t);

size_t gguf_tensor_count(const gguf *f);
const gguf_tensor *gguf_tensor_at(const gguf *f, size_t i);
const gguf_tensor *gguf_find(const gguf *f, const char *name); /* NULL: absent */

/* ---- writing ---- */

typedef struct gguf_out gguf_out;
an_status gguf_create(const char *path, gguf_out **out, diag *d) MUST_CHECK;
/* Values and tensors come before any bytes; a key or name given twice is refused. */
an_status gguf_put_text(gguf_out *w, const char *key, const char *s, size_t n, diag *d) MUST_CHECK;
an_status gguf_put_u32(gguf_out *w, const char *key, uint32_t x, diag *d) MUST_CHECK;
an_status gguf_put_f32(gguf_out *w, const char *key, float x, diag *d) MUST_CHECK;
an_status gguf_put_bool(gguf_out *w, const char *key, bool x, diag *d) MUST_CHECK;
an_status gguf_put_texts(gguf_out *w, const char *key, const gguf_str *s, size_t n, diag *d) MUST_CHECK;
/* numbers */
an_status gguf_put_array(gguf_out *w, const char *key, gguf_type of, const void *packed, size_t n, diag *d) MUST_CHECK;
an_status gguf_put_value(gguf_out *w, const gguf_value *v, diag *d) MUST_CHECK; /* of another file */
an_status gguf_declare(gguf_out *w, const char *name, const block_format *type, int rank, const int64_t *dim,
                       size_t *index, diag *d) MUST_CHECK;
/* the next n bytes of tensor `index` */
an_status gguf_put(gguf_out *w, size_t index, const void *p, size_t n, diag *d) MUST_CHECK;
/* every tensor must be complete; frees w in any case; a failure leaves no file */
an_status gguf_finish(gguf_out *w, diag *d) MUST_CHECK;
void gguf_abandon(gguf_out *w); /* NULL is fine */

#endif
