/* train.c: gradients and training behind the public header: names become values, options become the trainer's. */
#include <math.h>
#include <stdlib.h>

#include "api/api_int.h"
#include "device/device.h"
#include "grad/grad.h"
#include "target/target.h"
#include "train/run.h"
#include "train/train.h"

/* ---- words ---- */

static an_status unknown_word(const char *what, const char *word, const char *known, diag *d)
{
    return diag_fail(d, AN_USAGE, NOWHERE, "unknown %s \"%.40s\"; known are %s", what, word, known);
}

static an_status conv_form(const char *word, grad_conv_form *out, diag *d)
{
    static const char *const names[] = { "patches", "input-patches", "no-width-offset" };
    *out = GRAD_CONV_PATCHES;
    for (size_t i = 0; word && i < COUNT(names); i++)
        if (!strcmp(names[i], word)) return *out = (grad_conv_form)i, AN_OK;
    return word ? unknown_word("form of the convolution's gradient", word, "patches, input-patches, no-width-offset", d)
                : AN_OK;
}

an_status api_state_form(const char *word, train_state_form *out, diag *d)
{
    static const char *const names[] = { "fp16", "halves", "fp32" };
    *out = TRAIN_STATE_DEFAULT;
    for (size_t i = 0; word && i < COUNT(names); i++)
        if (!strcmp(names[i], word)) return *out = (train_state_form)(TRAIN_F16 + i), AN_OK;
    return word ? unknown_word("state", word, "fp16, halves, fp32", d) : AN_OK;
}

an_status api_math_form(const char *word, int *out, diag *d)
{
    *out = word && !strcmp(word, "bf16");
    return word && !*out && strcmp(word, "fp32") ? unknown_word("arithmetic", word, "fp32, bf16", d) : AN_OK;
}

static an_status type_word(const char *word, dtype *out, diag *d)
{
    if (!word) return diag_fail(d, AN_USAGE, NOWHERE, "no element type is named");
    *out = dtype_from_name(word, strlen(word));
    if (*out == DT_NONE || *out == DT_STRING)
        return diag_fail(d, AN_INPUT, NOWHERE, "unknown element type \"%.20s\"", word);
    return AN_OK;
}

static an_status value_of(const graph *g, const char *what, const char *name, val *out, diag *d)
{
    *out = name ? graph_find(g, name) : NO_VAL;
    if (out->i) return AN_OK;
    return name ? diag_fail(d, AN_INPUT, NOWHERE, "%s %.80s is no value of %s", what, name, g->title)
                : diag_fail(d, AN_USAGE, NOWHERE, "no %s is named", what);
}

/* ---- gradients ---- */

/* "FILE:LINE: conv y: ": the statement of the program that the slice belongs to. */
static void put_place(strbuf *b, const graph *g, const grad_hazard *h, const char *file)
{
    if (file) sb_puts(b, file);
    if (h->at.line) sb_printf(b, file ? ":%u" : "line %u", h->at.line);
    if (file || h->at.line) sb_puts(b, ": ");
    if (h->of) sb_printf(b, "%s %s: ", g->nodes.at[h->of].mil, g->nodes.at[h->of].name);
}

static void put_hazard(strbuf *b, const graph *g, const grad_hazard *h, const char *file, an_format f)
{
    bool known = h->largest < HUGE_VAL, bounded = h->safe_scale < HUGE_VAL && h->safe_scale > 0;
    if (f == AN_JSON) {
        sb_printf(b, "{\"kind\":\"hazard\",\"op\":\"%s\",\"name\":", h->mil);
        sb_json(b, h->name, strlen(h->name));
        if (h->of) {
            sb_printf(b, ",\"of\":{\"op\":\"%s\",\"name\":", g->nodes.at[h->of].mil);
            sb_json(b, g->nodes.at[h->of].name, strlen(g->nodes.at[h->of].name));
            sb_putc(b, '}');
        }
        sb_printf(b, ",\"line\":%u,\"limit\":%g,\"largest\":", h->at.line, GRAD_WIDTH_LIMIT);
        if (known) sb_printf(b, "%g", h->largest);
        else sb_puts(b, "null");
        sb_printf(b, ",\"scales\":%s,\"safe_loss_scale\":", h->scales ? "true" : "false");
        if (bounded) sb_printf(b, "%g}\n", h->safe_scale);
        else sb_puts(b, "null}\n");
        return;
    }
    put_place(b, g, h, file);
    sb_printf(b, "%s %s: a slice with a width offset; m1 and m2 turn magnitudes above %g into infinity there; ", h->mil,
              h->name, GRAD_WIDTH_LIMIT);
    if (known) sb_printf(b, "%g can reach it", h->largest);
    else sb_puts(b, "what can reach it is not known before running");
    if (bounded) sb_printf(b, "; up to a loss scale of %g nothing here passes that", h->safe_scale);
    else if (h->scales) sb_puts(b, "; it grows with the loss scale");
    sb_putc(b, '\n');
}

static an_status not_finite(const an_array *array, const ttype *t, int64_t k, double was, diag *d)
{
    const char *file = api_array_file(array);
    an_array_info a;
    strbuf at = { 0 };
    an_array_get(array, &a);
    int64_t index[MAX_RANK];
    for (int i = a.rank; i-- > 0; k /= a.dim[i]) index[i] = k % a.dim[i];
    for (int i = 0; i < a.rank; i++) sb_printf(&at, "%s%lld", i ? ", " : "", (long long)index[i]);
    diag_fail(d, AN_INPUT, NOWHERE, "%.200s%sthe sample of %s has %g at [%s]%s%s, wanted finite numbers",
              file ? file : "", file ? ": " : "", a.name, was, at.at ? at.at : "",
              was - was == 0 ? ", which is infinite in " : "", was - was == 0 ? dtype_name(t->dt) : "");
    return sb_free(&at), d->st;
}

/* The sample of one input, rounded to its type as the engine would get it. */
static an_status sample_read(const an_array *array, const value *v, arena *mem, tensor64 *out, diag *d)
{
    const ttype *t = &v->type;
    an_array_info a;
    int64_t n;
    an_array_get(array, &a);
    bool same = shape_elems(&t->sh, &n) && a.rank == t->sh.rank;
    for (int k = 0; same && k < a.rank; k++) same = a.dim[k] == t->sh.d[k];
    if (!same) {
        strbuf b = { 0 };
        sb_shape(&b, &t->sh);
        diag_fail(d, AN_INPUT, NOWHERE, "the sample of %s has another shape; wanted %s", v->name, b.at ? b.at : "?");
        return sb_free(&b), d->st;
    }
    dtype from = dtype_from_name(a.dtype, strlen(a.dtype));
    *out = (tensor64){ *t, TAKE(mem, double, n) };
    if (!out->x) return diag_nomem(d);
    for (int64_t k = 0; k < n; k++) {
        double x = dtype_load(from, a.data, k);
        out->x[k] = dtype_round(t->dt, x);
        if (out->x[k] - out->x[k] != 0) return not_finite(array, t, k, x, d);
    }
    return AN_OK;
}

/* One tensor per input in the graph's order; without numbers where there is no sample. */
static an_status sample_of(const graph *g, const an_grad_options *o, arena *mem, tensor64 **out, diag *d)
{
    *out = NULL;
    if (!o->sample) return AN_OK;
    if (!(*out = TAKE(mem, tensor64, g->inputs.n))) return diag_nomem(d);
    for (size_t i = 0; i < g->inputs.n; i++) (*out)[i].type = *graph_type(g, g->inputs.at[i]);
    for (size_t k = 0; k < o->n_sample; k++) {
        an_array_info a;
        size_t i = 0;
        an_array_get(o->sample[k], &a);
        while (i < g->inputs.n && strcmp(graph_value(g, g->inputs.at[i])->name, a.name)) i++;
        if (i == g->inputs.n)
            return diag_fail(d, AN_INPUT, NOWHERE, "sample %.80s is no input of %s", a.name, g->title);
        if ((*out)[i].x) return diag_fail(d, AN_INPUT, NOWHERE, "there are two samples of the input %s", a.name);
        TRY(sample_read(o->sample[k], graph_value(g, g->inputs.at[i]), mem, &(*out)[i], d));
    }
    return AN_OK;
}

/* Has the engine the limit? Without one: some chip has. */
static an_status has_limit(const char *engine, bool *on, diag *d)
{
    const char *colon = engine ? strchr(engine, ':') : NULL;
    const chip *c = colon ? chip_find(colon + 1) : NULL;
    if (engine && !device_known(engine))
        return diag_fail(d, AN_USAGE, NOWHERE, "unknown engine \"%.40s\"; soft:m1 … soft:m5, cpu and null are known",
                         engine);
    *on = !engine || (c && chip_limit(c, "f_slice_x16") > 0);
    return AN_OK;
}

static bool has_op(const graph *g, op_id op)
{
    for (size_t i = 1; i < g->nodes.n; i++)
        if (g->nodes.at[i].op == op) return true;
    return false;
}

static an_status hazards_of(const graph *g, const an_grad_options *o, const grad_options *go, char **out, an_format f,
                            diag *d)
{
    arena mem = { 0 };
    grad_hazard *h;
    size_t n = 0;
    bool grows = false, limit = false;
    strbuf b = { 0 };
    tensor64 *sample;
    an_status st = has_limit(o->engine, &limit, d);
    if (!st) st = sample_of(g, o, &mem, &sample, d);
    if (!st && limit) st = grad_preflight(g, go->info, o->loss_scale == 0 ? 1 : o->loss_scale, sample, &mem, &h, &n, d);
    for (size_t i = 0; !st && i < n; i++) {
        put_hazard(&b, g, &h[i], o->file, f);
        grows = grows || h[i].scales;
    }
    if (grows && f == AN_TEXT && go->conv_weight == GRAD_CONV_PATCHES && has_op(g, OP_CONV))
        sb_puts(&b, "fix: the forms input-patches and no-width-offset of a convolution's weight gradient have no slice that carries the loss scale; the second has none with a width offset\n");
    arena_free(&mem);
    if (st) return sb_free(&b), st;
    *out = api_take(&b);
    return *out ? AN_OK : diag_nomem(d);
}

static an_status differentiate(graph *g, const an_grad_options *o, char **hazards, an_format f, diag *d)
{
    val loss;
    grad_info info = { 0 };
    grad_options go = { .loss_scale = o->loss_scale, .info = &info };
    size_t n = o->wrt ? o->n_wrt : g->inputs.n, k = 0;
    TRY(value_of(g, "loss", o->loss, &loss, d));
    TRY(conv_form(o->conv_form, &go.conv_weight, d));
    val *wrt = TAKE(&g->mem, val, n), *out = TAKE(&g->mem, val, n);
    if (!wrt || !out) return diag_nomem(d);
    for (size_t i = 0; i < n; i++) {
        if (o->wrt) TRY(value_of(g, "value to differentiate by", o->wrt[i], &wrt[k++], d));
        else if (dtype_is_float(graph_type(g, g->inputs.at[i])->dt)) wrt[k++] = g->inputs.at[i];
        for (size_t j = 0; o->wrt && j < i; j++)
            if (wrt[j].i == wrt[i].i)
                return diag_fail(d, AN_INPUT, NOWHERE, "%.80s is named twice among the values to differentiate by",
                                 o->wrt[i]);
    }
    if (!k)
        return diag_fail(d, o->wrt ? AN_USAGE : AN_INPUT, NOWHERE,
                         o->wrt ? "no value to differentiate by is named" : "%s has no float input to differentiate by",
                         g->title);
    for (size_t i = 0; i < k; i++)
        for (size_t j = 0; j < g->outputs.n; j++)
            if (!strncmp(g->outputs.at[j].name, "grad_", 5) &&
                !strcmp(g->outputs.at[j].name + 5, graph_value(g, wrt[i])->name))
                return diag_fail(d, AN_INPUT, NOWHERE, "%s has an output %s already", g->title, g->outputs.at[j].name);
    TRY(grad_build(g, loss, wrt, (int)k, out, &go, d));
    for (size_t i = 0; i < k; i++) {
        char *name = arena_printf(&g->mem, "grad_%s", graph_value(g, wrt[i])->name);
        if (!name) return diag_nomem(d);
        graph_output(g, name, out[i]);
    }
    TRY(graph_finish(g, d));
    return hazards ? hazards_of(g, o, &go, hazards, f, d) : AN_OK;
}

an_status an_program_differentiate(an_program *p, const an_grad_options *o, char **hazards, an_format f, an_error *e)
{
    diag d = { 0 };
    graph *g = api_graph(p);
    graph_mark before = graph_save(g);
    if (hazards) *hazards = NULL;
    if (!differentiate(g, o, hazards, f, &d)) return AN_OK;
    graph_back(g, before); /* it is what it was, and may be tried again */
    return api_error(e, &d);
}

/* ---- a user's own graph ---- */

struct an_trainer {
    trainer *t;
};

static an_status all_named(const char *what, const char *const *list, size_t n, diag *d)
{
    for (size_t i = 0; i < n; i++)
        if (!list || !list[i]) return diag_fail(d, AN_USAGE, NOWHERE, "no %s is named at %zu of %zu", what, i, n);
    return AN_OK;
}

static bool listed(const char *const *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(list[i], name)) return true;
    return false;
}

static an_status open_trainer(trainer **out, const graph *g, const an_train_options *o, arena *mem, diag *d)
{
    train_options t = { .engine = o->engine, .optimizer = o->optimizer, .momentum = o->momentum, .beta1 = o->beta1,
                        .beta2 = o->beta2, .eps = o->eps, .decay = o->decay, .clip = o->clip, .accum = o->accum,
                        .loss_scale = o->loss_scale, .dynamic_scale = o->dynamic_scale != 0,
                        .freeze_unreached = o->freeze_unreached != 0, .warn = o->on_warning, .user = o->user,
                        .n_param = o->n_params, .n_fetch = o->n_fetch };
    t.device.threads = o->threads;
    TRY(api_math_form(o->math, &t.device.fast_math, d));
    TRY(api_state_form(o->state, &t.state, d));
    TRY(conv_form(o->conv_form, &t.conv_weight, d));
    TRY(value_of(g, "loss", o->loss, &t.loss, d));
    TRY(all_named("parameter", o->params, o->n_params, d));
    TRY(all_named("parameter without decay", o->no_decay, o->n_no_decay, d));
    TRY(all_named("fetched value", o->fetch, o->n_fetch, d));
    for (size_t i = 0; i < o->n_no_decay; i++)
        if (!listed(o->params, o->n_params, o->no_decay[i]))
            return diag_fail(d, AN_INPUT, NOWHERE, "%.80s is to have no decay, but is no parameter", o->no_decay[i]);
    train_param *p = TAKE(mem, train_param, o->n_params);
    train_fetched *f = TAKE(mem, train_fetched, o->n_fetch);
    if (!p || !f) return diag_nomem(d);
    for (size_t i = 0; i < o->n_params; i++)
        p[i] = (train_param){ o->params[i], !listed(o->no_decay, o->n_no_decay, o->params[i]) };
    for (size_t i = 0; i < o->n_fetch; i++) {
        f[i].name = o->fetch[i];
        TRY(value_of(g, "fetched value", o->fetch[i], &f[i].v, d));
    }
    t.param = p, t.fetch = f;
    return train_open(out, g, &t, d);
}

an_status an_trainer_open(an_trainer **out, an_program *p, const an_train_options *o, an_error *e)
{
    diag d = { 0 };
    arena mem = { 0 };
    *out = NULL;
    an_trainer *t = calloc(1, sizeof *t);
    if (!t) diag_nomem(&d);
    else if (!open_trainer(&t->t, api_graph(p), o, &mem, &d)) *out = t;
    else free(t);
    arena_free(&mem);
    return d.st ? api_error(e, &d) : AN_OK;
}

void an_trainer_close(an_trainer *t)
{
    if (!t) return;
    train_close(t->t);
    free(t);
}

static an_status words_of(const char *name, const char *type, const void *data, dtype *dt, diag *d)
{
    if (!name) return diag_fail(d, AN_USAGE, NOWHERE, "no input, state or fetched value is named");
    if (!data)
        return diag_fail(d, AN_USAGE, NOWHERE, "there is no room for the numbers of %.80s, or none are given", name);
    return type_word(type, dt, d);
}

/* The four calls that move numbers differ in one function. */
#define MOVES(call, inner, constness)                                                                                 \
    an_status call(an_trainer *t, const char *name, const char *type, constness void *data, an_error *e)              \
    {                                                                                                                 \
        diag d = { 0 };                                                                                               \
        dtype dt;                                                                                                     \
        return words_of(name, type, data, &dt, &d) || inner(t->t, name, dt, data, &d) ? api_error(e, &d) : AN_OK;           \
    }
MOVES(an_trainer_write, train_write, const)
MOVES(an_trainer_put, train_put, const)
MOVES(an_trainer_read, train_read, )
MOVES(an_trainer_fetch, train_fetch, )
#undef MOVES

an_status an_trainer_step(an_trainer *t, double lr, an_train_report *r, an_error *e)
{
    diag d = { 0 };
    train_report p;
    an_status st = train_step(t->t, lr, &p, &d);
    *r = (an_train_report){ .loss = p.loss, .grad_norm = p.grad_norm, .lr = p.lr, .loss_scale = p.loss_scale, .finite = p.finite, .applied = p.applied,
                            .step = p.step, .skipped = p.skipped, .zeros = p.zeros };
    return st ? api_error(e, &d) : AN_OK;
}

an_status an_trainer_eval(an_trainer *t, an_error *e)
{
    diag d = { 0 };
    return train_eval(t->t, &d) ? api_error(e, &d) : AN_OK;
}

static an_status path_given(const char *path, diag *d)
{
    return path ? AN_OK : diag_fail(d, AN_USAGE, NOWHERE, "no checkpoint is named");
}

an_status an_trainer_save(an_trainer *t, const char *path, an_error *e)
{
    diag d = { 0 };
    return path_given(path, &d) || train_save(t->t, path, NULL, 0, &d) ? api_error(e, &d) : AN_OK;
}

an_status an_trainer_load(an_trainer *t, const char *path, an_error *e)
{
    diag d = { 0 };
    return path_given(path, &d) || train_load(t->t, path, NULL, 0, NULL, &d) ? api_error(e, &d) : AN_OK;
}

char *an_trainer_stats(an_trainer *t, an_format f)
{
    strbuf b = { 0 };
    train_print_stats(t->t, &b, api_format(f));
    return api_take(&b);
}

const char *an_trainer_program(const an_trainer *t) { return train_program_text(t->t); }

/* ---- networks by name ---- */

an_status api_bounds(const api_bound *rows, size_t n, diag *d)
{
    for (const api_bound *r = rows; r < rows + n; r++)
        if (!(r->is >= 0) && r->is != r->least)
            return diag_fail(d, AN_USAGE, NOWHERE, "%s is %g, wanted 0 or more%s", r->what, r->is,
                             r->least < 0 ? ", or -1" : "");
    return AN_OK;
}

/* 0 is the default of each; -1 is none of what every and final_test say. */
static an_status check_counts(const an_train_run_options *o, diag *d)
{
    const api_bound rows[] = { { "steps", (double)o->steps, 0 }, { "seq", (double)o->seq, 0 }, { "warmup", (double)o->warmup, 0 }, { "lr_end", o->lr_end, 0 }, { "decay", o->decay, 0 }, { "loss_scale", o->loss_scale, 0 },
                               { "stop_after", (double)o->stop_after, 0 }, { "every", (double)o->every, -1 }, { "test", (double)o->test, 0 }, { "final_test", (double)o->final_test, -1 } };
    return api_bounds(rows, COUNT(rows), d);
}

an_status an_train(const an_train_run_options *o, an_train_result *r, an_error *e)
{
    diag d = { 0 };
    train_run_result q;
    train_run_options t = { .model = o->model, .data = o->data, .engine = o->engine, .pipeline = o->pipeline,
                            .steps = o->steps, .batch = o->batch, .seq = o->seq, .lr = o->lr,
                            .lr_end = o->no_lr_end ? -1 : o->lr_end, .schedule = o->schedule,
                            .warmup = o->no_warmup ? -1 : o->warmup, .optimizer = o->optimizer,
                            .decay = o->no_decay ? -1 : o->decay, .clip = o->clip, .accum = o->accum,
                            .loss_scale = o->loss_scale, .dynamic_scale = o->dynamic_scale != 0, .seed = o->seed,
                            .every = o->every, .test = o->test, .final_test = o->final_test, .save = o->save,
                            .resume = o->resume, .stop_after = o->stop_after, .on_start = o->on_start,
                            .on_log = o->on_log, .on_accuracy = o->on_accuracy, .warn = o->on_warning, .stop = o->stop,
                            .user = o->user };
    t.device.threads = o->threads;
    *r = (an_train_result){ .loss = (double)NAN, .final_accuracy = (double)NAN };
    if (check_counts(o, &d) || api_math_form(o->math, &t.device.fast_math, &d) ||
        api_state_form(o->state, &t.state, &d))
        return api_error(e, &d);
    an_status st = train_run(&t, &q, NULL, &d);
    memcpy(r->model, q.model, sizeof r->model);
    memcpy(r->data, q.data, sizeof r->data);
    memcpy(r->engine, q.engine, sizeof r->engine);
    memcpy(r->optimizer, q.optimizer, sizeof r->optimizer);
    r->steps = q.steps, r->batch = q.batch, r->n_train = q.n_train, r->n_test = q.n_test, r->final_n = q.final_n,
    r->parameters = q.stats.n_numbers;
    r->first = q.first, r->done = q.done, r->stopped = q.stopped;
    r->loss = q.loss, r->final_accuracy = q.final_accuracy, r->seconds = q.seconds, r->digest = q.digest;
    r->updates = q.stats.steps, r->skipped = q.stats.skipped, r->zeros = q.stats.zeros,
    r->dispatches = q.stats.dispatches, r->minibatches = q.stats.minibatches, r->ran = q.stats.ran;
    r->host_bytes_in = q.stats.host_bytes_in, r->host_bytes_out = q.stats.host_bytes_out,
    r->state_bytes = q.stats.state_bytes;
    return st ? api_error(e, &d) : AN_OK;
}
