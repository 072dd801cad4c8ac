/* test_tape.c: tapes of vector.h, fp32 and halves, and the update by Adam: the bits of the functions one by one, at odd
 * lengths, and nothing touched beside the results. */
#include "vector_t.h"

/* Each function on a tape gives the bits of its loop, from and to every type, past the caches or not. */
static void tapes(const vec_kernels *v, const vec_kernels *plain)
{
    enum { TILES = 3, MOST_TILE = 256 };
    static const struct {
        dtype t;
        int load, put, past, ask;
    } types[] = { { DT_F32, VA_X_F32, VA_PUT_F32, VA_PAST_F32, VA_ASK_4 },
                  { DT_F16, VA_X_F16, VA_PUT_F16, VA_PAST_F16, VA_ASK_2 },
                  { DT_BF16, VA_X_BF16, VA_PUT_BF16, VA_PAST_BF16, VA_ASK_2 } };
    static _Alignas(VEC_LINE) unsigned char from[4 * TILES * MOST_TILE], to[4 * TILES * MOST_TILE],
        want[4 * TILES * MOST_TILE];
    static float a[TILES * MOST_TILE], b[TILES * MOST_TILE], c[TILES * MOST_TILE], y[TILES * MOST_TILE];
    float p[2] = { 0.75f, 3 };
    int64_t n = TILES * (int64_t)v->tile;
    assert_true(v->tile <= MOST_TILE);
    (void)plain;
    for (int f = 0; f < VF_COUNT; f++)
        for (size_t k = 0; k < COUNT(types); k++) {
            int size = dtype_bits(types[k].t) / 8;
            n = TILES * (int64_t)v->tile - (int64_t)rng_below(&R, (uint32_t)v->tile);
            for (int64_t i = 0; i < n; i++) a[i] = number(), b[i] = number(), c[i] = number();
            v->store(from, types[k].t, a, n), v->load(a, types[k].t, from, n);
            vec_act acts[] = { { .code = types[k].ask, .size = size, .at = from, .z = b },
                               { .code = types[k].load, .size = size, .at = from, .z = b },
                               { .code = f, .size = 4, .z_size = 4, .p = { &p[0], &p[1] }, .at = b, .z = c },
                               { .code = f % 2 ? types[k].put : types[k].past, .size = size, .at = to, .z = b } };
            v->tape(acts, COUNT(acts), 1, n);
            v->fence();
            v->fn[f](y, a, b, c, p, n);
            v->store(want, types[k].t, y, n);
            for (int64_t i = 0; i < n; i++) {
                double got = dtype_load(types[k].t, to, i), exact = dtype_load(types[k].t, want, i);
                if (!same((float)got, (float)exact))
                    fail_msg("%s: %s on a tape gives %.9g, its loop %.9g", v->name, fns[f].name, got, exact);
            }
        }
    static const struct {
        int code;
        vec_fn f;
    } with[] = { { VA_ADD_F16, VF_ADD }, { VA_SUB_F16, VF_SUB }, { VA_MUL_F16, VF_MUL } };
    /* x of one value, with fp16 elements, and with the same ones moved to a slot */
    for (size_t k = 0; k < COUNT(with); k++) {
        float slot[MOST_TILE], three = 3;
        for (int64_t i = 0; i < n; i++) b[i] = number();
        v->store(from, DT_F16, b, n), v->load(b, DT_F16, from, n);
        vec_act acts[] = { { .code = VA_X_ONE, .p = { &three }, .at = from, .z = slot },
                           { .code = with[k].code, .size = 2, .at = from, .z = slot },
                           { .code = VA_MOVE_F16, .size = 2, .at = from, .z = slot },
                           { .code = VF_ADD, .at = slot, .z = slot },
                           { .code = VA_PUT_F32, .size = 4, .at = to, .z = slot } };
        v->tape(acts, COUNT(acts), 1, n);
        v->fill(a, 3, n);
        v->fn[with[k].f](y, a, b, NULL, NULL, n);
        v->fn[VF_ADD](y, y, b, NULL, NULL, n);
        for (int64_t i = 0; i < n; i++) assert_true(same((float)dtype_load(DT_F32, to, i), y[i]));
    }
}

/* Rows of any length, with parameters of their own and an operand that all have in common; nothing is touched beside
 * them. */
static void rows_of(const vec_kernels *v, dtype t, int load, int put, int64_t len)
{
    enum { ROWS = 3, GUARD = 64 };
    const int size = dtype_bits(t) / 8;
    const size_t n = (size_t)(ROWS * len);
    float gain[ROWS] = { 2, -3, 0.5f }, offset = 1, slot[256];
    float *x = malloc(n * sizeof *x), *common = malloc((size_t)len * sizeof *common),
          *line = malloc((size_t)len * sizeof *line);
    unsigned char *from = malloc(n * (size_t)size),
                  *made = aligned_alloc(VEC_LINE, ROUND_UP(n * (size_t)size + GUARD, (size_t)VEC_LINE)),
                  *want = malloc(n * (size_t)size);
    assert_true(x && common && line && from && made && want);
    for (size_t i = 0; i < n; i++) x[i] = number();
    for (int64_t i = 0; i < len; i++) common[i] = number();
    v->store(from, t, x, (int64_t)n), v->load(x, t, from, (int64_t)n);
    memset(made, 0xa5, n * (size_t)size + GUARD);
    vec_act acts[] = { { .code = load, .size = size, .row = len * size, .at = from, .z = slot },
                       { .code = VF_AFFINE, .p = { gain, &offset }, .p_row = { 1, 0 }, .at = slot, .z = slot },
                       { .code = VA_PUT_F32, .at = slot, .z = slot },
                       { .code = VF_MUL, .size = 4, .at = common, .z = slot },
                       { .code = VF_ADD, .at = slot, .z = slot },
                       { .code = put, .size = size, .row = len * size, .at = made, .z = slot } };
    for (size_t k = 0; k < COUNT(acts); k++)
        for (int m = 0; m < 2; m++)
            if (!acts[k].p[m]) acts[k].p[m] = &offset;
    v->tape(acts, COUNT(acts), ROWS, len);
    v->fence();
    for (int r = 0; r < ROWS; r++) {
        const float both[2] = { gain[r], offset };
        float *at = x + r * len;
        v->fn[VF_AFFINE](at, at, NULL, NULL, both, len);
        v->fn[VF_MUL](line, at, common, NULL, NULL, len);
        v->fn[VF_ADD](line, line, at, NULL, NULL, len);
        v->store(want + r * len * size, t, line, len);
    }
    for (int64_t i = 0; i < (int64_t)n; i++)
        if (!same((float)dtype_load(t, made, i), (float)dtype_load(t, want, i)))
            fail_msg("%s: rows of %lld %s: element %lld", v->name, (long long)len, dtype_name(t), (long long)i);
    for (size_t i = 0; i < GUARD; i++) assert_int_equal(made[n * (size_t)size + i], 0xa5);
    free(x), free(common), free(line), free(from), free(made), free(want);
}

static void tape_rows(const vec_kernels *v, const vec_kernels *plain)
{
    (void)plain;
    /* ends of every kind: with and without half a tile, a pair, a vector, a part */
    for (int64_t len = 1; len <= 2 * v->tile + 1; len += len % 16 == 1 ? 6 : 1) {
        rows_of(v, DT_F32, VA_X_F32, VA_PUT_F32, len);
        rows_of(v, DT_F16, VA_X_F16, VA_PUT_F16, len);
        rows_of(v, DT_BF16, VA_X_BF16, VA_PUT_BF16, len);
        if (len % 16 == 0) rows_of(v, DT_F32, VA_X_F32, VA_PAST_F32, len);
        if (len % 32 == 0)
            rows_of(v, DT_F16, VA_X_F16, VA_PAST_F16, len), rows_of(v, DT_BF16, VA_X_BF16, VA_PAST_BF16, len);
    }
}

/* ---- tapes of halves ---- */

static double half_of(double x) { return f16_to_f64(f16_from_f64(x)); }
static void put_half(uint16_t *to, double x) { *to = f16_from_f64(x); }
static double odd_half(void) { return rng_below(&R, 2) ? half_of((double)number()) : f16_to_f64((uint16_t)rng_next(&R)); }

/* Functions in fp16 give the bits of fp32, rounded; sums of a product are rounded once. Nothing is touched beside
 * the result. */
static void half_function(const vec_kernels *v, vec_fn f, bool sum, int64_t n)
{
    enum { MOST_HALVES = 600, GUARD = 40 };
    static uint16_t x[MOST_HALVES], y[MOST_HALVES], z[MOST_HALVES], want[MOST_HALVES];
    static _Alignas(VEC_LINE) uint16_t to[MOST_HALVES + GUARD];
    static float a[MOST_HALVES], b[MOST_HALVES], c[MOST_HALVES], r[MOST_HALVES];
    const float p[2] = { rng_below(&R, 2) ? 0.75f : (float)half_of(rng_range(&R, -4, 4)), 3 };
    for (int64_t i = 0; i < n; i++) {
        put_half(&x[i], odd_half()), put_half(&y[i], odd_half()), put_half(&z[i], odd_half());
        if (rng_below(&R, 4) == 0) y[i] = x[i];
    }
    for (int64_t i = 0; i < n + GUARD; i++) to[i] = 0xa5a5;
    v->load(a, DT_F16, x, n), v->load(b, DT_F16, y, n), v->load(c, DT_F16, z, n);
    vec_act acts[] = { { .code = VA_ASK_2, .size = 2, .at = x, .z = x },
                       { .code = VA_ASK_2, .size = 2, .at = y, .z = x },
                       { .code = VA_X_F16, .size = 2, .at = x, .z = x },
                       { .code = (int)f, .size = 2, .z_size = 2, .p = { &p[0], &p[1] }, .at = y, .z = z },
                       { .code = n % 2 ? VA_PUT_F16 : VA_PAST_F16, .size = 2, .at = to, .z = x } };
    const int asks = (int)(n % 3); /* for both, one, none */
    v->halves(acts + asks, (int)COUNT(acts) - asks, 1, n);
    v->fence();
    v->fn[f](r, a, b, c, p, n);
    v->store(want, DT_F16, r, n);
    for (int64_t i = 0; i < n; i++) {
        const double A = (double)a[i], B = (double)b[i], C = (double)c[i], P = (double)p[0], Q = (double)p[1];
        if (sum) put_half(&want[i], f == VF_AFFINE ? fma(P, A, Q) : f == VF_MUL_ADD ? fma(A, B, C) : fma(P, B, A));
        const double got = f16_to_f64(to[i]), exact = f16_to_f64(want[i]);
        if (!same((float)got, (float)exact))
            fail_msg("%s: %s of halves (%.9g, %.9g, %.9g), parameters %.9g and %.9g, is %.9g, wanted %.9g", v->name,
                     fns[f].name, A, B, C, P, Q, got, exact);
    }
    for (int64_t i = n; i < n + GUARD; i++) assert_int_equal(to[i], 0xa5a5);
}

/* Rows with parameters of their own, an operand that all have in common, and a slot; a result on the way and the last
 * one past the caches where their rows are whole lines. */
static void half_rows(const vec_kernels *v, int64_t len)
{
    enum { ROWS = 3, LONGEST = 600, GUARD = 40 };
    static uint16_t x[ROWS * LONGEST], common[LONGEST], slot[256];
    static _Alignas(VEC_LINE) uint16_t to[ROWS * LONGEST + GUARD], way[ROWS * LONGEST + GUARD];
    const int put = len * 2 % VEC_LINE ? VA_PUT_F16 : VA_PAST_F16;
    const float gain[ROWS] = { 2, -3, 0.5f }, offset = 1;
    assert_true(v->halves_tile <= (int)COUNT(slot) && len <= LONGEST);
    for (int64_t i = 0; i < ROWS * len; i++) put_half(&x[i], (double)number());
    for (int64_t i = 0; i < len; i++) put_half(&common[i], (double)number());
    for (int64_t i = 0; i < ROWS * len + GUARD; i++) to[i] = way[i] = 0xa5a5;
    vec_act acts[] = { { .code = VA_ASK_2, .size = 2, .row = len * 2, .at = x, .z = slot },
                       { .code = VA_X_F16, .size = 2, .row = len * 2, .at = x, .z = slot },
                       { .code = VF_AFFINE, .p = { gain, &offset }, .p_row = { 1, 0 }, .at = slot, .z = slot },
                       { .code = VA_PUT_F16, .at = slot, .z = slot },
                       { .code = put, .size = 2, .row = len * 2, .at = way, .z = slot },
                       { .code = VF_MUL, .size = 2, .at = common, .z = slot },
                       { .code = VF_ADD, .at = slot, .z = slot },
                       { .code = put, .size = 2, .row = len * 2, .at = to, .z = slot } };
    for (size_t k = 0; k < COUNT(acts); k++)
        for (int m = 0; m < 2; m++)
            if (!acts[k].p[m]) acts[k].p[m] = &offset;
    v->halves(acts, COUNT(acts), ROWS, len);
    v->fence();
    for (int64_t i = 0; i < ROWS * len; i++) {
        const double scaled = half_of(fma((double)gain[i / len], f16_to_f64(x[i]), (double)offset)),
                     want = half_of(half_of(scaled * f16_to_f64(common[i % len])) + scaled);
        if (!same((float)f16_to_f64(to[i]), (float)want) || !same((float)f16_to_f64(way[i]), (float)scaled))
            fail_msg("%s: rows of %lld halves: element %lld", v->name, (long long)len, (long long)i);
    }
    for (int64_t i = ROWS * len; i < ROWS * len + GUARD; i++) assert_true(to[i] == 0xa5a5 && way[i] == 0xa5a5);
    /* a number in all places, less the elements in common */
    vec_act from_one[] = { { .code = VA_X_ONE, .p = { &gain[1], &offset }, .at = slot, .z = slot },
                           { .code = VF_SUB, .p = { &offset, &offset }, .size = 2, .at = common, .z = slot },
                           { .code = VA_PAST_F16, .p = { &offset, &offset }, .size = 2, .at = to, .z = slot } };
    v->halves(from_one, COUNT(from_one), 1, len);
    v->fence();
    for (int64_t i = 0; i < len; i++)
        assert_true(same((float)f16_to_f64(to[i]), (float)half_of((double)gain[1] - f16_to_f64(common[i]))));
}

static void halves(const vec_kernels *v, const vec_kernels *plain)
{
    (void)plain;
    if (!v->halves) return;
    for (int64_t n = 1; n <= 2 * v->halves_tile + 80; n += n > 300 ? 17 : n % 16 == 1 ? 3 : 1) {
#define HALF_FN(id, x, others, made, value) half_function(v, VF_##id, false, n);
#define HALF_SUM(id, x, others, made, value) half_function(v, VF_##id, true, n);
#include "kernel/half.def"
#undef HALF_FN
#undef HALF_SUM
        half_rows(v, n);
    }
}

/* An update by Adam gives the bits of its operations one by one, over its operands or beside them, past the caches or
 * not; nothing is touched beside them. */
static void adam_of(const vec_kernels *v, int form, int64_t n)
{
    enum { N = 300, GUARD = 20, ROOM = N + GUARD /* whole lines */, W = 0, M, V, G, STREAMS, T = STREAMS, U };
    static _Alignas(VEC_LINE) float in[STREAMS][ROOM], out[STREAMS][ROOM], want[U + 1][ROOM];
    static _Alignas(VEC_LINE) uint16_t copy[ROOM], copy_want[ROOM];
    const bool beside = form & 1, clips = form & 2, by_size = form & 4, past = form & 8;
    const int decays = form >> 4 & 3, type = form >> 6 & 3; /* none, one way, the other */
    const float p[] = { 0.1f, 0.9f, 0.001f, 0.999f, 1e-2f, 0.25f, 0.01f };
    vec_adam a = { .g = in[G], .m = in[M], .v = in[V], .w = in[W], .copy = type ? copy : NULL,
                   .type = type == 2 ? DT_BF16 : DT_F16, .take_1 = p[0], .keep_1 = p[1], .take_2 = p[2],
                   .keep_2 = p[3], .rate = p[4], .clip = p[5], .decay = p[6], .eps = 1e-8f, .clips = clips,
                   .sizes = by_size, .decays = decays == 1, .shrinks = decays == 2, .past_m = past, .past_v = past,
                   .past_w = past, .past_copy = past, .asks = form & 1 };
    float(*to)[ROOM] = beside ? out : in;
    a.to_w = to[W], a.to_m = to[M], a.to_v = to[V];
    for (int64_t i = 0; i < ROOM; i++) {
        in[W][i] = number(), in[M][i] = number(), in[G][i] = i % 5 ? number() : 0;
        in[V][i] = i % 7 ? by_size ? number() : fabsf(number()) : 0;
        copy[i] = copy_want[i] = 0xa5a5;
        for (int s = 0; s < STREAMS; s++) want[s][i] = in[s][i], out[s][i] = in[s][i];
    }
    if (clips) v->fn[VF_MUL_P](want[G], want[G], NULL, NULL, &p[5], n);
    v->fn[VF_MUL_P](want[T], want[G], NULL, NULL, &p[0], n);
    v->fn[VF_ADD_MUL_P](want[M], want[T], want[M], NULL, &p[1], n);
    if (by_size) v->fn[VF_ABS](want[V], want[V], NULL, NULL, NULL, n);
    v->fn[VF_SQUARE](want[T], want[G], NULL, NULL, NULL, n);
    v->fn[VF_MUL_P](want[T], want[T], NULL, NULL, &p[2], n);
    v->fn[VF_ADD_MUL_P](want[V], want[T], want[V], NULL, &p[3], n);
    v->fill(want[U], 1e-8f, n);
    v->fn[VF_ROOT_DIV](want[T], want[M], want[V], want[U], NULL, n);
    v->fn[VF_MUL_P](want[T], want[T], NULL, NULL, &p[4], n);
    if (decays == 1) v->fn[VF_ADD_MUL_P](want[T], want[T], want[W], NULL, &p[6], n);
    if (decays == 2) v->fn[VF_MUL_P](want[W], want[W], NULL, NULL, &p[6], n);
    v->fn[VF_SUB](want[W], want[W], want[T], NULL, NULL, n);
    if (type) v->store(copy_want, a.type, want[W], n);
    v->adam(&a, n);
    v->fence();
    for (int s = W; s <= V; s++)
        for (int64_t i = 0; i < ROOM; i++)
            if (!same(to[s][i], want[s][i]))
                fail_msg("%s: form %d of Adam's stream %d at %lld is %.9g, by operations %.9g", v->name, form, s,
                         (long long)i, (double)to[s][i], (double)want[s][i]);
    for (int64_t i = 0; i < ROOM; i++)
        if (!same((float)dtype_load(a.type, copy, i), (float)dtype_load(a.type, copy_want, i)))
            fail_msg("%s: form %d of Adam's copy at %lld", v->name, form, (long long)i);
}

static void adams(const vec_kernels *v, const vec_kernels *plain)
{
    (void)plain;
    for (int form = 0; form < 256; form++)
        if ((form >> 4 & 3) < 3 && form >> 6 < 3)
            for (int64_t n = 0; n < 300; n += n < 10 ? 1 : 29) adam_of(v, form, n);
}

static void test_tapes(void **state)
{
    (void)state;
    each_row(tapes);
    each_row(tape_rows);
    each_row(halves);
    each_row(adams);
}

static int seed(void **state)
{
    (void)state;
    R.s = test_seed("test_tape");
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_tapes) };
    return cmocka_run_group_tests(tests, seed, NULL);
}
