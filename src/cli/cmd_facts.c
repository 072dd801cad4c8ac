/* cmd_facts.c: what was published about the silicon beside what the software engine does. */
#include "cli/cli.h"

int cmd_facts(const args *a)
{
    if (a->n_files > 1) return say(AN_USAGE, "facts takes one row or family, got %d", a->n_files);
    if (a->n_files && !*a->files[0]) /* every row begins with it */
        return say(AN_USAGE, "facts wants a row or a family, got \"\"; without one it shows all");
    char *text;
    an_facts_total n;
    an_error e = { 0 };
    if (an_facts(&text, &n, arg_format(a), a->n_files ? a->files[0] : NULL, &e)) return say_error(NULL, &e);
    if (!n.pass && !n.fail && !n.off && !n.not_modelled) {
        an_free(text);
        return say(AN_USAGE, "no row begins with \"%s\"; ids are N1 … N86, R1 …, C1 …, W1 …, P1 …, E1 …, F1 …, T1 …",
                   a->files[0]);
    }
    int code = put_text(text);
    return code ? code : n.fail ? an_exit_code(AN_MISMATCH) : 0;
}
