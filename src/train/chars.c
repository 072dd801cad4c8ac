/* chars.c: texts to learn character by character. In: bytes, or a seed.  Out: classes, one per distinct byte.
 *
 * The built-in text is sentences of a small grammar. Words, agreement of number and the order of the parts can be
 * learned in a few hundred steps; which word comes next cannot, so the loss has a floor well above zero. */
#include <stdlib.h>

#include "base/rng.h"
#include "train/digits.h"

enum { HELD = 10 /* a tenth of the text is for testing */ };

an_status train_text_of(const char *bytes, size_t n, const char *what, train_text *out, diag *d)
{
    *out = (train_text){ 0 };
    if (!n) return diag_fail(d, AN_INPUT, NOWHERE, "%.200s: empty text", what);
    if (n > UINT32_MAX)
        return diag_fail(d, AN_INPUT, NOWHERE, "%.200s: text of %zu bytes, wanted at most %u", what, n, UINT32_MAX);
    train_text t = { .n = (int64_t)n, .held = (int64_t)(n / HELD) };
    bool seen[256] = { false };
    uint8_t id[256] = { 0 };
    for (size_t i = 0; i < n; i++) seen[(unsigned char)bytes[i]] = true;
    for (int b = 0; b < 256; b++)
        if (seen[b]) id[b] = (uint8_t)t.classes, t.byte[t.classes++] = (uint8_t)b;
    if (t.classes < 2)
        return diag_fail(d, AN_INPUT, NOWHERE, "%.200s: every byte is 0x%02x: there is nothing to learn", what,
                         t.byte[0]);
    t.id = malloc(n);
    if (!t.id) return diag_nomem(d);
    for (size_t i = 0; i < n; i++) t.id[i] = id[(unsigned char)bytes[i]];
    *out = t;
    return AN_OK;
}

void train_text_free(train_text *t)
{
    free(t->id);
    *t = (train_text){ 0 };
}

/* ---- the built-in text ---- */

#define PICK(list, r) (list)[rng_below((r), COUNT(list))]

static const char *const names[] = { "anna", "ben", "clara", "david", "emma", "finn", "greta", "hugo" };
static const char *const animals[][2] = { { "dog", "dogs" },     { "cat", "cats" },   { "bird", "birds" },
                                          { "horse", "horses" }, { "mouse", "mice" }, { "fish", "fish" } };
static const char *const things[] = { "ball", "stone", "apple", "boat", "flower", "lamp", "hat", "drum" };
static const char *const looks[] = { "red", "small", "old", "quiet", "bright", "heavy", "round", "warm" };
static const char *const acts[][2] = { { "sees", "see" },   { "wants", "want" },    { "finds", "find" },
                                       { "hides", "hide" }, { "carries", "carry" }, { "likes", "like" } };
static const char *const places[] = { "in the garden", "near the river", "under the tree",
                                      "by the window", "on the hill",    "behind the house" };
static const char *const counts[] = { "two", "three", "four", "many" };

static void sentence(strbuf *b, rng *r)
{
    bool many = rng_below(r, 3) == 0;
    if (many) sb_printf(b, "%s %s ", PICK(counts, r), PICK(animals, r)[1]);
    else if (rng_below(r, 2)) sb_printf(b, "%s ", PICK(names, r));
    else sb_printf(b, "the %s %s ", PICK(looks, r), PICK(animals, r)[0]);
    sb_printf(b, "%s the ", PICK(acts, r)[many]);
    if (rng_below(r, 2)) sb_printf(b, "%s ", PICK(looks, r));
    sb_puts(b, PICK(things, r));
    if (rng_below(r, 2)) sb_printf(b, " %s", PICK(places, r));
    sb_puts(b, rng_below(r, 6) ? ". " : ".\n");
}

an_status train_letters(uint64_t seed, size_t n, strbuf *out, diag *d)
{
    rng r = { seed };
    r.s = rng_next(&r);
    while (!out->oom && out->n < n) sentence(out, &r);
    return out->oom ? diag_nomem(d) : AN_OK;
}
