/* io.h: whole files in, whole files out. Reading maps or copies; writing is atomic (temporary name, fsync, rename). */
#ifndef BASE_IO_H
#define BASE_IO_H

#include "base/base.h"

typedef struct {
    unsigned char *at; /* never NULL after success; one NUL byte follows the content when it was read, not mapped */
    size_t n;
    bool mapped;
} file_bytes;

/* "-" reads standard input. The message names the path and the reason. */
an_status file_read(const char *path, size_t limit, file_bytes *out, diag *d) MUST_CHECK;
an_status file_map(const char *path, file_bytes *out, diag *d) MUST_CHECK; /* read-only view of a regular file */
void file_drop(file_bytes *f);

an_status file_write(const char *path, const void *p, size_t n, diag *d) MUST_CHECK;
an_status dir_make(const char *path, diag *d) MUST_CHECK; /* like mkdir -p */

#endif
