/* legal_uniform.c: all inputs of one size, all outputs of one size, by widening the smaller ones. The common size is
 * the smallest multiple of a step of the largest port that every port can reach by growing one axis: the width in
 * steps of 16, else the height, else another one. */
#include "pass/ports_int.h"

typedef struct {
    const port_slot *s;
    size_t n;
    double max_dim; /* longest axis the chip takes */
} side;

static bool bytes_of(const port_slot *s, size_t *bytes) { return shape_bytes(&s->type, bytes) && *bytes > 0; }

/* Bytes one more element along an axis (counted from the back) adds. */
static bool unit_of(const port_slot *s, int back, size_t *unit)
{
    int axis = s->type.sh.rank - 1 - back;
    size_t bytes;
    if (axis < 0 || !bytes_of(s, &bytes) || dtype_bits(s->type.dt) % 8) return false;
    *unit = bytes / (size_t)s->type.sh.d[axis];
    return true;
}

/* The port can have exactly L bytes: by growing which axis (counted from the back)? -1: it cannot. */
static int axis_for(const side *z, const port_slot *s, size_t L)
{
    size_t bytes, unit;
    if (!bytes_of(s, &bytes) || L < bytes) return -1;
    if (L == bytes) return 0;
    for (int back = 0; back < s->type.sh.rank; back++)
        if (unit_of(s, back, &unit) && L % unit == 0 && (back || (L / unit) % PORT_STEP == 0) &&
            !((double)(L / unit) > z->max_dim))
            return back;
    return -1;
}

enum { MAX_GROWTH = 4 }; /* a common size above this many times the largest port is not worth it */

static size_t common_size(const side *z)
{
    size_t largest = 0, bytes, best = 0, at = 0, unit;
    for (size_t i = 0; i < z->n; i++) {
        if (!bytes_of(&z->s[i], &bytes)) return 0;
        if (bytes > largest) largest = bytes, at = i;
    }
    for (int back = 0; largest && back < z->s[at].type.sh.rank; back++) {
        if (!unit_of(&z->s[at], back, &unit)) continue;
        for (size_t L = largest; L <= largest * MAX_GROWTH && (!best || L < best); L += unit) {
            bool all = true;
            for (size_t k = 0; k < z->n && all; k++) all = axis_for(z, &z->s[k], L) >= 0;
            if (all) best = L;
        }
    }
    return best;
}

static void grow_side(const side *z, shape *to)
{
    size_t L = common_size(z), bytes, unit;
    for (size_t i = 0; i < z->n; i++) {
        to[i] = z->s[i].type.sh;
        if (!L || !bytes_of(&z->s[i], &bytes) || bytes == L) continue;
        int back = axis_for(z, &z->s[i], L);
        if (unit_of(&z->s[i], back, &unit)) to[i].d[to[i].rank - 1 - back] = (int64_t)(L / unit);
    }
}

/* Where no common size exists within reason the ports stay: the runtime then allocates plan.in_bytes or
 * plan.out_bytes for each, since an over-allocated surface is read packed from byte 0 (in_uniform, out_uniform say
 * which case it is). */
an_status pass_uniform_ports(graph *g, pass_ctx *c, diag *d)
{
    port_plan *p = c->plan;
    ports_found f;
    shape *in = TAKE(&c->scratch, shape, p->n_in), *out = TAKE(&c->scratch, shape, p->n_out);
    if (!in || !out) return diag_nomem(d);
    TRY(ports_fire(c->o->target, p, "uniform_ports", &c->scratch, &f, d));
    if (!f.n) return AN_OK;
    double max_dim = chip_limit(c->o->target, "max_dim");
    grow_side(&(side){ p->in, p->n_in, max_dim }, in);
    grow_side(&(side){ p->out, p->n_out, max_dim }, out);
    return ports_widen(g, c, in, out, d);
}
