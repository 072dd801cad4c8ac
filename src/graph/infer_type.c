/* infer_type.c: the element type of each result. One rule per word of the op table's dtype column. */
#include "graph/infer_int.h"

static an_status all(infer *c, dtype dt)
{
    for (int i = 0; i < MIN(c->n_out, c->max_out); i++) c->out[i].dt = dt;
    return AN_OK;
}

static an_status differ(infer *c, int a, int b)
{
    if (a + 1 == b && a >= c->info->n_in - 1) /* two entries of one list */
        return infer_fail(c, "%s entry %d is %s and entry %d is %s: element types differ", operand_name(c, a), a,
                          show_type(&c->in[a]).s, b, show_type(&c->in[b]).s);
    return infer_fail(c, "%s is %s and %s is %s: element types differ", operand_name(c, a), show_type(&c->in[a]).s,
                      operand_name(c, b), show_type(&c->in[b]).s);
}

static an_status need_equal(infer *c) /* all present operands */
{
    int last = -1;
    for (int i = 0; i < c->n_in; i++) {
        if (!has(c, i)) continue;
        if (last >= 0 && c->in[last].dt != c->in[i].dt) return differ(c, last, i);
        last = i;
    }
    return AN_OK;
}

static an_status need_float(infer *c, int i)
{
    if (dtype_is_float(c->in[i].dt)) return AN_OK;
    return infer_fail(c, "%s is %s, wanted a float type", operand_name(c, i), show_type(&c->in[i]).s);
}

static an_status need_int(infer *c, int i)
{
    if (dtype_is_int(c->in[i].dt)) return AN_OK;
    return infer_fail(c, "%s is %s, wanted an integer type", operand_name(c, i), show_type(&c->in[i]).s);
}

static an_status need_type(infer *c, int i, dtype dt)
{
    if (c->in[i].dt == dt) return AN_OK;
    return infer_fail(c, "%s is %s, wanted %s", operand_name(c, i), show_type(&c->in[i]).s, dtype_name(dt));
}

static an_status named_type(infer *c, attr_id a, dtype *dt)
{
    const char *s = get_str(c, a);
    *dt = dtype_from_name(s, strlen(s));
    if (*dt == DT_NONE || *dt == DT_STRING)
        return infer_fail(c, "%s is \"%.40s\", wanted an element type", attr_name(a), s);
    return AN_OK;
}

static bool quantized(dtype t) { return t == DT_I8 || t == DT_U8 || t == DT_I4 || t == DT_U4; }

an_status type_given(infer *c) { return infer_fail(c, "its type is stated, never inferred"); }

an_status type_same(infer *c)
{
    TRY(need_equal(c));
    return all(c, c->in[0].dt);
}

an_status type_first(infer *c) { return all(c, c->in[0].dt); }

an_status type_number(infer *c)
{
    TRY(need_equal(c));
    if (c->in[0].dt == DT_BOOL)
        return infer_fail(c, "%s is %s, wanted numbers", operand_name(c, 0), show_type(&c->in[0]).s);
    return all(c, c->in[0].dt);
}

an_status type_float(infer *c)
{
    TRY(need_float(c, 0));
    return all(c, c->in[0].dt);
}

an_status type_float2(infer *c)
{
    TRY(need_float(c, 0));
    return type_same(c);
}

an_status type_mac(infer *c) { return type_float2(c); }
an_status type_norm(infer *c) { return type_float2(c); }

an_status type_sdpa(infer *c)
{
    for (int i = 0; i < 3; i++) {
        TRY(need_float(c, i));
        if (c->in[i].dt != c->in[0].dt) return differ(c, 0, i);
    }
    if (has(c, 3) && c->in[3].dt != DT_BOOL && c->in[3].dt != c->in[0].dt)
        return infer_fail(c, "attn_mask is %s, wanted bool or %s", show_type(&c->in[3]).s, dtype_name(c->in[0].dt));
    return all(c, c->in[0].dt);
}

an_status type_bool(infer *c)
{
    TRY(need_equal(c));
    return all(c, DT_BOOL);
}

an_status type_logic(infer *c)
{
    TRY(need_type(c, 0, DT_BOOL));
    return all(c, DT_BOOL);
}

an_status type_select(infer *c)
{
    TRY(need_type(c, 0, DT_BOOL));
    if (c->in[1].dt != c->in[2].dt) return differ(c, 1, 2);
    return all(c, c->in[1].dt);
}

an_status type_index(infer *c) { return all(c, DT_I32); }

an_status type_topk(infer *c)
{
    TRY(all(c, DT_I32));
    if (c->max_out > 0) c->out[0].dt = c->in[0].dt;
    return AN_OK;
}

an_status type_gather(infer *c)
{
    TRY(need_int(c, 1));
    return all(c, c->in[0].dt);
}

an_status type_scatter(infer *c)
{
    TRY(need_int(c, 1));
    if (c->in[2].dt != c->in[0].dt) return differ(c, 0, 2);
    return all(c, c->in[0].dt);
}

an_status type_fill(infer *c)
{
    dtype dt;
    TRY(named_type(c, A_DTYPE, &dt));
    return all(c, dt);
}

an_status type_cast(infer *c) { return type_fill(c); }

an_status type_quantize(infer *c)
{
    dtype dt;
    TRY(named_type(c, A_OUTPUT_DTYPE, &dt));
    if (!quantized(dt)) return infer_fail(c, "output_dtype is %s, wanted int8, uint8, int4 or uint4", dtype_name(dt));
    TRY(need_float(c, 0));
    if (c->in[0].dt != c->in[1].dt) return differ(c, 0, 1);
    if (has(c, 2)) TRY(need_type(c, 2, dt));
    return all(c, dt);
}

static an_status need_quantized(infer *c, int i)
{
    if (quantized(c->in[i].dt)) return AN_OK;
    return infer_fail(c, "%s is %s, wanted int8, uint8, int4 or uint4", operand_name(c, i), show_type(&c->in[i]).s);
}

an_status type_dequantize(infer *c)
{
    TRY(need_quantized(c, 0));
    TRY(need_float(c, 1));
    if (has(c, 2)) TRY(need_type(c, 2, c->in[0].dt));
    return all(c, c->in[1].dt);
}

/* Compile-time weights: the scale decides. The offset has the data's type or is a float; a zero point may be either
 * byte type. */
an_status type_cx_scale(infer *c)
{
    if (!dtype_is_float(c->in[0].dt) || c->op == OP_CX_AFFINE) TRY(need_int(c, 0));
    TRY(need_float(c, 1));
    if (has(c, 2) && c->in[2].dt != c->in[0].dt && !dtype_is_float(c->in[2].dt) && c->op != OP_CX_AFFINE)
        return differ(c, 0, 2);
    return all(c, c->in[1].dt);
}

an_status type_cx_lut(infer *c)
{
    if (dtype_class(c->in[0].dt) != KIND_UINT || dtype_bits(c->in[0].dt) > 8)
        return infer_fail(c, "indices is %s, wanted an unsigned type of at most 8 bits", show_type(&c->in[0]).s);
    return all(c, c->in[1].dt);
}

an_status type_cx_sparse_block(infer *c)
{
    TRY(need_type(c, 0, DT_U1));
    TRY(need_float(c, 2));
    if (has(c, 3) && c->in[3].dt != c->in[1].dt && !dtype_is_float(c->in[3].dt)) return differ(c, 1, 3);
    TRY(all(c, c->in[2].dt));
    if (c->max_out > 0) c->out[0].dt = DT_U1;
    return AN_OK;
}
