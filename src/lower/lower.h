/* lower.h: between graphs and MIL modules, both ways.
 * In: a parsed module, or a graph.  Out: the other one. Neither side knows the other; only this folder sees both.
 *
 * Reading binds every statement to the op table: operands by MIL argument name, attributes from compile-time
 * constants, declared result types compared with inferred ones. What the table lacks (an unknown op, nested blocks,
 * an attribute that is a run-time value) stays in the graph as OP_OPAQUE with its declared types, so that checking
 * goes on around it. When its spelling is one of the table's, its operands are in the table's places (NO_VAL where
 * missing; run-time attributes follow) and it carries the attributes that could be read: the rules can still judge
 * it. Writing gives the canonical text form: constants named first, every argument a name, types in full, dead code
 * left out, a state read before it is used or written. */
#ifndef LOWER_LOWER_H
#define LOWER_LOWER_H

#include "graph/graph.h"
#include "mil/mil.h"

/* ---- weight files a program refers to: opened once, mapped until closed ---- */
typedef struct lower_weights lower_weights;
/* model_dir is what @model_path stands for; NULL: no file is ever opened. NULL result: no memory. */
lower_weights *lower_weights_open(const char *model_dir);
void lower_weights_close(lower_weights *w); /* after graph_free: constants look into the mapped files. NULL is fine */
/* The content of a file, under the path as the text writes it; found before any file of that name. Borrowed until
 * closed. */
an_status lower_weights_give(lower_weights *w, const char *path, const void *bytes, size_t n, diag *d) MUST_CHECK;
/* Whether this is one of the files it looked into, under whatever name. NULL for w is fine. */
bool lower_weights_reads(const lower_weights *w, const char *file);
/* The words of the relative path never climb above where they start, and name something. */
bool lower_path_inside(const char *path);
/* The data of one record: a view until closed. */
an_status lower_weights_record(lower_weights *w, const char *path, uint64_t offset, dtype dt, uint64_t bytes,
                               const void **data, diag *d) MUST_CHECK;

/* ---- reading ---- */
/* What reading found wrong while it went on. st AN_OK is a remark, AN_INPUT bad text, AN_UNSUPPORTED beyond the
 * engine. */
typedef struct {
    const char *rule; /* "type", "argument", "weights", "name": fixed strings */
    an_status st;
    loc at;
    const char *op, *name; /* MIL spelling and result name, "" when it is not about an operation */
    const char *msg;
    /* a table op whose operands or attributes its shape and type rules refuse; a chip's rule may say more */
    bool inferred;
} lower_issue;
typedef VEC(lower_issue) lower_issues;

typedef struct {             /* zero means default */
    lower_weights *weights;  /* NULL: constants in files have no content */
    bool need_weights;       /* a constant whose file is missing is an error, not a constant without content */
    size_t limit;            /* bytes the graph may take; 0: none */
    lower_issues *issues;    /* given: errors are collected here and reading goes on with the declared types */
    arena *mem;              /* with issues: holds their strings */
} lower_in;

/* The main function as a graph; opt may be NULL. With opt->issues the result is AN_OK unless memory ran out, and
 * *out is set unless there is no function to read or the list of issues is full (a few hundred), where reading
 * stops. */
an_status lower_from_mil(const mil_module *m, const lower_in *opt, graph **out, diag *d) MUST_CHECK;

/* ---- writing ---- */
/* program(1.3), bare scalars; program(1.0), rank-0 tensors */
typedef enum { DIALECT_IOS18, DIALECT_IOS16 } mil_dialect;
typedef struct {             /* zero means default */
    mil_dialect dialect;
    const char *weight_path; /* NULL: "@model_path/weights/weight.bin" */
    /* most elements of a constant spelled in the text; 0: 16. One that came from a weight file goes to a weight file */
    int inline_max;
    bool inline_all;         /* no weight file: every constant is spelled out */
} lower_out;

/* Constants too large for the text are added to *weights (blob_finish is the caller's); weights may be NULL with
 * inline_all. A constant that has a file reference and no content keeps its reference. Statements and ports of the
 * module have the places of their nodes (`at`). opt may be NULL. AN_UNSUPPORTED: the graph holds an operation only
 * its original text could spell (OP_OPAQUE), or a constant without content. */
an_status lower_to_mil(const graph *g, const lower_out *opt, mil_module **out, blob_writer *weights, diag *d)
    MUST_CHECK;

#endif
