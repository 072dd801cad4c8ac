/* split_int.h: between the two files that split tensors with a too long axis. */
#ifndef PASS_SPLIT_INT_H
#define PASS_SPLIT_INT_H

#include "pass/pass_int.h"

typedef struct {
    int n;        /* 0: the value is whole, and mapped as usual */
    int axis;
    int64_t size; /* of every piece but the last */
    val *at;      /* values of the new graph */
} pieces;

typedef VEC(port_slot) slots;

typedef struct {
    graph *g;   /* being built */
    graph was;  /* as it was, for looking only */
    pass_ctx *c;
    const chip *chip;
    arena *mem;
    rewrite rw;
    const char **rule;
    size_t n_rules;
    bool ports;
    int64_t limit[MAX_RANK + 1][MAX_RANK]; /* by rank and axis; 0: not asked yet */
    int64_t least;                         /* smallest of them: pieces are at most this long */
    pieces *parts;                         /* by old value */
} splitter;

int64_t split_piece(const splitter *s, int64_t extent);
/* AN_UNSUPPORTED, stuck to the graph: the operation, the extent, the limit, and why it stays too long. */
void split_fail(splitter *s, const node *n, int64_t extent, const char *why);
/* part of an old value, whole or in pieces */
val split_range(splitter *s, val old, int axis, int64_t at, int64_t extent);
/* an old value that must be in one piece */
val split_whole(splitter *s, const node *n, val old);
val split_join(splitter *s, const char *name, const val *v, int n, int axis);

/* ---- split_axis.c ---- */
/* n's result restricted to [at, at + extent) along `axis`. in: room for n's operands. */
val split_one(splitter *s, const node *n, int axis, int64_t at, int64_t extent, val *in);
/* The result axis along which an operand that is in pieces runs; -1: none. */
int split_result_axis(splitter *s, const node *n);
/* Work along the long axis itself: reductions, softmax, contractions. false: not such a case (or an error stuck). */
bool split_across(splitter *s, const node *n, int axis);
/* concat that makes a long axis out of shorter ones. */
bool split_concat(splitter *s, const node *n, int axis);

#endif
