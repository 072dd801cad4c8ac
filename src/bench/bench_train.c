/* bench_train.c: a whole training step: minibatch in, loss, gradients and update as one dispatch. Checked against
 * the reference executor: the loss of the second step, which has the update of the first in it. The bound is the
 * rate of the matrix kernel with operands in L1, for the products a step needs: forward, gradients of the weights,
 * and gradients of the activations of every layer but the first. The usual count, six operations per weight and
 * image, has that one too; the row counts what is done, and its label says what share of the bound the usual count
 * would give. A second row has the bytes a step cannot leave out beside the products: every weight read forward, its
 * gradient written and read, the weight read and written, and its moments, at the rate a copy of so many bytes has,
 * which mostly stay in the second caches. Where a matrix unit takes less time for the products than caches for
 * these, that is the bound. A third row has the step's own products and nothing else, in its order and from operands
 * as they lie there: what is missing to it is dispatch, data, losses and update. */
#include <math.h>
#include <stdlib.h>

#include "base/big.h"
#include "base/plain.h"
#include "bench/bench_int.h"
#include "model/net.h"
#include "train/train.h"

typedef struct {
    trainer *t;
    float *x, *y;
    double loss;
} mlp;

static an_status step(void *user, diag *d)
{
    mlp *m = user;
    train_report r;
    TRY(train_put(m->t, "x", DT_F32, m->x, d));
    TRY(train_put(m->t, "y", DT_F32, m->y, d));
    TRY(train_step(m->t, 1e-4, &r, d)); /* small: hundreds of steps on one minibatch must not end at a loss of 0 */
    m->loss = r.loss;
    return AN_OK;
}

static void mlp_close(mlp *m)
{
    train_close(m->t);
    free(m->x);
    free(m->y);
}

static an_status mlp_fill(mlp *m, const net *n, diag *d)
{
    rng r = { 1 };
    int64_t pixels = n->opt.batch * n->opt.height * n->opt.width;
    m->x = malloc((size_t)pixels * sizeof *m->x), m->y = malloc((size_t)n->rows * sizeof *m->y);
    if (!m->x || !m->y) return diag_nomem(d);
    for (int64_t i = 0; i < pixels; i++) m->x[i] = (float)rng_unit(&r);
    for (int64_t i = 0; i < n->rows; i++) m->y[i] = (float)rng_below(&r, (uint64_t)n->opt.classes);
    for (int i = 0; i < n->n_param; i++) {
        float *w = malloc((size_t)net_param_count(n, i) * sizeof *w);
        if (!w) return diag_nomem(d);
        net_init_fill(n, i, &r, w);
        an_status st = train_write(m->t, n->param[i].name, DT_F32, w, d);
        free(w);
        TRY(st);
    }
    return AN_OK;
}

static an_status mlp_open(mlp *m, const char *optimizer, const device_options *o, net *n, diag *d)
{
    train_param p[NET_MAX_PARAMS];
    *m = (mlp){ 0 };
    TRY(net_build("mlp", &(net_options){ .batch = 64, .dt = DT_F32 }, n, d));
    for (int i = 0; i < n->n_param; i++) p[i] = (train_param){ n->param[i].name, n->param[i].decay };
    an_status st = train_open(&m->t, n->g,
                              &(train_options){ .engine = "cpu",
                                                .device = *o,
                                                .optimizer = optimizer,
                                                .loss = n->loss,
                                                .param = p,
                                                .n_param = (size_t)n->n_param,
                                                .fetch = NULL },
                              d);
    if (!st) st = mlp_fill(m, n, d);
    return st;
}

/* The loss after one update, by either executor. */
static an_status second_loss(const char *optimizer, const device_options *o, double *loss, diag *d)
{
    mlp m;
    net n = { 0 };
    an_status st = mlp_open(&m, optimizer, o, &n, d);
    for (int i = 0; i < 2 && !st; i++) st = step(&m, d);
    *loss = m.loss;
    mlp_close(&m);
    net_free(&n);
    return st;
}

/* Multiply-adds of the matrices, and of the first layer. */
static double matrix_macs(const net *n, double *first)
{
    double all = 0;
    *first = 0;
    for (int i = 0; i < n->n_param; i++) {
        if (!n->param[i].decay) continue; /* biases */
        double k = (double)net_param_count(n, i) * (double)n->opt.batch;
        if (!(*first > 0)) *first = k;
        all += k;
    }
    return all;
}

/* Products, then bytes. */
typedef struct {
    peak_meter *products, *copy;
    double flops, bytes;
} both;

static double bound_both(void *user)
{
    const both *x = user;
    const double p = peak_rate(x->products), c = peak_rate(x->copy);
    return p > 0 && c > 0 ? x->flops / (x->flops / p + x->bytes / c) : 0;
}

static double parameters(const net *n)
{
    double all = 0;
    for (int i = 0; i < n->n_param; i++) all += (double)net_param_count(n, i);
    return all;
}

/* A step's products alone. Every operand and result has its own place, as in the step. */
typedef struct {
    bench *b;
    const gemm_kernel *g;
    int64_t batch;
    int layers;
    int64_t wide[NET_MAX_PARAMS + 1]; /* of what goes into layer i, and of what the last one gives */
    float *x[NET_MAX_PARAMS + 1], *dx[NET_MAX_PARAMS + 1], *w[NET_MAX_PARAMS], *dw[NET_MAX_PARAMS];
    float *memory; /* all of these */
    void *scratch;
    size_t scratch_bytes;
    double flops;
    an_status st;
} products;

static void product(products *p, int64_t m, int64_t n, int64_t k, gemm_view x, gemm_view z, float *to)
{
    if (!p->st)
        p->st = gemm_run(&(gemm_call){ .kernel = p->g, .pool = p->b->pool, .m = m, .n = n, .k = k, .a_view = x, .b = z,
                                       .c = to, .c_type = DT_F32, .ldc = n, .scratch = p->scratch,
                                       .scratch_bytes = p->scratch_bytes }, p->b->d);
}

static gemm_view rows_of(const float *at, int64_t wide) { return (gemm_view){ at, DT_F32, wide, 1 }; }
static gemm_view turned(const float *at, int64_t wide) { return (gemm_view){ at, DT_F32, 1, wide }; }

static double bound_products(void *user)
{
    products *p = user;
    pool_enter(p->b->pool);
    const uint64_t from = clock_ns();
    for (int i = 0; i < p->layers; i++) {
        const int64_t in = p->wide[i], out = p->wide[i + 1];
        product(p, p->batch, out, in, rows_of(p->x[i], in), rows_of(p->w[i], out), p->x[i + 1]);
    }
    for (int i = p->layers - 1; i >= 0; i--) {
        const int64_t in = p->wide[i], out = p->wide[i + 1];
        product(p, in, out, p->batch, turned(p->x[i], in), rows_of(p->dx[i + 1], out), p->dw[i]);
        if (i) product(p, p->batch, in, out, rows_of(p->dx[i + 1], out), turned(p->w[i], out), p->dx[i]);
    }
    const double ns = (double)(clock_ns() - from);
    pool_leave(p->b->pool);
    return p->st ? 0 : p->flops / ns;
}

static void products_close(products *p)
{
    free(p->memory);
    free(p->scratch);
}

static float *place(products *p, int64_t n, size_t *at)
{
    enum { LINE = 64 / sizeof(float) };
    const size_t here = *at;
    *at += ROUND_UP((size_t)n, (size_t)LINE);
    return p->memory ? p->memory + here : NULL;
}

/* Floats all places take; without memory nothing but that. */
static size_t places(products *p)
{
    size_t at = 0;
    for (int i = 0; i <= p->layers; i++) {
        p->x[i] = place(p, p->batch * p->wide[i], &at), p->dx[i] = place(p, p->batch * p->wide[i], &at);
        if (i == p->layers) break;
        p->w[i] = place(p, p->wide[i] * p->wide[i + 1], &at), p->dw[i] = place(p, p->wide[i] * p->wide[i + 1], &at);
    }
    return at;
}

static an_status products_open(products *p, bench *b, const net *n, const gemm_kernel *g, double flops)
{
    enum { ALIGN = 64 };
    *p = (products){ .b = b, .g = g, .batch = n->opt.batch, .flops = flops };
    for (int i = 0; i < n->n_param; i++) {
        if (!n->param[i].decay) continue; /* biases */
        const shape *s = &graph_value(n->g, n->param[i].v)->type.sh;
        const int64_t in = p->wide[p->layers] = s->d[0], out = p->wide[++p->layers] = s->d[1];
        const int64_t size[][3] = { { p->batch, out, in }, { in, out, p->batch }, { p->batch, in, out } };
        for (size_t k = 0; k < COUNT(size); k++) {
            size_t bytes;
            if (!gemm_scratch_bytes(g, size[k][0], size[k][1], size[k][2], pool_threads(b->pool), &bytes))
                return diag_nomem(b->d);
            p->scratch_bytes = MAX(p->scratch_bytes, bytes);
        }
    }
    const size_t floats = places(p);
    p->memory = big_alloc(ALIGN, floats * sizeof(float)), p->scratch = big_alloc(ALIGN, p->scratch_bytes);
    if (!p->memory || !p->scratch) return diag_nomem(b->d);
    for (size_t i = 0; i < floats; i++) p->memory[i] = (float)((int)(i % 7) - 3) / 64;
    places(p);
    return AN_OK;
}

an_status bench_train_mlp(bench *b)
{
    static const struct {
        const char *optimizer, *math;
        int fast;
        gemm_math peak;
        int moments;
    } rows[] = { { "sgd", "fp32", 0, GEMM_F32, 0 },
                 { "adam", "fp32", 0, GEMM_F32, 2 },
                 { "sgd", "bf16", 1, GEMM_BF16, 0 },
                 { "adam", "bf16", 1, GEMM_BF16, 2 } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        device_options o = { .pool = b->pool, .fast_math = rows[i].fast }, ref = { .pool = b->pool, .reference = true };
        double got, want, first;
        TRY(second_loss(rows[i].optimizer, &o, &got, b->d));
        TRY(second_loss(rows[i].optimizer, &ref, &want, b->d));
        if (!(fabs(got - want) <= (rows[i].fast ? 2e-2 : 1e-3) * want))
            return diag_fail(b->d, AN_MISMATCH, NOWHERE,
                             "bench train_mlp: the second loss is %.6g, the reference says %.6g", got, want);
        mlp m;
        net n = { 0 };
        timing t, beside, with;
        products alone = { 0 };
        an_status st = mlp_open(&m, rows[i].optimizer, &o, &n, b->d);
        const gemm_kernel *g = gemm_pick(rows[i].peak, b->isa);
        const int threads = pool_threads(b->pool);
        const double held = parameters(&n) * sizeof(float), usual = 6 * matrix_macs(&n, &first),
                     flops = usual - 2 * first;
        both x = { .products = peak_gemm(g, b->pool, threads),
                   .copy = peak_copy(b->pool, threads, (size_t)held * (size_t)(2 + rows[i].moments) / 2),
                   .flops = flops,
                   .bytes = held * (5 + 2 * rows[i].moments) };
        if (!st && !(x.products && x.copy)) st = diag_nomem(b->d);
        if (!st) st = products_open(&alone, b, &n, g, flops);
        if (!st) st = bench_beside(b, step, &m, (ruler){ bound_peak, x.products }, &t);
        if (!st) st = bench_beside(b, step, &m, (ruler){ bound_both, &x }, &beside);
        if (!st) st = bench_beside(b, step, &m, (ruler){ bound_products, &alone }, &with);
        if (!st) st = alone.st;
        if (!st) {
            char label[128];
            plain_printf(label, sizeof label, "%s, %s, %.0f steps/s, %.1f MFLOP (%.1f %% by the usual %.1f)",
                         rows[i].optimizer, rows[i].math, 1 / t.least, flops * 1e-6, 100 * usual * 1e-9 / t.could,
                         usual * 1e-6);
            bench_row(b, "train_mlp", label, gemm_name(g), t, flops, "GFLOP/s", t.limit, gemm_name(g));
            plain_printf(label, sizeof label, "%s, %s, beside %.1f MB in cache as well", rows[i].optimizer,
                         rows[i].math, x.bytes * 1e-6);
            bench_row(b, "train_mlp", label, gemm_name(g), beside, flops, "GFLOP/s", beside.limit,
                      "products, then these bytes copied");
            snprintf(label, sizeof label, "%s, %s, beside its products", rows[i].optimizer, rows[i].math);
            bench_row(b, "train_mlp", label, gemm_name(g), with, flops, "GFLOP/s", with.limit, "these alone");
        }
        peak_free(x.products);
        peak_free(x.copy);
        products_close(&alone);
        mlp_close(&m);
        net_free(&n);
        TRY(st);
    }
    return AN_OK;
}
