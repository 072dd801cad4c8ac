/* check_print.c: a report for people, for programs, and as a document. For people, a finding that is the same on
 * several targets is one entry that lists them; for programs it is one object each. */
#include <math.h>
#include <stdlib.h>

#include "check/check.h"
#include "mil/mil.h"

/* ---- JSON ---- */

static void key(strbuf *b, const char *name, const char *s)
{
    sb_printf(b, "\"%s\":", name);
    sb_json(b, s, strlen(s));
}

static void number(strbuf *b, const char *name, double x)
{
    if (!isfinite(x)) x = x < 0 ? -1e308 : 1e308; /* JSON has no infinity */
    bool whole = x == floor(x) && fabs(x) < 9e15;
    sb_printf(b, whole ? ",\"%s\":%.0f" : ",\"%s\":%.6g", name, x);
}

static void json_finding(strbuf *b, const check_report *r, const finding *f)
{
    sb_putc(b, '{');
    key(b, "rule", f->rule), sb_putc(b, ',');
    key(b, "severity", severity_name(f->sev)), sb_putc(b, ',');
    key(b, "op", f->op);
    sb_printf(b, ",\"line\":%u,\"col\":%u,", f->at.line, f->at.col);
    key(b, "message", f->message), sb_putc(b, ',');
    key(b, "fix", f->fix), sb_putc(b, ',');
    key(b, "evidence", f->evidence), sb_putc(b, ',');
    key(b, "target", f->target ? chip_name(f->target) : ""), sb_putc(b, ',');
    key(b, "name", f->name), sb_putc(b, ',');
    key(b, "file", r->file);
    sb_puts(b, "}\n");
}

static void json_cost(strbuf *b, const check_report *r, const check_cost *c)
{
    const prog_cost *t = &c->total;
    sb_puts(b, "{\"kind\":\"cost\",");
    key(b, "target", chip_name(c->target));
    number(b, "latency_us", t->latency_us);
    sb_putc(b, ',');
    key(b, "bound", bound_name(t->limit));
    number(b, "flops", t->flops);
    number(b, "bytes", t->bytes);
    number(b, "floor_us", t->floor_us);
    number(b, "compute_us", t->compute_us);
    number(b, "memory_us", t->memory_us);
    number(b, "weight_bytes", t->weight_bytes);
    number(b, "energy_mj", t->energy_mj);
    number(b, "working_set_bytes", t->working_set);
    number(b, "over_budget", t->over_budget ? 1 : 0);
    sb_putc(b, ',');
    key(b, "file", r->file);
    sb_puts(b, "}\n");
}

/* ---- equal findings of several targets as one entry ---- */

typedef struct {
    const finding *f;
    const char *message; /* CHIP_MARK stands for the targets' names */
    size_t seq, n;       /* n: targets that have it */
    strbuf targets;
} entry;

enum { CHIP_MARK = 1 }; /* no message has this byte */

static int by_place(const void *pa, const void *pb)
{
    const entry *a = pa, *b = pb;
    if (a->f->at.line != b->f->at.line) return a->f->at.line < b->f->at.line ? -1 : 1;
    if (a->f->at.col != b->f->at.col) return a->f->at.col < b->f->at.col ? -1 : 1;
    return a->seq < b->seq ? -1 : a->seq > b->seq;
}

static bool word_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* The message with the chip's own name marked: what is said of m1 and of m2 alike is then one sentence. */
static void mark_chip(strbuf *b, const char *s, const chip *target)
{
    const char *name = target ? chip_name(target) : "";
    size_t n = strlen(name);
    for (const char *from = s; *s; s++) {
        bool here = n && !strncmp(s, name, n) && (s == from || !word_char(s[-1])) && !word_char(s[n]);
        sb_putc(b, here ? CHIP_MARK : *s);
        if (here) s += n - 1;
    }
}

static void put_message(strbuf *b, const entry *e)
{
    for (const char *s = e->message; *s; s++)
        if (*s == CHIP_MARK) sb_puts(b, e->targets.at);
        else sb_putc(b, *s);
}

static entry *merge(const check_report *r, size_t *n, arena *tmp)
{
    str_map seen = { 0 };
    entry *list = calloc(r->found.n + 1, sizeof *list);
    strbuf id = { 0 };
    bool ok = list != NULL;
    *n = 0;
    for (size_t i = 0; i < r->found.n && ok; i++) {
        const finding *f = &r->found.at[i];
        uint32_t k = (uint32_t)*n;
        id.n = 0;
        mark_chip(&id, f->message, f->target);
        size_t n_message = id.n;
        sb_printf(&id, "|%s|%s|%s|%u|%u|%d", f->rule, f->name, f->fix, f->at.line, f->at.col, (int)f->sev);
        if (id.oom) ok = false;
        else if (!str_map_get(&seen, id.at, id.n, &k)) {
            char *key_copy = arena_strn(tmp, id.at, id.n), *message = arena_strn(tmp, id.at, n_message);
            ok = key_copy && message && str_map_put(tmp, &seen, key_copy, id.n, k);
            if (ok) list[(*n)++] = (entry){ .f = f, .message = message, .seq = i };
        }
        if (ok && f->target) sb_printf(&list[k].targets, "%s%s", list[k].n++ ? ", " : "", chip_name(f->target));
    }
    for (size_t i = 0; i < *n; i++) ok = ok && !list[i].targets.oom;
    sb_free(&id);
    if (list) qsort(list, *n, sizeof *list, by_place);
    if (ok) return list;
    for (size_t i = 0; i < *n; i++) sb_free(&list[i].targets);
    free(list);
    return NULL;
}

static void drop(entry *list, size_t n)
{
    for (size_t i = 0; i < n; i++) sb_free(&list[i].targets);
    free(list);
}

/* The line and a caret, as every other message about text shows them; the heading is ours, it names the severity. */
static void source_line(strbuf *b, const check_report *r, loc at)
{
    strbuf shown = { 0 };
    mil_show_error(&shown, "", r->text, r->n_text, at, "");
    const char *line = shown.at ? strchr(shown.at, '\n') : NULL;
    if (shown.oom) b->oom = true;
    else if (line) sb_puts(b, line + 1);
    sb_free(&shown);
}

static void text_entry(strbuf *b, const check_report *r, const entry *e)
{
    const finding *f = e->f;
    strbuf msg = { 0 };
    sb_printf(&msg, "%s: ", severity_name(f->sev));
    put_message(&msg, e);
    sb_printf(&msg, " [%s]", f->rule);
    if (e->n) sb_printf(&msg, " (%s)", e->n == r->n_targets && e->n > 1 ? "all targets" : e->targets.at);
    if (msg.oom) b->oom = true;
    else if (!f->at.line) sb_printf(b, "%s: %s%s%s\n", r->file, f->name, *f->name ? ": " : "", msg.at);
    else {
        sb_printf(b, "%s:%u:%u: %s\n", r->file, f->at.line, f->at.col, msg.at);
        if (f->sev != SEV_NOTE && r->text) source_line(b, r, f->at);
    }
    sb_free(&msg);
    if (*f->fix) sb_printf(b, "  fix: %s\n", f->fix);
    if (*f->evidence) sb_printf(b, "  why: %s\n", f->evidence);
}

static void human_count(strbuf *b, size_t n, const char *what) { sb_printf(b, "%zu %s%s", n, what, n == 1 ? "" : "s"); }

static void summary(strbuf *b, const check_report *r, const entry *list, size_t n)
{
    size_t by_sev[3] = { 0 };
    for (size_t i = 0; i < n; i++) by_sev[list[i].f->sev]++;
    sb_printf(b, "%s: ", r->file);
    human_count(b, by_sev[SEV_ERROR], "error");
    /* else warnings and notes were left out on request */
    if (by_sev[SEV_ERROR] != n || !(r->n_warnings + r->n_notes)) {
        sb_puts(b, ", ");
        human_count(b, by_sev[SEV_WARNING], "warning");
        sb_puts(b, ", ");
        human_count(b, by_sev[SEV_NOTE], "note");
    }
    sb_putc(b, '\n');
}

static void text_costs(strbuf *b, const check_report *r)
{
    if (!r->costs.n) return;
    sb_printf(b, "%-8s %12s  %-10s %10s %14s %14s %14s\n", "target", "latency us", "bound", "energy mJ", "flops",
              "bytes", "live bytes");
    for (size_t i = 0; i < r->costs.n; i++) {
        const check_cost *c = &r->costs.at[i];
        const prog_cost *t = &c->total;
        sb_printf(b, "%-8s %12.1f  %-10s %10.3f %14.0f %14.0f %14.0f%s\n", chip_name(c->target), t->latency_us,
                  bound_name(t->limit), t->energy_mj, t->flops, t->bytes, t->working_set,
                  t->over_budget ? "  past the on-chip budget" : "");
    }
}

/* ---- markdown ---- */

static void cell(strbuf *b, const char *s)
{
    for (; *s; s++) {
        if (*s == '|') sb_putc(b, '\\');
        sb_putc(b, *s == '\n' ? ' ' : *s);
    }
}

static void markdown(strbuf *b, const check_report *r, const entry *list, size_t n)
{
    sb_puts(b, "# ");
    cell(b, r->file);
    sb_puts(b, "\n\n| severity | rule | targets | line | message | fix |\n|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < n; i++) {
        const finding *f = list[i].f;
        sb_printf(b, "| %s | `%s` | %s | %u | ", severity_name(f->sev), f->rule, list[i].n ? list[i].targets.at : "",
                  f->at.line);
        strbuf msg = { 0 };
        put_message(&msg, &list[i]);
        cell(b, msg.at ? msg.at : "");
        b->oom |= msg.oom;
        sb_free(&msg);
        sb_puts(b, " | ");
        cell(b, f->fix);
        sb_puts(b, " |\n");
    }
    if (!r->costs.n) return;
    sb_puts(
        b,
        "\n| target | latency us | bound | energy mJ | flops | bytes | live bytes |\n|---|---:|---|---:|---:|---:|---:|\n");
    for (size_t i = 0; i < r->costs.n; i++) {
        const prog_cost *t = &r->costs.at[i].total;
        sb_printf(b, "| %s | %.1f | %s | %.3f | %.0f | %.0f | %.0f |\n", chip_name(r->costs.at[i].target),
                  t->latency_us, bound_name(t->limit), t->energy_mj, t->flops, t->bytes, t->working_set);
    }
}

void check_print(const check_report *r, const char *format, strbuf *b)
{
    if (!strcmp(format, "json")) {
        for (size_t i = 0; i < r->found.n; i++) json_finding(b, r, &r->found.at[i]);
        for (size_t i = 0; i < r->costs.n; i++) json_cost(b, r, &r->costs.at[i]);
        return;
    }
    arena tmp = { 0 };
    size_t n;
    entry *list = merge(r, &n, &tmp);
    if (!list) b->oom = true;
    else if (!strcmp(format, "markdown")) markdown(b, r, list, n);
    else {
        for (size_t i = 0; i < n; i++) text_entry(b, r, &list[i]);
        summary(b, r, list, n);
        text_costs(b, r);
    }
    if (list) drop(list, n);
    arena_free(&tmp);
}

/* ---- costs per operation ---- */

static void ops_json(strbuf *b, const check_report *r, const check_cost *c)
{
    for (size_t i = 0; i < r->ops.n; i++) {
        const check_op *o = &r->ops.at[i];
        const op_cost *x = &c->op[i];
        sb_puts(b, "{\"kind\":\"op_cost\",");
        key(b, "target", chip_name(c->target)), sb_putc(b, ',');
        key(b, "op", o->op), sb_putc(b, ',');
        key(b, "name", o->name);
        sb_printf(b, ",\"line\":%u", o->at.line);
        number(b, "flops", x->flops);
        number(b, "bytes", x->bytes);
        number(b, "weight_bytes", x->weight_bytes);
        number(b, "compute_us", x->compute_us);
        number(b, "memory_us", x->memory_us);
        sb_puts(b, "}\n");
    }
    json_cost(b, r, c);
}

static void ops_table(strbuf *b, const check_report *r, const check_cost *c, bool markdown_table)
{
    const char *head =
        markdown_table
            ? "| op | result | compute us | memory us | flops | bytes | weight bytes |\n|---|---|---:|---:|---:|---:|---:|\n"
            : NULL;
    const char *row = markdown_table ? "| `%s` | `%s` | %.3f | %.3f | %.0f | %.0f | %.0f |\n"
                                     : "%-28s %-28s %11.3f %11.3f %14.0f %14.0f %14.0f\n";
    sb_printf(b, "%s%s on %s: %.1f us, %s-bound\n%s", markdown_table ? "## " : "", r->file, chip_name(c->target),
              c->total.latency_us, bound_name(c->total.limit), markdown_table ? "\n" : "");
    if (head) sb_puts(b, head);
    else
        sb_printf(b, "%-28s %-28s %11s %11s %14s %14s %14s\n", "op", "result", "compute us", "memory us", "flops",
                  "bytes", "weight bytes");
    for (size_t i = 0; i < r->ops.n; i++) {
        const op_cost *x = &c->op[i];
        sb_printf(b, row, r->ops.at[i].op, r->ops.at[i].name, x->compute_us, x->memory_us, x->flops, x->bytes,
                  x->weight_bytes);
    }
    sb_putc(b, '\n');
}

void check_print_ops(const check_report *r, const char *format, strbuf *b)
{
    bool json = !strcmp(format, "json");
    if (!r->costs.n) { /* nothing to cost: say what is wrong instead */
        check_print(r, format, b);
        return;
    }
    for (size_t i = 0; i < r->costs.n; i++)
        if (json) ops_json(b, r, &r->costs.at[i]);
        else ops_table(b, r, &r->costs.at[i], !strcmp(format, "markdown"));
}
