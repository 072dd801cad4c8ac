/* test_packs.c: packed constants that several images share: each computes what it computes with a packing of its
 * own, the memory is taken once, and it stays as long as one of them does. */
#include "codegen_t.h"

#define PATH "@model_path/weights/weight.bin"
enum { M = 40, K = 64, RECORDS = 2, MOST = 9 };

typedef struct {
    uint64_t offset;
    unsigned char *at;
    size_t n;
    bool back;
} loan;

typedef struct {
    blob_writer w;
    uint64_t at[RECORDS];
    loan loans[200];
    size_t n;
} lender;

static an_status lend(void *user, const char *path, uint64_t offset, dtype type, uint64_t bytes,
                      const unsigned char **at, diag *d)
{
    lender *l = user;
    const unsigned char *record;
    (void)path;
    TRY(cgt_record(&l->w.bytes, offset, type, bytes, &record, d));
    assert_true(l->n < COUNT(l->loans));
    loan *x = &l->loans[l->n++];
    *x = (loan){ .offset = offset, .at = malloc(bytes), .n = bytes };
    assert_non_null(x->at);
    memcpy(x->at, record, bytes);
    *at = x->at;
    return AN_OK;
}

/* What comes back is no longer what it was: who still reads it computes something else. */
static void take_back(void *user, const char *path, uint64_t offset)
{
    lender *l = user;
    (void)path;
    for (size_t i = 0; i < l->n; i++)
        if (l->loans[i].offset == offset && !l->loans[i].back) {
            memset(l->loans[i].at, 0x3b, l->loans[i].n);
            l->loans[i].back = true;
            return;
        }
    fail_msg("the record at %llu came back more often than it was lent", (unsigned long long)offset);
}

/* After the images: how many loans are still out. */
static size_t settle(lender *l)
{
    size_t out = 0;
    for (size_t i = 0; i < l->n; i++) out += !l->loans[i].back, free(l->loans[i].at);
    l->n = 0;
    return out;
}

/* Two matrices [K, M]: numbers whose sums pass what a port of a chip can say, and an infinity. */
static void lender_fill(lender *l, uint64_t seed)
{
    rng r = { seed };
    diag d = { 0 };
    *l = (lender){ 0 };
    for (int i = 0; i < RECORDS; i++) {
        uint16_t x[K * M];
        for (size_t k = 0; k < COUNT(x); k++) x[k] = f16_from_f64((k % M < 4 ? 9000 : 1) * rng_normal(&r));
        if (i) x[7] = 0x7c00;
        assert_ok(blob_add(&l->w, DT_F16, x, sizeof x, &l->at[i], &d), d);
    }
    assert_ok(blob_finish(&l->w, &d), d);
}

/* n rows by either, and by a matrix of the program's own, which nobody else has. */
static program *made(const lender *l, int64_t n, const numerics *num)
{
    strbuf b = { 0 };
    sb_printf(&b,
              "graph \"p\"\nx = input fp16[%d, %d]\na = const fp16[%d, %d] blob \"" PATH
              "\" %llu\nb = const fp16[%d, %d] blob \"" PATH "\" %llu\n",
              (int)n, (int)K, (int)K, (int)M, (unsigned long long)l->at[0], (int)K, (int)M,
              (unsigned long long)l->at[1]);
    sb_puts(&b,
            "c = const fp16[64, 40] all 0.25\ny = matmul(x, a)\nz = matmul(x, b)\nu = matmul(x, c)\nreturn y, z, u\n");
    graph *g = cgt_parse(b.at);
    program *p = cgt_compile(g, &(codegen_options){ .num = num, .final = true });
    graph_free(g);
    sb_free(&b);
    return p;
}

typedef struct {
    uint16_t y[3][MOST * M];
} result;

static image *loaded_as(const program *p, lender *l, pack_store *packs, const void *owner, int fast)
{
    diag d = { 0 };
    image *im;
    weight_source src = { .record = lend, .done = take_back, .user = l };
    assert_ok(image_load(&im, p, &src, &(image_options){ .packs = packs, .pack_owner = owner, .fast_math = fast }, &d),
              d);
    return im;
}

static image *loaded(const program *p, lender *l, pack_store *packs, const void *owner)
{
    return loaded_as(p, l, packs, owner, FAST_NONE);
}

static result run(image *im, const uint16_t *x)
{
    diag d = { 0 };
    result r = { 0 };
    assert_ok(image_run(im, (const void *const[]){ x }, (void *const[]){ r.y[0], r.y[1], r.y[2] }, &d), d);
    return r;
}

static void same(const result *a, const result *b, const char *what)
{
    for (int i = 0; i < 3; i++)
        if (memcmp(a->y[i], b->y[i], sizeof a->y[i])) fail_msg("%s: product %d has other bits", what, i);
}

static void shared(void **state)
{
    (void)state;
    enum { FEW = 1024 }; /* bytes that finding what is shared takes */
    static const char *const chips[] = { NULL, "m1", "m4", "m5" };
    static const int64_t rows[] = { 1, 9, 4 };
    uint16_t x[MOST * K];
    rng r = { test_seed("packs") };
    for (size_t i = 0; i < COUNT(x); i++) x[i] = f16_from_f64(rng_normal(&r));
    for (size_t c = 0; c < COUNT(chips); c++) {
        numerics num = numerics_cpu;
        if (chips[c]) assert_true(codegen_numerics(chip_find(chips[c]), &num));
        lender mine, theirs;
        lender_fill(&mine, 1), lender_fill(&theirs, 2);
        program *p[COUNT(rows)];
        result want[COUNT(rows)], other, got;
        image *im[COUNT(rows)];
        uint64_t alone[COUNT(rows)];
        for (size_t i = 0; i < COUNT(rows); i++) {
            p[i] = made(&mine, rows[i], &num);
            im[0] = loaded(p[i], &mine, NULL, &mine);
            want[i] = run(im[0], x), alone[i] = image_bytes(im[0]);
            image_free(im[0]);
            /* a chip looks at the original where something is infinite */
            assert_int_equal(settle(&mine), chips[c] ? 2 : 0);
        }
        im[0] = loaded(p[1], &theirs, NULL, &theirs);
        other = run(im[0], x);
        image_free(im[0]);
        assert_true(memcmp(&other, &want[1], sizeof other) != 0);
        pack_store *packs = pack_store_new();
        assert_non_null(packs);
        for (int turn = 0; turn < 2; turn++) { /* the second: all that was shared is gone, and made anew */
            for (size_t i = 0; i < COUNT(rows); i++) im[i] = loaded(p[i], &mine, packs, &mine);
            for (size_t i = 1; i < COUNT(rows); i++)
                if (image_bytes(im[i]) + 2 * 2 * K * M > alone[i] + FEW)
                    fail_msg("%s: %d rows hold %llu bytes, alone %llu", chips[c] ? chips[c] : "cpu", (int)rows[i],
                             (unsigned long long)image_bytes(im[i]), (unsigned long long)alone[i]);
            assert_true(image_bytes(im[0]) + 2 * K * M > alone[0]); /* who packed them counts them */
            image *its = loaded(p[1], &theirs, packs, &theirs); /* the same records of another owner */
            got = run(its, x), same(&got, &other, "another owner");
            for (size_t i = 0; i < COUNT(rows); i++) { /* the first goes first: it packed them */
                for (size_t k = i; k < COUNT(rows); k++)
                    got = run(im[k], x), same(&got, &want[k], chips[c] ? chips[c] : "cpu");
                image_free(im[i]);
            }
            got = run(its, x), same(&got, &other, "another owner, left alone");
            image_free(its);
        }
        pack_store_free(packs);
        settle(&mine), settle(&theirs);
        for (size_t i = 0; i < COUNT(rows); i++) program_free(p[i]);
        sb_free(&mine.w.bytes), sb_free(&theirs.w.bytes);
    }
}

/* ---- what is nearly the same ---- */

enum { SIDE = 64, MANY = 12, PLACES = 7 };

/* Records: a matrix [SIDE, SIDE], codes for one, two rows of scales; a matrix of fp32; codes of four bits, and
 * scales for blocks of 32 of them. */
static void records(blob_writer *w, uint64_t at[PLACES])
{
    rng r = { 3 };
    diag d = { 0 };
    uint16_t x[SIDE * SIDE], s[2][SIDE], blocks[SIDE * SIDE / 32];
    float wide[SIDE * SIDE];
    int8_t q[SIDE * SIDE];
    for (size_t i = 0; i < COUNT(x); i++)
        x[i] = f16_from_f64(rng_normal(&r)), q[i] = (int8_t)((int)rng_below(&r, 256) - 128),
        wide[i] = (float)rng_normal(&r);
    for (size_t i = 0; i < COUNT(blocks); i++) blocks[i] = f16_from_f64(rng_range(&r, 0.01, 0.1));
    for (int i = 0; i < SIDE; i++)
        s[0][i] = f16_from_f64(rng_range(&r, 0.01, 0.1)), s[1][i] = f16_from_f64(rng_range(&r, 0.01, 0.1));
    assert_ok(blob_add(w, DT_F16, x, sizeof x, &at[0], &d), d);
    assert_ok(blob_add(w, DT_I8, q, sizeof q, &at[1], &d), d);
    for (int i = 0; i < 2; i++) assert_ok(blob_add(w, DT_F16, s[i], sizeof s[i], &at[2 + i], &d), d);
    assert_ok(blob_add(w, DT_F32, wide, sizeof wide, &at[4], &d), d);
    assert_ok(blob_add(w, DT_I4, q, sizeof q / 2, &at[5], &d), d);
    assert_ok(blob_add(w, DT_F16, blocks, sizeof blocks, &at[6], &d), d);
    assert_ok(blob_finish(w, &d), d);
}

#define FOURS "q = const int4[64, 64] @5\ns = const fp16[64, 2] @6\nw = constexpr_blockwise_shift_scale(q, s)\n"

/* Each product has the bits it has in an image that shares nothing. '@k' stands for record k. */
static void told_apart(void **state)
{
    (void)state;
    static const char *const rows[][2] = { /* one program, and the one that comes after it */
        { "a = const fp16[64, 64] @0\nlo = slice_by_size(a) {begin=[0, 0], size=[32, 64]}\nhi = slice_by_size(a) {begin=[32, 0], size=[32, 64]}\n"
          "half = slice_by_size(x) {begin=[0, 0], size=[12, 32]}\ny = matmul(half, lo)\nz = matmul(half, hi)\nreturn y, z\n", NULL },
        { "a = const fp16[64, 64] @0\ny = matmul(x, a)\nz = matmul(x, a) {transpose_y=true}\nreturn y, z\n", NULL },
        { "q = const int8[64, 64] @1\ns = const fp16[64] @2\nt = const fp16[64] @3\no = const int8[] {0}\nv = constexpr_affine_dequantize(q, s, o) {axis=0}\n"
          "w = constexpr_affine_dequantize(q, t, o) {axis=0}\ny = matmul(x, v)\nz = matmul(x, w)\nreturn y, z\n", NULL },
        { "q = const int8[64, 64] @1\ns = const fp16[64] @2\no = const int8[] {0}\nv = constexpr_affine_dequantize(q, s, o) {axis=0}\n"
          "w = constexpr_affine_dequantize(q, s, o) {axis=1}\ny = matmul(x, v)\nz = matmul(x, w)\nreturn y, z\n", NULL },
        { "q = const int8[64, 64] @1\ns = const fp16[64] @2\no = const int8[] {0}\np = const int8[] {3}\nv = constexpr_affine_dequantize(q, s, o) {axis=0}\n"
          "w = constexpr_affine_dequantize(q, s, p) {axis=0}\ny = matmul(x, v)\nz = matmul(x, w)\nreturn y, z\n", NULL },
        { "q = const int8[64, 64] @1\ns = const fp16[64, 1] @2\nt = const fp16[1, 64] @2\nv = constexpr_blockwise_shift_scale(q, s)\nw = constexpr_blockwise_shift_scale(q, t)\n"
          "y = matmul(x, v)\nz = matmul(x, w)\nreturn y, z\n", NULL },
        { "a = const fp16[16, 16, 1, 16] @0\nx4 = reshape(x) {shape=[1, 16, 1, 48]}\ny = conv(x4, a)\nz = conv_transpose(x4, a)\nreturn y, z\n", NULL },
        { "a = const fp16[64, 64] all 0.5\ny = matmul(x, a)\nreturn y\n", "a = const fp16[64, 64] all 0.25\ny = matmul(x, a)\nreturn y\n" },
        { FOURS "y = matmul(x, w) {transpose_y=true}\nreturn y\n", FOURS "one = slice_by_size(x) {begin=[3, 0], size=[1, 64]}\ny = matmul(one, w) {transpose_y=true}\nreturn y\n" },
        { "q = const int8[64, 64] @1\ns = const fp16[64] @2\no = const int8[] {0}\nv = constexpr_affine_dequantize(q, s, o) {axis=0}\none = slice_by_size(x) {begin=[3, 0], size=[1, 64]}\n"
          "y = matmul(x, v) {transpose_y=true}\nz = matmul(one, v) {transpose_y=true}\nreturn y, z\n", NULL }, /* expanded and packed, and as it is stored */
        { "w = const fp32[64, 64] @4\nh = cast(w) {dtype=\"fp16\"}\ny = matmul(x, h)\nv = cast(x) {dtype=\"fp32\"}\nz = matmul(v, w)\nreturn y, z\n", NULL },
    };
    static const struct {
        const char *chip;
        int fast;
    } kinds[] = { { NULL, FAST_NONE }, { NULL, FAST_BF16 }, { "m1", FAST_NONE }, { "m4", FAST_NONE } };
    lender l = { 0 };
    uint64_t at[PLACES];
    records(&l.w, at);
    uint16_t x[MANY * SIDE];
    rng r = { test_seed("told apart") };
    for (size_t i = 0; i < COUNT(x); i++) x[i] = f16_from_f64(rng_normal(&r));
    for (size_t c = 0; c < COUNT(kinds); c++)
        for (size_t i = 0; i < COUNT(rows); i++) {
            const char *on = kinds[c].chip;
            numerics num = numerics_cpu;
            if (on && i == COUNT(rows) - 1) continue; /* fp32 products */
            if (on) assert_true(codegen_numerics(chip_find(on), &num));
            pack_store *packs = pack_store_new();
            image *im[2] = { NULL, NULL };
            program *p[2] = { NULL, NULL };
            assert_non_null(packs);
            for (int k = 0; k < 2 && rows[i][k]; k++) {
                strbuf b = { 0 };
                sb_puts(&b, "graph \"t\"\nx = input fp16[12, 64]\n");
                for (const char *s = rows[i][k]; *s; s++)
                    if (*s == '@') sb_printf(&b, "blob \"" PATH "\" %llu", (unsigned long long)at[*++s - '0']);
                    else sb_putc(&b, *s);
                graph *g = cgt_parse(b.at);
                p[k] = cgt_compile(g, &(codegen_options){ .level = 1, .num = &num, .final = true });
                uint16_t got[2][8192] = { 0 }, want[2][8192] = { 0 };
                for (size_t o = 0; o < p[k]->outputs.n; o++) assert_true(p[k]->outputs.at[o].bytes <= sizeof *got);
                diag d = { 0 };
                image *alone = loaded_as(p[k], &l, NULL, &l, kinds[c].fast);
                im[k] = loaded_as(p[k], &l, packs, &l, kinds[c].fast);
                assert_ok(image_run(alone, (const void *const[]){ x }, (void *const[]){ want[0], want[1] }, &d), d);
                assert_ok(image_run(im[k], (const void *const[]){ x }, (void *const[]){ got[0], got[1] }, &d), d);
                if (memcmp(got, want, sizeof got))
                    fail_msg("row %zu on %s: other bits than alone\n%s", i, on ? on : "cpu", b.at);
                image_free(alone);
                graph_free(g);
                sb_free(&b);
            }
            image_free(im[0]), image_free(im[1]);
            program_free(p[0]), program_free(p[1]);
            pack_store_free(packs);
            settle(&l);
        }
    sb_free(&l.w.bytes);
}

/* What may be reloaded is nobody else's; what was let go cannot be. */
static void reloaded(void **state)
{
    (void)state;
    diag d = { 0 };
    lender mine, other;
    lender_fill(&mine, 1), lender_fill(&other, 2);
    program *p = made(&mine, 9, &numerics_cpu);
    uint16_t x[MOST * K];
    rng r = { test_seed("reloaded") };
    for (size_t i = 0; i < COUNT(x); i++) x[i] = f16_from_f64(rng_normal(&r));
    pack_store *packs = pack_store_new();
    assert_non_null(packs);
    weight_source first = { .record = lend, .user = &mine }, second = { .record = lend, .user = &other };
    image *im[2], *gone;
    for (int i = 0; i < 2; i++)
        assert_ok(image_load(&im[i], p, &first, &(image_options){ .packs = packs, .pack_owner = &mine }, &d), d);
    result was = run(im[0], x), now;
    assert_ok(image_reload(im[1], &second, &d), d);
    now = run(im[0], x), same(&now, &was, "beside one that was reloaded");
    now = run(im[1], x);
    assert_true(memcmp(&now, &was, sizeof now) != 0);
    gone = loaded(p, &mine, packs, &mine);
    assert_int_equal(image_reload(gone, &second, &d), AN_UNSUPPORTED);
    assert_non_null(strstr(d.msg, "let go"));
    now = run(gone, x), same(&now, &was, "one that was refused");
    image_free(im[0]), image_free(im[1]), image_free(gone);
    pack_store_free(packs);
    settle(&mine), settle(&other);
    program_free(p);
    sb_free(&mine.w.bytes), sb_free(&other.w.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(shared), cmocka_unit_test(told_apart),
                                        cmocka_unit_test(reloaded) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
