/* weights_t.h: the weights of a model into a pipeline that was opened with its configuration, as a run does it. */
#ifndef TESTS_WEIGHTS_T_H
#define TESTS_WEIGHTS_T_H

#include "t.h"
#include "train/lm_shape.h"

static inline void weights_to(lm_model *m, pipeline *p)
{
    lm_shape s = { 0 };
    diag d = { 0 };
    assert_ok(lm_shape_make(&s, m, &(lm_shape_options){ 0 }, &d), d);
    assert_ok(lm_shape_put(&s, p, &d), d);
    lm_shape_free(&s);
}

#endif
