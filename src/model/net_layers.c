/* net_layers.c: the layers the trainable networks are made of, from operations every chip takes at any batch.
 * In: values of a net's graph.  Out: more of them, and rows of the parameter list.
 *
 * Convolution. A convolution whose weight is not a constant compiles at batch 1 only, so the input is cut once per
 * tap, the cuts stand side by side as rows, and one product per sample with the weight matrix does the rest. Samples
 * stay on the batch axis: side by side in one product they would pass the longest axis of the oldest chip. Cuts with
 * a width offset are made of activations, never of gradients (the gradient of a cut is padding), so the loss scale
 * cannot meet the limit of such cuts.
 *
 * Cross-entropy. log-sum-exp minus the target's logit: its gradient, softmax minus one-hot, is made from an exponent
 * that is never positive. A product with the one-hot would do for the target, but a choice is exact for any logit. */
#include <math.h>

#include "model/net_int.h"

static dtype type_of(const net *n) { return n->opt.dt; }
static const shape *shape_at(const net *n, val v) { return &graph_type(n->g, v)->sh; }

static val add_param(net *n, const char *name, const shape *s, net_init init, double scale, bool decay)
{
    if (n->g->err.st) return NO_VAL;
    if (n->n_param == NET_MAX_PARAMS) {
        graph_fail(n->g, AN_BUG, "more than %d parameters", NET_MAX_PARAMS);
        return NO_VAL;
    }
    val v = graph_input(n->g, name, (ttype){ type_of(n), *s });
    if (n->g->err.st) return NO_VAL;
    n->param[n->n_param++] =
        (net_param){ .name = graph_value(n->g, v)->name, .v = v, .init = init, .scale = scale, .decay = decay };
    return v;
}

val net_matrix(net *n, const char *name, const shape *s, int64_t fan_in, double gain)
{
    return add_param(n, name, s, gain > 0 ? NET_UNIFORM : NET_ZEROS, gain > 0 ? gain / sqrt((double)fan_in) : 0, true);
}

/* Zeros or ones, no decay. */
static val net_vector(net *n, const char *name, const shape *s, net_init init)
{
    return add_param(n, name, s, init, 0, false);
}

static void part_name(char *buf, size_t room, const char *layer, const char *what)
{
    snprintf(buf, room, "%.24s_%s", layer, what);
}

static val reshaped(net *n, val x, const shape *s)
{
    if (n->g->err.st || shape_eq(shape_at(n, x), s)) return x;
    return GA(n->g, RESHAPE, VALS(x), AT_LIST(SHAPE, s->d, s->rank));
}

val net_flat(net *n, val x)
{
    if (n->g->err.st) return NO_VAL;
    const shape *s = shape_at(n, x);
    int64_t rest = 1;
    for (int i = 1; i < s->rank; i++) rest *= s->d[i];
    shape flat = SHAPE(s->d[0], rest);
    return reshaped(n, x, &flat);
}

val net_product(net *n, const char *name, val x, int64_t out, double gain)
{
    if (n->g->err.st) return NO_VAL;
    char w[32];
    part_name(w, sizeof w, name, "w");
    int64_t in = shape_at(n, x)->d[1];
    shape s = SHAPE(in, out);
    return G(n->g, MATMUL, x, net_matrix(n, w, &s, in, gain));
}

val net_dense(net *n, const char *name, val x, int64_t out, double gain)
{
    char b[32];
    part_name(b, sizeof b, name, "b");
    shape s = SHAPE(1, out);
    val y = net_product(n, name, x, out, gain);
    return G(n->g, ADD, y, net_vector(n, b, &s, NET_ZEROS));
}

/* ---- convolution ---- */

typedef struct {
    int64_t samples, in, h, w; /* of the input */
    int64_t out, side, stride;
    int64_t oh, ow;
} conv_size;

/* [samples, taps * in, places] */
static val patches(net *n, val x, const conv_size *c)
{
    enum { MAX_TAPS = 64 };
    val part[MAX_TAPS];
    int n_part = 0;
    shape each = SHAPE(c->samples, c->in, c->oh * c->ow);
    for (int64_t i = 0; i < c->side; i++)
        for (int64_t j = 0; j < c->side && n_part < MAX_TAPS; j++) {
            val cut = c->stride == 1 ? GA(n->g, SLICE_BY_SIZE, VALS(x), AT_IS(BEGIN, 0, 0, i, j),
                                          AT_IS(SIZE, c->samples, c->in, c->oh, c->ow))
                                     : GA(n->g, SLICE_BY_INDEX, VALS(x), AT_IS(BEGIN, 0, 0, i, j),
                                          AT_IS(END, c->samples, c->in, i + (c->oh - 1) * c->stride + 1,
                                                j + (c->ow - 1) * c->stride + 1),
                                          AT_IS(STRIDE, 1, 1, c->stride, c->stride));
            part[n_part++] = reshaped(n, cut, &each);
        }
    const attr axis = AT_I(AXIS, 1);
    return n_part == 1 ? part[0] : graph_op(n->g, OP_CONCAT, part, n_part, &axis, 1);
}

val net_conv(net *n, const char *name, val x, int64_t out, int64_t side, int64_t stride, double gain)
{
    if (n->g->err.st) return NO_VAL;
    const shape *s = shape_at(n, x);
    conv_size c = {
        .samples = s->d[0], .in = s->d[1], .h = s->d[2], .w = s->d[3], .out = out, .side = side, .stride = stride
    };
    if (c.h < side || c.w < side) {
        graph_fail(n->g, AN_INPUT,
                   "images of %lld x %lld pixels are too small for the layer %s, whose window is %lld x %lld",
                   (long long)n->opt.height, (long long)n->opt.width, name, (long long)side, (long long)side);
        return NO_VAL;
    }
    c.oh = (c.h - side) / stride + 1, c.ow = (c.w - side) / stride + 1;
    char wn[32], bn[32];
    part_name(wn, sizeof wn, name, "w"), part_name(bn, sizeof bn, name, "b");
    int64_t rows = side * side * c.in;
    shape ws = SHAPE(out, rows), bs = SHAPE(1, out, 1, 1), image = SHAPE(c.samples, out, c.oh, c.ow);
    val w = net_matrix(n, wn, &ws, rows, gain), y;
    if (n->opt.direct_conv) {
        shape taps = SHAPE(out, side, side, c.in);
        val k = GA(n->g, TRANSPOSE, VALS(reshaped(n, w, &taps)), AT_IS(PERM, 0, 3, 1, 2));
        y = GA(n->g, CONV, VALS(x, k), AT_IS(STRIDES, stride, stride));
    } else {
        shape one = SHAPE(1, out, rows);
        y = reshaped(n, G(n->g, MATMUL, reshaped(n, w, &one), patches(n, x, &c)), &image);
    }
    return G(n->g, ADD, y, net_vector(n, bn, &bs, NET_ZEROS));
}

/* ---- norms ---- */

val net_group_norm(net *n, const char *name, val x, int64_t groups)
{
    if (n->g->err.st) return NO_VAL;
    char gn[32], bn[32];
    part_name(gn, sizeof gn, name, "gain"), part_name(bn, sizeof bn, name, "shift");
    shape s = *shape_at(n, x), apart = SHAPE(s.d[0], groups, s.d[1] / groups * s.d[2], s.d[3]),
          each = SHAPE(1, s.d[1], 1, 1);
    val u = GA(n->g, INSTANCE_NORM, VALS(reshaped(n, x, &apart), NO_VAL, NO_VAL), AT_F(EPSILON, 1e-5));
    u = G(n->g, MUL, reshaped(n, u, &s), net_vector(n, gn, &each, NET_ONES));
    return G(n->g, ADD, u, net_vector(n, bn, &each, NET_ZEROS));
}

val net_row_norm(net *n, const char *name, val x)
{
    if (n->g->err.st) return NO_VAL;
    char gn[32], bn[32];
    part_name(gn, sizeof gn, name, "gain"), part_name(bn, sizeof bn, name, "shift");
    shape each = SHAPE(1, shape_at(n, x)->d[1]);
    val gain = net_vector(n, gn, &each, NET_ONES), shift = net_vector(n, bn, &each, NET_ZEROS);
    return nn_layernorm(n->g, x, gain, shift, 1e-5);
}

/* ---- classes ---- */

val net_one_hot(net *n, val ids, int64_t classes)
{
    if (n->g->err.st) return NO_VAL;
    double each[NET_MAX_CLASSES];
    for (int64_t i = 0; i < classes; i++) each[i] = (double)i;
    return G(n->g, EQUAL, ids, graph_const_f64(n->g, NULL, TTYPE(type_of(n), 1, classes), each));
}

val net_loss(net *n)
{
    if (n->g->err.st) return NO_VAL;
    graph *g = n->g;
    val hit = net_one_hot(n, n->y, n->opt.classes);
    val target = GA(g, REDUCE_SUM, VALS(G(g, SELECT, hit, n->logits, graph_scalar(g, type_of(n), 0))), AT_IS(AXES, 1),
                    AT_B(KEEP_DIMS, true));
    val lse = GA(g, REDUCE_LOG_SUM_EXP, VALS(n->logits), AT_IS(AXES, 1), AT_B(KEEP_DIMS, true));
    return GA(g, REDUCE_MEAN, VALS(G(g, SUB, lse, target)), AT_IS(AXES, 0), AT_B(KEEP_DIMS, true));
}
