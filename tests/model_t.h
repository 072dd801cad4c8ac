/* model_t.h: for the model tests: random weights behind a weight source, a program evaluated by port names, plain
 * maths. The maths is written from the formulas on [C][S] arrays in double precision and shares nothing with the
 * builders but the rounding of constants: what a program holds as fp16 is rounded here too (rc). */
#ifndef TESTS_MODEL_T_H
#define TESTS_MODEL_T_H

#include <math.h>

#include "t.h"
#include "model/model.h"

/* ---- memory: everything a test takes is dropped together ---- */
static arena test_mem, weight_mem;
static struct {
    uint64_t seed;
    double *x;
} weights_made[MW_COUNT][3]; /* by layer: the model's, layers 0 and 1 */

static inline double *room(int64_t n)
{
    double *p = TAKE(&test_mem, double, (size_t)n);
    assert_non_null(p);
    return p;
}

static inline double *randoms(rng *r, int64_t n, double scale)
{
    double *x = room(n);
    for (int64_t i = 0; i < n; i++) x[i] = scale * rng_normal(r);
    return x;
}

static inline int drop_memory(void **state)
{
    (void)state;
    arena_free(&test_mem);
    arena_free(&weight_mem);
    memset(weights_made, 0, sizeof weights_made);
    return 0;
}

static inline double rc(const model_config *c, double x) { return dtype_round(c->dt ? c->dt : DT_F16, x); }
static inline double alpha_of(const model_config *c) { return c->alpha == 0 ? 1 : rc(c, c->alpha); }

/* ---- weights: fp16 values fixed by seed, tensor and layer; transposed copies and parts are cut from the same
 * numbers ---- */
typedef struct {
    const model_config *c;
    uint64_t seed;
} store;

static inline void weight_shape(const model_config *c, model_weight_id id, int64_t *rows, int64_t *cols)
{
    static model_weight all[4096];
    size_t n = model_weights(c, all, COUNT(all));
    assert_true(n <= COUNT(all));
    for (size_t i = 0; i < n; i++) {
        if (all[i].id != id) continue;
        const int64_t *d = all[i].type.sh.d;
        *rows = d[0] == 1 && d[1] > 1 && id != MW_EMBED ? d[1] : d[0];
        *cols = d[0] == 1 && d[1] > 1 && id != MW_EMBED ? 1 : d[1];
        return;
    }
    fail_msg("no weight %d in this model", (int)id);
}

/* [rows][cols]; gains lie in 0.5 .. 1.5, the rest is normal with a size that keeps activations near 1 */
static inline double *weight_of(const store *s, model_weight_id id, int layer)
{
    assert_in_range(layer + 1, 0, 2);
    if (weights_made[id][layer + 1].x && weights_made[id][layer + 1].seed == s->seed)
        return weights_made[id][layer + 1].x;
    int64_t rows = 0, cols = 0;
    weight_shape(s->c, id, &rows, &cols);
    rng r = { s->seed * 1000003u + (uint64_t)id * 131 + (uint64_t)(layer + 1) };
    rng_next(&r);
    double *x = TAKE(&weight_mem, double, (size_t)(rows * cols));
    assert_non_null(x);
    bool gain = id == MW_NORM1 || id == MW_NORM2 || id == MW_NORM_F || id == MW_Q_NORM || id == MW_K_NORM ||
                id == MW_POST1 || id == MW_POST2;
    for (int64_t i = 0; i < rows * cols; i++)
        x[i] =
            dtype_round(DT_F16, gain ? rng_range(&r, 0.5, 1.5) : rng_normal(&r) / sqrt(cols > 1 ? (double)cols : 10));
    weights_made[id][layer + 1].seed = s->seed, weights_made[id][layer + 1].x = x;
    return x;
}

static inline bool store_get(void *user, const model_weight *w, model_blob *b)
{
    const store *s = user;
    int64_t rows = 0, cols = 0, n = 0;
    weight_shape(s->c, w->id, &rows, &cols);
    const double *full = weight_of(s, w->id, w->layer);
    size_t bytes = 0;
    assert_true(shape_elems(&w->type.sh, &n) && shape_bytes(&w->type, &bytes));
    unsigned char *p = TAKE(&test_mem, unsigned char, bytes);
    assert_non_null(p);
    for (int64_t i = 0; i < n; i++) {
        int64_t row = i / cols + w->row0, col = i % cols;
        if (w->transposed) {
            int64_t taken = w->type.sh.d[1]; /* [cols, taken rows] */
            row = i % taken + w->row0, col = i / taken;
        }
        dtype_store(w->type.dt, p, i, full[row * cols + col]);
    }
    b->data = p;
    return true;
}

/* ---- a program, evaluated ---- */
typedef struct {
    const char *name; /* as in kernels.def, parts with their number: "logits2" */
    const double *x;
} feed;

typedef struct {
    int n;
    model_port port[MODEL_MAX_PORTS];
    tensor64 t[MODEL_MAX_PORTS];
} results;

static inline graph *build_program(const model_config *c, model_kind kind, int layer, int64_t seq, store *s)
{
    graph *g = NULL;
    diag d = { 0 };
    model_source src = { .get = store_get, .user = s };
    assert_ok(model_program_build(c, &(model_program){ kind, layer, seq }, &src, &g, &d), d);
    return g;
}

static inline void eval_program(const model_config *c, model_kind kind, int layer, int64_t seq, store *s,
                                const feed *in, int n_in, results *out)
{
    graph *g = build_program(c, kind, layer, seq, s);
    diag d = { 0 };
    tensor64 t[MODEL_MAX_PORTS];
    assert_int_equal(g->inputs.n, n_in);
    for (size_t i = 0; i < g->inputs.n; i++) {
        const value *v = graph_value(g, g->inputs.at[i]);
        t[i] = (tensor64){ v->type, NULL };
        for (int k = 0; k < n_in; k++)
            if (!strcmp(v->name + 4, in[k].name)) t[i].x = (double *)(uintptr_t)in[k].x;
        if (!t[i].x) fail_msg("nothing to feed to %s", v->name);
    }
    assert_ok(graph_eval(g, t, out->t, &test_mem, &d), d);
    out->n = model_kernel_ports(c, &(model_program){ kind, layer, seq }, false, out->port);
    assert_int_equal(out->n, g->outputs.n);
    for (int i = 0; i < out->n; i++) assert_string_equal(out->port[i].name, g->outputs.at[i].name);
    graph_free(g);
}

static inline const double *result(const results *r, const char *name)
{
    for (int i = 0; i < r->n; i++)
        if (!strcmp(r->port[i].name + 4, name)) return r->t[i].x;
    fail_msg("no output %s", name);
    return NULL;
}

#define FEED(...) ((const feed[]){ __VA_ARGS__ }), (int)(sizeof((const feed[]){ __VA_ARGS__ }) / sizeof(feed))

/* What ffn_bwd and attn_bwd1 take of this shape; returns how many. */
static inline int ffn_feeds(const model_config *c, feed *in, const double *dy, const double *h1, const double *h3,
                            const double *br)
{
    int n = 0;
    in[n++] = (feed){ "dy", dy }, in[n++] = (feed){ "h1", h1 };
    if (model_gated(c)) in[n++] = (feed){ "h3", h3 };
    if (c->post_norm) in[n++] = (feed){ "br", br };
    return n;
}

static inline int attn_feeds(const model_config *c, feed *in, const double *q, const double *k, const double *v,
                             const double *dy, const double *br)
{
    in[0] = (feed){ "q", q }, in[1] = (feed){ "k", k }, in[2] = (feed){ "v", v }, in[3] = (feed){ "dy", dy },
    in[4] = (feed){ "br", br };
    return c->post_norm ? 5 : 4;
}

/* rel: of the value itself, plus a hundredth of the largest, where sums cancel */
static inline void close_to(const char *what, const double *got, const double *want, int64_t n, double rel)
{
    double top = 0;
    for (int64_t i = 0; i < n; i++) top = fmax(top, fabs(want[i]));
    assert_true(top > 0); /* a comparison of zeros would show nothing */
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= rel * (fabs(want[i]) + 1e-2 * top)))
            fail_msg("%s[%lld]: got %.15g, wanted %.15g (rel %g)", what, (long long)i, got[i], want[i],
                     fabs(got[i] - want[i]) / fabs(want[i]));
}

/* ---- plain maths; x is [C][S] ---- */

static inline void m_linear(const double *w, const double *b, const double *x, double *y, int64_t out, int64_t in,
                            int64_t S)
{
    for (int64_t o = 0; o < out; o++)
        for (int64_t s = 0; s < S; s++) {
            double a = b ? b[o] : 0;
            for (int64_t i = 0; i < in; i++) a += w[o * in + i] * x[i * S + s];
            y[o * S + s] = a;
        }
}

/* y = W^T x */
static inline void m_linear_t(const double *w, const double *x, double *y, int64_t out, int64_t in, int64_t S)
{
    for (int64_t i = 0; i < in; i++)
        for (int64_t s = 0; s < S; s++) {
            double a = 0;
            for (int64_t o = 0; o < out; o++) a += w[o * in + i] * x[o * S + s];
            y[i * S + s] = a;
        }
}

static inline void m_rms(const double *x, const double *w, double eps, double *y, int64_t D, int64_t S)
{
    for (int64_t s = 0; s < S; s++) {
        double ss = 0;
        for (int64_t i = 0; i < D; i++) ss += x[i * S + s] * x[i * S + s];
        for (int64_t i = 0; i < D; i++) y[i * S + s] = x[i * S + s] / sqrt(ss / (double)D + eps) * w[i];
    }
}

static inline void m_layer(const double *x, const double *w, const double *b, double eps, double *y, int64_t D,
                           int64_t S)
{
    for (int64_t s = 0; s < S; s++) {
        double mean = 0, var = 0;
        for (int64_t i = 0; i < D; i++) mean += x[i * S + s] / (double)D;
        for (int64_t i = 0; i < D; i++) var += (x[i * S + s] - mean) * (x[i * S + s] - mean) / (double)D;
        for (int64_t i = 0; i < D; i++) y[i * S + s] = (x[i * S + s] - mean) / sqrt(var + eps) * w[i] + (b ? b[i] : 0);
    }
}

/* dx_i = r (w_i dy_i - x_i r^2/D sum_j w_j dy_j x_j) */
static inline void m_rms_bwd(const double *dy, const double *x, const double *w, double eps, double *dx, int64_t D,
                             int64_t S)
{
    for (int64_t s = 0; s < S; s++) {
        double ss = 0, dot = 0;
        for (int64_t i = 0; i < D; i++) ss += x[i * S + s] * x[i * S + s], dot += w[i] * dy[i * S + s] * x[i * S + s];
        double r = 1 / sqrt(ss / (double)D + eps);
        for (int64_t i = 0; i < D; i++)
            dx[i * S + s] = r * (w[i] * dy[i * S + s] - x[i * S + s] * r * r / (double)D * dot);
    }
}

/* x_hat = (x - mean)/sd; dx = (g - mean(g) - x_hat mean(g x_hat)) / sd, g = w dy */
static inline void m_layer_bwd(const double *dy, const double *x, const double *w, double eps, double *dx, int64_t D,
                               int64_t S)
{
    for (int64_t s = 0; s < S; s++) {
        double mean = 0, var = 0, mg = 0, mgx = 0;
        for (int64_t i = 0; i < D; i++) mean += x[i * S + s] / (double)D;
        for (int64_t i = 0; i < D; i++) var += pow(x[i * S + s] - mean, 2) / (double)D;
        double sd = sqrt(var + eps);
        for (int64_t i = 0; i < D; i++) {
            double g = w[i] * dy[i * S + s];
            mg += g / (double)D, mgx += g * (x[i * S + s] - mean) / sd / (double)D;
        }
        for (int64_t i = 0; i < D; i++)
            dx[i * S + s] = (w[i] * dy[i * S + s] - mg - (x[i * S + s] - mean) / sd * mgx) / sd;
    }
}

static inline void m_norm(const store *s, model_weight_id gain, model_weight_id bias, int layer, const double *x,
                          double *y, int64_t S)
{
    const model_config *c = s->c;
    double eps = pow(rc(c, sqrt(c->norm_eps)), 2);
    const double *w = weight_of(s, gain, layer);
    if (c->norm == MODEL_NORM_RMS) m_rms(x, w, eps, y, c->dim, S);
    else m_layer(x, w, weight_of(s, bias, layer), eps, y, c->dim, S);
}

/* each head's pair (a, b) at position p turned by p*theta^(-2i/HD): forwards, or back */
static inline void m_rope(const model_config *c, const double *x, double *y, int64_t heads, int64_t S, bool back)
{
    int64_t hd = c->head_dim;
    for (int64_t h = 0; h < heads; h++)
        for (int64_t i = 0; i < hd / 2; i++)
            for (int64_t p = 0; p < S; p++) {
                double angle = (double)p / pow(c->rope_theta, 2.0 * (double)i / (double)hd);
                if (c->scaling.kind == MODEL_SCALE_LINEAR) angle /= c->scaling.factor;
                double co = rc(c, cos(angle)), si = rc(c, sin(angle)) * (back ? -1 : 1);
                int64_t a = c->rope == MODEL_ROPE_HALF ? i : 2 * i,
                        b = c->rope == MODEL_ROPE_HALF ? i + hd / 2 : 2 * i + 1;
                double xa = x[(h * hd + a) * S + p], xb = x[(h * hd + b) * S + p];
                y[(h * hd + a) * S + p] = xa * co - xb * si;
                y[(h * hd + b) * S + p] = xa * si + xb * co;
            }
}

/* q/k norm and rotation of every head */
static inline void m_place(const store *s, model_weight_id gain, int layer, const double *raw, double *y, int64_t heads,
                           int64_t S, bool rotate)
{
    const model_config *c = s->c;
    int64_t hd = c->head_dim;
    double *t = room(heads * hd * S);
    memcpy(t, raw, (size_t)(heads * hd * S) * sizeof *t);
    if (c->qk_norm)
        for (int64_t h = 0; h < heads; h++)
            m_rms(raw + h * hd * S, weight_of(s, gain, layer), pow(rc(c, sqrt(c->norm_eps)), 2), t + h * hd * S, hd, S);
    if (rotate && c->rope != MODEL_ROPE_NONE) m_rope(c, t, y, heads, S, false);
    else memcpy(y, t, (size_t)(heads * hd * S) * sizeof *t);
}

static inline const double *bias_of(const store *s, model_weight_id id, int layer)
{
    static model_weight all[4096];
    size_t n = model_weights(s->c, all, COUNT(all));
    for (size_t i = 0; i < n; i++)
        if (all[i].id == id && all[i].layer == layer) return weight_of(s, id, layer);
    return NULL;
}

/* causal attention; head h reads kv head h div (NH/NKV). p [NH][S][S] may be NULL */
static inline void m_attend(const model_config *c, const double *q, const double *k, const double *v, double *attn,
                            double *probs, int64_t S)
{
    int64_t hd = c->head_dim, G = c->n_heads / c->n_kv_heads;
    double scale = rc(c, 1 / sqrt(c->query_dim != 0 ? c->query_dim : (double)hd)), cap = c->attn_softcap;
    double *p = room(S);
    for (int64_t h = 0; h < c->n_heads; h++)
        for (int64_t i = 0; i < S; i++) {
            int64_t kv = h / G, from = c->window > 0 && i >= c->window ? i - c->window + 1 : 0;
            double top = -INFINITY, sum = 0;
            for (int64_t t = from; t <= i; t++) {
                p[t] = 0;
                for (int64_t j = 0; j < hd; j++) p[t] += q[(h * hd + j) * S + i] * scale * k[(kv * hd + j) * S + t];
                if (cap != 0) p[t] = cap * tanh(p[t] / cap);
                top = fmax(top, p[t]);
            }
            for (int64_t t = from; t <= i; t++) sum += p[t] = exp(p[t] - top);
            for (int64_t t = 0; t < S; t++) p[t] = t <= i && t >= from ? p[t] / sum : 0;
            for (int64_t t = 0; t < S && probs; t++) probs[(h * S + i) * S + t] = p[t];
            for (int64_t j = 0; j < hd; j++) {
                double a = 0;
                for (int64_t t = 0; t <= i; t++) a += p[t] * v[(kv * hd + j) * S + t];
                attn[(h * hd + j) * S + i] = a;
            }
        }
}

/* What a branch gives, normed or as it is. */
static inline void m_post(const store *s, model_weight_id gain, int layer, const double *br, double *o, int64_t S)
{
    const model_config *c = s->c;
    if (c->post_norm) m_rms(br, weight_of(s, gain, layer), pow(rc(c, sqrt(c->norm_eps)), 2), o, c->dim, S);
    else memcpy(o, br, (size_t)(c->dim * S) * sizeof *o);
}

/* As one layer sees it: its own window. */
static inline model_config m_layer_config(const model_config *c, int layer)
{
    model_config one = *c;
    if (c->window_every > 1 && layer % c->window_every) one.window = 0;
    return one;
}

typedef struct { /* the attention half of a layer */
    double *xn, *qraw, *kraw, *q, *k, *v, *attn, *br, *o, *y;
} m_attn;

static inline m_attn m_attn_from(const store *s, int layer, const double *x, int64_t S, bool rotate)
{
    const model_config *c = s->c;
    int64_t D = c->dim, Q = c->n_heads * c->head_dim, K = c->n_kv_heads * c->head_dim;
    m_attn m = { room(D * S), room(Q * S), room(K * S), room(Q * S), room(K * S),
                 room(K * S), room(Q * S), room(D * S), room(D * S), room(D * S) };
    m_norm(s, MW_NORM1, MW_NORM1_B, layer, x, m.xn, S);
    m_linear(weight_of(s, MW_WQ, layer), bias_of(s, MW_BQ, layer), m.xn, m.qraw, Q, D, S);
    m_linear(weight_of(s, MW_WK, layer), bias_of(s, MW_BK, layer), m.xn, m.kraw, K, D, S);
    m_linear(weight_of(s, MW_WV, layer), bias_of(s, MW_BV, layer), m.xn, m.v, K, D, S);
    m_place(s, MW_Q_NORM, layer, m.qraw, m.q, c->n_heads, S, rotate);
    m_place(s, MW_K_NORM, layer, m.kraw, m.k, c->n_kv_heads, S, rotate);
    model_config one = m_layer_config(c, layer);
    m_attend(&one, m.q, m.k, m.v, m.attn, NULL, S);
    m_linear(weight_of(s, MW_WO, layer), bias_of(s, MW_BO, layer), m.attn, m.br, D, Q, S);
    m_post(s, MW_POST1, layer, m.br, m.o, S);
    for (int64_t i = 0; i < D * S; i++) m.y[i] = (c->host_residual ? 0 : x[i]) + alpha_of(c) * m.o[i];
    return m;
}

static inline double m_gelu(const model_config *c, double x)
{
    double c0 = 0.7978845608028654, c1 = 0.044715 * c0; /* the program holds c0 and c1 */
    return 0.5 * x * (1 + tanh(x * (rc(c, c0) + rc(c, c1) * x * x)));
}

static inline double m_sigmoid(double x) { return 1 / (1 + exp(-x)); }

typedef struct {
    double *xn, *h1, *h3, *act, *br, *o, *y;
} m_ffn;

static inline void m_activate(const model_config *c, const double *h1, const double *h3, double *act, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        act[i] = c->act == MODEL_ACT_GELU    ? m_gelu(c, h1[i])
                 : c->act == MODEL_ACT_GEGLU ? m_gelu(c, h1[i]) * h3[i]
                                             : h1[i] * m_sigmoid(h1[i]) * h3[i];
}

static inline m_ffn m_ffn_from(const store *s, int layer, const double *x, int64_t S)
{
    const model_config *c = s->c;
    int64_t D = c->dim, H = c->hidden;
    m_ffn m = { room(D * S), room(H * S), room(H * S), room(H * S), room(D * S), room(D * S), room(D * S) };
    m_norm(s, MW_NORM2, MW_NORM2_B, layer, x, m.xn, S);
    m_linear(weight_of(s, MW_W1, layer), bias_of(s, MW_B1, layer), m.xn, m.h1, H, D, S);
    if (c->act != MODEL_ACT_GELU) m_linear(weight_of(s, MW_W3, layer), bias_of(s, MW_B3, layer), m.xn, m.h3, H, D, S);
    m_activate(c, m.h1, m.h3, m.act, H * S);
    m_linear(weight_of(s, MW_W2, layer), bias_of(s, MW_B2, layer), m.act, m.br, D, H, S);
    m_post(s, MW_POST2, layer, m.br, m.o, S);
    for (int64_t i = 0; i < D * S; i++) m.y[i] = (c->host_residual ? 0 : x[i]) + alpha_of(c) * m.o[i];
    return m;
}

/* ---- finite differences: d/dx of f, five points, error O(h^4) ---- */
static inline void differences(double (*f)(void *), void *user, double *x, int64_t n, double *dx)
{
    const double h = 1e-3;
    for (int64_t i = 0; i < n; i++) {
        arena_mark m = arena_save(&test_mem);
        double keep = x[i], at[4];
        const double step[4] = { h, -h, 2 * h, -2 * h };
        for (int k = 0; k < 4; k++) x[i] = keep + step[k], at[k] = f(user);
        x[i] = keep;
        dx[i] = (8 * (at[0] - at[1]) - (at[2] - at[3])) / (12 * h);
        arena_back(&test_mem, m);
    }
}

static inline double dot(const double *a, const double *b, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += a[i] * b[i];
    return s;
}

/* ---- the shapes every kernel test runs over ---- */
#define SMALL                                                                                                          \
    .n_layers = 2, .dim = 32, .hidden = 48, .seq = 8, .context = 16, .vocab = 96, .vocab_part = 32, .rope_theta = 1e4
static const model_config shapes[] = {
    { .name = "mha", SMALL, .n_heads = 4, .n_kv_heads = 4, .head_dim = 8, .norm_eps = 1e-5, .rope = MODEL_ROPE_INTERLEAVED, .tied = true },
    { .name = "gqa", SMALL, .n_heads = 4, .n_kv_heads = 2, .head_dim = 8, .norm_eps = 1e-5, .rope = MODEL_ROPE_INTERLEAVED, .alpha = 0.25, .loss_scale = 256 },
    { .name = "gqa-half", SMALL, .n_heads = 6, .n_kv_heads = 2, .head_dim = 8, .norm_eps = 1e-6, .rope = MODEL_ROPE_HALF, .host_residual = true, .alpha = 0.7 },
    { .name = "qwen", SMALL, .n_heads = 4, .n_kv_heads = 2, .head_dim = 16, .norm_eps = 1e-6, .rope = MODEL_ROPE_HALF, .qk_norm = true, .tied = true },
    { .name = "one-kv", SMALL, .n_heads = 4, .n_kv_heads = 1, .head_dim = 8, .norm_eps = 1e-5, .rope = MODEL_ROPE_HALF, .qk_norm = true, .dt = DT_F32 },
    { .name = "gpt2-like", SMALL, .n_heads = 4, .n_kv_heads = 4, .head_dim = 8, .norm_eps = 1e-5, .norm = MODEL_NORM_LAYER, .act = MODEL_ACT_GELU, .bias = true, .tied = true },
    { .name = "mixed", SMALL, .n_heads = 2, .n_kv_heads = 2, .head_dim = 12, .norm_eps = 1e-5, .norm = MODEL_NORM_LAYER, .bias = true, .rope = MODEL_ROPE_INTERLEAVED },
    { .name = "gemma", SMALL, .n_heads = 4, .n_kv_heads = 1, .head_dim = 16, .norm_eps = 1e-6, .rope = MODEL_ROPE_HALF, .act = MODEL_ACT_GEGLU, .embed_scale = 5.656854249, .tied = true },
    { .name = "gemma2", SMALL, .n_heads = 4, .n_kv_heads = 2, .head_dim = 8, .norm_eps = 1e-6, .rope = MODEL_ROPE_HALF, .act = MODEL_ACT_GEGLU, .embed_scale = 5.656854249, .tied = true, .post_norm = true,
      .attn_softcap = 2, .query_dim = 10, .window = 3, .window_every = 2, .alpha = 0.7 },
    { .name = "near", SMALL, .n_heads = 4, .n_kv_heads = 4, .head_dim = 8, .norm_eps = 1e-6, .rope = MODEL_ROPE_HALF, .post_norm = true, .attn_softcap = 1.5, .query_dim = 5, .window = 3,
      .host_residual = true, .bias = true, .dt = DT_F32 },
};

#endif
