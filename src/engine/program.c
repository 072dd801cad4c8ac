/* program.c: a program in memory, and its bytes.
 *
 *   0   "ANNLPROG", u32 version, u32 1 if final else 0, u64 bytes of the body, u64 checksum of the body
 *       (hash_many): 32 bytes; the body follows
 *       strings (u32 length, bytes): title, target; u64 key, u64 scratch bytes; final: u64 checksum of its weights
 *       u32 count, then name and f64 of every numerics switch, in table order
 *       u32 count of tensors: u8 type, u8 space, u8 rank, u32 slot, u64 offset, i64 per axis
 *       u32 count of inputs, then of outputs: name, u32 tensor, u64 bytes
 *       u32 count of constants: u8 kind, u8 sources, u32 tensor, i64 axis; per source: u8 has path, path, u64 offset,
 *           u8 type, u8 rank, i64 per axis, u64 bytes
 *       u32 count of instructions: u16 number, u32 line, then the fields of its row: t i64, i i64, f f64, lists u32 + items
 *       u64 bytes of inline data, zeros up to a multiple of 64 from the start of the file, data
 *
 * All little-endian. There is one encoding of a program: decoding and encoding again gives the same bytes. */
#include <stdlib.h>

#include "engine/engine_int.h"
#include "engine/program_int.h"

program *program_new(const char *title, const char *target, const numerics *num)
{
    program *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->num = *num;
    p->title = arena_str(&p->mem, title);
    p->target = arena_str(&p->mem, target);
    if (p->title && p->target) return p;
    program_free(p);
    return NULL;
}

void program_free(program *p)
{
    if (!p) return;
    arena_free(&p->mem);
    free(p);
}

const numeric_row numeric_rows[] = {
#define NUM(field, cpu, what) { #field, offsetof(numerics, field) },
#include "engine/numerics.def"
#undef NUM
};
const int n_numeric_rows = (int)COUNT(numeric_rows);

const char *numerics_differ(const numerics *a, const numerics *b, double *of_a, double *of_b)
{
    for (int i = 0; i < n_numeric_rows; i++) {
        *of_a = *numeric_at(a, i), *of_b = *numeric_at(b, i);
        if (memcmp(of_a, of_b, sizeof *of_a)) return numeric_rows[i].name; /* by bits: no number equals none either */
    }
    return NULL;
}

/* ---- writing ---- */

static void put(strbuf *b, uint64_t v, int bytes)
{
    char tmp[8];
    for (int i = 0; i < bytes; i++, v >>= 8) tmp[i] = (char)(unsigned char)v;
    sb_putn(b, tmp, (size_t)bytes);
}

static void put_i64(strbuf *b, int64_t v) { put(b, (uint64_t)v, 8); }

static void put_f64(strbuf *b, double x)
{
    uint64_t v;
    memcpy(&v, &x, 8);
    put(b, v, 8);
}

static void put_str(strbuf *b, const char *s)
{
    size_t n = strlen(s);
    put(b, n, 4);
    sb_putn(b, s, n);
}

static void put_dims(strbuf *b, const int64_t *d, int rank)
{
    for (int i = 0; i < rank; i++) put_i64(b, d[i]);
}

static void put_ports(strbuf *b, const eport *at, size_t n)
{
    put(b, n, 4);
    for (size_t i = 0; i < n; i++) {
        put_str(b, at[i].name);
        put(b, at[i].tensor, 4);
        put(b, at[i].bytes, 8);
    }
}

static void put_const(strbuf *b, const const_entry *c)
{
    put(b, c->kind, 1), put(b, (uint64_t)c->n_src, 1), put(b, c->tensor, 4);
    put_i64(b, c->axis);
    for (int i = 0; i < c->n_src; i++) {
        const const_source *s = &c->src[i];
        put(b, s->path != NULL, 1);
        if (s->path) put_str(b, s->path);
        put(b, s->offset, 8);
        put(b, s->dt, 1), put(b, (uint64_t)s->rank, 1);
        put_dims(b, s->dim, s->rank);
        put(b, s->bytes, 8);
    }
}

static void put_insn(strbuf *b, const insn *in)
{
    insn_field field[ISA_MAX_FIELDS];
    const int64_t *t = in->t, *i = in->i;
    const double *f = in->f;
    put(b, in->op, 2), put(b, in->line, 4);
    for (int k = 0, n = isa_fields(in->op, field); k < n; k++) {
        int64_t len = 1;
        switch (field[k].kind) {
        case FIELD_T_LIST: put(b, (uint64_t)(len = *t++), 4); /* fall through */
        case FIELD_T:
        case FIELD_T_OPT:
            while (len-- > 0) put_i64(b, *t++);
            break;
        case FIELD_I_LIST: put(b, (uint64_t)(len = *i++), 4); /* fall through */
        case FIELD_I:
            while (len-- > 0) put_i64(b, *i++);
            break;
        case FIELD_F_LIST: put(b, (uint64_t)(len = (int64_t)*f++), 4); /* fall through */
        case FIELD_F:
            while (len-- > 0) put_f64(b, *f++);
            break;
        }
    }
}

an_status program_encode(const program *p, strbuf *out, diag *d)
{
    TRY(program_check(p, d));
    size_t start = out->n;
    static const char zeros[64] = { 0 };
    sb_putn(out, PROGRAM_MAGIC, 8);
    put(out, PROGRAM_VERSION, 4), put(out, p->final, 4), put(out, 0, 8), put(out, 0, 8);
    put_str(out, p->title), put_str(out, p->target);
    put(out, p->key, 8), put(out, p->scratch_bytes, 8);
    if (p->final) put(out, p->weights, 8);
    put(out, (uint64_t)n_numeric_rows, 4);
    for (int i = 0; i < n_numeric_rows; i++) {
        put_str(out, numeric_rows[i].name);
        put_f64(out, *numeric_at(&p->num, i));
    }
    put(out, p->tensors.n, 4);
    for (size_t i = 0; i < p->tensors.n; i++) {
        const etensor *t = &p->tensors.at[i];
        put(out, t->dt, 1), put(out, t->where, 1), put(out, (uint64_t)t->rank, 1), put(out, t->slot, 4),
            put(out, t->offset, 8);
        put_dims(out, t->dim, t->rank);
    }
    put_ports(out, p->inputs.at, p->inputs.n);
    put_ports(out, p->outputs.at, p->outputs.n);
    put(out, p->consts.n, 4);
    for (size_t i = 0; i < p->consts.n; i++) put_const(out, &p->consts.at[i]);
    put(out, p->insns.n, 4);
    for (size_t i = 0; i < p->insns.n; i++) put_insn(out, &p->insns.at[i]);
    put(out, p->n_data, 8);
    sb_putn(out, zeros, (64 - (out->n - start) % 64) % 64);
    sb_putn(out, (const char *)p->data, (size_t)p->n_data);
    if (out->oom) return diag_nomem(d);
    size_t body = out->n - start - PROGRAM_HEADER;
    strbuf fix = { 0 };
    put(&fix, body, 8);
    put(&fix, hash_many(out->at + start + PROGRAM_HEADER, body, PROGRAM_SEED), 8);
    if (!fix.oom) memcpy(out->at + start + 16, fix.at, 16);
    bool oom = fix.oom;
    sb_free(&fix);
    return oom ? diag_nomem(d) : AN_OK;
}
