/* exec_move.c: strided copies, gathers and scatters.
 * In: prepared steps.  Out: one result, its elements as they were but for a chip's rules about NaN and width slices.
 *
 * A copy is a box of axes with two steps each. If the innermost axis is contiguous on both sides it is made of runs;
 * if each side is contiguous along another axis it is a transpose in blocks; otherwise it goes element by element.
 * Which element of y is written twice depends on order, so such a copy is left to the reference. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "engine/exec_int.h"

typedef enum { MOVE_RUNS, MOVE_TURN, MOVE_SINGLES } move_kind;
typedef struct {
    const exec_env *env;
    move_kind kind;
    int rank; /* of the box outside the inner one or two axes */
    int64_t size[MOVE_MAX_RANK], ys[MOVE_MAX_RANK], xs[MOVE_MAX_RANK];
    int64_t n, ny, nx;       /* RUNS: elements; SINGLES: elements and their steps */
    int64_t rows, cols, ldy, ldx; /* TURN */
    int64_t outer, y0, x0, bytes;
    bool rules;
    uint16_t last; /* bits of the largest fp16 magnitude that survives */
} move_state;

typedef struct {
    int64_t size, y, x;
} axis;

static int by_reach(const void *a, const void *b)
{
    int64_t p = llabs((*(const axis *)a).y), q = llabs((*(const axis *)b).y);
    return (p > q) - (p < q);
}

/* No two places of the box are the same element of y. */
static bool writes_once(const axis *ax, int n)
{
    axis s[MOVE_MAX_RANK];
    int64_t reach = 0;
    memcpy(s, ax, sizeof *s * (size_t)n);
    qsort(s, (size_t)n, sizeof *s, by_reach);
    for (int i = 0; i < n; i++) {
        if (llabs(s[i].y) <= reach) return false;
        reach += (s[i].size - 1) * llabs(s[i].y);
    }
    return true;
}

static int join_axes(const insn *in, axis *ax) /* without axes of one, neighbours that continue each other joined */
{
    int64_t rank;
    const int64_t *size = insn_is(in, "size", &rank), *ys = insn_is(in, "y_step", &rank),
                  *xs = insn_is(in, "x_step", &rank);
    int n = 0;
    for (int64_t i = 0; i < rank; i++) {
        if (size[i] == 1) continue;
        if (n && ax[n - 1].y == ys[i] * size[i] && ax[n - 1].x == xs[i] * size[i])
            ax[n - 1] = (axis){ ax[n - 1].size * size[i], ys[i], xs[i] };
        else ax[n++] = (axis){ size[i], ys[i], xs[i] };
    }
    if (!n) ax[n++] = (axis){ 1, 1, 1 };
    return n;
}

static void drop(axis *ax, int *n, int i)
{
    memmove(ax + i, ax + i + 1, sizeof *ax * (size_t)(*n - i - 1));
    --*n;
}

static uint16_t last_bits(double last)
{
    uint16_t h = f16_from_f64(last);
    return f16_to_f64(h) > last ? (uint16_t)(h - 1) : h;
}

static an_status prepare_move(image *im, const insn *in, void **out, diag *d)
{
    exec_env *e;
    axis ax[MOVE_MAX_RANK];
    const numerics *num = &im->p->num;
    dtype t = im->p->tensors.at[insn_t(in, "y")].dt;
    int n = join_axes(in, ax), y1 = -1, x1 = -1;
    TRY(exec_open(im, &e, d));
    if (!e->fast || dtype_bits(t) < 8 || (e->chip && dtype_is_float(t) && t != DT_F16) || !writes_once(ax, n))
        return AN_OK;
    move_state *s = TAKE(&im->prepared, move_state, 1);
    if (!s) return diag_nomem(d);
    *s = (move_state){ .env = e,
                       .bytes = exec_size(t),
                       .y0 = insn_i(in, "y_start"),
                       .x0 = insn_i(in, "x_start"),
                       .rules = e->chip && t == DT_F16 };
    s->last = insn_i(in, "width_offset") && num->wslice_last != 0 ? last_bits(num->wslice_last) : 0x7c00;
    for (int i = 0; i < n; i++) {
        if (ax[i].y == 1) y1 = i;
        if (ax[i].x == 1) x1 = i;
    }
    if (y1 >= 0 && y1 == x1) {
        s->kind = MOVE_RUNS, s->n = ax[y1].size;
        drop(ax, &n, y1);
    } else if (y1 >= 0 && x1 >= 0 && (s->bytes == 2 || s->bytes == 4)) {
        s->kind = MOVE_TURN;
        s->rows = ax[x1].size, s->ldy = ax[x1].y, s->cols = ax[y1].size, s->ldx = ax[y1].x;
        drop(ax, &n, MAX(x1, y1));
        drop(ax, &n, MIN(x1, y1));
    } else {
        int inner = n - 1; /* the longest one, so that the loop inside is worth it */
        for (int i = 0; i < n; i++)
            if (ax[i].size > ax[inner].size) inner = i;
        s->kind = MOVE_SINGLES, s->n = ax[inner].size, s->ny = ax[inner].y, s->nx = ax[inner].x;
        drop(ax, &n, inner);
    }
    s->rank = n, s->outer = 1;
    for (int i = 0; i < n; i++) s->size[i] = ax[i].size, s->ys[i] = ax[i].y, s->xs[i] = ax[i].x, s->outer *= ax[i].size;
    *out = s;
    return AN_OK;
}

typedef struct {
    const move_state *s;
    unsigned char *y;
    const unsigned char *x;
    int64_t cut, cuts; /* a long inner part in pieces */
} move_job;

static uint16_t moved(uint16_t h, uint16_t last)
{
    uint16_t mag = h & 0x7fff;
    if (mag > 0x7c00) return 0x7c00;
    return mag > last ? (uint16_t)((h & 0x8000) | 0x7c00) : h;
}

static void singles(const move_state *s, unsigned char *y, const unsigned char *x, int64_t n)
{
    int64_t ny = s->ny * s->bytes, nx = s->nx * s->bytes;
    for (int64_t i = 0; i < n; i++, y += ny, x += nx) {
        if (s->rules) {
            uint16_t h;
            memcpy(&h, x, 2);
            h = moved(h, s->last);
            memcpy(y, &h, 2);
        } else if (s->bytes == 2) memmove(y, x, 2);
        else if (s->bytes == 4) memmove(y, x, 4);
        else memmove(y, x, (size_t)s->bytes);
    }
}

static void move_inner(const move_job *j, unsigned char *y, const unsigned char *x, int64_t cut)
{
    const move_state *s = j->s;
    if (s->kind == MOVE_TURN) {
        int64_t r0 = cut * j->cut, rows = MIN(j->cut, s->rows - r0);
        y += r0 * s->ldy * s->bytes, x += r0 * s->bytes;
        s->env->v->transpose(y, s->ldy, x, s->ldx, rows, s->cols, (int)s->bytes);
        for (int64_t i = 0; s->rules && i < rows; i++)
            s->env->v->moved_f16(y + i * s->ldy * s->bytes, s->last, s->cols);
        return;
    }
    int64_t i0 = cut * j->cut, n = MIN(j->cut, s->n - i0);
    if (s->kind == MOVE_SINGLES) {
        singles(s, y + i0 * s->ny * s->bytes, x + i0 * s->nx * s->bytes, n);
        return;
    }
    memmove(y + i0 * s->bytes, x + i0 * s->bytes, (size_t)(n * s->bytes));
    if (s->rules) s->env->v->moved_f16(y + i0 * s->bytes, s->last, n);
}

static void move_span(void *user, int64_t first, int64_t count, int thread)
{
    const move_job *j = user;
    const move_state *s = j->s;
    (void)thread;
    for (int64_t i = first; i < first + count; i++) {
        int64_t o = i / j->cuts, y = s->y0, x = s->x0;
        for (int a = s->rank - 1; a >= 0; a--) {
            int64_t k = o % s->size[a];
            o /= s->size[a], y += k * s->ys[a], x += k * s->xs[a];
        }
        move_inner(j, j->y + y * s->bytes, j->x + x * s->bytes, i % j->cuts);
    }
}

typedef struct {
    const move_job *j;
    int64_t n, each;
} move_split;

static void move_task(void *ctx, int64_t task, int thread)
{
    const move_split *m = ctx;
    move_span((void *)(uintptr_t)m->j, task * m->each, MIN(m->each, m->n - task * m->each), thread);
}

static an_status run_move(const run_ctx *c, const insn *in, diag *d)
{
    enum { CUT_BYTES = 1 << 16, TASK_BYTES = 1 << 15 };
    const move_state *s = c->state;
    if (!s) return ref_move(c, in, d);
    move_job j = { .s = s, .y = ctx_mem(c, in->t[0]), .x = ctx_mem(c, in->t[1]) };
    /* onto itself: state in place */
    if (j.y == j.x && s->kind == MOVE_RUNS && s->outer == 1 && s->y0 == s->x0 && !s->rules) return AN_OK;
    int64_t line = s->kind == MOVE_TURN ? s->cols : 1, lines = s->kind == MOVE_TURN ? s->rows : s->n;
    j.cut = MIN(lines, MAX(ROUND_UP(CUT_BYTES / (line * s->bytes), (int64_t)32), 32));
    j.cuts = (lines + j.cut - 1) / j.cut;
    move_split m = { .j = &j, .n = s->outer * j.cuts, .each = MAX(1, TASK_BYTES / (line * j.cut * s->bytes)) };
    if (m.n <= m.each || pool_threads(c->pool) == 1) move_span(&j, 0, m.n, 0);
    else pool_run(c->pool, move_task, &m, (m.n + m.each - 1) / m.each);
    return AN_OK;
}

const exec_entry exec_move = { .run = run_move, .prepare = prepare_move };

/* ---- rows of x, by number: pick, gather, gather_nd ---- */

typedef struct rows_state rows_state;
struct rows_state {
    const exec_env *env;
    /* the row of x that becomes row `row` of y */
    int64_t (*from)(const rows_state *s, const int64_t *index, int64_t row);
    int64_t rows, after, bytes; /* of y; elements and bytes of one row */
    int64_t before, n, places;  /* what `from` asks for */
    const int64_t *index;       /* pick: compiled in. The others find theirs in the image's work */
    bool rules;
};

/* *out stays NULL where the elements have rules of their own, or share bytes. */
static an_status prepare_rows(image *im, const insn *in, rows_state **out, diag *d)
{
    exec_env *e;
    dtype t = im->p->tensors.at[insn_t(in, "x")].dt;
    *out = NULL;
    TRY(exec_open(im, &e, d));
    if (!e->fast || dtype_bits(t) < 8 || (e->chip && dtype_is_float(t) && t != DT_F16)) return AN_OK;
    rows_state *s = TAKE(&im->prepared, rows_state, 1);
    if (!s) return diag_nomem(d);
    *s = (rows_state){ .env = e, .bytes = exec_size(t), .rules = e->chip && t == DT_F16 };
    *out = s;
    return AN_OK;
}

typedef struct {
    const rows_state *s;
    unsigned char *y;
    const unsigned char *x;
    const int64_t *index;
    int64_t each;
} rows_job;

static void rows_task(void *ctx, int64_t task, int thread)
{
    const rows_job *j = ctx;
    const rows_state *s = j->s;
    int64_t first = task * j->each, end = MIN(s->rows, first + j->each);
    (void)thread;
    for (int64_t r = first; r < end; r++) {
        const unsigned char *x = j->x + s->from(s, j->index, r) * s->bytes;
        unsigned char *y = j->y + r * s->bytes;
        if (s->bytes == 2) memmove(y, x, 2);
        else if (s->bytes == 4) memmove(y, x, 4);
        else memmove(y, x, (size_t)s->bytes);
    }
    if (s->rules) s->env->v->moved_f16(j->y + first * s->bytes, 0x7c00, (end - first) * s->after);
}

static an_status run_rows(const run_ctx *c, const insn *in, const int64_t *index)
{
    const rows_state *s = c->state;
    rows_job j = {
        .s = s, .y = ctx_mem(c, in->t[0]), .x = ctx_mem(c, in->t[1]), .index = index, .each = MAX(1, 32768 / s->bytes)
    };
    pool_run(c->pool, rows_task, &j, (s->rows + j.each - 1) / j.each);
    return AN_OK;
}

static int64_t from_pick(const rows_state *s, const int64_t *index, int64_t row)
{
    return row / s->places * s->n + index[row % s->places];
}

static an_status prepare_pick(image *im, const insn *in, void **out, diag *d)
{
    rows_state *s;
    axis_view a = et_axis(&im->p->tensors.at[insn_t(in, "x")], insn_i(in, "axis"));
    TRY(prepare_rows(im, in, &s, d));
    if (!s) return AN_OK;
    s->from = from_pick, s->n = a.n, s->after = a.inner, s->bytes *= a.inner;
    s->index = insn_is(in, "index", &s->places), s->rows = a.outer * s->places;
    *out = s;
    return AN_OK;
}

static an_status run_pick(const run_ctx *c, const insn *in, diag *d)
{
    const rows_state *s = c->state;
    return s ? run_rows(c, in, s->index) : ref_pick(c, in, d);
}

const exec_entry exec_pick = { .run = run_pick, .prepare = prepare_pick };

/* x (batch, before, axis, after), indices (batch, places), y (batch, before, places, after) */
static int64_t from_gather(const rows_state *s, const int64_t *index, int64_t row)
{
    int64_t outer = row / s->places;
    return outer * s->n + index[outer / s->before * s->places + row % s->places];
}

static an_status prepare_gather(image *im, const insn *in, void **out, diag *d)
{
    rows_state *s;
    const etensor *x = &im->p->tensors.at[insn_t(in, "x")], *ix = &im->p->tensors.at[insn_t(in, "indices")];
    int axis_at = (int)insn_i(in, "axis"), b = (int)insn_i(in, "batch");
    TRY(prepare_rows(im, in, &s, d));
    if (!s || (uint64_t)et_elems(ix) > SIZE_MAX / 16) return AN_OK;
    s->from = from_gather, s->before = dims_product(x->dim, b, axis_at), s->n = x->dim[axis_at],
    s->places = dims_product(ix->dim, b, ix->rank);
    s->after = dims_product(x->dim, axis_at + 1, x->rank), s->bytes *= s->after,
    s->rows = dims_product(x->dim, 0, axis_at) * s->places;
    exec_need_work(im, (size_t)et_elems(ix) * sizeof(int64_t));
    *out = s;
    return AN_OK;
}

static an_status run_gather(const run_ctx *c, const insn *in, diag *d)
{
    const rows_state *s = c->state;
    if (!s) return ref_gather(c, in, d);
    int64_t *index = c->work, t = insn_t(in, "indices"), n = et_elems(ctx_tensor(c, t));
    dtype ti = ctx_tensor(c, t)->dt;
    for (int64_t i = 0; i < n; i++)
        TRY(ref_index(c, in, num_in(c->num, ti, dtype_load(ti, ctx_mem(c, t), i)), s->n, &index[i], d));
    return run_rows(c, in, index);
}

const exec_entry exec_gather = { .run = run_gather, .prepare = prepare_gather };

/* indices (batch, places, K): the numbers of a tuple count as digits of a row's number. */
static int64_t from_tuple(const rows_state *s, const int64_t *index, int64_t row) { return (void)s, index[row]; }

static an_status prepare_gather_nd(image *im, const insn *in, void **out, diag *d)
{
    rows_state *s;
    const etensor *x = &im->p->tensors.at[insn_t(in, "x")], *ix = &im->p->tensors.at[insn_t(in, "indices")];
    int b = (int)insn_i(in, "batch"), k = (int)ix->dim[ix->rank - 1];
    TRY(prepare_rows(im, in, &s, d));
    if (!s || (uint64_t)et_elems(ix) > SIZE_MAX / 16) return AN_OK;
    s->from = from_tuple, s->places = dims_product(ix->dim, b, ix->rank - 1),
    s->rows = dims_product(x->dim, 0, b) * s->places;
    s->after = dims_product(x->dim, b + k, x->rank), s->bytes *= s->after;
    exec_need_work(im, (size_t)s->rows * sizeof(int64_t));
    *out = s;
    return AN_OK;
}

static an_status run_gather_nd(const run_ctx *c, const insn *in, diag *d)
{
    const rows_state *s = c->state;
    if (!s) return ref_gather_nd(c, in, d);
    int64_t *index = c->work, t = insn_t(in, "indices"), at = 0;
    const etensor *x = ctx_tensor(c, insn_t(in, "x")), *ix = ctx_tensor(c, t);
    int b = (int)insn_i(in, "batch"), k = (int)ix->dim[ix->rank - 1];
    for (int64_t r = 0; r < s->rows; r++) {
        index[r] = r / s->places;
        for (int j = 0; j < k; j++) {
            int64_t digit;
            TRY(ref_index(c, in, num_in(c->num, ix->dt, dtype_load(ix->dt, ctx_mem(c, t), at++)), x->dim[b + j], &digit,
                          d));
            index[r] = index[r] * x->dim[b + j] + digit;
        }
    }
    return run_rows(c, in, index);
}

const exec_entry exec_gather_nd = { .run = run_gather_nd, .prepare = prepare_gather_nd };

/* ---- scatter: y (outer, axis, inner), indices (places), x (outer, places, inner), or turned (outer, inner, places)
 * ---- */

typedef struct {
    const exec_env *env;
    int64_t outer, n, inner, places;
    dtype t;
    bool add, turned;
} scatter_state;

static an_status prepare_scatter(image *im, const insn *in, void **out, diag *d)
{
    exec_env *e;
    const etensor *y = &im->p->tensors.at[insn_t(in, "y")];
    axis_view a = et_axis(y, insn_i(in, "axis"));
    bool add = insn_i(in, "add"), turned = insn_i(in, "turned");
    TRY(exec_open(im, &e, d));
    if (!e->fast || dtype_bits(y->dt) < 8 || (add && y->dt != DT_F32 && y->dt != DT_F16 && y->dt != DT_BF16))
        return AN_OK;
    if (e->chip && dtype_is_float(y->dt) && y->dt != DT_F16) return AN_OK;
    if (turned && (add || (dtype_bits(y->dt) != 16 && dtype_bits(y->dt) != 32))) return AN_OK;
    scatter_state *s = TAKE(&im->prepared, scatter_state, 1);
    if (!s) return diag_nomem(d);
    *s = (scatter_state){ .env = e, .outer = a.outer, .n = a.n, .inner = a.inner, .places = et_elems(&im->p->tensors.at[insn_t(in, "indices")]), .t = y->dt, .add = add, .turned = turned };
    if ((uint64_t)s->places > SIZE_MAX / 16) return AN_OK;
    exec_need_work(im, (size_t)s->places * sizeof(int64_t));
    *out = s;
    return AN_OK;
}

static void add_run(const scatter_state *s, unsigned char *y, const unsigned char *x)
{
    float a[EXEC_BLOCK], b[EXEC_BLOCK];
    for (int64_t i = 0; i < s->inner; i += EXEC_BLOCK) {
        int64_t n = MIN(EXEC_BLOCK, s->inner - i), at = i * exec_size(s->t);
        s->env->v->load(a, s->t, y + at, n), s->env->v->load(b, s->t, x + at, n);
        if (s->env->chip) s->env->v->clean(a, INFINITY, n), s->env->v->clean(b, INFINITY, n);
        s->env->v->fn[VF_ADD](a, a, b, NULL, NULL, n);
        if (s->env->chip) s->env->v->round(a, VR_CHIP | VR_F16, n);
        s->env->v->store(y + at, s->t, a, n);
    }
}

/* k columns of x, which go to rows of y side by side. Those are far away: asked for some ahead. */
static void turn_run(const scatter_state *s, unsigned char *y, const unsigned char *x, int64_t k)
{
    enum { ROWS = 16 };
    const int64_t size = exec_size(s->t), bytes = s->inner * size;
    for (int64_t i = 0; i < k; i += ROWS, y += ROWS * bytes, x += ROWS * size) {
        for (int64_t at = ROWS * bytes; at < MIN(2 * ROWS, k - i) * bytes; at += EXEC_LINE) EXEC_PREFETCH_W(y + at);
        s->env->v->transpose(y, s->inner, x, s->places, MIN(ROWS, k - i), s->inner, (int)size);
    }
}

typedef struct {
    const scatter_state *s;
    const int64_t *index;
    unsigned char *y;
    const unsigned char *x;
} scatter_job;

/* One of the outer: rows of equal indices must meet in order. Rows that go side by side are moved as one. */
static void scatter_task(void *ctx, int64_t outer, int thread)
{
    const scatter_job *j = ctx;
    const scatter_state *s = j->s;
    int64_t bytes = s->inner * exec_size(s->t);
    (void)thread;
    for (int64_t p = 0, k; p < s->places; p += k) {
        unsigned char *to = j->y + (outer * s->n + j->index[p]) * bytes;
        const unsigned char *from = j->x + outer * s->places * bytes + p * (s->turned ? exec_size(s->t) : bytes);
        for (k = 1; !s->add && p + k < s->places && j->index[p + k] == j->index[p] + k;) k++;
        if (s->add) add_run(s, to, from);
        else {
            if (s->turned) turn_run(s, to, from, k);
            else memmove(to, from, (size_t)(k * bytes));
            if (s->env->chip && s->t == DT_F16) s->env->v->moved_f16(to, 0x7c00, k * s->inner);
        }
    }
}

static an_status run_scatter(const run_ctx *c, const insn *in, diag *d)
{
    enum { FEW = 1 << 16 }; /* bytes: waking another thread takes longer */
    const scatter_state *s = c->state;
    if (!s) return ref_scatter(c, in, d);
    int64_t *index = c->work, t = insn_t(in, "indices");
    dtype ti = ctx_tensor(c, t)->dt;
    for (int64_t i = 0; i < s->places; i++)
        TRY(ref_index(c, in, num_in(c->num, ti, dtype_load(ti, ctx_mem(c, t), i)), s->n, &index[i], d));
    scatter_job j = { .s = s, .index = index, .y = ctx_mem(c, insn_t(in, "y")), .x = ctx_mem(c, insn_t(in, "x")) };
    pool_run(s->places * s->inner * s->outer * exec_size(s->t) <= FEW ? NULL : c->pool, scatter_task, &j, s->outer);
    return AN_OK;
}

const exec_entry exec_scatter = { .run = run_scatter, .prepare = prepare_scatter };
