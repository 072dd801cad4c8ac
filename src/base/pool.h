/* pool.h: threads that share out the tasks of a region and sleep between regions.
 *
 * Of tasks 0..n-1 thread t of T begins with those from n·t/T on and helps the others when it is done with its share:
 * cut an array into tasks in order, and each thread finds its part of it in its cache the next time. Which thread
 * runs a task is not promised, so a task must not depend on it: then results are the same for every thread count.
 * `thread` is 0..pool_threads()-1, unique among tasks that run at the same moment: use it to pick private scratch,
 * nothing else. A pool_run inside a task, or while another thread's region is running, runs its tasks inline (thread
 * 0): give it its own scratch. A NULL pool runs inline as well. Tasks have the caller's floating-point mode. */
#ifndef BASE_POOL_H
#define BASE_POOL_H

#include "base/base.h"

typedef struct pool pool;
typedef void pool_fn(void *ctx, int64_t task, int thread);

enum { POOL_MAX_THREADS = 1024 }; /* a typing error should not make a million threads */

/* n_threads counts the caller; 0: AN_THREADS, which must be a number of threads when it is there, or else the online
 * CPUs. When the system refuses a thread the pool is smaller, never absent: pool_threads tells. */
an_status pool_make(pool **out, int n_threads, diag *d) MUST_CHECK;
void pool_free(pool *p); /* no region may be running; NULL is fine */
int pool_threads(const pool *p); /* 1 for NULL */

void pool_run(pool *p, pool_fn *fn, void *ctx, int64_t n_tasks); /* returns when all tasks are done */

/* Between enter and leave several pool_run calls form one region: workers wait for the next call by a bounded spin
 * before they sleep, so it starts in about a microsecond. Nests. Outside they spin for a shorter time, some tens of
 * microseconds: what lies between one dispatch and the next. */
void pool_enter(pool *p);
void pool_leave(pool *p);

#endif
