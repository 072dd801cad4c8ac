/* vjp_binary.c: gradients of operations on two elements, and of activations with a parameter per channel.
 * In: an adj.  Out: dx of each operand, summed over the axes it was broadcast along. */
#include "grad/grad_int.h"

static val x0(const adj *c) { return c->n.in[0]; }
static val x1(const adj *c) { return c->n.in[1]; }

void vjp_add(adj *c)
{
    for (int k = 0; k < 2; k++)
        if (wanted(c, k)) give(c, k, c->dy[0]);
}

void vjp_sub(adj *c)
{
    if (wanted(c, 0)) give(c, 0, c->dy[0]);
    if (wanted(c, 1)) give(c, 1, scale(c, c->dy[0], -1));
}

void vjp_mul(adj *c)
{
    if (wanted(c, 0)) give(c, 0, mul(c, c->dy[0], x1(c)));
    if (wanted(c, 1)) give(c, 1, mul(c, c->dy[0], x0(c)));
}

void vjp_real_div(adj *c) /* dy/y, and -(dy/y) z: z = x/y is there already and smaller than x where y is large */
{
    val q = quo(c, c->dy[0], x1(c));
    if (wanted(c, 0)) give(c, 0, q);
    if (wanted(c, 1)) give(c, 1, scale(c, mul(c, q, c->n.out), -1));
}

static bool never_zero(const graph *g, val v) /* a constant, none of whose elements is 0 */
{
    const node *k = graph_const_of(g, v);
    int64_t n;
    if (!k || !shape_elems(&graph_type(g, v)->sh, &n)) return false;
    for (int64_t i = 0; i < n; i++)
        if (graph_const_at(k, graph_type(g, v), i) == 0) return false;
    return true;
}

/* y x^(y-1), 0 where y is 0: there x^y is 1 whatever x is, and at x = 0 the formula would be 0 times infinity. And z
 * log x; 0 where x is 0, the limit for a positive exponent. A negative base has no slope in y: NaN. */
void vjp_pow(adj *c)
{
    val x = x0(c), y = x1(c);
    if (wanted(c, 0)) {
        double e;
        bool squared = graph_const_scalar(c->g, y, &e) && e == 2;
        val d = squared ? add(c, x, x) : mul(c, y, G(c->g, POW, x, sub(c, y, num(c, 1))));
        if (!squared && !never_zero(c->g, y)) d = only_if(c, G(c->g, NOT_EQUAL, y, num(c, 0)), d);
        give(c, 0, mul(c, c->dy[0], d));
    }
    if (!wanted(c, 1)) return;
    val at_zero = G(c->g, EQUAL, x, num(c, 0));
    val log = GA(c->g, LOG, VALS(choose(c, at_zero, num(c, 1), x)), AT_F(EPSILON, 0));
    give(c, 1, mul(c, c->dy[0], mul(c, c->n.out, log)));
}

static void extreme(adj *c, op_id first_wins)
{
    const val both[] = { x0(c), x1(c) };
    val first = graph_op(c->g, first_wins, both, 2, NULL, 0), none = num(c, 0);
    if (wanted(c, 0)) give(c, 0, choose(c, first, c->dy[0], none));
    if (wanted(c, 1)) give(c, 1, choose(c, first, none, c->dy[0]));
}

void vjp_maximum(adj *c) { extreme(c, OP_GREATER_EQUAL); }
void vjp_minimum(adj *c) { extreme(c, OP_LESS_EQUAL); }

void vjp_pe_elementwise(adj *c)
{
    static const struct {
        const char *mode;
        vjp_fn *rule;
    } modes[] = { { "add", vjp_add },     { "sub", vjp_sub }, { "mul", vjp_mul },     { "max", vjp_maximum },
                  { "min", vjp_minimum }, { "pow", vjp_pow }, { "div", vjp_real_div } };
    for (size_t i = 0; i < COUNT(modes); i++)
        if (!strcmp(at_s(c, A_MODE), modes[i].mode)) {
            modes[i].rule(c);
            return;
        }
    broken(c, "unknown mode");
}

void vjp_select(adj *c)
{
    val cond = c->n.in[0], none = num(c, 0);
    if (wanted(c, 1)) give(c, 1, choose(c, cond, c->dy[0], none));
    if (wanted(c, 2)) give(c, 2, choose(c, cond, none, c->dy[0]));
}

void vjp_cast(adj *c) /* float to float: to an integer nothing comes back */
{
    dtype back = graph_type(c->g, x0(c))->dt;
    c->dx[0] = GA(c->g, CAST, VALS(c->dy[0]), AT_S(DTYPE, dtype_name(back)));
}

void vjp_cumsum(adj *c) /* element i is in every sum from i on: the same sums from the other end */
{
    c->dx[0] = GA(c->g, CUMSUM, VALS(dy_full(c)), AT_I(AXIS, at_i(c, A_AXIS)), AT_B(EXCLUSIVE, at_b(c, A_EXCLUSIVE)),
                  AT_B(REVERSE, !at_b(c, A_REVERSE)));
}

/* ---- one parameter per channel (axis 1) ---- */

void vjp_prelu(adj *c)
{
    val x = x0(c), pos = G(c->g, GREATER, x, num(c, 0));
    if (wanted(c, 0)) c->dx[0] = choose(c, pos, c->dy[0], mul(c, c->dy[0], per_channel(c, x1(c), c->y.rank)));
    if (wanted(c, 1)) c->dx[1] = channel_total(c, choose(c, pos, num(c, 0), mul(c, c->dy[0], x)), &c->y);
}

void vjp_softplus_parametric(adj *c) /* y = a softplus(b x) */
{
    val a = per_channel(c, x1(c), c->y.rank), b = per_channel(c, c->n.in[2], c->y.rank), bx = mul(c, x0(c), b);
    if (wanted(c, 1)) c->dx[1] = channel_total(c, mul(c, c->dy[0], G(c->g, SOFTPLUS, bx)), &c->y);
    if (!wanted(c, 0) && !wanted(c, 2)) return;
    val inner = mul(c, mul(c, c->dy[0], a), G(c->g, SIGMOID, bx)); /* of b x */
    if (wanted(c, 0)) c->dx[0] = mul(c, inner, b);
    if (wanted(c, 2)) c->dx[2] = channel_total(c, mul(c, inner, x0(c)), &c->y);
}
