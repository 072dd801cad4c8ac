/* fpmode.h: what a thread does with results too small for a normal number. A processor computes such subnormal
 * numbers a hundred times slower, and some never leave: 0.9 times the smallest of them rounds to itself. Workers of
 * a pool take the mode of who calls them, so that results do not depend on the thread. Where a processor is not
 * known here, nothing changes. */
#ifndef BASE_FPMODE_H
#define BASE_FPMODE_H

#include <stdint.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

typedef uint64_t fp_mode; /* control bits only */

static inline fp_mode fp_mode_get(void)
{
#if defined(__x86_64__)
    enum { CONTROL = 0xffc0 };
    return _mm_getcsr() & CONTROL;
#elif defined(__aarch64__)
    uint64_t m;
    __asm__ volatile("mrs %0, fpcr" : "=r"(m));
    return m;
#else
    return 0;
#endif
}

static inline void fp_mode_set(fp_mode m)
{
#if defined(__x86_64__)
    _mm_setcsr((unsigned)m);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" ::"r"(m));
#else
    (void)m;
#endif
}

/* The same, but that subnormal results are zero. */
static inline fp_mode fp_mode_flushing(fp_mode m)
{
#if defined(__x86_64__)
    return m | 1u << 15;
#elif defined(__aarch64__)
    return m | 1u << 24;
#else
    return m;
#endif
}

#endif
