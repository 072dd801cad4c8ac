/* pass.h: optimisation and target legalisation of a graph, in place. In: a graph that graph_verify accepts, and
 * optionally a chip.  Out: a graph with the same meaning that the chip is more likely to take; every pass is one row
 * of the table in pass.c and is verified after it ran.
 *
 * Clean-up passes change no result, not even in fp16 and not even the sign of a zero. Legalisation rewrites an
 * operation only where a row of the target's rules fires and names the rewrite. Rewrites that change the program's
 * interface (port names, port sizes) run only when asked, and what they did is in the port plan. */
#ifndef PASS_PASS_H
#define PASS_PASS_H

#include "graph/graph.h"
#include "target/target.h"

enum { PASS_MAX_ROUNDS = 20, PASS_MAX = 32 };

typedef struct {
    const chip *target;     /* NULL: no legalisation */
    int level;              /* 0: dead code and legalisation only; 1: everything */
    bool ports;             /* legalisation may rename, pad and split the program's inputs and outputs */
    const char *dump_after; /* a pass name, or "all"; NULL: none */
    void (*dump)(void *user, const char *pass, const graph *g); /* called after that pass whenever it ran */
    void *user;
} pass_options;

/* Where a tensor of the original interface lives now. A port holds the block of the original tensor that starts at `at`
 * (zeros unless the port was split) with the extents `part`, in its own corner from index 0; the rest of `type` is
 * padding: ignored on inputs, zero on outputs. Strings live in the graph's arena. */
typedef struct {
    const char *name;      /* in the program now */
    const char *orig_name; /* as it was before the first pass */
    ttype type;            /* declared now */
    ttype orig_type;
    shape part;            /* extents of the block this port carries */
    int64_t at[MAX_RANK];  /* where the block starts in the original tensor */
} port_slot;

typedef struct {
    port_slot *in, *out; /* in declaration order of the graph as it is now */
    size_t n_in, n_out;
    size_t in_bytes, out_bytes; /* one allocation that is large enough for every port of that side */
    bool in_uniform, out_uniform; /* every port of that side has exactly that size */
    bool changed;        /* false: the interface is the original one */
} port_plan;

typedef struct {
    int rounds;                 /* sweeps over the table until nothing changed */
    bool fixpoint;              /* false: PASS_MAX_ROUNDS were not enough */
    size_t n_changes[PASS_MAX]; /* by pass, summed over the rounds */
    uint64_t ns[PASS_MAX];
    size_t nodes_before, nodes_after;
    port_plan ports;
} pass_stats;

/* Run the table to a fixpoint. o NULL: level 1, no target. st may be NULL; its port plan lives as long as g. After a
 * failure g is good for graph_free only. AN_UNSUPPORTED: a limit of the target that no rewrite can meet; the message
 * names the operation, its extent and the limit. */
an_status pass_run(graph *g, const pass_options *o, pass_stats *st, diag *d) MUST_CHECK;

/* One pass, once. AN_INPUT when there is no such pass. *changed may be NULL. Passes that need a target do nothing
 * without one. st may be NULL; its port plan is updated (an empty plan is filled first). */
an_status pass_run_one(graph *g, const char *name, const pass_options *o, pass_stats *st, bool *changed, diag *d)
    MUST_CHECK;

size_t pass_count(void);
const char *pass_name_at(size_t i);
const char *pass_summary_at(size_t i); /* one line, for help and docs */
int pass_level_at(size_t i);
bool pass_needs_target(size_t i);
bool pass_changes_ports(size_t i);

#endif
