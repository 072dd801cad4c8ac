/* fuse.c: instructions that share a pass.
 * In: selected instructions with their uses counted.  Out: fewer of them.
 *
 * fuse_passes is meaning: what the engine folds into a multiply-accumulate pass (gain and offset by constants, then
 * an activation) rounds there and nowhere else, so a device that rounds each pass gets it at every level.
 * fuse_chains is speed: scalar functions that feed each other become one chain. On a device that rounds each step
 * the steps keep their types, so not a byte changes; on the plain processor floats stay wide inside a chain and it
 * rides behind the product that feeds it; there chains over the same elements that stand together become one with
 * several results, and a product sums the squares of its result in passing. */
#include "codegen/codegen_int.h"

void cg_count_uses(cg *c)
{
    for (size_t i = 0; i < c->t.n; i++) c->t.at[i].n_def = c->t.at[i].n_use = 0;
    for (size_t i = 0; i < c->ins.n; i++) {
        const ins *n = &c->ins.at[i];
        if (n->dead) continue;
        for (int k = 0; k < n->n_y; k++)
            if (n->y[k] >= 0) c->t.at[cg_root(c, n->y[k])].n_def++;
        for (int k = 0; k < n->n_opnd; k++)
            if (n->opnd[k] >= 0) c->t.at[cg_root(c, n->opnd[k])].n_use++;
        for (int k = 0; k < n->n_ext; k++) c->t.at[cg_root(c, n->ext[k])].n_use++;
    }
    for (size_t i = 0; i < c->outs.n; i++) c->t.at[cg_root(c, (int)c->outs.at[i].tensor)].n_use++;
}

/* Backwards: an instruction lives when something it writes is read later or leaves the program. */
void cg_drop_dead(cg *c)
{
    if (c->err.st) return;
    bool *live = TAKE(&c->mem, bool, c->t.n);
    if (!live) {
        diag_nomem(&c->err);
        return;
    }
    for (size_t i = 0; i < c->outs.n; i++) live[cg_root(c, (int)c->outs.at[i].tensor)] = true;
    for (size_t i = c->ins.n; i-- > 0;) {
        ins *n = &c->ins.at[i];
        bool used = false;
        for (int k = 0; k < n->n_y; k++) {
            if (n->y[k] < 0) continue;
            if (live[cg_root(c, n->y[k])]) used = true;
            else if (n->op == IN_SORT) n->y[k] = NONE; /* one of two results nobody wants */
        }
        n->dead = n->dead || !used;
        if (n->dead) continue;
        for (int k = 0; k < n->n_opnd; k++)
            if (n->opnd[k] >= 0) live[cg_root(c, n->opnd[k])] = true;
        for (int k = 0; k < n->n_ext; k++) live[cg_root(c, n->ext[k])] = true;
    }
    size_t kept = 0;
    for (size_t i = 0; i < c->ins.n; i++)
        if (!c->ins.at[i].dead) c->ins.at[kept++] = c->ins.at[i];
    c->ins.n = kept;
    cg_count_uses(c);
}

int *cg_makers(cg *c)
{
    int *m = TAKE(&c->mem, int, c->t.n);
    if (!m) {
        diag_nomem(&c->err);
        return NULL;
    }
    for (size_t i = 0; i < c->t.n; i++) m[i] = NONE;
    for (size_t i = 0; i < c->ins.n; i++)
        for (int k = 0; k < c->ins.at[i].n_y; k++)
            if (c->ins.at[i].y[k] >= 0) {
                int r = cg_root(c, c->ins.at[i].y[k]);
                m[r] = c->t.at[r].n_def == 1 ? (int)i : NONE;
            }
    return m;
}

/* ---- passes of the engine ---- */

static bool is_activation(fn_id f)
{
    return fn_operands(f) == 1 && f != FN_COPY && f != FN_NOT && f != FN_AFFINE;
}

/* t has at most one axis of more than one element under y, and it is the channel axis; ones before it, even more
 * than y has axes, say nothing. */
static bool per_channel(const cg *c, const ins *m, int t, const shape *y)
{
    const shape *s = cg_sh(c, t);
    int channel = m->op == IN_MATMUL ? y->rank - 1 : 1;
    if (m->op == IN_MATMUL && c->t.at[cg_root(c, m->opnd[0])].fixed && !c->t.at[cg_root(c, m->opnd[1])].fixed)
        channel = y->rank - 2;
    if (!c->t.at[cg_root(c, t)].fixed) return false;
    for (int i = 0; i < s->rank; i++)
        if (s->d[i] != 1 && (i + y->rank - s->rank != channel || s->d[i] != y->d[channel])) return false;
    return true;
}

enum { STAGE_SUM, STAGE_GAIN, STAGE_OFFSET, STAGE_ACTIVATION };

static int stage_of(const ins *m) /* how far the pass has got */
{
    if (!m->n_step) return STAGE_SUM;
    fn_id f = m->steps[m->n_step - 1].fn;
    return f == FN_MUL ? STAGE_GAIN : f == FN_ADD || f == FN_SUB ? STAGE_OFFSET : STAGE_ACTIVATION;
}

/* Which stage this step of `e` takes the sum to; NONE: another pass. `on` is the number of the value it must
 * continue. */
static int next_stage(const cg *c, const ins *m, const ins *e, const step *s, int on, int stage, const shape *y)
{
    if (s->arg[0] != on && (s->arg[1] != on || s->fn == FN_SUB)) return NONE;
    if (is_activation(s->fn)) return stage < STAGE_ACTIVATION ? STAGE_ACTIVATION : NONE;
    int want = s->fn == FN_MUL ? STAGE_GAIN : s->fn == FN_ADD || s->fn == FN_SUB ? STAGE_OFFSET : NONE;
    int other = s->arg[0] == on ? s->arg[1] : s->arg[0];
    if (want <= stage || other < 0 || other >= e->n_ext || other == on || !per_channel(c, m, e->ext[other], y))
        return NONE;
    return want;
}

/* One shape, but for ones before it. */
static bool same_but_ones(const shape *a, const shape *b)
{
    int i = 0, j = 0;
    while (i < a->rank && a->d[i] == 1) i++;
    while (j < b->rank && b->d[j] == 1) j++;
    return a->rank - i == b->rank - j && !memcmp(a->d + i, b->d + j, sizeof *a->d * (size_t)(a->rank - i));
}

/* A constant of the chain as the product sees it: without the ones before that its view of the result has no axes
 * for. joined: rows of several axes are one. */
static int under_product(cg *c, int t, const shape *y, bool joined)
{
    shape s = *cg_sh(c, t);
    if (cg_elems(&s) == 1) return cg_view(c, t, &(shape){ 0 });
    if (joined) return cg_view(c, t, SH(y->d[1]));
    if (s.rank <= y->rank) return t;
    shape own = shape_of(s.d + s.rank - y->rank, y->rank);
    return cg_view(c, t, &own);
}

/* Move the whole chain e behind the product m, if the engine would. */
static bool join_pass(cg *c, ins *m, const ins *e)
{
    const shape *y = cg_sh(c, m->y[0]);
    int stage = stage_of(m), on = NONE;
    for (int k = 0; k < e->n_ext; k++)
        if (cg_root(c, e->ext[k]) == cg_root(c, m->y[0])) on = on == NONE ? k : -2;
    if (on < 0 || !shape_eq(cg_sh(c, e->ext[on]), cg_sh(c, e->y[0]))) return false;
    /* constants are placed by the chain's own shape: the product's view of it must be the same but for ones, or have
     * only rows before */
    bool joined = !same_but_ones(cg_sh(c, e->y[0]), y);
    if (joined) {
        const shape *s = cg_sh(c, e->y[0]);
        if (m->op != IN_MATMUL || y->rank != 2 || s->d[s->rank - 1] != y->d[1]) return false;
        /* rows were joined: only what varies along the last axis, or not at all, fits */
        for (int k = 0; k < e->n_ext; k++) {
            const shape *t = cg_sh(c, e->ext[k]);
            if (k != on && cg_elems(t) != 1 && (cg_elems(t) != y->d[1] || t->d[t->rank - 1] != y->d[1])) return false;
        }
    }
    ins n = *m;
    step steps[CHAIN_MAX_STEPS];
    if (m->n_step) memcpy(steps, m->steps, sizeof *steps * (size_t)m->n_step);
    int at = on;
    for (int k = 0; k < e->n_step; k++) {
        step s = e->steps[k];
        int to = next_stage(c, m, e, &s, at, stage, y);
        if (to < 0 || n.n_step + 2 > CHAIN_MAX_STEPS) return false;
        /* the first rounding point is there without gain and offset too */
        if (to == STAGE_ACTIVATION && stage == STAGE_SUM)
            steps[n.n_step++] = (step){ .fn = FN_COPY, .arg = { -2, NONE, NONE }, .dt = s.dt };
        /* gain and offset are rounded before it */
        if (to == STAGE_ACTIVATION && n.n_step) steps[n.n_step - 1].dt = s.dt;
        /* one rounding for both */
        if (to == STAGE_OFFSET && stage == STAGE_GAIN) steps[n.n_step - 1].dt = cg_wide(s.dt);
        step moved = { .fn = s.fn, .arg = { NONE, NONE, NONE }, .p = { s.p[0], s.p[1] }, .dt = s.dt };
        for (int j = 0; j < 3; j++) {
            if (s.arg[j] < 0) continue;
            if (s.arg[j] == at) moved.arg[j] = -2; /* the value so far */
            else {
                int t = under_product(c, e->ext[s.arg[j]], y, joined), found = NONE;
                for (int q = 0; q < n.n_ext; q++)
                    if (n.ext[q] == t) found = q;
                if (found < 0 && n.n_ext == CHAIN_MAX_IN) return false;
                if (found < 0) n.ext[found = n.n_ext++] = t;
                moved.arg[j] = -3 - found;
                y = cg_sh(c, m->y[0]); /* the table of tensors may have moved */
            }
        }
        steps[n.n_step++] = moved;
        stage = to;
        at = e->n_ext + k;
    }
    /* inputs are complete: number them, and the steps after them */
    for (int k = 0; k < n.n_step; k++)
        for (int j = 0; j < 3; j++) {
            int a = steps[k].arg[j];
            if (a == -2) steps[k].arg[j] = k ? 1 + n.n_ext + k - 1 : 0;
            else if (a <= -3) steps[k].arg[j] = 1 + (-3 - a);
            else if (k < m->n_step && a > m->n_ext) steps[k].arg[j] = a + n.n_ext - m->n_ext;
        }
    n.steps = NULL, n.cap_step = 0;
    int count = n.n_step;
    n.n_step = 0;
    if (!cg_room(c, &n, count)) return false;
    memcpy(n.steps, steps, sizeof *steps * (size_t)count);
    n.n_step = count;
    n.y[0] = e->y[0];
    if (!shape_eq(cg_sh(c, e->y[0]), cg_sh(c, m->y[0]))) {
        shape own = *cg_sh(c, m->y[0]);
        n.y[0] = cg_view(c, e->y[0], &own);
    }
    *m = n;
    return !c->err.st;
}

void fuse_passes(cg *c)
{
    if (c->err.st || !c->soft) return;
    int *by = cg_makers(c);
    size_t known = c->t.n;
    for (size_t i = 0; i < c->ins.n && by && !c->err.st; i++) {
        ins *e = &c->ins.at[i];
        if (e->op != IN_EW || e->dead) continue;
        for (int k = 0; k < e->n_ext; k++) {
            int r = cg_root(c, e->ext[k]);
            if ((size_t)r >= known || by[r] < 0 || c->t.at[r].n_use != 1) continue;
            ins *m = &c->ins.at[by[r]];
            if (m->dead || !insn_is_product(m->op)) continue;
            if (c->t.at[cg_root(c, e->y[0])].dt != c->t.at[r].dt || !join_pass(c, m, e)) continue;
            /* at e's place: what the chain reads may be made between the two */
            ins moved = *m;
            m->dead = true;
            moved.line = moved.line ? moved.line : e->line;
            *e = moved;
            by[cg_root(c, e->y[0])] = (int)i;
            break;
        }
    }
    cg_drop_dead(c);
}

/* ---- chains ---- */

static bool keeps_wide(const cg *c) { return !c->soft; }

/* What two chains read, once each, when they become one: where each finds what it read, and which of the first's
 * results (its step; NONE: none) the second read. */
typedef struct {
    int ext[CHAIN_MAX_IN], n_ext, map[2][CHAIN_MAX_IN], made[CHAIN_MAX_IN];
} joined;

static bool join_input(joined *w, int v, int *at)
{
    *at = 0;
    while (*at < w->n_ext && w->ext[*at] != v) ++*at;
    if (*at == CHAIN_MAX_IN) return false;
    if (*at == w->n_ext) w->ext[w->n_ext++] = v;
    return true;
}

/* a's steps, then b's. */
static void join_steps(const ins *a, const ins *b, const joined *w, bool wide, step *steps)
{
    for (int pass = 0, at = 0; pass < 2; pass++) {
        const ins *n = pass ? b : a;
        int first = at;
        for (int k = 0; k < n->n_step; k++, at++) {
            steps[at] = n->steps[k];
            for (int j = 0; j < 3; j++) {
                int v = n->steps[k].arg[j];
                if (v < 0) continue;
                if (v >= n->n_ext) steps[at].arg[j] = w->n_ext + first + v - n->n_ext;
                else if (pass && w->made[v] >= 0) steps[at].arg[j] = w->n_ext + w->made[v];
                else steps[at].arg[j] = w->map[pass][v];
            }
            if (!pass && wide) steps[at].dt = cg_wide(steps[at].dt);
        }
    }
}

/* Append the chain a, whose result is input `on` of b, in front of b's steps. */
static bool absorb(cg *c, ins *b, const ins *a, int on)
{
    int shared[CHAIN_MAX_IN], n_shared = 0;
    joined w = { .n_ext = 0 };
    step steps[CHAIN_MAX_STEPS];
    if (a->n_step + b->n_step > CHAIN_MAX_STEPS) return false;
    for (int pass = 0; pass < 2; pass++) {
        const ins *n = pass ? b : a;
        for (int k = 0; k < n->n_ext; k++) {
            w.made[k] = pass && k == on ? a->n_step - 1 : NONE;
            if (w.made[k] >= 0) continue;
            const int before = w.n_ext;
            if (!join_input(&w, n->ext[k], &w.map[pass][k])) return false;
            if (w.n_ext == before) shared[n_shared++] = n->ext[k];
        }
    }
    c->t.at[cg_root(c, b->ext[on])].n_use--;
    for (int k = 0; k < n_shared; k++) c->t.at[cg_root(c, shared[k])].n_use--; /* what both read is read once now */
    join_steps(a, b, &w, keeps_wide(c), steps);
    if (!cg_room(c, b, a->n_step + b->n_step)) return false;
    b->n_step += a->n_step;
    memcpy(b->steps, steps, sizeof *steps * (size_t)b->n_step);
    memcpy(b->ext, w.ext, sizeof *w.ext * (size_t)w.n_ext);
    b->n_ext = w.n_ext;
    return true;
}

/* x * sigmoid(x) is one function here: kernels know it. */
static void name_silu(ins *n)
{
    for (int k = 1; k < n->n_step; k++) {
        step *s = &n->steps[k];
        for (int j = 0; j < 2 && s->fn == FN_MUL; j++) {
            int g = s->arg[j] - n->n_ext;
            if (g < 0 || n->steps[g].fn != FN_SIGMOID || n->steps[g].arg[0] != s->arg[1 - j]) continue;
            *s = (step){ .fn = FN_SILU, .arg = { s->arg[1 - j], NONE, NONE }, .dt = s->dt };
        }
    }
}

/* x / (sqrt(y) + z) likewise: the divider is slow, and it waits for the root. */
static void name_root_div(ins *n)
{
    for (int k = 2; k < n->n_step; k++) {
        step *s = &n->steps[k];
        int sum = s->fn == FN_DIV ? s->arg[1] - n->n_ext : NONE;
        if (sum < 0 || n->steps[sum].fn != FN_ADD || !dtype_is_float(s->dt)) continue;
        for (int j = 0; j < 2; j++) {
            int root = n->steps[sum].arg[j] - n->n_ext;
            if (root < 0 || n->steps[root].fn != FN_SQRT) continue;
            *s = (step){ .fn = FN_ROOT_DIV,
                         .arg = { s->arg[0], n->steps[root].arg[0], n->steps[sum].arg[1 - j] },
                         .dt = s->dt };
            break;
        }
    }
}

void cg_trim(ins *n)
{
    bool used[CHAIN_MAX_STEPS] = { false };
    int first = n->n_ext + (n->op == IN_EW || n->op == IN_EWS ? 0 : 1), to[CHAIN_MAX_STEPS], kept = 0;
    used[n->n_step - 1] = true;
    for (int k = 1; n->op == IN_EWS && k < n->n_y; k++) used[n->from[k]] = true;
    for (int k = n->n_step - 1; k >= 0; k--)
        for (int j = 0; used[k] && j < 3; j++)
            if (n->steps[k].arg[j] >= first) used[n->steps[k].arg[j] - first] = true;
    for (int k = 0; k < n->n_step; k++) {
        if (!used[k]) continue;
        step s = n->steps[k];
        for (int j = 0; j < 3; j++)
            if (s.arg[j] >= first) s.arg[j] = first + to[s.arg[j] - first];
        to[k] = kept;
        n->steps[kept++] = s;
    }
    for (int k = 1; n->op == IN_EWS && k < n->n_y; k++) n->from[k] = to[n->from[k]];
    n->n_step = kept;
}

/* Programs that must have the same bits: do others read what r holds, or would in such a program? */
static bool others_read(const cg *c, int r) { return c->one && (size_t)r < c->n_one && !c->one[r]; }

static bool is_behind_product(const cg *c, const int *by, const ins *a)
{
    for (int k = 0; k < a->n_ext; k++) {
        const int m = by[cg_root(c, a->ext[k])];
        if (m >= 0 && insn_is_product(c->ins.at[m].op)) return true;
    }
    return false;
}

static void merge_chains(cg *c)
{
    int *by = cg_makers(c);
    for (size_t i = 0; i < c->ins.n && by; i++) {
        ins *b = &c->ins.at[i];
        if (b->op != IN_EW) continue;
        for (int k = 0; k < b->n_ext; k++) {
            int t = b->ext[k], r = cg_root(c, t);
            if (by[r] < 0 || c->t.at[r].n_use != 1 || !shape_eq(cg_sh(c, t), cg_sh(c, b->y[0]))) continue;
            ins *a = &c->ins.at[by[r]];
            /* what others read is stored: it goes with its product */
            if (a->op != IN_EW || a->dead || (others_read(c, r) && is_behind_product(c, by, a))) continue;
            if (!shape_eq(cg_sh(c, a->y[0]), cg_sh(c, t)) || !absorb(c, b, a, k)) continue;
            a->dead = true;
            k = -1; /* its inputs may be next */
        }
        if (keeps_wide(c)) name_silu(b), name_root_div(b);
        cg_trim(b);
    }
}

/* The sum of two products. */
static bool adds_products(const cg *c, const int *by, const ins *b)
{
    if (b->n_step != 1 || b->steps[0].fn != FN_ADD || b->n_ext != 2) return false;
    for (int k = 0; k < 2; k++) {
        const int r = cg_root(c, b->ext[k]);
        if (by[r] < 0 || c->t.at[r].n_use != 1 || !insn_is_product(c->ins.at[by[r]].op)) return false;
    }
    return true;
}

/* A chain behind the product that feeds it. Of two products the later one takes it: the other's result is stored by
 * then. Sums of many products are taken one by one (`sums`, before chains are merged), each by one that has nothing
 * behind it yet: adding one tensor costs a product little, adding several a pass. What is stored may be rounded
 * (narrow.c): in programs that must have the same bits it is where a value has several readers, some of which may be
 * those of the same value computed again. */
static void merge_epilogues(cg *c, bool sums)
{
    int *by = cg_makers(c);
    for (size_t i = 0; i < c->ins.n && by && !c->err.st; i++) {
        ins *b = &c->ins.at[i];
        int on = NONE;
        if (b->op != IN_EW || b->dead || (sums && !adds_products(c, by, b))) continue;
        for (int k = 0; k < b->n_ext; k++) {
            int t = b->ext[k], r = cg_root(c, t);
            if ((size_t)r >= c->t.n || by[r] < 0 || c->t.at[r].n_use != 1 || !shape_eq(cg_sh(c, t), cg_sh(c, b->y[0])))
                continue;
            const ins *m = &c->ins.at[by[r]];
            if (others_read(c, r)) continue;
            if (m->dead || !insn_is_product(m->op) || m->n_step + b->n_step > CHAIN_MAX_STEPS ||
                m->n_ext + b->n_ext > CHAIN_MAX_IN || (sums && m->n_step))
                continue;
            if (on < 0 || by[r] > by[cg_root(c, b->ext[on])]) on = k;
        }
        if (on < 0) continue;
        int at = by[cg_root(c, b->ext[on])];
        ins m = c->ins.at[at], old = m;
        shape my = *cg_sh(c, m.y[0]), full = *cg_sh(c, b->y[0]);
        bool same = shape_eq(&my, &full), ok = true;
        int map[CHAIN_MAX_IN];
        for (int k = 0; k < b->n_ext && ok; k++) {
            if (k == on) continue;
            int t = b->ext[k];
            /* whole tensors are seen the same way */
            if (!same && cg_elems(cg_sh(c, t)) == cg_elems(&full)) t = cg_view(c, t, &my);
            else if (!same && cg_elems(cg_sh(c, t)) == 1) t = cg_view(c, t, &(shape){ 0 });
            else if (!same && my.rank == 2 && my.d[1] == full.d[full.rank - 1] && cg_elems(cg_sh(c, t)) == my.d[1] &&
                     cg_sh(c, t)->rank && cg_sh(c, t)->d[cg_sh(c, t)->rank - 1] == my.d[1])
                t = cg_view(c, t, SH(my.d[1]));
            else if (!same) ok = false;
            if (!ok || t < 0) break;
            map[k] = NONE;
            for (int q = 0; q < m.n_ext; q++)
                if (m.ext[q] == t) map[k] = q + 1;
            if (map[k] < 0) m.ext[m.n_ext++] = t, map[k] = m.n_ext;
        }
        if (!ok || c->err.st) continue;
        step *steps = TAKE(&c->mem, step, (size_t)(old.n_step + b->n_step));
        if (!steps) {
            diag_nomem(&c->err);
            return;
        }
        int grown = m.n_ext - old.n_ext;
        for (int k = 0; k < old.n_step; k++) {
            steps[k] = old.steps[k];
            steps[k].dt = cg_wide(steps[k].dt);
            for (int j = 0; j < 3; j++)
                if (steps[k].arg[j] > old.n_ext) steps[k].arg[j] += grown;
        }
        int acc = old.n_step ? m.n_ext + old.n_step : 0; /* the product's own result */
        for (int k = 0; k < b->n_step; k++) {
            step s = b->steps[k];
            for (int j = 0; j < 3; j++) {
                int v = s.arg[j];
                if (v < 0) continue;
                if (v >= b->n_ext) s.arg[j] = 1 + m.n_ext + old.n_step + v - b->n_ext;
                else s.arg[j] = v == on ? acc : map[v];
            }
            if (k < b->n_step - 1) s.dt = cg_wide(s.dt);
            steps[old.n_step + k] = s;
        }
        m.steps = steps;
        m.cap_step = old.n_step + b->n_step;
        m.n_step = old.n_step + b->n_step;
        m.y[0] = cg_view(c, b->y[0], &my);
        c->ins.at[at].dead = true;
        if (c->err.st) return;
        *b = m;
        by[cg_root(c, b->y[0])] = (int)i;
    }
}

/* ---- several results of one pass ---- */

static bool is_chain(const ins *n) { return (n->op == IN_EW || n->op == IN_EWS) && !n->dead; }

static bool writes_root(const cg *c, const ins *n, int root)
{
    for (int k = 0; k < n->n_y; k++)
        if (n->y[k] >= 0 && cg_root(c, n->y[k]) == root) return true;
    return false;
}

static bool reads_root(const cg *c, const ins *n, int root)
{
    for (int k = 0; k < n->n_opnd; k++)
        if (n->opnd[k] >= 0 && cg_root(c, n->opnd[k]) == root) return true;
    for (int k = 0; k < n->n_ext; k++)
        if (cg_root(c, n->ext[k]) == root) return true;
    return false;
}

/* May a move down to where `to` stands? Nothing between reads what it writes or writes what it reads. */
static bool may_sink(const cg *c, size_t from, size_t to)
{
    const ins *a = &c->ins.at[from];
    for (size_t i = from + 1; i < to; i++) {
        const ins *n = &c->ins.at[i];
        if (n->dead) continue;
        for (int k = 0; k < a->n_y; k++)
            if (reads_root(c, n, cg_root(c, a->y[k])) || writes_root(c, n, cg_root(c, a->y[k]))) return false;
        for (int k = 0; k < a->n_ext; k++)
            if (writes_root(c, n, cg_root(c, a->ext[k]))) return false;
    }
    return true;
}

/* Worth a pass of their own no longer: b reads what a makes, or both read a whole tensor of their shape; and where
 * they meet, they meet element by element. */
static bool belong(const cg *c, const ins *a, const ins *b)
{
    bool meet = false;
    if (!shape_eq(cg_sh(c, a->y[0]), cg_sh(c, b->y[0]))) return false;
    for (int k = 0; k < a->n_y; k++)
        if (c->t.at[cg_root(c, a->y[k])].n_def != 1) return false;
    for (int k = 0; k < b->n_ext; k++) {
        const shape *s = cg_sh(c, b->ext[k]);
        bool whole = shape_eq(s, cg_sh(c, b->y[0]));
        if (writes_root(c, a, cg_root(c, b->ext[k]))) {
            bool seen = false;
            for (int q = 0; q < a->n_y; q++)
                seen = seen || (whole && cg_root(c, a->y[q]) == cg_root(c, b->ext[k]) &&
                                c->t.at[a->y[q]].dt == c->t.at[b->ext[k]].dt);
            if (!seen) return false;
            meet = true;
        }
        for (int q = 0; whole && q < a->n_ext; q++) meet = meet || a->ext[q] == b->ext[k];
    }
    return meet;
}

/* Does anything but a and b read the root, or is it a result of the program? */
static bool wanted_elsewhere(const cg *c, const ins *a, const ins *b, int root)
{
    for (size_t i = 0; i < c->ins.n; i++) {
        const ins *n = &c->ins.at[i];
        if (n != a && n != b && !n->dead && reads_root(c, n, root)) return true;
    }
    for (size_t i = 0; i < c->outs.n; i++)
        if (cg_root(c, (int)c->outs.at[i].tensor) == root) return true;
    return c->t.at[root].where != SPACE_SCRATCH;
}

/* b becomes a and b: a's steps in front, their results side by side. What only b read of a's is stored no longer. */
static bool join_results(cg *c, const ins *a, ins *b)
{
    joined w = { .n_ext = 0 };
    int total = a->n_step + b->n_step, results = b->n_y;
    bool stored[CHAIN_MOST_RESULTS];
    for (int k = 0; k < a->n_y; k++) results += stored[k] = wanted_elsewhere(c, a, b, cg_root(c, a->y[k]));
    if (total > CHAIN_MAX_STEPS || results > CHAIN_MOST_RESULTS || !a->n_step || !b->n_step) return false;
    for (int pass = 0; pass < 2; pass++) {
        const ins *n = pass ? b : a;
        for (int k = 0; k < n->n_ext; k++) {
            w.made[k] = NONE;
            for (int q = 0; pass && q < a->n_y; q++)
                if (cg_root(c, a->y[q]) == cg_root(c, b->ext[k])) w.made[k] = q ? a->from[q] : a->n_step - 1;
            if (w.made[k] < 0 && !join_input(&w, n->ext[k], &w.map[pass][k])) return false;
        }
    }
    step *steps = TAKE(&c->mem, step, (size_t)total);
    if (!steps) return diag_nomem(&c->err), false;
    join_steps(a, b, &w, true, steps);
    for (int k = 1; k < b->n_y; k++) b->from[k] += a->n_step;
    for (int k = 0; k < a->n_y; k++)
        if (stored[k]) b->y[b->n_y] = a->y[k], b->from[b->n_y++] = k ? a->from[k] : a->n_step - 1;
    b->op = b->n_y > 1 ? IN_EWS : IN_EW, b->steps = steps, b->n_step = b->cap_step = total, b->n_ext = w.n_ext;
    memcpy(b->ext, w.ext, sizeof *w.ext * (size_t)w.n_ext);
    return true;
}

/* Chains over the same elements that stand close together: an optimiser's parameter and moments, a value and its
 * copy in another type. Memory is walked once for all of them. */
static void merge_results(cg *c)
{
    enum { NEAR = 12 };
    for (size_t i = 0; i < c->ins.n && !c->err.st; i++)
        for (size_t j = i; is_chain(&c->ins.at[i]) && j-- > 0 && i - j <= NEAR && !c->err.st;) {
            ins *a = &c->ins.at[j], *b = &c->ins.at[i];
            if (is_chain(a) && belong(c, a, b) && may_sink(c, j, i) && join_results(c, a, b)) a->dead = true;
        }
}

/* ---- a product and its norm ---- */

/* The sum of all squares of a product is taken as the product is made: later it would have to come back from memory
 * for that alone. */
static void merge_squares(cg *c)
{
    int *by = cg_makers(c);
    for (size_t i = 0; i < c->ins.n && by; i++) {
        ins *r = &c->ins.at[i];
        if (r->op != IN_REDUCE || r->i.at[r->i.n - 1] != RED_SUM_SQUARE) continue;
        int x = cg_root(c, r->opnd[0]), y = cg_root(c, r->y[0]);
        ins *m = by[x] < 0 ? NULL : &c->ins.at[by[x]];
        if (!m || m->op != IN_MATMUL || m->dead || by[y] != (int)i || cg_elems(cg_sh(c, r->y[0])) != 1) continue;
        bool whole = cg_elems(cg_sh(c, r->opnd[0])) == cg_elems(cg_sh(c, m->y[0])) && !c->t.at[r->opnd[0]].at &&
                     !c->t.at[m->y[0]].at;
        if (!whole || c->t.at[m->y[0]].dt != DT_F32 || c->t.at[r->opnd[0]].dt != DT_F32 ||
            c->t.at[r->y[0]].dt != DT_F32)
            continue;
        m->op = IN_MATMUL_SQUARES, m->y[m->n_y++] = r->y[0];
        r->dead = true;
    }
}

void fuse_chains(cg *c)
{
    if (c->err.st || !c->o.level) return;
    if (c->o.separate && c->o.bf16) c->one = read_by_one(c), c->n_one = c->t.n;
    if (!c->soft) merge_epilogues(c, true);
    cg_drop_dead(c);
    merge_chains(c);
    cg_drop_dead(c);
    if (c->soft) return;
    merge_epilogues(c, false);
    cg_drop_dead(c);
    sum_products(c); /* before chains that happen to stand close take the products in */
    merge_results(c);
    cg_drop_dead(c);
    remake_results(c);
    merge_squares(c);
    cg_drop_dead(c);
}
