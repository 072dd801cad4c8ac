/* test_lm_finite: whole runs of a small Llama that meet what is not finite: activations no scale cures, losses on text
 * kept back, weights after the last update. */
#include <math.h>

#include "lm_run_t.h"

/* Activations that no loss scale makes finite, where a chip shows a gradient of 0 and a loss that is a number: every
 * such update is counted as what it was, and the run ends by name, as the ways that see activations do. */
static void activations_beyond_recovery(void **state)
{
    (void)state;
    static const char *const ways[] = { "resident", "delta" };
    for (size_t i = 0; i < COUNT(ways); i++) {
        small_run r;
        lm_run_result q;
        diag d = { 0 };
        small_begin(&r);
        lm_run_options o = small_options(&r, "soft:m4");
        o.pipeline = ways[i], o.steps = 400, o.lr = 20, o.save = NULL;
        an_status st = lm_run(&o, &q, &d);
        if (st != AN_MISMATCH || q.stats.train.skipped < 32 || q.stats.train.zeros)
            fail_msg("%s: status %d, %d skipped, %d zero: %s", o.pipeline, (int)st, (int)q.stats.train.skipped,
                     (int)q.stats.train.zeros, d.msg);
        if (!strstr(d.msg, "the first tensor that went bad is x of l0")) fail_msg("%s: %s", o.pipeline, d.msg);
        small_end(&r);
    }
}

typedef struct {
    small_run r;
    char notes[4000]; /* those of text kept back, a line each */
    int looks;
    int bad_after;    /* one result is spoilt when so many updates were seen; -1: none, or it was */
} sick;

static void keep_note(void *user, const char *line)
{
    sick *s = user;
    size_t n = strlen(s->notes);
    if (strstr(line, "\"validation\"")) snprintf(s->notes + n, sizeof s->notes - n, "%s\n", line);
}

static void count_look(void *user, int64_t step, double loss)
{
    (void)step, (void)loss;
    ((sick *)user)->looks++;
}

static bool spoil_one(void *user, const char *what)
{
    sick *s = user;
    if (strcmp(what, "output") || s->bad_after != s->r.n) return false;
    s->bad_after = -1;
    return true;
}

static lm_run_options sick_options(sick *s, const char *engine, const char *way)
{
    small_begin(&s->r);
    lm_run_options o = small_options(&s->r, engine);
    o.pipeline = way, o.save = NULL, o.steps = 4, o.on_note = keep_note, o.on_eval = count_look,
    o.device.spoil = spoil_one, o.device.spoiler = s;
    return o;
}

/* A loss on text kept back that is not finite is none, in the middle and at the end: it is said, with the step and the
 * tensor, and the log has a line. */
static void no_loss_on_text_kept_back(void **state)
{
    (void)state;
    static const char noted[] = "{\"kind\":\"validation\",\"step\":2,\"loss\":null,\"first\":\"x of l00_fwd_attn\"}\n"
                                "{\"kind\":\"validation\",\"step\":4,\"loss\":null,\"first\":\"x of l00_fwd_attn\"}\n";
    sick s = { .bad_after = -1 };
    lm_run_result q;
    diag d = { 0 };
    lm_run_options o = sick_options(&s, "cpu", NULL);
    o.lr = 1e30, o.eval_every = 2;
    assert_ok(lm_run(&o, &q, &d), d);
    assert_true(isnan(q.validation) && !s.looks);
    assert_string_equal(s.notes, noted);
    assert_non_null(strstr(s.r.warned, "kept back after step 2 is nan: x of l00_fwd_attn is not finite\n"));
    assert_non_null(strstr(s.r.warned, "kept back after step 4 is nan: x of l00_fwd_attn is not finite\n"));
    small_end(&s.r);
}

/* One result of the device that is no number is no loss either, where the host sees it: a chip would go on with
 * numbers. */
static void a_fault_on_text_kept_back(void **state)
{
    (void)state;
    static const char *const ways[] = { "delta", "dynamic" };
    for (size_t i = 0; i < COUNT(ways); i++) {
        sick s = { .bad_after = 4 };
        lm_run_result q;
        diag d = { 0 };
        lm_run_options o = sick_options(&s, "soft:m4", ways[i]);
        assert_ok(lm_run(&o, &q, &d), d);
        if (s.bad_after != -1 || !isnan(q.validation) || s.looks || q.stats.train.skipped)
            fail_msg("%s: %g on text kept back", ways[i], q.validation);
        assert_non_null(strstr(s.notes, "\"step\":4,\"loss\":null,\"first\":\"x of l00_fwd_attn\""));
        assert_non_null(strstr(s.r.warned, "kept back after step 4 is nan: x of l00_fwd_attn is not finite"));
        small_end(&s.r);
    }
}

/* A weight that the last update left as no number ends the run by its name, though no other update follows that
 * would find it. */
static void spoilt_by_the_last(void **state)
{
    (void)state;
    for (int kept = 0; kept < 2; kept++) {
        sick s = { .bad_after = 3 };
        lm_run_result q;
        diag d = { 0 };
        lm_run_options o = sick_options(&s, "cpu", NULL);
        o.validation = kept ? 0 : -1;
        assert_int_equal(lm_run(&o, &q, &d), AN_MISMATCH);
        assert_true(q.done == 4 && s.bad_after == -1);
        if (!strstr(d.msg, "after step 4 the weight embed is not finite")) fail_msg("%s", d.msg);
        assert_true(!kept == !strstr(s.r.warned, "kept back after step 4 is nan: the weight embed is not finite"));
        small_end(&s.r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_beyond_recovery),
        cmocka_unit_test(no_loss_on_text_kept_back),
        cmocka_unit_test(a_fault_on_text_kept_back),
        cmocka_unit_test(spoilt_by_the_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
