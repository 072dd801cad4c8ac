/* exec_mac_vec.c: products with few columns whose weight stays in the form it is stored in: int8, four-bit palettes
 * and blocks, 16-bit numbers that packing would widen. In: a product that is otherwise understood.  Out: what
 * kernel/gemv.h reads, or nothing.
 *
 * The weight is read where its source has it, once per run, and never expanded; blocks of nibbles that a kernel
 * wants turned are turned when they are loaded (packs.c keeps one copy for all programs of a model), and the source
 * is let go. The reference rounds a reconstructed element to the tensor's type; here it is not rounded: with an fp16
 * tensor, results differ by up to 2^-11 of the sum of magnitudes. */
#include <math.h>

#include "engine/exec_mac_int.h"

struct mac_vec {
    gemv_weight w;
    size_t slot;       /* manifest entry */
    bool stored;       /* read from its sources; else from the tensor's memory, where it lies as it is */
    float *row_scale, *row_shift, *table, *shift; /* taken once, filled at each load */
    unsigned char *panels; /* turned; NULL: as stored */
    bool apart;        /* since a reload it wants x in another form than the first of its group: a region of its own */
};

static int64_t source_elems(const const_source *s) { return dims_product(s->dim, 0, s->rank); }

/* Its elements are those of rows, k contiguous, nothing left over. */
static bool is_matrix(const image *im, const mac *m)
{
    const etensor *t = &im->p->tensors.at[m->a_tensor];
    return !t->offset && m->a_col == 1 && m->a_row == m->k && et_elems(t) == m->m * m->k &&
           im->p->consts.at[t->slot].tensor == m->a_tensor;
}

/* Dims of scales over a tensor: one or `rows` along the row axis, one along all others but the last that counts
 * (blocks of k). */
static bool block_dims(const etensor *t, const const_source *s, int row, int64_t m, int64_t k, int64_t *block)
{
    int64_t blocks = 1;
    if (s->rank != t->rank || row < 0 || s->dim[row] != m) return false;
    for (int i = 0; i < t->rank; i++) {
        if (i == row || s->dim[i] == 1) continue;
        /* blocks of several axes, or of one that is not contiguous */
        if (blocks > 1 || dims_product(t->dim, i + 1, t->rank) != 1) return false;
        blocks = s->dim[i];
    }
    if (dims_product(t->dim, row + 1, t->rank) != k || k % blocks) return false;
    *block = k / blocks;
    return true;
}

static bool is_byte(dtype t) { return t == DT_I8 || t == DT_U8; }
static bool is_nibble(dtype t) { return t == DT_I4 || t == DT_U4; }

/* How the constant could be read; false: it has to be expanded. */
static bool describe(const image *im, const mac *m, mac_vec *v)
{
    const etensor *t = &im->p->tensors.at[m->a_tensor];
    const const_entry *c = &im->p->consts.at[t->slot];
    gemv_weight *w = &v->w;
    int row = mac_row_axis(t, m->m);
    dtype q = c->src[0].dt;
    *w = (gemv_weight){ .m = m->m, .k = m->k, .table_rows = 1, .scale_type = DT_F32 };
    v->slot = t->slot, v->stored = true;
    switch (c->kind) {
    case CK_DENSE:
        /* Packed as they are, few columns go at memory speed too, with the sums of many. */
        if (t->dt == DT_F32 || (t->dt == DT_F16 && m->b_type == DT_F16)) return false;
        w->form = t->dt == DT_F16 ? GEMV_F16 : GEMV_BF16, w->row_bytes = 2 * m->k, v->stored = false;
        return true;
    case CK_AFFINE: {
        int64_t scales = source_elems(&c->src[1]), zeros = c->n_src > 2 ? source_elems(&c->src[2]) : 1;
        if (!is_byte(q) || ((scales > 1 || zeros > 1) && c->axis != row)) return false;
        w->form = q == DT_I8 ? GEMV_I8 : GEMV_U8, w->row_bytes = m->k;
        return true;
    }
    case CK_LUT: {
        const const_source *lut = &c->src[1];
        int64_t tables = source_elems(lut) / 16;
        bool blocks = lut->rank == c->src[0].rank + 2;
        if (source_elems(lut) % 16 || m->k % GEMV_K_STEP) return false;
        if (blocks && (lut->dim[lut->rank - 2] != 16 || lut->dim[lut->rank - 1] != 1 || q != DT_U4 || row < 0 ||
                       lut->dim[row] != tables || m->m % tables))
            return false;
        if (!blocks && tables != 1) return false;
        w->form = GEMV_NIBBLE, w->row_bytes = m->k / 2, w->table_rows = m->m / tables;
        return true;
    }
    case CK_BLOCK: {
        int64_t block, other;
        if (!block_dims(t, &c->src[1], row, m->m, m->k, &block)) return false;
        if (c->n_src > 2 && (!block_dims(t, &c->src[2], row, m->m, m->k, &other) || other != block)) return false;
        w->form = is_nibble(q) ? GEMV_NIBBLE : q == DT_I8 ? GEMV_I8 : GEMV_U8;
        if (!is_nibble(q) && !is_byte(q)) return false;
        w->row_bytes = is_nibble(q) ? m->k / 2 : m->k;
        if (is_byte(q) && block == m->k) return true; /* a scale per row */
        if (!gemv_block_fits(w->form, block) || (is_nibble(q) && m->k % GEMV_K_STEP) || (is_byte(q) && c->n_src > 2))
            return false;
        if (c->src[1].dt != DT_F16 && c->src[1].dt != DT_F32) return false;
        w->block = block, w->scale_type = c->src[1].dt;
        w->table_rows = m->m;
        return true;
    }
    default: return false;
    }
}

static double value(const image *im, const mac_vec *v, int src, int64_t i)
{
    return dtype_load(im->p->consts.at[v->slot].src[src].dt, im->stored[v->slot].at[src], i);
}

/* Scale and shift of each row, from one of all or one of each. */
static void fill_rows(const image *im, mac_vec *v)
{
    const const_entry *c = &im->p->consts.at[v->slot];
    bool many_scales = source_elems(&c->src[1]) > 1, many_zeros = c->n_src > 2 && source_elems(&c->src[2]) > 1,
         shifts = false;
    for (int64_t i = 0; i < v->w.m; i++) {
        double scale = value(im, v, 1, many_scales ? i : 0),
               zero = c->n_src > 2 ? value(im, v, 2, many_zeros ? i : 0) : 0;
        v->row_scale[i] = (float)scale;
        if (v->row_shift) v->row_shift[i] = (float)(-scale * zero), shifts |= zero != 0;
    }
    v->w.row_shift = shifts ? v->row_shift : NULL; /* not even zero times an infinity */
}

static int64_t n_table(const gemv_weight *w) { return w->m / w->table_rows * 16; }
static int64_t n_blocks(const gemv_weight *w) { return w->block ? w->m * (w->k / w->block) : 0; }

/* false: a table holds an infinity or NaN, which lanes past the end of a row would multiply by zero. */
static bool fill_table(const image *im, mac_vec *v)
{
    const const_entry *c = &im->p->consts.at[v->slot];
    for (int64_t i = 0; i < n_table(&v->w); i++) {
        unsigned char byte = (unsigned char)(i % 16);
        v->table[i] = (float)(c->kind == CK_LUT ? value(im, v, 1, i) : dtype_load(c->src[0].dt, &byte, 0));
        if (!isfinite(v->table[i])) return false;
    }
    return true;
}

static an_status fill(image *im, const mac *m, mac_vec *v, bool *fits, diag *d)
{
    gemv_weight *w = &v->w;
    *fits = true;
    if (!v->stored) {
        TRY(const_ready(im, m->a_tensor, d));
        w->w = im->mem[m->a_tensor];
        return AN_OK;
    }
    TRY(const_sources(im, im->source, v->slot, im->stored[v->slot].at, d));
    w->w = im->stored[v->slot].at[0];
    w->row_scale = v->row_scale, w->row_shift = v->row_shift, w->table = v->table, w->shift = v->shift;
    if (v->row_scale) fill_rows(im, v);
    if (v->table) *fits = fill_table(im, v);
    if (w->block) w->scale = im->stored[v->slot].at[1];
    bool shifts = false;
    for (int64_t i = 0; v->shift && i < n_blocks(w); i++) {
        double zero = value(im, v, 2, i);
        v->shift[i] = (float)(-value(im, v, 1, i) * zero), shifts |= zero != 0;
    }
    if (!shifts) w->shift = NULL;
    return AN_OK;
}

static an_status fill_panels(image *im, mac_vec *v, diag *d)
{
    const unsigned char **at = im->stored[v->slot].at;
    TRY(const_sources(im, im->source, v->slot, at, d));
    v->w.w = at[0], v->w.scale = at[1];
    gemv_panel_fill(im->opt.pool, &v->w, v->panels);
    v->w.w = v->w.scale = NULL;
    if (im->lazy) const_done(im, v->slot), at[0] = NULL;
    return AN_OK;
}

/* Blocks of nibbles turned for the kernel, where it wants them: made, or taken from a program before this one. */
static an_status take_panels(image *im, const mac *m, mac_vec *v, diag *d)
{
    const const_entry *c = &im->p->consts.at[v->slot];
    size_t bytes;
    bool fresh;
    if (c->kind != CK_BLOCK || c->n_src > 2 || v->w.form != GEMV_NIBBLE || !fill_table(im, v)) return AN_OK;
    v->w.table = v->table;
    if (!gemv_panel_bytes(gemv_pick(m->env->isa), &v->w, &bytes)) return AN_OK;
    const pack_key key = {
        .tensor = m->a_tensor, .form = "panels", .m = m->m, .k = m->k, .row = m->a_row, .col = m->a_col, .packs = 1
    };
    TRY(pack_take(im, &key, bytes, &v->panels, &fresh, d));
    v->w.panels = v->panels;
    return fresh ? fill_panels(im, v, d) : AN_OK;
}

an_status mac_vec_make(image *im, mac *m, diag *d)
{
    if (m->env->chip || m->n > GEMV_COLUMNS || m->batches != 1 || m->columns || m->a_own ||
        !mac_is_const(im, m->a_tensor) || !is_matrix(im, m))
        return AN_OK;
    mac_vec v = { 0 }, *keep = TAKE(&im->prepared, mac_vec, 1);
    if (!keep) return diag_nomem(d);
    if (!describe(im, m, &v)) return AN_OK;
    const const_entry *c = &im->p->consts.at[v.slot];
    bool by_row = v.stored && v.w.form != GEMV_NIBBLE && !v.w.block;
    if (by_row && !(v.row_scale = TAKE(&im->prepared, float, (size_t)m->m))) return diag_nomem(d);
    if (by_row && c->n_src > 2 && !(v.row_shift = TAKE(&im->prepared, float, (size_t)m->m))) return diag_nomem(d);
    if (v.w.form == GEMV_NIBBLE && !(v.table = TAKE(&im->prepared, float, (size_t)n_table(&v.w)))) return diag_nomem(d);
    if (v.w.block && c->n_src > 2 && !(v.shift = TAKE(&im->prepared, float, (size_t)n_blocks(&v.w))))
        return diag_nomem(d);
    bool fits = true;
    TRY(take_panels(im, m, &v, d));
    if (!v.panels) TRY(fill(im, m, &v, &fits, d));
    if (!fits) { /* expanded like any other */
        im->stored[v.slot].at[0] = NULL;
        return AN_OK;
    }
    TRY(panel_note(im, v.row_scale, (size_t)m->m * sizeof(float), d));
    TRY(panel_note(im, v.row_shift, (size_t)m->m * sizeof(float), d));
    TRY(panel_note(im, v.table, (size_t)n_table(&v.w) * sizeof(float), d));
    TRY(panel_note(im, v.shift, (size_t)n_blocks(&v.w) * sizeof(float), d));
    *keep = v;
    m->vec = keep;
    if (v.stored) im->packed_now = m->a_tensor; /* nobody has to expand it for this instruction */
    return AN_OK;
}

an_status mac_vec_again(image *im, mac *m, diag *d)
{
    bool fits = true;
    mac_vec *v = m->vec;
    if (!v->panels) TRY(fill(im, m, v, &fits, d));
    else if ((fits = fill_table(im, v))) TRY(fill_panels(im, v, d));
    v->apart = m->first && !mac_vec_alike(m->first, m); /* the first has been filled before */
    return fits ? AN_OK
                : diag_fail(d, AN_INPUT, NOWHERE,
                            "constant %zu: its new table holds an infinity or NaN; load the program again", v->slot);
}

bool mac_vec_bytes(const mac *m, size_t *bytes)
{
    return gemv_scratch_bytes(gemv_pick(m->env->isa), m->n, m->k, bytes);
}

bool mac_vec_alike(const mac *a, const mac *b) { return gemv_alike(&a->vec->w, &b->vec->w); }

an_status mac_vec_multiply(const product *p, diag *d)
{
    const mac *m = p->m;
    const mac_vec *v = m->vec;
    gemv_call g = { .kernel = gemv_pick(m->env->isa),
                    .pool = p->pool,
                    .n = p->nc,
                    .x = { .at = p->b, .type = m->b_as, .row = p->b_row, .col = p->b_col },
                    .ldy = p->nc,
                    .scratch = p->slot + m->at_scratch,
                    .scratch_bytes = m->scratch_bytes };
    g.part[g.parts++] = (gemv_part){ &v->w, p->sums };
    for (int i = 0; i < m->n_after; i++) {
        const mac *after = m->after[i];
        gemv_part next = { &after->vec->w, mac_sums(p->c, after) };
        gemv_call own = g;
        own.part[0] = next, own.parts = 1;
        if (after->vec->apart) TRY(gemv_run(&own, d));
        else g.part[g.parts++] = next;
    }
    return gemv_run(&g, d);
}
