/* scale.c: the loss scale, and which steps count.
 * In: what a dispatch reported.  Out: taken over or not, and the scale of the next one.
 * On a chip nothing is ever NaN: what overflows comes out infinite, and may cancel to 0 later. So the verdict rests on the largest
 * gradient, taken before anything else is done with it, on what its square would do to the second moment, and on the largest number of
 * the state the step would leave. A gradient of 0 everywhere is what infinities cancel to, not what training gives. */
#include <math.h>

#include "train/train_int.h"

enum { GROW_AFTER = 200, MAX_SKIPPED = 32 };
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
                                        [VERDICT_NOTHING] = "what cancels to gradients of 0 everywhere", [VERDICT_STATE] = "a weight or moment after the update" };
    return v == VERDICT_FINE ? "nothing" : text[v];
}

an_status scale_after(trainer *t, bool applied, diag *d)
{
    scaler *s = &t->scale;
    int most = t->o.max_skipped > 0 ? t->o.max_skipped : MAX_SKIPPED, grow = t->o.grow_after > 0 ? t->o.grow_after : GROW_AFTER;
    if (applied) {
        s->skipped_row = 0;
        s->good++;
        if (t->o.dynamic_scale && s->good >= grow && s->scale * 2 <= s->largest) s->scale *= 2, s->good = 0;
        return AN_OK;
    }
    s->good = 0;
    s->skipped_row++;
    if (t->o.dynamic_scale && s->scale / 2 >= SCALE_LEAST) s->scale /= 2;
    if (s->skipped_row < most) return AN_OK;
    return diag_fail(d, AN_MISMATCH, NOWHERE, "%lld updates in a row were not finite (loss scale now %g): the training has diverged, or its data is out of range",
                     (long long)s->skipped_row, s->scale);
}
