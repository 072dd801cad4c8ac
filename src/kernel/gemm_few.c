/* gemm_few.c: few columns: rows are the lanes, and A passes by once, at memory speed. In: packed As, a view of B.
 * Out: their Cs. */
#include <math.h>

#include "kernel/gemm_run_int.h"

bool gemm_few(const gemm_kernel *g, int64_t n)
{
    return g->a_kr == 1 && g->math != GEMM_I8 && n > 0 && n <= FEW_COLUMNS;
}

enum { FEW_PANELS = 8 /* of a task: the most the kernel takes side by side */ };

typedef struct {
    size_t x_bytes, acc_bytes, tile_bytes; /* x once; sums, and a tile of them by rows, per thread */
} few_plan;

static few_plan few_make(const gemm_kernel *g, int64_t n, int64_t k)
{
    int64_t lanes = ROUND_UP(g->mr, g->vec->lanes);
    return (few_plan){ ROUND_UP((size_t)(MAX(k, 1) * n) * 4, ALIGN),
                       ROUND_UP((size_t)(FEW_PANELS * n * lanes) * 4, ALIGN),
                       ROUND_UP((size_t)(g->mr * g->nr) * 4, ALIGN) };
}

size_t few_bytes(const gemm_kernel *g, int64_t n, int64_t k, int n_threads)
{
    const few_plan f = few_make(g, n, k);
    return f.x_bytes + (size_t)n_threads * (f.acc_bytes + f.tile_bytes) + ALIGN;
}

typedef struct {
    gemm_call part[1 + GEMM_MORE];
    int64_t first[1 + GEMM_MORE]; /* task of each */
    packed_layout l;              /* of any of them, but for the panels */
    few_plan f;
    const void *b;
    char *threads;
    int64_t panels; /* of a task */
} few_ctx;

/* One column: its sums lie side by side as its elements do, so it is finished as a row. */
static void finish_column(const gemm_call *c, int64_t i, const float *acc)
{
    const gemm_kernel *g = c->kernel;
    const gemm_epilogue *e = &c->epi;
    const int64_t r0 = i * g->mr, cb = c->c_type == DT_F32 ? 4 : 2;
    g->vec->epilogue(&(epi_job){
        .acc = (const char *)acc,
        .ld = g->mr,
        .rows = 1,
        .cols = (int)MIN(c->m - r0, g->mr),
        .scale = e->scale ? e->scale + r0 : NULL,
        .bias = e->bias ? e->bias + r0 : NULL,
        .by_lane = true,
        .act = e->act,
        .accumulate = e->accumulate,
        .c_type = c->c_type,
        .c = (char *)c->c + r0 * cb,
        .residual = e->residual ? (const char *)e->residual + r0 * cb : NULL,
        .gate = e->gate ? (const char *)e->gate + r0 * cb : NULL,
    });
}

/* Where tiles multiply fp16 as it is, few columns do. */
static void multiply(const gemm_kernel *g, const few_job *j)
{
#if defined(__aarch64__)
    if (g->b_pk == PK_F16) {
        few_f16_fp16(j);
        return;
    }
#endif
    g->vec->few(j);
}

static void few_task(void *ctx, int64_t task, int thread)
{
    const few_ctx *f = ctx;
    int part = f->part[0].n_more;
    while (task < f->first[part]) part--;
    const gemm_call *c = &f->part[part];
    const gemm_kernel *g = c->kernel;
    const packed_layout *l = &f->l;
    char *mine = f->threads + (size_t)thread * (f->f.acc_bytes + f->f.tile_bytes);
    float *tile = (float *)(void *)(mine + f->f.acc_bytes);
    const int64_t p0 = (task - f->first[part]) * f->panels, lanes = ROUND_UP(g->mr, g->vec->lanes);
    few_job j = { .a = (const char *)c->a + p0 * l->panel_bytes,
                  .panel_bytes = l->panel_bytes,
                  .panels = MIN(f->panels, ceil_div(c->m, g->mr) - p0),
                  .k = c->k,
                  .n = c->n,
                  .width = g->mr,
                  .pk = g->a_pk,
                  .x = f->b,
                  .acc = (float *)(void *)mine };
    multiply(g, &j);
    /* which of two NaN a sum of plain C keeps is the compiler's choice, one for each number of panels */
    for (int64_t i = 0; i < j.panels * c->n * lanes; i++)
        if (isnan(j.acc[i])) j.acc[i] = NAN;
    if (c->n == 1 && c->ldc == 1 && (!c->epi.residual || c->epi.ld_residual == 1) &&
        (!c->epi.gate || c->epi.ld_gate == 1) &&
        !c->epi.col_bias && !c->epi.pass.at) {
        for (int64_t p = 0; p < j.panels; p++) finish_column(c, p0 + p, j.acc + p * lanes);
        return;
    }
    memset(tile, 0, f->f.tile_bytes); /* the epilogue reads whole vectors */
    for (int64_t p = 0; p < j.panels; p++) {
        const float *acc = j.acc + p * c->n * lanes;
        for (int64_t j0 = 0; j0 < c->n; j0 += g->nr) {
            for (int64_t r = 0; r < g->mr; r++)
                for (int64_t i = j0; i < MIN(c->n, j0 + g->nr); i++) tile[r * g->nr + i - j0] = acc[i * lanes + r];
            finish_tile(c, p0 + p, j0 / g->nr, (const char *)tile, NULL, NULL);
        }
    }
}

/* x as the kernel stores B, but [k, n], and in fp32 unless that is fp16. */
static void few_x(const gemm_call *c, void *room)
{
    const gemm_kernel *g = c->kernel;
    float *to = room;
    const bool f16 = g->b_pk == PK_F16 || g->b_pk == PK_F32_OF_F16,
               bf16 = g->b_pk == PK_BF16 || g->b_pk == PK_F32_OF_BF16;
    const bool rounds = (f16 && c->b.type != DT_F16) || (bf16 && c->b.type != DT_BF16),
               run = (c->b.col == 1 || c->n == 1) && c->b.row == c->n;
    if (g->b_pk == PK_F16) {
        if (run && !rounds) memcpy(room, c->b.at, (size_t)(c->k * c->n) * sizeof(uint16_t));
        else
            for (int64_t k = 0; k < c->k; k++)
                for (int64_t j = 0; j < c->n; j++)
                    dtype_store(DT_F16, room, k * c->n + j,
                                dtype_load(c->b.type, c->b.at, k * c->b.row + j * c->b.col));
        return;
    }
    if (run && !rounds) {
        if (c->b.type == DT_F32) memcpy(to, c->b.at, (size_t)(c->k * c->n) * sizeof *to);
        else g->vec->expand(c->b.type == DT_F16 ? PK_F16 : PK_BF16, c->b.at, to, c->k * c->n);
        return;
    }
    for (int64_t k = 0; k < c->k; k++)
        for (int64_t j = 0; j < c->n; j++) {
            double v = dtype_load(c->b.type, c->b.at, k * c->b.row + j * c->b.col);
            if (rounds) v = f16 ? f16_to_f64(f16_from_f64(v)) : bf16_to_f64(bf16_from_f64(v));
            to[k * c->n + j] = (float)v;
        }
}

an_status run_few(const gemm_call *c, diag *d)
{
    const gemm_kernel *g = c->kernel;
    char *scratch = (char *)c->scratch + (ALIGN - (uintptr_t)c->scratch % ALIGN) % ALIGN;
    few_ctx f = { .part[0] = *c, .f = few_make(g, c->n, c->k), .b = scratch };
    if (!pack_layout(g, true, c->m, c->a_k ? c->a_k : c->k, &f.l))
        return diag_fail(d, AN_UNSUPPORTED, NOWHERE, "%s: cannot multiply %lld x %lld by %lld columns", g->name,
                         (long long)c->m, (long long)c->k, (long long)c->n);
    const size_t need = few_bytes(g, c->n, c->k, pool_threads(c->pool));
    if (c->scratch_bytes < need)
        return diag_fail(d, AN_BUG, NOWHERE, "%s: %zu bytes of scratch, %zu needed", g->name, c->scratch_bytes, need);
    int64_t panels = ceil_div(c->m, g->mr), tasks = 0;
    for (int i = 0; i < c->n_more; i++) {
        gemm_call *more = &f.part[i + 1];
        *more = *c;
        more->a = c->more[i].a, more->m = c->more[i].m, more->c = c->more[i].c, more->c_type = DT_F32, more->ldc = c->n,
        more->epi = (gemm_epilogue){ 0 };
        panels += ceil_div(more->m, g->mr);
    }
    few_x(c, scratch);
    f.threads = scratch + f.f.x_bytes;
    /* as many tasks for each thread: a matrix of a small model is half a dozen */
    f.panels = MAX(ceil_div(panels, ROUND_UP(ceil_div(MAX(panels, 1), FEW_PANELS), pool_threads(c->pool))), 1);
    for (int i = 0; i <= c->n_more; i++) {
        f.first[i] = tasks;
        tasks += ceil_div(ceil_div(f.part[i].m, g->mr), f.panels);
    }
    pool_run(c->pool, few_task, &f, tasks);
    return AN_OK;
}
