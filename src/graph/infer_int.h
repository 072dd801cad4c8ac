/* infer_int.h: what the shape and type rules share. One call is described by `infer`; a rule reads operands and
 * attributes and puts result shapes (shape rules) or result element types (type rules). */
#ifndef GRAPH_INFER_INT_H
#define GRAPH_INFER_INT_H

#include "graph/graph.h"

/* No extent and no attribute that becomes one may be larger: sums of a few of them then never overflow. */
#define EXTENT_MAX ((int64_t)1 << 40)

typedef struct {
    op_id op;
    const op_info *info;
    const ttype *in; /* at least one entry per table operand; DT_NONE: left out */
    int n_in;
    const attr *at;
    int n_at;
    ttype *out; /* max_out entries may be written */
    int n_out, max_out;
    diag *d;
} infer;

typedef an_status infer_fn(infer *c);

/* Every rule the table names, declared once per row that names it. */
#define OP(id, mil, in, out, attrs, shape, dtype, vjp, cost, kernel)                                                   \
    infer_fn infer_##shape;                                                                                            \
    infer_fn type_##dtype;
#include "op/ops.def"
#undef OP

/* "op: message", AN_INPUT. */
an_status infer_fail(infer *c, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Types and shapes for messages; long ones end in an ellipsis. Valid to the end of the full expression. */
typedef struct {
    char s[120];
} shown;
shown show_type(const ttype *t);
shown show_shape(const shape *s);

/* Operands. */
static inline bool has(const infer *c, int i) { return i < c->n_in && c->in[i].dt != DT_NONE; }
static inline const shape *sh(const infer *c, int i) { return &c->in[i].sh; }
const char *operand_name(const infer *c, int i);
an_status need_rank(infer *c, int i, int lo, int hi) MUST_CHECK;
an_status need_vector(infer *c, int i, int64_t extent, const char *of) MUST_CHECK; /* rank 1 of that extent */

/* Attributes, with the table's defaults. */
static inline bool given(const infer *c, attr_id a) { return attr_get(c->at, c->n_at, a) != NULL; }
static inline int64_t get_int(const infer *c, attr_id a) { return attr_int(c->op, c->at, c->n_at, a); }
static inline bool get_bool(const infer *c, attr_id a) { return attr_bool(c->op, c->at, c->n_at, a); }
static inline double get_float(const infer *c, attr_id a) { return attr_float(c->op, c->at, c->n_at, a); }
static inline const char *get_str(const infer *c, attr_id a) { return attr_str(c->op, c->at, c->n_at, a); }
/* exactly `want` entries */
an_status get_list(infer *c, attr_id a, int want, int64_t *out) MUST_CHECK;
an_status get_some(infer *c, attr_id a, int max, int *n, int64_t *out) MUST_CHECK;            /* 1 .. max entries */
an_status get_axis(infer *c, attr_id a, int rank, int *axis) MUST_CHECK;                      /* an int attribute */
an_status get_axes(infer *c, attr_id a, int rank, unsigned *set) MUST_CHECK;                  /* a list; bit set */
an_status need_min(infer *c, attr_id a, const int64_t *x, int n, int64_t min) MUST_CHECK;

/* Extents; DIM_UNKNOWN in gives DIM_UNKNOWN out. */
static inline bool dim_agree(int64_t a, int64_t b) { return a == b || a < 0 || b < 0; }
static inline int64_t dim_known(int64_t a, int64_t b) { return a < 0 ? b : a; }
an_status dim_mul(infer *c, int64_t a, int64_t b, int64_t *out) MUST_CHECK;
bool dims_agree(const shape *a, const shape *b);
bool broadcast_dims(const shape *a, const shape *b, shape *out); /* numpy rules, unknown extents kept */

/* Results. */
an_status put_shape(infer *c, const shape *s); /* the next result */

#endif
