/* eval_math.c: operations that act on one element at a time: arithmetic, comparison, choice, activations.
 * In: an eval_ctx.  Out: one result of the broadcast shape. Each formula stands once, in a row below. */
#include <math.h>

#include "graph/eval_int.h"

typedef double (*fn1)(double x, double a, double b); /* a, b: the op's float attributes, where it has any */
typedef double (*fn2)(double x, double y);

static an_status map1(eval_ctx *c, fn1 f, attr_id a, attr_id b)
{
    double pa = a ? at_float(c, a) : 0, pb = b ? at_float(c, b) : 0;
    for (int64_t i = 0, n = t64_elems(&c->out[0]); i < n; i++) c->out[0].x[i] = f(c->in[0].x[i], pa, pb);
    return AN_OK;
}

static an_status map2(eval_ctx *c, fn2 f)
{
    const shape *o = &c->out[0].type.sh;
    int64_t so[MAX_RANK], sx[MAX_RANK], sy[MAX_RANK];
    shape_strides(o, so);
    bcast_strides(&c->in[0].type.sh, o, sx);
    bcast_strides(&c->in[1].type.sh, o, sy);
    walk w;
    walk_init(&w, o->d, o->rank);
    walk_add(&w, so, 0), walk_add(&w, sx, 0), walk_add(&w, sy, 0);
    for (walk_start(&w); w.more; walk_row(&w)) {
        double *z = c->out[0].x + w.off[0];
        const double *x = c->in[0].x + w.off[1], *y = c->in[1].x + w.off[2];
        for (int64_t j = 0; j < w.len; j++) z[j] = f(x[j * w.step[1]], y[j * w.step[2]]);
    }
    return AN_OK;
}

static double sigmoid(double x) { return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x)); } /* neither overflows */
/* its limit, where -inf * 0 has no value */
static double gated(double x, double by) { return isinf(x) && x < 0 ? -0.0 : x * by; }
static double softplus(double x) { return log1p(exp(-fabs(x))) + (x > 0 ? x : 0); }

/* Written out, not fmax/fmin: those drop a NaN, and a reference must pass it on. */
static double larger(double x, double y) { return isnan(x) || x > y ? x : y; }
static double smaller(double x, double y) { return isnan(x) || x < y ? x : y; }

/* ---- unary ---- */
#define MAP1(name, a, b, formula)                                                                                     \
    static double f_##name(double x, double A, double B)                                                              \
    {                                                                                                                 \
        (void)A, (void)B;                                                                                             \
        return formula;                                                                                               \
    }                                                                                                                 \
    an_status eval_##name(eval_ctx *c) { return map1(c, f_##name, a, b); }

MAP1(abs, A_NONE, A_NONE, fabs(x))
MAP1(square, A_NONE, A_NONE, x * x)
MAP1(sqrt, A_NONE, A_NONE, sqrt(x))
MAP1(rsqrt, A_EPSILON, A_NONE, 1 / sqrt(x + A))
MAP1(inverse, A_EPSILON, A_NONE, 1 / (x + A))
MAP1(exp, A_NONE, A_NONE, exp(x))
MAP1(exp2, A_NONE, A_NONE, exp2(x))
MAP1(log, A_EPSILON, A_NONE, log(x + A))
MAP1(sign, A_NONE, A_NONE, x > 0 ? 1 : x < 0 ? -1 : x) /* zero and NaN stay what they are */
MAP1(ceil, A_NONE, A_NONE, ceil(x))
MAP1(floor, A_NONE, A_NONE, floor(x))
MAP1(round, A_NONE, A_NONE, nearbyint(x)) /* half to even */
MAP1(sin, A_NONE, A_NONE, sin(x))
MAP1(cos, A_NONE, A_NONE, cos(x))
MAP1(atan, A_NONE, A_NONE, atan(x))
MAP1(erf, A_NONE, A_NONE, erf(x))
MAP1(logical_not, A_NONE, A_NONE, x == 0)

MAP1(relu, A_NONE, A_NONE, larger(x, 0))
MAP1(relu6, A_NONE, A_NONE, smaller(larger(x, 0), 6))
MAP1(leaky_relu, A_ALPHA, A_NONE, x >= 0 ? x : A * x)
MAP1(clamped_relu, A_ALPHA, A_BETA, smaller(x >= 0 ? x : A * x, B))
MAP1(thresholded_relu, A_ALPHA, A_NONE, x < A ? 0 : x)
MAP1(threshold, A_ALPHA, A_NONE, larger(x, A))
MAP1(clip, A_ALPHA, A_BETA, smaller(larger(x, A), B))
MAP1(linear_activation, A_ALPHA, A_BETA, A * x + B)
MAP1(elu, A_ALPHA, A_NONE, x > 0 ? x : A * expm1(x))
MAP1(sigmoid, A_NONE, A_NONE, sigmoid(x))
MAP1(sigmoid_hard, A_ALPHA, A_BETA, smaller(larger(A * x + B, 0), 1))
MAP1(tanh, A_NONE, A_NONE, tanh(x))
MAP1(scaled_tanh, A_ALPHA, A_BETA, A * tanh(B * x))
MAP1(silu, A_NONE, A_NONE, gated(x, sigmoid(x)))
MAP1(softplus, A_NONE, A_NONE, softplus(x))
MAP1(softsign, A_NONE, A_NONE, x / (1 + fabs(x)))

static double gelu_exact(double x, double a, double b)
{
    return (void)a, (void)b, gated(0.5 * x, erfc(-x * 0.70710678118654752440));
}
static double gelu_tanh(double x, double a, double b)
{
    (void)a, (void)b; /* half of 1 + tanh(u), of which nothing is left below -7, is the sigmoid of 2u */
    return gated(x, sigmoid(2 * 0.79788456080286535588 * (x + 0.044715 * x * x * x))); /* sqrt(2 / pi) */
}
static double gelu_sigmoid(double x, double a, double b) { return (void)a, (void)b, gated(x, sigmoid(1.702 * x)); }

an_status eval_gelu(eval_ctx *c)
{
    static const char *const modes[] = { "EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION" };
    static const fn1 forms[] = { gelu_exact, gelu_tanh, gelu_sigmoid };
    int m;
    TRY(at_mode(c, A_MODE, modes, COUNT(modes), &m));
    return map1(c, forms[m], A_NONE, A_NONE);
}

/* ---- binary ---- */
#define MAP2(name, formula)                                                                                           \
    static double f_##name(double x, double y) { return formula; }                                                    \
    an_status eval_##name(eval_ctx *c) { return map2(c, f_##name); }

MAP2(add, x + y)
MAP2(sub, x - y)
MAP2(mul, x * y)
MAP2(pow, pow(x, y))
MAP2(maximum, larger(x, y))
MAP2(minimum, smaller(x, y))
MAP2(equal, x == y)
MAP2(not_equal, x != y)
MAP2(greater, x > y)
MAP2(greater_equal, x >= y)
MAP2(less, x < y)
MAP2(less_equal, x <= y)

static double f_div(double x, double y) { return x / y; }
static double f_floor_div(double x, double y) { return floor(x / y); }

static an_status divide(eval_ctx *c, fn2 f)
{
    if (dtype_class(c->out[0].type.dt) != KIND_FLOAT)
        for (int64_t i = 0, n = t64_elems(&c->in[1]); i < n; i++)
            if (c->in[1].x[i] == 0)
                return eval_fail(c, "integer division by zero: y has 0 at element %lld", (long long)i);
    return map2(c, f);
}

an_status eval_real_div(eval_ctx *c) { return divide(c, f_div); }
an_status eval_floor_div(eval_ctx *c) { return divide(c, f_floor_div); }

an_status eval_pe_elementwise(eval_ctx *c)
{
    static const char *const modes[] = { "add", "sub", "mul", "max", "min", "pow", "div" };
    static const fn2 forms[] = { f_add, f_sub, f_mul, f_maximum, f_minimum, f_pow, f_div };
    int m;
    TRY(at_mode(c, A_MODE, modes, COUNT(modes), &m));
    return forms[m] == f_div ? divide(c, f_div) : map2(c, forms[m]);
}

an_status eval_select(eval_ctx *c)
{
    const shape *o = &c->out[0].type.sh;
    int64_t s[3][MAX_RANK];
    walk w;
    walk_init(&w, o->d, o->rank);
    for (int k = 0; k < 3; k++) {
        bcast_strides(&c->in[k].type.sh, o, s[k]);
        walk_add(&w, s[k], 0);
    }
    double *z = c->out[0].x; /* rows come in order */
    for (walk_start(&w); w.more; walk_row(&w), z += w.len)
        for (int64_t j = 0; j < w.len; j++)
            z[j] = c->in[0].x[w.off[0] + j * w.step[0]] != 0 ? c->in[1].x[w.off[1] + j * w.step[1]]
                                                             : c->in[2].x[w.off[2] + j * w.step[2]];
    return AN_OK;
}

/* ---- one parameter per channel (axis 1) ---- */

an_status eval_prelu(eval_ctx *c)
{
    axis_view v = view_axis(&c->in[0].type.sh, 1);
    int64_t n = t64_elems(&c->in[1]), i = 0;
    for (int64_t o = 0; o < v.outer; o++)
        for (int64_t ch = 0; ch < v.n; ch++) {
            double alpha = param_at(&c->in[1], n, ch);
            for (int64_t j = 0; j < v.inner; j++, i++) {
                double x = c->in[0].x[i];
                c->out[0].x[i] = x > 0 ? x : alpha * x;
            }
        }
    return AN_OK;
}

an_status eval_softplus_parametric(eval_ctx *c)
{
    axis_view v = view_axis(&c->in[0].type.sh, 1);
    int64_t na = t64_elems(&c->in[1]), nb = t64_elems(&c->in[2]), i = 0;
    for (int64_t o = 0; o < v.outer; o++)
        for (int64_t ch = 0; ch < v.n; ch++) {
            double alpha = param_at(&c->in[1], na, ch), beta = param_at(&c->in[2], nb, ch);
            for (int64_t j = 0; j < v.inner; j++, i++) c->out[0].x[i] = alpha * softplus(beta * c->in[0].x[i]);
        }
    return AN_OK;
}
