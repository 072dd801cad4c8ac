/* exec_mac_int.h: products as matrices: what exec_mac.c (preparing, running) shares with exec_conv.c (columns of a
 * convolution) and exec_window.c (the four-lane adder). Private to engine/.
 *
 * One instruction is `batches` products C[m,n] = A[m,k]·B[k,n]. A is the operand that is packed ahead; when the
 * constant operand of a matmul is the right one, everything is turned (C is the transpose of the result: `turned`).
 * C passes through the chain on its way to y, or goes there straight when the matrix kernel's own epilogue can do
 * what the chain does. */
#ifndef ENGINE_EXEC_MAC_INT_H
#define ENGINE_EXEC_MAC_INT_H

#include "engine/exec_int.h"
#include "kernel/gemv.h"

enum { SPATIAL = 3 };
typedef struct { /* up to three spatial axes, those a shape lacks have extent 1 */
    int64_t in[SPATIAL], out[SPATIAL], k[SPATIAL], stride[SPATIAL], pad[SPATIAL], dil[SPATIAL];
    int64_t batch, cin, cout, groups, taps;
    bool transposed;
} geometry;
geometry exec_geometry(const program *p, const insn *in, bool transposed);
/* Rows of B for places p0 .. p0 + n of one group: to[(channel, tap)][place], elements as in x (2 or 4 bytes). */
void exec_columns(const geometry *g, pool *threads, const void *x, int64_t size, int64_t channels, int64_t p0,
                  int64_t n, void *to);

typedef enum { ROW_NONE, ROW_SCALAR, ROW_CHANNEL, ROW_COLUMNS /* not per row: per column of C */ } row_kind;
typedef struct {
    row_kind kind;
    int64_t tensor;
} row_value;

typedef struct mac_vec mac_vec;
typedef struct mac_turn mac_turn;

enum { MAC_JOINED = 4 /* products of a group at most */ };

typedef struct mac {
    const exec_env *env;
    const numerics *num;
    int64_t y, m, n, k;
    dtype y_type;
    bool window, turned, straight, parallel, columns, ceiling;
    bool in_passing; /* A changes from run to run and is short: the product packs it piece by piece */
    bool alone;      /* so little that it is done before another thread has come */
    bool by_rows;    /* the product hands on its rows as they are finished, and the chain takes them */
    /* on the plain processor: columns of a transposed convolution, whose zeros stand for places that are not there */
    bool gaps;
    bool odd;        /* and a constant weight of it is not finite, which such a zero would not leave out */
    bool same_b;     /* the instruction before it has packed this B, and left it in the same place */
    const gemm_kernel *g;
    const unsigned char *i8; /* int8 products: the weight as it is stored, and its rows' scales; NULL: other products */
    float *i8_scale;
    mac_turn *turn; /* a matrix that may only move rows; NULL: it does more, or the product is short without that */
    mac_vec *vec; /* few columns of a weight left as it is stored; NULL: a packed product */
    /* exec_mac_join.c */
    struct mac *first;             /* of the group, which leaves the sums at at_sums of the work memory; NULL: itself */
    struct mac *after[MAC_JOINED]; /* first: those that follow, in order */
    int n_after;
    size_t at_sums, end;           /* end: first: of the group's work memory */
    size_t extent;                 /* bytes of work memory of its own */
    geometry geo;
    int64_t a_tensor, b_tensor, a_row, a_col, b_row, b_col;
    dtype a_type, b_type;      /* as stored */
    dtype a_as, b_as;          /* as multiplied: fp16 on a chip */
    /* weights of a transposed convolution, in the order of a convolution's; NULL: the tensor itself */
    const unsigned char *a_own;
    int64_t batches, packs;
    int64_t *a_off, *b_off, *y_off, *pack_of; /* per batch, in elements; which packed A */
    int64_t *pack_off;         /* per packed A: its a_off */
    unsigned char *packed;     /* NULL: packed at each run */
    float *packed_bound;       /* window: per pack and panel, behind the packs */
    size_t pack_bytes;
    int64_t a_panels;
    exec_chain *chain;
    size_t chain_bytes;
    int64_t squares;           /* the tensor of the sum of y's squares, or -1 */
    int64_t tiles;             /* sums of squares of a batch, if straight: a tile's each */
    size_t at_squares;         /* behind the slots */
    row_value scale, bias;     /* straight */
    gemm_act act;
    int64_t residual, gate;    /* tensors, or -1 */
    int64_t pass, above, shut; /* straight: where `pass` is not above the one number, it is the other; -1: nowhere */
    int64_t chunk;             /* columns of C at a time */
    /* work: clean copies of the operands, then one slot per concurrent batch */
    size_t at_clean_a, at_clean_b, at_slots, slot_bytes;
    size_t at_pack, at_bound, at_columns, at_scratch, at_c, at_chain, at_rows; /* in a slot */
    size_t scratch_bytes;
    int64_t a_elems, b_elems;
} mac;

/* One batch under way. */
typedef struct {
    const run_ctx *c;
    const mac *m;
    pool *pool;
    unsigned char *slot;
    int64_t batch, n0, nc;      /* columns n0 .. n0 + nc */
    const unsigned char *a, *b; /* operands: element (0, 0) of this batch's A, and of column n0 of B */
    int64_t b_row, b_col;
    const void *packed;
    const float *bound;
    float *sums;                /* C, rows of nc */
} product;

/* of one that follows */
static inline float *mac_sums(const run_ctx *c, const mac *m)
{
    return (float *)(void *)((unsigned char *)c->work + m->at_sums);
}
static inline bool mac_is_const(const image *im, int64_t t) { return im->p->tensors.at[t].where == SPACE_CONST; }

/* Along which axis of a weight its rows are counted: the axes before it are 1, those behind it make up k. -1: none. */
static inline int mac_row_axis(const etensor *t, int64_t rows)
{
    int a = 0;
    while (a < t->rank && t->dim[a] == 1) a++;
    return a < t->rank && t->dim[a] == rows ? a : rows == 1 ? MAX(a - 1, 0) : -1;
}

/* ---- exec_mac_i8.c ---- */
an_status mac_i8_make(image *im, mac *m, diag *d) MUST_CHECK;  /* sets m->i8, its kernel and type where it can */
an_status mac_i8_again(image *im, mac *m, diag *d) MUST_CHECK; /* after a reload, before packing */

/* ---- exec_mac_turn.c ---- */
an_status mac_turn_make(image *im, mac *m, diag *d) MUST_CHECK; /* sets m->turn where the product may be one */
void mac_turn_again(image *im, mac *m);                         /* after a reload */
bool mac_turn_holds(const mac *m);
void mac_turn_rows(const product *p);                           /* the sums */

/* ---- exec_mac_vec.c ---- */
an_status mac_vec_make(image *im, mac *m, diag *d) MUST_CHECK;  /* sets m->vec where it can */
an_status mac_vec_again(image *im, mac *m, diag *d) MUST_CHECK; /* after a reload */
bool mac_vec_bytes(const mac *m, size_t *bytes);                /* scratch */
bool mac_vec_alike(const mac *a, const mac *b);                 /* both can meet x in one call */
an_status mac_vec_multiply(const product *p, diag *d) MUST_CHECK;

/* ---- exec_mac_join.c ---- before: the product just before m, of the same B */
bool mac_can_join(const image *im, const mac *before, const mac *m);
void mac_join(image *im, mac *before, mac *m); /* m is laid out and goes through its chain */

/* ---- exec_window.c ---- */
size_t window_a_bytes(const mac *m);
size_t window_b_bytes(const mac *m); /* panels and bounds of a chunk */
void window_pack_a(const mac *m, pool *threads, const void *a, void *packed, float *bound);
void window_multiply(const product *p); /* packs B into the scratch of the slot, then sums */

#endif
