/* ports.c: what the rewrites of the program's interface share: the ports as the rules see them, and widening. A
 * widened input is sliced back (begin 0 on every axis) right where it enters, a widened output grown with zeros
 * right where it leaves, so nothing inside the program changes; the plan keeps where the original tensor lies. */
#include "pass/ports_int.h"

static port_view *view_side(const port_slot *s, size_t n, arena *mem)
{
    port_view *v = TAKE(mem, port_view, n);
    for (size_t i = 0; v && i < n; i++) v[i] = (port_view){ .name = s[i].name, .type = s[i].type };
    return v;
}

/* Ports alone: rules about ports ask for nothing else, and findings of other rules are passed over below. */
an_status ports_fire(const chip *c, const port_plan *p, const char *rewriter, arena *mem, ports_found *f, diag *d)
{
    arena_mark m = arena_save(mem);
    op_inst *none = TAKE(mem, op_inst, 1);
    prog_view v = { .ops = none,
                    .n_ops = 1,
                    .in = view_side(p->in, p->n_in, mem),
                    .out = view_side(p->out, p->n_out, mem),
                    .n_in = p->n_in,
                    .n_out = p->n_out,
                    .n_funcs = 1 };
    findings all = { 0 };
    *f = (ports_found){ 0 };
    if (!none || !v.in || !v.out) return diag_nomem(d);
    TRY(rules_check(c, &v, mem, &all, d));
    for (size_t i = 0; i < all.n; i++)
        for (size_t r = 0; r < rule_count(); r++)
            if (!strcmp(rule_id_at(r), all.at[i].rule) && !strcmp(rule_legalizer_at(r), rewriter)) f->n++;
    arena_back(mem, m);
    return AN_OK;
}

an_status port_fires(const chip *c, const port_slot *s, bool input, const char *rewriter, arena *mem, bool *fires,
                     diag *d)
{
    port_slot copy = *s;
    port_plan one = { 0 };
    ports_found f;
    if (input) one.in = &copy, one.n_in = 1;
    else one.out = &copy, one.n_out = 1;
    TRY(ports_fire(c, &one, rewriter, mem, &f, d));
    *fires = f.n > 0;
    return AN_OK;
}

/* v cut down to the extents of `to`. */
static val crop(graph *g, val v, const shape *to)
{
    const int64_t begin[MAX_RANK] = { 0 };
    return GA(g, SLICE_BY_SIZE, VALS(v), AT_LIST(BEGIN, begin, to->rank), AT_LIST(SIZE, to->d, to->rank));
}

/* v grown to the extents of `to` with zeros behind. The engine pads height and width alone; any other axis is joined
 * to zeros. */
static val grow(graph *g, val v, const shape *to)
{
    for (int axis = 0; axis < to->rank - 2 && v.i; axis++) {
        ttype t = *graph_type(g, v);
        if (t.sh.d[axis] == to->d[axis]) continue;
        t.sh.d[axis] = to->d[axis] - t.sh.d[axis];
        const attr fill[] = { AT_LIST(SHAPE, t.sh.d, t.sh.rank), AT_S(DTYPE, dtype_name(t.dt)) };
        v = GA(g, CONCAT, VALS(v, graph_op(g, OP_FILL, NULL, 0, fill, 2)), AT_I(AXIS, axis));
    }
    if (!v.i) return NO_VAL;
    const shape *from = &graph_type(g, v)->sh;
    int64_t pad[4];
    int n = 0;
    for (int k = MAX(to->rank - 2, 0); k < to->rank; k++)
        if (n || from->d[k] != to->d[k]) pad[n++] = 0, pad[n++] = to->d[k] - from->d[k];
    return n ? GA(g, PAD, VALS(v), AT_LIST(PAD, pad, n)) : v;
}

an_status ports_widen(graph *g, pass_ctx *c, const shape *in, const shape *out, diag *d)
{
    port_plan *p = c->plan;
    rewrite rw;
    size_t n = 0;
    for (size_t i = 0; i < p->n_in; i++) n += !shape_eq(&in[i], &p->in[i].type.sh);
    for (size_t i = 0; i < p->n_out; i++) n += !shape_eq(&out[i], &p->out[i].type.sh);
    if (!n) return AN_OK;
    c->n_changes += n;
    p->changed = true;
    if (graph_rewrite_begin(g, &rw)) return AN_OK; /* sticks to g, and the verifier reports it */
    size_t at = 0;
    for (uint32_t i = 1; i < rw.n_nodes && !g->err.st; i++) {
        const node *nd = &rw.nodes[i];
        if (nd->op != OP_INPUT || shape_eq(&in[at], &p->in[at].type.sh)) {
            graph_rewrite_copy(g, &rw, i);
            at += nd->op == OP_INPUT;
            continue;
        }
        ttype t = rw.values[nd->out.i].type;
        g->here = nd->at;
        val wide = graph_input(g, nd->name, (ttype){ .dt = t.dt, .sh = in[at] });
        rw.map[nd->out.i] = crop(g, wide, &t.sh);
        p->in[at].type.sh = in[at];
        at++;
    }
    g->here = NOWHERE;
    for (size_t i = 0; i < rw.outputs.n; i++) {
        val v = rw_in(&rw, rw.outputs.at[i].v);
        if (!shape_eq(&out[i], &p->out[i].type.sh)) {
            v = grow(g, v, &out[i]);
            p->out[i].type.sh = out[i];
        }
        if (v.i) graph_output(g, rw.outputs.at[i].name, v);
    }
    rw.outputs.n = 0; /* attached above, under their names */
    (void)graph_rewrite_end(g, &rw);
    (void)d;
    return AN_OK;
}
