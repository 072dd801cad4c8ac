/* The chip table against the published limits, and the lookups. */
#include <math.h>

#include "t.h"
#include "target/target.h"

static void test_find(void **state)
{
    (void)state;
    static const struct {
        const char *ask, *name, *arch;
        int family;
    } want[] = {
        { "m1", "m1", "h13", 2 },   { "M1", "m1", "h13", 2 },     { "h13", "m1", "h13", 2 },     { "H13G", "h13g", "h13g", 2 },
        { "m2", "m2", "h14", 3 },   { "m3", "m3", "h15", 4 },     { "m4", "m4", "h16", 5 },      { "m5", "m5", "h17s", 6 },
        { "h17s", "m5", "h17s", 6 }, { "h17", "h17", "h17", 6 },  { "h18", "h18", "h18", 7 },    { "m11", "m11", "m11", 5 },
    };
    for (size_t i = 0; i < COUNT(want); i++) {
        const chip *c = chip_find(want[i].ask);
        assert_non_null(c);
        assert_string_equal(chip_name(c), want[i].name);
        assert_string_equal(chip_arch(c), want[i].arch);
        assert_int_equal(chip_family(c), want[i].family);
    }
    static const char *const no[] = { "", "m", "m0", "m12", "h13gg", "all" };
    for (size_t i = 0; i < COUNT(no); i++) assert_null(chip_find(no[i]));
    assert_null(chip_find(NULL));
}

static void test_base(void **state)
{
    (void)state;
    static const char *const base[] = { "m1", "m2", "m3", "m4", "m5" };
    size_t n = 0;
    for (size_t i = 0; i < chip_count(); i++) {
        if (!chip_is_base(chip_at(i))) continue;
        assert_true(n < COUNT(base));
        assert_string_equal(chip_name(chip_at(i)), base[n++]);
    }
    assert_int_equal(n, COUNT(base));
    assert_int_equal(chip_count(), 21);
}

static void test_limits(void **state)
{
    (void)state;
    static const struct {
        const char *column;
        double m1, m2, m3, m4, m5;
    } want[] = { /* facts 1.1, 1.3, 1.4 */
        { "max_dim", 16384, 16384, 16384, 65536, 65536 },   { "max_channels", 65536, 65536, 65536, 65536, 65536 },
        { "max_transpose", 16384, 16384, 16384, 65536, 65536 }, { "kernel_w_f16", 13, 16, 16, 16, 16 },
        { "kernel_w_small", 7, 8, 8, 8, 8 },                { "kernel_w", 15, 32, 32, 32, 32 },
        { "kernel_h", 29, 32, 32, 32, 32 },                 { "reduce_via_transpose", 192, 192, 384, 384, 384 },
        { "instr_align", 256, 16, 16, 16, 16 },             { "image_formats", 3, 13, 16, 14, 14 },
        { "f_texture", 0, 1, 1, 1, 1 },                     { "f_random", 0, 0, 1, 1, 1 },
        { "f_stream_int8", 0, 1, 1, 1, 1 },                 { "f_stream_block", 0, 0, 1, 1, 1 },
        { "f_slice_x16", 1, 1, 0, 0, 0 },                   { "f_fp8", 0, 0, 0, 0, 0 },
        { "cores", 4, 4, 4, 4, 16 },                        { "resident", 2097152, 2097152, 2097152, 2097152, 4949278 },
        { "cpusubtype", 4, 5, 6, 7, -1 },
    };
    for (size_t i = 0; i < COUNT(want); i++) {
        const double m[] = { want[i].m1, want[i].m2, want[i].m3, want[i].m4, want[i].m5 };
        for (int k = 0; k < 5; k++) {
            char name[3] = { 'm', (char)('1' + k), 0 };
            double got = chip_limit(chip_find(name), want[i].column);
            if (got != m[k]) fail_msg("%s of %s is %g, want %g", want[i].column, name, got, m[k]);
        }
    }
    assert_true(isnan(chip_limit(chip_find("m1"), "no such column")));
    assert_true(chip_limit(chip_find("h18"), "f_fp8") == 1);
    assert_true(chip_limit(chip_find("m11"), "max_dim") == 16384 && chip_limit(chip_find("m11"), "kernel_w") == 15);
}

static void test_speeds(void **state)
{
    (void)state;
    static const char *const speed[] = { "peak_fit", "peak_gemm", "peak_slope", "bw_fit",   "bw_weight",
                                         "bw_dram",  "floor_us",  "t0_us",      "resident", "int8_rate" };
    for (size_t i = 0; i < chip_count(); i++) {
        const chip *c = chip_at(i);
        for (size_t k = 0; k < COUNT(speed); k++)
            if (!(chip_limit(c, speed[k]) > 0)) fail_msg("%s of %s is missing", speed[k], chip_name(c));
        assert_true(chip_limit(c, "peak_fit") <= chip_limit(c, "peak_slope"));
        assert_true(chip_limit(c, "bw_fit") <= chip_limit(c, "bw_dram"));
    }
    /* facts 9.2: measured parts keep their numbers; others scale by cores and clock */
    assert_true(chip_limit(chip_find("m1"), "peak_fit") == 3.25e12 &&
                chip_limit(chip_find("m5"), "peak_fit") == 8.9e12);
    assert_true(chip_limit(chip_find("h15g"), "bw_fit") == 2 * chip_limit(chip_find("h15"), "bw_fit"));
    assert_true(chip_limit(chip_find("m3"), "t0_us") < chip_limit(chip_find("m1"), "t0_us"));
}

static size_t count(const char *text, const char *what)
{
    size_t n = 0;
    for (const char *p = text; (p = strstr(p, what)); p++) n++;
    return n;
}

static void test_print(void **state)
{
    (void)state;
    strbuf t = { 0 }, j = { 0 }, m = { 0 };
    chip_print(&t, "text");
    chip_print(&j, "json");
    chip_print(&m, "markdown");
    for (size_t i = 0; i < chip_count(); i++) {
        assert_non_null(strstr(t.at, chip_arch(chip_at(i))));
        assert_non_null(strstr(m.at, chip_arch(chip_at(i))));
    }
    assert_int_equal(count(j.at, "\"kind\":\"target\""), chip_count());
    assert_int_equal(count(j.at, "\"kind\":\"conflict\""), 32);
    for (int k = 1; k <= 32; k++) {
        char want[32];
        snprintf(want, sizeof want, "\"id\":\"K%d\"", k);
        assert_non_null(strstr(j.at, want));
    }
    sb_free(&t);
    sb_free(&j);
    sb_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_find), cmocka_unit_test(test_base),
                                        cmocka_unit_test(test_limits), cmocka_unit_test(test_speeds),
                                        cmocka_unit_test(test_print) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
