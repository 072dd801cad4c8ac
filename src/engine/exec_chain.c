/* exec_chain.c: chains as calls of vector kernels over a block of elements. In: steps of a checked instruction.
 * Out: a list of small operations on numbered fp32 buffers ("registers") that stay in the first cache; the last one
 * writes the result.
 *
 * A step is one or more operations: a function by table is the table between its scalings, each rounded where num_fn
 * rounds. What no exact vector form exists for is computed element by element with num_fn itself. */
#include <float.h>
#include <math.h>

#include "engine/exec_chain_int.h"

enum { OPS_PER_STEP = 10 };

/* ---- compiling ---- */

typedef struct {
    image *im;
    exec_chain *ch;
    const chain *src;
    int *reg;      /* of a value; -1: not yet made, or gone */
    int *uses;     /* left */
    /* of a value: only results narrower than fp32 are made of it, by what leaves a relative error as it is */
    bool *half;
    bool busy[CHAIN_REGS];
    diag *d;
    bool hard;     /* the reference must do it */
} maker;

static int take_reg(maker *m)
{
    for (int r = 0; r < CHAIN_REGS; r++)
        if (!m->busy[r]) {
            m->busy[r] = true;
            m->ch->n_reg = MAX(m->ch->n_reg, r + 1);
            return r;
        }
    m->hard = true;
    return 0;
}

static chain_op *add(maker *m, op_kind kind, int y, int a, int b, int c)
{
    chain_op *o = &m->ch->ops[m->ch->n_ops++];
    *o = (chain_op){ .kind = kind, .y = y, .a = a, .b = b, .c = c };
    return o;
}

static void vector(maker *m, vec_fn f, int y, int a, int b, int c, float p0, float p1)
{
    chain_op *o = add(m, OP_VECTOR, y, a, b, c);
    o->vf = f, o->p[0] = p0, o->p[1] = p1;
}

static void table(maker *m, table_id t, int y, int a)
{
    add(m, OP_TABLE, y, a, a, a)->table = exec_table(m->im, t, m->d);
    if (m->d->st) m->hard = true;
}

static int how_of(const maker *m, dtype t, bool port)
{
    int how = m->ch->env->chip ? VR_CHIP : 0;
    if (t == DT_F16) how |= VR_F16;
    if (t == DT_BF16) how |= VR_BF16;
    if (t == DT_BOOL) return how | VR_BOOL;
    if (port && m->ch->num->mac_tie_away != 0 && t != DT_F32) how |= VR_AWAY;
    return how;
}

static void round_to(maker *m, int r, int how)
{
    if (how) add(m, OP_ROUND, r, r, r, r)->how = how;
}

static const int16_t vec_of[FN_COUNT] = { /* + 1; 0: none */
#define SAME(id) [FN_##id] = VF_##id + 1
    SAME(COPY),      SAME(ADD),       SAME(SUB),          SAME(MUL),     SAME(DIV),          SAME(FLOOR_DIV),
    SAME(MAX),       SAME(MIN),       SAME(EQ),           SAME(NE),      SAME(GT),           SAME(GE),
    SAME(LT),        SAME(LE),        SAME(NOT),          SAME(SELECT),  SAME(ABS),          SAME(SQUARE),
    SAME(SIGN),      SAME(CEIL),      SAME(FLOOR),        SAME(ROUND),   SAME(SQRT),         SAME(ROOT_DIV),
    SAME(RSQRT),     SAME(INV),       SAME(LOG),          SAME(EXP),     SAME(EXP2),         SAME(ERF),
    SAME(RELU),      SAME(RELU6),     SAME(LEAKY_RELU),   SAME(PRELU),   SAME(CLAMPED_RELU), SAME(THRESHOLDED_RELU),
    SAME(THRESHOLD), SAME(CLIP),      SAME(AFFINE),       SAME(SIGMOID), SAME(SIGMOID_HARD), SAME(TANH),
    SAME(GELU),      SAME(GELU_TANH), SAME(GELU_SIGMOID), SAME(SILU),    SAME(SOFTSIGN),
#undef SAME
};
static const uint16_t vec_ulp[VF_COUNT] = {
#define VEC_FN(id, operands, params, ulp, what) [VF_##id] = ulp,
#include "kernel/vector.def"
#undef VEC_FN
};

/* + 1: quicker forms for what becomes fp16. */
static const int16_t half_of[FN_COUNT] = { [FN_EXP] = VF_EXP_HALF + 1, [FN_SIGMOID] = VF_SIGMOID_HALF + 1, [FN_SILU] = VF_SILU_HALF + 1,
                                           [FN_GELU_TANH] = VF_GELU_TANH_HALF + 1, [FN_GELU_SIGMOID] = VF_GELU_SIGMOID_HALF + 1 };

static bool is_comparison(fn_id f) { return (f >= FN_EQ && f <= FN_LE) || f == FN_NOT; }

/* With a bool result only what cannot tell exact from fp32 arithmetic. */
static bool fits_bool(fn_id f)
{
    return is_comparison(f) || f == FN_SELECT || f == FN_COPY || f == FN_ADD || f == FN_SUB || f == FN_MUL ||
           f == FN_MAX || f == FN_MIN || f == FN_ABS;
}

/* table_fn of tables.c, one operation at a time. pass: its rounding between two passes. */
static void by_table(maker *m, fn_id f, int y, const int *a, const float *p, dtype t)
{
    int pass = how_of(m, t, false), x = a[0], tmp;
    table_id tab = fn_table(f);
    switch (f) {
    case FN_EXP:
        vector(m, VF_MUL_P, y, x, x, x, f16_to_f32(LOG2_E), 0);
        table(m, tab, y, y);
        return;
    case FN_LOG:
        vector(m, VF_ADD_P, y, x, x, x, p[0], 0);
        table(m, tab, y, y);
        round_to(m, y, pass);
        vector(m, VF_BEYOND, y, y, y, y, 0, 0);
        vector(m, VF_MUL_P, y, y, y, y, f16_to_f32(LN_2), 0);
        return;
    case FN_RSQRT:
    case FN_INV:
        vector(m, VF_ADD_P, y, x, x, x, p[0], 0);
        table(m, tab, y, y);
        return;
    case FN_SIN:
        vector(m, VF_TURN, y, x, x, x, 0, 0);
        table(m, TAB_sin, y, y);
        return;
    case FN_COS:
        vector(m, VF_ADD_P, y, x, x, x, 1.5707964f, 0);
        vector(m, VF_TURN, y, y, y, y, 0, 0);
        table(m, TAB_sin, y, y);
        return;
    case FN_ELU:
        tmp = take_reg(m);
        table(m, tab, y, x);
        vector(m, VF_COPY, tmp, y, y, y, 0, 0);
        round_to(m, tmp, pass);
        vector(m, VF_MUL_P, tmp, tmp, tmp, tmp, p[0], 0);
        vector(m, VF_ABOVE, y, x, y, tmp, 0, 0);
        m->busy[tmp] = false;
        return;
    case FN_SCALED_TANH:
        vector(m, VF_MUL_P, y, x, x, x, p[1], 0);
        table(m, tab, y, y);
        round_to(m, y, pass);
        vector(m, VF_MUL_P, y, y, y, y, p[0], 0);
        return;
    case FN_SOFTPLUS_PAR:
        vector(m, VF_MUL, y, x, a[2], a[2], 0, 0);
        table(m, tab, y, y);
        round_to(m, y, pass);
        vector(m, VF_MUL, y, a[1], y, y, 0, 0);
        return;
    case FN_SOFTSIGN:
        vector(m, VF_ABS, y, x, x, x, 0, 0);
        vector(m, VF_ADD_P, y, y, y, y, 1, 0);
        round_to(m, y, pass);
        table(m, TAB_inv, y, y);
        round_to(m, y, pass);
        vector(m, VF_MUL, y, x, y, y, 0, 0);
        return;
    default: table(m, tab, y, x); return;
    }
}

static int value_reg(maker *m, int64_t v) /* the register of a value, read from its tensor when first wanted */
{
    if (m->reg[v] >= 0) return m->reg[v];
    int r = m->reg[v] = take_reg(m); /* never the accumulator: it has one from the start */
    add(m, OP_READ, r, r, r, r)->input = (int)(v - m->ch->port);
    return r;
}

static void release(maker *m, int64_t v)
{
    if (--m->uses[v] > 0) return;
    m->busy[m->reg[v]] = false;
}

static void make_step(maker *m, int64_t k)
{
    const int64_t *s = m->src->step + k * CHAIN_STEP;
    const exec_env *e = m->ch->env;
    const numerics *num = m->ch->num;
    fn_id f = (fn_id)s[STEP_FN];
    dtype t = (dtype)s[STEP_TYPE];
    bool real = dtype_is_float(t), odd = false, port = m->ch->port;
    if (!exec_stores(t) || (t == DT_BOOL && !fits_bool(f))) {
        m->hard = true;
        return;
    }
    int a[3] = { 0 }, n = fn_operands(f);
    for (int j = 0; j < n; j++) a[j] = value_reg(m, s[STEP_A + j]);
    for (int j = n; j < 3; j++) a[j] = a[0];
    const double *param = fn_params(f) ? m->src->param + s[STEP_PARAM] : NULL;
    float p[2] = { 0 };
    for (int j = 0; j < fn_params(f); j++) {
        p[j] = e->chip && real ? (float)dtype_round(t, param[j]) : (float)param[j];
        odd = odd || isnan(p[j]);
    }
    /* An epsilon below the normal numbers, as the default is, keeps log(0) finite; where small results are flushed,
     * so would be the sum. */
    if (f == FN_LOG) p[1] = p[0] > 0 && p[0] < FLT_MIN ? logf(p[0]) : -INFINITY;
    int y = take_reg(m), vf = vec_of[f] - 1;
    if (!e->chip && half_of[f] && m->half[m->src->n_inputs + k]) vf = half_of[f] - 1;
    bool tabled = num->tables != 0 && real && fn_table(f) != TAB_none;
    if (tabled && !odd) by_table(m, f, y, a, p, t);
    else if (!tabled && !odd && vf >= 0 && (!e->chip || vec_ulp[vf] == 0))
        vector(m, (vec_fn)vf, y, a[0], a[1], a[2], p[0], p[1]);
    else {
        chain_op *o = add(m, OP_SCALAR, y, a[0], a[1], a[2]);
        o->f = f, o->t = t, o->param = param;
    }
    if (e->chip || t == DT_BOOL) {
        bool done = m->ch->ops[m->ch->n_ops - 1].kind == OP_SCALAR || (is_comparison(f) && t == DT_BOOL);
        if (!done) round_to(m, y, how_of(m, t, port));
    }
    for (int j = 0; j < n; j++) release(m, s[STEP_A + j]);
    m->reg[m->src->n_inputs + k] = y;
}

static bool keeps_error(fn_id f) { return f == FN_MUL || f == FN_DIV || f == FN_COPY || f == FN_ABS || f == FN_RELU; }

static bool is_half(dtype t) { return t == DT_F16 || t == DT_BF16; }

/* Values that nothing but results of 16 bits are made of. One whose step has a wider type is only stored as that:
 * its bits must not depend on what else the chain makes. */
static void find_half(maker *m, const int64_t *result)
{
    const chain *s = m->src;
    for (int64_t v = 0; v < s->n_inputs + s->n_steps; v++) m->half[v] = true;
    for (int k = 0; k < m->ch->n_out; k++) {
        const int64_t step = result[k] - s->n_inputs;
        const bool declared = m->ch->port || step < 0 || is_half((dtype)s->step[step * CHAIN_STEP + STEP_TYPE]);
        if (!is_half(m->ch->out[k].t) || !declared) m->half[result[k]] = false;
    }
    for (int64_t k = s->n_steps - 1; k >= 0; k--) {
        fn_id f = (fn_id)s->step[k * CHAIN_STEP + STEP_FN];
        bool on = keeps_error(f) && m->half[s->n_inputs + k];
        for (int j = 0; j < fn_operands(f) && !on; j++) m->half[s->step[k * CHAIN_STEP + STEP_A + j]] = false;
    }
}

static void make_ops(maker *m, const int64_t *step)
{
    const chain *s = m->src;
    int64_t values = s->n_inputs + s->n_steps;
    for (int64_t v = 0; v < values; v++) m->reg[v] = -1;
    int64_t result[CHAIN_MOST_RESULTS];
    for (int k = 0; k < m->ch->n_out; k++) {
        result[k] = step[k] < 0 ? 0 : s->n_inputs + step[k];
        m->uses[result[k]]++; /* the store */
    }
    for (int64_t k = s->n_steps - 1; k >= 0; k--) /* backwards: a step nobody reads reads nothing */
        for (int j = 0; m->uses[s->n_inputs + k] && j < fn_operands((fn_id)s->step[k * CHAIN_STEP]); j++)
            m->uses[s->step[k * CHAIN_STEP + STEP_A + j]]++;
    for (int i = 0; i < m->ch->n_in; i++) m->ch->in[i].idle = !m->uses[i + m->ch->port];
    find_half(m, result);
    if (m->ch->port) m->reg[0] = take_reg(m);
    for (int64_t k = 0; k < s->n_steps && !m->hard; k++)
        if (m->uses[s->n_inputs + k]) make_step(m, k);
    for (int k = 0; k < m->ch->n_out && !m->hard; k++) m->ch->out[k].reg = value_reg(m, result[k]);
}

/* Every result is what it was unless one number says otherwise: an optimiser's step that may not count. The choice
 * is made once, and the chain is that of the new values; step[k] becomes the one that makes them. */
static void find_choice(exec_chain *ch, const chain *src, int64_t *step)
{
    int64_t when = -1, made[CHAIN_MOST_RESULTS];
    for (int k = 0; k < ch->n_out; k++) {
        const int64_t *s = step[k] < 0 ? NULL : src->step + step[k] * CHAIN_STEP;
        if (ch->port || ch->env->chip || !s || s[STEP_FN] != FN_SELECT || s[STEP_A] >= ch->n_in ||
            s[STEP_A + 1] < ch->n_in || s[STEP_A + 2] >= ch->n_in)
            return;
        const exec_walk *old = &ch->in[s[STEP_A + 2]];
        if ((k && s[STEP_A] != when) || ch->in[s[STEP_A]].rank || !old->same || old->t != ch->out[k].t ||
            !dtype_is_float(old->t))
            return;
        when = s[STEP_A];
        made[k] = s[STEP_A + 1] - ch->n_in;
    }
    for (int k = 0; k < ch->n_out; k++) {
        ch->out[k].old = (int)src->step[step[k] * CHAIN_STEP + STEP_A + 2];
        step[k] = made[k];
    }
    ch->when = (int)when;
}

enum { LATE_LEAST = 1 << 16 /* bytes: less is not worth a fence */ };

/* Of all ports together. */
static int64_t outputs_bytes(const program *p)
{
    uint64_t n = 0;
    for (size_t i = 0; i < p->outputs.n; i++) n += MIN(p->outputs.at[i].bytes, INT64_MAX / 2 - n);
    return (int64_t)n;
}

an_status exec_chain_make(image *im, const insn *in, const char *list, int64_t y, bool port, bool ceiling,
                          exec_chain **out, diag *d)
{
    const program *p = im->p;
    const etensor *ty = &p->tensors.at[y];
    exec_env *e;
    int64_t n;
    *out = NULL;
    TRY(exec_open(im, &e, d));
    const int64_t *t = in->t + 1; /* without a list: one operand behind the result, element for element */
    if (list) t = insn_ts(in, list, &n);
    else n = 1;
    chain src = list ? insn_chain(in, n + port) : (chain){ .n_inputs = 1 };
    int64_t result[CHAIN_MOST_RESULTS] = { y }, step[CHAIN_MOST_RESULTS] = { src.n_steps - 1 };
    int results = in->op == IN_EWS ? insn_results(in, result, step) : 1;
    bool known = e->fast && src.n_steps <= 4096;
    for (int k = 0; k < results; k++) known = known && exec_stores(p->tensors.at[result[k]].dt);
    for (int64_t k = 0; k < n; k++) known = known && exec_loads(p->tensors.at[t[k]].dt);
    if (!known) return AN_OK;
    arena_mark mark = arena_save(&im->tmp);
    exec_chain *ch = TAKE(&im->prepared, exec_chain, 1);
    maker m = { .im = im, .ch = ch, .src = &src, .d = d };
    size_t values = (size_t)(src.n_inputs + src.n_steps);
    m.reg = TAKE(&im->tmp, int, values), m.uses = TAKE(&im->tmp, int, values), m.half = TAKE(&im->tmp, bool, values);
    if (!ch || !m.reg || !m.uses || !m.half) return diag_nomem(d);
    *ch = (exec_chain){
        .env = e, .num = &p->num, .port = port, .n_in = (int)n, .n_out = results, .n_steps = src.n_steps, .when = -1
    };
    ch->in = TAKE(&im->prepared, exec_walk, (size_t)n);
    ch->ops = TAKE(&im->prepared, chain_op, (size_t)(src.n_steps * OPS_PER_STEP + src.n_inputs + 1));
    if (!ch->in || !ch->ops) return diag_nomem(d);
    for (int64_t k = 0; k < n; k++)
        ch->in[k] = list ? exec_walk_of(p, t[k], ty)
                         : (exec_walk){ .tensor = t[k], .t = p->tensors.at[t[k]].dt, .rank = 1, .dim = { et_elems(ty) },
                                        .stride = { 1 }, .same = true };
    for (int k = 0; k < results; k++) ch->out[k].y = result[k], ch->out[k].t = p->tensors.at[result[k]].dt;
    find_choice(ch, &src, step);
    make_ops(&m, step);
    arena_back(&im->tmp, mark);
    if (d->st) return d->st;
    if (m.hard) return AN_OK;
    for (int k = 0; k < results; k++) {
        const etensor *t_k = &p->tensors.at[result[k]];
        dtype last = step[k] < 0 ? DT_NONE : (dtype)src.step[step[k] * CHAIN_STEP + STEP_TYPE];
        ch->out[k].how = (e->chip && last != t_k->dt) || t_k->dt == DT_BOOL ? how_of(&m, t_k->dt, port) : 0;
        const int64_t bytes = et_elems(t_k) * exec_size(t_k->dt);
        ch->out[k].stream = !port && exec_streams(e, bytes);
        ch->out[k].late =
            !port && t_k->where == SPACE_OUTPUT && bytes >= LATE_LEAST && exec_streams(e, outputs_bytes(p));
    }
    if (port && p->num.mac_flush != 0) ch->flush = 0x1p-14f;
    if (port && ceiling && dtype_is_float(ty->dt) && p->num.port_ceiling != 0) ch->ceiling = (float)p->num.port_ceiling;
    *out = ch;
    return exec_tape_make(im, ch, d);
}

size_t exec_chain_bytes(const exec_chain *ch)
{
    size_t blocks = (size_t)MAX(ch->n_reg, 1) * EXEC_BLOCK * sizeof(float);
    return ch->tape ? MAX(blocks, exec_tape_bytes(ch)) : blocks;
}

static bool streams(const exec_chain *ch)
{
    for (int k = 0; k < ch->n_out; k++)
        if (ch->out[k].stream || ch->out[k].late) return true;
    return false;
}

/* ---- running ---- */

static void scalar(const exec_chain *ch, const chain_op *o, float *y, const float *a, const float *b, const float *c,
                   int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double x[3] = { (double)a[i], (double)b[i], (double)c[i] };
        y[i] = (float)(ch->port ? num_fn_port(ch->num, o->f, x, o->param, o->t)
                                : num_fn(ch->num, o->f, x, o->param, o->t));
    }
}

/* The next block, asked for while this one is worked on: some lines of its operands between one operation and the
 * next, as many as are on their way at a time, so that memory and arithmetic run side by side. Past the end of a
 * tensor nothing is touched. */
typedef struct {
    int input;      /* whose turn it is */
    int64_t at;     /* bytes of it already asked for */
    int64_t share;  /* bytes between two operations */
} ahead;

static bool walks(const exec_walk *w) { return w->same && w->rank; }

static ahead ahead_of(const exec_chain *ch, int64_t n)
{
    int64_t bytes = 0, work = 0;
    for (int i = 0; i < ch->n_in; i++) bytes += walks(&ch->in[i]) ? n * exec_size(ch->in[i].t) : 0;
    for (int k = 0; k < ch->n_ops; k++) work += ch->ops[k].kind != OP_READ || ch->in[ch->ops[k].input].t != DT_F32;
    return (ahead){ .share = ROUND_UP(bytes / MAX(work, 1) + 1, (int64_t)EXEC_LINE) };
}

static void look_ahead(const exec_chain *ch, const run_ctx *c, ahead *a, int64_t at, int64_t n)
{
    for (int64_t left = a->share; left > 0 && a->input < ch->n_in;) {
        const exec_walk *w = &ch->in[a->input];
        int64_t bytes = walks(w) ? n * exec_size(w->t) : 0, to = MIN(bytes, a->at + left);
        const char *x = (const char *)ctx_mem(c, w->tensor) + (at + n) * exec_size(w->t);
        for (left -= to - a->at; a->at < to; a->at += EXEC_LINE) EXEC_PREFETCH(x + a->at);
        if (a->at >= bytes) a->input++, a->at = 0;
    }
}

static bool aligned(const void *p) { return (uintptr_t)p % sizeof(float) == 0; }

/* Registers of a block under way. An operand that is one value all along stays a number as long as it can. */
typedef struct {
    const vec_kernels *v;
    float *buf;
    int64_t n;
    const float *at[CHAIN_REGS];
    bool one[CHAIN_REGS];
    float value[CHAIN_REGS];
} registers;

static const float *spread(registers *r, int k)
{
    if (r->one[k]) {
        float *to = r->buf + k * EXEC_BLOCK;
        r->v->fill(to, r->value[k], r->n);
        r->at[k] = to, r->one[k] = false;
    }
    return r->at[k];
}

static void run_vector(registers *r, const chain_op *o, float *to)
{
    vec_fn f = o->vf;
    bool swaps = f == VF_ADD || f == VF_MUL;
    if ((swaps || f == VF_SUB) && r->one[o->b] && !r->one[o->a]) { /* x - v is x + -v, bit for bit */
        float p = f == VF_SUB ? -r->value[o->b] : r->value[o->b];
        r->v->fn[f == VF_MUL ? VF_MUL_P : VF_ADD_P](to, r->at[o->a], NULL, NULL, &p, r->n);
    } else if (swaps && r->one[o->a] && !r->one[o->b])
        r->v->fn[f == VF_MUL ? VF_MUL_P : VF_ADD_P](to, r->at[o->b], NULL, NULL, &r->value[o->a], r->n);
    else r->v->fn[f](to, spread(r, o->a), spread(r, o->b), spread(r, o->c), o->p, r->n);
}

/* Does result k lie where an operand was read? */
static bool over_operand(const exec_chain *ch, const run_ctx *c, int k)
{
    const void *y = ctx_mem(c, ch->out[k].y);
    for (int i = 0; i < ch->n_in; i++)
        if (!ch->in[i].idle && ctx_mem(c, ch->in[i].tensor) == y) return true;
    return false;
}

/* What is written beside states that are updated in place is read as they are, by the next dispatch: all of them
 * have been written by then. */
bool exec_chain_past(const exec_chain *ch, const run_ctx *c, int k)
{
    bool beside = false;
    if (!(ch->out[k].stream || ch->out[k].late) || over_operand(ch, c, k)) return false;
    for (int i = 0; ch->out[k].late && !beside && i < ch->n_out; i++) beside = over_operand(ch, c, i);
    return ch->out[k].stream || beside;
}

/* All results are stored when all is computed: a result may lie where an operand did. */
static void store_results(const exec_chain *ch, const run_ctx *c, registers *r, int64_t at)
{
    const vec_kernels *v = ch->env->v;
    for (int k = 0; k < ch->n_out; k++) {
        unsigned char *y = (unsigned char *)ctx_mem(c, ch->out[k].y) + at * exec_size(ch->out[k].t);
        const float *x = spread(r, ch->out[k].reg);
        if (ch->out[k].how || ch->ceiling > 0) {
            float *to = r->buf + ch->out[k].reg * EXEC_BLOCK;
            v->load(to, DT_F32, x, r->n);
            v->round(to, ch->out[k].how, r->n);
            if (ch->ceiling > 0) v->ceiling(to, ch->ceiling, r->n);
            x = to;
        }
        if (exec_chain_past(ch, c, k)) v->stream(y, ch->out[k].t, x, r->n);
        else v->store(y, ch->out[k].t, x, r->n);
    }
}

static void run_block(const exec_chain *ch, const run_ctx *c, const float *acc, int64_t at, int64_t n, void *scratch)
{
    const vec_kernels *v = ch->env->v;
    registers r; /* most of it stays as it is: clearing it would take as long as a pass over a block */
    r.v = v, r.buf = scratch, r.n = n;
    int64_t y_bytes = n * exec_size(ch->out[0].t);
    unsigned char *y = (unsigned char *)ctx_mem(c, ch->out[0].y) + at * exec_size(ch->out[0].t);
    /* an only result goes where it is wanted, when nothing is left to be done with it */
    bool straight = ch->n_out == 1 && ch->out[0].t == DT_F32 && !ch->out[0].how && !(ch->ceiling > 0) && aligned(y) &&
                    !ch->out[0].stream;
    ahead next = ahead_of(ch, n);
    if (ch->port) {
        r.at[0] = acc, r.one[0] = false;
        if (ch->flush > 0) {
            v->load(r.buf, DT_F32, acc, n);
            v->flush(r.buf, ch->flush, n);
            r.at[0] = r.buf;
        }
    }
    for (int k = 0; k < ch->n_ops; k++) {
        const chain_op *o = &ch->ops[k];
        float *to = r.buf + o->y * EXEC_BLOCK;
        const exec_walk *w;
        const unsigned char *x;
        switch (o->kind) {
        case OP_READ:
            w = &ch->in[o->input], x = ctx_mem(c, w->tensor);
            if (!w->same || !w->rank) {
                if ((r.one[o->y] = exec_one_value(ch->env, w, x, at, n, &r.value[o->y]))) continue;
            }
            if (w->same && w->rank && w->t == DT_F32 && !ch->env->chip && aligned(x)) {
                r.at[o->y] = (const float *)(const void *)x + at; /* read in place */
                r.one[o->y] = false;
                continue;
            }
            exec_read(ch->env, w, x, at, to, n);
            break;
        case OP_VECTOR:
            if (straight && k == ch->n_ops - 1 && o->y == ch->out[0].reg) to = (float *)(void *)y;
            run_vector(&r, o, to);
            break;
        case OP_TABLE: v->table(to, spread(&r, o->a), o->table, n); break;
        case OP_ROUND: v->round(to, o->how, n); break;
        case OP_SCALAR: scalar(ch, o, to, spread(&r, o->a), spread(&r, o->b), spread(&r, o->c), n); break;
        }
        r.at[o->y] = to, r.one[o->y] = false;
        look_ahead(ch, c, &next, at, n);
    }
    for (int64_t i = 0; !ch->out[0].stream && i < y_bytes; i += EXEC_LINE) EXEC_PREFETCH_W(y + y_bytes + i);
    store_results(ch, c, &r, at);
}

void exec_chain_block(const exec_chain *ch, const run_ctx *c, const float *acc, int64_t at, int64_t n, void *scratch)
{
    if (ch->tape) exec_tape_run(ch, c, acc, at, n, scratch);
    else run_block(ch, c, acc, at, n, scratch);
}

/* Is it the old values? Then they are the results: all of a piece are read before one is written, for a result may
 * lie where another one's old value does. */
static bool stays(const exec_chain *ch, const run_ctx *c, int64_t at, int64_t n)
{
    enum { PIECE = 1024 };
    char kept[CHAIN_MOST_RESULTS][PIECE];
    float yes = 1;
    if (ch->when >= 0) ch->env->v->load(&yes, ch->in[ch->when].t, ctx_mem(c, ch->in[ch->when].tensor), 1);
    if (yes != 0) return false;
    for (int64_t end = at + n, len; at < end; at += len) {
        len = MIN(end - at, (int64_t)(PIECE / sizeof(float)));
        for (int k = 0; k < ch->n_out; k++) {
            size_t size = (size_t)exec_size(ch->out[k].t);
            memcpy(kept[k], (const char *)ctx_mem(c, ch->in[ch->out[k].old].tensor) + (size_t)at * size,
                   (size_t)len * size);
        }
        for (int k = 0; k < ch->n_out; k++) {
            size_t size = (size_t)exec_size(ch->out[k].t);
            memcpy((char *)ctx_mem(c, ch->out[k].y) + (size_t)at * size, kept[k], (size_t)len * size);
        }
    }
    return true;
}

void exec_chain_span(const exec_chain *ch, const run_ctx *c, int64_t at, int64_t n, void *scratch)
{
    if (stays(ch, c, at, n)) return;
    if (ch->tape) exec_tape_run(ch, c, NULL, at, n, scratch);
    else
        for (int64_t i = 0; i < n; i += EXEC_BLOCK) run_block(ch, c, NULL, at + i, MIN(n - i, EXEC_BLOCK), scratch);
    if (streams(ch)) ch->env->v->fence();
}
