/* inst.c: small readers of one operation in place, used by measures and costs alike.
 * They answer "not known" rather than guess: shapes may hold unknown extents and attributes may be run-time values. */
#include "target/target_int.h"

op_kind kind_of(op_id op)
{
    static const unsigned char kind[OP_COUNT] = {
#define OP(id, mil, in, out, attrs, shape, dtype, vjp, cost, kernel) [OP_##id] = KIND_##cost,
#include "op/ops.def"
#undef OP
    };
    return (op_kind)kind[op];
}

const operand *inst_arg(const op_inst *op, int i)
{
    return i < op->n_in && op->in[i].present ? &op->in[i] : NULL;
}

bool inst_ints(const op_inst *op, attr_id id, int want, int64_t *out)
{
    return want >= 0 && want <= 2 * MAX_RANK && attr_list(op->op, op->attrs, op->n_attr, id, want, out);
}

int64_t inst_int(const op_inst *op, attr_id id) { return attr_int(op->op, op->attrs, op->n_attr, id); }

int64_t dim_back(const shape *s, int i) { return i < s->rank ? s->d[s->rank - 1 - i] : 1; }

double tensor_elems(const ttype *t)
{
    int64_t n;
    return shape_elems(&t->sh, &n) ? (double)n : 0;
}

double tensor_bytes(const ttype *t) { return tensor_elems(t) * dtype_bits(t->dt) / 8; }

bool is_conv(op_id op) { return op == OP_CONV || op == OP_NE_CONV; }

bool is_mac(op_id op)
{
    op_kind k = kind_of(op);
    return k == KIND_conv || k == KIND_gemm || k == KIND_sdpa;
}

bool is_constexpr(op_id op) { return kind_of(op) == KIND_constexpr; }

/* einsum: the extents of labels that do not reach the result */
static double einsum_depth(const op_inst *op)
{
    double all = 1, kept = 1;
    bool seen[256] = { false };
    const char *p = attr_str(op->op, op->attrs, op->n_attr, A_EQUATION);
    int arg = 0, axis = 0;
    for (; *p && *p != '-'; p++) {
        if (*p == ',') {
            arg++, axis = 0;
            continue;
        }
        if (*p == ' ') continue;
        const operand *x = inst_arg(op, arg);
        if (!x || axis >= x->type.sh.rank || x->type.sh.d[axis] < 0) return NAN;
        if (!seen[(unsigned char)*p]) all *= (double)x->type.sh.d[axis];
        seen[(unsigned char)*p] = true;
        axis++;
    }
    kept = op->n_out ? tensor_elems(&op->out[0]) : 0;
    return kept > 0 ? all / kept : NAN;
}

double mac_depth(const op_inst *op)
{
    const operand *x = inst_arg(op, 0), *w = inst_arg(op, 1);
    if (op->op == OP_EINSUM) return einsum_depth(op);
    if (!x || !w) return NAN;
    double k = 1;
    switch (kind_of(op->op)) {
    case KIND_conv:
        if (!shape_known(&w->type.sh)) return NAN;
        for (int i = 1; i < w->type.sh.rank; i++) k *= (double)w->type.sh.d[i];
        /* weight [in, out/groups, …]: every tap of every input channel of the group */
        if (op->op == OP_CONV_TRANSPOSE) {
            int64_t groups = MAX(inst_int(op, A_GROUPS), 1);
            if (w->type.sh.rank < 2 || w->type.sh.d[1] <= 0) return NAN;
            k = k / (double)w->type.sh.d[1] * (double)(w->type.sh.d[0] / groups);
        }
        break;
    case KIND_gemm: {
        bool tx = op->op != OP_LINEAR && attr_bool(op->op, op->attrs, op->n_attr, A_TRANSPOSE_X);
        k = (double)dim_back(&x->type.sh, tx ? 1 : 0);
        break;
    }
    default: return NAN;
    }
    return k > 0 ? k : NAN;
}
