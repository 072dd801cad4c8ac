/* main.c: find the command, read its arguments, run it. The only place that decides the exit code of the process. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>

#include "cli/cli.h"

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

int usage(FILE *to)
{
    fprintf(to, "usage: anneal <command> [options]      anneal <command> --help\n\n");
    for (size_t i = 0; i < COUNT(commands); i++) fprintf(to, "  %-8s %-8s %s\n", commands[i].name, commands[i].args, commands[i].summary);
    fprintf(to, "\nexit: 0 ok · 1 results differ · 2 usage · 3 bad input · 4 the target cannot run this · 70 bug or no memory\n");
    return 2;
}

int help(const command *c, FILE *to)
{
    fprintf(to, "usage: anneal %s %s%s[options]\n%s\n\n", c->name, c->args, *c->args ? " " : "", c->summary);
    for (const option *o = c->options; o->name; o++) {
        char left[64];
        snprintf(left, sizeof left, "--%s%s%s", o->name, o->arg ? " " : "", o->arg ? o->arg : "");
        fprintf(to, "  %-22s %s", left, o->help);
        if (o->def) fprintf(to, " (default %s)", o->def);
        fputc('\n', to);
    }
    fprintf(to, "\nexample: %s\n", c->example);
    return 0;
}

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
    else if (file && e->line) fprintf(stderr, "%s:%u: %s\n", file, e->line, e->message); /* while running: an instruction keeps its line */
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

int read_text(const char *path, file_bytes *f)
{
    diag d = { 0 };
    if (!file_read(path, (size_t)1 << 30, f, &d)) return 0;
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

int main(int argc, char **argv)
{
    if (argc < 2) return usage(stderr);
    const char *name = argv[1];
    if (!strcmp(name, "--version") || !strcmp(name, "version")) return printf("anneal %s\n", an_version()) < 0;
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
        const command *c = argc > 2 ? command_find(argv[2]) : NULL;
        if (c) return help(c, stdout);
        usage(stdout);
        return 0;
    }
    const command *c = command_find(name);
    if (!c) {
        say(AN_USAGE, "there is no command \"%s\"", name);
        return usage(stderr);
    }
    for (int i = 2; i < argc; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return help(c, stdout);
    args a;
    int code = args_read(c, argc - 2, argv + 2, &a);
    a.argv = argv;
    if (!code) code = c->run(&a);
    args_free(&a);
    if (fflush(stdout) || ferror(stdout)) code = code ? code : say(AN_INPUT, "cannot write to standard output: %s", strerror(errno));
    return code;
}
