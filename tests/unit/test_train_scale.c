/* What is said of a fixed loss scale at which nothing is learnt, by whoever can look at others (scale.c), without a
 * device. */
#include "t.h"
#include "train/train_int.h"

typedef struct {
    double least, most; /* scales at which there is a gradient; above them it is not finite */
    double named;       /* 0: none is, and the training goes on */
    an_status st;       /* of looking */
    int looks;
} glance;

static an_status look_at(void *user, double scale, train_verdict *out, diag *d)
{
    glance *g = user;
    g->looks++;
    *out = scale < g->least ? VERDICT_NOTHING : scale <= g->most ? VERDICT_FINE : VERDICT_GRADIENT;
    return g->st ? diag_fail(d, g->st, NOWHERE, "looked away") : AN_OK;
}

/* Which scale is named where 1024 was fixed: the largest below it that has a gradient, or half of that; else one
 * above. */
static void scales_beside_a_fixed_one(void **unused)
{
    (void)unused;
    static const glance rows_[] = {
        { 32, 32, 32, AN_OK, 0 },         { 4, 32, 16, AN_OK, 0 },      { 0x1p-14, 0x1p-14, 0x1p-14, AN_OK, 0 },
        { 0x1p-15, 0x1p-15, 0, AN_OK, 0 }, { 4096, 4096, 4096, AN_OK, 0 }, { 0x1p15, 0x1p15, 0x1p15, AN_OK, 0 },
        /* who looks has a gradient at this very scale */
        { 0x1p16, 0x1p16, 0, AN_OK, 0 },  { 1024, 8192, 4096, AN_OK, 0 },
        { 1, 1, 0, AN_NOMEM, 0 },         { 1, 1, 0, AN_UNSUPPORTED, 0 },
    };
    for (size_t i = 0; i < COUNT(rows_); i++) {
        glance g = rows_[i];
        char named[40];
        diag d = { 0 };
        trainer t = {
            .o.max_skipped = 1, .scale = { .scale = 1024, .largest = 0x1p15 }, .look = look_at, .look_user = &g
        };
        assert_ok(scale_after(&t, VERDICT_NOTHING, 0, &d), d); /* a loss of 0 is no reason to look */
        assert_int_equal(g.looks, 0);
        an_status st = scale_after(&t, VERDICT_NOTHING, 1, &d);
        if (st != (g.st == AN_NOMEM ? AN_NOMEM : g.st || g.named > 0 ? AN_MISMATCH : AN_OK))
            fail_msg("row %zu: status %d: %s", i, (int)st, d.msg);
        snprintf(named, sizeof named, "; at %g there is a gradient", g.named);
        if (g.named > 0 && !strstr(d.msg, named)) fail_msg("row %zu: %s", i, d.msg);
        if (g.st == AN_UNSUPPORTED) assert_non_null(strstr(d.msg, "too large or too small"));
        if (st) continue;
        const int once = g.looks; /* and then not for a while */
        for (int k = 0; k < 199; k++) assert_ok(scale_after(&t, VERDICT_NOTHING, 1, &d), d);
        assert_int_equal(g.looks, once);
        assert_ok(scale_after(&t, VERDICT_NOTHING, 1, &d), d);
        assert_int_equal(g.looks, 2 * once);
    }
}

/* The same where infinities were found behind the gradient of 0: where no scale has a gradient the training has
 * diverged, and it is not said that another one would help. */
static void a_fixed_one_with_infinities(void **unused)
{
    (void)unused;
    static const struct {
        glance g;
        const char *said;
    } rows_[] = {
        { { 4, 32, 16, AN_OK, 0 }, "a loss scale of 1024 is too large; at 16 there is a gradient" },
        { { 0, 0, 0, AN_OK, 0 }, "now 1024): the training has diverged" },
        { { 0, 0, 0, AN_UNSUPPORTED, 0 }, "the scale is too large, which a dynamic one finds out, or the training" },
        { { 0, 0, 0, AN_NOMEM, 0 }, "memory" },
    };
    for (size_t i = 0; i < COUNT(rows_); i++) {
        glance g = rows_[i].g;
        diag d = { 0 };
        trainer t = { .o.max_skipped = 2,
                      .state_dt = DT_F16,
                      .scale = { .scale = 1024, .largest = 0x1p15 },
                      .look = look_at,
                      .look_user = &g };
        assert_ok(scale_after(&t, VERDICT_CANCELLED, 1, &d), d);
        assert_int_equal(g.looks, 0);
        assert_int_equal(scale_after(&t, VERDICT_CANCELLED, 1, &d), g.st == AN_NOMEM ? AN_NOMEM : AN_MISMATCH);
        if (!strstr(d.msg, rows_[i].said)) fail_msg("row %zu: %s", i, d.msg);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(scales_beside_a_fixed_one),
                                        cmocka_unit_test(a_fixed_one_with_infinities) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
