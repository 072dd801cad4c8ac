/* The networks trained end to end on the built-in data, on a chip and on the plain processor: small batches and few
 * steps, so that what is shown is that they learn. Figures at full size are in docs/training.md. */
#include <unistd.h>

#include "t.h"

#include "train/run.h"

static train_run_result trained(train_run_options o)
{
    static train_run_result out;
    diag d = { 0 };
    strbuf line = { 0 };
    an_status st = train_run(&o, &out, &line, &d);
    sb_free(&line);
    if (st) fail_msg("%s on %s: %s", o.model, o.engine, d.msg);
    return out;
}

static void every_network_learns(void **state)
{
    (void)state;
    static const struct {
        const char *model, *engine;
        int64_t steps, batch;
        double lr, at_least; /* accuracy; guessing gives 0.1 of the digits and 0.15 (blanks) of the letters */
    } rows[] = {
        { "digits", "cpu", 80, 16, 0.03, 0.65 },  { "digits", "soft:m1", 80, 16, 0.03, 0.65 },
        { "mlp", "cpu", 80, 16, 0.05, 0.65 },     { "mlp", "soft:m1", 80, 16, 0.05, 0.65 },
        { "normconv", "cpu", 40, 16, 0.1, 0.60 }, { "normconv", "soft:m1", 40, 16, 0.1, 0.60 },
        { "glu", "cpu", 120, 16, 0.15, 0.50 },    { "glu", "soft:m1", 120, 16, 0.15, 0.50 },
        { "charlm", "cpu", 60, 2, 4e-3, 0.25 },   { "charlm", "soft:m1", 60, 2, 4e-3, 0.25 },
    };
    double plain = 0;
    for (size_t i = 0; i < COUNT(rows); i++) {
        train_run_result r = trained((train_run_options){ .model = rows[i].model, .engine = rows[i].engine,
                                                          .steps = rows[i].steps, .batch = rows[i].batch,
                                                          .lr = rows[i].lr, .warmup = -1, .every = -1,
                                                          .final_test = 256 });
        print_message("%s on %s: %.4f\n", rows[i].model, rows[i].engine, r.final_accuracy);
        if (!(r.final_accuracy >= rows[i].at_least))
            fail_msg("%s on %s: %.4f of the test samples, wanted %.2f", rows[i].model, rows[i].engine, r.final_accuracy,
                     rows[i].at_least);
        assert_int_equal(r.stats.dispatches, r.stats.minibatches);
        /* fp16 states change the road, not where it leads */
        if (i % 2 && !(r.final_accuracy > plain - 0.08 && r.final_accuracy < plain + 0.08))
            fail_msg("%s: %.4f on %s, %.4f on cpu", rows[i].model, r.final_accuracy, rows[i].engine, plain);
        plain = r.final_accuracy;
    }
}

/* Past what a linear model reaches on the same data (test_train_data prints it). */
static void a_hidden_layer_helps(void **state)
{
    (void)state;
    train_run_result r =
        trained((train_run_options){ .model = "mlp", .engine = "cpu", .steps = 250, .every = -1, .final_test = 1000 });
    print_message("mlp: %.4f of %lld\n", r.final_accuracy, (long long)r.final_n);
    assert_true(r.final_accuracy > 0.94);
}

static void loss_scales_and_reruns(void **state)
{
    (void)state;
    static const double scales[] = { 128, 1024, 65536, 1024 };
    train_run_result r[COUNT(scales)];
    for (size_t i = 0; i < COUNT(scales); i++) {
        r[i] = trained((train_run_options){ .model = "digits",
                                            .engine = "soft:m1",
                                            .steps = 80,
                                            .batch = 16,
                                            .lr = 0.03,
                                            .loss_scale = scales[i],
                                            .every = 40,
                                            .test = 200,
                                            .final_test = 400,
                                            .seed = 3 });
        print_message("loss scale %g: %.4f, %llu skipped\n", scales[i], r[i].final_accuracy,
                      (unsigned long long)r[i].stats.skipped);
        assert_true(r[i].final_accuracy > 0.65);
        assert_true(r[i].stats.skipped < 10);
        assert_int_equal(r[i].n_trace, 3); /* steps 0, 40, 80 */
    }
    assert_true(r[1].digest == r[3].digest && r[1].loss == r[3].loss);
    for (int k = 0; k < 3; k++)
        assert_true(r[1].trace[k].step == 40 * k && r[1].trace[k].accuracy == r[3].trace[k].accuracy);
    assert_true(r[0].digest != r[1].digest);
}

/* The real digits, where they are at hand: shape and range of the data make it through. */
static void mnist(void **state)
{
    (void)state;
    if (access("../shared/data/mnist", F_OK)) {
        skip();
        return;
    }
    train_run_result r = trained((train_run_options){
        .model = "digits", .data = "mnist:../shared/data/mnist", .engine = "cpu", .every = -1, .final_test = 1000 });
    print_message("digits: %.4f of the first 1000 test images\n", r.final_accuracy);
    assert_true(r.final_accuracy >= 0.908);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_network_learns), cmocka_unit_test(a_hidden_layer_helps),
                                        cmocka_unit_test(loss_scales_and_reruns), cmocka_unit_test(mnist) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
