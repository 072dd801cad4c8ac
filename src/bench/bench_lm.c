/* bench_lm.c: language models: a token at a time, and a prompt.
 * In: presets with random weights.  Out: tokens per second beside what memory or the products alone would allow, in the same run.
 *
 * Decoding reads every weight once per token: the bound is read bandwidth over the bytes of the form, scales included, the embedding
 * counted as the classifier it also is. A prompt is bound by its products: the same convolutions timed alone. */
#include "bench/bench_int.h"
#include "lm/session.h"

static const struct {
    const char *name;
    lm_form form;
    dtype dt;
    double bits; /* per weight of a matrix */
} forms[] = { { "fp16", LM_DENSE, DT_F16, 16 }, { "bf16", LM_DENSE, DT_BF16, 16 }, { "int8", LM_INT8, DT_F16, 8 }, { "int4", LM_INT4, DT_F16, 4.5 } }; /* int4: fp16 scales of blocks of 32 */
static const char *const models[] = { "stories110m", "gpt2" };

/* Weights a token passes through: matrices of the layers and the classifier. */
static double matrix_elems(const model_config *c)
{
    static model_weight all[4096];
    size_t n = model_weights(c, all, COUNT(all));
    double sum = 0;
    for (size_t i = 0; i < n && i < COUNT(all); i++)
        if (all[i].id != MW_POS && (all[i].id != MW_EMBED || c->tied) && all[i].type.sh.d[0] > 1) sum += (double)all[i].type.sh.d[0] * (double)all[i].type.sh.d[1];
    return sum;
}

typedef struct {
    lm_model *m;
    lm_session *s;
    uint32_t ids[256];
    size_t n;
} subject_lm;

static an_status open_lm(bench *b, const char *model, lm_form form, dtype dt, subject_lm *x)
{
    *x = (subject_lm){ 0 };
    lm_options lo = { .dt = dt, .form = form, .seed = 1, .threads = b->pool };
    TRY(lm_open(model, &lo, &x->m, b->d));
    lm_session_options so = { .engine = "cpu", .context = MIN(512, lm_config(x->m)->context), .bucket_max = 256, .threads = pool_threads(b->pool), .no_cache = true };
    TRY(lm_session_open(x->m, &so, &x->s, b->d));
    for (uint32_t i = 0; i < COUNT(x->ids); i++) x->ids[i] = (i * 7919 + 3) % (uint32_t)lm_config(x->m)->vocab;
    return AN_OK;
}

static void close_lm(subject_lm *x)
{
    lm_session_close(x->s);
    lm_close(x->m);
}

/* A prompt in one go and token by token end in the same logits. */
static an_status check_lm(bench *b)
{
    subject_lm x;
    const float *logits;
    float keep[512];
    an_status st = open_lm(b, "tiny", LM_DENSE, DT_F16, &x);
    size_t vocab = st ? 0 : MIN((size_t)lm_config(x.m)->vocab, COUNT(keep));
    if (!st) st = lm_session_feed(x.s, x.ids, 50, &logits, b->d);
    for (size_t i = 0; i < vocab && !st; i++) keep[i] = logits[i];
    if (!st) lm_session_cut(x.s, 0);
    for (size_t i = 0; i < 50 && !st; i++) st = lm_session_feed(x.s, &x.ids[i], 1, &logits, b->d);
    for (size_t i = 0; i < vocab && !st; i++)
        if (!(logits[i] - keep[i] < 0.02f && keep[i] - logits[i] < 0.02f))
            st = diag_fail(b->d, AN_MISMATCH, NOWHERE, "logit %zu is %g token by token and %g as a prompt", i, (double)logits[i], (double)keep[i]);
    close_lm(&x);
    return st;
}

static an_status feed(void *user, diag *d)
{
    subject_lm *x = user;
    lm_session_cut(x->s, 128); /* the cost of a token grows with what it looks back on: always the same */
    return lm_session_feed(x->s, x->ids, x->n, NULL, d);
}

static an_status prompt(void *user, diag *d)
{
    subject_lm *x = user;
    lm_session_cut(x->s, 0);
    return lm_session_feed(x->s, x->ids, COUNT(x->ids), NULL, d);
}

/* Tokens per second if reading the weights were all. */
typedef struct {
    peak_meter *read;
    double bytes; /* a token */
} weights_read;

static double tokens_rate(void *user)
{
    weights_read *x = user;
    return peak_rate(x->read) * 1e9 / x->bytes;
}

an_status bench_decode(bench *b)
{
    TRY(check_lm(b));
    for (size_t k = 0; k < COUNT(models); k++)
        for (size_t f = 0; f < COUNT(forms); f++) {
            subject_lm x;
            timing t;
            an_status st = open_lm(b, models[k], forms[f].form, forms[f].dt, &x);
            if (!st) st = lm_session_feed(x.s, x.ids, 128, NULL, b->d);
            x.n = 1;
            double mb = bench_peak_mb();
            weights_read w = { .bytes = st ? 0 : matrix_elems(lm_config(x.m)) * forms[f].bits / 8 };
            if (!st && !(w.read = peak_read(b->pool, pool_threads(b->pool), (size_t)w.bytes))) st = diag_nomem(b->d);
            if (!st) st = bench_beside(b, feed, &x, (ruler){ tokens_rate, &w }, &t);
            if (!st) {
                char label[96];
                snprintf(label, sizeof label, "%s %s, token 129; %.0f MB a token, peak memory %.0f MB", models[k], forms[f].name, w.bytes / 1e6, mb);
                bench_row(b, "decode", label, t, 1e9, "tok/s", t.limit, "reading as many bytes");
            }
            peak_free(w.read);
            close_lm(&x);
            TRY(st);
        }
    return AN_OK;
}

/* Seconds of the layers' products for 256 tokens; the classifier sees one. */
static an_status products_alone(bench *b, const model_config *c, dtype dt, double *seconds)
{
    int64_t S = 256, Q = c->n_heads * c->head_dim, K = c->n_kv_heads * c->head_dim;
    timing q, kv, o, h, down;
    TRY(bench_conv(b, dt, Q, S, c->dim, &q));
    TRY(bench_conv(b, dt, K, S, c->dim, &kv));
    TRY(bench_conv(b, dt, c->dim, S, Q, &o));
    TRY(bench_conv(b, dt, c->hidden, S, c->dim, &h));
    TRY(bench_conv(b, dt, c->dim, S, c->hidden, &down));
    *seconds = (double)c->n_layers * (q.least + 2 * kv.least + o.least + (c->act == MODEL_ACT_SWIGLU ? 2 : 1) * h.least + down.least);
    return AN_OK;
}

an_status bench_prefill(bench *b)
{
    TRY(check_lm(b));
    for (size_t k = 0; k < COUNT(models); k++) {
        const model_config *c = model_preset_find(models[k]);
        if (!c) return diag_fail(b->d, AN_BUG, NOWHERE, "no preset %s", models[k]);
        double f16, bf16;
        TRY(products_alone(b, c, DT_F16, &f16));
        TRY(products_alone(b, c, DT_BF16, &bf16));
        for (size_t f = 0; f < COUNT(forms); f++) {
            subject_lm x;
            timing t;
            const bool is_bf16 = forms[f].dt == DT_BF16;
            an_status st = open_lm(b, models[k], forms[f].form, forms[f].dt, &x);
            if (!st) st = bench_time(b, prompt, &x, &t);
            if (!st) {
                char label[96];
                snprintf(label, sizeof label, "%s %s, 256 tokens; peak memory %.0f MB", models[k], forms[f].name, bench_peak_mb());
                bench_row(b, "prefill", label, t, 256e9, "tok/s", 256 / (is_bf16 ? bf16 : f16), is_bf16 ? "its bf16 products alone" : "its fp16 products alone");
            }
            close_lm(&x);
            TRY(st);
        }
    }
    return AN_OK;
}
