/* Tokenizers against ids that others published: GPT-2, Llama (SentencePiece), and how Llama 3 and Qwen cut text.
 * Needs ../shared/data; without it only the table of texts is checked for being there. */
#include <unistd.h>

#include "anneal.h"
#include "base/io.h"
#include "format/gguf.h"
#include "t.h"
#include "text/shard.h"
#include "text/text.h"

#define DATA "../shared/data/"
static bool have_data(void) { return access(DATA "gguf-vocab", F_OK) == 0; }

/* GPT-2 ids as published with a Neural Engine port of the model. */
static const struct {
    const char *text;
    uint32_t ids[12];
    size_t n;
} gpt2[] = {
    { "Hello, world!", { 15496, 11, 995, 0 }, 4 },
    { "The quick brown fox jumps over the lazy dog.", { 464, 2068, 7586, 21831, 18045, 625, 262, 16931, 3290, 13 }, 10 },
    { "GPT-2 is a transformer model.", { 38, 11571, 12, 17, 318, 257, 47385, 2746, 13 }, 9 },
    { "C++ programming is fun!", { 34, 4880, 8300, 318, 1257, 0 }, 6 },
    { " Hello", { 18435 }, 1 },
    { "Hello  ", { 15496, 220, 220 }, 3 },
    { "  ", { 220, 220 }, 2 },
    { "123456789", { 10163, 2231, 3134, 4531 }, 4 },
    { "$100.00", { 3, 3064, 13, 405 }, 4 },
    { "caf\xc3\xa9", { 66, 1878, 2634 }, 3 },
    { "na\xc3\xafve", { 2616, 38776 }, 2 },
    { "don't", { 9099, 470 }, 2 },
    { "I'm happy", { 40, 1101, 3772 }, 3 },
    { "it's a test", { 270, 338, 257, 1332 }, 4 },
    { "\n\n", { 628 }, 1 },
    { "Hello\nWorld", { 15496, 198, 10603 }, 3 },
    { "foo bar baz", { 21943, 2318, 275, 1031 }, 4 },
    { "a b c d e", { 64, 275, 269, 288, 304 }, 5 },
    { "A", { 32 }, 1 },
    { "The", { 464 }, 1 },
};

typedef struct {
    tokenizer *t;
    tok_encoder *e;
} opened;

static opened open_tok(const char *path)
{
    diag d = { 0 };
    opened o;
    assert_ok(tok_open(path, &o.t, &d), d);
    assert_ok(tok_encoder_new(o.t, &o.e, &d), d);
    return o;
}

static void close_tok(opened o)
{
    tok_encoder_free(o.e);
    tok_close(o.t);
}

static void expect_ids(opened o, const char *text, size_t n, const uint32_t *want, size_t n_want)
{
    diag d = { 0 };
    tok_ids ids = { 0 };
    strbuf back = { 0 };
    assert_ok(tok_encode(o.e, text, n, 0, &ids, &d), d);
    if (ids.n != n_want || (n_want && memcmp(ids.at, want, n_want * sizeof *want)))
        fail_msg("\"%.*s\": %zu ids, %zu wanted, or others", (int)n, text, ids.n, n_want);
    assert_ok(tok_decode(o.t, ids.at, ids.n, 0, &back, &d), d);
    assert_int_equal(back.n, n);
    if (n) assert_memory_equal(back.at, text, n);
    sb_free(&back);
    tok_ids_free(&ids);
}

static void gpt2_table(void **state)
{
    (void)state;
    static const char *const from[] = { DATA "gpt2",           DATA "gpt2/encoder.json",
                                        DATA "gpt2/vocab.bpe", DATA "gpt2/encoder.json," DATA "gpt2/vocab.bpe",
                                        DATA "gpt2-hf",        DATA "gpt2-hf/tokenizer.json" };
    if (!have_data()) skip();
    for (size_t k = 0; k < COUNT(from); k++) {
        opened o = open_tok(from[k]);
        tok_info i;
        tok_get(o.t, &i);
        assert_int_equal(i.n, 50257);
        assert_int_equal(i.bos, 50256);
        assert_int_equal(i.eos, 50256);
        assert_string_equal(i.split, "gpt2");
        assert_true(i.byte_fallback);
        for (size_t c = 0; c < COUNT(gpt2); c++)
            expect_ids(o, gpt2[c].text, strlen(gpt2[c].text), gpt2[c].ids, gpt2[c].n);
        close_tok(o);
    }
    opened o = open_tok(DATA "llama2c/tokenizer.model");
    static const uint32_t once[] = { 9038, 2501, 263, 931, 727, 471, 263, 2217, 7826 };
    expect_ids(o, "Once upon a time there was a little girl", 40, once, COUNT(once));
    close_tok(o);
}

/* ---- llama.cpp's cases ---- */

typedef struct {
    file_bytes inp, out;
    struct { const char *s; size_t n; uint32_t ids[2000]; size_t n_ids; } at[64];
    size_t n;
} cases;

static void read_cases(const char *name, cases *c)
{
    static const char mark[] = "\n__ggml_vocab_test__\n";
    char path[300];
    diag d = { 0 };
    c->n = 0;
    snprintf(path, sizeof path, DATA "gguf-vocab/ggml-vocab-%s.gguf.inp", name);
    assert_ok(file_read(path, 1 << 20, &c->inp, &d), d);
    snprintf(path, sizeof path, DATA "gguf-vocab/ggml-vocab-%s.gguf.out", name);
    assert_ok(file_read(path, 1 << 20, &c->out, &d), d);
    const char *s = (const char *)c->inp.at, *o = (const char *)c->out.at;
    while (*o && c->n + 1 < COUNT(c->at)) { /* a line of ids for each text; the texts end with the mark */
        const char *end = strstr(s, mark);
        assert_non_null(end);
        c->at[c->n].s = s;
        c->at[c->n].n = (size_t)(end - s);
        s = end + sizeof mark - 1;
        size_t k = 0;
        while (*o && *o != '\n') {
            char *next;
            c->at[c->n].ids[k++] = (uint32_t)strtoul(o, &next, 10);
            assert_true(next > o && k < 2000);
            o = next;
            while (*o == ' ') o++;
        }
        c->at[c->n++].n_ids = k;
        o += *o == '\n';
    }
    assert_int_equal(*s, 0);
    c->at[c->n].s = s, c->at[c->n].n = c->at[c->n].n_ids = 0; /* behind the last mark: the empty text */
    c->n++;
}

static void drop_cases(cases *c)
{
    file_drop(&c->inp);
    file_drop(&c->out);
}

static void llama_cpp_cases(void **state)
{
    (void)state;
    static const struct {
        const char *name, *path;
    } rows[] = { { "gpt-2", DATA "gpt2" },
                 { "gpt-2", DATA "gpt2-hf" },
                 { "llama-spm", DATA "llama2c/tokenizer.model" },
                 { "llama-spm", DATA "llama2c/tokenizer.bin" } };
    if (!have_data()) skip();
    cases *c = calloc(1, sizeof *c);
    assert_non_null(c);
    for (size_t k = 0; k < COUNT(rows); k++) {
        read_cases(rows[k].name, c);
        assert_int_equal(c->n, 47);
        opened o = open_tok(rows[k].path);
        for (size_t i = 0; i < c->n; i++) expect_ids(o, c->at[i].s, c->at[i].n, c->at[i].ids, c->at[i].n_ids);
        close_tok(o);
        drop_cases(c);
    }
    free(c);
}

/* The same through the GGUF files and the public header. */
static void gguf_cases(void **state)
{
    (void)state;
    static const char *const names[] = { "gpt-2", "llama-spm" };
    if (!have_data()) skip();
    cases *c = calloc(1, sizeof *c);
    assert_non_null(c);
    for (size_t k = 0; k < COUNT(names); k++) {
        char path[300];
        an_tokenizer *t;
        an_error e = { 0 };
        read_cases(names[k], c);
        snprintf(path, sizeof path, DATA "gguf-vocab/ggml-vocab-%s.gguf", names[k]);
        if (an_tokenizer_open(&t, path, &e)) fail_msg("%s", e.message);
        for (size_t i = 0; i < c->n; i++) {
            uint32_t *ids;
            char *back;
            size_t n, n_back;
            assert_int_equal(an_encode(t, c->at[i].s, c->at[i].n, 0, &ids, &n, &e), AN_OK);
            assert_int_equal(n, c->at[i].n_ids);
            if (n) assert_memory_equal(ids, c->at[i].ids, n * sizeof *ids);
            assert_int_equal(an_decode(t, ids, n, 0, &back, &n_back, &e), AN_OK);
            assert_int_equal(n_back, c->at[i].n);
            assert_memory_equal(back, c->at[i].s, n_back);
            an_free(ids);
            an_free(back);
        }
        an_tokenizer_free(t);
        drop_cases(c);
    }
    free(c);
}

/* ---- Llama 3 and Qwen: no vocabulary here, so the cuts are checked against the ids ---- No token reaches across a
 * cut. So the ids must fall into groups, one for each piece: 1 to L ids for L bytes; ids below 256 are the bytes in
 * GPT-2's order, higher ones two bytes or more; pieces that read the same get the same ids. A piece whose group is
 * certain in one case is known in all of them. That no such grouping exists for wrong cuts is checked as well. */

typedef struct {
    char *at[4096];
    size_t len[4096];
    uint32_t ids[4096][64]; /* longer groups are not kept */
    size_t n_ids[4096];
    size_t n;
} known;

static uint8_t byte_of(uint32_t id) /* of ids below 256 */
{
    if (id < 94) return (uint8_t)(id + 33);
    if (id < 106) return (uint8_t)(id - 94 + 0xa1);
    if (id < 188) return (uint8_t)(id - 106 + 0xae);
    if (id < 221) return (uint8_t)(id - 188);
    return id < 255 ? (uint8_t)(id - 221 + 0x7f) : 0xad;
}

static size_t find_known(const known *k, const char *s, size_t n)
{
    for (size_t i = 0; i < k->n; i++)
        if (k->len[i] == n && !memcmp(k->at[i], s, n)) return i;
    return SIZE_MAX;
}

static bool fits(const known *k, const char *s, size_t n, const uint32_t *ids, size_t n_ids)
{
    size_t at = find_known(k, s, n), single = 0;
    if (at != SIZE_MAX) return k->n_ids[at] == n_ids && !memcmp(k->ids[at], ids, n_ids * sizeof *ids);
    for (size_t i = 0; i < n_ids; i++) single += ids[i] < 256;
    if (single + 2 * (n_ids - single) > n || (single == n_ids && single != n)) return false;
    for (size_t i = 0; i < n_ids && ids[i] < 256; i++)
        if (byte_of(ids[i]) != (uint8_t)s[i]) return false;
    for (size_t i = 0; i < n_ids && ids[n_ids - 1 - i] < 256; i++)
        if (byte_of(ids[n_ids - 1 - i]) != (uint8_t)s[n - 1 - i]) return false;
    return true;
}

enum { MOST_PIECES = 400, MOST_IDS = 2000, MOST_GROUP = 600, MOST_KEPT = 64 };
static bool forward[MOST_PIECES + 1][MOST_IDS + 1], backward[MOST_PIECES + 1][MOST_IDS + 1];

/* False: the ids cannot be grouped. Learns the pieces whose group is certain; *news counts them. */
static bool group(known *k, const char *s, const size_t *end, size_t n, const uint32_t *ids, size_t n_ids, size_t *news)
{
    assert_true(n <= MOST_PIECES);
    memset(forward, 0, sizeof forward);
    memset(backward, 0, sizeof backward);
    forward[0][0] = backward[n][n_ids] = true;
#define PIECE(p) s + ((p) ? end[(p) - 1] : 0), end[p] - ((p) ? end[(p) - 1] : 0)
    for (size_t p = 0; p < n; p++)
        for (size_t i = 0; i < n_ids; i++)
            for (size_t j = i + 1; forward[p][i] && j <= n_ids && j - i <= MOST_GROUP; j++)
                if (!forward[p + 1][j]) forward[p + 1][j] = fits(k, PIECE(p), ids + i, j - i);
    for (size_t p = n; p-- > 0;)
        for (size_t i = 0; i < n_ids; i++)
            for (size_t j = i + 1; !backward[p][i] && forward[p][i] && j <= n_ids && j - i <= MOST_GROUP; j++)
                backward[p][i] = backward[p + 1][j] && fits(k, PIECE(p), ids + i, j - i);
    if (n ? !backward[0][0] : n_ids) return false;
    for (size_t p = 0; p < n; p++) {
        size_t ways = 0, from = 0, to = 0;
        for (size_t i = 0; i < n_ids; i++)
            for (size_t j = i + 1; forward[p][i] && backward[p][i] && j <= n_ids && j - i <= MOST_GROUP; j++)
                if (backward[p + 1][j] && fits(k, PIECE(p), ids + i, j - i)) ways++, from = i, to = j;
        size_t len = end[p] - (p ? end[p - 1] : 0);
        const char *piece = s + (p ? end[p - 1] : 0);
        if (ways != 1 || to - from > MOST_KEPT || find_known(k, piece, len) != SIZE_MAX || k->n == COUNT(k->at))
            continue;
        k->at[k->n] = malloc(len + 1);
        memcpy(k->at[k->n], piece, len);
        k->len[k->n] = len;
        k->n_ids[k->n] = to - from;
        memcpy(k->ids[k->n++], ids + from, (to - from) * sizeof *ids);
        ++*news;
    }
    return true;
#undef PIECE
}

/* How many of the cases cannot be grouped; *n_known pieces became certain. */
static size_t ungrouped(const cases *c, const char *split, size_t *n_known)
{
    diag d = { 0 };
    strbuf json = { 0 };
    opened o;
    known *k = calloc(1, sizeof *k);
    size_t bad = 0, news = 1;
    assert_non_null(k);
    assert_ok(tok_train("", 0, &(tok_train_options){ .vocab = 257, .split = split }, &json, &d), d);
    assert_ok(tok_from_json(split, json.at, json.n, &o.t, &d), d);
    assert_ok(tok_encoder_new(o.t, &o.e, &d), d);
    while (news) {
        news = bad = 0;
        for (size_t i = 0; i < c->n; i++) {
            tok_cuts cuts = { 0 };
            assert_ok(tok_cut(o.e, c->at[i].s, c->at[i].n, &cuts, &d), d);
            bad += !group(k, c->at[i].s, cuts.at, cuts.n, c->at[i].ids, c->at[i].n_ids, &news);
            tok_cuts_free(&cuts);
        }
    }
    *n_known = k->n;
    for (size_t i = 0; i < k->n; i++) free(k->at[i]);
    free(k);
    sb_free(&json);
    close_tok(o);
    return bad;
}

static void cuts_fit_ids(void **state)
{
    (void)state;
    static const struct {
        const char *name, *split, *wrong;
    } rows[] = { { "llama-bpe", "llama3", "qwen2" },
                 { "llama-bpe", "llama3", "gpt2" },
                 { "qwen2", "qwen2", "gpt2" },
                 { "qwen35", "qwen35", "gpt2" } };
    if (!have_data()) skip();
    cases *c = calloc(1, sizeof *c);
    assert_non_null(c);
    for (size_t i = 0; i < COUNT(rows); i++) {
        size_t n_known, none;
        read_cases(rows[i].name, c);
        size_t bad = ungrouped(c, rows[i].split, &n_known), wrong = ungrouped(c, rows[i].wrong, &none);
        print_message("%s: %zu cases, %zu pieces certain; %zu do not fit %s, %zu do not fit %s\n", rows[i].name, c->n,
                      n_known, bad, rows[i].split, wrong, rows[i].wrong);
        assert_int_equal(bad, 0);
        assert_true(wrong > 0);
        drop_cases(c);
    }
    free(c);
}

/* ---- shards made by others ---- */

static void published_shards(void **state)
{
    (void)state;
    static const struct {
        const char *text, *tokenizer, *shard[2];
        docs_rule rule;
        bool head; /* the shard is only the beginning */
    } rows[] = {
        { "tinystories/v2gpt4_10k_lines.txt", "llama2c/tokenizer.model", { "tinystories/v2gpt4_10k_lines.llama32k.u16", NULL }, DOCS_AUTO, false },
        { "tinystories/v2gpt4_10k_lines.txt", "llama2c/tokenizer.bin", { "tinystories/v2gpt4_10k_lines.llama32k.u16", NULL }, DOCS_ENDOFTEXT, false },
        { "tinystories/v2gpt4_10k_lines.txt", "llama2c/tok512.bin", { "tinystories/v2gpt4_first150.tok512.u16", NULL }, DOCS_ENDOFTEXT, true },
        { "tinyshakespeare/input.txt", "gpt2", { "tinyshakespeare/tiny_shakespeare_val.bin", "tinyshakespeare/tiny_shakespeare_train.bin" }, DOCS_BLANK, false },
    };
    if (!have_data()) skip();
    for (size_t i = 0; i < COUNT(rows); i++) {
        char path[300];
        diag d = { 0 };
        file_bytes f;
        tok_ids ids = { 0 };
        docs_count count;
        snprintf(path, sizeof path, DATA "%s", rows[i].tokenizer);
        opened o = open_tok(path);
        snprintf(path, sizeof path, DATA "%s", rows[i].text);
        assert_ok(file_map(path, &f, &d), d);
        assert_ok(docs_encode(o.t, (const char *)f.at, f.n, rows[i].rule, NULL, &ids, &count, &d), d);
        size_t at = 0;
        for (int k = 0; k < 2 && rows[i].shard[k]; k++) {
            shard *s;
            snprintf(path, sizeof path, DATA "%s", rows[i].shard[k]);
            assert_ok(shard_open(path, 0, &s, &d), d);
            size_t n = (size_t)shard_count(s);
            int32_t *want = malloc(n * sizeof *want);
            assert_ok(shard_read(s, 0, n, want, &d), d);
            assert_true(at + n <= ids.n);
            assert_memory_equal(ids.at + at, want, n * sizeof *want);
            at += n;
            free(want);
            shard_close(s);
        }
        if (!rows[i].head) assert_int_equal(at, ids.n);
        file_drop(&f);
        tok_ids_free(&ids);
        close_tok(o);
    }
}

/* What is written for a GGUF file is what llama.cpp wrote there: the same tokens, types, scores and merges, out of
 * other files. */
static void as_llama_cpp_writes(void **state)
{
    (void)state;
    static const struct { const char *from, *gguf; } rows[] = {
        { DATA "gpt2-hf", DATA "gguf-vocab/ggml-vocab-gpt-2.gguf" },
        { DATA "gpt2", DATA "gguf-vocab/ggml-vocab-gpt-2.gguf" },
        { DATA "llama2c/tokenizer.model", DATA "gguf-vocab/ggml-vocab-llama-spm.gguf" },
    };
    if (!have_data()) skip();
    for (size_t i = 0; i < COUNT(rows); i++) {
        diag d = { 0 };
        arena mem = { 0 };
        tok_vocab v;
        const char *lost;
        gguf *g;
        gguf_str s;
        opened o = open_tok(rows[i].from);
        assert_ok(tok_to_vocab(o.t, 0, &mem, &v, &lost, &d), d);
        assert_string_equal(lost, "");
        assert_ok(gguf_open(rows[i].gguf, &g, &d), d);
        assert_true(gguf_text(g, "tokenizer.ggml.model", &s) && s.n == strlen(v.model) && !memcmp(s.at, v.model, s.n));
        assert_true(gguf_text(g, "tokenizer.ggml.pre", &s) && s.n == strlen(v.pre) && !memcmp(s.at, v.pre, s.n));
        const gguf_value *tokens = gguf_get(g, "tokenizer.ggml.tokens"),
                         *types = gguf_get(g, "tokenizer.ggml.token_type");
        const gguf_value *merges = gguf_get(g, "tokenizer.ggml.merges"), *scores = gguf_get(g, "tokenizer.ggml.scores");
        assert_int_equal(tokens->n, v.n);
        assert_int_equal(merges ? merges->n : 0, v.n_merges);
        assert_true(!scores == !v.score);
        for (size_t k = 0; k < v.n; k++) {
            double x;
            if (tokens->strs[k].n != v.token[k].n || memcmp(tokens->strs[k].at, v.token[k].at, v.token[k].n))
                fail_msg("%s: token %zu is \"%.*s\"", rows[i].from, k, (int)v.token[k].n, v.token[k].at);
            assert_true(gguf_item(types, k, &x) && x == v.type[k]);
            if (scores) assert_true(gguf_item(scores, k, &x) && x == (double)v.score[k]);
        }
        for (size_t k = 0; k < v.n_merges; k++)
            if (merges->strs[k].n != v.merge[k].n || memcmp(merges->strs[k].at, v.merge[k].at, v.merge[k].n))
                fail_msg("%s: merge %zu is \"%.*s\"", rows[i].from, k, (int)v.merge[k].n, v.merge[k].at);
        gguf_close(g);
        arena_free(&mem);
        close_tok(o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_table), cmocka_unit_test(as_llama_cpp_writes), cmocka_unit_test(llama_cpp_cases),
        cmocka_unit_test(gguf_cases), cmocka_unit_test(cuts_fit_ids),        cmocka_unit_test(published_shards),
    };
    return cmocka_run_group_tests_name("text_golden", tests, NULL, NULL);
}
