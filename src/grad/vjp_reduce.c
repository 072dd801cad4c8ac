/* vjp_reduce.c: gradients of operations that look along axes: reductions, softmax, norms.
 * In: an adj.  Out: its dx. The gradient of a reduction is thin: its axes stay 1 until somebody needs every element. */
#include <math.h>

#include "grad/grad_int.h"

/* ---- reductions ---- */

typedef struct {
    unsigned axes;
    shape kept; /* x with those axes 1 */
    int64_t n;  /* elements per result */
    val dy;     /* in that shape, or thinner */
} reduction;

static val in_kept(adj *c, const reduction *r, val v) /* a result, with its axes back */
{
    shape s = shape_at(c, v);
    if (s.rank == 0) return v;
    return reshaped(c, v, &r->kept);
}

static reduction read_reduction(adj *c)
{
    shape x = shape_at(c, c->n.in[0]);
    reduction r = { .axes = at_axes(c, A_AXES, x.rank), .kept = x, .n = 1 };
    for (int i = 0; i < x.rank; i++)
        if (r.axes & 1u << i) r.kept.d[i] = 1, r.n *= x.d[i];
    shape d = shape_at(c, c->dy[0]);
    r.dy = d.rank == 0 ? c->dy[0] : in_kept(c, &r, dy_full(c));
    return r;
}

/* A mean where all that is asked for is one: a chip's own adds up in fp32, the sum for itself would end at 65504. */
static val mean_axes(adj *c, val v, unsigned axes, int64_t n)
{
    if (c->dt != DT_F16) return over_count(c, sum_axes(c, v, axes), n);
    int64_t list[MAX_RANK];
    int k = 0;
    for (int i = 0; i < MAX_RANK; i++)
        if (axes & 1u << i) list[k++] = i;
    return k ? GA(c->g, REDUCE_MEAN, VALS(v), AT_LIST(AXES, list, k), AT_B(KEEP_DIMS, true)) : v;
}

void vjp_reduce_sum(adj *c) { c->dx[0] = read_reduction(c).dy; }

void vjp_reduce_mean(adj *c)
{
    reduction r = read_reduction(c);
    c->dx[0] = over_count(c, r.dy, r.n);
}

/* Equal extremes share: the gradient's sum is right whichever of them moves. */
static void extreme(adj *c)
{
    reduction r = read_reduction(c);
    val hit = G(c->g, EQUAL, c->n.in[0], in_kept(c, &r, c->n.out));
    val hits = sum_axes(c, choose(c, hit, num(c, 1), num(c, 0)), r.axes);
    c->dx[0] = only_if(c, hit, quo(c, r.dy, hits));
}

void vjp_reduce_max(adj *c) { extreme(c); }
void vjp_reduce_min(adj *c) { extreme(c); }

void vjp_reduce_sum_square(adj *c)
{
    reduction r = read_reduction(c);
    c->dx[0] = mul(c, r.dy, add(c, c->n.in[0], c->n.in[0]));
}

void vjp_reduce_l1_norm(adj *c)
{
    reduction r = read_reduction(c);
    c->dx[0] = mul(c, r.dy, G(c->g, SIGN, c->n.in[0]));
}

static val not_zero(adj *c, val v) { return G(c->g, MAXIMUM, v, num(c, tiny_of(c->dt))); } /* v >= 0: only 0 changes */

void vjp_reduce_l2_norm(adj *c) /* x / y lies in -1 .. 1; at 0 it is 0 */
{
    reduction r = read_reduction(c);
    c->dx[0] = mul(c, r.dy, quo(c, c->n.in[0], not_zero(c, in_kept(c, &r, c->n.out))));
}

/* dy / sum, the sum as n means: fp16 has no 76800, which is what 768 numbers of 100 add up to. */
void vjp_reduce_log_sum(adj *c)
{
    reduction r = read_reduction(c);
    c->dx[0] = full(c, quo(c, over_count(c, r.dy, r.n), mean_axes(c, c->n.in[0], r.axes, r.n)), &r.kept);
}

/* Softmax; the exponent is never positive. fp16 holds the result to half a unit, 1/32 at 100, and all shares are off
 * by its exponential: their sum, which would be 1, takes that out. */
void vjp_reduce_log_sum_exp(adj *c)
{
    reduction r = read_reduction(c);
    val share = G(c->g, EXP, sub(c, c->n.in[0], in_kept(c, &r, c->n.out)));
    if (c->dt == DT_F16) share = quo(c, share, sum_axes(c, share, r.axes));
    c->dx[0] = mul(c, r.dy, share);
}

void vjp_softmax(adj *c)
{
    val y = c->n.out;
    unsigned axis = 1u << at_axis(c, A_AXIS, c->y.rank);
    c->dx[0] = mul(c, y, sub(c, c->dy[0], sum_axes(c, mul(c, c->dy[0], y), axis)));
}

/* ---- norms ---- Back through n = (x - mean) r: dx = r (d - mean(d) - n mean(d n)), d the gradient of n. n is of
 * unit size, so nothing grows beyond dy. r is found without squaring x: with m = max(|x - mean|, sqrt(eps)) and u =
 * (x - mean) / m, |u| <= 1,
 *     r = rsqrt(mean(u^2) + (sqrt(eps) / m)^2) / m
 * where the squares neither overflow fp16 nor is an eps of 1e-5 lost to it. */

typedef struct {
    unsigned axes;
    int64_t n;
    double eps;
    bool centred, length; /* length: over the length, not the root mean square: y = n / sqrt(k.n) */
} norm_kind;

typedef struct {
    val n, r; /* a length's n is n over the fourth root of the count: a single large x would make it sqrt(count) */
} normed;

static val mean_of(adj *c, const norm_kind *k, val v) { return mean_axes(c, v, k->axes, k->n); }

static normed normalise(adj *c, const norm_kind *k, val x)
{
    /* fp16 holds a mean of 100 to 1/32, and what it is off by would be in every n: taken out the second time */
    for (int i = 0; k->centred && i < (c->dt == DT_F16 ? 2 : 1); i++) x = sub(c, x, mean_of(c, k, x));
    int64_t list[MAX_RANK];
    int n = 0;
    for (int i = 0; i < MAX_RANK; i++)
        if (k->axes & 1u << i) list[n++] = i;
    val root = num(c, sqrt(k->eps));
    val m = G(c->g, MAXIMUM, GA(c->g, REDUCE_MAX, VALS(G(c->g, ABS, x)), AT_LIST(AXES, list, n), AT_B(KEEP_DIMS, true)),
              root);
    val u = quo(c, x, m), t = quo(c, root, m), uu = mul(c, u, u);
    val size = add(c, mean_of(c, k, uu), mul(c, t, t));
    val rho = GA(c->g, RSQRT, VALS(size), AT_F(EPSILON, 0));
    const double count = (double)(k->length ? k->n : 1);
    return (normed){ mul(c, u, scale(c, rho, 1 / sqrt(sqrt(count)))), quo(c, scale(c, rho, 1 / sqrt(count)), m) };
}

/* d: gradient of s.n, full */
static val norm_back(adj *c, const norm_kind *k, const normed *s, val d)
{
    val dn = mul(c, d, s->n);
    val in = sub(c, d, scale(c, mul(c, s->n, mean_of(c, k, dn)), k->length ? sqrt((double)k->n) : 1));
    if (k->centred) in = sub(c, in, mean_of(c, k, d));
    return mul(c, in, s->r);
}

/* gamma and beta, operands 1 and 2, broadcast in the shape `wide` has; their own shape is their type's */
static void affine_norm(adj *c, const norm_kind *k, const shape *wide)
{
    val dy = dy_full(c);
    normed s = normalise(c, k, c->n.in[0]);
    if (wanted(c, 0)) {
        val d = given(c, 1) ? mul(c, dy, reshaped(c, c->n.in[1], wide)) : dy;
        c->dx[0] = norm_back(c, k, &s, d);
    }
    for (int i = 1; i <= 2; i++) {
        if (!wanted(c, i)) continue;
        shape own = shape_at(c, c->n.in[i]);
        c->dx[i] = reshaped(c, fit(c, i == 1 ? mul(c, dy, s.n) : dy, &c->y, wide), &own);
    }
}

void vjp_layer_norm(adj *c)
{
    norm_kind k = {
        .axes = at_axes(c, A_AXES, c->y.rank), .n = 1, .eps = at_f(c, A_EPSILON), .centred = true
    };
    shape wide = c->y;
    for (int i = 0; i < c->y.rank; i++)
        if (k.axes & 1u << i) k.n *= c->y.d[i];
        else wide.d[i] = 1;
    affine_norm(c, &k, &wide);
}

void vjp_instance_norm(adj *c)
{
    norm_kind k = { .axes = ((1u << c->y.rank) - 1) & ~3u,
                    .n = prod(c->y.d, 2, c->y.rank),
                    .eps = at_f(c, A_EPSILON),
                    .centred = true };
    shape wide = { .rank = c->y.rank };
    for (int i = 0; i < c->y.rank; i++) wide.d[i] = i == 1 ? c->y.d[1] : 1;
    if (k.axes) {
        affine_norm(c, &k, &wide);
        return;
    }
    /* one element per instance: normalised it is 0 whatever it was, so only beta sees anything */
    for (int i = 0; i <= 2; i++) {
        if (!wanted(c, i)) continue;
        ttype t = *graph_type(c->g, c->n.in[i]);
        c->dx[i] = i == 2 ? channel_total(c, c->dy[0], &c->y) : graph_fill_const(c->g, NULL, t, 0);
    }
}

/* Over the last three axes, y = x / sqrt(sum(x^2) + eps). A sum is n means, so that is a norm with an epsilon of
 * eps / n, over sqrt(n): fp16 has no sum of 262144 squares. */
void vjp_l2_norm(adj *c)
{
    int first = MAX(0, c->y.rank - 3);
    norm_kind k = { .axes = ((1u << c->y.rank) - 1) & ~((1u << first) - 1), .n = prod(c->y.d, first, c->y.rank),
                    .length = true };
    k.eps = at_f(c, A_EPSILON) / (double)k.n;
    normed s = normalise(c, &k, c->n.in[0]);
    c->dx[0] = norm_back(c, &k, &s, dy_full(c));
}

void vjp_batch_norm(adj *c) /* y = (x - mean) s gamma + beta with s = rsqrt(variance + eps): all five are operands */
{
    int rank = c->y.rank;
    val dy = dy_full(c);
    val s = GA(c->g, RSQRT, VALS(c->n.in[2]), AT_F(EPSILON, at_f(c, A_EPSILON))), wide_s = per_channel(c, s, rank);
    val n = mul(c, sub(c, c->n.in[0], per_channel(c, c->n.in[1], rank)), wide_s);
    val gain = given(c, 3) ? mul(c, s, c->n.in[3]) : s; /* [C]: slope of y in x */
    if (wanted(c, 0)) c->dx[0] = mul(c, dy, per_channel(c, gain, rank));
    val sum = NO_VAL, along = NO_VAL; /* [C] */
    if (wanted(c, 1) || wanted(c, 4)) sum = channel_total(c, dy, &c->y);
    if (wanted(c, 2) || wanted(c, 3)) along = channel_total(c, mul(c, dy, n), &c->y);
    if (wanted(c, 1)) c->dx[1] = scale(c, mul(c, sum, gain), -1);
    if (wanted(c, 2)) c->dx[2] = scale(c, mul(c, mul(c, along, gain), s), -0.5); /* -1/2 s^3 gamma sum(dy (x - mean)) */
    if (wanted(c, 3)) c->dx[3] = along;
    if (wanted(c, 4)) c->dx[4] = sum;
}

/* y = x q^-beta, q = k + alpha/size * sum of neighbours' squares. The sum over neighbouring channels is a band
 * matrix; back, its transpose: an even window reaches one further back than forward. The factor's root goes to both
 * sides of the square, which would leave fp16 at 256. */
void vjp_local_response_norm(adj *c)
{
    int64_t ch = c->y.d[1], size = at_i(c, A_SIZE);
    double alpha = at_f(c, A_ALPHA), beta = at_f(c, A_BETA), k = at_f(c, A_K), each = alpha / (double)size;
    double *m = TAKE(c->tmp, double, (size_t)(ch * ch)), *t = TAKE(c->tmp, double, (size_t)(ch * ch));
    if (!m || !t) {
        graph_fail(c->g, AN_NOMEM, "out of memory");
        return;
    }
    for (int64_t i = 0; i < ch; i++)
        for (int64_t q = MAX(0, i - size / 2); q < MIN(ch, i - size / 2 + size); q++)
            m[i * ch + q] = 1, t[q * ch + i] = 1;
    shape square = SHAPE(ch, ch);
    val band = graph_const_f64(c->g, NULL, typed(c, square), m),
        band_t = graph_const_f64(c->g, NULL, typed(c, square), t);
    val x = c->n.in[0], dy = dy_full(c);
    val small = scale(c, x, sqrt(fabs(each))), squares = mul(c, small, each < 0 ? scale(c, small, -1) : small);
    val q = add(c, num(c, k), along_axis(c, squares, 1, band, ch));
    val p = G(c->g, POW, q, num(c, -beta)), direct = mul(c, dy, p);
    val through = along_axis(c, quo(c, mul(c, direct, x), q), 1, band_t, ch);
    c->dx[0] = sub(c, direct, scale(c, mul(c, x, through), 2 * beta * each));
}
