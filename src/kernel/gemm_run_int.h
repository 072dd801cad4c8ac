/* gemm_run_int.h: the ways of multiplying that gemm.c chooses among, and what they share. */
#ifndef KERNEL_GEMM_RUN_INT_H
#define KERNEL_GEMM_RUN_INT_H

#include "kernel/gemm_pack_int.h"

enum {
    FEW_ROWS = 112,  /* of A: packing fp32 costs more than steps through memory */
    ROWS_AHEAD = 32, /* of a B read as it is */
    LEAST_LANES = 8, /* of vectors that are worth the thin ways */
    THIN_ROWS = 64,  /* of a task of theirs */
    GROUP_STEP = 64, /* of k, a multiple of every kr: so much of a group's panel is packed before its neighbour's */
};

static inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Tiles whose sums of one step wait for each other, where a call does several: few bytes beside a panel of A. */
static inline int64_t row_tiles(const gemm_kernel *g)
{
    enum { SUMS = 3072 };
    return MAX(SUMS / (g->mr * g->nr * 4), 1);
}

/* k from k0 of a panel of A (not packed ahead) or B, in the form the tile reads: from..to of the piece's kn. */
void pack_part(const gemm_call *c, bool is_a, int64_t panel, int64_t k0, int64_t kn, int64_t from, int64_t to,
               char *piece);

/* fix: row sums of panel i of A, where the kernel has them; scales: of panel j of B, counted in all of it, int8. */
void finish_tile(const gemm_call *c, int64_t i, int64_t j, const char *acc, const int32_t *fix, const float *scales);
/* The same of any rows of C, from column c0: ld columns, a row of the sums, or those that are left. */
void finish_rows(const gemm_call *c, int64_t r0, int64_t high, int64_t c0, int64_t ld, const char *acc,
                 const int32_t *fix, const float *scales);

/* Sums of C that are C. */
bool is_plain(const gemm_call *c);

/* Few columns: A passes by once, at memory speed. */
size_t few_bytes(const gemm_kernel *g, int64_t n, int64_t k, int n_threads);
an_status run_few(const gemm_call *c, diag *d) MUST_CHECK;

/* Columns of a vector or less: nothing is packed, and no scratch is needed. */
bool thin_fits(const gemm_call *c);
void run_thin(const gemm_call *c);

/* A k of a vector or less: nothing but a panel of B is packed, and no scratch is needed. */
bool short_fits(const gemm_call *c);
void run_short(const gemm_call *c);

/* By parts of k: each part's sums, then their sum. as_is: nothing of B is packed. */
bool parts_bytes(const gemm_kernel *g, int64_t m, int64_t n, int64_t k, int n_threads, size_t *bytes) MUST_CHECK;
an_status run_parts(const gemm_call *c, bool as_is, diag *d) MUST_CHECK;

/* Both operands packed, one thread. */
an_status run_near(const gemm_call *c, diag *d) MUST_CHECK;

#endif
