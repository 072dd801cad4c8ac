/* pool.c: a thread pool. In: a function and a task count.  Out: every task done, by whichever threads came.
 *
 * One word, `state`, says which job is open: epoch << 1 | open. A worker announces itself in `active` before it
 * looks at the job and leaves `active` when no task is left; the caller works too, closes the state, then waits for
 * active == 0. Both sides write their own word before reading the other's, in sequential consistency, so a worker
 * that wakes late sees "closed" and a job's fields are never rewritten under a reader. No worker has to arrive: the
 * caller alone can finish the job, so a busy machine costs speed and never progress.
 *
 * Tasks are cut into one queue per thread. A thread empties its own, then helps at the next ones: regions that cut
 * the same memory the same way find it in the caches of the same cores, which is several times faster than fetching
 * it from another's. */
#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fpmode.h"
#include "base/pool.h"

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#define RELAX() _mm_pause()
#elif defined(__aarch64__)
#define RELAX() __asm__ volatile("isb" ::: "memory") /* why: yield is a no-op on most cores; isb costs about a pause */
#else
#define RELAX() ((void)0)
#endif

enum {
    SPINS = 1500, /* 15 to 90 us: about what it costs to sleep and be woken again */
    REGION = 4,   /* as many times that inside a region: work that one thread does alone lies between two runs */
    LINE = 64     /* bytes that move between caches together */
};

typedef struct {
    alignas(LINE) _Atomic int64_t next; /* of its share; past `end` when it is empty */
    int64_t end;
} queue;

struct pool {
    alignas(LINE) _Atomic uint64_t state;
    pool_fn *fn; /* fn, ctx, mode, n_queues, queues: written while the state is closed and nobody is active */
    void *ctx;
    fp_mode mode; /* the caller's */
    int n_queues;
    queue *queues; /* n_threads */
    alignas(LINE) _Atomic int active;
    alignas(LINE) _Atomic int sleepers;
    _Atomic int hold, caller_waits;
    _Atomic bool quit;
    pthread_mutex_t owner; /* held by the thread whose region runs */
    pthread_mutex_t mu;
    pthread_cond_t wake, idle;
    int n_threads;
    struct worker {
        pool *p;
        pthread_t id;
        int thread;
    } *workers; /* n_threads - 1 */
};

static _Thread_local bool in_task;

static void work(pool *p, int thread)
{
    bool was = in_task;
    in_task = true;
    for (int i = 0, n = p->n_queues; i < n; i++) {
        queue *q = &p->queues[(thread + i) % n];
        /* asked first: an empty queue is not written to */
        while (atomic_load_explicit(&q->next, memory_order_relaxed) < q->end) {
            int64_t t = atomic_fetch_add_explicit(&q->next, 1, memory_order_relaxed);
            if (t < q->end) p->fn(p->ctx, t, thread);
        }
    }
    in_task = was;
}

static bool has_work(pool *p, uint64_t seen)
{
    uint64_t s = atomic_load(&p->state);
    return (s & 1) && s != seen;
}

static void wait_work(pool *p, uint64_t seen)
{
    for (int i = 0; i < SPINS || (i < REGION * SPINS && atomic_load_explicit(&p->hold, memory_order_relaxed) > 0);
         i++) {
        if (has_work(p, seen) || atomic_load_explicit(&p->quit, memory_order_relaxed)) return;
        RELAX();
    }
    pthread_mutex_lock(&p->mu);
    atomic_fetch_add(&p->sleepers, 1);
    while (!atomic_load(&p->quit) && !has_work(p, seen)) pthread_cond_wait(&p->wake, &p->mu);
    atomic_fetch_sub(&p->sleepers, 1);
    pthread_mutex_unlock(&p->mu);
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    pool *p = w->p;
    uint64_t seen = 0;
    while (!atomic_load(&p->quit)) {
        wait_work(p, seen);
        atomic_fetch_add(&p->active, 1);
        uint64_t s = atomic_load(&p->state);
        if ((s & 1) && s != seen) {
            seen = s;
            if (fp_mode_get() != p->mode) fp_mode_set(p->mode);
            work(p, w->thread);
        }
        if (atomic_fetch_sub(&p->active, 1) == 1 && atomic_load(&p->caller_waits)) {
            pthread_mutex_lock(&p->mu);
            pthread_cond_signal(&p->idle);
            pthread_mutex_unlock(&p->mu);
        }
    }
    return NULL;
}

static void wait_idle(pool *p)
{
    for (int i = 0; i < SPINS; i++) {
        if (!atomic_load(&p->active)) return;
        RELAX();
    }
    pthread_mutex_lock(&p->mu);
    atomic_store(&p->caller_waits, 1);
    while (atomic_load(&p->active)) pthread_cond_wait(&p->idle, &p->mu);
    atomic_store(&p->caller_waits, 0);
    pthread_mutex_unlock(&p->mu);
}

void pool_enter(pool *p)
{
    if (p) atomic_fetch_add_explicit(&p->hold, 1, memory_order_relaxed);
}

void pool_leave(pool *p)
{
    if (p) atomic_fetch_sub_explicit(&p->hold, 1, memory_order_relaxed);
}

void pool_run(pool *p, pool_fn *fn, void *ctx, int64_t n_tasks)
{
    if (!p || p->n_threads == 1 || n_tasks <= 1 || in_task || pthread_mutex_trylock(&p->owner)) {
        for (int64_t t = 0; t < n_tasks; t++) fn(ctx, t, 0);
        return;
    }
    p->fn = fn;
    p->ctx = ctx;
    p->mode = fp_mode_get();
    int n = p->n_queues = (int)MIN(n_tasks, p->n_threads);
    for (int i = 0; i < n; i++) {
        atomic_store_explicit(&p->queues[i].next, n_tasks / n * i + MIN(i, n_tasks % n), memory_order_relaxed);
        p->queues[i].end = n_tasks / n * (i + 1) + MIN(i + 1, n_tasks % n);
    }
    uint64_t open = (atomic_load_explicit(&p->state, memory_order_relaxed) | 1) + 2;
    atomic_store(&p->state, open);
    if (atomic_load(&p->sleepers)) {
        pthread_mutex_lock(&p->mu);
        pthread_cond_broadcast(&p->wake);
        pthread_mutex_unlock(&p->mu);
    }
    work(p, 0);
    atomic_store(&p->state, open - 1);
    wait_idle(p);
    pthread_mutex_unlock(&p->owner);
}

static an_status default_threads(int *out, diag *d)
{
    const char *s = getenv("AN_THREADS");
    char *end;
    long n = s && *s ? strtol(s, &end, 10) : 0;
    if (s && *s && (*s < '0' || *s > '9' || *end || n > POOL_MAX_THREADS))
        return diag_fail(d, AN_INPUT, NOWHERE, "AN_THREADS=%.40s: a whole number of 0 (one per CPU) to %d is wanted", s,
                         POOL_MAX_THREADS);
    if (n < 1) n = sysconf(_SC_NPROCESSORS_ONLN);
    *out = (int)MIN(MAX(n, 1), POOL_MAX_THREADS);
    return AN_OK;
}

an_status pool_make(pool **out, int n_threads, diag *d)
{
    *out = NULL;
    if (n_threads < 0 || n_threads > POOL_MAX_THREADS)
        return diag_fail(d, AN_INPUT, NOWHERE, "%d threads asked for; 0 (automatic) to %d are possible", n_threads,
                         POOL_MAX_THREADS);
    if (n_threads == 0) TRY(default_threads(&n_threads, d));
    pool *p = aligned_alloc(LINE, sizeof *p);
    if (!p) return diag_nomem(d);
    memset(p, 0, sizeof *p);
    p->workers = calloc((size_t)n_threads, sizeof *p->workers);
    p->queues = aligned_alloc(LINE, (size_t)n_threads * sizeof *p->queues);
    if (!p->workers || !p->queues) {
        free(p->workers);
        free(p->queues);
        free(p);
        return diag_nomem(d);
    }
    memset(p->queues, 0, (size_t)n_threads * sizeof *p->queues);
    pthread_mutex_init(&p->owner, NULL);
    pthread_mutex_init(&p->mu, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->idle, NULL);
    int started = 1;
    for (; started < n_threads; started++) {
        struct worker *w = &p->workers[started - 1];
        w->p = p;
        w->thread = started;
        if (pthread_create(&w->id, NULL, worker_main, w)) break;
    }
    p->n_threads = started;
    *out = p;
    return AN_OK;
}

void pool_free(pool *p)
{
    if (!p) return;
    atomic_store(&p->quit, true);
    pthread_mutex_lock(&p->mu);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->mu);
    for (int i = 0; i + 1 < p->n_threads; i++) pthread_join(p->workers[i].id, NULL);
    pthread_cond_destroy(&p->idle);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->mu);
    pthread_mutex_destroy(&p->owner);
    free(p->workers);
    free(p->queues);
    free(p);
}

int pool_threads(const pool *p) { return p ? p->n_threads : 1; }
