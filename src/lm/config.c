/* config.c: config.json and generation_config.json of the families in families.def, to model_config and back. In:
 * JSON somebody else wrote.  Out: a checked configuration, or a message that names the file, the field and both
 * values.
 *
 * Fields are looked up in fields.def before anything is read; defaults for absent ones are those of the families'
 * own classes. */
#include <math.h>
#include <stdlib.h>

#include "lm/generate.h"
#include "lm/lm_int.h"

/* ---- the table of fields ---- */

typedef enum { DO_USED, DO_HARMLESS, DO_FALSE, DO_TRUE, DO_ZERO, DO_ONE, DO_NULL, DO_EMPTY } field_what;
static const struct field {
    const char *name, *families; /* NULL: about producing text */
    field_what what;
} fields[] = {
#define FIELD(name, families, what) { name, families, DO_##what },
#define GENERATION(name, what) { name, NULL, DO_##what },
#include "lm/fields.def"
#undef FIELD
#undef GENERATION
};
static const char *const wanted[] = {
    [DO_FALSE] = "false", [DO_TRUE] = "true", [DO_ZERO] = "0", [DO_ONE] = "1", [DO_NULL] = "null", [DO_EMPTY] = "empty"
};

typedef struct {
    const char *file;
    const json_t *top;
    family_id fam;
    diag *d;
} reader;

#define BAD(r, ...) diag_fail((r)->d, AN_INPUT, NOWHERE, __VA_ARGS__)

/* A value as short text, for messages. */
static const char *shown(const json_t *v, char *buf, size_t n)
{
    char *s = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
    snprintf(buf, n, "%.60s", s ? s : "?");
    free(s);
    return buf;
}

static bool allowed(const json_t *v, field_what what)
{
    switch (what) {
    case DO_FALSE: return json_is_false(v);
    case DO_TRUE: return json_is_true(v);
    case DO_ZERO: return json_is_number(v) && json_number_value(v) == 0;
    case DO_ONE: return json_is_number(v) && json_number_value(v) == 1;
    case DO_NULL: return false; /* null was taken before */
    case DO_EMPTY: return (json_is_object(v) && !json_object_size(v)) || (json_is_array(v) && !json_array_size(v));
    default: return true;
    }
}

static const struct field *find_field(const char *key)
{
    for (size_t i = 0; i < COUNT(fields); i++)
        if (!strcmp(fields[i].name, key)) return &fields[i];
    return NULL;
}

/* A family reads its own fields and those about producing text; FAM_COUNT, generation_config.json, only these. */
static an_status check_fields(const reader *r)
{
    const char *key;
    json_t *v;
    char text[64];
    json_object_foreach((json_t *)r->top, key, v)
    {
        if (json_is_null(v)) continue;
        const struct field *f = find_field(key);
        if (!f || (f->families && r->fam == FAM_COUNT))
            return BAD(r, "%.150s: field \"%.60s\" (%s) is not known here; it could change what the model %s", r->file,
                       key, shown(v, text, sizeof text), r->fam == FAM_COUNT ? "answers" : "computes");
        if (f->families && f->families[0] != '*' && !strchr(f->families, families[r->fam].letter) && f->what == DO_USED)
            return BAD(r, "%.150s: field \"%.60s\" (%s) is not one of a %s model", r->file, key,
                       shown(v, text, sizeof text), families[r->fam].hf);
        if (!allowed(v, f->what))
            return BAD(r, "%.150s: \"%.60s\" is %s; only %s is supported", r->file, key, shown(v, text, sizeof text),
                       wanted[f->what]);
    }
    return AN_OK;
}

/* ---- single values ---- */

static const json_t *get(const json_t *from, const char *key)
{
    const json_t *v = json_object_get(from, key);
    return v && !json_is_null(v) ? v : NULL;
}

/* def < 0: the field must be there. */
static an_status get_int(const reader *r, const json_t *from, const char *key, int64_t def, int64_t *out)
{
    const json_t *v = get(from, key);
    char text[64];
    *out = def;
    if (!v) return def >= 0 ? AN_OK : BAD(r, "%.200s: field \"%s\" is missing", r->file, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return BAD(r, "%.150s: \"%s\" is %s, wanted a whole number of at least 0", r->file, key,
                   shown(v, text, sizeof text));
    *out = json_integer_value(v);
    return AN_OK;
}

static an_status get_num(const reader *r, const json_t *from, const char *key, double def, double *out)
{
    const json_t *v = get(from, key);
    char text[64];
    *out = def;
    if (!v) return isnan(def) ? BAD(r, "%.200s: field \"%s\" is missing", r->file, key) : AN_OK;
    if (!json_is_number(v))
        return BAD(r, "%.150s: \"%s\" is %s, wanted a number", r->file, key, shown(v, text, sizeof text));
    *out = json_number_value(v);
    return AN_OK;
}

static an_status get_bool(const reader *r, const char *key, bool def, bool *out)
{
    const json_t *v = get(r->top, key);
    char text[64];
    *out = def;
    if (!v) return AN_OK;
    if (!json_is_boolean(v))
        return BAD(r, "%.150s: \"%s\" is %s, wanted true or false", r->file, key, shown(v, text, sizeof text));
    *out = json_is_true(v);
    return AN_OK;
}

static an_status want_text(const reader *r, const char *key, const char *def, const char *a, const char *b)
{
    const json_t *v = get(r->top, key);
    const char *s = v ? json_string_value(v) : def;
    char text[64];
    if (s && (!strcmp(s, a) || !strcmp(s, b))) return AN_OK;
    return BAD(r, "%.150s: \"%s\" is %s; \"%s\" is supported", r->file, key,
               v ? shown(v, text, sizeof text) : "not given", a);
}

/* ---- rotary angles ---- */

/* rope_scaling, or the newer rope_parameters, which holds theta too. */
static an_status read_rope(const reader *r, model_config *c)
{
    static const char *const known[] = { "rope_type", "type", "rope_theta", "factor", "low_freq_factor", "high_freq_factor",
                                         "original_max_position_embeddings", "beta_fast", "beta_slow", "attention_factor" };
    const json_t *old = get(r->top, "rope_scaling"), *now = get(r->top, "rope_parameters"), *s = now ? now : old;
    char text[64];
    TRY(get_num(r, r->top, "rope_theta", 1e4, &c->rope_theta));
    if (!s) return AN_OK;
    if (old && now && !json_equal(old, now))
        return BAD(r, "%.200s: rope_scaling and rope_parameters are both given and differ", r->file);
    if (!json_is_object(s))
        return BAD(r, "%.200s: rope_scaling is %s, wanted an object or null", r->file, shown(s, text, sizeof text));
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)s, key, v)
    {
        size_t i = 0;
        while (i < COUNT(known) && strcmp(known[i], key)) i++;
        if (i == COUNT(known) && !json_is_null(v))
            return BAD(r, "%.150s: rope_scaling has field \"%.60s\" (%s), which is not known here", r->file, key,
                       shown(v, text, sizeof text));
    }
    TRY(get_num(r, s, "rope_theta", c->rope_theta, &c->rope_theta));
    const json_t *type = get(s, "rope_type") ? get(s, "rope_type") : get(s, "type");
    const char *word = json_string_value(type);
    model_scaling *m = &c->scaling;
    if (!word) return BAD(r, "%.200s: rope_scaling has no rope_type", r->file);
    if (!strcmp(word, "default")) return AN_OK;
    bool linear = !strcmp(word, "linear"), llama3 = !strcmp(word, "llama3"), yarn = !strcmp(word, "yarn");
    if (!linear && !llama3 && !yarn)
        return BAD(r, "%.150s: rope_scaling.rope_type is \"%.40s\"; default, linear, llama3 and yarn are supported",
                   r->file, word);
    m->kind = linear ? MODEL_SCALE_LINEAR : llama3 ? MODEL_SCALE_LLAMA3 : MODEL_SCALE_YARN;
    TRY(get_num(r, s, "factor", NAN, &m->factor));
    if (linear) return AN_OK;
    TRY(get_num(r, s, "original_max_position_embeddings", llama3 ? NAN : (double)c->context, &m->original));
    TRY(get_num(r, s, llama3 ? "low_freq_factor" : "beta_slow", llama3 ? NAN : 1, &m->low));
    TRY(get_num(r, s, llama3 ? "high_freq_factor" : "beta_fast", llama3 ? NAN : 32, &m->high));
    return get_num(r, s, "attention_factor", 0, &m->attn);
}

/* ---- sliding windows ---- */

/* Gemma 2: layers 0, 2, 4, … have the window. */
static an_status read_alternating(const reader *r, model_config *c)
{
    const json_t *types = get(r->top, "layer_types");
    char text[64];
    TRY(get_int(r, r->top, "sliding_window", 4096, &c->window));
    if (!c->window) return BAD(r, "%.150s: \"sliding_window\" is 0, wanted a number of positions", r->file);
    if (types && json_array_size(types) != (size_t)c->n_layers)
        return BAD(r, "%.150s: \"layer_types\" lists %zu layers, the model has %lld", r->file, json_array_size(types),
                   (long long)c->n_layers);
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *t = json_string_value(json_array_get(types, i)),
                   *want = i % 2 ? "full_attention" : "sliding_attention";
        if (!t || strcmp(t, want))
            return BAD(r, "%.150s: \"layer_types\" has %s for layer %zu; only %s is supported there", r->file,
                       shown(json_array_get(types, i), text, sizeof text), i, want);
    }
    c->window_every = 2;
    return AN_OK;
}

/* One window for all layers, or none. */
static an_status read_window(const reader *r, model_config *c)
{
    bool use = true;
    int64_t first = 0, n;
    char text[64];
    const json_t *types = get(r->top, "layer_types");
    if (r->fam == FAM_QWEN2 || r->fam == FAM_QWEN3) {
        TRY(get_bool(r, "use_sliding_window", false, &use));
        TRY(get_int(r, r->top, "max_window_layers", use ? 28 : 0, &first));
    }
    /* a configuration that leaves the field out means 4096, one that says null means none; Llama has no such field */
    bool said = json_object_get(r->top, "sliding_window") != NULL;
    TRY(get_int(r, r->top, "sliding_window", said || r->fam == FAM_LLAMA ? 0 : 4096, &n));
    if (types && !json_is_array(types))
        return BAD(r, "%.150s: \"layer_types\" is %s, wanted a list", r->file, shown(types, text, sizeof text));
    size_t slide = 0;
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *t = json_string_value(json_array_get(types, i));
        bool sliding = t && !strcmp(t, "sliding_attention");
        if (!sliding && (!t || strcmp(t, "full_attention")))
            return BAD(r, "%.150s: \"layer_types\" holds %s; full_attention and sliding_attention are known", r->file,
                       shown(json_array_get(types, i), text, sizeof text));
        slide += sliding;
    }
    if (!use || !n) {
        if (slide)
            return BAD(r, "%.150s: \"layer_types\" has %zu sliding layers, but no sliding window is in use", r->file,
                       slide);
        return AN_OK;
    }
    if (types && !slide) return AN_OK;
    if (types ? slide != (size_t)c->n_layers : first > 0 && first < c->n_layers)
        return BAD(
            r,
            "%.150s: the sliding window of %lld is for some of the %lld layers only (%s); one window for all, or none, is supported",
            r->file, (long long)n, (long long)c->n_layers, types ? "layer_types" : "max_window_layers");
    if (!types && first >= c->n_layers) return AN_OK;
    c->window = n;
    return AN_OK;
}

/* ---- whole configurations ---- */

static an_status read_family(reader *r)
{
    const char *word = json_string_value(get(r->top, "model_type"));
    if (!word) return BAD(r, "%.200s: no \"model_type\"", r->file);
    for (int i = 0; i < FAM_COUNT; i++)
        if (!strcmp(families[i].hf, word)) r->fam = (family_id)i;
    if (r->fam == FAM_COUNT)
        return BAD(
            r,
            "%.150s: \"model_type\" is \"%.40s\"; llama, mistral, qwen2, qwen3, gemma, gemma2 and gpt2 are supported",
            r->file, word);
    const json_t *list = get(r->top, "architectures");
    for (size_t i = 0; i < json_array_size(list); i++) {
        /* the model alone, or with its classifier; other heads compute something else */
        static const char *const tails[] = { "ForCausalLM", "LMHeadModel", "Model" };
        const char *a = json_string_value(json_array_get(list, i)), *cls = families[r->fam].cls;
        bool ok = false;
        for (size_t k = 0; k < COUNT(tails) && a; k++)
            ok |= !strncmp(a, cls, strlen(cls)) && !strcmp(a + strlen(cls), tails[k]);
        if (!ok)
            return BAD(r, "%.150s: architecture \"%.60s\" is not supported; %sForCausalLM is", r->file, a ? a : "?",
                       cls);
    }
    return AN_OK;
}

static an_status read_gpt2(const reader *r, model_config *c)
{
    int64_t ctx;
    TRY(get_int(r, r->top, "n_embd", -1, &c->dim));
    TRY(get_int(r, r->top, "n_layer", -1, &c->n_layers));
    TRY(get_int(r, r->top, "n_head", -1, &c->n_heads));
    TRY(get_int(r, r->top, "n_inner", c->dim > INT64_MAX / 4 ? 0 : 4 * c->dim, &c->hidden));
    TRY(get_int(r, r->top, "n_ctx", 1024, &ctx));
    TRY(get_int(r, r->top, "n_positions", ctx, &c->context));
    TRY(get_num(r, r->top, "layer_norm_epsilon", 1e-5, &c->norm_eps));
    TRY(want_text(r, "activation_function", "gelu_new", "gelu_new", "gelu_pytorch_tanh"));
    TRY(get_bool(r, "tie_word_embeddings", true, &c->tied));
    if (!c->n_heads || c->dim % c->n_heads)
        return BAD(r, "%.150s: n_embd is %lld and n_head %lld: the heads must divide it", r->file, (long long)c->dim,
                   (long long)c->n_heads);
    c->n_kv_heads = c->n_heads;
    c->head_dim = c->dim / c->n_heads;
    c->rope_theta = 1e4;
    c->norm = MODEL_NORM_LAYER;
    c->act = MODEL_ACT_GELU;
    c->bias = true;
    return AN_OK;
}

/* A field that is not there has the class's default, one that is null means none. */
static an_status get_cap(const reader *r, const char *key, double def, double *out)
{
    return get_num(r, r->top, key, json_object_get(r->top, key) ? 0 : def, out);
}

/* hidden_activation counts; where it is missing or null the library takes the tanh form, whatever the older
 * hidden_act says. */
static an_status read_gemma(const reader *r, model_config *c)
{
    TRY(want_text(r, "hidden_activation", "gelu_pytorch_tanh", "gelu_pytorch_tanh", "gelu_pytorch_tanh"));
    TRY(want_text(r, "hidden_act", "gelu_pytorch_tanh", "gelu_pytorch_tanh", "gelu"));
    c->act = MODEL_ACT_GEGLU;
    c->embed_scale = sqrt((double)c->dim);
    if (r->fam == FAM_GEMMA) return AN_OK;
    TRY(get_num(r, r->top, "query_pre_attn_scalar", 256, &c->query_dim));
    if (c->query_dim == (double)c->head_dim) c->query_dim = 0;
    TRY(get_cap(r, "attn_logit_softcapping", 50, &c->attn_softcap));
    c->post_norm = true;
    return read_alternating(r, c);
}

static an_status read_llama_like(const reader *r, model_config *c)
{
    bool bias, gemma = r->fam == FAM_GEMMA || r->fam == FAM_GEMMA2;
    TRY(get_int(r, r->top, "hidden_size", -1, &c->dim));
    TRY(get_int(r, r->top, "intermediate_size", -1, &c->hidden));
    TRY(get_int(r, r->top, "num_hidden_layers", -1, &c->n_layers));
    TRY(get_int(r, r->top, "num_attention_heads", -1, &c->n_heads));
    if (!c->n_heads) return BAD(r, "%.150s: num_attention_heads is 0", r->file);
    /* null: as many as heads */
    int64_t few = json_object_get(r->top, "num_key_value_heads") ? 0 : families[r->fam].kv_heads;
    if (few && c->n_heads % few)
        return BAD(
            r,
            "%.150s: field \"num_key_value_heads\" is missing, which means %lld in a %s model; they do not divide %lld heads",
            r->file, (long long)few, families[r->fam].hf, (long long)c->n_heads);
    TRY(get_int(r, r->top, "num_key_value_heads", few ? few : c->n_heads, &c->n_kv_heads));
    TRY(get_int(r, r->top, "head_dim", r->fam == FAM_QWEN3 ? 128 : gemma ? 256 : 0, &c->head_dim));
    if (!c->head_dim) {
        if (c->dim % c->n_heads)
            return BAD(
                r,
                "%.150s: hidden_size is %lld and num_attention_heads %lld: without head_dim the heads must divide it",
                r->file, (long long)c->dim, (long long)c->n_heads);
        c->head_dim = c->dim / c->n_heads;
    }
    TRY(get_int(r, r->top, "max_position_embeddings", -1, &c->context));
    TRY(get_num(r, r->top, "rms_norm_eps", 1e-6, &c->norm_eps));
    if (!gemma) TRY(want_text(r, "hidden_act", "silu", "silu", "swish"));
    TRY(get_bool(r, "tie_word_embeddings", gemma, &c->tied));
    TRY(get_bool(r, "attention_bias", false, &bias));
    TRY(get_bool(r, "mlp_bias", false, &c->bias_mlp));
    TRY(read_rope(r, c));
    TRY(gemma ? read_gemma(r, c) : read_window(r, c));
    if (gemma && bias)
        return BAD(r, "%.150s: \"attention_bias\" is true; only false is supported in a %s model", r->file,
                   families[r->fam].hf);
    c->bias_qkv = bias || r->fam == FAM_QWEN2;
    c->bias_o = bias;
    c->qk_norm = r->fam == FAM_QWEN3;
    c->rope = families[r->fam].hf_rope;
    return AN_OK;
}

void config_defaults(model_config *c)
{
    /* a training program of this many positions is legal on every chip; who trains says another number */
    c->seq = MIN(c->context, 256);
    while (c->seq > 1 &&
           (c->n_heads * c->seq > 65536 || (c->n_kv_heads > 0 && c->n_heads / c->n_kv_heads * c->seq > 16384)))
        c->seq /= 2;
    c->alpha = 1;
    c->loss_scale = 256;
    c->dt = DT_F16;
}

/* ---- producing text ---- */

void generation_default(lm_generation *g)
{
    *g = (lm_generation){
        .bos = -1, .pad = -1, .top_k = -1, .temperature = NAN, .top_p = NAN, .min_p = NAN, .repetition_penalty = NAN
    };
}

static an_status read_id(const reader *r, const char *key, const json_t *v, int64_t vocab, int64_t *out)
{
    char text[64];
    if (!json_is_integer(v) || json_integer_value(v) < -1)
        return BAD(r, "%.150s: \"%s\" is %s, wanted the number of a token", r->file, key, shown(v, text, sizeof text));
    *out = json_integer_value(v);
    if (*out < vocab) return AN_OK;
    return BAD(r, "%.150s: \"%s\" is %lld, the vocabulary has %lld entries", r->file, key, (long long)*out,
               (long long)vocab);
}

/* Nothing is done with the id of padding, and files have one behind the end of the vocabulary. */
static an_status generation_values(const reader *r, int64_t vocab, lm_generation *g)
{
    const json_t *v, *top = r->top;
    char text[64];
    if ((v = get(top, "bos_token_id"))) TRY(read_id(r, "bos_token_id", v, vocab, &g->bos));
    if ((v = get(top, "pad_token_id"))) TRY(read_id(r, "pad_token_id", v, INT64_MAX, &g->pad));
    if ((v = get(top, "eos_token_id"))) {
        size_t n = json_is_array(v) ? json_array_size(v) : 1;
        if (n > LM_MAX_EOS)
            return BAD(r, "%.150s: \"eos_token_id\" lists %zu tokens; %d are the most", r->file, n, LM_MAX_EOS);
        for (size_t i = 0; i < n; i++)
            TRY(read_id(r, "eos_token_id", json_is_array(v) ? json_array_get(v, i) : v, vocab, &g->eos[i]));
        g->n_eos = n == 1 && g->eos[0] < 0 ? 0 : (int)n;
    }
    if ((v = get(top, "do_sample"))) {
        if (!json_is_boolean(v))
            return BAD(r, "%.150s: \"do_sample\" is %s, wanted true or false", r->file, shown(v, text, sizeof text));
        g->sample = json_is_true(v);
    }
    const struct {
        const char *key;
        double *to;
    } numbers[] = { { "temperature", &g->temperature },
                    { "top_p", &g->top_p },
                    { "min_p", &g->min_p },
                    { "repetition_penalty", &g->repetition_penalty } };
    for (size_t i = 0; i < COUNT(numbers); i++)
        if (get(top, numbers[i].key)) TRY(get_num(r, top, numbers[i].key, 0, numbers[i].to));
    if (get(top, "top_k")) TRY(get_int(r, top, "top_k", 0, &g->top_k));
    lm_sampling how = lm_suggested(g);
    diag why = { 0 };
    return lm_sampling_check(&how, &why) ? BAD(r, "%.150s: %s", r->file, why.msg) : AN_OK;
}

an_status generation_read(const char *file, const json_t *top, int64_t vocab, lm_generation *g, diag *d)
{
    reader r = { .file = file, .top = top, .fam = FAM_COUNT, .d = d };
    TRY(check_fields(&r));
    return generation_values(&r, vocab, g);
}

/* Cuts (top-k, top-p, min-p) are for sampling alone; the repetition penalty counts for greedy choices too. */
lm_sampling lm_suggested(const lm_generation *g)
{
    lm_sampling s = { .repetition = isnan(g->repetition_penalty) ? 0 : g->repetition_penalty };
    if (!g->sample) return s;
    s.temperature = isnan(g->temperature) ? 1 : g->temperature;
    s.top_p = isnan(g->top_p) ? 0 : g->top_p;
    s.min_p = isnan(g->min_p) ? 0 : g->min_p;
    s.top_k = MAX(g->top_k, 0);
    return s;
}

an_status config_from_json(const char *file, const json_t *top, model_config *c, lm_generation *g, diag *d)
{
    reader r = { .file = file, .top = top, .fam = FAM_COUNT, .d = d };
    *c = (model_config){ 0 };
    TRY(read_family(&r));
    TRY(check_fields(&r));
    snprintf(c->name, sizeof c->name, "%s", families[r.fam].hf);
    TRY(get_int(&r, top, "vocab_size", -1, &c->vocab));
    TRY(r.fam == FAM_GPT2 ? read_gpt2(&r, c) : read_llama_like(&r, c));
    TRY(get_cap(&r, "final_logit_softcapping", r.fam == FAM_GEMMA2 ? 30 : 0, &c->softcap));
    config_defaults(c);
    diag why = { 0 };
    if (model_config_check(c, &why)) return BAD(&r, "%.150s: %s", file, why.msg);
    return generation_values(&r, c->vocab, g);
}

an_status lm_config_read(const char *file, const void *text, size_t n, model_config *c, lm_generation *g, diag *d)
{
    json_t *top;
    TRY(json_text(text, n, file, &top, d));
    generation_default(g);
    an_status st = config_from_json(file, top, c, g, d);
    json_decref(top);
    return st;
}

an_status config_from_llama2c(const char *file, const llama2c_shape *s, model_config *c, diag *d)
{
    *c = (model_config){ .name = "llama2c", .n_layers = s->layers, .dim = s->dim, .hidden = s->hidden, .n_heads = s->heads, .n_kv_heads = s->kv_heads,
                         .head_dim = s->dim / s->heads, .context = s->seq, .vocab = s->vocab, .norm_eps = 1e-5, .rope_theta = 1e4,
                         .rope = MODEL_ROPE_INTERLEAVED, .tied = s->shared };
    config_defaults(c);
    diag why = { 0 };
    if (model_config_check(c, &why)) return diag_fail(d, AN_INPUT, NOWHERE, "%.150s: %s", file, why.msg);
    return AN_OK;
}
