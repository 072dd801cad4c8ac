/* bench_train_lm.c: a whole training step of a language model: tokens in, loss, gradients, AdamW with clipping, as one dispatch.
 * In: Stories110M with random weights, one batch.  Out: seconds of a step beside its floor: the products alone, each at the rate of its
 * own shape with its left operand packed ahead, and the bytes an update must move at copy bandwidth, measured right behind the steps.
 *
 * Checked: a small model of the same kind against the reference executor, by the loss of the second step, which has the update of the
 * first in it; the large one by a loss that begins at what guessing gives and falls. */
#include <math.h>
#include <stdlib.h>

#include "base/big.h"
#include "bench/bench_int.h"
#include "model/decoder.h"
#include "train/train.h"

typedef struct {
    trainer *t;
    int32_t *tokens, *targets; /* B*T */
    double loss, params;
} lm;

static void lm_drop(lm *m)
{
    train_close(m->t);
    free(m->tokens);
    free(m->targets);
}

/* Matrices of noise, gains of 1: numbers are drawn once and used again, or drawing would take longer than the steps. */
static an_status lm_fill(lm *m, const decoder *dec, diag *d)
{
    enum { DRAWN = 65537 };
    float *drawn = malloc(DRAWN * sizeof *drawn);
    an_status st = drawn ? AN_OK : diag_nomem(d);
    rng r = { 1 };
    for (int i = 0; i < DRAWN && !st; i++) drawn[i] = (float)(0.02 * rng_normal(&r));
    for (size_t i = 0; i < dec->n_param && !st; i++) {
        const value *v = graph_value(dec->g, dec->param[i]);
        int64_t n = 0;
        float *w = shape_elems(&v->type.sh, &n) ? malloc((size_t)n * sizeof *w) : NULL;
        if (!w) st = diag_nomem(d);
        bool gain = dec->weight[i].type.sh.d[0] == 1 || dec->weight[i].type.sh.d[1] == 1;
        for (int64_t k = 0; k < n && !st; k++) w[k] = gain ? 1 : drawn[(uint64_t)(k * 7 + (int64_t)i * 131) % DRAWN];
        if (!st) st = train_write(m->t, v->name, DT_F32, w, d);
        m->params += (double)n;
        free(w);
    }
    free(drawn);
    return st;
}

static an_status lm_make(lm *m, const model_config *c, int64_t B, int64_t T, const device_options *o, diag *d)
{
    decoder dec;
    model_config plain = *c;
    *m = (lm){ 0 };
    plain.dt = DT_F32;
    TRY(decoder_build(&plain, &(decoder_options){ .use = DECODER_TRAIN, .param_inputs = true, .batch = B, .seq = T }, NULL, &dec, d));
    train_param *p = calloc(dec.n_param, sizeof *p);
    m->tokens = malloc((size_t)(B * T) * sizeof *m->tokens), m->targets = malloc((size_t)(B * T) * sizeof *m->targets);
    an_status st = p && m->tokens && m->targets ? AN_OK : diag_nomem(d);
    for (size_t i = 0; i < dec.n_param && !st; i++) p[i] = (train_param){ graph_value(dec.g, dec.param[i])->name, dec.weight[i].type.sh.d[1] > 1 };
    if (!st) st = train_open(&m->t, dec.g, &(train_options){ .engine = "cpu", .device = *o, .loss = dec.loss, .param = p, .n_param = dec.n_param,
                             .optimizer = "adamw", .beta2 = 0.95, .decay = 0.1, .clip = 1 }, d);
    if (!st) st = lm_fill(m, &dec, d);
    for (int64_t i = 0; i < B * T && !st; i++) m->tokens[i] = (int32_t)((i * 7919 + 3) % c->vocab), m->targets[i] = (int32_t)(((i + 1) * 7919 + 3) % c->vocab);
    free(p);
    graph_free(dec.g);
    return st;
}

static an_status lm_step(lm *m, diag *d)
{
    train_report r;
    TRY(train_put(m->t, "tokens", DT_I32, m->tokens, d));
    TRY(train_put(m->t, "targets", DT_I32, m->targets, d));
    TRY(train_step(m->t, 3e-4, &r, d));
    m->loss = r.loss;
    return r.applied ? AN_OK : diag_fail(d, AN_MISMATCH, NOWHERE, "bench train: a step was not finite");
}

static an_status second_loss(const model_config *c, const device_options *o, double *loss, diag *d)
{
    lm m;
    an_status st = lm_make(&m, c, 2, 32, o, d);
    for (int i = 0; i < 2 && !st; i++) st = lm_step(&m, d);
    *loss = m.loss;
    lm_drop(&m);
    return st;
}

static an_status check(bench *b, const model_config *small, int fast)
{
    device_options o = { .pool = b->pool, .fast_math = fast }, ref = { .pool = b->pool, .reference = true };
    double got, want;
    TRY(second_loss(small, &o, &got, b->d));
    TRY(second_loss(small, &ref, &want, b->d));
    if (fabs(got - want) <= (fast ? 2e-2 : 1e-4) * want) return AN_OK;
    return diag_fail(b->d, AN_MISMATCH, NOWHERE, "bench train: the second loss is %.6g, the reference says %.6g", got, want);
}

/* ---- the floor ---- */

enum { RUNS = 3, STEPS = 2 };

typedef struct {
    gemm_call call;
    void *a;
    float *b, *c;
    void *scratch;
} product;

static void *take(size_t n) { return big_alloc(64, n); }

/* Least seconds of C[m,n] = A·B with A packed; turned: B lies as [n, k]. */
static an_status product_seconds(bench *b, gemm_math math, int64_t m, int64_t n, int64_t k, bool turned, double *seconds)
{
    const gemm_kernel *g = gemm_pick(math, b->isa);
    size_t na, ns;
    if (!gemm_pack_a_bytes(g, m, k, &na) || !gemm_scratch_bytes(g, m, n, k, pool_threads(b->pool), &ns)) return diag_nomem(b->d);
    product p = { .a = take(na), .b = take((size_t)(k * n) * 4), .c = take((size_t)(m * n) * 4), .scratch = take(ns) };
    an_status st = p.a && p.b && p.c && p.scratch ? AN_OK : diag_nomem(b->d);
    if (!st) {
        memset(p.a, 0, na), memset(p.c, 0, (size_t)(m * n) * 4);
        for (int64_t i = 0; i < k * n; i++) p.b[i] = 1;
        p.call = (gemm_call){ .kernel = g, .pool = b->pool, .m = m, .n = n, .k = k, .a = p.a, .c = p.c, .c_type = DT_F32, .ldc = n, .scratch = p.scratch, .scratch_bytes = ns,
                              .b = { .at = p.b, .type = DT_F32, .row = turned ? 1 : n, .col = turned ? k : 1 } };
    }
    pool_enter(b->pool);
    for (int i = 0; i < RUNS && !st; i++) {
        uint64_t from = clock_ns();
        st = gemm_run(&p.call, b->d);
        double s = (double)(clock_ns() - from) * 1e-9;
        if (!i || s < *seconds) *seconds = s;
    }
    pool_leave(b->pool);
    free(p.a), free(p.b), free(p.c), free(p.scratch);
    return st;
}

/* A matrix of out x in: forward, and the gradients of its input and of itself. */
static an_status three(bench *b, gemm_math math, int64_t out, int64_t in, int64_t tokens, double times, double *sum)
{
    double s[3];
    TRY(product_seconds(b, math, out, tokens, in, false, &s[0]));
    TRY(product_seconds(b, math, in, tokens, out, false, &s[1]));
    TRY(product_seconds(b, math, out, in, tokens, true, &s[2]));
    *sum += times * (s[0] + s[1] + s[2]);
    return AN_OK;
}

static an_status floor_of(bench *b, const model_config *c, gemm_math math, int64_t B, int64_t T, double params, double *products, double *update)
{
    int64_t Q = c->n_heads * c->head_dim, K = c->n_kv_heads * c->head_dim;
    double L = (double)c->n_layers, square = 0;
    *products = 0;
    TRY(three(b, math, Q, c->dim, B * T, 1, &square));
    *products += 2 * L * square; /* queries, and what follows attention */
    TRY(three(b, math, K, c->dim, B * T, 2 * L, products));
    TRY(three(b, math, c->hidden, c->dim, B * T, c->act == MODEL_ACT_SWIGLU ? 2 * L : L, products));
    TRY(three(b, math, c->dim, c->hidden, B * T, L, products));
    TRY(three(b, math, c->vocab, c->dim, B * T, 1, products));
    /* scores and their use, the half that is not masked, three times, at the rate of the square products */
    *products += L * (double)(B * T * T * Q) * 6 / (6.0 * (double)(Q * c->dim * B * T)) * square;
    double gbs = peak_copy_gbs(b->pool, pool_threads(b->pool));
    if (!(gbs > 0)) return diag_nomem(b->d);
    *update = params * 28 / (gbs * 1e9); /* four arrays read, three written */
    return AN_OK;
}

/* ---- rows ---- */

static an_status steps(bench *b, const model_config *c, int64_t B, int64_t T, int fast, timing *t, double *params)
{
    lm m;
    double first = 0, s[STEPS] = { 0 };
    an_status st = lm_make(&m, c, B, T, &(device_options){ .pool = b->pool, .fast_math = fast }, b->d);
    for (int i = -1; i < STEPS && !st; i++) { /* the first touches memory for the first time */
        uint64_t from = clock_ns();
        st = lm_step(&m, b->d);
        if (i < 0) first = m.loss;
        else s[i] = (double)(clock_ns() - from) * 1e-9;
    }
    if (!st && !(fabs(first - log((double)c->vocab)) < 0.5 && m.loss < first))
        st = diag_fail(b->d, AN_MISMATCH, NOWHERE, "bench train: the loss went from %.4g to %.4g; it begins at %.4g by guessing and should fall", first, m.loss, log((double)c->vocab));
    *params = m.params;
    lm_drop(&m);
    *t = (timing){ .least = MIN(s[0], s[1]), .median = MAX(s[0], s[1]) };
    return st;
}

an_status bench_train(bench *b)
{
    static const struct {
        int64_t batch;
        const char *math;
        int fast;
        gemm_math floor;
    } rows[] = { { 1, "bf16", FAST_BF16, GEMM_BF16 }, { 1, "fp32", FAST_NONE, GEMM_F32 }, { 4, "bf16", FAST_BF16, GEMM_BF16 }, { 4, "fp32", FAST_NONE, GEMM_F32 } };
    const model_config *c = model_preset_find("stories110m"), *small = model_preset_find("tiny");
    const int64_t T = 256;
    if (!c || !small) return diag_fail(b->d, AN_BUG, NOWHERE, "a preset is missing");
    for (size_t i = 0; i < COUNT(rows); i++) {
        timing t;
        double params, mb, products = 0, update = 0;
        char label[128];
        TRY(check(b, small, rows[i].fast));
        TRY(steps(b, c, rows[i].batch, T, rows[i].fast, &t, &params));
        mb = bench_peak_mb(); /* of the process: rows before this one count, and they are smaller */
        TRY(floor_of(b, c, rows[i].floor, rows[i].batch, T, params, &products, &update));
        double tokens = (double)(rows[i].batch * T), all = products + update;
        snprintf(label, sizeof label, "%s, B %lld T %lld, %.2f of the floor %.3f + %.3f s, peak memory %.0f MB", rows[i].math, (long long)rows[i].batch, (long long)T,
                 t.least / all, products, update, mb);
        bench_row(b, "train", label, t, tokens * 1e9, "tok/s", tokens / all, "its products packed, and the update's bytes");
    }
    return AN_OK;
}
