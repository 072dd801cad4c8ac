/* graph: the builder's sticky error, names, rewriting, the verifier, and running out of memory at any byte. */
#include <math.h>

#include "t.h"
#include "graph/graph.h"

static const ttype T4 = { DT_F16, { 4, { 1, 8, 1, 16 } } };

/* x, y -> relu(x * 2 + y), with one value used twice */
static graph *sample(size_t limit)
{
    graph *g = graph_new("sample", limit);
    if (!g) return NULL;
    val x = graph_input(g, "x", T4), y = graph_input(g, "y", T4);
    val m = G(g, MUL, x, graph_scalar(g, DT_F16, 2.0));
    val s = graph_op_named(g, "sum", OP_ADD, VALS(m, y), NULL, 0);
    val r = G(g, RELU, s);
    val red = GA(g, REDUCE_SUM, VALS(r), AT_IS(AXES, 1), AT_B(KEEP_DIMS, true));
    graph_output(g, "out", G(g, SUB, r, red));
    return g;
}

static void builder_infers_and_finishes(void **state)
{
    (void)state;
    diag d = { 0 };
    graph *g = sample(0);
    assert_ok(graph_finish(g, &d), d);
    assert_int_equal(g->inputs.n, 2);
    val s = graph_find(g, "sum");
    assert_true(s.i && graph_maker(g, s)->op == OP_ADD && shape_eq(&graph_type(g, s)->sh, &T4.sh));
    uint32_t uses[64];
    assert_true(g->values.n <= COUNT(uses));
    graph_uses(g, uses);
    assert_int_equal(uses[graph_maker(g, g->outputs.at[0].v)->in[0].i], 2); /* relu's result: reduce and sub */
    graph_free(g);
}

static void first_error_sticks(void **state)
{
    (void)state;
    diag d = { 0 };
    graph *g = graph_new("bad", 0);
    val x = graph_input(g, "x", T4), w = graph_input(g, "w", TTYPE(DT_F16, 3, 5));
    val a = G(g, ADD, x, w);
    assert_int_equal(a.i, 0);
    assert_int_equal(G(g, RELU, a).i, 0);
    graph_output(g, "y", a);
    assert_int_equal(graph_finish(g, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "add")); /* the cause, not its echoes */
    assert_non_null(strstr(d.msg, "8"));
    graph_free(g);

    static const struct {
        const char *want;
        int which;
    } rows[] = { { "already used", 0 }, { "no attribute", 1 }, { "missing", 2 },        { "at most", 3 },
                 { "given twice", 4 },  { "two outputs", 5 },  { "returns nothing", 6 } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        g = graph_new("bad", 0);
        x = graph_input(g, "x", T4);
        d = (diag){ 0 };
        switch (rows[i].which) {
        case 0: graph_input(g, "x", T4); break;
        case 1: GA(g, RELU, VALS(x), AT_I(AXIS, 1)); break;
        case 2: GA(g, TRANSPOSE, VALS(x), AT_I(PERM, 1)); graph_op(g, OP_ADD, VALS(x, NO_VAL), NULL, 0); break;
        case 3: graph_op(g, OP_RELU, VALS(x, x), NULL, 0); break;
        case 4: GA(g, SOFTMAX, VALS(x), AT_I(AXIS, 1), AT_I(AXIS, 2)); break;
        case 5: graph_output(g, "y", x), graph_output(g, "y", x); break;
        default: break;
        }
        assert_int_not_equal(graph_finish(g, &d), AN_OK);
        if (rows[i].which != 2 && !strstr(d.msg, rows[i].want)) fail_msg("row %zu: %s", i, d.msg);
        graph_free(g);
    }
}

static void attributes_are_canonical(void **state)
{
    (void)state;
    graph *g = graph_new("attrs", 0);
    val x = graph_input(g, "x", T4);
    val a = GA(g, SOFTMAX, VALS(x), AT_I(AXIS, -1)), b = G(g, SOFTMAX, x);
    assert_int_equal(graph_maker(g, a)->n_attr, 0); /* equal to the default, so left out */
    assert_int_equal(graph_maker(g, b)->n_attr, 0);
    val c = GA(g, CLIP, VALS(x), AT_I(BETA, 6), AT_F(ALPHA, 0)); /* any order, ints for floats */
    assert_int_equal(graph_maker(g, c)->attrs[0].id, A_ALPHA);
    assert_true(graph_maker(g, c)->attrs[1].u.f == 6.0);
    val even = GA(g, FILL_LIKE, VALS(x), AT_F(VALUE, 0)), odd = GA(g, FILL_LIKE, VALS(x), AT_F(VALUE, -0.0));
    assert_int_equal(graph_maker(g, even)->n_attr, 0);
    assert_int_equal(graph_maker(g, odd)->n_attr, 1); /* one over it is another number */
    graph_free(g);
}

/* 1 / pad(x) and x / fill_like: a zero that is asked for with its sign has it. */
static void zeros_have_their_sign(void **state)
{
    (void)state;
    for (int minus = 0; minus < 2; minus++) {
        diag d = { 0 };
        arena mem = { 0 };
        graph *g = graph_new("zeros", 0);
        const double zero = minus ? -0.0 : 0.0, want = minus ? -INFINITY : INFINITY;
        val x = graph_input(g, "x", (ttype){ DT_F32, SHAPE(2) }), one = graph_scalar(g, DT_F32, 1);
        graph_output(g, "p", G(g, REAL_DIV, one, GA(g, PAD, VALS(x), AT_IS(PAD, 1, 1), AT_F(CONSTANT_VAL, zero))));
        graph_output(g, "f", G(g, REAL_DIV, x, GA(g, FILL_LIKE, VALS(x), AT_F(VALUE, zero))));
        assert_ok(graph_finish(g, &d), d);
        tensor64 in = { .type = *graph_type(g, x), .x = (double[]){ 1, 1 } }, out[2] = { { .x = NULL } };
        assert_ok(graph_eval(g, &in, out, &mem, &d), d);
        assert_true(out[0].x[0] == want && out[0].x[1] == 1 && out[0].x[3] == want);
        assert_true(out[1].x[0] == want && out[1].x[1] == want);
        arena_free(&mem);
        graph_free(g);
    }
}

static void a_name_given_up_is_free_again(void **state)
{
    (void)state;
    diag d = { 0 };
    graph *g = graph_new("names", 0);
    val x = graph_input(g, "x", T4);
    val s = graph_op_named(g, "a", OP_SPLIT, VALS(x), (const attr[]){ AT_I(NUM_SPLITS, 2), AT_I(AXIS, 1) }, 2);
    assert_int_equal(graph_find(g, "a_1").i, graph_out(s, 1).i); /* made up for the second result */
    graph_rename(g, graph_out(s, 1), "b");
    assert_int_equal(graph_find(g, "a_1").i, 0);
    val y = graph_op_named(g, "a_1", OP_RELU, VALS(s), NULL, 0);
    assert_int_equal(graph_find(g, "a_1").i, y.i);
    graph_output(g, "y", y);
    graph_output(g, "b", graph_find(g, "b"));
    assert_ok(graph_finish(g, &d), d);
    graph_rename(g, y, "b");
    assert_int_equal(graph_finish(g, &d), AN_INPUT);
    graph_free(g);
}

static void a_rewrite_that_copies_changes_nothing(void **state)
{
    (void)state;
    diag d = { 0 };
    graph *g = sample(0), *twin = sample(0);
    for (int round = 0; round < 3; round++) {
        rewrite rw;
        assert_int_equal(graph_rewrite_begin(g, &rw), AN_OK);
        for (uint32_t i = 1; i < rw.n_nodes; i++) graph_rewrite_copy(g, &rw, i);
        assert_int_equal(graph_rewrite_end(g, &rw), AN_OK);
        assert_ok(graph_verify(g, "copy", &d), d);
    }
    strbuf why = { 0 };
    if (!graph_same(g, twin, &why)) fail_msg("%s", why.at);
    sb_free(&why);
    graph_free(g);
    graph_free(twin);
}

static void the_verifier_sees_damage(void **state)
{
    (void)state;
    for (int how = 0; how < 4; how++) {
        diag d = { 0 };
        graph *g = sample(0);
        node *add = &g->nodes.at[graph_value(g, graph_find(g, "sum"))->node];
        switch (how) {
        case 0: add->in[0] = (val){ (uint32_t)g->values.n - 1 }; break;       /* made later */
        case 1: g->values.at[add->out.i].type.sh.d[1] = 9; break;              /* wrong type */
        case 2: g->values.at[add->out.i].name = "x"; break;                    /* another value's name */
        default: g->inputs.n--; break;
        }
        assert_int_equal(graph_verify(g, "vandal", &d), AN_BUG);
        assert_non_null(strstr(d.msg, "vandal"));
        graph_free(g);
    }
}

static void memory_may_run_out_anywhere(void **state)
{
    (void)state;
    bool done = false;
    for (size_t limit = 1; !done; limit += 61) {
        graph *g = sample(limit);
        diag d = { 0 };
        if (!g) continue;
        an_status st = graph_finish(g, &d);
        assert_true(st == AN_OK || st == AN_NOMEM);
        done = st == AN_OK;
        graph_free(g);
        assert_true(limit < 1 << 20);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(builder_infers_and_finishes),   cmocka_unit_test(first_error_sticks),
        cmocka_unit_test(attributes_are_canonical),      cmocka_unit_test(zeros_have_their_sign),
        cmocka_unit_test(a_name_given_up_is_free_again), cmocka_unit_test(a_rewrite_that_copies_changes_nothing),
        cmocka_unit_test(the_verifier_sees_damage),      cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests_name("graph", tests, NULL, NULL);
}
