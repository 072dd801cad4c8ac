/* exec_columns.h: softmax and norms down columns on the plain processor, for exec_lines.c. */
#ifndef ENGINE_EXEC_COLUMNS_H
#define ENGINE_EXEC_COLUMNS_H

#include "engine/exec_int.h"

enum { COLUMNS_PARAMS = 2 }; /* gain, bias */

typedef struct {
    /* given: x and y seen as [outer, n, inner], fp32 or fp16 */
    const exec_env *env;
    int64_t x, y, outer, n, inner;
    dtype tx, ty;
    bool exps;                     /* softmax, else a norm: */
    norm_kind kind;
    float eps;
    int64_t par[COLUMNS_PARAMS];   /* an element per row; -1: none */
    dtype par_t[COLUMNS_PARAMS];
    bool stream;                   /* y is so large that it is written past the caches */
    /* planned */
    bool exps_kept;                /* those of a softmax stay in scratch, in the second cache, until they are written */
    int64_t block, per_outer;      /* columns of a block, blocks of a plane */
    int64_t group, tasks;          /* blocks of a task: a range, or, where y passes the caches, as they come */
    size_t each;                   /* scratch of a thread */
} columns;

/* Mean and scale in double of a line whose squares leave fp32: n elements from x on, `step` apart. */
double norm_wide(norm_kind kind, float eps, dtype t, const void *x, int64_t first, int64_t step, int64_t n,
                 double *mean);
void columns_plan(columns *k);
void columns_run(const run_ctx *c, const columns *k);

#endif
