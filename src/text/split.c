/* split.c: where a text is cut before merging. Known patterns by hand, any other by PCRE2.
 * A stray byte (not UTF-8) counts as a symbol: neither letter, digit nor space; PCRE2 sees U+FFFD in its place. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>

#include "text/text_int.h"

static const struct {
    const char *name;
    split_kind kind;
    int digits;
    bool marks;
    const char *regex;
} patterns[] = {
#define PATTERN(name, kind, digits, marks, regex) { name, SPLIT_##kind, digits, marks, regex },
#include "text/pattern.def"
};

static const struct pre_row pre_rows[] = {
#define PRE(name, ignore_merges, ...) { name, { __VA_ARGS__ }, ignore_merges },
#include "text/pattern.def"
};

const struct pre_row *pre_find(const char *name)
{
    for (size_t i = 0; i < COUNT(pre_rows); i++)
        if (!strcmp(pre_rows[i].name, name)) return &pre_rows[i];
    return NULL;
}

const struct pre_row *pre_at(size_t i) { return i < COUNT(pre_rows) ? &pre_rows[i] : NULL; }

const char *split_pattern(const char *name)
{
    for (size_t i = 0; i < COUNT(patterns); i++)
        if (!strcmp(patterns[i].name, name)) return patterns[i].regex;
    return NULL;
}

static bool take_row(size_t i, split_step *out)
{
    *out = (split_step){
        .kind = patterns[i].kind, .digits = patterns[i].digits, .marks = patterns[i].marks, .name = patterns[i].name
    };
    return patterns[i].kind != SPLIT_REGEX;
}

bool split_named(const char *name, split_step *out)
{
    for (size_t i = 0; i < COUNT(patterns); i++)
        if (!strcmp(patterns[i].name, name)) return take_row(i, out);
    return false;
}

bool split_known(const char *p, size_t n, split_step *out)
{
    for (size_t i = 0; i < COUNT(patterns); i++)
        if (strlen(patterns[i].regex) == n && !memcmp(patterns[i].regex, p, n)) return take_row(i, out);
    return false;
}

/* ---- the known patterns ---- */

typedef struct {
    classes *c;
    const unsigned char *s;
    size_t n;
} view;

/* Class of the character at i and its length; a stray byte has no class. */
static inline uint8_t look(const view *v, size_t i, size_t *len)
{
    unsigned char b = v->s[i];
    if (b < 128) return *len = 1, v->c->ascii[b];
    uint32_t cp;
    if ((*len = utf8_read(v->s + i, v->n - i, &cp))) return class_of(v->c, cp);
    return *len = 1, 0;
}

/* Behind the run of characters that have (or, with `without`, lack) a class of `mask`. */
static inline size_t run(const view *v, size_t i, uint8_t mask, bool without)
{
    const uint8_t *ascii = v->c->ascii;
    for (;;) {
        while (i < v->n && v->s[i] < 128 && !(ascii[v->s[i]] & mask) == without) i++;
        if (i >= v->n || v->s[i] < 128) return i;
        size_t len;
        if (!(look(v, i, &len) & mask) != without) return i;
        i += len;
    }
}

/* \s+(?!\S)|\s+ from i, where a space is: all of the run at the end of the text, else all but its last character, at
 * least one. */
static size_t spaces(const view *v, size_t i)
{
    size_t at = i, last = i, len;
    while (at < v->n && look(v, at, &len) & IS_SPACE) last = at, at += len;
    return at == v->n || last == i ? at : last;
}

/* 's 't 're 've 'm 'll 'd at i, where an apostrophe is; any case: U+017F is a caseless s. 0: none. */
static size_t contraction(const view *v, size_t i, bool any_case)
{
    static const char *const two[] = { "re", "ve", "ll" };
    unsigned char low = any_case ? 0x20 : 0;
    if (i + 1 >= v->n) return 0;
    unsigned char a = v->s[i + 1] | low, b = i + 2 < v->n ? v->s[i + 2] | low : 0;
    if (any_case && v->s[i + 1] == 0xc5 && i + 2 < v->n && v->s[i + 2] == 0xbf) return i + 3;
    if (v->s[i + 1] >= 128) return 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return i + 2;
    for (size_t k = 0; k < COUNT(two); k++)
        if (a == (unsigned char)two[k][0] && b == (unsigned char)two[k][1] && v->s[i + 2] < 128) return i + 3;
    return 0;
}

static size_t next_gpt2(const view *v, size_t i)
{
    size_t end, len, at = i;
    if (v->s[i] == '\'' && (end = contraction(v, i, false))) return end;
    if (v->s[i] == ' ' && i + 1 < v->n) at++;
    uint8_t c = look(v, at, &len);
    if (c & IS_LETTER) return run(v, at + len, IS_LETTER, false);
    if (c & IS_NUMBER) return run(v, at + len, IS_NUMBER, false);
    if (!(c & IS_SPACE)) return run(v, at + len, IS_SPACE | IS_LETTER | IS_NUMBER, true);
    return spaces(v, i);
}

static size_t next_cl100k(const view *v, size_t i, int digits, uint8_t word)
{
    size_t end, len, after;
    if (v->s[i] == '\'' && (end = contraction(v, i, true))) return end;
    uint8_t c = look(v, i, &len);
    /* a mark may also be the odd character in front of a word: the piece is the same */
    if (c & word && !(c & IS_LETTER))
        return run(v, i + len, word, false);
    if (c & IS_LETTER) return run(v, i + len, word, false);
    if (!(c & (IS_LINE | IS_NUMBER)) && i + len < v->n && look(v, i + len, &after) & word)
        return run(v, i + len + after, word, false);
    if (c & IS_NUMBER) {
        size_t at = i + len;
        for (int k = 1; k < digits && at < v->n && look(v, at, &len) & IS_NUMBER; k++) at += len;
        return at;
    }
    /* symbols, with one space in front and line ends behind */
    uint8_t no_symbol = (uint8_t)(IS_SPACE | IS_NUMBER | word);
    size_t from = v->s[i] == ' ' ? i + 1 : i;
    if (from < v->n && !(look(v, from, &len) & no_symbol)) {
        end = run(v, from + len, no_symbol, true);
        while (end < v->n && (v->s[end] == '\r' || v->s[end] == '\n')) end++;
        return end;
    }
    /* \s*[\r\n]+: up to the last line end of the run of spaces */
    size_t at = i, line = 0;
    while (at < v->n && (c = look(v, at, &len)) & IS_SPACE) {
        at += len;
        if (c & IS_LINE) line = at;
    }
    return line ? line : spaces(v, i);
}

/* ---- PCRE2 ---- */

/* \s and \S mean Unicode's White_Space in the expressions models come with; PCRE2's would add U+180E. */
static bool translate(const char *p, size_t n, strbuf *out)
{
    bool in_class = false;
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '\\' && i + 1 < n) {
            if (p[i + 1] == 's') sb_puts(out, in_class ? "\\p{Z}\\t-\\r\\x{85}" : "[\\p{Z}\\t-\\r\\x{85}]");
            else if (p[i + 1] == 'S' && !in_class) sb_puts(out, "[^\\p{Z}\\t-\\r\\x{85}]");
            else sb_putn(out, p + i, 2);
            i++;
            continue;
        }
        if (p[i] == '[' && !in_class) {
            in_class = true;
            sb_putc(out, '[');
            if (i + 1 < n && p[i + 1] == '^') sb_putc(out, p[++i]);
            if (i + 1 < n && p[i + 1] == ']') sb_putc(out, p[++i]); /* a bracket that comes first is a member */
            continue;
        }
        if (p[i] == ']') in_class = false;
        sb_putc(out, p[i]);
    }
    return !out->oom;
}

an_status split_compile(const char *pattern, size_t n, void **code, diag *d)
{
    strbuf text = { 0 };
    int error = 0;
    PCRE2_SIZE where = 0;
    *code = NULL;
    if (!translate(pattern, n, &text)) {
        sb_free(&text);
        return diag_nomem(d);
    }
    pcre2_code *c = pcre2_compile((PCRE2_SPTR)(text.at ? text.at : ""), text.n,
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &where, NULL);
    sb_free(&text);
    if (!c && error == PCRE2_ERROR_HEAP_FAILED) return diag_nomem(d);
    if (!c) {
        char why[128] = "";
        pcre2_get_error_message(error, (PCRE2_UCHAR *)why, sizeof why);
        return diag_fail(d, AN_INPUT, NOWHERE, "regular expression \"%.120s\": %s", pattern, why);
    }
    (void)pcre2_jit_compile(c, PCRE2_JIT_COMPLETE); /* without it matching is slower, not different */
    *code = c;
    return AN_OK;
}

void split_free_code(void *code) { pcre2_code_free(code); }

an_status split_scratch_init(split_scratch *s, diag *d)
{
    *s = (split_scratch){ 0 };
    classes_init(&s->cls);
    s->match_data = pcre2_match_data_create(1, NULL);
    pcre2_match_context *mc = pcre2_match_context_create(NULL);
    s->match_context = mc;
    s->jit_stack = pcre2_jit_stack_create((size_t)64 << 10, (size_t)64 << 20, NULL);
    if (!s->match_data || !mc) return diag_nomem(d);
    if (s->jit_stack) pcre2_jit_stack_assign(mc, NULL, s->jit_stack);
    pcre2_set_match_limit(mc, 50000000); /* steps for one match: a hostile expression ends in an error, not in a day */
    pcre2_set_heap_limit(mc, 256 << 10); /* KiB */
    return AN_OK;
}

void split_scratch_free(split_scratch *s)
{
    classes_free(&s->cls);
    pcre2_match_data_free(s->match_data);
    pcre2_match_context_free(s->match_context);
    pcre2_jit_stack_free(s->jit_stack);
    free(s->valid);
    free(s->ranges);
    *s = (split_scratch){ 0 };
}

/* s must be UTF-8. An empty match counts as none. */
static an_status find_valid(split_scratch *x, const void *code, const unsigned char *s, size_t n, size_t at,
                            size_t *from, size_t *to, bool *found, diag *d)
{
    *found = false;
    while (at <= n) {
        int rc = pcre2_match(code, s, n, at, PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, x->match_data, x->match_context);
        if (rc == PCRE2_ERROR_NOMATCH) return AN_OK;
        if (rc == PCRE2_ERROR_NOMEMORY) return diag_nomem(d);
        if (rc < 0) {
            char why[128] = "";
            pcre2_get_error_message(rc, (PCRE2_UCHAR *)why, sizeof why);
            return diag_fail(d, AN_INPUT, NOWHERE,
                             "the tokenizer's regular expression gave up at byte %zu of a text: %s", at, why);
        }
        const PCRE2_SIZE *o = pcre2_get_ovector_pointer(x->match_data);
        *from = o[0], *to = o[1];
        *found = true;
        return AN_OK;
    }
    return AN_OK;
}

an_status regex_find(split_scratch *x, const void *code, const unsigned char *s, size_t n, size_t at, size_t *from,
                     size_t *to, bool *found, diag *d)
{
    return find_valid(x, code, s, n, at, from, to, found, d);
}

/* ---- ranges: matches and what lies between ---- */

static an_status add_range(split_scratch *x, size_t from, size_t to, bool match, diag *d)
{
    if (from == to) return AN_OK;
    if (x->n_ranges == x->cap_ranges) {
        size_t cap = MAX(x->cap_ranges * 2, (size_t)256);
        void *p = realloc(x->ranges, cap * sizeof *x->ranges);
        if (!p) return diag_nomem(d);
        x->ranges = p;
        x->cap_ranges = cap;
    }
    x->ranges[x->n_ranges].from = from;
    x->ranges[x->n_ranges].to = to;
    x->ranges[x->n_ranges++].match = match;
    return AN_OK;
}

static an_status literal_ranges(split_scratch *x, const split_step *p, const unsigned char *s, size_t n, diag *d)
{
    size_t gap = 0;
    for (size_t i = 0; p->literal.n && i + p->literal.n <= n;) {
        const unsigned char *hit = memchr(s + i, (unsigned char)p->literal.at[0], n - p->literal.n + 1 - i);
        if (!hit) break;
        i = (size_t)(hit - s);
        if (memcmp(hit, p->literal.at, p->literal.n)) {
            i++;
            continue;
        }
        TRY(add_range(x, gap, i, false, d));
        TRY(add_range(x, i, i + p->literal.n, true, d));
        gap = i += p->literal.n;
    }
    return add_range(x, gap, n, false, d);
}

/* The text with U+FFFD for each stray byte. */
static an_status make_valid(split_scratch *x, const unsigned char *s, size_t n, size_t *n_out, diag *d)
{
    if (n > SIZE_MAX / 4) return diag_nomem(d);
    if (x->valid_cap < n * 3) {
        unsigned char *p = realloc(x->valid, n * 3);
        if (!p) return diag_nomem(d);
        x->valid = p;
        x->valid_cap = n * 3;
    }
    size_t k = 0;
    uint32_t cp;
    for (size_t i = 0, len; i < n; i += len) {
        if ((len = utf8_read(s + i, n - i, &cp))) memcpy(x->valid + k, s + i, len), k += len;
        else len = 1, k += utf8_put(x->valid + k, 0xfffd);
    }
    *n_out = k;
    return AN_OK;
}

/* A place in the valid copy, moved forward, as a place in the text. */
static void follow(const unsigned char *s, size_t n, size_t *copy, size_t *text, size_t to)
{
    uint32_t cp;
    while (*copy < to) {
        size_t len = utf8_read(s + *text, n - *text, &cp);
        *copy += len ? len : 3;
        *text += len ? len : 1;
    }
}

static an_status regex_ranges(split_scratch *x, const split_step *p, const unsigned char *s, size_t n, diag *d)
{
    bool valid = utf8_valid(s, n), found;
    size_t at = 0, from, to, copy = 0, text = 0, n_copy = n, gap = 0;
    if (!valid) TRY(make_valid(x, s, n, &n_copy, d));
    for (;;) {
        TRY(find_valid(x, p->code, valid ? s : x->valid, n_copy, at, &from, &to, &found, d));
        if (!found) break;
        at = to;
        if (!valid) {
            follow(s, n, &copy, &text, from), from = text;
            follow(s, n, &copy, &text, to), to = text;
        }
        TRY(add_range(x, gap, from, false, d));
        TRY(add_range(x, from, to, true, d));
        gap = to;
    }
    return add_range(x, gap, n, false, d);
}

/* Turn matches and gaps behind `first` into pieces, in place: a piece keeps the bounds, `match` then says whether it
 * is kept. */
static void apply_behavior(split_scratch *x, size_t first, cut_behavior b, bool invert)
{
    size_t k = first, n = x->n_ranges;
    if (invert)
        for (size_t i = first; i < n; i++) x->ranges[i].match = !x->ranges[i].match;
    if (b == CUT_WITH_NEXT) { /* from the end: a match joins what follows it, unless that is a match as well */
        size_t w = n;
        bool was_match = false;
        for (size_t i = n; i-- > first;) {
            bool m = x->ranges[i].match;
            if (m && !was_match && w < n) x->ranges[w].from = x->ranges[i].from;
            else x->ranges[--w] = x->ranges[i];
            was_match = m;
        }
        memmove(x->ranges + first, x->ranges + w, (n - w) * sizeof *x->ranges);
        x->n_ranges = first + (n - w);
        return;
    }
    bool was_match = false;
    for (size_t i = first; i < n; i++) {
        bool m = x->ranges[i].match;
        bool join = k > first && (b == CUT_CONTIGUOUS ? m == was_match : b == CUT_WITH_PREVIOUS && m && !was_match);
        if (b == CUT_REMOVED && m) { /* dropped */ }
        else if (join) x->ranges[k - 1].to = x->ranges[i].to;
        else x->ranges[k++] = x->ranges[i];
        was_match = m;
    }
    x->n_ranges = k;
}

/* ---- steps ---- */

static size_t next_piece(const view *v, const split_step *p, size_t i)
{
    if (p->kind == SPLIT_GPT2) return next_gpt2(v, i);
    if (p->kind == SPLIT_CL100K) return next_cl100k(v, i, p->digits, (uint8_t)(IS_LETTER | (p->marks ? IS_MARK : 0)));
    /* each space begins a piece */
    const unsigned char *hit = i + 1 < v->n ? memchr(v->s + i + 1, ' ', v->n - i - 1) : NULL;
    return hit ? (size_t)(hit - v->s) : v->n;
}

an_status split_text(split_scratch *x, const split_step *steps, size_t n_steps, const unsigned char *s, size_t n,
                     piece_fn *fn, void *user, diag *d)
{
    if (!n) return AN_OK;
    if (!n_steps) return fn(user, s, n, d);
    if (steps->kind != SPLIT_LITERAL && steps->kind != SPLIT_REGEX) {
        view v = { &x->cls, s, n };
        for (size_t i = 0, to; i < n; i = to) {
            to = next_piece(&v, steps, i);
            if (n_steps > 1) TRY(split_text(x, steps + 1, n_steps - 1, s + i, to - i, fn, user, d));
            else TRY(fn(user, s + i, to - i, d));
        }
        return x->cls.oom ? diag_nomem(d) : AN_OK;
    }
    size_t first = x->n_ranges;
    an_status st = steps->kind == SPLIT_LITERAL ? literal_ranges(x, steps, s, n, d) : regex_ranges(x, steps, s, n, d);
    if (!st) apply_behavior(x, first, steps->behavior, steps->invert);
    for (size_t i = first, end = x->n_ranges; i < end && !st; i++)
        st = split_text(x, steps + 1, n_steps - 1, s + x->ranges[i].from, x->ranges[i].to - x->ranges[i].from, fn, user,
                        d);
    x->n_ranges = first;
    return st;
}
