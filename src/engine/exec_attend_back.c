/* exec_attend_back.c: attention that is trained, on the plain processor: forward with its weights kept, and back, one matrix of weights
 * at a time; columns are positions.
 * In: q, k, v.  Out: the weights p, their use of v.  Back: and the gradient of the result.  Out: the gradients of q, k, v.
 *
 * A task takes one stack. Weights are made and used some rows at a time, while they are in the thread's cache. The gradient of the
 * weights exists for that stack alone, in the thread's second cache: it is made, turned into that of the scores row by row, and
 * multiplied by k and q at once. With a period nothing is looked at behind the diagonal, in
 * steps of a block: rows of a block see the keys up to its last row; columns of a block are seen from their first row on. How stacks
 * are shared out changes nothing in what is added to what. */
#include <math.h>
#include <stdatomic.h>

#include "engine/exec_int.h"

enum { BLOCK = 128 }; /* rows or columns at a time */

typedef struct {
    const exec_env *env;
    bool back;
    int64_t dq, dk, dv, p, q, k, v, y, stacks, rows, keys, width, cols, period; /* y: back, its gradient */
    const gemm_kernel *g;
    size_t at_score, at_line, at_scratch, scratch_bytes, each; /* scratch of a thread */
} state;

static void add(size_t *sum, size_t bytes, size_t *at) { *at = *sum, *sum += ROUND_UP(bytes, (size_t)64); }

static int64_t span(const state *s) { return s->period ? s->period : s->rows; } /* rows after which positions begin again */
static int64_t seen_by(const state *s, int64_t end) { return s->period ? MIN(end, s->keys) : s->keys; } /* keys, by the rows before place `end` of a span */

static bool need(state *s, int64_t m, int64_t n, int64_t k)
{
    size_t bytes;
    if (!gemm_scratch_bytes(s->g, m, n, k, 1, &bytes)) return false;
    s->scratch_bytes = MAX(s->scratch_bytes, bytes);
    return true;
}

static bool lay_out(image *im, state *s)
{
    size_t n = 0, all, score;
    if (s->rows > INT32_MAX / 4 || s->keys > INT32_MAX / 4 || !mul_size((size_t)s->rows, (size_t)s->keys, &score) || score > SIZE_MAX / 64) return false;
    for (int64_t i = 0; i < span(s); i += BLOCK) { /* each block sees another number of keys, and may be cut another way */
        const int64_t end = MIN(i + BLOCK, span(s)), seen = seen_by(s, end);
        if (!need(s, end - i, seen, s->back ? s->cols : s->width) || !need(s, s->back ? s->width : s->cols, end - i, seen)) return false;
    }
    for (int64_t j = 0; s->back && j < s->keys; j += BLOCK) {
        const int64_t wide = MIN(BLOCK, s->keys - j), high = s->period ? s->period - j : s->rows;
        if (!need(s, s->width, wide, high) || !need(s, s->cols, wide, high)) return false;
    }
    add(&n, s->back ? score * sizeof(float) : 0, &s->at_score), add(&n, (size_t)s->keys * sizeof(float), &s->at_line), add(&n, s->scratch_bytes, &s->at_scratch);
    s->each = n;
    if (!mul_size(n, (size_t)s->env->threads, &all) || all > SIZE_MAX / 4) return false;
    exec_need_work(im, all);
    return true;
}

static an_status prepare(image *im, const insn *in, void **out, diag *d)
{
    exec_env *e;
    const bool back = in->op == IN_ATTEND_BACK;
    state s = { .back = back, .p = insn_t(in, "p"), .q = insn_t(in, "q"), .k = insn_t(in, "k"), .v = insn_t(in, "v"), .y = insn_t(in, back ? "dy" : "y"), .period = insn_i(in, "period") };
    const etensor *t = im->p->tensors.at, *p = &t[s.p];
    if (back) s.dq = insn_t(in, "dq"), s.dk = insn_t(in, "dk"), s.dv = insn_t(in, "dv");
    const int64_t all[] = { s.p, s.q, s.k, s.v, s.y, back ? s.dq : s.p, back ? s.dk : s.p, back ? s.dv : s.p };
    TRY(exec_open(im, &e, d));
    if (!e->fast || e->chip) return AN_OK;
    for (size_t i = 0; i < COUNT(all); i++)
        if (t[all[i]].dt != DT_F32) return AN_OK;
    s.env = e, s.rows = p->dim[p->rank - 2], s.keys = p->dim[p->rank - 1], s.stacks = dims_product(p->dim, 0, p->rank - 2);
    s.width = t[s.q].dim[t[s.q].rank - 2], s.cols = t[s.v].dim[t[s.v].rank - 2];
    s.g = gemm_pick(im->opt.fast_math ? GEMM_BF16 : GEMM_F32, e->isa);
    if (!s.stacks || !s.rows || !s.keys || !s.width || !s.cols || !lay_out(im, &s)) return AN_OK;
    state *keep = TAKE(&im->prepared, state, 1);
    if (!keep) return diag_nomem(d);
    *keep = s;
    *out = keep;
    return AN_OK;
}

typedef struct {
    const run_ctx *c;
    const state *s;
    atomic_int failed;
} job;

/* c = a·b, both as they lie; more: added to what is there. */
static bool product(const state *s, unsigned char *scratch, int64_t m, int64_t n, int64_t k, gemm_view a, gemm_view b, float *c, int64_t ldc, bool more)
{
    diag d = { 0 };
    return !gemm_run(&(gemm_call){ .kernel = s->g, .m = m, .n = n, .k = k, .a_view = a, .b = b, .c = c, .c_type = DT_F32, .ldc = ldc, .epi.accumulate = more,
                                   .scratch = scratch, .scratch_bytes = s->scratch_bytes }, &d);
}

static gemm_view view(const float *at, int64_t row, int64_t col) { return (gemm_view){ .at = at, .type = DT_F32, .row = row, .col = col }; }

/* Row i of the scores' gradient, in place of the weights'; zero from `seen` on. */
static void through_softmax(const state *s, const float *p, float *dp, float *line, int64_t own, int64_t seen)
{
    const vec_kernels *v = s->env->v;
    v->fn[VF_MUL](line, p, dp, NULL, NULL, own);
    const float less = -v->along(DT_F32, line, STAT_SUM, 0, 0, own);
    v->fn[VF_ADD_P](dp, dp, NULL, NULL, &less, own);
    v->fn[VF_MUL](dp, dp, p, NULL, NULL, own);
    if (own < seen) memset(dp + own, 0, sizeof *dp * (size_t)(seen - own));
}

/* A row of scores becomes weights; zero from `own` on. */
static void softmax_row(const state *s, float *p, int64_t own)
{
    const vec_kernels *v = s->env->v;
    const float most = v->along(DT_F32, p, STAT_MAX, 0, -INFINITY, own), by = 1 / v->exps(p, DT_F32, p, most, own, 0);
    v->fn[VF_MUL_P](p, p, NULL, NULL, &by, own);
    memset(p + own, 0, sizeof *p * (size_t)(s->keys - own));
}

static void forward_task(void *ctx, int64_t m, int thread)
{
    job *j = ctx;
    const state *s = j->s;
    const run_ctx *c = j->c;
    const int64_t L = s->rows, S = s->keys, E = s->width, V = s->cols;
    unsigned char *scratch = (unsigned char *)c->work + (size_t)thread * s->each + s->at_scratch;
    const float *q = (const float *)ctx_mem(c, s->q) + m * E * L, *k = (const float *)ctx_mem(c, s->k) + m * E * S, *v = (const float *)ctx_mem(c, s->v) + m * V * S;
    float *p = (float *)ctx_mem(c, s->p) + m * L * S, *y = (float *)ctx_mem(c, s->y) + m * V * L;
    bool ok = true;
    for (int64_t from = 0; from < L; from += span(s))
        for (int64_t i = 0; i < span(s) && ok; i += BLOCK) {
            const int64_t n = MIN(BLOCK, span(s) - i), seen = seen_by(s, i + n), at = from + i;
            ok = product(s, scratch, n, seen, E, view(q + at, 1, L), view(k, S, 1), p + at * S, S, false);
            for (int64_t r = 0; r < n; r++) softmax_row(s, p + (at + r) * S, s->period ? i + r + 1 : S);
            ok = ok && product(s, scratch, V, n, seen, view(v, S, 1), view(p + at * S, 1, S), y + at, L, false);
        }
    if (!ok) atomic_store(&j->failed, 1);
}

static void back_task(void *ctx, int64_t m, int thread)
{
    job *j = ctx;
    const state *s = j->s;
    const run_ctx *c = j->c;
    const int64_t L = s->rows, S = s->keys, E = s->width, V = s->cols;
    unsigned char *room = (unsigned char *)c->work + (size_t)thread * s->each, *scratch = room + s->at_scratch;
    float *score = (float *)(void *)(room + s->at_score), *line = (float *)(void *)(room + s->at_line);
    const float *p = (const float *)ctx_mem(c, s->p) + m * L * S, *q = (const float *)ctx_mem(c, s->q) + m * E * L, *k = (const float *)ctx_mem(c, s->k) + m * E * S;
    const float *v = (const float *)ctx_mem(c, s->v) + m * V * S, *dy = (const float *)ctx_mem(c, s->y) + m * V * L;
    float *dq = (float *)ctx_mem(c, s->dq) + m * E * L, *dk = (float *)ctx_mem(c, s->dk) + m * E * S, *dv = (float *)ctx_mem(c, s->dv) + m * V * S;
    bool ok = true;
    for (int64_t from = 0; from < L; from += span(s))
        for (int64_t i = 0; i < span(s) && ok; i += BLOCK) {
            const int64_t n = MIN(BLOCK, span(s) - i), seen = seen_by(s, i + n), at = from + i;
            ok = product(s, scratch, n, seen, V, view(dy + at, 1, L), view(v, S, 1), score + at * S, S, false);
            for (int64_t r = 0; r < n; r++) through_softmax(s, p + (at + r) * S, score + (at + r) * S, line, s->period ? i + r + 1 : S, seen);
            ok = ok && product(s, scratch, E, n, seen, view(k, S, 1), view(score + at * S, 1, S), dq + at, L, false);
        }
    for (int64_t b = 0; b < S && ok; b += BLOCK)
        for (int64_t from = 0; from < L && ok; from += span(s)) {
            const int64_t n = MIN(BLOCK, S - b), at = from + (s->period ? b : 0), high = s->period ? s->period - b : L;
            ok = product(s, scratch, E, n, high, view(q + at, L, 1), view(score + at * S + b, S, 1), dk + b, S, from > 0) &&
                 product(s, scratch, V, n, high, view(dy + at, L, 1), view(p + at * S + b, S, 1), dv + b, S, from > 0);
        }
    if (!ok) atomic_store(&j->failed, 1);
}

static an_status run(const run_ctx *c, const insn *in, diag *d)
{
    const state *s = c->state;
    if (!s) return ref_entry_of(in->op)(c, in, d);
    job j = { .c = c, .s = s };
    pool_run(c->pool, s->back ? back_task : forward_task, &j, s->stacks);
    return atomic_load(&j.failed) ? diag_fail(d, AN_BUG, (loc){ .line = in->line }, "%s: a matrix kernel refused its operands", insn_name(in->op)) : AN_OK;
}

const exec_entry exec_attend_keep = { .run = run, .prepare = prepare };
const exec_entry exec_attend_back = { .run = run, .prepare = prepare };
