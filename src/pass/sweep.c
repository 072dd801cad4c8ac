/* sweep.c: the walk most clean-up passes are: node by node, moving uses to an equal value made earlier.
 * In: a graph and a visitor that recognises one pattern.  Out: the same nodes with fewer of them used. */
#include <math.h>

#include "pass/pass_int.h"

bool op_is_reshape(op_id op)
{
    return op == OP_RESHAPE || op == OP_EXPAND_DIMS || op == OP_SQUEEZE || op == OP_FLATTEN2D || op == OP_RESHAPE_LIKE;
}

bool has_elements(const shape *sh)
{
    for (int k = 0; k < sh->rank; k++)
        if (sh->d[k] <= 0) return false;
    return true;
}

bool op_is_mac(op_id op)
{
    return op == OP_CONV || op == OP_NE_CONV || op == OP_CONV_TRANSPOSE || op == OP_LINEAR || op == OP_MATMUL ||
           op == OP_NE_MATMUL || op == OP_EINSUM || op == OP_SDPA;
}

bool const_is(const graph *g, val v, double x)
{
    double c;
    if (!graph_const_scalar(g, v, &c) || c != x) return false;
    if (x != 0 || !dtype_is_float(graph_type(g, v)->dt)) return true;
    const node *n = graph_const_of(g, v);
    const ttype *t = graph_type(g, v);
    int64_t elems;
    if (!shape_elems(&t->sh, &elems)) return false;
    for (int64_t i = 0; i < elems; i++) /* -0 == 0, but x + 0 and x + -0 are different functions */
        if (!signbit(graph_const_at(n, t, i)) != !signbit(x)) return false;
    return true;
}

bool node_list(const node *n, attr_id a, int want, int64_t *out)
{
    return attr_list(n->op, n->attrs, n->n_attr, a, want, out);
}

bool sweep_forward(sweep *s, val from, val to)
{
    const graph *g = s->g;
    if (!to.i || from.i == to.i || !ttype_eq(graph_type(g, from), graph_type(g, to))) return false;
    if (s->is_out[from.i]) {
        op_id op = graph_maker(g, to)->op;
        if (op == OP_INPUT || op == OP_CONST || s->is_out[to.i]) return false;
        s->is_out[to.i] = true;
    }
    s->fwd[from.i] = to;
    return true;
}

an_status sweep_set_unary(sweep *s, uint32_t i, op_id op, val x, attr_id a, const int64_t *list, int n, diag *d)
{
    node *nd = &s->g->nodes.at[i];
    val *in = TAKE(&s->g->mem, val, 1);
    attr *at = TAKE(&s->g->mem, attr, 1);
    int64_t *copy = TAKE(&s->g->mem, int64_t, (size_t)n);
    if (!in || !at || !copy) return diag_nomem(d);
    for (int k = 0; k < n; k++) copy[k] = list[k];
    *in = x;
    *at = (attr){ .id = a, .kind = ATTR_INTS, .n = n, .u.is = copy };
    nd->op = op;
    nd->mil = op_get(op)->mil;
    nd->in = in;
    nd->n_in = 1;
    nd->attrs = at;
    nd->n_attr = 1;
    s->c->n_changes++;
    return AN_OK;
}

static void move_operands(sweep *s, node *n)
{
    for (int k = 0; k < n->n_in; k++) {
        val to = s->fwd[n->in[k].i];
        if (to.i == n->in[k].i) continue;
        n->in[k] = to;
        s->c->n_changes++;
    }
}

an_status sweep_run(graph *g, pass_ctx *c, sweep_fn f, void *user, diag *d)
{
    sweep s = { .g = g, .c = c, .user = user };
    s.fwd = TAKE(&c->scratch, val, g->values.n);
    s.is_out = TAKE(&c->scratch, bool, g->values.n);
    s.n_uses = TAKE(&c->scratch, uint32_t, g->values.n);
    if (!s.fwd || !s.is_out || !s.n_uses) return diag_nomem(d);
    for (size_t v = 0; v < g->values.n; v++) s.fwd[v] = (val){ (uint32_t)v };
    for (size_t o = 0; o < g->outputs.n; o++) s.is_out[g->outputs.at[o].v.i] = true;
    graph_uses(g, s.n_uses);
    for (uint32_t i = 1; i < g->nodes.n; i++) {
        node *n = &g->nodes.at[i];
        move_operands(&s, n);
        /* A node nobody reads is dead code: rewriting it would report a change that changes nothing. */
        bool used = false;
        for (int k = 0; k < n->n_out && !used; k++) used = s.n_uses[n->out.i + (uint32_t)k] != 0;
        if (used) TRY(f(&s, i, d));
    }
    for (size_t o = 0; o < g->outputs.n; o++) {
        val to = s.fwd[g->outputs.at[o].v.i];
        if (to.i == g->outputs.at[o].v.i) continue;
        g->outputs.at[o].v = to;
        c->n_changes++;
    }
    return AN_OK;
}

/* ---- constants derived from constants ---- */

val const_reshaped(graph *g, val v, shape sh)
{
    if (g->err.st || !v.i) return NO_VAL;
    const const_data *c = graph_maker(g, v)->cst;
    ttype t = { .dt = graph_type(g, v)->dt, .sh = sh };
    return c->blob_path ? graph_const_blob(g, NULL, t, c->blob_path, c->blob_offset, c->data)
                        : graph_const_view(g, NULL, t, c->data);
}

bool bytes_transpose(const ttype *t, const int *perm, const void *src, void *dst)
{
    int bits = dtype_bits(t->dt), rank = t->sh.rank;
    int64_t n, from[MAX_RANK], step[MAX_RANK], at[MAX_RANK] = { 0 };
    if (bits % 8 || !shape_elems(&t->sh, &n)) return false;
    size_t size = (size_t)bits / 8;
    shape_strides(&t->sh, from);
    for (int k = 0; k < rank; k++) step[k] = from[perm[k]];
    const unsigned char *s = src;
    unsigned char *o = dst;
    int64_t inner = rank ? t->sh.d[perm[rank - 1]] : 1, inner_step = rank ? step[rank - 1] : 0, off = 0;
    for (int64_t done = 0; done < n; done += inner) {
        if (size == 2) /* the usual case, without a call per element */
            for (int64_t k = 0; k < inner; k++, o += 2) {
                const unsigned char *p = s + (off + k * inner_step) * 2;
                o[0] = p[0], o[1] = p[1];
            }
        else
            for (int64_t k = 0; k < inner; k++, o += size) memcpy(o, s + (size_t)(off + k * inner_step) * size, size);
        for (int k = rank - 2; k >= 0; k--) {
            off += step[k];
            if (++at[k] < t->sh.d[perm[k]]) break;
            off -= step[k] * at[k];
            at[k] = 0;
        }
    }
    return true;
}

val const_transposed(graph *g, val v, const int *perm)
{
    if (g->err.st || !v.i) return NO_VAL;
    ttype t = *graph_type(g, v), o = t;
    size_t bytes;
    for (int k = 0; k < t.sh.rank; k++) o.sh.d[k] = t.sh.d[perm[k]];
    if (!shape_bytes(&t, &bytes))
        return graph_fail(g, AN_BUG, "constant %s has no size", graph_value(g, v)->name), NO_VAL;
    void *p = arena_take(&g->mem, bytes, 1, 64);
    if (!p) return graph_fail(g, AN_NOMEM, "out of memory"), NO_VAL;
    if (!bytes_transpose(&t, perm, graph_maker(g, v)->cst->data, p))
        return graph_fail(g, AN_BUG, "constant %s of %s cannot be transposed", graph_value(g, v)->name,
                          dtype_name(t.dt)),
               NO_VAL;
    return graph_const_view(g, NULL, o, p);
}

val const_sliced(graph *g, val v, int axis, int64_t at, int64_t extent)
{
    if (g->err.st || !v.i) return NO_VAL;
    ttype t = *graph_type(g, v), o = t;
    const node *c = graph_maker(g, v);
    int64_t outer = 1, inner = 1;
    size_t bytes;
    o.sh.d[axis] = extent;
    for (int k = 0; k < axis; k++) outer *= t.sh.d[k];
    for (int k = axis + 1; k < t.sh.rank; k++) inner *= t.sh.d[k];
    if (!shape_bytes(&o, &bytes)) return graph_fail(g, AN_BUG, "constant %s has no size", c->name), NO_VAL;
    unsigned char *p = arena_take(&g->mem, bytes, 1, 64);
    if (!p) return graph_fail(g, AN_NOMEM, "out of memory"), NO_VAL;
    int bits = dtype_bits(t.dt);
    for (int64_t k = 0; k < outer; k++) {
        int64_t from = (k * t.sh.d[axis] + at) * inner, to = k * extent * inner, run = extent * inner;
        if (bits % 8 == 0)
            memcpy(p + to * (bits / 8), (const unsigned char *)c->cst->data + from * (bits / 8),
                   (size_t)(run * (bits / 8)));
        else
            for (int64_t e = 0; e < run; e++) dtype_store(t.dt, p, to + e, dtype_load(t.dt, c->cst->data, from + e));
    }
    return graph_const_view(g, NULL, o, p);
}

bool perm_of(const graph *g, const node *n, int *perm)
{
    int rank = in_type(g, n, 0)->sh.rank;
    int64_t p[MAX_RANK];
    if (!node_list(n, A_PERM, rank, p)) return false;
    for (int k = 0; k < rank; k++)
        if (!axis_norm(p[k], rank, &perm[k])) return false;
    return true;
}
