/* codegen_int.h: the program while it is being made. Private to codegen/.
 *
 * Tensors are numbers; a view shares its root's storage, all or a run of it, and has a shape of its own.
 * Instructions keep their operands apart (results, operands, chain inputs, chain steps) until emit.c lays them out
 * by the instruction table. The first error sticks in c->err: after it builders return -1 or do nothing, and
 * selection stops. */
#ifndef CODEGEN_CODEGEN_INT_H
#define CODEGEN_CODEGEN_INT_H

#include "codegen/codegen.h"

enum {
    NONE = -1,
    CHAIN_MAX_IN = 16,    /* tensors a chain may read: AdamW that clips and may not count reads 13 */
    CHAIN_MAX_STEPS = 32,
    MEMORY_ALIGN = 64,
};

typedef struct {
    dtype dt;
    shape sh;
    int root;        /* itself when it owns its storage */
    uint64_t at;     /* bytes of the root's storage before it */
    space where;     /* of a root, as are the fields below */
    int slot;        /* INPUT, OUTPUT: port; CONST: entry of c->consts */
    bool fixed;      /* made from constants alone */
    int n_def, n_use; /* instructions that write it; readers and ports; kept by cg_count_uses */
    uint64_t offset, bytes;
} tens;

typedef struct {
    fn_id fn;
    int arg[3];      /* k < n_ext (+1 in an epilogue): input; above: result of an earlier step; NONE */
    double p[2];
    dtype dt;        /* the step's result rounds to it where the numerics round each step */
} step;

typedef struct {
    insn_id op;
    uint32_t line;
    bool dead;
    int n_y, y[CHAIN_MOST_RESULTS]; /* written */
    int from[CHAIN_MOST_RESULTS]; /* ews: the step that gives a result; of y[0] it is the last */
    int n_opnd, opnd[5];     /* read; NONE: an optional one left out */
    bool chain;              /* has inputs and steps: ew, ews, and the epilogue of products */
    int n_ext, ext[CHAIN_MAX_IN];
    int n_step, cap_step;
    step *steps;
    VEC(int64_t) i;          /* integer fields before the steps */
    int n_f;
    double f[4];
} ins;

typedef struct {
    const char *path;
    uint64_t offset;
    const void *data; /* inline */
    dtype dt;
    shape sh;
    size_t bytes;
} source;
typedef struct {
    const_kind kind;
    int tensor;
    int n_src;
    source src[4];
    int64_t axis;
} cst;

typedef struct {
    val state; /* the parameter */
    int tensor;
} state_write;

typedef struct {
    val scores;  /* a gradient of scores: the products that read it, and the values they multiply it by */
    val q, k;
    int dq, dk;
} attend_grad;

typedef struct {
    const graph *g;
    codegen_options o;
    const numerics *num;
    bool soft;          /* round_each */
    arena mem;
    diag err;
    const node *at;     /* being selected */
    int *of;            /* value -> tensor, NONE before it is selected */
    uint32_t *n_uses;   /* of a value, outputs counted */
    const uint32_t *first; /* value -> the first that is computed the same way; NULL: not asked */
    const bool *one;    /* of n_one roots: one node reads what it holds; NULL: not asked */
    size_t n_one;
    VEC(tens) t;
    VEC(ins) ins;
    VEC(cst) consts;
    VEC(state_write) states;
    VEC(attend_grad) backs; /* attentions whose way back is one instruction */
    VEC(struct scalar_const { dtype dt; double x; int tensor; }) scalars;
    VEC(eport) outs; /* name and tensor (of c->t) while compiling */
    uint64_t scratch;
} cg;

/* ---- build.c ---- */
void cg_fail(cg *c, an_status st, const char *fmt, ...) PRINTF_LIKE(3, 4); /* prefixed with op and name */
dtype cg_dt(const cg *c, dtype t);        /* the type a value of type t has inside the program */
dtype cg_wide(dtype t);                   /* what steps of a chain pass on unrounded */
int cg_tensor(cg *c, dtype dt, const shape *sh);
int cg_view(cg *c, int t, const shape *sh); /* same elements, another shape; t itself when it is the same */
/* a constant of a weight file that nothing reads: whatever is loaded in its place has to be of this kind */
void cg_expect(cg *c, const node *n, const_kind kind);
/* records that attributes came from: whatever is loaded in their place has to be the same */
void cg_expect_read(cg *c);
int cg_const_as(cg *c, int t, dtype dt);   /* the same constant, made in another type when it is loaded */
int cg_scalar(cg *c, dtype dt, double x);
int cg_iota(cg *c, int64_t n, int64_t modulo); /* int32 0, 1, .. modulo-1, 0, .. */
#define SH(...) ((const shape[]){ SHAPE(__VA_ARGS__) }) /* a shape to point at */
static inline const shape *cg_sh(const cg *c, int t) { return &c->t.at[t].sh; }
static inline int cg_root(const cg *c, int t) { return c->t.at[t].root; }

#define OPS(...) ((const int[]){ __VA_ARGS__ }), (int)(sizeof((const int[]){ __VA_ARGS__ }) / sizeof(int))
ins *cg_ins(cg *c, insn_id op, int y, const int *opnd,
            int n); /* NULL after an error; valid until the next one is added */
void cg_i(cg *c, ins *n, int64_t x);
void cg_is(cg *c, ins *n, const int64_t *x, int len);          /* a list: its length first */
void cg_f(ins *n, double x);
/* a chain of one step; its result */
int cg_ew(cg *c, dtype dt, const shape *sh, fn_id f, const int *in, int n, const double *p);
bool cg_room(cg *c, ins *n, int steps); /* for so many steps; false: no memory */
void cg_step(cg *c, ins *n, fn_id f, int a, int b, int e, const double *p, dtype dt);
int cg_ext(cg *c, ins *n, int t);         /* input number of t in a chain without steps yet, added when missing */

/* y[ys + i·yst] = x[xs + i·xst] over the box d. Axes are dropped and joined where they can be. */
void cg_move(cg *c, int y, int x, int rank, const int64_t *d, int64_t ys, const int64_t *yst, int64_t xs,
             const int64_t *xst, bool width_offset);
int cg_copy(cg *c, int x);                     /* the same elements elsewhere */
int cg_permute(cg *c, int x, const int *perm); /* axis i of the result is axis perm[i] of x */
void cg_fill(cg *c, int y, double v);
int cg_cast(cg *c, int x, dtype dt);                        /* x itself when it has the type */

/* ---- operands, attributes and results of the node at hand ---- */
static inline bool have(const cg *c, int k) { return k < c->at->n_in && c->at->in[k].i; }
int cg_in(cg *c, int k);                                    /* NONE when left out */
const ttype *cg_in_type(const cg *c, int k);
static inline const ttype *cg_out_type(const cg *c, int k) { return graph_type(c->g, graph_out(c->at->out, k)); }
void cg_set(cg *c, int k, int t);                          /* result k; viewed in its shape */
static inline int64_t at_int(const cg *c, attr_id a) { return attr_int(c->at->op, c->at->attrs, c->at->n_attr, a); }
static inline bool at_bool(const cg *c, attr_id a) { return attr_bool(c->at->op, c->at->attrs, c->at->n_attr, a); }
static inline double at_float(const cg *c, attr_id a) { return attr_float(c->at->op, c->at->attrs, c->at->n_attr, a); }
static inline const char *at_str(const cg *c, attr_id a) { return attr_str(c->at->op, c->at->attrs, c->at->n_attr, a); }
static inline const attr *at_get(const cg *c, attr_id a) { return attr_get(c->at->attrs, c->at->n_attr, a); }
bool cg_list(cg *c, attr_id a, int want, int64_t *out);
bool cg_axis(cg *c, attr_id a, int rank, int *axis);
bool cg_axes(cg *c, attr_id a, int rank, bool *on);         /* absent: every one */
bool cg_word(cg *c, attr_id a, const char *const *words, int n, int *pick);
int64_t cg_elems(const shape *s);
int64_t cg_prod(const int64_t *d, int from, int to);
/* a per-channel vector seen as [C, 1, ...] under rank axes */
int cg_channel(cg *c, int p, int rank);

/* ---- select*.c: one function per word of the kernel column ---- */
void select_nodes(cg *c);
#define OP(id, mil, in, out, attrs, shape, dtype, vjp, cost, kernel) void select_##kernel(cg *c);
#include "op/ops.def"
#undef OP
void select_const(cg *c, const node *n);
/* labels as in einsum */
int cg_contract(cg *c, dtype dt, int x, const char *lx, int z, const char *lz, const char *ly);
/* plain processor only */
int cg_attend_at(cg *c, dtype dt, int q, int k, int v, int pos, int64_t window, bool turned, double scale,
                 const shape *y);
int cg_attend(cg *c, dtype dt, int q, int k, int v, int mask, bool causal, double scale, const shape *y);

/* ---- match.c: the node at hand as part of something larger. true: its result is set. ---- */
bool match_node(cg *c);
bool match_rope(cg *c);   /* match_rope.c: a concat */
bool match_turn(cg *c);   /* match_rope.c: a sum, or a product by a number */
val cg_through_views(const cg *c, val v); /* what v only gives another shape */
bool cg_number(const cg *c, val v, double *x); /* one in the text itself */
/* a constant mask that keeps exactly the positions up to the row's own; cpu only */
bool match_causal(cg *c, val mask, int64_t rows);
void match_take_causal(cg *c, val mask); /* it is left out: from now on it has to be one */

/* ---- after selection ---- */
void cg_count_uses(cg *c);
void cg_drop_dead(cg *c);
/* per root the only instruction that writes it, or NONE; NULL: no memory, in c->err; uses must be counted */
int *cg_makers(cg *c);
void fuse_passes(cg *c);   /* what the engine does in one pass, by the rounding rules */
void fuse_chains(cg *c);   /* speed */
void cg_trim(ins *n);      /* steps nobody reads any more */
void sum_products(cg *c);  /* reductions of products nobody else reads; a part of fuse_chains, as is the next */
void remake_results(cg *c); /* made again where they are read instead of stored */
void attend_apart(cg *c); /* copies around attention of several sequences */
void order_reductions(cg *c); /* to where their operands are still in a cache */
void alias_copies(cg *c);  /* tensors that lie inside others instead of being copied */
void narrow_reads(cg *c);  /* products read bf16 where they find it widened */
void narrow_operands(cg *c); /* what only products read, in the type they multiply */
bool *between_products(cg *c); /* between.c: per root whether it holds what lies between products; NULL: no memory */
/* per root whether one node reads what it holds, and what is the same; NULL: no memory */
bool *read_by_one(cg *c);
void plan_memory(cg *c);
program *emit_program(cg *c, diag *d);
bool cg_can_share(const cg *c, const ins *n, int in, int y); /* may the result lie where this input was */

#endif
