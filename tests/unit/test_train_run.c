/* Whole runs: the same bits whatever the number of threads and wherever they were interrupted; log lines; names that are not there. */
#include <jansson.h>
#include <math.h>
#include <unistd.h>

#include "t.h"
#include "train/run.h"

typedef struct {
    int lines, accuracies;
    double first, last; /* losses of the first and of the last five steps, summed */
    int64_t steps;
} heard;

static void on_log(void *user, const char *line)
{
    static const char *const keys[] = { "step", "loss", "lr", "tok_s", "ms", "grad_norm", "nonfinite", "loss_scale" };
    heard *h = user;
    json_error_t e;
    json_t *j = json_loads(line, JSON_REJECT_DUPLICATES, &e);
    if (!j) fail_msg("%s: %s", line, e.text);
    for (size_t i = 0; i < COUNT(keys); i++)
        if (!json_is_number(json_object_get(j, keys[i]))) fail_msg("%s: no number %s", line, keys[i]);
    double loss = json_number_value(json_object_get(j, "loss"));
    if (h->lines < 5) h->first += loss;
    if (h->lines >= 15) h->last += loss;
    h->lines++;
    h->steps = json_integer_value(json_object_get(j, "step"));
    json_decref(j);
}

static void on_accuracy(void *user, int64_t step, double accuracy)
{
    heard *h = user;
    assert_int_equal(step, 10 * h->accuracies++);
    assert_true(accuracy >= 0 && accuracy <= 1);
}

static const struct {
    const char *model, *engine, *optimizer;
    int accum;
    bool dynamic;
    double lr; /* 0: the default; few steps of few samples need more */
} cases[] = {
    { "digits", "soft:m1", NULL, 1, false, 0 },
    { "mlp", "cpu", "adam", 1, false, 0.01 },
    { "glu", "soft:m4", "adamw", 2, true, 0.01 },
    { "charlm", "cpu", NULL, 1, false, 0 },
};

static train_run_options options(size_t i, heard *h)
{
    return (train_run_options){ .model = cases[i].model, .engine = cases[i].engine, .optimizer = cases[i].optimizer, .accum = cases[i].accum, .lr = cases[i].lr,
                                .dynamic_scale = cases[i].dynamic, .loss_scale = cases[i].dynamic ? 64 : 0, .batch = 8, .seed = 5, .steps = 20, .every = 10, .test = 24, .final_test = 16,
                                .on_log = on_log, .on_accuracy = on_accuracy, .user = h };
}

static void interrupted_or_not(void **state)
{
    (void)state;
    char path[] = "/tmp/an_run_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    for (size_t i = 0; i < COUNT(cases); i++) {
        heard whole = { 0 }, half = { 0 }, rest = { 0 };
        train_run_result a, b, c;
        diag d = { 0 };
        train_run_options o = options(i, &whole);
        o.device.threads = 1;
        assert_ok(train_run(&o, &a, NULL, &d), d);
        assert_int_equal(whole.lines, 20);
        assert_int_equal(whole.accuracies, 3);
        if (!(whole.last < whole.first)) fail_msg("%s: loss from %g to %g", cases[i].model, whole.first, whole.last);
        assert_int_equal(a.stats.dispatches, a.stats.minibatches);
        assert_int_equal(a.stats.minibatches, 20 * cases[i].accum);
        assert_int_equal(a.final_n, 16);
        /* ten steps of the same twenty, kept; then the rest, on two threads */
        o = options(i, &half);
        o.save = path, o.steps = 20, o.final_test = -1;
        o.device.threads = 2;
        o.schedule = "constant";
        train_run_options p = o;
        assert_ok(train_run(&o, &b, NULL, &d), d);
        p.steps = 10, p.user = &rest;
        assert_ok(train_run(&p, &c, NULL, &d), d);
        p.steps = 20, p.resume = path, p.save = NULL, p.on_accuracy = NULL;
        p.device.threads = 1;
        rest.lines = 0;
        assert_ok(train_run(&p, &c, NULL, &d), d);
        assert_int_equal(rest.lines, 10);
        if (b.digest != c.digest || b.loss != c.loss) fail_msg("%s: going on differs: loss %.9g and %.9g", cases[i].model, b.loss, c.loss);
        p.seed = 6; /* another order of samples: not this run's file */
        diag why = { 0 };
        assert_int_equal(train_run(&p, &c, NULL, &why), AN_INPUT);
        assert_non_null(strstr(why.msg, "run.seed"));
    }
    unlink(path);
}

static void refusals(void **state)
{
    (void)state;
    static const struct {
        train_run_options o;
        an_status st;
        const char *says;
    } rows[] = {
        { { .model = "resnet" }, AN_USAGE, "digits, mlp" },
        { { .model = NULL }, AN_USAGE, "unknown network" },
        { { .model = "mlp", .pipeline = "delta" }, AN_USAGE, "pipeline \"delta\"" },
        { { .model = "mlp", .schedule = "wavy" }, AN_USAGE, "constant, linear, cosine" },
        { { .model = "mlp", .optimizer = "lion" }, AN_USAGE, "lion" },
        { { .model = "mlp", .engine = "soft:m9" }, AN_USAGE, "m9" },
        { { .model = "mlp", .data = "mnist:/nowhere" }, AN_INPUT, "/nowhere" },
        { { .model = "mlp", .data = "letters" }, AN_INPUT, "wants images" },
        { { .model = "charlm", .data = "strokes" }, AN_INPUT, "wants text" },
        { { .model = "digits", .data = "text:/no/such/file" }, AN_INPUT, "data text:/no/such/file is text; the network digits wants images" },
        { { .model = "mlp", .resume = "/nowhere/file" }, AN_INPUT, "/nowhere/file" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        train_run_result r;
        diag d = { 0 };
        an_status st = train_run(&rows[i].o, &r, NULL, &d);
        if (st != rows[i].st || !strstr(d.msg, rows[i].says)) fail_msg("row %zu: status %d: %s", i, (int)st, d.msg);
    }
}

static void schedules(void **state)
{
    (void)state;
    train_schedule s = { .lr = 2, .lr_end = 0.1, .warmup = 4, .steps = 12 };
    for (int k = 0; k < SCHEDULE_COUNT; k++) {
        s.kind = (train_schedule_kind)k;
        for (int i = 0; i < 4; i++) assert_true(fabs(train_schedule_lr(&s, i) - 0.5 * (i + 1)) < 1e-12);
        assert_true(fabs(train_schedule_lr(&s, 4) - 2) < 1e-12);
        double half = train_schedule_lr(&s, 8), end = train_schedule_lr(&s, 12), past = train_schedule_lr(&s, 100);
        assert_true(fabs(half - (k == SCHEDULE_CONSTANT ? 2 : 1.1)) < 1e-12); /* both fall half of the way in half of the time */
        assert_true(fabs(end - (k == SCHEDULE_CONSTANT ? 2 : 0.2)) < 1e-12 && past == end);
        for (int i = 5; i < 12; i++) assert_true(train_schedule_lr(&s, i) <= train_schedule_lr(&s, i - 1));
    }
    s = (train_schedule){ .kind = SCHEDULE_LINEAR, .lr = 1, .steps = 10 };
    assert_true(train_schedule_lr(&s, 0) == 1 && fabs(train_schedule_lr(&s, 5) - 0.5) < 1e-12);
}

#define MNIST "../shared/data/mnist"
static const char *const data = "mnist:" MNIST;

static bool no_mnist(void)
{
    if (!access(MNIST, R_OK)) return false;
    print_message("%s is not here\n", MNIST);
    return true;
}

/* The published run's bar on the published data, where the data is. */
static void digits_on_mnist(void **state)
{
    (void)state;
    if (no_mnist()) return;
    train_run_result m1, m5;
    diag d = { 0 };
    train_run_options o = { .model = "digits", .data = data, .engine = "soft:m1", .seed = 1, .every = -1, .final_test = 1000 };
    assert_ok(train_run(&o, &m1, NULL, &d), d);
    o.engine = "soft:m5";
    assert_ok(train_run(&o, &m5, NULL, &d), d);
    print_message("%.4f on m1, %.4f on m5\n", m1.final_accuracy, m5.final_accuracy);
    assert_true(m1.final_accuracy >= 0.9080);
    assert_true(fabs(m1.final_accuracy - m5.final_accuracy) < 0.00151);
}

static void mlp_on_mnist(void **state)
{
    (void)state;
    if (no_mnist()) return;
    train_run_result cpu;
    diag d = { 0 };
    train_run_options o = { .model = "mlp", .data = data, .engine = "cpu", .seed = 1, .steps = 2000, .every = -1 };
    assert_ok(train_run(&o, &cpu, NULL, &d), d);
    print_message("%.4f on all test images\n", cpu.final_accuracy);
    assert_true(cpu.final_accuracy >= 0.975);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(interrupted_or_not), cmocka_unit_test(refusals), cmocka_unit_test(schedules), cmocka_unit_test(digits_on_mnist), cmocka_unit_test(mlp_on_mnist),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
