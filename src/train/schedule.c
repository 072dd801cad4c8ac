/* schedule.c: the learning rate of each update. */
#include <math.h>

#include "train/log.h"
#include "train/train.h"

static const char *const names[SCHEDULE_COUNT] = {
#define SCHEDULE(id, name, what) name,
#include "train/schedule.def"
#undef SCHEDULE
};

an_status train_schedule_find(const char *name, train_schedule_kind *out, diag *d)
{
    strbuf known = { 0 };
    *out = SCHEDULE_COSINE;
    if (!name) return AN_OK;
    for (int i = 0; i < SCHEDULE_COUNT; i++) {
        if (!strcmp(names[i], name)) return *out = (train_schedule_kind)i, sb_free(&known), AN_OK;
        sb_printf(&known, "%s%s", i ? ", " : "", names[i]);
    }
    diag_fail(d, AN_USAGE, NOWHERE, "unknown schedule \"%.40s\"; known are %s", name, known.at ? known.at : "");
    return sb_free(&known), d->st;
}

an_status train_schedule_end(train_schedule_kind kind, double end, diag *d)
{
    if (!(end <= 1))
        return diag_fail(d, AN_USAGE, NOWHERE,
                         "%g of the learning rate is left at the end, wanted a fraction from 0 to 1", end);
    if (end != 0 && kind == SCHEDULE_CONSTANT)
        return diag_fail(d, AN_USAGE, NOWHERE,
                         "%g of the learning rate is to be left at the end, but the schedule is constant",
                         MAX(end, 0.0));
    return AN_OK;
}

void train_schedule_warn(const train_schedule *s, void (*warn)(void *user, const char *line), void *user)
{
    const bool falls = s->kind != SCHEDULE_CONSTANT;
    if (s->warmup < s->steps + !falls) return;
    log_say(warn, user, "a warm-up of %lld updates in a run of %lld: the rate rises to %g%s%s%s", (long long)s->warmup,
            (long long)s->steps, train_schedule_lr(s, s->steps - 1), falls ? ", and " : ", below its peak",
            falls ? names[s->kind] : "", falls ? " never begins" : "");
}

const char *train_schedule_at(size_t i) { return i < SCHEDULE_COUNT ? names[i] : NULL; }

double train_schedule_lr(const train_schedule *s, int64_t step)
{
    if (s->warmup > 0 && step < s->warmup) return s->lr * (double)(step + 1) / (double)s->warmup;
    int64_t span = s->steps - s->warmup;
    double u = span > 0 ? (double)(step - s->warmup) / (double)span : 1;
    u = MIN(u, 1);
    double left = s->kind == SCHEDULE_CONSTANT ? 1
                  : s->kind == SCHEDULE_LINEAR ? 1 - u
                                               : 0.5 * (1 + cos(3.14159265358979323846 * u));
    return s->kind == SCHEDULE_CONSTANT ? s->lr : s->lr * (s->lr_end + (1 - s->lr_end) * left);
}
