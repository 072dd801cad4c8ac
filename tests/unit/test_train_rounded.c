/* Weights that a step finds rounded already: which devices round products, and that copies of weights change no bit. */
#include <unistd.h>

#include "engine/engine.h"
#include "train_t.h"

/* Products are rounded where that was asked for, and the slow meaning knows no roundings. */
static void rounded_products(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int math;
        bool reference, want;
    } cases[] = { { "cpu", FAST_BF16, false, true },
                  { "cpu", FAST_BF16, true, false },
                  { "cpu", FAST_NONE, false, false },
                  { "soft:m1", FAST_BF16, false, false } };
    for (size_t i = 0; i < COUNT(cases); i++) {
        device *dev;
        diag d = { 0 };
        assert_ok(
            device_open(&dev, cases[i].name,
                        &(device_options){ .threads = 1, .fast_math = cases[i].math, .reference = cases[i].reference },
                        &d),
            d);
        assert_int_equal(device_rounds_products(dev), cases[i].want);
        device_close(dev);
    }
}

/* Products forward and back, one of them by a weight that is also looked up, and one too short to be worth a copy.
 * Recomputed between h and y if asked. */
static const char wide_text[] = "graph \"wide\"\n"
                                "x = input fp32[1, WIDE, 1, 24]\n"
                                "want = input fp32[1, 7, 1, 24]\n"
                                "at = input int32[24]\n"
                                "w1 = input fp32[256, WIDE, 1, 1]\n"
                                "w2 = input fp32[256, 256]\n"
                                "w3 = input fp32[7, 256, 1, 1]\n"
                                "h0 = conv(x, w1)\n"
                                "h1 = relu(h0)\n"
                                "h2 = reshape(h1) {shape=[256, 24]}\n"
                                "h3 = matmul(w2, h2)\n"
                                "h4 = gather(w2, at) {axis=1}\n"
                                "h5 = add(h3, h4)\n"
                                "h6 = tanh(h5)\n"
                                "h7 = reshape(h6) {shape=[1, 256, 1, 24]}\n"
                                "y = conv(h7, w3)\n"
                                "e = sub(y, want)\n"
                                "sq = square(e)\n"
                                "loss = reduce_mean(sq) {axes=[1, 3], keep_dims=true}\n"
                                "return loss\n";
enum { MOST_WIDE = 16384, WIDE_Y = 7 * 24 };

static trainer *open_wide(int64_t wide, train_options o)
{
    static const train_param p[] = { { "w1", true }, { "w2", true }, { "w3", false } };
    char text[sizeof wide_text + 64], *to = text;
    for (const char *c = wide_text; *c;) {
        if (strncmp(c, "WIDE", 4)) *to++ = *c++;
        else to += sprintf(to, "%lld", (long long)wide), c += 4;
    }
    *to = 0;
    graph *g = parse(text, "fp32");
    const val keep[] = { graph_find(g, "h2"), graph_find(g, "h7") };
    trainer *t;
    diag d = { 0 };
    o.loss = graph_find(g, "loss"), o.param = p, o.n_param = COUNT(p), o.engine = "cpu", o.device.fast_math = FAST_BF16,
    o.device.threads = 2;
    if (o.n_keep) o.keep = keep, o.n_keep = COUNT(keep);
    assert_ok(train_open(&t, g, &o, &d), d);
    graph_free(g);
    return t;
}

static void put_wide(trainer *t, int64_t wide, float size)
{
    static float x[MOST_WIDE * 24];
    float want[WIDE_Y];
    int32_t at[24];
    rng r = { 5 };
    diag d = { 0 };
    for (int64_t i = 0; i < wide * 24; i++) x[i] = (float)rng_normal(&r);
    for (int i = 0; i < WIDE_Y; i++) want[i] = size * (float)rng_normal(&r);
    for (int i = 0; i < 24; i++) at[i] = (int32_t)rng_below(&r, 256);
    assert_ok(train_put(t, "x", DT_F32, x, &d), d);
    assert_ok(train_put(t, "want", DT_F32, want, &d), d);
    assert_ok(train_put(t, "at", DT_I32, at, &d), d);
}

static void write_wide(trainer *t, const char *name, int64_t n, uint64_t seed)
{
    float *w = malloc((size_t)n * sizeof *w);
    rng r = { seed };
    diag d = { 0 };
    assert_non_null(w);
    for (int64_t i = 0; i < n; i++) w[i] = 0.05f * (float)rng_normal(&r);
    assert_ok(train_write(t, name, DT_F32, w, &d), d);
    free(w);
}

static void same_states(trainer *a, trainer *b, const char *when)
{
    strbuf one = { 0 }, two = { 0 };
    diag d = { 0 };
    assert_ok(train_snapshot(a, &one, &d), d);
    assert_ok(train_snapshot(b, &two, &d), d);
    if (one.n != two.n || memcmp(one.at, two.at, one.n)) fail_msg("%s: states differ", when);
    sb_free(&one), sb_free(&two);
}

/* One step of each; a huge minibatch is skipped. */
static void step_both(trainer **t, int64_t wide, int accum, bool huge, const char *when)
{
    train_report r[2];
    diag d = { 0 };
    for (int i = 0; i < 2; i++) {
        put_wide(t[i], wide, huge ? 1e25f : 1);
        for (int k = 0; k < accum; k++) assert_ok(train_step(t[i], 0.01, &r[i], &d), d);
        assert_true(r[i].applied != huge);
    }
    if (!huge && (r[0].loss != r[1].loss || r[0].grad_norm != r[1].grad_norm))
        fail_msg("%s: losses %.9g and %.9g", when, r[0].loss, r[1].loss);
    same_states(t[0], t[1], when);
}

/* Every step has the bits of one whose products read the weights themselves: after weights were written, skipped
 * steps, restored and loaded states. */
static void copies_change_no_bit(void **state)
{
    (void)state;
    static const struct {
        const char *opt;
        int64_t wide;
        int accum;
        double clip;
        bool again;
    } cases[] = { { "sgd", 256, 1, 0, false },
                  { "momentum", 192, 2, 0, false },
                  { "adamw", 200, 1, 0.5, true },
                  { "adam", MOST_WIDE, 1, 0.5, false } /* past the caches */ };
    char path[2][30] = { "/tmp/an_copies_XXXXXX", "/tmp/an_copies_XXXXXX" };
    for (int k = 0; k < 2; k++) {
        int fd = mkstemp(path[k]);
        assert_true(fd >= 0);
        close(fd);
    }
    for (size_t i = 0; i < COUNT(cases); i++) {
        trainer *t[2];
        diag d = { 0 };
        const int64_t wide = cases[i].wide;
        for (int k = 0; k < 2; k++) {
            t[k] = open_wide(wide, (train_options){ .optimizer = cases[i].opt,
                                                    .accum = cases[i].accum,
                                                    .clip = cases[i].clip,
                                                    .decay = 0.1,
                                                    .n_keep = cases[i].again,
                                                    .copies = k ? TRAIN_COPIES_ALWAYS : TRAIN_COPIES_NEVER });
            write_wide(t[k], "w1", 256 * wide, 1), write_wide(t[k], "w2", 256 * 256, 2),
                write_wide(t[k], "w3", 7 * 256, 3);
            const char *text = train_program_text(t[k]);
            assert_true(!!strstr(text, "_w1_next") && (strstr(text, "bf16, [256, 256]") != NULL) == (k == 1) &&
                        !strstr(text, "bf16, [7, "));
        }
        for (int s = 0; s < 3; s++) step_both(t, wide, cases[i].accum, false, "steps");
        step_both(t, wide, cases[i].accum, true, "skipped");
        step_both(t, wide, cases[i].accum, false, "after a skipped step");
        for (int k = 0; k < 2; k++) assert_ok(train_save(t[k], path[k], NULL, 0, &d), d);
        for (int k = 0; k < 2; k++) write_wide(t[k], "w2", 256 * 256, 4);
        step_both(t, wide, cases[i].accum, false, "after a weight was written");
        for (int from = 0; from < 2; from++) { /* files of either are the other's */
            for (int k = 0; k < 2; k++) assert_ok(train_load(t[k], path[from], NULL, 0, NULL, &d), d);
            step_both(t, wide, cases[i].accum, false, from ? "loaded from the other" : "loaded");
        }
        for (int k = 0; k < 2; k++) train_close(t[k]);
    }
    for (int k = 0; k < 2; k++) unlink(path[k]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounded_products), cmocka_unit_test(copies_change_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
