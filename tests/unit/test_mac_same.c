/* test_mac_same.c: products that follow each other and nearly read the same operand: what one of them packed serves
 * the next only where it is that. */
#include "codegen_t.h"

enum { N = 12, K = 32, M = 24 };

/* Inputs in the order of their names; products of x, z and their parts by constants or by what is computed. */
static const char *const rows[] = {
    "y = matmul(x, v)\nu = matmul(x, w)\nreturn u, y\n",
    "y = matmul(x, v)\nu = matmul(z, w)\nreturn u, y\n",
    "y = matmul(x, v)\nu = matmul(z, v)\nreturn u, y\n",
    "a = slice_by_size(both) {begin=[0, 0], size=[12, 32]}\nb = slice_by_size(both) {begin=[12, 0], size=[12, 32]}\ny = matmul(a, v)\nu = matmul(b, w)\nreturn u, y\n",
    "a = slice_by_size(both) {begin=[12, 0], size=[12, 32]}\nb = slice_by_size(both) {begin=[0, 0], size=[12, 32]}\ny = matmul(a, v)\nu = matmul(b, w)\nreturn u, y\n",
    "h = tanh(both)\na = slice_by_size(h) {begin=[0, 0], size=[12, 32]}\nb = slice_by_size(h) {begin=[12, 0], size=[12, 32]}\ny = matmul(a, v)\nu = matmul(b, w)\nreturn u, y\n",
    "t = reshape(both) {shape=[2, 12, 32]}\na = slice_by_size(both) {begin=[0, 0], size=[12, 32]}\ny = matmul(t, two)\nu = matmul(a, w)\nreturn u, y\n",
    "t = reshape(both) {shape=[2, 12, 32]}\na = slice_by_size(both) {begin=[0, 0], size=[12, 32]}\nu = matmul(a, w)\ny = matmul(t, two)\nreturn u, y\n",
    "q = reshape(square) {shape=[32, 32]}\ny = matmul(q, v)\nu = matmul(q, w) {transpose_x=true}\nreturn u, y\n",
    "a = matmul(v, x) {transpose_x=true, transpose_y=true}\nb = matmul(w, x) {transpose_x=true, transpose_y=true}\nreturn a, b\n",
    "g = tanh(z)\nh = tanh(x)\na = matmul(h, g) {transpose_y=true}\nb = matmul(g, g) {transpose_y=true}\nc = matmul(h, h) {transpose_y=true}\nd = matmul(g, h) {transpose_y=true}\nreturn a, b, c, d\n",
    "h = tanh(z)\ny = matmul(aa, v)\nu = matmul(h, w)\nreturn u, y\n",
    "e = slice_by_size(x) {begin=[0, 0], size=[8, 32]}\ny = matmul(e, v)\nu = matmul(x, w)\nreturn u, y\n",
    "e = slice_by_size(x) {begin=[0, 0], size=[8, 32]}\ny = matmul(x, v)\nu = matmul(e, w)\nreturn u, y\n",
    "s = slice_by_size(keys) {begin=[0, 0], size=[16, 24]}\ny = matmul(half, s)\nu = matmul(x, keys)\nreturn u, y\n",
    "s = slice_by_size(keys) {begin=[0, 0], size=[16, 24]}\ny = matmul(x, keys)\nu = matmul(half, s)\nreturn u, y\n",
    "l = const TYPE[32, 200] all 0.125\nn = const TYPE[32, 3] all 0.25\ny = matmul(x, v)\nu = matmul(x, l)\no = matmul(x, n)\np = matmul(x, w)\nreturn o, p, u, y\n",
    "e = slice_by_size(x) {begin=[0, 0], size=[4, 32]}\ng = const TYPE[24] all 0.0625\nt = const int8[] {0}\nc = const int8[24, 32] all 3\nq = constexpr_affine_dequantize(c, g, t) {axis=0}\ny = matmul(e, q) {transpose_y=true}\nu = matmul(e, w)\no = matmul(e, q) {transpose_y=true}\nreturn o, u, y\n",
    "i = reshape(both) {shape=[1, 4, 1, 192]}\nm = const TYPE[4, 4, 1, 1] {0, -1, 0, 0, 1, 0, 0, 0, 0, 0, 0, -1, 0, 0, 1, 0}\nl = const TYPE[4, 4, 1, 1] all 0.25\nt = conv(i, m)\ny = mul(t, i)\nu = conv(i, l)\nreturn u, y\n",
    "i = reshape(both) {shape=[1, 32, 1, 24]}\nk = const TYPE[24, 32, 1, 1] all 0.125\nl = const TYPE[24, 16, 1, 1] all 0.25\ny = conv(i, k)\nu = conv(i, l) {groups=2}\no = conv(i, k) {strides=[1, 2]}\np = conv(i, k)\nreturn y, u, o, p\n",
};

static void one_after_the_other(void **state)
{
    (void)state;
    static const struct {
        const char *type, *chip;
        int fast;
        double off;
    } kinds[] = { { "fp32", NULL, FAST_NONE, 1e-4 },
                  { "fp32", NULL, FAST_BF16, 0.2 },
                  { "fp16", NULL, FAST_NONE, 4e-2 },
                  { "fp16", "m1", FAST_NONE, 0 },
                  { "fp16", "m4", FAST_NONE, 0 } };
    rng r = { test_seed("mac same") };
    diag d = { 0 };
    pool *threads;
    assert_ok(pool_make(&threads, 2, &d), d);
    for (size_t k = 0; k < COUNT(kinds); k++)
        for (size_t i = 0; i < COUNT(rows); i++) {
            strbuf b = { 0 };
            arena mem = { 0 };
            numerics num = numerics_cpu;
            if (kinds[k].chip) assert_true(codegen_numerics(chip_find(kinds[k].chip), &num));
            sb_puts(&b, "graph \"s\"\nx = input TYPE[12, 32]\nz = input TYPE[12, 32]\nboth = input TYPE[24, 32]\nsquare = input TYPE[32, 32]\naa = input TYPE[12, 32]\nkeys = input TYPE[32, 24]\nhalf = input TYPE[12, 16]\n");
            static const struct {
                const char *name, *shape;
                int n;
            } made[] = { { "v", "32, 24", K * M }, { "w", "32, 24", K * M }, { "two", "2, 32, 24", 2 * K * M } };
            for (size_t c = 0; c < COUNT(made); c++) {
                sb_printf(&b, "%s = const TYPE[%s] {", made[c].name, made[c].shape);
                for (int e = 0; e < made[c].n; e++)
                    sb_printf(&b, "%s%g", e ? ", " : "", (double)((int)rng_below(&r, 17) - 8) / 8);
                sb_puts(&b, "}\n");
            }
            sb_puts(&b, rows[i]);
            strbuf text = { 0 };
            for (const char *s = b.at; *s;) {
                if (strncmp(s, "TYPE", 4)) sb_putc(&text, *s++);
                else sb_puts(&text, kinds[k].type), s += 4;
            }
            graph *g = cgt_parse(text.at);
            program *p = cgt_compile(g, &(codegen_options){ .level = 1, .num = &num, .final = true });
            const tensor64 *in = cgt_random(g, &r, &mem);
            const void **from = cgt_inputs(p, g, in, &mem);
            void **want = cgt_outputs(p, &mem), **got = cgt_outputs(p, &mem);
            cgt_run(p, from, want, true);
            for (int two = 0; two < 2; two++) {
                image *im;
                assert_ok(image_load(&im, p, NULL,
                                     &(image_options){ .pool = two ? threads : NULL, .fast_math = kinds[k].fast }, &d),
                          d);
                assert_ok(image_run(im, from, got, &d), d);
                for (size_t o = 0; o < p->outputs.n; o++) {
                    const etensor *t = &p->tensors.at[p->outputs.at[o].tensor];
                    for (int64_t e = 0; e < (int64_t)p->outputs.at[o].bytes * 8 / dtype_bits(t->dt); e++) {
                        const double x = dtype_load(t->dt, got[o], e), y = dtype_load(t->dt, want[o], e);
                        if (!(fabs(x - y) <= kinds[k].off))
                            fail_msg("row %zu, %s on %s, fast %d: element %d of %s is %g, wanted %g", i, kinds[k].type,
                                     kinds[k].chip ? kinds[k].chip : "cpu", kinds[k].fast, (int)e,
                                     p->outputs.at[o].name, x, y);
                    }
                }
                image_free(im);
            }
            program_free(p);
            graph_free(g);
            arena_free(&mem);
            sb_free(&b), sb_free(&text);
        }
    pool_free(threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(one_after_the_other) };
    return cmocka_run_group_tests_name("mac_same", tests, NULL, NULL);
}
