/* compose.c: linear maps, norms and activations from ops every family has, written to keep their range in fp16.
 * In: values of a graph.  Out: more of its values; nothing here knows a model.
 *
 * Norms. The textbook order (square, sum, scale, add eps, reciprocal root) fails twice in fp16: the sum of D squares
 * passes 65504 once rms(x) > sqrt(65504/D) (9.2 at D=768), and an eps of 1e-5 or 1e-6 is subnormal. A constant
 * pre-scale only moves the window: x/sqrt(D) makes squares of ordinary activations (0.02) subnormal. So the scale is
 * the data's own:
 *
 *     m = max(max_i |x_i|, sqrt(eps))        u = x / m        |u| <= 1
 *     y = u * rsqrt(mean(u^2) + t^2)         t = sqrt(eps) / m <= 1
 *
 * which is x * rsqrt(mean(x^2) + eps) with both parts divided by m^2. The sum is at most D. Where m is the maximum,
 * mean(u^2) >= 1/D, and squares or a t^2 too small for fp16 are below its last bit; where m is sqrt(eps), t is 1 and
 * dominates. Only sqrt(eps) has to be representable, and 1e-3 is an ordinary fp16 number.
 *
 * fp32 holds any of these squares and any eps: there the textbook order it is, which has a quarter of the passes
 * forward and back.
 *
 * Means are a sum and a division by D: D is exact in fp16 where 1/D is not, and reduce_mean is not taken everywhere.
 * rsqrt rather than pow(-0.5): the engine's is the correctly rounded function. Its epsilon stays unset: the sum is
 * never 0. */
#include <math.h>

#include "model/model.h"

static dtype type_of(const graph *g, val x) { return graph_type(g, x)->dt; }
static val scalar_like(graph *g, val x, double s) { return g->err.st ? NO_VAL : graph_scalar(g, type_of(g, x), s); }

val nn_scale(graph *g, val x, double s) { return s == 1 ? x : G(g, MUL, x, scalar_like(g, x, s)); }

val nn_linear(graph *g, val x, val w, val bias)
{
    val y = G(g, CONV, x, w);
    return bias.i ? G(g, ADD, y, bias) : y;
}

/* ---- norms ---- */

static val channel_sum(graph *g, val x) { return GA(g, REDUCE_SUM, VALS(x), AT_IS(AXES, 1), AT_B(KEEP_DIMS, true)); }

static val channel_mean(graph *g, val x)
{
    if (g->err.st) return NO_VAL;
    return G(g, REAL_DIV, channel_sum(g, x), scalar_like(g, x, (double)graph_type(g, x)->sh.d[1]));
}

/* What forward and backward both need: n = (x - mean) * r, and r = 1/sqrt(var + eps), [1, 1, 1, S]. */
typedef struct {
    val n, r;
} normed;

static normed normalise_f32(graph *g, val x, double eps, bool centre)
{
    if (centre) x = G(g, SUB, x, channel_mean(g, x));
    if (g->err.st) return (normed){ NO_VAL, NO_VAL };
    val sum = GA(g, REDUCE_SUM_SQUARE, VALS(x), AT_IS(AXES, 1), AT_B(KEEP_DIMS, true));
    val mean = G(g, REAL_DIV, sum, scalar_like(g, x, (double)graph_type(g, x)->sh.d[1]));
    val r = GA(g, RSQRT, VALS(G(g, ADD, mean, scalar_like(g, x, eps))), AT_F(EPSILON, 0));
    return (normed){ .n = G(g, MUL, x, r), .r = r };
}

static normed normalise(graph *g, val x, double eps, bool centre)
{
    if (g->err.st) return (normed){ NO_VAL, NO_VAL };
    if (type_of(g, x) == DT_F32) return normalise_f32(g, x, eps, centre);
    val root = scalar_like(g, x, sqrt(eps));
    val top = GA(g, REDUCE_MAX, VALS(G(g, ABS, x)), AT_IS(AXES, 1), AT_B(KEEP_DIMS, true));
    val m = G(g, MAXIMUM, top, root);
    /* |u| <= 1 already; the clip costs nothing to the value and lets range analysis see that the squares cannot
     * overflow */
    val u = GA(g, CLIP, VALS(G(g, REAL_DIV, x, m)), AT_F(ALPHA, -1), AT_F(BETA, 1));
    val t = G(g, REAL_DIV, root, m);
    if (centre) u = G(g, SUB, u, channel_mean(g, u));
    val var = G(g, ADD, channel_mean(g, G(g, MUL, u, u)), G(g, MUL, t, t));
    val rho = G(g, RSQRT, var);
    return (normed){ .n = G(g, MUL, u, rho), .r = G(g, REAL_DIV, rho, m) };
}

double nn_eps(dtype dt, double eps)
{
    if (dt == DT_F32) return dtype_round(dt, eps);
    double root = dtype_round(dt, sqrt(eps));
    return root * root;
}

val nn_rmsnorm(graph *g, val x, val gain, double eps) { return G(g, MUL, normalise(g, x, eps, false).n, gain); }

val nn_layernorm(graph *g, val x, val gain, val bias, double eps)
{
    val y = G(g, MUL, normalise(g, x, eps, true).n, gain);
    return bias.i ? G(g, ADD, y, bias) : y;
}

/* dx = r * (w dy - n * mean(w dy n)), and with a mean taken off, also - mean(w dy). The gain is in every sum and in no
 * factor outside it. n is of unit size, so nothing here grows beyond dy. */
static val norm_bwd(graph *g, val dy, val x, val gain, double eps, bool centre)
{
    normed s = normalise(g, x, eps, centre);
    val wdy = G(g, MUL, dy, gain);
    val along = G(g, MUL, s.n, channel_mean(g, G(g, MUL, wdy, s.n)));
    val d = G(g, SUB, wdy, along);
    if (centre) d = G(g, SUB, d, channel_mean(g, wdy));
    return G(g, MUL, d, s.r);
}

val nn_rmsnorm_bwd(graph *g, val dy, val x, val gain, double eps) { return norm_bwd(g, dy, x, gain, eps, false); }
val nn_layernorm_bwd(graph *g, val dy, val x, val gain, double eps) { return norm_bwd(g, dy, x, gain, eps, true); }

/* ---- activations ---- */

/* fp32 is of a processor, which has the function itself: the gradient makes the sigmoid again, and none is kept for
 * it. */
val nn_silu(graph *g, val x)
{
    if (!g->err.st && type_of(g, x) == DT_F32) return G(g, SILU, x);
    return G(g, MUL, x, G(g, SIGMOID, x));
}
val nn_swiglu(graph *g, val h1, val h3) { return G(g, MUL, nn_silu(g, h1), h3); }

void nn_swiglu_bwd(graph *g, val dy, val h1, val h3, val *dh1, val *dh3)
{
    val s = G(g, SIGMOID, h1);
    val silu = G(g, MUL, h1, s);
    /* d silu = s * (1 + h1 * (1 - s)) */
    val slope = G(g, MUL, s, G(g, ADD, scalar_like(g, h1, 1), G(g, MUL, h1, G(g, SUB, scalar_like(g, h1, 1), s))));
    *dh1 = G(g, MUL, G(g, MUL, dy, h3), slope);
    *dh3 = G(g, MUL, dy, silu);
}

/* GELU, tanh form: 0.5 x (1 + tanh(x (c0 + c1 x^2))). Past |x| = 10 the tanh is +-1 in any of our types, so x is
 * clipped there for the inner part: x^3 leaves fp16 at 40, and 0 * inf would follow in the slope. */
static const double GELU_C0 = 0.79788456080286536; /* sqrt(2/pi) */
static const double GELU_C1 = 0.035677408136300125; /* 0.044715 * c0 */

typedef struct {
    val x, x2, t;
} gelu_parts;

static gelu_parts gelu_inner(graph *g, val x)
{
    gelu_parts p;
    p.x = GA(g, CLIP, VALS(x), AT_F(ALPHA, -10), AT_F(BETA, 10));
    p.x2 = G(g, MUL, p.x, p.x);
    val inner = G(g, ADD, G(g, MUL, p.x2, scalar_like(g, x, GELU_C1)), scalar_like(g, x, GELU_C0));
    p.t = G(g, TANH, G(g, MUL, p.x, inner));
    return p;
}

val nn_gelu(graph *g, val x)
{
    gelu_parts p = gelu_inner(g, x);
    return G(g, MUL, G(g, MUL, x, scalar_like(g, x, 0.5)), G(g, ADD, p.t, scalar_like(g, x, 1)));
}

/* slope = 0.5 (1 + t) + 0.5 x (1 - t^2) (c0 + 3 c1 x^2) */
val nn_gelu_bwd(graph *g, val dy, val x)
{
    gelu_parts p = gelu_inner(g, x);
    val half = scalar_like(g, x, 0.5), one = scalar_like(g, x, 1);
    val d_inner = G(g, ADD, G(g, MUL, p.x2, scalar_like(g, x, 3 * GELU_C1)), scalar_like(g, x, GELU_C0));
    val bell = G(g, MUL, G(g, SUB, one, G(g, MUL, p.t, p.t)), d_inner);
    val slope = G(g, MUL, half, G(g, ADD, G(g, ADD, p.t, one), G(g, MUL, p.x, bell)));
    return G(g, MUL, dy, slope);
}

void nn_geglu_bwd(graph *g, val dy, val h1, val h3, val *dh1, val *dh3)
{
    *dh1 = nn_gelu_bwd(g, G(g, MUL, dy, h3), h1);
    *dh3 = G(g, MUL, dy, nn_gelu(g, h1)); /* the inner part of both is one after the passes */
}

/* ---- logits kept within a bound ---- */

/* A quotient, not a factor: 1/30 is no fp16 number, 30 is. */
static val capped(graph *g, val x, double cap) { return G(g, TANH, G(g, REAL_DIV, x, scalar_like(g, x, cap))); }

val nn_softcap(graph *g, val x, double cap)
{
    return cap == 0 ? x : G(g, MUL, capped(g, x, cap), scalar_like(g, x, cap));
}

/* slope = 1 - tanh(x / cap)^2 */
val nn_softcap_bwd(graph *g, val dy, val x, double cap)
{
    if (cap == 0) return dy;
    val t = capped(g, x, cap);
    return G(g, MUL, dy, G(g, SUB, scalar_like(g, x, 1), G(g, MUL, t, t)));
}
