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
    for (size_t i = (size_t)(l->op - l->p->ops); i-- > 1;) { /* mostly right before */
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

/* A sum over a multiplication that nothing else reads is one pass of the multiply array, like any product (facts 3.2,
 * N67), where both factors vary along what is summed. */
bool sums_products(const look *l)
{
    const operand *x = l->op->op == OP_REDUCE_SUM ? inst_arg(l->op, 0) : NULL;
    const op_inst *m = x && x->from == OP_MUL && x->n_uses == 1 && dtype_is_float(x->type.dt) ? maker(l, x) : NULL;
    if (!m || same_value(m)) return false;
    const attr *a = attr_get(l->op->attrs, l->op->n_attr, A_AXES);
    int rank = x->type.sh.rank;
    bool any = false;
    for (int i = 0; i < (a ? a->n : rank); i++) {
        int ax = i;
        if (a && !axis_norm(a->u.is[i], rank, &ax)) return false;
        if (x->type.sh.d[ax] == 1) continue;
        for (int k = 0; k < 2; k++)
            if (dim_back(&m->in[k].type.sh, rank - 1 - ax) == 1) return false;
        any = true;
    }
    return any;
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
    if (!x || x->is_const || sums_squares(l) || sums_products(l) || isnan(n)) return NAN;
    double m = magnitude(x);
    return isfinite(m) ? n * m : NAN;
}

double m_sum_terms(look *l)
{
    const operand *x = inst_arg(l->op, 0);
    double n = reduced(l->op);
    if (!x || x->is_const || sums_squares(l) || sums_products(l) || isnan(n) || isfinite(magnitude(x))) return NAN;
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

/* The one path without the ceiling. */
static bool is_exempt(const op_inst *op) { return is_conv(op->op) && mac_depth(op) == 1; }

/* Of attention the scores: what follows them are means of values. */
double m_mac_bound(look *l)
{
    const op_inst *op = l->op;
    const operand *x = inst_arg(op, 0), *w = inst_arg(op, 1), *bias = is_mac(op->op) ? inst_arg(op, 2) : NULL;
    double top;
    if (sums_products(l)) top = reduced(op) * magnitude(x);
    else {
        double k = op->op == OP_SDPA && x ? (double)dim_back(&x->type.sh, 0) : mac_depth(op);
        if (!x || !w || (x->is_const && w->is_const) || isnan(k) || is_exempt(op)) return NAN;
        top = k * magnitude(x) * magnitude(w);
        if (bias && op->op != OP_SDPA && op->op != OP_EINSUM) top += magnitude(bias);
    }
    return isfinite(top) ? top : NAN;
}

/* Gain and offset by constants, then an activation, in this order and each once, are steps of the pass whose sum they
 * take (facts 3.1, 5.4). 0: no such step. */
static int step_stage(const op_inst *op)
{
    switch (op->op) {
    case OP_MUL: return 1;
    case OP_ADD:
    case OP_SUB: return 2;
    case OP_EXP:
    case OP_EXP2:
    case OP_SQUARE:
    case OP_INVERSE:
    case OP_RSQRT: return 3;
    default: return 0;
    }
}

/* What a step works on, beside a constant if it has two operands: *by. NULL: it stands alone. */
static const operand *stepped(const op_inst *op, const operand **by)
{
    const operand *x = inst_arg(op, 0), *y = inst_arg(op, 1);
    if (!x || (y && x->is_const == y->is_const) || (op->op == OP_SUB && x->is_const)) return NULL;
    const operand *on = x->is_const ? y : x;
    *by = on == x ? y : x;
    return on && on->n_uses == 1 ? on : NULL;
}

/* The product whose pass the step is part of; NULL: none. */
static const op_inst *product_before(const look *l)
{
    const op_inst *op = l->op;
    for (int stage = step_stage(op); stage; stage = step_stage(op)) {
        const operand *by, *x = stepped(op, &by);
        const look here = { .c = l->c, .op = op, .p = l->p };
        const op_inst *m = x ? maker(&here, x) : NULL;
        if (!m) return NULL;
        look before = { .c = l->c, .op = m, .p = l->p };
        if (sums_products(&before) || (is_mac(m->op) && m->op != OP_SDPA)) return m;
        if (step_stage(m) >= stage) return NULL;
        op = m;
    }
    return NULL;
}

/* Constants of the steps from the product on are one number, or one a channel. */
static bool steps_by_channel(const look *l, const op_inst *product)
{
    const op_inst *op = l->op;
    const bool first = kind_of(product->op) == KIND_gemm && product->in[0].is_const && !product->in[1].is_const;
    const int channel = kind_of(product->op) == KIND_conv ? product->out[0].sh.rank - 2 : first; /* from the end */
    while (op != product) {
        const operand *by, *x = stepped(op, &by);
        for (int i = 0; by && i < by->type.sh.rank; i++)
            if (dim_back(&by->type.sh, i) != 1 && i != channel) return false;
        op = maker(&(look){ .c = l->c, .op = op, .p = l->p }, x);
    }
    return true;
}

/* The result of a step that shares the pass of a product. */
double m_step_bound(look *l)
{
    const op_inst *m = l->op->out_range ? product_before(l) : NULL;
    if (!m || is_exempt(m) || !steps_by_channel(l, m)) return NAN;
    double top = fmax(fabs(l->op->out_range->lo), fabs(l->op->out_range->hi));
    snprintf(l->detail, sizeof l->detail, "%s", m->mil);
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
