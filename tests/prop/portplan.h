/* portplan.h: run a program whose interface was rewritten, by its port plan: what a runtime does, on doubles. */
#ifndef TESTS_PORTPLAN_H
#define TESTS_PORTPLAN_H

#include "pass/pass.h"
#include "prop/randgraph.h"

/* Copy the slot's block between the original tensor and the port. */
static inline void pp_copy(const port_slot *s, double *orig, double *held, bool to_port)
{
    int64_t so[MAX_RANK], sp[MAX_RANK], at[MAX_RANK] = { 0 };
    int rank = s->part.rank;
    shape_strides(&s->orig_type.sh, so);
    shape_strides(&s->type.sh, sp);
    for (;;) {
        int64_t o = 0, p = 0;
        for (int k = 0; k < rank; k++) o += (at[k] + s->at[k]) * so[k], p += at[k] * sp[k];
        if (to_port) held[p] = orig[o];
        else orig[o] = held[p];
        int k = rank - 1;
        while (k >= 0 && ++at[k] == s->part.d[k]) at[k--] = 0;
        if (k < 0) return;
    }
}

static inline int pp_find(const port_slot *s, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(s->orig_name, names[i])) return (int)i;
    fail_msg("port %s comes from %s, which the original program does not have", s->name, s->orig_name);
    return 0;
}

/* in, out: in the original order; names of the original ports. Outputs must be zero outside their block. */
static inline an_status pp_eval(const graph *g, const port_plan *p, const tensor64 *in, const char *const *in_names,
                                size_t n_in, tensor64 *out, const char *const *out_names, size_t n_out, rg_rounding how,
                                arena *mem, diag *d)
{
    tensor64 *pi = TAKE(mem, tensor64, p->n_in), *po = TAKE(mem, tensor64, p->n_out);
    int64_t n;
    assert_int_equal(p->n_in, g->inputs.n);
    assert_int_equal(p->n_out, g->outputs.n);
    for (size_t i = 0; i < p->n_in; i++) {
        const port_slot *s = &p->in[i];
        const tensor64 *from = &in[pp_find(s, in_names, n_in)];
        assert_string_equal(s->name, graph_value(g, g->inputs.at[i])->name);
        assert_true(shape_eq(&s->type.sh, &graph_type(g, g->inputs.at[i])->sh));
        pi[i].type = s->type;
        assert_true(shape_elems(&s->type.sh, &n));
        pi[i].x = TAKE(mem, double, (size_t)n);
        for (int64_t k = 0; k < n; k++) pi[i].x[k] = 777; /* garbage */
        pp_copy(s, from->x, pi[i].x, true);
    }
    TRY(rg_eval(g, pi, po, how, mem, d));
    for (size_t i = 0; i < p->n_out; i++) {
        const port_slot *s = &p->out[i];
        tensor64 *to = &out[pp_find(s, out_names, n_out)];
        assert_string_equal(s->name, g->outputs.at[i].name);
        assert_true(shape_eq(&s->type.sh, &po[i].type.sh));
        if (!to->x) {
            to->type = s->orig_type;
            assert_true(shape_elems(&to->type.sh, &n));
            to->x = TAKE(mem, double, (size_t)n);
        }
        pp_copy(s, to->x, po[i].x, false);
        double sum = 0, block = 0; /* what lies outside the block must be zero */
        assert_true(shape_elems(&s->type.sh, &n));
        for (int64_t k = 0; k < n; k++) sum += fabs(po[i].x[k]);
        double *again = TAKE(mem, double, (size_t)n);
        pp_copy(s, to->x, again, true);
        for (int64_t k = 0; k < n; k++) block += fabs(again[k]);
        if (isfinite(sum) && fabs(sum - block) > 1e-9 * (1 + sum)) fail_msg("output %s: padding is not zero", s->name);
    }
    return AN_OK;
}

#endif
