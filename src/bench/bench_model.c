/* bench_model.c: whole programs: a layer, the software chips against the plain processor, starting a program, changing weights. */
#include "bench/bench_int.h"
#include "model/model.h"

/* ---- a layer ---- */

enum { SMALL = 32 };

/* One layer of a model as one graph: attention and feed-forward with their norms and residuals. */
static graph *make_layer(const model_config *c, int64_t seq)
{
    graph *g = graph_new("layer", 0);
    if (!g) return NULL;
    int64_t dim = c->dim, hid = c->hidden, kv = c->n_kv_heads * c->head_dim;
    dtype dt = DT_F16;
    nn_heads h = { .n_heads = c->n_heads, .n_kv_heads = c->n_kv_heads, .head_dim = c->head_dim, .seq = seq };
    ttype vec = { .dt = dt, .sh = SHAPE(1, dim, 1, 1) };
    val x = graph_input(g, "x", (ttype){ .dt = dt, .sh = SHAPE(1, dim, 1, seq) });
    val xn = nn_rmsnorm(g, x, graph_fill_const(g, "norm1", vec, 1), c->norm_eps);
    val q = nn_linear(g, xn, bench_weight(g, "wq", dim, dim, dt, 1), NO_VAL), k = nn_linear(g, xn, bench_weight(g, "wk", kv, dim, dt, 2), NO_VAL);
    val v = nn_linear(g, xn, bench_weight(g, "wv", kv, dim, dt, 3), NO_VAL);
    nn_rope_tables rope = nn_rope_make(g, dt, h.head_dim, seq, c->rope_theta, false);
    val *turned[] = { &q, &k };
    int64_t heads[] = { h.n_heads, h.n_kv_heads };
    for (size_t i = 0; i < COUNT(turned); i++) {
        val apart = GA(g, RESHAPE, VALS(*turned[i]), AT_IS(SHAPE, heads[i], h.head_dim, 1, seq));
        *turned[i] = GA(g, RESHAPE, VALS(nn_rope(g, apart, &rope, false)), AT_IS(SHAPE, 1, heads[i] * h.head_dim, 1, seq));
    }
    val p = nn_attn_probs(g, nn_queries_in(g, q, &h), nn_keys_in(g, k, &h), nn_causal_mask(g, dt, seq), &h);
    val mixed = nn_attn_mix(g, p, nn_keys_in(g, v, &h), &h);
    x = G(g, ADD, x, nn_linear(g, mixed, bench_weight(g, "wo", dim, dim, dt, 4), NO_VAL));
    xn = nn_rmsnorm(g, x, graph_fill_const(g, "norm2", vec, 1), c->norm_eps);
    val h1 = nn_linear(g, xn, bench_weight(g, "w1", hid, dim, dt, 5), NO_VAL), h3 = nn_linear(g, xn, bench_weight(g, "w3", hid, dim, dt, 6), NO_VAL);
    x = G(g, ADD, x, nn_linear(g, nn_swiglu(g, h1, h3), bench_weight(g, "w2", dim, hid, dt, 7), NO_VAL));
    graph_output(g, "y", x);
    return g;
}

static graph *make_conv(int64_t m, int64_t n, int64_t k)
{
    graph *g = graph_new("conv", 0);
    if (!g) return NULL;
    val x = graph_input(g, "x", (ttype){ .dt = DT_F16, .sh = SHAPE(1, k, 1, n) });
    graph_output(g, "y", nn_linear(g, x, bench_weight(g, "w", m, k, DT_F16, 1), NO_VAL));
    return g;
}

static an_status time_conv(bench *b, int64_t m, int64_t n, int64_t k, const numerics *num, timing *t)
{
    subject s;
    an_status st = subject_open(b, &s, make_conv(m, n, k), num, 1, b->d);
    if (!st) st = subject_time(b, &s, t);
    subject_close(&s);
    return st;
}

an_status bench_conv(bench *b, int64_t m, int64_t n, int64_t k, timing *t) { return time_conv(b, m, n, k, NULL, t); }

an_status bench_block(bench *b)
{
    const model_config *c = model_preset_find("stories110m");
    if (!c) return diag_fail(b->d, AN_BUG, NOWHERE, "no preset stories110m");
    static const int64_t lengths[] = { 256, 1024 };
    subject s;
    an_status st = subject_open(b, &s, make_layer(model_preset_find("tiny"), SMALL), NULL, 1, b->d);
    if (!st) st = subject_check(&s, "block", 1e-2, b->d);
    subject_close(&s);
    for (size_t i = 0; i < COUNT(lengths) && !st; i++) {
        char label[64];
        int64_t seq = lengths[i];
        timing t, square, up, down;
        snprintf(label, sizeof label, "%s layer, %lld tokens", c->name, (long long)seq);
        TRY(time_conv(b, c->dim, seq, c->dim, NULL, &square));
        TRY(time_conv(b, c->hidden, seq, c->dim, NULL, &up));
        TRY(time_conv(b, c->dim, seq, c->hidden, NULL, &down));
        st = subject_open(b, &s, make_layer(c, seq), NULL, 1, b->d);
        if (!st) st = subject_time(b, &s, &t);
        double flops = 2.0 * (double)seq * (4.0 * (double)(c->dim * c->dim) + 3.0 * (double)(c->dim * c->hidden));
        double attention = 4.0 * (double)(seq * (seq + 1) / 2) * (double)c->dim, alone = 4 * square.least + 2 * up.least + down.least;
        if (!st) bench_row(b, "block", label, t, flops + attention, "GFLOP/s", flops / alone * 1e-9, "its products alone");
        subject_close(&s);
    }
    return st;
}

/* ---- chips ---- */

an_status bench_soft(bench *b)
{
    static const struct {
        const char *chip;
        double times; /* allowed */
    } chips[] = { { "m4", 2 }, { "m1", 12 } };
    enum { M = 768, N = 256, K = 768 };
    timing cpu;
    TRY(time_conv(b, M, N, K, NULL, &cpu));
    for (size_t i = 0; i < COUNT(chips); i++) {
        numerics num;
        subject s;
        timing t;
        const chip *c = chip_find(chips[i].chip);
        if (!c || !codegen_numerics(c, &num)) return diag_fail(b->d, AN_BUG, NOWHERE, "no numerics for %s", chips[i].chip);
        an_status st = subject_open(b, &s, make_conv(96, 40, 112), &num, 1, b->d);
        if (!st) st = subject_check(&s, chips[i].chip, 0, b->d);
        subject_close(&s);
        TRY(st);
        TRY(time_conv(b, M, N, K, &num, &t));
        char label[64], limit[64];
        snprintf(label, sizeof label, "soft:%s %dx%dx%d, %.2f x cpu", chips[i].chip, M, N, K, t.least / cpu.least);
        snprintf(limit, sizeof limit, "cpu fp16 / %g", chips[i].times);
        double flops = 2.0 * M * N * K;
        bench_row(b, "soft", label, t, flops, "GFLOP/s", flops / cpu.least / chips[i].times * 1e-9, limit);
    }
    return AN_OK;
}

/* ---- starting, and new weights ---- */

static an_status reload(void *user, diag *d) { return image_reload(((subject *)user)->im, NULL, d); }

an_status bench_dispatch(bench *b)
{
    subject s;
    timing t;
    an_status st = subject_open(b, &s, make_conv(16, 32, 16), NULL, 1, b->d);
    if (!st) st = subject_check(&s, "dispatch", 2e-3, b->d);
    if (!st) st = subject_time(b, &s, &t);
    if (!st) bench_row(b, "dispatch", "1x1 convolution 16 to 16, 32 wide", t, 1e3, "M/s", 1e3 / 5e-6 * 1e-9, "5 us");
    subject_close(&s);
    TRY(st);
    st = subject_open(b, &s, make_conv(2048, 32, 768), NULL, 1, b->d);
    if (!st) st = bench_time(b, reload, &s, &t);
    if (!st) bench_row(b, "dispatch", "reload 2048x768 fp16 weights", t, 2.0 * 2 * 2048 * 768, "GB/s", bench_copy_gbs(b), "copy");
    subject_close(&s);
    return st;
}
