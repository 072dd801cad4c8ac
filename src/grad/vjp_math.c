/* vjp_math.c: gradients of operations on one element: dx = dy * slope, or dy where a condition holds.
 * In: an adj.  Out: its dx[0].
 *
 * fp16. Where the slope itself may leave the range although the gradient does not (powers of a reciprocal), dy is
 * multiplied step by step, so that every intermediate lies between dy and the result. 1 - t*t near |t| = 1 is
 * written (1-t)(1+t): the first factor is exact. Results of the forward pass are used where they hold the slope more
 * exactly than a new formula would. */
#include <math.h>

#include "grad/grad_int.h"

static val x0(const adj *c) { return c->n.in[0]; }
static val y0(const adj *c) { return c->n.out; }
static void slope(adj *c, val s) { c->dx[0] = mul(c, c->dy[0], s); }
static val above(adj *c, val x, double t) { return G(c->g, GREATER, x, num(c, t)); }
static val below(adj *c, val x, double t) { return G(c->g, LESS, x, num(c, t)); }

/* ---- powers and roots ---- */

void vjp_abs(adj *c) { slope(c, G(c->g, SIGN, x0(c))); }
void vjp_square(adj *c) { slope(c, add(c, x0(c), x0(c))); }
void vjp_sqrt(adj *c) { c->dx[0] = quo(c, scale(c, c->dy[0], 0.5), y0(c)); }

void vjp_rsqrt(adj *c) /* -1/2 y^3 */
{
    val y = y0(c);
    c->dx[0] = scale(c, mul(c, mul(c, mul(c, c->dy[0], y), y), y), -0.5);
}

void vjp_inverse(adj *c) { c->dx[0] = scale(c, mul(c, mul(c, c->dy[0], y0(c)), y0(c)), -1); }

/* ---- exponentials ---- */

void vjp_exp(adj *c) { slope(c, y0(c)); }
void vjp_exp2(adj *c) { c->dx[0] = scale(c, mul(c, c->dy[0], y0(c)), 0.69314718055994530942); }

void vjp_log(adj *c)
{
    double eps = dtype_round(c->dt, at_f(c, A_EPSILON));
    c->dx[0] = quo(c, c->dy[0], eps == 0 ? x0(c) : add(c, x0(c), num(c, eps)));
}

static val bump(adj *c, val t) { return mul(c, one_minus(c, t), add(c, num(c, 1), t)); } /* 1 - t^2 */
static val hump(adj *c, val s) { return mul(c, s, one_minus(c, s)); }

void vjp_sigmoid(adj *c) { slope(c, hump(c, y0(c))); }
void vjp_tanh(adj *c) { slope(c, bump(c, y0(c))); }

void vjp_scaled_tanh(adj *c)
{
    double a = at_f(c, A_ALPHA), b = at_f(c, A_BETA);
    slope(c, scale(c, bump(c, G(c->g, TANH, scale(c, x0(c), b))), a * b));
}

/* x as a factor of what is 0 long before 100: an infinite one would leave no number. */
static val near(adj *c, val x) { return GA(c->g, CLIP, VALS(x), AT_F(ALPHA, -100), AT_F(BETA, 100)); }

/* x * sigmoid(k x): s * (1 + k x (1 - s)) */
static val gated(adj *c, double k)
{
    val kx = scale(c, x0(c), k), s = G(c->g, SIGMOID, kx);
    return mul(c, s, add(c, num(c, 1), mul(c, near(c, kx), one_minus(c, s))));
}

void vjp_silu(adj *c) { slope(c, gated(c, 1)); }

/* height * exp(-half_width x^2); an infinite square gives 0 */
static val bell(adj *c, val x, double height, double half_width)
{
    return scale(c, G(c->g, EXP, mul(c, x, scale(c, x, -half_width))), height);
}

static const double PI = 3.14159265358979323846;

void vjp_erf(adj *c) { slope(c, bell(c, x0(c), 2 / sqrt(PI), 1)); }

/* Phi(x) + x phi(x), with Phi as 0.5 + 0.5 erf */
static val gelu_exact(adj *c, val x)
{
    val half = num(c, 0.5), phi = G(c->g, ERF, scale(c, x, sqrt(0.5)));
    return add(c, add(c, half, mul(c, half, phi)), mul(c, near(c, x), bell(c, x, 1 / sqrt(2 * PI), 0.5)));
}

/* 0.5 (1 + t) + 0.5 x (1 - t^2) (k + 3 k a x^2), t = tanh(k x (1 + a x^2)). Past |x| = 10 t is 1 in every type, and
 * x^3 would leave fp16 at 40: x is clipped there first. */
static val gelu_tanh(adj *c, val full_x)
{
    const double k = sqrt(2 / PI), a = 0.044715;
    val x = GA(c->g, CLIP, VALS(full_x), AT_F(ALPHA, -10), AT_F(BETA, 10)), xx = mul(c, x, x);
    val t = G(c->g, TANH, mul(c, x, add(c, num(c, k), scale(c, xx, k * a))));
    val rise = mul(c, bump(c, t), add(c, num(c, k), scale(c, xx, 3 * k * a)));
    return scale(c, add(c, add(c, num(c, 1), t), mul(c, x, rise)), 0.5);
}

void vjp_gelu(adj *c)
{
    const char *mode = at_s(c, A_MODE);
    if (!strcmp(mode, "EXACT")) slope(c, gelu_exact(c, x0(c)));
    else if (!strcmp(mode, "TANH_APPROXIMATION")) slope(c, gelu_tanh(c, x0(c)));
    else if (!strcmp(mode, "SIGMOID_APPROXIMATION")) slope(c, gated(c, 1.702));
    else broken(c, "unknown mode");
}

void vjp_softplus(adj *c) { slope(c, G(c->g, SIGMOID, x0(c))); }

void vjp_softsign(adj *c) /* 1 / (1 + |x|)^2 */
{
    val h = add(c, num(c, 1), G(c->g, ABS, x0(c)));
    c->dx[0] = quo(c, quo(c, c->dy[0], h), h);
}

/* ---- angles ---- */

void vjp_sin(adj *c) { slope(c, G(c->g, COS, x0(c))); }
void vjp_cos(adj *c) { c->dx[0] = scale(c, mul(c, c->dy[0], G(c->g, SIN, x0(c))), -1); }

/* 1 / (1 + x^2), in two steps: with a = max(|x|, 1) it is 1/a over 1/a + x (x/a), and no square leaves fp16. */
void vjp_atan(adj *c)
{
    val a = G(c->g, MAXIMUM, G(c->g, ABS, x0(c)), num(c, 1));
    val rest = add(c, quo(c, num(c, 1), a), mul(c, x0(c), quo(c, x0(c), a)));
    c->dx[0] = quo(c, quo(c, c->dy[0], a), rest);
}

/* ---- pieces ---- */

/* y is above 0 where x is; asking y leaves x to be forgotten inside the pass that made it. */
void vjp_relu(adj *c) { c->dx[0] = only_if(c, above(c, y0(c), 0), c->dy[0]); }

static val between(adj *c, val v, double lo, double hi, val dy)
{
    if (isfinite(hi)) dy = only_if(c, below(c, v, hi), dy);
    return isfinite(lo) ? only_if(c, above(c, v, lo), dy) : dy;
}

void vjp_relu6(adj *c) { c->dx[0] = between(c, x0(c), 0, 6, c->dy[0]); }

/* The ends pass: a clip that only states a bound its operand keeps anyway (x / max|x| in -1 .. 1) must not lose what
 * sits on it. */
void vjp_clip(adj *c)
{
    double lo = at_f(c, A_ALPHA), hi = at_f(c, A_BETA);
    val d = c->dy[0];
    if (isfinite(hi)) d = only_if(c, G(c->g, LESS_EQUAL, x0(c), num(c, hi)), d);
    c->dx[0] = isfinite(lo) ? only_if(c, G(c->g, GREATER_EQUAL, x0(c), num(c, lo)), d) : d;
}
void vjp_sigmoid_hard(adj *c) { c->dx[0] = between(c, y0(c), 0, 1, scale(c, c->dy[0], at_f(c, A_ALPHA))); }
void vjp_threshold(adj *c) { c->dx[0] = only_if(c, above(c, x0(c), at_f(c, A_ALPHA)), c->dy[0]); }
void vjp_thresholded_relu(adj *c)
{
    c->dx[0] = only_if(c, G(c->g, GREATER_EQUAL, x0(c), num(c, at_f(c, A_ALPHA))), c->dy[0]);
}

static val leaky(adj *c, double alpha) { return choose(c, above(c, x0(c), 0), c->dy[0], scale(c, c->dy[0], alpha)); }

void vjp_leaky_relu(adj *c) { c->dx[0] = leaky(c, at_f(c, A_ALPHA)); }

void vjp_clamped_relu(adj *c)
{
    double alpha = at_f(c, A_ALPHA);
    c->dx[0] =
        only_if(c, below(c, GA(c->g, LEAKY_RELU, VALS(x0(c)), AT_F(ALPHA, alpha)), at_f(c, A_BETA)), leaky(c, alpha));
}

void vjp_linear_activation(adj *c) { c->dx[0] = scale(c, c->dy[0], at_f(c, A_ALPHA)); }

/* alpha e^x left of 0; the exponent is kept from growing on the side that is not taken */
void vjp_elu(adj *c)
{
    val fall = scale(c, G(c->g, EXP, G(c->g, MINIMUM, x0(c), num(c, 0))), at_f(c, A_ALPHA));
    slope(c, choose(c, above(c, x0(c), 0), num(c, 1), fall));
}
