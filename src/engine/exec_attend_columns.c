/* exec_attend_columns.c: attention of many queries on the plain processor, with a query in every column.
 * In: q, k, v and perhaps the word causal, with the position of the first query.  Out: softmax(q·k^T*scale)·v.
 *
 * A task takes one matrix of keys and values, or a share of its queries. Both are packed once; then, for some
 * queries at a time, k·q^T has a row per key and a column per query, so that the largest, the exponentials and their
 * sums run down columns, every lane a query of its own, and the weights are already what v^T·weights wants on its
 * right. Only the scores of those queries ever exist. With causal, keys after the last query at hand are not looked
 * at, in steps of KEY_STEP, and what lies above the diagonal is minus infinity. How queries are shared out among
 * tasks changes nothing in what is added to what. */
#include <math.h>
#include <stdatomic.h>

#include "engine/exec_attend_int.h"

enum {
    QUERIES = 64, /* at a time: their scores against a thousand keys stay in the second cache */
    /* a multiple of what any kernel takes of k at once: the beginning of packed values is enough for those who see
     * less */
    KEY_STEP = 64
};

struct attend_columns {
    const exec_env *env;
    attend_shape a;
    int64_t y, q, k, v, blocks, parts;
    dtype tq, tk, tv, ty;
    const gemm_kernel *g;
    size_t at_keys, at_values, at_queries, at_weights, at_score, at_out, at_turned, at_line, at_scratch, scratch_bytes,
        each;
};

static void add(size_t *sum, size_t bytes, size_t *at) { *at = *sum, *sum += ROUND_UP(bytes, (size_t)64); }

static bool lay_out(attend_columns *s)
{
    const attend_shape *a = &s->a;
    size_t keys, values, queries, weights, x, y, n = 0;
    if (a->keys > INT32_MAX / 4 || a->cols > INT32_MAX / 4) return false;
    if (!gemm_pack_a_bytes(s->g, a->keys, a->inner, &keys) || !gemm_pack_a_bytes(s->g, a->cols, a->keys, &values))
        return false;
    if (!gemm_pack_b_bytes(s->g, QUERIES, a->inner, &queries) || !gemm_pack_b_bytes(s->g, QUERIES, a->keys, &weights))
        return false;
    if (!gemm_packed_scratch_bytes(s->g, QUERIES, a->inner, &x) ||
        !gemm_packed_scratch_bytes(s->g, QUERIES, a->keys, &y))
        return false;
    s->scratch_bytes = MAX(x, y);
    add(&n, keys, &s->at_keys), add(&n, values, &s->at_values), add(&n, queries, &s->at_queries),
        add(&n, weights, &s->at_weights);
    add(&n, (size_t)(a->keys * QUERIES) * sizeof(float), &s->at_score),
        add(&n, (size_t)(a->cols * QUERIES) * sizeof(float), &s->at_out);
    add(&n, a->turned ? 0 : (size_t)(a->cols * QUERIES) * sizeof(float), &s->at_turned);
    add(&n, 2 * QUERIES * sizeof(float), &s->at_line), add(&n, s->scratch_bytes, &s->at_scratch);
    s->each = n;
    return n <= SIZE_MAX / 4 / (size_t)s->env->threads;
}

an_status attend_columns_make(image *im, const insn *in, const attend_shape *a, attend_columns **out, diag *d)
{
    *out = NULL;
    if (a->rows < QUERIES / 2 || !(a->scale > 0)) return AN_OK;
    attend_columns s = {
        .env = im->exec, .a = *a, .y = insn_t(in, "y"), .q = insn_t(in, "q"), .k = insn_t(in, "k"), .v = insn_t(in, "v")
    };
    const etensor *t = im->p->tensors.at;
    s.tq = t[s.q].dt, s.tk = t[s.k].dt, s.tv = t[s.v].dt, s.ty = t[s.y].dt;
    s.g = gemm_pick(a->bf16 ? GEMM_BF16 : GEMM_F32, s.env->isa);
    s.blocks = (a->rows + QUERIES - 1) / QUERIES;
    s.parts = MIN(s.blocks, (2 * s.env->threads + a->stacks - 1) / a->stacks);
    if (!lay_out(&s)) return AN_OK;
    exec_need_work(im, s.each * (size_t)s.env->threads);
    if (!(*out = TAKE(&im->prepared, attend_columns, 1))) return diag_nomem(d);
    **out = s;
    return AN_OK;
}

typedef struct {
    const run_ctx *c;
    const attend_columns *s;
    int64_t first; /* where query 0 stands among the keys */
    atomic_int failed;
} job;

static int64_t seen_by(const job *j, int64_t block) /* keys the last query of a block sees */
{
    const attend_shape *a = &j->s->a;
    return a->causal ? MIN(a->keys, ROUND_UP(j->first + MIN((block + 1) * QUERIES, a->rows), (int64_t)KEY_STEP))
                     : a->keys;
}

/* Queries i0 .. i0 + n of one matrix, against the keys 0 .. seen. */
typedef struct {
    const attend_columns *s;
    int64_t i0, n, seen, most_seen; /* most_seen: keys packed for the task */
    int64_t at;                     /* of query i0, among the keys */
    unsigned char *mem, *y;
    float *score, *out, *most, *sum;
    const unsigned char *q, *v;
    bool raw; /* scores are not weights yet */
} block;

/* Keys a query does not see count as nothing, even where v holds no number: sum such a query again, with the weights
 * scores stand for. */
static void mend(const block *b)
{
    const attend_columns *s = b->s;
    float again[QUERIES] = { 0 };
    if (b->raw)
        s->env->v->exps_down(b->score, DT_F32, b->score, b->most, s->a.scale, again, b->seen,
                             b->n * (int64_t)sizeof(float), b->n);
    for (int64_t j = 0; j < s->a.cols; j++)
        for (int64_t i = 0; i < b->n; i++) {
            float *o = &b->out[j * b->n + i], acc = 0;
            if (isfinite(*o)) continue;
            for (int64_t l = 0; l < MIN(b->seen, b->at + i + 1); l++)
                acc = fmaf(b->score[l * b->n + i], (float)dtype_load(s->tv, b->v, l * s->a.cols + j), acc);
            *o = acc;
        }
}

/* The sums, divided by those of the weights. */
static void put(const block *b)
{
    const attend_columns *s = b->s;
    const attend_shape *a = &s->a;
    const vec_kernels *v = s->env->v;
    const int64_t size = exec_size(s->ty);
    for (int64_t i = 0; i < b->n; i++) b->sum[i] = 1 / b->sum[i];
    if (a->turned) {
        v->affine_rows(b->y + b->i0 * size, s->ty, a->rows, b->out, DT_F32, b->n, &(vec_affine){ .scale = b->sum },
                       a->cols, b->n);
        return;
    }
    v->affine_rows(b->out, DT_F32, b->n, b->out, DT_F32, b->n, &(vec_affine){ .scale = b->sum }, a->cols, b->n);
    float *turned = (float *)(void *)(b->mem + s->at_turned);
    v->transpose(turned, a->cols, b->out, b->n, b->n, a->cols, sizeof(float));
    v->store(b->y + b->i0 * a->cols * size, s->ty, turned, b->n * a->cols);
}

static an_status attend_block(block *b, diag *d)
{
    const attend_columns *s = b->s;
    const attend_shape *a = &s->a;
    const vec_kernels *v = s->env->v;
    const int64_t n = b->n, row = n * (int64_t)sizeof(float);
    const gemm_view q = { .at = b->q, .type = s->tq, .row = a->turned ? a->rows : 1, .col = a->turned ? 1 : a->inner };
    TRY(gemm_pack_b(s->g, NULL, n, a->inner, q, b->mem + s->at_queries, d));
    gemm_call g = { .kernel = s->g,
                    .m = b->seen,
                    .n = n,
                    .k = a->inner,
                    .a = b->mem + s->at_keys,
                    .b_packed = b->mem + s->at_queries,
                    .c = b->score,
                    .c_type = DT_F32,
                    .ldc = n,
                    .scratch = b->mem + s->at_scratch,
                    .scratch_bytes = s->scratch_bytes };
    TRY(gemm_run(&g, d));
    for (int64_t l = b->at + 1; a->causal && l < b->seen; l++) v->fill(b->score + l * n, -INFINITY, MIN(l - b->at, n));
    v->fill(b->most, -INFINITY, n), v->fill(b->sum, 0, n);
    v->down(b->most, DT_F32, b->score, STAT_MOST, b->seen, row, n);
    b->raw = gemm_pack_weights(s->g, n, b->seen, b->score, b->most, a->scale, b->sum, b->mem + s->at_weights);
    if (!b->raw) {
        v->exps_down(b->score, DT_F32, b->score, b->most, a->scale, b->sum, b->seen, row, n);
        TRY(gemm_pack_b(s->g, NULL, n, b->seen, (gemm_view){ .at = b->score, .type = DT_F32, .row = n, .col = 1 },
                        b->mem + s->at_weights, d));
    }
    g = (gemm_call){ .kernel = s->g, .m = a->cols, .n = n, .k = b->seen, .a = b->mem + s->at_values,
                     .a_k = b->most_seen, .b_packed = b->mem + s->at_weights, .c = b->out, .c_type = DT_F32, .ldc = n,
                     .scratch = g.scratch, .scratch_bytes = g.scratch_bytes };
    TRY(gemm_run(&g, d));
    if (a->causal && !(v->largest(b->out, a->cols * n) < INFINITY)) mend(b);
    put(b);
    return AN_OK;
}

static void part_task(void *ctx, int64_t task, int thread)
{
    job *j = ctx;
    const attend_columns *s = j->s;
    const attend_shape *a = &s->a;
    diag d = { 0 };
    /* every parts-th block, the longest first */
    int64_t stack = task / s->parts, part = task % s->parts, last = s->blocks - 1 - part;
    unsigned char *mem = (unsigned char *)j->c->work + (size_t)thread * s->each;
    block b = {
        .s = s, .mem = mem, .score = (float *)(void *)(mem + s->at_score), .out = (float *)(void *)(mem + s->at_out)
    };
    b.most = (float *)(void *)(mem + s->at_line), b.sum = b.most + QUERIES;
    const unsigned char *k = (const unsigned char *)ctx_mem(j->c, s->k) + a->k_off[stack] * exec_size(s->tk);
    const unsigned char *q = (const unsigned char *)ctx_mem(j->c, s->q) + a->q_off[stack] * exec_size(s->tq);
    b.v = (const unsigned char *)ctx_mem(j->c, s->v) + a->v_off[stack] * exec_size(s->tv);
    b.y = (unsigned char *)ctx_mem(j->c, s->y) + stack * a->rows * a->cols * exec_size(s->ty);
    b.most_seen = seen_by(j, last);
    if (gemm_pack_a(s->g, NULL, b.most_seen, a->inner, (gemm_view){ .at = k, .type = s->tk, .row = a->inner, .col = 1 },
                    mem + s->at_keys, &d) ||
        gemm_pack_a(s->g, NULL, a->cols, b.most_seen, (gemm_view){ .at = b.v, .type = s->tv, .row = 1, .col = a->cols },
                    mem + s->at_values, &d))
        atomic_store(&j->failed, 1);
    for (int64_t i = last; i >= 0 && !d.st; i -= s->parts) {
        b.i0 = i * QUERIES, b.n = MIN(QUERIES, a->rows - b.i0), b.at = j->first + b.i0, b.seen = seen_by(j, i);
        b.q = q + b.i0 * (a->turned ? 1 : a->inner) * exec_size(s->tq);
        if (attend_block(&b, &d)) atomic_store(&j->failed, 1);
    }
}

an_status attend_columns_run(const run_ctx *c, const insn *in, const attend_columns *s, int64_t first, diag *d)
{
    job j = { .c = c, .s = s, .first = first };
    pool_run(c->pool, part_task, &j, s->a.stacks * s->parts);
    return atomic_load(&j.failed)
               ? diag_fail(d, AN_BUG, (loc){ .line = in->line }, "attend: a matrix kernel refused its operands")
               : AN_OK;
}
