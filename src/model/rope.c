/* rope.c: how fast each pair of channels turns. In: a configuration.  Out: angle per position of each pair; the
 * factor cosines and sines are multiplied by. Plain: theta^(-2i/HD). The scaled kinds follow the published
 * configurations of Llama 3.1 and YaRN, computed in double. */
#include <math.h>

#include "model/model.h"

#define PI 3.14159265358979323846

/* The pair (as a real number) that turns `turns` times in the original context. */
static double pair_turning(const model_config *c, double turns)
{
    return (double)c->head_dim * log(c->scaling.original / (turns * 2 * PI)) / (2 * log(c->rope_theta));
}

static double clamp01(double x) { return x < 0 ? 0 : x > 1 ? 1 : x; }

void model_rope_steps(const model_config *c, double *step, double *scale)
{
    const model_scaling *s = &c->scaling;
    double first = 0, last = 0;
    *scale = 1;
    if (s->kind == MODEL_SCALE_YARN) {
        first = fmax(floor(pair_turning(c, s->high)), 0);
        last = fmin(ceil(pair_turning(c, s->low)), (double)c->head_dim - 1);
        if (first == last) last += 0.001; /* as published: the ramp must have a width */
        *scale = s->attn > 0 ? s->attn : 0.1 * log(s->factor) + 1;
    }
    for (int64_t i = 0; i < c->head_dim / 2; i++) {
        double f = pow(c->rope_theta, -2.0 * (double)i / (double)c->head_dim), keep = 1;
        if (s->kind == MODEL_SCALE_LINEAR) keep = 0;
        else if (s->kind == MODEL_SCALE_LLAMA3)
            keep = clamp01((s->original * f / (2 * PI) - s->low) / (s->high - s->low));
        else if (s->kind == MODEL_SCALE_YARN) keep = 1 - clamp01(((double)i - first) / (last - first));
        step[i] = s->kind == MODEL_SCALE_NONE ? f : keep * f + (1 - keep) * f / s->factor;
    }
}
