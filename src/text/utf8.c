/* utf8.c: characters, GPT-2's printable bytes, and classes of characters. Classes come from PCRE2 itself, so that
 * the hand-written splitters and any regular expression agree whatever Unicode version it has. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>

#include "text/text_int.h"

size_t utf8_read(const unsigned char *s, size_t n, uint32_t *cp)
{
    if (!n) return 0;
    if (s[0] < 0x80) return *cp = s[0], 1;
    if (s[0] < 0xc2 || s[0] > 0xf4) return 0;
    size_t len = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (len > n) return 0;
    for (size_t i = 1; i < len; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    uint32_t c = s[0] & (0xffu >> (len + 1));
    for (size_t i = 1; i < len; i++) c = c << 6 | (s[i] & 0x3fu);
    static const uint32_t least[5] = { 0, 0, 0x80, 0x800, 0x10000 };
    if (c < least[len] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return 0;
    *cp = c;
    return len;
}

size_t utf8_put(unsigned char *to, uint32_t c)
{
    if (c < 0x80) return to[0] = (unsigned char)c, 1;
    if (c < 0x800) return to[0] = (unsigned char)(0xc0 | c >> 6), to[1] = (unsigned char)(0x80 | (c & 63)), 2;
    if (c < 0x10000) {
        to[0] = (unsigned char)(0xe0 | c >> 12), to[1] = (unsigned char)(0x80 | (c >> 6 & 63)),
        to[2] = (unsigned char)(0x80 | (c & 63));
        return 3;
    }
    to[0] = (unsigned char)(0xf0 | c >> 18), to[1] = (unsigned char)(0x80 | (c >> 12 & 63));
    to[2] = (unsigned char)(0x80 | (c >> 6 & 63)), to[3] = (unsigned char)(0x80 | (c & 63));
    return 4;
}

size_t utf8_span(const unsigned char *s, size_t n)
{
    uint32_t cp;
    size_t i = 0;
    for (size_t len; i < n; i += len) {
        if (s[i] < 0x80) {
            len = 1;
            continue;
        }
        if (!(len = utf8_read(s + i, n - i, &cp))) break;
    }
    return i;
}

bool utf8_valid(const unsigned char *s, size_t n) { return utf8_span(s, n) == n; }

/* Printable Latin-1 stands for itself; the other 68 bytes, in order, are U+0100 and up. */
static bool printable(uint32_t b)
{
    return (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff);
}

uint32_t byte_to_char(unsigned char b)
{
    if (printable(b)) return b;
    if (b <= 0x20) return 0x100u + b;
    if (b == 0xad) return 0x143;
    return 0x121u + (b - 0x7fu); /* 0x7f … 0xa0 */
}

int char_to_byte(uint32_t c)
{
    if (c < 0x100) return printable(c) ? (int)c : -1;
    if (c <= 0x120) return (int)c - 0x100;
    if (c <= 0x142) return (int)(c - 0x121 + 0x7f);
    return c == 0x143 ? 0xad : -1;
}

/* ---- classes ---- */

static const struct {
    const char *pattern;
    uint8_t bit;
} class_rows[] = {
    { "\\p{L}", IS_LETTER | IS_WORD },
    { "\\p{N}", IS_NUMBER | IS_WORD },
    { "\\p{M}", IS_MARK | IS_WORD },
    { "\\p{Pc}", IS_WORD },
    { "[\\p{Z}\\t-\\r\\x{85}]", IS_SPACE }, /* Unicode's White_Space; PCRE2's own \s adds U+180E */
    { "[\\r\\n]", IS_LINE },
};

/* One page: each pattern is matched against the 256 characters one by one. */
static bool fill_page(uint8_t *page, uint32_t first)
{
    bool ok = true;
    for (size_t k = 0; k < COUNT(class_rows) && ok; k++) {
        int error;
        PCRE2_SIZE where;
        pcre2_code *code = pcre2_compile((PCRE2_SPTR)class_rows[k].pattern, PCRE2_ZERO_TERMINATED,
                                         PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &where, NULL);
        pcre2_match_data *md = code ? pcre2_match_data_create_from_pattern(code, NULL) : NULL;
        ok = md != NULL;
        for (uint32_t i = 0; i < 256 && ok; i++) {
            unsigned char s[4];
            if (first + i >= 0xd800 && first + i < 0xe000) continue;
            size_t len = utf8_put(s, first + i);
            if (pcre2_match(code, s, len, 0, PCRE2_NO_UTF_CHECK, md, NULL) > 0) page[i] |= class_rows[k].bit;
        }
        pcre2_match_data_free(md);
        pcre2_code_free(code);
    }
    return ok;
}

uint8_t class_of(classes *c, uint32_t cp)
{
    if (cp < 128) return c->ascii[cp];
    uint8_t **page = &c->page[cp >> 8];
    if (!*page) {
        *page = calloc(256, 1);
        if (!*page || !fill_page(*page, cp & ~0xffu)) {
            free(*page);
            *page = NULL;
            c->oom = true; /* the caller looks once, at the end */
            return 0;
        }
    }
    return (*page)[cp & 255];
}

void classes_init(classes *c)
{
    *c = (classes){ 0 };
    for (uint32_t b = 0; b < 128; b++) {
        bool letter = (b | 32) >= 'a' && (b | 32) <= 'z', digit = b >= '0' && b <= '9';
        c->ascii[b] = (uint8_t)((letter ? IS_LETTER | IS_WORD : 0) | (digit ? IS_NUMBER | IS_WORD : 0) |
                                (b == '_' ? IS_WORD : 0) | (b == ' ' || (b >= 9 && b <= 13) ? IS_SPACE : 0) |
                                (b == '\r' || b == '\n' ? IS_LINE : 0));
    }
}

void classes_free(classes *c)
{
    for (size_t i = 0; i < COUNT(c->page); i++) free(c->page[i]);
    *c = (classes){ 0 };
}
