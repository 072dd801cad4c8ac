/* chip.c: chip.def read once into rows, and lookups by name and by column.
 * A speed nobody has measured on a part is predicted here from the part it is anchored to, and marked P. */
#include <ctype.h>
#include <pthread.h>
#include <stdlib.h>

#include "target/target_int.h"

typedef enum { SCALE_SAME, SCALE_CORES, SCALE_CLOCK, SCALE_CORES_CLOCK, SCALE_CLOCK_DOWN } scale;

static const double limits[][TIER_COUNT] = {
#define LIMIT(id, unit, what, h13, h14, h15, h16, h17, h18, m11, evidence) { h13, h14, h15, h16, h17, h18, m11 },
#include "target/chip.def"
};

static const column_info columns[COL_COUNT] = {
    [COL_family] = { "family", "", "operation family: 2 A13 … 7 A18", "facts 1.1; conflict K3" },
    [COL_cores] = { "cores", "", "cores by the compiler's table, for cost scaling", "facts 1.1; conflict K1" },
    [COL_cpusubtype] = { "cpusubtype", "", "emitted in the container; -1: not published", "facts 1.1" },
    [COL_clock_ghz] = { "clock_ghz", "GHz", "model clock", "facts 1.2; conflict K17" },
#define LIMIT(id, unit, what, h13, h14, h15, h16, h17, h18, m11, evidence) [COL_##id] = { #id, unit, what, evidence },
#define COST(id, unit, what, scale, cap, evidence) [COL_##id] = { #id, unit, what, evidence },
#include "target/chip.def"
};

enum { COL_none = -1 };
static const struct {
    chip_column c;
    scale how;
    int cap;
} costs[] = {
#define COST(id, unit, what, scale, cap, evidence) { COL_##id, SCALE_##scale, COL_##cap },
#include "target/chip.def"
};

static const struct {
    const char *arch;
    chip_column c;
    double value;
    char st;
} measured[] = {
#define MEASURED(arch, column, value, status, evidence) { arch, COL_##column, value, status },
#include "target/chip.def"
};

static const struct {
    const char *arch, *name, *silicon, *soc, *anchor, *note;
    bool base;
    tier at;
    double family, cores, cpusubtype, clock;
    char clock_st;
} parts[] = {
#define CHIP(arch_, name_, base_, silicon_, soc_, tier_, anchor_, family_, cores_, sub_, clock_, st_, note_)          \
    { .arch = arch_, .name = name_, .silicon = silicon_, .soc = soc_, .anchor = anchor_, .note = note_,               \
      .base = base_, .at = TIER_##tier_, .family = family_, .cores = cores_, .cpusubtype = sub_, .clock = clock_,     \
      .clock_st = st_ },
#include "target/chip.def"
};

static const conflict conflicts[] = {
#define CONFLICT(id, question, side) { id, question, side },
#include "target/chip.def"
};

static chip chips[COUNT(parts)];

/* A hole in the table is a bug of the table; the unit tests walk every row. */
static void bad_table(const char *arch, const char *what)
{
    fprintf(stderr, "chip.def: %s: %s\n", arch, what);
    abort();
}

static chip *build_one(size_t i, int depth);

static const chip *anchor_of(const char *arch, const char *anchor, int depth)
{
    for (size_t i = 0; i < COUNT(parts) && strcmp(arch, anchor) != 0; i++)
        if (!strcmp(parts[i].arch, anchor)) return build_one(i, depth + 1);
    return NULL;
}

static bool known(const char *arch, chip_column c, double *value, char *st)
{
    for (size_t i = 0; i < COUNT(measured); i++)
        if (measured[i].c == c && !strcmp(measured[i].arch, arch))
            return *value = measured[i].value, *st = measured[i].st, true;
    return false;
}

static void fill_speeds(chip *c, const char *anchor, int depth)
{
    const chip *a = anchor_of(c->arch, anchor, depth);
    for (size_t i = 0; i < COUNT(costs); i++) {
        chip_column k = costs[i].c;
        if (known(c->arch, k, &c->col[k], &c->st[k])) continue;
        if (!a) bad_table(c->arch, columns[k].id); /* its own anchor must have seen everything */
        double cores = c->col[COL_cores] / a->col[COL_cores], clock = c->col[COL_clock_ghz] / a->col[COL_clock_ghz];
        double f = 1;
        switch (costs[i].how) {
        case SCALE_SAME: break;
        case SCALE_CORES: f = cores; break;
        case SCALE_CLOCK: f = clock; break;
        case SCALE_CORES_CLOCK: f = cores * clock; break;
        case SCALE_CLOCK_DOWN: f = 1 / clock; break;
        }
        c->col[k] = a->col[k] * f;
        if (costs[i].cap != COL_none) c->col[k] = MIN(c->col[k], c->col[costs[i].cap]);
        c->st[k] = 'P';
    }
}

static chip *build_one(size_t i, int depth)
{
    chip *c = &chips[i];
    if (c->arch) return c;
    if (depth > (int)COUNT(parts)) bad_table(parts[i].arch, "anchors go round in a circle");
    chip x = { .name = parts[i].name, .arch = parts[i].arch, .silicon = parts[i].silicon, .soc = parts[i].soc,
               .note = parts[i].note, .base = parts[i].base, .at = parts[i].at };
    memset(x.st, 'D', sizeof x.st);
    x.col[COL_family] = parts[i].family;
    x.col[COL_cores] = parts[i].cores;
    x.col[COL_cpusubtype] = parts[i].cpusubtype;
    x.col[COL_clock_ghz] = parts[i].clock;
    x.st[COL_clock_ghz] = parts[i].clock_st;
    for (size_t k = 0; k < COUNT(limits); k++) x.col[COL_clock_ghz + 1 + k] = limits[k][parts[i].at];
    fill_speeds(&x, parts[i].anchor, depth);
    *c = x; /* only now: a row with a name is a finished row */
    return c;
}

static void build(void)
{
    for (size_t i = 0; i < COUNT(parts); i++) build_one(i, 0);
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

size_t chip_count(void) { return COUNT(parts); }

const chip *chip_at(size_t i)
{
    pthread_once(&once, build);
    return &chips[i];
}

static bool same_word(const char *a, const char *b)
{
    for (; *a && *b; a++, b++)
        if (tolower((unsigned char)*a) != tolower((unsigned char)*b)) return false;
    return !*a && !*b;
}

const chip *chip_find(const char *name)
{
    for (size_t i = 0; name && i < chip_count(); i++)
        if (same_word(name, chip_at(i)->name) || same_word(name, chip_at(i)->arch)) return chip_at(i);
    return NULL;
}

const char *chip_name(const chip *c) { return c->name; }
const char *chip_arch(const chip *c) { return c->arch; }
bool chip_is_base(const chip *c) { return c->base; }
int chip_family(const chip *c) { return (int)c->col[COL_family]; }

double chip_limit(const chip *c, const char *column)
{
    for (int k = 0; k < COL_COUNT; k++)
        if (!strcmp(columns[k].id, column)) return c->col[k];
    return NAN;
}

const column_info *column_get(chip_column c) { return &columns[c]; }
size_t conflict_count(void) { return COUNT(conflicts); }
const conflict *conflict_at(size_t i) { return &conflicts[i]; }
