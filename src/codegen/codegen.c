/* codegen.c: the stages in order, and what a program gives back.
 * In: a graph.  Out: a program. */
#include <stdlib.h>

#include "codegen/codegen_int.h"

/* ---- results ---- */

enum { IS_STATE = 1 }; /* in eport.bytes until the port is emitted */

static int by_name(const void *a, const void *b) { return strcmp(((const eport *)a)->name, ((const eport *)b)->name); }

/* Every result as a tensor of its declared type, sorted by name; then the state that is written. */
static void list_outputs(cg *c)
{
    const graph *g = c->g;
    for (size_t i = 0; i < g->outputs.n && !c->err.st; i++) {
        const ttype *want = graph_type(g, g->outputs.at[i].v);
        int t = c->of[g->outputs.at[i].v.i];
        if (t < 0) {
            cg_fail(c, AN_UNSUPPORTED, "output %s is a constant without elements of its own", g->outputs.at[i].name);
            return;
        }
        t = cg_cast(c, t, want->dt);
        if (t >= 0 && !VEC_PUSH(&c->mem, &c->outs, ((eport){ .name = g->outputs.at[i].name, .tensor = (uint32_t)t })))
            diag_nomem(&c->err);
    }
    for (size_t i = 0; i < c->states.n && !c->err.st; i++) {
        const value *s = graph_value(g, c->states.at[i].state);
        for (size_t k = 0; k < g->outputs.n; k++)
            if (!strcmp(g->outputs.at[k].name, s->name))
                cg_fail(c, AN_UNSUPPORTED, "state %s is written, but an output has its name", s->name);
        int t = cg_cast(c, c->states.at[i].tensor, s->type.dt);
        if (t >= 0 &&
            !VEC_PUSH(&c->mem, &c->outs, ((eport){ .name = s->name, .tensor = (uint32_t)t, .bytes = IS_STATE })))
            diag_nomem(&c->err);
    }
    if (!c->err.st && c->outs.n) qsort(c->outs.at, c->outs.n, sizeof *c->outs.at, by_name);
}

static bool reads_input(const cg *c, const ins *n)
{
    for (int k = 0; k < n->n_opnd; k++)
        if (n->opnd[k] >= 0 && c->t.at[cg_root(c, n->opnd[k])].where == SPACE_INPUT) return true;
    for (int k = 0; k < n->n_ext; k++)
        if (c->t.at[cg_root(c, n->ext[k])].where == SPACE_INPUT) return true;
    return false;
}

static void bind_output(cg *c, size_t i, bool direct)
{
    int t = (int)c->outs.at[i].tensor;
    if (!direct) t = cg_copy(c, t);
    if (t < 0) return;
    c->outs.at[i].tensor = (uint32_t)t;
    c->t.at[cg_root(c, t)].where = SPACE_OUTPUT;
    c->t.at[cg_root(c, t)].slot = (int)i;
}

/* The storage of a result becomes its port where it can; else the result is copied there at the end. A result that
 * is an input, a constant, or shares storage with another result is copied. With `resident` one that is written
 * before the last input has been read is copied too, unless the instruction itself reads in step with its writing.
 * State comes last. */
static void bind_outputs(cg *c)
{
    if (c->err.st) return;
    size_t n_ins = c->ins.n, last_read = 0, n_t = c->t.n;
    int *first = TAKE(&c->mem, int, n_t);
    if (!first) {
        diag_nomem(&c->err);
        return;
    }
    for (size_t i = 0; i < c->t.n; i++) first[i] = NONE;
    for (size_t i = 0; i < n_ins; i++) {
        const ins *n = &c->ins.at[i];
        if (reads_input(c, n)) last_read = i + 1;
        for (int k = 0; k < n->n_y; k++)
            if (n->y[k] >= 0 && first[cg_root(c, n->y[k])] < 0) first[cg_root(c, n->y[k])] = (int)i;
    }
    for (size_t i = 0; i < c->outs.n && !c->err.st; i++) {
        int r = cg_root(c, (int)c->outs.at[i].tensor);
        bool direct = c->t.at[r].where == SPACE_SCRATCH;
        if (c->outs.at[i].bytes == IS_STATE) continue;
        if (direct && c->o.resident && first[r] >= 0 && (size_t)first[r] < last_read) {
            const ins *n = &c->ins.at[first[r]];
            bool in_step = (size_t)first[r] + 1 == last_read && (n->op == IN_EW || n->op == IN_EWS);
            for (int k = 0; in_step && k < n->n_ext; k++)
                for (int q = 0; q < n->n_y; q++)
                    if (cg_root(c, n->y[q]) == r && c->t.at[cg_root(c, n->ext[k])].where == SPACE_INPUT &&
                        !cg_can_share(c, n, n->ext[k], n->y[q]))
                        in_step = false;
            direct = in_step;
        }
        bind_output(c, i, direct);
    }
    for (size_t i = 0; i < c->outs.n && !c->err.st; i++)
        if (c->outs.at[i].bytes == IS_STATE) bind_output(c, i, false);
}

/* ---- the stages ---- */

static void check_ports(cg *c)
{
    for (size_t i = 0; i < c->g->outputs.n; i++)
        for (size_t k = 0; k < i; k++)
            if (!strcmp(c->g->outputs.at[i].name, c->g->outputs.at[k].name))
                cg_fail(c, AN_INPUT, "two outputs are named %s", c->g->outputs.at[i].name);
    if (!c->g->outputs.n) cg_fail(c, AN_INPUT, "the program has no output");
}

static void compile(cg *c)
{
    const graph *g = c->g;
    c->of = TAKE(&c->mem, int, g->values.n + 1);
    c->n_uses = TAKE(&c->mem, uint32_t, g->values.n + 1);
    if (!c->of || !c->n_uses) {
        diag_nomem(&c->err);
        return;
    }
    for (size_t i = 0; i <= g->values.n; i++) c->of[i] = NONE;
    graph_uses(g, c->n_uses);
    check_ports(c);
    select_nodes(c);
    cg_expect_read(c);
    list_outputs(c);
    narrow_reads(c);
    cg_drop_dead(c);
    attend_apart(c);
    fuse_passes(c);
    fuse_chains(c);
    order_reductions(c);
    alias_copies(c);
    bind_outputs(c);
    narrow_operands(c);
    plan_memory(c);
}

an_status codegen_program(const graph *g, const codegen_options *o, program **out, diag *d)
{
    static const codegen_options none = { 0 };
    *out = NULL;
    if (g->err.st) return diag_fail(d, g->err.st, g->err.at, "%s", g->err.msg);
    cg c = { .g = g, .o = o ? *o : none };
    c.num = c.o.num ? c.o.num : &numerics_cpu;
    c.soft = c.num->round_each != 0;
    c.mem.limit = c.o.limit;
    compile(&c);
    if (!c.err.st) *out = emit_program(&c, &c.err);
    arena_free(&c.mem);
    if (c.err.st) return diag_fail(d, c.err.st, c.err.at, "%s", c.err.msg);
    return AN_OK;
}

an_status codegen_mil(const mil_module *m, const lower_in *weights, const codegen_options *o, program **out, diag *d)
{
    graph *g = NULL;
    *out = NULL;
    TRY(lower_from_mil(m, weights, &g, d));
    an_status st = codegen_program(g, o, out, d);
    graph_free(g);
    return st;
}
