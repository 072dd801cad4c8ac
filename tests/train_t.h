/* train_t.h: trainers of a graph's text, for the tests of training.
 *   trainer *t = open_text(hinge_text, (train_options){ … });   step_on(t, right, 0.125, &r);   train_close(t); */
#ifndef TESTS_TRAIN_T_H
#define TESTS_TRAIN_T_H

#include <stdlib.h>

#include "t.h"
#include "train/train.h"

/* type: what stands for FP in the text */
static inline graph *parse(const char *text, const char *type)
{
    size_t n = strlen(text);
    char *s = malloc(2 * n + 1), *o = s;
    assert_non_null(s);
    for (const char *p = text; *p;) {
        if (!strncmp(p, "FP", 2)) {
            memcpy(o, type, strlen(type));
            o += strlen(type), p += 2;
        } else *o++ = *p++;
    }
    *o = 0;
    graph *g;
    diag d = { 0 };
    assert_ok(graph_parse(s, strlen(s), &g, &d), d);
    free(s);
    return g;
}

/* Without a loss once x w >= 1 everywhere. */
static const char hinge_text[] =
    "graph \"hinge\"\nx = input fp16[4, 2]\nw = input fp16[2, 1]\nm = matmul(x, w)\none = const fp16[] {1}\nd = sub(one, m)\nh = relu(d)\n"
    "loss = reduce_mean(h)\nreturn loss\n";
static const float right[8] = { 1, 2, 2, 1, 1.5, 1, 1, 1 }, wrong[8] = { -1, -2, -2, -1, -1.5, -1, -1, -1 };

/* Of a text with the parameter w; without an engine on m1. */
static inline trainer *open_text(const char *text, train_options o)
{
    graph *g = parse(text, "");
    trainer *t;
    diag d = { 0 };
    o.loss = graph_find(g, "loss"), o.param = &(train_param){ "w", true }, o.n_param = 1, o.device.threads = 1;
    if (!o.engine) o.engine = "soft:m1";
    assert_ok(train_open(&t, g, &o, &d), d);
    graph_free(g);
    return t;
}

static inline void count_lines(void *user, const char *line)
{
    (void)line;
    ++*(int *)user;
}

static inline void step_on(trainer *t, const float *x, double lr, train_report *r)
{
    diag d = { 0 };
    assert_ok(train_put(t, "x", DT_F32, x, &d), d);
    assert_ok(train_step(t, lr, r, &d), d);
}

#endif
