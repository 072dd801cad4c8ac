/* legal_chunk.c: a convolution with more channels than the target takes becomes several. Too many output channels (a
 * 32k-word classifier): chunks of the weight's rows, joined by one concat along channels, so that a softmax over the
 * words still sees them all. Too many input channels (its backward): chunks of x and of the weight's columns, summed
 * in order; each partial sum passes through the result's type, where the single convolution would round once.
 *
 * How many channels are taken is asked of the rule itself, by halving: the largest count for which it stays silent. */
#include "pass/pass_int.h"

static bool takes(op_id op) { return op == OP_CONV || op == OP_NE_CONV; }

enum { LANE = 32 }; /* chunks are multiples of this many channels where they can be */

typedef struct {
    op_inst inst;
    operand in[3];
    ttype out;
} trial;

static void set_cin(trial *t, int64_t c) { t->in[0].type.sh.d[1] = t->in[1].type.sh.d[1] = c; }
static void set_cout(trial *t, int64_t c)
{
    t->in[1].type.sh.d[0] = t->out.sh.d[1] = c;
    if (t->in[2].present) t->in[2].type.sh.d[0] = c;
}

static bool fits(const legal *l, const trial *t) { return !any_rule_fires(l->rule, l->n_rules, l->chip, &t->inst); }

/* Most channels the rules let pass, 0 when not even one. */
static int64_t most(const legal *l, trial *t, void (*set)(trial *, int64_t), int64_t all)
{
    int64_t ok = 0, bad = all + 1;
    while (bad - ok > 1) {
        int64_t mid = ok + (bad - ok) / 2;
        set(t, mid);
        if (fits(l, t)) ok = mid;
        else bad = mid;
    }
    set(t, all);
    return ok;
}

typedef struct {
    bool outputs; /* cut Cout, else Cin */
    int64_t all, size;
} chunks;

static bool plan_for(const legal *l, const node *n, chunks *c)
{
    trial t = { 0 };
    const graph *g = &l->was;
    op_inst *inst = inst_of(g, n, l->mem);
    if (!inst) return diag_nomem(l->d), false;
    memcpy(t.in, inst->in, (size_t)n->n_in * sizeof *t.in);
    t.inst = *inst;
    t.out = inst->out[0];
    t.inst.in = t.in;
    t.inst.out = &t.out;
    t.in[1].data = t.in[2].data = NULL; /* the rule may not look at bytes past a shortened weight */
    if (attr_int(n->op, n->attrs, n->n_attr, A_GROUPS) != 1) return false;
    int64_t cin = t.in[0].type.sh.d[1], cout = t.out.sh.d[1], limit = most(l, &t, set_cout, cout);
    *c = (chunks){ .outputs = true, .all = cout };
    if (!limit) { /* not the outputs, or not them alone: the inputs now, the outputs in the next round */
        limit = most(l, &t, set_cin, cin);
        if (!limit) set_cout(&t, 1), limit = most(l, &t, set_cin, cin);
        *c = (chunks){ .outputs = false, .all = cin };
    }
    if (!limit || limit >= c->all) return false;
    int64_t parts = (c->all + limit - 1) / limit;
    c->size = (c->all + parts - 1) / parts; /* even chunks: no small tail */
    if (ROUND_UP(c->size, LANE) <= limit) c->size = ROUND_UP(c->size, LANE);
    return true;
}

static bool can(legal *l, const node *n)
{
    const node *w = graph_maker(&l->was, n->in[1]);
    chunks c;
    /* bytes bound later cannot be cut now: checking will say so */
    if (w->op == OP_CONST && !w->cst->data) return false;
    return plan_for(l, n, &c);
}

/* [at, at + size) of an axis, as a constant where it is one. */
static val part(graph *g, val v, int axis, int64_t at, int64_t size)
{
    if (!v.i) return NO_VAL;
    if (graph_const_of(g, v)) return const_sliced(g, v, axis, at, size);
    const shape *sh = &graph_type(g, v)->sh;
    int64_t begin[MAX_RANK] = { 0 }, extent[MAX_RANK];
    for (int k = 0; k < sh->rank; k++) extent[k] = sh->d[k];
    begin[axis] = at;
    extent[axis] = size;
    return GA(g, SLICE_BY_SIZE, VALS(v), AT_LIST(BEGIN, begin, sh->rank), AT_LIST(SIZE, extent, sh->rank));
}

static val build(legal *l, const node *n)
{
    graph *g = l->g;
    chunks c;
    val x = legal_in(l, n, 0), w = legal_in(l, n, 1), bias = legal_in(l, n, 2), sum = NO_VAL;
    if (!plan_for(l, n, &c)) return graph_fail(g, AN_BUG, "chunk_channels: no plan for %s", n->name), NO_VAL;
    size_t n_parts = (size_t)((c.all + c.size - 1) / c.size);
    val *parts = TAKE(l->mem, val, n_parts);
    if (!parts) return graph_fail(g, AN_NOMEM, "out of memory"), NO_VAL;
    for (size_t i = 0; i < n_parts; i++) {
        int64_t at = (int64_t)i * c.size, size = MIN(c.size, c.all - at);
        if (c.outputs) {
            parts[i] =
                graph_op(g, n->op, VALS(x, part(g, w, 0, at, size), part(g, bias, 0, at, size)), n->attrs, n->n_attr);
            continue;
        }
        val one = graph_op(g, n->op, VALS(part(g, x, 1, at, size), part(g, w, 1, at, size), i ? NO_VAL : bias),
                           n->attrs, n->n_attr);
        sum = i ? graph_op_named(g, i + 1 == n_parts ? n->name : NULL, OP_ADD, VALS(sum, one), NULL, 0) : one;
    }
    if (!c.outputs) return sum;
    const attr axis = AT_I(AXIS, 1);
    return graph_op_named(g, n->name, OP_CONCAT, parts, (int)n_parts, &axis, 1);
}

an_status pass_chunk_channels(graph *g, pass_ctx *c, diag *d)
{
    static const legalizer row = { "chunk_channels", takes, can, build };
    return legal_run(g, c, &row, d);
}
