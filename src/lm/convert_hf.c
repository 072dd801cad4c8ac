/* convert_hf.c: models as safetensors with Hugging Face names: a folder people's tools open, or one file with the
 * configuration in its metadata; and as a folder of .npy files under our own names.
 *
 * A folder's tensors may be spread over several files of a bounded size, "model-00001-of-00003.safetensors", with an
 * index that says what is where.
 *
 * Quantised matrices have no common form there. They stand under their canonical names: "layer0.wq.codes" (int8
 * [rows, cols], or uint8 [rows, cols / 2] with two 4-bit codes a byte, low first) with ".scale" [rows, blocks] or
 * ".table" [16]; the rest is as ever. */
#include <stdlib.h>

#include "format/npy.h"
#include "lm/convert_int.h"

typedef struct {
    model_weight_id id;
    int layer;
    size_t at[2];  /* the tensors of the file it fills; [1]: scales or table */
    lm_form form;
    dtype dt;
    bool turned;   /* stored (inputs, outputs) */
    int third;     /* 1, 2: its bytes go with those of the first; -1: alone */
    int shard;     /* the file it goes into */
    char name[140];
} item;

typedef struct {
    conversion *v;
    safetensors_out *w;
    VEC(item) items;
    arena mem;
    model_config c; /* the target's */
    int shards;
    uint64_t bytes;     /* of all tensors */
    const char *file;   /* the shard under way, for the index */
    strbuf index;       /* members of weight_map */
} sheet;

typedef struct {
    safetensors_out *w;
    size_t at;
} slot;
static an_status put_slot(void *ctx, const void *p, size_t n, diag *d)
{
    slot *s = ctx;
    return safetensors_put(s->w, s->at, p, n, d);
}

static lm_form form_of(const conversion *v, model_weight_id id, int layer)
{
    const store *s = store_at(v->m, id, layer);
    if (v->form == LM_DENSE || !weight_is_matrix(id) || id == MW_POS) return LM_DENSE;
    return v->form != LM_INT8 && s->cols % 2 ? LM_INT8 : v->form;
}

static an_status declare_tensor(sheet *h, const char *name, dtype dt, int rank, const int64_t *dim, size_t *at, diag *d)
{
    sb_puts(&h->index, h->index.n ? ",\n    " : "    ");
    sb_json(&h->index, name, strlen(name));
    sb_puts(&h->index, ": ");
    sb_json(&h->index, h->file, strlen(h->file));
    return safetensors_declare(h->w, name, dt, rank, dim, at, d);
}

static an_status declare_codes(sheet *h, item *it, const store *s, diag *d)
{
    char name[80];
    bool wide = it->form == LM_INT8, table = it->form == LM_PALETTE4;
    const dtype with = store_scale_type(s, it->form);
    weight_label(it->id, it->layer, ".codes", name, sizeof name);
    TRY(declare_tensor(h, name, wide ? DT_I8 : DT_U8, 2, (const int64_t[]){ s->rows, wide ? s->cols : s->cols / 2 },
                       &it->at[0], d));
    weight_label(it->id, it->layer, table ? ".table" : ".scale", name, sizeof name);
    if (table) return declare_tensor(h, name, with, 1, (const int64_t[]){ 16 }, &it->at[1], d);
    return declare_tensor(h, name, with, 2, (const int64_t[]){ s->rows, store_scale_cols(s, it->form) }, &it->at[1], d);
}

static an_status declare(sheet *h, item *it, diag *d)
{
    const store *s = store_at(h->v->m, it->id, it->layer);
    if (it->form != LM_DENSE) return declare_codes(h, it, s, d);
    if (it->third > 0) return AN_OK; /* the first of the three declares it */
    int64_t many = it->third == 0 ? 3 : 1, dim[2] = { s->rows * (it->turned ? 1 : many), s->cols };
    if (it->turned) dim[0] = s->cols, dim[1] = s->rows * many;
    return declare_tensor(h, it->name, it->dt, weight_is_matrix(it->id) ? 2 : 1, dim, &it->at[0], d);
}

/* Bytes an item adds to its file. */
static uint64_t bytes_of(const item *it, const store *s)
{
    uint64_t n = (uint64_t)s->rows * (uint64_t)s->cols;
    if (it->form == LM_DENSE) return n * (uint64_t)dtype_bits(it->dt) / 8;
    uint64_t with = it->form == LM_PALETTE4 ? 16 : (uint64_t)s->rows * (uint64_t)store_scale_cols(s, it->form);
    return n / (it->form == LM_INT8 ? 1 : 2) + with * (uint64_t)dtype_bits(store_scale_type(s, it->form)) / 8;
}

static an_status name_item(const sheet *h, item *it, diag *d)
{
    lm_tensor t;
    const lm_model *like = h->v->o.named;
    if (!lm_hf_name(&h->c, it->id, it->layer, it->name, sizeof it->name, &it->third, &it->turned))
        return diag_fail(d, AN_BUG, NOWHERE, "no Hugging Face name for weight %d", (int)it->id);
    if (like && lm_tensor_info(like, it->id, it->layer, &t) && t.name[0] && strlen(t.name) < sizeof it->name)
        memcpy(it->name, t.name, strlen(t.name) + 1);
    return AN_OK;
}

/* Every tensor, and which file it goes into: in order, a new one when it would pass the limit. The parts of a fused
 * tensor stay together. */
static an_status plan(sheet *h, diag *d)
{
    conversion *v = h->v;
    uint64_t in_file = 0;
    for (int l = -1; l < v->m->c.n_layers; l++)
        for (int id = 0; id < MW_COUNT; id++) {
            const store *s = store_at(v->m, (model_weight_id)id, l);
            if (!s || s->kind == STORE_NONE) continue;
            item it = { .id = (model_weight_id)id,
                        .layer = l,
                        .form = form_of(v, (model_weight_id)id, l),
                        .dt = conversion_dtype(v, (model_weight_id)id, l) };
            TRY(name_item(h, &it, d));
            if (it.form != LM_DENSE) it.third = -1, it.turned = false;
            if (it.third >= 0) it.dt = conversion_fused(v, (model_weight_id)(id - it.third), l);
            uint64_t n = bytes_of(&it, s), whole = it.third == 0 ? 3 * n : n;
            if (v->o.shard && it.third <= 0 && in_file && whole > v->o.shard - MIN(in_file, v->o.shard))
                h->shards++, in_file = 0;
            it.shard = h->shards;
            in_file += n, h->bytes += n;
            if (!VEC_PUSH(&h->mem, &h->items, it)) return diag_nomem(d);
        }
    h->shards++;
    return AN_OK;
}

static an_status put_codes(sheet *h, const item *it, diag *d)
{
    lm_quantized q;
    slot codes = { h->w, it->at[0] }, scales = { h->w, it->at[1] };
    const dtype with = store_scale_type(store_at(h->v->m, it->id, it->layer), it->form);
    TRY(conversion_codes(h->v, it->id, it->layer, it->form, with, &q, d));
    size_t row = (size_t)(it->form == LM_INT8 ? q.cols : q.cols / 2), unit = (size_t)dtype_bits(with) / 8;
    TRY(conversion_reordered(h->v, it->id, q.q, q.rows, row, put_slot, &codes, d));
    TRY(q.table
            ? put_slot(&scales, q.table, 16 * unit, d)
            : conversion_reordered(h->v, it->id, q.scale, q.rows, (size_t)q.scale_cols * unit, put_slot, &scales, d));
    lm_release(h->v->m, it->id, it->layer);
    return AN_OK;
}

/* A tensor stored (inputs, outputs), with its two neighbours beside it when it is the first of three. */
static an_status put_turned(sheet *h, const item *it, diag *d)
{
    conversion *v = h->v;
    const store *s = store_at(v->m, it->id, it->layer);
    int64_t many = it->third == 0 ? 3 : 1, ld = s->rows * many;
    size_t unit = (size_t)dtype_bits(it->dt) / 8, bytes = (size_t)(ld * s->cols) * unit;
    unsigned char *buf = malloc(bytes);
    an_status st = buf ? AN_OK : diag_nomem(d);
    for (int64_t k = 0; k < many && !st; k++)
        st = store_columns(store_at(v->m, (model_weight_id)((int)it->id + k), it->layer), v->m->v, v->o.threads, 0,
                           s->rows, it->dt, buf + (size_t)(k * s->rows) * unit, ld, d);
    if (!st) st = safetensors_put(h->w, it->at[0], buf, bytes, d);
    free(buf);
    v->done.tensors += many;
    return st;
}

static an_status put_item(sheet *h, const item *it, diag *d)
{
    if (it->form != LM_DENSE) return put_codes(h, it, d);
    if (it->third > 0) return AN_OK;
    if (it->turned) return put_turned(h, it, d);
    slot to = { h->w, it->at[0] };
    for (int k = 0; k < (it->third == 0 ? 3 : 1); k++)
        TRY(conversion_rows(h->v, (model_weight_id)((int)it->id + k), it->layer, it->dt, NULL, put_slot, &to, d));
    return AN_OK;
}

static an_status put_nothing(void *ctx, const void *p, size_t n, diag *d)
{
    (void)ctx, (void)p, (void)n, (void)d;
    return AN_OK;
}

/* Rounding of turned tensors is found by reading them once more as rows. */
static an_status measure_turned(sheet *h, const item *it, diag *d)
{
    if (it->form != LM_DENSE || !it->turned || conversion_exact(store_at(h->v->m, it->id, it->layer), it->dt))
        return AN_OK;
    int64_t before = h->v->done.tensors;
    TRY(conversion_rows(h->v, it->id, it->layer, it->dt, NULL, put_nothing, NULL, d));
    h->v->done.tensors = before;
    return AN_OK;
}

static an_status target_config(sheet *h, diag *d)
{
    const char *why;
    h->c = h->v->m->c;
    if (h->c.rope != MODEL_ROPE_NONE) h->c.rope = MODEL_ROPE_HALF;
    h->v->rope = h->c.rope;
    family_id f = family_of(&h->c, &why);
    if (f != FAM_COUNT && !h->v->o.slopes) h->v->less = families[f].less;
    if (f == FAM_COUNT)
        return diag_fail(d, AN_INPUT, NOWHERE, "%.150s: no family of Hugging Face models has %s", h->v->m->path, why);
    return AN_OK;
}

static an_status fill_file(sheet *h, int shard, const char *config, diag *d)
{
    TRY(safetensors_put_meta(h->w, "format", "pt", d));
    if (config) TRY(safetensors_put_meta(h->w, "anneal.config", config, d));
    if (config) TRY(active_to_meta(h->v->m, h->w, d)); /* in a folder it is a file of its own */
    if (h->v->form != LM_DENSE) TRY(safetensors_put_meta(h->w, "anneal.quantize", lm_form_name(h->v->form), d));
    for (size_t i = 0; i < h->items.n; i++)
        if (h->items.at[i].shard == shard) TRY(declare(h, &h->items.at[i], d));
    for (size_t i = 0; i < h->items.n; i++) {
        if (h->items.at[i].shard != shard) continue;
        TRY(put_item(h, &h->items.at[i], d));
        TRY(measure_turned(h, &h->items.at[i], d));
    }
    return AN_OK;
}

static an_status write_file(sheet *h, int shard, const char *file, const char *config, diag *d)
{
    TRY(safetensors_create(file, &h->w, d));
    an_status st = fill_file(h, shard, config, d);
    if (st) safetensors_abandon(h->w);
    else st = safetensors_finish(h->w, d);
    path_info i;
    if (!st && path_look(file, &i)) h->v->done.bytes_out += i.bytes;
    return st;
}

an_status convert_safetensors(conversion *v, diag *d)
{
    sheet h = { .v = v, .file = "" };
    strbuf json = { 0 };
    an_status st = target_config(&h, d);
    if (!st) st = plan(&h, d);
    if (!st) st = lm_config_json(&h.c, &v->m->gen, &json, d);
    if (!st) st = write_file(&h, 0, v->out, json.at, d);
    sb_free(&json);
    sb_free(&h.index);
    arena_free(&h.mem);
    return st;
}

/* ---- folders ---- */

/* The file of that name that this one will replace is none of the model that is being read. */
static an_status replaces_none(const conversion *v, const char *name, diag *d)
{
    strbuf path = { 0 };
    if (!v->place) return AN_OK;
    sb_printf(&path, "%s/%s", v->place, name);
    an_status st = path.oom ? diag_nomem(d) : lm_apart(v->m, path.at, d);
    sb_free(&path);
    return st;
}

an_status write_in(const char *folder, const char *name, const void *p, size_t n, diag *d)
{
    strbuf path = { 0 };
    sb_printf(&path, "%s/%s", folder, name);
    an_status st = path.oom ? diag_nomem(d) : file_write(path.at, p, n, d);
    sb_free(&path);
    return st;
}

/* What goes with a model and is not ours to make: the vocabulary and how to talk to it. */
static an_status copy_companions(conversion *v, diag *d)
{
    static const char *const names[] = { "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "merges.txt", "special_tokens_map.json",
                                         "added_tokens.json", "chat_template.jinja", "generation_config.json" };
    if (v->m->origin != LM_FROM_HF) return AN_OK;
    an_status st = AN_OK;
    bool other = v->o.vocab != NULL; /* another vocabulary than the folder's own */
    for (size_t i = 0; i < COUNT(names) && !st; i++) {
        strbuf from = { 0 };
        path_info info;
        sb_printf(&from, "%s/%s", v->m->path, names[i]);
        if (from.oom) st = diag_nomem(d);
        else if (other && strcmp(names[i], "generation_config.json")) { /* not these */ }
        else if (path_look(from.at, &info) && !info.folder) {
            file_bytes f;
            st = file_map(from.at, &f, d);
            if (!st) {
                st = write_in(v->out, names[i], f.at, f.n, d);
                file_drop(&f);
                v->done.vocabulary |= !strncmp(names[i], "tokenizer.", 10) || !strcmp(names[i], "vocab.json");
            }
        }
        sb_free(&from);
    }
    return st;
}

static const char CONFIG[] = "config.json";

static an_status write_config(const conversion *v, const model_config *c, diag *d)
{
    strbuf json = { 0 };
    an_status st = lm_config_json(c, &v->m->gen, &json, d);
    if (!st) st = write_in(v->out, CONFIG, json.at, json.n, d);
    sb_free(&json);
    return st;
}

/* NULL: no memory. */
static const char *shard_name(sheet *h, int i)
{
    if (h->shards == 1) return "model.safetensors";
    return arena_printf(&h->mem, "model-%05d-of-%05d.safetensors", i + 1, h->shards);
}

static an_status write_index(const sheet *h, diag *d)
{
    strbuf b = { 0 };
    sb_printf(&b, "{\n  \"metadata\": {\"total_size\": %llu},\n  \"weight_map\": {\n%s\n  }\n}\n",
              (unsigned long long)h->bytes, h->index.at ? h->index.at : "");
    an_status st =
        b.oom || h->index.oom ? diag_nomem(d) : write_in(h->v->out, "model.safetensors.index.json", b.at, b.n, d);
    sb_free(&b);
    return st;
}

/* Weights of a folder: one file, or shards and their index. */
static an_status write_shards(sheet *h, diag *d)
{
    for (int i = 0; i < h->shards; i++) {
        const char *path = (h->file = shard_name(h, i)) ? arena_printf(&h->mem, "%s/%s", h->v->out, h->file) : NULL;
        if (!path) return diag_nomem(d);
        TRY(replaces_none(h->v, h->file, d));
        TRY(write_file(h, i, path, NULL, d));
    }
    h->v->done.shards = h->shards;
    return h->shards > 1 ? write_index(h, d) : AN_OK;
}

static an_status hides_shards(sheet *h, diag *d)
{
    path_info i;
    bool there;
    const char *one = arena_printf(&h->mem, "%s/model.safetensors", h->v->out);
    if (!one) return diag_nomem(d);
    if (h->shards == 1) return AN_OK;
    TRY(path_find(one, &there, &i, d));
    if (!there) return AN_OK;
    return diag_fail(
        d, AN_INPUT, NOWHERE,
        "%.200s is there, and readers would take it instead of %d shards: remove it, or write to another folder", one,
        h->shards);
}

/* Where the files of a folder go until all of them are there. */
static an_status enter(conversion *v, folder_out *f, diag *d)
{
    if (v->o.fresh) return dir_make(v->out, d);
    TRY(folder_begin(v->out, CONFIG, f, d));
    v->place = v->out, v->out = f->temp;
    /* the list of another model would hide tokens of this one */
    return v->m->active ? AN_OK : folder_drop(f, LM_ACTIVE_FILE, d);
}

static an_status leave(const conversion *v, folder_out *f, an_status st, diag *d)
{
    if (v->o.fresh) return st;
    if (!st) return folder_finish(f, d);
    folder_abandon(f);
    return st;
}

an_status convert_hf(conversion *v, diag *d)
{
    sheet h = { .v = v };
    folder_out f = { 0 };
    an_status st = target_config(&h, d);
    if (!st) st = plan(&h, d);
    if (!st) st = hides_shards(&h, d);
    if (!st) st = enter(v, &f, d);
    if (!st) st = write_shards(&h, d);
    if (!st) st = copy_companions(v, d);
    if (!st && v->o.vocab) st = convert_vocab_files(v, d);
    if (!st) st = active_write(v->m, v->out, d);
    if (!st) st = write_config(v, &h.c, d);
    st = leave(v, &f, st, d);
    sb_free(&h.index);
    arena_free(&h.mem);
    return st;
}

/* ---- .npy ---- */

typedef struct {
    unsigned char *at;
    size_t n;
} gather;
static an_status put_gather(void *ctx, const void *p, size_t n, diag *d)
{
    (void)d;
    gather *g = ctx;
    memcpy(g->at + g->n, p, n);
    g->n += n;
    return AN_OK;
}

static an_status write_npy(conversion *v, model_weight_id id, int layer, diag *d)
{
    const store *s = store_at(v->m, id, layer);
    dtype dt = conversion_dtype(v, id, layer);
    char name[64];
    if (dt == DT_BF16 && !v->o.dt) dt = DT_F32; /* .npy has no bf16; fp32 holds it */
    TRY(replaces_none(v, weight_label(id, layer, ".npy", name, sizeof name), d));
    weight_label(id, layer, "", name, sizeof name);
    int64_t dim[2] = { s->rows, s->cols };
    size_t bytes;
    if (!dtype_bytes(dt, s->rows * s->cols, &bytes)) return diag_nomem(d);
    gather g = { .at = malloc(bytes) };
    strbuf path = { 0 };
    sb_printf(&path, "%s/%s.npy", v->out, name);
    an_status st = g.at && !path.oom ? conversion_rows(v, id, layer, dt, NULL, put_gather, &g, d) : diag_nomem(d);
    if (!st) st = npy_write(path.at, dt, dim, weight_is_matrix(id) ? 2 : 1, g.at, d);
    free(g.at);
    sb_free(&path);
    v->done.bytes_out += bytes;
    return st;
}

static an_status write_arrays(conversion *v, diag *d)
{
    for (int l = -1; l < v->m->c.n_layers; l++)
        for (int id = 0; id < MW_COUNT; id++) {
            const store *s = store_at(v->m, (model_weight_id)id, l);
            if (s && s->kind != STORE_NONE) TRY(write_npy(v, (model_weight_id)id, l, d));
        }
    return AN_OK;
}

an_status convert_npy(conversion *v, diag *d)
{
    sheet h = { .v = v };
    folder_out f = { 0 };
    TRY(target_config(&h, d)); /* rows as a config.json would have them, so that the two describe each other */
    an_status st = enter(v, &f, d);
    if (!st) st = active_write(v->m, v->out, d);
    if (!st) st = write_arrays(v, d);
    if (!st) st = write_config(v, &h.c, d);
    return leave(v, &f, st, d);
}
