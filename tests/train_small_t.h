/* train_small_t.h: for tests of the resident step: a network of 50 weights, its gradients by hand in double
 * precision, and a trainer of it. */
#ifndef TESTS_TRAIN_SMALL_T_H
#define TESTS_TRAIN_SMALL_T_H

#include <math.h>

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
static inline double gradients(const plain *p, const float *x, const float *want, double *g)
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
            for (int j = 0; j < 5; j++)
                g[N_W1 + N_B1 + j * 3 + k] += 2 * e / 24 * h[j], dh[j] += 2 * e / 24 * w2[j * 3 + k];
        }
        for (int j = 0; j < 5; j++) {
            if (h[j] <= 0) continue;
            g[N_W1 + j] += dh[j];
            for (int i = 0; i < 6; i++) g[i * 5 + j] += dh[j] * x[r * 6 + i];
        }
    }
    return loss;
}

static inline void start(plain *p, float *x, float *y, uint64_t seed)
{
    rng r = { seed };
    *p = (plain){ 0 };
    for (int i = 0; i < N_ALL; i++) p->w[i] = dtype_round(DT_F16, rng_normal(&r) * 0.5);
    for (int i = 0; i < N_X; i++) x[i] = (float)dtype_round(DT_F16, rng_normal(&r));
    for (int i = 0; i < N_Y; i++) y[i] = (float)dtype_round(DT_F16, rng_normal(&r));
}

static inline void put_weights(trainer *t, const plain *p)
{
    diag d = { 0 };
    assert_ok(train_write(t, "w1", DT_F64, p->w, &d), d);
    assert_ok(train_write(t, "b1", DT_F64, p->w + N_W1, &d), d);
    assert_ok(train_write(t, "w2", DT_F64, p->w + N_W1 + N_B1, &d), d);
}

static inline void get_weights(trainer *t, double *w)
{
    diag d = { 0 };
    assert_ok(train_read(t, "w1", DT_F64, w, &d), d);
    assert_ok(train_read(t, "b1", DT_F64, w + N_W1, &d), d);
    assert_ok(train_read(t, "w2", DT_F64, w + N_W1 + N_B1, &d), d);
}

static inline trainer *open_trainer(const char *type, train_options o)
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

static inline void put_batch(trainer *t, const float *x, const float *y)
{
    diag d = { 0 };
    assert_ok(train_put(t, "x", DT_F32, x, &d), d);
    assert_ok(train_put(t, "want", DT_F32, y, &d), d);
}

/* Every state's bits, in order. */
static inline size_t all_bits(trainer *t, unsigned char *out, size_t room)
{
    size_t at = 0;
    diag d = { 0 };
    for (size_t i = 0; i < train_state_count(t); i++) {
        train_state_info s;
        size_t bytes;
        train_state_at(t, i, &s);
        assert_true(shape_bytes(&s.type, &bytes) && at + bytes <= room);
        /* a pair reads as its sum: take the halves as they are */
        if (s.param && !strcmp(s.name, s.param) && s.type.dt == DT_F16) {
            double x[64];
            assert_ok(train_read(t, s.name, DT_F64, x, &d), d);
            for (size_t k = 0; k < bytes / 2; k++) dtype_store(DT_F16, out + at, (int64_t)k, x[k]);
        } else assert_ok(train_read(t, s.name, s.type.dt, out + at, &d), d);
        at += bytes;
    }
    return at;
}

#endif
