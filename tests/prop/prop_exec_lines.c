/* prop_exec_lines.c: as prop_exec.c: softmax, norms, reductions and sums, along axes. */
#include "exec_links.h"

static int random_axes(const int64_t *d, int rank, int64_t *axes) /* mostly a run of them */
{
    int n = 0, first = (int)upto(0, rank - 1), last = (int)upto(first, rank - 1);
    (void)d;
    for (int i = 0; i < rank; i++)
        if (chance(10) ? chance(50) : i >= first && i <= last) axes[n++] = i;
    return n;
}

static void lines_dims(int64_t *d, int rank)
{
    for (int i = 0; i < rank; i++) d[i] = chance(15) ? 1 : upto(1, chance(10) ? 150 : 9);
    if (chance(5)) d[rank - 1] = upto(1000, 2500);
}

static void test_lines(void **state)
{
    (void)state;
    for (int round = 0; round < 500; round++) {
        int rank = (int)upto(1, 4), what = (int)upto(0, 2);
        int64_t d[4], axes[4], y[4], fields[8], ny = 1, n = 1;
        lines_dims(d, rank);
        int na = random_axes(d, rank, axes);
        for (int i = 0; i < na; i++) n *= d[axes[i]];
        setting s = random_setting(n);
        prog g;
        prog_open(&g, s.num);
        bool cpu = s.tol != 0;
        int64_t x = input(&g, chance(95) ? s.t : DT_I8, d, rank, cpu ? TAME : s.m, s.scale), t;
        dtype out = chance(80) ? s.t : any_float();
        fields[0] = na;
        memcpy(fields + 1, axes, sizeof axes);
        if (what == 0) {
            t = prog_out(&g, out, d, rank);
            prog_insn(&g, IN_SOFTMAX, INTS(t, x), INTS(na ? axes[0] : 0), NO_REALS);
            compare(&g, s.name, cpu ? 1e-5 : 0, 1e-4);
        } else if (what == 1) {
            int64_t par[2] = { -1, -1 }, p[4];
            for (int k = 0; k < 2; k++) {
                if (chance(40)) continue;
                int r = broadcast_dims(d, rank, p);
                par[k] = either(&g, chance(50), s.t, p, r, s.m, 2);
            }
            t = prog_out(&g, out, d, rank);
            fields[1 + na] = upto(0, NORM_COUNT - 1);
            prog_insn(&g, IN_NORM, INTS(t, x, par[0], par[1]), fields, 2 + (uint32_t)na,
                      REALS(chance(50) ? 1e-5 : 1e-2));
            compare(&g, s.name, cpu ? 1e-4 : 0, 1);
        } else {
            int kept = 0;
            for (int i = 0, on = 0; i < rank; i++) {
                if (on < na && axes[on] == i) on++;
                else y[kept++] = d[i], ny *= d[i];
            }
            if (!kept) y[kept++] = 1;
            t = prog_out(&g, out, y, kept);
            fields[1 + na] = upto(0, RED_COUNT - 1);
            prog_insn(&g, IN_REDUCE, INTS(t, x), fields, 2 + (uint32_t)na, NO_REALS);
            compare(&g, s.name, cpu ? MAX(s.tol, 1e-5) : 0, s.least);
            same_on_threads(&g, "reduce");
        }
        prog_close(&g);
    }
}

/* Sums of products both ways, with and without factors: near the reference, and the same bits for any number of
 * threads. */
static void test_sums(void **state)
{
    (void)state;
    for (int round = 0; round < 80; round++) {
        const size_t dev = chance(80) ? 0 : rng_below(&R, COUNT(devices));
        const int64_t n = upto(1, chance(30) ? 200 : 20), m = upto(1, chance(30) ? 300 : 40);
        const dtype t = chance(80) ? DT_F32 : any_float();
        const int want = upto(1, 3); /* columns, rows, both */
        prog g;
        prog_open(&g, devices[dev].num);
        const int64_t a = input(&g, t, DIMS(n, m), TAME, 1), b = input(&g, t, DIMS(n, m), TAME, 1),
                      by[2] = { chance(50) ? input(&g, t, DIMS(n), TAME, 1) : -1,
                                chance(50) ? input(&g, t, DIMS(m), TAME, 1) : -1 };
        const int64_t cols = want & 1 ? prog_out(&g, DT_F32, DIMS(m)) : -1,
                      rows = want & 2 ? prog_out(&g, DT_F32, DIMS(n)) : -1;
        prog_insn(&g, IN_SUMS, INTS(cols, rows, a, b, by[0], by[1]), NULL, 0, NO_REALS);
        compare(&g, devices[dev].name, devices[dev].num == &numerics_cpu ? 1e-6 * (double)MAX(n, m) : 0, 1);
        same_on_threads(&g, "sums");
        prog_close(&g);
    }
}

/* Lines so long that threads share one, in one run or in one of every batch: near the reference, and the same bits
 * for any number of threads. */
static void test_long_lines(void **state)
{
    static const struct {
        int64_t d[3];
        int n_axes;
        int64_t axes[2];
    } rows[] = { { { 1, 1, 70001 }, 1, { 2 } }, { { 3, 2, 17003 }, 2, { 0, 2 } }, { { 40, 5, 33 }, 2, { 0, 2 } } };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++)
        for (int kind = 0; kind < RED_COUNT; kind++)
            for (size_t dev = 0; dev < COUNT(devices); dev++) {
                bool cpu = devices[dev].num == &numerics_cpu;
                int64_t n = 1, keep = rows[i].n_axes == 1 ? 1 : rows[i].d[1], fields[8] = { rows[i].n_axes };
                for (int k = 0; k < rows[i].n_axes; k++)
                    fields[1 + k] = rows[i].axes[k], n *= rows[i].d[rows[i].axes[k]];
                fields[1 + rows[i].n_axes] = kind;
                prog g;
                prog_open(&g, devices[dev].num);
                int64_t x = input(&g, DT_F16, rows[i].d, 3, TAME, 1);
                prog_insn(&g, IN_REDUCE, INTS(prog_out(&g, DT_F32, &keep, 1), x), fields, 2 + (uint32_t)rows[i].n_axes,
                          NO_REALS);
                compare(&g, devices[dev].name, cpu ? 4e-7 * (double)n : 0, 1);
                unsigned char bytes[COUNT(pools)][64] = { { 0 } };
                for (size_t p = 0; p < COUNT(pools); p++) {
                    image *im = NULL;
                    diag d = { 0 };
                    void *out = bytes[p];
                    assert_ok(image_load(&im, g.p, NULL, &(image_options){ .pool = pools[p] }, &d), d);
                    assert_ok(image_run(im, (const void *const *)g.in, &out, &d), d);
                    image_free(im);
                    assert_memory_equal(bytes[0], bytes[p], sizeof bytes[0]);
                }
                prog_close(&g);
            }
}

/* Softmax and norms of many lines, side by side or behind each other, on the plain processor: near the reference,
 * and the same bits for any number of threads. */
static void test_many_lines(void **state)
{
    enum { KINDS = 1 + NORM_COUNT };
    static const struct {
        int64_t d[3], axis;
    } rows[] = { { { 1, 70, 300 }, 2 }, { { 3, 37, 1024 }, 2 }, { { 1, 5, 4099 }, 2 },   { { 1, 130, 64 }, 2 },
                 { { 2, 97, 640 }, 1 }, { { 9, 40, 130 }, 1 },  { { 1, 700, 1000 }, 1 }, { { 1, 1100, 1030 }, 1 },
                 { { 2, 3, 64 }, 1 },   { { 4, 2100, 70 }, 1 } };
    static const dtype types[] = { DT_F16, DT_F32 };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++)
        for (int k = 0; k < 4 * KINDS; k++) {
            const int kind = k / 4 - 1;
            const dtype tx = types[k % 2], ty = types[k / 2 % 2];
            const int64_t *d = rows[i].d, n = d[0] * d[1] * d[2], par[] = { d[1], 1 };
            if (n > 1 << 19 && tx != ty) continue; /* the reference takes its time */
            prog g;
            prog_open(&g, &numerics_cpu);
            int64_t x = input(&g, tx, d, 3, TAME, 2), y;
            if (kind < 0)
                y = prog_out(&g, ty, d, 3), prog_insn(&g, IN_SOFTMAX, INTS(y, x), INTS(rows[i].axis), NO_REALS);
            else {
                int64_t gain = rows[i].axis == 1 ? either(&g, true, tx, par, 2, TAME, 2) : -1;
                y = prog_out(&g, ty, d, 3);
                prog_insn(&g, IN_NORM, INTS(y, x, gain, -1), INTS(1, rows[i].axis, kind), REALS(1e-5));
            }
            compare(&g, kind < 0 ? "softmax" : "norm", tx == DT_F16 || ty == DT_F16 ? 1e-3 : 1e-5, kind < 0 ? 1e-3 : 1);
            size_t bytes = (size_t)n * (size_t)dtype_bits(ty) / 8;
            unsigned char *got[COUNT(pools)];
            for (size_t p = 0; p < COUNT(pools); p++) {
                image *im = NULL;
                diag e = { 0 };
                void *out = got[p] = malloc(bytes);
                assert_non_null(out);
                assert_ok(image_load(&im, g.p, NULL, &(image_options){ .pool = pools[p] }, &e), e);
                assert_ok(image_run(im, (const void *const *)g.in, &out, &e), e);
                image_free(im);
                assert_memory_equal(got[0], got[p], bytes);
            }
            for (size_t p = 0; p < COUNT(pools); p++) free(got[p]);
            prog_close(&g);
        }
}

/* Softmax of so much that it is written past the caches, in rows that end inside a line of it. */
static void test_past_lines(void **state)
{
    (void)state;
    enum { HIGH = 2050, WIDE = 4101 };
    for (int64_t axis = 0; axis < 2; axis++) {
        prog g;
        image *im = NULL;
        diag d = { 0 };
        prog_open(&g, &numerics_cpu);
        int64_t x = prog_in(&g, DT_F32, DIMS(HIGH, WIDE), NULL), y = prog_out(&g, DT_F32, DIMS(HIGH, WIDE));
        float *in = (float *)(void *)g.in[0];
        for (int64_t i = 0; i < HIGH * WIDE; i++) in[i] = (float)(i % 11);
        prog_insn(&g, IN_SOFTMAX, INTS(y, x), INTS(axis), NO_REALS);
        float *out = aligned_alloc(64, ROUND_UP(HIGH * WIDE * sizeof *out, (size_t)64));
        assert_non_null(out);
        assert_ok(image_load(&im, g.p, NULL, &(image_options){ .pool = pools[1] }, &d), d);
        assert_ok(image_run(im, (const void *const *)g.in, (void *const[]){ out }, &d), d);
        const int64_t lines = axis ? HIGH : WIDE, n = axis ? WIDE : HIGH, step = axis ? 1 : WIDE,
                      apart = axis ? WIDE : 1;
        for (int64_t l = 0; l < lines; l++) {
            double sum = 0;
            for (int64_t i = 0; i < n; i++) sum += (double)out[l * apart + i * step];
            if (!(fabs(sum - 1) < 1e-4)) fail_msg("axis %d: line %lld sums to %g", (int)axis, (long long)l, sum);
        }
        image_free(im);
        free(out);
        prog_close(&g);
    }
}

/* Norms and softmax down the columns of so many planes that they are written past the caches: every plane is, whoever
 * takes it, and the last rows are no band. */
static void past_planes(pool *on, int kind, dtype t)
{
    enum { PLANES = 24, HIGH = 43, WIDE = 4096, ALL = PLANES * HIGH * WIDE };
    prog g;
    image *im = NULL;
    diag d = { 0 };
    prog_open(&g, &numerics_cpu);
    int64_t x = prog_in(&g, t, DIMS(PLANES, HIGH, WIDE), NULL), y = prog_out(&g, t, DIMS(PLANES, HIGH, WIDE));
    for (int64_t i = 0; i < ALL; i++) dtype_store(t, g.in[0], i, (double)(i * 7919 % 1013) / 256 - 1);
    if (kind == NORM_COUNT) prog_insn(&g, IN_SOFTMAX, INTS(y, x), INTS(1), NO_REALS);
    else prog_insn(&g, IN_NORM, INTS(y, x, -1, -1), INTS(1, 1, kind), REALS(1e-5));
    void *out = aligned_alloc(64, ALL * sizeof(float));
    assert_non_null(out);
    memset(out, 0, ALL * sizeof(float));
    assert_ok(image_load(&im, g.p, NULL, &(image_options){ .pool = on }, &d), d);
    assert_ok(image_run(im, (const void *const *)g.in, (void *const[]){ out }, &d), d);
    for (int64_t l = 0; l < PLANES * WIDE; l++) {
        const int64_t at = l / WIDE * HIGH * WIDE + l % WIDE;
        double mean = 0, squares = 0, exps = 0;
        for (int64_t r = 0; r < HIGH; r++) {
            const double v = dtype_load(t, g.in[0], at + r * WIDE);
            mean += v / HIGH, exps += exp(v);
        }
        if (kind != NORM_LAYER) mean = 0;
        for (int64_t r = 0; r < HIGH; r++) {
            const double v = dtype_load(t, g.in[0], at + r * WIDE) - mean;
            squares += v * v;
        }
        const double by = 1 / sqrt((kind == NORM_L2 ? squares : squares / HIGH) + 1e-5);
        for (int64_t r = 0; r < HIGH; r++) {
            const double v = dtype_load(t, g.in[0], at + r * WIDE), got = dtype_load(t, out, at + r * WIDE),
                         want = kind == NORM_COUNT ? exp(v) / exps : (v - mean) * by;
            if (!(fabs(got - want) <= (t == DT_F16 ? 1e-3 : 1e-5) * (fabs(want) + 0.01)))
                fail_msg("kind %d: row %lld of column %lld is %g, not %g", kind, (long long)r, (long long)l, got, want);
        }
    }
    image_free(im);
    free(out);
    prog_close(&g);
}

static void test_past_planes(void **state)
{
    (void)state;
    for (int kind = 0; kind <= NORM_COUNT; kind++)
        for (int half = 0; half < 2; half++) past_planes(pools[kind % COUNT(pools)], kind, half ? DT_F16 : DT_F32);
}

/* Sums of exponentials along the axes each way takes, of lines that hold no number too. */
static void test_log_sum_exp(void **state)
{
    (void)state;
    static const struct {
        int64_t d[3], n_axes, axes[2];
    } rows[] = { { { 3, 4, 5 }, 2, { 0, 2 } }, { { 3, 4, 70 }, 2, { 0, 2 } }, { { 1, 6, 20 }, 1, { 1 } },
                 { { 1, 20, 6 }, 1, { 2 } },   { { 2, 20, 60 }, 1, { 2 } },   { { 2, 6, 100 }, 2, { 0, 1 } } };
    static const double odd[] = { -INFINITY, INFINITY, NAN };
    for (size_t i = 0; i < COUNT(rows); i++)
        for (int way = 0; way < 8; way++) {
            const int64_t *d = rows[i].d;
            const dtype t = way % 2 ? DT_F16 : DT_F32;
            int64_t y[3] = { d[0], d[1], d[2] },
                    fields[] = { rows[i].n_axes, rows[i].axes[0], rows[i].axes[1], RED_LOG_SUM_EXP };
            for (int64_t k = 0; k < rows[i].n_axes; k++) y[rows[i].axes[k]] = 1;
            if (rows[i].n_axes == 1) fields[2] = RED_LOG_SUM_EXP;
            prog g;
            prog_open(&g, &numerics_cpu);
            int64_t x = input(&g, t, d, 3, TAME, 4);
            /* the first line is nothing else, the second has one */
            for (int64_t at = 0; way / 2 && at < d[0] * d[1] * d[2]; at++) {
                int64_t idx[3] = { at / d[2] / d[1], at / d[2] % d[1], at % d[2] }, line = 0, place = 0;
                for (int a = 0; a < 3; a++) *(y[a] == 1 ? &place : &line) += idx[a];
                if (!line || (line == 1 && !place)) dtype_store(t, g.in[0], at, odd[way / 2 - 1]);
            }
            int64_t out = prog_out(&g, t, y, 3);
            prog_insn(&g, IN_REDUCE, INTS(out, x), fields, 2 + (uint32_t)rows[i].n_axes, NO_REALS);
            compare(&g, "log_sum_exp", 1e-5, 1);
            prog_close(&g);
        }
}

/* Gains of every shape, where as many lines stand side by side as each has elements. */
static void test_gains(void **state)
{
    (void)state;
    static const int64_t d[] = { 4, 4, 4 }, gains[][3] = { { 4, 1, 1 }, { 1, 4, 1 }, { 1, 1, 4 }, { 4, 4, 1 },
                                                           { 4, 1, 4 }, { 1, 4, 4 }, { 4, 4, 4 }, { 1, 1, 1 } };
    for (size_t i = 0; i < COUNT(gains); i++)
        for (int64_t way = 0; way < 3 * NORM_COUNT; way++) {
            prog g;
            prog_open(&g, &numerics_cpu);
            int64_t x = input(&g, DT_F32, d, 3, TAME, 2), gain = input(&g, DT_F32, gains[i], 3, TAME, 2),
                    y = prog_out(&g, DT_F32, d, 3);
            prog_insn(&g, IN_NORM, INTS(y, x, gain, -1), INTS(1, way % 3, way / 3), REALS(1e-5));
            compare(&g, "gain", 1e-5, 1);
            prog_close(&g);
        }
}

/* Norms of fp16 down columns of all sizes beside each other, and along rows of them: near the reference, and the same
 * bits for any number of threads, that is, whichever columns are looked at together. */
static void test_sizes(void **state)
{
    (void)state;
    for (int round = 0; round < 24; round++) {
        const int64_t n = upto(2, 90), m = upto(1, chance(50) ? 1500 : 70), axis = round % 2;
        const int kind = round / 2 % 2 ? NORM_L2 : NORM_RMS;
        prog g;
        prog_open(&g, &numerics_cpu);
        const int64_t along[] = { axis ? 1 : n, axis ? m : 1 }, x = input(&g, DT_F16, DIMS(n, m), TAME, 1),
                      gain = chance(70) ? input(&g, DT_F16, along, 2, TAME, 2) : -1;
        for (int64_t i = 0; i < n * m; i++) {
            const int64_t line = axis ? i / m : i % m;
            dtype_store(DT_F16, g.in[0], i, ldexp(dtype_load(DT_F16, g.in[0], i), (int)(line * 7919 % 20) - 6));
        }
        const int64_t y = prog_out(&g, DT_F16, DIMS(n, m));
        prog_insn(&g, IN_NORM, INTS(y, x, gain, -1), INTS(1, axis, kind), REALS(1e-5));
        compare(&g, "sizes", 1e-4, 1e-3);
        same_on_threads(&g, "sizes");
        prog_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),      cmocka_unit_test(test_sums),       cmocka_unit_test(test_long_lines),
        cmocka_unit_test(test_many_lines), cmocka_unit_test(test_past_lines), cmocka_unit_test(test_log_sum_exp),
        cmocka_unit_test(test_gains),      cmocka_unit_test(test_sizes),      cmocka_unit_test(test_past_planes),
    };
    return cmocka_run_group_tests(tests, open_pools, close_pools);
}
