/* gemm_short.c: fp32 products whose k is a vector or less. In: views of A and B.  Out: C. A tile would hold its sums
 * for a few additions only, and what surrounds it would take longer: rows of A meet a packed panel of B as those of a
 * thin product meet rows of B, a vector at a time. */
#include <stdalign.h>

#include "kernel/gemm_run_int.h"

enum {
    SHORT_K = 16,      /* at most */
    SHORT_C = 1 << 15, /* elements: lines of a larger one should be asked for, as tiles do */
    SHORT_ROWS = 16,   /* finished together, while their sums are near */
};

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
