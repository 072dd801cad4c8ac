/* vjp_index.c: gradients of operations that pick elements by number or by place: gathers, top-k, padding that
 * repeats the border, resampling along axes. In: an adj.  Out: its dx.
 *
 * The engine has no scatter (a plain processor does, and then a lookup's gradient is one). What adds rows into
 * places is a product with a one-hot matrix: it is made by comparing the indices with a constant range, so it works
 * for indices that are only known at run time. Where the places are fixed by attributes, the matrix is a constant,
 * found by asking the operation itself what it does to each unit vector. */
#include "grad/grad_int.h"

/* ---- indices ---- */

/* Wide enough for n different numbers; int32 only where it must be, since not every family casts to it. */
static val wide_index(adj *c, val ix, int64_t n)
{
    dtype t = graph_type(c->g, ix)->dt;
    int bits = dtype_bits(t) - (dtype_class(t) == KIND_INT);
    if (bits >= 31 || n <= (int64_t)1 << bits) return ix;
    return GA(c->g, CAST, VALS(ix), AT_S(DTYPE, n <= 1 << 15 ? "int16" : "int32"));
}

static val range_of(adj *c, dtype t, int64_t n, int64_t from, const shape *s)
{
    double *x = TAKE(c->tmp, double, (size_t)n);
    if (!x) {
        graph_fail(c->g, AN_NOMEM, "out of memory");
        return NO_VAL;
    }
    for (int64_t i = 0; i < n; i++) x[i] = (double)(from + i);
    return graph_const_f64(c->g, NULL, (ttype){ t, *s }, x);
}

static bool never_negative(const adj *c, val ix)
{
    if (dtype_class(graph_type(c->g, ix)->dt) == KIND_UINT) return true;
    const node *k = graph_const_of(c->g, ix);
    if (!k) return false;
    shape s = shape_at(c, ix);
    for (int64_t i = 0; i < count_of(&s); i++)
        if (graph_const_at(k, graph_type(c->g, ix), i) < 0) return false;
    return true;
}

/* v where ix names place i of n, 0 elsewhere; ix and the range (shape s, n elements) broadcast. A negative index
 * counts from the end: it is compared with the range shifted by n rather than changed. */
static val where_named(adj *c, val ix, int64_t n, const shape *s, val v)
{
    if (c->g->err.st) return NO_VAL;
    bool plain = never_negative(c, ix);
    ix = wide_index(c, ix, n);
    if (c->g->err.st) return NO_VAL;
    /* a processor compares floats many at a time, and has no objection to changing a negative one */
    if (c->o->scatter && n <= 1 << 24) {
        ix = GA(c->g, CAST, VALS(ix), AT_S(DTYPE, "fp32"));
        val zero = graph_scalar(c->g, DT_F32, 0), all = graph_scalar(c->g, DT_F32, (double)n);
        if (!plain) ix = choose(c, G(c->g, LESS, ix, zero), G(c->g, ADD, ix, all), ix);
        return choose(c, G(c->g, EQUAL, ix, range_of(c, DT_F32, n, 0, s)), v, num(c, 0));
    }
    dtype t = graph_type(c->g, ix)->dt;
    val none = num(c, 0);
    if (!plain) none = choose(c, G(c->g, EQUAL, ix, range_of(c, t, n, -n, s)), v, none);
    return choose(c, G(c->g, EQUAL, ix, range_of(c, t, n, 0, s)), v, none);
}

void vjp_gather(adj *c) /* x (batch, before, n, after), indices (batch, places), y (batch, before, places, after) */
{
    shape x = shape_at(c, c->n.in[0]), ix = shape_at(c, c->n.in[1]);
    int axis = at_axis(c, A_AXIS, x.rank), b = (int)at_i(c, A_BATCH_DIMS);
    int64_t batch = prod(x.d, 0, b), before = prod(x.d, b, axis), n = x.d[axis], after = prod(x.d, axis + 1, x.rank);
    int64_t places = prod(ix.d, b, ix.rank);
    if (c->o->scatter && batch == 1 && before == 1) {
        shape table = SHAPE(n, after), list = SHAPE(places), lines = SHAPE(places, after);
        val to = c->so_far[0]; /* a table that is read elsewhere as well, as a tied head does: no second one is made */
        c->joined[0] = to.i && shape_eq(&graph_type(c->g, to)->sh, &x);
        if (c->joined[0]) to = reshaped(c, to, &table);
        else to = GA(c->g, FILL_LIKE, VALS(reshaped(c, c->n.in[0], &table)), AT_F(VALUE, 0));
        val sum = GA(c->g, SCATTER, VALS(to, reshaped(c, c->n.in[1], &list), reshaped(c, dy_full(c), &lines)),
                     AT_I(AXIS, 0), AT_S(MODE, "add"));
        c->dx[0] = reshaped(c, sum, &x);
        return;
    }
    shape flat = SHAPE(batch, 1, places, 1), line = SHAPE(n), rows = SHAPE(batch, before, places, after);
    val hot = where_named(c, reshaped(c, c->n.in[1], &flat), n, &line, num(c, 1)); /* (batch, 1, places, n) */
    val d = GA(c->g, MATMUL, VALS(hot, reshaped(c, dy_full(c), &rows)), AT_B(TRANSPOSE_X, true));
    c->dx[0] = reshaped(c, d, &x);
}

/* Which of several updates of one place is the one that stayed: the last. Each writes its number, and finds it there
 * or not. */
static val stayed(adj *c, val ix, const shape *updates, int axis, int64_t n)
{
    shape s = shape_at(c, ix), list = SHAPE(count_of(&s)), mask = *updates;
    val order = range_of(c, DT_F32, list.d[0], 0, &list), flat = reshaped(c, ix, &list);
    val none = graph_fill_const(c->g, NULL, TTYPE(DT_F32, n), 0);
    val last = GA(c->g, SCATTER, VALS(none, flat, order), AT_I(AXIS, 0), AT_S(MODE, "update"));
    val mine = G(c->g, EQUAL, GA(c->g, GATHER, VALS(last, flat), AT_I(AXIS, 0)), order);
    for (int i = 0; i < mask.rank; i++)
        if (i < axis || i >= axis + s.rank) mask.d[i] = 1;
    return reshaped(c, mine, &mask);
}

void vjp_scatter(adj *c) /* data (before, n, after), indices (places), updates (before, places, after) */
{
    shape x = shape_at(c, c->n.in[0]), u = shape_at(c, c->n.in[2]);
    int axis = at_axis(c, A_AXIS, x.rank);
    bool update = !strcmp(at_s(c, A_MODE), "update");
    if (!update && strcmp(at_s(c, A_MODE), "add")) {
        broken(c, "unknown mode");
        return;
    }
    val dy = dy_full(c), ix = c->n.in[1];
    if (c->need[0] && !update) c->dx[0] = dy;
    if (c->need[0] && update) {
        val gone = GA(c->g, FILL_LIKE, VALS(c->n.in[2]), AT_F(VALUE, 0));
        c->dx[0] = GA(c->g, SCATTER, VALS(dy, ix, gone), AT_I(AXIS, axis), AT_S(MODE, "update"));
    }
    if (!c->need[2]) return;
    val back = GA(c->g, GATHER, VALS(dy, ix), AT_I(AXIS, axis));
    c->dx[2] = update ? only_if(c, stayed(c, ix, &u, axis, x.d[axis]), back) : back;
}

/* y[i][j][k] = x[i][ix[i][j][k]][k]: dy spread over a new axis of n, summed over j */
static val scatter_lines(adj *c, val ix, val dy, const shape *x, int axis)
{
    if (c->g->err.st) return NO_VAL;
    shape s = shape_at(c, ix);
    int64_t outer = prod(x->d, 0, axis), inner = prod(x->d, axis + 1, x->rank), n = x->d[axis];
    if (s.d[axis] == 1) { /* one per line: in x's own shape there is nothing to sum */
        shape along = { .rank = x->rank - axis };
        for (int i = 0; i < along.rank; i++) along.d[i] = i ? 1 : n;
        val d = where_named(c, ix, n, &along, dy);
        shape got = c->g->err.st ? *x : shape_at(c, d);
        return shape_eq(&got, x) ? d : reshaped(c, d, x);
    }
    shape apart = SHAPE(outer, s.d[axis], 1, inner), line = SHAPE(n, 1);
    val d = where_named(c, reshaped(c, ix, &apart), n, &line, reshaped(c, dy, &apart));
    return reshaped(c, sum_axes(c, d, 1u << 1), x);
}

void vjp_gather_along_axis(adj *c)
{
    shape x = shape_at(c, c->n.in[0]);
    c->dx[0] = scatter_lines(c, c->n.in[1], dy_full(c), &x, at_axis(c, A_AXIS, x.rank));
}

void vjp_topk(adj *c) /* the values' gradient goes to the positions; the positions have none */
{
    shape x = shape_at(c, c->n.in[0]);
    int axis = at_axis(c, A_AXIS, x.rank);
    val ix = graph_out(c->n.out, 1);
    if (c->n.n_out < 2) { /* asked for values only: sort once more, with positions */
        val again = GA(c->g, TOPK, VALS(c->n.in[0]), AT_I(K, c->y.d[axis]), AT_I(AXIS, axis),
                       AT_B(ASCENDING, at_b(c, A_ASCENDING)));
        ix = graph_out(again, 1);
    }
    c->dx[0] = scatter_lines(c, ix, dy_full(c), &x, axis);
}

/* indices (batch, places, K): one-hot rows of each of the K axes, multiplied out to one-hot rows of their product. */
void vjp_gather_nd(adj *c)
{
    shape x = shape_at(c, c->n.in[0]), ix = shape_at(c, c->n.in[1]);
    int b = (int)at_i(c, A_BATCH_DIMS), k = (int)ix.d[ix.rank - 1];
    int64_t batch = prod(x.d, 0, b), places = prod(ix.d, b, ix.rank - 1), after = prod(x.d, b + k, x.rank), n = 1;
    shape rows3 = SHAPE(batch, places, k), column = SHAPE(batch, places, 1);
    val ix3 = reshaped(c, c->n.in[1], &rows3), hot = NO_VAL;
    for (int i = 0; i < k; i++) {
        const int64_t begin[] = { 0, 0, i }, step[] = { 1, 1, 1 };
        shape line = SHAPE(x.d[b + i]);
        val one = where_named(c, cut_axes(c, ix3, begin, step, column.d), x.d[b + i], &line, num(c, 1));
        if (!i) hot = one;
        else {
            shape left = SHAPE(batch, places, n, 1), right = SHAPE(batch, places, 1, x.d[b + i]),
                  both = SHAPE(batch, places, n * x.d[b + i]);
            hot = reshaped(c, mul(c, reshaped(c, hot, &left), reshaped(c, one, &right)), &both);
        }
        n *= x.d[b + i];
    }
    shape rows = SHAPE(batch, places, after);
    c->dx[0] = reshaped(c, GA(c->g, MATMUL, VALS(hot, reshaped(c, dy_full(c), &rows)), AT_B(TRANSPOSE_X, true)), &x);
}

/* ---- linear maps along an axis, by their unit vectors ---- */

/* Apply the operation to n unit vectors laid out as `in` (n rows); out, n rows of `m`, is its transpose: dx = out
 * dy. */
static val back_matrix(adj *c, const attr *at, int n_at, shape in, int64_t n, int64_t m)
{
    double *x = TAKE(c->tmp, double, (size_t)(n * n));
    tensor64 t = { typed(c, in), x }, y = { 0 };
    int n_out = 0;
    diag d = { 0 };
    if (!x) return graph_fail(c->g, AN_NOMEM, "out of memory"), NO_VAL;
    for (int64_t i = 0; i < n; i++) x[i * n + i] = 1;
    if (graph_infer(c->n.op, &t.type, 1, at, n_at, &y.type, &n_out, 1, &d) ||
        graph_eval_op(c->n.op, at, n_at, &t, 1, &y, 1, c->tmp, &d))
        return graph_fail(c->g, d.st, "%s", d.msg), NO_VAL;
    if (count_of(&y.type.sh) != n * m) return broken(c, "its parts do not fit together"), NO_VAL;
    shape s = SHAPE(n, m);
    return graph_const_f64(c->g, NULL, typed(c, s), y.x);
}

void vjp_pad(adj *c)
{
    shape x = shape_at(c, c->n.in[0]);
    const attr *pad = at_p(c, A_PAD), *mode = at_p(c, A_MODE);
    int first = x.rank - pad->n / 2;
    val d = dy_full(c);
    if (!mode || !strcmp(mode->u.s, "constant")) {
        int64_t begin[MAX_RANK] = { 0 }, step[MAX_RANK];
        for (int i = 0; i < x.rank; i++) step[i] = 1, begin[i] = i < first ? 0 : pad->u.is[2 * (i - first)];
        c->dx[0] = cut_axes(c, d, begin, step, x.d);
        return;
    }
    for (int i = first; i < x.rank; i++) {
        const int64_t *p = pad->u.is + 2 * (i - first);
        if (!p[0] && !p[1]) continue;
        const attr at[] = { AT_LIST(PAD, p, 2), *mode };
        d = along_axis(c, d, i, back_matrix(c, at, 2, SHAPE(x.d[i], x.d[i]), x.d[i], c->y.d[i]), x.d[i]);
    }
    c->dx[0] = d;
}

/* The same operation on one axis, laid along the height of a one-pixel-wide image. */
static int one_axis(const adj *c, bool width, const int64_t *size, attr *at)
{
    int n = 0;
    const attr_id kept[] = { A_MODE, A_SAMPLING_MODE, A_ALIGN_CORNERS };
    for (size_t i = 0; i < COUNT(kept); i++)
        if (at_p(c, kept[i])) at[n++] = *at_p(c, kept[i]);
    switch (c->n.op) {
    case OP_RESIZE: at[n++] = AT_LIST(SHAPE, size, 2); break;
    case OP_RESIZE_BILINEAR:
    case OP_RESIZE_NEAREST: at[n++] = AT_I(TARGET_SIZE_HEIGHT, size[0]); break;
    default: at[n++] = AT_F(SCALE_FACTOR_HEIGHT, at_f(c, width ? A_SCALE_FACTOR_WIDTH : A_SCALE_FACTOR_HEIGHT)); break;
    }
    return n;
}

void vjp_resize(adj *c) /* separable and linear in x: one matrix per axis that is sampled */
{
    shape x = shape_at(c, c->n.in[0]);
    val d = dy_full(c);
    for (int i = 0; i < x.rank; i++) {
        if (i < x.rank - 2 && x.d[i] == c->y.d[i]) continue;
        const int64_t size[2] = { c->y.d[i], 1 };
        attr at[4];
        int n = one_axis(c, i == x.rank - 1, size, at);
        d = along_axis(c, d, i, back_matrix(c, at, n, SHAPE(x.d[i], x.d[i], 1), x.d[i], c->y.d[i]), x.d[i]);
    }
    c->dx[0] = d;
}
