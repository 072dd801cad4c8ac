/* exec_attend_few.c: attention of one or a few queries with positions on the plain processor: the next tokens of a
 * text. In: q, k, v, positions.  Out: softmax(q·k^T*scale)·v over the keys each query sees.
 *
 * Nothing is worth packing here: every key and value is used once per query. A task is one query of one stack; it
 * reads only the keys and values the query sees, in the order they lie. */
#include <math.h>

#include "engine/exec_attend_int.h"
#include "kernel/gemv.h"

enum { QUERIES = GEMV_COLUMNS };

struct attend_few {
    const exec_env *env;
    const gemv_kernel *g;
    int64_t y, q, k, v, pos, window;
    attend_shape a;
    dtype tq, tk, tv, ty;
    size_t at_q, at_out, at_score, each; /* scratch of a thread */
};

static void add(size_t *sum, size_t n, size_t *at) { *at = *sum, *sum += ROUND_UP(n * sizeof(float), (size_t)64); }

an_status attend_few_make(image *im, const insn *in, const attend_shape *a, attend_few **out, diag *d)
{
    const etensor *t = im->p->tensors.at;
    attend_few s = { .env = im->exec, .y = insn_t(in, "y"), .q = insn_t(in, "q"), .k = insn_t(in, "k"),
                     .v = insn_t(in, "v"), .pos = insn_t(in, "pos"), .window = insn_i(in, "window"), .a = *a };
    size_t n = 0, all;
    *out = NULL;
    if (a->rows > QUERIES || (a->turned && a->rows > 1)) return AN_OK;
    s.g = gemv_pick(s.env->isa);
    s.tq = t[s.q].dt, s.tk = t[s.k].dt, s.tv = t[s.v].dt, s.ty = t[s.y].dt;
    add(&n, (size_t)a->inner, &s.at_q), add(&n, (size_t)a->cols, &s.at_out), add(&n, (size_t)a->keys, &s.at_score);
    s.each = n;
    if (!mul_size(n, (size_t)s.env->threads, &all)) return AN_OK;
    exec_need_work(im, all);
    if (!(*out = TAKE(&im->prepared, attend_few, 1))) return diag_nomem(d);
    **out = s;
    return AN_OK;
}

typedef struct {
    const run_ctx *c;
    const attend_few *s;
    keys_seen by_row[QUERIES];
} job;

static void query_task(void *ctx, int64_t task, int thread)
{
    const job *j = ctx;
    const attend_few *s = j->s;
    const attend_shape *a = &s->a;
    const vec_kernels *v = s->env->v;
    int64_t stack = task / a->rows, row = task % a->rows, first = j->by_row[row].first, n = j->by_row[row].end - first;
    unsigned char *mem = (unsigned char *)j->c->work + (size_t)thread * s->each;
    float *q = (float *)(void *)(mem + s->at_q), *out = (float *)(void *)(mem + s->at_out),
          *score = (float *)(void *)(mem + s->at_score);
    const unsigned char *at_q =
        (const unsigned char *)ctx_mem(j->c, s->q) + (a->q_off[stack] + row * a->inner) * exec_size(s->tq);
    const unsigned char *at_k =
        (const unsigned char *)ctx_mem(j->c, s->k) + (a->k_off[stack] + first * a->inner) * exec_size(s->tk);
    const unsigned char *at_v =
        (const unsigned char *)ctx_mem(j->c, s->v) + (a->v_off[stack] + first * a->cols) * exec_size(s->tv);
    v->load(q, s->tq, at_q, a->inner);
    v->fn[VF_MUL_P](q, q, NULL, NULL, &a->scale, a->inner);
    gemv_scores(s->g, s->tk, at_k, n, a->inner, q, score, at_v);
    float most = v->along(DT_F32, score, STAT_MOST, 0, -INFINITY, n),
          by = 1 / v->exps(score, DT_F32, score, most, n, 0);
    const int64_t after = MIN(task + 1, a->stacks * a->rows - 1) / a->rows; /* most likely this thread's next stack */
    gemv_mix(s->g, s->tv, at_v, n, a->cols, score, out,
             (const unsigned char *)ctx_mem(j->c, s->k) + (a->k_off[after] + first * a->inner) * exec_size(s->tk));
    v->fn[VF_MUL_P](out, out, NULL, NULL, &by, a->cols);
    v->store((unsigned char *)ctx_mem(j->c, s->y) + (stack * a->rows + row) * a->cols * exec_size(s->ty), s->ty, out,
             a->cols);
}

void attend_few_run(const run_ctx *c, const attend_few *s)
{
    job j = { .c = c, .s = s };
    for (int64_t i = 0; i < s->a.rows; i++)
        j.by_row[i] = ref_sees(dtype_load(ctx_tensor(c, s->pos)->dt, ctx_mem(c, s->pos), i), s->a.keys, s->window);
    pool_run(c->pool, query_task, &j, s->a.stacks * s->a.rows);
}
