/* exec_affine.c: to and from integers with a scale and a zero point. In: x, one scale or one per place of an axis.
 * Out: the reference's bits: a quotient or product of two fp32 numbers rounds once.
 *
 * Blocks of elements; scale and zero point are spread out beside them. What fp32 cannot hold goes element by
 * element. */
#include <math.h>

#include "engine/exec_int.h"

typedef struct {
    const exec_env *env;
    int64_t x, y, scale, zero; /* tensors; zero -1: none */
    dtype tx, ty;
    int64_t elems;
    exec_walk walk_x, walk_scale, walk_zero;
    bool to_int, vectors;
} state;

/* x is [outer, n, inner] around the axis; a vector of n stands along it. */
static exec_walk walk_along(const program *p, int64_t tensor, const axis_view *a)
{
    const etensor *t = &p->tensors.at[tensor];
    exec_walk w = { .tensor = tensor, .t = t->dt };
    if (et_elems(t) > 1)
        w = (exec_walk){
            .tensor = tensor, .t = t->dt, .rank = 3, .dim = { a->outer, a->n, a->inner }, .stride = { 0, 1, 0 }
        };
    if (w.rank && a->inner == 1) w.rank = 2;
    return w;
}

static an_status prepare(image *im, const insn *in, bool to_int, void **out, diag *d)
{
    exec_env *e;
    const program *p = im->p;
    int64_t axis = insn_i(in, "axis");
    TRY(exec_open(im, &e, d));
    state *s = TAKE(&im->prepared, state, 1);
    if (!s) return diag_nomem(d);
    *s = (state){ .env = e, .x = insn_t(in, "x"), .y = insn_t(in, "y"), .scale = insn_t(in, "scale"), .zero = insn_t(in, "zero"), .to_int = to_int };
    const etensor *x = &p->tensors.at[s->x];
    axis_view a = axis < 0 ? (axis_view){ 1, 1, et_elems(x) } : et_axis(x, axis);
    s->tx = x->dt, s->ty = p->tensors.at[s->y].dt, s->elems = et_elems(x);
    s->walk_x =
        (exec_walk){ .tensor = s->x, .t = s->tx, .rank = 1, .dim = { s->elems }, .stride = { 1 }, .same = true };
    s->walk_scale = walk_along(p, s->scale, &a);
    if (s->zero >= 0) s->walk_zero = walk_along(p, s->zero, &a);
    dtype tz = s->zero < 0 ? DT_I8 : s->walk_zero.t;
    bool small = to_int ? s->ty == DT_I8 || s->ty == DT_U8 : exec_stores(s->ty) && dtype_is_float(s->ty);
    s->vectors = e->fast && small && exec_loads(s->tx) && exec_loads(s->walk_scale.t) && (tz == DT_I8 || tz == DT_U8) &&
                 (to_int || !dtype_is_float(s->tx));
    if (dtype_bits(s->ty) < 8 || !e->fast) return AN_OK;
    /* rare: a wide type with a scale per channel */
    if (!s->vectors && et_elems(&p->tensors.at[s->scale]) > 1) return AN_OK;
    if (!s->vectors && s->zero >= 0 && et_elems(&p->tensors.at[s->zero]) > 1) return AN_OK;
    *out = s;
    return AN_OK;
}

typedef struct {
    const run_ctx *c;
    const state *s;
} job;

static void put_bytes(const float *x, const float *zero, float lo, float hi, bool is_signed, unsigned char *y,
                      int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float q = x[i] + zero[i];
        q = q >= lo ? (q <= hi ? q : hi) : q < lo ? lo : 0; /* what has no value is 0 */
        y[i] = is_signed ? (unsigned char)(int8_t)q : (unsigned char)q;
    }
}

static void block(const job *j, int64_t at, int64_t n)
{
    const state *s = j->s;
    const vec_kernels *v = s->env->v;
    float x[EXEC_BLOCK], scale[EXEC_BLOCK], zero[EXEC_BLOCK];
    exec_read(s->env, &s->walk_x, ctx_mem(j->c, s->x), at, x, n);
    exec_read(s->env, &s->walk_scale, ctx_mem(j->c, s->scale), at, scale, n);
    if (s->zero >= 0) exec_read(s->env, &s->walk_zero, ctx_mem(j->c, s->zero), at, zero, n);
    else v->fill(zero, 0, n);
    unsigned char *y = (unsigned char *)ctx_mem(j->c, s->y) + at * exec_size(s->ty);
    if (s->to_int) {
        v->fn[VF_DIV](x, x, scale, NULL, NULL, n);
        v->fn[VF_ROUND](x, x, NULL, NULL, NULL, n);
        put_bytes(x, zero, s->ty == DT_I8 ? -128 : 0, s->ty == DT_I8 ? 127 : 255, s->ty == DT_I8, y, n);
        return;
    }
    v->fn[VF_SUB](x, x, zero, NULL, NULL, n); /* exact: both are small integers */
    v->fn[VF_MUL](x, scale, x, NULL, NULL, n);
    if (s->env->chip) v->round(x, VR_CHIP | (s->ty == DT_F16 ? VR_F16 : s->ty == DT_BF16 ? VR_BF16 : 0), n);
    v->store(y, s->ty, x, n);
}

static double value(const job *j, int64_t t, int64_t i)
{
    dtype dt = ctx_tensor(j->c, t)->dt;
    return num_in(j->c->num, dt, dtype_load(dt, ctx_mem(j->c, t), i));
}

static void span(void *user, int64_t first, int64_t count, int thread)
{
    const job *j = user;
    const state *s = j->s;
    (void)thread;
    if (s->vectors) {
        for (int64_t i = 0; i < count; i += EXEC_BLOCK) block(j, first + i, MIN(EXEC_BLOCK, count - i));
        return;
    }
    double scale = value(j, s->scale, 0), zero = s->zero >= 0 ? value(j, s->zero, 0) : 0;
    for (int64_t i = first; i < first + count; i++)
        dtype_store(s->ty, ctx_mem(j->c, s->y), i,
                    num_round(j->c->num, s->ty, ref_affine(s->to_int, value(j, s->x, i), scale, zero)));
}

static an_status run(const run_ctx *c, const insn *in, diag *d)
{
    job j = { .c = c, .s = c->state };
    if (!j.s) return ref_entry_of(in->op)(c, in, d);
    exec_spans(c->pool, j.s->elems, 8192, span, &j);
    return AN_OK;
}

static an_status prepare_quant(image *im, const insn *in, void **out, diag *d) { return prepare(im, in, true, out, d); }
static an_status prepare_dequant(image *im, const insn *in, void **out, diag *d)
{
    return prepare(im, in, false, out, d);
}

const exec_entry exec_quant = { .run = run, .prepare = prepare_quant };
const exec_entry exec_dequant = { .run = run, .prepare = prepare_dequant };
