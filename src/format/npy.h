/* npy.h: tensors as numpy's .npy files, versions 1 to 3.
 * Reading takes any little-endian number type of the table in npy.c; the file is hostile until checked. Arrays saved in
 * Fortran order are put into C order. Writing is atomic and always version 1, C order. */
#ifndef FORMAT_NPY_H
#define FORMAT_NPY_H

#include "base/dtype.h"
#include "base/io.h"
#include "base/str.h"

enum { NPY_MAX_RANK = 8 };

typedef struct {
    dtype dt;
    int rank;
    int64_t dim[NPY_MAX_RANK];
    int64_t count;    /* elements */
    size_t bytes;
    const void *data; /* packed, C order; not aligned */
    bool reordered;   /* the file was in Fortran order */
} npy_array;

typedef struct {
    npy_array array; /* lives until npy_close */
    file_bytes file;
    void *own;       /* what array.data points to when it is not the file */
} npy_file;

an_status npy_open(const char *path, npy_file *out, diag *d) MUST_CHECK; /* "-" reads standard input */
void npy_close(npy_file *f);
/* A view of an image of a file. fortran == NULL: Fortran order is refused; else it is told and data are as they lie. */
an_status npy_view(const void *bytes, size_t n, npy_array *out, bool *fortran, diag *d) MUST_CHECK;

an_status npy_encode(dtype dt, const int64_t *dim, int rank, const void *data, strbuf *out, diag *d) MUST_CHECK;
an_status npy_write(const char *path, dtype dt, const int64_t *dim, int rank, const void *data, diag *d) MUST_CHECK;

#endif
