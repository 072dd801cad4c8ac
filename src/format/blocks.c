/* blocks.c: the block formats of blocks.def, one function each. Layouts are little-endian and packed. Element order
 * inside a block is the order of the row; a nibble pair holds elements half a group apart (low nibble first), which
 * is how the formats were laid out for vector loads. */
#include <math.h>

#include "format/blocks.h"

static uint16_t le16(const unsigned char *p) { return (uint16_t)(p[0] | p[1] << 8); }
static float half(const unsigned char *p) { return (float)f16_to_f64(le16(p)); }
static void put_half(unsigned char *p, float x)
{
    uint16_t h = f16_from_f64(x);
    p[0] = (unsigned char)(h & 255);
    p[1] = (unsigned char)(h >> 8);
}

/* ---- 32 elements, one scale ---- */

/* d | 16 bytes: nibbles - 8 */
static void decode_q4_0(const unsigned char *b, float *y)
{
    float d = half(b);
    for (int j = 0; j < 16; j++) {
        y[j] = (float)((b[2 + j] & 15) - 8) * d;
        y[j + 16] = (float)((b[2 + j] >> 4) - 8) * d;
    }
}

/* d m | nibbles, times d plus m */
static void decode_q4_1(const unsigned char *b, float *y)
{
    float d = half(b), m = half(b + 2);
    for (int j = 0; j < 16; j++) {
        y[j] = (float)(b[4 + j] & 15) * d + m;
        y[j + 16] = (float)(b[4 + j] >> 4) * d + m;
    }
}

/* The fifth bits: bit j of four bytes belongs to element j. */
static int fifth(const unsigned char *bits, int j) { return (bits[j / 8] >> (j % 8) & 1) << 4; }

/* d | fifth bits | nibbles; - 16 */
static void decode_q5_0(const unsigned char *b, float *y)
{
    float d = half(b);
    for (int j = 0; j < 16; j++) {
        y[j] = (float)(((b[6 + j] & 15) | fifth(b + 2, j)) - 16) * d;
        y[j + 16] = (float)(((b[6 + j] >> 4) | fifth(b + 2, j + 16)) - 16) * d;
    }
}

/* d m | fifth bits | nibbles */
static void decode_q5_1(const unsigned char *b, float *y)
{
    float d = half(b), m = half(b + 2);
    for (int j = 0; j < 16; j++) {
        y[j] = (float)((b[8 + j] & 15) | fifth(b + 4, j)) * d + m;
        y[j + 16] = (float)((b[8 + j] >> 4) | fifth(b + 4, j + 16)) * d + m;
    }
}

/* d | 32 int8 */
static void decode_q8_0(const unsigned char *b, float *y)
{
    float d = half(b);
    for (int j = 0; j < 32; j++) y[j] = (float)(int8_t)b[2 + j] * d;
}

/* d | nibbles into sixteen fixed values */
static void decode_iq4_nl(const unsigned char *b, float *y)
{
    static const int8_t value[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 };
    float d = half(b);
    for (int j = 0; j < 16; j++) {
        y[j] = d * (float)value[b[2 + j] & 15];
        y[j + 16] = d * (float)value[b[2 + j] >> 4];
    }
}

/* ---- 256 elements, scales of their own in small integers ---- */

/* 16 bytes: scale in the low, minimum in the high nibble | 64 bytes of 2-bit codes | d dmin.
 * Byte i of a run of 32 holds elements i, i + 32, i + 64, i + 96 of its 128. */
static void decode_q2_k(const unsigned char *b, float *y)
{
    float d = half(b + 80), dmin = half(b + 82);
    for (int e = 0; e < 256; e++) {
        int s = b[e / 16], q = b[16 + e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3;
        y[e] = d * (float)(s & 15) * (float)q - dmin * (float)(s >> 4);
    }
}

/* 32 bytes: third bits, inverted | 64 bytes of 2-bit codes as above | 12 bytes: sixteen 6-bit scales - 32 | d.
 * Scale i: its low nibble in byte i % 8 (high half from i = 8 on), its top two bits in byte 8 + i % 4, at 2 * (i /
 * 4). */
static void decode_q3_k(const unsigned char *b, float *y)
{
    float d = half(b + 108);
    for (int e = 0; e < 256; e++) {
        int i = e / 16, low = b[96 + i % 8] >> (i / 8 * 4) & 15, high = b[104 + i % 4] >> (i / 4 * 2) & 3;
        int q = b[32 + e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3;
        bool third = b[e % 32] >> (e / 32) & 1;
        y[e] = d * (float)((low | high << 4) - 32) * (float)(third ? q : q - 4);
    }
}

/* Eight 6-bit scales and minima in 12 bytes: the first four whole, the others in nibbles and spare top bits. */
static void scale_min(const unsigned char *p, int i, int *scale, int *min)
{
    if (i < 4) {
        *scale = p[i] & 63;
        *min = p[i + 4] & 63;
    } else {
        *scale = (p[i + 4] & 15) | (p[i - 4] >> 6) << 4;
        *min = (p[i + 4] >> 4) | (p[i] >> 6) << 4;
    }
}

/* d dmin | scales and minima | 128 bytes: elements l and l + 32 of each 64 in the nibbles of one byte */
static void decode_q4_k(const unsigned char *b, float *y)
{
    float d = half(b), dmin = half(b + 2);
    for (int i = 0; i < 8; i++) {
        int s, m;
        scale_min(b + 4, i, &s, &m);
        float step = d * (float)s, least = dmin * (float)m;
        for (int l = 0; l < 32; l++) y[32 * i + l] = step * (float)(b[16 + i / 2 * 32 + l] >> (i % 2 * 4) & 15) - least;
    }
}

/* d dmin | scales and minima | 32 bytes: bit i of byte l is the fifth bit of element 32 i + l | nibbles as in Q4_K */
static void decode_q5_k(const unsigned char *b, float *y)
{
    float d = half(b), dmin = half(b + 2);
    for (int i = 0; i < 8; i++) {
        int s, m;
        scale_min(b + 4, i, &s, &m);
        float step = d * (float)s, least = dmin * (float)m;
        for (int l = 0; l < 32; l++) {
            int q = (b[48 + i / 2 * 32 + l] >> (i % 2 * 4) & 15) | (b[16 + l] >> i & 1) << 4;
            y[32 * i + l] = step * (float)q - least;
        }
    }
}

/* 128 bytes of low nibbles | 64 bytes of top bit pairs | 16 int8 scales | d. In each 128: nibble pairs are 64 apart,
 * bit pairs 32. */
static void decode_q6_k(const unsigned char *b, float *y)
{
    float d = half(b + 208);
    for (int e = 0; e < 256; e++) {
        int part = e / 128, r = e % 128;
        int low = b[part * 64 + r % 64] >> (r / 64 * 4) & 15, high = b[128 + part * 32 + r % 32] >> (r / 32 * 2) & 3;
        y[e] = d * (float)(int8_t)b[192 + e / 16] * (float)((low | high << 4) - 32);
    }
}

/* ---- making blocks ---- */

/* A code is rounded with the scale as it was before fp16: that is how the files people have were made. Where a scale
 * is so small that its inverse overflows, fp16 has no such scale either: the block is zeros. */
static float inverse(float d)
{
    float inv = d != 0 ? 1 / d : 0;
    return isfinite(inv) ? inv : 0;
}

static void encode_q4_0(const float *x, unsigned char *b)
{
    float peak = 0;
    for (int j = 0; j < 32; j++)
        if (fabsf(x[j]) > fabsf(peak)) peak = x[j];
    float d = peak / -8, inv = inverse(d);
    put_half(b, d);
    for (int j = 0; j < 16; j++) {
        float lo = x[j] * inv + 8.5f, hi = x[j + 16] * inv + 8.5f; /* both are at least 0.5 */
        int l = lo < 15 ? (int)lo : 15, h = hi < 15 ? (int)hi : 15;
        b[2 + j] = (unsigned char)(l | h << 4);
    }
}

static void encode_q8_0(const float *x, unsigned char *b)
{
    float peak = 0;
    for (int j = 0; j < 32; j++) peak = fmaxf(peak, fabsf(x[j]));
    float d = peak / 127, inv = inverse(d);
    put_half(b, d);
    for (int j = 0; j < 32; j++) {
        float q = roundf(x[j] * inv); /* what is no number becomes a code all the same */
        b[2 + j] = (unsigned char)(int8_t)(q > -127 ? (q < 127 ? q : 127) : -127);
    }
}

/* ---- the table ---- */

#define decode_plain NULL
#define decode_none NULL
#define encode_plain NULL
#define encode_none NULL
static const block_format formats[BLOCK_COUNT] = {
#define BLOCK(id_, name_, code_, elems_, bytes_, dt_, dec, enc)                                                                           \
    [BLOCK_##id_] = { .id = BLOCK_##id_, .name = name_, .code = code_, .elems = elems_, .bytes = bytes_, .dt = DT_##dt_,                   \
                      .decode = decode_##dec, .encode = encode_##enc },
#include "format/blocks.def"
#undef BLOCK
};

const block_format *block_of(block_id id) { return (unsigned)id < BLOCK_COUNT ? &formats[id] : NULL; }

const block_format *block_by_code(uint32_t code)
{
    for (size_t i = 0; i < COUNT(formats); i++)
        if (formats[i].code == code) return &formats[i];
    return NULL;
}

static bool same_word(const char *a, const char *b)
{
    for (;; a++, b++) {
        char x = *a >= 'a' && *a <= 'z' ? (char)(*a - 32) : *a, y = *b >= 'a' && *b <= 'z' ? (char)(*b - 32) : *b;
        if (x != y) return false;
        if (!x) return true;
    }
}

const block_format *block_by_name(const char *name)
{
    for (size_t i = 0; i < COUNT(formats); i++)
        if (same_word(formats[i].name, name)) return &formats[i];
    return NULL;
}

bool block_bytes(const block_format *f, int64_t n, size_t *bytes)
{
    if (n < 0 || n % f->elems || (uint64_t)(n / f->elems) > SIZE_MAX) return false;
    return mul_size((size_t)(n / f->elems), (size_t)f->bytes, bytes);
}

void block_decode(const block_format *f, const void *from, float *to, int64_t n)
{
    const unsigned char *p = from;
    if (f->decode)
        for (int64_t i = 0; i < n; i += f->elems, p += f->bytes) f->decode(p, to + i);
    else
        for (int64_t i = 0; i < n; i++) to[i] = (float)dtype_load(f->dt, p, i);
}

void block_encode(const block_format *f, const float *from, void *to, int64_t n)
{
    unsigned char *p = to;
    if (f->encode)
        for (int64_t i = 0; i < n; i += f->elems, p += f->bytes) f->encode(from + i, p);
    else
        for (int64_t i = 0; i < n; i++) dtype_store(f->dt, p, i, (double)from[i]);
}

bool block_split(const block_format *f, const void *from, int64_t n, void *codes, uint16_t *scales)
{
    if (f->id != BLOCK_Q8_0 && f->id != BLOCK_Q4_0) return false;
    const unsigned char *p = from;
    unsigned char *to = codes;
    for (int64_t i = 0; i < n; i += 32, p += f->bytes) {
        *scales++ = le16(p);
        if (f->id == BLOCK_Q8_0) {
            memcpy(to, p + 2, 32);
            to += 32;
            continue;
        }
        /* nibble - 8 as two's complement is the nibble with its top bit turned over; neighbours share a byte here */
        for (int j = 0; j < 32; j += 2) {
            int lo = j < 16 ? p[2 + j] & 15 : p[2 + j - 16] >> 4, hi = j < 16 ? p[3 + j] & 15 : p[3 + j - 16] >> 4;
            *to++ = (unsigned char)((lo ^ 8) | (hi ^ 8) << 4);
        }
    }
    return true;
}
