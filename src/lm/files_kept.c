/* files_kept.c: tensors of an open model, handed out: views of the file, or copies that are made once and kept.
 * A copy is found again by what was asked for. After it is made, the pages of the original are let go. */
#include <math.h>
#include <stdlib.h>

#include "base/big.h"
#include "lm/lm_int.h"

enum { ALIGN = 64, SLICE_BYTES = 16 << 20 /* of a file, read and let go before the next */, SPARE_LEAST = 256 << 10 };

static void *room(size_t n) { return big_alloc(ALIGN, n); }

static an_status need(const lm_model *m, model_weight_id id, int layer, store **s, diag *d)
{
    *s = store_at(m, id, layer);
    if (!*s || (*s)->kind == STORE_NONE)
        return diag_fail(d, AN_BUG, NOWHERE, "%.150s: weight %d of layer %d is not one the model has", m->path, (int)id,
                         layer);
    return AN_OK;
}

bool lm_tensor_info(const lm_model *m, model_weight_id id, int layer, lm_tensor *out)
{
    const store *s = store_at(m, id, layer);
    if (!s || s->kind == STORE_NONE) return false;
    *out = (lm_tensor){ .rows = s->rows, .cols = s->cols, .name = s->name, .file = s->file, .type = s->type };
    return true;
}

static kept *find_kept(const lm_model *m, const kept *k)
{
    for (size_t i = 0; i < m->kept.n; i++) {
        kept *x = &m->kept.at[i];
        if ((x->at || x->at2) && x->id == k->id && x->layer == k->layer && x->form == k->form && x->dt == k->dt)
            return x;
    }
    return NULL;
}

/* Only pages of a mapped file can be let go: those of memory would come back as zeros. */
static void forget_bytes(const lm_model *m, const store *s, size_t from, size_t n)
{
    /* .npy files may be copies */
    bool mapped = m->origin == LM_FROM_HF || m->origin == LM_FROM_SAFETENSORS || m->origin == LM_FROM_GGUF ||
                  m->origin == LM_FROM_LLAMA2C;
    if (mapped && s->data) file_forget(s->data + from, n);
}

void store_forget(const lm_model *m, const store *s) { forget_bytes(m, s, 0, s->bytes); }

/* Memory for a converted tensor: what the last one let go, where that is enough, so that its pages need not be made
 * again. A small tensor, which may stay for long, leaves it to the next large one. */
static void *take_room(lm_model *m, size_t n, size_t *got)
{
    *got = n;
    if (n < SPARE_LEAST) return room(n);
    void *p = m->spare;
    size_t had = m->spare_bytes;
    m->spare = NULL, m->spare_bytes = 0;
    if (had >= n) return *got = had, p;
    free(p);
    return room(n);
}

static void let_go(lm_model *m, kept *k)
{
    if (k->form == LM_DENSE && k->room >= SPARE_LEAST && k->room > m->spare_bytes) {
        free(m->spare);
        m->spare = k->at, m->spare_bytes = k->room;
    } else free(k->at);
    free(k->at2);
}

void lm_settle(lm_model *m)
{
    free(m->spare);
    m->spare = NULL, m->spare_bytes = 0;
}

/* Takes at and at2 of k over, or frees them when there is no memory. */
static an_status keep(lm_model *m, const kept *k, const store *s, diag *d)
{
    if (!VEC_PUSH(&m->mem, &m->kept, *k)) {
        free(k->at);
        free(k->at2);
        return diag_nomem(d);
    }
    if (k->at) store_forget(m, s);
    return AN_OK;
}

static an_status is_weight_type(dtype dt, diag *d)
{
    if (dt == DT_F16 || dt == DT_BF16 || dt == DT_F32) return AN_OK;
    return diag_fail(d, AN_BUG, NOWHERE, "weights as %s; fp16, bf16 and fp32 are supported", dtype_name(dt));
}

/* A large tensor goes in slices, so that its file and its copy are not in memory both and whole. */
static an_status read_all(lm_model *m, const store *s, dtype dt, unsigned char *to, diag *d)
{
    const size_t row_from = s->bytes / (size_t)MAX(s->rows, 1), row_to = (size_t)s->cols * ((size_t)dtype_bits(dt) / 8);
    const int64_t slice = s->turned || !row_from ? s->rows : MAX(SLICE_BYTES / (int64_t)row_from, 1);
    for (int64_t r = 0; r < s->rows; r += slice) {
        const int64_t rows = MIN(slice, s->rows - r);
        TRY(store_rows(s, m->v, m->o.threads, r, rows, dt, to + (size_t)r * row_to, s->cols, d));
        if (slice < s->rows) forget_bytes(m, s, (size_t)r * row_from, (size_t)rows * row_from);
    }
    return AN_OK;
}

/* Converted, and kept. */
static an_status dense_copy(lm_model *m, model_weight_id id, int layer, const store *s, dtype dt, const void **at,
                            diag *d)
{
    TRY(is_weight_type(dt, d));
    kept k = { .id = id, .layer = layer, .form = LM_DENSE, .dt = dt };
    const kept *was = find_kept(m, &k);
    if (was) return *at = was->at, AN_OK;
    int64_t elems;
    size_t bytes;
    if (!mul_i64(s->rows, s->cols, &elems) || !dtype_bytes(dt, elems, &bytes)) return diag_nomem(d);
    k.at = take_room(m, bytes, &k.room);
    if (!k.at) return diag_nomem(d);
    an_status st = read_all(m, s, dt, k.at, d);
    if (st) {
        free(k.at);
        return st;
    }
    TRY(keep(m, &k, s, d));
    *at = k.at;
    return AN_OK;
}

an_status lm_dense(lm_model *m, model_weight_id id, int layer, dtype dt, const void **at, diag *d)
{
    store *s;
    *at = NULL;
    TRY(need(m, id, layer, &s, d));
    *at = store_as_is(s, dt);
    if (*at) return AN_OK;
    return dense_copy(m, id, layer, s, dt, at, d);
}

an_status lm_rows(lm_model *m, model_weight_id id, int layer, int64_t row0, int64_t n, dtype dt, void *to, diag *d)
{
    store *s;
    TRY(need(m, id, layer, &s, d));
    return store_rows(s, m->v, n > 64 ? m->o.threads : NULL, row0, n, dt, to, s->cols, d);
}

void lm_release(lm_model *m, model_weight_id id, int layer)
{
    size_t n = 0;
    for (size_t i = 0; i < m->kept.n; i++) {
        kept *k = &m->kept.at[i];
        if (k->id == id && k->layer == layer) let_go(m, k);
        else m->kept.at[n++] = *k;
    }
    m->kept.n = n;
}

/* ---- compressed ---- */

const char *lm_form_name(lm_form f)
{
    static const char *const names[LM_FORMS] = { "dense", "int8", "int4", "palette4", "file" };
    return (unsigned)f < LM_FORMS ? names[f] : "?";
}

/* The form a store has already: groups must not cross rows to be blocks of a matrix. */
static lm_form store_form(const store *s)
{
    if (s->kind == STORE_BLOCKS && s->block->id == BLOCK_Q8_0) return LM_INT8;
    if (s->kind == STORE_BLOCKS && s->block->id == BLOCK_Q4_0) return LM_INT4;
    if (s->kind == STORE_GROUPS && s->cols % s->group == 0) return s->dt == DT_I8 ? LM_INT8 : LM_INT4;
    return s->kind == STORE_TABLE ? LM_PALETTE4 : LM_DENSE;
}

int64_t store_scale_cols(const store *s, lm_form form)
{
    if (store_form(s) != form) return s->cols / quant_block(form, s->cols);
    return s->cols / (s->kind == STORE_BLOCKS ? s->block->elems : s->group);
}

dtype store_scale_type(const store *s, lm_form form)
{
    return store_form(s) == form && s->kind != STORE_BLOCKS && s->scale_dt == DT_F32 ? DT_F32 : DT_F16;
}

lm_form lm_form_of(const lm_model *m, model_weight_id id, int layer)
{
    const store *s = store_at(m, id, layer);
    bool head = id == MW_HEAD || (id == MW_EMBED && m->c.tied), lookup = id == MW_POS || (id == MW_EMBED && !m->c.tied);
    if (!s || s->kind == STORE_NONE || !weight_is_matrix(id) || lookup || (head && m->o.head_dense)) return LM_DENSE;
    lm_form f = head && m->o.head != LM_DENSE ? m->o.head : m->o.form;
    if (f == LM_AS_FILE) return store_form(s);
    /* packed 4-bit rows must end on a byte */
    if ((f == LM_INT4 || f == LM_PALETTE4) && s->cols % 2) return LM_INT8;
    return f;
}

/* Blocks of the file taken apart: codes in a row, scales in a row of scale_dt. */
static an_status split_blocks(const store *s, dtype scale_dt, kept *k, diag *d)
{
    int64_t n = s->rows * s->cols, n_scales = n / 32;
    size_t codes = (size_t)(s->block->id == BLOCK_Q8_0 ? n : n / 2);
    uint16_t *half = room((size_t)n_scales * 2);
    k->at = room(codes);
    k->scale_cols = s->cols / 32;
    if (!half || !k->at) {
        free(half);
        return diag_nomem(d);
    }
    block_split(s->block, s->data, n, k->at, half);
    if (scale_dt == DT_F16) k->at2 = half;
    else {
        k->at2 = room((size_t)n_scales * 4);
        for (int64_t i = 0; i < n_scales && k->at2; i++) dtype_store(DT_F32, k->at2, i, f16_to_f64(half[i]));
        free(half);
        if (!k->at2) return diag_nomem(d);
    }
    return AN_OK;
}

/* Codes of the file with scales (or a table) of another type, or unaligned ones: the codes stay where they are. */
static an_status convert_scales(const store *s, dtype scale_dt, kept *k, diag *d)
{
    int64_t n = s->kind == STORE_TABLE ? 16 : s->rows * s->cols / s->group;
    k->at2 = room((size_t)n * ((size_t)dtype_bits(scale_dt) / 8));
    if (!k->at2) return diag_nomem(d);
    for (int64_t i = 0; i < n; i++) {
        double x = dtype_load(s->scale_dt, s->scales, i), y = dtype_round(scale_dt, x);
        if (!isfinite(y))
            return diag_fail(d, AN_INPUT, NOWHERE, "%.120s: tensor \"%.80s\" has a scale of %g, which %s does not hold",
                             s->file, s->name, x, dtype_name(scale_dt));
        dtype_store(scale_dt, k->at2, i, x);
    }
    if (s->kind == STORE_GROUPS) k->scale_cols = s->cols / s->group;
    return AN_OK;
}

typedef struct {
    const store *s;
    const lm_model *m;
    lm_form form;
    quant_shape q;
    void *codes, *scales;
    int64_t run;
    int *bad; /* by task: 1 no memory, 2 a value without a scale */
} quant_job;

static void quant_task(void *ctx, int64_t task, int thread)
{
    (void)thread;
    const quant_job *j = ctx;
    int64_t r0 = task * j->run, n = MIN(j->run, j->q.rows - r0);
    diag d = { 0 };
    float *x = malloc((size_t)(n * j->q.cols) * sizeof *x);
    an_status st = x ? store_rows(j->s, j->m->v, NULL, r0, n, DT_F32, x, j->q.cols, &d) : diag_nomem(&d);
    if (st) j->bad[task] = st == AN_INPUT ? 2 : 1;
    for (int64_t r = 0; r < n && !j->bad[task]; r++)
        if (!quant_row(j->form, &j->q, x + r * j->q.cols, j->codes, (r0 + r) * j->q.cols, j->scales,
                       (r0 + r) * (j->q.cols / j->q.block)))
            j->bad[task] = 2;
    free(x);
}

static an_status quantize_scaled(lm_model *m, const store *s, lm_form form, dtype scale_dt, kept *k, diag *d)
{
    quant_job j = { .s = s, .m = m, .form = form, .q = { s->rows, s->cols, quant_block(form, s->cols), scale_dt } };
    size_t codes = (size_t)(s->rows * s->cols) / (form == LM_INT8 ? 1 : 2), unit = (size_t)dtype_bits(scale_dt) / 8;
    k->scale_cols = s->cols / j.q.block;
    size_t scales = (size_t)(s->rows * k->scale_cols) * unit;
    j.codes = k->at = room(codes);
    j.scales = k->at2 = room(scales);
    j.run = MAX(65536 / s->cols, 1) * 2; /* an even number of rows: tasks never share a byte of codes */
    int64_t tasks = (s->rows + j.run - 1) / j.run;
    j.bad = calloc((size_t)tasks, sizeof *j.bad);
    if (!j.codes || !j.scales || !j.bad) {
        free(j.bad);
        return diag_nomem(d);
    }
    pool_run(m->o.threads, quant_task, &j, tasks);
    int bad = 0;
    for (int64_t i = 0; i < tasks; i++) bad = MAX(bad, j.bad[i]);
    free(j.bad);
    if (bad == 1) return diag_nomem(d);
    if (bad)
        return diag_fail(d, AN_INPUT, NOWHERE,
                         "%.120s: tensor \"%.80s\" holds values that are not finite or too large for scales of %s",
                         s->file, s->name, dtype_name(scale_dt));
    return AN_OK;
}

/* Three passes over the rows: range, histogram, codes. */
static an_status quantize_palette(lm_model *m, const store *s, dtype dt, kept *k, diag *d)
{
    int64_t run = MAX(262144 / s->cols, 1), n = s->rows * s->cols;
    palette p = { .count = calloc(PALETTE_BINS, sizeof *p.count) };
    float *x = malloc((size_t)(run * s->cols) * sizeof *x);
    unsigned char *codes = k->at = room((size_t)n / 2);
    k->at2 = room(64);
    an_status st = p.count && x && codes && k->at2 ? AN_OK : diag_nomem(d);
    for (int pass = 0; pass < 3 && !st; pass++) {
        for (int64_t r = 0; r < s->rows && !st; r += run) {
            int64_t rows = MIN(run, s->rows - r), count = rows * s->cols;
            st = store_rows(s, m->v, m->o.threads, r, rows, DT_F32, x, s->cols, d);
            if (st) break;
            if (pass == 1) palette_count(&p, x, count);
            for (int64_t i = 0; i < count && pass == 0; i++) {
                double v = (double)x[i];
                if (!isfinite(v)) {
                    st = diag_fail(d, AN_INPUT, NOWHERE, "%.120s: tensor \"%.80s\" holds values that are not finite",
                                   s->file, s->name);
                    break;
                }
                p.lo = (r || i) && p.lo < v ? p.lo : v;
                p.hi = (r || i) && p.hi > v ? p.hi : v;
            }
            for (int64_t i = 0; i < count && pass == 2; i += 2)
                codes[(r * s->cols + i) / 2] =
                    (unsigned char)(palette_find(&p, x[i]) | palette_find(&p, x[i + 1]) << 4);
        }
        if (pass == 1) palette_settle(&p, dt);
        for (int i = 0; i < 16 && pass == 1 && !st; i++)
            if (!isfinite(p.value[i]))
                st = diag_fail(
                    d, AN_INPUT, NOWHERE,
                    "%.120s: tensor \"%.80s\" holds values from %g to %g, and a table of %s is too narrow for them",
                    s->file, s->name, p.lo, p.hi, dtype_name(dt));
    }
    for (int i = 0; i < 16 && !st; i++) dtype_store(dt, k->at2, i, (double)p.value[i]);
    free(p.count);
    free(x);
    return st;
}

an_status lm_quantize(lm_model *m, model_weight_id id, int layer, lm_form form, dtype scale_dt, lm_quantized *out,
                      diag *d)
{
    store *s;
    TRY(need(m, id, layer, &s, d));
    if (!weight_is_matrix(id) || (form != LM_INT8 && form != LM_INT4 && form != LM_PALETTE4) ||
        (scale_dt != DT_F16 && scale_dt != DT_F32))
        return diag_fail(d, AN_BUG, NOWHERE, "weight %d as %s with scales of %s", (int)id, lm_form_name(form),
                         dtype_name(scale_dt));
    if (form != LM_INT8 && s->cols % 2)
        return diag_fail(d, AN_INPUT, NOWHERE,
                         "%.120s: tensor \"%.80s\" has rows of %lld elements; 4-bit forms want an even number", s->file,
                         s->name, (long long)s->cols);
    *out = (lm_quantized){ .form = form,
                           .rows = s->rows,
                           .cols = s->cols,
                           .q_dt = form == LM_INT8   ? DT_I8
                                   : form == LM_INT4 ? DT_I4
                                                     : DT_U4,
                           .scale_dt = scale_dt };
    bool same = store_form(s) == form && s->kind != STORE_BLOCKS && s->scale_dt == scale_dt &&
                (uintptr_t)s->scales % ((size_t)dtype_bits(scale_dt) / 8) == 0;
    if (same) { /* the file has it in just this form */
        out->q = s->data;
        if (form == LM_PALETTE4) out->table = s->scales;
        else out->scale = s->scales, out->scale_cols = s->cols / s->group;
        return AN_OK;
    }
    kept k = { .id = id, .layer = layer, .form = (int)form, .dt = scale_dt }, *was = find_kept(m, &k);
    if (!was) {
        an_status st;
        if (store_form(s) == form)
            st = s->kind == STORE_BLOCKS ? split_blocks(s, scale_dt, &k, d) : convert_scales(s, scale_dt, &k, d);
        else if (form == LM_PALETTE4) st = quantize_palette(m, s, scale_dt, &k, d);
        else st = quantize_scaled(m, s, form, scale_dt, &k, d);
        if (st) {
            free(k.at);
            free(k.at2);
            return st;
        }
        TRY(keep(m, &k, s, d));
        was = &k;
    }
    out->q = was->at ? was->at : s->data;
    if (form == LM_PALETTE4) out->table = was->at2;
    else out->scale = was->at2, out->scale_cols = was->scale_cols;
    return AN_OK;
}
