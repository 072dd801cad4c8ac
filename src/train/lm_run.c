/* lm_run.c: the loop around a pipeline: data, learning rates, losses, samples, checkpoints. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/plain.h"
#include "kernel/kernel.h"
#include "lm/generate.h"
#include "text/story.h"
#include "train/ckpt.h"
#include "train/lm_run.h"
#include "train/lm_tok.h"
#include "train/log.h"

enum { STEPS = 300, BATCH = 8, WARMUP = 20, SAVE_EVERY = 100, SAMPLE = 80, EVAL_WINDOWS = 64 };
static const char STORIES[] = "builtin:stories";

typedef enum { LANE_DEVICE, LANE_HOST, LANE_WAIT, LANE_COUNT } lane_kind;

typedef struct {
    const lm_run_options *o;
    lm_run_result *out;
    pool *pool;
    device *dev;
    lm_model *model;        /* where the weights start */
    lm_shape shape;         /* what of it is trained, and how */
    model_config c;         /* the shape's: as the pipeline has it */
    lm_generation gen;
    tokenizer *tok;
    diag untold;            /* why the model's own could not be opened */
    const ckpt_file *tok_file; /* it, for checkpoints */
    size_t n_tok_files;
    tok_ids prompt;         /* of samples */
    arena mem;
    corpus *data;
    pipeline *p;
    train_schedule schedule;
    double scale;           /* of the loss, as it was asked for or is the default */
    bool dynamic;
    ckpt_note note;
    int64_t batch, seq, accum;
    int32_t *ids;           /* of a whole update, [accum, batch, seq + 1] */
    int32_t *now;           /* of the minibatch that is being trained */
    ckpt_hold hold;         /* of the folder of checkpoints */
    diag unsaved;           /* the last save that failed */
    int64_t saved;          /* the update that was saved last, or the last one before this process */
    bool building;          /* the pipeline is made, and no update was done yet */
    bool settled;           /* the state is that behind note.step updates, none begun */
    bool idle;              /* it ends because nothing is learnt any more: what was learnt before is good */
    char kept_bad[96];      /* the first tensor of text kept back that was not finite; "": all were */
    _Atomic uint64_t spent[LANE_COUNT]; /* ns in each lane since the update began; lanes are threads */
    diag *d;
} run;

/* ---- setting up ---- */

#define WARN(r, ...) log_say((r)->o->warn, (r)->o->user, __VA_ARGS__)

static an_status open_model(run *r)
{
    const lm_run_options *o = r->o;
    TRY(lm_open(o->model ? o->model : "tiny", &(lm_options){ .dt = DT_F32, .seed = o->seed, .threads = r->pool },
                &r->model, r->d));
    r->gen = *lm_generation_of(r->model);
    lm_shape_options so = {
        .residual = o->residual, .softcap = o->softcap, .zero = o->zero_init, .compact = o->compact_vocab
    };
    TRY(lm_shape_make(&r->shape, r->model, &so, r->d));
    r->c = r->shape.c;
    return AN_OK;
}

/* The stories' own is for models that begin from a seed: a trained one would not know its ids. Without any,
 * check_data tells what text wants. */
static an_status open_tokenizer(run *r)
{
    const lm_run_options *o = r->o;
    bool seed = lm_origin_of(r->model) == LM_FROM_SEED, stories = !o->data || !strcmp(o->data, STORIES);
    const char *lost;
    if (o->tokenizer) TRY(lm_tokenizer_open(o->tokenizer, &r->tok, r->d));
    else if (seed && stories) TRY(story_tokenizer((uint32_t)MIN(r->c.vocab, 4096), &r->tok, r->d));
    else if (!seed && lm_tokenizer_of(r->model, &r->tok, &r->untold)) {
        if (r->untold.st == AN_NOMEM) return diag_nomem(r->d);
        if (o->save && tok_in(lm_path(r->model))) WARN(r, "checkpoints hold no tokenizer: %s", r->untold.msg);
        return AN_OK;
    }
    if (!r->tok || !o->save) return AN_OK;
    TRY(lm_tok_files(r->tok, &r->mem, &r->tok_file, &r->n_tok_files, &lost, r->d));
    if (*lost)
        WARN(r, "checkpoints hold %s: %s", r->n_tok_files ? "a tokenizer that is not quite this one" : "no tokenizer",
             lost);
    return AN_OK;
}

/* A preset or bare configuration learns whatever vocabulary it is given; a trained model must have it already. */
static an_status fit_vocabulary(run *r)
{
    tok_info t;
    if (!r->tok) return AN_OK;
    tok_get(r->tok, &t);
    if ((int64_t)t.n > r->c.vocab)
        return diag_fail(r->d, AN_INPUT, NOWHERE,
                         "the tokenizer has %u tokens, the vocabulary of %.160s takes at most %lld", t.n,
                         lm_path(r->model), (long long)r->c.vocab);
    /* ids it has no token for would keep it from opening beside the weights */
    if (lm_origin_of(r->model) != LM_FROM_SEED) {
        if (t.bos < 0 && r->gen.bos >= (int64_t)t.n) r->gen.bos = -1;
        int kept = 0;
        for (int i = 0; i < r->gen.n_eos; i++)
            if (t.eos >= 0 || r->gen.eos[i] < (int64_t)t.n) r->gen.eos[kept++] = r->gen.eos[i];
        r->gen.n_eos = kept;
        return AN_OK;
    }
    r->gen.bos = t.bos;
    r->gen.n_eos = t.eos >= 0;
    r->gen.eos[0] = t.eos;
    return AN_OK;
}

static an_status wants_tokenizer(run *r, const char *name)
{
    if (r->untold.st)
        return diag_fail(
            r->d, AN_USAGE, NOWHERE,
            "%.160s is trained and has no tokenizer of its own: name the one it was trained with by --tokenizer (%.300s)",
            lm_path(r->model), r->untold.msg);
    return diag_fail(
        r->d, AN_USAGE, NOWHERE,
        "%s is text: name its tokenizer with --tokenizer (anneal tokenizer train makes one, builtin:stories is one; bare ids end in .u16 or .u32; llm.c's .bin begins with its header)",
        name);
}

static an_status check_data(run *r, const char *name)
{
    arena mem = { 0 };
    data_files f = { 0 };
    const bool stories = !strcmp(name, STORIES);
    an_status st = stories ? AN_OK : data_find(name, &mem, &f, r->d);
    if (!st && !f.shards && !r->tok) st = wants_tokenizer(r, name);
    if (!st && r->o->docs != DOCS_AUTO && (stories || f.shards))
        st = diag_fail(r->d, AN_USAGE, NOWHERE, "--documents is for text; %s",
                       stories ? "the built-in stories have their own ends"
                               : "ids were cut into documents when they were made");
    arena_free(&mem);
    return st;
}

/* Of a single window nothing can be kept back. */
static an_status look_kept(run *r, const char *name, double share)
{
    uint64_t n = corpus_samples(r->data, CORPUS_TRAIN);
    if (corpus_samples(r->data, CORPUS_VALIDATION)) return AN_OK;
    if (r->o->eval_every > 0)
        return diag_fail(
            r->d, AN_USAGE, NOWHERE,
            "nothing of %s is kept back (%llu window%s of %lld ids, a share of %g): --eval-every has no text to look at",
            name, (unsigned long long)n, n == 1 ? "" : "s", (long long)r->seq, share);
    if (r->o->validation > 0)
        WARN(r, "nothing of %s is kept back: it is one window of %lld ids", name, (long long)r->seq);
    return AN_OK;
}

static an_status open_data(run *r)
{
    const lm_run_options *o = r->o;
    double kept = o->validation < 0 ? 0 : o->validation > 0 ? o->validation : 0.02;
    const char *name = o->data ? o->data : STORIES;
    TRY(check_data(r, name));
    TRY(corpus_open(name, &(corpus_options){ .tok = r->tok, .vocab = (uint32_t)r->c.vocab, .seq = r->seq,
                                             .seed = o->seed, .validation = kept, .docs = o->docs, .pool = r->pool },
                    &r->data, r->d));
    r->note.data_digest = corpus_digest(r->data), r->note.validation = kept;
    TRY(look_kept(r, name, kept));
    if (corpus_undivided(r->data) && o->docs != DOCS_AUTO)
        WARN(r, "%s: the rule of --documents found nowhere to cut in a file of it, which is one document", name);
    else if (corpus_undivided(r->data))
        WARN(r, "%s has no <|endoftext|>: a file of it is one document; --documents blank or lines cuts it elsewhere",
             name);
    snprintf(r->out->data, sizeof r->out->data, "%s", name);
    if (o->compact_vocab) TRY(lm_shape_compact(&r->shape, r->data, r->seq, r->d));
    else if (r->shape.start && lm_active(r->shape.start) && !o->resume)
        WARN(
            r,
            "%s answers with part of its vocabulary; all of it is trained now, and rows that were not are as they were: --compact-vocab trains what occurs in the data",
            o->model);
    r->c = r->shape.c;
    return AN_OK;
}

static double default_lr(int64_t numbers)
{
    double x = log10((double)MAX(numbers, 1)); /* 3e-3 to a million, 3e-4 from a hundred million, even steps between */
    return 3e-3 * pow(10, -MIN(MAX((x - 6) / 2, 0.0), 1.0));
}

/* 0 asks for the default, a negative number for none. */
static double given(double x, double otherwise) { return x < 0 ? 0 : x > 0 ? x : otherwise; }

static an_status take_numbers(run *r)
{
    const lm_run_options *o = r->o;
    r->batch = o->batch > 0 ? o->batch : BATCH;
    r->seq = o->seq > 0 ? o->seq : r->c.seq;
    r->accum = MAX(o->accum, 1);
    int64_t steps = o->steps > 0 ? o->steps : STEPS;
    r->schedule = (train_schedule){ .lr = o->lr > 0 ? o->lr : default_lr(model_params(&r->c)),
                                    .lr_end = given(o->lr_end, 0.1),
                                    .steps = steps,
                                    .warmup = o->warmup < 0   ? 0
                                              : o->warmup > 0 ? o->warmup
                                                              : MIN(WARMUP, steps / 10) };
    TRY(train_schedule_find(o->schedule, &r->schedule.kind, r->d));
    TRY(train_schedule_end(r->schedule.kind, o->lr_end, r->d));
    train_schedule_warn(&r->schedule, o->warn, o->user);
    int64_t n;
    if (!mul_i64(r->batch, r->seq + 1, &n) || !mul_i64(n, r->accum, &n)) return diag_nomem(r->d);
    r->ids = r->now = calloc((size_t)n, sizeof *r->ids);
    return r->ids ? AN_OK : diag_nomem(r->d);
}

static void on_event(void *user, const pipe_event *e)
{
    run *r = user;
    lane_kind k = !strcmp(e->what, "wait") ? LANE_WAIT : !strcmp(e->lane, "device") ? LANE_DEVICE : LANE_HOST;
    r->spent[k] += e->end - e->begin;
    if (r->o->on_event) r->o->on_event(r->o->user, e);
}

static an_status open_pipeline(run *r)
{
    const lm_run_options *o = r->o;
    pipe_options po = { .pipeline = o->pipeline, .dev = r->dev, .pool = r->pool, .config = &r->c, .batch = r->batch,
                        .seq = r->seq, .recompute = o->recompute, .on_event = on_event, .user = r };
    po.train = (train_options){ .optimizer = o->optimizer ? o->optimizer : "adamw", .beta1 = 0.9, .beta2 = 0.95,
                                .decay = given(o->decay, 0.1), .clip = given(o->clip, 1), .accum = (int)r->accum,
                                .state = o->state, .loss_scale = o->loss_scale, .dynamic_scale = o->dynamic_scale,
                                .warn = o->warn, .user = o->user };
    if (!device_is_plain(r->dev)) { /* fp16: small updates must survive, squares of gradients must not overflow */
        if (!o->state) po.train.state = TRAIN_HALVES;
        if (o->loss_scale == 0) po.train.loss_scale = 16, po.train.dynamic_scale = true;
        po.train.eps = 1e-5;
    }
    r->scale = po.train.loss_scale != 0 ? po.train.loss_scale : 1, r->dynamic = po.train.dynamic_scale;
    return pipe_open(&r->p, &po, r->d);
}

static void fill_setting(run *r)
{
    const lm_run_options *o = r->o;
    plain_printf(
        r->note.setting, sizeof r->note.setting,
        "layers %lld, width %lld, hidden %lld, heads %lld/%lld, vocabulary %lld, batch %lld x %lld x %lld, %s, lr %g to %g over %lld, %lld of warm-up, %s, decay %g, clip %g, engine %s%s, "
        "pipeline %s",
        (long long)r->c.n_layers, (long long)r->c.dim, (long long)r->c.hidden, (long long)r->c.n_heads,
        (long long)r->c.n_kv_heads, (long long)r->c.vocab, (long long)r->accum, (long long)r->batch, (long long)r->seq,
        o->optimizer ? o->optimizer : "adamw", r->schedule.lr, r->schedule.lr_end, (long long)r->schedule.steps,
        (long long)r->schedule.warmup, train_schedule_at((size_t)r->schedule.kind), given(o->decay, 0.1),
        given(o->clip, 1), device_name(r->dev), o->device.fast_math ? " in bf16" : "", pipe_name(pipe_kind_of(r->p)));
    char *end = r->note.setting + strlen(r->note.setting);
    size_t left = sizeof r->note.setting - strlen(r->note.setting);
    int n = 0; /* only what was asked for, so that a run from before there were such options goes on */
    if (r->c.alpha != 1) n += plain_printf(end + n, left - (size_t)n, ", residuals times %.9g", r->c.alpha);
    if (r->c.softcap != 0) n += plain_printf(end + n, left - (size_t)n, ", logits capped at %.9g", r->c.softcap);
    if (o->zero_init) n += snprintf(end + n, left - (size_t)n, ", output projections from 0");
    if (r->shape.ids) snprintf(end + n, left - (size_t)n, ", out of %lld tokens", (long long)r->shape.file.vocab);
}

/* Of all a configuration says; 0: no file can say it, and no checkpoint is made of it. Pairs of rotation lie in
 * halves in files, however they are trained. */
static an_status config_digest(const model_config *c, uint64_t *out, diag *d)
{
    model_config in_file = *c;
    strbuf b = { 0 };
    diag why = { 0 };
    if (c->rope == MODEL_ROPE_INTERLEAVED) in_file.rope = MODEL_ROPE_HALF;
    *out = lm_config_json(&in_file, NULL, &b, &why) || b.oom ? 0 : hash_bytes(b.at, b.n, (uint64_t)c->rope);
    /* a 0 for want of memory would make every checkpoint one of another run */
    an_status st = b.oom || why.st == AN_NOMEM ? diag_nomem(d) : AN_OK;
    sb_free(&b);
    return st;
}

/* What a sentence would round, or could not say: any of it changed, and the run would go on as another one. */
static void put_exact(const run *r, uint64_t config, uint64_t words, uint64_t rest, char *to, size_t room)
{
    const lm_run_options *o = r->o;
    const model_config *c = &r->shape.file;
    int n = plain_printf(
        to, room,
        "lr %.17g to %.17g, decay %.17g, clip %.17g, loss scale %.17g%s, rope base %.17g, norm epsilon %.17g, context %lld",
        r->schedule.lr, r->schedule.lr_end, given(o->decay, 0.1), given(o->clip, 1), r->scale,
        r->dynamic ? " dynamic" : "", c->rope_theta, c->norm_eps, (long long)c->context);
    snprintf(to + n, room - (size_t)n,
             ", checksums of configuration %016llx, tokenizer %016llx, rows not trained %016llx",
             (unsigned long long)config, (unsigned long long)words, (unsigned long long)rest);
}

static an_status fill_exact(run *r)
{
    uint64_t rest, rest4, all, words = 0;
    for (size_t i = 0; i < r->n_tok_files; i++) words = hash_bytes(r->tok_file[i].at, r->tok_file[i].n, words);
    TRY(lm_shape_rest(&r->shape, &rest, &rest4, r->d));
    TRY(config_digest(&r->shape.file, &all, r->d));
    put_exact(r, all, words, rest, r->note.exact, sizeof r->note.exact);
    put_exact(r, all, words, rest4, r->note.exact4, sizeof r->note.exact4);
    return AN_OK;
}

static an_status note_sums(run *r)
{
    uint32_t have;
    size_t n = 0;
    TRY(isa_have(&have, r->d));
    /* a chip's arithmetic is the same whatever computes it; pipelines with a share for the host sum there as well */
    if (!strncmp(device_name(r->dev), "soft:", 5) && pipe_kind_of(r->p) == PIPE_RESIDENT) return AN_OK;
    for (int i = 0; isa_name(i); i++)
        if (have >> i & 1 && n < sizeof r->note.sums)
            n += (size_t)snprintf(r->note.sums + n, sizeof r->note.sums - n, "%s%s", n ? " " : "", isa_name(i));
    if (!n) snprintf(r->note.sums, sizeof r->note.sums, "scalar");
    return AN_OK;
}

static an_status resume(run *r)
{
    const lm_run_options *o = r->o;
    arena mem = { 0 };
    const char *path;
    char sums[sizeof r->note.sums];
    snprintf(sums, sizeof sums, "%s", r->note.sums);
    an_status st = ckpt_find(o->save, &mem, &path, o->warn, o->user, r->d);
    if (!st) st = ckpt_load(path, r->p, &r->note, r->d);
    /* by version */
    static const char *const untold[] = { NULL, "its train.json, the data and all settings are",
                                          "the data and all settings, to the last bit, are", "the data are",
                                          "the data are" };
    if (!st && (size_t)r->note.version < COUNT(untold))
        WARN(r, "%s is of an earlier version: whether %s as they were cannot be told", path, untold[r->note.version]);
    if (!st && *r->note.sums && strcmp(r->note.sums, sums))
        WARN(r, "%s was trained with the instruction sets %s; here they are %s: it may go on with other bits", path,
             r->note.sums, sums);
    snprintf(r->note.sums, sizeof r->note.sums, "%s", sums);
    if (!st) st = ckpt_settle(o->save, path, o->keep, &r->note, r->d);
    arena_free(&mem);
    return st;
}

static void describe(run *r)
{
    lm_run_result *q = r->out;
    snprintf(q->model, sizeof q->model, "%s", r->o->model ? r->o->model : "tiny");
    snprintf(q->engine, sizeof q->engine, "%s", device_name(r->dev));
    snprintf(q->pipeline, sizeof q->pipeline, "%s", pipe_name(pipe_kind_of(r->p)));
    snprintf(q->optimizer, sizeof q->optimizer, "%s", r->o->optimizer ? r->o->optimizer : "adamw");
    q->steps = r->schedule.steps, q->batch = r->batch, q->seq = r->seq, q->vocab = r->c.vocab,
    q->parameters = model_params(&r->c);
    q->tokens = corpus_tokens(r->data), q->validation_samples = corpus_samples(r->data, CORPUS_VALIDATION);
}

static int64_t sample_context(const run *r) { return MIN(r->c.context, 512); }

/* Now, and not at the first sample: by then an hour of training may depend on it. */
static an_status encode_prompt(run *r)
{
    const lm_run_options *o = r->o;
    tok_encoder *e = NULL;
    tok_info t;
    diag why = { 0 };
    const int64_t most = sample_context(r) - 1; /* a new token has a place, too */
    if (!r->tok || !o->on_sample || o->sample_every < 0) return AN_OK;
    tok_get(r->tok, &t);
    TRY(tok_encoder_new(r->tok, &e, r->d));
    an_status st = tok_encode(e, o->prompt ? o->prompt : "", o->prompt ? strlen(o->prompt) : 0,
                              t.bos >= 0 ? TOK_BOS : 0, &r->prompt, &why);
    tok_encoder_free(e);
    if (st) return diag_fail(r->d, st == AN_INPUT ? AN_USAGE : st, NOWHERE, "--prompt: %s", why.msg);
    if (!r->prompt.n && !tok_ids_push(&r->prompt, t.eos >= 0 ? (uint32_t)t.eos : 0)) return diag_nomem(r->d);
    if (o->prompt && r->prompt.n > (size_t)most)
        return diag_fail(r->d, AN_USAGE, NOWHERE, "--prompt has %zu tokens; at most %lld and a new one fit a sample",
                         r->prompt.n, (long long)most);
    return AN_OK;
}

/* What a device would take and not heed. */
static an_status fits_device(run *r)
{
    bool plain = device_is_plain(r->dev);
    if (r->o->device.fast_math && !plain)
        return diag_fail(r->d, AN_USAGE, NOWHERE, "%s multiplies in its own type: bf16 products are for cpu",
                         device_name(r->dev));
    pipe_kind way;
    if (r->o->state == TRAIN_HALVES && pipe_find(r->o->pipeline, &way) && way != PIPE_RESIDENT)
        return diag_fail(r->d, AN_USAGE, NOWHERE,
                         "pipeline %s keeps weights and moments on the host in fp32: a state of halves is for %s",
                         pipe_name(way), pipe_name(PIPE_RESIDENT));
    if (r->o->device.n_limit && plain)
        return diag_fail(r->d, AN_USAGE, NOWHERE,
                         "%s compiles any number of programs: a limit of compiles is for chips", device_name(r->dev));
    return AN_OK;
}

/* Samples are text: without a tokenizer there is none of them to be told about. */
static an_status can_sample(run *r)
{
    const lm_run_options *o = r->o;
    const char *what = o->prompt              ? "--prompt"
                       : o->sample_tokens > 0 ? "--sample-tokens"
                       : o->sample_every > 0  ? "--sample-every"
                                              : NULL;
    if (r->tok || !what) return AN_OK;
    return diag_fail(r->d, AN_USAGE, NOWHERE,
                     "%s is about samples, which are text, and there is no tokenizer: name one with --tokenizer", what);
}

/* What the run itself does, beside the lanes of the pipeline. */
static void event(run *r, const char *what, uint64_t begin)
{
    pipe_event e = { .lane = "run", .what = what, .layer = -1, .begin = begin, .end = clock_ns() };
    if (r->o->on_event) r->o->on_event(r->o->user, &e);
}

static an_status set_up(run *r)
{
    const lm_run_options *o = r->o;
    r->note = (ckpt_note){ .seed = o->seed, .smooth = (double)NAN };
    bool one = false, any = false;
    uint64_t t0 = clock_ns(), t1;
    if (o->save) TRY(ckpt_is_one(o->save, &one, r->d));
    if (one)
        return diag_fail(
            r->d, AN_USAGE, NOWHERE,
            "%s is one checkpoint of a run: --resume goes on in the folder that holds it, from the newest that is whole; --model %s begins another run with its weights",
            o->save, o->save);
    if (o->save) TRY(ckpt_any(o->save, &any, r->d));
    if (!o->resume && any)
        return diag_fail(r->d, AN_USAGE, NOWHERE,
                         "%s has checkpoints already: go on from them with --resume, or name another folder", o->save);
    if (o->resume && o->must_resume && !any)
        return diag_fail(r->d, AN_INPUT, NOWHERE, "%s: there is no checkpoint in it",
                         o->save ? o->save : "the run has no folder");
    if (o->save) TRY(ckpt_enter(o->save, &r->hold, r->d));
    TRY(pool_make(&r->pool, o->device.threads, r->d));
    device_options dev = o->device;
    dev.pool = r->pool;
    TRY(device_open(&r->dev, o->engine, &dev, r->d));
    if (!device_computes(r->dev) && o->warn)
        o->warn(o->user, "this device computes nothing: times are the host's share, losses and weights mean nothing");
    TRY(fits_device(r));
    TRY(open_model(r));
    TRY(open_tokenizer(r));
    TRY(can_sample(r));
    TRY(fit_vocabulary(r));
    TRY(encode_prompt(r));
    TRY(take_numbers(r));
    TRY(open_data(r));
    r->building = true;
    event(r, "set up", t0);
    t1 = clock_ns();
    TRY(open_pipeline(r));
    event(r, "programs", t1);
    if (pipe_kind_of(r->p) == PIPE_RESTART && !o->save)
        return diag_fail(r->d, AN_USAGE, NOWHERE,
                         "the restart pipeline goes on from checkpoints: name a folder for them with --save");
    fill_setting(r);
    TRY(fill_exact(r));
    TRY(note_sums(r));
    describe(r);
    t1 = clock_ns();
    /* again: who held the folder until now may have saved since */
    if (o->resume && o->save) TRY(ckpt_any(o->save, &any, r->d));
    if (o->resume && any) TRY(resume(r));
    else TRY(lm_shape_put(&r->shape, r->p, r->d));
    event(r, "weights", t1);
    if (r->shape.ids) return AN_OK; /* rows that are not trained are looked up in it */
    lm_close(r->model);
    r->model = r->shape.start = NULL;
    return AN_OK;
}

static void tear_down(run *r)
{
    pipe_close(r->p);
    lm_shape_free(&r->shape);
    lm_close(r->model);
    corpus_close(r->data);
    tok_close(r->tok);
    tok_ids_free(&r->prompt);
    arena_free(&r->mem);
    device_close(r->dev);
    pool_free(r->pool);
    free(r->ids);
    ckpt_leave(&r->hold);
}

/* ---- between updates ---- */

/* A save that fails is no reason to lose the run: it goes on, says so, and the run ends badly if the last one failed
 * too. */
static void save(run *r)
{
    const lm_run_options *o = r->o;
    diag why = { 0 };
    if (!o->save) return;
    ckpt_options k = { .dir = o->save, .keep = o->keep, .tokenizer = r->tok_file, .n_tokenizer = r->n_tok_files,
                       .generation = &r->gen, .pool = r->pool };
    uint64_t t0 = clock_ns();
    an_status st = ckpt_save(&k, r->p, &r->shape, &r->note, &why);
    event(r, "checkpoint", t0);
    r->unsaved = why, r->saved = r->note.step; /* or not: it is not tried again before the next is due */
    if (st)
        WARN(r, "step %lld was not saved: %s; training goes on, earlier checkpoints are intact",
             (long long)r->note.step, why.msg);
}

/* Of r->ids. At a scale of 1, since the way up is what is asked about. A look that fails leaves the loss itself to be
 * named. */
static an_status kept_loss(run *r, double *mean)
{
    pipe_seen seen;
    TRY(pipe_loss(r->p, r->ids, mean, r->d));
    if (isfinite(*mean) || r->kept_bad[0]) return AN_OK;
    an_status st = pipe_inspect(r->p, r->ids, 1, &seen, &(diag){ 0 });
    snprintf(r->kept_bad, sizeof r->kept_bad, "%s", !st && seen.first[0] ? seen.first : "the loss");
    return AN_OK;
}

/* The losses of the first n windows of r->ids together, n at most a minibatch. Fewer are repeated until it is full;
 * those that then stand in it once more than the others are found the same way, and taken off. */
static an_status sum_losses(run *r, int64_t n, double *sum)
{
    const int64_t row = r->seq + 1, more = r->batch % n;
    double mean, twice = 0;
    for (int64_t i = n; i < r->batch; i++) memcpy(r->ids + i * row, r->ids + i % n * row, (size_t)row * sizeof *r->ids);
    TRY(kept_loss(r, &mean));
    if (more) TRY(sum_losses(r, more, &twice));
    *sum = (mean * (double)r->batch - twice) / (double)(r->batch / n);
    return AN_OK;
}

static bool is_asked(const run *r) { return r->o->stop && r->o->stop(r->o->user); }

/* Who asks a run to stop may ask again, which ends it at once: what is not saved is saved before anything else. */
static void save_if_asked(run *r)
{
    if (r->note.step > r->saved && is_asked(r)) save(r);
}

/* Each of the first windows kept back counts once: the figure is the same for any batch, and at every step of the
 * same text. One that is not finite makes the figure none, and the others are not looked at. */
static an_status validate(run *r, double *loss)
{
    corpus_pos pos = { 0 };
    int64_t all = MIN((int64_t)corpus_samples(r->data, CORPUS_VALIDATION), EVAL_WINDOWS);
    *loss = all ? 0 : (double)NAN;
    r->kept_bad[0] = 0;
    for (int64_t at = 0, n; at < all && isfinite(*loss); at += n) {
        double sum;
        n = MIN(r->batch, all - at);
        TRY(corpus_batch(r->data, CORPUS_VALIDATION, n, &pos, r->ids, r->d));
        lm_shape_rows(&r->shape, r->ids, (size_t)(n * (r->seq + 1)));
        TRY(sum_losses(r, n, &sum));
        save_if_asked(r);
        *loss += sum / (double)all;
    }
    return AN_OK;
}

typedef struct {
    run *r;
    strbuf text;
} sampled;

static bool take_token(void *user, const lm_token *t)
{
    sampled *s = user;
    sb_putn(&s->text, t->text, t->n_text);
    save_if_asked(s->r);
    return true;
}

static an_status sample_text(run *r, int64_t step, diag *d)
{
    const lm_run_options *o = r->o;
    lm_model *m;
    lm_session *s = NULL;
    sampled into = { .r = r };
    lm_generated g;
    /* On the plain processor whatever the run is on: a sample should show the weights, and cost the run no compile. */
    TRY(lm_shape_model(&r->shape, r->p, &r->gen, &(lm_options){ .dt = DT_F32, .threads = r->pool }, &m, d));
    an_status st = lm_session_open(
        m, &(lm_session_options){ .engine = "cpu", .no_cache = true, .context = sample_context(r) }, &s, d);
    if (o->prompt) sb_puts(&into.text, o->prompt);
    lm_generate_options go = { .sampling = { .temperature = 0.7, .top_p = 0.95, .seed = o->seed + (uint64_t)step },
                               .max_tokens = o->sample_tokens > 0 ? o->sample_tokens : SAMPLE,
                               .on_token = take_token,
                               .user = &into };
    if (!st) st = lm_generate(s, r->tok, r->prompt.at, r->prompt.n, &go, &g, d);
    if (!st && into.text.oom) st = diag_nomem(d);
    if (!st) o->on_sample(o->user, step, into.text.at ? into.text.at : "", into.text.n);
    sb_free(&into.text);
    lm_session_close(s);
    lm_close(m);
    return st;
}

/* One that fails is no reason to lose the run. */
static void sample(run *r)
{
    diag why = { 0 };
    uint64_t t0 = clock_ns();
    if (!r->prompt.n) return;
    if (sample_text(r, r->note.step, &why))
        WARN(r, "there is no sample after step %lld: %s", (long long)r->note.step, why.msg);
    event(r, "sample", t0);
}

/* ---- what is not finite, and how large everything is ---- */

/* rep: of an update that does not count; NULL: how large everything is. A gradient of 0 with nothing behind it that
 * is not finite was no overflow. */
static an_status tell(run *r, double scale, const train_report *rep, diag *d)
{
    const lm_run_options *o = r->o;
    pipe_seen seen;
    strbuf b = { 0 };
    uint64_t t0 = clock_ns();
    diag why = { 0 };
    an_status st = pipe_inspect(r->p, r->now, scale, &seen, &why);
    event(r, "numbers", t0);
    if (st == AN_NOMEM) return diag_nomem(d);
    /* no reason to lose the run */
    if (st) return WARN(r, "there are no numbers of step %lld: %s", (long long)r->note.step + 1, why.msg), AN_OK;
    bool zero = rep && rep->verdict == VERDICT_NOTHING && !seen.first[0], bad = rep && !zero;
    if (bad) pipe_bad_json(&b, r->note.step + 1, rep->loss, &seen);
    else if (zero) pipe_zero_json(&b, r->note.step + 1, rep->loss, scale);
    else pipe_norms_json(&b, r->note.step + 1, &seen);
    if (b.oom) WARN(r, "out of memory: there is no note of step %lld", (long long)r->note.step + 1);
    else if (o->on_note) o->on_note(o->user, b.at);
    bool silent = pipe_kind_of(r->p) == PIPE_RESIDENT; /* the others say so themselves */
    if (bad && silent)
        WARN(r, "%s is not finite (loss scale %g): the update is skipped",
             seen.first[0] ? seen.first : "the loss or a gradient", scale);
    sb_free(&b);
    return AN_OK;
}

/* ---- the loop ---- */

static double scale_now(run *r)
{
    pipe_stats s;
    pipe_get_stats(r->p, &s);
    return s.train.loss_scale;
}

/* All the data of an update before any of it is trained on: in the middle of a group of minibatches there is nothing
 * that could be saved. */
static an_status read_group(run *r, uint64_t *data_ns)
{
    const int64_t n = r->batch * (r->seq + 1);
    for (int64_t a = 0; a < r->accum; a++) {
        uint64_t t0 = clock_ns();
        TRY(corpus_batch(r->data, CORPUS_TRAIN, r->batch, &r->note.pos, r->ids + a * n, r->d));
        lm_shape_rows(&r->shape, r->ids + a * n, (size_t)n);
        *data_ns += clock_ns() - t0;
        event(r, "data", t0);
    }
    return AN_OK;
}

/* One minibatch of an update, the a-th. */
static an_status minibatch(run *r, int64_t a, double lr, train_report *rep, bool *bad)
{
    bool due = r->o->stats_every > 0 && (r->note.step + 1) % r->o->stats_every == 0, again = false;
    r->now = r->ids + a * r->batch * (r->seq + 1);
    if (due && a == 0) TRY(tell(r, scale_now(r), NULL, r->d));
    an_status st = pipe_step(r->p, r->now, lr, rep, &again, r->d);
    /* the last of a row: what was in it is told as well */
    bool ends = st == AN_MISMATCH && rep->verdict != VERDICT_FINE && rep->verdict != VERDICT_NOTHING;
    r->out->again |= again;
    if ((st && !ends) || rep->put_off || (!st && rep->finite) || *bad) return st;
    *bad = true;
    diag also = { 0 };
    an_status told = tell(r, rep->loss_scale, rep, st ? &also : r->d);
    return st ? st : told;
}

static an_status update(run *r, lm_progress *q, bool *put_off)
{
    train_report rep = { 0 };
    uint64_t t0 = clock_ns(), data = 0;
    corpus_pos from = r->note.pos;
    bool bad = false;
    double sum = 0;
    int64_t n = 0;
    if (read_group(r, &data)) return r->note.pos = from, r->d->st;
    for (int k = 0; k < LANE_COUNT; k++) r->spent[k] = 0;
    for (int64_t a = 0; a < r->accum; a++) {
        an_status st = minibatch(r, a, q->lr, &rep, &bad);
        r->idle = st == AN_MISMATCH && rep.verdict == VERDICT_NOTHING;
        /* the first of a group failed, or was put off, or all had no gradient: the state is as it was, and its samples
         * are still to come */
        if (st || rep.put_off) {
            r->settled = a == 0 || r->idle;
            if (r->settled) r->note.pos = from;
            return *put_off = rep.put_off, st;
        }
        if (!isnan(rep.loss)) sum += rep.loss, n++; /* the rest of a group that is skipped is not run */
    }
    q->loss = n ? sum / (double)n : (double)NAN;
    q->grad_norm = rep.grad_norm, q->loss_scale = rep.loss_scale, q->skipped = rep.skipped, q->zeros = rep.zeros,
    q->applied = rep.applied;
    q->tokens = r->accum * r->batch * r->seq;
    q->ms = (double)(clock_ns() - t0) / 1e6, q->data_ms = (double)data / 1e6;
    q->device_ms = (double)r->spent[LANE_DEVICE] / 1e6, q->host_ms = (double)r->spent[LANE_HOST] / 1e6,
    q->wait_ms = (double)r->spent[LANE_WAIT] / 1e6;
    return AN_OK;
}

/* A loss on text kept back that is not finite is none of a curve, but a line of the log. */
static void tell_of_kept(run *r, double loss)
{
    const lm_run_options *o = r->o;
    strbuf b = { 0 };
    sb_printf(&b, "{\"kind\":\"validation\",\"step\":%lld,\"loss\":null,\"first\":", (long long)r->note.step);
    sb_json(&b, r->kept_bad, strlen(r->kept_bad));
    sb_putc(&b, '}');
    if (!b.oom && o->on_note) o->on_note(o->user, b.at);
    sb_free(&b);
    WARN(r, "the loss on text kept back after step %lld is %g: %s is not finite", (long long)r->note.step, loss,
         r->kept_bad);
}

static an_status evaluate(run *r, double *loss)
{
    uint64_t t0 = clock_ns();
    TRY(validate(r, loss));
    r->note.owed = false;
    if (!corpus_samples(r->data, CORPUS_VALIDATION)) return AN_OK;
    event(r, "text kept back", t0);
    if (!isfinite(*loss)) tell_of_kept(r, *loss);
    else if (r->o->on_eval) r->o->on_eval(r->o->user, r->note.step, *loss);
    return AN_OK;
}

static bool is_look_due(const run *r) { return r->o->eval_every > 0 && r->note.step % r->o->eval_every == 0; }

/* What is due after an update that is not the last. */
static an_status look_around(run *r)
{
    const lm_run_options *o = r->o;
    double loss;
    if (r->note.owed && !r->out->again) TRY(evaluate(r, &loss));
    if (o->sample_every > 0 && r->note.step % o->sample_every == 0) sample(r);
    return AN_OK;
}

static an_status only_a_new_process(run *r, int64_t first)
{
    if (!r->out->again) return AN_OK;
    if (r->note.step == first && first < r->schedule.steps)
        return diag_fail(r->d, AN_UNSUPPORTED, NOWHERE,
                         "%s compiles too few programs in a process for one update by %s", device_name(r->dev),
                         pipe_name(pipe_kind_of(r->p)));
    if (r->o->save) return AN_OK;
    return diag_fail(
        r->d, AN_UNSUPPORTED, NOWHERE,
        "%s compiles no more programs in this process after step %lld; a new one could go on from a checkpoint, but there is no --save",
        device_name(r->dev), (long long)r->note.step);
}

static an_status loop(run *r)
{
    const lm_run_options *o = r->o;
    int64_t save_every = o->save_every > 0 ? o->save_every : SAVE_EVERY, first = r->note.step;
    bool due = false;
    r->out->smooth = r->note.smooth;
    r->settled = true, r->saved = first;
    double owed;
    an_status st = AN_OK;
    /* who saved and looked afterwards has told of it */
    if (r->note.owed && o->is_told && o->is_told(o->user, r->note.step)) r->note.owed = false;
    if (r->note.owed) st = evaluate(r, &owed);
    while (!st && r->note.step < r->schedule.steps && !r->out->stopped && !r->out->again) {
        lm_progress q = { .steps = r->schedule.steps, .lr = train_schedule_lr(&r->schedule, r->note.step) };
        bool put_off = false;
        if ((st = update(r, &q, &put_off)) || put_off) break;
        q.step = ++r->note.step, r->building = false;
        if (q.applied) r->note.applied = q.step;
        double share = MAX(0.05, 1.0 / (double)q.step); /* a plain mean until there are 20 */
        if (isfinite(q.loss))
            r->note.smooth = isfinite(r->note.smooth) ? (1 - share) * r->note.smooth + share * q.loss : q.loss;
        q.smooth = r->note.smooth;
        r->out->loss = q.loss, r->out->smooth = q.smooth, r->out->seconds += q.ms / 1e3;
        if (o->on_progress) o->on_progress(o->user, &q);
        const bool last = q.step == q.steps;
        r->out->stopped = !last && is_asked(r); /* behind the last one the run is whole */
        /* until the text kept back was looked at: by the next process, where this one dies before or has no compiles
         * left */
        r->note.owed = !last && is_look_due(r);
        due |= q.step % save_every == 0;
        /* before looks and samples, which may take long. One of a row of skipped updates may be one of a run that
         * diverged: its save waits */
        if ((q.applied && due) || r->out->stopped || r->out->again) save(r), due = false;
        if (last) break;
        st = look_around(r);
        r->out->stopped |= is_asked(r);
    }
    /* after a failure too, as what was learned before it is worth keeping; but not what diverged, which would push
     * out what did not */
    if (r->note.step > r->saved && r->settled && (st != AN_MISMATCH || r->idle)) save(r);
    r->out->done = r->note.step;
    r->out->stopped |= r->note.step < r->schedule.steps && is_asked(r); /* asked while it saved */
    /* the loss on text kept back takes programs; without it nothing is left to do after the last update */
    if (r->note.step == r->schedule.steps && !corpus_samples(r->data, CORPUS_VALIDATION)) r->out->again = false;
    return st ? st : only_a_new_process(r, first);
}

static an_status digest(run *r)
{
    uint64_t h = 0;
    for (size_t i = 0; i < pipe_state_count(r->p); i++) {
        train_state_info s;
        size_t bytes;
        pipe_state_at(r->p, i, &s);
        if (!shape_bytes(&s.type, &bytes)) return diag_fail(r->d, AN_BUG, NOWHERE, "state %s has no size", s.name);
        void *x = malloc(bytes ? bytes : 1);
        if (!x) return diag_nomem(r->d);
        an_status st = pipe_read(r->p, s.name, s.type.dt, x, r->d);
        if (!st) h = hash_many(x, bytes, h);
        free(x);
        TRY(st);
    }
    r->out->digest = h;
    return AN_OK;
}

/* The last update may have left weights that are no numbers: no other one follows that would show it. */
static an_status finish(run *r)
{
    const lm_run_options *o = r->o;
    diag why = { 0 };
    TRY(digest(r));
    an_status finite = pipe_weights_finite(r->p, &why);
    if (finite == AN_NOMEM) return diag_nomem(r->d);
    if (!r->out->again && !r->out->stopped) { /* who asked it to stop wants it to end */
        TRY(evaluate(r, &r->out->validation));
        if (o->sample_every >= 0) sample(r);
    }
    if (r->unsaved.st)
        return diag_fail(r->d, r->unsaved.st, NOWHERE, "the last checkpoint could not be written: %s", r->unsaved.msg);
    return finite ? diag_fail(r->d, finite, why.at, "after step %lld %s", (long long)r->note.step, why.msg) : AN_OK;
}

/* Memory of the machine, or what the device can address. */
static bool lacks_memory(const run *r, an_status st)
{
    static const uint32_t no_memory = 0xe00002bd; /* device/errors.def */
    engine_error e = { 0 };
    if (r->dev) device_error(r->dev, &e);
    return r->building && (st == AN_NOMEM || (st == AN_UNSUPPORTED && e.status == no_memory));
}

static an_status attempt(const lm_run_options *o, lm_run_result *out, bool *too_large, diag *d)
{
    run r = { .o = o, .out = out, .hold.fd = -1, .d = d };
    *out = (lm_run_result){ .loss = (double)NAN, .smooth = (double)NAN, .validation = (double)NAN };
    an_status st = set_up(&r);
    if (!st) st = loop(&r);
    if (!st) st = finish(&r);
    if (r.p) pipe_get_stats(r.p, &out->stats);
    *too_large = lacks_memory(&r, st);
    tear_down(&r);
    return st;
}

/* Without memory for a first update activations are computed again instead of being held, which changes no bit. */
an_status lm_run(const lm_run_options *o, lm_run_result *out, diag *d)
{
    lm_run_options less = *o;
    diag why = { 0 };
    bool too_large;
    an_status st = attempt(o, out, &too_large, &why);
    if (too_large && !o->recompute) {
        run said = { .o = o };
        WARN(&said, "%s; trying again with --recompute", why.msg);
        less.recompute = true, why = (diag){ 0 };
        st = attempt(&less, out, &too_large, &why);
    }
    if (!st) return AN_OK;
    if (too_large)
        return diag_fail(d, st, why.at,
                         "%s, with activations computed again (--recompute): a smaller --batch or --seq takes less",
                         why.msg);
    return diag_fail(d, st, why.at, "%s", why.msg);
}
