/* exec_ew.c: elementwise chains, casts, fills and random numbers, block by block. In: prepared chains.  Out: their
 * results. Elements do not depend on one another, so the result may lie where an operand did. */
#include "base/rng.h"
#include "engine/exec_int.h"

typedef struct {
    exec_chain *ch; /* NULL: cast between types that vectors do not hold */
    int64_t n;
    size_t each; /* scratch of a thread */
} state;

static an_status prepare(image *im, const insn *in, const char *list, void **out, diag *d)
{
    exec_chain *ch;
    int64_t y = insn_t(in, "y");
    TRY(exec_chain_make(im, in, list, y, false, false, &ch, d));
    if (!ch && list) return AN_OK;
    state *s = TAKE(&im->prepared, state, 1);
    if (!s) return diag_nomem(d);
    *s =
        (state){ .ch = ch, .n = et_elems(&im->p->tensors.at[y]), .each = ch ? ROUND_UP(exec_chain_bytes(ch), 64u) : 0 };
    exec_need_work(im, s->each * (size_t)pool_threads(im->opt.pool));
    *out = s;
    return AN_OK;
}

static an_status prepare_ew(image *im, const insn *in, void **out, diag *d) { return prepare(im, in, "in", out, d); }
static an_status prepare_cast(image *im, const insn *in, void **out, diag *d) { return prepare(im, in, NULL, out, d); }

typedef struct {
    const run_ctx *c;
    const state *s;
    int64_t x, y;
} job;

static void chain_span(void *user, int64_t first, int64_t count, int thread)
{
    const job *j = user;
    char *scratch = (char *)j->c->work + (size_t)thread * j->s->each;
    exec_chain_span(j->s->ch, j->c, first, count, scratch);
}

static void cast_span(void *user, int64_t first, int64_t count, int thread)
{
    const job *j = user;
    dtype tx = ctx_tensor(j->c, j->x)->dt, ty = ctx_tensor(j->c, j->y)->dt;
    (void)thread;
    for (int64_t i = first; i < first + count; i++)
        dtype_store(ty, ctx_mem(j->c, j->y), i,
                    num_round(j->c->num, ty, num_in(j->c->num, tx, dtype_load(tx, ctx_mem(j->c, j->x), i))));
}

enum { TASK_LEAST = 8192 };

static an_status run_ew(const run_ctx *c, const insn *in, diag *d)
{
    if (!c->state) return ref_ew(c, in, d);
    job j = { .c = c, .s = c->state };
    exec_spans(c->pool, j.s->n, TASK_LEAST, chain_span, &j);
    return AN_OK;
}

static an_status run_cast(const run_ctx *c, const insn *in, diag *d)
{
    job j = { .c = c, .s = c->state, .x = in->t[1], .y = in->t[0] };
    if (!c->state) return ref_cast(c, in, d);
    /* types below a byte share bytes: whole blocks of EXEC_BLOCK elements never do */
    exec_spans(c->pool, j.s->n, TASK_LEAST, j.s->ch ? chain_span : cast_span, &j);
    return AN_OK;
}

const exec_entry exec_ew = { .run = run_ew, .prepare = prepare_ew };
const exec_entry exec_ews = { .run = run_ew, .prepare = prepare_ew };
const exec_entry exec_cast = { .run = run_cast, .prepare = prepare_cast };

/* ---- fill ---- */

typedef struct {
    int64_t bytes, size;
    unsigned char one[8];
} fill_state;

static an_status prepare_fill(image *im, const insn *in, void **out, diag *d)
{
    const etensor *t = &im->p->tensors.at[insn_t(in, "y")];
    if (dtype_bits(t->dt) < 8) return AN_OK;
    fill_state *s = TAKE(&im->prepared, fill_state, 1);
    if (!s) return diag_nomem(d);
    s->size = exec_size(t->dt), s->bytes = et_elems(t) * s->size;
    dtype_store(t->dt, s->one, 0, num_round(&im->p->num, t->dt, insn_f(in, "value")));
    *out = s;
    return AN_OK;
}

static an_status run_fill(const run_ctx *c, const insn *in, diag *d)
{
    const fill_state *s = c->state;
    if (!s) return ref_fill(c, in, d);
    unsigned char *y = ctx_mem(c, in->t[0]);
    memcpy(y, s->one, (size_t)s->size);
    for (int64_t done = s->size; done < s->bytes;) { /* what is there already, again */
        int64_t n = MIN(MIN(done, s->bytes - done), 4096);
        memcpy(y + done, y, (size_t)n);
        done += n;
    }
    return AN_OK;
}

const exec_entry exec_fill = { .run = run_fill, .prepare = prepare_fill };

/* ---- random numbers: the generator counts, so element i needs none of those before it ---- */

typedef struct {
    const run_ctx *c;
    int64_t y;
    uint64_t seed;
    double low, high;
} random_job;

static void random_span(void *user, int64_t first, int64_t count, int thread)
{
    const random_job *j = user;
    dtype t = ctx_tensor(j->c, j->y)->dt;
    rng r = { .s = j->seed };
    (void)thread;
    rng_skip(&r, (uint64_t)first);
    for (int64_t i = first; i < first + count; i++)
        dtype_store(t, ctx_mem(j->c, j->y), i, num_round(j->c->num, t, rng_range(&r, j->low, j->high)));
}

static an_status run_random(const run_ctx *c, const insn *in, diag *d)
{
    int64_t seed = insn_i(in, "seed"), y = insn_t(in, "y");
    random_job j = {
        .c = c, .y = y, .seed = seed == -1 ? 0 : (uint64_t)seed, .low = insn_f(in, "low"), .high = insn_f(in, "high")
    };
    (void)d;
    exec_spans(c->pool, et_elems(ctx_tensor(c, y)), TASK_LEAST, random_span, &j);
    return AN_OK;
}

const exec_entry exec_random = { .run = run_random };
