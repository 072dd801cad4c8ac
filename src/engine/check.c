/* check.c: what must hold of a program before anything looks into its tensors: sizes, places, ports, constants, and the
 * encoding of every instruction. Operands and shapes of instructions are check_insn.c's.
 * In: a program from memory or from bytes.  Out: AN_OK, or the first thing wrong, named. */
#include <inttypes.h>
#include <math.h>

#include "base/plain.h"
#include "engine/engine_int.h"
#include "engine/program_int.h"

static an_status bad(diag *d, const char *fmt, ...) PRINTF_LIKE(2, 3);
static an_status bad(diag *d, const char *fmt, ...)
{
    char msg[300];
    va_list ap;
    va_start(ap, fmt);
    plain_vprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    return diag_fail(d, AN_INPUT, NOWHERE, "program: %s", msg);
}

static an_status check_numerics(const numerics *n, diag *d)
{
    for (int i = 0; i < n_numeric_rows; i++) {
        double v = *numeric_at(n, i);
        if (!(v >= 0 && v <= 65536))
            return bad(d, "numerics switch %s is %g, wanted 0 .. 65536", numeric_rows[i].name, v);
    }
    if (n->window_bits != 0 && (n->window_bits < 4 || n->window_bits > 24 || n->window_bits != floor(n->window_bits)))
        return bad(d, "numerics switch window_bits is %g, wanted 0 or a whole number from 4 to 24", n->window_bits);
    return AN_OK;
}

/* ---- tensors and ports ---- */

static bool storable(dtype t) { return t > DT_NONE && t < DT_COUNT && t != DT_STRING; }

static const char TOO_MUCH[] = "more than the 1 TiB (1099511627776 bytes) that can be had";

/* A tensor as its reader knows it: a port by name, anything else by number. */
static const char *tensor_name(const program *p, size_t i, char *out, size_t room)
{
    const eport *at[2] = { p->inputs.at, p->outputs.at };
    const size_t n[2] = { p->inputs.n, p->outputs.n };
    snprintf(out, room, "tensor %zu", i);
    for (int side = 0; side < 2; side++)
        for (size_t k = 0; k < n[side]; k++)
            if (at[side][k].tensor == i && at[side][k].name)
                snprintf(out, room, "%s \"%.60s\"", side ? "output" : "input", at[side][k].name);
    return out;
}

static an_status too_large(const program *p, size_t i, diag *d)
{
    char name[80];
    uint64_t bytes;
    tensor_name(p, i, name, sizeof name);
    if (!et_bytes(&p->tensors.at[i], &bytes))
        return bad(d, "%s takes more bytes than 64 bits count, %s", name, TOO_MUCH);
    return bad(d, "%s takes %" PRIu64 " bytes, %s", name, bytes, TOO_MUCH);
}

static an_status check_shape(const program *p, size_t i, diag *d)
{
    const etensor *t = &p->tensors.at[i];
    if (!storable(t->dt)) return bad(d, "tensor %zu has element type %d, which no tensor has", i, (int)t->dt);
    if (t->rank < 0 || t->rank > ENGINE_MAX_RANK)
        return bad(d, "tensor %zu has rank %d, at most %d is possible", i, t->rank, ENGINE_MAX_RANK);
    for (int k = 0; k < t->rank; k++)
        if (t->dim[k] < 1)
            return bad(d, "tensor %zu has extent %" PRId64 " on axis %d, wanted at least 1", i, t->dim[k], k);
    uint64_t bytes;
    if (!et_bytes(t, &bytes) || bytes > ENGINE_MOST_BYTES) return too_large(p, i, d);
    return AN_OK;
}

static an_status check_place(const program *p, size_t i, diag *d)
{
    const etensor *t = &p->tensors.at[i];
    uint64_t bytes, room = 0;
    if (!et_bytes(t, &bytes)) return too_large(p, i, d);
    int unit = MAX(1, dtype_bits(t->dt) / 8);
    if (t->offset % (uint64_t)unit)
        return bad(d, "tensor %zu begins at byte %" PRIu64 ", not a multiple of its %d-byte elements", i, t->offset,
                   unit);
    const char *where = "";
    switch (t->where) {
    case SPACE_SCRATCH: where = "scratch", room = p->scratch_bytes; break;
    case SPACE_INPUT:
        where = "its input";
        if (t->slot >= p->inputs.n) return bad(d, "tensor %zu is input %u of %zu", i, t->slot, p->inputs.n);
        room = p->inputs.at[t->slot].bytes;
        break;
    case SPACE_OUTPUT:
        where = "its output";
        if (t->slot >= p->outputs.n) return bad(d, "tensor %zu is output %u of %zu", i, t->slot, p->outputs.n);
        room = p->outputs.at[t->slot].bytes;
        break;
    case SPACE_CONST:
        where = "its constant";
        if (t->slot >= p->consts.n) return bad(d, "tensor %zu is constant %u of %zu", i, t->slot, p->consts.n);
        if (p->consts.at[t->slot].tensor >= p->tensors.n ||
            !et_bytes(&p->tensors.at[p->consts.at[t->slot].tensor], &room))
            return bad(d, "constant %u has no tensor", t->slot);
        break;
    default: return bad(d, "tensor %zu lies in space %d, which does not exist", i, (int)t->where);
    }
    if (t->offset > room || bytes > room - t->offset)
        return bad(d, "tensor %zu takes bytes %" PRIu64 " .. %" PRIu64 " of %s, which has %" PRIu64, i, t->offset,
                   t->offset + bytes, where, room);
    return AN_OK;
}

static an_status check_ports(const program *p, const eport *at, size_t n, space where, diag *d)
{
    const char *kind = where == SPACE_INPUT ? "input" : "output";
    for (size_t i = 0; i < n; i++) {
        if (!at[i].name || !at[i].name[0]) return bad(d, "%s %zu has no name", kind, i);
        if (i && strcmp(at[i - 1].name, at[i].name) >= 0)
            return bad(d, "%ss \"%.60s\" and \"%.60s\" are not in order of their names", kind, at[i - 1].name,
                       at[i].name);
        if (at[i].tensor >= p->tensors.n)
            return bad(d, "%s \"%.60s\" is tensor %u of %zu", kind, at[i].name, at[i].tensor, p->tensors.n);
        const etensor *t = &p->tensors.at[at[i].tensor];
        uint64_t bytes;
        if (t->where != where || t->slot != i || t->offset)
            return bad(d, "%s \"%.60s\" and its tensor %u disagree about the port", kind, at[i].name, at[i].tensor);
        if (!et_bytes(t, &bytes) || bytes != at[i].bytes)
            return bad(d, "%s \"%.60s\" has %" PRIu64 " bytes, its tensor has another size", kind, at[i].name,
                       at[i].bytes);
    }
    return AN_OK;
}

/* ---- constants ---- */

static int64_t source_elems(const const_source *s) { return dims_product(s->dim, 0, s->rank); }

static an_status check_source(const program *p, size_t k, int i, diag *d)
{
    const const_source *s = &p->consts.at[k].src[i];
    if (!storable(s->dt))
        return bad(d, "source %d of constant %zu has element type %d, which no tensor has", i, k, (int)s->dt);
    if (s->rank < 0 || s->rank > ENGINE_MAX_RANK)
        return bad(d, "source %d of constant %zu has rank %d, at most %d is possible", i, k, s->rank, ENGINE_MAX_RANK);
    etensor as = { .dt = s->dt, .rank = s->rank };
    uint64_t bytes;
    for (int a = 0; a < s->rank; a++)
        if ((as.dim[a] = s->dim[a]) < 1)
            return bad(d, "source %d of constant %zu has extent %" PRId64 " on axis %d, wanted at least 1", i, k,
                       s->dim[a], a);
    if (!et_bytes(&as, &bytes))
        return bad(d, "source %d of constant %zu takes more bytes than 64 bits count, %s", i, k, TOO_MUCH);
    if (bytes > ENGINE_MOST_BYTES)
        return bad(d, "source %d of constant %zu takes %" PRIu64 " bytes, %s", i, k, bytes, TOO_MUCH);
    if (bytes != s->bytes)
        return bad(d, "source %d of constant %zu has %" PRIu64 " bytes, its shape needs %" PRIu64, i, k, s->bytes,
                   bytes);
    if (s->path) return s->path[0] ? AN_OK : bad(d, "source %d of constant %zu has an empty path", i, k);
    if (s->offset > p->n_data || bytes > p->n_data - s->offset)
        return bad(
            d, "source %d of constant %zu takes bytes %" PRIu64 " .. %" PRIu64 " of %" PRIu64 " bytes of inline data",
            i, k, s->offset, s->offset + bytes, p->n_data);
    return AN_OK;
}

static bool same_dims(const const_source *s, const int64_t *dim, int rank)
{
    return s->rank == rank && !memcmp(s->dim, dim, sizeof *dim * (size_t)rank);
}

/* One value for all, or one per place on the channel axis. */
static bool per_channel(const const_source *s, const etensor *t, int64_t axis)
{
    int64_t n = source_elems(s);
    return n == 1 || (axis >= 0 && axis < t->rank && n == t->dim[axis]);
}

static bool divides(const const_source *part, const int64_t *dim, int rank)
{
    for (int a = 0; a < rank; a++)
        if (dim[a] % part->dim[a]) return false;
    return true;
}

/* A bit per element: of a type of its own, or in bytes. */
static bool mask_fits(const const_source *m, int64_t n)
{
    return m->dt == DT_U1 ? source_elems(m) == n : dtype_bits(m->dt) == 8 && source_elems(m) >= (n + 7) / 8;
}

/* Scale, and offset if there is one: one value per box of the tensor. */
static bool blocks_fit(const const_source *scale, int n, const etensor *t)
{
    return scale->rank == t->rank && divides(scale, t->dim, t->rank) &&
           (n < 2 || same_dims(&scale[1], scale->dim, scale->rank));
}

static bool lut_fits(const const_entry *c, const etensor *t)
{
    const const_source *ix = &c->src[0], *lut = &c->src[1];
    int64_t n = et_elems(t);
    if (lut->rank == ix->rank + 2) { /* a table per block; an entry is a vector along an axis */
        int k = ix->rank;
        int64_t vector = lut->dim[k + 1];
        if (t->rank != k || c->axis < -1 || c->axis >= k || (c->axis < 0 && vector != 1) ||
            !divides(lut, ix->dim, ix->rank))
            return false;
        for (int a = 0; a < k; a++) {
            int64_t want;
            if (!mul_i64(ix->dim[a], a == c->axis ? vector : 1, &want) || want != t->dim[a]) return false;
        }
        return true;
    }
    int64_t entries = source_elems(lut), bits = 0, total;
    while (bits < 16 && (int64_t)1 << bits < entries) bits++;
    return bits && (int64_t)1 << bits == entries && dtype_bits(ix->dt) == 8 && mul_i64(n, bits, &total) &&
           source_elems(ix) >= (total + 7) / 8;
}

static bool square_fits(const etensor *t, int64_t n) /* and one of it */
{
    const int64_t side = t->rank < 2 ? 0 : t->dim[t->rank - 1];
    return side && t->dim[t->rank - 2] == side && n % side == 0 && n / side == side;
}

static an_status check_const(const program *p, size_t k, diag *d)
{
    const const_entry *c = &p->consts.at[k];
    static const int least[CK_COUNT] = { 1, 2, 2, 2, 2, 3, 1, 2 }, most[CK_COUNT] = { 1, 3, 2, 2, 3, 4, 1, 2 };
    if ((unsigned)c->kind >= CK_COUNT)
        return bad(d, "constant %zu is of kind %d, which does not exist", k, (int)c->kind);
    if (c->n_src < least[c->kind] || c->n_src > most[c->kind])
        return bad(d, "constant %zu (%s) has %d sources, wanted %d .. %d", k, const_kind_name(c->kind), c->n_src,
                   least[c->kind], most[c->kind]);
    if (c->tensor >= p->tensors.n) return bad(d, "constant %zu is tensor %u of %zu", k, c->tensor, p->tensors.n);
    const etensor *t = &p->tensors.at[c->tensor];
    if (t->where != SPACE_CONST || t->slot != k || t->offset)
        return bad(d, "constant %zu and its tensor %u disagree about the place", k, c->tensor);
    for (int i = 0; i < c->n_src; i++) TRY(check_source(p, k, i, d));
    int64_t n = et_elems(t);
    const const_source *s = c->src;
    bool ok = false;
    switch (c->kind) {
    case CK_DENSE: ok = source_elems(&s[0]) == n; break;
    case CK_AFFINE:
        ok = source_elems(&s[0]) == n && per_channel(&s[1], t, c->axis) &&
             (c->n_src < 3 || per_channel(&s[2], t, c->axis));
        break;
    case CK_LUT: ok = lut_fits(c, t); break;
    case CK_SPARSE: ok = mask_fits(&s[1], n); break;
    case CK_BLOCK: ok = same_dims(&s[0], t->dim, t->rank) && blocks_fit(&s[1], c->n_src - 1, t); break;
    case CK_SPARSE_BLOCK: ok = mask_fits(&s[1], n) && blocks_fit(&s[2], c->n_src - 2, t); break;
    case CK_CAUSAL:
        ok = source_elems(&s[0]) == n && t->dt == s[0].dt;
        if (ok && !square_fits(t, n))
            return bad(d, "constant %zu (causal) is %s, wanted one square matrix", k,
                       type_show(t->dt, t->dim, t->rank).text);
        break;
    case CK_FIXED:
        ok =
            source_elems(&s[0]) == n && t->dt == s[0].dt && s[1].dt == s[0].dt && same_dims(&s[1], s[0].dim, s[0].rank);
        if (ok && s[1].path)
            return bad(d, "constant %zu: what it was compiled from is in a weight file, which may change", k);
        break;
    default: break;
    }
    if (ok) return AN_OK;
    char seen[240] = "";
    size_t at = 0;
    for (int i = 0; i < c->n_src && at < sizeof seen; i++)
        at += (size_t)snprintf(seen + at, sizeof seen - at, "%s%s", i ? ", " : "",
                               type_show(s[i].dt, s[i].dim, s[i].rank).text);
    return bad(d, "the sources of constant %zu (%s), %s, do not give its tensor, %s", k, const_kind_name(c->kind), seen,
               type_show(t->dt, t->dim, t->rank).text);
}

/* ---- the encoding of instructions ---- */

/* Does a list of `n` items starting behind its length fit what is left? */
static bool take(uint32_t *at, uint32_t have, bool list, int64_t n)
{
    if (*at >= have) return false;
    if (list) {
        ++*at;
        if (n < 0 || n > (int64_t)(have - *at)) return false;
        *at += (uint32_t)n;
    } else ++*at;
    return true;
}

static an_status check_encoding(const program *p, size_t index, diag *d)
{
    const insn *in = &p->insns.at[index];
    if ((unsigned)in->op >= IN_COUNT)
        return bad(d, "instruction %zu is number %d, which does not exist", index, (int)in->op);
    insn_field field[ISA_MAX_FIELDS];
    int n = isa_fields(in->op, field);
    uint32_t t = 0, i = 0, f = 0;
    for (int k = 0; k < n; k++) {
        const char *name = field[k].name;
        field_kind kind = field[k].kind;
        bool ok;
        if (kind <= FIELD_T_LIST) {
            uint32_t from = t;
            bool list = kind == FIELD_T_LIST;
            ok = take(&t, in->n_t, list, list && t < in->n_t ? in->t[t] : 1);
            for (uint32_t j = from + list; ok && j < t; j++) {
                int64_t v = in->t[j];
                if (v == -1 && kind == FIELD_T_OPT) continue;
                if (v < 0 || v >= (int64_t)p->tensors.n)
                    return bad(d, "instruction %zu (%s): %s is tensor %" PRId64 " of %zu", index, insn_name(in->op),
                               name, v, p->tensors.n);
                space where = p->tensors.at[v].where;
                if (k < insn_outputs(in->op) && (where == SPACE_INPUT || where == SPACE_CONST))
                    return bad(d, "instruction %zu (%s) writes tensor %" PRId64 ", which is an input or a constant",
                               index, insn_name(in->op), v);
            }
        } else if (kind <= FIELD_I_LIST) {
            bool list = kind == FIELD_I_LIST;
            ok = take(&i, in->n_i, list, list && i < in->n_i ? in->i[i] : 1);
        } else {
            bool list = kind == FIELD_F_LIST;
            double len = list && f < in->n_f ? in->f[f] : 1;
            ok = len >= 0 && len <= in->n_f && len == floor(len) && take(&f, in->n_f, list, (int64_t)len);
        }
        if (!ok) return bad(d, "instruction %zu (%s) ends inside its field %s", index, insn_name(in->op), name);
    }
    if (t != in->n_t || i != in->n_i || f != in->n_f)
        return bad(d, "instruction %zu (%s) has more values than fields", index, insn_name(in->op));
    return AN_OK;
}

an_status program_fits(const program *p, diag *d)
{
    uint64_t sum = p->scratch_bytes, bytes;
    if (sum > ENGINE_MOST_BYTES) return bad(d, "scratch memory takes %" PRIu64 " bytes, %s", sum, TOO_MUCH);
    for (size_t i = 0; i < p->tensors.n; i++)
        if (!et_bytes(&p->tensors.at[i], &bytes) || bytes > ENGINE_MOST_BYTES) return too_large(p, i, d);
    size_t n_in = p->inputs.n, n_port = n_in + p->outputs.n;
    /* each a tensor of the size just seen, so that the sum stays in range */
    for (size_t i = 0; i < n_port + p->consts.n; i++) {
        uint32_t t = i < n_in     ? p->inputs.at[i].tensor
                     : i < n_port ? p->outputs.at[i - n_in].tensor
                                  : p->consts.at[i - n_port].tensor;
        if (et_bytes(&p->tensors.at[t], &bytes)) sum += bytes;
        if (sum > ENGINE_MOST_BYTES)
            return bad(d, "scratch memory, ports and constants take %" PRIu64 " bytes together, %s", sum, TOO_MUCH);
    }
    return AN_OK;
}

an_status program_check(const program *p, diag *d)
{
    if (!p->title || !p->target) return bad(d, "it has no title or no target");
    if (p->tensors.n > UINT32_MAX || p->consts.n > UINT32_MAX || p->insns.n > UINT32_MAX || p->inputs.n > UINT32_MAX ||
        p->outputs.n > UINT32_MAX)
        return bad(d, "more than 2^32 entries of one kind");
    TRY(check_numerics(&p->num, d));
    for (size_t i = 0; i < p->tensors.n; i++) TRY(check_shape(p, i, d));
    for (size_t i = 0; i < p->tensors.n; i++) TRY(check_place(p, i, d));
    TRY(check_ports(p, p->inputs.at, p->inputs.n, SPACE_INPUT, d));
    TRY(check_ports(p, p->outputs.at, p->outputs.n, SPACE_OUTPUT, d));
    for (size_t k = 0; k < p->consts.n; k++) TRY(check_const(p, k, d));
    TRY(program_fits(p, d));
    for (size_t i = 0; i < p->insns.n; i++) {
        TRY(check_encoding(p, i, d));
        TRY(check_insn(p, i, d));
    }
    return AN_OK;
}
