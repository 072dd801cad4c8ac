/* bench_mil.c: the compiler: all programs of a Stories110M training step built, optimised for m4 and printed as MIL;
 * that text read back; the same text checked. In the first place every program must be accepted.  Bounds: copying
 * the text, and one look at each of its bytes. */
#include <stdlib.h>

#include "bench/bench_int.h"
#include "check/check.h"
#include "lower/lower.h"
#include "mil/mil.h"
#include "model/model.h"
#include "pass/pass.h"

typedef struct {
    const model_config *c;
    const chip *target;
    model_program *all;
    size_t n, *end; /* where the text of each ends */
    strbuf text;    /* of all, one behind the other */
} corpus;

static an_status print_one(const corpus *c, size_t k, strbuf *text, diag *d)
{
    graph *g = NULL;
    mil_module *m = NULL;
    blob_writer w = { 0 };
    an_status st = model_program_build(c->c, &c->all[k], NULL, &g, d);
    if (!st) st = pass_run(g, &(pass_options){ .target = c->target, .level = 1 }, NULL, d);
    if (!st) st = lower_to_mil(g, NULL, &m, &w, d);
    if (!st) mil_print(m, text);
    mil_free(m);
    sb_free(&w.bytes);
    if (g) graph_free(g);
    return st;
}

static an_status compile_all(void *user, diag *d)
{
    corpus *c = user;
    c->text.n = 0;
    for (size_t k = 0; k < c->n; k++) {
        TRY(print_one(c, k, &c->text, d));
        c->end[k] = c->text.n;
    }
    return c->text.oom ? diag_nomem(d) : AN_OK;
}

static const char *text_of(const corpus *c, size_t k, size_t *n)
{
    const size_t from = k ? c->end[k - 1] : 0;
    *n = c->end[k] - from;
    return c->text.at + from;
}

static an_status parse_all(void *user, diag *d)
{
    const corpus *c = user;
    for (size_t k = 0, n; k < c->n; k++) {
        const char *text = text_of(c, k, &n);
        mil_module *m = NULL;
        graph *g = NULL;
        an_status st = mil_parse(text, n, 0, &m, d);
        if (!st) st = lower_from_mil(m, &(lower_in){ 0 }, &g, d);
        mil_free(m);
        if (st) return st;
        graph_free(g);
    }
    return AN_OK;
}

static an_status check_all(void *user, diag *d)
{
    const corpus *c = user;
    const chip *const targets[] = { chip_find("m1"), c->target };
    for (size_t k = 0, n; k < c->n; k++) {
        const char *text = text_of(c, k, &n);
        check_report *r = NULL;
        TRY(check_text(
            text, n,
            &(check_options){ .file = "bench", .target = targets, .n_target = COUNT(targets), .errors_only = true }, &r,
            d));
        an_status st = r->status;
        if (st)
            diag_fail(d, st, NOWHERE, "program %zu is not accepted: %s", k, r->found.n ? r->found.at[0].message : "");
        check_free(r);
        if (st) return st;
    }
    return AN_OK;
}

static an_status corpus_open(corpus *c, diag *d)
{
    *c = (corpus){ .c = model_preset_find("stories110m"), .target = chip_find("m4") };
    if (!c->c || !c->target) return diag_fail(d, AN_BUG, NOWHERE, "no preset stories110m, or no chip m4");
    c->n = model_program_list(c->c, MODEL_SET_TRAIN, NULL, 0);
    c->all = calloc(c->n + 1, sizeof *c->all), c->end = calloc(c->n + 1, sizeof *c->end);
    if (!c->all || !c->end) return diag_nomem(d);
    model_program_list(c->c, MODEL_SET_TRAIN, c->all, c->n);
    TRY(compile_all(c, d));
    return check_all(c, d);
}

static void corpus_close(corpus *c)
{
    sb_free(&c->text);
    free(c->all), free(c->end);
}

/* ---- bounds ---- */

/* Programs a second, were they only copied. */
static double copied(void *user)
{
    const corpus *c = user;
    strbuf copy = { 0 };
    const uint64_t from = clock_ns();
    sb_putn(&copy, c->text.at, c->text.n);
    const double s = (double)(clock_ns() - from) * 1e-9;
    const bool oom = copy.oom;
    sb_free(&copy);
    return oom ? 0 : (double)c->n / s;
}

/* MB/s of one look at every byte, the least any reader does. */
static double scanned(void *user)
{
    const corpus *c = user;
    static volatile size_t sink;
    size_t lines = 0;
    const uint64_t from = clock_ns();
    for (size_t i = 0; i < c->text.n; i++) lines += c->text.at[i] == '\n' || c->text.at[i] == ';';
    sink = lines;
    return (double)c->text.n * 1e3 / (double)(clock_ns() - from) + (sink == SIZE_MAX);
}

/* ---- rows ---- */

static an_status row(bench *b, const char *name, const char *what, bench_fn *fn, double (*most)(void *),
                     const char *most_is, const char *unit)
{
    corpus c;
    timing t;
    an_status st = corpus_open(&c, b->d);
    if (!st) st = bench_beside(b, fn, &c, (ruler){ most, &c }, &t);
    if (!st)
        bench_row(b, name, what, "scalar", t, fn == compile_all ? (double)c.n * 1e9 : (double)c.text.n * 1e3, unit,
                  t.limit, most_is);
    corpus_close(&c);
    return st;
}

an_status bench_compile(bench *b)
{
    return row(b, "compile", "stories110m training step, for m4", compile_all, copied, "copying the text", "prog/s");
}
an_status bench_parse(bench *b)
{
    return row(b, "parse", "the same MIL text into graphs", parse_all, scanned, "one look at every byte", "MB/s");
}
an_status bench_check(bench *b)
{
    return row(b, "check", "the same MIL text, m1 and m4", check_all, scanned, "one look at every byte", "MB/s");
}
