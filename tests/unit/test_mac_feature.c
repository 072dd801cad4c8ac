/* test_mac_feature.c: what follows a product whose columns are a layer's features: a bias along them, relu, the way
 * back through relu. The kernel does it where it may and a chain where it may not: the same numbers, to the bit, as
 * all of them are small whole ones. */
#include <math.h>

#include "codegen_t.h"

/* M and N are odd, and more than a tile each. */
static const char *const rows[] = {
    "p = matmul(x, w)\ny = add(p, b)\nreturn y\n",
    "p = matmul(x, w)\nq = add(p, b)\ny = relu(q)\nreturn y\n",
    "p = matmul(x, w)\nq = add(b1, p)\ny = relu(q)\nreturn y\n",
    "p = matmul(x, w)\ny = add(p, down)\nreturn y\n",
    "p = matmul(x, w)\nq = add(p, down)\ny = add(q, b)\nreturn y\n",
    "p = matmul(x, w)\nq = mul(p, two)\nr = add(q, b)\ns = relu(r)\ny = add(s, open)\nreturn y\n",
    "p = matmul(x, w)\nq = add(p, b)\nr = add(q, b1)\ny = relu(r)\nreturn y\n",
    "p = matmul(x, w)\nm = greater(open, zero)\ny = select(m, p, zero)\nreturn y\n",
    "p = matmul(x, w)\nm = greater(open, two)\ny = select(m, p, far)\nreturn y\n",
    "p = matmul(x, w)\nm = greater(open, zero)\nq = select(m, p, far)\ny = add(q, open)\nreturn y\n",
    "p = matmul(x, w)\nq = add(p, b)\nm = greater(open, zero)\ny = select(m, q, zero)\nreturn y\n",
    "p = matmul(x, w)\nm = greater(open, zero)\nq = select(m, p, far)\ny = relu(q)\nreturn y\n",
    "p = matmul(x, w)\nm = greater(zero, open)\ny = select(m, p, zero)\nreturn y\n",
    "p = matmul(x, w)\nm = greater(open, zero)\ny = select(m, zero, p)\nreturn y\n",
    "p = matmul(x, w)\nm = greater(down, zero)\ny = select(m, p, zero)\nreturn y\n",
    "p = matmul(x, w)\nm = greater(p, zero)\ny = select(m, p, far)\nreturn y\n",
    "p = matmul(x, w)\nm = greater(open, b)\ny = select(m, p, zero)\nreturn y\n",
    "p = matmul(x, w)\nm = greater(open, zero)\ny = select(m, p, open)\nreturn y\n",
    "p = matmul(x, thin)\ny = add(p, few)\nreturn y\n",
    "p = matmul(x, thin)\nq = add(p, few)\ny = relu(q)\nreturn y\n",
    "p = matmul(x, z) {transpose_x=true}\ny = add(p, c)\nreturn y\n",
    "p = matmul(pair, w)\nq = add(p, b)\ny = relu(q)\nreturn y\n",
    "p = matmul(pair, two_w)\nq = add(p, b1)\ny = relu(q)\nreturn y\n",
    "p = matmul(pair, two_w)\ny = add(p, each)\nreturn y\n",
    "p = matmul(long, wide)\nq = add(p, b)\ny = relu(q)\nreturn y\n",
    "p = matmul(long, wide)\nm = greater(open, zero)\ny = select(m, p, far)\nreturn y\n",
};

static const char inputs[] =
    "graph \"f\"\nx = input TYPE[21, 40]\nw = input TYPE[40, 71]\nb = input TYPE[1, 71]\nb1 = input TYPE[71]\n"
    "down = input TYPE[21, 1]\nopen = input TYPE[21, 71]\nthin = input TYPE[40, 5]\nfew = input TYPE[5]\n"
    "z = input TYPE[21, 9]\nc = input TYPE[9]\npair = input TYPE[2, 21, 40]\ntwo_w = input TYPE[2, 40, 71]\n"
    "each = input TYPE[2, 1, 71]\nlong = input TYPE[21, 784]\nwide = input TYPE[784, 71]\n"
    "two = const TYPE[] {2}\nzero = const TYPE[] {0}\nfar = const TYPE[] {-7}\n";

static void one_row(const char *row, const char *type, int fast, pool *threads, rng *r)
{
    strbuf text = { 0 };
    const char *parts[] = { inputs, row };
    for (size_t k = 0; k < COUNT(parts); k++)
        for (const char *s = parts[k]; *s;) {
            if (strncmp(s, "TYPE", 4)) sb_putc(&text, *s++);
            else sb_puts(&text, type), s += 4;
        }
    arena mem = { 0 };
    diag d = { 0 };
    graph *g = cgt_parse(text.at);
    program *p = cgt_compile(g, &(codegen_options){ .level = 1 });
    const tensor64 *in = cgt_random(g, r, &mem);
    for (size_t i = 0; i < g->inputs.n; i++) {
        int64_t n;
        assert_true(shape_elems(&in[i].type.sh, &n));
        for (int64_t k = 0; k < n; k++) in[i].x[k] = (double)((int)rng_below(r, 5) - 2);
        if (!strcmp(graph_value(g, g->inputs.at[i])->name, "open")) in[i].x[0] = NAN, in[i].x[1] = INFINITY;
    }
    const void **from = cgt_inputs(p, g, in, &mem);
    void **want = cgt_outputs(p, &mem), **got = cgt_outputs(p, &mem);
    cgt_run(p, from, want, true);
    image *im;
    assert_ok(image_load(&im, p, NULL, &(image_options){ .pool = threads, .fast_math = fast }, &d), d);
    assert_ok(image_run(im, from, got, &d), d);
    const etensor *t = &p->tensors.at[p->outputs.at[0].tensor];
    int64_t all = 1;
    for (int i = 0; i < t->rank; i++) all *= t->dim[i];
    for (int64_t k = 0; k < all; k++) {
        const double a = dtype_load(t->dt, got[0], k), b = dtype_load(t->dt, want[0], k);
        if (!(isnan(a) ? isnan(b) : a == b))
            fail_msg("%s, math %d, %s: element %lld is %g, wanted %g", type, fast, row, (long long)k, a, b);
    }
    image_free(im);
    program_free(p);
    graph_free(g);
    arena_free(&mem);
    sb_free(&text);
}

static void features(void **state)
{
    (void)state;
    rng r = { test_seed("mac feature") };
    diag d = { 0 };
    pool *threads;
    assert_ok(pool_make(&threads, 2, &d), d);
    static const char *const types[] = { "fp32", "fp16", "bf16" };
    for (size_t i = 0; i < COUNT(rows); i++)
        for (size_t k = 0; k < COUNT(types); k++)
            for (int fast = FAST_NONE; fast <= FAST_BF16; fast++)
                for (int two = 0; two < 2; two++) one_row(rows[i], types[k], fast, two ? threads : NULL, &r);
    pool_free(threads);
}

/* Products of nothing, or too small for fp32, and what makes -0 of them: relu behind them leaves 0, as it does by
 * itself, in the reference, by a chain and behind a product. */
static void relu_leaves_no_sign(void **state)
{
    (void)state;
    enum { M = 21, K = 40, N = 71, WAYS = 4 };
    static const char *const behind[] = {
        "r = mul(p, minus)\nq = add(r, one)\ny = relu(q)\nreturn y, q\n",
        "r = mul(p, minus)\nq = add(r, one)\ny = relu(q)\nreturn y\n",
        "r = mul(p, minus)\nq = add(r, b)\ny = relu(q)\nreturn y\n",
        "q = add(p, b)\ny = relu(q)\nreturn y\n",
        "q = add(p, one)\ny = relu(q)\nreturn y\n",
        "y = relu(p)\nreturn y\n",
        "r = mul(p, minus)\nq = add(r, one)\ns = relu(q)\ny = add(s, open)\nreturn y\n",
    };
    static const char *const types[] = { "fp32", "fp16", "bf16" };
    bool signs = false;
    for (size_t i = 0; i < COUNT(behind) * COUNT(types); i++)
        for (int tiny = 0; tiny < 2; tiny++) {
            const char *type = types[i % COUNT(types)];
            char text[600];
            snprintf(text, sizeof text,
                     "graph \"f\"\nx = input %s[%d, %d]\nw = input %s[%d, %d]\nminus = input %s[1]\nb = input "
                     "%s[%d]\none = input %s[1]\nopen = input %s[%d, %d]\np = matmul(x, w)\n%s",
                     type, M, K, type, K, N, type, type, N, type, type, M, N, behind[i / COUNT(types)]);
            graph *g = cgt_parse(text);
            arena mem = { 0 };
            const double values[] = { tiny ? 0x1p-140 : 0, tiny ? -0x1p-140 : 1, -1, -0.0, -0.0, -0.0 };
            tensor64 *in = TAKE(&mem, tensor64, g->inputs.n);
            for (size_t k = 0; k < g->inputs.n; k++) {
                int64_t n;
                in[k].type = *graph_type(g, g->inputs.at[k]);
                assert_true(shape_elems(&in[k].type.sh, &n));
                in[k].x = TAKE(&mem, double, (size_t)n);
                for (int64_t e = 0; e < n; e++) in[k].x[e] = values[k];
            }
            program *together = cgt_compile(g, &(codegen_options){ .level = 1 }),
                    *apart = cgt_compile(g, &(codegen_options){ .level = 0 });
            assert_true(together->insns.n < apart->insns.n);
            const void **from = cgt_inputs(together, g, in, &mem);
            const size_t y = together->outputs.n - 1, q = 0;
            assert_string_equal(together->outputs.at[y].name, "y");
            for (int way = 0; way < WAYS; way++) {
                void **out = cgt_outputs(together, &mem);
                cgt_run(way < 2 ? together : apart, from, out, way % 2);
                for (int64_t e = 0; e < M * N; e++) {
                    const etensor *t = &together->tensors.at[together->outputs.at[y].tensor];
                    const double v = dtype_load(t->dt, out[y], e);
                    if (v != 0 || signbit(v))
                        fail_msg("%s, %s%s: element %lld of relu is %g", type, behind[i / COUNT(types)],
                                 (const char *[]){ "together", "together, the reference", "apart",
                                                   "apart, the reference" }[way],
                                 (long long)e, v);
                    if (together->outputs.n > 1) signs = signs || signbit(dtype_load(t->dt, out[q], e));
                }
            }
            program_free(together), program_free(apart), graph_free(g), arena_free(&mem);
        }
    assert_true(signs); /* there was a -0 to lose */
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(features), cmocka_unit_test(relu_leaves_no_sign) };
    return cmocka_run_group_tests_name("mac_feature", tests, NULL, NULL);
}
