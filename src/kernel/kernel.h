/* kernel.h: the fast loops, chosen for this CPU at run time. Pointers, strides and counts in; no graph, no allocation.
 *
 * Matrix product: C[M,N] = A[M,K] · B[K,N] with an epilogue. A is packed ahead (weights: packed once, used often), B is
 * packed inside the call. Both take any row and column stride, so W·x, Wᵀ·dy and dy·xᵀ are the same call.
 *
 *     const gemm_kernel *k = gemm_pick(GEMM_F16, isa);
 *     gemm_pack_a_bytes(k, M, K, &na);            a = 64-byte aligned memory of na bytes
 *     gemm_pack_a(k, pool, M, K, (gemm_view){ .at = W, .type = DT_F16, .row = K, .col = 1 }, a, d);
 *     gemm_scratch_bytes(k, M, N, K, pool_threads(pool), &ns);
 *     gemm_run(&(gemm_call){ .kernel = k, .pool = pool, .m = M, .n = N, .k = K, .a = a, .b = {...}, .c = y, ... }, d);
 *
 * Summation: each element of C is one chain over k, ascending; a kernel whose instruction adds groups of k at once
 * says so in gemm.def. Neither the thread count nor the shape changes that order: results are bit-identical for any
 * pool, and a column or row of C does not depend on its neighbours. One exception: rows of an A that was not packed
 * ahead, few or (bf16) far fewer than k, are summed in parts of k, which depend on m and k alone. */
#ifndef KERNEL_KERNEL_H
#define KERNEL_KERNEL_H

#include "base/dtype.h"
#include "base/pool.h"

/* ---- instruction sets ---- */
enum {
#define ISA(id, name, what) ISA_BIT_##id,
#include "kernel/isa.def"
#undef ISA
    ISA_COUNT
};
enum {
    ISA_NONE = 0,
#define ISA(id, name, what) ISA_##id = 1 << ISA_BIT_##id,
#include "kernel/isa.def"
#undef ISA
};

uint32_t isa_cpu(void); /* all this CPU and system offer; asks the system for AMX */
an_status isa_have(uint32_t *have, diag *d) MUST_CHECK; /* the same, cut down by AN_ISA=scalar|<row of isa.def> */
const char *isa_name(int bit);                          /* NULL past the last row */
const char *isa_what(int bit);
size_t cpu_l1_bytes(void); /* of data */
size_t cpu_l2_bytes(void); /* sizes the blocking. Both may be guesses, which cost speed, or a fair measure, only */

/* ---- matrix product ---- */

/* What is multiplied. Operands of any float type are rounded to nearest even into it when packed. */
typedef enum {
    GEMM_F32,  /* fp32 products, fp32 sums */
    GEMM_F16,  /* operands fp16, products exact, fp32 sums */
    GEMM_BF16, /* operands bf16, products exact or fp32, fp32 sums */
    GEMM_I8,   /* A int8 as given, B quantised per column to [-127,127] (scale: largest magnitude / 127), int32 sums */
    GEMM_MATHS
} gemm_math;

/* Accuracy of the vector forms, against the exact function of the fp32 argument: sigmoid and tanh 4 ulp; silu 5 ulp;
 * gelu_tanh 6 ulp above -1, |x| · 4e-7 absolute below; for a C of fp16 or bf16 with nothing to add, sigmoid and
 * those made of it 7e-5 of themselves, or zero where that is below 1e-30. Infinities give the limit, NaN gives NaN. relu
 * is exact and gives no -0. */
typedef enum { ACT_NONE, ACT_RELU, ACT_SILU, ACT_GELU_TANH, ACT_SIGMOID, ACT_TANH, ACT_COUNT } gemm_act;

typedef struct gemm_kernel gemm_kernel;

const gemm_kernel *gemm_pick(gemm_math m, uint32_t isa); /* the best row; never NULL */
const gemm_kernel *gemm_row(size_t i);                   /* NULL past the last row of gemm.def */
const char *gemm_name(const gemm_kernel *k);
gemm_math gemm_math_of(const gemm_kernel *k);
uint32_t gemm_need(const gemm_kernel *k);
const char *gemm_math_name(gemm_math m);

typedef struct {
    const void *at;
    dtype type;       /* A: F32 F16 BF16 I8 (GEMM_I8: I8 only); B: F32 F16 BF16 */
    int64_t row, col; /* strides in elements */
} gemm_view;

/* v = act(scale[i] · (A·B)[i,j] + bias[i] + col_bias[j]), times silu(gate[i,j]), or pass.shut where pass.at[i,j] is not
 * above pass.above; C = v, + residual[i,j], + the old C; all in fp32, rounded once to C's type. */
typedef struct {
    const float *scale, *bias; /* per row of C; NULL: 1, 0 */
    const float *col_bias;     /* per column of C; NULL: 0 */
    const void *residual;      /* C's type, or NULL; may be C itself */
    int64_t ld_residual;
    const void *gate; /* C's type, or NULL */
    int64_t ld_gate;
    struct {
        const void *at; /* C's type; NULL: everything passes */
        int64_t ld;
        float above, shut;
    } pass;
    gemm_act act;
    bool accumulate;
} gemm_epilogue;

/* A further packed A that meets the B of a call, where that has few columns: one region reads them all. Its sums as
 * they are: rows of n. */
enum { GEMM_MORE = 3 };
typedef struct {
    const void *a; /* as that of the call */
    int64_t m;
    float *c;
} gemm_more;

typedef struct {
    const gemm_kernel *kernel;
    pool *pool; /* NULL: this thread */
    int64_t m, n, k;
    const void *a;    /* from gemm_pack_a with the same kernel and k, and m rows or more (GEMM_I8: m); or NULL: */
    /* k of the packed A, when the product takes only its beginning; 0: k. Not for GEMM_I8, and k as gemm_can_begin
     * says */
    int64_t a_k;
    /* A as it stands, packed piece by piece, again for each stripe of B: faster for an A used once with k up to some
     * hundreds (dW of a small batch) */
    gemm_view a_view;
    gemm_view b;
    /* from gemm_pack_b with the same kernel, n columns or more, and then A is packed too: a small product on this
     * thread. Not for GEMM_I8 */
    const void *b_packed;
    int64_t b_k;          /* as a_k */
    /* the call before on this scratch had this kernel, pool, m, n, k and B, and A in the same way: what it packed of B
     * is used again */
    bool same_b;
    void *c;
    dtype c_type; /* F32 F16 BF16 */
    int64_t ldc;
    gemm_epilogue epi;
    gemm_more more[GEMM_MORE];
    int n_more; /* only where gemm_few says so */
    /* A product by parts of k (gemm_by_parts) hands on rows of C that are finished, while they are near; others do
     * not. NULL: nobody waits. */
    void (*rows_done)(void *user, int64_t row, int64_t rows, int thread);
    void *user;
    /* of each tile of C, row of tiles after row: the sum of the squares of its elements as they were stored; gemm_tiles
     * of them. They depend on the kernel and the sizes alone. Only for a C of fp32; NULL: not wanted */
    float *squares;
    void *scratch;
    size_t scratch_bytes;
} gemm_call;

/* The kernel for an A that is packed for one product: k, or one of the same bits whose A takes more memory
 * and less time. */
const gemm_kernel *gemm_once(const gemm_kernel *k, int64_t m, int64_t n, int64_t kk);
/* false: sizes are negative or overflow. int8 sums hold k up to 65536. */
bool gemm_pack_a_bytes(const gemm_kernel *k, int64_t m, int64_t kk, size_t *bytes) MUST_CHECK;
bool gemm_scratch_bytes(const gemm_kernel *k, int64_t m, int64_t n, int64_t kk, int n_threads, size_t *bytes)
    MUST_CHECK;
an_status gemm_pack_a(const gemm_kernel *k, pool *p, int64_t m, int64_t kk, gemm_view a, void *out, diag *d) MUST_CHECK;
/* The same, written past the caches: one of so many weights that none of them is still there when it is used. */
an_status gemm_pack_a_past(const gemm_kernel *k, pool *p, int64_t m, int64_t kk, gemm_view a, void *out, diag *d)
    MUST_CHECK;
int64_t gemm_tiles(const gemm_kernel *g, int64_t m, int64_t n); /* of a C of so many rows and columns */
/* are n columns few: a packed A passes by once, its rows are the lanes */
bool gemm_few(const gemm_kernel *g, int64_t n);
/* are n columns a vector or less, so that fp32 operands are multiplied as they lie? */
bool gemm_thin(const gemm_kernel *g, int64_t n);
/* is k a vector or less and C small, so that rows of an fp32 A are multiplied as they lie? */
bool gemm_short(const gemm_kernel *g, int64_t m, int64_t n, int64_t k);
/* The right operand ahead, for many small products by the same one: attention's keys and values. Their scratch is
 * smaller. */
bool gemm_pack_b_bytes(const gemm_kernel *k, int64_t n, int64_t kk, size_t *bytes) MUST_CHECK;
an_status gemm_pack_b(const gemm_kernel *k, pool *p, int64_t n, int64_t kk, gemm_view b, void *out, diag *d) MUST_CHECK;
/* The same of exp(scale (x - most)) of an x of n fp32 columns and kk rows, most and sum per column; what is packed,
 * before it is rounded, is added to sum. Relative error 2.6e-6 beside that of the exponent. false: this kernel has
 * no form for it, and nothing was written. */
bool gemm_pack_weights(const gemm_kernel *k, int64_t n, int64_t kk, const float *x, const float *most, float scale,
                       float *sum, void *out) MUST_CHECK;
/* grows with n and kk, and serves any smaller ones */
bool gemm_packed_scratch_bytes(const gemm_kernel *k, int64_t n, int64_t kk, size_t *bytes) MUST_CHECK;
/* may a product over k take the beginning of an A, or a B, packed with a_k? */
bool gemm_can_begin(const gemm_kernel *g, int64_t k, int64_t a_k);
/* will k be cut in parts, if A is not packed ahead and B's columns are side by side? */
bool gemm_by_parts(const gemm_kernel *g, int64_t m, int64_t k);
/* is an A that changes better packed in passing than ahead? */
bool gemm_passes(const gemm_kernel *g, int64_t m, int64_t n, int64_t k, int n_threads, gemm_view a);
an_status gemm_run(const gemm_call *c, diag *d) MUST_CHECK;

/* ---- what this CPU can do, measured now ---- */

/* Something to run again and again: a row's inner loop with both operands in L1 (in 1e9 multiply-adds times two per
 * second), or bytes read, or copied (counted read and written), over one buffer of that size; twice: copied block by
 * block, each read to its end before any of it is written, and counted as if it were read once. NULL: no memory. */
typedef struct peak_meter peak_meter;
enum { PEAK_FAR = 256 << 20 }; /* far larger than the caches of most */
peak_meter *peak_gemm(const gemm_kernel *k, pool *p, int n_threads);
peak_meter *peak_read(pool *p, int n_threads, size_t bytes);
peak_meter *peak_copy(pool *p, int n_threads, size_t bytes);
peak_meter *peak_twice(pool *p, int n_threads, size_t bytes, size_t block);
double peak_rate(peak_meter *x); /* of one run, a fraction of a millisecond or one pass over the buffer, per ns */
void peak_free(peak_meter *x);

#endif
