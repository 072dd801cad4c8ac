/* eval.c: the slow meaning of a graph, in double precision.
 * In: a graph and its inputs as doubles, or one op with its operands.  Out: results in the caller's arena.
 *
 * Numbers. Every value is a double, whatever float type is declared: nothing rounds between operations, and a cast
 * from float to float is the identity. Integer and bool results are exact: a formula that leaves the integers (cast,
 * real_div, reduce_mean) truncates toward zero, values past the type's range clamp to it (as storing a constant
 * does, so folding never changes a value), bool is "!= 0". Integer division by zero is an error. Constants are read
 * with dtype_load.
 *
 * Everything an output needs is computed once, in node order; nodes no output needs are skipped, so a weight that is
 * not here only matters when it is used. */
#include <stdlib.h>

#include "base/plain.h"
#include "graph/eval_int.h"

typedef an_status (*eval_fn)(eval_ctx *c);
static const eval_fn kernels[OP_COUNT] = {
#define OP(id, mil, in, out, attrs, shape, dtype, vjp, cost, kernel) [OP_##id] = eval_##kernel,
#include "op/ops.def"
#undef OP
};

an_status eval_fail(const eval_ctx *c, const char *fmt, ...)
{
    char msg[300];
    va_list ap;
    va_start(ap, fmt);
    plain_vprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    const char *mil = op_get(c->op)->mil;
    if (!strcmp(mil, c->name)) return diag_fail(c->d, AN_INPUT, c->at, "%s: %s", mil, msg);
    return diag_fail(c->d, AN_INPUT, c->at, "%s %s: %s", mil, c->name, msg);
}

/* Inputs, constants and foreign ops have no formula. */
an_status eval_none(eval_ctx *c) { return eval_fail(c, "has no meaning here: it cannot be evaluated"); }

static an_status make_room(const eval_ctx *c, tensor64 *t)
{
    int64_t n;
    if (!shape_elems(&t->type.sh, &n)) {
        strbuf b = { 0 };
        sb_shape(&b, &t->type.sh);
        eval_fail(c, "shape %s is not known or too large to evaluate", b.at ? b.at : "?");
        sb_free(&b);
        return c->d->st;
    }
    if ((uint64_t)n > SIZE_MAX / sizeof(double)) return diag_nomem(c->d);
    t->x = TAKE(c->mem, double, (size_t)n);
    return t->x ? AN_OK : diag_nomem(c->d);
}

static an_status run(eval_ctx *c)
{
    for (int i = 0; i < c->n_out; i++) TRY(make_room(c, &c->out[i]));
    TRY(kernels[c->op](c));
    for (int i = 0; i < c->n_out; i++) {
        dtype t = c->out[i].type.dt;
        if (dtype_class(t) == KIND_FLOAT) continue;
        for (int64_t j = 0, n = t64_elems(&c->out[i]); j < n; j++) c->out[i].x[j] = dtype_hold(t, c->out[i].x[j]);
    }
    return AN_OK;
}

an_status graph_eval_op(op_id op, const attr *attrs, int n_attr, const tensor64 *in, int n_in, tensor64 *out, int n_out,
                        arena *mem, diag *d)
{
    eval_ctx c = { .op = op, .name = op_get(op)->mil, .attrs = attrs, .n_attr = n_attr, .in = in, .n_in = n_in,
                   .out = out, .n_out = n_out, .mem = mem, .d = d };
    return run(&c);
}

static an_status load_const(eval_ctx *c, const node *nd, tensor64 *t)
{
    if (t->type.dt == DT_STRING) return AN_OK; /* read by nobody: strings reach ops as attributes */
    if (!nd->cst || !nd->cst->data) return diag_fail(c->d, AN_INPUT, nd->at, "constant %s has no data here", nd->name);
    TRY(make_room(c, t));
    for (int64_t i = 0, n = t64_elems(t); i < n; i++) t->x[i] = dtype_load(t->type.dt, nd->cst->data, i);
    return AN_OK;
}

static an_status check_input(const graph *g, val v, const tensor64 *got, diag *d)
{
    const value *want = graph_value(g, v);
    if (shape_eq(&want->type.sh, &got->type.sh) && got->x) return AN_OK;
    strbuf b = { 0 };
    sb_shape(&b, &want->type.sh);
    sb_puts(&b, got->x ? ", got " : ", got no data for ");
    sb_shape(&b, &got->type.sh);
    diag_fail(d, AN_INPUT, NOWHERE, "input %s: expected shape %s", want->name, b.at ? b.at : "?");
    sb_free(&b);
    return d->st;
}

/* needed[i]: node i feeds an output. Operands come before their users, so one sweep backwards is enough. */
static bool *find_needed(const graph *g, arena *mem)
{
    bool *needed = TAKE(mem, bool, g->nodes.n);
    if (!needed) return NULL;
    for (size_t i = 0; i < g->outputs.n; i++) needed[graph_value(g, g->outputs.at[i].v)->node] = true;
    for (size_t i = g->nodes.n; i-- > 1;) {
        const node *nd = &g->nodes.at[i];
        for (int j = 0; needed[i] && j < nd->n_in; j++)
            if (nd->in[j].i) needed[graph_value(g, nd->in[j])->node] = true;
    }
    return needed;
}

static an_status eval_node(const graph *g, const node *nd, tensor64 *values, const tensor64 *inputs, arena *mem,
                           diag *d)
{
    for (int k = 0; k < nd->n_out; k++)
        values[nd->out.i + (uint32_t)k].type = g->values.at[nd->out.i + (uint32_t)k].type;
    eval_ctx c = { .op = nd->op,
                   .name = nd->name,
                   .at = nd->at,
                   .attrs = nd->attrs,
                   .n_attr = nd->n_attr,
                   .n_in = nd->n_in,
                   .out = &values[nd->out.i],
                   .n_out = nd->n_out,
                   .mem = mem,
                   .d = d };
    if (nd->op == OP_INPUT) {
        for (size_t i = 0; i < g->inputs.n; i++)
            if (g->inputs.at[i].i == nd->out.i) {
                TRY(check_input(g, nd->out, &inputs[i], d));
                values[nd->out.i].x = inputs[i].x;
                return AN_OK;
            }
        return diag_fail(d, AN_BUG, nd->at, "input %s is not among the graph's inputs", nd->name);
    }
    if (nd->op == OP_CONST) return load_const(&c, nd, &values[nd->out.i]);
    if (nd->op == OP_OPAQUE)
        return diag_fail(d, AN_INPUT, nd->at, "%s %s: an operation outside the table cannot be evaluated", nd->mil,
                         nd->name);
    tensor64 *in = TAKE(mem, tensor64, (size_t)nd->n_in);
    if (!in) return diag_nomem(d);
    for (int j = 0; j < nd->n_in; j++) in[j] = values[nd->in[j].i]; /* values[0] is all zero: left out */
    c.in = in;
    return run(&c);
}

an_status graph_eval(const graph *g, const tensor64 *in, tensor64 *out, arena *mem, diag *d)
{
    if (g->err.st) return diag_fail(d, g->err.st, g->err.at, "%s", g->err.msg);
    tensor64 *values = TAKE(mem, tensor64, g->values.n);
    bool *needed = find_needed(g, mem);
    if (!values || !needed) return diag_nomem(d);
    for (size_t i = 1; i < g->nodes.n; i++)
        if (needed[i]) TRY(eval_node(g, &g->nodes.at[i], values, in, mem, d));
    for (size_t i = 0; i < g->outputs.n; i++) out[i] = values[g->outputs.at[i].v.i];
    return AN_OK;
}

/* ---- attributes ---- */

an_status at_ints(const eval_ctx *c, attr_id id, int want, int64_t *out)
{
    if (attr_list(c->op, c->attrs, c->n_attr, id, want, out)) return AN_OK;
    const attr *a = at_get(c, id);
    return eval_fail(c, "%s has %d entries, expected %d", attr_name(id), a ? a->n : 0, want);
}

an_status at_axis(const eval_ctx *c, attr_id id, int rank, int *axis)
{
    if (axis_norm(at_int(c, id), rank, axis)) return AN_OK;
    return eval_fail(c, "%s %lld is outside rank %d", attr_name(id), (long long)at_int(c, id), rank);
}

an_status at_axes(const eval_ctx *c, attr_id id, int rank, bool *on)
{
    const attr *a = at_get(c, id);
    for (int i = 0; i < rank; i++) on[i] = !a;
    for (int i = 0; a && i < a->n; i++) {
        int ax;
        if (!axis_norm(a->u.is[i], rank, &ax))
            return eval_fail(c, "%s has %lld, outside rank %d", attr_name(id), (long long)a->u.is[i], rank);
        on[ax] = true;
    }
    return AN_OK;
}

an_status at_mode(const eval_ctx *c, attr_id id, const char *const *words, int n, int *pick)
{
    const char *s = attr_str(c->op, c->attrs, c->n_attr, id);
    for (int i = 0; i < n; i++)
        if (!strcmp(s, words[i])) return *pick = i, AN_OK;
    char known[160] = "";
    for (int i = 0; i < n; i++) {
        size_t at = strlen(known);
        snprintf(known + at, sizeof known - at, "%s%s", i ? ", " : "", words[i]);
    }
    return eval_fail(c, "unknown %s \"%s\", expected one of %s", attr_name(id), s, known);
}

an_status index_in(const eval_ctx *c, double v, int64_t extent, int64_t *out)
{
    if (!(v >= -(double)extent && v < (double)extent))
        return eval_fail(c, "index %.17g is outside an extent of %lld", v, (long long)extent);
    int64_t i = (int64_t)v;
    *out = i < 0 ? i + extent : i;
    return AN_OK;
}

/* ---- walking ---- */

int64_t t64_elems(const tensor64 *t) { return dims_prod(t->type.sh.d, 0, t->type.sh.rank); }

int64_t dims_prod(const int64_t *d, int from, int to)
{
    int64_t p = 1;
    for (int i = from; i < to; i++) p *= d[i];
    return p;
}

void bcast_strides(const shape *in, const shape *out, int64_t *stride)
{
    int64_t own[MAX_RANK];
    shape_strides(in, own);
    int lead = out->rank - in->rank;
    for (int i = 0; i < out->rank; i++) stride[i] = i < lead || in->d[i - lead] == 1 ? 0 : own[i - lead];
}

double *t64_scratch(const eval_ctx *c, int64_t n)
{
    if (n < 0 || (uint64_t)n > SIZE_MAX / sizeof(double)) return NULL;
    return TAKE(c->mem, double, (size_t)n);
}

void walk_init(walk *w, const int64_t *d, int rank)
{
    *w = (walk){ .rank = rank > 0 ? rank - 1 : 0, .len = rank > 0 ? d[rank - 1] : 1 };
    for (int i = 0; i < w->rank; i++) w->d[i] = d[i];
}

void walk_add(walk *w, const int64_t *stride, int64_t base)
{
    int k = w->n++;
    for (int i = 0; i < w->rank; i++) w->stride[k][i] = stride[i];
    w->step[k] = w->len == 1 ? 0 : stride[w->rank]; /* a scalar's walk has no stride to read */
    w->base[k] = base;
}

void walk_start(walk *w)
{
    w->more = w->len > 0;
    for (int i = 0; i < w->rank; i++) {
        w->i[i] = 0;
        if (w->d[i] == 0) w->more = false;
    }
    for (int k = 0; k < w->n; k++) w->off[k] = w->base[k];
}

void walk_row(walk *w)
{
    for (int i = w->rank - 1; i >= 0; i--) {
        for (int k = 0; k < w->n; k++) w->off[k] += w->stride[k][i];
        if (++w->i[i] < w->d[i]) return;
        for (int k = 0; k < w->n; k++) w->off[k] -= w->stride[k][i] * w->d[i];
        w->i[i] = 0;
    }
    w->more = false;
}

void copy_box(const int64_t *d, int rank, double *dst, int64_t base_d, const int64_t *ds, const double *src,
              int64_t base_s, const int64_t *ss)
{
    walk w;
    walk_init(&w, d, rank);
    walk_add(&w, ds, base_d);
    walk_add(&w, ss, base_s);
    for (walk_start(&w); w.more; walk_row(&w)) {
        double *to = dst + w.off[0];
        const double *from = src + w.off[1];
        for (int64_t j = 0; j < w.len; j++) to[j * w.step[0]] = from[j * w.step[1]];
    }
}

axis_view view_axis(const shape *s, int axis)
{
    return (axis_view){ dims_prod(s->d, 0, axis), s->d[axis], dims_prod(s->d, axis + 1, s->rank) };
}

/* Four rows of B at a time: one pass over a row of C for four products. Summation order is k ascending in steps of
 * four. */
void gemm_add(int64_t m, int64_t n, int64_t k, const double *a, int64_t a_row, int64_t a_col, const double *b,
              double *c)
{
    for (int64_t i = 0; i < m; i++) {
        const double *ai = a + i * a_row;
        double *ci = c + i * n;
        int64_t p = 0;
        for (; p + 4 <= k; p += 4) {
            double a0 = ai[p * a_col], a1 = ai[(p + 1) * a_col], a2 = ai[(p + 2) * a_col], a3 = ai[(p + 3) * a_col];
            const double *b0 = b + p * n, *b1 = b0 + n, *b2 = b1 + n, *b3 = b2 + n;
            for (int64_t j = 0; j < n; j++) ci[j] += a0 * b0[j] + a1 * b1[j] + a2 * b2[j] + a3 * b3[j];
        }
        for (; p < k; p++) {
            double ap = ai[p * a_col];
            const double *bp = b + p * n;
            for (int64_t j = 0; j < n; j++) ci[j] += ap * bp[j];
        }
    }
}
