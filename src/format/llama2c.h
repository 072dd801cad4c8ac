/* llama2c.h: llama2.c's .bin files: version 0 (seven numbers, then fp32), 1 (a 256-byte header, fp32) and 2 (int8 in
 * groups). A file has exactly the size its header implies, or it is refused. Writing is atomic and takes tensors in
 * any order. */
#ifndef FORMAT_LLAMA2C_H
#define FORMAT_LLAMA2C_H

#include "base/io.h"

/* The tensors, per layer from NORM1 to W3. Matrices are (outputs, inputs). */
typedef enum { L2C_EMBED, L2C_NORM1, L2C_WQ, L2C_WK, L2C_WV, L2C_WO, L2C_NORM2, L2C_W1, L2C_W2, L2C_W3, L2C_NORM_F,
               L2C_HEAD, L2C_COUNT } llama2c_id;

typedef struct {
    int version;     /* 0, 1, 2 */
    int64_t dim, hidden, layers, heads, kv_heads, vocab, seq;
    bool shared;     /* the classifier is the embedding */
    int64_t group;   /* version 2: elements that share a scale, counted along the whole tensor */
} llama2c_shape;

typedef struct {
    int64_t rows, cols;
    const unsigned char *data;   /* fp32, or int8; any alignment */
    const unsigned char *scales; /* version 2, matrices: fp32, one per group; else NULL */
    size_t bytes, scale_bytes;
} llama2c_tensor;

typedef struct {
    llama2c_shape shape;
    file_bytes map;  /* empty for a view */
    const unsigned char *at;
} llama2c;

an_status llama2c_open(const char *path, llama2c *out, diag *d) MUST_CHECK;
an_status llama2c_view(const void *bytes, size_t n, const char *file, llama2c *out, diag *d) MUST_CHECK; /* borrowed */
void llama2c_close(llama2c *f);
/* False: the file has no such tensor (a shared classifier, a layer past the end). */
bool llama2c_get(const llama2c *f, llama2c_id id, int64_t layer, llama2c_tensor *out);
const char *llama2c_name(llama2c_id id); /* "wq" … */

/* ---- writing ---- */

typedef struct llama2c_out llama2c_out;
an_status llama2c_create(const char *path, const llama2c_shape *s, llama2c_out **out, diag *d) MUST_CHECK;
/* The next n bytes of a tensor: its elements, then its scales. Version 0's rotary tables are written by
 * llama2c_finish. */
an_status llama2c_put(llama2c_out *w, llama2c_id id, int64_t layer, const void *p, size_t n, diag *d) MUST_CHECK;
an_status llama2c_finish(llama2c_out *w, diag *d) MUST_CHECK; /* every tensor must be complete; frees w in any case */
void llama2c_abandon(llama2c_out *w); /* NULL is fine */

#endif
