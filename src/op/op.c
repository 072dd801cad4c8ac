/* op.c: ops.def read once into structures, and lookups by name. */
#include <pthread.h>
#include <stdlib.h>

#include "base/plain.h"
#include "op/op.h"

static const char *const attr_names[A_COUNT] = {
    [A_NONE] = "",
#define ATTR(id, name) [A_##id] = name,
#include "op/attrs.def"
#undef ATTR
};

static const struct {
    const char *in, *attrs;
} spec[OP_COUNT] = {
#define OP(id, mil, in, out, attrs, shape, dtype, vjp, cost, kernel) [OP_##id] = { in, attrs },
#include "op/ops.def"
#undef OP
};

static op_info table[OP_COUNT] = {
#define OP(I, mil_, in_, out_, attrs_, shape_, dtype_, vjp_, cost_, kernel_)                                          \
    [OP_##I] = { .id = OP_##I, .mil = mil_, .n_out = out_, .shape_rule = #shape_, .dtype_rule = #dtype_,              \
                 .vjp_rule = #vjp_, .cost_rule = #cost_, .kernel = #kernel_ },
#include "op/ops.def"
#undef OP
};

static int64_t default_ints[OP_COUNT * OP_MAX_ATTRS]; /* storage for one-element list defaults */
static char default_strs[OP_COUNT * OP_MAX_ATTRS][32];

/* A malformed row is a bug in the table: the unit test walks every row, and abort names the place. */
static void bad_row(const char *what, const char *text)
{
    fprintf(stderr, "ops.def: %s: %s\n", what, text);
    abort();
}

static size_t word(const char **p) /* length of the next blank-separated word; *p at its start */
{
    while (**p == ' ') ++*p;
    size_t n = strcspn(*p, " ");
    return n;
}

static void read_operands(op_info *o, const char *p)
{
    for (size_t n; (n = word(&p)) > 0; p += n) {
        if (o->n_in == OP_MAX_OPERANDS) bad_row("too many operands", o->mil);
        operand_spec *s = &o->in[o->n_in++];
        s->optional = p[n - 1] == '?';
        s->list = p[n - 1] == '*';
        size_t len = n - (s->optional || s->list);
        if (len >= sizeof s->name) bad_row("operand name too long", o->mil);
        memcpy(s->name, p, len);
    }
}

static void read_attr(op_info *o, const char *p, size_t n)
{
    const char *colon = memchr(p, ':', n);
    if (!colon || o->n_attr == OP_MAX_ATTRS) bad_row("bad attribute", o->mil);
    attr_spec *s = &o->attr[o->n_attr];
    size_t slot = (size_t)o->id * OP_MAX_ATTRS + (size_t)o->n_attr++;
    s->id = attr_find(p, (size_t)(colon - p));
    if (s->id == A_NONE) bad_row("attribute missing from attrs.def", p);
    const char *t = colon + 1, *end = p + n;
    bool list = t + 1 < end && t[1] == '*';
    s->kind = *t == 'i' ? (list ? ATTR_INTS : ATTR_INT) : *t == 'b' ? (list ? ATTR_BOOLS : ATTR_BOOL)
            : *t == 'f' ? ATTR_FLOAT : ATTR_STR;
    const char *eq = memchr(t, '=', (size_t)(end - t));
    s->required = !eq;
    s->absent_ok = eq && eq + 2 == end && eq[1] == '?';
    if (s->required || s->absent_ok) return;
    char *text = default_strs[slot];
    size_t len = (size_t)(end - eq - 1);
    if (len >= sizeof default_strs[0]) bad_row("default too long", o->mil);
    memcpy(text, eq + 1, len);
    s->def = (attr){ .id = s->id, .kind = s->kind };
    int64_t i = !strcmp(text, "true") ? 1 : strtoll(text, NULL, 10);
    switch (s->kind) {
    case ATTR_FLOAT: s->def.u.f = plain_real(text, NULL); break;
    case ATTR_STR: s->def.u.s = text; break;
    case ATTR_INTS:
    case ATTR_BOOLS:
        default_ints[slot] = i;
        s->def.u.is = &default_ints[slot];
        s->def.n = 1;
        break;
    default: s->def.u.i = i; break;
    }
}

static void read_table(void)
{
    for (int i = 0; i < OP_COUNT; i++) {
        read_operands(&table[i], spec[i].in);
        const char *p = spec[i].attrs;
        for (size_t n; (n = word(&p)) > 0; p += n) read_attr(&table[i], p, n);
    }
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

const op_info *op_get(op_id id)
{
    pthread_once(&once, read_table);
    return &table[id];
}

bool op_has_effect(op_id op) { return op == OP_WRITE_STATE; }

bool op_find(const char *mil, size_t n, op_id *id)
{
    for (int i = 0; i < OP_COUNT; i++)
        if (strlen(table[i].mil) == n && !memcmp(table[i].mil, mil, n)) return *id = (op_id)i, true;
    return false;
}

const char *attr_name(attr_id id) { return attr_names[id]; }

attr_id attr_find(const char *name, size_t n)
{
    for (int i = A_NONE + 1; i < A_COUNT; i++)
        if (strlen(attr_names[i]) == n && !memcmp(attr_names[i], name, n)) return (attr_id)i;
    return A_NONE;
}

const attr_spec *op_attr_spec(op_id id, attr_id a)
{
    const op_info *o = op_get(id);
    for (int i = 0; i < o->n_attr; i++)
        if (o->attr[i].id == a) return &o->attr[i];
    return NULL;
}

const attr *attr_get(const attr *at, int n, attr_id id)
{
    for (int i = 0; i < n; i++)
        if (at[i].id == id) return &at[i];
    return NULL;
}

static const attr *get_or_default(op_id op, const attr *at, int n, attr_id id)
{
    const attr *a = attr_get(at, n, id);
    if (a) return a;
    const attr_spec *s = op_attr_spec(op, id);
    return s && !s->required && !s->absent_ok ? &s->def : NULL;
}

int64_t attr_int(op_id op, const attr *at, int n, attr_id id)
{
    const attr *a = get_or_default(op, at, n, id);
    return a ? a->u.i : 0;
}

bool attr_bool(op_id op, const attr *at, int n, attr_id id) { return attr_int(op, at, n, id) != 0; }

double attr_float(op_id op, const attr *at, int n, attr_id id)
{
    const attr *a = get_or_default(op, at, n, id);
    return a ? a->u.f : 0;
}

const char *attr_str(op_id op, const attr *at, int n, attr_id id)
{
    const attr *a = get_or_default(op, at, n, id);
    return a ? a->u.s : "";
}

bool attr_list(op_id op, const attr *at, int n, attr_id id, int want, int64_t *out)
{
    const attr *a = attr_get(at, n, id);
    bool given = a != NULL;
    if (!a) a = get_or_default(op, at, n, id);
    if (!a || (given && a->n != want)) return false;
    for (int i = 0; i < want; i++) out[i] = a->u.is[given ? i : 0];
    return true;
}

bool attr_eq(const attr *a, const attr *b)
{
    if (a->id != b->id || a->kind != b->kind) return false;
    switch (a->kind) {
    case ATTR_FLOAT: return !memcmp(&a->u.f, &b->u.f, sizeof a->u.f); /* 0 and -0 are two numbers, a NaN is itself */
    case ATTR_STR: return !strcmp(a->u.s, b->u.s);
    case ATTR_INTS:
    case ATTR_BOOLS: return a->n == b->n && (!a->n || !memcmp(a->u.is, b->u.is, (size_t)a->n * sizeof *a->u.is));
    default: return a->u.i == b->u.i;
    }
}
