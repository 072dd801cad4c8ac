/* lift.c: the two long lists of a tokenizer.json, model.vocab and model.merges, read straight from the text. They
 * are nine tenths of the file, and a tree of a hundred thousand small values costs more to build than to read: the
 * lists are lifted out, and the JSON library sees the rest, with {} and [] in their place. Strict: what is no JSON
 * here is an error with its byte. */
#include "text/text_int.h"

static void blanks(json_scan *s)
{
    while (s->at < s->n && (s->p[s->at] == ' ' || s->p[s->at] == '\n' || s->p[s->at] == '\t' || s->p[s->at] == '\r'))
        s->at++;
}

static bool eat(json_scan *s, char c)
{
    blanks(s);
    if (s->at >= s->n || s->p[s->at] != c) return false;
    s->at++;
    return true;
}

static bool hex4(const char *p, uint32_t *out)
{
    uint32_t v = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int x = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                       : -1;
        if (x < 0) return false;
        v = v << 4 | (uint32_t)x;
    }
    *out = v;
    return true;
}

/* Behind the opening quote: the end of the string, and whether it holds escapes. */
static bool string_end(json_scan *s, size_t *end, bool *escapes)
{
    *escapes = false;
    for (size_t i = s->at; i < s->n; i++) {
        unsigned char c = (unsigned char)s->p[i];
        if (c == '"') return *end = i, true;
        if (c < 0x20) return false;
        if (c == '\\') *escapes = true, i++;
    }
    return false;
}

static bool unescape(const char *p, size_t n, strbuf *out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    out->n = 0;
    sb_puts(out, "");
    for (size_t i = 0; i < n; i++) {
        if (p[i] != '\\') {
            size_t k = i;
            while (k < n && p[k] != '\\') k++;
            sb_putn(out, p + i, k - i);
            i = k - 1;
            continue;
        }
        const char *hit = ++i < n ? strchr(from, p[i]) : NULL;
        if (i >= n || !p[i]) return false;
        if (hit) {
            sb_putc(out, to[hit - from]);
            continue;
        }
        uint32_t cp, low;
        if (p[i] != 'u' || n - i < 5 || !hex4(p + i + 1, &cp)) return false;
        i += 4;
        if (cp >= 0xdc00 && cp < 0xe000) return false;
        if (cp >= 0xd800 && cp < 0xdc00) {
            if (n - i < 7 || p[i + 1] != '\\' || p[i + 2] != 'u' || !hex4(p + i + 3, &low) || low < 0xdc00 ||
                low >= 0xe000)
                return false;
            cp = 0x10000 + ((cp - 0xd800) << 10 | (low - 0xdc00));
            i += 6;
        }
        unsigned char c[4];
        sb_putn(out, (const char *)c, utf8_put(c, cp));
    }
    return true;
}

/* A string: a view into the text, or into hold when it has escapes. */
static bool string(json_scan *s, strbuf *hold, tok_str *out)
{
    size_t end;
    bool escapes;
    if (!eat(s, '"') || !string_end(s, &end, &escapes)) return false;
    *out = (tok_str){ s->p + s->at, end - s->at };
    if (!utf8_valid((const unsigned char *)out->at, out->n)) return false;
    if (escapes) {
        if (!unescape(out->at, out->n, hold)) return false;
        *out = (tok_str){ hold->at, hold->n };
    }
    s->at = end + 1;
    return !hold->oom;
}

/* ---- finding the lists ---- */

/* Behind any value; only strings and brackets are looked at, the JSON library checks the rest. */
static bool skip_value(json_scan *s)
{
    size_t depth = 0, end;
    bool escapes;
    blanks(s);
    while (s->at < s->n) {
        char c = s->p[s->at];
        if (c == '"') {
            s->at++;
            if (!string_end(s, &end, &escapes)) return false;
            s->at = end + 1;
        } else if (c == '{' || c == '[') depth++, s->at++;
        else if (c == '}' || c == ']') {
            if (!depth) return true;
            depth--, s->at++;
        } else if ((c == ',' || c == ' ' || c == '\n' || c == '\r' || c == '\t') && !depth) return true;
        else s->at++;
        if (!depth && (c == '"' || c == '}' || c == ']')) return true;
    }
    return !depth;
}

/* Walk the object at s to its end: the file (top), whose model is walked in turn, or the model, whose lists are kept
 * as stretches of the text. The last of equal keys counts, as the JSON library has it. */
static bool walk(json_scan *s, bool top, json_scan *vocab, json_scan *merges, bool *oom)
{
    strbuf hold = { 0 };
    tok_str name = { 0 };
    bool ok = eat(s, '{'), more = ok && !eat(s, '}');
    while (ok && more) {
        ok = string(s, &hold, &name) && eat(s, ':');
        blanks(s);
        size_t at = s->at;
        bool model = top && name.n == 5 && !memcmp(name.at, "model", 5) && at < s->n && s->p[at] == '{';
        ok = ok && (model ? walk(s, false, vocab, merges, oom) : skip_value(s));
        json_scan *list = top                                            ? NULL
                          : name.n == 5 && !memcmp(name.at, "vocab", 5)  ? vocab
                          : name.n == 6 && !memcmp(name.at, "merges", 6) ? merges
                                                                         : NULL;
        if (ok && list) *list = (json_scan){ .p = s->p, .n = s->at, .at = at };
        more = ok && eat(s, ',');
        if (ok && !more) {
            ok = eat(s, '}');
            break;
        }
    }
    *oom |= hold.oom;
    sb_free(&hold);
    return ok;
}

bool lift_lists(const char *p, size_t n, json_scan *vocab, json_scan *merges, strbuf *rest)
{
    json_scan all = { .p = p, .n = n };
    *vocab = *merges = (json_scan){ 0 };
    bool ok = walk(&all, true, vocab, merges, &rest->oom) && vocab->p && merges->p && p[vocab->at] == '{' &&
              p[merges->at] == '[';
    if (!ok) return *vocab = *merges = (json_scan){ 0 }, false;
    const json_scan *first = vocab->at < merges->at ? vocab : merges, *second = first == vocab ? merges : vocab;
    sb_putn(rest, p, first->at);
    sb_puts(rest, first == vocab ? "{}" : "[]");
    sb_putn(rest, p + first->n, second->at - first->n);
    sb_puts(rest, second == vocab ? "{}" : "[]");
    sb_putn(rest, p + second->n, n - second->n);
    return !rest->oom;
}

/* ---- walking them ---- */

/* Before an entry: the opening bracket the first time, a comma later. False at the end, or on what is neither (bad). */
static bool next(json_scan *s, char open, char close)
{
    if (s->done || s->bad) return false;
    bool first = !s->begun;
    s->begun = true;
    if (first && !eat(s, open)) return s->bad = true, false;
    if (eat(s, close)) {
        blanks(s);
        s->done = true;
        s->bad = s->at != s->n; /* nothing may follow */
        return false;
    }
    if (!first && !eat(s, ',')) return s->bad = true, false;
    return true;
}

bool next_token(json_scan *s, strbuf *hold, tok_str *text, double *id)
{
    if (!next(s, '{', '}')) return false;
    s->bad = true;
    if (!string(s, hold, text) || !eat(s, ':')) return false;
    blanks(s);
    size_t from = s->at;
    double v = 0;
    for (; s->at < s->n && s->p[s->at] >= '0' && s->p[s->at] <= '9' && s->at - from < 16; s->at++)
        v = v * 10 + (s->p[s->at] - '0');
    *id = s->at > from ? v : -1;
    /* a number, but no id: the caller says so */
    if (s->at < s->n && (s->p[s->at] == '.' || s->p[s->at] == '-' || (s->p[s->at] | 32) == 'e')) {
        *id = -1;
        if (!skip_value(s)) return false;
    } else if (s->at == from) return false;
    s->bad = false;
    return true;
}

bool next_merge(json_scan *s, strbuf hold[2], tok_str *left, tok_str *right)
{
    if (!next(s, '[', ']')) return false;
    s->bad = true;
    if (eat(s, '[')) {
        if (!string(s, &hold[0], left) || !eat(s, ',') || !string(s, &hold[1], right) || !eat(s, ']')) return false;
    } else {
        if (!string(s, &hold[0], left)) return false;
        const char *gap = left->n > 1 ? memchr(left->at + 1, ' ', left->n - 1) : NULL;
        *right = (tok_str){ NULL, 0 };
        if (gap)
            *right = (tok_str){ gap + 1, left->n - (size_t)(gap + 1 - left->at) }, left->n = (size_t)(gap - left->at);
    }
    s->bad = false;
    return true;
}
