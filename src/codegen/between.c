/* between.c: values that lie between products, as the graph has them: made by one, and on their way through elementwise
 * steps and moves to nothing but operands of others.
 *
 * That is said of values, not of the tensors and instructions they became. A program that computes values again in its
 * backward pass has each of them twice, with some of its readers here and some there: what holds for one holds for the
 * other, and what is rounded does not depend on how often it is computed. For the same reason `separate` programs ask
 * here how many read a value. */
#include <stdlib.h>

#include "codegen/codegen_int.h"

static bool is_word(const char *word, const char *a, const char *b, const char *c)
{
    return !strcmp(word, a) || !strcmp(word, b) || (c && !strcmp(word, c));
}

static bool is_product(op_id op) { return is_word(op_get(op)->cost_rule, "gemm", "conv", NULL); }

/* Is operand k of n one of a product, with another that is computed? One by a constant may be a turn of positions. */
static bool multiplied(const graph *g, const node *n, int k)
{
    return is_product(n->op) && k < 2 && n->n_in > 1 && graph_maker(g, n->in[1 - k])->op != OP_CONST;
}

static bool passed_on(const node *n, int k)
{
    return is_word(op_get(n->op)->cost_rule, "eltwise", "table", "move") || (is_product(n->op) && k < 2);
}

typedef struct {
    uint64_t number;
    uint32_t value;
} numbered;

static int by_number(const void *a, const void *b)
{
    const numbered *x = a, *y = b;
    return x->number != y->number ? (x->number > y->number) - (x->number < y->number)
                                  : (x->value > y->value) - (x->value < y->value);
}

/* Per value the first that is the same; found once. */
static const uint32_t *first_of_same(cg *c)
{
    const size_t n = c->g->values.n;
    if (c->first) return c->first;
    uint64_t *number = TAKE(&c->mem, uint64_t, n);
    numbered *all = TAKE(&c->mem, numbered, n);
    uint32_t *first = TAKE(&c->mem, uint32_t, n);
    if (!number || !all || !first) return diag_nomem(&c->err), NULL;
    graph_numbers(c->g, number);
    for (size_t i = 0; i < n; i++) all[i] = (numbered){ number[i], (uint32_t)i };
    qsort(all, n, sizeof *all, by_number);
    for (size_t i = 0; i < n; i++)
        first[all[i].value] = i && all[i].number == all[i - 1].number ? first[all[i - 1].value] : all[i].value;
    return c->first = first;
}

/* Does n do with operand k nothing that needs more than a bf16? */
static bool fine(const graph *g, const node *n, int k, const uint32_t *first, const bool *lies)
{
    if (multiplied(g, n, k)) return true;
    for (int q = 0; q < n->n_out; q++)
        if (!lies[first[n->out.i + (uint32_t)q]]) return false;
    return passed_on(n, k);
}

bool *read_by_one(cg *c)
{
    enum { NOBODY = 0 };
    const graph *g = c->g;
    const uint32_t *first = first_of_same(c);
    uint32_t *reader = TAKE(&c->mem, uint32_t, g->values.n);
    bool *many = TAKE(&c->mem, bool, g->values.n), *roots = TAKE(&c->mem, bool, c->t.n);
    if (!first || !reader || !many || !roots) return diag_nomem(&c->err), NULL;
    for (size_t v = 0; v < g->values.n; v++) reader[v] = NOBODY, many[v] = false;
    for (size_t t = 0; t < c->t.n; t++) roots[t] = true;
    for (size_t i = 1; i < g->nodes.n; i++) {
        const node *n = &g->nodes.at[i];
        for (int k = 0; k < n->n_in; k++) {
            uint32_t *r = &reader[first[n->in[k].i]];
            many[first[n->in[k].i]] |= *r != NOBODY && *r != first[n->out.i];
            *r = first[n->out.i];
        }
    }
    for (size_t v = 1; v < g->values.n; v++)
        if (c->of[v] >= 0 && many[first[v]]) roots[cg_root(c, c->of[v])] = false;
    return roots;
}

bool *between_products(cg *c)
{
    const graph *g = c->g;
    const uint32_t *first = first_of_same(c);
    bool *lies = TAKE(&c->mem, bool, g->values.n), *roots = TAKE(&c->mem, bool, c->t.n), again = true;
    if (!first || !lies || !roots) return diag_nomem(&c->err), NULL;
    memset(roots, false, c->t.n * sizeof *roots);
    memset(lies, true, g->values.n * sizeof *lies);
    for (size_t i = 0; i < g->outputs.n; i++) lies[first[g->outputs.at[i].v.i]] = false;
    while (again) { /* readers of the second of two may stand before those of the first */
        again = false;
        for (size_t i = g->nodes.n; i-- > 1;) {
            const node *n = &g->nodes.at[i];
            for (int k = 0; k < n->n_in; k++) {
                bool *x = &lies[first[n->in[k].i]];
                if (*x && !fine(g, n, k, first, lies)) *x = false, again = true;
            }
        }
    }
    for (size_t v = 1; v < g->values.n; v++)
        if (c->of[v] >= 0) roots[cg_root(c, c->of[v])] = true;
    for (size_t v = 1; v < g->values.n; v++)
        if (c->of[v] >= 0 && !lies[first[v]]) roots[cg_root(c, c->of[v])] = false;
    return roots;
}
