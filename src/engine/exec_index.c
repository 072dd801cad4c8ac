/* exec_index.c: what answers with places, or is asked by place: arg, sort, running sums, one element per index. In:
 * x seen as [outer, n, inner] around an axis.  Out: results of the reference, bit for bit: nothing here is
 * approximate.
 *
 * With inner > 1 a task is a group of columns, walked row by row with one state per column; with inner = 1 it is
 * some whole lines. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "engine/exec_int.h"

enum { COLUMNS = 256, TASK_ELEMS = 1 << 14 };

typedef struct {
    const exec_env *env;
    const numerics *num;
    int64_t x, y;
    axis_view a;
    exec_walk walk; /* x in its own order */
    dtype ty;
    bool flag, back; /* arg: least; cumsum: exclusive, reverse; sort: ascending */
    int64_t count, values, indices; /* sort */
    int64_t each, tasks; /* lines of a task; columns: groups of COLUMNS */
    size_t bytes;        /* scratch of a thread */
} state;

static an_status prepare(image *im, const insn *in, int64_t y, bool columns, state **out, diag *d)
{
    exec_env *e;
    *out = NULL;
    TRY(exec_open(im, &e, d));
    const etensor *x = &im->p->tensors.at[insn_t(in, "x")];
    if (!e->fast || !exec_loads(x->dt)) return AN_OK;
    state *s = TAKE(&im->prepared, state, 1);
    if (!s) return diag_nomem(d);
    *s = (state){ .env = e,
                  .num = &im->p->num,
                  .x = insn_t(in, "x"),
                  .y = y,
                  .a = et_axis(x, insn_i(in, "axis")),
                  .ty = y >= 0 ? im->p->tensors.at[y].dt : DT_NONE };
    s->walk =
        (exec_walk){ .tensor = s->x, .t = x->dt, .rank = 1, .dim = { et_elems(x) }, .stride = { 1 }, .same = true };
    if (columns && s->a.inner > 1) s->tasks = s->a.outer * ((s->a.inner + COLUMNS - 1) / COLUMNS);
    else {
        int64_t lines = s->a.outer * s->a.inner;
        s->each = MAX(1, TASK_ELEMS / s->a.n), s->tasks = (lines + s->each - 1) / s->each;
    }
    *out = s;
    return AN_OK;
}

static void need(image *im, state *s, size_t bytes)
{
    s->bytes = ROUND_UP(bytes, (size_t)64);
    exec_need_work(im, s->bytes * (size_t)s->env->threads);
}

typedef struct {
    const run_ctx *c;
    const state *s;
} job;

static void *scratch(const job *j, int thread) { return (char *)j->c->work + (size_t)thread * j->s->bytes; }
static void read(const job *j, int64_t at, float *to, int64_t n)
{
    exec_read(j->s->env, &j->s->walk, ctx_mem(j->c, j->s->x), at, to, n);
}
static void put(const job *j, int64_t t, int64_t i, double v)
{
    dtype dt = ctx_tensor(j->c, t)->dt;
    dtype_store(dt, ctx_mem(j->c, t), i, num_round(j->s->num, dt, v));
}

static an_status run(const run_ctx *c, const insn *in, pool_fn *fn, diag *d)
{
    job j = { .c = c, .s = c->state };
    if (!c->state) return ref_entry_of(in->op)(c, in, d);
    pool_run(c->pool, fn, &j, j.s->tasks);
    return AN_OK;
}

/* Columns first .. first + n of a group, from place `at` of x on. */
typedef struct {
    int64_t at, first, n, outer;
} group;

static group group_of(const state *s, int64_t task)
{
    int64_t per = (s->a.inner + COLUMNS - 1) / COLUMNS, o = task / per, first = task % per * COLUMNS;
    return (group){
        .at = o * s->a.n * s->a.inner + first, .first = first, .n = MIN(COLUMNS, s->a.inner - first), .outer = o
    };
}

/* ---- the place of the largest or least: the first among equals, NaN only where it stands first ---- */

static bool better(const state *s, float x, float than) { return s->flag ? x < than : x > than; }

static void arg_task(void *ctx, int64_t task, int thread)
{
    const job *j = ctx;
    const state *s = j->s;
    float *x = scratch(j, thread), best[COLUMNS];
    int64_t at[COLUMNS];
    if (s->a.inner > 1) {
        group g = group_of(s, task);
        for (int64_t r = 0; r < s->a.n; r++) {
            read(j, g.at + r * s->a.inner, x, g.n);
            for (int64_t i = 0; i < g.n; i++)
                if (!r || better(s, x[i], best[i])) best[i] = x[i], at[i] = r;
        }
        for (int64_t i = 0; i < g.n; i++) put(j, s->y, g.outer * s->a.inner + g.first + i, (double)at[i]);
        return;
    }
    for (int64_t l = task * s->each; l < MIN(s->a.outer, (task + 1) * s->each); l++) {
        float top = 0;
        int64_t place = 0;
        for (int64_t r = 0; r < s->a.n; r += EXEC_BLOCK) {
            int64_t n = MIN(EXEC_BLOCK, s->a.n - r);
            read(j, l * s->a.n + r, x, n);
            if (!r) top = x[0];
            for (int64_t i = 0; i < n; i++)
                if (better(s, x[i], top)) top = x[i], place = r + i;
        }
        put(j, s->y, l, (double)place);
    }
}

static an_status prepare_arg(image *im, const insn *in, void **out, diag *d)
{
    state *s;
    TRY(prepare(im, in, insn_t(in, "y"), true, &s, d));
    if (!s) return AN_OK;
    s->flag = insn_i(in, "least");
    if (dtype_bits(s->ty) < 8) return AN_OK; /* neighbours share bytes */
    need(im, s, EXEC_BLOCK * sizeof(float));
    *out = s;
    return AN_OK;
}

static an_status run_arg(const run_ctx *c, const insn *in, diag *d) { return run(c, in, arg_task, d); }
const exec_entry exec_arg = { .run = run_arg, .prepare = prepare_arg };

/* ---- running sums ---- */

static int how_of(const state *s)
{
    return !s->env->chip ? 0 : VR_CHIP | (s->ty == DT_F16 ? VR_F16 : s->ty == DT_BF16 ? VR_BF16 : 0);
}

static void store(const job *j, int64_t at, const float *x, int64_t n)
{
    j->s->env->v->store((char *)ctx_mem(j->c, j->s->y) + at * exec_size(j->s->ty), j->s->ty, x, n);
}

static void cumsum_task(void *ctx, int64_t task, int thread)
{
    const job *j = ctx;
    const state *s = j->s;
    const vec_kernels *v = s->env->v;
    float *x = scratch(j, thread), sum[COLUMNS] = { 0 };
    if (s->a.inner > 1) {
        group g = group_of(s, task);
        for (int64_t k = 0; k < s->a.n; k++) {
            int64_t at = g.at + (s->back ? s->a.n - 1 - k : k) * s->a.inner;
            read(j, at, x, g.n);
            if (s->flag) store(j, at, sum, g.n);
            v->fn[VF_ADD](sum, sum, x, NULL, NULL, g.n);
            v->round(sum, how_of(s), g.n);
            if (!s->flag) store(j, at, sum, g.n);
        }
        return;
    }
    for (int64_t l = task * s->each; l < MIN(s->a.outer, (task + 1) * s->each); l++) {
        float total = 0;
        for (int64_t k = 0; k < s->a.n; k += EXEC_BLOCK) {
            int64_t n = MIN(EXEC_BLOCK, s->a.n - k), at = l * s->a.n + (s->back ? s->a.n - k - n : k);
            read(j, at, x, n);
            for (int64_t q = 0; q < n; q++) {
                int64_t i = s->back ? n - 1 - q : q;
                float with = total + x[i];
                x[i] = s->flag ? total : with;
                total = with;
            }
            store(j, at, x, n);
        }
    }
}

static an_status prepare_cumsum(image *im, const insn *in, void **out, diag *d)
{
    state *s;
    TRY(prepare(im, in, insn_t(in, "y"), true, &s, d));
    if (!s) return AN_OK;
    s->flag = insn_i(in, "exclusive"), s->back = insn_i(in, "reverse");
    if (!exec_stores(s->ty) || !dtype_is_float(s->ty) || (s->env->chip && s->a.inner == 1)) return AN_OK;
    need(im, s, EXEC_BLOCK * sizeof(float));
    *out = s;
    return AN_OK;
}

static an_status run_cumsum(const run_ctx *c, const insn *in, diag *d) { return run(c, in, cumsum_task, d); }
const exec_entry exec_cumsum = { .run = run_cumsum, .prepare = prepare_cumsum };

/* ---- the first so many in order: stable, NaN larger than everything ---- */

typedef struct {
    float v;
    int32_t i;
} item;

static bool comes_first(const state *s, item a, item b)
{
    bool na = isnan(a.v), nb = isnan(b.v);
    if (na != nb) return s->flag ? nb : na;
    if (!na && a.v != b.v) return s->flag ? a.v < b.v : a.v > b.v;
    return a.i < b.i;
}

/* The last of the kept ones on top. */
static void sift(const state *s, item *heap, int64_t n, int64_t at)
{
    item x = heap[at];
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && comes_first(s, heap[child], heap[child + 1])) child++;
        if (!comes_first(s, x, heap[child])) break;
        heap[at] = heap[child];
    }
    heap[at] = x;
}

static void sort_task(void *ctx, int64_t task, int thread)
{
    const job *j = ctx;
    const state *s = j->s;
    item *heap = scratch(j, thread);
    float *x = (float *)(void *)(heap + s->count);
    for (int64_t l = task * s->each; l < MIN(s->a.outer * s->a.inner, (task + 1) * s->each); l++) {
        int64_t o = l / s->a.inner, col = l % s->a.inner, kept = 0;
        for (int64_t r = 0; r < s->a.n; r += EXEC_BLOCK) {
            int64_t n = MIN(EXEC_BLOCK, s->a.n - r);
            if (s->a.inner == 1) read(j, o * s->a.n + r, x, n);
            else
                for (int64_t i = 0; i < n; i++) read(j, (o * s->a.n + r + i) * s->a.inner + col, x + i, 1);
            for (int64_t i = 0; i < n; i++) {
                item it = { x[i], (int32_t)(r + i) };
                if (kept < s->count) {
                    heap[kept++] = it;
                    for (int64_t k = kept / 2 - 1; kept == s->count && k >= 0; k--) sift(s, heap, kept, k);
                } else if (comes_first(s, it, heap[0])) {
                    heap[0] = it;
                    sift(s, heap, kept, 0);
                }
            }
        }
        for (int64_t n = kept - 1; n > 0; n--) { /* the last ones to the end */
            item last = heap[0];
            heap[0] = heap[n], heap[n] = last;
            sift(s, heap, n, 0);
        }
        for (int64_t i = 0; i < kept; i++) {
            int64_t to = (o * s->count + i) * s->a.inner + col;
            if (s->values >= 0) put(j, s->values, to, (double)heap[i].v);
            if (s->indices >= 0) put(j, s->indices, to, (double)heap[i].i);
        }
    }
}

static an_status prepare_sort(image *im, const insn *in, void **out, diag *d)
{
    state *s;
    TRY(prepare(im, in, -1, false, &s, d));
    if (!s) return AN_OK;
    s->flag = insn_i(in, "ascending"), s->count = insn_i(in, "count"), s->values = insn_t(in, "values"),
    s->indices = insn_t(in, "indices");
    const int64_t written[] = { s->values, s->indices };
    for (int k = 0; k < 2; k++)
        if (written[k] >= 0 && dtype_bits(im->p->tensors.at[written[k]].dt) < 8) return AN_OK;
    if (s->a.n > INT32_MAX) return AN_OK;
    need(im, s, (size_t)s->count * sizeof(item) + EXEC_BLOCK * sizeof(float));
    *out = s;
    return AN_OK;
}

static an_status run_sort(const run_ctx *c, const insn *in, diag *d) { return run(c, in, sort_task, d); }
const exec_entry exec_sort = { .run = run_sort, .prepare = prepare_sort };

/* ---- one element per index ---- */

typedef struct {
    axis_view a;
    int64_t places, bytes, n;
    dtype ti;
    const vec_kernels *rules; /* of moved elements: a chip's; NULL: none */
} along_state;

typedef struct {
    const run_ctx *c;
    const insn *in;
    const along_state *s;
    const unsigned char *x, *ix;
    unsigned char *y;
    atomic_int odd; /* an index is outside: the reference says which */
} along_job;

static an_status prepare_along(image *im, const insn *in, void **out, diag *d)
{
    exec_env *e;
    TRY(exec_open(im, &e, d));
    const etensor *x = &im->p->tensors.at[insn_t(in, "x")], *ix = &im->p->tensors.at[insn_t(in, "indices")];
    if (!e->fast || dtype_bits(x->dt) < 8 || (e->chip && dtype_is_float(x->dt) && x->dt != DT_F16)) return AN_OK;
    along_state *s = TAKE(&im->prepared, along_state, 1);
    if (!s) return diag_nomem(d);
    *s = (along_state){ .a = et_axis(x, insn_i(in, "axis")),
                        .places = ix->dim[insn_i(in, "axis")],
                        .bytes = exec_size(x->dt),
                        .n = et_elems(ix),
                        .ti = ix->dt,
                        .rules = e->chip && x->dt == DT_F16 ? e->v : NULL };
    *out = s;
    return AN_OK;
}

static void along_span(void *user, int64_t first, int64_t count, int thread)
{
    along_job *j = user;
    const along_state *s = j->s;
    (void)thread;
    for (int64_t at = first; at < first + count; at++) {
        double v = num_in(j->c->num, s->ti, dtype_load(s->ti, j->ix, at));
        if (!(v >= -(double)s->a.n && v < (double)s->a.n)) {
            atomic_store(&j->odd, 1);
            return;
        }
        int64_t k = (int64_t)v, o = at / (s->places * s->a.inner),
                from = (o * s->a.n + (k < 0 ? k + s->a.n : k)) * s->a.inner + at % s->a.inner;
        memcpy(j->y + at * s->bytes, j->x + from * s->bytes, (size_t)s->bytes);
    }
    if (s->rules) s->rules->moved_f16(j->y + first * s->bytes, 0x7c00, count);
}

static an_status run_along(const run_ctx *c, const insn *in, diag *d)
{
    along_job j = { .c = c,
                    .in = in,
                    .s = c->state,
                    .x = ctx_mem(c, insn_t(in, "x")),
                    .ix = ctx_mem(c, insn_t(in, "indices")),
                    .y = ctx_mem(c, insn_t(in, "y")) };
    if (j.s) exec_spans(c->pool, j.s->n, 4096, along_span, &j);
    return !j.s || atomic_load(&j.odd) ? ref_gather_along(c, in, d) : AN_OK;
}

const exec_entry exec_gather_along = { .run = run_along, .prepare = prepare_along };
