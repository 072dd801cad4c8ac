/* rounded.c: weights as products of bf16 read them. In: a trainer whose device rounds the operands of products to
 * bf16.  Out: beside each matrix a copy that is rounded already.
 *
 * A product for few columns takes longer to bring and round its weight than to multiply by it, and a step would do
 * that twice, forward and back. The update that writes the weight writes the copy with it: products read half the
 * bytes and round nothing, and multiply the same numbers. The copy is no state: no file has it, and where the host
 * has written a weight it is made again before the next dispatch. */
#include "kernel/kernel.h"
#include "train/train_int.h"

enum {
    ENOUGH = 1 << 20, /* multiply-adds: the engine takes much shorter products in fp32 as they are */
    /* weights of fewer second caches are near when they are read again: a copy would cost more than it saves */
    MANY_CACHES = 8,
};

static int64_t of_axes(const shape *s, int from, int to)
{
    int64_t n = 1;
    for (int i = from; i < to; i++) n *= s->d[i];
    return n;
}

/* Is operand k of n a matrix it multiplies by, with enough work in each product? */
static bool is_matrix(const graph *g, const node *n, int k)
{
    const shape *w = &graph_type(g, n->in[k])->sh, *y = &graph_type(g, n->out)->sh;
    int64_t work = of_axes(w, 0, w->rank);
    if (n->op == OP_CONV || n->op == OP_CONV_TRANSPOSE) {
        if (k != 1 || w->rank < 3 || of_axes(w, 2, w->rank) != 1 || attr_int(n->op, n->attrs, n->n_attr, A_GROUPS) != 1)
            return false;
        work *= of_axes(y, 2, y->rank);
    } else if (n->op == OP_MATMUL) {
        if (k > 1 || w->rank != 2 || y->rank < 2) return false;
        work *= y->d[y->rank - 1 - k];
    } else return false;
    return work >= ENOUGH;
}

static bool multiplied_by(const graph *g, const param *p)
{
    for (size_t i = 1; i < g->nodes.n; i++) {
        const node *n = &g->nodes.at[i];
        for (int k = 0; k < n->n_in; k++)
            if (n->in[k].i == p->v.i && is_matrix(g, n, k)) return true;
    }
    return false;
}

void rounded_plan(trainer *t, const graph *g)
{
    int64_t bytes = 0;
    if (!t->in_place || t->o.copies == TRAIN_COPIES_NEVER || !device_rounds_products(t->dev)) return;
    for (size_t i = 0; i < t->params.n; i++) {
        param *p = &t->params.at[i];
        p->copy.on = !p->frozen && p->type.dt == DT_F32 && multiplied_by(g, p);
        if (p->copy.on) bytes += p->n * (int64_t)sizeof(float);
    }
    const bool near = bytes < MANY_CACHES * (int64_t)cpu_l2_bytes();
    for (size_t i = 0; near && t->o.copies != TRAIN_COPIES_ALWAYS && i < t->params.n; i++)
        t->params.at[i].copy.on = false;
}

void rounded_read(graph *g, const val *instead)
{
    for (size_t i = 1; i < g->nodes.n; i++) {
        node *n = &g->nodes.at[i];
        for (int k = 0; k < n->n_in; k++)
            if (instead[n->in[k].i].i && is_matrix(g, n, k)) n->in[k] = instead[n->in[k].i];
    }
}

static an_status make_again(trainer *t, const param *p, diag *d)
{
    void *from, *to;
    dev_surface *w = state_now(t, &t->states.at[p->w]);
    TRY(dev_surface_lock(w, true, &from, d));
    an_status st = dev_surface_lock(p->copy.s, false, &to, d);
    if (!st) {
        t->vec->store(to, DT_BF16, from, p->n);
        st = dev_surface_unlock(p->copy.s, d);
    }
    diag later = { 0 };
    an_status last = dev_surface_unlock(w, st ? &later : d);
    return st ? st : last;
}

an_status rounded_refresh(trainer *t, diag *d)
{
    for (size_t i = 0; i < t->params.n; i++) {
        param *p = &t->params.at[i];
        if (!p->copy.s || !p->copy.stale) continue;
        TRY(make_again(t, p, d));
        p->copy.stale = false;
    }
    return AN_OK;
}

void rounded_stale(trainer *t, int i)
{
    for (int k = 0; k < (int)t->params.n; k++)
        if (i < 0 || k == i) t->params.at[k].copy.stale = true;
}
