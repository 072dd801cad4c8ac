/* show.c: an error in a text, for a person: the place, the line it is on, and a caret under it.
 * The text may be anything: control bytes and broken UTF-8 come out as '?', long lines are cut round the place. */
#include "mil/mil_int.h"

enum { SHOW_BEFORE = 70, SHOW_AFTER = 50 };

static size_t printable(const unsigned char *s, size_t n) { return *s == '\t' ? 1 : utf8_shown(s, n); }

void mil_show_error(strbuf *b, const char *file, const char *text, size_t n, loc at, const char *msg)
{
    if (!at.line) {
        sb_printf(b, "%s: error: %s\n", file, msg);
        return;
    }
    sb_printf(b, "%s:%u:%u: error: %s\n", file, at.line, at.col, msg);
    if (!text || at.off > n) return;
    const char *point = text + at.off, *from = point, *to = point;
    while (from > text && from[-1] != '\n' && point - from < SHOW_BEFORE) from--;
    while (to < text + n && *to != '\n' && to - point < SHOW_AFTER) to++;
    bool cut_left = from > text && from[-1] != '\n', cut_right = to < text + n && *to != '\n';
    while (cut_left && from < point && ((unsigned char)*from & 0xc0) == 0x80) from++; /* not inside a character */
    while (cut_right && to > point && ((unsigned char)*to & 0xc0) == 0x80) to--;
    if (to > point && to[-1] == '\r' && !cut_right) to--;

    strbuf caret = { 0 };
    if (cut_left) sb_puts(&caret, "   ");
    if (cut_left) sb_puts(b, "...");
    for (const char *s = from; s < to;) {
        size_t len = printable((const unsigned char *)s, (size_t)(to - s));
        if (s < point) sb_putc(&caret, *s == '\t' ? '\t' : ' ');
        if (len) sb_putn(b, s, len);
        else sb_putc(b, '?');
        s += len ? len : 1;
    }
    sb_puts(b, cut_right ? "...\n" : "\n");
    if (caret.oom) b->oom = true;
    sb_puts(b, caret.at ? caret.at : "");
    sb_puts(b, "^\n");
    sb_free(&caret);
}
