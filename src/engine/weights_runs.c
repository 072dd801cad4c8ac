/* weights_runs.c: compressed constants whose elements come in runs of one scale and zero point, or of one table:
 * many at a time, on all threads. In: a constant as weights.c has it.  Out: the same bits, or word that it is
 * something else.
 *
 * scale · (q - zero) of a code of eight bits or fewer and an integer zero is one fp32 rounding of an exact product,
 * here as there. */
#include "engine/exec_int.h"
#include "engine/weights_int.h"

enum { PIECE = 512, TASK = 1 << 16 /* elements; even: nibbles come in pairs */,
       LEAST = 8 /* elements of a run that are worth it */, CODES = 16 };

typedef struct {
    const const_build *b;
    const vec_kernels *v;
    int64_t n, run;
    int64_t axis; /* affine: run r has scale r % axis; 0: scale or table by place */
    bool table;
} runs_job;

static int64_t elems(const const_source *s) { return dims_product(s->dim, 0, s->rank); }

/* Of elements one after the other that belong to one box of `boxes` along every axis. */
static int64_t run_of(const const_source *q, const int64_t *boxes)
{
    int64_t run = 1;
    for (int a = q->rank - 1; a >= 0; a--) {
        run *= q->dim[a] / boxes[a];
        if (boxes[a] > 1) break;
    }
    return run;
}

/* The box that element i lies in. */
static int64_t box_of(const const_source *q, const int64_t *boxes, int64_t i)
{
    int64_t at[ENGINE_MAX_RANK], box = 0;
    for (int a = q->rank - 1; a >= 0; i /= q->dim[a--]) at[a] = i % q->dim[a];
    for (int a = 0; a < q->rank; a++) box = box * boxes[a] + at[a] / (q->dim[a] / boxes[a]);
    return box;
}

/* n codes from element i on, as numbers; nibbles as what is in `value`. */
static void codes(const runs_job *j, int64_t i, int64_t n, const float *value, float *x)
{
    const unsigned char *p = j->b->at[0];
    const dtype t = j->b->c->src[0].dt;
    if (t == DT_I8 || t == DT_U8) {
        j->v->load(x, t, p + i, n);
        return;
    }
    int64_t k = 0;
    if (i % 2 && n) x[k++] = value[p[i / 2] >> 4];
    for (p += (i + 1) / 2; k + 1 < n; k += 2, p++) x[k] = value[*p & 15], x[k + 1] = value[*p >> 4];
    if (k < n) x[k] = value[*p & 15];
}

/* n elements from i on, all of one run. */
static void one_run(const runs_job *j, int64_t i, int64_t n, float *x)
{
    const const_build *b = j->b;
    const const_source *q = &b->c->src[0], *s = &b->c->src[1];
    float value[CODES];
    if (j->table) {
        const int64_t first = box_of(q, s->dim, i) * CODES;
        for (int c = 0; c < CODES; c++) value[c] = (float)dtype_load(s->dt, b->at[1], first + c);
        codes(j, i, n, value, x);
        return;
    }
    const bool zeros = b->c->n_src > 2;
    int64_t at = j->axis ? i / j->run % j->axis : box_of(q, s->dim, i), zero_at = at;
    if (j->axis && elems(s) == 1) at = 0;
    if (j->axis && zeros && elems(&b->c->src[2]) == 1) zero_at = 0;
    const float scale = (float)dtype_load(s->dt, b->at[1], at),
                zero = zeros ? (float)dtype_load(b->c->src[2].dt, b->at[2], zero_at) : 0;
    for (int c = 0; c < CODES; c++) value[c] = (float)(q->dt == DT_I4 && c >= 8 ? c - 16 : c);
    codes(j, i, n, value, x);
    for (int64_t k = 0; k < n; k++) x[k] = scale * (x[k] - zero);
}

static void runs_task(void *ctx, int64_t task, int thread)
{
    const runs_job *j = ctx;
    const int64_t end = MIN(j->n, (task + 1) * TASK), size = dtype_bits(j->b->t->dt) / 8;
    float x[PIECE];
    (void)thread;
    for (int64_t i = task * TASK, n; i < end; i += n) {
        n = MIN(PIECE, end - i);
        for (int64_t k = 0, m; k < n; k += m) {
            m = MIN(n - k, j->run - (i + k) % j->run);
            one_run(j, i + k, m, x + k);
        }
        j->v->store(j->b->to + i * size, j->b->t->dt, x, n);
    }
}

static bool is_code(dtype t) { return t == DT_I8 || t == DT_U8 || t == DT_I4 || t == DT_U4; }
static bool is_scale(dtype t) { return t == DT_F32 || t == DT_F16 || t == DT_BF16; }

static bool describe(const const_build *b, runs_job *j)
{
    const const_entry *c = b->c;
    const const_source *q = &c->src[0], *s = &c->src[1];
    if (!is_scale(b->t->dt) || !is_code(q->dt) || !is_scale(s->dt) || elems(q) != j->n) return false;
    switch (c->kind) {
    case CK_BLOCK:
        if (c->n_src > 2 && !is_code(c->src[2].dt)) return false;
        j->run = run_of(q, s->dim);
        return true;
    case CK_AFFINE: {
        const bool many = elems(s) > 1 || (c->n_src > 2 && elems(&c->src[2]) > 1);
        if (c->n_src > 2 && !is_code(c->src[2].dt)) return false;
        const axis_view v = many ? et_axis(b->t, c->axis) : (axis_view){ 1, 1, j->n };
        j->run = v.inner, j->axis = v.n;
        return true;
    }
    case CK_LUT: /* each block its own table of sixteen */
        if (q->dt != DT_U4 || s->rank != q->rank + 2 || s->dim[q->rank] != CODES || s->dim[q->rank + 1] != 1)
            return false;
        j->run = run_of(q, s->dim), j->table = true;
        return true;
    default: return false;
    }
}

an_status const_runs(image *im, const const_build *b, bool *done, diag *d)
{
    exec_env *e;
    runs_job j = { .b = b, .n = et_elems(b->t) };
    *done = false;
    if (im->opt.reference || !describe(b, &j) || j.run < LEAST) return AN_OK;
    TRY(exec_open(im, &e, d));
    j.v = e->v;
    pool_run(im->opt.pool, runs_task, &j, (j.n + TASK - 1) / TASK);
    *done = true;
    return AN_OK;
}
