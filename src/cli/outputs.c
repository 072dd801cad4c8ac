/* outputs.c: results that would go to one file. Each is written whole, so the later would replace the earlier without a word. */
#include <stdlib.h>

#include "cli/cli.h"

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Neither is there yet: the same name in the same folder. */
static bool will_be_same(const char *a, const char *b)
{
    path_info x, y;
    char *in_a = folder_of(a), *in_b = folder_of(b);
    bool same = in_a && in_b && !strcmp(base_name(a), base_name(b)) && path_look(in_a, &x) && path_look(in_b, &y) && x.device == y.device && x.inode == y.inode;
    free(in_a);
    free(in_b);
    return same;
}

/* A device or a pipe takes both, and /dev/null is meant to lose them; standard output by its short name is for one. */
static bool same_file(const char *a, const char *b)
{
    path_info x, y;
    bool a_is = path_look(a, &x), b_is = path_look(b, &y);
    if (!strcmp(a, b)) return !a_is || x.plain || x.folder;
    if (a_is != b_is) return false;
    return a_is ? (x.plain || x.folder) && x.device == y.device && x.inode == y.inode : will_be_same(a, b);
}

int outputs_apart(const output *o, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = i + 1; k < n; k++) {
            if (!o[i].file || !o[k].file || !same_file(o[i].file, o[k].file)) continue;
            bool spelt = strcmp(o[i].file, o[k].file);
            return say(AN_USAGE, "--%s%s%s and --%s%s%s both go to \"%s\"%s%s%s: one would replace the other", o[i].option, o[i].name ? " " : "", o[i].name ? o[i].name : "",
                       o[k].option, o[k].name ? " " : "", o[k].name ? o[k].name : "", o[i].file, spelt ? ", also spelt \"" : "", spelt ? o[k].file : "", spelt ? "\"" : "");
        }
    return 0;
}
