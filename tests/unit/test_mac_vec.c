/* test_mac_vec.c: products whose constant weight stays compressed, few columns and int8 products: against sums in
 * double of the weight's definition, beside the reference, for every form that can stay and some that cannot; after
 * a reload; and that nothing was expanded.
 *
 * Bound: the reference rounds each element of W to the tensor's type (2^-11 of it when fp16), the fast form does
 * not; sums of k terms are within (k + 12) 2^-24 of the magnitudes; the result is rounded once. */
#include <math.h>

#include "codegen_t.h"
#include "kernel/kernel.h"

typedef enum { AFFINE_ONE, AFFINE_ROWS, AFFINE_U8, LUT_BYTES, LUT_ROWS, BLOCK_I4, BLOCK_U4_OFFSET, BLOCK_I8,
               BLOCK_I8_ROW, BLOCK_ODD, LUT_SMALL, HALF_BY_FLOAT, DENSE, KINDS } kind;
static const char *const names[KINDS] = { "int8, one scale", "int8, a scale per row", "uint8 with zero points", "palette as bytes", "palette per group of rows", "int4 blocks",
                                          "uint4 blocks with offsets", "int8 blocks", "int8 blocks of a row", "blocks of 24", "2-bit palette", "fp16 by fp32", "dense" };
static bool stays(kind k) { return k < BLOCK_ODD || k == HALF_BY_FLOAT; }

typedef struct {
    graph *g;
    double *w; /* [m, k] */
} subject;

static void *must(size_t n)
{
    void *p = calloc(n, 1);
    assert_non_null(p);
    return p;
}

static val make_const(graph *g, const char *name, dtype dt, int rank, const int64_t *d, const double *x)
{
    ttype t = { .dt = dt, .sh = { .rank = rank } };
    for (int i = 0; i < rank; i++) t.sh.d[i] = d[i];
    static int count;
    char unique[32];
    snprintf(unique, sizeof unique, "%s%d", name, count++);
    return graph_const_f64(g, unique, t, x);
}

/* W [m, k, 1, 1] in the given form; dt: what it is reconstructed as. */
static val make_weight(rng *r, graph *g, kind f, int64_t m, int64_t k, dtype dt, double *w)
{
    size_t n = (size_t)(m * k);
    double *q = must(n * sizeof *q), *s = must(n * sizeof *s), *z = must(n * sizeof *z);
    int64_t block = f == BLOCK_I8_ROW ? k : f == BLOCK_ODD ? 24 : f == BLOCK_I8 ? 16 : 32, blocks = k / block;
    val v = NO_VAL;
    const int64_t dims[] = { m, k, 1, 1 };
    if (f == HALF_BY_FLOAT || f == DENSE) {
        for (size_t i = 0; i < n; i++) w[i] = q[i] = f16_to_f64(f16_from_f64(rng_normal(r)));
        v = make_const(g, "w", f == DENSE ? dt : DT_F16, 4, dims, q);
    } else if (f <= AFFINE_U8) {
        bool u8 = f == AFFINE_U8;
        for (int64_t i = 0; i < m; i++)
            s[i] = f16_to_f64(f16_from_f64(rng_range(r, 0.01, 0.1))), z[i] = u8 ? (double)rng_below(r, 256) : 0;
        for (size_t i = 0; i < n; i++) {
            size_t row = f == AFFINE_ONE ? 0 : i / (size_t)k;
            q[i] = (double)rng_below(r, 256) - (u8 ? 0 : 128);
            w[i] = (q[i] - z[row]) * s[row];
        }
        int rank = f == AFFINE_ONE ? 0 : 1;
        v = GA(g, CX_AFFINE,
               VALS(make_const(g, "q", u8 ? DT_U8 : DT_I8, 4, dims, q), make_const(g, "s", dt, rank, &m, s),
                    make_const(g, "z", u8 ? DT_U8 : DT_I8, rank, &m, z)),
               AT_I(AXIS, 0));
    } else if (f == LUT_BYTES || f == LUT_ROWS || f == LUT_SMALL) {
        int64_t entries = f == LUT_SMALL ? 4 : 16, groups = f == LUT_ROWS ? m / 2 : 1;
        for (int64_t i = 0; i < groups * entries; i++) s[i] = f16_to_f64(f16_from_f64(rng_normal(r)));
        for (size_t i = 0; i < n; i++)
            q[i] = (double)rng_below(r, (uint64_t)entries),
            w[i] = s[(int64_t)i / k / (m / groups) * entries + (int64_t)q[i]];
        const int64_t lut[] = { groups, 1, 1, 1, entries, 1 };
        if (f == LUT_BYTES) {
            for (size_t i = 0; i < n / 2; i++) z[i] = q[2 * i] + 16 * q[2 * i + 1];
            int64_t bytes = (int64_t)n / 2;
            v = GA(g, CX_LUT, VALS(make_const(g, "q", DT_U8, 1, &bytes, z), make_const(g, "s", dt, 1, &entries, s)),
                   AT_IS(SHAPE, m, k, 1, 1));
        } else
            v = G(g, CX_LUT, make_const(g, "q", f == LUT_SMALL ? DT_U2 : DT_U4, 4, dims, q),
                  make_const(g, "s", dt, 6, lut, s));
    } else {
        bool i8 = f == BLOCK_I8 || f == BLOCK_I8_ROW, offset = f == BLOCK_U4_OFFSET;
        dtype qt = i8 ? DT_I8 : offset ? DT_U4 : DT_I4;
        for (int64_t i = 0; i < m * blocks; i++)
            s[i] = f16_to_f64(f16_from_f64(rng_range(r, 0.01, 0.1))), z[i] = offset ? (double)rng_below(r, 16) : 0;
        for (size_t i = 0; i < n; i++) {
            size_t b = i / (size_t)block;
            q[i] = (double)rng_below(r, i8 ? 256 : 16) - (i8 ? 128 : offset ? 0 : 8);
            w[i] = (q[i] - z[b]) * s[b];
        }
        const int64_t sd[] = { m, blocks, 1, 1 };
        val qv = make_const(g, "q", qt, 4, dims, q), sv = make_const(g, "s", dt, 4, sd, s);
        v = offset ? G(g, CX_BLOCK, qv, sv, make_const(g, "z", qt, 4, sd, z)) : G(g, CX_BLOCK, qv, sv);
    }
    free(q), free(s), free(z);
    return v;
}

static void run_one(const program *p, const image_options *o, const void *x, void *y, uint64_t *bytes, bool again)
{
    diag d = { 0 };
    image *im;
    assert_ok(image_load(&im, p, NULL, o, &d), d);
    uint64_t sum = image_digest(im);
    if (again) assert_ok(image_reload(im, NULL, &d), d);
    assert_true(image_digest(im) == sum);
    assert_ok(image_run(im, &x, &y, &d), d);
    *bytes = image_bytes(im);
    image_free(im);
}

static void each_form(void **state)
{
    (void)state;
    rng r = { test_seed("mac_vec") };
    diag d = { 0 };
    pool *two;
    assert_ok(pool_make(&two, 2, &d), d);
    for (kind f = 0; f < KINDS; f++)
        for (int c = 0; c < 6; c++) {
            int64_t m = 2 * (1 + (int64_t)rng_below(&r, 40)), k = 96 * (1 + (int64_t)rng_below(&r, 4)),
                    n = c == 5 ? 9 : 1 + (int64_t)rng_below(&r, 8);
            if (c == 4) m = 256, k = 1536, n = 1;
            dtype dt = c % 2 ? DT_F16 : DT_F32, xt = f == HALF_BY_FLOAT ? DT_F32 : dt;
            double *w = must((size_t)(m * k) * sizeof *w);
            graph *g = graph_new("few", 0);
            assert_non_null(g);
            val x = graph_input(g, "x", (ttype){ .dt = xt, .sh = SHAPE(1, k, 1, n) });
            val wv = make_weight(&r, g, f, m, k, dt, w);
            if (f == HALF_BY_FLOAT) wv = GA(g, CAST, VALS(wv), AT_S(DTYPE, "fp32"));
            val y = G(g, CONV, x, wv);
            if (c % 3 == 0)
                y = G(g, RELU,
                      G(g, ADD, y, graph_fill_const(g, "b", (ttype){ .dt = xt, .sh = SHAPE(1, m, 1, 1) }, 0.5)));
            graph_output(g, "y", y);
            assert_ok(graph_finish(g, &d), d);
            program *p;
            assert_ok(codegen_program(g, &(codegen_options){ .level = 1 }, &p, &d), d);
            size_t xn = 0, yn = 0;
            assert_true(dtype_bytes(xt, k * n, &xn) && dtype_bytes(xt, m * n, &yn));
            void *xm = must(xn), *fast = must(yn), *again = must(yn), *ref = must(yn);
            for (int64_t i = 0; i < k * n; i++) dtype_store(xt, xm, i, rng_normal(&r));
            uint64_t bytes, unused;
            run_one(p, &(image_options){ 0 }, xm, fast, &bytes, false);
            run_one(p, &(image_options){ .pool = two }, xm, again, &unused, true);
            run_one(p, &(image_options){ .reference = true }, xm, ref, &unused, false);
            if (memcmp(fast, again, yn)) fail_msg("%s: another thread or a reload changes bits", names[f]);
            for (int64_t i = 0; i < m; i++)
                for (int64_t j = 0; j < n; j++) {
                    double want = 0, mag = 0;
                    for (int64_t a = 0; a < k; a++) {
                        double t = w[i * k + a] * dtype_load(xt, xm, a * n + j);
                        want += t, mag += fabs(t);
                    }
                    if (c % 3 == 0) want = fmax(want + 0.5, 0), mag += 0.5;
                    double most = mag * ((double)(k + 14) * 0x1p-24 + (dt == DT_F16 ? 0x1p-11 : 0)) +
                                  (xt == DT_F16 ? fabs(want) * 0x1p-10 + 1e-6 : fabs(want) * 0x1p-23);
                    double a = dtype_load(xt, fast, i * n + j), b = dtype_load(xt, ref, i * n + j);
                    if (!(fabs(a - want) <= most))
                        fail_msg("%s %dx%dx%d at (%d, %d): %.9g, wanted %.9g within %g", names[f], (int)m, (int)n,
                                 (int)k, (int)i, (int)j, a, want, most);
                    if (!(fabs(b - want) <= most))
                        fail_msg("%s: the reference says %.9g, wanted %.9g within %g", names[f], b, want, most);
                }
            if (c == 4 && stays(f) && f != HALF_BY_FLOAT && bytes > (uint64_t)(m * k))
                fail_msg("%s: an image of %d bytes holds more than its %d weights", names[f], (int)bytes, (int)(m * k));
            if (c == 4 && !stays(f) && bytes < (uint64_t)(m * k)) fail_msg("%s: expected to be expanded", names[f]);
            free(xm), free(fast), free(again), free(ref), free(w);
            program_free(p);
            graph_free(g);
        }
    pool_free(two);
}

/* A weight that lies [k, m], read sideways, is no matrix of rows: few columns multiply by it all the same, in every
 * form; side by side with one that lies [m, k]. Square, so that nothing but the place of an element tells. */
static void sideways(void **state)
{
    (void)state;
    enum { SIDE = 32, N = 3, FORMS = 7 };
    static const char *const form_names[FORMS] = { "fp16 by fp32", "bf16 by bf16", "int8, one scale", "int8, scales",
                                                   "palette", "int4 blocks", "int8, scales of columns" };
    rng r = { test_seed("sideways") };
    diag d = { 0 };
    for (int f = 0; f < FORMS; f++)
        for (int across = 0; across < 2; across++) {
            const dtype xt = f == 1 ? DT_BF16 : DT_F32;
            const int64_t dims[] = { SIDE, SIDE }, side = SIDE, scales[] = { SIDE, 1 }, table[] = { 1, 1, 16, 1 };
            double q[SIDE * SIDE], w[SIDE * SIDE], s[SIDE], z[SIDE] = { 0 };
            graph *g = graph_new("sideways", 0);
            assert_non_null(g);
            val x = graph_input(g, "x", (ttype){ .dt = xt, .sh = SHAPE(N, SIDE) }), wv;
            for (int i = 0; i < SIDE; i++) s[i] = f16_to_f64(f16_from_f64(rng_range(&r, 0.01, 0.1)));
            for (int i = 0; i < SIDE * SIDE; i++) {
                const bool byte = f < 4 || f == 6;
                const double whole = (double)rng_below(&r, byte ? 256 : 16) - (byte ? 128 : f == 4 ? 0 : 8);
                q[i] = f < 2 ? whole / 64 : whole;
                w[i] = f < 2 ? q[i] : f == 4 ? s[(int)whole] : whole * s[f == 2 ? 0 : f == 6 ? i % SIDE : i / SIDE];
            }
            if (f < 2) wv = make_const(g, "w", f ? DT_BF16 : DT_F16, 2, dims, q);
            else if (f < 4 || f == 6)
                wv = GA(g, CX_AFFINE,
                        VALS(make_const(g, "q", DT_I8, 2, dims, q), make_const(g, "s", DT_F32, f > 2, &side, s),
                             make_const(g, "z", DT_I8, f > 2, &side, z)),
                        AT_I(AXIS, f == 6));
            else if (f == 4)
                wv = G(g, CX_LUT, make_const(g, "q", DT_U4, 2, dims, q), make_const(g, "s", DT_F32, 4, table, s));
            else wv = G(g, CX_BLOCK, make_const(g, "q", DT_I4, 2, dims, q), make_const(g, "s", DT_F32, 2, scales, s));
            if (!f) wv = GA(g, CAST, VALS(wv), AT_S(DTYPE, "fp32"));
            graph_output(g, "y", GA(g, MATMUL, VALS(x, wv), AT_B(TRANSPOSE_Y, !across)));
            assert_ok(graph_finish(g, &d), d);
            program *p;
            assert_ok(codegen_program(g, &(codegen_options){ .level = 1 }, &p, &d), d);
            unsigned char xm[N * SIDE * 4], y[N * SIDE * 4];
            uint64_t bytes;
            for (int i = 0; i < N * SIDE; i++) dtype_store(xt, xm, i, (double)rng_below(&r, 17) / 8 - 1);
            for (int again = 0; again < 2; again++) {
                run_one(p, &(image_options){ 0 }, xm, y, &bytes, again);
                for (int i = 0; i < N; i++)
                    for (int j = 0; j < SIDE; j++) {
                        double want = 0, mag = 0;
                        for (int a = 0; a < SIDE; a++) {
                            double t = dtype_load(xt, xm, i * SIDE + a) * w[across ? a * SIDE + j : j * SIDE + a];
                            want += t, mag += fabs(w[across ? a * SIDE + j : j * SIDE + a]);
                        }
                        double got = dtype_load(xt, y, i * SIDE + j); /* gemv.h; |x| is up to 1 */
                        if (!(fabs(got - want) <= mag * (xt == DT_BF16 ? 0x1p-7 : 0x1p-14)))
                            fail_msg("%s, %s, at (%d, %d): %.9g, wanted %.9g", form_names[f],
                                     across ? "[k, m]" : "[m, k]", i, j, got, want);
                    }
            }
            program_free(p);
            graph_free(g);
        }
}

/* Scales, offsets and palettes of any boxes of the weight, those that a kernel reads as they lie and those it
 * cannot: fewer rows of them than of the weight, blocks that are too short, offsets of other blocks than the scales. */
static void boxes(void **state)
{
    (void)state;
    enum { M = 12, LONG = 64, N = 2, MOST = M * LONG };
    static const struct {
        dtype q; /* DT_U4 without scales: a palette */
        int64_t k, scales[2], offsets[2];
    } rows[] = {
        { DT_I4, 64, { M, 2 }, { 0 } },     { DT_I4, 64, { 1, 2 }, { 0 } },     { DT_I4, 64, { M / 2, 2 }, { 0 } },
        { DT_I4, 64, { M, 1 }, { 0 } },     { DT_I4, 64, { 1, 1 }, { 0 } },     { DT_I4, 64, { M, 32 }, { 0 } },
        { DT_I8, 64, { M, 1 }, { 0 } },     { DT_I8, 64, { 1, 1 }, { 0 } },     { DT_I8, 64, { M / 3, 4 }, { 0 } },
        { DT_I8, 64, { M, 4 }, { M, 4 } },  { DT_I8, 64, { M, 1 }, { M, 1 } },  { DT_I4, 64, { M, 2 }, { M, 2 } },
        { DT_U4, 64, { 0 }, { 1, 1 } },     { DT_U4, 64, { 0 }, { M / 2, 1 } }, { DT_U4, 64, { 0 }, { 1, 2 } },
        { DT_U4, 64, { 0 }, { M / 2, 4 } }, { DT_U4, 20, { 0 }, { 1, 1 } },     { DT_I4, 20, { M, 1 }, { 0 } },
    };
    rng r = { test_seed("boxes") };
    diag d = { 0 };
    for (size_t i = 0; i < COUNT(rows); i++) {
        const int64_t K = rows[i].k, dims[] = { M, K }, *sd = rows[i].scales, *zd = rows[i].offsets, lut[] = { zd[0], zd[1], 16, 1 };
        const bool palette = !sd[0], shifts = !palette && zd[0];
        static double q[MOST], s[MOST], z[MOST], w[MOST];
        const int64_t low = rows[i].q == DT_I8 ? -128 : rows[i].q == DT_I4 ? -8 : 0, most = low ? -2 * low : 16;
        for (int k = 0; k < MOST; k++)
            s[k] = palette ? (double)(float)rng_normal(&r) : f16_to_f64(f16_from_f64(rng_range(&r, 0.01, 0.1))),
            z[k] = (double)((int64_t)rng_below(&r, (uint64_t)most) + low),
            q[k] = (double)((int64_t)rng_below(&r, (uint64_t)most) + low);
        for (int64_t k = 0; k < M * K; k++) {
            const int64_t y = k / K, x = k % K, in_z = zd[0] ? y * zd[0] / M * zd[1] + x * zd[1] / K : 0,
                          in_s = palette ? 0 : y * sd[0] / M * sd[1] + x * sd[1] / K;
            w[k] = palette ? s[in_z * 16 + (int64_t)q[k]] : (q[k] - (shifts ? z[in_z] : 0)) * s[in_s];
        }
        graph *g = graph_new("boxes", 0);
        assert_non_null(g);
        val x = graph_input(g, "x", (ttype){ .dt = DT_F32, .sh = SHAPE(N, K) }), wv,
            qv = make_const(g, "q", rows[i].q, 2, dims, q);
        if (palette) wv = G(g, CX_LUT, qv, make_const(g, "s", DT_F32, 4, lut, s));
        else if (shifts)
            wv = G(g, CX_BLOCK, qv, make_const(g, "s", DT_F32, 2, sd, s), make_const(g, "z", rows[i].q, 2, zd, z));
        else wv = G(g, CX_BLOCK, qv, make_const(g, "s", DT_F32, 2, sd, s));
        graph_output(g, "y", GA(g, MATMUL, VALS(x, wv), AT_B(TRANSPOSE_Y, true)));
        assert_ok(graph_finish(g, &d), d);
        program *p;
        assert_ok(codegen_program(g, &(codegen_options){ .level = 1 }, &p, &d), d);
        float xm[N * LONG], y[N * M];
        uint64_t bytes;
        for (int64_t k = 0; k < N * K; k++) xm[k] = (float)rng_below(&r, 17) / 8 - 1;
        run_one(p, &(image_options){ 0 }, xm, y, &bytes, i % 2);
        for (int row = 0; row < N; row++)
            for (int j = 0; j < M; j++) {
                double want = 0, mag = 0;
                for (int64_t a = 0; a < K; a++)
                    want += (double)xm[row * K + a] * w[j * K + a], mag += fabs(w[j * K + a]) + (shifts ? 8 : 0);
                if (!(fabs((double)y[row * M + j] - want) <= mag * 0x1p-14)) /* gemv.h; |x| is up to 1 */
                    fail_msg("row %zu at (%d, %d): %.9g, wanted %.9g", i, row, j, (double)y[row * M + j], want);
            }
        program_free(p);
        graph_free(g);
    }
}

/* Zero points that are all zero take no part, whatever x is: an infinity stays one. */
static void no_shift(void **state)
{
    (void)state;
    enum { M = 4, K = 64 };
    diag d = { 0 };
    for (int blocks = 0; blocks < 2; blocks++) {
        const int64_t dims[] = { M, K }, rows = M, boxes_of[] = { M, 2 };
        double q[M * K], s[M * 2], z[M * 2] = { 0 };
        for (int i = 0; i < M * K; i++) q[i] = i / K % 2 ? -3 : 2;
        for (int i = 0; i < M * 2; i++) s[i] = 0.5;
        graph *g = graph_new("no shift", 0);
        assert_non_null(g);
        val x = graph_input(g, "x", (ttype){ .dt = DT_F32, .sh = SHAPE(1, K) }),
            qv = make_const(g, "q", blocks ? DT_I4 : DT_I8, 2, dims, q),
            wv = blocks ? G(g, CX_BLOCK, qv, make_const(g, "s", DT_F32, 2, boxes_of, s),
                            make_const(g, "z", DT_I4, 2, boxes_of, z))
                        : GA(g, CX_AFFINE,
                             VALS(qv, make_const(g, "s", DT_F32, 1, &rows, s), make_const(g, "z", DT_I8, 1, &rows, z)),
                             AT_I(AXIS, 0));
        graph_output(g, "y", GA(g, MATMUL, VALS(x, wv), AT_B(TRANSPOSE_Y, true)));
        assert_ok(graph_finish(g, &d), d);
        program *p;
        assert_ok(codegen_program(g, &(codegen_options){ .level = 1 }, &p, &d), d);
        float xm[K], y[M];
        uint64_t bytes;
        for (int k = 0; k < K; k++) xm[k] = k == 5 ? INFINITY : 1;
        for (int again = 0; again < 2; again++) {
            run_one(p, &(image_options){ 0 }, xm, y, &bytes, again);
            for (int i = 0; i < M; i++)
                if (!isinf(y[i]) || (y[i] > 0) == i % 2) fail_msg("form %d, row %d is %g", blocks, i, (double)y[i]);
        }
        program_free(p);
        graph_free(g);
    }
}

/* Expanded for many columns, element by element or many at a time: the same bits, in images of one thread and of
 * two. */
static void reconstructed(void **state)
{
    (void)state;
    rng r = { test_seed("reconstructed") };
    diag d = { 0 };
    pool *two;
    assert_ok(pool_make(&two, 2, &d), d);
    for (kind f = 0; f < KINDS; f++)
        for (int c = 0; c < 6; c++) {
            const int64_t m = c == 5 ? 256 : 2 * (1 + (int64_t)rng_below(&r, 40)),
                          k = c == 5 ? 1536 : 96 * (1 + (int64_t)rng_below(&r, 4)), n = 9;
            const dtype dt = c % 3 == 0 ? DT_F32 : c % 3 == 1 ? DT_F16 : DT_BF16;
            double *w = must((size_t)(m * k) * sizeof *w);
            graph *g = graph_new("many", 0);
            assert_non_null(g);
            val x = graph_input(g, "x", (ttype){ .dt = f == HALF_BY_FLOAT ? DT_F16 : dt, .sh = SHAPE(1, k, 1, n) });
            graph_output(g, "y", G(g, CONV, x, make_weight(&r, g, f, m, k, dt, w)));
            assert_ok(graph_finish(g, &d), d);
            program *p;
            assert_ok(codegen_program(g, &(codegen_options){ .level = 1 }, &p, &d), d);
            uint64_t sum[3];
            const image_options how[3] = { { .reference = true }, { .pool = NULL }, { .pool = two } };
            for (int i = 0; i < 3; i++) {
                image *im;
                assert_ok(image_load(&im, p, NULL, &how[i], &d), d);
                sum[i] = image_digest(im);
                image_free(im);
            }
            if (sum[1] != sum[0] || sum[2] != sum[0])
                fail_msg("%s as %s, %dx%d: other bits than one by one", names[f], dtype_name(dt), (int)m, (int)k);
            free(w);
            program_free(p);
            graph_free(g);
        }
    pool_free(two);
}

/* fast_math 2: weights of int8 with scales by row times columns quantised as they come: within max|x| / 254 of the
 * sum of |w|. With zero points it is bf16's business: both operands rounded, 2^-8 of the magnitudes. */
static void int8_products(void **state)
{
    (void)state;
    static const kind forms[] = { AFFINE_ONE, AFFINE_ROWS, BLOCK_I8_ROW, AFFINE_U8 };
    rng r = { test_seed("int8 products") };
    diag d = { 0 };
    pool *two;
    uint32_t isa;
    assert_ok(isa_have(&isa, &d), d);
    assert_ok(pool_make(&two, 2, &d), d);
    for (size_t f = 0; f < COUNT(forms); f++)
        for (int c = 0; c < 4; c++) {
            int64_t m = c == 3 ? 256 : 2 * (1 + (int64_t)rng_below(&r, 40)),
                    k = c == 3 ? 1536 : 96 * (1 + (int64_t)rng_below(&r, 4)), n = 9 + (int64_t)rng_below(&r, 40);
            double *w = must((size_t)(m * k) * sizeof *w);
            graph *g = graph_new("int8", 0);
            assert_non_null(g);
            val x = graph_input(g, "x", (ttype){ .dt = DT_F32, .sh = SHAPE(1, k, 1, n) });
            val y = G(g, CONV, x, make_weight(&r, g, forms[f], m, k, DT_F32, w));
            ttype row = { .dt = DT_F32, .sh = SHAPE(1, m, 1, 1) };
            if (c % 2)
                y = G(g, ADD, G(g, MUL, y, graph_fill_const(g, "gain", row, 0.5)),
                      graph_fill_const(g, "bias", row, 0.25));
            graph_output(g, "y", y);
            assert_ok(graph_finish(g, &d), d);
            program *p;
            assert_ok(codegen_program(g, &(codegen_options){ .level = 1 }, &p, &d), d);
            float *xm = must((size_t)(k * n) * 4), *fast = must((size_t)(m * n) * 4),
                  *again = must((size_t)(m * n) * 4);
            for (int64_t i = 0; i < k * n; i++) xm[i] = (float)rng_normal(&r);
            uint64_t bytes, unused;
            run_one(p, &(image_options){ .fast_math = FAST_INT8 }, xm, fast, &bytes, false);
            run_one(p, &(image_options){ .fast_math = FAST_INT8, .pool = two }, xm, again, &unused, true);
            if (memcmp(fast, again, (size_t)(m * n) * 4))
                fail_msg("%s: another thread or a reload changes bits", names[forms[f]]);
            for (int64_t i = 0; i < m; i++)
                for (int64_t j = 0; j < n; j++) {
                    double want = 0, mag = 0, sum = 0, most = 0;
                    for (int64_t a = 0; a < k; a++) {
                        double t = (double)xm[a * n + j];
                        want += w[i * k + a] * t, mag += fabs(w[i * k + a] * t), sum += fabs(w[i * k + a]),
                            most = fmax(most, fabs(t));
                    }
                    double bad = forms[f] == AFFINE_U8 ? mag * 0x1p-7 : most / 254 * sum * 1.00001 + mag * 0x1p-20;
                    if (c % 2) want = want * 0.5 + 0.25, bad *= 0.5;
                    double got = (double)fast[i * n + j];
                    if (!(fabs(got - want) <= bad + fabs(want) * 0x1p-22))
                        fail_msg("%s at (%d, %d): %.9g, wanted %.9g within %g", names[forms[f]], (int)i, (int)j, got,
                                 want, bad);
                }
            size_t packed; /* two bytes a weight where no kernel multiplies int8 as it is */
            assert_true(gemm_pack_a_bytes(gemm_pick(GEMM_I8, isa), m, k, &packed));
            if (c == 3 && forms[f] != AFFINE_U8 && bytes > packed + (uint64_t)(m * k) * 2)
                fail_msg("%s: an image of %d bytes for %d weights was expanded", names[forms[f]], (int)bytes,
                         (int)(m * k));
            free(xm), free(fast), free(again), free(w);
            program_free(p);
            graph_free(g);
        }
    pool_free(two);
}

/* Several products of one x are summed together, at most four at a time and only those that want x alike; each has
 * the bits it has alone, also when its chain reads what one of the others made. */
static void together(void **state)
{
    (void)state;
    static const kind all[][6] = {
        { BLOCK_I4, BLOCK_I4, BLOCK_I4, BLOCK_I4, BLOCK_I4, BLOCK_I4 },
        { AFFINE_ROWS, AFFINE_ROWS, AFFINE_U8, BLOCK_I8_ROW, AFFINE_U8, AFFINE_U8 },
        { LUT_BYTES, BLOCK_I4, BLOCK_I4, BLOCK_U4_OFFSET, BLOCK_I8, BLOCK_ODD },
        { DENSE, DENSE, DENSE, DENSE, DENSE, BLOCK_I4 },
    };
    enum { MOST = 6 };
    diag d = { 0 };
    pool *two;
    assert_ok(pool_make(&two, 2, &d), d);
    for (size_t f = 0; f < COUNT(all); f++)
        for (int c = 0; c < 4; c++) {
            rng r = { test_seed("together") + f * 4 + (uint64_t)c };
            const int64_t k = c == 3 ? 768 : 96 * (1 + (int64_t)rng_below(&r, 4)), n = c == 2 ? 3 : 1;
            const dtype dt = c % 2 ? DT_F16 : DT_F32;
            const uint64_t seed = r.s;
            int64_t m[MOST];
            for (int i = 0; i < MOST; i++) m[i] = i == 1 ? m[0] : 2 * (1 + (int64_t)rng_below(&r, c == 3 ? 200 : 20));
            size_t xn, yn[MOST];
            assert_true(dtype_bytes(dt, k * n, &xn));
            void *x = must(xn), *joint[2][MOST], *alone[MOST];
            for (int64_t i = 0; i < k * n; i++) dtype_store(dt, x, i, rng_normal(&r));
            for (int i = 0; i < MOST; i++) {
                assert_true(dtype_bytes(dt, m[i] * n, &yn[i]));
                joint[0][i] = must(yn[i]), joint[1][i] = must(yn[i]), alone[i] = must(yn[i]);
            }
            for (int only = -1; only < MOST; only++) { /* -1: all of them */
                graph *g = graph_new("together", 0);
                assert_non_null(g);
                val in = graph_input(g, "x", (ttype){ .dt = dt, .sh = SHAPE(1, k, 1, n) }), first = NO_VAL;
                for (int i = 0; i < MOST; i++) {
                    if (only >= 0 && i != only && !(only == 1 && i == 0)) continue;
                    rng own = { seed + (uint64_t)i };
                    double *w = must((size_t)(m[i] * k) * sizeof *w);
                    val y = G(g, CONV, in, make_weight(&own, g, all[f][i], m[i], k, dt, w));
                    free(w);
                    if (i == 0) first = y;
                    if (i == 1) y = G(g, MUL, G(g, SILU, first), y);
                    char name[16];
                    snprintf(name, sizeof name, "y%d", i);
                    if (only < 0 || i == only) graph_output(g, name, y);
                }
                assert_ok(graph_finish(g, &d), d);
                program *p;
                assert_ok(codegen_program(g, &(codegen_options){ .level = 1 }, &p, &d), d);
                for (int t = 0; t < 2; t++) {
                    image *im;
                    const void *xs = x;
                    assert_ok(image_load(&im, p, NULL, &(image_options){ .pool = t ? two : NULL }, &d), d);
                    if (t) assert_ok(image_reload(im, NULL, &d), d);
                    assert_ok(image_run(im, &xs, only < 0 ? joint[t] : &alone[only], &d), d);
                    image_free(im);
                }
                program_free(p);
                graph_free(g);
            }
            for (int i = 0; i < MOST; i++) {
                if (memcmp(joint[0][i], alone[i], yn[i]))
                    fail_msg("%s, product %d of %d (case %d): other bits than alone", names[all[f][i]], i, MOST, c);
                if (memcmp(joint[1][i], alone[i], yn[i]))
                    fail_msg("%s, product %d of %d (case %d): other bits on two threads", names[all[f][i]], i, MOST, c);
                free(joint[0][i]), free(joint[1][i]), free(alone[i]);
            }
            free(x);
        }
    pool_free(two);
}

/* Weights that were alike when the program was loaded, and are not after a reload: the bits of one loaded as it is
 * now. */
static void parted(void **state)
{
    (void)state;
    enum { M = 24, K = 96, TWO = 2 };
    for (int changed = 0; changed < TWO; changed++) {
        diag d = { 0 };
        rng r = { test_seed("parted") };
        double w[M * K];
        graph *g = graph_new("parted", 0);
        assert_non_null(g);
        val in = graph_input(g, "x", (ttype){ .dt = DT_F32, .sh = SHAPE(1, K, 1, 1) });
        graph_output(g, "y0", G(g, CONV, in, make_weight(&r, g, AFFINE_U8, M, K, DT_F32, w)));
        graph_output(g, "y1", G(g, CONV, in, make_weight(&r, g, AFFINE_U8, M, K, DT_F32, w)));
        assert_ok(graph_finish(g, &d), d);
        program *p;
        assert_ok(codegen_program(g, &(codegen_options){ .level = 1 }, &p, &d), d);
        assert_int_equal(p->consts.n, TWO);
        float x[K], before[TWO][M], after[TWO][M], want[TWO][M];
        for (int i = 0; i < K; i++) x[i] = (float)rng_normal(&r);
        const void *xs = x;
        unsigned char *zero[TWO];
        for (int i = 0; i < TWO; i++) {
            assert_int_equal(p->consts.at[i].src[2].bytes, M);
            zero[i] = (unsigned char *)(uintptr_t)p->data + p->consts.at[i].src[2].offset;
            memset(zero[i], 0, M);
        }
        image *im, *fresh;
        assert_ok(image_load(&im, p, NULL, &(image_options){ 0 }, &d), d);
        assert_ok(image_run(im, &xs, (void *[]){ before[0], before[1] }, &d), d);
        for (int i = 0; i < M; i++) zero[changed][i] = (unsigned char)(1 + i);
        assert_ok(image_reload(im, NULL, &d), d);
        assert_ok(image_run(im, &xs, (void *[]){ after[0], after[1] }, &d), d);
        assert_ok(image_load(&fresh, p, NULL, &(image_options){ 0 }, &d), d);
        assert_ok(image_run(fresh, &xs, (void *[]){ want[0], want[1] }, &d), d);
        assert_memory_equal(after, want, sizeof after);
        assert_memory_equal(after[1 - changed], before[1 - changed], sizeof *after);
        assert_true(memcmp(after[changed], before[changed], sizeof *after) != 0);
        image_free(im), image_free(fresh);
        program_free(p);
        graph_free(g);
    }
}

/* Scales, shifts and tables that are made of a weight's sources are part of the proof that the weight is in use, as
 * is what is packed of it. */
static void tables_are_proven(void **state)
{
    (void)state;
    /* few columns: scales and shifts, tables (and what was turned), offsets; packed */
    static const int least[KINDS] = { 2, 2, 2, 1, 1, 1, 2, 0, 1, 1, 1, 0, 1 };
    diag d = { 0 };
    for (kind f = 0; f < KINDS; f++)
        for (int many = 0; many < 2; many++) {
            enum { ROWS = 24, DEEP = 192 };
            const int64_t n = many ? 40 : 1;
            rng r = { test_seed("proven") };
            double *w = must((size_t)(ROWS * DEEP) * sizeof *w);
            graph *g = graph_new("proven", 0);
            assert_non_null(g);
            val x = graph_input(g, "x", (ttype){ .dt = DT_F32, .sh = SHAPE(1, DEEP, 1, n) }),
                wv = make_weight(&r, g, f, ROWS, DEEP, DT_F32, w);
            if (f == HALF_BY_FLOAT) wv = GA(g, CAST, VALS(wv), AT_S(DTYPE, "fp32"));
            graph_output(g, "y", G(g, CONV, x, wv));
            assert_ok(graph_finish(g, &d), d);
            program *p;
            image *im;
            assert_ok(codegen_program(g, &(codegen_options){ .level = 1 }, &p, &d), d);
            assert_ok(image_load(&im, p, NULL, &(image_options){ .fast_math = many ? FAST_INT8 : FAST_NONE }, &d), d);
            size_t seen = cgt_spoil_each(im, names[f]),
                   want = many ? f == AFFINE_ONE || f == AFFINE_ROWS || f == BLOCK_I8_ROW ? 2 : 1 : (size_t)least[f];
            if (seen < want)
                fail_msg("%s, %d columns: %zu things are proven, wanted %zu", names[f], (int)n, seen, want);
            image_free(im);
            program_free(p);
            graph_free(g);
            free(w);
        }
}

/* Weights that a loaded program cannot take: it goes on with those it had, bit for bit, and holds no more than
 * before. */
static void taken_back(void **state)
{
    (void)state;
    enum { M = 24, K = 96, MOST = 12 };
    static const struct {
        kind form;
        int n, fast_math, src; /* src: the source that becomes one it cannot take */
        unsigned char bad[4];
    } rows[] = { { AFFINE_ROWS, MOST, FAST_INT8, 2, { 1, 1, 1, 1 } },
                 { LUT_BYTES, 1, FAST_NONE, 1, { 0, 0, 0x80, 0x7f } },
                 { LUT_ROWS, 3, FAST_BF16, 1, { 0, 0, 0xc0, 0x7f } } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        diag d = { 0 };
        rng r = { test_seed("taken back") };
        double w[M * K];
        graph *g = graph_new("back", 0);
        assert_non_null(g);
        val in = graph_input(g, "x", (ttype){ .dt = DT_F32, .sh = SHAPE(1, K, 1, rows[i].n) });
        graph_output(g, "y", G(g, CONV, in, make_weight(&r, g, rows[i].form, M, K, DT_F32, w)));
        assert_ok(graph_finish(g, &d), d);
        program *p;
        assert_ok(codegen_program(g, &(codegen_options){ .level = 1 }, &p, &d), d);
        float x[K * MOST], before[M * MOST], after[M * MOST];
        for (int k = 0; k < K * rows[i].n; k++) x[k] = (float)rng_normal(&r);
        const void *xs = x;
        void *ys[] = { before, after };
        image *im;
        assert_ok(image_load(&im, p, NULL, &(image_options){ .fast_math = rows[i].fast_math }, &d), d);
        assert_ok(image_run(im, &xs, &ys[0], &d), d);
        const uint64_t sum = image_digest(im), bytes = image_bytes(im);
        unsigned char *at = (unsigned char *)(uintptr_t)p->data + p->consts.at[0].src[rows[i].src].offset, kept[4];
        memcpy(kept, at, sizeof kept);
        memcpy(at, rows[i].bad, sizeof kept);
        if (image_reload(im, NULL, &d) != AN_INPUT)
            fail_msg("%s: weights it cannot take were taken", names[rows[i].form]);
        assert_int_equal(image_run(im, &xs, &ys[1], &(diag){ 0 }), AN_INPUT);
        memcpy(at, kept, sizeof kept);
        d = (diag){ 0 };
        assert_ok(image_reload(im, NULL, &d), d);
        assert_ok(image_run(im, &xs, &ys[1], &d), d);
        if (memcmp(before, after, (size_t)(M * rows[i].n) * sizeof *after))
            fail_msg("%s: other bits once its weights are back", names[rows[i].form]);
        if (image_digest(im) != sum) fail_msg("%s: another digest of the same weights", names[rows[i].form]);
        if (image_bytes(im) != bytes)
            fail_msg("%s: %d bytes, %d before", names[rows[i].form], (int)image_bytes(im), (int)bytes);
        image_free(im);
        program_free(p);
        graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(each_form), cmocka_unit_test(sideways), cmocka_unit_test(boxes), cmocka_unit_test(no_shift),         cmocka_unit_test(reconstructed),
                                        cmocka_unit_test(together),          cmocka_unit_test(parted),
                                        cmocka_unit_test(tables_are_proven), cmocka_unit_test(taken_back),
                                        cmocka_unit_test(int8_products) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
