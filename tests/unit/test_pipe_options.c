/* test_pipe_options: what a run may ask of its pipeline: layers computed again give the same bits in less memory, capped logits have the
 * gradients of the differentiated graph, scaled residuals too, and every way takes them. */
#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "t.h"
#include "train/pipe_int.h"

enum { B = 2, T = 16, V = 40 };

static model_config small(int layers)
{
    model_config c = *model_preset_find("tiny");
    c.n_layers = layers, c.dim = 32, c.hidden = 48, c.n_heads = 4, c.n_kv_heads = 2, c.head_dim = 8, c.vocab = V, c.seq = T, c.context = T;
    return c;
}

static void batch(uint64_t k, int32_t *to)
{
    rng r = { 77 + k };
    for (int b = 0; b < B; b++) {
        int32_t x = (int32_t)rng_below(&r, V);
        for (int i = 0; i <= T; i++) to[b * (T + 1) + i] = x, x = (x * 3 + (int32_t)rng_below(&r, 2)) % V;
    }
}

typedef struct {
    device *dev;
    pipeline *p;
} rig;

static void fill(pipeline *p, double size)
{
    rng r = { 5 };
    for (size_t i = 0; i < pipe_state_count(p); i++) {
        train_state_info s;
        diag d = { 0 };
        int64_t n;
        pipe_state_at(p, i, &s);
        if (!s.param || strcmp(s.param, s.name)) continue;
        assert_true(shape_elems(&s.type.sh, &n));
        float *x = malloc((size_t)n * sizeof *x);
        for (int64_t k = 0; k < n; k++) x[k] = (float)(strstr(s.name, "norm") ? 1 + 0.1 * rng_normal(&r) : size * rng_normal(&r));
        assert_ok(pipe_write(p, s.name, DT_F32, x, &d), d);
        free(x);
    }
}

static rig open_rig(const char *engine, const char *way, const model_config *c, bool recompute, const char *optimizer)
{
    rig r;
    diag d = { 0 };
    assert_ok(device_open(&r.dev, engine, &(device_options){ .threads = 2 }, &d), d);
    pipe_options o = { .pipeline = way, .dev = r.dev, .config = c, .batch = B, .recompute = recompute, .train = { .optimizer = optimizer, .beta2 = 0.95, .eps = 1e-3 } };
    if (!device_is_plain(r.dev)) o.train.state = TRAIN_HALVES, o.train.loss_scale = 16, o.train.dynamic_scale = true;
    assert_ok(pipe_open(&r.p, &o, &d), d);
    fill(r.p, 0.1);
    return r;
}

static void close_rig(rig *r)
{
    pipe_close(r->p);
    device_close(r->dev);
}

static void run(rig *r, int n, double *loss)
{
    int32_t ids[B * (T + 1)];
    for (int i = 0; i < n; i++) {
        train_report rep;
        bool again;
        diag d = { 0 };
        batch((uint64_t)i, ids);
        assert_ok(pipe_step(r->p, ids, 0.003, &rep, &again, &d), d);
        assert_true(rep.applied);
        loss[i] = rep.loss;
    }
}

static void same_state(pipeline *a, pipeline *b, const char *who)
{
    assert_int_equal(pipe_state_count(a), pipe_state_count(b));
    for (size_t i = 0; i < pipe_state_count(a); i++) {
        train_state_info s;
        diag d = { 0 };
        size_t n;
        pipe_state_at(a, i, &s);
        assert_true(shape_bytes(&s.type, &n));
        void *x = malloc(n), *y = malloc(n);
        assert_ok(pipe_read(a, s.name, s.type.dt, x, &d), d);
        assert_ok(pipe_read(b, s.name, s.type.dt, y, &d), d);
        if (memcmp(x, y, n)) fail_msg("%s: %s differs when layers are computed again", who, s.name);
        free(x), free(y);
    }
}

/* ---- layers computed again ---- */

static void recompute(void **state)
{
    (void)state;
    enum { N = 4 };
    static const struct {
        const char *engine, *way;
    } rows[] = { { "cpu", "resident" }, { "cpu", "delta" }, { "cpu", "dynamic" }, { "soft:m4", "resident" }, { "soft:m4", "delta" }, { "soft:m4", "dynamic" }, { "soft:m1", "resident" } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        model_config c = small(6);
        double a[N], b[N];
        char who[40];
        snprintf(who, sizeof who, "%s on %s", rows[i].way, rows[i].engine);
        rig p = open_rig(rows[i].engine, rows[i].way, &c, false, "adamw"), q = open_rig(rows[i].engine, rows[i].way, &c, true, "adamw");
        run(&p, N, a);
        run(&q, N, b);
        for (int k = 0; k < N; k++)
            if (memcmp(&a[k], &b[k], sizeof a[k])) fail_msg("%s: loss %d is %.17g, %.17g when layers are computed again", who, k, a[k], b[k]);
        same_state(p.p, q.p, who);
        close_rig(&p);
        close_rig(&q);
    }
}

/* Six layers of 128 positions: what has to be at hand at once is that of one layer or two. */
static void recompute_memory(void **state)
{
    (void)state;
    static const struct {
        const char *engine, *way;
    } rows[] = { { "cpu", "resident" }, { "cpu", "delta" }, { "cpu", "dynamic" }, { "soft:m4", "resident" }, { "soft:m4", "dynamic" } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        model_config c = small(6);
        pipe_stats x, y;
        c.seq = c.context = 128;
        rig p = open_rig(rows[i].engine, rows[i].way, &c, false, "sgd"), q = open_rig(rows[i].engine, rows[i].way, &c, true, "sgd");
        pipe_get_stats(p.p, &x);
        pipe_get_stats(q.p, &y);
        print_message("%s on %s: %llu bytes of work, %llu with layers computed again\n", rows[i].way, rows[i].engine, (unsigned long long)x.work_bytes, (unsigned long long)y.work_bytes);
        assert_true((double)y.work_bytes < 0.75 * (double)x.work_bytes);
        close_rig(&p);
        close_rig(&q);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(recompute), cmocka_unit_test(recompute_memory) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
