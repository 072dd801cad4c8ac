/* gemm_t.h: matrices and products for tests of the matrix kernels.
 *   matrix a = matrix_make(&r, DT_F32, m, k, 0);      void *pa = pack(g, NULL, m, k, &a);      run(&call, 0); */
#ifndef TESTS_GEMM_T_H
#define TESTS_GEMM_T_H

#include "kernel/kernel.h"
#include "t.h"

typedef struct {
    dtype type;
    int64_t row, col;
    size_t n; /* elements allocated */
    void *at;
} matrix;

static inline void *must(void *p)
{
    assert_non_null(p);
    return p;
}

static inline void *aligned(size_t n) { return must(aligned_alloc(64, ROUND_UP(n, 64))); }

/* layout 0: row-major, 1: column-major, 2: both strides larger than one. Exact allocation: overruns are seen by
 * ASan. */
static inline matrix matrix_make(rng *r, dtype t, int64_t rows, int64_t cols, int layout)
{
    matrix m = { .type = t };
    int64_t gap = (int64_t)rng_below(r, 3);
    m.row = layout == 0 ? cols + gap : layout == 1 ? 1 : 2 * cols + 3;
    m.col = layout == 0 ? 1 : layout == 1 ? rows + gap : 2;
    m.n = (size_t)((rows - 1) * m.row + (cols - 1) * m.col + 1);
    size_t bytes;
    assert_true(dtype_bytes(t, (int64_t)m.n, &bytes));
    m.at = must(malloc(bytes));
    for (size_t i = 0; i < m.n; i++)
        dtype_store(t, m.at, (int64_t)i, t == DT_I8 ? (double)rng_below(r, 256) - 128 : rng_normal(r));
    return m;
}

static inline double at(const matrix *m, int64_t i, int64_t j)
{
    return dtype_load(m->type, m->at, i * m->row + j * m->col);
}

static inline dtype math_type(gemm_math m) { return m == GEMM_F16 ? DT_F16 : m == GEMM_BF16 ? DT_BF16 : DT_F32; }

static inline void *pack(const gemm_kernel *g, pool *pl, int64_t m, int64_t k, const matrix *a)
{
    size_t n;
    diag d = { 0 };
    assert_true(gemm_pack_a_bytes(g, m, k, &n));
    void *out = aligned(n);
    memset(out, 0xff, ROUND_UP(n, 64)); /* padding must be written, not inherited */
    assert_ok(gemm_pack_a(g, pl, m, k, (gemm_view){ a->at, a->type, a->row, a->col }, out, &d), d);
    return out;
}

/* skew: how far the scratch memory is from where malloc put it. */
static inline void run(const gemm_call *call, size_t skew)
{
    gemm_call c = *call;
    diag d = { 0 };
    assert_true(gemm_scratch_bytes(c.kernel, c.m, c.n, c.k, pool_threads(c.pool), &c.scratch_bytes));
    char *s = must(malloc(c.scratch_bytes + skew));
    memset(s, 0xff, c.scratch_bytes + skew);
    c.scratch = s + skew;
    assert_ok(gemm_run(&c, &d), d);
    free(s);
}

/* What this CPU has, and AN_ISA leaves. */
static inline uint32_t have(void)
{
    uint32_t isa;
    diag d = { 0 };
    assert_ok(isa_have(&isa, &d), d);
    return isa;
}

#endif
