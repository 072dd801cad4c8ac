/* The whole decoder as one graph, every family variant, against plain maths in double precision: the loss of a
 * batch, its gradients by finite differences, and prompt and single steps over a cache against the same positions in
 * one go. */
#include "model_t.h"

#include "grad/grad.h"
#include "model/decoder.h"

#define FAMILY                                                                                                         \
    .n_layers = 2, .dim = 24, .hidden = 40, .seq = 6, .context = 16, .vocab = 50, .vocab_part = 20, .rope_theta = 1e4, \
    .norm_eps = 1e-5, .dt = DT_F32
static const model_config families[] = {
    { .name = "llama", FAMILY, .n_heads = 4, .n_kv_heads = 2, .head_dim = 6, .rope = MODEL_ROPE_INTERLEAVED },
    { .name = "stories", FAMILY, .n_heads = 3, .n_kv_heads = 3, .head_dim = 8, .rope = MODEL_ROPE_INTERLEAVED, .tied = true },
    { .name = "qwen2", FAMILY, .n_heads = 4, .n_kv_heads = 2, .head_dim = 6, .rope = MODEL_ROPE_HALF, .bias_qkv = true, .tied = true },
    { .name = "qwen3", FAMILY, .n_heads = 4, .n_kv_heads = 2, .head_dim = 8, .rope = MODEL_ROPE_HALF, .qk_norm = true, .tied = true },
    { .name = "mistral", FAMILY, .n_heads = 4, .n_kv_heads = 1, .head_dim = 6, .rope = MODEL_ROPE_HALF, .window = 3 },
    { .name = "gpt2", FAMILY, .n_heads = 3, .n_kv_heads = 3, .head_dim = 8, .norm = MODEL_NORM_LAYER, .act = MODEL_ACT_GELU, .bias = true, .tied = true },
    { .name = "scaled", FAMILY, .n_heads = 2, .n_kv_heads = 2, .head_dim = 12, .rope = MODEL_ROPE_HALF, .scaling = { .kind = MODEL_SCALE_LINEAR, .factor = 4 } },
    { .name = "gemma", FAMILY, .n_heads = 4, .n_kv_heads = 1, .head_dim = 8, .rope = MODEL_ROPE_HALF, .act = MODEL_ACT_GEGLU, .embed_scale = 4.898979486, .tied = true },
    /* a matrix of one column is no vector */
    { .name = "narrow", .n_layers = 2, .dim = 6, .hidden = 1, .seq = 6, .context = 16, .vocab = 50, .vocab_part = 20, .rope_theta = 1e4, .norm_eps = 1e-5, .dt = DT_F32, .n_heads = 2, .n_kv_heads = 1,
      .head_dim = 4, .rope = MODEL_ROPE_HALF, .bias_mlp = true },
    { .name = "gemma2", FAMILY, .n_heads = 4, .n_kv_heads = 2, .head_dim = 6, .rope = MODEL_ROPE_HALF, .act = MODEL_ACT_GEGLU, .embed_scale = 4.898979486, .tied = true, .post_norm = true,
      .attn_softcap = 2, .softcap = 3, .query_dim = 10, .window = 3, .window_every = 2 },
};

static double embed_scale(const model_config *c) { return c->embed_scale != 0 ? rc(c, c->embed_scale) : 1; }

/* ---- plain maths ---- */

/* Logits [V][S] of one sequence. */
static double *m_logits(const store *s, const int *ids, int64_t S)
{
    const model_config *c = s->c;
    int64_t D = c->dim;
    double *x = room(D * S), *xn = room(D * S), *y = room(c->vocab * S);
    const double *e = weight_of(s, MW_EMBED, -1), *p = bias_of(s, MW_POS, -1);
    for (int64_t i = 0; i < D; i++)
        for (int64_t t = 0; t < S; t++) x[i * S + t] = e[ids[t] * D + i] * embed_scale(c) + (p ? p[t * D + i] : 0);
    for (int layer = 0; layer < c->n_layers; layer++)
        x = m_ffn_from(s, layer, m_attn_from(s, layer, x, S, true).y, S).y;
    m_norm(s, MW_NORM_F, MW_NORM_F_B, -1, x, xn, S);
    m_linear(c->tied ? e : weight_of(s, MW_HEAD, -1), NULL, xn, y, c->vocab, D, S);
    for (int64_t i = 0; i < c->vocab * S && c->softcap != 0; i++) y[i] = c->softcap * tanh(y[i] / c->softcap);
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

static void train_make(train_case *t, const store *s, const decoder_options *o, const int *ids, const int *want,
                       int64_t n)
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
                char name[32];
                snprintf(name, sizeof name, "grad%zu", k);
                graph_output(t.dec.g, name, dw[k]);
            }
            assert_ok(graph_finish(t.dec.g, &d), d);
            tensor64 *out = TAKE(&test_mem, tensor64, t.dec.g->outputs.n);
            assert_ok(graph_eval(t.dec.g, feeds(t.dec.g, t.in, t.n_in), out, &test_mem, &d), d);
            double h = 1e-4, at[4];
            /* along each tensor's own direction: none hides behind another */
            for (size_t k = 0; k < t.dec.n_param; k++) {
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
                if (!(fabs(got - slope) <= 1e-5 * (fabs(slope) + 0.01)))
                    fail_msg("%s %s: slope %.12g, differences %.12g", c->name, t.dec.weight[k].name, slope, got);
            }
            graph_free(t.dec.g);
            drop_memory(NULL);
        }
}

/* ---- steps over a cache ---- */

/* Feeds a step graph: tokens ids[p0 .. p0 + T) at those positions. Caches are [NKV][C][HD] per layer and side. */
typedef struct {
    const store *s;
    int64_t C;
    double *cache[2][2]; /* [layer][k, v] */
} session;

static double *step_column(const model_config *c, int64_t T, int which, const int32_t *pos)
{
    double *x = room(c->head_dim * T), *y = room(c->head_dim * T), *step = room(c->head_dim), scale;
    model_rope_steps(c, step, &scale);
    for (int64_t i = 0; i < c->head_dim / 2; i++) {
        int64_t a, b;
        model_rope_channels(c, i, &a, &b);
        for (int64_t t = 0; t < T; t++) {
            model_rope_run(step[i], scale, pos[t], 1, DT_F64, &x[a * T + t], &y[a * T + t]);
            x[b * T + t] = x[a * T + t], y[b * T + t] = y[a * T + t];
        }
    }
    for (int64_t i = 0; i < c->head_dim * T; i++) x[i] = rc(c, x[i]), y[i] = rc(c, y[i]);
    return which ? y : x;
}

/* Logits of the run: [V][T], or [V][1] with last_only. layer1 0: the whole model in one graph. */
static double *run_step(session *se, const int *ids, int64_t p0, int64_t T, const decoder_options *how,
                        const double *x_in)
{
    const model_config *c = se->s->c;
    const double *e = weight_of(se->s, MW_EMBED, -1), *at = bias_of(se->s, MW_POS, -1);
    decoder dec;
    diag d = { 0 };
    decoder_options o = *how;
    o.use = DECODER_STEP, o.seq = T, o.cache = se->C;
    model_source src = { .get = store_get, .user = (void *)(uintptr_t)se->s };
    assert_ok(decoder_build(c, &o, &src, &dec, &d), d);
    int32_t *pos = TAKE(&test_mem, int32_t, (size_t)T);
    double *x = room(c->dim * T), *numbers = room(T), *pick = room(T), *mask = room(T * se->C),
           *place = room(T * se->C);
    for (int64_t t = 0; t < T; t++) {
        pos[t] = (int32_t)(p0 + t), numbers[t] = pos[t], pick[t] = t == T - 1;
        if (!o.chip) pick[0] = (double)(T - 1);
        for (int64_t i = 0; i < c->dim; i++)
            x[i * T + t] = x_in ? x_in[i * T + t]
                                : e[ids[pos[t]] * c->dim + i] * embed_scale(c) + (at ? at[pos[t] * c->dim + i] : 0);
    }
    decoder_mask(c, pos, T, se->C, DT_F64, mask);
    decoder_place(pos, T, se->C, DT_F64, place);
    named in[16] = { { "x", x }, { "pos", numbers }, { "pick", pick }, { "mask", mask }, { "place", place } };
    int n = 5;
    if (c->rope != MODEL_ROPE_NONE)
        in[n++] = (named){ "rope_cos", step_column(c, T, 0, pos) },
        in[n++] = (named){ "rope_sin", step_column(c, T, 1, pos) };
    static const char *const names[2][4] = { { "k00", "v00", "k00_new", "v00_new" },
                                             { "k01", "v01", "k01_new", "v01_new" } };
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 2; k++) in[n++] = (named){ names[i][k], se->cache[i][k] };
    tensor64 *out = TAKE(&test_mem, tensor64, dec.g->outputs.n);
    assert_ok(graph_eval(dec.g, feeds(dec.g, in, n), out, &test_mem, &d), d);
    for (int i = o.layer0; i < (o.layer1 ? o.layer1 : 2); i++)
        for (int k = 0; k < 2; k++) se->cache[i][k] = (double *)(uintptr_t)output(dec.g, out, names[i][2 + k]);
    double *y;
    if (o.layer1 && o.layer1 < c->n_layers) y = (double *)(uintptr_t)output(dec.g, out, "y");
    else if (!o.chip) y = (double *)(uintptr_t)output(dec.g, out, "logits");
    else {
        int64_t wide = o.last_only ? 1 : T, done = 0;
        y = room(c->vocab * wide);
        for (int i = 0; i < model_vocab_parts(c); i++) {
            char name[24];
            int64_t k = model_vocab_part(c, i, NULL);
            snprintf(name, sizeof name, "logits%d", i);
            memcpy(y + done * wide, output(dec.g, out, name), (size_t)(k * wide) * sizeof *y);
            done += k;
        }
    }
    graph_free(dec.g);
    return y;
}

static void steps_repeat_the_whole(void **state)
{
    (void)state;
    static const int64_t cuts[][6] = { { 6 }, { 1, 1, 1, 1, 1, 1 }, { 4, 1, 1 }, { 2, 3, 1 } };
    rng r = { test_seed("steps") };
    for (size_t i = 0; i < COUNT(families); i++)
        for (int form = 0; form < 16; form++) {
            const model_config *c = &families[i];
            store s = { c, rng_next(&r) };
            session se = { .s = &s, .C = 9 };
            int64_t S = 6, size = c->n_kv_heads * c->head_dim * se.C, p = 0;
            /* what is not written yet must not matter */
            for (int k = 0; k < 4; k++) se.cache[k / 2][k % 2] = randoms(&r, size, 1);
            int *ids = random_ids(&r, c, S);
            double *want = m_logits(&s, ids, S);
            /* a chip has one mask for all layers */
            decoder_options o = { .chip = form & 1 && c->window_every < 2, .last_only = form & 2 };
            for (int k = 0; p < S; p += cuts[form / 4][k++]) {
                int64_t T = cuts[form / 4][k], wide = o.last_only ? 1 : T;
                double *y;
                if (form % 3) y = run_step(&se, ids, p, T, &o, NULL);
                else { /* layer by layer */
                    decoder_options first = o, second = o;
                    first.layer1 = 1, second.layer0 = 1, second.layer1 = 2;
                    y = run_step(&se, ids, p, T, &second, run_step(&se, ids, p, T, &first, NULL));
                }
                double *part = room(c->vocab * wide);
                for (int64_t v = 0; v < c->vocab; v++)
                    for (int64_t t = 0; t < wide; t++) part[v * wide + t] = want[v * S + p + T - wide + t];
                /* else GELU is an op, its numbers of no tensor's type */
                close_to(c->name, y, part, c->vocab * wide,
                         o.chip || (c->act != MODEL_ACT_GELU && c->act != MODEL_ACT_GEGLU) ? 1e-9 : 1e-5);
            }
            drop_memory(NULL);
        }
}

static void bad_options_are_refused(void **state)
{
    (void)state;
    const model_config *c = &families[0];
    static const struct {
        decoder_options o;
        const char *say;
    } rows[] = {
        { { .batch = -1 }, "batch is -1" },
        { { .use = DECODER_STEP, .batch = 2 }, "one sequence, not 2" },
        { { .use = DECODER_STEP, .seq = 8, .cache = 4 }, "a cache of 4 positions for steps of 8" },
        { { .use = DECODER_STEP, .layer0 = 2 }, "layers 2 to 0 of 2" },
        { { .use = DECODER_STEP, .layer1 = 3 }, "layers 0 to 3 of 2" },
        { { .seq = 17 }, "seq is 17" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        decoder dec;
        diag d = { 0 };
        assert_int_equal(decoder_build(c, &rows[i].o, NULL, &dec, &d), AN_INPUT);
        if (!strstr(d.msg, rows[i].say)) fail_msg("message \"%s\" lacks \"%s\"", d.msg, rows[i].say);
        assert_null(dec.g);
    }
    decoder dec;
    diag d = { 0 };
    /* windows on some layers: on a chip only where they cut nothing off */
    const model_config *two = &families[COUNT(families) - 1];
    assert_int_equal(decoder_build(two, &(decoder_options){ .use = DECODER_STEP, .chip = true, .seq = 1, .cache = 4 },
                                   NULL, &dec, &d),
                     AN_INPUT);
    assert_non_null(strstr(d.msg, "a window of 3 on layers 0, 2"));
    d = (diag){ 0 };
    assert_ok(decoder_build(two, &(decoder_options){ .use = DECODER_STEP, .chip = true, .seq = 1, .cache = 3 }, NULL,
                            &dec, &d),
              d);
    graph_free(dec.g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(loss_is_that_of_the_formulas, drop_memory),
        cmocka_unit_test_teardown(gradients_are_those_of_differences, drop_memory),
        cmocka_unit_test_teardown(steps_repeat_the_whole, drop_memory),
        cmocka_unit_test(bad_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
