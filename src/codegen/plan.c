/* plan.c: a place in the scratch block for every intermediate.
 * In: the final instructions.  Out: an offset per root, and how large the block is.
 *
 * One walk in program order. What was read for the last time is free again; a new tensor takes the smallest hole it
 * fits, else the end. A chain may write where one of its inputs lay when it reads that input only at the same
 * element, and a turn of pairs where they were. */
#include "codegen/codegen_int.h"

typedef struct {
    uint64_t at, n;
} hole;
typedef struct {
    VEC(hole) free; /* by address, never touching each other */
    uint64_t top, peak;
} heap;

static uint64_t aligned(uint64_t n) { return ROUND_UP(n, (uint64_t)MEMORY_ALIGN); }

static void give(cg *c, heap *h, uint64_t at, uint64_t n)
{
    size_t i = 0;
    while (i < h->free.n && h->free.at[i].at < at) i++;
    bool low = i > 0 && h->free.at[i - 1].at + h->free.at[i - 1].n == at,
         high = i < h->free.n && at + n == h->free.at[i].at;
    if (low && high) {
        h->free.at[i - 1].n += n + h->free.at[i].n;
        memmove(&h->free.at[i], &h->free.at[i + 1], (h->free.n - i - 1) * sizeof(hole));
        h->free.n--;
    } else if (low) h->free.at[i - 1].n += n;
    else if (high) h->free.at[i].at = at, h->free.at[i].n += n;
    else {
        if (!VEC_PUSH(&c->mem, &h->free, ((hole){ 0, 0 }))) {
            diag_nomem(&c->err);
            return;
        }
        memmove(&h->free.at[i + 1], &h->free.at[i], (h->free.n - i - 1) * sizeof(hole));
        h->free.at[i] = (hole){ at, n };
    }
    hole *last = h->free.n ? &h->free.at[h->free.n - 1] : NULL;
    if (last && last->at + last->n == h->top) h->top = last->at, h->free.n--; /* a hole at the end is no hole */
}

static uint64_t take(heap *h, uint64_t n)
{
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < h->free.n; i++)
        if (h->free.at[i].n >= n && (best == SIZE_MAX || h->free.at[i].n < h->free.at[best].n)) best = i;
    if (best == SIZE_MAX) {
        uint64_t at = h->top;
        h->top += n;
        h->peak = MAX(h->peak, h->top);
        return at;
    }
    hole *b = &h->free.at[best];
    uint64_t at = b->at;
    b->at += n, b->n -= n;
    if (!b->n) {
        memmove(b, b + 1, (h->free.n - best - 1) * sizeof(hole));
        h->free.n--;
    }
    return at;
}

/* Chains read element i and write element i; anything else may read what was overwritten, but for a turn of pairs. */
bool cg_can_share(const cg *c, const ins *n, int in, int y)
{
    const tens *a = &c->t.at[in], *b = &c->t.at[y];
    if (a->at != b->at) return false; /* parts of larger tensors, at different places of them */
    if (n->op == IN_ROPE) /* a pair is read before it is written; its angles are read again for the next ones */
        return a->dt == b->dt && shape_eq(&a->sh, &b->sh) && cg_root(c, n->opnd[1]) != a->root &&
               cg_root(c, n->opnd[2]) != a->root;
    if ((n->op != IN_EW && n->op != IN_EWS) || dtype_bits(a->dt) != dtype_bits(b->dt) || dtype_bits(a->dt) < 8 ||
        !shape_eq(&a->sh, &b->sh))
        return false;
    for (int k = 0; k < n->n_ext; k++) /* the same storage in another shape, or stretched, is read out of step */
        if (cg_root(c, n->ext[k]) == a->root &&
            (c->t.at[n->ext[k]].at != a->at || !shape_eq(cg_sh(c, n->ext[k]), &b->sh)))
            return false;
    return true;
}

typedef struct {
    int first, last; /* instructions; last also for what is only written */
} span;

static void touch(const cg *c, span *life, int t, int at)
{
    if (t < 0) return;
    span *s = &life[cg_root(c, t)];
    if (s->first < 0) s->first = at;
    s->last = at;
}

void plan_memory(cg *c)
{
    if (c->err.st) return;
    span *life = TAKE(&c->mem, span, c->t.n);
    /* roots by the instruction they end at */
    int *ends = TAKE(&c->mem, int, c->ins.n + 1), *next = TAKE(&c->mem, int, c->t.n);
    if (!life || !ends || !next) {
        diag_nomem(&c->err);
        return;
    }
    for (size_t i = 0; i < c->t.n; i++) life[i] = (span){ NONE, NONE };
    for (size_t i = 0; i <= c->ins.n; i++) ends[i] = NONE;
    for (size_t i = 0; i < c->ins.n; i++) {
        const ins *n = &c->ins.at[i];
        for (int k = 0; k < n->n_y; k++) touch(c, life, n->y[k], (int)i);
        for (int k = 0; k < n->n_opnd; k++) touch(c, life, n->opnd[k], (int)i);
        for (int k = 0; k < n->n_ext; k++) touch(c, life, n->ext[k], (int)i);
    }
    for (int r = (int)c->t.n - 1; r >= 0; r--)
        if (c->t.at[r].root == r && c->t.at[r].where == SPACE_SCRATCH && life[r].last >= 0)
            next[r] = ends[life[r].last], ends[life[r].last] = r;
    heap h = { 0 };
    bool *gone = TAKE(&c->mem, bool, c->t.n); /* handed on in place: not free when it ends */
    for (size_t i = 0; i < c->ins.n && gone && !c->err.st; i++) {
        const ins *n = &c->ins.at[i];
        for (int k = 0; k < n->n_y; k++) {
            int y = n->y[k] < 0 ? NONE : cg_root(c, n->y[k]), from = NONE;
            if (y < 0 || c->t.at[y].where != SPACE_SCRATCH || life[y].first != (int)i) continue;
            bool placed = false; /* several results of one chain may be parts of one tensor */
            for (int q = 0; q < k; q++) placed = placed || (n->y[q] >= 0 && cg_root(c, n->y[q]) == y);
            if (placed) continue;
            for (int q = 0; q < n->n_ext + n->n_opnd && from < 0 && !c->o.no_reuse; q++) {
                int in = q < n->n_ext ? n->ext[q] : n->opnd[q - n->n_ext], x = in < 0 ? NONE : cg_root(c, in);
                bool ends_here = x >= 0 && c->t.at[x].where == SPACE_SCRATCH && life[x].last == (int)i && !gone[x];
                if (ends_here && aligned(c->t.at[x].bytes) == aligned(c->t.at[y].bytes) &&
                    cg_can_share(c, n, in, n->y[k]))
                    from = x;
            }
            c->t.at[y].offset = from >= 0 ? c->t.at[from].offset : take(&h, aligned(c->t.at[y].bytes));
            if (from >= 0) gone[from] = true;
        }
        for (int r = ends[i]; r >= 0; r = next[r])
            if (!gone[r] && !c->o.no_reuse) give(c, &h, c->t.at[r].offset, aligned(c->t.at[r].bytes));
    }
    if (!gone) diag_nomem(&c->err);
    c->scratch = h.peak;
}
