/* The model's programs down the whole road: passes keep their meaning, their MIL is accepted by every chip's rules,
 * and its warnings are only those that follow from the kernel's shape. */
#include "model_t.h"
#include "anneal.h"
#include "pass/pass.h"

/* What a kernel's own sizes bring with them: ports of unequal size or of one channel, and a working set past on-chip
 * memory. The port passes repair the first two; the third is what the model costs. */
static bool expected(const char *rule)
{
    static const char *const rules[] = { "output-sizes", "input-sizes", "surface-minimum", "working-set" };
    for (size_t i = 0; i < COUNT(rules); i++)
        if (!strcmp(rules[i], rule)) return true;
    return false;
}

static void every_chip_accepts_every_kernel(void **state)
{
    (void)state;
    static const char *const models[] = { "stories110m", "stories260k", "qwen3-0.6b", "gpt2" };
    static const char *const dialects[] = { "mil", "mil-ios16" };
    for (size_t m = 0; m < COUNT(models); m++)
        for (int k = 0; k < MK_COUNT; k++)
            for (size_t t = 0; t < COUNT(dialects); t++) {
                an_error e = { 0 };
                an_program *p = NULL;
                an_kernel_options o = { .model = models[m], .kernel = model_kernel_name((model_kind)k), .layer = 1 };
                if (an_program_from_kernel(&p, &o, &e)) fail_msg("%s %s: %s", o.model, o.kernel, e.message);
                char *text = an_program_text(p, dialects[t], &e);
                if (!text) fail_msg("%s %s: %s", o.model, o.kernel, e.message);
                an_report *r = NULL;
                assert_int_equal(an_check_mil(&r, text, strlen(text), &(an_check_options){ .targets = "all" }, &e),
                                 AN_OK);
                for (size_t i = 0; i < an_report_findings(r); i++) {
                    an_finding f;
                    an_report_finding(r, i, &f);
                    if (!strcmp(f.severity, "note") || (!strcmp(f.severity, "warning") && expected(f.rule))) continue;
                    fail_msg("%s %s on %s, line %u: %s %s: %s", o.model, o.kernel, f.target, f.line, f.severity, f.rule,
                             f.message);
                }
                assert_int_equal(an_report_status(r), AN_OK);
                an_report_free(r);
                an_free(text);
                an_program_free(p);
            }
}

/* Random inputs of the right magnitude for any kernel: token digits are whole, everything else is a number near 1. */
static void feed_all(const graph *g, const model_config *c, rng *r, tensor64 *in)
{
    for (size_t i = 0; i < g->inputs.n; i++) {
        const value *v = graph_value(g, g->inputs.at[i]);
        int64_t n = 0;
        assert_true(shape_elems(&v->type.sh, &n));
        in[i] = (tensor64){ v->type, randoms(r, n, 1) };
        for (int64_t k = 0; k < n; k++) {
            if (!strcmp(v->name + 4, "hi")) in[i].x[k] = 0;
            if (!strcmp(v->name + 4, "lo")) in[i].x[k] = (double)rng_below(r, (uint64_t)c->vocab);
        }
    }
}

static void passes_keep_the_meaning_of_every_kernel(void **state)
{
    (void)state;
    rng r = { test_seed("passes") };
    static const char *const chips[] = { "m1", "m4" };
    for (size_t i = 0; i < COUNT(shapes); i++)
        for (int k = 0; k < MK_COUNT; k++) {
            const model_config *c = &shapes[i];
            store s = { c, rng_next(&r) };
            diag d = { 0 };
            graph *g = build_program(c, (model_kind)k, 1, k == MK_DECODE_PROJ || k == MK_DECODE_FFN ? 16 : 0, &s);
            tensor64 in[MODEL_MAX_PORTS], want[MODEL_MAX_PORTS], got[MODEL_MAX_PORTS];
            feed_all(g, c, &r, in);
            assert_ok(graph_eval(g, in, want, &test_mem, &d), d);
            size_t before = g->nodes.n;
            assert_ok(pass_run(g, &(pass_options){ .target = chip_find(chips[(size_t)k % 2]), .level = 1 }, NULL, &d),
                      d);
            assert_true(g->nodes.n <= before);
            assert_ok(graph_eval(g, in, got, &test_mem, &d), d);
            for (size_t o = 0; o < g->outputs.n; o++) {
                int64_t n = 0;
                assert_true(shape_elems(&want[o].type.sh, &n));
                close_to(g->outputs.at[o].name, got[o].x, want[o].x, n, 1e-9);
            }
            graph_free(g);
            drop_memory(NULL);
        }
}

#define TEST(f) cmocka_unit_test_teardown(f, drop_memory)
int main(void)
{
    const struct CMUnitTest tests[] = { TEST(every_chip_accepts_every_kernel),
                                        TEST(passes_keep_the_meaning_of_every_kernel) };
    return cmocka_run_group_tests_name("model programs", tests, NULL, NULL);
}
