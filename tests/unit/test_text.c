/* Tokenizer files of every kind, small and made here: what each section means, what is refused and by which name, and files that lie. */
#include "t.h"
#include "text/text.h"

typedef struct {
    tokenizer *t;
    tok_encoder *e;
} opened;

static opened wrap(tokenizer *t)
{
    diag d = { 0 };
    opened o = { t, NULL };
    assert_ok(tok_encoder_new(t, &o.e, &d), d);
    return o;
}

static opened from_json(const char *json)
{
    diag d = { 0 };
    tokenizer *t;
    assert_ok(tok_from_json("test", json, strlen(json), &t, &d), d);
    return wrap(t);
}

static void close_tok(opened o)
{
    tok_encoder_free(o.e);
    tok_close(o.t);
}

static void expect(opened o, const char *text, size_t n, unsigned flags, const char *ids)
{
    diag d = { 0 };
    tok_ids v = { 0 };
    strbuf b = { 0 };
    sb_puts(&b, "");
    assert_ok(tok_encode(o.e, text, n, flags, &v, &d), d);
    for (size_t i = 0; i < v.n; i++) sb_printf(&b, i ? " %u" : "%u", v.at[i]);
    assert_string_equal(b.at, ids);
    sb_free(&b);
    tok_ids_free(&v);
}

static void there_and_back(opened o, const char *text, size_t n, unsigned flags)
{
    diag d = { 0 };
    tok_ids v = { 0 };
    strbuf b = { 0 };
    sb_puts(&b, "");
    assert_ok(tok_encode(o.e, text, n, flags, &v, &d), d);
    assert_ok(tok_decode(o.t, v.at, v.n, flags, &b, &d), d);
    assert_int_equal(b.n, n);
    assert_memory_equal(b.at, text, n);
    sb_free(&b);
    tok_ids_free(&v);
}
#define SAME(o, text, flags) there_and_back(o, text, sizeof(text) - 1, flags)
#define EXPECT(o, text, flags, ids) expect(o, text, sizeof(text) - 1, flags, ids)

/* ---- tokenizer.json: a Llama-like BPE with byte fallback ---- */

#define MARK "\xe2\x96\x81"
/* ids: 0 <unk>, 1 <s>, 2 </s>, 3 … 258 bytes, then these */
static const char *const pieces[] = { MARK, "h", "e", "l", "o", "w", "r", "d", MARK "h", "ll", MARK "he", "llo", MARK "hello", MARK "w", "or", "ld", MARK "wor", MARK "world", MARK MARK };
static const char *const merges[] = { MARK " h", "l l", MARK "h e", "ll o", MARK "he llo", MARK " w", "o r", "l d", MARK "w or", MARK "wor ld", MARK " " MARK };

static void llama_json(strbuf *b, const char *normalizer, const char *pre, const char *decoder)
{
    sb_printf(b, "{\"added_tokens\":[{\"id\":0,\"content\":\"<unk>\",\"special\":true},{\"id\":1,\"content\":\"<s>\",\"special\":true},{\"id\":2,\"content\":\"</s>\",\"special\":true}],"
                 "\"normalizer\":%s,\"pre_tokenizer\":%s,\"decoder\":%s,"
                 "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}]},"
                 "\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"fuse_unk\":true,\"byte_fallback\":true,\"vocab\":{\"<unk>\":0,\"<s>\":1,\"</s>\":2",
              normalizer, pre, decoder);
    for (unsigned i = 0; i < 256; i++) sb_printf(b, ",\"<0x%02X>\":%u", i, 3 + i);
    for (size_t i = 0; i < COUNT(pieces); i++) sb_printf(b, ",\"%s\":%zu", pieces[i], 259 + i);
    sb_puts(b, "},\"merges\":[");
    for (size_t i = 0; i < COUNT(merges); i++) sb_printf(b, "%s\"%s\"", i ? "," : "", merges[i]);
    sb_puts(b, "]}}");
}

static void llama_like(void **state)
{
    (void)state;
    static const char back[] = "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"" MARK "\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"
                               "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}";
    strbuf b = { 0 };
    llama_json(&b, "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"" MARK "\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" MARK "\"}]}", "null", back);
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
    llama_json(&b, "null", "{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\",\"prepend_scheme\":\"first\",\"split\":false}", back);
    o = from_json(b.at);
    EXPECT(o, "hello world", 0, "271 276");
    EXPECT(o, " hello", 0, "271");
    EXPECT(o, "hello<s>hello", TOK_SPECIAL, "271 1 260 261 270");
    SAME(o, "hello<s>hello", TOK_SPECIAL);
    SAME(o, "<s> hello", TOK_SPECIAL); /* a space behind what is printed is one of the text */
    close_tok(o);
    sb_free(&b);

    /* Words apart: two spaces never meet. */
    llama_json(&b, "null", "{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\",\"prepend_scheme\":\"always\",\"split\":true}", back);
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
            if (!strstr(d.msg, rows[i].say[k])) fail_msg("row %zu: \"%s\" does not say \"%s\"", i, d.msg, rows[i].say[k]);
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
        sb_printf(&b, "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":%s,\"behavior\":\"%s\",\"invert\":%s},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}", rows[i].pattern,
                  rows[i].behavior, rows[i].invert);
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

/* ---- tokenizer.model ---- */

static void put_varint(strbuf *b, uint64_t v)
{
    for (; v > 127; v >>= 7) sb_putc(b, (char)(v | 128));
    sb_putc(b, (char)v);
}
static void put_bytes(strbuf *b, unsigned field, const char *s, size_t n)
{
    put_varint(b, field << 3 | 2);
    put_varint(b, n);
    sb_putn(b, s, n);
}
static void put_piece(strbuf *b, const char *text, float score, int type)
{
    strbuf p = { 0 };
    uint32_t bits;
    memcpy(&bits, &score, 4);
    put_bytes(&p, 1, text, strlen(text));
    put_varint(&p, 2 << 3 | 5);
    for (int i = 0; i < 4; i++) sb_putc(&p, (char)(bits >> (8 * i)));
    put_varint(&p, 3 << 3);
    put_varint(&p, (uint64_t)type);
    put_bytes(b, 1, p.at, p.n);
    sb_free(&p);
}

/* A BPE or unigram model whose character map turns A into a. */
static void model_proto(strbuf *b, int type, bool bytes)
{
    put_piece(b, "<unk>", 0, TOK_UNKNOWN), put_piece(b, "<s>", 0, TOK_CONTROL), put_piece(b, "</s>", 0, TOK_CONTROL);
    put_piece(b, MARK, -1, TOK_NORMAL), put_piece(b, "a", -2, TOK_NORMAL), put_piece(b, "b", -3, TOK_NORMAL);
    put_piece(b, MARK "a", -0.5f, TOK_NORMAL), put_piece(b, "ab", -1.5f, TOK_NORMAL), put_piece(b, "[x]", 0, TOK_USER);
    for (unsigned i = 0; i < 256 && bytes; i++) {
        char s[8];
        snprintf(s, sizeof s, "<0x%02X>", i);
        put_piece(b, s, 0, TOK_BYTE);
    }
    strbuf t = { 0 }, n = { 0 };
    unsigned char map[4 + 512 * 4 + 2] = { 0 };
    map[1] = 512 * 4 >> 8;
    uint32_t units[3][2] = { { 0, 256u << 10 }, { 0x141, 'A' | 1u << 8 | 1u << 10 }, { 0x140, 0x80000000u } };
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 4; k++) map[4 + units[i][0] * 4 + (uint32_t)k] = (unsigned char)(units[i][1] >> (8 * k));
    map[4 + 512 * 4] = 'a';
    put_varint(&t, 3 << 3), put_varint(&t, (uint64_t)type);
    put_varint(&t, 35 << 3), put_varint(&t, bytes);
    put_varint(&t, 99 << 3 | 1), sb_putn(&t, "12345678", 8); /* fields we do not know */
    put_bytes(&t, 98, "later", 5);
    put_bytes(b, 2, t.at, t.n);
    put_bytes(&n, 2, (char *)map, sizeof map);
    put_varint(&n, 3 << 3), put_varint(&n, 1);
    put_varint(&n, 4 << 3), put_varint(&n, 0);
    put_bytes(b, 3, n.at, n.n);
    sb_free(&t);
    sb_free(&n);
}

static void sentencepiece(void **state)
{
    (void)state;
    strbuf b = { 0 };
    diag d = { 0 };
    tokenizer *t;
    model_proto(&b, 2, true);
    assert_ok(tok_from_model("toy.model", b.at, b.n, &t, &d), d);
    opened o = wrap(t);
    EXPECT(o, "ab", 0, "6 5");     /* the space joins a before b does: its score is better */
    EXPECT(o, "b ab", 0, "3 5 6 5");
    EXPECT(o, "Ab", 0, "6 5");     /* the character map */
    EXPECT(o, "bab", 0, "3 5 7");
    EXPECT(o, "a[x]b", 0, "6 8 5");
    EXPECT(o, "[x]a", 0, "3 8 4");
    EXPECT(o, "\xc3\xa9", 0, "3 204 178");
    SAME(o, "[x]a [x]", 0);
    SAME(o, "  a  b [x] \xff " MARK, 0);
    close_tok(o);
    /* Every way to cut it short: an error, or a smaller vocabulary, never a crash. */
    for (size_t n = 0; n < b.n; n++) {
        char *copy = malloc(n + 1); /* its own block: a read past the end is seen */
        memcpy(copy, b.at, n);
        d = (diag){ 0 };
        if (tok_from_model("toy.model", copy, n, &t, &d)) assert_true(d.st == AN_INPUT && strstr(d.msg, "toy.model"));
        else tok_close(t);
        free(copy);
    }
    /* Fields that lie: numbers of more than 64 bits, field 0, a field past 2^29, lengths past the end, groups. */
    static const struct {
        const char *bytes;
        size_t n;
        bool fine;
    } odd[] = {
        { "\xf8\x06\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12, true }, { "\xf8\x06\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 12, false }, { "\xf8\x06\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 13, false },
        { "\x00\x05", 2, false }, { "\xf8\xff\xff\xff\x0f\x05", 6, true }, { "\xf8\xff\xff\xff\x1f\x05", 6, false },
        { "\xfa\x06\x02xy", 5, true }, { "\xfa\x06\x03xy", 5, false }, { "\xfa\x06\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01xy", 14, false }, { "\xfb\x06", 2, false }, { "\xf9\x06" "1234567", 9, false }, { "\xfd\x06" "123", 5, false },
    };
    for (size_t i = 0; i < COUNT(odd); i++) {
        strbuf more = { 0 };
        sb_putn(&more, b.at, b.n);
        sb_putn(&more, odd[i].bytes, odd[i].n);
        char *copy = malloc(more.n);
        memcpy(copy, more.at, more.n);
        d = (diag){ 0 };
        if (!tok_from_model("toy.model", copy, more.n, &t, &d) != odd[i].fine) fail_msg("row %zu: status %d, \"%s\"", i, (int)d.st, d.msg);
        if (odd[i].fine) tok_close(t);
        else assert_true(d.st == AN_INPUT && strstr(d.msg, "malformed"));
        free(copy);
        sb_free(&more);
    }
    b.n = 0;
    model_proto(&b, 1, false);
    d = (diag){ 0 };
    assert_ok(tok_from_model("toy.model", b.at, b.n, &t, &d), d);
    o = wrap(t);
    EXPECT(o, "ab", 0, "3 7"); /* -1 - 1.5 is better than -0.5 - 3 */
    EXPECT(o, "a\xc3\xa9\xc3\xa9", 0, "6 0");
    close_tok(o);
    b.n = 0;
    model_proto(&b, 4, false);
    assert_int_equal(tok_from_model("toy.model", b.at, b.n, &t, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "char"));
    sb_free(&b);
}

/* ---- tokenizer.bin ---- */

static void llama2c_bin(void **state)
{
    (void)state;
    strbuf b = { 0 };
    diag d = { 0 };
    tokenizer *t;
    static const struct { const char *s; float score; } more[] = { { " ", -1 }, { "a", -2 }, { "b", -3 }, { " a", -0.5f }, { "ab", -1.5f } };
    size_t end[259 + COUNT(more)];
    sb_putn(&b, "\7\0\0\0", 4);
    for (unsigned i = 0; i < 259 + COUNT(more); i++) {
        char s[16];
        if (i < 3) snprintf(s, sizeof s, "%s", ((const char *[]){ "<unk>", "\n<s>\n", "\n</s>\n" })[i]);
        else if (i < 259) snprintf(s, sizeof s, "<0x%02X>", i - 3);
        else snprintf(s, sizeof s, "%s", more[i - 259].s);
        float score = i < 259 ? 0 : more[i - 259].score;
        sb_putn(&b, (char *)&score, 4);
        uint32_t n = (uint32_t)strlen(s);
        sb_putn(&b, (char *)&n, 4);
        sb_puts(&b, s);
        end[i] = b.n;
    }
    assert_ok(tok_from_bin("toy.bin", b.at, b.n, &t, &d), d);
    opened o = wrap(t);
    EXPECT(o, "ab", 0, "262 261");
    EXPECT(o, "bab", TOK_BOS, "1 259 261 263");
    SAME(o, "a " MARK "  \xfe", 0);
    assert_int_equal(tok_find(o.t, "<s>", 3), 1);
    close_tok(o);
    for (size_t n = 0, whole = 0; n < b.n; n++) { /* cut anywhere: fine behind a token, once all the bytes are there */
        char *copy = malloc(n + 1);
        memcpy(copy, b.at, n);
        d = (diag){ 0 };
        whole += n == end[whole];
        const bool fine = whole >= 259 && n == end[whole - 1];
        if (!tok_from_bin("toy.bin", copy, n, &t, &d) != fine) fail_msg("%zu bytes: status %d: %s", n, (int)d.st, d.msg);
        if (fine) tok_close(t);
        else assert_true(d.st == AN_INPUT && strstr(d.msg, "toy.bin"));
        free(copy);
    }
    memset(b.at + 8, 0xff, 4); /* a token of 2^32-1 bytes */
    d = (diag){ 0 };
    assert_int_equal(tok_from_bin("toy.bin", b.at, b.n, &t, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "4294967295"));
    sb_free(&b);
}

/* ---- long and hostile texts ---- */

static void long_texts(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    char *text = malloc(N);
    diag d = { 0 };
    strbuf json = { 0 }, model = { 0 };
    tokenizer *t;
    opened o[3];
    assert_non_null(text);
    memset(text, 'a', N);
    assert_ok(tok_train(text, 4000, &(tok_train_options){ .vocab = 280 }, &json, &d), d); /* learns runs of a */
    o[0] = from_json(json.at);
    for (int k = 1; k < 3; k++) {
        model.n = 0;
        model_proto(&model, 3 - k, true);
        assert_ok(tok_from_model("toy", model.at, model.n, &t, &d), d);
        o[k] = wrap(t);
    }
    static const char fills[] = { 'a', ' ', '\n', '\xff' };
    for (size_t f = 0; f < COUNT(fills); f++) {
        memset(text, fills[f], N);
        for (int k = 0; k < 3; k++) there_and_back(o[k], text, N, 0);
        text[N - 1] = 'b';
        for (int k = 0; k < 3; k++) there_and_back(o[k], text, N, 0);
    }
    for (int k = 0; k < 3; k++) close_tok(o[k]);
    sb_free(&json);
    sb_free(&model);
    free(text);
}

/* ---- training ---- */

static void trains(void **state)
{
    (void)state;
    static const char text[] = "low low low low low lower lower newest newest newest newest newest newest widest widest widest";
    diag d = { 0 };
    strbuf a = { 0 }, b = { 0 };
    tok_train_options op = { .vocab = 262 };
    assert_ok(tok_train(text, sizeof text - 1, &op, &a, &d), d);
    assert_ok(tok_train(text, sizeof text - 1, &op, &b, &d), d);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.at, b.at, a.n);
    /* es and st nine times each: es has the lower ids; then est, and so on */
    assert_non_null(strstr(a.at, "\"merges\":[\n\"e s\",\n\"es t\",\n\"l o\""));
    opened o = from_json(a.at);
    tok_info i;
    tok_get(o.t, &i);
    assert_int_equal(i.n, 262);
    assert_int_equal(i.bos, 261);
    SAME(o, "lowest \xf0\x9f\x9a\x80", 0);
    EXPECT(o, "<|endoftext|>", TOK_SPECIAL, "261");
    close_tok(o);
    op.vocab = 100000; /* more than the text can give */
    a.n = 0;
    assert_ok(tok_train(text, sizeof text - 1, &op, &a, &d), d);
    o = from_json(a.at);
    tok_get(o.t, &i);
    assert_in_range(i.n, 262, 320);
    close_tok(o);
    op.vocab = 256;
    assert_int_equal(tok_train(text, sizeof text - 1, &op, &a, &d), AN_USAGE);
    d = (diag){ 0 };
    op = (tok_train_options){ .vocab = 300, .split = "words" };
    assert_int_equal(tok_train(text, sizeof text - 1, &op, &a, &d), AN_USAGE);
    assert_non_null(strstr(d.msg, "words"));
    sb_free(&a);
    sb_free(&b);
}

static void bad_ids_and_flags(void **state)
{
    (void)state;
    opened o = from_json("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]}}");
    diag d = { 0 };
    tok_ids v = { 0 };
    strbuf b = { 0 };
    static const uint32_t ids[] = { 0, 1, 2 };
    assert_int_equal(tok_decode(o.t, ids, 3, 0, &b, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "id 2 at index 2"));
    d = (diag){ 0 };
    assert_int_equal(tok_encode(o.e, "a", 1, TOK_BOS, &v, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "BOS"));
    d = (diag){ 0 };
    assert_int_equal(tok_encode(o.e, "a?", 2, 0, &v, &d), AN_INPUT); /* neither bytes nor an unknown token */
    assert_non_null(strstr(d.msg, "3f"));
    static const struct {
        const char *text;
        size_t n, good; /* n: all of it is fine */
    } utf8[] = { { "ab", 2, 2 }, { "a\xff", 2, 1 }, { "\xc3", 1, 0 }, { "b\xed\xa0\x80", 4, 1 }, { "\xc0\x80", 2, 0 }, { "a\xf5\x80\x80\x80", 5, 1 },
                 { "\xe0\x80\x80", 3, 0 }, { "a\xe0\x9f\xbf", 4, 1 }, { "\xf0\x80\x80\x80", 4, 0 }, { "\xf0\x8f\xbf\xbf", 4, 0 }, { "\xf4\x90\x80\x80", 4, 0 } };
    for (size_t i = 0; i < COUNT(utf8); i++) {
        char want[40];
        d = (diag){ 0 };
        snprintf(want, sizeof want, "byte %zu is 0x%02x", utf8[i].good, (unsigned char)utf8[i].text[utf8[i].good]);
        an_status st = tok_encode(o.e, utf8[i].text, utf8[i].n, TOK_UTF8, &v, &d);
        if (utf8[i].good == utf8[i].n) assert_ok(st, d);
        else if (st != AN_INPUT || !strstr(d.msg, want)) fail_msg("row %zu: status %d: %s", i, (int)st, d.msg);
    }
    d = (diag){ 0 };
    tokenizer *t;
    tok_vocab vocab = { .model = "gpt2", .n = 2, .token = (tok_str[]){ { "a", 1 }, { "b\xff", 2 } }, .bos = -1, .eos = -1, .unk = -1, .pad = -1, .add_bos = -1, .add_eos = -1, .add_space_prefix = -1 };
    assert_int_equal(tok_from_vocab("words.gguf", &vocab, &t, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "words.gguf"));
    assert_non_null(strstr(d.msg, "token 1 is not UTF-8: byte 1 of 2 is 0xff"));
    b.n = 0;
    put_piece(&b, "<unk>", 0, TOK_UNKNOWN), put_piece(&b, "\xe2\x96", -1, TOK_NORMAL);
    d = (diag){ 0 };
    assert_int_equal(tok_from_model("pieces.model", b.at, b.n, &t, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "token 1 is not UTF-8: byte 0 of 2 is 0xe2"));
    d = (diag){ 0 };
    assert_int_equal(tok_open("/nonexistent/tokenizer.json", &t, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "/nonexistent/tokenizer.json"));
    tok_ids_free(&v);
    sb_free(&b);
    close_tok(o);
}

/* ---- vocabularies as GGUF has them: out, and in again ---- */

static void same_tokenizer(const opened *a, const opened *b);

/* And as a folder's file: the same tokenizer once more. */
static void as_file(const tok_vocab *v, const opened *o)
{
    strbuf b = { 0 };
    diag d = { 0 };
    tokenizer *t;
    bool json = !strcmp(v->model, "gpt2");
    assert_string_equal(tok_vocab_file(v, &b), json ? "tokenizer.json" : "tokenizer.model");
    assert_false(b.oom);
    assert_ok(json ? tok_from_json("file", b.at, b.n, &t, &d) : tok_from_model("file", b.at, b.n, &t, &d), d);
    opened p = wrap(t);
    same_tokenizer(o, &p);
    close_tok(p);
    b.n = 0;
    tok_vocab_config(v, &b);
    assert_non_null(strstr(b.at, "\"add_bos_token\": "));
    sb_free(&b);
}

static opened again(const opened *o, size_t rows, const char *model, const char *pre, const char *lost)
{
    arena mem = { 0 };
    tok_vocab v;
    const char *told;
    diag d = { 0 };
    tokenizer *t;
    assert_ok(tok_to_vocab(o->t, rows, &mem, &v, &told, &d), d);
    assert_string_equal(v.model, model);
    assert_string_equal(v.pre, pre);
    if (*lost ? !strstr(told, lost) : *told) fail_msg("lost: \"%s\", wanted \"%s\"", told, lost);
    assert_ok(tok_from_vocab("again", &v, &t, &d), d);
    tok_info a, b;
    tok_get(o->t, &a);
    tok_get(t, &b);
    assert_int_equal(b.n, rows > a.n ? rows : a.n);
    assert_true(a.bos == b.bos && a.eos == b.eos && a.unk == b.unk && a.pad == b.pad && a.add_bos == b.add_bos && a.add_eos == b.add_eos && a.byte_fallback == b.byte_fallback);
    assert_int_equal(a.n_special, b.n_special + (a.unk >= 0 && !strcmp(model, "llama") && tok_type_of(o->t, (uint32_t)a.unk) == TOK_CONTROL));
    for (uint32_t i = 0; i < a.n; i++) {
        tok_str x = tok_text(o->t, i), y = tok_text(t, i);
        if (x.n && (x.n != y.n || memcmp(x.at, y.at, x.n))) fail_msg("token %u is \"%.*s\", was \"%.*s\"", i, (int)y.n, y.at, (int)x.n, x.at);
    }
    for (uint32_t i = a.n; i < b.n; i++) assert_int_equal(tok_type_of(t, i), TOK_UNUSED);
    opened p = wrap(t);
    as_file(&v, &p);
    arena_free(&mem); /* everything was copied */
    return p;
}

static void same_ids(const opened *a, const opened *b, const char *text, size_t n, unsigned flags)
{
    diag d = { 0 };
    tok_ids x = { 0 }, y = { 0 };
    assert_ok(tok_encode(a->e, text, n, flags, &x, &d), d);
    assert_ok(tok_encode(b->e, text, n, flags, &y, &d), d);
    if (x.n != y.n || (x.n && memcmp(x.at, y.at, x.n * sizeof *x.at))) fail_msg("\"%.*s\": %zu ids, %zu again, or others", (int)n, text, x.n, y.n);
    tok_ids_free(&x);
    tok_ids_free(&y);
}

static void same_tokenizer(const opened *a, const opened *b)
{
    static const char *const words[] = { "hello", " ", "world", "wor", "\xff", "ll", "o", "caf\xc3\xa9", "\n", "12345", "don't", "<s>", "\xe2\x96\x81", "!", "  ", "h" };
    uint64_t r = 1;
    for (int i = 0; i < 400; i++) {
        strbuf text = { 0 };
        sb_puts(&text, "");
        for (int k = 0; k < i % 12; k++) r = r * 6364136223846793005u + 1442695040888963407u, sb_puts(&text, words[r >> 60]);
        if (text.n && text.at[0] == ' ') text.at[0] = 'x'; /* a leading space is what a vocabulary out of Metaspace loses */
        same_ids(a, b, text.at, text.n, i % 2 ? TOK_SPECIAL : 0);
        sb_free(&text);
    }
}

static void vocabularies_out(void **state)
{
    (void)state;
    static const char corpus[] = "hello world, hello worlds: the world's 1234 hellos and 12345 more; don't café the hello wor world hello hello 'll low older wold";
    static const struct { const char *split, *pre; } cuts[] = { { "gpt2", "gpt-2" }, { "llama3", "llama-bpe" }, { "qwen2", "qwen2" }, { "qwen35", "qwen35" } };
    diag d = { 0 };
    for (size_t i = 0; i < COUNT(cuts); i++) { /* by merges; Llama 3's pieces are looked up whole first, which changes nothing for a vocabulary learnt so */
        strbuf json = { 0 };
        assert_ok(tok_train(corpus, sizeof corpus - 1, &(tok_train_options){ .vocab = 300, .split = cuts[i].split }, &json, &d), d);
        opened o = from_json(json.at), p = again(&o, i % 2 ? 320 : 0, "gpt2", cuts[i].pre, "");
        same_tokenizer(&o, &p);
        close_tok(o), close_tok(p);
        sb_free(&json);
    }
    strbuf json = { 0 };
    llama_json(&json, "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"" MARK "\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" MARK "\"}]}", "null",
               "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"" MARK "\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}");
    opened o = from_json(json.at), p = again(&o, 300, "llama", "default", "");
    same_tokenizer(&o, &p);
    EXPECT(p, "hello world", TOK_BOS, "1 271 276");
    close_tok(o), close_tok(p);
    json.n = 0;
    llama_json(&json, "null", "{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\",\"prepend_scheme\":\"first\",\"split\":false}",
               "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\",\"prepend_scheme\":\"first\"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]}");
    o = from_json(json.at), p = again(&o, 0, "llama", "default", "behind a special token");
    EXPECT(p, "hello world", TOK_BOS, "1 271 276");
    close_tok(o), close_tok(p);
    sb_free(&json);
    o = from_json("{\"added_tokens\":[{\"id\":6,\"content\":\"<pad>\",\"special\":true}],\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"" MARK "a\",-1],[\"b\",-2],[\"ab\",-2.5],[\"a\",-3],[\"" MARK "\",-4]]},"
                  "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\",\"prepend_scheme\":\"always\"},\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\",\"prepend_scheme\":\"always\"}}");
    p = again(&o, 0, "t5", "default", "begins with a space");
    static const char *const few[] = { "ab", "abab ab b", "b  a", "abc", "" };
    for (size_t i = 0; i < COUNT(few); i++) same_ids(&o, &p, few[i], strlen(few[i]), 0);
    close_tok(o), close_tok(p);
}

/* What a text gets around it travels in tokenizer.json's own way. */
static void around_a_text(void **state)
{
    (void)state;
    static const tok_str tokens[] = { { "a", 1 }, { "b", 1 }, { "<s>", 3 }, { "</s>", 4 }, { "ab", 2 }, { "\"x", 2 } };
    static const int32_t types[] = { TOK_NORMAL, TOK_NORMAL, TOK_CONTROL, TOK_CONTROL, TOK_NORMAL, TOK_USER };
    static const tok_str join[] = { { "a b", 3 } };
    for (int i = 0; i < 4; i++) {
        tok_vocab v = { .model = "gpt2", .pre = "llama-bpe", .n = COUNT(tokens), .token = tokens, .type = types, .n_merges = 1, .merge = join, .bos = 2, .eos = i & 1 ? 3 : 2, .unk = -1, .pad = -1,
                        .add_bos = 1, .add_eos = i >> 1, .add_space_prefix = 0, .chat_template = "{{ '\\n' }}" };
        strbuf b = { 0 };
        diag d = { 0 };
        tokenizer *t;
        tok_info info;
        assert_string_equal(tok_vocab_file(&v, &b), "tokenizer.json");
        assert_ok(tok_from_json("file", b.at, b.n, &t, &d), d);
        tok_get(t, &info);
        assert_true(info.bos == 2 && info.add_bos && info.add_eos == (i >> 1) && (!info.add_eos || info.eos == v.eos));
        assert_string_equal(info.split, "llama3");
        opened o = wrap(t);
        EXPECT(o, "ab\"xa", 0, "4 5 0");
        close_tok(o);
        b.n = 0;
        tok_vocab_config(&v, &b);
        assert_non_null(strstr(b.at, "\"chat_template\": \"{{ '\\\\n' }}\""));
        sb_free(&b);
    }
}

/* Vocabularies of the SentencePiece kinds need no bytes: a run of characters without a token is then the one token for it, as SentencePiece has it. Some of the bytes
 * are no vocabulary. Without types, names and ids tell. */
static void without_bytes(void **state)
{
    (void)state;
    enum { FIRST = 3, N = FIRST + 256 + 4 };
    static const char *const word[] = { MARK, "a", "b", MARK "a" };
    static const struct {
        int bytes;           /* how many have a token */
        bool types, says_unk;
        const char *ids, *back; /* of "a Z\xc3\xa9b"; ids NULL: refused with `back` */
    } rows[] = { { 256, true, true, "262 259 93 198 172 261", "a Z\xc3\xa9" "b" }, { 256, false, true, "262 259 93 198 172 261", "a Z\xc3\xa9" "b" },
                 { 0, true, true, "6 3 0 5", "a b" },                               { 0, true, false, "6 3 0 5", "a b" },
                 { 0, false, true, "6 3 0 5", "a b" },                              { 0, false, false, NULL, "no token for the bytes 5a" },
                 { 200, true, true, NULL, "200 of 256 bytes have a token" } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        tok_str token[N] = { { "<unk>", 5 }, { "<s>", 3 }, { "</s>", 4 } };
        int32_t type[N] = { TOK_UNKNOWN, TOK_CONTROL, TOK_CONTROL };
        float score[N] = { 0 };
        char name[256][8];
        size_t n = FIRST;
        for (int b = 0; b < rows[i].bytes; b++, n++) {
            snprintf(name[b], sizeof name[b], "<0x%02X>", (unsigned)b);
            token[n] = (tok_str){ name[b], 6 }, type[n] = TOK_BYTE;
        }
        for (size_t k = 0; k < COUNT(word); k++, n++) token[n] = (tok_str){ word[k], strlen(word[k]) }, type[n] = TOK_NORMAL, score[n] = -(float)k;
        tok_vocab v = { .model = "llama", .n = n, .token = token, .score = score, .type = rows[i].types ? type : NULL, .bos = 1, .eos = 2, .unk = rows[i].says_unk ? 0 : -1, .pad = -1,
                        .add_bos = -1, .add_eos = -1, .add_space_prefix = -1 };
        diag d = { 0 };
        tokenizer *t;
        an_status st = tok_from_vocab("test", &v, &t, &d);
        if (!st) {
            opened o = wrap(t);
            tok_ids got = { 0 };
            strbuf b = { 0 };
            st = tok_encode(o.e, "a Z\xc3\xa9" "b", 6, 0, &got, &d);
            if (!st) {
                EXPECT(o, "a Z\xc3\xa9" "b", 0, rows[i].ids);
                assert_ok(tok_decode(o.t, got.at, got.n, 0, &b, &d), d);
                assert_string_equal(b.at, rows[i].back);
                EXPECT(o, "a<s>", TOK_SPECIAL, rows[i].bytes ? "262 1" : "6 1");
                opened p = again(&o, 0, "llama", "default", "");
                same_ids(&o, &p, "a Z\xc3\xa9" "b", 6, 0);
                close_tok(p);
            }
            sb_free(&b);
            tok_ids_free(&got);
            close_tok(o);
        }
        if (!st != !!rows[i].ids || (st && (st != AN_INPUT || !strstr(d.msg, rows[i].back)))) fail_msg("row %zu: status %d: %s", i, (int)st, d.msg);
    }
}

/* Of bytes one by one only those wait that may begin a character. */
static void held_back(void **state)
{
    (void)state;
    diag d = { 0 };
    strbuf json = { 0 };
    assert_ok(tok_train("", 0, &(tok_train_options){ .vocab = 257 }, &json, &d), d);
    opened o = from_json(json.at);
    for (int b = 0; b < 256; b++) {
        const char byte = (char)b;
        const bool waits = b >= 0xc2 && b <= 0xf4;
        tok_ids ids = { 0 };
        tok_stream s = { 0 };
        strbuf out = { 0 };
        assert_ok(tok_encode(o.e, &byte, 1, 0, &ids, &d), d);
        assert_int_equal(ids.n, 1);
        assert_ok(tok_stream_put(o.t, &s, ids.at[0], 0, &out, &d), d);
        if (out.n != !waits) fail_msg("0x%02x: %zu bytes were printed", (unsigned)b, out.n);
        tok_stream_end(&s, &out);
        assert_true(out.n == 1 && out.at[0] == byte);
        tok_ids_free(&ids);
        sb_free(&out);
    }
    close_tok(o);
    sb_free(&json);
}

/* ---- vocabularies of a few tokens ---- */

/* 0 <unk>, 1 <s>, 2 </s>, then these, which may be none of them bytes. */
static opened of_pieces(const char *model, const char *const *piece, const float *score, size_t n, tok_vocab more)
{
    tok_str token[40] = { { "<unk>", 5 }, { "<s>", 3 }, { "</s>", 4 } };
    int32_t type[40] = { TOK_UNKNOWN, TOK_CONTROL, TOK_CONTROL };
    float all[40] = { 0 };
    assert_true(n + 3 <= COUNT(token));
    for (size_t i = 0; i < n; i++) token[3 + i] = (tok_str){ piece[i], strlen(piece[i]) }, type[3 + i] = TOK_NORMAL, all[3 + i] = score[i];
    more.model = model, more.n = n + 3, more.token = token, more.type = type, more.score = all, more.bos = 1, more.eos = 2, more.pad = -1, more.add_bos = more.add_eos = -1;
    diag d = { 0 };
    tokenizer *t;
    assert_ok(tok_from_vocab("pieces", &more, &t, &d), d);
    return wrap(t);
}

/* Leftmost of the best, of however long a piece; of equal segmentations the one whose last token is longest; of equal tokens the first. */
static void best_of_several(void **state)
{
    (void)state;
    static const char *const runs[] = { "a", "aa", "aaaa", "aaaaa" };
    static const float run_score[] = { -3, -2, 0, -1 }; /* pairs make fours, fours and one make five before the next four is made */
    opened o = of_pieces("llama", runs, run_score, COUNT(runs), (tok_vocab){ 0 });
    EXPECT(o, "aaaaaa", 0, "6 3");
    EXPECT(o, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 0, "6 6 6 6 6 6 6 6 6 4"); /* 47 of them: a long piece */
    close_tok(o);
    static const char *const equal[] = { "a", "b", "ab", "c", "c", "abc" };
    static const float equal_score[] = { -1, -2, -3, -1, -1, -4.5f };
    o = of_pieces("t5", equal, equal_score, COUNT(equal), (tok_vocab){ 0 });
    EXPECT(o, "ab", 0, "5");
    EXPECT(o, "abc", 0, "5 6");
    EXPECT(o, "xx", 0, "0"); /* what is not known is one token for a run of it, also where the text begins with it */
    EXPECT(o, "xa\xc3\xa9\xc3\xa9" "a", 0, "0 3 0 3");
    close_tok(o);
    o = from_json("{\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"vocab\":{\"<unk>\":0,\"a\":1},\"merges\":[]}}");
    EXPECT(o, "a\xc3\xa9\xe4\xb8\xad" "a", 0, "1 0 0 1"); /* one for each character, unless runs are to be one */
    close_tok(o);
    static const char *const spaced[] = { "a", MARK, MARK "a" };
    static const float zero[3] = { 0 };
    o = of_pieces("llama", spaced, zero, 3, (tok_vocab){ .remove_extra_whitespaces = true });
    EXPECT(o, "  a   a  ", 0, "3 5");
    EXPECT(o, "a a", 0, "3 5");
    EXPECT(o, "   ", 0, "");
    close_tok(o);
}

static void put_le32(unsigned char *to, uint32_t u)
{
    for (int k = 0; k < 4; k++) to[k] = (unsigned char)(u >> (8 * k));
}

/* Maps of characters whose numbers point anywhere: refused, or they map nothing. */
static void hostile_maps(void **state)
{
    (void)state;
    enum { UNITS = 128, TEXT = 4, FAR = 0x7ffffe00, LEAF = 1 << 8, HERE = 1 << 10 };
    static const struct {
        const char *says; /* NULL: it loads */
        uint32_t bytes;   /* of the trie, as it says */
        size_t n;         /* of the map */
        uint32_t root, a, leaf; /* units: the root, that of 'a', and what 'a' ends in */
        const char *ids;  /* of "ab"; 3 a, 4 b, 5 X */
    } rows[] = {
        { NULL, 4 * UNITS, 4 + 4 * UNITS + TEXT, 0, 'a' | LEAF | HERE, 0, "5 4" },
        { NULL, 4 * UNITS, 4 + 4 * UNITS + TEXT, 0, 'a' | LEAF | HERE, TEXT, "4" }, /* the end of all: nothing */
        { NULL, 4 * UNITS, 4 + 4 * UNITS + TEXT, 0, 'a' | LEAF | HERE, TEXT + 1, "3 4" },
        { NULL, 4 * UNITS, 4 + 4 * UNITS + TEXT, 0, 'a' | LEAF | HERE, 0x7fffffff, "3 4" },
        { NULL, 4 * UNITS, 4 + 4 * UNITS + TEXT, FAR, 'a' | LEAF | HERE, 0, "3 4" },
        { NULL, 4 * UNITS, 4 + 4 * UNITS + TEXT, 0, 'a' | LEAF | FAR, 0, "3 4" },
        { NULL, 4 * UNITS, 4 + 4 * UNITS + TEXT, 0, 'b' | LEAF | HERE, 0, "3 4" },
        { "of 3 bytes", 4, 3, 0, 0, 0, NULL },
        { "says its trie has 3", 3, 4 + 4 * UNITS, 0, 0, 0, NULL },
        { "says its trie has 0", 0, 4 + 4 * UNITS, 0, 0, 0, NULL },
        { "says its trie has 516", 4 * UNITS + 4, 4 + 4 * UNITS, 0, 0, 0, NULL },
        { "says its trie has 4294967292", 0xfffffffc, 4 + 4 * UNITS, 0, 0, 0, NULL },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        unsigned char map[4 + 4 * UNITS + TEXT] = { 0 };
        put_le32(map, rows[i].bytes);
        put_le32(map + 4, rows[i].root), put_le32(map + 4 + 4 * 'a', rows[i].a), put_le32(map + 4 + 4 * ('a' ^ 1), rows[i].leaf);
        memcpy(map + 4 + 4 * UNITS, "X", 2);
        const tok_str token[] = { { "<unk>", 5 }, { "<s>", 3 }, { "</s>", 4 }, { "a", 1 }, { "b", 1 }, { "X", 1 } };
        const int32_t type[] = { TOK_UNKNOWN, TOK_CONTROL, TOK_CONTROL, TOK_NORMAL, TOK_NORMAL, TOK_NORMAL };
        const float score[COUNT(token)] = { 0 };
        const tok_vocab v = { .model = "llama", .n = COUNT(token), .token = token, .type = type, .score = score, .bos = 1, .eos = 2, .pad = -1, .charsmap = map, .n_charsmap = rows[i].n };
        diag d = { 0 };
        tokenizer *t;
        const an_status st = tok_from_vocab("map", &v, &t, &d);
        if (st != (rows[i].says ? AN_INPUT : AN_OK) || (st && !strstr(d.msg, rows[i].says))) fail_msg("row %zu: status %d, \"%s\"", i, (int)st, d.msg);
        if (st) continue;
        opened o = wrap(t);
        EXPECT(o, "ab", 0, rows[i].ids);
        close_tok(o);
    }
}

/* What no such vocabulary can say is refused by name. */
static void not_sayable(void **state)
{
    (void)state;
    static const struct { const char *json, *want; } rows[] = {
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]}}", "neither bytes nor an unknown token" },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]},\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Punctuation\"},{\"type\":\"ByteLevel\"}]}}",
          "no value of tokenizer.ggml.pre" },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]},\"normalizer\":{\"type\":\"Strip\",\"strip_left\":true},\"pre_tokenizer\":{\"type\":\"ByteLevel\"}}", "Strip" },
        { "{\"added_tokens\":[{\"id\":2,\"content\":\"ab\",\"special\":true}],\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]},\"pre_tokenizer\":{\"type\":\"ByteLevel\"}}",
          "merge 0 uses token 2" },
        { "{\"model\":{\"type\":\"BPE\",\"unk_token\":\"u\",\"vocab\":{\"u\":0,\"a\":1,\"b\":2,\"ab\":3,\"aab\":4,\"aa\":5},\"merges\":[\"a b\",\"a ab\"]}}", "token 4 could be made of tokens 5 and 2" },
        { "{\"model\":{\"type\":\"BPE\",\"unk_token\":\"u\",\"vocab\":{\"u\":0,\"a\":1,\"b\":2,\"ab\":3,\"aab\":4,\"aa\":5},\"merges\":[\"a b\",\"a ab\",\"a a\",\"aa b\"]}}", "merges of token 4 do not stand together" },
        { "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"u\",0],[\"a b\",-1]]},\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"}}", "cuts text before it is merged" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        opened o = from_json(rows[i].json);
        arena mem = { 0 };
        tok_vocab v;
        const char *lost;
        diag d = { 0 };
        an_status st = tok_to_vocab(o.t, 0, &mem, &v, &lost, &d);
        if (st != AN_INPUT || !strstr(d.msg, rows[i].want)) fail_msg("row %zu: status %d: %s", i, (int)st, d.msg);
        arena_free(&mem);
        close_tok(o);
    }
}

/* The names of ways to cut text: llama.cpp's default is four steps, each inside what the one before left. */
static void pre_names(void **state)
{
    (void)state;
    static const struct { const char *pre, *text, *cuts; } rows[] = {
        { "default", "Hello 12345 (world)!! it's", "Hello| |123|45| |(|world|)!!| it|'|s" },
        { "default", "a<b $5,000.00\n\n  x_y~", "a|<|b| |$|5|,|000|.|00|\n\n | x|_|y|~" },
        { "default", "\xd9\xa1\xd9\xa2\xd9\xa3\xd9\xa4 \xe2\x82\xac" "9", "\xd9\xa1\xd9\xa2\xd9\xa3\xd9\xa4| \xe2\x82\xac|9" }, /* three digits are ASCII ones; a currency sign but $ is no symbol of the first step */
        { "gpt-2", "Hello 12345 (world)!! it's", "Hello| 12345| (|world|)!!| it|'s" },
        { "llama-bpe", "Hello 12345 (world)!! it's", "Hello| |123|45| (|world|)!!| it|'s" },
        { "smollm", "Hello 123 it's", "Hello| |1|2|3| it|'s" },
    };
    static const tok_str tokens[] = { { "a", 1 }, { "b", 1 } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        tok_vocab v = { .model = "gpt2", .pre = rows[i].pre, .n = 2, .token = tokens, .bos = -1, .eos = -1, .unk = -1, .pad = -1, .add_bos = -1, .add_eos = -1, .add_space_prefix = -1 };
        diag d = { 0 };
        tokenizer *t;
        assert_ok(tok_from_vocab("test", &v, &t, &d), d);
        opened o = wrap(t);
        tok_cuts c = { 0 };
        strbuf b = { 0 };
        assert_ok(tok_cut(o.e, rows[i].text, strlen(rows[i].text), &c, &d), d);
        for (size_t k = 0, from = 0; k < c.n; from = c.at[k++]) sb_printf(&b, "%s%.*s", k ? "|" : "", (int)(c.at[k] - from), rows[i].text + from);
        assert_string_equal(b.at, rows[i].cuts);
        sb_free(&b);
        tok_cuts_free(&c);
        close_tok(o);
    }
    tok_vocab v = { .model = "gpt2", .pre = "nobody", .n = 2, .token = tokens, .bos = -1, .eos = -1, .unk = -1, .pad = -1 };
    diag d = { 0 };
    tokenizer *t;
    assert_int_equal(tok_from_vocab("test", &v, &t, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "tokenizer.ggml.pre is \"nobody\""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_like), cmocka_unit_test(refused_by_name), cmocka_unit_test(spellings), cmocka_unit_test(behaviors),   cmocka_unit_test(added_tokens), cmocka_unit_test(unigram_json), cmocka_unit_test(composes),
        cmocka_unit_test(sentencepiece), cmocka_unit_test(llama2c_bin),  cmocka_unit_test(long_texts), cmocka_unit_test(trains),       cmocka_unit_test(bad_ids_and_flags),
        cmocka_unit_test(vocabularies_out), cmocka_unit_test(around_a_text), cmocka_unit_test(without_bytes), cmocka_unit_test(held_back), cmocka_unit_test(best_of_several), cmocka_unit_test(hostile_maps), cmocka_unit_test(not_sayable), cmocka_unit_test(pre_names),
    };
    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
