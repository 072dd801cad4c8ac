/* Gradients of the model's forward programs against its hand-written backward programs: two derivations of the same
 * numbers. Both hold the same constants, rounded to the same type, so they agree to the last digits of a double. */
#include "grad/grad.h"
#include "model_t.h"

enum { WRT_MAX = 8 };

/* A forward program with a linear loss dot(its output, dy), and the gradients by some of its values. */
typedef struct {
    graph *g;
    val loss, wrt[WRT_MAX], dx[WRT_MAX];
    const char *name[WRT_MAX];
    int n;
} forward;

static val port_value(const graph *g, const char *name)
{
    for (size_t i = 0; i < g->outputs.n; i++)
        if (!strcmp(g->outputs.at[i].name + 4, name)) return g->outputs.at[i].v;
    fail_msg("no output %s", name);
    return NO_VAL;
}

static const double *gradient(const forward *f, const tensor64 *out, const char *name)
{
    for (int i = 0; i < f->n; i++)
        if (!strcmp(f->name[i], name)) return out[i].x;
    fail_msg("no gradient by %s", name);
    return NULL;
}

/* Differentiate and evaluate: out[i] is the gradient by name[i]. feeds are the program's inputs in order, dy among
 * them last. */
static void differentiate(forward *f, const double *const *feeds, tensor64 *out)
{
    diag d = { 0 };
    tensor64 in[MODEL_MAX_PORTS];
    assert_ok(grad_build(f->g, f->loss, f->wrt, f->n, f->dx, NULL, &d), d);
    f->g->outputs.n = 0;
    for (int i = 0; i < f->n; i++) {
        char name[40];
        snprintf(name, sizeof name, "grad_%s", f->name[i]);
        graph_output(f->g, name, f->dx[i]);
    }
    assert_ok(graph_finish(f->g, &d), d);
    for (size_t i = 0; i < f->g->inputs.n; i++)
        in[i] = (tensor64){ *graph_type(f->g, f->g->inputs.at[i]), (double *)(uintptr_t)feeds[i] };
    assert_ok(graph_eval(f->g, in, out, &test_mem, &d), d);
}

static forward open_forward(const model_config *c, model_kind kind, store *s, const char *const *by, int n)
{
    forward f = { .g = build_program(c, kind, 1, 0, s), .n = n + 1 };
    val y = port_value(f.g, "x"), dy = graph_input(f.g, "dy", *graph_type(f.g, y));
    f.loss = G(f.g, REDUCE_SUM, G(f.g, MUL, y, dy));
    for (int i = 0; i < n; i++) f.wrt[i] = port_value(f.g, by[i]), f.name[i] = by[i];
    f.wrt[n] = f.g->inputs.at[0], f.name[n] = "x";
    return f;
}

static void feed_forward(void **state)
{
    (void)state;
    rng r = { test_seed("ffn by rules") };
    for (size_t i = 0; i < COUNT(shapes); i++) {
        const model_config *c = &shapes[i];
        store s = { c, rng_next(&r) };
        int64_t D = c->dim, H = c->hidden, S = c->seq;
        bool gated = model_gated(c), post = c->post_norm;
        feed in[4];
        double *x = randoms(&r, D * S, 1), *dy = randoms(&r, D * S, 1);
        results fwd, o, o2;
        eval_program(c, MK_FWD_FFN, 1, 0, &s, FEED({ "x", x }), &fwd);
        eval_program(c, MK_FFN_BWD, 1, 0, &s, in,
                     ffn_feeds(c, in, dy, result(&fwd, "h1"), gated ? result(&fwd, "h3") : NULL,
                               post ? result(&fwd, "br") : NULL),
                     &o);
        eval_program(c, MK_FFN_NORM_BWD, 1, 0, &s,
                     (const feed[]){ { "dxn", result(&o, "dxn") }, { "x", x }, { "dy", dy } }, c->host_residual ? 2 : 3,
                     &o2);
        const char *by[4] = { "xn", "h1" };
        int n = 2;
        if (gated) by[n++] = "h3";
        if (post) by[n++] = "br";
        forward f = open_forward(c, MK_FWD_FFN, &s, by, n);
        tensor64 out[WRT_MAX];
        differentiate(&f, (const double *const[]){ x, dy }, out);
        /* the gelu slope's 3*c1 is one rounded constant there and c1 taken three times here */
        double tol = c->act == MODEL_ACT_SWIGLU ? 1e-9 : 2e-3;
        if (post) close_to("dbr", gradient(&f, out, "br"), result(&o, "dbr"), D * S, tol);
        close_to("dh1", gradient(&f, out, "h1"), result(&o, "dh1"), H * S, tol);
        if (gated) close_to("dh3", gradient(&f, out, "h3"), result(&o, "dh3"), H * S, tol);
        close_to("dxn", gradient(&f, out, "xn"), result(&o, "dxn"), D * S, tol);
        close_to("dx", gradient(&f, out, "x"), result(&o2, "dx"), D * S, tol);
        graph_free(f.g);
    }
}

static void attention(void **state)
{
    (void)state;
    rng r = { test_seed("attention by rules") };
    for (size_t i = 0; i < COUNT(shapes); i++) {
        const model_config *c = &shapes[i];
        store s = { c, rng_next(&r) };
        int64_t D = c->dim, S = c->seq, Q = c->n_heads * c->head_dim, K = c->n_kv_heads * c->head_dim;
        bool qkn = c->qk_norm, post = c->post_norm;
        feed in[5];
        double *x = randoms(&r, D * S, 1), *dy = randoms(&r, D * S, 1);
        results fwd, b1, b2, b3, b4;
        eval_program(c, MK_FWD_ATTN, 1, 0, &s, FEED({ "x", x }), &fwd);
        const double *q = result(&fwd, "q"), *k = result(&fwd, "k"), *v = result(&fwd, "v");
        eval_program(c, MK_ATTN_BWD1, 1, 0, &s, in, attn_feeds(c, in, q, k, v, dy, post ? result(&fwd, "br") : NULL),
                     &b1);
        eval_program(c, MK_ATTN_BWD2, 1, 0, &s,
                     (const feed[]){ { "p", result(&b1, "p") }, { "dp", result(&b1, "dp") }, { "q", q }, { "k", k },
                                     { "qraw", qkn ? result(&fwd, "qraw") : NULL }, { "kraw", qkn ? result(&fwd, "kraw") : NULL } },
                     qkn ? 6 : 4, &b2);
        eval_program(c, MK_QKV_BWD, 1, 0, &s,
                     FEED({ "dq", result(&b2, "dq") }, { "dk", result(&b2, "dk") }, { "dv", result(&b1, "dv") }), &b3);
        eval_program(c, MK_ATTN_NORM_BWD, 1, 0, &s,
                     (const feed[]){ { "dxn", result(&b3, "dxn") }, { "x", x }, { "dy", dy } },
                     c->host_residual ? 2 : 3, &b4);
        const char *by[7] = { "xn", "v", "q", "k" };
        int n = 4;
        if (qkn) by[n++] = "qraw", by[n++] = "kraw";
        if (post) by[n++] = "br";
        forward f = open_forward(c, MK_FWD_ATTN, &s, by, n);
        tensor64 out[WRT_MAX];
        differentiate(&f, (const double *const[]){ x, dy }, out);
        close_to("dv", gradient(&f, out, "v"), result(&b1, "dv"), K * S, 1e-9);
        if (post) close_to("dbr", gradient(&f, out, "br"), result(&b1, "dbr"), D * S, 1e-9);
        /* dq and dk there are those of the projections: of q and k themselves when nothing comes between */
        if (qkn) {
            close_to("dqraw", gradient(&f, out, "qraw"), result(&b2, "dq"), Q * S, 1e-9);
            close_to("dkraw", gradient(&f, out, "kraw"), result(&b2, "dk"), K * S, 1e-9);
        } else if (c->rope == MODEL_ROPE_NONE) {
            close_to("dq", gradient(&f, out, "q"), result(&b2, "dq"), Q * S, 1e-9);
            close_to("dk", gradient(&f, out, "k"), result(&b2, "dk"), K * S, 1e-9);
        }
        close_to("dxn", gradient(&f, out, "xn"), result(&b3, "dxn"), D * S, 1e-9);
        close_to("dx", gradient(&f, out, "x"), result(&b4, "dx"), D * S, 1e-9);
        graph_free(f.g);
    }
}

static void final_norm(void **state)
{
    (void)state;
    rng r = { test_seed("head by rules") };
    for (size_t i = 0; i < COUNT(shapes); i++) {
        const model_config *c = &shapes[i];
        store s = { c, rng_next(&r) };
        int64_t D = c->dim, S = c->seq;
        double *x = randoms(&r, D * S, 1), *dy = randoms(&r, D * S, 1);
        results o;
        eval_program(c, MK_FINAL_NORM_BWD, 0, 0, &s, FEED({ "dxn", dy }, { "x", x }), &o);
        forward f = { .g = build_program(c, MK_FINAL_NORM, 0, 0, &s), .n = 1, .name = { "x" } };
        val y = port_value(f.g, "xn"), w = graph_input(f.g, "dy", *graph_type(f.g, y));
        f.loss = G(f.g, REDUCE_SUM, G(f.g, MUL, y, w)), f.wrt[0] = f.g->inputs.at[0];
        tensor64 out[WRT_MAX];
        differentiate(&f, (const double *const[]){ x, dy }, out);
        close_to("dx", out[0].x, result(&o, "dx"), D * S, 1e-9);
        graph_free(f.g);
    }
}

/* The loss program returns both the loss and its gradient: differentiate the one, compare with the other. */
static void cross_entropy(void **state)
{
    (void)state;
    rng r = { test_seed("cross-entropy by rules") };
    for (size_t i = 0; i < COUNT(shapes); i++) {
        const model_config *c = &shapes[i];
        store s = { c, rng_next(&r) };
        int64_t S = c->seq;
        graph *g = build_program(c, MK_CROSS_ENTROPY, 0, 0, &s);
        int parts = model_vocab_parts(c);
        assert_true(parts <= WRT_MAX && (int)g->inputs.n == parts + 2);
        tensor64 in[MODEL_MAX_PORTS], out[MODEL_MAX_PORTS];
        for (size_t k = 0; k < g->inputs.n; k++) {
            in[k].type = *graph_type(g, g->inputs.at[k]);
            int64_t n = 0;
            assert_true(shape_elems(&in[k].type.sh, &n));
            in[k].x = randoms(&r, n, 2);
        }
        for (int64_t t = 0; t < S; t++) { /* the target as two digits */
            int64_t id = (int64_t)rng_below(&r, (uint64_t)c->vocab);
            in[parts].x[t] = (double)(id / MODEL_ID_BASE), in[parts + 1].x[t] = (double)(id % MODEL_ID_BASE);
        }
        val wrt[WRT_MAX] = { NO_VAL }, dx[WRT_MAX] = { NO_VAL };
        for (int k = 0; k < parts; k++) wrt[k] = g->inputs.at[k];
        val loss = G(g, REDUCE_SUM, port_value(g, "loss"));
        diag d = { 0 };
        /* the program's factor, as its type holds it */
        double factor = dtype_round(graph_type(g, loss)->dt, (c->loss_scale == 0 ? 1 : c->loss_scale) / (double)S);
        assert_ok(grad_build(g, loss, wrt, parts, dx, &(grad_options){ .loss_scale = factor }, &d), d);
        int first = (int)g->outputs.n;
        for (int k = 0; k < parts; k++) {
            char name[24];
            snprintf(name, sizeof name, "by_rules%d", k);
            graph_output(g, name, dx[k]);
        }
        assert_ok(graph_eval(g, in, out, &test_mem, &d), d);
        for (int k = 0; k < parts; k++) {
            int64_t n = 0;
            assert_true(shape_elems(&in[k].type.sh, &n));
            close_to("dlogits", out[first + k].x, out[1 + k].x, n, 1e-9);
        }
        graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(feed_forward, drop_memory),
        cmocka_unit_test_teardown(attention, drop_memory),
        cmocka_unit_test_teardown(final_norm, drop_memory),
        cmocka_unit_test_teardown(cross_entropy, drop_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
