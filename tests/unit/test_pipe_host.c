/* test_pipe_host: the pipelines the host drives: their gradients are those of the differentiated graph, all ways
 * give one curve, checkpoints are exchanged, restarts go on exactly, and an engine that misbehaves costs nothing but
 * what is said. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "grad/grad.h"
#include "pipe_t.h"
#include "train/lm_grad.h"
#include "train/pipe_int.h"
#include "weights_t.h"

enum { MAX_STEPS = 50 };

static float start(const char *name, double size, rng *r)
{
    return (float)(((strstr(name, "norm") && !strstr(name, "_b")) || strstr(name, "post") ? 1 : 0) +
                   size * rng_normal(r));
}

static void fill(pipeline *p) { fill_with(p, start, 0.1); }

/* ---- a device that may misbehave, a pipe on it, and what was said ---- */

typedef struct {
    const char *what;  /* which call goes wrong; NULL: none */
    int after, times;  /* from which one on, and how many */
    int warned;
    char said[600];
    atomic_int events[2]; /* host, device */
    bool meet;            /* threads wait for each other: see meeting() */
    atomic_int dispatches, updates, met, missed;
} trouble;

static bool spoil(void *user, const char *what)
{
    trouble *t = user;
    if (!strcmp(what, "dispatch")) atomic_fetch_add(&t->dispatches, 1);
    if (!t->what || strcmp(t->what, what) || t->after-- > 0 || t->times <= 0) return false;
    t->times--;
    return true;
}

static void warn(void *user, const char *line)
{
    trouble *t = user;
    t->warned++;
    snprintf(t->said, sizeof t->said, "%s", line);
}

/* The host's job is held up until the device has begun what comes after it: a job the device's thread waits for, or
 * does itself, never gets past. Two layers: while weights of layer 1 are made ready layer 0 runs; dW of layer 1 is
 * made behind the 11th dispatch, beside layer 0's; the first update of layer 1 ends when the second minibatch has
 * begun, 17 dispatches a sequence later. */
static void meeting(trouble *t, const pipe_event *e)
{
    int until = e->layer != 1                 ? 0
                : !strcmp(e->what, "weights") ? 1
                : !strcmp(e->what, "dW")      ? 12
                : !strcmp(e->what, "update")  ? 17 * B + 1
                                              : 0;
    if (!until || strcmp(e->lane, "host")) return;
    atomic_fetch_add(&t->updates, !strcmp(e->what, "update"));
    for (int i = 0; i < 20000 && t->dispatches < until; i++) nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    atomic_fetch_add(t->dispatches < until ? &t->missed : &t->met, 1);
}

static void event(void *user, const pipe_event *e)
{
    trouble *t = user;
    assert_true(e->end >= e->begin);
    if (t->meet) meeting(t, e);
    atomic_fetch_add(&t->events[!strcmp(e->lane, "device")], 1);
}

typedef struct {
    device *dev;
    pipeline *p;
    pool *pool;
    trouble t;
} rig;

typedef struct {
    const char *engine, *way, *optimizer;
    const model_config *c;
    int64_t compiles, row_bytes; /* limits; 0: the device's own */
    int64_t seq;                 /* 0: the config's */
    int accum;
    double fixed;                /* loss scale; 0: dynamic */
    int most;                    /* updates in a row that end it */
} setup;

static void open_rig(rig *r, const setup *s)
{
    diag d = { 0 };
    model_config c = s->c ? *s->c : small(2);
    device_limit limit[2];
    size_t n = 0;
    if (s->compiles) limit[n++] = (device_limit){ "compiles", s->compiles };
    if (s->row_bytes) limit[n++] = (device_limit){ "row_bytes", s->row_bytes };
    assert_ok(pool_make(&r->pool, 2, &d), d);
    device_options o = {
        .pool = r->pool, .own_budget = true, .limit = limit, .n_limit = n, .spoil = spoil, .spoiler = &r->t
    };
    assert_ok(device_open(&r->dev, s->engine, &o, &d), d);
    pipe_options po = { .pipeline = s->way, .dev = r->dev, .pool = r->pool, .config = &c, .batch = B, .seq = s->seq,
                        .on_event = event, .user = &r->t, .train = { .optimizer = s->optimizer ? s->optimizer : "adamw",
                                                                     .beta2 = 0.95, .eps = 1e-3, .decay = 0.1,
                                                                     .clip = 1, .accum = s->accum, .warn = warn,
                                                                     .user = &r->t } };
    if (s->optimizer) po.train.clip = po.train.decay = 0;
    if (!device_is_plain(r->dev))
        po.train.state = TRAIN_HALVES, po.train.loss_scale = s->fixed != 0 ? s->fixed : 16,
        po.train.dynamic_scale = s->fixed == 0, po.train.max_skipped = s->most;
    assert_ok(pipe_open(&r->p, &po, &d), d);
    fill(r->p);
}

static void close_rig(rig *r)
{
    pipe_close(r->p);
    device_close(r->dev);
    pool_free(r->pool);
}

static an_status one(rig *r, uint64_t k, train_report *out, bool *again, diag *d)
{
    int32_t ids[B * (T + 1)];
    batch(k, ids);
    return pipe_step(r->p, ids, 0.003, out, again, d);
}

static void run(rig *r, uint64_t from, int n, double *loss)
{
    for (int i = 0; i < n; i++) {
        train_report rep;
        bool again;
        diag d = { 0 };
        assert_ok(one(r, from + (uint64_t)i, &rep, &again, &d), d);
        assert_true(rep.applied);
        loss[i] = rep.loss;
    }
}

/* ---- gradients ---- */

static int64_t count(const ttype *t)
{
    int64_t n = 0;
    assert_true(shape_elems(&t->sh, &n));
    return n;
}

static tensor64 tensor_of(arena *mem, const ttype *t)
{
    return (tensor64){ *t, TAKE(mem, double, (size_t)count(t)) };
}

/* Every gradient of the model by grad_build, in double precision. */
static void reference(const model_config *config, tensor64 *out, size_t *n, double *loss, arena *mem)
{
    model_config c = *config;
    diag d = { 0 };
    decoder dec;
    int32_t ids[B * (T + 1)];
    c.dt = DT_F32;
    batch(0, ids);
    assert_ok(decoder_build(&c, &(decoder_options){ .use = DECODER_TRAIN, .param_inputs = true, .batch = B, .seq = T },
                            NULL, &dec, &d),
              d);
    val *grad = TAKE(mem, val, dec.n_param);
    assert_ok(grad_build(dec.g, dec.loss, dec.param, (int)dec.n_param, grad, NULL, &d), d);
    for (size_t i = 0; i < dec.n_param; i++) {
        char name[32];
        snprintf(name, sizeof name, "grad%zu", i);
        graph_output(dec.g, name, grad[i]);
    }
    assert_ok(graph_finish(dec.g, &d), d);
    tensor64 *in = TAKE(mem, tensor64, dec.g->inputs.n), *all = TAKE(mem, tensor64, dec.n_param + 1);
    rng r = { 5 };
    for (size_t i = 0; i < dec.g->inputs.n; i++) {
        const value *v = graph_value(dec.g, dec.g->inputs.at[i]);
        int64_t k = count(&v->type);
        in[i] = tensor_of(mem, &v->type);
        bool target = !strcmp(v->name, "targets");
        for (int64_t j = 0; j < k; j++)
            in[i].x[j] = v->type.dt == DT_I32 ? ids[j / T * (T + 1) + j % T + target] : (double)start(v->name, 0.1, &r);
    }
    assert_ok(graph_eval(dec.g, in, all, mem, &d), d);
    *loss = all[0].x[0];
    memcpy(out, all + 1, dec.n_param * sizeof *all);
    *n = dec.n_param;
    graph_free(dec.g);
}

static double dot(const double *a, const double *b, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += a[i] * b[i];
    return s;
}

/* Same direction and size. What is 0 in exact arithmetic (a key's bias without rotation shifts all scores alike) is
 * noise. */
static bool same_gradient(const double *x, const double *want, int64_t n, double all, double *cos, double *ratio)
{
    double a = sqrt(dot(x, x, n)), b = sqrt(dot(want, want, n));
    *cos = dot(x, want, n) / (a * b), *ratio = a / b;
    if (b < 1e-9 * all) return a < 1e-6 * all;
    return *cos > 0.99999 && fabs(*ratio - 1) < 1e-4;
}

/* All that tells Gemma 2 from a Llama, on three layers: the first and the last have the window. */
static model_config gemma2(void)
{
    model_config c = small(3);
    c.act = MODEL_ACT_GEGLU, c.rope = MODEL_ROPE_HALF, c.tied = true, c.embed_scale = 5.656854249;
    c.post_norm = true, c.attn_softcap = 2, c.softcap = 3, c.query_dim = 10, c.window = 5, c.window_every = 2;
    return c;
}

static void gradients(void **state)
{
    (void)state;
    model_config c[11];
    for (size_t i = 0; i < COUNT(c); i++) c[i] = small(2);
    c[1].qk_norm = true, c[1].tied = !c[1].tied, c[1].vocab_part = 16;
    c[2].norm = MODEL_NORM_LAYER, c[2].act = MODEL_ACT_GELU, c[2].rope = MODEL_ROPE_NONE, c[2].bias = true,
    c[2].n_kv_heads = 4, c[2].embed_scale = 3;
    c[3].host_residual = true, c[3].alpha = 0.5;
    c[4].window = 5, c[4].bias_qkv = true, c[4].rope = MODEL_ROPE_HALF;
    c[5].n_layers = 3, c[5].alpha = 0.25, c[5].bias = true;
    c[6].softcap = 1.5, c[6].vocab_part = 16;
    c[7].softcap = 2, c[7].tied = !c[7].tied, c[7].alpha = 0.5;
    c[8].act = MODEL_ACT_GEGLU, c[8].n_kv_heads = 1, c[8].embed_scale = 5.656854249, c[8].tied = true;
    c[9] = gemma2();
    c[10] = gemma2(), c[10].host_residual = true, c[10].alpha = 0.5, c[10].qk_norm = true;
    static const char *const ways[] = { "delta", "dynamic", "restart" };
    for (size_t i = 0; i < COUNT(c); i++) {
        arena mem = { 0 };
        tensor64 want[128];
        size_t n;
        double loss, all = 0;
        reference(&c[i], want, &n, &loss, &mem);
        for (size_t k = 0; k < n; k++) all += dot(want[k].x, want[k].x, count(&want[k].type));
        all = sqrt(all);
        for (size_t w = 0; w < COUNT(ways); w++) {
            rig r = { 0 };
            train_report rep;
            bool again;
            diag d = { 0 };
            open_rig(&r, &(setup){ .engine = "cpu", .way = ways[w], .optimizer = "momentum", .c = &c[i] });
            assert_ok(one(&r, 0, &rep, &again, &d), d);
            assert_true(fabs(rep.loss - loss) < 1e-5 * loss);
            size_t at = 0;
            for (size_t k = 0; k < pipe_state_count(r.p); k++) { /* the first momentum is the gradient */
                train_state_info s;
                double cos, ratio, *x;
                pipe_state_at(r.p, k, &s);
                if (!s.param || strcmp(s.name + strlen(s.param), ".m")) continue;
                int64_t m = count(&s.type);
                x = TAKE(&mem, double, (size_t)m);
                assert_ok(pipe_read(r.p, s.name, DT_F64, x, &d), d);
                assert_true(at < n);
                if (!same_gradient(x, want[at++].x, m, all, &cos, &ratio))
                    fail_msg("config %zu, %s: %s has cosine %.7f, ratio %.6f", i, ways[w], s.name, cos, ratio);
            }
            assert_int_equal(at, n);
            close_rig(&r);
        }
        arena_free(&mem);
    }
}

/* ---- the same as the command's ---- */

typedef struct {
    char name[64];
    int64_t n;
    double *x;
} named;

/* What `anneal grad` writes for the model, read back as weights are. */
static size_t written(const char *model, const char *folder, const int32_t *ids, lm_model *m, named *out, arena *mem)
{
    diag d = { 0 };
    char file[100];
    lm_converted done;
    lm_grad_result q;
    lm_model *g;
    device *dev;
    pipeline *p;
    size_t n = 0;
    snprintf(file, sizeof file, "%s/model.safetensors", folder);
    assert_ok(lm_convert(m, folder, &(lm_convert_options){ .to = LM_TO_HF, .dt = DT_F32, .version = -1 }, &done, &d),
              d);
    assert_ok(lm_grad(&(lm_grad_options){ .model = model, .engine = "cpu", .tokens = ids, .batch = B, .seq = T,
                                          .out = file }, &q, &d), d);
    assert_ok(lm_open(folder, &(lm_options){ .dt = DT_F32 }, &g, &d), d);
    assert_ok(device_open(&dev, "cpu", NULL, &d), d);
    assert_ok(pipe_open(&p, &(pipe_options){ .dev = dev, .config = lm_config(g), .batch = 1, .seq = T }, &d), d);
    weights_to(g, p);
    for (size_t i = 0; i < pipe_state_count(p); i++) {
        train_state_info s;
        pipe_state_at(p, i, &s);
        if (!s.param || strcmp(s.param, s.name)) continue;
        named *to = &out[n++];
        snprintf(to->name, sizeof to->name, "%s", s.name);
        to->n = count(&s.type), to->x = TAKE(mem, double, (size_t)to->n);
        assert_ok(pipe_read(p, s.name, DT_F64, to->x, &d), d);
    }
    pipe_close(p);
    device_close(dev);
    lm_close(g);
    return n;
}

/* Every tensor of every way the host drives, from the state an update leaves: the first momentum is the gradient.
 * cpu: fp32, the order of sums differs. soft:m4: activations and their gradients are fp16 at a loss scale of 16,
 * about 1e-3 each, and small ones are rounded more. */
static void those_of_the_command(void **state)
{
    (void)state;
    static const struct {
        const char *engine;
        double cos, ratio;
    } rows[] = { { "cpu", 1e-9, 1e-5 }, { "soft:m4", 1e-4, 5e-3 } };
    static const char *const ways[] = { "delta", "dynamic", "restart" };
    char folder[] = "/tmp/anneal-grad-XXXXXX", from[60], to[60], line[80];
    lm_converted done;
    int32_t ids[B * (T + 1)];
    named want[64];
    arena mem = { 0 };
    diag d = { 0 };
    lm_model *m;
    assert_non_null(mkdtemp(folder));
    batch(0, ids);
    snprintf(from, sizeof from, "%s/model", folder);
    snprintf(to, sizeof to, "%s/gradients", folder);
    assert_ok(lm_open("tiny", &(lm_options){ .dt = DT_F32 }, &m, &d), d);
    assert_ok(lm_convert(m, from, &(lm_convert_options){ .to = LM_TO_HF, .dt = DT_F32, .version = -1 }, &done, &d), d);
    lm_close(m);
    assert_ok(lm_open(from, &(lm_options){ .dt = DT_F32 }, &m, &d), d); /* rows of a file in the file's order */
    size_t n = written(from, to, ids, m, want, &mem);
    assert_true(n > 10);
    for (size_t e = 0; e < COUNT(rows); e++)
        for (size_t w = 0; w < COUNT(ways); w++) {
            rig r = { 0 };
            train_report rep;
            bool again;
            double far = 0, off = 0;
            open_rig(
                &r,
                &(setup){
                    .engine = rows[e].engine, .way = ways[w], .optimizer = "momentum", .c = lm_config(m), .seq = T });
            weights_to(m, r.p);
            assert_ok(pipe_step(r.p, ids, 0.003, &rep, &again, &d), d);
            assert_true(rep.applied);
            for (size_t i = 0; i < n; i++) {
                char name[80];
                double cos, ratio, *x = TAKE(&mem, double, (size_t)want[i].n);
                snprintf(name, sizeof name, "%.64s.m", want[i].name);
                assert_ok(pipe_read(r.p, name, DT_F64, x, &d), d);
                same_gradient(x, want[i].x, want[i].n, 0, &cos, &ratio);
                far = MAX(far, 1 - cos), off = MAX(off, fabs(ratio - 1));
                if (!(1 - cos < rows[e].cos && fabs(ratio - 1) < rows[e].ratio))
                    fail_msg("%s, %s: %s has cosine %.7f, ratio %.6f", rows[e].engine, ways[w], name, cos, ratio);
            }
            print_message("%s, %s: cosines within %.1e of 1, sizes within %.1e\n", rows[e].engine, ways[w], far, off);
            close_rig(&r);
        }
    lm_close(m);
    arena_free(&mem);
    snprintf(line, sizeof line, "rm -r %s", folder);
    assert_int_equal(system(line), 0);
}

/* ---- the host's thread works while the device does ---- */

static void beside_the_device(void **state)
{
    (void)state;
    static const char *const ways[] = { "delta", "dynamic", "restart" };
    for (size_t w = 0; w < COUNT(ways); w++) {
        rig r = { .t.meet = true };
        double loss[2];
        open_rig(&r, &(setup){ .engine = "soft:m4", .way = ways[w], .compiles = 1000 });
        run(&r, 0, 2, loss);
        if (r.t.missed || r.t.met < 2 * B || !r.t.updates)
            fail_msg("%s: %d jobs of the host ran beside the device, %d did not", ways[w], (int)r.t.met,
                     (int)r.t.missed);
        close_rig(&r);
    }
}

/* ---- curves ---- */

/* Programs of a step, and those of them with weights; what is compiled once, with the weights inside and as inputs. */
typedef struct {
    int programs, baked, once, open;
} counts;

static void curve_of(const model_config *c, counts n)
{
    static const setup rows[] = { { .engine = "cpu", .way = "resident" },     { .engine = "cpu", .way = "delta" },
                                  { .engine = "cpu", .way = "dynamic" },     { .engine = "cpu", .way = "restart" },
                                  { .engine = "soft:m4", .way = "resident" }, { .engine = "soft:m4", .way = "delta" },
                                  { .engine = "soft:m4", .way = "dynamic" },
                                  { .engine = "soft:m4", .way = "restart", .compiles = 100000 } };
    double loss[COUNT(rows)][MAX_STEPS], most = 0;
    for (size_t i = 0; i < COUNT(rows); i++) {
        rig r = { 0 };
        pipe_stats s;
        setup with = rows[i];
        with.c = c;
        open_rig(&r, &with);
        run(&r, 0, MAX_STEPS, loss[i]);
        pipe_get_stats(r.p, &s);
        bool delta = !strcmp(rows[i].way, "delta"), restart = !strcmp(rows[i].way, "restart"),
             dynamic = !strcmp(rows[i].way, "dynamic");
        if (delta) assert_int_equal(s.compiles, n.once), assert_int_equal(s.canaries, n.baked * (MAX_STEPS - 1));
        if (restart) assert_int_equal(s.compiles, n.once + n.baked * (MAX_STEPS - 1));
        if (dynamic) assert_int_equal(s.compiles, n.open);
        if (delta || restart || dynamic) {
            assert_int_equal(s.dispatches, MAX_STEPS * B * n.programs);
            assert_true(r.t.events[0] > 0 && r.t.events[1] >= MAX_STEPS * B * n.programs);
        }
        assert_int_equal(r.t.warned, 0);
        close_rig(&r);
    }
    assert_true(loss[0][MAX_STEPS - 1] < loss[0][0] - 0.5);
    /* cpu: all is fp32, what differs is the order of sums: 1e-6 per number and step, fed back fifty times. soft:
     * taps and gradients are fp16, good to about 1e-3, and AdamW divides each gradient by its own size; epsilon 1e-3
     * keeps the smallest from steering. Measured: 1e-3 of the first loss at most, over all ways and steps */
    for (size_t i = 1; i < COUNT(rows); i++)
        for (int k = 0; k < MAX_STEPS; k++) {
            double off = fabs(loss[i][k] - loss[0][k]),
                   limit = (strcmp(rows[i].engine, "cpu") ? 0.005 : 1e-4) * loss[0][0];
            most = MAX(most, off / loss[0][0]);
            if (!(off < limit))
                fail_msg("%s %s: step %d has loss %.6f, wanted %.6f within %.6f", rows[i].engine, rows[i].way, k,
                         loss[i][k], loss[0][k], limit);
        }
    print_message("largest distance between curves: %.2e of the first loss\n", most);
    /* the host's ways differ in nothing but how weights get in */
    assert_memory_equal(loss[1], loss[3], sizeof loss[1]);
    assert_memory_equal(loss[5], loss[7], sizeof loss[5]);
}

/* Eight kinds of programs a layer and the head. attn_bwd2 has no weights and serves all layers; with weights as
 * inputs one of each kind is enough, or two where some layers have a window in their mask. */
static void one_curve(void **state)
{
    (void)state;
    model_config c = small(2);
    curve_of(&c, (counts){ .programs = 17, .baked = 15, .once = 16, .open = 9 });
}

static void one_curve_of_gemma(void **state)
{
    (void)state;
    model_config c = gemma2();
    curve_of(&c, (counts){ .programs = 25, .baked = 22, .once = 23, .open = 11 });
}

/* ---- state ---- */

static void temp(char *path)
{
    strcpy(path, "/tmp/anneal-pipe-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
}

/* Ten compiles are one round of a one-layer model: after every update the process has to start anew. */
static void restarts(void **state)
{
    (void)state;
    enum { N = 6 };
    model_config c = small(1);
    double whole[N], pieces[N];
    char path[40];
    temp(path);
    rig r = { 0 };
    open_rig(&r, &(setup){ .engine = "soft:m4", .way = "restart", .c = &c, .compiles = 1000 });
    run(&r, 0, N, whole);
    close_rig(&r);
    for (int i = 0; i < N; i++) {
        rig part = { 0 };
        arena mem = { 0 };
        train_report rep;
        bool again = false;
        diag d = { 0 };
        open_rig(&part, &(setup){ .engine = "soft:m4", .way = "restart", .c = &c, .compiles = 9 });
        if (i) assert_ok(pipe_load(part.p, path, NULL, 0, &mem, &d), d);
        assert_ok(one(&part, (uint64_t)i, &rep, &again, &d), d);
        assert_true(again);
        pipe_stats st;
        pipe_get_stats(part.p, &st);
        assert_int_equal(st.restarts_wanted, 1);
        pieces[i] = rep.loss;
        assert_ok(pipe_save(part.p, path, NULL, 0, &d), d);
        close_rig(&part);
        arena_free(&mem);
    }
    assert_memory_equal(whole, pieces, sizeof whole);
    unlink(path);
    /* one that two rounds fit into, to the program, is good for two updates */
    for (int more = 0; more < 2; more++) {
        rig two = { 0 };
        open_rig(&two, &(setup){ .engine = "soft:m4", .way = "restart", .c = &c, .compiles = 9 + 8 - !more });
        for (int i = 0; i <= more; i++) {
            train_report rep;
            bool again = false;
            diag e = { 0 };
            assert_ok(one(&two, (uint64_t)i, &rep, &again, &e), e);
            assert_true(again == (i == more) && rep.loss == whole[i]);
        }
        close_rig(&two);
    }
    /* a budget no round fits into is refused at once */
    diag d = { 0 };
    device *dev;
    pipeline *p;
    device_limit limit = { "compiles", 8 };
    assert_ok(device_open(&dev, "soft:m4", &(device_options){ .limit = &limit, .n_limit = 1 }, &d), d);
    assert_int_equal(pipe_open(&p, &(pipe_options){ .pipeline = "restart", .dev = dev, .config = &c }, &d),
                     AN_UNSUPPORTED);
    assert_non_null(strstr(d.msg, "9 programs"));
    c = small(2), d = (diag){ 0 };
    assert_int_equal(pipe_open(&p, &(pipe_options){ .pipeline = "restart", .dev = dev, .config = &c }, &d),
                     AN_UNSUPPORTED);
    /* the one without weights is both layers' */
    assert_true(strstr(d.msg, "takes 16 programs for 2 layers") && strstr(d.msg, ": take resident"));
    device_close(dev);
    /* what is named instead fits */
    static const char *const ways[] = { "delta", "restart", "dynamic" };
    for (int64_t k = 8; k <= 15; k++)
        for (size_t i = 0; i < COUNT(ways); i++) {
            bool open = !strcmp(ways[i], "dynamic"), fits = k >= 9;
            limit.value = k, d = (diag){ 0 };
            assert_ok(device_open(&dev, "soft:m4", &(device_options){ .limit = &limit, .n_limit = 1 }, &d), d);
            an_status st = pipe_open(&p, &(pipe_options){ .pipeline = ways[i], .dev = dev, .config = &c }, &d);
            if (open && fits) pipe_close(p);
            if (st != (open && fits ? AN_OK : AN_UNSUPPORTED) ||
                (st && !strstr(d.msg, fits ? ": take dynamic or resident" : ": take resident")))
                fail_msg("%s, %d compiles: %s", ways[i], (int)k, d.msg);
            device_close(dev);
        }
}

/* A checkpoint of one way goes on in another. */
static void exchange(void **state)
{
    (void)state;
    enum { N = 6 };
    static const char *const chain[] = { "delta", "resident", "dynamic", "restart", "resident", "delta" };
    double whole[N], pieces[N];
    char path[40];
    temp(path);
    rig r = { 0 };
    open_rig(&r, &(setup){ .engine = "cpu", .way = "resident" });
    run(&r, 0, N, whole);
    close_rig(&r);
    for (int i = 0; i < N; i++) {
        rig part = { 0 };
        arena mem = { 0 };
        diag d = { 0 };
        open_rig(&part, &(setup){ .engine = "cpu", .way = chain[i] });
        if (i) assert_ok(pipe_load(part.p, path, NULL, 0, &mem, &d), d);
        run(&part, (uint64_t)i, 1, pieces + i);
        assert_ok(pipe_save(part.p, path, NULL, 0, &d), d);
        close_rig(&part);
        arena_free(&mem);
    }
    for (int i = 0; i < N; i++) assert_true(fabs(whole[i] - pieces[i]) < 1e-5);
    unlink(path);
}

/* Weights that come from outside between two minibatches are those of the next one. */
static void weights_from_outside(void **state)
{
    (void)state;
    static const char *const ways[] = { "delta", "dynamic", "restart" };
    float gain[32], other[32];
    char path[40];
    temp(path);
    for (int i = 0; i < 32; i++) other[i] = 0.5f;
    for (size_t w = 0; w < COUNT(ways); w++) {
        rig r = { 0 };
        diag d = { 0 };
        double loss[2], then, now;
        int32_t ids[B * (T + 1)];
        batch(7, ids);
        open_rig(&r, &(setup){ .engine = "cpu", .way = ways[w] });
        run(&r, 0, 1, loss);
        assert_ok(pipe_save(r.p, path, NULL, 0, &d), d);
        assert_ok(pipe_loss(r.p, ids, &then, &d), d);
        run(&r, 1, 2, loss);
        assert_ok(pipe_loss(r.p, ids, &now, &d), d);
        assert_true(now != then);
        assert_ok(pipe_load(r.p, path, NULL, 0, NULL, &d), d);
        assert_ok(pipe_loss(r.p, ids, &now, &d), d);
        if (now != then) fail_msg("%s: loss %.9g after loading, was %.9g", ways[w], now, then);
        assert_ok(pipe_read(r.p, "norm_f", DT_F32, gain, &d), d);
        for (int i = 0; i < 2; i++) {
            assert_ok(pipe_write(r.p, "norm_f", DT_F32, i ? gain : other, &d), d);
            assert_ok(pipe_loss(r.p, ids, &now, &d), d);
            if ((now == then) != (i == 1)) fail_msg("%s: loss %.9g after writing, was %.9g", ways[w], now, then);
        }
        close_rig(&r);
    }
    unlink(path);
}

/* Two minibatches per update; nothing moves before the second, and pipe_loss moves nothing. */
static void accumulation(void **state)
{
    (void)state;
    enum { N = 8 }; /* four updates: accumulators change places with each */
    double a[N], b[N];
    rig x = { 0 }, y = { 0 };
    train_report rep;
    bool again;
    diag d = { 0 };
    int32_t ids[B * (T + 1)];
    open_rig(&x, &(setup){ .engine = "cpu", .way = "resident", .accum = 2 });
    open_rig(&y, &(setup){ .engine = "cpu", .way = "delta", .accum = 2 });
    for (int i = 0; i < N; i++) {
        double before, after;
        batch((uint64_t)i, ids);
        assert_ok(pipe_loss(y.p, ids, &before, &d), d);
        assert_ok(one(&x, (uint64_t)i, &rep, &again, &d), d);
        a[i] = rep.loss;
        assert_ok(one(&y, (uint64_t)i, &rep, &again, &d), d);
        b[i] = rep.loss;
        assert_int_equal(rep.applied, i % 2);
        assert_true(fabs(a[i] - b[i]) < 1e-5 && fabs(before - b[i]) < 1e-6);
        assert_ok(pipe_loss(y.p, ids, &after, &d), d);
        assert_true(i % 2 ? after < before : after == before);
    }
    close_rig(&x);
    close_rig(&y);
}

/* Surfaces with padded rows hold the same numbers. State of fp16 alone is refused. */
static void surfaces(void **state)
{
    (void)state;
    enum { N = 3 };
    static const char *const ways[] = { "delta", "dynamic" };
    double packed[N], padded[N];
    for (size_t i = 0; i < COUNT(ways); i++) {
        rig x = { 0 }, y = { 0 };
        open_rig(&x, &(setup){ .engine = "soft:m4", .way = ways[i] });
        run(&x, 0, N, packed);
        open_rig(&y, &(setup){ .engine = "soft:m4", .way = ways[i], .row_bytes = 64 });
        run(&y, 0, N, padded);
        assert_memory_equal(packed, padded, sizeof packed);
        diag d = { 0 };
        pipeline *p;
        model_config c = small(1);
        assert_int_equal(
            pipe_open(&p, &(pipe_options){ .pipeline = ways[i], .dev = x.dev, .config = &c, .train.state = TRAIN_F16 },
                      &d),
            AN_USAGE);
        assert_non_null(strstr(d.msg, "in fp32"));
        close_rig(&x);
        close_rig(&y);
    }
}

/* ---- an engine that misbehaves ---- */

static void faults(void **state)
{
    (void)state;
    enum { N = 5 };
    double good[N], bad[N];
    rig r = { 0 };
    train_report rep;
    bool again;
    diag d = { 0 };
    open_rig(&r, &(setup){ .engine = "soft:m4", .way = "delta" });
    run(&r, 0, N, good);
    close_rig(&r);

    /* a dispatch that stumbles, a compile that stumbles: said, done again, same bits */
    static const struct {
        const char *what, *said;
        int after;
    } once[] = { { "dispatch", "running it once more", 40 },
                 { "compile", "compiling it once more", 3 },
                 { "reload", "does not honour reloads", 20 } };
    for (size_t i = 0; i < COUNT(once); i++) {
        rig s = { 0 };
        open_rig(&s, &(setup){ .engine = "soft:m4", .way = "delta", .compiles = 1000 });
        s.t.what = once[i].what, s.t.after = once[i].after, s.t.times = 1;
        run(&s, 0, N, bad);
        assert_int_equal(s.t.times, 0);
        assert_int_equal(s.t.warned, 1);
        assert_non_null(strstr(s.t.said, once[i].said));
        assert_memory_equal(good, bad, sizeof good);
        close_rig(&s);
    }

    /* the same where a step is one program: what it had written is written over */
    double whole[N];
    for (int stumble = 0; stumble < 2; stumble++) {
        rig s = { 0 };
        open_rig(&s, &(setup){ .engine = "soft:m4", .way = "resident" });
        if (stumble) s.t.what = "dispatch", s.t.after = 2, s.t.times = 1;
        run(&s, 0, N, stumble ? bad : whole);
        assert_int_equal(s.t.warned, stumble);
        close_rig(&s);
    }
    assert_memory_equal(whole, bad, sizeof whole);

    /* an engine that is gone: the step fails by name, nothing has moved, and when it is back the run goes on */
    static const char *const gone[] = { "dispatch", "compile" };
    for (size_t i = 0; i < COUNT(gone); i++) {
        rig s = { 0 };
        open_rig(&s, &(setup){ .engine = "soft:m4", .way = "restart", .compiles = 1000 });
        run(&s, 0, 2, bad);
        s.t.what = gone[i], s.t.after = 5, s.t.times = 1000;
        diag e = { 0 };
        assert_int_not_equal(one(&s, 2, &rep, &again, &e), AN_OK);
        assert_non_null(strstr(e.msg, "l0"));
        s.t.what = NULL;
        run(&s, 2, N - 2, bad + 2);
        assert_memory_equal(good, bad, sizeof good);
        close_rig(&s);
    }

    /* one NaN: the update is skipped, the scale halved, the weights untouched, the tensor named */
    rig s = { 0 };
    float before[32 * 32], after[32 * 32];
    open_rig(&s, &(setup){ .engine = "soft:m4", .way = "dynamic" });
    assert_ok(pipe_read(s.p, "l00_wq", DT_F32, before, &d), d);
    s.t.what = "output", s.t.after = 3, s.t.times = 1;
    assert_ok(one(&s, 0, &rep, &again, &d), d);
    assert_false(rep.applied || rep.finite || isfinite(rep.loss));
    assert_int_equal(rep.skipped, 1);
    assert_non_null(strstr(s.t.said, "x of l01_fwd_ffn is not finite"));
    assert_ok(pipe_read(s.p, "l00_wq", DT_F32, after, &d), d);
    assert_memory_equal(before, after, sizeof before);
    pipe_stats st;
    pipe_get_stats(s.p, &st);
    assert_true(st.train.loss_scale == 8);
    run(&s, 0, 1, bad);
    assert_true(fabs(bad[0] - good[0]) < 1e-3);
    /* and one that never ends stops the run by name */
    s.t.what = "output", s.t.after = 0, s.t.times = 1 << 30;
    an_status end = AN_OK;
    for (int i = 0; i < 40 && !end; i++) end = one(&s, 1, &rep, &again, &d);
    assert_int_equal(end, AN_MISMATCH);
    assert_non_null(strstr(d.msg, "the first tensor that went bad is x of l00_fwd_attn"));
    close_rig(&s);
}

/* One NaN on the way up is not made a loss of by what comes after it: there is none, and it has a name. What training
 * makes of a scale that is too large is no matter of the loss. */
static void faults_on_the_way_up(void **state)
{
    (void)state;
    static const char *const ways[] = { "delta", "dynamic", "restart" };
    static const struct {
        int after;
        const char *first;
    } rows[] = { { 0, "x of l00_fwd_attn" }, { 3, "x of l01_fwd_ffn" }, { 6, "x of l00_fwd_ffn" } };
    for (size_t i = 0; i < COUNT(ways) * COUNT(rows); i++) {
        rig r = { 0 };
        diag d = { 0 };
        double good, loss;
        pipe_seen seen;
        int32_t ids[B * (T + 1)];
        batch(0, ids);
        open_rig(&r, &(setup){ .engine = "soft:m4", .way = ways[i / COUNT(rows)], .fixed = 65504 });
        fill_with(r.p, start, 1); /* so that gradients do overflow */
        assert_ok(pipe_loss(r.p, ids, &good, &d), d);
        r.t.what = "output", r.t.after = rows[i % COUNT(rows)].after, r.t.times = 1;
        assert_ok(pipe_loss(r.p, ids, &loss, &d), d);
        assert_int_equal(r.t.times, 0);
        if (!isfinite(good) || isfinite(loss)) fail_msg("row %zu: %g, and %g with a fault", i, good, loss);
        assert_ok(pipe_inspect(r.p, ids, 1, &seen, &d), d);
        assert_string_equal(seen.first, rows[i % COUNT(rows)].first);
        assert_true(seen.activations.nan > 0);
        assert_ok(pipe_loss(r.p, ids, &loss, &d), d);
        assert_true(loss == good);
        close_rig(&r);
    }
}

/* One minibatch of every group goes bad and the last one, which ends the run, does not: the tensor is that of the
 * first. */
static void bad_within_a_group(void **state)
{
    (void)state;
    static const char *const ways[] = { "resident", "delta", "dynamic", "restart" };
    model_config c = small(1);
    float embed[V * 32];
    c.tied = false, c.embed_scale = 1000; /* times 3e38: no number */
    for (size_t i = 0; i < COUNT(ways); i++) {
        rig r = { 0 };
        train_report rep;
        bool again;
        diag d = { 0 };
        an_status st = AN_OK;
        open_rig(&r, &(setup){ .engine = "cpu", .way = ways[i], .c = &c, .accum = 2 });
        assert_ok(pipe_read(r.p, "embed", DT_F32, embed, &d), d);
        for (int k = 0; k < 32; k++) embed[(V - 1) * 32 + k] = 3e38f;
        assert_ok(pipe_write(r.p, "embed", DT_F32, embed, &d), d);
        for (int n = 0; n < 100 && !st; n++) {
            int32_t ids[B * (T + 1)];
            for (int k = 0; k < B * (T + 1); k++) ids[k] = n % 2 ? k % 7 : k % 2 ? V - 1 : 3;
            st = pipe_step(r.p, ids, 0.001, &rep, &again, &d);
        }
        assert_int_equal(st, AN_MISMATCH);
        if (!strstr(d.msg, "the first tensor that went bad is x of l00_fwd_attn")) fail_msg("%s: %s", ways[i], d.msg);
        close_rig(&r);
    }
}

/* ---- no gradient ---- */

static float no_gain(const char *name, double size, rng *r)
{
    return strstr(name, "norm_f") ? 0
           : strstr(name, "head") ? (float)(size * 1e-4 * rng_normal(r))
                                  : start(name, 0.1, r);
}

/* Where the last norm's gains are 0 its own gradient is the only one, and small if the head's weights are. On a chip
 * a scale at which fp16 has no number for it moves nothing, moments included, by every way, and ends the run with
 * one that has; with a head of 0 there is nothing to learn, and the run goes on. */
static void without_a_gradient(void **state)
{
    (void)state;
    static const char *const ways[] = { "resident", "delta", "dynamic", "restart" };
    model_config c = small(1);
    c.tied = false;
    char path[] = "/tmp/an_no_gradient_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    for (size_t i = 0; i < COUNT(ways); i++)
        for (int k = 0; k < 4; k++) {
            const int dead = k % 2, accum = 1 + k / 2;
            rig r = { 0 };
            train_report rep = { 0 };
            bool again;
            diag d = { 0 };
            an_status st = AN_OK;
            float before[32 * 32], after[32 * 32];
            open_rig(&r, &(setup){
                             .engine = "soft:m4", .way = ways[i], .c = &c, .fixed = 0.001, .most = 4, .accum = accum });
            fill_with(r.p, no_gain, dead ? 0 : 1);
            assert_ok(pipe_read(r.p, "l00_wq", DT_F32, before, &d), d);
            int n = 0;
            for (; n < 6 * accum && !st; n++) st = one(&r, 0, &rep, &again, &d);
            assert_ok(pipe_read(r.p, "l00_wq", DT_F32, after, &(diag){ 0 }), d);
            assert_memory_equal(before, after, sizeof before);
            if (n != (dead ? 6 : 4) * accum || st != (dead ? AN_OK : AN_MISMATCH))
                fail_msg("%s: %d updates, %s", ways[i], n, d.msg);
            assert_true(rep.zeros == (uint64_t)(n / accum) && rep.step == 0 && rep.skipped == 0 &&
                        rep.verdict == VERDICT_NOTHING && (accum > 1 || isfinite(rep.loss)));
            diag e = { 0 };
            assert_ok(pipe_save(r.p, path, NULL, 0, &e), e);
            assert_ok(pipe_load(r.p, path, NULL, 0, NULL, &e), e);
            assert_non_null(strstr(r.t.said, "the gradient is 0 everywhere"));
            if (!dead) assert_non_null(strstr(d.msg, "nothing is learnt at a loss scale of 0.001; at "));
            close_rig(&r);
        }
    unlink(path);
}

/* That there was one in the minibatch before is no gradient. */
static void a_gradient_no_more(void **state)
{
    (void)state;
    static const char *const ways[] = { "delta", "dynamic", "restart" };
    model_config c = small(1);
    c.tied = false;
    for (size_t i = 0; i < COUNT(ways); i++) {
        rig r = { 0 };
        train_report rep;
        bool again;
        double loss;
        diag d = { 0 };
        open_rig(&r, &(setup){ .engine = "soft:m4", .way = ways[i], .c = &c, .fixed = 16, .compiles = 1000 });
        run(&r, 0, 1, &loss);
        fill_with(r.p, no_gain, 0);
        assert_ok(one(&r, 1, &rep, &again, &d), d);
        if (rep.applied || rep.verdict != VERDICT_NOTHING || rep.zeros != 1)
            fail_msg("%s: %s, applied %d", ways[i], train_verdict_text(rep.verdict), rep.applied);
        close_rig(&r);
    }
}

/* The range is the library's to check, by every way. */
static void scales(void **state)
{
    (void)state;
    static const char *const ways[] = { "resident", "delta", "dynamic", "restart" };
    static const double wrong[] = { 65536, 1e-4, -1, INFINITY, NAN };
    model_config c = small(1);
    device *dev;
    diag d = { 0 };
    assert_ok(device_open(&dev, "soft:m4", &(device_options){ .threads = 1 }, &d), d);
    for (size_t i = 0; i < COUNT(ways) * COUNT(wrong); i++) {
        pipeline *p;
        d = (diag){ 0 };
        pipe_options o = { .pipeline = ways[i / COUNT(wrong)],
                           .dev = dev,
                           .config = &c,
                           .batch = B,
                           .train = { .loss_scale = wrong[i % COUNT(wrong)] } };
        assert_int_equal(pipe_open(&p, &o, &d), AN_USAGE);
        assert_non_null(strstr(d.msg, "0.001 to 65504"));
    }
    device_close(dev);
}

/* On a chip it is 1024 where nothing is said, and a dynamic one stays what fp16 holds: gradients pass through the
 * device, whoever keeps the books. */
static void scales_of_chips(void **state)
{
    (void)state;
    static const char *const ways[] = { "resident", "delta", "dynamic", "restart" };
    model_config c = small(1);
    for (size_t i = 0; i < COUNT(ways); i++)
        for (int k = 0; k < 2; k++) {
            device *dev;
            pipeline *p;
            diag d = { 0 };
            double most = 0;
            assert_ok(device_open(&dev, "soft:m4", &(device_options){ .threads = 1, .own_budget = true }, &d), d);
            pipe_options o = { .pipeline = ways[i], .dev = dev, .config = &c, .batch = B,
                               .train = { .optimizer = "sgd", .loss_scale = k ? 8192 : 0, .dynamic_scale = k,
                                          .grow_after = 1 } };
            assert_ok(pipe_open(&p, &o, &d), d);
            fill_with(p, start, 0.02);
            for (int n = 0; n < 5; n++) {
                int32_t ids[B * (T + 1)];
                train_report rep;
                bool again;
                batch(0, ids);
                assert_ok(pipe_step(p, ids, 0, &rep, &again, &d), d);
                assert_true(rep.applied);
                most = MAX(most, rep.loss_scale);
            }
            if (most != (k ? 32768 : 1024)) fail_msg("%s: a loss scale of %g", ways[i], most);
            pipe_close(p);
            device_close(dev);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(gradients),    cmocka_unit_test(one_curve),
                                        cmocka_unit_test(one_curve_of_gemma), cmocka_unit_test(restarts),
                                        cmocka_unit_test(accumulation), cmocka_unit_test(exchange),
                                        cmocka_unit_test(weights_from_outside),  cmocka_unit_test(surfaces),
                                        cmocka_unit_test(faults),       cmocka_unit_test(faults_on_the_way_up),
                                        cmocka_unit_test(bad_within_a_group),
                                        cmocka_unit_test(those_of_the_command), cmocka_unit_test(beside_the_device),
                                        cmocka_unit_test(without_a_gradient), cmocka_unit_test(a_gradient_no_more),
                                        cmocka_unit_test(scales), cmocka_unit_test(scales_of_chips) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
