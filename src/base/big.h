/* big.h: memory for arrays that are read and written from end to end.
 * In: bytes.  Out: aligned memory, given back with free().
 *
 * Large arrays begin on a boundary of the system's large pages, and it is asked for these: with pages of 4 KiB a
 * pass over the columns of a matrix looks up an address for every line it reads. What is left behind the last whole
 * large page stays on small ones: a page for it would hold memory that nobody uses. */
#ifndef BASE_BIG_H
#define BASE_BIG_H

#include "base/base.h"

enum { BIG_PAGE = 2 << 20, BIG = 2 * BIG_PAGE /* what counts as large */ };

/* align: a power of two, 64 or more; 0 bytes count as 1; NULL: no memory */
void *big_alloc(size_t align, size_t bytes) MUST_CHECK;
/* The same, zeroed by the system where it is large: its pages are first touched by whoever first uses them. *block
 * is for free(). */
void *big_zeroed(size_t align, size_t bytes, void **block) MUST_CHECK;
void big_ask(void *p, size_t bytes);                    /* large pages for what lies there */

#endif
