/* Data to train on: idx folders that are good and bad, drawn digits, texts, and shuffled batches that can be found
 * again. */
#include <math.h>
#include <unistd.h>

#include "base/io.h"
#include "train/digits.h"
#include "train/run.h"
#include "t.h"

static char dir[] = "/tmp/anneal-data-XXXXXX";

static void put(const char *name, unsigned type, int rank, const uint32_t *dim, const void *data, size_t n)
{
    char path[100];
    diag d = { 0 };
    strbuf b = { 0 };
    snprintf(path, sizeof path, "%s/%s", dir, name);
    sb_putc(&b, 0), sb_putc(&b, 0), sb_putc(&b, (char)type), sb_putc(&b, (char)rank);
    for (int i = 0; i < rank; i++)
        for (int k = 24; k >= 0; k -= 8) sb_putc(&b, (char)(dim[i] >> k & 255));
    sb_putn(&b, data, n);
    assert_ok(file_write(path, b.at, b.n, &d), d);
    sb_free(&b);
}

/* Three training images and two test images, all of one grey each. */
static unsigned char pixels[3 * 784];
static void good_folder(void)
{
    for (int i = 0; i < 3; i++) memset(pixels + 784 * i, 51 * i, 784);
    put("train-images-idx3-ubyte", 8, 3, (const uint32_t[]){ 3, 28, 28 }, pixels, sizeof pixels);
    put("train-labels-idx1-ubyte", 8, 1, (const uint32_t[]){ 3 }, "\x07\x00\x09", 3);
    put("t10k-images.idx3-ubyte", 8, 3, (const uint32_t[]){ 2, 28, 28 }, pixels + 784, 2 * 784);
    put("t10k-labels.idx1-ubyte", 8, 1, (const uint32_t[]){ 2 }, "\x01\x02", 2);
}

static an_status open_folder(train_data *t, diag *d)
{
    char name[80];
    snprintf(name, sizeof name, "mnist:%s", dir);
    *d = (diag){ 0 };
    return train_data_open(name, 0, t, d);
}

static void folder(void **state)
{
    (void)state;
    train_data t;
    diag d;
    good_folder();
    assert_ok(open_folder(&t, &d), d);
    assert_true(t.n_train == 3 && t.n_test == 2 && t.x_per == 784 && t.y_per == 1 && t.classes == 10 && t.height == 28);
    float x[784], y;
    train_data_sample(&t, false, 2, x, &y);
    assert_true(y == 9 && x[0] == 102 / 255.0f && x[783] == x[0]);
    train_data_sample(&t, true, 0, x, &y);
    assert_true(y == 1 && x[5] == 51 / 255.0f);
    train_data_close(&t);
    /* a network for it, and one for other data */
    char name[200];
    train_run_result q;
    snprintf(name, sizeof name, "mnist:%s", dir);
    train_run_options o = { .model = "mlp", .engine = "cpu", .data = name, .batch = 2, .steps = 1, .every = -1,
                            .final_test = -1 };
    assert_ok(train_run(&o, &q, NULL, &d), d);
    assert_int_equal(q.done, 1);
    o.model = "charlm";
    assert_int_equal(train_run(&o, &q, NULL, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "is images; the network charlm wants text"));
}

static void refused(const char *says)
{
    train_data t;
    diag d;
    assert_int_equal(open_folder(&t, &d), AN_INPUT);
    if (!strstr(d.msg, says) || !strstr(d.msg, dir)) fail_msg("said \"%s\", wanted the file and \"%s\"", d.msg, says);
    assert_null(t.train.x);
    good_folder();
}

static void bad_folders(void **state)
{
    (void)state;
    good_folder();
    put("train-labels-idx1-ubyte", 8, 1, (const uint32_t[]){ 3 }, "\x07\x0a\x09", 3);
    refused("train-labels-idx1-ubyte: label 1 (at offset 9) is 10, wanted 0 to 9");
    put("train-labels-idx1-ubyte", 9, 1, (const uint32_t[]){ 3 }, "\x07\xff\x09", 3);
    refused("label 1 (at offset 9) is -1");
    put("t10k-labels.idx1-ubyte", 8, 1, (const uint32_t[]){ 3 }, "\x01\x02\x03", 3);
    refused("3 labels, but");
    put("train-images-idx3-ubyte", 8, 3, (const uint32_t[]){ 3, 27, 28 }, pixels, 3 * 27 * 28);
    refused("images of 27 x 28 pixels at offset 8, wanted 28 x 28");
    put("train-images-idx3-ubyte", 8, 3, (const uint32_t[]){ 3, 28, 28 }, pixels, sizeof pixels - 100);
    refused("train-images-idx3-ubyte: ends at offset 2268, wanted 2368, inside image 2 of 3");
    put("train-images-idx3-ubyte", 8, 3, (const uint32_t[]){ 0, 28, 28 }, pixels, 0);
    refused("no images");
    put("train-images-idx3-ubyte", 8, 2, (const uint32_t[]){ 3, 784 }, pixels, sizeof pixels);
    refused("array of 2 axes");
    put("train-labels-idx1-ubyte", 8, 2, (const uint32_t[]){ 3, 1 }, "\1\2\3", 3);
    refused("array of 2 axes at offset 3, wanted labels in 1");
    put("train-images-idx3-ubyte", 0x0c, 3, (const uint32_t[]){ 1, 14, 14 }, pixels, 784);
    refused("images of 14 x 14");
    unsigned char f[784 * 3 * 4] = { 0 };
    memcpy(f + 4 * (784 + 28 * 2 + 5), "\x7f\xc0\0\0", 4); /* NaN */
    put("train-images-idx3-ubyte", 0x0d, 3, (const uint32_t[]){ 3, 28, 28 }, f, sizeof f);
    refused("train-images-idx3-ubyte: image 1 has NaN at row 2, column 5");
    memcpy(f + 4 * (784 + 28 * 2 + 5), "\xc7\x80\0\0", 4); /* -65536 */
    put("train-images-idx3-ubyte", 0x0d, 3, (const uint32_t[]){ 3, 28, 28 }, f, sizeof f);
    refused("train-images-idx3-ubyte: image 1 has -65536 at row 2, column 5, wanted at most 65504");
    char path[100];
    snprintf(path, sizeof path, "%s/t10k-images.idx3-ubyte", dir);
    unlink(path);
    refused("no t10k-images-idx3-ubyte, plain or .gz");
    train_data t;
    static const struct {
        const char *name;
        an_status st;
        const char *says;
    } names[] = {
        { "mnist:", AN_USAGE, "names no folder" },      { "mnist:/nowhere/at/all", AN_INPUT, "/nowhere/at/all: no train-images" },
        { "mnistx", AN_USAGE, "no data \"mnistx\"" },   { "strokes:x", AN_USAGE, "the seed is \"x\"" },
        { "strokes:", AN_USAGE, "the seed is \"\"" },   { "text:", AN_USAGE, "names no file" },
        { "", AN_USAGE, "no data \"\"" },               { "text:/nowhere", AN_INPUT, "/nowhere" },
    };
    for (size_t i = 0; i < COUNT(names); i++) {
        diag d = { 0 };
        assert_int_equal(train_data_open(names[i].name, 8, &t, &d), names[i].st);
        if (!strstr(d.msg, names[i].says)) fail_msg("%s: said \"%s\"", names[i].name, d.msg);
    }
}

static void checked_images(void **state)
{
    (void)state;
    float x[8] = { 0 };
    uint8_t y[2] = { 0, 4 };
    train_images im = { .n = 2, .h = 2, .w = 2, .classes = 5, .x = x, .label = y };
    diag d = { 0 };
    assert_ok(train_images_check(&im, "mine", &d), d);
    x[6] = INFINITY;
    assert_int_equal(train_images_check(&im, "mine", &d), AN_INPUT);
    assert_string_equal(d.msg, "mine: image 1 has an infinity at row 1, column 0");
    x[6] = 0, y[1] = 5, d = (diag){ 0 };
    assert_int_equal(train_images_check(&im, "mine", &d), AN_INPUT);
    assert_string_equal(d.msg, "mine: label 1 is 5, wanted 0 to 4");
    im.n = 0, d = (diag){ 0 };
    assert_int_equal(train_images_check(&im, "mine", &d), AN_INPUT);
}

/* Softmax regression and nearest class mean: what can be done without a hidden layer. */
static double linear_accuracy(const train_data *t)
{
    enum { C = 10, X = 784, BATCH = 20 };
    static float w[C][X + 1];
    memset(w, 0, sizeof w);
    train_batches b;
    diag d = { 0 };
    assert_ok(train_batches_open(&b, t->n_train, 1, &d), d);
    for (int step = 0; step < 4 * (int)(t->n_train / BATCH); step++) {
        static float x[BATCH * X], y[BATCH], g[BATCH][C];
        train_batches_next(&b, t, BATCH, x, y);
        for (int i = 0; i < BATCH; i++) {
            float z[C], top = -1e30f, sum = 0;
            for (int c = 0; c < C; c++) {
                z[c] = w[c][X];
                for (int k = 0; k < X; k++) z[c] += w[c][k] * x[i * X + k];
                top = fmaxf(top, z[c]);
            }
            for (int c = 0; c < C; c++) sum += g[i][c] = expf(z[c] - top);
            for (int c = 0; c < C; c++) g[i][c] = g[i][c] / sum - (c == (int)y[i]);
        }
        for (int i = 0; i < BATCH; i++)
            for (int c = 0; c < C; c++) {
                float s = 0.05f / BATCH * g[i][c];
                for (int k = 0; k < X; k++) w[c][k] -= s * x[i * X + k];
                w[c][X] -= s;
            }
    }
    train_batches_close(&b);
    int right = 0;
    for (int64_t i = 0; i < t->n_test; i++) {
        float x[X], y, best = -1e30f;
        int guess = 0;
        train_data_sample(t, true, i, x, &y);
        for (int c = 0; c < C; c++) {
            float z = w[c][X];
            for (int k = 0; k < X; k++) z += w[c][k] * x[k];
            if (z > best) best = z, guess = c;
        }
        right += guess == (int)y;
    }
    return right / (double)t->n_test;
}

static void drawn_digits(void **state)
{
    (void)state;
    train_images a, b;
    diag d = { 0 };
    assert_ok(train_strokes(5, 300, &a, &d), d);
    assert_ok(train_strokes(5, 300, &b, &d), d);
    assert_memory_equal(a.x, b.x, 300 * 784 * sizeof *a.x);
    assert_memory_equal(a.label, b.label, 300);
    assert_ok(train_images_check(&a, "strokes", &d), d);
    int count[10] = { 0 };
    for (int i = 0; i < 300; i++) {
        double ink = 0;
        count[a.label[i]]++;
        for (int k = 0; k < 784; k++) {
            float v = a.x[i * 784 + k];
            assert_true(v >= 0 && v <= 1);
            ink += v > 0.5;
        }
        assert_true(ink > 10 && ink < 300);
    }
    for (int c = 0; c < 10; c++) assert_true(count[c] > 10);
    train_images_free(&b);
    assert_ok(train_strokes(6, 300, &b, &d), d);
    assert_true(memcmp(a.x, b.x, 300 * 784 * sizeof *a.x) != 0);
    train_images_free(&a), train_images_free(&b);
    assert_int_equal(train_strokes(5, 0, &a, &d), AN_INPUT);
}

/* They can be learned, but not by a linear model alone: the networks' tests go past this. */
static void drawn_digits_are_not_linear(void **state)
{
    (void)state;
    train_data t;
    diag d = { 0 };
    assert_ok(train_data_open("strokes", 0, &t, &d), d);
    double acc = linear_accuracy(&t);
    print_message("a linear model tells %.4f of the drawn digits\n", acc);
    assert_true(acc > 0.6 && acc < 0.93);
    train_data_close(&t);
}

static void texts(void **state)
{
    (void)state;
    train_data t, u;
    diag d = { 0 };
    assert_ok(train_data_open("letters", 16, &t, &d), d);
    assert_true(t.classes > 20 && t.classes < 40 && t.x_per == 16 && t.y_per == 16);
    float x[16], y[16];
    int64_t bytes = t.text.n - t.text.held;
    assert_int_equal(t.n_train, bytes - 16);
    train_data_sample(&t, false, t.n_train - 1, x, y);
    for (int k = 0; k < 16; k++) assert_true(x[k] == t.text.id[bytes - 17 + k] && y[k] == t.text.id[bytes - 16 + k]);
    for (int64_t i = 0; i < t.n_test; i += t.n_test - 1) { /* the first and the last: inside the held part */
        train_data_sample(&t, true, i, x, y);
        for (int k = 0; k < 16; k++)
            assert_true(x[k] == t.text.id[bytes + 16 * i + k] && y[k] == t.text.id[bytes + 16 * i + k + 1]);
    }
    assert_true(bytes + 16 * t.n_test < t.text.n);
    assert_ok(train_data_open("letters:1", 16, &u, &d), d);
    assert_true(memcmp(t.text.id, u.text.id, 1000) != 0);
    train_data_close(&t), train_data_close(&u);
    train_text s;
    assert_ok(train_text_of("abcabba\xff", 8, "mine", &s, &d), d);
    assert_true(s.classes == 4 && s.byte[0] == 'a' && s.byte[3] == 0xff && s.id[7] == 3 && s.id[1] == 1);
    train_text_free(&s);
    assert_int_equal(train_text_of("", 0, "mine", &s, &d), AN_INPUT);
    d = (diag){ 0 };
    assert_int_equal(train_text_of("aaaa", 4, "mine", &s, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "nothing to learn"));
    d = (diag){ 0 };
    assert_int_equal(train_data_open("letters", 1 << 20, &t, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "too few for windows of 1048576"));
}

/* Every sample once per epoch, another order each time, and any position found again. */
static void batches(void **state)
{
    (void)state;
    enum { N = 103, BATCH = 10, STEPS = 60 };
    uint8_t id[N + 40];
    train_data t = {
        .task = NET_TEXT, .text = { .id = id, .n = N + 40, .held = 2 }, .seq = 1, .x_per = 1, .y_per = 1, .n_train = N
    };
    for (int i = 0; i < N + 40; i++) id[i] = (uint8_t)i;
    train_batches b;
    diag d = { 0 };
    float x[STEPS * BATCH], y[STEPS * BATCH];
    assert_ok(train_batches_open(&b, N, 9, &d), d);
    for (int s = 0; s < STEPS; s++) train_batches_next(&b, &t, BATCH, x + s * BATCH, y + s * BATCH);
    assert_int_equal(b.drawn, STEPS * BATCH);
    for (int e = 0; (e + 1) * N <= STEPS * BATCH; e++) {
        int seen[N] = { 0 };
        for (int i = 0; i < N; i++) seen[(int)x[e * N + i]]++;
        for (int i = 0; i < N; i++) assert_int_equal(seen[i], 1);
    }
    assert_true(memcmp(x, x + N, N * sizeof *x) != 0);
    for (int at = 0; at < STEPS * BATCH - BATCH; at += 37) {
        float again[BATCH], labels[BATCH];
        train_batches_seek(&b, (uint64_t)at);
        train_batches_next(&b, &t, BATCH, again, labels);
        assert_memory_equal(again, x + at, sizeof again);
        assert_memory_equal(labels, y + at, sizeof labels);
    }
    train_batches_close(&b);
    assert_ok(train_batches_open(&b, N, 10, &d), d);
    float other[BATCH], labels[BATCH];
    train_batches_next(&b, &t, BATCH, other, labels);
    assert_true(memcmp(other, x, sizeof other) != 0);
    train_batches_close(&b);
    assert_int_equal(train_batches_open(&b, 0, 1, &d), AN_INPUT);
    train_batches_close(&b);
}

/* The real set, where it is at hand. */
static void mnist(void **state)
{
    (void)state;
    static const int want[10] = { 5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949 };
    if (access("../shared/data/mnist", F_OK)) {
        skip();
        return;
    }
    train_data t;
    diag d = { 0 };
    assert_ok(train_data_open("mnist:../shared/data/mnist", 0, &t, &d), d);
    assert_true(t.n_train == 60000 && t.n_test == 10000);
    int count[10] = { 0 };
    for (int64_t i = 0; i < t.n_train; i++) count[t.train.label[i]]++;
    assert_memory_equal(count, want, sizeof want);
    train_data_close(&t);
}

static int make_dir(void **state) { (void)state; return !mkdtemp(dir); }
static int drop_dir(void **state)
{
    (void)state;
    static const char *const all[] = { "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images.idx3-ubyte",
                                       "t10k-labels.idx1-ubyte" };
    char path[100];
    for (size_t i = 0; i < COUNT(all); i++) snprintf(path, sizeof path, "%s/%s", dir, all[i]), unlink(path);
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folder),
        cmocka_unit_test(bad_folders),
        cmocka_unit_test(checked_images),
        cmocka_unit_test(drawn_digits),
        cmocka_unit_test(drawn_digits_are_not_linear),
        cmocka_unit_test(texts),
        cmocka_unit_test(batches),
        cmocka_unit_test(mnist),
    };
    return cmocka_run_group_tests(tests, make_dir, drop_dir);
}
