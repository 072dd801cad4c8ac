/* npy.c: the .npy format.
 *
 *   0   "\x93NUMPY", u8 major, u8 minor
 *   8   header length: u16 (version 1) or u32 (2, 3), little-endian
 *   ..  header: a Python dictionary {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), } and padding
 *   ..  the elements, nothing behind them
 *
 * Only that dictionary is understood, with its keys in any order: no other Python, no pickled objects, no records. */
#include <stdlib.h>

#include "format/npy.h"

static const unsigned char MAGIC[6] = { 0x93, 'N', 'U', 'M', 'P', 'Y' };
enum { MAX_HEADER = 65536, PREFIX = 10, ALIGN = 64 };

/* The first spelling of a type is the one written. Single bytes have no order: '|', and '<' as some writers have it. */
static const struct {
    const char *descr;
    dtype dt;
} types[] = {
    { "<f2", DT_F16 },  { "<f4", DT_F32 },  { "<f8", DT_F64 },  { "|i1", DT_I8 }, { "<i2", DT_I16 }, { "<i4", DT_I32 },
    { "<i8", DT_I64 },  { "|u1", DT_U8 },   { "<u2", DT_U16 },  { "<u4", DT_U32 }, { "<u8", DT_U64 }, { "|b1", DT_BOOL },
    { "<i1", DT_I8 },   { "<u1", DT_U8 },   { "<b1", DT_BOOL },
};

/* "<f2" …; NULL: .npy has no such type. */
static const char *npy_descr(dtype dt)
{
    for (size_t i = 0; i < COUNT(types); i++)
        if (types[i].dt == dt) return types[i].descr;
    return NULL;
}

/* ---- the header's dictionary ---- */

typedef struct {
    const char *s, *end;
    diag *d;
} scan;

static void blanks(scan *c)
{
    while (c->s < c->end && (*c->s == ' ' || *c->s == '\n' || *c->s == '\t' || *c->s == '\r')) c->s++;
}

static bool eat(scan *c, char want)
{
    blanks(c);
    if (c->s >= c->end || *c->s != want) return false;
    c->s++;
    return true;
}

static an_status expect(scan *c, char want)
{
    if (eat(c, want)) return AN_OK;
    if (c->s >= c->end) return diag_fail(c->d, AN_INPUT, NOWHERE, "npy header ends where '%c' is wanted", want);
    return diag_fail(c->d, AN_INPUT, NOWHERE, "npy header has byte 0x%02x where '%c' is wanted", (unsigned char)*c->s,
                     want);
}

static an_status quoted(scan *c, char *out, size_t room)
{
    blanks(c);
    char q = c->s < c->end ? *c->s : 0;
    if (q != '\'' && q != '"') return expect(c, '\'');
    c->s++;
    const char *from = c->s;
    while (c->s < c->end && *c->s != q && *c->s != '\\') c->s++;
    size_t n = (size_t)(c->s - from);
    if (c->s >= c->end || *c->s != q || n >= room)
        return diag_fail(c->d, AN_INPUT, NOWHERE,
                         "npy header has a string that does not end, or is longer than %zu bytes", room - 1);
    memcpy(out, from, n);
    out[n] = 0;
    c->s++;
    return AN_OK;
}

static an_status read_descr(scan *c, npy_array *a)
{
    char word[16];
    blanks(c);
    if (c->s < c->end && *c->s == '[')
        return diag_fail(c->d, AN_INPUT, NOWHERE, "npy file holds records; a plain array is wanted");
    TRY(quoted(c, word, sizeof word));
    for (size_t i = 0; i < COUNT(types); i++)
        if (!strcmp(types[i].descr, word)) return a->dt = types[i].dt, AN_OK;
    if (word[0] == '>')
        return diag_fail(c->d, AN_INPUT, NOWHERE, "npy file is big-endian (%s); little-endian is wanted", word);
    return diag_fail(c->d, AN_INPUT, NOWHERE,
                     "npy element type \"%s\" is not one of <f2 <f4 <f8 |i1 <i2 <i4 <i8 |u1 <u2 <u4 <u8 |b1", word);
}

static an_status read_bool(scan *c, bool *out)
{
    static const char *const word[2] = { "False", "True" };
    blanks(c);
    for (int k = 0; k < 2; k++) {
        size_t n = strlen(word[k]);
        if ((size_t)(c->end - c->s) < n || memcmp(c->s, word[k], n)) continue;
        c->s += n;
        return *out = k, AN_OK;
    }
    return diag_fail(c->d, AN_INPUT, NOWHERE, "npy fortran_order is neither True nor False");
}

static an_status read_dim(scan *c, int64_t *out)
{
    blanks(c);
    if (c->s >= c->end || *c->s < '0' || *c->s > '9')
        return diag_fail(c->d, AN_INPUT, NOWHERE, "npy shape has something that is not a number");
    int64_t v = 0;
    for (; c->s < c->end && *c->s >= '0' && *c->s <= '9'; c->s++) {
        if (v > (INT64_MAX - 9) / 10) return diag_fail(c->d, AN_INPUT, NOWHERE, "npy shape has a dimension past 2^63");
        v = v * 10 + (*c->s - '0');
    }
    if (c->s < c->end && *c->s == 'L') c->s++; /* Python 2 */
    *out = v;
    return AN_OK;
}

static an_status read_shape(scan *c, npy_array *a)
{
    TRY(expect(c, '('));
    a->rank = 0;
    for (bool comma = true; !eat(c, ')'); comma = eat(c, ',')) {
        if (!comma) return expect(c, ',');
        if (a->rank == NPY_MAX_RANK)
            return diag_fail(c->d, AN_INPUT, NOWHERE, "npy array has more than %d axes", NPY_MAX_RANK);
        TRY(read_dim(c, &a->dim[a->rank]));
        a->rank++;
    }
    return AN_OK;
}

static an_status read_dict(scan *c, npy_array *a, bool *fortran)
{
    static const char *const keys[3] = { "descr", "fortran_order", "shape" };
    unsigned seen = 0;
    TRY(expect(c, '{'));
    for (bool comma = true; !eat(c, '}'); comma = eat(c, ',')) {
        if (!comma) return expect(c, ',');
        char key[32];
        unsigned k = 0;
        TRY(quoted(c, key, sizeof key));
        while (k < 3 && strcmp(keys[k], key)) k++;
        if (k == 3 || seen & 1u << k)
            return diag_fail(c->d, AN_INPUT, NOWHERE, "npy header has %s key \"%s\"",
                             k == 3 ? "the unknown" : "twice the", key);
        seen |= 1u << k;
        TRY(expect(c, ':'));
        TRY(k == 0 ? read_descr(c, a) : k == 1 ? read_bool(c, fortran) : read_shape(c, a));
    }
    for (unsigned k = 0; k < 3; k++)
        if (!(seen & 1u << k)) return diag_fail(c->d, AN_INPUT, NOWHERE, "npy header lacks the key \"%s\"", keys[k]);
    blanks(c);
    return c->s == c->end ? AN_OK : diag_fail(c->d, AN_INPUT, NOWHERE, "npy header goes on behind its dictionary");
}

/* ---- reading ---- */

an_status npy_view(const void *bytes, size_t n, npy_array *out, bool *fortran, diag *d)
{
    *out = (npy_array){ 0 };
    const unsigned char *p = bytes;
    if (n < PREFIX || memcmp(p, MAGIC, sizeof MAGIC))
        return diag_fail(d, AN_INPUT, NOWHERE, "not an npy file: its first bytes are not \\x93NUMPY and a version");
    if (p[6] < 1 || p[6] > 3 || p[7])
        return diag_fail(d, AN_INPUT, NOWHERE, "npy version %u.%u; 1.0, 2.0 and 3.0 are known", p[6], p[7]);
    size_t at = p[6] == 1 ? 10 : 12, len = 0;
    if (n < at) return diag_fail(d, AN_INPUT, NOWHERE, "npy file ends inside its header length");
    for (size_t i = at; i-- > 8;) len = len << 8 | p[i];
    if (len > MAX_HEADER || len > n - at)
        return diag_fail(d, AN_INPUT, NOWHERE,
                         "npy header says it is %zu bytes long; the file has %zu, and %d are the most read", len,
                         n - at, MAX_HEADER);
    scan c = { .s = (const char *)p + at, .end = (const char *)p + at + len, .d = d };
    bool f = false;
    npy_array a = { 0 };
    TRY(read_dict(&c, &a, &f));
    a.count = 1;
    for (int i = 0; i < a.rank; i++)
        if (!a.dim[i]) a.count = 0;
    for (int i = 0; i < a.rank && a.count; i++)
        if (!mul_i64(a.count, a.dim[i], &a.count))
            return diag_fail(d, AN_INPUT, NOWHERE, "npy shape holds more than 2^63 elements");
    if (!dtype_bytes(a.dt, a.count, &a.bytes) || a.bytes != n - at - len)
        return diag_fail(d, AN_INPUT, NOWHERE, "npy shape needs %lld elements of %s; the file holds %zu bytes of data",
                         (long long)a.count, npy_descr(a.dt), n - at - len);
    a.data = p + at + len;
    int wide = 0;
    for (int i = 0; i < a.rank; i++) wide += a.dim[i] != 1;
    if (wide < 2) f = false; /* one axis: both orders are the same */
    if (f && !fortran)
        return diag_fail(d, AN_INPUT, NOWHERE,
                         "npy array is in Fortran order; C order is wanted (numpy.ascontiguousarray)");
    if (fortran) *fortran = f;
    *out = a;
    return AN_OK;
}

/* First index fastest, to last index fastest. */
static void to_c_order(const npy_array *a, unsigned char *out)
{
    size_t elem = (size_t)dtype_bits(a->dt) / 8;
    int64_t step[NPY_MAX_RANK], at[NPY_MAX_RANK] = { 0 }, from = 0;
    for (int i = 0; i < a->rank; i++) step[i] = i ? step[i - 1] * a->dim[i - 1] : 1;
    for (int64_t k = 0; k < a->count; k++) {
        memcpy(out + (size_t)k * elem, (const unsigned char *)a->data + (size_t)from * elem, elem);
        for (int i = a->rank - 1; i >= 0; i--) {
            from += step[i];
            if (++at[i] < a->dim[i]) break;
            from -= step[i] * a->dim[i];
            at[i] = 0;
        }
    }
}

static an_status read_into(const char *path, npy_file *f, diag *d)
{
    bool fortran = false;
    diag why = { 0 };
    if (npy_view(f->file.at, f->file.n, &f->array, &fortran, &why))
        return diag_fail(d, why.st, NOWHERE, "%.150s: %s", path, why.msg);
    if (!fortran) return AN_OK;
    f->own = malloc(f->array.bytes ? f->array.bytes : 1);
    if (!f->own) return diag_nomem(d);
    to_c_order(&f->array, f->own);
    f->array.data = f->own;
    f->array.reordered = true;
    return AN_OK;
}

an_status npy_open(const char *path, npy_file *out, diag *d)
{
    *out = (npy_file){ 0 };
    if (!strcmp(path, "-")) TRY(file_read(path, (size_t)1 << 31, &out->file, d));
    else TRY(file_map(path, &out->file, d));
    an_status st = read_into(path, out, d);
    if (st) npy_close(out);
    return st;
}

void npy_close(npy_file *f)
{
    free(f->own);
    file_drop(&f->file);
    *f = (npy_file){ 0 };
}

/* ---- writing ---- */

an_status npy_encode(dtype dt, const int64_t *dim, int rank, const void *data, strbuf *out, diag *d)
{
    const char *descr = npy_descr(dt);
    if (!descr) return diag_fail(d, AN_INPUT, NOWHERE, ".npy has no element type for %s", dtype_name(dt));
    int64_t count = 1;
    size_t bytes;
    for (int i = 0; i < rank; i++)
        if (dim[i] < 0 || !mul_i64(count, dim[i], &count))
            return diag_fail(d, AN_INPUT, NOWHERE, "shape of an npy array is out of range");
    if (!dtype_bytes(dt, count, &bytes))
        return diag_fail(d, AN_INPUT, NOWHERE, "npy array of %lld elements is too large", (long long)count);
    strbuf h = { 0 };
    sb_printf(&h, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (int i = 0; i < rank; i++)
        sb_printf(&h, "%lld%s", (long long)dim[i], i + 1 < rank ? ", " : rank == 1 ? "," : "");
    sb_puts(&h, "), }");
    while (!h.oom && (PREFIX + h.n + 1) % ALIGN) sb_putc(&h, ' ');
    sb_putc(&h, '\n');
    sb_putn(out, (const char *)MAGIC, sizeof MAGIC);
    sb_putn(out, "\1\0", 2);
    sb_putc(out, (char)(h.n & 255));
    sb_putc(out, (char)(h.n >> 8));
    if (!h.oom) sb_putn(out, h.at, h.n);
    sb_putn(out, data, bytes);
    bool oom = h.oom || out->oom;
    sb_free(&h);
    return oom ? diag_nomem(d) : AN_OK;
}

an_status npy_write(const char *path, dtype dt, const int64_t *dim, int rank, const void *data, diag *d)
{
    strbuf b = { 0 };
    an_status st = npy_encode(dt, dim, rank, data, &b, d);
    if (!st) st = file_write(path, b.at, b.n, d);
    sb_free(&b);
    return st;
}
