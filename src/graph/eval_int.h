/* eval_int.h: what the reference kernels share. Private to graph/.
 * A kernel reads its operands and attributes from an eval_ctx and fills results that are already allocated and zeroed.
 * Shapes and types were settled by inference: kernels check values (indices, modes, counts), not shapes. */
#ifndef GRAPH_EVAL_INT_H
#define GRAPH_EVAL_INT_H

#include "graph/graph.h"

typedef struct {
    op_id op;
    const char *name; /* for messages: the node's name, or the op's spelling when it stands alone */
    loc at;
    const attr *attrs;
    int n_attr;
    const tensor64 *in; /* in[i].x == NULL: an optional operand left out */
    int n_in;
    tensor64 *out;
    int n_out;
    arena *mem; /* scratch too: save, use, back */
    diag *d;
} eval_ctx;

/* One kernel per word of the table's last column; a missing one does not link. */
#define OP(id, mil, in, out, attrs, shape, dtype, vjp, cost, kernel) an_status eval_##kernel(eval_ctx *c);
#include "op/ops.def"
#undef OP

/* ---- attributes with the table's defaults ---- */
static inline int64_t at_int(const eval_ctx *c, attr_id id) { return attr_int(c->op, c->attrs, c->n_attr, id); }
static inline bool at_bool(const eval_ctx *c, attr_id id) { return attr_bool(c->op, c->attrs, c->n_attr, id); }
static inline double at_float(const eval_ctx *c, attr_id id) { return attr_float(c->op, c->attrs, c->n_attr, id); }
static inline const attr *at_get(const eval_ctx *c, attr_id id) { return attr_get(c->attrs, c->n_attr, id); }
static inline bool has(const eval_ctx *c, int i) { return i < c->n_in && c->in[i].x; }
an_status at_ints(const eval_ctx *c, attr_id id, int want, int64_t *out) MUST_CHECK;
an_status at_axis(const eval_ctx *c, attr_id id, int rank, int *axis) MUST_CHECK;
/* Which axes a list names; absent means every one. */
an_status at_axes(const eval_ctx *c, attr_id id, int rank, bool *on) MUST_CHECK;
/* Position of a string attribute in a list of words. The message lists what is known. */
an_status at_mode(const eval_ctx *c, attr_id id, const char *const *words, int n, int *pick) MUST_CHECK;

/* AN_INPUT, prefixed with op and name */
an_status eval_fail(const eval_ctx *c, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* ---- shapes ---- */
int64_t t64_elems(const tensor64 *t);                           /* sizes were checked when t was made */
int64_t dims_prod(const int64_t *d, int from, int to);      /* product of d[from..to) */
/* of `in` walked as `out`: 0 where it repeats */
void bcast_strides(const shape *in, const shape *out, int64_t *stride);
double *t64_scratch(const eval_ctx *c, int64_t n);              /* NULL when there is no memory */

/* Walk a box row by row: every index but the last is advanced as an odometer, each operand's offset along with it.
 *   for (walk_start(&w); w.more; walk_row(&w)) for (j < w.len) use a[w.off[0] + j * w.step[0]] ... */
enum { WALK_MAX = 3 };
typedef struct {
    int rank; /* of the outer part */
    int64_t d[MAX_RANK], i[MAX_RANK], len;
    int n;
    int64_t stride[WALK_MAX][MAX_RANK], step[WALK_MAX], off[WALK_MAX], base[WALK_MAX];
    bool more;
} walk;
void walk_init(walk *w, const int64_t *d, int rank);
void walk_add(walk *w, const int64_t *stride, int64_t base); /* rank strides of the next operand */
void walk_start(walk *w);
void walk_row(walk *w);

/* dst[base_d + i . ds] = src[base_s + i . ss] for every index i of the box d. */
void copy_box(const int64_t *d, int rank, double *dst, int64_t base_d, const int64_t *ds, const double *src,
              int64_t base_s, const int64_t *ss);

/* C (m x n, row-major) += A (m x k, by strides) B (k x n, row-major). */
void gemm_add(int64_t m, int64_t n, int64_t k, const double *a, int64_t a_row, int64_t a_col, const double *b,
              double *c);

/* x seen as outer x n x inner around an axis. */
typedef struct {
    int64_t outer, n, inner;
} axis_view;
axis_view view_axis(const shape *s, int axis);

/* A per-channel parameter: one value for all, or one per channel. */
static inline double param_at(const tensor64 *p, int64_t n, int64_t c) { return p->x[n == 1 ? 0 : c]; }

void softmax_line(double *v, int64_t n);     /* in place */
/* negative counts from the end */
an_status index_in(const eval_ctx *c, double v, int64_t extent, int64_t *out) MUST_CHECK;

#endif
