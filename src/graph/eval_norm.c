/* eval_norm.c: operations that look along axes: norms, softmax, reductions, running sums, sorting.
 * In: an eval_ctx.  Out: its results. Most kernels copy one line or group of elements to scratch, apply a formula that
 * reads like the definition, and copy back. */
#include <math.h>

#include "base/order.h"
#include "graph/eval_int.h"

/* x split in two boxes: the axes that stay and the axes that are summed over, both with x's strides, both in axis
 * order. */
typedef struct {
    int n_keep, n_red;
    int64_t keep[MAX_RANK], keep_stride[MAX_RANK], red[MAX_RANK], red_stride[MAX_RANK];
} axis_split;

static axis_split split_axes(const shape *s, const bool *reduced)
{
    axis_split a = { 0 };
    int64_t st[MAX_RANK];
    shape_strides(s, st);
    for (int i = 0; i < s->rank; i++) {
        if (reduced[i]) a.red[a.n_red] = s->d[i], a.red_stride[a.n_red++] = st[i];
        else a.keep[a.n_keep] = s->d[i], a.keep_stride[a.n_keep++] = st[i];
    }
    return a;
}

static void row_major(const int64_t *d, int rank, int64_t *stride)
{
    int64_t p = 1;
    for (int i = rank - 1; i >= 0; i--) stride[i] = p, p *= d[i];
}

/* Call f on every group of elements that share their kept indices, gathered in axis order. f may write to v: with
 * `back` the group is stored to out in x's layout; without, f's return value is one element of out. */
typedef double (*group_fn)(eval_ctx *c, double *v, int64_t n);

static an_status each_group(eval_ctx *c, const bool *reduced, bool back, group_fn f)
{
    const tensor64 *x = &c->in[0];
    axis_split a = split_axes(&x->type.sh, reduced);
    int64_t packed[MAX_RANK], n = dims_prod(a.red, 0, a.n_red), at = 0;
    row_major(a.red, a.n_red, packed);
    double *v = t64_scratch(c, n);
    if (!v) return diag_nomem(c->d);
    walk w;
    walk_init(&w, a.keep, a.n_keep);
    walk_add(&w, a.keep_stride, 0);
    for (walk_start(&w); w.more; walk_row(&w))
        for (int64_t j = 0; j < w.len; j++) {
            int64_t base = w.off[0] + j * w.step[0];
            copy_box(a.red, a.n_red, v, 0, packed, x->x, base, a.red_stride);
            double r = f(c, v, n);
            if (back) copy_box(a.red, a.n_red, c->out[0].x, base, a.red_stride, v, 0, packed);
            else c->out[0].x[at++] = r;
        }
    return AN_OK;
}

/* ---- sums over a group ---- */

static double sum(const double *v, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += v[i];
    return s;
}

static double sum_square(const double *v, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += v[i] * v[i];
    return s;
}

static double largest(const double *v, int64_t n)
{
    double m = -INFINITY;
    for (int64_t i = 0; i < n; i++)
        if (v[i] > m || isnan(v[i])) m = v[i];
    return m;
}

static double g_sum(eval_ctx *c, double *v, int64_t n) { return (void)c, sum(v, n); }
static double g_mean(eval_ctx *c, double *v, int64_t n) { return (void)c, sum(v, n) / (double)n; }
static double g_max(eval_ctx *c, double *v, int64_t n) { return (void)c, largest(v, n); }
static double g_sum_square(eval_ctx *c, double *v, int64_t n) { return (void)c, sum_square(v, n); }
static double g_l2(eval_ctx *c, double *v, int64_t n) { return (void)c, sqrt(sum_square(v, n)); }
static double g_log_sum(eval_ctx *c, double *v, int64_t n) { return (void)c, log(sum(v, n)); }

static double g_min(eval_ctx *c, double *v, int64_t n)
{
    (void)c;
    for (int64_t i = 0; i < n; i++) v[i] = -v[i];
    return -largest(v, n);
}

static double g_l1(eval_ctx *c, double *v, int64_t n)
{
    (void)c;
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += fabs(v[i]);
    return s;
}

static double g_log_sum_exp(eval_ctx *c, double *v, int64_t n)
{
    (void)c;
    double m = largest(v, n), s = 0;
    if (isinf(m)) return m; /* all -inf, or one +inf: the shift below would be inf - inf */
    for (int64_t i = 0; i < n; i++) s += exp(v[i] - m);
    return m + log(s);
}

static an_status reduce(eval_ctx *c, group_fn f)
{
    bool on[MAX_RANK];
    TRY(at_axes(c, A_AXES, c->in[0].type.sh.rank, on));
    return each_group(c, on, false, f);
}

an_status eval_reduce_sum(eval_ctx *c) { return reduce(c, g_sum); }
an_status eval_reduce_mean(eval_ctx *c) { return reduce(c, g_mean); }
an_status eval_reduce_max(eval_ctx *c) { return reduce(c, g_max); }
an_status eval_reduce_min(eval_ctx *c) { return reduce(c, g_min); }
an_status eval_reduce_sum_square(eval_ctx *c) { return reduce(c, g_sum_square); }
an_status eval_reduce_l1_norm(eval_ctx *c) { return reduce(c, g_l1); }
an_status eval_reduce_l2_norm(eval_ctx *c) { return reduce(c, g_l2); }
an_status eval_reduce_log_sum(eval_ctx *c) { return reduce(c, g_log_sum); }
an_status eval_reduce_log_sum_exp(eval_ctx *c) { return reduce(c, g_log_sum_exp); }

/* ---- position of an extreme; the first of equals wins ---- */

static double g_argmax(eval_ctx *c, double *v, int64_t n)
{
    (void)c;
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (v[i] > v[best]) best = i;
    return (double)best;
}

static double g_argmin(eval_ctx *c, double *v, int64_t n)
{
    for (int64_t i = 0; i < n; i++) v[i] = -v[i];
    return g_argmax(c, v, n);
}

static an_status along_axis(eval_ctx *c, bool back, group_fn f)
{
    bool on[MAX_RANK] = { 0 };
    int axis;
    TRY(at_axis(c, A_AXIS, c->in[0].type.sh.rank, &axis));
    on[axis] = true;
    return each_group(c, on, back, f);
}

an_status eval_reduce_argmax(eval_ctx *c) { return along_axis(c, false, g_argmax); }
an_status eval_reduce_argmin(eval_ctx *c) { return along_axis(c, false, g_argmin); }

/* ---- lines ---- */

void softmax_line(double *v, int64_t n)
{
    double m = largest(v, n), s = 0;
    for (int64_t i = 0; i < n; i++) s += v[i] = exp(v[i] - m);
    for (int64_t i = 0; i < n; i++) v[i] /= s;
}

static double g_softmax(eval_ctx *c, double *v, int64_t n) { return (void)c, softmax_line(v, n), 0; }

static double g_cumsum(eval_ctx *c, double *v, int64_t n)
{
    bool exclusive = at_bool(c, A_EXCLUSIVE), reverse = at_bool(c, A_REVERSE);
    double s = 0;
    for (int64_t k = 0; k < n; k++) {
        int64_t i = reverse ? n - 1 - k : k;
        double x = v[i];
        v[i] = exclusive ? s : s + x;
        s += x;
    }
    return 0;
}

an_status eval_softmax(eval_ctx *c) { return along_axis(c, true, g_softmax); }
an_status eval_cumsum(eval_ctx *c) { return along_axis(c, true, g_cumsum); }

/* ---- sorting: stable, lower index first among equals; NaN counts as larger than everything ---- */

/* Sort each line along the axis and keep its first k: values and positions, either of which may be unwanted. */
static an_status sort_lines(eval_ctx *c, int64_t k, double *values, double *places)
{
    const tensor64 *x = &c->in[0];
    int axis;
    TRY(at_axis(c, A_AXIS, x->type.sh.rank, &axis));
    axis_view v = view_axis(&x->type.sh, axis);
    if (k < 0 || k > v.n) return eval_fail(c, "k %lld is outside 0 .. %lld", (long long)k, (long long)v.n);
    ordered *line = TAKE(c->mem, ordered, (size_t)v.n);
    if (!line) return diag_nomem(c->d);
    for (int64_t o = 0; o < v.outer; o++)
        for (int64_t j = 0; j < v.inner; j++) {
            for (int64_t i = 0; i < v.n; i++) line[i] = (ordered){ x->x[(o * v.n + i) * v.inner + j], i };
            order_line(line, v.n, at_bool(c, A_ASCENDING));
            for (int64_t i = 0; i < k; i++) {
                int64_t to = (o * k + i) * v.inner + j;
                if (values) values[to] = line[i].value;
                if (places) places[to] = (double)line[i].place;
            }
        }
    return AN_OK;
}

an_status eval_argsort(eval_ctx *c)
{
    int axis;
    TRY(at_axis(c, A_AXIS, c->in[0].type.sh.rank, &axis));
    return sort_lines(c, c->in[0].type.sh.d[axis], NULL, c->out[0].x);
}

/* sort=false leaves the order open, so sorted is right for it too. */
an_status eval_topk(eval_ctx *c)
{
    int axis;
    TRY(at_axis(c, A_AXIS, c->in[0].type.sh.rank, &axis));
    int64_t k = at_int(c, A_K) == -1 ? c->in[0].type.sh.d[axis] : at_int(c, A_K); /* -1: all of them */
    return sort_lines(c, k, c->out[0].x, c->n_out > 1 ? c->out[1].x : NULL);
}

/* ---- norms ---- */

static void normalize(double *v, int64_t n, double eps) /* zero mean, unit (biased) variance */
{
    double mean = sum(v, n) / (double)n;
    for (int64_t i = 0; i < n; i++) v[i] -= mean;
    double scale = 1 / sqrt(sum_square(v, n) / (double)n + eps);
    for (int64_t i = 0; i < n; i++) v[i] *= scale;
}

static double g_layer_norm(eval_ctx *c, double *v, int64_t n)
{
    normalize(v, n, at_float(c, A_EPSILON));
    for (int64_t i = 0; i < n; i++) { /* gamma and beta have the shape of the normalised axes */
        if (has(c, 1)) v[i] *= c->in[1].x[i];
        if (has(c, 2)) v[i] += c->in[2].x[i];
    }
    return 0;
}

an_status eval_layer_norm(eval_ctx *c)
{
    bool on[MAX_RANK];
    TRY(at_axes(c, A_AXES, c->in[0].type.sh.rank, on));
    int64_t n = 1;
    for (int i = 0; i < c->in[0].type.sh.rank; i++)
        if (on[i]) n *= c->in[0].type.sh.d[i];
    for (int k = 1; k <= 2; k++)
        if (has(c, k) && t64_elems(&c->in[k]) != n)
            return eval_fail(c, "%s has %lld elements, the normalised axes have %lld", k == 1 ? "gamma" : "beta",
                             (long long)t64_elems(&c->in[k]), (long long)n);
    return each_group(c, on, true, g_layer_norm);
}

static double g_l2_norm(eval_ctx *c, double *v, int64_t n)
{
    double scale = 1 / sqrt(sum_square(v, n) + at_float(c, A_EPSILON));
    for (int64_t i = 0; i < n; i++) v[i] *= scale;
    return 0;
}

an_status eval_l2_norm(eval_ctx *c) /* over the last three axes; everything before them is batch */
{
    bool on[MAX_RANK];
    int rank = c->in[0].type.sh.rank;
    for (int i = 0; i < rank; i++) on[i] = i >= rank - 3;
    return each_group(c, on, true, g_l2_norm);
}

an_status eval_batch_norm(eval_ctx *c)
{
    const tensor64 *x = &c->in[0];
    axis_view v = view_axis(&x->type.sh, 1);
    double eps = at_float(c, A_EPSILON);
    int64_t n[5] = { 0 }, i = 0;
    for (int k = 1; k < 5; k++) n[k] = has(c, k) ? t64_elems(&c->in[k]) : 0;
    for (int64_t o = 0; o < v.outer; o++)
        for (int64_t ch = 0; ch < v.n; ch++) {
            double mean = param_at(&c->in[1], n[1], ch), scale = 1 / sqrt(param_at(&c->in[2], n[2], ch) + eps);
            if (has(c, 3)) scale *= param_at(&c->in[3], n[3], ch);
            double shift = has(c, 4) ? param_at(&c->in[4], n[4], ch) : 0;
            for (int64_t j = 0; j < v.inner; j++, i++) c->out[0].x[i] = (x->x[i] - mean) * scale + shift;
        }
    return AN_OK;
}

an_status eval_instance_norm(eval_ctx *c)
{
    axis_view v = view_axis(&c->in[0].type.sh, 1);
    double eps = at_float(c, A_EPSILON), *y = c->out[0].x;
    memcpy(y, c->in[0].x, (size_t)t64_elems(&c->out[0]) * sizeof *y);
    int64_t ng = has(c, 1) ? t64_elems(&c->in[1]) : 0, nb = has(c, 2) ? t64_elems(&c->in[2]) : 0;
    for (int64_t o = 0; o < v.outer; o++)
        for (int64_t ch = 0; ch < v.n; ch++, y += v.inner) {
            normalize(y, v.inner, eps);
            for (int64_t j = 0; j < v.inner; j++) {
                if (has(c, 1)) y[j] *= param_at(&c->in[1], ng, ch);
                if (has(c, 2)) y[j] += param_at(&c->in[2], nb, ch);
            }
        }
    return AN_OK;
}

/* x / (k + alpha / size * sum of squares of `size` neighbouring channels)^beta. An even window reaches one further
 * back. */
an_status eval_local_response_norm(eval_ctx *c)
{
    const tensor64 *x = &c->in[0];
    axis_view v = view_axis(&x->type.sh, 1);
    int64_t size = at_int(c, A_SIZE);
    double alpha = at_float(c, A_ALPHA), beta = at_float(c, A_BETA), k = at_float(c, A_K);
    if (size < 1) return eval_fail(c, "size %lld must be at least 1", (long long)size);
    for (int64_t o = 0; o < v.outer; o++)
        for (int64_t ch = 0; ch < v.n; ch++)
            for (int64_t j = 0; j < v.inner; j++) {
                const double *col = x->x + o * v.n * v.inner + j;
                double s = 0;
                for (int64_t q = MAX(0, ch - size / 2); q < MIN(v.n, ch - size / 2 + size); q++)
                    s += col[q * v.inner] * col[q * v.inner];
                c->out[0].x[(o * v.n + ch) * v.inner + j] = col[ch * v.inner] / pow(k + alpha / (double)size * s, beta);
            }
    return AN_OK;
}
