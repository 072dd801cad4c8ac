/* prop_exec_products.c: as prop_exec.c: matrix products and convolutions, what is behind them and beside them. */
#include "exec_links.h"

/* An epilogue for a result y: half of the time what the matrix kernel can do by itself. */
static int64_t random_epilogue(prog *g, const setting *s, links *l, int64_t *t, const int64_t *y, int rank, int channel)
{
    int64_t n = 0;
    int at = 0;
    if (chance(40)) {
        int64_t d[ENGINE_MAX_RANK];
        n = upto(0, 2);
        for (int64_t k = 0; k < n; k++) {
            int r = broadcast_dims(y, rank, d);
            t[k] = input(g, s->t, d, r, s->m, 2);
        }
        random_links(l, (int)n + 1, (int)upto(0, 4), true);
        /* steps are not continuous: on the plain processor they would magnify the tolerance */
        for (int64_t k = 0; k < l->steps[0]; k += CHAIN_STEP) {
            fn_id f = (fn_id)l->steps[1 + k];
            if (s->tol != 0 &&
                !(f <= FN_SUB || f == FN_MAX || f == FN_MIN || f == FN_ABS || f == FN_RELU || f == FN_CLIP)) {
                l->steps[0] = k;
                break;
            }
            if (s->tol != 0) l->steps[1 + k + STEP_TYPE] = DT_F32;
        }
        return n;
    }
    l->params[0] = 0;
    int64_t chan[ENGINE_MAX_RANK];
    for (int i = 0; i < rank; i++) chan[i] = i == channel ? y[i] : 1;
    struct {
        fn_id f;
        int kind; /* 0 none, 1 per channel, 2 whole */
    } want[4] = { { FN_MUL, 1 }, { FN_ADD, 1 }, { chance(50) ? FN_RELU : s->tol != 0 ? FN_TANH : FN_SILU, 0 }, { FN_ADD, 2 } };
    for (int k = 0; k < 4; k++) {
        if (chance(50)) continue;
        if (want[k].kind) t[n++] = input(g, s->t, want[k].kind == 1 ? chan : y, rank, s->m, 2);
        int64_t *q = l->steps + 1 + at * CHAIN_STEP;
        q[STEP_FN] = want[k].f, q[STEP_A] = at ? -2 : 0, q[STEP_A + 1] = want[k].kind ? n : -1, q[STEP_A + 2] = -1,
        q[STEP_PARAM] = -1;
        q[STEP_TYPE] = s->tol != 0 ? DT_F32 : s->t;
        at++;
    }
    for (int k = 1; k < at; k++) l->steps[1 + k * CHAIN_STEP + STEP_A] = 1 + n + k - 1;
    l->steps[0] = at * CHAIN_STEP;
    return n;
}

static void test_matmul(void **state)
{
    (void)state;
    for (int round = 0; round < 250; round++) {
        int64_t m = upto(1, chance(20) ? 70 : 20), n = upto(1, chance(20) ? 70 : 20),
                k = upto(1, chance(10) ? 500 : 40), tx = chance(50), tz = chance(50);
        setting s = random_setting(k);
        prog g;
        links l;
        prog_open(&g, s.num);
        int64_t y[4], x[4], z[4], t[8], fields[80] = { tx, tz };
        int rank = (int)upto(2, 4), lead = rank - 2, rx = rank, rz = rank;
        for (int i = 0; i < lead; i++) y[i] = upto(1, 4), x[i] = chance(80) ? y[i] : 1, z[i] = chance(60) ? y[i] : 1;
        y[lead] = m, y[lead + 1] = n;
        x[lead + (tx ? 1 : 0)] = m, x[lead + (tx ? 0 : 1)] = k, z[lead + (tz ? 1 : 0)] = k, z[lead + (tz ? 0 : 1)] = n;
        if (chance(40)) z[0] = z[lead], z[1] = z[lead + 1], rz = 2;
        t[0] = 0;
        t[1] = either(&g, chance(30), s.t, x, rx, s.m, s.scale),
        t[2] = either(&g, chance(40), chance(90) ? s.t : any_float(), z, rz, s.m, s.scale);
        t[3] = random_epilogue(&g, &s, &l, t + 4, y, rank, chance(50) ? rank - 1 : rank - 2);
        t[0] = prog_out(&g, chance(80) ? s.t : any_float(), y, rank);
        memcpy(fields + 2, l.steps, n_of(&l) * sizeof *fields);
        prog_insn(&g, IN_MATMUL, t, 4 + (uint32_t)t[3], fields, 2 + n_of(&l), l.params, m_of(&l));
        compare(&g, s.name, s.tol, s.least);
        prog_close(&g);
    }
}

/* A sum of squares is as far off as its terms, 2 y times their error each; where y is small beside its operands,
 * that counts by the number of terms. The same bits for one and two threads. */
static void test_squares(void **state)
{
    (void)state;
    for (int round = 0; round < 120; round++) {
        int64_t m = upto(1, chance(50) ? 90 : 20), n = upto(1, chance(50) ? 150 : 20),
                k = upto(1, chance(10) ? 500 : 40), tx = chance(50), tz = chance(50),
                stack = chance(70) ? 1 : upto(2, 4);
        setting s = random_setting(k);
        prog g;
        links l;
        prog_open(&g, s.num);
        int64_t y[3] = { stack, m, n }, x[3] = { stack, tx ? k : m, tx ? m : k },
                z[3] = { chance(50) ? stack : 1, tz ? n : k, tz ? k : n }, t[10], fields[80] = { tx, tz };
        t[2] = either(&g, chance(20), s.t, x, 3, s.m, s.scale), t[3] = either(&g, chance(20), s.t, z, 3, s.m, s.scale);
        t[4] = chance(50) ? 0 : random_epilogue(&g, &s, &l, t + 5, y, 3, chance(50) ? 2 : 1);
        if (!t[4]) l.steps[0] = 0, l.params[0] = 0;
        t[0] = prog_out(&g, DT_F32, y, 3), t[1] = prog_out(&g, DT_F32, DIMS(1));
        memcpy(fields + 2, l.steps, n_of(&l) * sizeof *fields);
        prog_insn(&g, IN_MATMUL_SQUARES, t, 5 + (uint32_t)t[4], fields, 2 + n_of(&l), l.params, m_of(&l));
        const double count = (double)(stack * m * n);
        compare(&g, s.name, s.tol == 0 ? 0 : 8 * s.tol + count * 1.2e-7, count * s.least * s.least);
        image *im = NULL;
        diag d = { 0 };
        float sum[2];
        for (int p = 0; p < 2; p++) {
            assert_ok(image_load(&im, g.p, NULL, &(image_options){ .pool = pools[p] }, &d), d);
            assert_ok(image_run(im, (const void *const *)g.in, (void *const *)g.out_bytes, &d), d);
            memcpy(&sum[p], g.out_bytes[1], sizeof *sum);
            image_free(im);
        }
        assert_memory_equal(&sum[0], &sum[1], sizeof *sum);
        prog_close(&g);
    }
}

static void test_conv(void **state)
{
    (void)state;
    for (int round = 0; round < 250; round++) {
        bool back = chance(30);
        int n = (int)upto(1, 3), rank = n + 2;
        int64_t groups = chance(70) ? 1 : upto(2, 3), ci = upto(1, chance(20) ? 40 : 6),
                co = upto(1, chance(20) ? 30 : 6), x[5], w[5], y[5], k = ci;
        int64_t stride[3], pad[6], dil[3], fields[120], at = 0, t[8];
        x[0] = y[0] = upto(1, 2), x[1] = ci * groups, y[1] = co * groups;
        w[0] = back ? ci * groups : co * groups, w[1] = back ? co : ci;
        bool plain = chance(40);
        for (int i = 0; i < n; i++) {
            int64_t wide = upto(1, n == 1 ? 90 : 12);
            w[2 + i] = plain ? 1 : upto(1, 3), stride[i] = plain ? 1 : upto(1, 2), dil[i] = plain ? 1 : upto(1, 2);
            pad[2 * i] = plain ? 0 : upto(0, 2), pad[2 * i + 1] = plain ? 0 : upto(0, 2);
            int64_t reach = (w[2 + i] - 1) * dil[i] + 1;
            wide = MAX(wide, reach);
            int64_t narrow = (wide + pad[2 * i] + pad[2 * i + 1] - reach) / stride[i] + 1;
            x[2 + i] = back ? narrow : wide, y[2 + i] = back ? wide : narrow;
            k *= w[2 + i];
        }
        setting s = random_setting(k);
        prog g;
        links l;
        prog_open(&g, s.num);
        t[1] = input(&g, s.t, x, rank, s.m, s.scale), t[2] = either(&g, back || chance(70), s.t, w, rank, s.m, s.scale);
        t[3] = random_epilogue(&g, &s, &l, t + 4, y, rank, 1);
        t[0] = prog_out(&g, chance(80) ? s.t : any_float(), y, rank);
        fields[at++] = n;
        for (int i = 0; i < n; i++) fields[at++] = stride[i];
        fields[at++] = 2 * n;
        for (int i = 0; i < 2 * n; i++) fields[at++] = pad[i];
        fields[at++] = n;
        for (int i = 0; i < n; i++) fields[at++] = dil[i];
        fields[at++] = groups;
        memcpy(fields + at, l.steps, n_of(&l) * sizeof *fields);
        prog_insn(&g, back ? IN_CONV_T : IN_CONV, t, 4 + (uint32_t)t[3], fields, (uint32_t)at + n_of(&l), l.params,
                  m_of(&l));
        compare(&g, s.name, s.tol, s.least);
        prog_close(&g);
    }
}

/* Products of one value, one after the other: what the first packed serves the others, unless the value changes in
 * between. */
static void test_siblings(void **state)
{
    (void)state;
    for (int round = 0; round < 80; round++) {
        const bool long_sums = round < 4; /* too long for A to be packed in passing */
        int64_t m = upto(1, 60), k = long_sums ? 2100 : upto(1, 200),
                n = upto(1, chance(30)                 ? 6
                            : chance(30) && !long_sums ? 400
                                                       : 60);
        const bool group = round % 8 == 4; /* more than are summed at once */
        if (group) n = 2;
        setting s = random_setting(k);
        if (chance(50)) s.num = &numerics_cpu, s.name = "cpu", s.m = TAME, s.t = DT_F32, s.tol = 4e-7 * (double)k;
        prog g;
        prog_open(&g, s.num);
        bool changes = !group && chance(20), behind = chance(40);
        int64_t x = input(&g, s.t, DIMS(k, n), TAME, s.scale), z = changes ? prog_scratch(&g, s.t, DIMS(k, n)) : x;
        for (int i = 0, many = group ? 6 : (int)upto(3, 6); i < many; i++) {
            if (changes)
                prog_insn(&g, IN_EW, INTS(z, 1, x), INTS(CHAIN_STEP, i == 1 ? FN_ABS : FN_RELU, 0, -1, -1, -1, s.t),
                          REALS(0));
            bool turned = !group && chance(15);
            int64_t seen = z, deep = !turned && !group && chance(15) ? upto(1, k) : k,
                    high = chance(70) ? m : upto(1, 60);
            if (turned || deep < k) { /* the same memory read sideways, or the beginning of it */
                seen = prog_tensor(&g, s.t, g.p->tensors.at[z].where, g.p->tensors.at[z].slot,
                                   turned ? (const int64_t[]){ n, k } : (const int64_t[]){ deep, n }, 2);
                g.p->tensors.at[seen].offset = g.p->tensors.at[z].offset;
            }
            int64_t a = either(&g, group || (long_sums ? i % 2 : chance(80)), s.t, DIMS(high, deep), TAME, s.scale),
                    y = prog_out(&g, DT_F32, DIMS(high, n));
            if (g.p->tensors.at[a].where == SPACE_CONST && chance(20)) { /* it only moves rows, or all but one */
                const int64_t none = chance(30) ? upto(0, high - 1) : -1;
                unsigned char *at =
                    (unsigned char *)(uintptr_t)g.p->data + g.p->consts.at[g.p->tensors.at[a].slot].src[0].offset;
                for (int64_t j = 0; j < high * deep; j++)
                    dtype_store(s.t, at, j, j / deep != none && j % deep == j / deep * 3 % deep ? 1 : 0);
            }
            prog_insn(&g, IN_MATMUL, INTS(y, a, seen, 0),
                      INTS(0, turned, behind ? CHAIN_STEP : 0, FN_ABS, 0, -1, -1, -1, DT_F32), REALS(0));
            if (!behind) g.p->insns.at[g.p->insns.n - 1].n_i = 3;
        }
        compare(&g, s.name, s.tol, s.least);
        prog_close(&g);
    }
}

/* A product that was a move of rows packed nothing for the one behind it, which must not find what was packed when the
 * image ran before, on other numbers. */
static void test_after_a_move(void **state)
{
    (void)state;
    enum { SIDE = 200, WIDE = 131, PRODUCTS = 2 };
    for (int p = 0; p < 2; p++) {
        prog g;
        image *im = NULL;
        diag d = { 0 };
        prog_open(&g, &numerics_cpu);
        int64_t z = input(&g, DT_F32, DIMS(SIDE, WIDE), TAME, 1);
        for (int i = 0; i < PRODUCTS; i++) {
            int64_t a = constant(&g, DT_F32, DIMS(SIDE, SIDE), TAME, 1), y = prog_out(&g, DT_F32, DIMS(SIDE, WIDE));
            float *at = (float *)(uintptr_t)(g.p->data + g.p->consts.at[g.p->tensors.at[a].slot].src[0].offset);
            for (int k = 0; !i && k < SIDE * SIDE; k++) at[k] = (k / SIDE + 5) % SIDE == k % SIDE ? 1 : 0;
            prog_insn(&g, IN_MATMUL, INTS(y, a, z, 0), INTS(0, 0, CHAIN_STEP, FN_ABS, 0, -1, -1, -1, DT_F32), REALS(0));
        }
        assert_ok(image_load(&im, g.p, NULL, &(image_options){ .pool = pools[p] }, &d), d);
        for (int turn = 0; turn < 3; turn++) {
            float *x = (float *)(void *)g.in[0];
            for (int k = 0; k < SIDE * WIDE; k++) x[k] = (float)number(TAME, 1);
            prog_run(&g, true);
            double *want[PRODUCTS] = { g.out[0], g.out[1] };
            assert_ok(image_run(im, (const void *const *)g.in, (void *const *)g.out_bytes, &d), d);
            for (size_t k = 0; k < PRODUCTS; k++)
                compare_port(&g, "after a move", "", p + 1, k, want[k], (closeness){ .tol = 1e-4, .least = 1 });
        }
        image_free(im);
        prog_close(&g);
    }
}

/* Two convolutions of one value with as many places, one of which steps over some and pads. */
static void test_conv_siblings(void **state)
{
    (void)state;
    for (int turned = 0; turned < 2; turned++) {
        prog g;
        prog_open(&g, &numerics_cpu);
        int64_t x = input(&g, DT_F32, DIMS(1, 8, 1, 3), TAME, 1);
        for (int i = 0; i < 2; i++) {
            const int64_t by = i == turned ? 2 : 1, pad = by - 1;
            int64_t w = constant(&g, DT_F32, DIMS(6, 8, 1, 1), TAME, 1), y = prog_out(&g, DT_F32, DIMS(1, 6, 1, 3));
            prog_insn(&g, IN_CONV, INTS(y, x, w, 0), INTS(2, 1, by, 4, 0, 0, pad, pad, 2, 1, 1, 1, 0), REALS(0));
        }
        /* padded behind alone */
        int64_t w = constant(&g, DT_F32, DIMS(6, 8, 1, 1), TAME, 1), y = prog_out(&g, DT_F32, DIMS(1, 6, 1, 4));
        prog_insn(&g, IN_CONV, INTS(y, x, w, 0), INTS(2, 1, 1, 4, 0, 0, 0, 1, 2, 1, 1, 1, 0), REALS(0));
        compare(&g, "siblings that step", 1e-5, 1);
        prog_close(&g);
    }
}

/* Stacks of constants: more than are looked through for one that is there already, and such as only move rows, each
 * its own way. */
static void test_stacks(void **state)
{
    (void)state;
    static const int64_t counts[] = { 1, 2, 130 };
    for (size_t way = 0; way < 12 * COUNT(devices); way++) {
        const int64_t stacks = counts[way / 2 % 3], side = 6, wide = 100;
        const bool turned = way % 2, many = stacks > 2;
        const size_t dev = way / 12;
        const dtype t = way / 6 % 2 ? DT_F32 : DT_F16;
        prog g;
        prog_open(&g, devices[dev].num);
        int64_t a = constant(&g, DT_F32, DIMS(stacks, side, side), TAME, 1),
                y = turned ? prog_out(&g, DT_F32, DIMS(stacks, wide, side))
                           : prog_out(&g, DT_F32, DIMS(stacks, side, wide));
        for (int64_t i = 0; !many && i < stacks * side * side; i++) {
            const int64_t stack = i / side / side, row = i / side % side;
            dtype_store(DT_F32, (unsigned char *)(uintptr_t)g.p->data, i,
                        (row + stack) % side != i % side ? 0
                        : row % 2                        ? -1
                                                         : 1);
        }
        int64_t b =
            turned ? input(&g, t, DIMS(stacks, wide, side), TAME, 1) : input(&g, t, DIMS(stacks, side, wide), TAME, 1);
        prog_insn(&g, IN_MATMUL, INTS(y, turned ? b : a, turned ? a : b, 0),
                  INTS(0, 0, CHAIN_STEP, FN_ABS, 0, -1, -1, -1, DT_F32), REALS(0));
        compare(&g, devices[dev].name, dev ? 0 : 1e-6, 1);
        prog_close(&g);
    }
}

/* Constants that change under a loaded image: those that are laid out anew, and a matrix that moved rows and then
 * does not. */
static void test_reload(void **state)
{
    (void)state;
    enum { SIDE = 6, WIDE = 100, TURNS = 3 };
    prog g;
    image *im = NULL;
    diag d = { 0 };
    prog_open(&g, &numerics_cpu);
    int64_t w = constant(&g, DT_F32, DIMS(4, SIDE, 1, 3), TAME, 1), a = constant(&g, DT_F32, DIMS(SIDE, SIDE), TAME, 1);
    int64_t x = input(&g, DT_F32, DIMS(1, 4, 1, 10), TAME, 1), z = input(&g, DT_F32, DIMS(SIDE, WIDE), TAME, 1),
            y = prog_out(&g, DT_F32, DIMS(1, SIDE, 1, 12)), y2 = prog_out(&g, DT_F32, DIMS(SIDE, WIDE));
    prog_insn(&g, IN_CONV_T, INTS(y, x, w, 0), INTS(2, 1, 1, 4, 0, 0, 0, 0, 2, 1, 1, 1, 0), REALS(0));
    prog_insn(&g, IN_MATMUL, INTS(y2, a, z, 0), INTS(0, 0, CHAIN_STEP, FN_ABS, 0, -1, -1, -1, DT_F32), REALS(0));
    for (int turn = 0; turn <= TURNS; turn++) {
        float *ws = (float *)(uintptr_t)(g.p->data + g.p->consts.at[0].src[0].offset),
              *as = (float *)(uintptr_t)(g.p->data + g.p->consts.at[1].src[0].offset);
        for (int i = 0; i < 4 * SIDE * 3; i++) ws[i] = (float)number(TAME, 1);
        if (turn == 1) ws[7] = INFINITY; /* what the transposed one does not reach is no zero */
        for (int i = 0; i < SIDE * SIDE; i++)
            as[i] = turn == 2 ? (float)number(TAME, 1) : (i / SIDE + turn) % SIDE == i % SIDE ? 1 : 0;
        if (turn) assert_ok(image_reload(im, NULL, &d), d);
        else assert_ok(image_load(&im, g.p, NULL, &(image_options){ .pool = pools[0] }, &d), d);
        prog_run(&g, true);
        double *want[2] = { g.out[0], g.out[1] };
        assert_ok(image_run(im, (const void *const *)g.in, (void *const *)g.out_bytes, &d), d);
        for (size_t k = 0; k < 2; k++)
            compare_port(&g, "reloaded", "", 1, k, want[k], (closeness){ .tol = 1e-5, .least = 1 });
    }
    image_free(im);
    prog_close(&g);
}

/* What the matrix kernel does behind a product, and what only looks like it: in another order, twice, or of
 * something else. */
static void test_behind(void **state)
{
    (void)state;
    enum { SUM, U, Q, C, S, STEPS = 3, OPERANDS = 3 }; /* the product, two of its shape, one per channel, steps */
    static const struct {
        fn_id f;
        int a, b;
    } rows[][STEPS] = {
        { { FN_MUL, SUM, C }, { FN_ADD, S, C }, { FN_RELU, S + 1, -1 } }, { { FN_ADD, SUM, C }, { FN_RELU, S, -1 }, { FN_ADD, U, S + 1 } }, { { FN_SILU, U, -1 }, { FN_MUL, SUM, S }, { FN_ADD, S + 1, Q } },
        { { FN_RELU, SUM, -1 }, { FN_TANH, S, -1 } },  { { FN_TANH, SUM, -1 }, { FN_RELU, S, -1 } },   { { FN_RELU, U, -1 }, { FN_ADD, SUM, S } },       { { FN_RELU, U, -1 }, { FN_ADD, S, Q } },
        { { FN_ADD, SUM, U }, { FN_RELU, S, -1 } },    { { FN_ADD, SUM, U }, { FN_ADD, S, Q } },       { { FN_ADD, SUM, C }, { FN_MUL, S, C } },         { { FN_RELU, SUM, -1 }, { FN_ADD, S, C } },
        { { FN_ADD, SUM, U }, { FN_ADD, S, C } },      { { FN_ADD, SUM, C }, { FN_ADD, S, C } },       { { FN_MUL, SUM, C }, { FN_MUL, S, C } },         { { FN_SILU, U, -1 }, { FN_RELU, SUM, -1 } },
        { { FN_RELU, SUM, -1 }, { FN_ADD, S, SUM } },  { { FN_MUL, SUM, U }, { FN_RELU, S, -1 } },     { { FN_SILU, U, -1 }, { FN_ADD, SUM, S } },
        { { FN_ADD, SUM, U }, { FN_SILU, Q, -1 }, { FN_MUL, S, S + 1 } },   { { FN_SILU, U, -1 }, { FN_MUL, SUM, S }, { FN_RELU, S + 1, -1 } }, { { FN_SILU, U, -1 }, { FN_MUL, SUM, S }, { FN_MUL, S + 1, S } },
        { { FN_SILU, U, -1 }, { FN_MUL, SUM, S }, { FN_ADD, S + 1, C } },   { { FN_SILU, U, -1 }, { FN_SILU, Q, -1 }, { FN_MUL, SUM, S + 1 } }, { { FN_RELU, SUM, -1 }, { FN_SILU, U, -1 }, { FN_MUL, S, S + 1 } },
    };
    static const dtype types[] = { DT_F32, DT_F16, DT_BF16 };
    for (size_t i = 0; i < COUNT(rows); i++)
        for (int way = 0; way < 6; way++) {
            const dtype t = types[way / 2];
            const bool conv = way % 2;
            const int64_t k = 7, high = 5, wide = 33, y[] = { 1, high, 1, wide }, c[] = { 1, high, 1, 1 };
            /* a product's shape is the last two axes, and one number for all of its rows */
            const int from = conv ? 0 : 2;
            prog g;
            links l;
            prog_open(&g, &numerics_cpu);
            int64_t out = prog_out(&g, t, conv ? y : (const int64_t[]){ high, wide }, 4 - from),
                    ts[4 + OPERANDS] = { out };
            ts[1] = conv ? input(&g, t, DIMS(1, k, 1, wide), TAME, 1) : input(&g, t, DIMS(high, k), TAME, 1);
            ts[2] = conv ? input(&g, t, DIMS(high, k, 1, 1), TAME, 1) : input(&g, t, DIMS(k, wide), TAME, 1);
            ts[3] = OPERANDS;
            for (int j = 0; j < 2; j++)
                ts[4 + j] = input(&g, t, conv ? y : (const int64_t[]){ high, wide }, 4 - from, TAME, 2);
            ts[4 + 2] = input(&g, t, conv ? c : (const int64_t[]){ 1, 1 }, 4 - from, TAME, 2);
            int n = 0;
            for (; n < STEPS && (n == 0 || rows[i][n].f); n++) {
                int64_t *step = l.steps + 1 + n * CHAIN_STEP;
                for (int j = 0; j < CHAIN_STEP; j++) step[j] = -1;
                step[STEP_FN] = rows[i][n].f, step[STEP_A] = rows[i][n].a, step[STEP_A + 1] = rows[i][n].b,
                step[STEP_TYPE] = DT_F32;
            }
            l.steps[0] = n * CHAIN_STEP, l.params[0] = 0;
            int64_t fields[64] = { 2, 1, 1, 4, 0, 0, 0, 0, 2, 1, 1, 1 };
            uint32_t at = 12; /* strides, pads, dilations, groups */
            if (!conv) at = 2, fields[0] = fields[1] = 0;
            memcpy(fields + at, l.steps, n_of(&l) * sizeof *fields);
            char what[32];
            snprintf(what, sizeof what, "row %zu, way %d", i, way);
            prog_insn(&g, conv ? IN_CONV : IN_MATMUL, ts, (uint32_t)COUNT(ts), fields, at + n_of(&l), l.params,
                      m_of(&l));
            compare(&g, what, 1e-5, 4);
            prog_close(&g);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matmul),        cmocka_unit_test(test_squares), cmocka_unit_test(test_siblings),
        cmocka_unit_test(test_conv_siblings), cmocka_unit_test(test_after_a_move), cmocka_unit_test(test_stacks),  cmocka_unit_test(test_reload),
        cmocka_unit_test(test_behind),        cmocka_unit_test(test_conv),
    };
    return cmocka_run_group_tests(tests, open_pools, close_pools);
}
