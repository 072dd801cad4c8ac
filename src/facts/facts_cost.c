/* facts_cost.c: published times beside the cost model's. In: rows with a latency.  Out: the model's figure and its
 * error. A row passes within the stated fidelity, 17 % for the four convolutions the published model was fitted on
 * and 31 %, its median, elsewhere; the figure is there either way. */
#include <stdlib.h>

#include "base/plain.h"
#include "check/check.h"
#include "facts/facts_int.h"
#include "target/target.h"

static bool belongs(const char *id, const char *fact)
{
    size_t n = strlen(fact);
    return !strncmp(id, fact, n) && (!id[n] || (id[n] >= 'a' && id[n] <= 'z' && !id[n + 1]));
}

/* What the rows of one fact come to. */
typedef struct {
    strbuf b;
    double worst; /* error of the largest magnitude */
    int n;
} tally;

static double larger(double a, double b) { return fabs(b) > fabs(a) ? b : a; }

static void count_row(fx *f, tally *t, const char *setup, double error_percent, bool fitted, const char *ours)
{
    sb_printf(&t->b, "%s%s (%+.0f %%)%s", t->n++ ? ", " : "", ours, error_percent, fitted ? " fitted" : "");
    t->worst = larger(t->worst, error_percent);
    size_t at = strlen(f->r->why);
    if (!*f->row->note) snprintf(f->r->why + at, sizeof f->r->why - at, "%s%s", at ? "; " : "", setup);
}

static an_status judge(fx *f, tally *t)
{
    an_status st;
    if (t->b.oom) st = diag_nomem(f->d);
    else if (t->n) st = fx_error(f, t->worst, fx_arg(f, 0), "%s", t->b.at);
    else st = fx_verdict(f, false, "no such row");
    sb_free(&t->b);
    return st;
}

static bool skipped(fx *f)
{
    const char *why = cost_unmodelled(f->row->id);
    return why && (snprintf(f->r->why, sizeof f->r->why, "%s", why), fx_skip(f, "%s", ""), true);
}

/* args: tolerance in percent */
an_status fact_latency(fx *f)
{
    tally t = { 0 };
    if (skipped(f)) return AN_OK;
    for (size_t i = 0; i < cost_measured_count(); i++) {
        cost_measured m;
        char ours[64];
        if (!cost_measured_at(i, &m)) return sb_free(&t.b), diag_nomem(f->d);
        if (!belongs(m.id, f->row->id)) continue;
        plain_printf(ours, sizeof ours, "%.3f ms for %.3f", m.ours_ms, m.published_ms);
        count_row(f, &t, m.setup, m.error_percent, m.fitted, ours);
    }
    return judge(f, &t);
}

/* The same for power. args: tolerance in percent */
an_status fact_power(fx *f)
{
    tally t = { 0 };
    if (skipped(f)) return AN_OK;
    for (size_t i = 0; i < cost_power_count(); i++) {
        cost_power p;
        char ours[64];
        if (!cost_power_at(i, &p)) return sb_free(&t.b), diag_nomem(f->d);
        if (!belongs(p.id, f->row->id)) continue;
        plain_printf(ours, sizeof ours, "%.3g %s for %.4g", p.ours, p.unit, p.published);
        count_row(f, &t, p.setup, p.error_percent, p.fitted, ours);
    }
    return judge(f, &t);
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
    return fx_verdict(f, median <= fx_arg(f, 0) && near >= (size_t)fx_arg(f, 1),
                      "median %.0f %% over %zu rows no constant came from, %zu within 17 %%", median, n, near);
}

/* ---- questions that are no row of published.def ---- */

/* What one convolution of a square image, "same" padding, should take. */
static an_status conv_cost(fx *f, const char *on, long long cin, long long cout, long long side, long long k,
                           prog_cost *out)
{
    char params[96];
    const chip *c = chip_find(on);
    check_report *r = NULL;
    snprintf(params, sizeof params, "tensor<fp16, [1, %lld, %lld, %lld]> x", cin, side, side);
    const char *text = fx_text(f, params, "y",
                               "tensor<fp16, [%lld, %lld, %lld, %lld]> w = const()[name = string(\"w\"), val = tensor<fp16, [%lld, %lld, %lld, %lld]>(BLOBFILE(path = string(\"@model_path/w.bin\"), offset = uint64(64)))];\n"
                               "tensor<fp16, [1, %lld, %lld, %lld]> y = conv(x = x, weight = w, pad_type = string(\"same\"), strides = tensor<int32, [2]>([1, 1]), pad = tensor<int32, [4]>([0, 0, 0, 0]), dilations = tensor<int32, [2]>([1, 1]), groups = int32(1))[name = string(\"y\")];",
                               cout, cin, k, k, cout, cin, k, k, cout, side, side);
    if (!text || !c) return diag_nomem(f->d);
    TRY(check_text(text, strlen(text), &(check_options){ .target = &c, .n_target = 1, .errors_only = true }, &r, f->d));
    an_status st = AN_OK;
    if (r->costs.n) *out = r->costs.at[0].total;
    else st = diag_fail(f->d, AN_INPUT, NOWHERE, "%s", r->found.n ? r->found.at[0].message : "no cost");
    check_free(r);
    return st;
}

/* args: tolerance; then published FLOP per byte, channels, side, kernel for each */
an_status fact_intensity(fx *f)
{
    strbuf b = { 0 };
    bool ok = true;
    an_status st = AN_OK;
    for (int i = 0; !st && 4 * i + 1 < f->row->n_arg; i++) {
        long long ch = (long long)fx_arg(f, 4 * i + 2), side = (long long)fx_arg(f, 4 * i + 3),
                  k = (long long)fx_arg(f, 4 * i + 4);
        prog_cost t;
        st = conv_cost(f, fx_chip(f, 0), ch, ch, side, k, &t);
        if (st) break;
        ok = ok && fabs(t.flops / t.bytes / fx_arg(f, 4 * i + 1) - 1) <= fx_arg(f, 0);
        sb_printf(&b, "%s%.0f", i ? ", " : "", t.flops / t.bytes);
    }
    if (!st) st = b.oom ? diag_nomem(f->d) : fx_verdict(f, ok, "%s FLOP/byte", b.at);
    sb_free(&b);
    return st;
}

/* args: tolerance in percent; input channels, side, kernel; then the published rate at 1, 2 … output channels */
an_status fact_channel_rates(fx *f)
{
    enum { FIRST = 4 };
    strbuf b = { 0 };
    double worst = 0, one = 0;
    an_status st = AN_OK;
    for (int i = 0; !st && FIRST + i < f->row->n_arg; i++) {
        prog_cost t;
        st = conv_cost(f, fx_chip(f, 0), (long long)fx_arg(f, 1), i + 1, (long long)fx_arg(f, 2),
                       (long long)fx_arg(f, 3), &t);
        if (st) break;
        double rate = t.flops / t.latency_us;
        if (!i) one = rate;
        double want = fx_arg(f, FIRST + i) / fx_arg(f, FIRST), error = (rate / one / want - 1) * 100;
        worst = larger(worst, error);
        sb_printf(&b, "%s%.2fx for %.2f (%+.0f %%)", i ? ", " : "", rate / one, want, error);
    }
    if (!st && b.oom) st = diag_nomem(f->d);
    else if (!st) st = fx_error(f, worst, fx_arg(f, 0), "%s", b.at);
    sb_free(&b);
    return st;
}

/* The model of the row's second chip for the first. args: tolerance in percent of the ratio; published excess in
 * percent; then channels, side, kernel of each convolution */
an_status fact_other_anchors(fx *f)
{
    double sum = 0;
    int n = 0;
    for (; 3 * n + 4 < f->row->n_arg; n++) {
        long long ch = (long long)fx_arg(f, 3 * n + 2);
        prog_cost own, other;
        TRY(conv_cost(f, fx_chip(f, 0), ch, ch, (long long)fx_arg(f, 3 * n + 3), (long long)fx_arg(f, 3 * n + 4),
                      &own));
        TRY(conv_cost(f, fx_chip(f, 1), ch, ch, (long long)fx_arg(f, 3 * n + 3), (long long)fx_arg(f, 3 * n + 4),
                      &other));
        sum += other.latency_us / own.latency_us - 1;
    }
    double excess = 100 * sum / n, error = ((100 + excess) / (100 + fx_arg(f, 1)) - 1) * 100;
    char got[160];
    plain_printf(got, sizeof got, "over by %.0f %% for %.0f on %d convolutions (%+.0f %% of the ratio)", excess,
                 fx_arg(f, 1), n, error);
    return fx_error(f, error, fx_arg(f, 0), "%s", got);
}

/* text: a row of published.def, or a convolution of 64 channels at 16 by 16 when there is none. args: tolerance in
 * percent; seconds of idling; 0: time, 1: ratio to a warm call, 2: what is added; published least and greatest, ms */
an_status fact_after_idle(fx *f)
{
    const chip *c = chip_find(fx_chip(f, 0));
    prog_cost t = { 0 };
    if (!*f->row->text) TRY(conv_cost(f, fx_chip(f, 0), 64, 64, 16, 3, &t));
    for (size_t i = 0; i < cost_measured_count(); i++) {
        cost_measured m;
        if (!cost_measured_at(i, &m)) return diag_nomem(f->d);
        if (!strcmp(m.id, f->row->text)) t.latency_us = m.ours_ms * 1e3;
    }
    double first = cost_after_idle_us(c, &t, fx_arg(f, 1)), how = fx_arg(f, 2), lo = fx_arg(f, 3), hi = fx_arg(f, 4);
    double ours = how == 1 ? first / t.latency_us : (how == 2 ? first - t.latency_us : first) / 1e3;
    double error = ours < lo ? (ours / lo - 1) * 100 : ours > hi ? (ours / hi - 1) * 100 : 0;
    char got[120];
    if (lo == hi)
        plain_printf(got, sizeof got, "%.3g%s for %.3g (%+.0f %%)%s", ours, how == 1 ? "x" : " ms", lo, error,
                     how == 1 ? "" : " fitted");
    else
        plain_printf(got, sizeof got, "%.3g%s for %.3g to %.3g (%+.0f %%)", ours, how == 1 ? "x" : " ms", lo, hi,
                     error);
    return fx_error(f, error, fx_arg(f, 0), "%s", got);
}
