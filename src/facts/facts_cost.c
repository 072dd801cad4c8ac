/* facts_cost.c: published times beside the cost model's, and caps of the runtime.
 * In: rows with a latency or a cap.  Out: the model's figure and its error. A row passes within the stated fidelity, 17 % for the four
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

/* ---- caps ---- */

static const char *relu_text(fx *f) { return fx_text(f, FX_T("1, 32, 1, 1024") " x", "y", FX_T("1, 32, 1, 1024") " y = relu(x = x)[name = string(\"y\")];"); }

static an_status load_one(fx *f, device *dev, const char *text, dev_program **p, diag *d)
{
    if (!text) return diag_nomem(d);
    TRY(device_compile(dev, &(dev_source){ .text = text, .n_text = strlen(text), .file = f->row->id }, p, d));
    return dev_program_load(*p, d);
}

/* How many requests of one program may be outstanding, and how many programs may be loaded. */
an_status fact_caps(fx *f)
{
    enum { MOST = 200 };
    int in_flight = 0, loaded = 0;
    char name[40];
    device *dev = NULL;
    snprintf(name, sizeof name, "soft:%s", fx_chip(f, 0));
    device_limit many[] = { { "compiles", 0 } }; /* the compile budget would end it sooner */
    TRY(device_open(&dev, name, &(device_options){ .threads = 1, .limit = many, .n_limit = 1 }, f->d));
    const char *text = relu_text(f);
    dev_program *p[MOST] = { NULL };
    dev_surface *s[2] = { NULL };
    diag stop = { 0 };
    while (loaded < MOST && !load_one(f, dev, text, &p[loaded], &stop)) loaded++;
    an_status st = stop.st == AN_NOMEM ? diag_nomem(f->d) : AN_OK;
    for (int k = 0; !st && k < 2; k++) st = dev_surface_new(dev, dev_program_surface_bytes(p[0], (dev_side)k), &s[k], f->d);
    stop = (diag){ 0 };
    while (!st && in_flight < MOST) {
        dev_request *r;
        st = dev_request_new(p[0], &r, f->d);
        if (!st) st = dev_request_bind_at(r, DEV_INPUT, 0, s[0], f->d);
        if (!st) st = dev_request_bind_at(r, DEV_OUTPUT, 0, s[1], f->d);
        if (st || device_submit(r, DEV_QOS, &stop)) break;
        in_flight++;
    }
    device_close(dev);
    TRY(st);
    return fx_verdict(f, in_flight == (int)fx_arg(f, 0) && loaded == (int)fx_arg(f, 1), "%d in flight, %d loaded", in_flight, loaded);
}

/* args: devices, programs on each */
an_status fact_many_programs(fx *f)
{
    enum { DEVICES = 4, PROGRAMS = 32 };
    int n_dev = (int)fx_arg(f, 0), n = (int)fx_arg(f, 1), right = 0;
    fx_prog g[DEVICES * PROGRAMS];
    int opened = 0;
    an_status st = AN_OK;
    for (int i = 0; !st && i < n_dev * n; i++) { /* every program differs, so none is another's */
        st = fx_open(f, &g[i], fx_chip(f, 0), fx_text(f, FX_T("1, 32, 1, 64") " x", "y", FX_T("1, 32, 1, 64") " y = add(x = x, y = fp16(%d))[name = string(\"y\")];", i), NULL);
        if (!st) opened++;
        if (!st) st = fx_set(f, &g[i], "x", fx_fill(f, 2048, 1), 2048);
    }
    for (int pass = 0; !st && pass < 2; pass++)
        for (int i = 0; !st && i < opened; i++) {
            double *y;
            int64_t count;
            st = fx_go(f, &g[i]);
            if (!st) st = fx_get(f, &g[i], "y", &y, &count);
            if (!st) right += pass && y[0] == 1 + i && y[count - 1] == 1 + i;
        }
    for (int i = 0; i < opened; i++) fx_close(&g[i]);
    TRY(st);
    return fx_verdict(f, right == n_dev * n, "%d/%d right when run again", right, n_dev * n);
}
