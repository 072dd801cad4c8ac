/* bench_compile.c: from MIL text to a loaded program, and new weights for a loaded one, as a caller of a device has
 * it: without a cache. In: graphs of a Stories110M layer, spelled as text with a weight file.  Out: rows beside 5
 * ms, and beside a copy of the weights. */
#include <stdlib.h>

#include "base/plain.h"
#include "bench/bench_int.h"
#include "device/device.h"
#include "model/model.h"

typedef struct {
    strbuf text;
    blob_writer weights;
} spelled;

static void spelled_free(spelled *s)
{
    sb_free(&s->text);
    sb_free(&s->weights.bytes);
}

/* Frees g. */
static an_status spell(graph *g, spelled *s, diag *d)
{
    mil_module *m = NULL;
    *s = (spelled){ .text = { 0 } };
    an_status st = g ? graph_finish(g, d) : diag_nomem(d);
    if (!st) st = lower_to_mil(g, NULL, &m, &s->weights, d);
    if (!st) mil_print(m, &s->text);
    if (!st) st = blob_finish(&s->weights, d);
    if (!st && s->text.oom) st = diag_nomem(d);
    mil_free(m);
    graph_free(g);
    return st;
}

static dev_blob file_of(const spelled *s)
{
    return (
        dev_blob){ .path = "@model_path/weights/weight.bin", .bytes = s->weights.bytes.at, .n = s->weights.bytes.n };
}

static an_status open_plain(bench *b, const char *name, device **dev)
{
    const device_limit many = { "compiles", 0 }; /* the budget of a chip would end the turns */
    return device_open(dev, name, &(device_options){ .pool = b->pool, .limit = &many, .n_limit = 1 }, b->d);
}

/* ---- text to loaded ---- */

typedef struct {
    device *dev;
    const spelled *s;
    bool load;
    double bytes; /* of weights, for the bound of the second row */
    peak_meter *copy;
} compiling;

static an_status compile(void *user, diag *d)
{
    const compiling *c = user;
    const dev_blob file = file_of(c->s);
    dev_program *p = NULL;
    TRY(device_compile(c->dev,
                       &(dev_source){ .text = c->s->text.at,
                                      .n_text = c->s->text.n,
                                      .weights = { .blob = &file, .n_blob = 1, .stable = true } },
                       &p, d));
    an_status st = c->load ? dev_program_load(p, d) : AN_OK;
    dev_program_free(p);
    return st;
}

/* Programs a second that 5 ms allow, and the time in which the weights are copied where they are packed. */
enum { MS = 5 };
static double allowed(void *user)
{
    const compiling *c = user;
    double copied = c->load ? 2 * c->bytes / (peak_rate(c->copy) * 1e9) : 0;
    return 1 / (MS * 1e-3 + copied);
}

/* Weights of a kernel: views of one stretch of noise, each from another place, or one record would serve several. */
enum { APART = 64 };
static bool noise_of(void *user, const model_weight *w, model_blob *out)
{
    out->data = (const uint16_t *)user + APART * w->id;
    return true;
}

static an_status one_kernel(bench *b, const model_config *c, model_kind kind, const char *name, void *noise,
                            peak_meter *copy)
{
    static const char *const how[] = { "compile", "compile and load" }, *const limit[] = {
        "5 ms", "5 ms and copying its weights"
    };
    graph *g = NULL;
    spelled s = { .text = { 0 } };
    compiling x = { .s = &s, .copy = copy };
    timing t;
    TRY(model_program_build(c, &(model_program){ .kind = kind }, &(model_source){ noise_of, noise }, &g, b->d));
    an_status st = spell(g, &s, b->d);
    x.bytes = (double)s.weights.bytes.n;
    if (!st) st = open_plain(b, name, &x.dev);
    for (int i = 0; i < 2 && !st; i++) {
        char label[96];
        x.load = i;
        st = bench_beside(b, compile, &x, (ruler){ allowed, &x }, &t);
        plain_printf(label, sizeof label, "%s %s on %s, %.2f ms, %.1f MB", how[i], model_kernel_name(kind), name,
                     t.least * 1e3, x.bytes * 1e-6);
        if (!st) bench_row(b, "dispatch", label, bench_kernel(b, GEMM_F16), t, 1e9, "/s", t.limit, limit[i]);
    }
    device_close(x.dev);
    spelled_free(&s);
    return st;
}

an_status bench_text_to_loaded(bench *b)
{
    static const model_kind kinds[] = { MK_FWD_ATTN, MK_FWD_FFN };
    static const char *const devices[] = { "cpu", "soft:m4" };
    const model_config *c = model_preset_find("stories110m");
    if (!c) return diag_fail(b->d, AN_BUG, NOWHERE, "no preset stories110m");
    const size_t most = (size_t)(c->dim * MAX(c->hidden, c->dim)) + APART * MW_COUNT;
    uint16_t *noise = malloc(most * sizeof *noise);
    peak_meter *copy = peak_copy(b->pool, pool_threads(b->pool), PEAK_FAR);
    rng r = { 1 };
    an_status st = noise && copy ? AN_OK : diag_nomem(b->d);
    for (size_t i = 0; i < most && !st; i++) noise[i] = f16_from_f64(rng_range(&r, -0.05, 0.05));
    for (size_t i = 0; i < COUNT(kinds) && !st; i++)
        for (size_t k = 0; k < COUNT(devices) && !st; k++) st = one_kernel(b, c, kinds[i], devices[k], noise, copy);
    peak_free(copy);
    free(noise);
    return st;
}

/* ---- new weights ---- */

typedef struct {
    dev_program *p;
    const spelled *s[2]; /* in turn, so that each differs from the one before */
    int turn;
    bool stable, prove;
} reloading;

static an_status reload(void *user, diag *d)
{
    reloading *r = user;
    const dev_blob file = file_of(r->s[r->turn ^= 1]);
    dev_canary c = { .constants_only = true };
    TRY(dev_program_reload(r->p, &(dev_weights){ .blob = &file, .n_blob = 1, .stable = r->stable },
                           r->prove ? &c : NULL, d));
    return !r->prove || c.source_changed
               ? AN_OK
               : diag_fail(d, AN_MISMATCH, NOWHERE, "bench dispatch: new weights were taken for the old ones");
}

an_status bench_device_reload(bench *b, graph *(*make)(uint64_t seed), const char *what, double elements)
{
    static const struct {
        const char *name;
        bool stable, prove;
    } how[] = { { "through a device, from bytes that stay", true, false },
                { "through a device, which copies them first", false, false },
                { "the same, and proven by their checksum", false, true } };
    spelled s[2] = { { .text = { 0 } }, { .text = { 0 } } };
    device *dev = NULL;
    reloading r = { .s = { &s[0], &s[1] } };
    peak_meter *copy = peak_copy(b->pool, pool_threads(b->pool), PEAK_FAR);
    an_status st = copy ? spell(make(1), &s[0], b->d) : diag_nomem(b->d);
    if (!st) st = spell(make(2), &s[1], b->d);
    if (!st) st = open_plain(b, "cpu", &dev);
    const dev_blob file = file_of(&s[0]);
    if (!st)
        st = device_compile(
            dev,
            &(dev_source){ .text = s[0].text.at, .n_text = s[0].text.n, .weights = { .blob = &file, .n_blob = 1 } },
            &r.p, b->d);
    if (!st) st = dev_program_load(r.p, b->d);
    for (size_t i = 0; i < COUNT(how) && !st; i++) {
        char label[96];
        timing t;
        r.stable = how[i].stable, r.prove = how[i].prove;
        snprintf(label, sizeof label, "%s, %s", what, how[i].name);
        st = bench_beside(b, reload, &r, (ruler){ bound_peak, copy }, &t);
        if (!st)
            bench_row(b, "dispatch", label, bench_kernel(b, GEMM_F16), t, 2.0 * 2 * elements, "GB/s", t.limit, "copy");
    }
    device_close(dev);
    peak_free(copy);
    spelled_free(&s[0]), spelled_free(&s[1]);
    return st;
}
