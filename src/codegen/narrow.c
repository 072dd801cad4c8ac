/* narrow.c: values that only products read are kept as bf16 where products multiply bf16; what is bf16 already they
 * read as it is. In: the final instructions, outputs bound, nothing placed yet.  Out: the same ones; some
 * intermediates have half the bytes.
 *
 * A product rounds its operands to bf16 when it packs them. A value nobody else reads is rounded where it is made
 * instead, once: the products get the same numbers, and memory moves half of them. What is added up, compared or
 * passed on stays as wide as it was. A product by a constant is left alone: it may be computed in ways that do not
 * round (exec_mac_turn.c, exec_mac_vec.c).
 *
 * What lies between products, made by one and on its way through elementwise steps to nothing but operands of
 * others, is kept as bf16 too (between.c): the two products a gate joins, and the gradient of what it gives. It is
 * rounded once more than it would be, by as much as the operands it goes into are. */
#include "codegen/codegen_int.h"

/* Does n write a result by way of a store that rounds to any float type? Sums over several queries of a key are not
 * finished at once, and squares are summed of what was stored. */
static bool rounds_result(const cg *c, const ins *n)
{
    const bool back = n->op == IN_ATTEND_BACK;
    if (back || n->op == IN_ATTEND_KEEP) {
        const shape *p = cg_sh(c, back ? n->opnd[0] : n->y[1]);
        return !n->i.at[0] || p->d[1] == p->d[2];
    }
    return n->op == IN_EW || n->op == IN_EWS || n->op == IN_ROPE ||
           (insn_is_product(n->op) && n->op != IN_MATMUL_SQUARES);
}

/* Does n do nothing with operand k but multiply it as bf16? Weights of attention count: what they are multiplied by
 * on the way back is rounded right after it. */
static bool multiplies(const cg *c, const ins *n, int k)
{
    if (n->op == IN_ATTEND_KEEP || n->op == IN_ATTEND_BACK) return true;
    return insn_is_product(n->op) && k < 2 && c->t.at[cg_root(c, n->opnd[1 - k])].where != SPACE_CONST;
}

static bool rounds(const cg *c) { return !c->err.st && c->o.bf16 && !c->soft && c->o.level; }

/* What t is made of where it is a bf16 made wider, whole; NONE: anything else. maker: per root, the one instruction
 * that writes it. */
static int widened(const cg *c, const int *maker, int t)
{
    if (t < 0 || maker[cg_root(c, t)] < 0 || c->t.at[t].dt != DT_F32) return NONE;
    const ins *n = &c->ins.at[maker[cg_root(c, t)]];
    if (n->op != IN_EW || n->n_step != 1 || n->steps[0].fn != FN_COPY || n->n_ext != 1) return NONE;
    const int x = n->ext[0];
    const int64_t all = cg_elems(cg_sh(c, n->y[0]));
    return c->t.at[x].dt == DT_BF16 && cg_elems(cg_sh(c, x)) == all && cg_elems(cg_sh(c, t)) == all ? x : NONE;
}

void narrow_reads(cg *c)
{
    enum { MANY = -2 };
    if (!rounds(c)) return;
    int *maker = TAKE(&c->mem, int, c->t.n);
    if (!maker) {
        diag_nomem(&c->err);
        return;
    }
    for (size_t i = 0; i < c->t.n; i++) maker[i] = NONE;
    for (size_t i = 0; i < c->ins.n; i++)
        for (int k = 0; k < c->ins.at[i].n_y; k++) {
            const int y = c->ins.at[i].y[k];
            if (y >= 0) maker[cg_root(c, y)] = maker[cg_root(c, y)] == NONE ? (int)i : MANY;
        }
    for (size_t i = 0; i < c->ins.n && !c->err.st; i++)
        for (int k = 0; k < 2 && insn_is_product(c->ins.at[i].op); k++) {
            const int t = c->ins.at[i].opnd[k], x = widened(c, maker, t);
            if (x >= 0) c->ins.at[i].opnd[k] = cg_view(c, x, cg_sh(c, t));
        }
}

static void refuse(const cg *c, bool *can, int t)
{
    if (t >= 0) can[cg_root(c, t)] = false;
}

/* The roots that could have half the bytes. */
static bool *candidates(cg *c)
{
    bool *can = TAKE(&c->mem, bool, c->t.n);
    if (!can) {
        diag_nomem(&c->err);
        return NULL;
    }
    for (size_t i = 0; i < c->t.n; i++)
        can[i] = c->t.at[i].root == (int)i && c->t.at[i].where == SPACE_SCRATCH && c->t.at[i].dt == DT_F32;
    for (size_t i = 0; i < c->t.n; i++) { /* views of a part, or of the bits as another type */
        const tens *t = &c->t.at[i];
        if (t->at || t->dt != DT_F32 || cg_elems(&t->sh) != cg_elems(cg_sh(c, t->root))) can[t->root] = false;
    }
    return can;
}

/* Elementwise, or nearly so. */
static bool passes_on(const ins *n) { return n->op == IN_EW || n->op == IN_EWS || n->op == IN_ROPE; }

void narrow_operands(cg *c)
{
    bool *opnds, *between, *stored;
    if (!rounds(c) || !(opnds = candidates(c)) || !(between = candidates(c)) || !(stored = between_products(c))) return;
    for (size_t i = 0; i < c->ins.n; i++) {
        const ins *n = &c->ins.at[i];
        for (int k = 0; k < n->n_y; k++) {
            if (!rounds_result(c, n)) refuse(c, opnds, n->y[k]);
            if (!rounds_result(c, n) || passes_on(n)) refuse(c, between, n->y[k]);
        }
        for (int k = 0; k < n->n_opnd; k++) {
            if (!multiplies(c, n, k)) refuse(c, opnds, n->opnd[k]);
            if (!multiplies(c, n, k) && (n->op != IN_ROPE || k)) refuse(c, between, n->opnd[k]);
        }
        for (int k = 0; k < n->n_ext; k++) {
            refuse(c, opnds, n->ext[k]);
            if (!passes_on(n)) refuse(c, between, n->ext[k]);
        }
    }
    for (size_t i = 0; i < c->t.n && !c->err.st; i++) {
        tens *t = &c->t.at[i];
        if (!opnds[t->root] && !(between[t->root] && stored[t->root])) continue;
        t->dt = DT_BF16;
        if (t->root == (int)i) t->bytes /= 2;
    }
}
