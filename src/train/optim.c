/* optim.c: optimizers as graph nodes, and the numbers the host works out for them.
 * In: weights, moments and gradients as values.  Out: what they become, as values of the same graph.
 *
 * fp32 state: gradients are divided by S (ctl.def) first, and everything is in plain units. fp16 state: gradients
 * and moments keep the factor S, since gradients alone would drown; it cancels in Adam's m / sqrt(v), and for the
 * others the learning rate absorbs it. No square is summed in fp16: the norm is that of gradient / peak.
 *
 * Pairs hi + lo/LOW_UNIT: what is added goes to lo; what hi can hold of it moves over, exactly: with s = hi +
 * lo/unit rounded, s - hi is a number of the type, and so is what it leaves of lo. */
#include <math.h>

#include "train/train_int.h"

static const struct {
    const char *name;
    int slots;
    bool decoupled;
    double lr;
} rows[OPTIM_COUNT] = {
#define OPTIM(id, name_, slots_, m1, m2, decoupled_, lr_, what) { name_, slots_, decoupled_, lr_ },
#include "train/optim.def"
#undef OPTIM
};

bool train_optimizer_find(const char *name, train_optimizer *out)
{
    for (int i = 0; i < OPTIM_COUNT; i++)
        if (!strcmp(rows[i].name, name)) return *out = (train_optimizer)i, true;
    return false;
}

double train_optimizer_lr(train_optimizer k) { return rows[k].lr; }
const char *train_optimizer_name(const trainer *t) { return rows[t->opt.kind].name; }

/* ---- options ---- */

static an_status below(double x, double most, const char *what, diag *d)
{
    if (x >= 0 && x < most) return AN_OK; /* NaN fails too */
    if (most < INFINITY)
        return diag_fail(d, AN_INPUT, NOWHERE, "%s is %g; at least 0 and below %g is wanted", what, x, most);
    return diag_fail(d, AN_INPUT, NOWHERE, "%s is %g; 0 or more is wanted", what, x);
}

an_status optim_take(trainer *t, diag *d)
{
    const train_options *o = &t->o;
    const char *name = o->optimizer ? o->optimizer : "sgd";
    optim *k = &t->opt;
    if (!train_optimizer_find(name, &k->kind)) {
        strbuf b = { 0 };
        for (int i = 0; i < OPTIM_COUNT; i++) sb_printf(&b, "%s%s", i ? ", " : "", rows[i].name);
        diag_fail(d, AN_USAGE, NOWHERE, "unknown optimizer \"%.40s\"; known are %s", name, b.at ? b.at : "");
        return sb_free(&b), d->st;
    }
    k->slots = rows[k->kind].slots;
    k->decoupled = rows[k->kind].decoupled;
    k->mu = o->momentum != 0 ? o->momentum : 0.9;
    k->beta1 = o->beta1 != 0 ? o->beta1 : 0.9;
    k->beta2 = o->beta2 != 0 ? o->beta2 : 0.999;
    k->eps = o->eps != 0 ? o->eps : 1e-8;
    k->decay = o->decay;
    k->clip = o->clip;
    TRY(below(k->mu, 1, "momentum", d));
    TRY(below(k->beta1, 1, "beta1", d));
    TRY(below(k->beta2, 1, "beta2", d));
    TRY(below(k->eps, INFINITY, "epsilon", d));
    TRY(below(k->decay, INFINITY, "weight decay", d));
    return below(k->clip, INFINITY, "the clipping norm", d);
}

/* fp32 divides the gradient by S in the graph unless S is 1 for good; plain SGD leaves it to the learning rate. */
static bool divides(const trainer *t)
{
    bool one = !t->o.dynamic_scale && t->scale.scale == 1 && t->accum == 1;
    return !is_half(t) && !one && t->opt.kind != OPTIM_SGD;
}

bool optim_reads(const trainer *t, ctl_id c)
{
    const optim *k = &t->opt;
    bool moving = t->o.dynamic_scale && is_half(t);
    switch (c) {
    case CTL_LR: return true;
    case CTL_UNSCALE: return is_half(t) ? k->slots < 2 : divides(t);
    case CTL_EPS: return k->slots == 2;
    case CTL_CLIP: return k->clip > 0;
    case CTL_DECAY: return k->decay > 0;
    case CTL_RESCALE: return moving && k->slots >= 1;
    case CTL_RESCALE2: return moving && k->slots == 2;
    case CTL_SEED: return t->o.dynamic_scale;
    default: return false;
    }
}

/* ---- building ---- */

static val num(optim_graph *b, double x) { return graph_scalar(b->g, b->t->state_dt, x); }
static val times(optim_graph *b, val x, double k) { return k == 1 ? x : G(b->g, MUL, x, num(b, k)); }

static val reduced(graph *g, op_id op, val x, int64_t axis)
{
    attr at[] = { AT_LIST(AXES, &axis, 1), AT_B(KEEP_DIMS, true) };
    return graph_op(g, op, &x, 1, at, 2);
}

static val flat(optim_graph *b, val x) { return GA(b->g, RESHAPE, VALS(x), AT_IS(SHAPE, 1)); }

/* The whole of x as lines of equal length, `most` or shorter: 0 when n has no such divisor. */
static int64_t line_length(int64_t n, int64_t most)
{
    for (int64_t k = most; k >= 16; k--)
        if (n % k == 0 && n / k > 1) return k;
    return 0;
}

/* One number out of all: down the columns first, which is wide work, then along what is left. `then` joins the
 * columns' results. */
static val over_all(optim_graph *b, op_id op, op_id then, val x)
{
    int64_t n = 0, k = shape_elems(&graph_type(b->g, x)->sh, &n) ? line_length(n, 256) : 0;
    if (!k) return flat(b, reduced(b->g, op, GA(b->g, RESHAPE, VALS(x), AT_IS(SHAPE, 1, n)), 1));
    val lines = GA(b->g, RESHAPE, VALS(x), AT_IS(SHAPE, n / k, k));
    return flat(b, reduced(b->g, then, reduced(b->g, op, lines, 0), 1));
}

/* The same for fp32 on a processor, which cuts a long line itself: the thread that made a part of the gradient, and
 * will update it, sums it. */
static val sum_of_squares(optim_graph *b, val x)
{
    int64_t n = 0;
    if (!shape_elems(&graph_type(b->g, x)->sh, &n)) return NO_VAL;
    return flat(b, reduced(b->g, OP_REDUCE_SUM_SQUARE, GA(b->g, RESHAPE, VALS(x), AT_IS(SHAPE, 1, n)), 1));
}

static double count_of(const graph *g, val v)
{
    int64_t n = 0;
    return shape_elems(&graph_type(g, v)->sh, &n) ? (double)n : 0;
}

static void norm_f32(optim_graph *b, const val *grad, int n, val *power, val *factor)
{
    val sum = NO_VAL;
    for (int i = 0; i < n; i++) {
        val s = sum_of_squares(b, grad[i]);
        sum = sum.i ? G(b->g, ADD, sum, s) : s;
    }
    *power = sum;
    if (b->t->opt.clip > 0) {
        val norm = G(b->g, SQRT, sum);
        *factor = G(b->g, MINIMUM, G(b->g, REAL_DIV, b->ctl[CTL_CLIP], norm), num(b, 1));
        if (divides(b->t)) *factor = G(b->g, MUL, *factor, b->ctl[CTL_UNSCALE]);
    } else if (divides(b->t)) *factor = b->ctl[CTL_UNSCALE];
}

void optim_extent(optim_graph *b, val x, val *most)
{
    if (!x.i) return;
    val m = over_all(b, OP_REDUCE_MAX, OP_REDUCE_MAX, G(b->g, ABS, x));
    *most = most->i ? G(b->g, MAXIMUM, *most, m) : m;
}

val optim_reach(optim_graph *b, val power, val factor)
{
    const double some = 0x1p10; /* directions of moments are at most so many times as long as a gradient, or as 1 */
    val norm = G(b->g, SQRT, power),
        reach = times(b, G(b->g, MUL, G(b->g, ABS, b->ctl[CTL_LR]), G(b->g, ADD, norm, num(b, 1))), some);
    if (!b->t->opt.slots) return reach;
    /* what the moments get: the power may be of less, where S is below 1 */
    val plain = factor.i ? G(b->g, MUL, norm, factor) : norm;
    /* four times: decay adds as much (bounds.c) */
    return G(b->g, ADD, reach, b->t->opt.slots == 2 ? times(b, G(b->g, SQUARE, plain), 4) : plain);
}

static void norm_f16(optim_graph *b, const val *grad, int n, val *peak, val *power, val *factor)
{
    double all = 0;
    val most = NO_VAL, mean = NO_VAL;
    for (int i = 0; i < n; i++) {
        optim_extent(b, grad[i], &most);
        all += count_of(b->g, grad[i]);
    }
    val down = G(b->g, REAL_DIV, num(b, 1), G(b->g, MAXIMUM, most, num(b, 0x1p-14)));
    for (int i = 0; i < n; i++) {
        val q = G(b->g, MUL, grad[i], down);
        val s =
            times(b, over_all(b, OP_REDUCE_MEAN, OP_REDUCE_MEAN, G(b->g, SQUARE, q)), count_of(b->g, grad[i]) / all);
        mean = mean.i ? G(b->g, ADD, mean, s) : s;
    }
    *peak = most;
    *power = mean;
    if (b->t->opt.clip > 0) {
        val rms = G(b->g, MUL, most, G(b->g, SQRT, mean));
        *factor =
            G(b->g, MINIMUM, G(b->g, REAL_DIV, b->ctl[CTL_CLIP], G(b->g, MAXIMUM, rms, num(b, 0x1p-24))), num(b, 1));
    }
}

void optim_norm(optim_graph *b, const val *grad, int n, val *peak, val *power, val *factor)
{
    *peak = *power = *factor = NO_VAL;
    if (is_half(b->t)) norm_f16(b, grad, n, peak, power, factor);
    else norm_f32(b, grad, n, power, factor);
}

/* hi + lo/unit after `low` became its low half. */
static void settle(optim_graph *b, val hi, val low, val *hi_out, val *lo_out)
{
    val s = G(b->g, ADD, hi, times(b, low, 1 / LOW_UNIT));
    *hi_out = s;
    *lo_out = G(b->g, SUB, low, times(b, G(b->g, SUB, s, hi), LOW_UNIT));
}

/* w less a step; in pairs the learning rate came multiplied by LOW_UNIT. */
static void step_down(optim_graph *b, const optim_vals *in, val by, bool decay, optim_vals *out)
{
    bool pair = in->w_lo.i != 0, shrink = decay && b->t->opt.decoupled && b->ctl[CTL_DECAY].i;
    if (shrink) by = G(b->g, ADD, by, G(b->g, MUL, in->w, b->ctl[CTL_DECAY]));
    if (pair) settle(b, in->w, G(b->g, SUB, in->w_lo, by), &out->w, &out->w_lo);
    else out->w = G(b->g, SUB, in->w, by);
}

/* A moment in the units of this step. */
static val carried(optim_graph *b, val m, ctl_id c) { return b->ctl[c].i && m.i ? G(b->g, MUL, m, b->ctl[c]) : m; }

/* The square root of the second moment. Of a pair hi alone will do where it is not 0, for then it is most of the sum;
 * what lies in lo is at most half a unit of hi, whose root is smaller. */
static val root_of(optim_graph *b, const optim_vals *v)
{
    val root = G(b->g, SQRT, v->slot[1]);
    if (!v->slot_lo[1].i) return root;
    return G(b->g, MAXIMUM, root, times(b, G(b->g, SQRT, G(b->g, ABS, v->slot_lo[1])), 1 / sqrt(LOW_UNIT)));
}

static void adam_v(optim_graph *b, const optim_vals *in, val g, optim_vals *out)
{
    double keep = b->t->opt.beta2, take = 1 - keep;
    val v = carried(b, in->slot[1], CTL_RESCALE2), low = carried(b, in->slot_lo[1], CTL_RESCALE2),
        sq = G(b->g, SQUARE, g);
    if (!low.i) {
        out->slot[1] = G(b->g, ADD, times(b, v, keep), times(b, sq, take));
        return;
    }
    val more = times(b, G(b->g, SUB, sq, v), take * LOW_UNIT); /* the low half's own decay is below what it can hold */
    settle(b, v, G(b->g, ADD, low, more), &out->slot[1], &out->slot_lo[1]);
}

void optim_update(optim_graph *b, const optim_vals *in, val grad, val factor, bool decay, optim_vals *out)
{
    const optim *k = &b->t->opt;
    graph *g = b->g;
    *out = (optim_vals){ 0 };
    if (factor.i) grad = G(g, MUL, grad, factor);
    if (decay && !k->decoupled && b->ctl[CTL_DECAY].i) grad = G(g, ADD, grad, G(g, MUL, in->w, b->ctl[CTL_DECAY]));
    val dir = grad;
    if (k->slots == 1) dir = out->slot[0] = G(g, ADD, times(b, carried(b, in->slot[0], CTL_RESCALE), k->mu), grad);
    if (k->slots == 2) {
        val m = out->slot[0] =
            G(g, ADD, times(b, carried(b, in->slot[0], CTL_RESCALE), k->beta1), times(b, grad, 1 - k->beta1));
        adam_v(b, in, grad, out);
        dir = G(g, REAL_DIV, m, G(g, ADD, root_of(b, out), b->ctl[CTL_EPS]));
    } else if (is_half(b->t)) dir = G(g, MUL, dir, b->ctl[CTL_UNSCALE]);
    step_down(b, in, G(g, MUL, dir, b->ctl[CTL_LR]), decay, out);
}

/* ---- the host's share ---- */

/* A gradient whose share of an fp16 second moment, (1 - b2) g^2, rounds to nothing would be divided by epsilon
 * alone. An epsilon as large as the largest of those keeps their steps below the learning rate. In pairs the share is
 * counted in low units, and then it is the square itself that rounds to nothing. */
static double eps_least(const trainer *t)
{
    const double share = 1 - t->opt.beta2;
    return sqrt(0x1p-25 / (is_pair(t) ? MIN(share * LOW_UNIT, 1) : share));
}

void optim_ctl(const trainer *t, double lr, double S, uint64_t step, double *row)
{
    const optim *k = &t->opt;
    double unit = is_pair(t) ? LOW_UNIT : 1, plain = lr, n = (double)MIN(step, (uint64_t)1 << 30);
    row[CTL_UNSCALE] = is_half(t) ? 1 : 1 / S;
    row[CTL_EPS] = k->eps;
    if (k->slots == 2) { /* m/(1-b1^n) over sqrt(v/(1-b2^n)) + eps, with the corrections moved to lr and eps */
        double root = sqrt(1 - pow(k->beta2, n));
        lr *= root / (1 - pow(k->beta1, n));
        row[CTL_EPS] = root * (is_half(t) ? MAX(k->eps * S, eps_least(t)) : k->eps);
    } else if (is_half(t) || k->kind == OPTIM_SGD) lr /= S;
    row[CTL_LR] = lr * unit;
    if (is_half(t) && k->slots < 2 && row[CTL_LR] != 0 && fabs(row[CTL_LR]) < 0x1p-10) {
        int e;
        frexp(row[CTL_LR], &e); /* an fp16 below 2^-14 loses bits: half of the exponent goes to the other factor */
        row[CTL_UNSCALE] = ldexp(1, e / 2);
        row[CTL_LR] /= row[CTL_UNSCALE];
    }
    row[CTL_CLIP] = is_half(t) ? MIN(k->clip * S / sqrt((double)t->n_numbers), 60000.0) : k->clip * S;
    /* behind the factor fp32 gradients are plain; SGD's and fp16 ones still carry S */
    bool scaled = is_half(t) || k->kind == OPTIM_SGD;
    row[CTL_DECAY] = k->decoupled ? plain * k->decay * unit : k->decay * (scaled ? S : 1);
    double r = t->scale.applied != 0 ? S / t->scale.applied : 1;
    row[CTL_RESCALE] = r;
    row[CTL_RESCALE2] = r * r;
    row[CTL_KEEP] = 1;
    row[CTL_SEED] = t->scale.scale;
}

double optim_norm_of(const trainer *t, double peak, double power, double S)
{
    if (is_half(t)) return peak * sqrt(power * (double)t->n_numbers) / S;
    return sqrt(power) / S;
}
