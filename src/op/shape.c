/* shape.c: dimension arithmetic shared by every layer. */
#include "op/shape.h"

shape shape_of(const int64_t *d, int rank)
{
    shape s = { .rank = rank };
    for (int i = 0; i < rank; i++) s.d[i] = d[i];
    return s;
}

bool shape_eq(const shape *a, const shape *b)
{
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->d[i] != b->d[i]) return false;
    return true;
}

bool shape_known(const shape *s)
{
    for (int i = 0; i < s->rank; i++)
        if (s->d[i] < 0) return false;
    return true;
}

bool shape_elems(const shape *s, int64_t *n)
{
    int64_t p = 1;
    if (!shape_known(s)) return false;
    for (int i = 0; i < s->rank; i++)
        if (s->d[i] == 0) return *n = 0, true;
    for (int i = 0; i < s->rank; i++)
        if (!mul_i64(p, s->d[i], &p) || p > (int64_t)1 << 62) return false;
    *n = p;
    return true;
}

bool shape_bytes(const ttype *t, size_t *n)
{
    int64_t e;
    return shape_elems(&t->sh, &e) && dtype_bytes(t->dt, e, n);
}

bool shape_broadcast(const shape *a, const shape *b, shape *out)
{
    shape o = { .rank = MAX(a->rank, b->rank) };
    for (int i = 1; i <= o.rank; i++) {
        int64_t x = i <= a->rank ? a->d[a->rank - i] : 1, y = i <= b->rank ? b->d[b->rank - i] : 1;
        if (x != y && x != 1 && y != 1) return false;
        o.d[o.rank - i] = x == 1 ? y : x;
    }
    *out = o;
    return true;
}

bool axis_norm(int64_t axis, int rank, int *out)
{
    if (axis < -rank || axis >= rank) return false;
    *out = (int)(axis < 0 ? axis + rank : axis);
    return true;
}

void shape_strides(const shape *s, int64_t *stride)
{
    int64_t p = 1;
    for (int i = s->rank - 1; i >= 0; i--) stride[i] = p, p *= s->d[i];
}

void sb_shape(strbuf *b, const shape *s)
{
    sb_putc(b, '[');
    for (int i = 0; i < s->rank; i++) {
        if (i) sb_puts(b, ", ");
        if (s->d[i] < 0) sb_putc(b, '?');
        else sb_printf(b, "%lld", (long long)s->d[i]);
    }
    sb_putc(b, ']');
}

void sb_ttype(strbuf *b, const ttype *t)
{
    sb_puts(b, dtype_name(t->dt));
    sb_shape(b, &t->sh);
}
