/* print.c: a program as text, and the instruction table as text, JSON or markdown.
 * In: a checked program, or nothing but the tables.  Out: a strbuf. */
#include <inttypes.h>

#include "engine/engine_int.h"
#include "engine/program_int.h"

type_text type_show(dtype dt, const int64_t *d, int rank)
{
    type_text s;
    size_t n = (size_t)snprintf(s.text, sizeof s.text, "%s[", dtype_name(dt));
    for (int i = 0; i < rank; i++)
        n += (size_t)snprintf(s.text + n, sizeof s.text - n, "%s%" PRId64, i ? "," : "", d[i]);
    snprintf(s.text + n, sizeof s.text - n, "]");
    return s;
}

static void put_shape(strbuf *b, dtype dt, const int64_t *d, int rank) { sb_puts(b, type_show(dt, d, rank).text); }

static const char *const const_kinds[CK_COUNT] = { "dense", "affine",       "lut",    "sparse",
                                                   "block", "sparse_block", "causal", "fixed" };
const char *const_kind_name(const_kind k) { return const_kinds[k]; }

/* Names in a file may hold anything: what is not printable is escaped. */
static void put_name(strbuf *b, const char *s) { sb_json(b, s, strlen(s)); }

static void put_tensor(strbuf *b, const program *p, size_t i)
{
    static const char *const spaces[] = { "scratch", "input", "output", "const" };
    const etensor *t = &p->tensors.at[i];
    sb_printf(b, "  t%zu ", i);
    put_shape(b, t->dt, t->dim, t->rank);
    sb_printf(b, " %s", spaces[t->where]);
    if (t->where != SPACE_SCRATCH) sb_printf(b, " %u", t->slot);
    if (t->where == SPACE_SCRATCH || t->offset) sb_printf(b, " +%" PRIu64, t->offset);
    sb_putc(b, '\n');
}

static void put_numbers(strbuf *b, const const_source *s, const unsigned char *at)
{
    enum { SHOWN = 8 };
    const int64_t n = dims_product(s->dim, 0, s->rank);
    sb_puts(b, " = {");
    for (int64_t i = 0; i < MIN(n, SHOWN); i++) sb_printf(b, "%s%.9g", i ? ", " : "", dtype_load(s->dt, at, i));
    sb_puts(b, n > SHOWN ? ", ...}" : "}");
}

static void put_const(strbuf *b, const program *p, size_t k)
{
    const const_entry *c = &p->consts.at[k];
    sb_printf(b, "  c%zu t%u %s", k, c->tensor, const_kind_name(c->kind));
    if (c->kind == CK_AFFINE || c->kind == CK_LUT) sb_printf(b, " axis %" PRId64, c->axis);
    for (int i = 0; i < c->n_src; i++) {
        const const_source *s = &c->src[i];
        sb_puts(b, i ? ", " : " ");
        put_shape(b, s->dt, s->dim, s->rank);
        sb_puts(b, " at ");
        if (s->path) put_name(b, s->path);
        else sb_puts(b, "inline");
        sb_printf(b, " +%" PRIu64, s->offset);
    }
    if (c->kind == CK_FIXED) put_numbers(b, &c->src[1], p->data + c->src[1].offset);
    sb_putc(b, '\n');
}

static void put_value(strbuf *b, const chain *ch, int64_t v)
{
    if (v < ch->n_inputs) sb_printf(b, "in%" PRId64, v);
    else sb_printf(b, "s%" PRId64, v - ch->n_inputs);
}

static void put_chain(strbuf *b, const insn *in, int64_t n_inputs)
{
    chain ch = insn_chain(in, n_inputs);
    sb_puts(b, " steps=[");
    for (int64_t k = 0; k < ch.n_steps; k++) {
        const int64_t *s = ch.step + k * CHAIN_STEP;
        fn_id f = (fn_id)s[STEP_FN];
        sb_printf(b, "%s%s(", k ? "; " : "", fn_name(f));
        for (int j = 0; j < fn_operands(f); j++) {
            if (j) sb_puts(b, ", ");
            put_value(b, &ch, s[STEP_A + j]);
        }
        for (int j = 0; j < fn_params(f); j++) sb_printf(b, ", %.9g", ch.param[s[STEP_PARAM] + j]);
        sb_printf(b, "):%s", dtype_name((dtype)s[STEP_TYPE]));
    }
    sb_putc(b, ']');
}

static void put_insn(strbuf *b, const program *p, size_t index)
{
    const insn *in = &p->insns.at[index];
    insn_field field[ISA_MAX_FIELDS];
    int64_t n_inputs = 1;
    sb_printf(b, "  %4zu %s", index, insn_name(in->op));
    for (int k = 0, n = isa_fields(in->op, field); k < n; k++) {
        const char *name = field[k].name;
        int64_t len, t;
        const int64_t *list;
        const double *reals;
        switch (field[k].kind) {
        case FIELD_T:
        case FIELD_T_OPT:
            if ((t = insn_t(in, name)) >= 0) sb_printf(b, " %s=t%" PRId64, name, t);
            break;
        case FIELD_T_LIST:
            list = insn_ts(in, name, &len);
            /* a multiply-accumulate pass brings its sum as input 0 */
            n_inputs = len + (in->op != IN_EW && in->op != IN_EWS);
            sb_printf(b, " %s=[", name);
            for (int64_t j = 0; j < len; j++) sb_printf(b, "%st%" PRId64, j ? "," : "", list[j]);
            sb_putc(b, ']');
            break;
        case FIELD_I: sb_printf(b, " %s=%" PRId64, name, insn_i(in, name)); break;
        case FIELD_I_LIST:
            if (!strcmp(name, "steps")) {
                put_chain(b, in, n_inputs);
                break;
            }
            list = insn_is(in, name, &len);
            sb_printf(b, " %s=[", name);
            for (int64_t j = 0; j < len; j++) sb_printf(b, "%s%" PRId64, j ? "," : "", list[j]);
            sb_putc(b, ']');
            break;
        case FIELD_F: sb_printf(b, " %s=%.9g", name, insn_f(in, name)); break;
        case FIELD_F_LIST:
            if (!strcmp(name, "params")) break; /* shown with the steps */
            reals = insn_fs(in, name, &len);
            sb_printf(b, " %s=[", name);
            for (int64_t j = 0; j < len; j++) sb_printf(b, "%s%.9g", j ? "," : "", reals[j]);
            sb_putc(b, ']');
            break;
        }
    }
    if (in->line) sb_printf(b, "  # line %u", in->line);
    sb_putc(b, '\n');
}

void program_print(const program *p, strbuf *b)
{
    sb_puts(b, "program ");
    put_name(b, p->title);
    sb_puts(b, " for ");
    put_name(b, p->target);
    sb_printf(b, "\nkey %016" PRIx64 ", scratch %" PRIu64 " bytes, inline data %" PRIu64 " bytes\n%snumerics", p->key,
              p->scratch_bytes, p->n_data, p->final ? "final: for the weights it was made with\n" : "");
    bool any = false;
    for (int i = 0; i < n_numeric_rows; i++)
        if (*numeric_at(&p->num, i) != 0)
            sb_printf(b, " %s=%g", numeric_rows[i].name, *numeric_at(&p->num, i)), any = true;
    sb_puts(b, any ? "\ninputs\n" : " of the plain processor\ninputs\n");
    for (size_t i = 0; i < p->inputs.n; i++) {
        sb_puts(b, "  ");
        put_name(b, p->inputs.at[i].name);
        sb_printf(b, " t%u %" PRIu64 " bytes\n", p->inputs.at[i].tensor, p->inputs.at[i].bytes);
    }
    sb_puts(b, "outputs\n");
    for (size_t i = 0; i < p->outputs.n; i++) {
        sb_puts(b, "  ");
        put_name(b, p->outputs.at[i].name);
        sb_printf(b, " t%u %" PRIu64 " bytes\n", p->outputs.at[i].tensor, p->outputs.at[i].bytes);
    }
    sb_puts(b, "constants\n");
    for (size_t k = 0; k < p->consts.n; k++) put_const(b, p, k);
    sb_puts(b, "tensors\n");
    for (size_t i = 0; i < p->tensors.n; i++) put_tensor(b, p, i);
    sb_puts(b, "instructions\n");
    for (size_t i = 0; i < p->insns.n; i++) put_insn(b, p, i);
}

/* ---- the tables ---- */

static const char *kind_text(field_kind k)
{
    static const char *const text[] = { "tensor", "tensor or none", "tensors", "integer", "integers", "real", "reals" };
    return text[k];
}

static const char *const numeric_what[] = {
#define NUM(field, cpu, what) what,
#include "engine/numerics.def"
#undef NUM
};

static void print_json(strbuf *b)
{
    sb_printf(b, "{\"version\":%d,\"instructions\":[", PROGRAM_VERSION);
    for (int op = 0; op < IN_COUNT; op++) {
        insn_field field[ISA_MAX_FIELDS];
        sb_printf(b, "%s{\"number\":%d,\"name\":\"%s\",\"fields\":[", op ? "," : "", op, insn_name((insn_id)op));
        for (int k = 0, n = isa_fields((insn_id)op, field); k < n; k++)
            sb_printf(b, "%s{\"name\":\"%s\",\"type\":\"%s\"}", k ? "," : "", field[k].name, kind_text(field[k].kind));
        sb_puts(b, "],\"what\":");
        put_name(b, insn_what((insn_id)op));
        sb_putc(b, '}');
    }
    sb_puts(b, "],\"functions\":[");
    for (int f = 0; f < FN_COUNT; f++)
        sb_printf(b, "%s{\"number\":%d,\"name\":\"%s\",\"operands\":%d,\"parameters\":%d,\"table\":\"%s\"}",
                  f ? "," : "", f, fn_name((fn_id)f), fn_operands((fn_id)f), fn_params((fn_id)f),
                  table_name(fn_table((fn_id)f)));
    sb_puts(b, "],\"numerics\":[");
    for (int i = 0; i < n_numeric_rows; i++) {
        sb_printf(b, "%s{\"name\":\"%s\",\"what\":", i ? "," : "", numeric_rows[i].name);
        put_name(b, numeric_what[i]);
        sb_putc(b, '}');
    }
    sb_puts(b, "]}\n");
}

static void put_fields(strbuf *b, insn_id op, const char *mark)
{
    static const char *const short_kind[] = { "t", "t?", "t*", "i", "i*", "f", "f*" };
    insn_field field[ISA_MAX_FIELDS];
    for (int k = 0, n = isa_fields(op, field); k < n; k++)
        sb_printf(b, "%s%s%s:%s%s", k ? " " : "", mark, field[k].name, short_kind[field[k].kind], mark);
}

static void put_cell(strbuf *b, const char *s) /* of a markdown table: a bar would end it */
{
    for (; *s; s++) {
        if (*s == '|') sb_putc(b, '\\');
        sb_putc(b, *s);
    }
}

static void print_markdown(strbuf *b)
{
    sb_puts(b, "| number | instruction | fields | meaning |\n| ---: | --- | --- | --- |\n");
    for (int op = 0; op < IN_COUNT; op++) {
        sb_printf(b, "| %d | `%s` | ", op, insn_name((insn_id)op));
        put_fields(b, (insn_id)op, "`");
        sb_puts(b, " | ");
        put_cell(b, insn_what((insn_id)op));
        sb_puts(b, " |\n");
    }
    sb_puts(b, "\n| number | function | operands | parameters | table |\n| ---: | --- | ---: | ---: | --- |\n");
    for (int f = 0; f < FN_COUNT; f++)
        sb_printf(b, "| %d | `%s` | %d | %d | %s |\n", f, fn_name((fn_id)f), fn_operands((fn_id)f), fn_params((fn_id)f),
                  table_name(fn_table((fn_id)f)));
    sb_puts(b, "\n| switch | meaning |\n| --- | --- |\n");
    for (int i = 0; i < n_numeric_rows; i++) {
        sb_printf(b, "| `%s` | ", numeric_rows[i].name);
        put_cell(b, numeric_what[i]);
        sb_puts(b, " |\n");
    }
}

void isa_print(strbuf *b, const char *format)
{
    if (!strcmp(format, "json")) {
        print_json(b);
        return;
    }
    if (!strcmp(format, "markdown")) {
        print_markdown(b);
        return;
    }
    for (int op = 0; op < IN_COUNT; op++) {
        sb_printf(b, "%-15s ", insn_name((insn_id)op));
        put_fields(b, (insn_id)op, "");
        sb_printf(b, "\n%16s%s\n", "", insn_what((insn_id)op));
    }
}
