/* Gradients that are 0 everywhere on a chip: the end of learning, numbers below fp16, or infinities that cancelled.
 * What a scale is searched for, what a fixed one does, and what of it is in files. */
#include <math.h>
#include <unistd.h>

#include "base/io.h"
#include "train/train_int.h"
#include "train_t.h"

/* Gradients that fp16 does not hold below a scale of about 64; ones whose two infinities cancel above 1024. */
static const char small_text[] = "graph \"small\"\nx = input fp16[4, 2]\nw = input fp16[2, 1]\nm = matmul(x, w)\nh = square(m)\nl = reduce_mean(h)\n"
                                 "k = const fp16[] {0.0009765625}\na = mul(l, k)\nb = mul(a, k)\nloss = identity(b)\nreturn loss\n";
static const char cancel_text[] = "graph \"cancel\"\nx = input fp16[4, 2]\nw = input fp16[2, 1]\nm = matmul(x, w)\nk = const fp16[] {30000}\np = mul(m, k)\n"
                                  "l = const fp16[] {20000}\nq = mul(m, l)\nd = sub(p, q)\ns = reduce_mean(d)\nn = const fp16[] {0.0009765625}\nloss = mul(s, n)\nreturn loss\n";

/* What is right already ends no run, and a scale that worked is there when something is wrong again. */
static void nothing_left_to_learn(void **unused)
{
    (void)unused;
    for (int dynamic = 0; dynamic < 2; dynamic++) {
        trainer *t = open_text(hinge_text, (train_options){ .dynamic_scale = dynamic });
        float w[2] = { 1, 1 }, after[2];
        train_report r;
        diag d = { 0 };
        assert_ok(train_write(t, "w", DT_F32, w, &d), d);
        for (int i = 0; i < 450; i++) {
            step_on(t, right, 0.125, &r);
            assert_true(!r.applied && r.verdict == VERDICT_NOTHING && r.loss == 0);
            /* waited, searched up to 2^15, rested */
            double want = !dynamic || i < 8 || (i >= 13 && i < 213) ? 1024 : ldexp(1024, i < 13 ? i - 7 : i - 212);
            if (i < 218 && r.loss_scale != want) fail_msg("zero %d: scale %g, wanted %g", i, r.loss_scale, want);
        }
        assert_true(r.zeros == 450 && r.skipped == 0 && r.step == 0);
        assert_ok(train_read(t, "w", DT_F32, after, &d), d);
        assert_memory_equal(w, after, sizeof w);
        while (r.loss_scale != 1024) step_on(t, right, 0.125, &r); /* a second search may be under way */
        step_on(t, wrong, 0, &r);
        assert_true(r.applied && r.step == 1 && r.loss_scale == 1024);
        for (int i = 0; i < 100; i++) { /* now and then: it stays where it is */
            step_on(t, i % 3 ? right : wrong, 0, &r);
            assert_true(r.applied == !(i % 3) && r.loss_scale == 1024);
        }
        train_close(t);
    }
}

/* What was found on the way up is where a search that finds no more goes back to; that nothing is learnt is said
 * once. */
static void found_on_the_way_up(void **unused)
{
    (void)unused;
    int said = 0;
    trainer *t = open_text(hinge_text, (train_options){ .dynamic_scale = true, .warn = count_lines, .user = &said });
    train_report r;
    diag d = { 0 };
    assert_ok(train_write(t, "w", DT_F32, (float[]){ 1, 1 }, &d), d);
    for (int i = 0; i < 9; i++) step_on(t, right, 0, &r); /* waited, then 2048 */
    step_on(t, wrong, 0, &r);
    assert_true(r.applied && r.loss_scale == 4096);
    for (int i = 0; i < 4; i++) {
        step_on(t, right, 0, &r);
        if (r.applied || r.loss_scale != (i < 3 ? ldexp(8192, i) : 4096))
            fail_msg("%d: applied %d, scale %g", i, r.applied, r.loss_scale);
    }
    assert_int_equal(said, 1);
    float huge[8]; /* an update that is not finite ends rest and row: it is waited for a gradient as in the beginning */
    for (int i = 0; i < 8; i++) huge[i] = 30000 * wrong[i];
    for (int i = 0; i < 10; i++) {
        step_on(t, i ? right : huge, 0, &r);
        if (r.applied || r.skipped != 1 || r.loss_scale != (i == 0 || i == 9 ? 4096 : 2048))
            fail_msg("%d: applied %d, scale %g", i, r.applied, r.loss_scale);
    }
    train_close(t);
}

/* A minibatch that is right adds nothing to its group, and takes nothing from it. */
static void right_in_a_group(void **unused)
{
    (void)unused;
    double w[2][2];
    for (int k = 0; k < 2; k++) {
        trainer *t = open_text(hinge_text, (train_options){ .accum = 3 });
        train_report r;
        diag d = { 0 };
        assert_ok(train_write(t, "w", DT_F32, (float[]){ 1, 1 }, &d), d);
        for (int a = 0; a < 3; a++) step_on(t, a == (k ? 0 : 2) ? right : wrong, 0.125, &r);
        assert_true(r.applied && r.zeros == 0);
        assert_ok(train_read(t, "w", DT_F64, w[k], &d), d);
        for (int a = 0; a < 3; a++) step_on(t, right, 0.125, &r);
        assert_true(!r.applied && r.zeros == 1 && r.skipped == 0);
        train_close(t);
    }
    assert_memory_equal(w[0], w[1], sizeof w[0]);
}

/* A larger scale is found for what vanished, the same one after going on from a file at any point of the way. */
static void numbers_too_small(void **unused)
{
    (void)unused;
    enum { STEPS = 40 };
    char path[] = "/tmp/an_search_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    double scale[STEPS];
    float w[2], again[2];
    for (int cut = -1; cut < STEPS; cut += 3) {
        train_options o = { .loss_scale = 16, .dynamic_scale = true };
        trainer *t = open_text(small_text, o);
        train_report r;
        diag d = { 0 };
        assert_ok(train_write(t, "w", DT_F32, (float[]){ 0.3f, -0.2f }, &d), d);
        for (int i = 0; i < STEPS; i++) {
            if (i == cut) {
                assert_ok(train_save(t, path, NULL, 0, &d), d);
                train_close(t);
                t = open_text(small_text, o);
                assert_ok(train_load(t, path, NULL, 0, NULL, &d), d);
            }
            step_on(t, right, 0.125, &r);
            if (cut < 0) scale[i] = r.loss_scale;
            else if (scale[i] != r.loss_scale)
                fail_msg("gone on at %d: at %d the scale is %g, was %g", cut, i, r.loss_scale, scale[i]);
        }
        assert_true(r.applied && r.skipped == 0 && r.step > 5 && r.step + r.zeros == STEPS && r.loss_scale > 64);
        assert_ok(train_read(t, "w", DT_F32, cut < 0 ? w : again, &d), d);
        if (cut >= 0) assert_memory_equal(w, again, sizeof w);
        train_close(t);
    }
    unlink(path);
}

/* At 0 there is a gradient no more, and a loss still. */
static const char clamp_text[] =
    "graph \"clamp\"\nx = input fp16[4, 2]\nw = input fp16[2, 1]\nm = matmul(x, w)\none = const fp16[] {1}\nd = sub(one, m)\nh = relu(d)\n"
    "l = reduce_mean(h)\nloss = add(l, one)\nreturn loss\n";

/* A row that the scale had no part in: it is half of what it was a few updates after there is a gradient again. */
static void back_after_a_row(void **unused)
{
    (void)unused;
    trainer *t = open_text(clamp_text, (train_options){ .dynamic_scale = true });
    train_report r;
    diag d = { 0 };
    assert_ok(train_write(t, "w", DT_F32, (float[]){ 1, 1 }, &d), d);
    for (int i = 0; i < 12; i++) {
        step_on(t, right, 0, &r);
        assert_true(!r.applied && r.loss == 1 && r.loss_scale == ldexp(1024, -i));
    }
    for (int i = 0; i < 40; i++) {
        step_on(t, wrong, 0, &r);
        if (!r.applied || r.loss_scale != MIN(ldexp(1024, i - 12), 512.0))
            fail_msg("%d: applied %d, scale %g", i, r.applied, r.loss_scale);
    }
    assert_true(r.zeros == 12 && r.skipped == 0);
    train_close(t);
}

/* Updates are counted from the last change of the scale; and on the way back up a gradient of 0 ends the way. */
static void counted_anew(void **unused)
{
    (void)unused;
    static const struct {
        char x; /* right: no gradient */
        double scale;
    } steps[] = { { 'w', 1024 }, { 'w', 1024 }, { 'r', 1024 }, { 'w', 512 }, { 'w', 512 },
                  { 'w', 512 },  { 'r', 1024 }, { 'r', 512 },  { 'r', 256 }, { 'w', 128 },
                  { 'r', 256 },  { 'w', 128 },  { 'w', 128 },  { 'w', 128 }, { 'w', 256 } };
    trainer *t = open_text(clamp_text, (train_options){ .dynamic_scale = true, .grow_after = 3 });
    train_report r;
    diag d = { 0 };
    assert_ok(train_write(t, "w", DT_F32, (float[]){ 1, 1 }, &d), d);
    for (size_t i = 0; i < COUNT(steps); i++) {
        step_on(t, steps[i].x == 'w' ? wrong : right, 0, &r);
        if (r.applied != (steps[i].x == 'w') || r.loss_scale != steps[i].scale)
            fail_msg("update %zu: applied %d, scale %g", i, r.applied, r.loss_scale);
    }
    train_close(t);
}

/* A smaller scale is found for what cancelled. */
static void infinities_that_cancel(void **unused)
{
    (void)unused;
    trainer *t = open_text(cancel_text, (train_options){ .loss_scale = 0x1p14, .dynamic_scale = true });
    train_report r;
    diag d = { 0 };
    double first = 0;
    assert_ok(train_write(t, "w", DT_F32, (float[]){ 0.3f, -0.2f }, &d), d);
    for (int i = 0; i < 10; i++) {
        step_on(t, right, 1e-4, &r);
        if (i == 0) assert_int_equal(r.verdict, VERDICT_NOTHING);
        if (r.applied && first == 0) first = r.loss_scale;
    }
    assert_true(r.applied && r.zeros > 0 && first > 0 && first < 0x1p14);
    train_close(t);
}

typedef struct {
    double most; /* scales above it have infinities behind a gradient of 0 */
    int every;   /* and so has one in `every` looks; 0: none */
    an_status st;
    int looks;
} glance;

static an_status look_behind(void *user, double scale, train_verdict *out, diag *d)
{
    glance *g = user;
    g->looks++;
    *out = scale > g->most || (g->every && g->looks % g->every == 0) ? VERDICT_GRADIENT : VERDICT_NOTHING;
    return g->st ? diag_fail(d, g->st, NOWHERE, "looked away") : AN_OK;
}

static trainer *open_looked_at(const char *text, train_options o, const float *w, glance *g)
{
    trainer *t = open_text(text, o);
    diag d = { 0 };
    assert_ok(train_write(t, "w", DT_F32, w, &d), d);
    t->look = look_behind, t->look_user = g;
    return t;
}

/* Where somebody can look, infinities that cancelled are an update that was not finite: a smaller scale cures them,
 * and is not searched for above. */
static void infinities_that_are_found(void **unused)
{
    (void)unused;
    glance g = { .most = 1024 };
    trainer *t = open_looked_at(cancel_text, (train_options){ .loss_scale = 0x1p14, .dynamic_scale = true },
                                (float[]){ 0.3f, -0.2f }, &g);
    train_report r;
    int n = 0;
    for (bool cured = false; n < 20 && !cured; n++) {
        step_on(t, right, 1e-6, &r);
        cured = r.applied;
        if (n == 0) assert_int_equal(r.verdict, VERDICT_CANCELLED);
        assert_true(r.finite == cured && r.loss_scale == ldexp(0x1p14, -n));
    }
    assert_true(r.applied && n > 1 && r.zeros == 0 && r.skipped == (uint64_t)n - 1);
    for (int i = 0; i < 3; i++) step_on(t, right, 1e-6, &r);
    assert_true(r.applied && r.loss_scale == ldexp(0x1p14, 1 - n));
    train_close(t);
}

/* Those that no scale cures end the training, also where gradients of 0 without any lie between; a look that fails
 * finds none, and a loss of 0 is not looked behind. */
static void infinities_that_stay(void **unused)
{
    (void)unused;
    static const struct {
        glance g;
        int accum, ends; /* updates; 0: it does not */
        const char *text;
    } rows_[] = { { { .most = 0 }, 1, 32, clamp_text },
                  { { .most = 0 }, 2, 32, clamp_text },
                  { { .most = 1e9, .every = 2 }, 1, 64, clamp_text },
                  { { .most = 1e9 }, 1, 0, clamp_text },
                  { { .most = 0, .st = AN_UNSUPPORTED }, 1, 0, clamp_text },
                  { { .most = 0 }, 1, 0, hinge_text } };
    for (size_t i = 0; i < COUNT(rows_); i++) {
        glance g = rows_[i].g;
        const int accum = rows_[i].accum;
        trainer *t = open_looked_at(rows_[i].text, (train_options){ .dynamic_scale = true, .accum = accum },
                                    (float[]){ 1, 1 }, &g);
        train_report r = { 0 };
        diag d = { 0 };
        an_status st = AN_OK;
        int n = 0;
        for (; n < 100 * accum && !st; n++) {
            assert_ok(train_put(t, "x", DT_F32, right, &d), d);
            st = train_step(t, 0.125, &r, &d);
        }
        if (st != (rows_[i].ends ? AN_MISMATCH : AN_OK) || n != (rows_[i].ends ? rows_[i].ends : 100) * accum)
            fail_msg("row %zu: %d minibatches, %s", i, n, d.msg);
        assert_true(r.step == 0 && r.skipped + r.zeros == (uint64_t)(n / accum));
        assert_int_equal(r.skipped, rows_[i].ends ? 32 : 0);
        if (st && !strstr(d.msg, "32 updates were not finite, and none between them counted (what cancelled to"))
            fail_msg("row %zu: %s", i, d.msg);
        if (rows_[i].text == hinge_text) assert_int_equal(g.looks, 0);
        train_close(t);
    }
}

/* A fixed scale at which nothing is learnt ends the training; a loss of 0 does not. */
static void fixed_scales(void **unused)
{
    (void)unused;
    static const float tiny[8] = { 6e-5f, 6e-5f, 6e-5f, 6e-5f, 6e-5f, 6e-5f, 6e-5f, 6e-5f };
    static const struct {
        const float *x;
        double scale;
        int accum, most, ends; /* updates; ends 0: it does not */
    } rows_[] = { { tiny, 0x1p-10, 1, 0, 32 }, { tiny, 0x1p-10, 3, 5, 5 }, { right, 0x1p-10, 1, 0, 0 } };
    for (size_t i = 0; i < COUNT(rows_); i++) {
        trainer *t = open_text(
            hinge_text,
            (train_options){ .loss_scale = rows_[i].scale, .accum = rows_[i].accum, .max_skipped = rows_[i].most });
        train_report r = { 0 };
        diag d = { 0 };
        an_status st = AN_OK;
        int n = 0;
        float w[2] = { 1, 1 }, after[2];
        assert_ok(train_write(t, "w", DT_F32, w, &d), d);
        for (; n < 300 && !st; n++) {
            assert_ok(train_put(t, "x", DT_F32, rows_[i].x, &d), d);
            st = train_step(t, 1e-4, &r, &d);
        }
        assert_int_equal(st, rows_[i].ends ? AN_MISMATCH : AN_OK);
        assert_int_equal(n, rows_[i].ends ? rows_[i].ends * rows_[i].accum : 300);
        if (st) assert_non_null(strstr(d.msg, "nothing is learnt at a loss scale of 0.000976562"));
        if (st) assert_null(strstr(d.msg, "nan")); /* the loss of the minibatch that showed it */
        assert_true(r.skipped == 0 && r.step == 0 && r.zeros == (uint64_t)(n / rows_[i].accum));
        assert_ok(train_read(t, "w", DT_F32, after, &(diag){ 0 }), d);
        assert_memory_equal(w, after, sizeof w);
        train_close(t);
    }
}

/* Files from before rows of 0 were kept open, and what is no search does not. */
static void files_of_before(void **unused)
{
    (void)unused;
    static const struct {
        const char *from, *to;
        an_status st;
    } rows_[] = { { "anneal.zero", "before.zero", AN_OK },
                  { "\"anneal.zero_search\":\"0\"", "\"anneal.zero_search\":\"7\"", AN_INPUT },
                  { "\"anneal.zero_search\":\"0\"", "\"anneal.zero_search\":\"1\"", AN_INPUT } };
    char path[] = "/tmp/an_before_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    for (size_t i = 0; i < COUNT(rows_); i++) {
        trainer *t = open_text(small_text, (train_options){ .dynamic_scale = true });
        file_bytes f;
        diag d = { 0 };
        int n = 0;
        assert_ok(train_save(t, path, NULL, 0, &d), d);
        assert_ok(file_read(path, 1 << 20, &f, &d), d);
        for (size_t k = 0; k + strlen(rows_[i].from) <= f.n; k++)
            if (!memcmp(f.at + k, rows_[i].from, strlen(rows_[i].from)))
                memcpy(f.at + k, rows_[i].to, strlen(rows_[i].to)), n++;
        for (size_t k = 0; k + 15 <= f.n; k++) /* nor was there a checksum of this */
            if (!memcmp(f.at + k, "anneal.metadata", 15)) memcpy(f.at + k, "before", 6);
        assert_ok(file_write(path, f.at, f.n, &d), d);
        file_drop(&f);
        an_status st = train_load(t, path, NULL, 0, NULL, &d);
        if (st != rows_[i].st || !n) fail_msg("row %zu: %d, %d places: %s", i, (int)st, n, d.msg);
        train_close(t);
    }
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_left_to_learn),
        cmocka_unit_test(found_on_the_way_up),
        cmocka_unit_test(right_in_a_group),
        cmocka_unit_test(numbers_too_small),
        cmocka_unit_test(back_after_a_row),
        cmocka_unit_test(counted_anew),
        cmocka_unit_test(infinities_that_cancel),
        cmocka_unit_test(infinities_that_are_found),
        cmocka_unit_test(infinities_that_stay),
        cmocka_unit_test(fixed_scales),
        cmocka_unit_test(files_of_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
