/* api_int.h: what the files of this folder share: handles behind the public header, and the probe programs. */
#ifndef API_API_INT_H
#define API_API_INT_H

#include "anneal.h"
#include "base/str.h"
#include "graph/graph.h"
#include "mil/mil.h"
#include "train/train.h"

/* One small MIL program per disputed claim, embedded from probe/ when the library is built. */
typedef struct {
    const char *name, *claim, *rule, *result, *text;
} probe_text;
extern const probe_text probe_texts[];
extern const size_t n_probe_texts;

an_status api_error(an_error *e, const diag *d); /* copies and returns the status */
/* what a message calls an array: the file it was read from, or its name */
const char *api_array_called(const an_array *a);
const char *api_format(an_format f);             /* the word the table printers take */
char *api_take(strbuf *b);                       /* the text, now the caller's; NULL after an allocation failed */
/* "fp16", "halves", "fp32", NULL */
an_status api_state_form(const char *word, train_state_form *out, diag *d) MUST_CHECK;
an_status api_math_form(const char *word, int *out, diag *d) MUST_CHECK;                 /* "fp32", "bf16", NULL */

/* An option that is a number: 0 or more, and where least is -1 that as well. AN_USAGE names the first that is not. */
typedef struct {
    const char *what;
    double is, least;
} api_bound;
an_status api_bounds(const api_bound *rows, size_t n, diag *d) MUST_CHECK;

graph *api_graph(an_program *p);
const char *api_array_file(const an_array *a); /* it was read from; NULL: none */
an_program *api_program(graph *g); /* takes g over; NULL: no memory, and g is still the caller's */

#endif
