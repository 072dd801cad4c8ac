/* grad.h: reverse-mode differentiation, graph to graph.
 * In: a graph, its loss, the values to differentiate by.  Out: more nodes in the same graph that compute the gradients.
 *
 * No operation is new: the backward pass is made of the table's rows, and each row's gradient is the rule its vjp
 * column names. The forward values are reused, never copied, but for those the caller asks to be computed again
 * (keep). A gradient has the shape and element type of the value it belongs to.
 *
 * What carries a gradient: float values. A comparison and an index choose; they have no slope and the gradient stops
 * there as it does at constants. Operations whose rule is `none` and that have a float result refuse, and so do a
 * cast to an integer, a position and the like where their numbers come back as floats that the loss depends on. All
 * of it is found before the graph is touched. At a kink or a tie one subgradient is taken: equal maxima share the
 * gradient evenly, maximum and minimum give it to the first operand, relu and its kin give 0 at the corner, clip
 * passes both its ends. */
#ifndef GRAD_GRAD_H
#define GRAD_GRAD_H

#include "graph/graph.h"

/* The gradient of a convolution's weight is a product of the output's gradient and the input, one cut per tap. */
typedef enum {
    /* as measured on the engine: at stride 1 the padded output gradient is cut, and it carries the loss scale through
     * slices with a width offset (m1 and m2: above 4094 they give infinity); at other strides the input is cut */
    GRAD_CONV_PATCHES,
    GRAD_CONV_INPUT_PATCHES,   /* the input is cut at every stride: width offsets, but no loss scale in them */
    /* the input is cut with its channels moved to the width axis: nothing is cut along the width */
    GRAD_CONV_NO_WIDTH_OFFSET,
} grad_conv_form;

enum { GRAD_MAX_SEEDS = 16 };

typedef struct {
    /* [0] the gradient of the loss that was used; then constants that hold a fraction of it */
    val seed[GRAD_MAX_SEEDS];
    int n_seeds;
    uint32_t first_node; /* nodes from here on are the backward pass */
    uint32_t n_of;       /* of the backward pass's nodes; the graph owns the list */
    const uint32_t *of;  /* per node from first_node on: the forward node whose rule made it, 0 where none did */
    bool *reached;       /* caller's, n entries, or NULL: wrt[i] takes part in the loss */
} grad_info;

typedef struct {                /* zero is the default */
    /* gradient of the loss as a constant; 0 means 1. It need not be a number of the loss's type as long as what is left
     * of it behind the means that follow is (65536 over a batch in fp16) */
    double loss_scale;
    /* or a value of the graph: one element of the loss's type, so that the scale may change from run to run */
    val seed;
    grad_conv_form conv_weight;
    /* the device has scatter: the gradient of a lookup adds rows in place instead of multiplying by a one-hot matrix */
    bool scatter;
    /* n_keep values in the order in which they are made: what is computed between the first and the last of them is not
     * held for the backward pass but computed again from the one before it, when the walk back gets there. Same bits,
     * less memory */
    const val *keep;
    int n_keep;
    bool zeros_when_unreached;  /* a wrt without any path to the loss gets zeros instead of an error */
    grad_info *info;            /* filled in when given */
} grad_options;

/* out[i]: the gradient of loss by wrt[i]. loss has one element. A wrt may be any float value: an input, or something
 * computed, whose own operands may be among the wrt too.
 *   AN_INPUT        the loss is not one float, a wrt is not a float or does not reach the loss
 *   AN_USAGE        the loss scale is not finite and above 0
 *   AN_UNSUPPORTED  an operation between a wrt and the loss has no gradient; the message names it, and the place is its own
 * After any of these the graph is as it was. Other failures (memory, a loss scale that is no number of its type)
 * stick to the graph. */
an_status grad_build(graph *g, val loss, const val *wrt, int n, val *out, const grad_options *o, diag *d) MUST_CHECK;

bool grad_exists(op_id op); /* the op has a rule */

/* ---- before running on m1 or m2 ---- */

#define GRAD_WIDTH_LIMIT 4094.0 /* a slice with a width offset turns larger magnitudes into infinity there */

typedef struct {
    uint32_t node;     /* a slice with a width offset */
    const char *name, *mil;
    loc at;
    uint32_t of;       /* the node whose gradient it is part of; 0: it stands in the forward graph */
    double largest;    /* magnitude that can reach it, or did in the sample; INFINITY: nothing is known */
    bool scales;       /* it is proportional to the seed */
    /* the largest seed that keeps it within the limit; 0: not known; INFINITY: it does not depend on it */
    double safe_scale;
} grad_hazard;

/* Every slice of floats (chips compute all of them in fp16) with a width offset whose operand can pass the limit.
 * info: of the gradients in it, built with a seed of magnitude `scale`; NULL for a graph without any. Without a
 * sample, ranges come from graph_ranges, which knows nothing about float inputs: what depends on them is reported as
 * not known. sample, one tensor per input: the magnitudes are those of that run, in double precision, and say
 * nothing about other data. An input that reaches no such slice may be left out (x NULL); AN_INPUT names one that
 * may not. *mem owns the list. */
an_status grad_preflight(const graph *g, const grad_info *info, double scale, const tensor64 *sample, arena *mem,
                         grad_hazard **out, size_t *n, diag *d) MUST_CHECK;

#endif
