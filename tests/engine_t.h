/* engine_t.h: small engine programs for tests, written down as fields and run at once.
 *
 *     prog g;
 *     prog_open(&g, &numerics_cpu);
 *     int64_t x = prog_in(&g, DT_F16, DIMS(2, 3), values), y = prog_out(&g, DT_F16, DIMS(2, 3));
 *     prog_insn(&g, IN_SOFTMAX, INTS(y, x), INTS(1), REALS(0));   tensors, integers, reals: lists as length, items
 *     prog_run(&g, true);   g.out[0][i]
 *     prog_close(&g); */
#ifndef TESTS_ENGINE_T_H
#define TESTS_ENGINE_T_H

#include <math.h>

#include "engine/engine.h"
#include "t.h"

#define INTS(...)                                                                                                      \
    ((const int64_t[]){ __VA_ARGS__ }), (uint32_t)(sizeof((const int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t))
#define REALS(...)                                                                                                     \
    ((const double[]){ __VA_ARGS__ }), (uint32_t)(sizeof((const double[]){ __VA_ARGS__ }) / sizeof(double))
#define NO_INTS     NULL, 0
#define NO_REALS    NULL, 0
#define DIMS(...)   ((const int64_t[]){ __VA_ARGS__ }), (int)(sizeof((const int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t))
#define VALUES(...) ((const double[]){ __VA_ARGS__ })

static const numerics NUM_M1 = { .round_each = 1, .window_bits = 12, .port_ceiling = 32768, .port_partial = 1,
                                 .mac_flush = 1, .wslice_last = 4094, .nan_to_inf = 1, .invalid_zero = 1,
                                 .plain_zero = 1, .tables = 1 };
static const numerics NUM_M5 = { .round_each = 1, .window_bits = 12, .port_ceiling = 32768, .port_partial = 1,
                                 .mac_tie_away = 1, .nan_to_inf = 1, .invalid_zero = 1, .plain_zero = 1, .tables = 1 };

enum { PROG_PORTS = 8 };
typedef struct {
    program *p;
    unsigned char *in[PROG_PORTS], *out_bytes[PROG_PORTS];
    double *out[PROG_PORTS]; /* after prog_run: the elements */
    int64_t n_out[PROG_PORTS];
    diag d;
} prog;

static inline void prog_open(prog *g, const numerics *num)
{
    *g = (prog){ .p = program_new("test", "cpu", num) };
    assert_non_null(g->p);
}

static inline int64_t prog_tensor(prog *g, dtype dt, space where, uint32_t slot, const int64_t *dim, int rank)
{
    etensor t = { .dt = dt, .where = where, .slot = slot, .rank = rank };
    for (int i = 0; i < rank; i++) t.dim[i] = dim[i];
    int64_t n = 1;
    size_t bytes = 0;
    for (int i = 0; i < rank; i++) n *= dim[i];
    assert_true(dtype_bytes(dt, n, &bytes));
    if (where == SPACE_SCRATCH) {
        t.offset = ROUND_UP(g->p->scratch_bytes, 64u);
        g->p->scratch_bytes = t.offset + bytes;
    }
    assert_true(VEC_PUSH(&g->p->mem, &g->p->tensors, t));
    return (int64_t)g->p->tensors.n - 1;
}

static inline int64_t prog_elems(const prog *g, int64_t t)
{
    int64_t n = 1;
    for (int i = 0; i < g->p->tensors.at[t].rank; i++) n *= g->p->tensors.at[t].dim[i];
    return n;
}

static inline void prog_port(prog *g, int64_t t, bool output, unsigned slot)
{
    static const char *const names[] = { "a", "b", "c", "d", "e", "f", "g", "h" };
    size_t bytes = 0;
    assert_true(slot < PROG_PORTS && dtype_bytes(g->p->tensors.at[t].dt, prog_elems(g, t), &bytes));
    eport e = { .name = names[slot], .tensor = (uint32_t)t, .bytes = bytes };
    if (output) assert_true(VEC_PUSH(&g->p->mem, &g->p->outputs, e));
    else assert_true(VEC_PUSH(&g->p->mem, &g->p->inputs, e));
    unsigned char *mem = calloc(1, bytes + 8);
    assert_non_null(mem);
    *(output ? &g->out_bytes[slot] : &g->in[slot]) = mem;
}

static inline int64_t prog_in(prog *g, dtype dt, const int64_t *dim, int rank, const double *x) /* x NULL: zeros */
{
    unsigned slot = (unsigned)g->p->inputs.n;
    int64_t t = prog_tensor(g, dt, SPACE_INPUT, slot, dim, rank);
    prog_port(g, t, false, slot);
    for (int64_t i = 0; x && i < prog_elems(g, t); i++) dtype_store(dt, g->in[slot], i, x[i]);
    return t;
}

static inline int64_t prog_out(prog *g, dtype dt, const int64_t *dim, int rank)
{
    unsigned slot = (unsigned)g->p->outputs.n;
    int64_t t = prog_tensor(g, dt, SPACE_OUTPUT, slot, dim, rank);
    prog_port(g, t, true, slot);
    return t;
}

static inline int64_t prog_scratch(prog *g, dtype dt, const int64_t *dim, int rank)
{
    return prog_tensor(g, dt, SPACE_SCRATCH, 0, dim, rank);
}

static inline void prog_insn(prog *g, insn_id op, const int64_t *t, uint32_t n_t, const int64_t *i, uint32_t n_i,
                             const double *f, uint32_t n_f)
{
    insn in = { .op = op, .n_t = n_t, .n_i = n_i, .n_f = n_f };
    int64_t *tt = TAKE(&g->p->mem, int64_t, n_t), *ii = TAKE(&g->p->mem, int64_t, n_i);
    double *ff = TAKE(&g->p->mem, double, n_f);
    assert_true(tt && ii && ff);
    if (n_t) memcpy(tt, t, n_t * sizeof *t);
    if (n_i) memcpy(ii, i, n_i * sizeof *i);
    if (n_f) memcpy(ff, f, n_f * sizeof *f);
    in.t = tt, in.i = ii, in.f = ff;
    assert_true(VEC_PUSH(&g->p->mem, &g->p->insns, in));
}

/* Status of loading and running; the diag has the message. */
static inline an_status prog_try(prog *g, bool reference)
{
    image *im = NULL;
    image_options o = { .reference = reference };
    g->d = (diag){ 0 };
    an_status st = image_load(&im, g->p, NULL, &o, &g->d);
    if (!st) st = image_run(im, (const void *const *)g->in, (void *const *)g->out_bytes, &g->d);
    image_free(im);
    for (size_t k = 0; !st && k < g->p->outputs.n; k++) {
        int64_t t = g->p->outputs.at[k].tensor;
        g->n_out[k] = prog_elems(g, t);
        free(g->out[k]);
        g->out[k] = calloc((size_t)g->n_out[k], sizeof(double));
        assert_non_null(g->out[k]);
        for (int64_t i = 0; i < g->n_out[k]; i++) g->out[k][i] = dtype_load(g->p->tensors.at[t].dt, g->out_bytes[k], i);
    }
    return st;
}

static inline void prog_run(prog *g, bool reference) { assert_ok(prog_try(g, reference), g->d); }

static inline void prog_close(prog *g)
{
    for (int k = 0; k < PROG_PORTS; k++) free(g->in[k]), free(g->out_bytes[k]), free(g->out[k]);
    program_free(g->p);
}

/* ---- one-instruction programs ---- */

/* fn of scalars, as an instruction on fp16 (bool results are bool). */
static inline double run_fn(const numerics *num, fn_id f, const double *x, const double *param)
{
    prog g;
    prog_open(&g, num);
    int64_t t[8] = { -1, fn_operands(f) }, step[8] = { CHAIN_STEP, (int64_t)f, -1, -1, -1, 0, DT_F16 };
    double p[4] = { fn_params(f) };
    for (int i = 0; i < fn_operands(f); i++)
        t[2 + i] = prog_in(&g, f == FN_SELECT && i == 0 ? DT_BOOL : DT_F16, DIMS(1), x + i), step[2 + i] = i;
    for (int i = 0; i < fn_params(f); i++) p[1 + i] = param[i];
    t[0] = prog_out(&g, DT_F16, DIMS(1));
    prog_insn(&g, IN_EW, t, 2 + (uint32_t)fn_operands(f), step, 7, p, 1 + (uint32_t)fn_params(f));
    prog_run(&g, true);
    double r = g.out[0][0];
    prog_close(&g);
    return r;
}

/* x (1,k) times w (k,1), fp16. */
static inline double run_dot(const numerics *num, const double *x, const double *w, int64_t k)
{
    prog g;
    prog_open(&g, num);
    int64_t tx = prog_in(&g, DT_F16, DIMS(1, k), x), tw = prog_in(&g, DT_F16, DIMS(k, 1), w),
            y = prog_out(&g, DT_F16, DIMS(1, 1));
    prog_insn(&g, IN_MATMUL, INTS(y, tx, tw, 0), INTS(0, 0, 0), REALS(0));
    prog_run(&g, true);
    double r = g.out[0][0];
    prog_close(&g);
    return r;
}

#endif
