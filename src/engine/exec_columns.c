/* exec_columns.c: softmax and norms down columns on the plain processor.
 * In: x seen as [outer, n, inner], lines along n.  Out: y of the same shape.
 *
 * Columns are taken in blocks. A block is looked at once, a band of rows after the other, for what its columns have
 * in common; then it is read again and written. A plane of x whose rows are no longer than memory likes to be read is
 * one block. Bands of a block are written in turns with looking at those of the next: memory is read and written all
 * the time. They are written from the last rows up, which are still in the second cache; the rest is read from farther
 * away once more. Narrower blocks that fit would cost more: a cache holds few rows that lie a power of two apart, and
 * memory gives a whole row in less time than parts of several. A softmax makes its exps twice; where vectors are so
 * narrow that this takes longer it keeps them in scratch that fits the second cache: those of a band take the place of
 * those of the block before, which become rows of y in the same loop. */
#include <math.h>
#include <stdatomic.h>

#include "engine/exec_columns.h"

enum { COLUMN_STEP = 64, SUMS = 4, PARTS = 2, ALIGNED = VEC_LINE / sizeof(float) };

typedef struct {
    const unsigned char *x;
    unsigned char *y;
    int64_t lines;
    bool stream;
    bool wide; /* of some columns the squares leave fp32; their scale is 0 or no number */
    /* per column: of a softmax the first, of a layer norm the second; at last sum is what it is scaled by */
    float *base, *mean, *sum;
    /* of a norm whose rows may be multiplied in fp16: scales as vec_kernels.parts makes them, and how many it could */
    uint16_t *high, *low;
    int64_t fit;
} block;

typedef struct {
    const run_ctx *c;
    const columns *k;
    float *gain, *bias; /* NULL: none */
    bool halves;        /* rows may be multiplied in fp16 */
    float *sums, *part[2], *exps;
    _Atomic int64_t *next; /* block, of all threads */
} room;

static bool half(const columns *k) { return k->tx == DT_F16 && k->ty == DT_F16; }

static int64_t blocks(const columns *k) { return k->outer * k->per_outer; }

/* slot: of two that have room for what columns have in common */
static void open_block(const room *m, int64_t which, int slot, block *b)
{
    const columns *k = m->k;
    const int64_t first = which % k->per_outer * k->block, at = which / k->per_outer * k->n * k->inner + first,
                  out = exec_size(k->ty);
    const vec_kernels *v = k->env->v;
    float *sums = m->sums + slot * SUMS * k->block;
    *b = (block){ .x = (const unsigned char *)ctx_mem(m->c, k->x) + at * exec_size(k->tx),
                  .y = (unsigned char *)ctx_mem(m->c, k->y) + at * out,
                  .lines = MIN(k->block, k->inner - first),
                  .base = sums,
                  .mean = sums + k->block,
                  .sum = sums + 2 * k->block };
    b->high = (uint16_t *)(void *)(sums + 3 * k->block), b->low = b->high + k->block;
    b->stream = k->stream && (uintptr_t)b->y % VEC_LINE == 0 && k->inner * out % VEC_LINE == 0;
    if (k->exps) v->soft_begin(b->base, b->sum, b->lines, half(k));
    else v->fill(b->mean, 0, b->lines), v->fill(b->sum, 0, b->lines);
}

static void look(const room *m, const block *b, int64_t r, int64_t rows)
{
    const columns *k = m->k;
    const vec_kernels *v = k->env->v;
    const int64_t ld = k->inner * exec_size(k->tx);
    const unsigned char *x = b->x + r * ld;
    if (k->exps) v->soft_look(b->base, b->sum, k->tx, x, rows, ld, b->lines, half(k));
    else if (k->kind == NORM_LAYER) v->moments(b->mean, b->sum, k->tx, x, r, rows, ld, b->lines);
    else v->down(b->sum, k->tx, x, STAT_SQUARES, rows, ld, b->lines);
}

static int64_t bands(const columns *k) { return (k->n + VEC_BAND - 1) / VEC_BAND; }

/* A band of exps of `now`, where those of `done` were; either may be NULL. */
static void exps_band(const room *m, const block *now, const block *done, int64_t r)
{
    const columns *k = m->k;
    const vec_kernels *v = k->env->v;
    const int64_t in = k->inner * exec_size(k->tx), out = k->inner * exec_size(k->ty);
    const int rows = (int)MIN(VEC_BAND, k->n - r);
    vec_soft p = { .ldx = in, .ldy = out, .keep = m->exps + r / VEC_BAND * VEC_KEPT(v, k->block) };
    if (done) p.y = done->y + r * out, p.last = done->base, p.scale = done->sum, p.stream = done->stream;
    if (done && (!now || now->lines != done->lines)) {
        v->soft_band(&p, k->tx, rows, done->lines);
        p.y = NULL;
    }
    if (now) {
        p.x = now->x + r * in, p.base = now->base, p.sum = now->sum;
        v->soft_band(&p, k->tx, rows, now->lines);
    }
}

static void settle(const room *m, block *b)
{
    const columns *k = m->k;
    const vec_kernels *v = k->env->v;
    const float per = 1 / (float)k->n;
    if (k->exps) {
        v->soft_end(b->base, b->sum, b->lines, half(k));
        return;
    }
    b->wide = !(v->largest(b->sum, b->lines) < INFINITY);
    if (k->kind != NORM_L2) v->fn[VF_MUL_P](b->sum, b->sum, NULL, NULL, &per, b->lines);
    v->fn[VF_RSQRT](b->sum, b->sum, NULL, NULL, &k->eps, b->lines);
    if (m->halves) b->fit = v->parts(b->high, b->low, b->sum, b->lines);
}

/* What a band at row r is scaled by. Some columns' scales may not fit in fp16: then those of the others are not used
 * here (put_mixed). */
static vec_affine scaled_by(const room *m, const block *b, int64_t r)
{
    const columns *k = m->k;
    const bool fit = b->fit > 0 && b->fit == b->lines;
    return (vec_affine){ .scale_f16 = { fit ? b->high : NULL, fit ? b->low : NULL },
                         .mean = k->exps ? b->base : k->kind == NORM_LAYER ? b->mean : NULL,
                         .scale = b->sum,
                         .gain = m->gain ? m->gain + r : NULL,
                         .bias = m->bias ? m->bias + r : NULL,
                         .stream = b->stream };
}

static bool mixed(const block *b) { return b->fit > 0 && b->fit < b->lines; }

/* A column has the same bits whatever those beside it are: runs of columns whose scales fit in fp16, or do not. */
static void put_mixed(const room *m, const block *b, int64_t r, int64_t rows)
{
    const columns *k = m->k;
    const int64_t in = exec_size(k->tx), ld = k->inner;
    const vec_affine all = scaled_by(m, b, r);
    for (int64_t i = 0, end; i < b->lines; i = end) {
        const bool fit = b->high[i] != 0;
        for (end = i + 1; end < b->lines && (b->high[end] != 0) == fit; end++) {}
        vec_affine p = all;
        p.scale += i, p.stream = false;
        if (fit) p.scale_f16[0] = b->high + i, p.scale_f16[1] = b->low + i;
        const int64_t at = (r * ld + i) * in;
        k->env->v->affine_rows(b->y + at, k->ty, ld, b->x + at, k->tx, ld, &p, rows, end - i);
    }
}

static void put(const room *m, const block *b, int64_t r, int64_t rows)
{
    if (mixed(b)) {
        put_mixed(m, b, r, rows);
        return;
    }
    /* rows: as many lines as a core waits for at a time, where columns are a line or two; of fp32 there are too many to
     * ask for */
    enum { OWN = 3 * VEC_BAND };
    const columns *k = m->k;
    const vec_kernels *v = k->env->v;
    const int64_t in = exec_size(k->tx), ld = k->inner;
    const unsigned char *x = b->x + r * ld * in;
    void *y = b->y + r * k->inner * exec_size(k->ty);
    vec_affine p = scaled_by(m, b, r);
    p.ahead = ld * in; /* the next row */
    p.own = k->ty == DT_F32 ? 0 : -OWN * k->inner * exec_size(k->ty);
    if (k->exps) v->soft_rows(y, k->ty, k->inner, x, k->tx, ld, &p, rows, b->lines, half(k));
    else v->affine_rows(y, k->ty, k->inner, x, k->tx, ld, &p, rows, b->lines);
}

double norm_wide(norm_kind kind, float eps, dtype t, const void *x, int64_t first, int64_t step, int64_t n,
                 double *mean)
{
    double all = 0, squares = 0;
    for (int64_t k = 0; kind == NORM_LAYER && k < n; k++) all += dtype_load(t, x, first + k * step);
    *mean = all / (double)n;
    for (int64_t k = 0; k < n; k++) {
        const double d = dtype_load(t, x, first + k * step) - *mean;
        squares += d * d;
    }
    return 1 / sqrt((kind == NORM_L2 ? squares : squares / (double)n) + (double)eps);
}

/* Those columns again, as the reference does them: y is not where x is. */
static void put_wide(const room *m, const block *b)
{
    const columns *k = m->k;
    if (!b->wide) return;
    if (b->stream) k->env->v->fence(); /* what is written here comes after it */
    for (int64_t i = 0; i < b->lines; i++) {
        if (b->sum[i] > 0) continue;
        double mean, scale = norm_wide(k->kind, k->eps, k->tx, b->x, i, k->inner, k->n, &mean);
        for (int64_t r = 0; r < k->n; r++) {
            float y = (float)((dtype_load(k->tx, b->x, i + r * k->inner) - mean) * scale);
            if (m->gain) y *= m->gain[r];
            dtype_store(k->ty, b->y, i + r * k->inner, (double)(m->bias ? y + m->bias[r] : y));
        }
    }
}

static float *parameter(const room *m, int which, float *at)
{
    const columns *k = m->k;
    if (k->par[which] < 0) return NULL;
    k->env->v->load(at, k->par_t[which], ctx_mem(m->c, k->par[which]), k->n);
    return at;
}

/* The band of `now` at row r, and that of `done` at row `back`; either may be NULL. */
static void turn(const room *m, const block *now, int64_t r, const block *done, int64_t back)
{
    const columns *k = m->k;
    const vec_kernels *v = k->env->v;
    const int64_t ld = k->inner * exec_size(k->tx), rows = MIN(VEC_BAND, k->n - r);
    const bool both = done && now && k->tx == k->ty && rows == VEC_BAND && back + VEC_BAND <= k->n;
    if (both && !mixed(done) && done->stream && now->lines == done->lines && now->lines % (2 * v->width) == 0) {
        const vec_turns p = { .x = now->x + r * ld,
                              .base = now->base, .mean = now->mean, .sum = now->sum,
                              .part = { m->part[0], m->part[1] },
                              .before = r,
                              .done = done->x + back * ld,
                              .y = done->y + back * ld,
                              .by = scaled_by(m, done, back),
                              .ld = ld };
        v->turns(&p, k->tx, k->exps ? LOOK_EXPS : k->kind == NORM_LAYER ? LOOK_MOMENTS : LOOK_SQUARES, now->lines);
        return;
    }
    if (done) put(m, done, back, MIN(VEC_BAND, k->n - back));
    if (now) look(m, now, r, rows);
}

/* Of a result that passes the caches nothing is found in them another time, so a thread takes whichever block is
 * next: the chain it works on begins and ends once. */
static int64_t next_block(const room *m) { return atomic_fetch_add_explicit(m->next, 1, memory_order_relaxed); }

static void in_turns(const room *m, int64_t task)
{
    const columns *k = m->k;
    const int64_t last = (k->n - 1) / VEC_BAND * VEC_BAND, all = blocks(k),
                  end = k->stream ? all : MIN(all, (task + 1) * k->group);
    int64_t at = k->stream ? next_block(m) : task * k->group;
    block two[2], *done = NULL, *now = &two[0];
    for (int i = 0; done || at < end; i++) {
        now = at < end ? &two[i % 2] : NULL;
        if (now) open_block(m, at, i % 2, now);
        else done->stream = false; /* lines that are fetched to be written fill the time in which nothing is read */
        for (int64_t r = 0; r < k->n; r += VEC_BAND) {
            if (k->exps_kept) exps_band(m, now, done, r);
            else turn(m, now, r, done, last - r);
        }
        if (done) put_wide(m, done);
        if (now) settle(m, now);
        done = now;
        if (now) at = k->stream ? next_block(m) : at + 1;
    }
}

/* May rows be multiplied in fp16? */
static bool halves(const room *m)
{
    const columns *k = m->k;
    if (!k->env->v->parts || !half(k) || k->exps || k->kind == NORM_LAYER || m->bias) return false;
    return !m->gain || (k->par_t[0] == DT_F16 && k->env->v->largest(m->gain, k->n) < INFINITY);
}

static void some_blocks(void *ctx, int64_t task, int thread)
{
    room m = *(const room *)ctx;
    const columns *k = m.k;
    float *mem = (float *)(void *)((char *)m.c->work + (size_t)thread * k->each);
    m.gain = parameter(&m, 0, mem), m.bias = parameter(&m, 1, mem + k->n);
    m.halves = halves(&m);
    m.sums = mem + ROUND_UP(COLUMNS_PARAMS * k->n, (int64_t)ALIGNED);
    m.part[0] = m.sums + 2 * SUMS * k->block, m.part[1] = m.part[0] + k->block;
    m.exps = m.sums + ROUND_UP((2 * SUMS + PARTS) * k->block, (int64_t)ALIGNED);
    in_turns(&m, task);
    if (k->stream) k->env->v->fence();
}

/* A block of exps is one that fits the second cache. Any other has rows as long as can be, since every one is
 * another page; enough tasks for all threads. */
void columns_plan(columns *k)
{
    enum { WIDE = 2 << 12 }; /* bytes of a row: two pages */
    const exec_env *e = k->env;
    const int64_t many = 4 * e->threads, in = exec_size(k->tx), plane = k->n * k->inner * in, steps = COLUMN_STEP;
    const int64_t of_exps = bands(k) * VEC_KEPT(e->v, steps) * (int64_t)sizeof(float); /* of so many columns */
    k->exps_kept = k->exps && e->v->soft_band && k->tx == k->ty && of_exps <= e->l2 / 2;
    const int64_t least = k->exps_kept ? steps : WIDE / in,
                  fit = MAX(e->l2 / 2 / (k->exps_kept ? of_exps : k->n * in * steps) * steps, least);
    int64_t parts = plane <= 2 * e->l2 && !k->exps_kept ? 1 : (k->inner + fit - 1) / fit;
    while (k->outer * parts < many && (k->outer * parts < e->threads || k->inner / (parts + 1) >= least) &&
           k->inner / (parts + 1) >= steps)
        parts++;
    k->block = MIN(k->inner, ROUND_UP((k->inner + parts - 1) / parts, steps));
    k->per_outer = (k->inner + k->block - 1) / k->block;
    k->group = MAX(blocks(k) / many, 1);
    k->tasks = k->stream ? MIN(blocks(k), e->threads) : (blocks(k) + k->group - 1) / k->group;
    const int64_t floats = ROUND_UP(COLUMNS_PARAMS * k->n, (int64_t)ALIGNED) +
                           ROUND_UP((2 * SUMS + PARTS) * k->block, (int64_t)ALIGNED) +
                           (k->exps_kept ? bands(k) * VEC_KEPT(e->v, k->block) : 0);
    k->each = ROUND_UP((size_t)floats * sizeof(float), (size_t)VEC_LINE);
}

void columns_run(const run_ctx *c, const columns *k)
{
    enum { FEW = 1 << 14 }; /* elements that take about as long as waking other threads */
    _Atomic int64_t next = 0;
    room m = { .c = c, .k = k, .next = &next };
    pool_run(k->outer * k->n * k->inner <= FEW ? NULL : c->pool, some_blocks, &m, k->tasks);
}
