/* lm.c: language models behind the public header: a model, its tokenizer, a session, a conversation. */
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "api/api_int.h"
#include "base/io.h"
#include "lm/generate.h"
#include "text/shard.h"

typedef struct {
    lm_role role;
    char *text;
    size_t n;
} turn;

struct an_lm {
    pool *threads; /* of the models and of the devices they run on */
    lm_model *model, *draft_model;
    lm_session *s, *draft;
    tokenizer *t;
    tok_encoder *e;
    lm_chat form;
    const char *template; /* of the tokenizer; NULL: none, or another form was asked for */
    turn *turns;
    size_t n_turns, cap_turns;
    const char *weights;
    double open_ms;
};

/* ---- weights ---- */

static const struct {
    const char *name;
    dtype dt;
    lm_form form;
} forms[] = {
    { "fp16", DT_F16, LM_DENSE },     { "bf16", DT_BF16, LM_DENSE },         { "fp32", DT_F32, LM_DENSE },
    { "int8", DT_F16, LM_INT8 },      { "int4", DT_F16, LM_INT4 },           { "palette4", DT_F16, LM_PALETTE4 },
    { "file", DT_F16, LM_AS_FILE },
};

static an_status pick_form(const an_lm_options *o, lm_options *lo, const char **name, diag *d)
{
    const char *want = o->weights;
    if (!want) {
        enum { SMALL_FILE = 64 << 20 };
        struct stat st;
        bool plain = !o->engine || !strcmp(o->engine, "cpu");
        want = plain && !stat(o->model, &st) && S_ISREG(st.st_mode) && st.st_size <= SMALL_FILE ? "fp32" : "fp16";
    }
    for (size_t i = 0; i < COUNT(forms); i++)
        if (!strcmp(want, forms[i].name)) {
            lo->dt = forms[i].dt, lo->form = forms[i].form;
            *name = forms[i].name;
            return AN_OK;
        }
    return diag_fail(d, AN_USAGE, NOWHERE,
                     "weights \"%.20s\"; fp16, bf16, fp32, int8, int4, palette4 and file are known", want);
}

/* ---- tokenizer ---- */

static an_status find_tokenizer(const an_lm_options *o, const lm_model *m, tokenizer **out, diag *d)
{
    path_info i;
    if (!o->tokenizer && lm_origin_of(m) == LM_FROM_SEED && !path_look(o->model, &i))
        return diag_fail(d, AN_USAGE, NOWHERE,
                         "the model %s has random weights and no tokenizer; name one with --tokenizer", o->model);
    if (!o->tokenizer) return lm_tokenizer_of(m, out, d);
    TRY(lm_tokenizer_open(o->tokenizer, out, d));
    tok_info info;
    tok_get(*out, &info);
    if (lm_vocab_fits(*out, lm_config(m)->vocab)) return AN_OK;
    return diag_fail(d, AN_INPUT, NOWHERE, "%.120s: the tokenizer %.120s has %lld entries, the embedding %lld rows",
                     o->model, o->tokenizer, (long long)info.n, (long long)lm_config(m)->vocab);
}

/* ---- opening ---- */

static an_status open_all(an_lm *m, const an_lm_options *o, diag *d)
{
    uint64_t t0 = clock_ns();
    lm_options lo = { .seed = o->seed };
    if (!o->model) return diag_fail(d, AN_USAGE, NOWHERE, "no model is named");
    TRY(pick_form(o, &lo, &m->weights, d));
    TRY(pool_make(&m->threads, o->threads, d));
    lo.threads = m->threads;
    TRY(lm_open(o->model, &lo, &m->model, d));
    if (!o->no_tokenizer) {
        TRY(find_tokenizer(o, m->model, &m->t, d));
        TRY(tok_encoder_new(m->t, &m->e, d));
    }
    lm_session_options so = { .engine = o->engine,
                              .threads = o->threads,
                              .context = o->context,
                              .cache_dir = o->cache_dir,
                              .no_cache = o->no_cache != 0 };
    TRY(lm_session_open(m->model, &so, &m->s, d));
    if (o->draft) {
        TRY(lm_open(o->draft, &lo, &m->draft_model, d));
        lm_session_options small = so;
        small.context = 0;
        TRY(lm_session_open(m->draft_model, &small, &m->draft, d));
    }
    m->open_ms = (double)(clock_ns() - t0) / 1e6;
    return AN_OK;
}

an_status an_lm_open(an_lm **out, const an_lm_options *o, an_error *e)
{
    diag d = { 0 };
    *out = NULL;
    an_lm *m = calloc(1, sizeof *m);
    if (!m) diag_nomem(&d);
    else if (open_all(m, o, &d)) {
        an_lm_close(m);
        m = NULL;
    }
    *out = m;
    return d.st ? api_error(e, &d) : AN_OK;
}

static void drop_turns(an_lm *m, size_t keep)
{
    while (m->n_turns > keep) free(m->turns[--m->n_turns].text);
}

void an_lm_close(an_lm *m)
{
    if (!m) return;
    lm_session_close(m->draft);
    lm_close(m->draft_model);
    lm_session_close(m->s);
    tok_encoder_free(m->e);
    tok_close(m->t);
    lm_close(m->model);
    drop_turns(m, 0);
    free(m->turns);
    pool_free(m->threads);
    free(m);
}

void an_lm_get(const an_lm *m, an_lm_info *info)
{
    const model_config *c = lm_session_config(m->s);
    lm_session_stats st;
    lm_session_get_stats(m->s, &st);
    *info = (an_lm_info){ .layers = c->n_layers,
                          .dim = c->dim,
                          .vocab = c->vocab,
                          .context = lm_session_context(m->s),
                          .parameters = model_params(c),
                          .compiles = st.compiles,
                          .cache_hits = st.cache_hits,
                          .programs = st.parts,
                          .weight_bytes = st.weight_bytes,
                          .cache_bytes = st.cache_bytes,
                          .open_ms = m->open_ms,
                          .build_ms = st.build_ms,
                          .cache_bad = st.cache_bad };
    snprintf(info->engine, sizeof info->engine, "%s", device_name(lm_session_device(m->s)));
    snprintf(info->weights, sizeof info->weights, "%s", m->weights);
    snprintf(info->family, sizeof info->family, "%s", lm_family(m->model));
    snprintf(info->remark, sizeof info->remark, "%s", lm_session_remark(m->s));
}

/* ---- generating ---- */

void an_lm_suggest(const an_lm *m, an_generate_options *o)
{
    lm_sampling s = lm_suggested(lm_generation_of(m->model));
    o->temperature = s.temperature, o->top_k = s.top_k, o->top_p = s.top_p, o->min_p = s.min_p,
    o->repetition_penalty = s.repetition;
}

typedef struct {
    const an_generate_options *o;
    strbuf *keep; /* the text, for a conversation; NULL: not wanted */
} sink;

static bool pass_on(void *user, const lm_token *t)
{
    const sink *s = user;
    if (s->keep) sb_putn(s->keep, t->text, t->n_text);
    an_token out = { .id = t->id, .index = t->index, .text = t->text, .n_text = t->n_text, .logprob = t->logprob };
    return !s->o->on_token || s->o->on_token(s->o->user, &out);
}

static an_status run(an_lm *m, const tok_ids *ids, const an_generate_options *o, int64_t end, strbuf *keep,
                     an_generated *r, diag *d)
{
    sink to = { .o = o, .keep = keep };
    uint32_t ends[LM_MAX_EOS + 1];
    const lm_generation *g = lm_generation_of(m->model);
    lm_generate_options lo = { .sampling = { .temperature = o->temperature, .top_k = o->top_k, .top_p = o->top_p, .min_p = o->min_p, .repetition = o->repetition_penalty, .seed = o->seed },
                               .max_tokens = o->max_tokens, .stop = o->stop, .n_stop = o->n_stop, .end = ends, .on_token = pass_on, .user = &to,
                               .draft = { .model = m->draft, .lookup = o->lookup, .tokens = o->draft_tokens }, .new_text = keep != NULL };
    for (int i = 0; i < g->n_eos && i < LM_MAX_EOS; i++)
        if (g->eos[i] >= 0) ends[lo.n_end++] = (uint32_t)g->eos[i];
    if (end >= 0) ends[lo.n_end++] = (uint32_t)end;
    lm_generated done;
    TRY(lm_generate(m->s, m->t, ids->at, ids->n, &lo, &done, d));
    *r = (an_generated){ .prompt_tokens = done.prompt_tokens,
                         .new_tokens = done.new_tokens,
                         .reused = done.reused,
                         .drafted = done.drafted,
                         .accepted = done.accepted,
                         .prompt_ms = done.prompt_ms,
                         .decode_ms = done.decode_ms };
    snprintf(r->why, sizeof r->why, "%s", lm_stop_name(done.why));
    return AN_OK;
}

static an_status need_tokenizer(const an_lm *m, diag *d)
{
    return m->t ? AN_OK : diag_fail(d, AN_USAGE, NOWHERE, "the model was opened without a tokenizer");
}

an_status an_lm_generate(an_lm *m, const char *prompt, size_t n, const an_generate_options *o, an_generated *r,
                         an_error *e)
{
    diag d = { 0 };
    tok_ids ids = { 0 };
    tok_info info;
    an_status st = need_tokenizer(m, &d);
    *r = (an_generated){ 0 };
    if (!st) {
        tok_get(m->t, &info);
        st = tok_encode(m->e, prompt, n, (info.bos >= 0 && (info.add_bos || !n) ? TOK_BOS : 0) | TOK_UTF8, &ids, &d);
    }
    if (!st && !ids.n)
        st = diag_fail(&d, AN_INPUT, NOWHERE, "the prompt is empty, and the model has no BOS token to begin with");
    if (!st) st = run(m, &ids, o, -1, NULL, r, &d);
    tok_ids_free(&ids);
    return st ? api_error(e, &d) : AN_OK;
}

/* ---- conversation ---- */

static an_status add_turn(an_lm *m, lm_role role, const char *text, size_t n, diag *d)
{
    if (m->n_turns == m->cap_turns) {
        size_t cap = m->cap_turns ? 2 * m->cap_turns : 8;
        turn *p = realloc(m->turns, cap * sizeof *p);
        if (!p) return diag_nomem(d);
        m->turns = p, m->cap_turns = cap;
    }
    char *copy = malloc(n + 1);
    if (!copy) return diag_nomem(d);
    if (n) memcpy(copy, text, n);
    copy[n] = 0;
    m->turns[m->n_turns++] = (turn){ role, copy, n };
    return AN_OK;
}

an_status an_lm_chat_begin(an_lm *m, const char *name, const char *system, an_error *e)
{
    diag d = { 0 };
    tok_info info;
    lm_chat form;
    if (need_tokenizer(m, &d)) return api_error(e, &d);
    tok_get(m->t, &info);
    if (lm_chat_find(name ? name : info.chat_template, &form, &d)) return api_error(e, &d); /* that before goes on */
    m->form = form, m->template = name ? NULL : info.chat_template;
    drop_turns(m, 0);
    return system && add_turn(m, CHAT_SYSTEM, system, strlen(system), &d) ? api_error(e, &d) : AN_OK;
}

const char *an_lm_chat_form(const an_lm *m) { return lm_chat_name(m->form); }

static an_status encode_turns(an_lm *m, tok_ids *ids, diag *d)
{
    lm_message *msg = calloc(m->n_turns, sizeof *msg);
    if (!msg) return diag_nomem(d);
    for (size_t i = 0; i < m->n_turns; i++) msg[i] = (lm_message){ m->turns[i].role, m->turns[i].text, m->turns[i].n };
    an_status st = lm_chat_encode(m->form, m->template, m->t, m->e, msg, m->n_turns, ids, d);
    free(msg);
    return st;
}

an_status an_lm_chat(an_lm *m, const char *text, size_t n, const an_generate_options *o, an_generated *r, an_error *e)
{
    diag d = { 0 };
    tok_ids ids = { 0 };
    strbuf answer = { 0 };
    size_t before = m->n_turns;
    *r = (an_generated){ 0 };
    an_status st = need_tokenizer(m, &d);
    if (!st) st = add_turn(m, CHAT_USER, text, n, &d);
    if (!st) st = encode_turns(m, &ids, &d);
    if (!st) st = run(m, &ids, o, lm_chat_end(m->form, m->t), &answer, r, &d);
    if (!st && answer.oom) st = diag_nomem(&d);
    if (!st) st = add_turn(m, CHAT_ASSISTANT, answer.at ? answer.at : "", answer.n, &d);
    if (st) drop_turns(m, before);
    tok_ids_free(&ids);
    sb_free(&answer);
    return st ? api_error(e, &d) : AN_OK;
}

/* ---- perplexity ---- */

typedef struct {
    void (*fn)(void *user, const an_score *so_far);
    void *user;
} progress_to;

static an_score score_of(const lm_score *s)
{
    double nats = s->tokens ? s->nats / (double)s->tokens : 0;
    return (an_score){ .tokens = s->tokens, .nats_per_token = nats, .ppl = exp(nats) };
}

static void progress(void *user, const lm_score *s)
{
    const progress_to *p = user;
    an_score now = score_of(s);
    if (p->fn) p->fn(p->user, &now);
}

static an_status read_shard(an_lm *m, const char *path, tok_ids *ids, diag *d)
{
    shard *s;
    TRY(shard_open(path, (uint32_t)lm_config(m->model)->vocab, &s, d));
    size_t n = (size_t)shard_count(s);
    ids->at = calloc(n + 1, sizeof *ids->at);
    ids->cap = n + 1;
    /* below the vocabulary, so never negative */
    an_status st = ids->at ? shard_read(s, 0, n, (int32_t *)ids->at, d) : diag_nomem(d);
    if (!st) ids->n = n;
    shard_close(s);
    return st;
}

static an_status read_ids(an_lm *m, const char *path, tok_ids *ids, diag *d)
{
    bool bare;
    TRY(shard_look(path, &bare, d));
    if (bare) return read_shard(m, path, ids, d);
    file_bytes f;
    TRY(need_tokenizer(m, d));
    TRY(file_map(path, &f, d));
    tok_info info;
    tok_get(m->t, &info);
    diag why = { 0 };
    an_status st =
        tok_encode(m->e, (const char *)f.at, f.n, (info.bos >= 0 && info.add_bos ? TOK_BOS : 0) | TOK_UTF8, ids, &why);
    file_drop(&f);
    return st ? diag_fail(d, st, NOWHERE, "%.200s: %s", path, why.msg) : AN_OK;
}

an_status an_lm_eval(an_lm *m, const char *path, void (*fn)(void *user, const an_score *so_far), void *user,
                     an_score *r, an_error *e)
{
    diag d = { 0 };
    tok_ids ids = { 0 };
    lm_score score = { 0 };
    progress_to to = { fn, user };
    *r = (an_score){ 0 };
    an_status st = read_ids(m, path, &ids, &d);
    if (!st && ids.n < 2)
        st = diag_fail(&d, AN_INPUT, NOWHERE, "%.200s: %zu token%s to predict from; at least 2 are wanted", path, ids.n,
                       ids.n == 1 ? "" : "s");
    if (!st) st = lm_eval(m->s, ids.at, ids.n, progress, &to, &score, &d);
    if (!st) *r = score_of(&score);
    tok_ids_free(&ids);
    return st ? api_error(e, &d) : AN_OK;
}
