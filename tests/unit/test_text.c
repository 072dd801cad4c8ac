/* test_text.c: text to ids and back, whatever the text: long and uniform ones, bytes that are no character, ids that
 * are none; and vocabularies learnt from a text. */
#include "text_t.h"

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

static void trains(void **state)
{
    (void)state;
    static const char text[] =
        "low low low low low lower lower newest newest newest newest newest newest widest widest widest";
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
    tok_vocab vocab = { .model = "gpt2", .n = 2, .token = (tok_str[]){ { "a", 1 }, { "b\xff", 2 } }, .bos = -1,
                        .eos = -1, .unk = -1, .pad = -1, .add_bos = -1, .add_eos = -1, .add_space_prefix = -1 };
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_texts),
        cmocka_unit_test(trains),
        cmocka_unit_test(bad_ids_and_flags),
        cmocka_unit_test(held_back),
    };
    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
