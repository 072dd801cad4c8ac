/* norm.c: what is done to a text before it is cut: one step of a tokenizer's list. */
#include <stdlib.h>

#include "text/text_int.h"

/* ---- SentencePiece's compiled character map: a double-array trie of UTF-8 strings, and what they become ---- */

static uint32_t le32(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

an_status norm_charsmap(arena *a, norm_step *s, const void *p, size_t n, diag *d)
{
    const unsigned char *b = p;
    size_t bytes = n >= 4 ? le32(b) : 0;
    if (n < 4 || bytes % 4 || bytes < 4 || bytes > n - 4)
        return diag_fail(d, AN_INPUT, NOWHERE, "the character map of %zu bytes says its trie has %zu", n, bytes);
    uint32_t *units = TAKE(a, uint32_t, bytes / 4);
    /* a NUL follows, so every string in it ends */
    char *text = arena_strn(a, (const char *)b + 4 + bytes, n - 4 - bytes);
    if (!units || !text) return diag_nomem(d);
    for (size_t i = 0; i < bytes / 4; i++) units[i] = le32(b + 4 + 4 * i);
    *s = (norm_step){
        .kind = NORM_CHARSMAP, .units = units, .n_units = bytes / 4, .replacements = { text, n - 4 - bytes }
    };
    return AN_OK;
}

static uint32_t unit_offset(uint32_t u) { return (u >> 10) << ((u & 0x200) >> 6); }

/* Longest string of the map that s begins with; 0: none. */
static size_t map_longest(const norm_step *m, const unsigned char *s, size_t n, tok_str *to)
{
    size_t found = 0;
    uint32_t at = unit_offset(m->units[0]);
    for (size_t i = 0; i < n; i++) {
        at ^= s[i];
        if (at >= m->n_units) break;
        uint32_t u = m->units[at];
        if ((u & 0x800000ffu) != s[i]) break;
        at ^= unit_offset(u);
        if (at >= m->n_units) break;
        if (!(u >> 8 & 1)) continue;
        size_t value = m->units[at] & 0x7fffffffu;
        if (value > m->replacements.n) break;
        found = i + 1;
        *to = (tok_str){ m->replacements.at + value, strlen(m->replacements.at + value) };
    }
    return found;
}

static void run_charsmap(const norm_step *m, const unsigned char *s, size_t n, strbuf *out)
{
    uint32_t cp;
    tok_str to;
    for (size_t i = 0, len; i < n; i += len) {
        if ((len = map_longest(m, s + i, MIN(n - i, (size_t)64), &to))) sb_putn(out, to.at, to.n);
        else {
            if (!(len = utf8_read(s + i, n - i, &cp))) len = 1;
            sb_putn(out, (const char *)s + i, len);
        }
    }
}

/* ---- the others ---- */

static void run_replace(const norm_step *m, const unsigned char *s, size_t n, strbuf *out)
{
    size_t i = 0;
    while (m->from.n && i + m->from.n <= n) {
        const unsigned char *hit = memchr(s + i, (unsigned char)m->from.at[0], n - m->from.n + 1 - i);
        size_t to = hit ? (size_t)(hit - s) : n;
        if (!hit) break;
        sb_putn(out, (const char *)s + i, to - i);
        i = to;
        if (!memcmp(hit, m->from.at, m->from.n)) sb_putn(out, m->to.at, m->to.n), i += m->from.n;
        else sb_putn(out, (const char *)s + i++, 1);
    }
    sb_putn(out, (const char *)s + i, n - i);
}

static an_status run_regex(const norm_step *m, split_scratch *x, const unsigned char *s, size_t n, strbuf *out, diag *d)
{
    if (!utf8_valid(s, n))
        return diag_fail(d, AN_INPUT, NOWHERE,
                         "this tokenizer replaces by a regular expression, which wants UTF-8 text; the text is not");
    size_t at = 0, from, to;
    bool found;
    for (;;) {
        TRY(regex_find(x, m->code, s, n, at, &from, &to, &found, d));
        if (!found) break;
        sb_putn(out, (const char *)s + at, from - at);
        sb_putn(out, m->to.at, m->to.n);
        at = to;
    }
    sb_putn(out, (const char *)s + at, n - at);
    return AN_OK;
}

/* Runs of spaces become one; none at either end. */
static void run_squeeze(const unsigned char *s, size_t n, strbuf *out)
{
    while (n && s[n - 1] == ' ') n--;
    bool space = true;
    for (size_t i = 0; i < n; i++) {
        if (!(s[i] == ' ' && space)) sb_putn(out, (const char *)s + i, 1);
        space = s[i] == ' ';
    }
}

an_status norm_run(const norm_step *m, split_scratch *x, const unsigned char *s, size_t n, strbuf *out, diag *d)
{
    out->n = 0;
    switch (m->kind) {
    case NORM_NFC:
        if (nfc_plain(s, n)) sb_putn(out, (const char *)s, n);
        else nfc_put(s, n, out);
        break;
    case NORM_REPLACE: run_replace(m, s, n, out); break;
    case NORM_REPLACE_REGEX: TRY(run_regex(m, x, s, n, out, d)); break;
    case NORM_CHARSMAP: run_charsmap(m, s, n, out); break;
    case NORM_SQUEEZE: run_squeeze(s, n, out); break;
    case NORM_STRIP: {
        size_t from = 0, to = n, len;
        uint32_t cp;
        while (m->left && from < to && (len = utf8_read(s + from, to - from, &cp)) && class_of(&x->cls, cp) & IS_SPACE)
            from += len;
        while (m->right && to > from) {
            size_t at = to - 1;
            while (at > from && (s[at] & 0xc0) == 0x80) at--;
            if (utf8_read(s + at, to - at, &cp) != to - at || !(class_of(&x->cls, cp) & IS_SPACE)) break;
            to = at;
        }
        sb_putn(out, (const char *)s + from, to - from);
        break;
    }
    }
    return out->oom ? diag_nomem(d) : AN_OK;
}
