/* vector.h: loops over fp32 vectors in cache, and the kernels of devices that do not add as this CPU does.
 *
 * A caller works in blocks of some hundred elements: load into fp32, call functions, round, store. Everything marked
 * exact in vector.def, every conversion and every kernel below gives the same bits on every instruction set, so
 * which one was picked is a matter of speed. Buffers of floats are any alignment; x and y of one call may be the
 * same buffer, not shifted ones. */
#ifndef KERNEL_VECTOR_H
#define KERNEL_VECTOR_H

#include "base/dtype.h"
#include "kernel/kernel.h"

typedef enum {
#define VEC_FN(id, operands, params, ulp, what) VF_##id,
#include "kernel/vector.def"
#undef VEC_FN
    VF_COUNT
} vec_fn;

typedef void vec_run(float *y, const float *a, const float *b, const float *c, const float *p, int64_t n);

/* How a block of results is rounded, in this order: NaN to 0 (CHIP), to nearest even, a tie away from zero (AWAY),
 * -0 to +0 (CHIP). A target type of fp32 leaves values as they are. */
enum { VR_F16 = 1, VR_BF16 = 2, VR_BOOL = 4, VR_CHIP = 8, VR_AWAY = 16 };

/* A function as lines between 33 knots. x at or below x_lo gives y_lo, at or above x_hi gives y_hi; in between the
 * family says how x becomes a place t among the knots. All of it in fp32, one rounding per operation. */
typedef enum { VT_SIDES, VT_LINES, VT_FRACTION, VT_WHOLE, VT_ROOT, VT_INV_ROOT, VT_INV, VT_LOG2, VT_EXP2 } vec_family;
typedef struct {
    vec_family family;
    bool odd;      /* f(-x) = -f(x): only x >= 0 is in the table */
    bool positive; /* x below 0 gives 0 */
    float x_lo, x_hi, y_lo, y_hi;
    float below[2], above[2]; /* slope and offset past the first and last knot; LINES: of the two sides of 0 */
    /* SIDES: t = unit * x + first; the others: t = unit * mantissa or fraction (- 32: INV, LOG2) */
    float unit, first;
    float knot[32], rise[32];
} vec_table;

/* One pass of a four-lane adder with a window: for each row and column, tiles of four products in ascending k; in a
 * tile both operands of an addition are rounded to a multiple of 2^(e - bits + 1), e the exponent of the larger, and
 * nothing after it; tiles are added to an fp32 sum. With `full`, what has no value is 0, and where a finite sum, or
 * tile while the sum is finite, reaches `ceiling` after any addition the result is infinite, with the sign of the
 * first that did; without it operands are finite and no sum reaches the ceiling. a: panels of WINDOW_ROWS rows, b:
 * panels of window_cols columns, both k-major fp32, k a multiple of 4 (padded with zeros). */
enum { WINDOW_ROWS = 4 };
typedef struct {
    const float *a, *b;
    int64_t k;
    int bits;      /* 4 .. 20 */
    bool full;
    float ceiling; /* infinity: none */
    float *c;      /* WINDOW_ROWS rows of ldc */
    int64_t ldc;
    int rows, cols; /* of C to write */
} window_job;

/* MOST: MAX that may lose a NaN */
typedef enum { STAT_SUM, STAT_SQUARES, STAT_ABS, STAT_MAX, STAT_MIN, STAT_MOST } vec_stat;

/* y = (x - mean) * scale * gain + bias; without a gain or bias they do not count. */
typedef struct {
    const float *mean, *scale; /* affine_rows: per column; mean NULL: 0 */
    const float *gain, *bias;  /* affine: per column; affine_rows: per row */
    float mean_1, scale_1;     /* affine */
    /* past the caches, as .stream below; y and its rows begin at multiples of VEC_LINE bytes */
    bool stream;
    int64_t ahead;             /* what lies so many bytes behind x is asked for, to the first cache */
    /* affine_rows: so many bytes behind y will be written, and another's cache may have it; 0: nothing is asked for */
    int64_t own;
    /* Leave to multiply in fp16, from fp16 to fp16 without mean and bias, where gains are finite fp16 numbers and x *
     * scale is finite in fp16, as in a norm. affine: the gain as fp16; affine_rows, turns: the scale as `parts` made it,
     * none of them 0. NULL: there is none. */
    const void *gain_f16, *scale_f16[2];
} vec_affine;

/* Pairs of rows turned by an angle per column. */
typedef struct {
    dtype y, x, table;
    bool back;
    float scale;
} vec_turn;

enum { VEC_LINE = 64 /* bytes of a line of the caches */, VEC_BAND = 8 };

/* A chain as a list of acts on a tile of elements, x, that stays in registers. A function (a code below VF_COUNT)
 * makes x of x, of the fp32 elements at `at` when it has a second operand, and of those at `z` when it has a third.
 * The others load x from `at` or set it to p[0], combine it with fp16 elements at `at`, make fp32 of elements there
 * and leave it at `z`, or store x at `at`: as a type, or past the caches to an address that is a multiple of
 * VEC_LINE. ASK asks memory for the elements of so many bytes that lie VEC_ASK_FAR bytes behind `at`, and the second
 * cache for those VEC_ASK_NEAR bytes behind it. */
enum { VEC_ASK_FAR = 8192, VEC_ASK_NEAR = 2048 };
typedef enum {
    VA_ASK_4 = VF_COUNT, VA_ASK_2, VA_ASK_1, VA_X_F32, VA_X_F16, VA_X_BF16, VA_X_BOOL, VA_X_ONE,
    VA_ADD_F16, VA_SUB_F16, VA_MUL_F16,
    VA_MOVE_F16, VA_MOVE_BF16, VA_MOVE_BOOL,
    VA_PUT_F32, VA_PUT_F16, VA_PUT_BF16, VA_PUT_BOOL,
    VA_PAST_F32, VA_PAST_F16, VA_PAST_BF16
} vec_code;
typedef struct vec_act {
    int code;
    int size, z_size;    /* bytes from the place of one element to that of the next; 0: every tile has the same place */
    int64_t row, z_row;  /* and from one row to the next */
    const float *p[2];
    int p_row[2];        /* 1: the next row's follows; 0: they have the same */
    void *at, *z;
    struct vec_act *moved; /* of a tape at work: the next of those that do not go on by themselves where a row ends */
} vec_act;

/* An update by Adam, over its operands or beside them:
 *   g = clip * g (clips);  m = take_1 * g + keep_1 * m;  v = take_2 * g * g + keep_2 * v, or |v| (sizes)
 *   step = rate * ROOT_DIV(m, v, eps), and decay * w more of it (decays)
 *   w = w - step, or decay * w - step (shrinks)
 * and w once more as `type`, F16 or BF16, at `copy` (NULL: it is not wanted). Every operation rounds. past_*: as of
 * the acts. asks: for operands ahead, as VA_ASK_4. */
typedef struct {
    const float *g, *m, *v, *w;
    float *to_m, *to_v, *to_w;
    void *copy;
    dtype type;
    float clip, take_1, keep_1, take_2, keep_2, eps, rate, decay;
    bool clips, sizes, decays, shrinks, past_m, past_v, past_w, past_copy, asks;
} vec_adam;

/* Lines of a softmax, one behind the other: soft_three. */
typedef struct {
    void *y;           /* = done * scale */
    const float *done; /* its exps */
    float scale;
    const void *x;     /* e = exps of it, as of exps, or of exps_half from fp16 to fp16 */
    float *e;
    const void *next;
    float most;        /* in: the largest of x. Out: of next, as STAT_MOST */
    float sum;         /* out: of e */
    bool stream;       /* y, as of vec_affine */
} vec_three;

/* A band of a softmax down columns: soft_band. */
typedef struct {
    const void *x;            /* exps of its rows, ldx bytes apart, come to lie in `keep`; NULL: none do */
    int64_t ldx;
    float *base, *sum;        /* per column, from band to band: what exps are taken against, and their sum */
    void *y;                  /* what was in `keep` before becomes its rows, ldy bytes apart; NULL: it does not */
    int64_t ldy;
    const float *last, *scale; /* per column: base and sum of that softmax after soft_end */
    bool stream;              /* y, as of vec_affine */
    float *keep;              /* VEC_KEPT floats */
} vec_soft;
/* A band of rows of one block down columns is written while a band of the next is looked at: turns. */
typedef enum { LOOK_SQUARES, LOOK_MOMENTS, LOOK_EXPS } vec_look;
typedef struct {
    const void *x;            /* looked at: as of down, moments or soft_look */
    float *base, *mean, *sum; /* per column, from band to band: EXPS has base, MOMENTS mean and before */
    float *part[2];           /* room for what columns have of the band: EXPS and MOMENTS the first, MOMENTS both */
    int64_t before;
    const void *done;         /* becomes y, past the caches: as of affine_rows or soft_rows */
    void *y;
    vec_affine by;
    int64_t ld;               /* bytes from row to row: of all three */
} vec_turns;
/* Floats a band of `n` columns takes. */
#define VEC_KEPT(v, n) (((n) + (v)->width - 1) / (v)->width * (v)->width * (VEC_BAND + 1))

typedef struct {
    const char *name;
    uint32_t need;
    int width;       /* lanes */
    int window_cols; /* of a panel of b */
    vec_run *const *fn; /* VF_COUNT of them */
    int tile;        /* elements of a tile */
    /* len: elements of a row; acts go along from row to row */
    void (*tape)(vec_act *acts, int n, int64_t rows, int64_t len);
    /* A tape of halves: x and all elements are fp16, and half.def says what its functions give. Acts are those it
     * names, ASK_2 (before all others), X_F16, X_ONE, PUT_F16 and PAST_F16; the last one stores. NULL without fp16
     * arithmetic. */
    void (*halves)(vec_act *acts, int n, int64_t rows, int64_t len);
    int halves_tile; /* elements of a tile of them */
    bool asks;       /* tapes gain by VA_ASK: this processor does not look far enough ahead by itself */
    void (*adam)(const vec_adam *p, int64_t n);
    void (*table)(float *y, const float *x, const vec_table *t, int64_t n);
    void (*round)(float *x, int how, int64_t n);
    /* The end of a multiply-accumulate pass: magnitudes below `least` become 0 (0: none do). */
    void (*flush)(float *x, float least, int64_t n);
    void (*ceiling)(float *x, float from, int64_t n); /* magnitudes of `from` and more become infinite */
    /* fp32 from F32 F16 BF16 BOOL I8 U8 I16 U16, and to F32 F16 BF16 BOOL (x != 0). */
    void (*load)(float *y, dtype t, const void *x, int64_t n);
    void (*store)(void *y, dtype t, const float *x, int64_t n);
    /* As store, past the caches: for results so large that they are read from memory again. Rows of such stores end
     * with a fence, before another thread is told of them. */
    void (*stream)(void *y, dtype t, const float *x, int64_t n);
    void (*fence)(void);
    void (*fill)(float *y, float x, int64_t n);
    void (*clean)(float *x, float nan, int64_t n); /* NaN becomes `nan`, -0 becomes +0 */
    /* For each of n columns: acc = stat(acc, the rows in ascending order); rows are `ld` floats apart. chip: a sum
     * that has no value is 0. SQUARES: of x - mean[column] when mean is given. */
    void (*columns)(float *acc, vec_stat s, bool chip, const float *x, int64_t rows, int64_t ld, const float *mean,
                    int64_t n);
    /* The same along rows: acc[i] over n elements of row i, i < rows <= width. mean[i]. */
    void (*rows)(float *acc, vec_stat s, bool chip, const float *x, int64_t rows, int64_t ld, const float *mean,
                 int64_t n);
    /* Straight from memory, F32, F16 or BF16, for devices that leave the order of a sum open. The order depends on n
     * alone. along: of one row; acc is where it starts. down: of n columns, rows `ld` bytes apart; rows ascending. */
    float (*along)(dtype t, const void *x, vec_stat s, float mean, float acc, int64_t n);
    void (*down)(float *acc, dtype t, const void *x, vec_stat s, int64_t rows, int64_t ld, int64_t n);
    /* y = exp(x - most) for x <= most, within 2^-23 * (2 + most - x), 0 below exp(-86.99) (NEON: exp(-87.7)); returns
     * their sum. NaN stays. What lies `ahead` bytes behind x is asked for. */
    float (*exps)(float *y, dtype t, const void *x, float most, int64_t n, int64_t ahead);
    /* For softmax from fp16 to fp16: 2^(x log2(e) - b), b the whole number nearest most * log2(e); relative error
     * 1e-4. */
    float (*exps_half)(float *y, const void *x, float most, int64_t n, int64_t ahead);
    void (*soft_three)(vec_three *p, dtype ty, dtype tx, int64_t n); /* the same bits as one by one */
    /* Softmax down n columns, in two looks at x; the second makes the exps again, so that none are kept. soft_look:
     * what exps of a column are taken against, and their sum, which soft_begin sets and which go on from call to call;
     * soft_end makes of the sum what exps are scaled by. soft_rows: y = exp(x - base) * scale, base as p->mean. half: x
     * and y are fp16, exps as of exps_half, the base a power of two. A column without a value above -inf, or with a
     * NaN, is NaN. */
    void (*soft_begin)(float *base, float *sum, int64_t n, bool half);
    void (*soft_look)(float *base, float *sum, dtype t, const void *x, int64_t rows, int64_t ld, int64_t n, bool half);
    void (*soft_end)(const float *base, float *sum, int64_t n, bool half);
    void (*soft_rows)(void *y, dtype ty, int64_t ldy, const void *x, dtype tx, int64_t ldx, const vec_affine *p,
                      int64_t rows, int64_t n, bool half);
    /* The same in one look at x, its exps kept: soft_begin, soft_band for every VEC_BAND rows, soft_end; then for
     * every band again, when the next softmax of as many columns may take its place. x and y of one type, fp32 or,
     * as `half`, fp16. NULL where exps are made again in less time. */
    void (*soft_band)(const vec_soft *p, dtype t, int rows, int64_t n);
    /* Mean and sum of squared deviations of n columns; both begin at 0, and go on after `before` rows. */
    void (*moments)(float *mean, float *squares, dtype t, const void *x, int64_t before, int64_t rows, int64_t ld,
                    int64_t n);
    /* Both for VEC_BAND rows in one loop, x and y of one type, fp32 or fp16, y on whole lines: the bits of the two by
     * themselves. n: a multiple of two vectors. */
    void (*turns)(const vec_turns *p, dtype t, vec_look how, int64_t n);
    /* exps down n columns, of scale * (x - most), scale > 0: sum[i] += the exps of a column, rows ascending; y has
     * rows of n. y may be x. */
    void (*exps_down)(float *y, dtype t, const void *x, const float *most, float scale, float *sum, int64_t rows,
                      int64_t ld, int64_t n);
    /* F32 and F16 in any pair, or BF16 to BF16. */
    void (*affine)(void *y, dtype ty, const void *x, dtype tx, const vec_affine *p, int64_t n);
    /* affine(y, x), and in the same loop along(next, STAT_SQUARES, mean), which is returned: the bits of the two by
     * themselves. */
    float (*affine_next)(void *y, dtype ty, const void *x, dtype tx, const vec_affine *p, const void *next, float mean,
                         int64_t n);
    /* As affine for rows ldy and ldx elements apart, and F32 to BF16. */
    void (*affine_rows)(void *y, dtype ty, int64_t ldy, const void *x, dtype tx, int64_t ldx, const vec_affine *p,
                        int64_t rows, int64_t n);
    /* high, low: fp16 whose sum is x, for affine_rows and turns; both 0 where they could not stand for it. Returns how
     * many are not. NULL where there is no use for them. */
    int64_t (*parts)(void *high, void *low, const float *x, int64_t n);
    /* y = (x - sum(p * x)) * p, back through a softmax that gave p; y and p F32 or BF16. */
    void (*soft_back)(void *y, dtype ty, const float *x, const void *p, dtype tp, int64_t n);
    /* y = x * by; F32 or BF16. */
    void (*scaled)(void *y, dtype ty, const float *x, float by, int64_t n);
    /* Of a * b, n rows of m: cols[j] += the sum of those of column j, each times row[i]; rows[i] = the sum of those
     * of row i, each times col[j]. cols, rows: NULL, not wanted; row, col: NULL, 1. */
    void (*sums)(float *cols, float *rows, const float *a, const float *b, const float *row, const float *col,
                 int64_t n, int64_t m);
    float (*largest)(const float *x, int64_t n); /* magnitude; infinity when one is not finite */
    void (*window)(const window_job *j);
    /* Element (i, j) of y = element (j, i) of x; i < rows, j < cols; strides in elements of 4 or 2 bytes. */
    void (*transpose)(void *y, int64_t ldy, const void *x, int64_t ldx, int64_t rows, int64_t cols, int bytes);
    /* (a, b) becomes scale (a co - b si, b co + a si), back: with the other sign of si; products and sums rounded to
     * fp32 one by one. All of one type, F32, F16 or BF16, or F32 and BF16 turned by F32. ya may be a, and yb b. */
    void (*turn)(void *ya, void *yb, const void *a, const void *b, const void *co, const void *si, const vec_turn *k,
                 int64_t n);
    /* The same for n elements that are pairs side by side: a, b, a, b; each pair by the co and si of its a. y may be
     * x. */
    void (*turn_beside)(void *y, const void *x, const void *co, const void *si, dtype t, bool back, int64_t n);
    /* Rules for moved fp16 elements, in place: NaN becomes +inf, magnitudes above `last` (bits; 0x7c00: none)
     * infinite. */
    void (*moved_f16)(void *x, uint16_t last, int64_t n);
    /* No NaN among n fp16 elements, and with `flush` no subnormal. */
    bool (*plain_f16)(const void *x, bool flush, int64_t n);
} vec_kernels;

const vec_kernels *vec_pick(uint32_t isa); /* never NULL */
const vec_kernels *vec_row(size_t i);      /* NULL past the last */

#endif
