/* Token files, documents, batches that resume, and the built-in stories. */
#include <unistd.h>

#include "base/io.h"
#include "t.h"
#include "text/shard.h"
#include "text/story.h"

static char dir[] = "/tmp/anneal-text-XXXXXX";
static const char *in_dir(const char *name)
{
    static char path[4][300];
    static int k;
    k = (k + 1) % 4;
    snprintf(path[k], sizeof path[k], "%s/%s", dir, name);
    return path[k];
}

static void shards(void **state)
{
    (void)state;
    enum { N = 1010 };
    static const char *const names[] = { "a.u16", "a.u32", "a.bin", "big.bin" };
    for (size_t k = 0; k < COUNT(names); k++) {
        uint32_t ids[N];
        int32_t back[N];
        diag d = { 0 };
        shard *s;
        bool big = k == 3;
        for (size_t i = 0; i < N; i++) ids[i] = (uint32_t)(i * (big ? 1000 : 61));
        assert_ok(shard_write(in_dir(names[k]), ids, N, &d), d);
        assert_true(shard_is(in_dir(names[k])));
        assert_ok(shard_open(in_dir(names[k]), 0, &s, &d), d);
        assert_int_equal(shard_count(s), N);
        assert_int_equal(shard_bytes(s), k == 1 || big ? 4 : 2);
        assert_ok(shard_read(s, 0, N, back, &d), d);
        for (size_t i = 0; i < N; i++) assert_int_equal(back[i], ids[i]);
        assert_int_equal(shard_read(s, N - 1, 2, back, &d), AN_INPUT);
        d = (diag){ 0 };
        assert_int_equal(shard_read(s, UINT64_MAX, 2, back, &d), AN_INPUT);
        shard_close(s);
        d = (diag){ 0 };
        /* the first id that is too large, and where */
        assert_int_equal(shard_open(in_dir(names[k]), ids[500], &s, &d), AN_INPUT);
        assert_null(s);
        assert_non_null(strstr(d.msg, "index 500"));
        assert_non_null(strstr(d.msg, names[k]));
    }
    diag d = { 0 };
    uint32_t wide = 70000;
    assert_int_equal(shard_write(in_dir("w.u16"), &wide, 1, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "70000"));
    assert_int_not_equal(access(in_dir("w.u16"), F_OK), 0);
    d = (diag){ 0 };
    assert_int_equal(shard_write(in_dir("w.txt"), &wide, 1, &d), AN_USAGE);
    for (uint32_t most = 0xffff; most <= 0x10000; most++) { /* the largest id that takes two bytes, and the next */
        shard *s;
        d = (diag){ 0 };
        assert_ok(shard_write(in_dir("edge.bin"), &most, 1, &d), d);
        assert_ok(shard_open(in_dir("edge.bin"), most + 1, &s, &d), d);
        assert_int_equal(shard_bytes(s), most == 0xffff ? 2 : 4);
        shard_close(s);
    }
}

static void lying_shards(void **state)
{
    (void)state;
    unsigned char good[1024 + 9] = { 0 };
    memcpy(good, "\x88\xd8\x34\x01\1\0\0\0\4\0\0\0", 12); /* 20240520, 1, four ids */
    static const struct {
        const char *name, *bytes, *say;
        size_t at, n, size;
    } rows[] = {
        { "odd.u16", "", "2-byte", 0, 0, 3 },
        { "odd.u32", "", "4-byte", 0, 0, 6 },
        { "v.bin", "\2", "version 2", 4, 1, 1032 },
        { "count.bin", "\5", "5 ids", 8, 1, 1032 },
        { "huge.bin", "\xff\xff\xff\xff", "4294967295 ids", 8, 4, 1032 },
        { "short.bin", "", "header has 1024 bytes, the file 100", 0, 0, 100 },
        { "none.bin", "\0", "magic", 0, 1, 1032 },
        { "half.bin", "", "4 ids", 0, 0, 1031 },
        { "more.bin", "", "9 bytes follow", 0, 0, 1033 },
        { "empty.bin", "", "token file", 0, 0, 0 },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        unsigned char file[sizeof good];
        diag d = { 0 };
        shard *s;
        memcpy(file, good, sizeof good);
        memcpy(file + rows[i].at, rows[i].bytes, rows[i].n);
        assert_ok(file_write(in_dir(rows[i].name), file, rows[i].size, &d), d);
        assert_int_equal(shard_open(in_dir(rows[i].name), 0, &s, &d), AN_INPUT);
        if (!strstr(d.msg, rows[i].say)) fail_msg("%s: \"%s\" does not say \"%s\"", rows[i].name, d.msg, rows[i].say);
    }
    diag d = { 0 };
    shard *s;
    assert_ok(file_write(in_dir("good.bin"), good, 1032, &d), d);
    assert_ok(shard_open(in_dir("good.bin"), 1, &s, &d), d);
    assert_int_equal(shard_count(s), 4);
    shard_close(s);
    assert_ok(file_write(in_dir("neg.u32"), "\0\0\0\0\0\0\0\x80", 8, &d), d);
    assert_int_equal(shard_open(in_dir("neg.u32"), 0, &s, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "index 1"));
}

/* ---- batches ---- */

static void write_counting(const char *path, size_t n)
{
    uint32_t *ids = malloc(n * sizeof *ids);
    diag d = { 0 };
    for (size_t i = 0; i < n; i++) ids[i] = (uint32_t)i;
    assert_ok(shard_write(path, ids, n, &d), d);
    free(ids);
}

static void batches(void **state)
{
    (void)state;
    enum { T = 64, B = 4 };
    diag d = { 0 };
    corpus *c;
    write_counting(in_dir("c.u16"), 1010);
    corpus_options o = { .seq = T, .seed = 5 };
    assert_ok(corpus_open(in_dir("c.u16"), &o, &c, &d), d);
    assert_int_equal(corpus_samples(c, CORPUS_TRAIN), 15); /* (1010 - 1) / 64 */
    assert_int_equal(corpus_samples(c, CORPUS_VALIDATION), 0);
    /* An epoch is every window once; the next one has another order; ids run on inside a window. */
    int32_t ids[B * (T + 1)];
    unsigned seen[3][15] = { { 0 } };
    int32_t order[3][15];
    corpus_pos p = { 0 };
    for (int k = 0; k < 45; k++) {
        assert_ok(corpus_batch(c, CORPUS_TRAIN, 1, &p, ids, &d), d);
        assert_int_equal(ids[0] % T, 0);
        for (int i = 0; i <= T; i++) assert_int_equal(ids[i], ids[0] + i);
        seen[k / 15][ids[0] / T]++;
        order[k / 15][k % 15] = ids[0];
    }
    for (int e = 0; e < 3; e++)
        for (int i = 0; i < 15; i++) assert_int_equal(seen[e][i], 1);
    assert_memory_not_equal(order[0], order[1], sizeof order[0]);
    /* From any position on, the samples are the same, across the end of an epoch too. */
    corpus_pos q = { 0 };
    for (int k = 0; k < 9; k++) {
        corpus_pos again = q;
        int32_t twice[B * (T + 1)];
        assert_ok(corpus_batch(c, CORPUS_TRAIN, B, &q, ids, &d), d);
        assert_ok(corpus_batch(c, CORPUS_TRAIN, B, &again, twice, &d), d);
        assert_memory_equal(ids, twice, sizeof ids);
        assert_int_equal(q.epoch, again.epoch);
        assert_int_equal(q.sample, again.sample);
        assert_int_equal(ids[0], order[k * B / 15][k * B % 15]);
    }
    q.sample = 99;
    assert_int_equal(corpus_batch(c, CORPUS_TRAIN, 1, &q, ids, &d), AN_INPUT);
    uint64_t digest = corpus_digest(c);
    corpus_close(c);
    d = (diag){ 0 };
    /* Another seed, another order and digest; the same one, the same. */
    assert_ok(corpus_open(in_dir("c.u16"), &o, &c, &d), d);
    assert_true(corpus_digest(c) == digest);
    corpus_close(c);
    o.seed = 6;
    assert_ok(corpus_open(in_dir("c.u16"), &o, &c, &d), d);
    assert_true(corpus_digest(c) != digest);
    p = (corpus_pos){ 0 };
    bool same = true;
    for (int k = 0; k < 15; k++) {
        assert_ok(corpus_batch(c, CORPUS_TRAIN, 1, &p, ids, &d), d);
        same &= ids[0] == order[0][k];
    }
    assert_false(same);
    corpus_close(c);
    /* Validation: the last windows, in order, none of them in training. */
    o = (corpus_options){ .seq = T, .validation = 0.2, .seed = 1 };
    assert_ok(corpus_open(in_dir("c.u16"), &o, &c, &d), d);
    assert_int_equal(corpus_samples(c, CORPUS_VALIDATION), 3);
    p = (corpus_pos){ 0 };
    for (int k = 0; k < 6; k++) {
        assert_ok(corpus_batch(c, CORPUS_VALIDATION, 1, &p, ids, &d), d);
        assert_int_equal(ids[0], (12 + k % 3) * T);
    }
    p = (corpus_pos){ 0 };
    for (int k = 0; k < 24; k++) {
        assert_ok(corpus_batch(c, CORPUS_TRAIN, 1, &p, ids, &d), d);
        assert_true(ids[0] < 12 * T);
    }
    corpus_close(c);
    /* However small the share, a window is kept back, unless there is but one. All that decides which samples there
     * are is in the digest. */
    static const struct {
        int64_t seq;
        double share;
        uint64_t train, kept;
    } shares[] = { { T, 0, 15, 0 },   { T, 0.02, 14, 1 },  { T, 0.07, 14, 1 },  { T, 0.14, 13, 2 },
                   { T, 0.9, 2, 13 }, { 1009, 0.9, 1, 0 }, { 504, 0.02, 1, 1 }, { 504, 0, 2, 0 } };
    uint64_t digests_of[COUNT(shares) + 1];
    for (size_t i = 0; i <= COUNT(shares); i++) { /* the last: the first in order */
        const bool last = i == COUNT(shares);
        corpus_options as = { .seq = last ? T : shares[i].seq,
                              .validation = last ? 0 : shares[i].share,
                              .in_order = last };
        assert_ok(corpus_open(in_dir("c.u16"), &as, &c, &d), d);
        if (!last && (corpus_samples(c, CORPUS_TRAIN) != shares[i].train ||
                      corpus_samples(c, CORPUS_VALIDATION) != shares[i].kept))
            fail_msg("row %zu: %llu and %llu windows", i, (unsigned long long)corpus_samples(c, CORPUS_TRAIN),
                     (unsigned long long)corpus_samples(c, CORPUS_VALIDATION));
        digests_of[i] = corpus_digest(c);
        for (size_t k = 0; k < i; k++)
            if ((digests_of[k] == digests_of[i]) != (k == 1 && i == 2)) fail_msg("rows %zu and %zu: digests", k, i);
        corpus_close(c);
    }
    static const struct {
        corpus_options o;
        const char *say;
    } bad[] = { { { .seq = ((int64_t)1 << 30) + 1 }, "1 to 2^30" },
                { { .seq = 1010 }, "1010 ids" },
                { { .seq = 0 }, "windows of 0" },
                { { .seq = 4, .validation = 1 }, "share of 1" },
                { { .seq = 4, .vocab = 7 }, "id 7 at index 7" } };
    for (size_t i = 0; i < COUNT(bad); i++) {
        d = (diag){ 0 };
        assert_int_equal(corpus_open(in_dir("c.u16"), &bad[i].o, &c, &d), AN_INPUT);
        if (!strstr(d.msg, bad[i].say)) fail_msg("\"%s\" does not say \"%s\"", d.msg, bad[i].say);
    }
}

/* Several shards are one corpus: the samples and the order of the whole, across their ends, by list or by folder. */
static void several_shards(void **state)
{
    (void)state;
    enum { T = 16, N = 1010 };
    static const struct {
        const char *name;
        size_t from, to;
    } parts[] = {
        { "many/a.u16", 0, 300 }, { "many/b.u32", 300, 305 }, { "many/c.bin", 305, 305 }, { "many/d.bin", 305, N }
    };
    diag d = { 0 };
    corpus *whole, *c;
    strbuf list = { 0 };
    uint32_t ids[N];
    for (size_t i = 0; i < N; i++) ids[i] = (uint32_t)i;
    assert_ok(dir_make(in_dir("many"), &d), d);
    assert_ok(shard_write(in_dir("whole.u16"), ids, N, &d), d);
    for (size_t i = 0; i < COUNT(parts); i++) {
        assert_ok(shard_write(in_dir(parts[i].name), ids + parts[i].from, parts[i].to - parts[i].from, &d), d);
        sb_printf(&list, "%s%s", i ? "," : "", in_dir(parts[i].name));
    }
    assert_ok(file_write(in_dir("many/notes.txt"), "left alone", 10, &d), d);
    assert_ok(file_write(in_dir("many/tokenizer.bin"), "left alone", 10, &d), d);
    assert_ok(file_write(in_dir("many/.a.u16"), "odd", 3, &d), d);
    corpus_options o = { .seq = T, .seed = 9, .validation = 0.1 };
    assert_ok(corpus_open(in_dir("whole.u16"), &o, &whole, &d), d);
    const char *names[] = { in_dir("many"), list.at };
    uint64_t digest = corpus_digest(whole);
    for (size_t k = 0; k < COUNT(names); k++) {
        assert_ok(corpus_open(names[k], &o, &c, &d), d);
        assert_true(corpus_tokens(c) == N && corpus_samples(c, CORPUS_TRAIN) == corpus_samples(whole, CORPUS_TRAIN));
        corpus_pos p = { 0 }, q = { 0 };
        for (int i = 0; i < 150; i++) {
            int32_t want[T + 1], got[T + 1];
            corpus_split split = i % 10 ? CORPUS_TRAIN : CORPUS_VALIDATION;
            corpus_pos *at = i % 10 ? &p : &q, same = *at;
            assert_ok(corpus_batch(whole, split, 1, at, want, &d), d);
            assert_ok(corpus_batch(c, split, 1, &same, got, &d), d);
            assert_memory_equal(want, got, sizeof want);
        }
        assert_true(corpus_digest(c) == digest); /* of the ids, not of files */
        corpus_close(c);
    }
    assert_ok(shard_write(in_dir("whole.u32"), ids, N, &d), d);
    assert_ok(corpus_open(in_dir("whole.u32"), &o, &c, &d), d);
    assert_true(corpus_digest(c) == digest);
    corpus_close(c);
    ids[302] = 7; /* one of the five in the second */
    assert_ok(shard_write(in_dir("many/b.u32"), ids + 300, 5, &d), d);
    assert_ok(corpus_open(in_dir("many"), &o, &c, &d), d);
    assert_true(corpus_digest(c) != digest);
    corpus_close(c);
    corpus_close(whole);
    sb_free(&list);
}

/* Every id is in the digest, at the ends of the parts it is made of too. */
static void digests(void **state)
{
    (void)state;
    enum { N = (9 << 20) / 2 };
    static const size_t at[] = { 0, 139, 2048, (4 << 20) / 2 - 1, (4 << 20) / 2, N / 2 + 77, N - 1 };
    uint16_t *ids = calloc(N, sizeof *ids);
    uint64_t seen[COUNT(at) + 2];
    pool *p;
    diag d = { 0 };
    assert_non_null(ids);
    assert_ok(pool_make(&p, 3, &d), d);
    for (size_t k = 0; k <= COUNT(at) + 1; k++) {
        corpus *c;
        if (k < COUNT(at)) ids[at[k]] = 5;
        if (k > COUNT(at)) ids[3] = ids[17] = ids[19] = 0x8000; /* one bit each, in places that go together */
        assert_ok(file_write(in_dir("long.u16"), ids, N * sizeof *ids, &d), d);
        if (k < COUNT(at)) ids[at[k]] = 0;
        for (int threads = 0; threads < 2; threads++) {
            assert_ok(
                corpus_open(in_dir("long.u16"), &(corpus_options){ .seq = 64, .pool = threads ? p : NULL }, &c, &d), d);
            assert_true(!threads || corpus_digest(c) == seen[k]);
            seen[k] = corpus_digest(c);
            corpus_close(c);
        }
        for (size_t i = 0; i < k; i++) assert_true(seen[i] != seen[k]);
    }
    pool_free(p);
    free(ids);
}

/* What a name stands for, when it is no data. */
static void no_data(void **state)
{
    (void)state;
    diag d = { 0 };
    assert_ok(dir_make(in_dir("bare"), &d), d);
    assert_ok(dir_make(in_dir("mixed"), &d), d);
    assert_ok(file_write(in_dir("mixed/a.u16"), "\1\0", 2, &d), d);
    assert_ok(file_write(in_dir("mixed/b.bin"), "bare ids without a header", 25, &d), d);
    assert_ok(file_write(in_dir("nothing.txt"), "", 0, &d), d);
    assert_ok(file_write(in_dir("x.txt"), "text", 4, &d), d);
    const struct {
        const char *name, *say;
    } rows[] = { { "bare", "a folder without token files" },
                 { "mixed", "b.bin does not begin with llm.c's header" },
                 { "nothing.txt", "is empty" },
                 { "gone.txt", "no such file" } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        arena mem = { 0 };
        data_files f;
        d = (diag){ 0 };
        assert_int_equal(data_find(in_dir(rows[i].name), &mem, &f, &d), AN_INPUT);
        if (!strstr(d.msg, rows[i].say)) fail_msg("\"%s\" does not say \"%s\"", d.msg, rows[i].say);
        arena_free(&mem);
    }
    strbuf b = { 0 };
    arena mem = { 0 };
    data_files f;
    sb_printf(&b, "%s,%s", in_dir("mixed/a.u16"), in_dir("x.txt"));
    d = (diag){ 0 };
    assert_int_equal(data_find(b.at, &mem, &f, &d), AN_INPUT);
    assert_true(strstr(d.msg, "a.u16 is ids and ") && strstr(d.msg, "x.txt is text"));
    d = (diag){ 0 };
    assert_int_equal(data_find("/dev/null", &mem, &f, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "/dev/null is a character device, not a regular file"));
    arena_free(&mem);
    sb_free(&b);
}

/* A file that was cut is an error of the next read, not the end of the process. */
static void cut_while_mapped(void **state)
{
    (void)state;
    diag d = { 0 };
    shard *s;
    int32_t ids[10];
    write_counting(in_dir("cut.u16"), 10000);
    assert_ok(shard_open(in_dir("cut.u16"), 0, &s, &d), d);
    assert_ok(shard_read(s, 9990, 10, ids, &d), d);
    assert_int_equal(truncate(in_dir("cut.u16"), 1000), 0);
    assert_int_equal(shard_read(s, 9990, 10, ids, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "20000 bytes when it was opened, 1000 now"));
    shard_close(s);
}

/* Large corpora: still every sample once. */
static void permutation(void **state)
{
    (void)state;
    diag d = { 0 };
    corpus *c;
    rng r = { test_seed("permutation") };
    for (int round = 0; round < 20; round++) {
        size_t n = 2 + rng_below(&r, 3000);
        write_counting(in_dir("p.u16"), n);
        corpus_options o = { .seq = 1, .seed = rng_next(&r) };
        assert_ok(corpus_open(in_dir("p.u16"), &o, &c, &d), d);
        unsigned char *seen = calloc(n, 1);
        int32_t ids[2];
        corpus_pos p = { .epoch = rng_below(&r, 100) };
        for (size_t i = 0; i < n - 1; i++) {
            assert_ok(corpus_batch(c, CORPUS_TRAIN, 1, &p, ids, &d), d);
            assert_int_equal(seen[ids[0]]++, 0);
        }
        free(seen);
        corpus_close(c);
    }
}

/* A run goes on in the order it began with, whichever version began it: for numbers around powers of four, where the
 * network has one more bit, too. */
static void order_stays(void **state)
{
    (void)state;
    static const struct {
        size_t n;
        uint64_t hash;
    } rows[] = { { 1, 0 },
                 { 3, 63 },
                 { 4, 91326 },
                 { 5, 2831230 },
                 { 15, 5572257050319479053u },
                 { 16, 11736922327199258104u },
                 { 17, 6856302714186503744u },
                 { 64, 308062750637759268u },
                 { 100, 15685335887230276606u } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        diag d = { 0 };
        corpus *c;
        int32_t ids[2];
        uint64_t h = 0;
        write_counting(in_dir("o.u16"), rows[i].n + 1);
        assert_ok(corpus_open(in_dir("o.u16"), &(corpus_options){ .seq = 1, .seed = 5 }, &c, &d), d);
        corpus_pos p = { .epoch = 3 };
        for (size_t k = 0; k < rows[i].n; k++) {
            assert_ok(corpus_batch(c, CORPUS_TRAIN, 1, &p, ids, &d), d);
            h = h * 31 + (uint64_t)ids[0];
        }
        if (h != rows[i].hash)
            fail_msg("%zu samples: their order is %llu, and was %llu", rows[i].n, (unsigned long long)h,
                     (unsigned long long)rows[i].hash);
        corpus_close(c);
    }
}

/* ---- documents ---- */

static void documents(void **state)
{
    (void)state;
    static const struct {
        docs_rule rule;
        const char *text, *docs; /* documents with a bar before each */
    } rows[] = {
        { DOCS_WHOLE, "a\n\nb\n", "|a\n\nb\n" },
        { DOCS_AUTO, "a\n\nb\n", "|a\n\nb\n" },
        { DOCS_AUTO, " a b\n<|endoftext|>\n\n<|endoftext|>\nc ", "|a b|c" },
        { DOCS_ENDOFTEXT, "<|endoftext|>", "" },
        { DOCS_BLANK, "a\n\nb\n\n\nc\n", "|a\n\n|b\n\n|\nc\n" },
        { DOCS_BLANK, "a\n\n", "|a\n\n" },
        { DOCS_BLANK, "a\r\n\r\nb\r\nc\r\n\r\n\r\nd\r\n", "|a\r\n\r\n|b\r\nc\r\n\r\n|\r\nd\r\n" },
        { DOCS_BLANK, "a\n \t\nb\n x\n  ", "|a\n \t\n|b\n x\n  " },
        { DOCS_BLANK, "\n\r\na \n", "|\n\r\n|a \n" },
        { DOCS_LINES, "a\r\n\nb\nc", "|a|b|c" },
        { DOCS_WHOLE, "", "" },
    };
    diag d = { 0 };
    strbuf json = { 0 };
    tokenizer *t;
    static const char *const bar[] = { "<s>" };
    assert_ok(tok_train("", 0, &(tok_train_options){ .vocab = 257, .special = bar, .n_special = 1 }, &json, &d), d);
    assert_ok(tok_from_json("t", json.at, json.n, &t, &d), d);
    for (size_t i = 0; i < COUNT(rows); i++) {
        tok_ids ids = { 0 };
        docs_count n;
        strbuf got = { 0 };
        sb_puts(&got, "");
        assert_ok(docs_encode(t, rows[i].text, strlen(rows[i].text), rows[i].rule, NULL, &ids, &n, &d), d);
        for (size_t k = 0; k < ids.n; k++) {
            tok_str s = tok_text(t, ids.at[k]);
            if (ids.at[k] == 256) sb_putc(&got, '|');
            else sb_putn(&got, s.at, s.n);
        }
        if (strcmp(got.at, rows[i].docs)) fail_msg("row %zu: \"%s\", wanted \"%s\"", i, got.at, rows[i].docs);
        sb_free(&got);
        tok_ids_free(&ids);
    }
    tok_close(t);
    sb_free(&json);
}

/* Several megabytes, so several tasks: the same ids for any number of threads. */
static void threads_do_not_matter(void **state)
{
    (void)state;
    diag d = { 0 };
    tokenizer *t;
    strbuf text = { 0 };
    docs_count n[2];
    tok_ids ids[2] = { { 0 }, { 0 } };
    pool *p;
    assert_ok(story_tokenizer(300, &t, &d), d);
    story_corpus(&text, 6000, 11);
    assert_true(text.n > 3u << 20);
    assert_ok(pool_make(&p, 3, &d), d);
    assert_ok(docs_encode(t, text.at, text.n, DOCS_AUTO, NULL, &ids[0], &n[0], &d), d);
    assert_ok(docs_encode(t, text.at, text.n, DOCS_AUTO, p, &ids[1], &n[1], &d), d);
    assert_int_equal(n[0].documents, 6000);
    assert_int_equal(n[1].documents, 6000);
    assert_int_equal(ids[0].n, ids[1].n);
    assert_memory_equal(ids[0].at, ids[1].at, ids[0].n * sizeof *ids[0].at);
    pool_free(p);
    tok_ids_free(&ids[0]);
    tok_ids_free(&ids[1]);
    sb_free(&text);
    tok_close(t);
}

/* Behind which bytes a blank line ends a document, looked at one line after the other. */
static size_t ends_of(const char *s, size_t n, size_t *end)
{
    size_t k = 0, line = 0, lines = 0; /* lines of the document so far */
    for (size_t i = 0; i < n; i++) {
        if (s[i] != '\n') continue;
        bool none = strspn(s + line, " \t\r") == i - line;
        if (none && lines) end[k++] = i + 1;
        lines = none && lines ? 0 : lines + 1;
        line = i + 1;
    }
    if (line < n || lines) end[k++] = n;
    return k;
}

/* Blank lines of every kind in runs of every length, so that tasks are cut beside and inside such runs: documents
 * end where they would in one task. */
static void tasks_do_not_matter(void **state)
{
    (void)state;
    enum { MOST = 2000000 };
    static const char *const line[] = { "\r\n", "\n", " \t\n", " x\n", "a b\r\n", " \r\n", "\n" };
    diag d = { 0 };
    tokenizer *t;
    strbuf json = { 0 };
    static const char *const bar[] = { "<s>" };
    size_t *end = malloc(MOST * sizeof *end);
    assert_non_null(end);
    assert_ok(tok_train("", 0, &(tok_train_options){ .vocab = 257, .special = bar, .n_special = 1 }, &json, &d), d);
    assert_ok(tok_from_json("t", json.at, json.n, &t, &d), d);
    for (uint64_t seed = 0; seed < 6; seed++) {
        strbuf text = { 0 };
        tok_ids ids = { 0 };
        docs_count n;
        rng g = { seed };
        while (text.n < 3u << 20)
            sb_puts(&text, seed < 3              ? line[rng_below(&g, COUNT(line))]
                           : rng_below(&g, 4000) ? line[rng_below(&g, 3)]
                                                 : " x\n");
        assert_ok(docs_encode(t, text.at, text.n, DOCS_BLANK, NULL, &ids, &n, &d), d);
        size_t want = ends_of(text.at, text.n, end), k = 0, bytes = 0;
        assert_true(want < MOST && n.documents == want && n.bytes == text.n);
        for (size_t i = 0; i < ids.n; i++) {
            if (ids.at[i] != 256) bytes++;
            else if (k++) assert_int_equal(bytes, end[k - 2]);
        }
        assert_int_equal(bytes, text.n);
        tok_ids_free(&ids);
        sb_free(&text);
    }
    tok_close(t);
    sb_free(&json);
    free(end);
}

/* A rule that cuts nothing says so, unless that was asked for. */
static void cuts_nothing(void **state)
{
    (void)state;
    static const struct {
        docs_rule rule;
        const char *text;
        bool undivided;
    } rows[] = {
        { DOCS_AUTO, "a\n\nb", true },       { DOCS_AUTO, "a<|endoftext|>b", false }, { DOCS_WHOLE, "a", false },      { DOCS_ENDOFTEXT, "a\n\nb", true },
        { DOCS_BLANK, "a\nb\n", true },      { DOCS_BLANK, "a\n\nb\n", false },      { DOCS_LINES, "a b\n", true },  { DOCS_LINES, "a\nb", false },
    };
    diag d = { 0 };
    tokenizer *t;
    assert_ok(story_tokenizer(300, &t, &d), d);
    for (size_t i = 0; i < COUNT(rows); i++) {
        tok_ids ids = { 0 };
        docs_count n;
        assert_ok(docs_encode(t, rows[i].text, strlen(rows[i].text), rows[i].rule, NULL, &ids, &n, &d), d);
        if (n.undivided != rows[i].undivided) fail_msg("row %zu: undivided is %d", i, n.undivided);
        tok_ids_free(&ids);
    }
    tok_close(t);
}

/* Text that is one document is one however long it is; with no token that begins a text, one that ends it does; what
 * was there before stays. */
static void around_documents(void **state)
{
    (void)state;
    enum { MARKER = 1, A, B, LINE };
    static const uint32_t want[2][8] = { { MARKER, A, MARKER, B, MARKER, A, MARKER, B },
                                         { A, MARKER, B, MARKER, A, MARKER, B, MARKER } };
    for (int ends = 0; ends < 2; ends++) {
        const tok_str token[] = { { "<unk>", 5 }, { "<m>", 3 }, { "a", 1 }, { "b", 1 }, { "\n", 1 } };
        const int32_t type[] = { TOK_UNKNOWN, TOK_CONTROL, TOK_NORMAL, TOK_NORMAL, TOK_NORMAL };
        const float score[COUNT(token)] = { 0 };
        const tok_vocab v = { .model = "llama", .n = COUNT(token), .token = token, .score = score, .type = type,
                              .bos = ends ? -1 : MARKER, .eos = ends ? MARKER : -1, .unk = 0, .pad = -1, .add_bos = -1,
                              .add_eos = -1, .add_space_prefix = 0 };
        diag d = { 0 };
        tokenizer *t;
        strbuf text = { 0 };
        tok_ids ids = { 0 };
        docs_count n;
        assert_ok(tok_from_vocab("t", &v, &t, &d), d);
        for (int turn = 0; turn < 2; turn++) assert_ok(docs_encode(t, "a\nb\n", 4, DOCS_LINES, NULL, &ids, &n, &d), d);
        assert_true(ids.n == 8 && ids.cap >= ids.n);
        assert_memory_equal(ids.at, want[ends], sizeof *want);
        while (text.n < 3u << 20) sb_puts(&text, "a\n\nb\nab\n");
        assert_ok(docs_encode(t, text.at, text.n, DOCS_WHOLE, NULL, &ids, &n, &d), d);
        assert_true(n.documents == 1 && ids.n == 8 + text.n + 1 && ids.cap >= ids.n);
        assert_memory_equal(ids.at, want[ends], sizeof *want);
        tok_ids_free(&ids);
        tok_close(t);
        sb_free(&text);
    }
}

/* A model that has fewer rows than the tokenizer has tokens cannot be shown its text. */
static void more_tokens_than_rows(void **state)
{
    (void)state;
    diag d = { 0 };
    tokenizer *t;
    corpus *c;
    assert_ok(story_tokenizer(300, &t, &d), d);
    assert_ok(file_write(in_dir("some.txt"), "once upon a time there was a text", 33, &d), d);
    assert_int_equal(corpus_open(in_dir("some.txt"), &(corpus_options){ .tok = t, .vocab = 299, .seq = 4 }, &c, &d),
                     AN_INPUT);
    assert_non_null(strstr(d.msg, "the tokenizer has 300 tokens, the model 299"));
    d = (diag){ 0 };
    assert_ok(corpus_open(in_dir("some.txt"), &(corpus_options){ .tok = t, .vocab = 300, .seq = 4 }, &c, &d), d);
    corpus_close(c);
    tok_close(t);
}

/* ---- stories ---- */

static void stories(void **state)
{
    (void)state;
    strbuf a = { 0 }, b = { 0 }, all = { 0 };
    story_put(&a, 7, 3);
    story_put(&b, 7, 3);
    assert_string_equal(a.at, b.at);
    b.n = 0;
    story_put(&b, 8, 3);
    assert_string_not_equal(a.at, b.at);
    arena mem = { 0 };
    str_map words = { 0 }, tales = { 0 }, pairs = { 0 };
    for (uint64_t i = 0; i < 3000; i++) {
        size_t from = all.n;
        story_put(&all, 1, i);
        assert_true(all.n - from > 200 && all.at[all.n - 1] == '\n');
    }
    assert_null(strchr(all.at, '{')); /* every slot of the grammar has a word */
    assert_null(strchr(all.at, '}'));
    assert_null(strstr(all.at, "  "));
    for (char *line = all.at, *end; (end = strchr(line, '\n')); line = end + 1) {
        assert_true(strchr(".\"!", end[-1]) != NULL);
        assert_true(str_map_put(&mem, &tales, line, (size_t)(end - line), 1));
        const char *before = NULL;
        for (char *w = line; w < end;) {
            size_t n = strspn(w, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ'");
            if (n) assert_true(str_map_put(&mem, &words, w, n, 1));
            /* a word in its context */
            if (n && before) assert_true(str_map_put(&mem, &pairs, before, (size_t)(w + n - before), 1));
            if (n) before = w;
            w += n ? n : 1;
        }
    }
    print_message("3000 stories: %zu different, %zu words, %zu pairs of words, %zu bytes\n", tales.n, words.n, pairs.n,
                  all.n);
    assert_true(tales.n > 2990);
    assert_true(words.n > 500);
    assert_true(pairs.n > 5000);
    /* The vocabulary: the same each time, and most words are one token. */
    diag d = { 0 };
    tokenizer *t;
    tok_encoder *e;
    tok_ids ids = { 0 };
    tok_info info;
    assert_ok(story_tokenizer(0, &t, &d), d);
    assert_ok(tok_encoder_new(t, &e, &d), d);
    assert_ok(tok_encode(e, all.at, all.n, 0, &ids, &d), d);
    tok_get(t, &info);
    assert_int_equal(info.n, 1536);
    assert_true(info.bos >= 0 && info.eos >= 0);
    assert_true(all.n > 37 * ids.n / 10);
    corpus *c;
    assert_ok(corpus_open("builtin:stories", &(corpus_options){ .tok = t, .seq = 32, .stories = 50, .validation = 0.1 },
                          &c, &d),
              d);
    assert_true(corpus_samples(c, CORPUS_TRAIN) > 100);
    int32_t row[33];
    corpus_pos p = { 0 };
    assert_ok(corpus_batch(c, CORPUS_TRAIN, 1, &p, row, &d), d);
    corpus_close(c);
    /* text without a tokenizer */
    assert_int_equal(corpus_open("builtin:stories", &(corpus_options){ .seq = 32 }, &c, &d), AN_INPUT);
    tok_ids_free(&ids);
    tok_encoder_free(e);
    tok_close(t);
    arena_free(&mem);
    sb_free(&a);
    sb_free(&b);
    sb_free(&all);
}

static int setup(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    char cmd[64];
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    return system(cmd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards),    cmocka_unit_test(lying_shards),          cmocka_unit_test(batches), cmocka_unit_test(permutation),
        cmocka_unit_test(documents), cmocka_unit_test(threads_do_not_matter), cmocka_unit_test(tasks_do_not_matter), cmocka_unit_test(cuts_nothing), cmocka_unit_test(stories),
        cmocka_unit_test(order_stays), cmocka_unit_test(around_documents), cmocka_unit_test(more_tokens_than_rows),
        cmocka_unit_test(several_shards), cmocka_unit_test(digests), cmocka_unit_test(no_data), cmocka_unit_test(cut_while_mapped),
    };
    return cmocka_run_group_tests_name("text_data", tests, setup, teardown);
}
