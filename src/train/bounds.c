/* bounds.c: what no weight or moment of fp32 state is larger than.
 * In: rate and gradient of every update.  Out: whether the next one may leave a number that is not finite.
 *
 * A step that writes over its state is judged before that, by the gradient. What decay and old moments add depends
 * on the size of the state, and looking through it at every step would cost as much as the update. So a bound is
 * carried along, larger than it need be; where it says that a step may go too far, and after the host wrote a state,
 * all of it is looked through. */
#include <float.h>
#include <math.h>
#include <stdatomic.h>

#include "train/train_int.h"

/* The gradient's own part of a step stays below FLT_MAX / 1024 (optim_reach). */
#define ROOM ((double)FLT_MAX / 4)

enum { PIECE = 1 << 16 };

typedef struct {
    const vec_kernels *v;
    const float *x;
    int64_t n;
    _Atomic float most;
} look_job;

static void look_task(void *ctx, int64_t task, int thread)
{
    look_job *j = ctx;
    (void)thread;
    float here = j->v->largest(j->x + task * PIECE, MIN(PIECE, j->n - task * PIECE)), was = atomic_load(&j->most);
    while (here > was && !atomic_compare_exchange_weak(&j->most, &was, here)) {}
}

/* The largest magnitude of a state, where it lies. */
static an_status largest_in(trainer *t, const state *s, double *most, diag *d)
{
    void *at;
    look_job j = { .v = t->vec, .n = (int64_t)(s->bytes / sizeof(float)) };
    TRY(dev_surface_lock(state_now(t, s), true, &at, d));
    j.x = at;
    pool_run(device_pool(t->dev), look_task, &j, (j.n + PIECE - 1) / PIECE);
    *most = fmax(*most, (double)atomic_load(&j.most));
    return dev_surface_unlock(state_now(t, s), d);
}

static an_status look(trainer *t, diag *d)
{
    t->most = (bounds){ .known = true, .exact = true };
    for (size_t i = 0; i < t->states.n; i++) {
        const state *s = &t->states.at[i];
        if (s->kind == STATE_W && t->params.at[s->param].frozen) continue;
        if (s->kind == STATE_W) TRY(largest_in(t, s, &t->most.w, d));
        if (s->kind == STATE_SLOT && s->slot == 0) TRY(largest_in(t, s, &t->most.m, d));
    }
    return AN_OK;
}

/* The first moment after a gradient of this size, and how far the weight may go for what is not the gradient's. */
static double moment_after(const trainer *t, double grad)
{
    const optim *k = &t->opt;
    double g = grad + (k->decoupled ? 0 : k->decay * t->most.w);
    return k->slots == 1 ? k->mu * t->most.m + g : k->slots == 2 ? fmax(t->most.m, g) : 0;
}

static double drift(const trainer *t, double lr)
{
    return fabs(lr) * (t->opt.slots == 1 ? moment_after(t, 0) : t->opt.decay * t->most.w);
}

static bool too_far(const trainer *t, double lr, double S)
{
    const optim *k = &t->opt;
    double pull = k->decoupled ? 0 : k->decay * t->most.w;
    if (k->kind == OPTIM_SGD) pull *= fmax(S, 1);      /* its gradient carries S */
    if (k->slots == 2) pull = fmax(pull, pull * pull); /* and the second moment is of squares */
    return !(fmax(pull, moment_after(t, 0)) <= ROOM && t->most.w + drift(t, lr) <= ROOM);
}

an_status bounds_hold(trainer *t, double lr, double S, bool *hold, diag *d)
{
    *hold = true;
    if (!t->in_place) return AN_OK; /* there the program tells what it would leave */
    if (!t->most.known || (too_far(t, lr, S) && !t->most.exact)) TRY(look(t, d));
    *hold = !too_far(t, lr, S);
    return AN_OK;
}

void bounds_follow(trainer *t, double lr, double grad_norm, double reach)
{
    double m = moment_after(t, grad_norm), w = t->most.w + drift(t, lr) + reach;
    t->most.w = w, t->most.m = m, t->most.exact = false;
}

void bounds_forget(trainer *t) { t->most.known = false; }
