/* exec_attend_int.h: the ways of attention on the plain processor. Private to engine/.
 *   exec_attend.c          masks, positions: a query is a row
 *   exec_attend_few.c      one or a few queries with positions: the next tokens of a text
 *   exec_attend_columns.c  many queries without a mask but causal, or with positions one after the other: a query is a
 * column */
#ifndef ENGINE_EXEC_ATTEND_INT_H
#define ENGINE_EXEC_ATTEND_INT_H

#include "engine/exec_int.h"

typedef struct {
    int64_t stacks, rows, keys, inner, cols; /* stacks of q [rows, inner], k [keys, inner], v [keys, cols] */
    const int64_t *q_off, *k_off, *v_off;    /* per stack, in elements; they outlive the image's instructions */
    bool causal;
    bool turned; /* q and the result are [inner, rows] and [cols, rows] */
    /* the program's own products are of bf16 numbers, or it was told so: weights are rounded to bf16 before they meet
     * v, as softmax's result is */
    bool bf16;
    float scale;
} attend_shape;

typedef struct attend_columns attend_columns;
/* *out stays NULL where this way has no advantage or no form. */
an_status attend_columns_make(image *im, const insn *in, const attend_shape *a, attend_columns **out, diag *d)
    MUST_CHECK;
/* first: the position of query 0, counted among the keys, with causal; the others follow. */
an_status attend_columns_run(const run_ctx *c, const insn *in, const attend_columns *s, int64_t first, diag *d)
    MUST_CHECK;

typedef struct attend_few attend_few;
an_status attend_few_make(image *im, const insn *in, const attend_shape *a, attend_few **out, diag *d) MUST_CHECK;
void attend_few_run(const run_ctx *c, const attend_few *s);

#endif
