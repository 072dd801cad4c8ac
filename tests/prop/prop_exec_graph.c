/* prop_exec_graph.c: random graphs through codegen: the fast executor against the reference. The same bytes on the
 * chips for every instruction set of this machine and for one and two threads; on the plain processor within what
 * another order of rounding moves. */
#include "codegen_t.h"
#include "kernel/kernel.h"
#include "prop/randgraph.h"

static pool *pools[2];

static void run_fast(const program *p, const void *const *in, void *const *out, pool *threads)
{
    image *im = NULL;
    diag d = { 0 };
    if (image_load(&im, p, NULL, &(image_options){ .pool = threads }, &d) || image_run(im, in, out, &d)) {
        strbuf b = { 0 };
        program_print(p, &b);
        fail_msg("%s\n%s", d.msg, b.at);
    }
    image_free(im);
}

static void compare(const program *p, void *const *got, void *const *want, bool exact, const char *isa,
                    const char *target)
{
    for (size_t k = 0; k < p->outputs.n; k++) {
        const etensor *t = &p->tensors.at[p->outputs.at[k].tensor];
        int64_t n = 1;
        for (int i = 0; i < t->rank; i++) n *= t->dim[i];
        if (exact && !memcmp(got[k], want[k], (size_t)p->outputs.at[k].bytes)) continue;
        for (int64_t i = 0; i < n; i++) {
            double x = dtype_load(t->dt, got[k], i), y = dtype_load(t->dt, want[k], i);
            if (exact ? x == y && signbit(x) == signbit(y)
                      : x == y || (isnan(x) && isnan(y)) || fabs(x - y) <= 2e-2 * fmax(1, fabs(y)))
                continue;
            strbuf b = { 0 };
            program_print(p, &b);
            fail_msg("%s, AN_ISA=%s: output %zu element %lld is %.9g, the reference says %.9g\n%s", target, isa, k,
                     (long long)i, x, y, b.at);
        }
    }
}

static void test_graphs(void **state)
{
    static const char *const targets[] = { "cpu", "m1", "m3", "m4", "m5" }, *const isas[] = { "scalar", "avx2", "neon",
                                                                                              "" };
    rng r = { test_seed("graphs on the fast executor") };
    (void)state;
    for (int round = 0; round < 150; round++) {
        const char *target = targets[round % (int)COUNT(targets)];
        bool cpu = !strcmp(target, "cpu");
        numerics num = numerics_cpu;
        if (!cpu) assert_true(codegen_numerics(chip_find(target), &num));
        graph *g = rg_graph(&r, &(rg_options){ .n_ops = 4 + (int)rng_below(&r, 20), .smooth = cpu, .fused = true });
        arena mem = { 0 };
        tensor64 *in = rg_inputs(g, &r, &mem);
        program *p =
            cgt_compile(g, &(codegen_options){ .num = &num, .target = target, .level = (int)rng_below(&r, 2) });
        const void **x = cgt_inputs(p, g, in, &mem);
        void **want = cgt_outputs(p, &mem), **got = cgt_outputs(p, &mem);
        cgt_run(p, x, want, true);
        for (size_t a = 0; a < COUNT(isas); a++) {
            uint32_t have;
            diag d = { 0 };
            assert_int_equal(setenv("AN_ISA", isas[a], 1), 0);
            if (isa_have(&have, &d)) continue; /* of the other architecture */
            run_fast(p, x, got, pools[(size_t)round % 2 ^ (a & 1)]);
            compare(p, got, want, !cpu, isas[a], target);
        }
        unsetenv("AN_ISA");
        program_free(p);
        graph_free(g);
        arena_free(&mem);
    }
}

static int open_pools(void **state)
{
    (void)state;
    diag d = { 0 };
    return pool_make(&pools[0], 1, &d) || pool_make(&pools[1], 2, &d);
}

static int close_pools(void **state)
{
    (void)state;
    pool_free(pools[0]), pool_free(pools[1]);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_graphs) };
    return cmocka_run_group_tests(tests, open_pools, close_pools);
}
