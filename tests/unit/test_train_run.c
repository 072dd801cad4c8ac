/* Whole runs: the same bits whatever the number of threads and wherever they were interrupted; log lines; names that
 * are not there. */
#include <jansson.h>
#include <math.h>
#include <unistd.h>

#include "base/io.h"
#include "format/safetensors.h"
#include "model/net.h"
#include "t.h"
#include "train/lm_run.h"
#include "train/run.h"

typedef struct {
    int lines, accuracies;
    double first, last; /* losses of the first and of the last five steps, summed */
    double smooth;
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
    h->smooth = json_number_value(json_object_get(j, "smooth"));
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
    return (train_run_options){ .model = cases[i].model, .engine = cases[i].engine, .optimizer = cases[i].optimizer,
                                .accum = cases[i].accum, .lr = cases[i].lr, .dynamic_scale = cases[i].dynamic,
                                .loss_scale = cases[i].dynamic ? 64 : 0, .batch = 8, .seed = 5, .steps = 20,
                                .every = 10, .test = 24, .final_test = 16, .on_log = on_log, .on_accuracy = on_accuracy,
                                .user = h };
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
        o.save = path, o.stop_after = 10, o.final_test = -1;
        o.device.threads = 2;
        assert_ok(train_run(&o, &b, NULL, &d), d);
        assert_true(b.stopped && b.first == 0 && b.done == 10 && b.digest != a.digest);
        assert_int_equal(half.lines, 10);
        train_run_options p = options(i, &rest);
        p.resume = path, p.on_accuracy = NULL;
        p.device.threads = 1;
        assert_ok(train_run(&p, &c, NULL, &d), d);
        assert_int_equal(rest.lines, 10);
        assert_int_equal(rest.steps, 20);
        assert_true(!c.stopped && c.first == 10 && c.done == 20);
        if (a.digest != c.digest || a.loss != c.loss)
            fail_msg("%s: going on differs: loss %.9g and %.9g", cases[i].model, a.loss, c.loss);
        if (whole.smooth != rest.smooth)
            fail_msg("%s: smoothed loss %.9g and %.9g", cases[i].model, whole.smooth, rest.smooth);
        assert_true(a.final_accuracy == c.final_accuracy);
    }
    unlink(path);
}

/* A decay of 100 times a rate of 0.001 takes a tenth of a matrix in one update, and nothing of what the network says
 * is none: gains stay near 1. */
static void what_decays(void **state)
{
    (void)state;
    char path[] = "/tmp/an_decay_XXXXXX";
    int fd = mkstemp(path), gains = 0, matrices = 0;
    static const char *const nets[] = { "charlm", "normconv" };
    assert_true(fd >= 0);
    close(fd);
    for (size_t i = 0; i < COUNT(nets); i++) {
        train_run_options o = { .model = nets[i], .engine = "cpu", .optimizer = "adamw", .lr = 1e-3, .decay = 100,
                                .schedule = "constant", .warmup = -1, .batch = 4, .seed = 5, .steps = 1, .every = -1,
                                .final_test = -1, .save = path };
        train_run_result a;
        diag d = { 0 };
        safetensors *f;
        net n;
        assert_ok(train_run(&o, &a, NULL, &d), d);
        assert_ok(safetensors_open(path, &f, &d), d);
        assert_ok(net_build(nets[i], &(net_options){ .batch = 4 }, &n, &d), d);
        for (int k = 0; k < n.n_param; k++) {
            const safetensor *w = safetensors_find(f, n.param[k].name);
            double now = 0;
            assert_non_null(w);
            for (int64_t q = 0; q < w->count; q++) now = fmax(now, fabs(dtype_load(w->dt, w->data, q)));
            /* some number of it is near the end */
            const bool gain = n.param[k].init == NET_ONES,
                       matrix = n.param[k].init == NET_UNIFORM && net_param_count(&n, k) > 500;
            const double from = gain ? 1 : n.param[k].scale, want = gain ? 1 : 0.9 * from;
            if ((gain || matrix) && fabs(now - want) > 2e-3 + (gain ? 0 : 0.03 * from))
                fail_msg("%s: %s went from %g to %g, wanted %g", nets[i], n.param[k].name, from, now, want);
            gains += gain, matrices += matrix;
        }
        safetensors_close(f);
        net_free(&n);
    }
    assert_true(gains > 4 && matrices > 0);
    unlink(path);
}

static train_run_options mine(train_run_options o)
{
    if (!o.model) o.model = "mlp";
    if (!o.engine) o.engine = "soft:m1";
    if (!o.batch) o.batch = 4;
    if (!o.steps) o.steps = 8;
    if (!o.seed) o.seed = 1;
    o.every = o.final_test = -1;
    return o;
}

/* A checkpoint of 4 of 8 steps, and everything with which it must not go on. */
static void of_another_run(void **state)
{
    (void)state;
    char path[] = "/tmp/an_other_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    static const struct {
        train_run_options o;
        const char *says;
    } rows[] = {
        { { .model = "glu" }, "\"model mlp\"; this run has \"model glu\"" },
        { { .engine = "soft:m5" }, "\"engine soft:m1\"; this run has \"engine soft:m5\"" },
        { { .engine = "cpu" }, "\"engine soft:m1\"; this run has \"engine cpu\"" },
        { { .seed = 2 }, "\"seed 1\"; this run has \"seed 2\"" },
        { { .batch = 8 }, "\"batch 4\"; this run has \"batch 8\"" },
        { { .accum = 2 }, "\"accum 1\"; this run has \"accum 2\"" },
        { { .optimizer = "sgd" }, "\"optimizer momentum\"; this run has \"optimizer sgd\"" },
        { { .decay = 0.01 }, "\"decay 0\"; this run has \"decay 0.01\"" },
        { { .clip = 1 }, "\"clip 0\"; this run has \"clip 1\"" },
        { { .loss_scale = 512 }, "\"loss scale 1024\"; this run has \"loss scale 512\"" },
        { { .loss_scale = 1024, .dynamic_scale = true }, "\"loss scale 1024\"; this run has \"loss scale dynamic\"" },
        { { .lr = 0.1000000000000001 }, "\"lr 0.1\"; this run has \"lr 0.1000000000000001\"" },
        { { .lr_end = -1 }, "\"lr-end 0.02\"; this run has \"lr-end 0\"" },
        { { .schedule = "linear" }, "\"schedule cosine\"; this run has \"schedule linear\"" },
        { { .warmup = 2 }, "\"warmup 0\"; this run has \"warmup 2\"" },
        { { .steps = 9 }, "\"steps 8\"; this run has \"steps 9\"" },
        { { .data = "strokes:1" }, "trained on strokes with checksum " },
        { { .state = TRAIN_HALVES }, "momentum halves" },
    };
    train_run_result r;
    diag d = { 0 };
    train_run_options o = mine((train_run_options){ .save = path, .stop_after = 4 });
    assert_ok(train_run(&o, &r, NULL, &d), d);
    for (size_t i = 0; i < COUNT(rows); i++) {
        diag why = { 0 };
        o = mine(rows[i].o), o.resume = path;
        an_status st = train_run(&o, &r, NULL, &why);
        if (st != AN_INPUT || !strstr(why.msg, rows[i].says) || !strstr(why.msg, path))
            fail_msg("row %zu: status %d: %s", i, (int)st, why.msg);
        assert_true(r.stats.ran == 0 && r.digest == 0);
    }
    diag past = { 0 };
    o = mine((train_run_options){ .resume = path, .steps = 3 });
    assert_int_equal(train_run(&o, &r, NULL, &past), AN_USAGE);
    assert_non_null(strstr(past.msg, "is already at step 4 of 3"));
    /* the same drawn digits by another name */
    o = mine((train_run_options){ .resume = path, .data = "strokes:0", .save = path });
    assert_ok(train_run(&o, &r, NULL, &d), d);
    uint64_t end = r.digest;
    assert_true(r.first == 4 && r.done == 8 && end);
    o.data = NULL, o.save = NULL; /* nothing is left to do: its state, and no loss */
    assert_ok(train_run(&o, &r, NULL, &d), d);
    assert_true(r.first == 8 && r.done == 8 && r.digest == end && isnan(r.loss) && r.stats.ran == 0);
    unlink(path);
}

/* Where no rate depends on the end, it may be moved. */
static void a_constant_rate_goes_on(void **state)
{
    (void)state;
    char path[] = "/tmp/an_constant_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    train_run_result whole, half;
    diag d = { 0 };
    train_run_options o = {
        .model = "mlp", .engine = "cpu", .batch = 4, .steps = 10, .schedule = "constant", .every = -1, .final_test = -1
    };
    assert_ok(train_run(&o, &whole, NULL, &d), d);
    o.steps = 5, o.save = path;
    assert_ok(train_run(&o, &half, NULL, &d), d);
    o.steps = 10, o.resume = path;
    assert_ok(train_run(&o, &half, NULL, &d), d);
    assert_true(whole.digest == half.digest && half.first == 5);
    unlink(path);
}

/* One bit anywhere in the tensors; notes that are gone. */
static void damaged_files(void **state)
{
    (void)state;
    char path[] = "/tmp/an_damaged_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    train_run_result r;
    diag d = { 0 };
    train_run_options o = { .model = "digits", .engine = "soft:m1", .batch = 4, .steps = 4, .every = -1,
                            .final_test = -1, .save = path, .state = TRAIN_HALVES };
    assert_ok(train_run(&o, &r, NULL, &d), d);
    o.save = NULL, o.resume = path;
    file_bytes f;
    assert_ok(file_read(path, 1 << 24, &f, &d), d);
    size_t head = 8;
    for (int i = 0; i < 8; i++) head += (size_t)f.at[i] << 8 * i;
    assert_true(head < f.n);
    for (int i = 0; i < 7; i++) {
        size_t at = i == 6 ? f.n - 1 : head + (f.n - head) * (size_t)i / 6;
        diag why = { 0 };
        f.at[at] ^= (unsigned char)(1 << i);
        assert_ok(file_write(path, f.at, f.n, &d), d);
        f.at[at] ^= (unsigned char)(1 << i);
        assert_int_equal(train_run(&o, &r, NULL, &why), AN_INPUT);
        if (!strstr(why.msg, "the file is damaged")) fail_msg("bit %d of byte %zu: %s", i, at, why.msg);
    }
    static const struct {
        const char *from, *to, *says;
    } rows[] = {
        { "\"run.engine\"", "\"ran.engine\"", "no run.engine: an earlier version wrote it" },
        { "\"run.model\"", "\"ran.model\"", "no run.model: not a checkpoint of a network" },
        { "\"run.done\":\"4\"", "\"run.done\":\"x\"", "run.done is \"x\"; a whole number is wanted" },
        { "\"run.drawn\":\"16\"", "\"run.drawn\":\"-6\"", "run.drawn is \"-6\"" },
        { "\"run.drawn\":\"16\"", "\"run.drawn\":\" 6\"", "run.drawn is \" 6\"" },
        { "\"run.drawn\":\"16\"", "\"run.drawn\":\"1x\"", "run.drawn is \"1x\"" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        diag why = { 0 };
        char *at = NULL;
        for (size_t k = 8; k + strlen(rows[i].from) <= head && !at; k++)
            if (!memcmp(f.at + k, rows[i].from, strlen(rows[i].from))) at = (char *)f.at + k;
        assert_non_null(at);
        memcpy(at, rows[i].to, strlen(rows[i].to));
        assert_ok(file_write(path, f.at, f.n, &d), d);
        memcpy(at, rows[i].from, strlen(rows[i].from));
        assert_int_equal(train_run(&o, &r, NULL, &why), AN_INPUT);
        if (!strstr(why.msg, rows[i].says)) fail_msg("row %zu: %s", i, why.msg);
    }
    assert_ok(file_write(path, f.at, f.n, &d), d);
    assert_ok(train_run(&o, &r, NULL, &d), d);
    file_drop(&f);
    unlink(path);
}

typedef struct {
    char dir[40];
    int warnings, started;
    an_status answer;
} folder;

static void take_folder_away(void *user, int64_t step, double accuracy)
{
    (void)accuracy;
    folder *f = user;
    if (step == 0) assert_int_equal(rmdir(f->dir), 0);
}

static void count_warning(void *user, const char *line)
{
    folder *f = user;
    assert_non_null(strstr(line, "was not saved"));
    f->warnings++;
}

static an_status on_start(void *user)
{
    folder *f = user;
    f->started++;
    return f->answer;
}

static void saving_fails(void **state)
{
    (void)state;
    folder f = { .dir = "/tmp/an_gone_XXXXXX" };
    char path[64];
    train_run_result plain, r;
    diag d = { 0 };
    train_run_options o = {
        .model = "mlp", .engine = "cpu", .batch = 4, .steps = 4, .every = 2, .test = 8, .final_test = 8
    };
    assert_ok(train_run(&o, &plain, NULL, &d), d);
    assert_non_null(mkdtemp(f.dir));
    /* before the first update: nothing is trained */
    o.save = f.dir, o.on_start = on_start, o.user = &f;
    assert_int_equal(train_run(&o, &r, NULL, &d), AN_INPUT);
    assert_true(strstr(d.msg, "is a folder") && r.digest == 0 && !f.started);
    snprintf(path, sizeof path, "%s/no/file", f.dir);
    o.save = path, d = (diag){ 0 };
    assert_int_equal(train_run(&o, &r, NULL, &d), AN_INPUT);
    assert_true(strstr(d.msg, path) && r.stats.ran == 0 && !f.started);
    o.save = "", d = (diag){ 0 };
    assert_int_equal(train_run(&o, &r, NULL, &d), AN_USAGE);
    /* the caller has a word, too; and nothing was left in the folder */
    snprintf(path, sizeof path, "%s/file", f.dir);
    o.save = path, d = (diag){ 0 }, f.answer = AN_UNSUPPORTED;
    assert_int_equal(train_run(&o, &r, NULL, &d), AN_UNSUPPORTED);
    assert_true(f.started == 1 && r.stats.ran == 0);
    /* later: the run ends as it would have, and says that it is not saved */
    o.on_accuracy = take_folder_away, o.warn = count_warning, d = (diag){ 0 }, f.answer = AN_OK;
    assert_int_equal(train_run(&o, &r, NULL, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "the last checkpoint could not be written"));
    assert_int_equal(f.warnings, 3); /* steps 2 and 4, and once more at the end */
    assert_true(r.digest == plain.digest && r.final_accuracy == plain.final_accuracy);
}

typedef struct {
    int64_t left; /* updates until it is asked to end */
    char said[800];
} caller;

static int after_a_while(void *user)
{
    caller *c = user;
    return --c->left <= 0;
}

static void keep_said(void *user, const char *line)
{
    caller *c = user;
    strncat(c->said, line, sizeof c->said - strlen(c->said) - 1);
}

/* Asked to end it saves what it has, and goes on from there to the same bits. */
static void asked_to_end(void **state)
{
    (void)state;
    char path[] = "/tmp/an_asked_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    train_run_result whole, part;
    diag d = { 0 };
    caller c = { .left = 3 };
    train_run_options o = {
        .model = "mlp", .engine = "cpu", .batch = 4, .steps = 8, .every = -1, .final_test = 8, .user = &c
    };
    assert_ok(train_run(&o, &whole, NULL, &d), d);
    o.save = path, o.stop = after_a_while;
    assert_ok(train_run(&o, &part, NULL, &d), d);
    assert_true(part.stopped && part.done == 3 && isnan(part.final_accuracy));
    o.resume = path, c.left = 5; /* with the last update, when there is nothing to stop */
    assert_ok(train_run(&o, &part, NULL, &d), d);
    assert_true(!part.stopped && part.first == 3 && part.done == 8 && part.digest == whole.digest &&
                part.final_accuracy == whole.final_accuracy);
    o.save = o.resume = NULL, c.left = 2; /* nowhere to save */
    assert_ok(train_run(&o, &part, NULL, &d), d);
    assert_true(part.stopped && part.done == 2);
    unlink(path);
}

static char file_saved[40];
static int64_t not_there; /* accuracies of updates that were not saved yet */

static void count_unsaved(void *user, int64_t step, double accuracy)
{
    (void)user, (void)accuracy;
    safetensors *f;
    diag d = { 0 };
    if (!step) return;
    if (safetensors_open(file_saved, &f, &d)) {
        not_there++;
        return;
    }
    const char *steps = safetensors_meta(f, "anneal.steps");
    not_there += !steps || atoll(steps) != step;
    safetensors_close(f);
}

/* An accuracy may take long: what is due is saved before it. */
static void saved_first(void **state)
{
    (void)state;
    strcpy(file_saved, "/tmp/an_first_XXXXXX");
    int fd = mkstemp(file_saved);
    assert_true(fd >= 0);
    close(fd);
    train_run_result r;
    diag d = { 0 };
    caller c = { .left = 4 };
    train_run_options o = { .model = "mlp", .engine = "cpu", .batch = 4, .steps = 8, .every = 2, .test = 8,
                            .final_test = -1, .save = file_saved, .on_accuracy = count_unsaved,
                            .stop = after_a_while, .user = &c };
    assert_ok(train_run(&o, &r, NULL, &d), d);
    assert_true(r.done == 4 && !not_there);
    unlink(file_saved);
}

/* More samples than the data has are said, both numbers, and not refused. */
static void more_than_there_are(void **state)
{
    (void)state;
    static const struct {
        int64_t batch, test, final_test;
        const char *says;
    } rows[] = {
        { 4, 8, 8, "" },
        { 4, 2000, 2000, "" },
        { 4, 2001, 8, "accuracies are of 2000 test samples, not 2001: the data has no more" },
        { 4, 8, 50000, "the last accuracy is of 2000 test samples, not 50000: the data has no more" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        train_run_result r;
        diag d = { 0 };
        caller c = { .left = 1 };
        train_run_options o = { .model = "mlp", .engine = "cpu", .batch = rows[i].batch, .steps = 2, .every = 2,
                                .test = rows[i].test, .final_test = rows[i].final_test, .warn = keep_said,
                                .stop = after_a_while, .user = &c };
        assert_ok(train_run(&o, &r, NULL, &d), d);
        assert_string_equal(c.said, rows[i].says);
    }
}

typedef struct {
    double lr[4];
    int n;
} rates;

static void keep_rate(void *user, const char *line)
{
    rates *r = user;
    json_t *j = json_loads(line, 0, NULL);
    assert_non_null(j);
    if (r->n < 4) r->lr[r->n++] = json_number_value(json_object_get(j, "lr"));
    json_decref(j);
}

/* Nothing left at the end is not the network's own fraction. */
static void last_rates(void **state)
{
    (void)state;
    static const double ends[] = { 0, -1, 0.5 }, left[] = { 0.02, 0, 0.5 };
    for (size_t i = 0; i < COUNT(ends); i++) {
        rates got = { 0 };
        train_run_result r;
        diag d = { 0 };
        assert_ok(train_run(&(train_run_options){ .model = "mlp", .engine = "cpu", .batch = 4, .steps = 4, .lr = 0.1,
                                                  .lr_end = ends[i], .schedule = "linear", .every = -1,
                                                  .final_test = -1, .on_log = keep_rate, .user = &got }, &r, NULL, &d),
                  d);
        assert_int_equal(got.n, 4);
        assert_true(fabs(got.lr[3] - 0.1 * (left[i] + (1 - left[i]) * 0.25)) < 1e-9);
    }
}

static void keep_loss(void *user, const char *line)
{
    json_t *j = json_loads(line, 0, NULL);
    assert_non_null(j);
    *(double *)user = json_number_value(json_object_get(j, "loss"));
    json_decref(j);
}

/* The loss of an update is the mean over all its minibatches: the same samples in one of them have the same. */
static void loss_of_a_group(void **state)
{
    (void)state;
    double loss[2] = { 0 };
    for (int i = 0; i < 2; i++) { /* the first of them is that of guessing whatever the sample */
        train_run_result r;
        diag d = { 0 };
        assert_ok(train_run(&(train_run_options){ .model = "mlp", .engine = "cpu", .batch = i ? 4 : 12, .accum = i ? 3 : 1, .steps = 4, .lr = 0.1, .every = -1, .seed = 5,
                                                  .final_test = -1, .on_log = keep_loss, .user = loss + i }, &r, NULL, &d), d);
    }
    assert_true(fabs(loss[0] - loss[1]) < 1e-4 && fabs(loss[0] - log(10)) > 0.01);
}

/* What fills up the last minibatch of an accuracy is not counted. */
/* A line for every update, that which ends a training with nothing but overflows too. */
static void count_skipped(void *user, const char *line)
{
    int64_t *n = user;
    n[0]++;
    const char *at = strstr(line, "\"nonfinite\":");
    n[1] = at ? strtol(at + strlen("\"nonfinite\":"), NULL, 10) : -1;
}

static void the_last_overflow_is_logged(void **state)
{
    (void)state;
    int64_t lines[2] = { 0, 0 };
    train_run_result r;
    diag d = { 0 };
    an_status st = train_run(&(train_run_options){ .model = "mlp", .engine = "cpu", .steps = 60, .lr = 1e30, .every = -1, .final_test = -1,
                                                   .optimizer = "sgd", .on_log = count_skipped, .user = lines }, &r, NULL, &d);
    assert_int_equal(st, AN_MISMATCH);
    assert_non_null(strstr(d.msg, "32"));
    if (lines[1] != 32 || lines[0] < 32 || lines[0] != r.done + 1)
        fail_msg("%lld lines, the last of %lld overflows, %lld updates before it", (long long)lines[0], (long long)lines[1], (long long)r.done);
}

static void short_last_batch(void **state)
{
    (void)state;
    train_run_result r;
    diag d = { 0 };
    assert_ok(train_run(&(train_run_options){ .model = "mlp", .engine = "cpu", .batch = 16, .steps = 300, .lr = 0.1, .every = -1, .seed = 1, .final_test = 1 }, &r, NULL, &d), d);
    assert_int_equal(r.final_n, 1);
    assert_true(r.final_accuracy == 1); /* not 16 */
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
        { { .model = "mlp", .lr = -1 }, AN_USAGE, "the learning rate is -1, wanted a positive number" },
        { { .model = "mlp", .lr = NAN }, AN_USAGE, "wanted a positive number" },
        { { .model = "mlp", .lr_end = 2 }, AN_USAGE, "2 of the learning rate is left at the end, wanted a fraction" },
        { { .model = "mlp", .lr_end = 0.5, .schedule = "constant" }, AN_USAGE, "the schedule is constant" },
        { { .model = "mlp", .lr_end = -1, .schedule = "constant" }, AN_USAGE, "the schedule is constant" },
        { { .model = "mlp", .batch = 5000 }, AN_USAGE, "a batch of 5000, wanted 1 to 4096" },
        { { .model = "mlp", .seq = 5 }, AN_USAGE, "sequences of 5 for the network mlp, which takes images" },
        { { .model = "mlp", .test = 7, .every = -1 }, AN_USAGE, "7 test samples" },
        { { .model = "mlp", .engine = "soft:m1", .device.fast_math = true }, AN_USAGE, "products in bf16 are a matter of cpu; soft:m1" },
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
        /* both fall half of the way in half of the time */
        assert_true(fabs(half - (k == SCHEDULE_CONSTANT ? 2 : 1.1)) < 1e-12);
        assert_true(fabs(end - (k == SCHEDULE_CONSTANT ? 2 : 0.2)) < 1e-12 && past == end);
        for (int i = 5; i < 12; i++) assert_true(train_schedule_lr(&s, i) <= train_schedule_lr(&s, i - 1));
    }
    s = (train_schedule){ .kind = SCHEDULE_LINEAR, .lr = 1, .steps = 10 };
    assert_true(train_schedule_lr(&s, 0) == 1 && fabs(train_schedule_lr(&s, 5) - 0.5) < 1e-12);
}

static void take_text(void *user, const char *line) { snprintf(user, 200, "%s", line); }

/* A warm-up as long as the run leaves nothing for the schedule, a longer one does not get to the rate that was asked
 * for: both are told, by networks as by language models. */
static void long_warm_ups(void **state)
{
    (void)state;
    static const struct {
        train_schedule_kind kind;
        int64_t warmup;
        const char *says;
    } rows[] = { { SCHEDULE_COSINE, 9, "" },    { SCHEDULE_COSINE, 10, "warm-up of 10 updates in a run of 10: the rate rises to 2, and cosine never begins" },
                 { SCHEDULE_CONSTANT, 10, "" }, { SCHEDULE_LINEAR, 40, "40 updates in a run of 10: the rate rises to 0.5, and linear never begins" },
                 { SCHEDULE_CONSTANT, 40, "the rate rises to 0.5, below its peak" } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char said[200] = "";
        train_schedule s = { .kind = rows[i].kind, .lr = 2, .warmup = rows[i].warmup, .steps = 10 };
        train_schedule_warn(&s, take_text, said);
        if (!strstr(said, rows[i].says) || !*said != !*rows[i].says) fail_msg("row %zu: \"%s\"", i, said);
    }
    char said[200] = "";
    train_run_result r;
    lm_run_result q;
    diag d = { 0 };
    train_run_options o = { .model = "mlp", .engine = "cpu", .steps = 2, .warmup = 2, .batch = 4, .every = -1,
                            .final_test = -1, .warn = take_text, .user = said };
    assert_ok(train_run(&o, &r, NULL, &d), d);
    assert_non_null(strstr(said, "a warm-up of 2 updates in a run of 2"));
    lm_run_options l = { .model = "tiny", .engine = "cpu", .steps = 1, .warmup = 3, .batch = 1, .seq = 8, .validation = -1,
                         .warn = take_text, .user = said };
    assert_ok(lm_run(&l, &q, &d), d);
    assert_non_null(strstr(said, "a warm-up of 3 updates in a run of 1"));
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
    train_run_options o = {
        .model = "digits", .data = data, .engine = "soft:m1", .seed = 1, .every = -1, .final_test = 1000
    };
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
        cmocka_unit_test(interrupted_or_not), cmocka_unit_test(what_decays),
        cmocka_unit_test(of_another_run),     cmocka_unit_test(a_constant_rate_goes_on),
        cmocka_unit_test(damaged_files),      cmocka_unit_test(saving_fails),
        cmocka_unit_test(asked_to_end),       cmocka_unit_test(saved_first),
        cmocka_unit_test(more_than_there_are), cmocka_unit_test(last_rates),
        cmocka_unit_test(loss_of_a_group),    cmocka_unit_test(short_last_batch),
        cmocka_unit_test(the_last_overflow_is_logged),
        cmocka_unit_test(refusals),
        cmocka_unit_test(schedules), cmocka_unit_test(long_warm_ups), cmocka_unit_test(digits_on_mnist),
        cmocka_unit_test(mlp_on_mnist),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
