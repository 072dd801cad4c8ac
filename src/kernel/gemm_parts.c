/* gemm_parts.c: a product by parts of k: first each part's sums, then their sum. In: views of A and B, whose rows
 * are rows of memory.  Out: C. A thread meets again the rows it wrote last, and operands so long that bringing them
 * is the work are read once. */
#include "kernel/gemm_run_int.h"

enum {
    /* times as long as there are rows, a k is cut into parts as well, where products take less time than bringing
     * operands */
    LONG = 16,
    LONG_PART = 2048,
    LEAST_BY_K = 256,
    /* the longest part of k for few rows: sums of parts are added in order, so parts come from the shape alone */
    BY_K = 512,
    ABREAST = 4, /* tasks of such a part: what a late thread has left of it is shared */
};

/* Into how many parts k is cut when A is not packed ahead and the rows of B are rows of memory; 1: not at all. Sums
 * of the parts should be small beside the operands. */
static int64_t k_parts(const gemm_kernel *g, int64_t m, int64_t k)
{
    const int64_t parts = MAX(ceil_div(k, BY_K), 2);
    if (g->math == GEMM_BF16 && m > FEW_ROWS && k >= LONG * m && k > LONG_PART) return ceil_div(k, LONG_PART);
    return (g->math == GEMM_F32 || g->math == GEMM_BF16) && k >= LEAST_BY_K && m <= FEW_ROWS && 2 * m * parts <= k
               ? parts
               : 1;
}

bool gemm_by_parts(const gemm_kernel *g, int64_t m, int64_t k) { return k_parts(g, m, k) > 1; }

/* A thread packs all of A's part, which then lies in the second or third cache, and a stripe of B's: of one panel
 * for few rows of A, which all take it while it is in the first cache. */
typedef struct {
    int64_t parts, part;    /* how many, how long the longest is */
    int64_t abreast;        /* tasks of a part */
    /* a step of a part: as in any product, a piece of A in L1 is multiplied by panels of B from L2 */
    int64_t kc;
    int64_t down, across;   /* panels of A, of B */
    int64_t stripe;         /* panels of B packed at a time */
    int64_t tile, each;     /* floats of a tile, of a part's sums */
    /* panels of B whose sums are rows of memory: all of them, or one where sums rest between steps */
    int64_t beside;
    int64_t rows;           /* of C: of a task that adds up */
    size_t a_panel, b_panel; /* bytes of a panel's part */
    size_t room, bytes;     /* of a thread; of all */
} parts_plan;

/* What is added up of a row of tiles at a time. */
static size_t sum_bytes(const gemm_kernel *g, const parts_plan *p)
{
    return ROUND_UP((size_t)(MIN(p->rows, g->mr) * p->beside * g->nr) * sizeof(float), ALIGN);
}

static bool parts_make(const gemm_kernel *g, int64_t m, int64_t n, int64_t k, int n_threads, parts_plan *out)
{
    packed_layout a, b;
    if (!pack_layout(g, true, m, k, &a) || !pack_layout(g, false, n, k, &b)) return false;
    parts_plan p = { .down = a.panels, .across = b.panels, .tile = (int64_t)g->mr * g->nr };
    p.part = ROUND_UP(ceil_div(k, k_parts(g, m, k)), (int64_t)g->k_align);
    p.parts = ceil_div(b.k_pad, p.part);
    const bool few = m <= FEW_ROWS;
    p.abreast = few ? MIN(ABREAST, MAX(p.across, 1)) : 1;
    p.kc = few ? p.part : ROUND_UP(ceil_div(p.part, ceil_div(p.part, g->kc)), (int64_t)g->k_align);
    p.rows = MAX(ceil_div(m, 4 * n_threads), 1);
    p.beside = few ? MAX(p.across, 1) : 1;
    p.a_panel = ROUND_UP((size_t)(g->mr * p.part * (g->expand ? 4 : pk_bytes(g->a_pk))), ALIGN);
    p.b_panel = ROUND_UP((size_t)(g->nr * p.part * pk_bytes(g->b_pk)), ALIGN);
    p.stripe = few ? 1 : MIN(MAX((int64_t)(cpu_l2_bytes() / 2 / p.b_panel), 1), p.across);
    p.each = p.down * p.across * p.tile;
    p.room = ALIGN + p.a_panel * (size_t)p.down + p.b_panel * (size_t)p.stripe + sum_bytes(g, &p);
    size_t sums;
    if (!mul_size((size_t)(p.parts * p.each), sizeof(float), &sums) || sums > SIZE_MAX / 4) return false;
    p.bytes = p.room * (size_t)n_threads + sums + ALIGN;
    *out = p;
    return true;
}

bool parts_bytes(const gemm_kernel *g, int64_t m, int64_t n, int64_t k, int n_threads, size_t *bytes)
{
    parts_plan p;
    if (!parts_make(g, m, n, k, n_threads, &p)) return false;
    *bytes = p.bytes;
    return true;
}

typedef struct {
    const gemm_call *c;
    const parts_plan *p;
    bool as_is;
    char *rooms;
    float *sums; /* per part: panel of A after panel, of each its rows, or tile after tile */
} by_k;

static int64_t part_from(const by_k *y, int64_t part)
{
    const int64_t unit = y->c->kernel->k_align;
    return ceil_div(y->c->k, unit) * part / y->p->parts * unit;
}

/* A thread keeps the rows of A of the part it is at: its tasks of a part follow each other. */
static void part_task(void *ctx, int64_t task, int thread)
{
    const by_k *y = ctx;
    const parts_plan *p = y->p;
    const gemm_call *c = y->c;
    const gemm_kernel *g = c->kernel;
    const int64_t part = task / p->abreast, k0 = part_from(y, part), kn = part_from(y, part + 1) - k0,
                  b_k = g->nr * pk_bytes(g->b_pk);
    const int64_t turn = task % p->abreast, first = p->across * turn / p->abreast,
                  end = p->across * (turn + 1) / p->abreast, stripe = y->as_is ? p->across : p->stripe;
    const int64_t a_k = g->mr * (g->expand ? 4 : pk_bytes(g->a_pk));
    char *room = y->rooms + (size_t)thread * p->room, *a = room + ALIGN, *b = a + p->a_panel * (size_t)p->down;
    int64_t *kept = (int64_t *)(void *)room;
    float *sums = y->sums + part * p->each;
    for (int64_t k = 0; k < kn && *kept != part; k += GROUP_STEP)
        for (int64_t i = 0; i < p->down; i++)
            pack_part(c, true, i, k0, kn, k, MIN(k + GROUP_STEP, kn), a + (size_t)i * p->a_panel);
    *kept = part;
    if (g->begin) g->begin();
    for (int64_t j0 = first; j0 < end; j0 += stripe) {
        const int64_t j1 = MIN(j0 + stripe, end);
        for (int64_t k = 0, step = j1 - j0 > 1 ? GROUP_STEP : kn; k < kn && !y->as_is; k += step)
            for (int64_t j = j0; j < j1; j++)
                pack_part(c, false, j, k0, kn, k, MIN(k + step, kn), b + (size_t)(j - j0) * p->b_panel);
        for (int64_t i = 0; i < p->down; i++)
            for (int64_t k = 0; k < kn; k += p->kc) {
                tile_job t = { .k = MIN(p->kc, kn - k),
                               .a = a + (size_t)i * p->a_panel + k * a_k,
                               .b_step = y->as_is ? c->b.row * (int64_t)sizeof(float) : b_k * g->b_kr,
                               .rows = (int)MIN(c->m - i * g->mr, g->mr),
                               .to_ld = p->beside * g->nr * 4 };
                t.ahead[0].at = t.a;
                if (y->as_is && i + 1 < p->down)
                    t.ahead[0].at += p->a_panel, t.ahead[0].step = ceil_div(a_k, end - first);
                /* the piece after this one, which all of A has pushed out of the second cache */
                if (g->fast && (k + p->kc < kn || i + 1 < p->down)) {
                    t.ahead[0].at = k + p->kc < kn ? t.a + p->kc * a_k : a + (size_t)(i + 1) * p->a_panel;
                    t.ahead[0].step = ceil_div(a_k * g->b_kr, j1 - j0);
                }
                for (int64_t j = j0; j < j1; j++) {
                    t.b = y->as_is ? (const char *)((const float *)c->b.at + (k0 + k) * c->b.row + j * g->nr)
                                   : b + (size_t)(j - j0) * p->b_panel + k * b_k;
                    t.cols = (int)MIN(c->n - j * g->nr, g->nr);
                    t.to =
                        (char *)(sums + (i * p->across + j / p->beside * p->beside) * p->tile + j % p->beside * g->nr);
                    t.from = k ? t.to : NULL;
                    t.c = t.to, t.c_ld = t.to_ld, t.c_wide = g->nr * 4;
                    t.ahead[1].at = y->as_is ? t.b + ROWS_AHEAD * t.b_step : t.b;
                    t.ahead[1].step = y->as_is ? t.b_step : 0;
                    g->tile(&t);
                    t.ahead[0].at += t.ahead[0].step * (t.k / g->b_kr);
                }
            }
    }
    if (g->end) g->end();
}

static void sum_task(void *ctx, int64_t task, int thread)
{
    const by_k *y = ctx;
    const parts_plan *p = y->p;
    const gemm_call *c = y->c;
    const gemm_kernel *g = c->kernel;
    const int64_t r0 = task * p->rows, r1 = MIN(r0 + p->rows, c->m), ld = p->beside * g->nr;
    const bool there = is_plain(c) && ld == c->n && c->ldc == c->n; /* sums added up are C */
    float *sum = (float *)(void *)(y->rooms + (size_t)(thread + 1) * p->room - sum_bytes(g, p));
    for (int64_t r = r0, high; r < r1; r += high) { /* within one row of tiles */
        high = MIN(r1 - r, g->mr - r % g->mr);
        for (int64_t j = 0; j < p->across; j += p->beside) {
            g->vec->sum(there ? (float *)c->c + r * c->ldc + j * g->nr : sum,
                        y->sums + (r / g->mr * p->across + j) * p->tile + r % g->mr * ld, p->each, p->parts, high * ld);
            if (!there) finish_rows(c, r, high, j * g->nr, ld, (const char *)sum, NULL, NULL);
        }
    }
    if (c->rows_done) c->rows_done(c->user, r0, r1 - r0, thread);
}

an_status run_parts(const gemm_call *c, bool as_is, diag *d)
{
    const gemm_kernel *g = c->kernel;
    const int n_threads = pool_threads(c->pool);
    parts_plan p;
    if (!parts_make(g, c->m, c->n, c->k, n_threads, &p))
        return diag_fail(d, AN_UNSUPPORTED, NOWHERE, "%s: cannot multiply %lld x %lld by %lld columns", g->name,
                         (long long)c->m, (long long)c->k, (long long)c->n);
    if (c->scratch_bytes < p.bytes)
        return diag_fail(d, AN_BUG, NOWHERE, "%s: %zu bytes of scratch, %zu needed", g->name, c->scratch_bytes,
                         p.bytes);
    char *rooms = (char *)c->scratch + (ALIGN - (uintptr_t)c->scratch % ALIGN) % ALIGN;
    by_k y = {
        .c = c, .p = &p, .as_is = as_is, .rooms = rooms, .sums = (float *)(void *)(rooms + p.room * (size_t)n_threads)
    };
    for (int t = 0; t < n_threads; t++) *(int64_t *)(void *)(rooms + p.room * (size_t)t) = -1;
    pool_enter(c->pool);
    pool_run(c->pool, part_task, &y, p.parts * p.abreast);
    pool_run(c->pool, sum_task, &y, ceil_div(c->m, p.rows));
    pool_leave(c->pool);
    return AN_OK;
}
