/* legal_gelu.c: gelu as arithmetic, where a chip or route refuses the activation.
 *   EXACT                 0.5 x (1 + erf(x / sqrt 2)) where erf is there (its own table on the engine), else the tanh form
 *   TANH_APPROXIMATION    0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
 *   SIGMOID_APPROXIMATION x sigmoid(1.702 x)
 * The tanh form differs from the exact one by at most 4.8e-4 absolute (at |x| near 2.3). Constants are stored in x's
 * type: the full 11 bits in fp16. x^3 by two products, not pow; where it overflows tanh is at its end anyway. */
#include <math.h>

#include "pass/pass_int.h"

static bool takes(op_id op) { return op == OP_GELU; }
static bool can(legal *l, const node *n) { return (void)l, (void)n, true; }

static val times(graph *g, dtype t, val x, double c) { return G(g, MUL, x, graph_scalar(g, t, c)); }

static val build(legal *l, const node *n)
{
    graph *g = l->g;
    val x = legal_in(l, n, 0);
    dtype t = graph_type(g, x)->dt;
    const char *mode = attr_str(n->op, n->attrs, n->n_attr, A_MODE);
    if (!strcmp(mode, "SIGMOID_APPROXIMATION"))
        return graph_op_named(g, n->name, OP_MUL, VALS(x, G(g, SIGMOID, times(g, t, x, 1.702))), NULL, 0);
    val inner;
    if (!strcmp(mode, "EXACT") && gate_of("erf", l->chip, NULL) == GATE_NATIVE)
        inner = G(g, ERF, times(g, t, x, sqrt(0.5)));
    else {
        val cube = G(g, MUL, G(g, MUL, x, x), x);
        /* sqrt(2/pi) */
        inner = G(g, TANH, times(g, t, G(g, ADD, x, times(g, t, cube, 0.044715)), 0.79788456080286535588));
    }
    val one_plus = G(g, ADD, inner, graph_scalar(g, t, 1));
    return graph_op_named(g, n->name, OP_MUL, VALS(times(g, t, x, 0.5), one_plus), NULL, 0);
}

an_status pass_gelu(graph *g, pass_ctx *c, diag *d)
{
    static const legalizer row = { "gelu", takes, can, build };
    return legal_run(g, c, &row, d);
}
