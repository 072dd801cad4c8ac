/* decode.c: program bytes to a program. The bytes are hostile: every count is bounded by what is left of the file
 * before anything is allocated for it, and what was read goes through program_check. In: bytes.  Out: a program that
 * owns all it points to, or a message that names the part that is wrong. */
#include <inttypes.h>
#include <math.h>

#include "engine/engine_int.h"
#include "engine/program_int.h"

typedef struct {
    const unsigned char *at, *end, *start;
    const char *part; /* for messages */
    program *p;
    diag *d;
} reader;

static an_status truncated(reader *r)
{
    return diag_fail(r->d, AN_INPUT, NOWHERE, "program is cut short in its %s, at byte %zu of %zu", r->part,
                     (size_t)(r->at - r->start), (size_t)(r->end - r->start));
}

static size_t left(const reader *r) { return (size_t)(r->end - r->at); }

static an_status get(reader *r, int bytes, uint64_t *v)
{
    *v = 0;
    if (left(r) < (size_t)bytes) return truncated(r);
    for (int i = bytes; i-- > 0;) *v = *v << 8 | r->at[i];
    r->at += bytes;
    return AN_OK;
}

static an_status get_i64(reader *r, int64_t *v)
{
    uint64_t u;
    TRY(get(r, 8, &u));
    memcpy(v, &u, 8);
    return AN_OK;
}

static an_status get_f64(reader *r, double *v)
{
    uint64_t u;
    TRY(get(r, 8, &u));
    memcpy(v, &u, 8);
    return AN_OK;
}

/* A count of things that take at least `each` bytes: more than fit cannot be meant. */
static an_status get_count(reader *r, size_t each, size_t *n)
{
    uint64_t v;
    *n = 0;
    TRY(get(r, 4, &v));
    if (v > left(r) / each)
        return diag_fail(r->d, AN_INPUT, NOWHERE,
                         "program says it has %" PRIu64 " entries in its %s; the %zu bytes left hold at most %zu", v,
                         r->part, left(r), left(r) / each);
    *n = (size_t)v;
    return AN_OK;
}

static an_status get_str(reader *r, const char **s)
{
    size_t n;
    TRY(get_count(r, 1, &n));
    if (memchr(r->at, 0, n))
        return diag_fail(r->d, AN_INPUT, NOWHERE, "program has a zero byte in a name of its %s", r->part);
    if (!(*s = arena_strn(&r->p->mem, (const char *)r->at, n))) return diag_nomem(r->d);
    r->at += n;
    return AN_OK;
}

static an_status get_small(reader *r, uint64_t limit, const char *what, uint64_t *v)
{
    TRY(get(r, 1, v));
    if (*v < limit) return AN_OK;
    return diag_fail(r->d, AN_INPUT, NOWHERE, "program has %s %" PRIu64 " in its %s; it must be below %" PRIu64, what,
                     *v, r->part, limit);
}

static an_status get_rank(reader *r, int *rank)
{
    uint64_t n;
    TRY(get_small(r, ENGINE_MAX_RANK + 1, "rank", &n));
    *rank = (int)n;
    return AN_OK;
}

static an_status get_axes(reader *r, int rank, int64_t *dim)
{
    for (int i = 0; i < rank; i++) TRY(get_i64(r, &dim[i]));
    return AN_OK;
}

static an_status get_numerics(reader *r)
{
    r->part = "numerics";
    size_t n;
    TRY(get_count(r, 12, &n));
    if (n != (size_t)n_numeric_rows)
        return diag_fail(r->d, AN_INPUT, NOWHERE, "program has %zu numerics switches, this engine has %d", n,
                         n_numeric_rows);
    for (int i = 0; i < n_numeric_rows; i++) {
        const char *name;
        double v;
        TRY(get_str(r, &name));
        if (strcmp(name, numeric_rows[i].name))
            return diag_fail(r->d, AN_INPUT, NOWHERE,
                             "program has the numerics switch \"%.60s\" where \"%s\" is expected", name,
                             numeric_rows[i].name);
        TRY(get_f64(r, &v));
        memcpy((char *)&r->p->num + numeric_rows[i].offset, &v, sizeof v);
    }
    return AN_OK;
}

static an_status get_tensors(reader *r)
{
    r->part = "tensors";
    size_t n;
    TRY(get_count(r, 15, &n));
    for (size_t i = 0; i < n; i++) {
        etensor t = { 0 };
        uint64_t dt, where, slot;
        TRY(get_small(r, DT_COUNT, "element type", &dt));
        TRY(get_small(r, SPACE_CONST + 1, "space", &where));
        TRY(get_rank(r, &t.rank));
        TRY(get(r, 4, &slot));
        TRY(get(r, 8, &t.offset));
        TRY(get_axes(r, t.rank, t.dim));
        t.dt = (dtype)dt, t.where = (space)where, t.slot = (uint32_t)slot;
        if (!VEC_PUSH(&r->p->mem, &r->p->tensors, t)) return diag_nomem(r->d);
    }
    return AN_OK;
}

static an_status get_port(reader *r, eport *e)
{
    uint64_t tensor;
    TRY(get_str(r, &e->name));
    TRY(get(r, 4, &tensor));
    e->tensor = (uint32_t)tensor;
    return get(r, 8, &e->bytes);
}

static an_status get_ports(reader *r)
{
    size_t n;
    eport e;
    r->part = "inputs";
    TRY(get_count(r, 16, &n));
    for (size_t i = 0; i < n; i++) {
        TRY(get_port(r, &e));
        if (!VEC_PUSH(&r->p->mem, &r->p->inputs, e)) return diag_nomem(r->d);
    }
    r->part = "outputs";
    TRY(get_count(r, 16, &n));
    for (size_t i = 0; i < n; i++) {
        TRY(get_port(r, &e));
        if (!VEC_PUSH(&r->p->mem, &r->p->outputs, e)) return diag_nomem(r->d);
    }
    return AN_OK;
}

static an_status get_source(reader *r, const_source *s)
{
    uint64_t has, dt;
    TRY(get_small(r, 2, "path flag", &has));
    if (has) TRY(get_str(r, &s->path));
    TRY(get(r, 8, &s->offset));
    TRY(get_small(r, DT_COUNT, "element type", &dt));
    s->dt = (dtype)dt;
    TRY(get_rank(r, &s->rank));
    TRY(get_axes(r, s->rank, s->dim));
    return get(r, 8, &s->bytes);
}

static an_status get_consts(reader *r)
{
    r->part = "constants";
    size_t n;
    TRY(get_count(r, 14, &n));
    for (size_t i = 0; i < n; i++) {
        const_entry c = { 0 };
        uint64_t kind, n_src, tensor;
        TRY(get_small(r, CK_COUNT, "constant kind", &kind));
        TRY(get_small(r, COUNT(c.src) + 1, "source count", &n_src));
        TRY(get(r, 4, &tensor));
        TRY(get_i64(r, &c.axis));
        c.kind = (const_kind)kind, c.n_src = (int)n_src, c.tensor = (uint32_t)tensor;
        for (int k = 0; k < c.n_src; k++) TRY(get_source(r, &c.src[k]));
        if (!VEC_PUSH(&r->p->mem, &r->p->consts, c)) return diag_nomem(r->d);
    }
    return AN_OK;
}

/* The items of one kind while an instruction is read: counted in a first pass, so each gets one exact array. */
typedef struct {
    int64_t *t, *i;
    double *f;
    uint32_t n_t, n_i, n_f;
} items;

static an_status walk_fields(reader *r, const insn_field *field, int n_fields, items *to)
{
    for (int k = 0; k < n_fields; k++) {
        field_kind kind = field[k].kind;
        bool list = kind == FIELD_T_LIST || kind == FIELD_I_LIST || kind == FIELD_F_LIST;
        bool is_t = kind <= FIELD_T_LIST, is_f = kind >= FIELD_F;
        size_t n = 1;
        if (list) TRY(get_count(r, 8, &n));
        if (left(r) / 8 < n) return truncated(r);
        uint32_t *count = is_t ? &to->n_t : is_f ? &to->n_f : &to->n_i;
        int64_t *ints = is_t ? to->t : to->i;
        if (list && is_f && to->f) to->f[*count] = (double)n;
        if (list && !is_f && ints) ints[*count] = (int64_t)n;
        *count += list;
        for (size_t j = 0; j < n; j++, ++*count) {
            int64_t v = 0;
            double x = 0;
            if (is_f) TRY(get_f64(r, &x));
            else TRY(get_i64(r, &v));
            if (is_f && to->f) to->f[*count] = x;
            if (!is_f && ints) ints[*count] = v;
        }
    }
    return AN_OK;
}

static an_status get_insn(reader *r)
{
    uint64_t op, line;
    TRY(get(r, 2, &op));
    TRY(get(r, 4, &line));
    if (op >= IN_COUNT)
        return diag_fail(r->d, AN_INPUT, NOWHERE, "program has instruction number %" PRIu64 "; the last one is %d", op,
                         IN_COUNT - 1);
    insn_field field[ISA_MAX_FIELDS];
    int n = isa_fields((insn_id)op, field);
    const unsigned char *fields_at = r->at;
    items size = { 0 };
    TRY(walk_fields(r, field, n, &size));
    arena *a = &r->p->mem;
    items to = { .t = TAKE(a, int64_t, size.n_t), .i = TAKE(a, int64_t, size.n_i), .f = TAKE(a, double, size.n_f) };
    if (!to.t || !to.i || !to.f) return diag_nomem(r->d);
    r->at = fields_at;
    TRY(walk_fields(r, field, n, &to));
    insn in = { .op = (insn_id)op, .n_t = to.n_t, .n_i = to.n_i, .n_f = to.n_f, .t = to.t, .i = to.i, .f = to.f,
                .line = (uint32_t)line };
    return VEC_PUSH(a, &r->p->insns, in) ? AN_OK : diag_nomem(r->d);
}

static an_status get_data(reader *r)
{
    r->part = "inline data";
    uint64_t n;
    TRY(get(r, 8, &n));
    size_t pad = (64 - (size_t)(r->at - r->start) % 64) % 64;
    if (left(r) < pad) return truncated(r);
    for (size_t i = 0; i < pad; i++)
        if (*r->at++)
            return diag_fail(r->d, AN_INPUT, NOWHERE,
                             "program has a nonzero byte in the padding before its inline data");
    if (n != left(r))
        return diag_fail(r->d, AN_INPUT, NOWHERE, "program says it has %" PRIu64 " bytes of inline data; %zu follow", n,
                         left(r));
    unsigned char *copy = arena_take(&r->p->mem, (size_t)n, 1, 64);
    if (!copy) return diag_nomem(r->d);
    if (n) memcpy(copy, r->at, (size_t)n);
    r->p->data = copy, r->p->n_data = n;
    return AN_OK;
}

static an_status get_program(reader *r)
{
    r->part = "title";
    TRY(get_str(r, &r->p->title));
    TRY(get_str(r, &r->p->target));
    TRY(get(r, 8, &r->p->key));
    TRY(get(r, 8, &r->p->scratch_bytes));
    if (r->p->final) TRY(get(r, 8, &r->p->weights));
    TRY(get_numerics(r));
    TRY(get_tensors(r));
    TRY(get_ports(r));
    TRY(get_consts(r));
    r->part = "instructions";
    size_t n;
    TRY(get_count(r, 6, &n));
    for (size_t i = 0; i < n; i++) TRY(get_insn(r));
    TRY(get_data(r));
    return program_check(r->p, r->d);
}

bool program_is(const void *bytes, size_t n) { return n >= 8 && !memcmp(bytes, PROGRAM_MAGIC, 8); }

an_status program_decode(const void *bytes, size_t n, program **out, diag *d)
{
    reader r = { .at = bytes, .start = bytes, .part = "header", .d = d };
    r.end = r.start + n;
    *out = NULL;
    if (n < PROGRAM_HEADER || !program_is(bytes, n))
        return diag_fail(d, AN_INPUT, NOWHERE,
                         "these %zu bytes are not an engine program: one begins with \"%s\" and a header of %d bytes",
                         n, PROGRAM_MAGIC, PROGRAM_HEADER);
    uint64_t version, final, body, sum;
    r.at += 8;
    TRY(get(&r, 4, &version));
    TRY(get(&r, 4, &final));
    TRY(get(&r, 8, &body));
    TRY(get(&r, 8, &sum));
    if (version != PROGRAM_VERSION)
        return diag_fail(d, AN_INPUT, NOWHERE,
                         "program has version %" PRIu64 ", this engine reads version %d: compile it again", version,
                         PROGRAM_VERSION);
    if (final > 1)
        return diag_fail(
            d, AN_INPUT, NOWHERE,
            "program has %" PRIu64 " in byte 12 of its header, which says whether it is final; wanted 0 or 1", final);
    if (body != n - PROGRAM_HEADER)
        return diag_fail(d, AN_INPUT, NOWHERE,
                         "program says it has %" PRIu64
                         " bytes after its header, there are %zu: cut short or followed by something else",
                         body, n - PROGRAM_HEADER);
    uint64_t have = hash_many(r.at, (size_t)body, PROGRAM_SEED);
    if (sum != have)
        return diag_fail(d, AN_INPUT, NOWHERE,
                         "program is damaged: its checksum is %016" PRIx64 ", its bytes give %016" PRIx64, sum, have);
    if (!(r.p = program_new("", "", &numerics_cpu))) return diag_nomem(d);
    r.p->final = final;
    an_status st = get_program(&r);
    if (st) program_free(r.p);
    else *out = r.p;
    return st;
}
