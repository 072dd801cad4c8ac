/* t.h: what every test program needs: cmocka, a seed that is printed and can be set, and a scratch folder. */
#ifndef TESTS_T_H
#define TESTS_T_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fpmode.h"
#include "base/rng.h"

/* AN_SEED=n repeats a property run. The seed is printed so that a failure can be repeated. */
static inline uint64_t test_seed(const char *what)
{
    const char *s = getenv("AN_SEED");
    uint64_t seed = s ? strtoull(s, NULL, 0) : 20260101u;
    print_message("%s: AN_SEED=%llu\n", what, (unsigned long long)seed);
    return seed;
}

#define assert_ok(st, d)                                                                                              \
    do {                                                                                                              \
        an_status st__ = (st);                                                                                        \
        if (st__) fail_msg("status %d: %s", (int)st__, (d).msg);                                                      \
    } while (0)

/* Does this processor make subnormal results zero where it is told to? An emulator may not. */
static inline bool can_flush(void)
{
    const fp_mode was = fp_mode_get();
    volatile float x = 0x1p-126f;
    fp_mode_set(fp_mode_flushing(was));
    x = x * 0.5f;
    fp_mode_set(was);
    return x == 0;
}

#endif
