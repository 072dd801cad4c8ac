/* fuzz_t.h: what every target of libFuzzer has: its entry, and a condition that must hold. */
#ifndef TESTS_FUZZ_T_H
#define TESTS_FUZZ_T_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static inline void need(bool ok)
{
    if (!ok) abort();
}

#endif
