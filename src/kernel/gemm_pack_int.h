/* gemm_pack_int.h: where things are inside a packed operand. */
#ifndef KERNEL_GEMM_PACK_INT_H
#define KERNEL_GEMM_PACK_INT_H

#include "kernel/gemm_int.h"

enum {
    ALIGN = 64,      /* of packed operands and of what lies in scratch */
    MOST_WIDTH = 64, /* lanes of a panel, of any row of gemm.def */
};

typedef struct {
    int width, kr;
    gemm_pk pk;
    int64_t panels, k_pad, panel_bytes;
    size_t extra; /* offset of the row sums (A) or column scales (B), one per lane of all panels */
    size_t bytes;
} packed_layout;

/* A packing under way: tasks 0..n_tasks-1 of pack_task, in any order, on any threads. */
typedef struct {
    const gemm_kernel *g;
    packed_layout l;
    pack_job job; /* of panel 0, all k */
    int64_t lanes, group, cuts, k_cut, k_step; /* a task: group panels by k_cut, walked k_step at a time */
    int32_t *row_sum;
    float *col_scale;
    int64_t n_tasks;
} pack_ctx;

static inline int64_t view_bytes(dtype t) { return t == DT_F32 ? 4 : t == DT_I8 ? 1 : 2; }

bool pack_layout(const gemm_kernel *g, bool is_a, int64_t lanes, int64_t k, packed_layout *out) MUST_CHECK;
bool pack_begin(pack_ctx *x, const gemm_kernel *g, bool is_a, int64_t lanes, int64_t k, gemm_view v, void *out)
    MUST_CHECK;
pool_fn pack_task;                                                         /* ctx is a pack_ctx */
void pack_panel(const pack_ctx *x, int64_t panel, int64_t k0, int64_t k1); /* sums and scales: k0 0, k1 the padded k */

/* n panels of int8 and their scales, some rows of all of them at a time; k is not 0. */
enum { BESIDE = 8 }; /* at most */
void pack_beside(const pack_ctx *x, int64_t panel, int64_t n);

#endif
