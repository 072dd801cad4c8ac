/* apart.c: attention that is trained takes sequences as they lie.
 * In: selected instructions with their uses counted.  Out: fewer of them.
 *
 * Several sequences stand beside each other on the position axis, [heads, channels, sequences, positions]; attention
 * of small operations wants a matrix for each, [sequences, heads, channels, positions], and copies every operand and
 * result. Where all of an attend_keep or attend_back are such copies, it reads and writes what they copy from and
 * to. */
#include "codegen/codegen_int.h"

/* m makes [b, high, wide] of [high, b, wide]; back: the other way. */
static bool turns(const ins *m, int64_t b, int64_t high, int64_t wide, bool back)
{
    const int64_t outer = high * wide, in[] = { 3, b, high, wide, 0, 3, outer, wide, 1, 0, 3, wide, b * wide, 1, 0 };
    const int64_t out[] = { 3, high, b, wide, 0, 3, b * wide, wide, 1, 0, 3, wide, outer, 1, 0 },
                  *want = back ? out : in;
    if (m->op != IN_MOVE || m->dead || m->i.n != COUNT(in)) return false;
    for (size_t i = 0; i < COUNT(in); i++)
        if (m->i.at[i] != want[i]) return false;
    return true;
}

static bool made_once(const cg *c, int t)
{
    return c->t.at[cg_root(c, t)].where == SPACE_SCRATCH && c->t.at[cg_root(c, t)].n_def == 1;
}

/* The only instruction that writes t; NULL: it is no copy, or there are several. */
static ins *copy_into(cg *c, int t)
{
    for (size_t i = 0; made_once(c, t) && i < c->ins.n; i++)
        if (c->ins.at[i].op == IN_MOVE && cg_root(c, c->ins.at[i].y[0]) == cg_root(c, t)) return &c->ins.at[i];
    return NULL;
}

static ins *copy_from(cg *c, int t)
{
    for (size_t i = 0; made_once(c, t) && c->t.at[cg_root(c, t)].n_use == 1 && i < c->ins.n; i++)
        if (c->ins.at[i].op == IN_MOVE && cg_root(c, c->ins.at[i].opnd[0]) == cg_root(c, t)) return &c->ins.at[i];
    return NULL;
}

enum { MOST = 7 /* operands and results but for the weights */ };

static void take_apart(cg *c, ins *n)
{
    const bool back = n->op == IN_ATTEND_BACK;
    int *of[MOST], results = back ? 3 : 1, all = 0;
    ins *copy[MOST];
    for (int k = 0; k < results; k++) of[all++] = &n->y[k];
    for (int k = back ? 1 : 0; k < n->n_opnd; k++) of[all++] = &n->opnd[k];
    const shape *p = cg_sh(c, back ? n->opnd[0] : n->y[1]);
    const int64_t stacks = p->d[0];
    int64_t b = 0;
    for (int k = 0; k < all; k++) {
        const shape *s = cg_sh(c, *of[k]);
        copy[k] = k < results ? copy_from(c, *of[k]) : copy_into(c, *of[k]);
        if (!copy[k] || copy[k]->i.n < 3 || !made_once(c, k < results ? copy[k]->y[0] : copy[k]->opnd[0])) return;
        if (!k) b = copy[0]->i.at[2]; /* out: [high, b, wide] */
        if (b < 2 || stacks % b || !turns(copy[k], b, stacks / b * s->d[1], s->d[2], k < results)) return;
    }
    for (int k = 0; k < all; k++) {
        const shape s = *cg_sh(c, *of[k]);
        *of[k] = cg_view(c, k < results ? copy[k]->y[0] : copy[k]->opnd[0], SH(stacks / b, s.d[1], b, s.d[2]));
        if (k < results) copy[k]->dead = true;
    }
    n->i.at[n->i.n - 1] = b;
}

void attend_apart(cg *c)
{
    if (c->err.st || c->soft || !c->o.level) return;
    for (size_t i = 0; i < c->ins.n; i++)
        if (c->ins.at[i].op == IN_ATTEND_KEEP || c->ins.at[i].op == IN_ATTEND_BACK) take_apart(c, &c->ins.at[i]);
    cg_drop_dead(c);
}
