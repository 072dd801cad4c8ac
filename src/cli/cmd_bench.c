/* cmd_bench.c: check the answer, then time it. Least and median over the runs, and a fraction of a bound of the same
 * run. */
#include "cli/cli.h"

const option bench_options[] = {
    { "runs", "N", "0", "timed runs of a case, after one to warm up; 0: as many as it takes" },
    { "json", NULL, NULL, "one object per row" },
    { "markdown", NULL, NULL, "a table per benchmark" },
    { NULL, NULL, NULL, NULL },
};

enum { MAX_RUNS = 400 };

/* The names, from the lines of the list. next: the rest of it; false: there is no further one. */
static bool next_name(const char **next, strbuf *name)
{
    const size_t n = strcspn(*next, " \n");
    if (!n) return false;
    name->n = 0;
    sb_putn(name, *next, n);
    *next += strcspn(*next, "\n");
    *next += **next != 0;
    return !name->oom;
}

/* Whether a word is one of the names; if not, all of them are said. */
static int bench_known(const char *word)
{
    char *list = an_bench_list(AN_TEXT);
    strbuf name = { 0 }, names = { 0 };
    bool found = false;
    if (!list) return say(AN_NOMEM, "out of memory");
    for (const char *at = list; next_name(&at, &name);) {
        found |= !strcmp(name.at, word);
        sb_printf(&names, "%s%s", names.n ? ", " : "", name.at);
    }
    int code =
        found ? 0 : say(AN_USAGE, "no benchmark is called \"%.40s\"; there are %s", word, names.at ? names.at : "");
    sb_free(&name), sb_free(&names);
    an_free(list);
    return code;
}

static int bench_named(const char *name, int runs, an_format f)
{
    char *text;
    an_error e = { 0 };
    an_status st = an_bench(&text, name, runs, f, &e);
    int code = text && *text ? put_text(text) : (an_free(text), 0);
    fflush(stdout);
    return st ? say_error(NULL, &e) : code;
}

static int bench_all(int runs, an_format f)
{
    char *list = an_bench_list(AN_TEXT);
    strbuf name = { 0 };
    int code = list ? 0 : say(AN_NOMEM, "out of memory");
    /* each is printed as soon as it is there */
    for (const char *at = list; !code && next_name(&at, &name);) code = bench_named(name.at, runs, f);
    sb_free(&name);
    an_free(list);
    return code;
}

int cmd_bench(const args *a)
{
    long runs;
    if (!arg_int(a, "runs", 0, MAX_RUNS, &runs)) return an_exit_code(AN_USAGE);
    const an_format f = arg_format(a);
    int code = 0;
    if (a->n_files && !strcmp(a->files[0], "list"))
        return a->n_files > 1 ? say(AN_USAGE, "bench list takes no name, got \"%s\"", a->files[1])
                              : put_text(an_bench_list(f));
    /* before the first one runs for a minute */
    for (int i = 0; i < a->n_files && !code; i++) code = bench_known(a->files[i]);
    for (int i = 0; i < a->n_files && !code; i++) code = bench_named(a->files[i], (int)runs, f);
    return code || a->n_files ? code : bench_all((int)runs, f);
}
