/* pipe.c: the ways to train, by name; options checked once, calls handed on. */
#include <stdlib.h>

#include "train/pipe_int.h"

static const char *const names[PIPE_COUNT] = {
#define PIPE(id, name, what) name,
#include "train/pipes.def"
#undef PIPE
};

const char *pipe_name(pipe_kind k) { return names[k]; }

bool pipe_find(const char *name, pipe_kind *out)
{
    for (int i = 0; i < PIPE_COUNT; i++)
        if (!name || !strcmp(name, names[i])) return *out = (pipe_kind)i, true;
    return false;
}

static const pipe_ops *const ops[PIPE_COUNT] = { [PIPE_RESIDENT] = &pipe_resident,
                                                 [PIPE_DELTA] = &pipe_host,
                                                 [PIPE_DYNAMIC] = &pipe_host,
                                                 [PIPE_RESTART] = &pipe_host };

static an_status check(const pipe_options *o, pipe_kind *kind, diag *d)
{
    if (!pipe_find(o->pipeline, kind)) {
        strbuf b = { 0 };
        for (int i = 0; i < PIPE_COUNT; i++) sb_printf(&b, "%s%s", i ? ", " : "", names[i]);
        diag_fail(d, AN_USAGE, NOWHERE, "unknown pipeline \"%.40s\"; known are %s", o->pipeline, b.at ? b.at : "");
        return sb_free(&b), d->st;
    }
    TRY(model_config_check(o->config, d));
    int64_t seq = o->seq ? o->seq : o->config->seq;
    if (o->batch < 0 || o->batch > 4096)
        return diag_fail(d, AN_USAGE, NOWHERE, "batch %lld; 1 to 4096 is wanted", (long long)o->batch);
    const double s = o->train.loss_scale; /* of every pipeline and device: above it a gradient of one has no fp16 */
    if (!(s == 0 || (s >= 1e-3 && s <= 65504)))
        return diag_fail(d, AN_USAGE, NOWHERE, "a loss scale of %g; 0.001 to 65504, or a dynamic one, is wanted", s);
    if (seq < 1 || seq > o->config->context)
        return diag_fail(d, AN_USAGE, NOWHERE, "%lld positions; the model takes 1 to %lld", (long long)seq,
                         (long long)o->config->context);
    return AN_OK;
}

an_status pipe_open(pipeline **out, const pipe_options *o, diag *d)
{
    pipe_kind kind = PIPE_RESIDENT;
    *out = NULL;
    TRY(check(o, &kind, d));
    pipeline *p = calloc(1, sizeof *p);
    if (!p) return diag_nomem(d);
    p->kind = kind, p->o = *o, p->c = *o->config, p->o.config = &p->c;
    p->B = o->batch ? o->batch : 1, p->T = o->seq ? o->seq : o->config->seq;
    p->c.dt = device_is_plain(o->dev) ? DT_F32 : DT_F16;
    p->ops = ops[kind];
    p->way = p->ops->make(p, d);
    if (!p->way) return free(p), d->st ? d->st : diag_nomem(d);
    *out = p;
    return AN_OK;
}

void pipe_close(pipeline *p)
{
    if (!p) return;
    pipe_close(p->probe);
    p->ops->drop(p->way);
    free(p->suspect);
    free(p);
}

static const chip *chip_of(device *dev)
{
    const char *colon = strchr(device_name(dev), ':');
    return device_is_plain(dev) || !colon ? NULL : chip_find(colon + 1);
}

const chip *pipe_chip(const pipeline *p) { return chip_of(p->o.dev); }

bool pipe_whole_vocabulary(device *dev, const model_config *c)
{
    const chip *ch = chip_of(dev);
    return !ch || (double)c->vocab <= chip_limit(ch, "max_dim");
}

pipe_kind pipe_kind_of(const pipeline *p) { return p->kind; }

static an_status check_ids(const pipeline *p, const int32_t *tokens, diag *d)
{
    for (int64_t i = 0; i < p->B * (p->T + 1); i++)
        if (tokens[i] < 0 || tokens[i] >= p->c.vocab)
            return diag_fail(d, AN_INPUT, NOWHERE, "token %d at position %lld; the vocabulary has %lld", tokens[i],
                             (long long)i, (long long)p->c.vocab);
    return AN_OK;
}

an_status pipe_step(pipeline *p, const int32_t *tokens, double lr, train_report *r, bool *again, diag *d)
{
    *again = false;
    TRY(check_ids(p, tokens, d));
    diag why = { 0 };
    r->verdict = VERDICT_FINE;
    an_status st = p->ops->step(p->way, tokens, lr, r, again, &why);
    p->last = r->verdict;
    if (!st && p->kind == PIPE_RESIDENT && r->verdict != VERDICT_FINE) return pipe_weights_finite(p, d);
    if (st != AN_MISMATCH || p->kind != PIPE_RESIDENT) return st ? diag_fail(d, st, why.at, "%s", why.msg) : AN_OK;
    pipe_seen seen; /* it ends here: find out where it began */
    diag none = { 0 };
    bool known = !pipe_inspect(p, p->suspect ? p->suspect : tokens, r->loss_scale, &seen, &none) && seen.first[0];
    if (r->verdict == VERDICT_NOTHING && !known) return diag_fail(d, st, why.at, "%s", why.msg);
    return diag_fail(d, st, why.at, "%s; the first tensor that went bad is %s", why.msg,
                     known ? seen.first : "not known");
}

an_status pipe_loss(pipeline *p, const int32_t *tokens, double *loss, diag *d)
{
    TRY(check_ids(p, tokens, d));
    p->last = VERDICT_FINE; /* who asks what was not finite now means this */
    return p->ops->loss(p->way, tokens, loss, d);
}

size_t pipe_state_count(const pipeline *p) { return p->ops->states(p->way); }
void pipe_state_at(const pipeline *p, size_t i, train_state_info *out) { p->ops->state_at(p->way, i, out); }
an_status pipe_write(pipeline *p, const char *name, dtype dt, const void *data, diag *d)
{
    return p->ops->write(p->way, name, dt, data, d);
}
an_status pipe_read(pipeline *p, const char *name, dtype dt, void *data, diag *d)
{
    return p->ops->read(p->way, name, dt, data, d);
}

an_status pipe_save(pipeline *p, const char *path, const train_note *note, size_t n_note, diag *d)
{
    return p->ops->save(p->way, path, note, n_note, d);
}

an_status pipe_load(pipeline *p, const char *path, train_note *note, size_t n_note, arena *mem, diag *d)
{
    return p->ops->load(p->way, path, note, n_note, mem, d);
}

void pipe_get_stats(pipeline *p, pipe_stats *out)
{
    *out = (pipe_stats){ 0 };
    p->ops->stats(p->way, out);
}

void pipe_weight_name(model_weight_id id, int layer, char *buf, size_t n)
{
    static const char *const name[] = {
#define WEIGHT(wid, text, rows, cols, scope, when) text,
#include "model/weights.def"
#undef WEIGHT
    };
    if (layer >= 0) snprintf(buf, n, "l%02d_%s", layer, name[id]);
    else snprintf(buf, n, "%s", name[id]);
}

/* ---- tokens as inputs ---- */

an_status pipe_tokens_make(pipe_tokens *t, const pipeline *p, diag *d)
{
    size_t n = (size_t)(p->B * p->T);
    *t = (pipe_tokens){ .in = calloc(2 * n, sizeof *t->in), .in_hi = calloc(4 * n, sizeof *t->in_hi) };
    if (!t->in || !t->in_hi) return pipe_tokens_free(t), diag_nomem(d);
    t->out = t->in + n;
    t->in_lo = t->in_hi + n, t->out_hi = t->in_hi + 2 * n, t->out_lo = t->in_hi + 3 * n;
    return AN_OK;
}

void pipe_tokens_free(pipe_tokens *t)
{
    free(t->in), free(t->in_hi);
    *t = (pipe_tokens){ 0 };
}

void pipe_tokens_take(pipe_tokens *t, const pipeline *p, const int32_t *tokens)
{
    for (int64_t b = 0; b < p->B; b++)
        for (int64_t i = 0; i < p->T; i++) {
            int64_t to = b * p->T + i;
            const int32_t *at = tokens + b * (p->T + 1) + i;
            t->in[to] = at[0], t->out[to] = at[1];
            t->in_hi[to] = (float)(at[0] / MODEL_ID_BASE), t->in_lo[to] = (float)(at[0] % MODEL_ID_BASE);
            t->out_hi[to] = (float)(at[1] / MODEL_ID_BASE), t->out_lo[to] = (float)(at[1] % MODEL_ID_BASE);
        }
}
