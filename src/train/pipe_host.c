/* pipe_host.c: a language model trained by kernels on the device and the rest on the host: delta, dynamic and restart.
 * In: minibatches.  Out: reports; the state is the books'.
 *
 *   sequences: forward, backward (weights and dW on the work queue) ─▶ norm ─▶ update of the books and its weights made ready, layer by layer (on the queue)
 * The books move in one place, at the end: a device that fails before it, however, costs the minibatch and nothing
 * else. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

#include "base/plain.h"
#include "train/pipe_host.h"

void host_event(const host *h, const char *lane, const char *what, int layer, uint64_t begin)
{
    pipe_event e = { .lane = lane, .what = what, .layer = layer, .begin = begin, .end = clock_ns() };
    if (h->p->o.on_event) h->p->o.on_event(h->p->o.user, &e);
}

void host_warn(const host *h, const char *fmt, ...)
{
    char line[600];
    va_list ap;
    va_start(ap, fmt);
    plain_vprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    if (h->p->o.train.warn) h->p->o.train.warn(h->p->o.train.user, line);
}

/* ---- opening ---- */

static an_status index_weights(host *h, diag *d)
{
    size_t n = model_weights(&h->c, NULL, 0), cells = (size_t)MW_COUNT * (size_t)(h->c.n_layers + 1);
    h->param_at = TAKE(&h->mem, int, cells);
    if (!h->param_at || !vec_room(&h->mem, &h->weight.at, &h->weight.cap, n, sizeof *h->weight.at))
        return diag_nomem(d);
    h->weight.n = model_weights(&h->c, h->weight.at, n);
    for (size_t i = 0; i < cells; i++) h->param_at[i] = -1;
    for (size_t i = 0; i < n; i++)
        h->param_at[(int64_t)h->weight.at[i].id * (h->c.n_layers + 1) + h->weight.at[i].layer + 1] = (int)i;
    return AN_OK;
}

static an_status make_buffers(host *h, diag *d)
{
    size_t T = (size_t)h->c.seq, D = (size_t)h->c.dim;
    h->x0 = TAKE(&h->mem, float, D * T);
    float *row = TAKE(&h->mem, float, 5 * T);
    if (!h->x0 || !row) return diag_nomem(d);
    h->digit[0] = row, h->digit[1] = row + T, h->seed = row + 2 * T, h->rstd = row + 3 * T, h->mean = row + 4 * T;
    h->buffer_bytes += (D + 5) * T * sizeof(float);
    if (h->p->o.recompute) {
        size_t L = (size_t)h->c.n_layers;
        float *all = TAKE(&h->mem, float, D * T * L);
        if (!all || !(h->kept = TAKE(&h->mem, float *, L + 1))) return diag_nomem(d);
        h->kept[0] = h->x0;
        for (size_t l = 0; l < L; l++) h->kept[l + 1] = all + l * D * T;
        h->buffer_bytes += D * T * L * sizeof(float);
    }
    if (h->c.alpha == 1) return AN_OK;
    if (!(h->alpha = TAKE(&h->mem, float, D))) return diag_nomem(d);
    for (size_t i = 0; i < D; i++) h->alpha[i] = (float)h->c.alpha;
    return AN_OK;
}

/* Programs that dynamic would have: one of each kind. */
static int64_t kinds(const host *h)
{
    int64_t n = 0;
    for (size_t i = 0; i < h->progs.n; i++) {
        size_t k = 0;
        while (k < i && !model_program_alike(&h->c, &h->progs.at[k].id, &h->progs.at[i].id)) k++;
        n += k == i;
    }
    return n;
}

/* A round that never fits would be found out only after the first update. What the process compiled before counts as
 * well. */
static an_status check_budget(const host *h, diag *d)
{
    const device_limits *lim = device_get_limits(h->p->o.dev);
    device_stats s;
    device_get_stats(h->p->o.dev, &s);
    int64_t used = lim->reclaim ? (int64_t)s.programs : (int64_t)s.budget_used, left = MAX(lim->compiles - used, 0),
            need = 0;
    for (size_t i = 0; i < h->progs.n; i++) need += h->progs.at[i].same == (int)i;
    if (!lim->compiles || need <= left) return AN_OK;
    bool dynamic = kinds(h) <= left && h->p->kind != PIPE_DYNAMIC;
    return diag_fail(
        d, AN_UNSUPPORTED, NOWHERE, "pipeline %s takes %lld programs for %lld layers; %s compiles %lld%s: take %s%s%s",
        pipe_name(h->p->kind), (long long)need, (long long)h->c.n_layers, device_name(h->p->o.dev), (long long)left,
        used ? " more" : "", dynamic ? pipe_name(PIPE_DYNAMIC) : "", dynamic ? " or " : "", pipe_name(PIPE_RESIDENT));
}

static an_status look_again(void *user, double scale, train_verdict *out, diag *d);

static an_status open(host *h, diag *d)
{
    static const host_way *const ways[PIPE_COUNT] = {
        [PIPE_DELTA] = &host_delta, [PIPE_DYNAMIC] = &host_dynamic, [PIPE_RESTART] = &host_restart
    };
    pipeline *p = h->p;
    uint32_t isa;
    h->way = ways[p->kind];
    h->chip = pipe_chip(p);
    h->c = p->c;
    h->c.seq = p->T;
    if (h->c.alpha == 0) h->c.alpha = 1;
    TRY(isa_have(&isa, d));
    h->vk = vec_pick(isa), h->gk = gemm_pick(GEMM_F32, isa);
    TRY(index_weights(h, d));
    TRY(books_open(h, d));
    TRY(update_open(h, d));
    h->t->look = look_again, h->t->look_user = h;
    h->c.loss_scale = books_scale(h);
    TRY(make_buffers(h, d));
    TRY(prog_plan(h, d));
    TRY(check_budget(h, d));
    h->stale = true;
    return host_queue_make(&h->queue, d);
}

static void drop(void *way)
{
    host *h = way;
    host_queue_free(h->queue);
    prog_drop(h);
    update_close(h);
    books_close(h);
    free(h->scratch);
    pthread_mutex_destroy(&h->look_up);
    arena_free(&h->mem);
    free(h);
}

static void *make(pipeline *p, diag *d)
{
    host *h = calloc(1, sizeof *h);
    if (!h) return diag_nomem(d), NULL;
    h->p = p;
    pthread_mutex_init(&h->look_up, NULL);
    if (!open(h, d)) return h;
    drop(h);
    return NULL;
}

/* ---- minibatches ---- */

static an_status whole(const host *h, diag *d)
{
    if (!h->broken) return AN_OK;
    return diag_fail(
        d, AN_NOMEM, NOWHERE,
        "an update broke off between two layers, so weights and moments are of no step: go on from a checkpoint");
}

static void drain(host *h)
{
    uint64_t t0 = clock_ns();
    if (host_queue_drain(h->queue)) host_event(h, "main", "wait", -1, t0);
}

/* Every sequence; *loss is the mean over all positions. What is not finite ends it early: the update will be
 * skipped. */
static an_status sequences(host *h, const int32_t *tokens, double *loss, diag *d)
{
    pipeline *p = h->p;
    an_status st = AN_OK;
    double sum = 0;
    h->bad[0] = 0, h->count = (pipe_bad){ 0 }, h->tokens = tokens;
    for (int64_t b = 0; b < p->B && !st && (!h->bad[0] || h->to_the_end); b++) {
        double one = 0;
        st = pass_forward(h, tokens + b * (p->T + 1), &one, d);
        sum += one;
        if (!st && (!h->bad[0] || h->to_the_end)) st = pass_backward(h, b, d);
    }
    drain(h); /* the update wants every gradient */
    if (!st && h->job.st) st = diag_fail(d, h->job.st, h->job.at, "%s", h->job.msg);
    if (h->job.st) h->job = (diag){ 0 }, h->stale = true;
    *loss = h->bad[0] ? (double)NAN : sum / (double)(p->B * p->T);
    return st;
}

/* What the taps did not show: products that overflowed on the host. */
static void look_at_gradients(host *h)
{
    h->any_gradient = false;
    for (size_t i = 0; i < h->weight.n && !h->bad[0]; i++) {
        int64_t n = 0;
        char name[40];
        if (!shape_elems(&h->weight.at[i].type.sh, &n)) continue;
        float most = h->vk->largest(h->grad[i], n);
        h->any_gradient |= most > 0;
        if (isfinite(most)) continue;
        pipe_weight_name(h->weight.at[i].id, h->weight.at[i].layer, name, sizeof name);
        snprintf(h->bad, sizeof h->bad, "the gradient of %s", name);
    }
}

/* Every gradient, while they are at hand. */
static void measure_gradients(host *h, pipe_seen *out)
{
    double unit = out->loss_scale * (double)h->p->B;
    for (size_t i = 0; i < h->weight.n; i++) {
        double power = 0, *norm = &out->grad_norm[h->weight.at[i].id];
        int64_t n = 0;
        if (!shape_elems(&h->weight.at[i].type.sh, &n)) continue;
        pipe_count(&out->gradients, h->grad[i], n);
        for (int64_t k = 0; k < n; k++) power += (double)h->grad[i][k] * h->grad[i][k];
        *norm = sqrt((isnan(*norm) ? 0 : *norm * *norm) + power / (unit * unit));
    }
}

/* Behind the update that reads them. */
static void lock_job(void *user, int64_t unused)
{
    host *h = user;
    (void)unused;
    if (!h->job.st && books_lock(h, &h->job)) return; /* it is in h->job */
}

static an_status gradients(host *h, const int32_t *tokens, double *loss, pipe_seen *seen, diag *d)
{
    host_queue_push(h->queue, lock_job, h, 0);
    an_status st = sequences(h, tokens, loss, d);
    if (!st) look_at_gradients(h);
    if (!st && seen) measure_gradients(h, seen);
    diag also = { 0 };
    an_status un = books_unlock(h, st ? &also : d);
    return st ? st : un;
}

/* Of the minibatch that was just measured: its gradients are done with. */
static an_status look_again(void *user, double scale, train_verdict *out, diag *d)
{
    host *h = user;
    double loss;
    h->look_scale = scale;
    an_status st = gradients(h, h->tokens, &loss, NULL, d);
    h->look_scale = 0;
    *out = h->bad[0] ? VERDICT_GRADIENT : h->any_gradient ? VERDICT_FINE : VERDICT_NOTHING;
    h->bad[0] = 0;
    return st;
}

static an_status step(void *way, const int32_t *tokens, double lr, train_report *r, bool *again, diag *d)
{
    host *h = way;
    double loss = NAN, unit = books_scale(h) * (double)h->p->B;
    *r = (train_report){ .lr = lr, .loss = NAN, .grad_norm = NAN, .loss_scale = books_scale(h), .step = h->t->steps, .skipped = h->t->skipped };
    TRY(whole(h, d));
    TRY(prog_sync(h, d));
    diag why = { 0 };
    if (!h->t->at) h->first[0] = 0;
    /* a group that is bad is skipped anyway */
    an_status st = h->t->group ? AN_OK : gradients(h, tokens, &loss, NULL, &why);
    if (st && h->put_off) return r->put_off = *again = h->stale = true, h->restarts_wanted++, AN_OK;
    if (st) return *d = why, st;
    if (!h->first[0]) memcpy(h->first, h->bad, sizeof h->first);
    uint64_t t0 = clock_ns();
    st = books_step(h, loss, unit, lr, r, &why);
    host_event(h, "main", "norm", -1, t0);
    if (st == AN_MISMATCH && r->verdict != VERDICT_NOTHING)
        return diag_fail(d, st, why.at, "%s; the first tensor that went bad is %s", why.msg,
                         h->first[0] ? h->first : "not known");
    if (st) return *d = why, st;
    if (!r->finite && h->bad[0])
        host_warn(h, "%s is not finite (loss scale %g): the update is skipped", h->bad, r->loss_scale);
    if (!r->applied) return AN_OK;
    h->stale = true;
    *again = h->way->spent(h);
    h->restarts_wanted += *again;
    update_due(h);
    /* while the caller reports and gets the next tokens; what fails is tried again, and said, when they are wanted */
    if (!*again) st = prog_sync(h, &why);
    for (int l = -1; l < h->c.n_layers; l++) update_push(h, l);
    return AN_OK;
}

an_status host_look(void *way, const int32_t *tokens, double loss_scale, pipe_seen *out, diag *d)
{
    host *h = way;
    char first[sizeof h->bad];
    pipe_bad count = h->count;
    double loss;
    memcpy(first, h->bad, sizeof first);
    TRY(prog_sync(h, d));
    h->to_the_end = true, h->look_scale = loss_scale;
    an_status st = gradients(h, tokens, &loss, out, d);
    h->to_the_end = false, h->look_scale = 0;
    bool came = first[0] && !h->bad[0]; /* once, and not again */
    out->activations = came ? count : h->count;
    if (!out->first[0]) snprintf(out->first, sizeof out->first, "%s", first[0] ? first : h->bad);
    h->bad[0] = 0, h->count = (pipe_bad){ 0 };
    return st;
}

/* Looked at as in training: a chip makes numbers of what is none, and the loss would be one. The head makes gradients
 * as well, which nobody wants here: at the least scale they have no part in that. */
static an_status loss_of(void *way, const int32_t *tokens, double *loss, diag *d)
{
    host *h = way;
    pipeline *p = h->p;
    an_status st = AN_OK;
    *loss = 0;
    TRY(prog_sync(h, d));
    h->bad[0] = 0, h->count = (pipe_bad){ 0 }, h->look_scale = 0x1p-14;
    for (int64_t b = 0; b < p->B && !st && !h->bad[0]; b++) {
        double one = 0;
        st = pass_forward(h, tokens + b * (p->T + 1), &one, d);
        *loss += one / (double)(p->B * p->T);
    }
    h->look_scale = 0;
    if (h->bad[0]) *loss = NAN;
    return st;
}

/* ---- state ---- */

/* The worker may be reading them. */
static trainer *books(const void *way)
{
    const host *h = way;
    host_queue_drain(h->queue);
    return h->t;
}

static size_t states(const void *way) { return train_state_count(books(way)); }
static void state_at(const void *way, size_t i, train_state_info *out) { train_state_at(books(way), i, out); }
static an_status read_state(void *way, const char *name, dtype dt, void *data, diag *d)
{
    return train_read(books(way), name, dt, data, d);
}

static an_status save(void *way, const char *path, const train_note *note, size_t n, diag *d)
{
    trainer *t = books(way);
    TRY(whole(way, d));
    return train_save(t, path, note, n, d);
}

static an_status write_state(void *way, const char *name, dtype dt, const void *data, diag *d)
{
    trainer *t = books(way);
    ((host *)way)->stale = true;
    return train_write(t, name, dt, data, d);
}

static an_status load(void *way, const char *path, train_note *note, size_t n, arena *mem, diag *d)
{
    trainer *t = books(way);
    ((host *)way)->stale = true, ((host *)way)->broken = false;
    return train_load(t, path, note, n, mem, d);
}

static void stats(void *way, pipe_stats *out)
{
    host *h = way;
    device_stats s, mine;
    train_get_stats(h->t, &out->train);
    device_get_stats(h->p->o.dev, &s);
    device_get_stats(h->cpu, &mine);
    out->train.dispatches = out->dispatches = h->dispatches;
    out->compiles = s.compiles, out->reloads = h->reloads, out->canaries = h->canaries,
    out->restarts_wanted = h->restarts_wanted;
    out->work_bytes = h->buffer_bytes, out->packed = h->packed;
    out->bytes = h->buffer_bytes + mine.surface_bytes + mine.image_bytes + s.surface_bytes + s.image_bytes;
}

const pipe_ops pipe_host = { make, drop, step, loss_of, states, state_at, write_state, read_state, save, load, stats };
