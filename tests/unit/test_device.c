/* The device folder beyond the conformance suite: device strings, layouts, running a program once with tensors by
 * name, and the program cache of a device on disk. */
#include <unistd.h>

#include "conform.h"
#include "seal.h"

/* ---- device strings ---- */

static void strings(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        an_status st;
        const char *opens; /* or part of the message */
    } rows[] = {
        { "soft:m1", AN_OK, "soft:m1" },   { "soft:M5", AN_OK, "soft:m5" }, { "soft:h13", AN_OK, "soft:m1" }, { "soft:h17s", AN_OK, "soft:m5" },
        { "cpu", AN_OK, "cpu" },           { "null", AN_OK, "null" },       { "", AN_OK, "cpu" },             { NULL, AN_OK, "cpu" },
        { "soft:m9", AN_USAGE, "m9" },     { "soft", AN_USAGE, "soft" },    { "soft:", AN_USAGE, "chip" },    { "cpu:fast", AN_USAGE, "cpu:fast" },
        { "nothing", AN_USAGE, "nothing" }, { "CPU", AN_USAGE, "CPU" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        device *dev;
        diag d = { 0 };
        assert_int_equal(device_open(&dev, rows[i].name, &(device_options){ .threads = 1 }, &d), rows[i].st);
        if (rows[i].st) {
            assert_null(dev);
            assert_non_null(strstr(d.msg, rows[i].opens));
        } else assert_string_equal(device_name(dev), rows[i].opens);
        if (rows[i].name && *rows[i].name) assert_int_equal(device_known(rows[i].name), !rows[i].st);
        device_close(dev);
    }
    device_info info;
    size_t n = 0;
    for (; device_list(n, &info); n++) assert_true(info.name && info.what);
    assert_int_equal(n, 3);
}

static void every_chip_opens(void **state)
{
    (void)state;
    static const char *const chips[] = { "m1",   "m2",   "m3",   "m4",  "m5",   "h13g",
                                         "h14c", "h15g", "h16s", "h17", "h17d", "h18" };
    for (size_t i = 0; i < COUNT(chips); i++) {
        char name[32];
        device *dev;
        diag d = { 0 };
        snprintf(name, sizeof name, "soft:%s", chips[i]);
        assert_ok(device_open(&dev, name, &(device_options){ .threads = 1 }, &d), d);
        assert_string_equal(device_name(dev), name);
        dev_program *p = must_compile(dev, STATE_TEXT, NULL);
        bound b = must_bind(dev, p);
        assert_ok(device_run(b.r, DEV_QOS, &d), d);
        assert_true(get_f16(b.s[1][0], 0) == 1);
        drop_bound(&b);
        dev_program_free(p);
        close_clean(dev);
    }
}

static void limits_table(void **state)
{
    (void)state;
    static const char *const formats[] = { "text", "json", "markdown" };
    for (size_t i = 0; i < COUNT(formats); i++) {
        strbuf b = { 0 };
        device_limits_print(&b, formats[i]);
        assert_non_null(strstr(b.at, "compiles"));
        assert_non_null(strstr(b.at, "surface_min"));
        assert_non_null(strstr(b.at, "119"));
        sb_free(&b);
    }
}

/* ---- layout ---- */

static void row_steps(void **state)
{
    (void)state;
    static const struct {
        int64_t dim[4], step[4];
        uint64_t bytes;
    } rows[] = {
        { { 1, 3, 1, 1 }, { 192, 64, 64, 2 }, 192 },      /* published: n 192, c 64, h 64, w 2 */
        { { 1, 64, 1, 1 }, { 4096, 64, 64, 2 }, 4096 },   /* n 4096 */
        { { 1, 1, 1, 77 }, { 192, 192, 192, 2 }, 192 },   /* row 192 */
        { { 1, 8, 16, 32 }, { 8192, 1024, 64, 2 }, 8192 }, /* s8192n s1024c s64h s2w */
        { { 2, 2, 3, 33 }, { 768, 384, 128, 2 }, 1536 },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        dev_port p = { .name = "x", .dt = DT_F16, .rank = 4 };
        memcpy(p.dim, rows[i].dim, sizeof rows[i].dim);
        int64_t step[8], n = 1;
        uint64_t bytes;
        assert_true(dev_surface_steps(&p, 64, step, &bytes));
        assert_int_equal(bytes, rows[i].bytes);
        assert_memory_equal(step, rows[i].step, sizeof rows[i].step);
        for (int k = 0; k < 4; k++) n *= p.dim[k];
        p.bytes = (uint64_t)n * 2;
        uint16_t *packed = malloc((size_t)p.bytes), *back = malloc((size_t)p.bytes), *wide = calloc(1, (size_t)bytes);
        assert_true(packed && back && wide);
        for (int64_t k = 0; k < n; k++) packed[k] = (uint16_t)(k * 7 + 1);
        dev_surface_unpack(&p, 64, packed, wide);
        int64_t a[4], k = 0;
        for (a[0] = 0; a[0] < p.dim[0]; a[0]++)
            for (a[1] = 0; a[1] < p.dim[1]; a[1]++)
                for (a[2] = 0; a[2] < p.dim[2]; a[2]++)
                    for (a[3] = 0; a[3] < p.dim[3]; a[3]++, k++)
                        assert_int_equal(wide[(a[0] * step[0] + a[1] * step[1] + a[2] * step[2] + a[3] * step[3]) / 2],
                                         packed[k]);
        dev_surface_pack(&p, 64, wide, back);
        assert_memory_equal(packed, back, p.bytes);
        free(packed);
        free(back);
        free(wide);
        assert_true(dev_surface_steps(&p, 0, step, &bytes));
        assert_int_equal(bytes, p.bytes);
    }
    static const dev_port none[] = { { .name = "x", .dt = DT_F16, .rank = 4, .dim = { INT64_MAX / 4, 4, 4, 4 } },
                                     /* without room for the end of its row */
                                     { .name = "x", .dt = DT_F16, .rank = 1, .dim = { INT64_MAX / 2 } },
                                     { .name = "x", .dt = DT_NONE, .rank = 1, .dim = { 4 } } };
    int64_t step[8];
    uint64_t bytes;
    for (size_t i = 0; i < COUNT(none); i++) assert_false(dev_surface_steps(&none[i], 64, step, &bytes));
    dev_port one = { .name = "x", .dt = DT_F16, .rank = 0, .bytes = 2 }; /* a number has a row to itself */
    uint16_t x = 7, y = 0, row[32] = { 0 };
    assert_true(dev_surface_steps(&one, 64, step, &bytes));
    assert_int_equal(bytes, 64);
    dev_surface_unpack(&one, 64, &x, row);
    dev_surface_pack(&one, 64, row, &y);
    assert_true(row[0] == 7 && y == 7);
}

/* Long copies are shared by threads: to the last byte, and not one more; a surface that is larger has moved no more
 * than was asked for. */
static void long_copies(void **state)
{
    (void)state;
    enum { LONG = (128 << 10) + 5, ROOM = LONG + (64 << 10) };
    static unsigned char in[ROOM], out[ROOM];
    device *dev;
    device_stats st;
    diag d = { 0 };
    void *at;
    for (int i = 0; i < ROOM; i++) in[i] = (unsigned char)(1 + i % 251);
    assert_ok(device_open(&dev, "soft:m1", &(device_options){ .threads = 2 }, &d), d);
    dev_surface *s = must_surface(dev, ROOM);
    assert_ok(dev_surface_write(s, in, LONG, &d), d);
    assert_ok(dev_surface_read(s, out, LONG, &d), d);
    assert_memory_equal(in, out, LONG);
    device_get_stats(dev, &st);
    assert_true(st.bytes_to_device == LONG && st.bytes_from_device == LONG);
    assert_ok(dev_surface_lock(s, true, &at, &d), d);
    for (int i = LONG; i < ROOM; i++) assert_true(!((const unsigned char *)at)[i] && !out[i]);
    assert_ok(dev_surface_unlock(s, &d), d);
    dev_surface_free(s);
    close_clean(dev);
}

/* Rows so long that no tensor has room for its own. */
static void endless_rows(void **state)
{
    (void)state;
    device *dev;
    dev_surface *s;
    diag d = { 0 };
    assert_ok(
        device_open(&dev, "soft:m1",
                    &(device_options){ .threads = 1, .limit = &(device_limit){ "row_bytes", INT64_MAX }, .n_limit = 1 },
                    &d),
        d);
    dev_program *p = must_compile(dev, STATE_TEXT, NULL);
    assert_true(dev_program_surface_bytes(p, DEV_INPUT) == UINT64_MAX);
    assert_int_not_equal(dev_surface_new(dev, UINT64_MAX, &s, &d), AN_OK);
    dev_program_free(p);
    close_clean(dev);
}

/* ---- once ---- */

static const device_options one_thread = { .threads = 1 };

static an_status once(const char *dev, const char *text, const dev_tensor *in, size_t n_in, const char *const *want,
                      size_t n_want, arena *mem, dev_tensors *out, diag *d)
{
    *out = (dev_tensors){ 0 };
    *d = (diag){ 0 };
    return device_run_once(dev, &one_thread, &(dev_source){ .text = text, .n_text = strlen(text) },
                           &(dev_once){ .in = in, .n_in = n_in, .want = want, .n_want = n_want }, mem, out, NULL, d);
}

static void run_once(void **state)
{
    (void)state;
    static const char *const names[] = { "cpu", "soft:m1", "soft:m4", "soft:m5" };
    float zz[256];
    double aa[128];
    for (int i = 0; i < 256; i++) zz[i] = (float)i / 16;
    for (int i = 0; i < 128; i++) aa[i] = i / 8.0;
    dev_tensor in[2] = { { "aa", DT_F64, 4, { 1, 4, 1, 32 }, aa }, { "zz", DT_F32, 4, { 1, 8, 1, 32 }, zz } };
    for (size_t k = 0; k < COUNT(names); k++) {
        arena mem = { 0 };
        dev_tensors out;
        diag d;
        assert_ok(once(names[k], TWO_TEXT, in, 2, NULL, 0, &mem, &out, &d), d);
        assert_int_equal(out.n, 2);
        assert_string_equal(out.at[0].name, "k");
        assert_int_equal(out.at[1].dt, DT_F16);
        assert_int_equal(out.at[1].dim[1], 8);
        for (int i = 0; i < 256; i++) assert_true(dtype_load(DT_F16, out.at[1].data, i) == i / 8.0);
        const char *want[] = { "q", "k", "q" };
        assert_ok(once(names[k], TWO_TEXT, in, 2, want, 3, &mem, &out, &d), d);
        assert_int_equal(out.n, 3);
        assert_string_equal(out.at[0].name, "q");
        assert_string_equal(out.at[1].name, "k");
        arena_free(&mem);
    }
}

static void once_refuses(void **state)
{
    (void)state;
    arena mem = { 0 };
    dev_tensors out;
    diag d;
    uint16_t x[256] = { 0 };
    dev_tensor in[2] = { { "aa", DT_F16, 4, { 1, 4, 1, 32 }, x }, { "zz", DT_F16, 4, { 1, 8, 1, 32 }, x } };
    static const struct {
        const char *name;
        int rank;
        int64_t dim[4];
        const char *want;
    } rows[] = {
        { "yy", 4, { 1, 8, 1, 32 }, "no input \"yy\"; it has: aa, zz" },
        { "zz", 4, { 1, 8, 32, 1 }, "input zz has shape [1, 8, 32, 1]; the program declares fp16 [1, 8, 1, 32]" },
        { "zz", 2, { 8, 32 }, "shape [8, 32]" },
        { "aa", 4, { 1, 4, 1, 32 }, "given twice" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        dev_tensor bad[2] = { in[0], in[1] };
        bad[1].name = rows[i].name;
        bad[1].rank = rows[i].rank;
        memcpy(bad[1].dim, rows[i].dim, sizeof rows[i].dim);
        assert_int_equal(once("soft:m1", TWO_TEXT, bad, 2, NULL, 0, &mem, &out, &d), AN_INPUT);
        if (!strstr(d.msg, rows[i].want)) fail_msg("wanted \"%s\", got: %s", rows[i].want, d.msg);
    }
    assert_int_equal(once("cpu", TWO_TEXT, in, 1, NULL, 0, &mem, &out, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "input zz is not given; the program wants fp16 [1, 8, 1, 32]"));
    const char *want = "zz";
    assert_int_equal(once("cpu", TWO_TEXT, in, 2, &want, 1, &mem, &out, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "no output \"zz\"; it has: k, q"));
    assert_int_equal(once("soft:m9", TWO_TEXT, in, 2, NULL, 0, &mem, &out, &d), AN_USAGE);
    arena_free(&mem);
}

/* Types at the border: integers that fit are taken, others refused; results come as fp16, fp32 or int32. */
static void once_types(void **state)
{
    (void)state;
    static const char *const text = MIL_HEAD "func main<ios18>(tensor<int32, [4]> i, tensor<fp32, [4]> f) {\n"
                                             "tensor<int32, [4]> j = add(x = i, y = i)[name = string(\"j\")];\n"
                                             "tensor<fp32, [4]> g = add(x = f, y = f)[name = string(\"g\")];\n"
                                             "tensor<bool, [4]> b = less(x = f, y = g)[name = string(\"b\")];\n} -> (j, g, b);\n}\n";
    arena mem = { 0 };
    dev_tensors out;
    diag d;
    int64_t i64[4] = { 1, -2, 3, 1 << 20 };
    uint16_t f16[4];
    for (int i = 0; i < 4; i++) f16[i] = f16_from_f64(i - 1.5);
    dev_tensor in[2] = { { "i", DT_I64, 1, { 4 }, i64 }, { "f", DT_F16, 1, { 4 }, f16 } };
    assert_ok(once("cpu", text, in, 2, NULL, 0, &mem, &out, &d), d);
    assert_int_equal(out.at[0].dt, DT_I32); /* b, g, j */
    assert_int_equal(out.at[1].dt, DT_F32);
    assert_int_equal(out.at[2].dt, DT_I32);
    assert_int_equal(((const int32_t *)out.at[0].data)[0], 0);
    assert_int_equal(((const int32_t *)out.at[0].data)[3], 1);
    assert_true(((const float *)out.at[1].data)[3] == 3.0f);
    assert_int_equal(((const int32_t *)out.at[2].data)[3], 1 << 21);
    i64[2] = (int64_t)1 << 40;
    assert_int_equal(once("cpu", text, in, 2, NULL, 0, &mem, &out, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "element 2"));
    float half[4] = { 1, 2, 0.5f, 3 };
    in[0] = (dev_tensor){ "i", DT_F32, 1, { 4 }, half };
    assert_int_equal(once("cpu", text, in, 2, NULL, 0, &mem, &out, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "element 2 is 0.5"));
    arena_free(&mem);
}

/* A chip's refusal carries the engine's own words as well. */
static void once_says(void **state)
{
    (void)state;
    static const char *const text = MIL_HEAD "func main<ios18>(tensor<fp16, [1, 1, 1, 16385]> x) {\n"
                                             "tensor<fp16, [1, 1, 1, 16385]> y = add(x = x, y = x)[name = string(\"y\")];\n} -> (y);\n}\n";
    arena mem = { 0 };
    dev_tensors out = { 0 };
    diag d = { 0 };
    engine_error e;
    dev_source src = { .text = text, .n_text = strlen(text) };
    assert_int_equal(device_run_once("soft:m1", &one_thread, &src, &(dev_once){ 0 }, &mem, &out, &e, &d),
                     AN_UNSUPPORTED);
    assert_string_equal(e.domain, "com.apple.appleneuralengine.compiler");
    assert_int_equal(e.code, 1);
    assert_non_null(strstr(e.text, "ANECCompile() FAILED"));
    assert_non_null(strstr(d.msg, "exceeds ANE family 2's max dimension 16384"));
    assert_true(d.at.line);
    d = (diag){ 0 };
    uint16_t *x = calloc(16385, 2);
    assert_non_null(x);
    dev_tensor in = { "x", DT_F16, 4, { 1, 1, 1, 16385 }, x };
    assert_ok(device_run_once("soft:m4", &one_thread, &src, &(dev_once){ .in = &in, .n_in = 1 }, &mem, &out, &e, &d), d); /* 65536 there */
    assert_ok(device_run_once("cpu", &one_thread, &src, &(dev_once){ .in = &in, .n_in = 1 }, &mem, &out, &e, &d), d);
    assert_null(e.domain);
    free(x);
    arena_free(&mem);
}

/* Any declared size that compiles runs: one element, odd widths, rank 0 to 5. */
static void once_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *type;
        int rank;
        int64_t dim[5];
    } rows[] = { { "[1]", 1, { 1 } },
                 { "[1, 1, 1, 1]", 4, { 1, 1, 1, 1 } },
                 { "[3, 5]", 2, { 3, 5 } },
                 { "[1, 2, 1, 3, 7]", 5, { 1, 2, 1, 3, 7 } },
                 { "[1, 1, 1, 16384]", 4, { 1, 1, 1, 16384 } } };
    static const char *const names[] = { "cpu", "soft:m1", "soft:m4", "soft:m5" };
    uint16_t *x = calloc(16384, 2);
    assert_non_null(x);
    for (int i = 0; i < 16384; i++) x[i] = f16_from_f64(i % 100);
    for (size_t k = 0; k < COUNT(names); k++)
        for (size_t i = 0; i < COUNT(rows); i++) {
            char text[1200];
            snprintf(text, sizeof text, MIL_HEAD "func main<ios18>(tensor<fp16, %s> x) {\ntensor<fp16, %s> y = add(x = x, y = x)[name = string(\"y\")];\n} -> (y);\n}\n",
                     rows[i].type, rows[i].type);
            arena mem = { 0 };
            dev_tensors out;
            diag d;
            dev_tensor in = { "x", DT_F16, rows[i].rank, { 0 }, x };
            int64_t n = 1;
            for (int a = 0; a < in.rank; a++) n *= in.dim[a] = rows[i].dim[a];
            assert_ok(once(names[k], text, &in, 1, NULL, 0, &mem, &out, &d), d);
            for (int64_t a = 0; a < n; a++) assert_true(dtype_load(DT_F16, out.at[0].data, a) == 2 * (double)(a % 100));
            arena_free(&mem);
        }
    free(x);
}

/* Native state: chips refuse it; the processor has it as a port on both sides, and once it starts at zero unless
 * given. */
static void native_state(void **state)
{
    (void)state;
    static const char *const text = MIL_HEAD "func main<ios18>(state<tensor<fp16, [1, 4]>> kv, tensor<fp16, [1, 4]> x) {\n"
                                             "tensor<fp16, [1, 4]> old = read_state(input = kv)[name = string(\"old\")];\n"
                                             "tensor<fp16, [1, 4]> sum = add(x = old, y = x)[name = string(\"sum\")];\n"
                                             "write_state(input = kv, data = sum)[name = string(\"w\")];\n"
                                             "tensor<fp16, [1, 4]> y = mul(x = old, y = x)[name = string(\"y\")];\n"
                                             "tensor<fp16, [1, 4]> now = read_state(input = kv)[name = string(\"now\")];\n"
                                             "tensor<fp16, [1, 4]> z = add(x = now, y = x)[name = string(\"z\")];\n} -> (y, z);\n}\n";
    arena mem = { 0 };
    dev_tensors out;
    diag d;
    uint16_t x[4], kv[4];
    for (int i = 0; i < 4; i++) x[i] = f16_from_f64(i + 1), kv[i] = f16_from_f64(10 * i);
    dev_tensor in[2] = { { "x", DT_F16, 2, { 1, 4 }, x }, { "kv", DT_F16, 2, { 1, 4 }, kv } };
    static const char *const chips[] = { "soft:m1", "soft:m4", "soft:m5" };
    for (size_t i = 0; i < COUNT(chips); i++)
        assert_int_equal(once(chips[i], text, in, 2, NULL, 0, &mem, &out, &d), AN_UNSUPPORTED);
    assert_ok(once("cpu", text, in, 2, NULL, 0, &mem, &out, &d), d);
    assert_int_equal(out.n, 3);
    assert_string_equal(out.at[0].name, "kv");
    for (int i = 0; i < 4; i++) {
        assert_true(dtype_load(DT_F16, out.at[0].data, i) == 10 * i + i + 1);
        assert_true(dtype_load(DT_F16, out.at[1].data, i) == 10.0 * i * (i + 1));
        assert_true(dtype_load(DT_F16, out.at[2].data, i) == 10 * i + 2 * (i + 1)); /* read behind the write */
    }
    assert_ok(once("cpu", text, in, 1, NULL, 0, &mem, &out, &d), d);
    for (int i = 0; i < 4; i++) assert_true(dtype_load(DT_F16, out.at[0].data, i) == i + 1);

    assert_ok(once("null", text, in, 1, NULL, 0, &mem, &out, &d), d);
    assert_int_equal(out.n, 3);
    device *dev; /* one surface on both sides: the state stays on the device */
    assert_ok(device_open(&dev, "cpu", &one_thread, &d), d);
    dev_program *p = must_compile(dev, text, NULL);
    bound b = must_bind(dev, p);
    assert_ok(dev_request_bind(b.r, DEV_OUTPUT, "kv", b.s[0][0], &d), d);
    assert_ok(dev_surface_write(b.s[0][1], x, sizeof x, &d), d);
    for (int t = 0; t < 3; t++) {
        assert_ok(device_run(b.r, DEV_QOS, &d), d);
        assert_true(get_f16(b.s[1][1], 2) == 3.0 * t * 3);
    }
    assert_true(get_f16(b.s[0][0], 2) == 9);
    drop_bound(&b);
    dev_program_free(p);
    close_clean(dev);
    arena_free(&mem);
}

/* ---- sizes that no machine has ---- */

#define BIG "tensor<fp16, [1, 2000000, 1, 4000000]>"

static void absurd_text(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } rows[] = {
        { MIL_HEAD "func main<ios18>(" BIG " x) {\n" BIG " y = relu(x = x)[name = string(\"y\")];\n} -> (y);\n}\n",
          "x is fp16[1, 2000000, 1, 4000000] and takes 16000000000000 bytes, more than the 1 TiB (1099511627776 bytes)" },
        { MIL_HEAD "func main<ios18>(tensor<fp16, [1, 2, 1, 4]> x) {\n"
                   "tensor<int32, [4]> r = const()[name = string(\"r\"), val = tensor<int32, [4]>([1, 1000000, 1, 1000000])];\n"
                   "tensor<int32, [1]> ax = const()[name = string(\"ax\"), val = tensor<int32, [1]>([-1])];\n"
                   "bool kd = const()[name = string(\"kd\"), val = bool(true)];\n" BIG " big = tile(reps = r, x = x)[name = string(\"big\")];\n"
                   "tensor<fp16, [1, 2000000, 1, 1]> y = reduce_sum(axes = ax, keep_dims = kd, x = big)[name = string(\"y\")];\n} -> (y);\n}\n",
          "big is fp16[1, 2000000, 1, 4000000] and takes 16000000000000 bytes" },
    };
    static const char *const engines[] = { "cpu", "null" };
    for (size_t i = 0; i < COUNT(rows); i++)
        for (size_t k = 0; k < COUNT(engines); k++) {
            arena mem = { 0 };
            dev_tensors out = { 0 };
            diag d = { 0 };
            an_status st = once(engines[k], rows[i].text, NULL, 0, NULL, 0, &mem, &out, &d);
            if (st != AN_INPUT || !strstr(d.msg, rows[i].words))
                fail_msg("row %zu on %s: status %d, %s", i, engines[k], st, d.msg);
            arena_free(&mem);
        }
    /* each tensor could be had, all together could not */
    static const char sum[] = MIL_HEAD "func main<ios18>(tensor<fp16, [1, 600000, 1, 600000]> a) {\n"
                                       "tensor<fp16, [1, 600000, 1, 600000]> y = relu(x = a)[name = string(\"y\")];\n} -> (y);\n}\n";
    arena mem = { 0 };
    dev_tensors out = { 0 };
    diag d = { 0 };
    assert_int_equal(once("cpu", sum, NULL, 0, NULL, 0, &mem, &out, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "1440000000000 bytes together"));
    arena_free(&mem);
}

/* The program with another size of scratch memory, and a checksum that is right again. */
static void set_scratch(strbuf *b, uint64_t bytes)
{
    unsigned char *p = (unsigned char *)b->at;
    size_t at = SEAL_HEADER;
    at += 4 + (size_t)p[at]; /* title */
    at += 4 + (size_t)p[at]; /* target */
    for (int i = 0; i < 8; i++) p[at + 8 + (size_t)i] = (unsigned char)(bytes >> 8 * i);
    seal(p, b->n);
}

static void absurd_program(void **state)
{
    (void)state;
    static const struct {
        const char *engine;
        uint64_t scratch;
        an_status st;
        const char *words;
    } rows[] = {
        { "cpu", 140000000000000, AN_INPUT, "scratch memory takes 140000000000000 bytes, more than the 1 TiB (1099511627776 bytes)" },
        { "soft:m1", 140000000000000, AN_INPUT, "scratch memory takes 140000000000000 bytes, more than the 1 TiB (1099511627776 bytes)" },
        { "soft:m1", 900000000000, AN_UNSUPPORTED, "the program takes 900000000000 bytes; 0 of the 3758096384 the device addresses are taken" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        device *dev;
        diag d = { 0 };
        strbuf b = { 0 };
        device_limit open = { "open_images", 1 };
        assert_ok(
            device_open(&dev, rows[i].engine, &(device_options){ .threads = 1, .limit = &open, .n_limit = 1 }, &d), d);
        dev_program *p = must_compile(dev, STATE_TEXT, NULL), *q;
        assert_ok(dev_program_bytes(p, &b, &d), d);
        dev_program_free(p);
        set_scratch(&b, rows[i].scratch);
        an_status st = device_adopt(dev, b.at, b.n, NULL, &q, &d);
        if (!st) st = dev_program_load(q, &d);
        if (st != rows[i].st || !strstr(d.msg, rows[i].words)) fail_msg("row %zu: status %d, %s", i, st, d.msg);
        dev_program_free(q);
        sb_free(&b);
        close_clean(dev);
    }
}

/* A program that says it is of this device, and would be run by another arithmetic. */
static void of_another_arithmetic(void **state)
{
    (void)state;
    static const char *const engines[] = { "cpu", "soft:m1", "soft:m4", "soft:m5" };
    for (size_t i = 0; i < COUNT(engines); i++) {
        device *dev;
        diag d = { 0 };
        strbuf b = { 0 };
        device_limit open = { "open_images", 1 };
        assert_ok(device_open(&dev, engines[i], &(device_options){ .threads = 1, .limit = &open, .n_limit = 1 }, &d), d);
        dev_program *p = must_compile(dev, STATE_TEXT, NULL), *q;
        assert_ok(dev_program_bytes(p, &b, &d), d);
        dev_program_free(p);
        program *g;
        assert_ok(program_decode(b.at, b.n, &g, &d), d);
        double *const field[] = { &g->num.window_bits, &g->num.port_ceiling, &g->num.invalid_zero, &g->num.tables, NULL };
        static const char *const name[] = { "window_bits", "port_ceiling", "invalid_zero", "tables" };
        for (size_t k = 0; k < COUNT(field); k++) { /* the last: as it was */
            strbuf other = { 0 };
            const double was = field[k] ? *field[k] : 0;
            char words[80] = "";
            if (field[k]) {
                *field[k] = was != 0 ? 0 : k == 0 ? 12 : k == 1 ? 32768 : 1;
                snprintf(words, sizeof words, "the program has %s %g; the arithmetic of ", name[k], *field[k]);
            }
            assert_ok(program_encode(g, &other, &d), d);
            if (field[k]) *field[k] = was;
            diag e = { 0 };
            an_status st = device_adopt(dev, other.at, other.n, NULL, &q, &e);
            if (st != (field[k] ? AN_INPUT : AN_OK) || !strstr(e.msg, words))
                fail_msg("%s, row %zu: status %d, %s", engines[i], k, st, e.msg);
            dev_program_free(q);
            sb_free(&other);
        }
        program_free(g);
        sb_free(&b);
        close_clean(dev);
    }
}

/* null takes what other devices compiled: their ports are all it needs. */
static void null_adopts(void **state)
{
    (void)state;
    static const char *const engines[] = { "cpu", "soft:m1" };
    for (size_t i = 0; i < COUNT(engines); i++) {
        device *dev, *null;
        diag d = { 0 };
        strbuf b = { 0 };
        assert_ok(device_open(&dev, engines[i], &(device_options){ .threads = 1, .own_budget = true }, &d), d);
        assert_ok(device_open(&null, "null", NULL, &d), d);
        dev_program *p = must_compile(dev, STATE_TEXT, NULL), *q;
        assert_ok(dev_program_bytes(p, &b, &d), d);
        assert_ok(device_adopt(null, b.at, b.n, NULL, &q, &d), d);
        for (int side = 0; side < 2; side++) {
            const dev_port *want, *got;
            size_t n = dev_program_ports(p, (dev_side)side, &want);
            assert_int_equal(dev_program_ports(q, (dev_side)side, &got), n);
            for (size_t k = 0; k < n; k++)
                assert_true(!strcmp(want[k].name, got[k].name) && want[k].bytes == got[k].bytes &&
                            want[k].rank == got[k].rank && want[k].dim[0] == got[k].dim[0]);
        }
        assert_ok(dev_program_load(q, &d), d);
        bound use = must_bind(null, q);
        assert_ok(device_run(use.r, DEV_QOS, &d), d);
        drop_bound(&use);
        dev_program_free(q);
        b.at[b.n / 2] ^= 4;
        assert_int_not_equal(device_adopt(null, b.at, b.n, NULL, &q, &d), AN_OK);
        assert_null(q);
        dev_program_free(p);
        sb_free(&b);
        close_clean(dev);
        close_clean(null);
    }
}

/* What may be set, and to what. */
static void limits_are_checked(void **state)
{
    (void)state;
    static const struct {
        device_limit l;
        const char *words; /* NULL: taken */
    } rows[] = {
        { { "open_images", 1 }, NULL }, { { "open_images", 0 }, NULL }, { { "open_images", 2 }, "open_images is 2; 0 or 1 is wanted" },
        { { "loaded", 2 }, NULL }, { { "loaded", -1 }, "loaded is -1; 0 or more is wanted" }, { { "open", 1 }, "\"open\"; there are compiles, reclaim, loaded, " },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        device *dev;
        diag d = { 0 };
        an_status st =
            device_open(&dev, "soft:m1", &(device_options){ .threads = 1, .limit = &rows[i].l, .n_limit = 1 }, &d);
        if (st != (rows[i].words ? AN_USAGE : AN_OK) || (st && !strstr(d.msg, rows[i].words)))
            fail_msg("row %zu: %d, %s", i, st, d.msg);
        device_close(dev);
    }
    assert_true(device_limited("soft:m1") && !device_limited("cpu") && !device_limited("null") &&
                !device_limited(NULL) && !device_limited("no such"));
}

/* ---- a device and its cache on disk ---- */

static void disk_cache(void **state)
{
    (void)state;
    char dir[] = "/tmp/anneal-device-XXXXXX";
    assert_non_null(mkdtemp(dir));
    diag d = { 0 };
    uint64_t want = 0;
    char path[200] = "";
    for (int round = 0; round < 4; round++) {
        dev_cache *c;
        device *dev;
        assert_ok(dev_cache_open(&c, &(dev_cache_options){ .dir = dir }, &d), d);
        assert_ok(device_open(&dev, "soft:m1", &(device_options){ .threads = 1, .cache = c }, &d), d);
        strbuf w = weight_file(0.3, 0.7);
        dev_program *p = must_compile(dev, CONV_TEXT, &w);
        /* made, found, damaged and made again, found */
        assert_int_equal(dev_program_from_cache(p), round == 1 || round == 3);
        bound b = must_bind(dev, p);
        uint16_t y[256];
        put_f16(b.s[0][0], 256, -2, 0.03);
        assert_ok(device_run(b.r, DEV_QOS, &d), d);
        assert_ok(dev_surface_read(b.s[1][0], y, sizeof y, &d), d);
        uint64_t h = hash_bytes(y, sizeof y, 0);
        if (round) assert_true(h == want);
        want = h;
        drop_bound(&b);
        dev_program_free(p);
        close_clean(dev);
        dev_cache_close(c);
        sb_free(&w);
        if (round != 1) continue;
        FILE *ls; /* the one entry: change a byte of the program in it */
        char cmd[120];
        snprintf(cmd, sizeof cmd, "ls %s", dir);
        assert_non_null(ls = popen(cmd, "r"));
        char name[100];
        assert_int_equal(fscanf(ls, "%99s", name), 1);
        pclose(ls);
        snprintf(path, sizeof path, "%s/%s", dir, name);
        file_bytes f;
        assert_ok(file_read(path, 1 << 24, &f, &d), d);
        f.at[f.n / 2] ^= 1;
        assert_ok(file_write(path, f.at, f.n, &d), d);
        file_drop(&f);
    }
    unlink(path);
    assert_int_equal(rmdir(dir), 0);
}

/* Half of the least normal number is zero on the plain processor, by every thread, and the caller's own arithmetic
 * stays as it was. */
static void nothing_subnormal(void **state)
{
    (void)state;
    enum { N = 1 << 16 };
    static const char text[] = MIL_HEAD "func main<ios18>(tensor<fp32, [1, 1, 1, 65536]> x) {\n"
                                        "fp32 half = const()[name = string(\"half\"), val = fp32(0.5)];\n"
                                        "tensor<fp32, [1, 1, 1, 65536]> y = mul(x = x, y = half)[name = string(\"y\")];\n} -> (y);\n}\n";
    const bool can = can_flush();
    for (int threads = 1; threads < 4; threads++) {
        device *dev;
        diag d = { 0 };
        void *at;
        assert_ok(device_open(&dev, "cpu", &(device_options){ .threads = threads }, &d), d);
        dev_program *p = must_compile(dev, text, NULL);
        bound b = must_bind(dev, p);
        assert_ok(dev_surface_lock(b.s[0][0], false, &at, &d), d);
        for (int i = 0; i < N; i++) ((float *)at)[i] = i % 2 ? 0x1p-126f : 0x1p-125f;
        assert_ok(dev_surface_unlock(b.s[0][0], &d), d);
        assert_ok(device_run(b.r, DEV_QOS, &d), d);
        assert_ok(dev_surface_lock(b.s[1][0], true, &at, &d), d);
        for (int i = 0; i < N; i++) assert_true(((float *)at)[i] == (i % 2 ? can ? 0 : 0x1p-127f : 0x1p-126f));
        assert_ok(dev_surface_unlock(b.s[1][0], &d), d);
        volatile float least = 0x1p-126f;
        assert_true(least * 0.5f > 0);
        drop_bound(&b);
        dev_program_free(p);
        close_clean(dev);
    }
}

static bool fails_there(void *user, const char *what) { return !strcmp(what, user); }

/* What was compiled and came to nothing afterwards has used nothing of the budget; a surface without memory, nothing
 * of the window. */
static void failures_are_given_back(void **state)
{
    (void)state;
    device *dev;
    dev_program *p;
    diag d = { 0 };
    device_stats st;
    assert_ok(device_open(&dev, "soft:m1",
                          &(device_options){ .threads = 1, .fault = fails_there, .user = "ports", .own_budget = true },
                          &d),
              d);
    for (int i = 0; i < 5; i++) {
        d = (diag){ 0 };
        assert_int_equal(device_compile(dev, &(dev_source){ .text = STATE_TEXT, .n_text = strlen(STATE_TEXT) }, &p, &d),
                         AN_NOMEM);
    }
    device_get_stats(dev, &st);
    assert_true(st.compiles == 0 && st.compile_failures == 5 && st.budget_used == 0);
    device_close(dev);
    static const char *const lacks[] = { "surface", "surface memory" };
    for (size_t i = 0; i < COUNT(lacks); i++) {
        dev_surface *s;
        d = (diag){ 0 };
        assert_ok(device_open(
                      &dev, "soft:m1",
                      &(device_options){ .threads = 1, .fault = fails_there, .user = (void *)(uintptr_t)lacks[i] }, &d),
                  d);
        assert_int_equal(dev_surface_new(dev, 64, &s, &d), AN_NOMEM);
        assert_null(s);
        close_clean(dev);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings), cmocka_unit_test(every_chip_opens), cmocka_unit_test(limits_table), cmocka_unit_test(row_steps),
        cmocka_unit_test(long_copies), cmocka_unit_test(endless_rows), cmocka_unit_test(run_once), cmocka_unit_test(once_refuses),
        cmocka_unit_test(once_types), cmocka_unit_test(once_says), cmocka_unit_test(once_sizes), cmocka_unit_test(disk_cache),
        cmocka_unit_test(native_state), cmocka_unit_test(of_another_arithmetic), cmocka_unit_test(null_adopts), cmocka_unit_test(limits_are_checked), cmocka_unit_test(absurd_text),
        cmocka_unit_test(absurd_program), cmocka_unit_test(nothing_subnormal), cmocka_unit_test(failures_are_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
