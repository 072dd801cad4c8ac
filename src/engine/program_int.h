/* program_int.h: the few constants that the writer and the reader of program bytes share. Private to engine/. */
#ifndef ENGINE_PROGRAM_INT_H
#define ENGINE_PROGRAM_INT_H

#include "engine/engine.h"

#define PROGRAM_MAGIC "ANNLPROG"
enum { PROGRAM_HEADER = 32, PROGRAM_SEED = 0x616e };

typedef struct {
    const char *name;
    size_t offset;
} numeric_row;
extern const numeric_row numeric_rows[];
extern const int n_numeric_rows;
static inline const double *numeric_at(const numerics *n, int i)
{
    return (const double *)(const void *)((const char *)n + numeric_rows[i].offset);
}

#endif
