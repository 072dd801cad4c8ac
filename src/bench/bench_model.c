/* bench_model.c: whole programs: a layer, the software chips against the plain processor, starting a program,
 * changing weights. */
#include "base/plain.h"
#include "bench/bench_int.h"
#include "model/model.h"

/* ---- a layer ---- */

enum { SMALL = 32 };

/* One layer of a model as one graph: attention and feed-forward with their norms and residuals. */
static graph *make_layer(const model_config *c, int64_t seq, uint64_t seed)
{
    graph *g = graph_new("layer", 0);
    if (!g) return NULL;
    int64_t dim = c->dim, hid = c->hidden, kv = c->n_kv_heads * c->head_dim;
    dtype dt = DT_F16;
    nn_heads h = { .n_heads = c->n_heads, .n_kv_heads = c->n_kv_heads, .head_dim = c->head_dim, .seq = seq };
    ttype vec = { .dt = dt, .sh = SHAPE(1, dim, 1, 1) };
    val x = graph_input(g, "x", (ttype){ .dt = dt, .sh = SHAPE(1, dim, 1, seq) });
    val xn = nn_rmsnorm(g, x, graph_fill_const(g, "norm1", vec, 1), c->norm_eps);
    val q = nn_linear(g, xn, bench_weight(g, "wq", dim, dim, dt, seed + 1), NO_VAL),
        k = nn_linear(g, xn, bench_weight(g, "wk", kv, dim, dt, seed + 2), NO_VAL);
    val v = nn_linear(g, xn, bench_weight(g, "wv", kv, dim, dt, seed + 3), NO_VAL);
    nn_rope_tables rope = nn_rope_make(g, dt, h.head_dim, seq, c->rope_theta, false);
    val *turned[] = { &q, &k };
    int64_t heads[] = { h.n_heads, h.n_kv_heads };
    for (size_t i = 0; i < COUNT(turned); i++) {
        val apart = GA(g, RESHAPE, VALS(*turned[i]), AT_IS(SHAPE, heads[i], h.head_dim, 1, seq));
        *turned[i] =
            GA(g, RESHAPE, VALS(nn_rope(g, apart, &rope, false)), AT_IS(SHAPE, 1, heads[i] * h.head_dim, 1, seq));
    }
    val p = nn_attn_probs(g, nn_queries_in(g, q, &h), nn_keys_in(g, k, &h), nn_causal_mask(g, dt, seq), &h);
    val mixed = nn_attn_mix(g, p, nn_keys_in(g, v, &h), &h);
    x = G(g, ADD, x, nn_linear(g, mixed, bench_weight(g, "wo", dim, dim, dt, seed + 4), NO_VAL));
    xn = nn_rmsnorm(g, x, graph_fill_const(g, "norm2", vec, 1), c->norm_eps);
    val h1 = nn_linear(g, xn, bench_weight(g, "w1", hid, dim, dt, seed + 5), NO_VAL),
        h3 = nn_linear(g, xn, bench_weight(g, "w3", hid, dim, dt, seed + 6), NO_VAL);
    x = G(g, ADD, x, nn_linear(g, nn_swiglu(g, h1, h3), bench_weight(g, "w2", dim, hid, dt, seed + 7), NO_VAL));
    graph_output(g, "y", x);
    return g;
}

static graph *seeded_layer(uint64_t seed)
{
    const model_config *c = model_preset_find("stories110m");
    return c ? make_layer(c, SMALL, 100 * seed) : NULL;
}

static graph *make_conv(dtype dt, int64_t m, int64_t n, int64_t k)
{
    graph *g = graph_new("conv", 0);
    if (!g) return NULL;
    val x = graph_input(g, "x", (ttype){ .dt = dt, .sh = SHAPE(1, k, 1, n) });
    graph_output(g, "y", nn_linear(g, x, bench_weight(g, "w", m, k, dt, 1), NO_VAL));
    return g;
}

/* The products of a layer, one after the other: flops per ns. */
typedef struct {
    subject square, up, down;
    double flops;
    diag *d;
} products;

static double products_rate(void *user)
{
    products *x = user;
    subject *order[] = { &x->square, &x->square, &x->square, &x->square, &x->up, &x->up, &x->down };
    uint64_t from = clock_ns();
    for (size_t i = 0; i < COUNT(order); i++)
        if (subject_run(order[i], x->d)) return 0;
    return x->flops / (double)(clock_ns() - from);
}

static an_status products_open(bench *b, const model_config *c, int64_t seq, products *x)
{
    *x =
        (products){ .flops = 2.0 * (double)seq * (4.0 * (double)(c->dim * c->dim) + 3.0 * (double)(c->dim * c->hidden)),
                    .d = b->d };
    TRY(subject_open(b, &x->square, make_conv(DT_F16, c->dim, seq, c->dim), NULL, 1, b->d));
    TRY(subject_open(b, &x->up, make_conv(DT_F16, c->hidden, seq, c->dim), NULL, 1, b->d));
    return subject_open(b, &x->down, make_conv(DT_F16, c->dim, seq, c->hidden), NULL, 1, b->d);
}

static void products_close(products *x)
{
    subject_close(&x->square);
    subject_close(&x->up);
    subject_close(&x->down);
}

an_status bench_block(bench *b)
{
    const model_config *c = model_preset_find("stories110m");
    if (!c) return diag_fail(b->d, AN_BUG, NOWHERE, "no preset stories110m");
    static const int64_t lengths[] = { 256, 1024 };
    subject s;
    an_status st = subject_open(b, &s, make_layer(model_preset_find("tiny"), SMALL, 0), NULL, 1, b->d);
    if (!st) st = subject_check(&s, "block", 1e-2, b->d);
    subject_close(&s);
    for (size_t i = 0; i < COUNT(lengths) && !st; i++) {
        char label[64];
        int64_t seq = lengths[i];
        timing t;
        products alone;
        snprintf(label, sizeof label, "%s layer, %lld tokens", c->name, (long long)seq);
        st = products_open(b, c, seq, &alone);
        if (!st) st = subject_open(b, &s, make_layer(c, seq, 0), NULL, 1, b->d);
        else s = (subject){ 0 };
        if (!st) st = subject_beside(b, &s, (ruler){ products_rate, &alone }, &t);
        double attention = 4.0 * (double)(seq * (seq + 1) / 2) * (double)c->dim;
        if (!st)
            bench_row(b, "block", label, bench_kernel(b, GEMM_F16), t, alone.flops + attention, "GFLOP/s", t.limit,
                      "its products alone");
        subject_close(&s);
        products_close(&alone);
    }
    return st;
}

/* ---- chips ---- */

typedef struct {
    subject *cpu;
    diag *d;
    double work;
} cpu_at;

static double cpu_rate(void *user)
{
    cpu_at *x = user;
    uint64_t from = clock_ns();
    if (subject_run(x->cpu, x->d)) return 0;
    return x->work / (double)(clock_ns() - from);
}

an_status bench_soft(bench *b)
{
    static const struct {
        const char *chip;
        double times; /* allowed */
    } chips[] = { { "m4", 2 }, { "m1", 12 } };
    enum { M = 768, N = 256, K = 768 };
    subject cpu;
    an_status st = subject_open(b, &cpu, make_conv(DT_F16, M, N, K), NULL, 1, b->d);
    for (size_t i = 0; i < COUNT(chips) && !st; i++) {
        numerics num;
        subject s;
        timing t;
        const chip *c = chip_find(chips[i].chip);
        if (!c || !codegen_numerics(c, &num))
            return diag_fail(b->d, AN_BUG, NOWHERE, "no numerics for %s", chips[i].chip);
        st = subject_open(b, &s, make_conv(DT_F16, 96, 40, 112), &num, 1, b->d);
        if (!st) st = subject_check(&s, chips[i].chip, 0, b->d);
        subject_close(&s);
        if (st) break;
        double flops = 2.0 * M * N * K;
        cpu_at x = { &cpu, b->d, flops / chips[i].times };
        st = subject_open(b, &s, make_conv(DT_F16, M, N, K), &num, 1, b->d);
        if (!st) st = subject_beside(b, &s, (ruler){ cpu_rate, &x }, &t);
        char label[64], limit[64];
        if (!st) {
            plain_printf(label, sizeof label, "soft:%s %dx%dx%d, %.2f x cpu", chips[i].chip, M, N, K,
                         chips[i].times * t.could * 1e9 / flops);
            plain_printf(limit, sizeof limit, "cpu fp16 / %g", chips[i].times);
            bench_row(b, "soft", label, num.window_bits ? bench_vectors(b) : bench_kernel(b, GEMM_F16), t, flops,
                      "GFLOP/s", t.limit, limit);
        }
        subject_close(&s);
    }
    subject_close(&cpu);
    return st;
}

/* ---- starting, and new weights ---- */

static an_status reload(void *user, diag *d) { return image_reload(((subject *)user)->im, NULL, d); }

/* elements: of the weights, read and written again as fp16. */
static an_status time_reload(bench *b, graph *g, const char *label, double elements)
{
    subject s;
    timing t;
    an_status st = subject_open(b, &s, g, NULL, 1, b->d);
    peak_meter *copy = peak_copy(b->pool, pool_threads(b->pool), PEAK_FAR);
    if (!st && !copy) st = diag_nomem(b->d);
    if (!st) st = bench_beside(b, reload, &s, (ruler){ bound_peak, copy }, &t);
    if (!st) bench_row(b, "dispatch", label, bench_kernel(b, GEMM_F16), t, 2.0 * 2 * elements, "GB/s", t.limit, "copy");
    peak_free(copy);
    subject_close(&s);
    return st;
}

an_status bench_dispatch(bench *b)
{
    subject s;
    timing t;
    an_status st = subject_open(b, &s, make_conv(DT_F16, 16, 32, 16), NULL, 1, b->d);
    if (!st) st = subject_check(&s, "dispatch", 2e-3, b->d);
    if (!st) st = subject_time(b, &s, &t);
    if (!st)
        bench_row(b, "dispatch", "1x1 convolution 16 to 16, 32 wide", bench_kernel(b, GEMM_F16), t, 1e3, "M/s",
                  1e3 / 5e-6 * 1e-9, "5 us");
    subject_close(&s);
    TRY(st);
    TRY(bench_text_to_loaded(b));
    /* One that stays in cache, where a result's lines are read before they are written; and one that is written past
     * it. */
    TRY(time_reload(b, make_conv(DT_F16, 2048, SMALL, 768), "reload 2048x768 fp16 weights, kept in cache",
                    2048.0 * 768));
    const model_config *c = model_preset_find("stories110m");
    if (!c) return diag_fail(b->d, AN_BUG, NOWHERE, "no preset stories110m");
    const double elements = (double)(4 * c->dim * c->dim + 3 * c->dim * c->hidden);
    TRY(time_reload(b, make_layer(c, SMALL, 0), "reload stories110m layer, fp16 weights", elements));
    return bench_device_reload(b, seeded_layer, "reload stories110m layer", elements);
}
