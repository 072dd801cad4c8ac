/* test_mac_turn.c: products by constants that only move rows: exact where products of bf16 would round, the epilogue
 * behind them as ever; and matrices that are nearly so, which are multiplied. */
#include <math.h>

#include "codegen_t.h"

enum { HEADS = 3, WIDTH = 4, PLACES = 40, ALL = HEADS * WIDTH * PLACES };

static void run(const program *p, const float *x, const float *c, float *y, bool reference, int fast)
{
    image *im = NULL;
    diag d = { 0 };
    weight_source none = { 0 };
    assert_ok(image_load(&im, p, &none, &(image_options){ .reference = reference, .fast_math = fast }, &d), d);
    assert_ok(image_run(im, (const void *const[]){ c, x }, (void *const[]){ y }, &d), d);
    image_free(im);
}

static void rows_move(void **state)
{
    (void)state;
    static const struct {
        const char *matrix;
        bool moves, back; /* the matrix, and turned over */
    } rows[] = {
        { "0, -1, 0, 0, 1, 0, 0, 0, 0, 0, 0, -1, 0, 0, 1, 0", true, true },     { "0, 0, -1, 0, 0, 0, 0, -1, 1, 0, 0, 0, 0, 1, 0, 0", true, true },
        { "0, 0, -1, 0, 0, 0, -1, 0, 1, 0, 0, 0, 0, 1, 0, 0", true, false },     { "0, -1, 0, 0, 1, 0, 0, 0, 0, 0, 0, -1, 0, 0, 0.5, 0", false, false },
        { "0, -1, 0, 0, 1, 0, 0, 1, 0, 0, 0, -1, 0, 0, 1, 0", false, false },    { "0, -1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0", false, false },
    };
    rng r = { test_seed("mac turn") };
    float x[ALL], c[ALL], want[ALL], got[ALL];
    for (int i = 0; i < ALL; i++) x[i] = (float)rng_normal(&r), c[i] = (float)rng_normal(&r);
    for (size_t i = 0; i < COUNT(rows); i++)
        for (int back = 0; back < 2; back++) {
            char text[600];
            snprintf(
                text, sizeof text,
                "graph \"p\"\nc = input fp32[%d, %d, 1, %d]\nx = input fp32[%d, %d, 1, %d]\nw = const fp32[4, 4, 1, 1] {%s}\nt = conv%s(x, w)\nu = mul(t, c)\ny = add(u, x)\nreturn y\n",
                HEADS, WIDTH, PLACES, HEADS, WIDTH, PLACES, rows[i].matrix, back ? "_transpose" : "");
            graph *g = cgt_parse(text);
            program *p = cgt_compile(g, &(codegen_options){ .level = 1 });
            assert_int_equal(p->insns.n, 1);
            run(p, x, c, want, true, FAST_NONE);
            run(p, x, c, got, false, FAST_NONE);
            for (int k = 0; k < ALL; k++)
                if (!(fabsf(got[k] - want[k]) <= 1e-6f * (1 + fabsf(want[k]))))
                    fail_msg("row %zu, %s: element %d is %.9g, wanted %.9g", i, back ? "back" : "forward", k,
                             (double)got[k], (double)want[k]);
            run(p, x, c, got, false, FAST_BF16);
            float most = 0;
            for (int k = 0; k < ALL; k++) most = fmaxf(most, fabsf(got[k] - want[k]) / (1 + fabsf(want[k])));
            const bool moves = back ? rows[i].back : rows[i].moves;
            if (moves && most > 1e-6f)
                fail_msg("row %zu, %s: moved rows are off by %g", i, back ? "back" : "forward", (double)most);
            if (!moves && most < 1e-5f)
                fail_msg("row %zu, %s: a product of bf16 is off by %g only", i, back ? "back" : "forward",
                         (double)most);
            program_free(p);
            graph_free(g);
        }
}

/* Where rows go is part of the proof that a matrix is in use; so are weights of a transposed convolution in their
 * new order. */
static void moves_are_proven(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t things;
    } rows[] = {
        { "x = input fp32[2, 4, 1, 40]\nw = const fp32[4, 4, 1, 1] {0, -1, 0, 0, 1, 0, 0, 0, 0, 0, 0, -1, 0, 0, 1, 0}\nt = conv(x, w)\ny = mul(t, x)\nreturn y\n", 2 },
        { "x = input fp32[2, 4, 1, 40]\nw = const fp32[4, 4, 1, 1] {0, -1, 0, 0, 1, 0, 0, 0, 0, 0, 0, -1, 0, 0, 2, 0}\nt = conv(x, w)\ny = mul(t, x)\nreturn y\n", 2 },
        { "x = input fp32[1, 4, 5, 8]\nw = const fp32[4, 3, 3, 2] all 0.5\ny = conv_transpose(x, w)\nreturn y\n", 2 },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[300];
        image *im = NULL;
        diag d = { 0 };
        snprintf(text, sizeof text, "graph \"p\"\n%s", rows[i].text);
        graph *g = cgt_parse(text);
        program *p = cgt_compile(g, &(codegen_options){ .level = 1 });
        assert_ok(image_load(&im, p, NULL, NULL, &d), d);
        assert_int_equal(cgt_spoil_each(im, rows[i].text), rows[i].things);
        image_free(im);
        program_free(p);
        graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(rows_move), cmocka_unit_test(moves_are_proven) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
