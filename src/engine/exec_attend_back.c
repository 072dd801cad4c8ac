/* exec_attend_back.c: attention that is trained, on the plain processor: forward with its weights kept, and back,
 * one matrix of weights at a time; columns are positions. In: q, k, v.  Out: the weights p, their use of v.  Back:
 * and the gradient of the result.  Out: the gradients of q, k, v.
 *
 * A task takes one stack. Operands that several products share are packed once; weights are made and used some rows
 * at a time, while they are in the thread's cache. The gradient of the scores exists for that stack alone, in the
 * thread's second cache, in the type it is multiplied in: that of the weights is made a block of rows at a time,
 * turned into that of the scores row by row, and multiplied by k and q at once. With a period nothing is looked at
 * behind the diagonal, in steps of a block: rows of a block see the keys up to its last row; columns of a block are
 * seen from their first row on. How stacks are shared out changes nothing in what is added to what. */
#include <math.h>
#include <stdatomic.h>

#include "engine/exec_int.h"

enum { BLOCK = 128 }; /* rows or columns at a time; a multiple of what any kernel takes of k at once */

typedef struct {
    const exec_env *env;
    bool back;
    int64_t dq, dk, dv, p, q, k, v, y, stacks, rows, keys, width, cols, period, apart; /* y: back, its gradient */
    const gemm_kernel *g;
    dtype ts; /* of the scores' gradient, as products will have it */
    /* scratch of a thread */
    size_t at_score, at_grad, at_keys, at_values, at_left, at_right, at_scratch, scratch_bytes, each;
} state;

static void add(size_t *sum, size_t bytes, size_t *at) { *at = *sum, *sum += ROUND_UP(bytes, (size_t)64); }

/* rows after which positions begin again */
static int64_t span(const state *s) { return s->period ? s->period : s->rows; }
/* keys, by the rows before place `end` of a span */
static int64_t seen_by(const state *s, int64_t end) { return s->period ? MIN(end, s->keys) : s->keys; }

/* Room for the operands of products of m x n over k, packed. */
static bool need(const state *s, int64_t m, int64_t n, int64_t k, size_t *left, size_t *right, size_t *scratch)
{
    size_t a, b, c;
    if (!gemm_pack_a_bytes(s->g, m, k, &a) || !gemm_pack_b_bytes(s->g, n, k, &b) ||
        !gemm_packed_scratch_bytes(s->g, n, k, &c))
        return false;
    *left = MAX(*left, a), *right = MAX(*right, b), *scratch = MAX(*scratch, c);
    return true;
}

static bool lay_out(image *im, state *s)
{
    const int64_t high = MIN(BLOCK, s->rows), wide = MIN(BLOCK, s->keys);
    size_t n = 0, all, score, keys = 0, values = 0, left = 0, right = 0, grad = 0;
    if (s->rows > INT32_MAX / 4 || s->keys > INT32_MAX / 4 || !mul_size((size_t)s->rows, (size_t)s->keys, &score) ||
        score > SIZE_MAX / 64)
        return false;
    if (!s->back) {
        if (!need(s, high, s->keys, s->width, &left, &keys, &s->scratch_bytes) ||
            !need(s, s->cols, high, s->keys, &values, &right, &s->scratch_bytes))
            return false;
    } else {
        grad = score * (size_t)exec_size(s->ts);
        if (!need(s, high, s->keys, s->cols, &left, &values, &s->scratch_bytes) ||
            !need(s, s->width, high, s->keys, &keys, &right, &s->scratch_bytes))
            return false;
        if (!need(s, MAX(s->width, s->cols), wide, s->rows, &left, &right, &s->scratch_bytes)) return false;
    }
    add(&n, (size_t)(high * s->keys) * sizeof(float), &s->at_score), add(&n, grad, &s->at_grad);
    add(&n, keys, &s->at_keys), add(&n, values, &s->at_values), add(&n, left, &s->at_left),
        add(&n, right, &s->at_right), add(&n, s->scratch_bytes, &s->at_scratch);
    s->each = n;
    if (!mul_size(n, (size_t)s->env->threads, &all) || all > SIZE_MAX / 4) return false;
    exec_need_work(im, all);
    return true;
}

static an_status prepare(image *im, const insn *in, void **out, diag *d)
{
    exec_env *e;
    const bool back = in->op == IN_ATTEND_BACK;
    state s = { .back = back, .p = insn_t(in, "p"), .q = insn_t(in, "q"), .k = insn_t(in, "k"), .v = insn_t(in, "v"),
                .y = insn_t(in, back ? "dy" : "y"), .period = insn_i(in, "period"), .apart = insn_i(in, "apart") };
    const etensor *t = im->p->tensors.at, *p = &t[s.p];
    if (back) s.dq = insn_t(in, "dq"), s.dk = insn_t(in, "dk"), s.dv = insn_t(in, "dv");
    const int64_t all[] = { s.p, s.q, s.k, s.v, s.y, back ? s.dq : s.p, back ? s.dk : s.p, back ? s.dv : s.p };
    TRY(exec_open(im, &e, d));
    if (!e->fast || e->chip) return AN_OK;
    const bool bf16 = im->opt.fast_math;
    for (size_t i = 0; i < COUNT(all); i++)
        if (t[all[i]].dt != DT_F32 && !(bf16 && t[all[i]].dt == DT_BF16)) return AN_OK;
    s.env = e, s.rows = p->dim[p->rank - 2], s.keys = p->dim[p->rank - 1],
    s.stacks = dims_product(p->dim, 0, p->rank - 2);
    s.width = t[s.q].dim[s.apart ? 1 : t[s.q].rank - 2], s.cols = t[s.v].dim[s.apart ? 1 : t[s.v].rank - 2];
    s.g = gemm_pick(bf16 ? GEMM_BF16 : GEMM_F32, e->isa), s.ts = bf16 ? DT_BF16 : DT_F32;
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

/* One matrix of an operand: its rows are ld elements apart. */
typedef struct {
    unsigned char *at;
    dtype t;
    int64_t ld;
} matrix;

/* Matrix m of a stack of [high, wide]; where sequences lie beside each other, that of head m mod heads of sequence m
 * div heads. */
static matrix matrix_of(const run_ctx *c, const state *s, int64_t tensor, int64_t m, int64_t high, int64_t wide)
{
    const dtype t = ctx_tensor(c, tensor)->dt;
    const int64_t each = s->apart ? s->apart : 1, heads = s->stacks / each;
    return (matrix){ .at = (unsigned char *)ctx_mem(c, tensor) +
                           (m % heads * high * each + m / heads) * wide * exec_size(t),
                     .t = t,
                     .ld = wide * each };
}

/* From row i, column j on; turned: as the transpose. */
static gemm_view part(const matrix *m, int64_t i, int64_t j, bool turned)
{
    return (gemm_view){ .at = m->at + (i * m->ld + j) * exec_size(m->t),
                        .type = m->t,
                        .row = turned ? 1 : m->ld,
                        .col = turned ? m->ld : 1 };
}

/* Asks for the lines of rows of a result that is written later: they are short and far apart, which no prefetcher
 * follows, and stores that miss would hold up the products. */
static void ask(const matrix *m, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t at = 0; at < cols * exec_size(m->t); at += VEC_LINE)
            EXEC_PREFETCH_W(m->at + i * m->ld * exec_size(m->t) + at);
}

/* A thread's work on one stack. */
typedef struct {
    const state *s;
    unsigned char *room;
    diag d;
} work;

static void pack_left(work *w, size_t at, int64_t m, int64_t k, gemm_view a)
{
    if (!w->d.st) (void)!gemm_pack_a(w->s->g, NULL, m, k, a, w->room + at, &w->d); /* w->d keeps it */
}

static void pack_right(work *w, size_t at, int64_t n, int64_t k, gemm_view b)
{
    if (!w->d.st) (void)!gemm_pack_b(w->s->g, NULL, n, k, b, w->room + at, &w->d);
}

/* c = a·b, packed for a_k and b_k; more: added to what is there. */
static void product(work *w, int64_t m, int64_t n, int64_t k, size_t a, int64_t a_k, size_t b, int64_t b_k, gemm_view c,
                    bool more)
{
    const state *s = w->s;
    if (w->d.st) return;
    (void)!gemm_run(&(gemm_call){ .kernel = s->g, .m = m, .n = n, .k = k, .a = w->room + a, .a_k = a_k,
                                  .b_packed = w->room + b, .b_k = b_k, .c = (void *)(uintptr_t)c.at, .c_type = c.type,
                                  .ldc = c.row, .epi.accumulate = more, .scratch = w->room + s->at_scratch,
                                  .scratch_bytes = s->scratch_bytes }, &w->d);
}

static double at_place(const matrix *m, int64_t i) { return dtype_load(m->t, m->at, i); }

/* The sum of n weights, `step` from each other, times elements of b that lie side by side. */
static double sum_of(const matrix *weights, int64_t at, int64_t step, const matrix *b, int64_t from, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += at_place(weights, at + i * step) * at_place(b, from + i);
    return sum;
}

static bool all_finite(const state *s, const matrix *m, int64_t at, int64_t n)
{
    float x[BLOCK];
    s->env->v->load(x, m->t, m->at + at * exec_size(m->t), n);
    return s->env->v->largest(x, n) < INFINITY;
}

/* A zero weight behind the diagonal times what is not finite would be NaN. Where such a sum is, it is made again of
 * the keys that rows see: n columns of c from `at` on, which are rows at `own` and below of a span. */
static void mend_rows(const state *s, const matrix *c, int64_t high, int64_t at, int64_t own, int64_t n,
                      const matrix *weights, const matrix *b)
{
    for (int64_t i = 0; s->period && i < high; i++) {
        if (all_finite(s, c, i * c->ld + at, n)) continue;
        for (int64_t r = 0; r < n; r++)
            if (!isfinite(at_place(c, i * c->ld + at + r)))
                dtype_store(c->t, c->at, i * c->ld + at + r,
                            sum_of(weights, (at + r) * weights->ld, 1, b, i * b->ld, own + r + 1));
    }
}

/* Likewise of the rows that see keys: n columns of c from key `at` on. */
static void mend_keys(const state *s, const matrix *c, int64_t high, int64_t at, int64_t n, const matrix *weights,
                      const matrix *b)
{
    for (int64_t i = 0; s->period && i < high; i++) {
        if (all_finite(s, c, i * c->ld + at, n)) continue;
        for (int64_t key = at; key < at + n; key++) {
            double sum = 0;
            if (isfinite(at_place(c, i * c->ld + key))) continue;
            for (int64_t row = key; row < s->rows; row += s->period)
                sum += sum_of(weights, row * weights->ld + key, weights->ld, b, i * b->ld + row, s->period - key);
            dtype_store(c->t, c->at, i * c->ld + key, sum);
        }
    }
}

/* Row of the scores' gradient from that of the weights; zero from `own` to `seen`. */
static void through_softmax(const state *s, const unsigned char *p, dtype tp, const float *dp, int64_t own,
                            int64_t seen, unsigned char *to)
{
    s->env->v->soft_back(to, s->ts, dp, p, tp, own);
    if (own < seen) memset(to + own * exec_size(s->ts), 0, (size_t)((seen - own) * exec_size(s->ts)));
}

/* A row of scores becomes weights; zero from `own` on. */
static void softmax_row(const state *s, float *score, int64_t own, unsigned char *p, dtype tp)
{
    const vec_kernels *v = s->env->v;
    const float most = v->along(DT_F32, score, STAT_MAX, 0, -INFINITY, own),
                by = 1 / v->exps(score, DT_F32, score, most, own, 0);
    v->scaled(p, tp, score, by, own);
    memset(p + own * exec_size(tp), 0, (size_t)((s->keys - own) * exec_size(tp)));
}

static void forward_task(void *ctx, int64_t m, int thread)
{
    job *j = ctx;
    const state *s = j->s;
    const int64_t L = s->rows, S = s->keys, E = s->width, V = s->cols;
    work w = { .s = s, .room = (unsigned char *)j->c->work + (size_t)thread * s->each };
    float *score = (float *)(void *)(w.room + s->at_score);
    const matrix q = matrix_of(j->c, s, s->q, m, E, L), k = matrix_of(j->c, s, s->k, m, E, S),
                 v = matrix_of(j->c, s, s->v, m, V, S), y = matrix_of(j->c, s, s->y, m, V, L);
    const dtype tp = ctx_tensor(j->c, s->p)->dt;
    const matrix p = { .at = (unsigned char *)ctx_mem(j->c, s->p) + m * L * S * exec_size(tp), .t = tp, .ld = S };
    pack_right(&w, s->at_keys, S, E, part(&k, 0, 0, false));
    pack_left(&w, s->at_values, V, S, part(&v, 0, 0, false));
    ask(&y, V, L);
    for (int64_t from = 0; from < L; from += span(s))
        for (int64_t i = 0; i < span(s) && !w.d.st; i += BLOCK) {
            const int64_t n = MIN(BLOCK, span(s) - i), seen = seen_by(s, i + n), at = from + i;
            pack_left(&w, s->at_left, n, E, part(&q, 0, at, true));
            product(&w, n, seen, E, s->at_left, 0, s->at_keys, 0,
                    (gemm_view){ .at = score, .type = DT_F32, .row = S, .col = 1 }, false);
            for (int64_t r = 0; r < n && !w.d.st; r++)
                softmax_row(s, score + r * S, s->period ? i + r + 1 : S, p.at + (at + r) * S * exec_size(tp), tp);
            pack_right(&w, s->at_right, n, seen, part(&p, at, 0, true));
            product(&w, V, n, seen, s->at_values, S, s->at_right, 0, part(&y, 0, at, false), false);
            if (!w.d.st) mend_rows(s, &y, V, at, i, n, &p, &v);
        }
    if (w.d.st) atomic_store(&j->failed, 1);
}

static void back_task(void *ctx, int64_t m, int thread)
{
    job *j = ctx;
    const state *s = j->s;
    const run_ctx *c = j->c;
    const int64_t L = s->rows, S = s->keys, E = s->width, V = s->cols, size = exec_size(s->ts);
    work w = { .s = s, .room = (unsigned char *)c->work + (size_t)thread * s->each };
    float *score = (float *)(void *)(w.room + s->at_score);
    const dtype tp = ctx_tensor(c, s->p)->dt;
    const matrix p = { .at = (unsigned char *)ctx_mem(c, s->p) + m * L * S * exec_size(tp), .t = tp, .ld = S },
                 grad = { .at = w.room + s->at_grad, .t = s->ts, .ld = S };
    const matrix q = matrix_of(c, s, s->q, m, E, L), k = matrix_of(c, s, s->k, m, E, S),
                 v = matrix_of(c, s, s->v, m, V, S), dy = matrix_of(c, s, s->y, m, V, L);
    const matrix dq = matrix_of(c, s, s->dq, m, E, L), dk = matrix_of(c, s, s->dk, m, E, S),
                 dv = matrix_of(c, s, s->dv, m, V, S);
    pack_left(&w, s->at_keys, E, S, part(&k, 0, 0, false));
    pack_right(&w, s->at_values, S, V, part(&v, 0, 0, false));
    ask(&dq, E, L);
    for (int64_t from = 0; from < L; from += span(s))
        for (int64_t i = 0; i < span(s) && !w.d.st; i += BLOCK) {
            const int64_t n = MIN(BLOCK, span(s) - i), seen = seen_by(s, i + n), at = from + i;
            pack_left(&w, s->at_left, n, V, part(&dy, 0, at, true));
            product(&w, n, seen, V, s->at_left, 0, s->at_values, 0,
                    (gemm_view){ .at = score, .type = DT_F32, .row = S, .col = 1 }, false);
            for (int64_t r = 0; r < n && !w.d.st; r++)
                through_softmax(s, p.at + (at + r) * S * exec_size(tp), tp, score + r * S, s->period ? i + r + 1 : S,
                                seen, grad.at + (at + r) * S * size);
            pack_right(&w, s->at_right, n, seen, part(&grad, at, 0, true));
            product(&w, E, n, seen, s->at_keys, S, s->at_right, 0, part(&dq, 0, at, false), false);
            if (!w.d.st) mend_rows(s, &dq, E, at, i, n, &grad, &k);
        }
    ask(&dk, E, S), ask(&dv, V, S);
    for (int64_t b = 0; b < S && !w.d.st; b += BLOCK) {
        const int64_t n = MIN(BLOCK, S - b);
        for (int64_t from = 0; from < L; from += span(s)) {
            const int64_t at = from + (s->period ? b : 0), high = s->period ? s->period - b : L;
            pack_left(&w, s->at_left, E, high, part(&q, 0, at, false));
            pack_right(&w, s->at_right, n, high, part(&grad, at, b, false));
            product(&w, E, n, high, s->at_left, 0, s->at_right, 0, part(&dk, 0, b, false), from > 0);
            pack_left(&w, s->at_left, V, high, part(&dy, 0, at, false));
            pack_right(&w, s->at_right, n, high, part(&p, at, b, false));
            product(&w, V, n, high, s->at_left, 0, s->at_right, 0, part(&dv, 0, b, false), from > 0);
        }
        if (!w.d.st) mend_keys(s, &dk, E, b, n, &grad, &q), mend_keys(s, &dv, V, b, n, &p, &dy);
    }
    if (w.d.st) atomic_store(&j->failed, 1);
}

static an_status run(const run_ctx *c, const insn *in, diag *d)
{
    const state *s = c->state;
    if (!s) return ref_entry_of(in->op)(c, in, d);
    job j = { .c = c, .s = s };
    pool_run(c->pool, s->back ? back_task : forward_task, &j, s->stacks);
    return atomic_load(&j.failed) ? diag_fail(d, AN_BUG, (loc){ .line = in->line },
                                              "%s: a matrix kernel refused its operands", insn_name(in->op))
                                  : AN_OK;
}

const exec_entry exec_attend_keep = { .run = run, .prepare = prepare };
const exec_entry exec_attend_back = { .run = run, .prepare = prepare };
