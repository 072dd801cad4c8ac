/* args.c: one reader of command lines, driven by each command's option table. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "cli/cli.h"

void args_free(args *a)
{
    free(a->files);
    free(a->list);
}

int args_read(const command *c, int argc, char **argv, args *out)
{
    *out = (args){ .cmd = c,
                   .files = calloc((size_t)argc + 1, sizeof *out->files),
                   .list = calloc((size_t)argc + 1, sizeof *out->list) };
    if (!out->files || !out->list) return say(AN_NOMEM, "out of memory");
    for (int i = 0; c->options[i].name; i++) out->value[i] = c->options[i].arg ? c->options[i].def : NULL;
    bool only_files = false;
    for (int i = 0; i < argc; i++) {
        const char *w = argv[i];
        if (only_files || w[0] != '-' || !w[1]) {
            out->files[out->n_files++] = w;
            continue;
        }
        if (!strcmp(w, "--")) {
            only_files = true;
            continue;
        }
        const char *name = w + 1 + (w[1] == '-');
        size_t n = strcspn(name, "=");
        int k = 0;
        while (c->options[k].name && (strlen(c->options[k].name) != n || memcmp(c->options[k].name, name, n))) k++;
        const option *o = &c->options[k];
        if (!o->name) return unknown_option(c, name, n);
        if (!o->arg) {
            if (name[n]) return say(AN_USAGE, "--%s takes no value, got \"%s\"", o->name, name + n + 1);
            out->value[k] = "";
        } else if (name[n]) out->value[k] = name + n + 1;
        else if (o->arg[0] == '[' && (i + 1 == argc || argv[i + 1][0] == '-')) out->value[k] = "";
        else if (i + 1 < argc) out->value[k] = argv[++i];
        else return say(AN_USAGE, "--%s needs a value: %s", o->name, o->arg);
        if (o->arg) out->list[out->n_list].option = o->name, out->list[out->n_list++].value = out->value[k];
    }
    if (arg_on(out, "json") && arg_on(out, "markdown"))
        return say(AN_USAGE, "--json and --markdown are two forms of one output; choose one");
    return 0;
}

const char *arg_of(const args *a, const char *name)
{
    for (int i = 0; a->cmd->options[i].name; i++)
        if (!strcmp(a->cmd->options[i].name, name)) return a->value[i];
    return NULL;
}

size_t arg_count(const args *a, const char *name)
{
    size_t n = 0;
    for (size_t i = 0; i < a->n_list; i++) n += !strcmp(a->list[i].option, name);
    return n;
}

char *args_join(const args *a, const char *name)
{
    strbuf b = { 0 };
    for (size_t i = 0; i < a->n_list; i++)
        if (!strcmp(a->list[i].option, name)) sb_printf(&b, "%s%s", b.n ? "," : "", a->list[i].value);
    if (!b.oom) return b.at;
    sb_free(&b);
    return NULL;
}

bool arg_on(const args *a, const char *name) { return arg_of(a, name) != NULL; }

bool arg_int(const args *a, const char *name, long lo, long hi, long *out)
{
    const char *s = arg_of(a, name);
    char *end;
    errno = 0;
    long v = s ? strtol(s, &end, 10) : 0;
    if (s && *s && !*end && !errno && v >= lo && v <= hi) return *out = v, true;
    say(AN_USAGE, "--%s wants a whole number from %ld to %ld, got \"%s\"", name, lo, hi, s ? s : "");
    return false;
}

int args_without(const args *a, const char *verb, const char *const *names)
{
    for (size_t i = 0; i < a->n_list; i++)
        for (const char *const *n = names; *n; n++)
            if (!strcmp(a->list[i].option, *n))
                return say(AN_USAGE, "%s %s has no option --%s", a->cmd->name, verb, *n);
    for (int i = 0; a->cmd->options[i].name; i++) /* switches have no value, and are not in the list */
        for (const char *const *n = names; *n && !a->cmd->options[i].arg; n++)
            if (!strcmp(a->cmd->options[i].name, *n) && a->value[i])
                return say(AN_USAGE, "%s %s has no option --%s", a->cmd->name, verb, *n);
    return 0;
}

int engine_known(const args *a)
{
    const char *engine = arg_of(a, "engine");
    return !engine || an_engine_known(engine)
               ? 0
               : say(AN_USAGE, "unknown engine \"%s\"; soft:m1 … soft:m5, cpu and null are known", engine);
}

int engine_computes(const args *a)
{
    const char *engine = arg_of(a, "engine");
    if (!engine || strcmp(engine, "null")) return engine_known(a);
    return say(AN_USAGE, "--engine null computes nothing, which %s has no use for; soft:m1 … soft:m5 or cpu is wanted",
               a->cmd->name);
}

an_format arg_format(const args *a)
{
    return arg_on(a, "json") ? AN_JSON : arg_on(a, "markdown") ? AN_MARKDOWN : AN_TEXT;
}

int pair_name(const char *pair, const char *option_name, const char *form, char **name, const char **behind)
{
    const char *eq = strchr(pair, '=');
    *name = NULL;
    if (!eq || eq == pair || !eq[1]) return say(AN_USAGE, "--%s wants %s, got \"%s\"", option_name, form, pair);
    size_t n = (size_t)(eq - pair);
    if (!(*name = malloc(n + 1))) return say(AN_NOMEM, "out of memory");
    memcpy(*name, pair, n);
    (*name)[n] = 0;
    *behind = eq + 1;
    return 0;
}

int read_arrays(const args *a, const char *option_name, an_array **out, size_t *n)
{
    *n = 0;
    for (size_t i = 0; i < a->n_list; i++) {
        const char *file;
        if (strcmp(a->list[i].option, option_name)) continue;
        char *name;
        int code = pair_name(a->list[i].value, option_name, "NAME=FILE.npy", &name, &file);
        if (code) return code;
        an_error e = { 0 };
        an_status st = an_array_read(&out[*n], name, file, &e);
        free(name);
        if (st) return say_error(NULL, &e); /* the reader names the file */
        ++*n;
    }
    return 0;
}

const option table_options[] = {
    { "json", NULL, NULL, "one object per line" },
    { "markdown", NULL, NULL, "as a document" },
    { NULL, NULL, NULL, NULL },
};
