/* lm_shape.c: weights and ids between a run and its files; lm_shape.h says how the two differ. */
#include <math.h>
#include <stdlib.h>

#include "train/lm_shape.h"

/* ---- what the run trains ---- */

static an_status check(const lm_shape *s, const lm_shape_options *o, diag *d)
{
    bool fresh = lm_origin_of(s->start) == LM_FROM_SEED;
    if (o->zero && !fresh)
        return diag_fail(d, AN_USAGE, NOWHERE,
                         "%s has trained weights: output projections start at 0 in a model that begins from a seed",
                         lm_path(s->start));
    if (o->residual != 0 && o->residual != -1 && !(o->residual >= 1e-3 && o->residual <= 1))
        return diag_fail(d, AN_USAGE, NOWHERE, "residual branches scaled by %g; 0.001 to 1 is wanted", o->residual);
    if (o->softcap != 0 && !(o->softcap >= 1 && o->softcap <= 1e4))
        return diag_fail(d, AN_USAGE, NOWHERE, "a soft cap of %g; 1 to 10000 is wanted", o->softcap);
    return AN_OK;
}

an_status lm_shape_make(lm_shape *s, lm_model *start, const lm_shape_options *o, diag *d)
{
    *s = (lm_shape){ .start = start, .zero = o->zero };
    TRY(check(s, o, d));
    s->file = *lm_config(start);
    if (o->softcap != 0) s->file.softcap = o->softcap;
    s->file.alpha = 1;
    s->c = s->file;
    if (o->residual != 0) s->c.alpha = o->residual < 0 ? 1 / sqrt(2.0 * (double)s->c.n_layers) : o->residual;
    return AN_OK;
}

void lm_shape_free(lm_shape *s)
{
    arena_free(&s->mem);
    *s = (lm_shape){ 0 };
}

/* ---- the vocabulary that occurs ---- */

static an_status mark(const corpus *data, corpus_split split, int64_t seq, unsigned char *seen, int32_t *ids, diag *d)
{
    corpus_pos pos = { 0 };
    for (uint64_t n = corpus_samples(data, split); n; n--) {
        TRY(corpus_batch(data, split, 1, &pos, ids, d));
        for (int64_t i = 0; i <= seq; i++) seen[ids[i]] = 1;
    }
    return AN_OK;
}

static an_status cut_down(lm_shape *s, const unsigned char *seen, diag *d)
{
    size_t V = (size_t)s->file.vocab, n = 0;
    s->ids = TAKE(&s->mem, uint32_t, V);
    s->row_of = TAKE(&s->mem, int32_t, V);
    if (!s->ids || !s->row_of) return diag_nomem(d);
    for (size_t i = 0; i < V; i++) {
        s->row_of[i] = seen[i] ? (int32_t)n : -1;
        if (seen[i]) s->ids[n++] = (uint32_t)i;
    }
    s->n_ids = n;
    s->c.vocab = (int64_t)n;
    return AN_OK;
}

an_status lm_shape_compact(lm_shape *s, const corpus *data, int64_t seq, diag *d)
{
    unsigned char *seen = TAKE(&s->mem, unsigned char, (size_t)s->file.vocab);
    int32_t *ids = TAKE(&s->mem, int32_t, (size_t)seq + 1);
    if (!seen || !ids) return diag_nomem(d);
    TRY(mark(data, CORPUS_TRAIN, seq, seen, ids, d));
    TRY(mark(data, CORPUS_VALIDATION, seq, seen, ids, d));
    TRY(cut_down(s, seen, d));
    if (s->n_ids < 2)
        return diag_fail(d, AN_INPUT, NOWHERE, "%zu token of the vocabulary occurs in the data; at least 2 are wanted",
                         s->n_ids);
    return AN_OK;
}

an_status lm_shape_active(lm_shape *s, diag *d)
{
    return lm_active(s->start) ? cut_down(s, lm_active(s->start), d) : AN_OK;
}

void lm_shape_rows(const lm_shape *s, int32_t *ids, size_t n)
{
    for (size_t i = 0; s->row_of && i < n; i++) ids[i] = s->row_of[ids[i]];
}

/* ---- weights ---- */

/* A norm behind a matrix takes its size away again: there the norm's gains are what ends the branch. */
static bool ends_branch(const lm_shape *s, model_weight_id id)
{
    if (s->c.post_norm) return id == MW_POST1 || id == MW_POST2;
    return id == MW_WO || id == MW_BO || id == MW_W2 || id == MW_B2;
}

static bool by_id(const lm_shape *s, model_weight_id id) { return s->ids && (id == MW_EMBED || id == MW_HEAD); }

static void times(float *x, int64_t n, double by)
{
    for (int64_t i = 0; i < n; i++) x[i] = (float)(x[i] * by);
}

/* A tensor of the start as the pipeline has it. */
static an_status begin_with(const lm_shape *s, const model_weight *w, float *x, diag *d)
{
    int64_t rows = w->type.sh.d[0], cols = w->type.sh.d[1];
    lm_tensor t;
    if (!lm_tensor_info(s->start, w->id, w->layer, &t))
        return diag_fail(d, AN_BUG, NOWHERE, "the model has no %s", w->name);
    if (by_id(s, w->id)) {
        for (int64_t i = 0; i < rows; i++)
            TRY(lm_rows(s->start, w->id, w->layer, s->ids[i], 1, DT_F32, x + i * cols, d));
    } else TRY(lm_rows(s->start, w->id, w->layer, 0, t.rows, DT_F32, x, d));
    if (ends_branch(s, w->id)) times(x, rows * cols, s->zero ? 0 : 1 / s->c.alpha);
    return AN_OK;
}

an_status lm_shape_put(const lm_shape *s, pipeline *p, diag *d)
{
    size_t n = model_weights(&s->c, NULL, 0);
    model_weight *w = calloc(n, sizeof *w);
    if (!w) return diag_nomem(d);
    model_weights(&s->c, w, n);
    an_status st = AN_OK;
    for (size_t i = 0; i < n && !st; i++) {
        char name[48];
        int64_t all = w[i].type.sh.d[0] * w[i].type.sh.d[1];
        float *x = malloc((size_t)all * sizeof *x);
        st = x ? begin_with(s, &w[i], x, d) : diag_nomem(d);
        pipe_weight_name(w[i].id, w[i].layer, name, sizeof name);
        if (!st) st = pipe_write(p, name, DT_F32, x, d);
        free(x);
    }
    free(w);
    return st;
}

typedef struct {
    const lm_shape *s;
    pipeline *p;
} source;

static an_status fetch_rows(const source *f, model_weight_id id, int layer, const char *name, float *to, diag *d)
{
    int64_t D = f->s->c.dim;
    float *x = malloc(f->s->n_ids * (size_t)D * sizeof *x);
    an_status st = x ? pipe_read(f->p, name, DT_F32, x, d) : diag_nomem(d);
    if (!st) st = lm_rows(f->s->start, id, layer, 0, f->s->file.vocab, DT_F32, to, d);
    for (size_t i = 0; i < f->s->n_ids && !st; i++)
        memcpy(to + f->s->ids[i] * D, x + (int64_t)i * D, (size_t)D * sizeof *x);
    free(x);
    return st;
}

static an_status fetch(void *user, model_weight_id id, int layer, float *to, diag *d)
{
    const source *f = user;
    char name[48];
    pipe_weight_name(id, layer, name, sizeof name);
    if (by_id(f->s, id)) return fetch_rows(f, id, layer, name, to, d);
    TRY(pipe_read(f->p, name, DT_F32, to, d));
    if (!ends_branch(f->s, id) || f->s->c.alpha == 1) return AN_OK;
    times(to,
          id == MW_WO   ? f->s->c.dim * f->s->c.n_heads * f->s->c.head_dim
          : id == MW_W2 ? f->s->c.dim * f->s->c.hidden
                        : f->s->c.dim,
          f->s->c.alpha);
    return AN_OK;
}

an_status lm_shape_rest(const lm_shape *s, uint64_t *hash, uint64_t *hash4, diag *d)
{
    static const model_weight_id tables[] = { MW_EMBED, MW_HEAD };
    *hash = *hash4 = 0;
    if (!s->ids) return AN_OK;
    float *x = malloc((size_t)s->file.dim * sizeof *x);
    an_status st = x ? AN_OK : diag_nomem(d);
    for (size_t k = 0; k < COUNT(tables); k++) {
        lm_tensor t;
        if (!lm_tensor_info(s->start, tables[k], -1, &t)) continue;
        for (int64_t i = 0; i < s->file.vocab && !st; i++) {
            if (s->row_of[i] >= 0) continue;
            st = lm_rows(s->start, tables[k], -1, i, 1, DT_F32, x, d);
            if (!st)
                *hash = hash_many(x, (size_t)s->file.dim * sizeof *x, *hash),
                *hash4 = hash_bytes(x, (size_t)s->file.dim * sizeof *x, *hash4);
        }
    }
    free(x);
    return st;
}

an_status lm_shape_model(const lm_shape *s, pipeline *p, const lm_generation *g, const lm_options *o, lm_model **out,
                         diag *d)
{
    source f = { s, p };
    TRY(lm_from_memory("the weights in training", &s->file, g, fetch, &f, o, out, d));
    an_status st = s->ids ? lm_restrict(*out, s->ids, s->n_ids, d) : AN_OK;
    if (st) lm_close(*out), *out = NULL;
    return st;
}
