/* ref_move.c: instructions that only move elements: strided copies, picking and gathering. In: a run_ctx and a
 * checked instruction.  Out: one result. Elements are copied as they are, subnormals and zero signs with them; only
 * the rules for NaN operands and for width slices change a value. */
#include <math.h>

#include "engine/engine_int.h"

/* Element i of y = element j of x, which have the same type. */
static void copy_element(const run_ctx *c, int64_t y, int64_t i, int64_t x, int64_t j, bool width_offset)
{
    const numerics *num = c->num;
    dtype t = ctx_tensor(c, y)->dt;
    int bits = dtype_bits(t);
    double v = dtype_is_float(t) ? dtype_load(t, ctx_mem(c, x), j) : 0;
    if (num->nan_to_inf != 0 && isnan(v)) v = (double)INFINITY, dtype_store(t, ctx_mem(c, y), i, v);
    else if (width_offset && num->wslice_last != 0 && fabs(v) > num->wslice_last)
        dtype_store(t, ctx_mem(c, y), i, copysign((double)INFINITY, v));
    else if (bits < 8) dtype_store(t, ctx_mem(c, y), i, dtype_load(t, ctx_mem(c, x), j));
    else {
        int64_t b = bits / 8;
        memmove((unsigned char *)ctx_mem(c, y) + i * b, (const unsigned char *)ctx_mem(c, x) + j * b, (size_t)b);
    }
}

an_status ref_move(const run_ctx *c, const insn *in, diag *d)
{
    int64_t y = insn_t(in, "y"), x = insn_t(in, "x"), n, idx[MOVE_MAX_RANK] = { 0 };
    const int64_t *size = insn_is(in, "size", &n), *ys = insn_is(in, "y_step", &n), *xs = insn_is(in, "x_step", &n);
    bool width_offset = insn_i(in, "width_offset");
    (void)d;
    do {
        int64_t i = insn_i(in, "y_start"), j = insn_i(in, "x_start");
        for (int64_t a = 0; a < n; a++) i += idx[a] * ys[a], j += idx[a] * xs[a];
        copy_element(c, y, i, x, j, width_offset);
    } while (next_index(size, (int)n, idx));
    return AN_OK;
}

an_status ref_pick(const run_ctx *c, const insn *in, diag *d)
{
    int64_t y = insn_t(in, "y"), x = insn_t(in, "x"), n;
    const int64_t *index = insn_is(in, "index", &n);
    axis_view a = et_axis(ctx_tensor(c, x), insn_i(in, "axis"));
    (void)d;
    for (int64_t o = 0; o < a.outer; o++)
        for (int64_t k = 0; k < n; k++)
            for (int64_t j = 0; j < a.inner; j++)
                copy_element(c, y, (o * n + k) * a.inner + j, x, (o * a.n + index[k]) * a.inner + j, false);
    return AN_OK;
}

/* x (batch, before, axis, after), indices (batch, places), y (batch, before, places, after). */
an_status ref_gather(const run_ctx *c, const insn *in, diag *d)
{
    int64_t y = insn_t(in, "y"), x = insn_t(in, "x"), to = 0;
    int axis = (int)insn_i(in, "axis"), b = (int)insn_i(in, "batch");
    const etensor *t = ctx_tensor(c, x), *ti = ctx_tensor(c, insn_t(in, "indices"));
    double *ix = ref_load(c, insn_t(in, "indices"), d);
    if (!ix) return d->st;
    int64_t batch = dims_product(t->dim, 0, b), before = dims_product(t->dim, b, axis), n = t->dim[axis];
    int64_t after = dims_product(t->dim, axis + 1, t->rank), places = dims_product(ti->dim, b, ti->rank);
    for (int64_t i = 0; i < batch; i++)
        for (int64_t j = 0; j < before; j++)
            for (int64_t p = 0; p < places; p++) {
                int64_t k;
                TRY(ref_index(c, in, ix[i * places + p], n, &k, d));
                for (int64_t q = 0; q < after; q++)
                    copy_element(c, y, to++, x, ((i * before + j) * n + k) * after + q, false);
            }
    return AN_OK;
}

an_status ref_scatter(const run_ctx *c, const insn *in, diag *d)
{
    int64_t y = insn_t(in, "y"), x = insn_t(in, "x");
    axis_view a = et_axis(ctx_tensor(c, y), insn_i(in, "axis"));
    int64_t places = et_elems(ctx_tensor(c, insn_t(in, "indices")));
    bool add = insn_i(in, "add"), turned = insn_i(in, "turned");
    dtype t = ctx_tensor(c, y)->dt;
    double *ix = ref_load(c, insn_t(in, "indices"), d);
    if (!ix) return d->st;
    for (int64_t o = 0; o < a.outer; o++)
        for (int64_t p = 0; p < places; p++) {
            int64_t k;
            TRY(ref_index(c, in, ix[p], a.n, &k, d));
            for (int64_t j = 0; j < a.inner; j++) {
                int64_t to = (o * a.n + k) * a.inner + j,
                        from = turned ? (o * a.inner + j) * places + p : (o * places + p) * a.inner + j;
                if (!add) copy_element(c, y, to, x, from, false);
                else {
                    double v[2] = { num_in(c->num, t, dtype_load(t, ctx_mem(c, y), to)),
                                    num_in(c->num, t, dtype_load(t, ctx_mem(c, x), from)) };
                    ref_store(c, y, to, num_fn(c->num, FN_ADD, v, NULL, t));
                }
            }
        }
    return AN_OK;
}

an_status ref_gather_along(const run_ctx *c, const insn *in, diag *d) /* y[i][j][k] = x[i][indices[i][j][k]][k] */
{
    int64_t y = insn_t(in, "y"), x = insn_t(in, "x"), axis = insn_i(in, "axis"), at = 0;
    axis_view a = et_axis(ctx_tensor(c, x), axis);
    int64_t m = ctx_tensor(c, y)->dim[axis];
    double *ix = ref_load(c, insn_t(in, "indices"), d);
    if (!ix) return d->st;
    for (int64_t i = 0; i < a.outer; i++)
        for (int64_t j = 0; j < m; j++)
            for (int64_t k = 0; k < a.inner; k++, at++) {
                int64_t from;
                TRY(ref_index(c, in, ix[at], a.n, &from, d));
                copy_element(c, y, at, x, (i * a.n + from) * a.inner + k, false);
            }
    return AN_OK;
}

/* indices (batch, places, K): each row picks x[batch, i_0, ..., i_K-1] and everything behind it. */
an_status ref_gather_nd(const run_ctx *c, const insn *in, diag *d)
{
    int64_t y = insn_t(in, "y"), x = insn_t(in, "x"), to = 0;
    const etensor *t = ctx_tensor(c, x), *ti = ctx_tensor(c, insn_t(in, "indices"));
    int b = (int)insn_i(in, "batch"), k = (int)ti->dim[ti->rank - 1];
    double *row = ref_load(c, insn_t(in, "indices"), d);
    if (!row) return d->st;
    int64_t batch = dims_product(t->dim, 0, b), places = dims_product(ti->dim, b, ti->rank - 1),
            after = dims_product(t->dim, b + k, t->rank);
    for (int64_t i = 0; i < batch; i++)
        for (int64_t p = 0; p < places; p++, row += k) {
            int64_t from = i;
            for (int j = 0; j < k; j++) {
                int64_t at;
                TRY(ref_index(c, in, row[j], t->dim[b + j], &at, d));
                from = from * t->dim[b + j] + at;
            }
            for (int64_t q = 0; q < after; q++) copy_element(c, y, to++, x, from * after + q, false);
        }
    return AN_OK;
}
