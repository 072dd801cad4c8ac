/* files_store.c: tensors as they lie in files, to rows (or columns) of the type asked for.
 * In: a store.  Out: canonical elements in memory of the caller; nothing is kept.
 *
 * Work is cut into runs of rows, shared out over the pool. A run goes through fp32: exact for every type but fp64,
 * int64 and the like, which take the slow road element by element, so that no value is ever rounded twice. A finite
 * number that the type asked for has no finite one for is refused: an infinite weight makes every answer no number. */
#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "lm/lm_int.h"

enum { RUN_BYTES = 1 << 18 };

const void *store_as_is(const store *s, dtype dt)
{
    bool canonical = s->kind == STORE_PLAIN && s->dt == dt && s->add == 0 &&
                     (!s->turned ? s->ld == s->cols || s->rows == 1 : s->cols == 1 && s->ld == s->rows);
    return canonical ? s->data : NULL;
}

/* Types whose values fp32 holds and vec_kernels load. */
static bool fits_f32(dtype t)
{
    return t == DT_F32 || t == DT_F16 || t == DT_BF16 || t == DT_I8 || t == DT_U8 || t == DT_I16 || t == DT_U16 ||
           t == DT_BOOL;
}
static bool stores_f32(dtype t) { return t == DT_F32 || t == DT_F16 || t == DT_BF16; }

/* Element i of seeded weights: four 16-bit digits of one draw summed, which is close to a bell, cut at 3.5
 * deviations. */
static float noise(uint64_t seed, int64_t i)
{
    rng r = { seed + (uint64_t)i * 0x9e3779b97f4a7c15u };
    uint64_t z = rng_next(&r);
    int32_t sum =
        (int32_t)(z & 65535) + (int32_t)(z >> 16 & 65535) + (int32_t)(z >> 32 & 65535) + (int32_t)(z >> 48) - 2 * 65535;
    return (float)sum * (1.7320508f / 65535.0f); /* the deviation of the sum is 65535 / sqrt 3 */
}

static float scale_at(const store *s, int64_t i)
{
    if (s->scale_dt != DT_F32) return (float)dtype_load(s->scale_dt, s->scales, i);
    float x;
    memcpy(&x, s->scales + 4 * i, 4);
    return x;
}

/* n elements from flat place `at` of a store that lies in rows. */
static void load_flat(const store *s, const vec_kernels *v, int64_t at, int64_t n, float *y)
{
    switch (s->kind) {
    case STORE_PLAIN:
        if (fits_f32(s->dt)) v->load(y, s->dt, s->data + (size_t)at * ((size_t)dtype_bits(s->dt) / 8), n);
        else
            for (int64_t i = 0; i < n; i++) y[i] = (float)dtype_load(s->dt, s->data, at + i);
        break;
    case STORE_BLOCKS:
        block_decode(s->block, s->data + (size_t)(at / s->block->elems) * (size_t)s->block->bytes, y, n);
        break;
    case STORE_GROUPS:
        for (int64_t i = 0; i < n;) {
            int64_t g = (at + i) / s->group, m = MIN(n - i, (g + 1) * s->group - (at + i));
            float scale = scale_at(s, g);
            if (s->dt == DT_I8)
                for (int64_t k = 0; k < m; k++) y[i + k] = (float)(int8_t)s->data[at + i + k] * scale;
            else
                for (int64_t k = 0; k < m; k++) y[i + k] = (float)dtype_load(s->dt, s->data, at + i + k) * scale;
            i += m;
        }
        break;
    case STORE_TABLE:
        for (int64_t i = 0; i < n; i++) y[i] = scale_at(s, (s->data[(at + i) / 2] >> ((at + i) % 2 * 4)) & 15);
        break;
    case STORE_RANDOM:
        for (int64_t i = 0; i < n; i++) y[i] = s->std > 0 ? s->mean + s->std * noise(s->seed, at + i) : s->mean;
        break;
    case STORE_NONE: break;
    }
    for (int64_t i = 0; i < n && s->add != 0; i++) y[i] += s->add;
}

typedef struct {
    const store *s;
    const vec_kernels *v;
    dtype dt;
    unsigned char *to;
    int64_t row0, n, ld, run;
    bool turned_out;
    float *scratch; /* room_elems for each thread */
    size_t room_elems;
    double *lost;   /* for each thread: a number past the range of dt; 0: none */
} job;

static size_t unit(dtype dt) { return (size_t)dtype_bits(dt) / 8; }

/* The first of n numbers x that is finite, and infinite as the packed elements y of dt; 0: none. Sixteen-bit types
 * alone: fp32 holds every other x. Four elements at a time: a one added to an exponent of ones alone carries into
 * the bit of the sign, masked out before. */
static double past_range(dtype dt, const float *x, const unsigned char *y, int64_t n)
{
    const uint64_t ones = dt == DT_F16 ? 0x7c007c007c007c00u : 0x7f807f807f807f80u,
                   one = dt == DT_F16 ? 0x0400040004000400u : 0x0080008000800080u;
    uint64_t four, seen = 0;
    if (dt == DT_F32) return 0;
    for (int64_t i = 0; i + 4 <= n; i += 4) {
        memcpy(&four, y + 2 * i, sizeof four);
        seen |= (four & ones) + one;
    }
    for (int64_t i = seen & 0x8000800080008000u ? 0 : n / 4 * 4; i < n; i++)
        if (isfinite(x[i]) && !isfinite(dtype_load(dt, y, i))) return (double)x[i];
    return 0;
}

/* Element by element: for types fp32 does not hold. */
static void run_slow(const job *j, int64_t r0, int64_t n, double *lost)
{
    const store *s = j->s;
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < s->cols; c++) {
            int64_t from = s->turned ? c * s->ld + r0 + r : (r0 + r) * s->ld + c;
            int64_t at = r0 + r - j->row0;
            double x = dtype_load(s->dt, s->data, from) + (double)s->add;
            dtype_store(j->dt, j->to, j->turned_out ? c * j->ld + at : at * j->ld + c, x);
            if (isfinite(x) && !isfinite(dtype_round(j->dt, x))) *lost = x;
        }
}

/* Elements the file holds as they are wanted. */
static bool same_bits(const job *j) { return j->s->kind == STORE_PLAIN && j->s->dt == j->dt && j->s->add == 0; }

/* n elements from flat place `at`, in the type wanted; tmp has room for n. */
static void convert_flat(const job *j, int64_t at, int64_t n, unsigned char *to, float *tmp, double *lost)
{
    const store *s = j->s;
    const float *x = tmp;
    if (s->kind == STORE_PLAIN && s->dt == DT_F32 && s->add == 0 && (uintptr_t)s->data % alignof(float) == 0)
        x = (const float *)(const void *)s->data + at;
    else load_flat(s, j->v, at, n, tmp);
    j->v->store(to, j->dt, x, n);
    double past = past_range(j->dt, x, to, n);
    if (past != 0) *lost = past; /* threads share a line of these */
}

/* Lines that lie as they are wanted: stored rows to rows, or stored columns to columns. `lines` of `len` from
 * (line0, from0). */
static void copy_lines(const job *j, int64_t line0, int64_t lines, int64_t from0, int64_t len, int64_t to_line0,
                       int64_t to0, float *tmp, double *lost)
{
    const store *s = j->s;
    for (int64_t i = 0; i < lines; i++) {
        int64_t from = (line0 + i) * s->ld + from0;
        unsigned char *to = j->to + (size_t)((to_line0 + i) * j->ld + to0) * unit(j->dt);
        if (same_bits(j)) memcpy(to, s->data + (size_t)from * unit(s->dt), (size_t)len * unit(s->dt));
        else convert_flat(j, from, len, to, tmp, lost);
    }
}

/* Lines that become columns: turned as they are, or converted to the type wanted first, so that the smaller ones are
 * turned. */
static void turn_lines(const job *j, int64_t lines, int64_t len, int64_t from0, unsigned char *to, float *tmp,
                       double *lost)
{
    const store *s = j->s;
    const int bytes = (int)unit(j->dt);
    if (same_bits(j)) {
        j->v->transpose(to, j->ld, s->data + (size_t)from0 * unit(s->dt), s->ld, len, lines, bytes);
        return;
    }
    unsigned char *as_wanted = (unsigned char *)(tmp + len);
    for (int64_t i = 0; i < lines; i++)
        convert_flat(j, from0 + i * s->ld, len, as_wanted + (size_t)(i * len) * unit(j->dt), tmp, lost);
    j->v->transpose(to, j->ld, as_wanted, len, len, lines, bytes);
}

static bool is_slow(const job *j) { return (j->s->kind == STORE_PLAIN && !fits_f32(j->s->dt)) || !stores_f32(j->dt); }
static bool is_across(const job *j) { return j->s->turned != j->turned_out; } /* rows become columns on the way */

static void run_task(void *ctx, int64_t task, int thread)
{
    const job *j = ctx;
    const store *s = j->s;
    int64_t r0 = j->row0 + task * j->run, n = MIN(j->run, j->row0 + j->n - r0), at = r0 - j->row0;
    int64_t lines = s->turned ? s->cols : n, len = s->turned ? n : s->cols;
    float *tmp = j->scratch ? j->scratch + (size_t)thread * j->room_elems : NULL;
    double *lost = &j->lost[thread];
    if (is_slow(j)) run_slow(j, r0, n, lost);
    else if (is_across(j))
        turn_lines(j, lines, len, s->turned ? r0 : r0 * s->ld,
                   j->to + (size_t)(j->turned_out ? at : at * j->ld) * unit(j->dt), tmp, lost);
    else if (s->turned) copy_lines(j, 0, lines, r0, len, 0, at, tmp, lost);
    else copy_lines(j, r0, lines, 0, len, at, 0, tmp, lost);
}

/* What turn_lines and copy_lines put down on the way, in floats. */
static size_t scratch_elems(const job *j)
{
    if (is_slow(j) || same_bits(j)) return 0;
    int64_t len = j->s->turned ? j->run : j->s->cols;
    return (size_t)(len + (is_across(j) ? (j->run * j->s->cols * (int64_t)unit(j->dt) + 3) / 4 : 0));
}

static an_status fill(const store *s, const vec_kernels *v, pool *threads, int64_t row0, int64_t n, dtype dt, void *to,
                      int64_t ld, bool turned_out, diag *d)
{
    if (row0 < 0 || n < 0 || row0 > s->rows - n)
        return diag_fail(d, AN_BUG, NOWHERE, "rows %lld to %lld of a tensor of %lld", (long long)row0,
                         (long long)(row0 + n), (long long)s->rows);
    if (!dtype_is_float(dt) || dtype_bits(dt) < 8)
        return diag_fail(d, AN_BUG, NOWHERE, "weights as %s", dtype_name(dt));
    if (s->kind != STORE_PLAIN && !stores_f32(dt))
        return diag_fail(d, AN_BUG, NOWHERE, "compressed weights as %s", dtype_name(dt));
    if (!n || !s->cols) return AN_OK;
    job j = { .s = s, .v = v, .dt = dt, .to = to, .row0 = row0, .n = n, .ld = ld, .turned_out = turned_out };
    /* turned: a line of the file is read in pieces no shorter than this */
    j.run = MAX(RUN_BYTES / 4 / s->cols, s->turned ? 16 : 1);
    j.run = MIN(j.run, n);
    j.room_elems = ROUND_UP(scratch_elems(&j), (size_t)64); /* threads write lines of their own */
    const size_t many = (size_t)pool_threads(threads);
    if (j.room_elems) j.scratch = malloc(many * j.room_elems * sizeof *j.scratch);
    j.lost = calloc(many, sizeof *j.lost);
    an_status st = j.lost && (j.scratch || !j.room_elems) ? AN_OK : diag_nomem(d);
    if (!st) pool_run(threads, run_task, &j, (n + j.run - 1) / j.run);
    for (size_t i = 0; i < many && !st; i++)
        if (j.lost[i] != 0)
            st = diag_fail(d, AN_INPUT, NOWHERE, "%.120s: tensor \"%.80s\" holds %g, which is past the range of %s",
                           s->file, s->name, j.lost[i], dtype_name(dt));
    free(j.scratch);
    free(j.lost);
    return st;
}

an_status store_rows(const store *s, const vec_kernels *v, pool *threads, int64_t row0, int64_t n, dtype dt, void *to,
                     int64_t ld, diag *d)
{
    return fill(s, v, threads, row0, n, dt, to, ld, false, d);
}

an_status store_columns(const store *s, const vec_kernels *v, pool *threads, int64_t row0, int64_t n, dtype dt,
                        void *to, int64_t ld, diag *d)
{
    return fill(s, v, threads, row0, n, dt, to, ld, true, d);
}
