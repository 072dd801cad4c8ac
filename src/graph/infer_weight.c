/* infer_weight.c: shapes of quantised tensors and of compile-time weights. */
#include "graph/infer_int.h"

/* A parameter is one number, or one for each element of the axis. */
static an_status per_axis(infer *c, int i, bool have_axis, int axis)
{
    const shape *x = sh(c, 0), *s = sh(c, i);
    if (s->rank == 0) return AN_OK;
    if (s->rank != 1)
        return infer_fail(c, "%s is %s, wanted a scalar or a vector", operand_name(c, i), show_type(&c->in[i]).s);
    if (!have_axis)
        return infer_fail(c, "%s is %s, a vector, but axis is not given", operand_name(c, i), show_type(&c->in[i]).s);
    if (dim_agree(s->d[0], x->d[axis])) return AN_OK;
    return infer_fail(c, "%s is %s, wanted %lld values for dimension %d of %s", operand_name(c, i),
                      show_type(&c->in[i]).s, (long long)x->d[axis], axis, show_type(&c->in[0]).s);
}

an_status infer_quant(infer *c)
{
    int axis = 0;
    bool have = given(c, A_AXIS);
    if (have) TRY(get_axis(c, A_AXIS, sh(c, 0)->rank, &axis));
    TRY(per_axis(c, 1, have, axis));
    if (has(c, 2)) {
        TRY(per_axis(c, 2, have, axis));
        if (!dims_agree(sh(c, 1), sh(c, 2)))
            return infer_fail(c, "scale is %s and zero_point is %s: shapes differ", show_type(&c->in[1]).s,
                              show_type(&c->in[2]).s);
    }
    return put_shape(c, sh(c, 0));
}

an_status infer_cx_affine(infer *c)
{
    int axis;
    TRY(need_rank(c, 0, 1, MAX_RANK));
    TRY(get_axis(c, A_AXIS, sh(c, 0)->rank, &axis));
    TRY(per_axis(c, 1, true, axis));
    TRY(per_axis(c, 2, true, axis));
    return put_shape(c, sh(c, 0));
}

/* The dense shape of the packed forms, and how many bytes n bits per element take. */
static an_status packed(infer *c, int64_t bits, int which, shape *o)
{
    int64_t n;
    TRY(get_some(c, A_SHAPE, MAX_RANK, &o->rank, o->d));
    TRY(need_min(c, A_SHAPE, o->d, o->rank, 1));
    TRY(need_rank(c, which, 1, 1));
    if (!shape_elems(o, &n) || n > INT64_MAX / 16)
        return infer_fail(c, "shape %s has too many elements", show_shape(o).s);
    int64_t bytes = (n * bits + 7) / 8;
    if (dim_agree(sh(c, which)->d[0], bytes)) return AN_OK;
    return infer_fail(c, "%s is %s, wanted %lld bytes for shape %s at %lld bits an element", operand_name(c, which),
                      show_type(&c->in[which]).s, (long long)bytes, show_shape(o).s, (long long)bits);
}

/* With shape: bytes of packed indices and one table. Without: indices of a small type and a table per block,
 * lut [blocks..., 2^bits, vector]. */
an_status infer_cx_lut(infer *c)
{
    const shape *idx = sh(c, 0), *lut = sh(c, 1);
    shape o = { 0 };
    if (given(c, A_SHAPE)) {
        if (given(c, A_VECTOR_AXIS))
            return infer_fail(c, "shape and vector_axis are both given: they belong to different forms");
        if (c->in[0].dt != DT_U8)
            return infer_fail(c, "indices is %s, wanted packed uint8 with shape given", show_type(&c->in[0]).s);
        TRY(need_rank(c, 1, 1, 1));
        int64_t bits = 0;
        static const int64_t allowed[] = { 1, 2, 4, 6, 8 };
        for (size_t i = 0; i < COUNT(allowed); i++)
            if (lut->d[0] == (int64_t)1 << allowed[i]) bits = allowed[i];
        if (!bits) return infer_fail(c, "lut is %s, wanted 2, 4, 16, 64 or 256 entries", show_type(&c->in[1]).s);
        TRY(packed(c, bits, 0, &o));
        return put_shape(c, &o);
    }
    int k = idx->rank;
    TRY(need_rank(c, 0, 1, MAX_RANK - 2));
    TRY(need_rank(c, 1, k + 2, k + 2));
    for (int i = 0; i < k; i++)
        if (idx->d[i] >= 0 && (lut->d[i] < 1 || idx->d[i] % lut->d[i]))
            return infer_fail(c, "indices is %s and lut is %s: dimension %d does not divide into %lld tables",
                              show_type(&c->in[0]).s, show_type(&c->in[1]).s, i, (long long)lut->d[i]);
    int bits = dtype_bits(c->in[0].dt);
    if (bits > 8 || lut->d[k] != (int64_t)1 << bits)
        return infer_fail(c, "lut is %s: %lld entries a table, wanted 2^%d for %s indices", show_type(&c->in[1]).s,
                          (long long)lut->d[k], bits, dtype_name(c->in[0].dt));
    o = *idx;
    if (given(c, A_VECTOR_AXIS)) {
        int axis;
        TRY(get_axis(c, A_VECTOR_AXIS, k, &axis));
        TRY(dim_mul(c, o.d[axis], lut->d[k + 1], &o.d[axis]));
    } else if (lut->d[k + 1] != 1) {
        return infer_fail(c, "lut is %s: entries of %lld values need vector_axis", show_type(&c->in[1]).s,
                          (long long)lut->d[k + 1]);
    }
    return put_shape(c, &o);
}

/* With shape: a bit mask in bytes. Without: a uint1 mask of the dense shape. */
an_status infer_cx_sparse(infer *c)
{
    shape o = { 0 };
    TRY(need_rank(c, 0, 1, 1));
    dtype want = given(c, A_SHAPE) ? DT_U8 : DT_U1;
    if (c->in[1].dt != want)
        return infer_fail(c, "mask is %s, wanted %s %s shape", show_type(&c->in[1]).s, dtype_name(want),
                          want == DT_U8 ? "with" : "without");
    if (given(c, A_SHAPE)) TRY(packed(c, 1, 1, &o));
    else o = *sh(c, 1);
    int64_t n;
    if (shape_elems(&o, &n) && sh(c, 0)->d[0] > n)
        return infer_fail(c, "nonzero_data is %s, more than the %lld elements of %s", show_type(&c->in[0]).s,
                          (long long)n, show_shape(&o).s);
    return put_shape(c, &o);
}

/* scale has data's rank; each of its extents divides data's, and the quotient is the block. */
static an_status blocks(infer *c, int data, int scale)
{
    const shape *x = sh(c, data), *s = sh(c, scale);
    TRY(need_rank(c, data, 1, MAX_RANK));
    if (s->rank != x->rank)
        return infer_fail(c, "%s is %s and scale is %s: ranks differ", operand_name(c, data), show_type(&c->in[data]).s,
                          show_type(&c->in[scale]).s);
    for (int i = 0; i < x->rank; i++)
        if (x->d[i] >= 0 && (s->d[i] < 1 || x->d[i] % s->d[i]))
            return infer_fail(c, "%s is %s and scale is %s: dimension %d does not divide into %lld blocks",
                              operand_name(c, data), show_type(&c->in[data]).s, show_type(&c->in[scale]).s, i,
                              (long long)s->d[i]);
    if (has(c, scale + 1) && !dims_agree(s, sh(c, scale + 1)))
        return infer_fail(c, "scale is %s and offset is %s: shapes differ", show_type(&c->in[scale]).s,
                          show_type(&c->in[scale + 1]).s);
    return AN_OK;
}

an_status infer_cx_block(infer *c)
{
    TRY(blocks(c, 0, 1));
    return put_shape(c, sh(c, 0));
}

an_status infer_cx_sparse_block(infer *c)
{
    TRY(need_rank(c, 1, 1, 1));
    TRY(blocks(c, 0, 2));
    put_shape(c, sh(c, 0));
    return put_shape(c, sh(c, 1));
}
