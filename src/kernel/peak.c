/* peak.c: what this CPU can do, measured in this run, so that a bench can state fractions. In: a kernel row or
 * nothing. Out: rates of short runs. A machine that others share swings by half within a second, so a rate is taken
 * again and again, in turns with what is compared with it. */
#include <stdlib.h>

#include "base/big.h"
#include "kernel/gemm_pack_int.h"
#include "kernel/vector.h"

enum { MOST_THREADS = 64 };
static const double LEAST_NS = 2e5; /* so long that starting the threads does not count */

struct peak_meter {
    pool *pool;
    int threads;
    pool_fn *task;
    int64_t passes; /* of a run */
    double work;    /* of a pass */
    char *mem;      /* what malloc gave */
    /* products */
    const gemm_kernel *g;
    char *at; /* per thread: panel of A, panel of B, sums */
    size_t stride, b_at, acc_at;
    int64_t k;
    /* moves */
    char *to;
    size_t each, block; /* of a thread; what is read before any of it is copied */
    const gemm_vec *vec;
    const vec_kernels *past; /* copies: the stores that pass the caches; NULL: memcpy's */
    double sums[MOST_THREADS];
};

/* Sums begin at zero: those that the tile before has just stored would be waited for. */
static void inner_task(void *ctx, int64_t task, int thread)
{
    const peak_meter *x = ctx;
    char *m = x->at + (size_t)task * x->stride;
    (void)thread;
    tile_job t = { .k = x->k, .a = m, .b = m + x->b_at, .b_step = x->g->nr * pk_bytes(x->g->b_pk) * x->g->b_kr,
                   .to = m + x->acc_at, .to_ld = x->g->nr * 4, .rows = x->g->mr, .cols = x->g->nr,
                   .ahead = { { m, 0 }, { m, 0 } } };
    if (x->g->begin) x->g->begin();
    for (int64_t i = 0; i < x->passes; i++) x->g->tile(&t);
    if (x->g->end) x->g->end();
}

static void read_task(void *ctx, int64_t task, int thread)
{
    peak_meter *x = ctx;
    (void)thread;
    for (int64_t i = 0; i < x->passes; i++) x->sums[task] += x->vec->read(x->at + (size_t)task * x->each, x->each);
}

static void copy_task(void *ctx, int64_t task, int thread)
{
    const peak_meter *x = ctx;
    char *to = x->to + (size_t)task * x->each, *from = x->at + (size_t)task * x->each;
    (void)thread;
    for (int64_t i = 0; i < x->passes; i++)
        if (x->past) x->past->stream(to, DT_F32, (const float *)(const void *)from, (int64_t)(x->each / sizeof(float)));
        else memcpy(to, from, x->each);
    if (x->past) x->past->fence();
}

/* What is known of a block only when all of it was read: copied from its end up, since that was read last. */
static void twice_task(void *ctx, int64_t task, int thread)
{
    enum { PIECE = 1 << 15 };
    peak_meter *x = ctx;
    char *to = x->to + (size_t)task * x->each, *from = x->at + (size_t)task * x->each;
    const vec_kernels *v = vec_pick(isa_cpu());
    (void)thread;
    for (int64_t i = 0; i < x->passes; i++)
        for (size_t at = 0; at < x->each; at += x->block) {
            size_t left = MIN(x->block, x->each - at);
            x->sums[task] += x->vec->read(from + at, left);
            while (left) {
                const size_t n = (left - 1) % PIECE + 1;
                left -= n;
                v->stream(to + at + left, DT_F32, (const float *)(const void *)(from + at + left),
                          (int64_t)(n / sizeof(float)));
            }
        }
    v->fence();
}

static double run_ns(peak_meter *x)
{
    uint64_t from = clock_ns();
    pool_run(x->threads > 1 ? x->pool : NULL, x->task, x, x->threads);
    return (double)(clock_ns() - from);
}

double peak_rate(peak_meter *x)
{
    pool_enter(x->pool);
    double ns = run_ns(x);
    pool_leave(x->pool);
    return x->work * (double)x->passes * x->threads / ns;
}

/* Ready to run: memory is touched, runs are long enough. */
static peak_meter *settled(peak_meter *x)
{
    enum { MOST_PASSES = 1 << 24 };
    pool_enter(x->pool);
    /* twice: a run that waits for a thread to wake is not long, and passes that fill it would measure the waking */
    for (x->passes = 1; (run_ns(x) < LEAST_NS || run_ns(x) < LEAST_NS) && x->passes < MOST_PASSES;) x->passes *= 2;
    pool_leave(x->pool);
    return x;
}

static peak_meter *peak_new(pool *p, int n_threads, pool_fn *task)
{
    peak_meter *x = calloc(1, sizeof *x);
    if (x) *x = (peak_meter){ .pool = p, .threads = MIN(MAX(n_threads, 1), MOST_THREADS), .task = task };
    return x;
}

void peak_free(peak_meter *x)
{
    if (!x) return;
    free(x->mem);
    free(x);
}

peak_meter *peak_gemm(const gemm_kernel *g, pool *p, int n_threads)
{
    enum { PAGE = 4096 };
    peak_meter *x = peak_new(p, n_threads, inner_task);
    if (!x) return NULL;
    /* Both panels in five eighths of L1: as long as can be, since every tile begins and ends, with room for the sums
     * and whatever else runs. */
    int64_t per_k = g->mr * (g->expand ? 4 : pk_bytes(g->a_pk)) + g->nr * pk_bytes(g->b_pk);
    x->g = g;
    x->k = MAX((int64_t)cpu_l1_bytes() / 8 * 5 / per_k / g->k_align * g->k_align, g->k_align);
    x->b_at = ROUND_UP((size_t)(x->k * g->mr * 4), 64);
    x->acc_at = x->b_at + ROUND_UP((size_t)(x->k * g->nr * 4), 64);
    x->stride = ROUND_UP(x->acc_at + (size_t)(g->mr * g->nr * 4), PAGE) + PAGE;
    x->work = 2.0 * (double)(x->k * g->mr * g->nr);
    x->mem = calloc(1, x->stride * (size_t)x->threads + PAGE);
    if (!x->mem) return peak_free(x), NULL;
    x->at = x->mem + (PAGE - (uintptr_t)x->mem % PAGE);
    return settled(x);
}

/* memcpy guesses from the size of one call what passes the caches; which way is faster is found out. */
static peak_meter *best_copy(peak_meter *x)
{
    enum { ROUNDS = 5 };
    const vec_kernels *ways[] = { NULL, vec_pick(isa_cpu()) };
    double most[COUNT(ways)] = { 0 };
    for (int i = 0; i < ROUNDS; i++)
        for (size_t k = 0; k < COUNT(ways); k++) {
            x->past = ways[k];
            double r = peak_rate(x);
            most[k] = MAX(most[k], r);
        }
    x->past = ways[most[1] > most[0]];
    return x;
}

static peak_meter *mover(pool *p, int n_threads, size_t bytes, size_t block, pool_fn *task)
{
    peak_meter *x = peak_new(p, n_threads, task);
    const int places = task == read_task ? 1 : 2;
    if (!x) return NULL;
    x->each = MAX(bytes / (size_t)x->threads / 64 * 64, 64);
    x->block = MAX(block / 64 * 64, 64);
    size_t all = x->each * (size_t)x->threads;
    x->work = (double)x->each * places;
    x->vec = gemm_pick(GEMM_F32, isa_cpu())->vec;
    x->mem = big_alloc(64, all * (size_t)places);
    if (!x->mem) return peak_free(x), NULL;
    memset(x->mem, 1, all * (size_t)places);
    x->at = x->mem, x->to = x->mem + (size_t)(places - 1) * all;
    return settled(x);
}

peak_meter *peak_read(pool *p, int n_threads, size_t bytes) { return mover(p, n_threads, bytes, bytes, read_task); }
peak_meter *peak_twice(pool *p, int n_threads, size_t bytes, size_t block)
{
    return mover(p, n_threads, bytes, block, twice_task);
}

peak_meter *peak_copy(pool *p, int n_threads, size_t bytes)
{
    peak_meter *x = mover(p, n_threads, bytes, bytes, copy_task);
    return x ? best_copy(x) : NULL;
}
