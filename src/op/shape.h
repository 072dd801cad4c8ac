/* shape.h: dimensions and tensor types. Shape arithmetic is signed; -1 is a dimension not known at compile time. */
#ifndef OP_SHAPE_H
#define OP_SHAPE_H

#include "base/dtype.h"
#include "base/str.h"

enum { MAX_RANK = 8, DIM_UNKNOWN = -1 };

typedef struct {
    int rank;
    int64_t d[MAX_RANK]; /* entries past rank are 0, so shapes compare field by field */
} shape;

typedef struct {
    dtype dt;
    shape sh;
} ttype;

#define SHAPE(...)                                                                                                     \
    shape_of((const int64_t[]){ __VA_ARGS__ }, (int)(sizeof((const int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)))
#define TTYPE(dt, ...) ((ttype){ dt, SHAPE(__VA_ARGS__) })

shape shape_of(const int64_t *d, int rank);
bool shape_eq(const shape *a, const shape *b);
bool shape_known(const shape *s);                        /* no DIM_UNKNOWN */
bool shape_elems(const shape *s, int64_t *n) MUST_CHECK; /* product (1 for rank 0); false when unknown or past 2^62 */
bool shape_bytes(const ttype *t, size_t *n) MUST_CHECK;  /* packed bytes */
bool shape_broadcast(const shape *a, const shape *b, shape *out) MUST_CHECK; /* numpy rules */
bool axis_norm(int64_t axis, int rank, int *out) MUST_CHECK;                 /* -rank .. rank-1 to 0 .. rank-1 */
void shape_strides(const shape *s, int64_t *stride);     /* row-major, in elements */
void sb_shape(strbuf *b, const shape *s);                /* "[1, 8, 1, 32]" */
void sb_ttype(strbuf *b, const ttype *t);                /* "fp16[1, 8, 1, 32]" */

#endif
