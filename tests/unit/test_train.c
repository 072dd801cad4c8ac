/* test_train.c: the resident step against the same arithmetic in double precision: every optimizer, on the processor
 * and on chips; what fp16 loses; the width offset of m1. */
#include "train_small_t.h"

static void update(plain *p, const char *opt, const double *g_in, double lr, double decay, double clip, double beta,
                   int step)
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
    /* beta: both of Adam's, 0: their defaults, by which 20 updates forget nothing of the second moment */
    double tolerance, beta;
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
    /* clipped by the norm of the sum */
    { "soft:m1", "fp16", "momentum", 0.05, 0.01, 0.05, 64, true, 4, 0, 1e-2, 0 },
    { "soft:m1", "fp16", "sgd", 0.1, 0, 0.05, 256, false, 4, TRAIN_HALVES, 3e-3, 0 },
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
        trainer *t = open_trainer(rows[i].type, (train_options){ .engine = rows[i].engine,
                                                                 .optimizer = rows[i].opt,
                                                                 .decay = rows[i].decay,
                                                                 .clip = rows[i].clip,
                                                                 .loss_scale = rows[i].scale,
                                                                 .dynamic_scale = rows[i].dynamic,
                                                                 .accum = rows[i].accum,
                                                                 .state = rows[i].form,
                                                                 .grow_after = 5,
                                                                 .beta1 = rows[i].beta,
                                                                 .beta2 = rows[i].beta });
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
                if (!r.finite)
                    fail_msg("row %zu step %d: loss %g, norm %g, scale %g: not finite", i, s, r.loss, r.grad_norm,
                             r.loss_scale);
                if (fabs(r.loss - loss) > (half ? 3e-2 : 1e-2) * loss)
                    fail_msg("row %zu step %d: loss %g, wanted %g", i, s, r.loss, loss);
                assert_int_equal(r.applied, a + 1 == rows[i].accum);
                assert_int_equal(isnan(r.grad_norm) != 0, !r.applied); /* a part of a gradient has no norm */
            }
            double norm = 0;
            for (int k = 0; k < N_ALL; k++) norm += sum[k] * sum[k];
            if (fabs(r.grad_norm - sqrt(norm)) > 0.05 * sqrt(norm))
                fail_msg("row %zu step %d: norm %g, wanted %g", i, s, r.grad_norm, sqrt(norm));
            update(&p, rows[i].opt, sum, rows[i].lr, rows[i].decay, rows[i].clip, rows[i].beta, s);
            assert_int_equal(r.step, s);
        }
        get_weights(t, got);
        double e = distance(got, p.w);
        if (!(e <= rows[i].tolerance))
            fail_msg("row %zu (%s %s on %s): weights are off by %g", i, rows[i].opt, rows[i].type, rows[i].engine, e);
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

/* Adam's first step is g / (|g| + epsilon): the gradient over an epsilon far above it, the rate without one. It is in
 * plain units, whatever the loss scale. */
static void an_epsilon(void **state)
{
    (void)state;
    static const struct {
        const char *engine, *type;
        double eps, scale, off; /* off: of a step, as a part of it */
    } cases[] = { { "cpu", "fp32", 0, 1, 1e-3 },      { "cpu", "fp32", 1e4, 1, 1e-3 },
                  { "cpu", "fp32", 1e4, 64, 1e-3 },   { "soft:m1", "fp16", 64, 1, 5e-2 },
                  { "soft:m1", "fp16", 8, 64, 5e-2 }, { "soft:m4", "fp16", 8, 64, 5e-2 } };
    for (size_t i = 0; i < COUNT(cases); i++) {
        plain p;
        float x[N_X], y[N_Y];
        double g[N_ALL], w[N_ALL];
        train_report r;
        diag d = { 0 };
        start(&p, x, y, 3);
        gradients(&p, x, y, g);
        trainer *t = open_trainer(cases[i].type, (train_options){ .engine = cases[i].engine, .optimizer = "adam",
                                                                  .eps = cases[i].eps, .loss_scale = cases[i].scale,
                                                                  .state = strcmp(cases[i].engine, "cpu") ? TRAIN_HALVES
                                                                                                          : 0 });
        put_weights(t, &p);
        put_batch(t, x, y);
        assert_ok(train_step(t, 1, &r, &d), d);
        get_weights(t, w);
        for (int k = 0; k < N_ALL; k++) {
            const double eps = cases[i].eps, want = g[k] == 0 ? 0 : g[k] / (fabs(g[k]) + eps);
            if (fabs(p.w[k] - w[k] - want) > (cases[i].off > 0.01 ? 2e-4 : 1e-6) + cases[i].off * fabs(want))
                fail_msg("epsilon %g on %s, weight %d: a step of %g, wanted %g", eps, cases[i].engine, k,
                         p.w[k] - w[k], want);
        }
        train_close(t);
    }
}

/* ---- what fp16 loses and pairs keep ---- */

/* x is the gradient of w. */
static const char given_text[] =
    "graph \"one\"\nx = input fp16[1, 32]\nw = input fp16[1, 32]\np = mul(x, w)\nloss = reduce_sum(p) {axes=[0, 1], keep_dims=true}\nreturn loss\n";

static void pairs_keep_small_updates(void **state)
{
    (void)state;
    for (int pair = 0; pair < 2; pair++) {
        graph *g = parse(given_text, "");
        trainer *t;
        diag d = { 0 };
        train_report r;
        float x[32], w[32];
        for (int i = 0; i < 32; i++) x[i] = w[i] = 1;
        train_options o = { .engine = "soft:m1",
                            .loss = graph_find(g, "loss"),
                            .param = &(train_param){ "w", false },
                            .n_param = 1,
                            .loss_scale = 1,
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
            if (pair ? fabs(w[i] - 0.989) > 1e-4 : w[i] != 1)
                fail_msg("%s: w is %g", pair ? "pair" : "fp16", (double)w[i]);
        train_close(t);
        graph_free(g);
    }
}

/* Gradients from far below what fp16 can square to some that it can: no step of Adam is longer than the rate, but for
 * what the second moment is rounded by, and pairs feel gradients whose share of it is nothing in fp16. */
static void adam_of_small_gradients(void **state)
{
    (void)state;
    static const struct {
        const char *engine;
        train_state_form type;
        double beta2, from; /* from: gradients that shall take a step of a third of the rate at least */
    } cases[] = { { "soft:m1", TRAIN_F16, 0.999, 0x1p-8 }, { "soft:m1", TRAIN_HALVES, 0.999, 0x1p-12 }, { "soft:m4", TRAIN_HALVES, 0.999, 0x1p-12 }, { "soft:m5", TRAIN_HALVES, 0.999, 0x1p-12 },
                  { "soft:m1", TRAIN_F16, 0.95, 0x1p-10 },  { "soft:m1", TRAIN_HALVES, 0.95, 0x1p-12 } };
    const double rate = 0x1p-4;
    for (size_t i = 0; i < COUNT(cases); i++) {
        graph *g = parse(given_text, "");
        trainer *t;
        diag d = { 0 };
        train_report r;
        float x[32], w[32] = { 0 }, was[32];
        for (int k = 0; k < 32; k++) x[k] = (float)ldexp(1 + (k % 2) * 0.5, k / 2 - 15);
        train_options o = { .engine = cases[i].engine, .loss = graph_find(g, "loss"), .param = &(train_param){ "w", false }, .n_param = 1,
                            .optimizer = "adam", .beta2 = cases[i].beta2, .loss_scale = 1, .state = cases[i].type };
        assert_ok(train_open(&t, g, &o, &d), d);
        assert_ok(train_write(t, "w", DT_F32, w, &d), d);
        assert_ok(train_put(t, "x", DT_F32, x, &d), d);
        for (int s = 0; s < 12; s++) {
            memcpy(was, w, sizeof w);
            assert_ok(train_step(t, rate, &r, &d), d);
            assert_ok(train_read(t, "w", DT_F32, w, &d), d);
            for (int k = 0; k < 32; k++) {
                const double by = (double)(was[k] - w[k]) / rate;
                if (by > 1.25 || by < 0 || ((double)x[k] >= cases[i].from && by < 0.33))
                    fail_msg("case %zu, gradient %g, step %d: %g of the rate", i, (double)x[k], s, by);
            }
        }
        train_close(t);
        graph_free(g);
    }
}

/* A rate divided by the scale that fp16 does not hold, and squares that it does not: a step is the rate times the
 * gradient still, and Adam's no longer than the rate. */
static void small_in_fp16(void **state)
{
    (void)state;
    static const struct {
        const char *opt;
        double scale, size, rate, least, most; /* size: of what is learnt from; least, most: how far a weight goes */
    } cases[] = { { "sgd", 0x1p14, 0.25, 1e-4, 3.3e-4, 3.55e-4 },
                  { "momentum", 0x1p14, 0.25, 1e-4, 1.3e-3, 1.6e-3 },
                  { "adam", 1, 0.002, 0.0625, 0.01, 0.626 } };
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
        if (!(w[0] > cases[i].least && w[0] < cases[i].most))
            fail_msg("%s: the weight went to %g", cases[i].opt, (double)w[0]);
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
            trainer *t = open_trainer(
                "fp16", (train_options){ .engine = "soft:m1", .optimizer = opts[k], .loss_scale = scales[i] });
            put_weights(t, &p);
            put_batch(t, x, y);
            for (int s = 0; s < 20; s++) assert_ok(train_step(t, lr[i], &r, &d), d);
            get_weights(t, w[i]);
            train_close(t);
        }
        double same = distance(w[1], w[0]), twice = distance(w[2], w[0]);
        if (!(same < 0.02 && twice > 0.1))
            fail_msg("%s: %g between scales, %g when divided twice", opts[k], same, twice);
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
    } rows_[] = { { GRAD_CONV_PATCHES, false },
                  { GRAD_CONV_INPUT_PATCHES, true },
                  { GRAD_CONV_NO_WIDTH_OFFSET, true } };
    float x[480], w[54];
    rng r = { 11 };
    for (int i = 0; i < 480; i++) x[i] = (float)rng_normal(&r) * 0x1p-6f;
    for (int i = 0; i < 54; i++) w[i] = (float)rng_normal(&r) * 16;
    for (size_t i = 0; i < COUNT(rows_); i++) {
        graph *g = parse(text, "");
        trainer *t;
        diag d = { 0 };
        train_report q;
        /* at the output the gradient is scale * c / 360: beyond 4094 and within fp16; small x keep the sums within
         * 32768 */
        train_options o = { .engine = "soft:m1",
                            .loss = graph_find(g, "loss"),
                            .param = &(train_param){ "w", true },
                            .n_param = 1,
                            .loss_scale = 1 << 20,
                            .conv_weight = rows_[i].form,
                            .warn = keep_line,
                            .user = said };
        said[0] = 0;
        assert_ok(train_open(&t, g, &o, &d), d);
        /* what will overflow is named before anything runs, with the forms that do not */
        if (rows_[i].finite) assert_string_equal(said, "");
        else if (!strstr(said, "slice_by_size slice_by_size_") || !strstr(said, ", of conv ") ||
                 !strstr(
                     said,
                     "5 more of the gradient's slices have a width offset and carry the loss scale of 1.04858e+06") ||
                 !strstr(said, "soft:m1") || !strstr(said, "no-width-offset"))
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(optimizers),
        cmocka_unit_test(an_epsilon),
        cmocka_unit_test(pairs_keep_small_updates),
        cmocka_unit_test(adam_of_small_gradients),
        cmocka_unit_test(small_in_fp16),
        cmocka_unit_test(the_rate_absorbs_the_scale),
        cmocka_unit_test(convolutions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
