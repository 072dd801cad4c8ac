/* gemm_int.h: what the pieces of the matrix product share: the packed layout, the jobs handed to vector code, a
 * kernel row.
 *
 * Packed operand: panels of `width` lanes (rows of A, columns of B). In a panel, groups of kr consecutive k follow
 * each other; in a group each lane has its kr elements side by side: element (lane, k) is at ((k / kr) * width +
 * lane) * kr + k % kr. Lanes past the matrix and k past the real k, up to a multiple of the kernel's k_align, are
 * zero. */
#ifndef KERNEL_GEMM_INT_H
#define KERNEL_GEMM_INT_H

#include "kernel/kernel.h"

/* How a packed element is stored. */
typedef enum {
    PK_F32,
    PK_F16,
    PK_BF16,
    PK_F32_OF_F16,  /* fp32 holding the fp16 rounding */
    PK_F32_OF_BF16, /* fp32 holding the bf16 rounding */
    PK_I8,
    PK_U8, /* int8 + 128: for instructions that want one unsigned operand */
    PK_I16 /* an int8 value in 16 bits */
} gemm_pk;

static inline int64_t pk_bytes(gemm_pk pk)
{
    return pk == PK_F32 || pk == PK_F32_OF_F16 || pk == PK_F32_OF_BF16 ? 4 : pk == PK_I8 || pk == PK_U8 ? 1 : 2;
}

/* Packs k0..k1 of one panel. */
typedef struct {
    const char *src; /* element (lane 0 of this panel, k = 0) */
    dtype type;
    int64_t lane_stride, k_stride; /* bytes */
    int64_t lanes;                 /* real lanes in this panel, 1..width */
    int64_t k, k0, k1;             /* real k; the range to write, k1 up to the padded k, both multiples of kr */
    int width, kr;
    gemm_pk pk;
    bool past;        /* whole lines, where a form makes such, are written past the caches; fence() after the last */
    const float *inv; /* per lane: multiply before rounding to int8; NULL: the source holds the integers */
    char *dst;        /* panel start */
} pack_job;

/* Writes one finished tile of sums to C. */
typedef struct {
    const char *acc; /* fp32 or int32, rows x ld */
    bool is_int;
    int ld, rows, cols;
    const int32_t *row_fix; /* int: 128 * row_fix[i] is subtracted (PK_U8's offset); NULL: none */
    const float *col_scale; /* int: per column */
    const float *scale, *bias; /* per row */
    bool by_lane;              /* one row, which is a column of C: scale and bias are per lane */
    const float *col_bias;     /* per column */
    gemm_act act;
    bool accumulate;
    dtype c_type;
    char *c;
    const char *residual, *gate, *pass;
    int64_t ldc, ld_residual, ld_gate, ld_pass; /* bytes */
    float above, shut;         /* of pass */
} epi_job;

/* Few columns: panels panel0..panel1 of A, groups of one k, times x. acc: per panel, x n, sums by column: acc[(panel
 * - panel0) * n + j] is a run of `width` rows. The chain of an element is the tile's: k ascending. */
enum { FEW_COLUMNS = 8 };
typedef struct {
    const char *a; /* the first panel */
    int64_t panel_bytes, panels, k, n;
    int width;
    gemm_pk pk;
    const void *x; /* [k, n], rounded to what B is stored as; fp32, but fp16 where B is */
    float *acc;     /* panels x n x ROUND_UP(width, lanes of the vector code) */
} few_job;

/* Columns that are one vector or part of one: rows of A by rows of B as they lie, nothing packed. The chain of an
 * element is the tile's: k ascending. */
typedef struct {
    const float *a;
    int64_t a_row, a_col; /* in elements, as the next two */
    const float *b;
    int64_t b_row, ldc;
    float *c;
    const float *bias; /* per column; NULL: 0 */
    int64_t m, k;
    int n; /* at most `lanes` */
} thin_job;

/* One panel of a right operand of weights: 2^(scale (x - most)) of k rows of `nr` scores each, added to sum and then
 * packed. */
typedef struct {
    const float *x;
    int64_t ld, k; /* elements; k whole groups */
    const float *most; /* per column */
    float scale;
    float *sum; /* per column */
    char *dst;
} weigh_job;

/* The vector code every kernel of one instruction set shares. */
typedef struct {
    void (*pack)(const pack_job *j);
    /* lines written past the caches are seen by who comes after */
    void (*fence)(void);
    void (*absmax)(const pack_job *j, float *out);                            /* per lane, NaN wins; width values */
    void (*expand)(gemm_pk from, const void *src, float *dst, int64_t n);     /* PK_F16 or PK_BF16 to fp32 */
    void (*epilogue)(const epi_job *j);
    void (*weigh)(const weigh_job *j); /* NULL: no such form; for panels of 2 * lanes columns, pairs of bf16 */
    void (*few)(const few_job *j);
    void (*thin)(const thin_job *j);
    /* runs of n, `step` apart, added in order */
    void (*sum)(float *to, const float *from, int64_t step, int64_t parts, int64_t n);
    float (*squares)(const float *c, int64_t ld, int64_t rows, int64_t cols);          /* the sum of them all */
    int lanes;
    bool rightward; /* its kernels' tiles go on with those to the right */
    double (*read)(const void *p, size_t bytes); /* touches every byte at full speed; the sum keeps it honest */
} gemm_vec;

/* One tile: to[rows, cols] = from + the product of two panels over k. A kernel may compute and write the whole mr x
 * nr tile: `to` is scratch, or C itself when all of it is real. ahead: what to ask memory for meanwhile, step bytes
 * per k unit: the next pieces of A and B come from far away once, and would be waited for. */
typedef struct {
    int64_t k;           /* a multiple of k_align */
    const char *a, *b;   /* 64-byte aligned, but not a B that was not packed */
    /* bytes between rows of an A that is read where it lies; 0: a packed one, as any but an AMX tile's */
    int64_t a_row;
    int64_t b_step;      /* bytes of B from one k unit to the next; only tiles of fp32 look, the others know it */
    const char *from;    /* sums so far, rows of nr; NULL: zero */
    char *to;
    int64_t to_ld;       /* bytes; nr * 4 in scratch */
    int rows, cols;
    struct {
        const char *at;
        int64_t step;
    } ahead[2];
    /* ahead[0] goes to the second cache: it is packed from there, or would push out what the first one holds */
    bool far;
    /* rows of C this tile ends in, NULL: not at this step. Asked for bit by bit: a burst of misses, or of stores that
     * miss, would leave the loads of B no way to the cache. */
    const char *c;
    int64_t c_ld;  /* bytes */
    int c_wide;    /* bytes of a row of it */
    const char *beside; /* rows that are combined with those of C, asked for likewise; NULL: none */
    int64_t beside_ld;
    /* A kernel that finishes: sums less 128 * row_fix[i] (NULL: 0), as fp32, times col_scale[j], times row_scale[i]
     * (NULL: 1) are what goes to `to`, bit for bit as the epilogue has it. col_scale NULL: the sums go. */
    const float *col_scale, *row_scale;
    const int32_t *row_fix;
    /* Whole tiles to the right of this whole one, done likewise: bytes from one to the next. `from` goes on with the
     * next tile of scratch, C, what lies beside it and the scales with the next columns. Only kernels whose vector code
     * is `rightward` are given any. */
    struct {
        int64_t tiles, b, to, near1; /* near1: of ahead[1] */
    } right;
} tile_job;

typedef void gemm_tile(const tile_job *t);

/* On to the next tile on the right; sums: bytes of one in scratch, units: of k. */
static inline void tile_go_right(tile_job *t, int nr, int64_t sums, int64_t units)
{
    t->b += t->right.b, t->to += t->right.to;
    if (t->from) t->from += sums;
    if (t->c) t->c += t->c_wide;
    if (t->beside) t->beside += t->c_wide;
    if (t->col_scale) t->col_scale += nr;
    t->ahead[0].at += units * t->ahead[0].step, t->ahead[1].at += t->right.near1;
}

struct gemm_kernel {
    const char *name;
    gemm_math math;
    uint32_t need;
    int mr, nr, k_align, kc; /* kc: how much k is multiplied before moving on; a multiple of k_align */
    gemm_pk a_pk;
    int a_kr;
    gemm_pk b_pk;
    int b_kr;
    bool fast;   /* unfinished sums of a whole block passing through memory would be felt */
    bool expand; /* the tile reads A as fp32: a panel is widened just before use */
    bool finishes; /* the tile scales int32 sums itself: they need not pass through memory */
    gemm_tile *tile;
    const gemm_vec *vec;
    void (*begin)(void), (*end)(void);                                  /* around a thread's tiles, or NULL */
    void (*row_sum)(int64_t k, const void *panel, int32_t *out);        /* per lane of a PK_I8 panel, or NULL */
};

#define GEMM(id, math, need, mr, nr, kc, a_pk, a_kr, b_pk, b_kr, k_align, fast, expand, finishes, tile, vec, begin, end, row_sum)          \
    gemm_tile tile;
#include "kernel/gemm.def"
#undef GEMM

#if defined(__GNUC__)
#define PREFETCH(p) __builtin_prefetch((p), 0, 2)
#define PREFETCH_NEAR(p) __builtin_prefetch((p), 0, 3)
#define PREFETCH_W(p) __builtin_prefetch((p), 1, 3)
#else
#define PREFETCH(p) ((void)(p))
#define PREFETCH_NEAR(p) ((void)(p))
#define PREFETCH_W(p) ((void)(p))
#endif

extern const gemm_vec vec_scalar;
#if defined(__x86_64__)
extern const gemm_vec vec_avx2, vec_avx512, vec_avx512bf16;
void row_sum_14_vnni(int64_t k, const void *panel, int32_t *out);
void amx_begin(void);
void amx_end(void);
#elif defined(__aarch64__)
extern const gemm_vec vec_neon, vec_bf16;
void few_f16_fp16(const few_job *j); /* where the tile multiplies fp16 as it is */
#endif

#endif
