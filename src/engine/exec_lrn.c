/* exec_lrn.c: local response normalisation, some columns at a time.
 * In: x [outer, channels, inner].  Out: the reference's bits: squares are added in ascending order of channels. */
#include <math.h>

#include "engine/exec_int.h"

enum { COLUMNS = 256, MOST_CHANNELS = 1 << 14 };

typedef struct {
    const exec_env *env;
    int64_t x, y, size, groups; /* groups of columns in a plane of channels */
    axis_view a;
    exec_walk walk;
    dtype ty;
    float share, k;
    double beta;
    size_t each; /* scratch of a thread */
} state;

static an_status prepare(image *im, const insn *in, void **out, diag *d)
{
    exec_env *e;
    TRY(exec_open(im, &e, d));
    int64_t tx = insn_t(in, "x"), ty = insn_t(in, "y");
    const etensor *x = &im->p->tensors.at[tx];
    dtype dt = im->p->tensors.at[ty].dt;
    axis_view a = et_axis(x, 1);
    if (!e->fast || !exec_loads(x->dt) || !exec_stores(dt) || !dtype_is_float(dt) || a.n > MOST_CHANNELS) return AN_OK;
    state *s = TAKE(&im->prepared, state, 1);
    if (!s) return diag_nomem(d);
    *s = (state){ .env = e, .x = tx, .y = ty, .size = insn_i(in, "size"), .a = a, .ty = dt, .groups = (a.inner + COLUMNS - 1) / COLUMNS };
    s->walk = (exec_walk){ .tensor = tx, .t = x->dt, .rank = 1, .dim = { et_elems(x) }, .stride = { 1 }, .same = true };
    s->share = (float)(insn_f(in, "alpha") / (double)s->size), s->k = (float)insn_f(in, "k"),
    s->beta = insn_f(in, "beta");
    s->each = (size_t)a.n * COLUMNS * sizeof(float);
    exec_need_work(im, s->each * (size_t)e->threads);
    *out = s;
    return AN_OK;
}

typedef struct {
    const run_ctx *c;
    const state *s;
} job;

static void task(void *ctx, int64_t t, int thread)
{
    const job *j = ctx;
    const state *s = j->s;
    const vec_kernels *v = s->env->v;
    int64_t first = t % s->groups * COLUMNS, n = MIN(COLUMNS, s->a.inner - first),
            at = t / s->groups * s->a.n * s->a.inner + first;
    float *x = (float *)(void *)((char *)j->c->work + (size_t)thread * s->each), sum[COLUMNS];
    int how = !s->env->chip ? 0 : VR_CHIP | (s->ty == DT_F16 ? VR_F16 : s->ty == DT_BF16 ? VR_BF16 : 0);
    for (int64_t ch = 0; ch < s->a.n; ch++)
        exec_read(s->env, &s->walk, ctx_mem(j->c, s->x), at + ch * s->a.inner, x + ch * COLUMNS, n);
    for (int64_t ch = 0; ch < s->a.n; ch++) {
        int64_t lo = MAX(0, ch - s->size / 2), hi = MIN(s->a.n, ch - s->size / 2 + s->size);
        v->fill(sum, 0, n);
        if (hi > lo) v->columns(sum, STAT_SQUARES, s->env->chip, x + lo * COLUMNS, hi - lo, COLUMNS, NULL, n);
        for (int64_t i = 0; i < n; i++) {
            float scaled = s->share * sum[i];
            sum[i] = (float)pow((double)(s->k + scaled), s->beta);
        }
        v->fn[VF_DIV](sum, x + ch * COLUMNS, sum, NULL, NULL, n);
        v->round(sum, how, n);
        v->store((char *)ctx_mem(j->c, s->y) + (at + ch * s->a.inner) * exec_size(s->ty), s->ty, sum, n);
    }
}

static an_status run(const run_ctx *c, const insn *in, diag *d)
{
    job j = { .c = c, .s = c->state };
    if (!j.s) return ref_lrn(c, in, d);
    pool_run(c->pool, task, &j, j.s->a.outer * j.s->groups);
    return AN_OK;
}

const exec_entry exec_lrn = { .run = run, .prepare = prepare };
