/* facts_solve.c: numerical methods whose products run on the engine: an eigenpair, iterative solvers, elimination,
 * transforms. In: seeded matrices of a known spectrum.  Out: errors against the same problem solved in double. The
 * steps the published runs left to the host (norms, pivots, scalars) are the host's here too. */
#include "facts/facts_int.h"
#include "mil/mil.h"

/* ---- y = A x with A as an input or a constant ---- */

typedef struct {
    fx_prog g;
    int64_t n;
    double scale; /* of the vector, so that it uses the range of fp16 */
} matvec;

static an_status matvec_open(fx *f, matvec *m, const char *chip, const double *a, int64_t n, bool constant)
{
    char params[160];
    const char *body = "tensor<fp16, [1, %lld]> y = matmul(x = x, y = w, transpose_x = bool(false), transpose_y = bool(true))[name = string(\"y\")];";
    strbuf *bytes = NULL;
    blob_writer b = { 0 };
    an_status st = AN_OK;
    m->n = n;
    if (constant) {
        uint16_t *h = TAKE(&f->mem, uint16_t, (size_t)(n * n));
        uint64_t at = 0;
        if (!h) return diag_nomem(f->d);
        for (int64_t i = 0; i < n * n; i++) h[i] = f16_from_f64(a[i]);
        st = blob_add(&b, DT_F16, h, (size_t)(n * n) * 2, &at, f->d);
        if (!st) st = blob_finish(&b, f->d);
        snprintf(params, sizeof params, "tensor<fp16, [1, %lld]> x", (long long)n);
        body = "tensor<fp16, [%lld, %lld]> w = const()[name = string(\"w\"), val = tensor<fp16, [%lld, %lld]>(BLOBFILE(path = string(\"@model_path/w.bin\"), offset = uint64(64)))];\n"
               "tensor<fp16, [1, %lld]> y = matmul(x = x, y = w, transpose_x = bool(false), transpose_y = bool(true))[name = string(\"y\")];";
        bytes = &b.bytes;
        if (!st)
            st = fx_open(
                f, &m->g, chip,
                fx_text(f, params, "y", body, (long long)n, (long long)n, (long long)n, (long long)n, (long long)n),
                bytes);
    } else {
        snprintf(params, sizeof params, "tensor<fp16, [1, %lld]> x, tensor<fp16, [%lld, %lld]> w", (long long)n, (long long)n, (long long)n);
        st = fx_open(f, &m->g, chip, fx_text(f, params, "y", body, (long long)n), NULL);
        if (!st && (st = fx_set(f, &m->g, "w", a, n * n))) fx_close(&m->g);
    }
    sb_free(&b.bytes);
    return st;
}

static an_status matvec_run(fx *f, matvec *m, const double *x, double *y)
{
    arena_mark mark = arena_save(&f->mem);
    double most = 0, *got;
    int64_t n;
    for (int64_t i = 0; i < m->n; i++) most = MAX(most, fabs(x[i]));
    double *part = fx_take(f, m->n);
    if (!part) return diag_nomem(f->d);
    for (int64_t i = 0; i < m->n; i++) part[i] = most > 0 ? x[i] / most : 0;
    TRY(fx_set(f, &m->g, "x", part, m->n));
    TRY(fx_go(f, &m->g));
    TRY(fx_get(f, &m->g, "y", &got, &n));
    for (int64_t i = 0; i < m->n; i++) y[i] = got[i] * most;
    arena_back(&f->mem, mark);
    return AN_OK;
}

/* ---- matrices ---- */

double fx_dot(const double *a, const double *b, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += a[i] * b[i];
    return s;
}

double *fx_spd(fx *f, int64_t n, double condition, uint64_t seed)
{
    enum { REFLECTIONS = 3 };
    double *a = fx_take(f, n * n), *v = fx_take(f, n), *av = fx_take(f, n);
    rng r = { .s = seed };
    if (!a || !v || !av) return NULL;
    for (int64_t i = 0; i < n; i++) a[i * n + i] = pow(condition, -(double)i / (double)(n - 1));
    for (int k = 0; k < REFLECTIONS; k++) { /* a = H a H, H = I - 2 v v' */
        for (int64_t i = 0; i < n; i++) v[i] = rng_normal(&r);
        double len = sqrt(fx_dot(v, v, n));
        for (int64_t i = 0; i < n; i++) v[i] /= len;
        for (int64_t i = 0; i < n; i++) av[i] = fx_dot(a + i * n, v, n);
        double vav = fx_dot(v, av, n);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++) a[i * n + j] += 4 * vav * v[i] * v[j] - 2 * v[i] * av[j] - 2 * av[i] * v[j];
    }
    for (int64_t i = 0; i < n * n; i++) a[i] = dtype_round(DT_F16, a[i]);
    return a;
}

/* ---- eigenpair ---- */

/* args: size, steps, greatest error */
an_status fact_power_iteration(fx *f)
{
    int64_t n = (int64_t)fx_arg(f, 0);
    double *a = fx_take(f, n * n), *x = fx_uniform(f, n, 76, 0.5, 1), *y = fx_take(f, n), sum = 0, most = 0;
    matvec m;
    if (!a || !x || !y) return diag_nomem(f->d);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) { /* circulant: ones are an eigenvector */
            int64_t by = (i - j + n) % n;
            a[i * n + j] = 1 + (by == 0) + (by == 1) + (by == n - 1);
        }
    for (int64_t j = 0; j < n; j++) sum += a[j];
    TRY(matvec_open(f, &m, fx_chip(f, 0), a, n, false));
    an_status st = AN_OK;
    double value = 0;
    for (int k = 0; !st && k < (int)fx_arg(f, 1); k++) {
        st = matvec_run(f, &m, x, y);
        value = 0;
        for (int64_t i = 0; i < n; i++) value = MAX(value, fabs(y[i]));
        for (int64_t i = 0; i < n; i++) x[i] = y[i] / value;
    }
    fx_close(&m.g);
    TRY(st);
    for (int64_t i = 0; i < n; i++) most = MAX(most, fabs(x[i] - 1));
    double error = MAX(most, fabs(value / sum - 1));
    return fx_verdict(f, error <= fx_arg(f, 2), "eigenvalue %.9g of %.9g, error %.1e", value, sum, error);
}

/* ---- conjugate gradients ---- */

/* Solves A x = b with the products on the engine and refines: each pass solves for what the last one left, measured
 * on the engine too. */
static an_status gradients(fx *f, const double *a, int64_t n, bool constant, const double *b, double *x, int steps)
{
    double *r = fx_take(f, n), *p = fx_take(f, n), *ap = fx_take(f, n);
    matvec m;
    if (!r || !p || !ap) return diag_nomem(f->d);
    TRY(matvec_open(f, &m, fx_chip(f, 0), a, n, constant));
    memcpy(r, b, (size_t)n * sizeof *r);
    memcpy(p, b, (size_t)n * sizeof *p);
    an_status st = AN_OK;
    double rr = fx_dot(r, r, n), start = rr;
    for (int k = 0; !st && k < steps && rr > 1e-12 * start; k++) {
        st = matvec_run(f, &m, p, ap);
        double along = fx_dot(p, ap, n);
        if (!(along > 0)) break;
        double alpha = rr / along, before = rr;
        for (int64_t i = 0; i < n; i++) x[i] += alpha * p[i], r[i] -= alpha * ap[i];
        rr = fx_dot(r, r, n);
        for (int64_t i = 0; i < n; i++) p[i] = r[i] + rr / before * p[i];
    }
    fx_close(&m.g);
    return st;
}

static an_status solve_error(fx *f, int64_t n, double condition, bool constant, int steps, double *error)
{
    double *a = fx_spd(f, n, condition, 77), *want = fx_normal(f, n, 78, 1), *b = fx_take(f, n), *x = fx_take(f, n);
    if (!a || !want || !b || !x) return diag_nomem(f->d);
    for (int64_t i = 0; i < n; i++) b[i] = fx_dot(a + i * n, want, n);
    TRY(gradients(f, a, n, constant, b, x, steps));
    *error = fx_relative(x, want, n);
    return AN_OK;
}

/* args: size, steps, greatest error at condition 1e2, at 1e4 */
an_status fact_iterative(fx *f)
{
    double ten, hundred, most;
    TRY(solve_error(f, (int64_t)fx_arg(f, 0), 10, false, (int)fx_arg(f, 1), &ten));
    TRY(solve_error(f, (int64_t)fx_arg(f, 0), 100, false, (int)fx_arg(f, 1), &hundred));
    TRY(solve_error(f, (int64_t)fx_arg(f, 0), 10000, false, (int)fx_arg(f, 1), &most));
    return fx_verdict(f, ten <= fx_arg(f, 2) && hundred <= fx_arg(f, 2) && most <= fx_arg(f, 3),
                      "relative error %.0e at condition 10, %.0e at 1e2, %.0e at 1e4", ten, hundred, most);
}

/* args: small size, large size, steps, greatest error */
an_status fact_spd_constant(fx *f)
{
    double small, large;
    TRY(solve_error(f, (int64_t)fx_arg(f, 0), 10, true, (int)fx_arg(f, 2), &small));
    TRY(solve_error(f, (int64_t)fx_arg(f, 1), 10, true, (int)fx_arg(f, 2), &large));
    return fx_verdict(f, small <= fx_arg(f, 3) && large <= fx_arg(f, 3), "relative error %.0e at n=%g, %.0e at n=%g",
                      small, fx_arg(f, 0), large, fx_arg(f, 1));
}

/* ---- elimination with pivots ---- */

/* args: size, greatest error. One dispatch per column: A - l u. */
an_status fact_pivoted_lu(fx *f)
{
    int64_t n = (int64_t)fx_arg(f, 0), got;
    char params[200];
    snprintf(params, sizeof params, "tensor<fp16, [%lld, %lld]> a, tensor<fp16, [%lld, 1]> l, tensor<fp16, [1, %lld]> u", (long long)n, (long long)n, (long long)n, (long long)n);
    const char *text = fx_text(f, params, "y",
                               "tensor<fp16, [%lld, %lld]> p = mul(x = l, y = u)[name = string(\"p\")];\ntensor<fp16, [%lld, %lld]> y = sub(x = a, y = p)[name = string(\"y\")];", (long long)n,
                               (long long)n, (long long)n, (long long)n);
    double *a = fx_normal(f, n * n, 781, 1), *want = fx_normal(f, n, 782, 1), *b = fx_take(f, n),
           *w = fx_take(f, n * n), *l = fx_take(f, n), *u = fx_take(f, n);
    double *y;
    fx_prog g;
    if (!a || !want || !b || !w || !l || !u) return diag_nomem(f->d);
    for (int64_t i = 0; i < n; i++) a[i * n + i] += 4; /* well conditioned */
    for (int64_t i = 0; i < n; i++) b[i] = fx_dot(a + i * n, want, n);
    memcpy(w, a, (size_t)(n * n) * sizeof *w);
    TRY(fx_open(f, &g, fx_chip(f, 0), text, NULL));
    an_status st = AN_OK;
    for (int64_t k = 0; !st && k < n; k++) {
        int64_t best = k;
        for (int64_t i = k; i < n; i++)
            if (fabs(w[i * n + k]) > fabs(w[best * n + k])) best = i;
        for (int64_t j = 0; j < n; j++) {
            double t = w[k * n + j];
            w[k * n + j] = w[best * n + j], w[best * n + j] = t;
        }
        double t = b[k];
        b[k] = b[best], b[best] = t;
        for (int64_t i = 0; i < n; i++) l[i] = i > k ? w[i * n + k] / w[k * n + k] : 0, u[i] = i > k ? w[k * n + i] : 0;
        st = fx_set(f, &g, "a", w, n * n);
        if (!st) st = fx_set(f, &g, "l", l, n);
        if (!st) st = fx_set(f, &g, "u", u, n);
        if (!st) st = fx_go(f, &g);
        if (!st) st = fx_get(f, &g, "y", &y, &got);
        if (!st) memcpy(w, y, (size_t)(n * n) * sizeof *w);
        for (int64_t i = k + 1; i < n; i++) b[i] -= l[i] * b[k];
    }
    fx_close(&g);
    TRY(st);
    for (int64_t i = n - 1; i >= 0; i--) {
        for (int64_t j = i + 1; j < n; j++) b[i] -= w[i * n + j] * b[j];
        b[i] /= w[i * n + i];
    }
    double e = fx_relative(b, want, n);
    return fx_verdict(f, e <= fx_arg(f, 1), "relative error %.0e at n=%lld", e, (long long)n);
}

/* ---- Fourier transform as a product ---- */

/* args: size, greatest error */
an_status fact_dft(fx *f)
{
    int64_t n = (int64_t)fx_arg(f, 0);
    double pi = acos(-1), *c = fx_take(f, n * n), *x = fx_normal(f, n, 80, 0.25), *y = fx_take(f, n),
           *want = fx_take(f, n);
    double e[2];
    if (!c || !x || !y || !want) return diag_nomem(f->d);
    for (int part = 0; part < 2; part++) {
        matvec m;
        for (int64_t i = 0; i < n; i++) {
            want[i] = 0;
            for (int64_t j = 0; j < n; j++) {
                double angle = 2 * pi * (double)(i * j % n) / (double)n;
                c[i * n + j] = part ? sin(angle) : cos(angle);
                want[i] += c[i * n + j] * x[j];
            }
        }
        TRY(matvec_open(f, &m, fx_chip(f, 0), c, n, true));
        an_status st = matvec_run(f, &m, x, y);
        fx_close(&m.g);
        TRY(st);
        e[part] = fx_relative(y, want, n);
    }
    return fx_verdict(f, e[0] <= fx_arg(f, 1) && e[1] <= fx_arg(f, 1),
                      "relative error %.0e (cosines), %.0e (sines) at N=%lld", e[0], e[1], (long long)n);
}
