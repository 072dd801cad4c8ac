/* convert.c: a loaded model written as another kind of file, tensor by tensor, a run of rows at a time.
 * In: a model.  Out: a file or folder that appears whole or not at all, and how far its numbers are from those read.
 *
 * Rows of queries and keys are put into the order of rotary pairs the target has (lm.h); blocks and numbers the
 * target can hold as they are are copied, so that a way there and back gives the same bytes. */
#include <math.h>
#include <stdlib.h>

#include "lm/convert_int.h"

static const char *const target_names[LM_TARGETS] = { "safetensors", "hf", "gguf", "llama2c", "npy" };

bool lm_target_find(const char *name, lm_target *t)
{
    for (int i = 0; i < LM_TARGETS; i++)
        if (!strcmp(target_names[i], name)) return *t = (lm_target)i, true;
    return false;
}

/* ---- rows ---- */

static bool turns(model_weight_id id)
{
    return id == MW_WQ || id == MW_WK || id == MW_BQ || id == MW_BK || id == MW_Q_NORM || id == MW_K_NORM;
}

/* Rows of whole heads from one order of pairs to the other, in place; a row is n bytes. */
static an_status reorder(const conversion *v, unsigned char *rows, int64_t n_rows, size_t n, diag *d)
{
    int64_t hd = v->m->c.head_dim, half = hd / 2;
    unsigned char *head = malloc((size_t)hd * n);
    if (!head) return diag_nomem(d);
    for (int64_t h = 0; h + hd <= n_rows; h += hd) {
        unsigned char *at = rows + (size_t)h * n;
        memcpy(head, at, (size_t)hd * n);
        for (int64_t i = 0; i < half; i++)
            for (int64_t b = 0; b < 2; b++) {
                int64_t paired = 2 * i + b, split = i + b * half;
                int64_t to = v->rope == MODEL_ROPE_HALF ? split : paired,
                        from = v->rope == MODEL_ROPE_HALF ? paired : split;
                memcpy(at + (size_t)to * n, head + (size_t)from * n, n);
            }
    }
    free(head);
    return AN_OK;
}

static bool conversion_turns(const conversion *v, model_weight_id id)
{
    return v->rope != MODEL_ROPE_NONE && v->rope != v->m->c.rope && turns(id);
}

/* The largest difference between what was read and what is written, over the tensor's largest magnitude. What is
 * infinite or no number stays so. */
static void measure_one(conversion *v, double x, double y)
{
    if (!isfinite(x)) return;
    if (fabs(x) > v->peak) v->peak = fabs(x);
    if (!(fabs(y - x) <= v->error)) v->error = fabs(y - x);
}

static void measure(conversion *v, const float *x, const float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) measure_one(v, (double)x[i], (double)y[i]);
}

/* Rows r .. r+n-1 of a store whose numbers fp32 need not hold, against what they became. */
static void measure_wide(conversion *v, const store *s, dtype dt, int64_t r, int64_t n, const void *y)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < s->cols; c++)
            measure_one(
                v, dtype_load(s->dt, s->data, s->turned ? c * s->ld + r + i : (r + i) * s->ld + c) + (double)s->add,
                dtype_load(dt, y, i * s->cols + c));
}

static void settle(conversion *v)
{
    if (v->peak > 0 && !(v->error / v->peak <= v->done.worst)) v->done.worst = v->error / v->peak;
    v->peak = v->error = 0;
    v->done.tensors++;
}

/* a gain and its offset may be more than 24 bits */
static bool is_wide(const store *s) { return s->kind == STORE_PLAIN && (dtype_bits(s->dt) > 32 || s->add != 0); }

bool conversion_exact(const store *s, dtype to)
{
    if (s->kind == STORE_PLAIN && s->add == 0 && (s->dt == to || to == DT_F64)) return true;
    return to == DT_F32 && !is_wide(s);
}

static an_status plain_run(conversion *v, const store *s, dtype dt, int64_t r, int64_t n, unsigned char *to, diag *d)
{
    lm_model *m = v->m;
    TRY(store_rows(s, m->v, v->o.threads, r, n, dt, to, s->cols, d));
    if (conversion_exact(s, dt)) return AN_OK;
    if (is_wide(s)) return measure_wide(v, s, dt, r, n, to), AN_OK;
    TRY(store_rows(s, m->v, v->o.threads, r, n, DT_F32, v->x, s->cols, d));
    m->v->load(v->y, dt, to, n * s->cols);
    measure(v, v->x, v->y, n * s->cols);
    return AN_OK;
}

/* One block as it was and as it comes back: a number that is none, or past its scale's range, would take all of them
 * along. */
static an_status block_fits(const store *s, const block_format *f, const float *x, const float *y, diag *d)
{
    bool fits = true;
    float most = 0;
    for (int i = 0; i < f->elems; i++) {
        fits &= isfinite(x[i]) && isfinite(y[i]);
        if (!isnan(most) && !(fabsf(x[i]) <= fabsf(most))) most = x[i];
    }
    if (fits) return AN_OK;
    return diag_fail(d, AN_INPUT, NOWHERE,
                     "%.120s: tensor \"%.80s\" holds %g; blocks of %s want finite numbers, and scales that fp16 holds",
                     s->file, s->name, (double)most, f->name);
}

static an_status block_run(conversion *v, const store *s, const block_format *f, int64_t r, int64_t n,
                           unsigned char *to, diag *d)
{
    lm_model *m = v->m;
    size_t bytes;
    if (!block_bytes(f, n * s->cols, &bytes))
        return diag_fail(d, AN_BUG, NOWHERE, "rows of %lld in blocks of %d", (long long)s->cols, f->elems);
    if (s->kind == STORE_BLOCKS && s->block == f) { /* as they are */
        memcpy(to, s->data + (size_t)r * (bytes / (size_t)n), bytes);
        return AN_OK;
    }
    TRY(store_rows(s, m->v, v->o.threads, r, n, DT_F32, v->x, s->cols, d));
    block_encode(f, v->x, to, n * s->cols);
    block_decode(f, to, v->y, n * s->cols);
    for (int64_t i = 0; i < n * s->cols; i += f->elems) TRY(block_fits(s, f, v->x + i, v->y + i, d));
    measure(v, v->x, v->y, n * s->cols);
    return AN_OK;
}

an_status conversion_rows(conversion *v, model_weight_id id, int layer, dtype dt, const block_format *f, put_fn *put,
                          void *ctx, diag *d)
{
    const store *from = store_at(v->m, id, layer), *s = from;
    store gain; /* with the offset the target leaves off: where the file leaves off the same, its own numbers go out */
    if (weight_is_gain(id) && (from->add != 0 || v->less != 0)) {
        gain = *from;
        gain.add -= v->less;
        s = &gain;
    }
    int64_t hd = v->m->c.head_dim, unit = conversion_turns(v, id) ? hd : 1,
            run = MAX(CONVERT_RUN / s->cols / unit, 1) * unit;
    size_t row = 0;
    if (f && f->dt == DT_NONE ? !block_bytes(f, s->cols, &row) : !dtype_bytes(dt, s->cols, &row))
        return diag_fail(d, AN_BUG, NOWHERE, "rows of %lld elements do not fit the target's type", (long long)s->cols);
    size_t elems = (size_t)(run * s->cols);
    unsigned char *buf = malloc((size_t)run * row);
    v->x = malloc(elems * sizeof *v->x);
    v->y = malloc(elems * sizeof *v->y);
    an_status st = buf && v->x && v->y ? AN_OK : diag_nomem(d);
    for (int64_t r = 0; r < s->rows && !st; r += run) {
        int64_t n = MIN(run, s->rows - r);
        st = f && f->dt == DT_NONE ? block_run(v, s, f, r, n, buf, d) : plain_run(v, s, dt, r, n, buf, d);
        if (!st && conversion_turns(v, id)) st = reorder(v, buf, n, row, d);
        if (!st) st = put(ctx, buf, (size_t)n * row, d);
    }
    free(buf);
    free(v->x);
    free(v->y);
    v->x = v->y = NULL;
    settle(v);
    if (!st) store_forget(v->m, from);
    return st;
}

an_status conversion_reordered(conversion *v, model_weight_id id, const void *rows, int64_t n_rows, size_t row_bytes,
                               put_fn *put, void *ctx, diag *d)
{
    if (!conversion_turns(v, id)) return put(ctx, rows, (size_t)n_rows * row_bytes, d);
    unsigned char *copy = malloc((size_t)n_rows * row_bytes);
    if (!copy) return diag_nomem(d);
    memcpy(copy, rows, (size_t)n_rows * row_bytes);
    an_status st = reorder(v, copy, n_rows, row_bytes, d);
    if (!st) st = put(ctx, copy, (size_t)n_rows * row_bytes, d);
    free(copy);
    return st;
}

/* Codes and scales (or a table), compared with the numbers they stand for. */
an_status conversion_codes(conversion *v, model_weight_id id, int layer, lm_form form, dtype scale_dt, lm_quantized *q,
                           diag *d)
{
    const store *s = store_at(v->m, id, layer);
    TRY(lm_quantize(v->m, id, layer, form, scale_dt, q, d));
    store made = { .kind = q->table ? STORE_TABLE : STORE_GROUPS,
                   .rows = s->rows,
                   .cols = s->cols,
                   .ld = s->cols,
                   .dt = q->q_dt,
                   .data = q->q,
                   .scales = q->table ? q->table : q->scale,
                   .scale_dt = scale_dt,
                   .group = q->table ? 0 : s->cols / q->scale_cols };
    int64_t run = MAX(CONVERT_RUN / s->cols, 1);
    v->x = malloc((size_t)(run * s->cols) * sizeof *v->x);
    v->y = malloc((size_t)(run * s->cols) * sizeof *v->y);
    an_status st = v->x && v->y ? AN_OK : diag_nomem(d);
    for (int64_t r = 0; r < s->rows && !st; r += run) {
        int64_t n = MIN(run, s->rows - r);
        st = store_rows(s, v->m->v, v->o.threads, r, n, DT_F32, v->x, s->cols, d);
        if (!st) st = store_rows(&made, v->m->v, v->o.threads, r, n, DT_F32, v->y, s->cols, d);
        if (!st) measure(v, v->x, v->y, n * s->cols);
    }
    free(v->x);
    free(v->y);
    v->x = v->y = NULL;
    settle(v);
    return st;
}

dtype conversion_dtype(const conversion *v, model_weight_id id, int layer)
{
    const store *s = store_at(v->m, id, layer);
    if (v->o.dt) return v->o.dt;
    return s->kind == STORE_PLAIN && (s->dt == DT_F16 || s->dt == DT_BF16 || s->dt == DT_F32) ? s->dt : DT_F32;
}

dtype conversion_fused(const conversion *v, model_weight_id first, int layer)
{
    dtype dt = conversion_dtype(v, first, layer);
    for (int k = 1; k < 3; k++)
        if (conversion_dtype(v, (model_weight_id)((int)first + k), layer) != dt) return DT_F32;
    return dt;
}

/* As the file holds it: the lines of a turned tensor may have others between them. */
static uint64_t bytes_in(const store *s)
{
    uint64_t scales = s->kind == STORE_TABLE    ? 16
                      : s->kind == STORE_GROUPS ? (uint64_t)(s->rows * s->cols / s->group)
                                                : 0;
    uint64_t own = s->turned ? (uint64_t)(s->rows * s->cols) * (uint64_t)dtype_bits(s->dt) / 8 : s->bytes;
    return own + (scales ? scales * (uint64_t)dtype_bits(s->scale_dt) / 8 : 0);
}

/* ---- the front ---- */

static an_status read_quantize(conversion *v, diag *d)
{
    static const struct {
        const char *name;
        lm_form form;
        const char *block;
    } rows[] = { { "int8", LM_INT8, "Q8_0" },
                 { "int4", LM_INT4, "Q4_0" },
                 { "palette4", LM_PALETTE4, NULL },
                 { "q8_0", LM_INT8, "Q8_0" },
                 { "q4_0", LM_INT4, "Q4_0" } };
    v->form = LM_DENSE;
    if (!v->o.quantize) return AN_OK;
    for (size_t i = 0; i < COUNT(rows); i++)
        if (!strcmp(rows[i].name, v->o.quantize)) {
            bool gguf_name = v->o.quantize[0] == 'q';
            if (v->o.to == LM_TO_GGUF ? !rows[i].block : gguf_name)
                return diag_fail(d, AN_USAGE, NOWHERE, "%s files have no form %s", target_names[v->o.to],
                                 v->o.quantize);
            if (v->o.to == LM_TO_NPY || (v->o.to == LM_TO_LLAMA2C && rows[i].form != LM_INT8))
                return diag_fail(d, AN_USAGE, NOWHERE, "%s files have no form %s", target_names[v->o.to],
                                 v->o.quantize);
            v->form = rows[i].form;
            v->block = rows[i].block ? block_by_name(rows[i].block) : NULL;
            return AN_OK;
        }
    return diag_fail(d, AN_USAGE, NOWHERE,
                     "unknown form \"%.40s\"; int8, int4, palette4, and for GGUF q8_0 and q4_0, are known",
                     v->o.quantize);
}

static bool is_at(const char *path, const path_info *at)
{
    path_info i;
    return path && path_look(path, &i) && !i.unseen && i.device == at->device && i.inode == at->inode;
}

an_status lm_apart(const lm_model *m, const char *out, diag *d)
{
    path_info at;
    bool there;
    const char *before = NULL; /* tensors of one file follow each other */
    if (m->origin == LM_FROM_MEMORY) return AN_OK; /* its name is no file's */
    TRY(path_find(out, &there, &at, d));
    bool same = there && is_at(m->path, &at);
    for (int l = -1; there && !same && l < m->c.n_layers; l++)
        for (int id = 0; !same && id < MW_COUNT; id++) {
            const store *s = store_at(m, (model_weight_id)id, l);
            if (!s || !s->file || s->file == before) continue;
            same = is_at(before = s->file, &at);
        }
    return same ? diag_fail(d, AN_USAGE, NOWHERE, "%.200s is the model itself; write to another place", out) : AN_OK;
}

an_status lm_convert(lm_model *m, const char *out, const lm_convert_options *o, lm_converted *done, diag *d)
{
    conversion v = { .m = m, .o = *o, .out = out, .done.shards = 1 };
    *done = (lm_converted){ 0 };
    if ((unsigned)o->to >= LM_TARGETS) return diag_fail(d, AN_BUG, NOWHERE, "conversion target %d", (int)o->to);
    if (v.o.dt && v.o.dt != DT_F16 && v.o.dt != DT_BF16 && v.o.dt != DT_F32)
        return diag_fail(d, AN_USAGE, NOWHERE, "weights as %s; f32, f16 and bf16 are supported", dtype_name(v.o.dt));
    if (v.o.shard && o->to != LM_TO_HF)
        return diag_fail(d, AN_USAGE, NOWHERE,
                         "shards stand in a folder with an index: they go with the target hf, not %s",
                         target_names[o->to]);
    TRY(read_quantize(&v, d));
    TRY(lm_apart(m, out, d));
    for (int id = 0; id < MW_COUNT; id++)
        for (int l = -1; l < m->c.n_layers; l++) {
            const store *s = store_at(m, (model_weight_id)id, l);
            if (s && s->kind != STORE_NONE) v.done.bytes_in += bytes_in(s);
        }
    static an_status (*const write[LM_TARGETS])(conversion *, diag *) = { convert_safetensors, convert_hf, convert_gguf,
                                                                          convert_llama2c, convert_npy };
    TRY(write[o->to](&v, d));
    *done = v.done;
    return AN_OK;
}
