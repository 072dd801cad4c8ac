/* big.c: see big.h. */
#define _DEFAULT_SOURCE 1 /* madvise() */
#include <stdlib.h>
#include <sys/mman.h>

#include "base/big.h"

void big_ask(void *p, size_t bytes)
{
#if defined(MADV_HUGEPAGE)
    uintptr_t from = ROUND_UP((uintptr_t)p, (uintptr_t)BIG_PAGE), to = ((uintptr_t)p + bytes) / BIG_PAGE * BIG_PAGE;
    /* a wish: refused, all is as right, only slower */
    if (to > from) (void)madvise((void *)from, to - from, MADV_HUGEPAGE);
#else
    (void)p, (void)bytes;
#endif
}

void *big_zeroed(size_t align, size_t bytes, void **block)
{
    *block = NULL;
    if (bytes >= BIG) align = MAX(align, (size_t)BIG_PAGE);
    if (bytes > SIZE_MAX / 2 || !(*block = calloc(1, MAX(bytes, 1) + align))) return NULL;
    unsigned char *at = (unsigned char *)*block + (align - (uintptr_t)*block % align) % align;
    if (bytes >= BIG) big_ask(at, bytes);
    return at;
}

void *big_alloc(size_t align, size_t bytes)
{
    void *p = NULL;
    if (bytes > SIZE_MAX / 2 || posix_memalign(&p, bytes >= BIG ? MAX(align, (size_t)BIG_PAGE) : align, MAX(bytes, 1)))
        return NULL;
    if (bytes >= BIG) big_ask(p, bytes);
    return p;
}
