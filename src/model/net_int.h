/* net_int.h: what the builders of the trainable networks share. */
#ifndef MODEL_NET_INT_H
#define MODEL_NET_INT_H

#include "model/model.h"
#include "model/net.h"

/* Each fills n->logits from n->x; the loss is added behind all of them alike. Errors stick to the graph. */
#define NET(name, task, batch, seq, classes, optimizer, lr, lr_end, decay, loss_scale, warmup, steps, doc)             \
    void net_##name(net *n);
#include "model/nets.def"
#undef NET

/* A trainable input of the given extents, and its row in n->param. Matrices start uniform within gain /
 * sqrt(fan_in). */
val net_matrix(net *n, const char *name, const shape *s, int64_t fan_in, double gain);

/* x W: [N, in] to [N, out]; name_w is [in, out]. gain 0: it starts at zero. */
val net_product(net *n, const char *name, val x, int64_t out, double gain);
/* x W + b; name_b is [1, out] and starts at zero. */
val net_dense(net *n, const char *name, val x, int64_t out, double gain);
/* Valid convolution of [N, C, H, W] with a trained kernel: [N, out, H', W']. name_w is [out, side * side * C], taps
 * outside and channels inside, so that each row of it meets the patches in the order they are cut; name_b is [1,
 * out, 1, 1]. */
val net_conv(net *n, const char *name, val x, int64_t out, int64_t side, int64_t stride, double gain);
/* Each sample's groups of channels to mean 0 and deviation 1 over the image, then a trained gain and shift per
 * channel. */
val net_group_norm(net *n, const char *name, val x, int64_t groups);
/* Rows [N, D] to mean 0 and deviation 1, then gain and shift. */
val net_row_norm(net *n, const char *name, val x);
val net_flat(net *n, val x);                    /* [N, everything else] */
val net_one_hot(net *n, val ids, int64_t classes); /* bool [N, classes] of numbers [N, 1] */
val net_loss(net *n);                           /* mean cross-entropy of n->logits and n->y, [1, 1] */

#endif
