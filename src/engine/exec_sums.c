/* exec_sums.c: sums of products of two matrices, along rows and down columns, in one look at them.
 * In: a and b, fp32.  Out: the sums.
 *
 * Bands of rows are shared out. Each has sums of columns of its own, which are added in order at the end: how many
 * bands there are depends on nothing but the matrix, so the bits are the same on any number of threads. */
#include "engine/exec_int.h"

enum { BANDS = 16, ALONE = 1 << 14 /* elements: fewer are done before another thread has come */ };

typedef struct {
    const exec_env *env;
    int64_t cols, rows, a, b, row_by, col_by; /* tensors; -1: none */
    int64_t n, m, band, bands;
} state;

static an_status prepare(image *im, const insn *in, void **out, diag *d)
{
    exec_env *e;
    TRY(exec_open(im, &e, d));
    state s = { .env = e, .cols = insn_t(in, "cols"), .rows = insn_t(in, "rows"), .a = insn_t(in, "a"),
                .b = insn_t(in, "b"), .row_by = insn_t(in, "row_by"), .col_by = insn_t(in, "col_by") };
    const int64_t all[] = { s.cols, s.rows, s.a, s.b, s.row_by, s.col_by };
    for (size_t i = 0; i < COUNT(all); i++)
        if (all[i] >= 0 && im->p->tensors.at[all[i]].dt != DT_F32) return AN_OK;
    if (!e->fast || e->chip) return AN_OK;
    const etensor *a = &im->p->tensors.at[s.a];
    s.n = a->dim[0], s.m = a->dim[1];
    s.band = MAX((s.n + BANDS - 1) / BANDS, 1), s.bands = (s.n + s.band - 1) / s.band;
    if (s.cols >= 0) exec_need_work(im, (size_t)(s.bands * s.m) * sizeof(float));
    state *keep = TAKE(&im->prepared, state, 1);
    if (!keep) return diag_nomem(d);
    *keep = s;
    *out = keep;
    return AN_OK;
}

static const float *floats(const run_ctx *c, int64_t t) { return t < 0 ? NULL : ctx_mem(c, t); }

static void band(void *ctx, int64_t i, int thread)
{
    const run_ctx *c = ctx;
    const state *s = c->state;
    const int64_t first = i * s->band, n = MIN(s->band, s->n - first);
    float *cols = s->cols < 0 ? NULL : (float *)(void *)c->work + i * s->m;
    const float *row_by = floats(c, s->row_by);
    (void)thread;
    if (cols) s->env->v->fill(cols, 0, s->m);
    s->env->v->sums(cols, s->rows < 0 ? NULL : (float *)ctx_mem(c, s->rows) + first, floats(c, s->a) + first * s->m,
                    floats(c, s->b) + first * s->m, row_by ? row_by + first : NULL, floats(c, s->col_by), n, s->m);
}

static an_status run(const run_ctx *c, const insn *in, diag *d)
{
    const state *s = c->state;
    if (!s) return ref_sums(c, in, d);
    run_ctx own = *c;
    pool_run(s->n * s->m <= ALONE ? NULL : c->pool, band, &own, s->bands);
    if (s->cols < 0) return AN_OK;
    float *to = ctx_mem(c, s->cols);
    s->env->v->fill(to, 0, s->m);
    for (int64_t i = 0; i < s->bands; i++)
        s->env->v->fn[VF_ADD](to, to, (const float *)(const void *)c->work + i * s->m, NULL, NULL, s->m);
    return AN_OK;
}

const exec_entry exec_sums = { .run = run, .prepare = prepare };
