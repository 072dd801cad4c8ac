/* cmd_hwx.c: program files of the engine in words. */
#include "cli/cli.h"

const option hwx_options[] = {
    { "json", NULL, NULL, "one object per line" },
    { "markdown", NULL, NULL, "fields: as a document" },
    { "tasks", "BYTES", NULL, "dump: the file is a bare task stream whose first task has BYTES bytes (628 when it writes every register)" },
    { NULL, NULL, NULL, NULL },
};

static int dump(const args *a, const char *path)
{
    file_bytes f;
    char *text = NULL;
    an_error e = { 0 };
    long first = 0;
    if (arg_on(a, "markdown")) return say(AN_USAGE, "hwx dump prints text or --json");
    if (arg_on(a, "tasks") && !arg_int(a, "tasks", 40, 2048, &first)) return an_exit_code(AN_USAGE);
    int code = read_text(path, &f);
    if (code) return code;
    an_status st = an_hwx_dump(&text, f.at, f.n, (size_t)first, arg_format(a), &e);
    file_drop(&f);
    return st ? say_error(path, &e) : put_text(text);
}

int cmd_hwx(const args *a)
{
    static const char *const only_dump[] = { "tasks", NULL };
    const char *verb = a->n_files ? a->files[0] : "";
    bool is_dump = !strcmp(verb, "dump");
    if (!is_dump && strcmp(verb, "fields"))
        return say(AN_USAGE, "hwx wants \"dump FILE\" or \"fields\", got \"%s\"; see anneal hwx --help", verb);
    if (is_dump)
        return a->n_files == 2 ? dump(a, a->files[1])
                               : say(AN_USAGE, "hwx dump takes one file, got %d", a->n_files - 1);
    if (a->n_files > 1) return say(AN_USAGE, "hwx fields takes no file, got \"%s\"", a->files[1]);
    int code = args_without(a, verb, only_dump);
    return code ? code : put_text(an_table("hwx", arg_format(a)));
}
