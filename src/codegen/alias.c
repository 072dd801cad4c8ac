/* alias.c: copies that need not happen.
 * In: the final instructions.  Out: fewer of them; some tensors lie inside others.
 *
 * A copy of one run of elements into another place can go in one of three ways:
 *   view    the target is written by nothing else: it becomes a part of the source (slices, splits, crops of leading axes)
 *   hand    the source is whole and nobody reads it again: the target takes over its memory (updates of a value)
 *   piece   the target is put together from such copies alone: the source is made in its place there (concat, stack)
 * Each asks that nobody writes the source later; what leaves the program never lies inside something else. On a
 * device that rounds each pass a copy also turns NaN into infinity; values made by the program hold none there, so
 * only those are treated this way. An input stays a copy where a buffer may be bound on both sides: reading it for
 * longer would delay what is written over it. */
#include <stdlib.h>

#include "codegen/codegen_int.h"

typedef struct {
    int first_write, last_write, last_read; /* instructions; NONE */
    int n_write;
    bool out;    /* leaves the program */
    bool pieces; /* written by runs alone, no two of which touch the same element */
} use;

typedef struct {
    cg *c;
    use *of; /* by root */
    bool writes_state;
} aliases;

/* y[ys ..] = x[xs ..], n elements each. */
typedef struct {
    int y, x;
    int64_t n, ys, xs;
    bool width_offset;
} run;

static bool read_run(const cg *c, const ins *m, run *r)
{
    enum { RANK, SIZE, Y_START, Y_RANK, Y_STEP, X_START, X_RANK, X_STEP, WIDTH_OFFSET, FIELDS };
    const int64_t *i = m->i.at;
    if (m->op != IN_MOVE || m->i.n != FIELDS || i[RANK] != 1 || (i[SIZE] != 1 && (i[Y_STEP] != 1 || i[X_STEP] != 1)))
        return false;
    *r = (run){ .y = m->y[0], .x = m->opnd[0], .n = i[SIZE], .ys = i[Y_START], .xs = i[X_START], .width_offset = i[WIDTH_OFFSET] != 0 };
    return c->t.at[r->y].dt == c->t.at[r->x].dt && dtype_bits(c->t.at[r->y].dt) >= 8;
}

static uint64_t element(const cg *c, int t) { return (uint64_t)dtype_bits(c->t.at[t].dt) / 8; }
static uint64_t y_begin(const cg *c, const run *r) { return c->t.at[r->y].at + (uint64_t)r->ys * element(c, r->y); }
static uint64_t x_begin(const cg *c, const run *r) { return c->t.at[r->x].at + (uint64_t)r->xs * element(c, r->x); }
static uint64_t run_bytes(const cg *c, const run *r) { return (uint64_t)r->n * element(c, r->y); }

/* ---- who touches what ---- */

static void reads(aliases *a, int t, int at)
{
    if (t >= 0) a->of[cg_root(a->c, t)].last_read = at;
}

static void writes(aliases *a, int t, int at)
{
    if (t < 0) return;
    use *u = &a->of[cg_root(a->c, t)];
    if (u->first_write < 0) u->first_write = at;
    u->last_write = at;
    u->n_write++;
}

typedef struct {
    int root;
    uint64_t from, to;
} range;

static int by_place(const void *a, const void *b)
{
    const range *x = a, *y = b;
    if (x->root != y->root) return x->root < y->root ? -1 : 1;
    return (x->from > y->from) - (x->from < y->from);
}

static void find_pieces(aliases *a)
{
    cg *c = a->c;
    range *list = TAKE(&c->mem, range, c->ins.n + 1);
    size_t n = 0;
    if (!list) {
        diag_nomem(&c->err);
        return;
    }
    for (size_t i = 0; i < c->t.n; i++)
        a->of[i].pieces = c->t.at[i].root == (int)i && c->t.at[i].where == SPACE_SCRATCH && a->of[i].n_write > 0;
    for (size_t i = 0; i < c->ins.n; i++) {
        const ins *m = &c->ins.at[i];
        run r;
        if (read_run(c, m, &r))
            list[n++] = (range){ cg_root(c, r.y), y_begin(c, &r), y_begin(c, &r) + run_bytes(c, &r) };
        else
            for (int k = 0; k < m->n_y; k++)
                if (m->y[k] >= 0) a->of[cg_root(c, m->y[k])].pieces = false;
    }
    qsort(list, n, sizeof *list, by_place);
    for (size_t i = 1; i < n; i++)
        if (list[i].root == list[i - 1].root && list[i].from < list[i - 1].to) a->of[list[i].root].pieces = false;
}

static bool find_uses(aliases *a)
{
    cg *c = a->c;
    if (!(a->of = TAKE(&c->mem, use, c->t.n))) return diag_nomem(&c->err), false;
    for (size_t i = 0; i < c->t.n; i++) a->of[i] = (use){ .first_write = NONE, .last_write = NONE, .last_read = NONE };
    for (size_t i = 0; i < c->ins.n; i++) {
        const ins *m = &c->ins.at[i];
        for (int k = 0; k < m->n_opnd; k++) reads(a, m->opnd[k], (int)i);
        for (int k = 0; k < m->n_ext; k++) reads(a, m->ext[k], (int)i);
        for (int k = 0; k < m->n_y; k++) writes(a, m->y[k], (int)i);
    }
    for (size_t i = 0; i < c->outs.n; i++) a->of[cg_root(c, (int)c->outs.at[i].tensor)].out = true;
    a->writes_state = c->states.n > 0;
    find_pieces(a);
    return !c->err.st;
}

/* ---- the three ways ---- */

/* Root `from` lies at byte `at` of root `to` from now on. */
static void put_inside(aliases *a, int from, int to, uint64_t at)
{
    cg *c = a->c;
    use *u = &a->of[to], *v = &a->of[from];
    for (size_t i = 0; i < c->t.n; i++)
        if (c->t.at[i].root == from) c->t.at[i].root = to, c->t.at[i].at += at;
    if (v->first_write >= 0 && (u->first_write < 0 || v->first_write < u->first_write)) u->first_write = v->first_write;
    u->last_write = MAX(u->last_write, v->last_write);
    u->last_read = MAX(u->last_read, v->last_read);
    u->n_write += v->n_write;
}

static bool may_view(const aliases *a, int root)
{
    const cg *c = a->c;
    switch (c->t.at[root].where) {
    case SPACE_SCRATCH: return true;
    case SPACE_CONST: return !c->soft;
    case SPACE_INPUT: return !c->soft && !c->o.resident && !a->writes_state;
    default: return false;
    }
}

/* A small part must not keep much memory alive for long. */
static bool worth_keeping(const aliases *a, int part, int whole)
{
    const cg *c = a->c;
    return c->t.at[whole].where != SPACE_SCRATCH || a->of[part].last_read <= a->of[whole].last_read ||
           c->t.at[part].bytes >= c->t.at[whole].bytes / 8;
}

static bool drop_copy(aliases *a, int at, const run *r)
{
    cg *c = a->c;
    int rx = cg_root(c, r->x), ry = cg_root(c, r->y);
    const use *x = &a->of[rx], *y = &a->of[ry];
    uint64_t n = run_bytes(c, r);
    bool fills = y_begin(c, r) == 0 && c->t.at[ry].bytes == n, takes = x_begin(c, r) == 0 && c->t.at[rx].bytes == n;
    if (rx == ry || x->last_write >= at || c->t.at[ry].where != SPACE_SCRATCH ||
        (r->width_offset && c->num->wslice_last != 0))
        return false;
    if (fills && y->n_write == 1 && !y->out && may_view(a, rx) && worth_keeping(a, ry, rx)) {
        a->of[ry].first_write = a->of[ry].last_write = NONE, a->of[ry].n_write = 0; /* the copy was the only write */
        put_inside(a, ry, rx, x_begin(c, r));
        return true;
    }
    if (c->t.at[rx].where != SPACE_SCRATCH || x->out || !takes) return false;
    bool hand = fills && x->last_read == at && y->first_write == at;
    if (!hand && !y->pieces) return false;
    put_inside(a, rx, ry, y_begin(c, r));
    return true;
}

void alias_copies(cg *c)
{
    aliases a = { .c = c };
    bool any = false;
    if (c->err.st || !c->o.level || c->o.no_reuse || !find_uses(&a)) return;
    for (size_t i = 0; i < c->ins.n; i++) {
        run r;
        if (!read_run(c, &c->ins.at[i], &r) || !drop_copy(&a, (int)i, &r)) continue;
        c->ins.at[i].dead = any = true;
    }
    if (any) cg_drop_dead(c);
}
