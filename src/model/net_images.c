/* net_images.c: networks that tell images apart. In: n->x [batch, height * width].  Out: n->logits [batch, classes].
 *
 * Weights start uniform within gain / sqrt(fan-in): sqrt(6) keeps the size of what a relu lets through, sqrt(3) that
 * of a linear map. The last layer of each starts at zero: the first loss is log(classes) whatever the data, and the
 * first step moves only it. */
#include "model/net_int.h"

static const double RELU_GAIN = 2.449489742783178, LINEAR_GAIN = 1.7320508075688772;

static val image(net *n)
{
    return GA(n->g, RESHAPE, VALS(n->x), AT_IS(SHAPE, n->opt.batch, 1, n->opt.height, n->opt.width));
}

void net_digits(net *n)
{
    /* a stride instead of a pool: the gradient of a pool costs more than the rest of the network together */
    val y = net_conv(n, "conv", image(n), 8, 5, 2, RELU_GAIN);
    n->logits = net_dense(n, "out", net_flat(n, G(n->g, RELU, y)), n->opt.classes, LINEAR_GAIN);
}

void net_mlp(net *n)
{
    val y = G(n->g, RELU, net_dense(n, "l1", n->x, 256, RELU_GAIN));
    y = G(n->g, RELU, net_dense(n, "l2", y, 128, RELU_GAIN));
    n->logits = net_dense(n, "out", y, n->opt.classes, 0);
}

void net_normconv(net *n)
{
    val y = net_conv(n, "c1", image(n), 8, 3, 2, LINEAR_GAIN);
    y = nn_silu(n->g, net_group_norm(n, "n1", y, 2));
    y = net_conv(n, "c2", y, 16, 3, 2, LINEAR_GAIN);
    y = nn_silu(n->g, net_group_norm(n, "n2", y, 4));
    n->logits = net_dense(n, "out", net_flat(n, y), n->opt.classes, 0);
}

static val gated(net *n, const char *linear, const char *gate, val x, int64_t out)
{
    val v = net_dense(n, linear, x, out, LINEAR_GAIN), s = G(n->g, SIGMOID, net_dense(n, gate, x, out, LINEAR_GAIN));
    return G(n->g, MUL, v, s);
}

void net_glu(net *n)
{
    val y = gated(n, "l1", "g1", n->x, 128);
    y = gated(n, "l2", "g2", y, 64);
    n->logits = net_dense(n, "out", y, n->opt.classes, 0);
}
