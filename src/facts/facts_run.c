/* facts_run.c: programs of the checkers: text, device, values in, values out; and a little arithmetic on results.
 * In: MIL bodies and doubles.  Out: doubles that hold exactly what the device stored. */
#include "base/plain.h"
#include "facts/facts_int.h"

const char *fx_text(fx *f, const char *params, const char *results, const char *body, ...)
{
    va_list ap;
    va_start(ap, body);
    char small[1], *text = NULL;
    va_list again;
    va_copy(again, ap);
    int n = plain_vprintf(small, sizeof small, body, again);
    va_end(again);
    char *b = n < 0 ? NULL : TAKE(&f->mem, char, (size_t)n + 1);
    if (b) {
        plain_vprintf(b, (size_t)n + 1, body, ap);
        text = arena_printf(&f->mem,
                            "program(1.3)\n[buildInfo = dict<string, string>({{\"coremlc-version\", \"3505.4.1\"}})]\n{\n"
                            "func main<ios18>(%s) {\n%s\n} -> (%s);\n}\n",
                            params, b, results);
    }
    va_end(ap);
    return text;
}

static const char WEIGHTS[] = "@model_path/w.bin";

static an_status bind_side(fx *f, fx_prog *g, dev_side side)
{
    const dev_port *ports;
    size_t n = dev_program_ports(g->p, side, &ports);
    if (n > FX_PORTS) return diag_fail(f->d, AN_BUG, NOWHERE, "a program with %zu ports", n);
    for (size_t i = 0; i < n; i++) {
        TRY(dev_surface_new(g->dev, dev_program_surface_bytes(g->p, side), &g->s[side][i], f->d));
        TRY(dev_request_bind_at(g->r, side, i, g->s[side][i], f->d));
    }
    return AN_OK;
}

static an_status make(fx *f, fx_prog *g, const char *chip, const char *text, const strbuf *blob)
{
    if (!text || !chip) return diag_nomem(f->d);
    char *name = arena_printf(&f->mem, strcmp(chip, "cpu") ? "soft:%s" : "%s", chip);
    if (!name) return diag_nomem(f->d);
    dev_blob file = { .path = WEIGHTS, .bytes = blob ? blob->at : NULL, .n = blob ? blob->n : 0 };
    dev_source src = {
        .text = text, .n_text = strlen(text), .file = f->row->id, .weights = { .blob = &file, .n_blob = blob ? 1 : 0 }
    };
    TRY(device_open(&g->dev, name, &(device_options){ .threads = 1, .own_budget = true }, f->d));
    TRY(device_compile(g->dev, &src, &g->p, f->d));
    TRY(dev_program_load(g->p, f->d));
    TRY(dev_request_new(g->p, &g->r, f->d));
    TRY(bind_side(f, g, DEV_INPUT));
    return bind_side(f, g, DEV_OUTPUT);
}

an_status fx_open(fx *f, fx_prog *g, const char *chip, const char *text, const strbuf *blob)
{
    *g = (fx_prog){ 0 };
    an_status st = make(f, g, chip, text, blob);
    if (st) fx_close(g);
    return st;
}

void fx_close(fx_prog *g)
{
    device_close(g->dev); /* takes everything with it */
    *g = (fx_prog){ 0 };
}

static an_status find_port(fx *f, fx_prog *g, dev_side side, const char *name, const dev_port **p, dev_surface **s)
{
    size_t i = 0;
    *s = NULL;
    *p = dev_program_port(g->p, side, name, &i);
    if (!*p) return diag_fail(f->d, AN_BUG, NOWHERE, "no port %s", name);
    *s = g->s[side][i];
    return AN_OK;
}

static int64_t port_elems(const dev_port *p)
{
    int64_t n = 1;
    for (int i = 0; i < p->rank; i++) n *= p->dim[i];
    return n;
}

an_status fx_set(fx *f, fx_prog *g, const char *name, const double *x, int64_t n)
{
    const dev_port *p;
    dev_surface *s = NULL;
    void *at;
    if (!x) return diag_nomem(f->d);
    TRY(find_port(f, g, DEV_INPUT, name, &p, &s));
    if (n != port_elems(p))
        return diag_fail(f->d, AN_BUG, NOWHERE, "input %s has %lld elements, given %lld", name,
                         (long long)port_elems(p), (long long)n);
    TRY(dev_surface_lock(s, false, &at, f->d));
    for (int64_t i = 0; i < n; i++) dtype_store(p->dt, at, i, x[i]);
    return dev_surface_unlock(s, f->d);
}

an_status fx_go(fx *f, fx_prog *g) { return device_run(g->r, DEV_QOS, f->d); }

an_status fx_get(fx *f, fx_prog *g, const char *name, double **x, int64_t *n)
{
    const dev_port *p;
    dev_surface *s = NULL;
    void *at;
    TRY(find_port(f, g, DEV_OUTPUT, name, &p, &s));
    *n = port_elems(p);
    *x = TAKE(&f->mem, double, (size_t)*n);
    if (!*x) return diag_nomem(f->d);
    TRY(dev_surface_lock(s, true, &at, f->d));
    for (int64_t i = 0; i < *n; i++) (*x)[i] = dtype_load(p->dt, at, i);
    return dev_surface_unlock(s, f->d);
}

an_status fx_once(fx *f, const char *chip, const char *text, const strbuf *blob, const fx_val *in, size_t n_in,
                  fx_val *out, size_t n_out)
{
    fx_prog g;
    TRY(fx_open(f, &g, chip, text, blob));
    an_status st = AN_OK;
    for (size_t i = 0; !st && i < n_in; i++) st = fx_set(f, &g, in[i].name, in[i].x, in[i].n);
    if (!st) st = fx_go(f, &g);
    for (size_t i = 0; !st && i < n_out; i++) st = fx_get(f, &g, out[i].name, &out[i].x, &out[i].n);
    fx_close(&g);
    return st;
}

/* ---- data ---- */

double *fx_take(fx *f, int64_t n) { return TAKE(&f->mem, double, (size_t)n); }

double *fx_fill(fx *f, int64_t n, double x)
{
    double *v = fx_take(f, n);
    for (int64_t i = 0; v && i < n; i++) v[i] = x;
    return v;
}

double *fx_normal(fx *f, int64_t n, uint64_t seed, double scale)
{
    double *v = fx_take(f, n);
    rng r = { .s = seed };
    for (int64_t i = 0; v && i < n; i++) v[i] = dtype_round(DT_F16, rng_normal(&r) * scale);
    return v;
}

double *fx_uniform(fx *f, int64_t n, uint64_t seed, double lo, double hi)
{
    double *v = fx_take(f, n);
    rng r = { .s = seed };
    for (int64_t i = 0; v && i < n; i++) v[i] = dtype_round(DT_F16, rng_range(&r, lo, hi));
    return v;
}

double fx_cosine(const double *a, const double *b, int64_t n)
{
    double ab = 0, aa = 0, bb = 0;
    for (int64_t i = 0; i < n; i++) ab += a[i] * b[i], aa += a[i] * a[i], bb += b[i] * b[i];
    return ab / sqrt(aa * bb);
}

double fx_relative(const double *got, const double *want, int64_t n)
{
    double e = 0, w = 0;
    for (int64_t i = 0; i < n; i++) e += (got[i] - want[i]) * (got[i] - want[i]), w += want[i] * want[i];
    return sqrt(e / w);
}

double fx_ulps(double a, double b)
{
    if (a == b) return 0;
    double m = MAX(fabs(a), fabs(b));
    if (!isfinite(m)) return INF;
    return fabs(a - b) / ldexp(1, MAX(ilogb(m), -14) - 10);
}
