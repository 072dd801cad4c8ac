/* exec_links.h: for tests of random programs: chains of elementwise steps, shapes that broadcast, and what a product
 * is tried on. */
#ifndef TESTS_EXEC_LINKS_H
#define TESTS_EXEC_LINKS_H

#include "exec_t.h"

enum { STEP_FN, STEP_A, STEP_PARAM = 4, STEP_TYPE }; /* integers of a step */

static inline bool is_exact(fn_id f) /* in fp32, on the plain processor */
{
    switch (f) {
    case FN_POW: case FN_ROOT_DIV: case FN_RSQRT: case FN_LOG: case FN_EXP: case FN_EXP2: case FN_ERF: case FN_SIN: case FN_COS: case FN_ATAN: case FN_ELU: case FN_SIGMOID:
    case FN_TANH: case FN_SCALED_TANH: case FN_GELU: case FN_GELU_TANH: case FN_GELU_SIGMOID: case FN_SILU: case FN_SOFTPLUS: case FN_SOFTPLUS_PAR:
    case FN_SOFTSIGN: return false;
    default: return true;
    }
}

typedef struct {
    int64_t steps[1 + 8 * CHAIN_STEP];
    double params[1 + 16];
    bool exact;
} links;

static inline void random_links(links *l, int n_inputs, int n_steps, bool all_exact)
{
    int at = 0;
    l->steps[0] = n_steps * CHAIN_STEP, l->params[0] = 0, l->exact = true;
    for (int k = 0; k < n_steps; k++) {
        fn_id f;
        do f = (fn_id)rng_below(&R, FN_COUNT);
        while (!is_exact(f) && (all_exact || k + 1 < n_steps));
        if (!is_exact(f)) l->exact = false;
        int64_t *s = l->steps + 1 + k * CHAIN_STEP;
        s[STEP_FN] = f;
        for (int j = 0; j < 3; j++)
            s[STEP_A + j] = j < fn_operands(f) ? (chance(50) ? n_inputs + k - 1 : upto(0, n_inputs + k - 1)) : -1;
        for (int j = 0; j < 3; j++)
            if (j < fn_operands(f) && s[STEP_A + j] < 0) s[STEP_A + j] = 0;
        s[STEP_PARAM] = fn_params(f) ? at : -1;
        for (int j = 0; j < fn_params(f); j++) l->params[1 + at++] = chance(90) ? number(TAME, 2) : 0;
        bool boolean = f >= FN_EQ && f <= FN_NOT && chance(50);
        s[STEP_TYPE] = boolean ? DT_BOOL : any_float();
    }
    l->params[0] = at;
}

static inline uint32_t n_of(const links *l) { return 1 + (uint32_t)l->steps[0]; }
static inline uint32_t m_of(const links *l) { return 1 + (uint32_t)l->params[0]; }

/* On the plain processor a sum of a product that becomes fp16 may be rounded once, where fp32 rounds it twice: a step
 * of fp16, now and then. */
static inline bool may_fuse(const prog *g, const links *l)
{
    bool half = true, product = false, sum = false;
    for (size_t k = 0; k < g->p->outputs.n; k++)
        half = half && g->p->tensors.at[g->p->outputs.at[k].tensor].dt == DT_F16;
    for (int64_t k = 0; k < l->steps[0] / CHAIN_STEP; k++) {
        const int64_t f = l->steps[1 + k * CHAIN_STEP + STEP_FN];
        product = product || f == FN_MUL || f == FN_AFFINE;
        sum = sum || f == FN_ADD || f == FN_SUB || f == FN_AFFINE;
    }
    return half && product && sum;
}

static inline int random_dims(int64_t *d, int64_t most)
{
    int rank = (int)upto(1, 4);
    for (int i = 0; i < rank; i++) d[i] = chance(20) ? 1 : upto(1, i == rank - 1 ? most : 5);
    return rank;
}

static inline int broadcast_dims(const int64_t *y, int rank, int64_t *d) /* something that broadcasts to y */
{
    int r = chance(50) ? rank : (int)upto(0, rank);
    for (int i = 0; i < r; i++) d[i] = chance(30) ? 1 : y[rank - r + i];
    return r;
}

typedef struct {
    const numerics *num;
    const char *name;
    mood m;
    double scale, tol, least;
    dtype t;
} setting;

/* On the plain processor sums are compared with room for another order of rounding: 2^-24 per addition of terms
 * below scale^2. */
static inline setting random_setting(int64_t k)
{
    size_t dev = rng_below(&R, COUNT(devices));
    bool cpu = devices[dev].num == &numerics_cpu;
    setting s = { .num = devices[dev].num,
                  .name = devices[dev].name,
                  .m = !cpu && chance(30) ? WILD : TAME,
                  .t = chance(60) ? DT_F16 : any_float() };
    s.scale = chance(25) ? 60 : chance(50) ? 4 : 1;
    s.tol = cpu ? 4e-7 * (double)k : 0, s.least = s.scale * s.scale;
    return s;
}

#endif
