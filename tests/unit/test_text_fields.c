/* test_text_fields.c: vocabularies field by field: what tokenizer.bin, the GGUF form and SentencePiece's message
 * mean by each, and what is refused with which words. */
#include <math.h>

#include "text_t.h"

static void refused(an_status st, const diag *d, const char *want, size_t row)
{
    if (st != AN_INPUT || !strstr(d->msg, want) || !strstr(d->msg, "toy"))
        fail_msg("row %zu: status %d, \"%s\" lacks \"%s\"", row, (int)st, d->msg, want);
}

/* ---- tokenizer.bin ---- */

typedef struct {
    size_t id;
    const char *s; /* instead of the usual one */
    size_t n;
} other;

/* 259 tokens and, behind them, " ", "a", "b", " a", "<mark>a" and one of no bytes. */
static void make_bin(strbuf *b, const other *o)
{
    static const char *const more[] = { " ", "a", "b", " a", MARK "a", "" };
    sb_putn(b, "\7\0\0\0", 4);
    for (unsigned i = 0; i < 259 + COUNT(more); i++) {
        char s[16];
        if (i < 3) snprintf(s, sizeof s, "%s", ((const char *[]){ "<unk>", "\n<s>\n", "\n</s>\n" })[i]);
        else if (i < 259) snprintf(s, sizeof s, "<0x%02X>", i - 3);
        else snprintf(s, sizeof s, "%s", more[i - 259]);
        float score = -(float)i;
        uint32_t n = (uint32_t)strlen(s);
        if (o && o->id == i) n = (uint32_t)o->n;
        sb_putn(b, (char *)&score, 4);
        sb_putn(b, (char *)&n, 4);
        sb_putn(b, o && o->id == i ? o->s : s, n);
    }
}

static void bin(void **state)
{
    (void)state;
    strbuf b = { 0 };
    diag d = { 0 };
    tokenizer *t;
    tok_info info;
    make_bin(&b, NULL);
    assert_ok(tok_from_bin("toy.bin", b.at, b.n, &t, &d), d); /* a token of no bytes ends it */
    tok_get(t, &info);
    assert_true(info.n == 265 && info.unk == 0 && info.bos == 1 && info.eos == 2 && info.pad == -1 && info.add_bos &&
                !info.add_eos && info.byte_fallback);
    static const tok_type types[][2] = { { 0, TOK_UNKNOWN }, { 1, TOK_CONTROL }, { 2, TOK_CONTROL },
                                         { 3, TOK_BYTE },    { 258, TOK_BYTE },  { 259, TOK_NORMAL } };
    for (size_t i = 0; i < COUNT(types); i++) assert_int_equal(tok_type_of(t, types[i][0]), types[i][1]);
    for (uint32_t i = 0; i < 256; i++)
        assert_true(tok_text(t, 3 + i).n == 1 && (unsigned char)tok_text(t, 3 + i).at[0] == i);
    opened o = wrap(t);
    EXPECT(o, "a", 0, "262");
    EXPECT(o, "a" MARK "a", 0, "262 263"); /* a mark in such a file is a mark, and no space */
    SAME(o, "a" MARK "a " MARK, 0);
    close_tok(o);
    static const struct {
        other o;
        const char *want;
    } rows[] = {
        { { 3, "<0x01>", 6 }, "token 3 is \"<0x01>\"; <0x00> is wanted there" },
        { { 4, "<0x1>", 5 }, "token 4 is \"<0x1>\"; <0x01> is wanted there" },
        { { 258, "<0xFE>", 6 }, "token 258 is \"<0xFE>\"; <0xFF> is wanted there" },
        { { 100, "xyzxyzxyzxyzxyzxyzxyzxyzxyz", 27 }, "token 100 is \"xyzxyzxyzxyzxyzxyzxy\"; <0x61> is wanted there" },
        { { 260, "\xff", 1 }, "token 260 is not UTF-8: byte 0 of 1 is 0xff" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        b.n = 0, d = (diag){ 0 };
        make_bin(&b, &rows[i].o);
        refused(tok_from_bin("toy.bin", b.at, b.n, &t, &d), &d, rows[i].want, i);
    }
    char wide[70000]; /* lengths of more than one byte */
    memset(wide, 'q', sizeof wide);
    static const size_t lengths[] = { 300, 70000 };
    for (size_t i = 0; i < COUNT(lengths); i++) {
        b.n = 0, d = (diag){ 0 };
        make_bin(&b, &(other){ 259, wide, lengths[i] });
        an_status st = tok_from_bin("toy.bin", b.at, b.n, &t, &d);
        char want[40];
        snprintf(want, sizeof want, "piece 259 is %zu bytes long", lengths[i]);
        if (st) refused(st, &d, want, i); /* the longest that is taken is another matter */
        else assert_int_equal(tok_find(t, wide, lengths[i]), 259), tok_close(t);
    }
    b.n = 0;
    make_bin(&b, NULL);
    const struct {
        size_t n; /* of its bytes */
        const char *want;
    } cuts[] = { { 3, "3 bytes are no tokenizer.bin" },
                 { 4, "0 tokens" },
                 { b.n - 1, "token 264 at byte" },
                 { b.n - 1, "is cut short: 7 bytes left" },
                 { b.n - 9, "says 4 bytes, 3 are left" } };
    for (size_t i = 0; i < COUNT(cuts); i++) {
        d = (diag){ 0 };
        refused(tok_from_bin("toy.bin", b.at, cuts[i].n, &t, &d), &d, cuts[i].want, i);
    }
    sb_free(&b);
}

/* ---- as GGUF has them ---- */

static tok_str text(const char *s) { return (tok_str){ s, strlen(s) }; }
#define NO_IDS .bos = -1, .eos = -1, .unk = -1, .pad = -1, .add_bos = -1, .add_eos = -1, .add_space_prefix = -1

static void merges(void **state)
{
    (void)state;
    tok_str token[] = { text("a"), text("b"), text("ab"), text("\xc4\xa0"), text("\xc4\xa0" "a"), text("c d") };
    static const struct {
        const char *s, *want; /* NULL: fine */
    } rows[] = {
        { "a b", NULL }, { "\xc4\xa0 a", NULL }, { "", "merge 1 is \"\"; \"left right\" is wanted" }, { " ", "merge 1 is \" \"" }, { "a", "merge 1 is \"a\"" }, { "ab", "merge 1 is \"ab\"" },
        { "a ", "merge 1 uses \"\"" }, { "ab ", "merge 1 uses \"\"" }, { " b", "merge 1 is \" b\"" }, { "a c", "merge 1 uses \"c\"" }, { "x a", "merge 1 uses \"x\"" }, { "b a", "merge 1 gives \"ba\"" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        tok_str merge[] = { text("a b"), text(rows[i].s) };
        tok_vocab v = { .model = "gpt2", .n = COUNT(token), .token = token, .n_merges = 2, .merge = merge, NO_IDS };
        diag d = { 0 };
        tokenizer *t;
        an_status st = tok_from_vocab("toy", &v, &t, &d);
        if (rows[i].want) {
            refused(st, &d, rows[i].want, i);
            continue;
        }
        assert_ok(st, d);
        opened o = wrap(t);
        EXPECT(o, "ab", 0, "2");
        EXPECT(o, " a", 0, i ? "4" : "3 0");
        close_tok(o);
    }
    for (int space = -1; space < 2; space++) { /* one in front, unless it is there, and only where the file says so */
        tok_str merge[] = { text("\xc4\xa0 a") };
        tok_vocab v = { .model = "gpt2", .n = COUNT(token), .token = token, .n_merges = 1, .merge = merge, NO_IDS };
        diag d = { 0 };
        tokenizer *t;
        tok_info info;
        v.add_space_prefix = space, v.chat_template = space ? "{{ x }}" : NULL;
        assert_ok(tok_from_vocab("toy", &v, &t, &d), d);
        tok_get(t, &info);
        assert_true(space ? info.chat_template && !strcmp(info.chat_template, "{{ x }}") : !info.chat_template);
        opened o = wrap(t);
        expect(o, "a", 1, 0, space == 1 ? "4" : "0");
        expect(o, " a", 2, 0, "4");
        close_tok(o);
    }
}

/* 256 bytes behind <unk>, <s>, </s> and <pad>, then a mark, "a" and both. */
enum { N = 263, FIRST_BYTE = 4 };
static void many(tok_str *token, float *score, int32_t *type)
{
    static char name[256][8];
    static const char *const first[] = { "<unk>", "<s>", "</s>", "<pad>" }, *const last[] = { MARK, "a", MARK "a" };
    for (int i = 0; i < 4; i++) token[i] = text(first[i]), type[i] = i ? TOK_CONTROL : TOK_UNKNOWN;
    for (int i = 0; i < 256; i++) {
        snprintf(name[i], sizeof name[i], "<0x%02X>", (unsigned)i);
        token[FIRST_BYTE + i] = text(name[i]), type[FIRST_BYTE + i] = TOK_BYTE;
    }
    for (int i = 0; i < 3; i++) token[260 + i] = text(last[i]), type[260 + i] = TOK_NORMAL;
    for (int i = 0; i < N; i++) score[i] = -(float)(N - i);
}

/* What the file does not say: by its kind, and types by ids and spelling. */
static void unsaid(void **state)
{
    (void)state;
    static tok_str token[N];
    static float score[N];
    static int32_t type[N];
    many(token, score, type);
    static const struct {
        const char *model;
        bool typed;
        int bos, eos, space; /* flags */
        bool add_bos, add_eos, bytes;
        const char *a; /* ids of "a" */
    } rows[] = {
        { "llama", true, -1, -1, -1, true, false, true, "262" },  { "llama", false, -1, -1, -1, true, false, true, "262" }, { "llama", true, 0, 1, 0, false, true, true, "261" },
        { "llama", true, 1, 0, 1, true, false, true, "262" },     { "t5", true, -1, -1, -1, false, true, true, "262" },     { "t5", false, 1, 0, 0, true, false, true, "261" },
        { "gpt2", false, -1, -1, -1, false, false, false, "261" },  { "gpt2", false, 1, 1, -1, true, true, false, "261" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        bool gpt2 = !strcmp(rows[i].model, "gpt2");
        tok_vocab v = { .model = rows[i].model, .n = N, .token = token, .score = gpt2 ? NULL : score,
                        .type = rows[i].typed ? type : NULL, .bos = 1, .eos = 2, .unk = rows[i].typed ? -1 : 0,
                        .pad = 3, .add_bos = rows[i].bos, .add_eos = rows[i].eos, .add_space_prefix = rows[i].space };
        diag d = { 0 };
        tokenizer *t;
        tok_info info;
        assert_ok(tok_from_vocab("toy", &v, &t, &d), d);
        tok_get(t, &info);
        if (info.add_bos != rows[i].add_bos || info.add_eos != rows[i].add_eos || info.byte_fallback != rows[i].bytes)
            fail_msg("row %zu: BOS %d, EOS %d, bytes %d", i, info.add_bos, info.add_eos, info.byte_fallback);
        /* the one of that type is the unknown token */
        assert_true(info.unk == 0 && info.bos == 1 && info.eos == 2 && info.pad == 3);
        for (uint32_t k = 0; k < N; k++) {
            tok_type want = k == 0             ? TOK_UNKNOWN
                            : k < FIRST_BYTE   ? TOK_CONTROL
                            : k < 260 && !gpt2 ? TOK_BYTE
                                               : TOK_NORMAL;
            if (tok_type_of(t, k) != want) fail_msg("row %zu: token %u has type %d", i, k, (int)tok_type_of(t, k));
        }
        opened o = wrap(t);
        expect(o, "a", 1, 0, rows[i].a);
        close_tok(o);
    }
}

static void types(void **state)
{
    (void)state;
    static tok_str token[N];
    static float score[N];
    static int32_t type[N];
    tok_vocab v = { .model = "llama", .n = N, .token = token, .score = score, .type = type, .bos = 1, .eos = 2,
                    .unk = 0, .pad = -1, .add_bos = -1, .add_eos = -1, .add_space_prefix = -1 };
    diag d = { 0 };
    tokenizer *t;
    tok_info info;
    static const struct {
        size_t id;
        int32_t type;
        tok_type as;
        const char *want;
    } rows[] = {
        { 261, 0, TOK_UNUSED, NULL }, { 261, TOK_UNUSED, TOK_UNUSED, NULL }, { 261, TOK_USER, TOK_USER, NULL }, { 261, TOK_BYTE, 0, "token 261 \"a\" is said to be a byte" },
        { 261, 7, 0, "token 261 has type 7; 0 to 6 are known" }, { 261, -1, 0, "token 261 has type -1" },
        { FIRST_BYTE, TOK_NORMAL, 0, "255 of 256 bytes have a token <0xNN>" }, { FIRST_BYTE + 255, TOK_UNUSED, 0, "255 of 256 bytes" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        many(token, score, type);
        type[rows[i].id] = rows[i].type;
        d = (diag){ 0 };
        an_status st = tok_from_vocab("toy", &v, &t, &d);
        if (rows[i].want) {
            refused(st, &d, rows[i].want, i);
            continue;
        }
        assert_ok(st, d);
        assert_int_equal(tok_type_of(t, (uint32_t)rows[i].id), rows[i].as);
        tok_close(t);
    }
    for (int kept = 0; kept < 2; kept++) { /* one byte, or none */
        many(token, score, type);
        for (int k = kept; k < 256; k++) type[FIRST_BYTE + k] = TOK_NORMAL;
        d = (diag){ 0 };
        an_status st = tok_from_vocab("toy", &v, &t, &d);
        if (kept) {
            refused(st, &d, "1 of 256 bytes", 0);
            continue;
        }
        assert_ok(st, d);
        tok_get(t, &info);
        assert_false(info.byte_fallback);
        tok_close(t);
    }
    many(token, score, type);
    type[262] = TOK_UNKNOWN, d = (diag){ 0 }; /* the id that is named counts, not the last of that type */
    assert_ok(tok_from_vocab("toy", &v, &t, &d), d);
    tok_get(t, &info);
    assert_int_equal(info.unk, 0);
    tok_close(t);
    many(token, score, type);
    static const struct { const char *model, *pre, *want; bool scores; } kinds[] = {
        { "bert", NULL, "tokenizer.ggml.model is \"bert\"", true }, { "llama", NULL, "a llama vocabulary without tokenizer.ggml.scores", false }, { "t5", NULL, "a t5 vocabulary without", false },
        { "gpt2", "nobody's", "tokenizer.ggml.pre is \"nobody's\"", false },
    };
    for (size_t i = 0; i < COUNT(kinds); i++) {
        tok_vocab w = v;
        w.model = kinds[i].model, w.pre = kinds[i].pre, w.score = kinds[i].scores ? score : NULL, w.type = NULL;
        d = (diag){ 0 };
        refused(tok_from_vocab("toy", &w, &t, &d), &d, kinds[i].want, i);
    }
    score[5] = NAN, d = (diag){ 0 };
    refused(tok_from_vocab("toy", &v, &t, &d), &d, "token 5 has a score that is not finite", 0);
    score[5] = 0, token[261] = (tok_str){ "\xc3", 1 }, d = (diag){ 0 };
    refused(tok_from_vocab("toy", &v, &t, &d), &d, "token 261 is not UTF-8", 0);
}

/* ---- SentencePiece ---- */

static void put_number(strbuf *b, unsigned field, int64_t x) { put_varint(b, field << 3), put_varint(b, (uint64_t)x); }

typedef struct {
    unsigned trainer, normalizer; /* a field of either; 0: none */
    int64_t x;
} setting;

static void make_model(strbuf *b, const setting *s, size_t n)
{
    strbuf t = { 0 }, m = { 0 };
    sb_puts(&t, ""), sb_puts(&m, "");
    b->n = 0;
    put_piece(b, "<unk>", 0, TOK_UNKNOWN), put_piece(b, "<1>", 0, TOK_CONTROL), put_piece(b, "<2>", 0, TOK_CONTROL),
        put_piece(b, "<pad>", 0, TOK_CONTROL);
    put_piece(b, MARK, -4, TOK_NORMAL), put_piece(b, "a", -3, TOK_NORMAL), put_piece(b, MARK "a", -1, TOK_NORMAL),
        put_piece(b, MARK MARK, -5, TOK_NORMAL);
    put_varint(b, 1 << 3), put_varint(b, 77); /* a number where a piece should be is not one */
    put_varint(b, 1 << 3 | 5), sb_putn(b, "1234", 4);
    for (size_t i = 0; i < n; i++) {
        if (s[i].trainer) put_number(&t, s[i].trainer, s[i].x);
        if (s[i].normalizer) put_number(&m, s[i].normalizer, s[i].x);
    }
    put_varint(&t, 41 << 3 | 5), sb_putn(&t, "\2\0\0\0", 4); /* nor is four bytes the number of BOS */
    put_varint(&m, 3 << 3 | 5), sb_putn(&m, "\0\0\0\0", 4);
    put_bytes(b, 2, t.at, t.n), put_bytes(b, 3, m.at, m.n);
    sb_free(&t), sb_free(&m);
}

static void model_settings(void **state)
{
    (void)state;
    static const struct {
        setting s[3];
        int64_t unk, bos, eos, pad;
        const char *ids; /* of "a  a" */
        const char *want; /* refused */
    } rows[] = {
        { { { 3, 0, 2 } }, 0, 1, 2, -1, "6 6", NULL },                       /* all three of the normalizer are yes */
        { { { 3, 0, 2 }, { 0, 4, 0 } }, 0, 1, 2, -1, "6 4 6", NULL },        /* spaces stay */
        { { { 3, 0, 2 }, { 0, 3, 0 } }, 0, 1, 2, -1, "5 6", NULL },          /* no space in front */
        { { { 0, 0, 0 } }, 0, 1, 2, -1, "6 6", NULL },                       /* unigram when nothing is said */
        { { { 43, 0, 3 }, { 41, 0, -1 } }, 0, -1, 2, 3, "6 6", NULL },
        { { { 43, 0, 8 }, { 42, 0, 8 }, { 41, 0, 9 } }, 0, -1, -1, -1, "6 6", NULL }, /* past the end */
        { { { 43, 0, 7 }, { 42, 0, 7 }, { 41, 0, 7 } }, 0, 7, 7, 7, "6 6", NULL },
        { { { 40, 0, 8 }, { 42, 0, -2 }, { 3, 0, 2 } }, -1, 1, -1, -1, "6 6", NULL },
        { { { 40, 0, 7 } }, 7, 1, 2, -1, "6 6", NULL },
        { { { 24, 0, 1 } }, 0, 0, 0, 0, NULL, "treat_whitespace_as_suffix is not supported" },
        { { { 0, 5, 0 } }, 0, 0, 0, 0, NULL, "escape_whitespaces = false is not supported" },
        { { { 3, 0, 0 } }, 0, 0, 0, 0, NULL, "type 0 (unset)" }, { { { 3, 0, 3 } }, 0, 0, 0, 0, NULL, "type 3 (word)" }, { { { 3, 0, 4 } }, 0, 0, 0, 0, NULL, "type 4 (char)" },
        { { { 3, 0, 5 } }, 0, 0, 0, 0, NULL, "type 5 (unknown)" }, { { { 3, 0, -1 } }, 0, 0, 0, 0, NULL, "type -1 (unknown)" },
        { { { 35, 0, 1 } }, 0, 0, 0, 0, NULL, "not every byte has a token" },
    };
    strbuf b = { 0 };
    for (size_t i = 0; i < COUNT(rows); i++) {
        diag d = { 0 };
        tokenizer *t;
        tok_info info;
        make_model(&b, rows[i].s, 3);
        an_status st = tok_from_model("toy.model", b.at, b.n, &t, &d);
        if (rows[i].want) {
            refused(st, &d, rows[i].want, i);
            continue;
        }
        if (st) fail_msg("row %zu: %s", i, d.msg);
        tok_get(t, &info);
        if (info.n != 8 || info.unk != rows[i].unk || info.bos != rows[i].bos || info.eos != rows[i].eos ||
            info.pad != rows[i].pad || info.add_bos != (rows[i].bos >= 0))
            fail_msg("row %zu: %u pieces, unk %lld, bos %lld, eos %lld, pad %lld", i, info.n, (long long)info.unk,
                     (long long)info.bos, (long long)info.eos, (long long)info.pad);
        bool bpe = false;
        for (int k = 0; k < 3; k++) bpe |= rows[i].s[k].trainer == 3 && rows[i].s[k].x == 2;
        assert_string_equal(info.model, bpe ? "SentencePiece BPE" : "SentencePiece unigram");
        opened o = wrap(t);
        expect(o, "a  a", 4, 0, rows[i].ids);
        close_tok(o);
    }
    static const struct {
        int type;
        const char *want;
    } pieces[] = { { 0, "piece 8 has type 0; 1 to 6 are known" },
                   { 7, "piece 8 has type 7" },
                   { TOK_BYTE, "token 8 \"z\" is said to be a byte" } };
    for (size_t i = 0; i < COUNT(pieces); i++) {
        diag d = { 0 };
        tokenizer *t;
        make_model(&b, NULL, 0);
        put_piece(&b, "z", 0, pieces[i].type);
        refused(tok_from_model("toy.model", b.at, b.n, &t, &d), &d, pieces[i].want, i);
    }
    /* of a piece: its text as a number, its score as one, its type as four bytes, and other fields: not read as what
     * they are not */
    for (int wire = 0; wire < 6; wire++) {
        diag d = { 0 };
        tokenizer *t;
        strbuf p = { 0 };
        make_model(&b, NULL, 0);
        put_bytes(&p, 1, "z", 1);
        if (wire == 0) put_number(&p, 1, 3);
        if (wire == 1) put_number(&p, 2, 0x7f800000);
        if (wire == 2) put_varint(&p, 3 << 3 | 5), sb_putn(&p, "\7\0\0\0", 4);
        if (wire == 3) put_bytes(&p, 7, "later", 5);
        if (wire == 4) put_number(&p, 9, 7);
        if (wire == 5) put_varint(&p, 9 << 3 | 5), sb_putn(&p, "\0\0\x80\x7f", 4);
        put_bytes(&b, 1, p.at, p.n);
        assert_ok(tok_from_model("toy.model", b.at, b.n, &t, &d), d);
        assert_int_equal(tok_find(t, "z", 1), 8);
        tok_close(t);
        sb_free(&p);
    }
    sb_free(&b);
}

/* A message cut anywhere but between two fields is none, nor is one whose last field says more than is there. */
static void cut_models(void **state)
{
    (void)state;
    strbuf b = { 0 };
    make_model(&b, (const setting[]){ { 3, 0, 2 } }, 1);
    size_t next = 0;
    for (size_t n = 0; n <= b.n; n++) {
        bool between = n == next;
        if (between && n < b.n) { /* where this field ends: tags are one byte here, lengths one or two */
            const unsigned char *f = (const unsigned char *)b.at + n;
            int wire = f[0] & 7;
            if (wire == 2)
                next = n + 1 + (f[1] < 128 ? 1 + (size_t)f[1] : 2 + (size_t)(f[1] & 127) + 128 * (size_t)f[2]);
            else next = n + (wire == 0 ? 2 : 5);
        }
        char *copy = malloc(n + 1);
        diag d = { 0 };
        tokenizer *t = NULL;
        assert_non_null(copy);
        memcpy(copy, b.at, n);
        an_status st = tok_from_model("toy.model", copy, n, &t, &d);
        if (!between && (st != AN_INPUT || !strstr(d.msg, "malformed")))
            fail_msg("%zu of %zu bytes: status %d: %s", n, b.n, (int)st, d.msg);
        if (!st) tok_close(t);
        free(copy);
    }
    assert_int_equal(next, b.n);
    static const struct { const char *at; size_t n; } tails[] = { { "\xfd\x06\x08\x01", 4 }, { "\xf9\x06\x08\x01\x08\x01\x08\x01", 8 }, { "\xf8", 1 }, { "\xf8\x06", 2 }, { "\xf8\x06\x80", 3 }, { "\xfa\x06\x80", 3 } };
    for (size_t i = 0; i < COUNT(tails); i++) {
        strbuf more = { 0 };
        diag d = { 0 };
        tokenizer *t;
        sb_putn(&more, b.at, b.n), sb_putn(&more, tails[i].at, tails[i].n);
        refused(tok_from_model("toy.model", more.at, more.n, &t, &d), &d, "malformed", i);
        sb_free(&more);
    }
    sb_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bin),   cmocka_unit_test(merges),         cmocka_unit_test(unsaid),
        cmocka_unit_test(types), cmocka_unit_test(model_settings), cmocka_unit_test(cut_models)
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
