/* gemm_thin.c: fp32 products whose columns, or whose k, are a vector or less. In: views of A and B.  Out: C.
 * Few columns: a panel of B would be mostly padding, and both operands are small: rows of A meet rows of B where they
 * lie. A short k: a tile would hold its sums for a few additions only, and what surrounds it would take longer: rows
 * of A meet a packed panel of B in the same way, a vector at a time. */
#include <stdalign.h>

#include "kernel/gemm_run_int.h"

enum {
    LEAST_LANES = 8,
    THIN_ROWS = 64,    /* of a task */
    SHORT_K = 16,      /* at most */
    SHORT_C = 1 << 15, /* elements: lines of a larger one should be asked for, as tiles do */
    SHORT_ROWS = 16,   /* finished together, while their sums are near */
};

bool gemm_thin(const gemm_kernel *g, int64_t n)
{
    return g->math == GEMM_F32 && g->vec->lanes >= LEAST_LANES && n > 0 && n <= g->vec->lanes;
}

bool thin_fits(const gemm_call *c)
{
    gemm_call plain = *c;
    plain.epi.col_bias = NULL;
    return !c->a && gemm_thin(c->kernel, c->n) && c->a_view.type == DT_F32 && c->b.type == DT_F32 && c->b.col == 1 &&
           c->c_type == DT_F32 && is_plain(&plain);
}

static void thin_task(void *ctx, int64_t task, int thread)
{
    const gemm_call *c = ctx;
    const int64_t i = task * THIN_ROWS;
    (void)thread;
    c->kernel->vec->thin(&(thin_job){ .a = (const float *)c->a_view.at + i * c->a_view.row,
                                      .a_row = c->a_view.row,
                                      .a_col = c->a_view.col,
                                      .b = c->b.at,
                                      .b_row = c->b.row,
                                      .c = (float *)c->c + i * c->ldc,
                                      .ldc = c->ldc,
                                      .bias = c->epi.col_bias,
                                      .m = MIN(THIN_ROWS, c->m - i),
                                      .k = c->k,
                                      .n = (int)c->n });
}

void run_thin(const gemm_call *c)
{
    gemm_call mine = *c;
    pool_run(c->pool, thin_task, &mine, ceil_div(c->m, THIN_ROWS));
}

bool gemm_short(const gemm_kernel *g, int64_t m, int64_t n, int64_t k)
{
    return g->math == GEMM_F32 && g->vec->lanes >= LEAST_LANES && k > 0 && k <= SHORT_K && n > 0 && m <= SHORT_C / n;
}

bool short_fits(const gemm_call *c)
{
    return !c->a && gemm_short(c->kernel, c->m, c->n, c->k) && c->a_view.type == DT_F32 && c->b.type == DT_F32;
}

static void short_task(void *ctx, int64_t task, int thread)
{
    alignas(ALIGN) float b[SHORT_K * MOST_WIDTH], sums[SHORT_ROWS * MOST_WIDTH];
    const gemm_call *c = ctx;
    const gemm_kernel *g = c->kernel;
    const int64_t from = task * THIN_ROWS, end = MIN(from + THIN_ROWS, c->m), wide = g->vec->lanes;
    const bool plain = is_plain(c);
    (void)thread;
    for (int64_t j = 0; j < ceil_div(c->n, g->nr); j++) {
        const int64_t cols = MIN(c->n - j * g->nr, g->nr);
        pack_part(c, false, j, 0, c->k, 0, c->k, (char *)b);
        for (int64_t i = from; i < end; i += SHORT_ROWS) {
            const int64_t rows = MIN(end - i, SHORT_ROWS);
            for (int64_t v = 0; v < cols; v += wide)
                g->vec->thin(&(thin_job){ .a = (const float *)c->a_view.at + i * c->a_view.row,
                                          .a_row = c->a_view.row,
                                          .a_col = c->a_view.col,
                                          .b = b + v,
                                          .b_row = g->nr,
                                          .c = plain ? (float *)c->c + i * c->ldc + j * g->nr + v : sums + v,
                                          .ldc = plain ? c->ldc : g->nr,
                                          .m = rows,
                                          .k = c->k,
                                          .n = (int)(plain ? MIN(cols - v, wide) : wide) });
            if (!plain) finish_rows(c, i, rows, j * g->nr, g->nr, (const char *)sums, NULL, NULL);
        }
    }
}

void run_short(const gemm_call *c)
{
    gemm_call mine = *c;
    pool_run(c->pool, short_task, &mine, ceil_div(c->m, THIN_ROWS));
}
