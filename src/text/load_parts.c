/* load_parts.c: the sections of tokenizer.json around the model: normalizer, pre_tokenizer, decoder, post_processor.
 * A section of a type we do not know is an error that names it.
 *
 * Two spellings are undone rather than carried out. Byte-level vocabularies name bytes by printable characters:
 * pieces are kept as bytes. Vocabularies that turn " " into U+2581 and back are kept with plain spaces, so that the
 * text's own U+2581 survives. */
#include <jansson.h>
#include <stdlib.h>

#include "text/text_int.h"

typedef struct {
    const json_t *at[MAX_STEPS];
    size_t n;
} steps;

static const char *type_of(const json_t *j)
{
    const char *s = json_string_value(json_object_get(j, "type"));
    return s ? s : "(no type)";
}

static bool is(const json_t *j, const char *type) { return !strcmp(type_of(j), type); }

static bool text_is(const json_t *j, const char *want)
{
    size_t n;
    const char *s = js_text(j, &n);
    return s && n == strlen(want) && !memcmp(s, want, n);
}

/* Sequences, however deep, as one list. */
static an_status flatten(const tokenizer *t, const json_t *j, const char *section, const char *inner, steps *out,
                         int depth, diag *d)
{
    if (!j || json_is_null(j)) return AN_OK;
    if (is(j, "Sequence")) {
        const json_t *list = json_object_get(j, inner);
        size_t i;
        json_t *v;
        if (depth > 8 || !json_is_array(list))
            return tok_bad(d, t, "%s: a Sequence without \"%s\", or nested deeper than 8", section, inner);
        json_array_foreach (list, i, v) TRY(flatten(t, v, section, inner, out, depth + 1, d));
        return AN_OK;
    }
    if (out->n == MAX_STEPS) return tok_bad(d, t, "%s has more than %d steps", section, MAX_STEPS);
    out->at[out->n++] = j;
    return AN_OK;
}

static an_status unsupported(const tokenizer *t, const char *section, const json_t *j, diag *d)
{
    return tok_bad(d, t, "%s \"%.40s\" is not supported", section, type_of(j));
}

static bool replaces(const json_t *j, const char *from, const char *to)
{
    return is(j, "Replace") && text_is(json_object_get(json_object_get(j, "pattern"), "String"), from) &&
           text_is(json_object_get(j, "content"), to);
}

static an_status all_steps(const tokenizer *t, const json_t *root, steps s[3], diag *d)
{
    TRY(flatten(t, json_object_get(root, "normalizer"), "normalizer", "normalizers", &s[0], 0, d));
    TRY(flatten(t, json_object_get(root, "pre_tokenizer"), "pre_tokenizer", "pretokenizers", &s[1], 0, d));
    return flatten(t, json_object_get(root, "decoder"), "decoder", "decoders", &s[2], 0, d);
}

an_status parts_style(tokenizer *t, const json_t *root, json_style *out, diag *d)
{
    steps s[3] = { { .n = 0 } };
    bool in = false, back = false;
    TRY(all_steps(t, root, s, d));
    for (size_t i = 0; i < s[0].n; i++) in |= replaces(s[0].at[i], " ", SPACE_MARK);
    for (size_t i = 0; i < s[1].n; i++) {
        in |= is(s[1].at[i], "Metaspace");
        out->byte_level |= is(s[1].at[i], "ByteLevel");
        if (is(s[1].at[i], "Metaspace") && !text_is(json_object_get(s[1].at[i], "replacement"), SPACE_MARK))
            return tok_bad(d, t, "pre_tokenizer Metaspace with a replacement other than U+2581 is not supported");
    }
    for (size_t i = 0; i < s[2].n; i++) {
        const json_t *j = s[2].at[i];
        back |= is(j, "Metaspace") || replaces(j, SPACE_MARK, " ");
        out->byte_out |= is(j, "ByteFallback");
        out->byte_level |= is(j, "ByteLevel");
        if (!is(j, "Replace") || replaces(j, SPACE_MARK, " ")) continue;
        if (!json_is_string(json_object_get(json_object_get(j, "pattern"), "String")) ||
            !json_is_string(json_object_get(j, "content")))
            return tok_bad(d, t, "decoder Replace by a regular expression is not supported");
        out->replaced[out->n_replaced++] = j;
    }
    out->marks = in && back;
    if (in != back)
        return tok_bad(d, t, "%s U+2581 for spaces and the %s does not undo it: not supported",
                       in ? "the pre_tokenizer puts" : "the decoder expects", in ? "decoder" : "pre_tokenizer");
    if (out->marks && out->byte_level) return tok_bad(d, t, "ByteLevel together with Metaspace is not supported");
    return AN_OK;
}

/* ---- normalizer ---- */

static int base64_value(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

static an_status read_charsmap(tokenizer *t, const json_t *j, diag *d)
{
    size_t n, k = 0;
    const char *s = js_text(json_object_get(j, "precompiled_charsmap"), &n);
    if (!s)
        return json_is_null(json_object_get(j, "precompiled_charsmap"))
                   ? AN_OK
                   : tok_bad(d, t, "normalizer Precompiled without precompiled_charsmap");
    unsigned char *raw = malloc(n + 1);
    if (!raw) return diag_nomem(d);
    uint32_t bits = 0, have = 0;
    an_status st = AN_OK;
    for (size_t i = 0; i < n && s[i] != '=' && !st; i++) {
        int v = base64_value(s[i]);
        if (v < 0) st = tok_bad(d, t, "precompiled_charsmap is no base64 at character %zu", i);
        bits = bits << 6 | (uint32_t)(v & 63), have += 6;
        if (have >= 8) raw[k++] = (unsigned char)(bits >> (have -= 8));
    }
    norm_step step;
    if (!st && k) st = norm_charsmap(&t->mem, &step, raw, k, d);
    free(raw);
    return st || !k ? st : add_norm(t, step, d);
}

static bool copy_text(tokenizer *t, const char *s, size_t n, bool marks, tok_str *out)
{
    return tok_piece(t, s, n, false, marks, out);
}

static an_status read_replace(tokenizer *t, const json_t *j, const json_style *style, diag *d)
{
    size_t n, nc;
    const json_t *pattern = json_object_get(j, "pattern");
    const char *from = js_text(json_object_get(pattern, "String"), &n),
               *to = js_text(json_object_get(j, "content"), &nc);
    norm_step step = { .kind = NORM_REPLACE };
    bool regex = !from;
    if (!from) from = js_text(json_object_get(pattern, "Regex"), &n);
    if (!from || !to) return tok_bad(d, t, "normalizer Replace wants a pattern (String or Regex) and a content");
    if (!copy_text(t, to, nc, style->marks, &step.to) || !copy_text(t, from, n, style->marks && !regex, &step.from))
        return diag_nomem(d);
    if (regex) {
        step.kind = NORM_REPLACE_REGEX;
        TRY(split_compile(from, n, &step.code, d));
    }
    return add_norm(t, step, d);
}

static an_status read_norm(tokenizer *t, const json_t *j, const json_style *s, diag *d)
{
    if (s->marks && replaces(j, " ", SPACE_MARK)) return AN_OK; /* undone, see the top */
    if (is(j, "Replace")) return read_replace(t, j, s, d);
    if (is(j, "NFC")) return add_norm(t, (norm_step){ .kind = NORM_NFC }, d);
    if (is(j, "Precompiled")) return read_charsmap(t, j, d);
    if (is(j, "Strip"))
        return add_norm(t,
                        (norm_step){ .kind = NORM_STRIP,
                                     .left = json_is_true(json_object_get(j, "strip_left")),
                                     .right = json_is_true(json_object_get(j, "strip_right")) },
                        d);
    if (is(j, "Prepend")) {
        const json_t *what = json_object_get(j, "prepend");
        if (!text_is(what, s->marks ? SPACE_MARK : " "))
            return tok_bad(d, t, "normalizer Prepend of anything but a space is not supported");
        t->prefix = PREFIX_ALWAYS;
        return AN_OK;
    }
    return unsupported(t, "normalizer", j, d);
}

/* ---- pre_tokenizer ---- */

static an_status read_behavior(const tokenizer *t, const json_t *j, cut_behavior def, cut_behavior *out, diag *d)
{
    static const struct {
        const char *name;
        cut_behavior b;
    } rows[] = { { "Isolated", CUT_ISOLATED },
                 { "Removed", CUT_REMOVED },
                 { "MergedWithPrevious", CUT_WITH_PREVIOUS },
                 { "MergedWithNext", CUT_WITH_NEXT },
                 { "Contiguous", CUT_CONTIGUOUS } };
    const char *s = json_string_value(json_object_get(j, "behavior"));
    *out = def;
    if (!s) return AN_OK;
    for (size_t i = 0; i < COUNT(rows); i++)
        if (!strcmp(rows[i].name, s)) return *out = rows[i].b, AN_OK;
    return tok_bad(d, t, "pre_tokenizer %s: behavior \"%.40s\" is not supported", type_of(j), s);
}

static an_status read_split(tokenizer *t, const json_t *j, const json_style *style, diag *d)
{
    size_t n;
    const json_t *pattern = json_object_get(j, "pattern");
    const char *s = js_text(json_object_get(pattern, "String"), &n);
    bool invert = json_is_true(json_object_get(j, "invert"));
    cut_behavior b;
    TRY(read_behavior(t, j, CUT_ISOLATED, &b, d));
    if (s) {
        split_step step = { .kind = SPLIT_LITERAL, .behavior = b, .invert = invert, .name = "words" };
        if (style->marks && memchr(s, ' ', n)) return AN_OK; /* spaces are U+2581 by then: it never matches */
        if (!copy_text(t, s, n, style->marks, &step.literal)) return diag_nomem(d);
        return add_split(t, step, d);
    }
    if (!(s = js_text(json_object_get(pattern, "Regex"), &n)))
        return tok_bad(d, t, "pre_tokenizer Split wants a pattern (String or Regex)");
    if (style->marks)
        return tok_bad(d, t,
                       "pre_tokenizer Split by a regular expression together with U+2581 for spaces is not supported");
    return add_pattern(t, s, n, b, invert, d);
}

static an_status read_metaspace(tokenizer *t, const json_t *j, diag *d)
{
    const char *scheme = json_string_value(json_object_get(j, "prepend_scheme"));
    const json_t *split = json_object_get(j, "split");
    if (!scheme) scheme = json_is_false(json_object_get(j, "add_prefix_space")) ? "never" : "always";
    t->prefix_unless_space = true;
    if (!strcmp(scheme, "always")) t->prefix = PREFIX_ALWAYS;
    else if (!strcmp(scheme, "first")) t->prefix = PREFIX_FIRST;
    else if (strcmp(scheme, "never"))
        return tok_bad(d, t, "pre_tokenizer Metaspace: prepend_scheme \"%.40s\" is not supported", scheme);
    if (json_is_false(split)) return AN_OK;
    return add_split(t, (split_step){ .kind = SPLIT_SPACE_FIRST, .name = "words" }, d);
}

static an_status read_pre(tokenizer *t, const json_t *j, const json_style *s, bool first, diag *d)
{
    static const struct {
        const char *type, *regex;
        cut_behavior behavior;
        bool invert;
    } plain[] = {
        { "Whitespace", "\\w+|[^\\w\\s]+", CUT_REMOVED, true },
        { "WhitespaceSplit", "\\s", CUT_REMOVED, false },
        { "Punctuation", "[\\p{P}$+<=>^`|~]", CUT_ISOLATED, false },
    };
    if (is(j, "ByteLevel")) {
        split_step gpt2;
        if (json_is_true(json_object_get(j, "add_prefix_space"))) {
            if (!first)
                return tok_bad(d, t,
                               "pre_tokenizer ByteLevel with add_prefix_space behind another step is not supported");
            t->prefix = PREFIX_ALWAYS, t->prefix_unless_space = true;
        }
        if (json_is_false(json_object_get(j, "use_regex"))) return AN_OK;
        return split_named("gpt2", &gpt2) ? add_split(t, gpt2, d) : AN_BUG;
    }
    if (is(j, "Metaspace")) return read_metaspace(t, j, d);
    if (is(j, "Split")) return read_split(t, j, s, d);
    if (s->marks) return unsupported(t, "together with U+2581 for spaces the pre_tokenizer", j, d);
    if (is(j, "Digits")) {
        bool single = json_is_true(json_object_get(j, "individual_digits"));
        return add_pattern(t, single ? "\\p{N}" : "\\p{N}+", single ? 5 : 6, CUT_ISOLATED, false, d);
    }
    for (size_t i = 0; i < COUNT(plain); i++) {
        cut_behavior b;
        if (!is(j, plain[i].type)) continue;
        TRY(read_behavior(t, j, plain[i].behavior, &b, d));
        return add_pattern(t, plain[i].regex, strlen(plain[i].regex), b, plain[i].invert, d);
    }
    return unsupported(t, "pre_tokenizer", j, d);
}

/* ---- decoder ---- */

static an_status read_decoder(tokenizer *t, const json_t *j, diag *d)
{
    static const char *const done[] = { "ByteLevel", "ByteFallback", "Fuse", "Replace" }; /* in the tokens themselves */
    for (size_t i = 0; i < COUNT(done); i++)
        if (is(j, done[i])) return AN_OK;
    if (is(j, "Metaspace")) {
        t->strip = t->prefix;
        return AN_OK;
    }
    if (is(j, "Strip")) {
        const json_t *start = json_object_get(j, "start"), *stop = json_object_get(j, "stop");
        if (!text_is(json_object_get(j, "content"), " ") || json_number_value(start) > 1 || json_number_value(stop) > 0)
            return tok_bad(d, t, "decoder Strip of anything but one leading space is not supported");
        if (json_number_value(start) > 0) t->strip = t->prefix == PREFIX_NONE ? PREFIX_FIRST : t->prefix;
        return AN_OK;
    }
    return unsupported(t, "decoder", j, d);
}

an_status parts_read(tokenizer *t, const json_t *root, const json_style *style, diag *d)
{
    steps s[3] = { { .n = 0 } };
    t->prefix_after_user = true;
    TRY(all_steps(t, root, s, d));
    for (size_t i = 0; i < s[0].n; i++) TRY(read_norm(t, s[0].at[i], style, d));
    for (size_t i = 0; i < s[1].n; i++) TRY(read_pre(t, s[1].at[i], style, i == 0, d));
    for (size_t i = 0; i < s[2].n; i++) TRY(read_decoder(t, s[2].at[i], d));
    if (t->model != MODEL_BYTE_BPE && t->byte_fallback && !style->byte_out)
        return tok_bad(d, t, "falls back to bytes, and the decoder has no ByteFallback");
    return AN_OK;
}

/* ---- post_processor: which special tokens a text gets ---- */

static an_status read_template(tokenizer *t, const json_t *j, diag *d)
{
    const json_t *list = json_object_get(j, "single");
    size_t i, n;
    json_t *v;
    bool behind = false;
    int before = 0, after = 0;
    json_array_foreach(list, i, v) {
        if (json_object_get(v, "Sequence")) {
            behind = true;
            continue;
        }
        const char *name = js_text(json_object_get(json_object_get(v, "SpecialToken"), "id"), &n);
        if (!name)
            return tok_bad(d, t, "post_processor TemplateProcessing: entry %zu is neither Sequence nor SpecialToken",
                           i);
        int64_t id = tok_find(t, name, n);
        if (id < 0) return tok_bad(d, t, "post_processor uses \"%.40s\", which the vocabulary does not hold", name);
        if (++*(behind ? &after : &before) > 1)
            return tok_bad(d, t, "post_processor puts more than one special token %s a text: not supported",
                           behind ? "behind" : "before");
        if (behind) t->eos = id, t->add_eos = true;
        else t->bos = id, t->add_bos = true;
    }
    return AN_OK;
}

an_status parts_post(tokenizer *t, const json_t *root, diag *d)
{
    steps s = { .n = 0 };
    TRY(flatten(t, json_object_get(root, "post_processor"), "post_processor", "processors", &s, 0, d));
    for (size_t i = 0; i < s.n; i++) {
        if (is(s.at[i], "TemplateProcessing")) TRY(read_template(t, s.at[i], d));
        else if (!is(s.at[i], "ByteLevel"))
            return unsupported(t, "post_processor", s.at[i], d); /* ByteLevel: about offsets only */
    }
    return AN_OK;
}
