/* test_lm_run: whole runs of a small Llama: the same bits straight through or in pieces, chains of single updates,
 * what is refused, what is said; and the gradients a run is made of. */
#include <math.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "format/json.h"
#include "format/safetensors.h"
#include "lm_run_t.h"
#include "lm_t.h"
#include "train/lm_grad.h"
#include "train/log.h"
#include "train/plot.h"
#include "weights_t.h"

static const char *const engines[] = { "cpu", "soft:m4" };

static void pieces_equal_the_whole(void **state)
{
    (void)state;
    for (size_t e = 0; e < COUNT(engines); e++) {
        small_run a, b;
        lm_run_result whole, half, rest;
        diag d = { 0 };
        small_begin(&a), small_begin(&b);
        lm_run_options x = small_options(&a, engines[e]), y = small_options(&b, engines[e]);
        assert_ok(lm_run(&x, &whole, &d), d);
        b.stop_at = 10;
        assert_ok(lm_run(&y, &half, &d), d);
        assert_true(half.stopped && half.done == 10 && half.digest != whole.digest);
        b.stop_at = 0, y.resume = true;
        assert_ok(lm_run(&y, &rest, &d), d);
        assert_true(rest.done == 20 && b.n == 20);
        assert_memory_equal(a.loss, b.loss, 20 * sizeof *a.loss);
        assert_true(rest.digest == whole.digest && rest.validation == whole.validation && rest.smooth == whole.smooth);
        small_end(&a), small_end(&b);
    }
}

/* Each update in a run of its own, everything it needs from the one before by way of files. */
static void chains(void **state)
{
    (void)state;
    for (size_t e = 0; e < COUNT(engines); e++)
        for (uint64_t seed = 1; seed <= 5; seed++) {
            small_run r;
            small_begin(&r);
            for (int k = 0; k < 5; k++) {
                lm_run_options o = small_options(&r, engines[e]);
                lm_run_result q;
                diag d = { 0 };
                o.steps = 5, o.warmup = -1, o.batch = 8, o.lr = 3e-2, o.schedule = "constant", o.seed = seed,
                o.resume = k > 0;
                r.stop_at = k + 1;
                assert_ok(lm_run(&o, &q, &d), d);
                assert_true(q.done == k + 1 && isfinite(q.loss) && q.stats.train.skipped == 0);
            }
            assert_true(r.n == 5 && r.loss[4] < r.loss[0] && r.loss[4] < r.loss[1]);
            small_end(&r);
        }
}

/* The same ids in another form are the same data: a run goes on with them. Other ids are not. */
static void ids_in_other_files(void **state)
{
    (void)state;
    small_run whole, r;
    lm_run_result want, q;
    diag d = { 0 };
    char path[120];
    file_bytes f;
    small_begin(&whole);
    lm_run_options o = small_options(&whole, "cpu");
    o.steps = 6;
    assert_ok(lm_run(&o, &want, &d), d);
    small_begin(&r);
    o = small_options(&r, "cpu");
    o.steps = 6, r.stop_at = 3;
    assert_ok(lm_run(&o, &q, &d), d);
    assert_ok(file_read(r.data, 1 << 20, &f, &d), d);
    uint32_t ids[4000];
    assert_int_equal(f.n, 2 * COUNT(ids));
    for (size_t i = 0; i < COUNT(ids); i++) ids[i] = f.at[2 * i] | (uint32_t)f.at[2 * i + 1] << 8;
    file_drop(&f);
    snprintf(path, sizeof path, "%s/ids.u32", r.dir);
    o.data = path, o.resume = true, r.stop_at = 0;
    ids[3999] ^= 1;
    assert_ok(file_write(path, ids, sizeof ids, &d), d);
    assert_int_equal(lm_run(&o, &q, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "trained on other data"));
    ids[3999] ^= 1, d = (diag){ 0 };
    assert_ok(file_write(path, ids, sizeof ids, &d), d);
    assert_ok(lm_run(&o, &q, &d), d);
    assert_true(q.done == 6 && q.digest == want.digest);
    small_end(&r);
    small_end(&whole);
}

static void refusals(void **state)
{
    (void)state;
    small_run r;
    lm_run_result q;
    diag d = { 0 };
    small_begin(&r);
    lm_run_options o = small_options(&r, "cpu");
    o.steps = 4;
    assert_ok(lm_run(&o, &q, &d), d);
    assert_int_equal(lm_run(&o, &q, &d), AN_USAGE); /* it would write over what is there */
    assert_non_null(strstr(d.msg, "--resume"));
    d = (diag){ 0 }, o.resume = true, o.steps = 8;
    assert_int_equal(lm_run(&o, &q, &d), AN_INPUT);
    assert_true(strstr(d.msg, "over 4") && strstr(d.msg, "over 8"));
    d = (diag){ 0 }, o.steps = 4, o.clip = 0.5;
    assert_int_equal(lm_run(&o, &q, &d), AN_INPUT);
    assert_true(strstr(d.msg, "clip 1") && strstr(d.msg, "clip 0.5"));
    d = (diag){ 0 }, o.clip = 0, o.seed = 4;
    assert_int_equal(lm_run(&o, &q, &d), AN_INPUT);
    assert_true(strstr(d.msg, "seed 3;") && strstr(d.msg, "seed 4"));
    d = (diag){ 0 }, o.seed = 3, o.validation = 0.25;
    assert_int_equal(lm_run(&o, &q, &d), AN_INPUT);
    assert_true(strstr(d.msg, "a validation share of 0.02; this run has 0.25") && q.stats.train.steps == 0);
    file_bytes f;
    d = (diag){ 0 }, o.validation = 0;
    assert_ok(file_read(r.data, 1 << 20, &f, &d), d);
    f.at[2 * 139] ^= 1; /* one id of 4000 */
    assert_ok(file_write(r.data, f.at, f.n, &d), d);
    assert_int_equal(lm_run(&o, &q, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "trained on other data"));
    f.at[2 * 139] ^= 1, d = (diag){ 0 };
    assert_ok(file_write(r.data, f.at, f.n, &d), d);
    file_drop(&f);
    o.docs = DOCS_BLANK;
    assert_int_equal(lm_run(&o, &q, &d), AN_USAGE);
    assert_non_null(strstr(d.msg, "--documents is for text"));
    d = (diag){ 0 }, o.docs = DOCS_AUTO, o.schedule = "sine";
    assert_int_equal(lm_run(&o, &q, &d), AN_USAGE);
    d = (diag){ 0 }, o.schedule = NULL, o.pipeline = "restart", o.save = NULL, o.resume = false, o.engine = "soft:m4";
    assert_int_equal(lm_run(&o, &q, &d), AN_USAGE);
    small_end(&r);
}

static void exchange(const char *path, const char *from, const char *to)
{
    file_bytes f;
    diag d = { 0 };
    strbuf b = { 0 };
    assert_ok(file_read(path, 1 << 20, &f, &d), d);
    const char *text = (const char *)f.at, *at = strstr(text, from);
    assert_non_null(at);
    sb_putn(&b, text, (size_t)(at - text));
    sb_puts(&b, to);
    sb_putn(&b, at + strlen(from), f.n - (size_t)(at - text) - strlen(from));
    file_drop(&f);
    assert_ok(file_write(path, b.at, b.n, &d), d);
    sb_free(&b);
}

/* What a sentence about the run does not show: it would go on as another one all the same. */
static void refusals_to_the_bit(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *says;
    } in_config[] = { { "\"rope_theta\":10000.0", "\"rope_theta\":500.0", "rope base 500" },
                      { "\"rms_norm_eps\":1e-5", "\"rms_norm_eps\":1e-2", "norm epsilon 0.01" },
                      { "\"max_position_embeddings\":64", "\"max_position_embeddings\":96", "context 96" } };
    small_run r;
    lm_run_result q;
    diag d = { 0 };
    small_begin(&r);
    lm_run_options o = small_options(&r, "cpu");
    o.steps = 10, r.stop_at = 2;
    assert_ok(lm_run(&o, &q, &d), d);
    o.resume = true, r.n = r.stop_at = 0;
    for (int i = 0; i < 3; i++) { /* what is said only where it was asked for, and none instead of the default */
        static const char *const says[] = { "output projections from 0", "logits capped at 5", "0 of warm-up" };
        lm_run_options other = o;
        other.zero_init = i == 0, other.softcap = i == 1 ? 5 : 0, other.warmup = i == 2 ? -1 : 0;
        d = (diag){ 0 };
        assert_int_equal(lm_run(&other, &q, &d), AN_INPUT);
        if (r.n || !strstr(d.msg, says[i])) fail_msg("%s: %s", says[i], d.msg);
    }
    for (size_t i = 0; i < COUNT(in_config); i++) {
        exchange(r.model, in_config[i].from, in_config[i].to);
        d = (diag){ 0 };
        assert_int_equal(lm_run(&o, &q, &d), AN_INPUT);
        assert_true(r.n == 0 && strstr(d.msg, in_config[i].says));
        exchange(r.model, in_config[i].to, in_config[i].from);
    }
    d = (diag){ 0 }, o.lr = 1e-2 + 1e-10; /* alike in six digits */
    assert_int_equal(lm_run(&o, &q, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "this run has \"lr 0.0100000001"));
    d = (diag){ 0 }, o.lr = 1e-2, o.dynamic_scale = true, o.loss_scale = 8;
    assert_int_equal(lm_run(&o, &q, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "loss scale 8 dynamic"));
    assert_non_null(strstr(d.msg, "trained with \"loss scale 1,"));
    d = (diag){ 0 }, o.dynamic_scale = false, o.loss_scale = 1, r.stop_at = 1; /* the default, said */
    assert_ok(lm_run(&o, &q, &d), d);
    assert_int_equal(q.done, 3);
    o.loss_scale = 0, r.stop_at = 0;
    assert_ok(lm_run(&o, &q, &d), d);
    assert_int_equal(q.done, 10);
    small_end(&r);
}

/* Rows that are not trained stay as they were where the run began; another model to begin with has others. */
static void other_start(void **state)
{
    (void)state;
    small_run a, b;
    lm_run_result q;
    diag d = { 0 };
    char from[2][120];
    small_run *const two[] = { &a, &b };
    for (int i = 0; i < 2; i++) {
        small_begin(two[i]);
        lm_run_options o = small_options(two[i], "cpu");
        o.steps = 2, o.seed = 3 + (uint64_t)i;
        assert_ok(lm_run(&o, &q, &d), d);
        snprintf(from[i], sizeof from[i], "%s/step-00000002", two[i]->save);
    }
    char save[120];
    snprintf(save, sizeof save, "%s/compact", a.dir);
    lm_run_options o = small_options(&a, "cpu");
    o.model = from[0], o.save = save, o.steps = 4, o.compact_vocab = true, a.n = 0, a.stop_at = 2;
    assert_ok(lm_run(&o, &q, &d), d);
    o.resume = true, o.model = from[1], a.n = a.stop_at = 0;
    assert_int_equal(lm_run(&o, &q, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "rows not trained"));
    d = (diag){ 0 }, o.model = from[0];
    assert_ok(lm_run(&o, &q, &d), d);
    assert_int_equal(q.done, 4);
    small_end(&a);
    small_end(&b);
}

/* A device that can address what an update takes with activations computed again, and no more: that is what happens,
 * and the bits are the same. One that cannot even do that says how much was asked for, and what would take less. */
static void little_memory(void **state)
{
    (void)state;
    uint64_t bytes[2], digest = 0;
    small_run r;
    lm_run_result q;
    diag d = { 0 };
    small_begin(&r);
    lm_run_options o = small_options(&r, "soft:m4");
    o.steps = 2, o.batch = 4, o.seq = 64, o.validation = -1, o.save = NULL;
    for (int again = 0; again < 2; again++) {
        o.recompute = again;
        assert_ok(lm_run(&o, &q, &d), d);
        assert_true(!again || q.digest == digest);
        digest = q.digest, bytes[again] = q.stats.bytes;
    }
    assert_true(bytes[1] < bytes[0]);
    assert_string_equal(r.warned, "");
    device_limit limit = { "window_bytes", (int64_t)(bytes[0] + bytes[1]) / 2 };
    o.recompute = false, o.device.limit = &limit, o.device.n_limit = 1;
    assert_ok(lm_run(&o, &q, &d), d);
    assert_true(q.digest == digest && strstr(r.warned, "trying again with --recompute"));
    limit.value = (int64_t)bytes[1] / 2;
    assert_int_equal(lm_run(&o, &q, &d), AN_UNSUPPORTED);
    assert_true(strstr(d.msg, " bytes") && strstr(d.msg, "a smaller --batch or --seq"));
    small_end(&r);
}

static void lines(void **state)
{
    (void)state;
    lm_progress p = {
        .step = 3, .steps = 9, .loss = NAN, .smooth = 2.5, .lr = 1e-3, .tokens = 100, .ms = 50, .skipped = 2
    };
    strbuf j = { 0 }, c = { 0 }, h = { 0 };
    log_json(&j, &p);
    log_csv(&c, &p);
    log_csv_head(&h);
    assert_non_null(strstr(j.at, "{\"step\":3,\"loss\":null,\"smooth\":2.5,\"lr\":0.001,\"tok_s\":2000,\"ms\":50"));
    assert_non_null(strstr(j.at, "\"nonfinite\":2,"));
    assert_int_equal(strncmp(c.at, "3,,2.5,0.001,2000,50,", 21), 0);
    int a = 0, b = 0;
    for (size_t i = 0; i < c.n; i++) a += c.at[i] == ',';
    for (size_t i = 0; i < h.n; i++) b += h.at[i] == ',';
    assert_int_equal(a, b);
    sb_free(&j), sb_free(&c), sb_free(&h);
}

/* Any number of points fits; means stay means; nothing is drawn outside. */
static void curves(void **state)
{
    (void)state;
    static plot_series s, one;
    for (int i = 1; i <= 5000; i++) plot_add(&s, i, 10.0 - i * 1e-3);
    plot_add(&s, 5001, NAN);
    assert_true(s.n <= PLOT_POINTS && s.n > PLOT_POINTS / 4);
    for (size_t i = 0; i < s.n; i++) assert_true(fabs(s.y[i] - (10.0 - s.x[i] * 1e-3)) < 1e-9);
    plot_add(&one, 1, 2);
    strbuf text = { 0 }, svg = { 0 }, none = { 0 };
    plot_text(&text, &(plot_losses){ .title = "t", .raw = &s }, 40, 8, true);
    assert_true(strchr(text.at, '*') && strstr(text.at, "10.19"));
    plot_svg(&svg, &(plot_losses){ .title = "a<b & \"c\"", .raw = &s, .kept = &one });
    assert_true(strstr(svg.at, "a&lt;b &amp; &quot;c&quot;") && strstr(svg.at, "<polyline") &&
                strstr(svg.at, "<circle") && strstr(svg.at, "</svg>"));
    plot_text(&none, &(plot_losses){ .title = "t" }, 40, 8, true);
    assert_true(none.n == 0);
    /* names of files may be any bytes, and a title may be cut in the middle of a character: XML takes neither */
    plot_svg(&none, &(plot_losses){ .title = "caf\xe9 \xc3\xa9 \xef\xbf\xbf\t\xc3", .raw = &s });
    assert_non_null(strstr(none.at, ">caf\xef\xbf\xbd \xc3\xa9 \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd<"));
    sb_free(&text), sb_free(&svg), sb_free(&none);
}

/* Labels of an axis differ however little there is to see. */
static void labels(void **state)
{
    (void)state;
    static const struct { double from, span; } rows[] = { { 6.24, 1e-4 }, { 6.24, 0.004 }, { 6.24, 0.03 }, { 6.24, 0.5 }, { 6.24, 3 }, { 6.24, 70 }, { 3.7, 5.7e7 }, { 0, 12 }, { 9e5, 1 },
                                                             /* the last two: what rounding leaves, and none */
                                                             { 2e13, 7e13 }, { 1e30, 0 }, { 1e30, 1e14 }, { 3e38, 0 } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        plot_series s = { 0 };
        char seen[40][24];
        int n = 0, axis = -1;
        for (int k = 1; k <= 10; k++) plot_add(&s, k, rows[i].from + rows[i].span * k / 10);
        strbuf svg = { 0 }, text = { 0 };
        plot_svg(&svg, &(plot_losses){ .raw = &s });
        for (const char *at = svg.at; (at = strstr(at, "text-anchor=\"end\">")); n++) {
            const char *x = at;
            while (strncmp(x, "<text", 5)) x--;
            at = strchr(at, '>') + 1;
            assert_true(n < (int)COUNT(seen));
            snprintf(seen[n], sizeof *seen, "%.*s", (int)strcspn(at, "<"), at);
            for (int k = 0; k < n; k++) assert_string_not_equal(seen[k], seen[n]);
            if (atof(strstr(x, "x=\"") + 3) < 20 + 7 * (double)strlen(seen[n]))
                fail_msg("%s begins on the scale's name", seen[n]);
            assert_true(seen[n][0] != '-');
        }
        if (n < 4 || strstr(svg.at, "nan"))
            fail_msg("%g and %g more: %d labels, or no numbers", rows[i].from, rows[i].span, n);
        plot_text(&text, &(plot_losses){ .raw = &s }, 40, 9, true);
        const char *line = text.at;
        for (int k = 0; k < 10; k++, line = strchr(line, '\n') + 1) { /* the scale is one line, down to the corner */
            int at = k < 9 ? (int)strcspn(line, "|") : (int)strcspn(line, "+");
            if (axis >= 0 && at != axis)
                fail_msg("%g and %g more: a scale at %d and %d:\n%s", rows[i].from, rows[i].span, axis, at, text.at);
            axis = at;
        }
        sb_free(&svg);
        sb_free(&text);
    }
}

static void lanes(void **state)
{
    (void)state;
    plot_lanes *l = plot_lanes_new();
    assert_non_null(l);
    uint64_t t = clock_ns();
    plot_lanes_add(l, &(pipe_event){ .lane = "device", .what = "forward", .layer = 1, .begin = t, .end = t + 1000000 });
    plot_lanes_add(l,
                   &(pipe_event){ .lane = "host", .what = "dW", .layer = -1, .begin = t + 500000, .end = t + 900000 });
    plot_lanes_add(
        l, &(pipe_event){ .lane = "device", .what = "forward", .layer = 2, .begin = t + 3000000, .end = t + 4000000 });
    plot_lanes_mark(l);
    strbuf text = { 0 }, trace = { 0 };
    plot_lanes_text(&text, l, 40);
    plot_lanes_trace(&trace, l, "", 0);
    assert_true(strstr(text.at, "forward") && strstr(text.at, "waiting"));
    assert_non_null(strstr(text.at, " 50.0%")); /* two of four milliseconds */
    assert_non_null(strstr(text.at, "device and host at once                         0.40 ms"));
    char one[100];
    snprintf(one, sizeof one,
             "\"pid\":1,\"tid\":1,\"ts\":%.3f,\"dur\":1000.000,\"name\":\"forward\",\"args\":{\"layer\":2}}",
             (double)(t + 3000000) / 1e3);
    assert_non_null(strstr(trace.at, one));
    /* a process that goes on adds its own; what is no trace is left out */
    strbuf two = { 0 }, three = { 0 }, other = { 0 };
    plot_lanes_trace(&two, l, trace.at, trace.n);
    plot_lanes_trace(&three, l, two.at, two.n);
    plot_lanes_trace(&other, l, "hello", 5);
    assert_true(!strncmp(two.at, trace.at, trace.n - 4) && strstr(two.at, "\"pid\":2,\"tid\":1,\"ts\":") &&
                !strstr(two.at, "\"pid\":3"));
    assert_true(strstr(three.at, "\"pid\":1,\"tid\":1") && strstr(three.at, "\"pid\":2,\"tid\":1") &&
                strstr(three.at, "\"pid\":3,\"tid\":1"));
    assert_string_equal(other.at, trace.at);
    diag d = { 0 };
    json_t *top;
    assert_ok(json_text(three.at, three.n, "trace", &top, &d), d);
    assert_int_equal(json_array_size(json_object_get(top, "traceEvents")), 3 * (1 + 2 + 3));
    json_decref(top);
    sb_free(&text), sb_free(&trace), sb_free(&two), sb_free(&three), sb_free(&other);
    plot_lanes_free(l);
}

/* ---- what a run does besides, in a lane of its own ---- */

static const struct {
    const char *what;
    int times;
} works[] = { { "set up", 1 },         { "programs", 1 },   { "weights", 1 }, { "data", 12 },
              { "text kept back", 2 }, { "checkpoint", 3 }, { "sample", 2 },  { "numbers", 2 } };
static int seen[COUNT(works)], at_device, others;

static void note_event(void *user, const pipe_event *e)
{
    (void)user;
    assert_true(e->end >= e->begin);
    at_device += !strcmp(e->lane, "device");
    if (strcmp(e->lane, "run")) return;
    size_t i = 0;
    while (i < COUNT(works) && strcmp(e->what, works[i].what)) i++;
    if (i < COUNT(works)) seen[i]++;
    else others++;
}

/* ---- rates and times as they are logged ---- */

typedef struct {
    double lr[8];
    lm_progress last;
    int n;
} seen_lines;

static void take_line(void *user, const lm_progress *p)
{
    seen_lines *s = user;
    assert_true(s->n < (int)COUNT(s->lr));
    s->lr[s->n++] = p->lr, s->last = *p;
}

static bool go_on(void *user) { return (void)user, false; }

static bool after_one(void *user) { return ((seen_lines *)user)->n >= 1; }

static void rates(void **state)
{
    (void)state;
    small_run r;
    small_begin(&r);
    static const double ends[] = { 0, 0.5, -1 }, left[] = { 0.1, 0.5, 0 };
    for (size_t i = 0; i < COUNT(ends); i++) {
        lm_run_options o = small_options(&r, "cpu");
        lm_run_result q;
        seen_lines s = { 0 };
        diag d = { 0 };
        o.save = NULL, o.steps = 4, o.lr = 0.01, o.lr_end = ends[i], o.schedule = "linear", o.warmup = -1, o.user = &s,
        o.on_progress = take_line, o.stop = go_on, o.warn = NULL;
        assert_ok(lm_run(&o, &q, &d), d);
        assert_int_equal(s.n, 4);
        for (int k = 0; k < 4; k++)
            assert_true(fabs(s.lr[k] - 0.01 * (left[i] + (1 - left[i]) * (1 - k / 4.0))) < 1e-12);
    }
    /* Unless it is said, a tenth of the run warms up, twenty updates at most; and the rate is that of a small model. */
    static const int64_t steps[] = { 9, 30, 1000 };
    static const double first[] = { 3e-3, 3e-3 / 3, 3e-3 / 20 };
    for (size_t i = 0; i < COUNT(steps); i++) {
        lm_run_options o = small_options(&r, "cpu");
        lm_run_result q;
        seen_lines s = { 0 };
        diag d = { 0 };
        o.save = NULL, o.steps = steps[i], o.lr = 0, o.schedule = "constant", o.user = &s, o.on_progress = take_line,
        o.stop = after_one, o.warn = NULL;
        assert_ok(lm_run(&o, &q, &d), d);
        assert_true(s.n == 1 && fabs(s.lr[0] - first[i]) < 1e-12);
    }
    /* Of one with more than a million numbers it is lower: by the root of how many more. */
    static const char wide[] = "{\"model_type\":\"llama\",\"hidden_size\":256,\"intermediate_size\":1024,\"num_hidden_layers\":2,\"num_attention_heads\":2,\"num_key_value_heads\":1,"
                               "\"vocab_size\":300,\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":true,\"hidden_act\":\"silu\"}";
    lm_run_options o = small_options(&r, "cpu");
    lm_run_result q;
    seen_lines s = { 0 };
    diag d = { 0 };
    assert_ok(file_write(r.model, wide, sizeof wide - 1, &d), d);
    o.save = NULL, o.steps = 9, o.lr = 0, o.schedule = "constant", o.user = &s, o.on_progress = take_line,
    o.stop = after_one, o.warn = NULL;
    assert_ok(lm_run(&o, &q, &d), d);
    assert_true(q.parameters > 2000000 && fabs(s.lr[0] - 3e-3 / sqrt((double)q.parameters / 1e6)) < 1e-12);
    small_end(&r);
}

/* The device's time is the device's, the host's the host's: neither is what is left of the update. */
static void split(void **state)
{
    (void)state;
    static const char *const ways[] = { "resident", "delta", "dynamic" };
    small_run r;
    small_begin(&r);
    for (size_t i = 0; i < COUNT(ways); i++) {
        lm_run_options o = small_options(&r, "cpu");
        lm_run_result q;
        seen_lines s = { 0 };
        diag d = { 0 };
        o.save = NULL, o.steps = 4, o.pipeline = ways[i], o.user = &s, o.on_progress = take_line, o.stop = go_on,
        o.warn = NULL;
        assert_ok(lm_run(&o, &q, &d), d);
        const lm_progress *p = &s.last;
        assert_true(p->device_ms > 0 && p->host_ms > 0 && p->wait_ms >= 0 && p->data_ms > 0);
        assert_true(p->device_ms + p->wait_ms + p->data_ms <= p->ms); /* all of one thread */
        assert_true(i || p->wait_ms == 0);
    }
    small_end(&r);
}

/* Options a device would take and not heed. */
static void unheeded(void **state)
{
    (void)state;
    small_run r;
    lm_run_result q;
    diag d = { 0 };
    small_begin(&r);
    lm_run_options o = small_options(&r, "soft:m4");
    o.device.fast_math = true;
    assert_int_equal(lm_run(&o, &q, &d), AN_USAGE);
    assert_non_null(strstr(d.msg, "bf16"));
    device_limit limit = { "compiles", 20 };
    o = small_options(&r, "cpu"), d = (diag){ 0 };
    o.device.limit = &limit, o.device.n_limit = 1;
    assert_int_equal(lm_run(&o, &q, &d), AN_USAGE);
    assert_non_null(strstr(d.msg, "limit of compiles"));
    static const char *const ways[] = { "delta", "dynamic", "restart" };
    for (size_t i = 0; i < COUNT(ways) * COUNT(engines); i++) {
        o = small_options(&r, engines[i % COUNT(engines)]), d = (diag){ 0 };
        o.pipeline = ways[i / COUNT(engines)], o.state = TRAIN_HALVES;
        assert_int_equal(lm_run(&o, &q, &d), AN_USAGE);
        assert_true(strstr(d.msg, o.pipeline) && strstr(d.msg, "a state of halves is for resident"));
    }
    static const double ends[] = { 0.5, -1 }, more[] = { 1.5, INFINITY, NAN };
    for (size_t i = 0; i < COUNT(ends); i++) {
        o = small_options(&r, "cpu"), d = (diag){ 0 };
        o.schedule = "constant", o.lr_end = ends[i];
        assert_int_equal(lm_run(&o, &q, &d), AN_USAGE);
        assert_non_null(strstr(d.msg, "the schedule is constant"));
    }
    for (size_t i = 0; i < COUNT(more); i++) { /* the rate would rise */
        o = small_options(&r, "cpu"), d = (diag){ 0 };
        o.lr_end = more[i];
        assert_int_equal(lm_run(&o, &q, &d), AN_USAGE);
        assert_non_null(strstr(d.msg, "wanted a fraction from 0 to 1"));
    }
    small_end(&r);
}

/* What is about samples where there is no tokenizer for them: ids alone. */
static void no_samples(void **state)
{
    (void)state;
    static const char *const what[] = { "--sample-every", "--sample-tokens", "--prompt" };
    small_run r;
    lm_run_result q;
    small_begin(&r);
    for (size_t i = 0; i <= COUNT(what); i++) {
        lm_run_options o = small_options(&r, "cpu");
        diag d = { 0 };
        o.save = NULL, o.steps = 1, o.sample_every = i == 0 ? 5 : 0, o.sample_tokens = i == 1 ? 3 : 0,
        o.prompt = i == 2 ? "a" : NULL;
        an_status st = lm_run(&o, &q, &d);
        if (i == COUNT(what)) assert_ok(st, d); /* nothing asked for, nothing refused */
        else assert_true(st == AN_USAGE && strstr(d.msg, what[i]) && strstr(d.msg, "there is no tokenizer"));
    }
    small_end(&r);
}

/* One window cannot be shared out. */
static void nothing_kept(void **state)
{
    (void)state;
    small_run r;
    lm_run_result q;
    diag d = { 0 };
    uint16_t ids[17] = { 0 };
    small_begin(&r);
    assert_ok(file_write(r.data, ids, sizeof ids, &d), d);
    lm_run_options o = small_options(&r, "cpu");
    o.save = NULL, o.steps = 1, o.eval_every = 1;
    assert_int_equal(lm_run(&o, &q, &d), AN_USAGE);
    assert_non_null(strstr(d.msg, "is kept back (1 window of 16 ids, a share of 0.02)"));
    d = (diag){ 0 }, o.eval_every = 0;
    assert_ok(lm_run(&o, &q, &d), d);
    assert_true(isnan(q.validation) && !r.warned[0]);
    o.validation = 0.5;
    assert_ok(lm_run(&o, &q, &d), d);
    assert_non_null(strstr(r.warned, "is kept back: it is one window"));
    small_end(&r);
}

/* The loss on text kept back is of the same windows whatever the batch: the first 64, or all of fewer. */
static void any_batch(void **state)
{
    (void)state;
    static const int64_t batch[] = { 1, 2, 3, 5, 8, 24, 100 };
    static const double share[] = { 0.02, 0.5 }; /* 4 windows, 124 */
    small_run r;
    lm_run_result q;
    diag d = { 0 };
    small_begin(&r);
    for (size_t s = 0; s < COUNT(share); s++) {
        double first = 0;
        for (size_t i = 0; i < COUNT(batch); i++) {
            lm_run_options o = small_options(&r, "cpu");
            o.save = NULL, o.steps = 1, o.lr = 1e-12, o.batch = batch[i], o.validation = share[s];
            assert_ok(lm_run(&o, &q, &d), d);
            if (!i) first = q.validation;
            assert_true(q.validation_samples == (s ? 124 : 4) && q.validation > 5);
            if (!(fabs(q.validation - first) < 2e-6))
                fail_msg("batch %lld: %.9g, of single windows %.9g", (long long)batch[i], q.validation, first);
        }
    }
    small_end(&r);
}

typedef struct {
    double loss[40], smooth[40];
    int n;
} smoothed;

static void keep_smooth(void *user, const lm_progress *p)
{
    smoothed *s = user;
    if (s->n < 40) s->loss[s->n] = p->loss, s->smooth[s->n++] = p->smooth;
}

/* The smoothed loss is the mean of all until there are 20, then each new one is a twentieth of it. */
static void smoothing(void **state)
{
    (void)state;
    enum { N = 30 };
    small_run r;
    smoothed s = { 0 };
    lm_run_result q;
    diag d = { 0 };
    double sum = 0, want = 0;
    small_begin(&r);
    lm_run_options o = small_options(&r, "cpu");
    o.save = NULL, o.steps = N, o.on_progress = keep_smooth, o.stop = NULL, o.warn = NULL, o.user = &s;
    assert_ok(lm_run(&o, &q, &d), d);
    assert_int_equal(s.n, N);
    for (int i = 0; i < N; i++) {
        sum += s.loss[i];
        want = i < 20 ? sum / (i + 1) : 0.95 * want + 0.05 * s.loss[i];
        assert_true(fabs(s.smooth[i] - want) < 1e-9);
    }
    assert_true(s.loss[N - 1] < s.loss[0] - 0.1 && fabs(q.smooth - want) < 1e-9);
    small_end(&r);
}

static void ignore_sample(void *user, int64_t step, const char *text, size_t n)
{
    (void)user, (void)step, (void)text, (void)n;
}

static void events(void **state)
{
    (void)state;
    small_run r;
    lm_run_result q;
    diag d = { 0 };
    small_begin(&r);
    lm_run_options o = small_options(&r, "cpu");
    o.steps = 6, o.accum = 2, o.save_every = 2, o.eval_every = 3, o.sample_every = 3, o.data = NULL,
    o.on_event = note_event, o.on_sample = ignore_sample, o.sample_tokens = 2, o.stats_every = 3;
    memset(seen, 0, sizeof seen), at_device = others = 0;
    assert_ok(lm_run(&o, &q, &d), d);
    for (size_t i = 0; i < COUNT(works); i++)
        if (seen[i] != works[i].times) fail_msg("%s: %d times, wanted %d", works[i].what, seen[i], works[i].times);
    assert_true(at_device == 12 && others == 0);
    small_end(&r);
}

/* ---- saved first ---- */

typedef struct {
    small_run r;
    int looks, samples, early; /* early: of an update that was in no checkpoint yet */
    int asked_at, asked;       /* after this update, from the second time it is asked on */
} patient;

static bool is_saved(const patient *p, int64_t step)
{
    char path[200];
    path_info i;
    snprintf(path, sizeof path, "%s/step-%08lld", p->r.save, (long long)step);
    return path_look(path, &i);
}

static void on_look(void *user, int64_t step, double loss)
{
    patient *p = user;
    (void)loss;
    p->looks++, p->early += !is_saved(p, step);
}

static void on_text(void *user, int64_t step, const char *text, size_t n)
{
    patient *p = user;
    (void)text, (void)n;
    p->samples++, p->early += !is_saved(p, step);
}

static bool asked_while_looking(void *user)
{
    patient *p = user;
    return p->asked_at && p->r.n >= p->asked_at && ++p->asked > 1;
}

/* Looks at text kept back and samples may take long, and who asks a second time ends the run in the middle of them: a
 * save that is due, because of its number or because the run was asked to end, is there before they begin, and one
 * that is asked for meanwhile before they are done. */
static void saved_first(void **state)
{
    (void)state;
    static const struct {
        int64_t save_every, look_every, sample_every;
        int stop_at, asked_at, looks, samples, done;
    } rows[] = {
        { 2, 2, 2, 0, 0, 3, 3, 6 },   /* the last ones are those of the end */
        { 100, 3, 3, 3, 0, 1, 1, 3 }, /* asked for while it trained */
        { 100, 2, -1, 0, 2, 1, 0, 2 }, /* while it looked at text kept back */
        { 100, 4, 2, 0, 2, 0, 1, 2 }, /* while it wrote a sample */
        { 2, 2, 2, 6, 0, 3, 3, 6 },   /* in the last update: nothing is left to stop */
    };
    uint64_t digest[COUNT(rows)];
    for (size_t i = 0; i < COUNT(rows); i++) {
        patient p = { .asked_at = rows[i].asked_at };
        lm_run_result q;
        diag d = { 0 };
        small_begin(&p.r);
        lm_run_options o = small_options(&p.r, "cpu");
        o.steps = 6, o.data = NULL, o.save_every = rows[i].save_every, o.eval_every = rows[i].look_every,
        o.sample_every = rows[i].sample_every, o.sample_tokens = 3, o.validation = 0.1, o.on_eval = on_look,
        o.on_sample = on_text, p.r.stop_at = rows[i].stop_at;
        if (rows[i].asked_at) o.stop = asked_while_looking;
        assert_ok(lm_run(&o, &q, &d), d);
        if (p.early || p.looks != rows[i].looks || p.samples != rows[i].samples || q.done != rows[i].done)
            fail_msg("row %zu: %d looks, %d samples, %d before the save; %d updates", i, p.looks, p.samples, p.early,
                     (int)q.done);
        assert_true(q.stopped == (q.done < 6));
        if (q.done < 6) { /* and gone on from there it is what it would have been */
            p = (patient){ .r = p.r };
            p.r.stop_at = 0, o.resume = true, o.stop = NULL;
            assert_ok(lm_run(&o, &q, &d), d);
        }
        digest[i] = q.digest;
        assert_true(digest[i] == digest[0]);
        small_end(&p.r);
    }
}

typedef struct {
    small_run r;
    int64_t at[4];
    double loss[4];
    int n;
    bool told;
} looker;

static void keep_look(void *user, int64_t step, double loss)
{
    looker *l = user;
    l->at[l->n] = step, l->loss[l->n++] = loss;
}

static bool was_told(void *user, int64_t step) { return ((looker *)user)->told && step == 3; }

/* A process that dies between a save and the look at text kept back that is due after the same update owes it to the
 * next one, which begins with it unless it was told of. */
static void owed_looks(void **state)
{
    (void)state;
    looker l = { .n = 0 };
    lm_run_result q;
    diag d = { 0 };
    for (int told = 0; told < 2; told++) {
        small_begin(&l.r);
        lm_run_options o = small_options(&l.r, "cpu");
        o.steps = 6, o.save_every = 3, o.eval_every = 3, o.on_eval = keep_look, o.is_told = was_told, l.r.stop_at = 3;
        l.n = 0, l.told = told;
        assert_ok(lm_run(&o, &q, &d), d);
        assert_true(l.n == 1 && l.at[0] == 3); /* behind the save, which is of before */
        o.resume = true, l.r.stop_at = 0;
        assert_ok(lm_run(&o, &q, &d), d);
        assert_int_equal(l.n, 3 - told);
        assert_true(l.at[l.n - 1] == 6 && (told || (l.at[1] == 3 && l.loss[1] == l.loss[0])));
        small_end(&l.r);
    }
}

/* ---- gradients ---- */

enum { GB = 2, GT = 5 };

static double loss_of(const model_config *c, lm_model *m, const int32_t *ids, const char *bump, int64_t at, double by)
{
    diag d = { 0 };
    device *dev;
    pipeline *p;
    double loss;
    assert_ok(device_open(&dev, "cpu", &(device_options){ .threads = 1 }, &d), d);
    pipe_options o = { .dev = dev, .config = c, .batch = GB, .seq = GT, .train = { .optimizer = "sgd" } };
    assert_ok(pipe_open(&p, &o, &d), d);
    weights_to(m, p);
    if (bump) {
        float x[8192];
        assert_ok(pipe_read(p, bump, DT_F32, x, &d), d);
        x[at] = (float)(x[at] + by);
        assert_ok(pipe_write(p, bump, DT_F32, x, &d), d);
    }
    assert_ok(pipe_loss(p, ids, &loss, &d), d);
    pipe_close(p);
    device_close(dev);
    return loss;
}

/* The file beside the model's own: names, shapes; and slopes of the loss by a few numbers of each kind of tensor. */
static void gradients(void **state)
{
    (void)state;
    static const struct {
        const char *weight, *tensor;
        int64_t at, in_file; /* canonical index, index in the file's order */
    } rows[] = {
        { "embed", "model.embed_tokens.weight", 7 * 16 + 3, 7 * 16 + 3 },
        { "l00_wo", "model.layers.0.self_attn.o_proj.weight", 5 * 16 + 2, 5 * 16 + 2 },
        { "l01_w2", "model.layers.1.mlp.down_proj.weight", 3 * 32 + 9, 3 * 32 + 9 },
        { "l01_wq", "model.layers.1.self_attn.q_proj.weight", 3 * 16 + 6, 3 * 16 + 6 },
        { "norm_f", "model.norm.weight", 6, 6 },
    };
    small_run r;
    small_begin(&r);
    diag d = { 0 };
    lm_model *m;
    int32_t ids[GB * (GT + 1)];
    char out[100], folder[100];
    lm_grad_result q;
    lm_converted done;
    safetensors *g, *w;
    for (int i = 0; i < GB * (GT + 1); i++) ids[i] = (i * 37 + 7) % 300;
    snprintf(out, sizeof out, "%s/g.safetensors", r.dir);
    snprintf(folder, sizeof folder, "%s/hf", r.dir);
    assert_ok(lm_open(r.model, &(lm_options){ .dt = DT_F32, .seed = 9 }, &m, &d), d);
    assert_ok(lm_convert(m, folder, &(lm_convert_options){ .to = LM_TO_HF, .dt = DT_F32, .version = -1 }, &done, &d),
              d);
    for (size_t e = 0; e < COUNT(engines); e++) {
        lm_grad_options o = {
            .model = folder, .engine = engines[e], .tokens = ids, .batch = GB, .seq = GT, .out = out
        };
        o.device.threads = 1;
        assert_ok(lm_grad(&o, &q, &d), d);
        double base = loss_of(lm_config(m), m, ids, NULL, 0, 0), loose = e ? 0.02 : 1e-5;
        assert_true(q.tokens == GB * GT && fabs(q.loss - base) < loose);
        assert_ok(safetensors_open(out, &g, &d), d);
        snprintf(out, sizeof out, "%s/hf/model.safetensors", r.dir);
        assert_ok(safetensors_open(out, &w, &d), d);
        assert_int_equal(safetensors_count(g), safetensors_count(w));
        for (size_t i = 0; i < safetensors_count(w); i++) {
            const safetensor *t = safetensors_at(w, i), *x = safetensors_find(g, t->name);
            assert_true(x && x->rank == t->rank && !memcmp(x->dim, t->dim, sizeof(int64_t) * (size_t)t->rank));
        }
        for (size_t i = 0; i < COUNT(rows); i++) {
            float got;
            double h = 2e-2, slope = (loss_of(lm_config(m), m, ids, rows[i].weight, rows[i].at, h) -
                                      loss_of(lm_config(m), m, ids, rows[i].weight, rows[i].at, -h)) /
                                     (2 * h);
            memcpy(&got, (const char *)safetensors_find(g, rows[i].tensor)->data + rows[i].in_file * 4, 4);
            if (fabs(got - slope) > 0.03 * fabs(slope) + 3e-5) /* steps of the loss, 5e-7, by 2h */
                fail_msg("%s on %s: %g, by differences %g", rows[i].weight, engines[e], (double)got, slope);
            assert_true(slope != 0);
        }
        safetensors_close(g), safetensors_close(w);
        snprintf(out, sizeof out, "%s/g.safetensors", r.dir);
    }
    lm_close(m);
    small_end(&r);
}

/* Under the names of the model's own file; and what a process that was killed while it wrote left beside them the
 * next one removes. */
static void gradients_as_named(void **state)
{
    (void)state;
    diag d = { 0 };
    int32_t ids[9];
    lm_grad_result q;
    small_run r;
    char folder[100], file[120], out[100];
    small_begin(&r);
    snprintf(folder, sizeof folder, "%s/own", r.dir);
    assert_ok(dir_make(folder, &d), d);
    snprintf(file, sizeof file, "%s/config.json", folder);
    write_text(file, "{\"architectures\":[\"GPT2LMHeadModel\"]," GPT2_JSON "}");
    snprintf(file, sizeof file, "%s/model.safetensors", folder);
    write_tensors(file, gpt2_tensors, "transformer.", DT_F32, NULL, NULL, NULL);
    assert_int_equal(unlink(r.model) || unlink(r.data), 0); /* two things are left: the model, and what is written */
    snprintf(out, sizeof out, "%s/g.safetensors", r.dir);
    for (int i = 0; i < 9; i++) ids[i] = i * 7 % 10;
    lm_grad_options o = { .model = folder, .engine = "cpu", .tokens = ids, .batch = 1, .seq = 8, .out = out };
    o.device.threads = 1;
    int how = 0;
    pid_t child = fork();
    if (!child) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){ 3000, 3000 }); /* the system kills who writes more */
        _exit((int)lm_grad(&o, &q, &d));
    }
    assert_true(child > 0 && waitpid(child, &how, 0) == child);
    if (!WIFSIGNALED(how) || WTERMSIG(how) != SIGXFSZ)
        fail_msg("it was to be killed for what it wrote: status %#x", how);
    for (int killed = 1; killed >= 0; killed--) {
        int n = 0;
        DIR *at = opendir(r.dir);
        for (struct dirent *e; (e = readdir(at));) n += e->d_name[0] != '.';
        closedir(at);
        assert_int_equal(n, 2);
        if (killed) assert_ok(lm_grad(&o, &q, &d), d);
    }
    safetensors *g;
    assert_ok(safetensors_open(out, &g, &d), d);
    assert_int_equal(safetensors_count(g), COUNT(gpt2_tensors) - 1);
    for (const file_tensor *t = gpt2_tensors; t->name; t++) {
        const safetensor *x = safetensors_find(g, t->name + strlen("transformer."));
        if (!x || x->rank != t->rank || memcmp(x->dim, t->d, sizeof *t->d * (size_t)t->rank))
            fail_msg("%s: missing, or of another shape", t->name);
    }
    safetensors_close(g);
    small_end(&r);
}

/* More tokens than an axis of m1 to m3 has places: the file is that of cpu, by a pipeline that cuts the vocabulary;
 * and what none takes is refused without advice that grad cannot follow. */
static void gradients_of_many_tokens(void **state)
{
    (void)state;
    static const struct {
        const char *engine;
        int layers;
        an_status st;
    } rows[] = { { "cpu", 1, AN_OK },  { "soft:m1", 1, AN_OK },  { "soft:m3", 1, AN_OK },
                 { "cpu", 18, AN_OK }, { "soft:m2", 18, AN_OK }, { "soft:m3", 18, AN_UNSUPPORTED } };
    small_run r;
    small_begin(&r);
    safetensors *base = NULL, *g;
    int32_t ids[9];
    for (int i = 0; i < 9; i++) ids[i] = (i * 7919 + 16380) % 16400;
    for (size_t i = 0; i < COUNT(rows); i++) {
        char json[500], out[100];
        diag d = { 0 };
        lm_grad_result q;
        snprintf(json, sizeof json, "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":16,\"intermediate_size\":32,\"num_hidden_layers\":%d,"
                 "\"num_attention_heads\":2,\"vocab_size\":16400,\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":true}", rows[i].layers);
        write_text(r.model, json);
        snprintf(out, sizeof out, "%s/g%zu.safetensors", r.dir, i);
        lm_grad_options o = {
            .model = r.model, .engine = rows[i].engine, .tokens = ids, .batch = 1, .seq = 8, .out = out
        };
        o.device.threads = 1;
        an_status st = lm_grad(&o, &q, &d);
        if (st != rows[i].st) fail_msg("%s, %d layers: status %d, %s", rows[i].engine, rows[i].layers, (int)st, d.msg);
        if (st) assert_true(strstr(d.msg, "16400") && strstr(d.msg, "cpu") && !strstr(d.msg, "pipeline"));
        if (st) continue;
        assert_ok(safetensors_open(out, &g, &d), d);
        bool first = !strcmp(rows[i].engine, "cpu");
        for (size_t k = 0; k < safetensors_count(g) && !first; k++) {
            const safetensor *a = safetensors_at(g, k), *b = safetensors_find(base, a->name);
            double ab = 0, aa = 0, bb = 0;
            for (int64_t j = 0, n = a->dim[0] * (a->rank > 1 ? a->dim[1] : 1); j < n; j++) {
                double x = dtype_load(DT_F32, a->data, j), y = dtype_load(DT_F32, b->data, j);
                ab += x * y, aa += x * x, bb += y * y;
            }
            if (!(ab >= 0.9995 * sqrt(aa * bb)) || !(fabs(sqrt(aa / bb) - 1) < 0.01))
                fail_msg("%s on %s: cosine %g, %g of its size", a->name, rows[i].engine, ab / sqrt(aa * bb),
                         sqrt(aa / bb));
        }
        if (first) safetensors_close(base), base = g;
        else safetensors_close(g);
    }
    safetensors_close(base);
    small_end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_equal_the_whole), cmocka_unit_test(chains), cmocka_unit_test(ids_in_other_files), cmocka_unit_test(refusals), cmocka_unit_test(refusals_to_the_bit), cmocka_unit_test(other_start), cmocka_unit_test(little_memory), cmocka_unit_test(lines),
        cmocka_unit_test(curves),                 cmocka_unit_test(lanes), cmocka_unit_test(events), cmocka_unit_test(saved_first), cmocka_unit_test(owed_looks), cmocka_unit_test(gradients),
        cmocka_unit_test(labels),                 cmocka_unit_test(rates), cmocka_unit_test(split),   cmocka_unit_test(unheeded),
        cmocka_unit_test(no_samples),             cmocka_unit_test(nothing_kept), cmocka_unit_test(any_batch), cmocka_unit_test(gradients_as_named),
        cmocka_unit_test(gradients_of_many_tokens), cmocka_unit_test(smoothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
