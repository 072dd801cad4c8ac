/* outputs.c: results that would go to one file. Each is written whole, so the later would replace the earlier
 * without a word. */
#include "cli/cli.h"

int outputs_apart(const output *o, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = i + 1; k < n; k++) {
            if (!o[i].file || !o[k].file || !path_same(o[i].file, o[k].file)) continue;
            bool spelt = strcmp(o[i].file, o[k].file);
            return say(AN_USAGE, "--%s%s%s and --%s%s%s both go to \"%s\"%s%s%s: one would replace the other",
                       o[i].option, o[i].name ? " " : "", o[i].name ? o[i].name : "", o[k].option, o[k].name ? " " : "",
                       o[k].name ? o[k].name : "", o[i].file, spelt ? ", also spelt \"" : "", spelt ? o[k].file : "",
                       spelt ? "\"" : "");
        }
    return 0;
}
