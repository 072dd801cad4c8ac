/* ref_mac.c: products: convolution, its transpose, matmul, einsum, attention.
 * In: a run_ctx and a checked instruction.  Out: one result.
 *
 * Every element of a result is one pass over pairs of operands: gather the pairs in lane order into two arrays,
 * num_dot, the epilogue, the output port. Lane order of a convolution is channel, then kernel row, then column;
 * places in the padding are zeros of x. A place of a transposed convolution that x does not reach is nothing at all:
 * a lane that holds zeros. */
#include <math.h>

#include "engine/engine_int.h"
#include "engine/ref_int.h"

/* A whole operand as a multiplier sees it. */
static float *load_mac(const run_ctx *c, int64_t tensor, diag *d)
{
    int64_t n = et_elems(ctx_tensor(c, tensor));
    float *f = TAKE(c->tmp, float, (size_t)n);
    if (!f) return diag_nomem(d), NULL;
    arena_mark m = arena_save(c->tmp);
    double *x = ref_load(c, tensor, d);
    if (!x) return NULL;
    for (int64_t i = 0; i < n; i++) f[i] = num_flush(c->num, x[i]);
    arena_back(c->tmp, m);
    return f;
}

static float *take_lanes(const run_ctx *c, int64_t n, diag *d)
{
    float *f = TAKE(c->tmp, float, (size_t)n);
    if (!f) diag_nomem(d);
    return f;
}

/* Epilogue and output port of element `at`, which stands at place idx. */
static an_status finish(const run_ctx *c, const chain_in *ci, int64_t y, int64_t at, const int64_t *idx, float acc,
                        bool ceiling, diag *d)
{
    double v;
    dtype t = ctx_tensor(c, y)->dt;
    TRY(chain_at(ci, idx, (double)acc, &v, d));
    v = num_round_port(c->num, t, v);
    dtype_store(t, ctx_mem(c, y), at, ceiling && dtype_is_float(t) ? num_ceiling(c->num, v) : v);
    return AN_OK;
}

/* ---- convolution: up to three spatial axes, those a shape lacks have extent 1 ---- */

enum { SPATIAL = 3 };
typedef struct {
    int64_t in[SPATIAL], out[SPATIAL], k[SPATIAL], stride[SPATIAL], pad[SPATIAL], dil[SPATIAL];
    int64_t batch, cin, cout, groups, taps;
} geometry;

static geometry geometry_of(const run_ctx *c, const insn *in)
{
    const etensor *x = ctx_tensor(c, insn_t(in, "x")), *w = ctx_tensor(c, insn_t(in, "w")),
                  *y = ctx_tensor(c, insn_t(in, "y"));
    int64_t n;
    const int64_t *stride = insn_is(in, "stride", &n), *pad = insn_is(in, "pad", &n),
                  *dil = insn_is(in, "dilation", &n);
    geometry g = { .batch = x->dim[0], .cin = x->dim[1], .cout = y->dim[1], .groups = insn_i(in, "groups"), .taps = 1 };
    int lead = SPATIAL - (x->rank - 2);
    for (int i = 0; i < SPATIAL; i++) {
        int j = i - lead;
        g.in[i] = j < 0 ? 1 : x->dim[j + 2], g.out[i] = j < 0 ? 1 : y->dim[j + 2], g.k[i] = j < 0 ? 1 : w->dim[j + 2];
        g.stride[i] = j < 0 ? 1 : stride[j], g.pad[i] = j < 0 ? 0 : pad[2 * j], g.dil[i] = j < 0 ? 1 : dil[j];
        g.taps *= g.k[i];
    }
    return g;
}

/* Offset in a plane of x of what tap `k` of the window at `o` reads; -1: padding. */
static int64_t tap_forward(const geometry *g, const int64_t *o, const int64_t *k)
{
    int64_t off = 0;
    for (int i = 0; i < SPATIAL; i++) {
        int64_t p = o[i] * g->stride[i] + k[i] * g->dil[i] - g->pad[i];
        if (p < 0 || p >= g->in[i]) return -1;
        off = off * g->in[i] + p;
    }
    return off;
}

/* The transpose: which place of x sends its tap k to place o. */
static int64_t tap_backward(const geometry *g, const int64_t *o, const int64_t *k)
{
    int64_t off = 0;
    for (int i = 0; i < SPATIAL; i++) {
        int64_t p = o[i] + g->pad[i] - k[i] * g->dil[i];
        if (p < 0 || p % g->stride[i] || p / g->stride[i] >= g->in[i]) return -1;
        off = off * g->in[i] + p / g->stride[i];
    }
    return off;
}

static an_status convolve(const run_ctx *c, const insn *in, bool transposed, diag *d)
{
    int64_t y = insn_t(in, "y"), at = 0;
    geometry g = geometry_of(c, in);
    int64_t ci = g.cin / g.groups, co = g.cout / g.groups, plane = dims_product(g.in, 0, SPATIAL),
            places = dims_product(g.out, 0, SPATIAL);
    int64_t lanes = ci * g.taps;
    chain_in ep;
    TRY(chain_open(c, in, "extra", true, &ep, d));
    float *x = load_mac(c, insn_t(in, "x"), d), *w = load_mac(c, insn_t(in, "w"), d), *a = take_lanes(c, lanes, d),
          *b = take_lanes(c, lanes, d);
    if (!x || !w || !a || !b) return d->st;
    const etensor *t = ctx_tensor(c, y);
    int64_t idx[ENGINE_MAX_RANK] = { 0 };
    for (int64_t n = 0; n < g.batch; n++)
        for (int64_t oc = 0; oc < g.cout; oc++)
            for (int64_t p = 0; p < places; p++, at++, next_index(t->dim, t->rank, idx)) {
                int64_t o[SPATIAL] = { p / (g.out[1] * g.out[2]), p / g.out[2] % g.out[1], p % g.out[2] };
                int64_t group = oc / co, lane = 0;
                for (int64_t ic = 0; ic < ci; ic++) {
                    int64_t k[SPATIAL] = { 0 };
                    for (int64_t tap = 0; tap < g.taps; tap++, lane++, next_index(g.k, SPATIAL, k)) {
                        int64_t off = transposed ? tap_backward(&g, o, k) : tap_forward(&g, o, k),
                                channel = group * ci + ic;
                        int64_t weight =
                            transposed ? (channel * co + oc % co) * g.taps + tap : (oc * ci + ic) * g.taps + tap;
                        a[lane] = off < 0 ? 0 : x[(n * g.cin + channel) * plane + off];
                        b[lane] = off < 0 && transposed ? 0 : w[weight];
                    }
                }
                bool ceiling = lanes > 1; /* one tap of one channel is no accumulation: it has no ceiling */
                TRY(finish(c, &ep, y, at, idx, num_dot(c->num, a, b, lanes, ceiling), ceiling, d));
            }
    return AN_OK;
}

an_status ref_conv(const run_ctx *c, const insn *in, diag *d) { return convolve(c, in, false, d); }
an_status ref_conv_t(const run_ctx *c, const insn *in, diag *d) { return convolve(c, in, true, d); }

/* ---- matrix products ---- */

/* Strides of an operand's leading axes, walked as the result's. */
static void stack_strides(const etensor *t, int rank, int64_t *stride)
{
    etensor lead = *t;
    lead.rank -= 2;
    et_broadcast_strides(&lead, rank, stride);
    for (int i = 0; i < rank; i++) stride[i] *= t->dim[t->rank - 2] * t->dim[t->rank - 1];
}

static int64_t dot_index(const int64_t *idx, const int64_t *stride, int rank)
{
    int64_t off = 0;
    for (int i = 0; i < rank; i++) off += idx[i] * stride[i];
    return off;
}

an_status ref_matmul(const run_ctx *c, const insn *in, diag *d)
{
    int64_t y = insn_t(in, "y"), tx = insn_i(in, "trans_x"), tz = insn_i(in, "trans_z");
    const etensor *t = ctx_tensor(c, y), *et_x = ctx_tensor(c, insn_t(in, "x")), *et_z = ctx_tensor(c, insn_t(in, "z"));
    int lead = t->rank - 2;
    int64_t k = et_x->dim[et_x->rank - 1 - tx];
    int64_t x_last = et_x->dim[et_x->rank - 1], z_last = et_z->dim[et_z->rank - 1];
    int64_t x_row = tx ? 1 : x_last, x_col = tx ? x_last : 1, z_row = tz ? 1 : z_last, z_col = tz ? z_last : 1;
    int64_t sx[ENGINE_MAX_RANK], sz[ENGINE_MAX_RANK], idx[ENGINE_MAX_RANK] = { 0 };
    stack_strides(et_x, lead, sx);
    stack_strides(et_z, lead, sz);
    chain_in ep;
    TRY(chain_open(c, in, "extra", true, &ep, d));
    float *x = load_mac(c, insn_t(in, "x"), d), *z = load_mac(c, insn_t(in, "z"), d), *a = take_lanes(c, k, d),
          *b = take_lanes(c, k, d);
    if (!x || !z || !a || !b) return d->st;
    for (int64_t at = 0, n = et_elems(t); at < n; at++, next_index(t->dim, t->rank, idx)) {
        const float *row = x + dot_index(idx, sx, lead) + idx[lead] * x_row,
                    *col = z + dot_index(idx, sz, lead) + idx[lead + 1] * z_col;
        for (int64_t i = 0; i < k; i++) a[i] = row[i * x_col], b[i] = col[i * z_row];
        TRY(finish(c, &ep, y, at, idx, num_dot(c->num, a, b, k, true), true, d));
    }
    return AN_OK;
}

/* The sum is a reduction's: fp32, ascending, of what was stored. */
an_status ref_matmul_squares(const run_ctx *c, const insn *in, diag *d)
{
    TRY(ref_matmul(c, in, d));
    double *y = ref_load(c, insn_t(in, "y"), d);
    float sum = 0;
    if (!y) return d->st;
    for (int64_t i = 0, n = et_elems(ctx_tensor(c, insn_t(in, "y"))); i < n; i++)
        sum = num_wide_add(c->num, sum, (float)num_fn(c->num, FN_SQUARE, &y[i], NULL, DT_F32));
    ref_store(c, insn_t(in, "squares"), 0, (double)sum);
    return AN_OK;
}

/* Labels of the result run outside; those it lacks are the lanes, in the order x and then z name them. */
an_status ref_einsum(const run_ctx *c, const insn *in, diag *d)
{
    static const char *const tensors[] = { "y", "x", "z" }, *const fields[] = { "labels_y", "labels_x", "labels_z" };
    enum { LABELS = 64, TERMS = 3 };
    int64_t extent[LABELS] = { 0 }, stride[TERMS][LABELS] = { { 0 } }, lane_d[LABELS], lane_x[LABELS], lane_z[LABELS];
    bool in_y[LABELS] = { false }, is_lane[LABELS] = { false };
    int n_lane = 0;
    for (int k = 0; k < TERMS; k++) {
        const etensor *t = ctx_tensor(c, insn_t(in, tensors[k]));
        int64_t n, own[ENGINE_MAX_RANK];
        const int64_t *l = insn_is(in, fields[k], &n);
        et_strides(t, own);
        for (int64_t i = 0; i < n; i++) {
            extent[l[i]] = MAX(extent[l[i]], t->dim[i]);
            if (t->dim[i] != 1) stride[k][l[i]] += own[i]; /* a repeated label walks the diagonal; extent 1 repeats */
            if (k == 0) in_y[l[i]] = true;
        }
    }
    for (int k = 1; k < TERMS; k++) {
        int64_t n;
        const int64_t *l = insn_is(in, fields[k], &n);
        for (int64_t i = 0; i < n; i++) {
            if (in_y[l[i]] || is_lane[l[i]]) continue;
            is_lane[l[i]] = true;
            lane_d[n_lane] = extent[l[i]], lane_x[n_lane] = stride[1][l[i]], lane_z[n_lane] = stride[2][l[i]];
            n_lane++;
        }
    }
    int64_t y = insn_t(in, "y"), n_y, lanes = 1, idx[ENGINE_MAX_RANK] = { 0 };
    for (int i = 0; i < n_lane; i++)
        if (!mul_i64(lanes, lane_d[i], &lanes)) return diag_nomem(d);
    const int64_t *ly = insn_is(in, "labels_y", &n_y);
    const etensor *t = ctx_tensor(c, y);
    float *x = load_mac(c, insn_t(in, "x"), d), *z = load_mac(c, insn_t(in, "z"), d), *a = take_lanes(c, lanes, d),
          *b = take_lanes(c, lanes, d);
    if (!x || !z || !a || !b) return d->st;
    for (int64_t at = 0, n = et_elems(t); at < n; at++, next_index(t->dim, t->rank, idx)) {
        int64_t ox = 0, oz = 0, lane = 0, at_lane[LABELS] = { 0 };
        for (int64_t i = 0; i < n_y; i++) ox += idx[i] * stride[1][ly[i]], oz += idx[i] * stride[2][ly[i]];
        do {
            a[lane] = x[ox + dot_index(at_lane, lane_x, n_lane)], b[lane] = z[oz + dot_index(at_lane, lane_z, n_lane)];
            lane++;
        } while (next_index(lane_d, n_lane, at_lane));
        double v = num_round_port(c->num, t->dt, (double)num_dot(c->num, a, b, lanes, true));
        dtype_store(t->dt, ctx_mem(c, y), at, dtype_is_float(t->dt) ? num_ceiling(c->num, v) : v);
    }
    return AN_OK;
}

/* ---- attention ---- */

/* The end of a pass inside the instruction: on a chip it leaves through the output port as y's type, else it stays
 * fp32. */
static double pass_end(const run_ctx *c, dtype t, float acc)
{
    if (c->num->round_each == 0) return (double)acc;
    return num_ceiling(c->num, num_round_port(c->num, t, (double)acc));
}

/* A row that would see none sees them all: the mask this stands for takes as much from each of its scores. */
keys_seen ref_sees(double pos, int64_t keys, int64_t window)
{
    const int64_t at = (int64_t)fmin(fmax(pos, -1), (double)(keys + window)); /* where it makes no more difference */
    const keys_seen s = { .first = window ? MAX(at + 1 - window, (int64_t)0) : 0, .end = MIN(at + 1, keys) };
    return s.first < s.end ? s : (keys_seen){ 0, keys };
}

/* Scores, scale, mask, softmax and the sum over keys, each as the separate instruction would do it. A key left out
 * by `causal`, by the row's position or by the mask is not there for the softmax; among the products with v it is a
 * lane that holds zero. */
static an_status attend(const run_ctx *c, const insn *in, int64_t mask_t, bool causal, const double *pos,
                        int64_t window, bool turned, diag *d)
{
    int64_t y = insn_t(in, "y");
    const etensor *t = ctx_tensor(c, y), *q = ctx_tensor(c, insn_t(in, "q")), *k = ctx_tensor(c, insn_t(in, "k")),
                  *v = ctx_tensor(c, insn_t(in, "v"));
    const numerics *num = c->num;
    int lead = t->rank - 2;
    int64_t inner = q->dim[q->rank - 1 - turned], rows = t->dim[lead + turned], cols = t->dim[lead + !turned],
            keys = k->dim[k->rank - 2];
    int64_t sq[ENGINE_MAX_RANK], sk[ENGINE_MAX_RANK], sv[ENGINE_MAX_RANK], sm[ENGINE_MAX_RANK] = { 0 },
                                                                           idx[ENGINE_MAX_RANK] = { 0 };
    stack_strides(q, lead, sq), stack_strides(k, lead, sk), stack_strides(v, lead, sv);
    float *xq = load_mac(c, insn_t(in, "q"), d), *xk = load_mac(c, insn_t(in, "k"), d),
          *xv = load_mac(c, insn_t(in, "v"), d);
    double *mask = mask_t < 0 ? NULL : ref_load(c, mask_t, d), *score = ref_take(c, keys, d);
    float *a = take_lanes(c, keys, d), *b = take_lanes(c, keys, d), *row = take_lanes(c, inner, d);
    bool *out = TAKE(c->tmp, bool, (size_t)keys); /* keys that the mask leaves out */
    if (!xq || !xk || !xv || !score || !a || !b || !row || (mask_t >= 0 && !mask)) return d->st;
    if (!out) return diag_nomem(d);
    /* a chip adds -inf as it adds anything */
    bool admits = mask && ctx_tensor(c, mask_t)->dt == DT_BOOL, ends = num->round_each == 0;
    if (mask) et_broadcast_strides(ctx_tensor(c, mask_t), t->rank, sm);
    double scale =
        num->round_each != 0 ? num_round(num, t->dt, insn_f(in, "scale")) : (double)(float)insn_f(in, "scale");
    for (int64_t s = 0, stacks = dims_product(t->dim, 0, lead); s < stacks; s++, next_index(t->dim, lead, idx))
        for (int64_t i = 0; i < rows; i++) {
            const float *query = xq + dot_index(idx, sq, lead), *key = xk + dot_index(idx, sk, lead),
                        *val = xv + dot_index(idx, sv, lead);
            int64_t count = causal ? MIN(keys, i + 1) : keys, first = 0;
            for (int64_t e = 0; e < inner; e++) row[e] = query[turned ? e * rows + i : i * inner + e];
            if (pos) {
                const keys_seen seen = ref_sees(pos[i], keys, window);
                first = seen.first, count = seen.end;
            }
            for (int64_t j = first; j < count; j++) {
                double x[2] = { pass_end(c, t->dt, num_dot(num, row, key + j * inner, inner, true)), scale };
                score[j] = num_fn(num, FN_MUL, x, NULL, t->dt);
                if (!mask) continue;
                double m = mask[dot_index(idx, sm, lead) + i * sm[lead] + j * sm[lead + 1]];
                out[j] = admits ? m == 0 : ends && m == -(double)INFINITY;
                if (out[j]) score[j] = -(double)INFINITY;
                else if (!admits) score[j] = num_fn(num, FN_ADD, (const double[]){ score[j], m }, NULL, t->dt);
            }
            ref_softmax_line(num, t->dt, score + first, count - first);
            for (int64_t j = 0; j < keys; j++) a[j] = j < count && j >= first ? num_flush(num, score[j]) : 0;
            for (int64_t j = 0; j < cols; j++) {
                for (int64_t l = 0; l < keys; l++)
                    b[l] = l < count && l >= first && !(out[l] && a[l] == 0) ? val[l * cols + j] : 0;
                double r = num_round_port(num, t->dt, (double)num_dot(num, a, b, keys, true));
                dtype_store(t->dt, ctx_mem(c, y), turned ? (s * cols + j) * rows + i : (s * rows + i) * cols + j,
                            num_ceiling(num, r));
            }
        }
    return AN_OK;
}

an_status ref_attend(const run_ctx *c, const insn *in, diag *d)
{
    return attend(c, in, insn_t(in, "mask"), insn_i(in, "causal"), NULL, 0, false, d);
}

/* Where element (i, j) of matrix m lies, of `stacks` matrices of high x wide: one behind the other, or (apart)
 * sequences beside each other. */
typedef struct {
    int64_t stacks, apart;
} stacked;

static int64_t place(const stacked *s, int64_t m, int64_t high, int64_t wide, int64_t i, int64_t j)
{
    const int64_t each = s->apart ? s->apart : 1, heads = s->stacks / each;
    return ((m % heads * high + i) * each + m / heads) * wide + j;
}

/* This and its way back: sums in double, results rounded once. Only the plain processor has programs with them. */
an_status ref_attend_keep(const run_ctx *c, const insn *in, diag *d)
{
    const int64_t y = insn_t(in, "y"), pt = insn_t(in, "p"), period = insn_i(in, "period");
    const etensor *t = ctx_tensor(c, pt), *tq = ctx_tensor(c, insn_t(in, "q")), *tv = ctx_tensor(c, insn_t(in, "v"));
    const stacked z = { .stacks = dims_product(t->dim, 0, t->rank - 2), .apart = insn_i(in, "apart") };
    const int64_t rows = t->dim[t->rank - 2], keys = t->dim[t->rank - 1], width = tq->dim[z.apart ? 1 : tq->rank - 2],
                  cols = tv->dim[z.apart ? 1 : tv->rank - 2];
    double *q = ref_load(c, insn_t(in, "q"), d), *k = ref_load(c, insn_t(in, "k"), d),
           *v = ref_load(c, insn_t(in, "v"), d), *p = ref_take(c, keys, d);
    if (!q || !k || !v || !p) return d->st;
    for (int64_t m = 0; m < z.stacks; m++)
        for (int64_t i = 0; i < rows; i++) {
            const int64_t seen = period ? i % period + 1 : keys;
            memset(p, 0, sizeof *p * (size_t)keys);
            for (int64_t j = 0; j < seen; j++)
                for (int64_t e = 0; e < width; e++)
                    p[j] += q[place(&z, m, width, rows, e, i)] * k[place(&z, m, width, keys, e, j)];
            ref_softmax_line(c->num, t->dt, p, seen);
            for (int64_t j = 0; j < keys; j++) ref_store(c, pt, (m * rows + i) * keys + j, p[j]);
            for (int64_t e = 0; e < cols; e++) {
                double x = 0;
                for (int64_t j = 0; j < seen; j++) x += v[place(&z, m, cols, keys, e, j)] * p[j];
                ref_store(c, y, place(&z, m, cols, rows, e, i), x);
            }
        }
    return AN_OK;
}

an_status ref_attend_back(const run_ctx *c, const insn *in, diag *d)
{
    const int64_t out[] = { insn_t(in, "dq"), insn_t(in, "dk"), insn_t(in, "dv") }, period = insn_i(in, "period");
    const etensor *t = ctx_tensor(c, insn_t(in, "p")), *tq = ctx_tensor(c, insn_t(in, "q")),
                  *tv = ctx_tensor(c, insn_t(in, "v"));
    const stacked z = { .stacks = dims_product(t->dim, 0, t->rank - 2), .apart = insn_i(in, "apart") };
    const int64_t rows = t->dim[t->rank - 2], keys = t->dim[t->rank - 1], width = tq->dim[z.apart ? 1 : tq->rank - 2],
                  cols = tv->dim[z.apart ? 1 : tv->rank - 2];
    double *p = ref_load(c, insn_t(in, "p"), d), *q = ref_load(c, insn_t(in, "q"), d),
           *k = ref_load(c, insn_t(in, "k"), d), *v = ref_load(c, insn_t(in, "v"), d);
    double *dy = ref_load(c, insn_t(in, "dy"), d), *s = ref_take(c, rows * keys, d), *dk = ref_take(c, width * keys, d),
           *dv = ref_take(c, cols * keys, d);
    if (!p || !q || !k || !v || !dy || !s || !dk || !dv) return d->st;
    for (int64_t m = 0; m < z.stacks; m++) {
        const double *pm = p + m * rows * keys;
        memset(dk, 0, sizeof *dk * (size_t)(width * keys)), memset(dv, 0, sizeof *dv * (size_t)(cols * keys));
        for (int64_t i = 0; i < rows; i++) {
            const int64_t seen = period ? i % period + 1 : keys;
            double *row = s + i * keys, sum = 0;
            for (int64_t j = 0; j < seen; j++) {
                row[j] = 0;
                for (int64_t e = 0; e < cols; e++)
                    row[j] += dy[place(&z, m, cols, rows, e, i)] * v[place(&z, m, cols, keys, e, j)];
                sum += row[j] * pm[i * keys + j];
            }
            for (int64_t j = 0; j < seen; j++) {
                row[j] = pm[i * keys + j] * (row[j] - sum);
                for (int64_t e = 0; e < width; e++) dk[e * keys + j] += q[place(&z, m, width, rows, e, i)] * row[j];
                for (int64_t e = 0; e < cols; e++)
                    dv[e * keys + j] += dy[place(&z, m, cols, rows, e, i)] * pm[i * keys + j];
            }
            for (int64_t e = 0; e < width; e++) {
                double x = 0;
                for (int64_t j = 0; j < seen; j++) x += k[place(&z, m, width, keys, e, j)] * row[j];
                ref_store(c, out[0], place(&z, m, width, rows, e, i), x);
            }
        }
        for (int64_t e = 0; e < width * keys; e++)
            ref_store(c, out[1], place(&z, m, width, keys, e / keys, e % keys), dk[e]);
        for (int64_t e = 0; e < cols * keys; e++)
            ref_store(c, out[2], place(&z, m, cols, keys, e / keys, e % keys), dv[e]);
    }
    return AN_OK;
}

an_status ref_attend_at(const run_ctx *c, const insn *in, diag *d)
{
    double *pos = ref_load(c, insn_t(in, "pos"), d);
    return pos ? attend(c, in, -1, false, pos, insn_i(in, "window"), insn_i(in, "turned"), d) : d->st;
}
