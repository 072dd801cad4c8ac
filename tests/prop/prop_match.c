/* prop_match.c: what codegen recognises in small operations, and what only looks like it: attention and its way
 * back, norms, turns of pairs, sums of products. Each is written as it should be and then, now and then, with one
 * thing another way: another axis, a shape that joins other elements, a stride, an epsilon in another place, a
 * factor that is nearly one over the count, a mask of other numbers, a number that is a whole tensor. On the plain
 * processor the program gives what the evaluator says, by the reference and by the fast executor, to what fp32 is
 * off by where nothing is recognised. */
#include "codegen_t.h"

typedef struct {
    rng *r;
    strbuf text;
    arena mem;
    double ints;  /* of an integer input: the first one, the others follow */
    bool zero;    /* a row of the first input is zero */
    double scale; /* of what it holds */
} maker;

static int upto(maker *m, int lo, int hi) { return lo + (int)rng_below(m->r, (uint64_t)(hi - lo + 1)); }
static bool chance(maker *m, int percent) { return upto(m, 0, 99) < percent; }
#define PUT(m, ...) sb_printf(&(m)->text, __VA_ARGS__)
#define PICK(m, ...)                                                                                                   \
    ((const char *const[]){                                                                                            \
        __VA_ARGS__ })[upto(m, 0, (int)(sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *)) - 1)]

/* A number for a tensor of this shape: one, or as many as the tensor or a part of it has, all alike. */
static void put_number(maker *m, const char *name, double x, const char *whole)
{
    const char *part = strchr(whole, ',');
    PUT(m, "%s = const fp32[%s] all %.9g\n", name, chance(m, 60) ? "" : part && chance(m, 50) ? part + 2 : whole, x);
}

/* ---- attention ---- */

/* The mask m of [rows, keys]; false: none. */
static bool put_mask(maker *m, int rows, int keys)
{
    const double never[] = { -10000, -10000, -65504, -INFINITY, -INFINITY, -4 };
    double floor = never[upto(m, 0, 5)];
    switch (upto(m, 0, 3)) {
    case 0: return false;
    case 1: /* a constant: causal, or nearly */
    case 2:
        if (rows != keys || chance(m, 20)) {
            PUT(m, "m = input fp32[%d, %d]\n", (chance(m, 30) ? 1 : rows), (chance(m, 20) ? 1 : keys));
            return true;
        }
        PUT(m, "m = const fp32[%d, %d] {", rows, keys);
        for (int i = 0, wrong = chance(m, 20) ? upto(m, 0, rows * keys - 1) : -1; i < rows * keys; i++)
            PUT(m, "%s%.9g", i ? ", " : "", i % keys <= i / keys ? 0 : i == wrong ? -1.0 : floor);
        PUT(m, "}\n");
        return true;
    default: break;
    }
    const char *type = chance(m, 60) ? "int32" : PICK(m, "int8", "uint8", "uint8", "int16");
    m->ints =
        type[0] == 'u' ? (double)upto(m, 0, chance(m, 50) ? 1 : keys) : (double)upto(m, chance(m, 40) ? -4 : 0, keys);
    if (keys > 1 || chance(m, 50)) {
        PUT(m, "key = const %s[%d] {", type, keys);
        for (int i = 0, odd = chance(m, 10) ? 1 : 0; i < keys; i++) PUT(m, "%s%d", i ? ", " : "", (i + odd));
        PUT(m, "}\n");
    } else PUT(m, "key = const %s[] {0}\n", type);
    PUT(m, "pos = input %s[%d, 1]\nzero = const fp32[] {%g}\n", type, rows, chance(m, 90) ? 0.0 : 0.25);
    put_number(m, "never", floor, "1, 1");
    PUT(m, "late = %s(key, pos)\nm0 = select(late, never, zero)\n", chance(m, 90) ? "greater" : "greater_equal");
    if (chance(m, 50)) PUT(m, "m = identity(m0)\n");
    else
        PUT(m, "window = const %s[] {%d}\nend = sub(pos, window)\nearly = %s(key, end)\nm = select(early, never, m0)\n",
            type, upto(m, 1, keys + 1), chance(m, 90) ? "less_equal" : "less");
    return true;
}

static void put_attention(maker *m)
{
    const int heads = upto(m, 1, 3), groups = chance(m, 70) ? 1 : 2, keys = upto(m, 1, 9) * (chance(m, 20) ? 2 : 1),
              rows = chance(m, 50) ? keys : upto(m, 1, 20), width = upto(m, 1, 6), cols = upto(m, 1, 6),
              tall = rows * groups;
    const bool tq = chance(m, 40), tk = chance(m, 60), tv = chance(m, 30), ty = chance(m, 40);
    char full[64];
    PUT(m, "q = input fp32[%d, %d, %d]\n", heads, (tq ? width : tall), (tq ? tall : width));
    PUT(m, "k = input fp32[%d, %d, %d]\n", heads, (tk ? keys : width), (tk ? width : keys));
    PUT(m, "v = input fp32[%d, %d, %d]\n", heads, (tv ? cols : keys), (tv ? keys : cols));
    PUT(m, "s0 = matmul(q, k) {transpose_x=%s, transpose_y=%s}\n", tq ? "true" : "false", tk ? "true" : "false");
    snprintf(full, sizeof full, "%d, %d, %d", heads, tall, keys);
    if (chance(m, 50)) PUT(m, "s1 = identity(s0)\n");
    else
        put_number(m, "by", chance(m, 50) ? 0.5 : 0.7, full), PUT(m, "s1 = %s\n",
                                                                  chance(m, 70)   ? "mul(s0, by)"
                                                                  : chance(m, 50) ? "mul(by, s0)"
                                                                                  : "real_div(s0, by)");
    int last = keys, high = rows;
    if (chance(m, 20) && keys % 2 == 0) last = keys / 2, high = 2 * rows;   /* other elements together */
    else if (chance(m, 10) && rows % 2 == 0) last = keys * 2, high = rows / 2;
    PUT(m, "s2 = reshape(s1) {shape=[%d, %d, %d, %d]}\n", heads, groups, high, last);
    if (put_mask(m, high, last)) PUT(m, "s3 = %s\n", chance(m, 70) ? "add(s2, m)" : "add(m, s2)");
    else PUT(m, "s3 = identity(s2)\n");
    PUT(m, "p = softmax(s3) {axis=%d}\n", chance(m, 90) ? -1 : -2);
    PUT(m, "p2 = reshape(p) {shape=[%s]}\n", full);
    if (!ty) PUT(m, "y = matmul(p2, v) {transpose_y=%s}\n", tv ? "true" : "false");
    else PUT(m, "y = matmul(v, p2) {transpose_x=%s, transpose_y=true}\n", tv ? "false" : "true");
    PUT(m, "return y%s\n", chance(m, 40) ? ", p" : "");
}

/* As a trained layer has it: [channels, positions], the weights read again by the way back. */
static void put_attention_back(maker *m)
{
    const int heads = upto(m, 1, 2), keys = upto(m, 1, 6) * 2, rows = chance(m, 60) ? keys : upto(m, 1, 12),
              width = upto(m, 1, 5), cols = upto(m, 1, 5);
    const int cut = chance(m, 25) ? 2 : 1, high = rows * cut, last = keys / cut; /* 2: rows of half as many */
    const bool mask = high == last && chance(m, 60);
    PUT(m, "q = input fp32[%d, %d, %d]\nk = input fp32[%d, %d, %d]\n", heads, width, rows, heads, width, keys);
    PUT(m, "v = input fp32[%d, %d, %d]\ndy = input fp32[%d, %d, %d]\n", heads, cols, keys, heads, cols, rows);
    PUT(m, "s0 = matmul(q, k) {transpose_x=true}\ns1 = reshape(s0) {shape=[%d, %d, %d]}\n", heads, high, last);
    if (mask) {
        PUT(m, "m = const fp32[%d, %d] {", high, last);
        for (int i = 0; i < high * last; i++) PUT(m, "%s%d", i ? ", " : "", i % last <= i / last ? 0 : -10000);
        PUT(m, "}\n");
    }
    PUT(m, "%s\np = softmax(s2) {axis=-1}\n", mask ? "s2 = add(s1, m)" : "s2 = identity(s1)");
    PUT(m, "p2 = reshape(p) {shape=[%d, %d, %d]}\ny = matmul(v, p2) {transpose_y=true}\n", heads, rows, keys);
    PUT(m, "dv = matmul(dy, p2)\ndp0 = matmul(dy, v) {transpose_x=true}\ndp = reshape(dp0) {shape=[%d, %d, %d]}\n",
        heads, high, last);
    PUT(m, "pd = mul(p, dp)\nsum = reduce_sum(pd) {axes=[%d], keep_dims=true}\n", chance(m, 90) ? -1 : 1);
    PUT(m, "less = %s\nds = mul(%s)\n", chance(m, 90) ? "sub(dp, sum)" : "sub(sum, dp)",
        chance(m, 50) ? "p, less" : "less, p");
    PUT(m, "ds2 = reshape(ds) {shape=[%d, %d, %d]}\n", heads, rows, keys);
    PUT(m, "dq = matmul(k, ds2) {transpose_y=true}\ndk = matmul(q, ds2)\nreturn y, dv, dq, dk%s\n",
        chance(m, 20) ? ", p" : "");
}

/* ---- norms ---- */

static void put_norm(maker *m)
{
    const int rows = upto(m, 1, 5), n = chance(m, 50) ? 64 : upto(m, 1, 40);
    const bool centre = chance(m, 40), pre = chance(m, 30);
    const int axis = chance(m, 85) ? -1 : 0;
    const int count = axis ? n : rows;
    char full[64];
    snprintf(full, sizeof full, "%d, %d", rows, n);
    m->zero = chance(m, 30), m->scale = chance(m, 70) ? 1 : 1e-7;
    PUT(m, "x0 = input fp32[%s]\n", full);
    if (pre) {
        put_number(m, "r", 0.25, full);
        PUT(m,
            "mag = abs(x0)\nbig = reduce_max(mag) {axes=[%d], keep_dims=true}\ntop = maximum(big, r)\nu = real_div(x0, top)\n",
            axis);
    } else PUT(m, "u = identity(x0)\n");
    if (centre) PUT(m, "mu = reduce_mean(u) {axes=[%d], keep_dims=true}\nb = sub(u, mu)\n", chance(m, 90) ? axis : -1);
    else PUT(m, "b = identity(u)\n");
    PUT(m, "sq = %s\n", chance(m, 50) ? "square(b)" : "mul(b, b)");
    switch (upto(m, 0, 2)) {
    case 0: PUT(m, "ms = reduce_mean(sq) {axes=[%d], keep_dims=true}\n", axis); break;
    case 1:
        PUT(m, "sum = reduce_sum(sq) {axes=[%d], keep_dims=true}\n", axis);
        put_number(m, "f", 1.0 / (double)count * (chance(m, 70) ? 1 : chance(m, 50) ? 1.0005 : 2), full);
        PUT(m, "ms = mul(sum, f)\n");
        break;
    default:
        PUT(m, "sum = reduce_sum_square(b) {axes=[%d], keep_dims=true}\n", axis);
        put_number(m, "f", (double)(count + chance(m, 20)), full);
        PUT(m, "ms = real_div(sum, f)\n");
    }
    const char *in = pre || chance(m, 60) ? "in" : "ms";
    if (pre) PUT(m, "part = real_div(r, top)\nextra = square(part)\nin = add(ms, extra)\n");
    else if (in[0] == 'i') put_number(m, "eps", chance(m, 70) ? 1e-5 : 0.25, full), PUT(m, "in = add(ms, eps)\n");
    const char *eps = chance(m, 50) ? "" : PICK(m, " {epsilon=0.0625}", " {epsilon=1e-12}", " {epsilon=1e-9}");
    if (chance(m, 80))
        PUT(m, "root = rsqrt(%s)%s\ny0 = %s\n", in, eps, chance(m, 50) ? "mul(b, root)" : "mul(root, b)");
    else PUT(m, "tiny = const fp32[] {1e-9}\nsafe = add(%s, tiny)\nroot = sqrt(safe)\ny0 = real_div(b, root)\n", in);
    const bool gain = chance(m, 60), bias = chance(m, 50);
    if (gain) PUT(m, "g = input fp32[%s]\ny1 = mul(y0, g)\n", chance(m, 50) ? full : strchr(full, ',') + 2);
    if (bias) PUT(m, "h = input fp32[%s]\ny2 = add(y%d, h)\n", chance(m, 50) ? full : strchr(full, ',') + 2, gain);
    PUT(m, "return y=y%d%s\n", bias ? 2 : gain, chance(m, 20) ? ", root" : "");
}

/* ---- turns of pairs ---- */

static void put_table(maker *m, const char *name, int channels, int n, bool half, double phase)
{
    const int wrong = chance(m, 15) ? upto(m, 0, channels * n - 1) : -1;
    PUT(m, "%s = const fp32[1, %d, 1, %d] {", name, channels, n);
    for (int i = 0; i < channels * n; i++) {
        const int ch = i / n, pair = half ? ch % (channels / 2) : ch / 2;
        PUT(m, "%s%.9g", i ? ", " : "", i == wrong ? 0.125 : cos((double)(i % n + 1) * pow(0.5, (double)pair) + phase));
    }
    PUT(m, "}\n");
}

static void put_turn(maker *m)
{
    const int batch = chance(m, 70) ? 1 : 2, channels = 2 * upto(m, 1, 4), high = chance(m, 50) ? 1 : upto(m, 1, 3),
              n = upto(m, 1, 9), wrong = chance(m, 10) ? upto(m, 0, channels * channels - 1) : -1;
    const bool half = chance(m, 50), back = chance(m, 40);
    char window[96] = "", full[96];
    PUT(m, "x0 = input fp32[%d, %d, %d, %d]\nw = const fp32[%d, %d, 1, 1] {", batch, channels, high, n, channels,
        channels);
    for (int i = 0; i < channels * channels; i++) {
        const int a = i / channels, b = i % channels, first = half ? a % (channels / 2) : a / 2,
                  second = half ? b % (channels / 2) : b / 2;
        const bool low = half ? a < channels / 2 : a % 2 == 0;
        PUT(m, "%s%d", i ? ", " : "", i == wrong ? 2 : first == second && a != b ? (low ? -1 : 1) : 0);
    }
    PUT(m, "}\n");
    snprintf(full, sizeof full, "%d, %d, %d, %d", batch, channels, high, n);
    if (chance(m, 25)) put_number(m, "before", 0.5, full), PUT(m, "x = mul(x0, before)\n");
    else PUT(m, "x = identity(x0)\n");
    if (!back && n > 1 && chance(m, 25))
        snprintf(window, sizeof window, " {strides=[1, 2], pad_type=\"custom\", pad=[0, 0, %d, %d]}", (n / 2),
                 (n - 1 - n / 2));
    put_table(m, "co", channels, n, half, 0), put_table(m, "si", channels, n, half, -1.5707963);
    PUT(m, "a = %s\n", chance(m, 50) ? "mul(x, co)" : "mul(co, x)");
    if (!back) PUT(m, "z = conv(x, w)%s\nb = mul(z, si)\n", window);
    else PUT(m, "z = mul(x, si)\nb = conv_transpose(z, w)\n");
    PUT(m, "y0 = %s\n", chance(m, 50) ? "add(a, b)" : chance(m, 70) ? "sub(a, b)" : "sub(b, a)");
    if (chance(m, 30)) {
        snprintf(full, sizeof full, "%s%d, %d, %d, %d", chance(m, 50) ? "1, " : "",
                 batch * (chance(m, 50) && batch == 1 ? 3 : 1), channels, high, n);
        put_number(m, "after", 0.5, full), PUT(m, "y = mul(y0, after)\n");
    } else PUT(m, "y = identity(y0)\n");
    PUT(m, "return y\n");
}

/* Slices of the two, multiplied and joined. */
static void put_slices(maker *m)
{
    const int n = upto(m, 1, 3), pairs = upto(m, 1, 4), last = upto(m, 1, 9);
    const bool half = chance(m, 50), other = chance(m, 50);
    const int axis = half ? 1 : 2;
    const int d[4] = { n, half ? 2 : pairs, half ? pairs : 2, last };
    PUT(m, "x = input fp32[%d, %d, %d, %d]\n", d[0], d[1], d[2], d[3]);
    for (int k = 0; k < 2; k++)
        PUT(m, "%s = input fp32[%d, %d, %d, %d]\n", k ? "si" : "co", (chance(m, 90) ? 1 : n), d[1], d[2], d[3]);
    for (int k = 0; k < 2; k++)
        for (int t = 0; t < 3; t++) {
            const int which = t ? chance(m, 8) : k; /* of a table both are the same angle */
            if (t && k) continue;
            PUT(m, "%s%s = slice_by_size(%s) {begin=[0, %d, %d, 0], size=[-1, %d, %d, -1]}\n", t == 1 ? "c" : t == 2 ? "s" : "x", t ? "" : k ? "1" : "0", t == 1 ? "co" : t == 2 ? "si" : "x", axis == 1 ? which : 0,
                axis == 2 ? which : 0, axis == 1 ? 1 : d[1], axis == 2 ? 1 : d[2]);
        }
    PUT(m, "a = mul(x0, c)\nb = mul(x1, s)\ne = mul(x1, c)\nf = mul(x0, s)\n");
    PUT(m, "u = %s(a, b)\nw = %s(e, f)\n", other ? "add" : "sub", chance(m, 85) == other ? "sub" : "add");
    PUT(m, "y = concat(%s) {axis=%d%s}\nreturn y\n", chance(m, 90) ? "u, w" : "w, u", axis,
        chance(m, 10) ? ", interleave=true" : "");
}

/* ---- sums of products ---- */

static void put_sums(maker *m)
{
    const int rows = upto(m, 1, 9), cols = upto(m, 1, 40);
    const int squares = chance(m, 20) ? upto(m, chance(m, 50) ? 31 : 1, 32) : 0; /* as many as a chain has steps */
    PUT(m, "a = input fp32[%d, %d]\nq0 = identity(a)\nb = input fp32[%d, %d]\n", rows, cols, rows, cols);
    PUT(m, "r = input fp32[%d, 1]\nc = input fp32[%d]\n", rows, cols);
    for (int i = 0; i < squares; i++) PUT(m, "q%d = mul(q%d, q%d)\n", i + 1, i, i);
    if (squares && chance(m, 50)) {
        PUT(m, "t = reduce_sum(q%d) {axes=[%d]}\nreturn t\n", squares, upto(m, 0, 1));
        return;
    }
    PUT(m, squares ? "o = identity(q%d)\n" : "o = mul(q%d, b)\n", squares);
    PUT(m, "p = mul(o, %s)\ns = reduce_sum(p) {axes=[%d], keep_dims=%s}\n", PICK(m, "r", "c", "b"), upto(m, 0, 1),
        chance(m, 50) ? "true" : "false");
    PUT(m, "t = reduce_sum(o) {axes=[%d]}\nreturn s, t%s\n", upto(m, 0, 1), chance(m, 20) ? ", p" : "");
}

/* ---- what they give ---- */

static tensor64 *inputs_of(maker *m, const graph *g)
{
    tensor64 *in = TAKE(&m->mem, tensor64, g->inputs.n + 1);
    assert_non_null(in);
    for (size_t k = 0; k < g->inputs.n; k++) {
        int64_t n;
        in[k].type = *graph_type(g, g->inputs.at[k]);
        assert_true(shape_elems(&in[k].type.sh, &n));
        in[k].x = TAKE(&m->mem, double, (size_t)n + 1);
        assert_non_null(in[k].x);
        const int64_t last = in[k].type.sh.d[in[k].type.sh.rank - 1];
        for (int64_t j = 0; j < n; j++) {
            in[k].x[j] = dtype_is_float(in[k].type.dt) ? (double)(float)((k ? 1 : m->scale) * rng_normal(m->r))
                                                       : m->ints + (double)j;
            if (m->zero && !k && j < last) in[k].x[j] = 0;
        }
    }
    return in;
}

static double far_off(dtype t, const void *got, const tensor64 *want)
{
    int64_t n;
    double far = 0;
    assert_true(shape_elems(&want->type.sh, &n));
    for (int64_t j = 0; j < n; j++) {
        const double x = dtype_load(t, got, j), y = want->x[j];
        if (x == y || (isnan(x) && isnan(y))) continue;
        const double off = fabs(x - y) / fmax(1, fabs(y));
        far = off <= far ? far : isnan(off) ? INFINITY : off;
    }
    return far;
}

static void check(maker *m, const char *what)
{
    enum { MOST = 6 };
    graph *g = cgt_parse(m->text.at);
    const tensor64 *in = inputs_of(m, g);
    tensor64 want[MOST];
    double plain[MOST] = { 0 };
    diag d = { 0 };
    assert_ok(graph_eval(g, in, want, &m->mem, &d), d);
    for (int way = 0; way < 4; way++) {
        program *p = cgt_compile(g, &(codegen_options){ .level = way / 2 });
        void **out = cgt_outputs(p, &m->mem);
        cgt_run(p, cgt_inputs(p, g, in, &m->mem), out, way % 2);
        for (size_t i = 0; i < p->outputs.n; i++)
            for (size_t k = 0; k < g->outputs.n; k++) {
                if (strcmp(p->outputs.at[i].name, g->outputs.at[k].name)) continue;
                const double far = far_off(want[k].type.dt, out[i], &want[k]);
                if (way < 2) plain[k] = fmax(plain[k], far);
                else if (!(far <= 1e-5 + 8 * plain[k]))
                    fail_msg("%s by the %s: %s is off by %g, and by %g where nothing is recognised\n%s", what,
                             way % 2 ? "reference" : "fast executor", p->outputs.at[i].name, far, plain[k], m->text.at);
            }
        program_free(p);
    }
    graph_free(g);
}

static void test_match(void **state)
{
    static const struct {
        const char *what;
        void (*put)(maker *);
    } kinds[] = { { "attention", put_attention }, { "the way back", put_attention_back }, { "norm", put_norm },
                  { "turn", put_turn },           { "turn of slices", put_slices },       { "sums", put_sums } };
    rng r = { test_seed("what is recognised") };
    (void)state;
    for (int round = 0; round < 3000; round++) {
        maker m = { .r = &r, .scale = 1 };
        const size_t kind = rng_below(&r, COUNT(kinds));
        sb_puts(&m.text, "graph \"nearly\"\n");
        kinds[kind].put(&m);
        check(&m, kinds[kind].what);
        sb_free(&m.text);
        arena_free(&m.mem);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_match) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
