/* exec_attend.c: attention on the plain processor: a block of queries against the keys it may see.
 * In: q, k, v, a mask, the word causal, or positions.  Out: softmax(q·k^T*scale + mask)·v.
 *
 * A task takes one matrix of keys and values, or a share of its queries, and packs both once. Then, for a block of
 * queries at a time, it computes their scores (never the whole score matrix), turns them into weights in place and
 * multiplies by v; the division by their sum rides behind that product. Keys that none of the block sees are not
 * looked at, in steps of KEY_STEP: with causal those after its last row, with positions (a key/value cache) also
 * those before the first in its window. How queries are shared out among tasks changes nothing in what is added to
 * what: keys before and behind those a query sees add nothing. A chip has no such instruction: its programs spell
 * attention out, and the reference runs what remains. */
#include <math.h>
#include <stdatomic.h>

#include "engine/exec_attend_int.h"

enum {
    ROWS = 64,
    /* a multiple of what any kernel takes of k at once: the beginning of packed values is enough for those who see
     * less */
    KEY_STEP = 64,
    /* floats between the rows of scores, whose length is often a power of two: they would share few places of the
     * cache */
    APART = 16,
};

typedef struct {
    const exec_env *env;
    int64_t y, q, k, v, mask, stacks, rows, keys, inner, cols, block, blocks, parts;
    int64_t *q_off, *k_off, *v_off; /* per stack */
    dtype tq, tk, tv, ty;
    bool causal, admits, turned;
    attend_columns *columns; /* many queries: done there */
    attend_few *few;         /* few queries with positions: done there */
    int64_t pos, window; /* tensor of positions, -1: none */
    size_t at_threads;   /* what rows see stands in front */
    float scale;
    exec_walk mask_walk; /* along the scores */
    const gemm_kernel *scores, *values;
    /* scratch of a thread */
    size_t at_keys, at_values, at_qpack, at_ppack, at_score, at_out, at_turned, at_line, at_scratch, scratch_bytes,
        each;
} state;

static bool floats(dtype t) { return t == DT_F32 || t == DT_F16 || t == DT_BF16; }

static void offsets(const etensor *t, const etensor *y, int64_t *off)
{
    etensor lead = *t;
    int rank = y->rank - 2;
    int64_t stride[ENGINE_MAX_RANK], idx[ENGINE_MAX_RANK] = { 0 }, stacks = dims_product(y->dim, 0, rank);
    lead.rank -= 2;
    et_broadcast_strides(&lead, rank, stride);
    for (int64_t s = 0; s < stacks; s++, next_index(y->dim, rank, idx)) {
        off[s] = 0;
        for (int i = 0; i < rank; i++) off[s] += idx[i] * stride[i] * t->dim[t->rank - 2] * t->dim[t->rank - 1];
    }
}

static void add(size_t *sum, size_t bytes, size_t *at) { *at = *sum, *sum += ROUND_UP(bytes, (size_t)64); }

static bool lay_out(image *im, state *s)
{
    size_t q, p, k, v, a, b, n = 0, all;
    if (s->keys > INT32_MAX / 4 || s->cols > INT32_MAX / 4) return false;
    if (!gemm_pack_a_bytes(s->scores, s->block, s->inner, &q) || !gemm_pack_a_bytes(s->values, s->block, s->keys, &p))
        return false;
    if (!gemm_pack_b_bytes(s->scores, s->keys, s->inner, &k) || !gemm_pack_b_bytes(s->values, s->cols, s->keys, &v))
        return false;
    if (!gemm_packed_scratch_bytes(s->scores, s->keys, s->inner, &a) ||
        !gemm_packed_scratch_bytes(s->values, s->cols, s->keys, &b))
        return false;
    s->scratch_bytes = MAX(a, b);
    add(&n, k, &s->at_keys), add(&n, v, &s->at_values), add(&n, q, &s->at_qpack), add(&n, p, &s->at_ppack);
    add(&n, (size_t)(s->block * (s->keys + APART)) * sizeof(float), &s->at_score),
        add(&n, (size_t)(s->block * s->cols) * sizeof(float), &s->at_out);
    add(&n, s->turned ? (size_t)(s->block * s->cols) * sizeof(float) : 0, &s->at_turned),
        add(&n, (size_t)(s->block * 2 + s->keys) * sizeof(float), &s->at_line),
        add(&n, s->scratch_bytes, &s->at_scratch);
    s->each = n;
    if (!mul_size(n, (size_t)s->env->threads, &all) || all > SIZE_MAX / 4) return false;
    s->at_threads = s->pos >= 0 ? ROUND_UP((size_t)s->rows * sizeof(keys_seen), (size_t)64) : 0;
    exec_need_work(im, s->at_threads + all);
    return true;
}

static an_status prepare(image *im, const insn *in, void **out, diag *d)
{
    exec_env *e;
    const etensor *t = im->p->tensors.at;
    bool at = in->op == IN_ATTEND_AT;
    state s = { .y = insn_t(in, "y"),
                .q = insn_t(in, "q"),
                .k = insn_t(in, "k"),
                .v = insn_t(in, "v"),
                .mask = at ? -1 : insn_t(in, "mask"),
                .causal = !at && insn_i(in, "causal"),
                .pos = at ? insn_t(in, "pos") : -1,
                .window = at ? insn_i(in, "window") : 0,
                .turned = at && insn_i(in, "turned"),
                .scale = (float)insn_f(in, "scale") };
    const etensor *y = &t[s.y], *q = &t[s.q], *k = &t[s.k], *v = &t[s.v];
    TRY(exec_open(im, &e, d));
    s.env = e, s.tq = q->dt, s.tk = k->dt, s.tv = v->dt, s.ty = y->dt;
    if (!e->fast || e->chip || !floats(s.tq) || !floats(s.tk) || !floats(s.tv) || !floats(s.ty)) return AN_OK;
    s.rows = y->dim[y->rank - 2 + s.turned], s.cols = y->dim[y->rank - 1 - s.turned],
    s.inner = q->dim[q->rank - 1 - s.turned], s.keys = k->dim[k->rank - 2];
    s.stacks = dims_product(y->dim, 0, y->rank - 2);
    if (s.mask >= 0) {
        etensor scores = *y;
        scores.dim[scores.rank - 1] = s.keys;
        if (!exec_loads(t[s.mask].dt)) return AN_OK;
        s.admits = t[s.mask].dt == DT_BOOL, s.mask_walk = exec_walk_of(im->p, s.mask, &scores);
    }
    s.block = MIN(s.rows, ROWS), s.blocks = (s.rows + s.block - 1) / s.block;
    /* a narrow window: other keys for each */
    s.parts = s.window && s.window < s.rows ? s.blocks : MIN(s.blocks, (2 * e->threads + s.stacks - 1) / s.stacks);
    bool bf16 = im->opt.fast_math || (s.tq == DT_BF16 && s.tk == DT_BF16 && s.tv == DT_BF16 && s.ty == DT_BF16);
    gemm_math m = bf16 ? GEMM_BF16 : s.tq == DT_F16 && s.tk == DT_F16 ? GEMM_F16 : GEMM_F32;
    s.scores = gemm_pick(m, e->isa), s.values = gemm_pick(bf16 ? GEMM_BF16 : GEMM_F32, e->isa);
    if (!lay_out(im, &s)) return AN_OK;
    s.q_off = TAKE(&im->prepared, int64_t, (size_t)s.stacks), s.k_off = TAKE(&im->prepared, int64_t, (size_t)s.stacks);
    s.v_off = TAKE(&im->prepared, int64_t, (size_t)s.stacks);
    state *keep = TAKE(&im->prepared, state, 1);
    if (!s.q_off || !s.k_off || !s.v_off || !keep) return diag_nomem(d);
    offsets(q, y, s.q_off), offsets(k, y, s.k_off), offsets(v, y, s.v_off);
    const attend_shape a = { s.stacks, s.rows,  s.keys,
                             s.inner,  s.cols,  s.q_off,
                             s.k_off,  s.v_off, s.causal || s.pos >= 0,
                             s.turned, bf16,    s.scale };
    if (s.pos >= 0) TRY(attend_few_make(im, in, &a, &s.few, d));
    if (s.mask < 0 && !s.few) TRY(attend_columns_make(im, in, &a, &s.columns, d));
    *keep = s;
    *out = keep;
    return AN_OK;
}

typedef struct {
    const run_ctx *c;
    const state *s;
    atomic_int failed;
} job;

/* One block at work: rows i0 .. i0 + n, `seen` keys from `first` on. */
typedef struct {
    const run_ctx *c;
    const state *s;
    int64_t stack, i0, n, first, seen, most_seen; /* first and most_seen: of the keys packed for the task */
    const keys_seen *by_row; /* from row i0 on, where they have positions */
    unsigned char *mem;
    float *score, *out, *total, *scale, *line;
    int64_t ld; /* of score */
    const unsigned char *q, *v; /* v: of key `first` */
} block;

/* Row i sees keys from(i) .. sees(i) - 1, counted from the first of all. */
static int64_t sees(const block *b, int64_t i)
{
    return b->by_row ? b->by_row[i].end : b->s->causal ? MIN(b->s->keys, b->i0 + i + 1) : b->s->keys;
}
static int64_t from(const block *b, int64_t i) { return b->by_row ? b->by_row[i].first : 0; }

/* Block i of a task: its rows, and the keys they see: first .. *end. */
static void take_block(block *b, int64_t i, int64_t *first, int64_t *end)
{
    const state *s = b->s;
    int64_t lo = s->keys, hi = 0;
    b->i0 = i * s->block, b->n = MIN(s->block, s->rows - b->i0);
    b->by_row = s->pos >= 0 ? (const keys_seen *)b->c->work + b->i0 : NULL;
    for (int64_t l = 0; l < b->n; l++) lo = MIN(lo, from(b, l)), hi = MAX(hi, sees(b, l));
    *first = lo / KEY_STEP * KEY_STEP, *end = MIN(ROUND_UP(hi, (int64_t)KEY_STEP), s->keys);
}

static void apply_mask(const block *b, int64_t i, float *row, int64_t n)
{
    const state *s = b->s;
    exec_read(s->env, &s->mask_walk, ctx_mem(b->c, s->mask), (b->stack * s->rows + b->i0 + i) * s->keys, b->line, n);
    if (!s->admits) s->env->v->fn[VF_ADD](row, row, b->line, NULL, NULL, n);
    else
        for (int64_t j = 0; j < n; j++) row[j] = b->line[j] != 0 ? row[j] : -INFINITY;
}

/* Weights before division; total: one over their sum. Keys a row does not see weigh nothing. */
static void weights(const block *b)
{
    const vec_kernels *v = b->s->env->v;
    for (int64_t i = 0; i < b->n; i++) {
        float *row = b->score + i * b->ld;
        int64_t k0 = from(b, i) - b->first, k1 = sees(b, i) - b->first, n = k1 - k0;
        if (b->s->mask >= 0) apply_mask(b, i, row, n);
        float most = v->along(DT_F32, row + k0, STAT_MOST, 0, -INFINITY, n);
        b->total[i] = 1 / v->exps(row + k0, DT_F32, row + k0, most, n, 0);
        v->fill(row, 0, k0), v->fill(row + k1, 0, b->seen - k1);
    }
}

static bool left_out(const state *s, float mask) { return s->admits ? mask == 0 : mask == -INFINITY; }

/* The weights of a row again, without the scores that its mask leaves out: one of them may have been no number.
 * false: it leaves out all. */
static bool weights_again(const block *b, int64_t i)
{
    const state *s = b->s;
    float *row = b->score + i * b->ld, most = -INFINITY, total = 0;
    const unsigned char *k = (const unsigned char *)ctx_mem(b->c, s->k) + s->k_off[b->stack] * exec_size(s->tk);
    int64_t n = sees(b, i), kept = 0;
    exec_read(s->env, &s->mask_walk, ctx_mem(b->c, s->mask), (b->stack * s->rows + b->i0 + i) * s->keys, b->line, n);
    for (int64_t j = 0; j < n; j++) kept += !left_out(s, b->line[j]);
    if (!kept) return false;
    for (int64_t j = 0; j < n; j++) {
        float acc = 0;
        for (int64_t e = 0; e < s->inner; e++)
            acc = fmaf((float)dtype_load(s->tq, b->q, s->turned ? e * s->rows + i : i * s->inner + e),
                       (float)dtype_load(s->tk, k, j * s->inner + e), acc);
        row[j] = left_out(s, b->line[j]) ? -INFINITY : acc * s->scale + (s->admits ? 0 : b->line[j]);
        most = isnan(row[j]) || row[j] > most ? row[j] : most;
    }
    for (int64_t j = 0; j < n; j++) total += row[j] = expf(row[j] - most);
    b->total[i] = 1 / total;
    return true;
}

/* Keys a row does not see count as nothing, even where k and v hold no number: sum such a row again. */
static void mend(const block *b, int64_t i)
{
    const state *s = b->s;
    if (s->mask >= 0 && !weights_again(b, i)) return;
    for (int64_t j = 0; j < s->cols; j++) {
        float acc = 0;
        for (int64_t l = from(b, i) - b->first; l < sees(b, i) - b->first; l++)
            if (s->mask < 0 || !left_out(s, b->line[l]))
                acc = fmaf(b->score[i * b->ld + l], (float)dtype_load(s->tv, b->v, l * s->cols + j), acc);
        b->out[i * s->cols + j] = acc * b->total[i];
    }
}

static an_status attend_block(const block *b, diag *d)
{
    const state *s = b->s;
    TRY(gemm_pack_a(s->scores, NULL, b->n, s->inner, (gemm_view){ .at = b->q, .type = s->tq,
                                                                  .row = s->turned ? 1 : s->inner,
                                                                  .col = s->turned ? s->rows : 1 },
                    b->mem + s->at_qpack, d));
    gemm_call g = { .kernel = s->scores, .m = b->n, .n = b->seen, .k = s->inner, .a = b->mem + s->at_qpack,
                    .b_packed = b->mem + s->at_keys, .c = b->score, .c_type = DT_F32, .ldc = b->ld,
                    .epi = { .scale = s->scale == 1 ? NULL : b->scale }, .scratch = b->mem + s->at_scratch,
                    .scratch_bytes = s->scratch_bytes };
    TRY(gemm_run(&g, d));
    weights(b);
    TRY(gemm_pack_a(s->values, NULL, b->n, b->seen, (gemm_view){ .at = b->score, .type = DT_F32, .row = b->ld,
                                                                 .col = 1 }, b->mem + s->at_ppack, d));
    g = (gemm_call){ .kernel = s->values, .m = b->n, .n = s->cols, .k = b->seen, .a = b->mem + s->at_ppack,
                     .b_packed = b->mem + s->at_values, .b_k = b->most_seen, .c = b->out, .c_type = DT_F32,
                     .ldc = s->cols, .epi = { .scale = b->total }, .scratch = g.scratch,
                     .scratch_bytes = g.scratch_bytes };
    TRY(gemm_run(&g, d));
    bool odd = (s->causal || b->by_row || s->mask >= 0) && !(s->env->v->largest(b->out, b->n * s->cols) < INFINITY);
    for (int64_t i = 0; odd && i < b->n; i++)
        if (!(s->env->v->largest(b->out + i * s->cols, s->cols) < INFINITY)) mend(b, i);
    unsigned char *y = (unsigned char *)ctx_mem(b->c, s->y) +
                       (b->stack * s->rows * s->cols + b->i0 * (s->turned ? 1 : s->cols)) * exec_size(s->ty);
    if (!s->turned) {
        s->env->v->store(y, s->ty, b->out, b->n * s->cols);
        return AN_OK;
    }
    float *lines = (float *)(void *)(b->mem + s->at_turned);
    s->env->v->transpose(lines, b->n, b->out, s->cols, s->cols, b->n, sizeof *lines);
    for (int64_t j = 0; j < s->cols; j++)
        s->env->v->store(y + j * s->rows * exec_size(s->ty), s->ty, lines + j * b->n, b->n);
    return AN_OK;
}

static an_status attend_part(block *b, int64_t part, diag *d)
{
    const state *s = b->s;
    int64_t first, end, last = s->blocks - 1 - part; /* every parts-th block, the longest first */
    b->first = s->keys, b->most_seen = 0;
    for (int64_t i = last; i >= 0; i -= s->parts) {
        take_block(b, i, &first, &end);
        b->first = MIN(b->first, first), b->most_seen = MAX(b->most_seen, end);
    }
    b->most_seen -= b->first;
    const unsigned char *k =
        (const unsigned char *)ctx_mem(b->c, s->k) + (s->k_off[b->stack] + b->first * s->inner) * exec_size(s->tk);
    const unsigned char *q = (const unsigned char *)ctx_mem(b->c, s->q) + s->q_off[b->stack] * exec_size(s->tq);
    b->v = (const unsigned char *)ctx_mem(b->c, s->v) + (s->v_off[b->stack] + b->first * s->cols) * exec_size(s->tv);
    TRY(gemm_pack_b(s->scores, NULL, b->most_seen, s->inner,
                    (gemm_view){ .at = k, .type = s->tk, .row = 1, .col = s->inner }, b->mem + s->at_keys, d));
    TRY(gemm_pack_b(s->values, NULL, s->cols, b->most_seen,
                    (gemm_view){ .at = b->v, .type = s->tv, .row = s->cols, .col = 1 }, b->mem + s->at_values, d));
    for (int64_t i = 0; i < s->block && s->scale != 1; i++) b->scale[i] = s->scale;
    for (int64_t i = last; i >= 0; i -= s->parts) {
        take_block(b, i, &first, &end);
        b->seen = end - b->first, b->ld = b->seen + APART,
        b->q = q + b->i0 * (s->turned ? 1 : s->inner) * exec_size(s->tq);
        TRY(attend_block(b, d));
    }
    return AN_OK;
}

static void part_task(void *ctx, int64_t task, int thread)
{
    job *j = ctx;
    const state *s = j->s;
    diag d = { 0 };
    unsigned char *mem = (unsigned char *)j->c->work + s->at_threads + (size_t)thread * s->each;
    block b = { .c = j->c, .s = s, .stack = task / s->parts, .mem = mem, .score = (float *)(void *)(mem + s->at_score),
                .out = (float *)(void *)(mem + s->at_out) };
    b.total = (float *)(void *)(mem + s->at_line), b.scale = b.total + s->block, b.line = b.scale + s->block;
    if (attend_part(&b, task % s->parts, &d)) atomic_store(&j->failed, 1);
}

/* Positions one after the other, and each sees all keys before its own. */
static bool follow(const keys_seen *by_row, const state *s)
{
    for (int64_t i = 0; i < s->rows; i++)
        if (by_row[i].first || by_row[i].end != by_row[0].end + i) return false;
    return true;
}

static an_status run(const run_ctx *c, const insn *in, diag *d)
{
    job j = { .c = c, .s = c->state };
    if (!c->state) return (in->op == IN_ATTEND_AT ? ref_attend_at : ref_attend)(c, in, d);
    if (j.s->columns && j.s->pos < 0) return attend_columns_run(c, in, j.s->columns, 0, d);
    if (j.s->few) return attend_few_run(c, j.s->few), AN_OK;
    keys_seen *by_row = c->work;
    const int64_t t = j.s->pos;
    for (int64_t i = 0; t >= 0 && i < j.s->rows; i++)
        by_row[i] = ref_sees(dtype_load(ctx_tensor(c, t)->dt, ctx_mem(c, t), i), j.s->keys, j.s->window);
    if (j.s->columns && follow(by_row, j.s)) return attend_columns_run(c, in, j.s->columns, by_row[0].end - 1, d);
    pool_run(c->pool, part_task, &j, j.s->stacks * j.s->parts);
    return atomic_load(&j.failed)
               ? diag_fail(d, AN_BUG, (loc){ .line = in->line }, "attend: a matrix kernel refused its operands")
               : AN_OK;
}

const exec_entry exec_attend = { .run = run, .prepare = prepare };
const exec_entry exec_attend_at = { .run = run, .prepare = prepare };
