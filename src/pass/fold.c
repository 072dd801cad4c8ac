/* fold.c: operations on constants become constants. Each result is rounded to the type the graph declares for it,
 * operation by operation, exactly as running the operations one after the other in that type would round; folding a
 * chain is therefore not more accurate than running it, and not less. Left alone: constants whose bytes are not
 * known here, the constexpr_* and dequantize weight forms (folding would undo the compression), state, random
 * numbers, results that are not finite (the engine's rules for those are its own), results that would grow the
 * program, products that take long, and what the program returns: a program must compute it. */
#include <math.h>

#include "pass/pass_int.h"

enum {
    FREE_BYTES = 64 * 1024,  /* a result up to this size may be larger than its operands */
    /* operands and result together, through the evaluator; moves of bytes have no such limit */
    MAX_ELEMS = 1 << 18,
    MAX_WORK = 1 << 24,      /* multiply-adds, bounded by elements of the result times those of the first operand */
};

static bool may_fold(op_id op)
{
    switch (op) {
    case OP_INPUT:
    case OP_CONST:
    case OP_OPAQUE:
    case OP_RANDOM_UNIFORM:
    case OP_READ_STATE:
    case OP_WRITE_STATE:
    case OP_DEQUANTIZE:
    case OP_CX_AFFINE:
    case OP_CX_LUT:
    case OP_CX_SPARSE:
    case OP_CX_BLOCK:
    case OP_CX_SPARSE_BLOCK: return false;
    default: return true;
    }
}

static an_status become_const(sweep *s, node *n, const const_data *cst, diag *d)
{
    const_data *copy = TAKE(&s->g->mem, const_data, 1);
    if (!copy) return diag_nomem(d);
    *copy = *cst;
    n->op = OP_CONST;
    n->mil = op_get(OP_CONST)->mil;
    n->n_in = n->n_attr = 0;
    n->in = NULL;
    n->attrs = NULL;
    n->flags = 0;
    n->cst = copy;
    s->c->n_changes++;
    return AN_OK;
}

/* Through the evaluator, in scratch. *ok stays false when the op has no finite value here. */
static an_status evaluate(sweep *s, const node *n, void *bytes, bool *ok, diag *d)
{
    graph *g = s->g;
    arena *mem = &s->c->scratch;
    tensor64 *in = TAKE(mem, tensor64, (size_t)n->n_in), out = { .type = *out_type(g, n) };
    if (!in) return diag_nomem(d);
    for (int k = 0; k < n->n_in; k++) {
        if (!n->in[k].i) continue;
        int64_t elems;
        const node *c = graph_const_of(g, n->in[k]);
        in[k].type = *in_type(g, n, k);
        if (!shape_elems(&in[k].type.sh, &elems)) return AN_OK;
        in[k].x = TAKE(mem, double, (size_t)elems);
        if (!in[k].x) return diag_nomem(d);
        for (int64_t e = 0; e < elems; e++) in[k].x[e] = graph_const_at(c, &in[k].type, e);
    }
    diag why = { 0 };
    an_status st = graph_eval_op(n->op, n->attrs, n->n_attr, in, n->n_in, &out, 1, mem, &why);
    if (st == AN_NOMEM) return diag_nomem(d);
    int64_t elems;
    /* no value for these constants: running it will say why */
    if (st || !shape_elems(&out.type.sh, &elems)) return AN_OK;
    for (int64_t e = 0; e < elems; e++) {
        dtype_store(out.type.dt, bytes, e, out.x[e]);
        if (!isfinite(dtype_load(out.type.dt, bytes, e))) return AN_OK;
    }
    *ok = true;
    return AN_OK;
}

static an_status visit(sweep *s, uint32_t i, diag *d)
{
    graph *g = s->g;
    node *n = &g->nodes.at[i];
    if (!may_fold(n->op) || n->n_out != 1 || s->is_out[n->out.i]) return AN_OK;
    size_t in_bytes = 0, out_bytes, bytes;
    int64_t in_elems = 0, first = 1, out_elems, elems;
    for (int k = 0; k < n->n_in; k++) {
        if (!n->in[k].i) continue;
        if (!graph_const_of(g, n->in[k]) || !shape_bytes(in_type(g, n, k), &bytes) ||
            !shape_elems(&in_type(g, n, k)->sh, &elems))
            return AN_OK;
        in_bytes += bytes;
        in_elems += elems;
        if (k == 0) first = elems;
    }
    const ttype *t = out_type(g, n);
    if (t->dt == DT_STRING || !shape_bytes(t, &out_bytes) || !shape_elems(&t->sh, &out_elems)) return AN_OK;
    if (out_bytes > MAX(in_bytes, (size_t)FREE_BYTES)) return AN_OK;

    if (op_is_reshape(n->op)) return become_const(s, n, graph_maker(g, n->in[0])->cst, d); /* same bytes */
    int perm[MAX_RANK];
    bool is_move = n->op == OP_TRANSPOSE && dtype_bits(t->dt) % 8 == 0 && perm_of(g, n, perm);
    int64_t work = 0;
    if (!is_move && (in_elems + out_elems > MAX_ELEMS ||
                     (op_is_mac(n->op) && (!mul_i64(first, out_elems, &work) || work > MAX_WORK))))
        return AN_OK;
    arena_mark before = arena_save(&s->c->scratch), room = arena_save(&g->mem);
    void *data = arena_take(&g->mem, out_bytes, 1, 64);
    if (!data) return diag_nomem(d);
    bool ok = false;
    if (is_move) ok = bytes_transpose(in_type(g, n, 0), perm, graph_const_of(g, n->in[0])->cst->data, data);
    else TRY(evaluate(s, n, data, &ok, d));
    arena_back(&s->c->scratch, before);
    if (ok) return become_const(s, n, &(const_data){ .data = data }, d);
    arena_back(&g->mem, room);
    return AN_OK;
}

an_status pass_fold(graph *g, pass_ctx *c, diag *d) { return sweep_run(g, c, visit, NULL, d); }
