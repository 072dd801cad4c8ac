/* base.h: the few macros every file uses, and the outcome of a call (diag). */
#ifndef BASE_BASE_H
#define BASE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "anneal.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define ROUND_UP(x, to) (((x) + ((to) - 1)) / (to) * (to))
#define TRY(e)                                                                                                        \
    do {                                                                                                              \
        an_status st_ = (e);                                                                                          \
        if (st_) return st_;                                                                                          \
    } while (0)

#if defined(__GNUC__)
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))
#define MUST_CHECK __attribute__((warn_unused_result))
#else
#define PRINTF_LIKE(fmt, args)
#define MUST_CHECK
#endif

/* A place in a text: 1-based line and column, byte offset. line 0 means "no place". */
typedef struct {
    uint32_t line, col;
    size_t off;
} loc;

/* The first failure of a chain of calls. Zero-initialise; later failures are echoes and are dropped. */
typedef struct {
    an_status st;
    loc at;
    char msg[400];
} diag;

an_status diag_fail(diag *d, an_status st, loc at, const char *fmt, ...) PRINTF_LIKE(4, 5);
an_status diag_nomem(diag *d);
#define NOWHERE ((loc){ 0 })

int status_exit_code(an_status st);
const char *status_text(an_status st);

/* Integer products that say when they overflow: false leaves *out untouched. */
bool mul_size(size_t a, size_t b, size_t *out) MUST_CHECK;
bool mul_i64(int64_t a, int64_t b, int64_t *out) MUST_CHECK; /* operands >= 0 */

uint64_t clock_ns(void); /* monotonic */

#endif
