/* exec_rope.c: channels turned in pairs on the plain processor. In: x [stacks, channels, columns], cosines and
 * sines.  Out: y, the reference's bits. y may lie where x does: a pair is read before it is written. */
#include "engine/exec_int.h"

enum { ALONE = 1 << 14 }; /* elements: fewer are done before another thread has come */

typedef struct {
    const exec_env *env;
    int64_t y, x, co, si, pairs, n, period;
    int64_t all, parts; /* pairs of all stacks; tasks */
    vec_turn how;
    bool half;
    bool beside; /* pairs of one column, by the kernel that takes them side by side */
} state;

typedef struct {
    const run_ctx *c;
    const state *s;
} job;

static bool wide_or_bf16(dtype t) { return t == DT_F32 || t == DT_BF16; }

static bool knows(const vec_turn *k)
{
    if (k->table == DT_F32) return wide_or_bf16(k->x) && wide_or_bf16(k->y);
    return (k->table == DT_F16 || k->table == DT_BF16) && k->x == k->table && k->y == k->table;
}

static an_status prepare(image *im, const insn *in, void **out, diag *d)
{
    exec_env *e;
    TRY(exec_open(im, &e, d));
    const etensor *t = im->p->tensors.at, *x = &t[insn_t(in, "x")], *co = &t[insn_t(in, "cos")];
    const vec_turn how = { .y = t[insn_t(in, "y")].dt,
                           .x = x->dt,
                           .table = co->dt,
                           .back = insn_i(in, "back"),
                           .scale = (float)insn_f(in, "scale") };
    if (!e->fast || e->chip || t[insn_t(in, "sin")].dt != how.table || !knows(&how)) return AN_OK;
    state *s = TAKE(&im->prepared, state, 1);
    if (!s) return diag_nomem(d);
    *s = (state){ .env = e, .y = insn_t(in, "y"), .x = insn_t(in, "x"), .co = insn_t(in, "cos"), .si = insn_t(in, "sin"), .pairs = x->dim[1] / 2, .n = x->dim[2],
                  .period = co->dim[1], .how = how, .half = insn_i(in, "half") };
    s->beside = s->n == 1 && how.y == how.table && how.x == how.table && how.scale == 1;
    s->all = x->dim[0] * s->pairs, s->parts = et_elems(x) < ALONE ? 1 : e->threads;
    *out = s;
    return AN_OK;
}

/* One column, so all channels of a stack are a row: as few calls as stacks. */
static void turn_one(const state *s, unsigned char *y, const unsigned char *x, const unsigned char *co,
                     const unsigned char *si)
{
    const int64_t size = exec_size(s->how.table), high = s->pairs * size;
    for (int64_t i = 0; i < s->all / s->pairs; i++, y += 2 * high, x += 2 * high)
        if (s->half) s->env->v->turn(y, y + high, x, x + high, co, si, &s->how, s->pairs);
        else s->env->v->turn_beside(y, x, co, si, s->how.table, s->how.back, 2 * s->pairs);
}

/* Pairs first .. of all stacks: rows, as the products that made them are shared out among threads, and heads after
 * them. */
static void task(void *ctx, int64_t part, int thread)
{
    const job *j = ctx;
    const state *s = j->s;
    const int64_t in = exec_size(s->how.x), out = exec_size(s->how.y), table = exec_size(s->how.table),
                  apart = (s->half ? s->pairs : 1) * s->n;
    unsigned char *y = ctx_mem(j->c, s->y);
    const unsigned char *x = ctx_mem(j->c, s->x), *co = ctx_mem(j->c, s->co), *si = ctx_mem(j->c, s->si);
    (void)thread;
    for (int64_t p = s->all * part / s->parts; p < s->all * (part + 1) / s->parts; p++) {
        const int64_t i = p % s->pairs, row = s->half ? i : 2 * i, angle = row * s->period * table,
                      a = ((p - i) * 2 + row) * s->n, b = a + apart;
        for (int64_t k = 0; k < s->n; k += s->period)
            s->env->v->turn(y + (a + k) * out, y + (b + k) * out, x + (a + k) * in, x + (b + k) * in, co + angle,
                            si + angle, &s->how, s->period);
    }
}

static an_status run(const run_ctx *c, const insn *in, diag *d)
{
    job j = { .c = c, .s = c->state };
    if (!j.s) return ref_rope(c, in, d);
    if (j.s->beside) turn_one(j.s, ctx_mem(c, j.s->y), ctx_mem(c, j.s->x), ctx_mem(c, j.s->co), ctx_mem(c, j.s->si));
    else pool_run(c->pool, task, &j, j.s->parts);
    return AN_OK;
}

const exec_entry exec_rope = { .run = run, .prepare = prepare };
