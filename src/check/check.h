/* check.h: everything that can be said about a program without running it. In: MIL text, or a graph.  Out: a report:
 * what is wrong with the text, what each chip refuses or spoils, what it costs. Bad text gives a report too; a call
 * fails only when there is no memory or an invariant is broken. */
#ifndef CHECK_CHECK_H
#define CHECK_CHECK_H

#include "graph/graph.h"
#include "target/target.h"

typedef struct {              /* zero means default */
    const char *file;         /* name in messages; NULL: "<text>" */
    const char *model_dir;    /* what @model_path stands for; NULL: weight files are not looked at */
    const chip *const *target;
    size_t n_target;          /* 0: every base chip */
    bool errors_only;         /* keep no warnings and notes */
} check_options;

typedef struct { /* an operation, for the table of costs */
    const char *op, *name;
    loc at;
} check_op;
typedef struct {
    const chip *target;
    prog_cost total;
    const op_cost *op; /* one per entry of ops */
} check_cost;

typedef struct {
    arena mem;            /* holds everything below */
    const char *file;
    const char *text;     /* a copy, for carets; NULL for a graph */
    size_t n_text;
    findings found;       /* about the text first (target NULL), then per target in op order */
    size_t n_errors, n_warnings, n_notes; /* before errors_only */
    VEC(check_op) ops;    /* computing operations; the first CHECK_MAX_OPS of them */
    VEC(check_cost) costs; /* one per target; none when the text is bad */
    size_t n_targets;
    an_status status;     /* AN_OK: no error; AN_INPUT: bad text; AN_UNSUPPORTED: a target refuses */
} check_report;

enum { CHECK_MAX_OPS = 65536, CHECK_MAX_PER_RULE = 500 /* findings of one rule on one target; the rest is counted */ };

an_status check_text(const char *text, size_t n, const check_options *o, check_report **out, diag *d) MUST_CHECK;
an_status check_graph(const graph *g, const check_options *o, check_report **out, diag *d) MUST_CHECK;
void check_free(check_report *r); /* NULL is fine */

/* format: "text" (for people), "json" (an object per line), "markdown". */
void check_print(const check_report *r, const char *format, strbuf *b);
void check_print_ops(const check_report *r, const char *format, strbuf *b); /* what each operation costs */

#endif
