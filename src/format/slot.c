/* slot.c: the bytes of one tensor, checked against what was declared. */
#include "format/slot.h"

an_status slot_put(file_out *f, file_slot *s, const void *p, size_t n, diag *d)
{
    if (n > s->bytes - s->put)
        return diag_fail(d, AN_BUG, NOWHERE, "tensor \"%.100s\" is given %zu bytes past its %zu", s->name,
                         n - (s->bytes - s->put), s->bytes);
    TRY(file_put(f, s->at + s->put, p, n, d));
    s->put += n;
    return AN_OK;
}

an_status slot_is_full(const file_slot *s, diag *d)
{
    if (s->put == s->bytes) return AN_OK;
    return diag_fail(d, AN_BUG, NOWHERE, "tensor \"%.100s\" got %zu of its %zu bytes", s->name, s->put, s->bytes);
}
