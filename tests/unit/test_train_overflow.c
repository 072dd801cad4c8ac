/* test_train_overflow.c: what a step that is not finite leaves behind, and what a graph cannot be trained by. */
#include "train_small_t.h"

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
            trainer *t = open_trainer(overflows[i].type, (train_options){ .engine = overflows[i].engine,
                                                                          .optimizer = overflows[i].opt,
                                                                          .state = overflows[i].form,
                                                                          .loss_scale = overflows[i].scale,
                                                                          .dynamic_scale = dynamic,
                                                                          .max_skipped = 4,
                                                                          .grow_after = 2 });
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
            assert_non_null(strstr(d.msg, "4 updates were not finite"));
            train_close(t);
        }
}

/* Nor does a step that would leave a state which is not finite, though its gradients are; and gradients of 0
 * everywhere are none. */
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
        trainer *t = open_trainer(
            far[i].type,
            (train_options){ .engine = far[i].engine, .optimizer = far[i].opt, .loss_scale = far[i].scale });
        if (far[i].nothing) memset(&p, 0, sizeof p);
        put_weights(t, &p);
        put_batch(t, far[i].nothing ? none : x, far[i].nothing ? zero : y);
        size_t n = all_bits(t, before, sizeof before);
        assert_ok(train_step(t, far[i].rate, &r, &d), d);
        if (r.verdict != far[i].verdict)
            fail_msg("row %zu: verdict %d, %s", i, (int)r.verdict, train_verdict_text(r.verdict));
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
        trainer *t = open_trainer(chip ? "fp16" : "fp32", (train_options){ .engine = chip ? "soft:m1" : "cpu",
                                                                           .optimizer = "momentum",
                                                                           .accum = 3,
                                                                           .loss_scale = 256 });
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
        /* behind the bad one there is nothing to run */
        assert_true(st.minibatches == (bad ? 9u : 6u) && st.ran == (bad ? 8u : 6u) && st.dispatches == st.ran);
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
        if (!r.applied || r.step != 1 || r.skipped != 1)
            fail_msg("%s: %s, %d skipped", engines[i], train_verdict_text(r.verdict), (int)r.skipped);
        train_close(t);
    }
}

/* Numbers that are none of their input's, and a rate that is none. */
static void numbers_refused(void **state)
{
    (void)state;
    static const char text[] =
        "graph \"rows\"\nat = input int32[2]\nx = input fp16[2, 4]\nw = input fp16[8, 4]\ne = gather(w, at) {axis=0}\nm = mul(e, x)\nloss = reduce_mean(m)\nreturn loss\n";
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
        if (st != (cases[i].says ? AN_INPUT : AN_OK) || (st && !strstr(d.msg, cases[i].says)))
            fail_msg("row %zu: status %d: %s", i, (int)st, d.msg);
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
    static const double norms[] = { 1e-12, 1e-3 }; /* the first is nothing to fp16 */
    for (size_t i = 0; i < COUNT(norms); i++) {
        d = (diag){ 0 };
        t = open_text(hinge_text, (train_options){ .engine = "soft:m1", .loss_scale = 8, .clip = norms[i] });
        assert_ok(train_put(t, "x", DT_F32, right, &d), d);
        assert_int_equal(train_step(t, 0.125, &r, &d), i ? AN_OK : AN_INPUT);
        if (!i) assert_non_null(strstr(d.msg, "the clipping norm is 1e-12, which is 0 in fp16 at a loss scale of 8"));
        train_close(t);
    }
}

/* A minibatch of several pieces, each looked at by who copies it: one that is refused cannot be trained on, and nothing
 * of it is left in the next. */
static void a_refused_minibatch(void **state)
{
    (void)state;
    enum { N = 5000, BAD = 4321 };
    static const char text[] =
        "graph \"long\"\nx = input fp32[5000]\nw = input fp32[5000]\nm = mul(w, x)\nloss = reduce_sum(m)\nreturn loss\n";
    static float x[N], ones[N];
    trainer *t = open_text(text, (train_options){ .engine = "cpu" });
    train_report r;
    diag d = { 0 }, why = { 0 }, missing = { 0 };
    for (int i = 0; i < N; i++) x[i] = (float)(i % 3), ones[i] = 1;
    assert_ok(train_write(t, "w", DT_F32, ones, &d), d);
    step_on(t, x, 0, &r);
    assert_true(r.loss == 4999);
    x[0] = 7, x[BAD] = INFINITY;
    assert_int_equal(train_put(t, "x", DT_F32, x, &why), AN_INPUT);
    assert_non_null(strstr(why.msg, "x: number 4321 is inf; finite numbers are wanted"));
    assert_int_equal(train_step(t, 0, &r, &missing), AN_INPUT);
    assert_non_null(strstr(missing.msg, "input x was not put"));
    x[0] = 0, x[BAD] = BAD % 3;
    step_on(t, x, 0, &r);
    assert_true(r.loss == 4999);
    train_close(t);
}

/* Devices whose surfaces have one size, or a least one; and whose dispatch fails once: it is run again unless memory
 * is what it lacks. */
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
        trainer *t = open_trainer("fp16", (train_options){ .engine = "soft:m1", .optimizer = "momentum",
                                                           .loss_scale = 64, .warn = heard, .user = &spoil,
                                                           .device = { .limit = cases[i].limit, .n_limit = 2,
                                                                       .fault = stumbles, .user = &fault,
                                                                       .spoil = stumbles, .spoiler = &spoil } });
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

/* Where the options say nothing: from 1024 in fp16, doubled after 200 updates that counted; as far as the type of
 * the numbers sent holds twice of it, and as far down as nothing can overflow; 32 updates in a row that were not
 * finite are the end. */
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
            if (!r.applied || r.loss_scale != want)
                fail_msg("update %d: applied %d, scale %g, wanted %g", i, r.applied, r.loss_scale, want);
        }
        train_close(t);
    }
    trainer *t = open_trainer("fp32", (train_options){ .engine = "cpu", .dynamic_scale = true, .grow_after = 1 });
    put_weights(t, &p);
    put_batch(t, x, y);
    for (int i = 0; i < 30; i++) {
        assert_ok(train_step(t, 0, &r, &d), d);
        if (!r.applied || r.loss_scale != MIN(ldexp(1, i), 0x1p24))
            fail_msg("update %d: applied %d, scale %g", i, r.applied, r.loss_scale);
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

/* What a step is refused for: the first of loss, gradient and square that is too large, where the ones before it are
 * not. */
static void verdicts(void **state)
{
    (void)state;
    static const char high[] =
        "graph \"high\"\nx = input fp16[4, 2]\nw = input fp16[2, 1]\nm = matmul(x, w)\ns = reduce_mean(m)\nk = const fp16[] {60000}\na = add(s, k)\nloss = add(a, k)\nreturn loss\n";
    static const char steep[] =
        "graph \"steep\"\nx = input fp16[4, 2]\nw = input fp16[2, 1]\nm = matmul(x, w)\nk = const fp16[] {30000}\np = mul(m, k)\ns = reduce_mean(p)\n"
        "n = const fp16[] {0.0009765625}\nloss = mul(s, n)\nreturn loss\n";
    static const char far[] =
        "graph \"far\"\nx = input fp32[4, 2]\nw = input fp32[2, 1]\nm = matmul(x, w)\nk = const fp32[] {1e20}\np = mul(m, k)\nloss = reduce_mean(p)\nreturn loss\n";
    static const char beyond[] =
        "graph \"beyond\"\nx = input fp32[4, 2]\nw = input fp32[2, 1]\nm = matmul(x, w)\ns = reduce_mean(m)\nk = const fp32[] {3e38}\na = add(s, k)\nloss = add(a, k)\nreturn loss\n";
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
        trainer *t = open_text(cases[i].text, (train_options){ .engine = cases[i].engine,
                                                               .optimizer = cases[i].opt,
                                                               .state = cases[i].form,
                                                               .loss_scale = cases[i].scale });
        train_report r;
        diag d = { 0 };
        float w[2] = { 0.3f, -0.2f };
        assert_ok(train_write(t, "w", DT_F32, w, &d), d);
        step_on(t, right, 1, &r);
        if (r.verdict != cases[i].verdict || r.applied != (r.verdict == VERDICT_FINE))
            fail_msg("row %zu: %s, loss %g, norm %g", i, train_verdict_text(r.verdict), r.loss, r.grad_norm);
        assert_ok(train_read(t, "w", DT_F32, w, &d), d);
        if (!r.applied && fabs(w[0] - 0.3) + fabs(w[1] + 0.2) > 1e-3)
            fail_msg("row %zu: weights went to %g and %g", i, (double)w[0], (double)w[1]);
        /* and the end of a row of them says so */
        for (int k = 0; !r.applied && k < 40 && !train_step(t, 1, &r, &d); k++) {}
        bool by_scale = !cases[i].engine && cases[i].verdict != VERDICT_LOSS;
        if (!r.applied && (d.st != AN_MISMATCH || !strstr(d.msg, train_verdict_text(cases[i].verdict)) ||
                           !strstr(d.msg, "the scale is too large") == by_scale))
            fail_msg("row %zu: %s", i, d.msg);
        train_close(t);
    }
}

/* A second moment that a doubled scale takes beyond fp16: what is divided by it is 0, and no weight would show it. */
static void a_moment_too_far(void **state)
{
    (void)state;
    trainer *t = open_text(hinge_text, (train_options){ .engine = "soft:m4", .optimizer = "adam", .beta2 = 0.5,
                                                        .loss_scale = 128, .dynamic_scale = true, .grow_after = 3 });
    float less[8];
    train_report r;
    for (int i = 0; i < 8; i++) less[i] = right[i] / 8;
    for (int i = 0; i < 4; i++) { /* 27104 of gradients of 176, then four times that */
        step_on(t, i < 3 ? right : less, 1e-3, &r);
        if (r.verdict != (i < 3 ? VERDICT_FINE : VERDICT_STATE))
            fail_msg("step %d: %s, norm %g", i, train_verdict_text(r.verdict), r.grad_norm);
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
        snprintf(
            text, sizeof text,
            "graph \"bad\"\nx = input fp32[4, 2]\nw = input fp32[2, 1]\n%s = input %s\nm = matmul(x, w)\nloss = reduce_mean(m)\nreturn loss\n",
            cases[i].second, cases[i].type);
        graph *g = parse(text, "");
        trainer *t;
        diag d = { 0 };
        const train_param both[] = { { "w", true }, { cases[i].second, true } };
        train_options o = { .engine = "cpu",
                            .optimizer = cases[i].optimizer,
                            .loss = graph_find(g, "loss"),
                            .param = both,
                            .n_param = 2,
                            .fetch = &(train_fetched){ "it", { cases[i].fetch } },
                            .n_fetch = 1,
                            .freeze_unreached = true,
                            .device.threads = 1 };
        an_status st = train_open(&t, g, &o, &d);
        if (st != (cases[i].says ? AN_INPUT : AN_OK) || (st && !strstr(d.msg, cases[i].says)))
            fail_msg("row %zu: status %d: %s", i, (int)st, d.msg);
        train_close(t);
        graph_free(g);
    }
    graph *g = parse(hinge_text, ""); /* a scale that goes to an fp16 loss, from a device with numbers of fp32 */
    trainer *t;
    diag d = { 0 };
    train_options o = { .engine = "cpu",
                        .loss = graph_find(g, "loss"),
                        .param = &(train_param){ "w", true },
                        .n_param = 1,
                        .loss_scale = 1e6,
                        .dynamic_scale = true };
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
    static const char text[] =
        "graph \"names\"\nx = input fp16[4, 2]\nw = input fp16[2, 1]\ns0000_w = matmul(x, w)\none = const fp16[] {1}\nb0000_x = sub(one, s0000_w)\n"
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(overflow_leaves_no_trace),
        cmocka_unit_test(a_step_too_far),
        cmocka_unit_test(a_bad_minibatch_of_a_group),
        cmocka_unit_test(a_group_too_far),
        cmocka_unit_test(numbers_refused),
        cmocka_unit_test(a_refused_minibatch),
        cmocka_unit_test(devices_of_all_kinds),
        cmocka_unit_test(scales_by_default),
        cmocka_unit_test(verdicts),
        cmocka_unit_test(a_moment_too_far),
        cmocka_unit_test(refusals),
        cmocka_unit_test(names_of_ports),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
