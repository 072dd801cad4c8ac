/* cmd_tables.c: the commands that print a table, and doctor. */
#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "cli/cli.h"

static int no_files(const args *a)
{
    return a->n_files ? say(AN_USAGE, "%s takes no file, got \"%s\"", a->cmd->name, a->files[0]) : 0;
}

static int table(const args *a, const char *which)
{
    int code = no_files(a);
    return code ? code : put_text(an_table(which, arg_format(a)));
}

int cmd_ops(const args *a) { return table(a, "ops"); }
int cmd_rules(const args *a) { return table(a, "rules"); }
int cmd_gates(const args *a) { return table(a, "gates"); }
int cmd_passes(const args *a) { return table(a, "passes"); }
int cmd_isa(const args *a) { return table(a, "isa"); }
int cmd_limits(const args *a) { return table(a, "limits"); }

static int two_tables(const args *a, const char *first, const char *second)
{
    int code = table(a, first);
    if (code) return code;
    if (arg_format(a) != AN_JSON) putchar('\n');
    return table(a, second);
}

int cmd_targets(const args *a) { return two_tables(a, "targets", "profiles"); }
int cmd_kernels(const args *a) { return two_tables(a, "kernels", "models"); }

static bool on_path(const char *tool)
{
    const char *path = getenv("PATH");
    for (const char *p = path; p && *p;) {
        size_t n = strcspn(p, ":");
        char full[1024];
        if (n && snprintf(full, sizeof full, "%.*s/%s", (int)n, p, tool) < (int)sizeof full && !access(full, X_OK))
            return true;
        p += n + (p[n] == ':');
    }
    return false;
}

/* Programs a user may want here: found or not, and how to get them. */
static void put_tools(an_format f)
{
    static const struct {
        const char *what, *for_what, *get;
    } things[] = {
        { "cc", "building", "apt-get install gcc, or xcode-select --install" },
        { "clang", "make fuzz", "apt-get install clang" },
        { "clang-format", "make format", "apt-get install clang-format" },
        { "qemu-aarch64", "testing the other architecture", "apt-get install qemu-user" },
        { "dot", "drawing --emit dot", "apt-get install graphviz" },
    };
    if (f == AN_MARKDOWN) printf("\n| tools | | |\n|---|---|---|\n");
    for (size_t i = 0; i < COUNT(things); i++) {
        bool found = on_path(things[i].what);
        if (f == AN_JSON)
            printf("{\"kind\":\"part\",\"name\":\"%s\",\"found\":%s,\"for\":\"%s\",\"get\":\"%s\"}\n", things[i].what,
                   found ? "true" : "false", things[i].for_what, things[i].get);
        else
            printf(f == AN_MARKDOWN ? "| `%s` | %s | %s%s%s |\n" : "  %-16s %-8s %s%s%s\n", things[i].what,
                   found ? "found" : "missing", things[i].for_what,
                   found ? "" : "; to get it: ", found ? "" : things[i].get);
    }
}

/* What is here and what is missing. A variable of the environment that commands would stop at is a problem here too. */
int cmd_doctor(const args *a)
{
    int code = no_files(a);
    if (code) return code;
    struct utsname u;
    if (uname(&u)) return say(AN_BUG, "uname failed");
    an_format f = arg_format(a);
    if (f == AN_JSON)
        printf("{\"kind\":\"machine\",\"system\":\"%s\",\"machine\":\"%s\",\"version\":\"%s\"}\n", u.sysname, u.machine,
               an_version());
    else printf("anneal %s on %s %s\n", an_version(), u.sysname, u.machine);
    put_tools(f);
    char *text;
    an_error e = { 0 };
    an_status st = an_machine(&text, f, &e);
    code = put_text(text);
    return !code && st ? say_error(NULL, &e) : code;
}
