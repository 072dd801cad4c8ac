/* convert_llama2c.c: models as llama2.c's files, which fix most of the model: what they cannot say is refused by
 * name. */
#include <stdlib.h>

#include "lm/convert_int.h"

static an_status can_say(const conversion *v, diag *d)
{
    const model_config *c = &v->m->c;
    const struct {
        bool ok;
        const char *what;
    } rows[] = {
        { c->rope != MODEL_ROPE_NONE, "learned positions" },
        { c->norm == MODEL_NORM_RMS, "layer norms" },
        { c->act == MODEL_ACT_SWIGLU, c->act == MODEL_ACT_GELU ? "a feed-forward part without a gate" : "a GELU gate" },
        { !c->bias && !c->bias_qkv && !c->bias_o && !c->bias_mlp, "biases" },
        { !c->qk_norm, "norms of queries and keys" },
        { c->n_heads * c->head_dim == c->dim, "heads that do not divide the width" },
        { c->scaling.kind == MODEL_SCALE_NONE, "scaled rotary angles" },
        { !c->window, "a sliding window" },
        { c->rope_theta == 1e4, "a rope_theta other than 10000" },
        { c->norm_eps == 1e-5, "a norm epsilon other than 1e-5" },
        { c->alpha == 0 || c->alpha == 1, "scaled residual branches" },
        { c->softcap == 0, "a soft cap on its logits" },
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        if (!rows[i].ok)
            return diag_fail(d, AN_INPUT, NOWHERE, "%.150s: llama2.c files cannot say that the model has %s",
                             v->m->path, rows[i].what);
    return AN_OK;
}

typedef struct {
    llama2c_out *w;
    llama2c_id id;
    int64_t layer;
} slot;
static an_status put_slot(void *ctx, const void *p, size_t n, diag *d)
{
    slot *s = ctx;
    return llama2c_put(s->w, s->id, s->layer, p, n, d);
}

/* Groups run along the whole tensor; here they divide every row, as llama2.c's own reader wants. */
static int64_t group_for(const model_config *c)
{
    int64_t g = 64;
    while (c->dim % g || c->hidden % g) g /= 2;
    return g;
}

/* Codes, then scales, each for all rows. */
static an_status put_groups(conversion *v, const slot *to, model_weight_id id, int layer, int64_t group, diag *d)
{
    const store *s = store_at(v->m, id, layer);
    slot at = *to;
    /* as they are */
    if (s->kind == STORE_GROUPS && s->dt == DT_I8 && s->scale_dt == DT_F32 && s->group == group &&
        s->cols % group == 0) {
        TRY(conversion_reordered(v, id, s->data, s->rows, (size_t)s->cols, put_slot, &at, d));
        v->done.tensors++;
        return conversion_reordered(v, id, s->scales, s->rows, (size_t)(s->cols / group) * 4, put_slot, &at, d);
    }
    int64_t n = s->rows * s->cols;
    float *x = malloc((size_t)s->cols * sizeof *x), *scales = malloc((size_t)(n / group) * sizeof *scales);
    int8_t *codes = malloc((size_t)n);
    quant_shape q = { s->rows, s->cols, group, DT_F32 };
    an_status st = x && scales && codes ? AN_OK : diag_nomem(d);
    double peak = 0, error = 0;
    for (int64_t r = 0; r < s->rows && !st; r++) {
        st = store_rows(s, v->m->v, NULL, r, 1, DT_F32, x, s->cols, d);
        if (!st && !quant_row(LM_INT8, &q, x, codes, r * s->cols, scales, r * (s->cols / group)))
            st = diag_fail(d, AN_INPUT, NOWHERE, "%.120s: tensor \"%.80s\" holds values that are not finite", s->file,
                           s->name);
        for (int64_t i = 0; i < s->cols && !st; i++) {
            double y = (double)codes[r * s->cols + i] * (double)scales[(r * s->cols + i) / group], e = y - (double)x[i];
            peak = MAX(peak, x[i] < 0 ? -(double)x[i] : (double)x[i]);
            error = MAX(error, e < 0 ? -e : e);
        }
    }
    if (!st) st = conversion_reordered(v, id, codes, s->rows, (size_t)s->cols, put_slot, &at, d);
    if (!st) st = conversion_reordered(v, id, scales, s->rows, (size_t)(s->cols / group) * 4, put_slot, &at, d);
    if (peak > 0 && error / peak > v->done.worst) v->done.worst = error / peak;
    v->done.tensors++;
    free(x);
    free(scales);
    free(codes);
    return st;
}

static an_status fill(conversion *v, llama2c_out *w, const llama2c_shape *as, diag *d)
{
    lm_model *m = v->m;
    for (size_t i = 0; i < L2C_COUNT; i++)
        for (int l = -1; l < m->c.n_layers; l++) {
            const model_weight_id id = llama2c_weight[i];
            const store *s = store_at(m, id, l);
            if (!s || s->kind == STORE_NONE) continue;
            slot to = { w, (llama2c_id)i, MAX(l, 0) };
            if (as->version == 2 && weight_is_matrix(id)) TRY(put_groups(v, &to, id, l, as->group, d));
            else TRY(conversion_rows(v, id, l, DT_F32, NULL, put_slot, &to, d));
        }
    return AN_OK;
}

an_status convert_llama2c(conversion *v, diag *d)
{
    const model_config *c = &v->m->c;
    TRY(can_say(v, d));
    if (v->o.dt && v->o.dt != DT_F32)
        return diag_fail(d, AN_USAGE, NOWHERE, "llama2.c files hold fp32, or int8 with --quantize int8; %s is neither",
                         dtype_name(v->o.dt));
    int version = v->o.version >= 0 ? v->o.version : v->form == LM_INT8 ? 2 : 0;
    if (version > 2 || (version == 2) != (v->form == LM_INT8))
        return diag_fail(d, AN_USAGE, NOWHERE, "llama2.c version %d %s; 0 and 1 are fp32, 2 is int8", version,
                         v->form == LM_INT8 ? "with int8" : "without int8");
    llama2c_shape s = { .version = version,
                        .dim = c->dim,
                        .hidden = c->hidden,
                        .layers = c->n_layers,
                        .heads = c->n_heads,
                        .kv_heads = c->n_kv_heads,
                        .vocab = c->vocab,
                        .seq = c->context,
                        .shared = c->tied,
                        .group = version == 2 ? group_for(c) : 0 };
    v->rope = MODEL_ROPE_INTERLEAVED;
    const lm_generation *g = &v->m->gen;
    if ((g->bos >= 0 && g->bos != 1) || g->n_eos > 1 || (g->n_eos == 1 && g->eos[0] != 2))
        conversion_loses(v, "in a llama2.c file token 1 begins a text and token 2 ends it");
    conversion_loses_sampling(v, "a llama2.c");
    if (v->m->active)
        conversion_loses(v, "a llama2.c file cannot hold which tokens the model was trained on: all may be answered");
    llama2c_out *w;
    TRY(llama2c_create(v->out, &s, &w, d));
    an_status st = fill(v, w, &s, d);
    if (st) llama2c_abandon(w);
    else st = llama2c_finish(w, d);
    path_info i;
    if (!st && path_look(v->out, &i)) v->done.bytes_out = i.bytes;
    return st;
}
