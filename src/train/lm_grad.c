/* lm_grad.c: one minibatch of a group of two: the accumulators then hold its gradient times the loss scale. They are written as if they
 * were weights, so that names, fused and turned tensors and rotary order are the converter's business alone. */
#include <math.h>
#include <stdlib.h>

#include "train/lm_grad.h"

an_status lm_weights_to(lm_model *m, pipeline *p, diag *d)
{
    const model_config *c = lm_config(m);
    size_t n = model_weights(c, NULL, 0);
    model_weight *w = calloc(n, sizeof *w);
    if (!w) return diag_nomem(d);
    model_weights(c, w, n);
    an_status st = AN_OK;
    for (size_t i = 0; i < n && !st; i++) {
        char name[48];
        lm_tensor t;
        if (!lm_tensor_info(m, w[i].id, w[i].layer, &t)) st = diag_fail(d, AN_BUG, NOWHERE, "the model has no %s", w[i].name);
        float *x = st ? NULL : malloc((size_t)(t.rows * t.cols) * sizeof *x);
        if (!st && !x) st = diag_nomem(d);
        if (!st) st = lm_rows(m, w[i].id, w[i].layer, 0, t.rows, DT_F32, x, d);
        pipe_weight_name(w[i].id, w[i].layer, name, sizeof name);
        if (!st) st = pipe_write(p, name, DT_F32, x, d);
        free(x);
    }
    free(w);
    return st;
}

/* ---- computing ---- */

enum { SCALE = 4096, TRIES = 24 };

static an_status compute(const lm_grad_options *o, pipeline *p, lm_grad_result *out, diag *d)
{
    for (int i = 0; i < TRIES; i++) {
        train_report r;
        bool again;
        TRY(pipe_step(p, o->tokens, 0, &r, &again, d));
        out->loss = r.loss, out->scale = r.loss_scale;
        if (r.finite) return AN_OK;
        TRY(pipe_step(p, o->tokens, 0, &r, &again, d)); /* the group is lost: this ends it and halves the scale */
    }
    return diag_fail(d, AN_MISMATCH, NOWHERE, "the gradients are not finite, down to a loss scale of %g", out->scale);
}

/* ---- writing ---- */

typedef struct {
    pipeline *p;
    const model_config *c;
    double scale;
} gradients;

static an_status fetch(void *user, model_weight_id id, int layer, float *to, diag *d)
{
    const gradients *g = user;
    char name[64];
    int64_t n = 0;
    pipe_weight_name(id, layer, name, sizeof name - 5);
    strcat(name, ".acc");
    TRY(pipe_read(g->p, name, DT_F32, to, d));
    for (size_t i = 0; i < pipe_state_count(g->p); i++) {
        train_state_info s;
        pipe_state_at(g->p, i, &s);
        if (!strcmp(s.name, name) && !shape_elems(&s.type.sh, &n)) return diag_fail(d, AN_BUG, NOWHERE, "%s has no size", name);
    }
    for (int64_t k = 0; k < n; k++) to[k] = (float)((double)to[k] / g->scale);
    return AN_OK;
}

static an_status write_file(lm_model *m, pipeline *p, const lm_grad_options *o, double scale, pool *threads, diag *d)
{
    gradients g = { .p = p, .c = lm_config(m), .scale = scale };
    lm_convert_options co = { .to = LM_TO_SAFETENSORS, .dt = DT_F32, .version = -1, .slopes = true, .threads = threads };
    if (lm_origin_of(m) == LM_FROM_HF || lm_origin_of(m) == LM_FROM_SAFETENSORS) co.named = m;
    lm_model *as_model;
    lm_converted done;
    TRY(lm_from_memory("gradients", g.c, NULL, fetch, &g, &(lm_options){ .dt = DT_F32, .threads = threads }, &as_model, d));
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
    *out = (lm_grad_result){ .loss = (double)NAN, .tokens = o->batch * o->seq };
    an_status st = pool_make(&threads, o->device.threads, d);
    device_options dev_o = o->device;
    dev_o.pool = threads;
    if (!st) st = device_open(&dev, o->engine, &dev_o, d);
    if (!st) st = lm_open(o->model, &(lm_options){ .dt = DT_F32, .threads = threads }, &m, d);
    if (!st) st = lm_apart(m, o->out, d);
    if (!st) {
        pipe_options po = { .dev = dev, .pool = threads, .config = lm_config(m), .batch = o->batch, .seq = o->seq, .train = { .optimizer = "sgd", .accum = 2 } };
        if (!device_is_plain(dev)) po.train.loss_scale = SCALE, po.train.dynamic_scale = true;
        st = pipe_open(&p, &po, d);
    }
    if (!st) st = lm_weights_to(m, p, d);
    if (!st) st = compute(o, p, out, d);
    if (!st) st = write_file(m, p, o, out->scale, threads, d);
    pipe_close(p);
    lm_close(m);
    device_close(dev);
    pool_free(threads);
    return st;
}
