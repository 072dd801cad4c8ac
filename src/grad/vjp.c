/* vjp.c: what the gradient rules are built from: thin gradients made full, broadcasts summed back, axes cut, padded
 * and mapped. In: values of the graph.  Out: more of them. Where there is a choice, the form is one that every
 * family runs: zeros come from pad on the last two axes and from concat on the others, sums over a broadcast axis
 * are reduce_sum and reshape. */
#include <float.h>
#include <math.h>

#include "grad/grad_int.h"

val num(adj *c, double x) { return graph_scalar(c->g, c->dt, x); }
val scale(adj *c, val v, double s) { return s == 1 ? v : mul(c, v, num(c, s)); }

/* ---- the loss scale, as long as it is a number ---- */

val hold(adj *c, const shape *s, double x)
{
    val v = graph_fill_const(c->g, NULL, typed(c, *s), x);
    if (v.i && c->held && c->held->n < GRAD_MAX_SEEDS) c->held->at[c->held->n].v = v, c->held->at[c->held->n++].x = x;
    return v;
}

static bool is_held(const adj *c, val v, double *x)
{
    if (!c->held || c->held->n == GRAD_MAX_SEEDS) return false; /* no room for another: the graph computes it */
    for (int i = 0; i < c->held->n; i++)
        if (v.i && c->held->at[i].v.i == v.i) return *x = c->held->at[i].x, true;
    return false;
}

/* a is held and b a constant number: the result is held, in a's shape. */
static bool both_known(const adj *c, val a, val b, double *x, double *y)
{
    shape s = shape_at(c, b);
    return is_held(c, a, x) && graph_const_scalar(c->g, b, y) && count_of(&s) == 1 && s.rank <= shape_at(c, a).rank;
}

val mul(adj *c, val a, val b)
{
    double x, y;
    shape s = shape_at(c, a), t = shape_at(c, b);
    if (both_known(c, a, b, &x, &y)) return hold(c, &s, x * y);
    if (both_known(c, b, a, &x, &y)) return hold(c, &t, x * y);
    return G(c->g, MUL, a, b);
}

val quo(adj *c, val a, val b)
{
    double x, y;
    shape s = shape_at(c, a);
    if (both_known(c, a, b, &x, &y) && y != 0) return hold(c, &s, x / y);
    return G(c->g, REAL_DIV, a, b);
}

double tiny_of(dtype dt) { return dt == DT_F16 ? 0x1p-14 : dt == DT_F64 ? DBL_MIN : (double)FLT_MIN; }

/* fp16 to its end: products of chips end at half of it. Of wider types half the range: a difference of two is a
 * number too. */
double lowest_of(dtype dt) { return dt == DT_F16 ? -65504 : dt == DT_F64 ? -DBL_MAX / 2 : (double)-FLT_MAX / 2; }

/* A division by the count: n is exact in fp16 to 2048 where 1/n is not. fp16 ends at 65504, so a large one goes in
 * two steps. */
val over_count(adj *c, val v, int64_t n)
{
    enum { STEP = 1 << 14 };
    double rest = (double)n, x;
    shape s = shape_at(c, v);
    if (is_held(c, v, &x)) return hold(c, &s, x / rest);
    while (c->dt == DT_F16 && rest > STEP) v = quo(c, v, num(c, STEP)), rest /= STEP;
    return rest == 1 ? v : quo(c, v, num(c, rest));
}

static val times_count(adj *c, val v, int64_t n)
{
    enum { STEP = 1 << 14 };
    double rest = (double)n, x;
    shape s = shape_at(c, v);
    if (is_held(c, v, &x)) return hold(c, &s, x * rest);
    while (c->dt == DT_F16 && rest > STEP) v = scale(c, v, STEP), rest /= STEP;
    return scale(c, v, rest);
}

void broken(adj *c, const char *what) { graph_fail(c->g, AN_BUG, "gradient of %s %s: %s", c->n.mil, c->n.name, what); }

/* ---- attributes ---- */

bool at_l(adj *c, attr_id a, int want, int64_t *out)
{
    if (attr_list(c->n.op, c->n.attrs, c->n.n_attr, a, want, out)) return true;
    broken(c, attr_name(a));
    return false;
}

int at_axis(adj *c, attr_id a, int rank)
{
    int axis = 0;
    if (!axis_norm(at_i(c, a), rank, &axis)) broken(c, attr_name(a));
    return axis;
}

unsigned at_axes(adj *c, attr_id a, int rank)
{
    const attr *l = at_p(c, a);
    if (!l) return (1u << rank) - 1;
    unsigned set = 0;
    for (int i = 0; i < l->n; i++) {
        int axis;
        if (axis_norm(l->u.is[i], rank, &axis)) set |= 1u << axis;
        else broken(c, attr_name(a));
    }
    return set;
}

/* ---- shapes ---- */

int64_t prod(const int64_t *d, int from, int to)
{
    int64_t p = 1;
    for (int i = from; i < to; i++) p *= d[i];
    return p;
}

int64_t count_of(const shape *s) { return prod(s->d, 0, s->rank); }

val reshaped(adj *c, val v, const shape *s)
{
    if (c->g->err.st) return NO_VAL;
    shape now = shape_at(c, v);
    if (shape_eq(&now, s)) return v;
    double x;
    if (is_held(c, v, &x)) return hold(c, s, x);
    return GA(c->g, RESHAPE, VALS(v), AT_LIST(SHAPE, s->d, s->rank));
}

/* A product with ones: exact, and only the missing axes are in the constant. */
val full(adj *c, val v, const shape *s)
{
    if (c->g->err.st) return NO_VAL;
    shape now = shape_at(c, v), ones = *s;
    if (shape_eq(&now, s)) return v;
    for (int i = 0; i < s->rank; i++) {
        int k = i - (s->rank - now.rank);
        if (k >= 0 && now.d[k] == s->d[i]) ones.d[i] = 1;
    }
    if (count_of(&ones) == 1) return reshaped(c, v, s); /* only axes of one are missing */
    return mul(c, v, graph_fill_const(c->g, NULL, typed(c, ones), 1));
}

val dy_full(adj *c) { return full(c, c->dy[0], &c->y); }

val sum_axes(adj *c, val v, unsigned axes)
{
    int64_t list[MAX_RANK];
    int n = 0;
    for (int i = 0; i < MAX_RANK; i++)
        if (axes & 1u << i) list[n++] = i;
    if (!n) return v;
    return GA(c->g, REDUCE_SUM, VALS(v), AT_LIST(AXES, list, n), AT_B(KEEP_DIMS, true));
}

val fit(adj *c, val v, const shape *from, const shape *to)
{
    if (c->g->err.st) return NO_VAL;
    shape now = shape_at(c, v);
    int skip = from->rank - now.rank, drop = from->rank - to->rank;
    unsigned axes = 0;
    int64_t copies = 1;
    for (int i = 0; i < from->rank; i++) {
        bool one = i < drop || to->d[i - drop] == 1;
        if (!one || from->d[i] == 1) continue;
        if (i >= skip && now.d[i - skip] != 1) axes |= 1u << (i - skip);
        else copies *= from->d[i]; /* thin there: the same number, that many times */
    }
    v = times_count(c, sum_axes(c, v, axes), copies);
    if (c->g->err.st) return NO_VAL;
    now = shape_at(c, v);
    if (now.rank <= to->rank) return v;
    shape less = shape_of(now.d + (now.rank - to->rank), to->rank);
    return reshaped(c, v, &less);
}

void give(adj *c, int k, val v)
{
    shape to = shape_at(c, c->n.in[k]);
    c->dx[k] = fit(c, v, &c->y, &to);
}

val per_channel(adj *c, val p, int rank)
{
    shape s = { .rank = rank };
    for (int i = 0; i < rank; i++) s.d[i] = 1;
    s.d[1] = shape_at(c, p).d[0];
    return reshaped(c, p, &s);
}

val channel_total(adj *c, val v, const shape *s)
{
    shape keep = { .rank = s->rank };
    for (int i = 0; i < s->rank; i++) keep.d[i] = i == 1 ? s->d[1] : 1;
    shape line = SHAPE(s->d[1]);
    v = full(c, fit(c, v, s, &keep), &keep);
    return reshaped(c, v, &line);
}

/* ---- axes ---- */

val pad_axis(adj *c, val v, int axis, int64_t before, int64_t after)
{
    if (c->g->err.st || (before == 0 && after == 0)) return v;
    shape s = shape_at(c, v);
    if (axis >= s.rank - 2) {
        int64_t pad[4] = { 0 };
        int n = s.rank >= 2 ? 4 : 2, at = n - 2 * (s.rank - axis);
        pad[at] = before, pad[at + 1] = after;
        return GA(c->g, PAD, VALS(v), AT_LIST(PAD, pad, n));
    }
    val part[3];
    int n = 0;
    s.d[axis] = before;
    if (before) part[n++] = graph_fill_const(c->g, NULL, typed(c, s), 0);
    part[n++] = v;
    s.d[axis] = after;
    if (after) part[n++] = graph_fill_const(c->g, NULL, typed(c, s), 0);
    const attr at = AT_I(AXIS, axis);
    return graph_op(c->g, OP_CONCAT, part, n, &at, 1);
}

/* The axis stands between what comes before and after it, so a product from the left reaches it without a transpose. */
val along_axis(adj *c, val v, int axis, val matrix, int64_t n)
{
    if (c->g->err.st) return NO_VAL;
    shape s = shape_at(c, v), o = s;
    int64_t outer = prod(s.d, 0, axis), inner = prod(s.d, axis + 1, s.rank);
    o.d[axis] = n;
    if (inner == 1) {
        shape rows = SHAPE(outer, s.d[axis]);
        return reshaped(c, GA(c->g, MATMUL, VALS(reshaped(c, v, &rows), matrix), AT_B(TRANSPOSE_Y, true)), &o);
    }
    shape planes = outer == 1 ? SHAPE(s.d[axis], inner) : SHAPE(outer, s.d[axis], inner);
    return reshaped(c, G(c->g, MATMUL, matrix, reshaped(c, v, &planes)), &o);
}

val cut_axes(adj *c, val v, const int64_t *begin, const int64_t *step, const int64_t *count)
{
    if (c->g->err.st) return NO_VAL;
    shape s = shape_at(c, v);
    int64_t end[MAX_RANK];
    bool whole = true, plain = true;
    for (int i = 0; i < s.rank; i++) {
        whole = whole && count[i] == s.d[i];
        plain = plain && (step[i] == 1 || count[i] == 1);
        end[i] = begin[i] + (count[i] - 1) * step[i] + 1;
    }
    if (whole) return v;
    if (plain) return GA(c->g, SLICE_BY_SIZE, VALS(v), AT_LIST(BEGIN, begin, s.rank), AT_LIST(SIZE, count, s.rank));
    return GA(c->g, SLICE_BY_INDEX, VALS(v), AT_LIST(BEGIN, begin, s.rank), AT_LIST(END, end, s.rank),
              AT_LIST(STRIDE, step, s.rank));
}
