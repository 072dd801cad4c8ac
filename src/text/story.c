/* story.c: tells the stories of story.def. A story draws a plot, then a line for each of its stages; a slot is
 * filled when first met and keeps its word. */
#include "base/rng.h"
#include "text/story.h"

enum {
#define LIST(name, ...) LIST_##name,
#include "text/story.def"
    LISTS
};

/* Each list ends with NULL. */
#define LIST(name, ...) static const char *const words_##name[] = { __VA_ARGS__, NULL };
#include "text/story.def"

static const struct {
    const char *name;
    const char *const *words;
} lists[LISTS] = {
#define LIST(name, ...) { #name, words_##name },
#include "text/story.def"
};

enum { PLOT_ANY, PLOT_LOST, PLOT_FOUND, PLOT_SHARE, PLOT_BROKE, PLOT_BAKE, PLOT_STORM, PLOT_RESCUE, PLOT_TRY, PLOT_GROW,
       PLOT_PARTY, PLOT_NIGHT, PLOTS };

static const struct {
    int plot, stage;
    const char *text;
} lines[] = {
#define LINE(plot, stage, text) { PLOT_##plot, stage, text },
#include "text/story.def"
};

enum { CHOICES = 4 }; /* {spot} {spot1} {spot2} {spot3}: the first two are the same */

typedef struct {
    const char *name, *kind;
    bool girl;
} person;

typedef struct {
    rng r;
    person hero, friend;
    int chosen[LISTS][CHOICES]; /* -1: not yet */
    bool met;                   /* the friend */
} teller;

static int list_size(int list)
{
    int n = 0;
    while (lists[list].words[n]) n++;
    return n;
}

/* A word of a list that no other slot of it has taken. */
static const char *word_of(teller *t, int list, int k)
{
    int *mine = &t->chosen[list][k], n = list_size(list);
    if (*mine < 0) {
        bool taken;
        do {
            *mine = (int)rng_below(&t->r, (uint64_t)n);
            taken = false;
            for (int i = 0; i < CHOICES; i++) taken |= i != k && t->chosen[list][i] == *mine;
        } while (taken);
    }
    return lists[list].words[*mine];
}

static person draw_person(teller *t, int k)
{
    person p = { .girl = rng_below(&t->r, 2) };
    bool animal = rng_below(&t->r, 3) == 0;
    p.kind = animal ? word_of(t, LIST_animal, k) : p.girl ? "girl" : "boy";
    p.name = word_of(t, animal ? LIST_nick : p.girl ? LIST_girl : LIST_boy, k);
    return p;
}

static bool is(const char *s, size_t n, const char *want) { return strlen(want) == n && !memcmp(s, want, n); }

/* The word for a slot; NULL: none is called so. */
static const char *slot(teller *t, const char *s, size_t n)
{
    const struct {
        const char *slot, *word;
    } people[] = {
        { "N", t->hero.name }, { "F", t->friend.name }, { "kind", t->hero.kind }, { "fkind", t->friend.kind },
        { "he", t->hero.girl ? "she" : "he" }, { "his", t->hero.girl ? "her" : "his" }, { "him", t->hero.girl ? "her" : "him" },
        { "fhe", t->friend.girl ? "she" : "he" }, { "fhis", t->friend.girl ? "her" : "his" }, { "fhim", t->friend.girl ? "her" : "him" },
    };
    for (size_t i = 0; i < COUNT(people); i++)
        if (is(s, n, people[i].slot)) return t->met |= s[0] == 'F', people[i].word;
    int k = n && s[n - 1] >= '1' && s[n - 1] < '0' + CHOICES ? s[n - 1] - '0' : 0;
    for (int i = 0; i < LISTS; i++)
        if (is(s, k ? n - 1 : n, lists[i].name)) return word_of(t, i, k);
    return NULL;
}

static void put_slot(teller *t, strbuf *out, const char *s, size_t n)
{
    bool article = n > 2 && s[0] == 'a' && s[1] == ' ';
    if (article) s += 2, n -= 2;
    const char *w = slot(t, s, n);
    char lower[24];
    bool capital = false;
    if (!w && n && n < sizeof lower && s[0] >= 'A' && s[0] <= 'Z') {
        memcpy(lower, s, n);
        lower[0] = (char)(lower[0] + 32);
        w = slot(t, lower, n);
        capital = true;
    }
    if (!w) { /* a slot the grammar does not have: shown, so that a test finds it */
        sb_putc(out, '{');
        sb_putn(out, s, n);
        sb_putc(out, '}');
        return;
    }
    if (article) sb_puts(out, strchr("aeiou", w[0]) ? "an " : "a ");
    sb_putc(out, capital && w[0] >= 'a' && w[0] <= 'z' ? (char)(w[0] - 32) : w[0]);
    sb_puts(out, w + 1);
}

static void put_line(teller *t, strbuf *out, const char *s)
{
    while (*s) {
        size_t n = strcspn(s, "{");
        sb_putn(out, s, n);
        s += n;
        if (!*s) return;
        n = strcspn(++s, "}");
        put_slot(t, out, s, n);
        s += n + (s[n] == '}');
    }
}

void story_put(strbuf *out, uint64_t seed, uint64_t index)
{
    teller t = { .r = { seed * 0x9e3779b97f4a7c15u + index } };
    rng_next(&t.r);
    for (int i = 0; i < LISTS; i++)
        for (int k = 0; k < CHOICES; k++) t.chosen[i][k] = -1;
    t.hero = draw_person(&t, 0);
    t.friend = draw_person(&t, 1);
    int plot = 1 + (int)rng_below(&t.r, PLOTS - 1);
    bool any = false;
    for (int stage = 0; stage < 100; stage++) {
        size_t fits[16], n = 0;
        for (size_t i = 0; i < COUNT(lines) && n < COUNT(fits); i++)
            if (lines[i].stage == stage && (lines[i].plot == PLOT_ANY || lines[i].plot == plot) &&
                (stage < 90 || t.met || !strstr(lines[i].text, "{F}")))
                fits[n++] = i;
        if (!n) continue;
        const char *text = lines[fits[rng_below(&t.r, n)]].text;
        if (any && *text) sb_putc(out, ' ');
        put_line(&t, out, text);
        any = true;
    }
    sb_putc(out, '\n');
}

void story_corpus(strbuf *out, uint64_t count, uint64_t seed)
{
    for (uint64_t i = 0; i < count && !out->oom; i++) {
        story_put(out, seed, i);
        sb_puts(out, "<|endoftext|>\n");
    }
}

/* The same as the text of a tokenizer.json. */
static an_status story_tokenizer_json(uint32_t vocab, strbuf *json, diag *d)
{
    enum { STORIES = 1500 };
    strbuf text = { 0 };
    for (uint64_t i = 0; i < STORIES; i++) story_put(&text, 0, i);
    an_status st = text.oom
                       ? diag_nomem(d)
                       : tok_train(text.at, text.n, &(tok_train_options){ .vocab = vocab ? vocab : 1536 }, json, d);
    sb_free(&text);
    return st;
}

an_status story_tokenizer(uint32_t vocab, tokenizer **out, diag *d)
{
    strbuf json = { 0 };
    *out = NULL;
    an_status st = story_tokenizer_json(vocab, &json, d);
    if (!st) st = tok_from_json("builtin:stories", json.at, json.n, out, d);
    sb_free(&json);
    return st;
}
