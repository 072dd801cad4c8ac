/* view.c: each node as the rule and cost tables see it: operands with types, constancy, data and ranges; no graph.
 * In: a graph.  Out: one op_inst per node in the caller's arena, borrowing names, attributes and constant bytes from
 * the graph. */
#include "graph/graph.h"

/* Fixed when the program is compiled: constants, and weights unpacked from nothing but constants. */
static void find_const(const graph *g, bool *fixed)
{
    for (size_t i = 1; i < g->nodes.n; i++) {
        const node *n = &g->nodes.at[i];
        bool yes = n->op == OP_CONST || n->op == OP_CX_AFFINE || n->op == OP_CX_LUT || n->op == OP_CX_SPARSE ||
                   n->op == OP_CX_BLOCK || n->op == OP_CX_SPARSE_BLOCK;
        for (int k = 0; k < n->n_in && yes; k++) yes = !n->in[k].i || fixed[n->in[k].i];
        for (int k = 0; k < n->n_out; k++) fixed[n->out.i + (uint32_t)k] = yes;
    }
}

typedef struct {
    const graph *g;
    const vrange *ranges;
    const uint32_t *uses;
    const bool *fixed;
} facts;

static operand see(const facts *f, val v)
{
    if (!v.i) return (operand){ .range = f->ranges[0] };
    const node *maker = graph_maker(f->g, v);
    return (operand){
        .type = *graph_type(f->g, v),
        .present = true,
        .is_const = f->fixed[v.i],
        .is_input = maker->op == OP_INPUT,
        .data = maker->op == OP_CONST ? maker->cst->data : NULL,
        .range = f->ranges[v.i],
        .from = maker->op,
        .n_uses = (int)f->uses[v.i],
        .value = v.i,
    };
}

an_status graph_insts(const graph *g, arena *mem, op_inst **out, diag *d)
{
    vrange *ranges = TAKE(mem, vrange, g->values.n);
    uint32_t *uses = TAKE(mem, uint32_t, g->values.n);
    bool *fixed = TAKE(mem, bool, g->values.n), *returned = TAKE(mem, bool, g->values.n);
    ttype *types = TAKE(mem, ttype, g->values.n);
    op_inst *inst = TAKE(mem, op_inst, g->nodes.n);
    if (!ranges || !uses || !fixed || !returned || !types || !inst) return diag_nomem(d);
    graph_ranges(g, ranges);
    graph_uses(g, uses);
    find_const(g, fixed);
    for (size_t i = 0; i < g->outputs.n; i++) returned[g->outputs.at[i].v.i] = true;
    for (size_t i = 1; i < g->values.n; i++) types[i] = g->values.at[i].type;
    facts f = { g, ranges, uses, fixed };
    for (size_t i = 1; i < g->nodes.n; i++) {
        const node *n = &g->nodes.at[i];
        operand *in = TAKE(mem, operand, (size_t)n->n_in);
        if (!in) return diag_nomem(d);
        for (int k = 0; k < n->n_in; k++) in[k] = see(&f, n->in[k]);
        inst[i] = (op_inst){
            .op = n->op,
            .mil = n->flags & INST_STATE ? op_get(OP_READ_STATE)->mil : n->mil, /* as it is written */
            .name = n->name,
            .at = n->at,
            .n_in = n->n_in,
            .n_out = n->n_out,
            .n_attr = n->n_attr,
            .in = in,
            .out = &types[n->out.i],
            .out_is_output = &returned[n->out.i],
            .attrs = n->attrs,
            .flags = n->flags,
            .out_value = n->out.i,
            .out_range = &ranges[n->out.i],
        };
    }
    *out = inst;
    return AN_OK;
}
