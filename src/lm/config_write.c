/* config_write.c: a configuration as the config.json of the family it belongs to. Reading it back gives the same
 * configuration. */
#include <math.h>

#include "lm/lm_int.h"

static void put_int(strbuf *b, const char *key, int64_t x) { sb_printf(b, ",\n  \"%s\": %lld", key, (long long)x); }
static void put_num(strbuf *b, const char *key, double x) { sb_printf(b, ",\n  \"%s\": %.17g", key, x); }
static void put_bool(strbuf *b, const char *key, bool x) { sb_printf(b, ",\n  \"%s\": %s", key, x ? "true" : "false"); }

/* Gemma 2's caps are there unless they are said not to be. */
static void put_cap(strbuf *b, const char *key, double x)
{
    if (x != 0) put_num(b, key, x);
    else sb_printf(b, ",\n  \"%s\": null", key);
}

static void put_rope(strbuf *b, const model_config *c)
{
    const model_scaling *s = &c->scaling;
    put_num(b, "rope_theta", c->rope_theta);
    if (s->kind == MODEL_SCALE_NONE) {
        sb_puts(b, ",\n  \"rope_scaling\": null");
        return;
    }
    bool llama3 = s->kind == MODEL_SCALE_LLAMA3;
    sb_printf(b, ",\n  \"rope_scaling\": {\"rope_type\": \"%s\", \"factor\": %.17g",
              s->kind == MODEL_SCALE_LINEAR ? "linear"
              : llama3                      ? "llama3"
                                            : "yarn",
              s->factor);
    if (s->kind != MODEL_SCALE_LINEAR)
        sb_printf(b, ", \"%s\": %.17g, \"%s\": %.17g, \"original_max_position_embeddings\": %lld",
                  llama3 ? "low_freq_factor" : "beta_slow", s->low, llama3 ? "high_freq_factor" : "beta_fast", s->high,
                  (long long)s->original);
    if (s->kind == MODEL_SCALE_YARN && s->attn > 0) sb_printf(b, ", \"attention_factor\": %.17g", s->attn);
    sb_puts(b, "}");
}

static void put_llama_like(strbuf *b, const model_config *c, family_id f)
{
    put_int(b, "hidden_size", c->dim);
    put_int(b, "intermediate_size", c->hidden);
    put_int(b, "num_hidden_layers", c->n_layers);
    put_int(b, "num_attention_heads", c->n_heads);
    put_int(b, "num_key_value_heads", c->n_kv_heads);
    put_int(b, "head_dim", c->head_dim);
    put_int(b, "max_position_embeddings", c->context);
    put_num(b, "rms_norm_eps", c->norm_eps);
    if (f == FAM_GEMMA || f == FAM_GEMMA2)
        sb_puts(b, ",\n  \"hidden_act\": \"gelu_pytorch_tanh\",\n  \"hidden_activation\": \"gelu_pytorch_tanh\"");
    else sb_puts(b, ",\n  \"hidden_act\": \"silu\"");
    put_rope(b, c);
    if (f == FAM_LLAMA || f == FAM_QWEN3) put_bool(b, "attention_bias", c->bias || c->bias_qkv);
    if (f == FAM_LLAMA) put_bool(b, "mlp_bias", c->bias || c->bias_mlp);
    if (f == FAM_MISTRAL || f == FAM_GEMMA2) put_int(b, "sliding_window", c->window);
    if (f == FAM_GEMMA2) {
        put_num(b, "query_pre_attn_scalar", c->query_dim != 0 ? c->query_dim : (double)c->head_dim);
        put_cap(b, "attn_logit_softcapping", c->attn_softcap);
    }
    if ((f == FAM_QWEN2 || f == FAM_QWEN3) && c->window) {
        put_bool(b, "use_sliding_window", true);
        put_int(b, "sliding_window", c->window);
        put_int(b, "max_window_layers", 0);
    }
}

static void put_gpt2(strbuf *b, const model_config *c)
{
    put_int(b, "n_embd", c->dim);
    put_int(b, "n_inner", c->hidden);
    put_int(b, "n_layer", c->n_layers);
    put_int(b, "n_head", c->n_heads);
    put_int(b, "n_positions", c->context);
    put_int(b, "n_ctx", c->context);
    put_num(b, "layer_norm_epsilon", c->norm_eps);
    sb_puts(b, ",\n  \"activation_function\": \"gelu_new\"");
}

static void put_ids(strbuf *b, const lm_generation *g)
{
    if (g->bos >= 0) put_int(b, "bos_token_id", g->bos);
    if (g->n_eos == 1) put_int(b, "eos_token_id", g->eos[0]);
    if (g->n_eos > 1) {
        sb_puts(b, ",\n  \"eos_token_id\": [");
        for (int i = 0; i < g->n_eos; i++) sb_printf(b, "%s%lld", i ? ", " : "", (long long)g->eos[i]);
        sb_puts(b, "]");
    }
    if (g->pad >= 0) put_int(b, "pad_token_id", g->pad);
}

/* Where a generation_config.json goes along it says the same. */
static void put_sampling(strbuf *b, const lm_generation *g)
{
    if (g->sample) put_bool(b, "do_sample", true);
    if (!isnan(g->temperature)) put_num(b, "temperature", g->temperature);
    if (g->top_k >= 0) put_int(b, "top_k", g->top_k);
    if (!isnan(g->top_p)) put_num(b, "top_p", g->top_p);
    if (!isnan(g->min_p)) put_num(b, "min_p", g->min_p);
    if (!isnan(g->repetition_penalty)) put_num(b, "repetition_penalty", g->repetition_penalty);
}

an_status lm_config_json(const model_config *c, const lm_generation *g, strbuf *out, diag *d)
{
    const char *why;
    family_id f = family_of(c, &why);
    if (f == FAM_COUNT) return diag_fail(d, AN_INPUT, NOWHERE, "no family of Hugging Face models has %s", why);
    if (c->rope == MODEL_ROPE_INTERLEAVED)
        return diag_fail(
            d, AN_BUG, NOWHERE,
            "a config.json cannot say that rotary pairs are interleaved: the weights must be put in halves first");
    sb_printf(out, "{\n  \"architectures\": [\"%s%s\"],\n  \"model_type\": \"%s\"", families[f].cls,
              f == FAM_GPT2 ? "LMHeadModel" : "ForCausalLM", families[f].hf);
    put_int(out, "vocab_size", c->vocab);
    if (f == FAM_GPT2) put_gpt2(out, c);
    else put_llama_like(out, c, f);
    put_bool(out, "tie_word_embeddings", c->tied);
    if (f == FAM_GEMMA2) put_cap(out, "final_logit_softcapping", c->softcap);
    else if (c->softcap != 0) put_num(out, "final_logit_softcapping", c->softcap);
    if (g) put_ids(out, g), put_sampling(out, g);
    sb_puts(out, "\n}\n");
    return out->oom ? diag_nomem(d) : AN_OK;
}
