/* facts_cost.c: published times beside the cost model's.
 * In: rows with a latency.  Out: the model's figure and its error. A row passes within the stated fidelity, 17 % for the four
 * convolutions the published model was fitted on and 31 %, its median, elsewhere; the figure is there either way. */
#include <stdlib.h>

#include "check/check.h"
#include "facts/facts_int.h"
#include "target/target.h"

static bool belongs(const char *id, const char *fact)
{
    size_t n = strlen(fact);
    return !strncmp(id, fact, n) && (!id[n] || (id[n] >= 'a' && id[n] <= 'z' && !id[n + 1]));
}

/* args: tolerance in percent */
an_status fact_latency(fx *f)
{
    strbuf b = { 0 };
    double worst = 0;
    int n = 0;
    const char *why = cost_unmodelled(f->row->id);
    if (why) return snprintf(f->r->why, sizeof f->r->why, "%s", why), fx_skip(f, "%s", "");
    for (size_t i = 0; i < cost_measured_count(); i++) {
        cost_measured m;
        if (!cost_measured_at(i, &m)) return sb_free(&b), diag_nomem(f->d);
        if (!belongs(m.id, f->row->id)) continue;
        sb_printf(&b, "%s%.3f ms for %.3f (%+.0f %%)%s", n++ ? ", " : "", m.ours_ms, m.published_ms, m.error_percent, m.fitted ? " fitted" : "");
        worst = MAX(worst, fabs(m.error_percent));
        if (n == 1 && !*f->r->why) snprintf(f->r->why, sizeof f->r->why, "%s", m.setup);
    }
    an_status st;
    if (b.oom) st = diag_nomem(f->d);
    else if (n && worst > fx_arg(f, 0)) { /* the model ranks, it does not promise: a row it misses is shown, and not claimed */
        size_t at = strlen(f->r->why);
        snprintf(f->r->why + at, sizeof f->r->why - at, "%sthe cost model is off by more than its stated fidelity of %g %%", at ? "; " : "", fx_arg(f, 0));
        st = fx_skip(f, "%s", b.at);
    } else st = fx_verdict(f, n > 0, "%s", n ? b.at : "no such row");
    sb_free(&b);
    return st;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* args: median error in percent, how many rows within the second figure */
an_status fact_cost_median(fx *f)
{
    size_t n = 0, near = 0;
    double *e = fx_take(f, (int64_t)cost_measured_count());
    if (!e) return diag_nomem(f->d);
    for (size_t i = 0; i < cost_measured_count(); i++) {
        cost_measured m;
        if (!cost_measured_at(i, &m)) return diag_nomem(f->d);
        if (m.fitted || m.estimate) continue;
        e[n++] = fabs(m.error_percent);
        near += fabs(m.error_percent) <= 17;
    }
    qsort(e, n, sizeof *e, by_value);
    double median = n % 2 ? e[n / 2] : (e[n / 2 - 1] + e[n / 2]) / 2;
    return fx_verdict(f, median <= fx_arg(f, 0) && near >= (size_t)fx_arg(f, 1), "median %.0f %% over %zu rows no constant came from, %zu within 17 %%", median, n, near);
}

/* args: published FLOP per byte, tolerance; then channels, side, kernel for each */
an_status fact_intensity(fx *f)
{
    strbuf b = { 0 };
    bool ok = true;
    const chip *c = chip_find(fx_chip(f, 0));
    for (int i = 0; 4 * i + 1 < f->row->n_arg; i++) {
        long long ch = (long long)fx_arg(f, 4 * i + 2), side = (long long)fx_arg(f, 4 * i + 3), k = (long long)fx_arg(f, 4 * i + 4);
        char params[96];
        snprintf(params, sizeof params, "tensor<fp16, [1, %lld, %lld, %lld]> x", ch, side, side);
        const char *text = fx_text(f, params, "y",
                                   "tensor<fp16, [%lld, %lld, %lld, %lld]> w = const()[name = string(\"w\"), val = tensor<fp16, [%lld, %lld, %lld, %lld]>(BLOBFILE(path = string(\"@model_path/w.bin\"), offset = uint64(64)))];\n"
                                   "tensor<fp16, [1, %lld, %lld, %lld]> y = conv(x = x, weight = w, pad_type = string(\"same\"), strides = tensor<int32, [2]>([1, 1]), pad = tensor<int32, [4]>([0, 0, 0, 0]), dilations = tensor<int32, [2]>([1, 1]), groups = int32(1))[name = string(\"y\")];",
                                   ch, ch, k, k, ch, ch, k, k, ch, side, side);
        check_report *r = NULL;
        if (!text || !c) return sb_free(&b), diag_nomem(f->d);
        an_status st = check_text(text, strlen(text), &(check_options){ .target = &c, .n_target = 1, .errors_only = true }, &r, f->d);
        if (st) return sb_free(&b), st;
        double flops = r->costs.n ? r->costs.at[0].total.flops / r->costs.at[0].total.bytes : 0;
        check_free(r);
        ok = ok && fabs(flops / fx_arg(f, 4 * i + 1) - 1) <= fx_arg(f, 0);
        sb_printf(&b, "%s%.0f", i ? ", " : "", flops);
    }
    an_status st = b.oom ? diag_nomem(f->d) : fx_verdict(f, ok, "%s FLOP/byte", b.at);
    sb_free(&b);
    return st;
}
