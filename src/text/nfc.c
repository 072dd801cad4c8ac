/* nfc.c: Unicode canonical composition, for the models whose tokenizers ask for it. A text is taken in segments that
 * begin with a character nothing in front can combine with; each is decomposed, ordered, composed. Linear but for
 * binary searches, and those only in blocks of characters that NFC knows. */
#include <stdlib.h>

#include "text/text_int.h"

static const struct {
    uint32_t c, a, b;
} decompositions[] = {
#define DECOMPOSE(c, a, b) { c, a, b },
#include "text/nfc.def"
};
static const struct {
    uint32_t b, a, c;
} compositions[] = {
#define COMPOSE(b, a, c) { b, a, c },
#include "text/nfc.def"
};
static const struct {
    uint32_t from, to;
    uint8_t ccc;
} combining[] = {
#define COMBINING(from, to, class) { from, to, class },
#include "text/nfc.def"
};
/* Three planes hold all of it. */
static const uint8_t blocks[0x300] = {
#define BLOCK(n) [n] = 1,
#include "text/nfc.def"
};

enum { L0 = 0x1100, V0 = 0x1161, T0 = 0x11a7, NL = 19, NV = 21, NT = 28, S0 = 0xac00, NS = NL * NV * NT };

static uint8_t class_ccc(uint32_t c)
{
    size_t lo = 0, hi = COUNT(combining);
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (combining[mid].to < c) lo = mid + 1;
        else hi = mid;
    }
    return lo < COUNT(combining) && combining[lo].from <= c ? combining[lo].ccc : 0;
}

static size_t find_decomposition(uint32_t c)
{
    size_t lo = 0, hi = COUNT(decompositions);
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (decompositions[mid].c < c) lo = mid + 1;
        else hi = mid;
    }
    return lo < COUNT(decompositions) && decompositions[lo].c == c ? lo : SIZE_MAX;
}

/* First row not before (b, a). */
static size_t find_composition(uint32_t b, uint32_t a)
{
    size_t lo = 0, hi = COUNT(compositions);
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (compositions[mid].b < b || (compositions[mid].b == b && compositions[mid].a < a)) lo = mid + 1;
        else hi = mid;
    }
    return lo;
}

static uint32_t compose(uint32_t a, uint32_t b)
{
    if (a >= L0 && a < L0 + NL && b >= V0 && b < V0 + NV) return S0 + ((a - L0) * NV + (b - V0)) * NT;
    if (a >= S0 && a < S0 + NS && (a - S0) % NT == 0 && b > T0 && b < T0 + NT) return a + (b - T0);
    size_t i = find_composition(b, a);
    return i < COUNT(compositions) && compositions[i].b == b && compositions[i].a == a ? compositions[i].c : 0;
}

static bool joins_before(uint32_t c)
{
    if ((c >= V0 && c < V0 + NV) || (c > T0 && c < T0 + NT)) return true;
    size_t i = find_composition(c, 0);
    return i < COUNT(compositions) && compositions[i].b == c;
}

typedef struct {
    struct { uint32_t c; uint8_t ccc; } *at;
    size_t n, cap;
    bool oom;
} segment;

static void seg_push(segment *g, uint32_t c, uint8_t ccc)
{
    if (g->n == g->cap) {
        size_t cap = MAX(g->cap * 2, (size_t)64);
        void *p = realloc(g->at, cap * sizeof *g->at);
        if (!p) {
            g->oom = true;
            return;
        }
        g->at = p;
        g->cap = cap;
    }
    g->at[g->n].c = c, g->at[g->n++].ccc = ccc;
}

static void decompose(segment *g, uint32_t c)
{
    if (c >= S0 && c < S0 + NS) {
        uint32_t i = c - S0;
        seg_push(g, L0 + i / (NV * NT), 0);
        seg_push(g, V0 + i % (NV * NT) / NT, 0);
        if (i % NT) seg_push(g, T0 + i % NT, 0);
        return;
    }
    size_t k = find_decomposition(c);
    if (k == SIZE_MAX) {
        seg_push(g, c, class_ccc(c));
        return;
    }
    decompose(g, decompositions[k].a); /* depth: four in Unicode, and the table is ours */
    /* seconds never decompose further */
    if (decompositions[k].b) seg_push(g, decompositions[k].b, class_ccc(decompositions[k].b));
}

/* Stable by class: marks of one class keep their order. Counting, so that a page of marks costs no more than a page. */
static void order_marks(segment *g, size_t from, size_t to)
{
    if (to - from < 2) return;
    bool sorted = true;
    for (size_t i = from + 1; i < to; i++) sorted &= g->at[i - 1].ccc <= g->at[i].ccc;
    if (sorted) return;
    size_t start[257] = { 0 }, n = to - from;
    segment copy = { .at = malloc(n * sizeof *copy.at) };
    if (!copy.at) {
        g->oom = true;
        return;
    }
    memcpy(copy.at, g->at + from, n * sizeof *copy.at);
    for (size_t i = 0; i < n; i++) start[copy.at[i].ccc + 1]++;
    for (size_t k = 1; k < 257; k++) start[k] += start[k - 1];
    for (size_t i = 0; i < n; i++) g->at[from + start[copy.at[i].ccc]++] = copy.at[i];
    free(copy.at);
}

static void put_char(strbuf *out, uint32_t c)
{
    unsigned char s[4];
    sb_putn(out, (const char *)s, utf8_put(s, c));
}

static void flush(segment *g, strbuf *out)
{
    for (size_t i = 0, to; i < g->n; i = to) {
        to = i + 1;
        if (!g->at[i].ccc) continue;
        while (to < g->n && g->at[to].ccc) to++;
        order_marks(g, i, to);
    }
    size_t n = 0, starter = SIZE_MAX;
    uint8_t last = 0; /* class of what was kept last behind the starter */
    for (size_t i = 0; i < g->n; i++) {
        bool blocked = starter == SIZE_MAX || (n - 1 > starter && last >= g->at[i].ccc);
        uint32_t c = blocked ? 0 : compose(g->at[starter].c, g->at[i].c);
        if (c) {
            g->at[starter].c = c;
            continue;
        }
        if (!g->at[i].ccc) starter = n;
        last = g->at[i].ccc;
        g->at[n++] = g->at[i];
    }
    for (size_t i = 0; i < n; i++) put_char(out, g->at[i].c);
    g->n = 0;
}

static bool known(uint32_t c) { return c >> 8 < COUNT(blocks) && blocks[c >> 8] && c >= 0xc0; }

bool nfc_plain(const unsigned char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (s[i] >= 0xcc) return false; /* U+0300 is the first that NFC can change or that changes what is before it */
    return true;
}

void nfc_put(const unsigned char *s, size_t n, strbuf *out)
{
    segment g = { 0 }, spare = { 0 };
    uint32_t c;
    for (size_t i = 0, len; i < n; i += len) {
        if (!(len = utf8_read(s + i, n - i, &c))) { /* a stray byte: kept, and nothing joins across it */
            flush(&g, out);
            len = 1;
            sb_putn(out, (const char *)s + i, 1);
            continue;
        }
        if (!known(c)) {
            flush(&g, out);
            seg_push(&g, c, 0);
            continue;
        }
        size_t from = g.n;
        decompose(&g, c);
        /* a new segment: finish the one before */
        if (from && g.n > from && !g.at[from].ccc && !joins_before(g.at[from].c)) {
            size_t more = g.n - from;
            spare.n = 0;
            for (size_t k = from; k < g.n; k++) seg_push(&spare, g.at[k].c, g.at[k].ccc);
            g.n = from;
            flush(&g, out);
            for (size_t k = 0; k < more && !spare.oom; k++) seg_push(&g, spare.at[k].c, spare.at[k].ccc);
        }
    }
    flush(&g, out);
    out->oom |= g.oom || spare.oom;
    free(g.at);
    free(spare.at);
}
