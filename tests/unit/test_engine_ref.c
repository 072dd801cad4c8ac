/* test_engine_ref.c: every instruction of the reference with the plain processor's arithmetic, against the meaning
 * of the operation it carries out (graph_eval, in double), on random operands; and the forms constants come in. */
#include "engine_t.h"
#include "graph/graph.h"

static arena mem;
static rng dice;
static const double TOL = 2e-6; /* fp32, sums of a few dozen terms */

#define ATTRS(...) ((const attr[]){ __VA_ARGS__ }), (int)(sizeof((const attr[]){ __VA_ARGS__ }) / sizeof(attr))
#define NO_ATTRS   NULL, 0
#define OPERANDS(...)                                                                                                  \
    ((const tensor64[]){ __VA_ARGS__ }), (int)(sizeof((const tensor64[]){ __VA_ARGS__ }) / sizeof(tensor64))

static tensor64 make(dtype dt, const int64_t *d, int rank)
{
    tensor64 t = { .type = { dt, shape_of(d, rank) } };
    int64_t n;
    assert_true(shape_elems(&t.type.sh, &n));
    assert_non_null(t.x = TAKE(&mem, double, (size_t)n));
    return t;
}

static int64_t count(const tensor64 *t)
{
    int64_t n;
    assert_true(shape_elems(&t->type.sh, &n));
    return n;
}

static tensor64 noise(const int64_t *d, int rank, double scale)
{
    tensor64 t = make(DT_F32, d, rank);
    for (int64_t i = 0, n = count(&t); i < n; i++) t.x[i] = (double)(float)(rng_normal(&dice) * scale);
    return t;
}

static tensor64 whole(dtype dt, const int64_t *d, int rank, int64_t lo, int64_t hi)
{
    tensor64 t = make(dt, d, rank);
    for (int64_t i = 0, n = count(&t); i < n; i++)
        t.x[i] = (double)(lo + (int64_t)rng_below(&dice, (uint64_t)(hi - lo)));
    return t;
}

static tensor64 meaning_k(int k, op_id op, const tensor64 *in, int n_in, const attr *attrs, int n_attr)
{
    ttype types[8], outs[4];
    tensor64 out[4] = { 0 };
    diag d = { 0 };
    int n_out = 0;
    for (int i = 0; i < n_in; i++) types[i] = in[i].type;
    assert_ok(graph_infer(op, types, n_in, attrs, n_attr, outs, &n_out, 4, &d), d);
    for (int i = 0; i < n_out; i++) out[i].type = outs[i];
    assert_ok(graph_eval_op(op, attrs, n_attr, in, n_in, out, n_out, &mem, &d), d);
    return out[k];
}

static tensor64 meaning(op_id op, const tensor64 *in, int n_in, const attr *attrs, int n_attr)
{
    return meaning_k(0, op, in, n_in, attrs, n_attr);
}

static prog g;
static void start(void) { prog_open(&g, &numerics_cpu); }
static int64_t feed(tensor64 t) { return prog_in(&g, t.type.dt, t.type.sh.d, t.type.sh.rank, t.x); }
static int64_t result(tensor64 t) { return prog_out(&g, t.type.dt, t.type.sh.d, t.type.sh.rank); }

static void compare(int k, tensor64 want, double tol, const char *what)
{
    assert_int_equal(g.n_out[k], count(&want));
    for (int64_t i = 0; i < g.n_out[k]; i++) {
        double a = g.out[k][i], b = want.x[i];
        if (!(a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= tol * (1 + fabs(b))))
            fail_msg("%s: element %lld is %.9g, wanted %.9g", what, (long long)i, a, b);
    }
}

static void finish(tensor64 want, double tol, const char *what)
{
    prog_run(&g, true);
    compare(0, want, tol, what);
    prog_close(&g);
}

/* ---- products ---- */

static void products(void **s)
{
    (void)s;
    for (int tx = 0; tx < 2; tx++)
        for (int tz = 0; tz < 2; tz++) {
            tensor64 x = tx ? noise(DIMS(3, 1, 7, 4), 1) : noise(DIMS(3, 1, 4, 7), 1),
                     z = tz ? noise(DIMS(2, 5, 7), 1) : noise(DIMS(2, 7, 5), 1);
            tensor64 want = meaning(OP_MATMUL, OPERANDS(x, z), ATTRS(AT_B(TRANSPOSE_X, tx), AT_B(TRANSPOSE_Y, tz)));
            start();
            int64_t a = feed(x), b = feed(z), y = result(want);
            prog_insn(&g, IN_MATMUL, INTS(y, a, b, 0), INTS(tx, tz, 0), REALS(0));
            finish(want, TOL, "matmul");
        }
    tensor64 x = noise(DIMS(2, 3, 4), 1), z = noise(DIMS(4, 5, 3), 1),
             want = meaning(OP_EINSUM, OPERANDS(x, z), ATTRS(AT_S(EQUATION, "abc,cdb->da")));
    start();
    int64_t a = feed(x), b = feed(z), y = result(want);
    prog_insn(&g, IN_EINSUM, INTS(y, a, b), INTS(2, 3, 0, 3, 0, 1, 2, 3, 2, 3, 1), NO_REALS);
    finish(want, TOL, "einsum");
}

static void convolutions(void **s)
{
    (void)s;
    static const struct {
        int rank;
        int64_t x[5], w[5], stride[3], pad[6], dil[3], groups;
    } rows[] = {
        { 4, { 2, 4, 7, 6 }, { 6, 4, 3, 3 }, { 1, 1 }, { 1, 1, 1, 1 }, { 1, 1 }, 1 },
        { 4, { 1, 4, 8, 9 }, { 6, 2, 3, 2 }, { 2, 3 }, { 0, 2, 1, 0 }, { 2, 1 }, 2 },
        { 4, { 1, 3, 5, 5 }, { 3, 1, 2, 2 }, { 1, 1 }, { 0, 0, 0, 0 }, { 1, 1 }, 3 },
        { 3, { 2, 3, 9 }, { 4, 3, 3 }, { 2 }, { 1, 2 }, { 1 }, 1 },
        { 5, { 1, 2, 4, 5, 3 }, { 3, 2, 2, 3, 2 }, { 1, 2, 1 }, { 0, 1, 1, 1, 0, 0 }, { 1, 1, 1 }, 1 },
    };
    for (size_t r = 0; r < COUNT(rows); r++)
        for (int back = 0; back < 2; back++) {
            int n = rows[r].rank - 2;
            int64_t wd[5];
            memcpy(wd, rows[r].w, sizeof wd);
            if (back) wd[0] = rows[r].x[1], wd[1] = rows[r].w[0] / rows[r].groups; /* (Cin, Cout / groups, ...) */
            tensor64 x = noise(rows[r].x, rows[r].rank, 1), w = noise(wd, rows[r].rank, 1),
                     bias = noise(DIMS(rows[r].w[0]), 1);
            attr at[] = { { .id = A_STRIDES, .kind = ATTR_INTS, .n = n, .u.is = rows[r].stride },
                          { .id = A_PAD_TYPE, .kind = ATTR_STR, .u.s = "custom" },
                          { .id = A_PAD, .kind = ATTR_INTS, .n = 2 * n, .u.is = rows[r].pad },
                          { .id = A_DILATIONS, .kind = ATTR_INTS, .n = n, .u.is = rows[r].dil },
                          { .id = A_GROUPS, .kind = ATTR_INT, .u.i = rows[r].groups } };
            tensor64 want = meaning(back ? OP_CONV_TRANSPOSE : OP_CONV, OPERANDS(x, w, bias), at, COUNT(at));
            start();
            int64_t bd[4] = { rows[r].w[0], 1, 1, 1 };
            int64_t tx = feed(x), tw = feed(w), tb = prog_in(&g, DT_F32, bd, n + 1, bias.x), y = result(want);
            int64_t f[40], k = 0;
            f[k++] = n;
            for (int i = 0; i < n; i++) f[k++] = rows[r].stride[i];
            f[k++] = 2 * n;
            for (int i = 0; i < 2 * n; i++) f[k++] = rows[r].pad[i];
            f[k++] = n;
            for (int i = 0; i < n; i++) f[k++] = rows[r].dil[i];
            f[k++] = rows[r].groups;
            const int64_t add[] = { 6, FN_ADD, 0, 1, -1, 0, DT_F32 };
            memcpy(f + k, add, sizeof add), k += 7;
            prog_insn(&g, back ? IN_CONV_T : IN_CONV, INTS(y, tx, tw, 1, tb), f, (uint32_t)k, REALS(0));
            finish(want, TOL, back ? "conv_transpose" : "conv");
        }
}

static void attention(void **s)
{
    (void)s;
    tensor64 q = noise(DIMS(2, 3, 5, 8), 1), k = noise(DIMS(2, 3, 5, 8), 1), v = noise(DIMS(2, 3, 5, 4), 1),
             m = noise(DIMS(1, 3, 5, 5), 1);
    tensor64 low = make(DT_BOOL, DIMS(5, 5)), add = make(DT_F32, DIMS(5, 5));
    for (int i = 0; i < 25; i++) low.x[i] = i % 5 <= i / 5, add.x[i] = i % 5 <= i / 5 ? 0 : -INFINITY;
    double scale = 1 / sqrt(8);
    tensor64 plain = meaning(OP_SDPA, OPERANDS(q, k, v), NO_ATTRS),
             masked = meaning(OP_SDPA, OPERANDS(q, k, v, m), NO_ATTRS);
    tensor64 causal = meaning(OP_SDPA, OPERANDS(q, k, v, low), NO_ATTRS);
    struct {
        const tensor64 *mask, *want;
        int64_t causal;
    } rows[] = {
        { NULL, &plain, 0 }, { &m, &masked, 0 }, { &low, &causal, 0 }, { NULL, &causal, 1 }, { &add, &causal, 0 }
    };
    for (size_t r = 0; r < COUNT(rows); r++) {
        start();
        int64_t tq = feed(q), tk = feed(k), tv = feed(v), tm = rows[r].mask ? feed(*rows[r].mask) : -1,
                y = result(*rows[r].want);
        prog_insn(&g, IN_ATTEND, INTS(y, tq, tk, tv, tm), INTS(rows[r].causal), REALS(scale));
        finish(*rows[r].want, TOL, "attend");
    }
    /* a row that admits nothing has no value, however it is said and whoever computes it; the others have theirs */
    for (int i = 10; i < 15; i++) low.x[i] = 0, add.x[i] = -INFINITY;
    for (int r = 0; r < 4; r++) {
        const tensor64 *mask = r & 1 ? &add : &low;
        tensor64 want = meaning(OP_SDPA, OPERANDS(q, k, v, *mask), NO_ATTRS);
        for (int64_t i = 0; i < 2 * 3 * 5 * 4; i++) assert_int_equal(isnan(want.x[i]) != 0, i / 4 % 5 == 2);
        start();
        int64_t tq = feed(q), tk = feed(k), tv = feed(v), tm = feed(*mask), y = result(want);
        prog_insn(&g, IN_ATTEND, INTS(y, tq, tk, tv, tm), INTS(0), REALS(scale));
        prog_run(&g, r / 2);
        compare(0, want, TOL, "attend without keys");
        prog_close(&g);
    }
}

/* ---- element by element ---- */

static void functions(void **s)
{
    (void)s;
    static const struct {
        fn_id f;
        op_id op;
        attr_id a, b;
        bool positive;
    } rows[] = {
        { FN_ADD, OP_ADD, 0, 0, 0 }, { FN_SUB, OP_SUB, 0, 0, 0 }, { FN_MUL, OP_MUL, 0, 0, 0 }, { FN_DIV, OP_REAL_DIV, 0, 0, 0 },
        { FN_FLOOR_DIV, OP_FLOOR_DIV, 0, 0, 0 }, { FN_POW, OP_POW, 0, 0, 1 }, { FN_MAX, OP_MAXIMUM, 0, 0, 0 }, { FN_MIN, OP_MINIMUM, 0, 0, 0 },
        { FN_EQ, OP_EQUAL, 0, 0, 0 }, { FN_NE, OP_NOT_EQUAL, 0, 0, 0 }, { FN_GT, OP_GREATER, 0, 0, 0 }, { FN_GE, OP_GREATER_EQUAL, 0, 0, 0 },
        { FN_LT, OP_LESS, 0, 0, 0 }, { FN_LE, OP_LESS_EQUAL, 0, 0, 0 }, { FN_ABS, OP_ABS, 0, 0, 0 }, { FN_SQUARE, OP_SQUARE, 0, 0, 0 },
        { FN_SIGN, OP_SIGN, 0, 0, 0 }, { FN_CEIL, OP_CEIL, 0, 0, 0 }, { FN_FLOOR, OP_FLOOR, 0, 0, 0 }, { FN_ROUND, OP_ROUND, 0, 0, 0 },
        { FN_SQRT, OP_SQRT, 0, 0, 1 }, { FN_RSQRT, OP_RSQRT, A_EPSILON, 0, 1 }, { FN_INV, OP_INVERSE, A_EPSILON, 0, 1 }, { FN_LOG, OP_LOG, A_EPSILON, 0, 1 },
        { FN_EXP, OP_EXP, 0, 0, 0 }, { FN_EXP2, OP_EXP2, 0, 0, 0 }, { FN_ERF, OP_ERF, 0, 0, 0 }, { FN_SIN, OP_SIN, 0, 0, 0 }, { FN_COS, OP_COS, 0, 0, 0 },
        { FN_ATAN, OP_ATAN, 0, 0, 0 }, { FN_RELU, OP_RELU, 0, 0, 0 }, { FN_RELU6, OP_RELU6, 0, 0, 0 }, { FN_LEAKY_RELU, OP_LEAKY_RELU, A_ALPHA, 0, 0 },
        { FN_CLAMPED_RELU, OP_CLAMPED_RELU, A_ALPHA, A_BETA, 0 }, { FN_THRESHOLDED_RELU, OP_THRESHOLDED_RELU, A_ALPHA, 0, 0 },
        { FN_THRESHOLD, OP_THRESHOLD, A_ALPHA, 0, 0 }, { FN_CLIP, OP_CLIP, A_ALPHA, A_BETA, 0 }, { FN_AFFINE, OP_LINEAR_ACTIVATION, A_ALPHA, A_BETA, 0 },
        { FN_ELU, OP_ELU, A_ALPHA, 0, 0 }, { FN_SIGMOID, OP_SIGMOID, 0, 0, 0 }, { FN_SIGMOID_HARD, OP_SIGMOID_HARD, A_ALPHA, A_BETA, 0 },
        { FN_TANH, OP_TANH, 0, 0, 0 }, { FN_SCALED_TANH, OP_SCALED_TANH, A_ALPHA, A_BETA, 0 }, { FN_GELU, OP_GELU, 0, 0, 0 }, { FN_SILU, OP_SILU, 0, 0, 0 },
        { FN_SOFTPLUS, OP_SOFTPLUS, 0, 0, 0 }, { FN_SOFTSIGN, OP_SOFTSIGN, 0, 0, 0 },
    };
    for (size_t r = 0; r < COUNT(rows); r++) {
        fn_id f = rows[r].f;
        tensor64 x[2] = { noise(DIMS(3, 1, 4), 2), noise(DIMS(2, 1), 2) };
        for (int64_t i = 0; rows[r].positive && i < 12; i++) x[0].x[i] = fabs(x[0].x[i]) + 0.0625;
        x[1].x[0] = x[0].x[5]; /* something for equality to find */
        double par[2] = { 0.25, 1.5 };
        attr at[2] = { { .id = rows[r].a, .kind = ATTR_FLOAT, .u.f = par[0] },
                       { .id = rows[r].b, .kind = ATTR_FLOAT, .u.f = par[1] } };
        int n = fn_operands(f);
        tensor64 want = meaning(rows[r].op, x, n, at, fn_params(f));
        start();
        int64_t t[4] = { 0, n }, step[7] = { 6, f, 0, n > 1 ? 1 : -1, -1, 0, want.type.dt };
        for (int i = 0; i < n; i++) t[2 + i] = feed(x[i]);
        t[0] = result(want);
        double p[3] = { fn_params(f), par[0], par[1] };
        prog_insn(&g, IN_EW, t, (uint32_t)(2 + n), step, 7, p, (uint32_t)(1 + fn_params(f)));
        finish(want, TOL, fn_name(f));
    }
}

static void chains(void **s)
{
    (void)s;
    /* select(x > 0, x * y, -1), integers beside: one pass, broadcast operands, a bool in the middle */
    tensor64 x = noise(DIMS(2, 3), 1), y = noise(DIMS(3), 1), want = make(DT_F32, DIMS(2, 3));
    for (int i = 0; i < 6; i++) want.x[i] = x.x[i] > 0 ? x.x[i] * y.x[i % 3] : -1;
    start();
    int64_t tx = feed(x), ty = feed(y), one = prog_in(&g, DT_F32, NULL, 0, VALUES(-1)),
            zero = prog_in(&g, DT_F32, NULL, 0, VALUES(0)), out = result(want);
    prog_insn(&g, IN_EW, INTS(out, 4, tx, ty, one, zero),
              INTS(18, FN_GT, 0, 3, -1, 0, DT_BOOL, FN_MUL, 0, 1, -1, 0, DT_F32, FN_SELECT, 4, 5, 2, 0, DT_F32),
              REALS(0));
    finish(want, TOL, "chain");
    /* integers are exact, and division by zero is an error */
    tensor64 a = whole(DT_I32, DIMS(5), -2000000000, 2000000000), b = whole(DT_I32, DIMS(5), 1, 1000);
    want = meaning(OP_FLOOR_DIV, OPERANDS(a, b), NO_ATTRS);
    for (int zeroed = 0; zeroed < 2; zeroed++) {
        start();
        if (zeroed) b.x[3] = 0;
        int64_t ta = feed(a), tb = feed(b), o = result(want);
        prog_insn(&g, IN_EW, INTS(o, 2, ta, tb), INTS(6, FN_FLOOR_DIV, 0, 1, -1, 0, DT_I32), REALS(0));
        if (!zeroed) finish(want, 0, "floor_div of integers");
        else {
            assert_int_equal(prog_try(&g, true), AN_INPUT);
            assert_non_null(strstr(g.d.msg, "division by zero"));
            prog_close(&g);
        }
    }
    /* per-channel parameters */
    tensor64 c = noise(DIMS(2, 3, 4), 1), al = noise(DIMS(3), 1), be = noise(DIMS(3), 1);
    want = meaning(OP_SOFTPLUS_PARAMETRIC, OPERANDS(c, al, be), NO_ATTRS);
    start();
    int64_t tc = feed(c), tal = prog_in(&g, DT_F32, DIMS(3, 1), al.x), tbe = prog_in(&g, DT_F32, DIMS(3, 1), be.x),
            o = result(want);
    prog_insn(&g, IN_EW, INTS(o, 3, tc, tal, tbe), INTS(6, FN_SOFTPLUS_PAR, 0, 1, 2, 0, DT_F32), REALS(0));
    finish(want, TOL, "softplus_parametric");
    want = meaning(OP_PRELU, OPERANDS(c, al), NO_ATTRS);
    start();
    tc = feed(c), tal = prog_in(&g, DT_F32, DIMS(3, 1), al.x), o = result(want);
    prog_insn(&g, IN_EW, INTS(o, 2, tc, tal), INTS(6, FN_PRELU, 0, 1, -1, 0, DT_F32), REALS(0));
    finish(want, TOL, "prelu");
}

/* ---- along axes ---- */

static void reductions(void **s)
{
    (void)s;
    static const op_id ops[RED_COUNT] = { [RED_SUM] = OP_REDUCE_SUM, [RED_MEAN] = OP_REDUCE_MEAN, [RED_MAX] = OP_REDUCE_MAX, [RED_MIN] = OP_REDUCE_MIN,
                                          [RED_SUM_SQUARE] = OP_REDUCE_SUM_SQUARE, [RED_L1] = OP_REDUCE_L1_NORM, [RED_L2] = OP_REDUCE_L2_NORM,
                                          [RED_LOG_SUM] = OP_REDUCE_LOG_SUM, [RED_LOG_SUM_EXP] = OP_REDUCE_LOG_SUM_EXP };
    for (int k = 0; k < RED_COUNT; k++) {
        tensor64 x = noise(DIMS(3, 4, 5), 1);
        for (int i = 0; k == RED_LOG_SUM && i < 60; i++) x.x[i] = fabs(x.x[i]);
        tensor64 want = meaning(ops[k], OPERANDS(x), ATTRS(AT_IS(AXES, 0, 2)));
        start();
        int64_t tx = feed(x), y = result(want);
        prog_insn(&g, IN_REDUCE, INTS(y, tx), INTS(2, 2, 0, k), NO_REALS);
        finish(want, TOL, op_get(ops[k])->mil);
    }
    tensor64 i = whole(DT_I32, DIMS(3, 4), -1000000000, 1000000000),
             want = meaning(OP_REDUCE_MEAN, OPERANDS(i), ATTRS(AT_IS(AXES, 1)));
    start();
    int64_t ti = feed(i), y = result(want);
    prog_insn(&g, IN_REDUCE, INTS(y, ti), INTS(1, 1, RED_MEAN), NO_REALS);
    finish(want, 0, "mean of integers");
    tensor64 x = noise(DIMS(3, 4, 5), 1);
    x.x[7] = x.x[12] = 9;
    for (int least = 0; least < 2; least++) {
        want = meaning(least ? OP_REDUCE_ARGMIN : OP_REDUCE_ARGMAX, OPERANDS(x), ATTRS(AT_I(AXIS, 1)));
        start();
        int64_t tx = feed(x);
        y = result(want);
        prog_insn(&g, IN_ARG, INTS(y, tx), INTS(1, least), NO_REALS);
        finish(want, 0, "arg");
    }
}

static void lines(void **s)
{
    (void)s;
    tensor64 x = noise(DIMS(2, 5, 3), 3), want = meaning(OP_SOFTMAX, OPERANDS(x), ATTRS(AT_I(AXIS, 1)));
    start();
    int64_t tx = feed(x), y = result(want);
    prog_insn(&g, IN_SOFTMAX, INTS(y, tx), INTS(1), NO_REALS);
    finish(want, TOL, "softmax");
    for (int k = 0; k < 4; k++) {
        want = meaning(OP_CUMSUM, OPERANDS(x), ATTRS(AT_I(AXIS, 1), AT_B(EXCLUSIVE, k & 1), AT_B(REVERSE, k >> 1)));
        start();
        tx = feed(x), y = result(want);
        prog_insn(&g, IN_CUMSUM, INTS(y, tx), INTS(1, k & 1, k >> 1), NO_REALS);
        finish(want, TOL, "cumsum");
    }
    double steep[] = { 100, 100, -50, -120, 90 }; /* past the type on the way, not at the end */
    tensor64 bytes = { TTYPE(DT_I8, 5), steep };
    for (int k = 0; k < 4; k++) {
        want = meaning(OP_CUMSUM, OPERANDS(bytes), ATTRS(AT_I(AXIS, 0), AT_B(EXCLUSIVE, k & 1), AT_B(REVERSE, k >> 1)));
        start();
        tx = feed(bytes), y = result(want);
        prog_insn(&g, IN_CUMSUM, INTS(y, tx), INTS(0, k & 1, k >> 1), NO_REALS);
        finish(want, 0, "cumsum of bytes");
    }
    for (int up = 0; up < 2; up++) {
        const attr at[] = { AT_I(AXIS, 1), AT_I(K, 3), AT_B(ASCENDING, up) };
        tensor64 v = meaning_k(0, OP_TOPK, OPERANDS(x), at, 3), i = meaning_k(1, OP_TOPK, OPERANDS(x), at, 3);
        start();
        tx = feed(x);
        int64_t tv = result(v), ti = result(i);
        prog_insn(&g, IN_SORT, INTS(tv, ti, tx), INTS(1, up, 3), NO_REALS);
        prog_run(&g, true);
        compare(0, v, 0, "sorted values");
        compare(1, i, 0, "sorted places");
        prog_close(&g);
    }
}

static void norms(void **s)
{
    (void)s;
    tensor64 x = noise(DIMS(2, 3, 4, 5), 2), gain = noise(DIMS(4, 5), 1), bias = noise(DIMS(4, 5), 1);
    tensor64 want = meaning(OP_LAYER_NORM, OPERANDS(x, gain, bias), ATTRS(AT_IS(AXES, 2, 3), AT_F(EPSILON, 1e-3)));
    start();
    int64_t tx = feed(x), tg = feed(gain), tb = feed(bias), y = result(want);
    prog_insn(&g, IN_NORM, INTS(y, tx, tg, tb), INTS(2, 2, 3, NORM_LAYER), REALS(1e-3));
    finish(want, TOL, "layer_norm");
    want = meaning(OP_L2_NORM, OPERANDS(x), ATTRS(AT_F(EPSILON, 1e-3)));
    start();
    tx = feed(x), y = result(want);
    prog_insn(&g, IN_NORM, INTS(y, tx, -1, -1), INTS(3, 1, 2, 3, NORM_L2), REALS(1e-3));
    finish(want, TOL, "l2_norm");
    want = make(DT_F32, DIMS(2, 3, 4, 5)); /* rms over channels, by its formula */
    for (int n = 0; n < 2; n++)
        for (int p = 0; p < 20; p++) {
            double ss = 0;
            for (int c = 0; c < 3; c++) ss += x.x[(n * 3 + c) * 20 + p] * x.x[(n * 3 + c) * 20 + p];
            for (int c = 0; c < 3; c++)
                want.x[(n * 3 + c) * 20 + p] = x.x[(n * 3 + c) * 20 + p] / sqrt(ss / 3 + 1e-3) * gain.x[c];
        }
    start();
    tx = feed(x), tg = prog_in(&g, DT_F32, DIMS(3, 1, 1), gain.x), y = result(want);
    prog_insn(&g, IN_NORM, INTS(y, tx, tg, -1), INTS(1, 1, NORM_RMS), REALS(1e-3));
    finish(want, TOL, "rms_norm");
    want = meaning(OP_LOCAL_RESPONSE_NORM, OPERANDS(x),
                   ATTRS(AT_I(SIZE, 2), AT_F(ALPHA, 0.5), AT_F(BETA, 0.75), AT_F(K, 2)));
    start();
    tx = feed(x), y = result(want);
    prog_insn(&g, IN_LRN, INTS(y, tx), INTS(2), REALS(0.5, 0.75, 2));
    finish(want, TOL, "lrn");
}

static void pools(void **s)
{
    (void)s;
    tensor64 x = noise(DIMS(2, 3, 7, 6), 1);
    static const char *const modes[POOL_COUNT] = { "avg", "max", "min", "l2", "l1" };
    for (int k = 0; k < POOL_COUNT; k++) {
        const attr at[] = { AT_S(MODE, modes[k]), AT_IS(KERNEL_SIZES, 3, 2), AT_IS(STRIDES, 2, 1),
                            AT_S(PAD_TYPE, "custom"), AT_IS(PAD, 1, 1, 0, 1) };
        tensor64 want = meaning(OP_PE_POOL, OPERANDS(x), at, COUNT(at));
        start();
        int64_t tx = feed(x), y = result(want);
        prog_insn(&g, IN_POOL, INTS(y, tx), INTS(2, 3, 2, 2, 2, 1, 4, 1, 1, 0, 1, k, 0), NO_REALS);
        finish(want, TOL, modes[k]);
    }
    for (int ceil = 0; ceil < 2; ceil++)
        for (int exclude = 0; exclude < 2; exclude++) {
            const attr at[] = { AT_IS(KERNEL_SIZES, 3, 3), AT_IS(STRIDES, 2, 2),           AT_S(PAD_TYPE, "custom"),
                                AT_IS(PAD, 1, 0, 0, 1),    AT_B(EXCLUDE_PADDING, exclude), AT_B(CEIL_MODE, ceil) };
            tensor64 want = meaning(OP_AVG_POOL, OPERANDS(x), at, COUNT(at));
            start();
            int64_t tx = feed(x), y = result(want);
            prog_insn(&g, IN_POOL, INTS(y, tx), INTS(2, 3, 3, 2, 2, 2, 4, 1, 0, 0, 1, POOL_AVG, exclude), NO_REALS);
            finish(want, TOL, "avg_pool");
        }
}

/* ---- movement ---- */

static void movement(void **s)
{
    (void)s;
    tensor64 x = noise(DIMS(2, 3, 4), 1), want = meaning(OP_TRANSPOSE, OPERANDS(x), ATTRS(AT_IS(PERM, 2, 0, 1)));
    start();
    int64_t tx = feed(x), y = result(want);
    prog_insn(&g, IN_MOVE, INTS(y, tx), INTS(3, 4, 2, 3, 0, 3, 6, 3, 1, 0, 3, 1, 12, 4, 0), NO_REALS);
    finish(want, 0, "transpose");
    want = meaning(OP_REVERSE, OPERANDS(x), ATTRS(AT_IS(AXES, 2)));
    start();
    tx = feed(x), y = result(want);
    prog_insn(&g, IN_MOVE, INTS(y, tx), INTS(2, 6, 4, 0, 2, 4, 1, 3, 2, 4, -1, 0), NO_REALS);
    finish(want, 0, "reverse");
    tensor64 wide = whole(DT_I64, DIMS(6), -5, 5), small = whole(DT_I4, DIMS(7), -8, 8);
    start();
    tx = feed(wide), y = result(wide);
    int64_t big = ((int64_t)1 << 62) + 1; /* more than a double holds */
    memcpy(g.in[0], &big, 8);
    prog_insn(&g, IN_MOVE, INTS(y, tx), INTS(1, 6, 0, 1, 1, 0, 1, 1, 0), NO_REALS);
    prog_run(&g, true);
    assert_memory_equal(g.out_bytes[0], g.in[0], 48);
    prog_close(&g);
    start();
    tx = feed(small), y = result(small);
    prog_insn(&g, IN_MOVE, INTS(y, tx), INTS(1, 7, 0, 1, 1, 0, 1, 1, 0), NO_REALS);
    for (int reference = 0; reference < 2; reference++) { /* the last half byte is nobody's, here and there */
        g.in[0][3] |= 0xf0, g.out_bytes[0][3] = 0xff;
        prog_run(&g, reference);
        compare(0, small, 0, "int4");
        assert_int_equal(g.out_bytes[0][3] >> 4, 0);
    }
    prog_close(&g);
    want = make(DT_F32, DIMS(2, 3));
    for (int i = 0; i < 6; i++) want.x[i] = 0.1f;
    start();
    y = result(want);
    prog_insn(&g, IN_FILL, INTS(y), NO_INTS, REALS(0.1));
    finish(want, 0, "fill");
    want = meaning(OP_PAD, OPERANDS(x), ATTRS(AT_IS(PAD, 2, 1), AT_S(MODE, "reflect")));
    start();
    tx = feed(x), y = result(want);
    prog_insn(&g, IN_PICK, INTS(y, tx), INTS(2, 7, 2, 1, 0, 1, 2, 3, 2), NO_REALS);
    finish(want, 0, "pick");
    want = meaning(OP_RANDOM_UNIFORM, NULL, 0,
                   ATTRS(AT_IS(SHAPE, 3, 4), AT_F(LOW, -2), AT_F(HIGH, 5), AT_I(SEED, 42), AT_S(DTYPE, "fp32")));
    start();
    y = result(want);
    prog_insn(&g, IN_RANDOM, INTS(y), INTS(42), REALS(-2, 5));
    finish(want, 1e-7, "random");
}

static void gathers(void **s)
{
    (void)s;
    tensor64 x = noise(DIMS(2, 5, 3), 1), i = whole(DT_I32, DIMS(2, 4), -5, 5),
             want = meaning(OP_GATHER, OPERANDS(x, i), ATTRS(AT_I(AXIS, 1)));
    start();
    int64_t tx = feed(x), ti = feed(i), y = result(want);
    prog_insn(&g, IN_GATHER, INTS(y, tx, ti), INTS(1, 0), NO_REALS);
    finish(want, 0, "gather");
    want = meaning(OP_GATHER, OPERANDS(x, i), ATTRS(AT_I(AXIS, 1), AT_I(BATCH_DIMS, 1)));
    start();
    tx = feed(x), ti = feed(i), y = result(want);
    prog_insn(&g, IN_GATHER, INTS(y, tx, ti), INTS(1, 1), NO_REALS);
    finish(want, 0, "gather with batch axes");
    i = whole(DT_I32, DIMS(2, 4, 3), -5, 5);
    want = meaning(OP_GATHER_ALONG_AXIS, OPERANDS(x, i), ATTRS(AT_I(AXIS, 1)));
    start();
    tx = feed(x), ti = feed(i), y = result(want);
    prog_insn(&g, IN_GATHER_ALONG, INTS(y, tx, ti), INTS(1), NO_REALS);
    finish(want, 0, "gather_along");
    i = whole(DT_I32, DIMS(3, 2), 0, 2);
    want = meaning(OP_GATHER_ND, OPERANDS(x, i), NO_ATTRS);
    start();
    tx = feed(x), ti = feed(i), y = result(want);
    prog_insn(&g, IN_GATHER_ND, INTS(y, tx, ti), INTS(0), NO_REALS);
    finish(want, 0, "gather_nd");
    start();
    i.x[4] = 9;
    tx = feed(x), ti = feed(i), y = result(want);
    prog_insn(&g, IN_GATHER_ND, INTS(y, tx, ti), INTS(0), NO_REALS);
    assert_int_equal(prog_try(&g, true), AN_INPUT);
    assert_non_null(strstr(g.d.msg, "index 9"));
    prog_close(&g);
    static const struct {
        double at;
        bool fits;
    } ends[] = { { -5, true }, { 4, true }, { -6, false }, { 5, false } }; /* of five places */
    for (size_t k = 0; k < COUNT(ends); k++)
        for (int reference = 0; reference < 2; reference++) {
            i = make(DT_I32, DIMS(1)), i.x[0] = ends[k].at;
            want = make(x.type.dt, DIMS(2, 1, 3));
            start();
            tx = feed(x), ti = feed(i), y = result(want);
            prog_insn(&g, IN_GATHER, INTS(y, tx, ti), INTS(1, 0), NO_REALS);
            if (prog_try(&g, reference) != (ends[k].fits ? AN_OK : AN_INPUT))
                fail_msg("index %g: \"%s\"", ends[k].at, g.d.msg);
            if (ends[k].fits) assert_true(g.out[0][0] == x.x[ends[k].at < 0 ? 0 : 12]);
            prog_close(&g);
        }
}

/* ---- types ---- */

static void types(void **s)
{
    (void)s;
    tensor64 x = noise(DIMS(3, 4), 3), want = meaning(OP_CAST, OPERANDS(x), ATTRS(AT_S(DTYPE, "int32")));
    start();
    int64_t tx = feed(x), y = result(want);
    prog_insn(&g, IN_CAST, INTS(y, tx), NO_INTS, NO_REALS);
    finish(want, 0, "cast");
    tensor64 scale = make(DT_F32, DIMS(4)), zero = whole(DT_I8, DIMS(4), -3, 3);
    for (int i = 0; i < 4; i++) scale.x[i] = 0.0625 * (i + 1);
    want = meaning(OP_QUANTIZE, OPERANDS(x, scale, zero), ATTRS(AT_I(AXIS, 1), AT_S(OUTPUT_DTYPE, "int8")));
    start();
    tx = feed(x);
    int64_t ts = feed(scale), tz = feed(zero);
    y = result(want);
    prog_insn(&g, IN_QUANT, INTS(y, tx, ts, tz), INTS(1), NO_REALS);
    finish(want, 0, "quantize");
    tensor64 half = make(DT_F32, DIMS(1, 6)), one = make(DT_F32, DIMS(1)); /* half to even */
    one.type.sh.rank = 0;
    static const double even[] = { -2, -2, 0, 0, 2, 2 };
    for (int i = 0; i < 6; i++) half.x[i] = i - 2.5;
    one.x[0] = 1;
    want = meaning(OP_QUANTIZE, OPERANDS(half, one), ATTRS(AT_S(OUTPUT_DTYPE, "int8")));
    for (int i = 0; i < 6; i++) assert_true(want.x[i] == even[i]);
    for (int reference = 0; reference < 2; reference++) {
        start();
        tx = feed(half), ts = feed(one), y = result(want);
        prog_insn(&g, IN_QUANT, INTS(y, tx, ts, -1), INTS(-1), NO_REALS);
        prog_run(&g, reference);
        compare(0, want, 0, "quantize halves");
        prog_close(&g);
    }
    tensor64 q = want =
        meaning(OP_QUANTIZE, OPERANDS(x, scale, zero), ATTRS(AT_I(AXIS, 1), AT_S(OUTPUT_DTYPE, "int8")));
    want = meaning(OP_DEQUANTIZE, OPERANDS(q, scale, zero), ATTRS(AT_I(AXIS, 1)));
    start();
    tx = feed(q), ts = feed(scale), tz = feed(zero), y = result(want);
    prog_insn(&g, IN_DEQUANT, INTS(y, tx, ts, tz), INTS(1), NO_REALS);
    finish(want, TOL, "dequantize");
}

/* ---- images ---- */

static void images(void **s)
{
    (void)s;
    static const char *const grids[] = { "DEFAULT", "STRICT_ALIGN_CORNERS", "ALIGN_CORNERS", "OFFSET_CORNERS",
                                         "UNALIGN_CORNERS" };
    tensor64 x = noise(DIMS(2, 3, 4, 5), 1), want;
    int64_t tx, y;
    for (int k = 0; k < GRID_COUNT; k++)
        for (int shrink = 0; shrink < 2; shrink++) {
            int64_t h = shrink ? 3 : 9, w = shrink ? 2 : 7;
            want =
                meaning(OP_RESIZE_BILINEAR, OPERANDS(x),
                        ATTRS(AT_I(TARGET_SIZE_HEIGHT, h), AT_I(TARGET_SIZE_WIDTH, w), AT_S(SAMPLING_MODE, grids[k])));
            start();
            tx = feed(x), y = result(want);
            prog_insn(&g, IN_RESIZE, INTS(y, tx), INTS(1, k), NO_REALS);
            finish(want, TOL, grids[k]);
        }
    want = meaning(OP_RESIZE_NEAREST, OPERANDS(x), ATTRS(AT_I(TARGET_SIZE_HEIGHT, 9), AT_I(TARGET_SIZE_WIDTH, 3)));
    start();
    tx = feed(x), y = result(want);
    prog_insn(&g, IN_RESIZE, INTS(y, tx), INTS(0, GRID_DEFAULT), NO_REALS);
    finish(want, 0, "nearest");
    tensor64 at = noise(DIMS(2, 3, 3, 2), 1);
    static const char *const edges[] = { "constant", "border", "reflection", "symmetric" };
    static const char *const spaces[] = { "unnormalized", "normalized_minus_one_to_one", "normalized_zero_to_one" };
    for (int e = 0; e < 4; e++)
        for (int k = 0; k < 6; k++) {
            const attr a[] = { AT_S(SAMPLING_MODE, k & 1 ? "bilinear" : "nearest"), AT_S(PADDING_MODE, edges[e]),
                               AT_F(PADDING_VALUE, 7), AT_S(COORDINATES_MODE, spaces[k / 2]),
                               AT_B(ALIGN_CORNERS, e & 1) };
            want = meaning(OP_RESAMPLE, OPERANDS(x, at), a, COUNT(a));
            start();
            tx = feed(x);
            int64_t ta = feed(at);
            y = result(want);
            prog_insn(&g, IN_RESAMPLE, INTS(y, tx, ta), INTS(k & 1, e, k / 2, e & 1), REALS(7));
            finish(want, TOL, "resample");
            if (!(k & 1) || e) continue; /* affine is bilinear and pads with a constant */
            tensor64 m = noise(DIMS(1, 6), 0.7);
            const attr b[] = { AT_S(SAMPLING_MODE, "bilinear"),
                               AT_S(PADDING_MODE, edges[e]),
                               AT_F(PADDING_VALUE, 7),
                               AT_S(COORDINATES_MODE, spaces[k / 2]),
                               AT_B(ALIGN_CORNERS, e & 1),
                               AT_I(OUTPUT_HEIGHT, 3),
                               AT_I(OUTPUT_WIDTH, 6) };
            want = meaning(OP_AFFINE, OPERANDS(x, m), b, COUNT(b));
            start();
            tx = feed(x), ta = feed(m), y = result(want);
            prog_insn(&g, IN_WARP, INTS(y, tx, ta), INTS(k & 1, e, k / 2, e & 1), REALS(7));
            finish(want, TOL, "warp");
        }
    tensor64 boxes = make(DT_F32, DIMS(3, 4)), of = make(DT_I32, DIMS(3));
    static const double b[12] = { 0, 0, 2, 3, 0.5, 1, 3, 4, 3, 3, 1, 0 };
    memcpy(boxes.x, b, sizeof b), of.x[0] = 1, of.x[2] = 1;
    for (int k = 0; k < GRID_COUNT; k++) {
        const attr a[] = { AT_I(TARGET_HEIGHT, 3),
                           AT_I(TARGET_WIDTH, 4),
                           AT_B(NORMALIZED_COORDINATES, false),
                           AT_F(SPATIAL_SCALE, 1),
                           AT_S(BOX_COORDINATE_MODE, "CORNERS_HEIGHT_FIRST"),
                           AT_S(SAMPLING_MODE, grids[k]),
                           AT_F(PADDING_VALUE, 5) };
        want = meaning(OP_CROP_RESIZE, OPERANDS(x, boxes, of), a, COUNT(a));
        start();
        tx = feed(x);
        int64_t tb = feed(boxes), to = feed(of);
        y = result(want);
        prog_insn(&g, IN_CROP_RESIZE, INTS(y, tx, tb, to), INTS(1, k, 0, 0), REALS(1, 5));
        finish(want, TOL, "crop_resize");
    }
}

/* ---- constants ---- */

typedef struct {
    const char *what;
    const_entry c;
    int rank;
    int64_t dim[4];
    double want[8];
} form;

/* Inline data: 0 int8 q, 8 scales fp16 (0.5, 2), 16 int8 zero, 24 palette fp16 0..3 as 1,2,3,-4, 32 packed indices,
 * 40 mask, 48 values */
static void constant_forms(void **s)
{
    (void)s;
    static unsigned char data[160] = { 1,    2,    0xff, 4,    5, 0xfa, 7, 8, 0x00, 0x38, 0x00, 0x40, 0,    0,
                                       0,    0,    1,    0,    0, 0,    0, 0, 0,    0,    0x00, 0x3c, 0x00, 0x40,
                                       0x00, 0x42, 0x00, 0xc4, 0, 0,    0, 0, 0,    0,    0,    0 };
    data[32] = 0xe4, data[33] = 0x1b, data[40] = 0x29; /* 0 1 2 3 3 2 1 0; bits 0, 3, 5 */
    /* zero points; 0 to 7 in three bits each */
    data[36] = 1, data[38] = 2, data[64] = 0x88, data[65] = 0xc6, data[66] = 0xfa;
    for (int i = 0; i < 8; i++)
        dtype_store(DT_F16, data + 72, i, i + 1), dtype_store(DT_F64, data + 96, i, i ? i : 1 + 0x1p-11 + 0x1p-40);
    const_source q = { .dt = DT_I8, .rank = 2, .dim = { 2, 4 }, .bytes = 8 };
    const_source scale = { .offset = 8, .dt = DT_F16, .rank = 1, .dim = { 2 }, .bytes = 4 },
                 scalar = { .offset = 10, .dt = DT_F16, .bytes = 2 };
    const_source zero = { .offset = 16, .dt = DT_I8, .bytes = 1 };
    const_source lut = { .offset = 24, .dt = DT_F16, .rank = 1, .dim = { 4 }, .bytes = 8 },
                 ix = { .offset = 32, .dt = DT_U8, .rank = 1, .dim = { 2 }, .bytes = 2 };
    const_source lut2 = { .offset = 24, .dt = DT_F16, .rank = 4, .dim = { 2, 1, 2, 1 }, .bytes = 8 };
    const_source ix1 = { .offset = 40, .dt = DT_U1, .rank = 2, .dim = { 2, 4 }, .bytes = 1 };
    const_source lutv = { .offset = 24, .dt = DT_F16, .rank = 4, .dim = { 1, 1, 2, 2 }, .bytes = 8 },
                 ixv = { .offset = 40, .dt = DT_U1, .rank = 2, .dim = { 2, 2 }, .bytes = 1 };
    const_source mask = { .offset = 40, .dt = DT_U1, .rank = 2, .dim = { 2, 4 }, .bytes = 1 },
                 bytes_mask = { .offset = 40, .dt = DT_U8, .rank = 1, .dim = { 1 }, .bytes = 1 };
    const_source kept = { .offset = 24, .dt = DT_F16, .rank = 1, .dim = { 3 }, .bytes = 6 },
                 kept_q = { .offset = 0, .dt = DT_I8, .rank = 1, .dim = { 3 }, .bytes = 3 };
    const_source bscale = { .offset = 24, .dt = DT_F16, .rank = 2, .dim = { 2, 2 }, .bytes = 8 };
    const_source lut8 = { .offset = 72, .dt = DT_F16, .rank = 1, .dim = { 8 }, .bytes = 16 },
                 ix3 = { .offset = 64, .dt = DT_U8, .rank = 1, .dim = { 3 }, .bytes = 3 };
    const_source bzero = { .offset = 36, .dt = DT_I8, .rank = 2, .dim = { 2, 2 }, .bytes = 4 },
                 wide = { .offset = 96, .dt = DT_F64, .rank = 2, .dim = { 2, 4 }, .bytes = 64 };
    form forms[] = {
        { "affine", { .kind = CK_AFFINE, .n_src = 3, .axis = 0, .src = { q, scale, zero } }, 2, { 2, 4 }, { 0, 0.5, -1, 1.5, 8, -14, 12, 14 } },
        { "affine, one scale", { .kind = CK_AFFINE, .n_src = 2, .axis = -1, .src = { q, scalar } }, 2, { 2, 4 }, { 2, 4, -2, 8, 10, -12, 14, 16 } },
        { "palette", { .kind = CK_LUT, .n_src = 2, .axis = -1, .src = { ix, lut } }, 2, { 2, 4 }, { 1, 2, 3, -4, -4, 3, 2, 1 } },
        { "palette per row", { .kind = CK_LUT, .n_src = 2, .axis = -1, .src = { ix1, lut2 } }, 2, { 2, 4 }, { 2, 1, 1, 2, 3, -4, 3, 3 } },
        { "palette of pairs", { .kind = CK_LUT, .n_src = 2, .axis = 1, .src = { ixv, lutv } }, 2, { 2, 4 }, { 3, -4, 1, 2, 1, 2, 3, -4 } },
        { "sparse", { .kind = CK_SPARSE, .n_src = 2, .src = { kept, mask } }, 2, { 2, 4 }, { 1, 0, 0, 2, 0, 3, 0, 0 } },
        { "sparse, bytes", { .kind = CK_SPARSE, .n_src = 2, .src = { kept, bytes_mask } }, 2, { 2, 4 }, { 1, 0, 0, 2, 0, 3, 0, 0 } },
        { "block", { .kind = CK_BLOCK, .n_src = 2, .src = { q, bscale } }, 2, { 2, 4 }, { 1, 2, -2, 8, 15, -18, -28, -32 } },
        { "sparse block", { .kind = CK_SPARSE_BLOCK, .n_src = 3, .src = { kept_q, mask, bscale } }, 2, { 2, 4 }, { 1, 0, 0, 4, 0, -3, 0, 0 } },
        { "palette of three bits", { .kind = CK_LUT, .n_src = 2, .axis = -1, .src = { ix3, lut8 } }, 2, { 2, 4 }, { 1, 2, 3, 4, 5, 6, 7, 8 } },
        { "sparse block, zero points", { .kind = CK_SPARSE_BLOCK, .n_src = 4, .src = { kept_q, mask, bscale, bzero } }, 2, { 2, 4 }, { 0, 0, 0, 4, 0, -9, 0, 0 } },
        { "dense, rounded once", { .kind = CK_DENSE, .n_src = 1, .src = { wide } }, 2, { 2, 4 }, { 1 + 0x1p-10, 1, 2, 3, 4, 5, 6, 7 } },
        { "dense, converted", { .kind = CK_DENSE, .n_src = 1, .src = { q } }, 2, { 2, 4 }, { 1, 2, -1, 4, 5, -6, 7, 8 } },
    };
    for (size_t k = 0; k < COUNT(forms); k++) {
        start();
        g.p->data = data, g.p->n_data = sizeof data;
        int64_t t = prog_tensor(&g, DT_F16, SPACE_CONST, 0, forms[k].dim, forms[k].rank),
                y = prog_out(&g, DT_F16, forms[k].dim, forms[k].rank);
        forms[k].c.tensor = (uint32_t)t;
        assert_true(VEC_PUSH(&g.p->mem, &g.p->consts, forms[k].c));
        prog_insn(&g, IN_MOVE, INTS(y, t), INTS(1, 8, 0, 1, 1, 0, 1, 1, 0), NO_REALS);
        prog_run(&g, true);
        for (int i = 0; i < 8; i++)
            if (g.out[0][i] != forms[k].want[i])
                fail_msg("%s: element %d is %g, wanted %g", forms[k].what, i, g.out[0][i], forms[k].want[i]);
        prog_close(&g);
    }
    for (int block = 0; block < 2; block++) { /* three bits set and two values */
        const_source few = block ? kept_q : kept;
        few.dim[0] = 2, few.bytes = block ? 2 : 4;
        const_entry c = { .kind = block ? CK_SPARSE_BLOCK : CK_SPARSE,
                          .n_src = 2 + block,
                          .src = { few, mask, bscale } };
        start();
        g.p->data = data, g.p->n_data = sizeof data;
        c.tensor = (uint32_t)prog_tensor(&g, DT_F16, SPACE_CONST, 0, DIMS(2, 4));
        int64_t y = prog_out(&g, DT_F16, DIMS(2, 4));
        assert_true(VEC_PUSH(&g.p->mem, &g.p->consts, c));
        prog_insn(&g, IN_MOVE, INTS(y, c.tensor), INTS(1, 8, 0, 1, 1, 0, 1, 1, 0), NO_REALS);
        assert_int_equal(prog_try(&g, true), AN_INPUT);
        assert_non_null(strstr(g.d.msg, "3 bits set"));
        prog_close(&g);
    }
}

/* Long rows take a shorter way to the same values. */
static void long_constants(void **s)
{
    (void)s;
    enum { ROWS = 3, COLS = 1500, N = ROWS * COLS };
    static unsigned char data[8192];
    for (int i = 0; i < N; i++) data[i] = (unsigned char)rng_next(&dice);
    for (int i = 0; i < ROWS; i++)
        dtype_store(DT_F16, data + 4608, i, 0.013 * (i + 1)), dtype_store(DT_I8, data + 4640, i, i - 1);
    for (int i = 0; i < 16; i++) dtype_store(DT_F16, data + 4672, i, rng_normal(&dice));
    const_source q = { .dt = DT_I8, .rank = 2, .dim = { ROWS, COLS }, .bytes = N },
                 zero = { .offset = 4640, .dt = DT_I8, .rank = 1, .dim = { ROWS }, .bytes = ROWS };
    const_source scale = { .offset = 4608, .dt = DT_F16, .rank = 1, .dim = { ROWS }, .bytes = 2 * ROWS };
    const_source ix = { .dt = DT_U8, .rank = 1, .dim = { N / 2 }, .bytes = N / 2 },
                 lut = { .offset = 4672, .dt = DT_F16, .rank = 1, .dim = { 16 }, .bytes = 32 };
    const_entry forms[] = { { .kind = CK_AFFINE, .n_src = 3, .axis = 0, .src = { q, scale, zero } },
                            { .kind = CK_LUT, .n_src = 2, .axis = -1, .src = { ix, lut } } };
    for (int k = 0; k < 2; k++) {
        start();
        g.p->data = data, g.p->n_data = sizeof data;
        forms[k].tensor = (uint32_t)prog_tensor(&g, DT_F16, SPACE_CONST, 0, DIMS(ROWS, COLS));
        int64_t y = prog_out(&g, DT_F16, DIMS(ROWS, COLS));
        assert_true(VEC_PUSH(&g.p->mem, &g.p->consts, forms[k]));
        prog_insn(&g, IN_MOVE, INTS(y, forms[k].tensor), INTS(1, N, 0, 1, 1, 0, 1, 1, 0), NO_REALS);
        prog_run(&g, true);
        for (int i = 0; i < N; i++) {
            double want =
                k == 0 ? dtype_round(DT_F16, dtype_load(DT_F16, data + 4608, i / COLS) *
                                                 ((double)(int8_t)data[i] - (i / COLS - 1)))
                       : dtype_load(DT_F16, data + 4672, (data[i / 2] >> (i % 2 * 4)) & 15); /* low nibble first */
            if (g.out[0][i] != want) fail_msg("form %d: element %d is %g, wanted %g", k, i, g.out[0][i], want);
        }
        prog_close(&g);
    }
}

/* Runs of one scale and zero point, or of one table, at once: the values of one element after the other. Odd runs of
 * nibbles begin inside a byte. */
static void constants_in_runs(void **s)
{
    (void)s;
    enum { ROWS = 3, COLS = 1500, N = ROWS * COLS, SCALES = 4608, ZEROS = 5248, TABLES = 5568, FLOATS = 5888,
           BYTES = 8192 };
    static unsigned char data[16384];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)rng_next(&dice);
    for (int i = 0; i < 300; i++) dtype_store(DT_F16, data + SCALES, i, 0.013 * (i % 7 + 1));
    for (int i = 0; i < 96; i++) dtype_store(DT_F16, data + TABLES, i, rng_normal(&dice));
    for (int i = 0; i < 300; i++) dtype_store(DT_F32, data + FLOATS, i, 0.37 * i);
    for (int i = 0; i < N; i++) data[BYTES + i] &= 15;
#define CODES(t, bits) { .dt = t, .rank = 2, .dim = { ROWS, COLS }, .bytes = N * (bits) / 8 }
#define PART(at, t, size, r, a, b) { .offset = at, .dt = t, .rank = r, .dim = { a, b }, .bytes = (a) * (b) * (size) }
    const const_entry forms[] = {
        { .kind = CK_BLOCK, .n_src = 2, .src = { CODES(DT_I4, 4), PART(SCALES, DT_F16, 2, 2, ROWS, 100) } },
        { .kind = CK_BLOCK, .n_src = 3, .src = { CODES(DT_U4, 4), PART(SCALES, DT_F16, 2, 2, ROWS, 100), PART(ZEROS, DT_I8, 1, 2, ROWS, 100) } },
        { .kind = CK_BLOCK, .n_src = 3, .src = { CODES(DT_U8, 8), PART(SCALES, DT_F16, 2, 2, ROWS, 100), PART(FLOATS, DT_F32, 4, 2, ROWS, 100) } },
        { .kind = CK_BLOCK, .n_src = 2, .src = { CODES(DT_I8, 8), PART(SCALES, DT_F16, 2, 2, ROWS, 2) } },
        { .kind = CK_BLOCK, .n_src = 2, .src = { CODES(DT_I8, 8), PART(SCALES, DT_F16, 2, 2, 1, 2) } },
        { .kind = CK_AFFINE, .n_src = 3, .src = { CODES(DT_I8, 8), PART(SCALES, DT_F16, 2, 1, 1, 1), PART(ZEROS, DT_I8, 1, 1, ROWS, 1) } },
        { .kind = CK_AFFINE, .n_src = 3, .src = { CODES(DT_I8, 8), PART(SCALES, DT_F16, 2, 1, ROWS, 1), PART(ZEROS, DT_I8, 1, 1, 1, 1) } },
        { .kind = CK_AFFINE, .n_src = 3, .src = { CODES(DT_U8, 8), PART(SCALES, DT_F16, 2, 1, ROWS, 1), PART(FLOATS, DT_F32, 4, 1, ROWS, 1) } },
        { .kind = CK_LUT, .n_src = 2, .axis = -1, .src = { { .offset = BYTES, .dt = DT_U8, .rank = 2, .dim = { ROWS, COLS }, .bytes = N }, { .offset = TABLES, .dt = DT_F16, .rank = 4, .dim = { ROWS, 1, 16, 1 }, .bytes = 96 } } },
        { .kind = CK_LUT, .n_src = 2, .axis = -1, .src = { CODES(DT_U4, 4), { .offset = TABLES, .dt = DT_F16, .rank = 4, .dim = { ROWS, 2, 16, 1 }, .bytes = 192 } } },
    };
#undef PART
#undef CODES
    for (size_t k = 0; k < 2 * COUNT(forms); k++) {
        static double want[N];
        const dtype t = k % 2 ? DT_F32 : DT_F16;
        start();
        g.p->data = data, g.p->n_data = sizeof data;
        const_entry c = forms[k / 2];
        c.tensor = (uint32_t)prog_tensor(&g, t, SPACE_CONST, 0, DIMS(ROWS, COLS));
        int64_t y = prog_out(&g, t, DIMS(ROWS, COLS));
        assert_true(VEC_PUSH(&g.p->mem, &g.p->consts, c));
        prog_insn(&g, IN_MOVE, INTS(y, c.tensor), INTS(1, N, 0, 1, 1, 0, 1, 1, 0), NO_REALS);
        prog_run(&g, true);
        memcpy(want, g.out[0], sizeof want);
        prog_run(&g, false);
        for (int i = 0; i < N; i++)
            if (g.out[0][i] != want[i])
                fail_msg("form %zu: element %d is %g, wanted %g", k / 2, i, g.out[0][i], want[i]);
        prog_close(&g);
    }
}

/* A mask is causal when every row is: what it keeps is 0, what it hides is out of reach. */
static void causal_masks(void **s)
{
    (void)s;
    enum { N = 4 };
    float mask[N * N];
    for (int changed = -1; changed < N * N; changed++) {
        for (int i = 0; i < N * N; i++) mask[i] = i % N > i / N ? -INFINITY : 0;
        if (changed >= 0) mask[changed] = mask[changed] == 0 ? -INFINITY : 0;
        assert_int_equal(mask_is_causal(DT_F32, mask, N), changed < 0);
        if (changed >= 0) mask[changed] = -1; /* neither */
        assert_int_equal(mask_is_causal(DT_F32, mask, N), changed < 0);
    }
}

/* A weight file with one record; reloading reads it again. */
static unsigned char file[192];

static an_status whole_file(void *user, const char *path, const unsigned char **at, size_t *n, diag *d)
{
    assert_string_equal(path, "@model_path/w.bin");
    (void)d;
    *at = file, *n = *(size_t *)user;
    return AN_OK;
}

static an_status one_record(void *user, const char *path, uint64_t offset, dtype type, uint64_t bytes,
                            const unsigned char **at, diag *d)
{
    assert_string_equal(path, "@model_path/w.bin");
    if (*(size_t *)user < sizeof file) return diag_fail(d, AN_INPUT, NOWHERE, "%s: gone", path);
    assert_true(offset == 64 && type == DT_F32 && bytes == 8);
    *at = file + 128;
    return AN_OK;
}

static void weight_files(void **s)
{
    (void)s;
    float v[2] = { 3, -5 };
    uint32_t sentinel = 0xDEADBEEF;
    uint64_t size = 8, at = 128;
    memcpy(file + 64, &sentinel, 4), memcpy(file + 72, &size, 8), memcpy(file + 80, &at, 8), memcpy(file + 128, v, 8);
    for (int by_record = 0; by_record < 2; by_record++) {
        start();
        int64_t t = prog_tensor(&g, DT_F32, SPACE_CONST, 0, DIMS(2)), x = prog_in(&g, DT_F32, DIMS(2), VALUES(10, 20)),
                y = prog_out(&g, DT_F32, DIMS(2));
        const_entry c = {
            .kind = CK_DENSE,
            .tensor = (uint32_t)t,
            .n_src = 1,
            .src = { { .path = "@model_path/w.bin", .offset = 64, .dt = DT_F32, .rank = 1, .dim = { 2 }, .bytes = 8 } }
        };
        assert_true(VEC_PUSH(&g.p->mem, &g.p->consts, c));
        prog_insn(&g, IN_EW, INTS(y, 2, x, t), INTS(6, FN_ADD, 0, 1, -1, 0, DT_F32), REALS(0));
        assert_int_equal(prog_try(&g, true), AN_INPUT);
        assert_non_null(strstr(g.d.msg, "w.bin"));
        size_t have = sizeof file;
        weight_source w = { .file = whole_file, .record = by_record ? one_record : NULL, .user = &have };
        image *im = NULL;
        image_options o = { .reference = true };
        diag d = { 0 };
        float *out = (float *)(void *)g.out_bytes[0];
        memcpy(file + 128, v, 8);
        assert_ok(image_load(&im, g.p, &w, &o, &d), d);
        assert_ok(image_run(im, (const void *const *)g.in, (void *const *)g.out_bytes, &d), d);
        assert_true(out[0] == 13 && out[1] == 15);
        float other[2] = { 0.5f, 1 };
        memcpy(file + 128, other, 8);
        assert_ok(image_reload(im, &w, &d), d);
        assert_ok(image_run(im, (const void *const *)g.in, (void *const *)g.out_bytes, &d), d);
        assert_true(out[0] == 10.5f && out[1] == 21);
        have = 100; /* cut short: refused, and the image must not run on half-loaded weights */
        assert_int_equal(image_reload(im, &w, &d), AN_INPUT);
        d = (diag){ 0 };
        assert_int_equal(image_run(im, (const void *const *)g.in, (void *const *)g.out_bytes, &d), AN_INPUT);
        have = sizeof file, d = (diag){ 0 };
        assert_ok(image_reload(im, &w, &d), d);
        assert_ok(image_run(im, (const void *const *)g.in, (void *const *)g.out_bytes, &d), d);
        assert_true(image_bytes(im) > 0);
        image_free(im);
        prog_close(&g);
    }
}

/* One buffer as output and next input: reads see what was there before the run. */
static void resident_state(void **s)
{
    (void)s;
    start();
    int64_t x = prog_in(&g, DT_F16, DIMS(4), NULL), y = prog_out(&g, DT_F16, DIMS(4));
    prog_insn(&g, IN_FILL, INTS(y), NO_INTS, REALS(100)); /* would spoil x if it were read in place */
    prog_insn(&g, IN_EW, INTS(y, 1, x), INTS(6, FN_AFFINE, 0, -1, -1, 0, DT_F16), REALS(2, 1, 1));
    image *im = NULL;
    diag d = { 0 };
    assert_ok(image_load(&im, g.p, NULL, NULL, &d), d);
    void *both[1] = { g.in[0] };
    for (int step = 1; step <= 4; step++) {
        assert_ok(image_run(im, (const void *const *)both, both, &d), d);
        assert_true(dtype_load(DT_F16, both[0], 3) == step);
    }
    assert_int_equal(image_run(im, (const void *const *)(const void *[]){ NULL }, both, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "not bound"));
    image_free(im);
    d = (diag){ 0 };
    /* never quietly something else */
    assert_int_equal(image_load(&im, g.p, NULL, &(image_options){ .fast_math = 3 }, &d), AN_UNSUPPORTED);
    assert_null(im);
    prog_close(&g);
}

static int setup(void **s)
{
    (void)s;
    dice.s = test_seed("engine_ref");
    return 0;
}

static int teardown(void **s)
{
    (void)s;
    arena_free(&mem);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products),       cmocka_unit_test(convolutions),
        cmocka_unit_test(attention),      cmocka_unit_test(functions),
        cmocka_unit_test(chains),         cmocka_unit_test(reductions),
        cmocka_unit_test(lines),          cmocka_unit_test(norms),
        cmocka_unit_test(pools),          cmocka_unit_test(movement),
        cmocka_unit_test(gathers),        cmocka_unit_test(types),
        cmocka_unit_test(images),         cmocka_unit_test(constant_forms),
        cmocka_unit_test(long_constants), cmocka_unit_test(constants_in_runs),
        cmocka_unit_test(causal_masks),   cmocka_unit_test(weight_files),
        cmocka_unit_test(resident_state),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
