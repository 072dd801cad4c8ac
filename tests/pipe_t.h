/* pipe_t.h: what the tests of pipelines share: a small Llama, sentences it can learn, weights to begin with. */
#ifndef TESTS_PIPE_T_H
#define TESTS_PIPE_T_H

#include <stdlib.h>

#include "base/rng.h"
#include "t.h"
#include "train/pipe.h"

enum { B = 2, T = 16, V = 40 };

static model_config small(int layers)
{
    model_config c = *model_preset_find("tiny");
    c.n_layers = layers, c.dim = 32, c.hidden = 48, c.n_heads = 4, c.n_kv_heads = 2, c.head_dim = 8, c.vocab = V,
    c.seq = T, c.context = T;
    return c;
}

/* Token t + 1 depends on token t, so there is something to learn. */
static void batch(uint64_t k, int32_t *to)
{
    rng r = { 77 + k };
    for (int b = 0; b < B; b++) {
        int32_t x = (int32_t)rng_below(&r, V);
        for (int i = 0; i <= T; i++) to[b * (T + 1) + i] = x, x = (x * 3 + (int32_t)rng_below(&r, 2)) % V;
    }
}

/* Every parameter, element by element; size: of what is not a gain. */
typedef float start_fn(const char *name, double size, rng *r);
static void fill_with(pipeline *p, start_fn *start, double size)
{
    rng r = { 5 };
    for (size_t i = 0; i < pipe_state_count(p); i++) {
        train_state_info s;
        diag d = { 0 };
        int64_t n;
        pipe_state_at(p, i, &s);
        if (!s.param || strcmp(s.param, s.name)) continue;
        assert_true(shape_elems(&s.type.sh, &n));
        float *x = malloc((size_t)n * sizeof *x);
        assert_non_null(x);
        for (int64_t k = 0; k < n; k++) x[k] = start(s.name, size, &r);
        assert_ok(pipe_write(p, s.name, DT_F32, x, &d), d);
        free(x);
    }
}

#endif
