/* host_queue.c: work of the host that runs beside the device: one thread, jobs in the order they were pushed.
 * In: functions with a number.  Out: their effects, all of them there when host_queue_drain returns. */
#include <pthread.h>
#include <stdlib.h>

#include "train/pipe_host.h"

enum { ROOM = 256 }; /* jobs waiting; a pusher that finds no room waits */

typedef struct {
    host_job *fn;
    void *user;
    int64_t arg;
} job;

struct host_queue {
    pthread_mutex_t mu;
    pthread_cond_t changed;
    pthread_t thread;
    bool has_thread, stop, busy;
    job at[ROOM];
    int head, n;
    uint64_t pushed, done;
};

static void *work(void *user)
{
    host_queue *q = user;
    pthread_mutex_lock(&q->mu);
    for (;;) {
        while (!q->n && !q->stop) pthread_cond_wait(&q->changed, &q->mu);
        if (!q->n) break;
        job j = q->at[q->head];
        q->head = (q->head + 1) % ROOM;
        q->n--;
        q->busy = true;
        pthread_mutex_unlock(&q->mu);
        j.fn(j.user, j.arg);
        pthread_mutex_lock(&q->mu);
        q->busy = false;
        q->done++;
        pthread_cond_broadcast(&q->changed);
    }
    pthread_mutex_unlock(&q->mu);
    return NULL;
}

an_status host_queue_make(host_queue **out, diag *d)
{
    host_queue *q = *out = calloc(1, sizeof *q);
    if (!q) return diag_nomem(d);
    pthread_mutex_init(&q->mu, NULL);
    pthread_cond_init(&q->changed, NULL);
    q->has_thread = !pthread_create(&q->thread, NULL, work, q); /* without one nothing is lost but the overlap */
    return AN_OK;
}

void host_queue_free(host_queue *q)
{
    if (!q) return;
    pthread_mutex_lock(&q->mu);
    q->stop = true;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->mu);
    if (q->has_thread) pthread_join(q->thread, NULL);
    pthread_cond_destroy(&q->changed);
    pthread_mutex_destroy(&q->mu);
    free(q);
}

uint64_t host_queue_push(host_queue *q, host_job *fn, void *user, int64_t arg)
{
    if (!q->has_thread) return fn(user, arg), q->done = ++q->pushed;
    pthread_mutex_lock(&q->mu);
    while (q->n == ROOM) pthread_cond_wait(&q->changed, &q->mu);
    q->at[(q->head + q->n++) % ROOM] = (job){ fn, user, arg };
    uint64_t ticket = ++q->pushed;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->mu);
    return ticket;
}

bool host_queue_reach(host_queue *q, uint64_t ticket)
{
    pthread_mutex_lock(&q->mu);
    bool waited = q->done < ticket;
    while (q->done < ticket) pthread_cond_wait(&q->changed, &q->mu);
    pthread_mutex_unlock(&q->mu);
    return waited;
}

bool host_queue_wait(host_queue *q, int left)
{
    pthread_mutex_lock(&q->mu);
    bool waited = q->n + q->busy > left;
    while (q->n + q->busy > left) pthread_cond_wait(&q->changed, &q->mu);
    pthread_mutex_unlock(&q->mu);
    return waited;
}

bool host_queue_drain(host_queue *q) { return host_queue_wait(q, 0); }
