/* digits.c: data sets behind one face: idx folders, drawn digits, texts; samples in shuffled order. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/io.h"
#include "base/rng.h"
#include "base/str.h"
#include "format/idx.h"
#include "train/digits.h"

enum {
    MNIST_SIDE = 28,
    MNIST_CLASSES = 10,
    STROKES_TRAIN = 8000,
    STROKES_TEST = 2000,
    LETTERS = 200000, /* bytes */
    PATH_MOST = 512,
};
#define TEXT_LIMIT ((size_t)1 << 28)
#define PIXEL_MOST 65504.0 /* of fp16 */

/* ---- images ---- */

void train_images_free(train_images *im)
{
    free(im->x);
    free(im->label);
    *im = (train_images){ 0 };
}

an_status train_images_check(const train_images *im, const char *what, diag *d)
{
    if (im->n < 1) return diag_fail(d, AN_INPUT, NOWHERE, "%.200s: no images", what);
    if (im->n > UINT32_MAX)
        return diag_fail(d, AN_INPUT, NOWHERE, "%.200s: %lld images, wanted at most %u", what, (long long)im->n,
                         UINT32_MAX);
    if (im->h < 1 || im->w < 1)
        return diag_fail(d, AN_INPUT, NOWHERE, "%.200s: images of %lld x %lld pixels", what, (long long)im->h,
                         (long long)im->w);
    for (int64_t i = 0; i < im->n; i++) {
        const float *x = im->x + i * im->h * im->w;
        for (int64_t k = 0; k < im->h * im->w; k++)
            if (!isfinite(x[k]))
                return diag_fail(d, AN_INPUT, NOWHERE, "%.200s: image %lld has %s at row %lld, column %lld", what,
                                 (long long)i, isnan(x[k]) ? "NaN" : "an infinity", (long long)(k / im->w),
                                 (long long)(k % im->w));
        if (im->label[i] >= im->classes)
            return diag_fail(d, AN_INPUT, NOWHERE, "%.200s: label %lld is %u, wanted 0 to %d", what, (long long)i,
                             im->label[i], im->classes - 1);
    }
    return AN_OK;
}

/* DIR/part-kind-idxN-ubyte, with '-' or '.' before idx, plain or .gz: the first that is there. */
static an_status mnist_path(const char *dir, const char *part, const char *kind, int rank, char *path, size_t room,
                            diag *d)
{
    if (strlen(dir) + 64 > room)
        return diag_fail(d, AN_INPUT, NOWHERE, "mnist folder's path is %zu bytes long, wanted at most %zu", strlen(dir),
                         room - 64);
    path_info i;
    for (int k = 0; k < 4; k++) {
        bool dot = k & 1, gz = k >= 2;
        snprintf(path, room, "%s/%s-%s%cidx%d-ubyte%s", dir, part, kind, dot ? '.' : '-', rank, gz ? ".gz" : "");
        if (path_look(path, &i)) return AN_OK;
    }
    return diag_fail(d, AN_INPUT, NOWHERE, "%.200s: no %s-%s-idx%d-ubyte, plain or .gz", dir, part, kind, rank);
}

static an_status images_of(const idx_array *a, const char *path, train_images *im, diag *d)
{
    if (a->rank != 3)
        return diag_fail(d, AN_INPUT, NOWHERE, "%.200s: array of %d axes at offset 3, wanted images in 3", path,
                         a->rank);
    if (!a->dim[0]) return diag_fail(d, AN_INPUT, NOWHERE, "%.200s: no images", path);
    if (a->dim[1] != MNIST_SIDE || a->dim[2] != MNIST_SIDE)
        return diag_fail(d, AN_INPUT, NOWHERE, "%.200s: images of %lld x %lld pixels at offset 8, wanted %d x %d", path,
                         (long long)a->dim[1], (long long)a->dim[2], MNIST_SIDE, MNIST_SIDE);
    if (a->dt != DT_U8 && a->dt != DT_F32 && a->dt != DT_F64)
        return diag_fail(d, AN_INPUT, NOWHERE, "%.200s: pixels of type %s, wanted uint8, fp32 or fp64", path,
                         dtype_name(a->dt));
    im->n = a->dim[0], im->h = a->dim[1], im->w = a->dim[2], im->classes = MNIST_CLASSES;
    size_t bytes;
    if (!mul_size((size_t)a->count, sizeof *im->x, &bytes) || !(im->x = malloc(bytes))) return diag_nomem(d);
    if (a->dt == DT_U8)
        for (int64_t i = 0; i < a->count; i++) im->x[i] = (float)a->data[i] / 255.0f;
    else
        for (int64_t i = 0; i < a->count; i++) {
            double x = idx_load(a, i);
            im->x[i] = (float)x;
            if (isfinite(x) && fabs(x) > PIXEL_MOST)
                return diag_fail(
                    d, AN_INPUT, NOWHERE,
                    "%.200s: image %lld has %g at row %lld, column %lld, wanted at most %g, the largest number of chips",
                    path, (long long)(i / (im->h * im->w)), x, (long long)(i % (im->h * im->w) / im->w),
                    (long long)(i % im->w), PIXEL_MOST);
        }
    return AN_OK;
}

static an_status labels_of(const idx_array *a, const char *path, const char *images, train_images *im, diag *d)
{
    if (a->rank != 1)
        return diag_fail(d, AN_INPUT, NOWHERE, "%.200s: array of %d axes at offset 3, wanted labels in 1", path,
                         a->rank);
    if (a->count != im->n)
        return diag_fail(d, AN_INPUT, NOWHERE, "%.150s: %lld labels, but %.150s has %lld images", path,
                         (long long)a->count, images, (long long)im->n);
    im->label = malloc((size_t)im->n);
    if (!im->label) return diag_nomem(d);
    for (int64_t i = 0; i < im->n; i++) {
        double y = idx_load(a, i);
        if (!(y >= 0 && y < im->classes) || y != floor(y))
            return diag_fail(d, AN_INPUT, NOWHERE, "%.200s: label %lld (at offset %lld) is %g, wanted 0 to %d", path,
                             (long long)i, (long long)a->at + i * (dtype_bits(a->dt) / 8), y, im->classes - 1);
        im->label[i] = (uint8_t)y;
    }
    return AN_OK;
}

/* part: "train" or "t10k". */
static an_status train_mnist(const char *dir, const char *part, train_images *out, diag *d)
{
    char images[PATH_MOST], labels[PATH_MOST];
    train_images im = { 0 };
    idx_file f = { 0 };
    *out = im;
    TRY(mnist_path(dir, part, "images", 3, images, sizeof images, d));
    TRY(mnist_path(dir, part, "labels", 1, labels, sizeof labels, d));
    TRY(idx_open(images, &f, d));
    an_status st = images_of(&f.array, images, &im, d);
    idx_close(&f);
    if (!st) st = idx_open(labels, &f, d);
    if (!st) st = labels_of(&f.array, labels, images, &im, d);
    idx_close(&f);
    if (!st) st = train_images_check(&im, images, d);
    if (st) {
        train_images_free(&im);
        return st;
    }
    *out = im;
    return AN_OK;
}

/* ---- one face ---- */

const char *train_data_default(net_task task) { return task == NET_TEXT ? "letters" : "strokes"; }

static an_status use_images(train_data *t, diag *d)
{
    const train_images *a = &t->train, *b = &t->test;
    if (a->h != b->h || a->w != b->w)
        return diag_fail(d, AN_INPUT, NOWHERE,
                         "%.120s: test images of %lld x %lld pixels, training images of %lld x %lld", t->name,
                         (long long)b->h, (long long)b->w, (long long)a->h, (long long)a->w);
    t->task = NET_IMAGES;
    t->height = a->h, t->width = a->w, t->classes = a->classes;
    t->n_train = a->n, t->n_test = b->n;
    t->x_per = a->h * a->w, t->y_per = 1;
    return AN_OK;
}

static an_status use_text(train_data *t, int64_t seq, diag *d)
{
    t->task = NET_TEXT;
    t->seq = t->x_per = t->y_per = seq;
    t->classes = t->text.classes;
    t->n_train = t->text.n - t->text.held - seq; /* a window may start anywhere and has one character behind it */
    t->n_test = seq > 0 ? (t->text.held - 1) / seq : 0;
    if (seq < 1 || t->n_train < 1 || t->n_test < 1)
        return diag_fail(d, AN_INPUT, NOWHERE,
                         "%.150s: %lld characters for training and %lld for testing are too few for windows of %lld",
                         t->name, (long long)(t->text.n - t->text.held), (long long)t->text.held, (long long)seq);
    return AN_OK;
}

/* "kind", or "kind:rest": what is behind the colon, "" when there is none; NULL: another kind. */
static const char *kind_is(const char *name, const char *kind)
{
    size_t n = strlen(kind);
    if (strncmp(name, kind, n)) return NULL;
    return name[n] == ':' ? name + n + 1 : name[n] ? NULL : name + n;
}

static an_status seed_of(const char *name, const char *s, uint64_t *seed, diag *d)
{
    *seed = 0;
    if (!*s && name[strlen(name) - 1] != ':') return AN_OK;
    char *end;
    errno = 0;
    unsigned long long v = strtoull(s, &end, 10);
    if (*s < '0' || *s > '9' || *end || errno)
        return diag_fail(d, AN_USAGE, NOWHERE, "data %.100s: the seed is \"%.40s\", wanted a number", name, s);
    *seed = v;
    return AN_OK;
}

static an_status open_strokes(const char *name, const char *rest, train_data *t, diag *d)
{
    uint64_t seed;
    TRY(seed_of(name, rest, &seed, d));
    TRY(train_strokes(2 * seed, STROKES_TRAIN, &t->train, d));
    TRY(train_strokes(2 * seed + 1, STROKES_TEST, &t->test, d));
    return use_images(t, d);
}

static an_status open_mnist(const char *dir, train_data *t, diag *d)
{
    if (!*dir) return diag_fail(d, AN_USAGE, NOWHERE, "data mnist: names no folder; wanted mnist:DIR");
    TRY(train_mnist(dir, "train", &t->train, d));
    TRY(train_mnist(dir, "t10k", &t->test, d));
    return use_images(t, d);
}

static an_status open_text(const char *path, int64_t seq, train_data *t, diag *d)
{
    if (!*path) return diag_fail(d, AN_USAGE, NOWHERE, "data text: names no file; wanted text:FILE");
    file_bytes f;
    TRY(file_read(path, TEXT_LIMIT, &f, d));
    an_status st = train_text_of((const char *)f.at, f.n, path, &t->text, d);
    file_drop(&f);
    return st ? st : use_text(t, seq, d);
}

static an_status open_letters(const char *name, const char *rest, int64_t seq, train_data *t, diag *d)
{
    uint64_t seed;
    strbuf b = { 0 };
    TRY(seed_of(name, rest, &seed, d));
    an_status st = train_letters(seed, LETTERS, &b, d);
    if (!st) st = train_text_of(b.at, b.n, name, &t->text, d);
    sb_free(&b);
    return st ? st : use_text(t, seq, d);
}

bool train_data_task(const char *name, net_task *out)
{
    static const struct {
        const char *kind;
        net_task task;
    } kinds[] = { { "mnist", NET_IMAGES }, { "strokes", NET_IMAGES }, { "text", NET_TEXT }, { "letters", NET_TEXT } };
    for (size_t i = 0; i < COUNT(kinds); i++)
        if (kind_is(name, kinds[i].kind)) return *out = kinds[i].task, true;
    return false;
}

an_status train_data_open(const char *name, int64_t seq, train_data *out, diag *d)
{
    train_data t = { 0 };
    const char *rest;
    an_status st;
    *out = t;
    snprintf(t.name, sizeof t.name, "%s", name);
    if ((rest = kind_is(name, "mnist"))) st = open_mnist(rest, &t, d);
    else if ((rest = kind_is(name, "strokes"))) st = open_strokes(name, rest, &t, d);
    else if ((rest = kind_is(name, "text"))) st = open_text(rest, seq, &t, d);
    else if ((rest = kind_is(name, "letters"))) st = open_letters(name, rest, seq, &t, d);
    else
        st = diag_fail(d, AN_USAGE, NOWHERE,
                       "no data \"%.100s\"; wanted mnist:DIR, strokes[:SEED], text:FILE or letters[:SEED]", name);
    if (st) {
        train_data_close(&t);
        return st;
    }
    *out = t;
    return AN_OK;
}

void train_data_close(train_data *t)
{
    train_images_free(&t->train);
    train_images_free(&t->test);
    train_text_free(&t->text);
    *t = (train_data){ 0 };
}

uint64_t train_data_digest(const train_data *t)
{
    const int64_t sizes[] = { t->task, t->classes, t->n_train, t->x_per };
    uint64_t h = hash_bytes(sizes, sizeof sizes, 0);
    if (t->task == NET_TEXT)
        return hash_bytes(t->text.byte, (size_t)t->classes,
                          hash_bytes(t->text.id, (size_t)(t->text.n - t->text.held), h));
    return hash_bytes(t->train.label, (size_t)t->n_train,
                      hash_bytes(t->train.x, (size_t)(t->n_train * t->x_per) * sizeof *t->train.x, h));
}

void train_data_sample(const train_data *t, bool test, int64_t i, float *x, float *y)
{
    if (t->task == NET_IMAGES) {
        const train_images *im = test ? &t->test : &t->train;
        memcpy(x, im->x + i * t->x_per, (size_t)t->x_per * sizeof *x);
        *y = im->label[i];
        return;
    }
    const uint8_t *id = t->text.id + (test ? t->text.n - t->text.held + i * t->seq : i);
    for (int64_t k = 0; k < t->seq; k++) x[k] = id[k], y[k] = id[k + 1];
}

/* ---- minibatches ---- */

/* The order of an epoch depends on the seed and its number only, so that any position can be found again. */
static void shuffle(train_batches *b, uint64_t epoch)
{
    rng r = { b->seed };
    r.s = rng_next(&r) + epoch;
    r.s = rng_next(&r);
    for (int64_t i = 0; i < b->n; i++) b->order[i] = (uint32_t)i;
    for (int64_t i = b->n - 1; i > 0; i--) {
        int64_t j = (int64_t)rng_below(&r, (uint64_t)i + 1);
        uint32_t k = b->order[i];
        b->order[i] = b->order[j], b->order[j] = k;
    }
    b->epoch = epoch;
}

an_status train_batches_open(train_batches *b, int64_t n, uint64_t seed, diag *d)
{
    *b = (train_batches){ .n = n, .seed = seed };
    if (n < 1 || n > UINT32_MAX)
        return diag_fail(d, AN_INPUT, NOWHERE, "%lld samples to shuffle, wanted 1 to %u", (long long)n, UINT32_MAX);
    b->order = malloc((size_t)n * sizeof *b->order);
    if (!b->order) return diag_nomem(d);
    shuffle(b, 0);
    return AN_OK;
}

void train_batches_close(train_batches *b)
{
    free(b->order);
    *b = (train_batches){ 0 };
}

void train_batches_seek(train_batches *b, uint64_t drawn)
{
    b->drawn = drawn;
    uint64_t epoch = drawn / (uint64_t)b->n;
    if (epoch != b->epoch) shuffle(b, epoch);
}

void train_batches_next(train_batches *b, const train_data *t, int64_t batch, float *x, float *y)
{
    for (int64_t k = 0; k < batch; k++) {
        train_batches_seek(b, b->drawn); /* a new epoch where the last one ended */
        train_data_sample(t, false, b->order[b->drawn % (uint64_t)b->n], x + k * t->x_per, y + k * t->y_per);
        b->drawn++;
    }
}
