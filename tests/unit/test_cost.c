/* Costs: exact counts for operations one can count by hand, published latencies, and how a program is bound. */
#include "opcase.h"

static void test_flops(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        double flops, weight_bytes;
    } want[] = {
        { "conv [1,256,28,28] c[256,256,3,3] > [1,256,28,28]", 2.0 * 256 * 256 * 9 * 784, 256 * 256 * 9 * 2.0 },
        { "conv [1,64,8,8] c[64,16,3,3] > [1,64,6,6] | groups=4", 2.0 * 64 * 36 * 16 * 9, 64 * 16 * 9 * 2.0 },
        { "conv [1,8,1,4] c[8,8,1,1] c[8] > [1,8,1,4]", 2.0 * 8 * 4 * 8 + 32, 64 * 2 + 16 },
        { "conv_transpose [1,8,4,4] c[8,16,2,2] > [1,16,8,8] | strides=2,2", 2.0 * 8 * 16 * 16 * 4, 8 * 16 * 4 * 2.0 },
        { "matmul [1,2,16,32] [1,2,32,8] > [1,2,16,8]", 2.0 * 2 * 16 * 8 * 32, 0 },
        { "matmul [1,2,32,16] [1,2,32,8] > [1,2,16,8] | transpose_x=1", 2.0 * 2 * 16 * 8 * 32, 0 },
        { "linear [4,32] c[8,32] > [4,8]", 2.0 * 4 * 8 * 32, 8 * 32 * 2 },
        { "einsum [2,3,4] [2,4,5] > [2,3,5] | equation=bij,bjk->bik", 2.0 * 2 * 3 * 4 * 5, 0 },
        { "scaled_dot_product_attention [1,2,4,8] [1,2,6,8] [1,2,6,8] > [1,2,4,8]", 1.0 * 2 * 4 * 6 * (16 + 16 + 5), 0 },
        { "max_pool [1,8,4,4] > [1,8,2,2] | kernel_sizes=2,2", 8 * 4 * 4, 0 },
        { "add [1,8] c[8] > [1,8]", 8, 16 },
        { "add [1,8] cfp32[8] > [1,8]", 8, 16 }, /* fp32 constants travel as fp16 */
        { "tanh [1,8] > [1,8]", 16, 0 },
        { "softmax [2,8] > [2,8]", 80, 0 },
        { "reduce_sum [2,8] > [2] | axes=1", 16, 0 },
        { "reshape [2,8] > [16] | shape=16", 0, 0 },
        { "input > [2,8]", 0, 0 },
        { "const > [2,8]", 0, 0 },
        { "mystery [2,8] > [16]", 0, 0 },
    };
    for (size_t i = 0; i < COUNT(want); i++) {
        opcase c;
        opcase_read(&c, want[i].line);
        op_cost k = cost_op(chip_find("m1"), &c.ops.at[1]);
        if (k.flops != want[i].flops) fail_msg("%s: %g flops, want %g", want[i].line, k.flops, want[i].flops);
        if (k.weight_bytes != want[i].weight_bytes)
            fail_msg("%s: %g weight bytes, want %g", want[i].line, k.weight_bytes, want[i].weight_bytes);
        assert_true(k.bytes >= k.weight_bytes);
        opcase_free(&c);
    }
}

/* facts 6.2: what streams is counted as stored, what folds as dense fp16. */
static void test_weight_forms(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        double m1, m2, m3;
    } want[] = {
        { "constexpr_affine_dequantize cint8[64,64] > [64,64]", 8192, 4096, 4096 },
        { "constexpr_lut_to_dense cuint4[64,64] c[16] > [64,64]", 2048 + 32, 2048 + 32, 2048 + 32 },
        { "constexpr_sparse_to_dense c[1000] cuint1[64,64] > [64,64]", 2000 + 512, 2000 + 512, 2000 + 512 },
        { "constexpr_blockwise_shift_scale cint8[64,64] c[64,1] > [64,64]", 8192, 8192, 4096 + 128 },
    };
    for (size_t i = 0; i < COUNT(want); i++) {
        opcase c;
        opcase_read(&c, want[i].line);
        const double m[] = { want[i].m1, want[i].m2, want[i].m3 };
        for (int k = 0; k < 3; k++) {
            char name[3] = { 'm', (char)('1' + k), 0 };
            double got = cost_op(chip_find(name), &c.ops.at[1]).weight_bytes;
            if (got != m[k]) fail_msg("%s on %s: %g bytes, want %g", want[i].line, name, got, m[k]);
        }
        opcase_free(&c);
    }
}

static prog_cost cost_line(const char *name, const char *line)
{
    opcase c;
    opcase_read(&c, line);
    prog_cost p = cost_program(chip_find(name), &c.view);
    opcase_free(&c);
    return p;
}

/* facts 4.5 P10 to P13 within the fidelity the model's authors publish (17 %), and P14, their own estimates, to 1 %. */
static void test_published_convs(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        double measured, estimate;
        bound limit;
    } want[] = {
        { "in x [1,256,28,28] ; out y [1,256,28,28] ; conv i[1,256,28,28] c[256,256,3,3] > [1,256,28,28] ! ret", 0.507, 0.505, BOUND_COMPUTE },
        { "in x [1,512,32,32] ; out y [1,512,32,32] ; conv i[1,512,32,32] c[512,512,1,1] > [1,512,32,32] ! ret", 0.444, 0.511, BOUND_BANDWIDTH },
        { "in x [1,1024,16,16] ; out y [1,1024,16,16] ; conv i[1,1024,16,16] c[1024,1024,1,1] > [1,1024,16,16] ! ret", 0.686, 0.569, BOUND_BANDWIDTH },
        { "in x [1,2048,8,8] ; out y [1,2048,8,8] ; conv i[1,2048,8,8] c[2048,2048,1,1] > [1,2048,8,8] ! ret", 1.047, 1.210, BOUND_BANDWIDTH },
    };
    for (size_t i = 0; i < COUNT(want); i++) {
        prog_cost p = cost_line("m1", want[i].line);
        double ms = p.latency_us / 1e3;
        if (fabs(ms / want[i].measured - 1) > 0.17) fail_msg("row %zu: %g ms, measured %g", i, ms, want[i].measured);
        if (fabs(ms / want[i].estimate - 1) > 0.01)
            fail_msg("row %zu: %g ms, published estimate %g", i, ms, want[i].estimate);
        assert_int_equal(p.limit, want[i].limit);
    }
}

static void test_program(void **state)
{
    (void)state;
    const char *one = "in x [1,64,32,32] ; out y [1,64,32,32] ; conv i[1,64,32,32] c[64,64,1,1] > [1,64,32,32] ! ret";
    const char *two = "in x [1,64,32,32] ; out y [1,64,32,32] ; conv i[1,64,32,32] c[64,64,1,1] > [1,64,32,32] ;"
                      "conv [1,64,32,32]=conv c[64,64,1,1] > [1,64,32,32] ! ret";
    prog_cost a = cost_line("m1", one), b = cost_line("m1", two);
    assert_int_equal(a.limit, BOUND_DISPATCH);
    assert_true(b.flops == 2 * a.flops);
    assert_true(b.bytes == a.bytes + 64 * 64 * 2); /* the intermediate stays on chip */
    assert_true(b.latency_us - a.latency_us < 5); /* fused: one floor (P17) */
    assert_true(a.floor_us == chip_limit(chip_find("m1"), "t0_us"));

    /* an intermediate of 2 MB leaves M1's chip and stays on M5's */
    const char *big = "in x [1,64,128,128] ; out y [1,8,128,128] ; relu i[1,64,128,128] > [1,64,128,128] ;"
                      "conv [1,64,128,128] c[8,64,1,1] > [1,8,128,128] ! ret";
    double io = (64 + 8) * 128 * 128 * 2, w = 8 * 64 * 2, mid = 64 * 128 * 128 * 2;
    assert_true(cost_line("m1", big).bytes == io + w + 2 * mid);
    assert_true(cost_line("m5", big).bytes == io + w);

    prog_cost over = cost_line("m1", "live=2097153"), under = cost_line("m1", "live=2097152");
    assert_true(over.over_budget && !under.over_budget && over.working_set == 2097153);
    /* a power for each bound, facts 9.1 */
    const chip *m1 = chip_find("m1");
    assert_true(fabs(a.energy_mj - 0.9 * a.latency_us / 1e3) < 1e-9);
    assert_true(cost_watts(m1, &(prog_cost){ .limit = BOUND_BANDWIDTH, .flops = 1 }) == 1.4 &&
                cost_watts(m1, &(prog_cost){ .limit = BOUND_COMPUTE, .flops = 1 }) == 4.3);
    assert_true(cost_watts(m1, &(prog_cost){ .limit = BOUND_COMPUTE, .flops = 3, .int8_flops = 2 }) == 5.8 &&
                cost_watts(m1, &(prog_cost){ .limit = BOUND_BANDWIDTH, .flops = 3, .int8_flops = 3 }) == 1.4);
    assert_string_equal(bound_name(BOUND_DISPATCH), "dispatch");
    assert_string_equal(bound_name(BOUND_BANDWIDTH), "bandwidth");
    assert_string_equal(bound_name(BOUND_COMPUTE), "compute");
}

static double number_after(const char *text, const char *mark, const char *key)
{
    const char *p = strstr(text, mark);
    if (!p) fail_msg("no %s in the report", mark);
    p = strstr(p, key);
    if (!p) fail_msg("no %s after %s", key, mark);
    return strtod(p + strlen(key), NULL);
}

/* The median over 68 graphs that the original authors publish is 31 %; ours over the rows that can be rebuilt must
 * stay below 17, and below 20 over those no constant came from, half of which have a size that had to be assumed. */
static void test_report(void **state)
{
    (void)state;
    strbuf j = { 0 }, t = { 0 }, m = { 0 };
    cost_report(&j, "json");
    cost_report(&t, "text");
    cost_report(&m, "markdown");
    assert_false(j.oom || t.oom || m.oom);
    assert_true(number_after(j.at, "\"kind\":\"median\",\"target\":\"all\",\"rows\":\"all\"", "\"error_percent\":") <
                17);
    assert_true(number_after(j.at, "\"kind\":\"median\",\"target\":\"all\",\"rows\":\"check\"", "\"error_percent\":") <
                20);
    static const char *const ids[] = { "P5",   "P9",  "P10", "P13",  "P17b", "P21", "P30",
                                       "P35c", "P38", "W9a", "W11b", "P41",  "P60a" };
    for (size_t i = 0; i < COUNT(ids); i++) {
        char key[32];
        snprintf(key, sizeof key, "\"id\":\"%s\"", ids[i]);
        double e = number_after(j.at, key, "\"error_percent\":");
        if (fabs(e) > 31) fail_msg("%s is off by %g %%", ids[i], e);
    }
    assert_non_null(strstr(t.at, "not modelled"));
    assert_non_null(strstr(m.at, "| P30 | m1 |"));
    assert_true(fabs(number_after(j.at, "\"kind\":\"power\",\"id\":\"E5\"", "\"error_percent\":")) < 5);
    sb_free(&j);
    sb_free(&t);
    sb_free(&m);
}

/* What the runtime's placement model says, and what idling adds: facts 4.5 P15, P32, P34. */
static void test_other_figures(void **state)
{
    (void)state;
    const chip *m1 = chip_find("m1");
    prog_cost p = cost_line(
        "m1", "in x [1,256,28,28] ; out y [1,256,28,28] ; conv i[1,256,28,28] c[256,256,3,3] > [1,256,28,28] ! ret");
    assert_true(fabs(cost_placement_us(m1, &p) - 1156) < 0.5);
    prog_cost thin = { .flops = 1e6, .bytes = 1e6 };
    assert_true(fabs(cost_placement_us(m1, &thin) - 20) < 1e-9); /* by its bytes */
    assert_true(cost_after_idle_us(m1, &p, 0) == p.latency_us);
    assert_true(cost_after_idle_us(m1, &p, 0.099) == p.latency_us);
    assert_true(cost_after_idle_us(m1, &p, 0.1) == p.latency_us + 500);
    assert_true(cost_after_idle_us(m1, &p, 5) == p.latency_us + 260000);
    /* past the step a matrix no longer waits for every core's own copy */
    const char *under =
        "in x [1,1,1,1086] ; out y [1,1,1,1086] ; matmul i[1,1,1,1086] c[1,1,1086,1086] > [1,1,1,1086] ! ret";
    const char *over =
        "in x [1,1,1,1093] ; out y [1,1,1,1093] ; matmul i[1,1,1,1093] c[1,1,1093,1093] > [1,1,1,1093] ! ret";
    assert_true(cost_line("m1", under).memory_us > 3 * cost_line("m1", over).memory_us);
    assert_true(cost_line("m2", under).memory_us < cost_line("m2", over).memory_us);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_flops),           cmocka_unit_test(test_weight_forms),
                                        cmocka_unit_test(test_published_convs), cmocka_unit_test(test_program),
                                        cmocka_unit_test(test_report),          cmocka_unit_test(test_other_figures) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
