/* print.c: the tables for people and programs: "text", "json" (one object per line) and "markdown". */
#include "target/target_int.h"

static bool is(const char *format, const char *what) { return !strcmp(format, what); }

void md_cell(strbuf *b, const char *s)
{
    for (; *s; s++) {
        if (*s == '|') sb_putc(b, '\\');
        sb_putc(b, *s);
    }
}

static void json_str(strbuf *b, const char *key, const char *s)
{
    sb_printf(b, ",\"%s\":", key);
    sb_json(b, s, strlen(s));
}

/* ---- chips ---- */

static const chip_column shown[] = { COL_family,    COL_cores,    COL_max_dim,    COL_kernel_w_f16,
                                     COL_kernel_h,  COL_peak_fit, COL_peak_slope, COL_bw_fit,
                                     COL_bw_weight, COL_t0_us,    COL_resident };

static void put_value(strbuf *b, const chip *c, chip_column k)
{
    double x = c->col[k];
    if (k == COL_peak_fit || k == COL_peak_slope || k == COL_peak_gemm) sb_printf(b, "%.3g T", x / 1e12);
    else if (k == COL_bw_fit || k == COL_bw_weight || k == COL_bw_dram) sb_printf(b, "%.3g G", x / 1e9);
    else sb_printf(b, "%.10g", x);
    if (c->st[k] != 'D') sb_printf(b, " %c", c->st[k]);
}

static void chips_json(strbuf *b)
{
    for (size_t i = 0; i < chip_count(); i++) {
        const chip *c = chip_at(i);
        sb_printf(b, "{\"kind\":\"target\",\"name\":\"%s\",\"arch\":\"%s\",\"base\":%s", c->name, c->arch,
                  c->base ? "true" : "false");
        json_str(b, "silicon", c->silicon);
        json_str(b, "soc", c->soc);
        json_str(b, "note", c->note);
        for (int k = 0; k < COL_COUNT; k++) sb_printf(b, ",\"%s\":%.10g", column_get((chip_column)k)->id, c->col[k]);
        sb_puts(b, ",\"status\":{");
        for (int k = 0; k < COL_COUNT; k++)
            sb_printf(b, "%s\"%s\":\"%c\"", k ? "," : "", column_get((chip_column)k)->id, c->st[k]);
        sb_puts(b, "}}\n");
    }
    for (int k = 0; k < COL_COUNT; k++) {
        const column_info *x = column_get((chip_column)k);
        sb_printf(b, "{\"kind\":\"column\",\"id\":\"%s\",\"unit\":\"%s\"", x->id, x->unit);
        json_str(b, "what", x->what);
        json_str(b, "evidence", x->evidence);
        sb_puts(b, "}\n");
    }
    for (size_t i = 0; i < conflict_count(); i++) {
        const conflict *x = conflict_at(i);
        sb_printf(b, "{\"kind\":\"conflict\",\"id\":\"%s\"", x->id);
        json_str(b, "question", x->question);
        json_str(b, "side", x->side);
        sb_puts(b, "}\n");
    }
}

static void chips_markdown(strbuf *b)
{
    sb_puts(b, "| target | arch | silicon |");
    for (size_t k = 0; k < COUNT(shown); k++) sb_printf(b, " %s |", column_get(shown[k])->id);
    sb_puts(b, " note |\n|---|---|---|");
    for (size_t k = 0; k < COUNT(shown); k++) sb_puts(b, "---:|");
    sb_puts(b, "---|\n");
    for (size_t i = 0; i < chip_count(); i++) {
        const chip *c = chip_at(i);
        sb_printf(b, "| %s | %s | %s |", c->name, c->arch, c->silicon);
        for (size_t k = 0; k < COUNT(shown); k++) sb_putc(b, ' '), put_value(b, c, shown[k]), sb_puts(b, " |");
        sb_printf(b, " %s |\n", c->note);
    }
    sb_puts(b, "\nM measured, R reconstructed from published rows, C community, P predicted; no letter: read from the compiler's tables.\n"
               "Of the 28 targets of the compiler seven are not here: h11, h12, m9 and t0 have no MIL route, u1 to u3 are no silicon (facts 1.1, 8.7 rule 1).\n\n| column |");
    for (size_t i = 0; i < chip_count(); i++)
        if (chip_at(i)->base) sb_printf(b, " %s |", chip_at(i)->name);
    sb_puts(b, " meaning | evidence |\n|---|---:|---:|---:|---:|---:|---|---|\n");
    for (int k = 0; k < COL_COUNT; k++) {
        const column_info *x = column_get((chip_column)k);
        sb_printf(b, "| %s |", x->id);
        for (size_t i = 0; i < chip_count(); i++)
            if (chip_at(i)->base) sb_putc(b, ' '), put_value(b, chip_at(i), (chip_column)k), sb_puts(b, " |");
        sb_putc(b, ' '), md_cell(b, x->what), sb_printf(b, " | %s |\n", x->evidence);
    }
    sb_puts(b, "\n| conflict | question | side taken |\n|---|---|---|\n");
    for (size_t i = 0; i < conflict_count(); i++)
        sb_printf(b, "| %s | %s | %s |\n", conflict_at(i)->id, conflict_at(i)->question, conflict_at(i)->side);
}

static void chips_text(strbuf *b)
{
    sb_puts(
        b,
        "target arch  family cores  max dim  kernel  peak 1 op  peak chain  in/out    weights   floor us  on chip   silicon\n");
    for (size_t i = 0; i < chip_count(); i++) {
        const chip *c = chip_at(i);
        sb_printf(
            b,
            "%-6s %-5s %6g %5g  %7g  %gx%-4g %6.2f T %c  %7.2f T %c %5.1f G %c %5.1f G %c %5.0f %c  %5.2f MB %c %s\n",
            c->name, c->arch, c->col[COL_family], c->col[COL_cores], c->col[COL_max_dim], c->col[COL_kernel_h],
            c->col[COL_kernel_w_f16], c->col[COL_peak_fit] / 1e12, c->st[COL_peak_fit], c->col[COL_peak_slope] / 1e12,
            c->st[COL_peak_slope], c->col[COL_bw_fit] / 1e9, c->st[COL_bw_fit], c->col[COL_bw_weight] / 1e9,
            c->st[COL_bw_weight], c->col[COL_t0_us], c->st[COL_t0_us], c->col[COL_resident] / 0x1p20,
            c->st[COL_resident], c->silicon);
    }
    sb_puts(b, "M measured, R reconstructed from published rows, C community, P predicted\n\nwhere sources disagree\n");
    for (size_t i = 0; i < conflict_count(); i++)
        sb_printf(b, "%-4s %s: %s\n", conflict_at(i)->id, conflict_at(i)->question, conflict_at(i)->side);
}

void chip_print(strbuf *b, const char *format)
{
    if (is(format, "json")) chips_json(b);
    else if (is(format, "markdown")) chips_markdown(b);
    else chips_text(b);
}

/* ---- rules ---- */

static void put_tests(strbuf *b, const rule *r)
{
    scope at = measure_scope(r->measure);
    if (at == SCOPE_ROUTE) {
        sb_puts(b, "the route, not the program");
        return;
    }
    sb_printf(b, "%s: %s %s ", at == SCOPE_OP ? opset_text(r->ops) : at == SCOPE_PORT ? "input or output" : "program",
              measure_what(r->measure), cmp_text(r->how));
    rule_limit(b, r, NULL);
}

static void put_targets(strbuf *b, const rule *r)
{
    size_t n = 0, all = 0;
    strbuf t = { 0 };
    for (size_t i = 0; i < chip_count(); i++) {
        const chip *c = chip_at(i);
        if (!c->base) continue;
        all++;
        if (chip_family(c) < r->first || chip_family(c) > r->last) continue;
        sb_printf(&t, "%s%s", n++ ? " " : "", c->name);
    }
    if (t.oom) b->oom = true;
    sb_puts(b, n == all ? "all" : t.at ? t.at : "");
    sb_free(&t);
}

void rules_print(strbuf *b, const char *format)
{
    bool md = is(format, "markdown"), js = is(format, "json");
    if (md)
        sb_puts(
            b,
            "| rule | verdict | requires | targets | message | fix | evidence | where sources differ | repaired by |\n|---|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < rule_count(); i++) {
        const rule *r = rule_at(i);
        strbuf tests = { 0 }, targets = { 0 };
        put_tests(&tests, r);
        put_targets(&targets, r);
        if (tests.oom || targets.oom) b->oom = true;
        const char *what = tests.at ? tests.at : "", *where = targets.at ? targets.at : "";
        if (js) {
            sb_printf(b, "{\"id\":\"%s\"", r->id);
            json_str(b, "tests", what);
            json_str(b, "verdict", severity_name(r->sev));
            json_str(b, "targets", where);
            json_str(b, "message", r->message);
            json_str(b, "fix", r->fix);
            json_str(b, "evidence", r->evidence);
            json_str(b, "dispute", r->dispute);
            json_str(b, "legalizer", r->legalizer);
            sb_puts(b, "}\n");
        } else if (md) {
            const char *cell[] = { r->id, severity_name(r->sev), what, where, r->message, r->fix, r->evidence, r->dispute,
                                   strcmp(r->legalizer, "none") ? r->legalizer : "" };
            sb_putc(b, '|');
            for (size_t k = 0; k < COUNT(cell); k++) sb_putc(b, ' '), md_cell(b, cell[k]), sb_puts(b, " |");
            sb_putc(b, '\n');
        } else {
            sb_printf(b, "%s: %s (%s)\n  requires %s\n  says     %s\n  fix      %s\n  evidence %s\n", r->id,
                      severity_name(r->sev), where, what, r->message, r->fix, r->evidence);
            if (*r->dispute) sb_printf(b, "  dispute  %s\n", r->dispute);
            if (strcmp(r->legalizer, "none")) sb_printf(b, "  repaired by %s\n", r->legalizer);
        }
        sb_free(&tests);
        sb_free(&targets);
    }
}

/* ---- gates ---- */

static const char *gate_word(const gate_row *r, int family)
{
    if (family >= r->from) return "native";
    return r->below == GATE_BRIDGE ? (r->kind == BRIDGE_REFUSE ? "bridge, refused"
                                      : r->kind == BRIDGE_WARN ? "bridge, fallback"
                                                               : "bridge, folded")
                                   : "none";
}

void gates_print(strbuf *b, const char *format)
{
    bool md = is(format, "markdown"), js = is(format, "json");
    if (md) sb_puts(b, "| operation | m1 | m2 | m3 and later | instead | evidence |\n|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < gate_count(); i++) {
        const gate_row *r = gate_at(i);
        const char *m1 = gate_word(r, 2), *m2 = gate_word(r, 3), *m3 = gate_word(r, 4);
        if (js) {
            sb_printf(b, "{\"op\":\"%s\",\"m1\":\"%s\",\"m2\":\"%s\",\"m3\":\"%s\",\"m4\":\"%s\",\"m5\":\"%s\"", r->mil,
                      m1, m2, m3, gate_word(r, 5), gate_word(r, 6));
            json_str(b, "fix", r->fix);
            json_str(b, "evidence", r->evidence);
            sb_puts(b, "}\n");
        } else if (md) sb_printf(b, "| %s | %s | %s | %s | %s | %s |\n", r->mil, m1, m2, m3, r->fix, r->evidence);
        else sb_printf(b, "%-40s %-16s %-16s %-16s %s\n", r->mil, m1, m2, m3, r->fix);
    }
}
