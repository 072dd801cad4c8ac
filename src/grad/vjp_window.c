/* vjp_window.c: gradients of sliding windows: conv, its transpose, pooling. In: an adj.  Out: its dx. Layout is N,
 * C, then 1 to 3 spatial axes. The wide side is the one the window slides over (conv's input, conv_transpose's
 * result), the narrow side has one place per window.
 *
 * Data. From the narrow side back to the wide one is a transposed convolution, the other way round a convolution:
 * both native. Weights. dW[n][w][tap] = sum over places of narrow[n][place] * wide[w][place * stride + tap *
 * dilation - before]: one cut of one side per tap, all taps side by side as rows of one matrix product. Which side
 * is cut, and along which axis, is grad_conv_form's choice. Samples and groups stand on the batch axis of the
 * product; samples are summed afterwards, so that a single sample's sum is what the multiplier's output limit sees.
 * Pools. Each plane is an image of one channel. What is left of a window's gradient goes back to its places by a
 * convolution with ones or one-hot kernels; an extreme is found by comparing it with what its window was cut from,
 * and nothing is cut along the width. */
#include "grad/grad_int.h"

typedef struct {
    int n; /* spatial axes */
    int64_t wide[MAX_RANK], narrow[MAX_RANK], k[MAX_RANK], stride[MAX_RANK], dil[MAX_RANK], before[MAX_RANK],
        after[MAX_RANK];
    int64_t taps, places; /* products of k and narrow */
} window;

static int64_t reach(const window *w, int i) { return (w->k[i] - 1) * w->dil[i] + 1; }
/* What the last window hangs over the wide side's end; negative: places no window reaches. */
static int64_t overhang(const window *w, int i)
{
    return (w->narrow[i] - 1) * w->stride[i] + reach(w, i) - w->before[i] - w->wide[i];
}

static bool read_window(adj *c, window *w, const shape *wide, const shape *narrow, const int64_t *k)
{
    w->n = wide->rank - 2;
    const char *type = at_s(c, A_PAD_TYPE);
    int64_t pad[2 * MAX_RANK] = { 0 };
    if (strcmp(type, "valid") && strcmp(type, "same") && strcmp(type, "same_lower") && strcmp(type, "custom")) {
        broken(c, "unknown pad_type");
        return false;
    }
    if (!at_l(c, A_STRIDES, w->n, w->stride)) return false;
    for (int i = 0; i < w->n; i++) w->dil[i] = 1;
    if (op_attr_spec(c->n.op, A_DILATIONS) && !at_l(c, A_DILATIONS, w->n, w->dil)) return false;
    if (!strcmp(type, "custom") && !at_l(c, A_PAD, 2 * w->n, pad)) return false;
    for (int i = 0; i < w->n; i++) {
        w->wide[i] = wide->d[i + 2], w->narrow[i] = narrow->d[i + 2], w->k[i] = k[i];
        int64_t total = MAX((int64_t)0, (w->narrow[i] - 1) * w->stride[i] + reach(w, i) - w->wide[i]);
        w->before[i] = !strcmp(type, "same") ? total / 2 : !strcmp(type, "same_lower") ? total - total / 2 : pad[2 * i];
        w->after[i] = pad[2 * i + 1];
        if (!strncmp(type, "same", 4)) w->after[i] = total - w->before[i];
    }
    w->taps = prod(w->k, 0, w->n), w->places = prod(w->narrow, 0, w->n);
    return true;
}

static shape plane(int64_t n, int64_t ch, const int64_t *d, int rank)
{
    shape s = { .rank = rank + 2, .d = { n, ch } };
    for (int i = 0; i < rank; i++) s.d[i + 2] = d[i];
    return s;
}

static void next_tap(const window *w, int64_t *tap)
{
    for (int i = w->n - 1; i >= 0; i--) {
        if (++tap[i] < w->k[i]) return;
        tap[i] = 0;
    }
}

/* ---- from one side to the other ---- */

/* narrow [N, Cn, ...] with weight [Cn, Cw / groups, ...] to the wide side. */
static val to_wide(adj *c, const window *w, val narrow, val weight, int64_t groups)
{
    int64_t pad[2 * MAX_RANK];
    if (c->g->err.st) return NO_VAL;
    for (int i = 0; i < w->n; i++) {
        if (overhang(w, i) + w->wide[i] >= 1) continue; /* else every window lies in the padding: nothing comes back */
        shape s = plane(shape_at(c, narrow).d[0], shape_at(c, weight).d[1] * groups, w->wide, w->n);
        return graph_fill_const(c->g, NULL, typed(c, s), 0);
    }
    for (int i = 0; i < w->n; i++) pad[2 * i] = w->before[i], pad[2 * i + 1] = MAX((int64_t)0, overhang(w, i));
    val v = GA(c->g, CONV_TRANSPOSE, VALS(narrow, weight), AT_LIST(STRIDES, w->stride, w->n),
               AT_LIST(DILATIONS, w->dil, w->n), AT_I(GROUPS, groups), AT_S(PAD_TYPE, "custom"),
               AT_LIST(PAD, pad, 2 * w->n));
    for (int i = 0; i < w->n; i++)
        if (overhang(w, i) < 0) v = pad_axis(c, v, i + 2, 0, -overhang(w, i));
    return v;
}

/* wide [N, Cw, ...] with weight [Cn, Cw / groups, ...] to the narrow side. */
static val to_narrow(adj *c, const window *w, val wide, val weight, int64_t groups)
{
    int64_t pad[2 * MAX_RANK];
    for (int i = 0; i < w->n; i++) pad[2 * i] = w->before[i], pad[2 * i + 1] = MAX((int64_t)0, overhang(w, i));
    return GA(c->g, CONV, VALS(wide, weight), AT_LIST(STRIDES, w->stride, w->n), AT_LIST(DILATIONS, w->dil, w->n),
              AT_I(GROUPS, groups), AT_S(PAD_TYPE, "custom"), AT_LIST(PAD, pad, 2 * w->n));
}

/* ---- weights ---- */

static val join(adj *c, const val *part, int64_t n, int axis)
{
    const attr at = AT_I(AXIS, axis);
    return n == 1 ? part[0] : graph_op(c->g, OP_CONCAT, part, (int)n, &at, 1);
}

/* One cut of v per tap along the spatial axes, which start at `axis`; each is [N, ...] reshaped to `each` and joined
 * along `along`. */
typedef struct {
    int64_t first[MAX_RANK], move[MAX_RANK], step[MAX_RANK], count[MAX_RANK]; /* cut begins at first + tap * move */
} cuts;

static val cut_taps(adj *c, const window *w, val v, int axis, const cuts *k, const shape *each, int along)
{
    val *part = TAKE(c->tmp, val, (size_t)w->taps);
    if (!part) return graph_fail(c->g, AN_NOMEM, "out of memory"), NO_VAL;
    int64_t tap[MAX_RANK] = { 0 }, begin[MAX_RANK] = { 0 }, step[MAX_RANK], count[MAX_RANK];
    if (c->g->err.st) return NO_VAL;
    shape s = shape_at(c, v);
    for (int i = 0; i < s.rank; i++) step[i] = 1, count[i] = s.d[i];
    for (int64_t t = 0; t < w->taps; t++, next_tap(w, tap)) {
        for (int i = 0; i < w->n; i++)
            begin[axis + i] = k->first[i] + tap[i] * k->move[i], step[axis + i] = k->step[i],
                         count[axis + i] = k->count[i];
        part[t] = reshaped(c, cut_axes(c, v, begin, step, count), each);
    }
    return join(c, part, w->taps, along);
}

/* [samples * groups, a, b] summed over samples: [groups, a, b] */
static val sum_samples(adj *c, val v, int64_t samples, int64_t groups, int64_t a, int64_t b)
{
    shape apart = SHAPE(samples, groups * a * b), o = SHAPE(groups, a, b);
    if (samples > 1) v = sum_axes(c, reshaped(c, v, &apart), 1u << 0);
    return reshaped(c, v, &o);
}

/* The narrow side is cut: for stride 1, place q of the wide side meets place q + before - tap * dilation of the
 * narrow one. */
static val weight_by_narrow_cuts(adj *c, const window *w, val wide, val narrow, int64_t n, int64_t groups, int64_t cn,
                                 int64_t cw)
{
    cuts k = { { 0 }, { 0 }, { 0 }, { 0 } };
    int64_t places = prod(w->wide, 0, w->n);
    shape ns = plane(n * groups, cn, w->narrow, w->n), each = SHAPE(n * groups, cn, places),
          ws = SHAPE(n * groups, cw, places);
    val v = reshaped(c, narrow, &ns);
    for (int i = 0; i < w->n; i++) {
        int64_t lead = MAX((int64_t)0, (w->k[i] - 1) * w->dil[i] - w->before[i]);
        int64_t tail = MAX((int64_t)0, w->wide[i] + w->before[i] - w->narrow[i]);
        v = pad_axis(c, v, i + 2, lead, tail);
        k.first[i] = lead + w->before[i], k.move[i] = -w->dil[i], k.step[i] = 1, k.count[i] = w->wide[i];
    }
    val rows = cut_taps(c, w, v, 2, &k, &each, 1); /* [N g, taps cn, places] */
    val d = GA(c->g, MATMUL, VALS(rows, reshaped(c, wide, &ws)), AT_B(TRANSPOSE_Y, true));
    d = sum_samples(c, d, n, groups, w->taps * cn, cw);
    if (w->taps == 1) return d;
    shape apart = SHAPE(groups, w->taps, cn, cw);
    return GA(c->g, TRANSPOSE, VALS(reshaped(c, d, &apart)), AT_IS(PERM, 0, 2, 3, 1));
}

/* The wide side is cut. Channels last: they stand on the width axis, and every cut is along another one. */
static val weight_by_wide_cuts(adj *c, const window *w, val wide, val narrow, int64_t n, int64_t groups, int64_t cn,
                               int64_t cw, bool channels_last)
{
    cuts k = { { 0 }, { 0 }, { 0 }, { 0 } };
    shape ws = plane(n * groups, cw, w->wide, w->n), ns = SHAPE(n * groups, cn, w->places);
    shape each = channels_last ? SHAPE(n * groups, w->places, cw) : SHAPE(n * groups, cw, w->places);
    val v = reshaped(c, wide, &ws);
    for (int i = 0; i < w->n; i++) {
        v = pad_axis(c, v, i + 2, w->before[i], MAX((int64_t)0, overhang(w, i)));
        k.move[i] = w->dil[i], k.step[i] = w->stride[i], k.count[i] = w->narrow[i];
    }
    if (channels_last) {
        int64_t perm[MAX_RANK] = { 0 };
        for (int i = 0; i < w->n; i++) perm[i + 1] = i + 2;
        perm[w->n + 1] = 1;
        v = GA(c->g, TRANSPOSE, VALS(v), AT_LIST(PERM, perm, w->n + 2));
    }
    val rows = cut_taps(c, w, v, channels_last ? 1 : 2, &k, &each, channels_last ? 2 : 1);
    val d = GA(c->g, MATMUL, VALS(reshaped(c, narrow, &ns), rows), AT_B(TRANSPOSE_Y, !channels_last));
    d = sum_samples(c, d, n, groups, cn, w->taps * cw);
    if (w->taps == 1) return d;
    shape apart = SHAPE(groups * cn, w->taps, cw);
    return GA(c->g, TRANSPOSE, VALS(reshaped(c, d, &apart)), AT_IS(PERM, 0, 2, 1));
}

/* [Cn, Cw / groups, kernel...] */
static val weight_gradient(adj *c, const window *w, val wide, val narrow, int64_t groups, const shape *weight)
{
    if (c->g->err.st) return NO_VAL;
    int64_t n = shape_at(c, wide).d[0], cn = weight->d[0] / groups, cw = weight->d[1];
    bool by_narrow = c->o->conv_weight == GRAD_CONV_PATCHES;
    for (int i = 0; i < w->n; i++) by_narrow = by_narrow && w->stride[i] == 1;
    val d = by_narrow ? weight_by_narrow_cuts(c, w, wide, narrow, n, groups, cn, cw)
                      : weight_by_wide_cuts(c, w, wide, narrow, n, groups, cn, cw,
                                            c->o->conv_weight == GRAD_CONV_NO_WIDTH_OFFSET);
    return reshaped(c, d, weight);
}

static void bias_gradient(adj *c)
{
    if (wanted(c, 2)) c->dx[2] = channel_total(c, c->dy[0], &c->y);
}

void vjp_conv(adj *c)
{
    shape x = shape_at(c, c->n.in[0]), k = shape_at(c, c->n.in[1]);
    int64_t groups = at_i(c, A_GROUPS);
    window w = { 0 };
    bias_gradient(c);
    if ((!wanted(c, 0) && !wanted(c, 1)) || !read_window(c, &w, &x, &c->y, k.d + 2)) return;
    val dy = dy_full(c);
    if (wanted(c, 0)) c->dx[0] = to_wide(c, &w, dy, c->n.in[1], groups);
    if (wanted(c, 1)) c->dx[1] = weight_gradient(c, &w, c->n.in[0], dy, groups, &k);
}

void vjp_conv_transpose(adj *c)
{
    shape x = shape_at(c, c->n.in[0]), k = shape_at(c, c->n.in[1]);
    int64_t groups = at_i(c, A_GROUPS);
    window w = { 0 };
    bias_gradient(c);
    if ((!wanted(c, 0) && !wanted(c, 1)) || !read_window(c, &w, &c->y, &x, k.d + 2)) return;
    val dy = dy_full(c);
    if (wanted(c, 0)) c->dx[0] = to_narrow(c, &w, dy, c->n.in[1], groups);
    if (wanted(c, 1)) c->dx[1] = weight_gradient(c, &w, dy, c->n.in[0], groups, &k);
}

/* ---- pooling ---- */

typedef struct {
    window w;
    shape x, y;  /* planes: [N C, 1, ...] */
    shape cell;  /* y, or [N C, 1, places] where its rank is one in which chips broadcast along no second axis */
    val in, dy;  /* as planes */
} pooling;

static bool read_pool(adj *c, pooling *p)
{
    shape x = shape_at(c, c->n.in[0]);
    int64_t k[MAX_RANK];
    if (!at_l(c, A_KERNEL_SIZES, x.rank - 2, k) || !read_window(c, &p->w, &x, &c->y, k)) return false;
    if (p->w.n == 1) { /* a line is an image one pixel high: convolutions of rank 3 are not taken everywhere */
        window *w = &p->w;
        int64_t *const lists[] = { w->wide, w->narrow, w->k, w->stride, w->dil }, *const pads[] = { w->before,
                                                                                                    w->after };
        for (size_t i = 0; i < COUNT(lists); i++) lists[i][1] = lists[i][0], lists[i][0] = 1;
        for (size_t i = 0; i < COUNT(pads); i++) pads[i][1] = pads[i][0], pads[i][0] = 0;
        w->n = 2;
    }
    p->x = plane(x.d[0] * x.d[1], 1, p->w.wide, p->w.n), p->y = plane(x.d[0] * x.d[1], 1, p->w.narrow, p->w.n);
    p->cell = p->w.n < 3 ? p->y : SHAPE(p->y.d[0], 1, p->w.places);
    p->in = reshaped(c, c->n.in[0], &p->x), p->dy = reshaped(c, dy_full(c), &p->y);
    return true;
}

static val whole_window(adj *c, const window *w) /* [1, 1, kernel...] of ones */
{
    shape s = plane(1, 1, w->k, w->n);
    return graph_fill_const(c->g, NULL, typed(c, s), 1);
}

static void finish_pool(adj *c, val planes)
{
    shape x = shape_at(c, c->n.in[0]);
    c->dx[0] = reshaped(c, planes, &x);
}

/* Taps of the window at each narrow place that lie inside: all of them, or only those over x itself. */
static val divided_by_taps(adj *c, const pooling *p, bool over_x)
{
    const window *w = &p->w;
    double *n = TAKE(c->tmp, double, (size_t)w->places);
    if (!n) return graph_fail(c->g, AN_NOMEM, "out of memory"), NO_VAL;
    int64_t at[MAX_RANK] = { 0 };
    bool even = true;
    for (int64_t j = 0; j < w->places; j++) {
        n[j] = 1;
        for (int i = 0; i < w->n; i++) {
            int64_t from = at[i] * w->stride[i] - w->before[i],
                    to = MIN(from + w->k[i], w->wide[i] + (over_x ? 0 : w->after[i]));
            n[j] *= (double)MAX((int64_t)0, to - (over_x ? MAX(from, (int64_t)0) : from));
        }
        /* a window over nothing is 0 and has no gradient: its taps are dropped on the way back */
        n[j] = MAX(n[j], 1.0);
        even = even && n[j] == n[0];
        for (int i = w->n - 1; i >= 0; i--) {
            if (++at[i] < w->narrow[i]) break;
            at[i] = 0;
        }
    }
    if (even) return over_count(c, p->dy, (int64_t)n[0]);
    shape s = plane(1, 1, w->narrow, w->n);
    return quo(c, p->dy, graph_const_f64(c->g, NULL, typed(c, s), n));
}

/* [taps, 1, kernel...]: row t is 1 at tap t. */
static val one_hot_taps(adj *c, const window *w)
{
    double *x = TAKE(c->tmp, double, (size_t)(w->taps * w->taps));
    if (!x) return graph_fail(c->g, AN_NOMEM, "out of memory"), NO_VAL;
    for (int64_t t = 0; t < w->taps; t++) x[t * w->taps + t] = 1;
    shape s = plane(w->taps, 1, w->k, w->n);
    return graph_const_f64(c->g, NULL, typed(c, s), x);
}

/* [depth, narrow]: 1 where tap t of a window, or any of the n from there on, lies over the plane. */
static val planes_under(adj *c, const window *w, int64_t t, int64_t n)
{
    double *x = TAKE(c->tmp, double, (size_t)(w->wide[0] * w->narrow[0]));
    if (!x) return graph_fail(c->g, AN_NOMEM, "out of memory"), NO_VAL;
    for (int64_t j = 0; j < w->narrow[0]; j++)
        for (int64_t k = t; k < t + n; k++) {
            int64_t q = j * w->stride[0] + k - w->before[0];
            if (q >= 0 && q < w->wide[0]) x[q * w->narrow[0] + j] = 1;
        }
    return graph_const_f64(c->g, NULL, TTYPE(c->dt, w->wide[0], w->narrow[0]), x);
}

/* [N C, 1 or taps, narrow...] to [N C, 1, wide...]: every tap to its place, or each number to all of its window. A
 * transposed convolution does it; chips have none of three axes, so there it goes plane by plane, and planes by a
 * product with who lies over whom. */
static val pool_to_wide(adj *c, const pooling *p, val narrow, bool each)
{
    const window *w = &p->w;
    if (w->n < 3) return to_wide(c, w, narrow, each ? one_hot_taps(c, w) : whole_window(c, w), 1);
    window flat = { .n = 2, .taps = w->k[1] * w->k[2], .places = w->narrow[1] * w->narrow[2] };
    for (int i = 0; i < 2; i++)
        flat.wide[i] = w->wide[i + 1], flat.narrow[i] = w->narrow[i + 1], flat.k[i] = w->k[i + 1],
        flat.stride[i] = w->stride[i + 1], flat.dil[i] = w->dil[i + 1], flat.before[i] = w->before[i + 1],
        flat.after[i] = w->after[i + 1];
    const int64_t all = p->x.d[0], deep = each ? w->k[0] : 1, ch = each ? flat.taps : 1;
    shape apart = SHAPE(all, ch * deep, w->narrow[0], flat.places), one = plane(all * w->narrow[0], ch, flat.narrow, 2),
          lines = SHAPE(all, w->narrow[0], flat.wide[0] * flat.wide[1]);
    val v = reshaped(c, narrow, &apart), weight = each ? one_hot_taps(c, &flat) : whole_window(c, &flat), sum = NO_VAL;
    for (int64_t t = 0; t < deep && !c->g->err.st; t++) {
        const int64_t begin[] = { 0, t * ch, 0, 0 }, step[] = { 1, 1, 1, 1 },
                      count[] = { all, ch, w->narrow[0], flat.places };
        val part = deep == 1 ? v : cut_axes(c, v, begin, step, count);
        part = GA(c->g, TRANSPOSE, VALS(part), AT_IS(PERM, 0, 2, 1, 3));
        part = reshaped(c, to_wide(c, &flat, reshaped(c, part, &one), weight, 1), &lines);
        part = along_axis(c, part, 1, planes_under(c, w, t, each ? 1 : w->k[0]), w->wide[0]);
        sum = sum.i ? add(c, sum, part) : part;
    }
    return sum.i ? reshaped(c, sum, &p->x) : NO_VAL;
}

static void average(adj *c, bool exclude)
{
    pooling p = { 0 };
    if (read_pool(c, &p)) finish_pool(c, pool_to_wide(c, &p, divided_by_taps(c, &p, exclude), false));
}

void vjp_avg_pool(adj *c) { average(c, at_b(c, A_EXCLUDE_PADDING)); }

/* A result is compared with the elements of its window as it is: copied by a product it would come back rounded to
 * bf16 where products are of bf16, and infinite from a chip whose products end at 32768, and be equal to nothing. */

/* Windows that lie side by side and cover x: the last two axes are split into windows and places within one. A third
 * would make ranks that chips refuse: its planes lie one behind the other, and a window's number is there once for
 * each of its planes. */
typedef struct {
    shape in, out;     /* [N C D, windows, places, windows, places], [N C D, windows, 1, windows, 1] */
    shape thin, stack; /* [N C windows of D, 1 and places, windows of the others] */
    bool deep;
} tiling;

static val to_planes(adj *c, const tiling *t, val v)
{
    return reshaped(c, t->deep ? full(c, reshaped(c, v, &t->thin), &t->stack) : v, &t->out);
}

static val extreme_apart(adj *c, const pooling *p)
{
    const window *w = &p->w;
    const int i = w->n - 2; /* of the last two axes */
    const int64_t outer = p->x.d[0] * (i ? w->narrow[0] : 1), deep = i ? w->k[0] : 1;
    const tiling t = { .in = SHAPE(outer * deep, w->narrow[i], w->k[i], w->narrow[i + 1], w->k[i + 1]),
                       .out = SHAPE(outer * deep, w->narrow[i], 1, w->narrow[i + 1], 1),
                       .thin = SHAPE(outer, 1, w->narrow[i] * w->narrow[i + 1]),
                       .stack = SHAPE(outer, deep, w->narrow[i] * w->narrow[i + 1]),
                       .deep = deep > 1 };
    val hit = G(c->g, EQUAL, reshaped(c, p->in, &t.in), to_planes(c, &t, c->n.out));
    val hits = choose(c, hit, num(c, 1), num(c, 0));
    /* one at a time: axes with others between them are summed slowly */
    for (int axis = 4; axis > 0; axis -= 2) hits = sum_axes(c, hits, 1u << axis);
    if (t.deep) hits = sum_axes(c, reshaped(c, hits, &t.stack), 1u << 1);
    val share = quo(c, reshaped(c, p->dy, t.deep ? &t.thin : &t.out), G(c->g, MAXIMUM, hits, num(c, 1)));
    return only_if(c, hit, t.deep ? to_planes(c, &t, share) : share);
}

/* [1, taps, narrow...] as cells are: 1 where the tap lies over x. NO_VAL: every tap does. */
static val taps_inside(adj *c, const window *w)
{
    bool all = true;
    double *x = TAKE(c->tmp, double, (size_t)(w->taps * w->places));
    if (!x) return graph_fail(c->g, AN_NOMEM, "out of memory"), NO_VAL;
    int64_t tap[MAX_RANK] = { 0 };
    for (int64_t t = 0, j = 0; t < w->taps; t++, next_tap(w, tap)) {
        int64_t at[MAX_RANK] = { 0 };
        for (int64_t p = 0; p < w->places; p++, j++) {
            x[j] = 1;
            for (int i = 0; i < w->n; i++) {
                int64_t q = at[i] * w->stride[i] + tap[i] - w->before[i];
                if (q < 0 || q >= w->wide[i]) x[j] = 0, all = false;
            }
            for (int i = w->n - 1; i >= 0; i--) {
                if (++at[i] < w->narrow[i]) break;
                at[i] = 0;
            }
        }
    }
    shape s = w->n < 3 ? plane(1, w->taps, w->narrow, w->n) : SHAPE(1, w->taps, w->places);
    return all ? NO_VAL : graph_const_f64(c->g, NULL, typed(c, s), x);
}

/* [N C, taps, narrow...] as cells are: what lies under each tap, cut from x with 0 around it. The width axis is one
 * of 1 behind the spatial ones: a cut with an offset along the width would be infinite above 4094 on m1 and m2. */
static val under_taps(adj *c, const pooling *p)
{
    const window *w = &p->w;
    cuts k = { { 0 }, { 0 }, { 0 }, { 0 } };
    shape lines = SHAPE(p->x.d[0]), each = p->cell;
    for (int i = 0; i < w->n; i++) lines.d[lines.rank++] = w->wide[i];
    lines.d[lines.rank++] = 1;
    val v = reshaped(c, p->in, &lines);
    for (int i = 0; i < w->n; i++) {
        v = pad_axis(c, v, i + 1, w->before[i], MAX((int64_t)0, overhang(w, i)));
        k.move[i] = w->dil[i], k.step[i] = w->stride[i], k.count[i] = w->narrow[i];
    }
    return cut_taps(c, w, v, 1, &k, &each, 1);
}

/* Any windows: taps become channels, those equal to the result share its gradient, and each goes back to its place. */
static val extreme_taps(adj *c, const pooling *p)
{
    val y = reshaped(c, c->n.out, &p->cell);
    val hit = choose(c, G(c->g, EQUAL, under_taps(c, p), y), num(c, 1), num(c, 0));
    val inside = taps_inside(c, &p->w);
    if (inside.i) hit = mul(c, hit, inside);
    val share = quo(c, reshaped(c, p->dy, &p->cell), G(c->g, MAXIMUM, sum_axes(c, hit, 1u << 1), num(c, 1)));
    return pool_to_wide(c, p, mul(c, hit, share), true);
}

/* Equal extremes of a window share its gradient, as in reduce_max. */
static void extreme(adj *c)
{
    pooling p = { 0 };
    if (!read_pool(c, &p)) return;
    bool apart = true;
    for (int i = 0; i < p.w.n; i++)
        apart = apart && p.w.k[i] == p.w.stride[i] && !p.w.before[i] && p.w.narrow[i] * p.w.k[i] == p.w.wide[i];
    finish_pool(c, apart ? extreme_apart(c, &p) : extreme_taps(c, &p));
}

void vjp_max_pool(adj *c) { extreme(c); }

static void l1(adj *c)
{
    pooling p = { 0 };
    if (read_pool(c, &p)) finish_pool(c, mul(c, G(c->g, SIGN, p.in), pool_to_wide(c, &p, p.dy, false)));
}

/* x / y in every window, tap by tap: it lies in -1 .. 1, where dy / y has no end. A window of zeros gives 0. */
void vjp_l2_pool(adj *c)
{
    pooling p = { 0 };
    if (!read_pool(c, &p)) return;
    val y = G(c->g, MAXIMUM, reshaped(c, c->n.out, &p.cell), num(c, tiny_of(c->dt)));
    val share = mul(c, quo(c, under_taps(c, &p), y), reshaped(c, p.dy, &p.cell));
    finish_pool(c, pool_to_wide(c, &p, share, true));
}

void vjp_mode_pool(adj *c)
{
    const char *mode = at_s(c, A_MODE);
    if (!strcmp(mode, "avg")) average(c, false);
    else if (!strcmp(mode, "max") || !strcmp(mode, "min")) extreme(c);
    else if (!strcmp(mode, "l1")) l1(c);
    else if (!strcmp(mode, "l2")) vjp_l2_pool(c);
    else broken(c, "unknown mode");
}
