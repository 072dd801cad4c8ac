/* facts.h: published behaviour of the engine, row by row, checked against the software one. In: rows.def, the table
 * of what was measured, on which chip.  Out: for each row what we get, and whether that is the same.
 *
 * A row passes because a program written for it, compiled and run on the device it was measured on (soft:m1 …),
 * gives the published answer; legality rows ask the same rules `anneal check` prints, latency rows the cost model.
 * Nothing in the engine knows these rows. A row the cost model misses by more than its stated fidelity is "off" and
 * shows by how much (in JSON: "pass", with "within_fidelity":false); one that nothing here can produce is
 * "not_modelled" and says why. */
#ifndef FACTS_FACTS_H
#define FACTS_FACTS_H

#include "base/str.h"

typedef enum { FACT_PASS, FACT_FAIL, FACT_OFF, FACT_NOT_MODELLED, FACT_STATUSES } fact_status;
const char *fact_status_name(fact_status s); /* "pass", "fail", "off", "not_modelled" */

typedef struct {
    const char *id;       /* "N1" */
    const char *target;   /* chips, "m1" or "m1 m2"; what it was measured on */
    const char *setup, *expected;
    const char *evidence; /* "M" measured, "D" decoded, "P" predicted, "C" community, "R" reconstructed */
    fact_status status;
    /* the cost model's largest error, and what it may be; fidelity 0: the row is not about its figures */
    double error_percent, fidelity_percent;
    char got[320];
    char why[480];        /* data chosen where none was published, tolerance, or why it is not modelled; may be empty */
} fact_result;

size_t facts_count(void);
const char *facts_id(size_t i);
/* The outcome is in r; the call itself fails only for want of memory or a broken invariant. */
an_status facts_run(size_t i, fact_result *r, diag *d) MUST_CHECK;

typedef struct {
    size_t n[FACT_STATUSES];
} facts_total;
/* Runs the row `only`, or every row whose id begins with it (NULL: all), and prints it: "text", "json" (an object
 * per row, then the total), "markdown". Times and host speed never appear in the output: it is the same on every
 * machine. */
an_status facts_print(strbuf *b, const char *format, const char *only, facts_total *total, diag *d) MUST_CHECK;

#endif
