/* text.c: a graph as text, one statement a line, such that reading it back gives the same graph.
 *
 *   graph "title"
 *   x = input fp16[1, 8, 1, 4]
 *   c = const fp16[2] {1, 2}
 *   w = const fp16[64, 64] all 0.5          every element the same
 *   m = const fp16[1, 64] hex 003c003e...   packed bytes, lowest address first
 *   b = const fp16[8] blob "@model_path/weights/weight.bin" 64
 *   u = const fp16[8] unknown               bytes bound elsewhere
 *   s = const string "same"
 *   y = reduce_sum(x) {axes=[1], keep_dims=true}
 *   p, q = split(y) {num_splits=2, axis=3}
 *   z = conv(x, w, _)                       an optional operand left out
 *   o = opaque "some_op"(p) -> fp16[2], int32[]
 *   inputs b, a                             only when their order is not that of the statements
 *   return y, sum=z                         name=value where the output's name differs
 *
 * Names and strings are quoted where needed; `#` starts a comment. Places in a source text are not part of it. */
#include <math.h>
#include <stdlib.h>

#include "base/plain.h"
#include "graph/text_int.h"

/* ---- words ---- */

/* A name that needs no quotes. */
static bool text_bare(const char *s)
{
    static const char *const reserved[] = { "graph", "return", "inputs", "_" };
    for (size_t i = 0; i < COUNT(reserved); i++)
        if (!strcmp(s, reserved[i])) return false;
    if (!*s || (*s >= '0' && *s <= '9') || *s == '.') return false;
    for (; *s; s++) {
        bool word =
            (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || (*s >= '0' && *s <= '9') || *s == '_' || *s == '.';
        if (!word) return false;
    }
    return true;
}

static void text_quoted(strbuf *b, const char *s)
{
    sb_putc(b, '"');
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\') sb_printf(b, "\\%c", c);
        else if (c == '\n') sb_puts(b, "\\n");
        else if (c == '\t') sb_puts(b, "\\t");
        else if (c < 0x20 || c == 0x7f) sb_printf(b, "\\x%02x", c);
        else sb_putc(b, *s);
    }
    sb_putc(b, '"');
}

static void text_name(strbuf *b, const char *s)
{
    if (text_bare(s)) sb_puts(b, s);
    else text_quoted(b, s);
}

void text_number(strbuf *b, dtype dt, double x)
{
    char t[40];
    if (isinf(x)) {
        sb_puts(b, x < 0 ? "-inf" : "inf");
        return;
    }
    if (isnan(x)) {
        sb_puts(b, "nan");
        return;
    }
    if (dtype_class(dt) != KIND_FLOAT) {
        sb_printf(b, "%.0f", x);
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        plain_printf(t, sizeof t, "%.*g", digits, x);
        if (dtype_round(dt, plain_real(t, NULL)) == x) break;
    }
    sb_puts(b, t);
}

/* ---- constants ---- */

/* Do these bytes come back when every element is read as a number and stored again? Not so for NaN payloads,
 * integers past 2^53, and unused bits of a last byte that are set. */
static bool numbers_keep(const ttype *t, const unsigned char *p, int64_t n, size_t bytes)
{
    unsigned char again[TEXT_FEW * 8] = { 0 };
    if (n > TEXT_FEW || bytes > sizeof again) return false;
    for (int64_t i = 0; i < n; i++) {
        double x = dtype_load(t->dt, p, i);
        if (isnan(x)) return false;
        dtype_store(t->dt, again, i, x);
    }
    return !memcmp(again, p, bytes);
}

static bool all_equal(const ttype *t, const unsigned char *p, int64_t n, size_t bytes)
{
    size_t one = (size_t)dtype_bits(t->dt) / 8;
    return dtype_bits(t->dt) % 8 == 0 && n > TEXT_FEW && numbers_keep(t, p, 1, one) && !memcmp(p, p + one, bytes - one);
}

static void put_const(strbuf *b, const ttype *t, const const_data *c)
{
    const unsigned char *p = c->data;
    int64_t n;
    size_t bytes;
    if (t->dt == DT_STRING) {
        sb_puts(b, "string ");
        text_quoted(b, c->str ? c->str : "");
        return;
    }
    sb_ttype(b, t);
    if (c->blob_path) {
        sb_puts(b, " blob ");
        text_quoted(b, c->blob_path);
        sb_printf(b, " %llu", (unsigned long long)c->blob_offset);
        return;
    }
    if (!p || !shape_elems(&t->sh, &n) || !shape_bytes(t, &bytes)) {
        sb_puts(b, " unknown");
        return;
    }
    if (numbers_keep(t, p, n, bytes)) {
        sb_puts(b, " {");
        for (int64_t i = 0; i < n; i++) {
            if (i) sb_puts(b, ", ");
            text_number(b, t->dt, dtype_load(t->dt, p, i));
        }
        sb_putc(b, '}');
        return;
    }
    if (all_equal(t, p, n, bytes)) {
        sb_puts(b, " all ");
        text_number(b, t->dt, dtype_load(t->dt, p, 0));
        return;
    }
    static const char digit[] = "0123456789abcdef";
    sb_puts(b, " hex ");
    for (size_t i = 0; i < bytes; i++) {
        char two[2] = { digit[p[i] >> 4], digit[p[i] & 15] };
        sb_putn(b, two, 2);
    }
}

/* ---- statements ---- */

static void put_attr(strbuf *b, const attr *a)
{
    sb_printf(b, "%s=", attr_name(a->id));
    switch (a->kind) {
    case ATTR_INT: sb_printf(b, "%lld", (long long)a->u.i); break;
    case ATTR_BOOL: sb_puts(b, a->u.i ? "true" : "false"); break;
    case ATTR_STR: text_quoted(b, a->u.s); break;
    case ATTR_FLOAT: { /* always with a mark that tells it from an integer */
        size_t from = b->n;
        text_number(b, DT_F64, a->u.f);
        if (!b->oom && !strpbrk(b->at + from, ".einf")) sb_puts(b, ".0");
        break;
    }
    default:
        sb_putc(b, '[');
        for (int i = 0; i < a->n; i++) {
            if (i) sb_puts(b, ", ");
            if (a->kind == ATTR_BOOLS) sb_puts(b, a->u.is[i] ? "true" : "false");
            else sb_printf(b, "%lld", (long long)a->u.is[i]);
        }
        sb_putc(b, ']');
    }
}

static void put_operands(strbuf *b, const graph *g, const node *n)
{
    /* left-out operands at the end need no mark, but for an op whose operands the table does not know */
    int last = n->n_in;
    while (n->op != OP_OPAQUE && last > 0 && !n->in[last - 1].i) last--;
    sb_putc(b, '(');
    for (int k = 0; k < last; k++) {
        if (k) sb_puts(b, ", ");
        if (n->in[k].i) text_name(b, graph_value(g, n->in[k])->name);
        else sb_putc(b, '_');
    }
    sb_putc(b, ')');
}

static void put_node(strbuf *b, const graph *g, const node *n)
{
    for (int k = 0; k < n->n_out; k++) {
        if (k) sb_puts(b, ", ");
        text_name(b, g->values.at[n->out.i + (uint32_t)k].name);
    }
    sb_puts(b, " = ");
    const ttype *t = &g->values.at[n->out.i].type;
    if (n->op == OP_INPUT) {
        sb_puts(b, "input ");
        sb_ttype(b, t);
    } else if (n->op == OP_CONST) {
        sb_puts(b, "const ");
        put_const(b, t, n->cst);
    } else {
        sb_puts(b, op_get(n->op)->mil);
        if (n->op == OP_OPAQUE) {
            sb_putc(b, ' ');
            text_quoted(b, n->mil);
        }
        put_operands(b, g, n);
    }
    for (int i = 0; i < n->n_attr; i++) {
        sb_puts(b, i ? ", " : " {");
        put_attr(b, &n->attrs[i]);
        if (i == n->n_attr - 1) sb_putc(b, '}');
    }
    for (int k = 0; n->op == OP_OPAQUE && k < n->n_out; k++) {
        sb_puts(b, k ? ", " : " -> ");
        sb_ttype(b, &g->values.at[n->out.i + (uint32_t)k].type);
    }
    for (size_t i = 0; i < COUNT(text_flags); i++)
        if (n->flags & text_flags[i].bit) sb_printf(b, " !%s", text_flags[i].word);
    sb_putc(b, '\n');
}

static bool inputs_in_order(const graph *g)
{
    for (size_t i = 1; i < g->inputs.n; i++)
        if (g->inputs.at[i].i < g->inputs.at[i - 1].i) return false;
    return true;
}

void graph_print(const graph *g, strbuf *b)
{
    sb_puts(b, "graph ");
    text_quoted(b, g->title);
    sb_putc(b, '\n');
    for (size_t i = 1; i < g->nodes.n; i++) put_node(b, g, &g->nodes.at[i]);
    if (!inputs_in_order(g)) {
        for (size_t i = 0; i < g->inputs.n; i++) {
            sb_puts(b, i ? ", " : "inputs ");
            text_name(b, graph_value(g, g->inputs.at[i])->name);
        }
        sb_putc(b, '\n');
    }
    for (size_t i = 0; i < g->outputs.n; i++) {
        const port *p = &g->outputs.at[i];
        const char *name = graph_value(g, p->v)->name;
        sb_puts(b, i ? ", " : "return ");
        if (strcmp(p->name, name)) {
            text_name(b, p->name);
            sb_putc(b, '=');
        }
        text_name(b, name);
    }
    if (g->outputs.n) sb_putc(b, '\n');
}
