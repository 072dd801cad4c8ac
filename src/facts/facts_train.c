/* facts_train.c: the weight gradient of a convolution as the engine computes it: patches by slices, then a product.
 * In: rows with an input scale, a loss scale and a number of infinities.  Out: how many of ours are infinite.
 *
 * The published shape and data are not known. Here: y = conv(x, w) with kernel 1x3, one input channel, CHANNELS
 * outputs, two places, x = 1/16, w = 9 + 18u^2 with u uniform; loss = scale * sum(y^3)/3, so that the gradient at
 * the output is scale * y^2: like the published one it grows faster with the input scale than with the loss scale.
 * It is padded by one place on both sides and cut at width offsets 0, 1, 2; each cut times x gives one tap of the
 * weight's gradient. How many taps pass the limit at which scale is the data's doing, so a count is judged against
 * those of the seeds 1 .. SEEDS. That exactly the taps whose cut begins behind place 0 and holds more than 4094
 * become infinite is the engine's doing, and must hold for every tap of every seed. */
#include "facts/facts_int.h"

enum { CHANNELS = 18, PLACES = 2, TAPS = 3 };

#define CONV_SAME "pad_type = string(\"custom\"), strides = tensor<int32, [2]>([1, 1]), pad = tensor<int32, [4]>([0, 0, 1, 1]), dilations = tensor<int32, [2]>([1, 1]), groups = int32(1)"
#define CUT(k) FX_T("1, 18, 1, 2") " p" #k " = slice_by_size(x = dp, begin = tensor<int32, [4]>([0, 0, 0, " #k "]), size = tensor<int32, [4]>([1, 18, 1, 2]))[name = string(\"p" #k "\")];\n" \
               FX_T("1, 18, 2") " m" #k " = squeeze(x = p" #k ", axes = tensor<int32, [1]>([2]))[name = string(\"m" #k "\")];\n" \
               FX_T("1, 18, 1") " g" #k " = matmul(x = m" #k ", y = xt, transpose_x = bool(false), transpose_y = bool(true))[name = string(\"g" #k "\")];\n"

static const char FORWARD[] = FX_T("1, 1, 1, 2") " xs = mul(x = x, y = in_scale)[name = string(\"xs\")];\n"
                              FX_T("1, 18, 1, 2") " y = conv(x = xs, weight = w, " CONV_SAME ")[name = string(\"y\")];\n"
                              FX_T("1, 18, 1, 2") " yy = mul(x = y, y = y)[name = string(\"yy\")];\n"
                              FX_T("1, 18, 1, 2") " dy = mul(x = yy, y = loss_scale)[name = string(\"dy\")];\n"
                              FX_T("1, 1, 2") " xt = squeeze(x = xs, axes = tensor<int32, [1]>([2]))[name = string(\"xt\")];\n";
static const char BY_SLICES[] = FX_T("1, 18, 1, 4") " dp = pad(x = dy, pad = tensor<int32, [8]>([0, 0, 0, 0, 0, 0, 1, 1]), mode = string(\"constant\"), constant_val = fp16(0))[name = string(\"dp\")];\n"
                                CUT(0) CUT(1) CUT(2)
                                FX_T("1, 18, 3") " dw = concat(values = (g0, g1, g2), axis = int32(2), interleave = bool(false))[name = string(\"dw\")];\n";
static const char POINTWISE[] = FX_T("1, 18, 2") " dm = squeeze(x = dy, axes = tensor<int32, [1]>([2]))[name = string(\"dm\")];\n"
                                FX_T("1, 18, 1") " dw = matmul(x = dm, y = xt, transpose_x = bool(false), transpose_y = bool(true))[name = string(\"dw\")];\n";

static const char PARAMS[] = FX_T("1, 1, 1, 2") " x, " FX_T("18, 1, 1, 3") " w, " FX_T("1") " in_scale, " FX_T("1") " loss_scale";

enum { SEEDS = 256, FEW_SEEDS = 8 };
static const double SLICE_LAST = 4094; /* facts 3.4 S4 */

/* Gradient on one chip, and the same in double. taps: TAPS or 1. dy: the gradient at the output, as the chip has it;
 * NULL: not asked for. */
static an_status gradient(fx *f, const char *chip, uint64_t seed, double in_scale, double loss_scale, int taps,
                          fx_val *dw, fx_val *at_output, double *want)
{
    double *x = fx_fill(f, PLACES, 1.0 / 16), *w = fx_take(f, CHANNELS * TAPS);
    rng r = { .s = seed };
    if (!x || !w) return diag_nomem(f->d);
    for (int i = 0; i < CHANNELS * TAPS; i++) {
        double u = rng_unit(&r);
        w[i] = dtype_round(DT_F16, 9 + 18 * u * u);
    }
    const char *text =
        fx_text(f, PARAMS, at_output ? "dw, dy" : "dw", "%s%s", FORWARD, taps == TAPS ? BY_SLICES : POINTWISE);
    fx_val out[2] = { { .name = "dw" }, { .name = "dy" } };
    TRY(fx_once(f, chip, text, NULL,
                (fx_val[]){ { "x", x, PLACES },
                            { "w", w, CHANNELS * TAPS },
                            { "in_scale", &in_scale, 1 },
                            { "loss_scale", &loss_scale, 1 } },
                4, out, at_output ? 2 : 1));
    *dw = out[0];
    if (at_output) *at_output = out[1];
    for (int o = 0; o < CHANNELS; o++) {
        double dy[PLACES + 2] = { 0 };
        for (int p = 0; p < PLACES; p++) {
            double y = 0;
            for (int k = 0; k < TAPS; k++)
                if (p + k >= 1 && p + k <= PLACES) y += w[o * TAPS + k] * in_scale * x[p + k - 1];
            dy[p + 1] = loss_scale * y * y;
        }
        for (int k = 0; k < taps; k++) {
            double s = 0;
            for (int p = 0; p < PLACES; p++) s += dy[p + (taps == 1 ? 1 : k)] * in_scale * x[p];
            want[o * taps + k] = s;
        }
    }
    return AN_OK;
}

static int infinities(const fx_val *v)
{
    int n = 0;
    for (int64_t i = 0; i < v->n; i++) n += isinf(v->x[i]) != 0;
    return n;
}

/* Taps that are infinite although their cut begins at place 0 or holds nothing above the limit, or finite although
 * it does. */
static int unexplained(const fx_val *dw, const fx_val *dy)
{
    int n = 0;
    for (int o = 0; o < CHANNELS; o++)
        for (int k = 0; k < TAPS; k++) {
            bool beyond = false;
            for (int p = 0; p < PLACES; p++) { /* place p of the cut is place p + k of the padded gradient */
                int at = p + k - 1;
                beyond = beyond || (k && at >= 0 && at < PLACES && fabs(dy->x[o * PLACES + at]) > SLICE_LAST);
            }
            n += beyond != (isinf(dw->x[o * TAPS + k]) != 0);
        }
    return n;
}

/* (input scale, loss scale, infinities) …: the count is among those of the seeds, every infinity is where the limit
 * puts it, and without one the gradient is the one computed in double. */
an_status fact_weight_gradient(fx *f)
{
    strbuf b = { 0 };
    bool ok = true;
    double want[CHANNELS * TAPS];
    for (int i = 0; 3 * i < f->row->n_arg; i++) {
        int least = CHANNELS * TAPS, most = 0, wrong = 0, alike = 0, published = (int)fx_arg(f, 3 * i + 2);
        double worst = 0;
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            fx_val dw, dy;
            an_status st =
                gradient(f, fx_chip(f, 0), seed, fx_arg(f, 3 * i), fx_arg(f, 3 * i + 1), TAPS, &dw, &dy, want);
            if (st) return sb_free(&b), st;
            int n = infinities(&dw);
            least = MIN(least, n), most = MAX(most, n), alike += n == published, wrong += unexplained(&dw, &dy);
            if (!n) worst = MAX(worst, fx_relative(dw.x, want, dw.n));
        }
        ok = ok && !wrong && published >= least && published <= most && worst < 2e-3;
        sb_printf(&b, "%s%d to %d inf, %d in %d of %d seeds, %d unexplained", i ? "; " : "", least, most, published,
                  alike, SEEDS, wrong);
        if (!least) sb_printf(&b, ", error %.0e where finite", worst);
    }
    an_status st = b.oom ? diag_nomem(f->d) : fx_verdict(f, ok, "%s", b.at);
    sb_free(&b);
    return st;
}

/* (input scale, loss scale) …, and "m1" in the text: on the row's chip as many infinities as there; no text: none.
 * Finite gradients are those computed in double. */
an_status fact_weight_gradient_seeds(fx *f)
{
    bool same = f->row->text[0];
    double want[CHANNELS * TAPS], worst = 0;
    int total = 0, unlike = 0, n = 0;
    for (uint64_t seed = 1; seed <= FEW_SEEDS; seed++)
        for (int i = 0; 2 * i < f->row->n_arg; i++, n++) {
            fx_val a = { 0 }, b;
            if (same)
                TRY(gradient(f, f->row->text, seed, fx_arg(f, 2 * i), fx_arg(f, 2 * i + 1), TAPS, &a, NULL, want));
            TRY(gradient(f, fx_chip(f, 0), seed, fx_arg(f, 2 * i), fx_arg(f, 2 * i + 1), TAPS, &b, NULL, want));
            int inf = infinities(&b);
            total += inf;
            unlike += inf != (same ? infinities(&a) : 0);
            if (!inf) worst = MAX(worst, fx_relative(b.x, want, b.n));
        }
    return fx_verdict(f, !unlike && worst < 2e-3 && (same ? total > 0 : !total),
                      "%d of %d counts differ%s; %d inf over %d seeds, error %.0e where finite", unlike, n,
                      same ? " from m1's" : " from none", total, (int)FEW_SEEDS, worst);
}

/* loss scales: the 1x1 case needs no slices */
an_status fact_pointwise_gradient(fx *f)
{
    double want[CHANNELS * TAPS], worst = 0;
    int inf = 0;
    for (uint64_t seed = 1; seed <= FEW_SEEDS; seed++)
        for (int i = 0; i < f->row->n_arg; i++) {
            fx_val dw;
            TRY(gradient(f, fx_chip(f, 0), seed, 1, fx_arg(f, i), 1, &dw, NULL, want));
            inf += infinities(&dw);
            worst = MAX(worst, fx_relative(dw.x, want, dw.n));
        }
    return fx_verdict(f, inf == 0 && worst < 2e-3, "%d inf, worst relative error %.0e over %d loss scales and %d seeds",
                      inf, worst, f->row->n_arg, (int)FEW_SEEDS);
}
