/* exec_chain_int.h: a prepared chain, shared by the two ways to run one: whole blocks operation by operation
 * (exec_chain.c), and tiles that stay in registers (exec_tape.c). */
#ifndef ENGINE_EXEC_CHAIN_INT_H
#define ENGINE_EXEC_CHAIN_INT_H

#include "engine/exec_int.h"

typedef enum { OP_READ, OP_VECTOR, OP_TABLE, OP_ROUND, OP_SCALAR } op_kind;
typedef struct {
    op_kind kind;
    int y, a, b, c;      /* registers */
    vec_fn vf;           /* VECTOR */
    const vec_table *table;
    int how;             /* ROUND */
    fn_id f;             /* SCALAR */
    dtype t;
    const double *param; /* SCALAR */
    float p[2];
    int input;           /* READ */
} chain_op;

enum { CHAIN_REGS = 64 };

typedef struct exec_tape exec_tape;

struct exec_chain {
    const exec_env *env;
    const numerics *num;
    bool port;
    int n_in, n_ops, n_reg, n_out;
    exec_walk *in; /* without the accumulator */
    chain_op *ops;
    int64_t n_steps;
    struct {
        int64_t y;    /* tensor */
        dtype t;
        int reg;
        int how;      /* rounding before the store; 0: none or the store's own */
        bool stream;  /* large enough to go past the caches */
        bool late;    /* a port, of so many that it is gone from them when it is read by the next dispatch */
        int old;      /* input it stays when the step does not count */
    } out[CHAIN_MOST_RESULTS];
    int when;         /* input that says whether anything changes; -1: it does */
    float flush, ceiling; /* 0: none */
    const exec_tape *tape; /* NULL: only operation by operation */
};

/* Written over an operand, a line is in the cache already: past it only where none is. */
bool exec_chain_past(const exec_chain *ch, const run_ctx *c, int out);

/* ch->tape, where every operation has a place on one; AN_OK without a tape too. */
an_status exec_tape_make(image *im, exec_chain *ch, diag *d) MUST_CHECK;
size_t exec_tape_bytes(const exec_chain *ch); /* scratch of one thread */
void exec_tape_run(const exec_chain *ch, const run_ctx *c, const float *acc, int64_t at, int64_t n, void *scratch);

#endif
