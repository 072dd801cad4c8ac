/* test_lm_families: every family of models, by every way, on every device: one curve; and what `anneal grad` writes
 * for a model's file is what an update takes off the numbers in it. */
#include <math.h>

#include "format/safetensors.h"
#include "lm_run_t.h"
#include "train/lm_grad.h"

#define SIZES "\"hidden_size\":16,\"intermediate_size\":24,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":48,\"max_position_embeddings\":32,\"rms_norm_eps\":1e-5,"
#define SILU "\"hidden_act\":\"silu\","

static const struct {
    const char *name, *json;
} family[] = {
    { "llama", SIZES SILU "\"model_type\":\"llama\",\"num_hidden_layers\":2,\"tie_word_embeddings\":false" },
    { "llama with biases and scaled rotation",
      SIZES SILU "\"model_type\":\"llama\",\"num_hidden_layers\":1,\"attention_bias\":true,\"mlp_bias\":true,\"tie_word_embeddings\":true,"
                 "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8}" },
    { "mistral", SIZES SILU "\"model_type\":\"mistral\",\"num_hidden_layers\":2,\"sliding_window\":3,\"tie_word_embeddings\":false" },
    { "qwen2", SIZES SILU "\"model_type\":\"qwen2\",\"num_hidden_layers\":2,\"tie_word_embeddings\":true" },
    { "qwen3", SIZES SILU "\"model_type\":\"qwen3\",\"num_hidden_layers\":2,\"head_dim\":8,\"tie_word_embeddings\":true" },
    { "gemma", SIZES "\"model_type\":\"gemma\",\"num_hidden_layers\":2,\"head_dim\":8,\"hidden_act\":\"gelu_pytorch_tanh\",\"tie_word_embeddings\":true" },
    { "gemma2", SIZES "\"model_type\":\"gemma2\",\"num_hidden_layers\":3,\"head_dim\":8,\"hidden_activation\":\"gelu_pytorch_tanh\",\"query_pre_attn_scalar\":10,\"attn_logit_softcapping\":4.0,"
                      "\"final_logit_softcapping\":5.0,\"sliding_window\":3,\"tie_word_embeddings\":true" },
    { "gpt2", "\"model_type\":\"gpt2\",\"n_embd\":16,\"n_layer\":2,\"n_head\":4,\"n_positions\":32,\"vocab_size\":48,\"layer_norm_epsilon\":1e-5,\"activation_function\":\"gelu_new\"" },
};
static const char *const ways[] = { "resident", "delta", "dynamic", "restart" };

static void begin(small_run *r, size_t f)
{
    strbuf b = { 0 };
    diag d = { 0 };
    small_begin(r);
    sb_printf(&b, "{%s}", family[f].json);
    assert_false(b.oom);
    assert_ok(file_write(r->model, b.at, b.n, &d), d);
    sb_free(&b);
}

/* A run that stands for a process of its own, in a folder of its own. */
static lm_run_result run(small_run *r, const lm_run_options *o, const char *what)
{
    lm_run_result q;
    diag d = { 0 };
    small_remove(r->save);
    r->n = 0;
    if (lm_run(o, &q, &d)) fail_msg("%s, %s by %s: %s", what, o->engine, o->pipeline, d.msg);
    return q;
}

/* cpu: the order of sums. Chips: activations and the loss are fp16, good to about 1e-3 each; the loss of resident is
 * one fp16 number, up to 2e-3 off by itself. Measured: 4e-7 and 1.1e-2. */
static void one_curve(void **state)
{
    (void)state;
    enum { N = 3 };
    static const char *const engines[] = { "cpu", "soft:m1", "soft:m2", "soft:m3", "soft:m4", "soft:m5" };
    double most[2] = { 0 };
    for (size_t f = 0; f < COUNT(family); f++) {
        small_run r;
        double want[N];
        begin(&r, f);
        lm_run_options o = small_options(&r, "cpu");
        o.steps = N, o.seq = 8, o.validation = -1;
        for (size_t i = 0; i < COUNT(engines) * COUNT(ways); i++) {
            o.engine = engines[i / COUNT(ways)], o.pipeline = ways[i % COUNT(ways)];
            o.save = strcmp(o.pipeline, "restart") ? NULL : r.save;
            lm_run_result q = run(&r, &o, family[f].name);
            bool cpu = !strcmp(o.engine, "cpu");
            double limit = cpu ? 1e-5 : 1.5e-2;
            assert_true(r.n == N && q.stats.train.skipped == 0);
            if (i == 0) memcpy(want, r.loss, sizeof want);
            for (int k = 0; k < N; k++) {
                double off = fabs(r.loss[k] - want[k]);
                most[!cpu] = MAX(most[!cpu], off);
                if (!(off < limit))
                    fail_msg("%s, %s by %s: step %d has loss %.6f, wanted %.6f within %g", family[f].name, o.engine,
                             o.pipeline, k + 1, r.loss[k], want[k], limit);
            }
            if (r.warned[0]) fail_msg("%s, %s by %s: %s", family[f].name, o.engine, o.pipeline, r.warned);
        }
        small_end(&r);
    }
    print_message("losses within %.1e on cpu, %.1e on chips\n", most[0], most[1]);
}

static safetensors *tensors_of(const char *folder, const char *file)
{
    char path[200];
    diag d = { 0 };
    safetensors *s;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    assert_ok(safetensors_open(path, &s, &d), d);
    return s;
}

/* One tensor of the gradient's file against what it lost, a rate of 1: direction and size. Those that are next to
 * nothing are noise. */
static void compare(const safetensor *g, const safetensor *before, const safetensor *after, double all, double cos,
                    double size, const char *what)
{
    double gg = 0, dd = 0, gd = 0;
    assert_true(g && after && g->bytes == before->bytes && after->bytes == before->bytes && g->dt == DT_F32 &&
                before->dt == DT_F32);
    for (size_t i = 0; i < g->bytes / 4; i++) {
        float x, a, b;
        memcpy(&x, (const char *)g->data + 4 * i, 4), memcpy(&a, (const char *)before->data + 4 * i, 4),
            memcpy(&b, (const char *)after->data + 4 * i, 4);
        double lost = (double)a - b;
        gg += (double)x * x, dd += lost * lost, gd += x * lost;
    }
    if (sqrt(gg) < 1e-3 * all && sqrt(dd) < 2e-3 * all) return;
    double c = gd / sqrt(gg * dd), s = sqrt(dd / gg);
    if (!(1 - c < cos && fabs(s - 1) < size)) fail_msg("%s: %s has cosine %.7f, size %.6f", what, before->name, c, s);
}

static double norm_of(const safetensors *s)
{
    double sum = 0;
    for (size_t i = 0; i < safetensors_count(s); i++)
        for (size_t k = 0; k < safetensors_at(s, i)->bytes / 4; k++) {
            float x;
            memcpy(&x, (const char *)safetensors_at(s, i)->data + 4 * k, 4);
            sum += (double)x * x;
        }
    return sqrt(sum);
}

/* A file's numbers before and after one step of plain descent, by every way, against the file of gradients. */
static void the_file_moves_by_its_gradient(void **state)
{
    (void)state;
    enum { T = 8, LENGTH = 2 * T + 1 };
    static const char *const engines[] = { "cpu", "soft:m4" };
    for (size_t n = 0; n < 2 * COUNT(family); n++) {
        const size_t f = n % COUNT(family);
        const bool compact = n != f; /* the model answers with the ids that occur, and with no other */
        small_run r;
        char model[120], grads[120], what[120];
        uint16_t ids[LENGTH];
        int32_t tokens[2][T + 1];
        lm_grad_result q;
        diag d = { 0 };
        begin(&r, f);
        for (int i = 0; i < LENGTH; i++) ids[i] = (uint16_t)((i * 7 + i * i) % 41);
        for (int b = 0; b < 2; b++)
            for (int i = 0; i <= T; i++) tokens[b][i] = ids[b * T + i];
        lm_run_options o = small_options(&r, "cpu");
        assert_ok(file_write(r.data, ids, sizeof ids, &d), d);
        o.steps = 4, o.seq = T, o.validation = -1, o.pipeline = "resident", o.compact_vocab = compact;
        run(&r, &o, family[f].name); /* gains and biases that are not those of the start */
        snprintf(model, sizeof model, "%s/trained", r.dir);
        snprintf(what, sizeof what, "%s/step-00000004", r.save);
        assert_int_equal(rename(what, model), 0);
        snprintf(grads, sizeof grads, "%s/g.safetensors", r.dir);
        assert_ok(lm_grad(
                      &(lm_grad_options){
                          .model = model, .engine = "cpu", .tokens = tokens[0], .batch = 2, .seq = T, .out = grads },
                      &q, &d),
                  d);
        safetensors *g = tensors_of(r.dir, "g.safetensors"), *before = tensors_of(model, "model.safetensors");
        assert_int_equal(safetensors_count(g), safetensors_count(before));
        o.model = model, o.steps = 1, o.optimizer = "sgd", o.lr = 1, o.schedule = "constant", o.warmup = -1,
        o.decay = -1, o.clip = -1;
        for (size_t i = 0; i < COUNT(engines) * COUNT(ways); i++) {
            o.engine = engines[i / COUNT(ways)], o.pipeline = ways[i % COUNT(ways)];
            run(&r, &o, family[f].name);
            safetensors *after = tensors_of(r.save, "step-00000001/model.safetensors");
            snprintf(what, sizeof what, "%s%s, %s by %s", family[f].name, compact ? ", of some ids" : "", o.engine,
                     o.pipeline);
            if (i == 0 && !(fabs(r.loss[0] - q.loss) < 1e-5))
                fail_msg("%s: loss %.7f, that of the gradients is %.7f", what, r.loss[0], q.loss);
            for (size_t k = 0; k < safetensors_count(before); k++) {
                const safetensor *t = safetensors_at(before, k);
                bool cpu = i < COUNT(ways);
                compare(safetensors_find(g, t->name), t, safetensors_find(after, t->name), norm_of(g),
                        cpu ? 1e-5 : 1e-3, cpu ? 1e-3 : 2e-2, what);
            }
            safetensors_close(after);
        }
        safetensors_close(g), safetensors_close(before);
        if (compact) { /* 47 does not occur */
            tokens[1][3] = 47;
            assert_int_equal(lm_grad(&(lm_grad_options){ .model = model, .engine = "cpu", .tokens = tokens[0],
                                                         .batch = 2, .seq = T, .out = grads }, &q, &d), AN_INPUT);
            assert_true(strstr(d.msg, "token 47 at position 12") && strstr(d.msg, "none of them"));
        }
        small_end(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(one_curve), cmocka_unit_test(the_file_moves_by_its_gradient) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
