/* measure_value.c: the questions of measures.def about values: what ranges and constants prove, or fail to prove. A
 * range is what graph analysis knows; infinite ends mean "nothing known", and then only rows that warn about the
 * unknown speak. */
#include "base/plain.h"
#include "target/target_int.h"

static double magnitude(const operand *x) { return fmax(fabs(x->range.lo), fabs(x->range.hi)); }

/* Every element of a constant is known: its bytes are here, or the ends of its range are numbers. */
static bool known_const(const operand *x)
{
    return x && x->is_const && (x->data || (isfinite(x->range.lo) && isfinite(x->range.hi)));
}

static const op_inst *maker(const look *l, const operand *x)
{
    if (!l->p || !x->value) return NULL;
    for (size_t i = l->p->n_ops; i-- > 1;) {
        const op_inst *o = &l->p->ops[i];
        if (o->out_value && x->value >= o->out_value && x->value < o->out_value + (uint32_t)o->n_out) return o;
    }
    return NULL;
}

static bool same_value(const op_inst *op)
{
    const operand *x = inst_arg(op, 0), *y = inst_arg(op, 1);
    return x && y && x->value && x->value == y->value;
}

/* ---- slices ---- */

static bool width_offset(const look *l)
{
    const op_inst *op = l->op;
    const operand *x = inst_arg(op, 0);
    int rank = x ? x->type.sh.rank : 0, ax;
    int64_t b[2 * MAX_RANK], mask[2 * MAX_RANK];
    if (!rank || op->flags & INST_DYNAMIC_ATTR) return false;
    switch (op->op) {
    case OP_SLICE_BY_SIZE: return inst_ints(op, A_BEGIN, rank, b) && b[rank - 1] != 0;
    case OP_SLICE_BY_INDEX:
        if (!inst_ints(op, A_BEGIN, rank, b) || !inst_ints(op, A_BEGIN_MASK, rank, mask)) return false;
        return !mask[rank - 1] && b[rank - 1] != 0 && b[rank - 1] + x->type.sh.d[rank - 1] != 0;
    case OP_SPLIT: return op->n_out > 1 && axis_norm(inst_int(op, A_AXIS), rank, &ax) && ax == rank - 1;
    case OP_CROP: return inst_ints(op, A_CROP_WIDTH, 2, b) && b[0] != 0;
    default: return false;
    }
}

double m_slice_width(look *l)
{
    const operand *x = inst_arg(l->op, 0);
    if (!x || x->is_const || !dtype_is_float(x->type.dt) || !width_offset(l)) return NAN;
    return magnitude(x);
}

/* ---- constants ---- */

double m_mask_floor(look *l)
{
    const operand *x = inst_arg(l->op, 0), *y = inst_arg(l->op, 1);
    if (!x || !y || x->is_const == y->is_const) return NAN;
    const operand *k = x->is_const ? x : y;
    if (!known_const(k) || isnan(k->range.lo)) return NAN;
    if (!k->data && isinf(k->range.lo)) return NAN;
    return l->op->op == OP_SUB && k == y ? -k->range.hi : k->range.lo;
}

/* The epsilon of this operation: an attribute as written, or a one-valued constant that is added or compared. 0:
 * none. */
static double epsilon(look *l)
{
    const op_inst *op = l->op;
    double e = 0;
    if (op->op == OP_ADD || op->op == OP_MAXIMUM) {
        const operand *x = inst_arg(op, 0), *y = inst_arg(op, 1);
        if (!x || !y || x->is_const == y->is_const) return 0;
        const operand *k = x->is_const ? x : y;
        if (known_const(k) && dtype_is_float(k->type.dt) && k->range.lo == k->range.hi) e = fabs(k->range.lo);
    } else {
        const attr *a = attr_get(op->attrs, op->n_attr, A_EPSILON);
        if (a && a->kind == ATTR_FLOAT) e = fabs(a->u.f);
    }
    plain_printf(l->detail, sizeof l->detail, "%.6g", e);
    return e;
}

/* 2^-25 is half of the smallest fp16 number and rounds to even, which is 0; below 2^-14 numbers are subnormal. */
double m_eps_gone(look *l)
{
    double e = epsilon(l);
    return e > 0 && e <= 0x1p-25;
}

double m_eps_subnormal(look *l)
{
    double e = epsilon(l);
    return e > 0x1p-25 && e < 0x1p-14;
}

/* ---- sums ---- */

static double reduced(const op_inst *op) /* elements per sum */
{
    const operand *x = inst_arg(op, 0);
    double in = x ? tensor_elems(&x->type) : 0, out = op->n_out ? tensor_elems(&op->out[0]) : 0;
    return in > 0 && out > 0 ? in / out : NAN;
}

static bool sums_squares(const look *l)
{
    const operand *x = inst_arg(l->op, 0);
    if (!x) return false;
    if (l->op->op == OP_REDUCE_SUM_SQUARE || x->from == OP_SQUARE) return true;
    if (x->from != OP_MUL) return false;
    const op_inst *m = maker(l, x);
    if (m) return same_value(m);
    return x->range.lo >= 0; /* a product that cannot be negative and has no bound behaves like a square */
}

double m_square_sum(look *l)
{
    const operand *x = inst_arg(l->op, 0);
    double n = reduced(l->op);
    if (!sums_squares(l) || isnan(n) || n < 2) return NAN;
    double m = magnitude(x), top = l->op->op == OP_REDUCE_SUM_SQUARE ? n * m * m : n * m;
    plain_printf(l->detail, sizeof l->detail, "%.3g", sqrt(65504 / n));
    return top <= 65504 ? 0 : n;
}

double m_square_hi(look *l)
{
    const operand *x = inst_arg(l->op, 0);
    if (!x || (l->op->op == OP_MUL && !same_value(l->op))) return NAN;
    double m = magnitude(x);
    return isfinite(m) && !x->is_const ? m : NAN;
}

double m_sum_bound(look *l)
{
    const operand *x = inst_arg(l->op, 0);
    double n = reduced(l->op);
    if (!x || x->is_const || sums_squares(l) || isnan(n)) return NAN;
    double m = magnitude(x);
    return isfinite(m) ? n * m : NAN;
}

double m_sum_terms(look *l)
{
    const operand *x = inst_arg(l->op, 0);
    double n = reduced(l->op);
    if (!x || x->is_const || sums_squares(l) || isnan(n) || isfinite(magnitude(x))) return NAN;
    plain_printf(l->detail, sizeof l->detail, "%.4g", 65504 / n);
    return n;
}

/* ---- table functions ---- */

double m_exp_hi(look *l)
{
    const operand *x = inst_arg(l->op, 0);
    return x && !x->is_const && isfinite(x->range.hi) ? x->range.hi : NAN;
}

double m_root_lo(look *l)
{
    const operand *x = inst_arg(l->op, 0);
    return x && !x->is_const && isfinite(x->range.lo) ? x->range.lo : NAN;
}

double m_nan_test(look *l) { return same_value(l->op); }

/* ---- the output port ---- */

double m_mac_bound(look *l)
{
    const operand *x = inst_arg(l->op, 0), *w = inst_arg(l->op, 1);
    double k = mac_depth(l->op);
    if (!x || !w || (x->is_const && w->is_const) || isnan(k)) return NAN;
    if (k == 1 && is_conv(l->op->op)) return NAN; /* the one path without the ceiling */
    double top = k * magnitude(x) * magnitude(w);
    return isfinite(top) ? top : NAN;
}

/* Weights that are not here can be all that their type can say: that is nothing known about them. Who loads them
 * asks again. */
double m_zero_point(look *l)
{
    const operand *z = inst_arg(l->op, 2);
    if (!known_const(z)) return NAN;
    if (!z->data && z->range.hi - z->range.lo >= ldexp(1, dtype_bits(z->type.dt)) - 1) return NAN;
    return magnitude(z);
}
