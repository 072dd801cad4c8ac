/* exec_window.c: products through the four-lane adder with a window (chips whose numerics say window_bits).
 * In: operands as stored.  Out: sums in fp32, before the epilogue.
 *
 * Both operands are packed as fp32 in the order the kernel reads them; what a multiplier does to its operands (NaN,
 * subnormals) is done on the way. A panel of A comes with the largest sum of magnitudes of its rows and a panel of B
 * with its largest magnitude: when their product stays below the ceiling, no partial sum can reach it and the short
 * form of the kernel is exact. */
#include <float.h>
#include <math.h>

#include "engine/exec_mac_int.h"

enum { K_BLOCK = 64, LANES = 4 };

static int64_t padded(int64_t k) { return ROUND_UP(k, (int64_t)LANES); }
static int64_t panels(int64_t n, int64_t width) { return (n + width - 1) / width; }

size_t window_a_bytes(const mac *m)
{
    return (size_t)(panels(m->m, WINDOW_ROWS) * WINDOW_ROWS * padded(m->k)) * sizeof(float);
}

size_t window_b_bytes(const mac *m)
{
    int64_t n = panels(m->chunk, m->env->v->window_cols);
    return ROUND_UP((size_t)(n * m->env->v->window_cols * padded(m->k)) * sizeof(float), (size_t)64) +
           (size_t)n * sizeof(float);
}

/* Operands of a product, as num_in and num_flush leave them. */
static void read(const mac *m, dtype t, const void *x, float *to, int64_t n)
{
    const vec_kernels *v = m->env->v;
    v->load(to, t, x, n);
    v->clean(to, INFINITY, n);
    if (t != DT_F16) v->round(to, VR_F16, n);
    if (m->num->mac_flush != 0) v->flush(to, 0x1p-14f, n);
}

/* width lanes of an operand from lane `first` on, `lanes` of them real: to[k][width]. */
static void pack_panel(const mac *m, dtype t, const unsigned char *x, int64_t lane_step, int64_t k_step, int64_t lanes,
                       int64_t width, float *to)
{
    int64_t size = exec_size(t), k = m->k;
    float tmp[16 * K_BLOCK];
    if (lane_step == 1 || lanes == 1) {
        for (int64_t i = 0; i < k; i++, to += width) {
            read(m, t, x + i * k_step * size, to, lanes);
            for (int64_t l = lanes; l < width; l++) to[l] = 0;
        }
    } else {
        for (int64_t k0 = 0; k0 < k; k0 += K_BLOCK) {
            int64_t n = MIN(K_BLOCK, k - k0);
            for (int64_t l = 0; l < width; l++) {
                if (l < lanes && k_step == 1) read(m, t, x + (l * lane_step + k0) * size, tmp + l * K_BLOCK, n);
                else if (l < lanes)
                    for (int64_t i = 0; i < n; i++)
                        read(m, t, x + (l * lane_step + (k0 + i) * k_step) * size, tmp + l * K_BLOCK + i, 1);
                else memset(tmp + l * K_BLOCK, 0, sizeof *tmp * (size_t)n);
            }
            m->env->v->transpose(to, width, tmp, K_BLOCK, n, width, sizeof(float));
            to += n * width;
        }
    }
    memset(to, 0, sizeof *to * (size_t)((padded(k) - k) * width));
}

/* ---- A ---- */

typedef struct {
    const mac *m;
    const unsigned char *a;
    float *packed, *bound;
} pack_job_a;

static void pack_a_task(void *ctx, int64_t i, int thread)
{
    const pack_job_a *j = ctx;
    const mac *m = j->m;
    float *to = j->packed + i * WINDOW_ROWS * padded(m->k), sum[WINDOW_ROWS] = { 0 };
    (void)thread;
    pack_panel(m, m->a_type, j->a + i * WINDOW_ROWS * m->a_row * exec_size(m->a_type), m->a_row, m->a_col,
               MIN(WINDOW_ROWS, m->m - i * WINDOW_ROWS), WINDOW_ROWS, to);
    m->env->v->columns(sum, STAT_ABS, false, to, m->k, WINDOW_ROWS, NULL, WINDOW_ROWS);
    float most = 0;
    for (int r = 0; r < WINDOW_ROWS; r++) most = isnan(sum[r]) || sum[r] > most ? sum[r] : most;
    j->bound[i] = isnan(most) ? INFINITY : most;
}

void window_pack_a(const mac *m, pool *threads, const void *a, void *packed, float *bound)
{
    pack_job_a j = { .m = m, .a = a, .packed = packed, .bound = bound };
    pool_run(threads, pack_a_task, &j, panels(m->m, WINDOW_ROWS));
}

/* ---- B, and the product ---- */

typedef struct {
    const product *p;
    float *b, *most;
    int64_t col_panels, row_panels, row_parts;
    float limit, ceiling;
} multiply;

static void pack_b_task(void *ctx, int64_t i, int thread)
{
    const multiply *x = ctx;
    const mac *m = x->p->m;
    int64_t width = m->env->v->window_cols, n = MIN(width, x->p->nc - i * width);
    float *to = x->b + i * width * padded(m->k);
    (void)thread;
    pack_panel(m, m->b_type, x->p->b + i * width * x->p->b_col * exec_size(m->b_type), x->p->b_col, x->p->b_row, n,
               width, to);
    x->most[i] = m->env->v->largest(to, width * m->k);
}

static void multiply_task(void *ctx, int64_t task, int thread)
{
    const multiply *x = ctx;
    const product *p = x->p;
    const mac *m = p->m;
    int64_t width = m->env->v->window_cols, k = padded(m->k), j = task / x->row_parts, part = task % x->row_parts;
    int64_t i0 = x->row_panels * part / x->row_parts, i1 = x->row_panels * (part + 1) / x->row_parts;
    (void)thread;
    for (int64_t i = i0; i < i1; i++) {
        window_job w = {
            .a = (const float *)p->packed + i * WINDOW_ROWS * k,
            .b = x->b + j * width * k,
            .k = k,
            .bits = (int)m->num->window_bits,
            .ceiling = x->ceiling,
            /* the window rounds up by less than a part in a thousand */
            .full = !(p->bound[i] * x->most[j] * 1.01f < x->limit),
            .c = p->sums + i * WINDOW_ROWS * p->nc + j * width,
            .ldc = p->nc,
            .rows = (int)MIN(WINDOW_ROWS, m->m - i * WINDOW_ROWS),
            .cols = (int)MIN(width, p->nc - j * width),
        };
        m->env->v->window(&w);
    }
}

void window_multiply(const product *p)
{
    const mac *m = p->m;
    bool partial = m->ceiling && m->num->port_ceiling != 0 && m->num->port_partial != 0;
    int64_t width = m->env->v->window_cols;
    multiply x = {
        .p = p,
        .b = (float *)(void *)(p->slot + m->at_scratch),
        .col_panels = panels(p->nc, width),
        .row_panels = panels(m->m, WINDOW_ROWS),
        .limit = partial ? (float)m->num->port_ceiling : FLT_MAX,
        .ceiling = partial ? (float)m->num->port_ceiling : INFINITY,
    };
    x.most = x.b + x.col_panels * width * padded(m->k);
    int64_t want = 4 * pool_threads(p->pool);
    x.row_parts = MIN(x.row_panels, MAX(1, (want + x.col_panels - 1) / x.col_panels));
    pool_run(p->pool, pack_b_task, &x, x.col_panels);
    pool_run(p->pool, multiply_task, &x, x.col_panels * x.row_parts);
}
