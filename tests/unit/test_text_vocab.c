/* test_text_vocab.c: vocabularies as GGUF has them: tokenizers out and in again, what cannot be said in one, and
 * those of a few tokens. */
#include "text_t.h"

/* ---- out, and in again ---- */

static void same_ids(const opened *a, const opened *b, const char *text, size_t n, unsigned flags)
{
    diag d = { 0 };
    tok_ids x = { 0 }, y = { 0 };
    assert_ok(tok_encode(a->e, text, n, flags, &x, &d), d);
    assert_ok(tok_encode(b->e, text, n, flags, &y, &d), d);
    if (x.n != y.n || (x.n && memcmp(x.at, y.at, x.n * sizeof *x.at)))
        fail_msg("\"%.*s\": %zu ids, %zu again, or others", (int)n, text, x.n, y.n);
    tok_ids_free(&x);
    tok_ids_free(&y);
}

static void same_tokenizer(const opened *a, const opened *b)
{
    static const char *const words[] = { "hello", " ",     "world", "wor", "\xff",         "ll", "o",  "caf\xc3\xa9",
                                         "\n",    "12345", "don't", "<s>", "\xe2\x96\x81", "!",  "  ", "h" };
    uint64_t r = 1;
    for (int i = 0; i < 400; i++) {
        strbuf text = { 0 };
        sb_puts(&text, "");
        for (int k = 0; k < i % 12; k++)
            r = r * 6364136223846793005u + 1442695040888963407u, sb_puts(&text, words[r >> 60]);
        /* a leading space is what a vocabulary out of Metaspace loses */
        if (text.n && text.at[0] == ' ') text.at[0] = 'x';
        same_ids(a, b, text.at, text.n, i % 2 ? TOK_SPECIAL : 0);
        sb_free(&text);
    }
}

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
    assert_true(a.bos == b.bos && a.eos == b.eos && a.unk == b.unk && a.pad == b.pad && a.add_bos == b.add_bos &&
                a.add_eos == b.add_eos && a.byte_fallback == b.byte_fallback);
    assert_int_equal(a.n_special, b.n_special + (a.unk >= 0 && !strcmp(model, "llama") &&
                                                 tok_type_of(o->t, (uint32_t)a.unk) == TOK_CONTROL));
    for (uint32_t i = 0; i < a.n; i++) {
        tok_str x = tok_text(o->t, i), y = tok_text(t, i);
        if (x.n && (x.n != y.n || memcmp(x.at, y.at, x.n)))
            fail_msg("token %u is \"%.*s\", was \"%.*s\"", i, (int)y.n, y.at, (int)x.n, x.at);
    }
    for (uint32_t i = a.n; i < b.n; i++) assert_int_equal(tok_type_of(t, i), TOK_UNUSED);
    opened p = wrap(t);
    as_file(&v, &p);
    arena_free(&mem); /* everything was copied */
    return p;
}

static void vocabularies_out(void **state)
{
    (void)state;
    static const char corpus[] =
        "hello world, hello worlds: the world's 1234 hellos and 12345 more; don't café the hello wor world hello hello 'll low older wold";
    static const struct {
        const char *split, *pre;
    } cuts[] = { { "gpt2", "gpt-2" }, { "llama3", "llama-bpe" }, { "qwen2", "qwen2" }, { "qwen35", "qwen35" } };
    diag d = { 0 };
    /* by merges; Llama 3's pieces are looked up whole first, which changes nothing for a vocabulary learnt so */
    for (size_t i = 0; i < COUNT(cuts); i++) {
        strbuf json = { 0 };
        assert_ok(tok_train(corpus, sizeof corpus - 1, &(tok_train_options){ .vocab = 300, .split = cuts[i].split },
                            &json, &d),
                  d);
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
        tok_vocab v = { .model = "gpt2", .pre = "llama-bpe", .n = COUNT(tokens), .token = tokens, .type = types,
                        .n_merges = 1, .merge = join, .bos = 2, .eos = i & 1 ? 3 : 2, .unk = -1, .pad = -1,
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

/* Tokens of bytes that nothing falls back to: read from such a vocabulary, something would. */
static void idle_bytes(void **state)
{
    (void)state;
    for (int bytes = 0; bytes <= 256; bytes += 64) {
        strbuf b = { 0 }, trainer = { 0 };
        put_piece(&b, "<unk>", 0, TOK_UNKNOWN), put_piece(&b, "a", -1, TOK_NORMAL);
        for (int i = 0; i < bytes; i++) {
            char name[8];
            snprintf(name, sizeof name, "<0x%02X>", (unsigned)i);
            put_piece(&b, name, 0, TOK_BYTE);
        }
        put_varint(&trainer, 3 << 3), put_varint(&trainer, 2);  /* BPE */
        put_varint(&trainer, 35 << 3), put_varint(&trainer, 0); /* no fallback */
        put_bytes(&b, 2, trainer.at, trainer.n);
        tokenizer *t;
        diag d = { 0 };
        assert_ok(tok_from_model("file", b.at, b.n, &t, &d), d);
        arena mem = { 0 };
        tok_vocab v;
        const char *lost;
        char want[80];
        snprintf(want, sizeof want, "%d of 256 bytes have a token, and it does not fall back to them", bytes);
        an_status st = tok_to_vocab(t, 0, &mem, &v, &lost, &d);
        if (bytes ? st != AN_INPUT || !strstr(d.msg, want) : st != AN_OK) fail_msg("%d bytes: %d: %s", bytes, (int)st, d.msg);
        arena_free(&mem);
        tok_close(t);
        sb_free(&b), sb_free(&trainer);
    }
}

/* ---- vocabularies of a few tokens ---- */

/* Vocabularies of the SentencePiece kinds need no bytes: a run of characters without a token is then the one token
 * for it, as SentencePiece has it. Some of the bytes are no vocabulary. Without types, names and ids tell. */
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
        for (size_t k = 0; k < COUNT(word); k++, n++)
            token[n] = (tok_str){ word[k], strlen(word[k]) }, type[n] = TOK_NORMAL, score[n] = -(float)k;
        tok_vocab v = { .model = "llama", .n = n, .token = token, .score = score, .type = rows[i].types ? type : NULL,
                        .bos = 1, .eos = 2, .unk = rows[i].says_unk ? 0 : -1, .pad = -1, .add_bos = -1, .add_eos = -1,
                        .add_space_prefix = -1 };
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
        if (!st != !!rows[i].ids || (st && (st != AN_INPUT || !strstr(d.msg, rows[i].back))))
            fail_msg("row %zu: status %d: %s", i, (int)st, d.msg);
    }
}

/* 0 <unk>, 1 <s>, 2 </s>, then these, which may be none of them bytes. */
static opened of_pieces(const char *model, const char *const *piece, const float *score, size_t n, tok_vocab more)
{
    tok_str token[40] = { { "<unk>", 5 }, { "<s>", 3 }, { "</s>", 4 } };
    int32_t type[40] = { TOK_UNKNOWN, TOK_CONTROL, TOK_CONTROL };
    float all[40] = { 0 };
    assert_true(n + 3 <= COUNT(token));
    for (size_t i = 0; i < n; i++)
        token[3 + i] = (tok_str){ piece[i], strlen(piece[i]) }, type[3 + i] = TOK_NORMAL, all[3 + i] = score[i];
    more.model = model, more.n = n + 3, more.token = token, more.type = type, more.score = all, more.bos = 1,
    more.eos = 2, more.pad = -1, more.add_bos = more.add_eos = -1;
    diag d = { 0 };
    tokenizer *t;
    assert_ok(tok_from_vocab("pieces", &more, &t, &d), d);
    return wrap(t);
}

/* Leftmost of the best, of however long a piece; of equal segmentations the one whose last token is longest; of
 * equal tokens the first. */
static void best_of_several(void **state)
{
    (void)state;
    static const char *const runs[] = { "a", "aa", "aaaa", "aaaaa" };
    /* pairs make fours, fours and one make five before the next four is made */
    static const float run_score[] = { -3, -2, 0, -1 };
    opened o = of_pieces("llama", runs, run_score, COUNT(runs), (tok_vocab){ 0 });
    EXPECT(o, "aaaaaa", 0, "6 3");
    /* 47 of them: a long piece */
    EXPECT(o, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 0, "6 6 6 6 6 6 6 6 6 4");
    close_tok(o);
    static const char *const equal[] = { "a", "b", "ab", "c", "c", "abc" };
    static const float equal_score[] = { -1, -2, -3, -1, -1, -4.5f };
    o = of_pieces("t5", equal, equal_score, COUNT(equal), (tok_vocab){ 0 });
    EXPECT(o, "ab", 0, "5");
    EXPECT(o, "abc", 0, "5 6");
    EXPECT(o, "xx", 0, "0"); /* what is not known is one token for a run of it, also where the text begins with it */
    EXPECT(o, "xa\xc3\xa9\xc3\xa9" "a", 0, "0 3 0 3");
    close_tok(o);
    o = from_json(
        "{\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"vocab\":{\"<unk>\":0,\"a\":1},\"merges\":[]}}");
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
        put_le32(map + 4, rows[i].root), put_le32(map + 4 + 4 * 'a', rows[i].a),
            put_le32(map + 4 + 4 * ('a' ^ 1), rows[i].leaf);
        memcpy(map + 4 + 4 * UNITS, "X", 2);
        const tok_str token[] = { { "<unk>", 5 }, { "<s>", 3 }, { "</s>", 4 }, { "a", 1 }, { "b", 1 }, { "X", 1 } };
        const int32_t type[] = { TOK_UNKNOWN, TOK_CONTROL, TOK_CONTROL, TOK_NORMAL, TOK_NORMAL, TOK_NORMAL };
        const float score[COUNT(token)] = { 0 };
        const tok_vocab v = { .model = "llama", .n = COUNT(token), .token = token, .type = type, .score = score,
                              .bos = 1, .eos = 2, .pad = -1, .charsmap = map, .n_charsmap = rows[i].n };
        diag d = { 0 };
        tokenizer *t;
        const an_status st = tok_from_vocab("map", &v, &t, &d);
        if (st != (rows[i].says ? AN_INPUT : AN_OK) || (st && !strstr(d.msg, rows[i].says)))
            fail_msg("row %zu: status %d, \"%s\"", i, (int)st, d.msg);
        if (st) continue;
        opened o = wrap(t);
        EXPECT(o, "ab", 0, rows[i].ids);
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
        /* three digits are ASCII ones; a currency sign but $ is no symbol of the first step */
        { "default", "\xd9\xa1\xd9\xa2\xd9\xa3\xd9\xa4 \xe2\x82\xac" "9", "\xd9\xa1\xd9\xa2\xd9\xa3\xd9\xa4| \xe2\x82\xac|9" },
        { "gpt-2", "Hello 12345 (world)!! it's", "Hello| 12345| (|world|)!!| it|'s" },
        { "llama-bpe", "Hello 12345 (world)!! it's", "Hello| |123|45| (|world|)!!| it|'s" },
        { "smollm", "Hello 123 it's", "Hello| |1|2|3| it|'s" },
    };
    static const tok_str tokens[] = { { "a", 1 }, { "b", 1 } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        tok_vocab v = { .model = "gpt2", .pre = rows[i].pre, .n = 2, .token = tokens, .bos = -1, .eos = -1, .unk = -1,
                        .pad = -1, .add_bos = -1, .add_eos = -1, .add_space_prefix = -1 };
        diag d = { 0 };
        tokenizer *t;
        assert_ok(tok_from_vocab("test", &v, &t, &d), d);
        opened o = wrap(t);
        tok_cuts c = { 0 };
        strbuf b = { 0 };
        assert_ok(tok_cut(o.e, rows[i].text, strlen(rows[i].text), &c, &d), d);
        for (size_t k = 0, from = 0; k < c.n; from = c.at[k++])
            sb_printf(&b, "%s%.*s", k ? "|" : "", (int)(c.at[k] - from), rows[i].text + from);
        assert_string_equal(b.at, rows[i].cuts);
        sb_free(&b);
        tok_cuts_free(&c);
        close_tok(o);
    }
    tok_vocab v = {
        .model = "gpt2", .pre = "nobody", .n = 2, .token = tokens, .bos = -1, .eos = -1, .unk = -1, .pad = -1
    };
    diag d = { 0 };
    tokenizer *t;
    assert_int_equal(tok_from_vocab("test", &v, &t, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "tokenizer.ggml.pre is \"nobody\""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vocabularies_out),
        cmocka_unit_test(around_a_text),
        cmocka_unit_test(without_bytes),
        cmocka_unit_test(best_of_several),
        cmocka_unit_test(hostile_maps),
        cmocka_unit_test(not_sayable), cmocka_unit_test(idle_bytes),
        cmocka_unit_test(pre_names),
    };
    return cmocka_run_group_tests_name("text_vocab", tests, NULL, NULL);
}
