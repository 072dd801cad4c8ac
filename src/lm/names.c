/* names.c: families and tensor names: families.def and names.def as data. */
#include <math.h>

#include "lm/lm_int.h"

const family families[FAM_COUNT] = {
#define FAMILY(id, letter_, hf_, cls_, gguf_, hf_rope_, gguf_rope_, names_, less_, kv_)                                                    \
    [FAM_##id] = { .letter = letter_, .hf = hf_, .cls = cls_, .gguf = gguf_, .hf_rope = MODEL_ROPE_##hf_rope_,                             \
                   .gguf_rope = MODEL_ROPE_##gguf_rope_, .names = NAMES_##names_, .less = less_, .kv_heads = kv_ },
#include "lm/families.def"
#undef FAMILY
};

const model_weight_id llama2c_weight[L2C_COUNT] = {
    [L2C_EMBED] = MW_EMBED, [L2C_NORM1] = MW_NORM1, [L2C_WQ] = MW_WQ, [L2C_WK] = MW_WK,
    [L2C_WV] = MW_WV,       [L2C_WO] = MW_WO,       [L2C_NORM2] = MW_NORM2, [L2C_W1] = MW_W1,
    [L2C_W2] = MW_W2,       [L2C_W3] = MW_W3,       [L2C_NORM_F] = MW_NORM_F, [L2C_HEAD] = MW_HEAD,
};

static const char *const patterns[MW_COUNT][COL_GGUF2 + 1] = {
#define NAME(id, hf, gpt2, gguf, gguf2) NAME4(id, hf, hf, gpt2, gguf, gguf2)
#define NAME4(id, hf, hf4, gpt2, gguf, gguf2) [MW_##id] = { hf, hf4, gpt2, gguf, gguf2 },
#include "lm/names.def"
#undef NAME4
#undef NAME
};

static const struct {
    const char *name;
    char cols;
    bool layers;
} weights[MW_COUNT] = {
#define SCOPE_LAYER true
#define SCOPE_MODEL false
#define WEIGHT(id, name_, rows, cols_, scope, when)                                                                    \
    [MW_##id] = { .name = name_, .cols = #cols_[0], .layers = SCOPE_##scope },
#include "model/weights.def"
#undef WEIGHT
};

name_column hf_column(family_id f)
{
    return families[f].names == NAMES_GPT2 ? COL_GPT2 : families[f].names == NAMES_HF4 ? COL_HF4 : COL_HF;
}
name_column gguf_column(family_id f) { return families[f].names == NAMES_GPT2 ? COL_GGUF2 : COL_GGUF; }

bool weight_is_gain(model_weight_id id)
{
    return id == MW_NORM1 || id == MW_NORM2 || id == MW_NORM_F || id == MW_POST1 || id == MW_POST2;
}
bool weight_is_matrix(model_weight_id id) { return weights[id].cols != '1'; }
bool weight_per_layer(model_weight_id id) { return weights[id].layers; }

const char *weight_label(model_weight_id id, int layer, const char *tail, char *buf, size_t n)
{
    if (layer >= 0) snprintf(buf, n, "layer%d.%s%s", layer, weights[id].name, tail);
    else snprintf(buf, n, "%s%s", weights[id].name, tail);
    return buf;
}

/* One layer's and the model's own tensors, as model/ lists them. */
static bool find_weight(const model_config *c, model_weight_id id, model_weight *out)
{
    model_config one = *c;
    model_weight list[MW_COUNT];
    one.n_layers = 1;
    size_t n = model_weights(&one, list, COUNT(list));
    for (size_t i = 0; i < n && i < COUNT(list); i++)
        if (list[i].id == id) return *out = list[i], true;
    return false;
}

bool weight_in(const model_config *c, model_weight_id id)
{
    model_weight w;
    return find_weight(c, id, &w);
}

void weight_shape(const model_config *c, model_weight_id id, int64_t *rows, int64_t *cols)
{
    model_weight w;
    *rows = *cols = 0;
    if (!find_weight(c, id, &w)) return;
    *rows = w.type.sh.d[weight_is_matrix(id) ? 0 : 1];
    *cols = weight_is_matrix(id) ? w.type.sh.d[1] : 1;
}

const char *name_pattern(name_column col, model_weight_id id) { return patterns[id][col]; }

int name_third(name_column col, model_weight_id id)
{
    int first = id == MW_WQ || id == MW_WK || id == MW_WV   ? MW_WQ
                : id == MW_BQ || id == MW_BK || id == MW_BV ? MW_BQ
                                                            : -1;
    if (first < 0 || !patterns[id][col][0] || strcmp(patterns[first][col], patterns[first + 1][col])) return -1;
    return (int)id - first;
}

bool name_make(const char *pattern, int layer, char *buf, size_t n)
{
    const char *hole = strstr(pattern, "%d");
    if (!pattern[0]) return false;
    int len = hole ? snprintf(buf, n, "%.*s%d%s", (int)(hole - pattern), pattern, layer, hole + 2)
                   : snprintf(buf, n, "%s", pattern);
    return len > 0 && (size_t)len < n;
}

bool lm_hf_name(const model_config *c, model_weight_id id, int layer, char *buf, size_t n, int *part, bool *transposed)
{
    const char *why;
    family_id f = family_of(c, &why);
    char tail[100];
    if (f == FAM_COUNT || !weight_in(c, id)) return false;
    name_column col = hf_column(f);
    if (!name_make(name_pattern(col, id), layer, tail, sizeof tail)) return false;
    const char *prefix = id == MW_HEAD ? "" : col == COL_GPT2 ? "transformer." : "model.";
    *part = name_third(col, id);
    *transposed = col == COL_GPT2 && weight_is_matrix(id) && weight_per_layer(id);
    return snprintf(buf, n, "%s%s", prefix, tail) < (int)n;
}

family_id family_of(const model_config *c, const char **why)
{
    bool qkv = c->bias || c->bias_qkv, o = c->bias || c->bias_o, mlp = c->bias || c->bias_mlp;
    *why = NULL;
    if (c->alpha != 0 && c->alpha != 1) return *why = "alpha: residual branches scaled", FAM_COUNT;
    if (c->rope == MODEL_ROPE_NONE) {
        if (c->norm != MODEL_NORM_LAYER) *why = "learned positions with RMS norms";
        else if (c->act != MODEL_ACT_GELU) *why = "learned positions with a gated feed-forward part";
        else if (!qkv || !o || !mlp) *why = "learned positions without biases";
        else if (c->qk_norm) *why = "learned positions with norms of queries and keys";
        else if (c->window) *why = "learned positions with a sliding window";
        else if (c->n_kv_heads != c->n_heads) *why = "learned positions with grouped heads";
        else if (c->n_heads * c->head_dim != c->dim) *why = "learned positions with heads that do not divide the width";
        return *why ? FAM_COUNT : FAM_GPT2;
    }
    if (c->norm != MODEL_NORM_RMS) return *why = "rotary positions with layer norms", FAM_COUNT;
    if (c->act == MODEL_ACT_GEGLU) {
        if (qkv || o || mlp) *why = "a GELU gate with biases";
        else if (c->qk_norm) *why = "a GELU gate with norms of queries and keys";
        else if (c->embed_scale != sqrt((double)c->dim))
            *why = "a GELU gate with an embedding not scaled by the root of its width";
        else if (!c->post_norm && (c->attn_softcap != 0 || c->query_dim != 0 || c->window))
            *why = "a GELU gate with capped scores, queries of another scale or a window, but no norms of the branches";
        else if (c->post_norm && (!c->window || c->window_every != 2))
            *why = "norms of the branches without a window on every second layer";
        return *why ? FAM_COUNT : c->post_norm ? FAM_GEMMA2 : FAM_GEMMA;
    }
    if (c->embed_scale != 0) return *why = "a scaled embedding without a GELU gate", FAM_COUNT;
    if (c->post_norm) return *why = "norms of the branches without a GELU gate", FAM_COUNT;
    if (c->attn_softcap != 0) return *why = "capped scores of attention without a GELU gate", FAM_COUNT;
    if (c->query_dim != 0) return *why = "queries of another scale without a GELU gate", FAM_COUNT;
    if (c->window_every > 1) return *why = "a window on some layers without a GELU gate", FAM_COUNT;
    if (c->act != MODEL_ACT_SWIGLU) return *why = "rotary positions without a gated feed-forward part", FAM_COUNT;
    if (c->qk_norm) {
        if (mlp || qkv != o) *why = "norms of queries and keys with that choice of biases";
        return *why ? FAM_COUNT : FAM_QWEN3;
    }
    if (qkv && !o && !mlp) return FAM_QWEN2;
    if (c->window && (qkv || o || mlp)) return *why = "a sliding window with that choice of biases", FAM_COUNT;
    if (qkv != o) return *why = "a bias on the output projection alone", FAM_COUNT;
    return c->window ? FAM_MISTRAL : FAM_LLAMA;
}
