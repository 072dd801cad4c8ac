/* sums.c: sums of products that are never stored.
 * In: chains, and reductions that read what they make.  Out: fewer of both.
 *
 * The sum of a * b along rows or down columns, times a factor per column or row on the way, needs no tensor of the
 * products; and both sums of the same two are taken in one look at them: of a norm's way back the gradient of its
 * gain and what its root owes. On the plain processor. */
#include "codegen/codegen_int.h"

/* The sum an instruction takes, as `sums` would. */
typedef struct {
    size_t at;       /* the reduction */
    int chain;       /* what made the products */
    bool along;      /* of rows; else down columns */
    int a, b, by, y; /* tensors; by: NONE */
    int64_t rows, cols;
} sum;

/* A shape of two axes, whatever ones are between them. */
static bool as_matrix(const shape *s, int *row, int *col)
{
    int n = 0;
    for (int i = 0; i < s->rank; i++)
        if (s->d[i] != 1) *(n++ ? col : row) = i;
    return n == 2;
}

/* Does t vary along that axis of `full` alone? */
static bool is_vector(const shape *t, const shape *full, int axis)
{
    const int at = axis - (full->rank - t->rank);
    return at >= 0 && t->d[at] == full->d[axis] && cg_elems(t) == full->d[axis];
}

/* The step that makes t, and its chain; NULL: no chain does. */
static const step *step_of(const cg *c, const int *maker, int t, const ins **chain)
{
    const int m = maker[cg_root(c, t)];
    const ins *n = *chain = m < 0 ? NULL : &c->ins.at[m];
    if (!n || n->dead || (n->op != IN_EW && n->op != IN_EWS)) return NULL;
    for (int k = 0; k < n->n_y; k++)
        if (n->y[k] == t) return &n->steps[k ? n->from[k] : n->n_step - 1];
    return NULL;
}

/* Is t, which others may read, a tensor of that shape times one that varies along `axis`? The sum takes those two: its
 * bits do not depend on who else reads t, and t may not have to be stored. */
static bool is_scaled(const cg *c, const int *maker, int t, const shape *full, int axis, int *of, int *by)
{
    const ins *n;
    const step *p = step_of(c, maker, t, &n);
    if (!p || p->fn != FN_MUL || p->arg[0] >= n->n_ext || p->arg[1] >= n->n_ext) return false;
    for (int k = 0; k < 2; k++) {
        *of = n->ext[p->arg[k]], *by = n->ext[p->arg[1 - k]];
        if (c->t.at[*of].dt == DT_F32 && c->t.at[*by].dt == DT_F32 && shape_eq(cg_sh(c, *of), full) &&
            is_vector(cg_sh(c, *by), full, axis))
            return true;
    }
    return false;
}

/* What a chain of products multiplies: two tensors of its shape, and perhaps one that varies along `axis`. */
static bool factors(const cg *c, const int *maker, const ins *e, int axis, sum *s)
{
    enum { TOO_OFTEN = 3 };
    int times[CHAIN_MAX_IN + CHAIN_MAX_STEPS] = { 0 };
    s->a = s->b = s->by = NONE;
    times[e->n_ext + e->n_step - 1] = 1;
    for (int k = e->n_step - 1; k >= 0; k--) {
        const step *p = &e->steps[k];
        const int n = times[e->n_ext + k];
        if (n && p->fn != FN_MUL) return false;
        for (int j = 0; n && j < 2; j++) times[p->arg[j]] = MIN(times[p->arg[j]] + n, TOO_OFTEN);
    }
    for (int k = 0; k < e->n_ext; k++)
        for (int n = 0; n < times[k]; n++) {
            const int t = e->ext[k];
            const shape *full = cg_sh(c, e->y[0]);
            int of = t, by = NONE;
            if (c->t.at[t].dt != DT_F32) return false;
            if (s->by < 0 && shape_eq(cg_sh(c, t), full) && is_scaled(c, maker, t, full, axis, &of, &by)) s->by = by;
            else of = t;
            if (shape_eq(cg_sh(c, t), full) && s->a < 0) s->a = of;
            else if (shape_eq(cg_sh(c, t), full) && s->b < 0) s->b = of;
            else if (is_vector(cg_sh(c, t), full, axis) && s->by < 0) s->by = t;
            else return false;
        }
    return s->b >= 0;
}

/* maker: per root, the one instruction that writes it. */
static bool read_sum(const cg *c, const int *maker, size_t at, sum *s)
{
    const ins *r = &c->ins.at[at];
    int row = 0, col = 0;
    if (r->op != IN_REDUCE || r->dead || r->i.at[r->i.n - 1] != RED_SUM || c->t.at[r->y[0]].dt != DT_F32) return false;
    const int x = r->opnd[0], m = maker[cg_root(c, x)];
    const ins *e = m < 0 ? NULL : &c->ins.at[m];
    if (!e || e->op != IN_EW || e->dead || c->t.at[cg_root(c, x)].n_use != 1 || c->t.at[cg_root(c, r->y[0])].n_def != 1)
        return false;
    const shape *full = cg_sh(c, x);
    if (!shape_eq(full, cg_sh(c, e->y[0])) || !as_matrix(full, &row, &col)) return false;
    *s = (sum){ .at = at, .chain = m, .y = r->y[0], .rows = full->d[row], .cols = full->d[col] };
    bool down = false;
    for (int64_t k = 1; k <= r->i.at[0]; k++)
        s->along = s->along || r->i.at[k] == col, down = down || r->i.at[k] == row;
    return s->along != down && factors(c, maker, e, s->along ? col : row, s);
}

static bool same_products(const sum *a, const sum *b)
{
    return a->along != b->along && ((a->a == b->a && a->b == b->b) || (a->a == b->b && a->b == b->a));
}

/* Does an instruction from `from` up to `to` read t? */
static bool read_between(const cg *c, int t, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        const ins *n = &c->ins.at[i];
        for (int k = 0; k < n->n_opnd && !n->dead; k++)
            if (n->opnd[k] >= 0 && cg_root(c, n->opnd[k]) == cg_root(c, t)) return true;
        for (int k = 0; k < n->n_ext && !n->dead; k++)
            if (cg_root(c, n->ext[k]) == cg_root(c, t)) return true;
    }
    return false;
}

static int seen_as(cg *c, int t, const shape *s) { return t < 0 ? NONE : cg_view(c, t, s); }

/* Where the later of the two stood. */
static void put_sums(cg *c, const sum *down, const sum *along)
{
    const sum *any = down ? down : along;
    const size_t at = MAX(down ? down->at : 0, along ? along->at : 0);
    const int cols = down ? seen_as(c, down->y, SH(any->cols)) : NONE,
              rows = along ? seen_as(c, along->y, SH(any->rows)) : NONE;
    const int a = seen_as(c, any->a, SH(any->rows, any->cols)), b = seen_as(c, any->b, SH(any->rows, any->cols));
    const int row_by = down ? seen_as(c, down->by, SH(any->rows)) : NONE,
              col_by = along ? seen_as(c, along->by, SH(any->cols)) : NONE;
    if (c->err.st) return;
    for (int k = 0; k < 2; k++) {
        const sum *s = k ? along : down;
        if (s) c->ins.at[s->at].dead = true, c->ins.at[s->chain].dead = true;
    }
    c->ins.at[at] = (ins){ .op = IN_SUMS, .line = c->ins.at[at].line, .n_y = 2, .y = { cols, rows }, .n_opnd = 4,
                           .opnd = { a, b, row_by, col_by } };
}

void sum_products(cg *c)
{
    if (c->err.st || c->soft || !c->o.level) return;
    VEC(sum) found = { 0 };
    cg_count_uses(c);
    const int *maker = cg_makers(c);
    for (size_t i = 0; i < c->ins.n && maker; i++) {
        sum s;
        if (read_sum(c, maker, i, &s) && !VEC_PUSH(&c->mem, &found, s)) diag_nomem(&c->err);
    }
    for (size_t i = 0; i < found.n && !c->err.st; i++) {
        const sum *s = &found.at[i], *other = NULL;
        if (c->ins.at[s->at].dead || c->ins.at[s->at].op != IN_REDUCE) continue;
        for (size_t k = i + 1; k < found.n && !other; k++)
            if (same_products(s, &found.at[k]) && c->ins.at[found.at[k].at].op == IN_REDUCE &&
                !read_between(c, s->y, s->at + 1, found.at[k].at))
                other = &found.at[k];
        if (s->along) put_sums(c, other, s);
        else put_sums(c, s, other);
    }
    cg_drop_dead(c);
}
