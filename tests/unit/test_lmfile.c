/* Models from files: configurations there and back, fields that are refused, which tensor is which, what a bad file
 * is told, forms. */
#include <math.h>

#include "lm/generate.h"
#include "lm/lm_int.h"
#include "lm_t.h"

/* ---- configurations ---- */

static void read_ok(const char *text, model_config *c, lm_generation *g)
{
    diag d = { 0 };
    assert_ok(lm_config_read("config.json", text, strlen(text), c, g, &d), d);
}

static void every_family(void **state)
{
    (void)state;
    model_config c;
    lm_generation g;
    read_ok("{\"model_type\":\"llama\"," LLAMA_JSON
            ",\"bos_token_id\":1,\"eos_token_id\":[2,3],\"torch_dtype\":\"bfloat16\"}",
            &c, &g);
    assert_true(c.dim == 8 && c.hidden == 12 && c.n_heads == 4 && c.n_kv_heads == 2 && c.head_dim == 2 &&
                c.context == 64 && c.vocab == 10);
    assert_true(c.norm == MODEL_NORM_RMS && c.act == MODEL_ACT_SWIGLU && c.rope == MODEL_ROPE_HALF && !c.bias &&
                !c.bias_qkv && !c.tied && !c.window);
    assert_true(c.rope_theta == 1e4 && c.norm_eps == 1e-5 && c.scaling.kind == MODEL_SCALE_NONE);
    assert_true(g.bos == 1 && g.n_eos == 2 && g.eos[1] == 3 && g.pad == -1);

    read_ok("{\"model_type\":\"llama\"," LLAMA_JSON
            ",\"attention_bias\":true,\"mlp_bias\":true,\"tie_word_embeddings\":true,\"head_dim\":6}",
            &c, &g);
    assert_true(c.bias_qkv && c.bias_o && c.bias_mlp && c.tied && c.head_dim == 6 && g.bos == -1 && g.n_eos == 0);

    read_ok("{\"model_type\":\"mistral\"," LLAMA_JSON ",\"sliding_window\":32}", &c, &g);
    assert_int_equal(c.window, 32);
    read_ok("{\"model_type\":\"mistral\"," LLAMA_JSON ",\"sliding_window\":null}", &c, &g);
    assert_int_equal(c.window, 0);
    read_ok("{\"model_type\":\"mistral\"," LLAMA_JSON "}", &c, &g); /* left out, the family means 4096 */
    assert_int_equal(c.window, 4096);

    read_ok("{\"model_type\":\"qwen2\"," LLAMA_JSON
            ",\"sliding_window\":32,\"use_sliding_window\":false,\"max_window_layers\":1}",
            &c, &g);
    assert_true(c.bias_qkv && !c.bias_o && !c.bias_mlp && !c.window && !c.qk_norm);
    read_ok("{\"model_type\":\"qwen2\"," LLAMA_JSON
            ",\"sliding_window\":32,\"use_sliding_window\":true,\"max_window_layers\":0}",
            &c, &g);
    assert_int_equal(c.window, 32);
    read_ok("{\"model_type\":\"qwen2\"," LLAMA_JSON
            ",\"sliding_window\":32,\"use_sliding_window\":true,\"max_window_layers\":1}",
            &c, &g);
    assert_int_equal(c.window, 0);

    read_ok("{\"model_type\":\"qwen3\"," LLAMA_JSON ",\"rope_theta\":1000000,\"attention_bias\":false}", &c, &g);
    assert_true(c.qk_norm && c.head_dim == 128 && c.rope_theta == 1e6 && !c.bias_qkv);

    read_ok("{" GPT2_JSON ",\"bos_token_id\":9,\"eos_token_id\":9}", &c, &g);
    assert_true(c.norm == MODEL_NORM_LAYER && c.act == MODEL_ACT_GELU && c.rope == MODEL_ROPE_NONE && c.bias &&
                c.tied && c.hidden == 32 && c.head_dim == 4);

    read_ok("{\"model_type\":\"llama\"," LLAMA_JSON
            ",\"rope_theta\":500000.0,\"rope_scaling\":{\"factor\":8.0,\"low_freq_factor\":1.0,"
            "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\"}}",
            &c, &g);
    assert_true(c.scaling.kind == MODEL_SCALE_LLAMA3 && c.scaling.factor == 8 && c.scaling.low == 1 &&
                c.scaling.high == 4 && c.scaling.original == 8192);
    read_ok("{\"model_type\":\"llama\"," LLAMA_JSON ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}}", &c, &g);
    assert_true(c.scaling.kind == MODEL_SCALE_LINEAR && c.scaling.factor == 4);
    read_ok("{\"model_type\":\"qwen2\"," LLAMA_JSON
            ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":32768}}",
            &c, &g);
    assert_true(c.scaling.kind == MODEL_SCALE_YARN && c.scaling.low == 1 && c.scaling.high == 32 &&
                c.scaling.attn == 0);
    read_ok("{\"model_type\":\"llama\"," LLAMA_JSON
            ",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":7000}}",
            &c, &g);
    assert_true(c.scaling.kind == MODEL_SCALE_NONE && c.rope_theta == 7000);
}

/* Whole files as they were published, field for field. */
#define GEMMA_JSON "\"hidden_size\":8,\"intermediate_size\":12,\"num_hidden_layers\":1,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":2," \
                   "\"vocab_size\":10,\"max_position_embeddings\":64"
static void published_configurations(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t params; /* in thousands, rounded down; the models' own pages say so */
    } rows[] = {
        { "{\"activation_function\":\"gelu_new\",\"architectures\":[\"GPT2LMHeadModel\"],\"attn_pdrop\":0.1,\"bos_token_id\":50256,\"embd_pdrop\":0.1,"
          "\"eos_token_id\":50256,\"initializer_range\":0.02,\"layer_norm_epsilon\":1e-05,\"model_type\":\"gpt2\",\"n_ctx\":1024,\"n_embd\":768,\"n_head\":12,"
          "\"n_layer\":12,\"n_positions\":1024,\"resid_pdrop\":0.1,\"summary_activation\":null,\"summary_first_dropout\":0.1,\"summary_proj_to_labels\":true,"
          "\"summary_type\":\"cls_index\",\"summary_use_proj\":true,\"task_specific_params\":{\"text-generation\":{\"do_sample\":true,\"max_length\":50}},\"vocab_size\":50257}",
          124439 },
        { "{\"architectures\":[\"Qwen3ForCausalLM\"],\"attention_bias\":false,\"attention_dropout\":0.0,\"bos_token_id\":151643,\"eos_token_id\":151645,\"head_dim\":128,"
          "\"hidden_act\":\"silu\",\"hidden_size\":1024,\"initializer_range\":0.02,\"intermediate_size\":3072,\"max_position_embeddings\":40960,\"max_window_layers\":28,"
          "\"model_type\":\"qwen3\",\"num_attention_heads\":16,\"num_hidden_layers\":28,\"num_key_value_heads\":8,\"rms_norm_eps\":1e-06,\"rope_scaling\":null,"
          "\"rope_theta\":1000000,\"sliding_window\":null,\"tie_word_embeddings\":true,\"torch_dtype\":\"bfloat16\",\"transformers_version\":\"4.51.0\",\"use_cache\":true,"
          "\"use_sliding_window\":false,\"vocab_size\":151936}",
          596049 },
        { "{\"architectures\":[\"Qwen2ForCausalLM\"],\"attention_dropout\":0.0,\"bos_token_id\":151643,\"eos_token_id\":151643,\"hidden_act\":\"silu\",\"hidden_size\":896,"
          "\"initializer_range\":0.02,\"intermediate_size\":4864,\"max_position_embeddings\":32768,\"max_window_layers\":24,\"model_type\":\"qwen2\","
          "\"num_attention_heads\":14,\"num_hidden_layers\":24,\"num_key_value_heads\":2,\"rms_norm_eps\":1e-06,\"rope_theta\":1000000.0,\"sliding_window\":32768,"
          "\"tie_word_embeddings\":true,\"torch_dtype\":\"bfloat16\",\"use_cache\":true,\"use_mrope\":false,\"use_sliding_window\":false,\"vocab_size\":151936}",
          494032 },
        { "{\"architectures\":[\"LlamaForCausalLM\"],\"attention_bias\":false,\"attention_dropout\":0.0,\"bos_token_id\":128000,\"eos_token_id\":128001,\"head_dim\":64,"
          "\"hidden_act\":\"silu\",\"hidden_size\":2048,\"initializer_range\":0.02,\"intermediate_size\":8192,\"max_position_embeddings\":131072,\"mlp_bias\":false,"
          "\"model_type\":\"llama\",\"num_attention_heads\":32,\"num_hidden_layers\":16,\"num_key_value_heads\":8,\"pretraining_tp\":1,\"rms_norm_eps\":1e-05,"
          "\"rope_scaling\":{\"factor\":32.0,\"high_freq_factor\":4.0,\"low_freq_factor\":1.0,\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\"},"
          "\"rope_theta\":500000.0,\"tie_word_embeddings\":true,\"torch_dtype\":\"bfloat16\",\"use_cache\":true,\"vocab_size\":128256}",
          1235814 },
        { "{\"architectures\":[\"MistralForCausalLM\"],\"bos_token_id\":1,\"eos_token_id\":2,\"hidden_act\":\"silu\",\"hidden_size\":4096,\"initializer_range\":0.02,"
          "\"intermediate_size\":14336,\"max_position_embeddings\":32768,\"model_type\":\"mistral\",\"num_attention_heads\":32,\"num_hidden_layers\":32,"
          "\"num_key_value_heads\":8,\"rms_norm_eps\":1e-05,\"rope_theta\":10000.0,\"sliding_window\":4096,\"tie_word_embeddings\":false,\"vocab_size\":32000}",
          7241732 },
        { "{\"architectures\":[\"GemmaForCausalLM\"],\"attention_bias\":false,\"attention_dropout\":0.0,\"bos_token_id\":2,\"eos_token_id\":1,\"head_dim\":256,\"hidden_act\":\"gelu\","
          "\"hidden_activation\":null,\"hidden_size\":2048,\"initializer_range\":0.02,\"intermediate_size\":16384,\"max_position_embeddings\":8192,\"model_type\":\"gemma\","
          "\"num_attention_heads\":8,\"num_hidden_layers\":18,\"num_key_value_heads\":1,\"pad_token_id\":0,\"rms_norm_eps\":1e-06,\"rope_scaling\":null,\"rope_theta\":10000.0,"
          "\"torch_dtype\":\"bfloat16\",\"transformers_version\":\"4.38.0.dev0\",\"use_cache\":true,\"vocab_size\":256000}",
          2506172 },
        { "{\"architectures\":[\"Gemma2ForCausalLM\"],\"attention_bias\":false,\"attention_dropout\":0.0,\"attn_logit_softcapping\":50.0,\"bos_token_id\":2,\"cache_implementation\":\"hybrid\","
          "\"eos_token_id\":1,\"final_logit_softcapping\":30.0,\"head_dim\":256,\"hidden_act\":\"gelu_pytorch_tanh\",\"hidden_activation\":\"gelu_pytorch_tanh\",\"hidden_size\":2304,"
          "\"initializer_range\":0.02,\"intermediate_size\":9216,\"max_position_embeddings\":8192,\"model_type\":\"gemma2\",\"num_attention_heads\":8,\"num_hidden_layers\":26,"
          "\"num_key_value_heads\":4,\"pad_token_id\":0,\"query_pre_attn_scalar\":256,\"rms_norm_eps\":1e-06,\"rope_theta\":10000.0,\"sliding_window\":4096,\"torch_dtype\":\"float32\","
          "\"transformers_version\":\"4.42.4\",\"use_cache\":true,\"vocab_size\":256000}",
          2614341 },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        model_config c;
        lm_generation g;
        read_ok(rows[i].text, &c, &g);
        if (model_params(&c) / 1000 != rows[i].params)
            fail_msg("row %zu: %lld parameters, wanted %lld thousand", i, (long long)model_params(&c),
                     (long long)rows[i].params);
    }
}

/* What the families' own classes take where a field is not there, and where it is null. */
static void absent_fields(void **state)
{
    (void)state;
    static const struct {
        const char *family, *fields;
        int64_t heads, kv_heads, window;
    } rows[] = {
        { "llama", "", 64, 64, 0 },
        { "mistral", "", 64, 8, 4096 },
        { "mistral", ",\"num_key_value_heads\":null,\"sliding_window\":null", 6, 6, 0 },
        { "qwen2", "", 64, 32, 0 },
        { "qwen2", ",\"num_key_value_heads\":null", 6, 6, 0 },
        { "qwen2", ",\"use_sliding_window\":true,\"max_window_layers\":0", 64, 32, 4096 },
        { "qwen2", ",\"use_sliding_window\":true,\"max_window_layers\":0,\"sliding_window\":null", 64, 32, 0 },
        { "qwen2", ",\"use_sliding_window\":true", 64, 32, 0 }, /* the first 28 layers have none */
        { "qwen3", ",\"use_sliding_window\":true,\"max_window_layers\":0", 64, 32, 4096 },
        { "gemma", "", 32, 16, 0 },
        { "gemma2", "", 8, 4, 4096 },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        model_config c;
        lm_generation g;
        char text[600];
        snprintf(text, sizeof text, "{\"model_type\":\"%s\",\"hidden_size\":768,\"intermediate_size\":12,\"num_hidden_layers\":1,\"num_attention_heads\":%d,\"vocab_size\":10,"
                 "\"max_position_embeddings\":8192,\"head_dim\":4%s}", rows[i].family, (int)rows[i].heads, rows[i].fields);
        read_ok(text, &c, &g);
        if (c.n_kv_heads != rows[i].kv_heads || c.window != rows[i].window)
            fail_msg("row %zu: %lld key and value heads, a window of %lld", i, (long long)c.n_kv_heads,
                     (long long)c.window);
    }
}

static void configurations_there_and_back(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "{\"model_type\":\"llama\"," LLAMA_JSON ",\"bos_token_id\":1,\"eos_token_id\":[2,3]}",
        "{\"model_type\":\"llama\"," LLAMA_JSON ",\"attention_bias\":true,\"mlp_bias\":true,\"tie_word_embeddings\":true}",
        "{\"model_type\":\"llama\"," LLAMA_JSON ",\"rope_scaling\":{\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
        "\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\"}}",
        "{\"model_type\":\"mistral\"," LLAMA_JSON ",\"sliding_window\":32,\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.5}}",
        "{\"model_type\":\"qwen2\"," LLAMA_JSON ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"attention_factor\":1.25}}",
        "{\"model_type\":\"qwen3\"," LLAMA_JSON ",\"use_sliding_window\":true,\"sliding_window\":16,\"max_window_layers\":0,\"attention_bias\":true}",
        "{" GPT2_JSON ",\"tie_word_embeddings\":false,\"pad_token_id\":3}",
        "{\"model_type\":\"gemma\"," GEMMA_JSON ",\"final_logit_softcapping\":20.0}",
        "{\"model_type\":\"gemma2\"," GEMMA_JSON "}", /* both caps by default, queries by 256 */
        "{\"model_type\":\"gemma2\"," GEMMA_JSON ",\"attn_logit_softcapping\":null,\"final_logit_softcapping\":null,\"query_pre_attn_scalar\":2,\"sliding_window\":8,"
        "\"layer_types\":[\"sliding_attention\"]}",
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        model_config a, b;
        lm_generation g, h;
        strbuf out = { 0 };
        diag d = { 0 };
        read_ok(rows[i], &a, &g);
        assert_ok(lm_config_json(&a, &g, &out, &d), d);
        read_ok(out.at, &b, &h);
        strbuf again = { 0 };
        assert_ok(lm_config_json(&b, &h, &again, &d), d);
        assert_string_equal(out.at, again.at);
        assert_true(a.dim == b.dim && a.window == b.window && a.scaling.kind == b.scaling.kind &&
                    a.scaling.factor == b.scaling.factor);
        assert_true(a.scaling.attn == b.scaling.attn && a.bias_qkv == b.bias_qkv && a.bias_o == b.bias_o &&
                    a.bias == b.bias && a.tied == b.tied);
        assert_true(a.act == b.act && a.softcap == b.softcap && a.attn_softcap == b.attn_softcap &&
                    a.query_dim == b.query_dim && a.embed_scale == b.embed_scale && a.post_norm == b.post_norm);
        assert_true(a.window_every == b.window_every && g.bos == h.bos && g.n_eos == h.n_eos && g.pad == h.pad &&
                    a.qk_norm == b.qk_norm && a.norm_eps == b.norm_eps);
        sb_free(&out);
        sb_free(&again);
    }
    /* what no family has is refused with the reason */
    model_config c = *model_preset_find("gpt2");
    strbuf out = { 0 };
    diag d = { 0 };
    c.n_kv_heads = 4;
    assert_int_equal(lm_config_json(&c, NULL, &out, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "grouped heads"));
    sb_free(&out);
}

static void refused_fields(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want[2];
    } rows[] = {
        { "{\"model_type\":\"llama\"," LLAMA_JSON ",\"qk_layernorm\":true}", { "qk_layernorm", "true" } },
        { "{\"model_type\":\"llama\"," LLAMA_JSON ",\"sliding_window\":4096}", { "sliding_window", "not one of a llama" } },
        { "{\"model_type\":\"llama\"," LLAMA_JSON ",\"final_logit_softcapping\":0.5}", { "softcap", "0.5" } },
        { "{\"model_type\":\"llama\"," LLAMA_JSON ",\"attn_logit_softcapping\":30.0}", { "attn_logit_softcapping", "30.0" } },
        { "{\"model_type\":\"llama\"," LLAMA_JSON ",\"partial_rotary_factor\":0.5}", { "partial_rotary_factor", "only 1" } },
        { "{\"model_type\":\"llama\"," LLAMA_JSON ",\"quantization_config\":{\"bits\":4}}", { "quantization_config", "bits" } },
        { "{\"model_type\":\"llama\"," LLAMA_JSON ",\"auto_map\":{\"A\":\"b\"}}", { "auto_map", "only null" } },
        { "{\"model_type\":\"llama\"," LLAMA_JSON ",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}}", { "rope_type", "dynamic" } },
        { "{\"model_type\":\"llama\"," LLAMA_JSON ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,\"mscale\":1}}", { "mscale", "not known" } },
        { "{\"model_type\":\"llama\"," LLAMA_JSON ",\"rope_scaling\":{\"type\":\"llama3\",\"factor\":2}}", { "original_max_position_embeddings", "missing" } },
        { "{\"model_type\":\"llama\"," LLAMA_JSON ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":0.5}}", { "scaling.factor", "0.5" } },
        { "{\"model_type\":\"llama\"," LLAMA_JSON ",\"rope_scaling\":[1]}", { "rope_scaling", "[1]" } },
        { "{\"model_type\":\"llama\"," LLAMA_JSON ",\"architectures\":[\"LlamaForSequenceClassification\"]}", { "LlamaForSequenceClassification", "" } },
        { "{\"model_type\":\"gemma3_text\"," LLAMA_JSON "}", { "gemma3_text", "gemma2 and gpt2 are supported" } },
        { "{\"model_type\":\"gemma2\"," LLAMA_JSON "}", { "hidden_act", "silu" } },
        { "{\"model_type\":\"gemma\"," GEMMA_JSON ",\"hidden_activation\":\"gelu\"}", { "hidden_activation", "\"gelu\"" } },
        { "{\"model_type\":\"gemma\"," GEMMA_JSON ",\"attn_logit_softcapping\":50.0}", { "attn_logit_softcapping", "not one of a gemma model" } },
        { "{\"model_type\":\"gemma\"," GEMMA_JSON ",\"attention_bias\":true}", { "attention_bias", "only false" } },
        { "{\"model_type\":\"gemma2\"," GEMMA_JSON ",\"layer_types\":[\"full_attention\"]}", { "layer_types", "full_attention" } },
        { "{\"model_type\":\"gemma2\"," GEMMA_JSON ",\"layer_types\":[\"sliding_attention\",\"full_attention\"]}", { "lists 2 layers", "1" } },
        { "{\"model_type\":\"gemma2\"," GEMMA_JSON ",\"attn_logit_softcapping\":0.5}", { "attn_softcap", "0.5" } },
        { "{\"model_type\":\"gemma2\"," GEMMA_JSON ",\"sliding_window\":0}", { "sliding_window", "0" } },
        { "{\"model_type\":\"llama\"," LLAMA_JSON ",\"query_pre_attn_scalar\":256}", { "query_pre_attn_scalar", "not one of a llama" } },
        { "{\"model_type\":7}", { "model_type", "" } },
        { "{}", { "model_type", "" } },
        { "{\"model_type\":\"llama\",\"hidden_size\":8}", { "missing", "" } },
        { "{\"model_type\":\"llama\"," LLAMA_JSON ",\"head_dim\":\"x\"}", { "head_dim", "\"x\"" } },
        { "{\"model_type\":\"llama\"," LLAMA_JSON ",\"head_dim\":-2}", { "head_dim", "-2" } },
        { "{\"model_type\":\"llama\"," LLAMA_JSON ",\"head_dim\":3}", { "head_dim", "3" } },
        { "{\"model_type\":\"llama\"," LLAMA_JSON ",\"tie_word_embeddings\":1}", { "tie_word_embeddings", "1" } },
        { "{\"model_type\":\"llama\"," LLAMA_JSON ",\"eos_token_id\":[1,2,3,4,5,6,7,8,9]}", { "eos_token_id", "9 tokens" } },
        { "{\"model_type\":\"llama\"," LLAMA_JSON ",\"bos_token_id\":\"<s>\"}", { "bos_token_id", "<s>" } },
        { "{\"model_type\":\"llama\"," LLAMA_JSON ",\"eos_token_id\":10}", { "eos_token_id", "10, the vocabulary has 10 entries" } },
        { "{\"model_type\":\"llama\"," LLAMA_JSON ",\"num_beams\":4}", { "num_beams", "only 1" } },
        { "{\"model_type\":\"llama\"," LLAMA_JSON ",\"do_sample\":1}", { "do_sample", "1, wanted true or false" } },
        { "{\"model_type\":\"qwen2\"," LLAMA_JSON ",\"layer_types\":[\"linear_attention\"]}", { "layer_types", "linear_attention" } },
        { "{\"model_type\":\"qwen2\",\"hidden_size\":8,\"intermediate_size\":12,\"num_hidden_layers\":4,\"num_attention_heads\":4,\"num_key_value_heads\":4,\"vocab_size\":10,"
          "\"max_position_embeddings\":64,\"use_sliding_window\":true,\"sliding_window\":32,\"max_window_layers\":2}", { "some of the 4 layers", "max_window_layers" } },
        { "{\"model_type\":\"qwen2\",\"hidden_size\":8,\"intermediate_size\":12,\"num_hidden_layers\":4,\"num_attention_heads\":4,\"vocab_size\":10,\"max_position_embeddings\":64}",
          { "\"num_key_value_heads\" is missing", "32 in a qwen2 model" } },
        { "{" GPT2_JSON ",\"scale_attn_by_inverse_layer_idx\":true}", { "scale_attn_by_inverse_layer_idx", "only false" } },
        { "{" GPT2_JSON ",\"scale_attn_weights\":false}", { "scale_attn_weights", "only true" } },
        { "{" GPT2_JSON ",\"num_key_value_heads\":1}", { "num_key_value_heads", "gpt2" } },
        { "{\"model_type\":\"gpt2\",\"n_embd\":8,\"n_head\":3,\"n_layer\":1,\"vocab_size\":9}", { "n_head 3", "8" } },
        { "{\"model_type\":\"gpt2\",\"n_embd\":8,\"n_head\":2,\"n_layer\":1,\"vocab_size\":9,\"activation_function\":\"relu\"}", { "activation_function", "relu" } },
        { "{\"model_type\":\"gpt2\",\"n_embd\":9223372036854775807,\"n_head\":1,\"n_layer\":1,\"vocab_size\":9}", { "dim", "" } },
        { "{\"model_type\":\"llama\",\"model_type\":\"llama\"}", { "duplicate", "" } },
        { "not json", { "not JSON", "" } },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        model_config c;
        lm_generation g;
        diag d = { 0 };
        an_status st = lm_config_read("the/config.json", rows[i].text, strlen(rows[i].text), &c, &g, &d);
        if (st != AN_INPUT || !strstr(d.msg, rows[i].want[0]) || !strstr(d.msg, rows[i].want[1]) ||
            !strstr(d.msg, "the/config.json"))
            fail_msg("row %zu: status %d: %s", i, (int)st, d.msg);
    }
}

/* Angles per position against numbers worked out elsewhere from the published formulas. */
static void rope_scaling(void **state)
{
    (void)state;
    static const int at[6] = { 0, 20, 29, 32, 35, 63 };
    static const struct {
        double theta;
        model_scaling s;
        double want[6], scale;
    } rows[] = {
        { 5e5, { .kind = MODEL_SCALE_NONE }, { 1.0, 0.016560440081, 0.00261609925293, 0.00141421356237, 0.000764496988317, 2.45514079113e-06 }, 1 },
        { 1e4, { .kind = MODEL_SCALE_LINEAR, .factor = 4 }, { 0.25, 0.0140585331298, 0.00384981631515, 0.0025, 0.00162345407894, 2.88695496172e-05 }, 1 },
        { 5e5, { .kind = MODEL_SCALE_LLAMA3, .factor = 8, .low = 1, .high = 4, .original = 8192 },
          { 1.0, 0.016560440081, 0.0021665707635, 0.000524846160993, 9.55621235396e-05, 3.06892598891e-07 }, 1 },
        { 1e6, { .kind = MODEL_SCALE_YARN, .factor = 4, .low = 1, .high = 32, .original = 32768 },
          { 1.0, 0.0133352143216, 0.0014051124816, 0.000602941176471, 0.000246258406909, 3.10234440188e-07 }, 1.138629436111989 },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        model_config c = { .head_dim = 128, .rope_theta = rows[i].theta, .scaling = rows[i].s };
        double step[64], scale;
        model_rope_steps(&c, step, &scale);
        assert_true(fabs(scale - rows[i].scale) < 1e-12);
        for (int k = 0; k < 6; k++)
            if (!(fabs(step[at[k]] / rows[i].want[k] - 1) < 1e-10))
                fail_msg("row %zu, pair %d: %.12g, wanted %.12g", i, at[k], step[at[k]], rows[i].want[k]);
    }
}

/* ---- which tensor is which ---- */

static void make_llama(const char *folder, const char *strip, dtype dt)
{
    diag d = { 0 };
    char path[400];
    assert_ok(dir_make(folder, &d), d);
    snprintf(path, sizeof path, "%s/config.json", folder);
    write_text(path, "{\"model_type\":\"llama\"," LLAMA_JSON "}");
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    write_tensors(path, llama_tensors, strip, dt, NULL, NULL, NULL);
}

static void llama_folder(void **state)
{
    (void)state;
    static const struct {
        model_weight_id id;
        int layer;
        const char *name;
    } rows[] = {
        { MW_EMBED, -1, "model.embed_tokens.weight" },           { MW_NORM1, 0, "model.layers.0.input_layernorm.weight" },
        { MW_WQ, 0, "model.layers.0.self_attn.q_proj.weight" },  { MW_WK, 0, "model.layers.0.self_attn.k_proj.weight" },
        { MW_WV, 0, "model.layers.0.self_attn.v_proj.weight" },  { MW_WO, 0, "model.layers.0.self_attn.o_proj.weight" },
        { MW_NORM2, 0, "model.layers.0.post_attention_layernorm.weight" }, { MW_W1, 0, "model.layers.0.mlp.gate_proj.weight" },
        { MW_W3, 0, "model.layers.0.mlp.up_proj.weight" },       { MW_W2, 0, "model.layers.0.mlp.down_proj.weight" },
        { MW_NORM_F, -1, "model.norm.weight" },                  { MW_HEAD, -1, "lm_head.weight" },
    };
    static const dtype types[] = { DT_F32, DT_F16, DT_BF16, DT_F64 };
    for (size_t t = 0; t < COUNT(types); t++) {
        make_llama(in_scratch("llama"), t == 1 ? "model." : NULL, types[t]);
        diag d = { 0 };
        lm_model *m;
        assert_ok(lm_open(in_scratch("llama"), NULL, &m, &d), d);
        assert_int_equal(lm_origin_of(m), LM_FROM_HF);
        assert_string_equal(lm_family(m), "llama");
        for (size_t i = 0; i < COUNT(rows); i++) {
            lm_tensor info;
            float *x = all_of(m, rows[i].id, rows[i].layer, &info);
            for (int64_t k = 0; k < info.rows * info.cols; k++) {
                float want = (float)dtype_round(types[t], (double)mark(rows[i].name, k));
                if (x[k] != want)
                    fail_msg("%s element %lld: %g, wanted %g", rows[i].name, (long long)k, (double)x[k], (double)want);
            }
            free(x);
        }
        lm_tensor info;
        assert_false(lm_tensor_info(m, MW_BQ, 0, &info));
        assert_false(lm_tensor_info(m, MW_WQ, 1, &info));
        assert_false(lm_tensor_info(m, MW_WQ, -1, &info));
        lm_close(m);
    }
}

static void gpt2_folder(void **state)
{
    (void)state;
    diag d = { 0 };
    assert_ok(dir_make(in_scratch("gpt2"), &d), d);
    write_text(in_scratch("gpt2/config.json"), "{" GPT2_JSON "}");
    write_text(in_scratch("gpt2/generation_config.json"),
               "{\"bos_token_id\":7,\"eos_token_id\":8,\"temperature\":0.5,\"top_k\":40,\"do_sample\":true}");
    write_tensors(in_scratch("gpt2/model.safetensors"), gpt2_tensors, NULL, DT_F32, NULL, NULL, NULL);
    lm_model *m;
    assert_ok(lm_open(in_scratch("gpt2"), NULL, &m, &d), d);
    const lm_generation *g = lm_generation_of(m);
    assert_true(g->bos == 7 && g->n_eos == 1 && g->eos[0] == 8 && g->temperature == 0.5 && g->top_k == 40 &&
                g->sample && isnan(g->top_p));
    lm_tensor t;
    /* queries, keys and values: columns 0.., 8.., 16.. of (in, 3 * out) */
    for (int third = 0; third < 3; third++) {
        float *x = all_of(m, (model_weight_id)(MW_WQ + third), 0, &t),
              *b = all_of(m, (model_weight_id)(MW_BQ + third), 0, &t);
        for (int r = 0; r < 8; r++) {
            for (int c = 0; c < 8; c++)
                assert_true(x[r * 8 + c] == mark("transformer.h.0.attn.c_attn.weight", c * 24 + third * 8 + r));
            assert_true(b[r] == mark("transformer.h.0.attn.c_attn.bias", third * 8 + r));
        }
        free(x);
        free(b);
    }
    float *fc = all_of(m, MW_W1, 0, &t);
    assert_true(t.rows == 32 && t.cols == 8);
    for (int r = 0; r < 32; r++)
        for (int c = 0; c < 8; c++) assert_true(fc[r * 8 + c] == mark("transformer.h.0.mlp.c_fc.weight", c * 32 + r));
    free(fc);
    float *pos = all_of(m, MW_POS, -1, &t);
    assert_true(t.rows == 16 && pos[5] == mark("transformer.wpe.weight", 5));
    free(pos);

    /* from a turned file: whole, and a run of rows */
    const void *whole;
    uint16_t run[16 * 8];
    assert_ok(lm_dense(m, MW_W1, 0, DT_F16, &whole, &d), d);
    assert_ok(lm_rows(m, MW_W1, 0, 8, 16, DT_F16, run, &d), d);
    for (int64_t r = 0; r < 32; r++)
        for (int64_t c = 0; c < 8; c++) {
            const float want = mark("transformer.h.0.mlp.c_fc.weight", c * 32 + r);
            assert_true((float)dtype_load(DT_F16, whole, r * 8 + c) == want);
            if (r >= 8 && r < 24) assert_true((float)dtype_load(DT_F16, run, (r - 8) * 8 + c) == want);
        }
    assert_false(lm_tensor_info(m, MW_W3, 0, &t));
    lm_close(m);
}

/* A folder the other way round: the real ones, against a direct reading of their tensors. */
static void real_folders(void **state)
{
    (void)state;
    static const struct {
        const char *folder, *file, *attn;
        int64_t vocab;
    } rows[] = { { "../shared/data/gpt2-hf", "../shared/data/gpt2-hf/model.safetensors", "transformer.h.0.attn.c_attn.weight", 50257 },
                 { "../shared/data/gpt2-tiny", "../shared/data/gpt2-tiny/model.safetensors", "h.0.attn.c_attn.weight", 21 } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        if (access(rows[i].file, R_OK)) skip();
        diag d = { 0 };
        lm_model *m;
        safetensors *f;
        lm_tensor t;
        assert_ok(lm_open(rows[i].folder, NULL, &m, &d), d);
        assert_ok(safetensors_open(rows[i].file, &f, &d), d);
        assert_int_equal(lm_config(m)->vocab, rows[i].vocab);
        const safetensor *s = safetensors_find(f, rows[i].attn);
        for (int third = 0; third < 3; third++) {
            float *x = all_of(m, (model_weight_id)(MW_WQ + third), 0, &t);
            for (int r = 0; r < 2; r++)
                for (int c = 0; c < 2; c++)
                    assert_true(x[r * 2 + c] == (float)dtype_load(s->dt, s->data, c * 6 + third * 2 + r));
            free(x);
        }
        safetensors_close(f);
        lm_close(m);
    }
}

/* ---- what a bad file is told ---- */

static void bad_folders(void **state)
{
    (void)state;
    static const file_tensor extra = { "model.layers.0.self_attn.q_norm.weight", 1, { 2, 0 } },
                             layer1 = { "model.layers.1.input_layernorm.weight", 1, { 8, 0 } };
    static const struct {
        const char *config, *without, *longer;
        const file_tensor *more;
        dtype dt;
        const char *want[2];
    } rows[] = {
        { "{\"model_type\":\"llama\"," LLAMA_JSON "}", "model.layers.0.mlp.up_proj.weight", NULL, NULL, DT_F32, { "model.layers.0.mlp.up_proj.weight", "missing" } },
        { "{\"model_type\":\"llama\"," LLAMA_JSON "}", "lm_head.weight", NULL, NULL, DT_F32, { "lm_head.weight", "missing" } },
        { "{\"model_type\":\"llama\"," LLAMA_JSON "}", NULL, "model.embed_tokens.weight", NULL, DT_F32, { "[11, 8]", "[10, 8]" } },
        { "{\"model_type\":\"llama\"," LLAMA_JSON "}", NULL, "model.norm.weight", NULL, DT_F32, { "[9]", "[8]" } },
        { "{\"model_type\":\"llama\"," LLAMA_JSON "}", NULL, NULL, &extra, DT_F32, { "q_norm", "is not one this configuration" } },
        { "{\"model_type\":\"llama\"," LLAMA_JSON "}", NULL, NULL, &layer1, DT_F32, { "layers.1", "is not one" } },
        { "{\"model_type\":\"llama\"," LLAMA_JSON ",\"tie_word_embeddings\":true}", NULL, NULL, NULL, DT_F32, { "lm_head.weight differs", "tie_word_embeddings" } },
        { "{\"model_type\":\"llama\"," LLAMA_JSON ",\"attention_bias\":true}", NULL, NULL, NULL, DT_F32, { "q_proj.bias", "missing" } },
        { "{\"model_type\":\"llama\"," LLAMA_JSON "}", NULL, NULL, NULL, DT_I32, { "I32", "floating-point" } },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        diag d = { 0 };
        assert_ok(dir_make(in_scratch("bad"), &d), d);
        write_text(in_scratch("bad/config.json"), rows[i].config);
        write_tensors(in_scratch("bad/model.safetensors"), llama_tensors, NULL, rows[i].dt, rows[i].without,
                      rows[i].longer, rows[i].more);
        lm_model *m;
        an_status st = lm_open(in_scratch("bad"), NULL, &m, &d);
        if (st != AN_INPUT || !strstr(d.msg, rows[i].want[0]) || !strstr(d.msg, rows[i].want[1]) ||
            !strstr(d.msg, "bad") || m)
            fail_msg("row %zu: status %d: %s", i, (int)st, d.msg);
    }
    static const struct {
        const char *path, *text, *want; /* text NULL: not made */
    } files[] = {
        { "absent", NULL, "no such file or folder, and no model preset" },
        { "empty.bin", "", "not a llama2.c file" },
        { "notes.txt", "once upon a time there was a file that is not a model at all", "nor is it GGUF or safetensors" },
        { "cut.gguf", "GGUF", "inside its version" },
        { "named.gguf", "hello", "not a GGUF file" },
        { "named.safetensors", "hello", "not a safetensors file" },
        { "bare.safetensors", "\2\0\0\0\0\0\0\0{}", "not a safetensors" }, /* a C string ends at its first zero */
        { "config.json", "{\"model_type\":\"llama\"}", "missing" },
    };
    for (size_t i = 0; i < COUNT(files); i++) {
        diag d = { 0 };
        lm_model *m;
        if (files[i].text) write_text(in_scratch(files[i].path), files[i].text);
        an_status st = lm_open(in_scratch(files[i].path), NULL, &m, &d);
        if (st != AN_INPUT || !strstr(d.msg, files[i].want) || !strstr(d.msg, files[i].path))
            fail_msg("%s: status %d: %s", files[i].path, (int)st, d.msg);
    }
    diag d = { 0 };
    lm_model *m;
    assert_ok(dir_make(in_scratch("hollow"), &d), d);
    assert_int_equal(lm_open(in_scratch("hollow"), NULL, &m, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "without config.json"));
    d = (diag){ 0 };
    write_text(in_scratch("hollow/config.json"), "{" GPT2_JSON "}");
    assert_int_equal(lm_open(in_scratch("hollow"), NULL, &m, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "model.safetensors.index.json"));
    d = (diag){ 0 };
    assert_int_equal(lm_open("tiny", &(lm_options){ .dt = DT_I8 }, &m, &d), AN_INPUT);
    lm_close(NULL);
}

/* ---- GGUF metadata ---- */

typedef struct {
    const char *key;
    int kind; /* 'u', 'f', 's', 't' (tokens); 0: take the standard value away */
    double x;
    const char *s;
} patch;

static void write_gguf(const char *path, const patch *p, const char *drop, const char *type)
{
    static const patch base[] = { { "general.architecture", 's', 0, "llama" }, { "llama.context_length", 'u', 64, NULL }, { "llama.embedding_length", 'u', 32, NULL },
                                  { "llama.block_count", 'u', 1, NULL }, { "llama.feed_forward_length", 'u', 64, NULL }, { "llama.attention.head_count", 'u', 4, NULL },
                                  { "llama.attention.head_count_kv", 'u', 2, NULL }, { "llama.attention.layer_norm_rms_epsilon", 'f', 1e-5, NULL },
                                  { "llama.rope.dimension_count", 'u', 8, NULL }, { "tokenizer.ggml.bos_token_id", 'u', 1, NULL }, { "tokenizer.ggml.eos_token_id", 'u', 2, NULL } };
    static const file_tensor list[] = { { "token_embd.weight", 2, { 10, 32 } }, { "blk.0.attn_norm.weight", 1, { 32, 0 } }, { "blk.0.attn_q.weight", 2, { 32, 32 } },
                                        { "blk.0.attn_k.weight", 2, { 16, 32 } }, { "blk.0.attn_v.weight", 2, { 16, 32 } }, { "blk.0.attn_output.weight", 2, { 32, 32 } },
                                        { "blk.0.ffn_norm.weight", 1, { 32, 0 } }, { "blk.0.ffn_gate.weight", 2, { 64, 32 } }, { "blk.0.ffn_up.weight", 2, { 64, 32 } },
                                        { "blk.0.ffn_down.weight", 2, { 32, 64 } }, { "output_norm.weight", 1, { 32, 0 } } };
    diag d = { 0 };
    gguf_out *w;
    bool patched = false;
    assert_ok(gguf_create(path, &w, &d), d);
    for (size_t i = 0; i <= COUNT(base); i++) {
        const patch *v = i < COUNT(base) ? &base[i] : patched ? NULL : p;
        if (i < COUNT(base) && p && !strcmp(base[i].key, p->key)) v = p, patched = true;
        if (!v || !v->kind) continue;
        if (v->kind == 'u') assert_ok(gguf_put_u32(w, v->key, (uint32_t)v->x, &d), d);
        if (v->kind == 'f') assert_ok(gguf_put_f32(w, v->key, (float)v->x, &d), d);
        if (v->kind == 's') assert_ok(gguf_put_text(w, v->key, v->s, strlen(v->s), &d), d);
        if (v->kind == 't')
            assert_ok(gguf_put_texts(w, v->key, (const gguf_str[]){ { "a", 1 }, { "b", 1 } }, 2, &d), d);
    }
    const block_format *f = block_by_name(type);
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0, at = 0; i < COUNT(list); i++) {
            const file_tensor *t = &list[i];
            const block_format *as = t->rank > 1 ? f : block_of(BLOCK_F32);
            if (drop && !strcmp(drop, t->name)) continue;
            int64_t n = t->d[0] * (t->rank > 1 ? t->d[1] : 1);
            if (!pass) assert_ok(gguf_declare(w, t->name, as, t->rank, t->d, NULL, &d), d);
            else {
                float x[4096];
                unsigned char b[16384];
                size_t bytes;
                for (int64_t k = 0; k < n; k++) x[k] = mark(t->name, k);
                assert_true(block_bytes(as, n, &bytes));
                block_encode(as, x, b, n);
                assert_ok(gguf_put(w, at, b, bytes, &d), d);
            }
            at++;
        }
    assert_ok(gguf_finish(w, &d), d);
}

/* A single file brings its configuration along. One of another model beside it must not decide what the file's
 * numbers mean. */
static void two_configurations(void **state)
{
    (void)state;
    static const char own[] = "{\"model_type\":\"llama\"," LLAMA_JSON "}";
    static const struct {
        const char *beside, *want; /* NULL: the same model */
    } rows[] = {
        { "{\"model_type\":\"llama\"," LLAMA_JSON "}", NULL },
        { "{\"model_type\":\"mistral\"," LLAMA_JSON ",\"sliding_window\":null,\"eos_token_id\":3,\"torch_dtype\":\"bfloat16\"}", NULL },
        { "{\"model_type\":\"llama\"," LLAMA_JSON ",\"rope_theta\":500000}", "say \"rope_theta\": 10000 where" },
        { "{\"model_type\":\"mistral\"," LLAMA_JSON ",\"sliding_window\":8}", "\"architectures\": [\"LlamaForCausalLM\"]" },
        { "{\"model_type\":\"llama\"," LLAMA_JSON ",\"final_logit_softcapping\":30}", "says \"final_logit_softcapping\": 30" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        diag d = { 0 };
        lm_model *m;
        lm_converted done;
        empty_folder(scratch, 1);
        write_text(in_scratch("seed.json"), own);
        assert_ok(lm_open(in_scratch("seed.json"), NULL, &m, &d), d);
        assert_ok(
            lm_convert(m, in_scratch("m.safetensors"), &(lm_convert_options){ .to = LM_TO_SAFETENSORS }, &done, &d), d);
        lm_close(m);
        write_text(in_scratch("config.json"), rows[i].beside);
        an_status st = lm_open(in_scratch("m.safetensors"), NULL, &m, &d);
        if (st != (rows[i].want ? AN_INPUT : AN_OK) ||
            (rows[i].want && (!strstr(d.msg, rows[i].want) || !strstr(d.msg, "config.json"))))
            fail_msg("row %zu: status %d: %s", i, (int)st, d.msg);
        lm_close(m);
    }
}

static void gguf_models(void **state)
{
    (void)state;
    static const char *const types[] = { "F32", "F16", "BF16", "Q8_0", "Q4_0" };
    for (size_t i = 0; i < COUNT(types); i++) {
        write_gguf(in_scratch("m.gguf"), NULL, NULL, types[i]);
        diag d = { 0 };
        lm_model *m;
        lm_tensor t;
        assert_ok(lm_open(in_scratch("m.gguf"), &(lm_options){ .form = LM_AS_FILE }, &m, &d), d);
        const model_config *c = lm_config(m);
        assert_true(c->rope == MODEL_ROPE_INTERLEAVED && c->tied && c->dim == 32 && c->head_dim == 8 &&
                    c->vocab == 10 && c->norm_eps == 1e-5);
        assert_true(lm_generation_of(m)->bos == 1 && lm_generation_of(m)->eos[0] == 2);
        float *x = all_of(m, MW_W2, 0, &t);
        assert_string_equal(t.type, types[i]);
        double worst = 0;
        for (int k = 0; k < 32 * 64; k++)
            worst = fmax(worst, fabs((double)x[k] - (double)mark("blk.0.ffn_down.weight", k)));
        assert_true(i < 2    ? worst == 0
                    : i == 2 ? worst < 0.004
                    : i == 3 ? worst < 0.006
                             : worst > 0.01 && worst < 0.15);
        /* the file's own blocks, taken apart, mean the same numbers */
        lm_form f = lm_form_of(m, MW_W2, 0);
        assert_int_equal(f, i == 3 ? LM_INT8 : i == 4 ? LM_INT4 : LM_DENSE);
        if (f != LM_DENSE) {
            lm_quantized q;
            for (int wide = 0; wide < 2; wide++) {
                dtype sdt = wide ? DT_F32 : DT_F16;
                assert_ok(lm_quantize(m, MW_W2, 0, f, sdt, &q, &d), d);
                assert_int_equal(q.scale_cols, 2);
                for (int k = 0; k < 32 * 64; k++)
                    assert_true((float)(dtype_load(q.q_dt, q.q, k) * dtype_load(sdt, q.scale, k / 32)) == x[k]);
            }
        }
        free(x);
        lm_close(m);
    }
    static const struct {
        patch p;
        const char *drop, *want;
    } bad[] = {
        { { "general.architecture", 's', 0, "mamba" }, NULL, "mamba" },
        { { "general.architecture", 0, 0, NULL }, NULL, "no general.architecture" },
        { { "llama.attention.head_count", 's', 0, "four" }, NULL, "llama.attention.head_count" },
        { { "llama.block_count", 0, 0, NULL }, NULL, "llama.block_count" },
        { { "llama.block_count", 'u', 2, NULL }, NULL, "blk.1.attn_norm.weight" },
        { { "llama.rope.dimension_count", 'u', 4, NULL }, NULL, "rope.dimension_count is 4" },
        { { "llama.expert_count", 'u', 8, NULL }, NULL, "experts" },
        { { "llama.attn_logit_softcapping", 'f', 30, NULL }, NULL, "attn_logit_softcapping" },
        { { "llama.rope.scaling.type", 's', 0, "longrope" }, NULL, "longrope" },
        { { "llama.vocab_size", 'u', 11, NULL }, NULL, "11" },
        { { "tokenizer.ggml.tokens", 't', 0, NULL }, NULL, "2 entries, but token_embd.weight has 10" },
        { { "split.count", 'u', 3, NULL }, NULL, "3 parts" },
        { { "tokenizer.ggml.bos_token_id", 'u', 10, NULL }, NULL, "tokenizer.ggml.bos_token_id is 10, the vocabulary has 10" },
        { { "tokenizer.ggml.eos_token_id", 'u', 4294967295, NULL }, NULL, "tokenizer.ggml.eos_token_id is 4294967295" },
        { { "tokenizer.ggml.eot_token_id", 'u', 12, NULL }, NULL, "tokenizer.ggml.eot_token_id is 12" },
        { { "tokenizer.ggml.eom_token_id", 's', 0, "end" }, NULL, "tokenizer.ggml.eom_token_id is no whole number" },
        { { "llama.feed_forward_length", 'u', 96, NULL }, NULL, "[64, 32], the configuration wants [96, 32]" },
        { { "x", 'u', 0, NULL }, "blk.0.ffn_up.weight", "blk.0.ffn_up.weight" },
        { { "x", 'u', 0, NULL }, "token_embd.weight", "token_embd.weight" },
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        write_gguf(in_scratch("m.gguf"), &bad[i].p, bad[i].drop, "F32");
        diag d = { 0 };
        lm_model *m;
        an_status st = lm_open(in_scratch("m.gguf"), NULL, &m, &d);
        if (st != AN_INPUT || !strstr(d.msg, bad[i].want) || !strstr(d.msg, "m.gguf"))
            fail_msg("row %zu: status %d: %s", i, (int)st, d.msg);
    }
}

/* ---- how text is produced ---- */

static void generation_files(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want; /* NULL: fine */
        lm_sampling how;
    } rows[] = {
        { "{}", NULL, { .temperature = 0 } },
        { "{\"temperature\":0.7,\"top_k\":20}", NULL, { .temperature = 0 } }, /* for sampling, which is not asked for */
        { "{\"do_sample\":true}", NULL, { .temperature = 1 } },
        { "{\"do_sample\":true,\"temperature\":0.6,\"top_k\":20,\"top_p\":0.95,\"min_p\":0.05,\"repetition_penalty\":1.1,\"_from_model_config\":true,\"max_new_tokens\":32768}", NULL,
          { .temperature = 0.6, .top_k = 20, .top_p = 0.95, .min_p = 0.05, .repetition = 1.1 } },
        { "{\"repetition_penalty\":1.05,\"suppress_tokens\":[],\"forced_bos_token_id\":null}", NULL, { .repetition = 1.05 } },
        { "{\"no_repeat_ngram_size\":3}", "\"no_repeat_ngram_size\" is 3; only 0 is supported", { .temperature = 0 } },
        { "{\"num_beams\":4}", "\"num_beams\" is 4; only 1 is supported", { .temperature = 0 } },
        { "{\"suppress_tokens\":[1]}", "\"suppress_tokens\" is [1]; only empty", { .temperature = 0 } },
        { "{\"hidden_size\":8}", "\"hidden_size\" (8) is not known here", { .temperature = 0 } },
        { "{\"frobnicate\":1}", "\"frobnicate\" (1) is not known here", { .temperature = 0 } },
        { "{\"do_sample\":true,\"temperature\":-5}", "temperature is -5, wanted 0 to 100", { .temperature = 0 } },
        { "{\"do_sample\":true,\"top_p\":1.5}", "top-p is 1.5, wanted 0 to 1", { .temperature = 0 } },
        { "{\"temperature\":\"hot\"}", "\"temperature\" is \"hot\"", { .temperature = 0 } },
        { "{\"eos_token_id\":[1,99]}", "\"eos_token_id\" is 99, the vocabulary has 10 entries", { .temperature = 0 } },
        { "[]", "not an object", { .temperature = 0 } },
    };
    make_llama(in_scratch("said"), NULL, DT_F32);
    for (size_t i = 0; i < COUNT(rows); i++) {
        diag d = { 0 };
        lm_model *m;
        write_text(in_scratch("said/generation_config.json"), rows[i].text);
        an_status st = lm_open(in_scratch("said"), NULL, &m, &d);
        if (rows[i].want) {
            if (st != AN_INPUT || !strstr(d.msg, rows[i].want) || !strstr(d.msg, "said/generation_config.json") || m)
                fail_msg("row %zu: status %d: %s", i, (int)st, d.msg);
            continue;
        }
        assert_ok(st, d);
        lm_sampling s = lm_suggested(lm_generation_of(m));
        const lm_sampling *w = &rows[i].how;
        assert_true(s.temperature == w->temperature && s.top_k == w->top_k && s.top_p == w->top_p &&
                    s.min_p == w->min_p && s.repetition == w->repetition);
        lm_close(m);
    }
}

/* ---- memory and forms ---- */

static void views_and_copies(void **state)
{
    (void)state;
    diag d = { 0 };
    lm_model *m;
    const void *a, *b;
    make_llama(in_scratch("llama"), NULL, DT_F16);
    assert_ok(lm_open(in_scratch("llama"), NULL, &m, &d), d);
    assert_ok(lm_dense(m, MW_WQ, 0, DT_F16, &a, &d), d); /* the file itself: there is no copy to let go */
    lm_release(m, MW_WQ, 0);
    lm_settle(m);
    void *other = malloc(128); /* a copy's memory would be free again */
    assert_non_null(other);
    memset(other, 0xff, 128);
    for (int i = 0; i < 64; i++)
        assert_true((float)dtype_load(DT_F16, a, i) == mark("model.layers.0.self_attn.q_proj.weight", i));
    free(other);
    assert_ok(lm_dense(m, MW_WQ, 0, DT_F32, &a, &d), d);
    assert_ok(lm_dense(m, MW_WQ, 0, DT_F32, &b, &d), d); /* converted once */
    assert_ptr_equal(a, b);
    assert_int_equal((uintptr_t)a % 64, 0);
    for (int i = 0; i < 64; i++)
        assert_true(((const float *)a)[i] == mark("model.layers.0.self_attn.q_proj.weight", i));
    lm_release(m, MW_WQ, 0);
    assert_ok(lm_dense(m, MW_WQ, 0, DT_F32, &b, &d), d); /* converted once more */
    assert_true(((const float *)b)[63] == mark("model.layers.0.self_attn.q_proj.weight", 63));
    float x[8];
    assert_int_equal(lm_rows(m, MW_WQ, 0, 8, 1, DT_F32, x, &d), AN_BUG);
    d = (diag){ 0 };
    assert_int_equal(lm_rows(m, MW_WQ, 0, -1, 1, DT_F32, x, &d), AN_BUG);
    d = (diag){ 0 };
    assert_int_equal(lm_dense(m, MW_BQ, 0, DT_F32, &a, &d), AN_BUG);
    d = (diag){ 0 };
    assert_int_equal(lm_dense(m, MW_WQ, 0, DT_I8, &a, &d), AN_BUG);
    lm_close(m);
}

/* A tensor of more bytes than are read at a time, and the memory of one that serves the next. */
static void large_tensors(void **state)
{
    (void)state;
    diag d = { 0 };
    lm_model *seeded, *m;
    lm_converted done;
    const void *at, *again;
    assert_ok(lm_open("stories15m", &(lm_options){ .seed = 3 }, &seeded, &d), d);
    assert_ok(lm_convert(seeded, in_scratch("large"),
                         &(lm_convert_options){ .to = LM_TO_HF, .dt = DT_F32, .version = -1 }, &done, &d),
              d);
    assert_ok(lm_open(in_scratch("large"), NULL, &m, &d), d);
    lm_tensor t;
    assert_true(lm_tensor_info(m, MW_EMBED, -1, &t) && t.rows * t.cols * 4 > 2 * (16 << 20));
    for (int turn = 0; turn < 2; turn++) { /* the second reads pages that were let go */
        assert_ok(lm_dense(m, MW_EMBED, -1, DT_F16, &at, &d), d);
        for (int64_t r = 0; r < t.rows; r += 97) {
            float x[288];
            uint16_t want[288];
            assert_int_equal(t.cols, COUNT(x));
            assert_ok(lm_rows(seeded, MW_EMBED, -1, r, 1, DT_F32, x, &d), d);
            for (size_t i = 0; i < COUNT(x); i++) dtype_store(DT_F16, want, (int64_t)i, (double)x[i]);
            assert_memory_equal((const uint16_t *)at + r * t.cols, want, sizeof want);
        }
        lm_release(m, MW_EMBED, -1);
    }
    lm_settle(m);
    assert_ok(lm_dense(m, MW_W1, 0, DT_F16, &at, &d), d);
    lm_release(m, MW_W1, 0);
    assert_ok(lm_dense(m, MW_NORM1, 0, DT_F16, &again, &d), d); /* stays for long: not in the large one's place */
    assert_ptr_not_equal(at, again);
    assert_ok(lm_dense(m, MW_W1, 1, DT_F16, &again, &d), d);
    assert_ptr_equal(at, again);
    assert_ok(lm_dense(m, MW_W1, 2, DT_F16, &again, &d), d); /* layer 1 is still out */
    assert_ptr_not_equal(at, again);
    lm_close(m);
    lm_close(seeded);
}

/* Largest error of a form over the tensor's largest magnitude, and its mean square over theirs. */
static void form_error(lm_model *m, lm_form f, double *worst, double *power)
{
    lm_tensor t;
    lm_quantized q;
    diag d = { 0 };
    float *x = all_of(m, MW_W1, 0, &t);
    assert_ok(lm_quantize(m, MW_W1, 0, f, DT_F16, &q, &d), d);
    double peak = 0, err = 0, e2 = 0, x2 = 0;
    for (int64_t i = 0; i < t.rows * t.cols; i++) {
        double c = dtype_load(q.q_dt, q.q, i), y;
        if (q.table) y = dtype_load(DT_F16, q.table, (int64_t)c);
        else y = c * dtype_load(DT_F16, q.scale, i / t.cols * q.scale_cols + i % t.cols / (t.cols / q.scale_cols));
        peak = fmax(peak, fabs((double)x[i]));
        err = fmax(err, fabs(y - (double)x[i]));
        e2 += pow(y - (double)x[i], 2);
        x2 += pow((double)x[i], 2);
    }
    free(x);
    *worst = err / peak;
    *power = e2 / x2;
}

static void forms(void **state)
{
    (void)state;
    diag d = { 0 };
    lm_model *m;
    double worst, power;
    assert_ok(lm_open("stories260k", &(lm_options){ .form = LM_INT4, .head = LM_INT8, .seed = 5 }, &m, &d), d);
    form_error(m, LM_INT8, &worst, &power);
    assert_true(worst < 0.5 / 127 * 1.01 && power < 1e-4);
    form_error(m, LM_INT4, &worst, &power);
    assert_true(worst < 1.0 / 8 && power < 0.01);
    form_error(m, LM_PALETTE4, &worst, &power);
    assert_true(power < 0.014); /* sixteen levels of a bell: 0.0095 at best */
    lm_quantized q;
    assert_ok(lm_quantize(m, MW_W2, 0, LM_INT4, DT_F16, &q, &d), d); /* rows of 172 = 4 x 43 */
    assert_int_equal(q.scale_cols, 4);
    assert_int_equal(lm_form_of(m, MW_WQ, 0), LM_INT4);
    assert_int_equal(lm_form_of(m, MW_EMBED, -1), LM_INT8); /* tied: it is the classifier */
    assert_int_equal(lm_form_of(m, MW_NORM1, 0), LM_DENSE);
    assert_int_equal(lm_quantize(m, MW_NORM1, 0, LM_INT8, DT_F16, &q, &d), AN_BUG);
    lm_close(m);
}

static void seeds(void **state)
{
    (void)state;
    diag d = { 0 };
    lm_model *a, *b, *c;
    lm_tensor t;
    pool *p;
    assert_ok(pool_make(&p, 3, &d), d);
    assert_ok(lm_open("tiny", &(lm_options){ .seed = 7 }, &a, &d), d);
    assert_ok(lm_open("tiny", &(lm_options){ .seed = 7, .threads = p }, &b, &d), d);
    assert_ok(lm_open("tiny", &(lm_options){ .seed = 8 }, &c, &d), d);
    float *x = all_of(a, MW_EMBED, -1, &t), *y = all_of(b, MW_EMBED, -1, &t), *z = all_of(c, MW_EMBED, -1, &t), row[64];
    size_t n = (size_t)(t.rows * t.cols);
    assert_memory_equal(x, y, n * sizeof *x);
    assert_memory_not_equal(x, z, n * sizeof *x);
    assert_ok(lm_rows(b, MW_EMBED, -1, 100, 1, DT_F32, row, &d), d);
    assert_memory_equal(row, x + 100 * t.cols, sizeof row);
    double sum = 0, sq = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i], sq += (double)x[i] * (double)x[i];
    assert_true(fabs(sum / (double)n) < 5e-4 && fabs(sqrt(sq / (double)n) - 0.02) < 5e-4);
    free(x);
    free(y);
    free(z);
    x = all_of(a, MW_NORM_F, -1, &t);
    for (int64_t i = 0; i < t.rows; i++) assert_true(x[i] == 1);
    free(x);
    assert_int_equal(lm_origin_of(a), LM_FROM_SEED);
    lm_close(c);
    assert_ok(lm_open("tiny", &(lm_options){ .dt = DT_BF16, .seed = 7, .rows_held = true, .threads = p }, &c, &d), d);
    uint16_t made[64], held[64];
    for (int64_t r = 0; r < lm_config(c)->vocab; r += 37) { /* held in bf16, made and rounded to it: the same */
        assert_ok(lm_rows(a, MW_EMBED, -1, r, 1, DT_BF16, made, &d), d);
        assert_ok(lm_rows(c, MW_EMBED, -1, r, 1, DT_BF16, held, &d), d);
        assert_memory_equal(made, held, sizeof made);
    }
    lm_close(a);
    lm_close(b);
    lm_close(c);
    pool_free(p);
    write_text(in_scratch("config.json"), "{" GPT2_JSON "}");
    assert_ok(lm_open(in_scratch("config.json"), NULL, &a, &d), d); /* a shape without weights */
    assert_string_equal(lm_family(a), "gpt2");
    lm_close(a);
}

/* Which block rows get, and rows at the ends of what a form holds. */
static void forms_at_their_ends(void **state)
{
    (void)state;
    static const struct {
        lm_form form;
        int64_t cols, block;
    } blocks[] = { { LM_INT4, 64, 32 }, { LM_INT4, 96, 32 }, { LM_INT4, 48, 48 }, { LM_INT4, 80, 40 },
                   { LM_INT4, 17, 17 }, { LM_INT4, 12, 12 }, { LM_INT4, 67, 67 }, { LM_INT8, 64, 64 } };
    for (size_t i = 0; i < COUNT(blocks); i++)
        assert_int_equal(quant_block(blocks[i].form, blocks[i].cols), blocks[i].block);
    static const struct {
        lm_form form;
        dtype dt;
        float x[4];
        bool fits;
        double scale;
        int code[4];
    } rows[] = {
        { LM_INT8, DT_F32, { 127, -127, 2, 0 }, true, 1, { 127, -127, 2, 0 } },
        { LM_INT4, DT_F32, { -4, 2, 1, 3 }, true, 0.5, { -8, 4, 2, 6 } },
        /* the largest becomes -8 whatever its sign */
        { LM_INT4, DT_F32, { 4, 2, -1, 0 }, true, -0.5, { -8, -4, 2, 0 } },
        { LM_INT4, DT_F32, { 4, -4, 1, 0 }, true, 0.5, { 7, -8, 2, 0 } },
        { LM_INT8, DT_F32, { 0, 0, 0, 0 }, true, 0, { 0, 0, 0, 0 } },
        { LM_INT8, DT_F32, { 1e-38f, 0, -1e-38f, 0 }, true, 7.87e-41, { 0, 0, 0, 0 } }, /* a scale without an inverse */
        /* 1.4 of fp16's least: rounded down, 127 would be 0.71 of the largest */
        { LM_INT8, DT_F16, { 177.8f * 0x1p-24f, -177.8f * 0x1p-24f, 20 * 0x1p-24f, 0 }, true, 0x1p-23, { 89, -89, 10, 0 } },
        /* half a step short: cut */
        { LM_INT8, DT_F16, { 127 * 0x1p-24f, 127 * 1.003f * 0x1p-24f, -3 * 0x1p-24f, 0 }, true, 0x1p-24, { 127, 127, -3, 0 } },
        { LM_INT4, DT_F16, { 11.2f * 0x1p-24f, 2 * 0x1p-24f, 0, -4 * 0x1p-24f }, true, -0x1p-23, { -6, -1, 0, 2 } },
        { LM_INT8, DT_F16, { 0x1p-27f, 0, 0, 0 }, true, 0x1p-24, { 0, 0, 0, 0 } },
        { LM_INT8, DT_F32, { 1, INFINITY, 0, 0 }, false, 0, { 0 } },
        { LM_INT4, DT_F32, { 1, 0, NAN, 0 }, false, 0, { 0 } },
        { LM_INT8, DT_F16, { 1e8f, 0, 0, 0 }, false, 0, { 0 } }, /* no such fp16 */
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        const quant_shape q = { .cols = 4, .block = 4, .scale_dt = rows[i].dt };
        unsigned char codes[8] = { 0 }, scale[8] = { 0 };
        if (quant_row(rows[i].form, &q, rows[i].x, codes, 0, scale, 0) != rows[i].fits)
            fail_msg("row %zu fits: %d", i, !rows[i].fits);
        if (!rows[i].fits) continue;
        double got = dtype_load(rows[i].dt, scale, 0);
        if (!(fabs(got - rows[i].scale) <= 1e-3 * fabs(rows[i].scale))) fail_msg("row %zu: scale %g", i, got);
        for (int k = 0; k < 4; k++) {
            int code = (int)dtype_load(rows[i].form == LM_INT8 ? DT_I8 : DT_I4, codes, k);
            if (code != rows[i].code[k]) fail_msg("row %zu: code %d is %d, wanted %d", i, k, code, rows[i].code[k]);
        }
    }
    /* fewer values than a palette has room for are all in it */
    static const float some[] = { -1, 1, 1, 0.25f, -1, 1 };
    for (int n = 1; n <= 6; n++) {
        static uint64_t count[PALETTE_BINS];
        palette p = { .lo = (double)some[0], .hi = (double)some[0], .count = count };
        memset(count, 0, sizeof count);
        for (int k = 0; k < n; k++) p.lo = MIN(p.lo, (double)some[k]), p.hi = MAX(p.hi, (double)some[k]);
        palette_count(&p, some, n);
        palette_settle(&p, DT_F32);
        for (int k = 1; k < 16; k++) assert_true(p.value[k] >= p.value[k - 1]);
        for (int k = 0; k < n; k++)
            assert_true(fabs((double)p.value[palette_find(&p, some[k])] - (double)some[k]) < 1e-3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_family),     cmocka_unit_test(published_configurations),
                                        cmocka_unit_test(configurations_there_and_back),
                                        cmocka_unit_test(refused_fields), cmocka_unit_test(absent_fields),
                                        cmocka_unit_test(rope_scaling), cmocka_unit_test(llama_folder),
                                        cmocka_unit_test(gpt2_folder), cmocka_unit_test(real_folders),
                                        cmocka_unit_test(bad_folders),
                                        cmocka_unit_test(two_configurations), cmocka_unit_test(gguf_models),
                                        cmocka_unit_test(generation_files), cmocka_unit_test(views_and_copies),
                                        cmocka_unit_test(large_tensors), cmocka_unit_test(forms),
                                        cmocka_unit_test(forms_at_their_ends), cmocka_unit_test(seeds) };
    return cmocka_run_group_tests(tests, make_scratch, drop_scratch);
}
