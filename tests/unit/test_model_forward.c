/* Forward programs against plain maths: training taps, prefill, decode, head. */
#include "model_t.h"

static void blocks_match_the_formulas(void **state)
{
    (void)state;
    rng r = { test_seed("forward") };
    for (size_t i = 0; i < COUNT(shapes); i++) {
        const model_config *c = &shapes[i];
        store s = { c, rng_next(&r) };
        int64_t D = c->dim, S = c->seq, Q = c->n_heads * c->head_dim, K = c->n_kv_heads * c->head_dim, H = c->hidden;
        double *x = randoms(&r, D * S, 1.5);
        results o;
        m_attn a = m_attn_from(&s, 1, x, S, true);
        eval_program(c, MK_FWD_ATTN, 1, 0, &s, FEED({ "x", x }), &o);
        print_message("%s\n", c->name);
        close_to("x", result(&o, "x"), a.y, D * S, 1e-9);
        close_to("q", result(&o, "q"), a.q, Q * S, 1e-9);
        close_to("k", result(&o, "k"), a.k, K * S, 1e-9);
        close_to("v", result(&o, "v"), a.v, K * S, 1e-9);
        close_to("attn", result(&o, "attn"), a.attn, Q * S, 1e-9);
        close_to("xn", result(&o, "xn"), a.xn, D * S, 1e-9);
        if (c->qk_norm) {
            close_to("qraw", result(&o, "qraw"), a.qraw, Q * S, 1e-9);
            close_to("kraw", result(&o, "kraw"), a.kraw, K * S, 1e-9);
        }
        if (c->post_norm) close_to("br", result(&o, "br"), a.br, D * S, 1e-9);
        m_ffn f = m_ffn_from(&s, 0, x, S);
        eval_program(c, MK_FWD_FFN, 0, 0, &s, FEED({ "x", x }), &o);
        close_to("x", result(&o, "x"), f.y, D * S, 1e-9);
        close_to("h1", result(&o, "h1"), f.h1, H * S, 1e-9);
        if (c->post_norm) close_to("br", result(&o, "br"), f.br, D * S, 1e-9);
        if (model_gated(c)) close_to("h3", result(&o, "h3"), f.h3, H * S, 1e-9);
        close_to("act", result(&o, "act"), f.act, H * S, 1e-9);
        close_to("xn", result(&o, "xn"), f.xn, D * S, 1e-9);
        double *xn = room(D * S);
        m_norm(&s, MW_NORM_F, MW_NORM_F_B, -1, x, xn, S);
        eval_program(c, MK_FINAL_NORM, 0, 0, &s, FEED({ "x", x }), &o);
        close_to("final", result(&o, "xn"), xn, D * S, 1e-9);
    }
}

static void inference_programs_match_the_formulas(void **state)
{
    (void)state;
    rng r = { test_seed("inference") };
    for (size_t i = 0; i < COUNT(shapes); i++) {
        const model_config *c = &shapes[i];
        store s = { c, rng_next(&r) };
        int64_t D = c->dim, Q = c->n_heads * c->head_dim, K = c->n_kv_heads * c->head_dim, bucket = 12, slots = 16;
        results o;
        double *x = randoms(&r, D * slots, 1);
        m_attn a = m_attn_from(&s, 0, x, bucket, true);
        eval_program(c, MK_PREFILL_ATTN, 0, bucket, &s, FEED({ "x", x }), &o);
        close_to("prefill x", result(&o, "x"), a.y, D * bucket, 1e-9);
        close_to("prefill k", result(&o, "k"), a.k, K * bucket, 1e-9);
        close_to("prefill v", result(&o, "v"), a.v, K * bucket, 1e-9);
        eval_program(c, MK_PREFILL_FFN, 1, bucket, &s, FEED({ "x", x }), &o);
        close_to("prefill ffn", result(&o, "x"), m_ffn_from(&s, 1, x, bucket).y, D * bucket, 1e-9);

        /* a token at position 0, nothing after it: position 0 must not depend on the rest */
        double *token = room(D * slots);
        for (int64_t j = 0; j < D; j++) token[j * slots] = x[j * slots];
        a = m_attn_from(&s, 1, x, slots, false);
        eval_program(c, MK_DECODE_PROJ, 1, slots, &s, FEED({ "x", token }), &o);
        const double *q = result(&o, "q"), *k = result(&o, "k"), *v = result(&o, "v"), *parts[] = { q, k, v };
        const double *want[] = { a.q, a.k, a.v };
        for (int p = 0; p < 3; p++) {
            int64_t n = p ? K : Q;
            double *g = room(n), *w = room(n);
            for (int64_t j = 0; j < n; j++) g[j] = parts[p][j * slots], w[j] = want[p][j * slots];
            close_to("decode proj", g, w, n, 1e-9);
        }
        eval_program(c, MK_DECODE_FFN, 0, slots, &s, FEED({ "x", token }), &o);
        m_ffn f = m_ffn_from(&s, 0, x, slots);
        double *g = room(D), *w = room(D);
        for (int64_t j = 0; j < D; j++) g[j] = result(&o, "x")[j * slots], w[j] = f.y[j * slots];
        close_to("decode ffn", g, w, D, 1e-9);
    }
}

static void later_tokens_do_not_reach_earlier_ones(void **state)
{
    (void)state;
    rng r = { test_seed("causal") };
    for (size_t i = 0; i < COUNT(shapes); i++) {
        const model_config *c = &shapes[i];
        store s = { c, rng_next(&r) };
        int64_t D = c->dim, S = c->seq, cut = 5;
        double *x = randoms(&r, D * S, 1), *y = room(D * S);
        for (int64_t j = 0; j < D * S; j++) y[j] = j % S >= cut ? x[j] + rng_normal(&r) : x[j];
        results a, b;
        eval_program(c, MK_FWD_ATTN, 0, 0, &s, FEED({ "x", x }), &a);
        eval_program(c, MK_FWD_ATTN, 0, 0, &s, FEED({ "x", y }), &b);
        bool later = false;
        for (int64_t j = 0; j < D * S; j++) {
            double d = result(&a, "x")[j] - result(&b, "x")[j];
            if (j % S < cut) assert_true(d == 0);
            else later |= d != 0;
        }
        assert_true(later);
    }
}

/* With kv head 1 silenced, exactly the query heads G .. 2G-1 fall silent. */
static void heads_read_the_kv_head_of_their_group(void **state)
{
    (void)state;
    rng r = { test_seed("groups") };
    const model_config *c = &shapes[2]; /* six heads on two */
    nn_heads h = { .n_heads = c->n_heads, .n_kv_heads = c->n_kv_heads, .head_dim = c->head_dim, .seq = c->seq };
    int64_t Q = c->n_heads * c->head_dim, K = c->n_kv_heads * c->head_dim, S = c->seq, G = c->n_heads / c->n_kv_heads;
    graph *g = graph_new("groups", 0);
    val q = graph_input(g, "q", TTYPE(DT_F16, 1, Q, 1, S)), k = graph_input(g, "k", TTYPE(DT_F16, 1, K, 1, S));
    val v = graph_input(g, "v", TTYPE(DT_F16, 1, K, 1, S));
    val p = nn_attn_probs(g, nn_queries_in(g, q, &h), nn_keys_in(g, k, &h), nn_causal_mask(g, DT_F16, S), &h);
    graph_output(g, "y", nn_attn_mix(g, p, nn_keys_in(g, v, &h), &h));
    double *vx = randoms(&r, K * S, 1);
    for (int64_t j = c->head_dim * S; j < 2 * c->head_dim * S; j++) vx[j] = 0;
    tensor64 in[] = { { *graph_type(g, q), randoms(&r, Q * S, 1) },
                      { *graph_type(g, k), randoms(&r, K * S, 1) },
                      { *graph_type(g, v), vx } },
             out;
    diag d = { 0 };
    assert_ok(graph_finish(g, &d), d);
    assert_ok(graph_eval(g, in, &out, &test_mem, &d), d);
    for (int64_t j = 0; j < Q * S; j++) assert_true((out.x[j] == 0) == (j / S / c->head_dim / G == 1));
    graph_free(g);
}

/* The real head counts, widths and vocabulary parts, on few positions. */
static void presets_have_the_right_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < model_preset_count(); i++) {
        const model_config *c = model_preset_at(i);
        for (int k = 0; k < MK_COUNT; k++) {
            graph *g = NULL;
            diag d = { 0 };
            model_program p = { (model_kind)k, (int)c->n_layers - 1, 16 };
            assert_ok(model_program_build(c, &p, NULL, &g, &d), d);
            for (size_t j = 0; j + 1 < g->inputs.n; j++)
                assert_true(strcmp(graph_value(g, g->inputs.at[j])->name, graph_value(g, g->inputs.at[j + 1])->name) <
                            0);
            for (size_t j = 0; j + 1 < g->outputs.n; j++)
                assert_true(strcmp(g->outputs.at[j].name, g->outputs.at[j + 1].name) < 0);
            for (size_t j = 0; j < g->outputs.n; j++) {
                const value *v = graph_value(g, g->outputs.at[j].v);
                assert_string_equal(v->name, g->outputs.at[j].name); /* what is returned is what is bound */
                assert_true(v->type.dt == DT_F16 && v->type.sh.rank == 4 && v->type.sh.d[3] == 16);
                assert_true(v->type.sh.d[1] <= 16384);
            }
            graph_free(g);
        }
    }
}

static void stories110m_attention_at_full_width(void **state)
{
    (void)state;
    rng r = { test_seed("stories110m") };
    model_config c = *model_preset_find("stories110m");
    c.n_layers = 1;
    store s = { &c, rng_next(&r) };
    int64_t S = 4;
    double *x = randoms(&r, c.dim * S, 1);
    results o;
    m_attn a = m_attn_from(&s, 0, x, S, true);
    eval_program(&c, MK_FWD_ATTN, 0, S, &s, FEED({ "x", x }), &o);
    close_to("x", result(&o, "x"), a.y, c.dim * S, 1e-9);
    close_to("attn", result(&o, "attn"), a.attn, c.dim * S, 1e-9);
}

static void head_matches_the_formulas(void **state)
{
    (void)state;
    rng r = { test_seed("head") };
    for (size_t i = 0; i < COUNT(shapes); i++) {
        model_config c = shapes[i];
        for (int whole = 0; whole < 2; whole++) {
            c.vocab_part = whole ? 0 : 40; /* one tensor, or three of 32 */
            c.vocab = whole ? 96 : 95;     /* or 40, 40, 15 … as the split falls */
            store s = { &c, rng_next(&r) };
            int64_t D = c.dim, S = c.seq, V = c.vocab;
            int n = model_vocab_parts(&c);
            assert_true(whole ? n == 1 : n > 1);
            const double *W = weight_of(&s, c.tied ? MW_EMBED : MW_HEAD, -1);
            double *x = randoms(&r, D * S, 3), *l = room(V * S), *p = room(V * S), *dl = room(V * S), *loss = room(S),
                   *dx = room(D * S);
            double *hi = room(S), *lo = room(S);
            m_linear(W, NULL, x, l, V, D, S);
            double scale = rc(&c, (c.loss_scale ? c.loss_scale : 1) / (double)S);
            for (int64_t t = 0; t < S; t++) {
                int64_t id = t == 0 ? 0 : t == 1 ? V - 1 : (int64_t)rng_below(&r, (uint64_t)V);
                double sum = 0, top = -INFINITY;
                for (int64_t v = 0; v < V; v++) top = fmax(top, l[v * S + t]);
                for (int64_t v = 0; v < V; v++) sum += exp(l[v * S + t] - top);
                for (int64_t v = 0; v < V; v++) {
                    p[v * S + t] = exp(l[v * S + t] - top) / sum;
                    dl[v * S + t] = scale * (p[v * S + t] - (v == id));
                }
                loss[t] = -log(p[id * S + t]);
                hi[t] = (double)(id / 1024), lo[t] = (double)(id % 1024);
            }
            m_linear_t(W, dl, dx, V, D, S);
            results o;
            feed in[NN_MAX_PARTS + 2];
            char names[4][NN_MAX_PARTS][24];
            eval_program(&c, MK_CLASSIFIER, 0, 0, &s, FEED({ "xn", x }), &o);
            for (int k = 0; k < n; k++) {
                int64_t first, size = model_vocab_part(&c, k, &first);
                static const char *const what[] = { "logits", "probs", "dlogits" };
                for (int w = 0; w < 3; w++) snprintf(names[w][k], sizeof names[w][k], "%s%d", what[w], k);
                close_to(names[0][k], result(&o, names[0][k]), l + first * S, size * S, 1e-9);
                in[k] = (feed){ names[0][k], l + first * S };
            }
            eval_program(&c, MK_VOCAB_SOFTMAX, 0, 0, &s, in, n, &o);
            for (int k = 0; k < n; k++) {
                int64_t first, size = model_vocab_part(&c, k, &first);
                close_to(names[1][k], result(&o, names[1][k]), p + first * S, size * S, 1e-9);
            }
            in[n] = (feed){ "hi", hi }, in[n + 1] = (feed){ "lo", lo };
            eval_program(&c, MK_CROSS_ENTROPY, 0, 0, &s, in, n + 2, &o);
            close_to("loss", result(&o, "loss"), loss, S, 1e-9);
            for (int k = 0; k < n; k++) {
                int64_t first, size = model_vocab_part(&c, k, &first);
                close_to(names[2][k], result(&o, names[2][k]), dl + first * S, size * S, 1e-9);
                in[k] = (feed){ names[2][k], dl + first * S };
            }
            eval_program(&c, MK_CLASSIFIER_BWD, 0, 0, &s, in, n, &o);
            close_to("dxn", result(&o, "dxn"), dx, D * S, 1e-9);
        }
    }
}

#define TEST(f) cmocka_unit_test_teardown(f, drop_memory)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(blocks_match_the_formulas),
        TEST(inference_programs_match_the_formulas),
        TEST(later_tokens_do_not_reach_earlier_ones),
        TEST(heads_read_the_kv_head_of_their_group),
        TEST(presets_have_the_right_shapes),
        TEST(stories110m_attention_at_full_width),
        TEST(head_matches_the_formulas),
    };
    return cmocka_run_group_tests_name("model forward", tests, NULL, NULL);
}
