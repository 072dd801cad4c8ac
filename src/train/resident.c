/* resident.c: a trainer on its device: surfaces that hold the state, requests that bind them, one dispatch per
 * minibatch. In: minibatches.  Out: reports; the state stays where it is.
 *
 * A state has two surfaces. A request binds one as the input and the other as the output; there is a request for either
 * direction, made when it is first used. A step that counts turns the direction round. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "train/log.h"
#include "train/train_int.h"

/* ---- numbers in and out of surfaces ---- */

unsigned char *stage_room(trainer *t, size_t bytes)
{
    if (bytes <= t->stage_bytes) return t->stage;
    unsigned char *p = realloc(t->stage, bytes);
    if (p) t->stage = p, t->stage_bytes = bytes;
    return p;
}

static dev_port as_port(const ttype *type)
{
    dev_port p = { .name = "", .dt = type->dt, .rank = type->sh.rank };
    size_t bytes;
    for (int i = 0; i < p.rank; i++) p.dim[i] = type->sh.d[i];
    if (shape_bytes(type, &bytes)) p.bytes = bytes;
    return p;
}

static an_status move_in(trainer *t, dev_surface *s, const ttype *type, const void *packed, size_t bytes, diag *d)
{
    int64_t row = device_get_limits(t->dev)->row_bytes;
    if (!row) return dev_surface_write(s, packed, bytes, d);
    dev_port p = as_port(type);
    void *at;
    TRY(dev_surface_lock(s, false, &at, d));
    dev_surface_unpack(&p, row, packed, at);
    return dev_surface_unlock(s, d);
}

static an_status move_out(trainer *t, dev_surface *s, const ttype *type, void *packed, size_t bytes, diag *d)
{
    int64_t row = device_get_limits(t->dev)->row_bytes;
    if (!row) return dev_surface_read(s, packed, bytes, d);
    dev_port p = as_port(type);
    void *at;
    TRY(dev_surface_lock(s, true, &at, d));
    dev_surface_pack(&p, row, at, packed);
    return dev_surface_unlock(s, d);
}

/* A minibatch is looked through by the threads that copy it, each its own pieces. */
enum { PIECE = 2048 };

typedef struct {
    const vec_kernels *v;
    const float *x;
    float *to; /* NULL: it stays where it is */
    int64_t n;
    atomic_bool bad;
} finite_job;

static void finite_task(void *ctx, int64_t task, int thread)
{
    finite_job *j = ctx;
    const int64_t at = task * PIECE, n = MIN(PIECE, j->n - at);
    (void)thread;
    if (!(j->v->largest(j->x + at, n) < INFINITY)) atomic_store(&j->bad, true);
    else if (j->to) memcpy(j->to + at, j->x + at, (size_t)n * sizeof *j->to);
}

/* Copied where they are finite; -1: all are. */
static int64_t first_bad_f32(const trainer *t, const float *x, float *to, int64_t n)
{
    finite_job j = { .v = t->vec, .x = x, .to = to, .n = n };
    pool_run(device_pool(t->dev), finite_task, &j, (n + PIECE - 1) / PIECE);
    if (!atomic_load(&j.bad)) return -1;
    int64_t i = 0;
    while (i < n && isfinite(x[i])) i++;
    return i < n ? i : -1;
}

static an_status not_finite(const char *what, int64_t i, double x, const ttype *type, diag *d)
{
    if (isfinite(x))
        return diag_fail(d, AN_INPUT, NOWHERE, "%s: number %lld is %g, which %s cannot hold", what, (long long)i, x,
                         dtype_name(type->dt));
    return diag_fail(d, AN_INPUT, NOWHERE, "%s: number %lld is %g; finite numbers are wanted", what, (long long)i, x);
}

an_status surface_put(trainer *t, dev_surface *s, const ttype *type, dtype dt, const void *data, bool finite,
                      const char *what, diag *d)
{
    size_t bytes;
    int64_t n;
    if (!shape_bytes(type, &bytes) || !shape_elems(&type->sh, &n))
        return diag_fail(d, AN_BUG, NOWHERE, "%s has no size", what);
    if (dt == type->dt && (dt == DT_F32 || !finite || !dtype_is_float(dt))) {
        int64_t bad = finite && dt == DT_F32 ? first_bad_f32(t, data, NULL, n) : -1;
        if (bad >= 0) return not_finite(what, bad, ((const float *)data)[bad], type, d);
        return move_in(t, s, type, data, bytes, d);
    }
    unsigned char *to = stage_room(t, bytes);
    if (!to) return diag_nomem(d);
    bool floats = dtype_is_float(type->dt);
    for (int64_t i = 0; i < n; i++) {
        double x = dtype_load(dt, data, i);
        dtype_store(type->dt, to, i, x);
        double y = dtype_load(type->dt, to, i);
        if (floats ? finite && !isfinite(y) : y != x) return not_finite(what, i, x, type, d);
    }
    return move_in(t, s, type, to, bytes, d);
}

an_status surface_get(trainer *t, dev_surface *s, const ttype *type, dtype dt, void *data, diag *d)
{
    size_t bytes;
    int64_t n;
    if (!shape_bytes(type, &bytes) || !shape_elems(&type->sh, &n))
        return diag_fail(d, AN_BUG, NOWHERE, "a tensor without size");
    if (dt == type->dt) return move_out(t, s, type, data, bytes, d);
    unsigned char *from = stage_room(t, bytes);
    if (!from) return diag_nomem(d);
    TRY(move_out(t, s, type, from, bytes, d));
    for (int64_t i = 0; i < n; i++) dtype_store(dt, data, i, dtype_load(type->dt, from, i));
    return AN_OK;
}

dev_surface *state_now(const trainer *t, const state *s) { return s->s[t->side[s->group]]; }

/* What the device counts between the two is the minibatch's. */
static void bytes_begin(trainer *t)
{
    device_stats st;
    device_get_stats(t->dev, &st);
    t->mark_in = st.bytes_to_device, t->mark_out = st.bytes_from_device;
}

static void bytes_end(trainer *t)
{
    device_stats st;
    device_get_stats(t->dev, &st);
    t->sent += st.bytes_to_device - t->mark_in, t->got += st.bytes_from_device - t->mark_out;
}

/* ---- opening ---- */

static an_status check_options(const train_options *o, diag *d)
{
    if (o->accum < 0)
        return diag_fail(d, AN_INPUT, NOWHERE, "%d minibatches per update; 1 or more are wanted", o->accum);
    if (!(o->loss_scale >= 0 && o->loss_scale < INFINITY))
        return diag_fail(d, AN_INPUT, NOWHERE, "the loss scale is %g; a positive number is wanted", o->loss_scale);
    if (o->n_fetch > TRAIN_MAX_FETCH)
        return diag_fail(d, AN_INPUT, NOWHERE, "%zu values are fetched; %d is the most", o->n_fetch, TRAIN_MAX_FETCH);
    return AN_OK;
}

static an_status choose_types(trainer *t, diag *d)
{
    bool plain = t->chip == NULL;
    t->form = t->o.state != TRAIN_STATE_DEFAULT ? t->o.state : plain ? TRAIN_F32 : TRAIN_F16;
    if (!plain && t->form == TRAIN_F32)
        return diag_fail(d, AN_UNSUPPORTED, NOWHERE, "%s computes in fp16: its state is fp16, or fp16 in two halves",
                         device_name(t->dev));
    if (plain && t->form == TRAIN_HALVES)
        return diag_fail(d, AN_UNSUPPORTED, NOWHERE,
                         "two halves need a device that rounds every operation; %s has fp32 state",
                         device_name(t->dev));
    t->state_dt = t->form == TRAIN_F32 ? DT_F32 : DT_F16;
    t->ctl_dt = t->state_dt;
    /* a chip shows overflow as infinity or 0 in places: there the host judges, before anything is taken over */
    t->in_place = t->state_dt == DT_F32;
    t->floats = plain ? DT_NONE : DT_F16;
    return AN_OK;
}

static const char WEIGHTS[] = "@model_path/weights/weight.bin";

static an_status compile(trainer *t, prog *p, diag *d)
{
    dev_blob blob = { .path = WEIGHTS, .bytes = p->blob.at, .n = p->blob.n };
    dev_source src = { .text = p->text,
                       .n_text = strlen(p->text),
                       .file = "<train>",
                       .weights = { .blob = &blob, .n_blob = p->blob.n ? 1 : 0, .stable = true },
                       .separate = t->keeps && p != &t->prog[PROG_EVAL],
                       .final = true };
    TRY(device_compile(t->dev, &src, &p->p, d));
    return dev_program_load(p->p, d);
}

static uint64_t one_size(const trainer *t)
{
    uint64_t most = 0;
    if (!device_get_limits(t->dev)->uniform) return 0;
    for (int k = 0; k < PROG_COUNT; k++)
        for (int side = 0; side < 2 && t->prog[k].p; side++)
            most = MAX(most, dev_program_surface_bytes(t->prog[k].p, (dev_side)side));
    return most;
}

static an_status surface(trainer *t, const ttype *type, uint64_t all, dev_surface **out, diag *d)
{
    int64_t step[DEV_MAX_RANK];
    uint64_t bytes;
    dev_port p = as_port(type);
    if (!dev_surface_steps(&p, device_get_limits(t->dev)->row_bytes, step, &bytes)) return diag_nomem(d);
    bytes = MAX(bytes, (uint64_t)MAX(device_get_limits(t->dev)->surface_min, 1));
    return dev_surface_new(t->dev, all ? all : bytes, out, d);
}

static an_status make_surfaces(trainer *t, diag *d)
{
    uint64_t all = one_size(t);
    ttype one = { t->state_dt, SHAPE(1) }, row = TTYPE(t->ctl_dt, MAX(t->ctl.n, 1), 1);
    ttype loss = { t->floats != DT_NONE ? t->floats : DT_F32, SHAPE(1) };
    for (size_t i = 0; i < t->states.n; i++) {
        state *s = &t->states.at[i];
        TRY(surface(t, &s->type, all, &s->s[0], d));
        if (stays(t, s)) s->s[1] = s->s[0];
        else TRY(surface(t, &s->type, all, &s->s[1], d));
    }
    for (size_t i = 0; i < t->params.n; i++) {
        param *p = &t->params.at[i];
        if (p->copy.on) TRY(surface(t, &(ttype){ DT_BF16, p->type.sh }, all, &p->copy.s, d));
    }
    for (size_t i = 0; i < t->inputs.n; i++) TRY(surface(t, &t->inputs.at[i].type, all, &t->inputs.at[i].s, d));
    for (size_t i = 0; i < t->fetch.n; i++) TRY(surface(t, &t->fetch.at[i].type, all, &t->fetch.at[i].s, d));
    TRY(surface(t, &row, all, &t->ctl_s, d));
    TRY(surface(t, &loss, all, &t->loss_s, d));
    if (is_half(t)) TRY(surface(t, &one, all, &t->peak_s, d));
    TRY(surface(t, &one, all, &t->extent_s, d));
    return surface(t, &one, all, &t->power_s, d);
}

static an_status open(trainer *t, const graph *g, diag *d)
{
    TRY(check_options(&t->o, d));
    if (t->o.dev) t->dev = t->o.dev;
    else {
        TRY(device_open(&t->dev, t->o.engine, &t->o.device, d));
        t->own_dev = true;
    }
    const char *colon = strchr(device_name(t->dev), ':');
    t->chip = device_is_plain(t->dev) || !colon ? NULL : chip_find(colon + 1);
    t->accum = MAX(t->o.accum, 1);
    if (t->o.device.fast_math && !device_is_plain(t->dev))
        return diag_fail(d, AN_USAGE, NOWHERE, "products in bf16 are a matter of cpu; %s has its own arithmetic",
                         device_name(t->dev));
    TRY(choose_types(t, d));
    TRY(optim_take(t, d));
    scale_start(t);
    TRY(step_plan(t, g, d));
    for (int k = 0; k < PROG_COUNT; k++) {
        if ((k == PROG_ACC && t->accum == 1) || (k == PROG_EVAL && !t->fetch.n)) continue;
        TRY(step_build(t, g, (prog_kind)k, d));
        TRY(compile(t, &t->prog[k], d));
    }
    return make_surfaces(t, d);
}

an_status train_open(trainer **out, const graph *g, const train_options *o, diag *d)
{
    *out = NULL;
    trainer *t = calloc(1, sizeof *t);
    if (!t) return diag_nomem(d);
    t->o = *o, t->keeps = o->n_keep > 0;
    uint32_t isa;
    an_status st = isa_have(&isa, d);
    if (!st) t->vec = vec_pick(isa), st = open(t, g, d);
    /* the caller's, and no longer needed */
    t->o.param = NULL, t->o.fetch = NULL, t->o.keep = NULL, t->o.engine = t->o.optimizer = NULL;
    if (st) train_close(t);
    else *out = t;
    return st;
}

void train_close(trainer *t)
{
    if (!t) return;
    for (int k = 0; k < PROG_COUNT; k++) {
        prog *p = &t->prog[k];
        for (int i = 0; i < 8; i++) dev_request_free(p->r[i / 4][i / 2 % 2][i % 2]);
        dev_program_free(p->p);
        free(p->text);
        sb_free(&p->blob);
    }
    for (size_t i = 0; i < t->states.n; i++) {
        const state *s = &t->states.at[i];
        dev_surface_free(s->s[0]);
        if (s->s[1] != s->s[0]) dev_surface_free(s->s[1]);
    }
    for (size_t i = 0; i < t->params.n; i++) dev_surface_free(t->params.at[i].copy.s);
    for (size_t i = 0; i < t->inputs.n; i++) dev_surface_free(t->inputs.at[i].s);
    for (size_t i = 0; i < t->fetch.n; i++) dev_surface_free(t->fetch.at[i].s);
    dev_surface_free(t->ctl_s), dev_surface_free(t->loss_s), dev_surface_free(t->peak_s), dev_surface_free(t->power_s),
        dev_surface_free(t->extent_s);
    if (t->own_dev) device_close(t->dev);
    free(t->stage);
    arena_free(&t->mem);
    free(t);
}

const char *train_program_text(const trainer *t) { return t->prog[PROG_STEP].text; }

/* ---- dispatching ---- */

static dev_surface *surface_of(trainer *t, dev_side side, const char *name)
{
    for (size_t i = 0; i < t->states.n; i++) {
        const state *s = &t->states.at[i];
        if (!strcmp(name, side == DEV_INPUT ? s->in : s->out))
            return s->s[side == DEV_INPUT ? t->side[s->group] : !t->side[s->group]];
    }
    for (size_t i = 0; i < t->params.n; i++) { /* written over by the step that counts, as the weight is */
        const param *p = &t->params.at[i];
        if (p->copy.on && !strcmp(name, side == DEV_INPUT ? p->copy.in : p->copy.out)) return p->copy.s;
    }
    for (size_t i = 0; i < t->inputs.n; i++)
        if (side == DEV_INPUT && !strcmp(name, t->inputs.at[i].port)) return t->inputs.at[i].s;
    for (size_t i = 0; i < t->fetch.n; i++)
        if (side == DEV_OUTPUT && !strcmp(name, t->fetch.at[i].port)) return t->fetch.at[i].s;
    const struct { const char *port; dev_surface *s; } one[] = { { PORT_CTL, t->ctl_s }, { PORT_LOSS, t->loss_s }, { PORT_PEAK, t->peak_s }, { PORT_EXTENT, t->extent_s } };
    for (size_t i = 0; i < COUNT(one); i++)
        if (!strcmp(name, one[i].port)) return one[i].s;
    return t->power_s;
}

dev_surface *train_surface(trainer *t, dev_side side, const char *name) { return surface_of(t, side, name); }

static an_status request(trainer *t, prog *p, dev_request **out, diag *d)
{
    dev_request **r = &p->r[t->side[GROUP_MAIN]][t->side[GROUP_ACC]][t->side[GROUP_STILL]];
    *out = *r;
    if (*r) return AN_OK;
    dev_request *fresh;
    TRY(dev_request_new(p->p, &fresh, d));
    an_status st = AN_OK;
    for (int side = 0; side < 2; side++) {
        const dev_port *ports;
        size_t n = dev_program_ports(p->p, (dev_side)side, &ports);
        for (size_t i = 0; i < n && !st; i++)
            st = dev_request_bind_at(fresh, (dev_side)side, i, surface_of(t, (dev_side)side, ports[i].name), d);
    }
    if (st) return dev_request_free(fresh), st;
    *out = *r = fresh;
    return AN_OK;
}

static an_status dispatch(trainer *t, prog_kind k, diag *d)
{
    dev_request *r;
    prog *p = &t->prog[k];
    for (size_t i = 0; i < t->inputs.n; i++)
        if (!t->inputs.at[i].set && dev_program_port(p->p, DEV_INPUT, t->inputs.at[i].port, NULL))
            return diag_fail(d, AN_INPUT, NOWHERE, "input %s was not put", t->inputs.at[i].name);
    if (k == PROG_STEP && t->step_instead) return t->step_instead(t->instead_user, d);
    TRY(rounded_refresh(t, d));
    TRY(request(t, p, &r, d));
    diag why = { 0 };
    an_status st = device_run(r, DEV_QOS, &why);
    /* it reads one side of every state and writes the other: an engine that only stumbled goes on */
    if (st && st != AN_NOMEM) {
        log_say(t->o.warn, t->o.user, "%s; running it once more", why.msg);
        why = (diag){ 0 };
        st = device_run(r, DEV_QOS, &why);
    }
    return st ? diag_fail(d, st, why.at, "%s", why.msg) : AN_OK;
}

/* What a refused minibatch leaves in its surface is never read. */
static an_status batch_put(trainer *t, batch_input *b, dtype dt, const void *data, diag *d)
{
    int64_t n;
    if (dt != DT_F32 || b->type.dt != DT_F32 || device_get_limits(t->dev)->row_bytes || !shape_elems(&b->type.sh, &n))
        return surface_put(t, b->s, &b->type, dt, data, true, b->name, d);
    void *at;
    TRY(dev_surface_lock(b->s, false, &at, d));
    const int64_t bad = first_bad_f32(t, data, at, n);
    TRY(dev_surface_unlock(b->s, d));
    return bad < 0 ? AN_OK : not_finite(b->name, bad, (double)((const float *)data)[bad], &b->type, d);
}

an_status train_put(trainer *t, const char *name, dtype dt, const void *data, diag *d)
{
    for (size_t i = 0; i < t->inputs.n; i++) {
        batch_input *b = &t->inputs.at[i];
        if (strcmp(b->name, name)) continue;
        b->set = false;
        bytes_begin(t);
        TRY(batch_put(t, b, dt, data, d));
        bytes_end(t);
        b->set = true;
        return AN_OK;
    }
    return diag_fail(d, AN_INPUT, NOWHERE, "the graph has no batch input \"%.80s\"", name);
}

static an_status put_ctl(trainer *t, double lr, double S, bool first, bool last, diag *d)
{
    double row[CTL_COUNT];
    unsigned char packed[CTL_COUNT * sizeof(double)];
    bool hold = true;
    optim_ctl(t, lr, S, t->steps + 1, row);
    if (t->opt.clip > 0 && dtype_round(t->ctl_dt, row[CTL_CLIP]) == 0)
        return diag_fail(d, AN_INPUT, NOWHERE,
                         "the clipping norm is %g, which is 0 in %s at a loss scale of %g: no update would change anything",
                         t->opt.clip, dtype_name(t->ctl_dt), S);
    if (last) TRY(bounds_hold(t, lr, S, &hold, d));
    if (!hold) row[CTL_LR] = INFINITY; /* no step of that rate counts */
    row[CTL_KEEP] = first ? 0 : 1;
    for (int c = 0; c < CTL_COUNT; c++)
        if (t->ctl.row[c] >= 0) dtype_store(t->ctl_dt, packed, t->ctl.row[c], row[c]);
    ttype type = TTYPE(t->ctl_dt, t->ctl.n, 1);
    bytes_begin(t);
    an_status st = surface_put(t, t->ctl_s, &type, t->ctl_dt, packed, false, PORT_CTL, d);
    bytes_end(t);
    return st;
}

static an_status get_one(trainer *t, dev_surface *s, dtype dt, double *out, diag *d)
{
    ttype one = { dt, SHAPE(1) };
    return surface_get(t, s, &one, DT_F64, out, d);
}

static dtype loss_type(const trainer *t)
{
    const dev_port *p = dev_program_port(t->prog[PROG_STEP].p, DEV_OUTPUT, PORT_LOSS, NULL);
    return p ? p->dt : DT_F32;
}

/* One dispatch and what it says. */
static an_status run_minibatch(trainer *t, bool last, double lr, double S, train_report *r, diag *d)
{
    device_stats before, after;
    double peak = 0, power, extent = 0;
    TRY(put_ctl(t, lr, S, t->at == 0, last, d));
    device_get_stats(t->dev, &before);
    TRY(dispatch(t, last ? PROG_STEP : PROG_ACC, d));
    bytes_begin(t);
    TRY(get_one(t, t->loss_s, loss_type(t), &r->loss, d));
    if (is_half(t)) TRY(get_one(t, t->peak_s, t->state_dt, &peak, d));
    if (last) TRY(get_one(t, t->extent_s, t->state_dt, &extent, d));
    TRY(get_one(t, t->power_s, t->state_dt, &power, d));
    bytes_end(t);
    device_get_stats(t->dev, &after);
    t->dispatches += after.dispatches - before.dispatches;
    t->ran++;
    t->bytes_in = t->sent, t->bytes_out = t->got;
    t->sent = t->got = 0;
    r->verdict = scale_verdict(t, r->loss, peak, power, extent);
    r->finite = r->verdict == VERDICT_FINE;
    r->grad_norm = last ? optim_norm_of(t, peak, power, S) : (double)NAN;
    if (last && r->finite) bounds_follow(t, lr, r->grad_norm, extent);
    return AN_OK;
}

/* A group begins with its sums times 0, and 0 times what is no number is none: what an engine left in them must not
 * outlast the group. */
static an_status clear_sums(trainer *t, diag *d)
{
    for (size_t i = 0; i < t->params.n; i++) {
        if (t->params.at[i].acc < 0) continue;
        const state *s = &t->states.at[t->params.at[i].acc];
        void *at;
        TRY(dev_surface_lock(state_now(t, s), false, &at, d));
        memset(at, 0, dev_surface_bytes(state_now(t, s)));
        TRY(dev_surface_unlock(state_now(t, s), d));
    }
    return AN_OK;
}

an_status train_step(trainer *t, double lr, train_report *r, diag *d)
{
    bool last = t->at == t->accum - 1;
    double S = t->scale.scale * t->accum;
    *r = (train_report){ .lr = lr, .loss_scale = t->scale.scale, .loss = NAN, .grad_norm = NAN };
    if (!isfinite(lr)) return diag_fail(d, AN_INPUT, NOWHERE, "the learning rate is %g; a finite number is wanted", lr);
    if (t->group) r->verdict = t->group; /* the rest of a group that overflowed is not worth a dispatch */
    else {
        TRY(run_minibatch(t, last, lr, S, r, d));
        TRY(scale_look_behind(t, r, d));
    }
    t->minibatches++;
    an_status st = AN_OK;
    /* a sample that is right already adds 0 to its group */
    if (!t->group && !(r->verdict == VERDICT_NOTHING && r->loss == 0 && !last))
        t->group = r->verdict, t->group_loss = r->loss;
    if (!last) {
        t->at++;
        if (!t->group) t->side[GROUP_ACC] ^= 1;
    } else {
        r->applied = !t->group;
        if (r->applied) {
            t->side[GROUP_MAIN] ^= 1;
            t->steps++;
            t->scale.applied = S;
        } else if (t->group == VERDICT_NOTHING) t->zeros++;
        else t->skipped++;
        train_verdict v = t->group;
        t->at = 0, t->group = VERDICT_FINE;
        st = scale_after(t, v, t->group_loss, d);
        if (!st && !r->applied && v != VERDICT_NOTHING) st = clear_sums(t, d);
    }
    r->step = t->steps, r->skipped = t->skipped, r->zeros = t->zeros;
    return st;
}

an_status train_eval(trainer *t, diag *d)
{
    if (!t->fetch.n)
        return diag_fail(d, AN_INPUT, NOWHERE, "no value was named to be fetched when the trainer was opened");
    t->evaluated = false;
    t->sent = 0; /* what was put for it is no minibatch's */
    TRY(dispatch(t, PROG_EVAL, d));
    t->evaluated = true;
    return AN_OK;
}

an_status train_fetch(trainer *t, const char *name, dtype dt, void *data, diag *d)
{
    for (size_t i = 0; i < t->fetch.n; i++) {
        fetched *f = &t->fetch.at[i];
        if (strcmp(f->name, name)) continue;
        if (!t->evaluated)
            return diag_fail(d, AN_INPUT, NOWHERE, "%s was not evaluated: there is nothing to fetch", name);
        return surface_get(t, f->s, &f->type, dt, data, d);
    }
    return diag_fail(d, AN_INPUT, NOWHERE, "no fetched value is called \"%.80s\"", name);
}

/* ---- stats ---- */

void train_get_stats(trainer *t, train_stats *out)
{
    device_stats st;
    device_get_stats(t->dev, &st);
    *out = (train_stats){ .steps = t->steps, .skipped = t->skipped, .zeros = t->zeros, .minibatches = t->minibatches, .ran = t->ran, .dispatches = t->dispatches,
                          .host_bytes_in = t->bytes_in, .host_bytes_out = t->bytes_out, .n_params = t->params.n, .n_states = t->states.n,
                          .n_numbers = t->n_numbers, .loss_scale = t->scale.scale, .compile_ms = st.compile_ms };
    for (size_t i = 0; i < t->states.n; i++) out->state_bytes += t->states.at[i].bytes;
}

void train_print_stats(trainer *t, strbuf *b, const char *format)
{
    train_stats s;
    train_get_stats(t, &s);
    double per = s.ran ? (double)s.dispatches / (double)s.ran : 0;
    bool json = !strcmp(format, "json");
    sb_printf(b, json ? "{\"kind\":\"stats\",\"steps\":%llu,\"skipped\":%llu,\"zero\":%llu,\"minibatches\":%llu,\"ran\":%llu,\"dispatches\":%llu,\"dispatches_per_minibatch\":%g,\"host_bytes_in\":%llu,\"host_bytes_out\":%llu,\"state_bytes\":%llu,\"params\":%lld}\n"
                      : "%llu updates, %llu skipped, %llu without a gradient, %llu minibatches, of which %llu ran here in %llu dispatches: %g each; %llu bytes from the host and %llu to it per minibatch; %llu bytes of state on the device for %lld parameters\n",
              (unsigned long long)s.steps, (unsigned long long)s.skipped, (unsigned long long)s.zeros, (unsigned long long)s.minibatches, (unsigned long long)s.ran, (unsigned long long)s.dispatches, per,
              (unsigned long long)s.host_bytes_in, (unsigned long long)s.host_bytes_out, (unsigned long long)s.state_bytes, (long long)s.n_numbers);
}
