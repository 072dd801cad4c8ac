/* train_int.h: what the two kinds of training share. */
#ifndef CLI_TRAIN_INT_H
#define CLI_TRAIN_INT_H

#include "cli/cli.h"

int train_lm(const args *a); /* a language model */

/* Options as numbers. Absent: *out stays. False after saying on stderr what is wrong. */
bool real_of(const args *a, const char *name, double *out);
bool whole_of(const args *a, const char *name, long lo, int64_t *out);
bool scale_of(const args *a, double *scale, int *dynamic);
bool threads_of(const args *a, int *out);
bool accum_of(const args *a, int *out);

#endif
