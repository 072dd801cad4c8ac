/* vjp_mac.c: gradients of matrix products: matmul, linear, einsum, attention. All of them are products again.
 * In: an adj.  Out: its dx. */
#include <math.h>

#include "grad/grad_int.h"

static val product(adj *c, val x, bool tx, val y, bool ty)
{
    return GA(c->g, MATMUL, VALS(x, y), AT_B(TRANSPOSE_X, tx), AT_B(TRANSPOSE_Y, ty));
}

/* Shape of the product of two stacks of matrices, as the rules of broadcasting make it. */
static shape stacked(const shape *a, const shape *b, int64_t rows, int64_t cols)
{
    shape x = shape_of(a->d, a->rank - 2), y = shape_of(b->d, b->rank - 2), o = { 0 };
    if (!shape_broadcast(&x, &y, &o)) o.rank = 0;
    o.d[o.rank++] = rows, o.d[o.rank++] = cols;
    return o;
}

/* Rows of every matrix of a stack in one: [..., m, k] as [M, k]; a vector is one row. */
static val flat_rows(adj *c, val v)
{
    shape s = shape_at(c, v), rows = SHAPE(prod(s.d, 0, s.rank - 1), s.d[s.rank - 1]);
    return reshaped(c, v, &rows);
}

void vjp_matmul(adj *c)
{
    shape own[2] = { shape_at(c, c->n.in[0]), shape_at(c, c->n.in[1]) }, s[2] = { own[0], own[1] };
    bool tx = at_b(c, A_TRANSPOSE_X), ty = at_b(c, A_TRANSPOSE_Y);
    if (s[0].rank == 1) s[0] = SHAPE(1, own[0].d[0]); /* a vector is a row on the left, a column on the right */
    if (s[1].rank == 1) s[1] = SHAPE(own[1].d[0], 1);
    val x = reshaped(c, c->n.in[0], &s[0]), y = reshaped(c, c->n.in[1], &s[1]);
    int64_t m = s[0].d[s[0].rank - (tx ? 1 : 2)], n = s[1].d[s[1].rank - (ty ? 2 : 1)],
            k = s[0].d[s[0].rank - (tx ? 2 : 1)];
    shape zs = stacked(&s[0], &s[1], m, n);
    val z = reshaped(c, dy_full(c), &zs);
    if (wanted(c, 0)) {
        shape wide = stacked(&s[0], &s[1], tx ? k : m, tx ? m : k);
        val d = tx ? product(c, y, ty, z, true) : product(c, z, false, y, !ty);
        d = full(c, fit(c, d, &wide, &s[0]), &s[0]);
        c->dx[0] = reshaped(c, d, &own[0]);
    }
    if (!wanted(c, 1)) return;
    val d;
    if (count_of(&s[1]) == k * n && !tx) {
        /* one matrix for the whole stack: the sum over the stack is the product's own contraction */
        val rows = flat_rows(c, x), grads = flat_rows(c, z);
        d = ty ? product(c, grads, true, rows, false) : product(c, rows, true, grads, false);
        d = reshaped(c, d, &s[1]);
    } else {
        shape wide = stacked(&s[0], &s[1], ty ? n : k, ty ? k : n);
        d = ty ? product(c, z, true, x, tx) : product(c, x, !tx, z, false);
        d = full(c, fit(c, d, &wide, &s[1]), &s[1]);
    }
    c->dx[1] = reshaped(c, d, &own[1]);
}

void vjp_linear(adj *c) /* y = x W^T + b */
{
    val dy = dy_full(c);
    if (wanted(c, 0)) c->dx[0] = product(c, dy, false, c->n.in[1], false);
    if (wanted(c, 1)) {
        val xs = flat_rows(c, c->n.in[0]), ds = flat_rows(c, dy);
        c->dx[1] = product(c, ds, true, xs, false);
    }
    if (wanted(c, 2)) {
        shape b = shape_at(c, c->n.in[2]);
        c->dx[2] = full(c, fit(c, c->dy[0], &c->y, &b), &b);
    }
}

/* z = sum over the letters missing on the right. By x: contract dz with y for the letters of x; a letter that only x
 * has was summed alone, so its gradient does not depend on it: thin. */
void vjp_einsum(adj *c)
{
    const char *eq = at_s(c, A_EQUATION);
    char side[3][MAX_RANK + 1] = { "", "", "" };
    int part = 0, len = 0;
    for (const char *p = eq; *p; p++) {
        if (*p == ',' || *p == '-') part++, len = 0;
        else if (*p != '>' && part < 3 && len < MAX_RANK) side[part][len++] = *p, side[part][len] = 0;
    }
    for (int k = 0; k < 2; k++) {
        if (!wanted(c, k)) continue;
        const char *other = side[!k];
        char text[4 * MAX_RANK + 8], left[MAX_RANK + 1] = "";
        shape x = shape_at(c, c->n.in[k]), thin = x;
        int n = 0;
        for (int i = 0; i < x.rank; i++) {
            bool bound = strchr(side[2], side[k][i]) || strchr(other, side[k][i]);
            if (bound) left[n++] = side[k][i], left[n] = 0;
            else thin.d[i] = 1;
        }
        snprintf(text, sizeof text, "%s,%s->%s", side[2], other, left);
        val d = GA(c->g, EINSUM, VALS(dy_full(c), c->n.in[!k]), AT_S(EQUATION, text));
        c->dx[k] = reshaped(c, d, &thin);
    }
}

/* The softmax of scores, of those alone that a mask admits (bool, or NO_VAL): the others count as lower than any
 * score, and where none is admitted nothing has a weight. */
static val attended(adj *c, val score, val admits)
{
    if (!admits.i) return GA(c->g, SOFTMAX, VALS(score), AT_I(AXIS, -1));
    val p = GA(c->g, SOFTMAX, VALS(choose(c, admits, score, num(c, lowest_of(c->dt)))), AT_I(AXIS, -1));
    return only_if(c, admits, p);
}

/* What a mask that is added leaves: all but -inf. NO_VAL: every place, as far as can be told now. */
static val left_by(adj *c, val mask)
{
    const node *k = graph_const_of(c->g, mask);
    const ttype *t = graph_type(c->g, mask);
    int64_t n, hidden = 0;
    if (!k) return G(c->g, GREATER, mask, num(c, -INFINITY));
    double *x = shape_elems(&t->sh, &n) ? TAKE(c->tmp, double, (size_t)MAX(n, 1)) : NULL;
    if (!x) return graph_fail(c->g, AN_NOMEM, "out of memory"), NO_VAL;
    for (int64_t i = 0; i < n; i++) x[i] = graph_const_at(k, t, i) > -INFINITY, hidden += x[i] == 0;
    return hidden ? graph_const_f64(c->g, NULL, (ttype){ DT_BOOL, t->sh }, x) : NO_VAL;
}

/* softmax(q k^T / sqrt(E) + mask) v, recomputed from its parts. A row that admits nothing has no value
 * (docs/numerics.md) and gives nothing back: a loss that leaves it out has the gradient of the others. */
void vjp_sdpa(adj *c)
{
    val q = c->n.in[0], k = c->n.in[1], v = c->n.in[2], dy = dy_full(c);
    shape qs = shape_at(c, q), ks = shape_at(c, k), vs = shape_at(c, v);
    int r = qs.rank;
    double factor = 1 / sqrt((double)qs.d[r - 1]);
    shape score = c->y;
    score.d[score.rank - 1] = ks.d[r - 2];
    val near = scale(c, q, factor), s = product(c, near, false, k, true);
    bool admits = given(c, 3) && graph_type(c->g, c->n.in[3])->dt == DT_BOOL;
    if (given(c, 3) && !admits) s = add(c, s, c->n.in[3]);
    val p = attended(c, s, admits ? c->n.in[3] : given(c, 3) ? left_by(c, c->n.in[3]) : NO_VAL);
    if (wanted(c, 2)) {
        shape wide = c->y;
        wide.d[wide.rank - 2] = vs.d[r - 2];
        c->dx[2] = fit(c, product(c, p, true, dy, false), &wide, &vs);
    }
    if (!wanted(c, 0) && !wanted(c, 1) && !wanted(c, 3)) return;
    val dp = product(c, dy, false, v, true);
    val ds = mul(c, p, sub(c, dp, sum_axes(c, mul(c, p, dp), 1u << (score.rank - 1))));
    shape wide = score;
    if (wanted(c, 0)) {
        wide.d[wide.rank - 1] = qs.d[r - 1];
        c->dx[0] = scale(c, fit(c, product(c, ds, false, k, false), &wide, &qs), factor);
    }
    if (wanted(c, 1)) {
        wide = score;
        wide.d[wide.rank - 2] = ks.d[r - 2], wide.d[wide.rank - 1] = ks.d[r - 1];
        c->dx[1] = fit(c, product(c, ds, true, near, false), &wide, &ks);
    }
    if (wanted(c, 3)) {
        shape ms = shape_at(c, c->n.in[3]);
        c->dx[3] = fit(c, ds, &score, &ms);
    }
}
