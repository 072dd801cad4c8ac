/* peak.c: what this CPU can do, measured in this run, so that a bench can state fractions. In: a kernel row or nothing.
 * Out: the best of several short runs: other load only ever makes a run slower. */
#include <stdlib.h>

#include "kernel/gemm_pack_int.h"

enum { ROUNDS = 60, MOST_THREADS = 64 };

typedef struct {
    const gemm_kernel *g;
    char *mem; /* per thread: panel of A, panel of B, sums */
    size_t stride, b_at, acc_at;
    int64_t k, reps;
} inner;

static void inner_task(void *ctx, int64_t task, int thread)
{
    const inner *x = ctx;
    char *m = x->mem + (size_t)task * x->stride;
    (void)thread;
    tile_job t = { .k = x->k, .a = m, .b = m + x->b_at, .from = m + x->acc_at, .to = m + x->acc_at, .to_ld = x->g->nr * 4,
                   .rows = x->g->mr, .cols = x->g->nr, .ahead = { { m, 0 }, { m, 0 } } };
    if (x->g->begin) x->g->begin();
    for (int64_t i = 0; i < x->reps; i++) x->g->tile(&t);
    if (x->g->end) x->g->end();
}

double peak_gemm_gflops(const gemm_kernel *g, pool *p, int n_threads)
{
    n_threads = MIN(MAX(n_threads, 1), MOST_THREADS);
    /* Both panels together in about 20 KB: L1 with room for the sums and whatever else runs. */
    int64_t per_k = g->mr * (g->expand ? 4 : pk_bytes(g->a_pk)) + g->nr * pk_bytes(g->b_pk);
    inner x = { .g = g, .k = MAX((20 << 10) / per_k / g->k_align * g->k_align, g->k_align) };
    x.b_at = ROUND_UP((size_t)(x.k * g->mr * 4), 64);
    x.acc_at = x.b_at + ROUND_UP((size_t)(x.k * g->nr * 4), 64);
    x.stride = ROUND_UP(x.acc_at + (size_t)(g->mr * g->nr * 4), 4096) + 4096;
    void *raw = malloc(x.stride * (size_t)n_threads + 4096);
    if (!raw) return 0;
    memset(raw, 0, x.stride * (size_t)n_threads + 4096);
    x.mem = (char *)raw + (4096 - (uintptr_t)raw % 4096);
    double best = 0, per_rep = 2.0 * (double)(x.k * g->mr * g->nr) * n_threads;
    x.reps = 8;
    pool_enter(p);
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t t = clock_ns();
        pool_run(n_threads > 1 ? p : NULL, inner_task, &x, n_threads);
        double ns = (double)(clock_ns() - t);
        if (ns < 2e5 && i < 16) { /* long enough that starting the threads does not count */
            x.reps *= 2;
            continue;
        }
        best = MAX(best, per_rep * (double)x.reps / ns);
    }
    pool_leave(p);
    free(raw);
    return best;
}

typedef struct {
    char *from, *to;
    size_t each;
    const gemm_vec *vec;
    double sums[MOST_THREADS];
} moving;

static void read_task(void *ctx, int64_t task, int thread)
{
    moving *m = ctx;
    (void)thread;
    m->sums[task] += m->vec->read(m->from + (size_t)task * m->each, m->each);
}

static void copy_task(void *ctx, int64_t task, int thread)
{
    moving *m = ctx;
    (void)thread;
    memcpy(m->to + (size_t)task * m->each, m->from + (size_t)task * m->each, m->each);
}

/* Runs of at least LEAST_NS each: over a small buffer several passes make one. */
static double move_gbs(pool_fn *fn, bool copy, pool *p, int n_threads, size_t all)
{
    enum { RUNS = 7, LEAST_NS = 200000, MOST_PASSES = 4096 };
    n_threads = MIN(MAX(n_threads, 1), MOST_THREADS);
    moving m = { .each = all / (size_t)n_threads / 4096 * 4096, .vec = gemm_pick(GEMM_F32, isa_cpu())->vec };
    if (!m.each) return 0;
    m.from = malloc(all);
    m.to = copy ? malloc(all) : NULL;
    double best = 0;
    if (m.from && (m.to || !copy)) {
        memset(m.from, 1, all);
        if (copy) memset(m.to, 2, all);
        pool_enter(p);
        for (int i = 0, passes = 1; i < RUNS;) {
            uint64_t t = clock_ns();
            for (int k = 0; k < passes; k++) pool_run(n_threads > 1 ? p : NULL, fn, &m, n_threads);
            double ns = (double)(clock_ns() - t);
            if (ns < LEAST_NS && passes < MOST_PASSES) {
                passes *= 2;
                continue;
            }
            best = MAX(best, (double)(m.each * (size_t)n_threads) * passes * (copy ? 2 : 1) / ns);
            i++;
        }
        pool_leave(p);
    }
    free(m.from);
    free(m.to);
    return best;
}

enum { FAR_BYTES = 256 << 20 };

double peak_read_gbs(pool *p, int n_threads) { return move_gbs(read_task, false, p, n_threads, FAR_BYTES); }
double peak_copy_gbs(pool *p, int n_threads) { return move_gbs(copy_task, true, p, n_threads, FAR_BYTES); }
double peak_read_again_gbs(pool *p, int n_threads, size_t bytes) { return move_gbs(read_task, false, p, n_threads, bytes); }
