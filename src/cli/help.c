/* help.c: what the command says of itself: the usage, a command's options, the same as a man page, and guesses at
 * misspelt words. All of it is printed from cmd.def and the option tables, so that a new row needs no second place. */
#include <unistd.h>

#include "cli/cli.h"
#include "cli/ui.h"

#define CMD(name, args_, summary_, options_, example_) extern const option options_[];
#include "cli/cmd.def"
#undef CMD

static const command commands[] = {
#define CMD(name_, args_, summary_, options_, example_) { #name_, args_, summary_, options_, example_, cmd_##name_ },
#include "cli/cmd.def"
#undef CMD
};

const command *command_find(const char *name)
{
    for (size_t i = 0; i < COUNT(commands); i++)
        if (!strcmp(commands[i].name, name)) return &commands[i];
    return NULL;
}

/* ---- two columns ---- */

/* PLAIN: where no terminal is; MOST: longer lines are hard to read */
enum { LEAST_COLUMNS = 40, PLAIN_COLUMNS = 100, MOST_COLUMNS = 120 };

static int columns_for(FILE *to)
{
    int fd = fileno(to);
    return isatty(fd) ? MIN(MAX(ui_columns(fd), LEAST_COLUMNS), MOST_COLUMNS) : PLAIN_COLUMNS;
}

/* Places that n bytes of UTF-8 take on a screen: every character here is one wide. */
static int width_of(const char *s, size_t n)
{
    int w = 0;
    for (size_t i = 0; i < n; i++) w += ((unsigned char)s[i] & 0xc0) != 0x80;
    return w;
}

/* `left`, then `text` from the column `at` on, cut between words; a left side that is too long has a line of its
 * own. */
static void put_row(FILE *to, const char *left, const char *text, int at, int columns)
{
    int x = 2 + width_of(left, strlen(left));
    fprintf(to, "  %s", left);
    if (x + 1 > at) fputc('\n', to), x = 0;
    for (const char *word = text; *word;) {
        size_t n = strcspn(word, " ");
        int w = width_of(word, n);
        if (x < at) fprintf(to, "%*s", at - x, ""), x = at;
        else if (x + 1 + w <= columns) fputc(' ', to), x++;
        else fprintf(to, "\n%*s", at, ""), x = at;
        fwrite(word, 1, n, to);
        x += w;
        word += n;
        word += strspn(word, " ");
    }
    fputc('\n', to);
}

static const char *left_of(const option *o, char *to, size_t n)
{
    snprintf(to, n, "--%s%s%s", o->name, o->arg ? " " : "", o->arg ? o->arg : "");
    return to;
}

/* What the option does, and its default where it has one to show. */
static const char *right_of(const option *o, char *to, size_t n)
{
    bool def = o->def && *o->def;
    snprintf(to, n, "%s%s%s%s", o->help, def ? " (default " : "", def ? o->def : "", def ? ")" : "");
    return to;
}

int usage(FILE *to)
{
    const int columns = columns_for(to);
    fprintf(to, "usage: anneal <command> [options]      anneal <command> --help      anneal --version\n\n");
    for (size_t i = 0; i < COUNT(commands); i++) {
        char left[64];
        snprintf(left, sizeof left, "%-9s %s", commands[i].name, commands[i].args);
        put_row(to, left, commands[i].summary, 30, columns);
    }
    fprintf(
        to,
        "\nexit: 0 ok · 1 results differ · 2 usage · 3 bad input · 4 the target cannot run this · 70 bug or no memory\n");
    return 2;
}

int help(const command *c, FILE *to)
{
    const int columns = columns_for(to);
    char left[80], right[400];
    fprintf(to, "usage: anneal %s %s%s[options]\n%s\n\n", c->name, c->args, *c->args ? " " : "", c->summary);
    for (const option *o = c->options; o->name; o++)
        put_row(to, left_of(o, left, sizeof left), right_of(o, right, sizeof right), 26, columns);
    fprintf(to, "\nexample: %s\n", c->example);
    return 0;
}

/* ---- the man page's part ---- */

/* A dash is a minus, a backslash is itself, and a line must not begin with a point or an apostrophe. */
static void put_roff(const char *s)
{
    if (*s == '.' || *s == '\'') fputs("\\&", stdout);
    for (; *s; s++) {
        if (*s == '-') fputs("\\-", stdout);
        else if (*s == '\\') fputs("\\e", stdout);
        else putchar(*s);
    }
    putchar('\n');
}

/* Commands with the same options, the tables, are told together, where the first of them stands. */
int help_man(void)
{
    char left[80], right[400];
    for (size_t i = 0; i < COUNT(commands); i++) {
        const option *rows = commands[i].options;
        size_t first = 0;
        while (commands[first].options != rows) first++;
        if (first < i) continue;
        printf(".SS anneal %s", commands[i].name);
        for (size_t k = i + 1; k < COUNT(commands); k++)
            if (commands[k].options == rows) printf(", %s", commands[k].name);
        putchar('\n');
        for (const option *o = rows; o->name; o++) {
            fputs(".TP\n.B ", stdout);
            put_roff(left_of(o, left, sizeof left));
            put_roff(right_of(o, right, sizeof right));
        }
        puts(".PP");
        printf("Example: ");
        put_roff(commands[i].example);
    }
    return 0;
}

/* ---- misspelt words ---- */

/* Edit distance. */
static size_t distance(const char *a, size_t na, const char *b)
{
    size_t row[64], nb = strlen(b);
    if (na >= COUNT(row) || nb >= COUNT(row)) return SIZE_MAX;
    for (size_t j = 0; j <= nb; j++) row[j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t best = MIN(MIN(row[j], row[j - 1]) + 1, diagonal + (a[i - 1] != b[j - 1]));
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[nb];
}

typedef struct {
    const char *word;
    size_t n;
    size_t near;      /* distance of the best so far; at first one more than is taken for a slip */
    const char *best; /* NULL: none is near */
} guess;

static guess guess_begin(const char *word, size_t n) { return (guess){ .word = word, .n = n, .near = n < 4 ? 2 : 3 }; }

static void guess_offer(guess *g, const char *candidate)
{
    bool begins = g->n > 1 && !strncmp(candidate, g->word, g->n); /* a word cut short */
    size_t far = begins ? 1 : distance(g->word, g->n, candidate);
    if (far < g->near) g->near = far, g->best = candidate;
}

int unknown_command(const char *word)
{
    guess g = guess_begin(word, strlen(word));
    for (size_t i = 0; i < COUNT(commands); i++) guess_offer(&g, commands[i].name);
    return say(AN_USAGE, "there is no command \"%.80s\"%s%s%s; anneal --help lists them", word,
               g.best ? " (did you mean " : "", g.best ? g.best : "", g.best ? "?)" : "");
}

int unknown_option(const command *c, const char *word, size_t n)
{
    guess g = guess_begin(word, n);
    for (const option *o = c->options; o->name; o++) guess_offer(&g, o->name);
    return say(AN_USAGE, "%s has no option --%.*s%s%s%s; see anneal %s --help", c->name, (int)MIN(n, (size_t)80), word,
               g.best ? " (did you mean --" : "", g.best ? g.best : "", g.best ? "?)" : "", c->name);
}
