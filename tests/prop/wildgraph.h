/* wildgraph.h: random graphs over every row of the op table, with the attributes, types and shapes randgraph.h
 * leaves out: ranks 0 to 5, negative axes, windows with strides, padding, dilation and groups, integers, bools and
 * bytes, compressed weights, operands that are one value twice.
 *   wg s;  wg_open(&s, seed, &(wg_options){ .n_ops = 4, .f = DT_F32 });   s.g, and s.in: what its inputs hold
 *   wg_close(&s);
 *
 * Every operation is evaluated as it is made: what is not a number or large is not built on, and places stay inside.
 * An operation whose operands or attributes its own rules refuse is tried again with others. */
#ifndef TESTS_WILDGRAPH_H
#define TESTS_WILDGRAPH_H

#include <math.h>

#include "t.h"

#include "graph/graph.h"

typedef struct {
    int n_ops;      /* 0: 4 */
    dtype f;        /* the float type; DT_NONE: fp16 */
    bool mixed;     /* casts to other float types too */
    bool smooth;    /* no steps, no integers but constant places: a change of 1e-15 stays one */
    op_id only;     /* OP_INPUT: any; else the first operation is this */
    double most;    /* of a value that is built on; 0: 300 */
    bool large;     /* extents past the tiles of the fast kernels: a few hundred, some ten thousand elements */
} wg_options;

enum { WG_MOST_VALUES = 64, WG_MOST_INPUTS = 12 };

typedef struct {
    graph *g;
    rng r;
    wg_options o;
    arena mem;
    val v[WG_MOST_VALUES];           /* what later operations may take */
    tensor64 x[WG_MOST_VALUES];      /* and what it holds */
    int n;
    tensor64 in[WG_MOST_INPUTS];
    struct { val v; tensor64 t; } fresh[32]; /* operands made for the operation at hand */
    int n_fresh;
    bool tried[OP_COUNT], made[OP_COUNT];
} wg;

static inline int64_t wg_upto(wg *s, int64_t lo, int64_t hi)
{
    return lo + (int64_t)rng_below(&s->r, (uint64_t)(hi - lo + 1));
}
static inline bool wg_chance(wg *s, int percent) { return (int)rng_below(&s->r, 100) < percent; }
static inline int64_t wg_dim(wg *s)
{
    static const int64_t d[] = { 1, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 33 };
    static const int64_t far[] = { 1,  2,  3,   8,   15,  16,  31,  32,  33,  48,  63, 64,
                                   65, 96, 100, 127, 128, 130, 200, 256, 257, 300, 520 };
    return s->o.large && wg_chance(s, 70) ? far[rng_below(&s->r, COUNT(far))] : d[rng_below(&s->r, COUNT(d))];
}
static inline int64_t wg_most(const wg *s) { return s->o.large ? 60000 : 3000; }
static inline int64_t wg_count(const shape *sh)
{
    int64_t n = 0;
    return shape_elems(sh, &n) ? n : -1;
}
static inline shape wg_shape(wg *s, int lo, int hi)
{
    shape sh;
    do {
        sh = (shape){ .rank = (int)wg_upto(s, lo, hi) };
        for (int i = 0; i < sh.rank; i++) sh.d[i] = wg_dim(s);
    } while (wg_count(&sh) > wg_most(s) / 2);
    return sh;
}

/* ---- values ---- */

/* How the elements of a made-up operand lie. */
typedef enum { WG_ANY, WG_POSITIVE, WG_UNIT, WG_SMALL } wg_kind;

static inline double wg_number(wg *s, dtype dt, wg_kind kind, double most)
{
    switch (dtype_class(dt)) {
    case KIND_BOOL: return wg_chance(s, 50);
    case KIND_UINT: return (double)rng_below(&s->r, (uint64_t)fmin(ldexp(1, dtype_bits(dt)), most + 1));
    case KIND_INT:
        return (double)(wg_chance(s, 5) ? 0
                                        : wg_upto(s, -(int64_t)fmin(ldexp(1, dtype_bits(dt) - 1), most),
                                                  (int64_t)fmin(ldexp(1, dtype_bits(dt) - 1) - 1, most)));
    default: break;
    }
    /* a coarse grid has ties */
    double u = wg_chance(s, 30) ? (double)wg_upto(s, -16, 16) / 8 : rng_range(&s->r, -2, 2);
    if (kind == WG_POSITIVE) u = fabs(u) + 0.0625;
    if (kind == WG_UNIT) u = fabs(u) / 2;
    if (kind == WG_SMALL) u /= 4;
    if (kind == WG_ANY && wg_chance(s, 4)) u = wg_chance(s, 50) ? 0.0 : -0.0;
    return dtype_round(dt, u);
}

static inline val wg_put(wg *s, val v, tensor64 t)
{
    if (v.i && s->n_fresh < (int)COUNT(s->fresh)) s->fresh[s->n_fresh].v = v, s->fresh[s->n_fresh++].t = t;
    return v;
}

/* A constant or an input of this type holding these numbers. */
static inline val wg_hold(wg *s, ttype t, double *x, bool constant)
{
    tensor64 h = { t, x };
    if (constant || s->g->inputs.n == WG_MOST_INPUTS) return wg_put(s, graph_const_f64(s->g, NULL, t, x), h);
    char name[16];
    snprintf(name, sizeof name, "%c%zu", "zxa"[rng_below(&s->r, 3)], s->g->inputs.n);
    s->in[s->g->inputs.n] = h;
    return wg_put(s, graph_input(s->g, name, t), h);
}

static inline val wg_new(wg *s, dtype dt, shape sh, wg_kind kind, double most, int constant)
{
    ttype t = { dt, sh };
    int64_t n = wg_count(&sh);
    double *x = TAKE(&s->mem, double, (size_t)n + 1);
    for (int64_t i = 0; i < n; i++) x[i] = wg_number(s, dt, kind, most);
    return wg_hold(s, t, x, wg_chance(s, constant));
}

/* Places 0 .. n-1, now and then counted from the end. */
static inline val wg_places(wg *s, shape sh, int64_t n, bool unlike)
{
    static const dtype types[] = { DT_I32, DT_I32, DT_I32, DT_I16, DT_U8, DT_I8, DT_U16 };
    ttype t = { types[rng_below(&s->r, COUNT(types))], sh };
    if (s->o.smooth) t.dt = DT_I32;
    int64_t count = wg_count(&sh);
    double *x = TAKE(&s->mem, double, (size_t)count + 1);
    for (int64_t i = 0; i < count; i++) {
        x[i] = unlike ? (double)(i % n) : (double)rng_below(&s->r, (uint64_t)n);
        if (dtype_class(t.dt) == KIND_INT && wg_chance(s, 20)) x[i] -= (double)n;
    }
    return wg_hold(s, t, x, s->o.smooth || wg_chance(s, 50));
}

static inline const shape *wg_of(const wg *s, val v) { return &graph_type(s->g, v)->sh; }
static inline bool wg_is(const wg *s, val v, dtype dt)
{
    dtype t = graph_type(s->g, v)->dt;
    return dt == DT_NONE || t == dt || (dt == DT_F64 && dtype_is_float(t));
}

/* A value of this type (DT_NONE: any; DT_F64: any float) and a rank of lo .. hi: one that is there, else a new one. */
static inline val wg_some(wg *s, dtype dt, int lo, int hi, wg_kind kind)
{
    for (int tries = 0; tries < 12 && s->n && kind == WG_ANY; tries++) {
        val v = s->v[wg_chance(s, 60) ? s->n - 1 - (int)rng_below(&s->r, (uint64_t)MIN(s->n, 3))
                                      : (int)rng_below(&s->r, (uint64_t)s->n)];
        if (wg_is(s, v, dt) && wg_of(s, v)->rank >= lo && wg_of(s, v)->rank <= hi) return v;
    }
    if (dt == DT_F64) dt = s->o.f;
    if (dt == DT_NONE) {
        static const dtype some[] = { DT_I32, DT_BOOL, DT_I8, DT_U8, DT_I16 };
        dt = s->o.smooth || wg_chance(s, 60) ? s->o.f : some[rng_below(&s->r, COUNT(some))];
    }
    /* now and then past what a byte holds, summed */
    return wg_new(s, dt, wg_shape(s, lo, hi), kind, wg_chance(s, 20) ? 250 : 20, 15);
}

static inline val wg_float(wg *s, int lo, int hi) { return wg_some(s, DT_F64, lo, hi, WG_ANY); }
static inline val wg_number_value(wg *s, int lo, int hi) /* float, or an integer */
{
    static const dtype ints[] = { DT_I32, DT_I32, DT_I16, DT_I8, DT_U8 };
    if (s->o.smooth || wg_chance(s, 70)) return wg_float(s, lo, hi);
    return wg_some(s, ints[rng_below(&s->r, COUNT(ints))], lo, hi, WG_ANY);
}

/* Of x's type, and of a shape that broadcasts with x's: x itself, something kept, or new. */
static inline val wg_partner(wg *s, val x, wg_kind kind)
{
    dtype dt = graph_type(s->g, x)->dt;
    shape sh = *wg_of(s, x), both;
    if (kind == WG_ANY && wg_chance(s, 15)) return x;
    for (int tries = 0; tries < 6 && s->n && kind == WG_ANY; tries++) {
        val v = s->v[rng_below(&s->r, (uint64_t)s->n)];
        if (graph_type(s->g, v)->dt == dt && shape_broadcast(&sh, wg_of(s, v), &both) && wg_count(&both) < wg_most(s))
            return v;
    }
    if (wg_chance(s, 20)) sh = (shape){ 0 };
    else {
        int skip = wg_chance(s, 50) ? 0 : (int)wg_upto(s, 0, sh.rank);
        sh = shape_of(sh.d + skip, sh.rank - skip);
        for (int i = 0; i < sh.rank; i++)
            if (wg_chance(s, 25)) sh.d[i] = 1;
            else if (sh.d[i] == 1 && wg_chance(s, 25)) sh.d[i] = wg_upto(s, 1, 4); /* the other way */
        if (sh.rank < 4 && wg_chance(s, 10)) {
            for (int i = sh.rank; i > 0; i--) sh.d[i] = sh.d[i - 1];
            sh.d[0] = wg_upto(s, 1, 3), sh.rank++;
        }
    }
    return wg_new(s, dt, sh, kind, 6, 50);
}

/* ---- making one operation ---- */

static inline const tensor64 *wg_held(const wg *s, val v)
{
    for (int i = 0; i < s->n; i++)
        if (s->v[i].i == v.i) return &s->x[i];
    for (int i = 0; i < s->n_fresh; i++)
        if (s->fresh[i].v.i == v.i) return &s->fresh[i].t;
    return NULL;
}

/* Builds it where the rules take it and its results are tame. */
static inline bool wg_make(wg *s, op_id op, const val *in, int n_in, const attr *at, int n_at)
{
    enum { MOST_OUT = 12 };
    ttype ti[16], to[MOST_OUT];
    tensor64 x[16] = { 0 }, y[MOST_OUT];
    int n_out;
    diag d = { 0 };
    s->tried[op] = true;
    assert_true(n_in <= 16);
    for (int i = 0; i < n_in; i++) {
        ti[i] = in[i].i ? *graph_type(s->g, in[i]) : (ttype){ 0 };
        if (in[i].i) {
            const tensor64 *h = wg_held(s, in[i]);
            assert_non_null(h);
            x[i] = *h;
        }
    }
    if (graph_infer(op, ti, n_in, at, n_at, to, &n_out, MOST_OUT, &d) || n_out > MOST_OUT) return false;
    for (int i = 0; i < n_out; i++) {
        if (wg_count(&to[i].sh) > wg_most(s)) return false;
        y[i] = (tensor64){ .type = to[i] };
    }
    if (graph_eval_op(op, at, n_at, x, n_in, y, n_out, &s->mem, &d)) return false;
    double most = s->o.most != 0 ? s->o.most : 300;
    for (int i = 0; i < n_out; i++)
        for (int64_t k = 0; k < wg_count(&y[i].type.sh); k++)
            if (!(fabs(y[i].x[k]) < most)) return false;
    val v = graph_op(s->g, op, in, n_in, at, n_at);
    if (!v.i) fail_msg("%s: inferred, then refused: %s", op_get(op)->mil, s->g->err.msg);
    for (int i = 0; i < s->n_fresh && s->n < WG_MOST_VALUES - MOST_OUT; i++) /* what it was made of may be met again */
        if (wg_chance(s, 40)) s->v[s->n] = s->fresh[i].v, s->x[s->n++] = s->fresh[i].t;
    for (int i = 0; i < n_out && s->n < WG_MOST_VALUES; i++) s->v[s->n] = graph_out(v, i), s->x[s->n++] = y[i];
    s->made[op] = true;
    return true;
}

typedef struct {
    attr at[OP_MAX_ATTRS];
    int n;
} wg_attrs;
static inline void wg_at(wg_attrs *a, attr x) { a->at[a->n++] = x; }
static inline int64_t *wg_ints(wg *s, int n) { return TAKE(&s->mem, int64_t, (size_t)n + 1); }
static inline int64_t wg_axis(wg *s, int rank) { return rank ? wg_upto(s, -rank, rank - 1) : 0; }
/* Some axes in any order, each once, from either end. */
static inline attr wg_axes(wg *s, int rank)
{
    int64_t *a = wg_ints(s, rank);
    int n = 0;
    unsigned seen = 0;
    for (int i = 0; i < rank; i++) {
        int64_t k = wg_upto(s, 0, rank - 1);
        if (seen & 1u << k) continue;
        seen |= 1u << k;
        a[n++] = wg_chance(s, 50) ? k : k - rank;
        if (wg_chance(s, 40)) break;
    }
    return AT_LIST(AXES, a, n);
}
static inline attr wg_bools(wg *s, attr_id id, int n, int percent)
{
    int64_t *b = wg_ints(s, n);
    for (int i = 0; i < n; i++) b[i] = wg_chance(s, percent);
    return (attr){ .id = id, .kind = ATTR_BOOLS, .n = n, .u.is = b };
}
static inline const char *wg_word(wg *s, const char *const *words, size_t n) { return words[rng_below(&s->r, n)]; }
#define WG_WORD(s, ...)                                                                                                \
    wg_word(s, (const char *const[]){ __VA_ARGS__ }, sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *))

#include "prop/wildops.h"

static inline bool wg_try(wg *s, op_id op)
{
    static const struct {
        const char *rule;
        bool (*make)(wg *, op_id);
    } by[] = {
        { "conv", wg_conv }, { "conv_transpose", wg_conv }, { "pool", wg_pool }, { "linear", wg_product }, { "matmul", wg_product }, { "einsum", wg_product },
        { "sdpa", wg_sdpa }, { "channel_params", wg_norm }, { "layer_norm", wg_norm }, { "same", wg_same }, { "broadcast", wg_binary }, { "select", wg_select },
        { "reduce", wg_reduce }, { "reduce_axis", wg_reduce }, { "axis_same", wg_along }, { "axes_same", wg_along }, { "topk", wg_along },
        { "reshape", wg_move }, { "reshape_like", wg_move }, { "expand_dims", wg_move }, { "squeeze", wg_move }, { "flatten2d", wg_move }, { "transpose", wg_move },
        { "concat", wg_move }, { "split", wg_move }, { "stack", wg_move }, { "pad", wg_move }, { "slice_by_size", wg_move }, { "slice_by_index", wg_move },
        { "slice_update", wg_move }, { "tile", wg_move }, { "crop", wg_move }, { "gather", wg_index }, { "gather_along_axis", wg_index }, { "gather_nd", wg_index },
        { "scatter", wg_index }, { "depth_to_space", wg_blocks }, { "space_to_depth", wg_blocks }, { "pixel_shuffle", wg_blocks }, { "pixel_unshuffle", wg_blocks },
        { "space_to_batch", wg_blocks }, { "batch_to_space", wg_blocks }, { "fill", wg_fill }, { "resize", wg_image }, { "resize_to", wg_image }, { "upsample", wg_image },
        { "crop_resize", wg_image }, { "resample", wg_image }, { "affine", wg_image }, { "quant", wg_quant }, { "cx_affine", wg_quant }, { "cx_block", wg_quant },
        { "cx_lut", wg_compressed }, { "cx_sparse", wg_compressed }, { "cx_sparse_block", wg_compressed },
    };
    s->n_fresh = 0;
    for (size_t i = 0; i < COUNT(by); i++)
        if (!strcmp(by[i].rule, op_get(op)->shape_rule)) return by[i].make(s, op);
    fail_msg("no generator for the shape rule %s of %s", op_get(op)->shape_rule, op_get(op)->mil);
    return false;
}

/* Rows that stand for no computation, or for one that belongs to the program and not to its values. */
static inline bool wg_skips(const wg *s, op_id op)
{
    if (op == OP_INPUT || op == OP_CONST || op == OP_OPAQUE || op == OP_READ_STATE || op == OP_WRITE_STATE ||
        op == OP_RANDOM_UNIFORM)
        return true;
    if (!s->o.smooth) return false;
    const char *t = op_get(op)->dtype_rule;
    if (!strcmp(t, "bool") || !strcmp(t, "index") || !strcmp(t, "logic") || !strcmp(t, "quantize")) return true;
    return op == OP_SIGN || op == OP_CEIL || op == OP_FLOOR || op == OP_ROUND || op == OP_FLOOR_DIV ||
           op == OP_QUANTIZE || op == OP_DEQUANTIZE || op == OP_TOPK || op == OP_CAST || op == OP_FILL_LIKE;
}

static inline void wg_open(wg *s, uint64_t seed, const wg_options *o)
{
    *s = (wg){ .g = graph_new("wild", 0), .r = { seed }, .o = *o };
    assert_non_null(s->g);
    if (!s->o.f) s->o.f = DT_F16;
    int n_ops = o->n_ops ? o->n_ops : 4, n = 0;
    for (int tries = 0; tries < 60 * n_ops && n < n_ops; tries++) {
        op_id op = n == 0 && o->only != OP_INPUT ? o->only : (op_id)rng_below(&s->r, OP_COUNT);
        if (!wg_skips(s, op)) n += wg_try(s, op);
    }
    int n_out = 0;
    bool all = wg_chance(s, 30);
    for (int i = s->n - 1; i >= 0 && n_out < 6; i--) {
        op_id op = graph_maker(s->g, s->v[i])->op;
        bool taken = op == OP_INPUT || op == OP_CONST || !(n_out == 0 || all || wg_chance(s, 30));
        for (size_t k = 0; k < s->g->outputs.n; k++) taken = taken || s->g->outputs.at[k].v.i == s->v[i].i;
        if (taken) continue;
        char name[16];
        snprintf(name, sizeof name, "%c%d", "yqb"[rng_below(&s->r, 3)], n_out++);
        graph_output(s->g, name, s->v[i]);
    }
    diag d = { 0 };
    if (n_out && graph_finish(s->g, &d)) fail_msg("seed %llu: %s", (unsigned long long)seed, d.msg);
}

static inline void wg_close(wg *s)
{
    graph_free(s->g);
    arena_free(&s->mem);
}

#endif
