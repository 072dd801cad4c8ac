/* text_t.h: tokenizers made in a test, and what they make of a text.
 *   opened o = from_json(json);            or wrap(t), of a tokenizer from anywhere
 *   EXPECT(o, "text", flags, "1 2 3");     SAME(o, "text", flags);      there and back
 *   close_tok(o); */
#ifndef TESTS_TEXT_T_H
#define TESTS_TEXT_T_H

#include "t.h"
#include "text/text.h"

typedef struct {
    tokenizer *t;
    tok_encoder *e;
} opened;

static inline opened wrap(tokenizer *t)
{
    diag d = { 0 };
    opened o = { t, NULL };
    assert_ok(tok_encoder_new(t, &o.e, &d), d);
    return o;
}

static inline opened from_json(const char *json)
{
    diag d = { 0 };
    tokenizer *t;
    assert_ok(tok_from_json("test", json, strlen(json), &t, &d), d);
    return wrap(t);
}

static inline void close_tok(opened o)
{
    tok_encoder_free(o.e);
    tok_close(o.t);
}

static inline void expect(opened o, const char *text, size_t n, unsigned flags, const char *ids)
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

static inline void there_and_back(opened o, const char *text, size_t n, unsigned flags)
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

#define MARK "\xe2\x96\x81"

/* tokenizer.json of a Llama-like BPE with byte fallback. ids: 0 <unk>, 1 <s>, 2 </s>, 3 … 258 bytes, then its
 * pieces. */
static inline void llama_json(strbuf *b, const char *normalizer, const char *pre, const char *decoder)
{
    static const char *const pieces[] = { MARK, "h",      "e",        "l",          "o",      "w",          "r",
                                          "d",  MARK "h", "ll",       MARK "he",    "llo",    MARK "hello", MARK "w",
                                          "or", "ld",     MARK "wor", MARK "world", MARK MARK };
    static const char *const merges[] = { MARK " h", "l l", MARK "h e",  "ll o",        MARK "he llo", MARK " w",
                                          "o r",     "l d", MARK "w or", MARK "wor ld", MARK " " MARK };
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

/* ---- tokenizer.model ---- */

static inline void put_varint(strbuf *b, uint64_t v)
{
    for (; v > 127; v >>= 7) sb_putc(b, (char)(v | 128));
    sb_putc(b, (char)v);
}

static inline void put_bytes(strbuf *b, unsigned field, const char *s, size_t n)
{
    put_varint(b, field << 3 | 2);
    put_varint(b, n);
    sb_putn(b, s, n);
}

static inline void put_piece(strbuf *b, const char *text, float score, int type)
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
static inline void model_proto(strbuf *b, int type, bool bytes)
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

#endif
