/* exec_pool.c: pooling windows, a row of results at a time.
 * In: x as planes.  Out: y. Each result is made from the places of its window in ascending order, as the reference does, but all
 * results of a row take the same tap together. */
#include <math.h>

#include "engine/exec_int.h"

enum { SPATIAL = 3, MOST_PLANE = 1 << 22 };
typedef struct {
    const exec_env *env;
    const numerics *num;
    int64_t x, y, planes, in[SPATIAL], out[SPATIAL], k[SPATIAL], stride[SPATIAL], pad[SPATIAL], after[SPATIAL];
    dtype tx, ty;
    pool_kind kind;
    bool exclude;
    size_t each;
} state;

static an_status prepare(image *im, const insn *in, void **out, diag *d)
{
    exec_env *e;
    state s = { .x = insn_t(in, "x"), .y = insn_t(in, "y"), .num = &im->p->num, .kind = (pool_kind)insn_i(in, "kind"), .exclude = insn_i(in, "exclude_pad") };
    const etensor *x = &im->p->tensors.at[s.x], *y = &im->p->tensors.at[s.y];
    int64_t n;
    const int64_t *k = insn_is(in, "kernel", &n), *stride = insn_is(in, "stride", &n), *pad = insn_is(in, "pad", &n);
    TRY(exec_open(im, &e, d));
    s.env = e, s.tx = x->dt, s.ty = y->dt, s.planes = x->dim[0] * x->dim[1];
    if (!e->fast || !exec_loads(s.tx) || !exec_stores(s.ty) || !dtype_is_float(s.ty)) return AN_OK;
    int lead = SPATIAL - (x->rank - 2);
    for (int i = 0; i < SPATIAL; i++) {
        int j = i - lead;
        s.in[i] = j < 0 ? 1 : x->dim[j + 2], s.out[i] = j < 0 ? 1 : y->dim[j + 2], s.k[i] = j < 0 ? 1 : k[j], s.stride[i] = j < 0 ? 1 : stride[j];
        s.pad[i] = j < 0 ? 0 : pad[2 * j], s.after[i] = j < 0 ? 0 : pad[2 * j + 1];
    }
    int64_t plane = dims_product(s.in, 0, SPATIAL);
    if (plane > MOST_PLANE || s.out[2] > MOST_PLANE) return AN_OK;
    s.each = ROUND_UP((size_t)(plane + 2 * s.out[2]) * sizeof(float), (size_t)64);
    exec_need_work(im, s.each * (size_t)e->threads);
    state *keep = TAKE(&im->prepared, state, 1);
    if (!keep) return diag_nomem(d);
    *keep = s;
    *out = keep;
    return AN_OK;
}

/* Taps of the window at o along axis a: inside x, and inside x with its declared padding. */
static void taps(const state *s, int a, int64_t o, int64_t *inside, int64_t *declared)
{
    int64_t first = o * s->stride[a] - s->pad[a], lo = MAX(0, -first), hi = MIN(s->k[a], s->in[a] - first);
    *inside = MAX(hi - lo, 0);
    *declared = MAX(MIN(s->k[a], s->in[a] + s->after[a] - first), 0);
}

static const vec_stat stats[POOL_COUNT] = { [POOL_AVG] = STAT_SUM, [POOL_MAX] = STAT_MAX, [POOL_MIN] = STAT_MIN, [POOL_L2] = STAT_SQUARES, [POOL_L1] = STAT_ABS };

/* acc[ow] takes tap kw of the input row `line`, for every result of the row that has it inside. */
static void take_tap(const state *s, const float *line, int64_t kw, float *acc, float *tmp)
{
    int64_t st = s->stride[2], shift = kw - s->pad[2], lo = shift < 0 ? (-shift + st - 1) / st : 0, hi = (s->in[2] - 1 - shift) / st + 1;
    if (s->in[2] - 1 - shift < 0) return;
    hi = MIN(hi, s->out[2]);
    if (lo >= hi) return;
    const float *from = line + lo * st + shift;
    if (st != 1) {
        for (int64_t i = 0; i < hi - lo; i++) tmp[i] = from[i * st];
        from = tmp;
    }
    s->env->v->columns(acc + lo, stats[s->kind], s->env->chip, from, 1, 0, NULL, hi - lo);
}

static void finish_row(const state *s, int64_t od, int64_t oh, float *acc)
{
    int64_t in[SPATIAL], dec[SPATIAL];
    taps(s, 0, od, &in[0], &dec[0]), taps(s, 1, oh, &in[1], &dec[1]);
    for (int64_t i = 0; i < s->out[2]; i++) {
        if (s->kind == POOL_L2) acc[i] = sqrtf(acc[i]);
        if (s->kind != POOL_AVG) continue;
        taps(s, 2, i, &in[2], &dec[2]);
        int64_t share = s->exclude ? in[0] * in[1] * in[2] : dec[0] * dec[1] * dec[2];
        acc[i] = share ? acc[i] / (float)share : 0;
    }
}

typedef struct {
    const run_ctx *c;
    const state *s;
} job;

static void plane_task(void *ctx, int64_t plane, int thread)
{
    const job *j = ctx;
    const state *s = j->s;
    const vec_kernels *v = s->env->v;
    int64_t n = dims_product(s->in, 0, SPATIAL), to = plane * dims_product(s->out, 0, SPATIAL);
    float *x = (float *)(void *)((char *)j->c->work + (size_t)thread * s->each), *acc = x + n, *tmp = acc + s->out[2];
    v->load(x, s->tx, (const unsigned char *)ctx_mem(j->c, s->x) + plane * n * exec_size(s->tx), n);
    if (s->env->chip && dtype_is_float(s->tx)) v->clean(x, INFINITY, n);
    int how = s->env->chip ? VR_CHIP | (s->ty == DT_F16 ? VR_F16 : s->ty == DT_BF16 ? VR_BF16 : 0) : 0;
    float start = s->kind == POOL_MAX ? -INFINITY : s->kind == POOL_MIN ? INFINITY : 0;
    for (int64_t od = 0; od < s->out[0]; od++)
        for (int64_t oh = 0; oh < s->out[1]; oh++, to += s->out[2]) {
            for (int64_t i = 0; i < s->out[2]; i++) acc[i] = start;
            for (int64_t kd = 0; kd < s->k[0]; kd++)
                for (int64_t kh = 0; kh < s->k[1]; kh++) {
                    int64_t id = od * s->stride[0] + kd - s->pad[0], ih = oh * s->stride[1] + kh - s->pad[1];
                    if (id < 0 || id >= s->in[0] || ih < 0 || ih >= s->in[1]) continue;
                    for (int64_t kw = 0; kw < s->k[2]; kw++) take_tap(s, x + (id * s->in[1] + ih) * s->in[2], kw, acc, tmp);
                }
            finish_row(s, od, oh, acc);
            v->round(acc, how, s->out[2]);
            v->store((unsigned char *)ctx_mem(j->c, s->y) + to * exec_size(s->ty), s->ty, acc, s->out[2]);
        }
}

static an_status run(const run_ctx *c, const insn *in, diag *d)
{
    job j = { .c = c, .s = c->state };
    if (!c->state) return ref_pool(c, in, d);
    pool_run(c->pool, plane_task, &j, j.s->planes);
    return AN_OK;
}

const exec_entry exec_pool = { .run = run, .prepare = prepare };
