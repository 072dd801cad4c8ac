/* exec_mac_i8.c: int8 products: a constant weight stored as int8 with a scale per row (or one) is packed as it is,
 * the other operand is quantised column by column as it comes (kernel/kernel.h, GEMM_I8). In: a product that is
 * otherwise understood, fast_math 2. Out: packed int8 and the rows' scales, or nothing: then the product is bf16's.
 *
 * Sums are exact in int32. With x the column as given, an element of the result is within max|x| / 254 · sum|w| of
 * the product of the weight's definition, scale · q, with x; two fp32 roundings follow. Where the reference rounds
 * scale · q to fp16, here it is not rounded. A column with an infinity or NaN is NaN throughout. */
#include "engine/exec_mac_int.h"

enum { MOST_K = 65536 }; /* what int32 sums hold */

static int64_t source_elems(const const_source *s) { return dims_product(s->dim, 0, s->rank); }

/* int8 with scales along rows, and zero points that are zero as far as the manifest tells. */
static bool is_rows_of_int8(const image *im, const mac *m)
{
    const etensor *t = &im->p->tensors.at[m->a_tensor];
    const const_entry *c = &im->p->consts.at[t->slot];
    if (m->packs != 1 || m->a_own || t->offset || c->tensor != m->a_tensor || c->src[0].dt != DT_I8 || m->k > MOST_K ||
        et_elems(t) != m->m * m->k)
        return false;
    int64_t scales = source_elems(&c->src[1]);
    if (scales > 1 && (m->a_col != 1 || m->a_row != m->k)) return false; /* rows are not along the first axis */
    if (c->kind == CK_BLOCK)
        return c->n_src == 2 && scales == m->m && c->src[1].rank == t->rank && mac_row_axis(t, m->m) >= 0 &&
               c->src[1].dim[mac_row_axis(t, m->m)] == m->m;
    return c->kind == CK_AFFINE && (scales == 1 || (scales == m->m && c->axis == mac_row_axis(t, m->m)));
}

static bool zeros_are_zero(const const_entry *c, const unsigned char *const *at)
{
    if (c->n_src < 3) return true;
    for (int64_t i = 0, n = source_elems(&c->src[2]); i < n; i++)
        if (dtype_load(c->src[2].dt, at[2], i) != 0) return false;
    return true;
}

/* The sources as they are now; they stay in use, so that a digest is of them. */
static an_status fill(image *im, mac *m, bool *fits, diag *d)
{
    size_t slot = im->p->tensors.at[m->a_tensor].slot;
    const const_entry *c = &im->p->consts.at[slot];
    const unsigned char **at = im->stored[slot].at;
    TRY(const_sources(im, im->source, slot, at, d));
    bool many = source_elems(&c->src[1]) > 1;
    for (int64_t i = 0; i < m->m; i++) m->i8_scale[i] = (float)dtype_load(c->src[1].dt, at[1], many ? i : 0);
    m->i8 = at[0];
    *fits = zeros_are_zero(c, at);
    return AN_OK;
}

an_status mac_i8_make(image *im, mac *m, diag *d)
{
    bool fits;
    if (!mac_is_const(im, m->a_tensor) || !is_rows_of_int8(im, m)) return AN_OK;
    if (!(m->i8_scale = TAKE(&im->prepared, float, (size_t)m->m))) return diag_nomem(d);
    TRY(fill(im, m, &fits, d));
    if (!fits) { /* expanded like any other */
        m->i8 = im->stored[im->p->tensors.at[m->a_tensor].slot].at[0] = NULL;
        return AN_OK;
    }
    m->g = gemm_pick(GEMM_I8, m->env->isa);
    m->a_as = DT_I8;
    return AN_OK;
}

/* Refused, it stays one of int8: the weights it had come back. */
an_status mac_i8_again(image *im, mac *m, diag *d)
{
    bool fits;
    TRY(fill(im, m, &fits, d));
    return fits ? AN_OK
                : diag_fail(
                      d, AN_INPUT, NOWHERE,
                      "constant %u: its new zero points are not zero, as the old ones were; load the program again",
                      (unsigned)im->p->tensors.at[m->a_tensor].slot);
}
