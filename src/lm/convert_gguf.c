/* convert_gguf.c: models as GGUF. Vectors are F32, as every reader wants them; matrices have the type they came in,
 * the one asked for, or blocks. A row that is no whole number of blocks stays F16. When 4-bit blocks are asked for,
 * the embedding and the classifier get Q8_0: they are what 4 bits hurt most. The vocabulary goes into the file
 * (convert_vocab.c), and the ids of a run over part of it: LM_ACTIVE_KEY. */
#include <math.h>
#include <stdlib.h>

#include "lm/convert_int.h"

typedef struct {
    model_weight_id id;
    int layer;
    size_t at;
    const block_format *type;
} item;

typedef struct {
    conversion *v;
    gguf_out *w;
    family_id fam;
    VEC(item) items;
    arena mem;
    size_t factors; /* tensor of angle divisors; SIZE_MAX: none */
} sheet;

typedef struct {
    gguf_out *w;
    size_t at;
} slot;
static an_status put_slot(void *ctx, const void *p, size_t n, diag *d)
{
    slot *s = ctx;
    return gguf_put(s->w, s->at, p, n, d);
}

/* ---- values ---- */

static an_status put_arch_u32(sheet *h, const char *tail, int64_t x, diag *d)
{
    char key[100];
    snprintf(key, sizeof key, "%s.%s", families[h->fam].gguf, tail);
    return gguf_put_u32(h->w, key, (uint32_t)x, d);
}

static an_status put_arch_f32(sheet *h, const char *tail, double x, diag *d)
{
    char key[100];
    snprintf(key, sizeof key, "%s.%s", families[h->fam].gguf, tail);
    return gguf_put_f32(h->w, key, (float)x, d);
}

static an_status put_scaling(sheet *h, const model_config *c, diag *d)
{
    const model_scaling *s = &c->scaling;
    char key[100];
    if (s->kind == MODEL_SCALE_NONE) return AN_OK;
    if (s->kind == MODEL_SCALE_LLAMA3) /* readers take it from a tensor */
        return gguf_put_array(h->w, LM_SCALING_KEY, GGUF_F64,
                              (const double[]){ s->factor, s->low, s->high, s->original }, 4, d);
    if (s->kind == MODEL_SCALE_YARN && (s->low != 1 || s->high != 32))
        return diag_fail(d, AN_INPUT, NOWHERE,
                         "%.150s: YaRN with beta_slow %g and beta_fast %g; GGUF files mean 1 and 32", h->v->m->path,
                         s->low, s->high);
    snprintf(key, sizeof key, "%s.rope.scaling.type", families[h->fam].gguf);
    const char *type = s->kind == MODEL_SCALE_LINEAR ? "linear" : "yarn";
    TRY(gguf_put_text(h->w, key, type, strlen(type), d));
    TRY(put_arch_f32(h, "rope.scaling.factor", s->factor, d));
    if (s->kind == MODEL_SCALE_LINEAR) return AN_OK;
    if (s->attn > 0) TRY(put_arch_f32(h, "rope.scaling.attn_factor", s->attn / (0.1 * log(s->factor) + 1), d));
    return put_arch_u32(h, "rope.scaling.original_context_length", (int64_t)s->original, d);
}

/* Both caps have a default in such files, so a model without them says 0. The scale of queries has no key: it
 * follows from the sizes. */
static an_status put_gemma2(sheet *h, const model_config *c, diag *d)
{
    if (c->query_dim != gemma2_query_dim(c))
        return diag_fail(
            d, AN_INPUT, NOWHERE,
            "%.150s: queries scaled by the root of %g; a GGUF file of architecture gemma2 with these sizes means %g",
            h->v->m->path, c->query_dim != 0 ? c->query_dim : (double)c->head_dim,
            gemma2_query_dim(c) != 0 ? gemma2_query_dim(c) : (double)c->head_dim);
    TRY(put_arch_f32(h, "attn_logit_softcapping", c->attn_softcap, d));
    return put_arch_f32(h, "final_logit_softcapping", c->softcap, d);
}

static an_status put_values(sheet *h, diag *d)
{
    const model_config *c = &h->v->m->c;
    const gguf *from = h->v->m->gg;
    bool gpt2 = h->fam == FAM_GPT2;
    TRY(gguf_put_text(h->w, "general.architecture", families[h->fam].gguf, strlen(families[h->fam].gguf), d));
    gguf_str name = { c->name, strlen(c->name) };
    if (from) (void)gguf_text(from, "general.name", &name); /* absent: its own name stays */
    TRY(gguf_put_text(h->w, "general.name", name.at, name.n, d));
    TRY(put_arch_u32(h, "context_length", c->context, d));
    TRY(put_arch_u32(h, "embedding_length", c->dim, d));
    TRY(put_arch_u32(h, "block_count", c->n_layers, d));
    TRY(put_arch_u32(h, "feed_forward_length", c->hidden, d));
    TRY(put_arch_u32(h, "attention.head_count", c->n_heads, d));
    TRY(put_arch_f32(h, gpt2 ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", c->norm_eps, d));
    if (!gpt2) {
        TRY(put_arch_u32(h, "attention.head_count_kv", c->n_kv_heads, d));
        TRY(put_arch_u32(h, "attention.key_length", c->head_dim, d));
        TRY(put_arch_u32(h, "attention.value_length", c->head_dim, d));
        TRY(put_arch_u32(h, "rope.dimension_count", c->head_dim, d));
        TRY(put_arch_f32(h, "rope.freq_base", c->rope_theta, d));
        TRY(put_arch_u32(h, "vocab_size", c->vocab, d));
        if (c->window) TRY(put_arch_u32(h, "attention.sliding_window", c->window, d));
        if (h->fam == FAM_GEMMA2) TRY(put_gemma2(h, c, d));
        TRY(put_scaling(h, c, d));
    }
    TRY(convert_vocab(h->v, h->w, d));
    return active_to_gguf(h->v->m, h->w, d);
}

/* ---- tensors ---- */

static const block_format *type_of(const conversion *v, model_weight_id id, int layer)
{
    const store *s = store_at(v->m, id, layer);
    bool ends = id == MW_EMBED || id == MW_HEAD;
    if (!weight_is_matrix(id)) return block_of(BLOCK_F32);
    if (v->form != LM_DENSE && id != MW_POS) {
        const block_format *f = v->form == LM_INT4 && ends ? block_of(BLOCK_Q8_0) : v->block;
        return s->cols % f->elems ? block_of(BLOCK_F16) : f;
    }
    if (!v->o.dt && s->kind == STORE_BLOCKS) return s->block; /* as it came */
    dtype dt = conversion_dtype(v, id, layer);
    return block_of(dt == DT_F16 ? BLOCK_F16 : dt == DT_BF16 ? BLOCK_BF16 : BLOCK_F32);
}

static an_status declare(sheet *h, model_weight_id id, int layer, diag *d)
{
    const store *s = store_at(h->v->m, id, layer);
    name_column col = gguf_column(h->fam);
    item it = { .id = id, .layer = layer, .type = type_of(h->v, id, layer) };
    char name[100];
    int third = name_third(col, id);
    if (!name_make(name_pattern(col, id), layer, name, sizeof name))
        return diag_fail(d, AN_INPUT, NOWHERE, "GGUF %s files have no tensor for weight %d", families[h->fam].gguf,
                         (int)id);
    for (int k = 1; k < 3 && third == 0; k++)
        if (type_of(h->v, (model_weight_id)((int)id + k), layer) != it.type)
            it.type = block_of(BLOCK_F32); /* one type for the three: the one that holds any */
    /* queries, keys and values follow each other in the table */
    if (third > 0) it.at = h->items.at[h->items.n - 1].at, it.type = h->items.at[h->items.n - 1].type;
    else
        TRY(gguf_declare(h->w, name, it.type, weight_is_matrix(id) ? 2 : 1,
                         (const int64_t[]){ s->rows * (third < 0 ? 1 : 3), s->cols }, &it.at, d));
    return VEC_PUSH(&h->mem, &h->items, it) ? AN_OK : diag_nomem(d);
}

/* Blocks were asked for, and some matrices have none. */
static void tell_of_others(sheet *h)
{
    int all = 0, others = 0;
    for (size_t i = 0; i < h->items.n; i++) {
        const item *it = &h->items.at[i];
        if (!weight_is_matrix(it->id) || it->id == MW_POS) continue;
        all++, others += it->type->elems == 1;
    }
    if (h->v->form != LM_DENSE && others)
        conversion_loses(h->v, "%d of %d matrices are not quantised, for their rows are no whole blocks of %d", others, all,
                         (int)h->v->block->elems);
}

static an_status put_factors(sheet *h, diag *d)
{
    model_config c = h->v->m->c;
    int64_t n = c.head_dim / 2;
    double *plain = malloc((size_t)n * sizeof *plain), *scaled = malloc((size_t)n * sizeof *scaled), scale;
    an_status st = plain && scaled ? AN_OK : diag_nomem(d);
    if (!st) {
        model_rope_steps(&c, scaled, &scale);
        c.scaling = (model_scaling){ 0 };
        model_rope_steps(&c, plain, &scale);
    }
    for (int64_t i = 0; i < n && !st; i++) {
        float x = (float)(plain[i] / scaled[i]);
        st = gguf_put(h->w, h->factors, &x, 4, d);
    }
    free(plain);
    free(scaled);
    return st;
}

static an_status fill(sheet *h, diag *d)
{
    lm_model *m = h->v->m;
    TRY(put_values(h, d));
    h->factors = SIZE_MAX;
    if (m->c.scaling.kind == MODEL_SCALE_LLAMA3)
        TRY(gguf_declare(h->w, "rope_freqs.weight", block_of(BLOCK_F32), 1, (const int64_t[]){ m->c.head_dim / 2 },
                         &h->factors, d));
    for (int l = -1; l < m->c.n_layers; l++)
        for (int id = 0; id < MW_COUNT; id++) {
            const store *s = store_at(m, (model_weight_id)id, l);
            if (s && s->kind != STORE_NONE) TRY(declare(h, (model_weight_id)id, l, d));
        }
    tell_of_others(h);
    if (h->factors != SIZE_MAX) TRY(put_factors(h, d));
    for (size_t i = 0; i < h->items.n; i++) {
        const item *it = &h->items.at[i];
        slot to = { h->w, it->at };
        TRY(conversion_rows(h->v, it->id, it->layer, it->type->dt, it->type, put_slot, &to, d));
    }
    return AN_OK;
}

an_status convert_gguf(conversion *v, diag *d)
{
    const char *why;
    sheet h = { .v = v, .fam = family_of(&v->m->c, &why) };
    if (h.fam == FAM_COUNT)
        return diag_fail(d, AN_INPUT, NOWHERE, "%.150s: no GGUF architecture has %s", v->m->path, why);
    if (v->m->c.softcap != 0 && h.fam != FAM_GEMMA2)
        return diag_fail(d, AN_INPUT, NOWHERE,
                         "%.150s: a GGUF file of architecture %s cannot say that the logits have a soft cap",
                         v->m->path, families[h.fam].gguf);
    v->rope = families[h.fam].gguf_rope;
    conversion_loses_sampling(v, "a GGUF");
    TRY(gguf_create(v->out, &h.w, d));
    an_status st = fill(&h, d);
    if (st) gguf_abandon(h.w);
    else st = gguf_finish(h.w, d);
    arena_free(&h.mem);
    path_info i;
    if (!st && path_look(v->out, &i)) v->done.bytes_out = i.bytes;
    return st;
}
