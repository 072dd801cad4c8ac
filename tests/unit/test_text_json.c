/* test_text_json.c: tokenizer.json, section by section: what each means, and what is refused and by which name. */
#include "text_t.h"

static void llama_like(void **state)
{
    (void)state;
    static const char back[] =
        "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"" MARK
        "\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"
        "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}";
    strbuf b = { 0 };
    llama_json(&b,
               "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"" MARK
               "\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" MARK "\"}]}",
               "null", back);
    opened o = from_json(b.at);
    tok_info i;
    tok_get(o.t, &i);
    assert_int_equal(i.bos, 1);
    assert_true(i.add_bos && i.byte_fallback);
    EXPECT(o, "hello world", 0, "271 276");
    EXPECT(o, "hello world", TOK_BOS, "1 271 276");
    EXPECT(o, " hello", 0, "259 271"); /* the merge of a space and h comes before that of two spaces */
    EXPECT(o, "x", 0, "259 123");
    EXPECT(o, "<s>", 0, "259 63 118 65");
    EXPECT(o, "<s>hello", TOK_SPECIAL, "1 271");
    EXPECT(o, "", 0, "");
    sb_free(&b);
    SAME(o, "hello world", 0);
    SAME(o, "  hello   world  ", 0);
    SAME(o, "a " MARK "b", 0); /* the mark itself is not a space */
    SAME(o, "stray \xff\xc3 bytes \xe2\x96", 0);
    SAME(o, "<s>hello</s> world<s>", TOK_SPECIAL);
    close_tok(o);

    /* The newer spelling: Metaspace, a space put in front of the first stretch only, unless there is one. */
    llama_json(&b, "null",
               "{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\",\"prepend_scheme\":\"first\",\"split\":false}",
               back);
    o = from_json(b.at);
    EXPECT(o, "hello world", 0, "271 276");
    EXPECT(o, " hello", 0, "271");
    EXPECT(o, "hello<s>hello", TOK_SPECIAL, "271 1 260 261 270");
    SAME(o, "hello<s>hello", TOK_SPECIAL);
    SAME(o, "<s> hello", TOK_SPECIAL); /* a space behind what is printed is one of the text */
    close_tok(o);
    sb_free(&b);

    /* Words apart: two spaces never meet. */
    llama_json(&b, "null",
               "{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\",\"prepend_scheme\":\"always\",\"split\":true}",
               back);
    o = from_json(b.at);
    EXPECT(o, "a  hello", 0, "259 100 259 271");
    close_tok(o);
    sb_free(&b);
}

/* ---- sections, and what is refused ---- */

#define BYTES_JSON(normalizer, pre, decoder, post, model)                                                                                                                  \
    "{\"normalizer\":" normalizer ",\"pre_tokenizer\":" pre ",\"decoder\":" decoder ",\"post_processor\":" post ",\"model\":{" model "\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]}}"

static void refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *json, *say[2];
    } rows[] = {
        { BYTES_JSON("{\"type\":\"BertNormalizer\"}", "null", "null", "null", "\"type\":\"BPE\","), { "normalizer", "BertNormalizer" } },
        { BYTES_JSON("{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Lowercase\"}]}", "null", "null", "null", "\"type\":\"BPE\","), { "normalizer", "Lowercase" } },
        { BYTES_JSON("null", "{\"type\":\"UnicodeScripts\"}", "null", "null", "\"type\":\"BPE\","), { "pre_tokenizer", "UnicodeScripts" } },
        { BYTES_JSON("null", "{\"type\":\"Split\",\"pattern\":{\"String\":\"x\"},\"behavior\":\"Sideways\"}", "null", "null", "\"type\":\"BPE\","), { "behavior", "Sideways" } },
        { BYTES_JSON("null", "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},\"behavior\":\"Isolated\"}", "null", "null", "\"type\":\"BPE\","), { "regular expression", "(" } },
        { BYTES_JSON("null", "null", "{\"type\":\"WordPiece\"}", "null", "\"type\":\"BPE\","), { "decoder", "WordPiece" } },
        { BYTES_JSON("null", "null", "null", "{\"type\":\"RobertaProcessing\"}", "\"type\":\"BPE\","), { "post_processor", "RobertaProcessing" } },
        { BYTES_JSON("null", "null", "null", "null", "\"type\":\"WordPiece\","), { "model", "WordPiece" } },
        { BYTES_JSON("null", "null", "null", "null", "\"type\":\"BPE\",\"end_of_word_suffix\":\"</w>\","), { "end_of_word_suffix", "not supported" } },
        { BYTES_JSON("null", "null", "null", "null", "\"type\":\"BPE\",\"dropout\":0.1,"), { "dropout", "not supported" } },
        { BYTES_JSON("null", "null", "null", "null", "\"type\":\"BPE\",\"byte_fallback\":true,"), { "bytes", "ByteFallback" } },
        { BYTES_JSON("null", "null", "null", "null", "\"type\":\"BPE\",\"unk_token\":\"<unk>\","), { "unk_token", "<unk>" } },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", { "id 0", "another" } },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", { "\"a\"", "whole number" } },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":4194304},\"merges\":[]}}", { "\"a\"", "4194303" } },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1.5},\"merges\":[]}}", { "\"a\"", "whole number" } },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a c\"]}}", { "merge 0", "\"c\"" } },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a a\"]}}", { "merge 0", "\"aa\"" } },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"aa\"]}}", { "merges[0]", "left right" } },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}", { "0 tokens", "" } },
        { "{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\"]]}}", { "vocab[0]", "score" } },
        { "{\"added_tokens\":[{\"id\":0}],\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}", { "added_tokens[0]", "content" } },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,},\"merges\":[]}}", { "vocab", "byte 38" } },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0 \"b\":1},\"merges\":[]}}", { "vocab", "byte" } },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":[0]},\"merges\":[]}}", { "vocab", "byte" } },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\\ud800\":0},\"merges\":[]}}", { "vocab", "byte" } },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\xff\":0},\"merges\":[]}}", { "vocab", "byte" } },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a a\",]}}", { "merges", "byte" } },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a\",\"a\",\"a\"]]}}", { "merges", "byte" } },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":[],\"merges\":[]}}", { "vocab", "no object" } },
        { "{\"a\":0}", { "model", "" } },
        { "{\"model\":", { "line 1", "" } },
        { "", { "line", "" } },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        diag d = { 0 };
        tokenizer *t = NULL;
        assert_int_equal(tok_from_json("bad.json", rows[i].json, strlen(rows[i].json), &t, &d), AN_INPUT);
        assert_null(t);
        for (int k = 0; k < 2; k++)
            if (!strstr(d.msg, rows[i].say[k]))
                fail_msg("row %zu: \"%s\" does not say \"%s\"", i, d.msg, rows[i].say[k]);
    }
}

/* The lists in every spelling JSON has: escapes, surrogate pairs, pairs as lists, white space, merges first. */
static void spellings(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"\xf0\x9f\x9a\x80\":1,\"a\xf0\x9f\x9a\x80\":2,\"\\\"\":3},\"merges\":[\"a \xf0\x9f\x9a\x80\"]}}",
        "{ \"model\" : {\"merges\" :\t[ [ \"\\u0061\" , \"\\uD83D\\ude80\" ] ] ,\n\"vocab\": { \"\\u0061\" : 0 , \"\\ud83d\\uDE80\" : 1 , \"a\\ud83d\\ude80\":2 , \"\\u0022\":3 } , \"type\":\"BPE\" } }",
        "{\"version\":\"1.0 \\\"model\\\":{\",\"model\":{\"extra\":{\"vocab\":{\"z\":9}},\"type\":\"BPE\",\"vocab\":{\"a\":0,\"\\ud83d\\ude80\":1,\"a\\ud83d\\ude80\":2,\"\\\"\":3},\"merges\":[[\"a\",\"\\ud83d\\ude80\"]]}}",
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        opened o = from_json(rows[i]);
        EXPECT(o, "aa\xf0\x9f\x9a\x80\xf0\x9f\x9a\x80\"", 0, "0 2 1 3");
        close_tok(o);
    }
}

/* Behaviours as Hugging Face documents them, on the-final--countdown. */
static void behaviors(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *behavior, *invert, *ends;
    } rows[] = {
        { "{\"String\":\"-\"}", "Isolated", "false", "3 4 9 10 11 20" },      { "{\"String\":\"-\"}", "Removed", "false", "3 9 20" },
        { "{\"String\":\"-\"}", "MergedWithPrevious", "false", "4 10 11 20" }, { "{\"String\":\"-\"}", "MergedWithNext", "false", "3 9 10 20" },
        { "{\"String\":\"-\"}", "Contiguous", "false", "3 4 9 11 20" },        { "{\"Regex\":\"-\"}", "MergedWithNext", "false", "3 9 10 20" },
        { "{\"Regex\":\"[a-z]+\"}", "Removed", "true", "3 9 20" },             { "{\"Regex\":\"[^-]+\"}", "Isolated", "false", "3 4 9 11 20" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        strbuf b = { 0 }, got = { 0 };
        diag d = { 0 };
        tok_cuts c = { 0 };
        sb_printf(
            &b,
            "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":%s,\"behavior\":\"%s\",\"invert\":%s},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}",
            rows[i].pattern, rows[i].behavior, rows[i].invert);
        opened o = from_json(b.at);
        assert_ok(tok_cut(o.e, "the-final--countdown", 20, &c, &d), d);
        for (size_t k = 0; k < c.n; k++) sb_printf(&got, k ? " %zu" : "%zu", c.at[k]);
        assert_string_equal(got.at, rows[i].ends);
        tok_cuts_free(&c);
        close_tok(o);
        sb_free(&b);
        sb_free(&got);
    }
    /* One step after the other: numbers apart first, then words. */
    opened o = from_json("{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":true},{\"type\":\"ByteLevel\",\"add_prefix_space\":false}]},"
                         "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}");
    diag d = { 0 };
    tok_cuts c = { 0 };
    static const size_t want[] = { 2, 3, 4, 5, 6, 8 };
    assert_ok(tok_cut(o.e, "ab 12  c", 8, &c, &d), d);
    assert_int_equal(c.n, COUNT(want));
    assert_memory_equal(c.at, want, sizeof want);
    tok_cuts_free(&c);
    close_tok(o);
}

static void added_tokens(void **state)
{
    (void)state;
    opened o = from_json("{\"added_tokens\":[{\"id\":3,\"content\":\"<a>\",\"special\":true},{\"id\":4,\"content\":\"<a><a>\",\"special\":true},{\"id\":5,\"content\":\"mask\",\"special\":false,\"lstrip\":true,\"rstrip\":true},"
                         "{\"id\":6,\"content\":\"ab\",\"special\":false,\"single_word\":true}],\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true},"
                         "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"unk_token\":\"a\",\"vocab\":{\"a\":0,\"b\":1,\"\\u0120\":2},\"merges\":[]}}");
    EXPECT(o, "a<a>b", TOK_SPECIAL, "0 3 1");
    EXPECT(o, "<a><a><a>", TOK_SPECIAL, "4 3"); /* the longest at the leftmost place */
    EXPECT(o, "<a>", 0, "0 0 0");               /* as text: unknown, a, unknown */
    EXPECT(o, "b mask b", 0, "1 5 1");          /* with the white space around it */
    EXPECT(o, "ab", 0, "6");
    EXPECT(o, "bab", 0, "1 0 1");
    EXPECT(o, "b ab b", 0, "1 2 6 2 1");
    EXPECT(o, "\xc3\xa9"  "ab", 0, "0 0 0 1");  /* a letter of two bytes before it: no word of its own */
    assert_int_equal(tok_find(o.t, "<a>", 3), 3);
    assert_int_equal(tok_find(o.t, "nothing", 7), -1);
    close_tok(o);
}

static void unigram_json(void **state)
{
    (void)state;
    opened o = from_json("{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\",\"add_prefix_space\":true},\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\"},"
                         "\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"" MARK "\",-2],[\"a\",-2],[\"b\",-2],[\"ab\",-3],[\"" MARK "ab\",-4.5],[\"ba\",-3.5]]}}");
    EXPECT(o, "ab", 0, "5");
    EXPECT(o, "abab ab", 0, "5 4 5");
    EXPECT(o, "aba", 0, "5 2");
    EXPECT(o, "a??a", 0, "1 2 0 2"); /* a run of unknown characters is one token */
    close_tok(o);
}

/* ---- NFC, as a normalizer: what comes back is composed ---- */

static void composes(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } rows[] = {
        { "e\xcc\x81", "\xc3\xa9" },
        { "A\xcc\x8a\xcc\x81", "\xc7\xba" },
        { "q\xcc\x87\xcc\xa3", "q\xcc\xa3\xcc\x87" },               /* marks in the order of their classes */
        { "\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab", "\xed\x95\x9c" }, /* Hangul: three letters, one syllable */
        { "\xed\x95\x98\xe1\x86\xab", "\xed\x95\x9c" },             /* and a syllable with a final */
        { "\xe2\x84\xab", "\xc3\x85" },                             /* the angstrom sign is a letter */
        { "\xe0\xa5\x98", "\xe0\xa4\x95\xe0\xa4\xbc" },             /* excluded: stays apart */
        { "plain", "plain" },
        { "\xff" "e\xcc\x81\xfe\xcc\x81", "\xff\xc3\xa9\xfe\xcc\x81" }, /* nothing joins across a stray byte */
    };
    strbuf b = { 0 };
    diag d = { 0 };
    assert_ok(tok_train("", 0, &(tok_train_options){ .vocab = 257 }, &b, &d), d);
    char *at = strstr(b.at, "\"normalizer\":null");
    assert_non_null(at);
    strbuf json = { 0 };
    sb_putn(&json, b.at, (size_t)(at - b.at));
    sb_puts(&json, "\"normalizer\":{\"type\":\"NFC\"}");
    sb_puts(&json, at + strlen("\"normalizer\":null"));
    opened o = from_json(json.at);
    for (size_t i = 0; i < COUNT(rows); i++) {
        tok_ids v = { 0 };
        strbuf out = { 0 };
        assert_ok(tok_encode(o.e, rows[i].in, strlen(rows[i].in), 0, &v, &d), d);
        assert_ok(tok_decode(o.t, v.at, v.n, 0, &out, &d), d);
        assert_string_equal(out.at, rows[i].out);
        sb_free(&out);
        tok_ids_free(&v);
    }
    close_tok(o);
    sb_free(&b);
    sb_free(&json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_like),
        cmocka_unit_test(refused_by_name),
        cmocka_unit_test(spellings),
        cmocka_unit_test(behaviors),
        cmocka_unit_test(added_tokens),
        cmocka_unit_test(unigram_json),
        cmocka_unit_test(composes),
    };
    return cmocka_run_group_tests_name("text_json", tests, NULL, NULL);
}
