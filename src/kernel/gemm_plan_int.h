/* gemm_plan_int.h: how a product is cut. */
#ifndef KERNEL_GEMM_PLAN_INT_H
#define KERNEL_GEMM_PLAN_INT_H

#include "kernel/gemm_run_int.h"

/* How C is cut: stripes, each of m_parts x n_parts parts of whole panels; a thread claims several parts, one below
 * the other, or, towards the end, a cut of one. */
typedef struct {
    packed_layout a;
    packed_layout b; /* of a full stripe, or a full slab of it */
    int64_t kc, k_steps, stripes, stripe_panels, n_panels, m_parts, n_parts, b_copies;
    int64_t slabs, slab_steps; /* a stripe is packed and multiplied so many steps of k at a time: a slab of it */
    int cut_bits;  /* a part has 1 << cut_bits cuts */
    int64_t group; /* panels of A packed together in passing */
    int64_t first; /* panels of A that pass by together while B is packed for the first time; 1: none do */
    bool deep, lazy;
    bool by_columns; /* each thread has columns of its own, and all of A */
    bool own; /* lazy: each thread packs a B of its own */
    /* per thread: pieces of A just widened or packed and their row sums, unfinished sums */
    size_t piece_bytes, sums_bytes;
    size_t stripe_sums; /* unfinished sums of all threads, between slabs */
    /* bytes of one piece; where behind the pieces the row sums of a block's panels are */
    size_t each, fix_at;
    size_t mark_bytes;              /* lazy: which pieces of the stripe are there, of each copy of B */
    size_t bytes;
} plan;

/* A piece of B: not there, being packed, packed. */
typedef _Atomic unsigned char mark;
enum { MISSING, UNDER_WAY, PACKED };

/* How A comes: packed ahead, or as it lies, its k or its rows side by side. */
typedef enum { A_PACKED, A_RUNS, A_LANES, A_WAYS } a_way;

a_way gemm_way(const gemm_call *c);
/* rows: those of B are rows of memory. */
bool plan_make(const gemm_kernel *g, int64_t m, int64_t n, int64_t k, int n_threads, a_way way, bool rows, plan *out)
    MUST_CHECK;

/* A product that one thread of a fast kernel is through with before a second one is at work. */
bool gemm_alone(const gemm_kernel *g, int64_t m, int64_t n, int64_t k);

#endif
