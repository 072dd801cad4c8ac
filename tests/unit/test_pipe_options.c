/* test_pipe_options: what a run may ask of its pipeline: layers computed again give the same bits in less memory,
 * capped logits have the gradients of the differentiated graph, scaled residuals too, and every way takes them. */
#include <math.h>
#include <stdlib.h>

#include "engine/engine.h"
#include "pipe_t.h"
#include "train/pipe_int.h"

typedef struct {
    device *dev;
    pipeline *p;
} rig;

static float start(const char *name, double size, rng *r)
{
    return (float)(strstr(name, "norm") || strstr(name, "post") ? 1 + 0.1 * rng_normal(r) : size * rng_normal(r));
}
static void fill(pipeline *p, double size) { fill_with(p, start, size); }

static void warn(void *user, const char *line)
{
    (void)user;
    print_message("%s\n", line);
}

static rig open_with(const char *engine, const char *way, const model_config *c, bool recompute, const char *optimizer,
                     const device_options *with)
{
    rig r;
    diag d = { 0 };
    assert_ok(device_open(&r.dev, engine, with, &d), d);
    pipe_options o = { .pipeline = way, .dev = r.dev, .config = c, .batch = B, .recompute = recompute,
                       .train = { .optimizer = optimizer, .beta2 = 0.95, .eps = 1e-3, .warn = warn } };
    if (!device_is_plain(r.dev)) o.train.state = TRAIN_HALVES, o.train.loss_scale = 16, o.train.dynamic_scale = true;
    assert_ok(pipe_open(&r.p, &o, &d), d);
    fill(r.p, 0.1);
    return r;
}

static rig open_rig(const char *engine, const char *way, const model_config *c, bool recompute, const char *optimizer)
{
    return open_with(engine, way, c, recompute, optimizer, &(device_options){ .threads = 2, .own_budget = true });
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
        if (!rep.applied)
            fail_msg("%s, %s: update %d was skipped", device_name(r->dev), pipe_name(pipe_kind_of(r->p)), i);
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

static void same_again(const char *engine, const char *way, const model_config *c, int math, const char *who)
{
    enum { N = 4 };
    const device_options with = { .threads = 2, .own_budget = true, .fast_math = math };
    double a[N], b[N];
    rig p = open_with(engine, way, c, false, "adamw", &with), q = open_with(engine, way, c, true, "adamw", &with);
    run(&p, N, a);
    run(&q, N, b);
    for (int k = 0; k < N; k++)
        if (memcmp(&a[k], &b[k], sizeof a[k]))
            fail_msg("%s: loss %d is %.17g, %.17g when layers are computed again", who, k, a[k], b[k]);
    same_state(p.p, q.p, who);
    close_rig(&p);
    close_rig(&q);
}

static void recompute(void **state)
{
    (void)state;
    static const struct {
        const char *engine, *way;
        int math;
    } rows[] = { { "cpu", "resident", 0 },    { "cpu", "resident", FAST_BF16 }, { "cpu", "delta", 0 },
                 { "cpu", "dynamic", 0 },     { "soft:m4", "resident", 0 },     { "soft:m4", "delta", 0 },
                 { "soft:m4", "dynamic", 0 }, { "soft:m1", "resident", 0 } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        const model_config c = small(6);
        char who[40];
        snprintf(who, sizeof who, "%s on %s%s", rows[i].way, rows[i].engine, rows[i].math ? " in bf16" : "");
        same_again(rows[i].engine, rows[i].way, &c, rows[i].math, who);
    }
}

/* On the plain processor what is stored, summed and rounded follows from who reads it, and a value computed again has
 * other readers: in models with biases, with an activation of several pieces, with branches that are normed. */
static void recompute_models(void **state)
{
    (void)state;
    model_config bias = small(2), gelu = small(2), gated = small(2), post = small(2), heads = small(2);
    bias.bias_qkv = bias.bias_o = bias.bias_mlp = true;
    gelu.act = MODEL_ACT_GELU, gelu.norm = MODEL_NORM_LAYER, gelu.rope = MODEL_ROPE_NONE, gelu.bias = true,
    gelu.n_kv_heads = gelu.n_heads;
    gated.act = MODEL_ACT_GEGLU, gated.embed_scale = 5;
    post.act = MODEL_ACT_GEGLU, post.post_norm = true, post.attn_softcap = 4, post.softcap = 5, post.window = 8,
    post.window_every = 2;
    heads.qk_norm = true, heads.bias_qkv = true;
    const struct {
        const char *name;
        const model_config *c;
    } rows[] = { { "biases", &bias },
                 { "gelu", &gelu },
                 { "a gate of gelu", &gated },
                 { "normed branches", &post },
                 { "normed heads", &heads } };
    for (size_t i = 0; i < 2 * COUNT(rows); i++) {
        char who[60];
        snprintf(who, sizeof who, "%s in %s", rows[i / 2].name, i % 2 ? "bf16" : "fp32");
        same_again("cpu", "resident", rows[i / 2].c, i % 2 ? FAST_BF16 : 0, who);
    }
}

/* Six layers of 128 positions: what has to be at hand at once is that of one layer or two. */
static void recompute_memory(void **state)
{
    (void)state;
    static const struct {
        const char *engine, *way;
    } rows[] = { { "cpu", "resident" },
                 { "cpu", "delta" },
                 { "cpu", "dynamic" },
                 { "soft:m4", "resident" },
                 { "soft:m4", "dynamic" } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        model_config c = small(6);
        pipe_stats x, y;
        c.seq = c.context = 128;
        rig p = open_rig(rows[i].engine, rows[i].way, &c, false, "sgd"),
            q = open_rig(rows[i].engine, rows[i].way, &c, true, "sgd");
        pipe_get_stats(p.p, &x);
        pipe_get_stats(q.p, &y);
        print_message("%s on %s: %llu bytes of work, %llu with layers computed again\n", rows[i].way, rows[i].engine,
                      (unsigned long long)x.work_bytes, (unsigned long long)y.work_bytes);
        assert_true((double)y.work_bytes < 0.75 * (double)x.work_bytes);
        close_rig(&p);
        close_rig(&q);
    }
}

/* ---- one input ---- */

/* A device that takes one input surface gets weights and activations side by side, and the curve is the same. */
static void packed(void **state)
{
    (void)state;
    enum { N = 12 };
    static const device_limit one[] = { { "inputs", 1 }, { "row_bytes", 64 } };
    static const struct {
        const char *engine;
        size_t n_limit;
        double far; /* of the first loss */
    } rows[] = { { "cpu", 1, 1e-6 },     { "cpu", 2, 1e-6 },     { "soft:m4", 1, 2e-3 },
                 { "soft:m4", 2, 2e-3 }, { "soft:m3", 0, 2e-3 }, { "soft:m1", 1, 2e-3 } };
    model_config c[5];
    for (size_t k = 0; k < COUNT(c); k++) c[k] = small(2);
    /* heads wider than the stream */
    c[1].qk_norm = true, c[1].tied = !c[1].tied, c[1].vocab_part = 16, c[1].n_heads = 8;
    c[2].norm = MODEL_NORM_LAYER, c[2].act = MODEL_ACT_GELU, c[2].rope = MODEL_ROPE_NONE, c[2].bias = true,
    c[2].n_kv_heads = 4, c[2].hidden = 100;
    c[3].softcap = 5, c[3].host_residual = true, c[3].hidden = 20;
    c[4].act = MODEL_ACT_GEGLU, c[4].post_norm = true, c[4].attn_softcap = 2, c[4].query_dim = 10, c[4].window = 5,
    c[4].window_every = 2, c[4].embed_scale = 4;
    for (size_t i = 0; i < COUNT(rows); i++)
        for (size_t k = 0; k < COUNT(c); k++) {
            double a[N], b[N];
            /* its rules ask for it; what is not packed is seen on another */
            bool m3 = !strcmp(rows[i].engine, "soft:m3");
            rig p = open_rig(m3 ? "soft:m4" : rows[i].engine, "dynamic", &c[k], false, "adamw");
            rig q = open_with(
                rows[i].engine, "dynamic", &c[k], k % 2, "adamw",
                &(device_options){ .threads = 2, .own_budget = true, .limit = one, .n_limit = rows[i].n_limit });
            run(&p, N, a);
            run(&q, N, b);
            for (int s = 0; s < N; s++)
                if (!(fabs(a[s] - b[s]) < rows[i].far * a[0]))
                    fail_msg("%s, config %zu, step %d: loss %.7f, packed %.7f", rows[i].engine, k, s, a[s], b[s]);
            pipe_stats st, plain;
            pipe_get_stats(q.p, &st);
            pipe_get_stats(p.p, &plain);
            assert_true(st.packed && !plain.packed);
            assert_int_equal(st.compiles, c[k].window_every > 1 ? 11 : 9); /* masks of two kinds */
            assert_true(b[N - 1] < b[0]);
            close_rig(&p);
            close_rig(&q);
        }
    /* without it such a device answers as the real one does */
    diag d = { 0 };
    device *dev;
    dev_program *prog;
    dev_request *r;
    dev_surface *s[2], *y;
    engine_error said;
    static const char text[] = "program(1.3)\n[buildInfo = dict<string, string>({{\"coremlc-component-MIL\", \"3510.2.1\"}, {\"coremlc-version\", \"3505.4.1\"}})]\n{\n"
                               "    func main<ios18>(tensor<fp16, [1, 32, 1, 64]> a, tensor<fp16, [1, 32, 1, 64]> b) {\n"
                               "        tensor<fp16, [1, 32, 1, 64]> y = add(x = a, y = b)[name = string(\"y\")];\n    } -> (y);\n}\n";
    assert_ok(device_open(&dev, "soft:m4", &(device_options){ .limit = one, .n_limit = 1 }, &d), d);
    assert_ok(device_compile(dev, &(dev_source){ .text = text, .n_text = sizeof text - 1 }, &prog, &d), d);
    assert_ok(dev_program_load(prog, &d), d);
    for (int i = 0; i < 2; i++)
        assert_ok(dev_surface_new(dev, dev_program_surface_bytes(prog, DEV_INPUT), &s[i], &d), d);
    assert_ok(dev_surface_new(dev, dev_program_surface_bytes(prog, DEV_OUTPUT), &y, &d), d);
    assert_ok(dev_request_new(prog, &r, &d), d);
    for (size_t i = 0; i < 2; i++) assert_ok(dev_request_bind_at(r, DEV_INPUT, i, s[i], &d), d);
    assert_ok(dev_request_bind_at(r, DEV_OUTPUT, 0, y, &d), d);
    assert_int_equal(device_run(r, DEV_QOS, &d), AN_INPUT);
    device_error(dev, &said);
    assert_true(said.status == 0x1d && strstr(d.msg, "2 input surfaces"));
    device_close(dev);
}

/* A vocabulary too wide for one surface is refused by name, before anything is compiled. */
static void too_wide(void **state)
{
    (void)state;
    static const device_limit one = { "inputs", 1 };
    model_config c = small(1);
    diag d = { 0 };
    device *dev;
    pipeline *p;
    c.vocab = 20000;
    assert_ok(device_open(&dev, "soft:m1", &(device_options){ .limit = &one, .n_limit = 1 }, &d), d);
    assert_int_equal(pipe_open(&p, &(pipe_options){ .pipeline = "dynamic", .dev = dev, .config = &c }, &d),
                     AN_UNSUPPORTED);
    assert_true(strstr(d.msg, "head: ") && strstr(d.msg, "16384") && strstr(d.msg, "take pipeline delta") &&
                !strstr(d.msg, "resident"));
    /* what is named instead can be had: delta cuts the vocabulary, resident does not */
    d = (diag){ 0 };
    assert_int_equal(pipe_open(&p, &(pipe_options){ .dev = dev, .config = &c }, &d), AN_UNSUPPORTED);
    assert_true(strstr(d.msg, "20000") && strstr(d.msg, "16384") && strstr(d.msg, "take pipeline delta"));
    d = (diag){ 0 };
    assert_ok(pipe_open(&p, &(pipe_options){ .pipeline = "delta", .dev = dev, .config = &c }, &d), d);
    pipe_close(p);
    c.vocab = 16300;
    assert_int_equal(pipe_open(&p, &(pipe_options){ .pipeline = "dynamic", .dev = dev, .config = &c }, &d),
                     AN_UNSUPPORTED);
    assert_non_null(strstr(d.msg, "take pipeline resident or delta"));
    d = (diag){ 0 };
    assert_ok(pipe_open(&p, &(pipe_options){ .dev = dev, .config = &c }, &d), d);
    pipe_close(p);
    device_close(dev);
}

/* Where the kernels the host drives cannot be had, a resident pipeline has its gradients from sums of another one:
 * their sizes are those of the kernels. */
static void looked_at(void **state)
{
    (void)state;
    /* the second packs, and so many columns do not fit beside others */
    static const char *const engines[] = { "soft:m4", "soft:m3" };
    pipe_seen seen[COUNT(engines)];
    int32_t ids[B * (T + 1)];
    model_config c = small(2); /* norms are those of all layers together */
    c.vocab = 16384;
    batch(0, ids);
    for (size_t i = 0; i < COUNT(engines); i++) {
        diag d = { 0 };
        rig r = open_rig(engines[i], "resident", &c, false, "sgd");
        assert_ok(pipe_inspect(r.p, ids, 64, &seen[i], &d), d);
        assert_true(!seen[i].first[0] && !seen[i].unknown[0]);
        assert_int_equal(r.p->probe->kind, i ? PIPE_RESIDENT : PIPE_DYNAMIC);
        close_rig(&r);
    }
    for (int id = 0; id < MW_COUNT; id++) {
        const double a = seen[0].grad_norm[id], b = seen[1].grad_norm[id];
        if (isnan(a) != isnan(b) || (!isnan(a) && !(a > 0 && fabs(a - b) < 0.02 * a)))
            fail_msg("weight %d: %.6g by kernels, %.6g by sums", id, a, b);
    }
}

/* Gradients that are finite each, and whose squares are too many: what the step adds up has a name, too. */
static void sum_of_squares(void **state)
{
    (void)state;
    model_config c = small(2);
    float gain[32];
    int32_t ids[B * (T + 1)];
    train_report rep;
    bool again;
    diag d = { 0 };
    pipe_seen seen;
    rig r = open_rig("cpu", "resident", &c, false, "sgd");
    for (int i = 0; i < 32; i++) gain[i] = 1e21f;
    assert_ok(pipe_write(r.p, "norm_f", DT_F32, gain, &d), d);
    batch(0, ids);
    assert_ok(pipe_step(r.p, ids, 0.003, &rep, &again, &d), d);
    assert_true(!rep.applied && rep.verdict == VERDICT_GRADIENT && isfinite(rep.loss));
    assert_ok(pipe_inspect(r.p, ids, 1, &seen, &d), d);
    assert_string_equal(seen.first, "the sum of all gradients' squares (most of it of embed)");
    close_rig(&r);
}

/* And where gradients come from sums: the first that is not finite is named by its weight. */
static void spoilt_sums(void **state)
{
    (void)state;
    model_config c = small(2);
    float gain[32];
    int32_t ids[B * (T + 1)];
    diag d = { 0 };
    pipe_seen seen;
    c.vocab = 16384;
    rig r = open_rig("soft:m3", "resident", &c, false, "sgd");
    for (int i = 0; i < 32; i++) gain[i] = 8;
    assert_ok(pipe_write(r.p, "norm_f", DT_F32, gain, &d), d);
    batch(0, ids);
    assert_ok(pipe_inspect(r.p, ids, 64, &seen, &d), d);
    assert_string_equal(seen.first, "");
    assert_int_equal(r.p->probe->kind, PIPE_RESIDENT);
    assert_ok(pipe_inspect(r.p, ids, 65536, &seen, &d), d);
    assert_string_equal(seen.first, "the gradient of embed");
    assert_ok(pipe_inspect(r.p, ids, 64, &seen, &d), d); /* nothing of it stays */
    assert_string_equal(seen.first, "");
    close_rig(&r);
}

/* A second program that is looked with does not look behind gradients of 0 itself: it would open a third. */
static void nothing_by_sums(void **state)
{
    (void)state;
    model_config c = small(2);
    int32_t ids[B * (T + 1)];
    train_report rep;
    bool again;
    diag d = { 0 };
    c.vocab = 16384, c.tied = true;
    rig r = open_rig("soft:m3", "resident", &c, false, "sgd");
    float *none = calloc((size_t)c.vocab * 32, sizeof *none);
    assert_non_null(none);
    assert_ok(pipe_write(r.p, "embed", DT_F32, none, &d), d);
    assert_ok(pipe_write(r.p, "norm_f", DT_F32, none, &d), d);
    batch(0, ids);
    assert_ok(pipe_step(r.p, ids, 0.003, &rep, &again, &d), d);
    assert_true(rep.verdict == VERDICT_NOTHING && rep.zeros == 1 && rep.loss > 1);
    assert_true(r.p->probe->kind == PIPE_RESIDENT && !r.p->probe->probe);
    free(none);
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(recompute), cmocka_unit_test(recompute_models),
                                        cmocka_unit_test(recompute_memory), cmocka_unit_test(packed), cmocka_unit_test(too_wide), cmocka_unit_test(sum_of_squares), cmocka_unit_test(spoilt_sums),
                                        cmocka_unit_test(looked_at), cmocka_unit_test(nothing_by_sums) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
