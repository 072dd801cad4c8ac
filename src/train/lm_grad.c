/* lm_grad.c: one minibatch of a group of two: the accumulators then hold its gradient times the loss scale. They are
 * written as if they were weights, so that names, fused and turned tensors and rotary order are the converter's
 * business alone. */
#include <math.h>
#include <stdlib.h>

#include "train/lm_grad.h"
#include "train/lm_shape.h"

/* ---- computing ---- */

/* One program; where no axis of the device holds the vocabulary, those of a way that cuts it into parts. */
static an_status open_way(pipeline **out, pipe_options *o, diag *d)
{
    static const pipe_kind in_parts[] = { PIPE_DELTA, PIPE_DYNAMIC };
    if (pipe_whole_vocabulary(o->dev, o->config)) return pipe_open(out, o, d);
    for (size_t i = 0; i < COUNT(in_parts); i++) {
        diag why = { 0 };
        o->pipeline = pipe_name(in_parts[i]);
        an_status st = pipe_open(out, o, &why);
        if (!st) return AN_OK;
        if (st != AN_UNSUPPORTED) return diag_fail(d, st, why.at, "%s", why.msg);
    }
    return diag_fail(
        d, AN_UNSUPPORTED, NOWHERE,
        "%s holds neither the vocabulary of %lld tokens in one piece nor the programs of %lld layers with it in parts: take engine cpu",
        device_name(o->dev), (long long)o->config->vocab, (long long)o->config->n_layers);
}

enum { SCALE = 4096, TRIES = 24 };

/* Ids as rows of what is trained. */
static an_status rows_of(const lm_grad_options *o, const lm_shape *s, int32_t **out, diag *d)
{
    const size_t n = (size_t)(o->batch * (o->seq + 1));
    const char *named = o->named && *o->named ? o->named : "the ids";
    for (size_t i = 0; i < n; i++) {
        const int32_t id = o->tokens[i];
        if (id < 0 || id >= s->file.vocab)
            return diag_fail(d, AN_INPUT, NOWHERE, "%.200s: token %d at position %zu; the vocabulary has %lld", named,
                             id, i, (long long)s->file.vocab);
        if (s->ids && s->row_of[id] < 0)
            return diag_fail(
                d, AN_INPUT, NOWHERE,
                "%.200s: token %d at position %zu: %.160s was trained on %zu tokens of its vocabulary, and it is none of them",
                named, id, i, lm_path(s->start), s->n_ids);
    }
    if (!(*out = malloc(n * sizeof **out))) return diag_nomem(d);
    memcpy(*out, o->tokens, n * sizeof **out);
    for (size_t i = 0; s->ids && i < n; i++) (*out)[i] = s->row_of[(*out)[i]];
    return AN_OK;
}

static an_status compute(const int32_t *tokens, pipeline *p, lm_grad_result *out, diag *d)
{
    for (int i = 0; i < TRIES; i++) {
        train_report r;
        bool again;
        TRY(pipe_step(p, tokens, 0, &r, &again, d));
        out->loss = r.loss, out->scale = r.loss_scale;
        if (r.finite) return AN_OK;
        TRY(pipe_step(p, tokens, 0, &r, &again, d)); /* the group is lost: this ends it and halves the scale */
    }
    return diag_fail(d, AN_MISMATCH, NOWHERE, "the gradients are not finite, down to a loss scale of %g", out->scale);
}

/* ---- writing ---- */

typedef struct {
    pipeline *p;
    const lm_shape *s;
    double scale;
} gradients;

/* Rows of ids the model does not answer with have none. */
static void spread(const lm_shape *s, const float *x, float *to)
{
    const int64_t D = s->file.dim;
    memset(to, 0, (size_t)(s->file.vocab * D) * sizeof *to);
    for (size_t i = 0; i < s->n_ids; i++) memcpy(to + s->ids[i] * D, x + (int64_t)i * D, (size_t)D * sizeof *x);
}

static an_status fetch(void *user, model_weight_id id, int layer, float *to, diag *d)
{
    const gradients *g = user;
    char name[64];
    int64_t n = 0;
    pipe_weight_name(id, layer, name, sizeof name - 5);
    strcat(name, ".acc");
    for (size_t i = 0; i < pipe_state_count(g->p); i++) {
        train_state_info s;
        pipe_state_at(g->p, i, &s);
        if (!strcmp(s.name, name) && !shape_elems(&s.type.sh, &n))
            return diag_fail(d, AN_BUG, NOWHERE, "%s has no size", name);
    }
    float *rows = g->s->ids && (id == MW_EMBED || id == MW_HEAD) ? malloc((size_t)n * sizeof *rows) : to;
    if (!rows) return diag_nomem(d);
    an_status st = pipe_read(g->p, name, DT_F32, rows, d);
    for (int64_t k = 0; k < n && !st; k++) rows[k] = (float)((double)rows[k] / g->scale);
    if (rows == to) return st;
    if (!st) spread(g->s, rows, to);
    free(rows);
    return st;
}

static an_status write_file(lm_model *m, const lm_shape *s, pipeline *p, const lm_grad_options *o, double scale,
                            pool *threads, diag *d)
{
    gradients g = { .p = p, .s = s, .scale = scale };
    lm_convert_options co = {
        .to = LM_TO_SAFETENSORS, .dt = DT_F32, .version = -1, .slopes = true, .threads = threads
    };
    if (lm_origin_of(m) == LM_FROM_HF || lm_origin_of(m) == LM_FROM_SAFETENSORS) co.named = m;
    lm_model *as_model;
    lm_converted done;
    TRY(lm_from_memory("gradients", &s->file, NULL, fetch, &g, &(lm_options){ .dt = DT_F32, .threads = threads },
                       &as_model, d));
    an_status st = lm_convert(as_model, o->out, &co, &done, d);
    lm_close(as_model);
    return st;
}

an_status lm_grad(const lm_grad_options *o, lm_grad_result *out, diag *d)
{
    pool *threads = NULL;
    device *dev = NULL;
    lm_model *m = NULL;
    pipeline *p = NULL;
    lm_shape s = { 0 };
    int32_t *rows = NULL;
    *out = (lm_grad_result){ .loss = (double)NAN, .tokens = o->batch * o->seq };
    an_status st = pool_make(&threads, o->device.threads, d);
    device_options dev_o = o->device;
    dev_o.pool = threads;
    if (!st) st = device_open(&dev, o->engine, &dev_o, d);
    if (!st) st = lm_open(o->model, &(lm_options){ .dt = DT_F32, .threads = threads }, &m, d);
    if (!st) st = lm_apart(m, o->out, d);
    if (!st) st = lm_shape_make(&s, m, &(lm_shape_options){ 0 }, d);
    if (!st) st = lm_shape_active(&s, d);
    if (!st) st = rows_of(o, &s, &rows, d);
    if (!st) {
        pipe_options po = { .dev = dev, .pool = threads, .config = &s.c, .batch = o->batch, .seq = o->seq,
                            .train = { .optimizer = "sgd", .accum = 2 } };
        if (!device_is_plain(dev)) po.train.loss_scale = SCALE, po.train.dynamic_scale = true;
        st = open_way(&p, &po, d);
    }
    if (!st) st = lm_shape_put(&s, p, d);
    if (!st) st = compute(rows, p, out, d);
    if (!st) st = write_file(m, &s, p, o, out->scale, threads, d);
    pipe_close(p);
    free(rows);
    lm_shape_free(&s);
    lm_close(m);
    device_close(dev);
    pool_free(threads);
    return st;
}
