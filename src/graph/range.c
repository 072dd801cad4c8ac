/* range.c: an interval for every value, before anything runs. In: a graph.  Out: ranges[value], such that every
 * element that is not NaN lies inside, as the reference evaluator computes it. Ends are what the declared formula
 * allows in real numbers, widened where rounding inside one operation could step over them; rounding of stored fp16
 * results is the reader's concern. Nothing known is [-inf, inf].
 *
 * Program inputs of an integer type lie in the type; float inputs may be anything. */
#include "graph/range_int.h"

/* ---- interval arithmetic ---- */

static vrange safe(double lo, double hi) { return span(isnan(lo) ? -INFINITY : lo, isnan(hi) ? INFINITY : hi); }

/* For ends that come from sums or library functions: rounding may land a little outside, and near the top overflow. */
static vrange widen(vrange r)
{
    const double slack = 1e-9, top = 1e290;
    double lo = r.lo - fabs(r.lo) * slack, hi = r.hi + fabs(r.hi) * slack;
    return safe(r.lo < -top ? -INFINITY : isfinite(r.lo) ? lo : r.lo, r.hi > top ? INFINITY : isfinite(r.hi) ? hi : r.hi);
}

static vrange cut(vrange r, double lo, double hi) { return span(fmin(fmax(r.lo, lo), hi), fmax(fmin(r.hi, hi), lo)); }
static vrange add(vrange a, vrange b) { return safe(a.lo + b.lo, a.hi + b.hi); }
static vrange neg(vrange a) { return span(-a.hi, -a.lo); }

static vrange mul(vrange a, vrange b)
{
    double p = end_mul(a.lo, b.lo), q = end_mul(a.lo, b.hi), r = end_mul(a.hi, b.lo), s = end_mul(a.hi, b.hi);
    return span(fmin(fmin(p, q), fmin(r, s)), fmax(fmax(p, q), fmax(r, s)));
}

/* A divisor that may be zero, of either sign, gives anything. */
static vrange quotient(vrange a, vrange b)
{
    if (b.lo <= 0 && b.hi >= 0) return anything();
    return mul(a, span(1 / b.hi, 1 / b.lo));
}

static vrange magnitude(vrange a) { return a.lo >= 0 ? a : a.hi <= 0 ? neg(a) : span(0, fmax(-a.lo, a.hi)); }

static vrange square(vrange a)
{
    vrange m = magnitude(a);
    return span(m.lo * m.lo, m.hi * m.hi);
}

static vrange larger(vrange a, vrange b) { return span(fmax(a.lo, b.lo), fmax(a.hi, b.hi)); }
static vrange smaller(vrange a, vrange b) { return span(fmin(a.lo, b.lo), fmin(a.hi, b.hi)); }

/* The sum of exactly n terms of a; n is infinite when it is not known. */
static vrange times(vrange a, double n)
{
    if (isfinite(n)) return widen(span(end_mul(a.lo, n), end_mul(a.hi, n)));
    return span(a.lo < 0 ? -INFINITY : a.lo, a.hi > 0 ? INFINITY : a.hi);
}

/* x^y: with x >= 0 it is monotone in each argument, so the extremes are at the corners. */
static vrange power(vrange x, vrange y)
{
    if (x.lo >= 0 && isfinite(y.lo) && isfinite(y.hi)) {
        double p = pow(x.lo, y.lo), q = pow(x.lo, y.hi), r = pow(x.hi, y.lo), s = pow(x.hi, y.hi);
        vrange o = safe(fmin(fmin(p, q), fmin(r, s)), fmax(fmax(p, q), fmax(r, s)));
        if (x.lo == 0 && y.lo < 0) o.lo = -INFINITY, o.hi = INFINITY; /* a zero may be a negative zero */
        return widen(o);
    }
    if (y.lo != y.hi || y.lo != floor(y.lo) || y.lo < 0 || y.lo > 64) return anything();
    vrange m = magnitude(x);
    if (fmod(y.lo, 2) == 0) return widen(span(pow(m.lo, y.lo), pow(m.hi, y.lo)));
    return widen(span(pow(x.lo, y.lo), pow(x.hi, y.lo)));
}

/* ---- functions that only rise ---- */

static double f_sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double f_softplus(double x) { return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)); }
static double f_softsign(double x) { return isinf(x) ? copysign(1, x) : x / (1 + fabs(x)); }

static const struct {
    op_id op;
    double (*f)(double);
    bool exact; /* no rounding in f */
    double lo, hi; /* of the function */
} rising[] = {
    { OP_EXP, exp, false, 0, INFINITY },         { OP_EXP2, exp2, false, 0, INFINITY },
    { OP_TANH, tanh, false, -1, 1 },             { OP_ERF, erf, false, -1, 1 },
    { OP_ATAN, atan, false, -1.5707963268, 1.5707963268 }, { OP_SIGMOID, f_sigmoid, false, 0, 1 },
    { OP_SOFTPLUS, f_softplus, false, 0, INFINITY }, { OP_SOFTSIGN, f_softsign, false, -1, 1 },
    { OP_CEIL, ceil, true, -INFINITY, INFINITY }, { OP_FLOOR, floor, true, -INFINITY, INFINITY },
    { OP_ROUND, nearbyint, true, -INFINITY, INFINITY },
};

/* ---- one node ---- */

typedef struct {
    const graph *g;
    const node *n;
    const vrange *r;
} at;

static vrange in(const at *c, int i) { return c->r[c->n->in[i].i]; }
static bool has(const at *c, int i) { return i < c->n->n_in && c->n->in[i].i; }
static const shape *dims(const at *c, int i) { return &graph_type(c->g, c->n->in[i])->sh; }
static double real(const at *c, attr_id a) { return attr_float(c->n->op, c->n->attrs, c->n->n_attr, a); }
static const char *word(const at *c, attr_id a) { return attr_str(c->n->op, c->n->attrs, c->n->n_attr, a); }
static bool flag(const at *c, attr_id a) { return attr_bool(c->n->op, c->n->attrs, c->n->n_attr, a); }

static double extent(const shape *s, int i) { return s->d[i] < 0 ? INFINITY : (double)s->d[i]; }

static double product(const shape *s, int from, int to)
{
    double n = 1;
    for (int i = from; i < to; i++) n *= extent(s, i);
    return n;
}

/* Elements that the axes attribute (all dimensions when absent) puts into one group. */
static double group_size(const at *c)
{
    const attr *a = attr_get(c->n->attrs, c->n->n_attr, A_AXES);
    const shape *s = dims(c, 0);
    double n = 1;
    for (int i = 0; i < (a ? a->n : s->rank); i++) {
        int axis = i;
        if (a && !axis_norm(a->u.is[i], s->rank, &axis)) return INFINITY;
        n *= extent(s, axis);
    }
    return n;
}

static double axis_extent(const at *c)
{
    int axis;
    return axis_norm(attr_int(c->n->op, c->n->attrs, c->n->n_attr, A_AXIS), dims(c, 0)->rank, &axis)
               ? extent(dims(c, 0), axis)
               : INFINITY;
}

/* Two slopes that meet at zero: above it x, below it slope * x. */
static vrange bent(vrange x, vrange slope)
{
    vrange up = span(fmax(x.lo, 0), x.hi), down = mul(slope, span(x.lo, fmin(x.hi, 0)));
    return x.lo >= 0 ? x : x.hi < 0 ? down : hull(up, down);
}

static vrange silu(vrange x)
{
    /* where x * sigmoid(x) turns, and its value there */
    const double bottom = -1.2784645427610738, least = -0.27846454276107380;
    double a = isinf(x.lo) && x.lo < 0 ? 0 : x.lo * f_sigmoid(x.lo),
           b = isinf(x.hi) ? (x.hi > 0 ? INFINITY : 0) : x.hi * f_sigmoid(x.hi);
    vrange r = span(fmin(a, b), fmax(a, b));
    if (x.lo <= bottom && x.hi >= bottom) r.lo = least;
    return widen(r);
}

static vrange reciprocal_root(vrange x, double eps) /* 1 / sqrt(x + eps) */
{
    double lo = x.lo + eps, hi = x.hi + eps;
    return widen(span(hi > 0 ? 1 / sqrt(hi) : 0, lo > 0 ? 1 / sqrt(lo) : INFINITY));
}

/* (x - mean) / sqrt(variance + eps) over n values is at most sqrt(n - 1). Without an epsilon tiny variances
 * underflow. */
static vrange normalised(const at *c, double n, int gamma)
{
    double top = sqrt(fmax(n - 1, 0));
    vrange r = real(c, A_EPSILON) < 1e-300 ? anything() : widen(span(-top, top));
    if (has(c, gamma)) r = mul(r, in(c, gamma));
    return widen(has(c, gamma + 1) ? add(r, in(c, gamma + 1)) : r);
}

static bool pads(const at *c) { return strcmp(word(c, A_PAD_TYPE), "valid") != 0; }

static vrange windowed(const at *c) /* pooling */
{
    op_id op = c->n->op;
    const char *mode = op == OP_AVG_POOL   ? "avg"
                       : op == OP_MAX_POOL ? "max"
                       : op == OP_L2_POOL  ? "l2"
                                           : word(c, A_MODE);
    const attr *k = attr_get(c->n->attrs, c->n->n_attr, A_KERNEL_SIZES),
               *pad = attr_get(c->n->attrs, c->n->n_attr, A_PAD);
    vrange x = in(c, 0);
    double taps = 1;
    for (int i = 0; k && i < k->n; i++) taps *= (double)k->u.is[i];
    if (!strcmp(mode, "avg")) return widen(pads(c) || flag(c, A_CEIL_MODE) ? with_zero(x) : x);
    if (!strcmp(mode, "l1")) return with_zero(times(magnitude(x), taps));
    if (!strcmp(mode, "l2")) return widen(span(0, sqrt(times(square(x), taps).hi)));
    for (int i = 0; pads(c) && pad && k && i < pad->n; i++)
        if (pad->u.is[i] >= k->u.is[MIN(i / 2, k->n - 1)]) return anything(); /* a window may see padding alone */
    return x;
}

/* A sum over k products, one factor from each operand; a constant factor is summed exactly. */
static vrange dot(const at *c, vrange x, int w, int64_t outer, int64_t len, int64_t inner, double k)
{
    const node *cst = graph_const_of(c->g, c->n->in[w]);
    if (cst && len > 0 && outer > 0 && inner > 0)
        return widen(range_dot(cst, graph_type(c->g, c->n->in[w]), outer, len, inner, x));
    return times(mul(x, in(c, w)), k);
}

static int64_t known_product(const shape *s, int from, int to)
{
    int64_t n = 1;
    for (int i = from; i < to; i++)
        if (s->d[i] < 0 || !mul_i64(n, s->d[i], &n)) return -1;
    return n;
}

static vrange matrix(const at *c)
{
    const shape *x = dims(c, 0), *y = dims(c, 1);
    bool tx = flag(c, A_TRANSPOSE_X), ty = flag(c, A_TRANSPOSE_Y);
    double k = extent(x, x->rank == 1 ? 0 : tx ? x->rank - 2 : x->rank - 1);
    if (graph_const_of(c->g, c->n->in[1])) { /* [.., k, n], or [.., n, k] transposed */
        int r = y->rank;
        int64_t rows = r == 1 ? 1 : known_product(y, 0, r - 2);
        if (r == 1) return dot(c, in(c, 0), 1, 1, y->d[0], 1, k);
        if (ty) return dot(c, in(c, 0), 1, known_product(y, 0, r - 1), y->d[r - 1], 1, k);
        return dot(c, in(c, 0), 1, rows, y->d[r - 2], y->d[r - 1], k);
    }
    if (graph_const_of(c->g, c->n->in[0])) { /* [.., m, k], or [.., k, m] transposed */
        int r = x->rank;
        if (r == 1) return dot(c, in(c, 1), 0, 1, x->d[0], 1, k);
        if (tx) return dot(c, in(c, 1), 0, known_product(x, 0, r - 2), x->d[r - 2], x->d[r - 1], k);
        return dot(c, in(c, 1), 0, known_product(x, 0, r - 1), x->d[r - 1], 1, k);
    }
    return times(mul(in(c, 0), in(c, 1)), k);
}

static vrange einsum(const at *c) /* the letters missing on the right are summed over */
{
    const char *eq = word(c, A_EQUATION), *arrow = strstr(eq, "->");
    double n = 1;
    bool seen[128] = { false };
    for (int i = 0, k = 0; arrow && eq < arrow; eq++) {
        if (*eq == ',') {
            i++, k = 0;
            continue;
        }
        int l = *eq & 127;
        if (!seen[l] && !strchr(arrow, l) && i < c->n->n_in && k < dims(c, i)->rank) n *= extent(dims(c, i), k);
        seen[l] = true;
        k++;
    }
    return times(mul(in(c, 0), in(c, 1)), n);
}

static vrange products(const at *c)
{
    const shape *w = c->n->n_in > 1 ? dims(c, 1) : NULL;
    vrange r;
    switch (c->n->op) {
    case OP_CONV:
    case OP_NE_CONV:
        r = dot(c, pads(c) ? with_zero(in(c, 0)) : in(c, 0), 1, w->d[0], known_product(w, 1, w->rank), 1,
                product(w, 1, w->rank));
        break;
    case OP_LINEAR: r = dot(c, in(c, 0), 1, w->d[0], w->d[1], 1, extent(w, 1)); break;
    default: /* transposed: an output sees some of the taps of its input channels */
        r = times(with_zero(mul(in(c, 0), in(c, 1))), extent(dims(c, 0), 1) * product(w, 2, w->rank));
        break;
    }
    return has(c, 2) ? widen(add(r, in(c, 2))) : r;
}

static vrange union_of_all(const at *c)
{
    vrange r = in(c, 0);
    for (int i = 1; i < c->n->n_in; i++)
        if (has(c, i)) r = hull(r, in(c, i));
    return r;
}

static vrange reduced(const at *c)
{
    vrange x = in(c, 0);
    double n = group_size(c);
    switch (c->n->op) {
    case OP_REDUCE_SUM: return times(x, n);
    case OP_REDUCE_MEAN: return widen(x);
    case OP_REDUCE_SUM_SQUARE: return times(square(x), n);
    case OP_REDUCE_L1_NORM: return times(magnitude(x), n);
    case OP_REDUCE_L2_NORM: {
        vrange s = times(square(x), n);
        return widen(span(sqrt(fmax(s.lo, 0)), sqrt(s.hi)));
    }
    case OP_REDUCE_LOG_SUM: {
        vrange s = times(x, n);
        return widen(span(s.lo > 0 ? log(s.lo) : -INFINITY, s.hi > 0 ? log(s.hi) : -INFINITY));
    }
    case OP_REDUCE_LOG_SUM_EXP: {
        vrange r = safe(x.lo + (isfinite(n) ? log(n) : 0), x.hi + log(n));
        /* shift and logarithm round apart, even when their sum is near 0 */
        double slack = 1e-9 * (1 + (isfinite(n) ? log(n) : 0));
        return widen(span(r.lo - slack, r.hi + slack));
    }
    default: return x; /* max, min */
    }
}

static vrange activation(const at *c)
{
    vrange x = in(c, 0);
    double a = real(c, A_ALPHA), b = real(c, A_BETA);
    switch (c->n->op) {
    case OP_RELU: return larger(x, span(0, 0));
    case OP_RELU6: return cut(x, 0, 6);
    case OP_LEAKY_RELU: return bent(x, span(a, a));
    case OP_PRELU: return bent(x, in(c, 1));
    case OP_CLAMPED_RELU: return smaller(bent(x, span(a, a)), span(b, b));
    case OP_THRESHOLDED_RELU:
        if (x.lo >= a) return x;
        return x.hi < a ? span(0, 0) : with_zero(span(fmax(x.lo, a), x.hi));
    case OP_THRESHOLD: return larger(x, span(a, a));
    case OP_CLIP: return smaller(larger(x, span(a, a)), span(b, b));
    case OP_LINEAR_ACTIVATION: return widen(add(mul(span(a, a), x), span(b, b)));
    case OP_ELU: {
        vrange down = mul(span(a, a), widen(span(expm1(x.lo), expm1(fmin(x.hi, 0)))));
        return x.lo > 0 ? x : x.hi <= 0 ? down : hull(down, span(0, x.hi));
    }
    case OP_SIGMOID_HARD: return cut(widen(add(mul(span(a, a), x), span(b, b))), 0, 1);
    case OP_SCALED_TANH: {
        vrange y = mul(span(b, b), x);
        return mul(span(a, a), cut(widen(span(tanh(y.lo), tanh(y.hi))), -1, 1));
    }
    case OP_SILU: return silu(x);
    case OP_GELU: /* all three forms lie between x / 2 and x above zero, and above -0.1701 below it */
        return widen(x.lo >= 0 ? span(x.lo / 2, x.hi) : span(-0.1701, fmax(x.hi, 0)));
    default: { /* softplus_parametric: alpha * softplus(beta * x) */
        vrange y = mul(in(c, 2), x);
        return widen(mul(in(c, 1), span(fmax(f_softplus(y.lo), 0), f_softplus(y.hi))));
    }
    }
}

static vrange scaled(const at *c, int data, int scale) /* scale * (data - offset) */
{
    vrange x = in(c, data);
    if (has(c, scale + 1)) x = add(x, neg(in(c, scale + 1)));
    return widen(mul(x, in(c, scale)));
}

static vrange elementwise(const at *c, const char *mode)
{
    vrange x = in(c, 0), y = in(c, 1);
    if (!strcmp(mode, "add")) return add(x, y);
    if (!strcmp(mode, "sub")) return add(x, neg(y));
    if (!strcmp(mode, "mul")) return c->n->in[0].i == c->n->in[1].i ? square(x) : mul(x, y);
    if (!strcmp(mode, "max")) return larger(x, y);
    if (!strcmp(mode, "min")) return smaller(x, y);
    if (!strcmp(mode, "pow")) return power(x, y);
    return strcmp(mode, "div") ? anything() : widen(quotient(x, y));
}

static vrange node_range(const at *c, int k)
{
    op_id op = c->n->op;
    for (size_t i = 0; i < COUNT(rising); i++)
        if (rising[i].op == op) {
            vrange r = span(rising[i].f(in(c, 0).lo), rising[i].f(in(c, 0).hi));
            return cut(rising[i].exact ? r : widen(r), rising[i].lo, rising[i].hi);
        }
    switch (op) {
    case OP_CONST: return range_const(c->g, c->n);

    case OP_CONV: case OP_NE_CONV: case OP_CONV_TRANSPOSE: case OP_LINEAR: return products(c);
    case OP_MATMUL: case OP_NE_MATMUL: return matrix(c);
    case OP_EINSUM: return einsum(c);
    case OP_SDPA: return widen(in(c, 2)); /* every row is a mean of value's rows */
    case OP_AVG_POOL: case OP_MAX_POOL: case OP_L2_POOL: case OP_NE_POOL: case OP_PE_POOL: return windowed(c);

    case OP_BATCH_NORM: {
        vrange s = reciprocal_root(in(c, 2), real(c, A_EPSILON)), r;
        if (has(c, 3)) s = mul(s, in(c, 3));
        r = mul(add(in(c, 0), neg(in(c, 1))), s);
        return widen(has(c, 4) ? add(r, in(c, 4)) : r);
    }
    case OP_LAYER_NORM: return normalised(c, group_size(c), 1);
    case OP_INSTANCE_NORM: return normalised(c, product(dims(c, 0), 2, dims(c, 0)->rank), 1);
    case OP_L2_NORM: {
        vrange x = in(c, 0), r = widen(span(x.lo < 0 ? -1 : 0, x.hi > 0 ? 1 : 0));
        return real(c, A_EPSILON) < 1e-300 ? anything() : r;
    }
    case OP_LOCAL_RESPONSE_NORM: { /* the divisor is at least k^beta */
        double least = pow(real(c, A_K), real(c, A_BETA));
        if (!(real(c, A_ALPHA) >= 0 && real(c, A_BETA) >= 0 && real(c, A_K) > 0 && least > 0)) return anything();
        return widen(with_zero(mul(in(c, 0), span(0, 1 / least))));
    }

    case OP_ADD: return elementwise(c, "add");
    case OP_SUB: return elementwise(c, "sub");
    case OP_MUL: return elementwise(c, "mul");
    case OP_MAXIMUM: return elementwise(c, "max");
    case OP_MINIMUM: return elementwise(c, "min");
    case OP_POW: return elementwise(c, "pow");
    case OP_REAL_DIV: return elementwise(c, "div");
    case OP_PE_ELEMENTWISE: return elementwise(c, word(c, A_MODE));
    case OP_FLOOR_DIV: {
        vrange r = elementwise(c, "div");
        return span(floor(r.lo), floor(r.hi));
    }
    case OP_ABS: return magnitude(in(c, 0));
    case OP_SQUARE: return square(in(c, 0));
    case OP_SQRT: return widen(span(sqrt(fmax(in(c, 0).lo, 0)), sqrt(fmax(in(c, 0).hi, 0))));
    case OP_RSQRT: return reciprocal_root(in(c, 0), real(c, A_EPSILON));
    case OP_INVERSE: {
        double e = real(c, A_EPSILON);
        vrange x = add(in(c, 0), span(e, e));
        return x.lo >= 0 ? widen(span(1 / x.hi, x.lo > 0 ? 1 / x.lo : INFINITY)) : widen(quotient(span(1, 1), x));
    }
    case OP_LOG: {
        double e = real(c, A_EPSILON), lo = in(c, 0).lo + e, hi = in(c, 0).hi + e;
        return widen(span(lo > 0 ? log(lo) : -INFINITY, hi > 0 ? log(hi) : -INFINITY));
    }
    case OP_CUMSUM: {
        vrange x = in(c, 0), all = times(x, axis_extent(c));
        return flag(c, A_EXCLUSIVE) ? with_zero(all) : hull(widen(x), all);
    }
    case OP_SIGN:
        return span(in(c, 0).lo > 0 ? 1 : in(c, 0).lo < 0 ? -1 : 0, in(c, 0).hi > 0 ? 1 : in(c, 0).hi < 0 ? -1 : 0);
    case OP_SIN:
    case OP_COS: return span(-1, 1);
    case OP_SOFTMAX: return span(0, 1);
    case OP_EQUAL: case OP_NOT_EQUAL: case OP_GREATER: case OP_GREATER_EQUAL: case OP_LESS: case OP_LESS_EQUAL:
    case OP_LOGICAL_NOT: return span(0, 1);
    case OP_SELECT: return hull(in(c, 1), in(c, 2));

    case OP_RELU: case OP_RELU6: case OP_LEAKY_RELU: case OP_PRELU: case OP_CLAMPED_RELU: case OP_THRESHOLDED_RELU:
    case OP_THRESHOLD: case OP_CLIP: case OP_LINEAR_ACTIVATION: case OP_ELU: case OP_SIGMOID_HARD: case OP_SCALED_TANH:
    case OP_GELU: case OP_SILU: case OP_SOFTPLUS_PARAMETRIC: return activation(c);

    case OP_REDUCE_SUM: case OP_REDUCE_MEAN: case OP_REDUCE_MAX: case OP_REDUCE_MIN: case OP_REDUCE_SUM_SQUARE:
    case OP_REDUCE_L1_NORM:
    case OP_REDUCE_L2_NORM:
    case OP_REDUCE_LOG_SUM:
    case OP_REDUCE_LOG_SUM_EXP: return reduced(c);
    case OP_REDUCE_ARGMAX: case OP_REDUCE_ARGMIN: case OP_ARGSORT: return span(0, axis_extent(c) - 1);
    case OP_TOPK: return k == 0 ? in(c, 0) : span(0, axis_extent(c) - 1);

    case OP_IDENTITY: case OP_RESHAPE: case OP_RESHAPE_LIKE: case OP_EXPAND_DIMS: case OP_SQUEEZE: case OP_FLATTEN2D:
    case OP_TRANSPOSE: case OP_SPLIT: case OP_SLICE_BY_SIZE: case OP_SLICE_BY_INDEX: case OP_REVERSE: case OP_TILE:
    case OP_GATHER: case OP_GATHER_ALONG_AXIS: case OP_GATHER_ND: case OP_DEPTH_TO_SPACE: case OP_SPACE_TO_DEPTH:
    case OP_PIXEL_SHUFFLE: case OP_PIXEL_UNSHUFFLE: case OP_BATCH_TO_SPACE: case OP_CROP: return in(c, 0);
    case OP_SPACE_TO_BATCH: return with_zero(in(c, 0)); /* its padding is zero */
    case OP_CONCAT: case OP_STACK: case OP_SLICE_UPDATE: return union_of_all(c);
    case OP_PAD:
        if (strcmp(word(c, A_MODE), "constant")) return in(c, 0);
        return hull(in(c, 0), span(real(c, A_CONSTANT_VAL), real(c, A_CONSTANT_VAL)));
    case OP_FILL: case OP_FILL_LIKE: return span(real(c, A_VALUE), real(c, A_VALUE));
    case OP_RANDOM_UNIFORM:
        return widen(span(fmin(real(c, A_LOW), real(c, A_HIGH)), fmax(real(c, A_LOW), real(c, A_HIGH))));

    case OP_RESIZE:
    case OP_RESIZE_BILINEAR:
    case OP_RESIZE_NEAREST:
    case OP_UPSAMPLE_BILINEAR:
    case OP_UPSAMPLE_NEAREST: return widen(in(c, 0)); /* a mean of neighbours */
    case OP_CROP_RESIZE: case OP_RESAMPLE: case OP_AFFINE:
        return widen(hull(in(c, 0), span(real(c, A_PADDING_VALUE), real(c, A_PADDING_VALUE))));

    case OP_CAST: return in(c, 0);
    case OP_DEQUANTIZE: case OP_CX_AFFINE: case OP_CX_BLOCK: return scaled(c, 0, 1);
    case OP_CX_LUT: return in(c, 1);
    case OP_CX_SPARSE: return with_zero(in(c, 0));
    case OP_CX_SPARSE_BLOCK: return k == 0 ? span(0, 1) : scaled(c, 1, 2);
    case OP_WRITE_STATE: return in(c, 1);

    case OP_QUANTIZE: /* the type's own range, below */
    case OP_INPUT: case OP_OPAQUE: case OP_READ_STATE:
    default: return anything();
    }
}

/* What the type holds: integers are truncated and clamped when stored. A NaN becomes 0, and only a float brings one. */
static vrange held(const at *c, dtype dt, vrange r)
{
    if (dt == DT_BOOL) return span(0, 1);
    if (!dtype_is_int(dt)) return r;
    int bits = dtype_bits(dt);
    bool is_signed = dtype_class(dt) == KIND_INT, may_be_nan = false;
    double lo = is_signed ? -ldexp(1, bits - 1) : 0, hi = ldexp(1, is_signed ? bits - 1 : bits) - 1;
    if (c->n->op == OP_CAST || c->n->op == OP_QUANTIZE) may_be_nan = dtype_is_float(graph_type(c->g, c->n->in[0])->dt);
    r = span(trunc(r.lo), trunc(r.hi));
    return cut(may_be_nan ? with_zero(r) : r, lo, hi);
}

void graph_ranges(const graph *g, vrange *ranges)
{
    ranges[0] = anything();
    for (size_t i = 1; i < g->nodes.n; i++) {
        at c = { .g = g, .n = &g->nodes.at[i], .r = ranges };
        for (int k = 0; k < c.n->n_out; k++) {
            uint32_t v = c.n->out.i + (uint32_t)k;
            ranges[v] = held(&c, g->values.at[v].type.dt, node_range(&c, k));
        }
    }
}
