/* remake.c: results that are made again where they are read.
 * In: chains joined as far as they stand together.  Out: the same ones, some with more steps, some with fewer results.
 *
 * What a chain makes and only other chains read, later, is written to memory and fetched back. Where few steps make
 * it, and the reader then reads no more tensors of that size than before (what it is made of in its place, or that
 * is read there already), the reader takes those steps instead, and nobody stores it: silu(x) is made twice, and
 * with x * r the normed x is no tensor at all. A chain computes in fp32 and such a result is fp32: the numbers are
 * the same. */
#include "codegen/codegen_int.h"

enum { MOST_STEPS = 4 };

/* The steps that make a result, in order, and what they read. */
typedef struct {
    int step[MOST_STEPS], n_step;
    int ext[CHAIN_MAX_IN], n_ext;
} cone;

static bool is_chain(const ins *n) { return (n->op == IN_EW || n->op == IN_EWS) && !n->dead; }
static int step_of(const ins *n, int result) { return result ? n->from[result] : n->n_step - 1; }

static bool find_cone(const ins *a, int result, cone *k)
{
    bool needed[CHAIN_MAX_STEPS] = { false };
    *k = (cone){ .n_step = 0 };
    needed[step_of(a, result)] = true;
    for (int i = step_of(a, result); i >= 0; i--)
        for (int j = 0; needed[i] && j < 3; j++)
            if (a->steps[i].arg[j] >= a->n_ext) needed[a->steps[i].arg[j] - a->n_ext] = true;
    for (int i = 0; i < a->n_step; i++) {
        if (!needed[i]) continue;
        if (k->n_step == MOST_STEPS) return false;
        k->step[k->n_step++] = i;
        for (int j = 0; j < 3; j++) {
            const int v = a->steps[i].arg[j];
            int at = 0;
            if (v < 0 || v >= a->n_ext) continue;
            while (at < k->n_ext && k->ext[at] != a->ext[v]) at++;
            if (at == k->n_ext) k->ext[k->n_ext++] = a->ext[v];
        }
    }
    return true;
}

static int input_of(const ins *b, int t)
{
    for (int k = 0; k < b->n_ext; k++)
        if (b->ext[k] == t) return k;
    return NONE;
}

/* Where chain b reads the result y, whole and element by element; NONE: not, or not so, or more than once. */
static int reads_at(const cg *c, const ins *b, int y)
{
    int on = NONE;
    for (int k = 0; k < b->n_ext; k++) {
        if (cg_root(c, b->ext[k]) != cg_root(c, y)) continue;
        if (on >= 0) return NONE;
        on = k;
    }
    const bool same = on >= 0 && shape_eq(cg_sh(c, b->ext[on]), cg_sh(c, y)) &&
                      shape_eq(cg_sh(c, b->y[0]), cg_sh(c, y)) && c->t.at[b->ext[on]].dt == DT_F32;
    return same ? on : NONE;
}

/* May b make it itself? */
static bool can_make(const cg *c, const ins *b, int y, const cone *k)
{
    int more = 0, inputs = b->n_ext - 1;
    for (int i = 0; i < k->n_ext; i++) {
        if (input_of(b, k->ext[i]) >= 0) continue;
        inputs++;
        if (cg_elems(cg_sh(c, k->ext[i])) < cg_elems(cg_sh(c, y)) / 4) continue;
        if (++more > 1 || c->t.at[cg_root(c, k->ext[i])].where != SPACE_SCRATCH) return false;
    }
    return reads_at(c, b, y) >= 0 && inputs <= CHAIN_MAX_IN && b->n_step + k->n_step <= CHAIN_MAX_STEPS;
}

/* silu(x) in front of sigmoid(x) is x times that: of the two only one takes an exp. */
static void share_sigmoid(ins *n)
{
    int at = 0, same;
    while (at < n->n_step && n->steps[at].fn != FN_SILU) at++;
    for (same = at + 1; same < n->n_step; same++)
        if (n->steps[same].fn == FN_SIGMOID && n->steps[same].arg[0] == n->steps[at].arg[0]) break;
    if (same >= n->n_step) return;
    const step sigmoid = n->steps[same];
    memmove(n->steps + at + 1, n->steps + at, sizeof *n->steps * (size_t)(same - at));
    n->steps[at] = sigmoid;
    for (int i = at + 1; i < n->n_step; i++)
        for (int j = 0; j < 3; j++) {
            const int v = n->steps[i].arg[j] - n->n_ext;
            if (v == same) n->steps[i].arg[j] = n->n_ext + at;
            else if (v >= at && v < same) n->steps[i].arg[j]++;
        }
    for (int k = 1; k < n->n_y; k++)
        n->from[k] = n->from[k] == same ? at : n->from[k] + (n->from[k] >= at && n->from[k] < same);
    step *silu = &n->steps[at + 1];
    *silu = (step){ .fn = FN_MUL, .arg = { sigmoid.arg[0], n->n_ext + at, NONE }, .dt = silu->dt };
}

/* b with a's steps of the cone in front, where it read y. */
static void make_in(cg *c, ins *b, const ins *a, int y, const cone *k)
{
    const int on = reads_at(c, b, y), were = b->n_ext;
    int ext[CHAIN_MAX_IN], n_ext = 0, map[CHAIN_MAX_IN], at[CHAIN_MAX_STEPS];
    step *steps = TAKE(&c->mem, step, (size_t)(k->n_step + b->n_step));
    if (!steps) {
        diag_nomem(&c->err);
        return;
    }
    for (int i = 0; i < were; i++) {
        map[i] = NONE;
        if (i != on) map[i] = n_ext, ext[n_ext++] = b->ext[i];
    }
    memcpy(b->ext, ext, sizeof *ext * (size_t)n_ext);
    b->n_ext = n_ext;
    for (int i = 0; i < k->n_ext; i++)
        if (input_of(b, k->ext[i]) < 0) b->ext[b->n_ext++] = k->ext[i];
    for (int i = 0; i < k->n_step; i++) {
        steps[i] = a->steps[k->step[i]];
        steps[i].dt = cg_wide(steps[i].dt);
        at[k->step[i]] = b->n_ext + i;
        for (int j = 0; j < 3; j++) {
            const int v = steps[i].arg[j];
            if (v >= 0) steps[i].arg[j] = v < a->n_ext ? input_of(b, a->ext[v]) : at[v - a->n_ext];
        }
    }
    for (int i = 0; i < b->n_step; i++) {
        step *s = &steps[k->n_step + i];
        *s = b->steps[i];
        for (int j = 0; j < 3; j++) {
            const int v = s->arg[j];
            if (v < 0) continue;
            s->arg[j] = v >= were ? b->n_ext + k->n_step + v - were : v == on ? b->n_ext + k->n_step - 1 : map[v];
        }
    }
    for (int i = 1; i < b->n_y; i++) b->from[i] += k->n_step;
    b->steps = steps, b->n_step = b->cap_step = b->n_step + k->n_step;
    share_sigmoid(b);
}

/* All others read it in chains that can make it. */
static bool made_by_readers(const cg *c, const ins *a, int y, const cone *k)
{
    const tens *t = &c->t.at[cg_root(c, y)];
    int uses = 0;
    if (t->where != SPACE_SCRATCH || t->n_def != 1 || c->t.at[y].dt != DT_F32) return false;
    for (size_t i = 0; i < c->ins.n; i++) {
        const ins *b = &c->ins.at[i];
        if (b->dead || b == a || !is_chain(b)) continue;
        const int on = reads_at(c, b, y);
        if (on < 0) continue;
        if (!can_make(c, b, y, k)) return false;
        uses++;
    }
    return uses && uses == t->n_use; /* ports count as readers */
}

static void drop_result(ins *a, int result)
{
    int last = 0;
    a->n_y--;
    if (!a->n_y) {
        a->dead = true;
        return;
    }
    a->from[0] = a->n_step - 1;
    for (int k = result; k < a->n_y; k++) a->y[k] = a->y[k + 1], a->from[k] = a->from[k + 1];
    for (int k = 1; k < a->n_y; k++)
        if (a->from[k] > a->from[last]) last = k;
    const int y = a->y[last], from = a->from[last];
    a->y[last] = a->y[0], a->from[last] = a->from[0], a->y[0] = y, a->from[0] = from;
    a->n_step = from + 1, a->op = a->n_y > 1 ? IN_EWS : IN_EW;
    cg_trim(a);
}

void remake_results(cg *c)
{
    if (c->err.st || c->soft || !c->o.level) return;
    cg_count_uses(c);
    for (size_t i = 0; i < c->ins.n && !c->err.st; i++) {
        ins *a = &c->ins.at[i];
        for (int r = 0; is_chain(a) && r < a->n_y && !c->err.st; r++) {
            cone k;
            const int y = a->y[r];
            if (!find_cone(a, r, &k) || !made_by_readers(c, a, y, &k)) continue;
            for (size_t j = 0; j < c->ins.n && !c->err.st; j++)
                if (&c->ins.at[j] != a && is_chain(&c->ins.at[j]) && reads_at(c, &c->ins.at[j], y) >= 0)
                    make_in(c, &c->ins.at[j], a, y, &k);
            drop_result(a, r--);
            cg_count_uses(c);
        }
    }
    cg_drop_dead(c);
}
