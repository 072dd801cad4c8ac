/* cmd_bench.c: check the answer, then time it. Min and median over the runs, and a fraction of a bound of the same run. */
#include <stdlib.h>

#include "cli/cli.h"

const option bench_options[] = {
    { "runs", "N", "11", "timed runs, after one to warm up" },
    { "json", NULL, NULL, "one object per row" },
    { NULL, NULL, NULL, NULL },
};

enum { MAX_RUNS = 1000 };

typedef struct {
    double min_ms, med_ms;
    double work;            /* what one run handles, in `unit` */
    const char *unit;
    double bound_ms;        /* the same work at the bound */
    const char *bound;      /* what the bound is */
} result;

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Time f over the runs; it returns 0 or an exit code. */
static int timed(int (*f)(void *), void *user, long runs, double *min_ms, double *med_ms)
{
    static double ms[MAX_RUNS];
    int code = f(user);
    for (long i = 0; i < runs && !code; i++) {
        uint64_t t = clock_ns();
        code = f(user);
        ms[i] = (double)(clock_ns() - t) / 1e6;
    }
    qsort(ms, (size_t)runs, sizeof *ms, by_value);
    *min_ms = ms[0];
    *med_ms = ms[runs / 2];
    return code;
}

/* ---- compile: a whole Stories110M training step, graph to MIL ---- */

typedef struct {
    const char *model, *target;
    strbuf text; /* every program, one after the other */
    size_t *end; /* where each program's text ends */
} corpus;

static int compile_all(void *user)
{
    corpus *c = user;
    c->text.n = 0;
    size_t n = an_training_programs(c->model);
    for (size_t k = 0; k < n; k++) {
        an_program *p = NULL;
        an_error e = { 0 };
        an_pass_options o = { .target = c->target };
        char *text = NULL;
        if (!an_program_from_training(&p, c->model, k, &e) && !an_program_optimize(p, &o, &e)) text = an_program_text(p, "mil", &e);
        if (!text) {
            int code = say_error(p ? an_program_name(p) : c->model, &e);
            an_program_free(p);
            return code;
        }
        sb_puts(&c->text, text);
        c->end[k] = c->text.n;
        an_free(text);
        an_program_free(p);
    }
    return c->text.oom ? say(AN_NOMEM, "out of memory") : 0;
}

static int copy_all(void *user)
{
    corpus *c = user;
    strbuf copy = { 0 };
    sb_putn(&copy, c->text.at, c->text.n);
    bool oom = copy.oom;
    sb_free(&copy);
    return oom ? say(AN_NOMEM, "out of memory") : 0;
}

static int check_all(void *user)
{
    corpus *c = user;
    size_t n = an_training_programs(c->model), from = 0;
    for (size_t k = 0; k < n; from = c->end[k++]) {
        an_report *r = NULL;
        an_error e = { 0 };
        an_check_options o = { .targets = "m1,m4", .file = "bench", .errors_only = 1 };
        if (an_check_mil(&r, c->text.at + from, c->end[k] - from, &o, &e)) return say_error("bench", &e);
        an_status st = an_report_status(r);
        if (st) put_text(an_report_text(r, AN_TEXT));
        an_report_free(r);
        if (st) return say(st, "program %zu of %s is not accepted", k, c->model);
    }
    return 0;
}

static int corpus_open(corpus *c)
{
    *c = (corpus){ .model = "stories110m", .target = "m4" };
    c->end = calloc(an_training_programs(c->model) + 1, sizeof *c->end);
    return c->end ? compile_all(c) : say(AN_NOMEM, "out of memory");
}

static void corpus_close(corpus *c)
{
    sb_free(&c->text);
    free(c->end);
}

static int bench_compile(long runs, result *r)
{
    corpus c;
    double med;
    int code = corpus_open(&c);
    if (!code) code = check_all(&c); /* the answer first: every program is accepted */
    if (!code) code = timed(compile_all, &c, runs, &r->min_ms, &r->med_ms);
    if (!code) code = timed(copy_all, &c, runs, &r->bound_ms, &med);
    r->work = (double)an_training_programs(c.model);
    r->unit = "programs";
    r->bound = "copying the text";
    corpus_close(&c);
    return code;
}

/* ---- parse: MIL text to a program and its rules ---- */

static int parse_all(void *user)
{
    corpus *c = user;
    size_t n = an_training_programs(c->model), from = 0;
    for (size_t k = 0; k < n; from = c->end[k++]) {
        an_program *p = NULL;
        an_error e = { 0 };
        if (an_program_from_mil(&p, c->text.at + from, c->end[k] - from, NULL, &e)) return say_error("bench", &e);
        an_program_free(p);
    }
    return 0;
}

/* One look at every byte, the least any reader does. */
static int scan_all(void *user)
{
    corpus *c = user;
    static volatile size_t sink;
    size_t lines = 0;
    for (size_t i = 0; i < c->text.n; i++) lines += c->text.at[i] == '\n' || c->text.at[i] == ';';
    sink = lines;
    return sink == SIZE_MAX;
}

static int bench_read(long runs, result *r, int (*f)(void *))
{
    corpus c;
    double med;
    int code = corpus_open(&c);
    if (!code) code = check_all(&c);
    if (!code) code = timed(f, &c, runs, &r->min_ms, &r->med_ms);
    if (!code) code = timed(scan_all, &c, runs, &r->bound_ms, &med);
    r->work = (double)c.text.n / 1e6;
    r->unit = "MB";
    r->bound = "one look at every byte";
    corpus_close(&c);
    return code;
}

static int bench_parse(long runs, result *r) { return bench_read(runs, r, parse_all); }
static int bench_check(long runs, result *r) { return bench_read(runs, r, check_all); }

static const struct {
    const char *name, *what;
    int (*run)(long runs, result *r);
} benches[] = {
    { "compile", "stories110m training step: kernels built, optimised for m4, printed as MIL", bench_compile },
    { "parse", "the same MIL text read back into graphs", bench_parse },
    { "check", "the same text checked against m1 and m4", bench_check },
};

static int local_bench(size_t i, long runs, bool json)
{
    result r = { 0 };
    int code = benches[i].run(runs, &r);
    if (code) return code;
    if (json)
        printf("{\"bench\":\"%s\",\"runs\":%ld,\"min_ms\":%.3f,\"med_ms\":%.3f,\"work\":%.3f,\"unit\":\"%s\",\"per_s\":%.1f,"
               "\"bound\":\"%s\",\"bound_ms\":%.3f,\"of_bound\":%.4f}\n",
               benches[i].name, runs, r.min_ms, r.med_ms, r.work, r.unit, r.work / r.min_ms * 1e3, r.bound, r.bound_ms, r.bound_ms / r.min_ms);
    else
        printf("%-8s %8.1f ms min %8.1f ms median   %.1f %s, %.0f %s/s; %.2f %% of %s\n         %s\n", benches[i].name, r.min_ms, r.med_ms,
               r.work, r.unit, r.work / r.min_ms * 1e3, r.unit, 100 * r.bound_ms / r.min_ms, r.bound, benches[i].what);
    return 0;
}

/* A benchmark of the compiler (here, on the public header) or of the engine (in the library); NULL: every one of the library's. */
static int bench_named(const char *name, long runs, bool json)
{
    for (size_t i = 0; i < COUNT(benches) && name; i++)
        if (!strcmp(name, benches[i].name)) return local_bench(i, runs, json);
    char *text;
    an_error e = { 0 };
    an_status st = an_bench(&text, name, json ? AN_JSON : AN_TEXT, &e);
    int code = text && *text ? put_text(text) : (an_free(text), 0);
    return st ? say_error(NULL, &e) : code;
}

/* Whether a word is one of the names; if not, all of them are said, since the library knows only its own. */
static int bench_known(const char *name)
{
    strbuf names = { 0 };
    bool found = false, bare = true;
    char *list = an_bench_list(AN_TEXT);
    if (!list) return say(AN_NOMEM, "out of memory");
    for (size_t i = 0; i < COUNT(benches); i++) sb_printf(&names, "%s, ", benches[i].name), found |= !strcmp(name, benches[i].name);
    for (const char *s = list, *end; *s; s = *end ? end + 1 : end) {
        size_t n = strcspn(s, " \n");
        end = s + strcspn(s, "\n");
        sb_printf(&names, "%s%.*s", bare ? "" : ", ", (int)n, s);
        bare = false;
        found |= n == strlen(name) && !memcmp(name, s, n);
    }
    an_free(list);
    int code = found ? 0 : say(AN_USAGE, "no benchmark is called \"%.40s\"; there are %s", name, names.at ? names.at : "");
    sb_free(&names);
    return code;
}

int cmd_bench(const args *a)
{
    long runs;
    if (!arg_int(a, "runs", 1, MAX_RUNS, &runs)) return an_exit_code(AN_USAGE);
    bool json = arg_on(a, "json");
    int code = 0;
    if (a->n_files && !strcmp(a->files[0], "list")) {
        for (size_t i = 0; i < COUNT(benches); i++)
            if (json) printf("{\"bench\":\"%s\",\"what\":\"%s\"}\n", benches[i].name, benches[i].what);
            else printf("%-10s %s\n", benches[i].name, benches[i].what);
        return put_text(an_bench_list(json ? AN_JSON : AN_TEXT));
    }
    for (int i = 0; i < a->n_files && !code; i++) code = bench_known(a->files[i]); /* before the first one runs for a minute */
    for (int i = 0; i < a->n_files && !code; i++) code = bench_named(a->files[i], runs, json), fflush(stdout);
    if (a->n_files) return code;
    for (size_t i = 0; i < COUNT(benches) && !code; i++) code = local_bench(i, runs, json);
    return code ? code : bench_named(NULL, runs, json);
}
