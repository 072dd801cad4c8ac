/* slot.h: tensors of a file that is written a piece at a time, in any order of tensors. Private to format/. */
#ifndef FORMAT_SLOT_H
#define FORMAT_SLOT_H

#include "base/io.h"

typedef struct {
    const char *name;
    size_t bytes, put; /* put: how many have been written */
    uint64_t at;       /* in the data; in the file once the header is written */
} file_slot;

an_status slot_put(file_out *f, file_slot *s, const void *p, size_t n, diag *d) MUST_CHECK;
an_status slot_is_full(const file_slot *s, diag *d) MUST_CHECK;

#endif
