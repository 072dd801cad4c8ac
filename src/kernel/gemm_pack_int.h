/* gemm_pack_int.h: where things are inside a packed operand. */
#ifndef KERNEL_GEMM_PACK_INT_H
#define KERNEL_GEMM_PACK_INT_H

#include "kernel/gemm_int.h"

typedef struct {
    int width, kr;
    gemm_pk pk;
    int64_t panels, k_pad, panel_bytes;
    size_t extra; /* offset of the row sums (A) or column scales (B), one per lane of all panels */
    size_t bytes;
} packed_layout;

bool pack_layout(const gemm_kernel *g, bool is_a, int64_t lanes, int64_t k, packed_layout *out) MUST_CHECK;
void pack_view(const gemm_kernel *g, bool is_a, pool *p, int64_t lanes, int64_t k, gemm_view v, void *out);

#endif
