/* ref_rope.c: channels turned in pairs, as rotary positions do. In: x, cosines and sines.  Out: y; each product and
 * sum as the separate instruction would do it, and the scale, if it is not 1. */
#include "engine/engine_int.h"

an_status ref_rope(const run_ctx *c, const insn *in, diag *d)
{
    const int64_t y = insn_t(in, "y"), *dim = ctx_tensor(c, y)->dim, channels = dim[1], n = dim[2];
    const bool half = insn_i(in, "half"), back = insn_i(in, "back");
    const dtype t = ctx_tensor(c, y)->dt;
    const int64_t period = ctx_tensor(c, insn_t(in, "cos"))->dim[1];
    const double scale = insn_f(in, "scale");
    double *x = ref_load(c, insn_t(in, "x"), d), *co = ref_load(c, insn_t(in, "cos"), d),
           *si = ref_load(c, insn_t(in, "sin"), d);
    if (!x || !co || !si) return d->st;
    for (int64_t s = 0; s < dim[0]; s++)
        for (int64_t i = 0; i < channels / 2; i++)
            for (int64_t j = 0; j < n; j++) {
                const int64_t row = half ? i : 2 * i, other = half ? i + channels / 2 : 2 * i + 1,
                              a = (s * channels + row) * n + j, b = (s * channels + other) * n + j;
                const double by[2] = { co[row * period + j % period], si[row * period + j % period] };
                double p[2][2]; /* a and b, by cosine and sine */
                for (int k = 0; k < 2; k++) {
                    p[0][k] = num_fn(c->num, FN_MUL, (const double[]){ x[a], by[k] }, NULL, t);
                    p[1][k] = num_fn(c->num, FN_MUL, (const double[]){ x[b], by[k] }, NULL, t);
                }
                const double to[2] = {
                    num_fn(c->num, back ? FN_ADD : FN_SUB, (const double[]){ p[0][0], p[1][1] }, NULL, t),
                    num_fn(c->num, back ? FN_SUB : FN_ADD, (const double[]){ p[1][0], p[0][1] }, NULL, t)
                };
                for (int k = 0; k < 2; k++)
                    ref_store(c, y, k ? b : a,
                              scale == 1 ? to[k] : num_fn(c->num, FN_MUL, (const double[]){ to[k], scale }, NULL, t));
            }
    return AN_OK;
}
