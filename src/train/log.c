/* log.c: the fields of a line are one list; JSON and CSV are two ways to print it. */
#include <stdarg.h>
#include <math.h>
#include <stdlib.h>

#include "base/plain.h"
#include "format/json.h"
#include "train/log.h"

typedef struct {
    const char *name;
    double value;
    bool whole, truth;
} field;

enum { FIELDS = 17 };

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
        { .name = "host_ms", .value = p->host_ms },
        { .name = "wait_ms", .value = p->wait_ms },
        { .name = "zero", .value = (double)p->zeros, .whole = true },
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

/* ---- reading ---- */

static double number_of(const json_t *top, const char *key)
{
    const json_t *v = json_object_get(top, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static bool line_of(const char *text, size_t n, log_past *l)
{
    json_t *top;
    diag none = { 0 };
    /* a process that died may have left half a line */
    if (!n || text[0] != '{' || json_text(text, n, "log", &top, &none)) return false;
    const json_t *step = json_object_get(top, "step");
    const char *kind = json_string_value(json_object_get(top, "kind"));
    *l = (log_past){ .step = json_is_integer(step) ? json_integer_value(step) : -1,
                     .loss = number_of(top, "loss"),
                     .smooth = number_of(top, "smooth"),
                     .kept = kind && !strcmp(kind, "validation") };
    json_decref(top);
    return l->step >= 0 && (!kind || l->kept);
}

typedef struct {
    log_past l;
    size_t at; /* in the file */
} entry;

static int by_step(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->l.step != y->l.step) return x->l.step < y->l.step ? -1 : 1;
    if (x->l.kept != y->l.kept) return x->l.kept - y->l.kept;
    return (x->at > y->at) - (x->at < y->at);
}

void log_read(const char *path, void (*take)(void *user, const log_past *l), void *user)
{
    file_bytes f;
    diag none = { 0 };
    arena mem = { 0 };
    VEC(entry) all = { 0 };
    if (file_map(path, &f, &none)) return;
    for (size_t at = 0; at < f.n;) {
        const char *line = (const char *)f.at + at, *end = memchr(line, '\n', f.n - at);
        size_t n = end ? (size_t)(end - line) : f.n - at;
        entry e = { .at = at };
        if (line_of(line, n, &e.l) && !VEC_PUSH(&mem, &all, e)) break;
        at += n + 1;
    }
    if (all.n) qsort(all.at, all.n, sizeof *all.at, by_step);
    for (size_t i = 0; i < all.n; i++)
        if (i + 1 == all.n || all.at[i].l.step != all.at[i + 1].l.step || all.at[i].l.kept != all.at[i + 1].l.kept)
            take(user, &all.at[i].l);
    file_drop(&f);
    arena_free(&mem);
}

void log_say(void (*to)(void *user, const char *line), void *user, const char *fmt, ...)
{
    char line[600];
    va_list ap;
    va_start(ap, fmt);
    plain_vprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    if (to) to(user, line);
}
