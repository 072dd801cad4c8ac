/* files.c: opening a model, whatever holds it. In: a path or a preset's name.  Out: a configuration and a store for
 * each of its tensors, or a message that says what is wrong where. */
#include <stdlib.h>

#include "lm/lm_int.h"

static an_status take_config(lm_model *m, diag *d)
{
    const char *why;
    m->fam = family_of(&m->c, &why);
    if (m->fam == FAM_COUNT)
        return diag_fail(d, AN_INPUT, NOWHERE, "%.200s: %s: no family supported here has that", m->path, why);
    m->c.dt = m->o.dt ? m->o.dt : DT_F16;
    m->stores = TAKE(&m->mem, store, (size_t)MW_COUNT * (size_t)(m->c.n_layers + 1));
    return m->stores ? AN_OK : diag_nomem(d);
}

/* A file in the folder of `path` (folder: path itself). Lives in the model. NULL: no memory. */
static char *beside(lm_model *m, const char *path, bool folder, const char *name)
{
    const char *cut = folder ? NULL : strrchr(path, '/');
    if (folder) return arena_printf(&m->mem, "%s/%s", path, name);
    return arena_printf(&m->mem, "%.*s%s", cut ? (int)(cut - path + 1) : 0, path, name);
}

static bool is_there(const char *path)
{
    path_info i;
    return path && path_look(path, &i) && !i.folder;
}

/* ---- configurations beside weights ---- */

static an_status read_config(lm_model *m, const char *file, diag *d)
{
    json_t *top;
    TRY(json_file(file, &top, d));
    an_status st = config_from_json(file, top, &m->c, &m->gen, d);
    json_decref(top);
    return st;
}

static an_status read_generation(lm_model *m, const char *file, diag *d)
{
    if (!is_there(file)) return AN_OK;
    json_t *top;
    TRY(json_file(file, &top, d));
    an_status st = generation_read(file, top, m->c.vocab, &m->gen, d);
    json_decref(top);
    return st;
}

/* A line of a configuration's text, without what joins it to the next. */
static int line_length(const char *s)
{
    size_t n = strcspn(s, "\n");
    return (int)(n && s[n - 1] == ',' ? n - 1 : n);
}

/* A file that brings its configuration, beside a config.json of something else: which of them its numbers are meant
 * for nobody can tell. */
static an_status same_config(const lm_model *m, const char *weights, const char *config, const char *own, diag *d)
{
    model_config c;
    lm_generation g;
    strbuf a = { 0 }, b = { 0 };
    an_status st = lm_config_read(weights, own, strlen(own), &c, &g, d);
    if (!st) st = lm_config_json(&c, NULL, &a, d);
    if (!st) st = lm_config_json(&m->c, NULL, &b, d);
    if (!st && strcmp(a.at, b.at)) {
        const char *x = a.at, *y = b.at;
        while (line_length(x) == line_length(y) && !strncmp(x, y, (size_t)line_length(x)))
            x += strcspn(x, "\n") + 1, y += strcspn(y, "\n") + 1;
        x += strspn(x, " "), y += strspn(y, " ");
        st = diag_fail(d, AN_INPUT, NOWHERE, "%.100s: its metadata say %.*s where %.100s beside it says %.*s", weights,
                       MIN(line_length(x), 70), x, config, MIN(line_length(y), 70), y);
    }
    sb_free(&a);
    sb_free(&b);
    return st;
}

/* ---- one opener for each kind ---- */

static an_status open_safetensors(lm_model *m, const char *weights, const char *config, diag *d)
{
    TRY(safetensors_open(weights, &m->st, d));
    const char *own = safetensors_meta(m->st, "anneal.config");
    if (is_there(config)) {
        TRY(read_config(m, config, d));
        if (own) TRY(same_config(m, weights, config, own, d));
    } else if (own) TRY(lm_config_read(weights, own, strlen(own), &m->c, &m->gen, d));
    else
        return diag_fail(d, AN_INPUT, NOWHERE, "%.180s: no %.150s beside it, and no configuration in its metadata",
                         weights, config);
    TRY(take_config(m, d));
    return bind_safetensors(m, d);
}

/* A folder of checkpoints names its newest in a file `latest`: go on there. */
static an_status follow_latest(lm_model *m, diag *d)
{
    char *config = beside(m, m->path, true, "config.json"), *latest = beside(m, m->path, true, "latest");
    file_bytes f;
    if (!config || !latest) return diag_nomem(d);
    if (is_there(config) || !is_there(latest)) return AN_OK;
    TRY(file_read_plain(latest, true, 4096, &f, d));
    size_t n = strcspn((const char *)f.at, "\r\n");
    bool plain = n && n < 100 && f.at[0] != '.' && !memchr(f.at, '/', n);
    char *to = plain ? arena_printf(&m->mem, "%s/%.*s", m->path, (int)n, (const char *)f.at) : NULL;
    file_drop(&f);
    if (!plain)
        return diag_fail(d, AN_INPUT, NOWHERE, "%.200s: it should hold the name of a checkpoint in the same folder",
                         latest);
    if (!to) return diag_nomem(d);
    m->path = to;
    return AN_OK;
}

static an_status open_npy(lm_model *m, const char *config, diag *d)
{
    m->origin = LM_FROM_NPY;
    TRY(read_config(m, config, d));
    TRY(take_config(m, d));
    return bind_npy(m, d);
}

static an_status open_folder(lm_model *m, diag *d)
{
    TRY(follow_latest(m, d));
    char *config = beside(m, m->path, true, "config.json"), *one = beside(m, m->path, true, "model.safetensors");
    char *index = beside(m, m->path, true, "model.safetensors.index.json"),
         *gen = beside(m, m->path, true, "generation_config.json");
    char *active = beside(m, m->path, true, LM_ACTIVE_FILE), *npy = beside(m, m->path, true, "embed.npy");
    if (!config || !one || !index || !gen || !active || !npy) return diag_nomem(d);
    m->origin = LM_FROM_HF;
    if (!is_there(config)) return diag_fail(d, AN_INPUT, NOWHERE, "%.200s: a folder without config.json", m->path);
    const char *weights = is_there(one) ? one : is_there(index) ? index : NULL;
    if (!weights && !is_there(npy))
        return diag_fail(d, AN_INPUT, NOWHERE,
                         "%.200s: neither model.safetensors, nor model.safetensors.index.json, nor embed.npy is in it",
                         m->path);
    TRY(weights ? open_safetensors(m, weights, config, d) : open_npy(m, config, d));
    TRY(active_read(m, active, d));
    return read_generation(m, gen, d);
}

static an_status open_single(lm_model *m, diag *d)
{
    char *config = beside(m, m->path, false, "config.json"), *gen = beside(m, m->path, false, "generation_config.json");
    if (!config || !gen) return diag_nomem(d);
    m->origin = LM_FROM_SAFETENSORS;
    TRY(open_safetensors(m, m->path, config, d));
    TRY(active_from_meta(m, d));
    return read_generation(m, gen, d);
}

static an_status open_llama2c(lm_model *m, diag *d)
{
    m->origin = LM_FROM_LLAMA2C;
    TRY(llama2c_open(m->path, &m->l2c, d));
    m->has_l2c = true;
    m->gen.bos = 1;
    m->gen.eos[0] = 2;
    m->gen.n_eos = 1;
    TRY(config_from_llama2c(m->path, &m->l2c.shape, &m->c, d));
    TRY(take_config(m, d));
    return bind_llama2c(m, d);
}

static an_status open_gguf(lm_model *m, diag *d)
{
    m->origin = LM_FROM_GGUF;
    TRY(gguf_open(m->path, &m->gg, d));
    TRY(config_from_gguf(m->gg, &m->c, &m->gen, d));
    TRY(take_config(m, d));
    TRY(active_from_gguf(m, d));
    return bind_gguf(m, d);
}

static an_status open_seed(lm_model *m, const model_config *preset, diag *d)
{
    m->origin = LM_FROM_SEED;
    if (preset) m->c = *preset;
    else TRY(read_config(m, m->path, d));
    TRY(take_config(m, d));
    return bind_random(m, d);
}

static an_status start(lm_model *m, const char *name, diag *d)
{
    m->path = arena_str(&m->mem, name);
    if (!m->path) return diag_nomem(d);
    if (m->o.dt && m->o.dt != DT_F16 && m->o.dt != DT_BF16 && m->o.dt != DT_F32)
        return diag_fail(d, AN_INPUT, NOWHERE, "weights as %s; fp16, bf16 and fp32 are supported", dtype_name(m->o.dt));
    uint32_t isa;
    TRY(isa_have(&isa, d));
    m->v = vec_pick(isa);
    generation_default(&m->gen);
    return AN_OK;
}

/* ---- what is it ---- */

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), k = strlen(tail);
    return n >= k && !strcmp(s + n - k, tail);
}

static an_status open_file(lm_model *m, uint64_t bytes, diag *d)
{
    if (ends_with(m->path, ".index.json")) return open_single(m, d);
    if (ends_with(m->path, ".json")) return open_seed(m, NULL, d);
    file_bytes f;
    unsigned char head[16] = { 0 };
    TRY(file_map(m->path, &f, d));
    memcpy(head, f.at, MIN(f.n, sizeof head));
    file_drop(&f);
    if (!memcmp(head, "GGUF", 4)) return open_gguf(m, d);
    uint64_t len = 0;
    for (int i = 8; i-- > 0;) len = len << 8 | head[i];
    if (bytes > 8 && head[8] == '{' && len <= bytes - 8) return open_single(m, d);
    if (ends_with(m->path, ".safetensors")) return open_single(m, d);
    if (ends_with(m->path, ".gguf")) return open_gguf(m, d);
    diag why = { 0 }; /* nothing marks a llama2.c file of version 0: say what else was looked for */
    an_status st = open_llama2c(m, &why);
    if (st) return diag_fail(d, st, NOWHERE, "%s%s", why.msg, m->has_l2c ? "" : " (nor is it GGUF or safetensors)");
    return AN_OK;
}

static an_status open_any(lm_model *m, const char *what, diag *d)
{
    path_info i;
    TRY(start(m, what, d));
    if (path_look(what, &i)) return i.folder ? open_folder(m, d) : open_file(m, i.bytes, d);
    const model_config *preset = model_preset_find(what);
    if (preset) return open_seed(m, preset, d);
    return diag_fail(d, AN_INPUT, NOWHERE, "%.200s: no such file or folder, and no model preset of that name", what);
}

an_status lm_open(const char *what, const lm_options *o, lm_model **out, diag *d)
{
    *out = NULL;
    lm_model *m = calloc(1, sizeof *m);
    if (!m) return diag_nomem(d);
    if (o) m->o = *o;
    an_status st = open_any(m, what, d);
    if (st) lm_close(m);
    else *out = m;
    return st;
}

static an_status open_memory(lm_model *m, const char *name, const model_config *c, const lm_generation *g,
                             lm_fetch *get, void *user, diag *d)
{
    TRY(start(m, name, d));
    m->origin = LM_FROM_MEMORY;
    m->c = *c;
    if (g) m->gen = *g;
    TRY(take_config(m, d));
    return bind_memory(m, get, user, d);
}

an_status lm_from_memory(const char *name, const model_config *c, const lm_generation *g, lm_fetch *get, void *user,
                         const lm_options *o, lm_model **out, diag *d)
{
    *out = NULL;
    lm_model *m = calloc(1, sizeof *m);
    if (!m) return diag_nomem(d);
    if (o) m->o = *o;
    an_status st = open_memory(m, name, c, g, get, user, d);
    if (st) lm_close(m);
    else *out = m;
    return st;
}

void lm_close(lm_model *m)
{
    if (!m) return;
    for (size_t i = 0; i < m->kept.n; i++) {
        free(m->kept.at[i].at);
        free(m->kept.at[i].at2);
    }
    lm_settle(m);
    safetensors_close(m->st);
    gguf_close(m->gg);
    if (m->has_l2c) llama2c_close(&m->l2c);
    for (size_t i = 0; i < m->npy.n; i++) npy_close(&m->npy.at[i]);
    arena_free(&m->mem);
    free(m);
}

const model_config *lm_config(const lm_model *m) { return &m->c; }
lm_origin lm_origin_of(const lm_model *m) { return m->origin; }
const char *lm_path(const lm_model *m) { return m->path; }
const vec_kernels *lm_kernels(const lm_model *m) { return m->v; }
pool *lm_threads(const lm_model *m) { return m->o.threads; }
const char *lm_family(const lm_model *m) { return families[m->fam].hf; }
const lm_generation *lm_generation_of(const lm_model *m) { return &m->gen; }

const char *lm_origin_name(lm_origin o)
{
    static const char *const names[] = {
        "Hugging Face folder", "safetensors file", "llama2.c file", "GGUF file", "seed", "memory",
        "folder of .npy files"
    };
    return (unsigned)o < COUNT(names) ? names[o] : "?";
}
