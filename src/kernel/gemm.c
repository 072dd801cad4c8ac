/* gemm.c: the matrix product's driver. In: packed A, a view of B.  Out: C.
 *
 * B is taken in stripes of columns, so that packed B is fresh in the cache and scratch stays small. Within a stripe
 * C is cut into blocks of whole tiles, smaller ones towards the end. A few threads pack a piece of B when one of
 * them first comes to it (`lazy`), or, where a small B is read fast, each for itself (`own`); many pack the next
 * stripe together into the other of two buffers while one is multiplied. A B whose rows are rows of memory, for few
 * rows of C: of whole panels of fp32 it is read where it lies, as nothing would pay for a copy (`as_is`); a long one
 * is shared out by k, so that a thread meets again the rows it wrote last (gemm_parts.c), and so are operands so
 * long that bringing them is the work: each is then read once, in whole rows. An A that is not packed ahead is
 * packed panel by panel as it passes, but where tiles read its rows as they lie (`reads_rows`). In a block, k is
 * walked in steps of kc: a panel of A stays in L1 while the panels of B pass by from L2, and unfinished sums rest in
 * the thread's scratch as fp32 or int32. Where a fast kernel finds all of k of a stripe in L2 (`deep`), a panel of A
 * goes through all its steps before the next one comes, so that only one row of tiles is ever unfinished; else a
 * step is taken for the whole block. A B so long that L2 does not keep a thread's columns of it goes through the
 * whole stripe some steps at a time (`slabs`): it is packed into memory that stays near, and used before it is gone.
 * int8, whose B is looked at twice before it is packed, begins with several panels of A by each panel of B
 * (run_first). How C is cut never changes what is added to what, so any pool gives the same bits.
 *
 * Each thread begins with the blocks of its own share of C, the same ones at every call of a shape, and helps the
 * others when it is done: what it wrote and read last time may still be in its cache. */
#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>

#include "kernel/gemm_plan_int.h"

static const gemm_kernel rows[] = {
#define GEMM(id, math_, need_, mr_, nr_, kc_, a_pk_, a_kr_, b_pk_, b_kr_, k_align_, fast_, expand_, finishes_, tile_, vec_, begin_, end_, sum_) \
    {                                                                                                                 \
        .name = #id, .math = GEMM_##math_, .need = (need_), .mr = mr_, .nr = nr_, .kc = kc_, .a_pk = a_pk_, .a_kr = a_kr_,    \
        .b_pk = b_pk_, .b_kr = b_kr_, .k_align = k_align_, .fast = fast_, .expand = expand_, .finishes = finishes_, .tile = tile_, .vec = &vec_, \
        .begin = begin_, .end = end_, .row_sum = sum_,                                                                \
    },
#include "kernel/gemm.def"
#undef GEMM
};

static const char *const math_names[GEMM_MATHS] = { "f32", "f16", "bf16", "i8" };

const gemm_kernel *gemm_row(size_t i) { return i < COUNT(rows) ? &rows[i] : NULL; }
const char *gemm_name(const gemm_kernel *k) { return k->name; }
gemm_math gemm_math_of(const gemm_kernel *k) { return k->math; }
uint32_t gemm_need(const gemm_kernel *k) { return k->need; }
const char *gemm_math_name(gemm_math m) { return math_names[m]; }

const gemm_kernel *gemm_pick(gemm_math m, uint32_t isa)
{
    const gemm_kernel *k = rows;
    while (k->math != m || (k->need & ~isa)) k++; /* stops: each math has a scalar row, which needs nothing */
    return k;
}

const gemm_kernel *gemm_once(const gemm_kernel *k, int64_t m, int64_t n, int64_t kk)
{
    enum { MOST = 4 << 20 }; /* elements: a larger A comes from memory, where twice the bytes cost what was saved */
    const gemm_kernel *wide = k;
    if (!k->expand || gemm_few(k, n) || kk > MOST || m > MOST / MAX(kk, 1)) return k;
    while (wide < rows + COUNT(rows) && (wide->expand || wide->math != k->math || wide->need != k->need)) wide++;
    return wide < rows + COUNT(rows) ? wide : k;
}

enum {
    /* this fraction of it is claimed at once: a thread that is late or slowed by its neighbours leaves little to wait
     * for */
    OF_WHAT_IS_LEFT = 8,
    QUEUES = 64,         /* threads beyond share a queue */
};

bool gemm_pack_a_bytes(const gemm_kernel *k, int64_t m, int64_t kk, size_t *bytes)
{
    packed_layout l;
    if (!pack_layout(k, true, m, kk, &l)) return false;
    *bytes = MAX(l.bytes, ALIGN);
    return true;
}

bool gemm_pack_b_bytes(const gemm_kernel *k, int64_t n, int64_t kk, size_t *bytes)
{
    packed_layout l;
    if (!pack_layout(k, false, n, kk, &l)) return false;
    *bytes = MAX(l.bytes, ALIGN);
    return true;
}

/* Past k the packed A goes on, and only B is zero there: that is enough for numbers, not for what is none. Hence
 * whole groups. */
bool gemm_can_begin(const gemm_kernel *g, int64_t k, int64_t a_k)
{
    return k == a_k || (g->math != GEMM_I8 && k < a_k && k % g->k_align == 0);
}

static bool is_one_of(dtype t, bool int8) { return t == DT_F32 || t == DT_F16 || t == DT_BF16 || (int8 && t == DT_I8); }

static bool can_be_a(const gemm_kernel *g, dtype t) { return g->math == GEMM_I8 ? t == DT_I8 : is_one_of(t, true); }
static an_status refuse_b(const gemm_kernel *g, dtype t, diag *d)
{
    return diag_fail(d, AN_UNSUPPORTED, NOWHERE, "%s: the right operand cannot be %s", g->name, dtype_name(t));
}
static an_status refuse_a(const gemm_kernel *g, dtype t, diag *d)
{
    return diag_fail(d, AN_UNSUPPORTED, NOWHERE, "%s: the left operand cannot be %s", g->name, dtype_name(t));
}

static an_status pack_ahead(const gemm_kernel *k, bool is_a, pool *p, int64_t lanes, int64_t kk, gemm_view v, bool past,
                            void *out, diag *d)
{
    pack_ctx x;
    if ((uintptr_t)out % ALIGN)
        return diag_fail(d, AN_BUG, NOWHERE, "%s: packed memory must be aligned to %d bytes", k->name, ALIGN);
    if (!pack_begin(&x, k, is_a, lanes, kk, v, out))
        return diag_fail(d, AN_UNSUPPORTED, NOWHERE, "%s: cannot pack %lld x %lld", k->name,
                         (long long)(is_a ? lanes : kk), (long long)(is_a ? kk : lanes));
    x.job.past = past;
    pool_run(p, pack_task, &x, x.n_tasks);
    return AN_OK;
}

an_status gemm_pack_a(const gemm_kernel *k, pool *p, int64_t m, int64_t kk, gemm_view a, void *out, diag *d)
{
    return can_be_a(k, a.type) ? pack_ahead(k, true, p, m, kk, a, false, out, d) : refuse_a(k, a.type, d);
}

an_status gemm_pack_a_past(const gemm_kernel *k, pool *p, int64_t m, int64_t kk, gemm_view a, void *out, diag *d)
{
    return can_be_a(k, a.type) ? pack_ahead(k, true, p, m, kk, a, true, out, d) : refuse_a(k, a.type, d);
}

an_status gemm_pack_b(const gemm_kernel *k, pool *p, int64_t n, int64_t kk, gemm_view b, void *out, diag *d)
{
    return is_one_of(b.type, false) && k->math != GEMM_I8 ? pack_ahead(k, false, p, n, kk, b, false, out, d)
                                                          : refuse_b(k, b.type, d);
}

/* Cuts of a share: the next one, and where it ends. On a line of its own: every thread reads what lies beside it, at
 * every tile. */
typedef struct {
    alignas(ALIGN) _Atomic int64_t next;
    int64_t end;
} counter;

/* One region of the pool: a stripe multiplied, and the next one packed. */
typedef struct {
    const gemm_call *c;
    const plan *p;
    char *b;            /* the packed stripe */
    mark *marks;        /* lazy: of panel j at step s: [j * slab_steps + s] */
    size_t b_extra;     /* its column scales */
    int64_t j_first, j_count; /* its panels, counted in all of B */
    /* of this slab, its first step and k, how many steps it has, how much padded k: both are counted within it */
    int64_t s_first, k_first, steps, k_pad;
    char *sums;             /* of several slabs: unfinished ones of the stripe */
    pack_ctx pack;      /* of the next stripe; n_tasks 0: none. lazy: of this one */
    char *threads;
    bool plain; /* C is what the tile gives */
    bool as_is; /* nothing of B is packed */
    int64_t queues;
    counter *shares; /* QUEUES of them */
} run_ctx;

/* Parts row..row + high of a column of them, or one cut of one part. */
typedef struct {
    int64_t row, column, high, cut; /* cut -1: whole parts */
} claimed;

static void share_out(const run_ctx *x)
{
    const int64_t parts = x->p->m_parts * x->p->n_parts;
    for (int64_t q = 0; q < x->queues; q++) {
        atomic_init(&x->shares[q].next, parts * q / x->queues << x->p->cut_bits);
        x->shares[q].end = parts * (q + 1) / x->queues << x->p->cut_bits;
    }
}

static bool claim(const run_ctx *x, int thread, claimed *out)
{
    const plan *p = x->p;
    const int64_t cuts = (int64_t)1 << p->cut_bits, own = thread % x->queues;
    for (int64_t i = 0; i < x->queues; i++) {
        counter *c = &x->shares[own + i < x->queues ? own + i : own + i - x->queues];
        int64_t at = atomic_load_explicit(&c->next, memory_order_relaxed);
        while (at < c->end) {
            const int64_t part = at >> p->cut_bits, left = (c->end - at) >> p->cut_bits, cut = at & (cuts - 1),
                          column = p->n_parts > 1 ? part / p->m_parts : 0, row = part - column * p->m_parts;
            const bool whole = !cut && (left > 1 || x->queues == 1);
            const int64_t high =
                whole && p->deep ? MIN(MAX(x->queues > 1 ? left / OF_WHAT_IS_LEFT : left, 1), p->m_parts - row) : 1;
            *out = (claimed){ .row = row, .column = column, .high = high, .cut = whole || cuts == 1 ? -1 : cut };
            if (atomic_compare_exchange_weak_explicit(&c->next, &at, at + (whole ? high * cuts : 1),
                                                      memory_order_relaxed, memory_order_relaxed))
                return true;
        }
    }
    return false;
}

/* int8: the scales of panel j of B. j counts within the stripe here and below. */
static const float *col_scale(const run_ctx *x, int64_t j)
{
    return (const float *)(const void *)(x->b + x->b_extra) + j * x->c->kernel->nr;
}

bool is_plain(const gemm_call *c)
{
    const gemm_epilogue *e = &c->epi;
    const gemm_kernel *g = c->kernel;
    return c->c_type == DT_F32 && (g->math == GEMM_I8 ? g->finishes : !e->scale) && !e->bias && !e->col_bias &&
           !e->residual && !e->gate && !e->pass.at && !e->accumulate && e->act == ACT_NONE;
}

void finish_rows(const gemm_call *c, int64_t r0, int64_t high, int64_t c0, int64_t ld, const char *acc,
                 const int32_t *fix, const float *scales)
{
    const gemm_kernel *g = c->kernel;
    const gemm_epilogue *e = &c->epi;
    const int64_t cb = c->c_type == DT_F32 ? 4 : 2;
    epi_job job = {
        .acc = acc,
        .is_int = g->math == GEMM_I8,
        .row_fix = fix,
        .ld = (int)ld,
        .rows = (int)high,
        .cols = (int)MIN(c->n - c0, ld),
        .scale = e->scale ? e->scale + r0 : NULL,
        .bias = e->bias ? e->bias + r0 : NULL,
        .col_bias = e->col_bias ? e->col_bias + c0 : NULL,
        .act = e->act,
        .accumulate = e->accumulate,
        .c_type = c->c_type,
        .c = (char *)c->c + (r0 * c->ldc + c0) * cb,
        .ldc = c->ldc * cb,
        .residual = e->residual ? (const char *)e->residual + (r0 * e->ld_residual + c0) * cb : NULL,
        .ld_residual = e->ld_residual * cb,
        .gate = e->gate ? (const char *)e->gate + (r0 * e->ld_gate + c0) * cb : NULL,
        .ld_gate = e->ld_gate * cb,
        .pass = e->pass.at ? (const char *)e->pass.at + (r0 * e->pass.ld + c0) * cb : NULL,
        .ld_pass = e->pass.ld * cb,
        .above = e->pass.above,
        .shut = e->pass.shut,
        .col_scale = scales,
    };
    g->vec->epilogue(&job);
}

void finish_tile(const gemm_call *c, int64_t i, int64_t j, const char *acc, const int32_t *fix, const float *scales)
{
    const gemm_kernel *g = c->kernel;
    const int64_t r0 = i * g->mr;
    finish_rows(c, r0, MIN(c->m - r0, g->mr), j * g->nr, g->nr, acc, fix, scales);
}

int64_t gemm_tiles(const gemm_kernel *g, int64_t m, int64_t n) { return ceil_div(m, g->mr) * ceil_div(n, g->nr); }

/* across: tiles of a row of C */
static void tile_squares(const gemm_call *c, int64_t i, int64_t j, int64_t across)
{
    const gemm_kernel *g = c->kernel;
    const int64_t r0 = i * g->mr, c0 = j * g->nr;
    c->squares[i * across + j] =
        g->vec->squares((const float *)c->c + r0 * c->ldc + c0, c->ldc, MIN(c->m - r0, g->mr), MIN(c->n - c0, g->nr));
}

static void squares_task(void *ctx, int64_t task, int thread)
{
    const gemm_call *c = ctx;
    const int64_t across = ceil_div(c->n, c->kernel->nr);
    (void)thread;
    for (int64_t j = 0; j < across; j++) tile_squares(c, task, j, across);
}

/* Ways that have no tiles of C in hand. */
static an_status squares_after(const gemm_call *c, an_status st)
{
    if (!st && c->squares) pool_run(c->pool, squares_task, (void *)(uintptr_t)c, ceil_div(c->m, c->kernel->mr));
    return st;
}

/* Panels i0..i1 of A by j0..j1 of B. */
typedef struct {
    int64_t i0, i1, j0, j1;
    /* which panel of B it begins with: threads with the same ones begin with different ones, and pack those */
    int64_t turn;
    char *piece;  /* its thread's */
    int64_t g0;   /* the first panel of those packed together */
    int64_t next; /* first: the panel of B after this one */
    bool first;   /* pieces of panels g0 on are there, and the panels of B are yet to be packed */
} block;

static const char *packed_a(const run_ctx *x, int64_t panel, int64_t step)
{
    const gemm_kernel *g = x->c->kernel;
    return (const char *)x->c->a + panel * x->p->a.panel_bytes +
           (x->s_first + step) * x->p->kc * g->mr * pk_bytes(g->a_pk);
}

/* Pieces of panels i0..i1 at step s, one behind the other. Their rows lie side by side: what is read of each k is
 * one run. Lines of more rows than the first cache keeps would be gone before the last panel reads them. */
static void pack_group(const run_ctx *x, int64_t s, int64_t i0, int64_t i1, char *pieces)
{
    enum { STEP = 32 }; /* of k */
    const gemm_call *c = x->c;
    const int64_t k0 = s * x->p->kc, kn = MIN(x->p->kc, x->k_pad - k0), step = MAX(STEP, c->kernel->a_kr);
    for (int64_t k = 0; k < kn; k += step)
        for (int64_t i = i0; i < i1; i++)
            pack_part(c, true, i, x->k_first + k0, kn, k, MIN(k + step, kn), pieces + (i - i0) * (int64_t)x->p->each);
}

/* Row sums of panel i up to and with the piece that was packed last. */
static const int32_t *piece_sums(const run_ctx *x, const block *w, int64_t i, bool first, int64_t kn)
{
    const gemm_kernel *g = x->c->kernel;
    const int64_t at = w->first ? i - w->g0 : 0;
    int32_t now[MOST_WIDTH], *sum = (int32_t *)(void *)(w->piece + x->p->fix_at) + (w->first     ? at
                                                                                    : x->p->deep ? 0
                                                                                                 : i - w->i0) *
                                                                                       g->mr;
    g->row_sum(kn, w->piece + at * (int64_t)x->p->each, first ? sum : now);
    for (int r = 0; !first && r < g->mr; r++) sum[r] += now[r];
    return sum;
}

/* Of the panel of B that is packed next, the share of panel i of A. */
static void next_panel(const run_ctx *x, const block *w, int64_t i, tile_job *t)
{
    const gemm_view *v = &x->c->b;
    const int64_t high = w->i1 - w->i0, units = MAX(x->p->kc / x->c->kernel->b_kr, 1),
                  bytes = x->c->kernel->nr * x->c->k * view_bytes(v->type);
    const bool more = w->next < x->j_count &&
                      atomic_load_explicit(x->marks + w->next * x->p->slab_steps, memory_order_relaxed) == MISSING;
    t->ahead[0].at = t->ahead[1].at = x->b;
    t->ahead[0].step = t->ahead[1].step = 0;
    if (!more) return;
    t->ahead[1].at = (const char *)v->at + (x->j_first + w->next) * bytes + bytes * (i - w->i0) / high;
    t->ahead[1].step = ceil_div(bytes / high, units);
}

/* Can a tile read panel i of A where it lies? Its rows are lines of whole k groups of what would be packed. Rows
 * half a page apart would have more lines in some places of the first cache than it has ways. */
static bool reads_rows(const gemm_call *c, int64_t i)
{
    enum { LINE = 64, HALF_PAGE = 2048 };
    const gemm_kernel *g = c->kernel;
    const gemm_view *v = &c->a_view;
    const int64_t row = v->row * view_bytes(v->type);
    const bool same = (g->a_pk == PK_BF16 && v->type == DT_BF16) || (g->a_pk == PK_I8 && v->type == DT_I8);
    return same && g->a_kr * pk_bytes(g->a_pk) == LINE && v->col == 1 && (i + 1) * g->mr <= c->m &&
           c->k % g->k_align == 0 && row % LINE == 0 && row % HALF_PAGE && (uintptr_t)v->at % LINE == 0;
}

/* Where A goes on after panel i at step s, and B at the step after; each shared out over the tiles until then. The task
 * after this one probably starts where this one ends. */
static void look_ahead(const run_ctx *x, const block *w, int64_t s, int64_t i, tile_job *t)
{
    const plan *p = x->p;
    const gemm_kernel *g = x->c->kernel;
    const int64_t a_unit = g->mr * pk_bytes(g->a_pk) * g->b_kr, b_unit = g->nr * pk_bytes(g->b_pk) * g->b_kr;
    const bool last_i = i + 1 == w->i1, last_s = s + 1 == x->steps;
    int64_t next = !last_i ? i + 1 : last_s ? MIN(w->i1, p->a.panels - 1) : w->i0, step = !last_i ? s : last_s ? 0 : s + 1;
    if (p->deep) next = !last_s ? i : MIN(i + 1, p->a.panels - 1), step = last_s ? 0 : s + 1;
    const gemm_view *v = &x->c->a_view;
    if (x->c->a) {
        t->ahead[0].at = packed_a(x, next, step);
        t->ahead[0].step = ceil_div(a_unit, w->j1 - w->j0);
    } else if (v->col == 1 && v->row == x->c->k &&
               p->deep) { /* a panel's rows follow each other: each step asks for its share of the next one's */
        const int64_t size = view_bytes(v->type), below = MIN(i + 1, p->a.panels - 1);
        t->ahead[0].at = (const char *)v->at + (below * g->mr * v->row + s * p->kc * g->mr) * size;
        t->ahead[0].step = ceil_div(g->mr * size * g->b_kr, w->j1 - w->j0), t->far = p->k_steps > 1;
    } else {
        t->ahead[0].at = x->b;
        t->ahead[0].step = 0;
    }
    t->ahead[1].at = x->b;
    t->ahead[1].step = 0;
    if (last_s || p->deep || x->as_is) return;
    /* Tile (i, j) asks for the share i of panel j at the next step. */
    int64_t share = ceil_div(p->kc / g->b_kr * b_unit, w->i1 - w->i0);
    t->ahead[1].at = x->b + (s + 1) * p->kc * (b_unit / g->b_kr) + (i - w->i0) * share;
    t->ahead[1].step = ceil_div(share, MAX(p->kc / g->b_kr, 1));
}

static bool b_as_is(const gemm_call *c)
{
    const gemm_kernel *g = c->kernel;
    return g->math == GEMM_F32 && c->b.type == DT_F32 && c->b.col == 1 && c->n % g->nr == 0 && c->k % g->k_align == 0 &&
           c->m <= FEW_ROWS;
}

static bool claim_piece(mark *at)
{
    unsigned char missing = MISSING;
    return atomic_load_explicit(at, memory_order_relaxed) == MISSING &&
           atomic_compare_exchange_strong_explicit(at, &missing, UNDER_WAY, memory_order_relaxed, memory_order_relaxed);
}

/* lazy: the piece of panel j at step s, packed now if nobody began to; int8 takes all steps at once, its scales need
 * them. Where columns are side by side, some of the panels behind it are packed with it, for a line of every row
 * alone comes at half the speed of runs; at most half of a block's, since another thread may be waiting for the
 * others, unless the block's columns are this thread's own. */
static void have_piece(const run_ctx *x, const block *w, int64_t s, int64_t j)
{
    enum { STEP = 32 }; /* of k */
    const plan *p = x->p;
    const bool whole = x->pack.col_scale != NULL,
               side_by_side =
                   whole ? x->pack.job.lane_stride == view_bytes(x->pack.job.type) && x->c->k : x->pack.group > 1;
    mark *at = x->marks + j * p->slab_steps + (whole ? 0 : s);
    if (atomic_load_explicit(at, memory_order_acquire) == PACKED) return;
    if (claim_piece(at)) {
        const int64_t k0 = whole ? 0 : s * p->kc, k1 = whole ? x->k_pad : MIN((s + 1) * p->kc, x->k_pad);
        const int64_t beside = p->own || p->by_columns ? BESIDE : MIN(BESIDE, (w->j1 - w->j0) / 2),
                      most = side_by_side ? MIN(beside, w->j1 - j) : 1;
        int64_t n = 1;
        while (n < most && claim_piece(at + n * p->slab_steps)) n++;
        int64_t k = k0;
        if (whole && n > 1) pack_beside(&x->pack, j, n);
        else
            do { /* once even when k is 0: scales are written all the same */
                const int64_t to = n > 1 ? MIN(k + STEP, k1) : k1;
                for (int64_t i = 0; i < n; i++) pack_panel(&x->pack, j + i, k, to);
                k = to;
            } while (k < k1);
        for (int64_t i = 0; i < n; i++) atomic_store_explicit(at + i * p->slab_steps, PACKED, memory_order_release);
        return;
    }
    /* rare: microseconds, unless its packer was put to sleep */
    while (atomic_load_explicit(at, memory_order_acquire) != PACKED) sched_yield();
}

/* Are whole panels j and those behind it packed, `most` of them, for step s? How many, one after the other. */
static int64_t packed_beside(const run_ctx *x, int64_t s, int64_t j, int64_t most)
{
    const plan *p = x->p;
    const mark *at = x->marks + (x->pack.col_scale ? 0 : s);
    int64_t n = 0;
    if (!p->lazy) return most;
    while (n < most && atomic_load_explicit(at + (j + n) * p->slab_steps, memory_order_acquire) == PACKED) n++;
    return n;
}

/* Panel i of A at step s by the panels j0..j1 of B; sums: those of panel i. */
static void run_row(const run_ctx *x, const block *w, int64_t s, int64_t i, char *sums)
{
    const plan *p = x->p;
    const gemm_call *c = x->c;
    const gemm_kernel *g = c->kernel;
    const int64_t tile_bytes = (int64_t)g->mr * g->nr * 4, b_k = g->nr * pk_bytes(g->b_pk),
                  c_bytes = c->c_type == DT_F32 ? 4 : 2;
    const int64_t k0 = s * p->kc, kn = MIN(p->kc, x->k_pad - k0);
    const bool last = x->s_first + s + 1 == p->k_steps;
    const int64_t high = MIN(c->m - i * g->mr, g->mr);
    tile_job t = { .k = kn,
                   .a = w->piece + (p->group > 1 || w->first ? (i - w->g0) * (int64_t)p->each : 0),
                   .rows = (int)high };
    const bool as_it_lies = !c->a && !w->first && p->group == 1 && reads_rows(c, i);
    if (as_it_lies) {
        const int64_t size = view_bytes(c->a_view.type);
        t.a_row = c->a_view.row * size;
        t.a = (const char *)c->a_view.at + i * g->mr * t.a_row + (x->k_first + k0) * size;
    }
    if (w->first) next_panel(x, w, i, &t);
    else look_ahead(x, w, s, i, &t);
    const int32_t *fix =
        c->a && g->row_sum ? (const int32_t *)(const void *)((const char *)c->a + p->a.extra) + i * g->mr : NULL;
    if (w->first) {
        if (g->row_sum) fix = (const int32_t *)(const void *)(w->piece + p->fix_at) + (i - w->g0) * g->mr;
    } else if (!c->a && !as_it_lies && p->group == 1) {
        pack_part(c, true, i, x->k_first + k0, kn, 0, kn, w->piece);
        if (g->row_sum) fix = piece_sums(x, w, i, !s, kn);
    } else if (c->a && g->expand) g->vec->expand(g->a_pk, packed_a(x, i, s), (float *)(void *)w->piece, kn * g->mr);
    else if (c->a) t.a = packed_a(x, i, s);
    if (x->plain && g->math == GEMM_I8) {
        t.row_scale = c->epi.scale ? c->epi.scale + i * g->mr : NULL;
        t.row_fix = fix;
    }
    const char *ahead = t.ahead[1].at;
    const int64_t asked = t.ahead[0].step * (kn / g->b_kr); /* by a tile */
    /* tiles that are done by one call, few where all are looked at again; panels that are whole */
    const int64_t abreast = !g->vec->rightward || x->as_is || high < g->mr ? 1
                            : last && (!x->plain || c->squares)            ? row_tiles(g)
                                                                           : w->j1 - w->j0,
                  whole = c->n / g->nr - x->j_first;
    for (int64_t l = w->j0, n; l < w->j1; l += n) {
        const int64_t j = l + w->turn < w->j1 ? l + w->turn : l + w->turn - (w->j1 - w->j0);
        char *acc = p->k_steps > 1 ? sums + (j - w->j0) * tile_bytes : sums;
        const int64_t col = (x->j_first + j) * g->nr;
        if (x->as_is) {
            t.b = (const char *)((const float *)c->b.at + (x->k_first + k0) * c->b.row + col);
            t.b_step = c->b.row * (int64_t)sizeof(float);
            t.ahead[1].at = t.b + ROWS_AHEAD * t.b_step; /* of memory no prefetcher follows so far */
            t.ahead[1].step = t.b_step;
        } else {
            if (p->lazy) have_piece(x, w, s, j);
            t.b = x->b + j * p->b.panel_bytes + k0 * b_k;
            t.b_step = b_k * g->b_kr;
        }
        if (!x->as_is && t.ahead[1].step) t.ahead[1].at = ahead + j * p->b.panel_bytes;
        const int64_t wide = MIN(c->n - col, g->nr);
        n = 1;
        if (abreast > 1 && j < whole)
            n += packed_beside(x, s, j + 1, MIN(MIN(abreast, w->j1 - l), MIN(w->j1, whole) - j) - 1);
        t.cols = (int)wide;
        t.from = x->s_first + s ? acc : NULL;
        t.to = acc;
        t.to_ld = (int64_t)g->nr * 4;
        /* Not what t holds: two fields read as one wait until they are in the cache, behind all that the tile before
         * has stored. */
        const bool straight = last && x->plain && wide == g->nr && high == g->mr;
        t.col_scale = straight && g->math == GEMM_I8 ? col_scale(x, j) : NULL;
        if (straight) { /* no need to pass through scratch */
            t.to = (char *)c->c + (i * g->mr * c->ldc + col) * c_bytes;
            t.to_ld = c->ldc * c_bytes;
        }
        if (last) {
            t.c_ld = c->ldc * c_bytes;
            t.c = (const char *)c->c + i * g->mr * t.c_ld + col * c_bytes;
            t.c_wide = (int)(wide * c_bytes);
            const gemm_epilogue *e = &c->epi;
            t.beside_ld = (e->gate ? e->ld_gate : e->pass.at ? e->pass.ld : e->ld_residual) * c_bytes;
            const char *beside = e->gate ? e->gate : e->pass.at ? e->pass.at : e->residual;
            t.beside = beside ? beside + i * g->mr * t.beside_ld + col * c_bytes : NULL;
        }
        if (n > 1) {
            t.right.b = p->b.panel_bytes, t.right.to = straight ? t.c_wide : tile_bytes;
            t.right.near1 = t.ahead[1].step ? p->b.panel_bytes : 0;
        }
        t.right.tiles = n - 1;
        g->tile(&t);
        for (int64_t e = j; last && e < j + n; e++) { /* all in the first cache now */
            if (!straight)
                finish_tile(c, i, x->j_first + e, acc + (e - j) * tile_bytes, fix,
                            g->math == GEMM_I8 ? col_scale(x, e) : NULL);
            if (c->squares) tile_squares(c, i, x->j_first + e, p->n_panels);
        }
        t.ahead[0].at += asked * n;
    }
}

static void run_group(const run_ctx *x, block *w, int64_t s, char *sums, int64_t row_bytes)
{
    const int64_t end = MIN(w->g0 + x->p->group, w->i1);
    if (x->p->group > 1) pack_group(x, s, w->g0, end, w->piece);
    for (int64_t i = w->g0; i < end; i++) run_row(x, w, s, i, sums + (i - w->g0) * row_bytes);
}

/* int8 looks at a panel of B twice before it can be multiplied, first from afar. Where panels lie one behind the
 * other and are not there yet, each is multiplied by several panels of A while the next one comes. */
static bool is_first(const run_ctx *x, const block *w)
{
    const gemm_call *c = x->c;
    const bool runs = !c->a && c->b.row == 1 && c->b.col == c->k && c->n % c->kernel->nr == 0;
    return x->p->first > 1 && runs && w->i1 - w->i0 > 1 &&
           atomic_load_explicit(x->marks + (w->j0 + w->turn) * x->p->slab_steps, memory_order_relaxed) == MISSING;
}

static int64_t run_first(const run_ctx *x, const block *all, char *sums)
{
    block w = *all;
    w.first = true, w.g0 = w.i0, w.i1 = MIN(w.i1, w.i0 + x->p->first), w.turn = 0;
    const int64_t kn = x->p->b.k_pad, wide = all->j1 - all->j0;
    for (int64_t i = w.i0; i < w.i1; i++) {
        pack_part(x->c, true, i, 0, kn, 0, kn, w.piece + (i - w.i0) * (int64_t)x->p->each);
        if (x->c->kernel->row_sum) (void)piece_sums(x, &w, i, true, kn);
    }
    for (int64_t l = 0; l < wide; l++) {
        w.j0 = all->j0 + (l + all->turn) % wide, w.j1 = w.j0 + 1,
        w.next = l + 1 < wide ? all->j0 + (l + 1 + all->turn) % wide : x->j_count;
        for (int64_t i = w.i0; i < w.i1; i++) run_row(x, &w, 0, i, sums);
    }
    return w.i1;
}

/* Where part i begins. A small product feels divisions, and mostly a part is a panel or everything. */
static int64_t part_from(int64_t panels, int64_t i, int64_t parts)
{
    return parts == panels ? i : parts == 1 ? panels * i : panels * i / parts;
}

static void run_block(const run_ctx *x, claimed now, int thread)
{
    const plan *p = x->p;
    const gemm_kernel *g = x->c->kernel;
    char *sums = x->threads + (size_t)thread * (p->sums_bytes + p->piece_bytes);
    block w = { .i0 = part_from(p->a.panels, now.row, p->m_parts),
                .i1 = part_from(p->a.panels, now.row + now.high, p->m_parts),
                .j0 = part_from(x->j_count, now.column, p->n_parts),
                .j1 = part_from(x->j_count, now.column + 1, p->n_parts),
                .piece = sums + p->sums_bytes };
    if (now.cut >= 0) {
        const int64_t j0 = w.j0, wide = w.j1 - w.j0;
        w.j0 = j0 + (wide * now.cut >> p->cut_bits), w.j1 = j0 + (wide * (now.cut + 1) >> p->cut_bits);
    } else if (p->lazy && !p->own && p->n_parts == 1) w.turn = (w.j1 - w.j0) * (thread % x->queues) / x->queues;
    if (w.j0 == w.j1) return; /* a short last stripe */
    /* of one step: only a tile is ever unfinished */
    const int64_t tile_bytes = (int64_t)g->mr * g->nr * 4;
    int64_t row_bytes = p->k_steps > 1 ? tile_bytes * (w.j1 - w.j0) : 0;
    if (p->slabs > 1) row_bytes = tile_bytes * p->stripe_panels, sums = x->sums + w.i0 * row_bytes + w.j0 * tile_bytes;
    if (is_first(x, &w)) w.i0 = run_first(x, &w, sums);
    if (p->deep)
        for (w.g0 = w.i0; w.g0 < w.i1; w.g0 += p->group)
            for (int64_t s = 0; s < x->steps; s++) run_group(x, &w, s, sums, row_bytes);
    else
        for (int64_t s = 0; s < x->steps; s++)
            for (w.g0 = w.i0; w.g0 < w.i1; w.g0 += p->group)
                run_group(x, &w, s, sums + (w.g0 - w.i0) * row_bytes, row_bytes);
}

/* The same with the thread's own copy of B; int8, which has scales beside it, makes none. */
static run_ctx own_b(const run_ctx *x, int thread)
{
    const size_t by = x->p->b.bytes * (size_t)thread;
    run_ctx mine = *x;
    mine.b += by, mine.pack.job.dst += by;
    mine.marks += x->p->mark_bytes / sizeof(mark) * (size_t)thread;
    return mine;
}

/* Packs something of the next stripe, or multiplies until nothing of this one is left. */
static void run_task(void *ctx, int64_t task, int thread)
{
    run_ctx *x = ctx;
    const gemm_kernel *g = x->c->kernel;
    if (task < x->pack.n_tasks) {
        pack_task(&x->pack, task, thread);
        return;
    }
    const run_ctx mine = x->p->own ? own_b(x, thread) : *x;
    if (g->begin) g->begin();
    for (claimed now; claim(&mine, thread, &now);) run_block(&mine, now, thread);
    if (g->end) g->end();
}

/* Packing of stripe s, of several slabs that from k_first, or of nothing past the last. */
static an_status stripe_begin(const gemm_call *c, const plan *p, int64_t s, int64_t k_first, char *to, pack_ctx *out,
                              diag *d)
{
    const gemm_kernel *g = c->kernel;
    const int64_t col = s * p->stripe_panels * g->nr;
    out->n_tasks = 0;
    if (s >= p->stripes) return AN_OK;
    gemm_view v = c->b;
    v.at = (const char *)v.at + (col * v.col + k_first * v.row) * view_bytes(v.type);
    if (!pack_begin(out, g, false, MIN(c->n - col, p->stripe_panels * g->nr),
                    p->slabs > 1 ? MIN(c->k - k_first, p->slab_steps * p->kc) : c->k, v, to))
        return diag_fail(d, AN_BUG, NOWHERE, "%s: a layout that was fine is not", g->name);
    out->l.panel_bytes = p->b.panel_bytes; /* the last slab is shorter */
    return AN_OK;
}

static an_status refuse(const gemm_call *c, diag *d)
{
    const char *name = c->kernel->name;
    if (!c->b_packed && !is_one_of(c->b.type, false)) return refuse_b(c->kernel, c->b.type, d);
    if (!is_one_of(c->c_type, false))
        return diag_fail(d, AN_UNSUPPORTED, NOWHERE, "%s: the result cannot be %s; fp32, fp16 or bf16", name,
                         dtype_name(c->c_type));
    if (c->squares && c->c_type != DT_F32)
        return diag_fail(d, AN_BUG, NOWHERE, "%s: squares are summed of fp32, not of %s", name, dtype_name(c->c_type));
    if ((unsigned)c->epi.act >= ACT_COUNT)
        return diag_fail(d, AN_BUG, NOWHERE, "%s: activation %d", name, (int)c->epi.act);
    const gemm_epilogue *e = &c->epi;
    const int64_t wide[] = { c->ldc, e->residual ? e->ld_residual : c->n, e->gate ? e->ld_gate : c->n,
                             e->pass.at ? e->pass.ld : c->n };
    for (size_t i = 0; i < COUNT(wide); i++)
        if (wide[i] < c->n)
            return diag_fail(d, AN_BUG, NOWHERE, "%s: rows of %lld elements cannot hold %lld columns", name,
                             (long long)wide[i], (long long)c->n);
    if (!c->a && !can_be_a(c->kernel, c->a_view.type)) return refuse_a(c->kernel, c->a_view.type, d);
    if (c->a && c->a_k && !gemm_can_begin(c->kernel, c->k, c->a_k))
        return diag_fail(d, AN_BUG, NOWHERE, "%s: a product over %lld cannot take the beginning of %lld packed", name,
                         (long long)c->k, (long long)c->a_k);
    if (((uintptr_t)c->a | (uintptr_t)c->b_packed) % ALIGN)
        return diag_fail(d, AN_BUG, NOWHERE, "%s: packed memory must be aligned to %d bytes", name, ALIGN);
    if (c->b_packed && (!c->a || c->kernel->math == GEMM_I8 || (c->b_k && !gemm_can_begin(c->kernel, c->k, c->b_k))))
        return diag_fail(d, AN_BUG, NOWHERE, "%s: a packed right operand of %lld does not fit a product over %lld",
                         name, (long long)c->b_k, (long long)c->k);
    if (c->n_more < 0 || c->n_more > (c->a && gemm_few(c->kernel, c->n) ? GEMM_MORE : 0))
        return diag_fail(d, AN_BUG, NOWHERE,
                         "%s: %d further left operands; %d where the first is packed and columns are few", name,
                         c->n_more, GEMM_MORE);
    for (int i = 0; i < c->n_more; i++)
        if (!c->more[i].a || (uintptr_t)c->more[i].a % ALIGN || c->more[i].m < 0)
            return diag_fail(d, AN_BUG, NOWHERE, "%s: further operand %d is not packed memory", name, i);
    return AN_OK;
}

an_status gemm_run(const gemm_call *given, diag *d)
{
    const gemm_kernel *g = given->kernel;
    gemm_call one = *given;
    const gemm_call *c = given;
    plan p;
    TRY(refuse(c, d));
    if (gemm_alone(g, c->m, c->n, c->k)) one.pool = NULL, c = &one;
    if (c->b_packed) return squares_after(c, run_near(c, d));
    if (c->a && gemm_few(g, c->n)) return squares_after(c, run_few(c, d));
    const bool as_is = b_as_is(c);
    if (c->m && c->n && !c->a && c->b.col == 1 && gemm_by_parts(g, c->m, c->k))
        return squares_after(c, run_parts(c, as_is, d));
    if (thin_fits(c)) return run_thin(c), squares_after(c, AN_OK);
    if (short_fits(c)) return run_short(c), squares_after(c, AN_OK);
    if (!plan_make(g, c->m, c->n, c->k, pool_threads(c->pool), gemm_way(c), c->b.col == 1, &p))
        return diag_fail(d, AN_UNSUPPORTED, NOWHERE, "%s: cannot multiply %lld x %lld by %lld x %lld", g->name,
                         (long long)c->m, (long long)c->k, (long long)c->k, (long long)c->n);
    if (c->a && c->a_k && !pack_layout(g, true, c->m, c->a_k, &p.a))
        return diag_fail(d, AN_UNSUPPORTED, NOWHERE, "%s: cannot hold %lld x %lld packed", g->name, (long long)c->m,
                         (long long)c->a_k);
    if (c->scratch_bytes < p.bytes)
        return diag_fail(d, AN_BUG, NOWHERE, "%s: %zu bytes of scratch, %zu needed", g->name, c->scratch_bytes,
                         p.bytes);
    if (!c->m || !c->n) return AN_OK;
    char *b = (char *)c->scratch + (ALIGN - (uintptr_t)c->scratch % ALIGN) % ALIGN;
    const int64_t packers = p.own ? p.b_copies : 1;
    counter shares[QUEUES];
    run_ctx x = { .c = c, .p = &p, .b = b, .queues = MIN(pool_threads(c->pool), QUEUES), .shares = shares };
    x.marks = (mark *)(void *)(b + p.b.bytes * (size_t)p.b_copies);
    x.threads = b + p.b.bytes * (size_t)p.b_copies + p.mark_bytes * (size_t)packers;
    x.sums = x.threads + (p.sums_bytes + p.piece_bytes) * (size_t)pool_threads(c->pool);
    x.plain = is_plain(c);
    x.as_is = as_is;
    /* the call before may have packed nothing; of several stripes only the last would still be there */
    const bool there =
        c->same_b && p.stripes * p.slabs == 1 && !gemm_thin(g, c->n) && !gemm_short(g, c->m, c->n, c->k);
    an_status st = there ? stripe_begin(c, &p, 0, 0, b, &x.pack, d) : AN_OK;
    pool_enter(c->pool);
    /* else the first region packs only, the last one only multiplies */
    const int64_t k_pad = ROUND_UP(c->k, (int64_t)g->k_align);
    for (int64_t at = p.lazy || there || x.as_is ? 0 : -1; at < p.stripes * p.slabs && !st; at++) {
        const int64_t s = p.slabs > 1 ? at / p.slabs : at;
        x.s_first = p.slabs > 1 ? at % p.slabs * p.slab_steps : 0;
        x.steps = MIN(p.slab_steps, p.k_steps - x.s_first);
        x.k_first = x.s_first * p.kc;
        x.k_pad = MIN(k_pad - x.k_first, p.slab_steps * p.kc);
        x.j_first = s * p.stripe_panels;
        x.j_count = MIN(p.stripe_panels, p.n_panels - x.j_first);
        share_out(&x);
        if (p.lazy) {
            st = stripe_begin(c, &p, s, x.k_first, b, &x.pack, d);
            x.b_extra = x.pack.l.extra;
            x.pack.n_tasks = 0;
            for (int64_t t = 0; !there && t < packers; t++)
                for (int64_t i = 0; i < p.stripe_panels * p.slab_steps; i++)
                    atomic_init(&x.marks[(int64_t)(p.mark_bytes / sizeof(mark)) * t + i], MISSING);
        } else {
            x.b = b + (p.stripes > 1 ? (s & 1) * (int64_t)p.b.bytes : 0);
            x.b_extra = x.pack.l.extra; /* the stripe packed last time */
            if (!x.as_is)
                st = stripe_begin(c, &p, s + 1, 0, b + (p.stripes > 1 ? (~s & 1) * (int64_t)p.b.bytes : 0), &x.pack, d);
        }
        if (!st) pool_run(c->pool, run_task, &x, x.pack.n_tasks + (s < 0 ? 0 : pool_threads(c->pool)));
    }
    pool_leave(c->pool);
    return st;
}
