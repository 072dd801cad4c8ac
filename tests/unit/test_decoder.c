/* The whole decoder as one graph, every family variant, against plain maths in double precision: the loss of a batch, its
 * gradients by finite differences, and prompt and single steps over a cache against the same positions in one go. */
#include "model_t.h"

#include "grad/grad.h"
#include "model/decoder.h"

#define FAMILY .n_layers = 2, .dim = 24, .hidden = 40, .seq = 6, .context = 16, .vocab = 50, .vocab_part = 20, .rope_theta = 1e4, .norm_eps = 1e-5, .dt = DT_F32
static const model_config families[] = {
    { .name = "llama", FAMILY, .n_heads = 4, .n_kv_heads = 2, .head_dim = 6, .rope = MODEL_ROPE_INTERLEAVED },
    { .name = "stories", FAMILY, .n_heads = 3, .n_kv_heads = 3, .head_dim = 8, .rope = MODEL_ROPE_INTERLEAVED, .tied = true },
    { .name = "qwen2", FAMILY, .n_heads = 4, .n_kv_heads = 2, .head_dim = 6, .rope = MODEL_ROPE_HALF, .bias_qkv = true, .tied = true },
    { .name = "qwen3", FAMILY, .n_heads = 4, .n_kv_heads = 2, .head_dim = 8, .rope = MODEL_ROPE_HALF, .qk_norm = true, .tied = true },
    { .name = "mistral", FAMILY, .n_heads = 4, .n_kv_heads = 1, .head_dim = 6, .rope = MODEL_ROPE_HALF, .window = 3 },
    { .name = "gpt2", FAMILY, .n_heads = 3, .n_kv_heads = 3, .head_dim = 8, .norm = MODEL_NORM_LAYER, .act = MODEL_ACT_GELU, .bias = true, .tied = true },
    { .name = "scaled", FAMILY, .n_heads = 2, .n_kv_heads = 2, .head_dim = 12, .rope = MODEL_ROPE_HALF, .scaling = { .kind = MODEL_SCALE_LINEAR, .factor = 4 } },
};

/* ---- plain maths ---- */

/* Logits [V][S] of one sequence. */
static double *m_logits(const store *s, const int *ids, int64_t S)
{
    const model_config *c = s->c;
    int64_t D = c->dim;
    double *x = room(D * S), *xn = room(D * S), *y = room(c->vocab * S);
    const double *e = weight_of(s, MW_EMBED, -1), *p = bias_of(s, MW_POS, -1);
    for (int64_t i = 0; i < D; i++)
        for (int64_t t = 0; t < S; t++) x[i * S + t] = e[ids[t] * D + i] + (p ? p[t * D + i] : 0);
    for (int layer = 0; layer < c->n_layers; layer++) x = m_ffn_from(s, layer, m_attn_from(s, layer, x, S, true).y, S).y;
    m_norm(s, MW_NORM_F, MW_NORM_F_B, -1, x, xn, S);
    m_linear(c->tied ? e : weight_of(s, MW_HEAD, -1), NULL, xn, y, c->vocab, D, S);
    return y;
}

static double m_loss(const store *s, const int *ids, const int *want, int64_t B, int64_t S)
{
    double sum = 0;
    for (int64_t b = 0; b < B; b++) {
        const double *y = m_logits(s, ids + b * S, S);
        for (int64_t t = 0; t < S; t++) {
            double top = -INFINITY, z = 0;
            for (int64_t v = 0; v < s->c->vocab; v++) top = fmax(top, y[v * S + t]);
            for (int64_t v = 0; v < s->c->vocab; v++) z += exp(y[v * S + t] - top);
            sum += top + log(z) - y[want[b * S + t] * S + t];
        }
    }
    return sum / (double)(B * S);
}

/* ---- feeding graphs by name ---- */

typedef struct {
    const char *name;
    const double *x;
} named;

static int *random_ids(rng *r, const model_config *c, int64_t n)
{
    int *ids = TAKE(&test_mem, int, (size_t)n);
    assert_non_null(ids);
    for (int64_t i = 0; i < n; i++) ids[i] = (int)rng_below(r, (uint64_t)c->vocab);
    return ids;
}

static double *as_numbers(const int *ids, int64_t n, int div, int mod)
{
    double *x = room(n);
    for (int64_t i = 0; i < n; i++) x[i] = ids[i] / div % mod;
    return x;
}

static double *param_values(const store *s, const model_weight *w)
{
    int64_t n;
    assert_true(shape_elems(&w->type.sh, &n));
    double *x = room(n);
    memcpy(x, weight_of(s, w->id, w->layer), (size_t)n * sizeof *x);
    return x;
}

static tensor64 *feeds(const graph *g, const named *in, int n)
{
    tensor64 *t = TAKE(&test_mem, tensor64, g->inputs.n);
    assert_non_null(t);
    for (size_t i = 0; i < g->inputs.n; i++) {
        const value *v = graph_value(g, g->inputs.at[i]);
        t[i].type = v->type;
        for (int k = 0; k < n; k++)
            if (!strcmp(in[k].name, v->name)) t[i].x = (double *)(uintptr_t)in[k].x;
        if (!t[i].x) fail_msg("nothing to feed to %s", v->name);
    }
    return t;
}

static const double *output(const graph *g, const tensor64 *out, const char *name)
{
    for (size_t i = 0; i < g->outputs.n; i++)
        if (!strcmp(g->outputs.at[i].name, name)) return out[i].x;
    fail_msg("no output %s", name);
    return NULL;
}

/* ---- training ---- */

typedef struct {
    decoder dec;
    named in[64];
    int n_in;
} train_case;

static void train_make(train_case *t, const store *s, const decoder_options *o, const int *ids, const int *want, int64_t n)
{
    diag d = { 0 };
    model_source src = { .get = store_get, .user = (void *)(uintptr_t)s };
    assert_ok(decoder_build(s->c, o, &src, &t->dec, &d), d);
    t->n_in = 0;
    if (o->chip) {
        t->in[t->n_in++] = (named){ "tok_hi", as_numbers(ids, n, MODEL_ID_BASE, MODEL_ID_BASE) };
        t->in[t->n_in++] = (named){ "tok_lo", as_numbers(ids, n, 1, MODEL_ID_BASE) };
        t->in[t->n_in++] = (named){ "tgt_hi", as_numbers(want, n, MODEL_ID_BASE, MODEL_ID_BASE) };
        t->in[t->n_in++] = (named){ "tgt_lo", as_numbers(want, n, 1, MODEL_ID_BASE) };
    } else {
        t->in[t->n_in++] = (named){ "tokens", as_numbers(ids, n, 1, 1 << 30) };
        t->in[t->n_in++] = (named){ "targets", as_numbers(want, n, 1, 1 << 30) };
    }
    for (size_t i = 0; i < t->dec.n_param && o->param_inputs; i++)
        t->in[t->n_in++] = (named){ graph_value(t->dec.g, t->dec.param[i])->name, param_values(s, &t->dec.weight[i]) };
}

static void loss_is_that_of_the_formulas(void **state)
{
    (void)state;
    rng r = { test_seed("train loss") };
    for (size_t i = 0; i < COUNT(families); i++)
        for (int form = 0; form < 8; form++) {
            const model_config *c = &families[i];
            store s = { c, rng_next(&r) };
            decoder_options o = { .chip = form & 1, .param_inputs = form & 2, .batch = form & 4 ? 3 : 0 };
            int64_t B = MAX(o.batch, 1), n = B * c->seq;
            int *ids = random_ids(&r, c, n), *want = random_ids(&r, c, n);
            train_case t;
            train_make(&t, &s, &o, ids, want, n);
            tensor64 *out = TAKE(&test_mem, tensor64, t.dec.g->outputs.n);
            diag d = { 0 };
            assert_ok(graph_eval(t.dec.g, feeds(t.dec.g, t.in, t.n_in), out, &test_mem, &d), d);
            double expect = m_loss(&s, ids, want, B, c->seq);
            close_to(c->name, output(t.dec.g, out, "loss"), &expect, 1, 1e-9);
            graph_free(t.dec.g);
            drop_memory(NULL);
        }
}

/* One direction in the space of all parameters: the slope there is the sum over every gradient. */
static void gradients_are_those_of_differences(void **state)
{
    (void)state;
    rng r = { test_seed("train gradients") };
    for (size_t i = 0; i < COUNT(families); i++)
        for (int chip = 0; chip < 2; chip++) {
            const model_config *c = &families[i];
            store s = { c, rng_next(&r) };
            decoder_options o = { .chip = chip, .param_inputs = true, .batch = 2 };
            int64_t n = 2 * c->seq;
            int *ids = random_ids(&r, c, n), *want = random_ids(&r, c, n);
            train_case t;
            diag d = { 0 };
            train_make(&t, &s, &o, ids, want, n);
            val dw[64];
            assert_true(t.dec.n_param <= COUNT(dw));
            assert_ok(grad_build(t.dec.g, t.dec.loss, t.dec.param, (int)t.dec.n_param, dw, NULL, &d), d);
            for (size_t k = 0; k < t.dec.n_param; k++) {
                char name[16];
                snprintf(name, sizeof name, "grad%zu", k);
                graph_output(t.dec.g, name, dw[k]);
            }
            assert_ok(graph_finish(t.dec.g, &d), d);
            tensor64 *out = TAKE(&test_mem, tensor64, t.dec.g->outputs.n);
            assert_ok(graph_eval(t.dec.g, feeds(t.dec.g, t.in, t.n_in), out, &test_mem, &d), d);
            double h = 1e-4, at[4];
            for (size_t k = 0; k < t.dec.n_param; k++) { /* along each tensor's own direction: none hides behind another */
                double *x = (double *)(uintptr_t)t.in[t.n_in - (int)t.dec.n_param + (int)k].x;
                int64_t len;
                assert_true(shape_elems(&t.dec.weight[k].type.sh, &len));
                double *along = randoms(&r, len, 1), slope = dot(along, out[1 + k].x, len);
                for (int j = 0; j < 4; j++) {
                    double step = (j < 2 ? 1 : 2) * (j & 1 ? -h : h);
                    for (int64_t q = 0; q < len; q++) x[q] += step * along[q];
                    tensor64 *again = TAKE(&test_mem, tensor64, t.dec.g->outputs.n);
                    assert_ok(graph_eval(t.dec.g, feeds(t.dec.g, t.in, t.n_in), again, &test_mem, &d), d);
                    at[j] = again[0].x[0];
                    for (int64_t q = 0; q < len; q++) x[q] -= step * along[q];
                }
                double got = (8 * (at[0] - at[1]) - (at[2] - at[3])) / (12 * h);
                if (!(fabs(got - slope) <= 1e-5 * (fabs(slope) + 0.01))) fail_msg("%s %s: slope %.12g, differences %.12g", c->name, t.dec.weight[k].name, slope, got);
            }
            graph_free(t.dec.g);
            drop_memory(NULL);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(loss_is_that_of_the_formulas, drop_memory),
        cmocka_unit_test_teardown(gradients_are_those_of_differences, drop_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
