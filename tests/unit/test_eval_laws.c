/* Laws the evaluator must keep on random shapes: definitions written as plain loops over indices, inverses,
 * adjoints, and the same thing said with other operations. */
#include "eval_t.h"

enum { ROUNDS = 60 };
static uint64_t seed;

static int64_t pick(rng *r, int64_t lo, int64_t hi) { return lo + (int64_t)rng_below(r, (uint64_t)(hi - lo + 1)); }

static char text[8][160]; /* attribute texts under construction */
#define TEXT(i, ...) (snprintf(text[i], sizeof text[i], __VA_ARGS__), text[i])
#define L(x) (long long)(x)

static void same_values(const char *law, const tensor64 *a, const tensor64 *b)
{
    int64_t n = 0, m = 0;
    assert_true(shape_elems(&a->type.sh, &n) && shape_elems(&b->type.sh, &m));
    if (n != m) fail_msg("%s: %lld and %lld elements", law, L(n), L(m));
    for (int64_t i = 0; i < n; i++)
        if (fabs(a->x[i] - b->x[i]) > 1e-9) fail_msg("%s: element %lld: %.17g and %.17g", law, L(i), a->x[i], b->x[i]);
}

static shape random_shape(rng *r, int rank_lo, int rank_hi, int64_t most)
{
    shape s = { .rank = (int)pick(r, rank_lo, rank_hi) };
    for (int i = 0; i < s.rank; i++) s.d[i] = pick(r, 1, most);
    return s;
}

static tensor64 as_ints(tensor64 t, rng *r, int64_t extent)
{
    int64_t n;
    assert_true(shape_elems(&t.type.sh, &n));
    t.type.dt = DT_I32;
    for (int64_t i = 0; i < n; i++) t.x[i] = (double)pick(r, -extent, extent - 1);
    return t;
}

static double dot(const tensor64 *a, const tensor64 *b)
{
    int64_t n;
    double s = 0;
    assert_true(shape_elems(&a->type.sh, &n));
    for (int64_t i = 0; i < n; i++) s += a->x[i] * b->x[i];
    return s;
}

/* ---- convolution ---- */

typedef struct {
    int64_t n, groups, ci, co, h, w, kh, kw, sh, sw, dh, dw, pad[4];
    tensor64 x, wt;
} conv_case;

static conv_case random_conv(arena *a, rng *r)
{
    conv_case c;
    do {
        c.n = pick(r, 1, 2), c.groups = pick(r, 1, 2), c.ci = pick(r, 1, 3), c.co = pick(r, 1, 3), c.h = pick(r, 1, 6),
        c.w = pick(r, 1, 7);
        c.kh = pick(r, 1, 3), c.kw = pick(r, 1, 3), c.sh = pick(r, 1, 3), c.sw = pick(r, 1, 3), c.dh = pick(r, 1, 2),
        c.dw = pick(r, 1, 2);
        for (int i = 0; i < 4; i++) c.pad[i] = pick(r, 0, 2);
    } while (c.h + c.pad[0] + c.pad[1] < (c.kh - 1) * c.dh + 1 || c.w + c.pad[2] + c.pad[3] < (c.kw - 1) * c.dw + 1);
    c.x = ev_random(a, r, SHAPE(c.n, c.groups * c.ci, c.h, c.w));
    c.wt = ev_random(a, r, SHAPE(c.groups * c.co, c.ci, c.kh, c.kw));
    return c;
}

static const char *conv_text(const conv_case *c)
{
    return TEXT(0, "strides=%lld,%lld dilations=%lld,%lld groups=%lld pad_type=custom pad=%lld,%lld,%lld,%lld",
                L(c->sh), L(c->sw), L(c->dh), L(c->dw), L(c->groups), L(c->pad[0]), L(c->pad[1]), L(c->pad[2]),
                L(c->pad[3]));
}

/* The sum as it is written in a textbook, one output element at a time. */
static double conv_at(const conv_case *c, int64_t b, int64_t o, int64_t y, int64_t x)
{
    double s = 0;
    int64_t g = o / c->co, cin = c->groups * c->ci;
    for (int64_t i = 0; i < c->ci; i++)
        for (int64_t u = 0; u < c->kh; u++)
            for (int64_t v = 0; v < c->kw; v++) {
                int64_t py = y * c->sh + u * c->dh - c->pad[0], px = x * c->sw + v * c->dw - c->pad[2];
                if (py < 0 || py >= c->h || px < 0 || px >= c->w) continue;
                s += c->x.x[((b * cin + g * c->ci + i) * c->h + py) * c->w + px] *
                     c->wt.x[((o * c->ci + i) * c->kh + u) * c->kw + v];
            }
    return s;
}

static void conv_is_its_definition(void **state)
{
    (void)state;
    rng r = { seed };
    for (int round = 0; round < ROUNDS; round++) {
        arena a = { 0 };
        conv_case c = random_conv(&a, &r);
        tensor64 in[3] = { c.x, c.wt, ev_random(&a, &r, SHAPE(c.groups * c.co)) };
        tensor64 y = ev_one(&a, OP_CONV, conv_text(&c), in, 3);
        const double *p = y.x;
        for (int64_t b = 0; b < c.n; b++)
            for (int64_t o = 0; o < c.groups * c.co; o++)
                for (int64_t i = 0; i < y.type.sh.d[2]; i++)
                    for (int64_t j = 0; j < y.type.sh.d[3]; j++)
                        assert_true(ev_close(*p++, conv_at(&c, b, o, i, j) + in[2].x[o]));
        arena_free(&a);
    }
}

static void conv_transpose_is_the_adjoint_of_conv(void **state)
{
    (void)state;
    rng r = { seed + 1 };
    int checked = 0;
    for (int round = 0; round < ROUNDS; round++) {
        arena a = { 0 };
        conv_case c = random_conv(&a, &r);
        tensor64 y = ev_one(&a, OP_CONV, conv_text(&c), (tensor64[]){ c.x, c.wt }, 2);
        tensor64 z = ev_random(&a, &r, y.type.sh);
        /* The extents conv_transpose has by itself must exist, even though output_shape overrules them. */
        bool exists = true;
        for (int k = 0; k < 2; k++) {
            int64_t step = k ? c.sw : c.sh, reach = k ? (c.kw - 1) * c.dw + 1 : (c.kh - 1) * c.dh + 1;
            exists = exists && (y.type.sh.d[2 + k] - 1) * step + reach - c.pad[2 * k] - c.pad[2 * k + 1] >= 1;
        }
        checked += exists;
        if (!exists) {
            arena_free(&a);
            continue;
        }
        TEXT(1, "%s output_shape=%lld,%lld,%lld,%lld", conv_text(&c), L(c.n), L(c.groups * c.ci), L(c.h), L(c.w));
        tensor64 back = ev_one(&a, OP_CONV_TRANSPOSE, text[1], (tensor64[]){ z, c.wt }, 2);
        assert_true(fabs(dot(&y, &z) - dot(&c.x, &back)) < 1e-9);
        arena_free(&a);
    }
    assert_true(checked > ROUNDS / 2);
}

static void same_padding_covers_every_place(void **state)
{
    (void)state;
    rng r = { seed + 2 };
    for (int round = 0; round < ROUNDS; round++) {
        arena a = { 0 };
        int64_t n = pick(&r, 1, 9), k = pick(&r, 1, 4), s = pick(&r, 1, 3), out = (n + s - 1) / s;
        int64_t total = (out - 1) * s + k > n ? (out - 1) * s + k - n : 0, before = total / 2;
        tensor64 x = ev_random(&a, &r, SHAPE(1, 1, n)), w = ev_random(&a, &r, SHAPE(1, 1, k));
        tensor64 same = ev_one(&a, OP_CONV, TEXT(0, "pad_type=same strides=%lld", L(s)), (tensor64[]){ x, w }, 2);
        TEXT(1, "pad_type=custom strides=%lld pad=%lld,%lld", L(s), L(before), L(total - before));
        tensor64 custom = ev_one(&a, OP_CONV, text[1], (tensor64[]){ x, w }, 2);
        same_values("same", &same, &custom);
        tensor64 lower =
            ev_one(&a, OP_CONV, TEXT(0, "pad_type=same_lower strides=%lld", L(s)), (tensor64[]){ x, w }, 2);
        TEXT(1, "pad_type=custom strides=%lld pad=%lld,%lld", L(s), L(total - before), L(before));
        custom = ev_one(&a, OP_CONV, text[1], (tensor64[]){ x, w }, 2);
        same_values("same_lower", &lower, &custom);
        arena_free(&a);
    }
}

/* Without padding an average is a depthwise convolution, and the square of an l2 pool is the sum of squares. */
static void pools_are_convolutions(void **state)
{
    (void)state;
    rng r = { seed + 3 };
    for (int round = 0; round < ROUNDS; round++) {
        arena a = { 0 };
        int64_t kh = pick(&r, 1, 3), kw = pick(&r, 1, 3), s = pick(&r, 1, 2), ch = pick(&r, 1, 3);
        tensor64 x = ev_random(&a, &r, SHAPE(2, ch, kh + pick(&r, 0, 3), kw + pick(&r, 0, 4))),
                 w = ev_random(&a, &r, SHAPE(ch, 1, kh, kw));
        for (int64_t i = 0; i < ch * kh * kw; i++) w.x[i] = 1.0 / (double)(kh * kw);
        TEXT(0, "kernel_sizes=%lld,%lld strides=%lld,%lld", L(kh), L(kw), L(s), L(s));
        TEXT(1, "groups=%lld strides=%lld,%lld", L(ch), L(s), L(s));
        tensor64 avg = ev_one(&a, OP_AVG_POOL, text[0], &x, 1),
                 cv = ev_one(&a, OP_CONV, text[1], (tensor64[]){ x, w }, 2);
        same_values("avg", &avg, &cv);
        tensor64 l2 = ev_one(&a, OP_L2_POOL, text[0], &x, 1), sq = ev_one(&a, OP_SQUARE, "", &x, 1);
        tensor64 ss = ev_one(&a, OP_AVG_POOL, text[0], &sq, 1), l2s = ev_one(&a, OP_SQUARE, "", &l2, 1);
        for (int64_t i = 0, n = (int64_t)(2 * ch) * l2.type.sh.d[2] * l2.type.sh.d[3]; i < n; i++)
            ss.x[i] *= (double)(kh * kw);
        same_values("l2", &l2s, &ss);
        /* and a maximum is a reduction of the slice under the window */
        tensor64 mx = ev_one(&a, OP_MAX_POOL, text[0], &x, 1);
        int64_t i = pick(&r, 0, mx.type.sh.d[2] - 1), j = pick(&r, 0, mx.type.sh.d[3] - 1);
        TEXT(2, "begin=0,0,%lld,%lld size=-1,-1,%lld,%lld", L(i * s), L(j * s), L(kh), L(kw));
        tensor64 part = ev_one(&a, OP_SLICE_BY_SIZE, text[2], &x, 1),
                 red = ev_one(&a, OP_REDUCE_MAX, "axes=2,3", &part, 1);
        TEXT(2, "begin=0,0,%lld,%lld size=-1,-1,1,1", L(i), L(j));
        tensor64 at = ev_one(&a, OP_SLICE_BY_SIZE, text[2], &mx, 1);
        same_values("max", &at, &red);
        arena_free(&a);
    }
}

/* ---- products ---- */

static void matmul_is_its_definition(void **state)
{
    (void)state;
    rng r = { seed + 4 };
    for (int round = 0; round < ROUNDS; round++) {
        arena a = { 0 };
        int64_t m = pick(&r, 1, 5), n = pick(&r, 1, 5), k = pick(&r, 1, 7), b = pick(&r, 1, 3),
                bx = pick(&r, 0, 1) ? b : 1, by = pick(&r, 0, 1) ? b : 1;
        bool tx = pick(&r, 0, 1), ty = pick(&r, 0, 1);
        tensor64 in[2] = { ev_random(&a, &r, SHAPE(bx, tx ? k : m, tx ? m : k)),
                           ev_random(&a, &r, SHAPE(by, ty ? n : k, ty ? k : n)) };
        tensor64 z =
            ev_one(&a, OP_MATMUL,
                   TEXT(0, "transpose_x=%s transpose_y=%s", tx ? "true" : "false", ty ? "true" : "false"), in, 2);
        for (int64_t q = 0; q < MAX(bx, by); q++)
            for (int64_t i = 0; i < m; i++)
                for (int64_t j = 0; j < n; j++) {
                    const double *x = in[0].x + (bx == 1 ? 0 : q) * m * k, *y = in[1].x + (by == 1 ? 0 : q) * k * n;
                    double s = 0;
                    for (int64_t p = 0; p < k; p++) s += x[tx ? p * m + i : i * k + p] * y[ty ? j * k + p : p * n + j];
                    assert_true(ev_close(z.x[(q * m + i) * n + j], s));
                }
        TEXT(1, "equation=%s,%s->bij", tx ? "bpi" : "bip", ty ? "bjp" : "bpj");
        if (bx == by) {
            tensor64 e = ev_one(&a, OP_EINSUM, text[1], in, 2);
            same_values("einsum", &z, &e);
        }
        if (!tx && ty && by == 1) { /* x W^T without a bias */
            tensor64 w = { TTYPE(DT_F32, n, k), in[1].x }, l = ev_one(&a, OP_LINEAR, "", (tensor64[]){ in[0], w }, 2);
            same_values("linear", &z, &l);
        }
        arena_free(&a);
    }
}

static void attention_is_its_parts(void **state)
{
    (void)state;
    rng r = { seed + 5 };
    for (int round = 0; round < ROUNDS; round++) {
        arena a = { 0 };
        int64_t b = pick(&r, 1, 2), h = pick(&r, 1, 3), l = pick(&r, 1, 4), s = pick(&r, 1, 5), e = pick(&r, 1, 6),
                v = pick(&r, 1, 4);
        tensor64 q = ev_random(&a, &r, SHAPE(b, h, l, e)), k = ev_random(&a, &r, SHAPE(b, h, s, e)),
                 vs = ev_random(&a, &r, SHAPE(b, h, s, v));
        tensor64 mask = ev_random(&a, &r, SHAPE(l, s));
        tensor64 y = ev_one(&a, OP_SDPA, "", (tensor64[]){ q, k, vs, mask }, 4);
        tensor64 sc = ev_one(&a, OP_MATMUL, "transpose_y=true", (tensor64[]){ q, k }, 2);
        sc = ev_one(&a, OP_LINEAR_ACTIVATION, TEXT(0, "alpha=%.17g", 1 / sqrt((double)e)), &sc, 1);
        sc = ev_one(&a, OP_ADD, "", (tensor64[]){ sc, mask }, 2);
        sc = ev_one(&a, OP_SOFTMAX, "", &sc, 1);
        tensor64 z = ev_one(&a, OP_MATMUL, "", (tensor64[]){ sc, vs }, 2);
        same_values("sdpa", &y, &z);
        tensor64 keep = mask; /* a boolean mask is -inf where it is false */
        keep.type.dt = DT_BOOL, keep.x = TAKE(&a, double, (size_t)(l * s));
        assert_non_null(keep.x);
        for (int64_t i = 0; i < l * s; i++)
            keep.x[i] = i % s == 0 || mask.x[i] > 0, mask.x[i] = keep.x[i] != 0 ? 0 : -INFINITY;
        y = ev_one(&a, OP_SDPA, "", (tensor64[]){ q, k, vs, keep }, 4);
        z = ev_one(&a, OP_SDPA, "", (tensor64[]){ q, k, vs, mask }, 4);
        same_values("boolean mask", &y, &z);
        arena_free(&a);
    }
}

/* ---- along axes ---- */

static void softmax_is_a_distribution(void **state)
{
    (void)state;
    rng r = { seed + 6 };
    for (int round = 0; round < ROUNDS; round++) {
        arena a = { 0 };
        tensor64 x = ev_random(&a, &r, random_shape(&r, 1, 4, 5));
        int64_t axis = pick(&r, -x.type.sh.rank, x.type.sh.rank - 1);
        tensor64 y = ev_one(&a, OP_SOFTMAX, TEXT(0, "axis=%lld", L(axis)), &x, 1);
        tensor64 one = ev_one(&a, OP_REDUCE_SUM, TEXT(1, "axes=%lld keep_dims=true", L(axis)), &y, 1);
        int64_t n;
        assert_true(shape_elems(&one.type.sh, &n));
        for (int64_t i = 0; i < n; i++) assert_true(ev_close(one.x[i], 1));
        /* log softmax = x - log sum exp */
        tensor64 lse = ev_one(&a, OP_REDUCE_LOG_SUM_EXP, text[1], &x, 1), lg = ev_one(&a, OP_LOG, "", &y, 1);
        tensor64 d = ev_one(&a, OP_SUB, "", (tensor64[]){ x, lse }, 2);
        same_values("log softmax", &lg, &d);
        tensor64 ex = ev_one(&a, OP_EXP, "", &x, 1), ls = ev_one(&a, OP_REDUCE_LOG_SUM, text[1], &ex, 1);
        same_values("log sum exp", &lse, &ls);
        arena_free(&a);
    }
}

/* Sum each element into the place its kept indices name. */
static void reductions_are_sums_by_index(void **state)
{
    (void)state;
    rng r = { seed + 7 };
    for (int round = 0; round < ROUNDS; round++) {
        arena a = { 0 };
        tensor64 x = ev_random(&a, &r, random_shape(&r, 2, 5, 4));
        const shape *s = &x.type.sh;
        int k1 = (int)pick(&r, 0, s->rank - 1), k2 = (int)pick(&r, 0, s->rank - 2);
        k2 += k2 >= k1;
        TEXT(0, "axes=%d,%d keep_dims=true", k1, k2 - s->rank);
        tensor64 y = ev_one(&a, OP_REDUCE_SUM, text[0], &x, 1), want = y;
        int64_t n = 0, m = 0;
        assert_true(shape_elems(s, &n) && shape_elems(&y.type.sh, &m));
        want.x = TAKE(&a, double, (size_t)m);
        assert_non_null(want.x);
        for (int64_t i = 0; i < n; i++) {
            int64_t rest = i, at = 0, scale = 1;
            for (int k = s->rank - 1; k >= 0; k--) {
                int64_t p = rest % s->d[k];
                rest /= s->d[k];
                if (k != k1 && k != k2) at += p * scale, scale *= s->d[k];
            }
            want.x[at] += x.x[i];
        }
        same_values("reduce_sum", &y, &want);
        tensor64 mean = ev_one(&a, OP_REDUCE_MEAN, text[0], &x, 1);
        for (int64_t i = 0; i < m; i++) assert_true(ev_close(mean.x[i] * (double)(s->d[k1] * s->d[k2]), want.x[i]));
        tensor64 sq = ev_one(&a, OP_SQUARE, "", &x, 1), ss = ev_one(&a, OP_REDUCE_SUM_SQUARE, text[0], &x, 1);
        tensor64 sum = ev_one(&a, OP_REDUCE_SUM, text[0], &sq, 1), l2 = ev_one(&a, OP_REDUCE_L2_NORM, text[0], &x, 1);
        same_values("sum_square", &ss, &sum);
        tensor64 root = ev_one(&a, OP_SQRT, "", &ss, 1);
        same_values("l2", &l2, &root);
        tensor64 ab = ev_one(&a, OP_ABS, "", &x, 1), l1 = ev_one(&a, OP_REDUCE_L1_NORM, text[0], &x, 1);
        sum = ev_one(&a, OP_REDUCE_SUM, text[0], &ab, 1);
        same_values("l1", &l1, &sum);
        arena_free(&a);
    }
}

static void layer_norm_is_its_parts(void **state)
{
    (void)state;
    rng r = { seed + 8 };
    for (int round = 0; round < ROUNDS; round++) {
        arena a = { 0 };
        tensor64 x = ev_random(&a, &r, random_shape(&r, 3, 3, 5));
        tensor64 in[3] = { x, ev_random(&a, &r, SHAPE(x.type.sh.d[0], x.type.sh.d[2])),
                           ev_random(&a, &r, SHAPE(x.type.sh.d[0], x.type.sh.d[2])) };
        tensor64 y = ev_one(&a, OP_LAYER_NORM, "axes=2,0 epsilon=0.01", in, 3);
        tensor64 mean = ev_one(&a, OP_REDUCE_MEAN, "axes=0,2 keep_dims=true", &x, 1);
        tensor64 c = ev_one(&a, OP_SUB, "", (tensor64[]){ x, mean }, 2), sq = ev_one(&a, OP_SQUARE, "", &c, 1);
        tensor64 var = ev_one(&a, OP_REDUCE_MEAN, "axes=0,2 keep_dims=true", &sq, 1);
        tensor64 z = ev_one(&a, OP_MUL, "", (tensor64[]){ c, ev_one(&a, OP_RSQRT, "epsilon=0.01", &var, 1) }, 2);
        for (int k = 1; k < 3; k++) {
            tensor64 p = ev_one(&a, OP_EXPAND_DIMS, "axes=1", &in[k], 1);
            z = ev_one(&a, k == 1 ? OP_MUL : OP_ADD, "", (tensor64[]){ z, p }, 2);
        }
        same_values("layer_norm", &y, &z);
        arena_free(&a);
    }
}

static void sorting_orders(void **state)
{
    (void)state;
    rng r = { seed + 9 };
    for (int round = 0; round < ROUNDS; round++) {
        arena a = { 0 };
        tensor64 x = ev_random(&a, &r, random_shape(&r, 1, 3, 6));
        int64_t n, axis = pick(&r, 0, x.type.sh.rank - 1), k = pick(&r, 1, x.type.sh.d[axis]);
        assert_true(shape_elems(&x.type.sh, &n));
        for (int64_t i = 0; i < n; i++) x.x[i] = round % 2 ? x.x[i] : floor(x.x[i]); /* ties in half of the rounds */
        const char *up = round % 3 ? "true" : "false";
        tensor64 order = ev_one(&a, OP_ARGSORT, TEXT(0, "axis=%lld ascending=%s", L(axis), up), &x, 1);
        tensor64 sorted = ev_one(&a, OP_GATHER_ALONG_AXIS, TEXT(1, "axis=%lld", L(axis)), (tensor64[]){ x, order }, 2);
        tensor64 top = ev_one(&a, OP_TOPK, TEXT(2, "axis=%lld k=%lld ascending=%s", L(axis), L(k), up), &x, 1);
        if (k < x.type.sh.d[axis]) TEXT(3, "split_sizes=%lld,%lld axis=%lld", L(k), L(x.type.sh.d[axis] - k), L(axis));
        else TEXT(3, "num_splits=1 axis=%lld", L(axis));
        tensor64 head = ev_one(&a, OP_SPLIT, text[3], &sorted, 1);
        same_values("topk", &top, &head);
        tensor64 best = ev_one(&a, round % 3 ? OP_REDUCE_ARGMIN : OP_REDUCE_ARGMAX, text[1], &x, 1);
        tensor64 first =
            ev_one(&a, OP_SPLIT, TEXT(3, "num_splits=%lld axis=%lld", L(x.type.sh.d[axis]), L(axis)), &order, 1);
        same_values("argmax", &best, &first);
        arena_free(&a);
    }
}

static void cumsum_is_a_triangular_product(void **state)
{
    (void)state;
    rng r = { seed + 10 };
    for (int round = 0; round < ROUNDS; round++) {
        arena a = { 0 };
        int64_t n = pick(&r, 1, 6);
        tensor64 x = ev_random(&a, &r, SHAPE(n, pick(&r, 1, 4))), t = ev_random(&a, &r, SHAPE(n, n));
        bool ex = round & 1, rev = round & 2;
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++) t.x[i * n + j] = rev ? (ex ? j > i : j >= i) : (ex ? j < i : j <= i);
        tensor64 y =
            ev_one(&a, OP_CUMSUM,
                   TEXT(0, "axis=-2 exclusive=%s reverse=%s", ex ? "true" : "false", rev ? "true" : "false"), &x, 1);
        tensor64 z = ev_one(&a, OP_MATMUL, "", (tensor64[]){ t, x }, 2);
        same_values("cumsum", &y, &z);
        arena_free(&a);
    }
}

/* ---- movement ---- */

static void rearrangements_undo_each_other(void **state)
{
    (void)state;
    rng r = { seed + 11 };
    for (int round = 0; round < ROUNDS; round++) {
        arena a = { 0 };
        int64_t b = pick(&r, 1, 3), c = pick(&r, 1, 3), h = pick(&r, 1, 3), w = pick(&r, 1, 4), n = pick(&r, 1, 2);
        tensor64 x = ev_random(&a, &r, SHAPE(n, c * b * b, h, w));
        tensor64 y = ev_one(&a, OP_DEPTH_TO_SPACE, TEXT(0, "block_size=%lld", L(b)), &x, 1);
        y = ev_one(&a, OP_SPACE_TO_DEPTH, text[0], &y, 1);
        same_values("depth space", &x, &y);
        y = ev_one(&a, OP_PIXEL_SHUFFLE, TEXT(0, "upscale_factor=%lld", L(b)), &x, 1);
        y = ev_one(&a, OP_PIXEL_UNSHUFFLE, TEXT(0, "downscale_factor=%lld", L(b)), &y, 1);
        same_values("shuffle", &x, &y);
        int64_t p = pick(&r, 0, 2), q = pick(&r, 0, 2), tail_h = (b - (h + p) % b) % b, tail_w = (b - (w + q) % b) % b;
        TEXT(0, "block_shape=%lld,%lld paddings=%lld,%lld,%lld,%lld", L(b), L(b), L(p), L(tail_h), L(q), L(tail_w));
        TEXT(1, "block_shape=%lld,%lld crops=%lld,%lld,%lld,%lld", L(b), L(b), L(p), L(tail_h), L(q), L(tail_w));
        y = ev_one(&a, OP_SPACE_TO_BATCH, text[0], &x, 1);
        y = ev_one(&a, OP_BATCH_TO_SPACE, text[1], &y, 1);
        same_values("batch space", &x, &y);
        /* depth_to_space said as reshape and transpose */
        y = ev_one(&a, OP_DEPTH_TO_SPACE, TEXT(0, "block_size=%lld", L(b)), &x, 1);
        tensor64 z = ev_one(&a, OP_RESHAPE,
                            TEXT(1, "shape=%lld,%lld,%lld,%lld,%lld,%lld", L(n), L(b), L(b), L(c), L(h), L(w)), &x, 1);
        z = ev_one(&a, OP_TRANSPOSE, "perm=0,3,4,1,5,2", &z, 1);
        same_values("depth_to_space", &y, &z);
        y = ev_one(&a, OP_PIXEL_SHUFFLE, TEXT(0, "upscale_factor=%lld", L(b)), &x, 1);
        z = ev_one(&a, OP_RESHAPE, TEXT(1, "shape=%lld,%lld,%lld,%lld,%lld,%lld", L(n), L(c), L(b), L(b), L(h), L(w)),
                   &x, 1);
        z = ev_one(&a, OP_TRANSPOSE, "perm=0,1,4,2,5,3", &z, 1);
        same_values("pixel_shuffle", &y, &z);
        arena_free(&a);
    }
}

static void transposes_and_reverses_undo(void **state)
{
    (void)state;
    rng r = { seed + 12 };
    for (int round = 0; round < ROUNDS; round++) {
        arena a = { 0 };
        tensor64 x = ev_random(&a, &r, SHAPE(pick(&r, 1, 4), pick(&r, 1, 4), pick(&r, 1, 4), pick(&r, 1, 4)));
        int64_t p[4] = { 0, 1, 2, 3 }, q[4];
        for (int i = 3; i > 0; i--) {
            int64_t j = pick(&r, 0, i), t = p[i];
            p[i] = p[j], p[j] = t;
        }
        for (int i = 0; i < 4; i++) q[p[i]] = i;
        tensor64 y =
            ev_one(&a, OP_TRANSPOSE, TEXT(0, "perm=%lld,%lld,%lld,%lld", L(p[0]), L(p[1]), L(p[2]), L(p[3])), &x, 1);
        int64_t i[4], d[4];
        for (int k = 0; k < 4; k++) d[k] = x.type.sh.d[k], i[k] = pick(&r, 0, d[k] - 1);
        double there = y.x[((i[p[0]] * d[p[1]] + i[p[1]]) * d[p[2]] + i[p[2]]) * d[p[3]] + i[p[3]]];
        assert_true(there == x.x[((i[0] * d[1] + i[1]) * d[2] + i[2]) * d[3] + i[3]]);
        y = ev_one(&a, OP_TRANSPOSE, TEXT(0, "perm=%lld,%lld,%lld,%lld", L(q[0]), L(q[1]), L(q[2]), L(q[3])), &y, 1);
        same_values("transpose", &x, &y);
        y = ev_one(&a, OP_REVERSE, "axes=1,-1", &x, 1);
        tensor64 z = ev_one(&a, OP_SLICE_BY_INDEX,
                            "begin=0,0,0,0 end=0,0,0,0 stride=1,-1,1,-1 begin_mask=true,true,true,true end_mask=true,true,true,true", &x, 1);
        same_values("reverse", &y, &z);
        y = ev_one(&a, OP_REVERSE, "axes=1,-1", &y, 1);
        same_values("reverse twice", &x, &y);
        arena_free(&a);
    }
}

/* A slice, by numpy's rule said slowly: walk from begin while before end. */
static void slices_walk_from_begin_to_end(void **state)
{
    (void)state;
    rng r = { seed + 13 };
    for (int round = 0; round < 6 * ROUNDS; round++) {
        arena a = { 0 };
        int64_t n = pick(&r, 1, 7), b = pick(&r, -9, 9), e = pick(&r, -9, 9), s = pick(&r, -3, 3);
        bool open_b = pick(&r, 0, 3) == 0, open_e = pick(&r, 0, 3) == 0;
        double want[32];
        int m = 0;
        if (s == 0) s = 1;
        int64_t from = b < 0 ? b + n : b, to = e < 0 ? e + n : e;
        if (open_b) from = s > 0 ? 0 : n - 1;
        if (open_e) to = s > 0 ? n : -1;
        else if (to < 0) to = -1; /* further left than everything */
        if (s > 0 && from < 0) from = 0;
        if (s < 0 && from >= n) from = n - 1;
        tensor64 x = ev_random(&a, &r, SHAPE(n));
        for (int64_t i = from; (s > 0 ? i < to : i > to) && i >= 0 && i < n; i += s) want[m++] = x.x[i];
        if (m) { /* an empty slice has no shape */
            TEXT(0, "begin=%lld end=%lld stride=%lld begin_mask=%s end_mask=%s", L(b), L(e), L(s),
                 open_b ? "true" : "false", open_e ? "true" : "false");
            tensor64 y = ev_one(&a, OP_SLICE_BY_INDEX, text[0], &x, 1), w = { TTYPE(DT_F32, m), want };
            same_values(text[0], &y, &w);
            tensor64 z = ev_one(&a, OP_SLICE_UPDATE, text[0], (tensor64[]){ x, y }, 2);
            same_values("updating a slice with itself", &x, &z);
            tensor64 neg = ev_one(&a, OP_LINEAR_ACTIVATION, "alpha=0 beta=7", &y, 1);
            z = ev_one(&a, OP_SLICE_UPDATE, text[0], (tensor64[]){ x, neg }, 2);
            y = ev_one(&a, OP_SLICE_BY_INDEX, text[0], &z, 1);
            same_values("reading an update back", &neg, &y);
        }
        arena_free(&a);
    }
}

static void joining_undoes_cutting(void **state)
{
    (void)state;
    rng r = { seed + 14 };
    for (int round = 0; round < ROUNDS; round++) {
        arena a = { 0 };
        shape s = random_shape(&r, 1, 4, 3);
        int axis = (int)pick(&r, 0, s.rank - 1);
        int64_t n = pick(&r, 1, 3);
        s.d[axis] *= n;
        tensor64 x = ev_random(&a, &r, s), parts[EV_MAX];
        attr at[2] = { AT_I(NUM_SPLITS, n), AT_I(AXIS, axis - s.rank) };
        int n_out;
        diag d = { 0 };
        assert_ok(ev_run(&a, OP_SPLIT, at, 2, &x, 1, parts, &n_out, &d), d);
        tensor64 y = ev_one(&a, OP_CONCAT, TEXT(0, "axis=%d", axis), parts, (int)n);
        same_values("concat", &x, &y);
        /* interleaving the parts = stacking behind the axis */
        y = ev_one(&a, OP_CONCAT, TEXT(0, "axis=%d interleave=true", axis), parts, (int)n);
        tensor64 z = ev_one(&a, OP_STACK, TEXT(0, "axis=%d", axis + 1), parts, (int)n);
        same_values("interleave", &y, &z);
        /* tiling = joining copies */
        tensor64 copies[3] = { x, x, x };
        TEXT(0, "reps=");
        for (int i = 0; i < s.rank; i++) strcat(text[0], i == axis ? (i ? ",3" : "3") : (i ? ",1" : "1"));
        y = ev_one(&a, OP_TILE, text[0], &x, 1);
        z = ev_one(&a, OP_CONCAT, TEXT(1, "axis=%d", axis), copies, 3);
        same_values("tile", &y, &z);
        arena_free(&a);
    }
}

static void padding_keeps_the_middle(void **state)
{
    (void)state;
    rng r = { seed + 15 };
    static const char *const modes[] = { "constant", "reflect", "replicate", "symmetric" };
    for (int round = 0; round < ROUNDS; round++) {
        arena a = { 0 };
        int64_t h = pick(&r, 2, 5), w = pick(&r, 2, 5), p[4];
        for (int i = 0; i < 4; i++) p[i] = pick(&r, 0, (i < 2 ? h : w) - 1);
        tensor64 x = ev_random(&a, &r, SHAPE(2, h, w));
        TEXT(0, "pad=%lld,%lld,%lld,%lld mode=%s", L(p[0]), L(p[1]), L(p[2]), L(p[3]), modes[round % 4]);
        tensor64 y = ev_one(&a, OP_PAD, text[0], &x, 1);
        tensor64 z =
            ev_one(&a, OP_CROP,
                   TEXT(1, "crop_height=%lld,%lld crop_width=%lld,%lld", L(p[0]), L(p[1]), L(p[2]), L(p[3])), &y, 1);
        same_values("pad", &x, &z);
        arena_free(&a);
    }
}

/* Gathering is a product with one-hot rows. */
static void gathers_agree(void **state)
{
    (void)state;
    rng r = { seed + 16 };
    for (int round = 0; round < ROUNDS; round++) {
        arena a = { 0 };
        int64_t b = pick(&r, 1, 3), n = pick(&r, 1, 5), d = pick(&r, 1, 4), k = pick(&r, 1, 6);
        tensor64 x = ev_random(&a, &r, SHAPE(b, n, d)), idx = as_ints(ev_random(&a, &r, SHAPE(b, k)), &r, n),
                 hot = ev_random(&a, &r, SHAPE(b, k, n));
        for (int64_t i = 0; i < b * k; i++)
            for (int64_t j = 0; j < n; j++)
                hot.x[i * n + j] = (idx.x[i] < 0 ? idx.x[i] + (double)n : idx.x[i]) == (double)j;
        tensor64 y = ev_one(&a, OP_GATHER, "axis=1 batch_dims=1", (tensor64[]){ x, idx }, 2),
                 z = ev_one(&a, OP_MATMUL, "", (tensor64[]){ hot, x }, 2);
        same_values("gather", &y, &z);
        tensor64 rows = ev_one(&a, OP_EXPAND_DIMS, "axes=-1", &idx, 1);
        z = ev_one(&a, OP_GATHER_ND, "batch_dims=1", (tensor64[]){ x, rows }, 2);
        same_values("gather_nd", &y, &z);
        tensor64 wide = ev_one(&a, OP_TILE, TEXT(0, "reps=1,1,%lld", L(d)), &rows, 1);
        z = ev_one(&a, OP_GATHER_ALONG_AXIS, "axis=1", (tensor64[]){ x, wide }, 2);
        same_values("gather_along_axis", &y, &z);
        arena_free(&a);
    }
}

static void broadcasting_follows_indices(void **state)
{
    (void)state;
    rng r = { seed + 17 };
    for (int round = 0; round < ROUNDS; round++) {
        arena a = { 0 };
        shape o = random_shape(&r, 1, 4, 4), s[3] = { o, o, o };
        for (int k = 0; k < 3; k++) {
            int drop = (int)pick(&r, 0, o.rank);
            s[k] = shape_of(o.d + drop, o.rank - drop);
            for (int i = 0; i < s[k].rank; i++)
                if (pick(&r, 0, 2) == 0) s[k].d[i] = 1;
        }
        tensor64 x = ev_random(&a, &r, s[0]), y = ev_random(&a, &r, s[1]), c = ev_random(&a, &r, s[2]),
                 full = ev_random(&a, &r, o);
        int64_t n;
        assert_true(shape_elems(&s[2], &n));
        for (int64_t i = 0; i < n; i++) c.x[i] = c.x[i] > 0;
        c.type.dt = DT_BOOL;
        assert_true(shape_elems(&o, &n));
        for (int64_t i = 0; i < n; i++) full.x[i] = 0;
        tensor64 fx = ev_one(&a, OP_ADD, "", (tensor64[]){ full, x }, 2),
                 fy = ev_one(&a, OP_ADD, "", (tensor64[]){ y, full }, 2);
        for (int64_t i = 0; i < n; i++) { /* where element i of the result reads x */
            int64_t rest = i, at = 0, scale = 1;
            for (int k = o.rank - 1, j = s[0].rank - 1; k >= 0; k--, j--) {
                int64_t p = rest % o.d[k];
                rest /= o.d[k];
                if (j >= 0 && s[0].d[j] > 1) at += p * scale;
                if (j >= 0) scale *= s[0].d[j];
            }
            assert_true(fx.x[i] == x.x[at]);
        }
        tensor64 got = ev_one(&a, OP_SELECT, "", (tensor64[]){ c, x, fy }, 3);
        tensor64 fc =
            ev_one(&a, OP_SELECT, "", (tensor64[]){ c, ev_one(&a, OP_FILL_LIKE, "value=1", &full, 1), full }, 3);
        for (int64_t i = 0; i < n; i++) assert_true(got.x[i] == (fc.x[i] != 0 ? fx.x[i] : fy.x[i]));
        arena_free(&a);
    }
}

/* ---- images ---- */

/* Bilinear sampling reproduces a plane a + b*y + c*x exactly, whatever the grid. */
static void resizing_a_plane_gives_its_grid(void **state)
{
    (void)state;
    rng r = { seed + 18 };
    for (int round = 0; round < ROUNDS; round++) {
        arena a = { 0 };
        int64_t h = pick(&r, 1, 6), w = pick(&r, 1, 6), th = pick(&r, 1, 7), tw = pick(&r, 1, 7);
        tensor64 x = ev_random(&a, &r, SHAPE(1, h, w)), ys = ev_random(&a, &r, SHAPE(1, h, 1)),
                 xs = ev_random(&a, &r, SHAPE(1, 1, w));
        double c0 = rng_range(&r, -1, 1), cy = rng_range(&r, -1, 1), cx = rng_range(&r, -1, 1);
        for (int64_t i = 0; i < h; i++)
            for (int64_t j = 0; j < w; j++) x.x[i * w + j] = c0 + cy * (double)i + cx * (double)j;
        for (int64_t i = 0; i < h; i++) ys.x[i] = (double)i;
        for (int64_t j = 0; j < w; j++) xs.x[j] = (double)j;
        static const char *const grids[] = { "DEFAULT", "STRICT_ALIGN_CORNERS", "ALIGN_CORNERS", "OFFSET_CORNERS",
                                             "UNALIGN_CORNERS" };
        const char *g = grids[round % 5];
        TEXT(0, "target_size_height=%lld target_size_width=%lld sampling_mode=%s", L(th), L(tw), g);
        tensor64 y = ev_one(&a, OP_RESIZE_BILINEAR, text[0], &x, 1);
        tensor64 gy = ev_one(&a, OP_RESIZE_BILINEAR,
                             TEXT(1, "target_size_height=%lld target_size_width=1 sampling_mode=%s", L(th), g), &ys, 1);
        tensor64 gx = ev_one(&a, OP_RESIZE_BILINEAR,
                             TEXT(1, "target_size_height=1 target_size_width=%lld sampling_mode=%s", L(tw), g), &xs, 1);
        for (int64_t i = 0; i < th; i++)
            for (int64_t j = 0; j < tw; j++) assert_true(ev_close(y.x[i * tw + j], c0 + cy * gy.x[i] + cx * gx.x[j]));
        tensor64 z = ev_one(&a, OP_RESIZE, TEXT(1, "shape=%lld,%lld sampling_mode=%s", L(th), L(tw), g), &x, 1);
        same_values("resize", &y, &z);
        /* cropping the whole image asks for the same grid */
        tensor64 img = { TTYPE(DT_F32, 1, 1, h, w), x.x },
                 box = { TTYPE(DT_F32, 1, 4), (double[]){ 0, 0, (double)(h - 1), (double)(w - 1) } };
        TEXT(1, "target_height=%lld target_width=%lld sampling_mode=%s", L(th), L(tw), g);
        z = ev_one(&a, OP_CROP_RESIZE, text[1], (tensor64[]){ img, box }, 2);
        same_values("crop_resize", &y, &z);
        /* aligned corners are an affine identity, and a resampling at its grid */
        if (round % 5 == 2 && th > 1 && tw > 1) {
            tensor64 id = { TTYPE(DT_F32, 1, 6), (double[]){ 1, 0, 0, 0, 1, 0 } },
                     at = ev_random(&a, &r, SHAPE(1, th, tw, 2));
            TEXT(1, "output_height=%lld output_width=%lld coordinates_mode=normalized_minus_one_to_one", L(th), L(tw));
            z = ev_one(&a, OP_AFFINE, text[1], (tensor64[]){ img, id }, 2);
            same_values("affine", &y, &z);
            for (int64_t i = 0; i < th * tw; i++) at.x[2 * i] = gx.x[i % tw], at.x[2 * i + 1] = gy.x[i / tw];
            z = ev_one(&a, OP_RESAMPLE, "", (tensor64[]){ img, at }, 2);
            same_values("resample", &y, &z);
        }
        arena_free(&a);
    }
}

/* ---- weights ---- */

static void quantizing_stays_within_half_a_step(void **state)
{
    (void)state;
    rng r = { seed + 19 };
    for (int round = 0; round < ROUNDS; round++) {
        arena a = { 0 };
        int64_t c = pick(&r, 1, 4), n = pick(&r, 1, 5);
        tensor64 x = ev_random(&a, &r, SHAPE(n, c)), s = ev_random(&a, &r, SHAPE(c)),
                 z = as_ints(ev_random(&a, &r, SHAPE(c)), &r, 5);
        z.type.dt = DT_I8;
        for (int64_t i = 0; i < c; i++) s.x[i] = 0.02 + fabs(s.x[i]) / 20;
        tensor64 q = ev_one(&a, OP_QUANTIZE, "axis=-1 output_dtype=int8", (tensor64[]){ x, s, z }, 3);
        tensor64 y = ev_one(&a, OP_DEQUANTIZE, "axis=1", (tensor64[]){ q, s, z }, 3);
        for (int64_t i = 0; i < n * c; i++) assert_true(fabs(y.x[i] - x.x[i]) <= s.x[i % c] / 2 + 1e-12);
        tensor64 k = ev_one(&a, OP_CX_AFFINE, "axis=1", (tensor64[]){ q, s, z }, 3);
        same_values("affine", &y, &k);
        tensor64 sb = ev_one(&a, OP_EXPAND_DIMS, "axes=0", &s, 1), zb = ev_one(&a, OP_EXPAND_DIMS, "axes=0", &z, 1);
        k = ev_one(&a, OP_CX_BLOCK, "", (tensor64[]){ q, sb, zb }, 3);
        same_values("block", &y, &k);
        arena_free(&a);
    }
}

static void random_values_repeat_and_stay_inside(void **state)
{
    (void)state;
    arena a = { 0 };
    tensor64 x = ev_one(&a, OP_RANDOM_UNIFORM, "shape=1000 low=-3 high=5 seed=11", NULL, 0);
    tensor64 y = ev_one(&a, OP_RANDOM_UNIFORM, "shape=10,100 low=-3 high=5 seed=11", NULL, 0);
    same_values("random", &x, &y);
    double mean = 0;
    for (int i = 0; i < 1000; i++) {
        assert_true(x.x[i] >= -3 && x.x[i] < 5);
        mean += x.x[i] / 1000;
    }
    assert_true(fabs(mean - 1) < 0.3); /* four standard errors */
    y = ev_one(&a, OP_RANDOM_UNIFORM, "shape=1000 low=-3 high=5 seed=12", NULL, 0);
    assert_true(x.x[0] != y.x[0]);
    arena_free(&a);
}

int main(void)
{
    seed = test_seed("eval_laws");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conv_is_its_definition),          cmocka_unit_test(conv_transpose_is_the_adjoint_of_conv),
        cmocka_unit_test(same_padding_covers_every_place), cmocka_unit_test(pools_are_convolutions),
        cmocka_unit_test(matmul_is_its_definition),        cmocka_unit_test(attention_is_its_parts),
        cmocka_unit_test(softmax_is_a_distribution),       cmocka_unit_test(reductions_are_sums_by_index),
        cmocka_unit_test(layer_norm_is_its_parts),         cmocka_unit_test(sorting_orders),
        cmocka_unit_test(cumsum_is_a_triangular_product),  cmocka_unit_test(rearrangements_undo_each_other),
        cmocka_unit_test(transposes_and_reverses_undo),    cmocka_unit_test(slices_walk_from_begin_to_end),
        cmocka_unit_test(joining_undoes_cutting),          cmocka_unit_test(padding_keeps_the_middle),
        cmocka_unit_test(gathers_agree),                   cmocka_unit_test(broadcasting_follows_indices),
        cmocka_unit_test(resizing_a_plane_gives_its_grid), cmocka_unit_test(quantizing_stays_within_half_a_step),
        cmocka_unit_test(random_values_repeat_and_stay_inside),
    };
    return cmocka_run_group_tests_name("eval_laws", tests, NULL, NULL);
}
