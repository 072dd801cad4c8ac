/* select.c: operations to instructions, by the kernel column of ops.def; and the ones that act on single elements.
 * In: a graph's nodes in order.  Out: tensors for their values, instructions that fill them. */
#include "codegen/codegen_int.h"

static void (*const selectors[OP_COUNT])(cg *) = {
#define OP(id, mil, in, out, attrs, shape, dtype, vjp, cost, kernel) [OP_##id] = select_##kernel,
#include "op/ops.def"
#undef OP
};

/* What an output or a state needs. Operands come before their users. */
static bool *find_needed(cg *c)
{
    const graph *g = c->g;
    bool *needed = TAKE(&c->mem, bool, g->nodes.n);
    if (!needed) return diag_nomem(&c->err), NULL;
    for (size_t i = 0; i < g->outputs.n; i++) needed[graph_value(g, g->outputs.at[i].v)->node] = true;
    for (size_t i = g->nodes.n; i-- > 1;) {
        const node *n = &g->nodes.at[i];
        if (n->op == OP_WRITE_STATE) needed[i] = true;
        for (int j = 0; needed[i] && j < n->n_in; j++)
            if (n->in[j].i) needed[graph_value(g, n->in[j])->node] = true;
    }
    return needed;
}

static void select_input(cg *c, const node *n)
{
    const ttype *t = graph_type(c->g, n->out);
    for (size_t i = 0; i < c->g->inputs.n; i++)
        if (c->g->inputs.at[i].i == n->out.i) {
            int x = cg_tensor(c, t->dt, &t->sh);
            if (x < 0) return;
            c->t.at[x].where = SPACE_INPUT;
            c->t.at[x].slot = (int)i;
            c->of[n->out.i] = cg_cast(c, x, cg_dt(c, t->dt));
            return;
        }
    cg_fail(c, AN_BUG, "is not among the graph's inputs");
}

void select_nodes(cg *c)
{
    bool *needed = find_needed(c);
    for (size_t i = 1; i < c->g->nodes.n && !c->err.st; i++) {
        const node *n = &c->g->nodes.at[i];
        c->at = n;
        if (n->op == OP_INPUT) select_input(c, n); /* a port even when nothing reads it */
        if (!needed[i]) continue;
        for (int k = 0; k < n->n_out; k++)
            if (!shape_known(&cg_out_type(c, k)->sh))
                cg_fail(c, AN_UNSUPPORTED, "result %d has an extent that is not known", k);
        if (n->op == OP_CONST) select_const(c, n);
        else if (n->op == OP_OPAQUE)
            cg_fail(c, AN_UNSUPPORTED,
                    n->flags & INST_DYNAMIC_ATTR
                        ? "an argument that says where or how much is computed at run time: no device here does that"
                        : "an operation outside the table has no instructions");
        else if (n->op != OP_INPUT && !match_node(c)) selectors[n->op](c);
    }
    c->at = NULL;
}

void select_none(cg *c) { cg_fail(c, AN_BUG, "has no instructions"); }

/* ---- one element at a time ---- */

static void unary(cg *c, fn_id f, attr_id a, attr_id b)
{
    const double p[2] = { a ? at_float(c, a) : 0, b ? at_float(c, b) : 0 };
    int x = cg_in(c, 0);
    cg_set(c, 0, cg_ew(c, cg_dt(c, cg_out_type(c, 0)->dt), &cg_out_type(c, 0)->sh, f, &x, 1, p));
}

static void binary(cg *c, fn_id f)
{
    cg_set(c, 0,
           cg_ew(c, cg_dt(c, cg_out_type(c, 0)->dt), &cg_out_type(c, 0)->sh, f, OPS(cg_in(c, 0), cg_in(c, 1)), NULL));
}

#define UNARY(name, fn, a, b) void select_##name(cg *c) { unary(c, FN_##fn, a, b); }
#define BINARY(name, fn) void select_##name(cg *c) { binary(c, FN_##fn); }

BINARY(add, ADD)
BINARY(sub, SUB)
BINARY(mul, MUL)
BINARY(real_div, DIV)
BINARY(floor_div, FLOOR_DIV)
BINARY(pow, POW)
BINARY(maximum, MAX)
BINARY(minimum, MIN)
BINARY(equal, EQ)
BINARY(not_equal, NE)
BINARY(greater, GT)
BINARY(greater_equal, GE)
BINARY(less, LT)
BINARY(less_equal, LE)
UNARY(logical_not, NOT, A_NONE, A_NONE)
UNARY(abs, ABS, A_NONE, A_NONE)
UNARY(square, SQUARE, A_NONE, A_NONE)
UNARY(sqrt, SQRT, A_NONE, A_NONE)
UNARY(rsqrt, RSQRT, A_EPSILON, A_NONE)
UNARY(inverse, INV, A_EPSILON, A_NONE)
UNARY(log, LOG, A_EPSILON, A_NONE)
UNARY(exp, EXP, A_NONE, A_NONE)
UNARY(exp2, EXP2, A_NONE, A_NONE)
UNARY(erf, ERF, A_NONE, A_NONE)
UNARY(sign, SIGN, A_NONE, A_NONE)
UNARY(ceil, CEIL, A_NONE, A_NONE)
UNARY(floor, FLOOR, A_NONE, A_NONE)
UNARY(round, ROUND, A_NONE, A_NONE)
UNARY(sin, SIN, A_NONE, A_NONE)
UNARY(cos, COS, A_NONE, A_NONE)
UNARY(atan, ATAN, A_NONE, A_NONE)
UNARY(relu, RELU, A_NONE, A_NONE)
UNARY(relu6, RELU6, A_NONE, A_NONE)
UNARY(leaky_relu, LEAKY_RELU, A_ALPHA, A_NONE)
UNARY(clamped_relu, CLAMPED_RELU, A_ALPHA, A_BETA)
UNARY(thresholded_relu, THRESHOLDED_RELU, A_ALPHA, A_NONE)
UNARY(threshold, THRESHOLD, A_ALPHA, A_NONE)
UNARY(clip, CLIP, A_ALPHA, A_BETA)
UNARY(linear_activation, AFFINE, A_ALPHA, A_BETA)
UNARY(elu, ELU, A_ALPHA, A_NONE)
UNARY(sigmoid, SIGMOID, A_NONE, A_NONE)
UNARY(sigmoid_hard, SIGMOID_HARD, A_ALPHA, A_BETA)
UNARY(tanh, TANH, A_NONE, A_NONE)
UNARY(scaled_tanh, SCALED_TANH, A_ALPHA, A_BETA)
UNARY(silu, SILU, A_NONE, A_NONE)
UNARY(softplus, SOFTPLUS, A_NONE, A_NONE)
UNARY(softsign, SOFTSIGN, A_NONE, A_NONE)

void select_gelu(cg *c)
{
    static const char *const modes[] = { "EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION" };
    static const fn_id forms[] = { FN_GELU, FN_GELU_TANH, FN_GELU_SIGMOID };
    int m;
    if (cg_word(c, A_MODE, modes, COUNT(modes), &m)) unary(c, forms[m], A_NONE, A_NONE);
}

void select_pe_elementwise(cg *c)
{
    static const char *const modes[] = { "add", "sub", "mul", "max", "min", "pow", "div" };
    static const fn_id forms[] = { FN_ADD, FN_SUB, FN_MUL, FN_MAX, FN_MIN, FN_POW, FN_DIV };
    int m;
    if (cg_word(c, A_MODE, modes, COUNT(modes), &m)) binary(c, forms[m]);
}

void select_select(cg *c)
{
    cg_set(c, 0,
           cg_ew(c, cg_dt(c, cg_out_type(c, 0)->dt), &cg_out_type(c, 0)->sh, FN_SELECT,
                 OPS(cg_in(c, 0), cg_in(c, 1), cg_in(c, 2)), NULL));
}

void select_prelu(cg *c)
{
    const ttype *o = cg_out_type(c, 0);
    cg_set(c, 0,
           cg_ew(c, cg_dt(c, o->dt), &o->sh, FN_PRELU, OPS(cg_in(c, 0), cg_channel(c, cg_in(c, 1), o->sh.rank)), NULL));
}

void select_softplus_parametric(cg *c)
{
    const ttype *o = cg_out_type(c, 0);
    int a = cg_channel(c, cg_in(c, 1), o->sh.rank), b = cg_channel(c, cg_in(c, 2), o->sh.rank);
    cg_set(c, 0, cg_ew(c, cg_dt(c, o->dt), &o->sh, FN_SOFTPLUS_PAR, OPS(cg_in(c, 0), a, b), NULL));
}

/* ---- types ---- */

void select_cast(cg *c)
{
    dtype want = cg_dt(c, cg_out_type(c, 0)->dt);
    int x = cg_in(c, 0);
    if (c->err.st) return;
    bool loaded = c->t.at[cg_root(c, x)].where == SPACE_CONST && dtype_is_float(want) && dtype_is_float(c->t.at[x].dt);
    cg_set(c, 0, loaded && want != c->t.at[x].dt ? cg_const_as(c, x, want) : cg_cast(c, x, want));
}

static void quantized(cg *c, insn_id op)
{
    int axis = NONE, x = cg_in(c, 0), s = cg_in(c, 1), z = cg_in(c, 2);
    if (c->err.st) return;
    bool many = cg_elems(cg_sh(c, s)) > 1 || (z >= 0 && cg_elems(cg_sh(c, z)) > 1);
    if (many && !cg_axis(c, A_AXIS, cg_sh(c, x)->rank, &axis)) return;
    int y = cg_tensor(c, cg_dt(c, cg_out_type(c, 0)->dt), &cg_out_type(c, 0)->sh);
    cg_i(c, cg_ins(c, op, y, OPS(x, s, z)), axis);
    cg_set(c, 0, y);
}

void select_quantize(cg *c) { quantized(c, IN_QUANT); }
void select_dequantize(cg *c) { quantized(c, IN_DEQUANT); }

/* ---- from nothing ---- */

void select_fill(cg *c)
{
    int y = cg_tensor(c, cg_dt(c, cg_out_type(c, 0)->dt), &cg_out_type(c, 0)->sh);
    cg_fill(c, y, at_float(c, A_VALUE));
    cg_set(c, 0, y);
}

void select_random_uniform(cg *c)
{
    int y = cg_tensor(c, cg_dt(c, cg_out_type(c, 0)->dt), &cg_out_type(c, 0)->sh);
    ins *n = cg_ins(c, IN_RANDOM, y, NULL, 0);
    int64_t seed = at_int(c, A_SEED);
    cg_f(n, at_float(c, A_LOW));
    cg_f(n, at_float(c, A_HIGH));
    cg_i(c, n, seed == -1 ? 0 : seed); /* "any" is 0, so that runs repeat */
    cg_set(c, 0, y);
}

/* ---- state ---- */

void select_write_state(cg *c)
{
    int t = cg_in(c, 1);
    cg_set(c, 0, t);
    /* an update of a value: nothing outlives the dispatch */
    if (graph_maker(c->g, c->at->in[0])->op != OP_INPUT) return;
    for (size_t i = 0; i < c->states.n; i++)
        if (c->states.at[i].state.i == c->at->in[0].i) {
            c->states.at[i].tensor = t;
            return;
        }
    if (!VEC_PUSH(&c->mem, &c->states, ((state_write){ c->at->in[0], t }))) diag_nomem(&c->err);
}
