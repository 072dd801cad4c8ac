/* Gradients of random graphs: along a random direction, the slope of the loss is the gradient's dot product with it.
 * Broadcasts, odd shapes, values used many times, inputs that are not used, reshapes in between, window geometries,
 * slices.
 *
 * Graphs are in fp64 (randgraph's are converted), so nothing rounds. Where two step sizes disagree, the loss has a
 * corner inside the step and the quotient says nothing: such cases are counted, and must stay rare. */
#include "grad_t.h"
#include "randgraph.h"

/* Every fp16 and fp32 value of the graph becomes fp64: types, constants, casts. */
static void widen_types(graph *g)
{
    for (size_t i = 1; i < g->nodes.n; i++) {
        node *n = &g->nodes.at[i];
        if (n->op == OP_CONST && dtype_is_float(graph_type(g, n->out)->dt)) {
            const ttype *t = graph_type(g, n->out);
            double *x = TAKE(&g->mem, double, (size_t)elems(t) + 1);
            assert_non_null(x);
            for (int64_t k = 0; k < elems(t); k++) x[k] = dtype_load(t->dt, n->cst->data, k);
            n->cst->data = x;
        }
        for (int k = 0; k < n->n_attr; k++)
            if (n->attrs[k].id == A_DTYPE && !strncmp(n->attrs[k].u.s, "fp", 2)) n->attrs[k].u.s = "fp64";
        /* the builder left room for all */
        if (n->op == OP_FILL && !attr_get(n->attrs, n->n_attr, A_DTYPE)) n->attrs[n->n_attr++] = AT_S(DTYPE, "fp64");
    }
    for (size_t i = 1; i < g->values.n; i++)
        if (dtype_is_float(g->values.at[i].type.dt)) g->values.at[i].type.dt = DT_F64;
}

typedef struct {
    int cases, corners, refused, unused;
} tally;

static double at_distance(const graph *f, const tensor64 *in, tensor64 *moved, const double *const *way, double h)
{
    double y;
    for (size_t i = 0; i < f->inputs.n; i++)
        for (int64_t k = 0; k < elems(&in[i].type); k++) moved[i].x[k] = in[i].x[k] + h * way[i][k];
    return loss_value(f, moved, &y);
}

/* Differentiates loss by every input and compares along one direction. */
static void check_direction(graph *g, val loss, rng *r, double lo, double hi, const grad_options *with, tally *t,
                            const char *what)
{
    enum { MAX_IN = 16 };
    val wrt[MAX_IN] = { NO_VAL }, dx[MAX_IN] = { NO_VAL };
    bool reached[MAX_IN] = { false };
    grad_info info = { .reached = reached };
    grad_options o = with ? *with : (grad_options){ 0 };
    o.zeros_when_unreached = true, o.info = &info;
    diag d = { 0 };
    size_t n = g->inputs.n;
    assert_true(n <= MAX_IN);
    for (size_t i = 0; i < n; i++) wrt[i] = g->inputs.at[i];
    graph f = *g;
    port only = { "loss", loss };
    f.outputs.at = &only, f.outputs.n = 1;
    t->cases++;
    an_status st = grad_build(g, loss, wrt, (int)n, dx, &o, &d);
    if (st == AN_UNSUPPORTED) {
        t->refused++;
        return;
    }
    if (st) fail_msg("%s: status %d: %s", what, (int)st, d.msg);
    arena mem = { 0 };
    tensor64 in[MAX_IN], moved[MAX_IN], out[MAX_IN];
    const double *way[MAX_IN];
    g->outputs.n = 0;
    for (size_t i = 0; i < n; i++) {
        char name[40];
        snprintf(name, sizeof name, "gradient%zu", i);
        graph_output(g, name, dx[i]);
        in[i].type = moved[i].type = *graph_type(g, wrt[i]);
        in[i].x = spaced(&mem, r, elems(&in[i].type), lo, hi);
        way[i] = spaced(&mem, r, elems(&in[i].type), -1, 1);
        moved[i].x = TAKE(&mem, double, (size_t)elems(&in[i].type) + 1);
        assert_non_null(moved[i].x);
    }
    if (graph_finish(g, &d) || graph_eval(g, in, out, &mem, &d)) fail_msg("%s: %s", what, d.msg);
    double dot = 0, size = 1e-6;
    for (size_t i = 0; i < n; i++) {
        t->unused += !reached[i];
        if (!shape_eq(&out[i].type.sh, &in[i].type.sh)) fail_msg("%s: gradient %zu has another shape", what, i);
        for (int64_t k = 0; k < elems(&in[i].type); k++) {
            if (!reached[i] && out[i].x[k] != 0) fail_msg("%s: input %zu is not used and has a gradient", what, i);
            dot += out[i].x[k] * way[i][k], size += fabs(out[i].x[k] * way[i][k]);
        }
    }
    double slope[2], mid = at_distance(&f, in, moved, way, 0), h = 4e-6;
    for (int k = 0; k < 2; k++) {
        double hk = h / (1 << k);
        slope[k] = (at_distance(&f, in, moved, way, hk) - at_distance(&f, in, moved, way, -hk)) / (2 * hk);
    }
    double noise = 1e-15 * fabs(mid) / h + 1e-6 * size, apart = fabs(slope[0] - slope[1]);
    if (fabs(slope[1] - dot) > 10 * noise) {
        /* a corner inside the step also shows as different slopes to the left and to the right */
        double right = (at_distance(&f, in, moved, way, h) - mid) / h,
               left = (mid - at_distance(&f, in, moved, way, -h)) / h;
        bool corner = apart > 5 * noise || fabs(right - left) > 1e-3 * (fabs(right) + fabs(left));
        if (!corner) {
            strbuf b = { 0 };
            graph_print(&f, &b);
            print_message("%s\n", b.at ? b.at : "");
            fail_msg("%s: slope %.12g, gradient gives %.12g (size %.3g, step halves differ by %.3g)", what, slope[1],
                     dot, size, apart);
        }
        t->corners++;
    }
    arena_free(&mem);
}

static val sum_of_outputs(graph *g, rng *r)
{
    val sum = NO_VAL;
    for (size_t i = 0; i < g->outputs.n; i++) {
        val v = g->outputs.at[i].v;
        if (!dtype_is_float(graph_type(g, v)->dt)) continue;
        v = weighed(g, r, v);
        sum = sum.i ? G(g, ADD, sum, v) : v;
    }
    return sum;
}

static void random_graphs(void **state)
{
    (void)state;
    uint64_t seed = test_seed("gradients of random graphs");
    tally t = { 0 };
    for (int i = 0; i < 300; i++) {
        rng r = { seed + (uint64_t)i * 7919 };
        graph *g = rg_graph(&r, &(rg_options){ .n_ops = 4 + i % 20, .smooth = i % 3 != 0, .fused = i % 2 == 0 });
        char what[40];
        snprintf(what, sizeof what, "random graph %d", i);
        assert_non_null(g);
        widen_types(g);
        val loss = sum_of_outputs(g, &r);
        if (loss.i) check_direction(g, loss, &r, -2, 2, NULL, &t, what);
        graph_free(g);
    }
    print_message("    %d graphs, %d through a corner, %d refused, %d unused inputs\n", t.cases, t.corners, t.refused,
                  t.unused);
    assert_true(t.cases > 250 && t.corners * 10 < t.cases && t.refused * 3 < t.cases && t.unused > 0);
}

static shape cut_shape(rng *r, const shape *s) /* something that broadcasts to s */
{
    int skip = (int)rng_below(r, (uint64_t)s->rank + 1);
    shape o = shape_of(s->d + skip, s->rank - skip);
    for (int i = 0; i < o.rank; i++)
        if (rng_below(r, 3) == 0) o.d[i] = 1;
    return o;
}

static void random_broadcasts(void **state)
{
    (void)state;
    static const op_id ops[] = { OP_ADD, OP_SUB, OP_MUL, OP_REAL_DIV, OP_POW, OP_MAXIMUM, OP_MINIMUM };
    rng r = { test_seed("gradients under broadcasting") };
    tally t = { 0 };
    for (int i = 0; i < 200; i++) {
        graph *g = graph_new("t", 0);
        shape s = { .rank = 1 + (int)rng_below(&r, 5) };
        for (int k = 0; k < s.rank; k++) s.d[k] = 1 + (int64_t)rng_below(&r, 4);
        val a = graph_input(g, "a", (ttype){ DT_F64, cut_shape(&r, &s) }),
            b = graph_input(g, "b", (ttype){ DT_F64, cut_shape(&r, &s) });
        const val two[] = { a, b };
        val y = graph_op(g, ops[rng_below(&r, COUNT(ops))], two, 2, NULL, 0);
        /* a third operand meets the result, and the first one once more */
        val c = graph_input(g, "c", (ttype){ DT_F64, cut_shape(&r, &s) });
        y = G(g, SELECT, G(g, GREATER, y, c), G(g, MUL, y, c), G(g, ADD, y, a));
        char what[40];
        snprintf(what, sizeof what, "broadcast %d", i);
        check_direction(g, weighed(g, &r, y), &r, 0.5, 2.5, NULL, &t, what);
        graph_free(g);
    }
    assert_true(t.corners * 10 < t.cases && t.refused == 0);
}

/* x many times, each in another shape, all meeting again. */
static void repeated_uses(void **state)
{
    (void)state;
    rng r = { test_seed("gradients of repeated uses") };
    tally t = { 0 };
    for (int i = 0; i < 100; i++) {
        graph *g = graph_new("t", 0);
        int64_t a = 1 + (int64_t)rng_below(&r, 5), b = 1 + (int64_t)rng_below(&r, 5), c = 1 + (int64_t)rng_below(&r, 3);
        val x = graph_input(g, "x", TTYPE(DT_F64, a, b, c)), spare = graph_input(g, "spare", TTYPE(DT_F64, 3));
        val sum = G(g, MUL, x, x);
        for (int k = 0, n = 1 + (int)rng_below(&r, 6); k < n; k++) {
            val v = rng_below(&r, 2) ? x : sum;
            switch (rng_below(&r, 6)) {
            case 0:
                v = GA(g, RESHAPE, VALS(GA(g, RESHAPE, VALS(v), AT_IS(SHAPE, c, -1))), AT_IS(SHAPE, a, b, c));
                break;
            case 1:
                v = GA(g, TRANSPOSE, VALS(G(g, TANH, GA(g, TRANSPOSE, VALS(v), AT_IS(PERM, 2, 0, 1)))),
                       AT_IS(PERM, 1, 2, 0));
                break;
            case 2:
                v = GA(g, SLICE_BY_SIZE, VALS(GA(g, CONCAT, VALS(x, v), AT_I(AXIS, 1))), AT_IS(BEGIN, 0, b / 2, 0),
                       AT_IS(SIZE, a, b, c));
                break;
            case 3: v = G(g, ADD, v, GA(g, REDUCE_MEAN, VALS(v), AT_IS(AXES, 0, 2), AT_B(KEEP_DIMS, true))); break;
            case 4: v = G(g, SIN, v); break;
            default: v = GA(g, REVERSE, VALS(v), AT_IS(AXES, 0)); break;
            }
            sum = G(g, ADD, G(g, SIGMOID, sum), v);
        }
        if (rng_below(&r, 2)) sum = G(g, ADD, sum, G(g, REDUCE_SUM, spare));
        char what[40];
        snprintf(what, sizeof what, "repeated uses %d", i);
        check_direction(g, weighed(g, &r, sum), &r, -2, 2, NULL, &t, what);
        graph_free(g);
    }
    assert_true(t.corners * 10 < t.cases && t.refused == 0 && t.unused > 0);
}

static void random_windows(void **state)
{
    (void)state;
    static const char *const pads[] = { "valid", "same", "same_lower", "custom" };
    rng r = { test_seed("gradients of windows") };
    tally t = { 0 };
    int built = 0;
    for (int i = 0; i < 400 && built < 150; i++) {
        graph *g = graph_new("t", 0);
        int64_t groups = 1 + (int64_t)rng_below(&r, 2), n = 1 + (int64_t)rng_below(&r, 2),
                h = 1 + (int64_t)rng_below(&r, 8), w = 1 + (int64_t)rng_below(&r, 8);
        int64_t ci = groups * (1 + (int64_t)rng_below(&r, 2)), co = 1 + (int64_t)rng_below(&r, 2);
        int64_t k[2], s[2], dil[2], pad[4];
        for (int j = 0; j < 2; j++)
            k[j] = 1 + (int64_t)rng_below(&r, 3), s[j] = 1 + (int64_t)rng_below(&r, 3),
            dil[j] = 1 + (int64_t)rng_below(&r, 2);
        int kind = (int)rng_below(&r, 5);
        for (int j = 0; j < 4; j++) pad[j] = (int64_t)rng_below(&r, kind >= 2 ? (uint64_t)k[j / 2] : 3);
        const char *type = pads[rng_below(&r, kind == 1 ? 2 : 4)];
        val x = graph_input(g, "x", TTYPE(DT_F64, n, ci, h, w)), y;
        if (kind == 0) {
            val f = graph_input(g, "w", TTYPE(DT_F64, groups * co, ci / groups, k[0], k[1]));
            y = GA(g, CONV, VALS(x, f), AT_LIST(STRIDES, s, 2), AT_LIST(DILATIONS, dil, 2), AT_I(GROUPS, groups),
                   AT_S(PAD_TYPE, type), AT_LIST(PAD, pad, 4));
        } else if (kind == 1) {
            val f = graph_input(g, "w", TTYPE(DT_F64, ci, co, k[0], k[1]));
            y = GA(g, CONV_TRANSPOSE, VALS(x, f), AT_LIST(STRIDES, s, 2), AT_LIST(DILATIONS, dil, 2),
                   AT_I(GROUPS, groups), AT_S(PAD_TYPE, type));
        } else if (kind == 2) {
            y = GA(g, AVG_POOL, VALS(x), AT_LIST(KERNEL_SIZES, k, 2), AT_LIST(STRIDES, s, 2), AT_S(PAD_TYPE, type),
                   AT_LIST(PAD, pad, 4), AT_B(EXCLUDE_PADDING, rng_below(&r, 2)),
                   AT_B(CEIL_MODE, type[0] != 's' && rng_below(&r, 2)));
        } else {
            const attr at[] = { AT_LIST(KERNEL_SIZES, k, 2), AT_LIST(STRIDES, s, 2), AT_S(PAD_TYPE, type),
                                AT_LIST(PAD, pad, 4), AT_B(CEIL_MODE, type[0] != 's' && rng_below(&r, 2)) };
            y = graph_op(g, kind == 3 ? OP_MAX_POOL : OP_L2_POOL, &x, 1, at, 5);
        }
        if (!g->err.st) {
            char what[40];
            snprintf(what, sizeof what, "window %d", i);
            built++;
            check_direction(g, weighed(g, &r, y), &r, -2, 2,
                            &(grad_options){ .conv_weight = (grad_conv_form)rng_below(&r, 3) }, &t, what);
        }
        graph_free(g);
    }
    assert_true(built == 150 && t.corners * 10 < t.cases && t.refused == 0);
}

static void random_slices(void **state)
{
    (void)state;
    rng r = { test_seed("gradients of slices") };
    tally t = { 0 };
    int built = 0;
    for (int i = 0; i < 800 && built < 150; i++) {
        graph *g = graph_new("t", 0);
        int rank = 1 + (int)rng_below(&r, 4);
        shape s = { .rank = rank };
        int64_t b[MAX_RANK], e[MAX_RANK], st[MAX_RANK], mb[MAX_RANK], me[MAX_RANK], sq[MAX_RANK];
        for (int k = 0; k < rank; k++) {
            s.d[k] = 1 + (int64_t)rng_below(&r, 6);
            b[k] = (int64_t)rng_below(&r, 12) - 6, e[k] = (int64_t)rng_below(&r, 12) - 6;
            st[k] = (int64_t)rng_below(&r, 6) - 3;
            if (st[k] >= 0) st[k]++;
            mb[k] = rng_below(&r, 2) == 0, me[k] = rng_below(&r, 2) == 0, sq[k] = rng_below(&r, 6) == 0;
        }
        const attr at[] = {
            AT_LIST(BEGIN, b, rank),       AT_LIST(END, e, rank),       AT_LIST(STRIDE, st, rank),
            AT_LIST(BEGIN_MASK, mb, rank), AT_LIST(END_MASK, me, rank), AT_LIST(SQUEEZE_MASK, sq, rank)
        };
        val x = graph_input(g, "x", (ttype){ DT_F64, s }), y = graph_op(g, OP_SLICE_BY_INDEX, &x, 1, at, 6);
        if (!g->err.st) {
            char what[40];
            snprintf(what, sizeof what, "slice %d", i);
            built++;
            val u = graph_input(g, "u", *graph_type(g, y));
            const val two[] = { x, u };
            val z = graph_op(g, OP_SLICE_UPDATE, two, 2, at, 6);
            val loss = G(g, ADD, weighed(g, &r, G(g, SQUARE, y)), weighed(g, &r, G(g, SQUARE, z)));
            check_direction(g, loss, &r, -2, 2, NULL, &t, what);
        }
        graph_free(g);
    }
    assert_true(built == 150 && t.corners == 0 && t.refused == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_graphs), cmocka_unit_test(random_broadcasts), cmocka_unit_test(repeated_uses),
        cmocka_unit_test(random_windows), cmocka_unit_test(random_slices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
