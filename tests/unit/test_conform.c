/* test_conform: what every device must do with a program, its ports, its weights and its state, run against each
 * device string (conform.h lists them). How long things live and how many there may be is in test_conform_life.c,
 * what happens when something fails in test_conform_fail.c. They know the device interface and nothing behind it. */
#include <math.h>
#include <unistd.h>

#include "base/io.h"
#include "conform.h"

/* ---- opening ---- */

static void opening(void **state)
{
    device *dev = OPEN(state);
    assert_string_equal(device_name(dev), name_of(state));
    assert_true(device_known(name_of(state)));
    device_close(dev);
    device_close(NULL);
    diag d = { 0 };
    assert_int_equal(device_open(&dev, name_of(state),
                                 &(device_options){ .limit = &(device_limit){ "nonsense", 1 }, .n_limit = 1 }, &d),
                     AN_USAGE);
    assert_null(dev);
    assert_non_null(strstr(d.msg, "nonsense"));
    dev = OPEN_LIMITS(state, { "compiles", 7 }, { "surface_min", 64 });
    assert_int_equal(device_get_limits(dev)->compiles, 7);
    assert_int_equal(device_get_limits(dev)->surface_min, 64);
    device_close(dev);
}

/* ---- compile, load, run ---- */

static void compile_and_run(void **state)
{
    device *dev = OPEN(state);
    strbuf w = weight_file(2, 0);
    diag d = { 0 };
    dev_program *p;
    dev_source src = { .text = CONV_TEXT, .n_text = strlen(CONV_TEXT), .weights = WITH_WEIGHTS(w) };
    assert_ok(device_compile(dev, &src, &p, &d), d);
    assert_false(dev_program_loaded(p));
    const dev_port *in, *out;
    assert_int_equal(dev_program_ports(p, DEV_INPUT, &in), 1);
    assert_int_equal(dev_program_ports(p, DEV_OUTPUT, &out), 1);
    assert_string_equal(in[0].name, "x");
    assert_string_equal(out[0].name, "y");
    assert_int_equal(in[0].dt, DT_F16);
    assert_int_equal(in[0].rank, 4);
    assert_int_equal(in[0].dim[1], 8);
    assert_int_equal(in[0].bytes, 512);
    assert_ok(dev_program_load(p, &d), d);
    assert_true(dev_program_loaded(p));
    bound b = must_bind(dev, p);
    put_f16(b.s[0][0], 256, -4, 0.0625);
    assert_ok(device_run(b.r, DEV_QOS, &d), d);
    for (int i = 0; i < 256; i++) CLOSE_TO(get_f16(b.s[1][0], i), device_computes(dev) ? 2 * (-4 + 0.0625 * i) : 0);
    device_stats st;
    device_get_stats(dev, &st);
    assert_int_equal(st.compiles, 1);
    assert_int_equal(st.loads, 1);
    assert_int_equal(st.loaded, 1);
    assert_int_equal(st.dispatches, 1);
    assert_int_equal(st.failed, 0);
    assert_int_equal(st.surfaces, 2);
    assert_true(st.bytes_to_device >= 512 && st.bytes_from_device >= 512);
    assert_ok(dev_program_unload(p, &d), d);
    drop_bound(&b);
    dev_program_free(p);
    dev_program_free(NULL);
    sb_free(&w);
    close_clean(dev);
}

/* ---- binding ---- */

static void binding(void **state)
{
    device *dev = OPEN(state);
    diag d = { 0 };
    dev_program *p = must_compile(dev, TWO_TEXT, NULL);
    const dev_port *in, *out;
    assert_int_equal(dev_program_ports(p, DEV_INPUT, &in), 2);
    assert_int_equal(dev_program_ports(p, DEV_OUTPUT, &out), 2);
    assert_string_equal(in[0].name, "aa"); /* sorted, not as declared */
    assert_string_equal(in[1].name, "zz");
    assert_string_equal(out[0].name, "k");
    assert_string_equal(out[1].name, "q");
    size_t k;
    assert_ptr_equal(dev_program_port(p, DEV_INPUT, "zz", &k), &in[1]);
    assert_int_equal(k, 1);
    assert_null(dev_program_port(p, DEV_INPUT, "q", &k));

    bound b = must_bind(dev, p); /* by name */
    put_f16(b.s[0][0], 128, 3, 0);
    put_f16(b.s[0][1], 256, 5, 0.25);
    assert_ok(device_run(b.r, DEV_QOS, &d), d);
    if (device_computes(dev)) {
        CLOSE_TO(get_f16(b.s[1][0], 127), 9);
        CLOSE_TO(get_f16(b.s[1][1], 255), 2 * (5 + 0.25 * 255));
    }
    /* by number: the same surfaces give the same */
    dev_request *r;
    assert_ok(dev_request_new(p, &r, &d), d);
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < 2; i++) assert_ok(dev_request_bind_at(r, (dev_side)side, i, b.s[side][i], &d), d);
    put_f16(b.s[0][0], 128, 4, 0);
    assert_ok(device_run(r, DEV_QOS, &d), d);
    if (device_computes(dev)) CLOSE_TO(get_f16(b.s[1][0], 5), 16);

    assert_refused(dev, dev_request_bind(r, DEV_INPUT, "xx", b.s[0][0], &d), AN_INPUT, &d, 8, 0xe00002f0,
                   "\"xx\"; it has: aa, zz");
    d = (diag){ 0 };
    assert_refused(dev, dev_request_bind_at(r, DEV_OUTPUT, 2, b.s[0][0], &d), AN_INPUT, &d, 8, 0x1d,
                   "the program has 2");
    device *other = OPEN(state);
    dev_surface *foreign = must_surface(other, 65536);
    d = (diag){ 0 };
    assert_refused(dev, dev_request_bind(r, DEV_INPUT, "aa", foreign, &d), AN_INPUT, &d, 8, 0xe00002c2,
                   "another device");
    dev_surface_free(foreign);
    close_clean(other);
    dev_request_free(r);
    drop_bound(&b);
    dev_program_free(p);
    close_clean(dev);
}

static void sizes(void **state)
{
    device *dev = OPEN(state);
    const device_limits *lim = device_get_limits(dev);
    dev_program *p = must_compile(dev, TWO_TEXT, NULL);
    uint64_t fit = dev_program_surface_bytes(p, DEV_INPUT);
    assert_true(fit >= 512 && fit >= (uint64_t)lim->surface_min);
    bound b = must_bind(dev, p);
    diag d = { 0 };

    /* one without a surface */
    assert_ok(dev_request_bind(b.r, DEV_INPUT, "zz", NULL, &d), d);
    assert_refused(dev, device_run(b.r, DEV_QOS, &d), AN_INPUT, &d, 8, 0x1d,
                   "2 input surfaces are wanted, 1 bound; the first without one is zz");
    d = (diag){ 0 };
    assert_ok(dev_request_bind(b.r, DEV_INPUT, "aa", NULL, &d), d);
    assert_refused(dev, device_run(b.r, DEV_QOS, &d), AN_INPUT, &d, 8, 0x1d,
                   "2 input surfaces are wanted, 0 bound; the first without one is aa");
    d = (diag){ 0 };
    assert_ok(dev_request_bind(b.r, DEV_INPUT, "aa", b.s[0][0], &d), d);
    dev_surface *small = must_surface(dev, 511);
    assert_ok(dev_request_bind(b.r, DEV_INPUT, "zz", small, &d), d);
    assert_refused(dev, device_run(b.r, DEV_QOS, &d), AN_INPUT, &d, 8, 0x1d,
                   "input zz needs a surface of 512 bytes, the one bound has 511");
    d = (diag){ 0 };
    dev_surface *large = must_surface(dev, fit + 4096);
    assert_ok(dev_request_bind(b.r, DEV_INPUT, "zz", large, &d), d);
    if (lim->uniform)
        assert_refused(dev, device_run(b.r, DEV_QOS, &d), AN_INPUT, &d, 8, 0x1d, "input surfaces must have one size");
    else assert_ok(device_run(b.r, DEV_QOS, &d), d);
    d = (diag){ 0 };
    assert_ok(dev_request_bind(b.r, DEV_INPUT, "zz", b.s[0][1], &d), d);
    assert_ok(dev_request_bind(b.r, DEV_OUTPUT, "q", large, &d), d);
    if (lim->uniform)
        assert_refused(dev, device_run(b.r, DEV_QOS, &d), AN_INPUT, &d, 8, 0x1d, "output surfaces must have one size");
    else assert_ok(device_run(b.r, DEV_QOS, &d), d);
    d = (diag){ 0 };
    assert_ok(dev_request_bind(b.r, DEV_OUTPUT, "q", b.s[1][0], &d), d);
    assert_refused(dev, device_run(b.r, DEV_QOS, &d), AN_INPUT, &d, 8, 0x1d,
                   "outputs k and q are bound to one surface");
    dev_surface_free(small);
    dev_surface_free(large);
    drop_bound(&b);
    dev_program_free(p);
    close_clean(dev);

    for (int most = 1; most <= 2; most++) { /* of inputs; outputs are not counted */
        dev = OPEN_LIMITS(state, { "inputs", most });
        p = must_compile(dev, most == 1 ? STATE_TEXT : TWO_TEXT, NULL);
        b = must_bind(dev, p);
        d = (diag){ 0 };
        assert_ok(device_run(b.r, DEV_QOS, &d), d);
        drop_bound(&b);
        dev_program_free(p);
        close_clean(dev);
    }
    dev = OPEN_LIMITS(state, { "inputs", 1 });
    p = must_compile(dev, TWO_TEXT, NULL);
    b = must_bind(dev, p);
    assert_refused(dev, device_run(b.r, DEV_QOS, &d), AN_INPUT, &d, 8, 0x1d, "2 input surfaces; at most 1 are taken");
    drop_bound(&b);
    dev_program_free(p);
    close_clean(dev);

    /* a minimum, lowered so that a test can stand on both sides of it */
    dev = OPEN_LIMITS(state, { "surface_min", 1024 });
    p = must_compile(dev, STATE_TEXT, NULL);
    dev_request *r;
    d = (diag){ 0 };
    assert_ok(dev_request_new(p, &r, &d), d);
    dev_surface *s[3];
    for (int i = 0; i < 3; i++) s[i] = must_surface(dev, 1023);
    assert_ok(dev_request_bind(r, DEV_INPUT, "s", s[0], &d), d);
    assert_ok(dev_request_bind(r, DEV_OUTPUT, "next", s[1], &d), d);
    assert_ok(dev_request_bind(r, DEV_OUTPUT, "twice", s[2], &d), d);
    assert_refused(dev, device_run(r, DEV_QOS, &d), AN_INPUT, &d, 8, 0x1d, "at least 1024 are wanted");
    assert_int_equal(dev_program_surface_bytes(p, DEV_INPUT), 1024);
    dev_request_free(r);
    for (int i = 0; i < 3; i++) dev_surface_free(s[i]);
    dev_program_free(p);
    close_clean(dev);
}

/* An over-allocated surface holds the tensor packed from byte 0; what lies behind it is neither read nor written. */
static void packed(void **state)
{
    device *dev = OPEN_LIMITS(state, { "surface_min", 0 });
    dev_program *p = must_compile(dev, TWO_TEXT, NULL);
    const dev_port *out;
    dev_program_ports(p, DEV_OUTPUT, &out);
    dev_request *r;
    diag d = { 0 };
    assert_ok(dev_request_new(p, &r, &d), d);
    dev_surface *s[2][2];
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < 2; i++) {
            s[side][i] = must_surface(dev, 2048);
            put_f16(s[side][i], 1024, 777, 0);
            assert_ok(dev_request_bind_at(r, (dev_side)side, i, s[side][i], &d), d);
        }
    put_f16(s[0][0], 128, 1, 0.125);
    put_f16(s[0][1], 256, 1, 0.125);
    assert_ok(device_run(r, DEV_QOS, &d), d);
    for (int i = 0; i < 1024; i++) {
        double k = get_f16(s[1][0], i), q = get_f16(s[1][1], i), x = 1 + 0.125 * i;
        if (!device_computes(dev) || i >= 128) CLOSE_TO(k, 777);
        if (!device_computes(dev) || i >= 256) CLOSE_TO(q, 777);
        else CLOSE_TO(q, 2 * x);
    }
    dev_request_free(r);
    for (int i = 0; i < 4; i++) dev_surface_free(s[i / 2][i % 2]);
    dev_program_free(p);
    close_clean(dev);
}

/* Elements smaller than a byte: bits that no element has are zero, whatever was in the memory. */
static void rest_of_a_byte(void **state)
{
    static const struct {
        const char *name;
        int bits;
    } rows[] = { { "int4", 4 }, { "uint4", 4 }, { "uint1", 1 }, { "uint2", 2 }, { "uint3", 3 }, { "uint6", 6 } };
    for (size_t i = 0; i < COUNT(rows) * 9; i++) {
        const char *type = rows[i / 9].name;
        const int n = (int)(i % 9) + 1, used = n * rows[i / 9].bits, bytes = (used + 7) / 8;
        char text[600];
        snprintf(
            text, sizeof text,
            MIL_HEAD "func main<ios18>(tensor<fp16, [1, 1, 1, %d]> x) {\nstring t = const()[name = string(\"t\"), val = string(\"%s\")];\n"
                     "tensor<%s, [1, 1, 1, %d]> y = cast(dtype = t, x = x)[name = string(\"y\")];\n} -> (y);\n}\n",
            n, type, type, n);
        device *dev = OPEN(state);
        dev_program *p = must_compile(dev, text, NULL);
        bound b = must_bind(dev, p);
        diag d = { 0 };
        unsigned char y[8];
        const size_t seen = (size_t)MIN(dev_surface_bytes(b.s[DEV_OUTPUT][0]), sizeof y);
        memset(y, 0xff, sizeof y);
        put_f16(b.s[DEV_INPUT][0], n, 0, 0);
        assert_ok(dev_surface_write(b.s[DEV_OUTPUT][0], y, seen, &d), d);
        assert_ok(device_run(b.r, DEV_QOS, &d), d);
        assert_ok(dev_surface_read(b.s[DEV_OUTPUT][0], y, seen, &d), d);
        const int last = y[bytes - 1], rest = used % 8 ? last >> used % 8 : 0;
        if (rest || (device_computes(dev) && last) || y[bytes] != 0xff)
            fail_msg("%d of %s: the last byte is %02x, the one behind it %02x", n, type, last, y[bytes]);
        drop_bound(&b);
        dev_program_free(p);
        close_clean(dev);
    }
}

/* Rows at multiples of 64 bytes, as containers have them. */
static void rows(void **state)
{
    device *dev = OPEN_LIMITS(state, { "row_bytes", 64 }, { "surface_min", 0 });
    dev_program *p = must_compile(dev, RING_TEXT, NULL);
    assert_int_equal(dev_program_surface_bytes(p, DEV_INPUT), 64);
    bound b = must_bind(dev, p);
    diag d = { 0 };
    put_f16(b.s[0][0], 32, 3, 0);
    put_f16(b.s[0][1], 32, 0, 0);
    put_f16(b.s[0][1], 1, 1, 0);
    put_f16(b.s[0][2], 32, 9, 0);
    assert_ok(device_run(b.r, DEV_QOS, &d), d);
    if (device_computes(dev)) {
        CLOSE_TO(get_f16(b.s[1][0], 0), 9);
        CLOSE_TO(get_f16(b.s[1][0], 5), 3);
        CLOSE_TO(get_f16(b.s[1][0], 6), 0);
    }
    drop_bound(&b);
    dev_program_free(p);
    dev_surface *s[4];
    p = must_compile(dev, TWO_TEXT, NULL); /* width 32 fills its row: packed and padded are the same */
    assert_int_equal(dev_program_surface_bytes(p, DEV_INPUT), 512);
    dev_request *r;
    assert_ok(dev_request_new(p, &r, &d), d);
    for (size_t i = 0; i < 4; i++) {
        s[i] = must_surface(dev, 512);
        put_f16(s[i], 256, 2, 0);
        assert_ok(dev_request_bind_at(r, i < 2 ? DEV_INPUT : DEV_OUTPUT, i % 2, s[i], &d), d);
    }
    assert_ok(device_run(r, DEV_QOS, &d), d);
    CLOSE_TO(get_f16(s[3], 255), device_computes(dev) ? 4 : 2);
    dev_request_free(r);
    for (int i = 0; i < 4; i++) dev_surface_free(s[i]);
    dev_program_free(p);
    close_clean(dev);
}

/* ---- refusals of the compiler ---- */

static void compile_errors(void **state)
{
    static const char *const bad_text = MIL_HEAD "func main<ios18>(tensor<fp16, [1, 8, 1, 32]> x) {\n"
                                                 "tensor<fp16, [1, 8, 1, 32]> y = add(x = x, y = nobody)[name = string(\"y\")];\n} -> (y);\n}\n";
    static const char *const bad_type = MIL_HEAD "func main<ios18>(tensor<fp16, [1, 8, 1, 32]> x) {\n"
                                                 "tensor<fp16, [1, 9, 1, 32]> y = add(x = x, y = x)[name = string(\"y\")];\n} -> (y);\n}\n";
    static const char *const rank6 = MIL_HEAD "func main<ios18>(tensor<fp16, [1, 1, 1, 8, 1, 32]> x) {\n"
                                              "tensor<fp16, [1, 1, 1, 8, 1, 32]> y = add(x = x, y = x)[name = string(\"y\")];\n} -> (y);\n}\n";
    device *dev = OPEN(state);
    dev_program *p;
    diag d = { 0 };
    assert_refused(dev, device_compile(dev, &(dev_source){ .text = bad_text, .n_text = strlen(bad_text) }, &p, &d),
                   AN_INPUT, &d, 1, 0, "nobody");
    assert_null(p);
    assert_int_equal(d.at.line, 5);
    d = (diag){ 0 };
    assert_refused(dev, device_compile(dev, &(dev_source){ .text = bad_type, .n_text = strlen(bad_type) }, &p, &d),
                   AN_INPUT, &d, 1, 0, "9");
    d = (diag){ 0 };
    assert_refused(dev, device_compile(dev, &(dev_source){ .text = "", .n_text = 0 }, &p, &d), AN_INPUT, &d, 1, 0, "");
    d = (diag){ 0 };
    an_status st = device_compile(dev, &(dev_source){ .text = rank6, .n_text = strlen(rank6) }, &p, &d);
    if (device_is_plain(dev)) {
        assert_ok(st, d);
        dev_program_free(p);
    } else {
        assert_refused(dev, st, AN_UNSUPPORTED, &d, 1, 0, "tensor rank 6 exceeds the ANE maximum of 5");
        assert_non_null(strstr(d.msg, "ANECCompile() FAILED"));
    }
    device_stats s;
    device_get_stats(dev, &s);
    assert_int_equal(s.programs, 0);
    close_clean(dev);
}

static void weight_errors(void **state)
{
    device *dev = OPEN(state);
    if (!device_computes(dev)) { /* null never looks at weights */
        close_clean(dev);
        return;
    }
    dev_program *p;
    diag d = { 0 };
    dev_source src = { .text = CONV_TEXT, .n_text = strlen(CONV_TEXT) };
    assert_refused(dev, device_compile(dev, &src, &p, &d), AN_INPUT, &d, 1, 0, WEIGHT_PATH);
    strbuf w = weight_file(2, 0);
    dev_blob other = { "@model_path/other.bin", w.at, w.n };
    src.weights = (dev_weights){ .blob = &other, .n_blob = 1 };
    d = (diag){ 0 };
    assert_refused(dev, device_compile(dev, &src, &p, &d), AN_INPUT, &d, 1, 0, WEIGHT_PATH);
    dev_blob cut = { WEIGHT_PATH, w.at, w.n - 1 };
    src.weights.blob = &cut;
    d = (diag){ 0 };
    assert_refused(dev, device_compile(dev, &src, &p, &d), AN_INPUT, &d, 1, 0, "bytes");
    dev_blob twice[2] = { { WEIGHT_PATH, w.at, w.n }, { WEIGHT_PATH, w.at, w.n } };
    src.weights = (dev_weights){ .blob = twice, .n_blob = 2 };
    d = (diag){ 0 };
    assert_refused(dev, device_compile(dev, &src, &p, &d), AN_INPUT, &d, 1, 0, "twice");
    sb_free(&w);
    close_clean(dev);
}

/* ---- weights ---- */

static void baked_weights(void **state)
{
    device *dev = OPEN(state);
    strbuf w = weight_file(2, 0), w3 = weight_file(3, 0);
    dev_program *p = must_compile(dev, CONV_TEXT, &w);
    bound b = must_bind(dev, p);
    diag d = { 0 };
    double x = 1 + 0.125 * 40;
    bool computes = device_computes(dev);
    if (computes) CLOSE_TO(answer(&b, 40), 2 * x);
    memcpy(w.at, w3.at, w.n); /* the source changes under the program's feet */
    if (computes) CLOSE_TO(answer(&b, 40), 2 * x);
    assert_ok(dev_program_unload(p, &d), d);
    assert_ok(dev_program_load(p, &d), d);
    if (computes) CLOSE_TO(answer(&b, 40), 2 * x);

    dev_canary c = { 0 };
    dev_blob blob = { WEIGHT_PATH, w3.at, w3.n };
    dev_weights fresh = { .blob = &blob, .n_blob = 1 };
    assert_ok(dev_program_reload(p, &fresh, &c, &d), d);
    if (computes) {
        CLOSE_TO(answer(&b, 40), 3 * x);
        assert_true(c.source_changed);
        assert_true(c.weights_before != c.weights_after);
        assert_true(c.output_before != c.output_after);
    }
    dev_canary again = { 0 };
    assert_ok(dev_program_reload(p, &fresh, &again, &d), d); /* the same once more: nothing moves */
    assert_false(again.source_changed);
    assert_true(again.weights_before == again.weights_after && again.output_before == again.output_after);
    assert_true(again.weights_before == c.weights_after && again.output_before == c.output_after);
    strbuf w5 = weight_file(5, 0.5);
    blob.bytes = w5.at;
    assert_ok(dev_program_reload(p, &fresh, NULL, &d), d); /* without a proof */
    double others = 0;
    for (int k = 0; k < 8; k++) others += 0.5 * (1 + 0.125 * (8 + 32 * k));
    if (computes) CLOSE_TO(answer(&b, 40), 4.5 * x + others);
    /* taken up while unloaded, in use when loaded */
    blob.bytes = w3.at;
    assert_ok(dev_program_unload(p, &d), d);
    assert_ok(dev_program_reload(p, &fresh, &c, &d), d);
    assert_ok(dev_program_load(p, &d), d);
    if (computes) CLOSE_TO(answer(&b, 40), 3 * x);
    device_stats st;
    device_get_stats(dev, &st);
    assert_int_equal(st.reloads, 4);
    assert_int_equal(st.compiles, 1);

    if (computes) { /* what does not fit is refused, and the old weights go on */
        blob.n--;
        assert_refused(dev, dev_program_reload(p, &fresh, &c, &d), AN_INPUT, &d, 8, 0xe00002c2, "bytes");
        d = (diag){ 0 };
        assert_refused(dev, dev_program_reload(p, &(dev_weights){ 0 }, NULL, &d), AN_INPUT, &d, 8, 0xe00002c2,
                       WEIGHT_PATH);
        d = (diag){ 0 };
        CLOSE_TO(answer(&b, 40), 3 * x);
    }
    drop_bound(&b);
    dev_program_free(p);
    blob.n = w3.n; /* weights that were to stay */
    assert_ok(device_compile(
                  dev, &(dev_source){ .text = CONV_TEXT, .n_text = strlen(CONV_TEXT), .weights = fresh, .final = true },
                  &p, &d),
              d);
    assert_refused(dev, dev_program_reload(p, &fresh, &c, &d), AN_INPUT, &d, 8, 0xe00002c2, "compile it again");
    strbuf bytes = { 0 };
    d = (diag){ 0 };
    if (computes) assert_ok(dev_program_bytes(p, &bytes, &d), d);
    dev_program_free(p);
    if (computes) { /* the same where its bytes are taken: they say it */
        device *there;
        assert_ok(device_open(&there, device_name(dev),
                              &(device_options){
                                  .limit = &(device_limit){ "open_images", 1 }, .n_limit = 1, .own_budget = true },
                              &d),
                  d);
        assert_ok(device_adopt(there, bytes.at, bytes.n, &fresh, &p, &d), d);
        assert_ok(dev_program_load(p, &d), d);
        assert_refused(there, dev_program_reload(p, &fresh, &c, &d), AN_INPUT, &d, 8, 0xe00002c2, "compile it again");
        dev_program_free(p);
        d = (diag){ 0 };
        assert_refused(there, device_adopt(there, bytes.at, bytes.n, &(dev_weights)WITH_WEIGHTS(w5), &p, &d), AN_INPUT,
                       &d, 8, 0xe00002e2, "made for other weights");
        device_close(there);
    }
    sb_free(&bytes);
    sb_free(&w);
    sb_free(&w3);
    sb_free(&w5);
    close_clean(dev);
}

/* A mask in a weight file is a weight: another one counts after a reload, or is refused by a program that took it
 * for what it was. */
static void baked_mask(void **state)
{
    device *dev = OPEN(state);
    strbuf causal = matrix_file(0, 0, -20000), open = matrix_file(0, 0, 0);
    dev_program *p = must_compile(dev, MASK_TEXT, &causal);
    bound b = must_bind(dev, p);
    diag d = { 0 };
    const bool computes = device_computes(dev);
    put_f16(b.s[0][0], 2 * 8 * 32, 0, 1.0 / 512);
    for (int turn = 0; turn < 3; turn++) {
        const strbuf *w = turn == 1 ? &open : &causal;
        const an_status st = turn ? dev_program_reload(p, &(dev_weights)WITH_WEIGHTS(*w), NULL, &d) : AN_OK;
        if (st) {
            assert_int_equal(turn, 1);
            assert_refused(dev, st, AN_INPUT, &d, 8, 0xe00002e2, "was causal when the program was compiled");
            d = (diag){ 0 };
        }
        assert_ok(device_run(b.r, DEV_QOS, &d), d);
        const bool alone = fabs(get_f16(b.s[1][0], 31) - 31.0 / 512) < 1e-3; /* the first row sees itself only */
        if (computes) assert_int_equal(alone, turn != 1 || st);
    }
    drop_bound(&b);
    dev_program_free(p);
    sb_free(&causal);
    sb_free(&open);
    close_clean(dev);
}

/* A number in a weight file that is no weight: the program was compiled around it, so it may not become another one. */
static void baked_number(void **state)
{
    device *dev = OPEN_LIMITS(state, { "open_images", 1 });
    strbuf first = slope_file(2, 0.25), other = slope_file(2, 0.5), heavier = slope_file(3, 0.25), bytes = { 0 };
    dev_program *p = must_compile(dev, SLOPE_TEXT, &first);
    bound b = must_bind(dev, p);
    diag d = { 0 };
    const bool computes = device_computes(dev);
    put_f16(b.s[0][0], 256, -1, 0);
    for (int loaded = 0; loaded < 2 && computes; loaded++) {
        if (!loaded) assert_ok(dev_program_unload(p, &d), d);
        dev_canary c = { 0 };
        assert_refused(dev, dev_program_reload(p, &(dev_weights)WITH_WEIGHTS(other), &c, &d), AN_INPUT, &d, 8,
                       0xe00002e2, WEIGHT_PATH ": the record at byte 256 is part of the program");
        assert_non_null(strstr(d.msg, "was 0.25 when it was compiled and is 0.5; compile again"));
        d = (diag){ 0 };
        if (!loaded) assert_ok(dev_program_load(p, &d), d);
        assert_ok(device_run(b.r, DEV_QOS, &d), d);
        CLOSE_TO(get_f16(b.s[1][0], 0), -0.5);
    }
    assert_ok(dev_program_reload(p, &(dev_weights)WITH_WEIGHTS(heavier), NULL, &d), d);
    assert_ok(device_run(b.r, DEV_QOS, &d), d);
    if (computes) CLOSE_TO(get_f16(b.s[1][0], 0), -0.75);
    if (computes) assert_ok(dev_program_bytes(p, &bytes, &d), d);
    drop_bound(&b);
    dev_program_free(p);
    for (int same = 0; same < 2 && computes; same++) { /* the same from program bytes */
        assert_ok(device_adopt(dev, bytes.at, bytes.n, &(dev_weights)WITH_WEIGHTS(*(same ? &heavier : &other)), &p, &d),
                  d);
        const an_status st = dev_program_load(p, &d);
        if (!same) assert_refused(dev, st, AN_INPUT, &d, 8, 0xe00002e2, "compile again");
        else assert_ok(st, d);
        d = (diag){ 0 };
        dev_program_free(p);
    }
    sb_free(&first), sb_free(&other), sb_free(&heavier), sb_free(&bytes);
    close_clean(dev);
}

static void weight_folder(void **state)
{
    char dir[] = "/tmp/anneal-conform-XXXXXX", sub[64], path[80];
    assert_non_null(mkdtemp(dir));
    snprintf(sub, sizeof sub, "%s/weights", dir);
    snprintf(path, sizeof path, "%s/w.bin", sub);
    diag d = { 0 };
    assert_ok(dir_make(sub, &d), d);
    strbuf w = weight_file(2, 0), w3 = weight_file(3, 0);
    assert_ok(file_write(path, w.at, w.n, &d), d);
    device *dev = OPEN(state);
    dev_program *p;
    dev_source src = { .text = CONV_TEXT, .n_text = strlen(CONV_TEXT), .weights = { .model_dir = dir } };
    assert_ok(device_compile(dev, &src, &p, &d), d);
    assert_ok(dev_program_load(p, &d), d);
    bound b = must_bind(dev, p);
    if (device_computes(dev)) CLOSE_TO(answer(&b, 0), 2);
    FILE *f = fopen(path, "r+b"); /* overwritten in place, as a naive patcher does */
    assert_non_null(f);
    assert_int_equal(fwrite(w3.at, 1, w3.n, f), w3.n);
    fclose(f);
    if (device_computes(dev)) CLOSE_TO(answer(&b, 0), 2);
    assert_ok(dev_program_reload(p, &src.weights, NULL, &d), d);
    if (device_computes(dev)) CLOSE_TO(answer(&b, 0), 3);
    /* kept by the caller: no copy, same results */
    dev_program *q;
    src.weights.stable = true;
    assert_ok(device_compile(dev, &src, &q, &d), d);
    assert_ok(dev_program_load(q, &d), d);
    bound c = must_bind(dev, q);
    if (device_computes(dev)) CLOSE_TO(answer(&c, 0), 3);
    drop_bound(&b);
    drop_bound(&c);
    dev_program_free(p);
    dev_program_free(q);
    close_clean(dev);
    sb_free(&w);
    sb_free(&w3);
    unlink(path);
    rmdir(sub);
    rmdir(dir);
}

/* ---- resident state ---- */

static void accumulator(void **state)
{
    device *dev = OPEN(state);
    dev_program *p = must_compile(dev, STATE_TEXT, NULL);
    bound b = must_bind(dev, p);
    diag d = { 0 };
    assert_ok(dev_request_bind(b.r, DEV_OUTPUT, "next", b.s[0][0], &d), d); /* one surface on both sides */
    for (int t = 1; t <= 4; t++) {
        assert_ok(device_run(b.r, DEV_QOS, &d), d);
        if (!device_computes(dev)) continue;
        CLOSE_TO(get_f16(b.s[0][0], 0), t);            /* 1, 2, 3, 4 without sending anything */
        CLOSE_TO(get_f16(b.s[1][1], 31), 2 * (t - 1)); /* read as it was before this dispatch */
    }
    /* two surfaces that change places: output of one dispatch, input of the next */
    dev_request *back;
    assert_ok(dev_request_bind(b.r, DEV_OUTPUT, "next", b.s[1][0], &d), d);
    assert_ok(dev_request_new(p, &back, &d), d);
    assert_ok(dev_request_bind(back, DEV_INPUT, "s", b.s[1][0], &d), d);
    assert_ok(dev_request_bind(back, DEV_OUTPUT, "next", b.s[0][0], &d), d);
    assert_ok(dev_request_bind(back, DEV_OUTPUT, "twice", b.s[1][1], &d), d);
    for (int t = 0; t < 3; t++) {
        assert_ok(device_run(b.r, DEV_QOS, &d), d);
        assert_ok(device_run(back, DEV_QOS, &d), d);
    }
    if (device_computes(dev)) CLOSE_TO(get_f16(b.s[0][0], 7), 10);
    dev_request_free(back);
    drop_bound(&b);
    dev_program_free(p);
    close_clean(dev);
}

static void ring(void **state)
{
    static const double want[6] = { 10, 20, 30, 40, 50, 0 };
    device *dev = OPEN(state);
    dev_program *p = must_compile(dev, RING_TEXT, NULL);
    bound b = must_bind(dev, p);
    diag d = { 0 };
    assert_ok(dev_request_bind(b.r, DEV_OUTPUT, "out", b.s[0][0], &d), d); /* cache is the first input */
    for (int t = 0; t < 5; t++) {
        uint16_t onehot[6] = { 0 };
        onehot[t] = f16_from_f64(1);
        assert_ok(dev_surface_write(b.s[0][1], onehot, sizeof onehot, &d), d);
        put_f16(b.s[0][2], 6, (t + 1) * 10, 0);
        assert_ok(device_run(b.r, DEV_QOS, &d), d);
    }
    for (int i = 0; i < 6 && device_computes(dev); i++) CLOSE_TO(get_f16(b.s[0][0], i), want[i]);
    drop_bound(&b);
    dev_program_free(p);
    close_clean(dev);
}

static void alias_rules(void **state)
{
    device *dev = OPEN(state);
    dev_program *p = must_compile(dev, TWO_TEXT, NULL);
    bound b = must_bind(dev, p);
    diag d = { 0 };
    bool rule = device_get_limits(dev)->alias_pairs;
    assert_ok(dev_request_bind(b.r, DEV_OUTPUT, "q", b.s[0][0], &d), d); /* q has 512 bytes, aa 256 */
    put_f16(b.s[0][0], 128, 3, 0);
    put_f16(b.s[0][1], 256, 5, 0);
    an_status st = device_run(b.r, DEV_QOS, &d);
    if (rule) assert_refused(dev, st, AN_INPUT, &d, 8, 0x1d, "state needs equal sizes");
    else assert_ok(st, d);
    if (!rule && device_computes(dev)) CLOSE_TO(get_f16(b.s[1][0], 127), 9); /* k from aa as it was */
    drop_bound(&b);
    dev_program_free(p);
    p = must_compile(dev, RING_TEXT, NULL);
    b = must_bind(dev, p);
    d = (diag){ 0 };
    assert_ok(dev_request_bind(b.r, DEV_OUTPUT, "out", b.s[0][0], &d), d);
    assert_ok(dev_request_bind(b.r, DEV_INPUT, "value", b.s[0][0], &d), d);
    st = device_run(b.r, DEV_QOS, &d);
    if (rule) assert_refused(dev, st, AN_INPUT, &d, 8, 0x1d, "shares its surface with 2 inputs");
    else assert_ok(st, d);
    drop_bound(&b);
    dev_program_free(p);
    close_clean(dev);
}

/* What a caller may not do is a limit that can be lowered; what no program can do is refused when it is loaded. */
static void unentitled(void **state)
{
    device *dev = OPEN_LIMITS(state, { "chaining", 0 });
    dev_program *p = must_compile(dev, RING_TEXT, NULL);
    bound b = must_bind(dev, p);
    diag d = { 0 };
    assert_ok(device_run(b.r, DEV_QOS, &d), d); /* surfaces of their own need no leave */
    assert_ok(dev_request_bind(b.r, DEV_OUTPUT, "out", b.s[0][0], &d), d);
    assert_refused(dev, device_run(b.r, DEV_QOS, &d), AN_UNSUPPORTED, &d, 8, 0xe00002c7, "allow-dataChaining-access");
    drop_bound(&b);
    dev_program_free(p);
    close_clean(dev);
}

static void statistics(void **state)
{
    for (int granted = 0; granted < 2; granted++) {
        device *dev = OPEN_LIMITS(state, { "stats", granted });
        dev_program *p;
        diag d = { 0 };
        assert_ok(device_compile(dev, &(dev_source){ .text = RING_TEXT, .n_text = strlen(RING_TEXT), .stats_mask = 5 },
                                 &p, &d),
                  d);
        an_status st = dev_program_load(p, &d);
        assert_int_equal(dev_program_loaded(p), granted);
        if (granted) assert_ok(st, d);
        else {
            assert_int_equal(st, AN_UNSUPPORTED);
            assert_non_null(strstr(d.msg, "mask 0x5"));
        }
        dev_program_free(p);
        close_clean(dev);
    }
}

/* ---- the suite, once per device ---- */

static const conform_row suite[] = {
    ROW(opening),      ROW(compile_and_run), ROW(binding),       ROW(sizes),         ROW(packed),
    ROW(rows),         ROW(compile_errors),  ROW(weight_errors), ROW(baked_weights), ROW(baked_mask),
    ROW(baked_number), ROW(weight_folder),   ROW(accumulator),   ROW(ring),          ROW(alias_rules),
    ROW(unentitled),   ROW(statistics),      ROW(rest_of_a_byte),
};

int main(void) { return conform_main("conform", suite, COUNT(suite)); }
