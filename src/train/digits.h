/* digits.h: data to train on: images with classes, or a text cut into windows. In: a data name.  Out: samples as
 * floats.
 *
 *   mnist:DIR         the four idx files of MNIST or anything laid out like it ("train-images-idx3-ubyte", '-' or '.' before idx,
 *                     with or without .gz)
 *   strokes[:SEED]    digits drawn by a built-in generator: no file is needed
 *   text:FILE         characters of a file
 *   letters[:SEED]    characters of a built-in, seeded text
 *
 * Everything is checked when it is opened: sizes, classes, finite pixels; afterwards samples cannot fail. */
#ifndef TRAIN_DIGITS_H
#define TRAIN_DIGITS_H

#include "base/base.h"
#include "model/net.h"

typedef struct {
    int64_t n, h, w;
    int classes;
    float *x;       /* n * h * w, 0 … 1 */
    uint8_t *label; /* n */
} train_images;

/* Every pixel finite, every label below classes, n at least 1; the message names the image. `what` names the data. */
an_status train_images_check(const train_images *im, const char *what, diag *d) MUST_CHECK;
void train_images_free(train_images *im);
/* n drawn digits, h = w = 28, the classes in random order; the seed alone decides. */
an_status train_strokes(uint64_t seed, int64_t n, train_images *out, diag *d) MUST_CHECK;

typedef struct {
    uint8_t *id;    /* n characters as classes */
    int64_t n;
    int64_t held;   /* the last `held` of them are for testing */
    int classes;
    uint8_t byte[NET_MAX_CLASSES]; /* class to byte */
} train_text;
/* A tenth is held for testing. `what` names the text in messages. */
an_status train_text_of(const char *bytes, size_t n, const char *what, train_text *out, diag *d) MUST_CHECK;
/* A built-in text of at least n bytes: sentences of a small grammar. The seed alone decides. */
an_status train_letters(uint64_t seed, size_t n, strbuf *out, diag *d) MUST_CHECK;
void train_text_free(train_text *t);

/* One data set behind one face, whatever it holds. */
typedef struct {
    net_task task;
    train_images train, test;
    train_text text;
    int64_t seq;             /* positions of a text sample */
    int64_t n_train, n_test; /* samples */
    int64_t x_per, y_per;    /* numbers one sample gives to x and to y */
    int64_t height, width;   /* of images */
    int classes;
    char name[160];
} train_data;

/* seq: positions of a text sample; ignored for images. AN_USAGE: a name of no known kind. AN_INPUT: bad data. */
an_status train_data_open(const char *name, int64_t seq, train_data *out, diag *d) MUST_CHECK;
void train_data_close(train_data *t); /* a zeroed one is fine */
const char *train_data_default(net_task task); /* "strokes" or "letters" */
/* what data of that name is for, without looking at it; false: no such kind */
bool train_data_task(const char *name, net_task *out);
/* Of every sample to train on, wherever it came from: equal for the same data under another name. */
uint64_t train_data_digest(const train_data *t);
/* Sample i of the training or test part; x_per and y_per numbers. Test windows of a text lie end to end. */
void train_data_sample(const train_data *t, bool test, int64_t i, float *x, float *y);

/* Minibatches: every sample once per epoch, in an order the seed and the epoch decide. `drawn` is the whole
 * position: saved and put back with train_batches_seek, the same samples follow. A batch may reach into the next
 * epoch. */
typedef struct {
    int64_t n;
    uint64_t seed;
    uint64_t drawn;  /* samples handed out so far */
    uint64_t epoch;  /* of the order at hand */
    uint32_t *order;
} train_batches;
an_status train_batches_open(train_batches *b, int64_t n, uint64_t seed, diag *d) MUST_CHECK;
void train_batches_close(train_batches *b);
void train_batches_seek(train_batches *b, uint64_t drawn);
/* The next `batch` samples of the training part into x and y. */
void train_batches_next(train_batches *b, const train_data *t, int64_t batch, float *x, float *y);

#endif
