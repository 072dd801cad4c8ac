/* test_hwx_hostile.c: damaged program files: each is refused with what was seen and wanted, or read as what it is;
 * nothing else. */
#include "hwx/hwx.h"
#include "hwx_t.h"
#include "t.h"

static const uint16_t table[HWX_TABLE_WORDS] = { [41] = 0x40, [42] = 1 };

/* A file of our own; the bytes are the caller's to free. */
static unsigned char *file_of(const char *sample, size_t *n)
{
    arena a = { 0 };
    hwx_image im;
    diag d = { 0 };
    strbuf b = { 0 };
    assert_ok(hwx_sample(&a, sample, table, &im, &d), d);
    assert_ok(hwx_write(&im, &b, &d), d);
    arena_free(&a);
    *n = b.n;
    return (unsigned char *)b.at;
}

static void behaves(const unsigned char *p, size_t n, const char *what, size_t where, size_t *accepted)
{
    /* in a block of its own size, so that a sanitizer sees what reads past the end */
    unsigned char *own = malloc(n ? n : 1);
    bool ok;
    assert_non_null(own);
    memcpy(own, p, n);
    const char *bad = hwx_bytes_behave(own, n, &ok);
    if (bad) fail_msg("%s at 0x%zx: %s", what, where, bad);
    *accepted += ok;
    free(own);
}

static void truncated(void **s)
{
    (void)s;
    static const char *const names[] = { "sigmoid", "sum", "identity" };
    for (size_t i = 0; i < COUNT(names); i++) {
        size_t n, ok = 0;
        unsigned char *p = file_of(names[i], &n);
        for (size_t cut = 0; cut < n; cut += 64) behaves(p, cut, names[i], cut, &ok);
        assert_int_equal(ok, 0);
        free(p);
    }
}

/* Every byte of the front, and of the tasks, replaced by a few others. */
static void flipped(void **s)
{
    (void)s;
    static const char *const names[] = { "sigmoid", "concat", "identity" };
    static const unsigned char with[] = { 0x00, 0xff, 0x80, 0x7f };
    for (size_t i = 0; i < COUNT(names); i++) {
        size_t n, ok = 0, tried = 0;
        unsigned char *p = file_of(names[i], &n);
        hwx_file f;
        diag d = { 0 };
        assert_ok(hwx_read(p, n, &f, &d), d);
        size_t text = (size_t)(f.image.text - p), end = text + f.image.n_text, front = f.command_bytes + 2048;
        hwx_close(&f);
        for (size_t at = 0; at < end; at += at < front || at >= text ? 3 : 64) {
            unsigned char old = p[at], v = with[tried++ % COUNT(with)];
            if (v == old) continue;
            p[at] = v;
            behaves(p, n, names[i], at, &ok);
            p[at] = old;
        }
        print_message("%s: %zu damaged files, %zu of them still programs\n", names[i], tried, ok);
        assert_true(ok > 0 && ok < tried);
        free(p);
    }
}

static void random_words(void **s)
{
    (void)s;
    rng r = { .s = test_seed("test_hwx_hostile") };
    size_t n, ok = 0;
    unsigned char *p = file_of("concat", &n), *q = malloc(n);
    assert_non_null(q);
    for (int round = 0; round < 600; round++) {
        memcpy(q, p, n);
        for (uint64_t k = 0; k < 1 + rng_below(&r, 3); k++) {
            uint64_t at = 4 * rng_below(&r, (rng_below(&r, 4) ? 0x1200 : n) / 4),
                     v = rng_below(&r, 2) ? rng_next(&r) : (uint64_t)0 - rng_below(&r, 64);
            for (int b = 0; b < 4; b++) q[at + (unsigned)b] = (unsigned char)(v >> 8 * b);
        }
        behaves(q, n, "random words, round", (size_t)round, &ok);
    }
    free(p), free(q);
}

/* What the messages say. Offsets are those of `sum` in form 4.2.1. */
static void says_why(void **s)
{
    (void)s;
    static const struct {
        size_t at;
        uint32_t v;
        const char *want;
    } row[] = {
        { 0x00, 0xfeedfacf, "magic 0xfeedfacf, wanted 0xbeefface" },
        { 0x04, 7, "cpu type 0x7, wanted 0x80" },
        { 0x08, 2, "chip generation (cpu subtype) 2" },
        { 0x0c, 6, "file type 0x6, wanted 0x2" },
        { 0x10, 13, "load commands end at" },
        { 0x10, 0x7fffffff, "2147483647 load commands in" },
        { 0x14, 0xfffffff0, "bytes of load commands, but the file has" },
        { 0x24, 0x44, "wanted a multiple of 8" },
        { 0x24, 0x7ffffff8, "0x7ffffff8 bytes, wanted" },
        { 0x68 + 0x28, 0x40000000, "segment __TEXT: file bytes 0x40000000" },
        { 0x68 + 0x40, 3, "with 3 sections" },
        { 0x68 + 0x48 + 0x28, 0x10000, "section __TEXT,__text: 0x30000000 + 0x10000, outside" },
        { 0x68 + 0x48 + 0x3c, 0x10000000, "268435456 relocations" },
        { 0x318 + 0x08, 0x1000, "name of a binding at 0x1000" },
        { 0x318 + 0x10, 0x30004000, "no binding names it" },
        { 0x380 + 0x08, 2, "record of kind 2, wanted 1" },
        { 0x380 + 0x818, 0x9b, "task at 0x0: record 0x18017800 has 7 words, 6 are left" },
        { 0x380 + 0x81c, 2, "task 0 is the last, but the program has 2" },
        { 0x380 + 0x10, 0x30000100, "slot 0 (tasks) is 0x30000100" },
        { 0x380 + 0x18, 0x12345678, "slot 1 (kernel data) is 0x12345678" },
        { 0x380 + 0x30, 0, "in none of the slots" },
        { 0xbe8 + 0x2c, 100000, "0x61a7c2 bytes, but its segment has 0x4000" },
        { 0xbe8 + 0x24, 99, "element type 99" },
        { 0xbe8 + 0x14, 2, "record says 2" },
        { 0x4000 + 0x1c, 0x300, "EON 1 with next task at 0x300" },
        { 0x4000 + 0x254, 0xfc017800, "record 0xfc017800 has 64 words, 7 are left" },
    };
    size_t n;
    for (size_t i = 0; i < COUNT(row); i++) {
        unsigned char *p = file_of("sum", &n);
        for (unsigned b = 0; b < 4; b++) p[row[i].at + b] = (unsigned char)(row[i].v >> 8 * b);
        hwx_file f;
        diag d = { 0 };
        assert_int_equal(hwx_read(p, n, &f, &d), AN_INPUT);
        if (!strstr(d.msg, row[i].want))
            fail_msg("0x%zx = 0x%x: \"%s\", want \"%s\"", row[i].at, row[i].v, d.msg, row[i].want);
        hwx_close(&f);
        free(p);
    }
}

/* Other chips: the container is shown, the registers are not guessed, and nothing is written. */
static void other_generations(void **s)
{
    (void)s;
    static const unsigned char subtype[] = { 1, 3, 5, 6, 7, 9, 10 };
    for (size_t i = 0; i < COUNT(subtype); i++) {
        size_t n;
        unsigned char *p = file_of("sum", &n);
        hwx_file f;
        diag d = { 0 };
        strbuf text = { 0 }, out = { 0 };
        p[8] = subtype[i];
        assert_ok(hwx_read(p, n, &f, &d), d);
        assert_null(f.task);
        assert_int_equal(f.image.n_tensor, 3);
        hwx_dump(&f, "text", &text);
        assert_non_null(strstr(text.at, "not decoded"));
        assert_int_equal(hwx_write(&f.image, &out, &d), AN_UNSUPPORTED);
        sb_free(&text), sb_free(&out), hwx_close(&f), free(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(truncated), cmocka_unit_test(flipped),
                                        cmocka_unit_test(random_words), cmocka_unit_test(says_why),
                                        cmocka_unit_test(other_generations) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
