/* cmd_probe.c: the programs that would settle a disputed claim on a Mac. */
#include "cli/cli.h"

const option probe_options[] = {
    { "json", NULL, NULL, "the list as one object per line" },
    { "markdown", NULL, NULL, "the list as a document" },
    { NULL, NULL, NULL, NULL },
};

int cmd_probe(const args *a)
{
    if (!a->n_files) return put_text(an_table("probes", arg_format(a)));
    if (a->n_files > 1) return say(AN_USAGE, "probe takes one name, got %d", a->n_files);
    const char *text = an_probe(a->files[0]);
    if (!text) return say(AN_USAGE, "no probe is called \"%s\"; anneal probe lists them", a->files[0]);
    return fputs(text, stdout) < 0;
}
