/* Programs that change under their callers: reloads that are dispatched to, proven and judged, and the memory that
 * programs and surfaces share. */
#include <pthread.h>
#include <stdatomic.h>

#include "conform.h"

typedef struct {
    dev_request *r;
    int tried;
    an_status st;
    char said[400];
} intruder;

/* Another thread, as it were: it dispatches what is being reloaded. */
static bool dispatch_meanwhile(void *user, const char *what)
{
    intruder *x = user;
    diag d = { 0 };
    if (!x->r || strcmp(what, "reload")) return false;
    assert_int_equal(device_run(x->r, DEV_QOS, &d), AN_UNSUPPORTED);
    assert_non_null(strstr(d.msg, "being reloaded"));
    x->tried++;
    return false;
}

/* A program that is being reloaded is busy, not gone: who was told to load it could not. */
static void dispatched_while_reloading(void **state)
{
    (void)state;
    intruder x = { 0 };
    device *dev;
    diag d = { 0 };
    assert_ok(
        device_open(&dev, "soft:m1", &(device_options){ .threads = 1, .fault = dispatch_meanwhile, .user = &x }, &d),
        d);
    dev_program *p = must_compile(dev, STATE_TEXT, NULL);
    bound b = must_bind(dev, p);
    x.r = b.r;
    assert_ok(dev_program_reload(p, &(dev_weights){ 0 }, NULL, &d), d);
    assert_int_equal(x.tried, 1);
    x.r = NULL;
    assert_ok(device_run(b.r, DEV_QOS, &d), d);
    drop_bound(&b);
    dev_program_free(p);
    close_clean(dev);
}

/* Without a worker the queue runs where it is waited for; from within its first dispatch the second request is
 * submitted. */
static bool dispatch_the_next(void *user, const char *what)
{
    intruder *x = user;
    diag d = { 0 };
    if (!strcmp(what, "thread")) return true;
    if (x->tried || strcmp(what, "dispatch")) return false;
    x->tried++;
    x->st = device_submit(x->r, DEV_QOS, &d);
    snprintf(x->said, sizeof x->said, "%s", d.msg);
    return false;
}

/* Unloading and freeing end what was submitted, and nothing new gets in meanwhile. */
static void dispatched_while_it_goes(void **state)
{
    (void)state;
    for (int freed = 0; freed < 2; freed++) {
        intruder x = { 0 };
        device *dev;
        diag d = { 0 };
        assert_ok(
            device_open(&dev, "soft:m1", &(device_options){ .threads = 1, .fault = dispatch_the_next, .user = &x }, &d),
            d);
        dev_program *p = must_compile(dev, STATE_TEXT, NULL);
        bound b = must_bind(dev, p), next = must_bind(dev, p);
        x.r = next.r;
        assert_ok(device_submit(b.r, DEV_QOS, &d), d);
        assert_int_equal(x.tried, 0);
        if (freed) dev_program_free(p);
        else assert_ok(dev_program_unload(p, &d), d);
        assert_int_equal(x.tried, 1);
        assert_int_equal(x.st, freed ? AN_INPUT : AN_UNSUPPORTED);
        assert_non_null(strstr(x.said, freed ? "not loaded" : "reloaded or unloaded"));
        assert_ok(device_wait(b.r, &d), d);
        assert_true(get_f16(b.s[1][0], 0) == 1);
        if (!freed) dev_program_free(p);
        drop_bound(&b);
        drop_bound(&next);
        close_clean(dev);
    }
}

typedef struct {
    atomic_bool inside;  /* a dispatch */
    atomic_int overlaps;
} witness;

static bool witness_runs(void *user, const char *what)
{
    witness *x = user;
    if (!strcmp(what, "canary") && x->inside) x->overlaps++;
    if (strcmp(what, "dispatch")) return false;
    x->inside = true;
    nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
    x->inside = false;
    return false;
}

/* The answers a reload asks for are dispatches too: none overlaps with one that was submitted. Nor is a request gone
 * while it runs. */
static void a_reload_answers_alone(void **state)
{
    (void)state;
    witness x = { 0 };
    device *dev;
    diag d = { 0 };
    dev_canary c = { 0 };
    assert_ok(device_open(&dev, "soft:m1", &(device_options){ .threads = 1, .fault = witness_runs, .user = &x }, &d),
              d);
    dev_program *p = must_compile(dev, STATE_TEXT, NULL), *q = must_compile(dev, STATE_TEXT, NULL);
    bound b = must_bind(dev, p);
    assert_ok(device_submit(b.r, DEV_QOS, &d), d);
    while (!x.inside) nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
    assert_ok(dev_program_reload(q, &(dev_weights){ 0 }, &c, &d), d);
    assert_int_equal(x.overlaps, 0);
    assert_ok(device_wait(b.r, &d), d);
    assert_ok(device_submit(b.r, DEV_QOS, &d), d);
    while (!x.inside) nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
    dev_request_free(b.r);
    assert_false(x.inside);
    b.r = NULL;
    device_stats st;
    device_get_stats(dev, &st);
    assert_true(st.run_ms >= 40); /* two dispatches that slept */
    drop_bound(&b);
    dev_program_free(p);
    dev_program_free(q);
    close_clean(dev);
}

/* y = x·w, the weights fp32 in their file and fp16 in the program; z knows nothing of them. */
#define WIDE_TEXT                                                                                                     \
    MIL_HEAD "func main<ios18>(tensor<fp16, [1, 1, 1, 32]> x) {\n"                                                    \
             "tensor<fp32, [1, 1, 1, 32]> w = const()[name = string(\"w\"), val = tensor<fp32, [1, 1, 1, 32]>(BLOBFILE(path = " \
             "string(\"" WEIGHT_PATH "\"), offset = uint64(64)))];\n"                                                 \
             "string half = const()[name = string(\"half\"), val = string(\"fp16\")];\n"                            \
             "tensor<fp16, [1, 1, 1, 32]> c = cast(dtype = half, x = w)[name = string(\"c\")];\n"                     \
             "tensor<fp16, [1, 1, 1, 32]> y = mul(x = x, y = c)[name = string(\"y\")];\n"                     \
             "tensor<fp16, [1, 1, 1, 32]> z = add(x = x, y = x)[name = string(\"z\")];\n} -> (y, z);\n}\n"

static strbuf wide_file(float x)
{
    float w[32];
    for (int i = 0; i < 32; i++) w[i] = x;
    blob_writer b = { 0 };
    uint64_t at;
    diag d = { 0 };
    assert_ok(blob_add(&b, DT_F32, w, sizeof w, &at, &d), d);
    assert_ok(blob_finish(&b, &d), d);
    return b.bytes;
}

static bool stale_reload(void *spoiler, const char *what) { return *(bool *)spoiler && !strcmp(what, "reload"); }

/* The proof is that the constants are those of the new weights: not that they differ from the old, where rounding
 * makes them the same. */
static void proof_of_a_reload(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        float w;
        bool stale;
        an_status st;
        bool moves;
    } rows[] = {
        { "rounding swallows it", 1.0001f, false, AN_OK, false }, { "it shows", 1.5f, false, AN_OK, true },
        { "it did not take, and nobody could tell", 1.0001f, true, AN_OK, false }, { "it did not take", 1.5f, true, AN_BUG, false },
    };
    static const char *const devices[] = { "soft:m1", "cpu" };
    for (size_t i = 0; i < COUNT(rows) * COUNT(devices) * 2; i++) {
        const size_t k = i / 4;
        const bool only = i / 2 % 2;
        bool stale = false;
        device *dev;
        device_stats st;
        diag d = { 0 };
        strbuf one = wide_file(1), other = wide_file(rows[k].w);
        assert_ok(device_open(&dev, devices[i % 2],
                              &(device_options){ .threads = 1, .spoil = stale_reload, .spoiler = &stale }, &d),
                  d);
        dev_program *p = must_compile(dev, WIDE_TEXT, &one);
        dev_canary c = { .constants_only = only };
        stale = rows[k].stale;
        if (dev_program_reload(p, &(dev_weights)WITH_WEIGHTS(other), &c, &d) != rows[k].st)
            fail_msg("%s on %s: status %d: %s", rows[k].what, devices[i % 2], d.st, d.msg);
        if (rows[k].st) assert_non_null(strstr(d.msg, "did not take"));
        assert_true(c.source_changed);
        assert_int_equal(c.weights_before != c.weights_after, rows[k].moves);
        assert_int_equal(c.output_before != c.output_after, rows[k].moves && !only);
        assert_int_equal(c.constants_only, only);
        assert_int_equal(!c.output_before, only); /* nothing was asked */
        device_get_stats(dev, &st);
        assert_int_equal(st.reloads, !rows[k].st);
        dev_program_free(p);
        close_clean(dev);
        sb_free(&one), sb_free(&other);
    }
}

/* A digest tells weights from those with a few other signs, and so does the key of a kept program. */
static void proof_of_signs(void **state)
{
    (void)state;
    enum { DATA = 128, BYTES = 4 };
    static const int turned[][3] = { { 3, 17, 19 }, { 1, 2, 3 }, { 3, 5, 7 }, { 9, 10, 11 } };
    static const char *const devices[] = { "soft:m1", "cpu" };
    for (size_t i = 0; i < COUNT(turned) * COUNT(devices); i++) {
        device *dev;
        diag d = { 0 };
        dev_cache *cache;
        dev_canary c = { .constants_only = true };
        strbuf one = wide_file(1.5f), other = wide_file(1.5f);
        for (int k = 0; k < 3; k++) other.at[DATA + BYTES * turned[i / 2][k] + BYTES - 1] ^= (char)0x80;
        assert_ok(dev_cache_open(&cache, &(dev_cache_options){ .memory_only = true }, &d), d);
        assert_ok(device_open(&dev, devices[i % 2],
                              &(device_options){ .threads = 1, .cache = cache, .own_budget = true }, &d),
                  d);
        dev_program *p = must_compile(dev, WIDE_TEXT, &one), *q = must_compile(dev, WIDE_TEXT, &other),
                    *again = must_compile(dev, WIDE_TEXT, &one);
        if (dev_program_from_cache(q) || !dev_program_from_cache(again))
            fail_msg("row %zu: other weights are %skept, the same are %skept", i,
                     dev_program_from_cache(q) ? "" : "not ", dev_program_from_cache(again) ? "" : "not ");
        assert_ok(dev_program_reload(p, &(dev_weights)WITH_WEIGHTS(other), &c, &d), d);
        if (!c.source_changed || c.weights_before == c.weights_after)
            fail_msg("row %zu: the digest of other weights is the same", i);
        dev_program_free(p), dev_program_free(q), dev_program_free(again);
        close_clean(dev);
        dev_cache_close(cache);
        sb_free(&one), sb_free(&other);
    }
}

/* y = w·x, w int8 with a scale and a zero point for each row. */
#define AFFINE_TEXT                                                                                                   \
    MIL_HEAD "func main<ios18>(tensor<fp16, [1, 8, 1, 32]> x) {\n"                                                    \
             "string pt = const()[name = string(\"pt\"), val = string(\"valid\")];\n"                                 \
             "tensor<int32, [2]> ones = const()[name = string(\"ones\"), val = tensor<int32, [2]>([1, 1])];\n"        \
             "tensor<int32, [4]> zero = const()[name = string(\"zero\"), val = tensor<int32, [4]>([0, 0, 0, 0])];\n"  \
             "int32 g = const()[name = string(\"g\"), val = int32(1)];\n"                                             \
             "tensor<fp16, [8, 8, 1, 1]> w = constexpr_affine_dequantize()[axis = int32(0), name = string(\"w\"), "     \
             "quantized_data = tensor<int8, [8, 8, 1, 1]>(BLOBFILE(path = string(\"" WEIGHT_PATH "\"), offset = uint64(64))), " \
             "scale = tensor<fp16, [8]>(BLOBFILE(path = string(\"" WEIGHT_PATH "\"), offset = uint64(192))), "          \
             "zero_point = tensor<int8, [8]>(BLOBFILE(path = string(\"" WEIGHT_PATH "\"), offset = uint64(320)))];\n"   \
             "tensor<fp16, [1, 8, 1, 32]> y = conv(dilations = ones, groups = g, pad = zero, pad_type = pt, strides = ones, weight = w, " \
             "x = x)[name = string(\"y\")];\n} -> (y);\n}\n"

static strbuf affine_file(int8_t last_zero)
{
    int8_t q[64], z[8] = { 0 };
    uint16_t s[8];
    blob_writer b = { 0 };
    uint64_t at;
    diag d = { 0 };
    for (int i = 0; i < 64; i++) q[i] = i % 9 ? 0 : 3;
    for (int i = 0; i < 8; i++) s[i] = f16_from_f64(0.5);
    z[7] = last_zero;
    assert_ok(blob_add(&b, DT_I8, q, sizeof q, &at, &d), d);
    assert_ok(blob_add(&b, DT_F16, s, sizeof s, &at, &d), d);
    assert_int_equal(at, 192);
    assert_ok(blob_add(&b, DT_I8, z, sizeof z, &at, &d), d);
    assert_int_equal(at, 320);
    assert_ok(blob_finish(&b, &d), d);
    return b.bytes;
}

static an_status affine_record(void *user, const char *path, uint64_t offset, dtype dt, uint64_t bytes, const void **at,
                               diag *d)
{
    const strbuf *f = user;
    (void)path, (void)dt, (void)bytes, (void)d;
    *at = f->at + offset + 64;
    return AN_OK;
}

/* A rule about what weights hold is asked of the weights a program gets, whenever and however it gets them. */
static void rules_about_weights(void **state)
{
    (void)state;
    static const struct {
        const char *device;
        bool refuses;
    } rows[] = { { "soft:m1", true }, { "soft:m2", false }, { "cpu", false } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        device *dev;
        dev_program *p;
        diag d = { 0 };
        strbuf even = affine_file(0), odd = affine_file(5), bytes = { 0 };
        const dev_weights good = WITH_WEIGHTS(even), bad = WITH_WEIGHTS(odd);
        dev_source src = { .text = AFFINE_TEXT, .n_text = strlen(AFFINE_TEXT), .weights = bad };
        const an_status want = rows[i].refuses ? AN_UNSUPPORTED : AN_OK;
        assert_ok(device_open(&dev, rows[i].device,
                              &(device_options){ .threads = 1,
                                                 .own_budget = true,
                                                 .limit = (const device_limit[]){ { "open_images", 1 } },
                                                 .n_limit = !!strchr(rows[i].device, ':') },
                              &d),
                  d);
        assert_int_equal(device_compile(dev, &src, &p, &d), want);
        if (want &&
            !strstr(
                d.msg, WEIGHT_PATH
                ", record at byte 320: constexpr_affine_dequantize: zero point 5: this chip has symmetric int8 weights only (zero-point)"))
            fail_msg("%s", d.msg);
        if (want) d = (diag){ 0 };
        else dev_program_free(p);
        d = (diag){ 0 }, src.weights = good;
        assert_ok(device_compile(dev, &src, &p, &d), d);
        assert_ok(dev_program_bytes(p, &bytes, &d), d);
        for (int loaded = 0; loaded < 2; loaded++) {
            dev_canary c = { .constants_only = true };
            assert_int_equal(dev_program_reload(p, &bad, &c, &d), want);
            if (want) assert_non_null(strstr(d.msg, "zero point 5"));
            d = (diag){ 0 };
            assert_ok(dev_program_reload(p, &good, &c, &d), d);
            if (!loaded) assert_ok(dev_program_load(p, &d), d);
        }
        dev_program_free(p);
        assert_int_equal(device_adopt(dev, bytes.at, bytes.n, &bad, &p, &d), want);
        if (!want) dev_program_free(p);
        d = (diag){ 0 }, src.weights = (dev_weights){ .record = affine_record, .user = &odd };
        assert_ok(device_compile(dev, &src, &p, &d), d); /* which does not look at them */
        assert_int_equal(dev_program_load(p, &d), want);
        dev_program_free(p);
        close_clean(dev);
        sb_free(&even), sb_free(&odd), sb_free(&bytes);
    }
}

/* y = w2·w1·x, both sparse: a mask of bits and the values where it is set. */
#define SPARSE_W(name, mask, values)                                                                                   \
    "tensor<fp16, [8, 8, 1, 1]> " name " = constexpr_sparse_to_dense()[mask = tensor<uint8, [8]>(BLOBFILE(path = "     \
    "string(\"" WEIGHT_PATH "\"), offset = uint64(" mask "))), name = string(\"" name                                  \
    "\"), nonzero_data = tensor<fp16, [8]>(BLOBFILE(path = "                                                           \
    "string(\"" WEIGHT_PATH "\"), offset = uint64(" values "))), shape = tensor<uint32, [4]>([8, 8, 1, 1])];\n"
#define SPARSE_TEXT                                                                                                                              \
    MIL_HEAD                                                                                                                                     \
        "func main<ios18>(tensor<fp16, [1, 8, 1, 32]> x) {\n"                                                                                    \
        "string pt = const()[name = string(\"pt\"), val = string(\"valid\")];\n"                                                                 \
        "tensor<int32, [2]> ones = const()[name = string(\"ones\"), val = tensor<int32, [2]>([1, 1])];\n"                                        \
        "tensor<int32, [4]> zero = const()[name = string(\"zero\"), val = tensor<int32, [4]>([0, 0, 0, 0])];\n"                                  \
        "int32 g = const()[name = string(\"g\"), val = int32(1)];\n" SPARSE_W("w1", "64", "192") SPARSE_W(                                       \
            "w2", "320",                                                                                                                         \
            "448") "tensor<fp16, [1, 8, 1, 32]> h = conv(dilations = ones, groups = g, pad = zero, pad_type = pt, strides = ones, weight = w1, " \
                   "x = x)[name = string(\"h\")];\n"                                                                                             \
                   "tensor<fp16, [1, 8, 1, 32]> y = conv(dilations = ones, groups = g, pad = zero, pad_type = pt, strides = ones, weight = w2, " \
                   "x = h)[name = string(\"y\")];\n} -> (y);\n}\n"

/* Diagonals of `first` and of 1; `more` bits of the second mask are set that have no value. */
static strbuf sparse_file(double first, int more)
{
    blob_writer b = { 0 };
    uint64_t at;
    diag d = { 0 };
    for (int w = 0; w < 2; w++) {
        uint8_t mask[8];
        uint16_t v[8];
        for (int i = 0; i < 8; i++) mask[i] = (uint8_t)(1 << i), v[i] = f16_from_f64(w ? 1 : first);
        for (int i = 0; w && i < more; i++) mask[i] = 0xff;
        assert_ok(blob_add(&b, DT_U8, mask, sizeof mask, &at, &d), d);
        assert_int_equal(at, 64 + 256 * w);
        assert_ok(blob_add(&b, DT_F16, v, sizeof v, &at, &d), d);
    }
    assert_ok(blob_finish(&b, &d), d);
    return b.bytes;
}

/* New weights of which the first are made and the second cannot be: what was made of the first goes again. */
static void a_reload_that_breaks_off(void **state)
{
    (void)state;
    static const char *const devices[] = { "soft:m1", "cpu" };
    for (size_t i = 0; i < COUNT(devices) * 4; i++) {
        device *dev;
        diag d = { 0 };
        dev_canary c = { .constants_only = i / 4 }, *canary = i / 2 % 2 ? &c : NULL;
        strbuf one = sparse_file(2, 0), other = sparse_file(3, 0), broken = sparse_file(3, 1);
        assert_ok(device_open(&dev, devices[i % 2], &(device_options){ .threads = 1 }, &d), d);
        dev_program *p = must_compile(dev, SPARSE_TEXT, &one);
        bound b = must_bind(dev, p);
        assert_true(answer(&b, 40) == 2 * 6);
        for (int again = 0; again < 2; again++) {
            if (dev_program_reload(p, &(dev_weights)WITH_WEIGHTS(broken), canary, &d) != AN_INPUT ||
                !strstr(d.msg, WEIGHT_PATH ", record at byte 320: its mask has 15 bits set, there are 8 values"))
                fail_msg("status %d: %s", d.st, d.msg);
            d = (diag){ 0 };
            assert_true(dev_program_loaded(p));
            assert_true(answer(&b, 40) == 2 * 6);
        }
        assert_ok(dev_program_reload(p, &(dev_weights)WITH_WEIGHTS(other), canary, &d), d);
        assert_true(answer(&b, 40) == 3 * 6);
        drop_bound(&b);
        dev_program_free(p);
        close_clean(dev);
        sb_free(&one), sb_free(&other), sb_free(&broken);
    }
}

/* Nor does a program take them that is not loaded, or that is made or adopted with them: it could never be loaded. */
static void weights_that_cannot_be_made(void **state)
{
    (void)state;
    static const char *const devices[] = { "soft:m1", "cpu" };
    for (size_t i = 0; i < COUNT(devices); i++) {
        device *dev;
        dev_program *p, *q;
        diag d = { 0 };
        strbuf one = sparse_file(2, 0), broken = sparse_file(3, 1), bytes = { 0 };
        dev_source src = { .text = SPARSE_TEXT, .n_text = strlen(SPARSE_TEXT), .weights = WITH_WEIGHTS(broken) };
        const device_options o = { .threads = 1,
                                   .limit = (const device_limit[]){ { "open_images", 1 } },
                                   .n_limit = !!strchr(devices[i], ':') };
        assert_ok(device_open(&dev, devices[i], &o, &d), d);
        assert_int_equal(device_compile(dev, &src, &p, &d), AN_INPUT);
        assert_non_null(
            strstr(d.msg, WEIGHT_PATH ", record at byte 320: its mask has 15 bits set, there are 8 values"));
        d = (diag){ 0 };
        p = must_compile(dev, SPARSE_TEXT, &one);
        assert_ok(dev_program_unload(p, &d), d);
        assert_int_equal(dev_program_reload(p, &(dev_weights)WITH_WEIGHTS(broken), NULL, &d), AN_INPUT);
        assert_non_null(
            strstr(d.msg, WEIGHT_PATH ", record at byte 320: its mask has 15 bits set, there are 8 values"));
        d = (diag){ 0 };
        assert_ok(dev_program_load(p, &d), d); /* with the weights it had */
        bound b = must_bind(dev, p);
        assert_true(answer(&b, 40) == 2 * 6);
        drop_bound(&b);
        assert_ok(dev_program_bytes(p, &bytes, &d), d);
        assert_int_equal(device_adopt(dev, bytes.at, bytes.n, &(dev_weights)WITH_WEIGHTS(broken), &q, &d), AN_INPUT);
        dev_program_free(p);
        close_clean(dev);
        sb_free(&one), sb_free(&broken), sb_free(&bytes);
    }
}

static bool spoilt_panel(void *spoiler, const char *what) { return *(bool *)spoiler && !strcmp(what, "panel"); }

/* Constants may be right and what was packed of them not: that is what kernels read. */
static void proof_of_what_is_packed(void **state)
{
    (void)state;
    static const char *const devices[] = { "soft:m1", "soft:m4", "cpu" };
    for (size_t i = 0; i < COUNT(devices) * 2; i++) {
        bool spoil = false;
        device *dev;
        diag d = { 0 };
        strbuf two = weight_file(2, 0), three = weight_file(3, 0);
        assert_ok(device_open(&dev, devices[i / 2],
                              &(device_options){ .threads = 2, .spoil = spoilt_panel, .spoiler = &spoil }, &d),
                  d);
        dev_program *p = must_compile(dev, CONV_TEXT, &two);
        bound b = must_bind(dev, p);
        dev_canary c = { .constants_only = i % 2 };
        spoil = true;
        assert_int_equal(dev_program_reload(p, &(dev_weights)WITH_WEIGHTS(three), &c, &d), AN_BUG);
        assert_non_null(strstr(d.msg, "what is packed of them"));
        assert_true(c.source_changed && c.weights_before != c.weights_after); /* the constants themselves are well */
        spoil = false, d = (diag){ 0 };
        assert_ok(dev_program_reload(p, &(dev_weights)WITH_WEIGHTS(two), &c, &d), d);
        put_f16(b.s[0][0], 256, 1, 0);
        assert_ok(device_run(b.r, DEV_QOS, &d), d);
        CLOSE_TO(get_f16(b.s[1][0], 5), 2);
        drop_bound(&b);
        dev_program_free(p);
        close_clean(dev);
        sb_free(&two), sb_free(&three);
    }
}

typedef struct {
    device *dev;
    uint64_t bytes;   /* of the surface; 0: none */
    dev_surface *s;
    an_status st;
} neighbour;

static void *make_surface(void *user)
{
    neighbour *n = user;
    diag d = { 0 };
    n->st = dev_surface_new(n->dev, n->bytes, &n->s, &d);
    return NULL;
}

/* While the image is made, another thread makes a surface. */
static bool surface_meanwhile(void *user, const char *what)
{
    neighbour *n = user;
    pthread_t t;
    if (!n->bytes || strcmp(what, "image")) return false;
    if (pthread_create(&t, NULL, make_surface, n) || pthread_join(t, NULL)) fail_msg("no thread");
    return false;
}

/* Whoever comes second is refused: surfaces and images together never take more than the device addresses. */
static void window_is_kept(void **state)
{
    (void)state;
    device_stats st;
    uint64_t image = 0;
    for (int turn = 0; turn < 3; turn++) { /* how much an image takes; a surface beside it; one too many */
        const uint64_t room = turn ? image + 65536 : 0, surface = turn == 1 ? 65536 : turn == 2 ? 65537 : 0;
        neighbour n = { .bytes = 0 };
        diag d = { 0 };
        assert_ok(device_open(&n.dev, "soft:m1",
                              &(device_options){ .threads = 1,
                                                 .own_budget = true,
                                                 .fault = surface_meanwhile,
                                                 .user = &n,
                                                 .limit = (const device_limit[]){ { "window_bytes", (int64_t)room },
                                                                                  { "page_bytes", 0 },
                                                                                  { "loaded", 1 } },
                                                 .n_limit = 3 },
                              &d),
                  d);
        dev_program *p = must_compile(n.dev, STATE_TEXT, NULL);
        device_get_stats(n.dev, &st);
        image = st.image_bytes;
        assert_true(image > 0);
        assert_ok(dev_program_unload(p, &d), d);
        n.bytes = surface;
        const an_status loaded = dev_program_load(p, &d);
        assert_int_equal(n.st, AN_OK); /* it came while there was room for it */
        assert_int_equal(loaded, turn == 2 ? AN_UNSUPPORTED : AN_OK);
        if (loaded) assert_refused(n.dev, loaded, AN_UNSUPPORTED, &d, 8, 0xe00002bd, "65537 of the ");
        device_get_stats(n.dev, &st);
        assert_int_equal(st.surface_bytes, surface);
        assert_int_equal(st.image_bytes, loaded ? 0 : image);
        assert_int_equal(dev_program_loaded(p), !loaded);
        dev_surface_free(n.s);
        n.s = NULL, n.bytes = 0;
        d = (diag){ 0 };
        if (loaded) assert_ok(dev_program_load(p, &d), d);
        dev_program_free(p);
        close_clean(n.dev);
    }
}

/* State that is read after it is written is copied first: the room for that is counted, once, and refused where
 * there is none. */
static void window_of_copies(void **state)
{
    (void)state;
    device_stats st;
    uint64_t held = 0, copies = 0;
    for (int turn = 0; turn < 3; turn++) { /* how much it takes; exactly that; a byte less */
        device *dev;
        diag d = { 0 };
        assert_ok(
            device_open(&dev, "soft:m1",
                        &(device_options){
                            .threads = 1,
                            .own_budget = true,
                            .limit = (const device_limit[]){ { "window_bytes",
                                                               turn ? (int64_t)(held + copies) - (turn == 2) : 0 } },
                            .n_limit = 1 },
                        &d),
            d);
        dev_program *p = must_compile(dev, STATE_TEXT, NULL);
        bound b = must_bind(dev, p);
        assert_ok(dev_request_bind(b.r, DEV_OUTPUT, "next", b.s[0][0], &d), d); /* one surface on both sides */
        device_get_stats(dev, &st);
        held = st.image_bytes + st.surface_bytes;
        for (int k = 0; k < 2; k++) {
            d = (diag){ 0 };
            const an_status got = device_run(b.r, DEV_QOS, &d);
            assert_int_equal(got, turn == 2 ? AN_UNSUPPORTED : AN_OK);
            if (got) assert_non_null(strstr(d.msg, "for copies of them"));
            device_get_stats(dev, &st);
            if (!turn) copies = st.image_bytes + st.surface_bytes - held;
            assert_int_equal(st.image_bytes + st.surface_bytes, held + (turn == 2 ? 0 : copies));
        }
        assert_true(copies > 0);
        drop_bound(&b);
        dev_program_free(p);
        close_clean(dev);
    }
}

/* The same with nobody waiting for anybody. */
typedef struct {
    device *dev;
    atomic_bool stop;
} crowd;

static void *surfaces_at_will(void *user)
{
    crowd *c = user;
    while (!c->stop) {
        dev_surface *s;
        diag d = { 0 };
        if (!dev_surface_new(c->dev, 4096, &s, &d)) dev_surface_free(s);
    }
    return NULL;
}

static void window_in_a_crowd(void **state)
{
    (void)state;
    device *dev;
    diag d = { 0 };
    device_stats st;
    assert_ok(device_open(&dev, "soft:m1", &(device_options){ .threads = 1, .own_budget = true }, &d), d);
    dev_program *p = must_compile(dev, STATE_TEXT, NULL);
    device_get_stats(dev, &st);
    const uint64_t room = st.image_bytes + 6000; /* an image and one surface */
    dev_program_free(p);
    device_close(dev);
    assert_ok(device_open(&dev, "soft:m1", &(device_options){ .threads = 1, .own_budget = true, .limit = (const device_limit[]){ { "window_bytes", (int64_t)room }, { "page_bytes", 0 } }, .n_limit = 2 }, &d), d);
    assert_ok(device_compile(dev, &(dev_source){ .text = STATE_TEXT, .n_text = strlen(STATE_TEXT) }, &p, &d), d);
    crowd c = { .dev = dev };
    pthread_t t[2];
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&t[i], NULL, surfaces_at_will, &c), 0);
    for (int i = 0; i < 2000; i++) {
        diag why = { 0 };
        const an_status got = dev_program_load(p, &why);
        device_get_stats(dev, &st);
        if (st.surface_bytes + st.image_bytes > room)
            fail_msg("%llu and %llu of %llu", (unsigned long long)st.surface_bytes, (unsigned long long)st.image_bytes,
                     (unsigned long long)room);
        if (!got) assert_ok(dev_program_unload(p, &why), why);
        else assert_int_equal(got, AN_UNSUPPORTED);
    }
    c.stop = true;
    for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
    dev_program_free(p);
    close_clean(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dispatched_while_reloading),
        cmocka_unit_test(proof_of_a_reload),
        cmocka_unit_test(proof_of_signs),
        cmocka_unit_test(proof_of_what_is_packed),
        cmocka_unit_test(rules_about_weights),
        cmocka_unit_test(a_reload_that_breaks_off),
        cmocka_unit_test(weights_that_cannot_be_made),
        cmocka_unit_test(window_is_kept),
        cmocka_unit_test(window_of_copies),
        cmocka_unit_test(window_in_a_crowd),
        cmocka_unit_test(dispatched_while_it_goes),
        cmocka_unit_test(a_reload_answers_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
