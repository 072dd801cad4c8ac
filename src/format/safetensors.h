/* safetensors.h: named tensors in a file: u64 header length, a JSON header, then the bytes of the tensors without a
 * gap.
 *
 * Reading maps the file and checks all of it before a tensor is given out: header length, JSON, duplicate names,
 * types, shapes against byte counts, ranges that overlap, leave holes or pass the end. A sharded model
 * (model.safetensors.index.json) opens as one set of tensors. Writing is atomic and streams: declare every tensor,
 * then put their bytes in any order, a piece at a time. */
#ifndef FORMAT_SAFETENSORS_H
#define FORMAT_SAFETENSORS_H

#include "base/dtype.h"
#include "base/io.h"

enum { SAFETENSORS_MAX_RANK = 8 };

typedef struct {
    const char *name;
    dtype dt;
    int rank;                          /* 0: one number */
    int64_t dim[SAFETENSORS_MAX_RANK];
    int64_t count;                     /* elements */
    size_t bytes;
    const void *data;                  /* packed, C order; may be unaligned; lives until safetensors_close */
    const char *file;                  /* the shard it lies in, as opened */
} safetensor;

typedef struct safetensors safetensors;

/* path: a .safetensors file, or an index (a name that ends in .json). */
an_status safetensors_open(const char *path, safetensors **out, diag *d) MUST_CHECK;
/* The image of one file, borrowed until safetensors_close; `file` is its name in messages. */
an_status safetensors_view(const void *bytes, size_t n, const char *file, safetensors **out, diag *d) MUST_CHECK;
void safetensors_close(safetensors *f); /* NULL is fine */

size_t safetensors_count(const safetensors *f);
const safetensor *safetensors_at(const safetensors *f, size_t i); /* shard by shard, in the order of their bytes */
const safetensor *safetensors_find(const safetensors *f, const char *name); /* NULL: no such tensor */
/* __metadata__ of the first shard. NULL: no such key. */
const char *safetensors_meta(const safetensors *f, const char *key);
uint64_t safetensors_meta_sum(const safetensors *f, const char *but); /* a checksum of all of it but one key */

const char *safetensors_dtype(dtype dt); /* "F16" …; NULL: the format has no such type */

/* ---- writing ---- */

typedef struct safetensors_out safetensors_out;

an_status safetensors_create(const char *path, safetensors_out **out, diag *d) MUST_CHECK;
/* before any bytes */
an_status safetensors_put_meta(safetensors_out *w, const char *key, const char *value, diag *d) MUST_CHECK;
uint64_t safetensors_put_sum(const safetensors_out *w); /* safetensors_meta_sum of what was put so far */
/* Before any bytes. *index counts from 0 in the order of the calls. A name given twice is refused. */
an_status safetensors_declare(safetensors_out *w, const char *name, dtype dt, int rank, const int64_t *dim,
                              size_t *index, diag *d) MUST_CHECK;
/* The next n bytes of tensor `index`: each tensor has its own place, so tensors may be filled in any order or by
 * turns. */
an_status safetensors_put(safetensors_out *w, size_t index, const void *p, size_t n, diag *d) MUST_CHECK;
/* Every tensor must be complete. Syncs, renames, frees w in any case; a failure leaves no file. */
an_status safetensors_finish(safetensors_out *w, diag *d) MUST_CHECK;
void safetensors_abandon(safetensors_out *w); /* no file; frees; NULL is fine */

#endif
