/* legal_bias.c: the bias operand of conv, conv_transpose and linear becomes an add: [C] as [1, C, 1, ...] so that it
 * runs along channels. The engine adds bias in fp16 after the accumulator either way. */
#include "pass/pass_int.h"

static bool takes(op_id op) { return op == OP_CONV || op == OP_NE_CONV || op == OP_CONV_TRANSPOSE || op == OP_LINEAR; }
static bool can(legal *l, const node *n) { return (void)l, n->n_in > 2 && n->in[2].i; }

static val build(legal *l, const node *n)
{
    graph *g = l->g;
    val bias = legal_in(l, n, 2);
    val y = graph_op(g, n->op, VALS(legal_in(l, n, 0), legal_in(l, n, 1)), n->attrs, n->n_attr);
    if (!y.i || !bias.i) return NO_VAL;
    if (n->op != OP_LINEAR) { /* linear's bias lies along the last axis, where a vector broadcasts as it is */
        shape sh = { .rank = graph_type(g, y)->sh.rank };
        for (int k = 0; k < sh.rank; k++) sh.d[k] = k == 1 ? graph_type(g, bias)->sh.d[0] : 1;
        bias = graph_maker(g, bias)->op == OP_CONST ? const_reshaped(g, bias, sh)
                                                    : GA(g, RESHAPE, VALS(bias), AT_LIST(SHAPE, sh.d, sh.rank));
    }
    return graph_op_named(g, n->name, OP_ADD, VALS(y, bias), NULL, 0);
}

an_status pass_conv_bias(graph *g, pass_ctx *c, diag *d)
{
    static const legalizer row = { "conv_bias", takes, can, build };
    return legal_run(g, c, &row, d);
}
