/* eval_mac.c: products and windows: conv, conv_transpose, linear, matmul, einsum, attention, pooling.
 * In: an eval_ctx.  Out: one result. Layout is N, C, then 1 to 6 spatial axes.
 *
 * A convolution is written as what it is: copy every shifted view of the input into the rows of a matrix (zero where
 * the window hangs over the edge), then one matrix product. Its transpose is the same two steps backwards: product,
 * then add every row back where it came from. */
#include <math.h>

#include "graph/eval_int.h"

/* ---- where a sliding window falls ---- */

typedef struct {
    int n; /* spatial axes */
    int64_t in[MAX_RANK], out[MAX_RANK], k[MAX_RANK], stride[MAX_RANK], dil[MAX_RANK], before[MAX_RANK],
        after[MAX_RANK];
} window;

enum { PAD_VALID, PAD_SAME, PAD_SAME_LOWER, PAD_CUSTOM };

/* `wide` is the side the window slides over, `narrow` the side with one place per window: in and out for conv, the
 * other way round for its transpose. "same" pads just enough for narrow windows; an odd one goes after, or before
 * for same_lower. */
static an_status window_pad(const eval_ctx *c, window *w, const int64_t *wide, const int64_t *narrow)
{
    static const char *const types[] = { "valid", "same", "same_lower", "custom" };
    int type;
    TRY(at_mode(c, A_PAD_TYPE, types, COUNT(types), &type));
    int64_t pad[2 * MAX_RANK] = { 0 };
    if (type == PAD_CUSTOM) TRY(at_ints(c, A_PAD, 2 * w->n, pad));
    for (int i = 0; i < w->n; i++) {
        int64_t reach = (w->k[i] - 1) * w->dil[i] + 1;
        int64_t total = MAX((int64_t)0, (narrow[i] - 1) * w->stride[i] + reach - wide[i]);
        if (type == PAD_SAME) pad[2 * i] = total / 2, pad[2 * i + 1] = total - total / 2;
        if (type == PAD_SAME_LOWER) pad[2 * i] = total - total / 2, pad[2 * i + 1] = total / 2;
        w->before[i] = pad[2 * i], w->after[i] = pad[2 * i + 1];
    }
    return AN_OK;
}

static an_status window_steps(const eval_ctx *c, window *w, const shape *in, const shape *out, bool dilated)
{
    w->n = in->rank - 2;
    for (int i = 0; i < w->n; i++) w->in[i] = in->d[i + 2], w->out[i] = out->d[i + 2], w->dil[i] = 1;
    TRY(at_ints(c, A_STRIDES, w->n, w->stride));
    if (dilated) TRY(at_ints(c, A_DILATIONS, w->n, w->dil));
    for (int i = 0; i < w->n; i++)
        if (w->stride[i] < 1 || w->dil[i] < 1) return eval_fail(c, "strides and dilations must be at least 1");
    return AN_OK;
}

/* One channel's shifted views. cols[tap][place] pairs with wide[place * stride + tap * dil - before]; taps and
 * places are row-major. gather: cols = wide (zero outside). scatter: wide += cols (nothing outside). */
static void shift_views(const window *w, const int64_t *wide_d, const int64_t *narrow_d, double *wide, double *cols,
                        bool gather)
{
    int n = w->n, last = n - 1;
    int64_t wide_stride[MAX_RANK], tap[MAX_RANK] = { 0 }, p = 1;
    for (int i = last; i >= 0; i--) wide_stride[i] = p, p *= wide_d[i];
    int64_t taps = dims_prod(w->k, 0, n), rows = dims_prod(narrow_d, 0, last), len = narrow_d[last];
    for (int64_t t = 0; t < taps; t++) {
        int64_t place[MAX_RANK] = { 0 };
        for (int64_t r = 0; r < rows; r++, cols += len) {
            int64_t off = 0;
            bool inside = true;
            for (int i = 0; i < last; i++) {
                int64_t at = place[i] * w->stride[i] + tap[i] * w->dil[i] - w->before[i];
                inside = inside && at >= 0 && at < wide_d[i];
                off += at * wide_stride[i];
            }
            for (int64_t j = 0; inside && j < len; j++) {
                int64_t at = j * w->stride[last] + tap[last] * w->dil[last] - w->before[last];
                if (at < 0 || at >= wide_d[last]) continue;
                if (gather) cols[j] = wide[off + at];
                else wide[off + at] += cols[j];
            }
            for (int i = last - 1; i >= 0; i--) {
                if (++place[i] < narrow_d[i]) break;
                place[i] = 0;
            }
        }
        for (int i = last; i >= 0; i--) {
            if (++tap[i] < w->k[i]) break;
            tap[i] = 0;
        }
    }
}

static void add_bias(const eval_ctx *c, int64_t batch, int64_t channels, int64_t places)
{
    if (!has(c, 2)) return;
    int64_t n = t64_elems(&c->in[2]);
    double *y = c->out[0].x;
    for (int64_t b = 0; b < batch; b++)
        for (int64_t ch = 0; ch < channels; ch++)
            for (int64_t j = 0; j < places; j++) *y++ += param_at(&c->in[2], n, ch);
}

static an_status groups_of(const eval_ctx *c, int64_t *groups)
{
    *groups = at_int(c, A_GROUPS);
    int64_t cin = c->in[0].type.sh.d[1], cout = c->out[0].type.sh.d[1];
    if (*groups < 1 || cin % *groups || cout % *groups)
        return eval_fail(c, "groups %lld must divide %lld input and %lld output channels", (long long)*groups,
                         (long long)cin, (long long)cout);
    return AN_OK;
}

an_status eval_conv(eval_ctx *c)
{
    const tensor64 *x = &c->in[0], *wt = &c->in[1]; /* (N, Cin, ...), (Cout, Cin / groups, ...) */
    window w = { 0 };
    int64_t groups;
    TRY(window_steps(c, &w, &x->type.sh, &c->out[0].type.sh, true));
    for (int i = 0; i < w.n; i++) w.k[i] = wt->type.sh.d[i + 2];
    TRY(window_pad(c, &w, w.in, w.out));
    TRY(groups_of(c, &groups));
    int64_t batch = x->type.sh.d[0], cin = x->type.sh.d[1], cout = wt->type.sh.d[0], ci = cin / groups,
            co = cout / groups;
    int64_t si = dims_prod(w.in, 0, w.n), so = dims_prod(w.out, 0, w.n), taps = dims_prod(w.k, 0, w.n), n_cols;
    if (!mul_i64(ci * taps, so, &n_cols)) return diag_nomem(c->d);
    arena_mark m = arena_save(c->mem);
    double *cols = t64_scratch(c, n_cols); /* (ci, taps, so) */
    if (!cols) return diag_nomem(c->d);
    for (int64_t b = 0; b < batch && so > 0; b++)
        for (int64_t g = 0; g < groups; g++) {
            memset(cols, 0, (size_t)n_cols * sizeof *cols);
            for (int64_t ch = 0; ch < ci; ch++)
                shift_views(&w, w.in, w.out, x->x + (b * cin + g * ci + ch) * si, cols + ch * taps * so, true);
            gemm_add(co, so, ci * taps, wt->x + g * co * ci * taps, ci * taps, 1, cols,
                     c->out[0].x + (b * cout + g * co) * so);
        }
    arena_back(c->mem, m);
    add_bias(c, batch, cout, so);
    return AN_OK;
}

an_status eval_conv_transpose(eval_ctx *c)
{
    const tensor64 *x = &c->in[0], *wt = &c->in[1]; /* (N, Cin, ...), (Cin, Cout / groups, ...) */
    window w = { 0 };
    int64_t groups;
    TRY(window_steps(c, &w, &x->type.sh, &c->out[0].type.sh, true));
    for (int i = 0; i < w.n; i++) w.k[i] = wt->type.sh.d[i + 2];
    TRY(window_pad(c, &w, w.out, w.in));
    TRY(groups_of(c, &groups));
    int64_t batch = x->type.sh.d[0], cin = x->type.sh.d[1], cout = c->out[0].type.sh.d[1], ci = cin / groups,
            co = cout / groups;
    int64_t si = dims_prod(w.in, 0, w.n), so = dims_prod(w.out, 0, w.n), taps = dims_prod(w.k, 0, w.n), n_cols;
    if (!mul_i64(co * taps, si, &n_cols)) return diag_nomem(c->d);
    arena_mark m = arena_save(c->mem);
    double *cols = t64_scratch(c, n_cols); /* (co, taps, si) */
    if (!cols) return diag_nomem(c->d);
    for (int64_t b = 0; b < batch && si > 0; b++)
        for (int64_t g = 0; g < groups; g++) {
            memset(cols, 0, (size_t)n_cols * sizeof *cols);
            gemm_add(co * taps, si, ci, wt->x + g * ci * co * taps, 1, co * taps, x->x + (b * cin + g * ci) * si, cols);
            for (int64_t ch = 0; ch < co; ch++)
                shift_views(&w, w.out, w.in, c->out[0].x + (b * cout + g * co + ch) * so, cols + ch * taps * si, false);
        }
    arena_back(c->mem, m);
    add_bias(c, batch, cout, so);
    return AN_OK;
}

/* ---- matrix products ---- */

/* Row-major (k, n) copy of a matrix given by strides. */
static void pack(double *to, const double *from, int64_t k, int64_t n, int64_t row, int64_t col)
{
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j < n; j++) to[i * n + j] = from[i * row + j * col];
}

an_status eval_linear(eval_ctx *c) /* y = x W^T + b, W (Dout, Din) */
{
    const tensor64 *x = &c->in[0], *wt = &c->in[1];
    int64_t dout = wt->type.sh.d[0], din = wt->type.sh.d[1], rows = dims_prod(x->type.sh.d, 0, x->type.sh.rank - 1);
    arena_mark m = arena_save(c->mem);
    double *wT = t64_scratch(c, dout * din);
    if (!wT) return diag_nomem(c->d);
    pack(wT, wt->x, din, dout, 1, din);
    gemm_add(rows, dout, din, x->x, din, 1, wT, c->out[0].x);
    arena_back(c->mem, m);
    int64_t n = has(c, 2) ? t64_elems(&c->in[2]) : 0;
    for (int64_t i = 0; n && i < rows; i++)
        for (int64_t j = 0; j < dout; j++) c->out[0].x[i * dout + j] += param_at(&c->in[2], n, j);
    return AN_OK;
}

/* An operand as a stack of matrices; a vector is a row on the left, a column on the right. */
typedef struct {
    shape batch;
    int64_t rows, cols, row, col; /* extents and strides after transposition */
} matrix;

static matrix as_matrix(const shape *s, bool transpose, bool left)
{
    matrix m = { .batch = *s };
    if (s->rank == 1) {
        m.rows = left ? 1 : s->d[0], m.cols = left ? s->d[0] : 1;
        m.row = m.cols, m.col = 1;
    } else {
        m.rows = s->d[s->rank - 2], m.cols = s->d[s->rank - 1];
        m.row = m.cols, m.col = 1;
        if (transpose) m = (matrix){ *s, m.cols, m.rows, m.col, m.row };
    }
    m.batch.rank = MAX(0, s->rank - 2);
    return m;
}

/* Strides of a stack walked as the broadcast stack, in elements of the operand. */
static void stack_strides(const matrix *m, const shape *stack, int64_t *stride)
{
    bcast_strides(&m->batch, stack, stride);
    for (int i = 0; i < stack->rank; i++) stride[i] *= m->rows * m->cols;
}

an_status eval_matmul(eval_ctx *c)
{
    const tensor64 *x = &c->in[0], *y = &c->in[1];
    matrix a = as_matrix(&x->type.sh, at_bool(c, A_TRANSPOSE_X), true),
           b = as_matrix(&y->type.sh, at_bool(c, A_TRANSPOSE_Y), false);
    shape stack;
    if (a.cols != b.rows || !shape_broadcast(&a.batch, &b.batch, &stack))
        return eval_fail(c, "inner sizes %lld and %lld or the batch axes do not match", (long long)a.cols,
                         (long long)b.rows);
    int64_t sa[MAX_RANK], sb[MAX_RANK];
    stack_strides(&a, &stack, sa);
    stack_strides(&b, &stack, sb);
    arena_mark m = arena_save(c->mem);
    double *packed = t64_scratch(c, b.rows * b.cols), *z = c->out[0].x;
    if (!packed) return diag_nomem(c->d);
    walk w;
    walk_init(&w, stack.d, stack.rank);
    walk_add(&w, sa, 0), walk_add(&w, sb, 0);
    for (walk_start(&w); w.more; walk_row(&w))
        for (int64_t j = 0; j < w.len; j++, z += a.rows * b.cols) {
            const double *xa = x->x + w.off[0] + j * w.step[0], *yb = y->x + w.off[1] + j * w.step[1];
            if (b.col != 1) pack(packed, yb, b.rows, b.cols, b.row, b.col), yb = packed;
            gemm_add(a.rows, b.cols, a.cols, xa, a.row, a.col, yb, z);
        }
    arena_back(c->mem, m);
    return AN_OK;
}

/* ---- einsum: loop over every label, output labels outside, summed labels inside ---- */

enum { MAX_TERMS = 16, MAX_LABELS = 52 };
typedef struct {
    int n_label, n_term, n_out;        /* the first n_out labels are the result's, in order */
    char name[MAX_LABELS];
    int64_t d[MAX_LABELS], stride[MAX_TERMS][MAX_LABELS];
    char term[MAX_TERMS][MAX_RANK + 1], out[MAX_RANK + 1];
} einsum;

static bool is_label(char ch) { return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z'); }

static int find_label(const einsum *e, char ch)
{
    for (int i = 0; i < e->n_label; i++)
        if (e->name[i] == ch) return i;
    return -1;
}

static an_status einsum_read(const eval_ctx *c, einsum *e)
{
    const char *eq = attr_str(c->op, c->attrs, c->n_attr, A_EQUATION), *p = eq;
    bool arrow = false;
    int len = 0;
    for (e->n_term = 1; *p; p++) {
        char *to = arrow ? e->out : e->term[e->n_term - 1];
        if (*p == ' ') continue;
        if (p[0] == '-' && p[1] == '>' && !arrow) p++, arrow = true, len = 0;
        else if (*p == ',' && !arrow && e->n_term < MAX_TERMS) e->n_term++, len = 0;
        else if (is_label(*p) && len < MAX_RANK) to[len++] = *p;
        else return eval_fail(c, "equation \"%s\" is not understood at \"%s\"", eq, p);
    }
    if (e->n_term != c->n_in) return eval_fail(c, "equation \"%s\" names %d operands, got %d", eq, e->n_term, c->n_in);
    if (arrow) return AN_OK;
    len = 0;
    for (char ch = 'A'; ch <= 'z'; ch++) { /* no result given: labels that occur once, in alphabetical order */
        int seen = 0;
        for (int t = 0; t < e->n_term; t++)
            for (const char *q = e->term[t]; *q; q++) seen += *q == ch;
        if (seen == 1 && len < MAX_RANK) e->out[len++] = ch;
    }
    return AN_OK;
}

static an_status einsum_bind(const eval_ctx *c, einsum *e)
{
    const char *eq = attr_str(c->op, c->attrs, c->n_attr, A_EQUATION);
    for (const char *q = e->out; *q; q++) {
        if (find_label(e, *q) >= 0) return eval_fail(c, "equation \"%s\" repeats '%c' in the result", eq, *q);
        e->name[e->n_label++] = *q;
    }
    e->n_out = e->n_label;
    for (int i = 0; i < MAX_LABELS; i++) e->d[i] = -1;
    for (int t = 0; t < e->n_term; t++) {
        const shape *s = &c->in[t].type.sh;
        int64_t own[MAX_RANK];
        shape_strides(s, own);
        if ((int)strlen(e->term[t]) != s->rank)
            return eval_fail(c, "\"%s\" in \"%s\" stands for an operand of rank %d", e->term[t], eq, s->rank);
        for (int i = 0; i < s->rank; i++) {
            int l = find_label(e, e->term[t][i]);
            if (l < 0) l = e->n_label++, e->name[l] = e->term[t][i];
            if (e->d[l] < 0 || e->d[l] == 1) e->d[l] = s->d[i];
            else if (s->d[i] != 1 && s->d[i] != e->d[l])
                return eval_fail(c, "label '%c' is both %lld and %lld", e->name[l], (long long)e->d[l],
                                 (long long)s->d[i]);
            if (s->d[i] != 1) e->stride[t][l] += own[i]; /* a repeated label walks the diagonal */
        }
    }
    for (int l = 0; l < e->n_out; l++)
        if (e->d[l] < 0) return eval_fail(c, "result label '%c' of \"%s\" is in no operand", e->name[l], eq);
    return AN_OK;
}

/* Next index of labels [from, to); the operands' offsets follow. false: wrapped around. */
static bool einsum_step(const einsum *e, int from, int to, int64_t *idx, int64_t *off)
{
    for (int l = to - 1; l >= from; l--) {
        for (int t = 0; t < e->n_term; t++) off[t] += e->stride[t][l];
        if (++idx[l] < e->d[l]) return true;
        for (int t = 0; t < e->n_term; t++) off[t] -= e->stride[t][l] * e->d[l];
        idx[l] = 0;
    }
    return false;
}

/* Sum over the last summed label, which moves fastest; without one, a single product. */
static double einsum_run(const eval_ctx *c, const einsum *e, const int64_t *off)
{
    bool summed = e->n_label > e->n_out;
    int last = e->n_label - 1;
    int64_t n = summed ? e->d[last] : 1;
    double s = 0;
    if (summed && e->n_term == 2) { /* the usual case, worth a plain loop */
        const double *x = c->in[0].x + off[0], *y = c->in[1].x + off[1];
        int64_t sx = e->stride[0][last], sy = e->stride[1][last];
        for (int64_t j = 0; j < n; j++) s += x[j * sx] * y[j * sy];
        return s;
    }
    for (int64_t j = 0; j < n; j++) {
        double p = 1;
        for (int t = 0; t < e->n_term; t++) p *= c->in[t].x[off[t] + (summed ? j * e->stride[t][last] : 0)];
        s += p;
    }
    return s;
}

an_status eval_einsum(eval_ctx *c)
{
    einsum e = { 0 };
    TRY(einsum_read(c, &e));
    TRY(einsum_bind(c, &e));
    int64_t idx[MAX_LABELS] = { 0 }, off[MAX_TERMS] = { 0 }, n = t64_elems(&c->out[0]);
    for (int64_t i = 0; i < n; i++) {
        double s = 0;
        do s += einsum_run(c, &e, off);
        while (einsum_step(&e, e.n_out, e.n_label - 1, idx, off));
        c->out[0].x[i] = s;
        einsum_step(&e, 0, e.n_out, idx, off);
    }
    return AN_OK;
}

/* ---- attention: softmax(Q K^T / sqrt(E) + mask) V, one (L, S) score matrix per batch entry ---- */

/* A key that a mask leaves out has no effect, whatever its score and its value are. A row without any other has no
 * distribution: it is NaN. */
static bool left_out(double mask, bool admits) { return admits ? mask == 0 : mask == -INFINITY; }

an_status eval_sdpa(eval_ctx *c)
{
    matrix q = as_matrix(&c->in[0].type.sh, false, true), k = as_matrix(&c->in[1].type.sh, true, false),
           v = as_matrix(&c->in[2].type.sh, false, false);
    shape stack = c->out[0].type.sh, scores = stack;
    stack.rank -= 2;
    int64_t rows = q.rows, cols = k.cols, sq[MAX_RANK], sk[MAX_RANK], sv[MAX_RANK], sm[MAX_RANK] = { 0 };
    stack_strides(&q, &stack, sq), stack_strides(&k, &stack, sk), stack_strides(&v, &stack, sv);
    scores.d[scores.rank - 2] = rows, scores.d[scores.rank - 1] = cols;
    bool masked = has(c, 3), admits = masked && c->in[3].type.dt == DT_BOOL;
    if (masked) bcast_strides(&c->in[3].type.sh, &scores, sm);
    arena_mark m = arena_save(c->mem);
    double *kT = t64_scratch(c, q.cols * cols), *att = t64_scratch(c, rows * cols), *z = c->out[0].x,
           scale = 1 / sqrt((double)q.cols);
    if (!kT || !att) return diag_nomem(c->d);
    int64_t idx[MAX_RANK] = { 0 }, oq = 0, ok = 0, ov = 0, om = 0;
    for (int64_t b = 0, n = dims_prod(stack.d, 0, stack.rank); b < n; b++, z += rows * v.cols) {
        pack(kT, c->in[1].x + ok, k.rows, cols, k.row, k.col);
        memset(att, 0, (size_t)(rows * cols) * sizeof *att);
        gemm_add(rows, cols, q.cols, c->in[0].x + oq, q.row, q.col, kT, att);
        for (int64_t i = 0; i < rows; i++) {
            double *line = att + i * cols;
            for (int64_t j = 0; j < cols; j++) {
                line[j] *= scale;
                if (!masked) continue;
                double mask = c->in[3].x[om + i * sm[scores.rank - 2] + j * sm[scores.rank - 1]];
                if (left_out(mask, admits)) line[j] = -INFINITY;
                else if (!admits) line[j] += mask;
            }
            softmax_line(line, cols);
        }
        if (!masked) gemm_add(rows, v.cols, cols, att, cols, 1, c->in[2].x + ov, z);
        for (int64_t i = 0; masked && i < rows; i++)
            for (int64_t l = 0; l < cols; l++) {
                double w = att[i * cols + l], mask = c->in[3].x[om + i * sm[scores.rank - 2] + l * sm[scores.rank - 1]];
                for (int64_t j = 0; !(w == 0 && left_out(mask, admits)) && j < v.cols; j++)
                    z[i * v.cols + j] += w * c->in[2].x[ov + l * v.cols + j];
            }
        for (int i = stack.rank - 1; i >= 0; i--) {
            oq += sq[i], ok += sk[i], ov += sv[i], om += sm[i];
            if (++idx[i] < stack.d[i]) break;
            oq -= sq[i] * stack.d[i], ok -= sk[i] * stack.d[i], ov -= sv[i] * stack.d[i], om -= sm[i] * stack.d[i];
            idx[i] = 0;
        }
    }
    arena_back(c->mem, m);
    return AN_OK;
}

/* ---- pooling ---- */

enum { POOL_AVG, POOL_MAX, POOL_MIN, POOL_L1, POOL_L2 };

/* The part of the window at `at` that lies in x, one box of places: the kernel may be far larger. *declared counts
 * the padding with it, in a double because three long axes are more than 63 bits count. */
static int64_t window_box(const window *w, const int64_t *at, int64_t *first, int64_t *n, double *declared)
{
    int64_t inside = 1;
    *declared = 1;
    for (int i = 0; i < w->n; i++) {
        int64_t begin = at[i] * w->stride[i] - w->before[i];
        first[i] = MAX(begin, 0);
        n[i] = MAX(MIN(begin + w->k[i], w->in[i]) - first[i], 0);
        inside *= n[i];
        *declared *= (double)MAX(MIN(w->k[i], w->in[i] + w->after[i] - begin), 0);
    }
    return inside;
}

/* One output element. Places in the declared padding count as zeros for an average unless excluded; places past it,
 * which only ceil_mode reaches, never count. Padding takes no part in a maximum, a minimum or a norm. */
static double pool_at(const window *w, const double *x, const int64_t *at, int mode, bool exclude)
{
    int64_t tap[MAX_RANK] = { 0 }, first[MAX_RANK], n[MAX_RANK];
    double declared, s = mode == POOL_MAX ? -INFINITY : mode == POOL_MIN ? INFINITY : 0;
    int64_t inside = window_box(w, at, first, n, &declared);
    for (int64_t t = 0; t < inside; t++) {
        int64_t off = 0;
        for (int i = 0; i < w->n; i++) off = off * w->in[i] + first[i] + tap[i];
        double v = x[off];
        if (mode == POOL_AVG) s += v;
        else if (mode == POOL_L1) s += fabs(v);
        else if (mode == POOL_L2) s += v * v;
        else if (isnan(v) || (mode == POOL_MAX ? v > s : v < s)) s = v;
        for (int i = w->n - 1; i >= 0; i--) {
            if (++tap[i] < n[i]) break;
            tap[i] = 0;
        }
    }
    if (mode == POOL_L2) return sqrt(s);
    if (mode != POOL_AVG) return s;
    double count = exclude ? (double)inside : declared;
    return count > 0 ? s / count : 0;
}

static an_status pool(eval_ctx *c, int mode, bool exclude)
{
    const tensor64 *x = &c->in[0];
    window w = { 0 };
    TRY(window_steps(c, &w, &x->type.sh, &c->out[0].type.sh, false));
    TRY(at_ints(c, A_KERNEL_SIZES, w.n, w.k));
    TRY(window_pad(c, &w, w.in, w.out));
    int64_t si = dims_prod(w.in, 0, w.n), so = dims_prod(w.out, 0, w.n), planes = x->type.sh.d[0] * x->type.sh.d[1];
    double *y = c->out[0].x;
    for (int64_t p = 0; p < planes; p++) {
        int64_t at[MAX_RANK] = { 0 };
        for (int64_t j = 0; j < so; j++) {
            *y++ = pool_at(&w, x->x + p * si, at, mode, exclude);
            for (int i = w.n - 1; i >= 0; i--) {
                if (++at[i] < w.out[i]) break;
                at[i] = 0;
            }
        }
    }
    return AN_OK;
}

an_status eval_avg_pool(eval_ctx *c) { return pool(c, POOL_AVG, at_bool(c, A_EXCLUDE_PADDING)); }
an_status eval_max_pool(eval_ctx *c) { return pool(c, POOL_MAX, false); }
an_status eval_l2_pool(eval_ctx *c) { return pool(c, POOL_L2, false); }

an_status eval_mode_pool(eval_ctx *c)
{
    static const char *const modes[] = {
        [POOL_AVG] = "avg", [POOL_MAX] = "max", [POOL_MIN] = "min", [POOL_L1] = "l1", [POOL_L2] = "l2"
    };
    int m;
    TRY(at_mode(c, A_MODE, modes, COUNT(modes), &m));
    return pool(c, m, false);
}
