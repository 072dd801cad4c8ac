/* Gradients in fp16 as the chips compute them: every rule's case, compiled and run with the arithmetic of m1 and m4, against the
 * same gradient in double precision. The loss is linear in the results, so the gradient is the rule's own and nothing else. */
#include "codegen_t.h"
#include "grad_rows.h"

/* The case in fp16. */
static graph *narrow_row(const char *text)
{
    size_t n = strlen(text);
    char *t = malloc(n + 1);
    assert_non_null(t);
    memcpy(t, text, n + 1);
    for (char *p = t; (p = strstr(p, "fp64")); p += 4) memcpy(p, "fp16", 4);
    for (char *p = t; (p = strstr(p, "\"fp32\"")); p += 6) memcpy(p, "\"fp16\"", 6);
    graph *g = grad_parse(t);
    free(t);
    return g;
}

typedef struct {
    double ab, aa, bb;
} angle;

static void angle_add(angle *s, const double *want, dtype t, const void *got, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double a = want[i], b = dtype_load(t, got, i);
        s->ab += a * b, s->aa += a * a, s->bb += b * b;
    }
}

static double cosine(const angle *s) { return s->aa == 0 && s->bb == 0 ? 1 : s->ab / sqrt(s->aa * s->bb); }

static void run_on(const grad_row *w, rng *r, const char *chip_name)
{
    const chip *ch = chip_find(chip_name);
    numerics num;
    assert_non_null(ch);
    assert_true(codegen_numerics(ch, &num));
    graph *g = narrow_row(w->text);
    arena mem = { 0 };
    diag d = { 0 };
    val loss = grad_total(g, r), wrt[8] = { NO_VAL }, dx[8] = { NO_VAL };
    int n = (int)g->inputs.n;
    assert_in_range(n, 1, 8);
    bool plain = w->lo == 0 && w->hi == 0;
    tensor64 in[8], want[8];
    for (int i = 0; i < n; i++) {
        wrt[i] = g->inputs.at[i];
        in[i].type = *graph_type(g, wrt[i]);
        in[i].x = spaced(&mem, r, elems(&in[i].type), plain ? -2 : w->lo, plain ? 2 : w->hi);
        for (int64_t k = 0; k < elems(&in[i].type); k++) in[i].x[k] = dtype_round(DT_F16, in[i].x[k]);
    }
    if (grad_build(g, loss, wrt, n, dx, NULL, &d)) fail_msg("%s: %s", w->text, d.msg);
    for (int i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "g%d", i);
        graph_output(g, name, dx[i]);
    }
    if (graph_finish(g, &d) || graph_eval(g, in, want, &mem, &d)) fail_msg("%s: %s", w->text, d.msg);
    program *p = cgt_compile(g, &(codegen_options){ .num = &num, .target = chip_name, .level = 1 });
    const void **xin = cgt_inputs(p, g, in, &mem);
    void **xout = cgt_outputs(p, &mem);
    cgt_run(p, xin, xout, false);
    angle all = { 0 };
    for (size_t i = 0; i < p->outputs.n; i++) {
        int k = p->outputs.at[i].name[1] - '0';
        angle one = { 0 };
        dtype t = graph_type(g, dx[k])->dt;
        angle_add(&one, want[k].x, t, xout[i], elems(&want[k].type));
        angle_add(&all, want[k].x, t, xout[i], elems(&want[k].type));
        /* a parameter's few sums may cancel, and what is left then carries the rounding of all their terms */
        if (!(cosine(&one) >= 0.999)) fail_msg("%s on %s: the gradient by %s has cosine %.6f", w->text, chip_name, graph_value(g, wrt[k])->name, cosine(&one));
    }
    if (!(cosine(&all) >= 0.9999)) fail_msg("%s on %s: the gradient has cosine %.6f", w->text, chip_name, cosine(&all));
    program_free(p);
    arena_free(&mem);
    graph_free(g);
}

static void on_chip(const char *name)
{
    rng r = { test_seed(name) };
    for (size_t i = 0; i < COUNT(grad_rows); i++) run_on(&grad_rows[i], &r, name);
}

static void every_rule_on_m1(void **state) { (void)state, on_chip("m1"); }
static void every_rule_on_m4(void **state) { (void)state, on_chip("m4"); }

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_rule_on_m1), cmocka_unit_test(every_rule_on_m4) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
