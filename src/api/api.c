/* api.c: versions, outcomes and tables of the public header, in terms of the folders below. */
#include <stdlib.h>

#include "api/api_int.h"
#include "codegen/codegen.h"
#include "device/device.h"
#include "engine/engine.h"
#include "hwx/hwx.h"
#include "model/model.h"
#include "model/net.h"
#include "op/op.h"
#include "pass/pass.h"
#include "target/target.h"

const char *an_version(void) { return AN_VERSION; }
const char *an_status_text(an_status s) { return status_text(s); }
int an_exit_code(an_status s) { return status_exit_code(s); }
void an_free(void *p) { free(p); }

an_status api_error(an_error *e, const diag *d)
{
    if (e) {
        *e = (an_error){ .status = d->st, .line = d->at.line, .column = d->at.col };
        snprintf(e->message, sizeof e->message, "%s", d->msg);
    }
    return d->st;
}

const char *api_format(an_format f) { return f == AN_JSON ? "json" : f == AN_MARKDOWN ? "markdown" : "text"; }

char *api_take(strbuf *b)
{
    if (!b->at) sb_puts(b, "");
    if (!b->oom) return b->at;
    sb_free(b);
    return NULL;
}

static void print_passes(strbuf *b, const char *format)
{
    bool json = !strcmp(format, "json"), markdown = !strcmp(format, "markdown");
    if (markdown)
        sb_puts(b, "# Passes\n\nPrinted by `anneal passes --markdown` from the table in `src/pass/pass.c`, in the order they run, to a fixpoint.\n"
                   "`chip`: only with a target, where one of its rules fires. `ports`: changes the program's interface and runs only when asked.\n\n"
                   "| pass | level | needs | what it does |\n|---|---|---|---|\n");
    for (size_t i = 0; i < pass_count(); i++) {
        const char *needs = pass_changes_ports(i) ? "chip, ports" : pass_needs_target(i) ? "chip" : "";
        if (json) {
            sb_printf(b, "{\"pass\":\"%s\",\"level\":%d,\"needs_target\":%s,\"changes_ports\":%s,\"summary\":",
                      pass_name_at(i), pass_level_at(i), pass_needs_target(i) ? "true" : "false",
                      pass_changes_ports(i) ? "true" : "false");
            sb_json(b, pass_summary_at(i), strlen(pass_summary_at(i)));
            sb_puts(b, "}\n");
        } else if (markdown)
            sb_printf(b, "| `%s` | %d | %s | %s |\n", pass_name_at(i), pass_level_at(i), needs, pass_summary_at(i));
        else sb_printf(b, "%-16s %-12s %s\n", pass_name_at(i), needs, pass_summary_at(i));
    }
}

static void print_probes(strbuf *b, const char *format)
{
    bool json = !strcmp(format, "json"), markdown = !strcmp(format, "markdown");
    if (markdown)
        sb_puts(
            b,
            "# Probes\n\nPrinted by `anneal probe --markdown` from `probe/`. Each program settles one disputed claim when run on a Mac.\n\n"
            "| probe | claim | rule | result |\n|---|---|---|---|\n");
    for (size_t i = 0; i < n_probe_texts; i++) {
        const probe_text *p = &probe_texts[i];
        if (json) {
            sb_printf(b, "{\"probe\":\"%s\",\"claim\":", p->name);
            sb_json(b, p->claim, strlen(p->claim));
            sb_printf(b, ",\"rule\":\"%s\",\"result\":", p->rule);
            sb_json(b, p->result, strlen(p->result));
            sb_puts(b, "}\n");
        } else if (markdown) sb_printf(b, "| `%s` | %s | `%s` | %s |\n", p->name, p->claim, p->rule, p->result);
        else sb_printf(b, "%-20s %s\n%-20s rule %s; %s\n", p->name, p->claim, "", p->rule, p->result);
    }
}

static void print_devices(strbuf *b, const char *format)
{
    bool json = !strcmp(format, "json"), markdown = !strcmp(format, "markdown");
    if (markdown) sb_puts(b, "| device | what it is | here |\n|---|---|---|\n");
    device_info i;
    for (size_t k = 0; device_list(k, &i); k++) {
        const char *here = i.why_not ? i.why_not : "present";
        if (json) {
            sb_printf(b, "{\"kind\":\"device\",\"name\":\"%s\",\"present\":%s,\"what\":", i.name,
                      i.why_not ? "false" : "true");
            sb_json(b, i.what, strlen(i.what));
            sb_puts(b, ",\"why_not\":");
            sb_json(b, i.why_not ? i.why_not : "", i.why_not ? strlen(i.why_not) : 0);
            sb_puts(b, "}\n");
        } else if (markdown) sb_printf(b, "| `%s` | %s | %s |\n", i.name, i.what, here);
        else sb_printf(b, "  %-12s %s: %s\n", i.name, here, i.what);
    }
}

char *an_table(const char *which, an_format f)
{
    static const struct {
        const char *name;
        void (*print)(strbuf *b, const char *format);
        const char *heading; /* of the document, where the printer has none of its own */
    } tables[] = {
        { "ops", op_print_table, NULL },
        { "targets", chip_print, NULL },
        { "profiles", codegen_print_profiles,
          "What `soft:<chip>` computes with, by tier (`src/codegen/profile.def`); `docs/isa.md` says what a switch does. A switch without a row is as on `cpu`.\n\n" },
        { "rules", rules_print, NULL },
        { "gates", gates_print, NULL },
        { "passes", print_passes, NULL },
        { "kernels", model_kernels_print, NULL },
        { "models", model_presets_print, NULL },
        { "published", cost_report, NULL },
        { "probes", print_probes, NULL },
        { "devices", print_devices, NULL },
        { "limits", device_limits_print, NULL },
        { "hwx", hwx_fields_print, NULL },
        { "nets", net_print, NULL },
        { "isa", isa_print,
          "# Instructions\n\nPrinted by `anneal isa --markdown` from `src/engine/isa.def`. Field types: t tensor, i integer, f real; `?` may be none, `*` a list.\n\n" },
    };
    for (size_t i = 0; i < COUNT(tables); i++) {
        if (strcmp(tables[i].name, which)) continue;
        strbuf b = { 0 };
        if (f == AN_MARKDOWN && tables[i].heading) sb_puts(&b, tables[i].heading);
        tables[i].print(&b, api_format(f));
        return api_take(&b);
    }
    return NULL;
}

const char *an_probe(const char *name)
{
    for (size_t i = 0; i < n_probe_texts; i++)
        if (!strcmp(probe_texts[i].name, name)) return probe_texts[i].text;
    return NULL;
}

int an_target_known(const char *name) { return chip_find(name) != NULL; }
