/* profile.c: a chip's arithmetic, out of profile.def.
 * In: a chip of target/.  Out: numerics for the engine. A switch without a row keeps the plain processor's value. */
#include "codegen/codegen.h"

typedef struct {
    const char *tier, *field, *status, *evidence;
    double value;
    size_t at; /* of the field in numerics */
} profile_row;

static const profile_row rows[] = {
#define PROFILE(tier, field, value, status, evidence)                                                                  \
    { #tier, #field, #status, evidence, value, offsetof(numerics, field) },
#include "codegen/profile.def"
#undef PROFILE
};

/* h13g, h17s and the like are parts of their tier; the letter says size, not arithmetic. */
static bool of_tier(const chip *c, const char *tier)
{
    size_t n = strlen(tier);
    return !strncmp(chip_arch(c), tier, n) && (chip_arch(c)[n] < '0' || chip_arch(c)[n] > '9');
}

bool codegen_numerics(const chip *c, numerics *out)
{
    bool any = false;
    *out = numerics_cpu;
    for (size_t i = 0; i < COUNT(rows); i++)
        if (of_tier(c, rows[i].tier)) {
            memcpy((char *)out + rows[i].at, &rows[i].value, sizeof rows[i].value);
            any = true;
        }
    return any;
}

void codegen_print_profiles(strbuf *b, const char *format)
{
    bool json = !strcmp(format, "json"), markdown = !strcmp(format, "markdown");
    static const char marks[] = "M measured, D decoded, R reconstructed from measurements, P predicted";
    if (!json && !markdown) sb_puts(b, "arithmetic of the software engine, by tier\n");
    if (markdown) sb_puts(b, "| tier | switch | value | status | evidence |\n| --- | --- | ---: | :-: | --- |\n");
    for (size_t i = 0; i < COUNT(rows); i++) {
        const profile_row *r = &rows[i];
        if (json) {
            sb_printf(b, "{\"kind\":\"profile\",\"tier\":\"%s\",\"switch\":\"%s\",\"value\":%g,\"status\":\"%s\",\"evidence\":", r->tier,
                      r->field, r->value, r->status);
            sb_json(b, r->evidence, strlen(r->evidence));
            sb_puts(b, "}\n");
        } else if (markdown)
            sb_printf(b, "| %s | %s | %g | %s | %s |\n", r->tier, r->field, r->value, r->status, r->evidence);
        else sb_printf(b, "%-4s %-13s %6g  %s  %s\n", r->tier, r->field, r->value, r->status, r->evidence);
    }
    if (!json) sb_printf(b, "%s%s\n", markdown ? "\n" : "", marks);
}
