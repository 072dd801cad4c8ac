/* cmd_check.c: check and cost. Findings and costs are the data (stdout); why a file could not be read goes to
 * stderr. */
#include <stdlib.h>

#include "cli/cli.h"

const option check_options[] = {
    { "target", "m1…m5|all", "all", "chips to check against, comma-separated; also h13, h13g, h17s …" },
    { "json", NULL, NULL, "one object per finding, then one per target with its cost" },
    { "quiet", NULL, NULL, "errors only" },
    { NULL, NULL, NULL, NULL },
};

const option cost_options[] = {
    { "target", "m1…m5|all", "m1", "chips, comma-separated" },
    { "published", NULL, NULL, "no file: the model against published measurements" },
    { "json", NULL, NULL, "one object per line" },
    { "markdown", NULL, NULL, "as a document" },
    { NULL, NULL, NULL, NULL },
};

/* A file that cannot be read is a finding too: exit 3 never comes without one on stdout. */
static int unreadable(const args *a, const char *path, diag *d)
{
    name_file(path, d);
    fprintf(stderr, "%s: %s\n", path, d->msg);
    strbuf b = { 0 };
    if (arg_format(a) == AN_JSON) {
        sb_puts(&b, "{\"rule\":\"file\",\"severity\":\"error\",\"op\":\"\",\"line\":1,\"col\":1,\"message\":");
        sb_json(&b, d->msg, strlen(d->msg));
        sb_puts(
            &b,
            ",\"fix\":\"name a file that can be read\",\"evidence\":\"the system\",\"target\":\"\",\"name\":\"\",\"file\":");
        sb_json(&b, path, strlen(path));
        sb_puts(&b, "}\n");
    } else sb_printf(&b, "%s: error: %s [file]\n", path, d->msg);
    if (!b.oom) fputs(b.at, stdout);
    sb_free(&b);
    return an_exit_code(d->st);
}

/* One file's report, or NULL after saying why. */
static an_report *report_of(const args *a, const char *path, int *code)
{
    file_bytes f;
    diag d = { 0 };
    if (file_read(path, MOST_TEXT, &f, &d)) return *code = unreadable(a, path, &d), NULL;
    char *dir = folder_of(path);
    an_report *r = NULL;
    an_error e = { 0 };
    if (!dir) *code = say(AN_NOMEM, "out of memory");
    else {
        an_check_options o = { .targets = arg_of(a, "target"),
                               .file = strcmp(path, "-") ? path : "<stdin>",
                               .model_dir = dir,
                               .errors_only = arg_on(a, "quiet") };
        if (an_check_mil(&r, (const char *)f.at, f.n, &o, &e)) *code = say_error(NULL, &e);
    }
    free(dir);
    file_drop(&f);
    return r;
}

/* Bad text outranks refusal: the first says the file is wrong, the second that the chip is. */
static int worse(int a, int b)
{
    static const int order[] = { 70, 2, 3, 4 };
    for (size_t i = 0; i < COUNT(order); i++)
        if (a == order[i] || b == order[i]) return order[i];
    return MAX(a, b);
}

static int each_file(const args *a, char *(*print)(const an_report *, an_format))
{
    static const char *stdin_only[] = { "-" };
    const char **files = a->n_files ? a->files : stdin_only;
    int n = MAX(a->n_files, 1), worst = 0;
    for (int i = 0; i < n; i++) {
        int code = 0;
        an_report *r = report_of(a, files[i], &code);
        if (r) {
            code = put_text(print(r, arg_format(a)));
            an_status st = an_report_status(r);
            if (!code) code = an_exit_code(st);
            if (st) /* design: a bad file is named on stderr too */
                for (size_t k = 0; k < an_report_findings(r); k++) {
                    an_finding f;
                    an_report_finding(r, k, &f);
                    if (strcmp(f.severity, "error")) continue;
                    const char *name = strcmp(files[i], "-") ? files[i] : "<stdin>";
                    if (f.line) fprintf(stderr, "%s:%u:%u: %s\n", name, f.line, f.column, f.message);
                    else fprintf(stderr, "%s: %s\n", name, f.message);
                    break;
                }
        }
        an_report_free(r);
        worst = worse(worst, code);
        if (code == an_exit_code(AN_USAGE)) break; /* an unknown target is the same for every file */
    }
    return worst;
}

int cmd_check(const args *a) { return each_file(a, an_report_text); }

int cmd_cost(const args *a)
{
    if (!arg_on(a, "published")) return each_file(a, an_report_op_costs);
    if (a->n_files)
        return say(AN_USAGE, "--published compares the model with its own rows and takes no file, got \"%s\"",
                   a->files[0]);
    return put_text(an_table("published", arg_format(a)));
}
