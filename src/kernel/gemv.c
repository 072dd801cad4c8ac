/* gemv.c: few columns: x prepared once, rows shared out. In: a weight as stored, a view of x.  Out: fp32 sums. */
#include <math.h>

#include "kernel/gemv_int.h"
#include "kernel/vector.h"

enum {
    ALIGN = 64,
    LANES = 16,           /* at most */
    PAD = 128,            /* longest run of x a kernel takes at once: eight nibbles in each of sixteen lanes */
    TASK_BYTES = 1 << 17, /* of the weight: long enough that neither claiming it nor starting four streams counts */
    TASK_ROWS = 16,
};

static const gemv_kernel rows[] = {
#define GEMV(id, like, need_, width_, digits_, bytes_, panel_, panel_rows_) { .name = #id, .need = (need_), .width = width_, .rows = gemv_rows_##like, .scores = gemv_scores_##like, .mix = gemv_mix_##like, .digits = digits_, .bytes = bytes_, .panel = panel_, .panel_rows = panel_rows_ },
#include "kernel/gemv.def"
#undef GEMV
};

const gemv_kernel *gemv_row(size_t i) { return i < COUNT(rows) ? &rows[i] : NULL; }
const char *gemv_name(const gemv_kernel *g) { return g->name; }
uint32_t gemv_need(const gemv_kernel *g) { return g->need; }

const gemv_kernel *gemv_pick(uint32_t isa)
{
    const gemv_kernel *g = rows;
    while (g->need & ~isa) g++; /* stops: the scalar row needs nothing */
    return g;
}

void gemv_scores(const gemv_kernel *g, dtype t, const void *k, int64_t n, int64_t inner, const float *q, float *y,
                 const void *then)
{
    g->scores(t, k, n, inner, q, y, then);
}
void gemv_mix(const gemv_kernel *g, dtype t, const void *v, int64_t n, int64_t cols, const float *p, float *y,
              const void *then)
{
    g->mix(t, v, n, cols, p, y, then);
}

bool gemv_block_fits(gemv_form f, int64_t block)
{
    if (f == GEMV_I8 || f == GEMV_U8) return block > 0 && block % 16 == 0;
    return f == GEMV_NIBBLE &&
           (block == 8 || block == 16 || block == 32 || block == 64 || (block > 0 && block % PAD == 0));
}

/* Per column: the padded x, up to four bytes of digits for each element, three values for each eight, one sum. */
static bool layout(int64_t n, int64_t k, int64_t *stride, int64_t *lanes, size_t *bytes)
{
    if (n < 0 || k < 0 || n > GEMV_COLUMNS || k > INT32_MAX) return false;
    *stride = ROUND_UP(k, (int64_t)PAD);
    *lanes = MAX(*stride / 8, ROUND_UP(BYTE_DIGITS * LANES, 16));
    *bytes = (size_t)(n * (*stride + *stride + 3 * *lanes + 16)) * sizeof(float) + ALIGN;
    return true;
}

bool gemv_scratch_bytes(const gemv_kernel *g, int64_t n, int64_t k, size_t *bytes)
{
    int64_t stride, lanes;
    (void)g; /* the same for all: an image need not be laid out again for another instruction set */
    return layout(n, k, &stride, &lanes, bytes);
}

static const gemv_weight *first(const gemv_call *c) { return c->part[0].w; } /* stands for all: they are alike */

/* Column j in order, as fp32. Neighbours of a row lie between its elements: runs of them are widened together. */
static void widen(const gemv_call *c, const vec_kernels *v, int64_t j, float *x)
{
    enum { RUN = 512 };
    const int64_t k = first(c)->k, size = dtype_bits(c->x.type) / 8, step = c->x.row;
    const char *at = (const char *)c->x.at + j * c->x.col * size;
    if (step == 1) {
        v->load(x, c->x.type, at, k);
        return;
    }
    float run[RUN];
    const int64_t each = step > 0 && step <= RUN / 8 ? (RUN - 1) / step + 1 : 1;
    for (int64_t i = 0; i < k; i += each) {
        int64_t n = MIN(each, k - i);
        v->load(run, c->x.type, at + i * step * size, (n - 1) * step + 1);
        for (int64_t l = 0; l < n; l++) x[i + l] = run[l * step];
    }
}

/* Column j as fp32, in order; where the form wants it their sum. */
static void prepare(const gemv_call *c, int64_t j, int64_t stride, float *x, float *sum)
{
    const int64_t k = first(c)->k;
    widen(c, vec_pick(c->kernel->need), j, x);
    memset(x + k, 0, (size_t)(stride - k) * sizeof *x);
    double all = 0;
    for (int64_t i = 0; first(c)->row_shift && i < k; i++) all += (double)x[i];
    *sum = (float)all;
}

/* A column in the order nibbles want, and its sums of eight. */
static void turn(const gemv_call *c, int64_t stride, float *x, float *lane_sum)
{
    const vec_kernels *v = vec_pick(c->kernel->need);
    const int64_t w = c->kernel->width, run = 8 * w;
    for (int64_t r = 0; r < stride; r += run) {
        float turned[PAD];
        if (first(c)->shift)
            for (int64_t d = 0; d < w; d++) {
                float eight = 0;
                for (int64_t s = 0; s < 8; s++) eight += x[r + 8 * d + s];
                lane_sum[r / 8 + d] = eight;
            }
        v->transpose(turned, w, x + r, 8, 8, w, sizeof *x);
        memcpy(x + r, turned, (size_t)run * sizeof *x);
    }
}

bool gemv_alike(const gemv_weight *a, const gemv_weight *b)
{
    bool zero_a = false, zero_b = false, numbers = gemv_numbers(a, &zero_a);
    return a->form == b->form && a->k == b->k && a->block == b->block && a->scale_type == b->scale_type &&
           !a->shift == !b->shift && !a->row_shift == !b->row_shift && !a->panels == !b->panels &&
           numbers == gemv_numbers(b, &zero_b) && zero_a == zero_b;
}

typedef struct {
    const gemv_call *c;
    gemv_rows *rows, *odd_rows;   /* for columns in digits; for those that are not finite */
    gemv_columns x;
    int64_t each;                 /* rows of a task */
    bool mixed, odd[GEMV_COLUMNS]; /* some columns are not finite: each goes alone, those without digits */
} run_ctx;

static void run_mixed(const run_ctx *x, const gemv_part *part, int64_t i0, int64_t i1)
{
    const gemv_call *c = x->c;
    for (int64_t j = 0; j < c->n; j++) {
        gemv_columns one = x->x;
        one.x += j * one.x_stride, one.lane_sum += j * one.lane_stride, one.sum += j;
        one.digits = x->odd[j] ? NULL : one.digits + j * one.digit_stride;
        one.start += j * one.lane_stride, one.step += j * one.lane_stride;
        (x->odd[j] ? x->odd_rows : x->rows)(part->w, &one, 1, i0, i1, part->y + j, c->ldy);
    }
}

static int64_t tasks_of(const run_ctx *x, const gemv_weight *w) { return (w->m + x->each - 1) / x->each; }

/* An element of a weight of codes. What was taken off a code comes back as it was: a code that means 0 is 0. */
static double weight_at(const gemv_weight *w, int64_t i, int64_t k)
{
    const unsigned char *row = (const unsigned char *)w->w + i * w->row_bytes;
    const int64_t b = w->block ? i * (w->k / w->block) + k / w->block : 0;
    const double q = w->form == GEMV_I8   ? (int8_t)row[k]
                     : w->form == GEMV_U8 ? row[k]
                                          : (double)w->table[i / w->table_rows * 16 + (row[k / 2] >> k % 2 * 4 & 15)];
    double scale = w->block ? dtype_load(w->scale_type, w->scale, b) : w->row_scale ? (double)w->row_scale[i] : 1,
           shift = w->block ? w->shift ? (double)w->shift[b] : 0 : w->row_shift ? (double)w->row_shift[i] : 0;
    if (shift == 0 || scale == 0) return scale * q + shift;
    double off = -shift / scale, whole = nearbyint(off);
    return scale * (q - (fabs(off - whole) <= 0x1p-20 * fabs(whole) ? whole : off));
}

/* Sums of codes leave fp32, or meet an infinity with both signs, where the sum of products does not: one that is not
 * finite is made again from those. */
static float by_products(const gemv_call *c, const gemv_weight *w, int64_t i, int64_t j)
{
    double sum = 0;
    for (int64_t k = 0; k < w->k; k++)
        sum += weight_at(w, i, k) * dtype_load(c->x.type, c->x.at, k * c->x.row + j * c->x.col);
    return (float)sum;
}

/* Of two NaN a sum keeps one, by the order of its operands, and rows that go side by side are folded in another: all
 * are made the same. */
static void look_again(const gemv_call *c, const gemv_part *part, int64_t i0, int64_t i1)
{
    const gemv_weight *w = part->w;
    const bool codes = w->form != GEMV_F16 && w->form != GEMV_BF16 && w->w;
    for (int64_t i = i0; i < i1; i++)
        for (int64_t j = 0; j < c->n; j++) {
            float *y = &part->y[i * c->ldy + j];
            if (isfinite(*y)) continue;
            if (codes) *y = by_products(c, w, i, j);
            if (isnan(*y)) *y = NAN;
        }
}

static void run_task(void *ctx, int64_t task, int thread)
{
    const run_ctx *x = ctx;
    const gemv_call *c = x->c;
    const gemv_part *part = c->part;
    (void)thread;
    for (int64_t n; task >= (n = tasks_of(x, part->w)); part++) task -= n;
    int64_t i0 = task * x->each, i1 = MIN(i0 + x->each, part->w->m);
    if (x->mixed) run_mixed(x, part, i0, i1);
    else x->rows(part->w, &x->x, c->n, i0, i1, part->y, c->ldy);
    look_again(c, part, i0, i1);
}

static an_status refuse(const gemv_call *c, const gemv_weight *w, diag *d)
{
    const char *name = c->kernel->name;
    if (w != first(c) && !gemv_alike(first(c), w))
        return diag_fail(d, AN_BUG, NOWHERE, "gemv_%s: weights that want different things of one x", name);
    if (c->n < 1 || c->n > GEMV_COLUMNS)
        return diag_fail(d, AN_BUG, NOWHERE, "gemv_%s: %lld columns, 1 to %d are possible", name, (long long)c->n,
                         GEMV_COLUMNS);
    if ((unsigned)w->form >= GEMV_FORMS || w->m < 0 || w->k < 0 || w->k > INT32_MAX)
        return diag_fail(d, AN_BUG, NOWHERE, "gemv_%s: form %d, %lld x %lld", name, (int)w->form, (long long)w->m,
                         (long long)w->k);
    if (c->x.type != DT_F32 && c->x.type != DT_F16 && c->x.type != DT_BF16)
        return diag_fail(d, AN_UNSUPPORTED, NOWHERE, "gemv_%s: the right operand cannot be %s", name,
                         dtype_name(c->x.type));
    if (w->form == GEMV_NIBBLE && (!w->table || w->table_rows < 1 || w->k % GEMV_K_STEP))
        return diag_fail(d, AN_BUG, NOWHERE, "gemv_%s: nibbles of k %lld, which is no multiple of %d, or no table",
                         name, (long long)w->k, GEMV_K_STEP);
    if (w->block && (!gemv_block_fits(w->form, w->block) || w->k % w->block || (!w->scale && !w->panels) ||
                     (w->scale_type != DT_F32 && w->scale_type != DT_F16)))
        return diag_fail(d, AN_BUG, NOWHERE, "gemv_%s: k %lld in blocks of %lld with scales of %s", name,
                         (long long)w->k, (long long)w->block, dtype_name(w->scale_type));
    bool zero;
    if (w->panels && (!c->kernel->panel_rows || !gemv_numbers(w, &zero)))
        return diag_fail(d, AN_BUG, NOWHERE, "gemv_%s: it has nothing for panels", name);
    return AN_OK;
}

/* x in the order and the digits the kernel has for this weight. */
static void cut(const gemv_call *c, run_ctx *r, float *x, float *lane_sum, int8_t *digits, int32_t *start, float *step)
{
    const gemv_kernel *g = c->kernel;
    const gemv_weight *w = first(c);
    const vec_kernels *v = vec_pick(g->need);
    const bool nibbles = g->digits && gemv_numbers(w, &r->x.zero),
               bytes = g->bytes && (w->form == GEMV_I8 || w->form == GEMV_U8) && !w->block &&
                       w->k <= g->width * BYTE_LANE_K;
    const bool panels = w->panels != NULL;
    const int64_t stride = r->x.x_stride, lanes = r->x.lane_stride;
    r->rows = panels ? g->panel_rows : g->rows, r->odd_rows = panels ? gemv_panel_plain : g->rows;
    if (nibbles || bytes)
        r->x.digits = digits, r->x.start = start, r->x.step = step,
        r->x.digit_stride = stride * (bytes ? BYTE_DIGITS : 2);
    for (int64_t j = 0; j < c->n;
         j++, x += stride, lane_sum += lanes, start += lanes, step += lanes, digits += r->x.digit_stride) {
        float largest = r->x.digits ? v->largest(x, stride) : 0;
        r->mixed |= r->odd[j] = !(largest < INFINITY);
        if (w->form == GEMV_NIBBLE && !panels) turn(c, stride, x, lane_sum);
        if (r->odd[j] || !r->x.digits) continue;
        if (bytes) g->bytes(x, stride, largest, digits, start, step);
        else if (panels) g->panel(x, w->k, r->x.zero, digits, start, step);
        else g->digits(x, stride, r->x.zero, digits, start, step);
    }
}

an_status gemv_run(const gemv_call *c, diag *d)
{
    int64_t stride, lanes, rows_all = 0, tasks = 0;
    size_t need;
    if (c->parts < 1 || c->parts > GEMV_PARTS)
        return diag_fail(d, AN_BUG, NOWHERE, "gemv_%s: %d weights, 1 to %d are possible", c->kernel->name, c->parts,
                         GEMV_PARTS);
    for (int i = 0; i < c->parts; i++) TRY(refuse(c, c->part[i].w, d));
    if (!layout(c->n, first(c)->k, &stride, &lanes, &need) || c->scratch_bytes < need)
        return diag_fail(d, AN_BUG, NOWHERE, "gemv_%s: %zu bytes of scratch are too few", c->kernel->name,
                         c->scratch_bytes);
    char *at = (char *)c->scratch + (ALIGN - (uintptr_t)c->scratch % ALIGN) % ALIGN;
    float *x = (float *)(void *)at, *digits = x + c->n * stride, *lane_sum = digits + c->n * stride,
          *step = lane_sum + c->n * lanes;
    float *start = step + c->n * lanes, *sum = start + c->n * lanes;
    for (int64_t j = 0; j < c->n; j++) prepare(c, j, stride, x + j * stride, sum + j);
    run_ctx r = { .c = c, .x = { .x = x, .x_stride = stride, .lane_stride = lanes, .lane_sum = lane_sum, .sum = sum } };
    cut(c, &r, x, lane_sum, (int8_t *)(void *)digits, (int32_t *)(void *)start, step);
    int64_t threads = pool_threads(c->pool);
    for (int i = 0; i < c->parts; i++) rows_all += c->part[i].w->m;
    const int64_t whole = first(c)->panels ? PANEL_ROWS : 4;
    r.each = ROUND_UP(MAX(TASK_BYTES / MAX(first(c)->row_bytes, 1), TASK_ROWS), whole);
    /* a small weight is shared all the same */
    if (threads > 1) r.each = MIN(r.each, MAX(ROUND_UP(rows_all / (4 * threads), whole), whole));
    for (int i = 0; i < c->parts; i++) tasks += tasks_of(&r, c->part[i].w);
    pool_run(c->pool, run_task, &r, tasks);
    return AN_OK;
}
