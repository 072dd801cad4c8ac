/* facts_factor.c: matrices taken apart on the engine: QR, Cholesky and LU as one unrolled program each, Jacobi's
 * rotations, singular values. In: seeded matrices of a known spectrum.  Out: how far the product of the factors is
 * from the matrix, and values from the spectrum. Angles are the host's. */
#include "facts/facts_int.h"

/* ---- unrolled programs ---- */

/* Gram-Schmidt on the columns of A, given as rows of x: every projection is a few operations, nothing is looped. */
static const char *unrolled_qr(fx *f, int n)
{
    strbuf b = { 0 };
    char *text = NULL;
    for (int j = 0; j < n; j++) {
        sb_printf(&b, "tensor<fp16, [1, %d]> v%d_0 = slice_by_size(x = x, begin = tensor<int32, [2]>([%d, 0]), size = tensor<int32, [2]>([1, %d]))[name = string(\"v%d_0\")];\n", n, j, j, n, j);
        for (int i = 0; i < j; i++)
            sb_printf(&b,
                      "tensor<fp16, [1, 1]> d%d_%d = matmul(x = v%d_%d, y = q%d, transpose_x = bool(false), transpose_y = bool(true))[name = string(\"d%d_%d\")];\n"
                      "tensor<fp16, [1, %d]> p%d_%d = mul(x = q%d, y = d%d_%d)[name = string(\"p%d_%d\")];\n"
                      "tensor<fp16, [1, %d]> v%d_%d = sub(x = v%d_%d, y = p%d_%d)[name = string(\"v%d_%d\")];\n",
                      j, i, j, i, i, j, i, n, j, i, i, j, i, j, i, n, j, i + 1, j, i, j, i, j, i + 1);
        sb_printf(&b,
                  "tensor<fp16, [1, 1]> s%d = matmul(x = v%d_%d, y = v%d_%d, transpose_x = bool(false), transpose_y = bool(true))[name = string(\"s%d\")];\n"
                  "tensor<fp16, [1, 1]> r%d = rsqrt(x = s%d, epsilon = fp16(0))[name = string(\"r%d\")];\n"
                  "tensor<fp16, [1, %d]> q%d = mul(x = v%d_%d, y = r%d)[name = string(\"q%d\")];\n",
                  j, j, j, j, j, j, j, j, j, n, j, j, j, j, j);
    }
    sb_printf(&b, "tensor<fp16, [%d, %d]> y = concat(values = (", n, n);
    for (int j = 0; j < n; j++) sb_printf(&b, "%sq%d", j ? ", " : "", j);
    sb_puts(&b, "), axis = int32(0), interleave = bool(false))[name = string(\"y\")];\n");
    char params[64];
    snprintf(params, sizeof params, "tensor<fp16, [%d, %d]> x", n, n);
    if (!b.oom) text = (char *)(uintptr_t)fx_text(f, params, "y", "%s", b.at);
    sb_free(&b);
    return text;
}

/* Statements of a matrix that loses a row and a column at each step: t<j> is what is left of it, square. */
typedef struct {
    strbuf b;
    int n;
} unrolled;

static void put_cut(unrolled *u, const char *name, int j, const char *of, int row, int col, int rows, int cols)
{
    sb_printf(&u->b, "tensor<fp16, [%d, %d]> %s%d = slice_by_size(x = %s%d, begin = tensor<int32, [2]>([%d, %d]), size = tensor<int32, [2]>([%d, %d]))[name = string(\"%s%d\")];\n", rows, cols, name, j,
              of, j, row, col, rows, cols, name, j);
}

/* t<j+1> = the rest of t<j> - left * right */
static void put_rest(unrolled *u, int j, const char *left, const char *right, bool turned)
{
    int m = u->n - j;
    if (m == 1) return;
    sb_printf(&u->b,
              "tensor<fp16, [%d, %d]> o%d = matmul(x = %s%d, y = %s%d, transpose_x = bool(%s), transpose_y = bool(false))[name = string(\"o%d\")];\n"
              "tensor<fp16, [%d, %d]> s%d = sub(x = t%d, y = o%d)[name = string(\"s%d\")];\n",
              m, m, j, left, j, right, j, turned ? "true" : "false", j, m, m, j, j, j, j);
    sb_printf(&u->b, "tensor<fp16, [%d, %d]> t%d = slice_by_size(x = s%d, begin = tensor<int32, [2]>([1, 1]), size = tensor<int32, [2]>([%d, %d]))[name = string(\"t%d\")];\n", m - 1, m - 1, j + 1, j, m - 1,
              m - 1, j + 1);
}

/* name<j> with zeros before it on an axis of n, as <name>full<j>; then all of them side by side on the other axis,
 * as `out`. */
static void put_all(unrolled *u, const char *name, int axis, const char *out)
{
    int n = u->n;
    for (int j = 1; j < n; j++) {
        sb_printf(&u->b, "tensor<fp16, [%d, %d]> %szero%d = const()[name = string(\"%szero%d\"), val = tensor<fp16, [%d, %d]>([0", axis ? 1 : j, axis ? j : 1, name, j, name, j, axis ? 1 : j, axis ? j : 1);
        for (int i = 1; i < j; i++) sb_puts(&u->b, ", 0");
        sb_printf(&u->b, "])];\ntensor<fp16, [%d, %d]> %sfull%d = concat(values = (%szero%d, %s%d), axis = int32(%d), interleave = bool(false))[name = string(\"%sfull%d\")];\n", axis ? 1 : n, axis ? n : 1,
                  name, j, name, j, name, j, axis, name, j);
    }
    sb_printf(&u->b, "tensor<fp16, [%d, %d]> %s = concat(values = (%s0", n, n, out, name);
    for (int j = 1; j < n; j++) sb_printf(&u->b, ", %sfull%d", name, j);
    sb_printf(&u->b, "), axis = int32(%d), interleave = bool(false))[name = string(\"%s\")];\n", 1 - axis, out);
}

static const char *finish(fx *f, unrolled *u, const char *results)
{
    char params[64];
    const char *text = NULL;
    snprintf(params, sizeof params, "tensor<fp16, [%d, %d]> t0", u->n, u->n);
    if (!u->b.oom) text = fx_text(f, params, results, "%s", u->b.at);
    sb_free(&u->b);
    return text;
}

/* Cholesky: y = L', row j the first row of what is left over the root of its pivot. */
static const char *unrolled_cholesky(fx *f, int n)
{
    unrolled u = { .n = n };
    for (int j = 0; j < n; j++) {
        put_cut(&u, "f", j, "t", 0, 0, 1, n - j);
        put_cut(&u, "p", j, "t", 0, 0, 1, 1);
        sb_printf(&u.b, "tensor<fp16, [1, 1]> r%d = rsqrt(x = p%d, epsilon = fp16(0))[name = string(\"r%d\")];\ntensor<fp16, [1, %d]> l%d = mul(x = f%d, y = r%d)[name = string(\"l%d\")];\n", j, j, j, n - j, j, j,
                  j, j);
        put_rest(&u, j, "l", "l", true);
    }
    put_all(&u, "l", 1, "y");
    return finish(f, &u, "y");
}

/* Doolittle: y = U, its row j the first row of what is left; z = L, its column j the first column over the pivot. */
static const char *unrolled_lu(fx *f, int n)
{
    unrolled u = { .n = n };
    for (int j = 0; j < n; j++) {
        put_cut(&u, "u", j, "t", 0, 0, 1, n - j);
        put_cut(&u, "c", j, "t", 0, 0, n - j, 1);
        put_cut(&u, "p", j, "t", 0, 0, 1, 1);
        sb_printf(&u.b, "tensor<fp16, [1, 1]> r%d = inverse(x = p%d, epsilon = fp16(0))[name = string(\"r%d\")];\ntensor<fp16, [%d, 1]> l%d = mul(x = c%d, y = r%d)[name = string(\"l%d\")];\n", j, j, j, n - j, j, j,
                  j, j);
        put_rest(&u, j, "l", "u", false);
    }
    put_all(&u, "u", 1, "y");
    put_all(&u, "l", 0, "z");
    return finish(f, &u, "y, z");
}

/* ---- how far a product of factors is from A ---- */

static double *product(fx *f, const double *a, const double *b, int n, bool turned) /* turned: A' B */
{
    double *y = fx_take(f, n * n);
    for (int i = 0; y && i < n; i++)
        for (int k = 0; k < n; k++)
            for (int j = 0; j < n; j++) y[i * n + j] += (turned ? a[k * n + i] : a[i * n + k]) * b[k * n + j];
    return y;
}

/* Strictly below the diagonal (above: above it) there is nothing but zeros. */
static bool is_triangle(const double *x, int n, bool above)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++)
            if ((above ? x[j * n + i] : x[i * n + j]) != 0) return false;
    return true;
}

static an_status qr_error(fx *f, int n, const double *a, double *e, double *off)
{
    double *back = fx_take(f, n * n);
    fx_val q = { .name = "y" };
    if (!back) return diag_nomem(f->d);
    TRY(fx_once(f, fx_chip(f, 0), unrolled_qr(f, n), NULL, &(fx_val){ "x", (double *)(uintptr_t)a, n * n }, 1, &q, 1));
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            *off = MAX(*off, fabs(fx_dot(q.x + i * n, q.x + j * n, n) - (i == j)));
            for (int k = 0; k <= i; k++) back[i * n + j] += fx_dot(a + i * n, q.x + k * n, n) * q.x[k * n + j];
        }
    *e = fx_relative(back, a, n * n);
    return AN_OK;
}

static an_status cholesky_error(fx *f, int n, double *a, double *e)
{
    fx_val y = { .name = "y" };
    TRY(fx_once(f, fx_chip(f, 0), unrolled_cholesky(f, n), NULL, &(fx_val){ "t0", a, n * n }, 1, &y, 1));
    double *back = product(f, y.x, y.x, n, true);
    if (!back) return diag_nomem(f->d);
    *e = is_triangle(y.x, n, false) ? fx_relative(back, a, n * n) : INF;
    return AN_OK;
}

static an_status lu_error(fx *f, int n, double *a, double *e)
{
    fx_val y[2] = { { .name = "y" }, { .name = "z" } };
    TRY(fx_once(f, fx_chip(f, 0), unrolled_lu(f, n), NULL, &(fx_val){ "t0", a, n * n }, 1, y, 2));
    double *back = product(f, y[1].x, y[0].x, n, false);
    if (!back) return diag_nomem(f->d);
    *e = is_triangle(y[0].x, n, false) && is_triangle(y[1].x, n, true) ? fx_relative(back, a, n * n) : INF;
    return AN_OK;
}

/* args: size, greatest error of A from the product of its factors, relative; greatest element of Q'Q - I */
an_status fact_unrolled(fx *f)
{
    int n = (int)fx_arg(f, 0);
    double *a = fx_normal(f, n * n, 85, 0.25), *s = fx_spd(f, n, 10, 85), qr = INF, cholesky = INF, lu = INF, off = 0;
    if (!a || !s) return diag_nomem(f->d);
    for (int i = 0; i < n; i++) a[i * n + i] += 2;
    TRY(qr_error(f, n, a, &qr, &off));
    TRY(cholesky_error(f, n, s, &cholesky));
    TRY(lu_error(f, n, a, &lu));
    bool ok = qr <= fx_arg(f, 1) && cholesky <= fx_arg(f, 1) && lu <= fx_arg(f, 1) && off <= fx_arg(f, 2);
    return fx_verdict(f, ok, "n=%d: |A - QR| %.0e, worst of Q'Q - I %.0e; |A - LL'| %.0e; |A - LU| %.0e", n, qr, off,
                      cholesky, lu);
}

/* ---- rotations ---- */

/* A' = J' A J and V' = V J, both on the engine. */
typedef struct {
    fx_prog g;
    int64_t n;
    double *j;
} rotation;

static an_status rotation_open(fx *f, rotation *r, int64_t n)
{
    const long long k = n;
    char params[200];
    snprintf(params, sizeof params, "tensor<fp16, [%lld, %lld]> a, tensor<fp16, [%lld, %lld]> j, tensor<fp16, [%lld, %lld]> v", k, k, k, k, k, k);
    const char *text = fx_text(f, params, "w, y",
                               "tensor<fp16, [%lld, %lld]> t = matmul(x = a, y = j, transpose_x = bool(false), transpose_y = bool(false))[name = string(\"t\")];\n"
                               "tensor<fp16, [%lld, %lld]> y = matmul(x = j, y = t, transpose_x = bool(true), transpose_y = bool(false))[name = string(\"y\")];\n"
                               "tensor<fp16, [%lld, %lld]> w = matmul(x = v, y = j, transpose_x = bool(false), transpose_y = bool(false))[name = string(\"w\")];", k, k, k, k, k, k);
    r->n = n, r->j = fx_take(f, n * n);
    return r->j ? fx_open(f, &r->g, fx_chip(f, 0), text, NULL) : diag_nomem(f->d);
}

static an_status rotate(fx *f, rotation *r, double *a, double *v, int64_t p, int64_t q)
{
    int64_t n = r->n, got;
    double apq = (a[p * n + q] + a[q * n + p]) / 2, *y, *w, *j = r->j;
    if (fabs(apq) < 1e-4) return AN_OK;
    arena_mark m = arena_save(&f->mem);
    double theta = 0.5 * atan2(2 * apq, a[q * n + q] - a[p * n + p]);
    memset(j, 0, (size_t)(n * n) * sizeof *j);
    for (int64_t i = 0; i < n; i++) j[i * n + i] = 1;
    j[p * n + p] = j[q * n + q] = cos(theta), j[p * n + q] = sin(theta), j[q * n + p] = -sin(theta);
    TRY(fx_set(f, &r->g, "a", a, n * n));
    TRY(fx_set(f, &r->g, "j", j, n * n));
    TRY(fx_set(f, &r->g, "v", v, n * n));
    TRY(fx_go(f, &r->g));
    TRY(fx_get(f, &r->g, "y", &y, &got));
    TRY(fx_get(f, &r->g, "w", &w, &got));
    memcpy(a, y, (size_t)(n * n) * sizeof *a);
    memcpy(v, w, (size_t)(n * n) * sizeof *v);
    arena_back(&f->mem, m);
    return AN_OK;
}

/* Cyclic sweeps over a symmetric matrix: a becomes nearly diagonal, v its vectors in columns. */
static an_status jacobi(fx *f, double *a, double *v, int64_t n, int sweeps)
{
    rotation r;
    for (int64_t i = 0; i < n * n; i++) v[i] = i % (n + 1) == 0;
    TRY(rotation_open(f, &r, n));
    an_status st = AN_OK;
    for (int s = 0; !st && s < sweeps; s++)
        for (int64_t p = 0; !st && p < n; p++)
            for (int64_t q = p + 1; !st && q < n; q++) st = rotate(f, &r, a, v, p, q);
    fx_close(&r.g);
    return st;
}

/* The spectrum is known: each value of it beside the nearest that is left of x; the worst distance. */
static double match(double *x, int64_t n, double condition)
{
    double worst = 0;
    for (int64_t i = 0; i < n; i++) {
        double want = pow(condition, -(double)i / (double)(n - 1)), best = INF;
        int64_t at = 0;
        for (int64_t k = 0; k < n; k++)
            if (fabs(x[k] - want) < best) best = fabs(x[k] - want), at = k;
        x[at] = INF;
        worst = MAX(worst, best);
    }
    return worst;
}

/* |A - V diag(x) V'| by |A| */
static double apart(fx *f, const double *a, const double *v, const double *x, int64_t n)
{
    double *back = fx_take(f, n * n);
    for (int64_t i = 0; back && i < n; i++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t k = 0; k < n; k++) back[i * n + j] += v[i * n + k] * x[k] * v[j * n + k];
    return back ? fx_relative(back, a, n * n) : INF;
}

static an_status eigen_error(fx *f, int64_t n, double condition, int sweeps, double *value, double *whole)
{
    double *a = fx_spd(f, n, condition, 86), *left = fx_take(f, n * n), *v = fx_take(f, n * n), *x = fx_take(f, n);
    if (!a || !left || !v || !x) return diag_nomem(f->d);
    memcpy(left, a, (size_t)(n * n) * sizeof *a);
    TRY(jacobi(f, left, v, n, sweeps));
    for (int64_t i = 0; i < n; i++) x[i] = left[i * n + i];
    *whole = apart(f, a, v, x, n);
    *value = match(x, n, condition);
    return AN_OK;
}

/* A = S H, S symmetric of the known spectrum, H a reflection: its singular values are S's. A'A is a product on the
 * engine. */
static an_status svd_error(fx *f, int64_t n, double condition, int sweeps, double *value, double *whole)
{
    double *a = fx_spd(f, n, condition, 861), *h = fx_normal(f, n, 862, 1), *v = fx_take(f, n * n), *x = fx_take(f, n),
           *back = fx_take(f, n * n);
    if (!a || !h || !v || !x || !back) return diag_nomem(f->d);
    double len = fx_dot(h, h, n);
    for (int64_t i = 0; i < n; i++) {
        double along = 2 * fx_dot(a + i * n, h, n) / len;
        for (int64_t k = 0; k < n; k++) a[i * n + k] = dtype_round(DT_F16, a[i * n + k] - along * h[k]);
    }
    char params[64];
    snprintf(params, sizeof params, "tensor<fp16, [%lld, %lld]> a", (long long)n, (long long)n);
    fx_val y = { .name = "y" };
    TRY(fx_once(f, fx_chip(f, 0), fx_text(f, params, "y", "tensor<fp16, [%lld, %lld]> y = matmul(x = a, y = a, transpose_x = bool(true), transpose_y = bool(false))[name = string(\"y\")];", (long long)n, (long long)n),
                NULL, &(fx_val){ "a", a, n * n }, 1, &y, 1));
    TRY(jacobi(f, y.x, v, n, sweeps));
    for (int64_t k = 0; k < n; k++) { /* U S = A V, so that A is A V V' */
        x[k] = sqrt(MAX(y.x[k * n + k], 0));
        for (int64_t i = 0; i < n; i++) {
            double us = 0;
            for (int64_t j = 0; j < n; j++) us += a[i * n + j] * v[j * n + k];
            for (int64_t j = 0; j < n; j++) back[i * n + j] += us * v[j * n + k];
        }
    }
    *whole = fx_relative(back, a, n * n);
    *value = match(x, n, condition);
    return AN_OK;
}

/* args: size, greatest error of the whole matrix; then condition, sweeps, 1 for singular values, greatest error of
 * one by the largest … */
an_status fact_jacobi(fx *f)
{
    int64_t n = (int64_t)fx_arg(f, 0);
    strbuf b = { 0 };
    bool ok = true;
    an_status st = AN_OK;
    for (int i = 2; !st && i + 3 < f->row->n_arg; i += 4) {
        double condition = fx_arg(f, i), value = 0, whole = 0;
        int sweeps = (int)fx_arg(f, i + 1);
        bool singular = fx_arg(f, i + 2) != 0;
        st = singular ? svd_error(f, n, condition, sweeps, &value, &whole)
                      : eigen_error(f, n, condition, sweeps, &value, &whole);
        ok = ok && value <= fx_arg(f, i + 3) && whole <= fx_arg(f, 1);
        sb_printf(&b, "%s%s, condition %g, %d sweeps: %.0e, A %.0e", i > 2 ? "; " : "", singular ? "singular" : "eigen",
                  condition, sweeps, value, whole);
    }
    if (!st) st = b.oom ? diag_nomem(f->d) : fx_verdict(f, ok, "%s", b.at);
    sb_free(&b);
    return st;
}
