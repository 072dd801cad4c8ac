/* log.c: the fields of a line are one list; JSON and CSV are two ways to print it. */
#include <math.h>

#include "train/log.h"

typedef struct {
    const char *name;
    double value;
    bool whole, truth;
} field;

enum { FIELDS = 14 };

static void fields_of(const lm_progress *p, field *f)
{
    double tok_s = p->ms > 0 ? (double)p->tokens / p->ms * 1e3 : 0;
    const field all[FIELDS] = {
        { .name = "step", .value = (double)p->step, .whole = true },
        { .name = "loss", .value = p->loss },
        { .name = "smooth", .value = p->smooth },
        { .name = "lr", .value = p->lr },
        { .name = "tok_s", .value = tok_s },
        { .name = "ms", .value = p->ms },
        { .name = "data_ms", .value = p->data_ms },
        { .name = "device_ms", .value = p->device_ms },
        { .name = "grad_norm", .value = p->grad_norm },
        { .name = "nonfinite", .value = (double)p->skipped, .whole = true },
        { .name = "loss_scale", .value = p->loss_scale },
        { .name = "applied", .value = p->applied, .truth = true },
        { .name = "tokens", .value = (double)p->tokens, .whole = true },
        { .name = "steps", .value = (double)p->steps, .whole = true },
    };
    memcpy(f, all, sizeof all);
}

static void put_value(strbuf *b, const field *f, bool json)
{
    if (f->truth) sb_puts(b, json ? (f->value != 0 ? "true" : "false") : (f->value != 0 ? "1" : "0"));
    else if (!isfinite(f->value)) sb_puts(b, json ? "null" : "");
    else if (f->whole) sb_printf(b, "%.0f", f->value);
    else sb_printf(b, "%.7g", f->value);
}

void log_json(strbuf *b, const lm_progress *p)
{
    field f[FIELDS];
    fields_of(p, f);
    for (int i = 0; i < FIELDS; i++) {
        sb_printf(b, "%s\"%s\":", i ? "," : "{", f[i].name);
        put_value(b, &f[i], true);
    }
    sb_putc(b, '}');
}

void log_csv_head(strbuf *b)
{
    field f[FIELDS];
    fields_of(&(lm_progress){ 0 }, f);
    for (int i = 0; i < FIELDS; i++) sb_printf(b, "%s%s", i ? "," : "", f[i].name);
}

void log_csv(strbuf *b, const lm_progress *p)
{
    field f[FIELDS];
    fields_of(p, f);
    for (int i = 0; i < FIELDS; i++) {
        if (i) sb_putc(b, ',');
        put_value(b, &f[i], false);
    }
}
