/* test_text_model.c: tokenizer.model and tokenizer.bin: what they mean, cut anywhere, and with fields that lie. */
#include "text_t.h"

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
        if (!tok_from_model("toy.model", copy, more.n, &t, &d) != odd[i].fine)
            fail_msg("row %zu: status %d, \"%s\"", i, (int)d.st, d.msg);
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

static void llama2c_bin(void **state)
{
    (void)state;
    strbuf b = { 0 };
    diag d = { 0 };
    tokenizer *t;
    static const struct {
        const char *s;
        float score;
    } more[] = { { " ", -1 }, { "a", -2 }, { "b", -3 }, { " a", -0.5f }, { "ab", -1.5f } };
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
        if (!tok_from_bin("toy.bin", copy, n, &t, &d) != fine)
            fail_msg("%zu bytes: status %d: %s", n, (int)d.st, d.msg);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sentencepiece),
        cmocka_unit_test(llama2c_bin),
    };
    return cmocka_run_group_tests_name("text_model", tests, NULL, NULL);
}
