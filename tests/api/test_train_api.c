/* Training through the public header alone: a graph by calls and from text, gradients, steps, reading back, going on
 * from a file. */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "anneal.h"
#include "t.h"

static const char text[] = "graph \"line\"\n"
                           "x = input fp32[4, 3]\n"
                           "y = input fp32[4, 1]\n"
                           "w = input fp32[3, 1]\n"
                           "unused = input fp32[2]\n"
                           "p = matmul(x, w)\n"
                           "d = sub(p, y)\n"
                           "s = square(d)\n"
                           "loss = reduce_mean(s) {axes=[0, 1], keep_dims=true}\n"
                           "return p\n";
static const float xs[12] = { 1, 2, 3, 4, 5, 6, 7, 8, 10, 1, 0, 2 }, ys[4] = { 1, 2, 3, 4 };

static an_error error; /* of the last call */
#define OK(call)                                                                                                      \
    do {                                                                                                              \
        error = (an_error){ 0 };                                                                                      \
        if (call) fail_msg("%s: %s", #call, error.message);                                                           \
    } while (0)

static an_program *program(void)
{
    an_program *p;
    OK(an_program_from_graph(&p, text, strlen(text), &error));
    return p;
}

static an_trainer *open_line(const char *engine, const char *optimizer)
{
    static const char *const params[] = { "w" };
    an_program *p = program();
    an_trainer *t;
    an_train_options o = { .engine = engine, .loss = "loss", .params = params, .n_params = 1, .optimizer = optimizer,
                           .threads = 1, .loss_scale = 8 };
    OK(an_trainer_open(&t, p, &o, &error));
    an_program_free(p);
    OK(an_trainer_put(t, "x", "fp32", xs, &error));
    OK(an_trainer_put(t, "y", "fp32", ys, &error));
    return t;
}

static void steps_and_reading_back(void **state)
{
    (void)state;
    an_trainer *t = open_line("cpu", "sgd");
    an_train_report r;
    double w[3] = { 0 };
    float got[3];
    for (int s = 0; s < 10; s++) {
        double g[3] = { 0 }, loss = 0;
        for (int i = 0; i < 4; i++) {
            double d = -ys[i];
            for (int k = 0; k < 3; k++) d += xs[i * 3 + k] * w[k];
            loss += d * d / 4;
            for (int k = 0; k < 3; k++) g[k] += 2 * d / 4 * xs[i * 3 + k];
        }
        OK(an_trainer_step(t, 0.01, &r, &error));
        assert_true(fabs(r.loss - loss) < 1e-4 * (1 + loss));
        for (int k = 0; k < 3; k++) w[k] -= 0.01 * g[k];
    }
    OK(an_trainer_read(t, "w", "fp32", got, &error));
    for (int k = 0; k < 3; k++) assert_true(fabs(got[k] - w[k]) < 1e-4);
    assert_int_equal(r.step, 10);
    char *s = an_trainer_stats(t, AN_JSON);
    assert_non_null(strstr(s, "\"dispatches_per_minibatch\":1,"));
    an_free(s);
    assert_non_null(strstr(an_trainer_program(t), "func main"));
    an_trainer_close(t);
}

static void a_file_goes_on(void **state)
{
    (void)state;
    char path[] = "/tmp/an_train_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    static const char *const engines[] = { "cpu", "soft:m1" };
    for (size_t k = 0; k < 2; k++) {
        an_trainer *a = open_line(engines[k], "adam"), *b = open_line(engines[k], "adam");
        an_train_report r, q;
        float wa[3], wb[3];
        for (int i = 0; i < 3; i++) OK(an_trainer_step(a, 0.01, &r, &error));
        OK(an_trainer_save(a, path, &error));
        OK(an_trainer_load(b, path, &error));
        for (int i = 0; i < 5; i++) {
            OK(an_trainer_step(a, 0.01, &r, &error));
            OK(an_trainer_step(b, 0.01, &q, &error));
            assert_memory_equal(&r.loss, &q.loss, sizeof r.loss);
        }
        OK(an_trainer_read(a, "w", "fp32", wa, &error));
        OK(an_trainer_read(b, "w", "fp32", wb, &error));
        assert_memory_equal(wa, wb, sizeof wa);
        assert_int_equal(q.step, 8);
        an_trainer *c = open_line(engines[k], "sgd"); /* another optimizer has other states */
        an_error e = { 0 };
        assert_int_equal(an_trainer_load(c, path, &e), AN_INPUT);
        assert_non_null(strstr(e.message, "adam"));
        an_trainer_close(a), an_trainer_close(b), an_trainer_close(c);
    }
    unlink(path);
}

static void gradients(void **state)
{
    (void)state;
    static const char *const wrt[] = { "w" };
    an_program *p = program();
    char *hazards = NULL;
    an_error e = { 0 };
    if (an_program_differentiate(p, &(an_grad_options){ .loss = "loss", .wrt = wrt, .n_wrt = 1 }, &hazards, AN_TEXT,
                                 &e))
        fail_msg("%s", e.message);
    assert_string_equal(hazards, "");
    an_free(hazards);
    char *mil = an_program_text(p, "mil", &e);
    assert_non_null(mil);
    assert_non_null(strstr(mil, "grad_w"));
    float w[3] = { 0 };
    int64_t dx[] = { 4, 3 }, dy[] = { 4, 1 }, dw[] = { 3, 1 }, du[] = { 2 };
    an_array *in[4], *out[1] = { NULL };
    OK(an_array_new(&in[0], "x", "fp32", 2, dx, xs, &error));
    OK(an_array_new(&in[1], "y", "fp32", 2, dy, ys, &error));
    OK(an_array_new(&in[2], "w", "fp32", 2, dw, w, &error));
    OK(an_array_new(&in[3], "unused", "fp32", 1, du, w, &error));
    const char *want[] = { "grad_w" };
    size_t n = 1;
    an_run_options ro = { .engine = "cpu", .want = want, .n_want = 1, .threads = 1 };
    if (an_run_mil(out, &n, mil, strlen(mil), (const an_array *const *)in, 4, &ro, &e)) fail_msg("%s", e.message);
    an_array_info info;
    an_array_get(out[0], &info);
    const float *g = info.data;
    for (int k = 0; k < 3; k++) { /* at w = 0: -2/4 sum y x */
        double s = 0;
        for (int i = 0; i < 4; i++) s -= 0.5 * ys[i] * xs[i * 3 + k];
        assert_true(fabs(g[k] - s) < 1e-4);
    }
    an_array_free(out[0]);
    for (int i = 0; i < 4; i++) an_array_free(in[i]);
    an_free(mil);
    an_program_free(p);
}

/* The preflight with numbers: x of ones and w of threes make y = 27 inside; its gradient is 2 y scale / 256 */
static void hazards_of_a_sample(void **state)
{
    (void)state;
    static const char conv[] =
        "graph \"c\"\nx = input fp16[1, 3, 8, 8]\nw = input fp16[4, 3, 3, 3]\ny = conv(x, w) {pad_type=\"same\"}\ns = square(y)\n"
        "loss = reduce_mean(s) {axes=[0, 1, 2, 3], keep_dims=true}\nreturn loss\n";
    static const char *const wrt[] = { "w" };
    static const struct {
        double scale;
        const char *form, *engine, *says;
    } rows[] = { { 65536, NULL, NULL, "41472 can reach it; up to a loss scale of 6438.58 nothing here passes that\n" }, { 65536, "patches", "soft:m2", "fix: the forms input-patches and no-width-offset" },
                 { 65536, NULL, "soft:m1", "c.ann:4: conv y: slice_by_" }, { 65536, NULL, "soft:m5", NULL }, { 65536, NULL, "cpu", NULL },
                 { 6400, NULL, NULL, NULL }, { 65536, "input-patches", NULL, NULL }, { 65536, "no-width-offset", NULL, NULL } };
    float ones[192], threes[108];
    for (int i = 0; i < 192; i++) ones[i] = 1;
    for (int i = 0; i < 108; i++) threes[i] = 3;
    an_array *in[3];
    OK(an_array_new(&in[0], "w", "fp32", 4, (const int64_t[]){ 4, 3, 3, 3 }, threes, &error));
    OK(an_array_new(&in[1], "x", "fp32", 4, (const int64_t[]){ 1, 3, 8, 8 }, ones, &error));
    OK(an_array_new(&in[2], "v", "fp32", 1, (const int64_t[]){ 4 }, ones, &error));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        an_program *p;
        char *said = NULL;
        an_error e = { 0 };
        OK(an_program_from_graph(&p, conv, strlen(conv), &error));
        an_grad_options o = { .loss = "loss",
                              .wrt = wrt,
                              .n_wrt = 1,
                              .loss_scale = rows[i].scale,
                              .conv_form = rows[i].form,
                              .engine = rows[i].engine,
                              .file = "c.ann",
                              .sample = (const an_array *const *)in,
                              .n_sample = 2 };
        if (an_program_differentiate(p, &o, &said, AN_TEXT, &e)) fail_msg("%s", e.message);
        if (rows[i].says ? !strstr(said, rows[i].says) : *said) fail_msg("row %zu said \"%s\"", i, said);
        an_free(said);
        an_program_free(p);
    }
    static const struct {
        size_t first, n;
        double scale, x; /* x: of element 70 of the input x */
        const char *engine, *says;
        an_status st;
    } wrong[] = { { 0, 1, 1, 1, NULL, "there is no sample of the input x", AN_INPUT },
                  { 1, 2, 1, 1, NULL, "sample v is no input of c", AN_INPUT },
                  { 0, 2, 1, (double)NAN, NULL, "the sample of x has nan at [0, 1, 0, 6], wanted finite numbers", AN_INPUT },
                  { 0, 2, 1, (double)-INFINITY, "soft:m5", "the sample of x has -inf at [0, 1, 0, 6], wanted finite numbers", AN_INPUT },
                  { 0, 2, 1, 70000, NULL, "the sample of x has 70000 at [0, 1, 0, 6], which is infinite in fp16", AN_INPUT },
                  { 0, 2, 1, 1, "soft:m9", "unknown engine \"soft:m9\"", AN_USAGE },
                  { 0, 2, -8, 1, NULL, "the loss scale is -8, wanted a finite number above 0", AN_USAGE },
                  { 0, 2, (double)INFINITY, 1, NULL, "the loss scale is inf, wanted a finite number above 0", AN_USAGE },
                  { 0, 2, (double)NAN, 1, NULL, "wanted a finite number above 0", AN_USAGE } };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        an_program *p;
        char *said = NULL;
        an_error e = { 0 };
        OK(an_program_from_graph(&p, conv, strlen(conv), &error));
        ones[70] = (float)wrong[i].x;
        an_array_free(in[1]);
        OK(an_array_new(&in[1], "x", "fp32", 4, (const int64_t[]){ 1, 3, 8, 8 }, ones, &error));
        an_grad_options o = { .loss = "loss",
                              .wrt = wrt,
                              .n_wrt = 1,
                              .loss_scale = wrong[i].scale,
                              .engine = wrong[i].engine,
                              .sample = (const an_array *const *)in + wrong[i].first,
                              .n_sample = wrong[i].n };
        assert_int_equal(an_program_differentiate(p, &o, &said, AN_TEXT, &e), wrong[i].st);
        if (!strstr(e.message, wrong[i].says)) fail_msg("\"%s\" does not say \"%s\"", e.message, wrong[i].says);
        assert_null(said);
        an_program_free(p);
    }
    for (int i = 0; i < 3; i++) an_array_free(in[i]);
}

static void calls(void **state)
{
    (void)state;
    an_program *p;
    an_error e = { 0 };
    OK(an_program_new(&p, "calls", &error));
    an_value x = an_input(p, "x", "fp16", 2, (const int64_t[]){ 2, 6 });
    an_value y = an_op(p, "y", "reduce_sum", &x, 1, "axes=[1], keep_dims=true");
    an_value c = an_constant(p, "c", "fp16", 0, NULL, (const uint16_t[]){ 0x3c00 });
    an_output(p, "z", an_op(p, "z", "add", (an_value[]){ y, c }, 2, NULL));
    OK(an_program_finish(p, &error));
    char *s = an_program_text(p, "graph", &e);
    assert_string_equal(
        s,
        "graph \"calls\"\nx = input fp16[2, 6]\ny = reduce_sum(x) {axes=[1], keep_dims=true}\nc = const fp16[] {1}\nz = add(y, c)\nreturn z\n");
    an_free(s);
    an_program_free(p);
    static const struct {
        const char *op, *attributes, *says;
    } bad[] = {
        { "frobnicate", NULL, "no operation \"frobnicate\"" },
        { "reduce_sum", "axis=[1]", "no such attribute" },
        { "reduce_sum", "axes=1", "'[' is wanted" },
        { "reduce_sum", "axes=[x]", "whole number" },
        { "reduce_sum", "axes=[7]", "axes" },
        { "leaky_relu", "alpha=1e999", "too large; write inf to mean it: at \"1e999\"" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        OK(an_program_new(&p, "bad", &error));
        x = an_input(p, "x", "fp16", 2, (const int64_t[]){ 2, 6 });
        an_output(p, "y", an_op(p, "y", bad[i].op, &x, 1, bad[i].attributes));
        memset(&e, 0, sizeof e);
        assert_int_equal(an_program_finish(p, &e), AN_INPUT);
        if (!strstr(e.message, bad[i].says)) fail_msg("%s %s: %s", bad[i].op, bad[i].attributes, e.message);
        an_program_free(p);
    }
}

/* What is left out or is none is told when the program is finished, as any other mistake is. */
static void calls_left_out(void **state)
{
    (void)state;
    static const int64_t dim[] = { 2, 6 };
    static const float numbers[12] = { 0 };
    static const struct {
        an_status st;
        const char *says;
    } want[] = {
        { AN_USAGE, "x: no element type is given" },   { AN_USAGE, "x: no extents are given" },
        { AN_USAGE, "without a name: no element" },    { AN_USAGE, "constant c: no numbers are given" },
        { AN_USAGE, "an operation: no name of it is" }, { AN_USAGE, "relu: no operands are given" },
        { AN_INPUT, "relu: operand 0 is no value" },   { AN_INPUT, "output y is no value of left" },
        { AN_USAGE, "an output has no name" },         { AN_INPUT, "split s: result 2 of 2" },
        { AN_INPUT, "split s: result -1 of 2" },       { AN_INPUT, "no value of left" },
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        an_program *p;
        an_error e = { 0 };
        OK(an_program_new(&p, "left", &error));
        an_value x = an_input(p, i == 2 ? NULL : "x", i == 0 || i == 2 ? NULL : "fp32", 2, i == 1 ? NULL : dim);
        an_value c = an_constant(p, "c", "fp32", 2, dim, i == 3 ? NULL : numbers), wild = { 1000 }, none = { 0 };
        an_value y = an_op(p, "r", i == 4 ? NULL : "relu", i == 5 ? NULL : i == 6 ? &wild : &x, 1, NULL);
        an_value s = an_op(p, "s", "split", &x, 1, "num_splits=2, axis=1");
        y = an_op(p, NULL, "add", (an_value[]){ y, c }, 2, NULL);
        an_result(p, i == 11 ? none : s, i == 9 ? 2 : i == 10 ? -1 : 1);
        an_output(p, i == 8 ? NULL : "y", i == 7 ? none : y);
        if (an_program_finish(p, &e) != want[i].st || !strstr(e.message, want[i].says))
            fail_msg("case %zu: status %d: %s", i, (int)e.status, e.message);
        an_program_free(p);
    }
}

/* Every result of an operation that has several, and the gradient through them. */
static void several_results(void **state)
{
    (void)state;
    an_program *p;
    an_trainer *t;
    an_train_report r;
    float w[4] = { 1, 2, 3, 4 };
    static const char *const params[] = { "w" };
    OK(an_program_new(&p, "parts", &error));
    an_value in = an_input(p, "w", "fp32", 2, (const int64_t[]){ 1, 4 });
    an_value a = an_op(p, NULL, "split", &in, 1, "split_sizes=[1, 3], axis=1"), b = an_result(p, a, 1);
    assert_int_equal(an_result(p, a, 0).id, a.id);
    an_value sum = an_op(p, NULL, "reduce_sum", &b, 1, "axes=[1], keep_dims=true");
    an_output(p, "loss", an_op(p, "loss", "mul", (an_value[]){ a, sum }, 2, NULL));
    OK(an_program_finish(p, &error));
    OK(an_trainer_open(&t, p, &(an_train_options){ .engine = "cpu", .loss = "loss", .params = params, .n_params = 1 },
                       &error));
    OK(an_trainer_write(t, "w", "fp32", w, &error));
    OK(an_trainer_step(t, 1, &r, &error));
    OK(an_trainer_read(t, "w", "fp32", w, &error));
    assert_true(r.loss == 9 && w[0] == 1 - 9 && w[1] == 1 && w[2] == 2 && w[3] == 3);
    an_trainer_close(t);
    an_program_free(p);
}

static void refusals(void **state)
{
    (void)state;
    static const char *const w[] = { "w" }, *const two[] = { "w", "unused" }, *const twice[] = { "w", "w" },
                             *const none[] = { "q" }, *const data[] = { "p" }, *const gap[] = { "w", NULL };
    static const struct {
        an_train_options o;
        an_status st;
        const char *says;
    } rows[] = {
        { { .loss = "d", .params = w, .n_params = 1 }, AN_INPUT, "the loss d is fp32[4, 1]" },
        { { .loss = "nothing", .params = w, .n_params = 1 }, AN_INPUT, "nothing" },
        { { .params = w, .n_params = 1 }, AN_USAGE, "no loss" },
        { { .loss = "loss", .params = two, .n_params = 2 }, AN_INPUT, "parameter unused does not reach the loss" },
        { { .loss = "loss", .params = none, .n_params = 1 }, AN_INPUT, "parameter q" },
        { { .loss = "loss", .params = data, .n_params = 1 }, AN_INPUT, "parameter p is no input" },
        { { .loss = "loss" }, AN_INPUT, "no parameter" },
        { { .loss = "loss", .params = w, .n_params = 1, .optimizer = "lion" }, AN_USAGE, "sgd, momentum, adam, adamw" },
        { { .loss = "loss", .params = w, .n_params = 1, .state = "int4" }, AN_USAGE, "fp16, halves, fp32" },
        { { .loss = "loss", .params = w, .n_params = 1, .state = "halves", .engine = "cpu" }, AN_UNSUPPORTED, "rounds every operation" },
        { { .loss = "loss", .params = w, .n_params = 1, .state = "fp32", .engine = "soft:m1" }, AN_UNSUPPORTED, "soft:m1 computes in fp16: its state is fp16" },
        { { .loss = "loss", .params = w, .n_params = 1, .momentum = 1.5, .optimizer = "momentum" }, AN_INPUT, "momentum is 1.5" },
        { { .loss = "loss", .params = w, .n_params = 1, .momentum = 1, .optimizer = "momentum" }, AN_INPUT, "momentum is 1; at least 0 and below 1" },
        { { .loss = "loss", .params = w, .n_params = 1, .beta1 = 1, .optimizer = "adam" }, AN_INPUT, "beta1 is 1; at least 0 and below 1" },
        { { .loss = "loss", .params = w, .n_params = 1, .beta2 = 1, .optimizer = "adam" }, AN_INPUT, "beta2 is 1; at least 0 and below 1" },
        { { .loss = "loss", .params = w, .n_params = 1, .eps = -1, .optimizer = "adam" }, AN_INPUT, "epsilon is -1; 0 or more" },
        { { .loss = "loss", .params = w, .n_params = 1, .decay = (double)INFINITY }, AN_INPUT, "weight decay is inf; 0 or more" },
        { { .loss = "loss", .params = w, .n_params = 1, .clip = (double)NAN }, AN_INPUT, "the clipping norm is" },
        { { .loss = "loss", .params = w, .n_params = 1, .accum = -1 }, AN_INPUT, "-1 minibatches per update" },
        { { .loss = "loss", .params = twice, .n_params = 2 }, AN_INPUT, "parameter w is given twice" },
        { { .loss = "loss", .params = w, .n_params = 1, .loss_scale = (double)INFINITY }, AN_INPUT, "loss scale is inf" },
        { { .loss = "loss", .params = w, .n_params = 1, .loss_scale = -1 }, AN_INPUT, "loss scale is -1" },
        { { .loss = "loss", .params = w, .n_params = 1, .engine = "soft:m9" }, AN_USAGE, "m9" },
        { { .loss = "loss", .params = w, .n_params = 1, .engine = "soft:m1", .math = "bf16" }, AN_USAGE, "products in bf16 are a matter of cpu; soft:m1" },
        { { .loss = "loss", .params = w, .n_params = 1, .engine = "soft:m1", .loss_scale = 1e30 }, AN_INPUT, "inf in fp16" },
        { { .loss = "loss", .params = w, .n_params = 1, .engine = "soft:m1", .loss_scale = 1e30, .dynamic_scale = 1 }, AN_INPUT, "the loss scale begins at 1e+30, which is inf in fp16" },
        { { .loss = "loss", .params = w, .n_params = 1, .engine = "soft:m1", .loss_scale = 65536, .dynamic_scale = 1 }, AN_INPUT, "begins at 65536, which is inf in fp16" },
        { { .loss = "loss", .params = w, .n_params = 1, .engine = "soft:m1", .loss_scale = 1e-9, .dynamic_scale = 1 }, AN_INPUT, "begins at 1e-09, which is 0 in fp16" },
        { { .loss = "loss", .params = w, .n_params = 1, .engine = "cpu", .loss_scale = 1e300, .dynamic_scale = 1 }, AN_INPUT, "inf in fp32" },
        { { .loss = "loss", .params = w, .n_params = 1, .fetch = none, .n_fetch = 1 }, AN_INPUT, "fetched value q" },
        { { .loss = "loss", .n_params = 2 }, AN_USAGE, "no parameter is named at 0 of 2" },
        { { .loss = "loss", .params = gap, .n_params = 2 }, AN_USAGE, "no parameter is named at 1 of 2" },
        { { .loss = "loss", .params = w, .n_params = 1, .no_decay = gap, .n_no_decay = 2 }, AN_USAGE, "no parameter without decay is named at 1 of 2" },
        { { .loss = "loss", .params = w, .n_params = 1, .fetch = gap + 1, .n_fetch = 1 }, AN_USAGE, "no fetched value is named at 0 of 1" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        an_program *p = program();
        an_trainer *t;
        an_error e = { 0 };
        an_status st = an_trainer_open(&t, p, &rows[i].o, &e);
        if (st != rows[i].st || !strstr(e.message, rows[i].says))
            fail_msg("row %zu: status %d: %s", i, (int)st, e.message);
        assert_null(t);
        an_program_free(p);
    }
    an_trainer *t = open_line("cpu", "sgd");
    an_error e = { 0 };
    float bad[12] = { 1, 2, NAN };
    assert_int_equal(an_trainer_put(t, "x", "fp32", bad, &e), AN_INPUT);
    assert_non_null(strstr(e.message, "x: number 2 is"));
    an_train_report r;
    memset(&e, 0, sizeof e);
    assert_int_equal(an_trainer_step(t, 0.1, &r, &e), AN_INPUT); /* what was put before is gone with it */
    assert_int_equal(an_trainer_put(t, "z", "fp32", bad, &e), AN_INPUT);
    assert_int_equal(an_trainer_write(t, "w", "float", bad, &e), AN_INPUT);
    an_trainer_close(t);
}

/* Pointers that point nowhere, and numbers below any that mean something. */
static void nothing_given(void **state)
{
    (void)state;
    an_trainer *t = open_line("cpu", "sgd");
    float x[12] = { 0 };
#define WRONG(call)                                                                                                    \
    do {                                                                                                               \
        an_error e = { 0 };                                                                                            \
        if ((call) != AN_USAGE || !e.message[0]) fail_msg("%s: %s", #call, e.message);                                 \
    } while (0)
    WRONG(an_trainer_put(t, NULL, "fp32", x, &e));
    WRONG(an_trainer_put(t, "x", NULL, x, &e));
    WRONG(an_trainer_put(t, "x", "fp32", NULL, &e));
    WRONG(an_trainer_write(t, NULL, "fp32", x, &e));
    WRONG(an_trainer_read(t, "w", "fp32", NULL, &e));
    WRONG(an_trainer_fetch(t, NULL, "fp32", x, &e));
    WRONG(an_trainer_save(t, NULL, &e));
    WRONG(an_trainer_load(t, NULL, &e));
    an_trainer_close(t);
    static const an_train_run_options below[] = { { .steps = -1 },    { .seq = -1 },     { .warmup = -5 },
                                                  { .lr_end = -0.5 }, { .decay = -0.1 }, { .stop_after = -2 },
                                                  { .every = -2 },    { .test = -1 },    { .final_test = -2 },
                                                  { .loss_scale = -1 } };
    for (size_t i = 0; i < sizeof below / sizeof *below; i++) {
        an_train_run_options o = below[i];
        an_train_result r;
        o.model = "mlp", o.engine = "cpu";
        if (!o.steps) o.steps = 1;
        WRONG(an_train(&o, &r, &e));
    }
    static const an_lm_train_options less[] = {
        { .steps = -1 },   { .batch = -1 },         { .seq = -1 },           { .accum = -1 },          { .lr = -1 },
        { .lr = NAN },     { .lr_end = -0.5 },      { .warmup = -2 },        { .decay = -2 },          { .clip = NAN },
        { .clip = -0.5 },  { .validation = -0.5 },  { .eval_every = -1 },    { .sample_every = -2 },   { .sample_tokens = -1 },
        { .keep = -1 },    { .save_every = -1 },    { .stats_every = -1 },   { .stop_after = -1 },     { .compile_limit = -1 },
    };
    for (size_t i = 0; i < sizeof less / sizeof *less; i++) {
        an_lm_train_options o = less[i];
        an_lm_train_result r;
        o.model = "tiny", o.engine = "cpu";
        if (!o.steps) o.steps = 1;
        WRONG(an_lm_train(&o, &r, &e));
        an_lm_train_result_free(&r);
    }
    an_converted done;
    WRONG(an_convert("tiny", "/tmp/none.bin", &(an_convert_options){ .version = -1 }, &done, &e));
#undef WRONG
}

/* A failure leaves the program as it was, wherever it came from: the same can be asked for again. */
static void gradients_tried_again(void **state)
{
    (void)state;
    static const char *const w[] = { "w" };
    an_program *p = program();
    an_error e = { 0 };
    char *hazards;
    an_grad_options o = { .loss = "loss", .wrt = w, .n_wrt = 1, .engine = "soft:m0" };
    char *was = an_program_text(p, "graph", &error);
    assert_int_equal(an_program_differentiate(p, &o, &hazards, AN_TEXT, &e), AN_USAGE);
    char *now = an_program_text(p, "graph", &error);
    assert_string_equal(now, was);
    an_free(now);
    o.engine = NULL, o.loss_scale = 1e300; /* found by the graph itself, while the gradient is built */
    assert_int_equal(an_program_differentiate(p, &o, &hazards, AN_TEXT, &e), AN_INPUT);
    assert_non_null(strstr(e.message, "the loss scale is"));
    now = an_program_text(p, "graph", &error);
    assert_string_equal(now, was);
    an_free(was), an_free(now);
    o.loss_scale = 0;
    OK(an_program_differentiate(p, &o, &hazards, AN_TEXT, &error));
    an_free(hazards);
    memset(&e, 0, sizeof e);
    assert_int_equal(an_program_differentiate(p, &o, NULL, AN_TEXT, &e), AN_INPUT); /* grad_w is there */
    now = an_program_text(p, "graph", &error);
    assert_non_null(now);
    assert_null(strstr(strstr(now, "grad_w") + 1, "grad_w"));
    an_free(now);
    assert_non_null(strstr(e.message, "has an output grad_w already"));
    an_trainer *t; /* and the program is as good as it was */
    OK(an_trainer_open(&t, p, &(an_train_options){ .engine = "cpu", .loss = "loss", .params = w, .n_params = 1 }, &error));
    an_trainer_close(t);
    an_program_free(p);
}

/* What is asked for too early: values nobody computed, a file in the middle of a group. */
static void out_of_order(void **state)
{
    (void)state;
    static const char *const w[] = { "w" }, *const fetch[] = { "p" };
    static const char *const engines[] = { "cpu", "soft:m1" };
    char path[] = "/tmp/an_order_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    for (size_t k = 0; k < 2; k++) {
        an_program *p = program();
        an_trainer *t;
        an_error e = { 0 };
        an_train_report r;
        float got[4];
        an_train_options o = { .engine = engines[k], .loss = "loss", .params = w, .n_params = 1, .fetch = fetch,
                               .n_fetch = 1, .accum = 2, .threads = 1, .loss_scale = 8 };
        OK(an_trainer_open(&t, p, &o, &error));
        OK(an_trainer_put(t, "x", "fp32", xs, &error));
        OK(an_trainer_put(t, "y", "fp32", ys, &error));
        assert_int_equal(an_trainer_fetch(t, "p", "fp32", got, &e), AN_INPUT);
        assert_non_null(strstr(e.message, "p was not evaluated"));
        OK(an_trainer_eval(t, &error));
        OK(an_trainer_fetch(t, "p", "fp32", got, &error));
        assert_true(got[0] == 0 && got[3] == 0); /* weights are 0 */
        OK(an_trainer_step(t, 0.01, &r, &error));
        memset(&e, 0, sizeof e);
        assert_int_equal(an_trainer_save(t, path, &e), AN_INPUT);
        assert_non_null(strstr(e.message, "minibatch 1 of 2"));
        OK(an_trainer_step(t, 0.01, &r, &error));
        OK(an_trainer_save(t, path, &error));
        float w_now[3], want = 0;
        OK(an_trainer_eval(t, &error)); /* of the weights as they are now */
        OK(an_trainer_read(t, "w", "fp32", w_now, &error));
        OK(an_trainer_fetch(t, "p", "fp32", got, &error));
        for (int i = 0; i < 3; i++) want += xs[9 + i] * w_now[i];
        assert_true(want != 0 && fabs(got[3] - want) < 2e-3 * fabs(want));
        char *s = an_trainer_stats(t, AN_JSON);
        OK(an_trainer_step(t, 0.01, &r, &error));
        char *after = an_trainer_stats(t, AN_JSON); /* what was fetched belongs to no minibatch */
        assert_non_null(strstr(s, "\"host_bytes_out\":"));
        assert_string_not_equal(s, after);
        assert_true(strtol(strstr(after, "\"host_bytes_out\":") + 17, NULL, 10) <= 12);
        an_free(s), an_free(after);
        memset(&e, 0, sizeof e);
        assert_int_equal(an_trainer_put(t, "x", "fp32", (const float[12]){ NAN }, &e), AN_INPUT);
        memset(&e, 0, sizeof e);
        assert_int_equal(an_trainer_eval(t, &e), AN_INPUT); /* x is gone, and what was evaluated before with it */
        memset(&e, 0, sizeof e);
        assert_int_equal(an_trainer_fetch(t, "p", "fp32", got, &e), AN_INPUT);
        assert_non_null(strstr(e.message, "p was not evaluated"));
        an_trainer_close(t);
        an_program_free(p);
    }
    unlink(path);
}

static long sent(an_trainer *t)
{
    char *s = an_trainer_stats(t, AN_JSON);
    long n = strtol(strstr(s, "\"host_bytes_in\":") + 16, NULL, 10);
    an_free(s);
    return n;
}

/* A minibatch's bytes are those of its data and numbers, the first one's too, and whatever else is moved in between. */
static void bytes_of_a_minibatch(void **state)
{
    (void)state;
    static const char *const w[] = { "w" }, *const engines[] = { "cpu", "soft:m1" }, *const fetch[] = { "p" };
    for (size_t k = 0; k < 2; k++) {
        an_program *p = program();
        an_trainer *t;
        an_train_report r;
        float now[3] = { 0.5f, 0.25f, -1 };
        an_train_options o = { .engine = engines[k], .loss = "loss", .params = w, .n_params = 1, .threads = 1,
                               .loss_scale = 8, .optimizer = "momentum", .fetch = fetch, .n_fetch = 1 };
        OK(an_trainer_open(&t, p, &o, &error));
        OK(an_trainer_write(t, "w", "fp32", now, &error));
        long first = 0;
        for (int i = 0; i < 5; i++) {
            if (i == 3) { /* what is put to be evaluated is no minibatch's */
                OK(an_trainer_put(t, "x", "fp32", xs, &error));
                OK(an_trainer_eval(t, &error));
            }
            OK(an_trainer_put(t, "x", "fp32", xs, &error));
            OK(an_trainer_put(t, "y", "fp32", ys, &error));
            if (i == 1) OK(an_trainer_read(t, "w", "fp32", now, &error));
            if (i == 2) OK(an_trainer_write(t, "w", "fp32", now, &error));
            OK(an_trainer_step(t, 0.001, &r, &error));
            if (!i) first = sent(t);
            if (sent(t) != first || first < 16 * (k ? 2 : 4) || first > 16 * 4 + 9 * 4)
                fail_msg("%s, minibatch %d: %ld bytes, the first had %ld", engines[k], i, sent(t), first);
        }
        an_trainer_close(t);
        an_program_free(p);
    }
}

static char warned[200];
static void on_warning(void *user, const char *line)
{
    (void)user;
    snprintf(warned, sizeof warned, "%s", line);
}

static void a_parameter_left_out(void **state)
{
    (void)state;
    static const char *const two[] = { "w", "unused" };
    an_program *p = program();
    an_trainer *t;
    an_train_report r;
    float u[2] = { 3, 4 };
    an_train_options o = { .engine = "cpu", .loss = "loss", .params = two, .n_params = 2, .freeze_unreached = 1,
                           .on_warning = on_warning, .threads = 1 };
    OK(an_trainer_open(&t, p, &o, &error));
    assert_non_null(strstr(warned, "parameter unused does not reach the loss loss"));
    OK(an_trainer_write(t, "unused", "fp32", u, &error));
    OK(an_trainer_put(t, "x", "fp32", xs, &error));
    OK(an_trainer_put(t, "y", "fp32", ys, &error));
    for (int i = 0; i < 3; i++) OK(an_trainer_step(t, 0.01, &r, &error));
    memset(u, 0, sizeof u);
    OK(an_trainer_read(t, "unused", "fp32", u, &error));
    assert_true(u[0] == 3 && u[1] == 4);
    char *s = an_trainer_stats(t, AN_JSON);
    assert_non_null(strstr(s, "\"params\":3}")); /* those that are trained */
    an_free(s);
    an_trainer_close(t);
    an_program_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_and_reading_back),
        cmocka_unit_test(a_file_goes_on),
        cmocka_unit_test(gradients),
        cmocka_unit_test(hazards_of_a_sample),
        cmocka_unit_test(gradients_tried_again),
        cmocka_unit_test(nothing_given),
        cmocka_unit_test(bytes_of_a_minibatch),
        cmocka_unit_test(calls), cmocka_unit_test(calls_left_out), cmocka_unit_test(several_results),
        cmocka_unit_test(refusals),
        cmocka_unit_test(out_of_order),
        cmocka_unit_test(a_parameter_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
