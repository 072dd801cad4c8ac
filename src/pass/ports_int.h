/* ports_int.h: the interface rewrites' own. */
#ifndef PASS_PORTS_INT_H
#define PASS_PORTS_INT_H

#include "pass/pass_int.h"

enum { PORT_STEP = 16 }; /* widths grow in steps of 16 elements (programming model D.2) */

typedef struct {
    size_t n; /* findings of rules that name the rewrite asked about */
} ports_found;

an_status ports_fire(const chip *c, const port_plan *p, const char *rewriter, arena *mem, ports_found *f, diag *d)
    MUST_CHECK;
/* One port on its own. */
an_status port_fires(const chip *c, const port_slot *s, bool input, const char *rewriter, arena *mem, bool *fires,
                     diag *d) MUST_CHECK;
/* Give each port the extents in[i], out[i], never smaller than now. */
an_status ports_widen(graph *g, pass_ctx *c, const shape *in, const shape *out, diag *d) MUST_CHECK;

#endif
