/* legal_split.c: tensors with an axis longer than the target takes live as pieces along that axis.
 * In: a graph in which a rule naming this rewrite fires.  Out: one in which no tensor has a too long axis.
 *
 * A value with a too long axis becomes a list of pieces; an operation that makes one runs once per piece, on pieces
 * of its operands (split_axis.c says which axis of an operand an axis of the result comes from). A sum, mean,
 * maximum or minimum over the axis, a softmax over it, and a product contracting it run per piece and are joined;
 * each partial result passes through the result's type. Inputs and outputs that are too long become several ports,
 * which changes the interface and needs pass_options.ports.
 *
 * What cannot be split: two too long axes at once, windows and norms across the axis, gather, sort, and operations
 * outside the table. Those fail with AN_UNSUPPORTED naming the operation, the extent and the limit. */
#include "pass/split_int.h"

/* ---- what is too long ---- */

/* The rule is asked about a plain operation on a tensor that is 1 everywhere but along one axis. */
static bool axis_fits(const splitter *s, dtype dt, int rank, int axis, int64_t extent)
{
    ttype t = { .dt = dt, .sh = { .rank = rank } };
    for (int k = 0; k < rank; k++) t.sh.d[k] = k == axis ? extent : 1;
    operand in = { .type = t, .present = true, .range = { -1, 1 }, .from = OP_ADD, .n_uses = 1, .value = 1 };
    bool is_out = false;
    op_inst op = { .op = OP_RELU, .mil = op_get(OP_RELU)->mil, .name = "", .n_in = 1, .n_out = 1, .in = &in, .out = &t,
                   .out_is_output = &is_out };
    return !any_rule_fires(s->rule, s->n_rules, s->chip, &op);
}

enum { PROBE_MAX = 1 << 24 };

static int64_t axis_limit(splitter *s, int rank, int axis)
{
    int64_t *known = &s->limit[rank][axis];
    if (*known) return *known;
    int64_t ok = 0, bad = PROBE_MAX;
    if (axis_fits(s, DT_F16, rank, axis, PROBE_MAX)) return *known = INT64_MAX;
    while (bad - ok > 1) {
        int64_t mid = ok + (bad - ok) / 2;
        if (axis_fits(s, DT_F16, rank, axis, mid)) ok = mid;
        else bad = mid;
    }
    return *known = MAX(ok, 1);
}

/* The too long axis of a shape; -1: none, -2: more than one. */
static int split_axis_of(splitter *s, const shape *sh)
{
    int found = -1;
    for (int k = 0; k < sh->rank; k++)
        if (sh->d[k] > s->least && sh->d[k] > axis_limit(s, sh->rank, k)) found = found == -1 ? k : -2;
    return found;
}

/* One size of piece for each extent, whatever the axis it is met on, so that pieces of different tensors fit
 * together. */
int64_t split_piece(const splitter *s, int64_t extent)
{
    int64_t n = (extent + s->least - 1) / s->least, size = (extent + n - 1) / n;
    return ROUND_UP(size, 32) <= s->least ? ROUND_UP(size, 32) : size;
}

void split_fail(splitter *s, const node *n, int64_t extent, const char *why)
{
    graph_fail(s->g, AN_UNSUPPORTED, "%s (%s): an axis of %lld is longer than the %lld %s takes, and %s", n->name,
               n->mil, (long long)extent, (long long)s->least, chip_name(s->chip), why);
}

/* ---- pieces ---- */

static val cut(graph *g, val v, int axis, int64_t at, int64_t extent)
{
    if (!v.i || graph_type(g, v)->sh.d[axis] == extent) return v;
    if (graph_const_of(g, v)) return const_sliced(g, v, axis, at, extent);
    const shape *sh = &graph_type(g, v)->sh;
    int64_t begin[MAX_RANK] = { 0 }, size[MAX_RANK];
    for (int k = 0; k < sh->rank; k++) size[k] = sh->d[k];
    begin[axis] = at;
    size[axis] = extent;
    return GA(g, SLICE_BY_SIZE, VALS(v), AT_LIST(BEGIN, begin, sh->rank), AT_LIST(SIZE, size, sh->rank));
}

val split_join(splitter *s, const char *name, const val *v, int n, int axis)
{
    if (n == 1) return v[0];
    const attr at = AT_I(AXIS, axis);
    return graph_op_named(s->g, name, OP_CONCAT, v, n, &at, 1);
}

val split_range(splitter *s, val old, int axis, int64_t at, int64_t extent)
{
    const pieces *p = &s->parts[old.i];
    if (!p->n) return cut(s->g, rw_in(&s->rw, old), axis, at, extent);
    if (p->axis != axis) {
        split_fail(s, graph_maker(&s->was, old), graph_type(&s->was, old)->sh.d[p->axis],
                   "it is needed along another axis");
        return NO_VAL;
    }
    val few[8], *found = p->n <= 8 ? few : TAKE(s->mem, val, (size_t)p->n);
    if (!found) return graph_fail(s->g, AN_NOMEM, "out of memory"), NO_VAL;
    int n = 0;
    for (int k = 0; k < p->n; k++) {
        int64_t lo = p->size * k, hi = MIN(lo + p->size, graph_type(&s->was, old)->sh.d[axis]);
        int64_t from = MAX(lo, at), to = MIN(hi, at + extent);
        if (from < to) found[n++] = cut(s->g, p->at[k], axis, from - lo, to - from);
    }
    return split_join(s, NULL, found, n, axis);
}

val split_whole(splitter *s, const node *n, val old)
{
    if (!old.i) return NO_VAL;
    if (!s->parts[old.i].n) return rw_in(&s->rw, old);
    split_fail(s, n, graph_type(&s->was, old)->sh.d[s->parts[old.i].axis], "the operation needs it in one piece");
    return NO_VAL;
}

static bool start_pieces(splitter *s, val old, int axis)
{
    pieces *p = &s->parts[old.i];
    int64_t extent = graph_type(&s->was, old)->sh.d[axis];
    p->axis = axis;
    p->size = split_piece(s, extent);
    p->n = (int)((extent + p->size - 1) / p->size);
    p->at = TAKE(s->mem, val, (size_t)p->n);
    if (!p->at) graph_fail(s->g, AN_NOMEM, "out of memory");
    return p->at != NULL;
}

static int64_t piece_extent(const splitter *s, val old, int k)
{
    const pieces *p = &s->parts[old.i];
    return MIN(p->size, graph_type(&s->was, old)->sh.d[p->axis] - p->size * k);
}

/* ---- one node at a time ---- */

static void split_input(splitter *s, const node *n, int axis)
{
    ttype t = *out_type(&s->was, n);
    if (!s->ports) {
        split_fail(s, n, t.sh.d[axis], "splitting this input into several ports was not allowed");
        return;
    }
    if (!start_pieces(s, n->out, axis)) return;
    pieces *p = &s->parts[n->out.i];
    for (int k = 0; k < p->n; k++) {
        t.sh.d[axis] = piece_extent(s, n->out, k);
        char *name = arena_printf(&s->g->mem, "%s_p%02d", n->name, k);
        if (!name) {
            graph_fail(s->g, AN_NOMEM, "out of memory");
            return;
        }
        p->at[k] = graph_input(s->g, name, t);
    }
}

/* Run n once per piece of its result along `axis`; join the results when the whole is short enough (keep false). */
static void per_piece(splitter *s, const node *n, int axis, bool keep)
{
    if (!start_pieces(s, n->out, axis)) return;
    pieces *p = &s->parts[n->out.i];
    val *in = TAKE(s->mem, val, (size_t)n->n_in);
    if (!in) {
        graph_fail(s->g, AN_NOMEM, "out of memory");
        return;
    }
    for (int k = 0; k < p->n && !s->g->err.st; k++)
        p->at[k] = split_one(s, n, axis, p->size * k, piece_extent(s, n->out, k), in);
    if (keep || s->g->err.st) return;
    val v = split_join(s, n->name, p->at, p->n, axis);
    p->n = 0;
    s->rw.map[n->out.i] = v;
}

static bool reads_pieces(const splitter *s, const node *n)
{
    for (int k = 0; k < n->n_in; k++)
        if (n->in[k].i && s->parts[n->in[k].i].n) return true;
    return false;
}

static void split_node(splitter *s, uint32_t i)
{
    const node *n = &s->was.nodes.at[i];
    int axis = -1;
    for (int k = 0; k < n->n_out; k++) {
        int a = split_axis_of(s, &graph_type(&s->was, graph_out(n->out, k))->sh);
        if (a != -1) axis = a;
    }
    /* A constant stays whole: a weight's long axis is nobody's surface, and a part of it is cut where it is needed. */
    if (n->op == OP_CONST || (axis == -1 && !reads_pieces(s, n))) {
        graph_rewrite_copy(s->g, &s->rw, i);
        return;
    }
    s->g->here = n->at;
    int64_t extent = 0;
    const shape *sh = &out_type(&s->was, n)->sh;
    for (int k = 0; k < sh->rank; k++) extent = MAX(extent, sh->d[k]);
    if (axis == -2) split_fail(s, n, extent, "it has another one");
    else if (n->n_out != 1 || n->op == OP_OPAQUE) split_fail(s, n, extent, "this operation cannot be split");
    else if (n->op == OP_INPUT) split_input(s, n, axis);
    else if (n->op == OP_CONCAT && split_concat(s, n, axis)) return;
    else if (split_across(s, n, axis)) return; /* the long axis is worked along: joined there */
    else if (axis >= 0) per_piece(s, n, axis, true);
    else if ((axis = split_result_axis(s, n)) >= 0) per_piece(s, n, axis, false);
    else if (!s->g->err.st) split_fail(s, n, s->least + 1, "this operation cannot be split");
}

/* ---- ports ---- */

static port_slot piece_slot(const splitter *s, const port_slot *was, val old, int k, const char *name)
{
    port_slot p = *was;
    const pieces *q = &s->parts[old.i];
    p.name = name;
    p.part.d[q->axis] = p.type.sh.d[q->axis] = piece_extent(s, old, k);
    p.at[q->axis] += q->size * k;
    return p;
}

static bool add_slot(splitter *s, slots *v, port_slot p)
{
    if (VEC_PUSH(&s->g->mem, v, p)) return true;
    graph_fail(s->g, AN_NOMEM, "out of memory");
    return false;
}

static void attach_outputs(splitter *s, slots *out)
{
    const port_plan *plan = s->c->plan;
    for (size_t o = 0; o < s->rw.outputs.n && !s->g->err.st; o++) {
        port was = s->rw.outputs.at[o];
        const pieces *p = &s->parts[was.v.i];
        if (!p->n) {
            graph_output(s->g, was.name, rw_in(&s->rw, was.v));
            add_slot(s, out, plan->out[o]);
            continue;
        }
        if (!s->ports) {
            split_fail(s, graph_maker(&s->was, was.v), graph_type(&s->was, was.v)->sh.d[p->axis],
                       "splitting this output into several ports was not allowed");
            return;
        }
        for (int k = 0; k < p->n; k++) {
            char *name = arena_printf(&s->g->mem, "%s_p%02d", was.name, k);
            if (!name) {
                graph_fail(s->g, AN_NOMEM, "out of memory");
                return;
            }
            graph_output(s->g, name, p->at[k]);
            add_slot(s, out, piece_slot(s, &plan->out[o], was.v, k, name));
        }
    }
    s->rw.outputs.n = 0;
}

static void plan_inputs(splitter *s, slots *in)
{
    for (size_t i = 0; i < s->rw.inputs.n && !s->g->err.st; i++) {
        val old = s->rw.inputs.at[i];
        const pieces *p = &s->parts[old.i];
        if (!p->n) add_slot(s, in, s->c->plan->in[i]);
        for (int k = 0; k < p->n; k++)
            add_slot(s, in, piece_slot(s, &s->c->plan->in[i], old, k, graph_value(s->g, p->at[k])->name));
    }
}

/* A long tensor that some operation of the program was refused for. */
static an_status find_long(splitter *s, bool *found, diag *d)
{
    *found = false;
    for (size_t i = 1; i < s->was.nodes.n && !*found; i++) {
        const node *n = &s->was.nodes.at[i];
        bool is_long = false;
        for (int k = 0; k < n->n_in + n->n_out && !is_long; k++) {
            val v = k < n->n_in ? n->in[k] : graph_out(n->out, k - n->n_in);
            is_long = v.i && split_axis_of(s, &graph_type(&s->was, v)->sh) != -1;
        }
        if (!is_long) continue;
        arena_mark m = arena_save(s->mem);
        const op_inst *op = inst_of(&s->was, n, s->mem);
        if (!op) return diag_nomem(d);
        *found = any_rule_fires(s->rule, s->n_rules, s->chip, op);
        arena_back(s->mem, m);
    }
    return AN_OK;
}

/* Rows that name this rewrite, and those that name chunking of channels: what a convolution's chunks are joined to
 * may again have too many channels for any operation. Rows about convolutions alone never speak about the plain
 * operation asked above. */
static an_status long_rules(splitter *s, diag *d)
{
    const char **more;
    size_t n_more;
    TRY(rules_naming("split_dim", s->chip, s->mem, &s->rule, &s->n_rules, d));
    TRY(rules_naming("chunk_channels", s->chip, s->mem, &more, &n_more, d));
    /* room: rules_naming takes it for every row there is */
    for (size_t i = 0; i < n_more; i++) s->rule[s->n_rules++] = more[i];
    return AN_OK;
}

an_status pass_split_dim(graph *g, pass_ctx *c, diag *d)
{
    splitter s = { .g = g, .was = *g, .c = c, .chip = c->o->target, .mem = &c->scratch, .ports = c->o->ports };
    int64_t longest = 0;
    for (size_t v = 1; v < g->values.n; v++)
        for (int k = 0; k < g->values.at[v].type.sh.rank; k++) longest = MAX(longest, g->values.at[v].type.sh.d[k]);
    TRY(long_rules(&s, d));
    if (!s.n_rules || longest < 2) return AN_OK;
    bool fits = true; /* one question answers most programs */
    for (int rank = 1; rank <= 5 && fits; rank++)
        for (int k = 0; k < rank && fits; k++) fits = axis_fits(&s, DT_F16, rank, k, longest);
    if (fits) return AN_OK;
    s.least = INT64_MAX;
    for (int rank = 1; rank <= MAX_RANK; rank++)
        for (int k = 0; k < rank; k++) s.least = MIN(s.least, axis_limit(&s, rank, k));
    bool found;
    TRY(find_long(&s, &found, d));
    if (!found) return AN_OK;
    c->n_changes++;
    s.parts = TAKE(s.mem, pieces, g->values.n);
    if (!s.parts) return diag_nomem(d);
    if (graph_rewrite_begin(g, &s.rw)) return AN_OK;
    for (uint32_t i = 1; i < s.rw.n_nodes && !g->err.st; i++) split_node(&s, i);
    g->here = NOWHERE;
    slots in = { 0 }, out = { 0 };
    if (!g->err.st) attach_outputs(&s, &out);
    if (!g->err.st) plan_inputs(&s, &in);
    (void)graph_rewrite_end(g, &s.rw);
    if (g->err.st) return diag_fail(d, g->err.st, g->err.at, "%s", g->err.msg);
    if (in.n != c->plan->n_in || out.n != c->plan->n_out) c->plan->changed = true;
    c->plan->in = in.at;
    c->plan->n_in = in.n;
    c->plan->out = out.at;
    c->plan->n_out = out.n;
    return AN_OK;
}
