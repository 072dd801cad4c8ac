/* config_gguf.c: the metadata of a GGUF file to model_config. Keys of the architecture ("llama.…") are looked up in
 * a table first: one that is not in it is refused, since it could change what the model computes. Everything else
 * (general., tokenizer., quantize.) describes the file or the vocabulary. */
#include <math.h>
#include <stdlib.h>

#include "base/plain.h"
#include "lm/lm_int.h"

typedef enum { KEY_USED, KEY_HARMLESS, KEY_ZERO, KEY_GEMMA2 /* used there, unknown elsewhere */ } key_what;
static const struct {
    const char *tail;
    key_what what;
} keys[] = {
    { "context_length", KEY_USED },
    { "embedding_length", KEY_USED },
    { "block_count", KEY_USED },
    { "feed_forward_length", KEY_USED },
    { "attention.head_count", KEY_USED },
    { "attention.head_count_kv", KEY_USED },
    { "attention.key_length", KEY_USED },
    { "attention.value_length", KEY_USED },
    { "attention.layer_norm_rms_epsilon", KEY_USED },
    { "attention.layer_norm_epsilon", KEY_USED },
    { "attention.sliding_window", KEY_USED },
    { "rope.dimension_count", KEY_USED },
    { "rope.freq_base", KEY_USED },
    { "rope.scale_linear", KEY_USED },
    { "rope.scaling.type", KEY_USED },
    { "rope.scaling.factor", KEY_USED },
    { "rope.scaling.original_context_length", KEY_USED },
    { "rope.scaling.attn_factor", KEY_USED },
    { "rope.scaling.finetuned", KEY_HARMLESS },
    { "attn_logit_softcapping", KEY_GEMMA2 },
    { "final_logit_softcapping", KEY_GEMMA2 },
    { "vocab_size", KEY_USED },
    { "tensor_data_layout", KEY_HARMLESS },
    { "expert_count", KEY_ZERO },
    { "expert_used_count", KEY_ZERO },
};

typedef struct {
    const gguf *f;
    char arch[32];
    diag *d;
} reader;

#define BAD(r, ...) diag_fail((r)->d, AN_INPUT, NOWHERE, __VA_ARGS__)

static const char *key_of(const reader *r, const char *tail, char *buf, size_t n)
{
    snprintf(buf, n, "%s.%s", r->arch, tail);
    return buf;
}

/* def < 0: must be there. A value of the wrong type (head counts by layer come as an array) is refused. */
static an_status get_int(const reader *r, const char *tail, int64_t def, int64_t *out)
{
    char key[100];
    *out = def;
    const gguf_value *v = gguf_get(r->f, key_of(r, tail, key, sizeof key));
    if (!v) return def >= 0 ? AN_OK : BAD(r, "%.150s: key \"%s\" is missing", gguf_file(r->f), key);
    if (!gguf_int(r->f, key, out) || *out < 0)
        return BAD(r, "%.150s: \"%s\" is %s, wanted a whole number of at least 0", gguf_file(r->f), key,
                   v->type == GGUF_ARRAY ? "an array" : gguf_type_name(v->type));
    return AN_OK;
}

/* The shortest decimal that is this fp32: 1e-5 stored in four bytes means 1e-5, not 9.99999975e-06. */
static double as_written(double x)
{
    char text[40];
    for (int digits = 5; digits <= 9; digits++) {
        plain_printf(text, sizeof text, "%.*g", digits, x);
        double y = plain_real(text, NULL);
        if ((float)y == (float)x) return y;
    }
    return x;
}

static an_status get_num(const reader *r, const char *tail, double def, double *out)
{
    char key[100];
    *out = def;
    const gguf_value *v = gguf_get(r->f, key_of(r, tail, key, sizeof key));
    if (!v) return isnan(def) ? BAD(r, "%.150s: key \"%s\" is missing", gguf_file(r->f), key) : AN_OK;
    if (!gguf_number(r->f, key, out))
        return BAD(r, "%.150s: \"%s\" is %s, wanted a number", gguf_file(r->f), key, gguf_type_name(v->type));
    if (v->type == GGUF_F32) *out = as_written(*out);
    return AN_OK;
}

static an_status check_keys(const reader *r)
{
    size_t n = strlen(r->arch);
    for (size_t i = 0; i < gguf_value_count(r->f); i++) {
        const gguf_value *v = gguf_value_at(r->f, i);
        if (strncmp(v->key, r->arch, n) || v->key[n] != '.') continue;
        size_t k = 0;
        while (k < COUNT(keys) && strcmp(keys[k].tail, v->key + n + 1)) k++;
        if (k == COUNT(keys) || (keys[k].what == KEY_GEMMA2 && strcmp(r->arch, "gemma2")))
            return BAD(r, "%.150s: key \"%.80s\" is not known here; it could change what the model computes",
                       gguf_file(r->f), v->key);
        int64_t x;
        if (keys[k].what == KEY_ZERO && !(gguf_int(r->f, v->key, &x) && !x))
            return BAD(r, "%.150s: \"%.80s\" is not 0; mixtures of experts are not supported", gguf_file(r->f), v->key);
    }
    int64_t parts;
    if (gguf_int(r->f, "split.count", &parts) && parts > 1)
        return BAD(r, "%.150s: one of %lld parts; join them first (gguf-split --merge)", gguf_file(r->f),
                   (long long)parts);
    return AN_OK;
}

static an_status read_arch(reader *r)
{
    gguf_str s;
    if (!gguf_text(r->f, "general.architecture", &s)) return BAD(r, "%.200s: no general.architecture", gguf_file(r->f));
    for (int i = 0; i < FAM_COUNT; i++)
        if (strlen(families[i].gguf) == s.n && !memcmp(families[i].gguf, s.at, s.n)) {
            snprintf(r->arch, sizeof r->arch, "%s", families[i].gguf);
            return AN_OK;
        }
    return BAD(r, "%.150s: general.architecture is \"%.*s\"; llama, qwen2, qwen3, gemma, gemma2 and gpt2 are supported",
               gguf_file(r->f), (int)MIN(s.n, 40), s.at);
}

static an_status read_scaling(const reader *r, model_config *c)
{
    char key[100];
    gguf_str s;
    double linear;
    model_scaling *m = &c->scaling;
    TRY(get_num(r, "rope.scale_linear", 1, &linear));
    if (linear != 1) *m = (model_scaling){ .kind = MODEL_SCALE_LINEAR, .factor = linear };
    if (!gguf_get(r->f, key_of(r, "rope.scaling.type", key, sizeof key))) return AN_OK;
    if (!gguf_text(r->f, key, &s)) return BAD(r, "%.150s: \"%s\" is not a text", gguf_file(r->f), key);
    bool yarn = s.n == 4 && !memcmp(s.at, "yarn", 4);
    if (s.n == 4 && !memcmp(s.at, "none", 4)) return AN_OK;
    if (!yarn && !(s.n == 6 && !memcmp(s.at, "linear", 6)))
        return BAD(r, "%.150s: \"%s\" is \"%.*s\"; none, linear and yarn are supported", gguf_file(r->f), key,
                   (int)MIN(s.n, 40), s.at);
    *m = (model_scaling){ .kind = yarn ? MODEL_SCALE_YARN : MODEL_SCALE_LINEAR };
    TRY(get_num(r, "rope.scaling.factor", NAN, &m->factor));
    if (!yarn) return AN_OK;
    m->low = 1;
    m->high = 32;
    TRY(get_num(r, "rope.scaling.original_context_length", (double)c->context, &m->original));
    /* the key multiplies YaRN's own 0.1 ln factor + 1 */
    double more;
    TRY(get_num(r, "rope.scaling.attn_factor", 1, &more));
    if (more != 1 && m->factor > 0) m->attn = more * (0.1 * log(m->factor) + 1);
    return AN_OK;
}

/* The divisors of the angles that a scaling means, against those in the file. */
static bool means(const model_config *c, const model_scaling *s, const gguf_tensor *t)
{
    double plain[MODEL_MAX_HEAD / 2], scaled[MODEL_MAX_HEAD / 2], scale;
    model_config try = *c;
    try.scaling = (model_scaling){ 0 };
    model_rope_steps(&try, plain, &scale);
    try.scaling = *s;
    model_rope_steps(&try, scaled, &scale);
    for (int64_t i = 0; i < t->count; i++) {
        float x;
        memcpy(&x, (const char *)t->data + 4 * i, 4);
        if (!(fabs((double)x - plain[i] / scaled[i]) <= 1e-4 * (double)x)) return false;
    }
    return true;
}

/* Llama 3.1 and later: the angles' divisors stand in a tensor. They are the scaling that LM_SCALING_KEY names, one
 * of the published ones, or refused. */
static an_status read_factors(const reader *r, model_config *c)
{
    const gguf_tensor *t = gguf_find(r->f, "rope_freqs.weight");
    const gguf_value *own = gguf_get(r->f, LM_SCALING_KEY);
    if (!t) return AN_OK;
    if (t->type->id != BLOCK_F32 || t->count != c->head_dim / 2)
        return BAD(r, "%.150s: tensor rope_freqs.weight has %lld elements of %s, wanted %lld of F32", gguf_file(r->f),
                   (long long)t->count, t->type->name, (long long)(c->head_dim / 2));
    if (c->head_dim > MODEL_MAX_HEAD) return AN_OK; /* refused by the configuration's own check */
    if (own) {
        double x[4] = { 0 };
        bool read = own->type == GGUF_ARRAY && own->of == GGUF_F64 && own->n == 4;
        for (uint64_t i = 0; i < 4 && read; i++) read = gguf_item(own, i, &x[i]);
        model_scaling s = { .kind = MODEL_SCALE_LLAMA3, .factor = x[0], .low = x[1], .high = x[2], .original = x[3] };
        if (!read || !means(c, &s, t))
            return BAD(r,
                       "%.150s: " LM_SCALING_KEY
                       " does not hold the four numbers of the scaling in tensor rope_freqs.weight",
                       gguf_file(r->f));
        return c->scaling = s, AN_OK;
    }
    static const double factors[] = { 8, 32, 16, 4 };
    for (size_t k = 0; k < COUNT(factors); k++) {
        model_scaling s = { .kind = MODEL_SCALE_LLAMA3, .factor = factors[k], .low = 1, .high = 4, .original = 8192 };
        if (means(c, &s, t)) return c->scaling = s, AN_OK;
    }
    return BAD(r,
               "%.150s: tensor rope_freqs.weight does not hold the Llama 3 scaling by 4, 8, 16 or 32 of 8192 positions",
               gguf_file(r->f));
}

/* Scores are divided by the root of this: dim / heads in the 27B model, known by its 46 layers; 0, a head's own
 * width, in the others. */
double gemma2_query_dim(const model_config *c)
{
    double by_embedding = (double)c->dim / (double)c->n_heads;
    return c->n_layers == 46 && by_embedding != (double)c->head_dim ? by_embedding : 0;
}

static an_status read_gemma(const reader *r, model_config *c)
{
    c->act = MODEL_ACT_GEGLU;
    c->embed_scale = sqrt((double)c->dim);
    if (strcmp(r->arch, "gemma2")) return AN_OK;
    c->post_norm = true;
    c->window_every = 2;
    c->query_dim = gemma2_query_dim(c);
    TRY(get_int(r, "attention.sliding_window", 4096, &c->window));
    TRY(get_num(r, "attn_logit_softcapping", 50, &c->attn_softcap));
    return get_num(r, "final_logit_softcapping", 30, &c->softcap);
}

static an_status read_rest(const reader *r, model_config *c)
{
    bool gpt2 = !strcmp(r->arch, "gpt2");
    int64_t dims, vlen, declared;
    TRY(get_int(r, "embedding_length", -1, &c->dim));
    TRY(get_int(r, "block_count", -1, &c->n_layers));
    TRY(get_int(r, "feed_forward_length", -1, &c->hidden));
    TRY(get_int(r, "attention.head_count", -1, &c->n_heads));
    TRY(get_int(r, "attention.head_count_kv", c->n_heads, &c->n_kv_heads));
    TRY(get_int(r, "context_length", -1, &c->context));
    if (!c->n_heads) return BAD(r, "%.150s: %s.attention.head_count is 0", gguf_file(r->f), r->arch);
    TRY(get_int(r, "attention.key_length", c->dim / c->n_heads, &c->head_dim));
    TRY(get_int(r, "attention.value_length", c->head_dim, &vlen));
    TRY(get_num(r, gpt2 ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", NAN, &c->norm_eps));
    if (vlen != c->head_dim)
        return BAD(r, "%.150s: attention.value_length is %lld and key_length %lld; only equal ones are supported",
                   gguf_file(r->f), (long long)vlen, (long long)c->head_dim);
    if (gpt2) {
        c->norm = MODEL_NORM_LAYER;
        c->act = MODEL_ACT_GELU;
        c->bias = true;
        c->rope_theta = 1e4;
    } else {
        TRY(get_int(r, "rope.dimension_count", c->head_dim, &dims));
        if (dims != c->head_dim)
            return BAD(
                r, "%.150s: rope.dimension_count is %lld of head width %lld; rotating part of a head is not supported",
                gguf_file(r->f), (long long)dims, (long long)c->head_dim);
        TRY(get_num(r, "rope.freq_base", 1e4, &c->rope_theta));
        TRY(get_int(r, "attention.sliding_window", 0, &c->window));
        c->rope = strcmp(r->arch, "llama") ? MODEL_ROPE_HALF : MODEL_ROPE_INTERLEAVED;
        c->bias_qkv = gguf_find(r->f, "blk.0.attn_q.bias") != NULL;
        c->bias_o = gguf_find(r->f, "blk.0.attn_output.bias") != NULL;
        c->bias_mlp = gguf_find(r->f, "blk.0.ffn_gate.bias") != NULL;
        c->qk_norm = gguf_find(r->f, "blk.0.attn_q_norm.weight") != NULL;
        TRY(read_scaling(r, c));
        TRY(read_factors(r, c));
        if (!strncmp(r->arch, "gemma", 5)) TRY(read_gemma(r, c));
    }
    /* the vocabulary is as long as the embedding; both other places that say so must agree */
    const gguf_tensor *embed = gguf_find(r->f, "token_embd.weight");
    const gguf_value *tokens = gguf_get(r->f, "tokenizer.ggml.tokens");
    if (!embed || embed->rank != 2)
        return BAD(r, "%.150s: tensor token_embd.weight is missing%s", gguf_file(r->f),
                   gguf_tensor_count(r->f) ? "" : ": the file holds a vocabulary alone");
    c->vocab = embed->dim[0];
    TRY(get_int(r, "vocab_size", c->vocab, &declared));
    if (declared != c->vocab)
        return BAD(r, "%.150s: %s.vocab_size is %lld, but token_embd.weight has %lld rows", gguf_file(r->f), r->arch,
                   (long long)declared, (long long)c->vocab);
    if (tokens && tokens->type == GGUF_ARRAY && tokens->n != (uint64_t)c->vocab)
        return BAD(r, "%.150s: tokenizer.ggml.tokens has %llu entries, but token_embd.weight has %lld rows",
                   gguf_file(r->f), (unsigned long long)tokens->n, (long long)c->vocab);
    c->tied = !gguf_find(r->f, "output.weight");
    return AN_OK;
}

/* -1, as in a config.json: none. */
static an_status read_id(const reader *r, const char *key, int64_t vocab, int64_t *out)
{
    *out = -1;
    if (!gguf_get(r->f, key)) return AN_OK;
    if (!gguf_int(r->f, key, out)) return BAD(r, "%.150s: %s is no whole number", gguf_file(r->f), key);
    if (*out >= -1 && *out < vocab) return AN_OK;
    return BAD(r, "%.150s: %s is %lld, the vocabulary has %lld entries", gguf_file(r->f), key, (long long)*out,
               (long long)vocab);
}

/* As in a config.json, the id of padding may be behind the end of the vocabulary. */
static an_status read_ids(const reader *r, int64_t vocab, lm_generation *g)
{
    static const char *const stops[] = { "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                         "tokenizer.ggml.eom_token_id" };
    TRY(read_id(r, "tokenizer.ggml.bos_token_id", vocab, &g->bos));
    TRY(read_id(r, "tokenizer.ggml.padding_token_id", INT64_MAX, &g->pad));
    for (size_t i = 0; i < COUNT(stops); i++) {
        int64_t x;
        TRY(read_id(r, stops[i], vocab, &x));
        bool there = x < 0;
        for (int k = 0; k < g->n_eos; k++) there |= g->eos[k] == x;
        if (!there) g->eos[g->n_eos++] = x;
    }
    return AN_OK;
}

an_status config_from_gguf(const gguf *f, model_config *c, lm_generation *g, diag *d)
{
    reader r = { .f = f, .d = d };
    *c = (model_config){ 0 };
    TRY(read_arch(&r));
    TRY(check_keys(&r));
    TRY(read_rest(&r, c));
    snprintf(c->name, sizeof c->name, "%s", r.arch);
    config_defaults(c);
    diag why = { 0 };
    if (model_config_check(c, &why)) return BAD(&r, "%.150s: %s", gguf_file(f), why.msg);
    return read_ids(&r, c->vocab, g);
}
