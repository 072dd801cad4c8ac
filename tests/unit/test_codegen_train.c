/* test_codegen_train.c: what a training step on the plain processor is made of: values made again where they are
 * read, sums of products that are never stored, turns of pairs of channels. */
#include "codegen_t.h"
#include "engine/engine_int.h"

#define TWO "x = input fp32[8, 8]\nw = input fp32[8, 8]\nt = matmul(x, w)\n"
#define MOST "m = reduce_max(b) {axes=[1], keep_dims=true}\n"
#define NORM_BACK(shape, rows, cols, along, down)                                                                                                        \
    "u = input fp32" shape "\nv = input fp32" shape "\nk = input fp32[9, 9]\ng = input fp32" rows "\nr = input fp32" cols "\nx = matmul(u, k)\ndy = matmul(v, k)\nn = mul(x, r)\nd = mul(dy, g)\np = mul(dy, n)\n" \
    "gain = reduce_sum(p) {axes=[" along "], keep_dims=true}\nq = mul(d, x)\nroot = reduce_sum(q) {axes=[" down "], keep_dims=true}\ne = mul(x, root)\nf = mul(d, r)\ny = add(e, f)\nreturn gain, y\n"
#define TURN                                                                                                                              \
    "x0 = input fp32[3, 4, 2, 5]\nx = tanh(x0)\nc = const fp32[1, 4, 1, 5] {1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 6, 7, 8, 9, 1}\n" \
    "s = const fp32[1, 4, 1, 5] {3, 1, 4, 1, 5, 3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 9, 2, 6, 5, 3}\nh = const fp32[] {0.5}\n"
#define BESIDE "w = const fp32[4, 4, 1, 1] {0, -1, 0, 0, 1, 0, 0, 0, 0, 0, 0, -1, 0, 0, 1, 0}\n"
#define HALVES "w = const fp32[4, 4, 1, 1] {0, 0, -1, 0, 0, 0, 0, -1, 1, 0, 0, 0, 0, 1, 0, 0}\n"
#define STRAIGHT "a = mul(x, c)\nt = conv(x, w)\nb = mul(t, s)\n"

static const struct {
    const char *what, *text;
    insn_id has;
    int n, total; /* of it; of all */
} rows[] = {
    { "a function made again", TWO "a = silu(t)\nb = exp(a)\n" MOST "c = mul(a, t)\ny = sub(c, m)\nreturn y\n", IN_EWS, 0, 4 },
    { "with a sigmoid", TWO "a = silu(t)\nb = exp(a)\n" MOST "s = sigmoid(t)\nc = mul(a, m)\ny = sub(c, s)\nreturn y\n", IN_EWS, 0, 4 },
    { "stored: a product reads it", TWO "a = silu(t)\nb = exp(a)\n" MOST "c = mul(a, t)\nd = sub(c, m)\ny = matmul(d, a)\nreturn y\n", IN_EWS, 1, 5 },
    { "stored: it is a result", TWO "a = silu(t)\nb = exp(a)\n" MOST "c = mul(a, t)\ny = sub(c, m)\nreturn a, y\n", IN_EWS, 1, 4 },
    { "stored: one more tensor would be read", TWO "u = matmul(w, x)\na = mul(t, u)\nb = exp(a)\n" MOST "d = sub(a, m)\ny = matmul(d, t)\nz = matmul(u, u)\nreturn y, z\n", IN_EWS, 1, 7 },
    { "a norm of columns, back", NORM_BACK("[1, 6, 1, 9]", "[1, 6, 1, 1]", "[1, 1, 1, 9]", "3", "1"), IN_SUMS, 1, 4 },
    { "a norm of rows, back", NORM_BACK("[6, 9]", "[9]", "[6, 1]", "0", "1"), IN_SUMS, 1, 4 },
    { "a sum of products", "x = input fp32[9, 6]\nz = input fp32[9, 6]\np = mul(x, z)\ny = reduce_sum(p) {axes=[1]}\nreturn y\n", IN_SUMS, 1, 1 },
    { "a sum of squares", "x = input fp32[9, 6]\np = mul(x, x)\ny = reduce_sum(p) {axes=[0]}\nreturn y\n", IN_SUMS, 1, 1 },
    { "no sum of two: three", "x = input fp32[9, 6]\nz = input fp32[9, 6]\np = mul(x, z)\nq = mul(p, x)\ny = reduce_sum(q) {axes=[1]}\nreturn y\n", IN_SUMS, 0, 2 },
    { "no sum of lines: of all", "x = input fp32[9, 6]\nz = input fp32[9, 6]\np = mul(x, z)\ny = reduce_sum(p)\nreturn y\n", IN_SUMS, 0, 2 },
    { "no sum of products: they are read", "x = input fp32[9, 6]\nz = input fp32[9, 6]\np = mul(x, z)\ny = reduce_sum(p) {axes=[1]}\nreturn p, y\n", IN_SUMS, 0, 2 },
    { "no sum of products: of sums", "x = input fp32[9, 6]\nz = input fp32[9, 6]\np = add(x, z)\ny = reduce_sum(p) {axes=[1]}\nreturn y\n", IN_SUMS, 0, 2 },
    { "no sum of products: of a sum's", "x = input fp32[9, 6]\nz = input fp32[9, 6]\ns = sub(x, z)\np = mul(s, z)\ny = reduce_sum(p) {axes=[1]}\nreturn y\n", IN_SUMS, 0, 2 },
    { "no sum of products: their mean", "x = input fp32[9, 6]\nz = input fp32[9, 6]\np = mul(x, z)\ny = reduce_mean(p) {axes=[1]}\nreturn y\n", IN_SUMS, 0, 2 },
    { "no sum of products: their largest", "x = input fp32[9, 6]\nz = input fp32[9, 6]\np = mul(x, z)\ny = reduce_max(p) {axes=[1]}\nreturn y\n", IN_SUMS, 0, 2 },
    { "a factor per row, down", "x = input fp32[6, 6]\nz = input fp32[6, 6]\ng = input fp32[6, 1]\np = mul(x, z)\nq = mul(p, g)\ny = reduce_sum(q) {axes=[0]}\nreturn y\n", IN_SUMS, 1, 1 },
    { "no factor of the sum: per column, down", "x = input fp32[6, 6]\nz = input fp32[6, 6]\ng = input fp32[1, 6]\np = mul(x, z)\nq = mul(p, g)\ny = reduce_sum(q) {axes=[0]}\nreturn y\n", IN_SUMS, 0, 2 },
    { "a turn", TURN BESIDE STRAIGHT "y = add(a, b)\nreturn y\n", IN_ROPE, 1, 2 },
    { "a turn the other way, scaled", TURN BESIDE STRAIGHT "d = sub(a, b)\ny = mul(h, d)\nreturn y\n", IN_ROPE, 1, 2 },
    { "a turn's gradient, scaled before", TURN BESIDE "z = mul(x, h)\na = mul(z, c)\nb = mul(z, s)\nt = conv_transpose(b, w)\ny = add(t, a)\nreturn y\n", IN_ROPE, 1, 2 },
    { "a turn of halves", TURN HALVES "k = const fp32[1, 4, 1, 5] {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1}\na = mul(x, k)\nt = conv(x, w)\nb = mul(t, k)\ny = add(a, b)\nreturn y\n", IN_ROPE, 1, 2 },
    { "no turn: angles of a pair differ", TURN HALVES STRAIGHT "y = add(a, b)\nreturn y\n", IN_ROPE, 0, 2 },
    { "no turn: another matrix", TURN "w = const fp32[4, 4, 1, 1] {0, -1, 0, 0, 1, 0, 0, 0, 0, 0, 0, -1, 0, 0, 1, 1}\n" STRAIGHT "y = add(a, b)\nreturn y\n", IN_ROPE, 0, 2 },
    { "no turn: b minus a", TURN BESIDE STRAIGHT "y = sub(b, a)\nreturn y\n", IN_ROPE, 0, 2 },
};

/* As few instructions as can be, and what the graph means, by the reference and by the fast form. */
static void forms(void **state)
{
    (void)state;
    rng r = { test_seed("training forms") };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[2400];
        snprintf(text, sizeof text, "graph \"p\"\n%s", rows[i].text);
        graph *g = cgt_parse(text);
        arena mem = { 0 };
        diag d = { 0 };
        tensor64 *in = cgt_random(g, &r, &mem), *want = TAKE(&mem, tensor64, g->outputs.n);
        /* sums of products, and what is made of them, stay near 1: results are held against that */
        for (size_t k = 0; k < g->inputs.n; k++) {
            int64_t n;
            assert_true(shape_elems(&in[k].type.sh, &n));
            for (int64_t j = 0; j < n; j++) in[k].x[j] *= 0.25;
        }
        assert_ok(graph_eval(g, in, want, &mem, &d), d);
        for (int separate = 0; separate < 2; separate++) {
            program *p = cgt_compile(g, &(codegen_options){ .level = 1, .inline_consts = true, .separate = separate });
            if ((int)p->insns.n != rows[i].total || cgt_count(p, rows[i].has) != rows[i].n) {
                strbuf b = { 0 };
                program_print(p, &b);
                fail_msg("%s: %zu instructions, wanted %d\n%s", rows[i].what, p->insns.n, rows[i].total, b.at);
            }
            for (int reference = 0; reference < 2; reference++) {
                void **out = cgt_outputs(p, &mem);
                cgt_run(p, cgt_inputs(p, g, in, &mem), out, reference);
                cgt_close(p, out, g, want, 1e-5, rows[i].what);
            }
            program_free(p);
        }
        arena_free(&mem);
        graph_free(g);
    }
}

#define FOUR                                                                                                           \
    "x = input fp32[40, 40]\nw = input fp32[40, 40]\na = matmul(x, w)\nb = matmul(w, x)\nc = matmul(x, x)\nd = matmul(w, w)\n"

/* Sums of products are taken one by one, by products that add one tensor each: the kernels do that in passing. */
static void sums_of_products(void **state)
{
    (void)state;
    static const struct {
        const char *what, *text;
        int64_t most; /* tensors that a product adds */
        int total;
    } sums[] = {
        { "in a row", FOUR "p = add(a, b)\nq = add(p, c)\ny = add(q, d)\nreturn y\n", 1, 4 },
        { "from the last on", FOUR "p = add(d, c)\nq = add(b, p)\ny = add(a, q)\nreturn y\n", 1, 4 },
        { "in pairs", FOUR "p = add(a, b)\nq = add(c, d)\ny = add(p, q)\nreturn y\n", 2, 4 },
        { "something else is added", FOUR "p = add(a, b)\nq = add(p, x)\nr = add(c, d)\nreturn q, r\n", 2, 4 },
    };
    rng r = { test_seed("sums of products") };
    static float x[1600], w[1600], got[2][1600], want[2][1600];
    for (int k = 0; k < 1600; k++) x[k] = (float)rng_normal(&r), w[k] = (float)rng_normal(&r);
    for (size_t i = 0; i < COUNT(sums); i++) {
        char text[1024];
        snprintf(text, sizeof text, "graph \"p\"\n%s", sums[i].text);
        graph *g = cgt_parse(text);
        program *p = cgt_compile(g, &(codegen_options){ .level = 1 }),
                *plain = cgt_compile(g, &(codegen_options){ .level = 0 });
        int64_t most = 0, n;
        for (size_t k = 0; k < p->insns.n; k++)
            if (insn_is_product(p->insns.at[k].op)) (void)insn_ts(&p->insns.at[k], "extra", &n), most = MAX(most, n);
        if (most != sums[i].most || (int)p->insns.n != sums[i].total)
            fail_msg("%s: %lld tensors added, %zu instructions", sums[i].what, (long long)most, p->insns.n);
        cgt_run(p, (const void *const[]){ x, w }, (void *const[]){ got[0], got[1] }, false);
        cgt_run(plain, (const void *const[]){ x, w }, (void *const[]){ want[0], want[1] }, true);
        for (size_t q = 0; q < g->outputs.n; q++)
            for (int k = 0; k < 1600; k++) assert_true(fabsf(got[q][k] - want[q][k]) <= 1e-5f * 40);
        program_free(p);
        program_free(plain);
        graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(forms), cmocka_unit_test(sums_of_products) };
    return cmocka_run_group_tests_name("codegen_train", tests, NULL, NULL);
}
