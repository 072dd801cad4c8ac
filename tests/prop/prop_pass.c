/* prop_pass.c: every pass keeps the meaning of random graphs.
 *
 * Clean-up passes must give the same bits when every result is rounded to its type, as fp16 execution rounds:
 * equality, not tolerance. Legalisation changes the operations, so it is compared in double precision: 1e-9 of the
 * largest result, which is some thousand times the rounding of double over these graphs and far below what a wrong
 * rewrite gives. Graphs with gelu and attention are compared at 2e-2: their rewrites hold constants rounded to fp16
 * (2^-12 each), the tanh form of gelu differs by 5e-4, and what follows in a random graph multiplies that. */
#include "prop/portplan.h"

enum { N_CLEAN = 300, N_PIPE = 600, N_TARGET = 80 };

typedef struct {
    graph *a, *b; /* the same graph twice: b goes through passes */
    tensor64 *in, *want, *got;
    const char **in_names, **out_names;
    arena mem;
    uint64_t seed;
} pair;

static void pair_open(pair *p, uint64_t seed, const rg_options *o)
{
    *p = (pair){ .seed = seed };
    rng r1 = { seed }, r2 = { seed }, r3 = { seed ^ 0x5eed };
    diag d = { 0 };
    p->a = rg_graph(&r1, o);
    p->b = rg_graph(&r2, o);
    if (graph_finish(p->a, &d)) fail_msg("seed %llu: generator: %s", (unsigned long long)seed, d.msg);
    size_t n_in = p->a->inputs.n, n_out = p->a->outputs.n;
    p->in = rg_inputs(p->a, &r3, &p->mem);
    p->want = TAKE(&p->mem, tensor64, n_out);
    p->got = TAKE(&p->mem, tensor64, n_out);
    p->in_names = TAKE(&p->mem, const char *, n_in);
    p->out_names = TAKE(&p->mem, const char *, n_out);
    for (size_t i = 0; i < n_in; i++) p->in_names[i] = graph_value(p->a, p->a->inputs.at[i])->name;
    for (size_t i = 0; i < n_out; i++) p->out_names[i] = p->a->outputs.at[i].name;
}

static void pair_close(pair *p)
{
    graph_free(p->a);
    graph_free(p->b);
    arena_free(&p->mem);
}

static void show(const pair *p, const char *what, size_t out, int64_t at, double want, double got)
{
    strbuf s = { 0 };
    sb_puts(&s, "before:\n");
    graph_print(p->a, &s);
    sb_puts(&s, "\nafter:\n");
    graph_print(p->b, &s);
    fputs(s.at, stderr);
    sb_free(&s);
    fail_msg("%s, AN_SEED graph %llu: output %zu element %lld is %.17g, was %.17g", what, (unsigned long long)p->seed,
             out, (long long)at, got, want);
}

/* tolerance 0: the same bits (any NaN equals any NaN). */
static void pair_compare(pair *p, const char *what, double tolerance)
{
    for (size_t o = 0; o < p->a->outputs.n; o++) {
        int64_t n;
        double scale = 1;
        assert_true(shape_eq(&p->want[o].type.sh, &p->got[o].type.sh));
        assert_true(shape_elems(&p->want[o].type.sh, &n));
        for (int64_t k = 0; k < n; k++)
            if (isfinite(p->want[o].x[k])) scale = fmax(scale, fabs(p->want[o].x[k]));
        for (int64_t k = 0; k < n; k++) {
            double w = p->want[o].x[k], g = p->got[o].x[k];
            if (isnan(w) && isnan(g)) continue;
            bool same = w == g && signbit(w) == signbit(g);
            if (!same && !(tolerance > 0 && fabs(w - g) <= tolerance * scale)) show(p, what, o, k, w, g);
        }
    }
}

static void eval_both(pair *p, const port_plan *plan, rg_rounding how)
{
    diag d = { 0 };
    size_t n_in = p->a->inputs.n, n_out = p->a->outputs.n;
    for (size_t k = 0; k < n_out; k++) p->got[k] = (tensor64){ 0 };
    assert_ok(rg_eval(p->a, p->in, p->want, how, &p->mem, &d), d);
    if (plan)
        assert_ok(pp_eval(p->b, plan, p->in, p->in_names, n_in, p->got, p->out_names, n_out, how, &p->mem, &d), d);
    else assert_ok(rg_eval(p->b, p->in, p->got, how, &p->mem, &d), d);
}

/* A pass run until it changes nothing stays there; more than the pipeline's rounds would be a pass that never
 * settles. */
static void settle(graph *g, const char *pass, const pass_options *o, pass_stats *st)
{
    diag d = { 0 };
    bool changed = true;
    int rounds = 0;
    while (changed && rounds++ < PASS_MAX_ROUNDS) assert_ok(pass_run_one(g, pass, o, st, &changed, &d), d);
    if (changed) fail_msg("%s still changes the graph after %d runs", pass, PASS_MAX_ROUNDS);
}

static void clean_passes_keep_every_bit(void **state)
{
    (void)state;
    uint64_t seed = test_seed("clean-up");
    for (size_t i = 0; i < pass_count(); i++) {
        if (pass_needs_target(i)) continue;
        size_t hits = 0;
        for (uint64_t k = 0; k < N_CLEAN; k++) {
            pair p;
            pass_stats st = { 0 };
            pair_open(&p, seed + k, &(rg_options){ .n_ops = 24, .fused = true });
            settle(p.b, pass_name_at(i), &(pass_options){ .level = 1 }, &st);
            hits += st.n_changes[i] > 0;
            eval_both(&p, NULL, RG_ROUND_ALL);
            pair_compare(&p, pass_name_at(i), 0);
            pair_close(&p);
        }
        print_message("  %-10s changed %zu of %d graphs\n", pass_name_at(i), hits, (int)N_CLEAN);
        if (hits < N_CLEAN / 20)
            fail_msg("%s changed only %zu graphs: the generator does not exercise it", pass_name_at(i), hits);
    }
}

static void pipeline_keeps_every_bit(void **state)
{
    (void)state;
    uint64_t seed = test_seed("pipeline") + 1000;
    for (uint64_t k = 0; k < N_PIPE; k++) {
        pair p;
        pass_stats st, again;
        diag d = { 0 };
        pair_open(&p, seed + k, &(rg_options){ .n_ops = 30, .fused = true });
        assert_ok(pass_run(p.b, NULL, &st, &d), d);
        assert_true(st.fixpoint);
        eval_both(&p, NULL, RG_ROUND_ALL);
        pair_compare(&p, "pipeline", 0);
        assert_ok(pass_run(p.b, NULL, &again, &d), d);
        for (size_t i = 0; i < pass_count(); i++)
            if (again.n_changes[i])
                fail_msg("seed %llu: %s changes a graph that was at its fixpoint", (unsigned long long)p.seed,
                         pass_name_at(i));
        pair_close(&p);
    }
}

static void each_legalisation_keeps_the_meaning(void **state)
{
    (void)state;
    uint64_t seed = test_seed("legalisation") + 2000;
    for (size_t c = 0; c < chip_count(); c++) {
        if (!chip_is_base(chip_at(c))) continue;
        for (size_t i = 0; i < pass_count(); i++) {
            if (!pass_needs_target(i)) continue;
            for (uint64_t k = 0; k < N_TARGET / 2; k++) {
                pair p;
                pass_stats st = { 0 };
                bool fused = k % 2;
                pair_open(&p, seed + k, &(rg_options){ .n_ops = 16, .smooth = true, .fused = fused });
                settle(p.b, pass_name_at(i), &(pass_options){ .target = chip_at(c), .level = 1, .ports = true }, &st);
                eval_both(&p, &st.ports, RG_ROUND_CONST);
                pair_compare(&p, pass_name_at(i), fused ? 2e-2 : 1e-9);
                pair_close(&p);
            }
        }
    }
}

static void pipeline_per_target_keeps_the_meaning(void **state)
{
    (void)state;
    uint64_t seed = test_seed("pipeline per target") + 3000;
    for (size_t c = 0; c < chip_count(); c++) {
        if (!chip_is_base(chip_at(c))) continue;
        size_t hits[PASS_MAX] = { 0 };
        for (uint64_t k = 0; k < N_TARGET; k++) {
            pair p;
            pass_stats st, again;
            diag d = { 0 };
            bool fused = k % 2;
            pass_options o = { .target = chip_at(c), .level = k % 3 ? 1 : 0, .ports = k % 4 != 0 };
            pair_open(&p, seed + k, &(rg_options){ .n_ops = 20, .smooth = true, .fused = fused });
            assert_ok(pass_run(p.b, &o, &st, &d), d);
            assert_true(st.fixpoint);
            assert_true(o.ports || !st.ports.changed);
            for (size_t i = 0; i < pass_count(); i++) hits[i] += st.n_changes[i] > 0;
            eval_both(&p, &st.ports, RG_ROUND_CONST);
            pair_compare(&p, chip_name(chip_at(c)), fused ? 2e-2 : 1e-9);
            assert_ok(pass_run(p.b, &o, &again, &d), d);
            for (size_t i = 0; i < pass_count(); i++)
                if (again.n_changes[i])
                    fail_msg("seed %llu, %s: %s changes a graph that was at its fixpoint", (unsigned long long)p.seed,
                             chip_name(chip_at(c)), pass_name_at(i));
            pair_close(&p);
        }
        print_message("  %s:", chip_name(chip_at(c)));
        for (size_t i = 0; i < pass_count(); i++)
            if (pass_needs_target(i)) print_message(" %s %zu", pass_name_at(i), hits[i]);
        print_message("\n");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clean_passes_keep_every_bit),
        cmocka_unit_test(pipeline_keeps_every_bit),
        cmocka_unit_test(each_legalisation_keeps_the_meaning),
        cmocka_unit_test(pipeline_per_target_keeps_the_meaning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
