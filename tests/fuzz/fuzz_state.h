/* fuzz_state.h: the trainers whose checkpoints are fuzzed, as small as they get: one of one surface for each state, and
 * one of two, with pairs of fp16, sums of minibatches and a loss scale that moves.
 *   state_open(i, &t, &d), i below STATE_WAYS;      state_step(t): an update, whatever it says */
#ifndef TESTS_FUZZ_STATE_H
#define TESTS_FUZZ_STATE_H

#include "train/train.h"

enum { STATE_WAYS = 2, STATE_ACCUM = 2 /* at most: minibatches of an update */ };

static inline an_status state_open(int way, trainer **t, diag *d)
{
    static const char text[] =
        "graph \"s\"\nx = input fp16[2, 3]\nw = input fp16[3, 1]\nb = input fp16[1, 1]\none = const fp16[] {1}\n"
        "m = matmul(x, w)\ny = add(m, b)\ne = sub(y, one)\ns = square(e)\nloss = reduce_mean(s)\nreturn loss\n";
    static const train_param param[] = { { "w", true }, { "b", false } };
    graph *g;
    train_options o = { .param = param, .n_param = COUNT(param), .device = { .threads = 1 }, .decay = 0.1 };
    if (way == 0) o.engine = "cpu", o.optimizer = "adam", o.clip = 1;
    else
        o.engine = "soft:m1", o.optimizer = "adamw", o.state = TRAIN_HALVES, o.accum = STATE_ACCUM,
        o.dynamic_scale = true, o.grow_after = 2, o.loss_scale = 8;
    *t = NULL;
    TRY(graph_parse(text, sizeof text - 1, &g, d));
    o.loss = graph_find(g, "loss");
    an_status st = train_open(t, g, &o, d);
    graph_free(g);
    return st;
}

/* Every minibatch of an update. */
static inline an_status state_step(trainer *t, diag *d)
{
    static const float x[6] = { 1, -0.5f, 2, 0.25f, 1.5f, -1 };
    train_stats before, after;
    train_get_stats(t, &before);
    for (int i = 0; i < STATE_ACCUM; i++) {
        train_report r;
        TRY(train_put(t, "x", DT_F32, x, d));
        TRY(train_step(t, 0.01, &r, d));
        train_get_stats(t, &after);
        if (after.steps != before.steps) break;
    }
    return AN_OK;
}

#endif
