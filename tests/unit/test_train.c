/* The resident step against the same arithmetic in double precision: every optimizer, on the processor and on chips; what an
 * overflow leaves behind; state out and in; bad input. */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/rng.h"
#include "t.h"
#include "train/train.h"

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

static graph *parse(const char *text, const char *type)
{
    size_t n = strlen(text);
    char *s = malloc(2 * n + 1), *o = s;
    assert_non_null(s);
    for (const char *p = text; *p;) {
        if (!strncmp(p, "FP", 2)) {
            memcpy(o, type, strlen(type));
            o += strlen(type), p += 2;
        } else *o++ = *p++;
    }
    *o = 0;
    graph *g;
    diag d = { 0 };
    assert_ok(graph_parse(s, strlen(s), &g, &d), d);
    free(s);
    return g;
}

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

static void update(plain *p, const char *opt, const double *g_in, double lr, double decay, double clip, int step)
{
    double norm = 0, g[N_ALL];
    for (int i = 0; i < N_ALL; i++) norm += g_in[i] * g_in[i];
    norm = sqrt(norm);
    for (int i = 0; i < N_ALL; i++) {
        bool decays = i < N_W1 || i >= N_W1 + N_B1, adam = opt[0] == 'a', decoupled = !strcmp(opt, "adamw");
        g[i] = g_in[i] * (clip > 0 && norm > clip ? clip / norm : 1);
        if (decays && !decoupled) g[i] += decay * p->w[i];
        double w0 = p->w[i], dir = g[i];
        if (!strcmp(opt, "momentum")) dir = p->m[i] = 0.9 * p->m[i] + g[i];
        if (adam) {
            p->m[i] = 0.9 * p->m[i] + 0.1 * g[i];
            p->v[i] = 0.999 * p->v[i] + 0.001 * g[i] * g[i];
            dir = p->m[i] / (1 - pow(0.9, step)) / (sqrt(p->v[i] / (1 - pow(0.999, step))) + 1e-8);
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
    double tolerance;
} rows[] = {
    { "cpu", "fp32", "sgd", 0.1, 0, 0, 0, false, 1, 0, 1e-5 },
    { "cpu", "fp32", "sgd", 0.1, 0.01, 0.05, 1024, false, 1, 0, 1e-5 },
    { "cpu", "fp32", "momentum", 0.05, 0.01, 0, 8, false, 1, 0, 1e-5 },
    { "cpu", "fp32", "momentum", 0.05, 0, 0.05, 0, true, 4, 0, 1e-5 },
    { "cpu", "fp32", "adam", 0.01, 0.01, 0, 64, false, 1, 0, 2e-5 },
    { "cpu", "fp32", "adamw", 0.01, 0.1, 0.1, 64, false, 3, 0, 2e-5 },
    { "cpu", "fp32", "adamw", 0.01, 0.1, 0, 0, true, 1, 0, 2e-5 },
    { "cpu", "fp16", "adamw", 0.01, 0.1, 0, 256, false, 1, 0, 2e-2 },
    { "cpu", "fp16", "sgd", 0.1, 0, 0, 256, false, 1, 0, 5e-3 },
    { "soft:m1", "fp16", "sgd", 0.1, 0, 0, 1024, false, 1, 0, 5e-3 },
    { "soft:m1", "fp32", "sgd", 0.1, 0.01, 0.05, 1024, false, 1, 0, 5e-3 },
    { "soft:m1", "fp16", "sgd", 0.1, 0, 0, 1024, false, 1, TRAIN_HALVES, 3e-3 },
    { "soft:m1", "fp16", "momentum", 0.05, 0, 0, 1024, true, 2, 0, 1e-2 },
    { "soft:m1", "fp16", "adam", 0.01, 0, 0, 128, false, 1, 0, 2e-2 },
    { "soft:m1", "fp16", "adamw", 0.01, 0.1, 0, 16, true, 1, TRAIN_HALVES, 2e-2 },
    { "soft:m4", "fp16", "adamw", 0.01, 0.1, 0.1, 16, false, 1, TRAIN_HALVES, 2e-2 },
    { "soft:m5", "fp16", "sgd", 0.1, 0, 0, 1024, false, 1, 0, 5e-3 },
    { "soft:m5", "fp16", "adam", 0.01, 0, 0, 16, false, 4, 0, 2e-2 },
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
                                  .loss_scale = rows[i].scale, .dynamic_scale = rows[i].dynamic, .accum = rows[i].accum, .state = rows[i].form, .grow_after = 5 });
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
            }
            double norm = 0;
            for (int k = 0; k < N_ALL; k++) norm += sum[k] * sum[k];
            if (fabs(r.grad_norm - sqrt(norm)) > 0.05 * sqrt(norm)) fail_msg("row %zu step %d: norm %g, wanted %g", i, s, r.grad_norm, sqrt(norm));
            update(&p, rows[i].opt, sum, rows[i].lr, rows[i].decay, rows[i].clip, s);
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
        train_close(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(optimizers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
