/* queue.c: requests, and the one dispatch in flight. In: bindings of a program's ports to surfaces.  Out: dispatches
 * in submission order, each judged as the engine judges it.
 *
 * Whoever waits runs what is next, its own dispatch or an earlier one; a worker thread, started with the first
 * submission, does so when nobody waits. A caller that submits and waits at once therefore never pays for a
 * hand-over. */
#include <stdlib.h>

#include "device/device_int.h"

/* ---- running ---- */

static an_status dispatch(dev_request *r, diag *d)
{
    dev_program *p = r->p;
    device *dev = r->dev;
    int64_t row = dev->lim.row_bytes;
    if (dev_fault(dev, "dispatch")) return diag_nomem(d);
    if (dev_spoil(dev, "dispatch")) return diag_fail(d, AN_INPUT, NOWHERE, "a failure that was asked for");
    for (size_t i = 0; row && i < p->n_port[DEV_INPUT]; i++)
        dev_surface_pack(&p->port[DEV_INPUT][i], row, r->bound[DEV_INPUT][i]->at, r->stage[DEV_INPUT][i]);
    TRY(dev->cls->run(p, (const void *const *)r->at[DEV_INPUT], r->at[DEV_OUTPUT], d));
    if (dev_spoil(dev, "output")) spoil_output(r);
    for (size_t i = 0; row && dev->cls->computes && i < p->n_port[DEV_OUTPUT]; i++)
        dev_surface_unpack(&p->port[DEV_OUTPUT][i], row, r->stage[DEV_OUTPUT][i], r->bound[DEV_OUTPUT][i]->at);
    return AN_OK;
}

static void count_uses(dev_request *r, int by)
{
    r->p->queued += by;
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < r->p->n_port[side]; i++) r->bound[side][i]->queued += by;
}

bool queue_step(device *dev)
{
    dev_request *r = dev->head;
    if (dev->busy || !r) return false;
    dev->head = r->after;
    if (!dev->head) dev->tail = NULL;
    dev->busy = true;
    r->state = REQ_RUNNING;
    pthread_mutex_unlock(&dev->mu);
    diag d = { 0 };
    uint64_t t0 = clock_ns();
    an_status st = dispatch(r, &d);
    uint64_t t1 = clock_ns();
    pthread_mutex_lock(&dev->mu);
    dev->busy = false;
    dev->st.dispatches++;
    dev->st.failed += st != AN_OK;
    dev->st.run_ms += (double)(t1 - t0) / 1e6;
    r->result = d;
    r->state = REQ_DONE;
    count_uses(r, -1);
    pthread_cond_broadcast(&dev->changed);
    return true;
}

static void *work(void *user)
{
    device *dev = user;
    pthread_mutex_lock(&dev->mu);
    while (!dev->stop)
        if (!queue_step(dev)) pthread_cond_wait(&dev->changed, &dev->mu);
    pthread_mutex_unlock(&dev->mu);
    return NULL;
}

static void queue_start(device *dev)
{
    /* without a thread nothing is lost but the overlap: waiting runs the queue */
    if (dev->has_worker || dev_fault(dev, "thread")) return;
    dev->has_worker = !pthread_create(&dev->worker, NULL, work, dev);
}

void queue_stop(device *dev)
{
    pthread_mutex_lock(&dev->mu);
    while (dev->head || dev->busy)
        if (!queue_step(dev)) pthread_cond_wait(&dev->changed, &dev->mu);
    dev->stop = true;
    pthread_cond_broadcast(&dev->changed);
    pthread_mutex_unlock(&dev->mu);
    if (dev->has_worker) pthread_join(dev->worker, NULL);
    dev->has_worker = false;
}

void queue_quiet(dev_program *p)
{
    while (p->queued)
        if (!queue_step(p->dev)) pthread_cond_wait(&p->dev->changed, &p->dev->mu);
}

/* ---- requests ---- */

static an_status take_arrays(dev_request *r, diag *d)
{
    for (int side = 0; side < 2; side++) {
        size_t n = r->p->n_port[side];
        r->bound[side] = TAKE(&r->mem, dev_surface *, n);
        r->at[side] = TAKE(&r->mem, void *, n);
        if (!r->bound[side] || !r->at[side]) return diag_nomem(d);
        if (!r->dev->lim.row_bytes) continue;
        r->stage[side] = TAKE(&r->mem, unsigned char *, n);
        if (!r->stage[side]) return diag_nomem(d);
        for (size_t i = 0; i < n; i++) {
            r->stage[side][i] = arena_take(&r->mem, (size_t)r->p->port[side][i].bytes, 1, 64);
            if (!r->stage[side][i]) return diag_nomem(d);
            r->at[side][i] = r->stage[side][i];
        }
    }
    return AN_OK;
}

an_status dev_request_new(dev_program *p, dev_request **out, diag *d)
{
    *out = NULL;
    device *dev = p->dev;
    dev_request *r = dev_fault(dev, "request") ? NULL : calloc(1, sizeof *r);
    if (!r) return diag_nomem(d);
    r->dev = dev;
    r->p = p;
    an_status st = dev_fault(dev, "request arrays") ? diag_nomem(d) : take_arrays(r, d);
    if (st) {
        arena_free(&r->mem);
        free(r);
        return st;
    }
    pthread_mutex_lock(&dev->mu);
    p->refs++;
    LIST_ADD(dev->requests, r);
    dev->st.requests++;
    pthread_mutex_unlock(&dev->mu);
    *out = r;
    return AN_OK;
}

void request_drop(dev_request *r)
{
    device *dev = r->dev;
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < r->p->n_port[side]; i++)
            if (r->bound[side][i]) surface_unref(r->bound[side][i]);
    if (r->state != REQ_IDLE) r->p->outstanding--;
    LIST_CUT(dev->requests, r);
    dev->st.requests--;
    program_unref(r->p);
    arena_free(&r->mem);
    free(r);
}

void dev_request_free(dev_request *r)
{
    if (!r) return;
    device *dev = r->dev;
    pthread_mutex_lock(&dev->mu);
    while (r->state == REQ_QUEUED || r->state == REQ_RUNNING)
        if (!queue_step(dev)) pthread_cond_wait(&dev->changed, &dev->mu);
    request_drop(r);
    pthread_mutex_unlock(&dev->mu);
}

static const char *side_name(dev_side s) { return s == DEV_INPUT ? "input" : "output"; }

static void list_names(const dev_program *p, dev_side side, char *out, size_t room)
{
    size_t at = 0;
    *out = 0;
    for (size_t i = 0; i < p->n_port[side] && at < room; i++)
        at += (size_t)snprintf(out + at, room - at, "%s%s", i ? ", " : "", p->port[side][i].name);
}

an_status dev_request_bind_at(dev_request *r, dev_side side, size_t index, dev_surface *s, diag *d)
{
    device *dev = r->dev;
    if (index >= r->p->n_port[side])
        return dev_refuse(dev, ERR_INFERENCE, NOWHERE, d,
                          "%s surface number %zu is bound; the program has %zu, numbered from 0", side_name(side),
                          index, r->p->n_port[side]);
    if (s && s->dev != dev)
        return dev_refuse(dev, ERR_BAD_ARG, NOWHERE, d, "the surface for %s %s belongs to another device",
                          side_name(side), r->p->port[side][index].name);
    pthread_mutex_lock(&dev->mu);
    bool idle = r->state == REQ_IDLE;
    if (idle) {
        if (s) surface_ref(s);
        if (r->bound[side][index]) surface_unref(r->bound[side][index]);
        r->bound[side][index] = s;
        if (!dev->lim.row_bytes) r->at[side][index] = s ? s->at : NULL;
    }
    pthread_mutex_unlock(&dev->mu);
    return idle ? AN_OK
                : dev_refuse(dev, ERR_BUSY, NOWHERE, d,
                             "the request is submitted; wait for it before it is bound again");
}

an_status dev_request_bind(dev_request *r, dev_side side, const char *name, dev_surface *s, diag *d)
{
    size_t index;
    if (dev_program_port(r->p, side, name, &index)) return dev_request_bind_at(r, side, index, s, d);
    char names[160];
    list_names(r->p, side, names, sizeof names);
    return dev_refuse(r->dev, ERR_NOT_FOUND, NOWHERE, d, "the program has no %s \"%.60s\"; it has: %s", side_name(side),
                      name, names);
}

/* ---- judging ---- */

typedef struct {
    dev_error e;
    char msg[300];
} verdict;

#define SAY(v, id, ...) ((v)->e = ERR_##id, snprintf((v)->msg, sizeof(v)->msg, __VA_ARGS__), false)

static bool judge_side(const dev_request *r, dev_side side, verdict *v)
{
    const dev_program *p = r->p;
    const device_limits *lim = &r->dev->lim;
    size_t n = p->n_port[side], have = 0;
    const dev_port *missing = NULL;
    for (size_t i = 0; i < n; i++) {
        if (r->bound[side][i]) have++;
        else if (!missing) missing = &p->port[side][i];
    }
    if (missing)
        return SAY(v, INFERENCE, "%zu %s surface%s wanted, %zu bound; the first without one is %s", n, side_name(side),
                   n == 1 ? " is" : "s are", have, missing->name);
    if (side == DEV_INPUT && lim->inputs && n > (size_t)lim->inputs)
        return SAY(v, INFERENCE, "%zu input surfaces; at most %lld are taken: pack them side by side", n,
                   (long long)lim->inputs);
    for (size_t i = 0; i < n; i++) {
        const dev_port *q = &p->port[side][i];
        const dev_surface *s = r->bound[side][i], *first = r->bound[side][0];
        unsigned long long bytes = s->bytes, need = surface_need(r->dev, q);
        if (bytes < need)
            return SAY(v, INFERENCE, "%s %s needs a surface of %llu bytes, the one bound has %llu", side_name(side),
                       q->name, need, bytes);
        if (s->bytes < (uint64_t)lim->surface_min)
            return SAY(
                v, INFERENCE,
                "%s %s is bound to a surface of %llu bytes; at least %lld are wanted (the tensor stays packed from byte 0)",
                side_name(side), q->name, bytes, (long long)lim->surface_min);
        if (lim->uniform && s->bytes != first->bytes)
            return SAY(v, INFERENCE,
                       "%s surfaces must have one size: %s has %llu bytes, %s has %llu; allocate all at the largest",
                       side_name(side), p->port[side][0].name, (unsigned long long)first->bytes, q->name, bytes);
        if (s->locked) return SAY(v, BUSY, "the surface of %s %s is locked; unlock it first", side_name(side), q->name);
    }
    return true;
}

static bool judge_alias(const dev_request *r, verdict *v)
{
    const dev_program *p = r->p;
    int64_t most = r->dev->lim.alias_pairs;
    bool chaining = r->dev->lim.chaining;
    for (size_t i = 0; i < p->n_port[DEV_OUTPUT]; i++) {
        const dev_surface *s = r->bound[DEV_OUTPUT][i];
        const dev_port *q = &p->port[DEV_OUTPUT][i];
        for (size_t k = 0; k < i; k++)
            if (r->bound[DEV_OUTPUT][k] == s)
                return SAY(v, INFERENCE, "outputs %s and %s are bound to one surface; each needs its own",
                           p->port[DEV_OUTPUT][k].name, q->name);
        int64_t pairs = 0;
        for (size_t k = 0; k < p->n_port[DEV_INPUT] && (most || !chaining); k++) {
            const dev_port *in = &p->port[DEV_INPUT][k];
            if (r->bound[DEV_INPUT][k] != s) continue;
            if (!chaining)
                return SAY(
                    v, UNENTITLED,
                    "output %s and input %s share a surface; that takes com.apple.ane.allow-dataChaining-access, which this caller lacks",
                    q->name, in->name);
            if (in->bytes != q->bytes)
                return SAY(v, INFERENCE,
                           "output %s (%llu bytes) and input %s (%llu bytes) share a surface; state needs equal sizes",
                           q->name, (unsigned long long)q->bytes, in->name, (unsigned long long)in->bytes);
            if (++pairs > most)
                return SAY(v, INFERENCE, "output %s shares its surface with %lld inputs; %lld is the most", q->name,
                           (long long)pairs, (long long)most);
        }
    }
    return true;
}

static bool judge(const dev_request *r, int qos, verdict *v)
{
    const dev_program *p = r->p;
    const device_limits *lim = &r->dev->lim;
    if (qos < 0 || (lim->qos_max && qos > lim->qos_max))
        return SAY(v, BAD_ARG, "quality of service %d; 0 to %lld are taken", qos,
                   (long long)(lim->qos_max ? lim->qos_max : INT32_MAX));
    if (r->state != REQ_IDLE) return SAY(v, BUSY, "the request is submitted already; wait for it first");
    if (!p->loaded || p->dead) return SAY(v, NOT_READY, "the program is not loaded; load it before it is dispatched");
    if (p->changing) return SAY(v, BUSY, "the program is being reloaded or unloaded; try again when that is done");
    if (!judge_side(r, DEV_INPUT, v) || !judge_side(r, DEV_OUTPUT, v) || !judge_alias(r, v)) return false;
    if (lim->queue_depth && p->outstanding >= lim->queue_depth)
        return SAY(v, BUSY, "%lld requests of this program are submitted and not waited for; %lld is the most",
                   (long long)p->outstanding, (long long)lim->queue_depth);
    return true;
}

/* ---- submitting ---- */

static an_status submit(dev_request *r, int qos, bool overlap, diag *d)
{
    device *dev = r->dev;
    verdict v;
    pthread_mutex_lock(&dev->mu);
    bool ok = judge(r, qos, &v);
    if (ok) {
        r->state = REQ_QUEUED;
        r->after = NULL;
        *(dev->tail ? &dev->tail->after : &dev->head) = r;
        dev->tail = r;
        r->p->outstanding++;
        count_uses(r, 1);
        if (overlap) {
            queue_start(dev);
            pthread_cond_broadcast(&dev->changed);
        }
    }
    pthread_mutex_unlock(&dev->mu);
    return ok ? AN_OK : dev_refuse(dev, v.e, NOWHERE, d, "%s", v.msg);
}

an_status device_submit(dev_request *r, int qos, diag *d) { return submit(r, qos, true, d); }

an_status device_wait(dev_request *r, diag *d)
{
    device *dev = r->dev;
    pthread_mutex_lock(&dev->mu);
    bool submitted = r->state != REQ_IDLE;
    while (submitted && r->state != REQ_DONE)
        if (!queue_step(dev)) pthread_cond_wait(&dev->changed, &dev->mu);
    diag why = r->result;
    if (submitted) {
        r->state = REQ_IDLE;
        r->p->outstanding--;
    }
    pthread_mutex_unlock(&dev->mu);
    if (!submitted)
        return dev_refuse(dev, ERR_NOT_READY, NOWHERE, d,
                          "the request was not submitted; there is nothing to wait for");
    return why.st ? dev_refuse_as(dev, ERR_INFERENCE, &why, d) : AN_OK;
}

an_status device_run(dev_request *r, int qos, diag *d)
{
    TRY(submit(r, qos, false, d));
    return device_wait(r, d);
}
