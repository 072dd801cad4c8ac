/* test_pool.c: every task runs once, whatever the size, the nesting and the callers; thread numbers are private;
 * between regions nobody spins. */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "t.h"

#include "base/pool.h"

enum { MOST = 2000 };

typedef struct {
    _Atomic int ran[MOST];
    _Atomic int busy[64]; /* by thread: more than one at a time is a broken promise */
    _Atomic int clashes, inner;
    pool *p;
} tally;

static void count(void *ctx, int64_t task, int thread)
{
    tally *t = ctx;
    if (atomic_fetch_add(&t->busy[thread], 1)) atomic_fetch_add(&t->clashes, 1);
    atomic_fetch_add(&t->ran[task], 1);
    for (volatile int i = 0; i < 50; i++) {}
    atomic_fetch_sub(&t->busy[thread], 1);
}

static void check(tally *t, int64_t n)
{
    for (int64_t i = 0; i < n; i++) assert_int_equal(atomic_load(&t->ran[i]), 1);
    for (int64_t i = n; i < MOST; i++) assert_int_equal(atomic_load(&t->ran[i]), 0);
    assert_int_equal(atomic_load(&t->clashes), 0);
}

static void every_task_once(void **state)
{
    (void)state;
    static const int threads[] = { 1, 2, 3, 8 };
    static const int64_t counts[] = { 0, 1, 2, 7, 64, MOST };
    diag d = { 0 };
    for (size_t i = 0; i < COUNT(threads); i++) {
        pool *p;
        assert_ok(pool_make(&p, threads[i], &d), d);
        assert_int_equal(pool_threads(p), threads[i]);
        for (int rep = 0; rep < 40; rep++)
            for (size_t c = 0; c < COUNT(counts); c++) {
                static tally t;
                memset(&t, 0, sizeof t);
                bool hold = rep & 1;
                if (hold) pool_enter(p);
                pool_run(p, count, &t, counts[c]);
                if (hold) pool_leave(p);
                check(&t, counts[c]);
            }
        pool_free(p);
    }
}

static void inner_task(void *ctx, int64_t task, int thread)
{
    tally *t = ctx;
    (void)task;
    assert_int_equal(thread, 0);
    atomic_fetch_add(&t->inner, 1);
}

static void outer_task(void *ctx, int64_t task, int thread)
{
    tally *t = ctx;
    count(ctx, task, thread);
    pool_run(t->p, inner_task, t, 5);
}

static void nested_runs_inline(void **state)
{
    (void)state;
    diag d = { 0 };
    static tally t;
    assert_ok(pool_make(&t.p, 4, &d), d);
    pool_run(t.p, outer_task, &t, 100);
    check(&t, 100);
    assert_int_equal(atomic_load(&t.inner), 500);
    pool_free(t.p);
}

static tally many[3];

static void *caller(void *arg)
{
    tally *t = arg;
    for (int rep = 0; rep < 200; rep++) pool_run(t->p, count, t, 10);
    return NULL;
}

/* Callers that find the pool taken work inline: thread number 0 is then theirs alone within their own region. */
static void several_callers(void **state)
{
    (void)state;
    diag d = { 0 };
    pool *p;
    pthread_t id[3];
    assert_ok(pool_make(&p, 3, &d), d);
    for (int i = 0; i < 3; i++) {
        many[i].p = p;
        assert_int_equal(pthread_create(&id[i], NULL, caller, &many[i]), 0);
    }
    for (int i = 0; i < 3; i++) pthread_join(id[i], NULL);
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 10; k++) assert_int_equal(atomic_load(&many[i].ran[k]), 200);
        assert_int_equal(atomic_load(&many[i].clashes), 0);
    }
    pool_free(p);
}

/* Workers compute in the mode of whoever calls them, whatever the call before was made in. */
static void halve(void *ctx, int64_t task, int thread)
{
    volatile float *x = ctx;
    (void)thread;
    x[task] = x[task] * 0.5f;
    for (volatile int i = 0; i < 2000; i++) {} /* so that others come, too */
}

static void tasks_have_the_mode_of_the_caller(void **state)
{
    (void)state;
    enum { TASKS = 400 };
    static float x[TASKS];
    pool *p;
    diag d = { 0 };
    const fp_mode was = fp_mode_get(), now = fp_mode_flushing(was);
    assert_ok(pool_make(&p, 4, &d), d);
    for (int round = 0; round < 6; round++) {
        const bool flush = round % 2 && can_flush();
        for (int i = 0; i < TASKS; i++) x[i] = 0x1p-126f;
        if (flush) fp_mode_set(now);
        pool_run(p, halve, x, TASKS);
        fp_mode_set(was);
        for (int i = 0; i < TASKS; i++)
            if ((x[i] == 0) != flush) fail_msg("round %d, task %d: %g", round, i, (double)x[i]);
    }
    pool_free(p);
}

static void bad_sizes(void **state)
{
    (void)state;
    pool *p;
    diag d = { 0 };
    assert_int_equal(pool_make(&p, -1, &d), AN_INPUT);
    assert_null(p);
    assert_non_null(strstr(d.msg, "-1"));
    diag e = { 0 };
    setenv("AN_THREADS", "3", 1);
    assert_ok(pool_make(&p, 0, &e), e);
    assert_int_equal(pool_threads(p), 3);
    pool_free(p);
    static const char *const wrong[] = { "abc", "-5", "2x", "1025", "99999999999999999999", " 2" };
    for (size_t i = 0; i < COUNT(wrong); i++) {
        diag w = { 0 };
        setenv("AN_THREADS", wrong[i], 1);
        assert_int_equal(pool_make(&p, 0, &w), AN_INPUT);
        assert_null(p);
        assert_non_null(strstr(w.msg, wrong[i]));
        assert_ok(pool_make(&p, 2, &e), e); /* it is not asked when the number is given */
        pool_free(p);
    }
    setenv("AN_THREADS", "", 1);
    assert_ok(pool_make(&p, 0, &e), e);
    pool_free(p);
    unsetenv("AN_THREADS");
    assert_int_equal(pool_threads(NULL), 1);
    pool_free(NULL);
    static tally t;
    pool_run(NULL, count, &t, 9);
    check(&t, 9);
}

static double cpu_ms(void) /* that all threads of this process used */
{
    struct timespec t;
    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t), 0);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Workers that wait by spinning would use a processor each, or all there are: a busy machine makes them seem better,
 * never sleepers worse. */
static void sleeps_when_idle(void **s)
{
    (void)s;
    enum { PAUSE_MS = 300 };
    for (int inside = 0; inside < 2; inside++) {
        static tally t;
        pool *p;
        diag d = { 0 };
        t = (tally){ .p = NULL };
        assert_ok(pool_make(&p, 4, &d), d);
        if (inside) pool_enter(p);
        pool_run(p, count, &t, MOST);
        double before = cpu_ms();
        nanosleep(&(struct timespec){ .tv_nsec = PAUSE_MS * 1000000L }, NULL);
        double used = cpu_ms() - before;
        if (inside) pool_leave(p);
        pool_free(p);
        if (used > PAUSE_MS / 6.0)
            fail_msg("%s: %.1f ms of processor time in a pause of %d ms",
                     inside ? "inside a region" : "between regions", used, PAUSE_MS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_task_once),
        cmocka_unit_test(sleeps_when_idle),
        cmocka_unit_test(nested_runs_inline),
        cmocka_unit_test(several_callers),
        cmocka_unit_test(tasks_have_the_mode_of_the_caller),
        cmocka_unit_test(bad_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
