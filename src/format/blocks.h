/* blocks.h: elements stored in blocks that share scales, to and from fp32. The table is format/blocks.def. */
#ifndef FORMAT_BLOCKS_H
#define FORMAT_BLOCKS_H

#include "base/dtype.h"

typedef enum {
#define BLOCK(id, name, code, elems, bytes, dt, decode, encode) BLOCK_##id,
#include "format/blocks.def"
#undef BLOCK
    BLOCK_COUNT
} block_id;

typedef struct {
    block_id id;
    const char *name;
    uint32_t code;
    int elems, bytes;
    dtype dt;   /* DT_NONE: a block format */
    void (*decode)(const unsigned char *block, float *y); /* NULL: plain, or known by name alone */
    void (*encode)(const float *x, unsigned char *block); /* NULL: plain, or read only */
} block_format;
static inline bool block_readable(const block_format *f) { return f->dt != DT_NONE || f->decode; }

const block_format *block_by_code(uint32_t code); /* NULL: no such type */
const block_format *block_by_name(const char *name); /* any case */
const block_format *block_of(block_id id);
/* Bytes of n elements; false: n is not a whole number of blocks, or overflows. */
bool block_bytes(const block_format *f, int64_t n, size_t *bytes) MUST_CHECK;

/* n elements, a whole number of blocks. Decoding is exact but for one fp32 rounding where a format adds a minimum;
 * I64 and F64 are rounded. Encoding of single numbers rounds to nearest even; of blocks: scale = the element of the
 * largest magnitude over the largest code (Q4_0: that element becomes -8; Q8_0: 127), in fp16, and codes to nearest,
 * a half away from zero. */
void block_decode(const block_format *f, const void *from, float *to, int64_t n);
void block_encode(const block_format *f, const float *from, void *to, int64_t n);

/* Scaled int8 and int4 blocks (Q8_0, Q4_0) taken apart: n int8 codes, or n/2 bytes of int4 codes low nibble first,
 * and n/32 scales of fp16 bits. False: the format is not such a one. */
bool block_split(const block_format *f, const void *from, int64_t n, void *codes, uint16_t *scales);

#endif
