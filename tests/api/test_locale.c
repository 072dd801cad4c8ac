/* A program whose locale has a decimal comma uses the library: text means and says what it does under any other. The
 * locale is made here; where it cannot be, there is nothing to do. */
#include <locale.h>
#include <unistd.h>

#include "anneal.h"
#include "t.h"

static char dir[] = "/tmp/anneal-locale-XXXXXX";
static an_error error;
#define OK(call)                                                                                                      \
    do {                                                                                                              \
        error = (an_error){ 0 };                                                                                      \
        if (call) fail_msg("%s: %s", #call, error.message);                                                           \
    } while (0)

static int make(void **state)
{
    char command[200], half[16];
    (void)state;
    if (!mkdtemp(dir)) return -1;
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >/dev/null 2>&1", dir);
    if (!system(command)) setenv("LOCPATH", dir, 1), setlocale(LC_ALL, "de_DE.UTF-8");
    snprintf(half, sizeof half, "%g", 0.5);
    if (strcmp(half, "0,5")) print_message("no locale with a decimal comma: %s\n", half);
    return 0;
}

static int drop(void **state)
{
    char command[80];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

static void tables_are_json_and_defaults_are_themselves(void **state)
{
    (void)state;
    char *ops = an_table("ops", AN_JSON), *chips = an_table("targets", AN_JSON);
    assert_non_null(strstr(ops, "{\"name\":\"alpha\",\"type\":\"float\",\"required\":false,\"default\":0.01}")); /* leaky_relu */
    assert_non_null(strstr(chips, "\"clock_ghz\":1.144,"));
    an_free(ops), an_free(chips);
}

static void a_graph_keeps_its_numbers(void **state)
{
    (void)state;
    an_program *p, *q;
    OK(an_program_new(&p, "g", &error));
    an_value x = an_input(p, "x", "fp32", 2, (const int64_t[]){ 1, 2 });
    an_value k = an_constant(p, "k", "fp32", 2, (const int64_t[]){ 1, 2 }, (const float[]){ 0.1f, 2.5f });
    an_value l = an_op(p, "l", "leaky_relu", &x, 1, "alpha=0.25");
    an_output(p, "y", an_op(p, "y", "mul", (an_value[]){ l, k }, 2, NULL));
    OK(an_program_finish(p, &error));
    char *text = an_program_text(p, "graph", &error), *mil = an_program_text(p, "mil", &error), *again;
    assert_non_null(strstr(text, "{alpha=0.25}"));
    assert_non_null(strstr(text, "{0.1, 2.5}"));
    assert_non_null(strstr(mil, "(0.25)"));
    OK(an_program_from_graph(&q, text, strlen(text), &error));
    again = an_program_text(q, "graph", &error);
    assert_string_equal(text, again);
    an_free(text), an_free(mil), an_free(again), an_program_free(p), an_program_free(q);
}

static an_trainer *open_trainer(void)
{
    static const char text[] = "x = input fp32[1, 2]\nw = input fp32[1, 2]\np = mul(x, w)\n"
                               "loss = reduce_mean(p) {axes=[0, 1], keep_dims=true}\nreturn loss\n";
    an_program *p;
    an_trainer *t;
    OK(an_program_from_graph(&p, text, sizeof text - 1, &error));
    an_train_options o = { .engine = "cpu", .loss = "loss", .params = (const char *const[]){ "w" }, .n_params = 1,
                           .optimizer = "adam", .threads = 1, .loss_scale = 0.5 };
    OK(an_trainer_open(&t, p, &o, &error));
    OK(an_trainer_put(t, "x", "fp32", (const float[]){ 1, 2 }, &error));
    an_program_free(p);
    return t;
}

/* Written here, and read where the point is one again. */
static void a_checkpoint_goes_anywhere(void **state)
{
    (void)state;
    char file[80];
    an_train_report r;
    an_trainer *t = open_trainer();
    OK(an_trainer_step(t, 0.125, &r, &error));
    snprintf(file, sizeof file, "%s/t.safetensors", dir);
    OK(an_trainer_save(t, file, &error));
    char *was = strdup(setlocale(LC_ALL, NULL));
    OK(an_trainer_load(t, file, &error));
    setlocale(LC_ALL, "C");
    OK(an_trainer_load(t, file, &error));
    setlocale(LC_ALL, was);
    free(was);
    an_trainer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_are_json_and_defaults_are_themselves),
        cmocka_unit_test(a_graph_keeps_its_numbers),
        cmocka_unit_test(a_checkpoint_goes_anywhere),
    };
    return cmocka_run_group_tests_name("locale", tests, make, drop);
}
