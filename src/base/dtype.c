/* dtype.c: the element types' properties and conversions, slow and obvious. */
#include <math.h>

#include "base/dtype.h"

static const struct {
    const char *name;
    int bits;
    dtype_kind kind;
    uint32_t blob;
} types[DT_COUNT] = {
    [DT_NONE] = { "none", 0, KIND_NONE, 0 },
#define DTYPE(id, name, bits, kind, blob) [DT_##id] = { name, bits, KIND_##kind, blob },
#include "base/dtype.def"
#undef DTYPE
};

const char *dtype_name(dtype t) { return types[t].name; }
int dtype_bits(dtype t) { return types[t].bits; }
dtype_kind dtype_class(dtype t) { return types[t].kind; }
uint32_t dtype_blob_code(dtype t) { return types[t].blob; }

dtype dtype_from_name(const char *s, size_t n)
{
    for (int t = DT_NONE + 1; t < DT_COUNT; t++)
        if (strlen(types[t].name) == n && !memcmp(types[t].name, s, n)) return (dtype)t;
    return DT_NONE;
}

dtype dtype_from_blob_code(uint32_t code)
{
    for (int t = DT_NONE + 1; code && t < DT_COUNT; t++)
        if (types[t].blob == code) return (dtype)t;
    return DT_NONE;
}

bool dtype_bytes(dtype t, int64_t n_elems, size_t *bytes)
{
    int64_t bits;
    if (n_elems < 0 || !mul_i64(n_elems, types[t].bits, &bits) || bits > INT64_MAX - 7) return false;
    *bytes = (size_t)((bits + 7) / 8);
    return true;
}

/* Small floats share one shape: sign, E exponent bits with the given bias, M mantissa bits. */
typedef struct {
    int exp_bits, man_bits, bias;
} small_float;

static double small_to_f64(uint32_t bits, small_float f)
{
    uint32_t man = bits & ((1u << f.man_bits) - 1);
    int e = (int)((bits >> f.man_bits) & ((1u << f.exp_bits) - 1));
    double sign = (bits >> (f.man_bits + f.exp_bits)) & 1 ? -1.0 : 1.0;
    if (e == 0) return sign * ldexp((double)man, 1 - f.bias - f.man_bits);
    return sign * ldexp((double)(man | (1u << f.man_bits)), e - f.bias - f.man_bits);
}

/* |x| finite. Result may exceed the largest finite pattern by one step; the caller decides what that means. */
static uint32_t small_from_f64(double x, small_float f)
{
    double a = fabs(x);
    if (a == 0) return 0;
    int e;
    frexp(a, &e);
    int lsb = MAX(e - 1, 1 - f.bias) - f.man_bits; /* exponent of the last kept bit */
    double q = nearbyint(ldexp(a, -lsb));          /* default mode: nearest, ties to even */
    if (q >= ldexp(1.0, f.man_bits + 2)) return UINT32_MAX;
    uint32_t m = (uint32_t)q;
    if (lsb == 1 - f.bias - f.man_bits && m < (1u << f.man_bits)) return m; /* subnormal */
    if (m == (2u << f.man_bits)) m >>= 1, lsb++;
    int be = lsb + f.man_bits + f.bias;
    if (be >= 1 << f.exp_bits) return UINT32_MAX;
    return ((uint32_t)be << f.man_bits) | (m & ((1u << f.man_bits) - 1));
}

static const small_float F16 = { 5, 10, 15 }, BF16 = { 8, 7, 127 }, E4M3 = { 4, 3, 7 }, E5M2 = { 5, 2, 15 };

static uint32_t ieee_from_f64(double x, small_float f)
{
    uint32_t sign = signbit(x) ? 1u << (f.exp_bits + f.man_bits) : 0;
    uint32_t inf = ((1u << f.exp_bits) - 1) << f.man_bits;
    if (isnan(x)) return sign | inf | 1u << (f.man_bits - 1);
    return sign | (isinf(x) ? inf : MIN(small_from_f64(x, f), inf));
}

static double ieee_to_f64(uint32_t bits, small_float f)
{
    uint32_t e = (bits >> f.man_bits) & ((1u << f.exp_bits) - 1);
    if (e != (1u << f.exp_bits) - 1) return small_to_f64(bits, f);
    if (bits & ((1u << f.man_bits) - 1)) return (double)NAN;
    return (bits >> (f.man_bits + f.exp_bits)) & 1 ? -(double)INFINITY : (double)INFINITY;
}

uint16_t f16_from_f64(double x) { return (uint16_t)ieee_from_f64(x, F16); }
double f16_to_f64(uint16_t h) { return ieee_to_f64(h, F16); }
uint16_t bf16_from_f64(double x) { return (uint16_t)ieee_from_f64(x, BF16); }
double bf16_to_f64(uint16_t h) { return ieee_to_f64(h, BF16); }
uint8_t e5m2_from_f64(double x) { return (uint8_t)ieee_from_f64(x, E5M2); }
double e5m2_to_f64(uint8_t b) { return ieee_to_f64(b, E5M2); }

uint8_t e4m3_from_f64(double x)
{
    uint32_t sign = signbit(x) ? 0x80 : 0;
    if (isnan(x)) return (uint8_t)(sign | 0x7f);
    return (uint8_t)(sign | (isinf(x) ? 0x7e : MIN(small_from_f64(x, E4M3), 0x7eu)));
}

double e4m3_to_f64(uint8_t b) { return (b & 0x7f) == 0x7f ? (double)NAN : small_to_f64(b, E4M3); }

static uint64_t load_bits(const unsigned char *p, int64_t i, int bits)
{
    uint64_t v = 0;
    if (bits >= 8) {
        memcpy(&v, p + i * (bits / 8), (size_t)bits / 8); /* little-endian hosts only, as the file formats are */
        return v;
    }
    for (int b = 0; b < bits; b++) {
        int64_t at = i * bits + b;
        v |= (uint64_t)((p[at / 8] >> (at % 8)) & 1) << b;
    }
    return v;
}

static void store_bits(unsigned char *p, int64_t i, int bits, uint64_t v)
{
    if (bits >= 8) {
        memcpy(p + i * (bits / 8), &v, (size_t)bits / 8);
        return;
    }
    for (int b = 0; b < bits; b++) {
        int64_t at = i * bits + b;
        unsigned char mask = (unsigned char)(1u << (at % 8));
        p[at / 8] = (unsigned char)((p[at / 8] & ~mask) | ((v >> b) & 1 ? mask : 0));
    }
}

double dtype_load(dtype t, const void *base, int64_t i)
{
    uint64_t v = load_bits(base, i, types[t].bits);
    switch (t) {
    case DT_F16: return f16_to_f64((uint16_t)v);
    case DT_BF16: return bf16_to_f64((uint16_t)v);
    case DT_E4M3: return e4m3_to_f64((uint8_t)v);
    case DT_E5M2: return e5m2_to_f64((uint8_t)v);
    case DT_F32: {
        float f;
        uint32_t w = (uint32_t)v;
        memcpy(&f, &w, 4);
        return (double)f;
    }
    case DT_F64: {
        double f;
        memcpy(&f, &v, 8);
        return f;
    }
    case DT_BOOL: return v ? 1.0 : 0.0;
    default: break;
    }
    if (types[t].kind == KIND_UINT) return (double)v;
    int sh = 64 - types[t].bits;
    return (double)((int64_t)(v << sh) >> sh);
}

void dtype_store(dtype t, void *base, int64_t i, double x)
{
    uint64_t v = 0;
    int bits = types[t].bits;
    switch (types[t].kind) {
    case KIND_FLOAT:
        if (t == DT_F16) v = f16_from_f64(x);
        else if (t == DT_BF16) v = bf16_from_f64(x);
        else if (t == DT_E4M3) v = e4m3_from_f64(x);
        else if (t == DT_E5M2) v = e5m2_from_f64(x);
        else if (t == DT_F64) memcpy(&v, &x, 8);
        else {
            float f = (float)x;
            memcpy(&v, &f, 4);
        }
        break;
    case KIND_BOOL: v = x != 0; break;
    case KIND_UINT: {
        double hi = ldexp(1.0, bits), r = isnan(x) ? 0 : nearbyint(x);
        v = r <= 0 ? 0 : r >= hi ? (bits == 64 ? UINT64_MAX : ((uint64_t)1 << bits) - 1) : (uint64_t)r;
        break;
    }
    case KIND_INT: {
        double hi = ldexp(1.0, bits - 1), r = isnan(x) ? 0 : nearbyint(x);
        int64_t top = bits == 64 ? INT64_MAX : ((int64_t)1 << (bits - 1)) - 1;
        v = (uint64_t)(r >= hi ? top : r < -hi ? -top - 1 : (int64_t)r);
        break;
    }
    default: return;
    }
    store_bits(base, i, bits, v);
}

void dtype_clear_rest(dtype t, void *base, int64_t n_elems)
{
    size_t bytes;
    if (types[t].bits >= 8 || !dtype_bytes(t, n_elems, &bytes) || !bytes) return;
    const int64_t used = n_elems * types[t].bits - ((int64_t)bytes - 1) * 8;
    ((unsigned char *)base)[bytes - 1] &= (unsigned char)(0xff >> (8 - used));
}

double dtype_round(dtype t, double x)
{
    unsigned char tmp[8] = { 0 };
    dtype_store(t, tmp, 0, x);
    return dtype_load(t, tmp, 0);
}

double dtype_hold(dtype t, double x)
{
    if (t == DT_BOOL) return x != 0;
    if (isnan(x)) return 0;
    int bits = dtype_bits(t);
    bool is_signed = dtype_class(t) == KIND_INT;
    double lo = is_signed ? -ldexp(1, bits - 1) : 0, hi = ldexp(1, is_signed ? bits - 1 : bits) - 1;
    return MIN(MAX(trunc(x), lo), hi) + 0.0; /* no integer is -0 */
}
