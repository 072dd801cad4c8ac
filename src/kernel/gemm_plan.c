/* gemm_plan.c: how a product is cut, and the memory that takes. In: shapes, a kernel, threads.  Out: a plan, by the
 * sizes of the caches.
 *
 * What is added to what depends on k alone, through its steps; how C is cut never changes it. A product by parts of
 * k, which this file only finds memory for, is the exception: its parts depend on the number of rows as well
 * (gemm_parts.c). */
#include "kernel/gemm_plan_int.h"

enum {
    PARTS_PER_THREAD = 16, /* where a part is several panels high */
    /* where each of them brings all of its B from afar */
    FAR_PARTS_PER_THREAD = 6,
    CUT_BITS = 2,          /* of a share's last part: it is cut into four */
    LAZY_THREADS = 4,      /* more would wait for each other's pieces longer than for a stripe packed together */
    DEEP_PANELS = 8,       /* fewer panels of B per stripe would fetch A from afar too often */
    /* of an A whose rows lie side by side: shorter runs, a panel's alone, come slowly from memory */
    RUN_BYTES = 512,
    /* bytes between what two threads write: what fetches lines before they are asked for runs past the end of what one
     * reads */
    APART = 4096,
    FIRST_PANELS = 8,      /* of A by each panel of B that was packed: meanwhile the next one comes */
    FAR_LARGER = 16,       /* than B: A passing by each thread in full costs more than packing B in shares saves */
    LARGER = 2,            /* likewise an A that is packed in passing */
};

a_way gemm_way(const gemm_call *c)
{
    return c->a ? A_PACKED : c->a_view.row == 1 && c->a_view.col != 1 ? A_LANES : A_RUNS;
}

bool plan_make(const gemm_kernel *g, int64_t m, int64_t n, int64_t k, int n_threads, a_way way, bool rows, plan *out)
{
    const bool fresh = way != A_PACKED;
    plan p = { .kc = g->kc, .lazy = n_threads <= LAZY_THREADS };
    if (n_threads < 1 || !pack_layout(g, true, m, k, &p.a) || !pack_layout(g, false, n, k, &p.b)) return false;
    /* Even steps: 400 is cut as 200 + 200, not 384 + 16. The cut depends on k alone. */
    p.k_steps = MAX(ceil_div(p.b.k_pad, g->kc), 1);
    p.kc = MAX(ROUND_UP(ceil_div(p.b.k_pad, p.k_steps), (int64_t)g->k_align), g->k_align);
    p.k_steps = MAX(ceil_div(p.b.k_pad, p.kc), 1);

    /* A few threads share C out by columns where they can: each packs what it multiplies by, and no line of packed B
     * has to come from another's cache. Each then reads all of A, which counts once A is far larger than B, or is to
     * be packed as well. */
    int64_t l2 = (int64_t)cpu_l2_bytes(), mp = MAX(p.a.panels, 1), np = MAX(p.b.panels, 1);
    p.n_panels = p.b.panels;
    const int64_t all_a = mp * p.a.panel_bytes, all_b = np * p.b.panel_bytes;
    /* A fast kernel feels where A comes from. Weights come from memory: the larger they are beside a B that each
     * thread can keep, the more it counts that only one of them fetches a row of them. */
    const bool by_rows = g->fast && !fresh && all_a > all_b && all_b <= l2 / 2;
    /* An A that each packs for itself should be the smaller one, or B one that no cache keeps in whole. */
    const bool small_a = !fresh                      ? all_a <= all_b * FAR_LARGER
                         : g->fast && all_b > l2 / 2 ? all_a <= all_b * LARGER
                                                     : all_a <= all_b / 2;
    int64_t deep = l2 / 2 / MAX(p.b.panel_bytes, 1); /* panels that stay in L2, k steps and all */
    /* Stripes of columns of their own are so much wider for all of them together: if each thread then packs A no
     * more often than all of them would for stripes they share, it is the larger one for nothing. */
    const bool as_often = !g->fast && fresh && p.k_steps == 1 && deep &&
                          n_threads * ceil_div(np, deep * n_threads) <= ceil_div(np, deep);
    p.by_columns = p.lazy && n_threads > 1 && np >= 2 * n_threads && !by_rows && (small_a || as_often);
    const int64_t sharers = p.by_columns ? n_threads : 1;

    /* A step of a stripe and its unfinished sums share L2 with the A panels passing through. Where each stripe widens
     * these again, fewer and wider ones pay. */
    const int64_t step_bytes = l2 * (g->expand ? 3 : 2) / 8;
    int64_t b_panel = p.kc * g->nr * pk_bytes(g->b_pk), tile = (int64_t)g->mr * g->nr * 4;
    p.deep = p.k_steps == 1 || (g->fast && deep >= MIN(DEEP_PANELS, ceil_div(np, sharers)));
    /* A passes by once for each stripe: one less is worth an eighth more than that. */
    const int64_t fit = MAX(p.deep ? deep : step_bytes / MAX(b_panel, 1), 1) * sharers;
    p.stripes = g->fast ? ceil_div(np, fit) : ceil_div(np * 8, fit * 9);
    p.stripe_panels = ceil_div(np, p.stripes);
    p.stripes = ceil_div(np, p.stripe_panels);
    if (!pack_layout(g, false, p.stripe_panels * g->nr, k, &p.b)) return false;

    p.n_parts = MIN(sharers, p.stripe_panels);
    p.m_parts = p.deep ? mp : ceil_div(mp, MAX(l2 / 4 / (tile * ceil_div(p.stripe_panels, p.n_parts)), 1));
    /* What a thread has of a B that L2 does not keep for all of k would come from afar once for each of its parts of
     * rows: it stays there for some steps of k at a time. Scales of int8 need all of k, and a panel of A that is
     * widened for each part costs more than that saves: fewer parts, then. */
    const int64_t share = ceil_div(p.stripe_panels, p.n_parts);
    const bool far_b = p.lazy && !g->fast && !p.deep && share * p.b.panel_bytes > l2,
               far_parts = far_b && (g->math == GEMM_I8 || g->expand);
    p.slab_steps = far_b && !far_parts ? MIN(MAX(l2 / 2 * 9 / 8 / (share * b_panel), 1), p.k_steps) : p.k_steps;
    p.slabs = ceil_div(p.k_steps, p.slab_steps);
    if (p.slabs > 1 && !pack_layout(g, false, p.stripe_panels * g->nr, p.slab_steps * p.kc, &p.b)) return false;
    int64_t want = n_threads > 1 ? (int64_t)(far_parts ? FAR_PARTS_PER_THREAD : PARTS_PER_THREAD) * n_threads : 1;
    /* even ones */
    if (p.m_parts * p.n_parts < want)
        p.m_parts = MAX(p.m_parts, ceil_div(mp, ceil_div(mp, MIN(mp, ceil_div(want, p.n_parts)))));
    if (p.m_parts * p.n_parts < 4 * n_threads) p.n_parts = MIN(p.stripe_panels, ceil_div(4 * n_threads, p.m_parts));
    if (n_threads == 1) p.n_parts = 1;
    const bool far = m * k * (int64_t)sizeof(float) > l2 / 2; /* a smaller A is in the cache after the first panel */
    p.group = way == A_LANES && far && !g->row_sum ? MAX(RUN_BYTES / (g->mr * pk_bytes(g->a_pk)), 1) : 1;
    /* as many for each thread */
    if (p.group > 1) p.m_parts = MIN(p.m_parts, ROUND_UP(ceil_div(mp, p.group), (int64_t)n_threads));
    p.group = MIN(p.group, ceil_div(mp, p.m_parts));
    const int64_t wide = ceil_div(p.stripe_panels, p.n_parts);
    while (p.group == 1 && !far_parts && n_threads > 1 && p.cut_bits < CUT_BITS && (2 << p.cut_bits) <= wide)
        p.cut_bits++;
    p.first = way == A_RUNS && g->math == GEMM_I8 && p.k_steps == 1 && p.lazy ? MIN(FIRST_PANELS, mp) : 1;
    const int64_t tiles = p.k_steps > 1       ? (p.deep ? p.group : ceil_div(mp, p.m_parts)) * wide
                          : g->vec->rightward ? row_tiles(g)
                                              : 1;
    /* between slabs those of a whole stripe rest, and any thread goes on with them */
    p.sums_bytes = p.slabs > 1 ? 0 : ROUND_UP((size_t)(tiles * tile), ALIGN);
    p.stripe_sums = p.slabs > 1 ? ROUND_UP((size_t)(mp * p.stripe_panels * tile), ALIGN) : 0;
    p.each = ROUND_UP((size_t)(g->mr * p.kc * (g->expand ? 4 : pk_bytes(g->a_pk))), ALIGN);
    p.fix_at = p.each * (size_t)MAX(p.group, p.first);
    /* deep: of one panel, or those of a first pass */
    p.piece_bytes =
        p.fix_at +
        (g->row_sum ? ROUND_UP((size_t)(MAX(ceil_div(mp, p.m_parts), p.first) * g->mr) * sizeof(int32_t), ALIGN) : 0);
    p.piece_bytes += APART;
    p.mark_bytes = p.lazy ? ROUND_UP((size_t)(p.stripe_panels * p.slab_steps) * sizeof(mark), ALIGN) + APART : 0;
    /* A panel that another thread packed comes from its cache, line by line: rows of a small B are packed again
     * sooner. */
    p.own = g->fast && g->math == GEMM_BF16 && rows && p.lazy && n_threads > 1 && !p.by_columns && all_b <= l2 / 2;
    p.b_copies = p.own ? n_threads : !p.lazy && p.stripes > 1 ? 2 : 1;
    size_t per_thread, copies;
    if (!mul_size(p.sums_bytes + p.piece_bytes, (size_t)n_threads, &per_thread)) return false;
    if (!mul_size(p.b.bytes, (size_t)p.b_copies, &copies) || copies > SIZE_MAX / 4) return false;
    /* + ALIGN: the caller's scratch may start anywhere */
    p.bytes = copies + p.mark_bytes * (size_t)(p.own ? n_threads : 1) + per_thread + p.stripe_sums + ALIGN;
    *out = p;
    return true;
}

bool gemm_passes(const gemm_kernel *g, int64_t m, int64_t n, int64_t k, int n_threads, gemm_view a)
{
    /* that lines of weights come from afar: packed ahead, they would come once, go once, and come as often */
    enum { TIMES = 2 };
    const bool lanes = a.row == 1 && a.col != 1, lines = a.col == 1 && g->a_pk == PK_BF16 && a.type == DT_BF16;
    plan p;
    if ((!lanes && a.col != 1) || !plan_make(g, m, n, k, n_threads, lanes ? A_LANES : A_RUNS, true, &p)) return false;
    if (g->fast && lanes && p.by_columns) return false; /* each thread would turn all of it */
    return p.stripes <= (g->fast && lines ? TIMES : 1);
}

bool gemm_alone(const gemm_kernel *g, int64_t m, int64_t n, int64_t k)
{
    enum { PRODUCTS = 3000000, ELEMENTS = 1 << 17 };
    const double x = (double)m, y = (double)n, z = (double)k;
    return g->fast && x * y * z < PRODUCTS && x * z + z * y + x * y < ELEMENTS;
}

bool gemm_scratch_bytes(const gemm_kernel *k, int64_t m, int64_t n, int64_t kk, int n_threads, size_t *bytes)
{
    *bytes = 0;
    if (gemm_alone(k, m, n, kk)) n_threads = 1;
    for (a_way w = A_PACKED; w < A_WAYS; w++) {
        plan p;
        if (!plan_make(k, m, n, kk, n_threads, w, true, &p)) return false;
        *bytes = MAX(*bytes, p.bytes);
    }
    if (gemm_few(k, n)) *bytes = MAX(*bytes, few_bytes(k, n, kk, n_threads));
    if (gemm_by_parts(k, m, kk)) {
        size_t parts;
        if (!parts_bytes(k, m, n, kk, n_threads, &parts)) return false;
        *bytes = MAX(*bytes, parts);
    }
    return true;
}
