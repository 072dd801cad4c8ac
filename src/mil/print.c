/* print.c: the one writer of MIL text.
 * In: a module.  Out: text in one fixed style (the shape coremlc prints), so equal modules print equal bytes.
 * Scalars keep the spelling their type carries; inline tensors print as one flat row-major list. */
#include "mil/mil_int.h"

static void indent(strbuf *b, int level)
{
    for (int i = 0; i < level; i++) sb_puts(b, "    ");
}

static void print_string(strbuf *b, const char *s)
{
    sb_putc(b, '"');
    for (; *s; s++) {
        const char *run = s;
        while (*s && (unsigned char)*s >= 0x20 && *s != 0x7f && *s != '"' && *s != '\\') s++;
        sb_putn(b, run, (size_t)(s - run));
        if (!*s) break;
        if (*s == '"' || *s == '\\') sb_printf(b, "\\%c", *s);
        else if (*s == '\n') sb_puts(b, "\\n");
        else if (*s == '\t') sb_puts(b, "\\t");
        else if (*s == '\r') sb_puts(b, "\\r");
        else sb_printf(b, "\\x%02x", (unsigned char)*s);
    }
    sb_putc(b, '"');
}

static void print_dim(strbuf *b, const mil_type *t, int k)
{
    if (t->dim[k] >= 0) sb_printf(b, "%lld", (long long)t->dim[k]);
    else sb_puts(b, t->sym[k] ? t->sym[k] : "?");
}

void print_type(strbuf *b, const mil_type *t)
{
    static const char *const word[] = {
        [MT_DICT] = "dict", [MT_LIST] = "list", [MT_TUPLE] = "tuple", [MT_STATE] = "state"
    };
    switch (t->kind) {
    case MT_TENSOR:
        if (t->bare && !t->rank) {
            sb_puts(b, dtype_name(t->dt));
            return;
        }
        sb_printf(b, "tensor<%s, [", dtype_name(t->dt));
        for (int k = 0; k < t->rank; k++) {
            if (k) sb_puts(b, ", ");
            print_dim(b, t, k);
        }
        sb_puts(b, "]>");
        return;
    case MT_OTHER: sb_puts(b, t->text); return;
    default: break;
    }
    sb_printf(b, "%s<", word[t->kind]);
    for (int k = 0; k < t->n_sub; k++) {
        if (k) sb_puts(b, ", ");
        print_type(b, t->sub[k]);
    }
    if (t->kind == MT_LIST && t->rank) {
        sb_puts(b, ", ");
        print_dim(b, t, 0);
    }
    sb_putc(b, '>');
}

static void print_elem(strbuf *b, const mil_lit *l, int64_t i)
{
    if (l->kind == ML_STRINGS) print_string(b, l->str[i]);
    else num_print(b, l->type->dt, l->data, i);
}

/* The value without its type: what stands between the parentheses of TYPE(...). */
static void print_value(strbuf *b, const mil_lit *l)
{
    switch (l->kind) {
    case ML_DATA:
    case ML_STRINGS:
        if (!l->type->rank) {
            print_elem(b, l, 0);
            return;
        }
        sb_putc(b, '[');
        for (int64_t i = 0; i < l->n; i++) {
            if (i) sb_puts(b, ", ");
            print_elem(b, l, i);
        }
        sb_putc(b, ']');
        return;
    case ML_BLOB:
        sb_puts(b, l->blob_bare ? "BLOBFILE(path = string(" : "BLOBFILE(path = tensor<string, []>(");
        print_string(b, l->blob_path);
        sb_printf(b, "), offset = %s(%llu))", l->blob_bare ? "uint64" : "tensor<uint64, []>", (unsigned long long)l->blob_offset);
        return;
    case ML_DICT:
        sb_putc(b, '{');
        for (int64_t i = 0; i < l->n; i++) {
            sb_puts(b, i ? ", {" : "{");
            print_value(b, l->item[2 * i]);
            sb_puts(b, ", ");
            print_value(b, l->item[2 * i + 1]);
            sb_putc(b, '}');
        }
        sb_putc(b, '}');
        return;
    case ML_LIST:
        sb_putc(b, l->type->kind == MT_TUPLE ? '(' : '[');
        for (int64_t i = 0; i < l->n; i++) {
            if (i) sb_puts(b, ", ");
            print_value(b, l->item[i]);
        }
        sb_putc(b, l->type->kind == MT_TUPLE ? ')' : ']');
        return;
    }
}

static void print_lit(strbuf *b, const mil_lit *l)
{
    print_type(b, l->type);
    sb_putc(b, '(');
    print_value(b, l);
    sb_putc(b, ')');
}

static void print_attrs(strbuf *b, const mil_attr *a, int n)
{
    sb_putc(b, '[');
    for (int i = 0; i < n; i++) {
        sb_printf(b, "%s%s = ", i ? ", " : "", a[i].name);
        print_lit(b, a[i].lit);
    }
    sb_putc(b, ']');
}

static void print_items(strbuf *b, const mil_arg_item *it, int n)
{
    for (int i = 0; i < n; i++) {
        if (i) sb_puts(b, ", ");
        if (it[i].ref) sb_puts(b, it[i].ref);
        else print_lit(b, it[i].lit);
    }
}

static void print_vars(strbuf *b, const mil_var *v, int n)
{
    for (int i = 0; i < n; i++) {
        if (i) sb_puts(b, ", ");
        print_type(b, v[i].type);
        sb_putc(b, ' ');
        sb_puts(b, v[i].name);
    }
}

static void print_body(strbuf *b, const mil_block *blk, int level);

static void print_op(strbuf *b, const mil_op *op, int level)
{
    indent(b, level);
    if (op->n_out) {
        if (op->parens) sb_putc(b, '(');
        print_vars(b, op->out, op->n_out);
        sb_puts(b, op->parens ? ") = " : " = ");
    }
    sb_puts(b, op->op);
    sb_putc(b, '(');
    for (int i = 0; i < op->n_arg; i++) {
        const mil_arg *a = &op->arg[i];
        sb_printf(b, "%s%s = ", i ? ", " : "", a->name);
        if (a->tuple) sb_putc(b, '(');
        print_items(b, a->item, a->n);
        if (a->tuple) sb_putc(b, ')');
    }
    sb_putc(b, ')');
    if (op->n_attr) print_attrs(b, op->attr, op->n_attr);
    for (int i = 0; i < op->n_block; i++) {
        sb_putc(b, '\n');
        indent(b, level + 1);
        if (op->block[i].name) sb_puts(b, op->block[i].name);
        print_body(b, &op->block[i], level + 1);
    }
    sb_puts(b, ";\n");
}

static void print_body(strbuf *b, const mil_block *blk, int level)
{
    sb_putc(b, '(');
    print_vars(b, blk->in, blk->n_in);
    sb_puts(b, ") ");
    if (blk->n_attr) {
        print_attrs(b, blk->attr, blk->n_attr);
        sb_putc(b, ' ');
    }
    sb_puts(b, "{\n");
    for (size_t i = 0; i < blk->n_op; i++) print_op(b, &blk->op[i], level + 1);
    indent(b, level);
    sb_puts(b, "} -> (");
    print_items(b, blk->out, blk->n_out);
    sb_putc(b, ')');
}

void mil_print(const mil_module *m, strbuf *b)
{
    sb_printf(b, "program(%s)\n", m->version);
    if (m->n_attr) {
        print_attrs(b, m->attr, m->n_attr);
        sb_putc(b, '\n');
    }
    sb_puts(b, "{\n");
    for (size_t i = 0; i < m->n_func; i++) {
        const mil_block *f = &m->func[i];
        sb_printf(b, "    func %s", f->name);
        if (f->opset) sb_printf(b, "<%s>", f->opset);
        print_body(b, f, 1);
        sb_puts(b, ";\n");
    }
    sb_puts(b, "}\n");
}
