/* facts.c: the table, one row run, all rows printed.
 * In: rows.def.  Out: results, as text for people, JSON lines, or the table of docs/numerics.md. */
#include "base/plain.h"
#include "facts/facts_int.h"

static const fact_row rows[] = {
#define FACT(id_, on_, setup_, expected_, st_, checker_, text_, note_, ...)                                           \
    { .id = #id_, .on = on_, .setup = setup_, .expected = expected_, .evidence = #st_, .check = fact_##checker_, .text = text_, \
      .note = note_, .arg = (const double[]){ __VA_ARGS__ }, .n_arg = (int)(sizeof((const double[]){ __VA_ARGS__ }) / sizeof(double)) },
#include "facts/rows.def"
#undef FACT
};

size_t facts_count(void) { return COUNT(rows); }
const char *facts_id(size_t i) { return rows[i].id; }

const char *fact_status_name(fact_status s)
{
    static const char *const name[] = { "pass", "fail", "off", "not_modelled" };
    return name[s];
}

/* ---- verdicts ---- */

static void put_got(fact_result *r, const char *fmt, va_list ap) { plain_vprintf(r->got, sizeof r->got, fmt, ap); }

an_status fx_verdict(fx *f, bool ok, const char *got, ...)
{
    va_list ap;
    va_start(ap, got);
    put_got(f->r, got, ap);
    va_end(ap);
    f->r->status = ok ? FACT_PASS : FACT_FAIL;
    return AN_OK;
}

an_status fx_skip(fx *f, const char *got, ...)
{
    va_list ap;
    va_start(ap, got);
    put_got(f->r, got, ap);
    va_end(ap);
    f->r->status = FACT_NOT_MODELLED;
    return AN_OK;
}

an_status fx_error(fx *f, double percent, double fidelity, const char *got, ...)
{
    va_list ap;
    va_start(ap, got);
    put_got(f->r, got, ap);
    va_end(ap);
    f->r->error_percent = percent, f->r->fidelity_percent = fidelity;
    f->r->status = fabs(percent) > fidelity ? FACT_OFF : FACT_PASS; /* the model ranks, it does not promise */
    if (f->r->status == FACT_PASS) return AN_OK;
    size_t at = strlen(f->r->why);
    plain_printf(f->r->why + at, sizeof f->r->why - at,
                 "%sthe cost model is off by more than its stated fidelity of %g %%", at ? "; " : "", fidelity);
    return AN_OK;
}

an_status fact_unmodelled(fx *f) { return fx_skip(f, "%s", ""); }

bool fx_same(double got, double want) { return got == want && signbit(got) == signbit(want); }
double fx_arg(const fx *f, int i) { return i < f->row->n_arg ? f->row->arg[i] : 0; }

const char *fx_list(fx *f, const double *x, int64_t n)
{
    strbuf b = { 0 };
    for (int64_t i = 0; i < n; i++) sb_printf(&b, "%s%.9g", i ? ", " : "", x[i]);
    char *s = arena_str(&f->mem, b.at && !b.oom ? b.at : "");
    f->oom = f->oom || b.oom || !s;
    sb_free(&b);
    return s ? s : "";
}

const char *fx_chip(fx *f, int k) { return k < f->n_chips ? f->chip[k] : NULL; }

static void split_chips(fx *f)
{
    for (const char *p = f->row->on; *p && f->n_chips < FX_CHIPS; f->n_chips++) {
        int n = (int)strcspn(p, " ");
        snprintf(f->chip[f->n_chips], sizeof f->chip[0], "%.*s", n, p);
        p += n + (int)strspn(p + n, " ");
    }
}

an_status facts_run(size_t i, fact_result *r, diag *d)
{
    const fact_row *row = &rows[i];
    *r = (fact_result){ .id = row->id,
                        .target = row->on,
                        .setup = row->setup,
                        .expected = row->expected,
                        .evidence = row->evidence,
                        .status = FACT_FAIL };
    snprintf(r->why, sizeof r->why, "%s", row->note);
    diag own = { 0 };
    fx f = { .row = row, .r = r, .d = &own };
    split_chips(&f);
    an_status st = row->check(&f);
    arena_free(&f.mem);
    if (st == AN_NOMEM || f.oom) return diag_nomem(d);
    if (st == AN_BUG) return diag_fail(d, AN_BUG, NOWHERE, "%s: %s", row->id, own.msg);
    if (st) { /* the device refused what the chip was measured to do */
        r->status = FACT_FAIL;
        snprintf(r->got, sizeof r->got, "%.300s", own.msg);
    }
    return AN_OK;
}

/* ---- printing ---- */

static void put_json(strbuf *b, const char *key, const char *value)
{
    sb_printf(b, "%s\"%s\":", b->n && b->at[b->n - 1] == '{' ? "" : ",", key);
    sb_json(b, value, strlen(value));
}

static void put_cell(strbuf *b, const char *s)
{
    bool code = false; /* between backticks only a bar needs help */
    for (; *s; s++) {
        if (*s == '`') code = !code;
        if (*s == '|' || (!code && strchr("<*_", *s))) sb_putc(b, '\\');
        sb_putc(b, *s == '\n' ? ' ' : *s);
    }
}

static const char *people(fact_status s) { return s == FACT_NOT_MODELLED ? "not modelled" : fact_status_name(s); }

/* Programs are promised three words: pass, fail, not_modelled. A row that reports the cost model's error passes by
 * reporting it; whether that is within the stated fidelity is a key of its own. */
static const char *promised(fact_status s) { return fact_status_name(s == FACT_OFF ? FACT_PASS : s); }

static void put_row(strbuf *b, const char *format, const fact_result *r)
{
    if (!strcmp(format, "json")) {
        sb_putc(b, '{');
        put_json(b, "id", r->id);
        put_json(b, "target", r->target);
        put_json(b, "setup", r->setup);
        put_json(b, "expected", r->expected);
        put_json(b, "got", r->got);
        put_json(b, "status", promised(r->status));
        put_json(b, "why", r->why);
        if (r->fidelity_percent > 0)
            sb_printf(b, ",\"error_percent\":%.1f,\"fidelity_percent\":%g,\"within_fidelity\":%s", r->error_percent,
                      r->fidelity_percent, r->status == FACT_OFF ? "false" : "true");
        sb_puts(b, "}\n");
    } else if (!strcmp(format, "markdown")) {
        const char *const cell[] = { r->id,       r->target, r->setup,
                                     r->expected, r->got,    r->status == FACT_FAIL ? "**fail**" : people(r->status),
                                     r->why };
        for (size_t i = 0; i < COUNT(cell); i++) {
            sb_puts(b, i ? " | " : "| ");
            if (i == 5) sb_puts(b, cell[i]);
            else put_cell(b, cell[i]);
        }
        sb_puts(b, " |\n");
    } else {
        sb_printf(b, "%-4s %-12s %s\n     expected %s\n", r->id, people(r->status), r->setup, r->expected);
        if (*r->got) sb_printf(b, "     got      %s\n", r->got);
        if (*r->why) sb_printf(b, "     %s      %s\n", r->status == FACT_PASS ? "note" : "why ", r->why);
    }
}

static void put_total(strbuf *b, const char *format, const facts_total *t)
{
    size_t all = t->n[FACT_PASS] + t->n[FACT_FAIL] + t->n[FACT_OFF] + t->n[FACT_NOT_MODELLED];
    if (!strcmp(format, "json"))
        sb_printf(
            b,
            "{\"kind\":\"total\",\"rows\":%zu,\"pass\":%zu,\"fail\":%zu,\"not_modelled\":%zu,\"outside_fidelity\":%zu}\n",
            all, t->n[FACT_PASS] + t->n[FACT_OFF], t->n[FACT_FAIL], t->n[FACT_NOT_MODELLED], t->n[FACT_OFF]);
    else
        sb_printf(b, "%s%zu rows: %zu pass, %zu fail, %zu off, %zu not modelled\n",
                  strcmp(format, "markdown") ? "" : "\n", all, t->n[FACT_PASS], t->n[FACT_FAIL], t->n[FACT_OFF],
                  t->n[FACT_NOT_MODELLED]);
}

an_status facts_print(strbuf *b, const char *format, const char *only, facts_total *total, diag *d)
{
    facts_total t = { { 0 } };
    size_t n_only = only ? strlen(only) : 0;
    for (size_t i = 0; only && i < COUNT(rows); i++)
        if (!strcmp(rows[i].id, only)) n_only++; /* a whole id: its end counts, so that N1 is not N10 */
    if (!strcmp(format, "markdown"))
        sb_puts(b, "| id | on | setup | published | here | | note |\n|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < COUNT(rows); i++) {
        fact_result r;
        if (only && strncmp(rows[i].id, only, n_only)) continue;
        TRY(facts_run(i, &r, d));
        t.n[r.status]++;
        put_row(b, format, &r);
    }
    put_total(b, format, &t);
    if (total) *total = t;
    return b->oom ? diag_nomem(d) : AN_OK;
}
