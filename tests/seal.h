/* seal.h: the header of a program's bytes made to fit the body behind it, as someone who means harm would: for the
 * tests and the fuzzer that are to get past the checksum. */
#ifndef TESTS_SEAL_H
#define TESTS_SEAL_H

#include "base/str.h"
#include "engine/engine.h"

enum { SEAL_HEADER = 32 /* magic, version, final or not, size, checksum */ };

static inline void seal(unsigned char *b, size_t n)
{
    uint64_t v[2] = { n - SEAL_HEADER, hash_many(b + SEAL_HEADER, n - SEAL_HEADER, 0x616e) };
    b[8] = PROGRAM_VERSION;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 8; i++) b[16 + 8 * k + i] = (unsigned char)(v[k] >> (8 * i));
}

#endif
