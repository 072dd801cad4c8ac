/* exec.c: which fast form an instruction has, and what those forms share: the kernels of this CPU, reading operands
 * into fp32, splitting elements over threads. Rows of isa.def that say `ref` run the reference. */
#include <math.h>

#include "engine/exec_int.h"

const exec_entry exec_ref = { .run = NULL };

static const exec_entry *const entries[IN_COUNT] = {
#define INSN(id, name, fields, ref, exec, what) [IN_##id] = &exec_##exec,
#include "engine/isa.def"
#undef INSN
};

static const exec_entry obvious[IN_COUNT] = {
#define INSN(id, name, fields, ref, exec, what) [IN_##id] = { .run = ref_##ref },
#include "engine/isa.def"
#undef INSN
};

const exec_entry *exec_entry_of(insn_id op) { return entries[op]->run ? entries[op] : &obvious[op]; }

/* ---- environment ---- */

enum { NEAR = 4 }; /* times the second caches */

static bool is_plain(const numerics *n)
{
#define NUM(field, cpu, what) if (n->field != (cpu)) return false;
#include "engine/numerics.def"
#undef NUM
    return true;
}

/* What a run reads and writes: ports, weights and scratch. */
static uint64_t all_bytes(const program *p)
{
    uint64_t sum = p->scratch_bytes, n;
    for (size_t i = 0; i < p->tensors.n; i++)
        if (p->tensors.at[i].where != SPACE_SCRATCH && !p->tensors.at[i].offset && et_bytes(&p->tensors.at[i], &n))
            sum += n;
    return sum;
}

static uint64_t weight_bytes(const program *p)
{
    uint64_t sum = 0, n;
    for (size_t i = 0; i < p->consts.n; i++)
        if (et_bytes(&p->tensors.at[p->consts.at[i].tensor], &n)) sum += n;
    return sum;
}

an_status exec_open(image *im, exec_env **out, diag *d)
{
    if (!im->exec) {
        const numerics *n = &im->p->num;
        exec_env *e = TAKE(&im->prepared, exec_env, 1);
        if (!e) return diag_nomem(d);
        TRY(isa_have(&e->isa, d));
        e->v = vec_pick(e->isa);
        e->l2 = (int64_t)cpu_l2_bytes();
        e->threads = pool_threads(im->opt.pool);
        e->many_weights = weight_bytes(im->p) > (uint64_t)(e->l2 * e->threads);
        e->near = all_bytes(im->p) <= (uint64_t)(NEAR * e->l2 * e->threads);
        e->chip = n->round_each != 0 && n->nan_to_inf != 0 && n->invalid_zero != 0 && n->plain_zero != 0;
        e->fast = e->chip || is_plain(n);
        im->exec = e;
    }
    *out = im->exec;
    return AN_OK;
}

bool exec_flushes(const image *im) { return !im->opt.reference && im->exec && im->exec->fast && !im->exec->chip; }

void exec_need_work(image *im, size_t bytes) { im->work_bytes = MAX(im->work_bytes, bytes); }

/* ---- tables ---- */

/* of the mode word, as tables.c reads it */
enum { FAMILY_BITS = 15, SIGN_ODD = 0x60, SIGN_ROOT = 0xc0, SIGN_BITS = 0xe0 };

static vec_family family_of(int mode, int shift)
{
    static const vec_family families[] = { VT_SIDES,    VT_SIDES, VT_SIDES, VT_FRACTION, VT_WHOLE, VT_ROOT,
                                           VT_INV_ROOT, VT_INV,   VT_SIDES, VT_LOG2,     VT_EXP2 };
    size_t f = (size_t)(mode & FAMILY_BITS);
    vec_family v = f < COUNT(families) ? families[f] : VT_SIDES;
    return shift == TABLE_NO_KNOTS && v != VT_FRACTION && v != VT_WHOLE ? VT_LINES : v;
}

const vec_table *exec_table(image *im, table_id t, diag *d)
{
    exec_env *e = im->exec;
    if (e->tables[t]) return e->tables[t];
    const uint16_t *w = table_words(t);
    vec_table *v = TAKE(&im->prepared, vec_table, 1);
    if (!v) return diag_nomem(d), NULL;
    int mode = w[TABLE_MODE], shift = (int16_t)w[TABLE_SHIFT], side = mode & FAMILY_BITS;
    *v = (vec_table){
        .family = family_of(mode, shift),
        .odd = (mode & SIGN_BITS) == SIGN_ODD,
        .positive = (mode & SIGN_BITS) == SIGN_ROOT,
        .x_lo = f16_to_f32(w[TABLE_X_LO]),
        .x_hi = f16_to_f32(w[TABLE_X_HI]),
        .y_lo = f16_to_f32(w[TABLE_Y_LO]),
        .y_hi = f16_to_f32(w[TABLE_Y_HI]),
        .below = { f16_to_f32(w[TABLE_LO]), f16_to_f32(w[TABLE_LO + 1]) },
        .above = { f16_to_f32(w[TABLE_HI]), f16_to_f32(w[TABLE_HI + 1]) },
        .unit = ldexpf(1, shift),
        .first = side == 1 ? 16 : side == 2 ? 32 : 0,
    };
    for (int i = 0; i < TABLE_SEGMENTS; i++) {
        v->knot[i] = f16_to_f32(w[TABLE_KNOT + i]);
        v->rise[i] = f16_to_f32(w[TABLE_KNOT + i + 1]) - v->knot[i];
    }
    return e->tables[t] = v;
}

/* ---- operands ---- */

bool exec_loads(dtype t)
{
    return t == DT_F32 || t == DT_F16 || t == DT_BF16 || t == DT_BOOL || t == DT_I8 || t == DT_U8 || t == DT_I16 ||
           t == DT_U16;
}

bool exec_stores(dtype t) { return t == DT_F32 || t == DT_F16 || t == DT_BF16 || t == DT_BOOL; }

exec_walk exec_walk_of(const program *p, int64_t tensor, const etensor *result)
{
    const etensor *t = &p->tensors.at[tensor];
    exec_walk w = { .tensor = tensor, .t = t->dt };
    int64_t stride[ENGINE_MAX_RANK];
    et_broadcast_strides(t, result->rank, stride);
    for (int i = 0; i < result->rank; i++) {
        int64_t n = result->dim[i];
        if (n == 1) continue;
        int last = w.rank - 1;
        if (w.rank && w.stride[last] == stride[i] * n) w.dim[last] *= n, w.stride[last] = stride[i];
        else w.dim[w.rank] = n, w.stride[w.rank++] = stride[i];
    }
    if (w.rank == 1 && w.stride[0] == 0) w.rank = 0;
    w.same = w.rank == 1 || et_elems(result) == 1;
    return w;
}

static void load(const exec_env *e, dtype t, const void *x, float *to, int64_t n)
{
    e->v->load(to, t, x, n);
    if (e->chip && dtype_is_float(t)) e->v->clean(to, INFINITY, n);
}

/* Rows that repeat an element or are repeated, shorter than a call of a kernel is worth. */
static void read_short_rows(const exec_walk *w, const float *x, int64_t at, float *to, int64_t n)
{
    const int64_t wide = w->dim[1];
    for (int64_t row = at / wide, col = at % wide, i = 0; i < n; row++, col = 0) {
        const float *from = x + row * w->stride[0];
        const int64_t end = i + MIN(wide - col, n - i);
        if (!w->stride[1])
            while (i < end) to[i++] = *from;
        else
            for (from += col; i < end; from++) to[i++] = *from;
    }
}

void exec_read(const exec_env *e, const exec_walk *w, const void *mem, int64_t at, float *to, int64_t n)
{
    enum { SHORT = 32 };
    const char *x = mem;
    int64_t size = exec_size(w->t);
    if (w->same && w->rank) {
        load(e, w->t, x + at * size, to, n);
        return;
    }
    if (w->rank == 2 && w->dim[1] < SHORT && w->t == DT_F32 && !e->chip) {
        read_short_rows(w, mem, at, to, n);
        return;
    }
    float one;
    if (!w->rank) {
        load(e, w->t, x, &one, 1);
        e->v->fill(to, one, n);
        return;
    }
    int64_t idx[ENGINE_MAX_RANK], off = 0;
    for (int a = w->rank - 1; a >= 0; a--) idx[a] = at % w->dim[a], at /= w->dim[a], off += idx[a] * w->stride[a];
    int last = w->rank - 1;
    for (int64_t i = 0; i < n;) {
        int64_t run = MIN(w->dim[last] - idx[last], n - i);
        if (w->stride[last]) load(e, w->t, x + off * size, to + i, run);
        else {
            load(e, w->t, x + off * size, &one, 1);
            e->v->fill(to + i, one, run);
        }
        i += run;
        off -= idx[last] * w->stride[last];
        idx[last] = 0;
        for (int a = last - 1; a >= 0; a--) {
            off += w->stride[a];
            if (++idx[a] < w->dim[a]) break;
            off -= w->dim[a] * w->stride[a];
            idx[a] = 0;
        }
    }
}

bool exec_one_value(const exec_env *e, const exec_walk *w, const void *mem, int64_t at, int64_t n, float *value)
{
    int last = w->rank - 1;
    int64_t off = 0;
    if (w->rank && (w->stride[last] || at % w->dim[last] + n > w->dim[last])) return false;
    for (int a = last; a >= 0; a--) off += at % w->dim[a] * w->stride[a], at /= w->dim[a];
    load(e, w->t, (const char *)mem + off * exec_size(w->t), value, 1);
    return true;
}

/* ---- threads ---- */

typedef struct {
    exec_span_fn *fn;
    void *user;
    int64_t n, each;
} spans;

static void span_task(void *ctx, int64_t task, int thread)
{
    const spans *s = ctx;
    s->fn(s->user, task * s->each, MIN(s->each, s->n - task * s->each), thread);
}

/* Four tasks a thread: a late thread leaves a quarter of its share to the others. */
void exec_spans(pool *p, int64_t n, int64_t least, exec_span_fn *fn, void *user)
{
    int64_t threads = pool_threads(p), each = MAX(least, (n + 4 * threads - 1) / (4 * threads));
    each = ROUND_UP(each, (int64_t)EXEC_BLOCK);
    spans s = { .fn = fn, .user = user, .n = n, .each = threads > 1 ? each : MAX(n, 1) };
    if (n <= s.each) fn(user, 0, n, 0);
    else pool_run(p, span_task, &s, (n + s.each - 1) / s.each);
}
