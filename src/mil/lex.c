/* lex.c: MIL text into tokens, and the memory the reader works in. In: bytes of any kind.  Out: one token at a time
 * with its place. White space, // and block comments separate tokens. Memory: what the module keeps goes to its
 * arena; lists of unknown length grow on one scratch stack and are moved over when complete, so the arena holds no
 * outgrown copies. Both count against one limit: a text that would expand beyond it is bad input, while a failed
 * malloc is the machine's trouble and says so. */
#include <stdarg.h>
#include <stdlib.h>

#include "base/plain.h"
#include "mil/mil_int.h"

enum { SHOW_BYTES = 40, INTERN_BYTES = 255 };

enum { C_WORD = 1, C_DIGIT = 2, C_SPACE = 4, C_PUNCT = 8 };
static const unsigned char class_of[256] = {
    ['A'] = C_WORD, ['B'] = C_WORD, ['C'] = C_WORD, ['D'] = C_WORD, ['E'] = C_WORD, ['F'] = C_WORD, ['G'] = C_WORD,
    ['H'] = C_WORD, ['I'] = C_WORD, ['J'] = C_WORD, ['K'] = C_WORD, ['L'] = C_WORD, ['M'] = C_WORD, ['N'] = C_WORD,
    ['O'] = C_WORD, ['P'] = C_WORD, ['Q'] = C_WORD, ['R'] = C_WORD, ['S'] = C_WORD, ['T'] = C_WORD, ['U'] = C_WORD,
    ['V'] = C_WORD, ['W'] = C_WORD, ['X'] = C_WORD, ['Y'] = C_WORD, ['Z'] = C_WORD, ['_'] = C_WORD, ['a'] = C_WORD,
    ['b'] = C_WORD, ['c'] = C_WORD, ['d'] = C_WORD, ['e'] = C_WORD, ['f'] = C_WORD, ['g'] = C_WORD, ['h'] = C_WORD,
    ['i'] = C_WORD, ['j'] = C_WORD, ['k'] = C_WORD, ['l'] = C_WORD, ['m'] = C_WORD, ['n'] = C_WORD, ['o'] = C_WORD,
    ['p'] = C_WORD, ['q'] = C_WORD, ['r'] = C_WORD, ['s'] = C_WORD, ['t'] = C_WORD, ['u'] = C_WORD, ['v'] = C_WORD,
    ['w'] = C_WORD, ['x'] = C_WORD, ['y'] = C_WORD, ['z'] = C_WORD, ['0'] = C_DIGIT, ['1'] = C_DIGIT, ['2'] = C_DIGIT,
    ['3'] = C_DIGIT, ['4'] = C_DIGIT, ['5'] = C_DIGIT, ['6'] = C_DIGIT, ['7'] = C_DIGIT, ['8'] = C_DIGIT, ['9'] = C_DIGIT,
    [' '] = C_SPACE, ['\t'] = C_SPACE, ['\r'] = C_SPACE, ['\n'] = C_SPACE, ['\f'] = C_SPACE, ['\v'] = C_SPACE,
    ['('] = C_PUNCT, [')'] = C_PUNCT, ['['] = C_PUNCT, [']'] = C_PUNCT, ['{'] = C_PUNCT, ['}'] = C_PUNCT, ['<'] = C_PUNCT,
    ['>'] = C_PUNCT, ['='] = C_PUNCT, [','] = C_PUNCT, [';'] = C_PUNCT, ['?'] = C_PUNCT, [':'] = C_PUNCT, ['*'] = C_PUNCT,
};

static unsigned class_at(const char *s) { return class_of[(unsigned char)*s]; }

static loc place(const reader *p, const char *at)
{
    return (loc){ .line = p->line, .col = (uint32_t)(at - p->line_at) + 1, .off = (size_t)(at - p->s) };
}

/* ---- messages ---- */

an_status fail_at(reader *p, loc at, const char *fmt, ...)
{
    char msg[sizeof p->d->msg];
    va_list ap;
    va_start(ap, fmt);
    plain_vprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    return diag_fail(p->d, AN_INPUT, at, "%s", msg);
}

const char *tok_show(const tok *t, char *buf, size_t n)
{
    if (t->kind == T_END) return "the end of the text";
    size_t cut = MIN(t->n, (size_t)SHOW_BYTES);
    char text[SHOW_BYTES + 1];
    for (size_t i = 0; i < cut; i++)
        text[i] = (unsigned char)t->s[i] < 0x20 || (unsigned char)t->s[i] > 0x7e ? '?' : t->s[i];
    text[cut] = 0;
    snprintf(buf, n, t->kind == T_STRING ? "%s%s" : "'%s%s'", text, cut < t->n ? "..." : "");
    return buf;
}

an_status fail_want(reader *p, const char *want)
{
    char buf[64];
    if (p->t.kind == T_BAD) return p->d->st; /* the lexer has said why */
    return fail_at(p, p->t.at, "expected %s, found %s", want, tok_show(&p->t, buf, sizeof buf));
}

/* ---- tokens ---- */

static void bad(reader *p, tok t, const char *why)
{
    fail_at(p, t.at, "%s", why);
    t.kind = T_BAD;
    p->t = t;
    p->at = p->end;
}

/* To the first byte of a token. false: a comment does not end. */
static bool skip_space(reader *p)
{
    const char *s = p->at, *end = p->end;
    for (;;) {
        while (s < end && class_at(s) == C_SPACE) {
            if (*s == '\n') {
                p->line++;
                p->line_at = s + 1;
            }
            s++;
        }
        if (end - s < 2 || s[0] != '/' || (s[1] != '/' && s[1] != '*')) break;
        if (s[1] == '/') {
            const char *nl = memchr(s, '\n', (size_t)(end - s));
            s = nl ? nl : end;
            continue;
        }
        p->at = s;
        loc open = place(p, s);
        for (s += 2; end - s >= 2 && !(s[0] == '*' && s[1] == '/'); s++)
            if (*s == '\n') {
                p->line++;
                p->line_at = s + 1;
            }
        if (end - s < 2) {
            bad(p, (tok){ .at = open, .s = p->at, .n = 2 }, "comment is not closed: no */ follows");
            return false;
        }
        s += 2;
    }
    p->at = s;
    return true;
}

static const char *scan_number(const char *s, const char *end)
{
    bool hex = end - s > 1 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X');
    for (; s < end; s++) {
        if (class_at(s) & (C_DIGIT | C_WORD) || *s == '.') continue;
        char e = s[-1];
        if ((*s == '+' || *s == '-') && (hex ? e == 'p' || e == 'P' : e == 'e' || e == 'E')) continue;
        break;
    }
    return s;
}

void lex_next(reader *p)
{
    if (p->t.kind == T_BAD || !skip_space(p)) return;
    const char *s = p->at, *end = p->end;
    tok t = { .s = s, .at = place(p, s) };
    if (s == end) {
        p->t = t;
        return;
    }
    unsigned cls = class_at(s);
    const char *q = s + 1;
    if (cls == C_WORD) {
        t.kind = T_WORD;
        while (q < end && (class_at(q) & (C_WORD | C_DIGIT) || *q == '.' || *q == '$' || *q == '@')) q++;
    } else if (cls == C_PUNCT) {
        t.kind = T_PUNCT;
        t.c = *s;
    } else if (cls == C_DIGIT || *s == '.') {
        t.kind = T_NUMBER;
        q = scan_number(s, end);
        if (q == s) q++;
    } else if (*s == '-' || *s == '+') {
        if (*s == '-' && q < end && *q == '>') {
            t.kind = T_ARROW;
            q++;
        } else if (q < end && (class_at(q) & (C_DIGIT | C_WORD) || *q == '.')) {
            t.kind = T_NUMBER;
            q = scan_number(q, end);
            if (q == s + 1) q++;
        } else {
            bad(p, t, "a sign without a number behind it");
            return;
        }
    } else if (*s == '"') {
        t.kind = T_STRING;
        while (q < end && *q != '"' && *q != '\n' && *q) q += *q == '\\' && end - q > 1 && q[1] && q[1] != '\n' ? 2 : 1;
        if (q >= end || *q != '"') {
            t.n = 1;
            bad(p, t, q < end && !*q ? "string holds a NUL byte" : "string is not closed on its line");
            return;
        }
        q++;
    } else {
        char why[80];
        if (!*s) snprintf(why, sizeof why, "NUL byte in the text");
        else snprintf(why, sizeof why, "byte 0x%02x cannot start anything here", (unsigned char)*s);
        t.n = 1;
        bad(p, t, why);
        return;
    }
    t.n = (size_t)(q - s);
    p->at = q;
    p->t = t;
}

bool tok_is(const tok *t, const char *w) { return t->kind == T_WORD && strlen(w) == t->n && !memcmp(t->s, w, t->n); }

bool accept(reader *p, char c)
{
    if (!is_punct(p, c)) return false;
    lex_next(p);
    return true;
}

an_status expect(reader *p, char c)
{
    if (accept(p, c)) return AN_OK;
    return fail_want(p, (char[]){ '\'', c, '\'', 0 });
}

static int hex_value(const char *s, size_t n)
{
    int v = 0;
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        int h = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (h < 0) return -1;
        v = v * 16 + h;
    }
    return v;
}

static size_t put_utf8(unsigned char *o, int c)
{
    if (c < 0x80) return o[0] = (unsigned char)c, 1;
    if (c < 0x800) return o[0] = (unsigned char)(0xc0 | c >> 6), o[1] = (unsigned char)(0x80 | (c & 63)), 2;
    o[0] = (unsigned char)(0xe0 | c >> 12);
    o[1] = (unsigned char)(0x80 | (c >> 6 & 63));
    o[2] = (unsigned char)(0x80 | (c & 63));
    return 3;
}

an_status tok_unquote(reader *p, const tok *t, const char **out)
{
    const char *s = t->s + 1, *end = t->s + t->n - 1;
    size_t n = (size_t)(end - s);
    if (!memchr(s, '\\', n)) {
        if (n <= INTERN_BYTES) {
            mil_name *name = name_of(p, s, n);
            *out = name ? name->s : NULL;
        } else {
            char *copy = READER_TAKE(p, char, n + 1);
            if (copy) memcpy(copy, s, n);
            *out = copy;
        }
        return *out ? AN_OK : p->d->st;
    }
    /* an escape never grows: \uXXXX is six bytes for at most three */
    unsigned char *o = READER_TAKE(p, unsigned char, n + 1);
    if (!o) return p->d->st;
    *out = (const char *)o;
    while (s < end) {
        loc at = { t->at.line, t->at.col + (uint32_t)(s - t->s), t->at.off + (size_t)(s - t->s) };
        if (*s != '\\') {
            *o++ = (unsigned char)*s++;
            continue;
        }
        char c = s[1]; /* the lexer does not end a string behind a backslash */
        static const char from[] = "nrtabfv\"\\'/?", to[] = "\n\r\t\a\b\f\v\"\\'/?";
        const char *k = memchr(from, c, sizeof from - 1);
        size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 0;
        int v = digits && (size_t)(end - s) >= 2 + digits ? hex_value(s + 2, digits) : -1;
        if (k) *o++ = (unsigned char)to[k - from];
        else if (c == '0' || (digits && v == 0)) return fail_at(p, at, "a string cannot hold a NUL character");
        else if (c == 'u' && v >= 0xd800 && v < 0xe000)
            return fail_at(p, at, "\\u%04x is half a surrogate pair; write the character itself in UTF-8", (unsigned)v);
        else if (c == 'x' && v > 0) *o++ = (unsigned char)v;
        else if (c == 'u' && v > 0) o += put_utf8(o, v);
        else
            return fail_at(p, at, "unknown escape \\%c; known: \\\" \\\\ \\n \\r \\t \\a \\b \\f \\v \\xHH \\uHHHH",
                           (unsigned char)c < 0x20 || (unsigned char)c > 0x7e ? '?' : c);
        s += 2 + digits;
    }
    return AN_OK;
}

/* ---- memory ---- */

static bool over(reader *p, size_t more)
{
    size_t used = p->m->mem.used + p->scratch;
    if (more < SIZE_MAX / 4 && used <= p->limit && more <= p->limit - used) return false;
    fail_at(p, p->t.at, "text of %zu bytes needs more than %zu bytes of memory, the most allowed for it",
            (size_t)(p->end - p->s), p->limit);
    return true;
}

void *take(reader *p, size_t n, size_t size, size_t align)
{
    size_t bytes;
    if (!mul_size(n ? n : 1, size, &bytes)) bytes = SIZE_MAX;
    if (over(p, bytes)) return NULL;
    void *at = arena_take(&p->m->mem, n, size, align);
    if (!at) diag_nomem(p->d);
    return at;
}

bool scratch_room(reader *p, void *at_ptr, size_t have, size_t want, size_t elem)
{
    size_t bytes;
    if (!mul_size(want - have, elem, &bytes)) bytes = SIZE_MAX;
    if (over(p, bytes)) return false;
    void *old;
    memcpy(&old, at_ptr, sizeof old);
    unsigned char *at = realloc(old, want * elem);
    if (!at) {
        diag_nomem(p->d);
        return false;
    }
    memset(at + have * elem, 0, bytes);
    memcpy(at_ptr, &at, sizeof at);
    p->scratch += bytes;
    return true;
}

void scratch_drop(reader *p, void *at, size_t bytes)
{
    free(at);
    p->scratch -= bytes;
}

void *tmp_push(reader *p, size_t bytes)
{
    if (p->tmp_cap - p->tmp_n < bytes) {
        size_t cap = MAX(p->tmp_cap * 2, p->tmp_n + bytes + 512);
        if (!scratch_room(p, &p->tmp, p->tmp_cap, cap, 1)) return NULL;
        p->tmp_cap = cap;
    }
    void *at = p->tmp + p->tmp_n;
    p->tmp_n += bytes;
    return memset(at, 0, bytes);
}

void *tmp_keep(reader *p, size_t mark, size_t n, size_t size)
{
    void *to = take(p, n, size, 8); /* 8 suits every element type and every struct of mil.h */
    if (!to) return NULL;
    if (n) memcpy(to, p->tmp + mark, n * size);
    p->tmp_n = mark;
    return to;
}

mil_name *name_of(reader *p, const char *s, size_t n)
{
    if (p->n_name * 2 >= p->cap_slot) {
        uint32_t cap = p->cap_slot ? p->cap_slot * 2 : 128;
        uint32_t *fresh = NULL;
        if (!scratch_room(p, &fresh, 0, cap, sizeof *fresh)) return NULL;
        for (uint32_t k = 0; k < p->n_name; k++) {
            uint32_t i = p->name[k].hash & (cap - 1);
            while (fresh[i]) i = (i + 1) & (cap - 1);
            fresh[i] = k + 1;
        }
        scratch_drop(p, p->name_slot, p->cap_slot * sizeof *fresh);
        p->name_slot = fresh;
        p->cap_slot = cap;
    }
    uint32_t hash = (uint32_t)hash_bytes(s, n, p->seed), i = hash & (p->cap_slot - 1);
    for (; p->name_slot[i]; i = (i + 1) & (p->cap_slot - 1)) {
        mil_name *k = &p->name[p->name_slot[i] - 1];
        if (k->hash == hash && k->n == n && !memcmp(k->s, s, n)) return k;
    }
    if (p->n_name == p->cap_name) {
        uint32_t cap = p->cap_name ? p->cap_name * 2 : 64;
        if (!scratch_room(p, &p->name, p->cap_name, cap, sizeof *p->name)) return NULL;
        p->cap_name = cap;
    }
    char *copy = READER_TAKE(p, char, n + 1);
    if (!copy) return NULL;
    memcpy(copy, s, n);
    p->name[p->n_name] = (mil_name){ .s = copy, .n = (uint32_t)n, .hash = hash };
    p->name_slot[i] = ++p->n_name;
    return &p->name[p->n_name - 1];
}

void reader_free(reader *p)
{
    free(p->tmp);
    free(p->name);
    free(p->name_slot);
    free(p->type_slot);
    free(p->defined);
}
