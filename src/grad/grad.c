/* grad.c: which nodes lie between the wrt and the loss, and the walk back over them. In: a graph, a loss, values to
 * differentiate by.  Out: gradients, appended; or the reason why there are none, found first.
 *
 * Two sweeps mark the path: forwards, what depends on a wrt through float values; backwards, what the loss depends
 * on. The nodes in both are visited last to first; a value's gradient is complete when its maker is reached, since
 * every use of it stands later. */
#include "grad/grad_int.h"

static vjp_fn *const rules[OP_COUNT] = {
#define OP(id, mil, in, out, attrs, shape, dtype, vjp, cost, kernel) [OP_##id] = vjp_##vjp,
#include "op/ops.def"
#undef OP
};

void vjp_none(adj *c) { graph_fail(c->g, AN_BUG, "%s %s has no gradient and was asked for one", c->n.mil, c->n.name); }

bool grad_exists(op_id op) { return rules[op] != vjp_none; }

typedef struct {
    graph *g;
    val loss;
    size_t n_nodes, n_values; /* of the forward graph */
    bool *active;             /* value: depends on a wrt through float values */
    bool *live;               /* value: the loss depends on it through float values */
    held_consts held;
    val *again;               /* value: the same computed a second time; NULL: nothing is */
    uint32_t *made;           /* node: the first one its rule made; 0: it was not visited */
    uint32_t first, last;     /* nodes strictly behind the first kept value, up to the last one's: computed again */
    arena tmp;
} path;

/* Does the value of operand k, not only its shape, reach a result? */
static bool reads_value(const node *n, int k)
{
    if (!n->in[k].i || n->op == OP_FILL_LIKE || (n->op == OP_WRITE_STATE && k == 0)) return false;
    return !(n->op == OP_RESHAPE_LIKE && k > 0);
}

/* A float that does. */
static bool passes(const graph *g, const node *n, int k)
{
    return reads_value(n, k) && dtype_is_float(graph_type(g, n->in[k])->dt);
}

/* Operand k says which elements, and is none of them. */
static bool picks(const node *n, int k)
{
    switch (n->op) {
    case OP_GATHER:
    case OP_GATHER_ALONG_AXIS:
    case OP_GATHER_ND:
    case OP_SCATTER: return k == 1;
    case OP_CROP_RESIZE: return k == 2;
    case OP_CX_LUT: return k == 0;
    default: return false;
    }
}

static bool float_result(const graph *g, const node *n, int k)
{
    return dtype_is_float(graph_type(g, graph_out(n->out, k))->dt);
}

static void mark_active(path *p)
{
    for (size_t i = 1; i < p->n_nodes; i++) {
        const node *n = &p->g->nodes.at[i];
        bool on = false;
        for (int k = 0; k < n->n_in && !on; k++) on = passes(p->g, n, k) && p->active[n->in[k].i];
        for (int k = 0; k < n->n_out && on; k++)
            if (float_result(p->g, n, k)) p->active[n->out.i + (uint32_t)k] = true;
    }
}

static void mark_live(path *p)
{
    p->live[p->loss.i] = true;
    for (size_t i = p->n_nodes; i-- > 1;) {
        const node *n = &p->g->nodes.at[i];
        bool on = false;
        for (int k = 0; k < n->n_out && !on; k++) on = p->live[n->out.i + (uint32_t)k];
        for (int k = 0; k < n->n_in && on; k++)
            if (passes(p->g, n, k)) p->live[n->in[k].i] = true;
    }
}

/* A node between the two: a result the loss needs, an operand that depends on a wrt. */
static bool on_path(const path *p, const node *n)
{
    bool in = false, out = false;
    for (int k = 0; k < n->n_in && !in; k++) in = passes(p->g, n, k) && p->active[n->in[k].i];
    for (int k = 0; k < n->n_out && !out; k++)
        out = p->live[n->out.i + (uint32_t)k] && p->active[n->out.i + (uint32_t)k];
    return in && out;
}

/* ---- what is wrong, before anything is built ---- */

static an_status check_arguments(const graph *g, val loss, const val *wrt, int n, const grad_options *o, diag *d)
{
    if (g->err.st) return diag_fail(d, g->err.st, g->err.at, "%s", g->err.msg);
    if (!loss.i || loss.i >= g->values.n)
        return diag_fail(d, AN_INPUT, NOWHERE, "gradient: the loss is not a value of %s", g->title);
    const value *l = graph_value(g, loss);
    loc at = graph_maker(g, loss)->at;
    int64_t count;
    if (!dtype_is_float(l->type.dt))
        return diag_fail(d, AN_INPUT, at, "gradient: the loss %s is %s, wanted a float type", l->name,
                         dtype_name(l->type.dt));
    if (!shape_elems(&l->type.sh, &count) || count != 1) {
        strbuf b = { 0 };
        sb_shape(&b, &l->type.sh);
        diag_fail(d, AN_INPUT, at, "gradient: the loss %s is %s, wanted one element: sum it or take its mean", l->name,
                  b.at ? b.at : "?");
        sb_free(&b);
        return d->st;
    }
    for (int i = 0; i < n; i++) {
        if (!wrt[i].i || wrt[i].i >= g->values.n)
            return diag_fail(d, AN_INPUT, NOWHERE, "gradient: entry %d to differentiate by is not a value of %s", i,
                             g->title);
        const value *v = graph_value(g, wrt[i]);
        if (!dtype_is_float(v->type.dt))
            return diag_fail(d, AN_INPUT, graph_maker(g, wrt[i])->at, "gradient: %s is %s, wanted a float type",
                             v->name, dtype_name(v->type.dt));
    }
    if (o->loss_scale < 0 || o->loss_scale - o->loss_scale != 0)
        return diag_fail(d, AN_USAGE, NOWHERE, "gradient: the loss scale is %g, wanted a finite number above 0",
                         o->loss_scale);
    if (!o->seed.i) return AN_OK;
    if (o->seed.i >= g->values.n)
        return diag_fail(d, AN_INPUT, NOWHERE, "gradient: the seed is not a value of %s", g->title);
    const value *s = graph_value(g, o->seed);
    if (s->type.dt != l->type.dt || !shape_elems(&s->type.sh, &count) || count != 1)
        return diag_fail(d, AN_INPUT, graph_maker(g, o->seed)->at,
                         "gradient: the seed %s must be one element of type %s like the loss %s", s->name,
                         dtype_name(l->type.dt), l->name);
    return AN_OK;
}

/* The first node that v's float values enter and none leave, among those the loss depends on in any way; NULL: no
 * path at all. */
static const node *where_cut(path *p, val v)
{
    bool *from = TAKE(&p->tmp, bool, p->n_values), *by_any = TAKE(&p->tmp, bool, p->n_values);
    if (!from || !by_any) return NULL;
    by_any[p->loss.i] = true;
    for (size_t i = p->n_nodes; i-- > 1;) {
        const node *n = &p->g->nodes.at[i];
        bool on = false;
        for (int k = 0; k < n->n_out && !on; k++) on = by_any[n->out.i + (uint32_t)k];
        for (int k = 0; k < n->n_in && on; k++) by_any[n->in[k].i] = true;
    }
    from[v.i] = true;
    for (size_t i = 1; i < p->n_nodes; i++) {
        const node *n = &p->g->nodes.at[i];
        bool in = false, passed = false, used = false, carried = false;
        for (int k = 0; k < n->n_in; k++) {
            in = in || (n->in[k].i && from[n->in[k].i]);
            passed = passed || (passes(p->g, n, k) && from[n->in[k].i]);
        }
        for (int k = 0; k < n->n_out; k++) {
            used = used || by_any[n->out.i + (uint32_t)k];
            carried = carried || (by_any[n->out.i + (uint32_t)k] && float_result(p->g, n, k));
        }
        if (!in || !used) continue;
        if (!passed || !carried) return n;
        for (int k = 0; k < n->n_out; k++)
            if (float_result(p->g, n, k)) from[n->out.i + (uint32_t)k] = true;
    }
    return NULL;
}

static an_status check_reach(path *p, const val *wrt, int n, const grad_options *o, diag *d)
{
    for (int i = 0; i < n; i++) {
        bool reached = p->live[wrt[i].i];
        if (o->info && o->info->reached) o->info->reached[i] = reached;
        if (reached) continue;
        const char *name = graph_value(p->g, wrt[i])->name, *loss = graph_value(p->g, p->loss)->name;
        const node *cut = where_cut(p, wrt[i]);
        if (cut)
            return diag_fail(d, AN_UNSUPPORTED, cut->at,
                             "%s %s passes no gradient: %s reaches the loss %s only through it", cut->mil, cut->name,
                             name, loss);
        if (!o->zeros_when_unreached)
            return diag_fail(d, AN_INPUT, graph_maker(p->g, wrt[i])->at, "gradient: %s does not reach the loss %s",
                             name, loss);
    }
    return AN_OK;
}

static an_status check_rules(const path *p, diag *d)
{
    for (size_t i = p->n_nodes; i-- > 1;) {
        const node *n = &p->g->nodes.at[i];
        if (!on_path(p, n)) continue;
        if (!grad_exists(n->op))
            return diag_fail(d, AN_UNSUPPORTED, n->at,
                             "%s %s has no gradient, and the loss %s is differentiated through it", n->mil, n->name,
                             graph_value(p->g, p->loss)->name);
        for (int k = 0; k < n->n_in + n->n_out; k++) {
            val v = k < n->n_in ? n->in[k] : graph_out(n->out, k - n->n_in);
            int64_t count;
            if (v.i && !shape_elems(&graph_type(p->g, v)->sh, &count))
                return diag_fail(d, AN_UNSUPPORTED, n->at,
                                 "%s %s: the shape of %s is not known, and its gradient needs it", n->mil, n->name,
                                 graph_value(p->g, v)->name);
        }
    }
    return AN_OK;
}

/* The node, of the loss's own path, that numbers reach which depend on a wrt and have lost their slope on the way
 * (cast to an integer, positions): *lost is where. NULL: none. Numbers that only decide, as a truth value or by
 * picking elements, have none to lose. from: per value the node where its slope was lost, all NULL at first. */
static const node *slope_lost(const path *p, const node **from, const node **lost)
{
    for (size_t i = 1; i < p->n_nodes; i++) {
        const node *n = &p->g->nodes.at[i], *before = NULL, *here = NULL;
        for (int k = 0; k < n->n_in; k++) {
            if (!reads_value(n, k) || picks(n, k)) continue;
            if (from[n->in[k].i]) before = from[n->in[k].i];
            if (p->active[n->in[k].i]) here = n;
        }
        for (int k = 0; k < n->n_out; k++) {
            uint32_t out = n->out.i + (uint32_t)k;
            dtype t = graph_type(p->g, (val){ out })->dt;
            if (before && p->live[out]) return *lost = before, n;
            if (before || !dtype_is_float(t)) from[out] = t == DT_BOOL ? NULL : before ? before : here;
        }
    }
    return NULL;
}

static an_status check_slopes(path *p, diag *d)
{
    const node **from = TAKE(&p->tmp, const node *, p->n_values), *lost = NULL;
    if (!from) return diag_nomem(d);
    const node *back = slope_lost(p, from, &lost);
    if (!back) return AN_OK;
    return diag_fail(d, AN_UNSUPPORTED, lost->at,
                     "%s %s has no gradient, and the loss %s depends on its numbers, which %s %s reads", lost->mil,
                     lost->name, graph_value(p->g, p->loss)->name, back->mil, back->name);
}

/* ---- values computed a second time ---- */

static an_status plan_again(path *p, const grad_options *o, diag *d)
{
    uint32_t before = 0;
    if (o->n_keep < 2) return AN_OK; /* nothing lies between */
    for (int i = 0; i < o->n_keep; i++) {
        if (!o->keep[i].i || o->keep[i].i >= p->n_values)
            return diag_fail(d, AN_INPUT, NOWHERE, "gradient: entry %d of the values to keep is not a value of %s", i,
                             p->g->title);
        uint32_t at = graph_value(p->g, o->keep[i])->node;
        if (i && at <= before)
            return diag_fail(d, AN_INPUT, NOWHERE,
                             "gradient: the values to keep are not in the order in which they are made: %s",
                             graph_value(p->g, o->keep[i])->name);
        before = at;
    }
    if (!(p->again = TAKE(&p->tmp, val, p->n_values))) return diag_nomem(d);
    for (int i = 0; i < o->n_keep; i++) p->again[o->keep[i].i] = o->keep[i];
    p->first = graph_value(p->g, o->keep[0])->node + 1, p->last = before;
    return AN_OK;
}

/* Layers are chains of a few dozen nodes between two kept values: recursion ends there. */
static val once_more(path *p, val v)
{
    graph *g = p->g;
    if (!p->again || !v.i || v.i >= p->n_values || g->err.st) return v;
    uint32_t i = graph_value(g, v)->node;
    node n = g->nodes.at[i];
    if (i < p->first || i > p->last || n.op == OP_CONST || n.op == OP_INPUT || op_has_effect(n.op)) return v;
    if (p->again[v.i].i) return p->again[v.i];
    val *in = TAKE(&g->mem, val, (size_t)n.n_in + 1);
    if (!in) {
        graph_fail(g, AN_NOMEM, "out of memory");
        return NO_VAL;
    }
    for (int k = 0; k < n.n_in; k++) in[k] = once_more(p, n.in[k]);
    val out = graph_op(g, n.op, in, n.n_in, n.attrs, n.n_attr);
    if (!out.i) return NO_VAL;
    g->nodes.at[graph_value(g, out)->node].flags = n.flags | INST_AGAIN;
    for (int k = 0; k < n.n_out; k++)
        if (!p->again[n.out.i + (uint32_t)k].i) p->again[n.out.i + (uint32_t)k] = graph_out(out, k);
    return p->again[v.i];
}

/* The node as the rule shall see it: operands and results that are at hand now. */
static void renew(path *p, node *n)
{
    if (!p->again) return;
    val *in = TAKE(&p->tmp, val, (size_t)n->n_in + 1);
    if (!in) {
        graph_fail(p->g, AN_NOMEM, "out of memory");
        return;
    }
    for (int k = 0; k < n->n_in; k++) in[k] = once_more(p, n->in[k]);
    n->in = in;
    n->out = once_more(p, n->out);
}

/* ---- the walk back ---- */

static void visit(path *p, uint32_t i, val *grad, const grad_options *o)
{
    adj c = { .g = p->g, .n = p->g->nodes.at[i], .held = &p->held, .tmp = &p->tmp, .o = o };
    bool any = false;
    for (int k = 0; k < c.n.n_out; k++) any = any || grad[c.n.out.i + (uint32_t)k].i;
    if (!any) return; /* every use of it gave nothing: a slice that was never read */
    arena_mark m = arena_save(&p->tmp);
    bool *need = TAKE(&p->tmp, bool, (size_t)c.n.n_in), *joined = TAKE(&p->tmp, bool, (size_t)c.n.n_in);
    val *dx = TAKE(&p->tmp, val, (size_t)c.n.n_in), *dy = TAKE(&p->tmp, val, (size_t)c.n.n_out),
        *so_far = TAKE(&p->tmp, val, (size_t)c.n.n_in);
    if (!need || !joined || !dx || !dy || !so_far) {
        graph_fail(p->g, AN_NOMEM, "out of memory");
        return;
    }
    for (int k = 0; k < c.n.n_in; k++)
        need[k] = passes(p->g, &c.n, k) && p->active[c.n.in[k].i], so_far[k] = grad[c.n.in[k].i];
    for (int k = 0; k < c.n.n_out; k++) dy[k] = grad[c.n.out.i + (uint32_t)k];
    c.y = graph_type(p->g, c.n.out)->sh, c.dt = graph_type(p->g, c.n.out)->dt;
    c.dy = dy, c.need = need, c.dx = dx, c.so_far = so_far, c.joined = joined;
    p->g->here = c.n.at;
    const val *in = c.n.in;
    p->made[i] = (uint32_t)p->g->nodes.n;
    renew(p, &c.n);
    if (!p->g->err.st) rules[c.n.op](&c);
    for (int k = 0; k < c.n.n_in && !p->g->err.st; k++) {
        if (!need[k]) continue;
        if (!dx[k].i) {
            graph_fail(p->g, AN_BUG, "the gradient rule of %s left operand %d of %s without one", c.n.mil, k, c.n.name);
            return;
        }
        val *sum = &grad[in[k].i];
        *sum = sum->i && !joined[k] ? G(p->g, ADD, *sum, dx[k]) : dx[k];
    }
    arena_back(&p->tmp, m);
}

/* A constant that something reads must be a number of its type. */
static void check_held(path *p, uint32_t first)
{
    graph *g = p->g;
    for (int k = 0; k < p->held.n && !g->err.st; k++) {
        val v = p->held.at[k].v;
        double x = p->held.at[k].x, as = dtype_round(graph_type(g, v)->dt, x);
        if (as == x || (as - as == 0 && as != 0)) continue;
        for (size_t i = first; i < g->nodes.n && !g->err.st; i++)
            for (int j = 0; j < g->nodes.at[i].n_in; j++)
                if (g->nodes.at[i].in[j].i == v.i) {
                    graph_fail(
                        g, AN_INPUT,
                        "gradient: the loss scale is %g where %s reads it, which is %g in %s: take another, or the mean where the loss takes a sum",
                        x, g->nodes.at[i].name, as, dtype_name(graph_type(g, v)->dt));
                    break;
                }
    }
}

/* Whose rule made which node: the walk goes from the last to the first, so each one's nodes end where those of the
 * next begin. */
static void list_makers(path *p, grad_info *info)
{
    graph *g = p->g;
    info->n_of = (uint32_t)g->nodes.n - info->first_node;
    uint32_t *of = TAKE(&g->mem, uint32_t, (size_t)info->n_of + 1), end = (uint32_t)g->nodes.n;
    if (!of) {
        graph_fail(g, AN_NOMEM, "out of memory");
        return;
    }
    for (uint32_t i = 1; i < p->n_nodes; i++) {
        if (!p->made[i]) continue;
        for (uint32_t k = p->made[i]; k < end; k++) of[k - info->first_node] = i;
        end = p->made[i];
    }
    info->of = of;
}

static void walk_back(path *p, const val *wrt, int n, val *out, const grad_options *o)
{
    graph *g = p->g;
    loc here = g->here;
    val *grad = TAKE(&p->tmp, val, p->n_values);
    p->made = TAKE(&p->tmp, uint32_t, p->n_nodes);
    if (!grad || !p->made) {
        graph_fail(g, AN_NOMEM, "out of memory");
        return;
    }
    grad_info info = { .first_node = (uint32_t)g->nodes.n, .reached = o->info ? o->info->reached : NULL };
    g->here = graph_maker(g, p->loss)->at;
    ttype lt = *graph_type(g, p->loss);
    adj c = { .g = g, .dt = lt.dt, .held = &p->held, .tmp = &p->tmp, .o = o };
    val seed = o->seed.i ? o->seed : hold(&c, &lt.sh, o->loss_scale == 0 ? 1 : o->loss_scale);
    grad[p->loss.i] = reshaped(&c, seed, &lt.sh);
    for (size_t i = p->n_nodes; i-- > 1 && !g->err.st;)
        if (on_path(p, &g->nodes.at[i])) visit(p, (uint32_t)i, grad, o);
    g->here = here;
    if (o->info && !g->err.st) list_makers(p, &info);
    for (int i = 0; i < n && !g->err.st; i++) {
        ttype t = *graph_type(g, wrt[i]);
        val v = grad[wrt[i].i];
        c.dt = t.dt;
        out[i] = v.i ? full(&c, v, &t.sh) : graph_fill_const(g, NULL, t, 0);
    }
    check_held(p, info.first_node);
    info.seed[info.n_seeds++] = seed;
    for (int k = 0; k < p->held.n; k++)
        if (p->held.at[k].v.i != seed.i) info.seed[info.n_seeds++] = p->held.at[k].v;
    if (o->info) *o->info = info;
}

an_status grad_build(graph *g, val loss, const val *wrt, int n, val *out, const grad_options *o, diag *d)
{
    static const grad_options plain = { 0 };
    if (!o) o = &plain;
    TRY(check_arguments(g, loss, wrt, n, o, d));
    path p = { .g = g, .loss = loss, .n_nodes = g->nodes.n, .n_values = g->values.n };
    p.active = TAKE(&p.tmp, bool, p.n_values);
    p.live = TAKE(&p.tmp, bool, p.n_values);
    an_status st = p.active && p.live ? AN_OK : diag_nomem(d);
    if (!st) {
        for (int i = 0; i < n; i++) p.active[wrt[i].i] = true;
        mark_active(&p);
        mark_live(&p);
        st = check_reach(&p, wrt, n, o, d);
    }
    if (!st) st = check_rules(&p, d);
    if (!st) st = check_slopes(&p, d);
    if (!st) st = plan_again(&p, o, d);
    if (!st) {
        walk_back(&p, wrt, n, out, o);
        if (g->err.st) st = diag_fail(d, g->err.st, g->err.at, "%s", g->err.msg);
    }
    arena_free(&p.tmp);
    return st;
}
