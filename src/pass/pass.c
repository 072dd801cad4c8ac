/* pass.c: the ordered table of passes, and running it to a fixpoint.
 * In: a graph, options.  Out: the same graph rewritten; statistics; or the name of the pass that broke an invariant. */
#include "pass/pass_int.h"

typedef struct {
    const char *name;
    pass_fn run;
    int level;   /* lowest level at which it runs */
    bool target; /* needs a chip */
    bool ports;  /* changes the interface: only when asked */
    const char *summary;
} pass_row;

/* Clean-up first, so that rules see what will really run and later rows match on simple forms. Rewrites of single
 * operations come before those of the interface: they decide what the ports carry. */
static const pass_row passes[] = {
    { "identity", pass_identity, 1, false, false, "drop operations that give back their operand" },
    { "cast", pass_cast, 1, false, false, "one cast for two when nothing is lost between them" },
    { "transpose", pass_transpose, 1, false, false, "compose transposes; those that move no element become reshapes" },
    { "algebra", pass_algebra, 1, false, false, "clean-up that changes no bit of any result" },
    { "fold", pass_fold, 1, false, false, "compute operations on constants now" },
    { "cse", pass_cse, 1, false, false, "compute equal operations once" },
    { "dce", pass_dce, 0, false, false, "drop what no output needs" },
    { "gelu", pass_gelu, 0, true, false, "gelu as erf or tanh arithmetic" },
    { "causal_mask", pass_causal_mask, 0, true, false, "attention with its mask added in the open; masks of -1e4" },
    { "conv_bias", pass_conv_bias, 0, true, false, "bias of conv and linear as a separate add" },
    { "matmul_conv", pass_matmul_conv, 0, true, false, "product with a constant matrix as a 1x1 convolution" },
    { "chunk_channels", pass_chunk_channels, 0, true, false, "convolutions with too many channels in chunks" },
    { "depth_broadcast", pass_depth_broadcast, 0, true, false, "broadcasts along depth as ones along channels" },
    { "split_dim", pass_split_dim, 0, true, false, "tensors with a too long axis in pieces" },
    { "pad_surface", pass_pad_surface, 0, true, true, "widen ports to the smallest surface the engine takes" },
    { "uniform_ports", pass_uniform_ports, 0, true, true, "one size for all inputs, one for all outputs" },
    { "sort_ports", pass_sort_ports, 0, true, true, "port names whose sorted order is the declared one" },
};
_Static_assert(COUNT(passes) <= PASS_MAX, "pass_stats holds one number per pass");

size_t pass_count(void) { return COUNT(passes); }
const char *pass_name_at(size_t i) { return passes[i].name; }
const char *pass_summary_at(size_t i) { return passes[i].summary; }
int pass_level_at(size_t i) { return passes[i].level; }
bool pass_needs_target(size_t i) { return passes[i].target; }
bool pass_changes_ports(size_t i) { return passes[i].ports; }

static an_status plan_side(graph *g, port_slot **out, size_t *n_out, size_t n, bool inputs, diag *d)
{
    port_slot *s = TAKE(&g->mem, port_slot, n);
    if (!s) return diag_nomem(d);
    for (size_t i = 0; i < n; i++) {
        val v = inputs ? g->inputs.at[i] : g->outputs.at[i].v;
        s[i].name = s[i].orig_name = inputs ? graph_value(g, v)->name : g->outputs.at[i].name;
        s[i].type = s[i].orig_type = *graph_type(g, v);
        s[i].part = s[i].type.sh;
    }
    *out = s;
    *n_out = n;
    return AN_OK;
}

static an_status plan_begin(graph *g, port_plan *p, diag *d)
{
    if (p->in || p->out) return AN_OK;
    TRY(plan_side(g, &p->in, &p->n_in, g->inputs.n, true, d));
    return plan_side(g, &p->out, &p->n_out, g->outputs.n, false, d);
}

static void side_bytes(const port_slot *s, size_t n, size_t *bytes, bool *uniform)
{
    size_t b, first = 0;
    *bytes = 0;
    *uniform = true;
    for (size_t i = 0; i < n; i++) {
        if (!shape_bytes(&s[i].type, &b)) b = 0;
        if (i == 0) first = b;
        if (b != first) *uniform = false;
        *bytes = MAX(*bytes, b);
    }
}

static void plan_end(port_plan *p)
{
    side_bytes(p->in, p->n_in, &p->in_bytes, &p->in_uniform);
    side_bytes(p->out, p->n_out, &p->out_bytes, &p->out_uniform);
}

static bool runs(const pass_row *p, const pass_options *o)
{
    return o->level >= p->level && (!p->target || o->target) && (!p->ports || o->ports);
}

static an_status run_row(graph *g, size_t i, pass_ctx *c, pass_stats *st, diag *d)
{
    const pass_row *p = &passes[i];
    uint64_t t0 = clock_ns();
    c->n_changes = 0;
    an_status s = p->run(g, c, d);
    arena_free(&c->scratch);
    if (!s && c->n_changes) s = graph_verify(g, p->name, d); /* a pass that changed nothing broke nothing */
    if (s) return s;
    st->n_changes[i] += c->n_changes;
    st->ns[i] += clock_ns() - t0;
    const char *want = c->o->dump_after;
    if (want && c->o->dump && (!strcmp(want, p->name) || !strcmp(want, "all"))) c->o->dump(c->o->user, p->name, g);
    return AN_OK;
}

static const pass_options plain = { .level = 1 };

an_status pass_run(graph *g, const pass_options *o, pass_stats *st, diag *d)
{
    pass_stats own;
    if (!st) st = &own;
    if (!o) o = &plain;
    *st = (pass_stats){ .nodes_before = g->nodes.n - 1 };
    TRY(graph_verify(g, "building", d));
    TRY(plan_begin(g, &st->ports, d));
    pass_ctx c = { .o = o, .plan = &st->ports };
    /* Stops early once every row of the table ran in turn without changing anything. */
    size_t quiet = 0, n_run = 0;
    for (size_t i = 0; i < COUNT(passes); i++) n_run += runs(&passes[i], o);
    while (st->rounds < PASS_MAX_ROUNDS && quiet < n_run) {
        st->rounds++;
        for (size_t i = 0; i < COUNT(passes) && quiet < n_run; i++) {
            if (!runs(&passes[i], o)) continue;
            TRY(run_row(g, i, &c, st, d));
            quiet = c.n_changes ? 0 : quiet + 1; /* the last pass that changed something runs again, too */
        }
    }
    st->fixpoint = quiet >= n_run;
    st->nodes_after = g->nodes.n - 1;
    plan_end(&st->ports);
    return AN_OK;
}

an_status pass_run_one(graph *g, const char *name, const pass_options *o, pass_stats *st, bool *changed, diag *d)
{
    pass_stats own = { 0 };
    if (!st) st = &own;
    if (!o) o = &plain;
    if (changed) *changed = false;
    for (size_t i = 0; i < COUNT(passes); i++) {
        if (strcmp(passes[i].name, name)) continue;
        if (passes[i].target && !o->target) return AN_OK;
        TRY(plan_begin(g, &st->ports, d));
        pass_ctx c = { .o = o, .plan = &st->ports };
        TRY(run_row(g, i, &c, st, d));
        plan_end(&st->ports);
        if (changed) *changed = c.n_changes != 0;
        return AN_OK;
    }
    return diag_fail(d, AN_INPUT, NOWHERE, "there is no pass named %s", name);
}
