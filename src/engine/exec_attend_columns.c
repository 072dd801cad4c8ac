/* exec_attend_columns.c: attention of many queries on the plain processor, with a query in every column.
 * In: q, k, v and perhaps the word causal.  Out: softmax(q·k^T*scale)·v.
 *
 * A task takes one matrix of keys and values, or a share of its queries. Both are packed once; then, for some queries at a
 * time, k·q^T has a row per key and a column per query, so that the largest, the exponentials and their sums run down columns,
 * every lane a query of its own, and the weights are already what v^T·weights wants on its right. Only the scores of those
 * queries ever exist. With causal, keys after the last query at hand are not looked at, and what lies above the diagonal is
 * minus infinity. How queries are shared out among tasks changes nothing in what is added to what. */
#include <math.h>
#include <stdatomic.h>

#include "engine/exec_attend_int.h"

enum { QUERIES = 64 }; /* at a time: their scores against a thousand keys stay in the second cache */

struct attend_columns {
    const exec_env *env;
    int64_t y, q, k, v, stacks, rows, keys, inner, cols, blocks, parts;
    const int64_t *q_off, *k_off, *v_off;
    dtype tq, tk, tv, ty;
    bool causal;
    float scale;
    const gemm_kernel *scores, *values;
    size_t at_pack, at_values, at_score, at_out, at_turned, at_line, at_scratch, scratch_bytes, each;
};

static void add(size_t *sum, size_t bytes, size_t *at) { *at = *sum, *sum += ROUND_UP(bytes, (size_t)64); }

static int64_t seen_by(const attend_columns *s, int64_t block) /* keys the last query of a block sees */
{
    return s->causal ? MIN(s->keys, MIN((block + 1) * QUERIES, s->rows)) : s->keys;
}

static bool lay_out(attend_columns *s)
{
    size_t pack, values, a, b, n = 0;
    if (s->keys > INT32_MAX / 4 || s->cols > INT32_MAX / 4) return false;
    if (!gemm_pack_a_bytes(s->scores, s->keys, s->inner, &pack) || !gemm_pack_a_bytes(s->values, s->cols, s->keys, &values)) return false;
    for (int64_t i = 0; i < s->blocks; i++) {
        int64_t queries = MIN(QUERIES, s->rows - i * QUERIES), seen = seen_by(s, i);
        if (!gemm_scratch_bytes(s->scores, seen, queries, s->inner, 1, &a) || !gemm_scratch_bytes(s->values, s->cols, queries, seen, 1, &b)) return false;
        s->scratch_bytes = MAX(s->scratch_bytes, MAX(a, b));
    }
    add(&n, pack, &s->at_pack), add(&n, values, &s->at_values), add(&n, (size_t)(s->keys * QUERIES) * sizeof(float), &s->at_score);
    add(&n, (size_t)(s->cols * QUERIES) * sizeof(float), &s->at_out), add(&n, (size_t)(s->cols * QUERIES) * sizeof(float), &s->at_turned);
    add(&n, 2 * QUERIES * sizeof(float), &s->at_line), add(&n, s->scratch_bytes, &s->at_scratch);
    s->each = n;
    return n <= SIZE_MAX / 4 / (size_t)s->env->threads;
}

an_status attend_columns_make(image *im, const insn *in, const attend_shape *a, attend_columns **out, diag *d)
{
    *out = NULL;
    if (a->rows < QUERIES / 2 || !(a->scale > 0)) return AN_OK;
    attend_columns s = { .env = im->exec, .y = insn_t(in, "y"), .q = insn_t(in, "q"), .k = insn_t(in, "k"), .v = insn_t(in, "v"), .stacks = a->stacks, .rows = a->rows,
                         .keys = a->keys, .inner = a->inner, .cols = a->cols, .q_off = a->q_off, .k_off = a->k_off, .v_off = a->v_off, .causal = a->causal, .scale = a->scale };
    const etensor *t = im->p->tensors.at;
    s.tq = t[s.q].dt, s.tk = t[s.k].dt, s.tv = t[s.v].dt, s.ty = t[s.y].dt;
    s.scores = s.values = gemm_pick(a->bf16 ? GEMM_BF16 : GEMM_F32, s.env->isa);
    s.blocks = (s.rows + QUERIES - 1) / QUERIES;
    s.parts = MIN(s.blocks, (2 * s.env->threads + s.stacks - 1) / s.stacks);
    if (!lay_out(&s)) return AN_OK;
    exec_need_work(im, s.each * (size_t)s.env->threads);
    if (!(*out = TAKE(&im->prepared, attend_columns, 1))) return diag_nomem(d);
    **out = s;
    return AN_OK;
}

typedef struct {
    const run_ctx *c;
    const attend_columns *s;
    atomic_int failed;
} job;

/* Queries i0 .. i0 + n of one matrix, against the keys 0 .. seen. */
typedef struct {
    const attend_columns *s;
    int64_t i0, n, seen, most_seen; /* most_seen: keys packed for the task */
    unsigned char *mem, *y;
    float *score, *out, *turned, *most, *sum;
    const unsigned char *q, *v;
} block;

/* Keys a query does not see count as nothing, even where v holds no number: sum such a query again. */
static void mend(const block *b)
{
    const attend_columns *s = b->s;
    for (int64_t j = 0; j < s->cols; j++)
        for (int64_t i = 0; i < b->n; i++) {
            float *o = &b->out[j * b->n + i], acc = 0;
            if (isfinite(*o)) continue;
            for (int64_t l = 0; l < MIN(b->seen, b->i0 + i + 1); l++) acc = fmaf(b->score[l * b->n + i], (float)dtype_load(s->tv, b->v, l * s->cols + j), acc);
            *o = acc;
        }
}

static an_status attend_block(const block *b, diag *d)
{
    const attend_columns *s = b->s;
    const vec_kernels *v = s->env->v;
    int64_t n = b->n, row = n * (int64_t)sizeof(float);
    gemm_call g = { .kernel = s->scores, .m = b->seen, .n = n, .k = s->inner, .a = b->mem + s->at_pack, .b = { .at = b->q, .type = s->tq, .row = 1, .col = s->inner },
                    .c = b->score, .c_type = DT_F32, .ldc = n, .scratch = b->mem + s->at_scratch, .scratch_bytes = s->scratch_bytes };
    TRY(gemm_run(&g, d));
    for (int64_t l = b->i0 + 1; s->causal && l < b->seen; l++) v->fill(b->score + l * n, -INFINITY, MIN(l - b->i0, n));
    v->fill(b->most, -INFINITY, n), v->fill(b->sum, 0, n);
    v->down(b->most, DT_F32, b->score, STAT_MOST, NULL, b->seen, row, n, NULL, DT_F32);
    v->exps_down(b->score, DT_F32, b->score, b->most, s->scale, b->sum, b->seen, row, n);
    g = (gemm_call){ .kernel = s->values, .m = s->cols, .n = n, .k = b->seen, .a = b->mem + s->at_values, .a_k = b->most_seen,
                     .b = { .at = b->score, .type = DT_F32, .row = n, .col = 1 }, .c = b->out, .c_type = DT_F32, .ldc = n, .scratch = g.scratch, .scratch_bytes = g.scratch_bytes };
    TRY(gemm_run(&g, d));
    if (s->causal && !(v->largest(b->out, s->cols * n) < INFINITY)) mend(b);
    v->transpose(b->turned, s->cols, b->out, n, n, s->cols, sizeof(float));
    for (int64_t i = 0; i < n; i++) {
        float *o = b->turned + i * s->cols, by = 1 / b->sum[i];
        v->fn[VF_MUL_P](o, o, NULL, NULL, &by, s->cols);
    }
    v->store(b->y + b->i0 * s->cols * exec_size(s->ty), s->ty, b->turned, n * s->cols);
    return AN_OK;
}

static void part_task(void *ctx, int64_t task, int thread)
{
    job *j = ctx;
    const attend_columns *s = j->s;
    diag d = { 0 };
    int64_t stack = task / s->parts, part = task % s->parts, last = s->blocks - 1 - part; /* every parts-th block, the longest first */
    unsigned char *mem = (unsigned char *)j->c->work + (size_t)thread * s->each;
    block b = { .s = s, .mem = mem, .score = (float *)(void *)(mem + s->at_score), .out = (float *)(void *)(mem + s->at_out), .turned = (float *)(void *)(mem + s->at_turned) };
    b.most = (float *)(void *)(mem + s->at_line), b.sum = b.most + QUERIES;
    const unsigned char *k = (const unsigned char *)ctx_mem(j->c, s->k) + s->k_off[stack] * exec_size(s->tk);
    const unsigned char *q = (const unsigned char *)ctx_mem(j->c, s->q) + s->q_off[stack] * exec_size(s->tq);
    b.v = (const unsigned char *)ctx_mem(j->c, s->v) + s->v_off[stack] * exec_size(s->tv);
    b.y = (unsigned char *)ctx_mem(j->c, s->y) + stack * s->rows * s->cols * exec_size(s->ty);
    b.most_seen = seen_by(s, last);
    if (gemm_pack_a(s->scores, NULL, b.most_seen, s->inner, (gemm_view){ .at = k, .type = s->tk, .row = s->inner, .col = 1 }, mem + s->at_pack, &d) ||
        gemm_pack_a(s->values, NULL, s->cols, b.most_seen, (gemm_view){ .at = b.v, .type = s->tv, .row = 1, .col = s->cols }, mem + s->at_values, &d))
        atomic_store(&j->failed, 1);
    for (int64_t i = last; i >= 0 && !d.st; i -= s->parts) {
        b.i0 = i * QUERIES, b.n = MIN(QUERIES, s->rows - b.i0), b.seen = seen_by(s, i), b.q = q + b.i0 * s->inner * exec_size(s->tq);
        if (attend_block(&b, &d)) atomic_store(&j->failed, 1);
    }
}

an_status attend_columns_run(const run_ctx *c, const insn *in, const attend_columns *s, diag *d)
{
    job j = { .c = c, .s = s };
    pool_run(c->pool, part_task, &j, s->stacks * s->parts);
    return atomic_load(&j.failed) ? diag_fail(d, AN_BUG, (loc){ .line = in->line }, "attend: a matrix kernel refused its operands") : AN_OK;
}
