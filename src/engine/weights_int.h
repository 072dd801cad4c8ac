/* weights_int.h: a constant being reconstructed: what weights.c (one element after the other), weights_runs.c (many
 * at a time) and digest.c (once more, to compare) share. */
#ifndef ENGINE_WEIGHTS_INT_H
#define ENGINE_WEIGHTS_INT_H

#include "engine/engine_int.h"

typedef struct {
    const const_entry *c;
    const etensor *t;
    const unsigned char *at[4]; /* of the sources */
    unsigned char *to;
    size_t k; /* manifest entry, for messages */
    diag *d;
} const_build;

/* all but `to` */
an_status const_begin(const image *im, const weight_source *w, size_t k, const_build *b, diag *d) MUST_CHECK;
bool const_in_place(const const_build *b);                          /* the bytes of its source are its elements */
an_status const_make(image *im, const const_build *b) MUST_CHECK;   /* its elements, into `to` */
/* weights_runs.c; done false: nothing is written */
an_status const_runs(image *im, const const_build *b, bool *done, diag *d) MUST_CHECK;

#endif
