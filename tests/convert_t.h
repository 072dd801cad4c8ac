/* convert_t.h: for tests of conversions: a model of every family, and files that must be the same. */
#ifndef TESTS_CONVERT_T_H
#define TESTS_CONVERT_T_H

#include "lm_t.h"

#define SIZES "\"hidden_size\":32,\"intermediate_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":8," \
              "\"vocab_size\":48,\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5,\"bos_token_id\":1,\"eos_token_id\":2"
static const struct {
    const char *name, *json;
    bool interleaved; /* GGUF has the other order of pairs */
} models[] = {
    { "llama", "{\"model_type\":\"llama\"," SIZES "}", true },
    { "llama-bias", "{\"model_type\":\"llama\"," SIZES ",\"attention_bias\":true,\"mlp_bias\":true,\"tie_word_embeddings\":true}", true },
    { "llama3", "{\"model_type\":\"llama\"," SIZES ",\"rope_theta\":500000,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,"
                "\"high_freq_factor\":4,\"original_max_position_embeddings\":8192}}", true },
    { "mistral", "{\"model_type\":\"mistral\"," SIZES ",\"sliding_window\":16}", true },
    { "qwen2", "{\"model_type\":\"qwen2\"," SIZES ",\"rope_theta\":1000000,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":16}}", false },
    { "qwen3", "{\"model_type\":\"qwen3\"," SIZES ",\"tie_word_embeddings\":true}", false },
    { "gemma", "{\"model_type\":\"gemma\"," SIZES ",\"hidden_act\":\"gelu\",\"hidden_activation\":null}", false },
    { "gemma2", "{\"model_type\":\"gemma2\"," SIZES ",\"query_pre_attn_scalar\":8,\"sliding_window\":16,\"attn_logit_softcapping\":null,\"final_logit_softcapping\":20}", false },
    { "gpt2", "{\"model_type\":\"gpt2\",\"n_embd\":32,\"n_head\":4,\"n_layer\":2,\"n_positions\":64,\"vocab_size\":48,\"eos_token_id\":2}", false },
    { "llama3-other", "{\"model_type\":\"llama\"," SIZES ",\"rope_theta\":500,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":2.5,\"low_freq_factor\":1.5,"
                      "\"high_freq_factor\":3,\"original_max_position_embeddings\":16}}", true },
};

static inline void same_file(const char *a, const char *b, size_t but_last)
{
    diag d = { 0 };
    file_bytes x, y;
    assert_ok(file_map(a, &x, &d), d);
    assert_ok(file_map(b, &y, &d), d);
    if (x.n != y.n) fail_msg("%s has %zu bytes, %s %zu", a, x.n, b, y.n);
    for (size_t i = 0; i < x.n - but_last; i++)
        if (x.at[i] != y.at[i]) fail_msg("%s and %s differ at byte %zu of %zu", a, b, i, x.n);
    file_drop(&x);
    file_drop(&y);
}

#endif
