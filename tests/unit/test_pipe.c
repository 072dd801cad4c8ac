/* test_pipe: a small Llama trained every way there is: losses fall, the ways agree, state goes on where it was left. */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "pipe_t.h"

enum { STEPS = 40 };

static float start(const char *name, double size, rng *r)
{
    return strstr(name, "norm") ? 1.0f : (float)(size * rng_normal(r));
}
static void fill(pipeline *p) { fill_with(p, start, 0.1); }

typedef struct {
    device *dev;
    pipeline *p;
} rig;

static rig open_rig(const char *engine, const char *way)
{
    rig r;
    diag d = { 0 };
    model_config c = small(2);
    assert_ok(device_open(&r.dev, engine, &(device_options){ .own_budget = true }, &d), d);
    pipe_options o = { .pipeline = way, .dev = r.dev, .config = &c, .batch = B,
                       .train = { .optimizer = "adamw", .beta2 = 0.95, .eps = 1e-3, .decay = 0.1, .clip = 1 } };
    if (!device_is_plain(r.dev)) o.train.state = TRAIN_HALVES, o.train.loss_scale = 16, o.train.dynamic_scale = true;
    assert_ok(pipe_open(&r.p, &o, &d), d);
    fill(r.p);
    return r;
}

static void close_rig(rig *r)
{
    pipe_close(r->p);
    device_close(r->dev);
}

static void run(pipeline *p, uint64_t from, int n, double *loss)
{
    int32_t ids[B * (T + 1)];
    for (int i = 0; i < n; i++) {
        train_report r;
        bool again;
        diag d = { 0 };
        batch(from + (uint64_t)i, ids);
        assert_ok(pipe_step(p, ids, 0.003, &r, &again, &d), d);
        loss[i] = r.loss;
    }
}

static void losses_fall(void **state)
{
    (void)state;
    double a[STEPS], b[STEPS];
    rig x = open_rig("cpu", "resident"), y = open_rig("soft:m4", "resident");
    run(x.p, 0, STEPS, a);
    run(y.p, 0, STEPS, b);
    assert_true(fabs(a[0] - log(40)) < 0.5);
    assert_true(a[STEPS - 1] < a[0] - 0.2);
    /* Gradients of fp16 are good to about 1e-3, and AdamW divides each by its own size: with epsilon far below them
     * the noise of the smallest would steer. At 1e-3 the curves stay together. */
    for (int i = 0; i < STEPS; i++) assert_true(fabs(a[i] - b[i]) < 0.02 * a[0]);
    close_rig(&x);
    close_rig(&y);
}

/* Half the steps, a file, another process's pipe, the other half: the same bits. */
static void goes_on(void **state)
{
    (void)state;
    double a[STEPS], b[STEPS];
    diag d = { 0 };
    arena mem = { 0 };
    char path[] = "/tmp/anneal-pipe-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    rig x = open_rig("cpu", "resident"), y = open_rig("cpu", "resident");
    run(x.p, 0, STEPS, a);
    run(y.p, 0, STEPS / 2, b);
    assert_ok(pipe_save(y.p, path, NULL, 0, &d), d);
    close_rig(&y);
    y = open_rig("cpu", "resident");
    assert_ok(pipe_load(y.p, path, NULL, 0, &mem, &d), d);
    run(y.p, STEPS / 2, STEPS - STEPS / 2, b + STEPS / 2);
    assert_memory_equal(a, b, sizeof a);
    close_rig(&x);
    close_rig(&y);
    arena_free(&mem);
    unlink(path);
}

static bool spoil_once(void *user, const char *what)
{
    int *left = user;
    return !strcmp(what, "output") && --*left == 0;
}

/* A result that is no number comes to lie in the state itself: it is not saved over what was, and the run ends by
 * name at once. */
static void a_spoiled_state(void **state)
{
    (void)state;
    static const char *const engines[] = { "cpu", "soft:m4" };
    for (size_t i = 0; i < COUNT(engines); i++) {
        char path[64];
        double loss[3];
        int left = 4; /* of the dispatches */
        train_report r;
        bool again;
        diag d = { 0 };
        int32_t ids[B * (T + 1)];
        rig x;
        model_config c = small(2);
        snprintf(path, sizeof path, "/tmp/anneal_pipe_%d.st", (int)getpid());
        assert_ok(device_open(&x.dev, engines[i], &(device_options){ .spoil = spoil_once, .spoiler = &left }, &d), d);
        assert_ok(pipe_open(&x.p, &(pipe_options){ .pipeline = "resident", .dev = x.dev, .config = &c, .batch = B,
                                                   .train = { .optimizer = "adamw", .clip = 1,
                                                              .loss_scale = i ? 16 : 1 } }, &d), d);
        fill(x.p);
        run(x.p, 0, 3, loss);
        assert_ok(pipe_save(x.p, path, NULL, 0, &d), d);
        batch(3, ids);
        assert_ok(pipe_step(x.p, ids, 0.003, &r, &again, &d), d); /* nobody could see it yet */
        assert_true(r.applied && left == 0);
        assert_int_equal(pipe_save(x.p, path, NULL, 0, &d), AN_MISMATCH);
        assert_non_null(strstr(d.msg, "is not saved"));
        d = (diag){ 0 };
        assert_int_equal(pipe_step(x.p, ids, 0.003, &r, &again, &d), AN_MISMATCH);
        assert_non_null(strstr(d.msg, "the weight "));
        assert_ok(pipe_load(x.p, path, NULL, 0, NULL, &d), d); /* the file of before is whole */
        run(x.p, 3, 3, loss);
        assert_true(isfinite(loss[2]));
        close_rig(&x);
        unlink(path);
    }
}

/* The same in the sums of a group: it is skipped, and the next one begins anew. */
static void spoiled_sums(void **state)
{
    (void)state;
    static const char *const engines[] = { "cpu", "soft:m4" };
    for (size_t i = 0; i < COUNT(engines); i++) {
        char path[64];
        int left = 1;
        diag d = { 0 };
        rig x;
        model_config c = small(2);
        snprintf(path, sizeof path, "/tmp/anneal_pipe_%d.st", (int)getpid());
        assert_ok(device_open(&x.dev, engines[i], &(device_options){ .spoil = spoil_once, .spoiler = &left }, &d), d);
        assert_ok(pipe_open(&x.p, &(pipe_options){ .pipeline = "resident", .dev = x.dev, .config = &c, .batch = B,
                                                   .train = { .optimizer = "adamw", .clip = 1, .accum = 2,
                                                              .loss_scale = i ? 16 : 1 } }, &d), d);
        fill(x.p);
        for (int k = 0; k < 6; k++) {
            int32_t ids[B * (T + 1)];
            train_report r;
            bool again;
            batch((uint64_t)k, ids);
            assert_ok(pipe_step(x.p, ids, 0.003, &r, &again, &d), d);
            if (r.applied != (k == 3 || k == 5) || r.skipped != (k > 0))
                fail_msg("%s: minibatch %d, applied %d, %d skipped", engines[i], k, r.applied, (int)r.skipped);
        }
        assert_ok(pipe_save(x.p, path, NULL, 0, &d), d);
        close_rig(&x);
        unlink(path);
    }
}

static void refusals(void **state)
{
    (void)state;
    diag d = { 0 };
    rig x = open_rig("cpu", "resident");
    model_config c = small(2);
    pipeline *p;
    int32_t ids[B * (T + 1)] = { [5] = 40 };
    train_report r;
    bool again;
    assert_int_equal(pipe_step(x.p, ids, 0.1, &r, &again, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "token 40 at position 5"));
    d = (diag){ 0 };
    assert_int_equal(pipe_open(&p, &(pipe_options){ .pipeline = "sideways", .dev = x.dev, .config = &c }, &d),
                     AN_USAGE);
    assert_non_null(strstr(d.msg, "resident, delta, dynamic, restart"));
    d = (diag){ 0 };
    assert_int_equal(pipe_open(&p, &(pipe_options){ .dev = x.dev, .config = &c, .seq = T + 1 }, &d), AN_USAGE);
    close_rig(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(losses_fall), cmocka_unit_test(goes_on),
                                        cmocka_unit_test(a_spoiled_state), cmocka_unit_test(spoiled_sums),
                                        cmocka_unit_test(refusals) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
