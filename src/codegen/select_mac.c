/* select_mac.c: products and windows: conv, conv_transpose, linear, matmul, einsum, attention, pooling.
 *
 * A missing height is an axis of one. The depth of a convolution joins the channels: the planes a kernel reads are
 * laid out beside each other as channels (ci, kd), which is the order [Cout, Cin, kD, kH, kW] already has them in,
 * and depth itself joins the batch; the same products in the same order, in the form that has fast kernels. */
#include <math.h>

#include "codegen/codegen_int.h"

/* ---- windows ---- */

typedef struct {
    int n; /* spatial axes */
    int64_t in[MAX_RANK], out[MAX_RANK], k[MAX_RANK], stride[MAX_RANK], dil[MAX_RANK], before[MAX_RANK],
        after[MAX_RANK];
} window;

enum { PAD_VALID, PAD_SAME, PAD_SAME_LOWER, PAD_CUSTOM };

static bool window_steps(cg *c, window *w, const shape *in, const shape *out, bool dilated)
{
    w->n = in->rank - 2;
    for (int i = 0; i < w->n; i++) w->in[i] = in->d[i + 2], w->out[i] = out->d[i + 2], w->dil[i] = 1;
    return cg_list(c, A_STRIDES, w->n, w->stride) && (!dilated || cg_list(c, A_DILATIONS, w->n, w->dil));
}

/* `wide` is the side the window slides over, `narrow` the side with one place per window. "same" pads just enough
 * for the narrow side; an odd one goes after, or before for same_lower. */
static bool window_pad(cg *c, window *w, const int64_t *wide, const int64_t *narrow)
{
    static const char *const types[] = { "valid", "same", "same_lower", "custom" };
    int type;
    int64_t pad[2 * MAX_RANK] = { 0 };
    if (!cg_word(c, A_PAD_TYPE, types, COUNT(types), &type)) return false;
    if (type == PAD_CUSTOM && !cg_list(c, A_PAD, 2 * w->n, pad)) return false;
    for (int i = 0; i < w->n; i++) {
        int64_t reach = (w->k[i] - 1) * w->dil[i] + 1,
                total = MAX((int64_t)0, (narrow[i] - 1) * w->stride[i] + reach - wide[i]);
        if (type == PAD_SAME) pad[2 * i] = total / 2, pad[2 * i + 1] = total - total / 2;
        if (type == PAD_SAME_LOWER) pad[2 * i] = total - total / 2, pad[2 * i + 1] = total / 2;
        w->before[i] = pad[2 * i], w->after[i] = pad[2 * i + 1];
    }
    return true;
}

/* Two axes at least: one that is not there is one place. */
static void put_window(cg *c, ins *n, const window *w, bool dilated)
{
    int64_t s[MAX_RANK] = { 1 }, p[2 * MAX_RANK] = { 0 }, d[MAX_RANK] = { 1 };
    int m = MAX(w->n, 2), lead = m - w->n;
    for (int i = 0; i < w->n; i++) {
        s[lead + i] = w->stride[i], d[lead + i] = w->dil[i];
        p[2 * (lead + i)] = w->before[i], p[2 * (lead + i) + 1] = w->after[i];
    }
    cg_is(c, n, s, m);
    cg_is(c, n, p, 2 * m);
    if (dilated) cg_is(c, n, d, m);
}

static shape planes(int64_t n, int64_t ch, const int64_t *spatial, int n_spatial)
{
    shape s = { .rank = 2, .d = { n, ch } };
    if (n_spatial == 1) s.d[s.rank++] = 1;
    for (int i = 0; i < n_spatial; i++) s.d[s.rank++] = spatial[i];
    return s;
}

/* y = acc + bias[channel], where the op itself has one. */
static void put_bias(cg *c, ins *n, int bias, dtype dt)
{
    if (bias < 0 || !n) return;
    int b = cg_ext(c, n, bias);
    cg_step(c, n, FN_ADD, 0, b, NONE, NULL, dt);
}

static int conv_insn(cg *c, insn_id op, const window *w, int y, int x, int wt, int bias)
{
    if (c->err.st) return NONE;
    ins *n = cg_ins(c, op, y, OPS(x, wt));
    put_window(c, n, w, true);
    cg_i(c, n, at_int(c, A_GROUPS));
    if (!c->err.st) put_bias(c, n, bias, c->t.at[y].dt);
    return y;
}

/* The planes each output plane reads, as channels: [N, OD, Cin, kD, H, W], zero where the window hangs over. */
static int depth_columns(cg *c, int x, const window *w, int64_t batch, int64_t cin)
{
    if (c->err.st) return NONE;
    int64_t hw = w->in[1] * w->in[2], kd = w->k[0], od = w->out[0], D = w->in[0];
    int cols = cg_tensor(c, c->t.at[x].dt, SH(batch * od, cin * kd, w->in[1], w->in[2]));
    if (w->before[0] || w->after[0]) cg_fill(c, cols, 0);
    for (int64_t k = 0; k < kd; k++) {
        int64_t off = k * w->dil[0] - w->before[0], s = w->stride[0], first = off < 0 ? (-off + s - 1) / s : 0;
        int64_t last = D - 1 - off < 0 ? -1 : MIN(od - 1, (D - 1 - off) / s);
        if (last < first) continue;
        int64_t d[4] = { batch, last - first + 1, cin, hw }, to[4] = { od * cin * kd * hw, cin * kd * hw, kd * hw, 1 };
        int64_t from[4] = { cin * D * hw, s * hw, D * hw, 1 };
        cg_move(c, cols, x, 4, d, first * to[1] + k * hw, to, (first * s + off) * hw, from, false);
    }
    return cols;
}

void select_conv(cg *c)
{
    const shape *xs = &cg_in_type(c, 0)->sh, *ws = &cg_in_type(c, 1)->sh, *o = &cg_out_type(c, 0)->sh;
    window w = { 0 };
    if (!window_steps(c, &w, xs, o, true)) return;
    for (int i = 0; i < w.n; i++) w.k[i] = ws->d[i + 2];
    if (!window_pad(c, &w, w.in, w.out)) return;
    int x = cg_in(c, 0), wt = cg_in(c, 1), bias = have(c, 2) ? cg_channel(c, cg_in(c, 2), 4) : NONE;
    dtype dt = cg_dt(c, cg_out_type(c, 0)->dt);
    int64_t batch = xs->d[0], cin = xs->d[1], cout = ws->d[0];
    if (w.n <= 2) {
        shape x4 = planes(batch, cin, w.in, w.n), w4 = planes(cout, ws->d[1], w.k, w.n),
              y4 = planes(batch, cout, w.out, w.n);
        cg_set(c, 0, conv_insn(c, IN_CONV, &w, cg_tensor(c, dt, &y4), cg_view(c, x, &x4), cg_view(c, wt, &w4), bias));
        return;
    }
    int cols = depth_columns(c, x, &w, batch, cin);
    wt = cg_view(c, wt, SH(cout, ws->d[1] * w.k[0], w.k[1], w.k[2]));
    int64_t hw = w.out[1] * w.out[2];
    window flat = w;
    int64_t *lists[] = { flat.in, flat.out, flat.k, flat.stride, flat.dil, flat.before, flat.after };
    for (size_t i = 0; i < COUNT(lists); i++) lists[i][0] = lists[i][1], lists[i][1] = lists[i][2];
    flat.n = 2;
    int y =
        conv_insn(c, IN_CONV, &flat, cg_tensor(c, dt, SH(batch * w.out[0], cout, w.out[1], w.out[2])), cols, wt, bias);
    y = cg_permute(c, cg_view(c, y, SH(batch, w.out[0], cout, hw)), (const int[]){ 0, 2, 1, 3 });
    cg_set(c, 0, y);
}

void select_conv_transpose(cg *c)
{
    const shape *xs = &cg_in_type(c, 0)->sh, *ws = &cg_in_type(c, 1)->sh, *o = &cg_out_type(c, 0)->sh;
    window w = { 0 };
    if (!window_steps(c, &w, xs, o, true)) return;
    for (int i = 0; i < w.n; i++) w.k[i] = ws->d[i + 2];
    if (!window_pad(c, &w, w.out, w.in)) return;
    int bias = have(c, 2) ? cg_channel(c, cg_in(c, 2), MAX(xs->rank, 4)) : NONE;
    shape x4 = planes(xs->d[0], xs->d[1], w.in, w.n), w4 = planes(ws->d[0], ws->d[1], w.k, w.n),
          y4 = planes(xs->d[0], o->d[1], w.out, w.n);
    int y = cg_tensor(c, cg_dt(c, cg_out_type(c, 0)->dt), &y4);
    cg_set(c, 0, conv_insn(c, IN_CONV_T, &w, y, cg_view(c, cg_in(c, 0), &x4), cg_view(c, cg_in(c, 1), &w4), bias));
}

/* ---- pooling ---- */

static void pool_op(cg *c, pool_kind kind, bool exclude)
{
    const shape *xs = &cg_in_type(c, 0)->sh, *o = &cg_out_type(c, 0)->sh;
    window w = { 0 };
    if (!window_steps(c, &w, xs, o, false) || !cg_list(c, A_KERNEL_SIZES, w.n, w.k) || !window_pad(c, &w, w.in, w.out))
        return;
    shape x4 = planes(xs->d[0], xs->d[1], w.in, w.n), y4 = planes(xs->d[0], xs->d[1], w.out, w.n),
          k4 = planes(1, 1, w.k, w.n);
    int y = cg_tensor(c, cg_dt(c, cg_out_type(c, 0)->dt), &y4);
    ins *n = cg_ins(c, IN_POOL, y, OPS(cg_view(c, cg_in(c, 0), &x4)));
    cg_is(c, n, k4.d + 2, k4.rank - 2);
    put_window(c, n, &w, false);
    cg_i(c, n, kind);
    cg_i(c, n, exclude);
    cg_set(c, 0, y);
}

void select_avg_pool(cg *c) { pool_op(c, POOL_AVG, at_bool(c, A_EXCLUDE_PADDING)); }
void select_max_pool(cg *c) { pool_op(c, POOL_MAX, false); }
void select_l2_pool(cg *c) { pool_op(c, POOL_L2, false); }

void select_mode_pool(cg *c)
{
    static const char *const modes[] = {
        [POOL_AVG] = "avg", [POOL_MAX] = "max", [POOL_MIN] = "min", [POOL_L1] = "l1", [POOL_L2] = "l2"
    };
    int m;
    if (cg_word(c, A_MODE, modes, COUNT(modes), &m)) pool_op(c, (pool_kind)m, false);
}

/* ---- matrix products ---- */

/* Stacks are cut to what they need: a right operand without one lets the rows of the left one join, leading ones go. */
static int cg_matmul(cg *c, dtype dt, int x, bool tx, int z, bool tz)
{
    if (c->err.st || x < 0 || z < 0) return NONE;
    shape a = *cg_sh(c, x), b = *cg_sh(c, z), sa = shape_of(a.d, a.rank - 2), sb = shape_of(b.d, b.rank - 2), stack, o;
    int64_t m = a.d[a.rank - (tx ? 1 : 2)], k = a.d[a.rank - (tx ? 2 : 1)], n = b.d[b.rank - (tz ? 2 : 1)];
    if (!shape_broadcast(&sa, &sb, &stack)) return cg_fail(c, AN_BUG, "stacks that do not broadcast"), NONE;
    o = stack;
    o.d[o.rank++] = m, o.d[o.rank++] = n;
    int y = cg_tensor(c, dt, &o), vx = x, vy = y, vz = z;
    if (cg_elems(&sb) == 1 && (!tx || cg_elems(&sa) == 1)) {
        int64_t rows = cg_elems(&sa) * m;
        vx = cg_view(c, x, tx ? SH(k, m) : SH(rows, k));
        vz = cg_view(c, z, tz ? SH(n, k) : SH(k, n));
        vy = cg_view(c, y, SH(rows, n));
    } else {
        int drop = 0;
        while (drop < stack.rank && stack.d[drop] == 1) drop++;
        shape ys = shape_of(o.d + drop, o.rank - drop),
              xs = shape_of(a.d + MAX(0, a.rank - ys.rank), MIN(a.rank, ys.rank)),
              zs = shape_of(b.d + MAX(0, b.rank - ys.rank), MIN(b.rank, ys.rank));
        vx = cg_view(c, x, &xs), vz = cg_view(c, z, &zs), vy = cg_view(c, y, &ys);
    }
    ins *i = cg_ins(c, IN_MATMUL, vy, OPS(vx, vz));
    cg_i(c, i, tx);
    cg_i(c, i, tz);
    return y;
}

void select_linear(cg *c) /* y = x W^T + b, W (Dout, Din) */
{
    shape s = cg_in_type(c, 0)->sh;
    if (s.rank == 1) s = SHAPE(1, s.d[0]);
    dtype dt = cg_dt(c, cg_out_type(c, 0)->dt);
    int bias = cg_in(c, 2), y = cg_matmul(c, dt, cg_view(c, cg_in(c, 0), &s), false, cg_in(c, 1), true);
    if (c->err.st) return;
    put_bias(c, &c->ins.at[c->ins.n - 1], bias, dt);
    cg_set(c, 0, y);
}

/* An operand that is only the transpose of something: read that, the other way round. */
static int untransposed(cg *c, int k, bool *flip)
{
    const node *m = graph_maker(c->g, c->at->in[k]);
    int rank = cg_in_type(c, k)->sh.rank;
    if (!c->o.level || m->op != OP_TRANSPOSE || rank < 2) return cg_in(c, k);
    const attr *p = attr_get(m->attrs, m->n_attr, A_PERM);
    for (int i = 0; i < rank; i++) {
        int want = i < rank - 2 ? i : 2 * rank - 3 - i, ax;
        if (!p || p->n != rank || !axis_norm(p->u.is[i], rank, &ax) || ax != want) return cg_in(c, k);
    }
    *flip = !*flip;
    return c->of[m->in[0].i];
}

void select_matmul(cg *c)
{
    bool tx = at_bool(c, A_TRANSPOSE_X), tz = at_bool(c, A_TRANSPOSE_Y);
    int x = untransposed(c, 0, &tx), z = untransposed(c, 1, &tz);
    if (c->err.st) return;
    if (cg_sh(c, x)->rank == 1) x = cg_view(c, x, SH(1, cg_sh(c, x)->d[0])); /* a vector is a row on the left */
    /* and a column on the right */
    if (!c->err.st && cg_sh(c, z)->rank == 1) z = cg_view(c, z, SH(cg_sh(c, z)->d[0], 1));
    cg_set(c, 0, cg_matmul(c, cg_dt(c, cg_out_type(c, 0)->dt), x, tx, z, tz));
}

/* ---- contractions ---- */

static const char *find(const char *s, char ch)
{
    return ch ? strchr(s, ch) : NULL;
}

/* Does `labels` list the letters of a, then those of b, then those of e? */
static bool in_order(const char *labels, const char *a, const char *b, const char *e)
{
    size_t na = strlen(a), nb = strlen(b), ne = strlen(e);
    return strlen(labels) == na + nb + ne && !strncmp(labels, a, na) && !strncmp(labels + na, b, nb) &&
           !strncmp(labels + na + nb, e, ne);
}

static int64_t extent_of(const cg *c, int x, const char *lx, int z, const char *lz, char ch)
{
    const char *p = find(lx, ch);
    return p ? cg_sh(c, x)->d[p - lx] : cg_sh(c, z)->d[find(lz, ch) - lz];
}

/* An operand as [batch.., rows, cols] with rows and cols joined; copied into order only when it is in neither. */
static int oriented(cg *c, int t, const char *l, const char *batch, const char *rows, const char *cols, bool *trans)
{
    *trans = false;
    if (c->err.st || t < 0) return NONE;
    if (in_order(l, batch, cols, rows) && *rows && *cols) *trans = true;
    else if (!in_order(l, batch, rows, cols)) {
        char want[3 * MAX_RANK + 1];
        int perm[MAX_RANK], n = snprintf(want, sizeof want, "%s%s%s", batch, rows, cols);
        for (int i = 0; i < n; i++) perm[i] = (int)(find(l, want[i]) - l);
        t = cg_permute(c, t, perm);
        if (t < 0) return NONE;
    }
    shape s = *cg_sh(c, t), o = shape_of(s.d, (int)strlen(batch));
    int nb = o.rank, first = (int)strlen(*trans ? cols : rows);
    o.d[o.rank++] = cg_prod(s.d, nb, nb + first);
    o.d[o.rank++] = cg_prod(s.d, nb + first, s.rank);
    return cg_view(c, t, &o);
}

static int einsum_insn(cg *c, dtype dt, int x, const char *lx, int z, const char *lz, const char *ly)
{
    shape o = { 0 };
    for (const char *p = ly; *p; p++) o.d[o.rank++] = extent_of(c, x, lx, z, lz, *p);
    int y = cg_tensor(c, dt, &o);
    ins *n = cg_ins(c, IN_EINSUM, y, OPS(x, z));
    const char *const lists[] = { ly, lx, lz };
    for (int k = 0; k < 3; k++) {
        cg_i(c, n, (int64_t)strlen(lists[k]));
        for (const char *p = lists[k]; *p; p++) cg_i(c, n, *p - 'A'); /* below 64 */
    }
    return y;
}

/* Labels that only this operand has and the result lacks are summed first, in fp32; the plain processor alone leaves
 * the order open. */
static int sum_own(cg *c, int x, const char *lx, const char *lz, const char *ly, char *left)
{
    int64_t axes[MAX_RANK];
    shape o = { 0 }, keep = *cg_sh(c, x);
    int n = 0;
    for (int i = 0; lx[i]; i++) {
        if (find(lz, lx[i]) || find(ly, lx[i])) left[o.rank] = lx[i], o.d[o.rank++] = keep.d[i];
        else axes[n++] = i, keep.d[i] = 1;
    }
    left[o.rank] = 0;
    if (!n) return x;
    int y = cg_tensor(c, cg_wide(c->t.at[x].dt), &keep);
    ins *k = cg_ins(c, IN_REDUCE, y, OPS(x));
    cg_is(c, k, axes, n);
    cg_i(c, k, RED_SUM);
    return cg_view(c, y, &o);
}

/* An operand in the order of the result's labels, with extents of one where it lacks one. */
static int spread(cg *c, int x, const char *lx, const char *ly)
{
    int perm[MAX_RANK], n = 0;
    shape o = { .rank = (int)strlen(ly) };
    for (int i = 0; ly[i]; i++) {
        const char *p = find(lx, ly[i]);
        o.d[i] = p ? cg_sh(c, x)->d[p - lx] : 1;
        if (p) perm[n++] = (int)(p - lx);
    }
    return cg_view(c, cg_permute(c, x, perm), &o);
}

static int multiply(cg *c, dtype dt, int x, const char *lx, int z, const char *lz, const char *ly)
{
    shape o = { .rank = (int)strlen(ly) };
    for (int i = 0; ly[i]; i++) o.d[i] = extent_of(c, x, lx, z, lz, ly[i]);
    int a = spread(c, x, lx, ly), b = spread(c, z, lz, ly);
    return cg_ew(c, dt, &o, FN_MUL, OPS(a, b), NULL);
}

int cg_contract(cg *c, dtype dt, int x, const char *lx, int z, const char *lz, const char *ly)
{
    char batch[MAX_RANK + 1] = "", m[MAX_RANK + 1] = "", n[MAX_RANK + 1] = "", k[MAX_RANK + 1] = "";
    bool plain = true, tx, tz;
    if (c->err.st || x < 0 || z < 0) return NONE;
    for (const char *p = ly; *p; p++) {
        char *to = find(lx, *p) && find(lz, *p) ? batch : find(lx, *p) ? m : n;
        to[strlen(to)] = *p;
    }
    for (const char *p = lx; *p; p++)
        if (!find(ly, *p)) {
            if (find(lz, *p)) k[strlen(k)] = *p;
            else plain = false; /* a letter of one operand, summed */
        }
    for (const char *p = lz; *p; p++) plain = plain && (find(ly, *p) || find(lx, *p));
    bool floats = dtype_is_float(dt) && dtype_is_float(c->t.at[x].dt) && dtype_is_float(c->t.at[z].dt);
    if (!plain && !c->soft && floats) {
        char own_x[MAX_RANK + 1], own_z[MAX_RANK + 1];
        int a = sum_own(c, x, lx, lz, ly, own_x), b = sum_own(c, z, lz, lx, ly, own_z);
        return cg_contract(c, dt, a, own_x, b, own_z, ly);
    }
    if (plain && !*k && !c->soft && floats) return multiply(c, dt, x, lx, z, lz, ly);
    /* one row or column, one lane: no matrix */
    if (!plain || (!*k && (!*m || !*n)) || strlen(batch) + 2 > ENGINE_MAX_RANK)
        return einsum_insn(c, dt, x, lx, z, lz, ly);
    /* the other way round needs no copy */
    if (*m && *n && in_order(ly, batch, n, m)) return cg_contract(c, dt, z, lz, x, lx, ly);
    int a = oriented(c, x, lx, batch, m, k, &tx), b = oriented(c, z, lz, batch, k, n, &tz),
        y = cg_matmul(c, dt, a, tx, b, tz);
    if (y < 0) return NONE;
    char have_order[3 * MAX_RANK + 1];
    snprintf(have_order, sizeof have_order, "%s%s%s", batch, m, n);
    shape s = { 0 };
    int perm[MAX_RANK];
    for (const char *p = have_order; *p; p++) s.d[s.rank++] = extent_of(c, x, lx, z, lz, *p);
    for (int i = 0; i < s.rank; i++) perm[i] = (int)(find(have_order, ly[i]) - have_order);
    return cg_permute(c, cg_view(c, y, &s), perm);
}

void select_einsum(cg *c)
{
    const char *p = at_str(c, A_EQUATION);
    char label[3][MAX_RANK + 1] = { "" };
    for (int k = 0, n = 0; *p; p++) {
        if (*p == ',' || (*p == '-' && p[1] == '>')) {
            if (*p == '-') p++;
            k++, n = 0;
        } else if (*p != ' ' && k < 3 && n < MAX_RANK) label[k][n++] = *p;
    }
    cg_set(c, 0,
           cg_contract(c, cg_dt(c, cg_out_type(c, 0)->dt), cg_in(c, 0), label[0], cg_in(c, 1), label[1], label[2]));
}

/* ---- attention ---- */

/* Devices that round each pass run it as the passes it is; otherwise one instruction that never holds all the
 * scores. */
int cg_attend(cg *c, dtype dt, int q, int k, int v, int mask, bool causal, double scale, const shape *ysh)
{
    if (c->err.st || q < 0) return NONE;
    if (!c->soft) {
        int y = cg_tensor(c, dt, ysh);
        ins *n = cg_ins(c, IN_ATTEND, y, OPS(q, k, v, mask));
        cg_f(n, scale);
        cg_i(c, n, causal);
        return y;
    }
    int by = cg_scalar(c, DT_F32, scale), s = cg_matmul(c, dt, q, false, k, true);
    ins *last = c->err.st ? NULL : &c->ins.at[c->ins.n - 1];
    int b = cg_ext(c, last, by);
    cg_step(c, last, FN_MUL, 0, b, NONE, NULL, dt); /* a constant gain is part of the pass */
    if (c->err.st) return NONE;
    shape scores = *cg_sh(c, s);
    if (mask >= 0) s = cg_ew(c, dt, &scores, FN_ADD, OPS(s, mask), NULL);
    int p = cg_tensor(c, dt, &scores);
    cg_i(c, cg_ins(c, IN_SOFTMAX, p, OPS(s)), scores.rank - 1);
    return cg_matmul(c, dt, p, false, v, false);
}

int cg_attend_at(cg *c, dtype dt, int q, int k, int v, int pos, int64_t last, bool turned, double scale,
                 const shape *ysh)
{
    if (c->err.st || q < 0) return NONE;
    int y = cg_tensor(c, dt, ysh);
    ins *n = cg_ins(c, IN_ATTEND_AT, y, OPS(q, k, v, pos));
    cg_f(n, scale);
    cg_i(c, n, last);
    cg_i(c, n, turned);
    return y;
}

void select_sdpa(cg *c)
{
    int q = cg_in(c, 0), k = cg_in(c, 1), v = cg_in(c, 2), mask = cg_in(c, 3);
    dtype dt = cg_dt(c, cg_out_type(c, 0)->dt);
    if (c->err.st) return;
    const shape *qs = &cg_in_type(c, 0)->sh, *ks = &cg_in_type(c, 1)->sh;
    /* one number for one query is for all its keys, and not the first row of a triangle */
    bool causal = mask >= 0 && ks->d[ks->rank - 2] == qs->d[qs->rank - 2] &&
                  match_causal(c, c->at->in[3], qs->d[qs->rank - 2]);
    if (causal) match_take_causal(c, c->at->in[3]), mask = NONE;
    /* a chip adds: what is admitted adds nothing, the rest ends it. attend reads it as it is */
    if (mask >= 0 && c->soft && c->t.at[mask].dt == DT_BOOL) {
        shape s = *cg_sh(c, mask);
        mask = cg_ew(c, dt, &s, FN_SELECT, OPS(mask, cg_scalar(c, dt, 0), cg_scalar(c, dt, -INFINITY)), NULL);
    }
    const double width = (double)qs->d[qs->rank - 1];
    cg_set(c, 0, cg_attend(c, dt, q, k, v, mask, causal, 1 / sqrt(width), &cg_out_type(c, 0)->sh));
}
