/* exec_einsum.c: sums of products that are no matrix product: those are compiled to one (codegen).
 * In: labels.  Out: the reference's bits: each result is one pass over its lanes, in the order x and then z name them.
 *
 * Operands are read once, as the multiplier sees them; results are shared out over threads. */
#include <math.h>

#include "engine/exec_int.h"

enum { LABELS = 64, TERMS = 3, MOST_ELEMS = 1 << 27 };

typedef struct {
    const exec_env *env;
    const numerics *num;
    int64_t y, n_y, lanes, elems[2]; /* elems: of x and z */
    int rank, n_lane;
    int64_t dim[ENGINE_MAX_RANK], step[2][ENGINE_MAX_RANK]; /* of y's axes: extent, and how far x and z go with it */
    int64_t lane_dim[LABELS], lane_step[2][LABELS];
    exec_walk walk[2];
    dtype ty;
    size_t at[2], at_lanes, each; /* in work: x, z, then two rows of lanes for each thread */
} state;

static an_status prepare(image *im, const insn *in, void **out, diag *d)
{
    static const char *const tensors[TERMS] = { "y", "x", "z" }, *const fields[TERMS] = { "labels_y", "labels_x",
                                                                                          "labels_z" };
    exec_env *e;
    TRY(exec_open(im, &e, d));
    state *s = TAKE(&im->prepared, state, 1);
    if (!s) return diag_nomem(d);
    *s = (state){ .env = e, .num = &im->p->num, .y = insn_t(in, "y"), .lanes = 1 };
    const etensor *y = &im->p->tensors.at[s->y];
    int64_t extent[LABELS] = { 0 }, stride[TERMS][LABELS] = { { 0 } }, n;
    bool taken[LABELS] = { false };
    size_t bytes = 0;
    if (!e->fast || dtype_bits(y->dt) < 8) return AN_OK;
    for (int k = 0; k < TERMS; k++) {
        int64_t number = insn_t(in, tensors[k]), own[ENGINE_MAX_RANK];
        const etensor *t = &im->p->tensors.at[number];
        const int64_t *l = insn_is(in, fields[k], &n);
        et_strides(t, own);
        for (int64_t i = 0; i < n; i++) {
            extent[l[i]] = MAX(extent[l[i]], t->dim[i]);
            if (t->dim[i] != 1) stride[k][l[i]] += own[i]; /* a repeated label walks the diagonal; extent 1 repeats */
        }
        if (!k) continue;
        s->elems[k - 1] = et_elems(t);
        if (!exec_loads(t->dt) || s->elems[k - 1] > MOST_ELEMS) return AN_OK;
        s->walk[k - 1] = (exec_walk){
            .tensor = number, .t = t->dt, .rank = 1, .dim = { s->elems[k - 1] }, .stride = { 1 }, .same = true
        };
        s->at[k - 1] = bytes;
        bytes += ROUND_UP((size_t)s->elems[k - 1] * sizeof(float), (size_t)64);
    }
    const int64_t *ly = insn_is(in, "labels_y", &n);
    s->rank = y->rank, s->n_y = et_elems(y), s->ty = y->dt;
    for (int i = 0; i < y->rank; i++)
        s->dim[i] = y->dim[i], s->step[0][i] = stride[1][ly[i]], s->step[1][i] = stride[2][ly[i]], taken[ly[i]] = true;
    for (int k = 1; k < TERMS; k++) {
        const int64_t *l = insn_is(in, fields[k], &n);
        for (int64_t i = 0; i < n; i++) {
            if (taken[l[i]]) continue;
            taken[l[i]] = true;
            s->lane_dim[s->n_lane] = extent[l[i]], s->lane_step[0][s->n_lane] = stride[1][l[i]],
            s->lane_step[1][s->n_lane] = stride[2][l[i]];
            if (!mul_i64(s->lanes, extent[l[i]], &s->lanes) || s->lanes > MOST_ELEMS) return AN_OK;
            s->n_lane++;
        }
    }
    s->at_lanes = bytes, s->each = ROUND_UP(2 * (size_t)s->lanes * sizeof(float), (size_t)64);
    exec_need_work(im, bytes + s->each * (size_t)e->threads);
    *out = s;
    return AN_OK;
}

typedef struct {
    const run_ctx *c;
    const state *s;
    int operand;
} job;

static void read_span(void *user, int64_t first, int64_t count, int thread)
{
    const job *j = user;
    const state *s = j->s;
    const vec_kernels *v = s->env->v;
    float *to = (float *)(void *)((char *)j->c->work + s->at[j->operand]) + first;
    (void)thread;
    exec_read(s->env, &s->walk[j->operand], ctx_mem(j->c, s->walk[j->operand].tensor), first, to, count);
    if (!s->env->chip) return;
    v->round(to, VR_F16, count);
    if (s->num->mac_flush != 0) v->flush(to, 0x1p-14f, count);
}

static int64_t place(const int64_t *idx, const int64_t *step, int n)
{
    int64_t at = 0;
    for (int i = 0; i < n; i++) at += idx[i] * step[i];
    return at;
}

static void sum_span(void *user, int64_t first, int64_t count, int thread)
{
    const job *j = user;
    const state *s = j->s;
    char *work = j->c->work;
    const float *x = (const float *)(void *)(work + s->at[0]), *z = (const float *)(void *)(work + s->at[1]);
    float *a = (float *)(void *)(work + s->at_lanes + (size_t)thread * s->each), *b = a + s->lanes;
    int64_t idx[ENGINE_MAX_RANK], left = first;
    for (int i = s->rank - 1; i >= 0; i--) idx[i] = left % s->dim[i], left /= s->dim[i];
    for (int64_t at = first; at < first + count; at++, next_index(s->dim, s->rank, idx)) {
        const float *from_x = x + place(idx, s->step[0], s->rank), *from_z = z + place(idx, s->step[1], s->rank);
        int64_t lane = 0, l[LABELS] = { 0 };
        do
            a[lane] = from_x[place(l, s->lane_step[0], s->n_lane)],
            b[lane] = from_z[place(l, s->lane_step[1], s->n_lane)], lane++;
        while (next_index(s->lane_dim, s->n_lane, l));
        double v = num_round_port(s->num, s->ty, (double)num_dot(s->num, a, b, s->lanes, true));
        dtype_store(s->ty, ctx_mem(j->c, s->y), at, dtype_is_float(s->ty) ? num_ceiling(s->num, v) : v);
    }
}

static an_status run(const run_ctx *c, const insn *in, diag *d)
{
    job j = { .c = c, .s = c->state };
    if (!j.s) return ref_einsum(c, in, d);
    for (j.operand = 0; j.operand < 2; j.operand++) exec_spans(c->pool, j.s->elems[j.operand], 16384, read_span, &j);
    exec_spans(c->pool, j.s->n_y, MAX(64, 16384 / j.s->lanes), sum_span, &j);
    return AN_OK;
}

const exec_entry exec_einsum = { .run = run, .prepare = prepare };
