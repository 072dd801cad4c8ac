/* dce.c: nodes that no output needs go; program inputs stay, because they are the interface.
 * The graph is rebuilt only when something is dead. */
#include "pass/pass_int.h"

an_status pass_dce(graph *g, pass_ctx *c, diag *d)
{
    bool *live = TAKE(&c->scratch, bool, g->nodes.n);
    if (!live) return diag_nomem(d);
    for (size_t o = 0; o < g->outputs.n; o++) live[g->values.at[g->outputs.at[o].v.i].node] = true;
    size_t n_dead = 0;
    for (size_t i = g->nodes.n - 1; i > 0; i--) { /* users come after makers: one walk backwards marks everything */
        const node *n = &g->nodes.at[i];
        if (n->op == OP_INPUT || op_has_effect(n->op)) live[i] = true;
        n_dead += !live[i];
        for (int k = 0; k < n->n_in && live[i]; k++)
            if (n->in[k].i) live[g->values.at[n->in[k].i].node] = true;
    }
    if (!n_dead) return AN_OK;
    rewrite rw;
    if (!graph_rewrite_begin(g, &rw)) {
        for (uint32_t i = 1; i < rw.n_nodes; i++)
            if (live[i]) graph_rewrite_copy(g, &rw, i);
        (void)graph_rewrite_end(g, &rw); /* a failure sticks to g and is reported by the verifier */
    }
    c->n_changes += n_dead;
    return AN_OK;
}
