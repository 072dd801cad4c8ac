/* test_pipe_broken: books that went wrong: an update that failed between two layers, a number that is none. */
#include <math.h>
#include <stdatomic.h>
#include <unistd.h>

#include "device/device_int.h"
#include "lm_run_t.h"
#include "pipe_t.h"
#include "train/ckpt.h"
#include "train/pipe_host.h"
#include "train/pipe_int.h"

static float start(const char *name, double size, rng *r)
{
    return (float)((strstr(name, "norm") ? 1 : 0) + size * rng_normal(r));
}

/* Dispatches of the books' own device until one fails for want of memory. */
static bool starve(void *user, const char *where)
{
    atomic_int *left = user;
    return !strcmp(where, "dispatch") && atomic_fetch_sub(left, 1) == 1;
}

static an_status one(pipeline *p, uint64_t k, double *loss, diag *d)
{
    int32_t ids[B * (T + 1)];
    train_report rep;
    bool again = false;
    batch(k, ids);
    an_status st = pipe_step(p, ids, 0.01, &rep, &again, d);
    *loss = rep.loss;
    return st;
}

static void run(pipeline *p, uint64_t from, int n, double *loss)
{
    diag d = { 0 };
    for (int i = 0; i < n; i++) assert_ok(one(p, from + (uint64_t)i, loss + i, &d), d);
}

/* After none, one or two of the three pieces of an update of two layers: the state is of no step. Nothing computes with
 * it, nothing saves it, and from a file the run goes on as if nothing had been. */
static void breaks_off(const char *engine, const char *way, int pieces)
{
    enum { MEASURED = 1, N = 3 };
    char path[] = "/tmp/anneal-pipe-XXXXXX";
    device *dev;
    pipeline *p;
    double good[N], bad[N], loss;
    int32_t ids[B * (T + 1)];
    diag d = { 0 }, e = { 0 }, f = { 0 }, g = { 0 };
    atomic_int left = MEASURED + pieces + 1;
    model_config c = small(2);
    int fd = mkstemp(path);
    assert_true(fd >= 0 && !close(fd));
    device_limit many = { "compiles", 1000 };
    device_options o = { .own_budget = true, .limit = &many, .n_limit = strcmp(engine, "cpu") ? 1 : 0 };
    assert_ok(device_open(&dev, engine, &o, &d), d);
    assert_ok(pipe_open(&p, &(pipe_options){ .pipeline = way, .dev = dev, .config = &c, .batch = B, .train = { .optimizer = "adamw", .eps = 1e-3 } }, &d), d);
    fill_with(p, start, 0.1);
    run(p, 0, 2, good);
    assert_ok(pipe_save(p, path, NULL, 0, &d), d);
    run(p, 2, N, good);
    assert_ok(pipe_load(p, path, NULL, 0, NULL, &d), d);
    device *books = ((host *)p->way)->cpu;
    books->opt.fault = starve, books->opt.user = &left;
    assert_ok(one(p, 2, &loss, &d), d); /* the update is behind it */
    batch(3, ids);
    assert_int_equal(pipe_loss(p, ids, &loss, &e), AN_NOMEM);
    assert_int_equal(left, 0);
    assert_int_equal(one(p, 3, &loss, &f), AN_NOMEM);
    assert_non_null(strstr(f.msg, "an update broke off between two layers"));
    assert_int_equal(pipe_save(p, path, NULL, 0, &g), AN_NOMEM);
    assert_ok(pipe_load(p, path, NULL, 0, NULL, &d), d);
    run(p, 2, N, bad);
    assert_memory_equal(good, bad, sizeof good);
    pipe_close(p);
    device_close(dev);
    unlink(path);
}

static void every_way(void **unused)
{
    (void)unused;
    static const char *const engines[] = { "cpu", "soft:m4" }, *const ways[] = { "delta", "dynamic", "restart" };
    for (size_t e = 0; e < COUNT(engines); e++)
        for (size_t w = 0; w < COUNT(ways); w++)
            for (int pieces = 0; pieces < 3; pieces++) breaks_off(engines[e], ways[w], pieces);
}

/* One element of a weight or moment, behind everybody's back; what it was. */
static float put(pipeline *p, const char *name, float x)
{
    diag d = { 0 };
    void *at;
    trainer *t = ((host *)p->way)->t;
    size_t i = 0;
    while (i < t->states.n && strcmp(t->states.at[i].name, name)) i++;
    assert_true(i < t->states.n);
    dev_surface *s = state_now(t, &t->states.at[i]);
    assert_ok(dev_surface_lock(s, false, &at, &d), d);
    float was = ((float *)at)[7];
    ((float *)at)[7] = x;
    assert_ok(dev_surface_unlock(s, &d), d);
    return was;
}

/* However it got there: it is not saved, and what was saved before stays. */
static void no_number(void **unused)
{
    (void)unused;
    static const struct {
        const char *name;
        float x;
    } rows[] = { { "l01_wq", NAN }, { "embed", -INFINITY }, { "l00_norm1.v", INFINITY }, { "l01_w2.m", NAN } };
    small_run r;
    diag d = { 0 };
    device *dev;
    lm_model *m;
    lm_shape s;
    pipeline *p;
    path_info i;
    char path[200];
    small_begin(&r);
    assert_ok(device_open(&dev, "cpu", NULL, &d), d);
    assert_ok(lm_open(r.model, &(lm_options){ .dt = DT_F32, .seed = 1 }, &m, &d), d);
    assert_ok(lm_shape_make(&s, m, &(lm_shape_options){ 0 }, &d), d);
    assert_ok(pipe_open(&p, &(pipe_options){ .pipeline = "delta", .dev = dev, .config = &s.c, .batch = 1, .seq = 8, .train.optimizer = "adamw" }, &d), d);
    assert_ok(lm_shape_put(&s, p, &d), d);
    ckpt_options o = { .dir = r.save, .generation = lm_generation_of(m) };
    ckpt_note note = { .step = 1, .applied = 1, .smooth = 5 };
    assert_ok(ckpt_save(&o, p, &s, &note, &d), d);
    note.step = note.applied = 2;
    for (size_t k = 0; k < COUNT(rows); k++) {
        diag why = { 0 };
        float was = put(p, rows[k].name, rows[k].x);
        assert_int_equal(ckpt_save(&o, p, &s, &note, &why), AN_MISMATCH);
        assert_non_null(strstr(why.msg, rows[k].name));
        small_path(&r, "step-00000002", path, sizeof path);
        assert_false(path_look(path, &i));
        small_path(&r, "step-00000001/train.json", path, sizeof path);
        assert_true(path_look(path, &i));
        put(p, rows[k].name, was);
    }
    assert_ok(ckpt_save(&o, p, &s, &note, &d), d);
    pipe_close(p);
    lm_shape_free(&s);
    lm_close(m);
    device_close(dev);
    small_end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_way), cmocka_unit_test(no_number) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
