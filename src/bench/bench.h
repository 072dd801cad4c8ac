/* bench.h: what this machine can do and how much of it we use. Each case checks its answer, measures a bound in the same run, and
 * prints the least and the median time and the fraction of the bound. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include "base/str.h"

/* name: a row of bench.def, or NULL for all of them. One line per case; json: one object per line.
 * AN_MISMATCH: an answer is wrong, and nothing was timed after it. */
an_status bench_run(const char *name, bool json, strbuf *out, diag *d) MUST_CHECK;
void bench_list(strbuf *out, bool json); /* names and what they measure */

#endif
