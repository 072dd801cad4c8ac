/* number.c: one number between its text and its element type. In: a token such as -12, 0x1.8p-3, 1e-5, inf.  Out:
 * bits of the declared type, and back to text that reads to the same bits. Short plain decimals are preferred;
 * values that would need an exponent or more than six digits print as hex floats, the form Apple's own writer uses
 * and every reader of the dialect takes. */
#include <math.h>
#include <stdlib.h>

#include "base/plain.h"
#include "mil/mil_int.h"

enum { DECIMAL_DIGITS = 6 };

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

static double by_strtod(const char *s, size_t n)
{
    char buf[MIL_MAX_NUMBER + 1];
    memcpy(buf, s, n);
    buf[n] = 0;
    return plain_real(buf, NULL);
}

static bool word(const char *s, size_t n, const char *w) { return strlen(w) == n && !memcmp(s, w, n); }

/* An exponent: optional sign, digits to the end. Far beyond any double it stops growing. */
static bool read_exp(const char *s, const char *end, int *out)
{
    bool neg = false;
    if (s < end && (*s == '+' || *s == '-')) neg = *s++ == '-';
    if (s == end) return false;
    int e = 0;
    for (; s < end; s++) {
        if (*s < '0' || *s > '9') return false;
        if (e < 100000) e = e * 10 + (*s - '0');
    }
    *out = neg ? -e : e;
    return true;
}

static bool read_hex(const char *s, const char *end, mil_num *x)
{
    const char *start = s;
    uint64_t m = 0;
    int digits = 0, exp = 0, any = 0;
    bool point = false;
    for (s += 2; s < end; s++) {
        int h = hex_digit(*s);
        if (*s == '.' && !point) {
            point = true;
            continue;
        }
        if (h < 0) break;
        any = 1;
        if (m || h) digits++;
        if (digits <= 16) m = m << 4 | (unsigned)h; /* past 16 digits strtod takes over below */
        if (point) exp -= 4;
    }
    if (!any) return false;
    x->integer = !point && s == end;
    if (s < end) {
        int e;
        if ((*s != 'p' && *s != 'P') || !read_exp(s + 1, end, &e)) return false;
        exp += e;
    }
    x->mag = m;
    x->overflow = digits > 16;
    x->f = digits <= 13 ? ldexp((double)m, exp) : by_strtod(start, (size_t)(end - start));
    return true;
}

static bool read_decimal(const char *s, const char *end, mil_num *x)
{
    /* Clinger's fast path: a mantissa below 2^53 times or over an exact power of ten rounds once. */
    static const double pow10[] = { 1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22 };
    const char *start = s;
    uint64_t m = 0;
    int digits = 0, exp = 0, any = 0;
    bool point = false;
    for (; s < end; s++) {
        if (*s == '.' && !point) {
            point = true;
            continue;
        }
        if (*s < '0' || *s > '9') break;
        any = 1;
        unsigned v = (unsigned)(*s - '0');
        if (m || v) digits++;
        if (m > (UINT64_MAX - v) / 10) x->overflow = true;
        else m = m * 10 + v;
        if (point) exp--;
    }
    if (!any) return false;
    x->integer = !point && s == end;
    if (s < end) {
        int e;
        if ((*s != 'e' && *s != 'E') || !read_exp(s + 1, end, &e)) return false;
        exp += e;
    }
    x->mag = m;
    if (m == 0) x->f = 0;
    else if (!x->overflow && m <= (uint64_t)1 << 53 && exp >= -22 && exp <= 22)
        x->f = exp < 0 ? (double)m / pow10[-exp] : (double)m * pow10[exp];
    else x->f = by_strtod(start, (size_t)(end - start));
    return true;
}

bool num_read(const char *s, size_t n, mil_num *out)
{
    *out = (mil_num){ 0 };
    if (n > MIL_MAX_NUMBER) return false;
    const char *end = s + n;
    if (s < end && (*s == '-' || *s == '+')) out->neg = *s++ == '-';
    size_t left = (size_t)(end - s);
    bool ok = true;
    if (word(s, left, "inf") || word(s, left, "infinity") || word(s, left, "INF") || word(s, left, "Infinity"))
        out->f = (double)INFINITY;
    else if (word(s, left, "nan") || word(s, left, "NaN") || word(s, left, "NAN")) out->f = (double)NAN;
    else if (left > 2 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X')) ok = read_hex(s, end, out);
    else ok = left > 0 && read_decimal(s, end, out);
    out->f = copysign(out->f, out->neg ? -1.0 : 1.0);
    return ok;
}

bool num_fits(const mil_num *x, dtype dt)
{
    if (!x->integer || x->overflow) return false;
    int bits = dtype_bits(dt);
    if (dtype_class(dt) == KIND_UINT) return (!x->neg || !x->mag) && (bits == 64 || x->mag >> bits == 0);
    uint64_t top = (uint64_t)1 << (bits - 1); /* -top .. top - 1 */
    return x->mag < top || (x->neg && x->mag == top);
}

void num_store(const mil_num *x, dtype dt, void *base, int64_t i)
{
    int bits = dtype_bits(dt);
    if (!dtype_is_int(dt) || bits < 8) {
        dtype_store(dt, base, i, x->f);
        return;
    }
    /* Not through double: 64-bit integers are exact. Little-endian hosts, as in base/dtype.c. */
    uint64_t v = x->neg ? 0 - x->mag : x->mag;
    memcpy((unsigned char *)base + (size_t)i * ((size_t)bits / 8), &v, (size_t)bits / 8);
}

static bool same_bits(dtype dt, double a, const unsigned char *want)
{
    unsigned char got[8] = { 0 };
    dtype_store(dt, got, 0, a);
    return !memcmp(got, want, 8);
}

static void print_hex_float(strbuf *b, double x)
{
    int e;
    double m = frexp(x, &e) * 2; /* 1 <= m < 2 */
    uint64_t frac = (uint64_t)((m - 1) * 0x1p52);
    char digits[14];
    snprintf(digits, sizeof digits, "%013llx", (unsigned long long)frac);
    int n = 13;
    while (n && digits[n - 1] == '0') n--;
    sb_printf(b, "0x1%s%.*sp%+d", n ? "." : "", n, digits, e - 1);
}

static void print_float(strbuf *b, dtype dt, const void *base, int64_t i)
{
    double x = dtype_load(dt, base, i), a = fabs(x);
    if (isnan(x)) { /* the sign of a NaN does not survive dtype_load for every type, so it is read from the bits */
        size_t bytes = (size_t)dtype_bits(dt) / 8;
        bool neg = ((const unsigned char *)base)[(size_t)i * bytes + bytes - 1] & 0x80;
        sb_puts(b, neg ? "-nan" : "nan");
        return;
    }
    if (signbit(x)) sb_putc(b, '-');
    if (isinf(x)) sb_puts(b, "inf");
    else if (a == 0) sb_puts(b, "0.0");
    else if (a < 1e6 && a == floor(a)) sb_printf(b, "%d.0", (int)a);
    else {
        unsigned char want[8] = { 0 };
        dtype_store(dt, want, 0, a);
        char buf[40];
        for (int digits = 1; a >= 1e-4 && a < 1e6 && digits <= DECIMAL_DIGITS; digits++) {
            int n = plain_printf(buf, sizeof buf, "%.*g", digits, a);
            mil_num back;
            if (memchr(buf, '.', (size_t)n) && !memchr(buf, 'e', (size_t)n) && num_read(buf, (size_t)n, &back) &&
                same_bits(dt, back.f, want)) {
                sb_putn(b, buf, (size_t)n);
                return;
            }
        }
        print_hex_float(b, a);
    }
}

void num_print(strbuf *b, dtype dt, const void *base, int64_t i)
{
    switch (dtype_class(dt)) {
    case KIND_FLOAT: print_float(b, dt, base, i); return;
    case KIND_BOOL: sb_puts(b, dtype_load(dt, base, i) != 0 ? "true" : "false"); return;
    case KIND_INT:
    case KIND_UINT: break;
    default: return;
    }
    if (dtype_bits(dt) < 64) {
        sb_printf(b, "%lld", (long long)dtype_load(dt, base, i));
        return;
    }
    uint64_t v;
    memcpy(&v, (const unsigned char *)base + (size_t)i * 8, 8);
    if (dt == DT_U64) sb_printf(b, "%llu", (unsigned long long)v);
    else sb_printf(b, "%s%llu", v >> 63 ? "-" : "", (unsigned long long)(v >> 63 ? 0 - v : v));
}
