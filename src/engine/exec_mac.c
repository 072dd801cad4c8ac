/* exec_mac.c: convolutions, transposed convolutions and matrix products as products of packed matrices.
 * In: a checked instruction; constants in place.  Out: one result.
 *
 * Sums run over k in ascending order whatever is used: the matrix kernels promise one chain per element, and
 * products of fp16 numbers are exact, so on a chip without a window they give the reference's bits as long as
 * nothing is infinite. Where something is, an element comes out as NaN and is summed again by the rules. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "engine/exec_mac_int.h"

enum { MOST_SUMS = 16 << 20, MOST_COLUMNS = 8 << 20, CHUNK_STEP = 64, PASSING_K = 512, PASSING_RUNS_K = 2048,
       ALONE = 500000 /* multiply-adds */, SQUARES_RUN = 1 << 14 };

/* ---- operands ---- */

static bool multiplies(dtype t) { return t == DT_F32 || t == DT_F16 || t == DT_BF16; }

/* fp16 as a chip's multiplier reads it. */
typedef struct {
    const mac *m;
    dtype t;
    const unsigned char *x;
    unsigned char *to;
} clean_job;

static void clean_span(void *user, int64_t first, int64_t count, int thread)
{
    const clean_job *j = user;
    const vec_kernels *v = j->m->env->v;
    float tmp[EXEC_BLOCK];
    (void)thread;
    for (int64_t i = first; i < first + count; i += EXEC_BLOCK) {
        int64_t n = MIN(EXEC_BLOCK, first + count - i);
        v->load(tmp, j->t, j->x + i * exec_size(j->t), n);
        v->clean(tmp, INFINITY, n);
        v->round(tmp, VR_F16, n);
        if (j->m->num->mac_flush != 0) v->flush(tmp, 0x1p-14f, n);
        v->store(j->to + 2 * i, DT_F16, tmp, n);
    }
}

typedef struct {
    const mac *m;
    const unsigned char *x;
    atomic_bool odd;
} plain_job;

static void plain_span(void *user, int64_t first, int64_t count, int thread)
{
    plain_job *j = user;
    (void)thread;
    if (!j->m->env->v->plain_f16(j->x + 2 * first, j->m->num->mac_flush != 0, count)) atomic_store(&j->odd, true);
}

enum { SPAN_LEAST = 32768 };

static bool as_it_is(const mac *m, pool *threads, dtype t, const void *mem, int64_t n)
{
    if (!m->env->chip || m->window) return true;
    plain_job p = { .m = m, .x = mem };
    if (t == DT_F16) exec_spans(threads, n, SPAN_LEAST, plain_span, &p);
    return t == DT_F16 && !atomic_load(&p.odd);
}

static const unsigned char *clean(const mac *m, pool *threads, dtype t, const void *mem, int64_t n, unsigned char *room)
{
    clean_job j = { .m = m, .t = t, .x = mem, .to = room };
    exec_spans(threads, n, SPAN_LEAST, clean_span, &j);
    return room;
}

static const unsigned char *operand(const mac *m, pool *threads, dtype t, const void *mem, int64_t n,
                                    unsigned char *room)
{
    return as_it_is(m, threads, t, mem, n) ? mem : clean(m, threads, t, mem, n, room);
}

/* ---- packing ---- */

static an_status pack_one(const mac *m, pool *threads, const unsigned char *a, void *to, float *bound, diag *d)
{
    const gemm_view v = { .at = a, .type = m->a_as, .row = m->a_row, .col = m->a_col };
    if (!m->window)
        return (m->packed && m->env->many_weights ? gemm_pack_a_past : gemm_pack_a)(m->g, threads, m->m, m->k, v, to,
                                                                                    d);
    window_pack_a(m, threads, a, to, bound);
    return AN_OK;
}

static an_status pack_all(image *im, const mac *m, diag *d)
{
    const unsigned char *raw = m->i8 ? m->i8 : m->a_own ? m->a_own : im->mem[m->a_tensor], *a = raw;
    unsigned char *room = NULL;
    if (!as_it_is(m, im->opt.pool, m->a_type, raw, m->a_elems)) {
        if (!(room = engine_alloc((uint64_t)m->a_elems * 2))) return diag_nomem(d);
        a = clean(m, im->opt.pool, m->a_type, raw, m->a_elems, room);
    }
    an_status st = AN_OK;
    for (int64_t i = 0; i < m->packs && !st; i++)
        st = pack_one(m, im->opt.pool, a + m->pack_off[i] * exec_size(m->a_as), m->packed + (size_t)i * m->pack_bytes,
                      m->packed_bound ? m->packed_bound + i * m->a_panels : NULL, d);
    free(room);
    return st;
}

/* [cin, cout/groups, taps] to [groups, cout/groups, cin/groups, taps]. */
static void turn_weights(const mac *m, const unsigned char *w, unsigned char *to)
{
    int64_t ci = m->geo.cin / m->geo.groups, co = m->geo.cout / m->geo.groups, run = m->geo.taps * exec_size(m->a_type);
    for (int64_t g = 0; g < m->geo.groups; g++)
        for (int64_t o = 0; o < co; o++)
            for (int64_t i = 0; i < ci; i++)
                memcpy(to + ((g * co + o) * ci + i) * run, w + ((g * ci + i) * co + o) * run, (size_t)run);
}

static bool all_finite(const mac *m, const unsigned char *a)
{
    float tmp[EXEC_BLOCK];
    for (int64_t i = 0, n; i < m->a_elems; i += n) {
        n = MIN(EXEC_BLOCK, m->a_elems - i);
        m->env->v->load(tmp, m->a_type, a + i * exec_size(m->a_type), n);
        if (!(m->env->v->largest(tmp, n) < INFINITY)) return false;
    }
    return true;
}

static an_status repack(image *im, const insn *in, void *state, diag *d)
{
    mac *m = state;
    (void)in;
    if (m && m->vec) return mac_vec_again(im, m, d);
    if (!m || !m->packed) return AN_OK;
    if (m->i8) TRY(mac_i8_again(im, m, d));
    if (m->a_own) turn_weights(m, im->mem[m->a_tensor], (unsigned char *)(uintptr_t)m->a_own);
    mac_turn_again(im, m);
    m->odd = m->gaps && !all_finite(m, im->mem[m->a_tensor]);
    return pack_all(im, m, d);
}

/* ---- epilogue of the matrix kernel ---- */

static bool row_value_of(const program *p, const mac *m, int64_t tensor, row_value *v)
{
    const etensor *t = &p->tensors.at[tensor], *y = &p->tensors.at[m->y];
    bool one = et_elems(t) == 1;
    if (!multiplies(t->dt) || (!one && !m->geo.groups)) return false; /* only rows of a convolution's C are channels */
    for (int i = 0; i < t->rank; i++)
        if (t->dim[i] != 1 && i + y->rank - t->rank != 1) return false;
    *v = (row_value){ .kind = one ? ROW_SCALAR : ROW_CHANNEL, .tensor = tensor };
    return true;
}

/* A bias of the features of a matrix product, which are its columns. */
static bool col_value_of(const program *p, const mac *m, int64_t tensor, row_value *v)
{
    const etensor *t = &p->tensors.at[tensor];
    if (!multiplies(t->dt) || m->geo.groups || !t->rank || t->dim[t->rank - 1] != m->n || et_elems(t) != m->n)
        return false;
    *v = (row_value){ .kind = ROW_COLUMNS, .tensor = tensor };
    return true;
}

static bool one_number(const program *p, int64_t tensor)
{
    return multiplies(p->tensors.at[tensor].dt) && et_elems(&p->tensors.at[tensor]) == 1;
}

static bool whole(const program *p, const mac *m, int64_t tensor)
{
    return p->tensors.at[tensor].dt == m->y_type && et_elems(&p->tensors.at[tensor]) == et_elems(&p->tensors.at[m->y]);
}

/* Two steps, from k on, that let the result so far through where another tensor is above a number. */
static bool is_pass(const program *p, const chain *ch, const int64_t *extra, int64_t k, int64_t on, mac *m)
{
    const int64_t *gt = ch->step + k * CHAIN_STEP, *sel = gt + CHAIN_STEP, n = ch->n_inputs;
    if (k + 1 >= ch->n_steps || gt[STEP_FN] != FN_GT || sel[STEP_FN] != FN_SELECT || sel[STEP_A] != n + k ||
        sel[STEP_B] != on)
        return false;
    const int64_t from[] = { gt[STEP_A], gt[STEP_B], sel[STEP_C] };
    for (size_t i = 0; i < COUNT(from); i++)
        if (from[i] < 1 || from[i] >= n) return false;
    m->pass = extra[from[0] - 1], m->above = extra[from[1] - 1], m->shut = extra[from[2] - 1];
    return whole(p, m, m->pass) && one_number(p, m->above) && one_number(p, m->shut);
}

/* scale, bias, activation, a gate or a pass, residual: in this order, each at most once. No gate in fp32: what is computed
 * again in a backward pass, where others read its pieces, must have the same bits, and there a chain computes it. */
static bool fits_kernel(const program *p, const insn *in, mac *m)
{
    static const struct {
        fn_id f;
        gemm_act act;
    } acts[] = { { FN_RELU, ACT_RELU },
                 { FN_SILU, ACT_SILU },
                 { FN_GELU_TANH, ACT_GELU_TANH },
                 { FN_SIGMOID, ACT_SIGMOID },
                 { FN_TANH, ACT_TANH } };
    enum { SUM, SCALED, BIASED, ACTED, GATED, ADDED };
    int64_t n, gate = -1, on = 0; /* the step that has the gate; where the result stands */
    const int64_t *extra = insn_ts(in, "extra", &n);
    chain ch = insn_chain(in, n + 1);
    int stage = SUM;
    bool gated = false;
    m->residual = m->gate = m->pass = -1;
    if (m->vec || m->env->chip || m->turned || (m->y_type != DT_F32 && m->y_type != DT_F16 && m->y_type != DT_BF16))
        return false;
    for (int64_t k = 0; k < ch.n_steps; k++) {
        const int64_t *s = ch.step + k * CHAIN_STEP;
        fn_id f = (fn_id)s[STEP_FN];
        if (stage < GATED && gate < 0 && is_pass(p, &ch, extra, k, on, m)) {
            stage = GATED, on = ch.n_inputs + ++k;
            continue;
        }
        if (!dtype_is_float((dtype)s[STEP_TYPE]) || s[STEP_TYPE] == DT_F64) return false;
        if (f == FN_SILU && gate < 0 && m->y_type != DT_F32 && s[STEP_A] >= 1 && s[STEP_A] < ch.n_inputs &&
            s[STEP_TYPE] == DT_F32 && whole(p, m, extra[s[STEP_A] - 1])) {
            gate = ch.n_inputs + k, m->gate = extra[s[STEP_A] - 1];
            continue;
        }
        if (fn_operands(f) == 1) {
            bool found = false;
            for (size_t i = 0; i < COUNT(acts); i++)
                if (acts[i].f == f) m->act = acts[i].act, found = true;
            if (!found || s[STEP_A] != on || stage >= ACTED) return false;
            stage = ACTED, on = ch.n_inputs + k;
            continue;
        }
        if (f != FN_MUL && f != FN_ADD) return false;
        int64_t other = s[STEP_A] == on ? s[STEP_B] : s[STEP_B] == on ? s[STEP_A] : -1;
        on = ch.n_inputs + k;
        if (f == FN_MUL && gate >= 0 && other == gate && stage < GATED) {
            stage = GATED, gated = true;
            continue;
        }
        if (other < 1 || other >= ch.n_inputs) return false;
        int64_t t = extra[other - 1];
        if (f == FN_MUL && stage < SCALED && row_value_of(p, m, t, &m->scale)) stage = SCALED;
        else if (f == FN_ADD && stage < BIASED && (row_value_of(p, m, t, &m->bias) || col_value_of(p, m, t, &m->bias)))
            stage = BIASED;
        else if (f == FN_ADD && stage < ADDED && whole(p, m, t)) stage = ADDED, m->residual = t;
        else return false;
    }
    return gate < 0 || gated;
}

/* ---- preparing ---- */

static bool add_size(size_t *sum, size_t bytes, size_t *at)
{
    *at = *sum;
    if (bytes > SIZE_MAX / 4 || *sum > SIZE_MAX / 4) return false;
    *sum += ROUND_UP(bytes, (size_t)64);
    return true;
}

static bool mul3(int64_t a, int64_t b, int64_t c, size_t *out)
{
    int64_t n;
    if (!mul_i64(a, b, &n) || !mul_i64(n, c, &n)) return false;
    *out = (size_t)n;
    return true;
}

/* Runs of y whose squares are summed together where tiles of it are never in hand. */
static int64_t square_runs(const image *im, const mac *m)
{
    return (et_elems(&im->p->tensors.at[m->y]) + SQUARES_RUN - 1) / SQUARES_RUN;
}

/* Sizes of everything, and how columns are cut. false: too large. */
static bool lay_out(image *im, mac *m)
{
    int threads = m->env->threads;
    int64_t most = m->n;
    if (!m->straight) most = MIN(most, MAX(MOST_SUMS / 4 / m->m, CHUNK_STEP));
    if (m->columns) most = MIN(most, MAX(MOST_COLUMNS / 2 / m->k, CHUNK_STEP));
    m->chunk = most < m->n ? most / CHUNK_STEP * CHUNK_STEP : m->n;
    /* Many small products: each on one thread. Few or large ones: one after the other, on all threads. */
    double flops = 2.0 * (double)m->m * (double)m->n * (double)m->k;
    m->parallel = threads > 1 && m->batches >= threads && (m->batches >= 4 * threads || flops < 4e6);
    m->alone = !m->window && !m->vec && flops * (double)m->batches < 2.0 * ALONE;
    m->parallel = m->parallel && !m->alone;
    int inner = m->parallel || m->alone ? 1 : threads;
    size_t shared = 0, slot = 0, n, pack;
    if (m->window) m->pack_bytes = ROUND_UP(window_a_bytes(m), (size_t)64);
    else if (!gemm_pack_a_bytes(m->g, m->m, m->k, &m->pack_bytes)) return false;
    m->pack_bytes = ROUND_UP(m->pack_bytes, (size_t)64);
    bool clean = m->env->chip && !m->window;
    /* An A that changes and is short; or one that lies in runs and passes by once: packed ahead it would leave the
     * cache and come back. */
    bool lies_well =
        gemm_passes(m->g, m->m, m->n, m->k, inner, (gemm_view){ .type = m->a_as, .row = m->a_row, .col = m->a_col });
    bool passes = m->k <= PASSING_K || (m->k <= PASSING_RUNS_K && lies_well) ||
                  (m->b_col == 1 && gemm_by_parts(m->g, m->m, m->k));
    m->in_passing = !m->window && !mac_is_const(im, m->a_tensor) && passes && m->chunk == m->n;
    m->by_rows =
        m->in_passing && !m->straight && !m->turned && !m->vec && m->b_col == 1 && gemm_by_parts(m->g, m->m, m->k);
    /* constants are packed once, elsewhere */
    pack = m->vec || m->in_passing || mac_is_const(im, m->a_tensor) ? 0 : m->pack_bytes;
    if (!add_size(&shared, clean && !mac_is_const(im, m->a_tensor) ? (size_t)m->a_elems * 2 : 0, &m->at_clean_a))
        return false;
    if (!add_size(&shared, clean ? (size_t)m->b_elems * 2 : 0, &m->at_clean_b)) return false;
    m->at_slots = shared;
    if (!add_size(&slot, pack, &m->at_pack)) return false;
    if (!add_size(&slot, m->window && pack ? (size_t)m->a_panels * sizeof(float) : 0, &m->at_bound)) return false;
    if (!mul3(m->columns ? m->k : 0, m->chunk, exec_size(m->b_as), &n) || !add_size(&slot, n, &m->at_columns))
        return false;
    if (m->window) m->scratch_bytes = window_b_bytes(m);
    else if (m->vec) {
        if (!mac_vec_bytes(m, &m->scratch_bytes)) return false;
    } else if (!gemm_scratch_bytes(m->g, m->m, m->chunk, m->k, inner, &m->scratch_bytes)) return false;
    if (m->n % m->chunk && !m->window) { /* the last cut is narrower and may be blocked differently */
        if (!gemm_scratch_bytes(m->g, m->m, m->n % m->chunk, m->k, inner, &n)) return false;
        m->scratch_bytes = MAX(m->scratch_bytes, n);
    }
    if (!add_size(&slot, m->scratch_bytes, &m->at_scratch)) return false;
    if (!mul3(m->straight ? 0 : m->m, m->chunk, sizeof(float), &n) || !add_size(&slot, n, &m->at_c)) return false;
    m->chain_bytes = m->straight ? 0
                                 : ROUND_UP(exec_chain_bytes(m->chain) +
                                                (m->turned ? (size_t)m->env->v->width * EXEC_BLOCK * sizeof(float) : 0),
                                            (size_t)64);
    if (!add_size(&slot, m->chain_bytes * (size_t)inner, &m->at_chain)) return false;
    if (!add_size(&slot, m->straight ? (size_t)(m->m * 2 + m->n) * sizeof(float) : 0, &m->at_rows)) return false;
    m->slot_bytes = slot;
    size_t all, sums = 0;
    if (!mul_size(slot, m->parallel ? (size_t)threads : 1, &all) || all > SIZE_MAX / 4) return false;
    m->at_squares = shared + all;
    m->tiles = m->straight ? gemm_tiles(m->g, m->m, m->n) : 0;
    if (m->squares >= 0 &&
        !mul3(m->straight ? m->batches : 1, m->straight ? m->tiles : square_runs(im, m), sizeof(float), &sums))
        return false;
    exec_need_work(im, m->extent = m->at_squares + ROUND_UP(sums, (size_t)64));
    return true;
}

static an_status take_batches(image *im, mac *m, int64_t n, diag *d)
{
    m->batches = n;
    m->a_off = TAKE(&im->prepared, int64_t, (size_t)n), m->b_off = TAKE(&im->prepared, int64_t, (size_t)n);
    m->y_off = TAKE(&im->prepared, int64_t, (size_t)n), m->pack_of = TAKE(&im->prepared, int64_t, (size_t)n);
    m->pack_off = TAKE(&im->prepared, int64_t, (size_t)n);
    return m->a_off && m->b_off && m->y_off && m->pack_of && m->pack_off ? AN_OK : diag_nomem(d);
}

/* Batches that multiply by the same A share a pack. Offsets come in runs or repeat with a period: look back along
 * the packs. */
static void number_packs(mac *m)
{
    m->packs = 0;
    for (int64_t b = 0; b < m->batches; b++) {
        int64_t i = m->packs ? m->packs - 1 : -1;
        while (i >= 0 && m->pack_off[i] != m->a_off[b] && i > m->packs - 64) i--;
        if (i < 0 || m->pack_off[i] != m->a_off[b]) m->pack_off[i = m->packs++] = m->a_off[b];
        m->pack_of[b] = i;
    }
}

static bool overlap(const etensor *a, const etensor *b)
{
    uint64_t n, k;
    if (a->where != b->where || (a->where != SPACE_SCRATCH && a->slot != b->slot)) return false;
    return !et_bytes(a, &n) || !et_bytes(b, &k) || (a->offset < b->offset + k && b->offset < a->offset + n);
}

/* Several products of one value (queries, keys and values of one norm) come one after the other: the one before,
 * which leaves that value as it is; NULL: something else is before. */
static mac *same_before(const image *im, const insn *in, const mac *m)
{
    const program *p = im->p;
    size_t i = (size_t)(in - p->insns.at);
    insn_id op = i ? p->insns.at[i - 1].op : IN_COUNT;
    mac *q = insn_is_product(op) ? im->state[i - 1] : NULL;
    if (!q || m->window || m->columns || q->columns || m->batches != 1 || q->batches != 1) return NULL;
    const etensor *b = &p->tensors.at[m->b_tensor], *was = &p->tensors.at[q->b_tensor];
    bool same = b->where == was->where && b->slot == was->slot && b->offset == was->offset && m->b_type == q->b_type &&
                m->b_off[0] == q->b_off[0] && m->b_row == q->b_row && m->b_col == q->b_col;
    return same && m->n == q->n && m->k == q->k && !overlap(&p->tensors.at[q->y], b) ? q : NULL;
}

/* B is packed once for them. */
static bool packed_before(const mac *q, const mac *m)
{
    bool alike = !q->vec && !q->turn && m->g == q->g && m->m == q->m && m->chunk == m->n && q->chunk == q->n &&
                 m->in_passing == q->in_passing;
    return alike && m->at_slots + m->at_scratch == q->at_slots + q->at_scratch;
}

/* What is left to decide once operands, sizes and batches are known. */
static an_status finish(image *im, const insn *in, mac *m, void **state, diag *d)
{
    const numerics *num = m->num;
    const program *p = im->p;
    if (!multiplies(m->a_type) || !multiplies(m->b_type)) return AN_OK;
    m->window = num->window_bits != 0;
    if (m->window && (!m->env->chip || num->window_bits > 20)) return AN_OK;
    if (m->env->chip && !m->window && num->port_partial != 0 && num->port_ceiling != 0) return AN_OK;
    m->a_as = m->env->chip && !m->window ? DT_F16 : m->a_type,
    m->b_as = m->env->chip && !m->window ? DT_F16 : m->b_type;
    gemm_math math = m->env->chip || (m->a_type == DT_F16 && m->b_type == DT_F16) ? GEMM_F16
                     : m->a_type == DT_BF16 && m->b_type == DT_BF16               ? GEMM_BF16
                                                                                  : GEMM_F32;
    /* a thin or short product costs less in fp32 than rounding its operands */
    const gemm_kernel *const exact = gemm_pick(GEMM_F32, m->env->isa);
    const bool thin = math == GEMM_F32 && !mac_is_const(im, m->a_tensor) &&
                      (double)m->m * (double)m->n * (double)m->k < ALONE &&
                      ((m->b_col == 1 && gemm_thin(exact, m->n)) || gemm_short(exact, m->m, m->n, m->k));
    if (!m->env->chip && im->opt.fast_math && !thin) math = GEMM_BF16;
    m->g = gemm_pick(math, m->env->isa);
    if (!mac_is_const(im, m->a_tensor)) m->g = gemm_once(m->g, m->m, m->n, m->k);
    m->a_elems = et_elems(&p->tensors.at[m->a_tensor]), m->b_elems = et_elems(&p->tensors.at[m->b_tensor]);
    m->a_panels = (m->m + WINDOW_ROWS - 1) / WINDOW_ROWS;
    number_packs(m);
    TRY(mac_vec_make(im, m, d));
    if (!m->vec && !m->env->chip && im->opt.fast_math == FAST_INT8) TRY(mac_i8_make(im, m, d));
    mac *before = same_before(im, in, m);
    const bool joins = before && mac_can_join(im, before, m);
    m->straight = !joins && fits_kernel(p, in, m);
    if (!m->straight) {
        TRY(exec_chain_make(im, in, "extra", m->y, true, m->ceiling, &m->chain, d));
        if (!m->chain) return AN_OK;
    }
    if (!lay_out(im, m)) return AN_OK;
    if (joins) mac_join(im, before, m);
    m->same_b = before && !m->vec && packed_before(before, m);
    if (mac_is_const(im, m->a_tensor) && !m->vec) {
        pack_key key = { .tensor = m->a_tensor, .form = gemm_name(m->g), .m = m->m, .k = m->k, .row = m->a_row,
                         .col = m->a_col, .packs = m->packs, .turned = m->a_own != NULL };
        size_t bytes, bounds = 0; /* bounds go with what they are bounds of: whoever finds one packed finds both */
        bool fresh;
        if (!mul_size((size_t)m->packs, m->pack_bytes, &bytes) ||
            (m->window && !mul3(m->packs, m->a_panels, sizeof *m->packed_bound, &bounds)))
            return diag_nomem(d);
        TRY(pack_take(im, &key, bytes + bounds, &m->packed, &fresh, d));
        if (m->window) m->packed_bound = (float *)(void *)(m->packed + bytes);
        if (fresh && !m->i8) TRY(const_ready(im, m->a_tensor, d));
        if (fresh) TRY(pack_all(im, m, d));
        TRY(mac_turn_make(im, m, d));
        TRY(panel_note(im, (void *)(uintptr_t)m->a_own, m->a_own ? (size_t)(m->a_elems * exec_size(m->a_type)) : 0, d));
        TRY(panel_note(im, m->i8 ? m->i8_scale : NULL, (size_t)m->m * sizeof *m->i8_scale, d));
        m->gaps = m->gaps && !m->i8;
        if (m->gaps) TRY(const_ready(im, m->a_tensor, d));
        m->odd = m->gaps && !all_finite(m, im->mem[m->a_tensor]);
        /* they look at the original where something is infinite */
        if (!m->env->chip && !m->gaps) im->packed_now = m->a_tensor;
    }
    *state = m;
    return AN_OK;
}

static an_status open(image *im, const insn *in, mac **out, diag *d)
{
    exec_env *e;
    *out = NULL;
    TRY(exec_open(im, &e, d));
    if (!e->fast) return AN_OK;
    mac *m = TAKE(&im->prepared, mac, 1);
    if (!m) return diag_nomem(d);
    *m = (mac){ .env = e, .num = &im->p->num, .y = insn_t(in, "y"), .residual = -1, .gate = -1, .pass = -1, .squares = in->op == IN_MATMUL_SQUARES ? insn_t(in, "squares") : -1 };
    if (m->squares >= 0 && e->chip) return AN_OK; /* no chip has it */
    m->y_type = im->p->tensors.at[m->y].dt;
    *out = m;
    return AN_OK;
}

static an_status prepare_conv_as(image *im, const insn *in, bool transposed, void **state, diag *d)
{
    mac *m;
    TRY(open(im, in, &m, d));
    if (!m) return AN_OK;
    m->a_tensor = insn_t(in, "w"), m->b_tensor = insn_t(in, "x");
    m->a_type = im->p->tensors.at[m->a_tensor].dt, m->b_type = im->p->tensors.at[m->b_tensor].dt;
    geometry g = m->geo = exec_geometry(im->p, in, transposed);
    int64_t ci = g.cin / g.groups, co = g.cout / g.groups, plane = dims_product(g.in, 0, SPATIAL),
            places = dims_product(g.out, 0, SPATIAL);
    if (!multiplies(m->a_type) || !multiplies(m->b_type) ||
        (transposed && !mac_is_const(im, m->a_tensor) && g.taps > 1))
        return AN_OK;
    m->m = co, m->n = places, m->k = ci * g.taps;
    m->a_row = m->k, m->a_col = 1, m->b_row = plane, m->b_col = 1;
    m->ceiling = m->k > 1;
    m->columns = g.taps > 1 || g.stride[0] != 1 || g.stride[1] != 1 || g.stride[2] != 1 || plane != places ||
                 g.pad[0] || g.pad[1] || g.pad[2];
    m->gaps = transposed && m->columns && !m->env->chip;
    if (transposed && g.taps == 1) m->a_row = 1, m->a_col = co; /* a single tap lies as [in, out]: read it sideways */
    else if (transposed) {
        unsigned char *own = arena_take(&im->prepared, (size_t)et_elems(&im->p->tensors.at[m->a_tensor]),
                                        (size_t)exec_size(m->a_type), 64);
        if (!own) return diag_nomem(d);
        TRY(const_ready(im, m->a_tensor, d));
        turn_weights(m, im->mem[m->a_tensor], own);
        m->a_own = own;
    }
    TRY(take_batches(im, m, g.batch * g.groups, d));
    for (int64_t b = 0; b < m->batches; b++) {
        int64_t n = b / g.groups, group = b % g.groups;
        m->a_off[b] = group * co * m->k, m->b_off[b] = (n * g.cin + group * ci) * plane,
        m->y_off[b] = (n * g.cout + group * co) * places;
    }
    return finish(im, in, m, state, d);
}

static an_status prepare_conv(image *im, const insn *in, void **state, diag *d)
{
    return prepare_conv_as(im, in, false, state, d);
}
static an_status prepare_conv_t(image *im, const insn *in, void **state, diag *d)
{
    return prepare_conv_as(im, in, true, state, d);
}

/* Strides of an operand's leading axes, walked as the result's. */
static void stack_strides(const etensor *t, int rank, int64_t *stride)
{
    etensor lead = *t;
    lead.rank -= 2;
    et_broadcast_strides(&lead, rank, stride);
    for (int i = 0; i < rank; i++) stride[i] *= t->dim[t->rank - 2] * t->dim[t->rank - 1];
}

static an_status prepare_matmul(image *im, const insn *in, void **state, diag *d)
{
    mac *m;
    TRY(open(im, in, &m, d));
    if (!m) return AN_OK;
    int64_t x = insn_t(in, "x"), z = insn_t(in, "z"), tx = insn_i(in, "trans_x"), tz = insn_i(in, "trans_z");
    const etensor *y = &im->p->tensors.at[m->y], *et_x = &im->p->tensors.at[x], *et_z = &im->p->tensors.at[z];
    int lead = y->rank - 2;
    int64_t rows = y->dim[lead], cols = y->dim[lead + 1], k = et_x->dim[et_x->rank - 1 - tx],
            stacks = dims_product(y->dim, 0, lead);
    int64_t x_last = et_x->dim[et_x->rank - 1], z_last = et_z->dim[et_z->rank - 1], sx[ENGINE_MAX_RANK],
            sz[ENGINE_MAX_RANK];
    int64_t x_row = tx ? 1 : x_last, x_col = tx ? x_last : 1, z_row = tz ? 1 : z_last, z_col = tz ? z_last : 1;
    stack_strides(et_x, lead, sx), stack_strides(et_z, lead, sz);
    bool one_z = dims_product(et_z->dim, 0, et_z->rank - 2) == 1,
         own_x = dims_product(et_x->dim, 0, et_x->rank - 2) == stacks;
    if (one_z && own_x && !tx) rows *= stacks, stacks = 1; /* a stack of rows times one matrix is one product */
    m->ceiling = true;
    m->turned = mac_is_const(im, z) && !mac_is_const(im, x);
    TRY(take_batches(im, m, stacks, d));
    int64_t idx[ENGINE_MAX_RANK] = { 0 };
    for (int64_t b = 0; b < stacks; b++, next_index(y->dim, lead, idx)) {
        int64_t ox = 0, oz = 0;
        for (int i = 0; i < lead; i++) ox += idx[i] * sx[i], oz += idx[i] * sz[i];
        m->a_off[b] = m->turned ? oz : ox, m->b_off[b] = m->turned ? ox : oz, m->y_off[b] = b * rows * cols;
    }
    m->a_tensor = m->turned ? z : x, m->b_tensor = m->turned ? x : z;
    m->a_type = im->p->tensors.at[m->a_tensor].dt, m->b_type = im->p->tensors.at[m->b_tensor].dt;
    m->m = m->turned ? cols : rows, m->n = m->turned ? rows : cols, m->k = k;
    m->a_row = m->turned ? z_col : x_row, m->a_col = m->turned ? z_row : x_col;
    m->b_row = m->turned ? x_col : z_row, m->b_col = m->turned ? x_row : z_col;
    return finish(im, in, m, state, d);
}

/* ---- running ---- */

/* An element whose operands hold infinities, by the rules: what has no value does not count. */
static float sum_again(const product *p, int64_t i, int64_t j)
{
    const mac *m = p->m;
    const unsigned char *a = (m->a_own ? m->a_own : (const unsigned char *)ctx_mem(p->c, m->a_tensor)) +
                             m->a_off[p->batch] * exec_size(m->a_type);
    float acc = 0;
    for (int64_t k = 0; k < m->k; k++) {
        float x = num_flush(m->num, num_in(m->num, m->a_type, dtype_load(m->a_type, a, i * m->a_row + k * m->a_col)));
        float z = num_flush(m->num, num_in(m->num, m->b_as, dtype_load(m->b_as, p->b, k * p->b_row + j * p->b_col)));
        if (!isnan(x * z)) acc = (float)num_valid(m->num, (double)fmaf(x, z, acc));
    }
    return acc;
}

static void mend(const product *p, float *sums, int64_t i, int64_t j, int64_t n)
{
    if (!p->m->env->chip || p->m->window || p->m->env->v->largest(sums, n) < INFINITY) return;
    for (int64_t k = 0; k < n; k++)
        if (isnan(sums[k])) sums[k] = sum_again(p, i, j + k);
}

/* Rows first .. first + count of C through the chain. */
static void chain_rows(void *user, int64_t first, int64_t count, int thread)
{
    const product *p = user;
    const mac *m = p->m;
    unsigned char *scratch = p->slot + m->at_chain + (size_t)thread * m->chain_bytes;
    for (int64_t i = first; i < first + count; i++)
        for (int64_t j = 0; j < p->nc; j += EXEC_BLOCK) {
            int64_t n = MIN(EXEC_BLOCK, p->nc - j);
            float *sums = p->sums + i * p->nc + j;
            mend(p, sums, i, j, n);
            exec_chain_block(m->chain, p->c, sums, m->y_off[p->batch] + i * m->n + p->n0 + j, n, scratch);
        }
}

/* The same when rows of C are short and lie in y as they lie here: elements instead of rows. */
static void chain_elements(void *user, int64_t first, int64_t count, int thread)
{
    const product *p = user;
    const mac *m = p->m;
    unsigned char *scratch = p->slot + m->at_chain + (size_t)thread * m->chain_bytes;
    for (int64_t i = first; i < first + count; i += EXEC_BLOCK) {
        int64_t n = MIN(EXEC_BLOCK, first + count - i), done = 0;
        if (m->env->chip && !m->window)
            for (int64_t at; done < n; done += at) { /* row by row: an element is mended by its place */
                int64_t row = (i + done) / m->n, col = (i + done) % m->n;
                at = MIN(m->n - col, n - done);
                mend(p, p->sums + i + done, row, col, at);
            }
        exec_chain_block(m->chain, p->c, p->sums + i, m->y_off[p->batch] + i, n, scratch);
    }
}

/* C turned: groups of rows of y are columns of C. */
static void chain_turned(void *user, int64_t task, int thread)
{
    const product *p = user;
    const mac *m = p->m;
    const vec_kernels *v = m->env->v;
    unsigned char *scratch = p->slot + m->at_chain + (size_t)thread * m->chain_bytes;
    float *lines = (float *)(void *)(scratch + exec_chain_bytes(m->chain));
    int64_t r0 = task * v->width, rows = MIN(v->width, p->nc - r0);
    for (int64_t j = 0; j < m->m; j += EXEC_BLOCK) {
        int64_t n = MIN(EXEC_BLOCK, m->m - j);
        v->transpose(lines, EXEC_BLOCK, p->sums + j * p->nc + r0, p->nc, rows, n, sizeof(float));
        for (int64_t r = 0; r < rows; r++) {
            float *sums = lines + r * EXEC_BLOCK;
            if (m->env->chip && !m->window && !(v->largest(sums, n) < INFINITY))
                for (int64_t i = 0; i < n; i++)
                    if (isnan(sums[i])) sums[i] = sum_again(p, j + i, r0 + r);
            exec_chain_block(m->chain, p->c, sums, m->y_off[p->batch] + (p->n0 + r0 + r) * m->m + j, n, scratch);
        }
    }
}

static void chain_finished(void *user, int64_t row, int64_t rows, int thread)
{
    const product *p = user;
    chain_elements(user, row * p->m->n, rows * p->m->n, thread);
}

typedef struct {
    const product *p;
    exec_span_fn *fn;
    int64_t each;
} row_job;

static void row_task(void *ctx, int64_t task, int thread)
{
    const row_job *r = ctx;
    product *p = (product *)(uintptr_t)r->p;
    r->fn(p, task * r->each, MIN(r->each, p->m->m - task * r->each), thread);
}

static void epilogue(product *p)
{
    const mac *m = p->m;
    if (m->turned) pool_run(p->pool, chain_turned, p, (p->nc + m->env->v->width - 1) / m->env->v->width);
    else if (p->nc == m->n) exec_spans(p->pool, m->m * m->n, 4096, chain_elements, p);
    else {
        row_job r = { .p = p, .fn = chain_rows, .each = MAX(1, 4096 / p->nc) };
        pool_run(p->pool, row_task, &r, (m->m + r.each - 1) / r.each);
    }
}

/* One value per row of C, in fp32; NULL: none. */
static const float *row_values(const product *p, const row_value *r, float *to)
{
    const mac *m = p->m;
    if (r->kind == ROW_NONE || r->kind == ROW_COLUMNS) return NULL;
    dtype t = ctx_tensor(p->c, r->tensor)->dt;
    const unsigned char *x = ctx_mem(p->c, r->tensor);
    if (r->kind == ROW_CHANNEL) m->env->v->load(to, t, x + (p->batch % m->geo.groups) * m->m * exec_size(t), m->m);
    else {
        m->env->v->load(to, t, x, 1);
        for (int64_t i = 1; i < m->m; i++) to[i] = to[0];
    }
    return to;
}

/* One value per column; NULL: none. */
static const float *col_values(const product *p, const row_value *r, float *to)
{
    if (r->kind != ROW_COLUMNS) return NULL;
    const dtype t = ctx_tensor(p->c, r->tensor)->dt;
    const unsigned char *x = (const unsigned char *)ctx_mem(p->c, r->tensor) + p->n0 * exec_size(t);
    if (t == DT_F32) return (const float *)(const void *)x;
    p->m->env->v->load(to, t, x, p->nc);
    return to;
}

static float number_at(const product *p, int64_t tensor)
{
    return (float)dtype_load(ctx_tensor(p->c, tensor)->dt, ctx_mem(p->c, tensor), 0);
}

static float *squares_of(const run_ctx *c, const mac *m)
{
    return (float *)(void *)((unsigned char *)c->work + m->at_squares);
}

typedef struct {
    const run_ctx *c;
    const mac *m;
    int64_t n;
} squares_job;

static void squares_task(void *ctx, int64_t task, int thread)
{
    const squares_job *j = ctx;
    const int64_t from = task * SQUARES_RUN;
    (void)thread;
    squares_of(j->c, j->m)[task] = j->m->env->v->along(DT_F32, (const float *)ctx_mem(j->c, j->m->y) + from,
                                                       STAT_SQUARES, 0, 0, MIN(SQUARES_RUN, j->n - from));
}

/* Sums of tiles, or of runs of y, in order: whoever took them, it is the same sum. */
static void add_squares(const run_ctx *c, const mac *m)
{
    squares_job j = { .c = c, .m = m, .n = et_elems(ctx_tensor(c, m->y)) };
    const int64_t parts = m->straight ? m->batches * m->tiles : (j.n + SQUARES_RUN - 1) / SQUARES_RUN;
    double sum = 0;
    if (!m->straight) pool_run(m->alone ? NULL : c->pool, squares_task, &j, parts);
    for (int64_t i = 0; i < parts; i++) sum += (double)squares_of(c, m)[i];
    *(float *)ctx_mem(c, m->squares) = (float)sum;
}

static an_status multiply(product *p, diag *d)
{
    const mac *m = p->m;
    if (m->first) return AN_OK; /* it has been summed */
    if (m->window) {
        window_multiply(p);
        return AN_OK;
    }
    if (m->vec) return mac_vec_multiply(p, d);
    if (mac_turn_holds(m) && p->b_col == 1) {
        mac_turn_rows(p);
        return AN_OK;
    }
    gemm_call call = {
        .kernel = m->g,
        .pool = p->pool,
        .m = m->m,
        .n = p->nc,
        .k = m->k,
        .a = p->packed,
        .a_view = { .at = p->a, .type = m->a_as, .row = m->a_row, .col = m->a_col },
        .b = { .at = p->b, .type = m->b_as, .row = p->b_row, .col = p->b_col },
        .same_b = m->same_b,
        .c = p->sums,
        .c_type = DT_F32,
        .ldc = p->nc,
        .scratch = p->slot + m->at_scratch,
        .scratch_bytes = m->scratch_bytes,
    };
    for (int i = 0; i < m->n_after; i++)
        call.more[call.n_more++] = (gemm_more){ m->after[i]->packed, m->after[i]->m, mac_sums(p->c, m->after[i]) };
    if (m->by_rows) call.rows_done = chain_finished, call.user = p;
    if (m->i8) call.epi.scale = m->i8_scale;
    if (m->straight) {
        float *rows = (float *)(void *)(p->slot + m->at_rows);
        int64_t at = (m->y_off[p->batch] + p->n0) * exec_size(m->y_type);
        call.c = (unsigned char *)ctx_mem(p->c, m->y) + at, call.c_type = m->y_type, call.ldc = m->n;
        if (m->squares >= 0) call.squares = squares_of(p->c, m) + p->batch * m->tiles;
        if (m->scale.kind != ROW_NONE) call.epi.scale = row_values(p, &m->scale, rows);
        for (int64_t i = 0; m->i8 && m->scale.kind != ROW_NONE && i < m->m; i++) rows[i] *= m->i8_scale[i];
        call.epi.bias = row_values(p, &m->bias, rows + m->m), call.epi.act = m->act;
        call.epi.col_bias = col_values(p, &m->bias, rows + 2 * m->m);
        if (m->pass >= 0) {
            call.epi.pass.at = (const unsigned char *)ctx_mem(p->c, m->pass) + at, call.epi.pass.ld = m->n;
            call.epi.pass.above = number_at(p, m->above), call.epi.pass.shut = number_at(p, m->shut);
        }
        if (m->gate >= 0) call.epi.gate = (const unsigned char *)ctx_mem(p->c, m->gate) + at, call.epi.ld_gate = m->n;
        if (m->residual >= 0)
            call.epi.residual = (const unsigned char *)ctx_mem(p->c, m->residual) + at, call.epi.ld_residual = m->n;
    }
    return gemm_run(&call, d);
}

static an_status run_batch(product *p, const unsigned char *a, const unsigned char *b, diag *d)
{
    const mac *m = p->m;
    int64_t a_size = exec_size(m->a_as), b_size = exec_size(m->b_as);
    p->sums = m->first ? mac_sums(p->c, m) : (float *)(void *)(p->slot + m->at_c);
    p->a = m->in_passing ? a + m->a_off[p->batch] * a_size : NULL;
    if (m->vec || m->in_passing) {
        p->packed = NULL;
    } else if (m->packed) {
        p->packed = m->packed + (size_t)m->pack_of[p->batch] * m->pack_bytes;
        p->bound = m->packed_bound ? m->packed_bound + m->pack_of[p->batch] * m->a_panels : NULL;
    } else {
        float *bound = (float *)(void *)(p->slot + m->at_bound);
        TRY(pack_one(m, p->pool, a + m->a_off[p->batch] * a_size, p->slot + m->at_pack, bound, d));
        p->packed = p->slot + m->at_pack, p->bound = bound;
    }
    const unsigned char *from = b + m->b_off[p->batch] * b_size;
    for (p->n0 = 0; p->n0 < m->n; p->n0 += m->chunk) {
        p->nc = MIN(m->chunk, m->n - p->n0);
        if (m->columns) {
            exec_columns(&m->geo, p->pool, from, b_size, m->geo.cin / m->geo.groups, p->n0, p->nc,
                         p->slot + m->at_columns);
            p->b = p->slot + m->at_columns, p->b_row = p->nc, p->b_col = 1;
        } else p->b = from + p->n0 * m->b_col * b_size, p->b_row = m->b_row, p->b_col = m->b_col;
        TRY(multiply(p, d));
        if (!m->straight && !m->by_rows) epilogue(p);
    }
    return AN_OK;
}

typedef struct {
    const run_ctx *c;
    const mac *m;
    const unsigned char *a, *b;
    unsigned char *slots;
    atomic_int failed;
} batch_job;

static void batch_task(void *ctx, int64_t batch, int thread)
{
    batch_job *j = ctx;
    diag d = { 0 };
    product p = { .c = j->c, .m = j->m, .slot = j->slots + (size_t)thread * j->m->slot_bytes, .batch = batch };
    if (run_batch(&p, j->a, j->b, &d)) atomic_store(&j->failed, 1);
}

static an_status run_batches(const run_ctx *c, const insn *in, const mac *m, diag *d)
{
    unsigned char *work = c->work;
    batch_job j = { .c = c, .m = m, .slots = work + m->at_slots };
    j.b = operand(m, c->pool, m->b_type, ctx_mem(c, m->b_tensor), m->b_elems, work + m->at_clean_b);
    if (!m->packed && !m->vec)
        j.a = operand(m, c->pool, m->a_type, ctx_mem(c, m->a_tensor), m->a_elems, work + m->at_clean_a);
    if (m->parallel) {
        pool_run(c->pool, batch_task, &j, m->batches);
        return atomic_load(&j.failed) ? diag_fail(d, AN_BUG, (loc){ .line = in->line },
                                                  "%s: a matrix kernel refused its operands", insn_name(in->op))
                                      : AN_OK;
    }
    for (int64_t b = 0; b < m->batches; b++) {
        product p = { .c = c, .m = m, .pool = m->alone ? NULL : c->pool, .slot = j.slots, .batch = b };
        TRY(run_batch(&p, j.a, j.b, d));
    }
    return AN_OK;
}

static an_status run_mac(const run_ctx *c, const insn *in, diag *d)
{
    const mac *m = c->state;
    if (!m || m->odd || (m->gaps && !m->packed && !all_finite(m, ctx_mem(c, m->a_tensor))))
        return ref_entry_of(in->op)(c, in, d);
    TRY(run_batches(c, in, m, d));
    if (m->squares >= 0) add_squares(c, m);
    return AN_OK;
}

const exec_entry exec_conv = { .run = run_mac, .prepare = prepare_conv, .repack = repack };
const exec_entry exec_conv_t = { .run = run_mac, .prepare = prepare_conv_t, .repack = repack };
const exec_entry exec_matmul = { .run = run_mac, .prepare = prepare_matmul, .repack = repack };
const exec_entry exec_matmul_squares = { .run = run_mac, .prepare = prepare_matmul, .repack = repack };
