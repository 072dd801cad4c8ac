/* str.c: text building, JSON quoting, and an open-addressing string map. */
#include <math.h>
#include <stdlib.h>

#include "base/plain.h"
#include "base/str.h"

static bool room(strbuf *b, size_t more)
{
    if (b->oom) return false;
    if (b->cap - b->n > more) return true;
    size_t cap = MAX(b->cap * 2, b->n + more + 1);
    cap = MAX(cap, (size_t)256);
    char *p = more > SIZE_MAX / 4 ? NULL : realloc(b->at, cap);
    if (!p) {
        b->oom = true;
        return false;
    }
    b->at = p;
    b->cap = cap;
    return true;
}

void sb_putn(strbuf *b, const char *s, size_t n)
{
    if (!room(b, n)) return;
    if (n) memcpy(b->at + b->n, s, n);
    b->at[b->n += n] = 0;
}

void sb_puts(strbuf *b, const char *s) { sb_putn(b, s, strlen(s)); }

void sb_putc(strbuf *b, char c) { sb_putn(b, &c, 1); }

void sb_printf(strbuf *b, const char *fmt, ...)
{
    char small[256];
    va_list ap;
    va_start(ap, fmt);
    int n = plain_vprintf(small, sizeof small, fmt, ap);
    va_end(ap);
    if (n < 0) return;
    if ((size_t)n < sizeof small) {
        sb_putn(b, small, (size_t)n);
        return;
    }
    if (!room(b, (size_t)n)) return;
    va_start(ap, fmt);
    plain_vprintf(b->at + b->n, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->n += (size_t)n;
}

/* Length of the well-formed UTF-8 sequence at s, 0 if there is none. */
static size_t utf8_len(const unsigned char *s, size_t n)
{
    if (s[0] < 0x80) return 1;
    size_t len = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4 || len > n) return 0;
    for (size_t i = 1; i < len; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if (s[0] == 0xe0 && s[1] < 0xa0) return 0;
    if (s[0] == 0xed && s[1] > 0x9f) return 0;
    if (s[0] == 0xf0 && s[1] < 0x90) return 0;
    if (s[0] == 0xf4 && s[1] > 0x8f) return 0;
    return len;
}

size_t utf8_shown(const unsigned char *s, size_t n)
{
    size_t len = utf8_len(s, n);
    return s[0] < 0x20 || s[0] == 0x7f || (s[0] == 0xc2 && len && s[1] < 0xa0) ? 0 : len; /* C0, delete, C1 */
}

void sb_number(strbuf *b, double x)
{
    if (isfinite(x)) sb_printf(b, "%.9g", x);
    else sb_puts(b, "null");
}

void sb_json(strbuf *b, const char *s, size_t n)
{
    sb_putc(b, '"');
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)s[i];
        size_t len = utf8_len((const unsigned char *)s + i, n - i);
        if (c == '"' || c == '\\') sb_printf(b, "\\%c", c);
        else if (c == '\n') sb_puts(b, "\\n");
        else if (c == '\t') sb_puts(b, "\\t");
        else if (c < 0x20 || c == 0x7f) sb_printf(b, "\\u%04x", c);
        else if (!len) sb_puts(b, "\\ufffd");
        else sb_putn(b, s + i, len);
        i += len ? len : 1;
    }
    sb_putc(b, '"');
}

void sb_free(strbuf *b)
{
    free(b->at);
    *b = (strbuf){ 0 };
}

struct str_slot {
    const char *key; /* NULL: empty */
    size_t n;
    uint32_t value;
};

uint64_t hash_bytes(const void *p, size_t n, uint64_t seed)
{
    const unsigned char *s = p;
    uint64_t h = seed ^ 0x9e3779b97f4a7c15u ^ (n * 0xff51afd7ed558ccdu);
    for (; n >= 8; n -= 8, s += 8) {
        uint64_t w;
        memcpy(&w, s, 8);
        h = (h ^ w) * 0x9fb21c651e98df25u;
        h ^= h >> 32;
    }
    for (; n; n--, s++) h = (h ^ *s) * 0x100000001b3u;
    h ^= h >> 29;
    h *= 0xc4ceb9fe1a85ec53u;
    return h ^ (h >> 32);
}

/* One to one in w: no single word can change unseen. One product leaves a change of the highest bit where it is,
 * whatever the others are: a number whose sign changes could be made up for by the signs of its neighbours. After
 * two it depends on all that came before. */
static uint64_t stir(uint64_t h, uint64_t w)
{
    h = (h ^ w) * 0x9fb21c651e98df25u;
    h = (h ^ (h >> 32)) * 0xd6e8feb86659fd93u;
    return h ^ (h >> 32);
}

static uint64_t word_at(const unsigned char *s)
{
    uint64_t w;
    memcpy(&w, s, sizeof w);
    return w;
}

/* hash_bytes waits for each product before the next; eight rows of them side by side go nearly as fast as memory. Each
 * has a name: rows of an array would be written and read again at every step. */
uint64_t hash_many(const void *p, size_t n, uint64_t seed)
{
    enum { ROWS = 8, STEP = 8 * ROWS };
    const unsigned char *s = p;
    unsigned char last[STEP] = { 0 };
    uint64_t a = 1, b = 2, c = 3, d = 4, e = 5, f = 6, g = 7, h = 8;
    for (size_t left = n; left; s += STEP, left -= MIN(left, (size_t)STEP)) {
        if (left < STEP) s = memcpy(last, s, left);
        a = stir(a, word_at(s)), b = stir(b, word_at(s + 8));
        c = stir(c, word_at(s + 16)), d = stir(d, word_at(s + 24));
        e = stir(e, word_at(s + 32)), f = stir(f, word_at(s + 40));
        g = stir(g, word_at(s + 48)), h = stir(h, word_at(s + 56));
    }
    return hash_bytes((const uint64_t[ROWS]){ a, b, c, d, e, f, g, h }, 8 * ROWS, seed ^ n);
}

static struct str_slot *find(struct str_slot *slots, size_t cap, const char *key, size_t n)
{
    size_t i = (size_t)hash_bytes(key, n, 0) & (cap - 1);
    while (slots[i].key && (slots[i].n != n || (n && memcmp(slots[i].key, key, n)))) i = (i + 1) & (cap - 1);
    return &slots[i];
}

bool str_map_put(arena *a, str_map *m, const char *key, size_t n, uint32_t value)
{
    struct str_slot *s = m->cap ? find(m->slots, m->cap, key, n) : NULL;
    if (s && s->key) return *s = (struct str_slot){ key, n, value }, true;
    if ((m->n + 1) * 3 > m->cap * 2) {
        size_t cap = m->cap ? m->cap * 2 : 16;
        struct str_slot *fresh = TAKE(a, struct str_slot, cap);
        if (!fresh) return false;
        for (size_t i = 0; i < m->cap; i++)
            if (m->slots[i].key) *find(fresh, cap, m->slots[i].key, m->slots[i].n) = m->slots[i];
        m->slots = fresh;
        m->cap = cap;
    }
    m->n++;
    *find(m->slots, m->cap, key, n) = (struct str_slot){ key, n, value };
    return true;
}

bool str_map_get(const str_map *m, const char *key, size_t n, uint32_t *value)
{
    if (!m->cap) return false;
    const struct str_slot *s = find(m->slots, m->cap, key, n);
    if (!s->key) return false;
    if (value) *value = s->value;
    return true;
}
