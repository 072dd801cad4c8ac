/* dot.c: a graph for Graphviz: `dot -Tsvg`. Operations are boxes with their attributes, inputs and outputs are rounded,
 * constants small; every edge carries the type that flows along it. */
#include "graph/text_int.h"

static void put_label(strbuf *b, const char *s) /* inside a quoted label */
{
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\') sb_printf(b, "\\%c", c);
        else sb_putc(b, c < 0x20 || c == 0x7f ? ' ' : *s);
    }
}

static void put_attr(strbuf *b, const attr *a)
{
    sb_printf(b, "\\n%s ", attr_name(a->id));
    switch (a->kind) {
    case ATTR_INT: sb_printf(b, "%lld", (long long)a->u.i); break;
    case ATTR_BOOL: sb_puts(b, a->u.i ? "true" : "false"); break;
    case ATTR_FLOAT: sb_printf(b, "%g", a->u.f); break;
    case ATTR_STR: put_label(b, a->u.s); break;
    default:
        for (int i = 0; i < a->n; i++) sb_printf(b, "%s%lld", i ? " " : "", (long long)a->u.is[i]);
    }
}

static void put_const(strbuf *b, const graph *g, const node *n, uint32_t i)
{
    double x;
    sb_printf(b, "  n%u [shape=plain, fontsize=9, fontcolor=\"#555555\", label=\"", i);
    put_label(b, n->name);
    sb_puts(b, "\\n");
    if (n->cst->str) put_label(b, n->cst->str);
    else if (graph_const_scalar(g, n->out, &x)) {
        text_number(b, graph_type(g, n->out)->dt, x);
        if (graph_type(g, n->out)->sh.rank) sb_puts(b, " everywhere");
    } else if (n->cst->blob_path) {
        put_label(b, n->cst->blob_path);
        sb_printf(b, " at %llu", (unsigned long long)n->cst->blob_offset);
    } else sb_puts(b, n->cst->data ? "data" : "data unknown");
    sb_puts(b, "\"];\n");
}

static void put_node(strbuf *b, const graph *g, uint32_t i)
{
    const node *n = &g->nodes.at[i];
    if (n->op == OP_CONST) {
        put_const(b, g, n, i);
        return;
    }
    sb_printf(b, "  n%u [%slabel=\"", i, n->op == OP_INPUT ? "style=\"rounded,filled\", fillcolor=\"#dfeeff\", " : "");
    put_label(b, n->mil);
    sb_puts(b, "\\n");
    put_label(b, n->name);
    for (int k = 0; k < n->n_attr; k++) put_attr(b, &n->attrs[k]);
    sb_puts(b, "\"];\n");
}

static void put_edge(strbuf *b, const graph *g, val v)
{
    const value *x = graph_value(g, v);
    sb_puts(b, " [label=\"");
    sb_ttype(b, &x->type);
    sb_putc(b, '"');
    if (g->nodes.at[x->node].n_out > 1) sb_printf(b, ", taillabel=\"%d\"", x->out);
}

void graph_dot(const graph *g, strbuf *b)
{
    sb_puts(b, "digraph \"");
    put_label(b, g->title);
    sb_puts(b, "\" {\n  node [shape=box, fontname=\"Helvetica\", fontsize=11];\n"
               "  edge [fontname=\"Helvetica\", fontsize=9, fontcolor=\"#777777\"];\n");
    for (uint32_t i = 1; i < g->nodes.n; i++) put_node(b, g, i);
    for (uint32_t i = 1; i < g->nodes.n; i++) {
        const node *n = &g->nodes.at[i];
        const op_info *info = op_get(n->op);
        for (int k = 0; k < n->n_in; k++) {
            if (!n->in[k].i) continue;
            sb_printf(b, "  n%u -> n%u", graph_value(g, n->in[k])->node, i);
            put_edge(b, g, n->in[k]);
            if (n->n_in > 1) { /* which operand it is */
                int spec = MIN(k, info->n_in - 1);
                sb_printf(b, ", headlabel=\"%s", info->in[spec].name);
                if (info->in[spec].list) sb_printf(b, " %d", k - spec);
                sb_putc(b, '"');
            }
            sb_puts(b, "];\n");
        }
    }
    for (size_t i = 0; i < g->outputs.n; i++) {
        const port *p = &g->outputs.at[i];
        sb_printf(b, "  out%zu [style=\"rounded,filled\", fillcolor=\"#e3f6df\", label=\"output\\n", i);
        put_label(b, p->name);
        sb_printf(b, "\"];\n  n%u -> out%zu", graph_value(g, p->v)->node, i);
        put_edge(b, g, p->v);
        sb_puts(b, "];\n");
    }
    sb_puts(b, "}\n");
}
