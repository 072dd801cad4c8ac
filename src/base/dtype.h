/* dtype.h: element types, and single elements to and from double. Sub-byte types are packed low bits first. */
#ifndef BASE_DTYPE_H
#define BASE_DTYPE_H

#include "base/base.h"

typedef enum {
    DT_NONE,
#define DTYPE(id, name, bits, kind, blob) DT_##id,
#include "base/dtype.def"
#undef DTYPE
    DT_COUNT
} dtype;

typedef enum { KIND_NONE, KIND_FLOAT, KIND_UINT, KIND_INT, KIND_BOOL, KIND_STRING } dtype_kind;

const char *dtype_name(dtype t); /* MIL spelling; "none" for DT_NONE */
int dtype_bits(dtype t);
dtype_kind dtype_class(dtype t);
uint32_t dtype_blob_code(dtype t);          /* 0: not storable */
dtype dtype_from_name(const char *s, size_t n); /* DT_NONE when unknown */
dtype dtype_from_blob_code(uint32_t code);
bool dtype_bytes(dtype t, int64_t n_elems, size_t *bytes) MUST_CHECK; /* packed; false on overflow or negative count */
static inline bool dtype_is_float(dtype t) { return dtype_class(t) == KIND_FLOAT; }
static inline bool dtype_is_int(dtype t) { return dtype_class(t) == KIND_INT || dtype_class(t) == KIND_UINT; }

/* Round to nearest, ties to even, straight from double: no second rounding through float. */
uint16_t f16_from_f64(double x);
double f16_to_f64(uint16_t h);
uint16_t bf16_from_f64(double x);
double bf16_to_f64(uint16_t h);
uint8_t e4m3_from_f64(double x); /* saturates at 448; NaN is 0x7f */
double e4m3_to_f64(uint8_t b);
uint8_t e5m2_from_f64(double x);
double e5m2_to_f64(uint8_t b);

/* Element i of a packed array. Integers are exact to 2^53; storing rounds (floats RNE, ints nearest-even) and
 * clamps. */
double dtype_load(dtype t, const void *base, int64_t i);
void dtype_store(dtype t, void *base, int64_t i, double x);
/* the bits of the last byte that n_elems elements leave are zero */
void dtype_clear_rest(dtype t, void *base, int64_t n_elems);
double dtype_round(dtype t, double x); /* x as type t would hold it */
/* a result that is an integer or bool: toward zero, clamped; NaN is 0, bool is != 0 */
double dtype_hold(dtype t, double x);

#endif
