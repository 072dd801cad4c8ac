/* gemm_pack.c: a matrix into panels. In: a strided view.  Out: the packed layout of gemm_int.h, and for int8 the row
 * sums (A) or column scales (B). Panels are tasks; long panels are cut along k so that few panels still use every
 * thread. */
#include <math.h>

#include "kernel/gemm_run_int.h"

enum {
    CUT_BYTES = 1 << 16,       /* source of one task: some microseconds of work */
    GROUP_CUT_BYTES = 1 << 18, /* the same, of a group of panels */
    RUN_BYTES = 4096,          /* of a row that a group reads */
    /* rows at a time: each lies in a page of its own, and lines of more would be gone before the last panel reads
     * them */
    RUN_ROWS = 32,
    K_UNIT = 64                /* a multiple of every kr */
};

#define GEMM(id, math, need, mr, nr, kc, a_pk, a_kr, b_pk, b_kr, ...) \
    _Static_assert((mr) <= MOST_WIDTH && (nr) <= MOST_WIDTH && K_UNIT % (a_kr) == 0 && K_UNIT % (b_kr) == 0, #id);
#include "kernel/gemm.def"
#undef GEMM

static bool grow(size_t *sum, int64_t a, int64_t b, int64_t each)
{
    int64_t n;
    if (!mul_i64(a, b, &n) || !mul_i64(n, each, &n) || n > PTRDIFF_MAX / 4) return false;
    *sum = ROUND_UP(*sum, ALIGN) + (size_t)n;
    return *sum <= PTRDIFF_MAX / 2;
}

bool pack_layout(const gemm_kernel *g, bool is_a, int64_t lanes, int64_t k, packed_layout *out)
{
    if (lanes < 0 || k < 0 || lanes > INT32_MAX || k > INT32_MAX || (g->math == GEMM_I8 && k > 65536)) return false;
    int width = is_a ? g->mr : g->nr;
    packed_layout l = {
        .width = width,
        .kr = is_a ? g->a_kr : g->b_kr,
        .pk = is_a ? g->a_pk : g->b_pk,
        .panels = (lanes + width - 1) / width,
        .k_pad = ROUND_UP(k, (int64_t)g->k_align),
    };
    l.panel_bytes = ROUND_UP(l.k_pad * width * pk_bytes(l.pk), (int64_t)ALIGN);
    size_t n = 0;
    if (!grow(&n, l.panels, l.panel_bytes, 1)) return false;
    l.extra = n; /* a multiple of ALIGN: panels are */
    bool extra = is_a ? g->row_sum != NULL : g->math == GEMM_I8;
    if (extra && !grow(&n, l.panels, width, 4)) return false;
    l.bytes = ROUND_UP(n, ALIGN);
    *out = l;
    return true;
}

/* Largest magnitudes to 127. Columns too small to scale are zero; a column with an infinity or NaN is NaN
 * throughout. */
static void scale_by(float *scale, float *inv, int width)
{
    for (int i = 0; i < width; i++) {
        float most = scale[i];
        bool tiny = most < 1e-34f, odd = !isfinite(most);
        inv[i] = tiny || odd ? 0.0f : 127.0f / most;
        scale[i] = odd ? NAN : tiny ? 0.0f : most / 127.0f;
    }
}

static pack_job job_of(const pack_ctx *x, int64_t panel)
{
    const packed_layout *l = &x->l;
    pack_job j = x->job;
    j.src += panel * l->width * j.lane_stride;
    j.dst += panel * l->panel_bytes;
    j.lanes = MIN(x->lanes - panel * l->width, l->width);
    return j;
}

void pack_panel(const pack_ctx *x, int64_t panel, int64_t k0, int64_t k1)
{
    const packed_layout *l = &x->l;
    float inv[MOST_WIDTH], *scale = x->col_scale ? x->col_scale + panel * l->width : NULL;
    pack_job j = job_of(x, panel);
    j.k0 = k0;
    j.k1 = k1;
    if (scale) {
        x->g->vec->absmax(&j, scale);
        scale_by(scale, inv, l->width);
        j.inv = inv;
    }
    x->g->vec->pack(&j);
    if (x->row_sum) x->g->row_sum(l->k_pad, j.dst, x->row_sum + panel * l->width);
}

/* Magnitudes compare as integers, so a NaN is larger than anything and is not lost. */
static float larger(float x, float y)
{
    uint32_t a, b;
    memcpy(&a, &x, sizeof a), memcpy(&b, &y, sizeof b);
    return a > b ? x : y;
}

void pack_beside(const pack_ctx *x, int64_t panel, int64_t n)
{
    const packed_layout *l = &x->l;
    float inv[BESIDE][MOST_WIDTH], most[MOST_WIDTH];
    for (int64_t k = 0; k < x->job.k; k += RUN_ROWS)
        for (int64_t i = 0; i < n; i++) {
            float *scale = x->col_scale + (panel + i) * l->width;
            pack_job j = job_of(x, panel + i);
            j.src += k * j.k_stride, j.k = MIN(RUN_ROWS, j.k - k);
            x->g->vec->absmax(&j, k ? most : scale);
            for (int c = 0; k && c < l->width; c++) scale[c] = larger(scale[c], most[c]);
        }
    for (int64_t i = 0; i < n; i++) scale_by(x->col_scale + (panel + i) * l->width, inv[i], l->width);
    for (int64_t k = 0; k < l->k_pad; k += K_UNIT)
        for (int64_t i = 0; i < n; i++) {
            pack_job j = job_of(x, panel + i);
            j.k0 = k, j.k1 = MIN(k + K_UNIT, l->k_pad), j.inv = inv[i];
            x->g->vec->pack(&j);
        }
}

void pack_task(void *ctx, int64_t task, int thread)
{
    const pack_ctx *x = ctx;
    (void)thread;
    int64_t p0 = task / x->cuts * x->group, p1 = MIN(p0 + x->group, x->l.panels);
    int64_t k0 = task % x->cuts * x->k_cut, k1 = MIN(k0 + x->k_cut, x->l.k_pad);
    int64_t k = k0;
    do { /* once even when k is 0: scales are written all the same */
        for (int64_t p = p0; p < p1; p++) pack_panel(x, p, k, MIN(k + x->k_step, k1));
        k += x->k_step;
    } while (k < k1);
    if (x->job.past) x->g->vec->fence();
}

bool pack_begin(pack_ctx *out, const gemm_kernel *g, bool is_a, int64_t lanes, int64_t k, gemm_view v, void *to)
{
    pack_ctx x = { .g = g, .lanes = lanes };
    if (!pack_layout(g, is_a, lanes, k, &x.l)) return false;
    int64_t size = view_bytes(v.type);
    x.job = (pack_job){
        .src = v.at,
        .type = v.type,
        .lane_stride = (is_a ? v.row : v.col) * size,
        .k_stride = (is_a ? v.col : v.row) * size,
        .k = k,
        .width = x.l.width,
        .kr = x.l.kr,
        .pk = x.l.pk,
        .dst = to,
    };
    void *extra = (char *)to + x.l.extra;
    if (is_a && g->row_sum) x.row_sum = extra;
    if (!is_a && g->math == GEMM_I8) x.col_scale = extra;
    x.cuts = x.group = 1;
    x.k_cut = MAX(x.l.k_pad, 1);
    if (!x.row_sum && !x.col_scale) { /* sums and scales need the whole of k */
        /* Lanes side by side in memory: a group of panels reads whole runs of each row, not two lines of every page. */
        if (x.job.lane_stride == size) x.group = MAX(RUN_BYTES / (x.l.width * size), 1);
        x.k_cut = ROUND_UP(MAX((x.group > 1 ? GROUP_CUT_BYTES : CUT_BYTES) / (x.l.width * size * x.group), 1),
                           (int64_t)K_UNIT);
        x.cuts = MAX((x.l.k_pad + x.k_cut - 1) / x.k_cut, 1);
    }
    x.k_step = x.group > 1 ? MIN(MAX(RUN_ROWS, (int64_t)x.l.kr), x.k_cut) : x.k_cut;
    /* short panels */
    if (x.cuts == 1 && x.group == 1) x.group = MAX(CUT_BYTES / MAX(x.l.k_pad * x.l.width * size, 1), 1);
    x.n_tasks = (x.l.panels + x.group - 1) / x.group * x.cuts;
    *out = x;
    return true;
}

void pack_part(const gemm_call *c, bool is_a, int64_t panel, int64_t k0, int64_t kn, int64_t from, int64_t to,
               char *piece)
{
    const gemm_kernel *g = c->kernel;
    const gemm_view *v = is_a ? &c->a_view : &c->b;
    const int64_t size = view_bytes(v->type), width = is_a ? g->mr : g->nr, lane = is_a ? v->row : v->col,
                  along = is_a ? v->col : v->row;
    pack_job j = {
        .src = (const char *)v->at + (panel * width * lane + k0 * along) * size,
        .type = v->type,
        .lane_stride = lane * size,
        .k_stride = along * size,
        .lanes = MIN((is_a ? c->m : c->n) - panel * width, width),
        .k = MIN(c->k - k0, kn),
        .k0 = from,
        .k1 = to,
        .width = (int)width,
        .kr = is_a ? g->a_kr : g->b_kr,
        .pk = !is_a ? g->b_pk : !g->expand ? g->a_pk : g->a_pk == PK_F16 ? PK_F32_OF_F16 : PK_F32_OF_BF16,
        .dst = piece,
    };
    g->vec->pack(&j);
}

bool gemm_pack_weights(const gemm_kernel *g, int64_t n, int64_t k, const float *x, const float *most, float scale,
                       float *sum, void *out)
{
    packed_layout l;
    if (!g->vec->weigh || g->b_pk != PK_BF16 || g->b_kr != 2 || g->nr != 2 * g->vec->lanes || n % g->nr ||
        !pack_layout(g, false, n, k, &l) || l.k_pad != k)
        return false;
    for (int64_t p = 0; p < l.panels; p++) {
        const int64_t lane = p * g->nr;
        g->vec->weigh(&(weigh_job){ .x = x + lane,
                                    .ld = n,
                                    .k = k,
                                    .most = most + lane,
                                    .scale = 1.44269504f * scale,
                                    .sum = sum + lane,
                                    .dst = (char *)out + p * l.panel_bytes });
    }
    return true;
}
