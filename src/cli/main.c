/* main.c: find the command, read its arguments, run it. The only place that decides the exit code of the process. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>

#include "cli/cli.h"

int say(an_status st, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fputs("anneal: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    return an_exit_code(st);
}

int say_error(const char *file, const an_error *e)
{
    if (file && e->line && e->column) fprintf(stderr, "%s:%u:%u: %s\n", file, e->line, e->column, e->message);
    else if (file && e->line)
        fprintf(stderr, "%s:%u: %s\n", file, e->line, e->message); /* while running: an instruction keeps its line */
    else if (file) fprintf(stderr, "%s: %s\n", file, e->message);
    else fprintf(stderr, "anneal: %s\n", e->message);
    return an_exit_code(e->status);
}

int put_text(char *text)
{
    if (!text) return say(AN_NOMEM, "out of memory");
    size_t n = strlen(text);
    bool ok = fwrite(text, 1, n, stdout) == n;
    an_free(text);
    return ok ? 0 : say(AN_INPUT, "cannot write to standard output: %s", strerror(errno));
}

void name_file(const char *path, diag *d)
{
    char *in = strstr(d->msg, path);
    size_t n = strlen(path);
    if (!in || in == d->msg || in[-1] != ' ' || in[n] != ':') return;
    memmove(in - 1, in + n, strlen(in + n) + 1);
}

int read_text(const char *path, file_bytes *f)
{
    diag d = { 0 };
    if (!file_read(path, MOST_TEXT, f, &d)) return 0;
    name_file(path, &d);
    fprintf(stderr, "%s: %s\n", path, d.msg);
    return an_exit_code(d.st);
}

char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)MAX(slash - path, 1) : 1;
    char *p = malloc(n + 1);
    if (!p) return NULL;
    memcpy(p, slash ? path : ".", n);
    p[n] = 0;
    return p;
}

static int run(int argc, char **argv)
{
    if (argc < 2) return usage(stderr);
    const char *name = argv[1];
    if (!strcmp(name, "--version") || !strcmp(name, "version")) return printf("anneal %s\n", an_version()), 0;
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
        if (argc < 3) return usage(stdout), 0;
        if (!strcmp(argv[2], "--man")) return help_man();
        const command *c = command_find(argv[2]);
        return c ? help(c, stdout) : unknown_command(argv[2]);
    }
    const command *c = command_find(name);
    if (!c) return unknown_command(name);
    for (int i = 2; i < argc; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return help(c, stdout);
    args a;
    int code = args_read(c, argc - 2, argv + 2, &a);
    a.argv = argv;
    if (!code) code = outputs_apart(&a);
    if (!code) code = c->run(&a);
    args_free(&a);
    return code;
}

int main(int argc, char **argv)
{
    int code = run(argc, argv);
    if (fflush(stdout) || ferror(stdout))
        code = code ? code : say(AN_INPUT, "cannot write to standard output: %s", strerror(errno));
    return code;
}
