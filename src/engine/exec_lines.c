/* exec_lines.c: softmax, norms and reductions: what looks along lines of elements.
 * In: x seen as [outer, n, inner] around the axes looked along.  Out: y of the same shape, or one element per line.
 *
 * A task takes some lines side by side and walks them in pieces that fit the first cache. With inner > 1 a piece is
 * a block of rows, one column per line; with inner = 1 it is a part of some lines, which the kernel turns so that
 * every lane is a line. Either way each line is summed in ascending order by itself: the reference's bits, for any
 * number of threads. When all pieces of a task fit the second cache they are kept there as fp32 from one pass to the
 * next: x is read once, and rows that lie a power of two apart, which a cache cannot hold many of, do not matter. A
 * "strip" is a contiguous part of a piece: a row of columns, or a part of one line. */
#include <math.h>

#include "engine/exec_columns.h"

enum { PIECE = 8192, MOST_COLUMNS = 512, COLUMN_STEP = 64, PARAMS = COLUMNS_PARAMS, CHUNK = 1 << 14, MOST_BESIDE = 4,
       SHORT_LINE = 32, LONG_LINE = 256, LONGEST_LINE = 4096 };

typedef struct {
    const exec_env *env;
    const numerics *num;
    int64_t x, y, outer, n, inner;
    int64_t repeats;     /* reductions with inner = 1: a line is so many runs of n, outer * n apart */
    dtype tx, ty;
    bool columns;
    int64_t lines, part; /* of a task; positions of a piece */
    bool kept;
    bool writes;         /* y has x's shape */
    bool stream;         /* plain: y is so large that it is written past the caches */
    bool plain;          /* no rules, and types the kernels read and write in place */
    bool look;           /* columns, or short rows, of log_sum_exp on the plain processor: in one look */
    bool turns;          /* plain reductions: lines so short that they are summed side by side, as columns */
    bool split;          /* plain reductions: few lines, parts of them shared out */
    int64_t parts;       /* plain reductions: of a run of a line */
    int64_t groups;      /* rows: of lines, in one task */
    /* plain rows: lines that take each step together, so that none waits for the end of another's sum */
    int64_t beside;
    int64_t room;        /* floats in buf */
    int64_t per_outer;   /* columns: tasks per outer */
    int64_t tasks;
    size_t each;         /* scratch of a thread */
    int kind;            /* of norm or reduce */
    float eps;
    bool has[PARAMS];    /* norm: gain, bias */
    exec_walk par[PARAMS];
    const vec_table *exp2; /* chip with tables */
    columns down;          /* plain columns of softmax and norms */
} state;

/* Lines of a task, and the piece of them at hand. */
typedef struct {
    const run_ctx *c;
    const state *s;
    int64_t base, lines; /* place of line 0's first element in x and y */
    int64_t r0, nr;      /* positions */
    float *buf, *spare, *acc, *mean;
} task;

static int64_t strips(const task *t) { return t->s->columns ? t->nr : t->lines; }
static int64_t strip_len(const task *t) { return t->s->columns ? t->lines : t->nr; }
/* from strip to strip */
static int64_t pitch(const task *t) { return t->s->columns ? t->lines : t->s->kept ? t->s->n : t->nr; }
static float *strip(const task *t, int64_t i)
{
    int64_t from = t->s->kept ? t->r0 : 0;
    return t->buf + (t->s->columns ? (from + i) * pitch(t) : i * pitch(t) + from);
}
/* For what treats all elements alike: contiguous strips are one. */
static int64_t runs(const task *t) { return pitch(t) == strip_len(t) ? 1 : strips(t); }
static int64_t run_len(const task *t) { return pitch(t) == strip_len(t) ? strips(t) * strip_len(t) : strip_len(t); }
static int64_t place(const task *t, int64_t i) /* of strip i in x and y */
{
    return t->s->columns ? t->base + (t->r0 + i) * t->s->inner : t->base + i * t->s->n + t->r0;
}

static void load(const task *t, float nan)
{
    const state *s = t->s;
    const unsigned char *x = ctx_mem(t->c, s->x), *y = ctx_mem(t->c, s->y);
    int64_t len = strip_len(t), size = exec_size(s->tx), y_size = s->writes ? exec_size(s->ty) : 0;
    /* to what is loaded next: rows below, or lines */
    int64_t on = (s->columns ? t->nr * s->inner : s->lines * s->n) * size;
    for (int64_t i = 0; i < strips(t); i++) {
        int64_t at = place(t, i);
        for (int64_t k = 0; k < len * size; k += EXEC_LINE) EXEC_PREFETCH(x + at * size + on + k);
        for (int64_t k = 0; k < len * y_size; k += EXEC_LINE) EXEC_PREFETCH_W(y + at * y_size + k);
        s->env->v->load(strip(t, i), s->tx, x + at * size, len);
    }
    for (int64_t i = 0; s->env->chip && dtype_is_float(s->tx) && i < runs(t); i++)
        s->env->v->clean(strip(t, i), nan, run_len(t));
}

static void store(const task *t)
{
    const state *s = t->s;
    unsigned char *y = ctx_mem(t->c, s->y);
    for (int64_t i = 0; i < strips(t); i++)
        s->env->v->store(y + place(t, i) * exec_size(s->ty), s->ty, strip(t, i), strip_len(t));
}

static void stat(const task *t, float *acc, vec_stat k, const float *mean)
{
    const vec_kernels *v = t->s->env->v;
    if (t->s->columns) v->columns(acc, k, t->s->env->chip, strip(t, 0), t->nr, pitch(t), mean, t->lines);
    else v->rows(acc, k, t->s->env->chip, strip(t, 0), t->lines, pitch(t), mean, t->nr);
}

/* buf = f(buf, by[line]) */
static void with_line(const task *t, vec_fn f, const float *by)
{
    const vec_kernels *v = t->s->env->v;
    for (int64_t i = 0; i < strips(t); i++) {
        float *x = strip(t, i), less = t->s->columns ? 0 : -by[i];
        if (t->s->columns) v->fn[f](x, x, by, NULL, NULL, t->lines);
        else if (f == VF_MUL) v->fn[VF_MUL_P](x, x, NULL, NULL, &by[i], t->nr);
        else if (f == VF_SUB) v->fn[VF_ADD_P](x, x, NULL, NULL, &less, t->nr);
        else if (f == VF_EXP_SUB) v->fn[VF_EXP_ADD_P](x, x, NULL, NULL, &less, t->nr);
        else {
            v->fill(t->spare, by[i], t->nr);
            v->fn[f](x, x, t->spare, NULL, NULL, t->nr);
        }
    }
}

static int how_of(const state *s)
{
    if (!s->env->chip) return 0;
    return VR_CHIP | (s->ty == DT_F16 ? VR_F16 : s->ty == DT_BF16 ? VR_BF16 : 0);
}

static void round_piece(const task *t, int how)
{
    for (int64_t i = 0; how && i < runs(t); i++) t->s->env->v->round(strip(t, i), how, run_len(t));
}

/* buf = exp(buf - by[line]), rounded as two passes where the device rounds */
static void exps(const task *t, const float *by)
{
    const state *s = t->s;
    const vec_kernels *v = s->env->v;
    int64_t n = run_len(t);
    const float log2_e = f16_to_f32(LOG2_E);
    if (!s->env->chip) {
        with_line(t, VF_EXP_SUB, by);
        return;
    }
    with_line(t, VF_SUB, by);
    round_piece(t, how_of(s));
    for (int64_t i = 0; i < runs(t); i++) {
        float *x = strip(t, i);
        if (s->exp2) {
            v->fn[VF_MUL_P](x, x, NULL, NULL, &log2_e, n);
            v->table(x, x, s->exp2, n);
            v->round(x, how_of(s), n);
        } else
            for (int64_t k = 0; k < n; k++)
                x[k] = (float)num_fn(s->num, FN_EXP, (const double[]){ (double)x[k] }, NULL, s->ty);
    }
}

#define EACH_PIECE(t)                                                                                                  \
    for ((t)->r0 = 0; (t)->nr = MIN((t)->s->part, (t)->s->n - (t)->r0), (t)->r0 < (t)->s->n; (t)->r0 += (t)->s->part)

/* ---- softmax ---- */

static void softmax(task *t)
{
    const state *s = t->s;
    s->env->v->fill(t->acc, -INFINITY, t->lines);
    EACH_PIECE(t) load(t, INFINITY), stat(t, t->acc, STAT_MAX, NULL);
    s->env->v->fill(t->mean, 0, t->lines); /* the sum */
    EACH_PIECE(t)
    {
        if (!s->kept) load(t, INFINITY);
        exps(t, t->acc);
        stat(t, t->mean, STAT_SUM, NULL);
    }
    if (!s->env->chip)
        for (int64_t i = 0; i < t->lines; i++) t->mean[i] = 1 / t->mean[i];
    EACH_PIECE(t)
    {
        if (!s->kept) load(t, INFINITY), exps(t, t->acc);
        with_line(t, s->env->chip ? VF_DIV : VF_MUL, t->mean);
        round_piece(t, how_of(s));
        store(t);
    }
}

/* ---- norms ---- */

/* Line i of the plain processor whose squares leave fp32, in double, as the reference does it then: y is not where x
 * is. */
static void line_wide(const task *t, int64_t i)
{
    const state *s = t->s;
    const int64_t first = t->base + (s->columns ? i : i * s->n), step = s->columns ? s->inner : 1;
    const void *x = ctx_mem(t->c, s->x);
    double mean, scale = norm_wide((norm_kind)s->kind, s->eps, s->tx, x, first, step, s->n, &mean);
    if (s->stream) s->env->v->fence(); /* what is written here comes after it */
    for (int64_t k = 0; k < s->n; k++) {
        const int64_t at = first + k * step;
        float y = (float)((dtype_load(s->tx, x, at) - mean) * scale), par[PARAMS] = { 1, 0 };
        for (int j = 0; j < PARAMS; j++)
            if (s->has[j]) exec_read(s->env, &s->par[j], ctx_mem(t->c, s->par[j].tensor), at, &par[j], 1);
        y *= par[0];
        dtype_store(s->ty, ctx_mem(t->c, s->y), at, (double)(s->has[1] ? y + par[1] : y));
    }
}

static void norm(task *t)
{
    const state *s = t->s;
    const vec_kernels *v = s->env->v;
    static const vec_fn par_fn[PARAMS] = { VF_MUL, VF_ADD }, par_fn_p[PARAMS] = { VF_MUL_P, VF_ADD_P };
    float nan = s->kind == NORM_LAYER ? 65504.0f : INFINITY, count = (float)s->n;
    bool centred = s->kind == NORM_LAYER;
    if (centred) {
        s->env->v->fill(t->mean, 0, t->lines);
        EACH_PIECE(t) load(t, nan), stat(t, t->mean, STAT_SUM, NULL);
        for (int64_t i = 0; i < t->lines; i++) t->mean[i] = t->mean[i] / count;
    }
    s->env->v->fill(t->acc, 0, t->lines);
    EACH_PIECE(t)
    {
        if (!s->kept || !centred) load(t, nan);
        stat(t, t->acc, STAT_SQUARES, centred ? t->mean : NULL);
    }
    for (int64_t i = 0; i < t->lines; i++) {
        float mean_square = s->kind == NORM_L2 ? t->acc[i] : t->acc[i] / count;
        float length = sqrtf(mean_square + s->eps);
        t->acc[i] = 1 / length;
    }
    EACH_PIECE(t)
    {
        if (!s->kept) load(t, nan);
        if (centred) {
            with_line(t, VF_SUB, t->mean);
            if (s->env->chip) round_piece(t, VR_CHIP);
        }
        with_line(t, VF_MUL, t->acc);
        round_piece(t, how_of(s));
        for (int k = 0; k < PARAMS; k++) {
            if (!s->has[k]) continue;
            for (int64_t i = 0; i < strips(t); i++) {
                int64_t n = strip_len(t);
                const void *par = ctx_mem(t->c, s->par[k].tensor);
                float one, *x = strip(t, i);
                if (exec_one_value(s->env, &s->par[k], par, place(t, i), n, &one))
                    v->fn[par_fn_p[k]](x, x, NULL, NULL, &one, n);
                else {
                    exec_read(s->env, &s->par[k], par, place(t, i), t->spare, n);
                    v->fn[par_fn[k]](x, x, t->spare, NULL, NULL, n);
                }
            }
            round_piece(t, how_of(s));
        }
        store(t);
    }
    for (int64_t i = 0; !s->env->chip && i < t->lines; i++)
        if (!(t->acc[i] > 0)) line_wide(t, i);
}

/* ---- the plain processor: straight from memory to memory, statistics in registers ---- */

/* Past the caches only where lines of the cache are whole. */
static bool streams(const task *t, const void *y)
{
    return t->s->stream && (uintptr_t)y % VEC_LINE == 0 && t->s->n * exec_size(t->s->ty) % VEC_LINE == 0;
}

/* A line of -inf alone has no distribution. */
static float sum_of_exps(const state *s, float *e, const void *x, float most, int64_t ahead)
{
    const vec_kernels *v = s->env->v;
    const float sum = s->tx == DT_F16 && s->ty == DT_F16 ? v->exps_half(e, x, most, s->n, ahead)
                                                         : v->exps(e, s->tx, x, most, s->n, ahead);
    return most == -INFINITY ? NAN : sum;
}

/* Lines behind each other, each at another of three steps. Where arithmetic is the bound, between two steps of a
 * line there is one of another: by then the end of a sum or of a search, which nothing else can overtake, is long
 * known. */
static void softmax_lines(task *t, const unsigned char *x, unsigned char *y, bool stream)
{
    enum { ROOMS = 3 };
    const state *s = t->s;
    const vec_kernels *v = s->env->v;
    const int64_t n = s->n, in = n * exec_size(s->tx), out = n * exec_size(s->ty);
    const bool half = s->tx == DT_F16 && s->ty == DT_F16;
    const int64_t apart = half ? 2 : 1;
    float most[ROOMS] = { 0 }, sum[ROOMS] = { 0 };
    for (int64_t i = 0; i < MIN(apart, t->lines); i++)
        most[i] = v->along(s->tx, x + i * in, STAT_MOST, 0, -INFINITY, n);
    for (int64_t i = 0; i < t->lines + apart; i++) {
        const int64_t now = i % ROOMS, next = (i + apart) % ROOMS, done = (i + ROOMS - apart) % ROOMS;
        const bool puts = i >= apart, makes = i < t->lines, looks = i + apart < t->lines;
        vec_three p = { .stream = stream,
                        .y = y + (i - apart) * out,
                        .done = t->buf + done * n,
                        .scale = puts ? 1 / sum[done] : 0,
                        .x = x + i * in,
                        .e = t->buf + now * n,
                        .next = x + (i + apart) * in,
                        .most = makes ? most[now] : 0 };
        if (puts && looks) {
            v->soft_three(&p, s->ty, s->tx, n);
            sum[now] = most[now] > -INFINITY ? p.sum : NAN, most[next] = p.most;
            continue;
        }
        if (puts) v->affine(p.y, s->ty, p.done, DT_F32, &(vec_affine){ .scale_1 = p.scale, .stream = stream }, n);
        if (makes) sum[now] = sum_of_exps(s, p.e, p.x, p.most, apart * in);
        if (looks) most[next] = v->along(s->tx, p.next, STAT_MOST, 0, -INFINITY, n);
    }
}

/* A NaN shows in the sum of the exps, if not in the largest. */
static void softmax_plain(task *t)
{
    const state *s = t->s;
    const vec_kernels *v = s->env->v;
    int64_t in = exec_size(s->tx), out = exec_size(s->ty);
    const unsigned char *x = (const unsigned char *)ctx_mem(t->c, s->x) + t->base * in;
    unsigned char *y = (unsigned char *)ctx_mem(t->c, s->y) + t->base * out;
    bool stream = streams(t, y);
    if (s->n >= LONG_LINE && s->n <= LONGEST_LINE)
        softmax_lines(t, x, y, stream);
    else
        for (int64_t i = 0, k; i < t->lines; i += k, x += k * s->n * in, y += k * s->n * out) {
            k = MIN(s->beside, t->lines - i);
            float some[MOST_BESIDE];
            for (int64_t l = 0; l < k; l++) some[l] = v->along(s->tx, x + l * s->n * in, STAT_MOST, 0, -INFINITY, s->n);
            for (int64_t l = 0; l < k; l++) { /* the next lines are asked for where there is most to do beside it */
                float *e = t->buf + l * s->n;
                const void *from = x + l * s->n * in;
                some[l] = sum_of_exps(s, e, from, some[l], k * s->n * in);
            }
            for (int64_t l = 0; l < k; l++)
                v->affine(y + l * s->n * out, s->ty, t->buf + l * s->n, DT_F32,
                          &(vec_affine){ .scale_1 = 1 / some[l], .stream = stream }, s->n);
        }
    if (stream) v->fence();
}

static float inverse_length(const state *s, float squares)
{
    float mean_square = s->kind == NORM_L2 ? squares : squares / (float)s->n;
    return 1 / sqrtf(mean_square + s->eps);
}

/* Gain or bias of every position of a line, the same for all lines; NULL without one. */
static const float *parameter(const task *t, int k, float *room)
{
    const state *s = t->s;
    if (!s->has[k]) return NULL;
    s->env->v->load(room, s->par[k].t, ctx_mem(t->c, s->par[k].tensor), s->n);
    return room;
}

/* The gain as fp16 it was, if it is finite; NULL: it is not. */
static const void *gain_f16(const task *t, const float *gain)
{
    const state *s = t->s;
    const bool is = gain && s->par[0].t == DT_F16 && s->env->v->largest(gain, s->n) < INFINITY;
    return is ? ctx_mem(t->c, s->par[0].tensor) : NULL;
}

static float line_mean(const state *s, const void *x)
{
    return s->kind == NORM_LAYER ? s->env->v->along(s->tx, x, STAT_SUM, 0, 0, s->n) / (float)s->n : 0;
}

/* A line is written while the next one is looked at. */
static void norm_lines(const task *t, const unsigned char *x, unsigned char *y, vec_affine *p)
{
    const state *s = t->s;
    const vec_kernels *v = s->env->v;
    const int64_t in = s->n * exec_size(s->tx), out = s->n * exec_size(s->ty);
    float mean = line_mean(s, x), squares = v->along(s->tx, x, STAT_SQUARES, mean, 0, s->n);
    for (int64_t i = 1; i <= t->lines; i++, x += in, y += out) {
        const bool wide = !isfinite(squares);
        p->mean_1 = mean, p->scale_1 = inverse_length(s, squares);
        if (i == t->lines) v->affine(y, s->ty, x, s->tx, p, s->n);
        else mean = line_mean(s, x + in), squares = v->affine_next(y, s->ty, x, s->tx, p, x + in, mean, s->n);
        if (wide) line_wide(t, i - 1);
    }
}

static void norm_plain(task *t)
{
    const state *s = t->s;
    const vec_kernels *v = s->env->v;
    int64_t in = exec_size(s->tx), out = exec_size(s->ty);
    const unsigned char *x = (const unsigned char *)ctx_mem(t->c, s->x) + t->base * in;
    unsigned char *y = (unsigned char *)ctx_mem(t->c, s->y) + t->base * out;
    vec_affine p = { .gain = parameter(t, 0, t->buf), .bias = parameter(t, 1, t->buf + s->n), .stream = streams(t, y) };
    p.gain_f16 = gain_f16(t, p.gain);
    if (s->n >= LONG_LINE) norm_lines(t, x, y, &p);
    else
        for (int64_t i = 0, k; i < t->lines; i += k, x += k * s->n * in, y += k * s->n * out) {
            k = MIN(s->beside, t->lines - i);
            float mean[MOST_BESIDE] = { 0 }, by[MOST_BESIDE];
            for (int64_t l = 0; l < k; l++) mean[l] = line_mean(s, x + l * s->n * in);
            for (int64_t l = 0; l < k; l++) by[l] = v->along(s->tx, x + l * s->n * in, STAT_SQUARES, mean[l], 0, s->n);
            for (int64_t l = 0; l < k; l++) by[l] = inverse_length(s, by[l]);
            p.ahead = k * s->n * in;
            for (int64_t l = 0; l < k; l++) {
                p.mean_1 = mean[l], p.scale_1 = by[l];
                v->affine(y + l * s->n * out, s->ty, x + l * s->n * in, s->tx, &p, s->n);
                if (!(by[l] > 0)) line_wide(t, i + l);
            }
        }
    if (p.stream) v->fence();
}

/* ---- reductions ---- */

static double fn1(const state *s, fn_id f, double x)
{
    static const double none[2] = { 0 };
    return num_fn(s->num, f, &x, none, s->ty);
}

/* The value of a line from its sum (or largest, least) and, for log_sum_exp, its largest. As `reduced` of
 * ref_reduce.c. */
static double reduced(const state *s, float acc, float most)
{
    double sum = (double)acc, end = s->env->chip ? num_round(s->num, s->ty, sum) : sum;
    switch ((red_kind)s->kind) {
    case RED_MEAN: return (double)(acc / (float)(s->n * s->repeats));
    case RED_L2: return fn1(s, FN_SQRT, end);
    case RED_LOG_SUM: return fn1(s, FN_LOG, end);
    case RED_LOG_SUM_EXP:
        if (isinf(most)) return (double)most;
        return num_fn(s->num, FN_ADD, (const double[]){ fn1(s, FN_LOG, end), (double)most }, NULL, s->ty);
    default: return sum;
    }
}

/* The root of a line's squares where they leave fp32, on the plain processor. */
static double l2_wide(const run_ctx *c, const state *s, int64_t first, int64_t step)
{
    double sum = 0;
    for (int64_t r = 0; r < s->repeats; r++, first += s->outer * s->n)
        for (int64_t k = 0; k < s->n; k++) {
            const double x = dtype_load(s->tx, ctx_mem(c, s->x), first + k * step);
            sum += x * x;
        }
    return sqrt(sum);
}

static bool is_wide(const state *s, float acc) { return s->kind == RED_L2 && !s->env->chip && !isfinite(acc); }

/* The plain processor's values that are what was summed, or the largest or least: nothing is done to them one by
 * one. */
static bool as_summed(const state *s)
{
    const red_kind k = (red_kind)s->kind;
    return !s->env->chip && (k == RED_SUM || k == RED_SUM_SQUARE || k == RED_L1 || k == RED_MAX || k == RED_MIN);
}

/* its element of y */
static int64_t first_of(const task *t)
{
    return t->s->columns ? t->base / (t->s->n * t->s->inner) * t->s->inner + t->base % t->s->inner : t->base / t->s->n;
}

static void reduce_in_steps(task *t)
{
    const state *s = t->s;
    red_kind kind = (red_kind)s->kind;
    vec_stat k = kind == RED_MAX || kind == RED_LOG_SUM_EXP ? STAT_MAX
                 : kind == RED_MIN                          ? STAT_MIN
                 : kind == RED_L1                           ? STAT_ABS
                                                            : STAT_SUM;
    bool squares = kind == RED_SUM_SQUARE || kind == RED_L2;
    int64_t base = t->base, again = s->outer * s->n;
    const bool in_place = as_summed(s) && s->columns && !squares && (s->tx == DT_F32 || s->tx == DT_F16);
    s->env->v->fill(t->acc, k == STAT_MAX ? -INFINITY : k == STAT_MIN ? INFINITY : 0, t->lines);
    if (in_place)
        s->env->v->down(t->acc, s->tx, (const char *)ctx_mem(t->c, s->x) + base * exec_size(s->tx), k, s->n,
                        s->inner * exec_size(s->tx), t->lines);
    for (int64_t r = 0; r < s->repeats && !in_place; r++, t->base += again) EACH_PIECE(t)
    {
        load(t, INFINITY);
        if (squares) {
            for (int64_t i = 0; i < runs(t); i++)
                s->env->v->fn[VF_SQUARE](strip(t, i), strip(t, i), NULL, NULL, NULL, run_len(t));
            round_piece(t, how_of(s));
        }
        stat(t, t->acc, k, NULL);
    }
    t->base = base;
    if (kind == RED_LOG_SUM_EXP) {
        s->env->v->fill(t->mean, 0, t->lines);
        for (int64_t r = 0; r < s->repeats; r++, t->base += again)
            EACH_PIECE (t) load(t, INFINITY), exps(t, t->acc), stat(t, t->mean, STAT_SUM, NULL);
        t->base = base;
    }
    int64_t at = first_of(t);
    if (as_summed(s)) {
        s->env->v->store((char *)ctx_mem(t->c, s->y) + at * exec_size(s->ty), s->ty, t->acc, t->lines);
        return;
    }
    if (kind == RED_LOG_SUM_EXP && !s->env->chip) { /* as `reduced`, all lines at once */
        const float plain[2] = { 0, -INFINITY };
        s->env->v->fn[VF_LOG](t->mean, t->mean, NULL, NULL, plain, t->lines);
        for (int64_t i = 0; i < t->lines; i++) t->mean[i] = isinf(t->acc[i]) ? 0 : t->mean[i];
        s->env->v->fn[VF_ADD](t->acc, t->acc, t->mean, NULL, NULL, t->lines);
        s->env->v->store((char *)ctx_mem(t->c, s->y) + at * exec_size(s->ty), s->ty, t->acc, t->lines);
        return;
    }
    for (int64_t i = 0; i < t->lines; i++) {
        double r = kind == RED_LOG_SUM_EXP ? reduced(s, t->mean[i], t->acc[i]) : reduced(s, t->acc[i], 0);
        if (is_wide(s, t->acc[i])) r = l2_wide(t->c, s, base + (s->columns ? i : i * s->n), s->columns ? s->inner : 1);
        dtype_store(s->ty, ctx_mem(t->c, s->y), at + i, num_round(s->num, s->ty, r));
    }
}

/* Rows as columns. */
static const char *turned(const task *t)
{
    const state *s = t->s;
    const int64_t size = exec_size(s->tx);
    const char *x = (const char *)ctx_mem(t->c, s->x) + t->base * size;
    s->env->v->transpose(t->buf, t->lines, x, s->n, s->n, t->lines, (int)size);
    return (const char *)t->buf;
}

/* log(sum(exp(x))) of columns on the plain processor in one look at them; short rows are turned first. Lines without
 * a value are left to the steps, each alone: its neighbours are not the same ones on every number of threads. */
static void log_sum_exp_columns(task *t)
{
    const state *s = t->s;
    const vec_kernels *v = s->env->v;
    const float plain[2] = { 0, -INFINITY };
    const char *x = (const char *)ctx_mem(t->c, s->x) + t->base * exec_size(s->tx);
    int64_t ld = s->inner * exec_size(s->tx);
    if (!s->columns) x = turned(t), ld = t->lines * exec_size(s->tx);
    v->soft_begin(t->acc, t->mean, t->lines, false);
    v->soft_look(t->acc, t->mean, s->tx, x, s->n, ld, t->lines, false);
    v->soft_end(t->acc, t->mean, t->lines, false);
    v->fn[VF_LOG](t->mean, t->mean, NULL, NULL, plain, t->lines);
    v->fn[VF_SUB](t->acc, t->acc, t->mean, NULL, NULL, t->lines);
    v->store((char *)ctx_mem(t->c, s->y) + first_of(t) * exec_size(s->ty), s->ty, t->acc, t->lines);
    for (int64_t i = 0; i < t->lines; i++) {
        task one = *t;
        one.base += s->columns ? i : i * s->n, one.lines = 1, one.acc += i, one.mean += i;
        if (!isfinite(t->acc[i])) reduce_in_steps(&one);
    }
}

/* ---- reductions on the plain processor: a line in parts of CHUNK, whose values are put together in ascending order
 * by whoever made them: the order is the same for any number of threads ---- */

static const vec_stat plain_stat[RED_COUNT] = { [RED_SUM] = STAT_SUM, [RED_MEAN] = STAT_SUM, [RED_LOG_SUM] = STAT_SUM, [RED_SUM_SQUARE] = STAT_SQUARES,
                                                [RED_L2] = STAT_SQUARES, [RED_L1] = STAT_ABS, [RED_MAX] = STAT_MAX, [RED_MIN] = STAT_MIN };

static int64_t parts_of_line(const state *s) { return s->repeats * s->parts; }
static float start_of(const state *s) { return s->kind == RED_MAX ? -INFINITY : s->kind == RED_MIN ? INFINITY : 0; }

static float part(const run_ctx *c, const state *s, int64_t line, int64_t i)
{
    /* short lines feel divisions */
    const int64_t run = s->parts > 1 ? i / s->parts : i, from = (i - run * s->parts) * CHUNK,
                  at = (run * s->outer + line) * s->n + from;
    const char *x = (const char *)ctx_mem(c, s->x) + at * exec_size(s->tx);
    return s->env->v->along(s->tx, x, plain_stat[s->kind], 0, start_of(s), MIN(CHUNK, s->n - from));
}

static float joined(const state *s, float acc, float x)
{
    if (s->kind != RED_MAX && s->kind != RED_MIN) return acc + x;
    return isnan(acc) || (!isnan(x) && (s->kind == RED_MAX ? x <= acc : x >= acc)) ? acc : x;
}

static void store_line(const run_ctx *c, const state *s, int64_t line, float acc)
{
    if (s->ty == DT_F32 && as_summed(s)) ((float *)ctx_mem(c, s->y))[line] = acc;
    else
        dtype_store(s->ty, ctx_mem(c, s->y), line,
                    num_round(s->num, s->ty, is_wide(s, acc) ? l2_wide(c, s, line * s->n, 1) : reduced(s, acc, 0)));
}

static void reduce_turned(task *t)
{
    const state *s = t->s;
    const vec_kernels *v = s->env->v;
    const int64_t first = first_of(t);
    v->fill(t->acc, start_of(s), t->lines);
    v->down(t->acc, s->tx, turned(t), plain_stat[s->kind], s->n, t->lines * exec_size(s->tx), t->lines);
    if (as_summed(s)) v->store((char *)ctx_mem(t->c, s->y) + first * exec_size(s->ty), s->ty, t->acc, t->lines);
    for (int64_t i = 0; !as_summed(s) && i < t->lines; i++) store_line(t->c, s, first + i, t->acc[i]);
}

static void reduce(task *t)
{
    if (t->s->turns) reduce_turned(t);
    else if (t->s->look && (t->s->columns || t->lines * t->s->n <= t->s->room)) log_sum_exp_columns(t);
    else reduce_in_steps(t);
}

typedef struct {
    const run_ctx *c;
    const state *s;
    int64_t each; /* lines or parts of a task */
} plain_job;

static void whole_lines(void *ctx, int64_t which, int thread)
{
    const plain_job *j = ctx;
    (void)thread;
    for (int64_t line = which * j->each; line < MIN(j->s->outer, (which + 1) * j->each); line++) {
        float acc = start_of(j->s);
        for (int64_t i = 0, parts = parts_of_line(j->s); i < parts; i++)
            acc = joined(j->s, acc, part(j->c, j->s, line, i));
        store_line(j->c, j->s, line, acc);
    }
}

static void single_parts(void *ctx, int64_t which, int thread)
{
    const plain_job *j = ctx;
    int64_t parts = parts_of_line(j->s);
    float *all = (float *)j->c->work;
    (void)thread;
    for (int64_t i = which * j->each; i < MIN(j->s->outer * parts, (which + 1) * j->each); i++)
        all[i] = part(j->c, j->s, i / parts, i % parts);
}

/* Waking other threads and waiting for them takes about as long as this many elements. */
static pool *pool_for(const run_ctx *c, const state *s)
{
    enum { FEW = 1 << 14 };
    return s->repeats * s->outer * s->n * s->inner <= FEW ? NULL : c->pool;
}

static void reduce_plain(const run_ctx *c)
{
    const state *s = c->state;
    int64_t tasks = 4 * s->env->threads, parts = parts_of_line(s), units = s->split ? s->outer * parts : s->outer;
    plain_job j = { .c = c, .s = s, .each = MAX((units + tasks - 1) / tasks, 1) };
    int64_t n = (units + j.each - 1) / j.each;
    pool_run(pool_for(c, s), s->split ? single_parts : whole_lines, &j, n);
    for (int64_t line = 0; s->split && line < s->outer; line++) {
        const float *all = (const float *)c->work + line * parts;
        float acc = start_of(s);
        for (int64_t i = 0; i < parts; i++) acc = joined(s, acc, all[i]);
        store_line(c, s, line, acc);
    }
}

/* ---- tasks ---- */

typedef struct {
    const run_ctx *c;
    const state *s;
    void (*fn)(task *t);
} job;

static void line_task(void *ctx, int64_t i, int thread)
{
    const job *j = ctx;
    const state *s = j->s;
    float *mem = (float *)(void *)((char *)j->c->work + (size_t)thread * s->each);
    task t = { .c = j->c, .s = s, .buf = mem };
    t.spare = t.buf + s->room;
    t.acc = t.spare + MAX(s->lines, s->part), t.mean = t.acc + s->lines;
    if (s->columns) {
        int64_t o = i / s->per_outer, first = i % s->per_outer * s->lines;
        t.base = o * s->n * s->inner + first, t.lines = MIN(s->lines, s->inner - first);
        j->fn(&t);
        return;
    }
    int64_t first = i * s->groups * s->lines, end = MIN(s->outer, first + s->groups * s->lines),
            each = s->plain ? end - first : s->lines;
    for (; first < end; first += each) {
        t.base = first * s->n, t.lines = MIN(each, end - first);
        j->fn(&t);
    }
}

static an_status run_lines(const run_ctx *c, const insn *in, void (*fn)(task *t), diag *d)
{
    job j = { .c = c, .s = c->state, .fn = fn };
    if (!c->state) return ref_entry_of(in->op)(c, in, d);
    pool_run(pool_for(c, j.s), line_task, &j, j.s->tasks);
    return AN_OK;
}

/* The axes in one run with nothing that stays between them? */
static bool one_run(const etensor *t, const int64_t *axes, int64_t n_axes, state *s)
{
    bool on[ENGINE_MAX_RANK] = { false };
    int first = -1, last = -1;
    for (int64_t i = 0; i < n_axes; i++) on[axes[i]] = true;
    for (int i = 0; i < t->rank; i++)
        if (on[i] && t->dim[i] > 1) first = first < 0 ? i : first, last = i;
    for (int i = first; i >= 0 && i <= last; i++)
        if (!on[i] && t->dim[i] > 1) return false;
    if (first < 0) first = t->rank, last = t->rank - 1; /* lines of one element */
    s->outer = dims_product(t->dim, 0, first), s->n = dims_product(t->dim, first, last + 1),
    s->inner = dims_product(t->dim, last + 1, t->rank);
    return true;
}

/* Or the first axes and the last ones, with what stays between them? Then a line is a run in every one of the first. */
static bool two_runs(const etensor *t, const int64_t *axes, int64_t n_axes, state *s)
{
    bool on[ENGINE_MAX_RANK] = { false };
    int a = 0, b;
    for (int64_t i = 0; i < n_axes; i++) on[axes[i]] = true;
    while (a < t->rank && (on[a] || t->dim[a] == 1)) a++;
    for (b = a; b < t->rank && (!on[b] || t->dim[b] == 1);) b++;
    for (int i = b; i < t->rank; i++)
        if (!on[i] && t->dim[i] > 1) return false;
    s->repeats = dims_product(t->dim, 0, a), s->outer = dims_product(t->dim, a, b),
    s->n = dims_product(t->dim, b, t->rank), s->inner = 1;
    return true;
}

/* again: elements are looked at more than once, and y has x's shape. whole: as they are, nothing else is kept of
 * them. */
static an_status prepare(image *im, const insn *in, const int64_t *axes, int64_t n_axes, bool again, bool whole,
                         state **out, diag *d)
{
    exec_env *e;
    state s = { .x = insn_t(in, "x"), .y = insn_t(in, "y"), .num = &im->p->num, .repeats = 1 };
    *out = NULL;
    TRY(exec_open(im, &e, d));
    const etensor *x = &im->p->tensors.at[s.x], *y = &im->p->tensors.at[s.y];
    s.env = e, s.tx = x->dt, s.ty = y->dt;
    if (!e->fast || !exec_loads(s.tx) || !exec_stores(s.ty) || !dtype_is_float(s.ty)) return AN_OK;
    if (!one_run(x, axes, n_axes, &s) && (again || !two_runs(x, axes, n_axes, &s))) return AN_OK;
    s.columns = s.inner > 1;
    s.writes = again;
    bool bf16 = whole && s.tx == DT_BF16 && s.ty == DT_BF16;
    s.plain = !e->chip && (bf16 || ((s.tx == DT_F32 || s.tx == DT_F16) && (s.ty == DT_F32 || s.ty == DT_F16)));
    int64_t room = e->l2 / 2 / (int64_t)sizeof(float); /* the other half is for what passes by */
    if (s.columns) {
        int64_t share = ROUND_UP((s.inner + 2 * e->threads - 1) / (2 * e->threads), (int64_t)COLUMN_STEP),
                fit = room / s.n / COLUMN_STEP * COLUMN_STEP;
        s.lines = MIN(share, MOST_COLUMNS);
        if (again && fit >= COLUMN_STEP) s.lines = MIN(s.lines, fit);
        s.lines = MIN(s.inner, s.lines);
        s.part = MIN(s.n, MAX(PIECE / s.lines, 1));
        s.per_outer = (s.inner + s.lines - 1) / s.lines;
        s.tasks = s.outer * s.per_outer;
    } else {
        s.lines = MIN(s.outer, e->v->width);
        /* few lines: some for every thread */
        if (!again) s.lines = MIN(s.lines, (s.outer + e->threads - 1) / e->threads);
        s.lines = MAX(s.lines, 1);
        s.part = MIN(s.n, MAX(PIECE / s.lines, 64));
        int64_t all = (s.outer + s.lines - 1) / s.lines;
        s.groups = MAX(all / (8 * e->threads), 1); /* neighbours in one task: the next one's lines are on their way */
        s.tasks = (all + s.groups - 1) / s.groups;
    }
    s.kept = again && s.lines <= room / s.n;
    s.room = s.lines * (s.kept ? s.n : s.part);
    s.stream = s.plain && again && exec_streams(e, et_elems(x) * exec_size(s.ty));
    /* softmax keeps their exps in the first cache too */
    s.beside = MIN(MAX(PIECE / s.n / (whole ? 1 : 2 * exec_size(s.tx)), 1), MOST_BESIDE);
    /* gain and bias, and lines */
    if (s.plain && again && !s.columns) s.room = MAX(s.room, PARAMS * s.n + MAX(s.beside, 3) * s.n);
    s.each = ROUND_UP((size_t)(s.room + MAX(s.lines, s.part) + 2 * s.lines) * sizeof(float), (size_t)64);
    exec_need_work(im, s.each * (size_t)e->threads);
    if (e->chip && im->p->num.tables != 0 && !(s.exp2 = exec_table(im, TAB_exp2, d))) return d->st;
    state *keep = TAKE(&im->prepared, state, 1);
    if (!keep) return diag_nomem(d);
    *keep = s;
    *out = keep;
    return AN_OK;
}

static void prepare_columns(image *im, state *s, bool exps)
{
    columns *k = &s->down;
    *k = (columns){ .env = s->env, .x = s->x, .y = s->y, .outer = s->outer, .n = s->n, .inner = s->inner, .tx = s->tx, .ty = s->ty, .exps = exps, .kind = (norm_kind)s->kind, .eps = s->eps, .stream = s->stream };
    for (int i = 0; i < PARAMS; i++) k->par[i] = s->has[i] ? s->par[i].tensor : -1, k->par_t[i] = s->par[i].t;
    columns_plan(k);
    exec_need_work(im, k->each * (size_t)s->env->threads);
}

static an_status prepare_softmax(image *im, const insn *in, void **out, diag *d)
{
    int64_t axis = insn_i(in, "axis");
    state *s;
    TRY(prepare(im, in, &axis, 1, true, false, &s, d));
    if (s && s->plain && s->columns) prepare_columns(im, s, true);
    *out = s;
    return AN_OK;
}

static an_status prepare_reduce(image *im, const insn *in, void **out, diag *d)
{
    int64_t n;
    const int64_t *axes = insn_is(in, "axes", &n);
    state *s;
    TRY(prepare(im, in, axes, n, false, false, &s, d));
    if (s) {
        s->kind = (int)insn_i(in, "kind");
        s->look = s->plain && (s->columns || (s->n < SHORT_LINE && s->tx == DT_F32)) && s->kind == RED_LOG_SUM_EXP &&
                  s->repeats == 1;
        s->turns = s->plain && !s->columns && s->n < SHORT_LINE && s->tx == DT_F32 && s->kind != RED_LOG_SUM_EXP &&
                   s->repeats == 1 && s->outer > 1 && s->lines * s->n <= s->room;
        s->plain = s->plain && !s->columns && s->kind != RED_LOG_SUM_EXP && !s->turns;
        s->parts = (s->n + CHUNK - 1) / CHUNK;
        int64_t parts = parts_of_line(s);
        s->split = s->plain && parts > 1 && s->outer < 4 * s->env->threads;
        if (s->split) exec_need_work(im, (size_t)(s->outer * parts) * sizeof(float));
    }
    *out = s;
    return AN_OK;
}

/* One value per position of a line, in order, whatever the line. */
static bool along_lines(const state *s, const exec_walk *w)
{
    int r = w->rank;
    if (s->columns && (!r || w->dim[r - 1] != s->inner || w->stride[--r])) return false;
    if (r < 1 || r > 2 || w->dim[r - 1] != s->n || w->stride[r - 1] != 1) return false;
    return r == 1 || (w->dim[0] == s->outer && w->stride[0] == 0);
}

static an_status prepare_norm(image *im, const insn *in, void **out, diag *d)
{
    int64_t n, par[PARAMS] = { insn_t(in, "gain"), insn_t(in, "bias") };
    const int64_t *axes = insn_is(in, "axes", &n);
    state *s;
    for (int k = 0; k < PARAMS; k++)
        if (par[k] >= 0 && !exec_loads(im->p->tensors.at[par[k]].dt)) return AN_OK;
    TRY(prepare(im, in, axes, n, true, true, &s, d));
    if (!s) return AN_OK;
    s->kind = (int)insn_i(in, "kind"), s->eps = (float)insn_f(in, "eps");
    for (int k = 0; k < PARAMS; k++)
        if (par[k] >= 0) {
            s->has[k] = true, s->par[k] = exec_walk_of(im->p, par[k], &im->p->tensors.at[s->y]);
            s->plain = s->plain && along_lines(s, &s->par[k]);
        }
    if (s->plain && s->columns) prepare_columns(im, s, false);
    *out = s;
    return AN_OK;
}

static bool is_plain(const run_ctx *c) { return c->state && ((const state *)c->state)->plain; }
/* One that writes as much as it reads. */
static an_status run_whole(const run_ctx *c, const insn *in, void (*any)(task *t), void (*plain)(task *t), diag *d)
{
    if (!is_plain(c)) return run_lines(c, in, any, d);
    if (!((const state *)c->state)->columns) return run_lines(c, in, plain, d);
    columns_run(c, &((const state *)c->state)->down);
    return AN_OK;
}
static an_status run_softmax(const run_ctx *c, const insn *in, diag *d)
{
    return run_whole(c, in, softmax, softmax_plain, d);
}
static an_status run_norm(const run_ctx *c, const insn *in, diag *d) { return run_whole(c, in, norm, norm_plain, d); }
static an_status run_reduce(const run_ctx *c, const insn *in, diag *d)
{
    if (!is_plain(c)) return run_lines(c, in, reduce, d);
    reduce_plain(c);
    return AN_OK;
}

const exec_entry exec_softmax = { .run = run_softmax, .prepare = prepare_softmax };
const exec_entry exec_norm = { .run = run_norm, .prepare = prepare_norm };
const exec_entry exec_reduce = { .run = run_reduce, .prepare = prepare_reduce };
