/* split_axis.c: which axis of an operand an axis of the result comes from, and work along the axis that is in pieces.
 * One table of classes says how each operation treats its axes; what is not in it cannot be split. */
#include "pass/split_int.h"

typedef enum {
    CANNOT,
    ELEMENT,  /* element by element with broadcasting */
    ALONG,    /* like ELEMENT, but every element of one axis is needed (attribute axis or axes) */
    REDUCE,   /* axes disappear */
    PRODUCT,  /* matmul, linear */
    CONV,
    TRANSPOSE,
    RESHAPE,
    SLICE,
    CONCAT,
    PAD,
    FILL,
} split_class;

static split_class class_of(op_id op)
{
    switch (op) {
    case OP_ADD: case OP_SUB: case OP_MUL: case OP_REAL_DIV: case OP_FLOOR_DIV: case OP_POW: case OP_MAXIMUM: case OP_MINIMUM:
    case OP_ABS: case OP_SQUARE: case OP_SQRT: case OP_RSQRT: case OP_INVERSE: case OP_EQUAL: case OP_NOT_EQUAL: case OP_GREATER:
    case OP_GREATER_EQUAL: case OP_LESS: case OP_LESS_EQUAL: case OP_LOGICAL_NOT: case OP_SELECT: case OP_RELU: case OP_RELU6:
    case OP_LEAKY_RELU: case OP_CLAMPED_RELU: case OP_THRESHOLDED_RELU: case OP_THRESHOLD: case OP_CLIP: case OP_LINEAR_ACTIVATION:
    case OP_ELU: case OP_SIGMOID: case OP_SIGMOID_HARD: case OP_TANH: case OP_SCALED_TANH: case OP_GELU: case OP_SILU:
    case OP_SOFTPLUS: case OP_SOFTSIGN: case OP_ERF: case OP_EXP: case OP_EXP2: case OP_LOG: case OP_SIGN: case OP_CEIL:
    case OP_FLOOR: case OP_ROUND: case OP_SIN: case OP_COS: case OP_ATAN: case OP_IDENTITY: case OP_CAST: case OP_PE_ELEMENTWISE:
    case OP_FILL_LIKE: return ELEMENT;
    case OP_SOFTMAX: case OP_CUMSUM: case OP_REVERSE: return ALONG;
    case OP_REDUCE_SUM: case OP_REDUCE_MEAN: case OP_REDUCE_MAX: case OP_REDUCE_MIN: case OP_REDUCE_SUM_SQUARE:
    case OP_REDUCE_L1_NORM: case OP_REDUCE_L2_NORM: return REDUCE;
    case OP_MATMUL: case OP_LINEAR: return PRODUCT;
    case OP_CONV: return CONV;
    case OP_TRANSPOSE: return TRANSPOSE;
    case OP_RESHAPE: case OP_EXPAND_DIMS: case OP_SQUEEZE: case OP_FLATTEN2D: return RESHAPE;
    case OP_SLICE_BY_SIZE: return SLICE;
    case OP_CONCAT: return CONCAT;
    case OP_PAD: return PAD;
    case OP_FILL: return FILL;
    default: return CANNOT;
    }
}

enum { WHOLE = -1, NO_WAY = -2 };

static bool flag(const node *n, attr_id a) { return attr_bool(n->op, n->attrs, n->n_attr, a); }

/* Bit k: the op needs, or removes, axis k of its operand. */
static unsigned own_axes(const graph *g, const node *n)
{
    int rank = in_type(g, n, 0)->sh.rank, axis;
    const attr *list = attr_get(n->attrs, n->n_attr, A_AXES);
    unsigned set = 0;
    if (op_attr_spec(n->op, A_AXES)) {
        if (!list) return (1u << rank) - 1;
        for (int k = 0; k < list->n; k++)
            if (axis_norm(list->u.is[k], rank, &axis)) set |= 1u << axis;
    } else if (axis_norm(attr_int(n->op, n->attrs, n->n_attr, A_AXIS), rank, &axis))
        set = 1u << axis;
    return set;
}

/* Result axis a of a reduction, in the operand. */
static int unreduced(const graph *g, const node *n, int a)
{
    unsigned set = own_axes(g, n);
    if (flag(n, A_KEEP_DIMS)) return set & 1u << a ? NO_WAY : a;
    for (int k = 0, kept = 0; k < in_type(g, n, 0)->sh.rank; k++)
        if (!(set & 1u << k) && kept++ == a) return k;
    return NO_WAY;
}

/* Axis a of y lies where axis b of x does when the extents before them multiply to the same. */
static int same_place(const shape *x, const shape *y, int a)
{
    int64_t before = 1, p = 1;
    for (int k = 0; k < a; k++) before *= y->d[k];
    for (int k = 0; k < x->rank; k++) {
        if (p == before && x->d[k] == y->d[a]) return k;
        p *= x->d[k];
    }
    return NO_WAY;
}

static int from_product(const graph *g, const node *n, int a, int k)
{
    int ro = out_type(g, n)->sh.rank, rk = in_type(g, n, k)->sh.rank;
    if (n->op == OP_LINEAR) {
        if (a == ro - 1) return k == 0 ? WHOLE : 0; /* weight [N, K], bias [N] */
        return k == 0 ? a : WHOLE;
    }
    bool t = flag(n, k == 0 ? A_TRANSPOSE_X : A_TRANSPOSE_Y);
    if (a >= ro - 2) { /* rows come from x, columns from y */
        if ((a == ro - 2) != (k == 0)) return WHOLE;
        if (rk < 2) return NO_WAY;
        return (a == ro - 2) != t ? rk - 2 : rk - 1;
    }
    int b = a - (ro - rk);
    return b < 0 || in_type(g, n, k)->sh.d[b] == 1 ? WHOLE : b;
}

static int from_conv(const graph *g, const node *n, int a, int k)
{
    if (attr_int(n->op, n->attrs, n->n_attr, A_GROUPS) != 1) return NO_WAY;
    if (a == 1) return k == 0 ? WHOLE : 0; /* weight [Cout, ..], bias [Cout] */
    if (a >= 2) { /* only where the window is one element and stays in place */
        int spatial = in_type(g, n, 0)->sh.rank - 2;
        int64_t stride[MAX_RANK], pad[2 * MAX_RANK];
        if (!node_list(n, A_STRIDES, spatial, stride) || !node_list(n, A_PAD, 2 * spatial, pad)) return NO_WAY;
        bool padded = !strcmp(attr_str(n->op, n->attrs, n->n_attr, A_PAD_TYPE), "custom") &&
                      (pad[2 * (a - 2)] || pad[2 * (a - 2) + 1]);
        if (in_type(g, n, 1)->sh.d[a] != 1 || stride[a - 2] != 1 || padded) return NO_WAY;
    }
    return k == 0 ? a : WHOLE;
}

/* Which axis of operand k result axis a runs along; WHOLE: the operand is needed as it is. */
static int source_axis(const graph *g, const node *n, int a, int k)
{
    if (!n->in[k].i) return WHOLE;
    const shape *out = &out_type(g, n)->sh, *in = &in_type(g, n, k)->sh;
    int b = a - (out->rank - in->rank);
    int64_t list[2 * MAX_RANK];
    const attr *at;
    switch (class_of(n->op)) {
    case ELEMENT: return b < 0 || (in->d[b] == 1 && out->d[a] != 1) ? WHOLE : b;
    case ALONG: return own_axes(g, n) & 1u << a ? NO_WAY : a;
    case REDUCE: return unreduced(g, n, a);
    case PRODUCT: return from_product(g, n, a, k);
    case CONV: return from_conv(g, n, a, k);
    case TRANSPOSE:
        if (!node_list(n, A_PERM, out->rank, list)) return NO_WAY;
        return (int)(list[a] < 0 ? list[a] + out->rank : list[a]);
    case RESHAPE: return same_place(in, out, a);
    case SLICE: return a;
    case CONCAT:
        return a == (int)(attr_int(n->op, n->attrs, n->n_attr, A_AXIS) +
                          (attr_int(n->op, n->attrs, n->n_attr, A_AXIS) < 0 ? out->rank : 0))
                   ? NO_WAY
                   : a;
    case PAD:
        at = attr_get(n->attrs, n->n_attr, A_PAD);
        b = 2 * (a - (out->rank - at->n / 2));
        return b >= 0 && (at->u.is[b] || at->u.is[b + 1]) ? NO_WAY : a;
    default: return NO_WAY;
    }
}

int split_result_axis(splitter *s, const node *n)
{
    const graph *g = &s->was;
    for (int k = 0; k < n->n_in; k++) {
        if (!n->in[k].i || !s->parts[n->in[k].i].n) continue;
        for (int a = 0; a < out_type(g, n)->sh.rank; a++)
            if (class_of(n->op) != SLICE && source_axis(g, n, a, k) == s->parts[n->in[k].i].axis) return a;
    }
    return -1;
}

/* Attributes that spell the shape of the result. */
static const attr *restrict_attrs(splitter *s, const node *n, int axis, int64_t extent, attr *room, int64_t *list)
{
    const shape *out = &out_type(&s->was, n)->sh;
    split_class c = class_of(n->op);
    if (c != RESHAPE && c != FILL) return n->attrs;
    for (int k = 0; k < out->rank; k++) list[k] = k == axis ? extent : out->d[k];
    for (int k = 0; k < n->n_attr; k++) {
        room[k] = n->attrs[k];
        if (room[k].id == A_SHAPE) room[k] = AT_LIST(SHAPE, list, out->rank);
    }
    return room;
}

val split_one(splitter *s, const node *n, int axis, int64_t at, int64_t extent, val *in)
{
    const graph *g = &s->was;
    const shape *out = &out_type(g, n)->sh;
    int64_t list[MAX_RANK], begin[MAX_RANK];
    attr room[OP_MAX_ATTRS];
    if (class_of(n->op) == SLICE) { /* the long axis by range, then the others by a slice of what came */
        if (!node_list(n, A_BEGIN, out->rank, begin)) return NO_VAL;
        val v = split_range(s, n->in[0], axis, begin[axis] + at, extent);
        begin[axis] = 0;
        for (int k = 0; k < out->rank; k++) list[k] = k == axis ? extent : out->d[k];
        return GA(s->g, SLICE_BY_SIZE, VALS(v), AT_LIST(BEGIN, begin, out->rank), AT_LIST(SIZE, list, out->rank));
    }
    for (int k = 0; k < n->n_in; k++) {
        int b = source_axis(g, n, axis, k);
        if (b == NO_WAY) {
            split_fail(s, n, out->d[axis], "this operation cannot be split along it");
            return NO_VAL;
        }
        in[k] = b == WHOLE ? split_whole(s, n, n->in[k]) : split_range(s, n->in[k], b, at, extent);
    }
    if (!n->n_in && class_of(n->op) != FILL) {
        split_fail(s, n, out->d[axis], "this operation cannot be split along it");
        return NO_VAL;
    }
    const attr *attrs = restrict_attrs(s, n, axis, extent, room, list);
    /* expand_dims, squeeze and flatten2d as the reshape they are: their own attributes say nothing about extents. */
    if (class_of(n->op) == RESHAPE && n->op != OP_RESHAPE) {
        attr sh = AT_LIST(SHAPE, list, out->rank);
        return graph_op(s->g, OP_RESHAPE, in, 1, &sh, 1);
    }
    return graph_op(s->g, n->op, in, n->n_in, attrs, n->n_attr);
}

/* ---- along the long axis ---- */

/* Operand k of n is in pieces: piece j of it, and how many there are. */
static const pieces *parts_of(const splitter *s, const node *n, int k)
{
    return n->in[k].i && s->parts[n->in[k].i].n ? &s->parts[n->in[k].i] : NULL;
}

static val joined(splitter *s, const node *n, op_id op, const val *v, int count)
{
    val sum = v[0];
    for (int k = 1; k < count; k++)
        sum = graph_op_named(s->g, k + 1 == count ? n->name : NULL, op, VALS(sum, v[k]), NULL, 0);
    return sum;
}

static bool reduce_across(splitter *s, const node *n)
{
    const pieces *p = parts_of(s, n, 0);
    graph *g = s->g;
    op_id part = n->op, join = OP_ADD;
    switch (n->op) {
    case OP_REDUCE_SUM:
    case OP_REDUCE_SUM_SQUARE:
    case OP_REDUCE_L1_NORM: break;
    case OP_REDUCE_MEAN: part = OP_REDUCE_SUM; break;
    case OP_REDUCE_MAX: join = OP_MAXIMUM; break;
    case OP_REDUCE_MIN: join = OP_MINIMUM; break;
    default: return false;
    }
    val *v = TAKE(s->mem, val, (size_t)p->n);
    if (!v) return graph_fail(g, AN_NOMEM, "out of memory"), true;
    for (int k = 0; k < p->n; k++) v[k] = graph_op(g, part, VALS(p->at[k]), n->attrs, n->n_attr);
    if (n->op != OP_REDUCE_MEAN) {
        s->rw.map[n->out.i] = joined(s, n, join, v, p->n);
        return true;
    }
    int64_t all, kept;
    val sum = v[0];
    for (int k = 1; k < p->n; k++) sum = G(g, ADD, sum, v[k]);
    if (!shape_elems(&in_type(&s->was, n, 0)->sh, &all) || !shape_elems(&out_type(&s->was, n)->sh, &kept) || !kept)
        return false;
    dtype dt = out_type(&s->was, n)->dt;
    s->rw.map[n->out.i] =
        graph_op_named(g, n->name, OP_MUL, VALS(sum, graph_scalar(g, dt, (double)kept / (double)all)), NULL, 0);
    return true;
}

/* exp(x - max) / sum, with the maximum and the sum taken over all pieces. */
static bool softmax_across(splitter *s, const node *n, int axis)
{
    const pieces *p = parts_of(s, n, 0);
    graph *g = s->g;
    pieces *o = &s->parts[n->out.i];
    val max = NO_VAL, sum = NO_VAL;
    *o = *p;
    o->at = TAKE(s->mem, val, (size_t)p->n);
    if (!o->at) return graph_fail(g, AN_NOMEM, "out of memory"), true;
    for (int k = 0; k < p->n; k++) {
        val m = GA(g, REDUCE_MAX, VALS(p->at[k]), AT_IS(AXES, axis), AT_B(KEEP_DIMS, true));
        max = k ? G(g, MAXIMUM, max, m) : m;
    }
    for (int k = 0; k < p->n; k++) {
        o->at[k] = G(g, EXP, G(g, SUB, p->at[k], max));
        val e = GA(g, REDUCE_SUM, VALS(o->at[k]), AT_IS(AXES, axis), AT_B(KEEP_DIMS, true));
        sum = k ? G(g, ADD, sum, e) : e;
    }
    for (int k = 0; k < p->n; k++) o->at[k] = G(g, REAL_DIV, o->at[k], sum);
    return true;
}

/* The axis of operand k that a product sums over; -1: none. */
static int contracted(const graph *g, const node *n, int k)
{
    int rank = in_type(g, n, k)->sh.rank;
    switch (n->op) {
    case OP_LINEAR: return k == 0 ? rank - 1 : k == 1 ? 1 : -1;
    case OP_MATMUL:
        if (rank < 2) return -1;
        return flag(n, k == 0 ? A_TRANSPOSE_X : A_TRANSPOSE_Y) == (k == 0) ? rank - 2 : rank - 1;
    case OP_CONV: return attr_int(n->op, n->attrs, n->n_attr, A_GROUPS) == 1 && k < 2 ? 1 : -1;
    default: return -1;
    }
}

static bool product_across(splitter *s, const node *n)
{
    int axis[2] = { contracted(&s->was, n, 0), contracted(&s->was, n, 1) };
    const pieces *p[2] = { parts_of(s, n, 0), parts_of(s, n, 1) };
    bool along = (p[0] && p[0]->axis == axis[0]) || (p[1] && p[1]->axis == axis[1]);
    if (!along || axis[0] < 0 || axis[1] < 0) return false;
    int64_t extent = in_type(&s->was, n, 0)->sh.d[axis[0]], size = split_piece(s, extent);
    val sum = NO_VAL, bias = n->n_in > 2 ? split_whole(s, n, n->in[2]) : NO_VAL;
    for (int64_t at = 0; at < extent && !s->g->err.st; at += size) {
        int64_t here = MIN(size, extent - at);
        val in[3] = { split_range(s, n->in[0], axis[0], at, here), split_range(s, n->in[1], axis[1], at, here),
                      at ? NO_VAL : bias };
        val one = graph_op(s->g, n->op, in, n->n_in, n->attrs, n->n_attr);
        sum = at ? graph_op_named(s->g, at + size >= extent ? n->name : NULL, OP_ADD, VALS(sum, one), NULL, 0) : one;
    }
    s->rw.map[n->out.i] = sum;
    return true;
}

bool split_across(splitter *s, const node *n, int axis)
{
    if (!n->n_in || s->g->err.st) return false;
    const pieces *p = parts_of(s, n, 0);
    if (class_of(n->op) == REDUCE && p && own_axes(&s->was, n) & 1u << p->axis) return axis < 0 && reduce_across(s, n);
    if (n->op == OP_SOFTMAX && p && own_axes(&s->was, n) == 1u << p->axis) return softmax_across(s, n, p->axis);
    if ((class_of(n->op) == PRODUCT || n->op == OP_CONV) && axis < 0) return product_across(s, n);
    if (class_of(n->op) == SLICE && p && axis < 0) { /* a short part of a long tensor */
        int64_t begin[MAX_RANK];
        const shape *out = &out_type(&s->was, n)->sh;
        if (!node_list(n, A_BEGIN, out->rank, begin)) return false;
        val v = split_range(s, n->in[0], p->axis, begin[p->axis], out->d[p->axis]);
        begin[p->axis] = 0;
        const attr at[2] = { AT_LIST(BEGIN, begin, out->rank), AT_LIST(SIZE, out->d, out->rank) };
        s->rw.map[n->out.i] = graph_op_named(s->g, n->name, OP_SLICE_BY_SIZE, VALS(v), at, 2);
        return true;
    }
    return false;
}

bool split_concat(splitter *s, const node *n, int axis)
{
    int along, rank = out_type(&s->was, n)->sh.rank;
    if (axis < 0 || flag(n, A_INTERLEAVE) || !axis_norm(attr_int(n->op, n->attrs, n->n_attr, A_AXIS), rank, &along) ||
        along != axis)
        return false;
    int64_t extent = out_type(&s->was, n)->sh.d[axis], size = split_piece(s, extent);
    pieces *o = &s->parts[n->out.i];
    *o = (pieces){ .n = (int)((extent + size - 1) / size), .axis = axis, .size = size };
    o->at = TAKE(s->mem, val, (size_t)o->n);
    val *found = TAKE(s->mem, val, (size_t)n->n_in);
    if (!o->at || !found) return graph_fail(s->g, AN_NOMEM, "out of memory"), true;
    for (int k = 0; k < o->n && !s->g->err.st; k++) {
        int64_t lo = size * k, hi = MIN(lo + size, extent), at = 0;
        int n_found = 0;
        for (int i = 0; i < n->n_in; i++) {
            int64_t e = in_type(&s->was, n, i)->sh.d[axis], from = MAX(at, lo), to = MIN(at + e, hi);
            if (from < to) found[n_found++] = split_range(s, n->in[i], axis, from - at, to - from);
            at += e;
        }
        o->at[k] = split_join(s, NULL, found, n_found, axis);
    }
    return true;
}
