/* exec_pool.c: pooling windows, a row of results at a time. In: x as planes.  Out: y. Each result is made from the
 * places of its window in ascending order, as the reference does, but all results of a row take the same tap
 * together. */
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
    state s = { .x = insn_t(in, "x"),
                .y = insn_t(in, "y"),
                .num = &im->p->num,
                .kind = (pool_kind)insn_i(in, "kind"),
                .exclude = insn_i(in, "exclude_pad") };
    const etensor *x = &im->p->tensors.at[s.x], *y = &im->p->tensors.at[s.y];
    int64_t n;
    const int64_t *k = insn_is(in, "kernel", &n), *stride = insn_is(in, "stride", &n), *pad = insn_is(in, "pad", &n);
    TRY(exec_open(im, &e, d));
    s.env = e, s.tx = x->dt, s.ty = y->dt, s.planes = x->dim[0] * x->dim[1];
    if (!e->fast || !exec_loads(s.tx) || !exec_stores(s.ty) || !dtype_is_float(s.ty)) return AN_OK;
    int lead = SPATIAL - (x->rank - 2);
    for (int i = 0; i < SPATIAL; i++) {
        int j = i - lead;
        s.in[i] = j < 0 ? 1 : x->dim[j + 2], s.out[i] = j < 0 ? 1 : y->dim[j + 2], s.k[i] = j < 0 ? 1 : k[j],
        s.stride[i] = j < 0 ? 1 : stride[j];
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

/* Taps of the window at o along axis a that are inside x: from lo to before hi. */
typedef struct {
    int64_t lo, hi;
} taps;

static taps inside(const state *s, int a, int64_t o)
{
    int64_t first = o * s->stride[a] - s->pad[a], lo = MAX(0, -first);
    return (taps){ lo, MAX(MIN(s->k[a], s->in[a] - first), lo) };
}

/* How many count in an average. */
static int64_t share(const state *s, int a, int64_t o)
{
    taps t = inside(s, a, o);
    return s->exclude ? t.hi - t.lo : MAX(MIN(s->k[a], s->in[a] + s->after[a] + s->pad[a] - o * s->stride[a]), 0);
}

static const vec_stat stats[POOL_COUNT] = {
    [POOL_AVG] = STAT_SUM, [POOL_MAX] = STAT_MAX, [POOL_MIN] = STAT_MIN, [POOL_L2] = STAT_SQUARES, [POOL_L1] = STAT_ABS
};

/* acc[ow] takes tap kw of the input row `line`, for every result of the row that has it inside. */
static void take_tap(const state *s, const float *line, int64_t kw, float *acc, float *tmp)
{
    int64_t st = s->stride[2], shift = kw - s->pad[2], lo = shift < 0 ? (-shift + st - 1) / st : 0,
            hi = (s->in[2] - 1 - shift) / st + 1;
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

/* acc[ow] takes place iw of the input row `line`, for every result of the row whose window has it. */
static void take_place(const state *s, const float *line, int64_t iw, float *acc, float *tmp)
{
    int64_t st = s->stride[2], last = iw + s->pad[2], lo = last < s->k[2] ? 0 : (last - s->k[2]) / st + 1,
            hi = MIN(last / st + 1, s->out[2]);
    if (lo >= hi) return;
    s->env->v->fill(tmp, line[iw], hi - lo);
    s->env->v->columns(acc + lo, stats[s->kind], s->env->chip, tmp, 1, 0, NULL, hi - lo);
}

/* Each result takes what its window has of `line`, in ascending order, by whichever there are fewer of: taps of a
 * kernel may be many more than places. */
static void take_line(const state *s, const float *line, float *acc, float *tmp)
{
    if (s->k[2] > s->in[2])
        for (int64_t iw = 0; iw < s->in[2]; iw++) take_place(s, line, iw, acc, tmp);
    else
        for (int64_t kw = 0; kw < s->k[2]; kw++) take_tap(s, line, kw, acc, tmp);
}

/* The length of the window at o where its squares leave fp32. */
static float l2_wide(const state *s, const float *x, const int64_t *o)
{
    taps t[SPATIAL];
    int64_t first[SPATIAL];
    double sum = 0;
    for (int a = 0; a < SPATIAL; a++) t[a] = inside(s, a, o[a]), first[a] = o[a] * s->stride[a] - s->pad[a];
    for (int64_t kd = t[0].lo; kd < t[0].hi; kd++)
        for (int64_t kh = t[1].lo; kh < t[1].hi; kh++)
            for (int64_t kw = t[2].lo; kw < t[2].hi; kw++) {
                const double v = (double)x[((first[0] + kd) * s->in[1] + first[1] + kh) * s->in[2] + first[2] + kw];
                sum += v * v;
            }
    return (float)sqrt(sum);
}

static void finish_row(const state *s, const float *x, int64_t od, int64_t oh, float *acc)
{
    int64_t rows = share(s, 0, od) * share(s, 1, oh);
    for (int64_t i = 0; i < s->out[2]; i++) {
        if (s->kind == POOL_L2)
            acc[i] = s->env->chip || isfinite(acc[i]) ? sqrtf(acc[i]) : l2_wide(s, x, (const int64_t[]){ od, oh, i });
        if (s->kind != POOL_AVG) continue;
        int64_t n = rows * share(s, 2, i);
        acc[i] = n ? acc[i] / (float)n : 0;
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
            taps d = inside(s, 0, od), h = inside(s, 1, oh);
            int64_t id = od * s->stride[0] - s->pad[0], ih = oh * s->stride[1] - s->pad[1];
            for (int64_t kd = d.lo; kd < d.hi; kd++)
                for (int64_t kh = h.lo; kh < h.hi; kh++)
                    take_line(s, x + ((id + kd) * s->in[1] + ih + kh) * s->in[2], acc, tmp);
            finish_row(s, x, od, oh, acc);
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
