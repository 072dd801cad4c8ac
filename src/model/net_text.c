/* net_text.c: a transformer over characters. In: n->x [batch * seq, 1], numbers of characters.  Out: n->logits
 * [batch * seq, classes], position t's guess at the character behind it.
 *
 * Positions are rows, so that every linear map is one product over batch * seq of them; only attention takes the
 * rows apart, [batch, heads, seq, head width]. A character's embedding is a product with its one-hot row: gather
 * with run-time indices does not compile on the oldest chip, and the gradient of a product is a product. The head is
 * the embedding again. */
#include <math.h>

#include "model/net_int.h"

enum { WIDTH = 64, HEADS = 4, HEAD = WIDTH / HEADS, HIDDEN = 256, BLOCKS = 2 };
static const double LINEAR_GAIN = 1.7320508075688772;

static val heads_apart(net *n, val x)
{
    val y = GA(n->g, RESHAPE, VALS(x), AT_IS(SHAPE, n->opt.batch, n->opt.seq, HEADS, HEAD));
    return GA(n->g, TRANSPOSE, VALS(y), AT_IS(PERM, 0, 2, 1, 3));
}

static val heads_joined(net *n, val x)
{
    val y = GA(n->g, TRANSPOSE, VALS(x), AT_IS(PERM, 0, 2, 1, 3));
    return GA(n->g, RESHAPE, VALS(y), AT_IS(SHAPE, n->opt.batch * n->opt.seq, WIDTH));
}

/* Branches end small, by the square root of how many of them are added up. */
static val branch_out(net *n, const char *name, val x)
{
    return net_dense(n, name, x, WIDTH, LINEAR_GAIN / sqrt(2.0 * BLOCKS));
}

static val attention(net *n, int block, val x, val mask)
{
    char name[24];
    val part[3];
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "h%d_%c", block, "qkv"[i]);
        /* keys have no bias: it would add the same to every score of a query, and softmax takes it off again */
        part[i] = heads_apart(n, (i == 1 ? net_product : net_dense)(n, name, x, WIDTH, LINEAR_GAIN));
    }
    val s = GA(n->g, MATMUL, VALS(nn_scale(n->g, part[0], 1 / sqrt((double)HEAD)), part[1]), AT_B(TRANSPOSE_Y, true));
    val p = GA(n->g, SOFTMAX, VALS(G(n->g, ADD, s, mask)), AT_I(AXIS, 3));
    snprintf(name, sizeof name, "h%d_o", block);
    return branch_out(n, name, heads_joined(n, G(n->g, MATMUL, p, part[2])));
}

void net_charlm(net *n)
{
    graph *g = n->g;
    dtype dt = n->opt.dt;
    int64_t V = n->opt.classes, rows = n->opt.batch * n->opt.seq;
    shape es = SHAPE(V, WIDTH), ps = SHAPE(1, n->opt.seq, WIDTH);
    val embed = net_matrix(n, "embed", &es, WIDTH, 1), place = net_matrix(n, "place", &ps, WIDTH, 0.5);
    if (g->err.st) return;
    val hot = G(g, SELECT, net_one_hot(n, n->x, V), graph_scalar(g, dt, 1), graph_scalar(g, dt, 0));
    val x = GA(g, RESHAPE, VALS(G(g, MATMUL, hot, embed)), AT_IS(SHAPE, n->opt.batch, n->opt.seq, WIDTH));
    x = GA(g, RESHAPE, VALS(G(g, ADD, x, place)), AT_IS(SHAPE, rows, WIDTH));
    val mask = nn_causal_mask(g, dt, n->opt.seq);
    for (int i = 0; i < BLOCKS; i++) {
        char norm[24], up[24], down[24];
        snprintf(norm, sizeof norm, "h%d_n1", i);
        x = G(g, ADD, x, attention(n, i, net_row_norm(n, norm, x), mask));
        snprintf(norm, sizeof norm, "h%d_n2", i), snprintf(up, sizeof up, "h%d_up", i),
            snprintf(down, sizeof down, "h%d_down", i);
        x = G(g, ADD, x,
              branch_out(n, down, nn_gelu(g, net_dense(n, up, net_row_norm(n, norm, x), HIDDEN, LINEAR_GAIN))));
    }
    n->logits = GA(g, MATMUL, VALS(net_row_norm(n, "nf", x), embed), AT_B(TRANSPOSE_Y, true));
}
