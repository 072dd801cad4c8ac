/* lower_t.h: a graph as MIL and back, for the tests that compare what comes of it. */
#ifndef TESTS_LOWER_T_H
#define TESTS_LOWER_T_H

#include <unistd.h>

#include "base/io.h"
#include "lower/lower.h"
#include "t.h"

/* g written, printed, parsed, printed again to the same bytes, and read. in_file: constants of more than two
 * elements are in a weight file below dir/weights while it is read; *files must be closed after the graph is freed. */
static inline graph *lower_and_back(const graph *g, const char *dir, mil_dialect dialect, bool in_file,
                                    const char *what, lower_weights **files)
{
    diag d = { 0 };
    blob_writer w = { 0 };
    mil_module *m = NULL, *again = NULL;
    graph *back = NULL;
    char path[120];
    snprintf(path, sizeof path, "%s/weights/weight.bin", dir);
    unlink(path);
    lower_out o = { .dialect = dialect, .inline_all = !in_file, .inline_max = in_file ? 2 : 0 };
    if (lower_to_mil(g, &o, &m, in_file ? &w : NULL, &d)) fail_msg("%s: write: %s", what, d.msg);
    if (w.count) {
        assert_ok(blob_finish(&w, &d), d);
        assert_ok(file_write(path, w.bytes.at, w.bytes.n, &d), d);
    }
    strbuf t1 = { 0 }, t2 = { 0 };
    mil_print(m, &t1);
    if (mil_parse(t1.at, t1.n, 0, &again, &d))
        fail_msg("%s: parse %u:%u: %s\n%s", what, d.at.line, d.at.col, d.msg, t1.at);
    mil_print(again, &t2);
    if (strcmp(t1.at, t2.at)) fail_msg("%s: printed twice, differs:\n%s\n%s", what, t1.at, t2.at);
    *files = lower_weights_open(dir);
    if (lower_from_mil(again, &(lower_in){ .weights = *files, .need_weights = true }, &back, &d))
        fail_msg("%s: read %u:%u: %s\n%s", what, d.at.line, d.at.col, d.msg, t1.at);
    mil_free(m);
    mil_free(again);
    sb_free(&t1);
    sb_free(&t2);
    sb_free(&w.bytes);
    return back;
}

#endif
