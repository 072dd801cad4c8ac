/* bench.c: the table of benchmarks, timing, rows, and programs under test. */
#include "base/plain.h"
#include "bench/bench_int.h"
#include "kernel/vector.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <sys/resource.h>

static const struct {
    const char *name, *what;
    an_status (*run)(bench *b);
} rows[] = {
#define BENCH(name, what) { #name, what, bench_##name },
#include "bench/bench.def"
#undef BENCH
};

static bool is(const char *format, const char *word) { return !strcmp(format, word); }

void bench_list(strbuf *out, const char *format)
{
    const char *row = is(format, "json")       ? "{\"bench\":\"%s\",\"what\":\"%s\"}\n"
                      : is(format, "markdown") ? "- `%s`: %s\n"
                                               : "%-10s %s\n";
    for (size_t i = 0; i < COUNT(rows); i++) sb_printf(out, row, rows[i].name, rows[i].what);
}

static void heading(const bench *b, const char *name, const char *what)
{
    if (is(b->format, "markdown"))
        sb_printf(
            b->out,
            "\n## %s\n\n%c%s.\n\n| case | kernel | least | median | rate | of the bound | bound |\n|---|---|--:|--:|--:|--:|---|\n",
            name, toupper((unsigned char)*what), what + 1);
}

an_status bench_run(const char *name, const char *format, int runs, strbuf *out, diag *d)
{
    bench b = { .format = format, .runs = runs, .out = out, .d = d };
    bool found = false;
    TRY(isa_have(&b.isa, d));
    TRY(pool_make(&b.pool, 0, d));
    for (size_t i = 0; i < COUNT(rows) && !d->st; i++) {
        if (name && strcmp(name, rows[i].name)) continue;
        found = true;
        heading(&b, rows[i].name, rows[i].what);
        an_status st = rows[i].run(&b);
        if (st && !d->st) diag_fail(d, st, NOWHERE, "bench %s failed", rows[i].name);
    }
    pool_free(b.pool);
    if (!found) {
        strbuf names = { 0 };
        for (size_t i = 0; i < COUNT(rows); i++) sb_printf(&names, "%s%s", i ? ", " : "", rows[i].name);
        diag_fail(d, AN_USAGE, NOWHERE, "no benchmark is called \"%.40s\"; there are %s", name,
                  names.at ? names.at : "");
        sb_free(&names);
    }
    if (out->oom) return diag_nomem(d);
    return d->st;
}

/* ---- bounds and times ---- */

double bench_peak_mb(void)
{
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) ? 0 : (double)u.ru_maxrss / 1024;
}

void bench_peak_anew(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "w"); /* where there is none, rows before count as well */
    if (!f) return;
    fputs("5", f);
    fclose(f);
}

static int by_value(const void *p, const void *q)
{
    double x = *(const double *)p, y = *(const double *)q;
    return (x > y) - (x < y);
}

double bound_peak(void *p) { return peak_rate(p); }

/* As many turns as were asked for, or at least RUNS, or FEW of long ones, until each has had its seconds: other load
 * makes single runs slower, never faster. */
an_status bench_race(bench *b, int n, bench_fn *const *fn, void *const *user, const ruler *with, timing *t)
{
    enum { RUNS = 7, FEW = 3 };
    static double s[RACE_MOST][BENCH_RUNS], could[RACE_MOST][BENCH_RUNS];
    const double seconds = 0.3 * n, lengthy = n;
    double sum = 0, limit = 0;
    int turns = 0;
    for (int i = 0; i < n; i++) TRY(fn[i](user[i], b->d));
    double before = with ? with->rate(with->user) : 0;
    for (; b->runs ? turns < b->runs : turns < BENCH_RUNS && (turns < (sum < lengthy ? RUNS : FEW) || sum < seconds);
         turns++) {
        for (int i = 0; i < n; i++) {
            uint64_t from = clock_ns();
            TRY(fn[i](user[i], b->d));
            sum += s[i][turns] = (double)(clock_ns() - from) * 1e-9;
        }
        if (!with) continue;
        double after = with->rate(with->user);
        if (!(after > 0)) return diag_fail(b->d, AN_BUG, NOWHERE, "a bound could not be measured");
        limit = MAX(limit, MAX(before, after));
        for (int i = 0; i < n; i++) could[i][turns] = s[i][turns] * (before + after) / 2;
        before = after;
    }
    for (int i = n - 1; i >= 0; i--) { /* the first one last: until then its times are in the order of the turns */
        double longer[BENCH_RUNS];
        for (int k = 0; k < turns; k++) longer[k] = s[i][k] / s[0][k];
        qsort(longer, (size_t)turns, sizeof *longer, by_value);
        qsort(s[i], (size_t)turns, sizeof *s[i], by_value);
        qsort(could[i], (size_t)turns, sizeof *could[i], by_value);
        t[i] = (timing){ .least = s[i][0],
                         .median = s[i][turns / 2],
                         .limit = limit,
                         .could = with ? could[i][turns / 2] : 0,
                         .longer = longer[turns / 2] };
    }
    return AN_OK;
}

an_status bench_time(bench *b, bench_fn *fn, void *user, timing *t) { return bench_race(b, 1, &fn, &user, NULL, t); }
an_status bench_beside(bench *b, bench_fn *fn, void *user, ruler with, timing *t)
{
    return bench_race(b, 1, &fn, &user, &with, t);
}

const char *bench_kernel(const bench *b, gemm_math m) { return gemm_name(gemm_pick(m, b->isa)); }
const char *bench_vectors(const bench *b) { return vec_pick(b->isa)->name; }

/* A time as a person would say it. */
static const char *spoken(char *at, size_t n, double seconds)
{
    if (seconds < 1e-2) plain_printf(at, n, "%.1f µs", seconds * 1e6);
    else if (seconds < 10) plain_printf(at, n, "%.1f ms", seconds * 1e3);
    else plain_printf(at, n, "%.1f s", seconds);
    return at;
}

void bench_row(bench *b, const char *name, const char *what, const char *kernel, timing t, double work,
               const char *unit, double limit, const char *limit_is)
{
    char least[32], median[32];
    double rate = work / t.least * 1e-9, typical = work / t.median * 1e-9,
           share = t.could > 0 ? work * 1e-9 / t.could
                   : limit > 0 ? rate / limit
                               : 0;
    if (is(b->format, "json"))
        sb_printf(b->out,
                  "{\"bench\":\"%s\",\"case\":\"%s\",\"isa\":\"%s\",\"threads\":%d,\"min_us\":%.2f,\"med_us\":%.2f,\"rate\":%.3f,\"med_rate\":%.3f,\"unit\":\"%s\","
                  "\"bound\":%.3f,\"bound_is\":\"%s\",\"of_bound\":%.3f}\n",
                  name, what, kernel, pool_threads(b->pool), t.least * 1e6, t.median * 1e6, rate, typical, unit, limit, limit_is, share);
    else if (is(b->format, "markdown"))
        sb_printf(b->out, "| %s | `%s` | %s | %s | %.*f %s | %.0f %% | %.*f, %s |\n", what, kernel,
                  spoken(least, sizeof least, t.least), spoken(median, sizeof median, t.median), rate < 100 ? 2 : 0,
                  rate, unit, 100 * share, limit < 100 ? 2 : 0, limit, limit_is);
    else
        sb_printf(b->out, "%-10s %-34s %10.1f us  %10.1f us  %8.2f %-8s %5.1f %% of %.2f (%s)\n", name, what,
                  t.least * 1e6, t.median * 1e6, rate, unit, 100 * share, limit, limit_is);
}

/* ---- programs ---- */

static void fill(rng *r, dtype t, void *x, int64_t n, double scale)
{
    for (int64_t i = 0; i < n; i++)
        dtype_store(t, x, i, dtype_is_float(t) ? rng_range(r, -scale, scale) : (double)rng_below(r, 2));
}

static int64_t elems(const etensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->dim[i];
    return n;
}

an_status subject_open(bench *b, subject *s, graph *g, const numerics *num, double scale, diag *d)
{
    *s = (subject){ .g = g, .r = { SUBJECT_SEED } };
    if (!g) return diag_nomem(d);
    TRY(graph_finish(g, d));
    TRY(codegen_program(g, &(codegen_options){ .num = num, .level = 1 }, &s->p, d));
    TRY(image_load(&s->im, s->p, NULL, &(image_options){ .pool = b->pool }, d));
    s->in = TAKE(&s->mem, const void *, s->p->inputs.n + 1), s->out = TAKE(&s->mem, void *, s->p->outputs.n + 1);
    if (!s->in || !s->out) return diag_nomem(d);
    for (size_t i = 0; i < s->p->inputs.n; i++) {
        const eport *e = &s->p->inputs.at[i];
        void *x = arena_take(&s->mem, (size_t)e->bytes, 1, 64);
        if (!x) return diag_nomem(d);
        fill(&s->r, s->p->tensors.at[e->tensor].dt, x, elems(&s->p->tensors.at[e->tensor]), scale);
        s->in[i] = x;
    }
    for (size_t i = 0; i < s->p->outputs.n; i++)
        if (!(s->out[i] = arena_take(&s->mem, (size_t)s->p->outputs.at[i].bytes, 1, 64))) return diag_nomem(d);
    return AN_OK;
}

void subject_close(subject *s)
{
    image_free(s->im);
    image_free(s->ref);
    program_free(s->p);
    graph_free(s->g);
    arena_free(&s->mem);
}

an_status subject_run(void *subject_, diag *d)
{
    subject *s = subject_;
    return image_run(s->im, s->in, s->out, d);
}

an_status subject_time(bench *b, subject *s, timing *t) { return bench_time(b, subject_run, s, t); }
an_status subject_beside(bench *b, subject *s, ruler with, timing *t)
{
    return bench_beside(b, subject_run, s, with, t);
}

an_status subject_check(subject *s, const char *what, double tol, diag *d)
{
    void **want = TAKE(&s->mem, void *, s->p->outputs.n + 1);
    if (!want) return diag_nomem(d);
    for (size_t k = 0; k < s->p->outputs.n; k++)
        if (!(want[k] = arena_take(&s->mem, (size_t)s->p->outputs.at[k].bytes, 1, 64))) return diag_nomem(d);
    TRY(image_load(&s->ref, s->p, NULL, &(image_options){ .reference = true }, d));
    TRY(image_run(s->ref, s->in, want, d));
    TRY(subject_run(s, d));
    for (size_t k = 0; k < s->p->outputs.n; k++) {
        const etensor *t = &s->p->tensors.at[s->p->outputs.at[k].tensor];
        for (int64_t i = 0, n = elems(t); i < n; i++) {
            double x = dtype_load(t->dt, s->out[k], i), y = dtype_load(t->dt, want[k], i);
            if (x == y || fabs(x - y) <= tol * fmax(1, fabs(y))) continue;
            return diag_fail(d, AN_MISMATCH, NOWHERE,
                             "bench %s: element %lld of output %zu is %.9g, the reference says %.9g", what,
                             (long long)i, k, x, y);
        }
    }
    return AN_OK;
}

val bench_weight(graph *g, const char *name, int64_t rows_, int64_t cols, dtype dt, uint64_t seed)
{
    ttype t = { .dt = dt, .sh = SHAPE(rows_, cols, 1, 1) };
    rng r = { seed };
    size_t bytes;
    if (!dtype_bytes(dt, rows_ * cols, &bytes)) return NO_VAL;
    void *x = arena_take(&g->mem, bytes, 1, 64);
    if (!x) return NO_VAL; /* an operation on it fails, and says so */
    fill(&r, dt, x, rows_ * cols, sqrt(3.0 / (double)cols));
    return graph_const_view(g, name, t, x);
}
