/* same.c: are two graphs the same graph? The first difference is put in words. */
#include <math.h>

#include "graph/graph.h"

#define DIFFER(...) return (why ? sb_printf(why, __VA_ARGS__) : (void)0), false

static bool same_text(const char *a, const char *b) { return a == b || (a && b && !strcmp(a, b)); }

static bool same_attrs(const node *a, const node *b, strbuf *why)
{
    if (a->n_attr != b->n_attr) DIFFER("%s: %d attributes and %d", a->name, a->n_attr, b->n_attr);
    for (int i = 0; i < a->n_attr; i++) {
        const attr *y = attr_get(b->attrs, b->n_attr, a->attrs[i].id);
        if (!y) DIFFER("%s: only one has attribute %s", a->name, attr_name(a->attrs[i].id));
        if (!attr_eq(&a->attrs[i], y)) DIFFER("%s: attribute %s differs", a->name, attr_name(a->attrs[i].id));
    }
    return true;
}

static bool same_const(const node *a, const node *b, const ttype *t, strbuf *why)
{
    const const_data *x = a->cst, *y = b->cst;
    size_t bytes;
    if (!same_text(x->str, y->str)) DIFFER("%s: strings differ", a->name);
    if (!same_text(x->blob_path, y->blob_path) || (x->blob_path && x->blob_offset != y->blob_offset))
        DIFFER("%s: blob references differ", a->name);
    /* The same reference with bytes on one side only is the same constant, looked up or not. */
    if (x->blob_path && (!x->data || !y->data)) return true;
    if (!x->data != !y->data) DIFFER("%s: only one has its data", a->name);
    if (x->data && x->data != y->data && shape_bytes(t, &bytes) && memcmp(x->data, y->data, bytes))
        DIFFER("%s: data differs", a->name);
    return true;
}

static bool same_node(const graph *ga, const graph *gb, uint32_t i, strbuf *why)
{
    const node *a = &ga->nodes.at[i], *b = &gb->nodes.at[i];
    if (!same_text(a->name, b->name)) DIFFER("node %u is named %s and %s", i, a->name, b->name);
    if (a->op != b->op || !same_text(a->mil, b->mil)) DIFFER("%s: operation is %s and %s", a->name, a->mil, b->mil);
    if (a->flags != b->flags) DIFFER("%s: flags are %u and %u", a->name, a->flags, b->flags);
    if (a->n_in != b->n_in) DIFFER("%s: %d operands and %d", a->name, a->n_in, b->n_in);
    if (a->n_out != b->n_out || a->out.i != b->out.i) DIFFER("%s: %d results and %d", a->name, a->n_out, b->n_out);
    for (int k = 0; k < a->n_in; k++)
        if (a->in[k].i != b->in[k].i)
            DIFFER("%s: operand %d is %s and %s", a->name, k, a->in[k].i ? graph_value(ga, a->in[k])->name : "left out",
                   b->in[k].i ? graph_value(gb, b->in[k])->name : "left out");
    for (int k = 0; k < a->n_out; k++) {
        const value *x = &ga->values.at[a->out.i + (uint32_t)k], *y = &gb->values.at[b->out.i + (uint32_t)k];
        if (!same_text(x->name, y->name)) DIFFER("%s: result %d is named %s and %s", a->name, k, x->name, y->name);
        if (x->type.dt == y->type.dt && shape_eq(&x->type.sh, &y->type.sh)) continue;
        if (why) {
            sb_printf(why, "%s: type is ", x->name);
            sb_ttype(why, &x->type);
            sb_puts(why, " and ");
            sb_ttype(why, &y->type);
        }
        return false;
    }
    if (!same_attrs(a, b, why)) return false;
    return a->op != OP_CONST || same_const(a, b, &ga->values.at[a->out.i].type, why);
}

bool graph_same(const graph *a, const graph *b, strbuf *why)
{
    if (!same_text(a->title, b->title)) DIFFER("titles are %s and %s", a->title, b->title);
    for (uint32_t i = 1; i < a->nodes.n && i < b->nodes.n; i++)
        if (!same_node(a, b, i, why)) return false;
    if (a->nodes.n != b->nodes.n) DIFFER("%zu nodes and %zu", a->nodes.n - 1, b->nodes.n - 1);
    if (a->inputs.n != b->inputs.n) DIFFER("%zu inputs and %zu", a->inputs.n, b->inputs.n);
    for (size_t i = 0; i < a->inputs.n; i++)
        if (a->inputs.at[i].i != b->inputs.at[i].i)
            DIFFER("input %zu is %s and %s", i, graph_value(a, a->inputs.at[i])->name,
                   graph_value(b, b->inputs.at[i])->name);
    if (a->outputs.n != b->outputs.n) DIFFER("%zu outputs and %zu", a->outputs.n, b->outputs.n);
    for (size_t i = 0; i < a->outputs.n; i++) {
        const port *x = &a->outputs.at[i], *y = &b->outputs.at[i];
        if (!same_text(x->name, y->name) || x->v.i != y->v.i)
            DIFFER("output %zu is %s=%s and %s=%s", i, x->name, graph_value(a, x->v)->name, y->name,
                   graph_value(b, y->v)->name);
    }
    return true;
}
