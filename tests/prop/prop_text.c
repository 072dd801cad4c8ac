/* Tokenizers against slow, obvious ones: cuts against PCRE2, merges against repeated scanning, unigram against every
 * segmentation; any bytes there and back; token by token as all at once. */
#include <math.h>

#include "text_t.h"

/* Bytes that matter to the patterns, and some that are no UTF-8. */
static size_t random_text(rng *r, char *to, size_t room, bool stray)
{
    static const char *const bits[] = {
        " ", " ", "  ", "\n", "\r", "\r\n", "\t", "'", "'", "'s", "'S", "'t", "'re", "'RE", "'ll", "'lL", "'Ve", "'m", "'d", "s", "T", "re", "word", "Word", "0", "12", "345", "6789", ".", ",", "!?", "-", "_",
        "\xc5\xbf" /* long s */, "\xc2\xa0", "\xe3\x80\x80", "\xc2\x85", "\xe2\x80\xa8", "\xe1\xa0\x8e" /* U+180E: no white space since Unicode 6.3 */, "\xcc\x81", "\xe0\xb8\xb4",
        "\xc3\xa9", "\xd1\x8f", "\xe4\xb8\xad", "\xc2\xbd", "\xd9\xa3", "\xf0\x9f\x9a\x80", "\xe2\x80\x8d", "\xe2\x84\xaa", "\xe2\x96\x81", "\xef\xbf\xbd", "\xc7\x85",
    };
    static const char *const odd[] = { "\xff",         "\x80",         "\xc3",     "\xe2\x80",
                                       "\xf0\x9f\x9a", "\xed\xa0\x80", "\xc0\xaf", "\xf5" };
    size_t n = 0, parts = rng_below(r, 14);
    for (size_t i = 0; i < parts; i++) {
        const char *s = stray && !rng_below(r, 6) ? odd[rng_below(r, COUNT(odd))] : bits[rng_below(r, COUNT(bits))];
        if (n + strlen(s) > room) break;
        memcpy(to + n, s, strlen(s));
        n += strlen(s);
    }
    return n;
}

/* The same expression in a group is not one of the known texts, so PCRE2 does it. */
static void cuts_as_pcre2(void **state)
{
    (void)state;
    static const char *const names[] = { "gpt2", "llama3", "qwen2", "qwen35" };
    rng r = { test_seed("cuts") };
    for (size_t k = 0; k < COUNT(names); k++) {
        diag d = { 0 };
        strbuf json = { 0 }, other = { 0 };
        assert_ok(tok_train("", 0, &(tok_train_options){ .vocab = 257, .split = names[k] }, &json, &d), d);
        const char *regex = strstr(json.at, "\"Regex\":\"");
        if (regex) {
            sb_putn(&other, json.at, (size_t)(regex - json.at));
            const char *end = regex + 9;
            while (*end != '"') end += 1 + (*end == '\\');
            sb_printf(&other, "\"Regex\":\"(?:%.*s)", (int)(end - regex - 9), regex + 9);
            sb_puts(&other, end);
        } else { /* GPT-2's is named, not spelt */
            const char *pre = strstr(json.at, "\"pre_tokenizer\":"), *end = strstr(pre, "},");
            sb_putn(&other, json.at, (size_t)(pre - json.at));
            sb_puts(&other, "\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"invert\":false,\"pattern\":{\"Regex\":"
                            "\"(?:'s|'t|'re|'ve|'m|'ll|'d| ?\\\\p{L}+| ?\\\\p{N}+| ?[^\\\\s\\\\p{L}\\\\p{N}]+|\\\\s+(?!\\\\S)|\\\\s+)\"}");
            sb_puts(&other, end);
        }
        opened hand = from_json(json.at), pcre = from_json(other.at);
        tok_info i;
        tok_get(hand.t, &i);
        assert_string_equal(i.split, names[k]);
        tok_get(pcre.t, &i);
        assert_string_equal(i.split, "regex");
        for (int trial = 0; trial < 20000; trial++) {
            char text[256];
            size_t n = random_text(&r, text, sizeof text, trial % 2);
            tok_cuts a = { 0 }, b = { 0 };
            assert_ok(tok_cut(hand.e, text, n, &a, &d), d);
            assert_ok(tok_cut(pcre.e, text, n, &b, &d), d);
            bool same = a.n == b.n && (!a.n || !memcmp(a.at, b.at, a.n * sizeof *a.at)) && (!n || a.at[a.n - 1] == n);
            if (!same) {
                for (size_t q = 0; q < n; q++) print_message("%02x ", (unsigned char)text[q]);
                fail_msg("%s, trial %d: %zu pieces by hand, %zu by PCRE2, or others", names[k], trial, a.n, b.n);
            }
            tok_cuts_free(&a);
            tok_cuts_free(&b);
        }
        close_tok(hand);
        close_tok(pcre);
        sb_free(&json);
        sb_free(&other);
    }
}

/* ---- BPE by rank ---- */

enum { MOST = 120 };
typedef struct {
    char text[MOST][24];
    int left[MOST], right[MOST];
    int n, n_base;
} toy;

static int toy_find(const toy *v, const char *s)
{
    for (int i = 0; i < v->n; i++)
        if (!strcmp(v->text[i], s)) return i;
    return -1;
}

static void merges_as_scanning(void **state)
{
    (void)state;
    rng r = { test_seed("merges") };
    for (int round = 0; round < 60; round++) {
        toy v = { .n = 4, .n_base = 4 };
        for (int i = 0; i < 4; i++) v.text[i][0] = "abcd"[i];
        int letters = 1 + (int)rng_below(&r, 4), tries = 400;
        while (v.n < 4 + (int)rng_below(&r, MOST - 4) && tries--) { /* tokens of earlier tokens, every text once */
            int a = (int)rng_below(&r, (uint64_t)v.n), b = (int)rng_below(&r, (uint64_t)v.n);
            char s[48];
            snprintf(s, sizeof s, "%s%s", v.text[a], v.text[b]);
            if (strlen(s) > 20 || toy_find(&v, s) >= 0 || v.n == MOST) continue;
            memcpy(v.text[v.n], s, strlen(s) + 1);
            v.left[v.n] = a, v.right[v.n] = b;
            v.n++;
        }
        strbuf vocab = { 0 }, merges = { 0 };
        /* learned: a merge comes after those of its parts; every other round in any order */
        int order[MOST], n_merges = v.n - v.n_base;
        for (int i = 0; i < n_merges; i++) order[i] = v.n_base + i;
        for (int i = n_merges - 1; i > 0 && round % 2; i--) {
            int k = (int)rng_below(&r, (uint64_t)i + 1), x = order[i];
            order[i] = order[k], order[k] = x;
        }
        sb_puts(&vocab, "{");
        sb_puts(&merges, "#version: 0.2\n");
        for (int i = 0; i < v.n; i++) sb_printf(&vocab, "%s\"%s\":%d", i ? "," : "", v.text[i], i);
        for (int i = 0; i < n_merges; i++)
            sb_printf(&merges, "%s %s\n", v.text[v.left[order[i]]], v.text[v.right[order[i]]]);
        sb_puts(&vocab, "}");
        diag d = { 0 };
        opened o;
        assert_ok(tok_from_pair("toy", vocab.at, vocab.n, merges.at, merges.n, &o.t, &d), d);
        assert_ok(tok_encoder_new(o.t, &o.e, &d), d);
        for (int trial = 0; trial < 60; trial++) {
            char text[400];
            /* short pieces are scanned, long ones wait by rank or in a heap */
            int seq[400], n = 1 + (int)rng_below(&r, trial % 4 ? 30 : 399);
            for (int i = 0; i < n; i++) seq[i] = (int)rng_below(&r, (uint64_t)letters), text[i] = "abcd"[seq[i]];
            tok_ids ids = { 0 };
            assert_ok(tok_encode(o.e, text, (size_t)n, 0, &ids, &d), d);
            /* best rank first means: rank by rank, left to right, and again when a merge made an earlier one
             * possible */
            for (int k = 0; k < n_merges; k++) {
                bool again = false;
                int rank = order[k];
                for (int i = 0; i + 1 < n; i++) {
                    if (seq[i] != v.left[rank] || seq[i + 1] != v.right[rank]) continue;
                    seq[i] = rank;
                    memmove(seq + i + 1, seq + i + 2, (size_t)(n - i - 2) * sizeof *seq);
                    n--;
                    again = true;
                    break;
                }
                if (again) k = -1;
            }
            assert_int_equal(ids.n, n);
            for (int i = 0; i < n; i++) assert_int_equal(ids.at[i], seq[i]);
            tok_ids_free(&ids);
        }
        close_tok(o);
        sb_free(&vocab);
        sb_free(&merges);
    }
}

/* ---- SentencePiece ---- */

typedef struct {
    char text[400][24];
    tok_str token[400];
    float score[400];
    int32_t type[400];
    size_t n;
} spm;

/* Bytes, letters, and random pieces; across: some with a space inside, so that words cannot be cut apart. */
static void random_spm(rng *r, spm *v, bool across)
{
    static const char *const atoms[] = { "a", "b", "c", "\xe2\x96\x81", "\xc3\xa9" };
    v->n = 0;
    for (int i = 0; i < 3; i++, v->n++)
        snprintf(v->text[v->n], sizeof v->text[0], "%s", ((const char *[]){ "<unk>", "<s>", "</s>" })[i]),
            v->type[v->n] = i ? TOK_CONTROL : TOK_UNKNOWN, v->score[v->n] = 0;
    for (int b = 0; b < 256; b++, v->n++)
        snprintf(v->text[v->n], sizeof v->text[0], "<0x%02X>", (unsigned)b), v->type[v->n] = TOK_BYTE,
                                                                             v->score[v->n] = 0;
    size_t first = v->n, want = 5 + rng_below(r, 100);
    for (int tries = 0; v->n < first + want && tries < 1000; tries++) {
        char s[24] = "";
        size_t parts = v->n < first + 4 ? 1 : 1 + rng_below(r, 5);
        for (size_t k = 0; k < parts; k++) {
            const char *x = atoms[v->n < first + 4 && parts == 1 ? v->n - first : rng_below(r, COUNT(atoms))];
            /* spaces only in front */
            if (!across && *s && !strcmp(x, atoms[3]) && (strlen(s) < 3 || strcmp(s + strlen(s) - 3, atoms[3])))
                continue;
            if (strlen(s) + strlen(x) < sizeof s) strcat(s, x);
        }
        bool known = false;
        for (size_t i = first; i < v->n; i++) known |= !strcmp(v->text[i], s);
        if (known) continue;
        memcpy(v->text[v->n], s, sizeof s);
        v->type[v->n] = TOK_NORMAL;
        v->score[v->n] = -(float)(1 + rng_below(r, 40)) / 4; /* ties are wanted */
        v->n++;
    }
    for (size_t i = 0; i < v->n; i++) v->token[i] = (tok_str){ v->text[i], strlen(v->text[i]) };
}

static opened open_spm(const spm *v, const char *model)
{
    diag d = { 0 };
    opened o;
    tok_vocab x = { .model = model, .n = v->n, .token = v->token, .score = v->score, .type = v->type, .bos = 1,
                    .eos = 2, .unk = 0, .pad = -1, .add_bos = -1, .add_eos = -1, .add_space_prefix = -1 };
    assert_ok(tok_from_vocab("toy", &x, &o.t, &d), d);
    assert_ok(tok_encoder_new(o.t, &o.e, &d), d);
    return o;
}

static int spm_find(const spm *v, const char *s, size_t n)
{
    for (size_t i = 259; i < v->n; i++)
        if (v->token[i].n == n && !memcmp(v->text[i], s, n)) return (int)i;
    return -1;
}

static size_t random_words(rng *r, char *to, size_t room)
{
    static const char *const bits[] = {
        "a", "b", "c", "a", "b", " ", " ", "\xc3\xa9", "x", "\xe2\x82\xac", "\xff", "  "
    };
    size_t n = 0, parts = rng_below(r, rng_below(r, 5) ? 20 : 150);
    for (size_t i = 0; i < parts && n + 4 < room; i++) {
        const char *s = bits[rng_below(r, COUNT(bits))];
        memcpy(to + n, s, strlen(s));
        n += strlen(s);
    }
    return n;
}

/* The text as SentencePiece sees it: a space in front, every space as its mark. */
static size_t mark_text(const char *s, size_t n, char *to)
{
    size_t k = 0;
    if (!n) return 0;
    memcpy(to, "\xe2\x96\x81", 3), k = 3;
    for (size_t i = 0; i < n; i++)
        if (s[i] == ' ') memcpy(to + k, "\xe2\x96\x81", 3), k += 3;
        else to[k++] = s[i];
    return k;
}

static size_t char_len(const char *s, size_t n)
{
    unsigned char c = (unsigned char)*s;
    size_t want = c < 0x80 ? 1 : c < 0xc2 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 1;
    if (want > n) return 1;
    for (size_t i = 1; i < want; i++)
        if (((unsigned char)s[i] & 0xc0) != 0x80) return 1;
    return want;
}

/* Best-scored neighbours first, leftmost of equals, until nothing merges; what is then no token is its bytes. */
static size_t scan_spm(const spm *v, const char *s, size_t n, uint32_t *out)
{
    static size_t at[2000], len[2000];
    size_t k = 0, m = 0;
    for (size_t i = 0; i < n; i += len[k++]) at[k] = i, len[k] = char_len(s + i, n - i);
    for (;;) {
        int best = -1;
        float score = -INFINITY;
        for (size_t i = 0; i + 1 < k; i++) {
            int id = spm_find(v, s + at[i], len[i] + len[i + 1]);
            if (id >= 0 && v->score[id] > score) score = v->score[id], best = (int)i;
        }
        if (best < 0) break;
        len[best] += len[best + 1];
        memmove(at + best + 1, at + best + 2, (k - (size_t)best - 2) * sizeof *at);
        memmove(len + best + 1, len + best + 2, (k - (size_t)best - 2) * sizeof *len);
        k--;
    }
    for (size_t i = 0; i < k; i++) {
        int id = spm_find(v, s + at[i], len[i]);
        if (id >= 0) out[m++] = (uint32_t)id;
        else
            for (size_t b = 0; b < len[i]; b++) out[m++] = 3u + (unsigned char)s[at[i] + b];
    }
    return m;
}

static void spm_as_scanning(void **state)
{
    (void)state;
    rng r = { test_seed("SentencePiece BPE") };
    static spm v;
    for (int round = 0; round < 120; round++) {
        random_spm(&r, &v, round % 2);
        opened o = open_spm(&v, "llama");
        for (int trial = 0; trial < 30; trial++) {
            char text[600], marked[1900];
            uint32_t want[2000];
            diag d = { 0 };
            tok_ids ids = { 0 };
            strbuf back = { 0 };
            size_t n = random_words(&r, text, sizeof text), m = scan_spm(&v, marked, mark_text(text, n, marked), want);
            bool no_space = spm_find(&v, "\xe2\x96\x81", 3) < 0;
            assert_ok(tok_encode(o.e, text, n, 0, &ids, &d), d);
            /* Without a token for the space it is the byte 0x20 here, and the mark's three bytes there: compare only
             * where it has one. */
            if (!no_space) {
                assert_int_equal(ids.n, m);
                for (size_t i = 0; i < m; i++) assert_int_equal(ids.at[i], want[i]);
            }
            assert_ok(tok_decode(o.t, ids.at, ids.n, 0, &back, &d), d);
            assert_int_equal(back.n, n);
            if (n) assert_memory_equal(back.at, text, n);
            sb_free(&back);
            tok_ids_free(&ids);
        }
        close_tok(o);
    }
}

/* The best sum of scores over every segmentation; a character no piece starts with alone costs the least score less
 * ten. */
static void unigram_is_best(void **state)
{
    (void)state;
    rng r = { test_seed("unigram") };
    static spm v;
    for (int round = 0; round < 120; round++) {
        random_spm(&r, &v, round % 2);
        opened o = open_spm(&v, "t5");
        double least = 0;
        for (size_t i = 259; i < v.n; i++) least = i == 259 ? (double)v.score[i] : fmin(least, (double)v.score[i]);
        for (int trial = 0; trial < 30; trial++) {
            char text[600], marked[1900];
            static double best[2000];
            diag d = { 0 };
            tok_ids ids = { 0 };
            strbuf back = { 0 };
            size_t n = random_words(&r, text, sizeof text);
            /* bytes outside characters: no pieces there to compare */
            if (memchr(text, '\xff', n) || spm_find(&v, "\xe2\x96\x81", 3) < 0) continue;
            size_t m = mark_text(text, n, marked);
            for (size_t i = 0; i <= m; i++) best[i] = i ? -INFINITY : 0;
            for (size_t i = 0, len; i < m; i += len) {
                len = char_len(marked + i, m - i);
                for (size_t to = i + 1; to <= m && to - i < 24; to++) {
                    int id = spm_find(&v, marked + i, to - i);
                    if (id >= 0) best[to] = fmax(best[to], best[i] + (double)v.score[id]);
                }
                if (spm_find(&v, marked + i, len) < 0) best[i + len] = fmax(best[i + len], best[i] + least - 10);
            }
            assert_ok(tok_encode(o.e, text, n, 0, &ids, &d), d);
            double sum = 0;
            /* a run of byte tokens is an unknown character: two bytes or more, or x */
            for (size_t i = 0; i < ids.n; i++) {
                if (ids.at[i] >= 259) sum += (double)v.score[ids.at[i]];
                else {
                    unsigned char b = (unsigned char)(ids.at[i] - 3);
                    sum += (b & 0xc0) == 0x80 ? 0 : least - 10;
                }
            }
            assert_true(fabs(sum - best[m]) < 1e-3);
            assert_ok(tok_decode(o.t, ids.at, ids.n, 0, &back, &d), d);
            assert_int_equal(back.n, n);
            if (n) assert_memory_equal(back.at, text, n);
            sb_free(&back);
            tok_ids_free(&ids);
        }
        close_tok(o);
    }
}

/* ---- there and back ---- */

static void any_bytes_and_streams(void **state)
{
    (void)state;
    static const char *const names[] = { "gpt2", "llama3", "qwen2", "qwen35" };
    rng r = { test_seed("round trip") };
    static const char corpus[] =
        "the cat sat on the mat, the cat's hat is on the mat; 1234 12 1234 \xc3\xa9t\xc3\xa9 \xe4\xb8\xad\xe6\x96\x87 \xe4\xb8\xad\xe6\x96\x87 the cat";
    for (size_t k = 0; k < COUNT(names); k++) {
        diag d = { 0 };
        strbuf json = { 0 };
        assert_ok(
            tok_train(corpus, sizeof corpus - 1, &(tok_train_options){ .vocab = 300, .split = names[k] }, &json, &d),
            d);
        opened o = from_json(json.at);
        for (int trial = 0; trial < 5000; trial++) {
            char text[256];
            size_t n = trial % 3 ? random_text(&r, text, sizeof text, true) : rng_below(&r, sizeof text);
            for (size_t i = 0; i < n && trial % 3 == 0; i++) text[i] = (char)rng_next(&r);
            tok_ids ids = { 0 };
            strbuf back = { 0 }, stream = { 0 };
            tok_stream s = { 0 };
            assert_ok(tok_encode(o.e, text, n, 0, &ids, &d), d);
            assert_ok(tok_decode(o.t, ids.at, ids.n, 0, &back, &d), d);
            assert_int_equal(back.n, n);
            if (n) assert_memory_equal(back.at, text, n);
            for (size_t i = 0; i < ids.n; i++) {
                size_t from = stream.n;
                assert_ok(tok_stream_put(o.t, &s, ids.at[i], 0, &stream, &d), d);
                if (trial % 3 == 0) continue;
                size_t last = stream.n; /* what was printed does not stop inside a character that goes on */
                while (last > from && ((unsigned char)stream.at[last - 1] & 0xc0) == 0x80) last--;
                if (last > from && (unsigned char)stream.at[last - 1] >= 0xc2) {
                    size_t len = char_len(text + last - 1, n - last + 1);
                    assert_true(len == 1 || stream.n - (last - 1) >= len);
                }
            }
            tok_stream_end(&s, &stream);
            assert_int_equal(stream.n, n);
            if (n) assert_memory_equal(stream.at, text, n);
            sb_free(&back);
            sb_free(&stream);
            tok_ids_free(&ids);
        }
        close_tok(o);
        sb_free(&json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_as_pcre2),   cmocka_unit_test(merges_as_scanning),    cmocka_unit_test(spm_as_scanning),
        cmocka_unit_test(unigram_is_best), cmocka_unit_test(any_bytes_and_streams),
    };
    return cmocka_run_group_tests_name("prop_text", tests, NULL, NULL);
}
