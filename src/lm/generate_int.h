/* generate_int.h: what generation and its drafts share. Private to lm/. */
#ifndef LM_GENERATE_INT_H
#define LM_GENERATE_INT_H

#include "lm/generate.h"
#include "lm/session_int.h"

bool draft_on(const lm_draft *o);
size_t draft_most(const lm_draft *o);
an_status draft_check(const lm_draft *o, const lm_session *s, diag *d) MUST_CHECK;
/* At most `most` tokens that may follow ids; n >= 1. */
an_status draft_make(const lm_draft *o, const uint32_t *ids, size_t n, size_t most, uint32_t *to, size_t *count,
                     diag *d) MUST_CHECK;

#endif
