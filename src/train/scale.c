/* scale.c: the loss scale, and which steps count. In: what a dispatch reported.  Out: taken over or not, and the
 * scale of the next one. On a chip nothing is ever NaN: what overflows comes out infinite, and may cancel to 0
 * later. So the verdict rests on the largest gradient, taken before anything else is done with it, on what its
 * square would do to the second moment, and on the largest number of the state the step would leave.
 *
 * A gradient of 0 everywhere is what infinities cancel to, what numbers too small for fp16 become, or the end of
 * learning, and one step cannot tell. Nothing is applied, and a dynamic scale is searched, an update each: first the
 * halves of it, where infinities would show, unless the loss is 0, which has none behind it and is waited for a
 * while; from the least scale on nothing can have overflown, and its doubles follow, up to the largest. From where a
 * gradient is found the scale doubles with every update, away from the numbers that vanish: if that was on the way
 * down as far as half of what the row began at, which need not have been its fault, else until one overflows. Where
 * none is found the scale is again what it was, and is looked for anew after a long row.
 *
 * Who trains a language model can look behind such a gradient. Where that finds infinities the update was not finite:
 * it is skipped as any other that was not, the scale is halved, and a row of them ends the training. What a smaller
 * scale cures is cured on the way down; infinities of the forward pass no scale cures.
 *
 * A scale that was fixed is not searched: it is compiled in. A row of updates without a gradient at a loss that is
 * not 0 ends the training, since nothing is learnt from it. Who can look looks at other scales first: where one gives
 * the minibatch a gradient it is named, where none does there is nothing to learn, and the training goes on. */
#include <math.h>

#include "train/train_int.h"

enum { GROW_AFTER = 200, MAX_SKIPPED = 32, WAIT = 8, SEARCH_AGAIN = 200 };
#define SCALE_LEAST 0x1p-14
#define F16_LARGEST 65504.0

void scale_start(trainer *t)
{
    double scale = t->o.loss_scale != 0 ? t->o.loss_scale : t->floats == DT_F16 ? 1024 : 1;
    t->scale = (scaler){ .scale = scale, .largest = t->ctl_dt == DT_F16 ? 0x1p15 : 0x1p24 };
    t->peak_limit = INFINITY;
    if (!is_half(t)) return;
    t->peak_limit = F16_LARGEST;
    if (t->opt.slots == 2) /* the square, and in pairs its share in low units, must be a number */
        t->peak_limit = sqrt(F16_LARGEST / MAX(1, is_pair(t) ? (1 - t->opt.beta2) * LOW_UNIT : 1)) * (1 - 0x1p-8);
}

train_verdict scale_verdict(const trainer *t, double loss, double peak, double power, double extent)
{
    if (!isfinite(loss)) return VERDICT_LOSS;
    if (!isfinite(peak) || !isfinite(power)) return VERDICT_GRADIENT;
    if (is_half(t) && peak > t->peak_limit) return VERDICT_SQUARE;
    if (is_half(t) && peak == 0) return VERDICT_NOTHING;
    return isfinite(extent) ? VERDICT_FINE : VERDICT_STATE;
}

const char *train_verdict_text(train_verdict v)
{
    static const char *const text[] = { [VERDICT_LOSS] = "the loss", [VERDICT_GRADIENT] = "a gradient", [VERDICT_SQUARE] = "the square of the largest gradient",
                                        [VERDICT_NOTHING] = "no gradient", [VERDICT_STATE] = "a weight or moment after the update",
                                        [VERDICT_CANCELLED] = "what cancelled to a gradient of 0" };
    return v == VERDICT_FINE ? "nothing" : text[v];
}

static void after_good(trainer *t)
{
    scaler *s = &t->scale;
    bool up = s->search == SEARCH_UP, back = s->search == SEARCH_DOWN || s->search == SEARCH_BACK,
         room = s->scale * 2 <= (back ? s->from / 2 : s->largest);
    int grow = up || back ? 1 : t->o.grow_after > 0 ? t->o.grow_after : GROW_AFTER;
    s->skipped_row = s->zero_row = 0;
    s->good++;
    s->search = !room ? SEARCH_NONE : up ? SEARCH_UP : back ? SEARCH_BACK : SEARCH_NONE;
    if (up) s->from = s->scale;
    if (t->o.dynamic_scale && s->good >= grow && room) s->scale *= 2, s->good = 0;
}

static void say_nothing(trainer *t, double loss)
{
    strbuf b = { 0 };
    if (t->said_nothing || !t->o.warn) return;
    t->said_nothing = true;
    sb_printf(&b, "the gradient is 0 everywhere (loss %g, loss scale %g): nothing is applied until there is one; ",
              loss, t->scale.scale);
    if (t->o.dynamic_scale) sb_puts(&b, "if that goes on, smaller and larger scales are tried");
    else
        sb_puts(&b,
                "if there is more to learn, the scale is too small or too large: a dynamic one would be looked for");
    if (!b.oom) t->o.warn(t->o.user, b.at);
    sb_free(&b);
}

static void next_scale(scaler *s)
{
    s->good = 0;
    if (s->search == SEARCH_DOWN && s->scale / 2 < SCALE_LEAST) s->search = SEARCH_UP, s->scale = s->from;
    if (s->search == SEARCH_BACK) s->scale /= 2, s->search = SEARCH_NONE; /* half of it had a gradient */
    else if (s->search == SEARCH_DOWN) s->scale /= 2;
    else if (s->scale * 2 <= s->largest) s->scale *= 2;
    else s->search = SEARCH_REST, s->scale = s->from, s->zero_row = 0;
}

static void search_on(trainer *t, double loss)
{
    scaler *s = &t->scale;
    if (s->search == SEARCH_NONE || s->search == SEARCH_REST) {
        if (s->zero_row < (s->search == SEARCH_REST ? SEARCH_AGAIN : loss == 0 ? WAIT : 1)) return;
        s->from = s->scale;
        s->search = loss == 0 ? SEARCH_UP : SEARCH_DOWN;
    }
    next_scale(s);
}

/* The largest scale below the fixed one at which the minibatch has a gradient, else the largest above it, and half
 * of that where half has one too: room for other minibatches. 0: none has. Who looks may have numbers for what is
 * too small here, and then finds one at this very scale: it is too small. */
static an_status other_scale(trainer *t, double *out, diag *d)
{
    train_verdict v = VERDICT_NOTHING;
    double s = t->scale.scale;
    *out = 0;
    TRY(t->look(t->look_user, s, &v, d));
    bool small = v == VERDICT_FINE;
    while (v != VERDICT_FINE && (s /= 2) >= SCALE_LEAST) TRY(t->look(t->look_user, s, &v, d));
    if (v == VERDICT_FINE && !small) {
        *out = s;
        TRY(t->look(t->look_user, s / 2, &v, d));
        if (v == VERDICT_FINE) *out = s / 2;
        return AN_OK;
    }
    v = VERDICT_NOTHING;
    for (s = t->scale.scale * 2; s <= t->scale.largest && (v == VERDICT_NOTHING || v == VERDICT_FINE); s *= 2) {
        TRY(t->look(t->look_user, s, &v, d));
        if (v == VERDICT_FINE) *out = *out > 0 ? s / 2 : s;
    }
    return AN_OK;
}

static an_status fixed_too_long(trainer *t, int64_t most, double loss, diag *d)
{
    scaler *s = &t->scale;
    double other = 0;
    if (loss == 0 || s->zero_row < (s->search == SEARCH_REST ? SEARCH_AGAIN : most)) return AN_OK;
    diag why = { 0 };
    an_status st = t->look ? other_scale(t, &other, &why) : AN_UNSUPPORTED;
    if (st == AN_NOMEM) return diag_nomem(d);
    if (st)
        return diag_fail(
            d, AN_MISMATCH, NOWHERE,
            "%lld updates in a row had a gradient of 0 everywhere (loss %g): nothing is learnt at a loss scale of %g, which is too large or too small, if there is more to learn; a dynamic one finds out",
            (long long)s->zero_row, loss, s->scale);
    if (other > 0)
        return diag_fail(
            d, AN_MISMATCH, NOWHERE,
            "%lld updates in a row had a gradient of 0 everywhere (loss %g): nothing is learnt at a loss scale of %g; at %g there is a gradient: take that, or a dynamic one",
            (long long)s->zero_row, loss, s->scale, other);
    s->search = SEARCH_REST, s->from = s->scale, s->zero_row = 0;
    return AN_OK;
}

static an_status after_nothing(trainer *t, int64_t most, double loss, diag *d)
{
    t->scale.zero_row++;
    say_nothing(t, loss);
    if (!t->o.dynamic_scale) return fixed_too_long(t, most, loss, d);
    search_on(t, loss);
    return AN_OK;
}

/* A loss of 0 has no infinities behind it. A look that fails finds none, and is no reason to lose the training. */
an_status scale_look_behind(trainer *t, train_report *r, diag *d)
{
    train_verdict seen = VERDICT_NOTHING;
    if (r->verdict != VERDICT_NOTHING || r->loss == 0 || !t->look) return AN_OK;
    an_status st = t->look(t->look_user, t->scale.scale, &seen, &(diag){ 0 });
    if (st == AN_NOMEM) return diag_nomem(d);
    if (!st && seen == VERDICT_GRADIENT) r->verdict = VERDICT_CANCELLED, r->finite = false;
    return AN_OK;
}

/* A fixed scale may be why, and where somebody could look another one has a gradient or it is not. */
static an_status diverged(trainer *t, train_verdict v, diag *d)
{
    const long long n = (long long)t->scale.skipped_row;
    const char *what = train_verdict_text(v);
    bool fixed = is_half(t) && !t->o.dynamic_scale,
         by_scale = fixed && (v == VERDICT_GRADIENT || v == VERDICT_SQUARE || v == VERDICT_CANCELLED);
    double other = 0, now = t->scale.scale;
    if (fixed && v == VERDICT_CANCELLED) {
        an_status st = other_scale(t, &other, &(diag){ 0 });
        if (st == AN_NOMEM) return diag_nomem(d);
        if (!st) by_scale = false;
    }
    if (other > 0)
        return diag_fail(
            d, AN_MISMATCH, NOWHERE,
            "%lld updates were not finite, and none between them counted (%s): a loss scale of %g is too large; at %g there is a gradient: take that, or a dynamic one",
            n, what, now, other);
    return diag_fail(
        d, AN_MISMATCH, NOWHERE,
        "%lld updates were not finite, and none between them counted (%s; loss scale now %g): %sthe training has diverged, or its data is out of range",
        n, what, now, by_scale ? "the scale is too large, which a dynamic one finds out, or " : "");
}

an_status scale_after(trainer *t, train_verdict v, double loss, diag *d)
{
    scaler *s = &t->scale;
    int most = t->o.max_skipped > 0 ? t->o.max_skipped : MAX_SKIPPED;
    if (v == VERDICT_FINE) return after_good(t), AN_OK;
    if (v == VERDICT_NOTHING) return after_nothing(t, most, loss, d);
    s->good = s->zero_row = 0, s->search = SEARCH_NONE;
    s->skipped_row++;
    if (t->o.dynamic_scale && s->scale / 2 >= SCALE_LEAST) s->scale /= 2;
    return s->skipped_row < most ? AN_OK : diverged(t, v, d);
}
