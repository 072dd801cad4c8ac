/* preflight.c: slices with a width offset that the two oldest families would turn into infinities. In: a graph,
 * perhaps with a sample of its inputs.  Out: the slices whose operand can pass the limit, and the largest loss scale
 * that keeps it below.
 *
 * Floats of any type: what is typed fp32 is computed in fp16 there. Gradients are linear in the seed: a value that
 * depends on it through the backward pass grows in proportion. A sample is evaluated without rounding, the chip
 * rounds every operation: what reaches a slice there may be larger by some units. Roundings go either way and add up
 * like the root of their number, so an operand at the end of n of them is taken to be off by 4 sqrt(n) units: more
 * is as rare as four standard deviations. */
#include <math.h>

#include "grad/grad_int.h"

/* Does node n read its operand at a place of the last axis that is not 0? */
static bool width_offset(const graph *g, const node *n)
{
    shape x = graph_type(g, n->in[0])->sh;
    int last = x.rank - 1, axis;
    int64_t l[MAX_RANK], s[MAX_RANK], two[2];
    if (last < 0) return false;
    switch (n->op) {
    case OP_SLICE_BY_SIZE: return attr_list(n->op, n->attrs, n->n_attr, A_BEGIN, x.rank, l) && l[last] != 0;
    case OP_SLICE_BY_INDEX:
        if (!attr_list(n->op, n->attrs, n->n_attr, A_BEGIN, x.rank, l) ||
            !attr_list(n->op, n->attrs, n->n_attr, A_BEGIN_MASK, x.rank, s))
            return false;
        if (!s[last]) return l[last] != 0;
        return attr_list(n->op, n->attrs, n->n_attr, A_STRIDE, x.rank, s) && s[last] < 0 && x.d[last] > 1;
    case OP_CROP: return attr_list(n->op, n->attrs, n->n_attr, A_CROP_WIDTH, 2, two) && two[0] != 0;
    case OP_SPLIT:
        return axis_norm(attr_int(n->op, n->attrs, n->n_attr, A_AXIS), x.rank, &axis) && axis == last && n->n_out > 1;
    default: return false;
    }
}

static double largest_of(const tensor64 *t)
{
    double m = 0;
    for (int64_t i = 0, n = count_of(&t->type.sh); i < n; i++) {
        double a = fabs(t->x[i]);
        if (isnan(a)) return INFINITY;
        m = MAX(m, a);
    }
    return m;
}

/* Values that grow with the seed. */
static bool *seeded(const graph *g, const grad_info *info, arena *mem)
{
    bool *on = TAKE(mem, bool, g->values.n);
    if (!on || !info) return on;
    for (int k = 0; k < info->n_seeds; k++) on[info->seed[k].i] = true;
    for (size_t i = 1; i < g->nodes.n; i++) {
        const node *n = &g->nodes.at[i];
        bool any = false;
        for (int k = 0; k < n->n_in && !any; k++) any = on[n->in[k].i];
        for (int k = 0; k < n->n_out && any; k++) on[n->out.i + (uint32_t)k] = true;
    }
    return on;
}

/* Every input that a suspect's operand depends on has its numbers. */
static an_status check_sample(const graph *g, const tensor64 *sample, const port *suspect, size_t n, arena *mem,
                              diag *d)
{
    bool *on = TAKE(mem, bool, g->values.n);
    if (!on) return diag_nomem(d);
    for (size_t i = 0; i < n; i++) on[suspect[i].v.i] = true;
    for (size_t i = g->nodes.n; i-- > 1;) {
        const node *nd = &g->nodes.at[i];
        bool any = false;
        for (int k = 0; k < nd->n_out && !any; k++) any = on[nd->out.i + (uint32_t)k];
        for (int k = 0; k < nd->n_in && any; k++) on[nd->in[k].i] = true;
    }
    for (size_t i = 0; i < g->inputs.n; i++)
        if (on[g->inputs.at[i].i] && !sample[i].x)
            return diag_fail(d, AN_INPUT, NOWHERE, "there is no sample of the input %s",
                             graph_value(g, g->inputs.at[i])->name);
    return AN_OK;
}

/* The magnitude of each suspect's operand in one run: the suspects' operands are the outputs of a view of the graph. */
static an_status measure(const graph *g, const tensor64 *sample, grad_hazard *h, size_t n, arena *mem, diag *d)
{
    graph view = *g;
    port *ports = TAKE(mem, port, n);
    tensor64 *out = TAKE(mem, tensor64, n);
    if (!ports || !out) return diag_nomem(d);
    for (size_t i = 0; i < n; i++) ports[i] = (port){ h[i].name, g->nodes.at[h[i].node].in[0] };
    view.outputs.at = ports, view.outputs.n = view.outputs.cap = n;
    TRY(check_sample(g, sample, ports, n, mem, d));
    TRY(graph_eval(&view, sample, out, mem, d));
    for (size_t i = 0; i < n; i++) h[i].largest = largest_of(&out[i]);
    return AN_OK;
}

/* Of a result, as a part of it: half a unit of fp16; sums round their products as well, and functions are straight
 * between the knots of a table. */
static double rounding_of(const graph *g, const node *n)
{
    static const struct {
        const char *cost;
        double off;
    } kinds[] = { { "move", 0 },         { "gather", 0 },     { "gemm", 0x1p-10 },   { "conv", 0x1p-10 },
                  { "sdpa", 0x1p-8 },    { "pool", 0x1p-10 }, { "reduce", 0x1p-10 }, { "table", 0x1p-8 },
                  { "softmax", 0x1p-8 }, { "norm", 0x1p-8 } };
    if (n->op == OP_INPUT && graph_type(g, n->out)->dt == DT_F16) return 0;
    for (size_t i = 0; i < COUNT(kinds); i++)
        if (!strcmp(op_get(n->op)->cost_rule, kinds[i].cost)) return kinds[i].off;
    return 0x1p-11;
}

/* Per value how much larger the chip's may be, as a part of it. */
static double *slack_of(const graph *g, arena *mem)
{
    double *slack = TAKE(mem, double, g->values.n);
    if (!slack) return NULL;
    for (size_t i = 1; i < g->nodes.n; i++) { /* squares first */
        const node *n = &g->nodes.at[i];
        double most = 0, own = rounding_of(g, n);
        for (int k = 0; k < n->n_in; k++) most = MAX(most, slack[n->in[k].i]);
        for (int k = 0; k < n->n_out; k++) slack[n->out.i + (uint32_t)k] = most + own * own;
    }
    for (size_t i = 0; i < g->values.n; i++) slack[i] = MIN(4 * sqrt(slack[i]), 0.5);
    return slack;
}

static uint32_t made_for(const grad_info *info, size_t i)
{
    if (!info || i < info->first_node || i - info->first_node >= info->n_of) return 0;
    return info->of[i - info->first_node];
}

an_status grad_preflight(const graph *g, const grad_info *info, double scale_now, const tensor64 *sample, arena *mem,
                         grad_hazard **out, size_t *n, diag *d)
{
    *n = 0;
    *out = TAKE(mem, grad_hazard, g->nodes.n);
    bool *grows = seeded(g, info, mem);
    vrange *range = TAKE(mem, vrange, g->values.n);
    const double *slack = slack_of(g, mem);
    if (!*out || !grows || !range || !slack) return diag_nomem(d);
    size_t suspects = 0;
    graph_ranges(g, range);
    for (size_t i = 1; i < g->nodes.n; i++) {
        const node *nd = &g->nodes.at[i];
        if (!nd->n_in || !nd->in[0].i || !dtype_is_float(graph_type(g, nd->in[0])->dt) ||
            graph_const_of(g, nd->in[0]) || !width_offset(g, nd))
            continue;
        vrange r = range[nd->in[0].i];
        if (fmax(fabs(r.lo), fabs(r.hi)) <= GRAD_WIDTH_LIMIT) continue; /* whatever comes before */
        (*out)[suspects++] = (grad_hazard){ .node = (uint32_t)i, .name = nd->name, .mil = nd->mil, .at = nd->at,
                                            .of = made_for(info, i), .scales = grows[nd->in[0].i],
                                            .largest = fmax(fabs(r.lo), fabs(r.hi)) };
    }
    if (sample && suspects) TRY(measure(g, sample, *out, suspects, mem, d));
    for (size_t i = 0; i < suspects; i++) {
        grad_hazard h = (*out)[i];
        double most = GRAD_WIDTH_LIMIT * (1 - slack[g->nodes.at[h.node].in[0].i]);
        if (h.largest <= most) continue;
        if (h.scales) h.safe_scale = isfinite(h.largest) ? fabs(scale_now) * most / h.largest : 0;
        else h.safe_scale = INFINITY;
        (*out)[(*n)++] = h;
    }
    return AN_OK;
}
