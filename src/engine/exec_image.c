/* exec_image.c: resize, crop_resize, resample and warp: places once, then every channel. In: x as planes, read into
 * fp32 once.  Out: the reference's bits: weights and sums are doubles here too, in the same order.
 *
 * Where a result looks does not depend on the channel, and of a resize not even on the image. A task is some rows of
 * results: it finds the places of a row, then walks the channels. */
#include <math.h>

#include "engine/exec_int.h"

typedef struct {
    int64_t lo, hi;
    double part; /* of hi */
} between;

typedef struct {
    const exec_env *env;
    int64_t x, y, planes, ch, h, w, oh, ow; /* resize: planes; the others: images of ch planes */
    dtype tx, ty;
    exec_walk walk;
    between *row, *col; /* resize */
    size_t at_taps, taps_bytes; /* in work: x comes first, then the places of a row for each thread */
    int64_t images;     /* results: of the first axes before the channels */
} state;

enum { MOST_ELEMS = 1 << 28 };

static an_status open(image *im, const insn *in, state **out, diag *d)
{
    exec_env *e;
    *out = NULL;
    TRY(exec_open(im, &e, d));
    int64_t tx = insn_t(in, "x"), ty = insn_t(in, "y");
    const etensor *x = &im->p->tensors.at[tx], *y = &im->p->tensors.at[ty];
    int64_t n = et_elems(x);
    if (!e->fast || !exec_loads(x->dt) || dtype_bits(y->dt) < 8 || n > MOST_ELEMS || y->dim[y->rank - 1] > MOST_ELEMS)
        return AN_OK;
    state *s = TAKE(&im->prepared, state, 1);
    if (!s) return diag_nomem(d);
    *s = (state){ .env = e, .x = tx, .y = ty, .tx = x->dt, .ty = y->dt, .h = x->dim[x->rank - 2], .w = x->dim[x->rank - 1], .oh = y->dim[y->rank - 2], .ow = y->dim[y->rank - 1] };
    s->walk = (exec_walk){ .tensor = tx, .t = x->dt, .rank = 1, .dim = { n }, .stride = { 1 }, .same = true };
    s->at_taps = ROUND_UP((size_t)n * sizeof(float), (size_t)64);
    *out = s;
    return AN_OK;
}

typedef struct {
    const run_ctx *c;
    const state *s;
    const float *x;
    /* places of a row of results of image `at` */
    void (*find)(const void *user, int64_t at, int64_t row, plane_taps *to);
    const void *user;
    const int64_t *image_of; /* the image of x that results of an image are read from; NULL: the same */
    double fill;             /* of taps */
    double none;             /* of a place that is none */
} job;

static void read_span(void *user, int64_t first, int64_t count, int thread)
{
    const job *j = user;
    (void)thread;
    exec_read(j->s->env, &j->s->walk, ctx_mem(j->c, j->s->x), first, (float *)j->c->work + first, count);
}

static void put(const job *j, int64_t i, double v)
{
    dtype_store(j->s->ty, ctx_mem(j->c, j->s->y), i, num_round(j->c->num, j->s->ty, v));
}

/* ---- resize ---- */

static void resize_task(void *ctx, int64_t task, int thread)
{
    const job *j = ctx;
    const state *s = j->s;
    int64_t i = task % s->oh, to = task * s->ow;
    const between *r = &s->row[i];
    const float *lo = j->x + (task / s->oh * s->h + r->lo) * s->w, *hi = j->x + (task / s->oh * s->h + r->hi) * s->w;
    (void)thread;
    for (int64_t k = 0; k < s->ow; k++) {
        const between *q = &s->col[k];
        double left = (double)lo[q->lo], right = (double)lo[q->hi];
        if (r->part > 0) left += ((double)hi[q->lo] - left) * r->part, right += ((double)hi[q->hi] - right) * r->part;
        put(j, to + k, q->part > 0 ? left + (right - left) * q->part : left);
    }
}

static between *places(image *im, int64_t size, int64_t n, grid_kind grid, bool linear)
{
    between *b = TAKE(&im->prepared, between, (size_t)n);
    for (int64_t i = 0; b && i < n; i++) {
        double p = linear ? grid_point(0, (double)(size - 1), i, n, grid) : 0, f = floor(p);
        int64_t at = linear ? (int64_t)f : grid_nearest(size, i, n, grid);
        b[i] = (between){ at, linear ? MIN(at + 1, size - 1) : at, p - f };
    }
    return b;
}

static an_status prepare_resize(image *im, const insn *in, void **out, diag *d)
{
    state *s;
    TRY(open(im, in, &s, d));
    if (!s) return AN_OK;
    const etensor *x = &im->p->tensors.at[s->x];
    s->planes = dims_product(x->dim, 0, x->rank - 2);
    s->row = places(im, s->h, s->oh, (grid_kind)insn_i(in, "grid"), insn_i(in, "linear"));
    s->col = places(im, s->w, s->ow, (grid_kind)insn_i(in, "grid"), insn_i(in, "linear"));
    if (!s->row || !s->col) return diag_nomem(d);
    exec_need_work(im, s->at_taps);
    *out = s;
    return AN_OK;
}

static an_status run_resize(const run_ctx *c, const insn *in, diag *d)
{
    job j = { .c = c, .s = c->state, .x = c->work };
    if (!j.s) return ref_resize(c, in, d);
    exec_spans(c->pool, j.s->walk.dim[0], 16384, read_span, &j);
    pool_run(c->pool, resize_task, &j, j.s->planes * j.s->oh);
    return AN_OK;
}

const exec_entry exec_resize = { .run = run_resize, .prepare = prepare_resize };

/* ---- places by taps: the others ---- */

static void taps_task(void *ctx, int64_t task, int thread)
{
    const job *j = ctx;
    const state *s = j->s;
    int64_t at = task / s->oh, row = task % s->oh, from = j->image_of ? j->image_of[at] : at;
    plane_taps *taps = (plane_taps *)(void *)((char *)j->c->work + s->at_taps + (size_t)thread * s->taps_bytes);
    j->find(j->user, at, row, taps);
    for (int64_t k = 0; k < s->ch; k++) {
        const float *plane = j->x + (from * s->ch + k) * s->h * s->w;
        int64_t to = ((at * s->ch + k) * s->oh + row) * s->ow;
        for (int64_t i = 0; i < s->ow; i++) {
            const plane_taps *t = &taps[i];
            double v = t->n ? 0 : j->none;
            for (int q = 0; q < t->n; q++) {
                double one = t->weight[q] * (t->at[q] < 0 ? j->fill : (double)plane[t->at[q]]);
                v = q ? v + one : one;
            }
            put(j, to + i, v);
        }
    }
}

static an_status open_taps(image *im, const insn *in, state **out, diag *d)
{
    TRY(open(im, in, out, d));
    state *s = *out;
    if (!s) return AN_OK;
    const etensor *x = &im->p->tensors.at[s->x], *y = &im->p->tensors.at[s->y];
    s->ch = x->dim[1], s->images = dims_product(y->dim, 0, y->rank - 3);
    s->taps_bytes = ROUND_UP((size_t)s->ow * sizeof(plane_taps), (size_t)64);
    exec_need_work(im, s->at_taps + s->taps_bytes * (size_t)s->env->threads);
    return AN_OK;
}

static an_status prepare_taps(image *im, const insn *in, void **out, diag *d)
{
    state *s;
    TRY(open_taps(im, in, &s, d));
    *out = s;
    return AN_OK;
}

static an_status run_taps(job *j)
{
    j->x = j->c->work;
    exec_spans(j->c->pool, j->s->walk.dim[0], 16384, read_span, j);
    pool_run(j->c->pool, taps_task, j, j->s->images * j->s->oh);
    return AN_OK;
}

/* ---- crop_resize ---- */

typedef struct {
    plane_sampler s;
    const plane_box *box; /* per image of results */
    grid_kind grid;
    int64_t th, tw;
} crop;

static void find_crop(const void *user, int64_t at, int64_t row, plane_taps *to)
{
    const crop *q = user;
    const plane_box *r = &q->box[at];
    double y = grid_point(r->y0, r->y1, row, q->th, q->grid);
    bool inside_y = y >= 0 && y <= (double)(q->s.h - 1);
    for (int64_t i = 0; i < q->tw; i++) {
        double x = grid_point(r->x0, r->x1, i, q->tw, q->grid);
        to[i].n = 0;
        if (inside_y && x >= 0 && x <= (double)(q->s.w - 1)) plane_find(&q->s, y, x, &to[i]);
    }
}

static an_status run_crop_resize(const run_ctx *c, const insn *in, diag *d)
{
    const state *s = c->state;
    if (!s) return ref_crop_resize(c, in, d);
    const etensor *b_t = ctx_tensor(c, insn_t(in, "boxes")), *x_t = ctx_tensor(c, s->x);
    int64_t of_t = insn_t(in, "box_of"), n = b_t->dim[0], coords = et_elems(b_t) / n, each = s->images / n;
    double *boxes = ref_load(c, insn_t(in, "boxes"), d), *of = of_t < 0 ? NULL : ref_load(c, of_t, d);
    plane_box *box = TAKE(c->tmp, plane_box, (size_t)s->images);
    int64_t *image_of = TAKE(c->tmp, int64_t, (size_t)s->images);
    if (!boxes || (of_t >= 0 && !of)) return d->st;
    if (!box || !image_of) return diag_nomem(d);
    bool numbered = coords == 5, norm = insn_i(in, "normalized"), every = ctx_tensor(c, s->y)->rank == 5;
    double scale = insn_f(in, "scale");
    for (int64_t i = 0; i < s->images; i++) {
        const double *q = boxes + i / each * coords;
        box[i] = plane_read_box(q + numbered, (box_kind)insn_i(in, "corner"), scale * (norm ? (double)(s->h - 1) : 1),
                                scale * (norm ? (double)(s->w - 1) : 1));
        TRY(ref_index(c, in,
                      numbered ? q[0]
                      : every  ? (double)(i % each)
                      : of     ? of[i]
                               : (double)i,
                      x_t->dim[0], &image_of[i], d));
    }
    crop q = { .s = { .h = s->h, .w = s->w, .edge = EDGE_BORDER, .nearest = !insn_i(in, "linear") },
               .box = box,
               .grid = (grid_kind)insn_i(in, "grid"),
               .th = s->oh,
               .tw = s->ow };
    job j = { .c = c, .s = s, .find = find_crop, .user = &q, .image_of = image_of, .none = insn_f(in, "fill") };
    return run_taps(&j);
}

const exec_entry exec_crop_resize = { .run = run_crop_resize, .prepare = prepare_taps };

/* ---- resample and warp ---- */

typedef struct {
    plane_sampler s;
    coord_kind mode;
    bool align, shared;
    const double *given; /* coordinates, or matrices */
    int64_t oh, ow;
} lookup;

static lookup lookup_of(const run_ctx *c, const insn *in, const double *given)
{
    const state *s = c->state;
    return (lookup){ .s = { .h = s->h,
                            .w = s->w,
                            .edge = (edge_kind)insn_i(in, "pad"),
                            .fill = insn_f(in, "fill"),
                            .nearest = !insn_i(in, "linear") },
                     .mode = (coord_kind)insn_i(in, "coords_mode"),
                     .align = insn_i(in, "align"),
                     .given = given,
                     .oh = s->oh,
                     .ow = s->ow };
}

static void look(const lookup *l, double y, double x, plane_taps *to)
{
    plane_find(&l->s, coord_to_pixels(y, l->s.h, l->mode, l->align), coord_to_pixels(x, l->s.w, l->mode, l->align), to);
}

static void find_given(const void *user, int64_t at, int64_t row, plane_taps *to)
{
    const lookup *l = user;
    const double *p = l->given + (at * l->oh + row) * l->ow * 2;
    for (int64_t i = 0; i < l->ow; i++, p += 2) look(l, p[1], p[0], &to[i]);
}

static void find_turned(const void *user, int64_t at, int64_t row, plane_taps *to)
{
    const lookup *l = user;
    const double *m = l->given + (l->shared ? 0 : at * 6);
    double y = coord_from_pixels(row, l->oh, l->mode, l->align);
    for (int64_t i = 0; i < l->ow; i++) {
        double x = coord_from_pixels(i, l->ow, l->mode, l->align);
        look(l, m[3] * x + m[4] * y + m[5], m[0] * x + m[1] * y + m[2], &to[i]);
    }
}

static an_status run_lookup(const run_ctx *c, const insn *in, const char *field,
                            void (*find)(const void *, int64_t, int64_t, plane_taps *), diag *d)
{
    if (!c->state) return ref_entry_of(in->op)(c, in, d);
    double *given = ref_load(c, insn_t(in, field), d);
    if (!given) return d->st;
    lookup l = lookup_of(c, in, given);
    l.shared = et_elems(ctx_tensor(c, insn_t(in, field))) == 6;
    job j = { .c = c, .s = c->state, .find = find, .user = &l, .fill = l.s.fill, .none = (double)NAN };
    return run_taps(&j);
}

static an_status run_resample(const run_ctx *c, const insn *in, diag *d)
{
    return run_lookup(c, in, "coords", find_given, d);
}
static an_status run_warp(const run_ctx *c, const insn *in, diag *d)
{
    return run_lookup(c, in, "matrix", find_turned, d);
}

const exec_entry exec_resample = { .run = run_resample, .prepare = prepare_taps };
const exec_entry exec_warp = { .run = run_warp, .prepare = prepare_taps };
