/* legalize.c: the driver of rewrites the target's rules ask for.
 * In: a rewrite (legalizer) and the chip.  A row of target/rules.def names the rewrite that repairs it; an operation is
 * rewritten when such a row fires for it on this chip and the rewrite can be done there. Nothing here knows a limit. */
#include <math.h>

#include "pass/pass_int.h"

an_status rules_naming(const char *name, const chip *c, arena *mem, const char ***rule, size_t *n, diag *d)
{
    const char **out = TAKE(mem, const char *, rule_count());
    if (!out) return diag_nomem(d);
    *n = 0;
    for (size_t i = 0; i < rule_count(); i++)
        if (!strcmp(rule_legalizer_at(i), name) && rule_speaks_at(i, c)) out[(*n)++] = rule_id_at(i);
    *rule = out;
    return AN_OK;
}

bool any_rule_fires(const char *const *rule, size_t n, const chip *c, const op_inst *op)
{
    for (size_t i = 0; i < n; i++)
        if (rule_fires(rule[i], c, op)) return true;
    return false;
}

/* Smallest and largest element. fp16 by its bits: this runs over every mask and weight a rule might ask about. */
static vrange const_range(const node *c, const ttype *t)
{
    vrange r = { INFINITY, -INFINITY };
    int64_t n;
    if (!c->cst->data || t->dt == DT_STRING || !shape_elems(&t->sh, &n) || !n) return (vrange){ -INFINITY, INFINITY };
    if (t->dt == DT_F16) {
        const unsigned char *p = c->cst->data;
        int lo = INT16_MAX, hi = -INT16_MAX - 1; /* sign and magnitude as an integer orders halves like their values */
        for (int64_t i = 0; i < n; i++) {
            int b = p[2 * i] | p[2 * i + 1] << 8, key = b & 0x8000 ? -(b & 0x7fff) : b;
            lo = MIN(lo, key), hi = MAX(hi, key);
        }
        r.lo = f16_to_f64((uint16_t)(lo < 0 ? 0x8000 | -lo : lo));
        r.hi = f16_to_f64((uint16_t)(hi < 0 ? 0x8000 | -hi : hi));
    } else
        for (int64_t i = 0; i < n; i++) {
            double x = dtype_load(t->dt, c->cst->data, i);
            r.lo = fmin(r.lo, x), r.hi = fmax(r.hi, x);
        }
    if (isnan(r.lo) || isnan(r.hi) || r.lo > r.hi) return (vrange){ -INFINITY, INFINITY };
    return r;
}

static bool is_constexpr(op_id op)
{
    return op == OP_CONST || op == OP_CX_AFFINE || op == OP_CX_LUT || op == OP_CX_SPARSE || op == OP_CX_BLOCK ||
           op == OP_CX_SPARSE_BLOCK;
}

enum { RANGE_ELEMS = 1 << 22 }; /* constants above this are weights, and no rule asks for their range */

op_inst *inst_of(const graph *g, const node *n, arena *mem)
{
    op_inst *o = TAKE(mem, op_inst, 1);
    operand *in = TAKE(mem, operand, (size_t)n->n_in);
    ttype *out = TAKE(mem, ttype, (size_t)n->n_out);
    bool *is_out = TAKE(mem, bool, (size_t)n->n_out);
    if (!o || !in || !out || !is_out) return NULL;
    for (int k = 0; k < n->n_in; k++) {
        if (!n->in[k].i) continue;
        const node *m = graph_maker(g, n->in[k]);
        in[k] = (operand){
            .type = *in_type(g, n, k), .present = true, .is_const = is_constexpr(m->op), .is_input = m->op == OP_INPUT,
            .data = m->op == OP_CONST ? m->cst->data : NULL, .range = { -INFINITY, INFINITY }, .from = m->op,
            .n_uses = 1, .value = n->in[k].i,
        };
        int64_t elems;
        if (m->op == OP_CONST && !op_is_mac(n->op) && shape_elems(&in[k].type.sh, &elems) && elems <= RANGE_ELEMS)
            in[k].range = const_range(m, &in[k].type);
    }
    for (int k = 0; k < n->n_out; k++) {
        val v = graph_out(n->out, k);
        out[k] = *graph_type(g, v);
        for (size_t p = 0; p < g->outputs.n; p++) is_out[k] = is_out[k] || g->outputs.at[p].v.i == v.i;
    }
    *o = (op_inst){ .op = n->op, .mil = n->mil, .name = n->name, .at = n->at, .n_in = n->n_in, .n_out = n->n_out,
                    .n_attr = n->n_attr, .in = in, .out = out, .out_is_output = is_out, .attrs = n->attrs, .flags = n->flags };
    return o;
}

an_status is_refused(const chip *c, const op_inst *op, arena *mem, bool *refused, diag *d)
{
    findings f = { 0 };
    *refused = false;
    TRY(rules_check_op(c, op, mem, &f, d));
    for (size_t i = 0; i < f.n; i++)
        if (f.at[i].sev == SEV_ERROR) *refused = true;
    return AN_OK;
}

an_status legal_run(graph *g, pass_ctx *c, const legalizer *row, diag *d)
{
    legal l = { .g = g, .was = *g, .chip = c->o->target, .mem = &c->scratch, .d = d };
    bool *mark = NULL;
    size_t n_marked = 0;
    for (uint32_t i = 1; i < g->nodes.n; i++) {
        const node *n = &l.was.nodes.at[i];
        if (!row->takes(n->op)) continue;
        if (!mark) {
            mark = TAKE(&c->scratch, bool, g->nodes.n);
            if (!mark) return diag_nomem(d);
            TRY(rules_naming(row->name, l.chip, &c->scratch, &l.rule, &l.n_rules, d));
            if (!l.n_rules) return AN_OK; /* no row asks for this rewrite on this chip */
        }
        arena_mark m = arena_save(&c->scratch);
        const op_inst *op = inst_of(g, n, &c->scratch);
        if (!op) return diag_nomem(d);
        mark[i] = any_rule_fires(l.rule, l.n_rules, l.chip, op) && row->can(&l, n);
        n_marked += mark[i];
        arena_back(&c->scratch, m);
        if (d->st) return d->st;
    }
    if (!n_marked) return AN_OK;
    c->n_changes += n_marked;
    if (graph_rewrite_begin(g, &l.rw)) return AN_OK; /* the error sticks to g: the verifier reports it */
    for (uint32_t i = 1; i < l.rw.n_nodes; i++) {
        const node *n = &l.rw.nodes[i];
        if (!mark[i]) {
            graph_rewrite_copy(g, &l.rw, i);
            continue;
        }
        g->here = n->at;
        val v = row->build(&l, n);
        if (v.i && !ttype_eq(graph_type(g, v), &l.rw.values[n->out.i].type))
            graph_fail(g, AN_BUG, "%s: rewriting %s changed its type", row->name, n->name);
        l.rw.map[n->out.i] = v;
    }
    g->here = NOWHERE;
    (void)graph_rewrite_end(g, &l.rw);
    return d->st;
}
