/* pipe_resident.c: the whole model, its gradients and the update as one program: a decoder graph in the hands of a
 * trainer. */
#include <math.h>
#include <stdlib.h>

#include "train/pipe_int.h"
#include "train/train_int.h"

typedef struct {
    pipeline *p;
    trainer *t;
    bool chip;
    pipe_tokens tokens;
    const int32_t *now; /* of the minibatch at hand */
} resident;

static const char LOSS[] = "loss";

/* The embedding is one state, and a state one port. */
static an_status check_vocabulary(const pipeline *p, diag *d)
{
    if (pipe_whole_vocabulary(p->o.dev, &p->c)) return AN_OK;
    return diag_fail(
        d, AN_UNSUPPORTED, NOWHERE,
        "the vocabulary has %lld tokens, and %s takes an axis of %g: train fewer of them, or take pipeline %s, which cuts it into parts",
        (long long)p->c.vocab, device_name(p->o.dev), chip_limit(pipe_chip(p), "max_dim"), pipe_name(PIPE_DELTA));
}

static an_status open_trainer(resident *r, diag *d)
{
    pipeline *p = r->p;
    decoder dec;
    TRY(check_vocabulary(p, d));
    decoder_options o = { .use = DECODER_TRAIN, .chip = r->chip, .param_inputs = true, .batch = p->B, .seq = p->T };
    TRY(decoder_build(&p->c, &o, NULL, &dec, d));
    train_param *list = calloc(dec.n_param, sizeof *list);
    an_status st = list ? AN_OK : diag_nomem(d);
    for (size_t i = 0; i < dec.n_param && !st; i++)
        list[i] = (train_param){ .name = graph_value(dec.g, dec.param[i])->name, .decay = pipe_decays(&dec.weight[i]) };
    train_options t = p->o.train;
    t.engine = NULL, t.dev = p->o.dev, t.loss = dec.loss, t.param = list, t.n_param = dec.n_param;
    t.fetch = &(train_fetched){ LOSS, dec.loss }, t.n_fetch = 1;
    if (p->o.recompute) t.keep = dec.layer_in, t.n_keep = (size_t)p->c.n_layers + 1;
    if (!st) st = train_open(&r->t, dec.g, &t, d);
    free(list);
    graph_free(dec.g);
    return st;
}

static void drop(void *way)
{
    resident *r = way;
    train_close(r->t);
    pipe_tokens_free(&r->tokens);
    free(r);
}

static an_status look_again(void *user, double scale, train_verdict *out, diag *d);

static void *make(pipeline *p, diag *d)
{
    resident *r = calloc(1, sizeof *r);
    if (!r) return diag_nomem(d), NULL;
    r->p = p, r->chip = !device_is_plain(p->o.dev);
    if (pipe_tokens_make(&r->tokens, p, d) || open_trainer(r, d)) return drop(r), NULL;
    r->t->look = look_again, r->t->look_user = r;
    return r;
}

/* Through the kernels that a look at the pipeline is through. */
static an_status look_again(void *user, double scale, train_verdict *out, diag *d)
{
    resident *r = user;
    pipe_seen seen;
    bool any = false;
    r->p->last = VERDICT_NOTHING;
    TRY(pipe_inspect(r->p, r->now, scale, &seen, d));
    if (seen.unknown[0]) return diag_fail(d, AN_UNSUPPORTED, NOWHERE, "%s", seen.unknown);
    for (int id = 0; id < MW_COUNT; id++) any |= seen.grad_norm[id] > 0;
    *out = seen.first[0] ? VERDICT_GRADIENT : any ? VERDICT_FINE : VERDICT_NOTHING;
    return AN_OK;
}

static an_status put_tokens(resident *r, const int32_t *tokens, diag *d)
{
    pipe_tokens *k = &r->tokens;
    r->now = tokens;
    pipe_tokens_take(k, r->p, tokens);
    if (!r->chip) {
        TRY(train_put(r->t, "tokens", DT_I32, k->in, d));
        return train_put(r->t, "targets", DT_I32, k->out, d);
    }
    TRY(train_put(r->t, "tok_hi", DT_F32, k->in_hi, d));
    TRY(train_put(r->t, "tok_lo", DT_F32, k->in_lo, d));
    TRY(train_put(r->t, "tgt_hi", DT_F32, k->out_hi, d));
    return train_put(r->t, "tgt_lo", DT_F32, k->out_lo, d);
}

static void suspect(pipeline *p, const int32_t *tokens)
{
    const size_t bytes = (size_t)(p->B * (p->T + 1)) * sizeof *tokens;
    if (p->suspect || (p->suspect = malloc(bytes))) memcpy(p->suspect, tokens, bytes);
}

static an_status step(void *way, const int32_t *tokens, double lr, train_report *out, bool *again, diag *d)
{
    resident *r = way;
    const uint64_t ran = r->t->ran;
    pipe_event e = { .lane = "device", .what = "step", .layer = -1 },
               put = { .lane = "host", .what = "tokens", .layer = -1, .begin = clock_ns() };
    (void)again; /* one program for the whole run: it is never compiled a second time */
    TRY(put_tokens(r, tokens, d));
    put.end = e.begin = clock_ns();
    if (r->p->o.on_event) r->p->o.on_event(r->p->o.user, &put);
    an_status st = train_step(r->t, lr, out, d);
    if (r->t->ran != ran && out->verdict != VERDICT_FINE) suspect(r->p, tokens);
    e.end = clock_ns();
    if (r->p->o.on_event) r->p->o.on_event(r->p->o.user, &e);
    return st;
}

static an_status loss_of(void *way, const int32_t *tokens, double *loss, diag *d)
{
    resident *r = way;
    TRY(put_tokens(r, tokens, d));
    TRY(train_eval(r->t, d));
    return train_fetch(r->t, LOSS, DT_F64, loss, d);
}

static size_t states(const void *way) { return train_state_count(((const resident *)way)->t); }
static void state_at(const void *way, size_t i, train_state_info *out)
{
    train_state_at(((const resident *)way)->t, i, out);
}
static an_status write_state(void *way, const char *name, dtype dt, const void *data, diag *d)
{
    return train_write(((resident *)way)->t, name, dt, data, d);
}
static an_status read_state(void *way, const char *name, dtype dt, void *data, diag *d)
{
    return train_read(((resident *)way)->t, name, dt, data, d);
}

/* One minibatch at a loss scale of its own; the trainer has a dynamic one, which is sent. It is what somebody looks
 * with: it does not look itself. */
an_status resident_at(void *way, const int32_t *tokens, double loss_scale, train_report *out, diag *d)
{
    resident *r = way;
    r->t->scale.scale = loss_scale, r->t->look = NULL;
    TRY(put_tokens(r, tokens, d));
    return train_step(r->t, 0, out, d);
}

an_status resident_spoilt(void *way, bool sums, train_state_info *out, diag *d)
{
    return train_spoilt(((resident *)way)->t, sums, out, d);
}

static an_status save(void *way, const char *path, const train_note *note, size_t n, diag *d)
{
    return train_save(((resident *)way)->t, path, note, n, d);
}

static an_status load(void *way, const char *path, train_note *note, size_t n, arena *mem, diag *d)
{
    return train_load(((resident *)way)->t, path, note, n, mem, d);
}

static void stats(void *way, pipe_stats *out)
{
    resident *r = way;
    device_stats s;
    train_get_stats(r->t, &out->train);
    device_get_stats(r->p->o.dev, &s);
    out->dispatches = out->train.dispatches;
    out->compiles = s.compiles, out->reloads = s.reloads;
    out->bytes = s.surface_bytes + s.image_bytes, out->work_bytes = s.image_bytes;
}

const pipe_ops pipe_resident = {
    make, drop, step, loss_of, states, state_at, write_state, read_state, save, load, stats
};
