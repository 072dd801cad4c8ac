/* ref_int.h: what the reference files share beyond engine_int.h. Private to engine/. */
#ifndef ENGINE_REF_INT_H
#define ENGINE_REF_INT_H

#include "engine/engine_int.h"

/* A chain bound to its operand tensors. With a port, input 0 is the accumulator and the tensors follow it. */
typedef struct {
    const numerics *num;
    chain ch;
    bool port;
    int rank; /* of y */
    int64_t n;
    double **x;
    int64_t (*stride)[ENGINE_MAX_RANK];
    double *value;
} chain_in;
an_status chain_open(const run_ctx *c, const insn *in, const char *list, bool port, chain_in *ci, diag *d) MUST_CHECK;
/* at place idx of y */
an_status chain_at(const chain_in *ci, const int64_t *idx, double acc, double *result, diag *d) MUST_CHECK;

/* In place: x - max, exp, sum in fp32 ascending, divide; each rounded to t on a chip. */
void ref_softmax_line(const numerics *num, dtype t, double *v, int64_t n);

#endif
