/* lower_t.h: a graph as MIL and back, for the tests that compare what comes of it. */
#ifndef TESTS_LOWER_T_H
#define TESTS_LOWER_T_H

#include <unistd.h>

#include "base/io.h"
#include "lower/lower.h"
#include "t.h"

static inline bool names_state(const mil_block *f, const char *name)
{
    for (int i = 0; name && i < f->n_in; i++)
        if (!strcmp(f->in[i].name, name)) return f->in[i].type->kind == MT_STATE;
    return false;
}

/* A parameter that is a state is named by read_state and the update alone, by nothing else and not as a result; and
 * what they name is one. */
static inline void states_are_read_and_updated(const mil_module *m, const char *what)
{
    const mil_block *f = mil_main(m);
    for (size_t i = 0; i < f->n_op; i++) {
        const mil_op *s = &f->op[i];
        for (int k = 0; k < s->n_arg; k++)
            for (int q = 0; q < s->arg[k].n; q++) {
                const bool its_place = (!strcmp(s->op, "read_state") && !strcmp(s->arg[k].name, "input")) ||
                                       (!strcmp(s->op, "coreml_update_state") && !strcmp(s->arg[k].name, "state"));
                const char *ref = s->arg[k].item[q].ref;
                if (names_state(f, ref) != its_place)
                    fail_msg("%s: %s(%s = %s): %s", what, s->op, s->arg[k].name, ref ? ref : "a literal",
                             its_place ? "no state" : "a state is no tensor");
            }
        for (int k = 0; k < s->n_out; k++)
            if (s->out[k].type->kind != MT_TENSOR) fail_msg("%s: %s is no tensor", what, s->out[k].name);
    }
    for (int i = 0; i < f->n_out; i++)
        if (names_state(f, f->out[i].ref)) fail_msg("%s: the state %s is returned", what, f->out[i].ref);
}

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
    states_are_read_and_updated(m, what);
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
