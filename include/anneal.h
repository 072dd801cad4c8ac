/* anneal.h: compile, check and (later) run and train neural networks for Apple's Neural Engine. */
#ifndef ANNEAL_H
#define ANNEAL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define AN_VERSION "0.1.0"

/* Outcomes: name, process exit code, text. The enum, the strings and the exit codes are expansions of this list. */
#define AN_STATUS(X)                                                                                                  \
    X(OK, 0, "ok")                                                                                                    \
    X(MISMATCH, 1, "results differ")                                                                                  \
    X(USAGE, 2, "bad command line")                                                                                   \
    X(INPUT, 3, "bad input")                                                                                          \
    X(UNSUPPORTED, 4, "target cannot run this")                                                                       \
    X(NOMEM, 70, "no memory")                                                                                         \
    X(BUG, 70, "internal invariant broken")

typedef enum {
#define X(name, code, text) AN_##name,
    AN_STATUS(X)
#undef X
} an_status;

#ifdef __cplusplus
}
#endif
#endif
