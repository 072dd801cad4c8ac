/* graph.h: a program as values and the operations that make them.
 * In: builder calls, text, or MIL (lower/).  Out: nodes in an order in which every operand is made before it is used.
 *
 * Values are handles; 0 is poison. The first error sticks: after it every builder call returns poison, and graph_finish
 * reports it. Shapes and types are inferred by the op's rule and never passed in. Everything a graph holds lives in its
 * arena; a pass rewrites the graph in place by rebuilding it (graph_rewrite_*), so node order always stays
 * topological. */
#ifndef GRAPH_GRAPH_H
#define GRAPH_GRAPH_H

#include "base/arena.h"
#include "base/str.h"
#include "op/op.h"

typedef struct {
    uint32_t i; /* 0: poison, or an optional operand left out */
} val;
#define NO_VAL ((val){ 0 })

/* What a constant holds. data == NULL: its bytes are not known here (a weight bound later by its blob reference). */
typedef struct {
    const void *data;      /* packed elements in the node's type */
    const char *str;       /* DT_STRING scalars */
    const char *blob_path; /* "@model_path/…" or NULL */
    uint64_t blob_offset;  /* of the metadata record; meaningful with blob_path */
} const_data;

typedef struct {
    op_id op;
    const char *mil;   /* spelling for OP_OPAQUE, else the table's */
    const char *name;  /* unique in the graph; also the first result's name */
    loc at;            /* where it came from, if text */
    unsigned flags;    /* INST_* */
    int n_in, n_out, n_attr;
    val *in;           /* as in op_inst */
    attr *attrs;
    val out;           /* first result; the others follow it */
    const_data *cst;   /* OP_CONST only */
} node;

typedef struct {
    uint32_t node;
    int out;
    ttype type;
    const char *name;
} value;

typedef struct {
    const char *name;
    val v;
} port;

/* A record of a weight file that was read into attributes. */
typedef struct {
    const char *path;
    uint64_t offset;       /* of the metadata record */
    ttype type;
    const void *data;      /* as it was read: lives as long as the data of constants */
} read_record;

typedef struct {
    arena mem;
    VEC(node) nodes;    /* [0] unused */
    VEC(value) values;  /* [0] unused */
    VEC(val) inputs;    /* program parameters in declaration order; name = the node's */
    VEC(port) outputs;  /* results in declaration order */
    /* each once; the graph means what it does only as long as they hold what they held. No part of its text */
    VEC(read_record) read;
    str_map read_at;    /* offset and path of each */
    str_map names;      /* value name -> value index */
    str_map reserved;   /* during a rewrite: names of the old values, so that a made-up name never takes one */
    const char *title;  /* program name, for messages and dumps */
    diag err;           /* sticky */
    loc here;           /* stamped on every node made; a reader moves it along */
    unsigned next_id;   /* for made-up names */
} graph;

/* limit: most bytes the graph may take, 0 for none. NULL when there is no memory. */
graph *graph_new(const char *title, size_t limit);
void graph_free(graph *g); /* NULL is fine */

/* ---- building ---- */
val graph_input(graph *g, const char *name, ttype t);
val graph_const(graph *g, const char *name, ttype t, const void *data);      /* copies the packed bytes */
val graph_const_view(graph *g, const char *name, ttype t, const void *data); /* borrows them until graph_free */
val graph_const_blob(graph *g, const char *name, ttype t, const char *path, uint64_t offset, const void *data_view);
val graph_const_str(graph *g, const char *name, const char *s);
/* an attribute came from this record */
void graph_note_read(graph *g, const char *path, uint64_t offset, ttype t, const void *data_view);
val graph_scalar(graph *g, dtype dt, double x);                              /* rank-0 constant */
val graph_fill_const(graph *g, const char *name, ttype t, double x);         /* every element x */
val graph_const_f64(graph *g, const char *name, ttype t, const double *x);   /* converts */

/* in: one val per table operand (NO_VAL for an optional one left out), a list operand spread out. */
val graph_op(graph *g, op_id op, const val *in, int n_in, const attr *attrs, int n_attr);
val graph_op_named(graph *g, const char *name, op_id op, const val *in, int n_in, const attr *attrs, int n_attr);
val graph_opaque(graph *g, const char *name, const char *mil, const val *in, int n_in, const ttype *out, int n_out);
val graph_out(val first, int k);                                             /* the k-th result of the same node */
void graph_rename(graph *g, val v, const char *name);                        /* a result's own name; must be free */
void graph_output(graph *g, const char *name, val v);
/* Where building was: graph_back gives up all that came after, with the error it ended in. Nothing may have been
 * renamed or rewritten in between. */
typedef struct {
    size_t nodes, values, inputs, outputs;
    an_status st;
} graph_mark;
graph_mark graph_save(const graph *g);
void graph_back(graph *g, graph_mark m);
void graph_fail(graph *g, an_status st, const char *fmt, ...) PRINTF_LIKE(3, 4);
an_status graph_finish(graph *g, diag *d);                                   /* first error, or OK after graph_verify */

/* Short forms: G(g, ADD, x, y) and GA(g, REDUCE_SUM, VALS(x), AT_IS(AXES, 1), AT_B(KEEP_DIMS, true)). */
#define VALS(...) ((const val[]){ __VA_ARGS__ }), (int)(sizeof((const val[]){ __VA_ARGS__ }) / sizeof(val))
#define G(g, OP, ...) graph_op((g), OP_##OP, VALS(__VA_ARGS__), NULL, 0)
#define GA(g, OP, vals_and_n, ...)                                                                                     \
    graph_op((g), OP_##OP, vals_and_n, ((const attr[]){ __VA_ARGS__ }),                                                \
             (int)(sizeof((const attr[]){ __VA_ARGS__ }) / sizeof(attr)))

/* ---- looking ---- */
static inline const value *graph_value(const graph *g, val v) { return &g->values.at[v.i]; }
static inline const node *graph_maker(const graph *g, val v) { return &g->nodes.at[g->values.at[v.i].node]; }
static inline const ttype *graph_type(const graph *g, val v) { return &g->values.at[v.i].type; }
/* the OP_CONST that makes v with data present, or NULL */
const node *graph_const_of(const graph *g, val v);
/* v is a known constant whose elements all equal x */
bool graph_const_scalar(const graph *g, val v, double *x);
double graph_const_at(const node *c, const ttype *t, int64_t i);    /* element i as a number */
val graph_find(const graph *g, const char *name);                   /* NO_VAL when absent */
/* n_uses[value], outputs counted; values.n entries */
void graph_uses(const graph *g, uint32_t *n_uses);
an_status graph_verify(const graph *g, const char *after, diag *d); /* invariants; `after` names the pass to blame */

/* What nodes compute, by op, types, attributes and operands; constants by type and bytes. */
bool graph_may_share(op_id op);  /* the same from the same operands, every time */
bool graph_commutes(op_id op);   /* operands may be swapped without a bit changing */
bool graph_const_bytes(const graph *g, const node *n, size_t *bytes); /* of a constant; false: they are not known */
/* number: of operands; NULL: each is itself alone */
uint64_t graph_hash_node(const graph *g, const node *n, const uint64_t *number);
/* values.n entries: the same for values that are computed the same way from the same inputs */
void graph_numbers(const graph *g, uint64_t *number);

/* Shape and type of the results of an op, by the table's rules. in[i].dt == DT_NONE: an optional operand left out.
 * *n_out is what the op yields; never more than max_out are written. Messages name the op and the values seen. */
an_status graph_infer(op_id op, const ttype *in, int n_in, const attr *attrs, int n_attr, ttype *out, int *n_out,
                      int max_out, diag *d);

/* ---- seen by the rule and cost tables ---- */
/* Everything target/ needs about each node, with value ranges; lives in *mem. One entry per node, [0] unused. */
an_status graph_insts(const graph *g, arena *mem, op_inst **out, diag *d);
/* Ranges by interval arithmetic from constants and bounded ops; ranges[values.n]. */
void graph_ranges(const graph *g, vrange *ranges);

/* ---- rewriting: old nodes are read, new ones built by the same calls, in the same arena ---- */
typedef struct {
    node *nodes;
    size_t n_nodes;
    value *values;
    size_t n_values;
    val *map; /* old value -> new value */
    VEC(val) inputs;
    VEC(port) outputs;
} rewrite;
an_status graph_rewrite_begin(graph *g, rewrite *rw);       /* g is now empty but for its arena */
void graph_rewrite_copy(graph *g, rewrite *rw, uint32_t i); /* copy old node i with mapped operands */
static inline val rw_in(const rewrite *rw, val old) { return rw->map[old.i]; }
an_status graph_rewrite_end(graph *g, rewrite *rw);         /* re-attach the outputs under their old names */

/* ---- meaning: slow, obvious, double precision, no rounding between ops ---- */
typedef struct {
    ttype type;
    double *x; /* row-major */
} tensor64;
/* in: one per program input, in order. out: one per program output; *mem owns them. */
an_status graph_eval(const graph *g, const tensor64 *in, tensor64 *out, arena *mem, diag *d);
/* One operation on its own, as folding needs it. out[] types must be set (by inference); x is allocated. */
an_status graph_eval_op(op_id op, const attr *attrs, int n_attr, const tensor64 *in, int n_in, tensor64 *out, int n_out,
                        arena *mem, diag *d);

/* ---- text ---- */
void graph_print(const graph *g, strbuf *b);                              /* parse(print(g)) == g */
an_status graph_parse(const char *text, size_t n, graph **out, diag *d);
/* same nodes, types, attributes, constants, ports */
bool graph_same(const graph *a, const graph *b, strbuf *why);
void graph_dot(const graph *g, strbuf *b);                                /* Graphviz */

#endif
