/* test_special.c: zeros of both signs, infinities, NaN, the smallest and the largest numbers on the plain processor:
 * evaluator, reference and each instruction set of the executor mean the same by them. */
#include <ctype.h>
#include <float.h>

#include "base/fpmode.h"
#include "codegen_t.h"
#include "grad/grad.h"
#include "kernel/kernel.h"

static const double special[] = {
    0,        -0.0,      INFINITY, -INFINITY, NAN,      1,         -1,       0.5,     -0.5,     2,
    -2,       3,         -3,       7,         -7,       0.125,     -0.125,   0x1p-10, -0x1p-10, 10,
    -10,      20,        -20,      30.5,      -30.5,    87,        -87,      89,      -89,      104,
    -104,     200,       -200,     1000,      -1000,    65504,     -65504,   0x1p-24, -0x1p-24, 0x1p-14,
    0x1p-120, -0x1p-120, FLT_MIN,  -FLT_MIN,  0x1p-149, -0x1p-149, 0x1p-130, 0x1p33,  -0x1p33,  1e19,
    -1e19,    1e30,      -1e30,    3e38,      -3e38,    FLT_MAX,   -FLT_MAX,
};
enum { SPECIAL = COUNT(special) };

/* How far results may be off: `rel` of themselves, `least` however small they are, and one rounding. Fp32 numbers
 * below the normal ones may be zero; a zero has its sign. */
typedef struct {
    double rel, least;
} off;

static bool alike(dtype t, double got, double want, off o)
{
    double top = t == DT_F16 ? 65504 : FLT_MAX,
           step = t == DT_F16 ? fmax(0x1p-11 * fabs(want), 0x1p-25) : fabs(want) * (t == DT_BF16 ? 0x1p-8 : 0x1p-24);
    if (isnan(got) || isnan(want)) return isnan(got) && isnan(want);
    if (got == 0 && !signbit(got) != !signbit(want) && (want == 0 || o.least == 0)) return false;
    if (isinf(got) || isinf(dtype_round(t, want)))
        return got == dtype_round(t, want) ||
               (fabs(isinf(got) ? want : got) >= top * (1 - o.rel) && !signbit(got) == !signbit(want));
    return fabs(got - want) <= o.rel * fabs(want) + 1.01 * step + fmax(o.least, fabs(want) < FLT_MIN ? FLT_MIN : 0);
}

/* On some processors (aarch64) what flushes results takes operands below the normal numbers for zero as well. */
static bool flushes_operands(void)
{
    const fp_mode was = fp_mode_get();
    volatile float least = 0x1p-130f, large = 0x1p20f;
    fp_mode_set(fp_mode_flushing(was));
    volatile float product = least * large;
    fp_mode_set(was);
    return product == 0;
}

/* values: of the inputs, in a row each; NULL: special numbers, the second input's in the other order of a table of
 * all pairs. */
static void agree(graph *g, const double *const *values, off o, int least_level, const char *what)
{
    static const char *const isas[] = { "scalar", "avx2", "avx512", "neon", "" };
    const bool none_below = flushes_operands();
    arena mem = { 0 };
    diag d = { 0 };
    tensor64 *in = TAKE(&mem, tensor64, g->inputs.n), *want = TAKE(&mem, tensor64, g->outputs.n);
    assert_true(in && want);
    for (size_t k = 0; k < g->inputs.n; k++) {
        int64_t n;
        in[k].type = *graph_type(g, g->inputs.at[k]);
        assert_true(shape_elems(&in[k].type.sh, &n));
        in[k].x = TAKE(&mem, double, (size_t)n);
        assert_non_null(in[k].x);
        for (int64_t j = 0; j < n; j++) {
            const double v =
                dtype_round(in[k].type.dt, values ? values[k][j] : special[(k == 1 ? j / SPECIAL : j) % SPECIAL]);
            in[k].x[j] = none_below && fabs(v) < FLT_MIN ? copysign(0, v) : v;
        }
    }
    assert_ok(graph_eval(g, in, want, &mem, &d), d);
    for (int level = least_level; level < 2; level++) {
        program *p = cgt_compile(g, &(codegen_options){ .level = level });
        const void **from = cgt_inputs(p, g, in, &mem);
        void **to = cgt_outputs(p, &mem);
        for (size_t a = 0; a <= COUNT(isas); a++) { /* the last: the reference */
            uint32_t have;
            diag none = { 0 };
            if (a < COUNT(isas)) assert_int_equal(setenv("AN_ISA", isas[a], 1), 0);
            bool there = a == COUNT(isas) || !isa_have(&have, &none);
            if (there) cgt_run(p, from, to, a == COUNT(isas));
            unsetenv("AN_ISA");
            for (size_t i = 0; there && i < p->outputs.n; i++)
                for (size_t k = 0; k < g->outputs.n; k++) {
                    int64_t n;
                    dtype t = want[k].type.dt;
                    assert_true(shape_elems(&want[k].type.sh, &n));
                    if (strcmp(p->outputs.at[i].name, g->outputs.at[k].name)) continue;
                    for (int64_t j = 0; j < n; j++)
                        if (!alike(t, dtype_load(t, to[i], j), want[k].x[j], o))
                            fail_msg("%s, level %d, %s: %s[%lld] is %.9g, wanted %.9g (%g, %g)", what, level,
                                     a < COUNT(isas) ? isas[a] : "reference", p->outputs.at[i].name, (long long)j,
                                     dtype_load(t, to[i], j), want[k].x[j], values ? 0 : special[j % SPECIAL],
                                     values ? 0 : special[j / SPECIAL % SPECIAL]);
                }
        }
        program_free(p);
    }
    arena_free(&mem);
}

static void agree_text(const char *text, const double *const *values, off o, int least_level)
{
    graph *g = cgt_parse(text);
    agree(g, values, o, least_level, text);
    graph_free(g);
}

static const char *const types[] = { "fp32", "fp16", "bf16" };
/* what the quicker forms of 16 bits may lose beside fp32's */
static const double wide[] = { 0x1p-24, 0x1p-11, 0x1p-8 };

/* ---- element by element ---- */

enum { PAIRS = SPECIAL * SPECIAL, FEW = 19 }; /* one tile or less, and many */

static const struct {
    const char *op, *attrs;
    double rel, least; /* of vector.def */
    bool smooth;       /* its slope is looked at too */
} unary[] = {
    { "silu", "", 1e-6, 2e-33, true },
    { "gelu", "", 1e-6, 1e-6, true },
    { "gelu", "{mode=\"TANH_APPROXIMATION\"}", 1e-6, 1e-6, true },
    { "gelu", "{mode=\"SIGMOID_APPROXIMATION\"}", 1e-6, 1e-6, true },
    { "tanh", "", 1e-6, 0, false },
    { "abs", "", 0, 0, false },
    { "square", "", 0, 0, false },
    { "sqrt", "", 0, 0, false },
    { "rsqrt", "", 1e-6, 0, false },
    { "inverse", "", 1e-6, 0, false },
    { "relu", "", 0, 0, false },
    { "relu6", "", 0, 0, false },
    { "leaky_relu", "", 1e-6, 0, false },
    { "clamped_relu", "{alpha=0.25, beta=3}", 0, 0, false },
    { "thresholded_relu", "", 0, 0, false },
    { "threshold", "{alpha=0.5}", 0, 0, false },
    { "clip", "{alpha=-1, beta=2}", 0, 0, false },
    { "clip", "{alpha=0, beta=6}", 0, 0, false },
    { "linear_activation", "{alpha=2, beta=0.5}", 1e-6, 0, false },
    { "elu", "", 1e-6, 0, false },
    { "sigmoid", "", 1e-6, 2e-35, false },
    { "sigmoid_hard", "", 1e-6, 1e-7, false },
    { "scaled_tanh", "{alpha=2, beta=0.5}", 1e-6, 0, false },
    { "softplus", "", 1e-6, 0, false },
    { "softsign", "", 1e-6, 0, false },
    { "erf", "", 1e-6, 0, false },
    { "exp", "", 1e-6, 1.2e-38, false },
    { "exp2", "", 1e-6, 0, false },
    { "log", "{epsilon=1e-6}", 1e-6, 1e-7, false },
    { "sign", "", 0, 0, false },
    { "ceil", "", 0, 0, false },
    { "floor", "", 0, 0, false },
    { "round", "", 0, 0, false },
    { "sin", "", 1e-6, 0, false },
    { "cos", "", 1e-6, 0, false },
    { "atan", "", 1e-6, 0, false },
};

static void one_operand(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(unary); i++)
        for (size_t t = 0; t < COUNT(types); t++)
            for (int few = 0; few < 2; few++) {
                char text[300];
                snprintf(text, sizeof text, "graph \"g\"\nx = input %s[%d]\ny = %s(x) %s\nreturn y\n", types[t],
                         few ? FEW : PAIRS, unary[i].op, unary[i].attrs);
                agree_text(text, NULL, (off){ unary[i].rel + (t ? wide[t] : 0), unary[i].least }, 0);
            }
}

static const char *const binary[] = {
    "add",     "sub",   "mul",       "real_div", "floor_div",     "pow",  "maximum",
    "minimum", "equal", "not_equal", "greater",  "greater_equal", "less", "less_equal"
};

static void two_operands(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(binary); i++)
        for (size_t t = 0; t < COUNT(types); t++) {
            char text[300];
            snprintf(text, sizeof text, "graph \"g\"\nx = input %s[%d]\nz = input %s[%d]\ny = %s(x, z)\nreturn y\n",
                     types[t], PAIRS, types[t], PAIRS, binary[i]);
            agree_text(text, NULL, (off){ 1e-6, 0 }, 0);
        }
}

/* ---- back ---- */

static void slopes(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(unary); i++)
        for (size_t t = 0; t < COUNT(types) && unary[i].smooth; t++) {
            char text[300];
            snprintf(
                text, sizeof text,
                "graph \"g\"\nx = input %s[%d]\ny = %s(x) %s\nl = reduce_sum(y) {axes=[0], keep_dims=true}\nreturn l\n",
                types[t], SPECIAL, unary[i].op, unary[i].attrs);
            graph *g = cgt_parse(text);
            val x = g->inputs.at[0], loss = g->outputs.at[0].v, dx = NO_VAL;
            diag d = { 0 };
            assert_ok(grad_build(g, loss, &x, 1, &dx, NULL, &d), d);
            g->outputs.n = 0;
            graph_output(g, "dx", dx);
            assert_ok(graph_finish(g, &d), d);
            agree(g, NULL, (off){ 1e-5 + (t ? 4 * wide[t] : 0), 1e-6 + (t ? 4 * wide[t] : 0) }, 0, text);
            arena mem = { 0 }; /* and it is a number wherever x is one */
            tensor64 in = { .type = *graph_type(g, x), .x = (double *)(uintptr_t)special }, out;
            assert_ok(graph_eval(g, &in, &out, &mem, &d), d);
            for (int k = 0; k < SPECIAL; k++)
                if (isfinite(out.x[k]) == isnan(special[k]))
                    fail_msg("%s: the slope at %g is %g", text, special[k], out.x[k]);
            arena_free(&mem);
            graph_free(g);
        }
}

/* ---- weights that are not finite ---- */

/* Padding is zeros, and 0 * inf no number; a place that a transposed convolution does not reach is no zero. */
static const struct {
    const char *op, *attrs;
    int kernel;
} windows[] = {
    { "conv", "{pad_type=\"custom\", pad=[1, 1, 1, 1]}", 3 },
    { "conv", "{pad_type=\"same\", strides=[2, 2], dilations=[2, 1]}", 3 },
    { "conv", "{pad_type=\"custom\", pad=[1, 0, 0, 1]}", 1 },
    { "conv_transpose", "", 3 },
    { "conv_transpose", "{strides=[2, 2], pad_type=\"custom\", pad=[1, 1, 0, 0]}", 3 },
    { "conv_transpose", "{strides=[3, 2]}", 1 },
};

static void odd_weights(void **state)
{
    (void)state;
    enum { IN = 2, OUT = 2, SIDE = 5, MOST = IN * OUT * 9 };
    static const double odd[] = { INFINITY, -INFINITY, NAN };
    double x[IN * SIDE * SIDE], w[MOST];
    for (int i = 0; i < IN * SIDE * SIDE; i++) x[i] = i % 7 - 3;
    for (size_t i = 0; i < COUNT(windows); i++)
        for (size_t t = 0; t < 2; t++)
            for (int at = 0; at < 2 * (int)COUNT(odd); at++) { /* as a constant, as an input */
                const int taps = windows[i].kernel * windows[i].kernel, n = IN * OUT * taps;
                char text[1200], list[800] = "";
                for (int k = 0; k < n; k++) w[k] = k == n / 2 + 1 ? odd[at / 2] : k % 5 - 2;
                for (int k = 0; k < n; k++)
                    snprintf(list + strlen(list), sizeof list - strlen(list), "%s%g", k ? ", " : "",
                             isnan(w[k]) ? (double)NAN : w[k]);
                snprintf(
                    text, sizeof text,
                    "graph \"g\"\nx = input %s[1, %d, %d, %d]\nw = %s %s[%d, %d, %d, %d]%s%s%s\ny = %s(x, w) %s\nreturn y\n",
                    types[t], IN, SIDE, SIDE, at % 2 ? "input" : "const", types[t], OUT, IN, windows[i].kernel,
                    windows[i].kernel, at % 2 ? "" : " {", at % 2 ? "" : list, at % 2 ? "" : "}", windows[i].op,
                    windows[i].attrs);
                agree_text(text, (const double *const[]){ x, w }, (off){ 0 }, 0);
            }
}

/* ---- squares that leave fp32 ---- */

/* Lines of large numbers, of some that are, of infinities and NaN, and of others, whose neighbours they are. */
static const struct {
    const char *shape, *op;
    int n; /* of a line */
} norms[] = {
    { "[6, 9]", "layer_norm(x) {axes=[1]}", 9 },
    { "[6, 300]", "layer_norm(x) {axes=[1]}", 300 },
    { "[6, 300]", "layer_norm(x, g, b) {axes=[1]}", 300 },
    { "[1, 6, 3, 7]", "instance_norm(x)", 21 },
    { "[1, 6, 30, 10]", "instance_norm(x)", 300 },
    { "[6, 3, 3, 1]", "l2_norm(x)", 9 },
    { "[6, 3, 10, 10]", "l2_norm(x)", 300 },
    { "[6, 9]", "reduce_l2_norm(x) {axes=[1]}", 9 },
    { "[6, 300]", "reduce_l2_norm(x) {axes=[1]}", 300 },
    { "[1, 6, 30, 10]", "reduce_l2_norm(x) {axes=[0, 2, 3]}", 300 },
    { "[6, 300]", "rms", 300 },
    { "[9, 6]", "layer_norm(x) {axes=[0]}", 9 },
    { "[300, 6]", "layer_norm(x, g, b) {axes=[0]}", 300 },
    { "[300, 6]", "reduce_l2_norm(x) {axes=[0]}", 300 },
    { "[1, 300, 1, 6]", "rms down", 300 },
};

static void large_norms(void **state)
{
    (void)state;
    enum { LINES = 6 };
    double x[LINES * 300];
    for (size_t i = 0; i < COUNT(norms); i++)
        for (size_t t = 0; t < COUNT(types); t += 2) { /* fp16 has no such numbers */
            const int n = norms[i].n;
            const bool down = strstr(norms[i].op, "axes=[0]") || strstr(norms[i].op, "down");
            char text[700];
            for (int k = 0; k < LINES * n; k++) {
                const double u = (k * 7 % 11 - 4.5) / 8;
                const double size[LINES] = { 1e38, 1, 1e19, k % n ? 1 : 1e25, 1, 1 };
                x[down ? k % n * LINES + k / n : k] = k / n == 4 && k % n == 2   ? INFINITY
                                                      : k / n == 5 && k % n == 1 ? NAN
                                                                                 : u * size[k / n];
            }
            bool rms = strstr(norms[i].op, "rms");
            snprintf(
                text, sizeof text,
                "graph \"g\"\nx = input %s%s\ng = const %s[%d] all 2\nb = const %s[%d] all 0.5\n%s%s\nreturn y\n",
                types[t], norms[i].shape, types[t], n, types[t], n, rms ? "" : "y = ",
                rms ? "q = square(x)\nm = reduce_mean(q) {axes=[1], keep_dims=true}\ne = rsqrt(m) {epsilon=1e-5}\ny = mul(x, e)"
                    : norms[i].op);
            /* in small operations it is none before it is recognised */
            agree_text(text, (const double *const[]){ x }, (off){ 1e-4 + (t ? 4 * wide[t] : 0), 1e-4 }, rms);
        }
}

/* ---- keys that a mask leaves out ---- */

/* They have no effect, be their scores or values no numbers. The last row has no key, and no value. */
static void masked_keys(void **state)
{
    (void)state;
    enum { HEADS = 2, ROWS = 5, KEYS = 70, WIDTH = 8 };
    static double q[HEADS * ROWS * WIDTH], k[HEADS * KEYS * WIDTH], v[HEADS * KEYS * WIDTH], m[ROWS * KEYS];
    static const double odd[] = { NAN, INFINITY, -INFINITY };
    rng r = { 7 };
    for (size_t i = 0; i < COUNT(q); i++) q[i] = rng_range(&r, -1, 1);
    for (size_t t = 0; t < COUNT(types); t++)
        for (int which = 0; which < 2 * (int)COUNT(odd); which++)
            for (int plain = 0; plain < 2; plain++) { /* a bool mask; one of numbers */
                for (size_t i = 0; i < COUNT(k); i++) k[i] = rng_range(&r, -1, 1), v[i] = rng_range(&r, -1, 1);
                for (int i = 0; i < ROWS; i++)
                    for (int j = 0; j < KEYS; j++) {
                        const bool in = j % 9 != 4 && j < 60 && i != ROWS - 1;
                        m[i * KEYS + j] = plain ? (in ? (j % 5) * 0.25 : -INFINITY) : in;
                    }
                for (int h = 0; h < HEADS; h++)
                    for (int j = 4; j < KEYS; j += 9) (which % 2 ? v : k)[(h * KEYS + j) * WIDTH + 3] = odd[which / 2];
                char text[500];
                snprintf(
                    text, sizeof text,
                    "graph \"g\"\nq = input %s[%d, %d, %d]\nk = input %s[%d, %d, %d]\nv = input %s[%d, %d, %d]\nm = input %s[%d, %d]\ny = scaled_dot_product_attention(q, k, v, m)\nreturn y\n",
                    types[t], HEADS, ROWS, WIDTH, types[t], HEADS, KEYS, WIDTH, types[t], HEADS, KEYS, WIDTH,
                    plain ? types[t] : "bool", ROWS, KEYS);
                agree_text(text, (const double *const[]){ q, k, v, m },
                           (off){ 1e-5 + (t ? 8 * wide[t] : 0), 1e-5 + (t ? 8 * wide[t] : 0) }, 0);
            }
}

/* ---- lines with a special number or two ---- */

static const struct {
    const char *op;
    double least;
} lines[] = {
    { "reduce_sum(x) {axes=[1]}", 1e-4 }, { "reduce_mean(x) {axes=[1]}", 1e-5 }, { "reduce_max(x) {axes=[1]}", 0 }, { "reduce_min(x) {axes=[1]}", 0 },
    { "reduce_sum_square(x) {axes=[1]}", 1e-3 }, { "reduce_l1_norm(x) {axes=[1]}", 1e-4 }, { "reduce_l2_norm(x) {axes=[1]}", 1e-5 }, { "reduce_log_sum_exp(x) {axes=[1]}", 1e-5 },
    { "reduce_argmax(x) {axis=1}", 0 }, { "reduce_argmin(x) {axis=1}", 0 }, { "softmax(x) {axis=1}", 1e-6 }, { "cumsum(x) {axis=1}", 1e-4 },
    { "layer_norm(x) {axes=[1]}", 1e-5 }, { "layer_norm(x) {axes=[0]}", 1e-5 },
    { "reduce_sum(x) {axes=[0]}", 1e-4 }, { "reduce_mean(x) {axes=[0]}", 1e-5 }, { "reduce_max(x) {axes=[0]}", 0 }, { "reduce_min(x) {axes=[0]}", 0 },
    { "reduce_sum_square(x) {axes=[0]}", 1e-3 }, { "reduce_l1_norm(x) {axes=[0]}", 1e-4 }, { "reduce_l2_norm(x) {axes=[0]}", 1e-5 }, { "reduce_log_sum_exp(x) {axes=[0]}", 1e-5 },
    { "reduce_argmax(x) {axis=0}", 0 }, { "reduce_argmin(x) {axis=0}", 0 }, { "softmax(x) {axis=0}", 1e-6 }, { "cumsum(x) {axis=0}", 1e-4 },
};

static void odd_lines(void **state)
{
    (void)state;
    static const double some[][2] = { { INFINITY, 1 }, { -INFINITY, 1 }, { NAN, 1 }, { -0.0, -0.0 }, { INFINITY, -INFINITY }, { INFINITY, INFINITY }, { -INFINITY, -INFINITY }, { INFINITY, NAN }, { NAN, -INFINITY }, { 0x1p-140, 1 }, { 1, 1 }, { -INFINITY, -INFINITY } };
    enum { LINES = COUNT(some), MOST = 300 }; /* the last is -inf throughout */
    static double x[LINES * MOST];
    static const int lengths[] = { 3, 5, 40, 300 };
    for (size_t i = 0; i < COUNT(lines); i++)
        for (size_t t = 0; t < COUNT(types); t++)
            for (size_t l = 0; l < COUNT(lengths); l++) {
                const int n = lengths[l];
                const bool down = strstr(lines[i].op, "[0]") || strstr(lines[i].op, "axis=0");
                for (int k = 0; k < LINES * n; k++) {
                    const int line = k / n, at = k % n;
                    x[down ? at * LINES + line : k] = line == LINES - 1 || at == n / 3 ? some[line][0]
                                                      : at == n - 1                    ? some[line][1]
                                                                                       : (k * 7 % 11 - 4.5) / 4;
                }
                char text[300];
                snprintf(text, sizeof text, "graph \"g\"\nx = input %s[%d, %d]\ny = %s\nreturn y\n", types[t],
                         down ? n : LINES, down ? LINES : n, lines[i].op);
                agree_text(text, (const double *const[]){ x },
                           (off){ 1e-5 + (t ? 2 * wide[t] : 0),
                                  lines[i].least == 0 ? 0 : lines[i].least + (t ? 4 * wide[t] : 0) },
                           0);
            }
}

/* ---- several operations ---- */

/* T: the type, N: how many special numbers there are. */
static const struct {
    const char *text;
    double rel, least;
} graphs[] = {
#define ACT(f) { "x = input T[N, 1]\nw = const T[1, 40] all 1\nm = matmul(x, w)\ny = " f "\nreturn y\n", 1e-5, 1e-6 }, { "x = input T[1, 1, 1, N]\nw = const T[3, 1, 1, 1] all 2\nm = conv(x, w)\ny = " f "\nreturn y\n", 1e-5, 1e-6 }
    ACT("silu(m)"), ACT("gelu(m)"), ACT("gelu(m) {mode=\"TANH_APPROXIMATION\"}"), ACT("sigmoid(m)"), ACT("tanh(m)"), ACT("exp(m)"), ACT("add(m, m)"),
#undef ACT
    { "x = input T[1, N]\na = const T[N] all 0.25\ny = prelu(x, a)\nreturn y\n", 0, 0 },
    { "x = input T[1, N]\na = const T[N] all 0.25\nb = const T[N] all 2\ny = softplus_parametric(x, a, b)\nreturn y\n", 1e-6, 0 },
    { "x = input T[N]\ny = cast(x) {dtype=\"int32\"}\nreturn y\n", 0, 0 },
    { "x = input T[N]\ny = cast(x) {dtype=\"bool\"}\nreturn y\n", 0, 0 },
    { "x = input T[N]\ny = cast(x) {dtype=\"uint8\"}\nreturn y\n", 0, 0 },
    { "x = input T[N]\ny = cast(x) {dtype=\"fp16\"}\nreturn y\n", 0, 0 },
    { "x = input T[N]\nz = const T[] {0.5}\nc = greater(x, z)\ny = select(c, x, z)\nreturn y\n", 0, 0 },
    { "x = input T[N]\nz = const T[] {0}\nc = equal(x, z)\ny = select(c, z, x)\nreturn y\n", 0, 0 },
    { "x = input T[N]\nz = const T[] {0}\ny = sub(z, x)\nreturn y\n", 0, 0 },
    { "x = input T[N]\nz = const T[] {0}\ny = mul(z, x)\nreturn y\n", 0, 0 },
    { "x = input T[N]\nz = const T[] {0}\ny = add(x, z)\nreturn y\n", 0, 0 },
    { "x = input T[N]\nz = const T[] {0}\ny = sub(x, z)\nreturn y\n", 0, 0 },
    { "x = input T[N]\nz = const T[] {0}\ny = maximum(x, z)\nreturn y\n", 0, 0 },
    { "x = input T[N]\nz = const T[] {1}\ny = minimum(z, x)\nreturn y\n", 0, 0 },
    { "x = input T[N]\nz = const T[] {2}\ny = pow(x, z)\nreturn y\n", 1e-6, 0 },
    { "x = input T[N]\nz = const T[] {0.5}\ny = pow(x, z)\nreturn y\n", 1e-6, 0 },
    { "x = input T[N]\nz = const T[] {-0.5}\ny = pow(x, z)\nreturn y\n", 1e-6, 0 },
    { "x = input T[N]\nz = const T[] {3}\ny = pow(x, z)\nreturn y\n", 1e-6, 0 },
    { "x = input T[N]\nz = const T[] {0}\ny = real_div(z, x)\nreturn y\n", 0, 0 },
    { "x = input T[N]\nz = const T[] {1}\ny = real_div(z, x)\nreturn y\n", 1e-6, 0 },
    { "x = input T[N]\nz = const T[] {3}\ny = real_div(x, z)\nreturn y\n", 1e-6, 0 },
    { "x = input T[N]\na = abs(x)\nb = sqrt(a)\ny = mul(b, x)\nreturn y\n", 1e-6, 0 },
    { "x = input T[1, 1, N, 1]\ny = max_pool(x) {kernel_sizes=[2, 1], pad_type=\"custom\", pad=[1, 1, 0, 0]}\nreturn y\n", 0, 0 },
    { "x = input T[1, 1, 1, N]\ny = max_pool(x) {kernel_sizes=[1, 3], strides=[1, 2]}\nreturn y\n", 0, 0 },
    { "x = input T[1, 1, 1, N]\ny = l2_pool(x) {kernel_sizes=[1, 2], pad_type=\"custom\", pad=[0, 0, 1, 1]}\nreturn y\n", 1e-6, 1e-18 },
    { "x = input T[1, N]\ny = reduce_l2_norm(x) {axes=[0]}\nreturn y\n", 1e-6, 1e-18 },
};

static void together(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(graphs); i++)
        for (size_t t = 0; t < COUNT(types); t++) {
            strbuf b = { 0 };
            sb_puts(&b, "graph \"g\"\n");
            for (const char *p = graphs[i].text; *p; p++) {
                if (*p == 'T' && p[1] == '[') sb_puts(&b, types[t]);
                else if (*p == 'N' && !isalpha((unsigned char)p[-1])) sb_printf(&b, "%d", (int)SPECIAL);
                else sb_putc(&b, *p);
            }
            assert_false(b.oom);
            agree_text(b.at, NULL,
                       (off){ graphs[i].rel + (t ? 2 * wide[t] : 0),
                              graphs[i].least == 0 ? 0 : graphs[i].least + (t ? wide[t] : 0) },
                       0);
            sb_free(&b);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_operand),
        cmocka_unit_test(two_operands),
        cmocka_unit_test(slopes),
        cmocka_unit_test(odd_weights),
        cmocka_unit_test(large_norms),
        cmocka_unit_test(masked_keys),
        cmocka_unit_test(odd_lines),
        cmocka_unit_test(together),
    };
    return cmocka_run_group_tests_name("special", tests, NULL, NULL);
}
