/* prop_alias.c: copies that codegen leaves out. Random programs of slices, splits, joins, reshapes and updates,
 * mixed with arithmetic: the program with tensors inside others gives the bytes of the one where everything has
 * memory of its own, on the plain processor and on the chips, by the reference and by the fast executor, and with
 * outputs bound to the memory of inputs. */
#include "codegen_t.h"

enum { WIDTH = 6, MOST = 40 };

typedef struct {
    rng *r;
    strbuf text;
    int n, rows[MOST]; /* values: %0 .. and their rows; each row has WIDTH elements */
} maker;

static int below(maker *m, int n) { return (int)rng_below(m->r, (uint64_t)n); }
static int pick(maker *m) { return below(m, 2) && m->n > 3 ? m->n - 1 - below(m, 3) : below(m, m->n); }
static void made(maker *m, int rows) { m->rows[m->n++] = rows; }

static int pick_rows(maker *m, int rows) /* another one as long; -1: none */
{
    int k = below(m, m->n);
    for (int i = 0; i < m->n; i++, k = (k + 1) % m->n)
        if (m->rows[k] == rows) return k;
    return -1;
}

static void put_slice(maker *m)
{
    int x = pick(m), n = 1 + below(m, m->rows[x]), at = below(m, m->rows[x] - n + 1);
    sb_printf(&m->text, "v%d = slice_by_size(v%d) {begin=[%d, 0], size=[%d, %d]}\n", m->n, x, at, n, WIDTH);
    made(m, n);
}

static void put_split(maker *m)
{
    int x = pick(m);
    if (m->rows[x] < 2 || m->n + 2 > MOST) return;
    int n = 1 + below(m, m->rows[x] - 1);
    sb_printf(&m->text, "v%d, v%d = split(v%d) {axis=0, split_sizes=[%d, %d]}\n", m->n, m->n + 1, x, n, m->rows[x] - n);
    int rest = m->rows[x] - n;
    made(m, n);
    made(m, rest);
}

static void put_join(maker *m)
{
    int a = pick(m), b = pick(m), c = pick(m), n = m->rows[a] + m->rows[b];
    if (n > 24) return;
    bool three = below(m, 2) && n + m->rows[c] <= 24;
    sb_printf(&m->text, "v%d = concat(v%d, v%d", m->n, a, b);
    if (three) sb_printf(&m->text, ", v%d", c), n += m->rows[c];
    sb_puts(&m->text, ") {axis=0}\n");
    made(m, n);
}

static void put_update(maker *m)
{
    int x = pick(m), n = 1 + below(m, m->rows[x]), at = below(m, m->rows[x] - n + 1), u = pick_rows(m, n);
    if (u < 0) return;
    sb_printf(&m->text, "v%d = slice_update(v%d, v%d) {begin=[%d, 0], end=[%d, %d]}\n", m->n, x, u, at, at + n, WIDTH);
    made(m, m->rows[x]);
}

static void put_arithmetic(maker *m)
{
    static const char *const fns[] = { "add", "sub", "maximum", "minimum" };
    int x = pick(m), y = pick_rows(m, m->rows[x]);
    if (below(m, 2)) sb_printf(&m->text, "v%d = %s(v%d, v%d)\n", m->n, fns[below(m, COUNT(fns))], x, y);
    else sb_printf(&m->text, "v%d = %s(v%d)\n", m->n, below(m, 2) ? "relu" : "abs", x);
    made(m, m->rows[x]);
}

static void put_product(maker *m)
{
    int x = pick(m);
    sb_printf(&m->text, "v%d = matmul(v%d, w)\n", m->n, x);
    made(m, m->rows[x]);
}

static void put_turn(maker *m) /* there and back through other shapes */
{
    int x = pick(m), n = m->rows[x];
    sb_printf(
        &m->text,
        "t%d = reshape(v%d) {shape=[%d, %d]}\nu%d = transpose(t%d) {perm=[1, 0]}\nv%d = reshape(u%d) {shape=[%d, %d]}\n",
        m->n, x, n * 2, WIDTH / 2, m->n, m->n, m->n, m->n, n, WIDTH);
    made(m, n);
}

static graph *make(rng *r, int ops, const char *type)
{
    static void (*const kinds[])(maker *) = { put_slice,  put_slice,      put_split,      put_join,    put_join,
                                              put_update, put_arithmetic, put_arithmetic, put_product, put_turn };
    maker m = { .r = r };
    sb_puts(&m.text, "graph \"copies\"\n");
    for (int k = 0; k < 3; k++) {
        int rows = 1 + below(&m, 6);
        sb_printf(&m.text, "v%d = input %s[%d, %d]\n", m.n, type, rows, WIDTH);
        made(&m, rows);
    }
    sb_printf(&m.text, "w = const %s[%d, %d] {", type, WIDTH, WIDTH);
    for (int k = 0; k < WIDTH * WIDTH; k++) sb_printf(&m.text, "%s%g", k ? ", " : "", (below(&m, 9) - 4) * 0.125);
    sb_puts(&m.text, "}\n");
    sb_printf(&m.text, "v%d = const %s[2, %d] all 0.75\n", m.n, type, WIDTH);
    made(&m, 2);
    while (ops-- > 0 && m.n + 1 < MOST) kinds[below(&m, COUNT(kinds))](&m);
    int outs = 1 + below(&m, 4);
    sb_puts(&m.text, "return ");
    for (int k = 0; k < outs; k++) sb_printf(&m.text, "%so%d=v%d", k ? ", " : "", k, k ? pick(&m) : m.n - 1);
    sb_puts(&m.text, "\n");
    graph *g = cgt_parse(m.text.at);
    sb_free(&m.text);
    return g;
}

static tensor64 *inputs_of(const graph *g, rng *r, arena *mem)
{
    tensor64 *in = TAKE(mem, tensor64, g->inputs.n);
    for (size_t i = 0; i < g->inputs.n; i++) {
        int64_t n;
        in[i].type = *graph_type(g, g->inputs.at[i]);
        assert_true(shape_elems(&in[i].type.sh, &n));
        in[i].x = TAKE(mem, double, (size_t)n);
        for (int64_t k = 0; k < n; k++) in[i].x[k] = (double)rng_below(r, 65) / 16 - 2;
    }
    return in;
}

/* Outputs lie on inputs of their size, each input taken once. */
static void **bind_onto(const program *p, const void *const *in, arena *mem)
{
    void **out = cgt_outputs(p, mem);
    bool taken[8] = { false };
    for (size_t k = 0; k < p->outputs.n; k++)
        for (size_t i = 0; i < p->inputs.n && i < COUNT(taken); i++)
            if (!taken[i] && p->inputs.at[i].bytes == p->outputs.at[k].bytes) {
                taken[i] = true, out[k] = (void *)(uintptr_t)in[i];
                break;
            }
    return out;
}

static int copies_saved;

static void check(const graph *g, const numerics *num, const tensor64 *in, arena *mem, const char *what)
{
    program *plain = cgt_compile(g, &(codegen_options){ .num = num, .level = 1, .no_reuse = true });
    void **want = cgt_outputs(plain, mem);
    cgt_run(plain, cgt_inputs(plain, g, in, mem), want, true);
    for (int resident = 0; resident < 2; resident++) {
        program *p = cgt_compile(g, &(codegen_options){ .num = num, .level = 1, .resident = resident });
        for (int fast = 0; fast < 2; fast++)
            for (int onto = 0; onto < 2; onto++) {
                const void **x = cgt_inputs(p, g, in, mem);
                void **got = onto ? bind_onto(p, x, mem) : cgt_outputs(p, mem);
                cgt_run(p, x, got, !fast);
                cgt_same_bytes(plain, want, p, got, what);
            }
        copies_saved += cgt_count(plain, IN_MOVE) - cgt_count(p, IN_MOVE);
        if (!resident) assert_true(p->scratch_bytes <= plain->scratch_bytes);
        program_free(p);
    }
    program_free(plain);
}

static void random_copies(void **state)
{
    (void)state;
    static const char *const chips[] = { "m1", "m4", "m5" };
    uint64_t seed = test_seed("copies left out");
    for (int i = 0; i < 400; i++) {
        rng r = { seed + (uint64_t)i * 7919 };
        bool cpu = i % 4 != 3;
        arena mem = { 0 };
        char what[64];
        numerics num = numerics_cpu;
        graph *g = make(&r, 4 + i % 24, cpu ? "fp32" : "fp16");
        tensor64 *in = inputs_of(g, &r, &mem), *want = TAKE(&mem, tensor64, g->outputs.n);
        if (!cpu) assert_true(codegen_numerics(chip_find(chips[i / 4 % 3]), &num));
        snprintf(what, sizeof what, "graph %d on %s", i, cpu ? "cpu" : chips[i / 4 % 3]);
        check(g, &num, in, &mem, what);
        if (cpu) { /* and both mean what the graph means */
            diag d = { 0 };
            program *p = cgt_compile(g, &(codegen_options){ .level = 1 });
            void **got = cgt_outputs(p, &mem);
            assert_ok(graph_eval(g, in, want, &mem, &d), d);
            cgt_run(p, cgt_inputs(p, g, in, &mem), got, false);
            cgt_close(p, got, g, want, 3e-5, what);
            program_free(p);
        }
        graph_free(g);
        arena_free(&mem);
    }
    assert_true(copies_saved > 400);
}

/* What is left of copies in small programs, on the plain processor. */
static void counted(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int moves;
    } rows[] = {
        /* parts of an input */
        { "x = input fp32[4, 6]\na, b = split(x) {axis=0, split_sizes=[1, 3]}\nc = exp(a)\nd = exp(b)\nreturn c, d\n", 0 },
        /* not runs */
        { "x = input fp32[4, 6]\na, b = split(x) {axis=1, split_sizes=[2, 4]}\nc = exp(a)\nd = exp(b)\nreturn c, d\n", 2 },
        /* made in place */
        { "x = input fp32[4, 6]\na = exp(x)\nb = sin(x)\nc = concat(a, b) {axis=0}\nreturn c\n", 0 },
        /* one place each */
        { "x = input fp32[4, 6]\na = exp(x)\nb = sin(x)\nc = concat(a, b, a) {axis=0}\nd = relu(c)\nreturn d\n", 1 },
        /* a result stays where it is */
        { "x = input fp32[4, 6]\na = exp(x)\nb = stack(a, x) {axis=0}\nreturn a, b\n", 2 },
        /* nobody reads a again */
        { "x = input fp32[4, 6]\nu = input fp32[2, 6]\na = exp(x)\nb = slice_update(a, u) {begin=[1, 0], end=[3, 6]}\nreturn b\n", 1 },
        { "x = input fp32[4, 6]\nu = input fp32[2, 6]\na = exp(x)\nb = slice_update(a, u) {begin=[1, 0], end=[3, 6]}\nc = sub(a, b)\nreturn c\n", 2 },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        strbuf t = { 0 };
        sb_printf(&t, "graph \"few\"\n%s", rows[i].text);
        graph *g = cgt_parse(t.at);
        program *p = cgt_compile(g, &(codegen_options){ .level = 1 });
        if (cgt_count(p, IN_MOVE) != rows[i].moves) {
            strbuf b = { 0 };
            program_print(p, &b);
            fail_msg("row %zu: %d copies, wanted %d\n%s", i, cgt_count(p, IN_MOVE), rows[i].moves, b.at);
        }
        program_free(p);
        graph_free(g);
        sb_free(&t);
    }
}

/* Places that must not be taken over, though they end there and have the size: what is read again by later elements. */
static void read_out_of_step(void **state)
{
    (void)state;
    static const struct {
        const char *chip, *text; /* chip: NULL is the plain processor */
        double size;             /* of the inputs; NaN: every fifth is none */
    } rows[] = {
        { NULL, "x = input fp32[1, 3]\nz = input fp32[4, 3]\na = reverse(x) {axes=[1]}\nb = add(a, z)\nc = reverse(b) {axes=[0, 1]}\nreturn c\n", 1 },
        { NULL, "x = input fp32[4, 1]\nz = input fp32[4, 3]\na = reverse(x) {axes=[0]}\nb = sub(z, a)\nc = reverse(b) {axes=[0, 1]}\nreturn c\n", 1 },
        { NULL, "x = input fp32[40, 30]\na = reverse(x) {axes=[0]}\ns = slice_by_size(a) {begin=[1, 0], size=[1, 30]}\nb = sub(a, s)\nc = reverse(b) {axes=[0, 1]}\nreturn c\n", 1 },
        { NULL, "x = input fp32[40, 30]\na = reverse(x) {axes=[0]}\ns = slice_by_size(a) {begin=[0, 0], size=[1, 30]}\nb = sub(a, s)\nc = reverse(b) {axes=[0, 1]}\nreturn c\n", 1 },
        { NULL, "x = input fp32[2, 400]\na = reverse(x) {axes=[0, 1]}\np, q = split(a) {axis=0, split_sizes=[1, 1]}\nb = sub(q, p)\nc = mul(p, b)\nd = concat(c, b) {axis=0}\ne = reverse(d) {axes=[1]}\nreturn e\n", 1 },
        { NULL, "x = input fp32[3000]\nu = input fp32[1]\na = reverse(x) {axes=[0]}\ns = slice_by_size(a) {begin=[0], size=[2999]}\nr = relu(s)\nb = abs(u)\nc = concat(b, r) {axis=0}\ny = reverse(c) {axes=[0]}\nreturn y\n", 1 },
        { NULL, "x = input fp32[3000]\nu = input fp32[1]\na = reverse(x) {axes=[0]}\ns = slice_by_size(a) {begin=[0], size=[2999]}\nt = slice_by_size(a) {begin=[1], size=[2999]}\nr = sub(t, s)\nb = abs(u)\nc = concat(b, r) {axis=0}\ny = reverse(c) {axes=[0]}\nreturn y\n", 1 },
        /* a copy makes it infinite, a norm something else */
        { "m1", "x = input fp16[4, 8]\ns = slice_by_size(x) {begin=[1, 0], size=[2, 8]}\ny = layer_norm(s) {axes=[1]}\nreturn y\n", NAN },
        { "m1", "x = input fp16[1, 4]\nk = const fp16[3, 4] {1, 2, 3, 4, 1, nan, 2, 3, 5, 6, 7, 8}\ns = slice_by_size(k) {begin=[1, 0], size=[1, 4]}\nn = layer_norm(s) {axes=[1]}\ny = add(n, x)\nreturn y\n", 1 },
        /* infinite behind an offset */
        { "m1", "x = input fp16[32]\na = relu(x)\nb = slice_by_size(a) {begin=[4], size=[16]}\nc = abs(b)\nreturn c\n", 5000 },
        { "m5", "x = input fp16[32]\na = relu(x)\nb = slice_by_size(a) {begin=[4], size=[16]}\nc = abs(b)\nreturn c\n", 5000 },
    };
    rng r = { test_seed("out of step") };
    for (size_t i = 0; i < COUNT(rows); i++) {
        strbuf t = { 0 };
        arena mem = { 0 };
        numerics num = numerics_cpu;
        sb_printf(&t, "graph \"step\"\n%s", rows[i].text);
        graph *g = cgt_parse(t.at);
        tensor64 *in = inputs_of(g, &r, &mem);
        for (size_t k = 0; k < g->inputs.n; k++) {
            int64_t n;
            assert_true(shape_elems(&in[k].type.sh, &n));
            for (int64_t e = 0; e < n; e++) in[k].x[e] *= isnan(rows[i].size) && e % 5 ? 1 : rows[i].size;
        }
        if (rows[i].chip) assert_true(codegen_numerics(chip_find(rows[i].chip), &num));
        check(g, &num, in, &mem, rows[i].text);
        graph_free(g);
        arena_free(&mem);
        sb_free(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(counted), cmocka_unit_test(read_out_of_step),
                                        cmocka_unit_test(random_copies) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
