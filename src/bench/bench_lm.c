/* bench_lm.c: language models: a token at a time, and a prompt. In: presets with random weights.  Out: tokens per
 * second beside what memory or the products alone would allow, in the same run.
 *
 * Decoding reads every weight once per token: the bound is read bandwidth over the bytes of the form, scales
 * included, the embedding counted as the classifier it also is. A prompt is bound by its products: the layers' own,
 * in their order, each with a weight of its own, all of them for every token. A prompt reads every weight once, so
 * none of them is in the cache when its turn comes, here as there. The program itself leaves out what nobody asks
 * for: behind the last layer's keys and values it computes one token (decoder.c), which of twelve layers is 7 % of
 * the products. */
#include <stdlib.h>

#include "base/big.h"
#include "base/plain.h"
#include "bench/bench_int.h"
#include "kernel/gemv.h"
#include "lm/session.h"

static const struct {
    const char *name;
    lm_form form;
    dtype dt;
    double bits; /* per weight of a matrix */
} forms[] = { { "fp16", LM_DENSE, DT_F16, 16 },
              { "bf16", LM_DENSE, DT_BF16, 16 },
              { "int8", LM_INT8, DT_F16, 8 },
              { "int4", LM_INT4, DT_F16, 4.5 } }; /* int4: fp16 scales of blocks of 32 */
static const char *const models[] = { "stories110m", "gpt2" };
enum { PROMPT = 256, OF_A_LAYER = 7 };

/* Weights a token passes through: matrices of the layers and the classifier. */
static double matrix_elems(const model_config *c)
{
    static model_weight all[4096];
    size_t n = model_weights(c, all, COUNT(all));
    double sum = 0;
    for (size_t i = 0; i < n && i < COUNT(all); i++)
        if (all[i].id != MW_POS && (all[i].id != MW_EMBED || c->tied) && all[i].type.sh.d[0] > 1)
            sum += (double)all[i].type.sh.d[0] * (double)all[i].type.sh.d[1];
    return sum;
}

typedef struct {
    lm_model *m;
    lm_session *s;
    uint32_t ids[PROMPT];
    size_t n;
} subject_lm;

/* held: tokens are looked up in rows that lie in memory; made anew for a whole prompt they would be felt. */
static an_status open_lm(bench *b, const char *model, lm_form form, dtype dt, bool held, subject_lm *x)
{
    *x = (subject_lm){ 0 };
    lm_options lo = { .dt = dt, .form = form, .seed = 1, .rows_held = held, .threads = b->pool };
    TRY(lm_open(model, &lo, &x->m, b->d));
    lm_session_options so = { .engine = "cpu",
                              .context = MIN(512, lm_config(x->m)->context),
                              .bucket_max = PROMPT,
                              .threads = pool_threads(b->pool),
                              .no_cache = true };
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
    an_status st = open_lm(b, "tiny", LM_DENSE, DT_F16, true, &x);
    size_t vocab = st ? 0 : MIN((size_t)lm_config(x.m)->vocab, COUNT(keep));
    if (!st) st = lm_session_feed(x.s, x.ids, 50, &logits, b->d);
    for (size_t i = 0; i < vocab && !st; i++) keep[i] = logits[i];
    if (!st) lm_session_cut(x.s, 0);
    for (size_t i = 0; i < 50 && !st; i++) st = lm_session_feed(x.s, &x.ids[i], 1, &logits, b->d);
    for (size_t i = 0; i < vocab && !st; i++)
        if (!(logits[i] - keep[i] < 0.02f && keep[i] - logits[i] < 0.02f))
            st = diag_fail(b->d, AN_MISMATCH, NOWHERE, "logit %zu is %g token by token and %g as a prompt", i,
                           (double)logits[i], (double)keep[i]);
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
            bench_peak_anew();
            an_status st = open_lm(b, models[k], forms[f].form, forms[f].dt, false, &x);
            if (!st) st = lm_session_feed(x.s, x.ids, 128, NULL, b->d);
            x.n = 1;
            double mb = bench_peak_mb();
            weights_read w = { .bytes = st ? 0 : matrix_elems(lm_config(x.m)) * forms[f].bits / 8 };
            if (!st && !(w.read = peak_read(b->pool, pool_threads(b->pool), (size_t)w.bytes))) st = diag_nomem(b->d);
            if (!st) st = bench_beside(b, feed, &x, (ruler){ tokens_rate, &w }, &t);
            if (!st) {
                char label[96];
                plain_printf(label, sizeof label, "%s %s, token 129; %.0f MB a token, peak memory %.0f MB", models[k],
                             forms[f].name, w.bytes / 1e6, mb);
                bench_row(b, "decode", label,
                          forms[f].form == LM_DENSE && forms[f].dt == DT_F16 ? bench_kernel(b, GEMM_F16)
                                                                             : gemv_name(gemv_pick(b->isa)),
                          t, 1e9, "tok/s", t.limit, "reading as many bytes");
            }
            peak_free(w.read);
            close_lm(&x);
            TRY(st);
        }
    return AN_OK;
}

/* The layers' products for a prompt of PROMPT tokens and nothing else; the classifier, which sees one token, is left
 * out. Weights lie one behind the other on large pages; values and results lie where the ones before did. */
typedef struct {
    gemm_call one[OF_A_LAYER]; /* of the first layer */
    size_t bytes[OF_A_LAYER];  /* of its packed weight */
    int n;
    int64_t layers;
    char *weights;
    void *x, *y, *scratch;
    diag *d;
} products;

static an_status products_run(const products *p, diag *d)
{
    const char *w = p->weights;
    for (int64_t l = 0; l < p->layers; l++)
        for (int i = 0; i < p->n; w += p->bytes[i++]) {
            gemm_call c = p->one[i];
            c.a = w;
            TRY(gemm_run(&c, d));
        }
    return AN_OK;
}

static double products_rate(void *user)
{
    products *p = user;
    pool_enter(p->one[0].pool);
    uint64_t from = clock_ns();
    an_status st = products_run(p, p->d);
    double seconds = (double)(clock_ns() - from) * 1e-9;
    pool_leave(p->one[0].pool);
    return st ? 0 : PROMPT / seconds;
}

static void products_close(products *p)
{
    free(p->weights);
    free(p->x);
    free(p->y);
    free(p->scratch);
}

static an_status products_open(bench *b, const model_config *c, dtype dt, products *p)
{
    const int64_t Q = c->n_heads * c->head_dim, K = c->n_kv_heads * c->head_dim, gates = model_gated(c) ? 2 : 1,
                  wide = MAX(MAX(c->dim, c->hidden), Q);
    const struct {
        int64_t times, m, k;
    } shapes[] = {
        { 1, Q, c->dim }, { 2, K, c->dim }, { 1, c->dim, Q }, { gates, c->hidden, c->dim }, { 1, c->dim, c->hidden }
    };
    const gemm_kernel *g = gemm_pick(dt == DT_BF16 ? GEMM_BF16 : GEMM_F16, b->isa);
    const int threads = pool_threads(b->pool);
    size_t layer = 0, most = 0, need, bytes;
    *p = (products){ .layers = c->n_layers, .d = b->d };
    for (size_t s = 0; s < COUNT(shapes); s++)
        for (int64_t i = 0; i < shapes[s].times; i++, p->n++) {
            const gemm_call *before = p->n ? &p->one[p->n - 1] : NULL;
            /* of the same value: it is packed */
            const bool again = before && s != 2 && s != 4 && before->m == shapes[s].m && before->k == shapes[s].k;
            p->one[p->n] = (gemm_call){ .kernel = g,
                                        .pool = b->pool,
                                        .m = shapes[s].m,
                                        .n = PROMPT,
                                        .k = shapes[s].k,
                                        .same_b = again,
                                        .c_type = dt,
                                        .ldc = PROMPT };
            if (!gemm_pack_a_bytes(g, shapes[s].m, shapes[s].k, &p->bytes[p->n]) ||
                !gemm_scratch_bytes(g, shapes[s].m, PROMPT, shapes[s].k, threads, &need))
                return diag_fail(b->d, AN_BUG, NOWHERE, "%s: %lld x %lld is too large", gemm_name(g),
                                 (long long)shapes[s].m, (long long)shapes[s].k);
            layer += p->bytes[p->n];
            most = MAX(most, need);
        }
    if (!mul_size(layer, (size_t)c->n_layers, &bytes) || !dtype_bytes(dt, wide * MAX(PROMPT, c->dim), &need))
        return diag_nomem(b->d);
    p->weights = big_alloc(64, bytes), p->x = big_alloc(64, need), p->y = big_alloc(64, need),
    p->scratch = big_alloc(64, most);
    if (!p->weights || !p->x || !p->y || !p->scratch) return diag_nomem(b->d);
    rng r = { 1 };
    for (int64_t i = 0; i < wide * MAX(PROMPT, c->dim); i++) dtype_store(dt, p->x, i, rng_range(&r, -0.05, 0.05));
    char *w = p->weights;
    for (int i = 0; i < p->n; i++) {
        gemm_call *x = &p->one[i];
        x->b = (gemm_view){ .at = p->x, .type = dt, .row = PROMPT, .col = 1 };
        x->c = p->y, x->scratch = p->scratch, x->scratch_bytes = most;
    }
    for (int64_t l = 0; l < p->layers; l++)
        for (int i = 0; i < p->n; w += p->bytes[i++])
            TRY(gemm_pack_a(g, b->pool, p->one[i].m, p->one[i].k,
                            (gemm_view){ .at = p->x, .type = dt, .row = p->one[i].k, .col = 1 }, w, b->d));
    return AN_OK;
}

an_status bench_prefill(bench *b)
{
    TRY(check_lm(b));
    for (size_t k = 0; k < COUNT(models); k++)
        for (size_t f = 0; f < COUNT(forms); f++) {
            subject_lm x;
            timing t;
            const model_config *c = model_preset_find(models[k]);
            if (!c) return diag_fail(b->d, AN_BUG, NOWHERE, "no preset %s", models[k]);
            const bool is_bf16 = forms[f].dt == DT_BF16;
            products p = { 0 };
            an_status st = open_lm(b, models[k], forms[f].form, forms[f].dt, true, &x);
            if (!st) st = products_open(b, c, forms[f].dt, &p);
            if (!st) st = bench_beside(b, prompt, &x, (ruler){ products_rate, &p }, &t);
            if (!st) {
                char label[96];
                snprintf(label, sizeof label, "%s %s, %d tokens", models[k], forms[f].name, PROMPT);
                bench_row(b, "prefill", label, bench_kernel(b, is_bf16 ? GEMM_BF16 : GEMM_F16), t, PROMPT * 1e9,
                          "tok/s", t.limit,
                          is_bf16 ? "bf16 products of all tokens alone, in turns, weights from memory"
                                  : "fp16 products of all tokens alone, in turns, weights from memory");
            }
            products_close(&p);
            close_lm(&x);
            TRY(st);
        }
    return AN_OK;
}
