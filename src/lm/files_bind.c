/* files_bind.c: which tensor of a file is which tensor of the model. In: an opened file and its configuration.  Out:
 * a store for every tensor the configuration has. A tensor that is missing, has another shape, or that the
 * configuration has no use for is refused with its name and both values. */
#include <dirent.h>
#include <errno.h>
#include <math.h>

#include "base/io.h"
#include "lm/lm_int.h"

store *store_at(const lm_model *m, model_weight_id id, int layer)
{
    if ((unsigned)id >= MW_COUNT || layer < -1 || layer >= m->c.n_layers || weight_per_layer(id) != (layer >= 0))
        return NULL;
    return &m->stores[(size_t)id * (size_t)(m->c.n_layers + 1) + (size_t)(layer + 1)];
}

/* Calls fn for every tensor of the configuration. */
typedef an_status bind_fn(lm_model *m, model_weight_id id, int layer, store *s, void *ctx, diag *d);
static an_status each(lm_model *m, bind_fn *fn, void *ctx, diag *d)
{
    for (int id = 0; id < MW_COUNT; id++) {
        if (!weight_in(&m->c, (model_weight_id)id)) continue;
        bool layers = weight_per_layer((model_weight_id)id);
        for (int l = layers ? 0 : -1; l < (layers ? m->c.n_layers : 0); l++) {
            store *s = store_at(m, (model_weight_id)id, l);
            weight_shape(&m->c, (model_weight_id)id, &s->rows, &s->cols);
            s->ld = s->cols;
            s->name = "";
            TRY(fn(m, (model_weight_id)id, l, s, ctx, d));
        }
    }
    return AN_OK;
}

static an_status wrong_shape(diag *d, const char *file, const char *name, int rank, const int64_t *dim, int want_rank,
                             int64_t a, int64_t b)
{
    char got[100];
    size_t n = 0;
    got[0] = 0;
    for (int i = 0; i < rank && n < 80; i++)
        n += (size_t)snprintf(got + n, sizeof got - n, "%s%lld", i ? ", " : "", (long long)dim[i]);
    if (want_rank == 1)
        return diag_fail(d, AN_INPUT, NOWHERE,
                         "%.120s: tensor \"%.80s\" has shape [%s], the configuration wants [%lld]", file, name, got,
                         (long long)a);
    return diag_fail(d, AN_INPUT, NOWHERE,
                     "%.120s: tensor \"%.80s\" has shape [%s], the configuration wants [%lld, %lld]", file, name, got,
                     (long long)a, (long long)b);
}

/* ---- safetensors ---- */

typedef struct {
    const char *prefix;
    name_column col;
    str_map used; /* tensors some store took */
} st_binding;

/* Names carry the prefix of the model inside its wrapper, or none when the bare model was saved. */
static const char *find_prefix(const lm_model *m, name_column col)
{
    static const char *const tries[2][2] = { { "model.", "" }, { "transformer.", "" } };
    char name[120];
    for (int i = 0; i < 2; i++) {
        const char *p = tries[col == COL_GPT2][i];
        snprintf(name, sizeof name, "%s%s", p, name_pattern(col, MW_EMBED));
        if (safetensors_find(m->st, name)) return p;
    }
    return tries[col == COL_GPT2][0];
}

static an_status use(lm_model *m, st_binding *b, const safetensor *t, diag *d)
{
    return str_map_put(&m->mem, &b->used, t->name, strlen(t->name), 1) ? AN_OK : diag_nomem(d);
}

/* Our own quantised tensors: "layer0.wq.codes" with ".scale" or ".table". */
static an_status bind_codes(lm_model *m, st_binding *b, model_weight_id id, int layer, store *s, bool *found, diag *d)
{
    char name[80];
    const safetensor *codes = safetensors_find(m->st, weight_label(id, layer, ".codes", name, sizeof name));
    *found = codes != NULL;
    if (!codes) return AN_OK;
    const safetensor *scale = safetensors_find(m->st, weight_label(id, layer, ".scale", name, sizeof name));
    const safetensor *table =
        scale ? NULL : safetensors_find(m->st, weight_label(id, layer, ".table", name, sizeof name));
    const safetensor *with = scale ? scale : table;
    if (!with)
        return diag_fail(d, AN_INPUT, NOWHERE, "%.120s: tensor \"%.80s\" has neither a scale nor a table beside it",
                         codes->file, codes->name);
    bool bytes = codes->dt == DT_I8 && scale;
    int64_t wide = bytes ? s->cols : (s->cols + 1) / 2;
    if ((codes->dt != DT_U8 && !bytes) || codes->rank != 2 || codes->dim[0] != s->rows || codes->dim[1] != wide ||
        (!bytes && s->cols % 2))
        return wrong_shape(d, codes->file, codes->name, codes->rank, codes->dim, 2, s->rows, wide);
    if (with->dt != DT_F16 && with->dt != DT_F32)
        return diag_fail(d, AN_INPUT, NOWHERE, "%.120s: tensor \"%.80s\" is %s, wanted F16 or F32", with->file,
                         with->name, safetensors_dtype(with->dt));
    if (table && (table->rank != 1 || table->dim[0] != 16))
        return wrong_shape(d, table->file, table->name, table->rank, table->dim, 1, 16, 0);
    if (scale && (scale->rank != 2 || scale->dim[0] != s->rows || scale->dim[1] < 1 || s->cols % scale->dim[1]))
        return diag_fail(d, AN_INPUT, NOWHERE,
                         "%.120s: tensor \"%.80s\" has shape [%lld, %lld], wanted %lld rows and a divisor of %lld",
                         scale->file, scale->name, (long long)scale->dim[0],
                         (long long)(scale->rank > 1 ? scale->dim[1] : 0), (long long)s->rows, (long long)s->cols);
    s->kind = scale ? STORE_GROUPS : STORE_TABLE;
    s->dt = bytes ? DT_I8 : scale ? DT_I4 : DT_U4;
    s->name = codes->name;
    s->file = codes->file;
    s->type = bytes ? "int8" : scale ? "int4" : "palette4";
    s->data = codes->data;
    s->bytes = codes->bytes;
    s->scales = with->data;
    s->scale_dt = with->dt;
    s->group = scale ? s->cols / scale->dim[1] : 0;
    TRY(use(m, b, codes, d));
    return use(m, b, with, d);
}

static an_status bind_st(lm_model *m, model_weight_id id, int layer, store *s, void *ctx, diag *d)
{
    st_binding *b = ctx;
    char tail[100], name[140];
    bool found;
    TRY(bind_codes(m, b, id, layer, s, &found, d));
    if (found) return AN_OK;
    if (!name_make(name_pattern(b->col, id), layer, tail, sizeof tail))
        return diag_fail(d, AN_INPUT, NOWHERE,
                         "%.150s: the configuration wants a tensor (%s) that files of its family do not have", m->path,
                         weight_label(id, layer, "", tail, sizeof tail));
    snprintf(name, sizeof name, "%s%s", id == MW_HEAD ? "" : b->prefix, tail);
    const safetensor *t = safetensors_find(m->st, name);
    if (!t) return diag_fail(d, AN_INPUT, NOWHERE, "%.150s: tensor \"%.120s\" is missing", m->path, name);
    int third = name_third(b->col, id), vector = !weight_is_matrix(id);
    s->turned = b->col == COL_GPT2 && weight_is_matrix(id) && weight_per_layer(id);
    int64_t lines = s->turned ? s->cols : s->rows, len = s->turned ? s->rows : s->cols, many = third < 0 ? 1 : 3;
    /* a fused tensor holds its thirds side by side along the outputs */
    int64_t want0 = vector ? s->rows * many : s->turned ? lines : lines * many, want1 = s->turned ? len * many : len;
    if (t->rank != (vector ? 1 : 2) || t->dim[0] != want0 || (!vector && t->dim[1] != want1))
        return wrong_shape(d, t->file, t->name, t->rank, t->dim, vector ? 1 : 2, want0, want1);
    if (!dtype_is_float(t->dt))
        return diag_fail(d, AN_INPUT, NOWHERE, "%.120s: tensor \"%.80s\" holds %s, wanted floating-point numbers",
                         t->file, t->name, safetensors_dtype(t->dt));
    size_t unit = (size_t)dtype_bits(t->dt) / 8;
    int64_t skip = third <= 0 ? 0 : s->turned ? third * len : third * s->rows * s->cols;
    s->kind = STORE_PLAIN;
    s->dt = t->dt;
    s->ld = s->turned ? want1 : s->cols;
    s->name = t->name;
    s->file = t->file;
    s->type = safetensors_dtype(t->dt);
    s->data = (const unsigned char *)t->data + (size_t)skip * unit;
    s->bytes = (size_t)((lines - 1) * s->ld + len) * unit;
    if (vector) s->bytes = (size_t)s->rows * unit;
    if (weight_is_gain(id)) s->add = families[m->fam].less;
    return third > 0 ? AN_OK : use(m, b, t, d);
}

/* Buffers that some versions of the library saved along: masks and inverse frequencies, which the configuration
 * implies. */
static bool is_buffer(const char *name)
{
    static const char *const tails[] = { ".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq" };
    size_t n = strlen(name);
    for (size_t i = 0; i < COUNT(tails); i++) {
        size_t k = strlen(tails[i]);
        if (n > k && !strcmp(name + n - k, tails[i])) return true;
    }
    return false;
}

an_status bind_safetensors(lm_model *m, diag *d)
{
    st_binding b = { .col = hf_column(m->fam) };
    b.prefix = find_prefix(m, b.col);
    TRY(each(m, bind_st, &b, d));
    for (size_t i = 0; i < safetensors_count(m->st); i++) {
        const safetensor *t = safetensors_at(m->st, i);
        uint32_t k;
        if (str_map_get(&b.used, t->name, strlen(t->name), &k) || is_buffer(t->name)) continue;
        /* a second copy of the embedding is harmless, anything else is not */
        if (m->c.tied && !strcmp(t->name, "lm_head.weight")) {
            const store *e = store_at(m, MW_EMBED, -1);
            if (e->kind == STORE_PLAIN && t->bytes == e->bytes && !memcmp(t->data, e->data, t->bytes)) continue;
            return diag_fail(
                d, AN_INPUT, NOWHERE,
                "%.120s: lm_head.weight differs from the embedding, but the configuration ties them (tie_word_embeddings)",
                t->file);
        }
        return diag_fail(d, AN_INPUT, NOWHERE, "%.150s: tensor \"%.120s\" is not one this configuration (%s) has",
                         t->file, t->name, families[m->fam].hf);
    }
    return AN_OK;
}

/* ---- GGUF ---- */

static an_status bind_gg(lm_model *m, model_weight_id id, int layer, store *s, void *ctx, diag *d)
{
    name_column col = gguf_column(m->fam);
    char name[100];
    str_map *used = ctx;
    if (!name_make(name_pattern(col, id), layer, name, sizeof name))
        return diag_fail(d, AN_INPUT, NOWHERE,
                         "%.150s: the configuration wants a tensor (%s) that files of its architecture do not have",
                         m->path, weight_label(id, layer, "", name, sizeof name));
    const gguf_tensor *t = gguf_find(m->gg, name);
    if (!t) return diag_fail(d, AN_INPUT, NOWHERE, "%.150s: tensor \"%.100s\" is missing", m->path, name);
    int third = name_third(col, id);
    bool vector = !weight_is_matrix(id);
    int64_t want = s->rows * (third < 0 ? 1 : 3);
    if (t->rank != (vector ? 1 : 2) || t->dim[0] != want || (!vector && t->dim[1] != s->cols))
        return wrong_shape(d, m->path, t->name, t->rank, t->dim, vector ? 1 : 2, want, s->cols);
    if (!block_readable(t->type) || (t->type->dt && !dtype_is_float(t->type->dt)))
        return diag_fail(d, AN_INPUT, NOWHERE,
                         "%.150s: tensor \"%.80s\" is stored as %s, which cannot be read as weights here", m->path,
                         t->name, t->type->name);
    size_t bytes = 0;
    if (!block_bytes(t->type, s->rows * s->cols, &bytes))
        return diag_fail(d, AN_INPUT, NOWHERE,
                         "%.150s: tensor \"%.80s\": a third of it is no whole number of %s blocks", m->path, t->name,
                         t->type->name);
    s->kind = t->type->dt ? STORE_PLAIN : STORE_BLOCKS;
    s->dt = t->type->dt;
    s->block = t->type;
    s->name = t->name;
    s->file = m->path;
    s->type = t->type->name;
    s->data = (const unsigned char *)t->data + (third > 0 ? (size_t)third * bytes : 0);
    s->bytes = bytes;
    return str_map_put(&m->mem, used, t->name, strlen(t->name), 1) ? AN_OK : diag_nomem(d);
}

an_status bind_gguf(lm_model *m, diag *d)
{
    str_map used = { 0 };
    TRY(each(m, bind_gg, &used, d));
    for (size_t i = 0; i < gguf_tensor_count(m->gg); i++) {
        const gguf_tensor *t = gguf_tensor_at(m->gg, i);
        uint32_t k;
        if (str_map_get(&used, t->name, strlen(t->name), &k)) continue;
        /* read with the configuration */
        if (!strcmp(t->name, "rope_freqs.weight") && m->c.rope != MODEL_ROPE_NONE) continue;
        return diag_fail(d, AN_INPUT, NOWHERE, "%.150s: tensor \"%.100s\" is not one this architecture (%s) has",
                         m->path, t->name, families[m->fam].gguf);
    }
    return AN_OK;
}

/* ---- llama2.c ---- */

static an_status bind_l2c(lm_model *m, model_weight_id id, int layer, store *s, void *ctx, diag *d)
{
    (void)ctx;
    for (size_t i = 0; i < L2C_COUNT; i++) {
        llama2c_tensor t;
        if (llama2c_weight[i] != id) continue;
        if (!llama2c_get(&m->l2c, (llama2c_id)i, MAX(layer, 0), &t) || t.rows != s->rows || t.cols != s->cols) break;
        s->kind = t.scales ? STORE_GROUPS : STORE_PLAIN;
        s->dt = t.scales ? DT_I8 : DT_F32;
        s->name = llama2c_name((llama2c_id)i);
        s->file = m->path;
        s->type = t.scales ? "int8" : "F32";
        s->data = t.data;
        s->bytes = t.bytes;
        s->scales = t.scales;
        s->scale_dt = t.scales ? DT_F32 : DT_NONE;
        s->group = t.scales ? m->l2c.shape.group : 0;
        return AN_OK;
    }
    return diag_fail(d, AN_BUG, NOWHERE, "%.150s: llama2.c file has no tensor %d", m->path, (int)id);
}

an_status bind_llama2c(lm_model *m, diag *d) { return each(m, bind_l2c, NULL, d); }

/* ---- a folder of .npy files ---- */

static an_status bind_array(lm_model *m, model_weight_id id, int layer, store *s, void *ctx, diag *d)
{
    char label[64];
    npy_file f;
    path_info info;
    str_map *used = ctx;
    const char *path = arena_printf(&m->mem, "%s/%s", m->path, weight_label(id, layer, ".npy", label, sizeof label));
    if (!path) return diag_nomem(d);
    if (!path_look(path, &info))
        return diag_fail(d, AN_INPUT, NOWHERE, "%.150s: tensor \"%.60s\" is missing", m->path, label);
    TRY(npy_open(path, &f, d));
    if (!VEC_PUSH(&m->mem, &m->npy, f)) {
        npy_close(&f);
        return diag_nomem(d);
    }
    const npy_array *a = &f.array;
    bool vector = !weight_is_matrix(id);
    if (a->rank != (vector ? 1 : 2) || a->dim[0] != s->rows || (!vector && a->dim[1] != s->cols))
        return wrong_shape(d, m->path, label, a->rank, a->dim, vector ? 1 : 2, s->rows, s->cols);
    if (!dtype_is_float(a->dt))
        return diag_fail(d, AN_INPUT, NOWHERE, "%.150s: it holds %s, wanted floating-point numbers", path,
                         dtype_name(a->dt));
    s->kind = STORE_PLAIN;
    s->dt = a->dt;
    s->name = arena_str(&m->mem, weight_label(id, layer, "", label, sizeof label));
    s->file = path;
    s->type = dtype_name(a->dt);
    s->data = a->data;
    s->bytes = a->bytes;
    if (weight_is_gain(id)) s->add = families[m->fam].less;
    const char *tail = strrchr(path, '/') + 1;
    return s->name && str_map_put(&m->mem, used, tail, strlen(tail), 1) ? AN_OK : diag_nomem(d);
}

an_status bind_npy(lm_model *m, diag *d)
{
    str_map used = { 0 };
    TRY(each(m, bind_array, &used, d));
    DIR *p = opendir(m->path);
    an_status st = p ? AN_OK : file_fail("list", m->path, d);
    for (struct dirent *e; !st && (errno = 0, e = readdir(p));) {
        size_t n = strlen(e->d_name);
        uint32_t k;
        if (n > 4 && !strcmp(e->d_name + n - 4, ".npy") && !str_map_get(&used, e->d_name, n, &k))
            st = diag_fail(d, AN_INPUT, NOWHERE, "%.150s: \"%.80s\" is not a tensor this configuration (%s) has",
                           m->path, e->d_name, families[m->fam].hf);
    }
    if (!st && errno) st = file_fail("list", m->path, d);
    if (p) closedir(p);
    return st;
}

/* ---- weights from a seed ---- */

static an_status hold(lm_model *m, store *s, diag *d)
{
    const dtype dt = m->o.dt == DT_NONE ? DT_F16 : m->o.dt;
    size_t bytes;
    unsigned char *x = dtype_bytes(dt, s->rows * s->cols, &bytes) ? arena_take(&m->mem, bytes, 1, 64) : NULL;
    if (!x) return diag_nomem(d);
    TRY(store_rows(s, m->v, m->o.threads, 0, s->rows, dt, x, s->cols, d));
    s->kind = STORE_PLAIN;
    s->dt = dt;
    s->ld = s->cols;
    s->data = x;
    s->bytes = bytes;
    return AN_OK;
}

/* As GPT-2 and its successors start: a bell of deviation 0.02, narrower by the depth where a branch joins the
 * residual; gains one, biases zero. A tensor's numbers depend on its name and the seed alone. */
static an_status bind_seed(lm_model *m, model_weight_id id, int layer, store *s, void *ctx, diag *d)
{
    (void)ctx;
    char name[60];
    weight_label(id, layer, "", name, sizeof name);
    bool joins = id == MW_WO || id == MW_W2, gain = weight_is_gain(id) || id == MW_Q_NORM || id == MW_K_NORM;
    s->kind = STORE_RANDOM;
    s->file = m->path;
    s->type = "seed";
    s->seed = hash_bytes(name, strlen(name), m->o.seed);
    s->mean = gain ? 1 : 0;
    s->std = !weight_is_matrix(id) ? 0 : joins ? (float)(0.02 / sqrt(2.0 * (double)m->c.n_layers)) : 0.02f;
    return m->o.rows_held && (id == MW_EMBED || id == MW_POS) ? hold(m, s, d) : AN_OK;
}

an_status bind_random(lm_model *m, diag *d) { return each(m, bind_seed, NULL, d); }

/* ---- weights from the caller ---- */

typedef struct {
    lm_fetch *get;
    void *user;
} fetcher;

static an_status bind_fetched(lm_model *m, model_weight_id id, int layer, store *s, void *ctx, diag *d)
{
    const fetcher *f = ctx;
    float *x = TAKE(&m->mem, float, (size_t)(s->rows * s->cols));
    if (!x) return diag_nomem(d);
    s->kind = STORE_PLAIN;
    s->dt = DT_F32;
    s->file = m->path;
    s->type = "F32";
    s->data = (const unsigned char *)x;
    s->bytes = (size_t)(s->rows * s->cols) * sizeof *x;
    return f->get(f->user, id, layer, x, d);
}

an_status bind_memory(lm_model *m, lm_fetch *get, void *user, diag *d)
{
    return each(m, bind_fetched, &(fetcher){ get, user }, d);
}
