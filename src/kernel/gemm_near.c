/* gemm_near.c: a product of two packed operands, by one thread. In: packed A and B.  Out: C. */
#include "kernel/gemm_run_int.h"

typedef struct {
    int64_t kc, k_steps;
    size_t sums_bytes, piece_bytes; /* unfinished sums of a row of tiles; a widened piece of A */
} near_plan;

static near_plan near_make(const gemm_kernel *g, int64_t n, int64_t k)
{
    const int64_t tile = (int64_t)g->mr * g->nr * 4;
    near_plan p = { .kc = g->kc, .k_steps = MAX(ceil_div(k, g->kc), 1) };
    p.sums_bytes = (size_t)(tile * (p.k_steps > 1 ? MAX(ceil_div(n, g->nr), 1) : 1));
    p.piece_bytes = g->expand ? ROUND_UP((size_t)(g->mr * g->kc) * sizeof(float), ALIGN) : 0;
    return p;
}

bool gemm_packed_scratch_bytes(const gemm_kernel *k, int64_t n, int64_t kk, size_t *bytes)
{
    packed_layout l;
    if (!pack_layout(k, false, n, kk, &l) || l.panels > INT32_MAX / 4 / k->mr) return false;
    near_plan p = near_make(k, n, kk);
    *bytes = p.sums_bytes + p.piece_bytes + ALIGN;
    return true;
}

/* The loops of a block, with nothing to share out, to pack or to ask for ahead: what takes longer than a product
 * this small. */
an_status run_near(const gemm_call *c, diag *d)
{
    const gemm_kernel *g = c->kernel;
    const near_plan p = near_make(g, c->n, c->k);
    const int64_t a_k = g->mr * pk_bytes(g->a_pk), b_k = g->nr * pk_bytes(g->b_pk),
                  k_pad = ROUND_UP(c->k, (int64_t)g->k_align), c_bytes = c->c_type == DT_F32 ? 4 : 2;
    const int64_t a_panel = ROUND_UP(ROUND_UP(c->a_k ? c->a_k : c->k, (int64_t)g->k_align) * a_k, (int64_t)ALIGN);
    const int64_t b_panel = ROUND_UP(ROUND_UP(c->b_k ? c->b_k : c->k, (int64_t)g->k_align) * b_k, (int64_t)ALIGN);
    const bool plain = is_plain(c);
    if (c->scratch_bytes < p.sums_bytes + p.piece_bytes + ALIGN)
        return diag_fail(d, AN_BUG, NOWHERE, "%s: %zu bytes of scratch, %zu needed", g->name, c->scratch_bytes,
                         p.sums_bytes + p.piece_bytes + ALIGN);
    char *sums = (char *)c->scratch + (ALIGN - (uintptr_t)c->scratch % ALIGN) % ALIGN, *piece = sums + p.sums_bytes;
    if (g->begin) g->begin();
    for (int64_t i = 0; i * g->mr < c->m; i++)
        for (int64_t s = 0; s < p.k_steps; s++) {
            const int64_t k0 = s * p.kc;
            const bool last = s + 1 == p.k_steps;
            const char *a = (const char *)c->a + i * a_panel + k0 * a_k;
            tile_job t = { .k = MIN(p.kc, k_pad - k0),
                           .a = g->expand ? piece : a,
                           .b_step = b_k * g->b_kr,
                           .rows = (int)MIN(c->m - i * g->mr, g->mr) };
            if (g->expand) g->vec->expand(g->a_pk, a, (float *)(void *)piece, t.k * g->mr);
            t.ahead[0].at = t.ahead[1].at = t.a;
            const int64_t whole = g->vec->rightward && t.rows == g->mr && (plain || !last) ? c->n / g->nr : 0;
            for (int64_t j = 0; j * g->nr < c->n; j += 1 + t.right.tiles) {
                char *acc = sums + (p.k_steps > 1 ? j * g->mr * g->nr * 4 : 0);
                t.b = (const char *)c->b_packed + j * b_panel + k0 * b_k;
                t.cols = (int)MIN(c->n - j * g->nr, g->nr);
                t.from = s ? acc : NULL;
                const bool straight = last && plain && t.cols == g->nr && t.rows == g->mr;
                t.to = straight ? (char *)c->c + (i * g->mr * c->ldc + j * g->nr) * c_bytes : acc;
                t.to_ld = straight ? c->ldc * c_bytes : (int64_t)g->nr * 4;
                t.right.tiles = MAX(whole - j - 1, 0), t.right.b = b_panel;
                t.right.to = straight ? g->nr * c_bytes : (int64_t)g->mr * g->nr * 4;
                g->tile(&t);
                if (last && !straight) finish_tile(c, i, j, acc, NULL, NULL);
            }
        }
    if (g->end) g->end();
    return AN_OK;
}
