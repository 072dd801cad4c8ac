/* numerics.c: every rounding the engine does, and the scalar functions of chains. In: values as doubles or floats
 * that hold exactly what a register would.  Out: what the device of `numerics` makes of them.
 *
 * Plain processor (all switches 0): fp32 arithmetic, one rounding when a value is stored. A chip: every operation is
 * one pass that rounds to its result type. Either way an operation is done in fp32 first: for fp16 operands that is
 * exact or harmless (24 >= 2*11 + 2), and it is what a vector unit does. */
#include <math.h>

#include "engine/engine_int.h"

const numerics numerics_cpu = {
#define NUM(field, cpu, what) .field = cpu,
#include "engine/numerics.def"
#undef NUM
};

/* ---- fp16, fast enough for the reference loops ---- */

float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = (h >> 10) & 31, m = h & 1023, u;
    float f;
    if (e == 0) {
        f = (float)m * 0x1p-24f;
        memcpy(&u, &f, 4);
        u |= sign;
    } else u = sign | (e == 31 ? 0x7f800000 : (e + 112) << 23) | m << 13;
    memcpy(&f, &u, 4);
    return f;
}

uint16_t f16_from_f32(float x)
{
    uint32_t u, sign, a;
    memcpy(&u, &x, 4);
    sign = (u >> 16) & 0x8000, a = u & 0x7fffffff;
    if (a > 0x7f800000) return (uint16_t)(sign | 0x7e00 | ((a >> 13) & 0x3ff));
    if (a >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* 65520 and up */
    if (a >= 0x38800000) return (uint16_t)(sign | ((a + 0xfff + ((a >> 13) & 1) - 0x38000000) >> 13));
    float m = fabsf(x) + 0.5f; /* leaves units of 2^-24, the smallest fp16, in the last bits */
    memcpy(&a, &m, 4);
    return (uint16_t)(sign | (a - 0x3f000000));
}

/* ---- rounding ---- */

double num_in(const numerics *n, dtype t, double x)
{
    if (!dtype_is_float(t)) return x;
    if (n->nan_to_inf != 0 && isnan(x)) return (double)INFINITY;
    if (n->plain_zero != 0 && x == 0) return 0;
    return x;
}

double num_valid(const numerics *n, double x) { return n->invalid_zero != 0 && isnan(x) ? 0 : x; }

static double nearest(dtype t, double x)
{
    float f = (float)x;
    if (t == DT_F32) return (double)f;
    if (t == DT_F16 && ((double)f == x || isnan(x))) return (double)f16_to_f32(f16_from_f32(f));
    return dtype_round(t, x);
}

double num_round(const numerics *n, dtype t, double x)
{
    x = num_valid(n, x);
    if (!dtype_is_float(t)) return dtype_hold(t, x);
    x = nearest(t, x);
    return n->plain_zero != 0 && x == 0 ? 0 : x;
}

double num_round_port(const numerics *n, dtype t, double x)
{
    double r = num_round(n, t, x);
    if (n->mac_tie_away == 0 || !dtype_is_float(t) || !isfinite(r) || r == x) return r;
    double other = 2 * x - r; /* the neighbour on the far side, if x is half way */
    return fabs(other) > fabs(r) && nearest(t, other) == other ? other : r;
}

double num_ceiling(const numerics *n, double x)
{
    return n->port_ceiling != 0 && fabs(x) >= n->port_ceiling ? copysign((double)INFINITY, x) : x;
}

/* ---- multiply-accumulate ---- */

static const double LEAST_NORMAL = 0x1p-14; /* fp16 */

float num_flush(const numerics *n, double x)
{
    float f = (float)x;
    if (n->round_each != 0) f = f16_to_f32(f16_from_f32(f));
    return n->mac_flush != 0 && fabs((double)f) < LEAST_NORMAL ? 0 : f;
}

/* One addition of the tile: both operands keep `bits` bits counted from the leading bit of the larger, nothing is
 * rounded after. */
static double window_add(double a, double b, int bits)
{
    double large = MAX(fabs(a), fabs(b));
    if (large == 0 || !isfinite(a) || !isfinite(b)) return a + b;
    int e = ilogb(large) - (bits - 1); /* of the last kept bit */
    return ldexp(nearbyint(ldexp(a, -e)), e) + ldexp(nearbyint(ldexp(b, -e)), e);
}

/* A sum on its way. One of finite numbers that reaches the ceiling stays infinite, whatever is added: *past.
 * Infinities that operands bring are no such sum. */
static double partial(const numerics *n, double x, bool ceiling, double *past)
{
    x = num_valid(n, x);
    if (ceiling && n->port_partial != 0 && *past == 0 && !isinf(x) && isinf(num_ceiling(n, x)))
        *past = num_ceiling(n, x);
    return x;
}

enum { LANES = 4 };

static double tile(const numerics *n, const double *product, int count, bool ceiling, double *past)
{
    double t = 0;
    for (int i = 0; i < LANES; i++)
        t = partial(n, window_add(t, i < count ? product[i] : 0, (int)n->window_bits), ceiling, past);
    return t;
}

double num_tile(const numerics *n, const double *product, int count)
{
    double past = 0;
    if (n->window_bits != 0) {
        const double t = tile(n, product, count, true, &past);
        return past != 0 ? past : t;
    }
    float acc = 0;
    for (int i = 0; i < count; i++) acc = num_wide_add(n, acc, (float)product[i]);
    return (double)acc;
}

float num_wide_add(const numerics *n, float acc, float x) { return (float)num_valid(n, (double)(acc + x)); }

float num_dot(const numerics *n, const float *a, const float *b, int64_t count, bool ceiling)
{
    float acc = 0;
    double past = 0;
    if (n->window_bits == 0) {
        for (int64_t i = 0; i < count; i++) {
            float p = a[i] * b[i];
            if (isnan(p) && n->invalid_zero != 0) continue;
            acc = (float)partial(n, (double)fmaf(a[i], b[i], acc), ceiling, &past);
        }
    } else {
        for (int64_t i = 0; i < count; i += LANES) {
            double p[LANES];
            int lanes = (int)MIN((int64_t)LANES, count - i);
            for (int j = 0; j < lanes; j++) p[j] = num_valid(n, (double)a[i + j] * (double)b[i + j]);
            float sum = (float)tile(n, p, lanes, ceiling && !isinf(acc), &past);
            acc = (float)partial(n, (double)(acc + sum), ceiling, &past);
        }
    }
    if (past != 0) return (float)past;
    return n->mac_flush != 0 && fabs((double)acc) < LEAST_NORMAL ? 0 : acc;
}

/* ---- functions ---- */

/* Written out, not fmax and fmin: those drop a NaN. */
static double larger(double x, double y) { return isnan(x) || x > y ? x : y; }
static double smaller(double x, double y) { return isnan(x) || x < y ? x : y; }
static double sigmoid(double x) { return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x)); }
static double softplus(double x) { return log1p(exp(-fabs(x))) + (x > 0 ? x : 0); }
/* its limit, where -inf * 0 has no value */
static double gated(double x, double by) { return isinf(x) && x < 0 ? -0.0 : x * by; }
static double f32(double x) { return (double)(float)x; }

static double floor_div(double x, double y, bool whole) /* a quotient too small for fp32 still has its sign */
{
    double q = x / y;
    return floor(whole || f32(q) == 0 ? q : f32(q));
}

/* The function of the operands, before rounding to the result type. whole: the result is an integer, computed
 * exactly. */
static double formula(fn_id f, const double *v, const double *p, bool whole)
{
    double x = v[0];
    switch (f) {
    case FN_COPY: return x;
    case FN_ADD: return x + v[1];
    case FN_SUB: return x - v[1];
    case FN_MUL: return x * v[1];
    case FN_DIV: return x / v[1];
    case FN_FLOOR_DIV: return floor_div(x, v[1], whole);
    case FN_POW: return pow(x, v[1]);
    case FN_MAX: return larger(x, v[1]);
    case FN_MIN: return smaller(x, v[1]);
    case FN_EQ: return x == v[1];
    case FN_NE: return x != v[1];
    case FN_GT: return x > v[1];
    case FN_GE: return x >= v[1];
    case FN_LT: return x < v[1];
    case FN_LE: return x <= v[1];
    case FN_NOT: return x == 0;
    case FN_SELECT: return x != 0 ? v[1] : v[2];
    case FN_ABS: return fabs(x);
    case FN_SQUARE: return x * x;
    case FN_SIGN: return x > 0 ? 1 : x < 0 ? -1 : x;
    case FN_CEIL: return ceil(x);
    case FN_FLOOR: return floor(x);
    case FN_ROUND: return nearbyint(x); /* half to even */
    case FN_SQRT: return sqrt(x);
    case FN_ROOT_DIV: return x / f32(f32(sqrt(v[1])) + v[2]);
    case FN_RSQRT: return 1 / sqrt(f32(x + p[0]));
    case FN_INV: return 1 / f32(x + p[0]);
    case FN_LOG: return log(f32(x + p[0]));
    case FN_EXP: return exp(x);
    case FN_EXP2: return exp2(x);
    case FN_ERF: return erf(x);
    case FN_SIN: return sin(x);
    case FN_COS: return cos(x);
    case FN_ATAN: return atan(x);
    case FN_RELU: return larger(x, 0);
    case FN_RELU6: return smaller(larger(x, 0), 6);
    case FN_LEAKY_RELU: return x >= 0 || isnan(x) ? x : p[0] * x;
    case FN_PRELU: return x > 0 || isnan(x) ? x : v[1] * x;
    case FN_CLAMPED_RELU: return smaller(x >= 0 || isnan(x) ? x : p[0] * x, p[1]);
    case FN_THRESHOLDED_RELU: return x < p[0] ? 0 : x;
    case FN_THRESHOLD: return larger(x, p[0]);
    case FN_CLIP: return smaller(larger(x, p[0]), p[1]);
    case FN_AFFINE: return f32(p[0] * x) + p[1];
    case FN_ELU: return x > 0 ? x : p[0] * expm1(x);
    case FN_SIGMOID: return sigmoid(x);
    case FN_SIGMOID_HARD: return smaller(larger(f32(p[0] * x) + p[1], 0), 1);
    case FN_TANH: return tanh(x);
    case FN_SCALED_TANH: return p[0] * tanh(p[1] * x);
    case FN_GELU: return gated(0.5 * x, erfc(-x * 0.70710678118654752440));
    /* sqrt(2 / pi); half of 1 + tanh(u), in full */
    case FN_GELU_TANH: return gated(x, sigmoid(2 * 0.79788456080286535588 * (x + 0.044715 * x * x * x)));
    case FN_GELU_SIGMOID: return gated(x, sigmoid(1.702 * x));
    case FN_SILU: return gated(x, sigmoid(x));
    case FN_SOFTPLUS: return softplus(x);
    case FN_SOFTPLUS_PAR: return v[1] * softplus(v[2] * x);
    case FN_SOFTSIGN: return x / (1 + fabs(x));
    case FN_COUNT: break;
    }
    return x;
}

static double fn_value(const numerics *n, fn_id f, const double *operand, const double *param, dtype result)
{
    bool real = dtype_is_float(result);
    double v[3] = { 0 }, p[2] = { 0 };
    for (int i = 0; i < fn_operands(f); i++) v[i] = num_in(n, DT_F64, operand[i]);
    for (int i = 0; i < fn_params(f); i++)
        p[i] = n->round_each != 0 && real ? nearest(result, param[i]) : f32(param[i]);
    double y;
    if (n->tables != 0 && real && fn_table(f) != TAB_none)
        y = (double)table_fn(n, f, (const float[]){ (float)v[0], (float)v[1], (float)v[2] },
                             (const float[]){ (float)p[0], (float)p[1] }, result);
    else y = formula(f, v, p, !real);
    return num_valid(n, real && result != DT_F64 ? f32(y) : y);
}

double num_fn(const numerics *n, fn_id f, const double *operand, const double *param, dtype result)
{
    double y = fn_value(n, f, operand, param, result);
    return n->round_each != 0 || !dtype_is_float(result) ? num_round(n, result, y) : y;
}

double num_fn_port(const numerics *n, fn_id f, const double *operand, const double *param, dtype result)
{
    double y = fn_value(n, f, operand, param, result);
    return n->round_each != 0 || !dtype_is_float(result) ? num_round_port(n, result, y) : y;
}

an_status chain_run(const numerics *n, const chain *ch, bool port, double *value, double *result, diag *d)
{
    for (int64_t k = 0; k < ch->n_steps; k++) {
        const int64_t *s = ch->step + k * CHAIN_STEP;
        fn_id f = (fn_id)s[STEP_FN];
        dtype t = (dtype)s[STEP_TYPE];
        double v[3] = { 0 };
        for (int j = 0; j < fn_operands(f); j++) v[j] = value[s[STEP_A + j]];
        if ((f == FN_DIV || f == FN_FLOOR_DIV) && !dtype_is_float(t) && v[1] == 0)
            return diag_fail(d, AN_INPUT, NOWHERE, "integer division by zero");
        const double *p = fn_params(f) ? ch->param + s[STEP_PARAM] : NULL;
        value[ch->n_inputs + k] = port ? num_fn_port(n, f, v, p, t) : num_fn(n, f, v, p, t);
    }
    *result = value[ch->n_steps ? ch->n_inputs + ch->n_steps - 1 : 0];
    return AN_OK;
}
