/* order.c: where instructions stand.
 * In: the final instructions, in the order the graph names them.  Out: the same ones, some of them earlier.
 *
 * A reduction of a large tensor is moved right behind what made it: there the tensor, or its end, is still in a
 * cache. The norm of all gradients is asked for when the last one is there, and would fetch every one of them from
 * memory again. Its result is small, so nothing is kept for longer that matters, and the operand is no longer wanted
 * later than it was. */
#include "codegen/codegen_int.h"

enum { LARGE = 1 << 16 /* elements: below, all of it is in a cache anyway */ };

/* Products side by side that have an operand in common pack it once. */
static bool go_together(const cg *c, const ins *a, const ins *b)
{
    if (!insn_is_product(a->op) || a->op != b->op) return false;
    for (int k = 0; k < 2; k++)
        if (cg_root(c, a->opnd[k]) == cg_root(c, b->opnd[k])) return true;
    return false;
}

static bool is_hoisted(const cg *c, const ins *n)
{
    if (n->op != IN_REDUCE) return false;
    int x = cg_root(c, n->opnd[0]), y = cg_root(c, n->y[0]);
    return c->t.at[x].where == SPACE_SCRATCH && c->t.at[y].where == SPACE_SCRATCH && c->t.at[y].n_def == 1 &&
           cg_elems(cg_sh(c, n->opnd[0])) >= LARGE;
}

void order_reductions(cg *c)
{
    if (c->err.st || c->soft || !c->o.level || !c->ins.n) return;
    size_t n = c->ins.n, at = 0;
    int *last = TAKE(&c->mem, int, c->t.n), *first = TAKE(&c->mem, int, n), *next = TAKE(&c->mem, int, n);
    ins *to = TAKE(&c->mem, ins, n);
    if (!last || !first || !next || !to) {
        diag_nomem(&c->err);
        return;
    }
    for (size_t i = 0; i < c->t.n; i++) last[i] = NONE;
    for (size_t i = 0; i < n; i++) first[i] = NONE;
    for (size_t i = 0; i < n; i++) {
        const ins *m = &c->ins.at[i];
        int place = (int)i;
        /* behind its maker, which may have been moved itself */
        if (is_hoisted(c, m) && last[cg_root(c, m->opnd[0])] >= 0) {
            place = last[cg_root(c, m->opnd[0])];
            while ((size_t)place + 1 < i && go_together(c, &c->ins.at[place], &c->ins.at[place + 1])) place++;
        }
        next[i] = NONE;
        if (place < (int)i) { /* those behind the same one keep their order */
            int *link = &first[place];
            while (*link >= 0) link = &next[*link];
            *link = (int)i;
        } else place = NONE;
        for (int k = 0; k < m->n_y; k++)
            if (m->y[k] >= 0) last[cg_root(c, m->y[k])] = place < 0 ? (int)i : place;
    }
    bool *moved = TAKE(&c->mem, bool, n);
    if (!moved) {
        diag_nomem(&c->err);
        return;
    }
    for (size_t i = 0; i < n; i++)
        for (int k = first[i]; k >= 0; k = next[k]) moved[k] = true;
    for (size_t i = 0; i < n; i++) {
        if (moved[i]) continue;
        to[at++] = c->ins.at[i];
        for (int k = first[i]; k >= 0; k = next[k]) to[at++] = c->ins.at[k];
    }
    memcpy(c->ins.at, to, n * sizeof *to);
}
