/* print.c: the operation table as text, JSON lines or a document. Every word comes from ops.def. */
#include "op/op.h"

static const char *const kind_words[] = {
    [ATTR_NONE] = "",       [ATTR_INT] = "int",     [ATTR_INTS] = "ints", [ATTR_BOOL] = "bool",
    [ATTR_BOOLS] = "bools", [ATTR_FLOAT] = "float", [ATTR_STR] = "string"
};

static void put_default(strbuf *b, const attr_spec *s)
{
    switch (s->kind) {
    case ATTR_FLOAT: sb_printf(b, "%g", s->def.u.f); break;
    case ATTR_STR: sb_puts(b, s->def.u.s); break;
    case ATTR_BOOL: sb_puts(b, s->def.u.i ? "true" : "false"); break;
    case ATTR_BOOLS: sb_puts(b, s->def.u.is[0] ? "true" : "false"); break;
    case ATTR_INTS: sb_printf(b, "%lld", (long long)s->def.u.is[0]); break;
    default: sb_printf(b, "%lld", (long long)s->def.u.i); break;
    }
}

static void put_operands(strbuf *b, const op_info *o, const char *between)
{
    for (int i = 0; i < o->n_in; i++)
        sb_printf(b, "%s%s%s", i ? between : "", o->in[i].name, o->in[i].list ? "…" : o->in[i].optional ? "?" : "");
}

/* "axes: ints, keep_dims: bool = false"; an attribute that may be absent ends in "?". */
static void put_attrs(strbuf *b, const op_info *o)
{
    for (int i = 0; i < o->n_attr; i++) {
        const attr_spec *s = &o->attr[i];
        sb_printf(b, "%s%s%s: %s", i ? ", " : "", attr_name(s->id), s->absent_ok ? "?" : "", kind_words[s->kind]);
        if (s->required || s->absent_ok) continue;
        sb_puts(b, " = ");
        put_default(b, s);
    }
}

static void put_json(strbuf *b, const op_info *o)
{
    sb_printf(b, "{\"op\":\"%s\",\"operands\":[", o->mil);
    for (int i = 0; i < o->n_in; i++)
        sb_printf(b, "%s{\"name\":\"%s\",\"optional\":%s,\"list\":%s}", i ? "," : "", o->in[i].name,
                  o->in[i].optional ? "true" : "false", o->in[i].list ? "true" : "false");
    sb_puts(b, "],\"attributes\":[");
    for (int i = 0; i < o->n_attr; i++) {
        const attr_spec *s = &o->attr[i];
        sb_printf(b, "%s{\"name\":\"%s\",\"type\":\"%s\",\"required\":%s", i ? "," : "", attr_name(s->id),
                  kind_words[s->kind], s->required ? "true" : "false");
        if (!s->required && !s->absent_ok) {
            bool quote = s->kind == ATTR_STR;
            sb_puts(b, quote ? ",\"default\":\"" : ",\"default\":");
            put_default(b, s);
            if (quote) sb_putc(b, '"');
        }
        sb_putc(b, '}');
    }
    sb_printf(
        b,
        "],\"results\":%d,\"shape\":\"%s\",\"dtype\":\"%s\",\"gradient\":\"%s\",\"cost\":\"%s\",\"kernel\":\"%s\"}\n",
        o->n_out, o->shape_rule, o->dtype_rule, o->vjp_rule, o->cost_rule, o->kernel);
}

void op_print_table(strbuf *b, const char *format)
{
    bool json = !strcmp(format, "json"), markdown = !strcmp(format, "markdown");
    if (markdown)
        sb_puts(b, "# Operations\n\nPrinted by `anneal ops --markdown` from `src/op/ops.def`. `?` marks what may be left out, `…` a list;\n"
                   "a default for a list stands for every element. Gradient `none`: differentiating through it is an error that says so.\n\n"
                   "| operation | operands | attributes | results | shape | type | gradient | cost | kernel |\n"
                   "|---|---|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < OP_COUNT; i++) {
        const op_info *o = op_get((op_id)i);
        if (i == OP_INPUT || i == OP_OPAQUE) continue; /* not operations of the language */
        if (json) {
            put_json(b, o);
            continue;
        }
        if (markdown) sb_printf(b, "| `%s` | ", o->mil);
        else sb_printf(b, "%s(", o->mil);
        put_operands(b, o, ", ");
        sb_puts(b, markdown ? " | " : o->n_attr ? "; " : "");
        put_attrs(b, o);
        if (!markdown) {
            sb_printf(b, ")\n    shape %s, type %s, gradient %s, cost %s, kernel %s\n", o->shape_rule, o->dtype_rule,
                      o->vjp_rule, o->cost_rule, o->kernel);
            continue;
        }
        if (o->n_out) sb_printf(b, " | %d", o->n_out);
        else sb_puts(b, " | by attribute");
        sb_printf(b, " | %s | %s | %s | %s | %s |\n", o->shape_rule, o->dtype_rule, o->vjp_rule, o->cost_rule,
                  o->kernel);
    }
}
