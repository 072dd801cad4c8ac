/* Composites on their own: what they mean, and that they keep their range when every operation rounds to fp16. */
#include "model_t.h"

/* The graph with each result rounded to fp16 and past 65504 infinite: the engine's elementwise numerics, without its
 * tables. */
static double *eval_rounded(const graph *g, double **in)
{
    tensor64 *v = TAKE(&test_mem, tensor64, g->values.n);
    assert_non_null(v);
    diag d = { 0 };
    size_t n_input = 0;
    for (size_t i = 1; i < g->nodes.n; i++) {
        const node *n = &g->nodes.at[i];
        for (int k = 0; k < n->n_out; k++) v[n->out.i + (uint32_t)k].type = *graph_type(g, graph_out(n->out, k));
        tensor64 *out = &v[n->out.i], args[OP_MAX_OPERANDS] = { { .x = NULL } };
        int64_t elems = 0;
        assert_true(shape_elems(&out->type.sh, &elems));
        if (n->op == OP_INPUT) out->x = in[n_input++];
        else if (n->op == OP_CONST) {
            out->x = room(elems);
            for (int64_t k = 0; k < elems; k++) out->x[k] = graph_const_at(n, &out->type, k);
        } else {
            for (int k = 0; k < n->n_in; k++)
                if (n->in[k].i) args[k] = v[n->in[k].i];
            assert_ok(graph_eval_op(n->op, n->attrs, n->n_attr, args, n->n_in, out, n->n_out, &test_mem, &d), d);
        }
        for (int64_t k = 0; k < elems && out->type.dt == DT_F16; k++) out->x[k] = dtype_round(DT_F16, out->x[k]);
    }
    return v[g->outputs.at[0].v.i].x;
}

static graph *one_input(int64_t C, int64_t S, val *x)
{
    graph *g = graph_new("t", 0);
    assert_non_null(g);
    *x = graph_input(g, "x", TTYPE(DT_F16, 1, C, 1, S));
    return g;
}

static double *done(graph *g, val y, double **in)
{
    diag d = { 0 };
    graph_output(g, "y", y);
    assert_ok(graph_finish(g, &d), d);
    double *r = eval_rounded(g, in);
    graph_free(g);
    return r;
}

static double worst(const double *got, const double *want, int64_t n)
{
    double top = 0, bad = 0;
    for (int64_t i = 0; i < n; i++) top = fmax(top, fabs(want[i]));
    for (int64_t i = 0; i < n; i++) bad = isfinite(got[i]) ? fmax(bad, fabs(got[i] - want[i]) / top) : INFINITY;
    return bad;
}

/* Magnitudes where the textbook order overflows (200 * sqrt(768) squared), where squares are subnormal, and where
 * eps rules. */
static void norms_keep_their_range_in_fp16(void **state)
{
    (void)state;
    static const double sizes[] = { 4e-5, 1e-3, 3e-3, 0.02, 1, 30, 200, 9000 };
    enum { D = 768, S = 3 };
    rng r = { test_seed("fp16 norms") };
    for (size_t i = 0; i < COUNT(sizes); i++)
        for (int layer = 0; layer < 2; layer++)
            for (int outlier = 0; outlier < 2; outlier++) {
                double *x = randoms(&r, D * S, sizes[i]), *w = room(D), *dy = randoms(&r, D * S, 1),
                       *want = room(D * S);
                for (int j = 0; j < D; j++) w[j] = dtype_round(DT_F16, rng_range(&r, 0.5, 1.5));
                if (outlier) x[7 * S] *= 5; /* one channel far above the rest */
                for (int j = 0; j < D * S; j++) x[j] = dtype_round(DT_F16, x[j]), dy[j] = dtype_round(DT_F16, dy[j]);
                val vx, vdy;
                graph *g = one_input(D, S, &vx);
                val gain = graph_const_f64(g, "w", TTYPE(DT_F16, 1, D, 1, 1), w);
                double *got =
                    done(g, layer ? nn_layernorm(g, vx, gain, NO_VAL, 1e-5) : nn_rmsnorm(g, vx, gain, 1e-5), &x);
                if (layer) m_layer(x, w, NULL, 1e-5, want, D, S);
                else m_rms(x, w, 1e-5, want, D, S);
                if (!(worst(got, want, D * S) < 3e-3))
                    fail_msg("norm %d at %g: off by %g", layer, sizes[i], worst(got, want, D * S));

                g = one_input(D, S, &vx);
                vdy = graph_input(g, "dy", TTYPE(DT_F16, 1, D, 1, S));
                gain = graph_const_f64(g, "w", TTYPE(DT_F16, 1, D, 1, 1), w);
                double *in[] = { x, dy };
                got = done(g, layer ? nn_layernorm_bwd(g, vdy, vx, gain, 1e-5) : nn_rmsnorm_bwd(g, vdy, vx, gain, 1e-5),
                           in);
                if (layer) m_layer_bwd(dy, x, w, 1e-5, want, D, S);
                else m_rms_bwd(dy, x, w, 1e-5, want, D, S);
                /* past 200 the gradient itself is subnormal: its last bit is a visible part of it */
                double tol = sizes[i] > 200 ? 3e-2 : 4e-3;
                if (!(worst(got, want, D * S) < tol))
                    fail_msg("norm backward %d at %g: off by %g", layer, sizes[i], worst(got, want, D * S));
            }
}

static void norm_of_zeros_is_zero(void **state)
{
    (void)state;
    double *x = room(64);
    val vx;
    graph *g = one_input(64, 1, &vx);
    double *y = done(g, nn_rmsnorm(g, vx, graph_fill_const(g, "w", TTYPE(DT_F16, 1, 64, 1, 1), 1), 1e-6), &x);
    for (int i = 0; i < 64; i++) assert_true(y[i] == 0);
}

static void activations_are_finite_everywhere(void **state)
{
    (void)state;
    static const double at[] = {
        -60000, -300, -41, -11, -10, -3, -0.5, -1e-3, 0, 1e-3, 0.5, 3, 10, 11, 41, 300, 60000
    };
    enum { N = COUNT(at) };
    model_config c = { .dt = DT_F16 };
    double x[N], one[N], *in[] = { x, one };
    for (int i = 0; i < N; i++) x[i] = dtype_round(DT_F16, at[i]), one[i] = 1;
    for (int k = 0; k < 3; k++) {
        val vx;
        graph *g = one_input(1, N, &vx);
        val dy = graph_input(g, "dy", TTYPE(DT_F16, 1, 1, 1, N));
        double *y = done(g, k == 0 ? nn_gelu(g, vx) : k == 1 ? nn_gelu_bwd(g, dy, vx) : nn_silu(g, vx), in);
        for (int i = 0; i < N; i++) {
            double h = 1e-4,
                   slope = fabs(x[i]) > 20 ? x[i] > 0 : (m_gelu(&c, x[i] + h) - m_gelu(&c, x[i] - h)) / (2 * h);
            double want = k == 0 ? m_gelu(&c, x[i]) : k == 1 ? slope : x[i] / (1 + exp(-x[i]));
            if (!(fabs(y[i] - want) <= 2e-3 * fabs(want) + 2e-3))
                fail_msg("activation %d at %g: got %g, wanted %g", k, x[i], y[i], want);
        }
    }
    assert_true(fabs(m_gelu(&c, 1) - 0.8412) < 1e-4); /* the published value */
}

static void rope_turns_both_ways(void **state)
{
    (void)state;
    enum { HEADS = 3, HD = 8, S = 6 };
    rng r = { test_seed("rope") };
    for (int half = 0; half < 2; half++) {
        graph *g = graph_new("rope", 0);
        val x = graph_input(g, "x", TTYPE(DT_F32, HEADS, HD, 1, S));
        nn_rope_tables t = nn_rope_make(g, DT_F32, HD, S, 1e4, half);
        val y = nn_rope(g, x, &t, false);
        graph_output(g, "y", y);
        graph_output(g, "back", nn_rope(g, y, &t, true));
        diag d = { 0 };
        assert_ok(graph_finish(g, &d), d);
        tensor64 in = { *graph_type(g, x), randoms(&r, HEADS * HD * S, 1) }, out[2];
        assert_ok(graph_eval(g, &in, out, &test_mem, &d), d);
        model_config c = {
            .dt = DT_F32, .head_dim = HD, .rope_theta = 1e4, .rope = half ? MODEL_ROPE_HALF : MODEL_ROPE_INTERLEAVED
        };
        double *want = room(HEADS * HD * S);
        m_rope(&c, in.x, want, HEADS, S, false);
        close_to("turned", out[0].x, want, HEADS * HD * S, 1e-9);
        close_to("and back", out[1].x, in.x, HEADS * HD * S, 1e-5); /* the tables are fp32 */
        /* scores depend on the distance alone: the point of the rotation */
        double *q = room(HEADS * HD * S), *rot = room(HEADS * HD * S), score[2] = { 0 };
        for (int j = 0; j < HD; j++)
            for (int p = 0; p < S; p++) q[j * S + p] = in.x[j * S];
        m_rope(&c, q, rot, 1, S, false);
        for (int j = 0; j < HD; j++)
            score[0] += rot[j * S + 1] * rot[j * S + 3], score[1] += rot[j * S + 2] * rot[j * S + 4];
        assert_true(fabs(score[0] - score[1]) < 1e-5 * fabs(score[0]) + 1e-6);
        graph_free(g);
    }
}

/* Ids past 2048, where a single fp16 number is no longer every integer. */
static void one_hot_is_exact_for_large_ids(void **state)
{
    (void)state;
    static const int64_t ids[] = { 0, 1023, 1024, 2049, 4097, 31999, 31998, 151935 };
    enum { N = COUNT(ids) };
    for (int64_t first = 0; first < 152000; first += 16000) {
        graph *g = graph_new("one_hot", 0);
        val hi = graph_input(g, "hi", TTYPE(DT_F16, 1, 1, 1, N)), lo = graph_input(g, "lo", TTYPE(DT_F16, 1, 1, 1, N));
        val hit = nn_is_token(g, hi, lo, first, 16000, "ids");
        val y = G(g, SELECT, hit, graph_scalar(g, DT_F16, 1), graph_scalar(g, DT_F16, 0));
        double h[N], l[N], *in[] = { h, l };
        for (int i = 0; i < N; i++) h[i] = (double)(ids[i] / MODEL_ID_BASE), l[i] = (double)(ids[i] % MODEL_ID_BASE);
        double *got = done(g, y, in);
        for (int64_t c = 0; c < 16000; c++)
            for (int i = 0; i < N; i++) assert_true(got[c * N + i] == (first + c == ids[i]));
        drop_memory(NULL);
    }
}

/* More equal logits than fp16 can count: the total passes 65504 unless it is kept scaled. */
static void log_sum_exp_survives_a_large_vocabulary(void **state)
{
    (void)state;
    enum { PARTS = 10, PART = 15000, S = 1 };
    graph *g = graph_new("lse", 0);
    val in[PARTS];
    double *x[PARTS];
    for (int i = 0; i < PARTS; i++) {
        char name[24];
        snprintf(name, sizeof name, "i%02d", i);
        in[i] = graph_input(g, name, TTYPE(DT_F16, 1, PART, 1, S));
        x[i] = room(PART * S);
        for (int j = 0; j < PART * S; j++) x[i][j] = 300;
    }
    double *y = done(g, nn_log_sum_exp(g, in, PARTS), x);
    double want = 300 + log((double)PARTS * PART);
    assert_true(fabs(y[0] - want) < 0.25); /* one step of fp16 there */
}

/* A whole attention program in rounded arithmetic stays near the exact one, and masked places stay exactly empty. */
static void attention_program_holds_in_fp16(void **state)
{
    (void)state;
    rng r = { test_seed("fp16 attention") };
    for (size_t i = 0; i < COUNT(shapes); i++) {
        model_config c = shapes[i];
        if (c.dt == DT_F32) continue;
        store s = { &c, rng_next(&r) };
        int64_t n = c.dim * c.seq;
        double *x = randoms(&r, n, 1);
        for (int64_t j = 0; j < n; j++) x[j] = dtype_round(DT_F16, x[j]);
        graph *g = build_program(&c, MK_FWD_ATTN, 0, 0, &s);
        double *got = eval_rounded(g, &x);
        m_attn a = m_attn_from(&s, 0, x, c.seq, true);
        if (!(worst(got, a.y, n) < 5e-3)) fail_msg("%s: off by %g", c.name, worst(got, a.y, n));
        graph_free(g);
    }
}

#define TEST(f) cmocka_unit_test_teardown(f, drop_memory)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(norms_keep_their_range_in_fp16),    TEST(norm_of_zeros_is_zero),
        TEST(activations_are_finite_everywhere), TEST(rope_turns_both_ways),
        TEST(one_hot_is_exact_for_large_ids),    TEST(log_sum_exp_survives_a_large_vocabulary),
        TEST(attention_program_holds_in_fp16),
    };
    return cmocka_run_group_tests_name("model composites", tests, NULL, NULL);
}
