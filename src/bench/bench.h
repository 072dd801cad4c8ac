/* bench.h: what this machine can do and how much of it we use. Each case checks its answer, measures a bound in the
 * same run, and prints the least and the median time and the fraction of the bound. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include "base/str.h"

enum { BENCH_RUNS = 400 }; /* at most */

/* name: a row of bench.def, or NULL for all of them. format: "text" (a line per case), "json" (an object per line),
 * "markdown" (a table per benchmark). runs: timed runs of a case, after one to warm up; 0: at least three, and until
 * their times are worth something. AN_MISMATCH: an answer is wrong, and nothing was timed after it. */
an_status bench_run(const char *name, const char *format, int runs, strbuf *out, diag *d) MUST_CHECK;
void bench_list(strbuf *out, const char *format); /* names and what they measure */
/* Libraries whose products are timed beside ours where they can be loaded, the i-th; NULL: no more. */
const char *bench_peer(size_t i, bool *found);

#endif
