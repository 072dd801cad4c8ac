/* bench_text.c: how fast text becomes ids, on one core, against the 20 MB/s a corpus should take at least.
 * The text comes back from its ids before anything is timed. Every run has a new encoder, so its cache starts empty.
 * AN_BENCH_TOKENIZER and AN_BENCH_TEXT (files) add a row with somebody's vocabulary and text. */
#include <stdlib.h>

#include "base/io.h"
#include "bench/bench_int.h"
#include "text/story.h"
#include "text/text.h"

static const double WANTED_MBS = 20;

typedef struct {
    const tokenizer *t;
    const char *text;
    size_t n;
    tok_ids ids;
} encoding;

static an_status encode_all(void *user, diag *d)
{
    encoding *x = user;
    tok_encoder *e;
    x->ids.n = 0;
    TRY(tok_encoder_new(x->t, &e, d));
    an_status st = tok_encode(e, x->text, x->n, 0, &x->ids, d);
    tok_encoder_free(e);
    return st;
}

/* *rate: MB/s, best of the runs. */
static an_status timed(bench *b, const char *what, const tokenizer *t, const char *text, size_t n, double limit,
                       const char *limit_is, double *rate)
{
    encoding x = { .t = t, .text = text, .n = n };
    strbuf back = { 0 };
    timing tm;
    an_status st = encode_all(&x, b->d);
    if (!st) st = tok_decode(t, x.ids.at, x.ids.n, 0, &back, b->d);
    if (!st && (back.n != n || memcmp(back.at, text, n)))
        st = diag_fail(b->d, AN_MISMATCH, NOWHERE, "bench tokenize %s: the text does not come back from its ids", what);
    if (!st) st = bench_time(b, encode_all, &x, &tm);
    if (!st) bench_row(b, "tokenize", what, "scalar", tm, (double)n * 1e3, "MB/s", limit, limit_is);
    if (!st) *rate = (double)n * 1e-6 / tm.least;
    sb_free(&back);
    tok_ids_free(&x.ids);
    return st;
}

/* Words nobody has seen, of one to twelve letters: hardly any is found in the cache, each is merged. */
static void made_up(strbuf *out, size_t n)
{
    rng r = { SUBJECT_SEED };
    while (out->n < n && !out->oom) {
        for (uint64_t k = 1 + rng_below(&r, 12); k; k--)
            sb_putc(out, "etaoinshrdlucmfwypvbgkqjxz"[rng_below(&r, 1 + rng_below(&r, 26))]);
        sb_puts(out, rng_below(&r, 9) ? " " : ", ");
    }
}

static an_status own_texts(bench *b)
{
    tokenizer *t = NULL;
    strbuf stories = { 0 }, words = { 0 };
    an_status st = story_tokenizer(4096, &t, b->d);
    story_corpus(&stories, 1500, 1);
    made_up(&words, (size_t)1 << 19);
    if (!st && (stories.oom || words.oom)) st = diag_nomem(b->d);
    double usual = 0, rate;
    if (!st)
        st = timed(b, "byte-level BPE, stories", t, stories.at, stories.n, WANTED_MBS, "the least wanted, one core",
                   &usual);
    if (!st) st = timed(b, "byte-level BPE, made-up words", t, words.at, words.n, usual, "the stories", &rate);
    sb_free(&stories);
    sb_free(&words);
    tok_close(t);
    return st;
}

an_status bench_tokenize(bench *b)
{
    const char *tok = getenv("AN_BENCH_TOKENIZER"), *text = getenv("AN_BENCH_TEXT");
    TRY(own_texts(b));
    if (!tok || !text) return AN_OK;
    tokenizer *t;
    double rate;
    file_bytes f = { 0 };
    TRY(tok_open(tok, &t, b->d));
    an_status st = file_map(text, &f, b->d);
    if (!st)
        st = timed(b, "AN_BENCH_TEXT", t, (const char *)f.at, f.n, WANTED_MBS, "the least wanted, one core", &rate);
    file_drop(&f);
    tok_close(t);
    return st;
}
