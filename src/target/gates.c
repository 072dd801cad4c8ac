/* gates.c: gates.def as a lookup by MIL spelling. */
#include <pthread.h>

#include "target/target_int.h"

static const gate_row rows[] = {
#define GATE(mil_, from_, below_, kind_, fix_, evidence_)                                                             \
    { .mil = mil_, .from = from_, .below = GATE_##below_, .kind = BRIDGE_##kind_, .fix = fix_, .evidence = evidence_ },
#include "target/gates.def"
#undef GATE
};

enum { SLOTS = 1024 }; /* a power of two, several times the row count */
static uint16_t slots[SLOTS];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static size_t slot_of(const char *mil) { return (size_t)hash_bytes(mil, strlen(mil), 1) & (SLOTS - 1); }

static void build(void)
{
    _Static_assert(COUNT(rows) * 2 < SLOTS, "the lookup must stay sparse");
    for (size_t i = 0; i < COUNT(rows); i++) {
        size_t s = slot_of(rows[i].mil);
        while (slots[s]) s = (s + 1) & (SLOTS - 1);
        slots[s] = (uint16_t)(i + 1);
    }
}

size_t gate_count(void) { return COUNT(rows); }
const gate_row *gate_at(size_t i) { return &rows[i]; }

const gate_row *gate_find(const char *mil)
{
    pthread_once(&once, build);
    for (size_t s = slot_of(mil); slots[s]; s = (s + 1) & (SLOTS - 1))
        if (!strcmp(rows[slots[s] - 1].mil, mil)) return &rows[slots[s] - 1];
    return NULL;
}

gate gate_of(const char *mil, const chip *c, const char **fix)
{
    const gate_row *r = gate_find(mil);
    if (fix) *fix = r ? r->fix : "";
    if (!r) return GATE_UNKNOWN;
    return chip_family(c) >= r->from ? GATE_NATIVE : r->below;
}
