/* gemm_thin.c: fp32 products whose columns are a vector or less. In: views of A and B.  Out: C. A panel of B would be
 * mostly padding, and both operands are small: rows of A meet rows of B where they lie. */
#include "kernel/gemm_run_int.h"

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
