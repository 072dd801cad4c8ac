/* Whole graphs: what graph_eval computes, skips, and refuses. */
#include "eval_t.h"

static graph *fresh(void)
{
    graph *g = graph_new("t", 0);
    assert_non_null(g);
    return g;
}

static void a_graph_is_computed(void **state)
{
    (void)state;
    graph *g = fresh();
    val x = graph_input(g, "x", TTYPE(DT_F16, 1, 4)), y = graph_input(g, "y", TTYPE(DT_F16, 2));
    val w = graph_const_f64(g, "w", TTYPE(DT_F16, 3, 2), (const double[]){ 1, 0, 0, 1, 0.1, 0.1 });
    val halves = GA(g, SPLIT, VALS(x), AT_I(NUM_SPLITS, 2), AT_I(AXIS, 1));
    val s = G(g, ADD, halves, G(g, MUL, graph_out(halves, 1), y));
    graph_output(g, "lin", G(g, LINEAR, s, w));
    graph_output(g, "tail", graph_out(halves, 1));
    diag d = { 0 };
    assert_ok(graph_finish(g, &d), d);
    arena a = { 0 };
    tensor64 in[2] = { { TTYPE(DT_F16, 1, 4), (double[]){ 1, 2, 3, 4 } },
                       { TTYPE(DT_F16, 2), (double[]){ 10, 0.001 } } },
             out[2];
    assert_ok(graph_eval(g, in, out, &a, &d), d);
    assert_true(out[0].type.sh.rank == 2 && out[0].type.sh.d[1] == 3 && out[0].type.dt == DT_F16);
    double tenth = f16_to_f64(f16_from_f64(0.1)); /* the constant was stored in fp16; nothing after it rounds */
    assert_true(out[0].x[0] == 31 && ev_close(out[0].x[1], 2.004) && ev_close(out[0].x[2], tenth * 33.004));
    assert_true(out[1].x[0] == 3 && out[1].x[1] == 4);
    arena_free(&a);
    graph_free(g);
}

/* A weight bound later, or an op outside the table, is only missed where it is used. */
static void missing_values_are_named(void **state)
{
    (void)state;
    graph *g = fresh();
    ttype t = TTYPE(DT_F32, 2);
    val x = graph_input(g, "x", t), w = graph_const_blob(g, "w_later", t, "@model_path/weights/weight.bin", 64, NULL);
    val sum = G(g, ADD, x, w), odd = graph_opaque(g, "odd", "some_op", &x, 1, &t, 1);
    graph_output(g, "z", G(g, SQUARE, x));
    diag d = { 0 };
    arena a = { 0 };
    tensor64 in = { t, (double[]){ 1, 2 } }, out[3];
    assert_ok(graph_eval(g, &in, out, &a, &d), d);
    assert_true(out[0].x[1] == 4);
    graph_output(g, "o", odd);
    assert_int_equal(graph_eval(g, &in, out, &a, &d), AN_INPUT);
    assert_string_equal(d.msg, "some_op odd: an operation outside the table cannot be evaluated");
    g->outputs.n = 1;
    graph_output(g, "s", sum);
    d = (diag){ 0 };
    assert_int_equal(graph_eval(g, &in, out, &a, &d), AN_INPUT);
    assert_string_equal(d.msg, "constant w_later has no data here");
    arena_free(&a);
    graph_free(g);
}

static void a_broken_graph_reports_its_first_error(void **state)
{
    (void)state;
    graph *g = fresh();
    val x = graph_input(g, "x", TTYPE(DT_F32, 2));
    graph_output(g, "z", G(g, ADD, x, graph_input(g, "y", TTYPE(DT_F32, 3))));
    diag d = { 0 };
    arena a = { 0 };
    tensor64 in[2] = { { TTYPE(DT_F32, 2), (double[2]){ 0 } }, { TTYPE(DT_F32, 3), (double[3]){ 0 } } }, out;
    assert_int_equal(graph_eval(g, in, &out, &a, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "do not broadcast"));
    arena_free(&a);
    graph_free(g);
}

static void inputs_must_fit(void **state)
{
    (void)state;
    graph *g = fresh();
    val x = graph_input(g, "tokens", TTYPE(DT_F32, 2, 3));
    graph_output(g, "z", G(g, ABS, x));
    diag d = { 0 };
    arena a = { 0 };
    tensor64 in = { TTYPE(DT_F32, 3, 2), (double[6]){ 0 } }, out;
    assert_int_equal(graph_eval(g, &in, &out, &a, &d), AN_INPUT);
    assert_string_equal(d.msg, "input tokens: expected shape [2, 3], got [3, 2]");
    arena_free(&a);
    graph_free(g);
}

static void unknown_sizes_are_refused(void **state)
{
    (void)state;
    graph *g = fresh();
    graph_output(
        g, "z",
        graph_op_named(g, "act", OP_ABS, (val[]){ graph_input(g, "x", TTYPE(DT_F32, DIM_UNKNOWN, 3)) }, 1, NULL, 0));
    diag d = { 0 };
    assert_ok(graph_finish(g, &d), d);
    arena a = { 0 };
    tensor64 in = { TTYPE(DT_F32, DIM_UNKNOWN, 3), (double[3]){ 0 } }, out;
    assert_int_equal(graph_eval(g, &in, &out, &a, &d), AN_INPUT);
    assert_string_equal(d.msg, "abs act: shape [?, 3] is not known or too large to evaluate");
    arena_free(&a);
    graph_free(g);
}

/* Messages carry the node's name and where it came from. */
static void failures_point_at_the_node(void **state)
{
    (void)state;
    graph *g = fresh();
    val x = graph_input(g, "x", TTYPE(DT_F32, 3)), i = graph_input(g, "i", TTYPE(DT_I32, 1));
    g->here = (loc){ .line = 7, .col = 3, .off = 99 };
    graph_output(g, "z", graph_op_named(g, "pick", OP_GATHER, (val[]){ x, i }, 2, NULL, 0));
    diag d = { 0 };
    arena a = { 0 };
    tensor64 in[2] = { { TTYPE(DT_F32, 3), (double[]){ 1, 2, 3 } }, { TTYPE(DT_I32, 1), (double[]){ 5 } } }, out;
    assert_int_equal(graph_eval(g, in, &out, &a, &d), AN_INPUT);
    assert_string_equal(d.msg, "gather pick: index 5 is outside an extent of 3");
    assert_int_equal(d.at.line, 7);
    arena_free(&a);
    graph_free(g);
}

/* Wherever memory ends, the answer is a result or "no memory". */
static void memory_may_end_anywhere(void **state)
{
    (void)state;
    graph *g = fresh();
    val x = graph_input(g, "x", TTYPE(DT_F32, 1, 4, 1, 6));
    val w = graph_fill_const(g, "w", TTYPE(DT_F32, 8, 4, 1, 1), 0.25);
    val h = G(g, CONV, x, w);
    val q = GA(g, RESHAPE, VALS(h), AT_IS(SHAPE, 1, 8, 6));
    val att = G(g, SDPA, q, q, q);
    val n = GA(g, LAYER_NORM, VALS(att, NO_VAL, NO_VAL), AT_IS(AXES, -1));
    val top = GA(g, TOPK, VALS(n), AT_I(K, 2));
    val e = GA(g, EINSUM, VALS(n, n), AT_S(EQUATION, "abc,adc->abd"));
    graph_output(g, "top", top);
    graph_output(g, "big", GA(g, RESIZE_BILINEAR, VALS(e), AT_I(TARGET_SIZE_HEIGHT, 3), AT_I(TARGET_SIZE_WIDTH, 3)));
    diag d = { 0 };
    assert_ok(graph_finish(g, &d), d);
    double data[24];
    for (int i = 0; i < 24; i++) data[i] = sin(i);
    tensor64 in = { TTYPE(DT_F32, 1, 4, 1, 6), data }, out[2];
    arena a = { 0 };
    assert_ok(graph_eval(g, &in, out, &a, &d), d);
    size_t need = a.used + 4096;
    arena_free(&a);
    bool done = false;
    for (size_t limit = 1; limit < need && !done; limit += 61) {
        arena small = { .limit = limit };
        d = (diag){ 0 };
        an_status st = graph_eval(g, &in, out, &small, &d);
        if (st != AN_OK && st != AN_NOMEM) fail_msg("limit %zu: %s", limit, d.msg);
        done = st == AN_OK;
        arena_free(&small);
    }
    assert_true(done);
    graph_free(g);
}

/* The sizes model tests use must stay quick. The bound is loose: it catches a wrong loop order, not a slow machine. */
static void large_products_are_quick(void **state)
{
    (void)state;
    arena a = { 0 };
    rng r = { 5 };
    tensor64 in[2] = { ev_random(&a, &r, SHAPE(1, 768, 1, 64)), ev_random(&a, &r, SHAPE(768, 768, 1, 1)) };
    uint64_t t0 = clock_ns();
    tensor64 y = ev_one(&a, OP_CONV, "", in, 2);
    uint64_t t1 = clock_ns();
    tensor64 m[2] = { { TTYPE(DT_F32, 768, 768), in[1].x }, { TTYPE(DT_F32, 768, 64), in[0].x } };
    tensor64 z = ev_one(&a, OP_MATMUL, "", m, 2);
    uint64_t t2 = clock_ns();
    tensor64 e = ev_one(&a, OP_EINSUM, "equation=ab,bc->ac", m, 2);
    uint64_t t3 = clock_ns();
    print_message("768x768x64: conv %.1f ms, matmul %.1f ms, einsum %.1f ms\n", (double)(t1 - t0) * 1e-6,
                  (double)(t2 - t1) * 1e-6, (double)(t3 - t2) * 1e-6);
    for (int64_t i = 0; i < 768 * 64; i++) assert_true(ev_close(y.x[i], z.x[i]) && ev_close(e.x[i], z.x[i]));
    assert_true(t3 - t0 < 10000000000u);
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_graph_is_computed),        cmocka_unit_test(missing_values_are_named),
        cmocka_unit_test(a_broken_graph_reports_its_first_error),
        cmocka_unit_test(inputs_must_fit),            cmocka_unit_test(unknown_sizes_are_refused),
        cmocka_unit_test(failures_point_at_the_node), cmocka_unit_test(memory_may_end_anywhere),
        cmocka_unit_test(large_products_are_quick),
    };
    return cmocka_run_group_tests_name("eval_graph", tests, NULL, NULL);
}
