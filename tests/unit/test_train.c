/* The resident step against the same arithmetic in double precision: every optimizer, on the processor and on chips; what an
 * overflow leaves behind; state out and in; bad input. */
#include <math.h>
#include <unistd.h>

#include "base/io.h"
#include "format/safetensors.h"
#include "train_t.h"

/* y = relu(x w1 + b1) w2, loss = mean((y - want)^2) */
static const char net_text[] = "graph \"small\"\n"
                               "x = input FP[8, 6]\n"
                               "want = input FP[8, 3]\n"
                               "w1 = input FP[6, 5]\n"
                               "b1 = input FP[1, 5]\n"
                               "w2 = input FP[5, 3]\n"
                               "h0 = matmul(x, w1)\n"
                               "h1 = add(h0, b1)\n"
                               "h = relu(h1)\n"
                               "y = matmul(h, w2)\n"
                               "e = sub(y, want)\n"
                               "sq = square(e)\n"
                               "loss = reduce_mean(sq) {axes=[0, 1], keep_dims=true}\n"
                               "return loss\n";
enum { N_W1 = 30, N_B1 = 5, N_W2 = 15, N_ALL = N_W1 + N_B1 + N_W2, N_X = 48, N_Y = 24 };

static const train_param params[] = { { "w1", true }, { "b1", false }, { "w2", true } };

typedef struct {
    double w[N_ALL], m[N_ALL], v[N_ALL];
} plain;

/* Gradients by hand, so that nothing of the library is in them. */
static double gradients(const plain *p, const float *x, const float *want, double *g)
{
    const double *w1 = p->w, *b1 = p->w + N_W1, *w2 = p->w + N_W1 + N_B1;
    double loss = 0;
    memset(g, 0, N_ALL * sizeof *g);
    for (int r = 0; r < 8; r++) {
        double h[5], dh[5] = { 0 };
        for (int j = 0; j < 5; j++) {
            h[j] = b1[j];
            for (int i = 0; i < 6; i++) h[j] += x[r * 6 + i] * w1[i * 5 + j];
            h[j] = h[j] > 0 ? h[j] : 0;
        }
        for (int k = 0; k < 3; k++) {
            double y = 0;
            for (int j = 0; j < 5; j++) y += h[j] * w2[j * 3 + k];
            double e = y - want[r * 3 + k];
            loss += e * e / 24;
            for (int j = 0; j < 5; j++) g[N_W1 + N_B1 + j * 3 + k] += 2 * e / 24 * h[j], dh[j] += 2 * e / 24 * w2[j * 3 + k];
        }
        for (int j = 0; j < 5; j++) {
            if (h[j] <= 0) continue;
            g[N_W1 + j] += dh[j];
            for (int i = 0; i < 6; i++) g[i * 5 + j] += dh[j] * x[r * 6 + i];
        }
    }
    return loss;
}

static void update(plain *p, const char *opt, const double *g_in, double lr, double decay, double clip, double beta, int step)
{
    double norm = 0, g[N_ALL], b1 = beta > 0 ? beta : 0.9, b2 = beta > 0 ? beta : 0.999;
    for (int i = 0; i < N_ALL; i++) norm += g_in[i] * g_in[i];
    norm = sqrt(norm);
    for (int i = 0; i < N_ALL; i++) {
        bool decays = i < N_W1 || i >= N_W1 + N_B1, adam = opt[0] == 'a', decoupled = !strcmp(opt, "adamw");
        g[i] = g_in[i] * (clip > 0 && norm > clip ? clip / norm : 1);
        if (decays && !decoupled) g[i] += decay * p->w[i];
        double w0 = p->w[i], dir = g[i];
        if (!strcmp(opt, "momentum")) dir = p->m[i] = 0.9 * p->m[i] + g[i];
        if (adam) {
            p->m[i] = b1 * p->m[i] + (1 - b1) * g[i];
            p->v[i] = b2 * p->v[i] + (1 - b2) * g[i] * g[i];
            dir = p->m[i] / (1 - pow(b1, step)) / (sqrt(p->v[i] / (1 - pow(b2, step))) + 1e-8);
        }
        p->w[i] -= lr * dir;
        if (decays && decoupled) p->w[i] -= lr * decay * w0;
    }
}

static void start(plain *p, float *x, float *y, uint64_t seed)
{
    rng r = { seed };
    *p = (plain){ 0 };
    for (int i = 0; i < N_ALL; i++) p->w[i] = dtype_round(DT_F16, rng_normal(&r) * 0.5);
    for (int i = 0; i < N_X; i++) x[i] = (float)dtype_round(DT_F16, rng_normal(&r));
    for (int i = 0; i < N_Y; i++) y[i] = (float)dtype_round(DT_F16, rng_normal(&r));
}

static void put_weights(trainer *t, const plain *p)
{
    diag d = { 0 };
    assert_ok(train_write(t, "w1", DT_F64, p->w, &d), d);
    assert_ok(train_write(t, "b1", DT_F64, p->w + N_W1, &d), d);
    assert_ok(train_write(t, "w2", DT_F64, p->w + N_W1 + N_B1, &d), d);
}

static void get_weights(trainer *t, double *w)
{
    diag d = { 0 };
    assert_ok(train_read(t, "w1", DT_F64, w, &d), d);
    assert_ok(train_read(t, "b1", DT_F64, w + N_W1, &d), d);
    assert_ok(train_read(t, "w2", DT_F64, w + N_W1 + N_B1, &d), d);
}

static trainer *open_trainer(const char *type, train_options o)
{
    graph *g = parse(net_text, type);
    trainer *t;
    diag d = { 0 };
    o.loss = graph_find(g, "loss");
    o.param = params, o.n_param = COUNT(params);
    o.device.threads = 1;
    assert_ok(train_open(&t, g, &o, &d), d);
    graph_free(g); /* the trainer needs it no longer */
    return t;
}

static void put_batch(trainer *t, const float *x, const float *y)
{
    diag d = { 0 };
    assert_ok(train_put(t, "x", DT_F32, x, &d), d);
    assert_ok(train_put(t, "want", DT_F32, y, &d), d);
}

static double distance(const double *a, const double *b)
{
    double e = 0, n = 0;
    for (int i = 0; i < N_ALL; i++) e += (a[i] - b[i]) * (a[i] - b[i]), n += b[i] * b[i];
    return sqrt(e / n);
}

/* tolerance: relative distance of the weights after 20 updates; fp16 holds 11 bits and rounds at every operation */
static const struct {
    const char *engine, *type, *opt;
    double lr, decay, clip, scale;
    bool dynamic;
    int accum;
    train_state_form form;
    double tolerance, beta; /* beta: both of Adam's, 0: their defaults, by which 20 updates forget nothing of the second moment */
} rows[] = {
    { "cpu", "fp32", "sgd", 0.1, 0, 0, 0, false, 1, 0, 1e-5, 0 },
    { "cpu", "fp32", "sgd", 0.1, 0.01, 0.05, 1024, false, 1, 0, 1e-5, 0 },
    { "cpu", "fp32", "momentum", 0.05, 0.01, 0, 8, false, 1, 0, 1e-5, 0 },
    { "cpu", "fp32", "momentum", 0.05, 0, 0.05, 0, true, 4, 0, 1e-5, 0 },
    { "cpu", "fp32", "adam", 0.01, 0.01, 0, 64, false, 1, 0, 2e-5, 0 },
    { "cpu", "fp32", "adamw", 0.01, 0.1, 0.1, 64, false, 3, 0, 2e-5, 0 },
    { "cpu", "fp32", "adamw", 0.01, 0.1, 0, 0, true, 1, 0, 2e-5, 0 },
    { "cpu", "fp16", "adamw", 0.01, 0.1, 0, 256, false, 1, 0, 2e-2, 0 },
    { "cpu", "fp16", "sgd", 0.1, 0, 0, 256, false, 1, 0, 5e-3, 0 },
    { "soft:m1", "fp16", "sgd", 0.1, 0, 0, 1024, false, 1, 0, 5e-3, 0 },
    { "soft:m1", "fp32", "sgd", 0.1, 0.01, 0.05, 1024, false, 1, 0, 5e-3, 0 },
    { "soft:m1", "fp16", "sgd", 0.1, 0, 0, 1024, false, 1, TRAIN_HALVES, 3e-3, 0 },
    { "soft:m1", "fp16", "momentum", 0.05, 0, 0, 1024, true, 2, 0, 1e-2, 0 },
    { "soft:m1", "fp16", "adam", 0.01, 0, 0, 128, false, 1, 0, 2e-2, 0 },
    { "soft:m1", "fp16", "adamw", 0.01, 0.1, 0, 16, true, 1, TRAIN_HALVES, 2e-2, 0 },
    { "soft:m4", "fp16", "adamw", 0.01, 0.1, 0.1, 16, false, 1, TRAIN_HALVES, 2e-2, 0 },
    { "soft:m5", "fp16", "sgd", 0.1, 0, 0, 1024, false, 1, 0, 5e-3, 0 },
    { "soft:m5", "fp16", "adam", 0.01, 0, 0, 16, false, 4, 0, 2e-2, 0 },
    { "cpu", "fp32", "momentum", 0.05, 0, 0, 1, false, 4, 0, 1e-5, 0 },
    { "soft:m1", "fp16", "sgd", 0.1, 0, 0.05, 0x1p-5, false, 1, 0, 1e-2, 0 }, /* gradients far below 1 */
    { "cpu", "fp32", "adamw", 0.01, 0.1, 50, 64, false, 2, 0, 2e-5, 0 }, /* clipped nowhere */
    { "cpu", "fp32", "sgd", 0.1, 0, 50, 8, false, 1, 0, 1e-5, 0 },
    { "soft:m1", "fp16", "sgd", 0.1, 0, 1e6, 1024, false, 1, 0, 5e-3, 0 }, /* beyond fp16 */
    { "cpu", "fp32", "adamw", 0.01, 0.1, 0, 64, true, 2, 0, 2e-5, 0.75 },
    { "soft:m1", "fp16", "adam", 0.01, 0, 0, 32, false, 1, 0, 2e-2, 0.75 },
    { "soft:m1", "fp16", "adam", 0.01, 0, 0, 2, false, 1, TRAIN_HALVES, 2e-2, 0.75 },
    { "soft:m4", "fp16", "adamw", 0.01, 0.1, 0, 1, true, 1, TRAIN_HALVES, 2e-2, 0.75 },
};

static void optimizers(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        plain p;
        float x[N_X], y[N_Y];
        double g[N_ALL], got[N_ALL], sum[N_ALL];
        diag d = { 0 };
        start(&p, x, y, 7 + i);
        trainer *t = open_trainer(rows[i].type, (train_options){ .engine = rows[i].engine, .optimizer = rows[i].opt, .decay = rows[i].decay, .clip = rows[i].clip,
                                  .loss_scale = rows[i].scale, .dynamic_scale = rows[i].dynamic, .accum = rows[i].accum, .state = rows[i].form, .grow_after = 5, .beta1 = rows[i].beta, .beta2 = rows[i].beta });
        put_weights(t, &p);
        bool half = !strcmp(rows[i].type, "fp16");
        for (int s = 1; s <= 20; s++) {
            train_report r;
            memset(sum, 0, sizeof sum);
            for (int a = 0; a < rows[i].accum; a++) {
                for (int k = 0; k < N_X; k++) x[k] = (float)dtype_round(DT_F16, x[k] * 0.75 + 0.1 * (k % 5));
                double loss = gradients(&p, x, y, g);
                for (int k = 0; k < N_ALL; k++) sum[k] += g[k] / rows[i].accum;
                put_batch(t, x, y);
                assert_ok(train_step(t, rows[i].lr, &r, &d), d);
                if (!r.finite) fail_msg("row %zu step %d: loss %g, norm %g, scale %g: not finite", i, s, r.loss, r.grad_norm, r.loss_scale);
                if (fabs(r.loss - loss) > (half ? 3e-2 : 1e-2) * loss) fail_msg("row %zu step %d: loss %g, wanted %g", i, s, r.loss, loss);
                assert_int_equal(r.applied, a + 1 == rows[i].accum);
                assert_int_equal(isnan(r.grad_norm) != 0, !r.applied); /* a part of a gradient has no norm */
            }
            double norm = 0;
            for (int k = 0; k < N_ALL; k++) norm += sum[k] * sum[k];
            if (fabs(r.grad_norm - sqrt(norm)) > 0.05 * sqrt(norm)) fail_msg("row %zu step %d: norm %g, wanted %g", i, s, r.grad_norm, sqrt(norm));
            update(&p, rows[i].opt, sum, rows[i].lr, rows[i].decay, rows[i].clip, rows[i].beta, s);
            assert_int_equal(r.step, s);
        }
        get_weights(t, got);
        double e = distance(got, p.w);
        if (!(e <= rows[i].tolerance)) fail_msg("row %zu (%s %s on %s): weights are off by %g", i, rows[i].opt, rows[i].type, rows[i].engine, e);
        train_stats st;
        train_get_stats(t, &st);
        assert_int_equal(st.steps, 20);
        assert_int_equal(st.dispatches, 20 * rows[i].accum); /* one per minibatch, as the device counted them */
        assert_int_equal(st.minibatches, st.dispatches);
        size_t elem = strcmp(rows[i].engine, "cpu") || half ? 2 : 4;
        assert_true(st.host_bytes_in >= (N_X + N_Y) * elem && st.host_bytes_in < (N_X + N_Y) * elem + 64);
        assert_true(st.host_bytes_out > 0 && st.host_bytes_out <= 12);
        uint64_t bytes = 0;
        for (size_t k = 0; k < train_state_count(t); k++) {
            train_state_info s;
            size_t one;
            train_state_at(t, k, &s);
            assert_true(shape_bytes(&s.type, &one));
            bytes += one;
        }
        assert_int_equal(st.state_bytes, bytes);
        train_close(t);
    }
}

/* An epsilon far above every gradient makes Adam's first step the gradient's, divided by it; without one it is the rate. */
static void an_epsilon(void **state)
{
    (void)state;
    static const double eps[] = { 0, 1e4 };
    for (size_t i = 0; i < COUNT(eps); i++) {
        plain p;
        float x[N_X], y[N_Y];
        double g[N_ALL], w[N_ALL];
        train_report r;
        diag d = { 0 };
        start(&p, x, y, 3);
        gradients(&p, x, y, g);
        trainer *t = open_trainer("fp32", (train_options){ .engine = "cpu", .optimizer = "adam", .eps = eps[i] });
        put_weights(t, &p);
        put_batch(t, x, y);
        assert_ok(train_step(t, 1, &r, &d), d);
        get_weights(t, w);
        for (int k = 0; k < N_ALL; k++) {
            const double want = g[k] == 0 ? 0 : eps[i] > 0 ? g[k] / eps[i] : g[k] > 0 ? 1 : -1;
            if (fabs(p.w[k] - w[k] - want) > 1e-6 + 1e-3 * fabs(want)) fail_msg("epsilon %g, weight %d: a step of %g, wanted %g", eps[i], k, p.w[k] - w[k], want);
        }
        train_close(t);
    }
}

/* ---- overflow ---- */

/* Every state's bits, in order. */
static size_t all_bits(trainer *t, unsigned char *out, size_t room)
{
    size_t at = 0;
    diag d = { 0 };
    for (size_t i = 0; i < train_state_count(t); i++) {
        train_state_info s;
        size_t bytes;
        train_state_at(t, i, &s);
        assert_true(shape_bytes(&s.type, &bytes) && at + bytes <= room);
        if (s.param && !strcmp(s.name, s.param) && s.type.dt == DT_F16) { /* a pair reads as its sum: take the halves as they are */
            double x[64];
            assert_ok(train_read(t, s.name, DT_F64, x, &d), d);
            for (size_t k = 0; k < bytes / 2; k++) dtype_store(DT_F16, out + at, (int64_t)k, x[k]);
        } else assert_ok(train_read(t, s.name, s.type.dt, out + at, &d), d);
        at += bytes;
    }
    return at;
}

static const struct {
    const char *engine, *type, *opt;
    train_state_form form;
    double scale, big; /* big: what x becomes */
} overflows[] = {
    { "cpu", "fp32", "adamw", 0, 1024, 1e30 },
    { "cpu", "fp16", "momentum", 0, 1024, 60000 },
    { "soft:m1", "fp16", "sgd", 0, 1024, 30000 },
    { "soft:m1", "fp16", "adam", TRAIN_HALVES, 16, 200 }, /* the gradient is finite, its square is not */
    { "soft:m5", "fp16", "adam", 0, 16, 20000 },
};

static void overflow_leaves_no_trace(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(overflows); i++)
        for (int dynamic = 0; dynamic < 2; dynamic++) {
            plain p;
            float x[N_X], y[N_Y], huge[N_X];
            unsigned char before[4096], after[4096];
            train_report r;
            diag d = { 0 };
            start(&p, x, y, 3);
            for (int k = 0; k < N_X; k++) huge[k] = (float)overflows[i].big * (k % 3 ? 1 : -1);
            trainer *t = open_trainer(overflows[i].type, (train_options){ .engine = overflows[i].engine, .optimizer = overflows[i].opt, .state = overflows[i].form,
                                      .loss_scale = overflows[i].scale, .dynamic_scale = dynamic, .max_skipped = 4, .grow_after = 2 });
            put_weights(t, &p);
            put_batch(t, x, y);
            assert_ok(train_step(t, 0.01, &r, &d), d);
            assert_true(r.applied);
            size_t n = all_bits(t, before, sizeof before);
            put_batch(t, huge, y);
            assert_ok(train_step(t, 0.01, &r, &d), d);
            if (r.finite || r.applied) fail_msg("row %zu: loss %g, norm %g passed", i, r.loss, r.grad_norm);
            assert_int_equal(r.skipped, 1);
            assert_int_equal(all_bits(t, after, sizeof after), n);
            assert_memory_equal(before, after, n);
            /* the next good step goes on with the scale halved, and as if nothing had been */
            put_batch(t, x, y);
            assert_ok(train_step(t, 0.01, &r, &d), d);
            assert_true(r.applied);
            assert_true(r.loss_scale == (dynamic ? overflows[i].scale / 2 : overflows[i].scale));
            assert_int_equal(r.step, 2);
            assert_ok(train_step(t, 0.01, &r, &d), d);
            assert_true(r.loss_scale == (dynamic ? overflows[i].scale / 2 : overflows[i].scale));
            assert_ok(train_step(t, 0.01, &r, &d), d); /* two good ones in a row double it again */
            assert_true(r.loss_scale == overflows[i].scale);
            put_batch(t, huge, y);
            an_status st = AN_OK;
            int in_a_row = 0; /* the one before is not of it */
            for (; in_a_row < 4 && !st; in_a_row++) st = train_step(t, 0.01, &r, &d);
            assert_int_equal(st, AN_MISMATCH);
            assert_int_equal(in_a_row, 4);
            assert_non_null(strstr(d.msg, "4 updates in a row"));
            train_close(t);
        }
}

/* Nor does a step that would leave a state which is not finite, though its gradients are; and gradients of 0 everywhere are none. */
static void a_step_too_far(void **state)
{
    (void)state;
    static const struct {
        const char *engine, *type, *opt;
        double rate, scale;
        train_verdict verdict;
        bool nothing; /* targets are what comes out */
    } far[] = {
        { "soft:m1", "fp16", "sgd", 6e7, 1024, VERDICT_STATE, false }, { "soft:m4", "fp16", "adam", 2e5, 16, VERDICT_STATE, false }, { "cpu", "fp32", "sgd", 3e38, 1, VERDICT_STATE, false },
        { "cpu", "fp32", "adamw", 3e38, 1, VERDICT_STATE, false },    { "soft:m1", "fp16", "sgd", 0.01, 1024, VERDICT_NOTHING, true },  { "cpu", "fp32", "adamw", 0.01, 1, VERDICT_FINE, true },
        { "cpu", "fp32", "adamw", 3e38, 1, VERDICT_STATE, true }, /* a gradient of any size would be too far */
    };
    for (size_t i = 0; i < COUNT(far); i++) {
        plain p;
        float x[N_X], y[N_Y], none[N_X] = { 0 }, zero[N_Y] = { 0 };
        unsigned char before[4096], after[4096];
        train_report r;
        diag d = { 0 };
        start(&p, x, y, 3);
        trainer *t = open_trainer(far[i].type, (train_options){ .engine = far[i].engine, .optimizer = far[i].opt, .loss_scale = far[i].scale });
        if (far[i].nothing) memset(&p, 0, sizeof p);
        put_weights(t, &p);
        put_batch(t, far[i].nothing ? none : x, far[i].nothing ? zero : y);
        size_t n = all_bits(t, before, sizeof before);
        assert_ok(train_step(t, far[i].rate, &r, &d), d);
        if (r.verdict != far[i].verdict) fail_msg("row %zu: verdict %d, %s", i, (int)r.verdict, train_verdict_text(r.verdict));
        assert_int_equal(r.applied, far[i].verdict == VERDICT_FINE);
        if (!r.applied) {
            assert_int_equal(all_bits(t, after, sizeof after), n);
            assert_memory_equal(before, after, n);
        }
        train_close(t);
    }
}

/* A minibatch that overflows spoils its whole group and nothing else. */
static void a_bad_minibatch_of_a_group(void **state)
{
    (void)state;
    plain p;
    float x[N_X], y[N_Y], huge[N_X];
    double w[2][N_ALL];
    train_report r;
    diag d = { 0 };
    start(&p, x, y, 3);
    for (int i = 0; i < 4; i++) {
        const bool chip = i < 2, bad = i % 2;
        for (int k = 0; k < N_X; k++) huge[k] = chip ? 30000 : 1e30f;
        trainer *t = open_trainer(chip ? "fp16" : "fp32", (train_options){ .engine = chip ? "soft:m1" : "cpu", .optimizer = "momentum", .accum = 3, .loss_scale = 256 });
        put_weights(t, &p);
        for (int group = 0; group < 3; group++) {
            if (group == 1 && !bad) continue;
            for (int k = 0; k < 3; k++) {
                put_batch(t, group == 1 && k == 1 ? huge : x, y);
                assert_ok(train_step(t, 0.01, &r, &d), d);
                assert_int_equal(r.applied, k == 2 && group != 1);
            }
        }
        assert_int_equal(r.step, 2);
        assert_int_equal(r.skipped, bad);
        train_stats st;
        train_get_stats(t, &st);
        assert_true(st.minibatches == (bad ? 9u : 6u) && st.ran == (bad ? 8u : 6u) && st.dispatches == st.ran); /* behind the bad one there is nothing to run */
        get_weights(t, w[bad]);
        train_close(t);
        if (bad) assert_memory_equal(w[0], w[1], sizeof w[0]);
    }
}

/* A group that would leave a state which is not finite spoils nothing of the next one. */
static void a_group_too_far(void **state)
{
    (void)state;
    static const char *const engines[] = { "soft:m1", "cpu" };
    for (size_t i = 0; i < COUNT(engines); i++) {
        trainer *t = open_text(hinge_text, (train_options){ .engine = engines[i], .accum = 2, .loss_scale = 8 });
        train_report r;
        for (int s = 0; s < 4; s++) step_on(t, right, s < 2 ? (i ? 3e38 : 6e7) : 0.01, &r);
        if (!r.applied || r.step != 1 || r.skipped != 1) fail_msg("%s: %s, %d skipped", engines[i], train_verdict_text(r.verdict), (int)r.skipped);
        train_close(t);
    }
}

/* Numbers that are none of their input's, and a rate that is none. */
static void numbers_refused(void **state)
{
    (void)state;
    static const char text[] = "graph \"rows\"\nat = input int32[2]\nx = input fp16[2, 4]\nw = input fp16[8, 4]\ne = gather(w, at) {axis=0}\nm = mul(e, x)\nloss = reduce_mean(m)\nreturn loss\n";
    const uint16_t f16[8] = { 0, 0, 0x7c00 };
    const float large[8] = { 0, 70000 }, parts[2] = { 1, 0.5f }, fine[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    const int64_t wide[2] = { 1, (int64_t)1 << 40 };
    const struct {
        const char *name;
        dtype dt;
        const void *data;
        const char *says;
    } cases[] = { { "x", DT_F16, f16, "x: number 2 is inf; finite numbers are wanted" }, { "x", DT_F32, large, "x: number 1 is 70000, which fp16 cannot hold" },
                  { "at", DT_F32, parts, "at: number 1 is 0.5, which int32 cannot hold" }, { "at", DT_I64, wide, "at: number 1 is 1.09951e+12, which int32 cannot hold" }, { "at", DT_F32, fine, NULL }, { "x", DT_F32, fine, NULL } };
    trainer *t = open_text(text, (train_options){ .engine = "cpu" });
    train_report r;
    for (size_t i = 0; i < COUNT(cases); i++) {
        diag d = { 0 };
        an_status st = train_put(t, cases[i].name, cases[i].dt, cases[i].data, &d);
        if (st != (cases[i].says ? AN_INPUT : AN_OK) || (st && !strstr(d.msg, cases[i].says))) fail_msg("row %zu: status %d: %s", i, (int)st, d.msg);
    }
    static const double rates[] = { INFINITY, -INFINITY, NAN };
    for (size_t i = 0; i < COUNT(rates); i++) {
        diag d = { 0 };
        assert_int_equal(train_step(t, rates[i], &r, &d), AN_INPUT);
        assert_non_null(strstr(d.msg, "the learning rate is"));
    }
    diag d = { 0 };
    assert_ok(train_step(t, 0.1, &r, &d), d);
    assert_int_equal(r.step, 1);
    train_close(t);
}

/* Devices whose surfaces have one size, or a least one; and whose dispatch fails once: it is run again unless memory is what it lacks. */
typedef struct {
    int at;      /* which dispatch fails; 0: none */
    int lines;   /* said */
} stumble;

static bool stumbles(void *user, const char *what) { return !strcmp(what, "dispatch") && !--((stumble *)user)->at; }

static void heard(void *user, const char *line)
{
    stumble *s = user;
    s->lines += strstr(line, "running it once more") != NULL;
}

static void devices_of_all_kinds(void **state)
{
    (void)state;
    static const struct {
        device_limit limit[2];
        int fault, spoil; /* the dispatch that fails */
        an_status st;
    } cases[] = { { { { "uniform", 1 }, { "surface_min", 0 } }, 0, 0, AN_OK }, { { { "uniform", 0 }, { "surface_min", 65536 } }, 0, 0, AN_OK },
                  { { { "uniform", 0 }, { "surface_min", 0 } }, 0, 2, AN_OK }, { { { "uniform", 0 }, { "surface_min", 0 } }, 2, 0, AN_NOMEM } };
    double w[COUNT(cases)][N_ALL];
    for (size_t i = 0; i < COUNT(cases); i++) {
        plain p;
        float x[N_X], y[N_Y];
        train_report r;
        diag d = { 0 };
        stumble fault = { .at = cases[i].fault }, spoil = { .at = cases[i].spoil };
        an_status st = AN_OK;
        start(&p, x, y, 3);
        trainer *t = open_trainer("fp16", (train_options){ .engine = "soft:m1", .optimizer = "momentum", .loss_scale = 64, .warn = heard, .user = &spoil,
                                  .device = { .limit = cases[i].limit, .n_limit = 2, .fault = stumbles, .user = &fault, .spoil = stumbles, .spoiler = &spoil } });
        put_weights(t, &p);
        put_batch(t, x, y);
        for (int s = 0; s < 3 && !st; s++) st = train_step(t, 0.01, &r, &d);
        assert_int_equal(st, cases[i].st);
        assert_int_equal(spoil.lines, cases[i].spoil != 0);
        if (!st) {
            get_weights(t, w[i]);
            assert_memory_equal(w[i], w[0], sizeof w[i]);
        }
        train_close(t);
    }
}

/* Where the options say nothing: from 1024 in fp16, doubled after 200 updates that counted; as far as the type of the numbers sent holds twice of it, and
 * as far down as nothing can overflow; 32 updates in a row that were not finite are the end. */
static void scales_by_default(void **state)
{
    (void)state;
    plain p;
    float little[8], x[N_X], y[N_Y], huge[N_X];
    train_report r;
    diag d = { 0 };
    for (int i = 0; i < 8; i++) little[i] = wrong[i] / 4;
    start(&p, x, y, 3);
    for (int i = 0; i < N_X; i++) huge[i] = 1e30f;
    for (int soon = 0; soon < 2; soon++) {
        trainer *t = open_text(hinge_text, (train_options){ .dynamic_scale = true, .grow_after = soon });
        assert_ok(train_write(t, "w", DT_F32, (float[]){ 1, 1 }, &d), d);
        for (int i = 0; i < (soon ? 20 : 201); i++) {
            step_on(t, little, 0, &r);
            double want = soon ? MIN(ldexp(1024, i), 0x1p15) : i < 200 ? 1024 : 2048;
            if (!r.applied || r.loss_scale != want) fail_msg("update %d: applied %d, scale %g, wanted %g", i, r.applied, r.loss_scale, want);
        }
        train_close(t);
    }
    trainer *t = open_trainer("fp32", (train_options){ .engine = "cpu", .dynamic_scale = true, .grow_after = 1 });
    put_weights(t, &p);
    put_batch(t, x, y);
    for (int i = 0; i < 30; i++) {
        assert_ok(train_step(t, 0, &r, &d), d);
        if (!r.applied || r.loss_scale != MIN(ldexp(1, i), 0x1p24)) fail_msg("update %d: applied %d, scale %g", i, r.applied, r.loss_scale);
    }
    put_batch(t, huge, y);
    for (int i = 1; i <= 32; i++) {
        assert_int_equal(train_step(t, 0, &r, &d), i < 32 ? AN_OK : AN_MISMATCH);
        if (i < 32 && r.loss_scale != ldexp(0x1p24, 1 - i)) fail_msg("skipped %d: scale %g", i, r.loss_scale);
    }
    train_close(t);
    t = open_trainer("fp32", (train_options){ .engine = "cpu", .dynamic_scale = true, .max_skipped = 1000 });
    put_weights(t, &p);
    put_batch(t, huge, y);
    d = (diag){ 0 };
    for (int i = 0; i < 20; i++) {
        assert_ok(train_step(t, 0, &r, &d), d);
        if (r.loss_scale != MAX(ldexp(1, -i), 0x1p-14)) fail_msg("skipped %d: scale %g", i, r.loss_scale);
    }
    train_close(t);
}

/* What a step is refused for: the first of loss, gradient and square that is too large, where the ones before it are not. */
static void verdicts(void **state)
{
    (void)state;
    static const char high[] = "graph \"high\"\nx = input fp16[4, 2]\nw = input fp16[2, 1]\nm = matmul(x, w)\ns = reduce_mean(m)\nk = const fp16[] {60000}\na = add(s, k)\nloss = add(a, k)\nreturn loss\n";
    static const char steep[] = "graph \"steep\"\nx = input fp16[4, 2]\nw = input fp16[2, 1]\nm = matmul(x, w)\nk = const fp16[] {30000}\np = mul(m, k)\ns = reduce_mean(p)\n"
                                "n = const fp16[] {0.0009765625}\nloss = mul(s, n)\nreturn loss\n";
    static const char far[] = "graph \"far\"\nx = input fp32[4, 2]\nw = input fp32[2, 1]\nm = matmul(x, w)\nk = const fp32[] {1e20}\np = mul(m, k)\nloss = reduce_mean(p)\nreturn loss\n";
    static const char beyond[] = "graph \"beyond\"\nx = input fp32[4, 2]\nw = input fp32[2, 1]\nm = matmul(x, w)\ns = reduce_mean(m)\nk = const fp32[] {3e38}\na = add(s, k)\nloss = add(a, k)\nreturn loss\n";
    static const struct {
        const char *text, *opt;
        train_state_form form;
        double scale;
        train_verdict verdict;
        const char *engine; /* NULL: m1 */
    } cases[] = {
        { high, "sgd", 0, 1, VERDICT_LOSS, NULL },           { steep, "sgd", 0, 1, VERDICT_FINE, NULL },         { steep, "sgd", 0, 1024, VERDICT_GRADIENT, NULL },
        { hinge_text, "adam", 0, 128, VERDICT_FINE, NULL },  { hinge_text, "adam", 0, 256, VERDICT_SQUARE, NULL }, { hinge_text, "adam", TRAIN_HALVES, 64, VERDICT_FINE, NULL },
        { hinge_text, "adam", TRAIN_HALVES, 160, VERDICT_SQUARE, NULL }, { hinge_text, "momentum", 0, 256, VERDICT_FINE, NULL },
        { far, "sgd", 0, 1, VERDICT_GRADIENT, "cpu" }, { beyond, "sgd", 0, 1, VERDICT_LOSS, "cpu" },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        trainer *t = open_text(cases[i].text, (train_options){ .engine = cases[i].engine, .optimizer = cases[i].opt, .state = cases[i].form, .loss_scale = cases[i].scale });
        train_report r;
        diag d = { 0 };
        float w[2] = { 0.3f, -0.2f };
        assert_ok(train_write(t, "w", DT_F32, w, &d), d);
        step_on(t, right, 1, &r);
        if (r.verdict != cases[i].verdict || r.applied != (r.verdict == VERDICT_FINE)) fail_msg("row %zu: %s, loss %g, norm %g", i, train_verdict_text(r.verdict), r.loss, r.grad_norm);
        assert_ok(train_read(t, "w", DT_F32, w, &d), d);
        if (!r.applied && fabs(w[0] - 0.3) + fabs(w[1] + 0.2) > 1e-3) fail_msg("row %zu: weights went to %g and %g", i, (double)w[0], (double)w[1]);
        for (int k = 0; !r.applied && k < 40 && !train_step(t, 1, &r, &d); k++) {} /* and the end of a row of them says so */
        bool by_scale = !cases[i].engine && cases[i].verdict != VERDICT_LOSS;
        if (!r.applied && (d.st != AN_MISMATCH || !strstr(d.msg, train_verdict_text(cases[i].verdict)) || !strstr(d.msg, "the scale is too large") == by_scale)) fail_msg("row %zu: %s", i, d.msg);
        train_close(t);
    }
}

/* A second moment that a doubled scale takes beyond fp16: what is divided by it is 0, and no weight would show it. */
static void a_moment_too_far(void **state)
{
    (void)state;
    trainer *t = open_text(hinge_text, (train_options){ .engine = "soft:m4", .optimizer = "adam", .beta2 = 0.5, .loss_scale = 128, .dynamic_scale = true, .grow_after = 3 });
    float less[8];
    train_report r;
    for (int i = 0; i < 8; i++) less[i] = right[i] / 8;
    for (int i = 0; i < 4; i++) { /* 27104 of gradients of 176, then four times that */
        step_on(t, i < 3 ? right : less, 1e-3, &r);
        if (r.verdict != (i < 3 ? VERDICT_FINE : VERDICT_STATE)) fail_msg("step %d: %s, norm %g", i, train_verdict_text(r.verdict), r.grad_norm);
    }
    train_close(t);
}

/* What a graph cannot be trained by. */
static void refusals(void **state)
{
    (void)state;
    static const struct {
        const char *optimizer, *second, *type;
        uint32_t fetch; /* a value's number */
        const char *says;
    } cases[] = {
        { "sgd", "w.m", "fp32[2, 1]", 1, NULL },
        { "adam", "w.m", "fp32[2, 1]", 1, "two states would be called w.m" },
        { "sgd", "none", "fp32[0, 2]", 1, "parameter none has no size" },
        { "sgd", "id", "int32[2, 1]", 1, "parameter id is int32; a float type is wanted" },
        { "sgd", "w.m", "fp32[2, 1]", 999, "fetched value it is none of bad" },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char text[300];
        snprintf(text, sizeof text, "graph \"bad\"\nx = input fp32[4, 2]\nw = input fp32[2, 1]\n%s = input %s\nm = matmul(x, w)\nloss = reduce_mean(m)\nreturn loss\n", cases[i].second, cases[i].type);
        graph *g = parse(text, "");
        trainer *t;
        diag d = { 0 };
        const train_param both[] = { { "w", true }, { cases[i].second, true } };
        train_options o = { .engine = "cpu", .optimizer = cases[i].optimizer, .loss = graph_find(g, "loss"), .param = both, .n_param = 2, .fetch = &(train_fetched){ "it", { cases[i].fetch } }, .n_fetch = 1, .freeze_unreached = true, .device.threads = 1 };
        an_status st = train_open(&t, g, &o, &d);
        if (st != (cases[i].says ? AN_INPUT : AN_OK) || (st && !strstr(d.msg, cases[i].says))) fail_msg("row %zu: status %d: %s", i, (int)st, d.msg);
        train_close(t);
        graph_free(g);
    }
    graph *g = parse(hinge_text, ""); /* a scale that goes to an fp16 loss, from a device with numbers of fp32 */
    trainer *t;
    diag d = { 0 };
    train_options o = { .engine = "cpu", .loss = graph_find(g, "loss"), .param = &(train_param){ "w", true }, .n_param = 1, .loss_scale = 1e6, .dynamic_scale = true };
    assert_int_equal(train_open(&t, g, &o, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "the loss scale begins at 1e+06, which is inf in fp16"));
    train_fetched many[TRAIN_MAX_FETCH + 1];
    for (int i = 0; i <= TRAIN_MAX_FETCH; i++) many[i] = (train_fetched){ "h", graph_find(g, "h") };
    o.loss_scale = 1, o.fetch = many, o.n_fetch = TRAIN_MAX_FETCH + 1;
    d = (diag){ 0 };
    assert_int_equal(train_open(&t, g, &o, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "17 values are fetched; 16 is the most"));
    graph_free(g);
}

/* Values of the graph may be called what ports would be. */
static void names_of_ports(void **state)
{
    (void)state;
    static const char text[] = "graph \"names\"\nx = input fp16[4, 2]\nw = input fp16[2, 1]\ns0000_w = matmul(x, w)\none = const fp16[] {1}\nb0000_x = sub(one, s0000_w)\n"
                               "s0000_w_next = relu(b0000_x)\nloss = reduce_mean(s0000_w_next)\nreturn loss\n";
    float w[2][2];
    for (int i = 0; i < 2; i++) {
        trainer *t = open_text(i ? text : hinge_text, (train_options){ .loss_scale = 8 });
        train_report r;
        diag d = { 0 };
        for (int s = 0; s < 3; s++) step_on(t, right, 0.125, &r);
        assert_ok(train_read(t, "w", DT_F32, w[i], &d), d);
        train_close(t);
    }
    assert_memory_equal(w[0], w[1], sizeof w[0]);
}

/* ---- what fp16 loses and pairs keep ---- */

static void pairs_keep_small_updates(void **state)
{
    (void)state;
    static const char text[] = "graph \"one\"\nx = input fp16[1, 32]\nw = input fp16[1, 32]\np = mul(x, w)\nloss = reduce_sum(p) {axes=[0, 1], keep_dims=true}\nreturn loss\n";
    for (int pair = 0; pair < 2; pair++) {
        graph *g = parse(text, "");
        trainer *t;
        diag d = { 0 };
        train_report r;
        float x[32], w[32];
        for (int i = 0; i < 32; i++) x[i] = w[i] = 1;
        train_options o = { .engine = "soft:m1", .loss = graph_find(g, "loss"), .param = &(train_param){ "w", false }, .n_param = 1, .loss_scale = 1,
                            .state = pair ? TRAIN_HALVES : TRAIN_F16 };
        assert_ok(train_open(&t, g, &o, &d), d);
        assert_ok(train_write(t, "w", DT_F32, w, &d), d);
        assert_ok(train_put(t, "x", DT_F32, x, &d), d);
        for (int s = 0; s < 1100; s++) assert_ok(train_step(t, 1e-5, &r, &d), d); /* also: the count passes 1024 */
        assert_ok(train_read(t, "w", DT_F32, w, &d), d);
        double count[2];
        assert_ok(train_read(t, "train.step", DT_F64, &count[0], &d), d);
        assert_ok(train_read(t, "train.step.1024", DT_F64, &count[1], &d), d);
        assert_true(count[0] == 1100 - 1024 && count[1] == 1);
        for (int i = 0; i < 32; i++)
            if (pair ? fabs(w[i] - 0.989) > 1e-4 : w[i] != 1) fail_msg("%s: w is %g", pair ? "pair" : "fp16", (double)w[i]);
        train_close(t);
        graph_free(g);
    }
}

/* A rate divided by the scale that fp16 does not hold, and squares that it does not: a step is the rate times the gradient still, and Adam's no
 * longer than the rate. */
static void small_in_fp16(void **state)
{
    (void)state;
    static const struct {
        const char *opt;
        double scale, size, rate, least, most; /* size: of what is learnt from; least, most: how far a weight goes */
    } cases[] = { { "sgd", 0x1p14, 0.25, 1e-4, 3.3e-4, 3.55e-4 }, { "momentum", 0x1p14, 0.25, 1e-4, 1.3e-3, 1.6e-3 }, { "adam", 1, 0.002, 0.0625, 0.01, 0.626 } };
    for (size_t i = 0; i < COUNT(cases); i++) {
        trainer *t = open_text(hinge_text, (train_options){ .optimizer = cases[i].opt, .loss_scale = cases[i].scale });
        train_report r;
        diag d = { 0 };
        float w[2] = { 0, 0 }, x[8];
        for (int k = 0; k < 8; k++) x[k] = (float)cases[i].size * right[k];
        assert_ok(train_write(t, "w", DT_F32, w, &d), d);
        for (int s = 0; s < 10; s++) {
            step_on(t, x, cases[i].rate, &r);
            assert_true(r.applied);
        }
        assert_ok(train_read(t, "w", DT_F32, w, &d), d);
        if (!(w[0] > cases[i].least && w[0] < cases[i].most)) fail_msg("%s: the weight went to %g", cases[i].opt, (double)w[0]);
        train_close(t);
    }
}

/* Scales change what fp16 can hold, not what is learnt: the learning rate absorbs them. */
static void the_rate_absorbs_the_scale(void **state)
{
    (void)state;
    static const char *const opts[] = { "sgd", "momentum", "adam" };
    for (size_t k = 0; k < COUNT(opts); k++) {
        double w[3][N_ALL];
        static const double scales[] = { 16, 64, 64 }, lr[] = { 0.05, 0.05, 0.05 / 64 };
        for (int i = 0; i < 3; i++) { /* the third divides by the scale a second time */
            plain p;
            float x[N_X], y[N_Y];
            train_report r;
            diag d = { 0 };
            start(&p, x, y, 5);
            trainer *t = open_trainer("fp16", (train_options){ .engine = "soft:m1", .optimizer = opts[k], .loss_scale = scales[i] });
            put_weights(t, &p);
            put_batch(t, x, y);
            for (int s = 0; s < 20; s++) assert_ok(train_step(t, lr[i], &r, &d), d);
            get_weights(t, w[i]);
            train_close(t);
        }
        double same = distance(w[1], w[0]), twice = distance(w[2], w[0]);
        if (!(same < 0.02 && twice > 0.1)) fail_msg("%s: %g between scales, %g when divided twice", opts[k], same, twice);
    }
}

/* ---- the width offset of m1 ---- */

static void keep_line(void *user, const char *line) { snprintf(user, 400, "%s", line); }

static void convolutions(void **state)
{
    (void)state;
    char said[400];
    static const char text[] = "graph \"conv\"\nx = input fp16[1, 2, 6, 40]\nw = input fp16[3, 2, 3, 3]\n"
                               "c = conv(x, w) {strides=[1, 1], pad_type=\"custom\", pad=[1, 1, 1, 1]}\ns = square(c)\n"
                               "loss = reduce_mean(s) {axes=[0, 1, 2, 3], keep_dims=true}\nreturn loss\n";
    static const struct {
        grad_conv_form form;
        bool finite;
    } rows_[] = { { GRAD_CONV_PATCHES, false }, { GRAD_CONV_INPUT_PATCHES, true }, { GRAD_CONV_NO_WIDTH_OFFSET, true } };
    float x[480], w[54];
    rng r = { 11 };
    for (int i = 0; i < 480; i++) x[i] = (float)rng_normal(&r) * 0x1p-6f;
    for (int i = 0; i < 54; i++) w[i] = (float)rng_normal(&r) * 16;
    for (size_t i = 0; i < COUNT(rows_); i++) {
        graph *g = parse(text, "");
        trainer *t;
        diag d = { 0 };
        train_report q;
        /* at the output the gradient is scale * c / 360: beyond 4094 and within fp16; small x keep the sums within 32768 */
        train_options o = { .engine = "soft:m1", .loss = graph_find(g, "loss"), .param = &(train_param){ "w", true }, .n_param = 1, .loss_scale = 1 << 20,
                            .conv_weight = rows_[i].form, .warn = keep_line, .user = said };
        said[0] = 0;
        assert_ok(train_open(&t, g, &o, &d), d);
        /* what will overflow is named before anything runs, with the forms that do not */
        if (rows_[i].finite) assert_string_equal(said, "");
        else if (!strstr(said, "slice_by_size slice_by_size_") || !strstr(said, ", of conv ") || !strstr(said, "5 more of the gradient's slices have a width offset and carry the loss scale of 1.04858e+06") || !strstr(said, "soft:m1") || !strstr(said, "no-width-offset"))
            fail_msg("said \"%s\"", said);
        assert_ok(train_write(t, "w", DT_F32, w, &d), d);
        assert_ok(train_put(t, "x", DT_F32, x, &d), d);
        assert_ok(train_step(t, 1e-3, &q, &d), d);
        if (q.finite != rows_[i].finite) fail_msg("form %zu: finite %d, norm %g", i, q.finite, q.grad_norm);
        train_close(t);
        said[0] = 0;
        o.engine = "soft:m5"; /* whose slices have no such end */
        assert_ok(train_open(&t, g, &o, &d), d);
        assert_string_equal(said, "");
        train_close(t);
        int lines = 0; /* once, however many programs have them */
        o.engine = "soft:m1", o.accum = 2, o.warn = count_lines, o.user = &lines;
        assert_ok(train_open(&t, g, &o, &d), d);
        assert_int_equal(lines, !rows_[i].finite);
        train_close(t);
        graph_free(g);
    }
}

/* ---- going on ---- */

static void going_on_bit_for_bit(void **state)
{
    (void)state;
    static const struct {
        const char *engine, *type, *opt;
        train_state_form form;
        int accum;
    } cases[] = { { "cpu", "fp32", "adamw", 0, 1 }, { "cpu", "fp16", "momentum", 0, 2 }, { "soft:m1", "fp16", "adam", TRAIN_HALVES, 2 }, { "soft:m4", "fp16", "sgd", 0, 1 } };
    char path[] = "/tmp/an_state_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    for (size_t i = 0; i < COUNT(cases); i++) {
        plain p;
        float x[N_X], y[N_Y];
        unsigned char end[3][4096];
        size_t n[3];
        strbuf kept = { 0 };
        diag d = { 0 };
        start(&p, x, y, 9);
        for (int way = 0; way < 3; way++) { /* straight on; from a file; from memory */
            train_options o = { .engine = cases[i].engine, .optimizer = cases[i].opt, .state = cases[i].form, .accum = cases[i].accum, .loss_scale = 8,
                                .dynamic_scale = true, .grow_after = 3 };
            trainer *t = open_trainer(cases[i].type, o);
            train_report r;
            put_weights(t, &p);
            put_batch(t, x, y);
            train_note note[1] = { { "where", "here" } };
            arena mem = { 0 };
            if (way == 0) {
                for (int s = 0; s < 5 * cases[i].accum; s++) assert_ok(train_step(t, 0.01, &r, &d), d);
                assert_ok(train_save(t, path, note, 1, &d), d);
                assert_ok(train_snapshot(t, &kept, &d), d);
            } else {
                assert_ok(train_step(t, 0.5, &r, &d), d); /* something else first */
                if (cases[i].accum > 1) {
                    diag busy = { 0 };
                    assert_int_equal(train_load(t, path, NULL, 0, NULL, &busy), AN_INPUT); /* in the middle of a group */
                    assert_ok(train_step(t, 0.5, &r, &d), d);
                }
                note[0].value = NULL;
                if (way == 1) {
                    assert_ok(train_load(t, path, note, 1, &mem, &d), d);
                    assert_string_equal(note[0].value, "here");
                } else assert_ok(train_restore(t, kept.at, kept.n, &d), d);
            }
            for (int s = 0; s < 6 * cases[i].accum; s++) assert_ok(train_step(t, 0.01, &r, &d), d);
            assert_int_equal(r.step, 11);
            n[way] = all_bits(t, end[way], sizeof end[way]);
            arena_free(&mem);
            train_close(t);
        }
        for (int way = 1; way < 3; way++) {
            assert_int_equal(n[way], n[0]);
            assert_memory_equal(end[way], end[0], n[0]);
        }
        sb_free(&kept);
    }
    unlink(path);
}

static void bad_checkpoints(void **state)
{
    (void)state;
    char path[] = "/tmp/an_state_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    plain p;
    float x[N_X], y[N_Y];
    double w[2][N_ALL];
    train_report r;
    diag d = { 0 };
    start(&p, x, y, 9);
    trainer *t = open_trainer("fp32", (train_options){ .engine = "cpu", .optimizer = "adam" });
    put_weights(t, &p);
    put_batch(t, x, y);
    assert_ok(train_step(t, 0.01, &r, &d), d);
    get_weights(t, w[0]);
    static const struct {
        const char *opt;
        int accum, cut; /* bytes kept of the file; 0: all */
        double scale;
    } files[] = { { "sgd", 1, 0, 1 }, { "adamw", 1, 0, 1 }, { "adam", 2, 0, 1 }, { "adam", 1, 0, 64 }, { "adam", 1, 900, 1 }, { "adam", 1, 7, 1 } };
    for (size_t i = 0; i < COUNT(files); i++) {
        trainer *other = open_trainer("fp32", (train_options){ .engine = "cpu", .optimizer = files[i].opt, .accum = files[i].accum, .loss_scale = files[i].scale });
        assert_ok(train_save(other, path, NULL, 0, &d), d);
        train_close(other);
        if (files[i].cut) assert_int_equal(truncate(path, files[i].cut), 0);
        diag why = { 0 };
        if (train_load(t, path, NULL, 0, NULL, &why) != AN_INPUT || !strstr(why.msg, path)) fail_msg("file %zu: %d %s", i, (int)why.st, why.msg);
        get_weights(t, w[1]);
        assert_memory_equal(w[0], w[1], sizeof w[0]);
    }
    diag why = { 0 };
    assert_int_equal(train_load(t, "/tmp/an_no_such_file", NULL, 0, NULL, &why), AN_INPUT);
    /* a snapshot of another size, and a device that counted other updates than the host */
    strbuf kept = { 0 };
    assert_ok(train_snapshot(t, &kept, &d), d);
    for (int more = -1; more < 2; more += 2) {
        diag size = { 0 };
        sb_putn(&kept, "", 1);
        assert_int_equal(train_restore(t, kept.at, kept.n - 1 + (size_t)more, &size), AN_INPUT);
        kept.n--;
    }
    assert_ok(train_restore(t, kept.at, kept.n, &d), d);
    sb_free(&kept);
    assert_ok(train_write(t, "train.step", DT_F32, &(float){ 3 }, &d), d);
    diag count = { 0 };
    assert_int_equal(train_save(t, path, NULL, 0, &count), AN_BUG);
    assert_non_null(strstr(count.msg, "the device counted 3 updates, the host 1"));
    train_close(t);
    close(fd);
    unlink(path);
}

/* A file's own checksum: signs of neighbours that change together are seen, and a file of before they were is read by the checksum it has. */
static void checksums_of_files(void **state)
{
    (void)state;
    char path[] = "/tmp/an_state_XXXXXX", sum[40];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    diag d = { 0 };
    trainer *t = open_trainer("fp32", (train_options){ .engine = "cpu", .optimizer = "adam" });
    assert_ok(train_save(t, path, NULL, 0, &d), d);
    for (int old = 0; old < 2; old++)
        for (int damage = 0; damage < 3; damage++) { /* none, three signs, a bit */
            file_bytes f;
            safetensors *v;
            train_state_info w;
            uint64_t h = 0;
            assert_ok(file_read(path, 1 << 20, &f, &d), d);
            assert_ok(safetensors_view(f.at, f.n, path, &v, &d), d);
            for (size_t i = 0; i < train_state_count(t); i++) {
                train_state_at(t, i, &w);
                const safetensor *x = safetensors_find(v, w.name);
                h = hash_bytes(x->data, x->bytes, h);
            }
            char *key = NULL, *text = (char *)f.at;
            for (size_t i = 8; i + 40 < f.n && !key; i++)
                if (!memcmp(text + i, "\"anneal.checksum2\":\"", 20)) key = text + i;
            assert_non_null(key);
            snprintf(sum, sizeof sum, "\"anneal.checksum\": \"%016llx\"", (unsigned long long)h);
            if (old) memcpy(key, sum, strlen(sum));
            unsigned char *at = (unsigned char *)f.at + ((const unsigned char *)safetensors_find(v, "w1")->data - f.at);
            if (damage == 1) at[7] ^= 128, at[11] ^= 128, at[15] ^= 128;
            if (damage == 2) at[5] ^= 1;
            char copy[] = "/tmp/an_state_XXXXXX";
            int fd2 = mkstemp(copy);
            assert_true(fd2 >= 0);
            assert_ok(file_write(copy, f.at, f.n, &d), d);
            diag why = { 0 };
            an_status st = train_load(t, copy, NULL, 0, NULL, &why);
            bool seen = damage == 2 || (damage == 1 && !old);
            if (st != (seen ? AN_INPUT : AN_OK) || (seen && !strstr(why.msg, "the file is damaged"))) fail_msg("old %d, damage %d: status %d: %s", old, damage, (int)st, why.msg);
            close(fd2), unlink(copy);
            safetensors_close(v);
            file_drop(&f);
        }
    train_close(t);
    close(fd), unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(optimizers), cmocka_unit_test(an_epsilon), cmocka_unit_test(overflow_leaves_no_trace), cmocka_unit_test(a_step_too_far),
        cmocka_unit_test(a_bad_minibatch_of_a_group), cmocka_unit_test(a_group_too_far), cmocka_unit_test(numbers_refused),
        cmocka_unit_test(devices_of_all_kinds), cmocka_unit_test(scales_by_default), cmocka_unit_test(verdicts), cmocka_unit_test(a_moment_too_far),
        cmocka_unit_test(refusals), cmocka_unit_test(names_of_ports), cmocka_unit_test(pairs_keep_small_updates), cmocka_unit_test(small_in_fp16),
        cmocka_unit_test(the_rate_absorbs_the_scale), cmocka_unit_test(convolutions), cmocka_unit_test(going_on_bit_for_bit),
        cmocka_unit_test(bad_checkpoints), cmocka_unit_test(checksums_of_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
