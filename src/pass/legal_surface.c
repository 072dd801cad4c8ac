/* legal_surface.c: ports smaller than the smallest surface the engine takes are widened along the last axis, in
 * steps of 16 elements; where that alone would make the axis too long for the chip, the height grows as well. The
 * rules decide how wide: the answer is the smallest width at which none that names this rewrite fires. */
#include "pass/ports_int.h"

typedef struct {
    const chip *chip;
    arena *mem;
    bool input;
    int64_t most; /* steps that still make a legal width */
} probe;

static an_status fires_at(const probe *p, const port_slot *s, int64_t steps, int64_t height, bool *fires, diag *d)
{
    port_slot t = *s;
    int rank = t.type.sh.rank;
    t.type.sh.d[rank - 1] = steps * PORT_STEP;
    if (rank > 1) t.type.sh.d[rank - 2] = height;
    return port_fires(p->chip, &t, p->input, "pad_surface", p->mem, fires, d);
}

/* Fewest steps at this height, 0: none that fits. The chip's numbers give the first guess, the rules confirm it. */
static an_status steps_at(const probe *p, const port_slot *s, int64_t height, int64_t *steps, diag *d)
{
    int last = s->type.sh.rank - 1;
    int64_t least = (s->type.sh.d[last] + PORT_STEP - 1) / PORT_STEP, bad = least - 1, ok = p->most + 1, guess;
    double bytes = chip_limit(p->chip, "surface_min"), w = chip_limit(p->chip, "surface_w"),
           row = dtype_bits(s->type.dt) / 8.0;
    bool fires;
    *steps = 0;
    for (int k = 0; k < last; k++) row *= (double)(k == last - 1 ? height : s->type.sh.d[k]);
    guess = (int64_t)((MAX(bytes / row, w) + PORT_STEP - 1) / PORT_STEP);
    for (int64_t k = guess; k >= guess - 1; k--) { /* right at once when the guess passes and one less does not */
        if (k <= bad || k >= ok) continue;
        TRY(fires_at(p, s, k, height, &fires, d));
        if (fires) bad = k;
        else ok = k;
    }
    while (ok - bad > 1) {
        int64_t mid = bad + (ok - bad) / 2;
        TRY(fires_at(p, s, mid, height, &fires, d));
        if (fires) bad = mid;
        else ok = mid;
    }
    if (ok <= p->most) *steps = ok;
    return AN_OK;
}

enum { MAX_HEIGHT = 64 }; /* more rows than this are never needed to make a surface of 49 KB out of full widths */

static an_status widen(const probe *p, const port_slot *s, shape *to, diag *d)
{
    bool fires;
    *to = s->type.sh;
    if (!to->rank || !has_elements(to) || dtype_bits(s->type.dt) % 8) return AN_OK;
    TRY(port_fires(p->chip, s, p->input, "pad_surface", p->mem, &fires, d));
    if (!fires) return AN_OK;
    int64_t steps = 0, h = to->rank > 1 ? to->d[to->rank - 2] : 1;
    for (int64_t more = 0; more < (to->rank > 1 ? MAX_HEIGHT : 1) && !steps; more++) {
        TRY(steps_at(p, s, h + more, &steps, d));
        if (!steps) continue;
        if (to->rank > 1) to->d[to->rank - 2] = h + more;
        to->d[to->rank - 1] = steps * PORT_STEP;
    }
    return AN_OK;
}

an_status pass_pad_surface(graph *g, pass_ctx *c, diag *d)
{
    port_plan *p = c->plan;
    ports_found f;
    shape *in = TAKE(&c->scratch, shape, p->n_in), *out = TAKE(&c->scratch, shape, p->n_out);
    if (!in || !out) return diag_nomem(d);
    TRY(ports_fire(c->o->target, p, "pad_surface", &c->scratch, &f, d));
    if (!f.n) return AN_OK;
    double longest = chip_limit(c->o->target, "max_dim");
    probe ask = { .chip = c->o->target,
                  .mem = &c->scratch,
                  .input = true,
                  .most = longest > 0 ? (int64_t)longest / PORT_STEP : 1 << 16 };
    for (size_t i = 0; i < p->n_in; i++) TRY(widen(&ask, &p->in[i], &in[i], d));
    ask.input = false;
    for (size_t i = 0; i < p->n_out; i++) TRY(widen(&ask, &p->out[i], &out[i], d));
    return ports_widen(g, c, in, out, d);
}
