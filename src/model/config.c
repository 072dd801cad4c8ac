/* config.c: model shapes: the presets, what makes a configuration valid, and the tensors it implies.
 * In: a model_config.  Out: yes or a message that names the field; sizes of weights and of the parts of the
 * vocabulary. */
#include <math.h>

#include "model/model_int.h"

static const model_config presets[] = {
#define PRESET(n, layers, d, h, nh, nkv, hd, s, ctx, v, eps, theta, rope_, norm_, act_, bias_, qkn, tied_)                  \
    { .name = n, .n_layers = layers, .dim = d, .hidden = h, .n_heads = nh, .n_kv_heads = nkv, .head_dim = hd, .seq = s,     \
      .context = ctx, .vocab = v, .norm_eps = eps, .rope_theta = theta, .alpha = 1, .loss_scale = 256,                     \
      .rope = MODEL_ROPE_##rope_, .norm = MODEL_NORM_##norm_, .act = MODEL_ACT_##act_, .bias = bias_, .qk_norm = qkn,      \
      .tied = tied_, .dt = DT_F16 },
#include "model/presets.def"
#undef PRESET
};

size_t model_preset_count(void) { return COUNT(presets); }
const model_config *model_preset_at(size_t i) { return i < COUNT(presets) ? &presets[i] : NULL; }

const model_config *model_preset_find(const char *name)
{
    for (size_t i = 0; i < COUNT(presets); i++)
        if (!strcmp(presets[i].name, name)) return &presets[i];
    return NULL;
}

/* ---- validity ---- */

static const struct {
    const char *name;
    size_t at;
    int64_t lo, hi;
} ranges[] = {
    /* 16384 is the axis limit of the oldest family; a matrix side past it could not be one convolution */
    { "n_layers", offsetof(model_config, n_layers), 1, 1000 },
    { "dim", offsetof(model_config, dim), 1, 16384 },
    { "hidden", offsetof(model_config, hidden), 1, 16384 },
    { "n_heads", offsetof(model_config, n_heads), 1, 1024 },
    { "n_kv_heads", offsetof(model_config, n_kv_heads), 1, 1024 },
    { "head_dim", offsetof(model_config, head_dim), 1, MODEL_MAX_HEAD },
    { "seq", offsetof(model_config, seq), 1, 16384 },
    { "context", offsetof(model_config, context), 1, 1 << 24 },
    { "vocab", offsetof(model_config, vocab), 2, (int64_t)MODEL_ID_BASE * MODEL_ID_BASE },
    { "vocab_part", offsetof(model_config, vocab_part), 0, 65536 },
};

static an_status bad(const model_config *c, diag *d, const char *what, const char *field, double got, const char *want)
{
    return diag_fail(d, AN_INPUT, NOWHERE, "model %s: %s%s is %g, wanted %s", c->name[0] ? c->name : "(unnamed)", what,
                     field, got, want);
}

static an_status check_scaling(const model_config *c, diag *d)
{
    const model_scaling *s = &c->scaling;
    if (s->kind == MODEL_SCALE_NONE) return AN_OK;
    if ((int)s->kind < 0 || s->kind > MODEL_SCALE_YARN)
        return bad(c, d, "", "scaling.kind", (double)s->kind, "none, linear, llama3 or yarn");
    if (c->rope == MODEL_ROPE_NONE)
        return bad(c, d, "", "scaling.kind", (double)s->kind, "none in a model that rotates nothing");
    if (!(s->factor >= 1 && s->factor <= 1e6)) return bad(c, d, "", "scaling.factor", s->factor, "1 to 1e6");
    if (s->kind == MODEL_SCALE_LINEAR) return AN_OK;
    if (!(s->original >= 1 && s->original <= 1 << 24))
        return bad(c, d, "", "scaling.original", s->original, "1 to 2^24 positions");
    if (!(s->low > 0 && s->low < s->high && s->high <= 1e6))
        return bad(c, d, "", "scaling.low", s->low, "a number above 0 and below scaling.high");
    if (!(s->attn >= 0 && s->attn <= 100)) return bad(c, d, "", "scaling.attn", s->attn, "0 to 100");
    return AN_OK;
}

an_status model_config_check(const model_config *c, diag *d)
{
    for (size_t i = 0; i < COUNT(ranges); i++) {
        int64_t x;
        memcpy(&x, (const char *)c + ranges[i].at, sizeof x);
        if (x >= ranges[i].lo && x <= ranges[i].hi) continue;
        char want[64];
        snprintf(want, sizeof want, "%lld to %lld", (long long)ranges[i].lo, (long long)ranges[i].hi);
        return bad(c, d, "", ranges[i].name, (double)x, want);
    }
    if (c->n_heads % c->n_kv_heads)
        return bad(c, d, "", "n_heads % n_kv_heads", (double)(c->n_heads % c->n_kv_heads),
                   "0: every kv head serves the same number of heads");
    if (c->n_heads * c->head_dim > 16384)
        return bad(c, d, "", "n_heads * head_dim", (double)(c->n_heads * c->head_dim), "at most 16384");
    if (c->n_heads / c->n_kv_heads * c->seq > 16384)
        return bad(c, d, "", "n_heads / n_kv_heads * seq", (double)(c->n_heads / c->n_kv_heads * c->seq),
                   "at most 16384");
    if (c->n_heads * c->seq > 65536)
        return bad(c, d, "", "n_heads * seq", (double)(c->n_heads * c->seq), "at most 65536 channels of scores");
    if (c->rope != MODEL_ROPE_NONE && c->head_dim % 2)
        return bad(c, d, "", "head_dim", (double)c->head_dim, "an even number: rope turns pairs");
    if ((int)c->rope < 0 || c->rope > MODEL_ROPE_HALF)
        return bad(c, d, "", "rope", (double)c->rope, "none, interleaved or half");
    if ((int)c->norm < 0 || c->norm > MODEL_NORM_LAYER) return bad(c, d, "", "norm", (double)c->norm, "rms or layer");
    if ((int)c->act < 0 || c->act > MODEL_ACT_GEGLU)
        return bad(c, d, "", "act", (double)c->act, "swiglu, gelu or geglu");
    if (c->seq > c->context) return bad(c, d, "", "seq", (double)c->seq, "at most the context");
    if (!(c->norm_eps >= 1e-9 && c->norm_eps <= 1))
        return bad(c, d, "", "norm_eps", c->norm_eps, "1e-9 to 1: its root must be a normal fp16");
    if (c->rope != MODEL_ROPE_NONE && !(c->rope_theta > 1 && isfinite(c->rope_theta)))
        return bad(c, d, "", "rope_theta", c->rope_theta, "a finite number above 1");
    if (c->window < 0) return bad(c, d, "", "window", (double)c->window, "0 (none), or a number of positions");
    if (c->window_every < 0 || c->window_every > 1000)
        return bad(c, d, "", "window_every", (double)c->window_every, "0 to 1000 layers");
    TRY(check_scaling(c, d));
    if (!(c->alpha == 0 || (c->alpha >= 1e-4 && c->alpha <= 1e3)))
        return bad(c, d, "", "alpha", c->alpha, "0 (for 1), or 1e-4 to 1e3");
    if (!(c->loss_scale == 0 || (c->loss_scale >= 1e-3 && c->loss_scale <= 65504)))
        return bad(c, d, "", "loss_scale", c->loss_scale, "0 (for 1), or 1e-3 to 65504");
    if (!(c->softcap == 0 || (c->softcap >= 1 && c->softcap <= 1e4)))
        return bad(c, d, "", "softcap", c->softcap, "0 (none), or 1 to 1e4");
    if (!(c->attn_softcap == 0 || (c->attn_softcap >= 1 && c->attn_softcap <= 1e4)))
        return bad(c, d, "", "attn_softcap", c->attn_softcap, "0 (none), or 1 to 1e4");
    if (!(c->query_dim == 0 || (c->query_dim >= 1e-2 && c->query_dim <= 1e6)))
        return bad(c, d, "", "query_dim", c->query_dim, "0 (the head width), or 0.01 to 1e6");
    if (!(c->embed_scale == 0 || (c->embed_scale >= 1e-3 && c->embed_scale <= 1e3)))
        return bad(c, d, "", "embed_scale", c->embed_scale, "0 (for 1), or 1e-3 to 1e3");
    if (c->post_norm && c->norm != MODEL_NORM_RMS)
        return bad(c, d, "", "norm", (double)c->norm, "rms where branches are normed as well");
    if (c->dt != DT_NONE && c->dt != DT_F16 && c->dt != DT_BF16 && c->dt != DT_F32)
        return diag_fail(d, AN_INPUT, NOWHERE, "model %s: dt is %s, wanted fp16, bf16 or fp32", c->name,
                         dtype_name(c->dt));
    if (model_vocab_parts(c) > NN_MAX_PARTS)
        return bad(c, d, "", "the number of vocabulary parts", (double)model_vocab_parts(c),
                   "at most 64: raise vocab_part");
    return AN_OK;
}

int64_t model_window(const model_config *c, int64_t layer)
{
    return c->window_every > 1 && layer % c->window_every ? 0 : c->window;
}
bool model_gated(const model_config *c) { return c->act != MODEL_ACT_GELU; }

/* ---- vocabulary in parts ---- */

/* Fewest parts that fit, or up to twice as many when that makes them equal: equal outputs need no padding. */
int model_vocab_parts(const model_config *c)
{
    int64_t most = c->vocab_part > 0 ? c->vocab_part : MODEL_VOCAB_PART;
    int64_t n = MAX((c->vocab + most - 1) / most, 1);
    for (int64_t k = n; k <= 2 * n && k <= NN_MAX_PARTS; k++)
        if (c->vocab % k == 0) return (int)k;
    return (int)MIN(n, (int64_t)INT32_MAX);
}

int64_t model_vocab_part(const model_config *c, int part, int64_t *first)
{
    int64_t n = model_vocab_parts(c), size = (c->vocab + n - 1) / n, at = MIN(size * part, c->vocab);
    if (first) *first = at;
    return MIN(size, c->vocab - at);
}

/* ---- weights ---- */

typedef enum { SCOPE_LAYER, SCOPE_MODEL } weight_scope;
typedef enum { WHEN_ALWAYS, WHEN_BIAS_QKV, WHEN_BIAS_O, WHEN_BIAS_MLP, WHEN_LNORM, WHEN_GATED, WHEN_BIAS_GATED,
               WHEN_QKN, WHEN_HEAD, WHEN_POS, WHEN_POST } weight_when;

static const struct {
    const char *name, *rows, *cols;
    weight_scope scope;
    weight_when when;
} rows[MW_COUNT] = {
#define WEIGHT(id, name, r, c, scope, when) [MW_##id] = { name, #r, #c, SCOPE_##scope, WHEN_##when },
#include "model/weights.def"
#undef WEIGHT
};

static int64_t by_letter(const model_config *c, char letter)
{
    switch (letter) {
    case 'D': return c->dim;
    case 'H': return c->hidden;
    case 'Q': return c->n_heads * c->head_dim;
    case 'K': return c->n_kv_heads * c->head_dim;
    case 'P': return c->head_dim;
    case 'V': return c->vocab;
    case 'C': return c->context;
    default: return 1;
    }
}

const char *weight_name(model_weight_id id) { return rows[id].name; }
bool weight_is_layers(model_weight_id id) { return rows[id].scope == SCOPE_LAYER; }
bool weight_is_vector(model_weight_id id) { return rows[id].cols[0] == '1'; }

void weight_size(const model_config *c, model_weight_id id, int64_t *n_rows, int64_t *n_cols)
{
    *n_rows = by_letter(c, rows[id].rows[0]);
    *n_cols = by_letter(c, rows[id].cols[0]);
}

bool weight_exists(const model_config *c, model_weight_id id)
{
    switch (rows[id].when) {
    case WHEN_ALWAYS: return true;
    case WHEN_BIAS_QKV: return c->bias || c->bias_qkv;
    case WHEN_BIAS_O: return c->bias || c->bias_o;
    case WHEN_BIAS_MLP: return c->bias || c->bias_mlp;
    case WHEN_LNORM: return c->norm == MODEL_NORM_LAYER;
    case WHEN_GATED: return model_gated(c);
    case WHEN_BIAS_GATED: return (c->bias || c->bias_mlp) && model_gated(c);
    case WHEN_QKN: return c->qk_norm;
    case WHEN_HEAD: return !c->tied;
    case WHEN_POS: return c->rope == MODEL_ROPE_NONE;
    case WHEN_POST: return c->post_norm;
    }
    return false;
}

size_t model_weights(const model_config *c, model_weight *out, size_t max)
{
    size_t n = 0;
    dtype dt = c->dt ? c->dt : DT_F16;
    for (int layer = -1; layer < c->n_layers; layer++)
        for (int id = 0; id < MW_COUNT; id++) {
            if (weight_is_layers(id) != (layer >= 0) || !weight_exists(c, id)) continue;
            if (out && n < max) {
                int64_t r, k;
                weight_size(c, id, &r, &k);
                model_weight w = { .id = (model_weight_id)id,
                                   .layer = layer,
                                   .part = -1,
                                   .type = weight_is_vector((model_weight_id)id) ? TTYPE(dt, 1, r, 1, 1)
                                                                                 : TTYPE(dt, r, k, 1, 1) };
                if (layer >= 0) snprintf(w.name, sizeof w.name, "layer%d.%s", layer, rows[id].name);
                else snprintf(w.name, sizeof w.name, "%s", rows[id].name);
                out[n] = w;
            }
            n++;
        }
    return n;
}

int64_t model_params(const model_config *c)
{
    int64_t total = 0;
    for (int id = 0; id < MW_COUNT; id++) {
        if (!weight_exists(c, id)) continue;
        int64_t r, k;
        weight_size(c, id, &r, &k);
        total += r * k * (weight_is_layers(id) ? c->n_layers : 1);
    }
    return total;
}
