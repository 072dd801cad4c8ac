/* session.c: tokens through the programs of a model, and the cache they share.
 * In: token ids.  Out: logits. step.c builds the programs; here is what goes into their inputs, and which of them
 * runs. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "lm/session_int.h"

/* ---- opening ---- */

/* A folder that was asked for must work. The user's usual one may be missing: that is worth a remark. */
static an_status open_cache(lm_session *s, const char *dir, diag *d)
{
    diag why = { 0 };
    struct stat st;
    if (dir && dir_make(dir, &why)) {
        if (why.st == AN_NOMEM) return diag_nomem(d);
        return diag_fail(
            d, why.st, NOWHERE,
            "compiled programs cannot be kept in \"%.200s\": a folder that can be read and written is wanted (%.200s)",
            dir, why.msg);
    }
    if (dev_cache_open(&s->cache, &(dev_cache_options){ .dir = dir }, &why)) return *d = why, why.st;
    if (dir && (!dev_cache_dir(s->cache) || stat(dir, &st) || !S_ISDIR(st.st_mode)))
        return diag_fail(
            d, AN_INPUT, NOWHERE,
            "compiled programs cannot be kept in \"%.200s\": a folder that can be read and written is wanted", dir);
    snprintf(s->remark, sizeof s->remark, "%.*s", (int)sizeof s->remark - 1, why.msg);
    return AN_OK;
}

static an_status open_device(lm_session *s, const lm_session_options *o, diag *d)
{
    if (o->dev) return s->dev = o->dev, AN_OK;
    if (!o->no_cache) TRY(open_cache(s, o->cache_dir, d));
    pool *own = lm_threads(s->m); /* the model's serve the device as well, unless another number is asked for */
    device_options dopt = { .threads = o->threads,
                            .pool = own && (!o->threads || o->threads == pool_threads(own)) ? own : NULL,
                            .cache = s->cache };
    TRY(device_open(&s->dev, o->engine, &dopt, d));
    s->own_device = true;
    return AN_OK;
}

/* One size that any port of any program of this session may be bound to, where the device wants that; else 0. */
static uint64_t uniform_bytes(const lm_session *s)
{
    const device_limits *lim = device_get_limits(s->dev);
    const model_config *c = &s->c;
    if (!lim->uniform) return 0;
    uint64_t unit = (uint64_t)dtype_bits(c->dt) / 8, T = (uint64_t)s->bucket_max,
             most = (uint64_t)MAX(lim->surface_min, 1);
    uint64_t cache = (uint64_t)(c->n_kv_heads * s->C * c->head_dim) * unit, part = 0;
    for (int i = 0; i < model_vocab_parts(c); i++) part = MAX(part, (uint64_t)model_vocab_part(c, i, NULL) * unit);
    most = MAX(most, MAX(cache, T * unit * (uint64_t)MAX(c->dim, MAX(s->C, c->head_dim))));
    return ROUND_UP(MAX(most, part * LM_EACH_TOKENS), (uint64_t)64);
}

static an_status make_surfaces(lm_session *s, diag *d)
{
    const model_config *c = &s->c;
    size_t n = 2 * (size_t)c->n_layers, bytes;
    if (!dtype_bytes(c->dt, c->n_kv_heads * s->C * c->head_dim, &bytes)) return diag_nomem(d);
    s->kv = TAKE(&s->mem, dev_surface *, n);
    if (!s->kv) return diag_nomem(d);
    s->uniform = uniform_bytes(s);
    for (size_t i = 0; i < n; i++) TRY(dev_surface_new(s->dev, s->uniform ? s->uniform : bytes, &s->kv[i], d));
    s->cache_bytes = (s->uniform ? s->uniform : bytes) * n;
    return AN_OK;
}

static an_status open_session(lm_session *s, const lm_session_options *o, diag *d)
{
    TRY(open_device(s, o, d));
    s->chip = !device_is_plain(s->dev);
    model_config *c = &s->c;
    *c = *lm_config(s->m);
    if (s->chip || !c->dt) c->dt = DT_F16;
    s->C = o->context ? o->context : MIN(c->context, LM_CONTEXT);
    if (s->C < 1 || s->C > c->context)
        return diag_fail(d, AN_INPUT, NOWHERE, "a context of %lld positions; the model %s has at most %lld",
                         (long long)s->C, c->name, (long long)c->context);
    s->bucket_max = o->bucket_max ? o->bucket_max : s->chip ? 8 * LM_BUCKET_MIN : LM_BUCKET_MAX;
    if (s->bucket_max < 1)
        return diag_fail(d, AN_INPUT, NOWHERE, "prompts in programs of %lld tokens, wanted 1 or more",
                         (long long)s->bucket_max);
    s->bucket_max = MIN(s->bucket_max, s->C);
    s->rope_step = TAKE(&s->mem, double, (size_t)c->head_dim);
    s->rows = malloc((size_t)((2 + LM_FILL_TOKENS) * c->dim * pool_threads(lm_threads(s->m))) * sizeof *s->rows);
    s->logits = malloc((size_t)c->vocab * LM_EACH_TOKENS * sizeof *s->logits);
    size_t turns;
    if (!dtype_bytes(c->dt, c->head_dim * s->C, &turns)) return diag_nomem(d);
    if (c->rope != MODEL_ROPE_NONE) s->rope = malloc(turns);
    if (!s->rope_step || !s->rows || !s->logits || (c->rope != MODEL_ROPE_NONE && !s->rope)) return diag_nomem(d);
    model_rope_steps(c, s->rope_step, &s->rope_scale);
    return make_surfaces(s, d);
}

an_status lm_session_open(lm_model *m, const lm_session_options *o, lm_session **out, diag *d)
{
    static const lm_session_options none = { 0 };
    *out = NULL;
    lm_session *s = calloc(1, sizeof *s);
    if (!s) return diag_nomem(d);
    s->m = m;
    an_status st = open_session(s, o ? o : &none, d);
    if (st) lm_session_close(s);
    else *out = s;
    return st;
}

void lm_session_close(lm_session *s)
{
    if (!s) return;
    step_free_all(s);
    for (size_t i = 0; s->kv && i < 2 * (size_t)s->c.n_layers; i++) dev_surface_free(s->kv[i]);
    if (s->own_device) device_close(s->dev);
    dev_cache_close(s->cache);
    free(s->rows);
    free(s->rope);
    free(s->logits);
    tok_ids_free(&s->ids);
    arena_free(&s->mem);
    free(s);
}

const model_config *lm_session_config(const lm_session *s) { return &s->c; }
int64_t lm_session_context(const lm_session *s) { return s->C; }
device *lm_session_device(const lm_session *s) { return s->dev; }
const char *lm_session_remark(const lm_session *s) { return s->remark; }

void lm_session_cut(lm_session *s, size_t n) { s->ids.n = MIN(s->ids.n, n); }

void lm_session_get_stats(const lm_session *s, lm_session_stats *out)
{
    device_stats st;
    device_get_stats(s->dev, &st);
    *out = s->st;
    out->compiles = st.compiles, out->cache_hits = st.cache_hits;
    out->weight_bytes = st.image_bytes, out->cache_bytes = s->cache_bytes;
    dev_cache_stats kept = { 0 };
    if (s->cache) dev_cache_get_stats(s->cache, &kept);
    out->cache_bad = kept.bad;
}

/* ---- inputs of a step ---- */

/* What goes into a step's inputs, in tasks: some tokens' columns of x, or a pair of rope's channels. */
typedef struct {
    lm_session *s;
    const step_program *p;
    const uint32_t *ids;
    const int32_t *at; /* positions */
    int64_t n, groups; /* real tokens; tasks of tokens */
    void *x, *co, *si;
    atomic_int failed;
    diag why; /* of the first that failed */
} fill_job;

/* A token's row of the embedding, scaled, plus its learned position. */
static an_status token_row(lm_session *s, uint32_t id, int64_t pos, float *row, float *learned, diag *d)
{
    const model_config *c = &s->c;
    lm_tensor info;
    TRY(lm_rows(s->m, MW_EMBED, -1, id, 1, DT_F32, row, d));
    for (int64_t i = 0; i < c->dim && c->embed_scale != 0; i++) row[i] *= (float)c->embed_scale;
    if (lm_tensor_info(s->m, MW_POS, -1, &info)) {
        TRY(lm_rows(s->m, MW_POS, -1, pos, 1, DT_F32, learned, d));
        for (int64_t i = 0; i < c->dim; i++) row[i] += learned[i];
    }
    return AN_OK;
}

/* Tokens t0 .. t0 + n as columns of x [dim, T]; those behind the last repeat it. */
static an_status put_columns(const fill_job *j, int64_t t0, int64_t n, float *rows, diag *d)
{
    lm_session *s = j->s;
    const vec_kernels *v = lm_kernels(s->m);
    const int64_t D = s->c.dim, T = j->p->T, size = dtype_bits(s->c.dt) / 8;
    char *own = (char *)(rows + 2 * D); /* of x's type */
    for (int64_t t = 0; t < n; t++) {
        TRY(token_row(s, j->ids[MIN(t0 + t, j->n - 1)], j->at[t0 + t], rows, rows + D, d));
        v->store(T == 1 ? (char *)j->x : own + t * D * size, s->c.dt, rows, D);
    }
    if (T > 1) v->transpose((char *)j->x + t0 * size, T, own, D, D, n, (int)size);
    return AN_OK;
}

/* Pair i of rope's inputs. A position's turn is always the same: it is kept once it has been computed. */
static void put_turns(const fill_job *j, int64_t i)
{
    const lm_session *s = j->s;
    const int64_t T = j->p->T, first = s->rope_known, end = j->at[0] + T, unit = dtype_bits(s->c.dt) / 8;
    char *co = s->rope + 2 * i * s->C * unit, *si = co + s->C * unit;
    int64_t at[2];
    if (end > first)
        model_rope_run(s->rope_step[i], s->rope_scale, first, end - first, s->c.dt, co + first * unit,
                       si + first * unit);
    model_rope_channels(&s->c, i, &at[0], &at[1]);
    for (int k = 0; k < 2; k++) {
        memcpy((char *)j->co + at[k] * T * unit, co + j->at[0] * unit, (size_t)(T * unit));
        memcpy((char *)j->si + at[k] * T * unit, si + j->at[0] * unit, (size_t)(T * unit));
    }
}

static void fill_task(void *ctx, int64_t task, int thread)
{
    fill_job *j = ctx;
    lm_session *s = j->s;
    diag d = { 0 };
    int64_t t0 = task * LM_FILL_TOKENS;
    if (task >= j->groups) put_turns(j, task - j->groups);
    else if (put_columns(j, t0, MIN(LM_FILL_TOKENS, j->p->T - t0), s->rows + thread * (2 + LM_FILL_TOKENS) * s->c.dim,
                         &d) &&
             !atomic_exchange(&j->failed, 1))
        j->why = d;
}

static an_status lock(dev_surface *s, void **at, diag *d) { return s ? dev_surface_lock(s, false, at, d) : AN_OK; }
static an_status unlock(dev_surface *s, diag *d) { return s ? dev_surface_unlock(s, d) : AN_OK; }

/* n tokens at positions p0 .. p0 + n - 1 in a program of T columns; the columns behind repeat what comes after and
 * are never seen. */
static an_status fill(lm_session *s, const step_program *p, const uint32_t *ids, int64_t n, int64_t p0, diag *d)
{
    const model_config *c = &s->c;
    int64_t T = p->T;
    void *pos = NULL, *mask = NULL, *place = NULL, *pick = NULL;
    int32_t *at = malloc((size_t)T * sizeof *at);
    fill_job j = { .s = s, .p = p, .ids = ids, .at = at, .n = n, .groups = (T + LM_FILL_TOKENS - 1) / LM_FILL_TOKENS };
    dev_surface *const held[] = { p->x, p->rope_cos, p->rope_sin, p->pos, p->mask, p->place, p->pick };
    void **const mem[COUNT(held)] = { &j.x, &j.co, &j.si, &pos, &mask, &place, &pick };
    size_t locked = 0;
    an_status st = at ? AN_OK : diag_nomem(d);
    while (!st && locked < COUNT(held))
        if (!(st = lock(held[locked], mem[locked], d))) locked++;
    for (int64_t t = 0; t < T && !st; t++) {
        at[t] = (int32_t)(p0 + t);
        if (pick && s->chip) dtype_store(c->dt, pick, t, t == n - 1);
    }
    if (!st) pool_run(j.groups > 1 ? lm_threads(s->m) : NULL, fill_task, &j, j.groups + (j.co ? c->head_dim / 2 : 0));
    if (!st && j.co) s->rope_known = MAX(s->rope_known, p0 + T);
    if (atomic_load(&j.failed)) st = diag_fail(d, j.why.st, j.why.at, "%s", j.why.msg);
    if (!st && pick && !s->chip) dtype_store(DT_I32, pick, 0, (double)(n - 1));
    if (!st && pos) memcpy(pos, at, (size_t)T * sizeof *at);
    if (!st && mask) decoder_mask(c, at, T, s->C, c->dt, mask);
    if (!st && place) decoder_place(at, T, s->C, c->dt, place);
    free(at);
    while (locked-- > 0) { /* also after a failure: the session may go on with other tokens */
        diag own = { 0 };
        an_status un = unlock(held[locked], st ? &own : d);
        st = st ? st : un;
    }
    return st;
}

/* ---- outputs ---- */

/* Rows of logits out of the program's [V, wide]: token by token, n of them, into s->logits. */
static an_status take_logits(lm_session *s, const step_program *p, int64_t n, diag *d)
{
    const model_config *c = &s->c;
    int64_t first = 0, wide = p->each ? p->T : 1;
    for (int k = 0; k < p->n_logits; k++) {
        int64_t rows = s->chip ? model_vocab_part(c, k, NULL) : c->vocab;
        void *at;
        TRY(dev_surface_lock(p->logits[k], true, &at, d));
        const vec_kernels *vec = lm_kernels(s->m);
        if (wide == 1) vec->load(s->logits + first, p->logits_dt, at, rows);
        for (int64_t v = 0; v < rows && wide > 1; v++) {
            float line[LM_EACH_TOKENS];
            vec->load(line, p->logits_dt, (const char *)at + v * wide * dtype_bits(p->logits_dt) / 8, wide);
            for (int64_t t = 0; t < n; t++) s->logits[t * c->vocab + first + v] = line[t];
        }
        TRY(dev_surface_unlock(p->logits[k], d));
        first += rows;
    }
    const unsigned char *may = lm_active(s->m);
    for (int64_t v = 0; may && v < c->vocab; v++)
        for (int64_t t = 0; t < n && !may[v]; t++) s->logits[t * c->vocab + v] = -INFINITY;
    return AN_OK;
}

/* ---- feeding ---- */

static an_status check(const lm_session *s, const uint32_t *ids, size_t n, diag *d)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= (uint64_t)s->c.vocab)
            return diag_fail(d, AN_INPUT, NOWHERE, "token %zu is %u, the model's vocabulary has %lld entries", i,
                             ids[i], (long long)s->c.vocab);
    if (n > (size_t)s->C || s->ids.n > (size_t)s->C - n)
        return diag_fail(d, AN_INPUT, NOWHERE, "%zu tokens do not fit a context of %lld positions", s->ids.n + n,
                         (long long)s->C);
    return AN_OK;
}

/* The next run of a text with `left` tokens to go: how many of them, and the size of the program they go through. */
static void next_run(const lm_session *s, size_t left, bool each, int64_t *n, int64_t *T)
{
    int64_t room = s->C - (int64_t)s->ids.n, most = each ? LM_EACH_TOKENS : s->bucket_max;
    *n = MIN((int64_t)left, most);
    *T = *n;
    if (*n == 1) return;
    for (*T = each ? LM_EACH_TOKENS : LM_BUCKET_MIN; *T < *n; *T *= 2) {}
    *T = MIN(*T, most);
    if (*T <= room) return;
    *n = *T = 1; /* close to the end of the cache: no room for the columns behind */
}

static an_status run(lm_session *s, const uint32_t *ids, int64_t n, int64_t T, bool each, diag *d)
{
    step_program *p;
    TRY(step_get(s, T, each && T > 1, &p, d));
    TRY(fill(s, p, ids, n, (int64_t)s->ids.n, d));
    for (int i = 0; i < p->n_parts; i++) TRY(device_run(p->part[i].r, DEV_QOS, d));
    s->st.steps++, s->st.computed += (uint64_t)n;
    for (int64_t i = 0; i < n; i++)
        if (!tok_ids_push(&s->ids, ids[i])) return diag_nomem(d);
    return AN_OK;
}

static an_status feed(lm_session *s, const uint32_t *ids, size_t n, bool each, lm_each_fn *fn, void *user, diag *d)
{
    size_t before = s->ids.n;
    TRY(check(s, ids, n, d));
    for (size_t i = 0; i < n;) {
        int64_t count, T;
        next_run(s, n - i, each, &count, &T);
        an_status st = run(s, ids + i, count, T, each, d);
        step_program *p;
        bool wanted = each || i + (size_t)count == n;
        if (!st && wanted) st = step_get(s, T, each && T > 1, &p, d);
        if (!st && wanted) st = take_logits(s, p, each ? count : 1, d);
        if (st) {
            s->ids.n = before;
            return st;
        }
        for (int64_t k = 0; each && k < count; k++) fn(user, i + (size_t)k, s->logits + k * s->c.vocab);
        i += (size_t)count;
    }
    return AN_OK;
}

an_status lm_session_feed(lm_session *s, const uint32_t *ids, size_t n, const float **logits, diag *d)
{
    if (!n) return diag_fail(d, AN_INPUT, NOWHERE, "no token to feed");
    TRY(feed(s, ids, n, false, NULL, NULL, d));
    if (logits) *logits = s->logits;
    return AN_OK;
}

an_status lm_session_feed_each(lm_session *s, const uint32_t *ids, size_t n, lm_each_fn *each, void *user, diag *d)
{
    return feed(s, ids, n, true, each, user, d);
}

an_status lm_session_sync(lm_session *s, const uint32_t *ids, size_t n, const float **logits, diag *d)
{
    if (!n) return diag_fail(d, AN_INPUT, NOWHERE, "no token to feed");
    if (n > (size_t)s->C)
        return diag_fail(d, AN_INPUT, NOWHERE, "%zu tokens do not fit a context of %lld positions", n, (long long)s->C);
    size_t same = 0;
    /* the last one is computed again: its logits are asked for */
    while (same + 1 < n && same < s->ids.n && s->ids.at[same] == ids[same]) same++;
    s->st.reused += same;
    lm_session_cut(s, same);
    return lm_session_feed(s, ids + same, n - same, logits, d);
}
