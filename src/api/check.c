/* check.c: the public face of check/. */
#include <stdlib.h>

#include "api/api_int.h"
#include "check/check.h"

struct an_report {
    check_report *r;
};

enum { MAX_TARGETS = 64 };

/* "m1,h14g" or "all" to chips; AN_USAGE names the word that is not one. */
static an_status read_targets(const char *list, const chip **out, size_t *n, diag *d)
{
    *n = 0;
    if (!list || !strcmp(list, "all")) return AN_OK; /* none: every base chip */
    for (const char *s = list;;) {
        size_t len = strcspn(s, ",");
        char word[32];
        snprintf(word, sizeof word, "%.*s", (int)MIN(len, sizeof word - 1), s);
        const chip *c = len < sizeof word ? chip_find(word) : NULL;
        if (!c) return diag_fail(d, AN_USAGE, NOWHERE, "unknown target \"%s\"; anneal targets lists them", word);
        bool twice = false;
        for (size_t i = 0; i < *n; i++) twice |= out[i] == c;
        if (!twice && *n < MAX_TARGETS) out[(*n)++] = c;
        if (!s[len]) return AN_OK;
        s += len + 1;
    }
}

static an_status report(an_report **out, const graph *g, const char *text, size_t size, const an_check_options *o,
                        an_error *e)
{
    static const an_check_options none = { 0 };
    if (!o) o = &none;
    diag d = { 0 };
    const chip *chips[MAX_TARGETS];
    size_t n = 0;
    *out = NULL;
    if (read_targets(o->targets, chips, &n, &d)) return api_error(e, &d);
    an_report *r = calloc(1, sizeof *r);
    if (!r) diag_nomem(&d);
    else {
        check_options co = { .file = o->file,
                             .model_dir = o->model_dir,
                             .target = chips,
                             .n_target = n,
                             .errors_only = o->errors_only != 0 };
        an_status st = g ? check_graph(g, &co, &r->r, &d) : check_text(text, size, &co, &r->r, &d);
        if (!st) return *out = r, AN_OK;
    }
    an_report_free(r);
    return api_error(e, &d);
}

an_status an_check_mil(an_report **out, const char *text, size_t size, const an_check_options *o, an_error *e)
{
    return report(out, NULL, text, size, o, e);
}

an_status an_program_check(an_report **out, an_program *p, const an_check_options *o, an_error *e)
{
    diag d = { 0 };
    *out = NULL; /* a mistake in building it leaves less than was meant, of which nothing is told */
    return graph_finish(api_graph(p), &d) ? api_error(e, &d) : report(out, api_graph(p), NULL, 0, o, e);
}

void an_report_free(an_report *r)
{
    if (!r) return;
    check_free(r->r);
    free(r);
}

an_status an_report_status(const an_report *r) { return r->r->status; }
size_t an_report_findings(const an_report *r) { return r->r->found.n; }
size_t an_report_costs(const an_report *r) { return r->r->costs.n; }

void an_report_finding(const an_report *r, size_t i, an_finding *f)
{
    const finding *x = &r->r->found.at[i];
    *f = (an_finding){ .rule = x->rule,
                       .severity = severity_name(x->sev),
                       .target = x->target ? chip_name(x->target) : "",
                       .op = x->op,
                       .name = x->name,
                       .line = x->at.line,
                       .column = x->at.col,
                       .message = x->message,
                       .fix = x->fix,
                       .evidence = x->evidence };
}

void an_report_cost(const an_report *r, size_t i, an_cost *c)
{
    const check_cost *x = &r->r->costs.at[i];
    *c = (an_cost){ .target = chip_name(x->target),
                    .latency_us = x->total.latency_us,
                    .flops = x->total.flops,
                    .bytes = x->total.bytes,
                    .working_set_bytes = x->total.working_set,
                    .energy_mj = x->total.energy_mj,
                    .bound = bound_name(x->total.limit) };
}

static char *text_of(const an_report *r, an_format f, void (*print)(const check_report *, const char *, strbuf *))
{
    strbuf b = { 0 };
    print(r->r, api_format(f), &b);
    return api_take(&b);
}

char *an_report_text(const an_report *r, an_format f) { return text_of(r, f, check_print); }
char *an_report_op_costs(const an_report *r, an_format f) { return text_of(r, f, check_print_ops); }
