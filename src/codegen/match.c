/* match.c: operations that are pieces of something larger. In: the node about to be selected.  Out: true when it was
 * selected as the end of such a thing. The pieces before it have been selected on their own already; the ones nobody
 * else reads are dropped later.
 *
 *   attention   matmul(softmax(matmul(q, k) [* s] [+ mask]), v), in either layout of heads, with reshapes in between
 *   attention that is trained   in the layout [width, positions], its weights read again by the way back; and that: the
 *               products with v, p, k and q around p * (dp - sum(p * dp))
 *   norms       x * rsqrt(mean(x^2) + eps), the centred form, and the form that first divides by the largest magnitude;
 *               then gain and bias
 *   products    reduce_sum(mul(a, b)) over an axis both have: the engine runs it as a matrix product, with the same bytes
 *
 * The first three replace roundings by fewer, so only a device that does not round each pass gets them. The last is
 * what such a device does, so only it gets that. */
#include <math.h>

#include "codegen/codegen_int.h"

/* ---- reading the graph backwards ---- */

static const node *maker(const cg *c, val v) { return v.i ? graph_maker(c->g, v) : NULL; }
static bool is(const cg *c, val v, op_id op) { return v.i && graph_maker(c->g, v)->op == op; }

static bool renames(op_id op)
{
    return op == OP_IDENTITY || op == OP_RESHAPE || op == OP_EXPAND_DIMS || op == OP_SQUEEZE || op == OP_FLATTEN2D;
}

val cg_through_views(const cg *c, val v)
{
    while (v.i && renames(graph_maker(c->g, v)->op)) v = graph_maker(c->g, v)->in[0];
    return v;
}

static bool same_value(val a, val b) { return a.i && a.i == b.i; }

/* A number in the text itself: a weight file may be replaced, so what it holds now decides nothing. */
bool cg_number(const cg *c, val v, double *x)
{
    const node *m = maker(c, v);
    return m && m->op == OP_CONST && m->cst && !m->cst->blob_path && graph_const_scalar(c->g, v, x);
}

/* Nobody but the operation at hand reads it: it may vanish into a larger one. */
static bool alone(const cg *c, val v) { return c->n_uses[v.i] == 1 && !c->o.separate; }

/* The operands of a commutative op, the one that satisfies `want` second. */
static bool operands(const cg *c, val v, op_id op, bool (*want)(const cg *, val), val *other, val *wanted)
{
    const node *m = maker(c, v);
    if (!m || m->op != op) return false;
    for (int k = 0; k < 2; k++)
        if (want(c, m->in[k])) return *wanted = m->in[k], *other = m->in[1 - k], true;
    return false;
}

static bool is_number(const cg *c, val v)
{
    double x;
    return cg_number(c, v, &x);
}

/* ---- causal masks ---- */

bool match_causal(cg *c, val mask, int64_t rows)
{
    const node *m = maker(c, mask);
    if (c->soft || !c->o.level || c->o.keep_masks || !m || m->op != OP_CONST || !m->cst || !m->cst->data) return false;
    const ttype *t = graph_type(c->g, mask);
    int r = t->sh.rank;
    if (r < 2 || t->sh.d[r - 1] != rows || t->sh.d[r - 2] != rows || cg_elems(&t->sh) != rows * rows) return false;
    return mask_is_causal(t->dt, m->cst->data, rows);
}

void match_take_causal(cg *c, val mask)
{
    if (!c->o.final) cg_expect(c, maker(c, mask), CK_CAUSAL);
}

/* ---- masks made from positions ---- */

/* v holds 0, 1, 2, … along its last axis, in the text itself. */
static bool counts(const cg *c, val v, int64_t n)
{
    const node *m = maker(c, v);
    if (!m || m->op != OP_CONST || !m->cst || m->cst->blob_path || !m->cst->data) return false;
    const ttype *t = graph_type(c->g, v);
    if (!t->sh.rank || cg_elems(&t->sh) != n || t->sh.d[t->sh.rank - 1] != n) return false;
    for (int64_t i = 0; i < n; i++)
        if (dtype_load(t->dt, m->cst->data, i) != (double)i) return false;
    return true;
}

/* One integer for each row, of a type from which a window can be taken. */
static bool row_numbers(const cg *c, val v, int64_t rows)
{
    const ttype *t = graph_type(c->g, v);
    int r = t->sh.rank;
    return t->dt == DT_I32 && r >= 2 && t->sh.d[r - 1] == 1 && t->sh.d[r - 2] == rows && cg_elems(&t->sh) == rows;
}

/* mask = select(key > pos, never, 0), and around it select(key <= pos - window, never, ...). Where a row sees no key
 * it is taken from each of its scores: it has to be a number, for then that row sees them all. */
static bool match_positions(const cg *c, val mask, int64_t rows, int64_t keys, val *pos, int64_t *window)
{
    if (c->soft || !c->o.level || c->o.keep_masks) return false;
    const node *m = maker(c, mask), *cmp, *sub;
    double never, zero, w = 0;
    val late = NO_VAL;
    *window = 0;
    for (int depth = 0;; depth++) {
        if (!m || m->op != OP_SELECT || depth > 1 || !cg_number(c, m->in[1], &never) || !(never <= SCORE_NEVER) ||
            isinf(never))
            return false;
        cmp = maker(c, m->in[0]);
        if (!cmp || cmp->n_in < 2 || !counts(c, cmp->in[0], keys)) return false;
        if (cmp->op == OP_GREATER && row_numbers(c, cmp->in[1], rows)) break;
        sub = maker(c, cmp->in[1]);
        if (cmp->op != OP_LESS_EQUAL || !sub || sub->op != OP_SUB || !cg_number(c, sub->in[1], &w) || w < 1 ||
            w > INT32_MAX)
            return false;
        late = sub->in[0];
        *window = (int64_t)w;
        m = maker(c, m->in[2]);
    }
    if ((late.i && late.i != cmp->in[1].i) || !cg_number(c, m->in[2], &zero) || zero != 0) return false;
    *pos = cmp->in[1];
    return true;
}

/* ---- attention ---- */

typedef struct {
    val q, k, v, mask;
    bool tq, tk, tv;    /* operand stands the other way round: q [E, L], k [E, S], v [V, S] */
    bool ty;            /* the result is [V, L] */
    double scale;
    int64_t stacks, groups, rows, cols, width, out; /* matrices; row blocks within one; L, S, E, V */
} attention;

static bool product(const cg *c, val v, val *x, val *z, bool *tx, bool *tz)
{
    const node *m = maker(c, v);
    if (!m || (m->op != OP_MATMUL && m->op != OP_NE_MATMUL)) return false;
    *x = m->in[0], *z = m->in[1];
    *tx = attr_bool(m->op, m->attrs, m->n_attr, A_TRANSPOSE_X);
    *tz = attr_bool(m->op, m->attrs, m->n_attr, A_TRANSPOSE_Y);
    return graph_type(c->g, *x)->sh.rank >= 2 && graph_type(c->g, *z)->sh.rank >= 2;
}

/* p is softmax along its last axis, seen through views; its input gives the scores. */
static bool probabilities(const cg *c, val p, val *softmax, val *scores)
{
    *softmax = cg_through_views(c, p);
    const node *m = maker(c, *softmax);
    if (!m || m->op != OP_SOFTMAX || !alone(c, *softmax)) return false;
    const shape *s = &graph_type(c->g, *softmax)->sh, *seen = &graph_type(c->g, p)->sh;
    int axis;
    if (!axis_norm(attr_int(m->op, m->attrs, m->n_attr, A_AXIS), s->rank, &axis) || axis != s->rank - 1 || s->rank < 2)
        return false;
    *scores = m->in[0];
    return seen->rank >= 2 && seen->d[seen->rank - 1] == s->d[s->rank - 1];
}

static bool read_attention(const cg *c, const node *root, attention *a)
{
    val x, z, soft, s;
    bool tx, tz;
    if (!product(c, root->out, &x, &z, &tx, &tz)) return false;
    a->scale = 1;
    val p;
    if (!tx && probabilities(c, x, &soft, &s)) p = x, a->v = z, a->tv = tz;                  /* P V */
    else if (tz && probabilities(c, z, &soft, &s)) p = z, a->v = x, a->tv = !tx, a->ty = true; /* V' P' */
    else return false;
    const shape full = graph_type(c->g, soft)->sh, mat = graph_type(c->g, p)->sh;
    a->rows = full.d[full.rank - 2], a->cols = full.d[full.rank - 1];
    if (is(c, s, OP_ADD)) { /* scores + mask: the scores lead to a product, the mask has their last two axes */
        const node *m = maker(c, s);
        for (int k = 0; k < 2 && !a->mask.i; k++) {
            val t = cg_through_views(c, m->in[k]);
            if (!is(c, t, OP_MATMUL) && !is(c, t, OP_NE_MATMUL) && !is(c, t, OP_MUL) && !is(c, t, OP_REAL_DIV))
                continue;
            if (!shape_eq(&graph_type(c->g, m->in[k])->sh, &full)) continue;
            a->mask = m->in[1 - k], s = m->in[k];
        }
        if (!a->mask.i) return false;
    }
    s = cg_through_views(c, s);
    const node *scaled = maker(c, s);
    double f;
    if (scaled->op == OP_MUL && cg_number(c, scaled->in[1], &f)) s = scaled->in[0], a->scale = f;
    else if (scaled->op == OP_MUL && cg_number(c, scaled->in[0], &f)) s = scaled->in[1], a->scale = f;
    else if (scaled->op == OP_REAL_DIV && cg_number(c, scaled->in[1], &f)) s = scaled->in[0], a->scale = 1 / f;
    s = cg_through_views(c, s);
    if (!product(c, s, &a->q, &a->k, &a->tq, &tz)) return false;
    a->tk = !tz;
    const shape *sc = &graph_type(c->g, s)->sh, *q = &graph_type(c->g, a->q)->sh, *k = &graph_type(c->g, a->k)->sh,
                *v = &graph_type(c->g, a->v)->sh;
    int64_t tall = sc->d[sc->rank - 2];
    a->stacks = cg_prod(sc->d, 0, sc->rank - 2);
    a->groups = a->rows ? tall / a->rows : 0;
    a->width = q->d[q->rank - (a->tq ? 2 : 1)], a->out = v->d[v->rank - (a->tv ? 2 : 1)];
    /* every stack has its own matrices: broadcast ones are left to the plain instructions */
    bool whole = cg_prod(q->d, 0, q->rank - 2) == a->stacks && cg_prod(k->d, 0, k->rank - 2) == a->stacks &&
                 cg_prod(v->d, 0, v->rank - 2) == a->stacks && cg_prod(mat.d, 0, mat.rank - 2) == a->stacks;
    return whole && tall == a->groups * a->rows && mat.d[mat.rank - 2] == tall && sc->d[sc->rank - 1] == a->cols &&
           cg_elems(&full) == a->stacks * tall * a->cols && v->d[v->rank - (a->tv ? 1 : 2)] == a->cols;
}

/* A stack of matrices as [stacks, groups, rows, cols], turned round when it stands the other way. */
static int matrices(cg *c, val v, bool turn, int64_t stacks, int64_t groups, int64_t rows, int64_t cols)
{
    int t = c->of[v.i];
    if (!turn) return cg_view(c, t, SH(stacks, groups, rows, cols));
    return cg_permute(c, cg_view(c, t, SH(stacks, cols, groups, rows)), (const int[]){ 0, 2, 3, 1 });
}

/* Queries multiplied by a power of two: the scores are instead, by which no bit changes. */
static void scale_scores(const cg *c, attention *a)
{
    const node *m = maker(c, a->q);
    double f;
    int exponent;
    if (!m || m->op != OP_MUL || !alone(c, a->q)) return;
    for (int i = 0; i < 2; i++)
        if (cg_number(c, m->in[1 - i], &f) && f > 0 && frexp(f, &exponent) == 0.5 &&
            shape_eq(&graph_type(c->g, m->in[i])->sh, &graph_type(c->g, a->q)->sh)) {
            a->q = m->in[i], a->scale *= f;
            return;
        }
}

enum { TURNED_ROWS = 16 /* fewer are read row by row */ };

static bool match_attention(cg *c)
{
    attention a = { 0 };
    if (!read_attention(c, c->at, &a)) return false;
    int mask = NONE;
    bool causal = false;
    val pos = NO_VAL;
    int64_t window = 0;
    if (a.mask.i) {
        shape m = graph_type(c->g, a.mask)->sh;
        int64_t n = cg_elems(&m), r = m.rank < 2 ? 1 : m.d[m.rank - 2], w = m.rank < 1 ? 1 : m.d[m.rank - 1];
        causal = a.rows == a.cols && match_causal(c, a.mask, a.rows);
        if (match_positions(c, a.mask, a.rows, a.cols, &pos, &window)) n = 0;
        if (!n) mask = NONE;
        else if (n == r * w) mask = cg_view(c, c->of[a.mask.i], SH(1, 1, r, w));
        else if (n == a.stacks * a.groups * a.rows * a.cols)
            mask = cg_view(c, c->of[a.mask.i], SH(a.stacks, a.groups, a.rows, a.cols));
        else return false;
    }
    if (pos.i) scale_scores(c, &a);
    else if (causal) match_take_causal(c, a.mask);
    /* as it stands, and so does the result */
    const bool turned = pos.i && a.tq && a.ty && a.groups == 1 && a.rows >= TURNED_ROWS;
    int q = turned ? cg_view(c, c->of[a.q.i], SH(a.stacks, 1, a.width, a.rows))
                   : matrices(c, a.q, a.tq, a.stacks, a.groups, a.rows, a.width),
        k = matrices(c, a.k, a.tk, a.stacks, 1, a.cols, a.width),
        v = matrices(c, a.v, a.tv, a.stacks, 1, a.cols, a.out);
    dtype dt = cg_dt(c, cg_out_type(c, 0)->dt);
    const shape *ysh = turned ? SH(a.stacks, 1, a.out, a.rows) : SH(a.stacks, a.groups, a.rows, a.out);
    int y = pos.i ? cg_attend_at(c, dt, q, k, v, cg_view(c, c->of[pos.i], SH(a.rows)), window, turned, a.scale, ysh)
                  : cg_attend(c, dt, q, k, v, causal ? NONE : mask, causal, a.scale, ysh);
    if (a.ty && !turned) y = cg_permute(c, y, (const int[]){ 0, 3, 1, 2 });
    cg_set(c, 0, y);
    return true;
}

/* ---- attention that is trained ---- */

typedef struct {
    val q, k, v, p, dy, mask;
    int64_t stacks, rows, keys, width, cols, period;
} attention_back;

/* Is `sum` the sum of p * dp along the last axis, which it keeps? */
static bool sums_product(const cg *c, val sum, val p, val dp)
{
    const node *m = maker(c, sum), *f;
    if (!m || m->op != OP_REDUCE_SUM) return false;
    const shape *s = &graph_type(c->g, m->in[0])->sh, *o = &graph_type(c->g, sum)->sh;
    const attr *axes = attr_get(m->attrs, m->n_attr, A_AXES);
    int ax;
    if (!axes || axes->n != 1 || !axis_norm(axes->u.is[0], s->rank, &ax) || ax != s->rank - 1 || o->rank != s->rank)
        return false;
    f = maker(c, m->in[0]);
    return f && f->op == OP_MUL &&
           ((same_value(f->in[0], p) && same_value(f->in[1], dp)) ||
            (same_value(f->in[1], p) && same_value(f->in[0], dp)));
}

static bool as_matrices(const cg *c, val v, int64_t stacks, int64_t rows, int64_t cols)
{
    const shape *s = &graph_type(c->g, v)->sh;
    int t = c->of[v.i];
    return t >= 0 && c->t.at[t].dt == DT_F32 && s->rank >= 2 && s->d[s->rank - 2] == rows &&
           s->d[s->rank - 1] == cols && cg_elems(s) == stacks * rows * cols;
}

/* p = softmax(q^T·k + mask) by rows, and what v it weighs; the mask causal, or *masked. */
static bool read_weights(cg *c, attention_back *a, bool *masked)
{
    const node *m = maker(c, a->p);
    const shape *full = &graph_type(c->g, a->p)->sh;
    val scores, mask = NO_VAL;
    bool tx, tz;
    int axis;
    if (!m || m->op != OP_SOFTMAX || full->rank < 2) return false;
    if (!axis_norm(attr_int(m->op, m->attrs, m->n_attr, A_AXIS), full->rank, &axis) || axis != full->rank - 1)
        return false;
    scores = m->in[0];
    const node *sum = maker(c, scores);
    for (int i = 0; sum && sum->op == OP_ADD && i < 2 && !mask.i; i++)
        if (is(c, cg_through_views(c, sum->in[i]), OP_MATMUL) && shape_eq(&graph_type(c->g, sum->in[i])->sh, full))
            scores = sum->in[i], mask = sum->in[1 - i];
    if (!product(c, cg_through_views(c, scores), &a->q, &a->k, &tx, &tz) || !tx || tz) return false;
    const shape *q = &graph_type(c->g, a->q)->sh, *k = &graph_type(c->g, a->k)->sh, *v = &graph_type(c->g, a->v)->sh;
    a->stacks = cg_prod(q->d, 0, q->rank - 2), a->width = q->d[q->rank - 2], a->rows = q->d[q->rank - 1],
    a->keys = k->d[k->rank - 1], a->cols = v->d[v->rank - 2];
    const int64_t high = full->d[full->rank - 2];
    if (mask.i && high == a->keys && a->rows % high == 0 && match_causal(c, mask, high))
        a->period = high, a->mask = mask;
    *masked = mask.i && !a->period;
    return as_matrices(c, a->q, a->stacks, a->width, a->rows) && as_matrices(c, a->k, a->stacks, a->width, a->keys) &&
           as_matrices(c, a->v, a->stacks, a->cols, a->keys) && full->d[full->rank - 1] == a->keys &&
           cg_elems(full) == a->stacks * a->rows * a->keys && c->of[a->p.i] >= 0 && c->t.at[c->of[a->p.i]].dt == DT_F32;
}

/* s = p * (dp - sum(p * dp)), dp = dy^T·v. */
static bool read_back(cg *c, val s, attention_back *a)
{
    const node *m = maker(c, s), *less = NULL;
    bool tx, tz, masked;
    if (!m || m->op != OP_MUL) return false;
    for (int i = 0; i < 2 && !less; i++) {
        const node *n = maker(c, m->in[i]);
        if (n && n->op == OP_SUB && sums_product(c, n->in[1], m->in[1 - i], n->in[0])) less = n, a->p = m->in[1 - i];
    }
    if (!less || !product(c, cg_through_views(c, less->in[0]), &a->dy, &a->v, &tx, &tz) || !tx || tz) return false;
    return read_weights(c, a, &masked) && as_matrices(c, a->dy, a->stacks, a->cols, a->rows);
}

/* Does an instruction behind `at` read what that one writes? */
static bool is_read(const cg *c, size_t at)
{
    const int y = cg_root(c, c->ins.at[at].y[0]);
    for (size_t i = at + 1; i < c->ins.n; i++) {
        const ins *n = &c->ins.at[i];
        for (int k = 0; k < n->n_opnd; k++)
            if (n->opnd[k] >= 0 && cg_root(c, n->opnd[k]) == y) return true;
        for (int k = 0; k < n->n_ext; k++)
            if (cg_root(c, n->ext[k]) == y) return true;
    }
    return false;
}

/* v·p^T of weights that are read again later: one instruction that keeps them. */
static bool match_attention_kept(cg *c)
{
    attention_back a = { 0 };
    val z;
    bool tx, tz, masked;
    if (!product(c, c->at->out, &a.v, &z, &tx, &tz) || tx || !tz) return false;
    a.p = cg_through_views(c, z);
    if (!read_weights(c, &a, &masked) || masked) return false;
    size_t at = c->ins.n;
    for (size_t i = 0; i < c->ins.n; i++)
        if (c->ins.at[i].op == IN_SOFTMAX && cg_root(c, c->ins.at[i].y[0]) == cg_root(c, c->of[a.p.i])) at = i;
    if (at == c->ins.n || is_read(c, at)) return false;
    int y = cg_tensor(c, DT_F32, SH(a.stacks, a.cols, a.rows)),
        p = cg_view(c, c->ins.at[at].y[0], SH(a.stacks, a.rows, a.keys)),
        v = cg_view(c, c->of[a.v.i], SH(a.stacks, a.cols, a.keys));
    int q = cg_view(c, c->of[a.q.i], SH(a.stacks, a.width, a.rows)),
        k = cg_view(c, c->of[a.k.i], SH(a.stacks, a.width, a.keys));
    ins *n = cg_ins(c, IN_ATTEND_KEEP, y, OPS(q, k, v));
    if (!n) return true;
    n->n_y = 2, n->y[1] = p;
    cg_i(c, n, a.period), cg_i(c, n, 0);
    if (a.period) match_take_causal(c, a.mask);
    c->ins.at[at].dead = true;
    cg_set(c, 0, y);
    return true;
}

/* Does an instruction behind `at` write what v is? */
static bool made_later(const cg *c, val v, size_t at)
{
    const int t = cg_root(c, c->of[v.i]);
    for (size_t i = at + 1; i < c->ins.n; i++)
        for (int k = 0; k < c->ins.at[i].n_y; k++)
            if (cg_root(c, c->ins.at[i].y[k]) == t) return true;
    return false;
}

/* The product dy·p, behind which nothing is made that the way back reads; -1: there is none. */
static int64_t find_dv(const cg *c, const attention_back *a)
{
    const int dy = cg_root(c, c->of[a->dy.i]), p = cg_root(c, c->of[a->p.i]);
    for (size_t i = 0; i < c->ins.n; i++) {
        const ins *n = &c->ins.at[i];
        if (n->op == IN_MATMUL && !n->dead && !n->n_step && cg_root(c, n->opnd[0]) == dy &&
            cg_root(c, n->opnd[1]) == p && !n->i.at[0] && !n->i.at[1] && c->t.at[n->y[0]].dt == DT_F32 &&
            cg_elems(cg_sh(c, n->y[0])) == a->stacks * a->cols * a->keys)
            return made_later(c, a->q, i) || made_later(c, a->k, i) || made_later(c, a->v, i) ? -1 : (int64_t)i;
    }
    return -1;
}

/* At the first of the two products that end it. The other one, when it comes, finds its result there. It takes the
 * place of the product dy·p: with several sequences the result of that one is laid out anew at once. */
static bool match_attention_back(cg *c)
{
    val x, z, s;
    bool tx, tz;
    attention_back a = { 0 };
    if (!product(c, c->at->out, &x, &z, &tx, &tz) || tx) return false;
    uint32_t uses = c->n_uses[z.i];
    for (s = z; renames(graph_maker(c->g, s)->op) && uses == 1;) s = graph_maker(c->g, s)->in[0], uses = c->n_uses[s.i];
    s = cg_through_views(c, s);
    for (size_t i = 0; i < c->backs.n; i++) {
        const attend_grad *b = &c->backs.at[i];
        if (!same_value(b->scores, s) || !same_value(tz ? b->k : b->q, x)) continue;
        cg_set(c, 0, tz ? b->dq : b->dk);
        return true;
    }
    if (uses != 2 || !read_back(c, s, &a) || !same_value(tz ? a.k : a.q, x)) return false;
    const int64_t at = find_dv(c, &a);
    if (at < 0) return false;
    int dq = cg_tensor(c, DT_F32, SH(a.stacks, a.width, a.rows)),
        dk = cg_tensor(c, DT_F32, SH(a.stacks, a.width, a.keys));
    int dv = cg_view(c, c->ins.at[at].y[0], SH(a.stacks, a.cols, a.keys)),
        p = cg_view(c, c->of[a.p.i], SH(a.stacks, a.rows, a.keys));
    int q = cg_view(c, c->of[a.q.i], SH(a.stacks, a.width, a.rows)),
        k = cg_view(c, c->of[a.k.i], SH(a.stacks, a.width, a.keys));
    int v = cg_view(c, c->of[a.v.i], SH(a.stacks, a.cols, a.keys)),
        dy = cg_view(c, c->of[a.dy.i], SH(a.stacks, a.cols, a.rows));
    ins *n = cg_ins(c, IN_ATTEND_BACK, dq, OPS(p, q, k, v, dy));
    if (!n) return true;
    n->n_y = 3, n->y[1] = dk, n->y[2] = dv;
    c->t.at[dk].n_def++;
    cg_i(c, n, a.period), cg_i(c, n, 0);
    if (a.period) match_take_causal(c, a.mask);
    ins was = c->ins.at[at];
    was.dead = true;
    c->ins.at[at] = *n;
    *n = was;
    if (!VEC_PUSH(&c->mem, &c->backs, ((attend_grad){ .scores = s, .q = a.q, .k = a.k, .dq = dq, .dk = dk })))
        diag_nomem(&c->err);
    cg_set(c, 0, tz ? dq : dk);
    return true;
}

/* ---- norms ---- */

typedef struct {
    val x;
    bool on[MAX_RANK];
    double eps;
    bool centre;
} normal;

static bool reduced_axes(const cg *c, const node *m, bool *on, int64_t *count)
{
    const shape *s = &graph_type(c->g, m->in[0])->sh;
    const attr *l = attr_get(m->attrs, m->n_attr, A_AXES);
    *count = 1;
    for (int i = 0; i < MAX_RANK; i++) on[i] = !l && i < s->rank;
    for (int i = 0, ax; l && i < l->n; i++) {
        if (!axis_norm(l->u.is[i], s->rank, &ax)) return false;
        on[ax] = true;
    }
    for (int i = 0; i < s->rank; i++)
        if (on[i]) *count *= s->d[i];
    const shape *o = &graph_type(c->g, m->out)->sh;
    return o->rank == s->rank; /* keep_dims: the result broadcasts back */
}

/* v is the mean of `of` over axes: reduce_mean, or a sum times or divided by the count. */
static bool mean_of(const cg *c, val v, val *of, bool *on, bool squares)
{
    const node *m = maker(c, v);
    double f = 0;
    int64_t n;
    bool divided = m->op == OP_REAL_DIV && cg_number(c, m->in[1], &f), times = false;
    if (m->op == OP_MUL)
        for (int k = 0; k < 2 && !times; k++)
            if (cg_number(c, m->in[k], &f)) times = true, v = m->in[1 - k];
    if (divided) v = m->in[0];
    m = maker(c, v);
    op_id want = squares ? OP_REDUCE_SUM_SQUARE : divided || times ? OP_REDUCE_SUM : OP_REDUCE_MEAN;
    if (m->op != want || (squares && !divided && !times)) return false;
    if (!reduced_axes(c, m, on, &n)) return false;
    if (divided && f != (double)n) return false;
    /* 1/n as its own type rounds it */
    if (times && fabs(f * (double)n - 1) > (graph_type(c->g, v)->dt == DT_F32 ? 0x1p-22 : 0x1p-10)) return false;
    *of = m->in[0];
    return true;
}

static bool square_of(const cg *c, val v, val *x)
{
    const node *m = maker(c, v);
    double two;
    if (m->op == OP_SQUARE) return *x = m->in[0], true;
    if (m->op == OP_MUL && same_value(m->in[0], m->in[1])) return *x = m->in[0], true;
    if (m->op == OP_POW && cg_number(c, m->in[1], &two) && two == 2) return *x = m->in[0], true;
    return false;
}

static bool mean_square_of(const cg *c, val v, val *x, bool *on)
{
    val sq;
    if (mean_of(c, v, x, on, true)) return true;
    return mean_of(c, v, &sq, on, false) && square_of(c, sq, x);
}

/* v = 1 / sqrt(inside); eps in the function itself. */
static bool root_of(const cg *c, val v, val *inside, double *eps)
{
    const node *m = maker(c, v);
    double e;
    *eps = 0;
    if (m->op == OP_RSQRT) {
        *inside = m->in[0], *eps = attr_float(m->op, m->attrs, m->n_attr, A_EPSILON);
        return true;
    }
    if (m->op == OP_POW && cg_number(c, m->in[1], &e) && e == -0.5) return *inside = m->in[0], true;
    return false;
}

static bool same_axes(const bool *a, const bool *b) { return !memcmp(a, b, MAX_RANK * sizeof *a); }

/* x minus its mean over the same axes. */
static bool centred(const cg *c, val v, const bool *on, val *x)
{
    const node *m = maker(c, v);
    bool here[MAX_RANK];
    val of;
    if (m->op != OP_SUB || !mean_of(c, m->in[1], &of, here, false) || !same_value(of, m->in[0]) || !same_axes(on, here))
        return false;
    return *x = m->in[0], true;
}

/* u = x / m with m = max(largest |x|, r), perhaps clipped to one; extra = (r / m)^2. Then u * rsqrt(mean(u^2) +
 * extra) is the norm of x with eps = r^2: numerator and root are both divided by m. An epsilon of the root's own,
 * *eps, would be one times m^2: only what is lost beside mean(u^2), which is 1/n at least where extra is not 1, may
 * be left out. */
static bool prescaled(const cg *c, val u, val extra, const bool *on, val *x, double *eps)
{
    const node *d = maker(c, u), *m, *t;
    double lo, hi, r;
    val square, root;
    if (d->op == OP_CLIP) {
        lo = attr_float(d->op, d->attrs, d->n_attr, A_ALPHA), hi = attr_float(d->op, d->attrs, d->n_attr, A_BETA);
        if (lo > -1 || hi < 1) return false;
        d = maker(c, d->in[0]);
    }
    if (d->op != OP_REAL_DIV) return false;
    m = maker(c, d->in[1]);
    val top;
    if (!operands(c, m->out, OP_MAXIMUM, is_number, &top, &root) || !cg_number(c, root, &r) || r <= 0) return false;
    const node *big = maker(c, top), *mag;
    bool here[MAX_RANK];
    int64_t n;
    if (big->op != OP_REDUCE_MAX || !reduced_axes(c, big, here, &n) || !same_axes(on, here) ||
        *eps * (double)n > 0x1p-24)
        return false;
    mag = maker(c, big->in[0]);
    if (mag->op != OP_ABS || !same_value(mag->in[0], d->in[0])) return false;
    if (!square_of(c, extra, &square)) return false;
    t = maker(c, square);
    double r2;
    if (t->op != OP_REAL_DIV || !cg_number(c, t->in[0], &r2) || r2 != r || !same_value(t->in[1], d->in[1]))
        return false;
    *x = d->in[0], *eps = r * r;
    return true;
}

/* base * 1/sqrt(mean(base^2) + eps) */
static bool read_norm(const cg *c, val base, val inside, double eps, normal *n)
{
    val ms = inside, other = NO_VAL, of;
    const node *m = maker(c, inside);
    bool found = false;
    *n = (normal){ .eps = eps };
    if (m->op == OP_ADD)
        for (int k = 0; k < 2 && !found; k++) {
            found = mean_square_of(c, m->in[k], &of, n->on) && same_value(of, base);
            ms = m->in[k], other = m->in[1 - k];
        }
    else found = mean_square_of(c, ms, &of, n->on) && same_value(of, base);
    if (!found) return false;
    double e;
    bool plain = !other.i || cg_number(c, other, &e);
    if (plain && other.i) n->eps += e;
    n->x = base;
    n->centre = centred(c, base, n->on, &n->x);
    if (plain) return true;
    val x;
    if (!prescaled(c, n->x, other, n->on, &x, &n->eps)) return false;
    n->x = x;
    return true;
}

/* A root that is read again, by the way back, has to be there on its own: then the norm is two products more. */
static bool find_norm(const cg *c, const node *m, normal *n)
{
    val inside;
    double eps;
    if (m->op == OP_MUL)
        for (int k = 0; k < 2; k++)
            if (alone(c, m->in[k]) && root_of(c, m->in[k], &inside, &eps) && read_norm(c, m->in[1 - k], inside, eps, n))
                return true;
    if (m->op == OP_REAL_DIV && is(c, m->in[1], OP_SQRT))
        return read_norm(c, m->in[0], maker(c, m->in[1])->in[0], 0, n);
    return false;
}

/* What multiplies or is added must broadcast to the result without making it larger. */
static bool fits(const cg *c, val p, const shape *o)
{
    shape both;
    return shape_broadcast(&graph_type(c->g, p)->sh, o, &both) && shape_eq(&both, o);
}

static bool match_norm(cg *c)
{
    const node *m = c->at, *n = m;
    normal f;
    val gain = NO_VAL, bias = NO_VAL;
    const shape *o = &cg_out_type(c, 0)->sh;
    bool found = find_norm(c, n, &f);
    for (int k = 0; m->op == OP_ADD && !found && k < 2; k++) { /* ... * gain + bias, or ... + bias */
        n = maker(c, m->in[k]);
        if (!alone(c, n->out) || !fits(c, m->in[1 - k], o)) continue;
        bias = m->in[1 - k];
        found = find_norm(c, n, &f);
        for (int j = 0; n->op == OP_MUL && !found && j < 2; j++) {
            if (!alone(c, n->in[j]) || !fits(c, n->in[1 - j], o)) continue;
            gain = n->in[1 - j];
            found = find_norm(c, maker(c, n->in[j]), &f);
        }
    }
    for (int k = 0; m->op == OP_MUL && !found && k < 2; k++) {
        if (!alone(c, m->in[k]) || !fits(c, m->in[1 - k], o)) continue;
        gain = m->in[1 - k];
        found = find_norm(c, maker(c, m->in[k]), &f);
    }
    if (!found || !shape_eq(&graph_type(c->g, f.x)->sh, o)) return false;
    int64_t axes[MAX_RANK];
    int rank = 0, y = cg_tensor(c, cg_dt(c, cg_out_type(c, 0)->dt), o);
    for (int i = 0; i < o->rank; i++)
        if (f.on[i]) axes[rank++] = i;
    ins *k = cg_ins(c, IN_NORM, y, OPS(c->of[f.x.i], gain.i ? c->of[gain.i] : NONE, bias.i ? c->of[bias.i] : NONE));
    cg_is(c, k, axes, rank);
    cg_i(c, k, f.centre ? NORM_LAYER : NORM_RMS);
    cg_f(k, f.eps);
    cg_set(c, 0, y);
    return true;
}

/* ---- products written as multiply and sum ---- */

/* Labels of a broadcast operand: axes of one carry no letter, and are dropped from its view. */
static int labelled(cg *c, val v, const shape *full, char *labels)
{
    shape s = graph_type(c->g, v)->sh, o = { 0 };
    int n = 0;
    for (int i = 0; i < s.rank; i++) {
        if (s.d[i] == 1) continue;
        labels[n++] = (char)('a' + full->rank - s.rank + i);
        o.d[o.rank++] = s.d[i];
    }
    labels[n] = 0;
    return cg_view(c, c->of[v.i], &o);
}

static bool match_dot(cg *c)
{
    const node *m = maker(c, c->at->in[0]);
    if (m->op != OP_MUL || c->n_uses[m->out.i] != 1 || same_value(m->in[0], m->in[1])) return false;
    if (!dtype_is_float(cg_out_type(c, 0)->dt)) return false;
    const shape full = graph_type(c->g, m->out)->sh;
    bool on[MAX_RANK];
    if (!cg_axes(c, A_AXES, full.rank, on)) return false;
    char lx[MAX_RANK + 1], lz[MAX_RANK + 1], ly[MAX_RANK + 1], all = 0;
    int x = labelled(c, m->in[0], &full, lx), z = labelled(c, m->in[1], &full, lz), n = 0;
    for (int i = 0; i < full.rank; i++) {
        char l = (char)('a' + i);
        if (full.d[i] == 1) continue;
        /* summed, but only one of them varies along it */
        if (on[i] && (!strchr(lx, l) || !strchr(lz, l))) return false;
        if (on[i]) all = 1;
        else ly[n++] = l;
    }
    ly[n] = 0;
    if (!all) return false;
    cg_set(c, 0, cg_contract(c, cg_dt(c, cg_out_type(c, 0)->dt), x, lx, z, lz, ly));
    return true;
}

bool match_node(cg *c)
{
    if (c->err.st) return false;
    op_id op = c->at->op;
    if (c->soft) return op == OP_REDUCE_SUM && match_dot(c);
    if (!c->o.level) return false;
    if (op == OP_MATMUL || op == OP_NE_MATMUL)
        return match_attention(c) || match_attention_kept(c) || match_attention_back(c);
    if ((op == OP_MUL || op == OP_ADD || op == OP_SUB) && match_turn(c)) return true;
    if (op == OP_MUL || op == OP_ADD || op == OP_REAL_DIV) return match_norm(c);
    return op == OP_CONCAT && match_rope(c);
}
