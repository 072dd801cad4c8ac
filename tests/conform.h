/* conform.h: what the device tests share: small programs, weight files in memory, and an open device that checks
 * itself. */
#ifndef TESTS_CONFORM_H
#define TESTS_CONFORM_H

#include "device/device.h"
#include "mil/mil.h"
#include "t.h"

#define MIL_HEAD                                                                                                      \
    "program(1.3)\n[buildInfo = dict<string, string>({{\"coremlc-component-MIL\", \"3510.2.1\"}, {\"coremlc-version\", \"3505.4.1\"}, " \
    "{\"coremltools-component-milinternal\", \"\"}, {\"coremltools-version\", \"9.0\"}})]\n{\n"
#define WEIGHT_PATH "@model_path/weights/w.bin"

/* `to` = w·x over channels: 8 to 8, width 32, weights in a file; the text goes on behind it. */
#define CONV_TO(to)                                                                                                   \
    MIL_HEAD "func main<ios18>(tensor<fp16, [1, 8, 1, 32]> x) {\n"                                                    \
             "string pt = const()[name = string(\"pt\"), val = string(\"valid\")];\n"                                 \
             "tensor<int32, [2]> ones = const()[name = string(\"ones\"), val = tensor<int32, [2]>([1, 1])];\n"        \
             "tensor<int32, [4]> zero = const()[name = string(\"zero\"), val = tensor<int32, [4]>([0, 0, 0, 0])];\n"  \
             "int32 g = const()[name = string(\"g\"), val = int32(1)];\n"                                             \
             "tensor<fp16, [8, 8, 1, 1]> w = const()[name = string(\"w\"), val = tensor<fp16, [8, 8, 1, 1]>(BLOBFILE(path = " \
             "string(\"" WEIGHT_PATH "\"), offset = uint64(64)))];\n"                                                 \
             "tensor<fp16, [1, 8, 1, 32]> " to " = conv(dilations = ones, groups = g, pad = zero, pad_type = pt, strides = ones, weight = w, " \
             "x = x)[name = string(\"" to "\")];\n"
#define CONV_TEXT CONV_TO("y") "} -> (y);\n}\n"
/* Ports of different sizes, declared against the alphabet: q = zz + zz, k = aa·aa. */
#define TWO_TEXT                                                                                                      \
    MIL_HEAD "func main<ios18>(tensor<fp16, [1, 8, 1, 32]> zz, tensor<fp16, [1, 4, 1, 32]> aa) {\n"                   \
             "tensor<fp16, [1, 8, 1, 32]> q = add(x = zz, y = zz)[name = string(\"q\")];\n"                           \
             "tensor<fp16, [1, 4, 1, 32]> k = mul(x = aa, y = aa)[name = string(\"k\")];\n} -> (q, k);\n}\n"
/* next = s + 1, twice = s + s: state and something that reads it in the same dispatch. */
#define STATE_TEXT                                                                                                    \
    MIL_HEAD "func main<ios18>(tensor<fp16, [1, 1, 1, 32]> s) {\n"                                                    \
             "fp16 one = const()[name = string(\"one\"), val = fp16(1)];\n"                                           \
             "tensor<fp16, [1, 1, 1, 32]> next = add(x = s, y = one)[name = string(\"next\")];\n"                     \
             "tensor<fp16, [1, 1, 1, 32]> twice = add(x = s, y = s)[name = string(\"twice\")];\n} -> (next, twice);\n}\n"
/* Attention of x to itself, two heads of eight rows, the mask in a file. */
#define MASK_TEXT                                                                                                     \
    MIL_HEAD "func main<ios18>(tensor<fp16, [1, 2, 8, 32]> x) {\n"                                                    \
             "bool no = const()[name = string(\"no\"), val = bool(false)];\n"                                        \
             "bool yes = const()[name = string(\"yes\"), val = bool(true)];\n"                                       \
             "int32 last = const()[name = string(\"last\"), val = int32(-1)];\n"                                     \
             "tensor<fp16, [1, 1, 8, 8]> m = const()[name = string(\"m\"), val = tensor<fp16, [1, 1, 8, 8]>(BLOBFILE(path = " \
             "string(\"" WEIGHT_PATH "\"), offset = uint64(64)))];\n"                                                 \
             "tensor<fp16, [1, 2, 8, 8]> s = matmul(x = x, y = x, transpose_x = no, transpose_y = yes)[name = string(\"s\")];\n" \
             "tensor<fp16, [1, 2, 8, 8]> a = add(x = s, y = m)[name = string(\"a\")];\n"                             \
             "tensor<fp16, [1, 2, 8, 8]> p = softmax(axis = last, x = a)[name = string(\"p\")];\n"                   \
             "tensor<fp16, [1, 2, 8, 32]> y = matmul(x = p, y = x, transpose_x = no, transpose_y = no)[name = string(\"y\")];\n} -> (y);\n}\n"
/* y = leaky_relu(w·x), the slope in the file too, behind w. */
#define SLOPE_TEXT                                                                                                    \
    CONV_TO("c") "fp16 slope = const()[name = string(\"slope\"), val = fp16(BLOBFILE(path = string(\"" WEIGHT_PATH "\"), offset = uint64(256)))];\n" \
                 "tensor<fp16, [1, 8, 1, 32]> y = leaky_relu(alpha = slope, x = c)[name = string(\"y\")];\n} -> (y);\n}\n"
/* A cache of six slots: out = cache·(1 - onehot) + value·onehot. */
#define RING_TEXT                                                                                                     \
    MIL_HEAD "func main<ios18>(tensor<fp16, [1, 1, 1, 6]> cache, tensor<fp16, [1, 1, 1, 6]> onehot, tensor<fp16, [1, 1, 1, 6]> value) {\n" \
             "fp16 one = const()[name = string(\"one\"), val = fp16(1)];\n"                                           \
             "tensor<fp16, [1, 1, 1, 6]> keep = sub(x = one, y = onehot)[name = string(\"keep\")];\n"                 \
             "tensor<fp16, [1, 1, 1, 6]> old = mul(x = cache, y = keep)[name = string(\"old\")];\n"                   \
             "tensor<fp16, [1, 1, 1, 6]> put = mul(x = value, y = onehot)[name = string(\"put\")];\n"                 \
             "tensor<fp16, [1, 1, 1, 6]> out = add(x = old, y = put)[name = string(\"out\")];\n} -> (out);\n}\n"

/* A weight file with one record: an 8 by 8 matrix, of what is below its diagonal, on it and above it. */
static inline strbuf matrix_file(double below, double on, double above)
{
    uint16_t w[64];
    for (int i = 0; i < 64; i++) w[i] = f16_from_f64(i % 8 < i / 8 ? below : i % 8 > i / 8 ? above : on);
    blob_writer b = { 0 };
    uint64_t at;
    diag d = { 0 };
    assert_ok(blob_add(&b, DT_F16, w, sizeof w, &at, &d), d);
    assert_ok(blob_finish(&b, &d), d);
    assert_int_equal(at, 64);
    return b.bytes;
}

/* The file of SLOPE_TEXT: a diagonal, and the slope. */
static inline strbuf slope_file(double scale, double slope)
{
    uint16_t w[64], s = f16_from_f64(slope);
    for (int i = 0; i < 64; i++) w[i] = f16_from_f64(i % 9 ? 0 : scale);
    blob_writer b = { 0 };
    uint64_t at;
    diag d = { 0 };
    assert_ok(blob_add(&b, DT_F16, w, sizeof w, &at, &d), d);
    assert_ok(blob_add(&b, DT_F16, &s, sizeof s, &at, &d), d);
    assert_ok(blob_finish(&b, &d), d);
    assert_int_equal(at, 256);
    return b.bytes;
}

static inline strbuf weight_file(double scale, double off) { return matrix_file(off, scale, off); }

#define WITH_WEIGHTS(file) { .blob = &(const dev_blob){ WEIGHT_PATH, (file).at, (file).n }, .n_blob = 1 }

static inline dev_program *must_compile(device *dev, const char *text, const strbuf *weights)
{
    dev_program *p;
    diag d = { 0 };
    dev_blob blob = { WEIGHT_PATH, weights ? weights->at : NULL, weights ? weights->n : 0 };
    dev_source src = { .text = text, .n_text = strlen(text), .weights = { .blob = &blob, .n_blob = weights != NULL } };
    assert_ok(device_compile(dev, &src, &p, &d), d);
    assert_ok(dev_program_load(p, &d), d);
    return p;
}

static inline dev_surface *must_surface(device *dev, uint64_t bytes)
{
    dev_surface *s;
    diag d = { 0 };
    assert_ok(dev_surface_new(dev, bytes, &s, &d), d);
    return s;
}

static inline void put_f16(dev_surface *s, int n, double first, double step)
{
    uint16_t *x;
    void *at;
    diag d = { 0 };
    assert_ok(dev_surface_lock(s, false, &at, &d), d);
    x = at;
    for (int i = 0; i < n; i++) x[i] = f16_from_f64(first + step * i);
    assert_ok(dev_surface_unlock(s, &d), d);
}

static inline double get_f16(dev_surface *s, int i)
{
    void *at;
    diag d = { 0 };
    assert_ok(dev_surface_lock(s, true, &at, &d), d);
    double x = f16_to_f64(((const uint16_t *)at)[i]);
    assert_ok(dev_surface_unlock(s, &d), d);
    return x;
}

/* A request with a fresh surface of the right size on every port; surface[side][port] are the caller's. */
typedef struct {
    dev_request *r;
    dev_surface *s[2][4];
    size_t n[2];
} bound;

static inline bound must_bind(device *dev, dev_program *p)
{
    bound b = { 0 };
    diag d = { 0 };
    assert_ok(dev_request_new(p, &b.r, &d), d);
    for (int side = 0; side < 2; side++) {
        const dev_port *ports;
        b.n[side] = dev_program_ports(p, (dev_side)side, &ports);
        assert_true(b.n[side] <= 4);
        for (size_t i = 0; i < b.n[side]; i++) {
            b.s[side][i] = must_surface(dev, dev_program_surface_bytes(p, (dev_side)side));
            assert_ok(dev_request_bind(b.r, (dev_side)side, ports[i].name, b.s[side][i], &d), d);
        }
    }
    return b;
}

static inline void drop_bound(bound *b)
{
    dev_request_free(b->r);
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < b->n[side]; i++) dev_surface_free(b->s[side][i]);
}

/* Everything was given back; then close. */
static inline void close_clean(device *dev)
{
    device_stats st;
    device_get_stats(dev, &st);
    assert_int_equal(st.programs, 0);
    assert_int_equal(st.loaded, 0);
    assert_int_equal(st.surfaces, 0);
    assert_int_equal(st.requests, 0);
    assert_int_equal(st.surface_bytes, 0);
    assert_int_equal(st.image_bytes, 0);
    device_close(dev);
}

/* ---- a device of the suite ---- */

static inline const char *name_of(void **state) { return *state; }

/* Every device counts for itself, as the rows of the suite are no parts of one program; process_loads and
 * process_compiles are about the others. */
static inline device *open_with(void **state, const device_limit *limit, size_t n)
{
    device *dev;
    diag d = { 0 };
    assert_ok(device_open(&dev, name_of(state),
                          &(device_options){ .threads = 2, .own_budget = true, .limit = limit, .n_limit = n }, &d),
              d);
    return dev;
}
#define OPEN(state) open_with(state, NULL, 0)
#define OPEN_LIMITS(state, ...)                                                                                        \
    open_with(state, (const device_limit[]){ __VA_ARGS__ },                                                            \
              sizeof((const device_limit[]){ __VA_ARGS__ }) / sizeof(device_limit))

#define CLOSE_TO(got, want) assert_true((got) > (want) - 1e-6 && (got) < (want) + 1e-6)

/* The last refusal on dev had this engine code and status, and words in both the message and the engine's text,
 * which a chip's message begins with. */
static inline void assert_refused(device *dev, an_status got, an_status want, const diag *d, int code, uint32_t status,
                                  const char *words)
{
    engine_error e;
    device_error(dev, &e);
    if (got != want || !strstr(d->msg, words) || !strstr(e.text, words) || e.code != code || e.status != status)
        fail_msg("wanted status %d, code %d, 0x%x, \"%s\"; got %d, %d, 0x%x: %s", want, code, status, words, got,
                 e.code, e.status, d->msg);
    assert_non_null(e.domain);
    assert_non_null(strstr(e.domain, "com.apple.appleneuralengine"));
    if (device_is_plain(dev) == !strncmp(d->msg, e.text, 16))
        fail_msg("the engine's words are a chip's alone: %s", d->msg);
}

/* What the convolution makes of 1, 1.125, 1.25, … at place i. */
static inline double answer(bound *b, int i)
{
    diag d = { 0 };
    put_f16(b->s[0][0], 256, 1, 0.125);
    assert_ok(device_run(b->r, DEV_QOS, &d), d);
    return get_f16(b->s[1][0], i);
}

/* ---- the suites, once per device: a new one is a new name here; AN_DEVICE=name runs that one alone, and empty is
 * unset ---- */

typedef struct {
    const char *name;
    CMUnitTestFunction fn;
} conform_row;
#define ROW(fn) { #fn, fn }

/* A suite on a device that does not exist would show nothing. */
static inline bool conform_opens(const char *name)
{
    device *dev;
    diag d = { 0 };
    if (device_open(&dev, name, &(device_options){ .threads = 1, .own_budget = true }, &d))
        return fprintf(stderr, "AN_DEVICE is \"%s\": %s\n", name, d.msg), false;
    device_close(dev);
    return true;
}

static inline int conform_main(const char *group, const conform_row *suite, size_t rows)
{
    static const char *const devices[] = { "soft:m1", "soft:m2", "soft:m3", "soft:m4", "soft:m5", "cpu", "null" };
    enum { MOST = 300 };
    static struct CMUnitTest tests[MOST];
    static char names[MOST][64];
    const char *only = getenv("AN_DEVICE");
    size_t n = 0;
    if (only && !*only) only = NULL;
    if (only && !conform_opens(only)) return 1;
    for (size_t k = 0; k < (only ? 1 : COUNT(devices)); k++) {
        const char *name = only ? only : devices[k];
        for (size_t i = 0; i < rows; i++, n++) {
            assert_true(n < MOST);
            snprintf(names[n], sizeof names[n], "%s: %s", name, suite[i].name);
            tests[n] = (struct CMUnitTest){ .name = names[n],
                                            .test_func = suite[i].fn,
                                            .initial_state = (void *)(uintptr_t)name };
        }
    }
    return _cmocka_run_group_tests(group, tests, n, NULL, NULL);
}

#endif
