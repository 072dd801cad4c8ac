/* State stays finite, or as it was: steps that decay, old moments or the square of a gradient would take too far,
 * though the gradient alone would not (bounds.c); halves of numbers that would be infinite where their sum is not. */
#include <math.h>

#include "train_t.h"

static const char line_text[] =
    "graph \"line\"\nx = input fp32[4]\nw = input fp32[4]\nm = mul(x, w)\nloss = reduce_sum(m)\nreturn loss\n";

enum { N = 4, STATES = 4 };
typedef struct {
    float x[STATES][N]; /* every state, one number or N of them */
} bits;

static void read_all(trainer *t, bits *b)
{
    diag d = { 0 };
    memset(b, 0, sizeof *b);
    assert_true(train_state_count(t) <= STATES);
    for (size_t i = 0; i < train_state_count(t); i++) {
        train_state_info s;
        train_state_at(t, i, &s);
        assert_ok(train_read(t, s.name, DT_F32, b->x[i], &d), d);
        for (int k = 0; k < N; k++)
            if (!isfinite(b->x[i][k])) fail_msg("%s: %s holds %g", train_optimizer_name(t), s.name, (double)b->x[i][k]);
    }
}

static trainer *open_line(train_options o, float w, float x)
{
    diag d = { 0 };
    float ws[N] = { w, w, -w, w }, xs[N] = { x, x, x, -x };
    if (!o.engine) o.engine = "cpu";
    trainer *t = open_text(line_text, o);
    assert_ok(train_write(t, "w", DT_F32, ws, &d), d);
    assert_ok(train_put(t, "x", DT_F32, xs, &d), d);
    return t;
}

/* Steps until one is refused, at most so many: how many counted. */
static int steps_on(trainer *t, double lr, int most)
{
    train_report r;
    diag d = { 0 };
    bits before, after;
    for (int i = 0; i < most; i++) {
        read_all(t, &before);
        assert_ok(train_step(t, lr, &r, &d), d);
        read_all(t, &after);
        if (r.applied) continue;
        assert_int_equal(r.verdict, VERDICT_STATE);
        assert_memory_equal(&before, &after, sizeof before);
        return i;
    }
    return most;
}

/* Decay that turns a weight round and makes it larger with every update, until there is no number for it. */
static void decay_that_grows(void **state)
{
    (void)state;
    static const struct {
        const char *opt;
        double lr, decay;
        bool ends;
    } rows[] = { { "sgd", 1, 3.5, true },  { "sgd", 1, 1.5, false },  { "momentum", 1, 6, true },  { "momentum", 1, 3.5, false },
                 { "adam", 1, 6, false }, { "adamw", 1, 3.5, true }, { "adamw", 1, 1.5, false }, { "adamw", 1, 1, false } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        trainer *t = open_line((train_options){ .optimizer = rows[i].opt, .decay = rows[i].decay }, 1, 1e-3f);
        int n = steps_on(t, rows[i].lr, 400); /* a bound that only grows would have ended all of them */
        if (n < 40 || (n < 400) != rows[i].ends)
            fail_msg("%s, decay %g: refused after %d updates", rows[i].opt, rows[i].decay, n);
        train_close(t);
    }
}

/* What the host wrote counts from the next step on, and so does what it is replaced by. */
static void written_by_the_host(void **state)
{
    (void)state;
    static const struct {
        const char *opt, *name;
        double lr, decay;
        float x;
        bool fits;
    } rows[] = {
        { "sgd", "w", 1e-3, 0.1, 3.4e38f, false }, { "sgd", "w", 1e-3, 0.1, 1e37f, true },      { "sgd", "w", 1e3, 0.1, 1e37f, false },   { "momentum", "w.m", 1e-3, 0, 5e37f, true },
        { "momentum", "w.m", 10, 0, 5e37f, false }, { "adam", "w", 1e-3, 0.1, 1e21f, false }, { "adam", "w", 1e-3, 0.1, 1e18f, true }, { "adam", "w", 1e-3, 0, 1e21f, true },
        { "adamw", "w", 1e-3, 0.1, 1e21f, true },  { "adamw", "w", 1e3, 0.1, 1e37f, false },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        trainer *t = open_line((train_options){ .optimizer = rows[i].opt, .decay = rows[i].decay }, 1, 1e-3f);
        float far[N] = { 0, 0, 0, rows[i].x }, near[N] = { 1, 1, 1, 1 };
        diag d = { 0 };
        assert_int_equal(steps_on(t, rows[i].lr * 1e-6, 3), 3);
        assert_ok(train_write(t, rows[i].name, DT_F32, far, &d), d);
        if (steps_on(t, rows[i].lr, 1) != rows[i].fits)
            fail_msg("%s at %g: %s of %g", rows[i].opt, rows[i].lr, rows[i].name, (double)rows[i].x);
        assert_ok(train_write(t, rows[i].name, DT_F32, near, &d), d);
        assert_int_equal(steps_on(t, rows[i].lr * 1e-6, 3), 3);
        train_close(t);
    }
}

/* A scale below 1 makes the sum of squares a number again, but not the square that a second moment is made of. */
static void squares_of_plain_gradients(void **state)
{
    (void)state;
    static const struct {
        const char *opt;
        double clip;
        float x;
        bool fits;
    } rows[] = { { "adam", 0, 1e20f, false }, { "adamw", 0, 1e20f, false },   { "adam", 0, 1e18f, true },
                 { "adam", 1, 1e20f, true },  { "momentum", 0, 1e20f, true }, { "sgd", 0, 1e20f, true } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        trainer *t = open_line((train_options){ .optimizer = rows[i].opt, .clip = rows[i].clip, .loss_scale = 0x1p-10 },
                               1e-3f, rows[i].x);
        if (steps_on(t, 1e-3, 1) != rows[i].fits) fail_msg("%s: a gradient of %g", rows[i].opt, (double)rows[i].x);
        train_close(t);
    }
}

/* 20 from 40000, whose neighbour is 32 away: the high half takes 32, which the low one has no number for. */
static void low_halves(void **state)
{
    (void)state;
    static const char *const engines[] = { "soft:m1", "soft:m4" };
    for (int i = 0; i < 4; i++) {
        trainer *t = open_line((train_options){ .engine = engines[i / 2], .state = TRAIN_HALVES, .loss_scale = 1024 },
                               i % 2 ? 40000 : 4000, 0x1p-6f);
        if (steps_on(t, 1280, 1) != !(i % 2)) fail_msg("%s: a weight of %d", engines[i / 2], i % 2 ? 40000 : 4000);
        train_close(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(decay_that_grows), cmocka_unit_test(written_by_the_host),
                                        cmocka_unit_test(squares_of_plain_gradients), cmocka_unit_test(low_halves) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
