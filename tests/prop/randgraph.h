/* randgraph.h: random graphs for property tests, over most of the op table, in fp16.
 *   rng r = { seed };  graph *g = rg_graph(&r, &(rg_options){ .n_ops = 20 });
 *   tensor64 *in = rg_inputs(g, &r, &mem);
 *   rg_eval(g, in, out, RG_ROUND_ALL, &mem, &d);
 *
 * Values stay finite and below a few thousand: a crude bound travels with each one, and what grows too large is
 * squashed by tanh. Graphs are also sprinkled with what passes look for: repeats of earlier nodes, operations that
 * change nothing, chains of movements that cancel, work on constants. */
#ifndef TESTS_RANDGRAPH_H
#define TESTS_RANDGRAPH_H

#include <math.h>

#include "t.h"

#include "graph/graph.h"

typedef struct {
    int n_ops;   /* about; 0: 20 */
    bool smooth; /* no steps (comparison, rounding, casts to integers): a change of 1e-15 stays one */
    bool fused;  /* gelu and attention too: their rewrites carry rounded constants */
} rg_options;

enum { RG_MAX_VALUES = 256 };

typedef struct {
    graph *g;
    rng *r;
    rg_options o;
    val v[RG_MAX_VALUES];
    double mag[RG_MAX_VALUES]; /* |element| stays below this */
    int n;
} rg;

static inline int rg_below(rg *s, int n) { return (int)rng_below(s->r, (uint64_t)n); }
static inline bool rg_chance(rg *s, int percent) { return rg_below(s, 100) < percent; }
static inline const shape *rg_shape(const rg *s, val v) { return &graph_type(s->g, v)->sh; }

/* A constant of small multiples of 1/8: exact in fp16, and so are many sums and products of a few. */
static inline val rg_const(rg *s, shape sh, double mag)
{
    int64_t n;
    if (!shape_elems(&sh, &n)) return NO_VAL;
    double *x = malloc(sizeof(double) * (size_t)(n ? n : 1));
    int steps = (int)(mag * 8);
    for (int64_t i = 0; i < n; i++) x[i] = (rg_below(s, 2 * steps + 1) - steps) / 8.0;
    val v = graph_const_f64(s->g, NULL, (ttype){ DT_F16, sh }, x);
    free(x);
    return v;
}

/* Remember a value for later operations. */
static inline val rg_keep(rg *s, val v, double mag)
{
    if (!v.i || s->n == RG_MAX_VALUES) return v;
    if (mag > 500) v = G(s->g, TANH, v), mag = 1;
    s->v[s->n] = v;
    s->mag[s->n++] = mag;
    return v;
}

static inline int rg_pick(rg *s)
{
    return rg_chance(s, 60) ? s->n - 1 - rg_below(s, s->n < 4 ? s->n : 4) : rg_below(s, s->n);
}

/* A kept fp16 value of this rank, or -1. */
static inline int rg_pick_rank(rg *s, int rank)
{
    for (int tries = 0; tries < 20; tries++) {
        int i = rg_pick(s);
        if (rg_shape(s, s->v[i])->rank == rank) return i;
    }
    return -1;
}

static inline int64_t rg_dim(rg *s)
{
    static const int64_t d[] = { 1, 1, 2, 3, 4, 5, 8 };
    return d[rg_below(s, (int)COUNT(d))];
}

/* ---- one operation of a kind ---- */

static inline void rg_unary(rg *s)
{
    static const struct {
        op_id op;
        double mag; /* of the result; 0: the operand's, -1: twice the operand's plus 1 */
        bool step;
    } ops[] = {
        { OP_RELU, 0, false }, { OP_TANH, 1, false }, { OP_SIGMOID, 1, false }, { OP_SILU, 0, false }, { OP_ABS, 0, false },
        { OP_ERF, 1, false }, { OP_SOFTSIGN, 1, false }, { OP_ATAN, 2, false }, { OP_SIN, 1, false }, { OP_COS, 1, false },
        { OP_RELU6, 6, false }, { OP_LEAKY_RELU, 0, false }, { OP_SOFTPLUS, -1, false }, { OP_SIGMOID_HARD, 1, false },
        { OP_SIGN, 1, true }, { OP_FLOOR, -1, true }, { OP_CEIL, -1, true }, { OP_ROUND, -1, true }, { OP_ELU, 0, false },
        { OP_SCALED_TANH, 1, false }, { OP_IDENTITY, 0, false },
    };
    int k = rg_below(s, (int)COUNT(ops)), i = rg_pick(s);
    if (ops[k].step && s->o.smooth) return;
    double m = ops[k].mag > 0 ? ops[k].mag : ops[k].mag < 0 ? 2 * s->mag[i] + 1 : s->mag[i];
    rg_keep(s, graph_op(s->g, ops[k].op, VALS(s->v[i]), NULL, 0), m);
}

/* Operations whose argument must be kept in a range. */
static inline void rg_guarded(rg *s)
{
    int i = rg_pick(s);
    val x = s->v[i], p = G(s->g, SIGMOID, x);
    switch (rg_below(s, 6)) {
    case 0: rg_keep(s, G(s->g, EXP, G(s->g, TANH, x)), 3); break;
    case 1: rg_keep(s, G(s->g, SQRT, p), 1); break;
    case 2: rg_keep(s, G(s->g, SQUARE, G(s->g, TANH, x)), 1); break;
    case 3: rg_keep(s, GA(s->g, CLIP, VALS(x), AT_F(ALPHA, -2), AT_F(BETA, 2)), 2); break;
    case 4: rg_keep(s, G(s->g, REAL_DIV, x, G(s->g, ADD, p, graph_scalar(s->g, DT_F16, 0.5))), 2 * s->mag[i]); break;
    default: rg_keep(s, G(s->g, POW, p, graph_scalar(s->g, DT_F16, rg_chance(s, 50) ? 1 : 2)), 1); break;
    }
}

static inline void rg_binary(rg *s)
{
    static const op_id ops[] = { OP_ADD, OP_SUB, OP_MUL, OP_MAXIMUM, OP_MINIMUM, OP_ADD, OP_MUL };
    op_id op = ops[rg_below(s, (int)COUNT(ops))];
    int i = rg_pick(s), j = rg_pick(s);
    val x = s->v[i], y = s->v[j];
    double my = s->mag[j];
    shape sh = *rg_shape(s, x), both;
    if (rg_chance(s, 40)) { /* a constant: whole, per channel, or one number that passes look for */
        static const double special[] = { 0.0, -0.0, 1.0, -1.0, 0.5, 2.0 };
        int kind = rg_below(s, 3);
        if (kind == 0) y = graph_scalar(s->g, DT_F16, special[rg_below(s, 6)]);
        else {
            for (int k = 0; k < sh.rank && kind == 1; k++)
                if (k != 1) sh.d[k] = 1;
            y = rg_const(s, sh, 2);
        }
        my = 2;
    } else if (!shape_broadcast(&sh, rg_shape(s, y), &both))
        y = x, my = s->mag[i];
    if (rg_chance(s, 30)) {
        val t = x;
        x = y, y = t;
    }
    rg_keep(s, graph_op(s->g, op, VALS(x, y), NULL, 0), op == OP_MUL ? s->mag[i] * my : s->mag[i] + my);
}

static inline void rg_choice(rg *s)
{
    int i = rg_pick(s);
    val x = s->v[i], y = G(s->g, TANH, x);
    switch (rg_below(s, 3)) {
    case 0: rg_keep(s, G(s->g, SELECT, graph_fill_const(s->g, NULL, (ttype){ DT_BOOL, *rg_shape(s, x) }, rg_chance(s, 50)), x, y), s->mag[i] + 1); break;
    case 1:
        if (s->o.smooth) return;
        rg_keep(s, G(s->g, SELECT, G(s->g, GREATER, x, graph_scalar(s->g, DT_F16, 0.25)), x, y), s->mag[i] + 1);
        break;
    default:
        if (s->o.smooth) return;
        rg_keep(s, G(s->g, SELECT, G(s->g, LOGICAL_NOT, G(s->g, LOGICAL_NOT, G(s->g, LESS, x, y))), y, x),
                s->mag[i] + 1);
        break;
    }
}

static inline void rg_reduce(rg *s)
{
    static const op_id ops[] = { OP_REDUCE_SUM, OP_REDUCE_MEAN,       OP_REDUCE_MAX,
                                 OP_REDUCE_MIN, OP_REDUCE_SUM_SQUARE, OP_REDUCE_L1_NORM };
    int i = rg_pick(s);
    const shape *sh = rg_shape(s, s->v[i]);
    int64_t n;
    if (!sh->rank || !shape_elems(sh, &n)) return;
    op_id op = ops[rg_below(s, (int)COUNT(ops))];
    double m = s->mag[i] * (double)n * (op == OP_REDUCE_SUM_SQUARE ? s->mag[i] : 1);
    int64_t axis = rg_below(s, sh->rank);
    if (m > 2000) return;
    const attr at[] = { AT_LIST(AXES, &axis, 1), AT_B(KEEP_DIMS, rg_chance(s, 70)) };
    rg_keep(s, graph_op(s->g, op, VALS(s->v[i]), at, 2), m);
}

static inline void rg_along(rg *s)
{
    int i = rg_pick(s), rank = rg_shape(s, s->v[i])->rank;
    if (!rank) return;
    int64_t axis = rg_below(s, rank) - (rg_chance(s, 50) ? rank : 0);
    const shape *sh = rg_shape(s, s->v[i]);
    switch (rg_below(s, 4)) {
    case 0: rg_keep(s, GA(s->g, SOFTMAX, VALS(s->v[i]), AT_I(AXIS, axis)), 1); break;
    case 1:
        rg_keep(s, GA(s->g, CUMSUM, VALS(s->v[i]), AT_I(AXIS, axis), AT_B(REVERSE, rg_chance(s, 30))), s->mag[i] * 8);
        break;
    case 2: rg_keep(s, GA(s->g, REVERSE, VALS(s->v[i]), AT_LIST(AXES, &axis, 1)), s->mag[i]); break;
    default:
        if (sh->rank < 2) return;
        rg_keep(s, GA(s->g, LAYER_NORM, VALS(s->v[i], NO_VAL, NO_VAL), AT_LIST(AXES, &axis, 1), AT_F(EPSILON, 0.125)),
                4);
        break;
    }
}

static inline void rg_move(rg *s)
{
    int i = rg_pick(s);
    val x = s->v[i];
    shape sh = *rg_shape(s, x);
    double m = s->mag[i];
    int64_t a[2 * MAX_RANK] = { 0 }, b[MAX_RANK], n;
    if (!sh.rank || !shape_elems(&sh, &n)) return;
    int axis = rg_below(s, sh.rank);
    switch (rg_below(s, 10)) {
    case 0: /* reshape: two neighbours joined, or an axis of one added */
        if (sh.rank > 1 && rg_chance(s, 50)) {
            int at = rg_below(s, sh.rank - 1), k = 0;
            for (int j = 0; j < sh.rank; j++) {
                a[k] = sh.d[j];
                if (j == at) a[k] *= sh.d[++j];
                k++;
            }
            rg_keep(s, GA(s->g, RESHAPE, VALS(x), AT_LIST(SHAPE, a, k)), m);
        } else if (sh.rank < 5) {
            a[0] = axis;
            rg_keep(s, GA(s->g, EXPAND_DIMS, VALS(x), AT_LIST(AXES, a, 1)), m);
        }
        break;
    case 1: /* back to four axes */
        if (rg_chance(s, 50)) rg_keep(s, GA(s->g, RESHAPE, VALS(x), AT_IS(SHAPE, 1, n, 1, 1)), m);
        else rg_keep(s, GA(s->g, RESHAPE, VALS(x), AT_IS(SHAPE, 1, 1, -1, sh.d[sh.rank - 1])), m);
        break;
    case 2:
    case 3: /* transpose, often twice */
        for (int k = 0; k < sh.rank; k++) a[k] = k;
        for (int k = sh.rank - 1; k > 0; k--) {
            int j = rg_below(s, k + 1);
            int64_t t = a[k];
            a[k] = a[j], a[j] = t;
        }
        x = GA(s->g, TRANSPOSE, VALS(x), AT_LIST(PERM, a, sh.rank));
        rg_keep(s, x, m);
        if (rg_chance(s, 50)) {
            for (int k = 0; k < sh.rank; k++) b[a[k]] = k;
            if (rg_chance(s, 30)) b[0] = a[sh.rank - 1], b[sh.rank - 1] = a[0];
            bool ok = true;
            for (int k = 0; k < sh.rank; k++)
                for (int j = 0; j < k; j++) ok = ok && b[j] != b[k];
            if (ok) rg_keep(s, GA(s->g, TRANSPOSE, VALS(x), AT_LIST(PERM, b, sh.rank)), m);
        }
        break;
    case 4: { /* concat with itself or a constant; sometimes sliced back */
        val y = rg_chance(s, 50) ? x : rg_const(s, sh, 2);
        val c = GA(s->g, CONCAT, VALS(x, y), AT_I(AXIS, axis));
        rg_keep(s, c, m + 2);
        /* Never the constant half in a smooth graph: what follows would turn constant under a pass, and be rounded
         * from then on. */
        a[axis] = rg_chance(s, 50) && !(s->o.smooth && y.i != x.i) ? sh.d[axis] : 0;
        if (rg_chance(s, 50))
            rg_keep(s, GA(s->g, SLICE_BY_SIZE, VALS(c), AT_LIST(BEGIN, a, sh.rank), AT_LIST(SIZE, sh.d, sh.rank)),
                    m + 2);
        break;
    }
    case 5: /* slice */
        for (int k = 0; k < sh.rank; k++)
            a[k] = rg_below(s, (int)sh.d[k]), b[k] = 1 + rg_below(s, (int)(sh.d[k] - a[k]));
        rg_keep(s, GA(s->g, SLICE_BY_SIZE, VALS(x), AT_LIST(BEGIN, a, sh.rank), AT_LIST(SIZE, b, sh.rank)), m);
        break;
    case 6: /* pad, maybe by nothing */
        if (n > 400) return;
        a[0] = rg_below(s, 3), a[1] = rg_below(s, 3);
        if (rg_chance(s, 40)) a[0] = a[1] = 0;
        rg_keep(s, GA(s->g, PAD, VALS(x), AT_LIST(PAD, a, 2), AT_F(CONSTANT_VAL, rg_chance(s, 50) ? 0 : 0.5)), m + 1);
        break;
    case 7: /* tile, maybe once */
        if (n > 400) return;
        for (int k = 0; k < sh.rank; k++) a[k] = rg_chance(s, 75) ? 1 : 2;
        rg_keep(s, GA(s->g, TILE, VALS(x), AT_LIST(REPS, a, sh.rank)), m);
        break;
    case 8: { /* split: several results */
        if (sh.d[axis] % 2) return;
        val p = GA(s->g, SPLIT, VALS(x), AT_I(NUM_SPLITS, 2), AT_I(AXIS, axis));
        rg_keep(s, p, m);
        rg_keep(s, graph_out(p, 1), m);
        break;
    }
    default: { /* gather by constant places */
        double at[3];
        for (int k = 0; k < 3; k++) at[k] = rg_below(s, (int)sh.d[axis]);
        val ix = graph_const_f64(s->g, NULL, TTYPE(DT_I32, 3), at);
        rg_keep(s, GA(s->g, GATHER, VALS(x, ix), AT_I(AXIS, axis)), m);
        break;
    }
    }
}

static inline void rg_casts(rg *s)
{
    int i = rg_pick(s);
    val x = s->v[i];
    val wide = GA(s->g, CAST, VALS(x), AT_S(DTYPE, "fp32"));
    if (rg_chance(s, 50)) wide = G(s->g, TANH, wide);
    if (!s->o.smooth && rg_chance(s, 30)) wide = GA(s->g, CAST, VALS(wide), AT_S(DTYPE, "int32"));
    rg_keep(s, GA(s->g, CAST, VALS(wide), AT_S(DTYPE, "fp16")), s->mag[i] + 1);
}

/* Products by constants in every orientation, and of two values. */
static inline void rg_product(rg *s)
{
    int i = rg_pick(s);
    val x = s->v[i];
    const shape *sh = rg_shape(s, x);
    if (sh->rank < 2 || s->mag[i] > 50) return;
    int64_t rows = sh->d[sh->rank - 2], cols = sh->d[sh->rank - 1], n = 1 + rg_below(s, 6);
    bool tx = rg_chance(s, 40), ty = rg_chance(s, 40);
    int64_t k = tx ? rows : cols;
    double m = s->mag[i] * (double)k;
    switch (rg_below(s, 5)) {
    case 0: /* x @ W */
        rg_keep(s,
                GA(s->g, MATMUL, VALS(x, rg_const(s, ty ? SHAPE(n, k) : SHAPE(k, n), 1)), AT_B(TRANSPOSE_X, tx),
                   AT_B(TRANSPOSE_Y, ty)),
                m);
        break;
    case 1: /* W @ x */
        k = tx ? cols : rows;
        rg_keep(s,
                GA(s->g, MATMUL, VALS(rg_const(s, ty ? SHAPE(k, n) : SHAPE(n, k), 1), x), AT_B(TRANSPOSE_X, ty),
                   AT_B(TRANSPOSE_Y, tx)),
                s->mag[i] * (double)k);
        break;
    case 2:
        rg_keep(
            s, G(s->g, LINEAR, x, rg_const(s, SHAPE(n, cols), 1), rg_chance(s, 50) ? rg_const(s, SHAPE(n), 1) : NO_VAL),
            s->mag[i] * (double)cols + 1);
        break;
    case 3:
        rg_keep(s, GA(s->g, MATMUL, VALS(x, x), AT_B(TRANSPOSE_Y, true)), s->mag[i] * s->mag[i] * (double)cols);
        break;
    default: { /* [1, C, 1, S] written as a product, the way transformer code does */
        if (sh->rank != 4 || sh->d[0] != 1 || sh->d[2] != 1) return;
        int64_t c = sh->d[1], w = sh->d[3];
        val a =
            GA(s->g, TRANSPOSE, VALS(GA(s->g, RESHAPE, VALS(x), AT_IS(SHAPE, 1, 1, c, w))), AT_IS(PERM, 0, 1, 3, 2));
        val y = G(s->g, MATMUL, a, rg_const(s, SHAPE(1, 1, c, n), 1));
        y = GA(s->g, RESHAPE, VALS(GA(s->g, TRANSPOSE, VALS(y), AT_IS(PERM, 0, 1, 3, 2))), AT_IS(SHAPE, 1, n, 1, w));
        rg_keep(s, y, s->mag[i] * (double)c);
        break;
    }
    }
}

static inline void rg_conv(rg *s)
{
    int i = rg_pick_rank(s, 4);
    if (i < 0 || s->mag[i] > 50) return;
    const shape *sh = rg_shape(s, s->v[i]);
    int64_t cout = 1 + rg_below(s, 6), kh = sh->d[2] >= 3 && rg_chance(s, 40) ? 3 : 1,
            kw = sh->d[3] >= 3 && rg_chance(s, 40) ? 3 : 1;
    val w = rg_const(s, SHAPE(cout, sh->d[1], kh, kw), 1), b = rg_chance(s, 60) ? rg_const(s, SHAPE(cout), 1) : NO_VAL;
    double m = s->mag[i] * (double)(sh->d[1] * kh * kw) + 1;
    rg_keep(s, GA(s->g, CONV, VALS(s->v[i], w, b), AT_S(PAD_TYPE, rg_chance(s, 50) ? "same" : "valid")), m);
}

static inline void rg_fused(rg *s)
{
    int i = rg_pick_rank(s, 4);
    if (i < 0) return;
    val x = s->v[i];
    const shape *sh = rg_shape(s, x);
    if (rg_chance(s, 50)) {
        static const char *const mode[] = { "EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION" };
        rg_keep(s, GA(s->g, GELU, VALS(x), AT_S(MODE, mode[rg_below(s, 3)])), s->mag[i]);
        return;
    }
    int64_t len = sh->d[2];
    val mask = NO_VAL, t = G(s->g, TANH, x);
    if (rg_chance(s, 80)) { /* causal, with each of the customary floors */
        static const double floors[] = { -1e4, -65504, -INFINITY };
        double floor = floors[rg_below(s, 3)], *m = malloc(sizeof(double) * (size_t)(len * len));
        bool boolean = rg_chance(s, 30);
        for (int64_t k = 0; k < len * len; k++) m[k] = boolean ? k % len <= k / len : k % len <= k / len ? 0 : floor;
        mask = graph_const_f64(s->g, NULL, TTYPE(boolean ? DT_BOOL : DT_F16, 1, 1, len, len), m);
        free(m);
    }
    rg_keep(s, G(s->g, SDPA, t, x, G(s->g, SIGMOID, x), mask), 1);
}

/* Work on constants alone. */
static inline void rg_constants(rg *s)
{
    shape sh = SHAPE(1, rg_dim(s), 1, rg_dim(s));
    val a = rg_const(s, sh, 2), b = rg_const(s, sh, 2), c;
    switch (rg_below(s, 5)) {
    case 0: c = G(s->g, TANH, G(s->g, ADD, a, b)); break;
    case 1: c = G(s->g, MUL, G(s->g, EXP, a), b); break;
    case 2:
        c = GA(s->g, TRANSPOSE, VALS(GA(s->g, TRANSPOSE, VALS(a), AT_IS(PERM, 0, 3, 2, 1))), AT_IS(PERM, 0, 3, 2, 1));
        break;
    case 3: c = GA(s->g, CONCAT, VALS(a, b), AT_I(AXIS, 3)); break;
    default: {
        const attr fill[] = { AT_IS(SHAPE, 1, 2, 1, 3), AT_F(VALUE, 0.75) };
        c = graph_op(s->g, OP_FILL, NULL, 0, fill, 2);
        break;
    }
    }
    int i = rg_pick(s);
    shape both;
    if (shape_broadcast(rg_shape(s, s->v[i]), rg_shape(s, c), &both))
        rg_keep(s, G(s->g, ADD, s->v[i], c), s->mag[i] + 16);
}

/* What changes nothing. */
static inline void rg_nothing(rg *s)
{
    int i = rg_pick(s);
    val x = s->v[i];
    shape sh = *rg_shape(s, x);
    int64_t z[MAX_RANK] = { 0 };
    switch (rg_below(s, 8)) {
    case 0: x = G(s->g, MUL, x, graph_scalar(s->g, DT_F16, 1)); break;
    case 1: x = G(s->g, ADD, x, graph_scalar(s->g, DT_F16, -0.0)); break;
    case 2: x = GA(s->g, RESHAPE, VALS(x), AT_LIST(SHAPE, sh.d, sh.rank)); break;
    case 3: x = GA(s->g, CAST, VALS(x), AT_S(DTYPE, "fp16")); break;
    case 4: x = G(s->g, RELU, G(s->g, RELU, x)); break;
    case 5: x = G(s->g, MUL, G(s->g, MUL, x, graph_scalar(s->g, DT_F16, -1)), graph_scalar(s->g, DT_F16, -1)); break;
    case 6: x = G(s->g, MAXIMUM, x, x); break;
    default:
        if (sh.rank) x = GA(s->g, SLICE_BY_SIZE, VALS(x), AT_LIST(BEGIN, z, sh.rank), AT_LIST(SIZE, sh.d, sh.rank));
        break;
    }
    rg_keep(s, x, s->mag[i]);
}

/* An earlier node once more, word for word. */
static inline void rg_repeat(rg *s)
{
    int i = rg_pick(s);
    const node *n = graph_maker(s->g, s->v[i]);
    if (n->op == OP_INPUT || n->op == OP_CONST || n->n_out != 1) return;
    rg_keep(s, graph_op(s->g, n->op, n->in, n->n_in, n->attrs, n->n_attr), s->mag[i]);
}

/* NULL only when there is no memory. The caller frees it. */
static inline graph *rg_graph(rng *r, const rg_options *o)
{
    rg s = { .g = graph_new("random", 0), .r = r, .o = *o };
    if (!s.g) return NULL;
    int n_in = 1 + rg_below(&s, 3), n_ops = o->n_ops ? o->n_ops : 20;
    for (int i = 0; i < n_in; i++) {
        char name[16];
        snprintf(name, sizeof name, "%c%d", "zxa"[rg_below(&s, 3)], i);
        ttype t = rg_chance(&s, 60) ? TTYPE(DT_F16, 1, rg_dim(&s), 1, rg_dim(&s))
                                    : TTYPE(DT_F16, 1, rg_dim(&s), rg_dim(&s), rg_dim(&s));
        rg_keep(&s, graph_input(s.g, name, t), 2);
    }
    static void (*const kinds[])(rg *) = { rg_unary,   rg_unary, rg_guarded,   rg_binary,  rg_binary, rg_choice,
                                           rg_reduce,  rg_along, rg_move,      rg_move,    rg_move,   rg_casts,
                                           rg_product, rg_conv,  rg_constants, rg_nothing, rg_repeat };
    for (int i = 0; i < n_ops && !s.g->err.st; i++) {
        if (s.o.fused && rg_chance(&s, 10)) rg_fused(&s);
        else kinds[rg_below(&s, (int)COUNT(kinds))](&s);
        int64_t n;
        if (s.n && (!shape_elems(rg_shape(&s, s.v[s.n - 1]), &n) || n > 4000)) s.n--; /* too large to go on with */
    }
    /* One to three results, each computed by the program. */
    int n_out = 0;
    for (int tries = 0; tries < 20 && n_out < 1 + rg_below(&s, 3); tries++) {
        val v = s.v[rg_pick(&s)];
        bool taken = graph_maker(s.g, v)->op == OP_INPUT || graph_maker(s.g, v)->op == OP_CONST;
        for (size_t k = 0; k < s.g->outputs.n; k++) taken = taken || s.g->outputs.at[k].v.i == v.i;
        if (taken) continue;
        char name[16];
        snprintf(name, sizeof name, "%c%d", "yqb"[rg_below(&s, 3)], n_out++);
        graph_output(s.g, name, v);
    }
    if (!n_out) graph_output(s.g, "y", G(s.g, TANH, s.v[0]));
    return s.g;
}

/* Inputs on the fp16 grid, zeros of both signs among them. */
static inline tensor64 *rg_inputs(const graph *g, rng *r, arena *mem)
{
    tensor64 *in = TAKE(mem, tensor64, g->inputs.n);
    for (size_t i = 0; in && i < g->inputs.n; i++) {
        int64_t n;
        in[i].type = *graph_type(g, g->inputs.at[i]);
        if (!shape_elems(&in[i].type.sh, &n) || !(in[i].x = TAKE(mem, double, (size_t)n))) return NULL;
        for (int64_t k = 0; k < n; k++) {
            in[i].x[k] = dtype_round(in[i].type.dt, rng_range(r, -2, 2));
            if (rng_below(r, 16) == 0) in[i].x[k] = rng_below(r, 2) ? 0.0 : -0.0;
        }
    }
    return in;
}

/* How results are rounded on the way: not at all; where every operand is a constant (what folding does); or always,
 * to the declared type, as running the operations one by one in that type does. */
typedef enum { RG_ROUND_NONE, RG_ROUND_CONST, RG_ROUND_ALL } rg_rounding;

static inline an_status rg_eval(const graph *g, const tensor64 *in, tensor64 *out, rg_rounding how, arena *mem, diag *d)
{
    tensor64 *v = TAKE(mem, tensor64, g->values.n);
    bool *fixed = TAKE(mem, bool, g->values.n);
    size_t at = 0;
    if (!v || !fixed) return diag_nomem(d);
    for (size_t i = 1; i < g->nodes.n; i++) {
        const node *n = &g->nodes.at[i];
        tensor64 *o = &v[n->out.i];
        bool all_fixed = n->op == OP_CONST || n->op != OP_INPUT;
        if (n->op == OP_INPUT) {
            *o = in[at++];
            continue;
        }
        for (int k = 0; k < n->n_out; k++) o[k].type = *graph_type(g, graph_out(n->out, k));
        if (n->op == OP_CONST) {
            int64_t e;
            if (!shape_elems(&o->type.sh, &e) || !(o->x = TAKE(mem, double, (size_t)e))) return diag_nomem(d);
            for (int64_t k = 0; k < e; k++) o->x[k] = dtype_load(o->type.dt, n->cst->data, k);
        } else {
            tensor64 *ops = TAKE(mem, tensor64, (size_t)n->n_in);
            if (!ops) return diag_nomem(d);
            for (int k = 0; k < n->n_in; k++)
                ops[k] = v[n->in[k].i], all_fixed = all_fixed && (!n->in[k].i || fixed[n->in[k].i]);
            TRY(graph_eval_op(n->op, n->attrs, n->n_attr, ops, n->n_in, o, n->n_out, mem, d));
            bool round = how == RG_ROUND_ALL || (how == RG_ROUND_CONST && all_fixed);
            for (int k = 0; k < n->n_out && round; k++) {
                int64_t e;
                if (!shape_elems(&o[k].type.sh, &e)) return diag_nomem(d);
                for (int64_t j = 0; j < e; j++) o[k].x[j] = dtype_round(o[k].type.dt, o[k].x[j]);
            }
        }
        for (int k = 0; k < n->n_out; k++) fixed[n->out.i + (uint32_t)k] = all_fixed;
    }
    for (size_t k = 0; k < g->outputs.n; k++) out[k] = v[g->outputs.at[k].v.i];
    return AN_OK;
}

#endif
