/* grad_int.h: what the rules share. Private to grad/.
 * A rule sees one forward node and the gradients of its results, and leaves the gradients of its operands.
 *
 * A gradient on its way may be thin: any shape that broadcasts to the value's. A sum's gradient is the same number
 * for every element; elementwise rules multiply it as it is, and what must have every element calls full(). */
#ifndef GRAD_GRAD_INT_H
#define GRAD_GRAD_INT_H

#include "grad/grad.h"

/* Short names in the rules, prefixed symbols in the library: somebody else's program may have a `scale` too. */
#define num vjp_num
#define mul vjp_times
#define quo vjp_quo
#define hold vjp_hold
#define scale vjp_scale
#define over_count vjp_over_count
#define tiny_of vjp_tiny_of
#define lowest_of vjp_lowest_of
#define count_of vjp_count_of
#define prod vjp_prod
#define reshaped vjp_reshaped
#define full vjp_full
#define dy_full vjp_dy_full
#define fit vjp_fit
#define give vjp_give
#define sum_axes vjp_sum_axes
#define per_channel vjp_per_channel
#define channel_total vjp_channel_total
#define pad_axis vjp_pad_axis
#define along_axis vjp_along_axis
#define cut_axes vjp_cut_axes
#define at_l vjp_at_l
#define at_axes vjp_at_axes
#define at_axis vjp_at_axis
#define broken vjp_broken

/* Constants that still hold nothing but the loss scale, with the number they stand for. A scale of 65536 is no fp16
 * number, the 1024 that is left of it behind a mean over 64 is: products and quotients of these are worked out here,
 * not in the graph. */
typedef struct {
    struct {
        val v;
        double x;
    } at[GRAD_MAX_SEEDS];
    int n;
} held_consts;

typedef struct {
    graph *g;
    node n;            /* a copy: the graph's own array moves as it grows */
    shape y;           /* of the first result */
    dtype dt;          /* of the first result: the element type rules work in */
    const val *dy;     /* per result; thin; NO_VAL where nothing comes back */
    const bool *need;  /* per operand: somebody asks for its gradient */
    val *dx;           /* per operand: to be filled where needed; thin */
    const val *so_far; /* per operand: what its later uses gave, or NO_VAL; thin */
    bool *joined;      /* per operand: the rule has put dx into so_far itself */
    held_consts *held;
    arena *tmp;        /* until the rule returns */
    const grad_options *o;
} adj;

typedef void vjp_fn(adj *c);
#define OP(id, mil, in, out, attrs, shape, dtype, vjp, cost, kernel) void vjp_##vjp(adj *c);
#include "op/ops.def"
#undef OP

/* ---- building ---- */
static inline val add(adj *c, val a, val b) { return G(c->g, ADD, a, b); }
static inline val sub(adj *c, val a, val b) { return G(c->g, SUB, a, b); }
val mul(adj *c, val a, val b);
val quo(adj *c, val a, val b);
val hold(adj *c, const shape *s, double x); /* a constant of the loss scale's, remembered */
static inline val choose(adj *c, val cond, val a, val b) { return G(c->g, SELECT, cond, a, b); }
val num(adj *c, double x);             /* a scalar of the rule's type */
val scale(adj *c, val v, double s);    /* v * s; v itself when s is 1 */
val over_count(adj *c, val v, int64_t n); /* v / n, for counts that fp16 may not hold */
static inline val one_minus(adj *c, val v) { return sub(c, num(c, 1), v); }
static inline val only_if(adj *c, val cond, val v) { return choose(c, cond, v, num(c, 0)); }
double tiny_of(dtype dt);              /* smallest normal number: a divisor that is never 0 */
double lowest_of(dtype dt);            /* below every number that is computed in earnest, and finite */

/* ---- shapes ---- */
static inline shape shape_at(const adj *c, val v) { return graph_type(c->g, v)->sh; }
static inline ttype typed(const adj *c, shape s) { return (ttype){ c->dt, s }; }
int64_t count_of(const shape *s);      /* elements; shapes on the path are known */
int64_t prod(const int64_t *d, int from, int to);
val reshaped(adj *c, val v, const shape *s);            /* v itself when it has that shape */
val full(adj *c, val v, const shape *s);                /* every element present */
val dy_full(adj *c);                                    /* of the first result */
/* a gradient for `from`, which `to` was broadcast to: summed back */
val fit(adj *c, val v, const shape *from, const shape *to);
void give(adj *c, int k, val v);                        /* operand k was broadcast to the result's shape */
val sum_axes(adj *c, val v, unsigned axes);             /* keep_dims; no axes: v itself */
val per_channel(adj *c, val p, int rank);               /* [C] as [1, C, 1, ...] */
val channel_total(adj *c, val v, const shape *s);       /* summed over all axes but 1, [C]; v is thin for s */
val pad_axis(adj *c, val v, int axis, int64_t before, int64_t after); /* zeros */
/* matrix [n, extent] applied to every line of the axis */
val along_axis(adj *c, val v, int axis, val matrix, int64_t n);
/* one entry per axis, step >= 1 */
val cut_axes(adj *c, val v, const int64_t *begin, const int64_t *step, const int64_t *count);

/* ---- attributes, with the table's defaults ---- */
static inline int64_t at_i(const adj *c, attr_id a) { return attr_int(c->n.op, c->n.attrs, c->n.n_attr, a); }
static inline bool at_b(const adj *c, attr_id a) { return attr_bool(c->n.op, c->n.attrs, c->n.n_attr, a); }
static inline double at_f(const adj *c, attr_id a) { return attr_float(c->n.op, c->n.attrs, c->n.n_attr, a); }
static inline const char *at_s(const adj *c, attr_id a) { return attr_str(c->n.op, c->n.attrs, c->n.n_attr, a); }
static inline const attr *at_p(const adj *c, attr_id a) { return attr_get(c->n.attrs, c->n.n_attr, a); }
bool at_l(adj *c, attr_id a, int want, int64_t *out);   /* false: the graph's error is set */
unsigned at_axes(adj *c, attr_id a, int rank);          /* a set; absent: every axis */
int at_axis(adj *c, attr_id a, int rank);
static inline bool given(const adj *c, int k) { return k < c->n.n_in && c->n.in[k].i; }
static inline bool wanted(const adj *c, int k) { return k < c->n.n_in && c->need[k]; }

void broken(adj *c, const char *what);                  /* a rule met what inference should have refused */

#endif
