/* test_lm_shape: what a run may change about its model, from start to file: the exported model computes what was
 * trained, runs go on to the same bits, what does not fit is refused; and what a run says about numbers that are not
 * finite, about norms, and about its past. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "format/json.h"
#include "lm/generate.h"
#include "lm_run_t.h"
#include "train/ckpt.h"
#include "train/log.h"
#include "train/plot.h"

typedef struct {
    const char *name, *pipeline, *engine;
    double residual, softcap;
    bool zero, compact, recompute;
} row;
static const row rows[] = {
    { "plain", "resident", "cpu", 0, 0, false, false, false },      { "residual", "resident", "cpu", -1, 0, false, false, false },
    { "softcap", "resident", "cpu", 0, 2, false, false, false },    { "zero", "resident", "cpu", 0, 0, true, false, false },
    { "compact", "resident", "cpu", 0, 0, false, true, false },     { "recompute", "resident", "cpu", 0, 0, false, false, true },
    { "all", "resident", "cpu", 0.5, 3, true, true, true },         { "all", "delta", "cpu", -1, 3, true, true, true },
    { "all", "dynamic", "soft:m4", -1, 3, true, true, true },       { "all", "resident", "soft:m4", -1, 3, true, true, true },
    { "all", "restart", "soft:m4", -1, 3, false, true, true },      { "a norm behind", "resident", "cpu", 0.3, 0, false, false, false },
    { "a norm behind", "resident", "cpu", 0, 0, true, false, false },  { "a norm behind", "resident", "soft:m4", 0.3, 0, true, true, true },
};

/* A norm ends each branch of Gemma 2. */
static lm_run_options options_of(small_run *r, const row *w)
{
    static const char gemma2[] = "{\"architectures\":[\"Gemma2ForCausalLM\"],\"model_type\":\"gemma2\",\"hidden_size\":16,\"intermediate_size\":32,\"num_hidden_layers\":2,\"num_attention_heads\":2,"
                                 "\"num_key_value_heads\":1,\"head_dim\":8,\"vocab_size\":300,\"max_position_embeddings\":64,\"sliding_window\":64}";
    diag d = { 0 };
    if (!strcmp(w->name, "a norm behind")) assert_ok(file_write(r->model, gemma2, sizeof gemma2 - 1, &d), d);
    lm_run_options o = small_options(r, w->engine);
    o.pipeline = w->pipeline, o.residual = w->residual, o.softcap = w->softcap, o.zero_init = w->zero,
    o.compact_vocab = w->compact, o.recompute = w->recompute;
    o.steps = 6, o.save_every = 3;
    return o;
}

/* Mean loss of the exported model on the text the run kept back, as the run computes its own. */
static double loss_of_file(const small_run *r, const lm_run_result *q)
{
    diag d = { 0 };
    corpus *data;
    lm_model *m;
    lm_session *s;
    corpus_pos pos = { 0 };
    double sum = 0;
    assert_ok(corpus_open(r->data, &(corpus_options){ .vocab = 300, .seq = q->seq, .seed = 3, .validation = 0.02 },
                          &data, &d),
              d);
    int64_t n = (int64_t)corpus_samples(data, CORPUS_VALIDATION);
    assert_true(n < 64);
    assert_ok(lm_open(r->save, &(lm_options){ .dt = DT_F32 }, &m, &d), d);
    assert_ok(lm_session_open(m, &(lm_session_options){ .engine = "cpu", .no_cache = true, .context = 32 }, &s, &d), d);
    for (int64_t i = 0; i < n; i++) {
        int32_t ids[17];
        lm_score score;
        assert_ok(corpus_batch(data, CORPUS_VALIDATION, 1, &pos, ids, &d), d);
        assert_ok(lm_eval(s, (const uint32_t *)ids, 17, NULL, NULL, &score, &d), d);
        sum += score.nats / (double)score.tokens / (double)n;
    }
    lm_session_close(s);
    lm_close(m);
    corpus_close(data);
    return sum;
}

static void exported(void **state)
{
    (void)state;
    uint64_t plain = 0;
    for (size_t i = 0; i < COUNT(rows); i++) {
        small_run a, b;
        lm_run_result whole, half, rest;
        diag d = { 0 };
        small_begin(&a), small_begin(&b);
        lm_run_options x = options_of(&a, &rows[i]), y = options_of(&b, &rows[i]);
        assert_ok(lm_run(&x, &whole, &d), d);
        b.stop_at = 3;
        assert_ok(lm_run(&y, &half, &d), d);
        b.stop_at = 0, y.resume = true;
        assert_ok(lm_run(&y, &rest, &d), d);
        if (whole.digest != rest.digest)
            fail_msg("%s, %s on %s: in pieces it ends elsewhere", rows[i].name, rows[i].pipeline, rows[i].engine);
        double file = loss_of_file(&a, &whole), far = strcmp(rows[i].engine, "cpu") ? 0.01 : 1e-5;
        if (!(fabs(file - whole.validation) < far * whole.validation))
            fail_msg("%s, %s on %s: trained to %.7f, the file has %.7f", rows[i].name, rows[i].pipeline, rows[i].engine,
                     whole.validation, file);
        if (!i) plain = whole.digest;
        else assert_true((whole.digest == plain) == !strcmp(rows[i].name, "recompute"));
        assert_true(rows[i].compact ? whole.vocab <= 40 : whole.vocab == 300);
        small_end(&a), small_end(&b);
    }
}

/* Rows that were not trained are as they were; the list says which were; what is not in it is never answered, and
 * cannot be asked for. */
static void compact_rows(void **state)
{
    (void)state;
    small_run r;
    lm_run_result q;
    diag d = { 0 };
    lm_model *m, *start;
    lm_session *s;
    const float *logits;
    small_begin(&r);
    lm_run_options o = options_of(&r, &rows[4]);
    assert_ok(lm_run(&o, &q, &d), d);
    assert_ok(lm_open(r.save, &(lm_options){ .dt = DT_F32 }, &m, &d), d);
    assert_ok(lm_open(r.model, &(lm_options){ .dt = DT_F32, .seed = 3 }, &start, &d), d);
    const unsigned char *may = lm_active(m);
    assert_non_null(may);
    int64_t n = 0, moved = 0;
    for (int64_t i = 0; i < 300; i++) {
        float x[16], y[16];
        assert_ok(lm_rows(m, MW_EMBED, -1, i, 1, DT_F32, x, &d), d);
        assert_ok(lm_rows(start, MW_EMBED, -1, i, 1, DT_F32, y, &d), d);
        n += may[i], moved += memcmp(x, y, sizeof x) != 0;
        if (!may[i]) assert_memory_equal(x, y, sizeof x);
    }
    assert_true(n == q.vocab && moved == n);
    assert_ok(lm_session_open(m, &(lm_session_options){ .engine = "cpu", .no_cache = true, .context = 16 }, &s, &d), d);
    assert_ok(lm_session_feed(s, (const uint32_t[]){ 299, 1 }, 2, &logits, &d), d); /* any id may be read */
    for (int64_t i = 0; i < 300; i++) assert_true(may[i] ? isfinite(logits[i]) : logits[i] == -INFINITY);
    lm_score score;
    assert_int_equal(lm_eval(s, (const uint32_t[]){ 1, 299 }, 2, NULL, NULL, &score, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "299"));
    lm_session_close(s);
    /* other forms of file hold all rows too */
    char out[120];
    lm_converted done;
    lm_model *again;
    d = (diag){ 0 };
    snprintf(out, sizeof out, "%s/m.gguf", r.dir);
    assert_ok(lm_convert(m, out, &(lm_convert_options){ .to = LM_TO_GGUF, .dt = DT_F32, .version = -1 }, &done, &d), d);
    assert_ok(lm_open(out, &(lm_options){ .dt = DT_F32 }, &again, &d), d);
    assert_int_equal(lm_config(again)->vocab, 300);
    lm_close(again);
    snprintf(out, sizeof out, "%s/copy", r.dir);
    assert_ok(lm_convert(m, out, &(lm_convert_options){ .to = LM_TO_HF, .dt = DT_F32, .version = -1 }, &done, &d), d);
    assert_ok(lm_open(out, &(lm_options){ .dt = DT_F32 }, &again, &d), d);
    assert_memory_equal(lm_active(again), may, 300);
    lm_close(again), lm_close(m), lm_close(start);
    for (int part = 0; part < 2; part++) { /* gone on from with all rows: that is said */
        char from[120], to[120];
        snprintf(from, sizeof from, "%s", r.save), snprintf(to, sizeof to, "%s/on%d", r.dir, part);
        lm_run_options more = small_options(&r, "cpu");
        more.model = from, more.save = to, more.steps = 1, more.compact_vocab = part, r.warned[0] = 0;
        assert_ok(lm_run(&more, &q, &d), d);
        assert_int_equal(strstr(r.warned, "answers with part of its vocabulary") != NULL, !part);
    }
    small_end(&r);
}

/* config.json keeps the cap, and what cannot say so is not written. */
static void cap_in_files(void **state)
{
    (void)state;
    static const lm_target no[] = { LM_TO_GGUF, LM_TO_LLAMA2C };
    small_run r;
    lm_run_result q;
    diag d = { 0 };
    lm_model *m;
    lm_converted done;
    char out[120];
    small_begin(&r);
    lm_run_options o = options_of(&r, &rows[2]);
    assert_ok(lm_run(&o, &q, &d), d);
    assert_ok(lm_open(r.save, &(lm_options){ .dt = DT_F32 }, &m, &d), d);
    assert_true(lm_config(m)->softcap == 2);
    for (size_t i = 0; i < COUNT(no); i++) {
        diag e = { 0 };
        snprintf(out, sizeof out, "%s/m%zu", r.dir, i);
        assert_int_equal(
            lm_convert(m, out, &(lm_convert_options){ .to = no[i], .dt = DT_F32, .version = -1 }, &done, &e), AN_INPUT);
        assert_non_null(strstr(e.msg, "soft cap"));
    }
    lm_close(m);
    small_end(&r);
}

static void refused(void **state)
{
    (void)state;
    small_run r;
    lm_run_result q;
    diag d = { 0 };
    char trained[100];
    small_begin(&r);
    lm_run_options o = small_options(&r, "cpu");
    o.steps = 2;
    assert_ok(lm_run(&o, &q, &d), d);
    o.resume = true, o.softcap = 30;
    assert_int_equal(lm_run(&o, &q, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "logits capped at 30"));
    snprintf(trained, sizeof trained, "%s", r.save);
    d = (diag){ 0 }, o = small_options(&r, "cpu"), o.save = NULL, o.model = trained, o.zero_init = true;
    assert_int_equal(lm_run(&o, &q, &d), AN_USAGE);
    assert_non_null(strstr(d.msg, "trained weights"));
    d = (diag){ 0 }, o.zero_init = false, o.softcap = 0.5;
    assert_int_equal(lm_run(&o, &q, &d), AN_USAGE);
    d = (diag){ 0 }, o.softcap = 0, o.residual = 7;
    assert_int_equal(lm_run(&o, &q, &d), AN_USAGE);
    small_end(&r);
}

/* ---- what is said ---- */

typedef struct {
    small_run r;
    int bad, norms;
    char first[100], last[4000];
    plot_lanes *lanes;
} heard;

static void on_note(void *user, const char *line)
{
    heard *h = user;
    json_t *top;
    diag d = { 0 };
    assert_ok(json_text(line, strlen(line), "note", &top, &d), d);
    const char *kind = json_string_value(json_object_get(top, "kind"));
    if (!strcmp(kind, "nonfinite")) {
        const json_t *a = json_object_get(top, "activations"), *l = json_object_get(top, "loss");
        h->bad++;
        if (json_is_string(json_object_get(top, "first")))
            snprintf(h->first, sizeof h->first, "%s", json_string_value(json_object_get(top, "first")));
        json_int_t n = json_integer_value(json_object_get(a, "nan")) + json_integer_value(json_object_get(a, "inf")) +
                       json_integer_value(json_object_get(a, "-inf"));
        assert_true(n > 0 && json_is_integer(json_object_get(json_object_get(top, "gradients"), "nan")) &&
                    json_is_integer(json_object_get(json_object_get(top, "weights"), "inf")));
        assert_true(json_integer_value(json_object_get(l, "nan")) + json_integer_value(json_object_get(l, "inf")) +
                        json_integer_value(json_object_get(l, "-inf")) <=
                    1);
    } else {
        assert_string_equal(kind, "statistics");
        h->norms++;
        assert_true(json_number_value(json_object_get(json_object_get(top, "weights"), "wq")) > 0);
        assert_true(json_number_value(json_object_get(json_object_get(top, "gradients"), "w2")) > 0);
    }
    snprintf(h->last, sizeof h->last, "%s", line);
    json_decref(top);
}

static void count_note(void *user, const char *line)
{
    heard *h = user;
    h->norms++;
    snprintf(h->last, sizeof h->last, "%s", line);
}

/* A rate that throws the weights far away: every update is counted, and the run ends with the name of the tensor. */
static void diverges(void **state)
{
    (void)state;
    static const char *const ways[] = { "resident", "dynamic", "delta", "restart" };
    for (size_t i = 0; i < 2 * COUNT(ways); i++) {
        heard h = { 0 };
        lm_run_result q;
        diag d = { 0 };
        small_begin(&h.r);
        lm_run_options o = small_options(&h.r, "cpu");
        o.accum = 1 + (int)(i / COUNT(ways)), o.pipeline = ways[i % COUNT(ways)], o.steps = 60, o.lr = 1e22,
        o.clip = -1, o.warmup = -1, o.save = strcmp(o.pipeline, "restart") ? NULL : h.r.save, o.on_note = on_note,
        o.user = &h;
        assert_int_equal(lm_run(&o, &q, &d), AN_MISMATCH);
        /* the one that ends it among them */
        assert_true(h.bad >= 32 && h.bad == (int)q.stats.train.skipped && h.first[0]);
        if (!strstr(d.msg, "the first tensor that went bad is ") || !strstr(d.msg, h.first))
            fail_msg("%s: \"%s\", noted \"%s\"", o.pipeline, d.msg, h.first);
        assert_non_null(strstr(h.r.warned, "is not finite"));
        small_end(&h.r);
    }
}

static void norms(void **state)
{
    (void)state;
    static const struct {
        const char *engine, *way;
        const row *model; /* NULL: Llama */
    } on[] = { { "cpu", "resident", NULL },
               { "cpu", "delta", NULL },
               { "soft:m4", "resident", NULL },
               { "cpu", "resident", &rows[11] },
               { "soft:m4", "resident", &rows[11] } };
    char said[COUNT(on)][4000];
    for (size_t i = 0; i < COUNT(on); i++) {
        heard h = { 0 };
        lm_run_result q, without;
        diag d = { 0 };
        small_begin(&h.r);
        if (on[i].model) options_of(&h.r, on[i].model); /* it has no kernels of single layers */
        lm_run_options o = small_options(&h.r, on[i].engine);
        o.steps = 4, o.pipeline = on[i].way, o.save = NULL, o.on_note = on_note, o.stats_every = 2, o.user = &h;
        assert_ok(lm_run(&o, &q, &d), d);
        assert_int_equal(h.norms, 2);
        memcpy(said[i], h.last, sizeof said[i]);
        o.stats_every = 0;
        assert_ok(lm_run(&o, &without, &d), d);
        assert_true(q.digest == without.digest); /* looking moves nothing */
        small_end(&h.r);
    }
    /* both ways on one device see the same gradients; on another the weights have moved elsewhere by now */
    for (size_t i = 1; i < 2; i++) {
        json_t *a, *b, *x;
        const char *key;
        diag d = { 0 };
        assert_ok(json_text(said[0], strlen(said[0]), "a", &a, &d), d);
        assert_ok(json_text(said[i], strlen(said[i]), "b", &b, &d), d);
        json_object_foreach (json_object_get(a, "gradients"), key, x) {
            double u = json_number_value(x),
                   v = json_number_value(json_object_get(json_object_get(b, "gradients"), key));
            if (!(fabs(u - v) < 1e-3 * u)) fail_msg("%s: %g, on %s by %s %g", key, u, on[i].engine, on[i].way, v);
        }
        json_decref(a), json_decref(b);
    }
}

static void on_event(void *user, const pipe_event *e) { plot_lanes_add(((heard *)user)->lanes, e); }
static void on_progress(void *user, const lm_progress *p)
{
    heard *h = user;
    small_progress(&h->r, p);
    plot_lanes_mark(h->lanes);
}

/* A look takes programs of its own. Where the process compiles no more it says less, and the run goes on. */
static void looks_within_the_budget(void **state)
{
    (void)state;
    uint64_t want = 0;
    for (int64_t compiles = 2; compiles <= 14; compiles++) {
        heard h = { 0 };
        lm_run_result q;
        diag d = { 0 };
        device_limit limit = { "compiles", compiles };
        small_begin(&h.r);
        lm_run_options o = small_options(&h.r, "soft:m4");
        o.steps = 3, o.save = NULL, o.on_progress = NULL, o.on_note = count_note, o.stats_every = 1,
        o.device.limit = &limit, o.device.n_limit = 1, o.user = &h;
        if (lm_run(&o, &q, &d)) fail_msg("%lld compiles: %s", (long long)compiles, d.msg);
        if (!want) want = q.digest;
        assert_true(q.digest == want && h.norms == 3);
        if (compiles < 4 ? !strstr(h.last, "\"unknown\"")
                         : compiles > 5 && !strstr(h.last, "\"gradients\":{\"embed\":"))
            fail_msg("%lld compiles: %s", (long long)compiles, h.last);
        small_end(&h.r);
    }
}

/* Swim lanes of the ways that have lanes. */
static void swim(void **state)
{
    (void)state;
    static const struct {
        const char *way, *work;
    } on[] = { { "delta", "reload" }, { "dynamic", "weights" }, { "restart", "compile" } };
    for (size_t i = 0; i < COUNT(on); i++) {
        heard h = { .lanes = plot_lanes_new() };
        lm_run_result q;
        diag d = { 0 };
        json_t *top;
        strbuf text = { 0 }, trace = { 0 };
        small_begin(&h.r);
        lm_run_options o = small_options(&h.r, "cpu");
        o.steps = 3, o.pipeline = on[i].way, o.on_event = on_event, o.on_progress = on_progress, o.user = &h;
        assert_ok(lm_run(&o, &q, &d), d);
        plot_lanes_text(&text, h.lanes, 60);
        plot_lanes_trace(&trace, h.lanes, NULL, 0);
        static const char *const both[] = { "fwd_attn", "attn_bwd1", "head",   "dW",  "dW head",
                                            "update",   "waiting",   "device", "host" };
        assert_non_null(strstr(text.at, on[i].work));
        for (size_t k = 0; k < COUNT(both); k++)
            if (!strstr(text.at, both[k])) fail_msg("%s: no %s in\n%s", on[i].way, both[k], text.at);
        assert_ok(json_text(trace.at, trace.n, "trace", &top, &d), d);
        size_t events = json_array_size(json_object_get(top, "traceEvents")), busy[4] = { 0 };
        for (size_t k = 0; k < events; k++) {
            const json_t *e = json_array_get(json_object_get(top, "traceEvents"), k);
            json_int_t lane = json_integer_value(json_object_get(e, "tid"));
            if (!strcmp(json_string_value(json_object_get(e, "ph")), "X") && lane < 4) busy[lane]++;
        }
        /* device and host have work; the loop itself has little */
        assert_true(events > 3 * 2 * 17 && (busy[1] > 20) + (busy[2] > 20) + (busy[3] > 20) == 2);
        json_decref(top);
        sb_free(&text), sb_free(&trace);
        plot_lanes_free(h.lanes);
        small_end(&h.r);
    }
}

/* ---- the past ---- */

typedef struct {
    log_past at[16];
    int n;
} past;

static void on_past(void *user, const log_past *l)
{
    past *p = user;
    assert_true(p->n < 16);
    p->at[p->n++] = *l;
}

static void history(void **state)
{
    (void)state;
    static const char text[] = "{\"step\":1,\"loss\":5,\"smooth\":5}\n{\"step\":2,\"loss\":4,\"smooth\":4.5}\n{\"kind\":\"statistics\",\"step\":2}\n{\"step\":3,\"loss\":9,\"smooth\":9}\n{\"step\":4,\"lo\n"
                               "{\"step\":3,\"loss\":null,\"smooth\":4.4}\n{\"kind\":\"validation\",\"step\":3,\"loss\":4.25}\nnonsense\n{\"step\":4,\"loss\":3,\"smooth\":4}";
    small_run r;
    past p = { .n = 0 };
    diag d = { 0 };
    char path[100];
    small_begin(&r);
    snprintf(path, sizeof path, "%s/log", r.dir);
    log_read(path, on_past, &p); /* not there */
    assert_int_equal(p.n, 0);
    assert_ok(file_write(path, text, sizeof text - 1, &d), d);
    log_read(path, on_past, &p);
    assert_int_equal(p.n, 5);
    static const int64_t step[] = { 1, 2, 3, 3, 4 };
    for (int i = 0; i < 5; i++) assert_int_equal(p.at[i].step, step[i]);
    assert_true(isnan(p.at[2].loss) && p.at[2].smooth == 4.4); /* done again: the last line counts */
    assert_true(p.at[3].kept && p.at[3].loss == 4.25 && p.at[4].loss == 3);
    small_end(&r);
}

/* ---- where nothing may be written ---- */

static void read_only(void **state)
{
    (void)state;
    small_run r;
    lm_run_result q;
    diag d = { 0 };
    small_begin(&r);
    static const char nowhere[] = "/sys/anneal-run"; /* refused to everybody, root too */
    if (!mkdir(nowhere, 0700)) rmdir(nowhere), skip();
    assert_true(errno == EROFS || errno == EPERM || errno == EACCES || errno == ENOENT);
    lm_run_options o = small_options(&r, "cpu");
    o.steps = 4, o.save_every = 2, o.save = nowhere;
    assert_int_equal(lm_run(&o, &q, &d), AN_INPUT);
    assert_true(q.done == 0 && r.n == 0 && strstr(d.msg, nowhere)); /* before the first update */
    small_end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(exported),
                                        cmocka_unit_test(compact_rows),
                                        cmocka_unit_test(cap_in_files),
                                        cmocka_unit_test(refused),
                                        cmocka_unit_test(diverges),
                                        cmocka_unit_test(norms),
                                        cmocka_unit_test(looks_within_the_budget),
                                        cmocka_unit_test(swim),
                                        cmocka_unit_test(history),
                                        cmocka_unit_test(read_only) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
