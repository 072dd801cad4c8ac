/* pass_int.h: what the passes share. Stays in this folder. */
#ifndef PASS_PASS_INT_H
#define PASS_PASS_INT_H

#include "pass/pass.h"

/* What one run of one pass is told, and where it counts what it changed. */
typedef struct {
    const pass_options *o;
    arena scratch;    /* emptied after each pass */
    size_t n_changes; /* by the pass now running */
    port_plan *plan;
} pass_ctx;

typedef an_status (*pass_fn)(graph *g, pass_ctx *c, diag *d);

/* ---- the passes ---- */
an_status pass_identity(graph *g, pass_ctx *c, diag *d);
an_status pass_cast(graph *g, pass_ctx *c, diag *d);
an_status pass_transpose(graph *g, pass_ctx *c, diag *d);
an_status pass_algebra(graph *g, pass_ctx *c, diag *d);
an_status pass_fold(graph *g, pass_ctx *c, diag *d);
an_status pass_cse(graph *g, pass_ctx *c, diag *d);
an_status pass_dce(graph *g, pass_ctx *c, diag *d);
an_status pass_gelu(graph *g, pass_ctx *c, diag *d);
an_status pass_causal_mask(graph *g, pass_ctx *c, diag *d);
an_status pass_conv_bias(graph *g, pass_ctx *c, diag *d);
an_status pass_matmul_conv(graph *g, pass_ctx *c, diag *d);
an_status pass_chunk_channels(graph *g, pass_ctx *c, diag *d);
an_status pass_depth_broadcast(graph *g, pass_ctx *c, diag *d);
an_status pass_split_dim(graph *g, pass_ctx *c, diag *d);
an_status pass_sort_ports(graph *g, pass_ctx *c, diag *d);
an_status pass_pad_surface(graph *g, pass_ctx *c, diag *d);
an_status pass_uniform_ports(graph *g, pass_ctx *c, diag *d);

/* ---- sweeping: one walk in node order in which uses of a value are moved to an earlier one ----
 * Nodes are edited where they stand: an operand may only move to a value made earlier, and a node's result types never
 * change, so the order stays topological and every type on file stays the inferred one. What became unused is left for
 * dead-code removal. */
typedef struct {
    graph *g;
    pass_ctx *c;
    val *fwd;     /* value -> the value its later uses read; itself unless forwarded */
    bool *is_out; /* value is returned by the program */
    uint32_t *n_uses; /* when the sweep began */
    void *user;       /* the visitor's own */
} sweep;

typedef an_status (*sweep_fn)(sweep *s, uint32_t i, diag *d); /* called with node i's operands already moved */
an_status sweep_run(graph *g, pass_ctx *c, sweep_fn f, void *user, diag *d) MUST_CHECK;

/* Later uses of `from` read `to`. Refused (false) when the types differ, or when a program output would become a plain
 * input or constant, or the same value as another output: a program must compute each thing it returns. */
bool sweep_forward(sweep *s, val from, val to);

/* Node i becomes op(x) with one list attribute; its result type stays. */
an_status sweep_set_unary(sweep *s, uint32_t i, op_id op, val x, attr_id a, const int64_t *list, int n, diag *d)
    MUST_CHECK;

/* ---- small questions ---- */
static inline bool ttype_eq(const ttype *a, const ttype *b) { return a->dt == b->dt && shape_eq(&a->sh, &b->sh); }
static inline const ttype *in_type(const graph *g, const node *n, int k) { return graph_type(g, n->in[k]); }
bool perm_of(const graph *g, const node *n, int *perm); /* of a transpose whose permutation is known */
static inline const ttype *out_type(const graph *g, const node *n) { return graph_type(g, n->out); }
bool op_is_reshape(op_id op);                        /* keeps the elements in row-major order */
bool has_elements(const shape *sh);                  /* every extent known and above 0: may be spelled in a reshape */
bool op_is_mac(op_id op);                            /* conv, matmul and their relatives */
bool const_is(const graph *g, val v, double x);      /* every element is exactly x, the sign of zero included */
bool node_list(const node *n, attr_id a, int want, int64_t *out); /* attr_list on a node */

/* ---- constants derived from constants: v is a constant of g, the result a new one ---- */
/* same bytes, so weights whose bytes are not known here too */
val const_reshaped(graph *g, val v, shape sh);
val const_transposed(graph *g, val v, const int *perm);   /* data must be present */
val const_sliced(graph *g, val v, int axis, int64_t at, int64_t extent); /* data must be present */
/* Packed elements of src, axes permuted, into dst. Elements of whole bytes only (false otherwise). */
bool bytes_transpose(const ttype *t, const int *perm, const void *src, void *dst) MUST_CHECK;

/* ---- legalisation of single operations ---- */
typedef struct {
    graph *g;          /* being rebuilt: the builders' */
    graph was;         /* as it was before, for looking only */
    const chip *chip;
    const char **rule; /* ids of the target's rows that name this rewrite */
    size_t n_rules;
    arena *mem;
    rewrite rw;        /* old nodes, while rebuilding */
    diag *d;
} legal;

typedef struct {
    const char *name;                       /* as the target's rules spell it */
    bool (*takes)(op_id op);                /* operations worth asking the rules about */
    bool (*can)(legal *l, const node *n);   /* beyond the rule: the rewrite is possible here; n is a node of l->was */
    val (*build)(legal *l, const node *n);  /* operands by legal_in; returns what replaces n's result */
} legalizer;

/* Rewrite every operation for which a rule naming `row` fires; the graph is rebuilt only when there is one. */
an_status legal_run(graph *g, pass_ctx *c, const legalizer *row, diag *d) MUST_CHECK;
static inline val legal_in(const legal *l, const node *n, int k)
{
    return k < n->n_in ? rw_in(&l->rw, n->in[k]) : NO_VAL;
}

/* Ids of rules about this chip whose legalizer is `name`. */
an_status rules_naming(const char *name, const chip *c, arena *mem, const char ***rule, size_t *n, diag *d) MUST_CHECK;
bool any_rule_fires(const char *const *rule, size_t n, const chip *c, const op_inst *op);
/* A node as the rules see it: ranges only of constants. Lives in mem; NULL: no memory. */
op_inst *inst_of(const graph *g, const node *n, arena *mem);
/* Would the target refuse this operation outright? */
an_status is_refused(const chip *c, const op_inst *op, arena *mem, bool *refused, diag *d) MUST_CHECK;

#endif
