/* lm_train.c: language-model runs behind the public header: options handed on, progress as lines, curves and lanes
 * kept on the way. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "api/api_int.h"
#include "base/lines.h"
#include "base/plain.h"
#include "model/net.h"
#include "train/lm_grad.h"
#include "train/lm_run.h"
#include "train/log.h"
#include "train/plot.h"

enum { PLOT_COLS = 68, PLOT_ROWS = 14, LANE_COLS = 70 };

typedef struct {
    const an_lm_train_options *o;
    plot_series raw, smooth, kept;
    plot_lanes *lanes;
    int64_t updates, first; /* of this call; the last update before it */
    int64_t known;          /* the first update of the curve; 0: none */
    bool begun;             /* a loss was told of */
    lines *losses;          /* the curve, beside the checkpoints */
    bool told;              /* that it has gaps */
} watch;

/* ---- on the way ---- */

static an_lm_progress outside(const lm_progress *p)
{
    return (an_lm_progress){ .step = p->step, .steps = p->steps, .loss = p->loss, .smooth = p->smooth, .lr = p->lr,
                             .grad_norm = p->grad_norm, .loss_scale = p->loss_scale, .skipped = p->skipped,
                             .zeros = p->zeros, .applied = p->applied, .tokens = p->tokens, .ms = p->ms,
                             .data_ms = p->data_ms, .device_ms = p->device_ms, .host_ms = p->host_ms,
                             .wait_ms = p->wait_ms };
}

static lm_progress inside(const an_lm_progress *p)
{
    return (lm_progress){ .step = p->step, .steps = p->steps, .loss = p->loss, .smooth = p->smooth, .lr = p->lr,
                          .grad_norm = p->grad_norm, .loss_scale = p->loss_scale, .skipped = p->skipped,
                          .zeros = p->zeros, .applied = p->applied != 0, .tokens = p->tokens, .ms = p->ms,
                          .data_ms = p->data_ms, .device_ms = p->device_ms, .host_ms = p->host_ms,
                          .wait_ms = p->wait_ms };
}

char *an_lm_progress_text(const an_lm_progress *p, an_format f)
{
    strbuf b = { 0 };
    lm_progress q = p ? inside(p) : (lm_progress){ 0 };
    if (f == AN_JSON) log_json(&b, &q);
    else if (p) log_csv(&b, &q);
    else log_csv_head(&b);
    return api_take(&b);
}

/* ---- the curve of earlier processes ---- */

/* NULL: the run has no folder, or no memory. Yours. */
static char *losses_path(const watch *w)
{
    strbuf b = { 0 };
    if (!w->o->save) return NULL;
    sb_printf(&b, "%s/losses.jsonl", w->o->save);
    return api_take(&b);
}

/* A line that cannot be written is a gap in later curves and nothing else: training goes on. */
static void tell_of_gap(watch *w, int64_t step, int why)
{
    if (!w->told && w->o->on_warning)
        log_say(w->o->on_warning, w->o->user,
                "%s/losses.jsonl: %s: curves drawn after --resume will lack the loss of update %lld, and perhaps others",
                w->o->save, strerror(why), (long long)step);
    w->told = true;
}

static void keep(watch *w, const char *kind, int64_t step, double loss, double smooth)
{
    char line[160];
    if (!w->losses || !isfinite(loss)) return;
    int n = plain_printf(line, sizeof line, "{%s\"step\":%lld,\"loss\":%.7g", kind, (long long)step, loss);
    if (isfinite(smooth)) n += plain_printf(line + n, sizeof line - (size_t)n, ",\"smooth\":%.7g", smooth);
    snprintf(line + n, sizeof line - (size_t)n, "}");
    if (!lines_add(w->losses, line)) tell_of_gap(w, step, errno);
}

/* What earlier processes of the run left, up to where this one goes on. */
static void on_old_line(void *user, const log_past *l)
{
    watch *w = user;
    if (l->step > w->first) return;
    if (l->kept) {
        plot_add(&w->kept, (double)l->step, l->loss);
        return;
    }
    if (!w->known) w->known = l->step;
    plot_add(&w->raw, (double)l->step, l->loss), plot_add(&w->smooth, (double)l->step, l->smooth);
}

static void read_old(watch *w, const char *path)
{
    if (!path || w->known == 1) return;
    w->raw = w->smooth = w->kept = (plot_series){ 0 }, w->known = 0;
    log_read(path, on_old_line, w);
}

static void remember(watch *w, int64_t first)
{
    char *path = losses_path(w);
    w->first = first, w->begun = true;
    if (w->o->resume && first > 0) { /* what is not there is a shorter curve */
        read_old(w, path);
        read_old(w, w->o->history);
        if (!w->known) read_old(w, path);
    }
    free(path);
}

static void begin(watch *w, int64_t first)
{
    if (w->begun) return;
    remember(w, first);
    char *path = losses_path(w);
    if (path && !(w->losses = lines_open(path, first == 0))) tell_of_gap(w, first + 1, errno);
    free(path);
}

static void on_progress(void *user, const lm_progress *p)
{
    watch *w = user;
    an_lm_progress q = outside(p);
    begin(w, p->step - 1);
    w->updates++;
    plot_add(&w->raw, (double)p->step, p->loss);
    plot_add(&w->smooth, (double)p->step, p->smooth);
    keep(w, "", p->step, p->loss, p->smooth);
    if (w->lanes) plot_lanes_mark(w->lanes);
    if (w->o->on_progress) w->o->on_progress(w->o->user, &q);
}

static void on_eval(void *user, int64_t step, double loss)
{
    watch *w = user;
    begin(w, step); /* it may be owed by the process before */
    plot_add(&w->kept, (double)step, loss);
    keep(w, "\"kind\":\"validation\",", step, loss, (double)NAN);
    if (w->o->on_eval) w->o->on_eval(w->o->user, step, loss);
}

typedef struct {
    int64_t step;
    bool kept;
} told_of;

static void look_for(void *user, const log_past *l)
{
    told_of *t = user;
    t->kept |= l->kept && l->step == t->step;
}

static bool is_told(void *user, int64_t step)
{
    told_of t = { .step = step };
    char *path = losses_path(user);
    if (path) log_read(path, look_for, &t);
    free(path);
    return t.kept;
}

static void on_sample(void *user, int64_t step, const char *text, size_t n)
{
    watch *w = user;
    w->o->on_sample(w->o->user, step, text, n);
}

static void on_note(void *user, const char *line)
{
    watch *w = user;
    w->o->on_note(w->o->user, line);
}

static void on_event(void *user, const pipe_event *e)
{
    watch *w = user;
    plot_lanes_add(w->lanes, e);
}

static void on_warning(void *user, const char *line)
{
    watch *w = user;
    w->o->on_warning(w->o->user, line);
}

static bool stop(void *user)
{
    watch *w = user;
    if (w->o->stop_after > 0 && w->updates >= w->o->stop_after) return true;
    return w->o->stop && w->o->stop(w->o->user);
}

/* ---- the run ---- */

static an_status draw(const watch *w, an_lm_train_result *r, diag *d)
{
    char title[320];
    snprintf(title, sizeof title, "%s on %s, %s: loss by update", r->model, r->data, r->engine);
    plot_losses p = {
        .title = title, .x = "update", .y = "nats per token", .raw = &w->raw, .smooth = &w->smooth, .kept = &w->kept
    };
    strbuf text = { 0 }, ascii = { 0 }, svg = { 0 }, lanes = { 0 }, trace = { 0 };
    if (w->raw.n) {
        plot_text(&text, &p, PLOT_COLS, PLOT_ROWS, false);
        plot_text(&ascii, &p, PLOT_COLS, PLOT_ROWS, true);
        plot_svg(&svg, &p);
        r->plot = api_take(&text), r->plot_ascii = api_take(&ascii), r->svg = api_take(&svg);
        if (!r->plot || !r->plot_ascii || !r->svg)
            diag_fail(d, AN_NOMEM, NOWHERE, "out of memory: the losses could not be drawn");
    }
    if (w->lanes) {
        plot_lanes_text(&lanes, w->lanes, LANE_COLS);
        diag none = { 0 };
        file_bytes before = { 0 };
        bool goes_on = w->o->trace_before && !file_read(w->o->trace_before, (size_t)1 << 30, &before, &none);
        plot_lanes_trace(&trace, w->lanes, goes_on ? (const char *)before.at : "", goes_on ? before.n : 0);
        if (goes_on) file_drop(&before);
        r->lanes = api_take(&lanes), r->trace = api_take(&trace);
        if (!r->lanes || !r->trace) diag_fail(d, AN_NOMEM, NOWHERE, "out of memory: what ran when could not be drawn");
    }
    return d->st;
}

static void take_result(const lm_run_result *q, an_lm_train_result *r)
{
    memcpy(r->model, q->model, sizeof r->model);
    memcpy(r->data, q->data, sizeof r->data);
    memcpy(r->engine, q->engine, sizeof r->engine);
    memcpy(r->pipeline, q->pipeline, sizeof r->pipeline);
    memcpy(r->optimizer, q->optimizer, sizeof r->optimizer);
    r->steps = q->steps, r->done = q->done, r->batch = q->batch, r->seq = q->seq, r->vocab = q->vocab,
    r->parameters = q->parameters;
    r->tokens = q->tokens, r->validation_samples = q->validation_samples, r->updates = q->stats.train.steps,
    r->skipped = q->stats.train.skipped;
    r->compiles = q->stats.compiles, r->reloads = q->stats.reloads, r->dispatches = q->stats.dispatches;
    r->loss = q->loss, r->smooth = q->smooth, r->validation = q->validation, r->seconds = q->seconds;
    r->stopped = q->stopped, r->again = q->again, r->digest = q->digest;
}

/* 0 is the default of each; -1 is what the header says of those that have it. */
static an_status check_numbers(const an_lm_train_options *o, diag *d)
{
    const api_bound rows[] = { { "steps", (double)o->steps, 0 }, { "batch", (double)o->batch, 0 }, { "seq", (double)o->seq, 0 }, { "accum", o->accum, 0 }, { "lr", o->lr, 0 }, { "lr_end", o->lr_end, -1 },
                               { "warmup", (double)o->warmup, -1 }, { "decay", o->decay, -1 }, { "clip", o->clip, -1 }, { "validation", o->validation, -1 }, { "eval_every", (double)o->eval_every, 0 },
                               { "sample_every", (double)o->sample_every, -1 }, { "sample_tokens", (double)o->sample_tokens, 0 }, { "save_every", (double)o->save_every, 0 }, { "keep", o->keep, 0 },
                               { "stats_every", (double)o->stats_every, 0 }, { "stop_after", (double)o->stop_after, 0 }, { "compile_limit", o->compile_limit, 0 } };
    return api_bounds(rows, COUNT(rows), d);
}

static an_status run_it(const an_lm_train_options *o, watch *w, an_lm_train_result *r, diag *d)
{
    lm_run_result q;
    device_limit limit = { "compiles", o->compile_limit };
    lm_run_options t = { .model = o->model, .tokenizer = o->tokenizer, .data = o->data, .engine = o->engine,
                         .pipeline = o->pipeline, .steps = o->steps, .batch = o->batch, .seq = o->seq,
                         .accum = o->accum, .lr = o->lr, .lr_end = o->lr_end, .schedule = o->schedule,
                         .warmup = o->warmup, .decay = o->decay, .clip = o->clip, .optimizer = o->optimizer,
                         .loss_scale = o->loss_scale, .dynamic_scale = o->dynamic_scale != 0, .seed = o->seed,
                         .validation = o->validation, .eval_every = o->eval_every, .sample_every = o->sample_every,
                         .sample_tokens = o->sample_tokens, .prompt = o->prompt, .save = o->save,
                         .save_every = o->save_every, .keep = o->keep, .resume = o->resume != 0,
                         .must_resume = o->resume > 1, .residual = o->residual_scale, .softcap = o->softcap,
                         .zero_init = o->zero_init != 0, .compact_vocab = o->compact_vocab != 0,
                         .recompute = o->recompute != 0, .stats_every = o->stats_every,
                         .on_note = o->on_note ? on_note : NULL, .on_progress = on_progress, .on_eval = on_eval,
                         .is_told = is_told,
                         .on_sample = o->on_sample ? on_sample : NULL, .on_event = o->profile ? on_event : NULL,
                         .stop = stop, .warn = o->on_warning ? on_warning : NULL, .user = w };
    t.device.threads = o->threads;
    if (o->compile_limit > 0) t.device.limit = &limit, t.device.n_limit = 1;
    TRY(check_numbers(o, d));
    TRY(api_math_form(o->math, &t.device.fast_math, d));
    TRY(api_state_form(o->state, &t.state, d));
    if (o->documents && !docs_find(o->documents, &t.docs))
        return diag_fail(d, AN_USAGE, NOWHERE, "documents \"%.40s\": auto, whole, endoftext, blank or lines",
                         o->documents);
    an_status st = lm_run(&t, &q, d);
    take_result(&q, r);
    return st;
}

an_status an_lm_train(const an_lm_train_options *o, an_lm_train_result *r, an_error *e)
{
    diag d = { 0 };
    *r = (an_lm_train_result){ .loss = (double)NAN, .smooth = (double)NAN, .validation = (double)NAN };
    watch *w = calloc(1, sizeof *w);
    if (!w || (o->profile && !(w->lanes = plot_lanes_new()))) return free(w), diag_nomem(&d), api_error(e, &d);
    w->o = o;
    char *losses = losses_path(w);
    an_status st = losses ? path_plain(losses, &d) : AN_OK; /* a pipe would be waited for when the first line is due */
    free(losses);
    if (!st) st = run_it(o, w, r, &d);
    if (!w->begun) remember(w, r->done); /* all of it was done by earlier processes */
    st = draw(w, r, &d); /* d keeps what the run itself failed for */
    lines_close(w->losses);
    plot_lanes_free(w->lanes);
    free(w);
    return st ? api_error(e, &d) : AN_OK;
}

void an_lm_train_result_free(an_lm_train_result *r)
{
    free(r->plot), free(r->plot_ascii), free(r->svg), free(r->lanes), free(r->trace);
    r->plot = r->plot_ascii = r->svg = r->lanes = r->trace = NULL;
}

int an_net_known(const char *name)
{
    return net_find(name) != NULL;
}

/* ---- gradients ---- */

static void wrong_ids(const an_array_info *a, const char *called, diag *d)
{
    strbuf dims = { 0 };
    for (int i = 0; i < a->rank; i++) sb_printf(&dims, "%s%lld", i ? ", " : "", (long long)a->dim[i]);
    diag_fail(d, AN_INPUT, NOWHERE, "%.200s%sthe ids are %s [%s]; int32 [B, T + 1], B and T at least 1, is wanted",
              called, *called ? ": " : "", a->dtype, dims.at ? dims.at : "");
    sb_free(&dims);
}

an_status an_lm_grad(const char *model, const char *engine, int threads, const an_array *ids, const char *out,
                     an_lm_gradients *r, an_error *e)
{
    diag d = { 0 };
    an_array_info a;
    lm_grad_result q = { 0 };
    const char *called = api_array_called(ids);
    an_array_get(ids, &a);
    *r = (an_lm_gradients){ .loss = (double)NAN };
    if (strcmp(a.dtype, "int32") || a.rank != 2 || a.dim[0] < 1 || a.dim[1] < 2)
        return wrong_ids(&a, called, &d), api_error(e, &d);
    lm_grad_options o = { .model = model, .engine = engine, .tokens = a.data, .named = called,
                          .batch = a.dim[0], .seq = a.dim[1] - 1, .out = out };
    o.device.threads = threads;
    an_status st = lm_grad(&o, &q, &d);
    r->loss = q.loss, r->tokens = q.tokens;
    return st ? api_error(e, &d) : AN_OK;
}
