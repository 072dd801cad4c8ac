/* bench_train_lm.c: a whole training step of a language model: tokens in, loss, gradients, AdamW with clipping, as
 * one dispatch. In: Stories110M with random weights, one batch.  Out: seconds of a step beside its floor: the
 * products alone, left operands packed ahead, and the bytes an update must move at copy bandwidth, measured in turns
 * with the steps; the ratio is the median over the turns. Beside it the ratio to a floor nobody reaches: the same
 * products at the kernel's rate with operands in L1, and the update.
 *
 * Checked: a small model of the same kind against the reference executor, by the loss of the second step, which has
 * the update of the first in it; the large one by a loss that begins at what guessing gives and falls. */
#include <math.h>
#include <stdlib.h>

#include "base/big.h"
#include "base/plain.h"
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
    TRY(decoder_build(&plain, &(decoder_options){ .use = DECODER_TRAIN, .param_inputs = true, .batch = B, .seq = T },
                      NULL, &dec, d));
    train_param *p = calloc(dec.n_param, sizeof *p);
    m->tokens = malloc((size_t)(B * T) * sizeof *m->tokens), m->targets = malloc((size_t)(B * T) * sizeof *m->targets);
    an_status st = p && m->tokens && m->targets ? AN_OK : diag_nomem(d);
    for (size_t i = 0; i < dec.n_param && !st; i++)
        p[i] = (train_param){ graph_value(dec.g, dec.param[i])->name, dec.weight[i].type.sh.d[1] > 1 };
    if (!st) st = train_open(&m->t, dec.g, &(train_options){ .engine = "cpu", .device = *o, .loss = dec.loss,
                                                             .param = p, .n_param = dec.n_param, .optimizer = "adamw",
                                                             .beta2 = 0.95, .decay = 0.1, .clip = 1 }, d);
    if (!st) st = lm_fill(m, &dec, d);
    for (int64_t i = 0; i < B * T && !st; i++)
        m->tokens[i] = (int32_t)((i * 7919 + 3) % c->vocab), m->targets[i] = (int32_t)(((i + 1) * 7919 + 3) % c->vocab);
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
    bench_peak_anew();
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
    return diag_fail(b->d, AN_MISMATCH, NOWHERE, "bench train: the second loss is %.6g, the reference says %.6g", got,
                     want);
}

/* ---- the floor ---- */

/* A step's products in its order and nothing else: forward, and back the gradients of inputs and weights. Left
 * operands are packed ahead; each of them, and each result, has its own place in a stretch of memory as large as all
 * weights, or all gradients, so that none is in a cache when its turn comes, here as there. Right operands stay
 * where they are. */
typedef struct {
    bench *b;
    const gemm_kernel *g;
    const model_config *c;
    int64_t seq, tokens;
    struct stretch {
        char *memory;
        size_t bytes, at;
    } left, results;
    float *right;
    void *scratch;
    size_t scratch_bytes;
    double squares; /* seconds of the products of queries and of what follows attention, so far */
    double flops, square_flops; /* of all, of these */
} floor_run;

enum { ALIGN = 64 };

static void *next_place(struct stretch *s, size_t n)
{
    if (s->at + n > s->bytes) s->at = 0;
    void *at = s->memory + s->at;
    s->at += ROUND_UP(n, (size_t)ALIGN);
    return at;
}

/* C[m,n] = A·B; turned: B lies as [n, k]. */
static an_status floor_product(floor_run *f, int64_t m, int64_t n, int64_t k, bool turned)
{
    size_t na;
    if (!gemm_pack_a_bytes(f->g, m, k, &na)) return diag_nomem(f->b->d);
    const void *a = next_place(&f->left, na);
    float *c = next_place(&f->results, (size_t)(m * n) * sizeof(float));
    f->flops += 2.0 * (double)m * (double)n * (double)k;
    return gemm_run(&(gemm_call){ .kernel = f->g, .pool = f->b->pool, .m = m, .n = n, .k = k, .a = a, .c = c,
                                  .c_type = DT_F32, .ldc = n, .scratch = f->scratch, .scratch_bytes = f->scratch_bytes,
                                  .b = { .at = f->right, .type = DT_F32, .row = turned ? 1 : n,
                                         .col = turned ? k : 1 } }, f->b->d);
}

/* A matrix of out x in: forward, or back. */
static an_status floor_matrix(floor_run *f, int64_t out, int64_t in, int64_t times, bool back)
{
    for (int64_t i = 0; i < times; i++) {
        if (!back) TRY(floor_product(f, out, f->tokens, in, false));
        if (back) TRY(floor_product(f, in, f->tokens, out, false));
        if (back) TRY(floor_product(f, out, in, f->tokens, true));
    }
    return AN_OK;
}

static an_status floor_layer(floor_run *f, bool back)
{
    const model_config *c = f->c;
    const int64_t Q = c->n_heads * c->head_dim, K = c->n_kv_heads * c->head_dim;
    const double before = f->flops;
    uint64_t from = clock_ns();
    TRY(floor_matrix(f, Q, c->dim, 2, back));
    f->squares += (double)(clock_ns() - from) * 1e-9;
    f->square_flops += f->flops - before;
    TRY(floor_matrix(f, K, c->dim, 2, back));
    TRY(floor_matrix(f, c->hidden, c->dim, model_gated(c) ? 2 : 1, back));
    return floor_matrix(f, c->dim, c->hidden, 1, back);
}

static an_status floor_products(floor_run *f, double *seconds)
{
    const model_config *c = f->c;
    an_status st = AN_OK;
    f->squares = f->flops = f->square_flops = 0;
    pool_enter(f->b->pool);
    uint64_t from = clock_ns();
    for (int64_t l = 0; l < c->n_layers && !st; l++) st = floor_layer(f, false);
    if (!st) st = floor_matrix(f, c->vocab, c->dim, 1, false);
    if (!st) st = floor_matrix(f, c->vocab, c->dim, 1, true);
    for (int64_t l = 0; l < c->n_layers && !st; l++) st = floor_layer(f, true);
    *seconds = (double)(clock_ns() - from) * 1e-9;
    pool_leave(f->b->pool);
    /* scores and their use, the half that is not masked, three times, at the rate of the square products */
    const double scores = (double)f->seq / (2 * (double)c->dim);
    *seconds += scores * f->squares, f->flops += scores * f->square_flops;
    return st;
}

static void floor_close(floor_run *f)
{
    free(f->left.memory), free(f->results.memory), free(f->right), free(f->scratch);
}

static bool stretch_make(struct stretch *s, size_t bytes)
{
    s->bytes = bytes, s->memory = big_alloc(ALIGN, bytes);
    if (s->memory) memset(s->memory, 0x3c, bytes); /* 0.01 in fp32 and in bf16 */
    return s->memory != NULL;
}

static an_status floor_open(bench *b, const model_config *c, gemm_math math, int64_t B, int64_t T, double params,
                            floor_run *f)
{
    const int64_t tokens = B * T, Q = c->n_heads * c->head_dim, wide = MAX(MAX(c->vocab, c->hidden), MAX(c->dim, Q)),
                  most = wide * MAX(tokens, MAX(c->dim, Q));
    const int64_t out[] = { Q, c->n_kv_heads * c->head_dim, c->hidden, c->dim, c->vocab },
                  in[] = { c->dim, c->dim, c->dim, c->hidden, c->dim };
    *f = (floor_run){ .b = b, .g = gemm_pick(math, b->isa), .c = c, .seq = T, .tokens = tokens };
    for (size_t i = 0; i < COUNT(out); i++) {
        size_t n[3];
        if (!gemm_scratch_bytes(f->g, out[i], tokens, in[i], pool_threads(b->pool), &n[0]) ||
            !gemm_scratch_bytes(f->g, in[i], tokens, out[i], pool_threads(b->pool), &n[1]) ||
            !gemm_scratch_bytes(f->g, out[i], in[i], tokens, pool_threads(b->pool), &n[2]))
            return diag_nomem(b->d);
        f->scratch_bytes = MAX(f->scratch_bytes, MAX(n[0], MAX(n[1], n[2])));
    }
    f->scratch = big_alloc(ALIGN, f->scratch_bytes), f->right = big_alloc(ALIGN, (size_t)most * sizeof(float));
    if (!f->scratch || !f->right || !stretch_make(&f->left, MAX((size_t)(params * 4), (size_t)most * 5)) ||
        !stretch_make(&f->results, MAX((size_t)(params * 4), (size_t)most * 4)))
        return diag_nomem(b->d);
    for (int64_t i = 0; i < most; i++) f->right[i] = 1;
    return AN_OK;
}

/* ---- rows ---- */

/* Steps and floors in turns: what slows this machine for some seconds slows both. */
enum { TURNS = 5, LEAST_TURNS = 2, ENOUGH_SECONDS = 12 };

typedef struct {
    timing t;
    /* seconds, and ratios to them and to a floor at the kernel's rate in L1: medians */
    double products, update, of_floor, by_kernel, mb;
} outcome;

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(const double *x, int n)
{
    double s[TURNS];
    memcpy(s, x, sizeof *s * (size_t)n);
    qsort(s, (size_t)n, sizeof *s, ascending);
    return n % 2 ? s[n / 2] : (s[n / 2 - 1] + s[n / 2]) / 2;
}

static an_status take_turns(bench *b, lm *m, floor_run *f, peak_meter *copy, peak_meter *kernel, outcome *o)
{
    double step[TURNS], products[TURNS], update[TURNS], ratio[TURNS], by_kernel[TURNS], least = INFINITY;
    int n = 0;
    for (uint64_t from = clock_ns();
         n < TURNS && (n < LEAST_TURNS || (double)(clock_ns() - from) * 1e-9 < ENOUGH_SECONDS); n++) {
        uint64_t at = clock_ns();
        TRY(lm_step(m, b->d));
        step[n] = (double)(clock_ns() - at) * 1e-9;
        TRY(floor_products(f, &products[n]));
        update[n] = m->params * 28 / (peak_rate(copy) * 1e9); /* four arrays read, three written */
        ratio[n] = step[n] / (products[n] + update[n]);
        by_kernel[n] = step[n] / (f->flops / (peak_rate(kernel) * 1e9) + update[n]);
        least = MIN(least, step[n]);
    }
    o->products = median(products, n), o->update = median(update, n), o->of_floor = median(ratio, n),
    o->by_kernel = median(by_kernel, n);
    o->t = (timing){ .least = least,
                     .median = median(step, n),
                     .limit = (double)f->tokens / (o->products + o->update),
                     .could = (double)f->tokens * o->of_floor };
    return AN_OK;
}

static an_status measure(bench *b, const model_config *c, int64_t B, int64_t T, int fast, gemm_math math, outcome *o)
{
    lm m;
    floor_run f = { 0 };
    peak_meter *copy = NULL, *kernel = NULL;
    an_status st = lm_make(&m, c, B, T, &(device_options){ .pool = b->pool, .fast_math = fast }, b->d);
    if (!st) st = lm_step(&m, b->d); /* the first touches memory for the first time */
    const double first = m.loss;
    o->mb = bench_peak_mb();
    if (!st) st = floor_open(b, c, math, B, T, m.params, &f);
    if (!st && !(copy = peak_copy(b->pool, pool_threads(b->pool), PEAK_FAR))) st = diag_nomem(b->d);
    if (!st && !(kernel = peak_gemm(f.g, b->pool, pool_threads(b->pool)))) st = diag_nomem(b->d);
    if (!st) st = take_turns(b, &m, &f, copy, kernel, o);
    if (!st && !(fabs(first - log((double)c->vocab)) < 0.5 && m.loss < first))
        st = diag_fail(b->d, AN_MISMATCH, NOWHERE,
                       "bench train: the loss went from %.4g to %.4g; it begins at %.4g by guessing and should fall",
                       first, m.loss, log((double)c->vocab));
    peak_free(copy);
    peak_free(kernel);
    floor_close(&f);
    lm_drop(&m);
    return st;
}

an_status bench_train(bench *b)
{
    static const struct {
        int64_t batch;
        const char *math;
        int fast;
        gemm_math floor;
    } rows[] = { { 1, "bf16", FAST_BF16, GEMM_BF16 },
                 { 1, "fp32", FAST_NONE, GEMM_F32 },
                 { 4, "bf16", FAST_BF16, GEMM_BF16 },
                 { 4, "fp32", FAST_NONE, GEMM_F32 } };
    const model_config *c = model_preset_find("stories110m"), *small = model_preset_find("tiny");
    const int64_t T = 256;
    if (!c || !small) return diag_fail(b->d, AN_BUG, NOWHERE, "a preset is missing");
    for (size_t i = 0; i < COUNT(rows); i++) {
        outcome o = { 0 };
        char label[128];
        TRY(check(b, small, rows[i].fast));
        TRY(measure(b, c, rows[i].batch, T, rows[i].fast, rows[i].floor, &o));
        plain_printf(
            label, sizeof label,
            "%s, B %lld T %lld, %.2f of the floor %.3f + %.3f s, %.2f by the kernel in L1, peak memory %.0f MB",
            rows[i].math, (long long)rows[i].batch, (long long)T, o.of_floor, o.products, o.update, o.by_kernel, o.mb);
        bench_row(b, "train", label, bench_kernel(b, rows[i].floor), o.t, (double)(rows[i].batch * T) * 1e9, "tok/s",
                  o.t.limit, "its products packed, and the update's bytes, in turns");
    }
    return AN_OK;
}
