/* run.c: the loop around the resident step: data, learning rates, accuracies, log lines, checkpoints. */
#include <math.h>
#include <stdlib.h>

#include "train/log.h"
#include "train/run_int.h"

enum { EVERY = 50, TEST = 1000 };

static const char LOGITS[] = "logits";

/* ---- setting up ---- */

static an_status check_names(run *r)
{
    const train_run_options *o = r->o;
    if (o->pipeline && strcmp(o->pipeline, "resident"))
        return diag_fail(r->d, AN_USAGE, NOWHERE, "pipeline \"%.40s\" cannot train %s; resident can", o->pipeline,
                         o->model ? o->model : "it");
    r->spec = o->model ? net_find(o->model) : NULL;
    if (!r->spec) {
        strbuf b = { 0 };
        for (size_t i = 0; i < net_count(); i++) sb_printf(&b, "%s%s", i ? ", " : "", net_at(i)->name);
        diag_fail(r->d, AN_USAGE, NOWHERE, "unknown network \"%.40s\"; known are %s", o->model ? o->model : "",
                  b.at ? b.at : "");
        return sb_free(&b), r->d->st;
    }
    return train_schedule_find(o->schedule, &r->schedule.kind, r->d);
}

/* What would have no effect is refused: who asked for it would believe it had one. */
static an_status check_numbers(run *r)
{
    const train_run_options *o = r->o;
    if (!(o->lr >= 0) || !isfinite(o->lr))
        return diag_fail(r->d, AN_USAGE, NOWHERE, "the learning rate is %g, wanted a positive number", o->lr);
    TRY(train_schedule_end(r->schedule.kind, o->lr_end, r->d));
    if (o->seq > 0 && r->spec->task != NET_TEXT)
        return diag_fail(r->d, AN_USAGE, NOWHERE, "sequences of %lld for the network %s, which takes images",
                         (long long)o->seq, r->spec->name);
    if (o->test > 0 && o->every < 0)
        return diag_fail(r->d, AN_USAGE, NOWHERE,
                         "%lld test samples for accuracies between updates, but there are to be none of those",
                         (long long)o->test);
    return AN_OK;
}

#define WARN(r, ...) log_say((r)->o->warn, (r)->o->user, __VA_ARGS__)

/* More samples than there are. */
static void warn_of_counts(const run *r)
{
    const train_run_options *o = r->o;
    if (r->net.opt.batch > r->data.n_train)
        WARN(r, "a minibatch has %lld samples and the data %lld: some are in it more than once",
             (long long)r->net.opt.batch, (long long)r->data.n_train);
    if (o->test > r->data.n_test)
        WARN(r, "accuracies are of %lld test samples, not %lld: the data has no more", (long long)r->data.n_test,
             (long long)o->test);
    if (o->final_test > r->data.n_test)
        WARN(r, "the last accuracy is of %lld test samples, not %lld: the data has no more", (long long)r->data.n_test,
             (long long)o->final_test);
}

static an_status open_data(run *r)
{
    const char *name = r->o->data ? r->o->data : train_data_default(r->spec->task);
    net_task task;
    if (train_data_task(name, &task) && task != r->spec->task) /* before a file is looked for that would be of no use */
        return diag_fail(r->d, AN_INPUT, NOWHERE, "data %.150s is %s; the network %s wants %s", name,
                         task == NET_IMAGES ? "images" : "text", r->spec->name,
                         r->spec->task == NET_IMAGES ? "images" : "text");
    TRY(train_data_open(name, r->o->seq > 0 ? r->o->seq : MAX(r->spec->seq, 1), &r->data, r->d));
    if (r->o->save || r->o->resume) r->data_digest = train_data_digest(&r->data);
    return train_batches_open(&r->batches, r->data.n_train, r->o->seed, r->d);
}

static an_status open_net(run *r)
{
    net_options no = { .batch = r->o->batch,
                       .classes = r->data.classes,
                       .dt = device_is_plain(r->dev) ? DT_F32 : DT_F16 };
    if (r->spec->task == NET_IMAGES) no.height = r->data.height, no.width = r->data.width;
    else no.seq = r->data.seq;
    diag why = { 0 };
    an_status st = net_build(r->spec->name, &no, &r->net, &why);
    /* the data is good by now: it is the options */
    return st ? diag_fail(r->d, st == AN_INPUT ? AN_USAGE : st, NOWHERE, "%s", why.msg) : AN_OK;
}

/* 0 asks for the default, a negative number for none. */
static double given(double x, double otherwise) { return x < 0 ? 0 : x > 0 ? x : otherwise; }

static an_status open_trainer(run *r)
{
    const train_run_options *o = r->o;
    train_param param[NET_MAX_PARAMS];
    for (int i = 0; i < r->net.n_param; i++)
        param[i] = (train_param){ .name = r->net.param[i].name, .decay = r->net.param[i].decay };
    train_options t = { .dev = r->dev,
                        .device = o->device,
                        .loss = r->net.loss,
                        .param = param,
                        .n_param = (size_t)r->net.n_param,
                        .fetch = &(train_fetched){ LOGITS, r->net.logits },
                        .n_fetch = 1,
                        .optimizer = o->optimizer ? o->optimizer : r->spec->optimizer,
                        .decay = given(o->decay, r->spec->decay),
                        .clip = o->clip,
                        .accum = o->accum,
                        .state = o->state,
                        .loss_scale = o->loss_scale > 0 ? o->loss_scale : r->spec->loss_scale,
                        .dynamic_scale = o->dynamic_scale,
                        .warn = o->warn,
                        .user = o->user };
    if (!train_optimizer_find(t.optimizer, &r->optimizer)) r->optimizer = OPTIM_SGD; /* train_open says so */
    if (o->loss_scale == 0 && !o->dynamic_scale) {
        if (device_is_plain(r->dev)) t.loss_scale = 1; /* fp32 needs none */
        else if (r->optimizer == OPTIM_ADAM || r->optimizer == OPTIM_ADAMW)
            t.dynamic_scale = true; /* squares leave fp16 soon */
    }
    r->decay = t.decay, r->loss_scale = t.dynamic_scale ? 0 : t.loss_scale;
    return train_open(&r->t, r->net.g, &t, r->d);
}

/* The network's rate is meant for its optimizer: steps of the two kinds with and without division by a root differ
 * in size. */
static bool own_rate(const run *r)
{
    train_optimizer own;
    if (!train_optimizer_find(r->spec->optimizer, &own)) return false;
    return own == r->optimizer ||
           ((own == OPTIM_ADAM || own == OPTIM_ADAMW) && (r->optimizer == OPTIM_ADAM || r->optimizer == OPTIM_ADAMW));
}

static an_status initial_weights(run *r)
{
    rng seed = { r->o->seed };
    for (int i = 0; i < r->net.n_param; i++) {
        float *w = malloc((size_t)net_param_count(&r->net, i) * sizeof *w);
        if (!w) return diag_nomem(r->d);
        net_init_fill(&r->net, i, &seed, w);
        an_status st = train_write(r->t, r->net.param[i].name, DT_F32, w, r->d);
        free(w);
        TRY(st);
    }
    return AN_OK;
}

static an_status set_up(run *r)
{
    const train_run_options *o = r->o;
    TRY(check_names(r));
    TRY(check_numbers(r));
    TRY(run_try_save(r));
    TRY(device_open(&r->dev, o->engine, &o->device, r->d));
    if (!device_computes(r->dev))
        WARN(r, "this device computes nothing: times are the host's share, losses and weights mean nothing");
    TRY(open_data(r));
    TRY(open_net(r));
    TRY(open_trainer(r));
    warn_of_counts(r);
    int64_t rows = r->net.rows, batch = r->net.opt.batch;
    r->x = calloc((size_t)(batch * r->data.x_per), sizeof *r->x);
    r->y = calloc((size_t)(batch * r->data.y_per), sizeof *r->y);
    r->logits = calloc((size_t)(rows * r->net.opt.classes), sizeof *r->logits);
    if (!r->x || !r->y || !r->logits) return diag_nomem(r->d);
    r->accum = MAX(o->accum, 1);
    r->schedule.lr = o->lr > 0 ? o->lr : own_rate(r) ? r->spec->lr : train_optimizer_lr(r->optimizer);
    r->schedule.lr_end = given(o->lr_end, r->spec->lr_end);
    r->schedule.warmup = o->warmup < 0 ? 0 : o->warmup > 0 ? o->warmup : r->spec->warmup;
    r->schedule.steps = o->steps > 0 ? o->steps : r->spec->steps;
    train_schedule_warn(&r->schedule, o->warn, o->user);
    train_run_result *q = r->out;
    snprintf(q->model, sizeof q->model, "%s", r->spec->name);
    snprintf(q->data, sizeof q->data, "%s", r->data.name);
    snprintf(q->engine, sizeof q->engine, "%s", device_name(r->dev));
    snprintf(q->optimizer, sizeof q->optimizer, "%s", train_optimizer_name(r->t));
    q->steps = r->schedule.steps, q->batch = batch;
    q->n_train = r->data.n_train, q->n_test = r->data.n_test;
    TRY(initial_weights(r));
    TRY(run_resume(r));
    q->first = q->done = r->done;
    an_status st = o->on_start ? o->on_start(o->user) : AN_OK;
    return st ? diag_fail(r->d, st, NOWHERE, "the caller ended the run before its first update") : AN_OK;
}

static void tear_down(run *r)
{
    free(r->x), free(r->y), free(r->logits);
    train_close(r->t);
    net_free(&r->net);
    train_batches_close(&r->batches);
    train_data_close(&r->data);
    device_close(r->dev);
}

/* ---- accuracy ---- */

/* Right answers among the first n test samples. A short last batch is filled up with the first sample, which is not
 * counted. */
static an_status accuracy(run *r, int64_t n, double *out)
{
    int64_t batch = r->net.opt.batch, per = r->data.y_per, classes = r->net.opt.classes, right = 0, all = 0;
    n = MIN(n, r->data.n_test);
    for (int64_t i = 0; i < n; i += batch) {
        int64_t real = MIN(batch, n - i);
        for (int64_t k = 0; k < batch; k++)
            train_data_sample(&r->data, true, k < real ? i + k : 0, r->x + k * r->data.x_per, r->y + k * per);
        TRY(train_put(r->t, "x", DT_F32, r->x, r->d));
        TRY(train_eval(r->t, r->d));
        TRY(train_fetch(r->t, LOGITS, DT_F32, r->logits, r->d));
        for (int64_t k = 0; k < real * per; k++) {
            const float *row = r->logits + k * classes;
            int64_t best = 0;
            for (int64_t c = 1; c < classes; c++)
                if (row[c] > row[best]) best = c;
            right += best == (int64_t)r->y[k];
        }
        all += real * per;
    }
    *out = all ? (double)right / (double)all : (double)NAN;
    return AN_OK;
}

static an_status note_accuracy(run *r, int64_t step)
{
    double a;
    TRY(accuracy(r, r->o->test > 0 ? r->o->test : TEST, &a));
    if (r->out->n_trace < TRAIN_RUN_TRACE)
        r->out->trace[r->out->n_trace].step = step, r->out->trace[r->out->n_trace++].accuracy = a;
    if (r->o->on_accuracy) r->o->on_accuracy(r->o->user, step, a);
    return AN_OK;
}

/* ---- the loop ---- */

static void log_line(run *r, const train_report *p, double loss, uint64_t ns)
{
    strbuf b = { 0 };
    if (isfinite(loss)) r->smooth = isfinite(r->smooth) ? 0.95 * r->smooth + 0.05 * loss : loss;
    if (!r->o->on_log) return;
    log_json(&b, &(lm_progress){ .step = (int64_t)(p->step + p->skipped + p->zeros), .steps = r->schedule.steps,
                                 .loss = loss, .smooth = r->smooth, .lr = p->lr, .ms = (double)ns / 1e6,
                                 .data_ms = (double)r->data_ns / 1e6, .device_ms = (double)(ns - r->data_ns) / 1e6,
                                 .grad_norm = p->grad_norm, .loss_scale = p->loss_scale, .skipped = p->skipped,
                                 .zeros = p->zeros, .applied = p->applied, .tokens = r->net.rows * r->accum });
    if (!b.oom) r->o->on_log(r->o->user, b.at);
    else r->unlogged = true;
    sb_free(&b);
}

/* One update: every minibatch of its group. The loss is the mean of those that ran. */
static an_status one_step(run *r, double lr, train_report *p, double *loss)
{
    double sum = 0;
    int64_t n = 0;
    r->data_ns = 0;
    *loss = NAN;
    for (int64_t a = 0; a < r->accum; a++) {
        uint64_t t0 = clock_ns();
        train_batches_next(&r->batches, &r->data, r->net.opt.batch, r->x, r->y);
        r->data_ns += clock_ns() - t0;
        TRY(train_put(r->t, "x", DT_F32, r->x, r->d));
        TRY(train_put(r->t, "y", DT_F32, r->y, r->d));
        const an_status st = train_step(r->t, lr, p, r->d);
        if (!isnan(p->loss)) sum += p->loss, n++;
        if (n) *loss = sum / (double)n;
        TRY(st);
    }
    return AN_OK;
}

/* Steps are counted as tried, so that a skipped one uses up its data and its learning rate. */
static an_status loop(run *r)
{
    int64_t every = r->o->every ? r->o->every : EVERY, first = r->done;
    if (every > 0 && first == 0) TRY(note_accuracy(r, 0));
    while (r->done < r->schedule.steps && !r->out->stopped) {
        train_report p = { .verdict = VERDICT_FINE };
        double loss;
        uint64_t t0 = clock_ns();
        const an_status st = one_step(r, train_schedule_lr(&r->schedule, r->done), &p, &loss);
        uint64_t ns = clock_ns() - t0;
        if (st && p.verdict != VERDICT_FINE) log_line(r, &p, loss, ns); /* the last of a row that ends the training */
        TRY(st);
        r->out->done = ++r->done;
        r->out->seconds += (double)ns / 1e9;
        if (p.applied) r->out->loss = loss;
        log_line(r, &p, loss, ns);
        bool enough =
            (r->o->stop_after > 0 && r->done - first >= r->o->stop_after) || (r->o->stop && r->o->stop(r->o->user));
        r->out->stopped = enough && r->done < r->schedule.steps;
        const bool look = every > 0 && r->done % every == 0;
        if (look || r->out->stopped) run_save(r); /* first: an accuracy may take long */
        if (look) TRY(note_accuracy(r, r->done));
    }
    return AN_OK;
}

static an_status digest(run *r)
{
    strbuf b = { 0 };
    an_status st = train_snapshot(r->t, &b, r->d);
    if (!st) r->out->digest = hash_many(b.at, b.n, 0);
    sb_free(&b);
    return st;
}

static an_status finish(run *r)
{
    run_save(r);
    TRY(digest(r));
    if (r->o->final_test >= 0 && !r->out->stopped) {
        r->out->final_n = r->o->final_test > 0 ? MIN(r->o->final_test, r->data.n_test) : r->data.n_test;
        TRY(accuracy(r, r->out->final_n, &r->out->final_accuracy));
    }
    if (r->unsaved.st)
        return diag_fail(r->d, r->unsaved.st, NOWHERE, "the last checkpoint could not be written: %s", r->unsaved.msg);
    return r->unlogged ? diag_fail(r->d, AN_NOMEM, NOWHERE, "out of memory: not all lines were written") : AN_OK;
}

an_status train_run(const train_run_options *o, train_run_result *out, strbuf *stats_line, diag *d)
{
    run r = { .o = o, .out = out, .smooth = NAN, .saved = -1, .d = d };
    *out = (train_run_result){ .loss = NAN, .final_accuracy = NAN };
    an_status st = set_up(&r);
    if (!st) st = loop(&r);
    if (!st) st = finish(&r);
    if (r.t) {
        train_get_stats(r.t, &out->stats);
        if (stats_line) train_print_stats(r.t, stats_line, "text");
    }
    tear_down(&r);
    return st;
}
