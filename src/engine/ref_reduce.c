/* ref_reduce.c: instructions that look along axes: reductions, softmax, norms, running sums, sorting, pooling.
 * In: a run_ctx and a checked instruction.  Out: its results.
 *
 * Sums of floats are fp32 and ascend in row-major order; sums of integers are exact. The wide sum has no ceiling. */
#include <math.h>

#include "base/order.h"
#include "engine/engine_int.h"
#include "engine/ref_int.h"

/* x split in two boxes, both in axis order with x's strides: the axes that stay and those looked along. */
typedef struct {
    int n_keep, n_red;
    int64_t keep[ENGINE_MAX_RANK], keep_stride[ENGINE_MAX_RANK], red[ENGINE_MAX_RANK], red_stride[ENGINE_MAX_RANK];
    int64_t groups, size;
} split;

static split split_axes(const etensor *t, const int64_t *axes, int64_t n)
{
    split s = { .groups = 1, .size = 1 };
    bool on[ENGINE_MAX_RANK] = { false };
    int64_t st[ENGINE_MAX_RANK];
    et_strides(t, st);
    for (int64_t i = 0; i < n; i++) on[axes[i]] = true;
    for (int i = 0; i < t->rank; i++) {
        if (on[i]) s.red[s.n_red] = t->dim[i], s.red_stride[s.n_red++] = st[i], s.size *= t->dim[i];
        else s.keep[s.n_keep] = t->dim[i], s.keep_stride[s.n_keep++] = st[i], s.groups *= t->dim[i];
    }
    return s;
}

/* place[i]: where element i of the group at `base` stands in x. */
static int64_t *group_places(const run_ctx *c, const split *s, diag *d)
{
    int64_t *place = TAKE(c->tmp, int64_t, (size_t)s->size), idx[ENGINE_MAX_RANK] = { 0 };
    if (!place) return diag_nomem(d), NULL;
    for (int64_t i = 0; i < s->size; i++, next_index(s->red, s->n_red, idx))
        for (int a = 0; a < s->n_red; a++) place[i] += idx[a] * s->red_stride[a];
    return place;
}

static int64_t group_base(const split *s, const int64_t *idx)
{
    int64_t base = 0;
    for (int a = 0; a < s->n_keep; a++) base += idx[a] * s->keep_stride[a];
    return base;
}

/* ---- sums ---- */

static double sum(const numerics *num, dtype t, const double *v, int64_t n)
{
    double whole = 0;
    float acc = 0;
    if (!dtype_is_float(t)) {
        for (int64_t i = 0; i < n; i++) whole += v[i];
        return whole;
    }
    for (int64_t i = 0; i < n; i++) acc = num_wide_add(num, acc, (float)v[i]);
    return (double)acc;
}

static double largest(const double *v, int64_t n)
{
    double m = v[0];
    for (int64_t i = 1; i < n; i++)
        if (v[i] > m || isnan(v[i])) m = v[i];
    return m;
}

static double fn1(const numerics *num, fn_id f, double x, dtype t)
{
    static const double none[2] = { 0 };
    return num_fn(num, f, &x, none, t);
}

static double fn2(const numerics *num, fn_id f, double x, double y, dtype t)
{
    return num_fn(num, f, (const double[]){ x, y }, NULL, t);
}

/* What the next pass reads: a wide sum leaves its own pass rounded on a chip. */
static double pass_end(const numerics *num, dtype t, double x)
{
    return num->round_each != 0 ? num_round(num, t, x) : x;
}

/* ---- softmax ---- */

static double exps_from(const numerics *num, dtype t, double *v, int64_t n, double m) /* v = exp(v - m); their sum */
{
    for (int64_t i = 0; i < n; i++) v[i] = fn1(num, FN_EXP, fn2(num, FN_SUB, v[i], m, t), t);
    return sum(num, t, v, n);
}

void ref_softmax_line(const numerics *num, dtype t, double *v, int64_t n)
{
    double s = exps_from(num, t, v, n, largest(v, n));
    for (int64_t i = 0; i < n; i++) v[i] = fn2(num, FN_DIV, v[i], s, t);
}

/* Every line along the axis: gathered, changed by f, stored. */
typedef void line_fn(const run_ctx *c, const insn *in, dtype t, double *v, int64_t n);

static an_status each_line(const run_ctx *c, const insn *in, line_fn *f, diag *d)
{
    int64_t y = insn_t(in, "y");
    const etensor *t = ctx_tensor(c, insn_t(in, "x"));
    axis_view a = et_axis(t, insn_i(in, "axis"));
    double *x = ref_load(c, insn_t(in, "x"), d), *v = ref_take(c, a.n, d);
    if (!x || !v) return d->st;
    for (int64_t o = 0; o < a.outer; o++)
        for (int64_t j = 0; j < a.inner; j++) {
            for (int64_t i = 0; i < a.n; i++) v[i] = x[(o * a.n + i) * a.inner + j];
            f(c, in, ctx_tensor(c, y)->dt, v, a.n);
            for (int64_t i = 0; i < a.n; i++) ref_store(c, y, (o * a.n + i) * a.inner + j, v[i]);
        }
    return AN_OK;
}

static void line_softmax(const run_ctx *c, const insn *in, dtype t, double *v, int64_t n)
{
    (void)in, ref_softmax_line(c->num, t, v, n);
}

static void line_cumsum(const run_ctx *c, const insn *in, dtype t, double *v, int64_t n)
{
    bool exclusive = insn_i(in, "exclusive"), reverse = insn_i(in, "reverse");
    double s = 0;
    for (int64_t k = 0; k < n; k++) {
        int64_t i = reverse ? n - 1 - k : k;
        /* whole numbers stay exact, as in `sum`, and meet their type when stored */
        double with = dtype_is_float(t) ? fn2(c->num, FN_ADD, s, v[i], t) : s + v[i];
        v[i] = exclusive ? s : with;
        s = with;
    }
}

an_status ref_softmax(const run_ctx *c, const insn *in, diag *d) { return each_line(c, in, line_softmax, d); }
an_status ref_cumsum(const run_ctx *c, const insn *in, diag *d) { return each_line(c, in, line_cumsum, d); }

/* ---- reductions ---- */

static double reduced(const numerics *num, red_kind kind, dtype t, double *v, int64_t n)
{
    double m, wide = 0;
    switch (kind) {
    case RED_SUM: return sum(num, t, v, n);
    case RED_MEAN:
        return dtype_is_float(t) ? (double)((float)sum(num, t, v, n) / (float)n) : sum(num, t, v, n) / (double)n;
    case RED_MAX: return largest(v, n);
    case RED_MIN:
        for (int64_t i = 0; i < n; i++) v[i] = -v[i];
        return -largest(v, n);
    case RED_SUM_SQUARE:
    case RED_L2:
        for (int64_t i = 0; i < n; i++) wide += v[i] * v[i];
        for (int64_t i = 0; i < n; i++) v[i] = fn1(num, FN_SQUARE, v[i], t);
        m = sum(num, t, v, n);
        if (kind == RED_L2 && num->round_each == 0 && !isfinite(m)) return sqrt(wide); /* squares that leave fp32 */
        return kind == RED_L2 ? fn1(num, FN_SQRT, pass_end(num, t, m), t) : m;
    case RED_L1:
        for (int64_t i = 0; i < n; i++) v[i] = fabs(v[i]);
        return sum(num, t, v, n);
    case RED_LOG_SUM: return fn1(num, FN_LOG, pass_end(num, t, sum(num, t, v, n)), t);
    case RED_LOG_SUM_EXP:
        m = largest(v, n);
        if (isinf(m)) return m; /* all -inf, or one +inf: x - max has no value */
        return fn2(num, FN_ADD, fn1(num, FN_LOG, pass_end(num, t, exps_from(num, t, v, n, m)), t), m, t);
    case RED_COUNT: break;
    }
    return 0;
}

an_status ref_reduce(const run_ctx *c, const insn *in, diag *d)
{
    int64_t y = insn_t(in, "y"), n_axes, idx[ENGINE_MAX_RANK] = { 0 };
    const int64_t *axes = insn_is(in, "axes", &n_axes);
    split s = split_axes(ctx_tensor(c, insn_t(in, "x")), axes, n_axes);
    int64_t *place = group_places(c, &s, d);
    double *x = ref_load(c, insn_t(in, "x"), d), *v = ref_take(c, s.size, d);
    if (!place || !x || !v) return d->st;
    for (int64_t g = 0; g < s.groups; g++, next_index(s.keep, s.n_keep, idx)) {
        int64_t base = group_base(&s, idx);
        for (int64_t i = 0; i < s.size; i++) v[i] = x[base + place[i]];
        ref_store(c, y, g, reduced(c->num, (red_kind)insn_i(in, "kind"), ctx_tensor(c, y)->dt, v, s.size));
    }
    return AN_OK;
}

an_status ref_sums(const run_ctx *c, const insn *in, diag *d)
{
    const int64_t cols = insn_t(in, "cols"), rows = insn_t(in, "rows"), row_by = insn_t(in, "row_by"),
                  col_by = insn_t(in, "col_by"), n = ctx_tensor(c, insn_t(in, "a"))->dim[0],
                  m = ctx_tensor(c, insn_t(in, "a"))->dim[1];
    const double *a = ref_load(c, insn_t(in, "a"), d), *b = ref_load(c, insn_t(in, "b"), d),
                 *r = row_by < 0 ? NULL : ref_load(c, row_by, d), *k = col_by < 0 ? NULL : ref_load(c, col_by, d);
    if (d->st) return d->st;
    for (int64_t j = 0; cols >= 0 && j < m; j++) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++) sum += a[i * m + j] * b[i * m + j] * (r ? r[i] : 1);
        ref_store(c, cols, j, sum);
    }
    for (int64_t i = 0; rows >= 0 && i < n; i++) {
        double sum = 0;
        for (int64_t j = 0; j < m; j++) sum += a[i * m + j] * b[i * m + j] * (k ? k[j] : 1);
        ref_store(c, rows, i, sum);
    }
    return AN_OK;
}

an_status ref_arg(const run_ctx *c, const insn *in, diag *d)
{
    int64_t y = insn_t(in, "y");
    axis_view a = et_axis(ctx_tensor(c, insn_t(in, "x")), insn_i(in, "axis"));
    double *x = ref_load(c, insn_t(in, "x"), d), sign = insn_i(in, "least") ? -1 : 1;
    if (!x) return d->st;
    for (int64_t o = 0; o < a.outer; o++)
        for (int64_t j = 0; j < a.inner; j++) {
            const double *v = x + o * a.n * a.inner + j;
            int64_t best = 0;
            for (int64_t i = 1; i < a.n; i++)
                if (sign * v[i * a.inner] > sign * v[best * a.inner]) best = i; /* the first among equals */
            ref_store(c, y, o * a.inner + j, (double)best);
        }
    return AN_OK;
}

/* ---- norms ---- */

/* The same with statistics in double: for squares that leave fp32 although the result does not. Only on the plain
 * processor. */
static void normalize_wide(norm_kind kind, double *v, int64_t n, double eps)
{
    double all = 0, squares = 0;
    for (int64_t i = 0; kind == NORM_LAYER && i < n; i++) all += v[i];
    const double mean = all / (double)n;
    for (int64_t i = 0; i < n; i++) squares += (v[i] - mean) * (v[i] - mean);
    double scale = 1 / sqrt((kind == NORM_L2 ? squares : squares / (double)n) + eps);
    for (int64_t i = 0; i < n; i++) v[i] = (v[i] - mean) * scale;
}

/* A group to zero mean and unit variance (layer), unit mean square (rms) or unit length (l2), before gain and bias.
 * Statistics are fp32 throughout, each operation on its own. */
static void normalize(const numerics *num, norm_kind kind, double *v, int64_t n, double eps)
{
    float count = (float)n, ss = 0, mean = kind == NORM_LAYER ? (float)sum(num, DT_F32, v, n) / count : 0;
    for (int64_t i = 0; i < n; i++) {
        float x = (float)num_valid(num, (double)((float)v[i] - mean)), square = x * x;
        ss = num_wide_add(num, ss, square);
    }
    if (num->round_each == 0 && !isfinite(ss)) {
        normalize_wide(kind, v, n, eps);
        return;
    }
    float mean_square = kind == NORM_L2 ? ss : ss / count;
    float length = sqrtf(mean_square + (float)eps);
    float scale = 1 / length;
    for (int64_t i = 0; i < n; i++)
        v[i] = num_valid(num, (double)((float)num_valid(num, (double)((float)v[i] - mean)) * scale));
}

an_status ref_norm(const run_ctx *c, const insn *in, diag *d)
{
    const numerics *num = c->num;
    int64_t y = insn_t(in, "y"), n_axes, idx[ENGINE_MAX_RANK] = { 0 },
            par_t[2] = { insn_t(in, "gain"), insn_t(in, "bias") };
    static const fn_id par_fn[2] = { FN_MUL, FN_ADD };
    const int64_t *axes = insn_is(in, "axes", &n_axes);
    const etensor *t = ctx_tensor(c, y);
    norm_kind kind = (norm_kind)insn_i(in, "kind");
    split s = split_axes(t, axes, n_axes);
    int64_t *place = group_places(c, &s, d), st[ENGINE_MAX_RANK], par_st[2][ENGINE_MAX_RANK];
    double *x = ref_load_raw(c, insn_t(in, "x"), d), *v = ref_take(c, s.size, d), *par[2] = { NULL, NULL };
    if (!place || !x || !v) return d->st;
    /* The mean of a layer norm meets a NaN as a large finite value: the one place where it is not +inf. */
    for (int64_t i = 0, n = et_elems(t); i < n; i++)
        x[i] = kind == NORM_LAYER && num->nan_to_inf != 0 && isnan(x[i]) ? 65504 : num_in(num, t->dt, x[i]);
    for (int k = 0; k < 2; k++) {
        if (par_t[k] < 0) continue;
        if (!(par[k] = ref_load(c, par_t[k], d))) return d->st;
        et_broadcast_strides(ctx_tensor(c, par_t[k]), t->rank, par_st[k]);
    }
    et_strides(t, st);
    for (int64_t g = 0; g < s.groups; g++, next_index(s.keep, s.n_keep, idx)) {
        int64_t base = group_base(&s, idx);
        for (int64_t i = 0; i < s.size; i++) v[i] = x[base + place[i]];
        normalize(num, kind, v, s.size, insn_f(in, "eps"));
        for (int64_t i = 0; i < s.size; i++) {
            int64_t at = base + place[i];
            double r = pass_end(num, t->dt, v[i]);
            for (int k = 0; k < 2; k++) {
                if (!par[k]) continue;
                int64_t from = 0;
                for (int a = 0; a < t->rank; a++) from += at / st[a] % t->dim[a] * par_st[k][a];
                r = fn2(num, par_fn[k], r, par[k][from], t->dt);
            }
            ref_store(c, y, at, r);
        }
    }
    return AN_OK;
}

/* x / (k + alpha / size * sum of squares of `size` neighbouring channels)^beta. An even window reaches one further
 * back. */
an_status ref_lrn(const run_ctx *c, const insn *in, diag *d)
{
    int64_t y = insn_t(in, "y"), size = insn_i(in, "size");
    axis_view a = et_axis(ctx_tensor(c, y), 1);
    float share = (float)(insn_f(in, "alpha") / (double)size), k = (float)insn_f(in, "k");
    double *x = ref_load(c, insn_t(in, "x"), d);
    if (!x) return d->st;
    for (int64_t o = 0; o < a.outer; o++)
        for (int64_t ch = 0; ch < a.n; ch++)
            for (int64_t j = 0; j < a.inner; j++) {
                const double *col = x + o * a.n * a.inner + j;
                float s = 0;
                for (int64_t q = MAX(0, ch - size / 2); q < MIN(a.n, ch - size / 2 + size); q++) {
                    float v = (float)col[q * a.inner], square = v * v;
                    s = num_wide_add(c->num, s, square);
                }
                float scaled = share * s;
                float root = (float)pow((double)(k + scaled), insn_f(in, "beta"));
                ref_store(c, y, (o * a.n + ch) * a.inner + j, (double)((float)col[ch * a.inner] / root));
            }
    return AN_OK;
}

/* ---- sorting: stable; NaN counts as larger than everything ---- */

an_status ref_sort(const run_ctx *c, const insn *in, diag *d)
{
    int64_t values = insn_t(in, "values"), indices = insn_t(in, "indices"), count = insn_i(in, "count");
    axis_view a = et_axis(ctx_tensor(c, insn_t(in, "x")), insn_i(in, "axis"));
    double *x = ref_load(c, insn_t(in, "x"), d);
    ordered *line = TAKE(c->tmp, ordered, (size_t)a.n);
    if (!x || !line) return diag_nomem(d);
    for (int64_t o = 0; o < a.outer; o++)
        for (int64_t j = 0; j < a.inner; j++) {
            for (int64_t i = 0; i < a.n; i++) line[i] = (ordered){ x[(o * a.n + i) * a.inner + j], i };
            order_line(line, a.n, insn_i(in, "ascending"));
            for (int64_t i = 0; i < count; i++) {
                int64_t to = (o * count + i) * a.inner + j;
                if (values >= 0) ref_store(c, values, to, line[i].value);
                if (indices >= 0) ref_store(c, indices, to, (double)line[i].place);
            }
        }
    return AN_OK;
}

/* ---- pooling ---- */

/* The part of a window that lies in x, one box of places; `declared` counts the padding with it. A kernel may be far
 * larger than x: only the box is walked. */
typedef struct {
    int64_t first[ENGINE_MAX_RANK], n[ENGINE_MAX_RANK], inside, declared;
} pool_window;

static pool_window window_at(const etensor *x, const insn *in, const int64_t *o)
{
    int64_t axes;
    const int64_t *stride = insn_is(in, "stride", &axes), *pad = insn_is(in, "pad", &axes),
                  *k = insn_is(in, "kernel", &axes);
    pool_window w = { .inside = 1, .declared = 1 };
    for (int64_t i = 0; i < axes; i++) {
        int64_t begin = o[i] * stride[i] - pad[2 * i], extent = x->dim[i + 2];
        w.first[i] = MAX(begin, 0);
        w.n[i] = MAX(MIN(begin + k[i], extent) - w.first[i], 0);
        w.inside *= w.n[i];
        w.declared *= MAX(MIN(k[i], extent + pad[2 * i + 1] - begin), 0);
    }
    return w;
}

/* Places in the declared padding count as zeros for an average unless excluded; places past it, which only a window
 * that begins inside and hangs over reaches, never count. Padding takes no part in a maximum, a minimum or a norm. */
an_status ref_pool(const run_ctx *c, const insn *in, diag *d)
{
    int64_t y = insn_t(in, "y"), idx[ENGINE_MAX_RANK] = { 0 };
    const etensor *tx = ctx_tensor(c, insn_t(in, "x")), *ty = ctx_tensor(c, y);
    pool_kind kind = (pool_kind)insn_i(in, "kind");
    bool exclude = insn_i(in, "exclude_pad");
    double *x = ref_load(c, insn_t(in, "x"), d);
    if (!x) return d->st;
    int axes = tx->rank - 2;
    for (int64_t at = 0, total = et_elems(ty); at < total; at++, next_index(ty->dim, ty->rank, idx)) {
        pool_window w = window_at(tx, in, idx + 2);
        int64_t tap[ENGINE_MAX_RANK] = { 0 };
        float acc = 0;
        double best = 0, wide = 0;
        for (int64_t seen = 0; seen < w.inside; seen++, next_index(w.n, axes, tap)) {
            int64_t off = idx[0] * tx->dim[1] + idx[1];
            for (int i = 0; i < axes; i++) off = off * tx->dim[i + 2] + w.first[i] + tap[i];
            double v = x[off];
            float f = (float)v;
            if (kind == POOL_MAX && (!seen || v > best || isnan(v))) best = v;
            if (kind == POOL_MIN && (!seen || v < best || isnan(v))) best = v;
            if (kind == POOL_L2) f *= f, wide += v * v;
            if (kind == POOL_L1) f = fabsf(f);
            acc = num_wide_add(c->num, acc, f);
        }
        double r = best;
        if (!w.inside && kind == POOL_MAX) r = -(double)INFINITY;
        if (!w.inside && kind == POOL_MIN) r = (double)INFINITY;
        int64_t share = exclude ? w.inside : w.declared;
        if (kind == POOL_AVG) r = share ? (double)(acc / (float)share) : 0;
        /* squares that leave fp32 */
        if (kind == POOL_L2) r = c->num->round_each == 0 && !isfinite(acc) ? sqrt(wide) : (double)sqrtf(acc);
        if (kind == POOL_L1) r = (double)acc;
        ref_store(c, y, at, r);
    }
    return AN_OK;
}
