/* state.c: what a run is made of, out of the device and back: single states, files, memory.
 * In: a trainer.  Out: numbers; a safetensors file that another trainer of the same plan goes on from, bit for bit.
 *
 * A file holds every state under its name and type, and as metadata what the host remembers: updates, skipped ones,
 * the loss scale and its history, the optimizer (a file of another one is refused), a checksum of all states and the
 * caller's own notes. */
#include <math.h>
#include <stdlib.h>

#include "base/plain.h"
#include "format/safetensors.h"
#include "train/train_int.h"

size_t train_state_count(const trainer *t) { return t->states.n; }

void train_state_at(const trainer *t, size_t i, train_state_info *out)
{
    const state *s = &t->states.at[i];
    *out = (train_state_info){ .name = s->name,
                               .param = s->param >= 0 ? t->params.at[s->param].name : NULL,
                               .type = s->type };
}

static const state *state_find(const trainer *t, const char *name)
{
    for (size_t i = 0; i < t->states.n; i++)
        if (!strcmp(t->states.at[i].name, name)) return &t->states.at[i];
    return NULL;
}

static an_status unknown(const char *name, diag *d)
{
    return diag_fail(d, AN_INPUT, NOWHERE, "the trainer has no state \"%.80s\"", name);
}

/* ---- one at a time ---- */

/* Both halves of x, or their sum. */
static an_status write_pair(trainer *t, const state *hi, const state *lo, dtype dt, const void *data, diag *d)
{
    int64_t n = t->params.at[hi->param].n;
    double *x = malloc((size_t)n * 2 * sizeof *x);
    if (!x) return diag_nomem(d);
    for (int64_t i = 0; i < n; i++) {
        double v = dtype_load(dt, data, i);
        x[i] = dtype_round(DT_F16, v);
        x[n + i] = isfinite(x[i]) ? (v - x[i]) * LOW_UNIT : 0;
    }
    an_status st = surface_put(t, state_now(t, hi), &hi->type, DT_F64, x, true, hi->name, d);
    if (!st) st = surface_put(t, state_now(t, lo), &lo->type, DT_F64, x + n, true, lo->name, d);
    free(x);
    return st;
}

static an_status read_pair(trainer *t, const state *hi, const state *lo, dtype dt, void *data, diag *d)
{
    int64_t n = t->params.at[hi->param].n;
    double *x = malloc((size_t)n * 2 * sizeof *x);
    if (!x) return diag_nomem(d);
    an_status st = surface_get(t, state_now(t, hi), &hi->type, DT_F64, x, d);
    if (!st) st = surface_get(t, state_now(t, lo), &lo->type, DT_F64, x + n, d);
    for (int64_t i = 0; i < n && !st; i++) dtype_store(dt, data, i, x[i] + x[n + i] / LOW_UNIT);
    free(x);
    return st;
}

static const state *low_half(const trainer *t, const state *s)
{
    return s->kind == STATE_W && t->params.at[s->param].w_lo >= 0 ? &t->states.at[t->params.at[s->param].w_lo] : NULL;
}

an_status train_write(trainer *t, const char *name, dtype dt, const void *data, diag *d)
{
    const state *s = state_find(t, name);
    if (!s) return unknown(name, d);
    const state *lo = low_half(t, s);
    if (s->kind == STATE_W) rounded_stale(t, s->param);
    bounds_forget(t);
    an_status st =
        lo ? write_pair(t, s, lo, dt, data, d) : surface_put(t, state_now(t, s), &s->type, dt, data, true, name, d);
    return st;
}

an_status train_read(trainer *t, const char *name, dtype dt, void *data, diag *d)
{
    const state *s = state_find(t, name);
    if (!s) return unknown(name, d);
    const state *lo = low_half(t, s);
    an_status st = lo ? read_pair(t, s, lo, dt, data, d) : surface_get(t, state_now(t, s), &s->type, dt, data, d);
    return st;
}

static bool all_finite(const state *s, const void *x)
{
    const int64_t n = (int64_t)(s->bytes / (size_t)(dtype_bits(s->type.dt) / 8));
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(dtype_load(s->type.dt, x, i))) return false;
    return true;
}

an_status train_spoilt(trainer *t, bool sums, train_state_info *out, diag *d)
{
    const state_group which = sums ? GROUP_ACC : GROUP_MAIN;
    *out = (train_state_info){ 0 };
    for (size_t i = 0; i < t->states.n && !out->name; i++) {
        const state *s = &t->states.at[i];
        dev_surface *left = s->s[!t->side[s->group]];
        if (s->group != which || left == state_now(t, s)) continue;
        unsigned char *p = stage_room(t, s->bytes);
        if (!p) return diag_nomem(d);
        TRY(surface_get(t, left, &s->type, s->type.dt, p, d));
        if (!all_finite(s, p)) train_state_at(t, i, out);
    }
    return AN_OK;
}

/* Above it the device's count stays behind the host's. */
static double most_counted(const trainer *t) { return t->step_hi >= 0 ? 2048.0 * 1024 : 0x1p24; }

/* The count the device kept must be the host's: it proves that the state which was read is the one that was trained. */
static an_status check_count(trainer *t, diag *d)
{
    double lo = 0, hi = 0;
    if (!device_computes(t->dev)) return AN_OK;
    TRY(train_read(t, "train.step", DT_F64, &lo, d));
    if (t->step_hi >= 0) TRY(train_read(t, "train.step.1024", DT_F64, &hi, d));
    double n = lo + 1024 * hi;
    if (n == (double)t->steps || (double)t->steps >= most_counted(t)) return AN_OK;
    return diag_fail(d, AN_BUG, NOWHERE, "the device counted %g updates, the host %llu", n,
                     (unsigned long long)t->steps);
}

/* ---- what the host remembers ---- */

/* Every field that is saved, once: name, and how it is written. */
#define HOST_FIELDS(N, X)                                                                                             \
    N("anneal.steps", steps) N("anneal.skipped", skipped) N("anneal.minibatches", minibatches)                        \
    X("anneal.loss_scale", scale.scale) X("anneal.loss_scale_applied", scale.applied)

/* Those that files of before they were kept do not have: a row of gradients of 0 begins anew there. */
#define ZERO_FIELDS(N, X)                                                                                             \
    N("anneal.zeros", zeros) N("anneal.zero_row", scale.zero_row) N("anneal.zero_search", scale.search)               \
    X("anneal.zero_from", scale.from)

static const char KEY_FORM[] = "anneal.train", KEY_GOOD[] = "anneal.good", KEY_ROW[] = "anneal.skipped_row",
                  KEY_SUM[] = "anneal.checksum2", KEY_SEAL[] = "anneal.metadata"; /* of what else the metadata says */
/* of earlier files: signs that change together may leave it as it was */
static const char KEY_SUM1[] = "anneal.checksum";

static void form_text(const trainer *t, char *out, size_t n)
{
    static const char *const form[] = { "", "fp16", "halves", "fp32" };
    snprintf(out, n, "1 %s %s accum %d", train_optimizer_name(t), form[t->form], t->accum);
}

static an_status idle(const trainer *t, diag *d)
{
    if (!t->at) return AN_OK;
    return diag_fail(d, AN_INPUT, NOWHERE,
                     "minibatch %d of %d of an update has been added; state is kept between updates", t->at, t->accum);
}

typedef struct {
    uint64_t steps, skipped, zeros, minibatches;
    scaler scale;
} memory;

/* ---- files ---- */

static an_status put_whole(safetensors_out *w, const char *key, uint64_t n, diag *d)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)n);
    return safetensors_put_meta(w, key, text, d);
}

static an_status put_real(safetensors_out *w, const char *key, double x, diag *d)
{
    char text[32];
    plain_printf(text, sizeof text, "%.17g", x);
    return safetensors_put_meta(w, key, text, d);
}

static an_status put_host(trainer *t, safetensors_out *w, diag *d)
{
    char form[80];
    form_text(t, form, sizeof form);
    TRY(safetensors_put_meta(w, KEY_FORM, form, d));
#define N(key, field) TRY(put_whole(w, key, (uint64_t)t->field, d));
#define X(key, field) TRY(put_real(w, key, t->field, d));
    HOST_FIELDS(N, X)
    ZERO_FIELDS(N, X)
#undef N
#undef X
    TRY(put_whole(w, KEY_GOOD, (uint64_t)t->scale.good, d));
    return put_whole(w, KEY_ROW, (uint64_t)t->scale.skipped_row, d);
}

/* What is no number cannot be gone on from: the file that is there is worth more. */
static an_status check_finite(const trainer *t, const state *s, const void *x, diag *d)
{
    const int64_t n = (int64_t)(s->bytes / (size_t)(dtype_bits(s->type.dt) / 8));
    if (s->type.dt == DT_F32 && t->vec->largest(x, n) < INFINITY) return AN_OK;
    for (int64_t i = 0; i < n; i++) {
        double v = dtype_load(s->type.dt, x, i);
        if (!isfinite(v))
            return diag_fail(d, AN_MISMATCH, NOWHERE, "number %lld of %s is %g: such a state is not saved",
                             (long long)i, s->name, v);
    }
    return AN_OK;
}

static an_status put_states(trainer *t, safetensors_out *w, diag *d)
{
    for (size_t i = 0; i < t->states.n; i++) {
        const state *s = &t->states.at[i];
        size_t k;
        TRY(safetensors_declare(w, s->name, s->type.dt, s->type.sh.rank, s->type.sh.d, &k, d));
        if (k != i) return diag_fail(d, AN_BUG, NOWHERE, "state %s was declared as number %zu", s->name, k);
    }
    for (size_t i = 0; i < t->states.n; i++) {
        const state *s = &t->states.at[i];
        unsigned char *p = stage_room(t, s->bytes);
        if (!p) return diag_nomem(d);
        TRY(surface_get(t, state_now(t, s), &s->type, s->type.dt, p, d));
        TRY(check_finite(t, s, p, d));
        TRY(safetensors_put(w, i, p, s->bytes, d));
    }
    return AN_OK;
}

static an_status put_checksum(trainer *t, safetensors_out *w, diag *d)
{
    uint64_t sum = 0;
    char text[20];
    for (size_t i = 0; i < t->states.n; i++) {
        const state *s = &t->states.at[i];
        unsigned char *p = stage_room(t, s->bytes);
        if (!p) return diag_nomem(d);
        TRY(surface_get(t, state_now(t, s), &s->type, s->type.dt, p, d));
        sum = hash_many(p, s->bytes, sum);
    }
    snprintf(text, sizeof text, "%016llx", (unsigned long long)sum);
    return safetensors_put_meta(w, KEY_SUM, text, d);
}

/* Files of before there was one have none. */
static an_status check_checksum(const trainer *t, const safetensors *f, const char *path, diag *d)
{
    const char *have = safetensors_meta(f, KEY_SUM);
    uint64_t (*const digest)(const void *, size_t, uint64_t) = have ? hash_many : hash_bytes;
    uint64_t sum = 0;
    char text[20];
    if (!have) have = safetensors_meta(f, KEY_SUM1);
    for (size_t i = 0; i < t->states.n; i++)
        sum = digest(safetensors_find(f, t->states.at[i].name)->data, t->states.at[i].bytes, sum);
    snprintf(text, sizeof text, "%016llx", (unsigned long long)sum);
    if (!have || !strcmp(have, text)) return AN_OK;
    return diag_fail(d, AN_INPUT, NOWHERE,
                     "%s: its tensors have the checksum %s; %.20s was written: the file is damaged", path, text, have);
}

static an_status put_seal(safetensors_out *w, diag *d)
{
    char text[20];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)safetensors_put_sum(w));
    return safetensors_put_meta(w, KEY_SEAL, text, d);
}

static an_status check_seal(const safetensors *f, const char *path, diag *d)
{
    const char *have = safetensors_meta(f, KEY_SEAL);
    char text[20];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)safetensors_meta_sum(f, KEY_SEAL));
    if (!have || !strcmp(have, text)) return AN_OK;
    return diag_fail(d, AN_INPUT, NOWHERE,
                     "%s: its metadata has the checksum %s; %.20s was written: the file is damaged", path, text, have);
}

an_status train_save(trainer *t, const char *path, const train_note *note, size_t n_note, diag *d)
{
    safetensors_out *w;
    TRY(idle(t, d));
    TRY(check_count(t, d));
    TRY(safetensors_create(path, &w, d));
    an_status st = put_host(t, w, d);
    if (!st) st = put_checksum(t, w, d);
    for (size_t i = 0; i < n_note && !st; i++) st = safetensors_put_meta(w, note[i].key, note[i].value, d);
    if (!st) st = put_seal(w, d);
    if (!st) st = put_states(t, w, d);
    if (!st) return safetensors_finish(w, d);
    safetensors_abandon(w);
    return st;
}

static an_status get_number(const safetensors *f, const char *path, const char *key, double *x, diag *d)
{
    const char *s = safetensors_meta(f, key);
    char *end;
    if (!s) return diag_fail(d, AN_INPUT, NOWHERE, "%s: no metadata %s: not a training checkpoint", path, key);
    *x = plain_real(s, &end);
    if (end == s || *end || !(*x >= 0 && *x < 0x1p63))
        return diag_fail(d, AN_INPUT, NOWHERE, "%s: %s is \"%.40s\"; a number is wanted", path, key, s);
    return AN_OK;
}

static an_status get_or_0(const safetensors *f, const char *path, const char *key, double *x, diag *d)
{
    *x = 0;
    return safetensors_meta(f, key) ? get_number(f, path, key, x, d) : AN_OK;
}

static an_status get_search(const safetensors *f, const char *path, memory *m, diag *d)
{
    double x;
#define N(key, field) TRY(get_or_0(f, path, key, &x, d)); m->field = (uint64_t)x;
#define X(key, field) TRY(get_or_0(f, path, key, &x, d)); m->field = x;
    ZERO_FIELDS(N, X)
#undef N
#undef X
    if (m->scale.search <= SEARCH_REST && (m->scale.from > 0 || m->scale.search == SEARCH_NONE)) return AN_OK;
    return diag_fail(d, AN_INPUT, NOWHERE, "%s: %s is %lld and %s %g; 0 to %d and a scale are wanted", path,
                     "anneal.zero_search", (long long)m->scale.search, "anneal.zero_from", m->scale.from, SEARCH_REST);
}

static an_status get_host(const trainer *t, const safetensors *f, const char *path, memory *m, diag *d)
{
    char want[80];
    const char *have = safetensors_meta(f, KEY_FORM);
    double x;
    form_text(t, want, sizeof want);
    if (!have || strcmp(have, want))
        return diag_fail(d, AN_INPUT, NOWHERE, "%s: it was written by a training \"%.60s\"; this one is \"%s\"", path,
                         have ? have : "(none)", want);
    m->scale = t->scale;
#define N(key, field) TRY(get_number(f, path, key, &x, d)); m->field = (uint64_t)x;
#define X(key, field) TRY(get_number(f, path, key, &x, d)); m->field = x;
    HOST_FIELDS(N, X)
#undef N
#undef X
    TRY(get_number(f, path, KEY_GOOD, &x, d));
    m->scale.good = (int64_t)x;
    TRY(get_number(f, path, KEY_ROW, &x, d));
    m->scale.skipped_row = (int64_t)x;
    TRY(get_search(f, path, m, d));
    if (m->scale.scale <= 0) return diag_fail(d, AN_INPUT, NOWHERE, "%s: the loss scale is %g", path, m->scale.scale);
    if (!t->o.dynamic_scale && m->scale.scale != t->scale.scale)
        return diag_fail(d, AN_INPUT, NOWHERE,
                         "%s: it was trained with the loss scale %g; this program has %g compiled in", path,
                         m->scale.scale, t->scale.scale);
    return AN_OK;
}

/* The count of updates is there twice, as the device kept it and as the host did. */
static an_status check_counted(const trainer *t, const safetensors *f, const char *path, const memory *m, diag *d)
{
    const safetensor *lo = safetensors_find(f, "train.step"), *hi = safetensors_find(f, "train.step.1024");
    double n = dtype_load(lo->dt, lo->data, 0) + (hi ? 1024 * dtype_load(hi->dt, hi->data, 0) : 0);
    if (!device_computes(t->dev) || n == (double)m->steps || (double)m->steps >= most_counted(t)) return AN_OK;
    return diag_fail(d, AN_INPUT, NOWHERE, "%s: it says that %llu updates were done, and its tensors have %g", path,
                     (unsigned long long)m->steps, n);
}

static an_status check_tensors(const trainer *t, const safetensors *f, const char *path, diag *d)
{
    for (size_t i = 0; i < t->states.n; i++) {
        const state *s = &t->states.at[i];
        const safetensor *x = safetensors_find(f, s->name);
        if (!x) return diag_fail(d, AN_INPUT, NOWHERE, "%s: there is no tensor %s", path, s->name);
        bool same = x->dt == s->type.dt && x->rank == s->type.sh.rank && x->bytes == s->bytes;
        for (int k = 0; same && k < x->rank; k++) same = x->dim[k] == s->type.sh.d[k];
        if (same) continue;
        strbuf b = { 0 };
        sb_ttype(&b, &s->type);
        diag_fail(d, AN_INPUT, NOWHERE, "%s: tensor %s is %s of %zu bytes; %s is wanted", path, s->name,
                  dtype_name(x->dt), x->bytes, b.at ? b.at : "?");
        return sb_free(&b), d->st;
    }
    if (safetensors_count(f) != t->states.n)
        return diag_fail(d, AN_INPUT, NOWHERE, "%s: it has %zu tensors; %zu are wanted", path, safetensors_count(f),
                         t->states.n);
    return AN_OK;
}

static void turn_all(trainer *t)
{
    for (int g = 0; g < GROUP_COUNT; g++) t->side[g] ^= 1;
}

static void remember(trainer *t, const memory *m)
{
    t->steps = m->steps, t->skipped = m->skipped, t->zeros = m->zeros, t->minibatches = m->minibatches;
    t->scale = m->scale;
    t->at = 0, t->group = VERDICT_FINE;
}

static an_status load(trainer *t, const safetensors *f, const char *path, train_note *note, size_t n_note, arena *mem,
                      diag *d)
{
    memory m = { 0 };
    TRY(get_host(t, f, path, &m, d));
    TRY(check_tensors(t, f, path, d));
    TRY(check_checksum(t, f, path, d));
    TRY(check_counted(t, f, path, &m, d));
    TRY(check_seal(f, path, d));
    for (size_t i = 0; i < n_note; i++) {
        const char *v = safetensors_meta(f, note[i].key);
        note[i].value = v ? arena_str(mem, v) : NULL;
        if (v && !note[i].value) return diag_nomem(d);
    }
    rounded_stale(t, -1);
    bounds_forget(t);
    /* to the other side first: a failure here leaves the state in use alone */
    for (size_t i = 0; i < t->states.n; i++) {
        const state *s = &t->states.at[i];
        TRY(surface_put(t, s->s[!t->side[s->group]], &s->type, s->type.dt, safetensors_find(f, s->name)->data, false,
                        s->name, d));
    }
    turn_all(t);
    remember(t, &m);
    return AN_OK;
}

an_status train_load(trainer *t, const char *path, train_note *note, size_t n_note, arena *mem, diag *d)
{
    safetensors *f;
    TRY(idle(t, d));
    TRY(safetensors_open(path, &f, d));
    an_status st = load(t, f, path, note, n_note, mem, d);
    safetensors_close(f);
    return st ? st : check_count(t, d);
}

/* ---- all of it as bytes, for who compares: the host's numbers, then every state's ---- */

an_status train_snapshot(trainer *t, strbuf *out, diag *d)
{
    memory m = {
        .steps = t->steps, .skipped = t->skipped, .zeros = t->zeros, .minibatches = t->minibatches, .scale = t->scale
    };
    TRY(idle(t, d));
    sb_putn(out, (const char *)&m, sizeof m);
    for (size_t i = 0; i < t->states.n; i++) {
        const state *s = &t->states.at[i];
        unsigned char *p = stage_room(t, s->bytes);
        if (!p) return diag_nomem(d);
        TRY(surface_get(t, state_now(t, s), &s->type, s->type.dt, p, d));
        sb_putn(out, (const char *)p, s->bytes);
    }
    return out->oom ? diag_nomem(d) : AN_OK;
}
