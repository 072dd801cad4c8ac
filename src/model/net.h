/* net.h: small networks that train: a name in, a graph with its loss and its parameters out.
 *
 * Every parameter is a graph input, so that gradients and an optimizer can follow in the same graph and the values
 * stay on the device. Everything is made of ops and forms that all chips take at any batch: a convolution is patches
 * and a product, since a convolution with a run-time weight is refused from batch 2 on; a lookup is a comparison and
 * a product; norms keep their range in fp16. What the host sends:
 *
 *   x   images [batch, height * width] (one channel, row-major, about 0 … 1), or characters [batch * seq, 1] as numbers of their class
 *   y   [rows, 1]: the class of each prediction as a number of the tensors' own type, 0 … classes-1. Not int32, which a chip
 *       refuses as an input, and not one-hot, which is `classes` times the bytes; whole numbers to NET_MAX_CLASSES are
 *       exact in every type. Rows are samples for images, positions (sample-major) for text.
 *
 * logits is [rows, classes]; loss is the mean over rows of the cross-entropy in nats, [1, 1]. The graph has no
 * outputs yet. */
#ifndef MODEL_NET_H
#define MODEL_NET_H

#include "base/rng.h"
#include "graph/graph.h"

enum { NET_MAX_CLASSES = 256, NET_MAX_PARAMS = 64 };

typedef enum { NET_IMAGES, NET_TEXT } net_task;
typedef enum {
    NET_ZEROS,
    NET_ONES,
    NET_NORMAL,  /* mean 0, deviation `scale` */
    NET_UNIFORM, /* -scale … scale */
} net_init;

typedef struct {
    const char *name; /* the graph input's name */
    val v;
    net_init init;
    double scale;     /* of the initial values; set from the fan-in by the builder */
    bool decay;       /* weight decay applies: matrices yes, norms and biases no */
} net_param;

typedef struct { /* zero means the default of the network's row */
    int64_t batch;
    int64_t height, width; /* of images; 28 x 28 */
    int64_t classes;       /* 10, or the alphabet of the text */
    int64_t seq;           /* positions of a text sample */
    dtype dt;              /* fp16; fp32 and bf16 for devices that compute in it, fp64 for the evaluator */
    bool direct_conv;      /* the same network with the conv op: for comparing; chips refuse it */
} net_options;

typedef struct {
    graph *g; /* the caller owns it after net_build */
    net_task task;
    net_options opt;  /* as built, defaults filled in */
    val x, y, logits, loss;
    int64_t rows;     /* predictions per batch */
    net_param param[NET_MAX_PARAMS];
    int n_param;
} net;

/* A row of nets.def: how the network is trained when nothing else is asked for. */
typedef struct {
    const char *name;
    net_task task;
    int64_t batch, seq;
    const char *optimizer; /* "sgd", "momentum", "adam", "adamw" */
    double lr;
    double lr_end;         /* the rate falls from lr to lr * lr_end over the run (cosine) */
    double decay;          /* weight decay */
    double loss_scale;
    int64_t warmup, steps;
    const char *doc;
} net_spec;

size_t net_count(void);
const net_spec *net_at(size_t i);
const net_spec *net_find(const char *name); /* NULL when unknown */

/* AN_INPUT: no such network, or an option it cannot have; the message names it and what is possible.
 * After success the caller frees out->g. */
an_status net_build(const char *name, const net_options *o, net *out, diag *d) MUST_CHECK;
void net_free(net *n); /* the graph too; a zeroed net is fine */

int64_t net_param_count(const net *n, int i); /* numbers in parameter i */
/* Initial values of one parameter. Zeros, ones and uniform values are the same on every machine; normal ones pass
 * through libm. */
void net_init_fill(const net *n, int i, rng *r, float *out);

void net_print(strbuf *b, const char *format); /* the table: "text", "json" (an object per line), "markdown" */

#endif
