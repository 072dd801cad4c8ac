/* test_hwx.c: program files against the real ones (when they are here), against themselves, and against damage. */
#include <dirent.h>

#include <jansson.h>

#include "base/dtype.h"
#include "base/io.h"
#include "hwx/hwx.h"
#include "t.h"

#define REAL "../shared/data/hwx/"

/* The sigmoid record of the real program. */
static const uint16_t sigmoid[HWX_TABLE_WORDS] = {
    0xc8f8, 0x4829, 0x0000, 0x3c00, 0x0d7f, 0x1087, 0x1377, 0x1626, 0x1910, 0x1c2b, 0x1eda,
    0x21a0, 0x249b, 0x2781, 0x2a12, 0x2cdb, 0x2fa1, 0x31d6, 0x344e, 0x360a, 0x3800, 0x38fb,
    0x39d9, 0x3a8a, 0x3b0c, 0x3b65, 0x3b9f, 0x3bc4, 0x3bdb, 0x3be9, 0x3bf2, 0x3bf8, 0x3bfb,
    0x3bfd, 0x3bfe, 0x3bff, 0x3bff, 0x09ac, 0x170c, 0x163e, 0x3be6, 0x0001, 0x0001,
};

static bool real_file(const char *name, file_bytes *f)
{
    char path[256];
    diag d = { 0 };
    snprintf(path, sizeof path, REAL "%s", name);
    return !file_read(path, 1 << 24, f, &d);
}

static void sample_bytes(const char *name, strbuf *out)
{
    arena a = { 0 };
    hwx_image im;
    diag d = { 0 };
    assert_ok(hwx_sample(&a, name, sigmoid, &im, &d), d);
    assert_ok(hwx_write(&im, out, &d), d);
    arena_free(&a);
}

/* ---- the seven files ---- */

static void real_files_come_out_again(void **s)
{
    (void)s;
    for (size_t i = 0; i < hwx_sample_count(); i++) {
        char name[40];
        file_bytes f;
        hwx_file h;
        hwx_image im;
        diag d = { 0 };
        arena a = { 0 };
        strbuf again = { 0 }, made = { 0 };
        snprintf(name, sizeof name, "%s.hwx", hwx_sample_name(i));
        if (!real_file(name, &f)) continue;
        assert_ok(hwx_read(f.at, f.n, &h, &d), d);
        assert_ok(hwx_write(&h.image, &again, &d), d);
        assert_int_equal(again.n, f.n);
        assert_memory_equal(again.at, f.at, f.n);
        /* and from parameters: only the ident text and the kernels' names are taken over */
        assert_ok(hwx_sample(&a, hwx_sample_name(i), sigmoid, &im, &d), d);
        assert_int_equal(im.n_text, h.image.n_text);
        assert_memory_equal(im.text, h.image.text, im.n_text);
        assert_int_equal(im.n_kname, h.image.n_kname);
        im.ident = h.image.ident, im.kname = h.image.kname;
        assert_ok(hwx_write(&im, &made, &d), d);
        assert_int_equal(made.n, f.n);
        assert_memory_equal(made.at, f.at, f.n);
        print_message("%s: %zu bytes, read and written, and made from parameters\n", name, f.n);
        sb_free(&again), sb_free(&made), arena_free(&a), hwx_close(&h), file_drop(&f);
    }
}

static void every_task_of(const char *path, size_t *tasks)
{
    file_bytes f;
    diag d = { 0 };
    arena a = { 0 };
    hwx_task *t;
    size_t n;
    strbuf text = { 0 };
    assert_ok(file_read(path, 1 << 24, &f, &d), d);
    assert_ok(hwx_tasks_read(&a, f.at, f.n, HWX_TASK_BYTES, 0, &t, &n, &d), d);
    assert_ok(hwx_tasks_write(t, n, &text, &d), d);
    assert_true(text.n <= f.n);
    assert_memory_equal(text.at, f.at, text.n);
    for (size_t i = 0; i < n; i++) { /* linking again changes nothing */
        hwx_task before = t[i];
        assert_ok(hwx_tasks_link(t, n, &d), d);
        assert_memory_equal(before.head, t[i].head, sizeof before.head);
        assert_int_equal(before.at, t[i].at);
    }
    *tasks += n;
    sb_free(&text), arena_free(&a), file_drop(&f);
}

static void real_kernels(void **s)
{
    (void)s;
    static const char *const folder[] = { "activation", "binary", "unary" };
    size_t files = 0, tasks = 0;
    for (size_t i = 0; i < COUNT(folder); i++) {
        char path[512];
        snprintf(path, sizeof path, REAL "kernels/%s", folder[i]);
        DIR *dir = opendir(path);
        for (struct dirent *e; dir && (e = readdir(dir));) {
            if (!strstr(e->d_name, ".bin")) continue;
            snprintf(path, sizeof path, REAL "kernels/%s/%s", folder[i], e->d_name);
            every_task_of(path, &tasks);
            files++;
        }
        if (dir) closedir(dir);
    }
    if (!files) return;
    assert_int_equal(files, 36);
    assert_int_equal(tasks, 72);
}

/* conv and golden: one program, other weights. */
static void two_of_a_kind(void **s)
{
    (void)s;
    file_bytes a, b;
    if (!real_file("conv.hwx", &a)) return;
    assert_true(real_file("golden.hwx", &b));
    size_t differ = 0;
    assert_int_equal(a.n, b.n);
    for (size_t i = 0; i < a.n; i++) differ += a.at[i] != b.at[i];
    assert_int_equal(differ, 183);
    file_drop(&a), file_drop(&b);
}

/* ---- our own files ---- */

static void every_form_reads_back(void **s)
{
    (void)s;
    for (size_t i = 0; i < hwx_sample_count(); i++)
        for (size_t k = 0; hwx_form_at(k); k++) {
            arena a = { 0 };
            hwx_image im;
            hwx_file h;
            diag d = { 0 };
            strbuf one = { 0 }, two = { 0 };
            const char *what;
            assert_ok(hwx_sample(&a, hwx_sample_name(i), sigmoid, &im, &d), d);
            im.form = hwx_form_at(k);
            assert_ok(hwx_write(&im, &one, &d), d);
            assert_int_equal(one.n % HWX_PAGE, 0);
            assert_ok(hwx_read(one.at, one.n, &h, &d), d);
            if (!hwx_image_same(&im, &h.image, &what))
                fail_msg("%s as %s: %s differs", hwx_sample_name(i), im.form->name, what);
            assert_ok(hwx_write(&h.image, &two, &d), d);
            assert_int_equal(one.n, two.n);
            assert_memory_equal(one.at, two.at, one.n);
            sb_free(&one), sb_free(&two), hwx_close(&h), arena_free(&a);
        }
}

static void fields_of_the_samples(void **s)
{
    (void)s;
    static const struct {
        const char *name;
        int task;
        uint32_t addr, word;
    } want[] = {
        { "conv", 0, 0x1c, 0x5000a021 }, { "conv", 0, 0x34, 0x04144405 }, { "conv", 0, 0xc800, 0x82 }, { "conv", 0, 0xc804, 0x101c00 }, { "conv", 0, 0x13814, 0xc0 },
        { "gemm", 0, 0x1c, 0x5000b421 }, { "gemm", 0, 0x34, 0x00244405 }, { "gemm", 0, 0x4810, 0x2030 }, { "gemm", 0, 0x483c, 0x2020 }, { "gemm", 0, 0x1f848 + 4 * 15, 15 * 0x8000 },
        { "relu", 0, 0x34, 0x04010101 }, { "relu", 0, 0xc804, 0x11000c }, { "sigmoid", 0, 0xc804, 0x12000c }, { "sum", 0, 0x34, 0x33 }, { "sum", 0, 0x481c, 0x440 }, { "sum", 0, 0x4834, 0x860 },
        { "sum", 0, HWX_HEAD + 32, 0x00024966 }, { "concat", 0, 0x34, 0x04211101 }, { "concat", 1, 0x17804, 0x100000 }, { "concat", 1, 0x4804, 0x172 }, { "concat", 0, HWX_HEAD + 4, 0x009c0000 },
        { "concat", 1, HWX_HEAD + 0, 0x03000001 }, { "concat", 0, HWX_HEAD + 28, 0x300 }, { "concat", 0, HWX_HEAD + 32, 0x05824026 },
    };
    for (size_t i = 0; i < COUNT(want); i++) {
        strbuf b = { 0 };
        hwx_file h;
        diag d = { 0 };
        sample_bytes(want[i].name, &b);
        assert_ok(hwx_read(b.at, b.n, &h, &d), d);
        const uint32_t *w = hwx_word(&h.task[want[i].task], want[i].addr);
        assert_non_null(w);
        if (*w != want[i].word) fail_msg("%s 0x%x: 0x%x, want 0x%x", want[i].name, want[i].addr, *w, want[i].word);
        hwx_close(&h), sb_free(&b);
    }
}

/* ---- fields ---- */

static void fields_hold_their_values(void **s)
{
    (void)s;
    rng r = { .s = test_seed("test_hwx fields") };
    strbuf b = { 0 };
    hwx_file h;
    diag d = { 0 };
    sample_bytes("conv", &b);
    assert_ok(hwx_read(b.at, b.n, &h, &d), d);
    for (int f = 0; f < HWX_F_COUNT; f++) {
        uint32_t v, old;
        assert_true(hwx_get(&h.task[0], (hwx_field)f, 0, &old));
        assert_true(hwx_put(&h.task[0], (hwx_field)f, 0, 0));
        uint32_t put = 0;
        for (int i = 0; i < 32; i++) /* the greatest power of two that fits */
            if (hwx_put(&h.task[0], (hwx_field)f, 0, 1u << i)) put = 1u << i;
        assert_true(put);
        assert_true(hwx_get(&h.task[0], (hwx_field)f, 0, &v));
        assert_int_equal(v, put);
        assert_true(hwx_put(&h.task[0], (hwx_field)f, 0, old));
        (void)rng_next(&r);
    }
    strbuf text = { 0 };
    assert_ok(hwx_tasks_write(h.task, h.n_task, &text, &d), d);
    assert_memory_equal(text.at, h.image.text, text.n);
    assert_false(hwx_put(&h.task[0], HWX_F_KW, 0, 32));        /* five bits */
    assert_false(hwx_put(&h.task[0], HWX_F_SRC_STRIDE, 0, 32)); /* multiples of 64 */
    assert_false(hwx_put(&h.task[0], HWX_F_COEFF_EN, 62, 1));   /* beyond what the task writes */
    sb_free(&text), hwx_close(&h), sb_free(&b);
}

static void geometry_words(void **s)
{
    (void)s;
    static const struct {
        uint32_t subtype;
        hwx_geometry g;
        uint32_t word;
        an_status st;
    } row[] = {
        { 4, { .kw = 3, .kh = 3, .sx = 1, .sy = 1, .px = 1, .py = 1 }, 0x5042a063, AN_OK },
        { 5, { .kw = 3, .kh = 3, .sx = 1, .sy = 1, .px = 1, .py = 1 }, 0x5042a0c3, AN_OK },
        { 9, { .kw = 3, .kh = 3, .sx = 1, .sy = 1, .px = 1, .py = 1 }, 0x5042a0c3, AN_OK },
        { 4, { .kw = 1, .kh = 1, .sx = 1, .sy = 1, .ocg = 4 }, 0x5000b021, AN_OK },
        { 4, { .kw = 32, .kh = 1, .sx = 1, .sy = 1 }, 0, AN_UNSUPPORTED },
        { 5, { .kw = 32, .kh = 32, .sx = 1, .sy = 1 }, 0x5000a820, AN_OK },
        { 5, { .kw = 1, .kh = 1, .sx = 1, .sy = 1, .ocg = 4 }, 0, AN_UNSUPPORTED },
        { 1, { .kw = 1, .kh = 1, .sx = 1, .sy = 1 }, 0, AN_UNSUPPORTED },
        { 8, { .kw = 1, .kh = 1, .sx = 1, .sy = 1 }, 0, AN_UNSUPPORTED },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        diag d = { 0 };
        uint32_t w = 0;
        assert_int_equal(hwx_conv_word(row[i].subtype, &row[i].g, &w, &d), row[i].st);
        if (!row[i].st) assert_int_equal(w, row[i].word);
        else assert_true(d.msg[0]);
    }
}

/* ---- kernel data ---- */

static void packs_as_published(void **s)
{
    (void)s;
    static const struct {
        hwx_weights shape;
        uint32_t used, bytes, ocg, engines;
    } row[] = {
        { { 3, 3, 1, 1, 1, 1, false, false }, 3, 0x40, 0, 4 },        { { 512, 512, 1, 1, 1, 1, false, false }, 16, 0x8000, 5, 16 }, { { 64, 64, 3, 3, 8, 8, true, false }, 16, 0x1240, 2, 16 },
        { { 64, 64, 1, 1, 1, 1, false, false }, 16, 0x200, 2, 16 },   { { 8, 8, 3, 3, 16, 16, false, false }, 8, 0xc0, 0, 8 },       { { 4, 8, 1, 1, 1, 1, false, false }, 4, 0x40, 0, 4 },
        { { 768, 1, 1, 1, 1, 1, false, false }, 16, 0x80, 5, 16 },    { { 512, 4, 1, 1, 9, 1, false, false }, 16, 0x100, 4, 16 },
        { { 512, 512, 1, 1, 1, 1, false, true }, 16, 0x8000, 4, 16 }, { { 128, 4, 1, 1, 1, 1, false, true }, 16, 0x40, 3, 16 },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        diag d = { 0 };
        strbuf b = { 0 };
        hwx_streams st;
        size_t n = (size_t)(row[i].shape.cout * row[i].shape.cin * row[i].shape.kh * row[i].shape.kw);
        uint16_t *w = calloc(n + (size_t)row[i].shape.cout, 2);
        assert_non_null(w);
        assert_ok(hwx_pack(&row[i].shape, w, w + n, &b, &st, &d), d);
        assert_int_equal(st.n_used, row[i].used);
        assert_int_equal(st.bytes[0], row[i].bytes);
        assert_int_equal(st.ocg, row[i].ocg);
        assert_int_equal(st.engines, row[i].engines);
        assert_int_equal(b.n, row[i].used * row[i].bytes);
        free(w), sb_free(&b);
    }
}

static void unpack_is_the_inverse(void **s)
{
    (void)s;
    rng r = { .s = test_seed("test_hwx pack") };
    for (int round = 0; round < 40; round++) {
        hwx_weights shape = { .cout = 1 + (int64_t)(rng_next(&r) % 700),
                              .cin = 1 + (int64_t)(rng_next(&r) % 20),
                              .kh = 1 + (int64_t)(rng_next(&r) % 3),
                              .kw = 1 + (int64_t)(rng_next(&r) % 3),
                              .hin = 1 + (int64_t)(rng_next(&r) % 12),
                              .win = 1 + (int64_t)(rng_next(&r) % 12),
                              .bias = rng_next(&r) % 2,
                              .product = rng_next(&r) % 2 };
        size_t n = (size_t)(shape.cout * shape.cin * shape.kh * shape.kw), all = n + (size_t)shape.cout;
        uint16_t *w = calloc(all, 2), *back = calloc(all, 2);
        strbuf b = { 0 };
        hwx_streams st;
        diag d = { 0 };
        assert_true(w && back);
        for (size_t i = 0; i < all; i++) w[i] = (uint16_t)rng_next(&r);
        sb_putn(&b, (const char[64]){ 0 }, 64); /* streams need not start at 0 */
        assert_ok(hwx_pack(&shape, w, w + n, &b, &st, &d), d);
        assert_int_equal(st.at[0], 64);
        assert_ok(hwx_unpack(&shape, (unsigned char *)b.at, b.n, &st, back, back + n, &d), d);
        assert_memory_equal(w, back, n * 2);
        if (shape.bias) assert_memory_equal(w + n, back + n, (all - n) * 2);
        st.at[st.n_used - 1] += 64; /* past the end */
        assert_int_equal(hwx_unpack(&shape, (unsigned char *)b.at, b.n, &st, back, back + n, &d), AN_INPUT);
        free(w), free(back), sb_free(&b);
    }
}

/* ---- tasks ---- */

/* Padding between records, and the word that names the task to wait for. */
static void tasks_with_extras(void **s)
{
    (void)s;
    uint32_t word[3] = { 7, 8, 9 };
    hwx_regs rec[] = { { .addr = 0x4800, .n = 3, .word = word },
                       { 0 },
                       { .addr = 0xc804, .n = 1, .word = word },
                       { .addr = 0xc804, .n = 1, .word = word + 2 } };
    hwx_task t[2] = { { .has_wait = true, .wait = 5, .rec = rec, .n_rec = COUNT(rec) }, { .rec = rec, .n_rec = 1 } },
             *back;
    arena a = { 0 };
    diag d = { 0 };
    strbuf text = { 0 };
    size_t n;
    assert_ok(hwx_tasks_link(t, 2, &d), d);
    assert_int_equal(t[1].at, 0x100);
    assert_ok(hwx_tasks_write(t, 2, &text, &d), d);
    assert_ok(hwx_tasks_read(&a, (unsigned char *)text.at, text.n, t[0].bytes, 2, &back, &n, &d), d);
    assert_true(back[0].has_wait && !back[1].has_wait);
    assert_int_equal(back[0].wait, 5);
    assert_int_equal(back[0].n_rec, COUNT(rec));
    assert_int_equal(back[0].rec[1].n, 0);
    assert_int_equal(hwx_value(&back[0], HWX_F_OP_MODE, 0), 9 & 7); /* the last write stands */
    assert_int_equal(hwx_word_at(&back[0], 0x4808), 40 + 4 + 4 + 8);
    assert_null(hwx_word(&back[1], 0xc804)); /* absent, not zero */
    assert_null(hwx_word(&back[0], 0x480c));
    sb_free(&text), arena_free(&a);
}

/* ---- encoding ---- */

static void encode_refuses(void **s)
{
    (void)s;
    hwx_streams st;
    hwx_table_streams(1, 0, &st);
#define L .c = 4, .h = 4, .w = 4, .src = 5, .dst = 4
    static const char *const want[] = { "width 0",        "channels 131072",
                                        "result slot 32", "without kernel streams",
                                        "share a stream", "kernel streams go with",
                                        "does not fit",   "Kw 32" };
    const hwx_layer row[] = {
        { .kind = HWX_PASS, .c = 1, .h = 1, .w = 0, .src = 5, .dst = 4 },
        { .kind = HWX_PASS, .c = 131072, .h = 1, .w = 1, .src = 5, .dst = 4 },
        { .kind = HWX_PASS, .c = 1, .h = 1, .w = 1, .src = 5, .dst = 32 },
        { .kind = HWX_CONV, L, .cout = 4, .hout = 4, .wout = 4, .conv = { 1, 1, 0, 1, 1, 0, 0 } },
        { .kind = HWX_CONV, L, .cout = 4, .hout = 4, .wout = 4, .conv = { 1, 1, 0, 1, 1, 0, 0 }, .nonlinear = HWX_TABLE, .streams = &st },
        { .kind = HWX_PLANAR, L, .streams = &st },
        { .kind = HWX_PASS, .c = 4096, .h = 1024, .w = 1024, .src = 5, .dst = 4 }, /* 8 GB: strides have 32 bits */
        { .kind = HWX_CONV, L, .cout = 4, .hout = 4, .wout = 4, .conv = { 32, 1, 0, 1, 1, 0, 0 }, .streams = &st },
    };
#undef L
    for (size_t i = 0; i < COUNT(row); i++) {
        arena a = { 0 };
        diag d = { 0 };
        hwx_task *t;
        an_status got = hwx_encode(&a, hwx_form_named("4.2.1"), &row[i], 1, &t, &d);
        assert_true(got == AN_INPUT || got == AN_UNSUPPORTED);
        if (!strstr(d.msg, want[i])) fail_msg("row %zu says: %s", i, d.msg);
        arena_free(&a);
    }
}

/* Out of memory at any allocation is a clean error. */
static void encode_without_memory(void **s)
{
    (void)s;
    for (size_t limit = 1;; limit += 997) {
        arena a = { .limit = limit };
        diag d = { 0 };
        hwx_image im;
        an_status st = hwx_sample(&a, "sigmoid", sigmoid, &im, &d);
        arena_free(&a);
        if (!st) break;
        assert_int_equal(st, AN_NOMEM);
        assert_true(limit < 1 << 20);
    }
}

/* ---- printing ---- */

static void dumps(void **s)
{
    (void)s;
    for (size_t i = 0; i < hwx_sample_count(); i++) {
        strbuf b = { 0 }, text = { 0 }, json = { 0 };
        hwx_file h;
        diag d = { 0 };
        size_t lines = 0, words = 0;
        sample_bytes(hwx_sample_name(i), &b);
        assert_ok(hwx_read(b.at, b.n, &h, &d), d);
        hwx_dump(&h, "text", &text);
        assert_non_null(strstr(text.at, "ConvCfg"));
        hwx_dump(&h, "json", &json);
        for (char *p = json.at, *end; (end = strchr(p, '\n')); p = end + 1, lines++) {
            *end = 0;
            json_error_t e;
            json_t *o = json_loads(p, 0, &e);
            if (!o) fail_msg("%s: %s", p, e.text);
            words += !strcmp(json_string_value(json_object_get(o, "kind")), "register");
            json_decref(o);
        }
        size_t want = 0;
        for (size_t t = 0; t < h.n_task; t++)
            for (size_t k = 0; k < h.task[t].n_rec; k++) want += h.task[t].rec[k].n;
        assert_int_equal(words, want);
        assert_true(lines > words);
        sb_free(&b), sb_free(&text), sb_free(&json), hwx_close(&h);
    }
    strbuf b = { 0 };
    hwx_fields_print(&b, "markdown");
    assert_non_null(strstr(b.at, "| 9:5 | `Kh` |"));
    sb_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(real_files_come_out_again), cmocka_unit_test(real_kernels), cmocka_unit_test(two_of_a_kind), cmocka_unit_test(every_form_reads_back), cmocka_unit_test(fields_of_the_samples),
        cmocka_unit_test(fields_hold_their_values), cmocka_unit_test(geometry_words), cmocka_unit_test(packs_as_published), cmocka_unit_test(unpack_is_the_inverse), cmocka_unit_test(tasks_with_extras), cmocka_unit_test(encode_refuses),
        cmocka_unit_test(encode_without_memory), cmocka_unit_test(dumps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
