/* verify.c: what is true of every graph, checked after building and after every pass.
 * A violation is AN_BUG and names the pass to blame: no input can cause one. */
#include "graph/graph.h"

static an_status bad(diag *d, const graph *g, const char *after, const node *n, const char *what)
{
    return diag_fail(d, AN_BUG, n ? n->at : NOWHERE, "after %s, %s: %s%s%s", after, g->title, n ? n->name : "",
                     n ? ": " : "", what);
}

/* The types on file are those the op's rules give for the operands on file. */
static an_status types_hold(const graph *g, const node *n, const char *after, diag *d)
{
    ttype in_few[16], out_few[16];
    arena tmp = { 0 };
    ttype *in = (size_t)n->n_in <= COUNT(in_few) ? in_few : TAKE(&tmp, ttype, (size_t)n->n_in);
    ttype *out = (size_t)n->n_out <= COUNT(out_few) ? out_few : TAKE(&tmp, ttype, (size_t)n->n_out);
    an_status st = AN_OK;
    int n_out = 0;
    diag why = { 0 };
    if (!in || !out) st = diag_nomem(d);
    for (int k = 0; k < n->n_in && !st; k++) in[k] = n->in[k].i ? g->values.at[n->in[k].i].type : (ttype){ 0 };
    if (!st && graph_infer(n->op, in, n->n_in, n->attrs, n->n_attr, out, &n_out, n->n_out, &why))
        st = why.st == AN_NOMEM ? diag_nomem(d) : bad(d, g, after, n, why.msg);
    if (!st && n_out != n->n_out) st = bad(d, g, after, n, "number of results is not what the op yields");
    for (int k = 0; k < n->n_out && !st; k++) {
        const ttype *t = &g->values.at[n->out.i + (uint32_t)k].type;
        if (t->dt != out[k].dt || !shape_eq(&t->sh, &out[k].sh))
            st = bad(d, g, after, n, "type on file is not the inferred one");
    }
    arena_free(&tmp);
    return st;
}

static an_status node_holds(const graph *g, uint32_t i, const char *after, diag *d)
{
    const node *n = &g->nodes.at[i];
    if ((unsigned)n->op >= OP_COUNT) return bad(d, g, after, n, "unknown operation");
    if (!n->out.i || n->out.i + (uint32_t)n->n_out > g->values.n)
        return bad(d, g, after, n, "results lie outside the value table");
    for (int k = 0; k < n->n_in; k++)
        if (n->in[k].i >= n->out.i) return bad(d, g, after, n, "uses a value that is made later");
    for (int k = 0; k < n->n_out; k++) {
        const value *v = &g->values.at[n->out.i + (uint32_t)k];
        uint32_t found;
        if (v->node != i || v->out != k) return bad(d, g, after, n, "a result points at another node");
        if (!v->name || !str_map_get(&g->names, v->name, strlen(v->name), &found) || found != n->out.i + (uint32_t)k)
            return bad(d, g, after, n, "a result's name is missing or names another value");
    }
    if (n->op == OP_INPUT || n->op == OP_OPAQUE) return AN_OK;
    if (n->op == OP_CONST) return n->cst ? AN_OK : bad(d, g, after, n, "constant without content");
    return types_hold(g, n, after, d);
}

an_status graph_verify(const graph *g, const char *after, diag *d)
{
    if (g->err.st) return diag_fail(d, g->err.st, g->err.at, "%s", g->err.msg);
    for (uint32_t i = 1; i < g->nodes.n; i++) TRY(node_holds(g, i, after, d));
    size_t n_inputs = 0;
    for (uint32_t i = 1; i < g->nodes.n; i++) n_inputs += g->nodes.at[i].op == OP_INPUT;
    if (n_inputs != g->inputs.n) return bad(d, g, after, NULL, "the list of inputs does not match the input nodes");
    for (size_t i = 0; i < g->inputs.n; i++)
        if (graph_maker(g, g->inputs.at[i])->op != OP_INPUT)
            return bad(d, g, after, NULL, "an input is not an input node");
    if (!g->outputs.n) return diag_fail(d, AN_INPUT, NOWHERE, "%s returns nothing", g->title);
    for (size_t i = 0; i < g->outputs.n; i++)
        if (!g->outputs.at[i].v.i || g->outputs.at[i].v.i >= g->values.n)
            return bad(d, g, after, NULL, "an output is not a value");
    return AN_OK;
}
