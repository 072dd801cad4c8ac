/* test_program.c: program bytes: round trip, and that damaged or absurd ones are refused before anything runs. */
#include "engine_t.h"
#include "seal.h"

/* A program that uses every kind of field and constant. */
static void build(prog *g)
{
    prog_open(g, &NUM_M1);
    program *p = g->p;
    p->key = 0x1234;
    static const unsigned char data[64] = { 0x00, 0x3c, 0x00, 0x40, 0, 1,  2,    3,    0x21, 0x43,
                                            5,    6,    7,    8,    9, 10, 0x00, 0x38, 0x00, 0x3c };
    p->data = data, p->n_data = sizeof data;
    int64_t x = prog_in(g, DT_F16, DIMS(1, 2, 3, 3), NULL), m = prog_in(g, DT_F16, DIMS(3, 4), NULL);
    int64_t w = prog_tensor(g, DT_F16, SPACE_CONST, 0, DIMS(2, 2, 1, 1)),
            b = prog_tensor(g, DT_F16, SPACE_CONST, 1, DIMS(2, 1, 1));
    int64_t c = prog_scratch(g, DT_F16, DIMS(1, 2, 3, 3)), y = prog_out(g, DT_F16, DIMS(1, 2, 3, 3)),
            z = prog_out(g, DT_F16, DIMS(3));
    const_entry affine = { .kind = CK_AFFINE, .tensor = (uint32_t)w, .n_src = 3, .axis = 0,
                           .src = { { .offset = 4, .dt = DT_I8, .rank = 4, .dim = { 2, 2, 1, 1 }, .bytes = 4 },
                                    { .offset = 0, .dt = DT_F16, .rank = 1, .dim = { 2 }, .bytes = 4 },
                                    { .path = "@model_path/w.bin", .offset = 64, .dt = DT_I8, .rank = 0,
                                      .bytes = 1 } } };
    const_entry dense = { .kind = CK_DENSE, .tensor = (uint32_t)b, .n_src = 1,
                          .src = { { .offset = 16, .dt = DT_F16, .rank = 3, .dim = { 2, 1, 1 }, .bytes = 4 } } };
    assert_true(VEC_PUSH(&p->mem, &p->consts, affine));
    assert_true(VEC_PUSH(&p->mem, &p->consts, dense));
    prog_insn(
        g, IN_CONV, INTS(c, x, w, 1, b),
        INTS(2, 1, 1, 4, 0, 0, 0, 0, 2, 1, 1, 1, 12, FN_ADD, 0, 1, -1, -1, DT_F16, FN_LEAKY_RELU, 2, -1, -1, 0, DT_F16),
        REALS(1, 0.25));
    prog_insn(g, IN_SOFTMAX, INTS(y, c), INTS(3), NO_REALS);
    prog_insn(g, IN_NORM, INTS(c, y, -1, b), INTS(2, 2, 3, NORM_LAYER), REALS(1e-5));
    prog_insn(g, IN_REDUCE, INTS(z, m), INTS(1, 1, RED_SUM), NO_REALS);
    p->insns.at[0].line = 12;
}

static strbuf encoded(prog *g)
{
    strbuf b = { 0 };
    assert_ok(program_encode(g->p, &b, &g->d), g->d);
    return b;
}

static void round_trip_of(bool final)
{
    prog g;
    build(&g);
    g.p->final = final, g.p->weights = final ? 0x5eed : 0;
    strbuf one = encoded(&g), two = { 0 }, text1 = { 0 }, text2 = { 0 };
    program *p = NULL;
    diag d = { 0 };
    assert_ok(program_decode(one.at, one.n, &p, &d), d);
    assert_ok(program_encode(p, &two, &d), d);
    assert_int_equal(one.n, two.n);
    assert_memory_equal(one.at, two.at, one.n);
    program_print(g.p, &text1);
    program_print(p, &text2);
    assert_string_equal(text1.at, text2.at);
    assert_non_null(strstr(text1.at, "leaky_relu(s0, 0.25):fp16"));
    assert_non_null(strstr(text1.at, "# line 12"));
    assert_int_equal(p->key, 0x1234);
    assert_true(p->final == final && p->weights == g.p->weights);
    assert_true(final == (strstr(text1.at, "final") != NULL));
    assert_memory_equal(&p->num, &NUM_M1, sizeof p->num);
    program_free(p);
    sb_free(&one), sb_free(&two), sb_free(&text1), sb_free(&text2);
    prog_close(&g);
}

static void round_trip(void **s)
{
    (void)s;
    round_trip_of(false);
    round_trip_of(true);
}

static void must_say(an_status st, const diag *d, program *p)
{
    assert_true((st == AN_OK) == (p != NULL));
    if (st) assert_true((st == AN_INPUT || st == AN_NOMEM) && d->msg[0]);
}

static void damage_of(bool final)
{
    prog g;
    build(&g);
    g.p->final = final, g.p->weights = final ? 0x5eed : 0;
    strbuf b = encoded(&g);
    unsigned char *bytes = malloc(b.n + 1);
    assert_non_null(bytes);
    for (size_t i = 0; i < b.n; i++) { /* the checksum sees every bit */
        program *p = NULL;
        diag d = { 0 };
        memcpy(bytes, b.at, b.n);
        bytes[i] ^= (unsigned char)(1u << (i % 8));
        assert_int_equal(program_decode(bytes, b.n, &p, &d), AN_INPUT);
        assert_true(d.msg[0] && !p);
    }
    /* signs of three numbers in a row: with one product for each word they would make up for each other */
    for (size_t i = SEAL_HEADER; i + 16 <= b.n; i += 8) {
        program *p = NULL;
        diag d = { 0 };
        memcpy(bytes, b.at, b.n);
        for (size_t j = 7; j < 16; j += 4) bytes[i + j] ^= 128;
        assert_int_equal(program_decode(bytes, b.n, &p, &d), AN_INPUT);
        if (!strstr(d.msg, "its checksum is")) fail_msg("signs at byte %zu: %s", i, d.msg);
    }
    for (size_t n = 0; n < b.n; n++) { /* cut anywhere */
        program *p = NULL;
        diag d = { 0 };
        memcpy(bytes, b.at, b.n);
        assert_int_equal(program_decode(bytes, n, &p, &d), AN_INPUT);
        if (n < SEAL_HEADER) continue;
        seal(bytes, n);
        d = (diag){ 0 };
        an_status st = program_decode(bytes, n, &p, &d);
        must_say(st, &d, p);
        assert_int_equal(st, AN_INPUT); /* no prefix of a program is a program */
    }
    memcpy(bytes, b.at, b.n), bytes[b.n] = 0;
    seal(bytes, b.n + 1);
    program *p = NULL;
    diag d = { 0 };
    assert_int_equal(program_decode(bytes, b.n + 1, &p, &d), AN_INPUT);
    memcpy(bytes, b.at, b.n);
    bytes[8]--; /* one of before */
    d = (diag){ 0 };
    assert_int_equal(program_decode(bytes, b.n, &p, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "compile it again"));
    bytes[8]++;
    bytes[12] ^= 1; /* the header's own word is no part of the checksum: what it says has to fit the body */
    d = (diag){ 0 };
    assert_int_equal(program_decode(bytes, b.n, &p, &d), AN_INPUT);
    assert_true(d.msg[0] && !p);
    free(bytes);
    sb_free(&b);
    prog_close(&g);
}

static void damage_is_seen(void **s)
{
    (void)s;
    damage_of(false);
    damage_of(true);
}

/* Runs a decoded program if it is small enough to be worth it: whatever the bytes, nothing may go astray. */
static void run_if_small(const program *p)
{
    uint64_t total = p->scratch_bytes;
    for (size_t i = 0; i < p->tensors.n; i++) {
        int64_t n = 1;
        for (int a = 0; a < p->tensors.at[i].rank; a++)
            if (!mul_i64(n, p->tensors.at[i].dim[a], &n) || n > 4096) return;
        total += (uint64_t)n * 8;
    }
    if (total > 1 << 16 || p->inputs.n > 8 || p->outputs.n > 8) return;
    image *im = NULL;
    image_options o = { .reference = true };
    diag d = { 0 };
    if (image_load(&im, p, NULL, &o, &d)) return;
    void *in[8], *out[8];
    for (size_t k = 0; k < p->inputs.n; k++) in[k] = calloc(1, (size_t)p->inputs.at[k].bytes), assert_non_null(in[k]);
    for (size_t k = 0; k < p->outputs.n; k++)
        out[k] = calloc(1, (size_t)p->outputs.at[k].bytes), assert_non_null(out[k]);
    an_status st = image_run(im, (const void *const *)in, out, &d);
    assert_true(st == AN_OK || d.msg[0]);
    image_free(im);
    for (size_t k = 0; k < p->inputs.n; k++) free(in[k]);
    for (size_t k = 0; k < p->outputs.n; k++) free(out[k]);
}

static void malice_of(bool final)
{
    prog g;
    build(&g);
    g.p->final = final;
    g.p->consts.at[0].src[2].path = NULL, g.p->consts.at[0].src[2].offset = 4; /* so that it can run */
    strbuf b = encoded(&g);
    unsigned char *bytes = malloc(b.n);
    assert_non_null(bytes);
    rng r = { .s = test_seed("malice") };
    static const unsigned char nasty[] = { 0, 1, 2, 0x7f, 0x80, 0xfe, 0xff };
    int accepted = 0;
    for (size_t i = 0; i < b.n * 6; i++) {
        memcpy(bytes, b.at, b.n);
        if (i < b.n * 3) bytes[i / 3] = i % 3 ? nasty[rng_below(&r, sizeof nasty)] : (unsigned char)(bytes[i / 3] + 1);
        else
            for (int k = 0; k < 4; k++) bytes[32 + rng_below(&r, b.n - 32)] = nasty[rng_below(&r, sizeof nasty)];
        seal(bytes, b.n);
        program *p = NULL;
        diag d = { 0 };
        an_status st = program_decode(bytes, b.n, &p, &d);
        must_say(st, &d, p);
        if (!st) {
            strbuf text = { 0 }, again = { 0 };
            program_print(p, &text);
            assert_ok(program_encode(p, &again, &d), d);
            assert_true(again.n == b.n && !memcmp(again.at, bytes, b.n));
            run_if_small(p);
            accepted++;
            sb_free(&text), sb_free(&again);
        }
        program_free(p);
    }
    assert_true(accepted > 10); /* the test would show nothing if all were refused */
    free(bytes);
    sb_free(&b);
    prog_close(&g);
}

static void malice_is_harmless(void **s)
{
    (void)s;
    malice_of(false);
    malice_of(true);
}

/* ---- one wrong thing at a time, and a word of the message it must give ---- */

static void grow(program *p, uint32_t tensor, uint64_t *bytes, int64_t elems)
{
    p->tensors.at[tensor].rank = 1;
    p->tensors.at[tensor].dim[0] = elems;
    *bytes = (uint64_t)elems * 2; /* fp16 */
}

static void spoil(prog *g, int what)
{
    program *p = g->p;
    int64_t *t = (int64_t *)(uintptr_t)p->insns.at[0].t, *i = (int64_t *)(uintptr_t)p->insns.at[0].i;
    double *f = (double *)(uintptr_t)p->insns.at[0].f;
    switch (what) {
    case 0: p->tensors.at[0].dim[3] = (int64_t)1 << 62; break;
    case 1: p->tensors.at[0].dim[3] = 0; break;
    case 2: p->tensors.at[4].offset = 2; break;
    case 3: p->tensors.at[4].offset = UINT64_MAX - 1; break;
    case 4: p->tensors.at[4].offset = 1; break;
    case 5: p->scratch_bytes = UINT64_MAX; break;
    case 6: p->tensors.at[4].dt = DT_STRING; break;
    case 7: p->tensors.at[4].rank = 9; break;
    case 8: p->inputs.at[0].name = "z"; break;
    case 9: p->inputs.at[0].bytes = 4; break;
    case 10: p->inputs.at[1].tensor = 99; break;
    case 11: p->consts.at[0].src[0].offset = UINT64_MAX - 2; break;
    case 12: p->consts.at[0].src[1].dim[0] = 3, p->consts.at[0].src[1].bytes = 6; break;
    case 13: p->consts.at[0].n_src = 1; break;
    case 14: p->consts.at[0].src[0].bytes = 5; break;
    case 15: t[0] = 0; break;                       /* writes an input */
    case 16: t[1] = 77; break;
    case 17: t[3] = INT64_MAX; break;               /* list length */
    case 18: t[3] = -1; break;
    case 19: i[0] = 3; break;                       /* strides of three axes */
    case 20: i[1] = 0; break;
    case 21: i[4] = INT64_MAX; break;               /* padding */
    case 22: i[11] = 3; break;                      /* groups */
    case 23: i[13] = FN_COUNT; break;
    case 24: i[14] = 5; break;                      /* a value of a later step */
    case 25: i[18] = DT_NONE; break;
    case 26: i[23] = 1; break;                      /* parameter past the end */
    case 27: f[0] = (double)NAN; break;
    case 28: f[0] = 1e18; break;
    case 29: p->insns.at[0].n_i--; break;
    case 30: p->insns.at[0].op = IN_COUNT; break;
    case 31: p->num.window_bits = 99; break;
    case 32: p->num.port_ceiling = (double)NAN; break;
    case 33: p->outputs.at[0].name = ""; break;
    case 34: p->consts.at[0].kind = CK_COUNT; break;
    case 35: p->tensors.at[2].slot = 7; break;
    case 36: p->scratch_bytes = 140000000000000; break;
    case 37: grow(p, p->outputs.at[0].tensor, &p->outputs.at[0].bytes, 8000000000000); break;
    case 38: /* each could be had, both could not */
        p->scratch_bytes = ENGINE_MOST_BYTES;
        break;
    case 39: p->consts.at[1].kind = CK_CAUSAL; break; /* [2, 1, 1] is no square */
    case 40: /* what it was compiled from, of another shape */
    case 41: /* and where it may change */
        p->consts.at[1].kind = CK_FIXED, p->consts.at[1].n_src = 2, p->consts.at[1].src[1] = p->consts.at[1].src[0];
        if (what == 40) p->consts.at[1].src[1].rank = 1;
        else p->consts.at[1].src[1].path = "@model_path/w.bin";
        break;
    default: break;
    }
}

static void each_wrong_thing(void **s)
{
    (void)s;
    static const char *const word[] = {
        "input \"a\" takes more bytes than 64 bits count, more than the 1 TiB", "extent 0", "scratch",
        "not a multiple|scratch", "not a multiple", "scratch memory", "element type", "rank 9", "order", "bytes",
        "tensor 99", "inline data", "(affine), int8[2,2,1,1], fp16[3], int8[], do not give its tensor, fp16[2,2,1,1]",
        "(affine) has 1 sources, wanted 2 .. 3", "bytes", "writes tensor", "tensor 77", "ends inside", "ends inside",
        "ends inside|more values", "the stride of spatial axis 0 is 0, wanted 1 .. 1073741824",
        "the padding of spatial axis 0 is 9223372036854775807, wanted 0 .. 1073741824", "groups", "function",
        "reads value", "element type", "parameters", "ends inside", "ends inside", "ends inside", "number",
        "window_bits", "port_ceiling", "no name", "kind", "constant",
        "scratch memory takes 140000000000000 bytes, more than the 1 TiB (1099511627776 bytes)",
        "output \"a\" takes 16000000000000 bytes, more than the 1 TiB (1099511627776 bytes)",
        "scratch memory, ports and constants take 10995116", "(causal) is fp16[2,1,1], wanted one square matrix",
        "fp16[2,1,1], fp16[2], do not give its tensor, fp16[2,1,1]", "is in a weight file"
    };
    for (int k = 0; k < (int)COUNT(word); k++) {
        prog g;
        build(&g);
        diag d = { 0 };
        assert_ok(program_check(g.p, &d), d);
        spoil(&g, k);
        an_status st = program_check(g.p, &d);
        char first[120];
        snprintf(first, sizeof first, "%.*s", (int)strcspn(word[k], "|"), word[k]);
        const char *second = strchr(word[k], '|');
        if (st != AN_INPUT || (!strstr(d.msg, first) && !(second && strstr(d.msg, second + 1))))
            fail_msg("case %d: status %d, message \"%s\", wanted \"%s\"", k, (int)st, d.msg, word[k]);
        strbuf b = { 0 };
        diag d2 = { 0 };
        assert_int_equal(program_encode(g.p, &b, &d2), AN_INPUT); /* nor can it be written */
        sb_free(&b);
        prog_close(&g);
    }
}

/* What does not fit is shown as it is, beside what would. */
static void messages_show_both(void **s)
{
    (void)s;
    enum { A, B, C, Y }; /* tensors: three inputs and the result */
    static const struct {
        insn_id op;
        int64_t t[5], i[9];
        uint32_t n_t, n_i, n_f;
        int rank[4];
        int64_t dim[4][3];
        const char *said;
    } rows[] = {
        { IN_EW, { Y, 1, A }, { 0 }, 3, 1, 1, { 1, 0, 0, 2 }, { { 3 }, { 0 }, { 0 }, { 2, 2 } },
          "tensor 0 is fp16[3] and does not broadcast to the result, fp16[2,2]" },
        { IN_SOFTMAX, { Y, A }, { 0 }, 2, 1, 0, { 2, 0, 0, 2 }, { { 2, 3 }, { 0 }, { 0 }, { 3, 2 } },
          "x is fp16[2,3] and y is fp16[3,2]: wanted one shape" },
        { IN_LRN, { Y, A }, { (int64_t)1 << 31 }, 2, 1, 3, { 2, 0, 0, 2 }, { { 2, 3 }, { 0 }, { 0 }, { 2, 3 } },
          "size is 2147483648, wanted 1 .. 1073741824" },
        { IN_NORM, { Y, A, B, -1 }, { 1, 1, NORM_LAYER }, 4, 3, 1, { 2, 1, 0, 2 }, { { 2, 3 }, { 2 }, { 0 }, { 2, 3 } },
          "gain is fp16[2] and does not broadcast to y, fp16[2,3]" },
        { IN_SORT, { Y, -1, A }, { 1, 0, 2 }, 3, 3, 0, { 2, 0, 0, 2 }, { { 2, 3 }, { 0 }, { 0 }, { 2, 3 } },
          "values is fp16[2,3], wanted fp16[2,2]" },
        { IN_PICK, { Y, A }, { 1, 2, 0, 1 }, 2, 4, 0, { 2, 0, 0, 2 }, { { 2, 3 }, { 0 }, { 0 }, { 2, 3 } },
          "y is fp16[2,3], wanted fp16[2,2]" },
        { IN_CAST, { Y, A }, { 0 }, 2, 0, 0, { 2, 0, 0, 1 }, { { 2, 3 }, { 0 }, { 0 }, { 5 } },
          "x is fp16[2,3] and y is fp16[5]: wanted as many elements" },
        { IN_MOVE, { Y, A }, { 1, 5, 0, 1, 1, 0, 1, 1 }, 2, 9, 0, { 1, 0, 0, 1 }, { { 5 }, { 0 }, { 0 }, { 4 } },
          "it writes elements 0 .. 4 of y, which has 4" },
        { IN_MATMUL, { Y, A, B, 0 }, { 0 }, 4, 3, 1, { 3, 3, 0, 3 },
          { { 2, 2, 2 }, { 3, 2, 2 }, { 0 }, { 2, 2, 2 } },
          "the leading axes of x, fp16[2,2,2], or z, fp16[3,2,2], do not broadcast to those of the result, fp16" },
        { IN_ATTEND, { Y, A, A, A, B }, { 0 }, 5, 1, 1, { 2, 1, 0, 2 }, { { 2, 3 }, { 3 }, { 0 }, { 2, 3 } },
          "the mask is fp16[3] and does not broadcast to the scores: y is fp16[2,3], there are 2 keys" },
    };
    for (size_t k = 0; k < COUNT(rows); k++) {
        prog g;
        prog_open(&g, &numerics_cpu);
        for (int j = A; j <= C; j++) prog_in(&g, DT_F16, rows[k].dim[j], rows[k].rank[j], NULL);
        prog_out(&g, DT_F16, rows[k].dim[Y], rows[k].rank[Y]);
        prog_insn(&g, rows[k].op, rows[k].t, rows[k].n_t, rows[k].i, rows[k].n_i, (const double[3]){ 0 }, rows[k].n_f);
        diag d = { 0 };
        if (program_check(g.p, &d) != AN_INPUT || !strstr(d.msg, rows[k].said))
            fail_msg("row %zu: \"%s\", wanted \"%s\"", k, d.msg, rows[k].said);
        prog_close(&g);
    }
}

/* An index that its table has no entry for is told before an image is made of it, and when one is. */
static void indices_have_entries(void **s)
{
    (void)s;
    static const unsigned char data[] = { 0, 1, 2, 9, 0, 0, 0, 0, 0, 0x3c, 0, 0x40, 0, 0x42, 0, 0x44 };
    for (int good = 0; good < 2; good++) {
        prog g;
        prog_open(&g, &numerics_cpu);
        g.p->data = data, g.p->n_data = sizeof data;
        int64_t w = prog_tensor(&g, DT_F16, SPACE_CONST, 0, DIMS(2, 2)), y = prog_out(&g, DT_F16, DIMS(2, 2));
        const_entry c = { .kind = CK_LUT,
                          .tensor = (uint32_t)w,
                          .n_src = 2,
                          .axis = -1,
                          .src = { { .offset = good ? 4 : 0, .dt = DT_U8, .rank = 2, .dim = { 2, 2 }, .bytes = 4 },
                                   { .offset = 8, .dt = DT_F16, .rank = 4, .dim = { 1, 1, 4, 1 }, .bytes = 8 } } };
        assert_true(VEC_PUSH(&g.p->mem, &g.p->consts, c));
        prog_insn(&g, IN_CAST, INTS(y, w), NO_INTS, NO_REALS);
        diag d = { 0 };
        static const char said[] = "index 9 at element 3, its table has 4 entries";
        assert_int_equal(program_makes(g.p, NULL, &d), good ? AN_OK : AN_INPUT);
        if (!good) assert_non_null(strstr(d.msg, said));
        assert_int_equal(prog_try(&g, false), good ? AN_OK : AN_INPUT);
        if (!good) assert_non_null(strstr(g.d.msg, said));
        prog_close(&g);
    }
}

/* A move may touch its tensors' elements and nothing else, whatever its steps. */
static void moves_stay_inside(void **s)
{
    (void)s;
    static const struct {
        int64_t size, y_start, y_step, x_start, x_step;
        bool ok;
    } rows[] = {
        { 4, 0, 1, 0, 1, true },   { 4, 3, -1, 0, 1, true },      { 5, 0, 1, 0, 1, false },
        { 4, 0, 1, 1, 1, false },  { 4, 2, -1, 0, 1, false },     { 4, 0, 0, 0, 0, true },
        { 4, -1, 1, 0, 1, false }, { INT64_MAX, 0, 1, 0, 0, false }, { 2, 0, INT64_MIN, 0, 1, false },
        { 2, 0, INT64_MAX, 0, 1, false }, { 0, 0, 1, 0, 1, false }, { 2, INT64_MAX, 1, 0, 1, false },
        { 1, 0, INT64_MAX, 3, INT64_MAX, true },     { 1, 0, INT64_MIN, 3, INT64_MAX, false },
        { 5, 0, 0, 0, 0, false },  { (int64_t)1 << 50, 0, 0, 0, 0, false },
    };
    for (size_t k = 0; k < COUNT(rows); k++) {
        prog g;
        prog_open(&g, &numerics_cpu);
        int64_t x = prog_in(&g, DT_F32, DIMS(4), VALUES(1, 2, 3, 4)), y = prog_out(&g, DT_F32, DIMS(4));
        prog_insn(&g, IN_MOVE, INTS(y, x),
                  INTS(1, rows[k].size, rows[k].y_start, 1, rows[k].y_step, rows[k].x_start, 1, rows[k].x_step, 0),
                  NO_REALS);
        an_status st = prog_try(&g, true);
        if ((st == AN_OK) != rows[k].ok) fail_msg("row %zu: status %d (%s)", k, (int)st, g.d.msg);
        prog_close(&g);
    }
}

/* Nor may steps of 0 make it last: no more places than y has elements, counted without overflow. */
static void moves_end(void **s)
{
    (void)s;
    static const struct {
        int64_t size[3];
        bool ok;
    } rows[] = { { { 2, 1, 2 }, true },
                 { { 1, 2, 2 }, true },
                 { { 2, 2, 2 }, false },
                 { { (int64_t)1 << 50, 2, 2 }, false },
                 { { (int64_t)1 << 32, (int64_t)1 << 31, 2 }, false } };
    for (size_t k = 0; k < COUNT(rows); k++)
        for (int reference = 0; reference < 2; reference++) {
            prog g;
            prog_open(&g, &numerics_cpu);
            int64_t x = prog_in(&g, DT_F32, DIMS(4), VALUES(1, 2, 3, 4)), y = prog_out(&g, DT_F32, DIMS(4));
            prog_insn(&g, IN_MOVE, INTS(y, x),
                      INTS(3, rows[k].size[0], rows[k].size[1], rows[k].size[2], 0, 3, 0, 0, 1, 0, 3, 0, 0, 1, 0),
                      NO_REALS);
            an_status st = prog_try(&g, reference);
            if (st != (rows[k].ok ? AN_OK : AN_INPUT) ||
                (st && !strstr(g.d.msg, "more places than the 4 elements of y")))
                fail_msg("row %zu: status %d (%s)", k, (int)st, g.d.msg);
            prog_close(&g);
        }
}

/* A window may be far larger than what it slides over; its places must still be countable. */
static void windows_end(void **s)
{
    (void)s;
    static const struct {
        int64_t axes, k;
        bool ok;
    } rows[] = { { 1, 1 << 30, true }, { 2, 1 << 30, true }, { 3, 1 << 20, true }, { 3, 1 << 30, false } };
    for (size_t r = 0; r < COUNT(rows); r++)
        for (int reference = 0; reference < 2; reference++)
            for (int kind = 0; kind < POOL_COUNT; kind++) {
                prog g;
                prog_open(&g, &numerics_cpu);
                int64_t n = rows[r].axes, k = rows[r].k, one[] = { 1, 1, 1, 1, 1 }, fields[32], at = 0;
                int64_t x = prog_in(&g, DT_F32, one, (int)n + 2, VALUES(6)), y = prog_out(&g, DT_F32, one, (int)n + 2);
                fields[at++] = n;
                for (int i = 0; i < n; i++) fields[at++] = k;
                fields[at++] = n;
                for (int i = 0; i < n; i++) fields[at++] = 1;
                fields[at++] = 2 * n;
                for (int i = 0; i < 2 * n; i++) fields[at++] = i % 2 ? k / 2 - 1 : k / 2;
                fields[at++] = kind, fields[at++] = 0;
                prog_insn(&g, IN_POOL, INTS(y, x), fields, (uint32_t)at, NO_REALS);
                an_status st = prog_try(&g, reference);
                if (st != (rows[r].ok ? AN_OK : AN_INPUT) || (st && !strstr(g.d.msg, "63 bits")))
                    fail_msg("row %zu: status %d (%s)", r, (int)st, g.d.msg);
                if (!st) assert_true(g.out[0][0] == (kind == POOL_AVG ? 6 / pow((double)k, (double)n) : 6));
                prog_close(&g);
            }
}

/* A product's second result: one fp32 number beside y, which is fp32 too. */
static void squares_stand_apart(void **s)
{
    (void)s;
    static const struct {
        dtype y, sum;
        int64_t n;
        bool inside, fine;
    } rows[] = { { DT_F32, DT_F32, 1, false, true },
                 { DT_F16, DT_F32, 1, false, false },
                 { DT_F32, DT_F16, 1, false, false },
                 { DT_F32, DT_F32, 2, false, false },
                 { DT_F32, DT_F32, 1, true, false } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        prog g;
        diag d = { 0 };
        prog_open(&g, &numerics_cpu);
        int64_t x = prog_in(&g, DT_F32, DIMS(3, 4), NULL), z = prog_in(&g, DT_F32, DIMS(4, 5), NULL),
                y = prog_out(&g, rows[i].y, DIMS(3, 5));
        int64_t sum = rows[i].inside ? prog_tensor(&g, DT_F32, SPACE_OUTPUT, 0, DIMS(1))
                                     : prog_out(&g, rows[i].sum, DIMS(rows[i].n));
        prog_insn(&g, IN_MATMUL_SQUARES, INTS(y, sum, x, z, 0), INTS(0, 0, 0), REALS(0));
        assert_int_equal(program_check(g.p, &d), rows[i].fine ? AN_OK : AN_INPUT);
        prog_close(&g);
    }
}

/* What is written over an operand that is still read depends on who reads in which order: only elements in step may. */
static void results_stand_apart(void **s)
{
    (void)s;
    enum { A, B, C, D, HALF, TURNED, TAIL, STACK, OTHER, KINDS }; /* the last five lie inside A, but for OTHER: B */
    const struct {
        insn_id op;
        int64_t t[8];
        uint32_t n_t;
        int64_t i[9];
        uint32_t n_i;
        double f[2];
        uint32_t n_f;
        const char *said; /* NULL: fine */
    } rows[] = {
#define CHAIN 6, FN_ADD, 0, 1, -1, -1, DT_F32
        { IN_EW, { A, 2, A, B }, 4, { CHAIN }, 7, { 0 }, 1, NULL },
        { IN_EW, { A, 2, B, A }, 4, { CHAIN }, 7, { 0 }, 1, NULL },
        { IN_EW, { A, 2, HALF, B }, 4, { CHAIN }, 7, { 0 }, 1, "y is written over in, which is still read" },
        { IN_EW, { A, 2, TURNED, TURNED }, 4, { CHAIN }, 7, { 0 }, 1, "y is written over in" },
        { IN_MATMUL, { C, A, B, 0 }, 4, { 0, 0, 0 }, 3, { 0 }, 1, NULL },
        { IN_MATMUL, { A, A, B, 0 }, 4, { 0, 0, 0 }, 3, { 0 }, 1, "y is written over x" },
        { IN_MATMUL, { A, B, A, 0 }, 4, { 0, 0, 0 }, 3, { 0 }, 1, "y is written over z" },
        { IN_MATMUL, { A, B, C, 1, A }, 5, { 0, 0, CHAIN }, 9, { 0 }, 1, "y is written over extra" },
        { IN_SOFTMAX, { A, A }, 2, { 1 }, 1, { 0 }, 0, "y is written over x" },
        { IN_NORM, { A, B, C, A }, 4, { 1, 1, NORM_LAYER }, 3, { 1e-5 }, 1, "y is written over bias" },
        { IN_CAST, { A, A }, 2, { 0 }, 0, { 0 }, 0, "y is written over x" },
        { IN_CUMSUM, { A, A }, 2, { 1, 0, 0 }, 3, { 0 }, 0, "y is written over x" },
        { IN_SORT, { A, D, A }, 3, { 1, 1, 4 }, 3, { 0 }, 0, "values is written over x" },
        { IN_ROPE, { STACK, STACK, B, C }, 4, { 1, 0 }, 2, { 1 }, 1, NULL },
        { IN_ROPE, { STACK, OTHER, A, C }, 4, { 1, 0 }, 2, { 1 }, 1, "y is written over cos" },
        { IN_MOVE, { A, A }, 2, { 1, 4, 0, 1, 1, 4, 1, 1, 0 }, 9, { 0 }, 0, NULL },
        { IN_MOVE, { A, TAIL }, 2, { 1, 4, 0, 1, 1, 0, 1, 1, 0 }, 9, { 0 }, 0, NULL },
        { IN_MOVE, { A, A }, 2, { 1, 4, 0, 1, 1, 3, 1, 1, 0 }, 9, { 0 }, 0, "y is written over x" },
        { IN_MOVE, { A, TAIL }, 2, { 1, 4, 5, 1, 1, 0, 1, 1, 0 }, 9, { 0 }, 0, "y is written over x" },
        { IN_MOVE, { A, A }, 2, { 1, 4, 7, 1, -1, 7, 1, 1, 0 }, 9, { 0 }, 0, "y is written over x" },
#undef CHAIN
    };
    for (size_t k = 0; k < COUNT(rows); k++) {
        prog g;
        prog_open(&g, &numerics_cpu);
        int64_t place[KINDS], t[8];
        for (int i = A; i <= C; i++) place[i] = prog_scratch(&g, DT_F32, DIMS(4, 4));
        place[D] = prog_scratch(&g, DT_I32, DIMS(4, 4));
        place[HALF] = prog_tensor(&g, DT_F32, SPACE_SCRATCH, 0, DIMS(1, 4));
        place[TURNED] = prog_tensor(&g, DT_F32, SPACE_SCRATCH, 0, DIMS(4, 1));
        place[TAIL] = prog_tensor(&g, DT_F32, SPACE_SCRATCH, 0, DIMS(2, 4));
        for (int i = STACK; i <= OTHER; i++) place[i] = prog_scratch(&g, DT_F32, DIMS(1, 4, 4));
        for (int i = HALF; i < KINDS; i++)
            g.p->tensors.at[place[i]].offset = i == TAIL ? 32 : g.p->tensors.at[place[i == OTHER ? B : A]].offset;
        memcpy(t, rows[k].t, sizeof t);
        const uint32_t list = rows[k].op == IN_EW ? 1 : rows[k].op == IN_MATMUL ? 3 : UINT32_MAX; /* a length */
        for (uint32_t i = 0; i < rows[k].n_t; i++)
            if (i != list) t[i] = place[t[i]];
        prog_insn(&g, rows[k].op, t, rows[k].n_t, rows[k].i, rows[k].n_i, rows[k].f, rows[k].n_f);
        diag d = { 0 };
        const an_status st = program_check(g.p, &d);
        if (rows[k].said ? st != AN_INPUT || !strstr(d.msg, rows[k].said) : st != AN_OK)
            fail_msg("row %zu: status %d, \"%s\", wanted %s", k, (int)st, d.msg, rows[k].said ? rows[k].said : "none");
        prog_close(&g);
    }
}

static void not_a_program(void **s)
{
    (void)s;
    program *p = NULL;
    diag d = { 0 };
    assert_int_equal(program_decode("", 0, &p, &d), AN_INPUT);
    char zeros[64] = { 0 };
    d = (diag){ 0 };
    assert_int_equal(program_decode(zeros, sizeof zeros, &p, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "not an engine program"));
    prog g;
    build(&g);
    strbuf b = encoded(&g);
    b.at[8]++;
    d = (diag){ 0 };
    assert_int_equal(program_decode(b.at, b.n, &p, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "version"));
    b.at[8]--, b.at[12] = 3;
    d = (diag){ 0 };
    assert_int_equal(program_decode(b.at, b.n, &p, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "3 in byte 12 of its header"));
    assert_null(strstr(d.msg, "version"));
    sb_free(&b);
    prog_close(&g);
}

static void table_prints(void **s)
{
    (void)s;
    static const char *const formats[] = { "text", "json", "markdown" };
    for (int k = 0; k < 3; k++) {
        strbuf b = { 0 };
        isa_print(&b, formats[k]);
        assert_non_null(strstr(b.at, "crop_resize"));
        assert_non_null(strstr(b.at, "width_offset"));
        sb_free(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),          cmocka_unit_test(damage_is_seen),
        cmocka_unit_test(malice_is_harmless),  cmocka_unit_test(each_wrong_thing),
        cmocka_unit_test(messages_show_both),  cmocka_unit_test(indices_have_entries),
        cmocka_unit_test(moves_stay_inside),   cmocka_unit_test(moves_end),
        cmocka_unit_test(windows_end),         cmocka_unit_test(squares_stand_apart),
        cmocka_unit_test(not_a_program),       cmocka_unit_test(table_prints),
        cmocka_unit_test(results_stand_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
