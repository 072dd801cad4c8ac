/* idx.h: arrays as idx files, the format of MNIST, plain or gzipped (told by the first bytes, not by the name). In:
 * a path or bytes, hostile until checked.  Out: a view of the elements as they lie: big-endian, read one by one. A
 * file that holds less or more than its header says is refused; a gzip stream is unpacked no further than the
 * header's size, and never past IDX_MAX_BYTES. */
#ifndef FORMAT_IDX_H
#define FORMAT_IDX_H

#include "base/dtype.h"
#include "base/io.h"

enum { IDX_MAX_RANK = 4 };
#define IDX_MAX_BYTES ((size_t)1 << 29) /* of one unpacked file */

typedef struct {
    dtype dt;         /* uint8, int8, int16, int32, fp32, fp64 */
    int rank;
    int64_t dim[IDX_MAX_RANK];
    int64_t count;    /* elements */
    size_t bytes;     /* of data */
    size_t at;        /* where they start in the unpacked file */
    const unsigned char *data;
} idx_array;

typedef struct {
    idx_array array; /* lives until idx_close */
    file_bytes file;
    unsigned char *own; /* the unpacked file, when it was packed */
} idx_file;

an_status idx_open(const char *path, idx_file *out, diag *d) MUST_CHECK; /* messages begin with the path */
void idx_close(idx_file *f);
/* A view of a plain file's bytes. */
an_status idx_view(const void *bytes, size_t n, idx_array *out, diag *d) MUST_CHECK;
/* The idx file inside a gzip file (members may follow one another); *out is the caller's to free. */
an_status idx_unzip(const void *bytes, size_t n, unsigned char **out, size_t *n_out, diag *d) MUST_CHECK;
bool idx_is_gzip(const void *bytes, size_t n);
double idx_load(const idx_array *a, int64_t i);

#endif
