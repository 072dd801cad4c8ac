/* bench_vector.c: what moves memory: elementwise chains, norms, softmax; and attention. A small twin of each program
 * is compared with the reference, then the large one is timed. Bytes are those of its ports. */
#include <math.h>
#include <stdlib.h>

#include "bench/bench_int.h"

typedef graph *make_fn(int64_t rows, int64_t cols, dtype dt);

typedef struct {
    const char *what;
    make_fn *make;
    int64_t rows, cols;
    bool columns; /* nothing of a column can be written before all of it was read */
} moved_case;

/* Sequences of up to 1024 positions, as the models have them; wider ones are several. */
static ttype plane(int64_t rows, int64_t cols, dtype dt)
{
    int64_t many = cols > 1024 && cols % 1024 == 0 ? cols / 1024 : 1;
    return (ttype){ .dt = dt, .sh = SHAPE(many, rows, 1, cols / many) };
}

static double port_bytes(const subject *s)
{
    double n = 0;
    for (size_t i = 0; i < s->p->inputs.n; i++) n += (double)s->p->inputs.at[i].bytes;
    for (size_t i = 0; i < s->p->outputs.n; i++) n += (double)s->p->outputs.at[i].bytes;
    return n;
}

static an_status twin(bench *b, make_fn *make, int64_t rows, int64_t cols, dtype dt, const char *what)
{
    subject s;
    an_status st = subject_open(b, &s, make(rows, cols, dt), NULL, 4, b->d);
    if (!st) st = subject_check(&s, what, dt == DT_F16 ? 2e-3 : 2e-5, b->d);
    subject_close(&s);
    return st;
}

/* The same program on tensors that stay in the second caches: what its arithmetic takes when memory costs nothing. */
typedef struct {
    subject s;
    double bytes;
} cached;

static double cached_rate(void *user)
{
    enum { RUNS = 8 };
    cached *c = user;
    diag d = { 0 };
    if (subject_run(&c->s, &d)) return 0; /* back in the caches */
    uint64_t from = clock_ns();
    for (int i = 0; i < RUNS; i++)
        if (subject_run(&c->s, &d)) return 0;
    return c->bytes * RUNS / (double)(clock_ns() - from);
}

static an_status cached_open(bench *b, cached *c, make_fn *make, int64_t rows, int64_t cols, dtype dt, double bytes)
{
    enum { SHARE = 1 << 20, STEP = 64 }; /* bytes of a thread */
    double parts = bytes / ((double)SHARE * pool_threads(b->pool));
    if (rows > cols) rows = MAX((int64_t)((double)rows / parts), 1);
    else cols = MAX((int64_t)((double)cols / parts) / STEP * STEP, (int64_t)STEP);
    TRY(subject_open(b, &c->s, make(rows, cols, dt), NULL, 4, b->d));
    c->bytes = port_bytes(&c->s);
    return AN_OK;
}

/* Where arithmetic is slower than a copy, it is the bound: a second row. */
static an_status beside_arithmetic(bench *b, subject *s, const char *name, const moved_case *k, dtype dt, double copy)
{
    enum { ROUNDS = 5 };
    char label[64];
    cached c = { .bytes = 0 };
    timing t;
    double most = 0;
    an_status st = cached_open(b, &c, k->make, k->rows, k->cols, dt, port_bytes(s));
    for (int i = 0; !st && i < ROUNDS; i++) {
        double r = cached_rate(&c);
        most = MAX(most, r);
    }
    if (!st && most < copy) {
        snprintf(label, sizeof label, "%s %s, arithmetic", k->what, dtype_name(dt));
        st = subject_beside(b, s, (ruler){ cached_rate, &c }, &t);
        if (!st) bench_row(b, name, label, bench_vectors(b), t, port_bytes(s), "GB/s", t.limit, "the same in cache");
    }
    subject_close(&c.s);
    return st;
}

static an_status beside_planes(bench *b, subject *s, const char *name, const moved_case *k, dtype dt)
{
    char label[64];
    timing t;
    const shape sh = plane(k->rows, k->cols, dt).sh;
    peak_meter *twice = peak_twice(b->pool, pool_threads(b->pool), PEAK_FAR,
                                   (size_t)(k->rows * sh.d[sh.rank - 1] * dtype_bits(dt) / 8));
    if (!twice) return diag_nomem(b->d);
    snprintf(label, sizeof label, "%s %s, movement", k->what, dtype_name(dt));
    an_status st = subject_beside(b, s, (ruler){ bound_peak, twice }, &t);
    if (!st) bench_row(b, name, label, bench_vectors(b), t, port_bytes(s), "GB/s", t.limit, "planes read, then copied");
    peak_free(twice);
    return st;
}

static an_status moved(bench *b, peak_meter *copy, const char *name, const moved_case *k, dtype dt)
{
    char label[64];
    subject s;
    timing t;
    snprintf(label, sizeof label, "%s %s %lldx%lld", k->what, dtype_name(dt), (long long)k->rows, (long long)k->cols);
    TRY(twin(b, k->make, MIN(k->rows, 96), MIN(k->cols, 80), dt, label));
    an_status st = subject_open(b, &s, k->make(k->rows, k->cols, dt), NULL, 4, b->d);
    if (!st) st = subject_beside(b, &s, (ruler){ bound_peak, copy }, &t);
    if (!st) bench_row(b, name, label, bench_vectors(b), t, port_bytes(&s), "GB/s", t.limit, "copy");
    if (!st && k->columns) st = beside_planes(b, &s, name, k, dt);
    if (!st) st = beside_arithmetic(b, &s, name, k, dt, t.limit);
    subject_close(&s);
    return st;
}

static an_status moved_all(bench *b, const char *name, const moved_case *c, size_t n, const dtype *types,
                           size_t n_types)
{
    peak_meter *copy = peak_copy(b->pool, pool_threads(b->pool), PEAK_FAR);
    an_status st = copy ? AN_OK : diag_nomem(b->d);
    for (size_t i = 0; i < n_types; i++)
        for (size_t k = 0; k < n && !st; k++) st = moved(b, copy, name, &c[k], types[i]);
    peak_free(copy);
    return st;
}

static const dtype float_types[] = { DT_F16, DT_F32 };

static ttype vector(int64_t rows, int64_t cols, dtype dt) { return (ttype){ .dt = dt, .sh = SHAPE(1, rows, 1, cols) }; }

/* ---- elementwise ---- */

static graph *make_add(int64_t rows, int64_t cols, dtype dt)
{
    graph *g = graph_new("add", 0);
    if (!g) return NULL;
    graph_output(g, "y",
                 G(g, ADD, graph_input(g, "a", plane(rows, cols, dt)), graph_input(g, "b", plane(rows, cols, dt))));
    return g;
}

static graph *make_scale(int64_t rows, int64_t cols, dtype dt) /* per-channel gain and offset, relu */
{
    graph *g = graph_new("scale", 0);
    if (!g) return NULL;
    val x = graph_input(g, "a", plane(rows, cols, dt)), gain = graph_input(g, "b", vector(rows, 1, dt)),
        bias = graph_input(g, "c", vector(rows, 1, dt));
    graph_output(g, "y", G(g, RELU, G(g, ADD, G(g, MUL, x, gain), bias)));
    return g;
}

static graph *make_swiglu(int64_t rows, int64_t cols, dtype dt)
{
    graph *g = graph_new("swiglu", 0);
    if (!g) return NULL;
    val a = graph_input(g, "a", plane(rows, cols, dt)), b = graph_input(g, "b", plane(rows, cols, dt));
    graph_output(g, "y", G(g, MUL, G(g, SILU, a), b));
    return g;
}

an_status bench_eltwise(bench *b)
{
    enum { ROWS = 768, COLS = 16384 };
    static const moved_case cases[] = { { "add", make_add, ROWS, COLS, false },
                                        { "relu(gain*x+offset)", make_scale, ROWS, COLS, false },
                                        /* rows that are no whole tiles */
                                        { "relu(gain*x+offset)", make_scale, 38400, 320, false },
                                        { "silu(a)*b", make_swiglu, ROWS, COLS, false } };
    return moved_all(b, "eltwise", cases, COUNT(cases), float_types, COUNT(float_types));
}

/* ---- updates of an optimiser: state of type dt, the parameter also as a copy of another type ---- */

static graph *make_update(int64_t rows, int64_t cols, dtype dt, bool decay, const char *copy)
{
    graph *g = graph_new("adam", 0);
    if (!g) return NULL;
    ttype t = plane(rows, cols, dt);
    val w = graph_input(g, "w", t), dw = graph_input(g, "g", t), m = graph_input(g, "m", t),
        v = G(g, ABS, graph_input(g, "v", t));
#define K(x) graph_scalar(g, dt, x)
    val m2 = G(g, ADD, G(g, MUL, m, K(0.9)), G(g, MUL, dw, K(0.1))),
        v2 = G(g, ADD, G(g, MUL, v, K(0.999)), G(g, MUL, G(g, MUL, dw, dw), K(0.001)));
    val step = G(g, REAL_DIV, m2, G(g, ADD, G(g, SQRT, v2), K(1e-3)));
    val w2 = G(g, SUB, decay ? G(g, MUL, w, K(0.9999)) : w, G(g, MUL, step, K(1e-3)));
#undef K
    graph_output(g, "w2", w2);
    graph_output(g, "m2", m2);
    graph_output(g, "v2", v2);
    if (copy) graph_output(g, "w_copy", GA(g, CAST, VALS(w2), AT_S(DTYPE, copy)));
    return g;
}
static graph *make_adam(int64_t rows, int64_t cols, dtype dt) { return make_update(rows, cols, dt, false, NULL); }
static graph *make_adamw_f16(int64_t rows, int64_t cols, dtype dt) { return make_update(rows, cols, dt, true, "fp16"); }
static graph *make_adamw_bf16(int64_t rows, int64_t cols, dtype dt)
{
    return make_update(rows, cols, dt, true, "bf16");
}

static graph *make_momentum(int64_t rows, int64_t cols, dtype dt)
{
    graph *g = graph_new("momentum", 0);
    if (!g) return NULL;
    ttype t = plane(rows, cols, dt);
    val w = graph_input(g, "w", t),
        m2 = G(g, ADD, G(g, MUL, graph_input(g, "m", t), graph_scalar(g, dt, 0.9)), graph_input(g, "g", t));
    graph_output(g, "w2", G(g, SUB, w, G(g, MUL, m2, graph_scalar(g, dt, 0.01))));
    graph_output(g, "m2", m2);
    return g;
}

an_status bench_adam(bench *b)
{
    enum { ROWS = 768, COLS = 16384 };
    static const moved_case cases[] = { { "adam", make_adam, ROWS, COLS, false }, { "adamw + fp16 copy", make_adamw_f16, ROWS, COLS, false },
                                        { "adamw + bf16 copy", make_adamw_bf16, ROWS, COLS, false }, { "momentum", make_momentum, ROWS, COLS, false } };
    static const dtype types[] = { DT_F32 };
    return moved_all(b, "adam", cases, COUNT(cases), types, COUNT(types));
}

/* ---- norms and softmax ---- */

static graph *make_norm(int64_t rows, int64_t cols, dtype dt, int axis, bool layer)
{
    graph *g = graph_new("norm", 0);
    if (!g) return NULL;
    val x = graph_input(g, "a", plane(rows, cols, dt)),
        gain = graph_input(g, "b", axis == 1 ? vector(rows, 1, dt) : vector(1, cols, dt));
    if (layer) x = G(g, SUB, x, GA(g, REDUCE_MEAN, VALS(x), AT_IS(AXES, axis), AT_B(KEEP_DIMS, true)));
    val ms = GA(g, REDUCE_MEAN, VALS(G(g, MUL, x, x)), AT_IS(AXES, axis), AT_B(KEEP_DIMS, true));
    val root = GA(g, RSQRT, VALS(G(g, ADD, ms, graph_scalar(g, dt, 1e-3))), AT_F(EPSILON, 1e-12));
    graph_output(g, "y", G(g, MUL, G(g, MUL, x, root), gain));
    return g;
}
static graph *make_rms_columns(int64_t rows, int64_t cols, dtype dt) { return make_norm(rows, cols, dt, 1, false); }
static graph *make_rms_rows(int64_t rows, int64_t cols, dtype dt) { return make_norm(rows, cols, dt, 3, false); }
static graph *make_layer_columns(int64_t rows, int64_t cols, dtype dt) { return make_norm(rows, cols, dt, 1, true); }

an_status bench_norm(bench *b)
{
    static const moved_case cases[] = { { "rms channels", make_rms_columns, 768, 16384, true },
                                        { "layer channels", make_layer_columns, 768, 16384, true },
                                        { "rms rows", make_rms_rows, 16384, 768, false } };
    return moved_all(b, "norm", cases, COUNT(cases), float_types, COUNT(float_types));
}

static graph *make_softmax(int64_t rows, int64_t cols, dtype dt, int axis)
{
    graph *g = graph_new("softmax", 0);
    if (!g) return NULL;
    graph_output(g, "y", GA(g, SOFTMAX, VALS(graph_input(g, "a", plane(rows, cols, dt))), AT_I(AXIS, axis)));
    return g;
}
static graph *make_softmax_rows(int64_t rows, int64_t cols, dtype dt) { return make_softmax(rows, cols, dt, 3); }
static graph *make_softmax_columns(int64_t rows, int64_t cols, dtype dt) { return make_softmax(rows, cols, dt, 1); }

an_status bench_softmax(bench *b)
{
    static const moved_case cases[] = { { "rows", make_softmax_rows, 12288, 1024, false },
                                        { "channels", make_softmax_columns, 768, 16384, true } };
    return moved_all(b, "softmax", cases, COUNT(cases), float_types, COUNT(float_types));
}

/* ---- attention ---- */

enum { HEADS = 12, WIDTH = 64 };

static graph *make_attention(int64_t tokens, dtype dt)
{
    graph *g = graph_new("attention", 0);
    if (!g) return NULL;
    ttype t = { .dt = dt, .sh = SHAPE(1, HEADS, tokens, WIDTH) }, m = { .dt = dt, .sh = SHAPE(1, 1, tokens, tokens) };
    double *mask = TAKE(&g->mem, double, (size_t)(tokens * tokens));
    if (!mask) return g; /* the next call fails on memory too */
    for (int64_t i = 0; i < tokens; i++)
        for (int64_t j = i + 1; j < tokens; j++) mask[i * tokens + j] = -1e4;
    val q = graph_input(g, "q", t), k = graph_input(g, "k", t), v = graph_input(g, "v", t);
    val s = G(g, MUL, GA(g, MATMUL, VALS(q, k), AT_B(TRANSPOSE_Y, true)), graph_scalar(g, dt, 0.125));
    val p = GA(g, SOFTMAX, VALS(G(g, ADD, s, graph_const_f64(g, "mask", m, mask))), AT_I(AXIS, 3));
    graph_output(g, "y", G(g, MATMUL, p, v));
    return g;
}

static an_status attention(bench *b, int64_t tokens, dtype dt)
{
    char label[64];
    subject s;
    timing t;
    snprintf(label, sizeof label, "%s %lld tokens", dtype_name(dt), (long long)tokens);
    an_status st = subject_open(b, &s, make_attention(40, dt), NULL, 2, b->d);
    if (!st) st = subject_check(&s, label, dt == DT_F16 ? 2e-3 : 2e-5, b->d);
    subject_close(&s);
    TRY(st);
    peak_meter *kernel = peak_gemm(gemm_pick(GEMM_F32, b->isa), b->pool, pool_threads(b->pool));
    st = subject_open(b, &s, make_attention(tokens, dt), NULL, 2, b->d);
    if (!st && !kernel) st = diag_nomem(b->d);
    if (!st) st = subject_beside(b, &s, (ruler){ bound_peak, kernel }, &t);
    double pairs = (double)tokens * (double)(tokens + 1) / 2;
    if (!st)
        bench_row(b, "attention", label, bench_kernel(b, dt == DT_F16 ? GEMM_F16 : GEMM_F32), t,
                  4.0 * HEADS * WIDTH * pairs, "GFLOP/s", t.limit, "matrix kernel");
    peak_free(kernel);
    subject_close(&s);
    return st;
}

an_status bench_attention(bench *b)
{
    static const dtype types[] = { DT_F16, DT_F32 };
    for (size_t i = 0; i < COUNT(types); i++) {
        TRY(attention(b, 256, types[i]));
        TRY(attention(b, 1024, types[i]));
    }
    return AN_OK;
}
