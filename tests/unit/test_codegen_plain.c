/* test_codegen_plain.c: what becomes one instruction on the plain processor, and what only looks like it. */
#include <math.h>

#include "codegen_t.h"

static const struct {
    const char *what, *text;
    int total; /* instructions at level 1 */
    insn_id has;
} fast[] = {
    { "chain", "x = input fp32[64]\nz = input fp32[64]\na = add(x, z)\nb = sigmoid(a)\nc = mul(a, b)\nd = sub(c, z)\ny = tanh(d)\nreturn y\n", 1, IN_EW },
    { "swiglu", "x = input fp32[1, 4, 1, 8]\nw = const fp32[6, 4, 1, 1] all 0.5\nv = const fp32[6, 4, 1, 1] all 0.25\n"
                "a = conv(x, w)\nb = conv(x, v)\ns = sigmoid(a)\nm = mul(a, s)\ny = mul(m, b)\nreturn y\n", 2, IN_CONV },
    { "residual", "x = input fp32[1, 4, 1, 8]\nr = input fp32[1, 6, 1, 8]\nw = const fp32[6, 4, 1, 1] all 0.5\na = conv(x, w)\nh = const fp32[] {0.5}\nm = mul(a, h)\ny = add(r, m)\nreturn y\n", 1, IN_CONV },
    { "rms norm", "x = input fp32[1, 8, 1, 4]\ng = const fp32[1, 8, 1, 1] all 2\nq = square(x)\nm = reduce_mean(q) {axes=[1], keep_dims=true}\ne = const fp32[] {1e-5}\n"
                  "a = add(m, e)\nh = const fp32[] {-0.5}\nr = pow(a, h)\nn = mul(x, r)\ny = mul(n, g)\nreturn y\n", 1, IN_NORM },
    { "layer norm", "x = input fp32[4, 8]\ng = const fp32[8] all 2\nb = const fp32[8] all 1\nu = reduce_mean(x) {axes=[1], keep_dims=true}\nd = sub(x, u)\nq = mul(d, d)\n"
                    "s = reduce_sum(q) {axes=[1], keep_dims=true}\nk = const fp32[] {0.125}\nv = mul(s, k)\ne = const fp32[] {1e-5}\na = add(v, e)\nr = sqrt(a)\n"
                    "n = real_div(d, r)\nm = mul(n, g)\ny = add(m, b)\nreturn y\n", 1, IN_NORM },
    { "attention", "q = input fp32[2, 4, 8]\nk = input fp32[2, 4, 8]\nv = input fp32[2, 4, 8]\nm = input fp32[4, 4]\ns = matmul(q, k) {transpose_y=true}\nh = const fp32[] {0.5}\n"
                   "t = mul(s, h)\na = add(t, m)\np = softmax(a)\ny = matmul(p, v)\nreturn y\n", 1, IN_ATTEND },
    { "transposed operand", "x = input fp32[2, 4, 8]\nz = input fp32[2, 4, 8]\nt = transpose(z) {perm=[0, 2, 1]}\ny = matmul(x, t)\nreturn y\n", 1, IN_MATMUL },
    { "adam", "w = input fp32[64]\ng = input fp32[64]\nm = input fp32[64]\nv = input fp32[64]\na = const fp32[] {0.9}\nb = const fp32[] {0.1}\ne = const fp32[] {1e-3}\n"
              "p = mul(m, a)\nq = mul(g, b)\nm2 = add(p, q)\nr = mul(v, a)\ns = mul(g, g)\nt = mul(s, b)\nv2 = add(r, t)\nx = sqrt(v2)\ny = add(x, e)\nz = real_div(m2, y)\n"
              "w2 = sub(w, z)\nh = cast(w2) {dtype=\"fp16\"}\nreturn h, m2, v2, w2\n", 1, IN_EWS },
    { "adamw that clips and may not count",
      "w = input fp32[64]\ng = input fp32[64]\nm = input fp32[64]\nv = input fp32[64]\nf = input fp32[1]\nlr = input fp32[1]\ne = input fp32[1]\ndk = input fp32[1]\na = const fp32[] {0.9}\nb = const fp32[] {0.1}\n"
      "a2 = const fp32[] {0.95}\nb2 = const fp32[] {0.05}\nc = less_equal(f, a)\ngc = mul(g, f)\np = mul(m, a)\nq = mul(gc, b)\nm2 = add(p, q)\nr = mul(v, a2)\ns = mul(gc, gc)\nt = mul(s, b2)\n"
      "v2 = add(r, t)\nx = sqrt(v2)\ny = add(x, e)\nz = real_div(m2, y)\nu = mul(z, lr)\nk = mul(w, dk)\nuk = add(u, k)\nw2 = sub(w, uk)\nw3 = select(c, w2, w)\nm3 = select(c, m2, m)\nv3 = select(c, v2, v)\n"
      "return m3, v3, w3\n", 2, IN_EWS },
    { "two passes", "x = input fp32[4, 8]\na = relu(x)\ns = reduce_sum(a) {axes=[1], keep_dims=true}\nb = sub(a, s)\nreturn a, b\n", 3, IN_REDUCE },
    { "views", "x = input fp32[2, 4, 8]\na = reshape(x) {shape=[8, 8]}\nb = relu(a)\nc = expand_dims(b) {axes=[0]}\nd = softmax(c)\ny = squeeze(d)\nreturn y\n", 2, IN_SOFTMAX },
};

/* The quotient by a root and a number is one function, in the row above that asks for it. */
static void root_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(fast); i++) {
        if (strncmp(fast[i].what, "adam", 4)) continue;
        char text[2048];
        snprintf(text, sizeof text, "graph \"p\"\n%s", fast[i].text);
        program *p = compiled(text, &(codegen_options){ .level = 1 });
        strbuf b = { 0 };
        program_print(p, &b);
        assert_non_null(b.at);
        assert_non_null(strstr(b.at, "root_div("));
        assert_null(strstr(b.at, " div("));
        assert_null(strstr(b.at, " sqrt("));
        sb_free(&b);
        program_free(p);
    }
}

/* A large tensor is reduced right behind what made it, products that share an operand stay side by side. */
static void reductions_stand_close(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int at;
    } rows[] = {
        { "graph \"p\"\nx = input fp32[300, 300]\nz = input fp32[300, 300]\na = matmul(x, z)\nb = matmul(a, x)\nc = softmax(b)\n"
          "s = reduce_sum(a) {axes=[0, 1]}\nreturn a, c, s\n", 1 },
        { "graph \"p\"\nx = input fp32[300, 300]\nz = input fp32[300, 300]\nw = input fp32[300, 300]\na = matmul(x, z)\nb = matmul(x, w)\nc = softmax(b)\n"
          "s = reduce_sum(a) {axes=[0, 1]}\nreturn a, c, s\n", 2 },
        { "graph \"p\"\nx = input fp32[30, 30]\nz = input fp32[30, 30]\na = matmul(x, z)\nb = matmul(a, x)\nc = softmax(b)\n"
          "s = reduce_sum(a) {axes=[0, 1]}\nreturn a, c, s\n", 3 },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        program *p = compiled(rows[i].text, &(codegen_options){ .level = 1 });
        int at = -1;
        for (size_t k = 0; k < p->insns.n; k++)
            if (p->insns.at[k].op == IN_REDUCE) at = (int)k;
        assert_int_equal(at, rows[i].at);
        program_free(p);
    }
}

/* The sum of squares of a whole product is the product's second result on the plain processor, whatever lies between
 * them is a view; a part of it, another value and devices that round each pass keep the reduction. */
static void squares_in_passing(void **state)
{
    (void)state;
    enum { N = 70 };
    static const struct {
        const char *rest;
        bool fused;
    } rows[] = {
        { "s = reduce_sum_square(a) {axes=[0, 1]}\nreturn a, s\n", true },
        { "v = reshape(a) {shape=[1, 4900]}\ns = reduce_sum_square(v) {axes=[1], keep_dims=true}\nt = sqrt(s)\nreturn a, t\n", true },
        { "b = add(a, x)\ns = reduce_sum_square(b) {axes=[0, 1]}\nreturn b, s\n", true },
        { "s = reduce_sum_square(a) {axes=[1]}\nreturn a, s\n", false },
        { "s = reduce_sum(a) {axes=[0, 1]}\nreturn a, s\n", false },
        { "b = tanh(x)\ns = reduce_sum_square(b) {axes=[0, 1]}\nreturn a, s\n", false },
    };
    rng r = { test_seed("squares in passing") };
    static float x[N * N], z[N * N], got[2][N * N], want[2][N * N];
    for (int k = 0; k < N * N; k++) x[k] = (float)rng_normal(&r), z[k] = (float)rng_normal(&r);
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[512];
        snprintf(text, sizeof text, "graph \"p\"\nx = input fp32[70, 70]\nz = input fp32[70, 70]\na = matmul(x, z)\n%s",
                 rows[i].rest);
        program *p = compiled(text, &(codegen_options){ .level = 1 }),
                *plain = compiled(text, &(codegen_options){ .level = 0 });
        assert_int_equal(cgt_count(plain, IN_MATMUL_SQUARES), 0);
        assert_int_equal(cgt_count(p, IN_MATMUL_SQUARES), rows[i].fused);
        assert_int_equal(cgt_count(p, IN_REDUCE), !rows[i].fused);
        cgt_run(p, (const void *const[]){ x, z }, (void *const[]){ got[0], got[1] }, false);
        cgt_run(plain, (const void *const[]){ x, z }, (void *const[]){ want[0], want[1] }, true);
        for (int k = 0; k < (i == 3 ? N : 1); k++)
            assert_true(fabsf(got[1][k] - want[1][k]) <= 1e-4f * (1 + fabsf(want[1][k])));
        program_free(p);
        program_free(plain);
        numerics num = rules_of("m4");
        program *rounded = compiled(text, &(codegen_options){ .level = 1, .num = &num });
        assert_int_equal(cgt_count(rounded, IN_MATMUL_SQUARES), 0);
        program_free(rounded);
    }
}

/* Attention that is trained is one instruction if its mask is causal, and its way back one; they give what the
 * operations give, also where heads share their keys. */
static void attention_back(void **state)
{
    (void)state;
    enum { IN = 2 * 8 * 8, OUT = 2 * 8 * 8, MASK = 1, GROUP = 2, DV_READ = 4, EXTRA = 8 };
    static const int rows[] = { 0, MASK, GROUP, MASK | GROUP, MASK | DV_READ, MASK | EXTRA };
    rng r = { test_seed("attention back") };
    for (size_t i = 0; i < COUNT(rows); i++) {
        const bool mask = rows[i] & MASK, group = rows[i] & GROUP, read = rows[i] & DV_READ, extra = rows[i] & EXTRA;
        const char *from = group ? "reshape(" : "identity(", *to = group ? ") {shape=[1, 4, 4, 4]}" : ")",
                   *back = group ? ") {shape=[1, 2, 8, 4]}" : ")";
        char text[2048];
        snprintf(text, sizeof text,
                 "graph \"p\"\nq = input fp32[1, 2, 8, %d]\nk = input fp32[1, 2, 8, 4]\nv = input fp32[1, 2, 5, 4]\ndy = input fp32[1, 2, 5, %d]\n"
                 "m = const fp32[4, 4] {0, %d, %d, %d, 0, 0, %d, %d, 0, 0, 0, %d, 0, 0, 0, 0}\n"
                 "s = matmul(q, k) {transpose_x=true}\ns2 = %ss%s\nsm = add(s2, m)\np = softmax(sm)\np2 = %sp%s\ny = matmul(v, p2) {transpose_y=true}\n"
                 "dv = matmul(dy, p2)\n%sd = matmul(dy, v) {transpose_x=true}\ndp = %sd%s\nt = mul(dp, p)\nu = reduce_sum(t) {axes=[3], keep_dims=true}\nw = sub(dp, u)\n"
                 "ds = mul(p, w)\nds2 = %sds%s\ndq = matmul(k, ds2) {transpose_y=true}\ndk = matmul(q, ds2)\n%sreturn dk, dq, dv, y%s\n",
                 group ? 8 : 4, group ? 8 : 4, mask ? -10000 : 1, mask ? -10000 : 2, mask ? -10000 : 3, mask ? -10000 : 1, mask ? -10000 : 2, mask ? -10000 : 1, from, to, from, back,
                 read ? "z = tanh(dv)\n" : "", from, to, from, back, extra ? "z = tanh(ds2)\n" : "", read || extra ? ", z" : "");
        program *p = compiled(text, &(codegen_options){ .level = 1 }),
                *plain = compiled(text, &(codegen_options){ .level = 0 });
        assert_int_equal(cgt_count(plain, IN_ATTEND_BACK), 0);
        assert_int_equal(cgt_count(p, IN_ATTEND_BACK), extra ? 0 : 1);
        assert_int_equal(cgt_count(p, IN_ATTEND_KEEP), mask ? 1 : 0);
        assert_int_equal(cgt_count(p, IN_SOFTMAX), mask ? 0 : 1);
        float in[4][IN], got[5][OUT], want[5][OUT];
        for (int k = 0; k < 4; k++)
            for (int j = 0; j < IN; j++) in[k][j] = (float)rng_normal(&r);
        const void *const feed[] = { in[0], in[1], in[2], in[3] };
        memset(got, 0, sizeof got), memset(want, 0, sizeof want);
        cgt_run(p, feed, (void *const[]){ got[0], got[1], got[2], got[3], got[4] }, false);
        cgt_run(plain, feed, (void *const[]){ want[0], want[1], want[2], want[3], want[4] }, true);
        for (int k = 0; k < 5; k++)
            for (int j = 0; j < OUT; j++)
                if (!(fabsf(got[k][j] - want[k][j]) <= 1e-5f * fmaxf(1, fabsf(want[k][j]))))
                    fail_msg("row %zu: result %d element %d is %g, wanted %g", i, k, j, (double)got[k][j],
                             (double)want[k][j]);
        if (!extra) {
            const insn *n = NULL;
            for (size_t k = 0; k < p->insns.n; k++)
                if (p->insns.at[k].op == IN_ATTEND_BACK) n = &p->insns.at[k];
            assert_int_equal(n->i[0], mask ? 4 : 0);
        }
        program_free(p);
        program_free(plain);
    }
}

/* Two sequences beside each other: forward and back take them as they lie, and with bf16 products what only those
 * read is bf16. */
static void attention_apart(void **state)
{
    (void)state;
    enum { N = 2 * 8 * 3 * 4, IN = 4, OUT = 4 };
    static const char text[] =
        "graph \"p\"\nq0 = input fp32[2, 8, 3, 4]\nk0 = input fp32[2, 8, 3, 4]\nv0 = input fp32[2, 8, 3, 4]\ndy0 = input fp32[2, 8, 3, 4]\n"
        "m = const fp32[4, 4] {0, -10000, -10000, -10000, 0, 0, -10000, -10000, 0, 0, 0, -10000, 0, 0, 0, 0}\n"
        "q1 = tanh(q0)\nk1 = tanh(k0)\nv1 = tanh(v0)\ndy1 = tanh(dy0)\n"
        "q = transpose(q1) {perm=[2, 0, 1, 3]}\nk = transpose(k1) {perm=[2, 0, 1, 3]}\nv = transpose(v1) {perm=[2, 0, 1, 3]}\ndy = transpose(dy1) {perm=[2, 0, 1, 3]}\n"
        "s = matmul(q, k) {transpose_x=true}\nsm = add(s, m)\np = softmax(sm)\ny = matmul(v, p) {transpose_y=true}\ny1 = transpose(y) {perm=[1, 2, 0, 3]}\ny2 = tanh(y1)\n"
        "dv = matmul(dy, p)\ndv1 = transpose(dv) {perm=[1, 2, 0, 3]}\ndv2 = tanh(dv1)\ndp = matmul(dy, v) {transpose_x=true}\nt = mul(dp, p)\nu = reduce_sum(t) {axes=[3], keep_dims=true}\n"
        "w = sub(dp, u)\nds = mul(p, w)\ndq = matmul(k, ds) {transpose_y=true}\ndq1 = transpose(dq) {perm=[1, 2, 0, 3]}\ndq2 = tanh(dq1)\n"
        "dk = matmul(q, ds)\ndk1 = transpose(dk) {perm=[1, 2, 0, 3]}\ndk2 = tanh(dk1)\nreturn y2, dq2, dk2, dv2\n";
    rng r = { test_seed("attention apart") };
    float in[IN][N], got[OUT][N], want[OUT][N];
    for (int k = 0; k < IN; k++)
        for (int j = 0; j < N; j++) in[k][j] = (float)rng_normal(&r);
    const void *const feed[] = { in[0], in[1], in[2], in[3] };
    program *plain = compiled(text, &(codegen_options){ .level = 0 });
    cgt_run(plain, feed, (void *const[]){ want[0], want[1], want[2], want[3] }, true);
    program_free(plain);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        program *p = compiled(text, &(codegen_options){ .level = 1, .bf16 = bf16 });
        int narrow = 0;
        for (size_t i = 0; i < p->tensors.n; i++) narrow += p->tensors.at[i].dt == DT_BF16;
        assert_int_equal(cgt_count(p, IN_ATTEND_KEEP), 1);
        assert_int_equal(cgt_count(p, IN_ATTEND_BACK), 1);
        assert_int_equal(cgt_count(p, IN_MOVE), 0);
        /* q, k, v, dy and the weights, seen by each of the two; what tanh reads stays as it is */
        assert_int_equal(narrow, bf16 ? 6 : 0);
        cgt_run(p, feed, (void *const[]){ got[0], got[1], got[2], got[3] }, false);
        for (int k = 0; k < OUT; k++)
            for (int j = 0; j < N; j++)
                if (!(fabsf(got[k][j] - want[k][j]) <= (bf16 ? 2e-2f : 1e-5f)))
                    fail_msg("bf16 %d: result %d element %d is %g, wanted %g", bf16, k, j, (double)got[k][j],
                             (double)want[k][j]);
        program_free(p);
    }
}

static void fast_forms(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(fast); i++) {
        char text[1600];
        snprintf(text, sizeof text, "graph \"p\"\n%s", fast[i].text);
        program *p = compiled(text, &(codegen_options){ .level = 1 });
        if ((int)p->insns.n != fast[i].total || !cgt_count(p, fast[i].has)) {
            strbuf b = { 0 };
            program_print(p, &b);
            fail_msg("%s: %zu instructions, wanted %d\n%s", fast[i].what, p->insns.n, fast[i].total, b.at);
        }
        program_free(p);
    }
}

/* What has a name, nearly: the numbers are those of the graph. */
static void not_those(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "x = input fp32[64]\nz = input fp32[64]\ns = sigmoid(x)\ny = mul(z, s)\nreturn y\n",
        "x = input fp32[64]\nz = input fp32[64]\ns = sigmoid(x)\nt = mul(s, z)\ny = mul(t, x)\nreturn y\n",
        "x = input fp32[64]\nz = input fp32[64]\na = abs(z)\ns = sqrt(a)\nk = const fp32[] {4}\nt = sub(s, k)\ny = real_div(x, t)\nreturn y\n",
        "x = input fp32[64]\nz = input fp32[64]\na = abs(z)\ns = exp(a)\nt = add(x, s)\ny = real_div(t, s)\nreturn y\n",
        /* norms by another count, of another value, along other axes, with a factor that makes them larger */
        "x = input fp32[4, 8]\nq = square(x)\ns = reduce_sum(q) {axes=[1], keep_dims=true}\nk = const fp32[] {4}\nm = real_div(s, k)\ne = const fp32[] {1e-5}\na = add(m, e)\nr = rsqrt(a)\ny = mul(x, r)\nreturn y\n",
        "x = input fp32[4, 8]\nz = input fp32[4, 8]\nq = square(z)\nm = reduce_mean(q) {axes=[1], keep_dims=true}\ne = const fp32[] {1e-5}\na = add(m, e)\nr = rsqrt(a)\ny = mul(x, r)\nreturn y\n",
        "x = input fp32[4, 8]\nu = reduce_mean(x) {axes=[0], keep_dims=true}\nd = sub(x, u)\nq = square(d)\nm = reduce_mean(q) {axes=[1], keep_dims=true}\ne = const fp32[] {1e-5}\na = add(m, e)\nr = rsqrt(a)\ny = mul(d, r)\nreturn y\n",
        "x = input fp32[4, 8]\nz = input fp32[4, 8]\nu = reduce_mean(z) {axes=[1], keep_dims=true}\nd = sub(x, u)\nq = square(d)\nm = reduce_mean(q) {axes=[1], keep_dims=true}\ne = const fp32[] {1e-5}\na = add(m, e)\nr = rsqrt(a)\ny = mul(d, r)\nreturn y\n",
        "x = input fp32[1, 8]\ng = input fp32[4, 8]\nq = square(x)\nm = reduce_mean(q) {axes=[1], keep_dims=true}\ne = const fp32[] {1e-5}\na = add(m, e)\nr = rsqrt(a)\nn = mul(x, r)\ny = mul(n, g)\nreturn y\n",
        "x = input fp32[4, 8]\nq = square(x)\nm = reduce_mean(q) {axes=[1], keep_dims=true}\ne = const fp32[] {1e-5}\na = add(m, e)\np = const fp32[] {-0.25}\nr = pow(a, p)\ny = mul(x, r)\nreturn y\n",
        "x = input fp32[4, 8]\np = const fp32[] {3}\nv = abs(x)\nq = pow(v, p)\nm = reduce_mean(q) {axes=[1], keep_dims=true}\ne = const fp32[] {1e-5}\na = add(m, e)\nr = rsqrt(a)\ny = mul(v, r)\nreturn y\n",
        /* attention by columns, with a key for all stacks, with a mask of another shape, of weights that are read
         * again */
        "q = input fp32[2, 4, 8]\nk = input fp32[2, 4, 8]\nv = input fp32[2, 4, 8]\ns = matmul(q, k) {transpose_y=true}\np = softmax(s) {axis=1}\ny = matmul(p, v)\nreturn y\n",
        "q = input fp32[2, 4, 8]\nk = input fp32[1, 4, 8]\nv = input fp32[2, 4, 8]\ns = matmul(q, k) {transpose_y=true}\np = softmax(s)\ny = matmul(p, v)\nreturn y\n",
        "q = input fp32[2, 4, 8]\nk = input fp32[2, 4, 8]\nv = input fp32[2, 4, 8]\nm = input fp32[2, 1, 4]\ns = matmul(q, k) {transpose_y=true}\na = add(s, m)\np = softmax(a)\ny = matmul(p, v)\nreturn y\n",
        "q = input fp32[2, 4, 8]\nk = input fp32[2, 4, 8]\nv = input fp32[2, 4, 8]\ns = matmul(q, k) {transpose_y=true}\np = softmax(s)\ny = matmul(p, v)\nz = exp(p)\nreturn y, z\n",
        "q = input fp32[2, 4, 8]\nk = input fp32[2, 4, 8]\nv = input fp32[2, 4, 4]\ns = matmul(q, k) {transpose_y=true}\np = softmax(s)\ny = matmul(p, v) {transpose_x=true}\nreturn y\n",
        "q = input fp32[2, 4, 8]\nk = input fp32[2, 4, 8]\nv = input fp32[2, 4, 8]\nh = input fp32[1]\ns = matmul(q, k) {transpose_y=true}\nt = mul(s, h)\np = softmax(t)\ny = matmul(p, v)\nreturn y\n",
        "q = input fp32[2, 4, 8]\nk = input fp32[2, 4, 8]\nv = input fp32[2, 4, 8]\nh = const fp32[] {4}\ns = matmul(q, k) {transpose_y=true}\nt = real_div(s, h)\np = softmax(t)\ny = matmul(p, v)\nreturn y\n",
        "q = input fp32[2, 4, 8]\nk = input fp32[2, 4, 8]\nv = input fp32[2, 4, 8]\nm = const fp32[2, 4, 4] {0, -10000, -10000, -10000, 0, 0, -10000, -10000, 0, 0, 0, -10000, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}\ns = matmul(q, k) {transpose_y=true}\na = add(s, m)\np = softmax(a)\ny = matmul(p, v)\nreturn y\n",
        /* masks by places that do not count, hide little, or have a window of other places */
        "q = input fp32[2, 4, 8]\nk = input fp32[2, 4, 8]\nv = input fp32[2, 4, 8]\ni = const int32[4] {0, 1, 3, 2}\no = const int32[4, 1] {0, 1, 2, 3}\nn = const fp32[] {-10000}\nz = const fp32[] {0}\nc = greater(i, o)\nm = select(c, n, z)\ns = matmul(q, k) {transpose_y=true}\na = add(s, m)\np = softmax(a)\ny = matmul(p, v)\nreturn y\n",
        "q = input fp32[2, 4, 8]\nk = input fp32[2, 4, 8]\nv = input fp32[2, 4, 8]\ni = const int32[4] {0, 1, 2, 3}\no = const int32[4, 1] {0, 1, 2, 3}\nn = const fp32[] {-1}\nz = const fp32[] {0}\nc = greater(i, o)\nm = select(c, n, z)\ns = matmul(q, k) {transpose_y=true}\na = add(s, m)\np = softmax(a)\ny = matmul(p, v)\nreturn y\n",
        "q = input fp32[2, 4, 8]\nk = input fp32[2, 4, 8]\nv = input fp32[2, 4, 8]\ni = const int32[4] {0, 1, 2, 3}\no = const int32[4, 1] {0, 1, 2, 3}\nn = const fp32[] {-10000}\nz = const fp32[] {0}\nc = greater(i, o)\nm1 = select(c, n, z)\nb = const int32[4, 1] {1, 2, 2, 3}\nw = const int32[] {2}\nl = sub(b, w)\ne = less_equal(i, l)\nm = select(e, n, m1)\ns = matmul(q, k) {transpose_y=true}\na = add(s, m)\np = softmax(a)\ny = matmul(p, v)\nreturn y\n",
        /* norms by the largest magnitude, of something that is cut, by another root, of another value; a sum times
         * another count */
        "x = input fp32[4, 8]\nz = input fp32[4, 8]\nv = abs(x)\nt = reduce_max(v) {axes=[1], keep_dims=true}\nr = const fp32[] {0.5}\nr2 = const fp32[] {0.5}\nm = maximum(t, r)\nd = real_div(x, m)\nu = clip(d) {alpha=-0.5, beta=0.5}\nq = square(u)\ns = reduce_mean(q) {axes=[1], keep_dims=true}\nw = real_div(r2, m)\nw2 = square(w)\na = add(s, w2)\no = rsqrt(a)\ny = mul(u, o)\nreturn y\n",
        "x = input fp32[4, 8]\nz = input fp32[4, 8]\nv = abs(x)\nt = reduce_max(v) {axes=[1], keep_dims=true}\nr = const fp32[] {0.5}\nr2 = const fp32[] {0.25}\nm = maximum(t, r)\nd = real_div(x, m)\nu = clip(d) {alpha=-1, beta=1}\nq = square(u)\ns = reduce_mean(q) {axes=[1], keep_dims=true}\nw = real_div(r2, m)\nw2 = square(w)\na = add(s, w2)\no = rsqrt(a)\ny = mul(u, o)\nreturn y\n",
        "x = input fp32[4, 8]\nz = input fp32[4, 8]\nv = abs(z)\nt = reduce_max(v) {axes=[1], keep_dims=true}\nr = const fp32[] {0.5}\nr2 = const fp32[] {0.5}\nm = maximum(t, r)\nd = real_div(x, m)\nu = clip(d) {alpha=-1, beta=1}\nq = square(u)\ns = reduce_mean(q) {axes=[1], keep_dims=true}\nw = real_div(r2, m)\nw2 = square(w)\na = add(s, w2)\no = rsqrt(a)\ny = mul(u, o)\nreturn y\n",
        "x = input fp32[4, 8]\nq = square(x)\ns = reduce_sum(q) {axes=[1], keep_dims=true}\nk = const fp32[] {0.25}\nm = mul(s, k)\ne = const fp32[] {1e-5}\na = add(m, e)\nr = rsqrt(a)\ny = mul(x, r)\nreturn y\n",
        /* sums of products both along rows, and one that is read before the other is taken */
        "a = input fp32[8, 16]\nb = input fp32[8, 16]\ng = input fp32[16]\np = mul(a, b)\ns = reduce_sum(p) {axes=[1]}\nq = mul(a, b)\nr = mul(q, g)\nt = reduce_sum(r) {axes=[1]}\nreturn s, t\n",
        "a = input fp32[8, 16]\nb = input fp32[8, 16]\np = mul(a, b)\ns = reduce_sum(p) {axes=[1], keep_dims=true}\ne = tanh(s)\nf = softmax(e) {axis=0}\nq = mul(a, b)\nt = reduce_sum(q) {axes=[0]}\nreturn f, t\n",
    };
    rng r = { test_seed("not those") };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[1024], what[32];
        snprintf(text, sizeof text, "graph \"p\"\n%s", rows[i]);
        snprintf(what, sizeof what, "row %zu", i);
        graph *g = cgt_parse(text);
        arena mem = { 0 };
        diag d = { 0 };
        tensor64 *in = cgt_random(g, &r, &mem), *want = TAKE(&mem, tensor64, g->outputs.n);
        assert_ok(graph_eval(g, in, want, &mem, &d), d);
        program *p = cgt_compile(g, &(codegen_options){ .level = 1 });
        void **out = cgt_outputs(p, &mem);
        cgt_run(p, cgt_inputs(p, g, in, &mem), out, false);
        cgt_close(p, out, g, want, 1e-5, what);
        program_free(p);
        arena_free(&mem);
        graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(root_is_named),
        cmocka_unit_test(reductions_stand_close),
        cmocka_unit_test(squares_in_passing),
        cmocka_unit_test(attention_back),
        cmocka_unit_test(attention_apart),
        cmocka_unit_test(fast_forms),
        cmocka_unit_test(not_those),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
